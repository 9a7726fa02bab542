//! Records in a file that is built at once, in the order of their keys.
//!
//! Promises:
//! 1. A file is whole and durable when it has its name, and is never changed. Any number of processes map and share it.
//! 2. A lookup reads one block of 4 KiB of each level: of 10 million records of 8 and 8 bytes three, of which the upper two take 1 MiB
//!    for all. It takes no lock, copies nothing and stores nothing. Every block and overflow is verified when a process first
//!    touches it.
//! 3. A record of 8 and 8 bytes takes 16 to 21 bytes.
//! 4. A record is also found by its number in order, and a key's number by the key: so how many records a range has costs two lookups.
//! 5. Building sorts any number of records, in any order, in a stated memory; several values of one key become what a
//!    [`Reducer`] makes of them. Keys may repeat on request.
//! 6. Damage of a block costs its records: the error states the range of keys. [`repair`] takes out all others.
//! 7. Keys in lexical order have up to 8 MiB - 1, in other orders 509 bytes.
//!
//! ```text
//!   builder   what users call           reader   what users call
//!     sorter, arena, merge, reduce        cursor, check    search   the ways down
//!       writer, node_builder ---- layout ---- repair       blocks   verified bytes of a mapped file
//!   db        a file that is edited: pending edits over it, and merges that replace it
//! ```
//!
//! The nodes of blocks are those of the trees (`node`), filled to the last byte. How a file is edited, and replaced by another: `db`.

mod arena;
mod blocks;
mod builder;
mod check;
mod cursor;
mod db;
mod layout;
mod merge;
mod node_builder;
mod reader;
mod reduce;
mod repair;
mod search;
mod sorter;
mod writer;

pub use builder::{BuildOptions, SkipBuilder};
pub use cursor::SkipCursor;
pub use db::{EditOptions, PendingEdits, Reducing, ReducingSkipDb, Replacing, SkipDb};
pub use reader::SkipReader;
pub use reduce::{Reduce, Reducer};
pub use repair::{SkipRepairReport, repair};

use crate::io::Storage;
use crate::node::KEY_LEN_MAX;
use crate::order::Order;
use crate::record::limits::Limits;

/// The longest records.
const LIMITS: Limits = Limits {
    key: (8 << 20) - 1,
    value: (2 << 30) - 1,
    whose: "a sorted file",
};
/// The same where keys are compared as a whole.
const LIMITS_OF_WHOLE_KEYS: Limits = Limits {
    key: KEY_LEN_MAX as u64 - 1,
    value: LIMITS.value,
    whose: "a sorted file in this order",
};

/// How long records may be in a file of this order: where keys are compared as a whole, all of a key stands in its leaf.
fn limits(order: Order) -> &'static Limits {
    match order {
        Order::Lexical => &LIMITS,
        _ => &LIMITS_OF_WHOLE_KEYS,
    }
}

/// Whether a storage holds a sorted file.
pub(crate) fn is_sorted_file(storage: &dyn Storage) -> bool {
    layout::is_sorted_file(storage)
}
