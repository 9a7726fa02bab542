//! Replay: the journal after the checkpoint, and a scan of the allocation extents after that.
//!
//! | step | what |
//! |---|---|
//! | 1 | leaves and lists are those of the checkpoint; unlisted spans, and those of puts in progress, are free |
//! | 2 | replay the journal: of each object the change with the greatest sequence counts |
//! | 3 | scan the allocation extents that may hold unrecorded puts; each extent must verify as a whole |
//! | 4 | record in the journal what the scan found; where a record does not match the data, that part of the journal is unverified until the next checkpoint |
//! | 5 | remove extents in use from the free space; all others are free |
//!
//! An extent that the scan finds counts if its sequence is not below the low-water mark, or belongs to a put that was in progress at
//! the checkpoint, is greater than any recorded for the object, and is no part of a batch.
//!
//! After loss of power the journal may record a put whose data was lost: a record after the durable mark counts only if its extent
//! verifies; a batch, only if all of its extents do.
//!
//! An unreadable place does not end a scan: an unreadable unit is skipped, and a header with unreadable bytes counts, so that reading
//! the object is an error.
//!
//! A crash during recovery, any number of times, leads to the same result: steps 1 to 3 only read, and step 4 records what they found.

use std::collections::{HashMap, HashSet};

use crate::damage::{Affects, Damage};
use crate::error::{Error, Kind, Result};
use crate::log::AllocationClass;
use crate::object::Core;
use crate::object::checkpoint::root::Root;
use crate::object::id::ObjectId;
use crate::object::index::{EXTENT, Entry};
use crate::object::journal::record::{Record, SEQUENCES_END};
use crate::object::place::extent::{BATCHED, Header, PACKED, PIECE, UNIT};
use crate::object::place::limbo::FreedBy;
use crate::object::place::space::Unclaimed;
use crate::object::place::span::{AllocationExtent, Span};
use crate::object::read::window::Window;

/// Sequences skipped after a recovery: puts that left no trace may have had them.
const LEAP: u64 = 1 << 20;
/// Sequences that remain for the changes between two recoveries.
const SEQUENCES_KEPT: u64 = 1 << 60;

/// The state of a replay: what the journal records, and what the scan found.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// The latest change of objects with sequences above the low-water mark.
    latest: HashMap<ObjectId, u64>,
    /// Ranges removed, with their sequence.
    ranges: Vec<(u64, ObjectId, ObjectId)>,
    /// Allocation extents, oldest first.
    allocation_extents: Vec<AllocationExtent>,
    /// The low-water mark: every put below has ended and is recorded.
    low_water: u64,
    /// Sequences of puts in progress at the checkpoint, and the first one after it.
    in_progress: HashSet<u64>,
    first_after: u64,
    /// Objects that were changed, with their entries in the checkpoint.
    touched: HashMap<ObjectId, Option<Entry>>,
    /// Unlisted spans of the checkpoint.
    freed: Vec<Span>,
    /// Sequences of aborted puts.
    aborted: HashSet<u64>,
    /// One more than the latest sequence seen.
    next: u64,
    /// The store was not closed: some puts may have left no trace.
    found_open: bool,
    /// Puts that the scan found, to be recorded.
    untold: Vec<(ObjectId, u64, Entry)>,
    /// The journal records a put whose extent is not there.
    is_untrue: bool,
    /// Unverified batches with an extent that is not there.
    pending: Vec<Pending>,
    /// Units of allocation extents that cannot be read: offset on the data's device, bytes, and the object.
    unreadable: Vec<(u64, u64, Option<ObjectId>)>,
    /// Records replayed, and extents found by the scan.
    pub(crate) records: u64,
    pub(crate) found: u64,
}

/// An unverified batch that may have happened: its changes that no later change replaced, and whether each is there. A missing
/// one may have been replaced, and its space reused; a batch whose other extents are all there has happened.
type Pending = Vec<(Change, bool)>;

/// The object, the sequence, and the place.
type Change = (ObjectId, u64, Option<Entry>);

impl Replay {
    pub(crate) fn new(root: &Root, found_open: bool) -> Self {
        Self {
            found_open,
            allocation_extents: root.allocation_extents.clone(),
            in_progress: root.in_progress.iter().map(|put| put.sequence).collect(),
            first_after: root.sequence,
            freed: root
                .unlisted
                .iter()
                .copied()
                .chain(root.in_progress.iter().map(|put| put.span))
                .collect(),
            next: root.sequence,
            ..Self::default()
        }
    }

    /// Raises the next sequence to at least this one.
    pub(crate) fn at_least(&mut self, sequence: u64) {
        self.next = self.next.max(sequence);
    }

    /// The allocation extent that was opened last, if known.
    pub(crate) fn last_allocation_extent(&self) -> Option<&AllocationExtent> {
        self.allocation_extents.last()
    }

