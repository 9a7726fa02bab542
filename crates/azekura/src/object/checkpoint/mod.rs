//! The checkpoint: the changes of the index and of the free space, written so that replay can begin later.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 0 small objects move from the journal into packed extents (`write::small`) | the old checkpoint |
//! | 1 with the gate held exclusively: append deferred records, share the leaves, copy the changed lists, note the journal's end | the old checkpoint |
//! | 2 write images of what changed, then the root, to segments of their own | the old one |
//! | 3 sync: the data, then journal, images and root | the old one |
//! | 4 write the superblock over its older slot, then over the other, durably: replay begins at the noted end | the old one or the new |
//! | 5 release the journal before that end, and images that only the old one needed | the new one |
//!
//! All of it is as of one moment, since leaves are shared and copied before they change. Images stand in runs of segments; a run with
//! few needed images is evacuated, so that it becomes free.
//!
//! When a checkpoint is made is decided elsewhere (`worker`, `write::put`).

pub(crate) mod background;
pub(crate) mod images;
pub(crate) mod label;
pub(crate) mod renew;
pub(crate) mod root;
pub(crate) mod superblock;

use crate::error::{Error, Kind, Result};
use crate::explore::RwLockWriteGuard;
use crate::format::checksum::crc;
use crate::kernel::{Committed, NextCheckpoint, SuperblockPair};
use crate::log::manifest::{Extent, Needed, read_extent_corrected};
use crate::log::parts;
use crate::log::root::units as root_units;
use crate::log::segment::{left_by_growth, whole_step};
use crate::log::{AllocationClass, Geometry, Reserve, Segment, Use};
use crate::object::Core;
use crate::object::checkpoint::root::{LEAF_SEED, LIST_SEED, Root};
use crate::object::checkpoint::superblock::Super;
use crate::object::index::{ENTRY_SIZE, Image, JOURNAL, Shot};
use crate::object::place::limbo::{self, FreedBy};
use crate::object::place::list::{encode_runs, list_size};
use crate::object::place::space::{GroupState, List, SpaceCounts};

/// The last checkpoint.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// What the kernel keeps of it.
    pub(super) committed: Committed<Super>,
    /// Whether this process made it: an older one may hold damage that was not read yet.
    pub(super) is_own: bool,
    /// Its images of leaves and lists, in segments of their own.
    pub(super) images: Vec<Extent>,
    /// If small objects stayed in the journal for want of space: the units that were available then.
    pub(super) reach: Option<u64>,
}

impl Checkpoint {
    /// The one that a superblock and its root state; of a store without one, nothing.
    pub(super) fn found(superblock: SuperblockPair<Super>, root: Option<&Root>) -> Self {
        let pieces = root.map_or_else(Vec::new, |root| root.pieces.clone());
        Self {
            committed: Committed::found(superblock, pieces),
            is_own: false,
            images: root.map_or_else(Vec::new, |root| root.images().collect()),
            reach: None,
        }
    }

    /// What its superblock states.
    pub(super) fn last(&self) -> &Super {
        &self.committed.superblock.payload
    }
}

/// Sequence of a store's first superblock. Creation writes it and the next one, since every change of a superblock writes both slots.
pub(super) const FIRST_SUPERBLOCK: u64 = 1;
/// Most spans in limbo that a root lists; with more, a checkpoint syncs first.
const LIMBO_MAX: usize = 32;
/// Most syncs for that: other threads continue to remove meanwhile.
const SYNCS_MAX: u32 = 4;
/// Most bytes that a root takes for a leaf or a group.
const PART_LEN: u64 = 48;
/// Most bytes that it takes for a span, a packed extent, or a put in progress.
const SPAN_LEN: u64 = 20;
/// A leaf's image takes at most this part of a segment, so that little is wasted at a segment's end.
const LEAF_PART: u64 = 8;

/// Counts from which the size of a checkpoint follows: the arithmetic of the journal's reserve.
struct MetadataSize {
    count: u64,
    leaves: u64,
    /// Entries of a leaf, at most.
    leaf_len: u64,
    packed_extents: u64,
    in_progress: u64,
    room: SpaceCounts,
}

