//! Changes: put, remove, ranges, batches.
//!
//! A put has three steps, so that whoever has many devices or requests to look after can do the middle one in their own way:
//!
//! | step | what happens | a crash here leaves |
//! |---|---|---|
//! | begin | the id's turn; room and a sequence; the extent's bytes | the old object |
//! | the write | one aligned write, at a place that nothing points to | the old one; the new one if all of it arrived |
//! | end | index; the old extent goes to limbo; the record waits for the journal | the new one |
//!
//! A put whose write failed is *voided*: the journal is told so, since all of the extent may have arrived.

use crate::engine::Durability;
use crate::error::{Error, Kind, Result, sizes};
use crate::io::aligned::AlignedBuf;
use crate::log::Claim;
use crate::object::id::ObjectId;
use crate::object::index::{EXTENT, Entry};
use crate::object::journal::record::Record;
use crate::object::place::extent::{self, BATCHED, CHUNK, PIECE, Seal, UNIT};
use crate::object::place::limbo::FreedBy;
use crate::object::place::long;
use crate::object::place::span::Span;
use crate::object::read::get::Reads;
use crate::object::times::Watch;
use crate::object::{Core, Store, Stored};
use crate::weave::RwLockReadGuard;

/// How often a removal that finds no room in the journal is tried again: others may take what was made for it.
const REFUSALS_MAX: u32 = 8;
/// How often a put looks for room that a commit gives back, while others take it, and how often it waits for room in the journal,
/// which may take long beside a reader that stays.
pub(crate) const ROOM_TRIES: u32 = 64;
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
    /// Whose.
    pub fn id(&self) -> ObjectId {
        match self {
            Self::Put(id, _) | Self::Remove(id) => *id,
        }
    }
}

/// No free run is long enough: whether room waits for a commit which frees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lack {
    pub(crate) by_sync: bool,
    pub(crate) by_checkpoint: bool,
}

/// What free room was wanted for.
pub(crate) type Taken<T> = std::result::Result<T, Lack>;

/// An object of a batch, and its put, if it is not removed.
pub(crate) type Part = (ObjectId, Option<Placed>);

/// A put that has room and is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) id: ObjectId,
    pub(crate) sequence: u64,
    pub(crate) span: Span,
    entry: Entry,
}

impl Store {
    /// Stores `value` as object `id`, replacing what it was.
    ///
    /// One aligned write, and a flush if the store's durability is `Power`. `TooLarge` above [`len_max`](Self::len_max);
    /// `Full` if no free room is that long: the old object stays.
    ///
    /// ```
    /// use azekura::object::{ObjectId, Options, Store};
    ///
    /// # fn main() -> azekura::Result<()> {
    /// # let memory = azekura::io::memory::Memory::from_bytes(&vec![0; 16 << 20], 16 << 20)?;
    /// # let store = Store::create_on(memory, None, &Options::default(), &mut |_, _| ())?;
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
        let turn = self.core.turns.take_one(id);
        let stored = self.core.put(id, value)?;
        drop(turn);
        self.core.settle(durability)?;
        Ok(stored)
    }

    /// Stores `value` if the object's sequence is `expected` (`None`: if there is no such object). `None`: it is not, and
    /// nothing changed. One read more than a put, of the object's first chunk; none if nothing is expected or there.
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
        let turn = self.core.turns.take_one(id);
        let is_expected = match expected {
            Some(_) => self.core.sequence_in_turn(id)? == expected,
            None => self.core.find(id, Reads::Certain)?.1.is_none(),
        };
        if !is_expected {
            return Ok(None);
        }
        let stored = self.core.put(id, value)?;
        drop(turn);
        self.core.settle(durability)?;
        Ok(Some(stored))
    }

    /// Removes an object; whether there was one. No access to the data, one frame of the journal. Done in a full store, too.
    pub fn remove(&self, id: ObjectId) -> Result<bool> {
        self.remove_with(id, self.core.options.durability)
    }

    /// As [`remove`](Self::remove), with a durability of its own.
    pub fn remove_with(&self, id: ObjectId, durability: Durability) -> Result<bool> {
        let turn = self.core.turns.take_one(id);
        let was_there = self.core.remove(id)?;
        drop(turn);
        if was_there {
            self.core.settle(durability)?;
        }
        Ok(was_there)
    }

    /// Removes all objects from `first` to before `end` (`None`: to the last one) at once; how many. One frame of the journal.
    pub fn remove_range(&self, first: ObjectId, end: Option<ObjectId>) -> Result<u64> {
        self.remove_range_with(first, end, self.core.options.durability)
    }

    /// As [`remove_range`](Self::remove_range), with a durability of its own.
    pub fn remove_range_with(
        &self,
        first: ObjectId,
        end: Option<ObjectId>,
        durability: Durability,
    ) -> Result<u64> {
        let count = self.core.remove_between(first, end)?;
        if count > 0 {
            self.core.settle(durability)?;
        }
        Ok(count)
    }

    /// Makes all `changes`: after a crash all of them happened or none. Ids must be distinct (`Invalid`). One write for each
    /// put, however short it is, and one frame of the journal, with which they happen. The sequences, in the order of `changes`.
    ///
    /// ```
    /// use azekura::object::{Change, ObjectId, Options, Store};
    ///
    /// # fn main() -> azekura::Result<()> {
    /// # let memory = azekura::io::memory::Memory::from_bytes(&vec![0; 16 << 20], 16 << 20)?;
    /// # let store = Store::create_on(memory, None, &Options::default(), &mut |_, _| ())?;
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
        let turn = self.core.turns.take(ids);
        let sequences = self.core.apply(changes)?;
        drop(turn);
        self.core.settle(durability)?;
        Ok(sequences)
    }
}

