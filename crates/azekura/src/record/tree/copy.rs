//! A copy of the store, while it is being used, and what changed since an earlier one.
//!
//! | step | |
//! |---|---|
//! | 1 | a checkpoint, which states that it is copied, and its lock: no later one is made, so nothing that it names is written over |
//! | 2 | its segments, those of pages and the superblock are copied (`kernel::copy`), as a store whose journal is empty; then the name |
//!
//! Readers and writers continue; writers that come to the journal's bound wait. The copy gets its name when it is whole, and only if each
//! page in it verifies: damage does not go into a backup, nor over what is whole in one. Values that stand outside of pages are not looked at.
//!
//! What changed since the checkpoint n is the units that the new one, m, names in groups that changed after n, and all of the parts of
//! m (`kernel::apply` brings a copy forward with it). It suffices, since:
//!
//! 1. A unit that two checkpoints name, one next to the other, has the same bytes in both: what the durable one names is not written.
//! 2. A group changes at a checkpoint that names a unit of it which the one before did not (`space`). When units were handed out, and
//!    for what, does not count: a run that was taken before a checkpoint may be written and named after it.
//! 3. So in a group that did not change after n, m names what n names, and all between.
//! 4. That is of one history. Files that were equal, and changed apart, have the same numbers for other states, and the same salt: a copy
//!    with changes of another history would be a mixture that verifies. So a checkpoint also has a drawn number, and the store a list of
//!    those that were copied: one that is not in it is refused. So is a copy at another checkpoint than that since which changes are.
//! 5. A copy that was opened, and in which nothing changed, is at the same checkpoint still: a checkpoint of the same units has
//!    both numbers of the one before. Sequences of its journal are not used again.

use std::path::Path;
use std::sync::Arc;

use super::checkpoint::Checkpoint;
use super::layout::page_image::decode_head;
use super::layout::{CHUNK, Root, Super, UNIT};
use super::table::read_chunk;
use super::{Core, TreeDb};
use crate::error::{Error, Kind, Result};
use crate::io::file::{File, Files};
use crate::io::{Access, Directory, Storage, create_whole};
use crate::kernel::apply::Prepared;
use crate::kernel::changes::{CheckpointId, CheckpointNumber, Step};
use crate::kernel::checkpoint::read_root;
use crate::kernel::copy::Changed;
use crate::kernel::{self, Payload, SuperblockPair};
use crate::log::{Segment, Use};
use crate::record::gate;
use crate::record::tree::bitmap::{GroupBits, bit};

