//! Buckets that are locked for an update: one or several, on the slow path or the fast one.
//!
//! Several are locked by rising address, so that threads cannot wait in a circle. A thread that gets a lock checks whether the
//! chunk has a successor meanwhile. It does not know how a chunk grows, nor what is at an address.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use super::bucket::{EMPTY, Slot};
use super::hash::Hash;
use super::shape::Run;
use super::{Index, NOT_LOADED, Place, entry};
use crate::epoch::Pin;
use crate::error::Result;
use crate::room;

impl Index {
    /// The bucket of `hash` in the chunk of `word`.
    #[inline(always)]
    fn home(&self, word: u64, hash: Hash) -> Home<'_> {
        Home {
            index: self,
            run: self.chunk(word).run(hash),
            hash,
        }
    }

    /// Finds the bucket of `hash` and prefetches it, so that it arrives while the caller does something else; `None`
    /// if its partition is not loaded.
    #[inline(always)]
    pub fn prefetch_home<'i>(&'i self, pin: &'i Pin, hash: Hash) -> Option<Prefetched<'i>> {
        let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
        if word.wrapping_sub(1) >= NOT_LOADED - 1 {
            return None;
        }
        let home = self.home(word, hash);
        crate::io::mmap::prefetch(std::ptr::from_ref(home.run.home).cast());
        Some(Prefetched(home))
    }

    /// Locks the bucket of `hash` for an update. Waits for the writer that holds it, in fair order.
    #[inline(always)]
    pub fn lock<'i>(&'i self, pin: &'i Pin, hash: Hash) -> Result<Locked<'i>> {
        loop {
            let word = self.directory.get(pin).slot(hash).load(Ordering::Acquire);
            if word & NOT_LOADED != 0 || word == 0 {
                self.grow(hash, word)?;
                continue;
            }
            let home = self.home(word, hash);
            home.run.home.lock();
            let locked = Locked {
                home,
                word,
                claimed: None,
                owns: true,
            };
            if !locked.run.home.is_moved() {
                return Ok(locked);
            }
        }
    }

    /// Locks the bucket of `hash` and looks up the record with `present`; where there is none, a slot is claimed. Grows
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

    /// As [`lock_to_put`](Self::lock_to_put), for many: `present` gets the index of the hash in `hashes`.
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
                if word & NOT_LOADED != 0 || word == 0 {
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
                let home = self.home(word, hashes[at]);
                let owns = address != before;
                before = address;
                if owns {
                    home.run.home.lock();
                }
                let is_moved = home.run.home.is_moved();
                locked[at] = Some(Locked {
                    home,
                    word,
                    claimed: None,
                    owns,
                });
                if is_moved {
                    continue 'again;
                }
            }
            in_order.extend(locked.into_iter().flatten());
            return Ok(in_order);
        }
    }
}

/// The bucket of a hash, with its cache line prefetched; not locked yet.
pub struct Prefetched<'i>(Home<'i>);

impl<'i> Prefetched<'i> {
    /// Locks it, if no thread holds it and its chunk has not grown; `None` else.
    #[inline(always)]
    pub fn lock(self) -> Option<LockedHome<'i>> {
        if !self.0.run.home.try_lock() {
            return None;
        }
        let locked = LockedHome(self.0);
        (!locked.run.home.is_moved()).then_some(locked)
    }
}

/// What an update does to the locked bucket of its hash: the same on the fast path ([`LockedHome`]) and the slow one
/// ([`Locked`]).
pub struct Home<'i> {
    index: &'i Index,
    run: Run<'i>,
    hash: Hash,
}

impl<'i> Home<'i> {
    /// The first slot that may be of the hash; `None`: there is none, in this bucket or past it.
    #[inline(always)]
    pub fn probe(&self) -> Option<Slot<'i>> {
        self.run.probe(self.hash.tag())
    }

    /// Takes a free slot, if there is one, for the caller to [`replace`](Self::replace) or [`remove`](Self::remove).
    #[inline(always)]
    pub fn take_slot(&self) -> Option<Slot<'i>> {
        self.run.claim(self.hash.tag())
    }

    /// The entry in `slot`, which may be one that was taken, now points to `place`.
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
}

/// A bucket locked on the fast path: [`Locked`] in fewer instructions, so few that the processor can begin the next update,
/// and its cache miss, while this one waits for its own.
pub struct LockedHome<'i>(Home<'i>);

impl<'i> Deref for LockedHome<'i> {
    type Target = Home<'i>;

    #[inline(always)]
    fn deref(&self) -> &Home<'i> {
        &self.0
    }
}

impl Drop for LockedHome<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.run.home.unlock();
    }
}

/// A bucket locked for an update of one hash.
pub struct Locked<'i> {
    home: Home<'i>,
    word: u64,
    claimed: Option<Slot<'i>>,
    owns: bool,
}

impl<'i> Deref for Locked<'i> {
    type Target = Home<'i>;

    #[inline(always)]
    fn deref(&self) -> &Home<'i> {
        &self.home
    }
}

impl<'i> Locked<'i> {
    /// Calls `probe` with each address that may have the hash, as [`Index::find`] does.
    pub fn find<T>(
        &self,
        mut probe: impl FnMut(Place) -> Result<Option<T>>,
    ) -> Result<Option<(Slot<'i>, T)>> {
        self.run.search(self.hash.tag(), |slot, place| {
            Ok(probe(place)?.map(|found| (slot, found)))
        })
    }

    /// Takes a free slot for this hash, which is given back when this is dropped. `false`: there is none; release all
    /// locks, [`Index::grow`] with [`Locked::seen`], and begin again.
    #[inline(always)]
    pub fn claim(&mut self) -> bool {
        self.claimed = self.take_slot();
        self.claimed.is_some()
    }

    /// The slot that was claimed: from now on the caller's.
    #[inline(always)]
    pub fn claimed(&mut self) -> Option<Slot<'i>> {
        self.claimed.take()
    }

    /// Fills the claimed slot.
    #[inline(always)]
    pub fn fill(&mut self, place: Place) {
        if let Some(slot) = self.claimed() {
            self.replace(slot, place);
        }
    }

    /// The word of the directory when this was locked.
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
