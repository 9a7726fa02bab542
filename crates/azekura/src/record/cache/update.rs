//! Updating: copy the record in, then point its entry to it, under the bucket's lock; then drop what is too much.
//!
//! The table of steps is in `record::table`. A new record's entry stands in a queue before the record can be found. A fast path
//! does what is common: no thread is in the way, the record is in its home bucket or absent. One slow path does all else.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{CacheDb, charge, charge_of};
use crate::engine::{DecideMany, Edit};
use crate::epoch::Pin;
use crate::error::{Error, Kind, Result};
use crate::index::hash::Hash;
use crate::index::{Locked, Place};
use crate::record::many::Distinct;
use crate::record::table::{self, LIMITS};
use crate::room;

/// Records dropped for the memory of one, when the system gives none.
const DROPPED_FOR_MEMORY: usize = 2048;

/// The record that an update found.
struct Present<'p> {
    at: table::Present<'p>,
    /// Its time is over: to the update it is absent.
    is_expired: bool,
}

impl<'p> Present<'p> {
    fn value(&self) -> Option<&'p [u8]> {
        (!self.is_expired).then_some(self.at.record.value)
    }
}

/// What an update answers: an edit, and how long what it puts may live.
pub type Timed<'a> = (Edit<'a>, Option<Duration>);

