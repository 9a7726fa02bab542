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
pub mod hash;
mod shape;

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::epoch::Pin;
use crate::error::{Error, Kind, Result};
use crate::room;
use crate::weave::{self, Bug, Mutex};
use arena::Arena;
use bucket::{EMPTY, RESERVED, SLOTS};
use hash::{ADDRESS_BITS, Hash, STRIPE_BITS, STRIPES};
use shape::{Chunk, Run, SPARE};

/// Where a record stands, as the caller numbers places: 40 bits, not zero and not all ones.
pub type Place = u64;

/// Brings in stripes that are not in memory.
pub trait Source: Send + Sync {
    /// All entries of `stripe` ([`entry`]), in any order. Called once per stripe, by whichever thread
    /// needs it first. An error is handed to that thread, and the stripe stays cold.
    fn load(&self, stripe: usize) -> Result<Vec<u64>>;
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
    /// Replaced under `structure` when it doubles; old ones are dropped when nobody looks.
    directory: AtomicPtr<Directory>,
    arena: Arena,
    /// Publishing chunks and doubling the directory.
    structure: Mutex<Vec<(u64, Box<Directory>)>>,
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
    /// An empty index.
    pub fn new() -> Result<Self> {
        Self::build(None)
    }

    /// An index whose every stripe is cold: `source` brings it in when it is first needed.
    pub fn cold(source: Arc<dyn Source>) -> Result<Self> {
        Self::build(Some(source))
    }

    fn build(source: Option<Arc<dyn Source>>) -> Result<Self> {
        let directory = Directory::new(STRIPE_BITS)?;
        if source.is_some() {
            for slot in &directory.slots {
                slot.store(COLD, Ordering::Relaxed);
            }
        }
        Ok(Self {
            arena: Arena::new()?,
            directory: AtomicPtr::new(Box::into_raw(Box::new(directory))),
            structure: Mutex::new(Vec::new()),
            growth: [const { Mutex::new(()) }; 64],
            dirty: Box::new([const { AtomicU8::new(0) }; STRIPES]),
            source,
        })
    }

    /// Private memory held, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let _structure = self.structure.lock();
        self.arena.used_bytes() + self.directory().slots.len() as u64 * 8
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the directory is reclaimed by epochs")]
    fn directory(&self) -> &Directory {
        weave::point();
        // SAFETY: never null; a replaced directory is dropped only after a stamp taken behind its
        // replacement is past, and every caller is pinned or holds `structure`.
        unsafe { &*self.directory.load(Ordering::Acquire) }
    }

