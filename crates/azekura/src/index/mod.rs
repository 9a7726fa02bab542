//! The hash index: from a hash to the addresses of the records that may have it.
//!
//! An entry has eight bytes: 24 bits of hash and 40 bits of address. Seven entries form a bucket (one cache line),
//! buckets form chunks, and a directory of chunks doubles as chunks split (extendible hashing). A lookup costs one cache
//! miss for the bucket; reading the record costs the caller a second one. A lookup of an absent key costs the bucket only.
//!
//! ```text
//!   hash (64 bits, skewed)   | partition 12 | . . . tag 24 . . . | rest, not stored |
//!                            |<-- depth of the chunk -->| which bucket in it     |
//!
//!   directory   [ c0 | c0 | c1 | c2 ]      slots of 8 bytes; a chunk of less depth fills several
//!                  |________|     `----------> chunk: n buckets and two spare ones
//!                                               [ lock, distance, moved, overflow | e e e e e e e ] x (n + 2)
//! ```
//!
//! Chunks and buckets are in hash order, so a scan runs in hash order, and a position in it stays valid when chunks grow.
//! A chunk grows by the square root of two at a time, and splits in two past the last size of `shape::LADDER`; one growth
//! moves a few hundred entries and blocks only writers of that chunk. The hash is skewed first (`hash`), so that chunks do
//! not all grow at once: growth, and the memory it needs, spreads evenly over time (idea: Martin's spiral storage, 1979).
//!
//! Invariants:
//! 1. An entry is in its home bucket or at most `distance_max` buckets after it (the maximum probe distance); then
//!    `overflow`, a filter of 32 bits, has its tag. Both are in the home, so a lookup of an absent key seldom reads further.
//! 2. An entry does not move within a chunk. A chunk that grew is left unchanged until no reader can have it.
//!    Hence readers need neither a lock nor a second lookup: what they see was true at a moment of their call.
//! 3. Entries of a home bucket change under its lock only. An empty slot is claimed by compare-and-swap, since
//!    entries of the homes before it may overflow into it.
//! 4. `moved` is set under the locks of the whole chunk, after its successor is in the directory.
//!
//! Lock order: a partition's growth lock; buckets by rising address; structure; arena. Growth begins with no
//! bucket locked. The index does not know records, logs or files; a [`Source`] loads partitions that are not in memory.

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
use crate::explore::{self, Mutex};
use crate::room;
use arena::Arena;
pub use bucket::Slot;
use bucket::{EMPTY, RESERVED, SLOTS};
use hash::{ADDRESS_BITS, Hash, PARTITION_BITS, PARTITIONS};
pub use locked::{Home, Locked, LockedHome, Prefetched};
use shape::{Chunk, SPARE};

/// The address of a record, in the caller's numbering: 40 bits, not zero and not all ones.
pub type Place = u64;

/// Loads partitions that are not in memory.
pub trait Source: Send + Sync {
    /// All entries of `partition` ([`entry`]), in any order. The first thread that needs it calls this, one thread at a time. An
    /// error is returned to that thread, and the partition stays not loaded: until it is, each call returns the same.
    fn load(&self, partition: usize) -> Result<Vec<u64>>;

    /// What `load` returned last is in memory; `partition` is not loaded again.
    fn loaded(&self, partition: usize) {
        let _ = partition;
    }
}

/// An entry as a partition is captured and loaded: tag and place.
#[inline(always)]
pub fn entry(hash: Hash, place: Place) -> u64 {
    hash.tag() << ADDRESS_BITS | place
}

/// The place of an entry.
#[inline(always)]
pub fn place_of(entry: u64) -> Place {
    entry & ((1 << ADDRESS_BITS) - 1)
}

/// The word of a directory slot whose partition is not loaded.
const NOT_LOADED: u64 = 1 << 63;

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
    #[expect(unsafe_code, reason = "every lookup runs it")]
    fn slot(&self, hash: Hash) -> &AtomicU64 {
        let at = (hash.0 >> (64 - self.depth)) as usize;
        debug_assert!(at < self.slots.len());
        explore::yield_point();
        // SAFETY: there are 2 to the power of `depth` slots (`new`), and this is a number of so many bits.
        unsafe { self.slots.get_unchecked(at) }
    }

    /// The slots of the chunk at `depth` that `hash` belongs to.
    fn slots_of(&self, hash: Hash, depth: u32) -> &[AtomicU64] {
        let first = (hash.0 >> (64 - depth) << (self.depth - depth)) as usize;
        &self.slots[first..first + (1 << (self.depth - depth))]
    }
}

