//! The hash index: from a hash to the addresses of the records that may have it.
//!
//! Entries of eight bytes - 24 bits of hash and 40 bits of address - stand in buckets of one cache line, buckets
//! in chunks, chunks in a directory that is extended as they split. A lookup costs one cache miss for the
//! bucket; the record it points to is the caller's second. A miss costs only the bucket.
//!
//! ```text
//!   hash (64 bits, skewed)   | stripe 12 | . . . tag 24 . . . | rest, not stored |
//!                            |<-- depth of the chunk -->| which bucket of it     |
//!
//!   directory   [ c0 | c0 | c1 | c2 ]      slots of 8 bytes; a chunk of less depth fills several
//!                  |________|     `----------> chunk: n buckets and two spare ones
//!                                               [ lock reach moved behind | e e e e e e e ] x (n + 2)
//! ```
//!
//! The order of hashes is the order of chunks, of buckets, and so of a scan; a place in it survives growth.
//! Chunks grow by the square root of two at a time, and above `shape::LADDER`'s end split in two; each growth
//! moves a few hundred entries and stops nobody but writers of that chunk. The hash is skewed first
//! (`hash`), so that chunks do not all grow at once: growth is spread evenly over time, and so is the room it
//! needs (idea: Martin's spiral storage, 1979).
//!
//! Invariants:
//! 1. An entry stands in its home bucket or at most `reach` buckets behind it; then `behind`, a filter of 32 bits,
//!    has its tag. Both are in the home, so that a miss seldom looks further.
//! 2. An entry does not move within a chunk. A grown chunk is left unchanged until nobody looks at it.
//!    Hence readers need no lock and no second look: what they see was true at a moment of their call.
//! 3. All changes to the entries of a home bucket are made under its lock. An empty slot is claimed by
//!    compare-and-swap, since neighbours' homes may want it too.
//! 4. `moved` is set under the locks of the whole chunk, after its successor is in the directory.
//!
//! Lock order: a stripe's growth lock; buckets by rising address; structure; arena. Growth begins with no
//! bucket locked. The index does not know records, logs or files; a [`Source`] brings in cold stripes.

mod arena;
mod bucket;
mod growth;
pub mod hash;
mod locked;
mod shape;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::epoch::{Domain, Pin, Published};
use crate::error::Result;
use crate::room;
use crate::weave::{self, Mutex};
use arena::Arena;
use bucket::{EMPTY, RESERVED, SLOTS};
use hash::{ADDRESS_BITS, Hash, STRIPE_BITS, STRIPES};
pub use locked::{Home, Locked, LockedHome, Prefetched, Slot};
use shape::{Chunk, SPARE};

/// Where a record stands, as the caller numbers places: 40 bits, not zero and not all ones.
pub type Place = u64;

/// Brings in stripes that are not in memory.
pub trait Source: Send + Sync {
    /// All entries of `stripe` ([`entry`]), in any order. Called by whichever thread needs it first, one at a time. An
    /// error is handed to that thread, and the stripe stays cold: until it is loaded, each call answers the same.
    fn load(&self, stripe: usize) -> Result<Vec<u64>>;

    /// What `load` answered last is in memory; `stripe` is not asked for again.
    fn loaded(&self, stripe: usize) {
        let _ = stripe;
    }
}

/// An entry as a stripe is captured and loaded: tag and place.
#[inline(always)]
pub fn entry(hash: Hash, place: Place) -> u64 {
    hash.tag() << ADDRESS_BITS | place
}

/// The place of an entry.
#[inline(always)]
pub fn place_of(entry: u64) -> Place {
    entry & ((1 << ADDRESS_BITS) - 1)
}

/// A directory slot whose stripe is not in memory.
const COLD: u64 = 1 << 63;

struct Directory {
    depth: u32,
    slots: Box<[AtomicU64]>,
}

impl Directory {
    fn new(depth: u32) -> Result<Self> {
        let slots = room::collect((0..1usize << depth).map(|_| AtomicU64::new(0)))?;
        Ok(Self {
            depth,
            slots: slots.into_boxed_slice(),
        })
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "on the way of every lookup")]
    fn slot(&self, hash: Hash) -> &AtomicU64 {
        let at = (hash.0 >> (64 - self.depth)) as usize;
        debug_assert!(at < self.slots.len());
        weave::point();
        // SAFETY: there are 2 to the power of `depth` slots (`new`), and this is a number of so many bits.
        unsafe { self.slots.get_unchecked(at) }
    }

    /// The slots of the chunk at `depth` that `hash` belongs to.
    fn slots_of(&self, hash: Hash, depth: u32) -> &[AtomicU64] {
        let first = (hash.0 >> (64 - depth) << (self.depth - depth)) as usize;
        &self.slots[first..first + (1 << (self.depth - depth))]
    }
}

