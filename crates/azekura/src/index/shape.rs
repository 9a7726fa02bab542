//! A chunk: neighbouring buckets that share a prefix of the hash, and how large chunks are.
//!
//! The bucket of a hash is its place in the chunk's range, scaled to the number of buckets, so buckets
//! are in hash order whatever their number. An entry that finds its home full goes to one of the next
//! seven; two spare buckets behind the last take what runs over. Filled this way, a chunk takes about
//! 80 % of its slots before the first entry finds no room (simulated for every size of the ladder), and over its
//! life is 73 % full.

#![expect(unsafe_code, reason = "buckets in the arena")]

use super::arena::Arena;
use super::bucket::{Bucket, EMPTY, RESERVED, SLOTS};
use super::hash::{ADDRESS_BITS, Hash, KNOWN_BITS};
use super::{Place, Slot, place_of};
use crate::error::Result;

/// How many buckets a chunk may have; above the last it splits.
pub(super) const LADDER: [u32; 23] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112,
];
/// Buckets behind the last home.
pub(super) const SPARE: u32 = 2;
/// How many buckets an entry may stand behind its home.
const WINDOW: u32 = 7;

/// The next larger size; `None`: split.
pub(super) fn above(buckets: u32) -> Option<u32> {
    LADDER.iter().copied().find(|size| *size > buckets)
}

/// The size for `count` entries that leaves room for some more; `None`: too many for one chunk.
pub(super) fn fitting(count: usize) -> Option<u32> {
    LADDER
        .iter()
        .copied()
        .find(|size| (*size + 1) as usize * SLOTS * 7 / 10 >= count)
}

/// Whether a slot holds an entry with this tag.
#[inline(always)]
fn is_of(entry: u64, tag: u64) -> bool {
    entry >> ADDRESS_BITS == tag && entry != EMPTY && entry != RESERVED
}

/// A chunk in the arena. The directory's word for it: line 32 bits, buckets 8, depth 8.
#[derive(Clone, Copy)]
pub(super) struct Chunk<'a> {
    first: &'a Bucket,
    line: u32,
    buckets: u32,
    depth: u32,
}

impl<'a> Chunk<'a> {
    #[inline(always)]
    pub(super) fn of(arena: &'a Arena, word: u64) -> Self {
        let line = word as u32;
        let (buckets, depth) = ((word >> 32) as u32 & 0xff, (word >> 40) as u32 & 0xff);
        Self {
            first: arena.bucket(line),
            line,
            buckets,
            depth,
        }
    }

    pub(super) fn new(arena: &'a Arena, line: u32, buckets: u32) -> Self {
        Self {
            first: arena.bucket(line),
            line,
            buckets,
            depth: 0,
        }
    }

    pub(super) fn with_depth(self, depth: u32) -> Self {
        Self { depth, ..self }
    }

    pub(super) fn word(&self, depth: u32) -> u64 {
        u64::from(self.line) | u64::from(self.buckets) << 32 | u64::from(depth) << 40
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    pub(super) fn buckets(&self) -> u32 {
        self.buckets
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Buckets, spare ones included.
    pub(super) fn len(&self) -> u32 {
        self.buckets + SPARE
    }

    #[inline(always)]
    pub(super) fn bucket(&self, at: u32) -> &'a Bucket {
        debug_assert!(at < self.len());
        // SAFETY: `at` is within the chunk, which the arena handed out as one run of buckets that live as
        // long as the arena.
        unsafe { &*std::ptr::from_ref(self.first).wrapping_add(at as usize) }
    }

    pub(super) fn address(&self, at: u32) -> usize {
        std::ptr::from_ref(self.bucket(at)) as usize
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, at: u32) {
        crate::io::mmap::prefetch(std::ptr::from_ref(self.bucket(at)).cast());
    }

    /// The home of the hash bits below the prefix.
    #[inline(always)]
    fn home_of(&self, known: u64) -> u32 {
        let bits = KNOWN_BITS - self.depth;
        let below = known & ((1 << bits) - 1);
        ((below * u64::from(self.buckets)) >> bits) as u32
    }

    #[inline(always)]
    pub(super) fn home(&self, hash: Hash) -> u32 {
        self.home_of(hash.known())
    }

    #[inline(always)]
    fn window(&self, home: u32) -> u32 {
        WINDOW.min(self.len() - 1 - home)
    }

    #[inline(always)]
    pub(super) fn search<T>(
        &self,
        home: u32,
        tag: u64,
        mut probe: impl FnMut(Slot, Place) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let bucket = self.bucket(home);
        let mut matches = bucket.matches(tag);
        while matches != 0 {
            let at = matches.trailing_zeros();
            matches &= matches - 1;
            let entry = bucket.entry(at as usize);
            if is_of(entry, tag) {
                let found = probe(Slot(home, at), place_of(entry))?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        let reach = bucket.reach().min(self.window(home));
        if reach == 0 {
            Ok(None)
        } else {
            self.search_behind(home, reach, tag, probe)
        }
    }

    /// The buckets behind the home; most lookups end before.
    #[inline(never)]
    fn search_behind<T>(
        &self,
        home: u32,
        reach: u32,
        tag: u64,
        mut probe: impl FnMut(Slot, Place) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        for at in home + 1..=home + reach {
            let bucket = self.bucket(at);
            for slot in 0..SLOTS {
                let entry = bucket.entry(slot);
                if is_of(entry, tag) {
                    let found = probe(Slot(at, slot as u32), place_of(entry))?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(None)
    }

    #[inline(always)]
    pub(super) fn store(&self, slot: Slot, entry: u64) {
        self.bucket(slot.0).store(slot.1 as usize, entry);
    }

    #[inline(always)]
    pub(super) fn claim(&self, home: u32) -> Option<Slot> {
        for distance in 0..=self.window(home) {
            if let Some(at) = self.bucket(home + distance).claim() {
                self.bucket(home).extend_reach(distance);
                return Some(Slot(home + distance, at as u32));
            }
        }
        None
    }

    /// Appends all entries, in order of buckets.
    pub(super) fn collect(&self, out: &mut Vec<u64>) {
        for at in 0..self.len() {
            let bucket = self.bucket(at);
            for slot in 0..SLOTS {
                let entry = bucket.entry(slot);
                if entry != EMPTY && entry != RESERVED {
                    out.push(entry);
                }
            }
        }
    }

    pub(super) fn entries(&self) -> Vec<u64> {
        let mut entries = Vec::with_capacity(self.len() as usize * SLOTS);
        self.collect(&mut entries);
        entries
    }

    /// Puts entries into a chunk nobody else sees: no atomic claims. `false`: they do not fit.
    pub(super) fn fill(&self, entries: &[u64]) -> bool {
        entries.iter().all(|entry| {
            let home = self.home_of(entry >> ADDRESS_BITS);
            (0..=self.window(home)).any(|distance| {
                let stored = self.bucket(home + distance).push(*entry);
                if stored {
                    self.bucket(home).extend_reach(distance);
                }
                stored
            })
        })
    }
}