impl MetadataSize {
    /// Of a store of one object.
    fn of_few(groups: u64) -> Self {
        Self {
            count: 1,
            leaves: 1,
            leaf_len: 1,
            packed_extents: 0,
            in_progress: 1,
            room: SpaceCounts {
                groups,
                ..SpaceCounts::default()
            },
        }
    }

    /// Most segments that a checkpoint of it needs. A removal never raises it: a run, or a span in limbo, takes less than an object.
    fn need(&self, geometry: Geometry) -> u32 {
        let size = geometry.segment_size();
        let units = |len: u64| len.div_ceil(size) as u32;
        // With more in limbo a checkpoint syncs first: then they are in the lists, unless a pin keeps them.
        let (limbo, freed) = if self.room.is_pinned {
            (self.room.limbo, 0)
        } else {
            (LIMBO_MAX as u64, self.room.limbo)
        };
        let parts = (self.leaves + self.leaves / 8 + self.room.groups + 64) * PART_LEN;
        let spans = limbo + self.room.spans + self.packed_extents + self.in_progress;
        let root = root_units(geometry, parts + spans * SPAN_LEN);
        // A part does not cross the end of a run, so the rest of a run is shorter than the next part.
        let leaf = (self.leaf_len * ENTRY_SIZE as u64 + 8).min(size / 2);
        let leaves = self.count * ENTRY_SIZE as u64 + self.leaves * 8;
        let ends = leaves * leaf / (size - leaf);
        let lists = 2 * (self.room.lists + freed * list_size(1, u32::MAX) as u64);
        // Deferred records take the rest of a segment and at most one more.
        units(leaves + ends + lists) + root + 3
    }
}

/// Most bytes of a leaf's image in a journal with such segments.
pub(super) fn leaf_image_max(geometry: Geometry) -> u64 {
    geometry.segment_size() / LEAF_PART
}

/// Segments of the smallest journal.
pub(super) const LEAST: u32 = 32;
/// Segments besides the reserve and a root that a store of a few objects needs.
const LIVING: u32 = 6;

/// Bytes of the smallest journal with which a store of `groups` groups takes its first objects, of segments of this size.
pub(super) fn least_journal(geometry: Geometry, groups: u64) -> u64 {
    let units = MetadataSize::of_few(groups).need(geometry);
    let root = (groups * PART_LEN).div_ceil(geometry.segment_size()) as u32;
    let least = |limit| left_by_growth(units, limit) + root + LIVING;
    geometry.offset_of(least(least(0)).max(LEAST))
}

/// Whether something on storage is damaged, or the device refuses to read it.
pub(super) fn is_unreadable(error: &Error) -> bool {
    [Kind::Corrupted, Kind::Io].contains(&error.kind())
}

/// The seed of a leaf's image.
pub(super) fn leaf_seed(salt: u32, first: crate::object::ObjectId) -> u32 {
    crc(salt ^ LEAF_SEED, &first.to_bytes())
}

/// The seed of a list's image.
pub(super) fn list_seed(salt: u32, group: u32) -> u32 {
    crc(salt ^ LIST_SEED, &group.to_le_bytes())
}

/// The state of the store at the moment of a checkpoint.
struct Moment {
    start: crate::log::End,
    shots: Vec<Shot>,
    groups: Vec<GroupState>,
    lists: Vec<List>,
    root: Root,
    /// Of limbo.
    limbo: limbo::Moment,
}