    /// Whether the journal records a put whose extent is not there.
    pub(crate) fn is_untrue(&self) -> bool {
        self.is_untrue || !self.pending.is_empty()
    }

    /// Damage: units that the scan could not read.
    pub(crate) fn take_damage(&mut self, core: &Core) -> Vec<Damage> {
        let unreadable = std::mem::take(&mut self.unreadable).into_iter();
        let damage = unreadable.map(|(offset, len, of)| Damage {
            path: core.data.path().to_path_buf(),
            offset,
            len,
            found: match of {
                Some(_) => "the device cannot be read".into(),
                None => "the device cannot be read: a put that was not synced may be lost".into(),
            },
            affects: of.map_or(Affects::Nothing, |id| Affects::Object(id.0)),
        });
        damage.collect()
    }

    /// Objects `first` to `last` were changed: earlier changes of them in unverified batches do not count any more.
    fn supersede(&mut self, sequence: u64, first: ObjectId, last: ObjectId) {
        for batch in &mut self.pending {
            batch.retain(|((id, of, _), _)| *of > sequence || !(first..=last).contains(id));
        }
    }

    /// A batch without a missing extent.
    fn take_whole(&mut self) -> Option<Pending> {
        let is_whole = |batch: &Pending| batch.iter().all(|(_, is_there)| *is_there);
        let at = self.pending.iter().position(is_whole)?;
        Some(self.pending.remove(at))
    }

    /// Whether a change with this sequence is later than every known change of the object.
    fn is_latest(&self, id: ObjectId, sequence: u64) -> bool {
        let within = |(of, first, last): &&(u64, ObjectId, ObjectId)| {
            (*first..=*last).contains(&id) && *of > sequence
        };
        self.latest.get(&id).is_none_or(|latest| *latest < sequence)
            && !self.ranges.iter().any(|range| within(&range))
    }

    fn raise_low_water(&mut self, low_water: u64) {
        self.low_water = self.low_water.max(low_water);
        let low_water = self.low_water;
        self.latest.retain(|_, sequence| *sequence >= low_water);
        self.ranges.retain(|(sequence, ..)| *sequence >= low_water);
        self.aborted.retain(|sequence| *sequence >= low_water);
        while self
            .allocation_extents
            .get(1)
            .is_some_and(|next| next.sequence <= low_water)
        {
            self.allocation_extents.remove(0);
        }
    }

    fn could_be(&self, header: &Header) -> bool {
        header.sequence >= self.low_water
            && (header.sequence >= self.first_after || self.in_progress.contains(&header.sequence))
            && header.flags & BATCHED == 0
            && !self.aborted.contains(&header.sequence)
            && self.is_latest(header.id, header.sequence)
    }
}

pub(crate) fn entry_at(unit: u64, len: u32) -> Entry {
    Entry {
        place: unit * (UNIT / PIECE),
        len,
        kind: EXTENT,
    }
}

impl Core {
    /// Replays one record of the journal; `doubted`: power was lost before it was known to be durable.
    pub(crate) fn replay(&self, replay: &mut Replay, record: Record, doubted: bool) -> Result<()> {
        replay.records += 1;
        match record {
            Record::Put(id, sequence, entry) | Record::Small(id, sequence, entry) => {
                self.replay_change(replay, (id, sequence, Some(entry)), doubted)
            }
            Record::Removed(id, sequence) => {
                self.replay_change(replay, (id, sequence, None), doubted)
            }
            Record::RangeRemoved(sequence, first, last) => {
                replay.at_least(sequence + 1);
                let mut gone = Vec::new();
                for object in self.entries(first..=last) {
                    let (id, _) = object?;
                    if replay.is_latest(id, sequence) {
                        gone.push(id);
                    }
                }
                for id in gone {
                    self.replay_set(replay, id, None)?;
                }
                replay.ranges.push((sequence, first, last));
                replay.supersede(sequence, first, last);
                self.replay_whole(replay)
            }
            Record::Batch(records) => self.replay_batch(replay, records, doubted),
            Record::Opened(allocation_extent) => {
                replay.at_least(allocation_extent.sequence);
                replay.allocation_extents.push(allocation_extent);
                Ok(())
            }
            Record::LowWater(low_water) => {
                replay.raise_low_water(low_water);
                Ok(())
            }
            Record::Aborted(sequence) => {
                replay.at_least(sequence + 1);
                replay.aborted.insert(sequence);
                Ok(())
            }
        }
    }

