//! The store kernel: what every store that keeps a log has besides, written once for all engines.
//!
//! A store on storage is a superblock in two slots, a log of segments, and checkpoints in segments outside the log. An engine
//! states what its records, its index and its part of the superblock mean; the kernel does in one order what a crash must not
//! interrupt in another:
//!
//! ```text
//!   create   payload ------------------> both slots
//!   open     slots -> payload -> root -> the log's recovery -> slots anew
//!   commit   root in pieces -> sync -> superblock: slot, then slot
//!   close    superblock that states "closed"
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `superblock` | reads and writes the slots, in order; reports damaged ones (which one counts: `format::superblock`) |
//! | `checkpoint` | makes a root the one that the superblock names |
//! | `recover` | begins a log, and begins and ends the recovery of one |
//! | `copy` | copies the segments and the superblock of a store that is being used, or what changed of them since a copy |
//! | `changes` | the file of changes, and the mark of a copy in which they are not complete |
//! | `apply` | brings a copy forward with a file of changes |
//! | `handle` | ends a store with its background worker, by a close or a drop |
//! | `damaged` | keeps the file that a repair reads from being written |
//! | `salvage` | finds the segments and frames that are left of a damaged log |
//! | `report` | bounds the lists of a repair's report |
//!
//! Invariants:
//! 1. A superblock names only what a sync has made durable before.
//! 2. Before a slot is written, the superblock in the other one is durable.
//! 3. Both slots state the same when a write has ended: damage of one slot costs that slot.
//!
//! It does not know records, indexes, or when a checkpoint is due.

pub mod apply;
pub mod changes;
pub mod checkpoint;
pub mod copy;
pub(crate) mod damaged;
mod handle;
pub mod recover;
pub(crate) mod report;
pub(crate) mod salvage;
pub mod superblock;

pub(crate) use handle::{Closing, Handle};

pub use checkpoint::{Committed, NextCheckpoint};
pub use superblock::{Payload, Slots, SuperblockPair};