fn is_full<T>(result: &Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == Kind::Full)
}

/// The last id of a range, if there is any in it.
pub(crate) fn last_before(first: ObjectId, end: Option<ObjectId>) -> Option<ObjectId> {
    match end {
        Some(end) => (first < end).then(|| ObjectId(end.0 - 1)),
        None => Some(ObjectId(u128::MAX)),
    }
}

impl Core {
    /// After a change: what its durability asks for, and what the store wants done now and then.
    pub(crate) fn settle(&self, durability: Durability) -> Result<()> {
        if self.owes_sync(durability) {
            self.sync_told()?;
        }
        self.work_is_due()
    }

    /// Counts a change; whether it is acknowledged only after a sync. The first one since the last sync has the keeper wake for
    /// the interval's: whoever counts it knows that it is, however many are counted meanwhile.
    pub(crate) fn owes_sync(&self, durability: Durability) -> bool {
        let unsynced = self
            .unsynced
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if unsynced == 0 && self.options.sync_interval.is_some() {
            self.bell.ring();
        }
        let is_due = self
            .options
            .sync_every
            .is_some_and(|every| unsynced >= every);
        durability == Durability::Power || is_due
    }

    /// In the id's turn.
    fn put(&self, id: ObjectId, value: &[u8]) -> Result<Stored> {
        if self.is_small(value.len()) {
            return self.put_small(id, value);
        }
        let mut watch = Watch::start();
        let placed = self.place(id, value.len() as u64)?;
        let written = self.write(&placed, value, 0, &mut watch);
        let stored = self.finish(placed, written);
        self.times.put.record(&watch);
        stored
    }

    /// The first step, with the bytes to be written, which go back to `buffers` afterwards.
    pub(crate) fn begin(&self, id: ObjectId, value: &[u8]) -> Result<(Placed, AlignedBuf)> {
        let placed = self.place(id, value.len() as u64)?;
        match self.extent_of(&placed, 0, value) {
            Ok(buf) => Ok((placed, buf)),
            Err(error) => {
                self.void(placed)?;
                Err(error)
            }
        }
    }

    /// The bytes to be written of a put that has room.
    pub(crate) fn extent_of(
        &self,
        placed: &Placed,
        flags: u32,
        value: &[u8],
    ) -> Result<AlignedBuf> {
        let mut buf = self.buffers.take(extent::bytes(value.len() as u64))?;
        let seal = self.seal_of(placed);
        seal.encode(&mut buf, placed.sequence, flags, value);
        Ok(buf)
    }

    pub(crate) fn seal_of(&self, placed: &Placed) -> Seal {
        Seal::new(self.salt, placed.entry.place, placed.id)
    }

