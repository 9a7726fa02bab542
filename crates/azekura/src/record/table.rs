//! Records in memory that are found by their keys: an index over a slab.
//!
//! What `TinyDb` and `CacheDb` are made of: the lookup, draft and commit of an update, on the fast path and the slow one, and
//! the one function that turns a place of the index into a record. The engines count, bound, drop and expire records.
//!
//! | step | fast path | slow path |
//! |---|---|---|
//! | lookup | [`Table::put_fast`], `remove_fast`: the home bucket only, no waiting | `lock`, `lock_many`, `present` |
//! | draft | a copy in the next free slot, made while the bucket's cache line comes | `Slab::put` |
//! | commit | the entry points to the draft, or is gone; the old place is freed | `commit` |
//!
//! Invariants: the index holds places of this slab only; the thread that takes an entry away, under the bucket's lock, frees its
//! place, once. Every call takes a pin that began before the places it is given were found.

#![expect(unsafe_code, reason = "places are the slab's to give and ours to keep")]

use std::hash::{BuildHasher, RandomState};

use rapidhash::v3::RapidSecrets;

use super::group::{self, Keyed};
use super::limits::Limits;
use super::scan::{Lend, Scan};
use crate::engine::{Bookmark, Edit, Visit};
use crate::epoch::{Domain, Pin, PinnedSection};
use crate::error::{Kind, Result};
use crate::explore;
use crate::index::hash::Hash;
use crate::index::{Blank, Index, Locked, Place, Probed, Slot};
use crate::room;
use crate::slab::{Draft, FastPath, Record, Slab};

/// Of keys and values.
pub(super) const LIMITS: Limits = Limits {
    key: (8 << 20) - 1,
    value: (2 << 30) - 1,
    whose: "a store in memory",
};

pub(super) struct Table {
    pub(super) index: Index,
    pub(super) slab: Slab,
    secrets: RapidSecrets,
}

/// The record that an update found.
pub(super) struct Present<'p> {
    pub(super) slot: Slot<'p>,
    pub(super) place: Place,
    pub(super) record: Record<'p>,
}

impl Table {
    /// An empty one, whose records take at most `limit` bytes. Errors as [`Slab::new`] and [`Index::new`].
    pub(super) fn new(limit: Option<u64>) -> Result<Self> {
        Self::over(Slab::new(limit)?)
    }

    /// An empty one for records of about so many bytes, which its owner bounds. Errors as `new`.
    pub(super) fn for_bytes(bytes: u64) -> Result<Self> {
        Self::over(Slab::for_bytes(None, bytes)?)
    }

    fn over(slab: Slab) -> Result<Self> {
        // Random for each store, so that no client can choose keys that collide.
        let seed = explore::hash_seed().unwrap_or_else(|| RandomState::new().hash_one(0));
        Ok(Self {
            index: Index::new(slab.domain())?,
            slab,
            secrets: RapidSecrets::seed(seed),
        })
    }

    /// What threads pin themselves in while they are at its records.
    pub(super) fn domain(&self) -> &Domain {
        self.slab.domain()
    }

    /// Pins this thread: no record that it can find is overwritten meanwhile.
    #[inline(always)]
    pub(super) fn pin(&self) -> Pin {
        self.index.pin()
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        Hash::of_key(key, &self.secrets)
    }

    /// The record at a place that the index gave, or the slab offers to be moved, under this pin.
    #[inline(always)]
    pub(super) fn record<'p>(&'p self, pin: &'p Pin, place: Place) -> Option<Record<'p>> {
        if !is_place(place) {
            return None;
        }
        // SAFETY: the index holds what `Slab::put` returned and nothing else (a free or claimed slot's content was sorted
        // out above), and a place is freed after its entry is gone: so after this pin began, or not at all. What is
        // offered to be moved may have been freed before, but is in a block that no thread fills: the record is still there.
        Some(unsafe { self.slab.record(pin, place) })
    }