impl CacheDb {
    /// Sets the value of `key`, for as long as there is room. Errors: `TooLarge`, also for a record that does not fit into the
    /// cache; `Full` if the system gives no memory. Then nothing is changed, but that others may have been dropped.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_hashed(key, self.table.hash(key), value, None)
    }

    /// As [`put`](Self::put), to be absent when `time` is over, at most a tenth of a second later. 13 years at most.
    pub fn put_for(&self, key: &[u8], value: &[u8], time: Duration) -> Result<()> {
        let expires = Some(self.clock.expiry(time));
        self.put_hashed(key, self.table.hash(key), value, expires)
    }

    /// Removes `key`; whether it was there.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.remove_hashed(key, self.table.hash(key))
    }

    /// Removes each of `keys`, overlapping their cache misses; how many were there.
    pub fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut removed = 0;
        self.table.in_groups_unpinned(keys, |key, hash| {
            removed += u64::from(self.remove_hashed(key, hash)?);
            Ok(())
        })?;
        Ok(removed)
    }

    /// As [`Engine::update`](crate::engine::Engine::update): `decide` is also shown how long the record has left, and states
    /// how long what it puts may live (`None`: for ever).
    pub fn update_timed<'a>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<(&[u8], Option<Duration>)>) -> Timed<'a>,
    ) -> Result<()> {
        self.edit(key, decide)
    }

    #[inline(always)]
    pub(super) fn put_hashed(
        &self,
        key: &[u8],
        hash: Hash,
        value: &[u8],
        expires: Option<u32>,
    ) -> Result<()> {
        if let Some(grew) = self.put_fast(key, hash, value, expires) {
            self.count_timed(expires);
            if self.is_work_due(grew) {
                self.work();
            }
            return Ok(());
        }
        self.put_slow(key, hash, value, expires)
    }

    /// The answer is whether the cache holds more than before.
    #[inline(always)]
    fn put_fast(&self, key: &[u8], hash: Hash, value: &[u8], expires: Option<u32>) -> Option<bool> {
        let inside = self.gate.enter_pinned()?;
        let bytes = charge(key.len(), value.len(), expires.is_some());
        if bytes > self.held.bytes_max.load(Ordering::Relaxed) {
            return None;
        }
        let mut grew = true;
        let record = (key, value, expires);
        self.table
            .put_fast(&inside, hash, record, |present, slots, draft| {
                let Some(present) = present else {
                    let admits = self.policy.admits_at_once(inside.pin(), hash);
                    if admits {
                        self.held.add(bytes);
                    }
                    return admits;
                };
                if present.expires.is_some() {
                    return false;
                }
                slots.see(draft);
                let before = charge_of(present);
                self.held.change(before, bytes);
                grew = bytes > before;
                true
            })?;
        Some(grew)
    }

    /// Whether [`work`](Self::work) is due after an update on the fast path; `grew`: there is more than before.
    #[inline(always)]
    fn is_work_due(&self, grew: bool) -> bool {
        grew && (self.held.is_over() || self.is_sifting_due())
            || self.timed.load(Ordering::Relaxed) != 0
    }

    /// What updates do a little of, and what they leave within the bounds.
    #[inline(never)]
    fn work(&self) {
        self.keep_within_memory();
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.tend(&pin);
        self.keep_within_limit(&pin);
    }

    #[inline(never)]
    fn put_slow(&self, key: &[u8], hash: Hash, value: &[u8], expires: Option<u32>) -> Result<()> {
        self.check(key, value, expires.is_some())?;
        self.make_way(charge(key.len(), value.len(), expires.is_some()));
        match self.put_once(key, hash, value, expires) {
            Err(error) if error.kind() == Kind::Full => {
                self.drop_for_memory();
                self.put_once(key, hash, value, expires)
            }
            done => done,
        }
    }

    /// Drops records because the system gives no memory.
    #[cold]
    fn drop_for_memory(&self) {
        {
            let _inside = self.gate.enter();
            let pin = self.table.pin();
            // Not an argument of the trace: it is not evaluated where no subscriber listens.
            let dropped = (0..DROPPED_FOR_MEMORY).take_while(|_| self.drop_one(&pin) > 0);
            let dropped = dropped.count();
            tracing::debug!(dropped, "the system gives no memory");
            // Others who looked meanwhile for something to drop may have found nothing.
            self.keep_within_limit(&pin);
        }
        self.table.slab.reclaim();
    }

    fn put_once(&self, key: &[u8], hash: Hash, value: &[u8], expires: Option<u32>) -> Result<()> {
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.tend(&pin);
        let place = self.table.slab.put(&pin, key, value, expires)?;
        let stored = self.store(&pin, key, hash, place);
        if stored.is_err() {
            self.table.free(&pin, place);
        }
        self.count_timed(expires);
        self.keep_within_limit(&pin);
        stored
    }

    /// Counts a put with a time to live, after it can be found: so a walk for what is expired that passed by it before
    /// does not count it as gone.
    #[inline(always)]
    fn count_timed(&self, expires: Option<u32>) {
        if expires.is_some() {
            self.timed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Points the entry of `key` to `place`.
    fn store(&self, pin: &Pin, key: &[u8], hash: Hash, place: Place) -> Result<()> {
        let (mut locked, found) = self.table.lock(pin, key, hash)?;
        let found = found.map(|at| self.judged(at));
        if found.is_none() {
            self.policy.admit(pin, hash)?;
        }
        self.commit(pin, &mut locked, found.as_ref(), Some(place));
        drop(locked);
        self.report_expired(found.as_ref());
        Ok(())
    }

    /// As [`Table::commit`](table::Table::commit), and counts. A record that was there counts as asked for.
    fn commit(
        &self,
        pin: &Pin,
        locked: &mut Locked<'_>,
        found: Option<&Present<'_>>,
        new: Option<Place>,
    ) {
        let record = new.and_then(|place| self.table.record(pin, place));
        match (found, record) {
            (Some(present), Some(record)) => {
                if !present.is_expired {
                    record.see();
                }
                let before = charge_of(&present.at.record);
                self.held.change(before, charge_of(&record));
            }
            (Some(present), None) => self.held.take(charge_of(&present.at.record)),
            (None, Some(record)) => self.held.add(charge_of(&record)),
            (None, None) => {}
        }
        let found = found.map(|present| &present.at);
        self.table.commit(pin, locked, found, new);
    }

    fn report_expired(&self, found: Option<&Present<'_>>) {
        if let Some(present) = found.filter(|present| present.is_expired) {
            self.report(&present.at.record);
        }
    }

    #[inline(always)]
    fn remove_hashed(&self, key: &[u8], hash: Hash) -> Result<bool> {
        let Some(found) = self.remove_fast(key, hash) else {
            return self.remove_slow(key, hash);
        };
        if found && self.is_sifting_due() || self.is_work_due(false) {
            self.work();
        }
        Ok(found)
    }

    /// As `put_fast`; the answer is whether the record was there.
    #[inline(always)]
    fn remove_fast(&self, key: &[u8], hash: Hash) -> Option<bool> {
        let inside = self.gate.enter_pinned()?;
        self.table.remove_fast(&inside, key, hash, |record| {
            if record.expires.is_some() {
                return false;
            }
            self.held.take(charge_of(record));
            true
        })
    }

    #[inline(never)]
    fn remove_slow(&self, key: &[u8], hash: Hash) -> Result<bool> {
        self.keep_within_memory();
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.tend(&pin);
        let mut locked = self.table.index.lock(&pin, hash)?;
        let found = self.table.present(&pin, &locked, key)?;
        let found = found.map(|at| self.judged(at));
        self.commit(&pin, &mut locked, found.as_ref(), None);
        drop(locked);
        self.report_expired(found.as_ref());
        Ok(found.is_some_and(|present| !present.is_expired))
    }

    /// What was found, and whether its time is over: asked once an update.
    fn judged<'p>(&self, at: table::Present<'p>) -> Present<'p> {
        Present {
            is_expired: !self.is_live(&at.record),
            at,
        }
    }

    /// One update.
    pub(super) fn edit<'a>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<(&[u8], Option<Duration>)>) -> Timed<'a>,
    ) -> Result<()> {
        self.check(key, &[], false)?;
        let hash = self.table.hash(key);
        self.keep_within_memory();
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.tend(&pin);
        let (mut locked, found) = self.table.lock(&pin, key, hash)?;
        let found = found.map(|at| self.judged(at));
        let shown = found.as_ref().and_then(|present| {
            let left = present.at.record.expires.map(|tick| self.clock.left(tick));
            Some((present.value()?, left))
        });
        let (edit, time) = decide(shown);
        let expires = time.map(|time| self.clock.expiry(time));
        let place = self.prepare(&pin, key, hash, &edit, expires, found.is_some())?;
        self.apply(&pin, &mut locked, found.as_ref(), &edit, place);
        drop(locked);
        self.count_timed(expires);
        self.report_expired(found.as_ref());
        self.keep_within_limit(&pin);
        Ok(())
    }

    /// Makes ready what an edit puts.
    fn prepare(
        &self,
        pin: &Pin,
        key: &[u8],
        hash: Hash,
        edit: &Edit<'_>,
        expires: Option<u32>,
        is_present: bool,
    ) -> Result<Option<Place>> {
        let Edit::Put(value) = edit else {
            return Ok(None);
        };
        self.check(key, value, expires.is_some())?;
        let place = self.table.slab.put(pin, key, value, expires)?;
        if !is_present && let Err(error) = self.policy.admit(pin, hash) {
            self.table.free(pin, place);
            return Err(error);
        }
        Ok(Some(place))
    }

    fn apply(
        &self,
        pin: &Pin,
        locked: &mut Locked<'_>,
        found: Option<&Present<'_>>,
        edit: &Edit<'_>,
        place: Option<Place>,
    ) {
        // A record whose time is over is removed, also if it would be kept.
        let is_expired = found.is_some_and(|present| present.is_expired);
        if place.is_some() || *edit == Edit::Remove || is_expired {
            self.commit(pin, locked, found, place);
        }
    }

    /// All keys locked, all values shown, then all edits: isolated.
    pub(super) fn edit_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        for key in keys {
            self.check(key, &[], false)?;
        }
        let distinct = Distinct::of(keys)?;
        let records = &distinct.records;
        let hashes = room::collect(records.iter().map(|key| self.table.hash(key)))?;
        self.keep_within_memory();
        let _inside = self.gate.enter();
        let pin = self.table.pin();
        self.tend(&pin);
        let (mut locked, found) = self.table.lock_many(&pin, records, &hashes)?;
        let found = found
            .into_iter()
            .map(|found| found.map(|at| self.judged(at)));
        let found: Vec<Option<Present<'_>>> = room::collect(found)?;
        let values = found
            .iter()
            .map(|found| found.as_ref().and_then(Present::value));
        let values = room::collect(values)?;
        let edits = distinct.decide(&values, decide)?;
        let places = self.table.prepare_many(&pin, &edits, |at, edit| {
            let is_present = found[at].is_some();
            self.prepare(&pin, records[at], hashes[at], edit, None, is_present)
        })?;
        for (at, edit) in edits.iter().enumerate() {
            self.apply(&pin, &mut locked[at], found[at].as_ref(), edit, places[at]);
        }
        drop(locked);
        for found in &found {
            self.report_expired(found.as_ref());
        }
        self.keep_within_limit(&pin);
        Ok(())
    }

    /// Removes everything, while no other update is under way. Readers see all of it or nothing.
    pub(super) fn remove_all(&self) -> Result<()> {
        let alone = self.gate.alone();
        self.table.clear(|| {
            self.policy.clear();
            self.held.records.store(0, Ordering::Relaxed);
            self.held.bytes.store(0, Ordering::Relaxed);
        })?;
        drop(alone);
        self.give_back();
        Ok(())
    }

    /// Whether a record is within the limits.
    #[inline(always)]
    fn check(&self, key: &[u8], value: &[u8], expires: bool) -> Result<()> {
        LIMITS.check(key, value)?;
        let (bytes, max) = (
            charge(key.len(), value.len(), expires),
            self.held.bytes_max.load(Ordering::Relaxed),
        );
        if bytes > max {
            return Err(does_not_fit(bytes, max, key));
        }
        Ok(())
    }
}

#[cold]
fn does_not_fit(bytes: u64, max: u64, key: &[u8]) -> Error {
    Error::new(Kind::TooLarge, "a record is larger than the whole cache")
        .key(key)
        .found(format!("{bytes} bytes"), format!("at most {max}"))
        .remedy("give the cache more bytes")
}
