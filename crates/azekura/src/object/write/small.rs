//! Small objects: first in the journal, then in packs.
//!
//! An object below the store's threshold is put with one frame of the journal, value and all: no write of its own, and one flush
//! for as many as ask together. Before a checkpoint lets the journal go, what is still there moves into *packs*, extents of
//! many small objects side by side, in the order of ids. Either way a get is one read.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 alone for a moment: the journal's end D, and the leaves with objects in the journal | the objects in the journal |
//! | 2 write packs | the same: nothing points to a pack, and a scan passes by |
//! | 3 with the gate shared: entries of a pack go over to it, where they are still the same | the same |
//! | 4 the checkpoint, which tells the packs | the same, or the objects in packs |
//! | 5 the journal before D is released | the objects in packs |
//!
//! A pack's room is free when its last object is gone, and that is durable: what left by a move is gone with the checkpoint, not
//! before. One that has lost more than half of its objects is emptied at the next
//! checkpoint, by putting the rest into new ones. That is the only time when anything moves, and only small objects do.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::epoch;
use crate::error::{Kind, Result};
use crate::log::{Address, Claim};
use crate::object::checkpoint::is_unreadable;
use crate::object::checkpoint::root::Pack;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, JOURNAL, PACKED, Shot};
use crate::object::place::extent::{self, HEADER_LEN, Header, PIECE, Seal, UNIT};
use crate::object::place::limbo::FreedBy;
use crate::object::place::span::Span;
use crate::object::write::put::{ROOM_TRIES, Taken};
use crate::object::{Core, Stored};
use crate::room;

/// Bytes of a pack, about.
const PACK_SIZE: u64 = 256 << 10;
/// Packs emptied at a checkpoint, at most.
const EMPTIED_MAX: usize = 64;

/// The packs, by their first unit, each with the latest commit that one of its objects left by.
#[derive(Debug, Default)]
pub(crate) struct Packs(BTreeMap<u64, (Pack, FreedBy)>);

impl Packs {
    pub(crate) fn of(packs: &[Pack]) -> Self {
        let mut all = Self::default();
        for pack in packs {
            all.add(*pack);
        }
        all
    }

    fn add(&mut self, pack: Pack) {
        self.0.insert(pack.span.unit, (pack, FreedBy::Sync));
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Pack> + '_ {
        self.0.values().map(|(pack, _)| *pack)
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The object at `place` is gone, which this commit makes durable; the room of the pack, if that was its last, and what makes
    /// it durable that all are gone.
    pub(crate) fn drop_one(&mut self, place: u64, freed_by: FreedBy) -> Option<(Span, FreedBy)> {
        let unit = place * PIECE / UNIT;
        let (_, (pack, latest)) = self.0.range_mut(..=unit).next_back()?;
        pack.live = pack.live.saturating_sub(1);
        *latest = freed_by.max(*latest);
        let (span, latest) = (pack.span, *latest);
        (pack.live == 0).then(|| {
            self.0.remove(&span.unit);
            (span, latest)
        })
    }
}

/// What is put into packs: where it is now, and its bytes.
struct Moved {
    id: ObjectId,
    from: Entry,
    sequence: u64,
    value: Vec<u8>,
}

impl Core {
    /// Whether an object of this length goes to the journal first.
    pub(crate) fn is_small(&self, len: usize) -> bool {
        let small_max = self.options.small_max.min(extent::PACKED_LEN_MAX);
        small_max > 0 && len as u64 <= small_max
    }

    /// In the id's turn.
    pub(crate) fn put_small(&self, id: ObjectId, value: &[u8]) -> Result<Stored> {
        self.log.healthy()?;
        self.index.prepare(id)?;
        self.keep_for_checkpoint(0);
        self.make_journal_room(Claim::Growth)?;
        self.admit(Claim::Growth)?;
        let _inside = self.gate.read();
        let sequence = self.room.lock().next();
        let entry = Entry {
            place: 0,
            len: value.len() as u32,
            kind: JOURNAL,
        };
        let entry = self.tell_small(id, sequence, entry, value, Claim::Growth)?;
        let old = self.index.set(id, Some(entry));
        let old = old.inspect_err(|_| self.log.poison())?;
        if let Some(old) = old {
            self.room.lock().leave(old, FreedBy::Sync);
        }
        Ok(Stored {
            sequence,
            replaced: old.is_some(),
        })
    }

