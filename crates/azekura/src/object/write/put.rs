//! Changes: put, remove, removal of ranges, batches.
//!
//! A put has three steps, so that a caller with many requests in flight (`served`) can do the second in its own way:
//!
//! | step | what happens | a crash here leaves |
//! |---|---|---|
//! | `reserve_extent`, in the lock of the id | space and a sequence | the old object |
//! | `write_extent` | one aligned write, at a place that nothing points to | the old one; the new one if all of it arrived |
//! | `commit_put` | index; the old extent enters limbo; the record is deferred to the journal's next batch | the new one |
//!
//! A put whose write failed is aborted (`abort_put`): the journal records that, since all of the extent may have arrived.

use std::ops::RangeBounds;

use crate::engine::Durability;
use crate::error::{Error, Kind, Result, sizes};
use crate::explore::RwLockReadGuard;
use crate::io::aligned::AlignedBuf;
use crate::log::AllocationClass;
use crate::object::id::{ObjectId, ids_of};
use crate::object::index::{EXTENT, Entry};
use crate::object::journal::record::Record;
use crate::object::place::extent::{self, BATCHED, CHUNK, PIECE, Seal, UNIT};
use crate::object::place::limbo::FreedBy;
use crate::object::place::long;
use crate::object::place::span::Span;
use crate::object::read::get::Reads;
use crate::object::times::Watch;
use crate::object::{Core, Store, Stored};

/// Retries of a removal for which the journal has no space: other threads may take the space made for it.
const REFUSALS_MAX: u32 = 8;
/// Tries of a put to reserve space that commits free, while other threads take it, and waits for space in the journal, which may
/// take long while a reader stays.
pub(crate) const SPACE_TRIES: u32 = 64;
const JOURNAL_TRIES: u32 = 2;

/// One change of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Change<'v> {
    /// The object has this value.
    Put(ObjectId, &'v [u8]),
    /// There is no such object.
    Remove(ObjectId),
}

impl Change<'_> {
    /// The id of the object.
    pub fn id(&self) -> ObjectId {
        match self {
            Self::Put(id, _) | Self::Remove(id) => *id,
        }
    }
}

/// No free run is long enough; whether a commit would free more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoSpace {
    pub(crate) by_sync: bool,
    pub(crate) by_checkpoint: bool,
}

/// Something that needs free space, or why there is none.
pub(crate) type Reserved<T> = std::result::Result<T, NoSpace>;

/// An object of a batch, and its put, if it is not removed.
pub(crate) type Part = (ObjectId, Option<Reservation>);

/// A put that has reserved space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub(crate) id: ObjectId,
    pub(crate) sequence: u64,
    pub(crate) span: Span,
    entry: Entry,
}

