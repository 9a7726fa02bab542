//! What operators see and change: counts, times, clients, events.
//!
//! ```text
//!   admin  detail             the command `stats`
//!   stats  latency  trouble   counters, times and errors that it shows
//!   guests  logins            clients and failed logins
//!   watchers                  the command `watch`
//!   tools                     further commands of memcached's tools
//! ```
//!
//! Nothing here knows a socket.

pub(crate) mod admin;
pub(crate) mod detail;
pub(crate) mod guests;
pub mod latency;
pub(crate) mod logins;
pub(crate) mod stats;
pub(crate) mod tools;
pub(crate) mod trouble;
pub(crate) mod watchers;
