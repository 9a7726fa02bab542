//! What commands mean: each as one read or one update of the engine.
//!
//! ```text
//!   execute        a command as one step of the engine
//!   classic        the text commands of one line
//!   gets  sets     runs of reads and of writes
//!   walk  sweep    over all records
//! ```
//!
//! Nothing here knows a connection.

pub(crate) mod classic;
pub(crate) mod execute;
pub(crate) mod gets;
pub(crate) mod sets;
pub(crate) mod sweep;
pub(crate) mod walk;
