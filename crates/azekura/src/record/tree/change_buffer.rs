//! The change buffer: puts whose leaf is not in memory, until it is.
//!
//! A put that overwrites or adds needs nothing of what its leaf holds. So where that is on storage only, the put is appended to the journal, kept here
//! by the leaf's page, and made when the page comes into memory: then, or when the buffer needs room, all puts of the page at once. Random puts into
//! much more than the cache holds read and write each leaf once for several of them. (The change buffer of `InnoDB`, without its pages on storage.)
//!
//! ```text
//!   word of a page:  last block of its puts | how many words they take | bytes that are free in its image
//!   block:           the one before | seven words: header of a put (position, lengths of key and value), key and value, next header ..
//! ```
//! 1. A put is here only while its page is cold: who brings the page into memory takes it out under the page's partition, and merges it before any other
//!    thread sees the page. Under the partition, a cold page stays cold; inside the gate, it stays where the node above has it.
//! 2. Each is merged as a change at its own position, in the order of positions: what a cut sees does not depend on when that is.
//! 3. A page takes no more than fits in it, each put counted as a new record: merging divides no leaf, and never fails. What is free in an image is
//!    known of pages that were in memory; a put to another one brings it in.
//! 4. The durable checkpoint has it in its page, or the journal after that has it: a checkpoint appends again what stays (`merge`).
//!
//! Blocks are 64 bytes of frames of the cache, which bounds them. This is what they hold, and who may add to it; it does not know frames nor pages
//! (`buffered_puts`), nor when to merge.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::layout::PUT;
use crate::explore::{Mutex, MutexGuard};
use crate::log::Entry;

/// Longest key, and longest value, that wait here.
pub(super) const LEN_MAX: usize = 255;
/// Parts of the pages, each with a lock.
const PARTITIONS: usize = 64;
/// Words of a block, of which the first is the link to the one before.
pub(super) const BLOCK: usize = 8;
/// No block: the one where a frame has its latch.
pub(super) const NONE: u32 = 0;
/// Bits of a position's sequence and offset in a header.
const SEQUENCE_BITS: u32 = 25;
const OFFSET_BITS: u32 = 23;

/// What waits for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The last block.
    pub(super) block: u32,
    /// Words of all puts.
    pub(super) words: u16,
    /// Bytes that are free in the page's image, and not taken by these; 0: not known.
    pub(super) room: u16,
}

impl Waiting {
    pub(super) fn of(word: u64) -> Self {
        Self {
            block: word as u32,
            words: (word >> 32) as u16,
            room: (word >> 48) as u16,
        }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.block) | u64::from(self.words) << 32 | u64::from(self.room) << 48
    }

    pub(super) fn is_none(self) -> bool {
        self.words == 0
    }
}

/// A put that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingPut<'w> {
    /// Its position.
    pub(super) at: u64,
    pub(super) key: &'w [u8],
    pub(super) value: &'w [u8],
}

impl<'w> WaitingPut<'w> {
    /// How it is appended.
    pub(super) fn entry(self) -> Entry<'w> {
        Entry {
            kind: PUT,
            flags: 0,
            key: self.key,
            value: self.value,
        }
    }
}

/// The puts that wait for a page.
#[derive(Debug)]
pub(super) struct WaitingPuts {
    pub(super) bytes: Vec<u8>,
    /// A position in the log that none of theirs is after.
    pub(super) end: u64,
}

impl WaitingPuts {
    /// In the order of their positions.
    pub(super) fn iter(&self) -> impl Iterator<Item = WaitingPut<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (header, after) = rest.split_first_chunk::<8>()?;
            let header = u64::from_le_bytes(*header);
            let (key_len, value_len) = lens_of(header);
            let (key, others) = after.split_at_checked(key_len)?;
            let put = WaitingPut {
                at: position(header, self.end),
                key,
                value: others.get(..value_len)?,
            };
            rest = after.get((words_of(key_len + value_len) - 1) * 8..)?;
            Some(put)
        })
    }
}

/// Blocks, and the frames they are in.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    /// The first of those that are free, each linked to the next.
    pub(super) free: u32,
    pub(super) free_count: u64,
    pub(super) frames: Vec<u32>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ChangeBuffer {
    pub(super) partitions: Vec<Mutex<()>>,
    pub(super) blocks: Mutex<FreeBlocks>,
    /// Pages that have puts here. Raised before, and lowered after these are seen. Changes under a partition.
    pub(super) pages: AtomicU64,
    /// Puts that were added. Relaxed: a count.
    pub(super) added: AtomicU64,
    /// Blocks that hold puts.
    pub(super) used: AtomicU64,
    /// Blocks after which it is nearly full.
    pub(super) nearly_all: AtomicU64,
    /// Those who keep it from taking more.
    pub(super) closers: AtomicU32,
    /// The page where the next round continues. Relaxed: a hint.
    pub(super) hand: AtomicU32,
}

