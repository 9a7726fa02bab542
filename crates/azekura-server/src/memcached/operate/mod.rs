//! What operators see and change: counters, times, clients, events.
//!
//! ```text
//!   stats                                the command `stats`
//!   counters  key_stats  latency errors  what it shows: of commands, of key prefixes, times, failures of the engine
//!   client_info  clients  logins         who is connected, and failed logins
//!   watchers                             the command `watch`
//!   tools                                further commands of memcached's tools
//! ```
//!
//! Nothing here knows a socket.

pub(crate) mod client_info;
pub(crate) mod clients;
pub(crate) mod counters;
pub(crate) mod errors;
pub(crate) mod key_stats;
pub mod latency;
pub(crate) mod logins;
pub(crate) mod stats;
pub(crate) mod tools;
pub(crate) mod watchers;