/// See the module's text.
pub struct Index {
    domain: Domain,
    /// Replaced under `structure` when it doubles.
    directory: Published<Directory>,
    arena: Arena,
    /// Publishing chunks and doubling the directory.
    structure: Mutex<()>,
    /// One thread grows chunks of a stripe; several stripes share a lock.
    growth: [Mutex<()>; 64],
    /// Whether a stripe changed since it was captured. Written by appenders, cleared by capture, which waits
    /// for appends under way in between.
    dirty: Box<[AtomicU8; STRIPES]>,
    source: Option<Arc<dyn Source>>,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("memory", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

/// The room that [`Index::clear`] needs, so that it cannot fail.
pub struct Blank(Directory, Vec<u64>);

impl Blank {
    /// Takes the room. Errors: `Full`.
    pub fn new() -> Result<Self> {
        Ok(Self(
            Directory::new(STRIPE_BITS)?,
            room::vec(shape::ENTRIES_MAX)?,
        ))
    }
}

/// Entries in hash order, each with the hash bits known of it; and where the next chunk begins.
pub type Scanned = (Vec<(u64, Place)>, Option<Hash>);

impl Index {
    /// An empty index for readers of this domain.
    pub fn new(domain: &Domain) -> Result<Self> {
        Self::build(domain, None)
    }

    /// An index whose every stripe is cold: `source` brings it in when it is first needed.
    pub fn cold(domain: &Domain, source: Arc<dyn Source>) -> Result<Self> {
        Self::build(domain, Some(source))
    }

    fn build(domain: &Domain, source: Option<Arc<dyn Source>>) -> Result<Self> {
        let directory = Directory::new(STRIPE_BITS)?;
        if source.is_some() {
            for slot in &directory.slots {
                slot.store(COLD, Ordering::Relaxed);
            }
        }
        Ok(Self {
            arena: Arena::new(domain.clone())?,
            domain: domain.clone(),
            directory: Published::new(domain.clone(), directory),
            structure: Mutex::default(),
            growth: [const { Mutex::new(()) }; 64],
            dirty: Box::new([const { AtomicU8::new(0) }; STRIPES]),
            source,
        })
    }

    /// Pins this thread: no chunk that it can find is reused meanwhile.
    #[inline(always)]
    pub fn pin(&self) -> Pin {
        self.domain.pin()
    }

    /// Private memory held, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let pin = self.domain.pin();
        self.arena.used_bytes() + self.directory.get(&pin).slots.len() as u64 * 8
    }

    #[inline(always)]
    fn chunk(&self, word: u64) -> Chunk<'_> {
        Chunk::of(&self.arena, word)
    }

    /// Asks the CPU for the bucket of `hash`.
    #[inline(always)]
    pub fn prefetch(&self, pin: &Pin, hash: Hash) {
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word & COLD == 0 && word != 0 {
            let chunk = self.chunk(word);
            chunk.prefetch(chunk.home(hash));
        }
    }

    /// What one look tells of `hash`. One cache miss (rarely two), no lock.
    #[inline(always)]
    pub fn glance(&self, pin: &Pin, hash: Hash) -> Glance {
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word.wrapping_sub(1) >= COLD - 1 {
            return Glance::Cold;
        }
        match self.chunk(word).run(hash).glance(hash.tag()) {
            None => Glance::Absent,
            Some(slot) => Glance::At(slot.place()),
        }
    }

    /// Offers the places that may hold `hash` to `probe` until it answers with something.
    ///
    /// One cache miss (rarely two). Stores nothing, takes no lock. Errors: those of `probe`, and of the
    /// source if the stripe is cold.
    #[inline(always)]
    pub fn find<T>(
        &self,
        pin: &Pin,
        hash: Hash,
        mut probe: impl FnMut(Place) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word & COLD != 0 {
            self.warm(hash.stripe())?;
            word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        }
        if word == 0 {
            return Ok(None);
        }
        let run = self.chunk(word).run(hash);
        run.search(hash.tag(), |_, place| probe(place))
    }

    /// Brings a stripe into memory, if it is not.
    #[cold]
    pub fn warm(&self, stripe: usize) -> Result<()> {
        let pin = &self.domain.pin();
        let hash = Hash::first_of(stripe);
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word & COLD != 0 {
            self.grow(hash, word)
        } else {
            Ok(())
        }
    }