impl Store {
    /// Stores `value` as object `id`, replacing what it was.
    ///
    /// One aligned write, and a flush if the store's durability is `Power`. `TooLarge` above [`len_max`](Self::len_max);
    /// `Full` if no free space is that long: the old object stays.
    ///
    /// ```
    /// use azekura::object::{CreateOptions, ObjectId, Store};
    ///
    /// # fn main() -> azekura::Result<()> {
    /// # let memory = azekura::io::memory::Memory::from_bytes(&vec![0; 16 << 20], 16 << 20)?;
    /// # let store = Store::create_on(memory, None, &CreateOptions::default(), &mut |_, _| ())?;
    /// let first = store.put(ObjectId(0x2a), b"a cat, in many bytes")?;
    /// let second = store.put(ObjectId(0x2a), b"a dog")?;
    /// assert!(!first.replaced && second.replaced && first.sequence < second.sequence);
    /// assert_eq!(store.get(ObjectId(0x2a))?.as_deref(), Some(&b"a dog"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(&self, id: ObjectId, value: &[u8]) -> Result<Stored> {
        self.put_with(id, value, self.core.options.durability)
    }

    /// As [`put`](Self::put), with a durability of its own.
    pub fn put_with(&self, id: ObjectId, value: &[u8], durability: Durability) -> Result<Stored> {
        let guard = self.core.locks.lock(id);
        let stored = self.core.put(id, value)?;
        drop(guard);
        self.core.after_change(durability)?;
        Ok(stored)
    }

    /// Stores `value` if the object's sequence is `expected` (`None`: if there is no such object). `None`: it is not, and
    /// nothing changed. Costs one read more than a put, of the object's first chunk; none if no object is expected or present.
    pub fn compare_and_put(
        &self,
        id: ObjectId,
        expected: Option<u64>,
        value: &[u8],
    ) -> Result<Option<Stored>> {
        self.compare_and_put_with(id, expected, value, self.core.options.durability)
    }

    /// As [`compare_and_put`](Self::compare_and_put), with a durability of its own.
    pub fn compare_and_put_with(
        &self,
        id: ObjectId,
        expected: Option<u64>,
        value: &[u8],
        durability: Durability,
    ) -> Result<Option<Stored>> {
        let guard = self.core.locks.lock(id);
        let is_expected = match expected {
            Some(_) => self.core.sequence_locked(id)? == expected,
            None => self.core.find(id, Reads::Certain)?.1.is_none(),
        };
        if !is_expected {
            return Ok(None);
        }
        let stored = self.core.put(id, value)?;
        drop(guard);
        self.core.after_change(durability)?;
        Ok(Some(stored))
    }

    /// Removes an object; returns whether it existed. No access to the data, one frame of the journal. Works in a full store, too.
    pub fn remove(&self, id: ObjectId) -> Result<bool> {
        self.remove_with(id, self.core.options.durability)
    }

    /// As [`remove`](Self::remove), with a durability of its own. What did not exist is not synced: the removal by another
    /// thread that made it so is durable when that thread returns.
    pub fn remove_with(&self, id: ObjectId, durability: Durability) -> Result<bool> {
        let guard = self.core.locks.lock(id);
        let was_there = self.core.remove(id)?;
        drop(guard);
        if was_there {
            self.core.after_change(durability)?;
        }
        Ok(was_there)
    }

    /// Removes an object if its sequence is `expected`; returns whether it did. If it did not, nothing changed. Costs one read more
    /// than [`remove`](Self::remove), of the object's first chunk.
    ///
    /// ```
    /// use azekura::object::{CreateOptions, ObjectId, Store};
    ///
    /// # fn main() -> azekura::Result<()> {
    /// # let memory = azekura::io::memory::Memory::from_bytes(&vec![0; 16 << 20], 16 << 20)?;
    /// # let store = Store::create_on(memory, None, &CreateOptions::default(), &mut |_, _| ())?;
    /// store.put(ObjectId(0x2a), b"a cat")?;
    /// if let Some((_cat, sequence)) = store.get_with_sequence(ObjectId(0x2a))? {
    ///     store.put(ObjectId(0x2a), b"a dog")?;
    ///     assert!(!store.compare_and_remove(ObjectId(0x2a), sequence)?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_remove(&self, id: ObjectId, expected: u64) -> Result<bool> {
        self.compare_and_remove_with(id, expected, self.core.options.durability)
    }

    /// As [`compare_and_remove`](Self::compare_and_remove), with a durability of its own.
    pub fn compare_and_remove_with(
        &self,
        id: ObjectId,
        expected: u64,
        durability: Durability,
    ) -> Result<bool> {
        let guard = self.core.locks.lock(id);
        let removed = self.core.sequence_locked(id)? == Some(expected) && self.core.remove(id)?;
        drop(guard);
        if removed {
            self.core.after_change(durability)?;
        }
        Ok(removed)
    }

    /// Removes all objects of a range of ids at once; `..` is all there are. Returns how many. One frame of the journal.
    pub fn remove_range(&self, range: impl RangeBounds<ObjectId>) -> Result<u64> {
        self.remove_range_with(range, self.core.options.durability)
    }

    /// As [`remove_range`](Self::remove_range), with a durability of its own.
    pub fn remove_range_with(
        &self,
        range: impl RangeBounds<ObjectId>,
        durability: Durability,
    ) -> Result<u64> {
        let count = self.core.remove_range(&range)?;
        if count > 0 {
            self.core.after_change(durability)?;
        }
        Ok(count)
    }

    /// Makes all `changes`: after a crash all of them happened or none. Ids must be distinct (`Invalid`). One write for each
    /// put, however short it is, and one frame of the journal, which makes all of them happen. Returns the sequences, in the order of
    /// `changes`.
    ///
    /// ```
    /// use azekura::object::{Change, CreateOptions, ObjectId, Store};
    ///
    /// # fn main() -> azekura::Result<()> {
    /// # let memory = azekura::io::memory::Memory::from_bytes(&vec![0; 16 << 20], 16 << 20)?;
    /// # let store = Store::create_on(memory, None, &CreateOptions::default(), &mut |_, _| ())?;
    /// store.put(ObjectId(1), b"a draft")?;
    /// store.apply(&[
    ///     Change::Put(ObjectId(2), b"the text"),
    ///     Change::Remove(ObjectId(1)),
    /// ])?;
    /// assert_eq!((store.head(ObjectId(1))?, store.head(ObjectId(2))?), (None, Some(8)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<u64>> {
        self.apply_with(changes, self.core.options.durability)
    }

    /// As [`apply`](Self::apply), with a durability of its own.
    pub fn apply_with(&self, changes: &[Change<'_>], durability: Durability) -> Result<Vec<u64>> {
        let ids: Vec<ObjectId> = changes.iter().map(Change::id).collect();
        self.core.refuse_twice(&ids)?;
        let guard = self.core.locks.lock_all(ids);
        let sequences = self.core.apply(changes)?;
        drop(guard);
        self.core.after_change(durability)?;
        Ok(sequences)
    }
}