    fn replay_batch(&self, replay: &mut Replay, records: Vec<Record>, doubted: bool) -> Result<()> {
        if doubted {
            let mut batch: Pending = Vec::with_capacity(records.len());
            for record in &records {
                let (change, is_there) = match record {
                    Record::Put(id, sequence, entry) => {
                        let is_there = self.may_be_there(*id, *sequence, *entry)?;
                        ((*id, *sequence, Some(*entry)), is_there)
                    }
                    Record::Removed(id, sequence) => ((*id, *sequence, None), true),
                    _ => continue,
                };
                replay.at_least(change.1 + 1);
                if replay.is_latest(change.0, change.1) {
                    batch.push((change, is_there));
                }
            }
            replay.pending.push(batch);
            return self.replay_whole(replay);
        }
        records
            .into_iter()
            .try_for_each(|record| self.replay(replay, record, false))
    }

    /// Replays the batches without a missing extent.
    fn replay_whole(&self, replay: &mut Replay) -> Result<()> {
        while let Some(batch) = replay.take_whole() {
            for (change, _) in batch {
                self.replay_latest(replay, change)?;
            }
        }
        Ok(())
    }

    fn replay_change(&self, replay: &mut Replay, change: Change, doubted: bool) -> Result<()> {
        let (id, sequence, entry) = change;
        replay.at_least(sequence + 1);
        if !replay.is_latest(id, sequence) {
            return Ok(());
        }
        if doubted
            && let Some(entry) = entry
            && !self.may_be_there(id, sequence, entry)?
        {
            replay.is_untrue = true;
            return Ok(());
        }
        self.replay_latest(replay, change)?;
        self.replay_whole(replay)
    }

    /// Replays a change that no known one is later than.
    fn replay_latest(&self, replay: &mut Replay, (id, sequence, entry): Change) -> Result<()> {
        replay.latest.insert(id, sequence);
        self.replay_set(replay, id, entry)?;
        replay.supersede(sequence, id, id);
        Ok(())
    }

    fn replay_set(&self, replay: &mut Replay, id: ObjectId, entry: Option<Entry>) -> Result<()> {
        let old = self.index.set(id, entry)?;
        replay.touched.entry(id).or_insert(old);
        Ok(())
    }

    /// Whether the extent of an entry is whole, and of this put.
    pub(crate) fn is_there(
        &self,
        id: ObjectId,
        sequence: Option<u64>,
        entry: Entry,
    ) -> Result<bool> {
        if entry.kind != EXTENT || Self::span_of(entry).end() > self.allocator.lock().space.units()
        {
            return Ok(entry.kind != EXTENT);
        }
        let read = self.read_entry(id, entry, &(0..u64::MAX))?;
        Ok(read.is_ok_and(|(_, found)| sequence.is_none_or(|sequence| sequence == found)))
    }

    /// As `is_there`, but true for an extent that the device refuses to read: reading it is an error, never an older value.
    fn may_be_there(&self, id: ObjectId, sequence: u64, entry: Entry) -> Result<bool> {
        match self.is_there(id, Some(sequence), entry) {
            Err(error) if error.kind() == Kind::Io => Ok(true),
            other => other,
        }
    }

    /// Step 3, after the journal was replayed.
    pub(crate) fn scan_allocation_extents(&self, replay: &mut Replay) -> Result<()> {
        let mut found: Vec<(u64, ObjectId, Entry)> = Vec::new();
        let spans = replay
            .allocation_extents
            .iter()
            .flat_map(|allocation_extent| &allocation_extent.spans);
        let longest = spans.map(|span| u64::from(span.units)).max();
        let mut window = Window::new(self, longest.unwrap_or(1))?;
        for allocation_extent in std::mem::take(&mut replay.allocation_extents) {
            for span in &allocation_extent.spans {
                self.scan(replay, &allocation_extent, *span, &mut window, &mut found)?;
            }
        }
        found.sort_unstable_by_key(|(sequence, ..)| *sequence);
        for (sequence, id, entry) in found {
            if replay.is_latest(id, sequence) {
                self.replay_change(replay, (id, sequence, Some(entry)), false)?;
                replay.untold.push((id, sequence, entry));
                replay.found += 1;
            }
        }
        Ok(())
    }

    /// Step 5. What the journal and the scan found is durable before anything is put into this space: see `open_at`.
    pub(crate) fn free_the_rest(&self, replay: &mut Replay, unclaimed: &Unclaimed) -> Result<()> {
        let mut allocator = self.allocator.lock();
        for span in replay.freed.drain(..) {
            unclaimed.free(&mut allocator.space, span)?;
        }
        // An object that came and went since the checkpoint stands in an allocation extent, which its lists show as not free.
        for (id, before) in &replay.touched {
            if let Some(before) = before
                && self.index.get(*id)? != Some(*before)
                && let Some((span, _)) = allocator.left_by(*before, FreedBy::Sync)
            {
                unclaimed.free(&mut allocator.space, span)?;
            }
        }
        for id in replay.touched.keys() {
            if let Some(entry) = self.index.get(*id)?
                && entry.kind == EXTENT
            {
                unclaimed.claim(&mut allocator.space, Self::span_of(entry))?;
            }
        }
        let leapt = skip_sequences(replay.next)?;
        allocator.sequence = if replay.found_open {
            leapt
        } else {
            replay.next
        };
        Ok(())
    }

