//! A chunk: neighbouring buckets that share a prefix of the hash, and how large chunks are.
//!
//! The bucket of a hash is its position in the chunk's range, scaled to the number of buckets, so buckets
//! are in hash order whatever their number. An entry whose home is full goes to one of the next seven buckets; two spare
//! buckets after the last home take the overflow. Filled this way, a chunk uses about 84 % of its slots before the first
//! entry does not fit, and over its life is 71 % full. It grows by the square root of two, since with steps of a fifth
//! the copying took as long as all else together. The index decides when a chunk grows, and takes the locks.

#![expect(unsafe_code, reason = "buckets in the arena")]

use std::sync::atomic::Ordering;

use super::arena::Arena;
use super::bucket::{Bucket, EMPTY, RESERVED, SLOTS, Slot};
use super::hash::{ADDRESS_BITS, Hash, KNOWN_BITS, TAG_BITS};
use super::{Place, place_of};
use crate::error::Result;
use crate::explore;

/// How many buckets a chunk may have; above the last it splits. Under schedule exploration it is small, so that chunks split early.
#[cfg(azekura_explore)]
pub(super) const LADDER: [u32; 3] = [1, 2, 3];
/// How many buckets a chunk may have; above the last it splits.
#[cfg(not(azekura_explore))]
pub(super) const LADDER: [u32; 14] = [1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 90, 126];
const LARGEST: usize = LADDER[LADDER.len() - 1] as usize;
/// Buckets after the last home.
pub(super) const SPARE: u32 = 2;
/// Entries of a chunk, at most.
pub(super) const ENTRIES_MAX: usize = (LARGEST + SPARE as usize) * SLOTS;
/// How many buckets after its home an entry may be.
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

/// Bits of a hash that no entry has.
const UNKNOWN_BITS: u32 = 64 - KNOWN_BITS;
const _: () = assert!(KNOWN_BITS - super::hash::PARTITION_BITS <= 32);
/// The tag's bits of what is known of an entry.
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

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
        // SAFETY: a word of the directory, which names chunks that `take` made.
        let first = unsafe { arena.bucket(line) };
        Self {
            first,
            line,
            buckets,
            depth,
        }
    }

    /// An empty chunk of so many buckets. `Full` if the arena has no room for it.
    pub(super) fn take(arena: &'a Arena, buckets: u32) -> Result<Self> {
        let line = arena.take(buckets + SPARE)?;
        // SAFETY: the line was taken just now.
        let first = unsafe { arena.bucket(line) };
        Ok(Self {
            first,
            line,
            buckets,
            depth: 0,
        })
    }

    /// Its lines in the arena: the first, and how many.
    pub(super) fn lines(&self) -> (u32, u32) {
        (self.line, self.len())
    }

    pub(super) fn with_depth(self, depth: u32) -> Self {
        Self { depth, ..self }
    }

    pub(super) fn word(&self, depth: u32) -> u64 {
        u64::from(self.line) | u64::from(self.buckets) << 32 | u64::from(depth) << 40
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

    /// The home of an entry, by what is known of its hash.
    #[inline(always)]
    fn home_of(&self, known: u64) -> u32 {
        self.home(Hash(known << UNKNOWN_BITS))
    }

    /// The bits of the hash below the prefix, as a fraction, times the number of buckets. Of these, at most 24 are
    /// known, so 32 are enough.
    #[inline(always)]
    pub(super) fn home(&self, hash: Hash) -> u32 {
        let known = hash.0 >> UNKNOWN_BITS << UNKNOWN_BITS;
        let fraction = known << (self.depth % 64) >> 32;
        ((fraction * u64::from(self.buckets)) >> 32) as u32
    }

    /// The home of `hash`, with the buckets after it.
    #[inline(always)]
    pub(super) fn run(&self, hash: Hash) -> Run<'a> {
        self.run_at(self.home(hash))
    }

    #[inline(always)]
    fn run_at(&self, home: u32) -> Run<'a> {
        Run {
            home: self.bucket(home),
            following: self.len() - 1 - home,
        }
    }

    /// Appends all entries, in order of buckets.
    pub(super) fn collect(&self, out: &mut Vec<u64>) {
        let mut of_bucket = [EMPTY; SLOTS];
        for at in 0..self.len() {
            // No branch for each slot: which are taken cannot be guessed.
            let mut taken = 0;
            for slot in self.bucket(at).slots() {
                explore::yield_point();
                let entry = slot.load(Ordering::Acquire);
                of_bucket[taken] = entry;
                taken += usize::from(entry != EMPTY && entry != RESERVED);
            }
            out.extend_from_slice(&of_bucket[..taken]);
        }
    }

    pub(super) fn entries(&self) -> Vec<u64> {
        let mut entries = Vec::with_capacity(self.len() as usize * SLOTS);
        self.collect(&mut entries);
        entries
    }

    /// Puts entries into a chunk that no other thread sees: no atomic claims. `false`: they do not fit.
    pub(super) fn fill(&self, entries: &[u64]) -> bool {
        // How many entries each bucket has, so that no bucket is searched.
        let mut taken = [0u8; LARGEST + SPARE as usize];
        entries.iter().all(|entry| {
            let home = self.home_of(entry >> ADDRESS_BITS);
            let run = self.run_at(home);
            let near = taken[home as usize..].iter_mut().zip(0..=run.window());
            let mut open = near.filter(|(taken, _)| usize::from(**taken) < SLOTS);
            let Some((taken, distance)) = open.next() else {
                return false;
            };
            explore::yield_point();
            run.bucket(distance).slots()[usize::from(*taken)].store(*entry, Ordering::Relaxed);
            *taken += 1;
            if distance != 0 {
                run.home
                    .extend_distance(distance, *entry >> ADDRESS_BITS & TAG_MASK);
            }
            true
        })
    }
}

