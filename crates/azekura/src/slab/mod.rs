//! Records in memory, packed: a key, a value, sometimes an expiry, at a place of 40 bits.
//!
//! ```text
//!   memory   | unused | block 1        | block 2        | block 3  ...     blocks of 64 KiB
//!                     [ slot slot slot ...] of one size class, a bit each: free or not
//!
//!   thread --> hand --> the block it fills, class by class         taken: the next free bit
//!               `-----> limbo: freed, perhaps still being read     free again: when nobody is pinned since before
//! ```
//!
//! A slot begins with a record's header and holds nothing else, so a record of 8 and 8 bytes takes 18:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | bit 0: the record is elsewhere; bit 1: it was looked at; bit 2: it has an expiry; bits 3 to 7: length of the key, 31: see below |
//! | 0 or 4 | the expiry |
//! | 0 to 5 | length of the key, if it is 31 or more: 7 bits a byte, lowest first, the eighth bit says that another follows |
//! | 1 to 5 | length of the value, likewise |
//! | .. | the key |
//! | .. | the value |
//!
//! A record of more than 8 KiB is in memory of its own, rounded up to 1 KiB (see `long`); its slot holds the address, with bit 0
//! set, and the length.
//!
//! Promises:
//! 1. What [`Slab::put`] returned stands unchanged, but for bit 1, until it is given to [`Slab::free`], and while anybody
//!    is pinned since before.
//! 2. Blocks take at most twice the slots in use, and 4 MiB, if the owner moves what [`Slab::thin`] offers it; an eighth
//!    of that, and 1 MiB, is kept ready beside. A hand keeps the block it fills, one for each length of slots that it
//!    was asked for; there are as many hands as there were threads at once, 32 at most, or two for each processor;
//!    fewer where the limit is low, or few bytes are expected. What is freed waits for who may still read it: 256 KiB for each hand, 4 MiB, and
//!    an eighth of what is in use, as long as nobody is pinned for long.
//!    Slots in use include those that are freed and may still be read.
//! 3. Memory that cannot be had is an error, `Full`; nothing is lost.
//!
//! Invariants:
//! 1. A slot's bit is set only while nobody may look at the slot.
//! 2. A block is filled by one hand at a time; a block that is being thinned or drained is filled by none.
//! 3. A thread is pinned from before it takes a slot until what it put there can be found or was freed again. So a block
//!    that was closed before a retire epoch holds only whole records once its grace period has elapsed.
//!
//! It does not know who points to a place, nor what time it is.

mod block;
mod class;
mod hand;
mod limbo;
mod long;
mod near;
mod record;
mod thin;

pub use block::Slab;
pub use near::{Draft, Near};
pub use record::Record;

#[cfg(test)]
mod tests;

/// Where a record stands: 40 bits, not zero and not all ones.
pub type Place = u64;
