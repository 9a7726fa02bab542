//! Updating: decide under the bucket's lock, append, point the entry to what was appended.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 look up: lock the bucket, find the record, claim a slot if it is absent | nothing |
//! | 2 the closure decides | nothing |
//! | 3 draft: reserve room in the log, copy; publish | the old record; after the publish, the new one |
//! | 4 commit: store the entry, mark the old frame dead, count | the new record: replay finds its frame |
//! | 5 unlock | the new record |
//!
//! The steps are the same for one record and many, on the fast path and the slow one; step 4 is one function (`commit`). The fast
//! path copies the frame while the record's cache line comes, before step 1 has compared the key; it publishes after.
//!
//! Room is reserved under the lock, so one key's frames lie in the log in the order of its updates. The
//! entry is stored before the thread's mark as an appender is dropped: a checkpoint or sync that waits for
//! appenders has both or neither. A removal's frame is dead at once: it is needed by replay only, until the
//! next checkpoint.
//!
//! Where a full store has no room in step 3, the lock is given back, the room is won, and the update begins again. A closure of
//! a caller is not called twice: what it decided is kept with the values that it saw, and stands as long as the records have
//! them. A batch is one frame: whenever the process dies, what was not appended did not happen to any of its records.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::read::passing;
use super::{Core, KEY_LEN_MAX, VALUE_LEN_MAX, layout, mark, value};
use crate::engine::{DecideMany, Durability, Edit};
use crate::epoch::Pin;
use crate::error::{Error, Kind, Result};
use crate::format::frame::{Frame, FrameKind};
use crate::index::hash::Hash;
use crate::index::{Blank, Home, Locked, Slot};
use crate::log::{Address, AllocationClass, Appended, Entry, Patience, Superseded, Use};
use crate::record::gate::{self, Inside};
use crate::record::limits::Limits;
use crate::record::many::Distinct;
use crate::room;

/// The record that an update found.
struct Present<'p> {
    slot: Slot<'p>,
    address: Address,
    frame: Frame<'p>,
}

/// What is to be appended for an edit: kind, flags and value of the frame.
type Drafted<'v> = (FrameKind, u8, Cow<'v, [u8]>);