/// A home bucket and the buckets after it in its chunk, among which an entry may be.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) home: &'a Bucket,
    /// How many buckets of the chunk follow it.
    following: u32,
}

impl<'a> Run<'a> {
    #[inline(always)]
    fn window(&self) -> u32 {
        WINDOW.min(self.following)
    }

    #[inline(always)]
    fn bucket(&self, distance: u32) -> &'a Bucket {
        debug_assert!(distance <= self.window());
        // SAFETY: a home's maximum probe distance, which bounds `distance`, is extended within the window of its chunk only.
        unsafe { bucket_after(self.home, distance) }
    }

    /// The first slot whose entry has this tag (for tag 0 it may be a free one).
    #[inline(always)]
    pub(super) fn probe(&self, tag: u64) -> Option<Slot<'a>> {
        match self.home.first(tag) {
            Some(slot) => Some(Slot(slot)),
            None if !self.home.may_overflow(tag) => None,
            None => {
                // Under schedule exploration a read of the distance is a yield point.
                debug_assert!(cfg!(azekura_explore) || self.home.distance_max() <= self.window());
                probe_overflow(self.home, tag)
            }
        }
    }

    /// Calls `probe` with each slot whose entry has this tag until it returns `Some`.
    #[inline(always)]
    pub(super) fn search<T>(
        &self,
        tag: u64,
        mut probe: impl FnMut(Slot<'a>, Place) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        for distance in 0..=self.home.distance_max() {
            let bucket = self.bucket(distance);
            let mut matches = bucket.matches(tag);
            while matches != 0 {
                let slot = &bucket.slots()[matches.trailing_zeros() as usize];
                matches &= matches - 1;
                explore::yield_point();
                let entry = slot.load(Ordering::Acquire);
                if is_of(entry, tag) {
                    let found = probe(Slot(slot), place_of(entry))?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reserves a free slot.
    #[inline(always)]
    pub(super) fn claim(&self, tag: u64) -> Option<Slot<'a>> {
        match self.home.claim() {
            Some(slot) => Some(Slot(slot)),
            None => claim_overflow(self.home, self.window(), tag),
        }
    }
}

/// The bucket `distance` after one in the same chunk.
///
/// # Safety
/// - the chunk of `home` has `distance` more buckets after it.
#[inline(always)]
unsafe fn bucket_after(home: &Bucket, distance: u32) -> &Bucket {
    debug_assert!(distance <= WINDOW, "a bucket past the window of its home");
    // SAFETY: that bucket is one of the chunk, by the contract, and a chunk is one run of buckets that live as long as the
    // arena.
    unsafe { &*std::ptr::from_ref(home).wrapping_add(distance as usize) }
}

/// Searches the buckets after the home: out of line, and with plain arguments, so that the common path stays in
/// registers.
#[inline(never)]
fn probe_overflow(home: &Bucket, tag: u64) -> Option<Slot<'_>> {
    (1..=home.distance_max()).find_map(|distance| {
        // SAFETY: a home's distance is extended within the window of its chunk only: by `claim_overflow` and `Chunk::fill`.
        let bucket = unsafe { bucket_after(home, distance) };
        bucket.first(tag).map(Slot)
    })
}

#[inline(never)]
fn claim_overflow(home: &Bucket, window: u32, tag: u64) -> Option<Slot<'_>> {
    for distance in 1..=window {
        // SAFETY: the window is no longer than the buckets of the chunk after its home: see `Run::window`.
        let bucket = unsafe { bucket_after(home, distance) };
        if let Some(slot) = bucket.claim() {
            home.extend_distance(distance, tag);
            return Some(Slot(slot));
        }
    }
    None
}