impl Core {
    /// See the module's text. Does nothing if nothing was changed since the last one.
    pub(super) fn make_checkpoint(&self) -> Result<()> {
        let mut state = self.checkpoint.lock();
        self.log.healthy()?;
        self.refuse_changes()?;
        self.reap();
        if self.is_current(&state) {
            return Ok(());
        }
        let appended = self.log.appended();
        let (kept_from, reach) = self.move_small()?;
        let mut moment = {
            let _alone = self.alone_with_little_limbo()?;
            // The reserve is for this: without a checkpoint there would never be space again.
            self.flush_batch(AllocationClass::Checkpoint)?;
            let mut allocator = self.allocator.lock();
            let start = self.log.end();
            // The root has the low-water mark, whether or not any record was deferred.
            let low_water = allocator.low_water();
            allocator.space.advance_low_water(low_water);
            let (groups, lists, limbo) = allocator.space.checkpoint_state();
            let root = Root {
                sequence: allocator.sequence,
                allocation_extents: allocator.space.allocation_extents().cloned().collect(),
                unlisted: allocator.space.unlisted().collect(),
                in_progress: allocator.puts(),
                packed_extents: allocator.packed_extents.all().collect(),
                needed: Needed {
                    log: self.journal_from(kept_from),
                    other: Vec::new(),
                },
                ..Root::default()
            };
            self.index.join();
            let shots = self.index.snapshot(true);
            Moment {
                start,
                shots: shots.inspect_err(|_| allocator.space.mark_dirty(&groups))?,
                groups,
                lists,
                root,
                limbo,
            }
        };
        let written = self.write_checkpoint(&mut state, &mut moment);
        let ended = written.and_then(|()| {
            let mut allocator = self.allocator.lock();
            allocator.space.end_checkpoint(&moment.groups, moment.limbo)
        });
        if let Err(error) = ended {
            self.index.mark_dirty(&moment.shots);
            self.allocator.lock().space.mark_dirty(&moment.groups);
            state.committed.parts.start_new_run();
            if !self.log.is_poisoned() {
                self.release_images(&state);
            }
            return Err(error);
        }
        state.committed.appended = appended;
        state.is_own = true;
        state.reach = reach;
        self.release_journal(kept_from);
        self.release_images(&state);
        self.reap();
        self.keep_for_checkpoint(0);
        Ok(())
    }

    /// Frees segments that no reader uses any more. Where space is short, waits for readers.
    fn reap(&self) {
        let segments = self.log.segments();
        if segments.is_full() {
            segments.reap_patiently(self.log.geometry().segment_size());
        } else {
            segments.reap();
        }
    }

    /// The gate, held exclusively. The root lists each span in limbo, so a sync comes first if there are many.
    fn alone_with_little_limbo(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        for _ in 0..SYNCS_MAX {
            let alone = self.gate.write();
            let allocator = self.allocator.lock();
            let is_much = allocator.space.limbo().count(FreedBy::Sync) > LIMBO_MAX;
            if !is_much || allocator.space.counts().is_pinned {
                return Ok(alone);
            }
            drop(allocator);
            drop(alone);
            self.sync()?;
        }
        Ok(self.gate.write())
    }

    fn write_checkpoint(&self, state: &mut Checkpoint, moment: &mut Moment) -> Result<()> {
        // Changed images are written anew anyway, and leave their runs.
        let leaves = moment.shots.iter().filter(|shot| !shot.dirty);
        let leaves = leaves.filter_map(|shot| shot.image.map(|image| image.extent));
        let lists = moment.groups.iter().filter_map(|groups| groups.image);
        let sparse = parts::sparse(&self.log, leaves.chain(lists));
        let mut leaves = Vec::with_capacity(moment.shots.len());
        for (at, shot) in moment.shots.iter().enumerate() {
            let end = moment.shots.get(at + 1).map(|shot| shot.first);
            let stays = !shot.dirty
                && shot
                    .image
                    .is_none_or(|image| !sparse.holds(image.extent.offset));
            let image = if stays {
                shot.image
            } else {
                match self.index.leaf_of(shot, end) {
                    // The image stays where it is: it may be readable later.
                    Err(error) if is_unreadable(&error) && !shot.dirty => shot.image,
                    leaf => self.write_leaf(state, shot.first, &*leaf?)?,
                }
            };
            leaves.push((shot.first, image));
        }
        for list in &moment.lists {
            let bytes = encode_runs(&list.runs, list.limit);
            let seed = list_seed(self.salt, list.group as u32);
            moment.groups[list.group].image =
                Some(state.committed.parts.write(&self.log, &bytes, seed)?);
        }
        for (at, groups) in moment.groups.iter_mut().enumerate() {
            if let Some(image) = groups.image.filter(|image| sparse.holds(image.offset)) {
                let seed = list_seed(self.salt, at as u32);
                let storage = self.log.storage().as_ref();
                match read_extent_corrected(storage, image, seed, "the list of a group") {
                    Err(error) if is_unreadable(&error) => {}
                    read => {
                        let (bytes, _) = read?;
                        groups.image = Some(state.committed.parts.write(&self.log, &bytes, seed)?);
                    }
                }
            }
        }
        let mut root = std::mem::take(&mut moment.root);
        root.leaves = leaves;
        root.groups.clone_from(&moment.groups);
        let images: Vec<Extent> = root.images().collect();
        let others = self.log.segments().in_use(Use::Other).len() as u64;
        let len = root.encode().len() as u64 + 8 * others + 64;
        let sequence = root.sequence;
        let units = self.allocator.lock().space.units();
        let mut encode = |other| {
            root.needed.other = other;
            root.encode()
        };
        let next = NextCheckpoint {
            start: moment.start,
            len,
            images: &images,
            encode: &mut encode,
        };
        let sync = || self.flush_devices();
        (state.committed).commit(&self.log, next, sync, |payload| {
            payload.doubt = None;
            payload.lost.clear();
            payload.sequence = sequence;
            payload.units = units;
        })?;
        state.images = images;
        self.index.set_images(&root.leaves);
        Ok(())
    }

