//! The memcached-compatible server, over any engine of azekura.
//!
//! ```text
//!   server     a server as a whole                     secrets         password and certificate files
//!   owner      what the protocol needs of the server   config          the configuration, checked
//!   net        sockets and threads                     watch           the HTTP status page and metrics
//!   memcached  the protocol: bytes to commands, and what a command means, as one step of the engine
//!   item       what memcached keeps with the data, in a record's value
//! ```
//!
//! A row knows the rows below it, never one above. [`memcached::Session`] is one connection's side of the protocol, and
//! knows no sockets: bytes go in, bytes come out.

pub mod config;
pub mod item;
pub mod memcached;
pub mod net;
mod owner;
mod secrets;
mod server;
pub mod watch;

pub use secrets::is_open_to_others;
pub use server::Server;