    /// Frees a place that the slab gave, and whose entry the caller has removed or replaced under its home's lock, or never made.
    #[inline(always)]
    pub(super) fn free(&self, pin: &Pin, place: Place) {
        // SAFETY: one thread alone removes an entry, under the lock, or holds a place that has none: it alone frees the place,
        // which no thread finds any more.
        unsafe { self.slab.free(pin, place) };
    }

    /// The record at `place` if it is `key`'s.
    #[inline(always)]
    pub(super) fn matching<'p>(
        &'p self,
        pin: &'p Pin,
        place: Place,
        key: &[u8],
    ) -> Option<Record<'p>> {
        self.record(pin, place).filter(|record| record.is_of(key))
    }

    /// The record of `key`: two cache misses, one if it is absent. No lock.
    #[inline(always)]
    pub(super) fn find<'p>(
        &'p self,
        pin: &'p Pin,
        key: &[u8],
        hash: Hash,
    ) -> Result<Option<Record<'p>>> {
        // The common case, without a loop.
        match self.index.probe(pin, hash) {
            Probed::At(place) => {
                if let Some(record) = self.matching(pin, place, key) {
                    return Ok(Some(record));
                }
            }
            Probed::Absent => return Ok(None),
            Probed::NotLoaded => {}
        }
        self.index
            .find(pin, hash, |place| Ok(self.matching(pin, place, key)))
    }

    /// Puts a record in few instructions, if no thread is in the way and the one of `key` is a short one in its home bucket or
    /// absent. `accounts` is shown the record that is there, and the new one's draft, under the bucket's lock: the put takes
    /// this path if it agrees. `None`: nothing was done, and the slow path is to be taken.
    ///
    /// The slot of the slab is taken last. So few steps follow the lookup of the old record that the processor begins the next
    /// put, and its cache miss, while it waits for that record.
    #[inline(always)]
    pub(super) fn put_fast(
        &self,
        inside: &PinnedSection,
        hash: Hash,
        (key, value, expires): (&[u8], &[u8], Option<u32>),
        accounts: impl FnOnce(Option<&Record<'_>>, &FastPath<'_>, &Draft) -> bool,
    ) -> Option<()> {
        let home = self.index.prefetch_home(inside.pin(), hash)?;
        let mut slots = self.slab.fast_path(inside)?;
        let draft = slots.draft(key, value, expires)?;
        let locked = home.lock()?;
        if let Some(slot) = locked.probe() {
            let old = slot.place();
            let record = self.matching(inside.pin(), old, key)?;
            if !accounts(Some(&record), &slots, &draft) {
                return None;
            }
            locked.replace(slot, draft.place());
            slots.keep(draft);
            // SAFETY: as in `free`.
            unsafe { slots.free(old) };
        } else {
            let slot = locked.take_slot()?;
            if !accounts(None, &slots, &draft) {
                locked.remove(slot);
                return None;
            }
            locked.replace(slot, draft.place());
            slots.keep(draft);
        }
        Some(())
    }

    /// Removes the record of `key`, as [`put_fast`](Self::put_fast) puts one; whether it was there.
    #[inline(always)]
    pub(super) fn remove_fast(
        &self,
        inside: &PinnedSection,
        key: &[u8],
        hash: Hash,
        accounts: impl FnOnce(&Record<'_>) -> bool,
    ) -> Option<bool> {
        let home = self.index.prefetch_home(inside.pin(), hash)?;
        let mut slots = self.slab.fast_path(inside)?;
        let locked = home.lock()?;
        let Some(slot) = locked.probe() else {
            return Some(false);
        };
        let place = slot.place();
        let record = self.matching(inside.pin(), place, key)?;
        if !accounts(&record) {
            return None;
        }
        locked.remove(slot);
        // SAFETY: as in `free`.
        unsafe { slots.free(place) };
        Some(true)
    }

    /// The last step of an update on the slow path: the entry of the record that was `found`, or the claimed one, points to
    /// `new`, or is gone at `None`; the old place is freed.
    pub(super) fn commit(
        &self,
        pin: &Pin,
        locked: &mut Locked<'_>,
        found: Option<&Present<'_>>,
        new: Option<Place>,
    ) {
        match (found, new) {
            (Some(present), Some(new)) => locked.replace(present.slot, new),
            (Some(present), None) => locked.remove(present.slot),
            (None, Some(new)) => locked.fill(new),
            (None, None) => {}
        }
        if let Some(present) = found {
            self.free(pin, present.place);
        }
    }

    /// Makes ready what each of the edits puts; where one cannot be, what was made ready before it is freed.
    pub(super) fn prepare_many(
        &self,
        pin: &Pin,
        edits: &[Edit<'_>],
        prepare: impl Fn(usize, &Edit<'_>) -> Result<Option<Place>>,
    ) -> Result<Vec<Option<Place>>> {
        let mut places = room::vec(edits.len())?;
        for (at, edit) in edits.iter().enumerate() {
            match prepare(at, edit) {
                Ok(place) => places.push(place),
                Err(error) => {
                    let ready = places.into_iter().flatten();
                    ready.for_each(|place| self.free(pin, place));
                    return Err(error);
                }
            }
        }
        Ok(places)
    }

    /// The record of `key`, whose home is locked.
    pub(super) fn present<'p>(
        &'p self,
        pin: &'p Pin,
        locked: &Locked<'p>,
        key: &[u8],
    ) -> Result<Option<Present<'p>>> {
        self.first(pin, locked, |_, record| record.is_of(key))
    }

    /// The first record of the hash that is locked which is wanted.
    pub(super) fn first<'p>(
        &'p self,
        pin: &'p Pin,
        locked: &Locked<'p>,
        is_wanted: impl Fn(Place, &Record<'p>) -> bool,
    ) -> Result<Option<Present<'p>>> {
        let found = locked.find(|place| {
            let record = self.record(pin, place);
            let record = record.filter(|record| is_wanted(place, record));
            Ok(record.map(|record| (place, record)))
        })?;
        Ok(found.map(|(slot, (place, record))| Present {
            slot,
            place,
            record,
        }))
    }

    /// Locks the bucket of `key` and finds its record; if there is none, a slot is claimed.
    pub(super) fn lock<'p>(
        &'p self,
        pin: &'p Pin,
        key: &[u8],
        hash: Hash,
    ) -> Result<(Locked<'p>, Option<Present<'p>>)> {
        self.index
            .lock_to_put(pin, hash, |locked| self.present(pin, locked, key))
    }

    /// As [`lock`](Self::lock), for the buckets of all `keys`.
    pub(super) fn lock_many<'p>(
        &'p self,
        pin: &'p Pin,
        keys: &[&[u8]],
        hashes: &[Hash],
    ) -> Result<(Vec<Locked<'p>>, Vec<Option<Present<'p>>>)> {
        self.index.lock_many_to_put(pin, hashes, |at, locked| {
            self.present(pin, locked, keys[at])
        })
    }

    /// As [`group::in_groups`].
    #[inline(always)]
    pub(super) fn in_groups<T: Keyed>(
        &self,
        items: &[T],
        each: impl FnMut(&Pin, usize, &T, Hash) -> Result<()>,
    ) -> Result<()> {
        let prefetch = |place| self.prefetch(place);
        group::in_groups(&self.index, &self.secrets, prefetch, items, each)
    }

    /// As [`group::in_groups_unpinned`].
    #[inline(always)]
    pub(super) fn in_groups_unpinned<T: Keyed>(
        &self,
        items: &[T],
        each: impl FnMut(&T, Hash) -> Result<()>,
    ) -> Result<()> {
        let prefetch = |place| self.prefetch(place);
        group::in_groups_unpinned(&self.index, &self.secrets, prefetch, items, each)
    }

    /// Calls `put` with every record, in groups. A group's pin keeps what the group overwrites; so a record for which there
    /// is no room is put once more when nothing is pinned.
    #[inline(always)]
    pub(super) fn put_each(
        &self,
        records: &[(&[u8], &[u8])],
        put: impl Fn(&[u8], Hash, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        loop {
            let left = &records[done..];
            let many = self.in_groups(left, |_, _, (key, value), hash| {
                put(key, hash, value)?;
                done += 1;
                Ok(())
            });
            match (many, records.get(done)) {
                (Err(error), Some((key, value))) if error.kind() == Kind::Full => {
                    put(key, self.hash(key), value)?;
                    done += 1;
                }
                (many, _) => return many,
            }
        }
    }

    /// As [`group::prefetch_keys`].
    pub(super) fn prefetch_keys(&self, keys: &[&[u8]]) {
        let prefetch = |place| self.prefetch(place);
        group::prefetch_keys(&self.index, &self.secrets, prefetch, keys);
    }

    #[inline(always)]
    fn prefetch(&self, place: Place) {
        if is_place(place) {
            self.slab.prefetch(place);
        }
    }

    /// Offers all records in the order of their hashes to `show`, which may hand them on to the visitor it is given. None
    /// of them can be damaged.
    pub(super) fn scan(
        &self,
        from: Option<&Bookmark>,
        show: &dyn Fn(&Record<'_>, &mut Lend<'_>) -> Result<()>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Bookmark>> {
        // The scan is pinned from when it found a place until it was lent.
        let lend = |place: Place, lent: &mut Lend<'_>| {
            let pin = self.pin();
            self.record(&pin, place)
                .map_or(Ok(()), |record| show(&record, lent))
        };
        let scan = Scan {
            index: &self.index,
            secrets: &self.secrets,
            prefetch: &|place| self.prefetch(place),
            lend: &lend,
        };
        scan.run(from, visit, &mut Err)
    }

    /// Takes all records away, while no update is under way; `forget` is called when none can be found any more. Errors:
    /// `Full`, and all stay.
    pub(super) fn clear(&self, forget: impl FnOnce()) -> Result<()> {
        let blank = Blank::new()?;
        let mut free = |place| self.free(&self.pin(), place);
        self.index.clear(blank, Some(&mut free));
        forget();
        Ok(())
    }

    /// Does a share of moving records together, when removals have left many holes.
    #[inline(always)]
    pub(super) fn keep_dense(&self, pin: &Pin) {
        if self.slab.needs_evacuation() {
            self.evacuate_sparse(pin);
        }
    }

    #[cold]
    #[inline(never)]
    fn evacuate_sparse(&self, pin: &Pin) {
        let mut move_away = |pin: &Pin, place| self.move_away(pin, place);
        if let Err(error) = self.slab.evacuate(pin, &mut move_away) {
            tracing::debug!(%error, "records could not be moved together");
        }
    }

    /// Moves the record at `place` to another, if one stands there that can be found.
    pub(super) fn move_away(&self, pin: &Pin, place: Place) -> Result<()> {
        let Some(record) = self.record(pin, place) else {
            return Ok(());
        };
        let mut locked = self.index.lock(pin, self.hash(record.key))?;
        let here = self.first(pin, &locked, |found, _| found == place)?;
        if here.is_some() {
            let moved = self
                .slab
                .put(pin, record.key, record.value, record.expires)?;
            if record.was_seen()
                && let Some(moved) = self.record(pin, moved)
            {
                moved.see();
            }
            self.commit(pin, &mut locked, here.as_ref(), Some(moved));
        }
        Ok(())
    }
}

/// Whether something may stand there: not so for a slot of the index that is free or only claimed.
#[inline(always)]
fn is_place(place: Place) -> bool {
    const NONE: Place = (1 << 40) - 1;
    place.wrapping_sub(1) < NONE - 1
}
