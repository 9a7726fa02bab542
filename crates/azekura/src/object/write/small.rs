//! Small objects: first in the journal, then in packed extents.
//!
//! A put of an object below the store's threshold is one frame of the journal, with the value: no write of its own, and one flush for
//! all threads that wait for one. Before a checkpoint releases the journal, the objects still there move into *packed extents*,
//! extents of many small objects side by side, in the order of ids. Either way a get is one read.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 with the gate held exclusively: note the journal's end D, and the leaves with objects in the journal | the objects in the journal |
//! | 2 write packed extents | the same: nothing points to a packed extent, and a scan ignores it |
//! | 3 with the gate shared: point entries to the packed extent, where they did not change | the same |
//! | 4 the checkpoint, whose root lists the packed extents | the same, or the objects in packed extents |
//! | 5 release the journal before D | the objects in packed extents |
//!
//! The space of a packed extent is free when its last object is gone, and that is durable: an object that left by a move is durably
//! gone with the checkpoint, not before. A packed extent that lost more than half of its objects is emptied at the next checkpoint,
//! by moving the rest into new ones. Nothing else is ever moved.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::epoch;
use crate::error::{Kind, Result};
use crate::log::{Address, AllocationClass};
use crate::object::checkpoint::is_unreadable;
use crate::object::checkpoint::root::PackedExtent;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, JOURNAL, PACKED, Shot};
use crate::object::place::extent::{self, HEADER_LEN, Header, PIECE, Seal, UNIT};
use crate::object::place::limbo::FreedBy;
use crate::object::place::span::Span;
use crate::object::write::put::{Reserved, SPACE_TRIES};
use crate::object::{Core, Stored};
use crate::room;

/// Approximate bytes of a packed extent.
const PACK_SIZE: u64 = 256 << 10;
/// Bytes of a frame besides the value, at most.
const FRAME_REST: u64 = 64;
/// Most packed extents that a checkpoint empties.
const EMPTIED_MAX: usize = 64;

/// The packed extents by first unit, each with the latest of the commits that make the loss of its objects durable.
#[derive(Debug, Default)]
pub(crate) struct PackedExtents(BTreeMap<u64, (PackedExtent, FreedBy)>);

impl PackedExtents {
    pub(crate) fn of(packed_extents: &[PackedExtent]) -> Self {
        let mut all = Self::default();
        for packed in packed_extents {
            all.add(*packed);
        }
        all
    }

    fn add(&mut self, packed: PackedExtent) {
        self.0.insert(packed.span.unit, (packed, FreedBy::Sync));
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = PackedExtent> + '_ {
        self.0.values().map(|(packed, _)| *packed)
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes the object at `place`, which this commit makes durable; returns the span of the packed extent if that was its last,
    /// and the commit that makes it durable that all are gone.
    pub(crate) fn drop_one(&mut self, place: u64, freed_by: FreedBy) -> Option<(Span, FreedBy)> {
        let unit = place * PIECE / UNIT;
        let (_, (packed, latest)) = self.0.range_mut(..=unit).next_back()?;
        packed.live = packed.live.saturating_sub(1);
        *latest = freed_by.max(*latest);
        let (span, latest) = (packed.span, *latest);
        (packed.live == 0).then(|| {
            self.0.remove(&span.unit);
            (span, latest)
        })
    }
}

/// An object that moves into a packed extent: its present entry, and its bytes.
struct Moved {
    id: ObjectId,
    from: Entry,
    sequence: u64,
    value: Vec<u8>,
}

impl Core {
    /// Whether an object of this length goes to the journal first. A frame of more than half a segment takes whole segments: a few of
    /// these would leave a full journal no segment for removals.
    pub(crate) fn is_small(&self, len: usize) -> bool {
        let half = self.log.geometry().segment_size() / 2 - FRAME_REST;
        let small_max = self.options.small_max.min(extent::PACKED_LEN_MAX).min(half);
        small_max > 0 && len as u64 <= small_max
    }

    /// The caller holds the lock of the id.
    pub(crate) fn put_small(&self, id: ObjectId, value: &[u8]) -> Result<Stored> {
        self.log.healthy()?;
        self.index.prepare(id)?;
        self.keep_for_checkpoint(0);
        self.make_journal_space(AllocationClass::Growth)?;
        self.admit(AllocationClass::Growth)?;
        let _inside = self.gate.read();
        let sequence = self.allocator.lock().next();
        let entry = Entry {
            place: 0,
            len: value.len() as u32,
            kind: JOURNAL,
        };
        let entry = self.append_small(id, sequence, entry, value, AllocationClass::Growth)?;
        let old = self.index.set(id, Some(entry));
        let old = old.inspect_err(|_| self.log.poison())?;
        if let Some(old) = old {
            self.allocator.lock().leave(old, FreedBy::Sync);
        }
        Ok(Stored {
            sequence,
            replaced: old.is_some(),
        })
    }