/// The index; the module documentation describes it.
pub struct Index {
    domain: Domain,
    /// Replaced under `structure` when it doubles.
    directory: Published<Directory>,
    arena: Arena,
    /// Publishing chunks and doubling the directory.
    structure: Mutex<()>,
    /// One thread grows chunks of a partition; several partitions share a lock.
    growth: [Mutex<()>; 64],
    /// Whether a partition changed since it was captured. Written by appenders, cleared by capture, which waits
    /// for appends under way in between.
    dirty: Box<[AtomicU8; PARTITIONS]>,
    source: Option<Arc<dyn Source>>,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("memory", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

/// The memory that [`Index::clear`] needs, allocated before, so that it cannot fail.
pub struct Blank(Directory, Vec<u64>);

impl Blank {
    /// Allocates it. Errors: `Full`.
    pub fn new() -> Result<Self> {
        Ok(Self(
            Directory::new(PARTITION_BITS)?,
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

    /// An index with no partition loaded: `source` loads each when a call first needs it.
    pub fn unloaded(domain: &Domain, source: Arc<dyn Source>) -> Result<Self> {
        Self::build(domain, Some(source))
    }

    fn build(domain: &Domain, source: Option<Arc<dyn Source>>) -> Result<Self> {
        let directory = Directory::new(PARTITION_BITS)?;
        if source.is_some() {
            for slot in &directory.slots {
                slot.store(NOT_LOADED, Ordering::Relaxed);
            }
        }
        Ok(Self {
            arena: Arena::new(domain.clone())?,
            domain: domain.clone(),
            directory: Published::new(domain.clone(), directory),
            structure: Mutex::default(),
            growth: [const { Mutex::new(()) }; 64],
            dirty: Box::new([const { AtomicU8::new(0) }; PARTITIONS]),
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

    /// Prefetches the bucket of `hash`.
    #[inline(always)]
    pub fn prefetch(&self, pin: &Pin, hash: Hash) {
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word & NOT_LOADED == 0 && word != 0 {
            let chunk = self.chunk(word);
            chunk.prefetch(chunk.home(hash));
        }
    }

    /// The address of the first entry that may be of `hash`. One cache miss (rarely two), no lock.
    #[inline(always)]
    pub fn probe(&self, pin: &Pin, hash: Hash) -> Probed {
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word.wrapping_sub(1) >= NOT_LOADED - 1 {
            return Probed::NotLoaded;
        }
        match self.chunk(word).run(hash).probe(hash.tag()) {
            None => Probed::Absent,
            Some(slot) => Probed::At(slot.place()),
        }
    }

    /// Calls `probe` with each address that may have `hash` until it returns `Some`.
    ///
    /// One cache miss (rarely two). Stores nothing, takes no lock. Errors: those of `probe`, and of the
    /// source if the partition is not loaded.
    #[inline(always)]
    pub fn find<T>(
        &self,
        pin: &Pin,
        hash: Hash,
        mut probe: impl FnMut(Place) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word & NOT_LOADED != 0 {
            self.load(hash.partition())?;
            word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        }
        if word == 0 {
            return Ok(None);
        }
        let run = self.chunk(word).run(hash);
        run.search(hash.tag(), |_, place| probe(place))
    }

    /// Loads a partition, if it is not in memory.
    #[cold]
    pub fn load(&self, partition: usize) -> Result<()> {
        let pin = &self.domain.pin();
        let hash = Hash::first_of(partition);
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word & NOT_LOADED != 0 {
            self.grow(hash, word)
        } else {
            Ok(())
        }
    }

    fn load_partition(&self, partition: usize) -> Result<()> {
        let Some(source) = &self.source else {
            unreachable!("only an index with a source has partitions to load")
        };
        let entries = source.load(partition)?;
        let hash = Hash::first_of(partition);
        let is_published = if entries.is_empty() {
            self.publish(NOT_LOADED, &[(hash, PARTITION_BITS, 0)])?
        } else {
            let buckets = shape::fitting(entries.len());
            self.rebuild(hash, PARTITION_BITS, NOT_LOADED, buckets, &entries)?
        };
        // If not, all was cleared meanwhile, and the partition is in memory, empty.
        if is_published {
            source.loaded(partition);
        }
        Ok(())
    }

    /// Whether a partition is in memory.
    pub fn is_loaded(&self, partition: usize) -> bool {
        let pin = &self.domain.pin();
        self.directory
            .get(pin)
            .slot(Hash::first_of(partition))
            .load(Ordering::Acquire)
            & NOT_LOADED
            == 0
    }

    #[inline(always)]
    fn touch(&self, hash: Hash) {
        let dirty = &self.dirty[hash.partition()];
        if dirty.load(Ordering::Relaxed) == 0 {
            dirty.store(1, Ordering::Relaxed);
        }
    }

    /// Takes the marks of all changed partitions; the caller then waits for appends under way, and captures.
    pub fn take_dirty(&self) -> Vec<usize> {
        (0..PARTITIONS)
            .filter(|s| self.dirty[*s].swap(0, Ordering::AcqRel) != 0)
            .collect()
    }

    /// Marks a partition as changed (a capture of it could not be kept).
    pub fn mark_dirty(&self, partition: usize) {
        self.dirty[partition].store(1, Ordering::Relaxed);
    }

    /// Appends all entries of a loaded partition to `out`, in hash order of their buckets. Each entry was there at
    /// some moment of the call.
    pub fn capture(&self, partition: usize, out: &mut Vec<u64>) {
        let pin = &self.domain.pin();
        let _growth = self.growth[partition % 64].lock();
        let mut hash = Hash::first_of(partition);
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
                Some(next) if next.partition() == partition => hash = next,
                _ => return,
            }
        }
    }

    /// The entries of the chunk that `from` falls into, from `from` on.
    pub fn scan_chunk(&self, pin: &Pin, from: Hash) -> Result<Scanned> {
        self.load(from.partition())?;
        let directory = self.directory.get(pin);
        let word = directory.slot(from).load(Ordering::Acquire);
        if word == 0 {
            return Ok((Vec::new(), from.next_prefix(directory.depth)));
        }
        let chunk = self.chunk(word);
        let mut entries = Vec::new();
        chunk.collect(&mut entries);
        let partition = (from.partition() as u64) << (hash::KNOWN_BITS - PARTITION_BITS);
        let mut found: Vec<(u64, Place)> = room::vec(entries.len())?;
        let known = |entry: u64| (partition | entry >> ADDRESS_BITS, place_of(entry));
        let is_wanted = |(known, _): &(u64, Place)| *known >= from.known();
        found.extend(entries.into_iter().map(known).filter(is_wanted));
        found.sort_unstable();
        Ok((found, from.next_prefix(chunk.depth())))
    }

    /// Becomes `blank`, and then calls `forgotten` with each address. The caller excludes all writers; readers see the old
    /// state or the new.
    pub fn clear(&self, blank: Blank, mut forgotten: Option<&mut dyn FnMut(Place)>) {
        let Blank(new, mut entries) = blank;
        let _structure = self.structure.lock();
        // Not pinned: what is forgotten may be reused while the rest is reported.
        let old = self.directory.swap(new);
        let mut before = 0;
        for slot in &old.slots {
            let word = slot.load(Ordering::Acquire);
            if word != before && word != 0 && word & NOT_LOADED == 0 {
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

/// What [`Index::probe`] found of a hash.
#[derive(Clone, Copy, Debug)]
pub enum Probed {
    /// The address of the first entry that may be of the hash. Others may follow.
    At(Place),
    /// There is none.
    Absent,
    /// Its partition is not in memory.
    NotLoaded,
}

const _: () = assert!(SLOTS == 7 && SPARE == 2 && RESERVED != EMPTY);

#[cfg(test)]
mod tests;