    /// Writes the extent: one write, or a run of them.
    fn write(&self, placed: &Placed, value: &[u8], flags: u32, watch: &mut Watch) -> Result<()> {
        let (seal, sequence) = (self.seal_of(placed), placed.sequence);
        let (from, len) = (self.offset_of(placed.span), value.len() as u64);
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

    /// The first step: room for an object of `len` bytes.
    pub(crate) fn place(&self, id: ObjectId, len: u64) -> Result<Placed> {
        if len > self.len_max() {
            return Err(self.too_large(format!("object {id}"), len));
        }
        self.index.prepare(id)?;
        let (span, sequence) = self.find_room(id, extent::units(len) as u32)?;
        Ok(Placed {
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
        } else if self.room.lock().space.units() < u64::from(self.group_units) {
            "store it in parts, or grow the store"
        } else {
            "store it in parts, or make a store with larger groups"
        };
        Error::new(Kind::TooLarge, format!("{what} exceeds the limit"))
            .at(self.data.path())
            .found(found, format!("at most {most}"))
            .remedy(remedy)
    }

    /// Room for an object. While others put as much as is given back, it is tried again whenever something was.
    fn find_room(&self, id: ObjectId, units: u32) -> Result<(Span, u64)> {
        let (mut has_checkpoint, mut wins) = (false, 0);
        for _try in 0..ROOM_TRIES {
            match self.take_room(units, Claim::Growth) {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(Lack { by_sync: true, .. })) => self.sync()?,
                // Room that a checkpoint frees is there while one is being made, or after one that failed.
                Ok(Err(lack)) if lack.by_checkpoint && !has_checkpoint => {
                    self.make_checkpoint_if_there_is_room()?;
                    has_checkpoint = true;
                }
                Ok(Err(_)) => break,
                // The journal has no room before a checkpoint gives some back.
                Err(error) if error.kind() == Kind::Full && wins < JOURNAL_TRIES => {
                    self.win_journal_room(Claim::Growth)?;
                    wins += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.full(format_args!("object {id}"), u64::from(units)))
    }

    /// A checkpoint; none if the journal has no room for one.
    fn make_checkpoint_if_there_is_room(&self) -> Result<()> {
        match self.make_checkpoint() {
            Err(error) if error.kind() != Kind::Full => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes room, with the sequence of what comes there.
    pub(crate) fn take_room(&self, units: u32, claim: Claim) -> Result<Taken<(Span, u64)>> {
        self.log.healthy()?;
        self.refuse_changes()?;
        self.admit(claim)?;
        let mut room = self.room.lock();
        let sequence = room.sequence;
        let Some(found) = room.space.take(units, sequence)? else {
            // At the same moment: what another thread's commit frees right after it would be neither free nor waiting.
            let waits = |freed_by| room.space.limbo().units_within_reach(freed_by) > 0;
            return Ok(Err(Lack {
                by_sync: waits(FreedBy::Sync),
                by_checkpoint: waits(FreedBy::Checkpoint),
            }));
        };
        if found.is_in_new_stride()
            && let Some(stride) = room.space.open().cloned()
            && let Err(error) = self.tell(&Record::Opened(stride), claim.max(Claim::Exchange))
        {
            room.space.close_untold(found)?;
            return Err(error);
        }
        room.next();
        room.under_way.insert(sequence, found.span());
        Ok(Ok((found.span(), sequence)))
    }

    /// The last step, as the write went.
    pub(crate) fn finish(&self, placed: Placed, written: Result<()>) -> Result<Stored> {
        if let Err(error) = written {
            self.void(placed)?;
            return Err(error);
        }
        self.end(placed)
    }

    /// The object is there.
    fn end(&self, placed: Placed) -> Result<Stored> {
        let Placed {
            id,
            sequence,
            span,
            entry,
        } = placed;
        let inside = self.gate.read();
        let old = match self.index.set(id, Some(entry)) {
            Ok(old) => old,
            Err(error) => {
                drop(inside);
                self.void(placed)?;
                return Err(error);
            }
        };
        let told = self.tell_later(Record::Put(id, sequence, entry));
        let mut room = self.room.lock();
        room.under_way.remove(&sequence);
        if let Some(old) = old {
            room.leave(old, FreedBy::Sync);
        }
        drop(room);
        debug_assert_eq!(Self::span_of(entry), span);
        match told {
            // It waits on: the extent certifies the put, and the next one makes a checkpoint.
            Err(error) if error.kind() == Kind::Full => {}
            other => other?,
        }
        Ok(Stored {
            sequence,
            replaced: old.is_some(),
        })
    }

    /// A put that did not come to its end: what was there before holds. Poisons if the journal cannot be told so.
    fn void(&self, placed: Placed) -> Result<()> {
        let told = self.tell_freeing(|_| Record::Voided(placed.sequence));
        let (_inside, told) = match told {
            Ok(inside) => (inside, Ok(())),
            Err(error) => (self.gate.read(), Err(error)),
        };
        let mut room = self.room.lock();
        room.under_way.remove(&placed.sequence);
        room.space.retire(placed.span, FreedBy::Sync);
        drop(room);
        told.inspect_err(|_| self.log.poison())
    }

    /// In the id's turn.
    pub(crate) fn remove(&self, id: ObjectId) -> Result<bool> {
        self.log.healthy()?;
        // That there is no such object may not be known.
        self.refuse_changes()?;
        if self.index.get(id)?.is_none() {
            return Ok(false);
        }
        let _inside = self.tell_freeing(|sequence| Record::Removed(id, sequence))?;
        self.take_out(id)?;
        Ok(true)
    }

    /// Appends a record that frees room, made of a sequence; the gate, in which what it states is done.
    ///
    /// It is not refused because others took the room that was made for it, nor because a reader still looks at what the
    /// last checkpoint freed.
    fn tell_freeing(&self, record: impl Fn(u64) -> Record) -> Result<RwLockReadGuard<'_, ()>> {
        let mut tries = 0;
        self.make_journal_room(Claim::Exchange)?;
        loop {
            let inside = self.gate.read();
            let sequence = self.room.lock().next();
            match self.tell(&record(sequence), Claim::Removal) {
                Err(error) if error.kind() == Kind::Full && tries < REFUSALS_MAX => tries += 1,
                told => return told.map(|()| inside),
            }
            drop(inside);
            self.win_journal_room(Claim::Exchange)?;
        }
    }

    /// What the journal was told is so in memory, too; if not, nothing can be trusted.
    fn take_out(&self, id: ObjectId) -> Result<()> {
        let old = self
            .index
            .set(id, None)
            .inspect_err(|_| self.log.poison())?;
        if let Some(old) = old {
            self.room.lock().leave(old, FreedBy::Sync);
        }
        Ok(())
    }

    /// Removes a range, in its turn.
    pub(crate) fn remove_between(&self, first: ObjectId, end: Option<ObjectId>) -> Result<u64> {
        let Some(last) = last_before(first, end) else {
            return Ok(0);
        };
        let _turn = self.turns.take_range(first, last);
        self.remove_range(first, last)
    }

    fn remove_range(&self, first: ObjectId, last: ObjectId) -> Result<u64> {
        self.log.healthy()?;
        self.refuse_changes()?;
        // Before anything is told: a leaf that cannot be read is no half of a removal.
        let mut count = 0;
        self.each_in(first, last, |_, _| {
            count += 1;
            Ok(())
        })?;
        if count == 0 {
            return Ok(0);
        }
        let _inside = self.tell_freeing(|sequence| Record::RangeRemoved(sequence, first, last))?;
        self.each_in(first, last, |id, _| self.take_out(id))?;
        Ok(count)
    }

    /// Shows all objects from `first` to `last`, a leaf at a time.
    pub(crate) fn each_in(
        &self,
        first: ObjectId,
        last: ObjectId,
        mut visit: impl FnMut(ObjectId, Entry) -> Result<()>,
    ) -> Result<()> {
        let mut next = Some(first);
        while let Some(from) = next.filter(|from| *from <= last) {
            let page = self.index.page(from)?;
            for (id, entry) in page.entries {
                if id > last {
                    return Ok(());
                }
                visit(id, entry)?;
            }
            next = page.next;
        }
        Ok(())
    }

    /// A batch changes each of its objects once.
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
                let put = self.place(*id, value.len() as u64)?;
                parts.push((*id, Some(put)));
                self.write(&put, value, BATCHED, &mut Watch::start())
            }
            Change::Remove(id) => {
                parts.push((*id, None));
                self.index.prepare(*id)
            }
        });
        self.finish_batch(&parts, written)
    }