impl Core {
    /// What every update begins with: health, the background worker's notification, the gate. `grows`: whether it may store more than
    /// was there; `key`: whose record it is, if it is one; `surely`:
    /// whether room is made sure of before it begins.
    #[inline(always)]
    pub(super) fn begin_update(
        &self,
        grows: bool,
        key: Option<(&[u8], Hash)>,
        surely: bool,
    ) -> Result<Inside<'_>> {
        self.log.healthy()?;
        if self.is_attention_due() {
            self.work_is_due(grows, key, surely)?;
        }
        Ok(self.gate.enter())
    }

    /// Whether a segment was filled since the last notification, the log is poisoned, the store is full, or its file displaced.
    #[inline(always)]
    fn is_attention_due(&self) -> bool {
        self.is_segment_filled() || self.log.is_alarmed()
    }

    #[inline(always)]
    fn is_segment_filled(&self) -> bool {
        self.log.appended() >= self.wake_at.load(Ordering::Relaxed)
    }

    /// After an update that may have filled a segment: the fast path does not check.
    fn wake_if_due(&self) {
        if self.is_segment_filled() {
            self.wake();
        }
    }

    #[inline(always)]
    pub(super) fn end_update(&self) -> Result<()> {
        if self.options.durability == Durability::Power {
            self.log.sync()
        } else {
            Ok(())
        }
    }

    /// `TooLarge` for a key or value over the limit.
    #[inline(always)]
    fn check_lengths(&self, key: &[u8], value: &[u8]) -> Result<()> {
        const LIMITS: Limits = Limits {
            key: KEY_LEN_MAX,
            value: VALUE_LEN_MAX,
            whose: "a hash file",
        };
        LIMITS
            .check(key, value)
            .map_err(|error| error.at(self.log.storage().path()))
    }

    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let hash = self.hash(key);
        self.put_hashed(key, hash, value)?;
        self.end_update()
    }

    pub(super) fn remove(&self, key: &[u8]) -> Result<bool> {
        let hash = self.hash(key);
        let found = self.remove_hashed(key, hash)?;
        self.end_update()?;
        Ok(found)
    }

    #[inline(always)]
    fn put_hashed(&self, key: &[u8], hash: Hash, value: &[u8]) -> Result<()> {
        if value.len() < self.plain_below && self.update_fast(key, hash, Some(value)).is_some() {
            return Ok(());
        }
        self.put_slow(key, hash, value)
    }

    #[inline(never)]
    fn put_slow(&self, key: &[u8], hash: Hash, value: &[u8]) -> Result<()> {
        let put = || self.edit(key, hash, true, |_| Edit::Put(Cow::Borrowed(value)), None);
        self.retried_for_record(key, hash, Some(value), put)?;
        self.wake_if_due();
        Ok(())
    }

    #[inline(always)]
    fn remove_hashed(&self, key: &[u8], hash: Hash) -> Result<bool> {
        match self.update_fast(key, hash, None) {
            Some(found) => Ok(found),
            None => self.remove_slow(key, hash),
        }
    }

    #[inline(never)]
    fn remove_slow(&self, key: &[u8], hash: Hash) -> Result<bool> {
        let found = Cell::new(false);
        let decide = |present: Option<&[u8]>| {
            found.set(present.is_some());
            Edit::Remove
        };
        let remove = || self.edit(key, hash, false, decide, None);
        self.retried_for_record(key, hash, None, remove)?;
        self.wake_if_due();
        Ok(found.get())
    }

    /// Does an update of one record, which stores `value` or removes, as [`retried`](Self::retried).
    fn retried_for_record(
        &self,
        key: &[u8],
        hash: Hash,
        value: Option<&[u8]>,
        update: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let len = || value.map(|value| self.frame_len(key, value));
        let present = || self.place_of(key, hash);
        let is_owed = || self.is_owed(key, hash, value);
        self.retried(value.is_some(), len, present, is_owed, update)
    }

    /// Does an update, which may store more than was there if it `grows`, in a frame of `len` bytes, if known. Where a full
    /// store has no room for it, room is won and it is done again: as long as some was won, since others may have taken it, or
    /// if it stores no more than was there, and so is owed the room.
    fn retried(
        &self,
        grows: bool,
        len: impl Fn() -> Option<usize>,
        present: impl Fn() -> Option<Address>,
        is_owed: impl Fn() -> bool,
        update: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut patience = Patience::default();
        for _ in 0..REFUSALS_MAX {
            match update() {
                Err(error) if error.kind() == Kind::Full => {
                    let len = len();
                    let won = self.relieve(grows, present(), len, true, &mut patience)?;
                    if !won {
                        if !is_owed() {
                            break;
                        }
                        let units = len.map_or(1, |len| self.log.units_of(len));
                        self.bring_together(units, &mut patience)?;
                    }
                }
                other => return other,
            }
        }
        update()
    }

    /// Whether a full store takes it: it removes, or stores no more than is there.
    fn is_owed(&self, key: &[u8], hash: Hash, value: Option<&[u8]>) -> bool {
        let Some(value) = value else {
            return true;
        };
        let pin = self.index.pin();
        let present = self.place_of(key, hash);
        let present = present.and_then(|address| self.log.frame(&pin, address).ok());
        present.is_some_and(|frame| self.frame_len(key, value) <= frame.len())
    }

    /// Bytes of the frame that would store `value`: compressed, if values are.
    pub(super) fn frame_len(&self, key: &[u8], value: &[u8]) -> usize {
        let (stored, flags) = value::encode(self.compression, value);
        let entry = Entry {
            kind: layout::PUT,
            flags,
            key,
            value: &stored,
        };
        entry.frame_len()
    }

    /// The common update in few instructions: no thread is in the way, the record is a short one that stands in its
    /// home bucket or is absent, the open segment has room. Puts `value`, or removes; the answer is whether the
    /// record was there. `None`: nothing was done, and the slow path is to be taken.
    ///
    /// Where a record is there, the frame is copied while its cache line comes, and published, or padded over, when its key is
    /// known. What is left to do then, and the next update's first steps, are fewer instructions than the processor keeps in
    /// flight (some 200 that write a register), so the next bucket's cache miss begins while this record's is waited for.
    /// Measured: a quarter of a random set.
    #[inline(always)]
    fn update_fast(&self, key: &[u8], hash: Hash, value: Option<&[u8]>) -> Option<bool> {
        let inside = self.gate.enter_pinned()?;
        let (pin, guard) = (inside.pin(), inside.section());
        let home = self.index.prefetch_home(pin, hash)?;
        if self.log.is_alarmed() {
            return None;
        }
        let locked = home.lock()?;
        if let Some(slot) = locked.probe() {
            let sought = self.log.locate(Address(slot.place()))?;
            let (kind, value) = match value {
                Some(value) => (layout::PUT, value),
                None => (layout::REMOVE, &[][..]),
            };
            let draft = self.log.draft(guard, kind, key, value)?;
            let Some(superseded) = self
                .log
                .superseded_by_key(pin, layout::RECORD, &sought, key)
            else {
                draft.abandon();
                return None;
            };
            let appended = draft.publish();
            self.commit(pin, &locked, slot, (kind, appended), Some(superseded));
            return Some(true);
        }
        if let Some(value) = value {
            let slot = locked.take_slot()?;
            let Some(draft) = self.log.draft(guard, layout::INSERT, key, value) else {
                locked.remove(slot);
                return None;
            };
            let appended = draft.publish();
            self.commit(pin, &locked, slot, (layout::INSERT, appended), None);
        }
        Some(false)
    }

    /// Step 4 of every update: the entry in `slot` points to the frame that was appended, or is gone; a removal's frame is dead,
    /// and so is the frame that the record had before.
    #[inline(always)]
    fn commit(
        &self,
        pin: &Pin,
        home: &Home<'_>,
        slot: Slot<'_>,
        (kind, appended): (FrameKind, Appended),
        superseded: Option<Superseded>,
    ) {
        if kind == layout::REMOVE {
            home.remove(slot);
            self.log.mark_dead(appended.address, appended.len);
            self.count.add(pin, -1);
        } else {
            home.replace(slot, appended.address.0);
            if kind == layout::INSERT {
                self.count.add(pin, 1);
            }
        }
        if let Some(superseded) = superseded {
            self.log.mark_superseded_dead(&superseded);
        }
    }

    /// As `commit`, of a record that was looked up on the slow path.
    fn commit_found(
        &self,
        pin: &Pin,
        locked: &mut Locked<'_>,
        found: Option<&Present<'_>>,
        change: (FrameKind, Appended),
    ) {
        let superseded = found.and_then(|at| self.log.superseded(at.address, at.frame.len()));
        let slot = found.map_or_else(|| locked.claimed(), |present| Some(present.slot));
        if let Some(slot) = slot {
            self.commit(pin, locked, slot, change, superseded);
        }
    }

    pub(super) fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        let hash = self.hash(key);
        let mut refused = None;
        let done = self.edit(key, hash, true, decide, Some(&mut refused));
        match (done, refused) {
            (Err(error), Some(refused)) => self.do_refused(key, hash, &refused, error)?,
            (done, _) => done?,
        }
        self.end_update()
    }

    /// Does what was decided and found no room, without asking again: only while the record is what it was decided on. Else the
    /// error stands.
    #[cold]
    fn do_refused(&self, key: &[u8], hash: Hash, refused: &Refused, error: Error) -> Result<()> {
        let is_stale = Cell::new(false);
        let decide = |present: Option<&[u8]>| {
            is_stale.set(present != refused.seen.as_deref());
            match &refused.new {
                _ if is_stale.get() => Edit::Keep,
                Some(value) => Edit::Put(Cow::Borrowed(value)),
                None => Edit::Remove,
            }
        };
        let again = || self.edit(key, hash, true, decide, Some(&mut None));
        self.retried_for_record(key, hash, refused.new.as_deref(), again)?;
        if is_stale.get() { Err(error) } else { Ok(()) }
    }

    /// One update. `inserts`: whether an absent record may be put; `shown`: `decide` looks at the value, and what it decided
    /// stands there if there is no room for it (if not, it is given an empty value for a present record, and nothing is
    /// decompressed).
    #[inline(always)]
    fn edit<'a>(
        &self,
        key: &[u8],
        hash: Hash,
        inserts: bool,
        decide: impl FnOnce(Option<&[u8]>) -> Edit<'a>,
        shown: Option<&mut Option<Refused>>,
    ) -> Result<()> {
        self.check_lengths(key, &[])?;
        let _inside = self.begin_update(inserts, Some((key, hash)), shown.is_some())?;
        let pin = self.index.pin();
        let (mut locked, found) = if inserts {
            self.index
                .lock_to_put(&pin, hash, |locked| self.present(&pin, locked, key))?
        } else {
            let locked = self.index.lock(&pin, hash)?;
            let found = self.present(&pin, &locked, key)?;
            (locked, found)
        };
        let edit = match &found {
            None => decide(None),
            Some(present) if shown.is_some() => {
                decide(Some(&value::decode(self.compression, &present.frame)?))
            }
            Some(_) => decide(Some(&[])),
        };
        let is_present = found.is_some();
        let Some((kind, flags, stored)) = self.drafted(key, is_present, &edit)? else {
            return Ok(());
        };
        let guard = pin.critical_section();
        let entry = Entry {
            kind,
            flags,
            key,
            value: &stored,
        };
        let class = if kind == layout::REMOVE {
            Ok(AllocationClass::Removal)
        } else {
            let present_len = found.as_ref().map_or(0, |present| present.frame.len());
            let class = class_of(entry.frame_len(), present_len);
            self.admitted(class, entry.frame_len())
        };
        let appended = class.and_then(|class| self.log.append(&guard, &entry, class));
        let appended =
            appended.or_else(|error| self.keep_refused(error, shown, found.as_ref(), &edit))?;
        self.commit_found(&pin, &mut locked, found.as_ref(), (kind, appended));
        Ok(())
    }

    /// The frame of an edit: its kind, flags and value as it is stored. `None`: nothing is to be appended.
    #[inline(always)]
    fn drafted<'v>(
        &self,
        key: &[u8],
        is_present: bool,
        edit: &'v Edit<'_>,
    ) -> Result<Option<Drafted<'v>>> {
        Ok(match edit {
            Edit::Put(value) => {
                self.check_lengths(key, value)?;
                let kind = if is_present {
                    layout::PUT
                } else {
                    layout::INSERT
                };
                let (stored, flags) = value::encode(self.compression, value);
                Some((kind, flags, stored))
            }
            Edit::Remove if is_present => Some((layout::REMOVE, 0, Cow::Borrowed(&[][..]))),
            Edit::Remove | Edit::Keep => None,
        })
    }

    /// Keeps what was decided on a value that was shown and found no room. The error that it was given.
    #[cold]
    fn keep_refused<T>(
        &self,
        error: Error,
        shown: Option<&mut Option<Refused>>,
        found: Option<&Present<'_>>,
        edit: &Edit<'_>,
    ) -> Result<T> {
        if let (Kind::Full, Some(shown)) = (error.kind(), shown) {
            let seen = found.map(|present| value::decode(self.compression, &present.frame));
            *shown = Some(Refused {
                seen: seen.transpose()?.map(Cow::into_owned),
                new: match edit {
                    Edit::Put(value) => Some(value.to_vec()),
                    Edit::Remove | Edit::Keep => None,
                },
            });
        }
        Err(error)
    }

    /// The class under which a frame of `len` bytes is appended. An exchange for which others left no room goes one step
    /// deeper: the next one wins it back before it begins.
    fn admitted(&self, class: AllocationClass, len: usize) -> Result<AllocationClass> {
        if !self.log.segments().is_full() {
            return Ok(class);
        }
        match self.log.admit(class, len) {
            Err(error) if error.kind() == Kind::Full && class == AllocationClass::Exchange => {
                self.log.admit(AllocationClass::Removal, len)?;
                Ok(AllocationClass::Removal)
            }
            other => other.map(|()| class),
        }
    }

    /// The record of `key`, whose home is locked.
    fn present<'p>(
        &'p self,
        pin: &'p Pin,
        locked: &Locked<'p>,
        key: &[u8],
    ) -> Result<Option<Present<'p>>> {
        let mut damaged = None;
        let found = locked.find(|place| {
            let frame = passing(self.matching(pin, place, key), &mut damaged)?;
            Ok(frame.map(|frame| (Address(place), frame)))
        })?;
        // What does not verify may be this record.
        if let (None, Some(error)) = (&found, damaged) {
            return Err(error);
        }
        Ok(found.map(|(slot, (address, frame))| Present {
            slot,
            address,
            frame,
        }))
    }

    pub(super) fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.in_groups_unpinned(records, |(key, value), hash| {
            self.put_hashed(key, hash, value)
        })?;
        self.end_update()
    }

    pub(super) fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut removed = 0;
        self.in_groups_unpinned(keys, |key, hash| {
            removed += u64::from(self.remove_hashed(key, hash)?);
            Ok(())
        })?;
        self.end_update()?;
        Ok(removed)
    }

    /// All keys locked, all values shown, one batch frame: isolated, and whole after a crash or absent.
    pub(super) fn update_many(
        &self,
        keys: &[&[u8]],
        decide: DecideMany<'_, '_>,
        mark: Option<&[u8]>,
    ) -> Result<()> {
        for key in keys {
            self.check_lengths(key, &[])?;
        }
        let distinct = Distinct::of(keys)?;
        let records = &distinct.records;
        let mut refused = None;
        let decide = |shown: &[Option<&[u8]>]| distinct.decide(shown, decide);
        let done = self.update_records(records, decide, mark, Some(&mut refused));
        match (done, refused) {
            (Err(error), Some(refused)) => {
                self.do_refused_many(records, mark, &refused, error)?;
            }
            (done, _) => done?,
        }
        self.end_update()
    }

    /// `update_many` of distinct records. `refused`: what was decided is kept there if there is no room for it.
    fn update_records<'a>(
        &self,
        records: &[&[u8]],
        decide: impl FnOnce(&[Option<&[u8]>]) -> Result<Vec<Edit<'a>>>,
        mark: Option<&[u8]>,
        refused: Option<&mut Option<RefusedMany<'a>>>,
    ) -> Result<()> {
        let hashes: Vec<Hash> = records.iter().map(|key| self.hash(key)).collect();
        let _inside = self.begin_update(true, None, true)?;
        let pin = self.index.pin();
        let (mut locked, found) = self.index.lock_many_to_put(&pin, &hashes, |at, locked| {
            self.present(&pin, locked, records[at])
        })?;
        let values = found
            .iter()
            .map(|found| {
                let present = found.as_ref();
                present
                    .map(|present| value::decode(self.compression, &present.frame))
                    .transpose()
            })
            .collect::<Result<Vec<_>>>()?;
        let shown: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        let edits = decide(&shown)?;
        let mut lacking = None;
        let edits_and_mark = (&edits[..], mark);
        let done = self.apply_many(
            &pin,
            records,
            &mut locked,
            &found,
            edits_and_mark,
            &mut lacking,
        );
        if let (Err(error), Some(refused), Some(lacking)) = (&done, refused, lacking) {
            *refused = RefusedMany::of(error, &shown, edits, lacking);
        }
        done
    }

    /// As `do_refused`, of a batch: only while each of its records, also one that is kept, is what it was decided on.
    #[cold]
    fn do_refused_many(
        &self,
        records: &[&[u8]],
        mark: Option<&[u8]>,
        refused: &RefusedMany<'_>,
        error: Error,
    ) -> Result<()> {
        let is_stale = Cell::new(false);
        let decide = |shown: &[Option<&[u8]>]| {
            let seen = refused.seen.iter().map(Option::as_deref);
            is_stale.set(!seen.eq(shown.iter().copied()));
            if is_stale.get() {
                return Err(Error::new(Kind::Invalid, "the records changed meanwhile"));
            }
            let edits = refused.edits.iter().map(|edit| match edit {
                Edit::Put(value) => Edit::Put(Cow::Borrowed(&value[..])),
                Edit::Remove => Edit::Remove,
                Edit::Keep => Edit::Keep,
            });
            room::collect(edits)
        };
        let Lacking { class, len } = refused.lacking;
        let again = || self.update_records(records, decide, mark, None);
        let is_owed = || class != AllocationClass::Growth;
        let (grows, len) = (class != AllocationClass::Removal, || Some(len));
        let done = self.retried(grows, len, || None, is_owed, again);
        if is_stale.get() { Err(error) } else { done }
    }

    fn apply_many(
        &self,
        pin: &Pin,
        records: &[&[u8]],
        locked: &mut [Locked<'_>],
        found: &[Option<Present<'_>>],
        (edits, mark): (&[Edit<'_>], Option<&[u8]>),
        lacking: &mut Option<Lacking>,
    ) -> Result<()> {
        let drafted = |(at, edit): (usize, _)| self.drafted(records[at], found[at].is_some(), edit);
        let stored = edits.iter().enumerate().map(drafted);
        let stored = stored.collect::<Result<Vec<_>>>()?;
        let changed: Vec<usize> = (0..edits.len())
            .filter(|at| stored[*at].is_some())
            .collect();
        let mut entries: Vec<Entry<'_>> = changed
            .iter()
            .filter_map(|at| {
                let (kind, flags, bytes) = stored[*at].as_ref()?;
                Some(Entry {
                    kind: *kind,
                    flags: *flags,
                    key: records[*at],
                    value: bytes,
                })
            })
            .collect();
        // Held until it is appended: the last one noted is the last one of the log.
        let mut last_mark = mark.map(|_| self.mark.lock());
        entries.extend(mark.map(mark::entry));
        if entries.is_empty() {
            return Ok(());
        }
        let guard = pin.critical_section();
        let mut addresses = Vec::with_capacity(entries.len());
        let class = class_of_many(&changed, &entries, found);
        let len = Entry::batch_len(&entries);
        *lacking = Some(Lacking { class, len });
        let class = self.admitted(class, len)?;
        if let [entry] = entries.as_slice() {
            addresses.push(self.log.append(&guard, entry, class)?);
        } else {
            self.log
                .append_batch(&guard, &entries, class, |_, appended| {
                    addresses.push(appended);
                })?;
        }
        if let (Some(mark), Some(last), Some(appended)) = (mark, &mut last_mark, addresses.last()) {
            self.log.mark_dead(appended.address, appended.len);
            let is_longer = mark.len() > last.len();
            mark.clone_into(last);
            drop(last_mark);
            if is_longer {
                self.expect_mark(mark.len());
            }
        }
        for ((at, entry), appended) in changed.into_iter().zip(&entries).zip(addresses) {
            let change = (entry.kind, appended);
            self.commit_found(pin, &mut locked[at], found[at].as_ref(), change);
        }
        Ok(())
    }

    pub(super) fn clear(&self, mark: Option<&[u8]>) -> Result<()> {
        gate::outside_updates()?;
        self.log.healthy()?;
        self.log.placed()?;
        if self.log.segments().is_full() {
            self.relieve(false, None, None, true, &mut Patience::default())?;
        }
        let blank = Blank::new()?;
        {
            let _alone = self.gate.alone();
            let guard = self.index.pin().critical_section();
            let entry = Entry {
                kind: layout::CLEAR,
                flags: 0,
                key: &[],
                value: mark.unwrap_or_default(),
            };
            self.log.append(&guard, &entry, AllocationClass::Removal)?;
            self.note_mark(mark);
            self.index.clear(blank, None);
            self.count.reset();
            let end = self.log.end();
            for segment in self.log.segments().in_use(Use::Log) {
                match end.offset() {
                    Some(offset) if segment.index == end.segment() => {
                        let dead = u64::from(offset).saturating_sub(segment.dead);
                        self.log.segments().mark_dead(segment.index, dead);
                    }
                    _ => self.log.segments().mark_all_dead(segment.index),
                }
            }
        }
        self.end_update()
    }
}

/// What was decided on a value that was shown, and found no room.
struct Refused {
    /// The value of the record; `None`: there was none.
    seen: Option<Vec<u8>>,
    /// Its new value; `None`: it is to be removed.
    new: Option<Vec<u8>>,
}

/// What was decided on many values that were shown, and found no room.
struct RefusedMany<'a> {
    /// The values of the records, of each.
    seen: Vec<Option<Vec<u8>>>,
    edits: Vec<Edit<'a>>,
    lacking: Lacking,
}

impl<'a> RefusedMany<'a> {
    /// `None` if what was refused is not room of the store, or there is no memory to keep it in.
    #[cold]
    fn of(
        error: &Error,
        shown: &[Option<&[u8]>],
        edits: Vec<Edit<'a>>,
        lacking: Lacking,
    ) -> Option<Self> {
        if error.kind() != Kind::Full {
            return None;
        }
        let mut seen = room::vec(shown.len()).ok()?;
        for value in shown {
            seen.push(value.map(room::copy).transpose().ok()?);
        }
        Some(Self {
            seen,
            edits,
            lacking,
        })
    }
}

/// The room that a batch asks for.
#[derive(Clone, Copy)]
struct Lacking {
    class: AllocationClass,
    /// Bytes of its frame.
    len: usize,
}

/// How often an update of a full store is tried again.
const REFUSALS_MAX: usize = 64;

/// What the log is to make room for: a frame in the place of one of `present` bytes.
fn class_of(len: usize, present: usize) -> AllocationClass {
    if len <= present {
        AllocationClass::Exchange
    } else {
        AllocationClass::Growth
    }
}

/// As `class_of`, of a batch, whose removals take no room for long.
fn class_of_many(
    changed: &[usize],
    entries: &[Entry<'_>],
    found: &[Option<Present<'_>>],
) -> AllocationClass {
    let puts = || entries.iter().filter(|e| layout::is_record(e.kind));
    let present = |at: &usize| found[*at].as_ref().map_or(0, |p| p.frame.len());
    if puts().next().is_none() {
        return AllocationClass::Removal;
    }
    class_of(
        puts().map(Entry::frame_len).sum(),
        changed.iter().map(present).sum(),
    )
}