fn is_full<T>(result: &Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == Kind::Full)
}

impl Core {
    /// After a change: the sync that its durability needs, and a checkpoint if one is due.
    pub(crate) fn after_change(&self, durability: Durability) -> Result<()> {
        if self.owes_sync(durability) {
            self.sync_all()?;
        }
        self.work_is_due()
    }

    /// Counts a change; returns whether it needs a sync before it is acknowledged. The first one since the last sync wakes the
    /// background worker for the interval's sync; exactly one thread sees that it is the first.
    pub(crate) fn owes_sync(&self, durability: Durability) -> bool {
        let unsynced = self
            .unsynced
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if unsynced == 0 && self.options.sync_interval.is_some() {
            self.notify.notify();
        }
        let is_due = self
            .options
            .sync_every
            .is_some_and(|every| unsynced >= every);
        durability == Durability::Power || is_due
    }

    /// The caller holds the lock of the id.
    fn put(&self, id: ObjectId, value: &[u8]) -> Result<Stored> {
        if self.is_small(value.len()) {
            return self.put_small(id, value);
        }
        let mut watch = Watch::start();
        let reserved = self.reserve_extent(id, value.len() as u64)?;
        let written = self.write_extent(&reserved, value, 0, &mut watch);
        let stored = self.finish_put(reserved, written);
        self.times.put.record(&watch);
        stored
    }

    /// The first step, with the bytes to write; the caller returns them to `buffers`.
    pub(crate) fn begin_put(
        &self,
        id: ObjectId,
        value: &[u8],
    ) -> Result<(Reservation, AlignedBuf)> {
        let reserved = self.reserve_extent(id, value.len() as u64)?;
        match self.extent_of(&reserved, 0, value) {
            Ok(buf) => Ok((reserved, buf)),
            Err(error) => {
                self.abort_put(reserved)?;
                Err(error)
            }
        }
    }

    /// The bytes to write of a put that has reserved space.
    pub(crate) fn extent_of(
        &self,
        reserved: &Reservation,
        flags: u32,
        value: &[u8],
    ) -> Result<AlignedBuf> {
        let mut buf = self.buffers.take(extent::bytes(value.len() as u64))?;
        let seal = self.seal_of(reserved);
        seal.encode(&mut buf, reserved.sequence, flags, value);
        Ok(buf)
    }

    pub(crate) fn seal_of(&self, reserved: &Reservation) -> Seal {
        Seal::new(self.salt, reserved.entry.place, reserved.id)
    }

    /// The second step: one write, or a run of them.
    fn write_extent(
        &self,
        reserved: &Reservation,
        value: &[u8],
        flags: u32,
        watch: &mut Watch,
    ) -> Result<()> {
        let (seal, sequence) = (self.seal_of(reserved), reserved.sequence);
        let (from, len) = (self.offset_of(reserved.span), value.len() as u64);
        let bytes = extent::bytes(len);
        if bytes as u64 > long::ONE_MAX {
            let stretch = self.stretch(from..from + bytes as u64);
            let mut encode = |at: u64, piece: &mut [u8]| {
                seal.encode_from(at / CHUNK as u64, piece, sequence, flags, value);
            };
            return watch.device(|| stretch.write(&mut encode));
        }
        let mut buf = self.buffers.take(bytes)?;
        seal.encode(&mut buf, sequence, flags, value);
        let written = watch.device(|| self.data.write_at(from, &buf));
        self.buffers.give(buf);
        written
    }

