//! Updating: copy the record in, then point its entry to it, under the bucket's lock.
//!
//! The table of steps is in `record::table`. A fast path does what is common: no thread is in the way, the record is in its home
//! bucket or absent. One slow path does all else; it also moves records together, a few at a time.

use super::TinyDb;
use crate::engine::{DecideMany, Edit};
use crate::epoch::Pin;
use crate::error::{Error, Kind, Result};
use crate::index::hash::Hash;
use crate::index::{Locked, Place};
use crate::record::many::Distinct;
use crate::record::table::{LIMITS, Present};
use crate::room;

/// An update there was no room for.
struct NoRoom<'a> {
    edit: Edit<'a>,
    /// What it was decided for.
    shown: Option<Vec<u8>>,
    error: Error,
}

impl TinyDb {
    /// Sets the value of `key`. Errors: `TooLarge`; `Full`, and then nothing is changed.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_hashed(key, self.table.hash(key), value)
    }

    /// Removes `key`; whether it was there.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.remove_hashed(key, self.table.hash(key))
    }

    /// Removes each of `keys`, overlapping their cache misses; how many were there.
    pub fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut removed = 0;
        self.table.in_groups(keys, |_, _, key, hash| {
            removed += u64::from(self.remove_hashed(key, hash)?);
            Ok(())
        })?;
        Ok(removed)
    }

    #[inline(always)]
    pub(super) fn put_hashed(&self, key: &[u8], hash: Hash, value: &[u8]) -> Result<()> {
        if self.put_fast(key, hash, value).is_some() {
            return Ok(());
        }
        self.put_slow(key, hash, value)
    }

    #[inline(always)]
    fn put_fast(&self, key: &[u8], hash: Hash, value: &[u8]) -> Option<()> {
        let inside = self.gate.enter_pinned()?;
        let record = (key, value, None);
        self.table.put_fast(&inside, hash, record, |present, _, _| {
            if present.is_none() {
                self.count.add(inside.pin(), 1);
            }
            true
        })
    }

    #[inline(never)]
    fn put_slow(&self, key: &[u8], hash: Hash, value: &[u8]) -> Result<()> {
        LIMITS.check(key, value)?;
        match self.put_once(key, hash, value) {
            Err(error) if error.kind() == Kind::Full => {
                // What was freed and may not be read any more is perhaps enough.
                self.table.slab.reclaim();
                self.put_once(key, hash, value).map_err(|_| error)
            }
            done => done,
        }
    }

    fn put_once(&self, key: &[u8], hash: Hash, value: &[u8]) -> Result<()> {
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.table.keep_dense(&pin);
        let place = self.table.slab.put(&pin, key, value, None)?;
        let locked = self.table.lock(&pin, key, hash);
        let (mut locked, found) = locked.inspect_err(|_| self.table.free(&pin, place))?;
        self.commit(&pin, &mut locked, found.as_ref(), Some(place));
        Ok(())
    }

    /// As [`Table::commit`](crate::record::table::Table::commit), and counts.
    fn commit(
        &self,
        pin: &Pin,
        locked: &mut Locked<'_>,
        found: Option<&Present<'_>>,
        new: Option<Place>,
    ) {
        self.table.commit(pin, locked, found, new);
        self.count
            .add(pin, i64::from(new.is_some()) - i64::from(found.is_some()));
    }

    #[inline(always)]
    fn remove_hashed(&self, key: &[u8], hash: Hash) -> Result<bool> {
        match self.remove_fast(key, hash) {
            Some(found) => Ok(found),
            None => self.remove_slow(key, hash),
        }
    }

    /// As `put_fast`; the answer is whether the record was there.
    #[inline(always)]
    fn remove_fast(&self, key: &[u8], hash: Hash) -> Option<bool> {
        let inside = self.gate.enter_pinned()?;
        self.table.remove_fast(&inside, key, hash, |_| {
            self.count.add(inside.pin(), -1);
            true
        })
    }

    #[inline(never)]
    fn remove_slow(&self, key: &[u8], hash: Hash) -> Result<bool> {
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.table.keep_dense(&pin);
        let mut locked = self.table.index.lock(&pin, hash)?;
        let found = self.table.present(&pin, &locked, key)?;
        self.commit(&pin, &mut locked, found.as_ref(), None);
        Ok(found.is_some())
    }

    /// One update.
    ///
    /// Where there is no room, what was freed is perhaps enough, but the pin of the update itself keeps it. Then it
    /// releases everything, and makes the change if the record is still the one that the closure saw: no reader can observe
    /// when the closure ran.
    pub(super) fn edit<'a>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        LIMITS.check(key, &[])?;
        let hash = self.table.hash(key);
        let Some(NoRoom { edit, shown, error }) = self.edit_once(key, hash, decide)? else {
            return Ok(());
        };
        self.table.slab.reclaim();
        let mut is_same = false;
        let again = self.edit_once(key, hash, |present| {
            is_same = present == shown.as_deref();
            if is_same { edit } else { Edit::Keep }
        })?;
        if is_same && again.is_none() {
            Ok(())
        } else {
            Err(error)
        }
    }

    fn edit_once<'a>(
        &self,
        key: &[u8],
        hash: Hash,
        decide: impl FnOnce(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<Option<NoRoom<'a>>> {
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.table.keep_dense(&pin);
        let (mut locked, found) = self.table.lock(&pin, key, hash)?;
        let shown = found.as_ref().map(|present| present.record.value);
        let edit = decide(shown);
        let mut place = None;
        if let Edit::Put(value) = &edit {
            LIMITS.check(key, value)?;
            match self.table.slab.put(&pin, key, value, None) {
                Ok(put) => place = Some(put),
                Err(error) if error.kind() == Kind::Full => {
                    let shown = shown.map(room::copy).transpose()?;
                    return Ok(Some(NoRoom { edit, shown, error }));
                }
                Err(error) => return Err(error),
            }
        }
        self.apply(&pin, &mut locked, found.as_ref(), &edit, place);
        Ok(None)
    }

    fn apply(
        &self,
        pin: &Pin,
        locked: &mut Locked<'_>,
        found: Option<&Present<'_>>,
        edit: &Edit<'_>,
        place: Option<Place>,
    ) {
        if place.is_some() || *edit == Edit::Remove {
            self.commit(pin, locked, found, place);
        }
    }

    /// All keys locked, all values shown, then all edits: isolated.
    pub(super) fn edit_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        for key in keys {
            LIMITS.check(key, &[])?;
        }
        let distinct = Distinct::of(keys)?;
        let records = &distinct.records;
        let hashes = room::collect(records.iter().map(|key| self.table.hash(key)))?;
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.table.keep_dense(&pin);
        let (mut locked, found) = self.table.lock_many(&pin, records, &hashes)?;
        let values = found
            .iter()
            .map(|found| found.as_ref().map(|present| present.record.value));
        let values = room::collect(values)?;
        let edits = distinct.decide(&values, decide)?;
        let places = self.table.prepare_many(&pin, &edits, |at, edit| {
            let Edit::Put(value) = edit else {
                return Ok(None);
            };
            LIMITS.check(records[at], value)?;
            let place = self.table.slab.put(&pin, records[at], value, None)?;
            Ok(Some(place))
        })?;
        for (at, edit) in edits.iter().enumerate() {
            self.apply(&pin, &mut locked[at], found[at].as_ref(), edit, places[at]);
        }
        Ok(())
    }

    /// Removes everything, while no other update is under way. Readers see all of it or nothing.
    pub(super) fn remove_all(&self) -> Result<()> {
        let _alone = self.gate.alone();
        self.table.clear(|| self.count.reset())
    }
}