    /// The last step of a batch, as its writes went; its sequences. In the turn of all its objects.
    pub(crate) fn finish_batch(&self, parts: &[Part], written: Result<()>) -> Result<Vec<u64>> {
        if parts.is_empty() {
            return written.map(|()| Vec::new());
        }
        let puts = parts.iter().filter_map(|(_, put)| *put);
        let roomy = written.and_then(|()| self.make_batch_room(puts.clone().count() as u64));
        // What only removes is refused no sooner than a removal.
        let frees = roomy.is_ok() && puts.clone().next().is_none();
        let mut tries = if frees { REFUSALS_MAX } else { 0 };
        // Until its extents are no longer under way: a check or checkpoint in between would count them twice.
        let mut inside = self.gate.read();
        let mut result = roomy.and_then(|()| self.end_batch(parts));
        while tries > 0 && is_full(&result) && !self.log.is_poisoned() {
            drop(inside);
            let won = self.win_journal_room(Claim::Exchange);
            inside = self.gate.read();
            result = won.and_then(|()| self.end_batch(parts));
            tries -= 1;
        }
        // Without its frame none of its extents counts: nothing need be voided.
        let mut room = self.room.lock();
        for put in puts {
            room.under_way.remove(&put.sequence);
            if result.is_err() {
                room.space.retire(put.span, FreedBy::Sync);
            }
        }
        result
    }