    fn bring_in(&self, stripe: usize) -> Result<()> {
        let Some(source) = &self.source else {
            unreachable!("only an index with a source has cold stripes")
        };
        let entries = source.load(stripe)?;
        let hash = Hash::first_of(stripe);
        let is_published = if entries.is_empty() {
            self.publish(COLD, &[(hash, STRIPE_BITS, 0)])?
        } else {
            let buckets = shape::fitting(entries.len());
            self.rebuild(hash, STRIPE_BITS, COLD, buckets, &entries)?
        };
        // If not, all was cleared meanwhile, and the stripe is in memory, empty.
        if is_published {
            source.loaded(stripe);
        }
        Ok(())
    }

    /// Whether a stripe is in memory.
    pub fn is_warm(&self, stripe: usize) -> bool {
        let pin = &self.domain.pin();
        self.directory
            .get(pin)
            .slot(Hash::first_of(stripe))
            .load(Ordering::Acquire)
            & COLD
            == 0
    }

    #[inline(always)]
    fn touch(&self, hash: Hash) {
        let dirty = &self.dirty[hash.stripe()];
        if dirty.load(Ordering::Relaxed) == 0 {
            dirty.store(1, Ordering::Relaxed);
        }
    }

    /// Takes the marks of all changed stripes; the caller then waits for appends under way, and captures.
    pub fn take_dirty(&self) -> Vec<usize> {
        (0..STRIPES)
            .filter(|s| self.dirty[*s].swap(0, Ordering::AcqRel) != 0)
            .collect()
    }

    /// Marks a stripe as changed (a capture of it could not be kept).
    pub fn mark_dirty(&self, stripe: usize) {
        self.dirty[stripe].store(1, Ordering::Relaxed);
    }

    /// All entries of a warm stripe, in hash order of their buckets. Each entry is one that stood there at
    /// some moment of the call.
    pub fn capture(&self, stripe: usize, out: &mut Vec<u64>) {
        let pin = &self.domain.pin();
        let _growth = self.growth[stripe % 64].lock();
        let mut hash = Hash::first_of(stripe);
        loop {
            let directory = self.directory.get(pin);
            let word = directory.slot(hash).load(Ordering::Acquire);
            let depth = if word == 0 {
                directory.depth
            } else {
                self.chunk(word).depth()
            };
            if word != 0 {
                self.chunk(word).collect(out);
            }
            match hash.next_prefix(depth) {
                Some(next) if next.stripe() == stripe => hash = next,
                _ => return,
            }
        }
    }

    /// The entries of the chunk that `from` falls into, from `from` on.
    pub fn scan_chunk(&self, pin: &Pin, from: Hash) -> Result<Scanned> {
        self.warm(from.stripe())?;
        let directory = self.directory.get(pin);
        let word = directory.slot(from).load(Ordering::Acquire);
        if word == 0 {
            return Ok((Vec::new(), from.next_prefix(directory.depth)));
        }
        let chunk = self.chunk(word);
        let mut entries = Vec::new();
        chunk.collect(&mut entries);
        let stripe = (from.stripe() as u64) << (hash::KNOWN_BITS - STRIPE_BITS);
        let mut found: Vec<(u64, Place)> = room::vec(entries.len())?;
        let known = |entry: u64| (stripe | entry >> ADDRESS_BITS, place_of(entry));
        let behind = |(known, _): &(u64, Place)| *known >= from.known();
        found.extend(entries.into_iter().map(known).filter(behind));
        found.sort_unstable();
        Ok((found, from.next_prefix(chunk.depth())))
    }

    /// Becomes `blank`, and then tells `forgotten` each place. The caller excludes all writers; readers see the old state
    /// or the new.
    pub fn clear(&self, blank: Blank, mut forgotten: Option<&mut dyn FnMut(Place)>) {
        let Blank(new, mut entries) = blank;
        let _structure = self.structure.lock();
        // Not pinned: what is forgotten may be used again while the rest is told.
        let old = self.directory.swap(new);
        let mut before = 0;
        for slot in &old.slots {
            let word = slot.load(Ordering::Acquire);
            if word != before && word != 0 && word & COLD == 0 {
                let chunk = self.chunk(word);
                if let Some(forgotten) = &mut forgotten {
                    entries.clear();
                    chunk.collect(&mut entries);
                    for entry in &entries {
                        forgotten(place_of(*entry));
                    }
                }
                self.arena.retire(chunk.lines());
            }
            before = word;
        }
        for dirty in self.dirty.iter() {
            dirty.store(1, Ordering::Relaxed);
        }
    }
}

/// What one look tells of a hash.
#[derive(Clone, Copy, Debug)]
pub enum Glance {
    /// The place of the first entry that may be of the hash. Others may follow.
    At(Place),
    /// There is none.
    Absent,
    /// Its stripe is not in memory.
    Cold,
}

const _: () = assert!(SLOTS == 7 && SPARE == 2 && RESERVED != EMPTY);

#[cfg(test)]
mod tests;
