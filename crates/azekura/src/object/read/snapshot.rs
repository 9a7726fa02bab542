//! A snapshot: all objects as of one moment, to be read while the store is changed.
//!
//! | step | |
//! |---|---|
//! | 1 | load the leaves of the index that are not loaded, so that the moment needs no read |
//! | 2 | the moment, with the gate held exclusively: share the leaves, and pin what enters limbo from then on |
//! | 3 | if the journal holds much then: undo, make a checkpoint, which moves it into packed extents, and do 2 again |
//! | 4 | copy the objects in the journal, before a checkpoint releases its segments |
//!
//! 1. Nothing that a snapshot may read is overwritten: an extent or a packed extent that becomes unused enters limbo, and stays there.
//!    A leaf is copied before it changes (`index`).
//! 2. A change is in a snapshot as a whole or not at all, a batch and a removed range as well: each ends with the gate shared.
//! 3. Other threads wait for step 2 alone, which does no access.
//!
//! | cost | |
//! |---|---|
//! | of taking one | no access, except for leaves that are not loaded; a checkpoint, if more than 4 MiB of small objects are in the journal |
//! | of a get | one read, as of the store; none for what was in the journal |
//! | memory | 25 bytes for each object, once its leaf was changed; what was in the journal: 4 MiB, and what was put during the checkpoint. A full store has no space for packed extents: then all small objects of the journal |
//! | space | what becomes unused while it lives is free after the first sync after its end; a store that is nearly full may be full meanwhile |
//!
//! That forward writes give snapshots for free is the idea of file systems that never write in place.

use std::ops::{Range, RangeBounds, RangeInclusive};
use std::sync::Arc;

use crate::error::{Kind, Result};
use crate::object::id::{ObjectId, ids_of};
use crate::object::index::{Entry, JOURNAL, Leaf, Shot};
use crate::object::place::extent::Fault;
use crate::object::read::get::Read;
use crate::object::{Core, Listed, Store, Usage, Value};
use crate::room;

/// Most bytes of memory for objects in the journal; with more, a checkpoint comes first.
const IN_JOURNAL_MAX: u64 = 4 << 20;
/// Most checkpoints for that: a thread may put small objects faster than they are packed.
const CHECKPOINTS_MAX: usize = 2;

/// All objects of a [`Store`] as at one moment. Threads share it; it may outlive the store's handle.
///
/// While it lives, space that becomes unused after its moment is not freed (`Full` may come earlier): drop it when it is not
/// needed. As long as it lives the file or device is open: opening it again is `Locked`, even after the store was closed.
///
/// ```
/// # use azekura::object::{CreateOptions, ObjectId, Store};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = Store::create(folder.path().join("store.azo"), &CreateOptions::default())?;
/// store.put(ObjectId(1), b"one")?;
/// let snapshot = store.snapshot()?;
/// store.put(ObjectId(1), b"other")?;
/// for object in snapshot.values(..) {
///     let (id, value) = object?;
///     assert!((id, &value[..]) == (ObjectId(1), b"one"));
/// }
/// # azekura::Result::Ok(())
/// ```
pub struct Snapshot {
    core: Arc<Core>,
    /// Its pin in limbo.
    pin: u64,
    /// The leaves with their first ids, in order.
    leaves: Vec<(ObjectId, Arc<Leaf>)>,
    /// The objects that were in the journal, in order. One that did not verify is missing.
    small: Vec<Small>,
    count: u64,
}

/// An object that was in the journal.
struct Small {
    id: ObjectId,
    value: Value,
    sequence: u64,
}

impl Store {
    /// All objects as of one moment within the call. Usually no access; the module `snapshot` has its costs.
    /// `Full` if there is no memory; `Corrupted` if a part of the index does not verify, or if any object is in doubt
    /// ([`is_doubtful`](Self::is_doubtful)): so each answer of a snapshot is certain.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(&self.core)
    }
}