    /// The first step: space for an object of `len` bytes, and a sequence.
    pub(crate) fn reserve_extent(&self, id: ObjectId, len: u64) -> Result<Reservation> {
        if len > self.len_max() {
            return Err(self.too_large(format!("object {id}"), len));
        }
        self.index.prepare(id)?;
        let (span, sequence) = self.find_space(id, extent::units(len) as u32)?;
        Ok(Reservation {
            id,
            sequence,
            span,
            entry: Entry {
                place: span.unit * (UNIT / PIECE),
                len: len as u32,
                kind: EXTENT,
            },
        })
    }

    #[cold]
    pub(crate) fn too_large(&self, what: impl std::fmt::Display, len: u64) -> Error {
        let (found, most) = sizes(len, self.len_max());
        let remedy = if len > extent::LEN_MAX {
            "store it in parts"
        } else if self.allocator.lock().space.units() < u64::from(self.group_units) {
            "store it in parts, or grow the store"
        } else {
            "store it in parts, or make a store with larger groups"
        };
        Error::new(Kind::TooLarge, format!("{what} exceeds the limit"))
            .at(self.data.path())
            .found(found, format!("at most {most}"))
            .remedy(remedy)
    }

    /// Reserves space for an object. While other threads take what commits free, it tries again after each commit.
    fn find_space(&self, id: ObjectId, units: u32) -> Result<(Span, u64)> {
        let (mut has_checkpoint, mut wins) = (false, 0);
        for _try in 0..SPACE_TRIES {
            match self.reserve_space(units, AllocationClass::Growth) {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(NoSpace { by_sync: true, .. })) => self.sync()?,
                // Limbo of a checkpoint is not empty while one is being made, or after one that failed.
                Ok(Err(missing)) if missing.by_checkpoint && !has_checkpoint => {
                    self.make_checkpoint_if_possible()?;
                    has_checkpoint = true;
                }
                Ok(Err(_)) => break,
                // The journal has no space before a checkpoint frees some.
                Err(error) if error.kind() == Kind::Full && wins < JOURNAL_TRIES => {
                    self.wait_for_journal_space(AllocationClass::Growth)?;
                    wins += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.full(format_args!("object {id}"), u64::from(units)))
    }

    /// Makes a checkpoint, unless the journal has no space for one.
    fn make_checkpoint_if_possible(&self) -> Result<()> {
        match self.make_checkpoint() {
            Err(error) if error.kind() != Kind::Full => Err(error),
            _ => Ok(()),
        }
    }

    /// Reserves space, and the sequence of its object.
    pub(crate) fn reserve_space(
        &self,
        units: u32,
        class: AllocationClass,
    ) -> Result<Reserved<(Span, u64)>> {
        self.log.healthy()?;
        self.refuse_changes()?;
        self.admit(class)?;
        let mut allocator = self.allocator.lock();
        let sequence = allocator.sequence;
        let Some(found) = allocator.space.take(units, sequence)? else {
            // Under the same lock: what another thread's commit frees right after it would be neither free nor in limbo.
            let waits = |freed_by| allocator.space.limbo().units_available(freed_by) > 0;
            return Ok(Err(NoSpace {
                by_sync: waits(FreedBy::Sync),
                by_checkpoint: waits(FreedBy::Checkpoint),
            }));
        };
        if found.is_in_new_allocation_extent()
            && let Some(allocation_extent) = allocator.space.open().cloned()
            && let Err(error) = self.append_record(
                &Record::Opened(allocation_extent),
                class.max(AllocationClass::Exchange),
            )
        {
            allocator.space.close_unrecorded(found)?;
            return Err(error);
        }
        allocator.next();
        allocator.in_progress.insert(sequence, found.span());
        Ok(Ok((found.span(), sequence)))
    }

    /// The last step: commits the put, or aborts it if the write failed.
    pub(crate) fn finish_put(&self, reserved: Reservation, written: Result<()>) -> Result<Stored> {
        if let Err(error) = written {
            self.abort_put(reserved)?;
            return Err(error);
        }
        self.commit_put(reserved)
    }

    /// The last step of a put whose write succeeded.
    fn commit_put(&self, reserved: Reservation) -> Result<Stored> {
        let Reservation {
            id,
            sequence,
            span,
            entry,
        } = reserved;
        let inside = self.gate.read();
        let old = match self.index.set(id, Some(entry)) {
            Ok(old) => old,
            Err(error) => {
                drop(inside);
                self.abort_put(reserved)?;
                return Err(error);
            }
        };
        let appended = self.defer_record(Record::Put(id, sequence, entry));
        let mut allocator = self.allocator.lock();
        allocator.in_progress.remove(&sequence);
        if let Some(old) = old {
            allocator.leave(old, FreedBy::Sync);
        }
        drop(allocator);
        debug_assert_eq!(Self::span_of(entry), span);
        match appended {
            // The record stays deferred: the extent certifies the put, and the next put makes a checkpoint.
            Err(error) if error.kind() == Kind::Full => {}
            other => other?,
        }
        Ok(Stored {
            sequence,
            replaced: old.is_some(),
        })
    }

    /// Aborts a put: the old object stays. Poisons the store if the journal cannot record it.
    fn abort_put(&self, reserved: Reservation) -> Result<()> {
        let appended = self.append_freeing(|_| Record::Aborted(reserved.sequence));
        let (_inside, appended) = match appended {
            Ok(inside) => (inside, Ok(())),
            Err(error) => (self.gate.read(), Err(error)),
        };
        let mut allocator = self.allocator.lock();
        allocator.in_progress.remove(&reserved.sequence);
        allocator.space.retire(reserved.span, FreedBy::Sync);
        drop(allocator);
        appended.inspect_err(|_| self.log.poison())
    }

    /// The caller holds the lock of the id.
    pub(crate) fn remove(&self, id: ObjectId) -> Result<bool> {
        self.log.healthy()?;
        // In a damaged store the absence of the object may be unknown.
        self.refuse_changes()?;
        if self.index.get(id)?.is_none() {
            return Ok(false);
        }
        let _inside = self.append_freeing(|sequence| Record::Removed(id, sequence))?;
        self.take_out(id)?;
        Ok(true)
    }

    /// Appends a record that frees space, made with a new sequence; returns the gate, in which the caller applies it.
    ///
    /// It does not fail because other threads took the journal space made for it, nor because a reader still uses what the
    /// last checkpoint freed.
    fn append_freeing(&self, record: impl Fn(u64) -> Record) -> Result<RwLockReadGuard<'_, ()>> {
        let mut tries = 0;
        self.make_journal_space(AllocationClass::Exchange)?;
        loop {
            let inside = self.gate.read();
            let sequence = self.allocator.lock().next();
            match self.append_record(&record(sequence), AllocationClass::Removal) {
                Err(error) if error.kind() == Kind::Full && tries < REFUSALS_MAX => tries += 1,
                appended => return appended.map(|()| inside),
            }
            drop(inside);
            self.wait_for_journal_space(AllocationClass::Exchange)?;
        }
    }