    /// Bytes `range` of a small object in the journal, and its sequence; `None`: the frame is another's by now.
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

    /// Moves small objects out of the journal; the sequence of the segment from which it must be kept. If some stayed for want of room, also how many units
    /// were within reach.
    pub(crate) fn move_small(&self) -> Result<(u64, Option<u64>)> {
        let (end, shots) = {
            let _alone = self.gate.write();
            (self.log.end().sequence(), self.index.snapshot(false)?)
        };
        match self.move_all(&shots) {
            Ok(true) => Ok((end, None)),
            Ok(false) => Ok((self.oldest_small(&shots, end)?, None)),
            // There is no room for packs: what is in the journal stays there, nearer to its end.
            Err(error) if error.kind() == Kind::Full => {
                self.renew(&shots)?;
                let reach = self.room.lock().space.within_reach();
                Ok((self.oldest_small(&shots, end)?, Some(reach)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether all could be read.
    fn move_all(&self, shots: &[Shot]) -> Result<bool> {
        let mut moved = Vec::new();
        let mut size = 0;
        let all = self.each_to_move(shots, &mut |object: Moved| {
            size += extent::packed_size(object.value.len() as u64);
            room::more(&mut moved, 1)?;
            moved.push(object);
            if size >= PACK_SIZE {
                size = 0;
                self.pack(&std::mem::take(&mut moved))?;
            }
            Ok(())
        })?;
        if !moved.is_empty() {
            self.pack(&moved)?;
        }
        Ok(all)
    }

    /// Where the journal must be kept from for those that stayed.
    fn oldest_small(&self, shots: &[Shot], end: u64) -> Result<u64> {
        let mut oldest = end;
        let all = self.each_in_journal(shots, &mut |_, from| {
            // Where that cannot be told all is kept.
            let position = self.log.position(Address(from.place));
            oldest = oldest.min(position.map_or(0, |at| at.sequence));
            Ok(())
        })?;
        Ok(if all { oldest } else { 0 })
    }

    /// Shows the small objects that are in the journal still, where they were when `shots` were taken. While `visit` runs their
    /// frames stay. Whether all leaves could be read: of another, nothing is known.
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
                // Changed since: the address may be another's.
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
                // It stays where it is: whoever reads it is told.
                Err(error) if error.kind() == Kind::Corrupted => {
                    tracing::warn!(%error, "a small object stays in the journal");
                    all = false;
                    Ok(())
                }
                Err(error) => Err(error),
            }
        })?;
        for pack in self.sparse_packs() {
            self.each_live(pack, visit)?;
        }
        Ok(all && all_leaves)
    }

    fn sparse_packs(&self) -> Vec<Pack> {
        let room = self.room.lock();
        let sparse = room.packs.all().filter(|pack| pack.live * 2 < pack.count);
        sparse.take(EMPTIED_MAX).collect()
    }

    /// Shows the objects of a pack that are there still. One that does not verify stays where it is.
    fn each_live(&self, pack: Pack, visit: &mut dyn FnMut(Moved) -> Result<()>) -> Result<()> {
        let mut buf = self
            .buffers
            .take((u64::from(pack.span.units) * UNIT) as usize)?;
        if let Err(error) = self.data.read_at(self.offset_of(pack.span), &mut buf) {
            // It need not be emptied.
            tracing::warn!(%error, "a pack cannot be read");
            self.buffers.give(buf);
            return Ok(());
        }
        let mut show = || {
            let mut at = 0;
            while at + HEADER_LEN <= buf.len() {
                let place = (pack.span.unit * UNIT + at as u64) / PIECE;
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

    /// Writes objects into a pack, or, where no free run is that long, into several shorter ones. `Full` if one of the objects
    /// finds no room.
    fn pack(&self, objects: &[Moved]) -> Result<()> {
        // The part that is next stands last.
        let mut parts = vec![objects];
        let mut syncs = 0;
        while let Some(part) = parts.pop() {
            let Err(lack) = self.pack_at_once(part)? else {
                continue;
            };
            if part.len() > 1 {
                let (low, high) = part.split_at(part.len() / 2);
                parts.extend([high, low]);
            } else if lack.by_sync && syncs < ROOM_TRIES {
                // What a sync frees is free after one, unless others take it. What a checkpoint frees is free after this one.
                self.sync()?;
                syncs += 1;
                parts.push(part);
            } else {
                return Err(self.full("a pack of small objects", u64::from(units_of(part))));
            }
        }
        Ok(())
    }

    /// Writes a pack, and has its objects' entries point there, if a free run is that long.
    fn pack_at_once(&self, objects: &[Moved]) -> Result<Taken<()>> {
        let units = units_of(objects);
        // Before there is room that would have to be given back.
        let mut entries = room::vec(objects.len())?;
        let mut buf = self.buffers.take((u64::from(units) * UNIT) as usize)?;
        let (span, sequence) = match self.take_room(units, Claim::Cleaning)? {
            Ok(found) => found,
            Err(lack) => {
                self.buffers.give(buf);
                return Ok(Err(lack));
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
            // As if all were there, so that one that goes meanwhile is counted.
            let pack = Pack {
                span,
                count,
                live: count,
            };
            self.room.lock().packs.add(pack);
            for (object, entry) in objects.iter().zip(&entries) {
                let exchanged = self.index.exchange(object.id, object.from, *entry);
                let is_packed = matches!(exchanged, Ok(true));
                live += u32::from(is_packed);
                // A move is durable with this checkpoint. Nothing durable has pointed to the new place.
                let (left, freed_by) = if is_packed {
                    (object.from, FreedBy::Checkpoint)
                } else {
                    (*entry, FreedBy::Sync)
                };
                self.room.lock().leave(left, freed_by);
                // Those that memory was refused for stay where they are.
                result = result.and(exchanged.map(drop));
            }
        } else {
            self.room.lock().space.retire(span, FreedBy::Sync);
        }
        self.room.lock().under_way.remove(&sequence);
        tracing::trace!(live, "packed");
        result.map(Ok)
    }
}

/// Units of a pack of these objects.
fn units_of(objects: &[Moved]) -> u32 {
    let sizes = objects.iter().map(|object| object.value.len() as u64);
    let size: u64 = sizes.map(extent::packed_size).sum();
    size.div_ceil(UNIT) as u32
}

impl crate::object::Room {
    /// The object that was at `old` is there no more, which this commit makes durable.
    pub(crate) fn leave(&mut self, old: Entry, freed_by: FreedBy) {
        if let Some((span, freed_by)) = self.left_by(old, freed_by) {
            self.space.retire(span, freed_by);
        }
    }

    /// The room that nothing needs when the object that was at `old` is gone, and which commit makes that durable.
    pub(crate) fn left_by(&mut self, old: Entry, freed_by: FreedBy) -> Option<(Span, FreedBy)> {
        match old.kind {
            JOURNAL => None,
            PACKED => self.packs.drop_one(old.place, freed_by),
            _ => Some((Core::span_of(old), freed_by)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Storage as _;
    use crate::io::memory::Memory;
    use crate::object::{Options, Store};

    /// Free room is in pieces that are too short, and a snapshot pins what a sync would free: the object stays in the journal.
    #[test]
    fn a_pack_that_finds_no_room_syncs_once_and_leaves_its_objects_in_the_journal() {
        const SMALL: usize = 39_000;
        let options = Options {
            capacity: 3 << 20,
            journal_size: Some(1 << 20),
            group_size: Some(256 << 10),
            small_max: SMALL as u64,
            background: false,
            ..Options::default()
        };
        let memory = Memory::new(8 << 20).unwrap();
        memory.resize(options.capacity).unwrap();
        let store = Store::create_on(memory, None, &options, &mut |_, _| ()).unwrap();
        // Five of 11 units in each group of 64: 9 are left, and a pack of one small object takes 10.
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
        let syncs = store.core.commit.count();
        store.checkpoint().unwrap();
        assert!(store.core.commit.count() <= syncs + 2);
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

    /// One object was moved, which no journal states, and then the last one was removed: a sync does not free the pack.
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
            let mut packs = Packs::of(&[Pack {
                span,
                count: 2,
                live: 2,
            }]);
            let place = span.unit * UNIT / PIECE;
            assert_eq!(packs.drop_one(place, first), None);
            let left = packs.drop_one(place + 8, last);
            assert_eq!(left, Some((span, FreedBy::Checkpoint)));
        }
    }
}
