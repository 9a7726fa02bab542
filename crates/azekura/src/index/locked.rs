//! Buckets that are locked for an update, one or several, the usual way or the short one.
//!
//! Several are locked by rising address, so that nobody waits in a circle. Whoever gets a lock looks whether the chunk has
//! a successor meanwhile. It does not know how a chunk grows, nor what stands at a place.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bucket::EMPTY;
use super::hash::Hash;
use super::shape::Run;
use super::{COLD, Index, Place, entry, place_of};
use crate::epoch::Pin;
use crate::error::Result;
use crate::room;
use crate::weave;

impl Index {
    /// Finds the bucket of `hash` and asks the CPU for it, so that it comes while the caller does something else; `None`
    /// if it is not in memory.
    #[inline(always)]
    pub fn approach<'i>(&'i self, pin: &'i Pin, hash: Hash) -> Option<Approached<'i>> {
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
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
    pub fn lock<'i>(&'i self, pin: &'i Pin, hash: Hash) -> Result<Locked<'i>> {
        loop {
            let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
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
    pub fn lock_many<'i>(&'i self, pin: &'i Pin, hashes: &[Hash]) -> Result<Vec<Locked<'i>>> {
        'again: loop {
            let mut places = room::vec(hashes.len())?;
            for (at, hash) in hashes.iter().enumerate() {
                let word = self.directory.get(pin).slot(*hash).load(Ordering::Acquire);
                if word & COLD != 0 || word == 0 {
                    self.grow(*hash, word)?;
                    continue 'again;
                }
                let chunk = self.chunk(word);
                places.push((chunk.address(chunk.home(*hash)), at, word));
            }
            places.sort_unstable();
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
}

/// A slot of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'i>(pub(super) &'i AtomicU64);

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