    fn scan(
        &self,
        replay: &mut Replay,
        allocation_extent: &AllocationExtent,
        span: Span,
        window: &mut Window<'_>,
        found: &mut Vec<(u64, ObjectId, Entry)>,
    ) -> Result<()> {
        let mut unit = span.unit;
        while unit < span.end() {
            let Some(bytes) = if_readable(window.bytes(unit, 1, span.end()))? else {
                let offset = self.data_offset + unit * UNIT;
                match replay.unreadable.last_mut() {
                    Some((begin, len, None)) if *begin + *len == offset => *len += UNIT,
                    _ => replay.unreadable.push((offset, UNIT, None)),
                }
                unit += 1;
                continue;
            };
            let header = Header::decode(bytes, self.salt, unit * (UNIT / PIECE));
            let of_allocation_extent = |header: &Header| {
                header.sequence >= allocation_extent.sequence && header.flags & PACKED == 0
            };
            let Some(header) = header.filter(of_allocation_extent) else {
                unit += 1;
                continue;
            };
            replay.at_least(header.sequence + 1);
            let end = unit + header.units();
            let entry = entry_at(unit, header.len);
            // A recorded extent is, or was, whole: bytes within it that look like a header are none.
            let has_ended = header.sequence < replay.low_water;
            if end > span.end() {
                unit += 1;
            } else if has_ended {
                unit = end;
            } else {
                let units = self.allocator.lock().space.units();
                let held = if end <= units {
                    if_readable(window.holds(unit, &header, span.end()))?
                } else {
                    Some(false)
                };
                if held.is_none() {
                    let offset = self.data_offset + unit * UNIT;
                    let len = header.units() * UNIT;
                    let of = replay.could_be(&header).then_some(header.id);
                    replay.unreadable.push((offset, len, of));
                }
                let is_there = held.unwrap_or(true);
                if is_there && replay.could_be(&header) {
                    found.push((header.sequence, header.id, entry));
                }
                unit = if is_there { end } else { unit + 1 };
            }
        }
        Ok(())
    }

    /// Step 4, once the journal can be appended to.
    pub(crate) fn append_found(&self, replay: &mut Replay) -> Result<()> {
        let inside = self.gate.read();
        for (id, sequence, entry) in replay.untold.drain(..) {
            // From the reserve: a store that cannot be opened could not be emptied either.
            self.append_record(
                &Record::Put(id, sequence, entry),
                AllocationClass::Checkpoint,
            )?;
        }
        drop(inside);
        Ok(())
    }
}

/// What was read, or `None` if the device refuses.
fn if_readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.kind() == Kind::Io => Ok(None),
        other => other.map(Some),
    }
}

/// The first sequence after a recovery that saw those below `next`. Changes of objects never exhaust them.
pub(crate) fn skip_sequences(next: u64) -> Result<u64> {
    let sequence = next.saturating_add(LEAP);
    if sequence >= SEQUENCES_END - SEQUENCES_KEPT {
        return Err(
            Error::new(Kind::Corrupted, "the sequences of changes are used up").found(
                sequence,
                format!("less than {}", SEQUENCES_END - SEQUENCES_KEPT),
            ),
        );
    }
    Ok(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::refusal;

    /// A put that began before the removal of a range may be recorded after it, and after the low-water mark.
    #[test]
    fn a_removed_range_replaces_earlier_puts_until_the_low_water_mark_passes_them() {
        let mut replay = Replay::default();
        replay.ranges.push((10, ObjectId(5), ObjectId(7)));
        for low_water in [0, 8, 9, 10] {
            replay.raise_low_water(low_water);
            assert!(
                !replay.is_latest(ObjectId(6), 9),
                "replaced before {low_water}"
            );
            assert!(replay.is_latest(ObjectId(6), 11));
            assert!(replay.is_latest(ObjectId(8), 9));
        }
        replay.raise_low_water(11);
        assert!(replay.ranges.is_empty());
    }

    #[test]
    fn a_store_that_has_seen_the_last_sequences_is_damaged() {
        for next in [
            SEQUENCES_END - SEQUENCES_KEPT - LEAP,
            SEQUENCES_END,
            u64::MAX,
        ] {
            refusal(skip_sequences(next), Kind::Corrupted);
        }
        let last = skip_sequences(SEQUENCES_END - SEQUENCES_KEPT - LEAP - 1);
        assert_eq!(last.unwrap(), SEQUENCES_END - SEQUENCES_KEPT - 1);
    }
}
