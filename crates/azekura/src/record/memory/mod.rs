//! Engines whose records live in this process's memory only.
//!
//! Their `Promise` states that nothing survives the process; who wants to keep a moment of one saves a snapshot.
//! None of them evicts: a store that must stay within a bound by dropping records is `record::cache`.

pub mod baby;
pub mod snapshot;
pub mod std_hash;
mod std_records;
pub mod std_tree;
pub mod tiny;
