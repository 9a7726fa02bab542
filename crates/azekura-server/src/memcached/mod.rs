//! memcached's protocol, without a socket: bytes of a connection in, bytes of the answers out.
//!
//! [`Service`] is what all connections share: the engine, the clock, the limits, the statistics. [`Session`] is one
//! connection: its `serve` takes as many requests as there are, in text, meta or binary form, and appends the answers.
//! Answers are those of memcached 1.6.45, byte for byte, but for the differences listed at `text` and at `meta`.
//!
//! ```text
//!   datagram             a request that comes alone
//!   session              one connection: which protocol, what is unfinished
//!   command              what a command means, as one step of the engine
//!   service              what all connections share
//!   operate              counters, times, clients, events
//!   protocol             grammar: bytes to a command
//!   clock  passwords     the system's time; users
//! ```
//!
//! Nothing here blocks, but for what the engine does. A value is copied twice: from the input into the record, and from
//! the record into the output.

mod clock;
pub(crate) mod command;
pub mod datagram;
pub(crate) mod operate;
mod passwords;
mod protocol;
mod service;
mod session;

pub(crate) use clock::system_time;
pub(crate) use command::gets::probable_key;
pub use command::sweep::Swept;
pub use operate::client_info::ClientInfo;
pub(crate) use operate::client_info::CloseReason;
pub use operate::clients::ClientEntry;
pub use operate::counters::Counters;
pub(crate) use operate::counters::figures;
pub use operate::errors::ErrorCounters;
pub use operate::latency;
pub(crate) use operate::logins::network;
pub(crate) use operate::stats::figures_of;
pub(crate) use operate::watchers::Watchers;
pub use passwords::Passwords;
pub(crate) use protocol::describe::{FRONT_LEN, RequestSummary};
pub use protocol::{binary, meta, text};
pub use service::{Outside, Service, Settings};
pub use session::{Next, Served, Session, Transport};
