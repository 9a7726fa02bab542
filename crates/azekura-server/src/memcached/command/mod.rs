//! What commands mean: each as one read or one update of the engine.
//!
//! ```text
//!   text  meta  binary             commands of a protocol, executed and answered
//!   gets  sets                     runs of reads and of writes
//!   walk  sweep                    over all records
//!   executor  store  arithmetic    a command as one step of the engine
//!   notes  answer                  what watchers and clients learn of it
//! ```
//!
//! A file here that has the name of one in `protocol` executes what that one parses. Nothing here knows a connection.

pub(crate) mod answer;
mod arithmetic;
pub(crate) mod binary;
pub(crate) mod executor;
pub(crate) mod gets;
pub(crate) mod meta;
mod notes;
pub(crate) mod sets;
mod store;
pub(crate) mod sweep;
pub(crate) mod text;
pub(crate) mod walk;