    /// The frame with which a batch happens, and the index.
    fn end_batch(&self, parts: &[Part]) -> Result<Vec<u64>> {
        let mut records = Vec::with_capacity(parts.len());
        let mut sequences = Vec::with_capacity(parts.len());
        for (id, put) in parts {
            let (sequence, record) = if let Some(put) = put {
                (put.sequence, Record::Put(*id, put.sequence, put.entry))
            } else {
                let sequence = self.room.lock().next();
                (sequence, Record::Removed(*id, sequence))
            };
            sequences.push(sequence);
            records.push(record);
        }
        let is_removal = parts.iter().all(|(_, put)| put.is_none());
        let claim = if is_removal {
            Claim::Removal
        } else {
            Claim::Exchange
        };
        self.tell(&Record::Batch(records), claim)?;
        for (id, put) in parts {
            let set = self.index.set(*id, put.map(|put| put.entry));
            if let Some(old) = set.inspect_err(|_| self.log.poison())? {
                self.room.lock().leave(old, FreedBy::Sync);
            }
        }
        Ok(sequences)
    }

    /// Room in the journal for a batch, and for the next checkpoint with so many objects more. `Full` if there is none.
    fn make_batch_room(&self, puts: u64) -> Result<()> {
        if puts == 0 {
            return self.make_journal_room(Claim::Exchange);
        }
        self.keep_for_checkpoint(puts);
        let made = self.make_journal_room(Claim::Growth).and_then(|()| {
            self.keep_for_checkpoint(puts);
            self.admit(Claim::Growth)
        });
        made.inspect_err(|_| self.keep_for_checkpoint(0))
    }

    /// A checkpoint, if the journal has no room left for this claim. Returns with no room, too.
    pub(crate) fn make_journal_room(&self, claim: Claim) -> Result<()> {
        if self.has_journal_room(claim)? {
            return Ok(());
        }
        self.win_journal_room(claim)
    }

    /// A checkpoint. What it frees can be used again when no reader looks at it any more: if the journal has no room for this
    /// claim before, that is waited for, for a bounded time.
    fn win_journal_room(&self, claim: Claim) -> Result<()> {
        self.make_checkpoint_if_there_is_room()?;
        if !self.has_journal_room(claim)? {
            self.log.segments().reap_to_the_last();
        }
        Ok(())
    }

    fn has_journal_room(&self, claim: Claim) -> Result<bool> {
        match self.admit(claim) {
            Err(error) if error.kind() == Kind::Full => Ok(false),
            other => other.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests;