impl Snapshot {
    fn take(core: &Arc<Core>) -> Result<Self> {
        core.log.healthy()?;
        core.refuse_doubtful_range(&..)?;
        for _ in 0..CHECKPOINTS_MAX {
            if let Some(snapshot) = Self::at_once(core, IN_JOURNAL_MAX)? {
                return Ok(snapshot);
            }
            match core.make_checkpoint() {
                // There is no space to move more out of the journal.
                Err(error) if error.kind() == Kind::Full => break,
                made => made?,
            }
        }
        let snapshot = Self::at_once(core, u64::MAX)?;
        Ok(snapshot.unwrap_or_else(|| unreachable!("any memory is allowed")))
    }

    /// A snapshot of this moment; `None`: what is in the journal takes more than `memory_max` bytes.
    fn at_once(core: &Arc<Core>, memory_max: u64) -> Result<Option<Self>> {
        core.bring_leaves_in()?;
        // No checkpoint may release segments or images before all is copied.
        let _segments = core.checkpoint.lock();
        let alone = core.gate.write();
        let shots = core.index.snapshot(false)?;
        let mut snapshot = Self {
            core: Arc::clone(core),
            pin: core.allocator.lock().space.pin(),
            leaves: Vec::new(),
            small: Vec::new(),
            count: 0,
        };
        drop(alone);
        let in_journal = snapshot.share(&shots)?;
        let memory = |(_, entry): &(ObjectId, Entry)| u64::from(entry.len);
        let taken = in_journal.len() * size_of::<Small>();
        if taken as u64 + in_journal.iter().map(memory).sum::<u64>() > memory_max {
            return Ok(None);
        }
        snapshot.copy_small(&in_journal)?;
        Ok(Some(snapshot))
    }

    /// Takes the leaves; returns their objects in the journal.
    fn share(&mut self, shots: &[Shot]) -> Result<Vec<(ObjectId, Entry)>> {
        self.leaves = room::vec(shots.len())?;
        let mut in_journal = Vec::new();
        for (at, shot) in shots.iter().enumerate() {
            let end = shots.get(at + 1).map(|shot| shot.first);
            let leaf = self.core.index.leaf_of(shot, end)?;
            self.count += leaf.len() as u64;
            if shot.may_be_in_journal() {
                for object in leaf.entries().filter(|(_, entry)| entry.kind == JOURNAL) {
                    room::more(&mut in_journal, 1)?;
                    in_journal.push(object);
                }
            }
            self.leaves.push((shot.first, leaf));
        }
        Ok(in_journal)
    }

