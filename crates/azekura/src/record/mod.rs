//! Records: a byte key and a byte value, small to medium.
//!
//! Every engine here keeps the contract of `engine.rs` and states in its `Promise` how much of it; one
//! conformance suite (`testkit`) tests exactly that. Engines do not import each other: what two of them need
//! lies below, in `log`, `index`, `slab`, `node`, `format` and `io`, or here: `gate` (moments without updates),
//! `group` (misses that overlap), `scan` (the order of an index), `bookmark` (places in it), `key_bookmark` (places in an order of
//! keys), `table` (records in memory that are found by their keys), `many` (what an update of many keys means), `compression`, `limits`.

pub(crate) mod ascending;
mod bookmark;
pub mod cache;
pub mod compression;
pub(crate) mod gate;
mod group;
pub mod hash;
pub(crate) mod key_bookmark;
pub(crate) mod limits;
mod many;
pub mod memory;
mod scan;
pub mod skip;
mod table;
pub mod tree;
