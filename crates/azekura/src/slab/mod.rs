//! A slab allocator for records: a key, a value and an optional expiry in memory, addressed by a 40-bit place.
//!
//! ```text
//!   memory   | unused | block 1        | block 2        | block 3  ...     blocks of 64 KiB
//!                     [ slot slot slot ...] of one size class, with a bitmap of its free slots
//!
//!   thread --> thread cache --> the block it fills, one per class      allocation takes the next free bit
//!               `-------------> retire list: freed slots               reusable once their grace period has elapsed
//! ```
//!
//! A slot holds one record and no other header, so a record of 8 and 8 bytes takes 18:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | bit 0: the record is out of line; bit 1: a read has seen it; bit 2: it has an expiry; bits 3 to 7: length of the key, 31: see below |
//! | 0 or 4 | the expiry |
//! | 0 to 5 | length of the key, if it is 31 or more: 7 bits a byte, lowest first, the eighth bit states that another follows |
//! | 1 to 5 | length of the value, likewise |
//! | .. | the key |
//! | .. | the value |
//!
//! A record of more than 8 KiB is stored out of line, in an allocation of its own that is rounded up to 1 KiB (see `long`); its
//! slot holds the address, with bit 0 set, and the length.
//!
//! Promises:
//! 1. The record that [`Slab::put`] returned stays unchanged, except for bit 1, until [`Slab::free`] gets its place, and after
//!    that as long as a thread is pinned that was pinned before.
//! 2. Blocks take at most twice the slots in use, and 4 MiB, if the owner moves the records that [`Slab::evacuate`] offers; an
//!    eighth of that, and 1 MiB, stays ready in addition. A thread cache keeps the block it fills, one for each size class that
//!    its thread has used; there are as many thread caches as there were threads at once, 32 at most, or two for each processor;
//!    fewer with a low limit, or if few bytes are expected. Freed slots wait for their grace period: 256 KiB in each thread
//!    cache, 4 MiB, and an eighth of the bytes in use, as long as no thread stays pinned for long.
//!    Slots in use include those that are freed and may still be read.
//! 3. An allocation that fails is the error `Full`; nothing is lost.
//!
//! Invariants:
//! 1. A slot's bit is set only while no thread may read the slot.
//! 2. One thread cache fills a block at a time; none fills a block that is walked or drained.
//! 3. A thread is pinned from before it takes a slot until it has published or freed the record in it. So a block
//!    that was closed before a retire epoch holds only whole records once its grace period has elapsed.
//!
//! It does not know which structure points to a place, nor the time.

mod block;
mod class;
mod evacuate;
mod fast;
mod limbo;
mod long;
mod record;
mod thread_cache;

pub use block::Slab;
pub use fast::{Draft, FastPath};
pub use record::Record;

#[cfg(test)]
mod tests;

/// Where a record stands: 40 bits, not zero and not all ones.
pub type Place = u64;
