//! What the server, the command line and the benchmarks share about the wire, and about one another as programs.
//!
//! ```text
//!   exit      the exit code of each kind of error        address   HOST:PORT, tls:HOST:PORT, udp:HOST:PORT, unix:PATH
//!   durability  its words in flags and results
//!   pem       certificates and keys from files           trust     which server certificates a client accepts
//!   stream    one socket, plain or encrypted             client    one blocking connection to a memcached server
//!   refusal   the kind of error that a server's answer reports
//! ```
//!
//! It promises one meaning of each of these in all programs. It knows no engine and no command.

pub mod address;
pub mod client;
pub mod durability;
pub mod exit;
pub mod pem;
pub mod refusal;
pub mod stream;
pub mod trust;

pub use address::Address;
pub use client::Client;
pub use stream::Stream;
pub use trust::Trust;