impl TreeDb {
    /// As [`copy_to`](crate::Persistent::copy_to), in any directory; the checkpoint that the copy is at.
    pub fn copy_in(
        &self,
        directory: &dyn Directory,
        name: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckpointId> {
        gate::outside_updates()?;
        create_whole(directory, name, |storage| {
            self.core.copy_onto(storage.as_ref(), progress)
        })
    }

    /// Writes what changed since an earlier copy to a new file, while the store is used; the checkpoint that the copy will be at when
    /// [`apply_changes`](Self::apply_changes) has brought it forward. `progress` gets (done, total) of bytes.
    ///
    /// `since`: what the earlier copy, or the changes that were applied to it last, are at ([`checkpoint_of`](Self::checkpoint_of)). The
    /// last 64 checkpoints that were copied are known. It reads, verifies and writes the pages of each segment in which any was written since,
    /// and the page table; the file appears when it is whole. `Invalid` if the store does not know the checkpoint, which may be one of another
    /// history of the same file, and inside the closure of an update; `Corrupted` if a page is damaged; `Full`, `Io`.
    pub fn copy_changes(
        &self,
        since: CheckpointId,
        target: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckpointId> {
        let (files, name) = Files::of(target.as_ref());
        self.copy_changes_in(since, &files, name, progress)
    }

    /// As [`copy_changes`](Self::copy_changes), in any directory.
    pub fn copy_changes_in(
        &self,
        since: CheckpointId,
        directory: &dyn Directory,
        name: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckpointId> {
        gate::outside_updates()?;
        create_whole(directory, name, |storage| {
            self.core
                .copy_changes_onto(since, storage.as_ref(), progress)
        })
    }

    /// Brings a copy forward to the checkpoint that the changes lead to, which is returned; nothing happens if it is there already.
    /// `progress` gets (done, total) of bytes.
    ///
    /// All of the changes are verified before anything is written. From then on, until it is complete, nothing opens the copy: after an
    /// error or a crash, the same call completes it. Errors: `Invalid` if the copy is not at the checkpoint since which the changes were
    /// made, was changed, or waits for other changes; `Mismatch`, `Corrupted` if the file of changes, or the copy, is none; `Locked` if
    /// the copy is open; `Full`, `Io`.
    pub fn apply_changes(
        copy: impl AsRef<Path>,
        changes: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckpointId> {
        let changes = File::open(changes.as_ref(), Access::Read)?;
        let copy = File::open(copy.as_ref(), Access::Write)?;
        Self::apply_changes_on(&copy, &changes, progress)
    }

    /// As [`apply_changes`](Self::apply_changes), on any storages.
    pub fn apply_changes_on(
        copy: &dyn Storage,
        changes: &dyn Storage,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckpointId> {
        let total = 2 * changes.size()?;
        let mut done = 0;
        let mut advance = |len: u64| {
            done += len;
            progress(done.min(total), total);
        };
        let prepared = Self::prepare_changes(copy, changes, &mut advance)?;
        let to = prepared.apply(&mut advance)?;
        progress(total, total);
        Ok(to)
    }

    /// Verifies changes, and that they fit a copy, which is not written yet.
    pub(crate) fn prepare_changes<'c>(
        copy: &'c dyn Storage,
        changes: &'c dyn Storage,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Prepared<'c, Super>> {
        let moment_of = |payload: &Super| moment_of(copy, payload);
        kernel::apply::prepare(copy, changes, &moment_of, progress)
    }

    /// The checkpoint that the file at `path` is at, a copy or a store; it is only read. `Mismatch`, `Corrupted` if it is no tree file.
    pub fn checkpoint_of(path: impl AsRef<Path>) -> Result<CheckpointId> {
        Self::checkpoint_on(&File::open(path.as_ref(), Access::Read)?)
    }

    /// As [`checkpoint_of`](Self::checkpoint_of), on any storage.
    pub fn checkpoint_on(storage: &dyn Storage) -> Result<CheckpointId> {
        let SuperblockPair { payload, .. } = SuperblockPair::<Super>::read(storage)?;
        Ok(CheckpointId {
            salt: payload.geometry.salt,
            moment: moment_of(storage, &payload)?,
        })
    }

    /// The checkpoint that was made last.
    pub(crate) fn last_checkpoint(&self) -> CheckpointId {
        self.core.checkpoint_id()
    }
}

/// The checkpoint that a superblock with this payload names.
fn moment_of(storage: &dyn Storage, payload: &Super) -> Result<CheckpointNumber> {
    let root = read_root(storage, payload, false, Root::decode)?;
    Ok(root.map_or_else(CheckpointNumber::default, |(root, _)| root.moment))
}

impl Core {
    pub(super) fn copy_to(&self, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let (files, name) = Files::of(target);
        create_whole(&files, name, |storage: &Arc<dyn Storage>| {
            self.copy_onto(storage.as_ref(), progress).map(drop)
        })
    }

    /// The last checkpoint.
    pub(super) fn checkpoint_id(&self) -> CheckpointId {
        CheckpointId {
            salt: self.log.geometry().salt,
            moment: *self.moment.lock(),
        }
    }

    /// Copies the store onto an empty storage.
    pub(super) fn copy_onto(
        &self,
        storage: &dyn Storage,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckpointId> {
        let _merged = self.merged()?;
        let mut state = self.checkpoint.lock();
        self.checkpoint_to_copy(&mut state)?;
        let superblock = &state.committed.superblock;
        let start = state.start();
        let mut segments = self.segments_besides_pages(&state);
        segments.extend(self.log.segments().in_use(Use::Pages));
        kernel::copy::copy_onto(&self.log, superblock, (start, &segments), storage, progress)?;
        self.verify_pages(storage, &|_| true)?;
        Ok(self.checkpoint_id())
    }

    /// The log's last segment, and those of parts.
    fn segments_besides_pages(&self, state: &Checkpoint) -> Vec<Segment> {
        let start = state.start();
        let all = self.log.segments();
        let mut segments: Vec<Segment> = all.in_use(Use::Log);
        segments.retain(|segment| segment.sequence == start.sequence());
        segments.extend(all.in_use(Use::Other));
        segments
    }

    /// Writes what changed since a copy to an empty storage.
    fn copy_changes_onto(
        &self,
        since: CheckpointId,
        storage: &dyn Storage,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckpointId> {
        let geometry = self.log.geometry();
        let _merged = self.merged()?;
        let mut state = self.checkpoint.lock();
        self.check_is_known(&state, since)?;
        self.checkpoint_to_copy(&mut state)?;
        let mut needed = self.segments_besides_pages(&state);
        let mut ranges = Vec::new();
        for part in &needed {
            // Where the copy had its journal there, the header goes.
            ranges.push((geometry.offset_of(part.index), UNIT));
        }
        ranges.retain(|(first, _)| *first != geometry.offset_of(state.start().segment()));
        let nodes = &self.tree.nodes;
        let chunks = nodes.table.extents();
        let parts = chunks.iter().chain(&state.bitmaps);
        let parts = parts
            .chain(&state.committed.root)
            .map(|part| (part.offset, part.len));
        ranges.extend(parts);
        for group in nodes.space.room().named() {
            needed.push(Segment::new(group.index, group.segments, 0));
            if group.changed > since.moment.number {
                let first = geometry.offset_of(group.index);
                add_ranges(&group, first, geometry.segment_size(), &mut ranges);
            }
        }
        let ranges = joined(ranges);
        let is_copied = |offset: u64| {
            let after = ranges.partition_point(|(from, _)| *from <= offset);
            let range = after.checked_sub(1).and_then(|at| ranges.get(at));
            range.is_some_and(|(from, len)| offset < from + len)
        };
        self.verify_pages(&**self.log.storage(), &is_copied)?;
        let superblock = &state.committed.superblock;
        let changed = Changed {
            step: Step {
                engine: Super::ENGINE,
                salt: geometry.salt,
                since: since.moment,
                to: state.moment,
            },
            end: state.start(),
            ranges: &ranges,
            needed: &needed,
        };
        kernel::copy::write_changes(&self.log, superblock, &changed, storage, progress)?;
        Ok(self.checkpoint_id())
    }

    /// Verifies the pages of the last checkpoint at the offsets of a storage that `is_copied`. `Corrupted` for the first that is damaged; `Io`.
    fn verify_pages(&self, storage: &dyn Storage, is_copied: &dyn Fn(u64) -> bool) -> Result<()> {
        let nodes = &self.tree.nodes;
        let identity = (self.log.geometry().salt, nodes.epoch);
        let mut image = vec![0; nodes.shape.bytes() as usize];
        for (number, extent) in nodes.table.extents().into_iter().enumerate() {
            if extent.len == 0 {
                continue;
            }
            let units_max = nodes.shape.units();
            let chunk = read_chunk(storage, identity.0, (number, extent), units_max)?;
            for (at, place) in chunk.into_iter().enumerate() {
                let page = (number * CHUNK + at) as u32;
                let Some(place) = place.filter(|place| !place.is_none()) else {
                    continue;
                };
                if !is_copied(place.offset()) {
                    continue;
                }
                let image = &mut image[..(u64::from(place.units()) * UNIT) as usize];
                storage.read_at(place.offset(), image)?;
                if decode_head(image, identity, page, place).is_err() {
                    let what = "a page is damaged, and no copy is made of it";
                    return Err(nodes
                        .damaged(page, Some(place), what)
                        .remedy("`azekura check` states what it costs; `azekura repair` writes the rest to a new file"));
                }
            }
        }
        Ok(())
    }

    /// `Invalid` if this is no checkpoint of this store's history of which a copy was made.
    fn check_is_known(&self, state: &Checkpoint, since: CheckpointId) -> Result<()> {
        let present = self.checkpoint_id();
        if since.salt != present.salt {
            return Err(Error::new(Kind::Invalid, "the copy is of another store")
                .at(self.log.storage().path())
                .found(since, format!("one of store {:08x}", present.salt))
                .remedy("name a copy of this store, or make a new copy of all"));
        }
        if state.copied.contains(&since.moment) {
            return Ok(());
        }
        let what = "the store does not know of a copy that was made at this checkpoint";
        Err(Error::new(Kind::Invalid, what)
            .at(self.log.storage().path())
            .found(since, format!("one before {present} that was copied"))
            .remedy("make a new copy of all: this one is of another history of the file, as after a restore, or was changed, or made by other means, or is more than 64 copies old"))
    }
}

/// Adds the units that a checkpoint names of a group, offset and length, and the first one of each segment: where the copy had its
/// journal there, the header goes.
fn add_ranges(group: &GroupBits, first: u64, segment_size: u64, ranges: &mut Vec<(u64, u64)>) {
    let per_segment = (segment_size / UNIT) as u32;
    for at in 0..group.segments * per_segment {
        if bit(&group.used, at) || at.is_multiple_of(per_segment) {
            ranges.push((first + u64::from(at) * UNIT, UNIT));
        }
    }
}

/// These ranges in order, those that touch as one.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (offset, len) in ranges {
        match joined.last_mut() {
            _ if len == 0 => {}
            Some((from, before)) if *from + *before >= offset => {
                *before = (*before).max(offset + len - *from);
            }
            _ => joined.push((offset, len)),
        }
    }
    joined
}