    #[inline(always)]
    fn chunk(&self, word: u64) -> Chunk<'_> {
        Chunk::of(&self.arena, word)
    }

    /// Asks the CPU for the bucket of `hash`.
    #[inline(always)]
    pub fn prefetch(&self, _pin: &Pin, hash: Hash) {
        let word = self.directory().slot(hash).load(Ordering::Acquire);
        if word & COLD == 0 && word != 0 {
            let chunk = self.chunk(word);
            chunk.prefetch(chunk.home(hash));
        }
    }

    /// What one look tells of `hash`. One cache miss (rarely two), no lock.
    #[inline(always)]
    pub fn glance(&self, _pin: &Pin, hash: Hash) -> Glance {
        let word = self.directory().slot(hash).load(Ordering::Acquire);
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
        _pin: &Pin,
        hash: Hash,
        mut probe: impl FnMut(Place) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut word = self.directory().slot(hash).load(Ordering::Acquire);
        if word & COLD != 0 {
            self.warm(hash.stripe())?;
            word = self.directory().slot(hash).load(Ordering::Acquire);
        }
        if word == 0 {
            return Ok(None);
        }
        let run = self.chunk(word).run(hash);
        run.search(hash.tag(), |_, place| probe(place))
    }

    /// Finds the bucket of `hash` and asks the CPU for it, so that it comes while the caller does something else; `None`
    /// if it is not in memory.
    #[inline(always)]
    pub fn approach<'i>(&'i self, _pin: &'i Pin, hash: Hash) -> Option<Approached<'i>> {
        let word = self.directory().slot(hash).load(Ordering::Acquire);
        if word.wrapping_sub(1) >= COLD - 1 {
            return None;
        }
        let run = self.chunk(word).run(hash);
        crate::io::mmap::prefetch(std::ptr::from_ref(run.home).cast());
        Some(Approached {
            index: self,
            run,
            hash,
        })
    }

    /// Locks the bucket of `hash` for an update. Waits for the writer that holds it, in fair order.
    #[inline(always)]
    pub fn lock<'i>(&'i self, _pin: &'i Pin, hash: Hash) -> Result<Locked<'i>> {
        loop {
            let word = self.directory().slot(hash).load(Ordering::Acquire);
            if word & COLD != 0 || word == 0 {
                self.grow(hash, word)?;
                continue;
            }
            let run = self.chunk(word).run(hash);
            run.home.lock();
            let locked = Locked {
                index: self,
                run,
                word,
                hash,
                claimed: None,
                owns: true,
            };
            if !run.home.is_moved() {
                return Ok(locked);
            }
        }
    }

    /// Locks the bucket of `hash` and looks with `present` for the record; where there is none, a slot is claimed. Grows
    /// the chunk as far as that takes. Errors: of `present`; `Full`, and then nothing is claimed.
    #[inline(always)]
    pub fn lock_to_put<'i, P>(
        &'i self,
        pin: &'i Pin,
        hash: Hash,
        mut present: impl FnMut(&Locked<'i>) -> Result<Option<P>>,
    ) -> Result<(Locked<'i>, Option<P>)> {
        loop {
            let mut locked = self.lock(pin, hash)?;
            let found = present(&locked)?;
            if found.is_some() || locked.claim() {
                return Ok((locked, found));
            }
            let seen = locked.seen();
            drop(locked);
            self.grow(hash, seen)?;
        }
    }

    /// As [`lock_to_put`](Self::lock_to_put), for many: `present` is told which of `hashes` it looks for.
    pub fn lock_many_to_put<'i, P>(
        &'i self,
        pin: &'i Pin,
        hashes: &[Hash],
        mut present: impl FnMut(usize, &Locked<'i>) -> Result<Option<P>>,
    ) -> Result<(Vec<Locked<'i>>, Vec<Option<P>>)> {
        loop {
            let mut locked = self.lock_many(pin, hashes)?;
            let mut found = room::vec(hashes.len())?;
            let mut full = None;
            for (at, locked) in locked.iter_mut().enumerate() {
                let present = present(at, locked)?;
                if present.is_none() && !locked.claim() {
                    full = Some((locked.hash(), locked.seen()));
                    break;
                }
                found.push(present);
            }
            let Some((hash, seen)) = full else {
                return Ok((locked, found));
            };
            drop(locked);
            self.grow(hash, seen)?;
        }
    }

    /// Locks the buckets of all `hashes`, each once, in the one order that cannot deadlock.
    pub fn lock_many<'i>(&'i self, _pin: &'i Pin, hashes: &[Hash]) -> Result<Vec<Locked<'i>>> {
        'again: loop {
            let mut places = room::vec(hashes.len())?;
            for (at, hash) in hashes.iter().enumerate() {
                let word = self.directory().slot(*hash).load(Ordering::Acquire);
                if word & COLD != 0 || word == 0 {
                    self.grow(*hash, word)?;
                    continue 'again;
                }
                let chunk = self.chunk(word);
                places.push((chunk.address(chunk.home(*hash)), at, word));
            }
            if !weave::has(Bug::LocksAsAsked) {
                places.sort_unstable();
            }
            let mut locked: Vec<Option<Locked<'i>>> = room::collect(hashes.iter().map(|_| None))?;
            let mut in_order = room::vec(hashes.len())?;
            let mut before = 0;
            for (address, at, word) in places {
                let hash = hashes[at];
                let run = self.chunk(word).run(hash);
                let owns = address != before;
                before = address;
                if owns {
                    run.home.lock();
                }
                locked[at] = Some(Locked {
                    index: self,
                    run,
                    word,
                    hash,
                    claimed: None,
                    owns,
                });
                if run.home.is_moved() {
                    continue 'again;
                }
            }
            in_order.extend(locked.into_iter().flatten());
            return Ok(in_order);
        }
    }

    /// Makes room where a claim failed: brings a cold stripe in, makes a first chunk, or grows the chunk that
    /// `seen` says. Does nothing if somebody else already did. No bucket may be locked by the caller.
    pub fn grow(&self, hash: Hash, seen: u64) -> Result<()> {
        let _growth = self.growth[hash.stripe() % 64].lock();
        let word = self.directory().slot(hash).load(Ordering::Acquire);
        if word != seen {
            return Ok(());
        }
        if word & COLD != 0 {
            return self.bring_in(hash.stripe());
        }
        if word == 0 {
            let chunk = self.arena.take(shape::LADDER[0])?;
            let depth = self.directory().depth;
            self.publish(hash, depth, chunk.word(depth));
            return Ok(());
        }
        let old = self.chunk(word);
        let depth = old.depth();
        let locks = !weave::has(Bug::GrowthWithoutLocks);
        for at in (0..old.len()).filter(|_| locks) {
            old.bucket(at).lock();
        }
        let entries = old.entries();
        let grown = self.rebuild(hash, depth, shape::above(old.buckets()), &entries);
        for at in 0..old.len() {
            let bucket = old.bucket(at);
            if grown.is_ok() {
                bucket.set_moved();
            }
            if locks {
                bucket.unlock();
            }
        }
        grown?;
        self.arena.retire(old);
        Ok(())
    }

    /// Builds chunks for `entries` of the prefix of `hash` at `depth`, of `buckets` buckets or more, or in
    /// two halves, and publishes them: all of them, or, on an error, none.
    fn rebuild(&self, hash: Hash, depth: u32, buckets: Option<u32>, entries: &[u64]) -> Result<()> {
        let mut built = Vec::new();
        let done = self
            .build_chunks(hash, depth, buckets, entries, &mut built)
            .and_then(|()| {
                let deepest = built.iter().map(|(_, chunk)| chunk.depth()).max();
                self.deepen(deepest.unwrap_or(depth))
            });
        for (hash, chunk) in built {
            if done.is_ok() {
                self.publish(hash, chunk.depth(), chunk.word(chunk.depth()));
            } else {
                self.arena.give_back(chunk);
            }
        }
        done
    }

    /// Builds them, each with the smallest hash of its prefix. Until all are published, the old chunk still answers for
    /// the rest; so the second half is the first in the list.
    fn build_chunks<'i>(
        &'i self,
        hash: Hash,
        depth: u32,
        buckets: Option<u32>,
        entries: &[u64],
        built: &mut Vec<(Hash, Chunk<'i>)>,
    ) -> Result<()> {
        let mut wanted = buckets;
        while let Some(buckets) = wanted {
            let chunk = self.arena.take(buckets)?.with_depth(depth);
            if weave::has(Bug::ChunkBeforeEntries) {
                self.deepen(depth)?;
                self.publish(hash, depth, chunk.word(depth));
            }
            if chunk.fill(entries) {
                built.push((hash, chunk));
                return Ok(());
            }
            self.arena.give_back(chunk);
            wanted = shape::above(buckets);
        }
        if depth + 1 >= hash::KNOWN_BITS {
            return Err(Error::new(
                Kind::Full,
                "too many records share one hash prefix",
            ));
        }
        let bit = 1u64 << (hash::KNOWN_BITS - 1 - depth) << ADDRESS_BITS;
        let (ones, zeros): (Vec<u64>, Vec<u64>) = entries.iter().partition(|e| **e & bit != 0);
        let half = 1u64 << (63 - depth);
        let first = hash.0 >> (64 - depth) << (64 - depth);
        let deeper = depth + 1;
        let (upper, lower) = (shape::fitting(ones.len()), shape::fitting(zeros.len()));
        self.build_chunks(Hash(first | half), deeper, upper, &ones, built)?;
        self.build_chunks(Hash(first), deeper, lower, &zeros, built)
    }

    /// Has the directory tell prefixes of so many bits apart.
    fn deepen(&self, depth: u32) -> Result<()> {
        let mut retired = self.structure.lock();
        while self.directory().depth < depth {
            let old = self.directory();
            let new = Directory::new(old.depth + 1)?;
            for (at, slot) in old.slots.iter().enumerate() {
                let word = slot.load(Ordering::Relaxed);
                new.slots[2 * at].store(word, Ordering::Relaxed);
                new.slots[2 * at + 1].store(word, Ordering::Relaxed);
            }
            self.replace_directory(&mut retired, new);
        }
        Ok(())
    }

    /// Writes a chunk's word, or that there is none, for a prefix that the directory tells apart.
    fn publish(&self, hash: Hash, depth: u32, word: u64) {
        let _structure = self.structure.lock();
        for slot in self.directory().slots_of(hash, depth) {
            weave::point();
            slot.store(word, Ordering::Release);
        }
    }

    #[expect(unsafe_code, reason = "the directory is reclaimed by epochs")]
    fn replace_directory(&self, retired: &mut Vec<(u64, Box<Directory>)>, new: Directory) {
        let old = self
            .directory
            .swap(Box::into_raw(Box::new(new)), Ordering::AcqRel);
        // SAFETY: made by `Box::into_raw`, and nobody else takes it out: `structure` is held.
        let old = unsafe { Box::from_raw(old) };
        retired.push((crate::epoch::stamp(), old));
        retired.retain(|(stamp, _)| !crate::epoch::is_past(*stamp));
    }

    /// Brings a stripe into memory, if it is not.
    #[cold]
    pub fn warm(&self, stripe: usize) -> Result<()> {
        let _pin = crate::epoch::pin();
        let hash = Hash::first_of(stripe);
        let word = self.directory().slot(hash).load(Ordering::Acquire);
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
        if entries.is_empty() {
            self.publish(hash, STRIPE_BITS, 0);
            return Ok(());
        }
        self.rebuild(hash, STRIPE_BITS, shape::fitting(entries.len()), &entries)
    }

    /// Whether a stripe is in memory.
    pub fn is_warm(&self, stripe: usize) -> bool {
        let _pin = crate::epoch::pin();
        self.directory()
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
        let _pin = crate::epoch::pin();
        let _growth = self.growth[stripe % 64].lock();
        let mut hash = Hash::first_of(stripe);
        loop {
            let directory = self.directory();
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
    pub fn scan_chunk(&self, _pin: &Pin, from: Hash) -> Result<Scanned> {
        self.warm(from.stripe())?;
        let directory = self.directory();
        let word = directory.slot(from).load(Ordering::Acquire);
        if word == 0 {
            return Ok((Vec::new(), from.next_prefix(directory.depth)));
        }
        let chunk = self.chunk(word);
        let mut entries = Vec::new();
        chunk.collect(&mut entries);
        let stripe = (from.stripe() as u64) << (hash::KNOWN_BITS - STRIPE_BITS);
        let mut found: Vec<(u64, Place)> = entries
            .into_iter()
            .map(|entry| (stripe | entry >> ADDRESS_BITS, place_of(entry)))
            .filter(|(known, _)| *known >= from.known())
            .collect();
        found.sort_unstable();
        Ok((found, from.next_prefix(chunk.depth())))
    }

    /// Becomes `blank`, and then tells `forgotten` each place. The caller excludes all writers; readers see the old state
    /// or the new.
    pub fn clear(&self, blank: Blank, mut forgotten: Option<&mut dyn FnMut(Place)>) {
        let Blank(new, mut entries) = blank;
        let pin = crate::epoch::pin();
        let mut retired = self.structure.lock();
        let old = self.directory();
        self.replace_directory(&mut retired, new);
        // The pin kept the old one from being dropped at once; from here on `structure` keeps it. What is forgotten may
        // then be used again while the rest is told.
        drop(pin);
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
                self.arena.retire(chunk);
            }
            before = word;
        }
        for dirty in self.dirty.iter() {
            dirty.store(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Index {
    #[expect(unsafe_code, reason = "the directory is reclaimed by epochs")]
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`; `&mut self` proves that nobody looks.
        drop(unsafe { Box::from_raw(*self.directory.get_mut()) });
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

/// A slot of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'i>(&'i AtomicU64);

impl Slot<'_> {
    /// The place in it. Of a slot that is free or only claimed, a place where nothing stands.
    #[inline(always)]
    pub fn place(self) -> Place {
        weave::point();
        place_of(self.0.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn store(self, entry: u64) {
        weave::point();
        // Release: the record it points to was published before.
        self.0.store(entry, Ordering::Release);
    }
}

/// A bucket that was asked for, and is not locked yet.
pub struct Approached<'i> {
    index: &'i Index,
    run: Run<'i>,
    hash: Hash,
}

impl<'i> Approached<'i> {
    /// Locks it, if nobody holds it and its chunk has not grown; `None` else.
    #[inline(always)]
    pub fn lock(self) -> Option<Near<'i>> {
        if !self.run.home.try_lock() {
            return None;
        }
        let near = Near(self);
        (!near.0.run.home.is_moved()).then_some(near)
    }
}

/// A bucket locked for an update of one hash that takes the short way: [`Locked`] in fewer instructions. So few
/// that the processor can begin the next update, and its cache miss, while this one waits for its own.
pub struct Near<'i>(Approached<'i>);

impl<'i> Near<'i> {
    /// The first slot that may be of the hash; `None`: there is none, here or behind.
    #[inline(always)]
    pub fn glance(&self) -> Option<Slot<'i>> {
        self.0.run.glance(self.0.hash.tag())
    }

    /// The entry in `slot`, which may be one that [`Near::claim`] gave, now points to `place`.
    #[inline(always)]
    pub fn replace(&self, slot: Slot<'_>, place: Place) {
        slot.store(entry(self.0.hash, place));
        self.0.index.touch(self.0.hash);
    }

    /// The entry in `slot` is gone.
    #[inline(always)]
    pub fn remove(&self, slot: Slot<'_>) {
        slot.store(EMPTY);
        self.0.index.touch(self.0.hash);
    }

    /// Takes a free slot, if there is one, for the caller to [`replace`](Near::replace) or
    /// [`remove`](Near::remove).
    #[inline(always)]
    pub fn claim(&self) -> Option<Slot<'i>> {
        self.0.run.claim(self.0.hash.tag())
    }
}

impl Drop for Near<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.run.home.unlock();
    }
}

/// A bucket locked for an update of one hash.
pub struct Locked<'i> {
    index: &'i Index,
    run: Run<'i>,
    word: u64,
    hash: Hash,
    claimed: Option<Slot<'i>>,
    owns: bool,
}

impl<'i> Locked<'i> {
    /// The first slot that may be of the hash; `None`: there is none, here or behind.
    #[inline(always)]
    pub fn glance(&self) -> Option<Slot<'i>> {
        self.run.glance(self.hash.tag())
    }

    /// Offers the places that may hold the hash to `probe`, as [`Index::find`] does.
    pub fn find<T>(
        &self,
        mut probe: impl FnMut(Place) -> Result<Option<T>>,
    ) -> Result<Option<(Slot<'i>, T)>> {
        self.run.search(self.hash.tag(), |slot, place| {
            Ok(probe(place)?.map(|found| (slot, found)))
        })
    }

    /// The entry in `slot` now points to `place`.
    #[inline(always)]
    pub fn replace(&self, slot: Slot<'_>, place: Place) {
        slot.store(entry(self.hash, place));
        self.index.touch(self.hash);
    }

    /// The entry in `slot` is gone.
    #[inline(always)]
    pub fn remove(&self, slot: Slot<'_>) {
        slot.store(EMPTY);
        self.index.touch(self.hash);
    }

    /// Takes a free slot for this hash. `false`: there is none; let go of all locks, [`Index::grow`] with
    /// [`Locked::seen`], and begin again.
    #[inline(always)]
    pub fn claim(&mut self) -> bool {
        self.claimed = self.run.claim(self.hash.tag());
        self.claimed.is_some()
    }

    /// Fills the claimed slot.
    #[inline(always)]
    pub fn fill(&mut self, place: Place) {
        if let Some(slot) = self.claimed.take() {
            slot.store(entry(self.hash, place));
            self.index.touch(self.hash);
        }
    }

    /// What the directory said when this was locked.
    pub fn seen(&self) -> u64 {
        self.word
    }

    /// The hash this is locked for.
    pub fn hash(&self) -> Hash {
        self.hash
    }
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(slot) = self.claimed.take() {
            slot.store(EMPTY);
        }
        if self.owns {
            self.run.home.unlock();
        }
    }
}

const _: () = assert!(SLOTS == 7 && SPARE == 2 && RESERVED != EMPTY);

#[cfg(test)]
mod tests;
