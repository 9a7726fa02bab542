//! memcached's protocol, without a socket: bytes of a connection in, bytes of the answers out.
//!
//! [`Service`] is what all connections share: the engine, the clock, the limits, the figures. [`Session`] is one
//! connection: its `serve` takes as many requests as there are, in text, meta or binary form, and appends the answers.
//! Answers are those of memcached 1.6.45, byte for byte, but for the differences listed at `text` and at `meta`.
//!
//! ```text
//!   session     which protocol, what is unfinished     text  meta  binary   grammar: bytes to a command
//!   gets  sets  runs of reads and of writes            execute              a command as one update of the engine
//!   stats  latency  trouble     figures                walk  sweep          over all records
//!   admin  detail  guests       `stats`                operate  asked       for operators; a request in words
//!   watchers    `watch`                                datagram             a request that comes alone
//! ```
//!
//! Nothing here blocks, but for what the engine does. A value is copied twice: from the input into the record, and from
//! the record into the output.

mod admin;
mod asked;
pub mod binary;
mod classic;
pub mod datagram;
mod detail;
mod execute;
mod gets;
mod guests;
pub mod latency;
pub(crate) mod logins;
pub mod meta;
mod number;
mod operate;
mod service;
mod session;
mod sets;
mod stats;
mod sweep;
pub mod text;
mod trouble;
mod walk;
mod watchers;

pub(crate) use admin::figures_of;
pub(crate) use asked::{Asked, FRONT_LEN};
pub(crate) use gets::likely_key;
pub use guests::{Guest, Place};
pub(crate) use service::system_time;
pub use service::{Outside, Passwords, Service, Settings};
pub use session::{Next, Served, Session, Transport};
pub use stats::Stats;
pub use sweep::Swept;
pub use trouble::Trouble;
pub(crate) use watchers::{Reason, Watchers};