    /// Applies a recorded removal in memory. If that fails memory contradicts the journal, and the store is poisoned.
    fn take_out(&self, id: ObjectId) -> Result<()> {
        let old = self
            .index
            .set(id, None)
            .inspect_err(|_| self.log.poison())?;
        if let Some(old) = old {
            self.allocator.lock().leave(old, FreedBy::Sync);
        }
        Ok(())
    }

    /// Removes a range, and holds its lock.
    pub(crate) fn remove_range(&self, range: &impl RangeBounds<ObjectId>) -> Result<u64> {
        let Some(ids) = ids_of(range) else {
            return Ok(0);
        };
        let (first, last) = ids.into_inner();
        let _guard = self.locks.lock_range(first, last);
        self.log.healthy()?;
        self.refuse_changes()?;
        // Before anything is recorded: a leaf that cannot be read must not leave half of a removal.
        let mut count = 0;
        for object in self.entries(first..=last) {
            object?;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let _inside =
            self.append_freeing(|sequence| Record::RangeRemoved(sequence, first, last))?;
        for object in self.entries(first..=last) {
            let (id, _) = object.inspect_err(|_| self.log.poison())?;
            self.take_out(id)?;
        }
        Ok(count)
    }

    /// `Invalid` if a batch names an object twice.
    pub(crate) fn refuse_twice(&self, ids: &[ObjectId]) -> Result<()> {
        let mut distinct = std::collections::HashSet::new();
        if let Some(id) = ids.iter().find(|id| !distinct.insert(**id)) {
            let what = format!("a batch changes object {id} twice");
            return Err(Error::new(Kind::Invalid, what)
                .at(self.data.path())
                .remedy("give its last change alone"));
        }
        Ok(())
    }

    fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<u64>> {
        let mut parts: Vec<Part> = Vec::with_capacity(changes.len());
        let written = changes.iter().try_for_each(|change| match change {
            Change::Put(id, value) => {
                let put = self.reserve_extent(*id, value.len() as u64)?;
                parts.push((*id, Some(put)));
                self.write_extent(&put, value, BATCHED, &mut Watch::start())
            }
            Change::Remove(id) => {
                parts.push((*id, None));
                self.index.prepare(*id)
            }
        });
        self.finish_batch(&parts, written)
    }

    /// The last step of a batch: commits it, or frees its space if a write failed; returns its sequences. The caller holds the locks
    /// of its objects.
    pub(crate) fn finish_batch(&self, parts: &[Part], written: Result<()>) -> Result<Vec<u64>> {
        if parts.is_empty() {
            return written.map(|()| Vec::new());
        }
        let puts = parts.iter().filter_map(|(_, put)| *put);
        let roomy = written.and_then(|()| self.make_batch_space(puts.clone().count() as u64));
        // A batch of removals alone is retried like a removal.
        let frees = roomy.is_ok() && puts.clone().next().is_none();
        let mut tries = if frees { REFUSALS_MAX } else { 0 };
        // Held until its puts are no longer in progress: a check or checkpoint in between would count their extents twice.
        let mut inside = self.gate.read();
        let mut result = roomy.and_then(|()| self.commit_batch(parts));
        while tries > 0 && is_full(&result) && !self.log.is_poisoned() {
            drop(inside);
            let won = self.wait_for_journal_space(AllocationClass::Exchange);
            inside = self.gate.read();
            result = won.and_then(|()| self.commit_batch(parts));
            tries -= 1;
        }
        // Without the batch's frame none of its extents counts: nothing needs to be aborted.
        let mut allocator = self.allocator.lock();
        for put in puts {
            allocator.in_progress.remove(&put.sequence);
            if result.is_err() {
                allocator.space.retire(put.span, FreedBy::Sync);
            }
        }
        result
    }

    /// Appends the frame that makes a batch happen, and changes the index.
    fn commit_batch(&self, parts: &[Part]) -> Result<Vec<u64>> {
        let mut records = Vec::with_capacity(parts.len());
        let mut sequences = Vec::with_capacity(parts.len());
        for (id, put) in parts {
            let (sequence, record) = if let Some(put) = put {
                (put.sequence, Record::Put(*id, put.sequence, put.entry))
            } else {
                let sequence = self.allocator.lock().next();
                (sequence, Record::Removed(*id, sequence))
            };
            sequences.push(sequence);
            records.push(record);
        }
        let is_removal = parts.iter().all(|(_, put)| put.is_none());
        let class = if is_removal {
            AllocationClass::Removal
        } else {
            AllocationClass::Exchange
        };
        self.append_record(&Record::Batch(records), class)?;
        for (id, put) in parts {
            let set = self.index.set(*id, put.map(|put| put.entry));
            if let Some(old) = set.inspect_err(|_| self.log.poison())? {
                self.allocator.lock().leave(old, FreedBy::Sync);
            }
        }
        Ok(sequences)
    }

    /// Makes space in the journal for a batch, and for the next checkpoint with that many objects more. `Full` if there is none.
    fn make_batch_space(&self, puts: u64) -> Result<()> {
        if puts == 0 {
            return self.make_journal_space(AllocationClass::Exchange);
        }
        self.keep_for_checkpoint(puts);
        let made = self
            .make_journal_space(AllocationClass::Growth)
            .and_then(|()| {
                self.keep_for_checkpoint(puts);
                self.admit(AllocationClass::Growth)
            });
        made.inspect_err(|_| self.keep_for_checkpoint(0))
    }

    /// Makes a checkpoint if the journal has no space for this class. Returns without an error where there is none afterwards.
    pub(crate) fn make_journal_space(&self, class: AllocationClass) -> Result<()> {
        if self.has_journal_space(class)? {
            return Ok(());
        }
        self.wait_for_journal_space(class)
    }

    /// Makes a checkpoint. What it frees is reusable when no reader uses it any more: if the journal has no space for this class
    /// before, waits for readers, for a bounded time.
    fn wait_for_journal_space(&self, class: AllocationClass) -> Result<()> {
        self.make_checkpoint_if_possible()?;
        if !self.has_journal_space(class)? {
            self.log.segments().reap_to_the_last();
        }
        Ok(())
    }

    fn has_journal_space(&self, class: AllocationClass) -> Result<bool> {
        match self.admit(class) {
            Err(error) if error.kind() == Kind::Full => Ok(false),
            other => other.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests;
