//! Everything that listens: memcached's protocol over any engine of azekura.
//!
//! ```text
//!   config    what a server is told, checked; secrets server  a server as a whole; owner  what clients may ask of it
//!   net       bytes of a connection, threads          watch   what it shows of itself over HTTP
//!   memcached grammar: bytes to commands, borrowed from the buffer; what a command means, as one step of the engine
//!   item      what memcached keeps beside the data, in a record's value
//!   azekura   the engine
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