    /// Bytes `range` of a small object in the journal, and its sequence; `None`: the segment was reused meanwhile.
    pub(crate) fn read_journal(
        &self,
        pin: &epoch::Pin,
        id: ObjectId,
        entry: Entry,
        range: &Range<u64>,
    ) -> Result<Option<(Vec<u8>, u64)>> {
        let frame = self.log.frame(pin, Address(entry.place))?;
        let Some((sequence, value)) = frame.value.split_first_chunk::<8>() else {
            return Ok(None);
        };
        if frame.key != id.to_bytes() || value.len() as u64 != u64::from(entry.len) {
            return Ok(None);
        }
        let wanted = value.get(range.start as usize..range.end as usize);
        let bytes = room::copy(wanted.unwrap_or_default())?;
        Ok(Some((bytes, u64::from_le_bytes(*sequence))))
    }

    /// Moves small objects out of the journal; returns the sequence of the segment from which it must be kept. If some stayed for
    /// want of space, also the units that were available.
    pub(crate) fn move_small(&self) -> Result<(u64, Option<u64>)> {
        let (end, shots) = {
            let _alone = self.gate.write();
            (self.log.end().sequence(), self.index.snapshot(false)?)
        };
        match self.move_all(&shots) {
            Ok(true) => Ok((end, None)),
            Ok(false) => Ok((self.oldest_small(&shots, end)?, None)),
            // There is no space for packed extents: the objects stay in the journal, nearer to its end.
            Err(error) if error.kind() == Kind::Full => {
                self.renew(&shots)?;
                let reach = self.allocator.lock().space.available();
                Ok((self.oldest_small(&shots, end)?, Some(reach)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether every leaf could be read.
    fn move_all(&self, shots: &[Shot]) -> Result<bool> {
        let mut moved = Vec::new();
        let mut size = 0;
        let all = self.each_to_move(shots, &mut |object: Moved| {
            size += extent::packed_size(object.value.len() as u64);
            room::more(&mut moved, 1)?;
            moved.push(object);
            if size >= PACK_SIZE {
                size = 0;
                self.pack_objects(&std::mem::take(&mut moved))?;
            }
            Ok(())
        })?;
        if !moved.is_empty() {
            self.pack_objects(&moved)?;
        }
        Ok(all)
    }

    /// The segment from which the journal must be kept, for the objects that stayed.
    fn oldest_small(&self, shots: &[Shot], end: u64) -> Result<u64> {
        let mut oldest = end;
        let all = self.each_in_journal(shots, &mut |_, from| {
            // Where that is unknown all is kept.
            let position = self.log.position(Address(from.place));
            oldest = oldest.min(position.map_or(0, |at| at.sequence));
            Ok(())
        })?;
        Ok(if all { oldest } else { 0 })
    }

    /// Visits the small objects that are still in the journal at the places of `shots`. Their frames stay while `visit` runs.
    /// Returns whether all leaves could be read; the objects of others are unknown.
    pub(crate) fn each_in_journal(
        &self,
        shots: &[Shot],
        visit: &mut dyn FnMut(ObjectId, Entry) -> Result<()>,
    ) -> Result<bool> {
        let mut all = true;
        for (at, shot) in shots.iter().enumerate() {
            if !shot.may_be_in_journal() {
                continue;
            }
            let end = shots.get(at + 1).map(|shot| shot.first);
            let leaf = match self.index.leaf_of(shot, end) {
                Err(error) if is_unreadable(&error) => {
                    tracing::warn!(%error, "a leaf of the index cannot be read");
                    all = false;
                    continue;
                }
                leaf => leaf?,
            };
            for (id, from) in leaf.entries().filter(|(_, entry)| entry.kind == JOURNAL) {
                let _pin = self.log.pin();
                // Changed since: the address may hold something else.
                if self.index.get(id)? == Some(from) {
                    visit(id, from)?;
                }
            }
        }
        Ok(all)
    }

    fn each_to_move(
        &self,
        shots: &[Shot],
        visit: &mut dyn FnMut(Moved) -> Result<()>,
    ) -> Result<bool> {
        let mut all = true;
        let all_leaves = self.each_in_journal(shots, &mut |id, from| {
            let range = 0..u64::from(from.len);
            match self.read_journal(&self.log.pin(), id, from, &range) {
                Ok(Some((value, sequence))) => visit(Moved {
                    id,
                    from,
                    sequence,
                    value,
                }),
                Ok(None) => Ok(()),
                // It stays where it is, and reading it is an error.
                Err(error) if error.kind() == Kind::Corrupted => {
                    tracing::warn!(%error, "a small object stays in the journal");
                    all = false;
                    Ok(())
                }
                Err(error) => Err(error),
            }
        })?;
        for packed in self.sparse_packed_extents() {
            self.each_live(packed, visit)?;
        }
        Ok(all && all_leaves)
    }

    fn sparse_packed_extents(&self) -> Vec<PackedExtent> {
        let allocator = self.allocator.lock();
        let sparse = allocator
            .packed_extents
            .all()
            .filter(|packed| packed.live * 2 < packed.count);
        sparse.take(EMPTIED_MAX).collect()
    }

    /// Visits the objects of a packed extent that are still there. One that does not verify stays where it is.
    fn each_live(
        &self,
        packed: PackedExtent,
        visit: &mut dyn FnMut(Moved) -> Result<()>,
    ) -> Result<()> {
        let mut buf = self
            .buffers
            .take((u64::from(packed.span.units) * UNIT) as usize)?;
        if let Err(error) = self.data.read_at(self.offset_of(packed.span), &mut buf) {
            // Emptying it is optional.
            tracing::warn!(%error, "a packed extent cannot be read");
            self.buffers.give(buf);
            return Ok(());
        }
        let mut show = || {
            let mut at = 0;
            while at + HEADER_LEN <= buf.len() {
                let place = (packed.span.unit * UNIT + at as u64) / PIECE;
                let Some(header) = Header::decode(&buf[at..], self.salt, place) else {
                    at += PIECE as usize;
                    continue;
                };
                let len = u64::from(header.len);
                let from = Entry {
                    place,
                    len: header.len,
                    kind: PACKED,
                };
                if self.index.get(header.id)? == Some(from) {
                    let seal = Seal::packed(self.salt, place, header.id);
                    let packed = &mut buf[at..];
                    if let Ok((bytes, sequence)) = seal.decode(packed, len, &(0..len)) {
                        let (id, value) = (header.id, room::copy(&packed[bytes])?);
                        visit(Moved {
                            id,
                            from,
                            sequence,
                            value,
                        })?;
                    }
                }
                at += extent::packed_size(len) as usize;
            }
            Ok(())
        };
        let shown = show();
        self.buffers.give(buf);
        shown
    }

    /// Writes objects into a packed extent, or, where no free run is that long, into several shorter ones. `Full` if there is no
    /// space for one of the objects.
    fn pack_objects(&self, objects: &[Moved]) -> Result<()> {
        // A stack of parts, the next one last.
        let mut parts = vec![objects];
        let mut syncs = 0;
        while let Some(part) = parts.pop() {
            let Err(missing) = self.pack_at_once(part)? else {
                continue;
            };
            if part.len() > 1 {
                let (low, high) = part.split_at(part.len() / 2);
                parts.extend([high, low]);
            } else if missing.by_sync && syncs < SPACE_TRIES {
                // A sync frees its limbo, unless other threads take that. The limbo of a checkpoint is free only after this one.
                self.sync()?;
                syncs += 1;
                parts.push(part);
            } else {
                return Err(self.full(
                    "a packed extent of small objects",
                    u64::from(units_of(part)),
                ));
            }
        }
        Ok(())
    }

    /// Writes a packed extent, and points its objects' entries there, if a free run is that long.
    fn pack_at_once(&self, objects: &[Moved]) -> Result<Reserved<()>> {
        let units = units_of(objects);
        // Before space is reserved, so that a refusal leaves nothing to free.
        let mut entries = room::vec(objects.len())?;
        let mut buf = self.buffers.take((u64::from(units) * UNIT) as usize)?;
        let (span, sequence) = match self.reserve_space(units, AllocationClass::Cleaning)? {
            Ok(found) => found,
            Err(missing) => {
                self.buffers.give(buf);
                return Ok(Err(missing));
            }
        };
        let mut at = 0;
        for object in objects {
            let place = (span.unit * UNIT + at) / PIECE;
            let end = at + extent::packed_size(object.value.len() as u64);
            let seal = Seal::packed(self.salt, place, object.id);
            let bytes = &mut buf[at as usize..end as usize];
            seal.encode(bytes, object.sequence, extent::PACKED, &object.value);
            entries.push(Entry {
                place,
                len: object.from.len,
                kind: PACKED,
            });
            at = end;
        }
        buf[at as usize..].fill(0);
        let mut result = self.data.write_at(self.offset_of(span), &buf);
        self.buffers.give(buf);
        let _inside = self.gate.read();
        let mut live = 0;
        if result.is_ok() {
            let count = objects.len() as u32;
            // Counts all as present, so that one that leaves meanwhile is subtracted.
            let packed = PackedExtent {
                span,
                count,
                live: count,
            };
            self.allocator.lock().packed_extents.add(packed);
            for (object, entry) in objects.iter().zip(&entries) {
                let exchanged = self.index.exchange(object.id, object.from, *entry);
                let is_packed = matches!(exchanged, Ok(true));
                live += u32::from(is_packed);
                // A move is durable with this checkpoint. Nothing durable pointed to the new place.
                let (left, freed_by) = if is_packed {
                    (object.from, FreedBy::Checkpoint)
                } else {
                    (*entry, FreedBy::Sync)
                };
                self.allocator.lock().leave(left, freed_by);
                // Objects for which there was no memory stay where they are.
                result = result.and(exchanged.map(drop));
            }
        } else {
            self.allocator.lock().space.retire(span, FreedBy::Sync);
        }
        self.allocator.lock().in_progress.remove(&sequence);
        tracing::trace!(live, "packed");
        result.map(Ok)
    }
}

/// Units of a packed extent with these objects.
fn units_of(objects: &[Moved]) -> u32 {
    let sizes = objects.iter().map(|object| object.value.len() as u64);
    let size: u64 = sizes.map(extent::packed_size).sum();
    size.div_ceil(UNIT) as u32
}

impl crate::object::Allocator {
    /// The object at `old` is gone, which this commit makes durable: retires its space.
    pub(crate) fn leave(&mut self, old: Entry, freed_by: FreedBy) {
        if let Some((span, freed_by)) = self.left_by(old, freed_by) {
            self.space.retire(span, freed_by);
        }
    }

    /// The span that is unused once the object at `old` is gone, and the commit that makes that durable.
    pub(crate) fn left_by(&mut self, old: Entry, freed_by: FreedBy) -> Option<(Span, FreedBy)> {
        match old.kind {
            JOURNAL => None,
            PACKED => self.packed_extents.drop_one(old.place, freed_by),
            _ => Some((Core::span_of(old), freed_by)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::CreateOptions;
    use crate::object::checkpoint::tests::in_memory;

    /// Free room is in pieces that are too short, and a snapshot pins what a sync would free: the object stays in the journal.
    #[test]
    fn a_pack_that_finds_no_room_syncs_once_and_leaves_its_objects_in_the_journal() {
        const SMALL: usize = 39_000;
        let options = CreateOptions::new()
            .capacity(10 << 20)
            .journal_size(8 << 20)
            .group_size(256 << 10)
            .small_max(SMALL as u64)
            .background(false);
        let (_, store) = in_memory(&options);
        // Five of 11 units in each group of 64: 9 are left, and a packed extent of one small object takes 10.
        let mut count = 0;
        let large = vec![7; SMALL + 2000];
        while store.put(ObjectId(count), &large).is_ok() {
            count += 1;
        }
        assert_eq!(count, 40);
        let small = ObjectId(count);
        let value = vec![8; SMALL];
        store.put(small, &value).unwrap();
        let snapshot = store.snapshot().unwrap();
        assert!(store.remove(ObjectId(0)).unwrap());
        let syncs = store.core.log.syncs();
        store.checkpoint().unwrap();
        assert!(store.core.log.syncs() <= syncs + 2);
        assert!(store.free() >= 10 * UNIT);
        assert_eq!(store.get(small).unwrap().as_deref(), Some(&value[..]));
        let place = |id| store.core.index.get(id).unwrap().unwrap().kind;
        assert_eq!(place(small), JOURNAL);
        drop(snapshot);
        store.checkpoint().unwrap();
        assert_eq!(place(small), PACKED);
        assert_eq!(store.get(small).unwrap().as_deref(), Some(&value[..]));
        store.check_room().unwrap();
    }

    /// One object was moved, which no journal states, and then the last one was removed: a sync does not free the packed extent.
    #[test]
    fn a_pack_is_free_by_the_latest_commit_that_one_of_its_objects_left_by() {
        let span = Span {
            unit: 10,
            units: 64,
        };
        for (first, last) in [
            (FreedBy::Checkpoint, FreedBy::Sync),
            (FreedBy::Sync, FreedBy::Checkpoint),
        ] {
            let mut packed_extents = PackedExtents::of(&[PackedExtent {
                span,
                count: 2,
                live: 2,
            }]);
            let place = span.unit * UNIT / PIECE;
            assert_eq!(packed_extents.drop_one(place, first), None);
            let left = packed_extents.drop_one(place + 8, last);
            assert_eq!(left, Some((span, FreedBy::Checkpoint)));
        }
    }
}