impl ChangeBuffer {
    pub(super) fn new() -> Self {
        Self {
            partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            blocks: Mutex::default(),
            pages: AtomicU64::new(0),
            added: AtomicU64::new(0),
            used: AtomicU64::new(0),
            nearly_all: AtomicU64::new(0),
            closers: AtomicU32::new(0),
            hand: AtomicU32::new(0),
        }
    }

    /// While it is held, nothing of the page is added, and the page does not come into memory.
    pub(super) fn partition(&self, page: u32) -> MutexGuard<'_, ()> {
        self.partitions[page as usize % PARTITIONS].lock()
    }

    /// Pages that have puts here.
    #[inline(always)]
    pub(super) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Whether a put may be added.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.closers.load(Ordering::Relaxed) == 0
    }

    /// Whether what waits is to be merged by writers.
    #[inline(always)]
    pub(super) fn is_nearly_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.nearly_all.load(Ordering::Relaxed)
    }
}

/// Bytes that an entry takes in a node, at most.
pub(super) fn room_of(key: &[u8], value: &[u8]) -> usize {
    8 + key.len() + value.len()
}

/// Words that a put takes.
pub(super) fn words_of(len: usize) -> usize {
    1 + len.div_ceil(8)
}

/// The first word of a put of these lengths.
pub(super) fn header(at: u64, key_len: usize, value_len: usize) -> u64 {
    let sequence = at >> 32 & ((1 << SEQUENCE_BITS) - 1);
    let offset = (at & 0xffff_ffff) >> 3 & ((1 << OFFSET_BITS) - 1);
    (sequence << OFFSET_BITS | offset) << 16 | (key_len as u64) << 8 | value_len as u64
}

pub(super) fn lens_of(header: u64) -> (usize, usize) {
    ((header >> 8 & 255) as usize, (header & 255) as usize)
}

/// The position of a header, which is not after `end` in the log, and much nearer to it than sequences repeat.
fn position(header: u64, end: u64) -> u64 {
    let packed = header >> 16;
    let offset = (packed & ((1 << OFFSET_BITS) - 1)) << 3;
    let low = packed >> OFFSET_BITS;
    let end = end >> 32;
    let mut sequence = end & !((1 << SEQUENCE_BITS) - 1) | low;
    if sequence > end {
        sequence = sequence.saturating_sub(1 << SEQUENCE_BITS);
    }
    sequence << 32 | offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Random;

    #[test]
    fn a_put_is_what_was_packed_whichever_sequence_of_segments_it_is_in() {
        let mut random = Random::new(16);
        let round = 1 << SEQUENCE_BITS;
        for _ in 0..20_000 {
            let end = [0, 1, round - 1, round, round + 1, 5 * round][random.below(6) as usize]
                + random.below(2 * round);
            let sequence = end.saturating_sub(random.below(round - 1));
            let offset = random.below(1 << OFFSET_BITS) << 3;
            let at = sequence << 32 | offset;
            let (key, value) = (random.below(256) as usize, random.below(256) as usize);
            let packed = header(at, key, value);
            assert_eq!(lens_of(packed), (key, value));
            let end = (end << 32) + if sequence == end { offset } else { 0 };
            assert_eq!(position(packed, end), at, "{sequence} before {end}");
        }
    }

    #[test]
    fn puts_in_a_row_are_taken_apart() {
        let mut random = Random::new(16);
        let puts: Vec<(u64, Vec<u8>, Vec<u8>)> = (1..2000)
            .map(|number| {
                let mut bytes = |at: u64| vec![at as u8; random.below(256) as usize];
                (number << 32 | number << 3, bytes(number), bytes(number + 1))
            })
            .collect();
        let mut waiting = WaitingPuts {
            bytes: Vec::new(),
            end: 2000 << 32,
        };
        for (at, key, value) in &puts {
            let packed = header(*at, key.len(), value.len());
            let words = words_of(key.len() + value.len());
            let end = waiting.bytes.len() + words * 8;
            waiting.bytes.extend(packed.to_le_bytes());
            waiting.bytes.extend([&key[..], &value[..]].concat());
            waiting.bytes.resize(end, 0);
        }
        let found: Vec<_> = waiting
            .iter()
            .map(|put| (put.at, put.key.to_vec(), put.value.to_vec()))
            .collect();
        assert!(found == puts);
        waiting.bytes.pop();
        assert!(waiting.iter().count() < puts.len(), "the last one is cut");
    }
}
