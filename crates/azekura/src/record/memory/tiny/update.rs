//! Updating: copy the record in, then point its entry to it, under the bucket's lock.
//!
//! The table of steps is in the module's text. Short ways for what is common - nobody in the way, the record in its home
//! bucket or absent - and one long way for all else. Whoever writes also moves records together, a few at a time.

use super::{KEY_LEN_MAX, TinyDb, VALUE_LEN_MAX};
use crate::engine::{DecideMany, Edit};
use crate::epoch::{self, Pin};
use crate::error::{Error, Kind, Result, size};
use crate::index::hash::Hash;
use crate::index::{Locked, Place, Slot};
use crate::record::group::GROUP;
use crate::record::many::Distinct;
use crate::slab::Record;

/// The record that an update found.
struct Present<'p> {
    slot: Slot<'p>,
    place: Place,
    record: Record<'p>,
}

impl TinyDb {
    /// Sets the value of `key`. Errors: `TooLarge`; `Full`, and then nothing is changed.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_hashed(key, self.hash(key), value)
    }

    /// Removes `key`; whether it was there.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.remove_hashed(key, self.hash(key))
    }

    /// Removes each of `keys`, overlapping their cache misses; how many were there.
    pub fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut hashes = [Hash(0); GROUP];
        let mut removed = 0;
        for group in keys.chunks(GROUP) {
            let pin = epoch::pin();
            self.approach(&pin, group.iter().copied(), &mut hashes);
            for (at, key) in group.iter().enumerate() {
                removed += u64::from(self.remove_hashed(key, hashes[at])?);
            }
        }
        Ok(removed)
    }

    #[inline(always)]
    pub(super) fn put_hashed(&self, key: &[u8], hash: Hash, value: &[u8]) -> Result<()> {
        check(key, value)?;
        match self.put_once(key, hash, value) {
            Err(error) if error.kind() == Kind::Full => {
                // What was freed and may not be read any more is perhaps enough.
                self.slab.reclaim();
                self.put_once(key, hash, value).map_err(|_| error)
            }
            done => done,
        }
    }

    #[inline(always)]
    fn put_once(&self, key: &[u8], hash: Hash, value: &[u8]) -> Result<()> {
        let _inside = self.gate.enter();
        let pin = epoch::pin();
        self.keep_dense(&pin);
        // The bucket comes near while the record is copied.
        self.index.prefetch(&pin, hash);
        let place = self.slab.put(&pin, key, value, None)?;
        // The common case, in few instructions and without a loop.
        if let Some(mut locked) = self.index.lock_at_once(&pin, hash) {
            match locked.glance() {
                Some(slot) => {
                    let old = slot.place();
                    if self.matching(&pin, old, key).is_some() {
                        locked.replace(slot, place);
                        self.slab.free(&pin, old);
                        return Ok(());
                    }
                }
                None => {
                    if locked.claim() {
                        locked.fill(place);
                        self.count.add(&pin, 1);
                        return Ok(());
                    }
                }
            }
        }
        let stored = self.store(&pin, key, hash, place);
        if stored.is_err() {
            self.slab.free(&pin, place);
        }
        stored
    }

    /// Points the entry of `key` to `place`.
    #[inline(never)]
    fn store(&self, pin: &Pin, key: &[u8], hash: Hash, place: Place) -> Result<()> {
        let (mut locked, found) = self.lock(pin, key, hash, true)?;
        if let Some(present) = found {
            locked.replace(present.slot, place);
            self.slab.free(pin, present.place);
        } else {
            locked.fill(place);
            self.count.add(pin, 1);
        }
        Ok(())
    }

    #[inline(always)]
    fn remove_hashed(&self, key: &[u8], hash: Hash) -> Result<bool> {
        let _inside = self.gate.enter();
        let pin = epoch::pin();
        self.keep_dense(&pin);
        let locked = self.index.lock(&pin, hash)?;
        let Some(slot) = locked.glance() else {
            return Ok(false);
        };
        let place = slot.place();
        let found = if self.matching(&pin, place, key).is_some() {
            Some((slot, place))
        } else {
            let present = self.present(&pin, &locked, key)?;
            present.map(|present| (present.slot, present.place))
        };
        let Some((slot, place)) = found else {
            return Ok(false);
        };
        locked.remove(slot);
        self.slab.free(&pin, place);
        self.count.add(&pin, -1);
        Ok(true)
    }

    /// Locks the bucket of `key` and finds its record; if there is none and `inserts`, a slot is claimed.
    fn lock<'p>(
        &'p self,
        pin: &'p Pin,
        key: &[u8],
        hash: Hash,
        inserts: bool,
    ) -> Result<(Locked<'p>, Option<Present<'p>>)> {
        loop {
            let mut locked = self.index.lock(pin, hash)?;
            let found = self.present(pin, &locked, key)?;
            if found.is_some() || !inserts || locked.claim() {
                return Ok((locked, found));
            }
            let seen = locked.seen();
            drop(locked);
            self.index.grow(hash, seen)?;
        }
    }

    /// The record of `key`, whose home is locked.
    fn present<'p>(
        &'p self,
        pin: &'p Pin,
        locked: &Locked<'p>,
        key: &[u8],
    ) -> Result<Option<Present<'p>>> {
        let found = locked
            .find(|place| Ok(self.matching(pin, place, key).map(|record| (place, record))))?;
        Ok(found.map(|(slot, (place, record))| Present {
            slot,
            place,
            record,
        }))
    }

    /// One update.
    pub(super) fn edit<'a>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        check(key, &[])?;
        let hash = self.hash(key);
        let _inside = self.gate.enter();
        let pin = epoch::pin();
        self.keep_dense(&pin);
        let (mut locked, found) = self.lock(&pin, key, hash, true)?;
        let edit = decide(found.as_ref().map(|present| present.record.value));
        let place = match &edit {
            Edit::Put(value) => {
                check(key, value)?;
                Some(self.slab.put(&pin, key, value, None)?)
            }
            Edit::Keep | Edit::Remove => None,
        };
        self.apply(&pin, &mut locked, found.as_ref(), &edit, place);
        Ok(())
    }

    fn apply(
        &self,
        pin: &Pin,
        locked: &mut Locked<'_>,
        found: Option<&Present<'_>>,
        edit: &Edit<'_>,
        place: Option<Place>,
    ) {
        match (place, found) {
            (Some(place), Some(present)) => {
                locked.replace(present.slot, place);
                self.slab.free(pin, present.place);
            }
            (Some(place), None) => {
                locked.fill(place);
                self.count.add(pin, 1);
            }
            (None, Some(present)) if *edit == Edit::Remove => {
                locked.remove(present.slot);
                self.slab.free(pin, present.place);
                self.count.add(pin, -1);
            }
            (None, _) => {}
        }
    }

    /// All keys locked, all values shown, then all edits: isolated.
    pub(super) fn edit_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        for key in keys {
            check(key, &[])?;
        }
        let distinct = Distinct::of(keys);
        let records = &distinct.records;
        let hashes: Vec<Hash> = records.iter().map(|key| self.hash(key)).collect();
        let _inside = self.gate.enter();
        let pin = epoch::pin();
        self.keep_dense(&pin);
        let (mut locked, found) = self.lock_many(&pin, records, &hashes)?;
        let value = |found: &Option<Present<'_>>| -> Option<&[u8]> {
            let present = found.as_ref()?;
            // The record outlives the list: it stays while the pin lives.
            Some(
                self.matching(&pin, present.place, present.record.key)?
                    .value,
            )
        };
        let values: Vec<Option<&[u8]>> = found.iter().map(value).collect();
        let edits = distinct.decide(&values, decide)?;
        let mut places: Vec<Option<Place>> = Vec::with_capacity(edits.len());
        for (key, edit) in records.iter().zip(&edits) {
            let place = match edit {
                Edit::Put(value) => check(key, value)
                    .and_then(|()| self.slab.put(&pin, key, value, None))
                    .map(Some),
                Edit::Keep | Edit::Remove => Ok(None),
            };
            match place {
                Ok(place) => places.push(place),
                Err(error) => {
                    for place in places.into_iter().flatten() {
                        self.slab.free(&pin, place);
                    }
                    return Err(error);
                }
            }
        }
        for (at, edit) in edits.iter().enumerate() {
            self.apply(&pin, &mut locked[at], found[at].as_ref(), edit, places[at]);
        }
        Ok(())
    }

    fn lock_many<'p>(
        &'p self,
        pin: &'p Pin,
        records: &[&[u8]],
        hashes: &[Hash],
    ) -> Result<(Vec<Locked<'p>>, Vec<Option<Present<'p>>>)> {
        loop {
            let mut locked = self.index.lock_many(pin, hashes)?;
            let mut found = Vec::with_capacity(records.len());
            let mut full = None;
            for (locked, key) in locked.iter_mut().zip(records) {
                let present = self.present(pin, locked, key)?;
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
            self.index.grow(hash, seen)?;
        }
    }

    /// Removes everything, while no other update is under way. Readers see all of it or nothing.
    pub(super) fn remove_all(&self) -> Result<()> {
        let _alone = self.gate.alone();
        let pin = epoch::pin();
        let mut places = Vec::new();
        let mut at = Some(Hash(0));
        while let Some(hash) = at {
            let (entries, next) = self.index.scan_chunk(&pin, hash)?;
            places.extend(entries.into_iter().map(|(_, place)| place));
            at = next;
        }
        self.index.clear();
        self.count.reset();
        for place in places {
            self.slab.free(&pin, place);
        }
        Ok(())
    }

    /// Does its share of moving records together, when removals have left many holes.
    #[inline(always)]
    fn keep_dense(&self, pin: &Pin) {
        if self.slab.is_thin() {
            self.densen(pin);
        }
    }

    #[cold]
    #[inline(never)]
    fn densen(&self, pin: &Pin) {
        let moved = self
            .slab
            .thin(pin, &mut |pin, place| self.move_away(pin, place));
        if let Err(error) = moved {
            tracing::debug!(%error, "records could not be moved together");
        }
    }

    fn move_away(&self, pin: &Pin, place: Place) -> Result<()> {
        let Some(record) = self.record(pin, place) else {
            return Ok(());
        };
        let locked = self.index.lock(pin, self.hash(record.key))?;
        let here = |found| Ok((found == place).then_some(()));
        if let Some((slot, ())) = locked.find(here)? {
            let moved = self.slab.put(pin, record.key, record.value, None)?;
            locked.replace(slot, moved);
            self.slab.free(pin, place);
        }
        Ok(())
    }
}

#[inline(always)]
fn check(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() as u64 > KEY_LEN_MAX {
        return Err(too_large("key", key.len(), KEY_LEN_MAX, key));
    }
    if value.len() as u64 > VALUE_LEN_MAX {
        return Err(too_large("value", value.len(), VALUE_LEN_MAX, key));
    }
    Ok(())
}

#[cold]
fn too_large(what: &str, len: usize, limit: u64, key: &[u8]) -> Error {
    let message = format!(
        "{what} of {} exceeds the {} limit of a store in memory",
        size(len as u64),
        size(limit)
    );
    Error::new(Kind::TooLarge, message)
        .key(key)
        .found(format!("{len} bytes"), format!("at most {limit}"))
}