    fn write_leaf(
        &self,
        state: &mut Checkpoint,
        first: crate::object::ObjectId,
        leaf: &crate::object::index::Leaf,
    ) -> Result<Option<Image>> {
        if leaf.is_empty() {
            return Ok(None);
        }
        let usage = leaf.entries().map(|(_, entry)| entry.device_bytes()).sum();
        let in_journal = leaf.entries().any(|(_, entry)| entry.kind == JOURNAL);
        let seed = leaf_seed(self.salt, first);
        let extent = state
            .committed
            .parts
            .write(&self.log, leaf.as_bytes(), seed)?;
        Ok(Some(Image {
            count: leaf.len() as u32,
            in_journal,
            usage,
            extent,
        }))
    }

    fn release_images(&self, state: &Checkpoint) {
        let images = state.images.iter().copied();
        state.committed.release_idle(&self.log, images);
    }

    /// Segments of the journal from this one on; those before are released, and may be reused when the root is read.
    fn journal_from(&self, sequence: u64) -> Vec<Segment> {
        let mut segments = self.log.segments().in_use(Use::Log);
        segments.retain(|segment| segment.sequence >= sequence);
        segments
    }

    /// Releases the segments before this one, which neither replay nor small objects need.
    fn release_journal(&self, sequence: u64) {
        let segments = self.log.segments();
        for segment in segments.in_use(Use::Log) {
            if segment.sequence < sequence {
                segments.retire(segment.index);
            }
        }
        let retired = segments.retired();
        segments.release(&retired);
    }

    /// Reserves as many free segments of the journal as the next checkpoint needs at most, with `more` objects more; to be called
    /// as their number grows.
    pub(super) fn keep_for_checkpoint(&self, more: u64) {
        let leaf_len = self.index.leaf_len_max() as u64;
        let (room, packed_extents, in_progress) = {
            let allocator = self.allocator.lock();
            (
                allocator.space.counts(),
                allocator.packed_extents.len(),
                allocator.in_progress.len(),
            )
        };
        let load = MetadataSize {
            count: self.index.count() + more,
            // At worst, new ones stand in leaves that are half full.
            leaves: self.index.leaves() as u64 + more / (leaf_len / 2),
            leaf_len,
            packed_extents: packed_extents as u64,
            in_progress: in_progress as u64,
            room,
        };
        let segments = self.log.segments();
        segments.keep(Reserve {
            checkpoint: load.need(self.log.geometry()),
            step: whole_step(segments.limit()),
            coming: 0,
            slack: 0,
            reclaimable: 0,
        });
    }

    /// Whether nothing changed since the last checkpoint, and another one would find no more space for small objects.
    fn is_current(&self, state: &Checkpoint) -> bool {
        let last = state.last();
        let (units, reach) = {
            let allocator = self.allocator.lock();
            (allocator.space.units(), allocator.space.available())
        };
        let is_at_end = last.start == self.log.end() && last.units == units;
        let has_no_more_room = state.reach.is_none_or(|before| reach <= before);
        state.is_own && is_at_end && has_no_more_room && !self.has_deferred()
    }
}

#[cfg(test)]
pub(super) mod tests;