    fn copy_small(&mut self, in_journal: &[(ObjectId, Entry)]) -> Result<()> {
        self.small = room::vec(in_journal.len())?;
        for &(id, entry) in in_journal {
            match self.core.read_entry(id, entry, &(0..u64::MAX)) {
                Ok(Ok((value, sequence))) => self.small.push(Small {
                    id,
                    value,
                    sequence,
                }),
                // Reading it is an error.
                Ok(Err(_)) => {}
                Err(error) if error.kind() == Kind::Corrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How many objects there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The value of object `id`; `None`: there is none. One read of the device. `Corrupted` if it does not verify, with
    /// the device, the offset and the id.
    pub fn get(&self, id: ObjectId) -> Result<Option<Value>> {
        self.get_range(id, 0..u64::MAX)
    }

    /// The value of object `id` and its sequence, as [`get`](Self::get).
    pub fn get_with_sequence(&self, id: ObjectId) -> Result<Option<(Value, u64)>> {
        self.found(id, &(0..u64::MAX))
    }

    /// The bytes of object `id` that lie in `range`: fewer where it ends earlier, none after its end. One read of the
    /// chunks of 64 KiB that hold them, which are verified.
    pub fn get_range(&self, id: ObjectId, range: Range<u64>) -> Result<Option<Value>> {
        Ok(self.found(id, &range)?.map(|(bytes, _)| bytes))
    }

    /// The length of object `id` in bytes; `None`: there is none. No access.
    pub fn head(&self, id: ObjectId) -> Option<u64> {
        self.entry(id).map(|entry| u64::from(entry.len))
    }

    /// The sequence of object `id`; `None`: there is none. One read of its first chunk.
    pub fn sequence(&self, id: ObjectId) -> Result<Option<u64>> {
        Ok(self.found(id, &(0..0))?.map(|(_, sequence)| sequence))
    }

    /// The objects of a range of ids, in the order of ids; `..` is all of them. No access, and no errors.
    pub fn list(&self, range: impl RangeBounds<ObjectId>) -> impl Iterator<Item = Result<Listed>> {
        let entries = self.entries(ids_of(&range));
        entries.map(|(id, entry)| Ok(Listed::of(id, entry)))
    }

    /// The objects of a range of ids with their values, in the order of ids. One read for each as it comes, as
    /// [`get`](Self::get); one that does not verify is an error, and the next one comes after it.
    pub fn values(
        &self,
        range: impl RangeBounds<ObjectId>,
    ) -> impl Iterator<Item = Result<(ObjectId, Value)>> {
        self.entries(ids_of(&range)).map(|(id, entry)| {
            let (value, _) = self.read(id, entry, &(0..u64::MAX))?;
            Ok((id, value))
        })
    }

    /// Totals of the objects of a range of ids. No access.
    pub fn usage(&self, range: impl RangeBounds<ObjectId>) -> Usage {
        let entries = self.entries(ids_of(&range));
        entries.map(|(id, entry)| Listed::of(id, entry)).collect()
    }

    /// Visits all objects with their values, a leaf at a time, and within a leaf by place, so that a disk's arm moves forward.
    pub(crate) fn each_by_place(
        &self,
        visit: &mut dyn FnMut(ObjectId, &Value) -> Result<()>,
    ) -> Result<()> {
        let mut entries = Vec::new();
        for (_, leaf) in &self.leaves {
            entries.clear();
            room::hold(&mut entries, leaf.len())?;
            entries.extend(leaf.entries());
            entries.sort_unstable_by_key(|(_, entry)| (entry.kind == JOURNAL, entry.place));
            for &(id, entry) in &entries {
                let (value, _) = self.read(id, entry, &(0..u64::MAX))?;
                visit(id, &value)?;
            }
        }
        Ok(())
    }

    /// The leaves from that of `first` on.
    fn leaves_from(&self, first: ObjectId) -> &[(ObjectId, Arc<Leaf>)] {
        let next = self.leaves.partition_point(|(from, _)| *from <= first);
        self.leaves
            .get(next.saturating_sub(1)..)
            .unwrap_or_default()
    }

    fn entry(&self, id: ObjectId) -> Option<Entry> {
        let (_, leaf) = self.leaves_from(id).first()?;
        leaf.get(id)
    }

    fn entries(
        &self,
        ids: Option<RangeInclusive<ObjectId>>,
    ) -> impl Iterator<Item = (ObjectId, Entry)> {
        ids.into_iter().flat_map(|ids| {
            let (first, last) = ids.into_inner();
            let leaves = self.leaves_from(first).iter();
            leaves
                .flat_map(move |(_, leaf)| leaf.entries_from(first))
                .take_while(move |(id, _)| *id <= last)
        })
    }

    fn found(&self, id: ObjectId, range: &Range<u64>) -> Result<Option<Read>> {
        let entry = self.entry(id);
        entry.map(|of| self.read(id, of, range)).transpose()
    }

    fn read(&self, id: ObjectId, entry: Entry, range: &Range<u64>) -> Result<Read> {
        if entry.kind != JOURNAL {
            let read = self.core.read_entry(id, entry, range)?;
            return read.map_err(|fault| self.core.damaged(id, entry, fault));
        }
        let Ok(at) = self.small.binary_search_by_key(&id, |small| small.id) else {
            return Err(self.core.damaged(id, entry, Fault::Header));
        };
        let small = &self.small[at];
        let to = small.value.len().min(range.end as usize);
        let from = to.min(range.start as usize);
        Ok((room::copy(&small.value[from..to])?.into(), small.sequence))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("path", &self.core.data.path())
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.core.allocator.lock().space.unpin(self.pin);
    }
}

impl Core {
    /// Loads all leaves.
    fn bring_leaves_in(&self) -> Result<()> {
        let mut next = Some(ObjectId(0));
        while let Some(first) = next {
            self.index.prepare(first)?;
            next = self.index.after(first);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
