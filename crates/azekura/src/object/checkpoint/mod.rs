//! The checkpoint: what changed of the index and the free room, written so that replay can begin later.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 0 small objects move from the journal into packs (`small`) | the old checkpoint |
//! | 1 alone for a moment: tell what waits; share the leaves, copy the changed lists, note the journal's end | the old checkpoint |
//! | 2 write images of what changed, then the root, to segments of their own | the old one |
//! | 3 sync: the data, then journal, images and root | the old one |
//! | 4 write the superblock over its older slot, then over the other, durably: replay begins at the noted end | the old one or the new |
//! | 5 release the journal before it, and images that only the old one needed | the new one |
//!
//! All of it is as of one moment, since leaves are shared and not written while they are changed. Images stand in runs of
//! segments; where a run holds little that is needed, that is written again, so that runs become free.
//!
//! It does not decide when.

pub(crate) mod images;
pub(crate) mod keeper;
pub(crate) mod label;
pub(crate) mod renew;
pub(crate) mod root;
pub(crate) mod slots;
pub(crate) mod superblock;

use crate::error::{Error, Kind, Result};
use crate::format::checksum::crc;
use crate::format::superblock::Superblock;
use crate::log::anchor::{Extent, Needed, read_extent_corrected};
use crate::log::parts::{self, Parts};
use crate::log::root::{Room, units as root_units};
use crate::log::segment::{left_by_growth, whole_step};
use crate::log::{Claim, Geometry, Reserve, Segment, Use};
use crate::object::Core;
use crate::object::checkpoint::root::{LEAF_SEED, LIST_SEED, ROOT_SEED, Root};
use crate::object::checkpoint::superblock::{ENGINE, Super};
use crate::object::index::{ENTRY_SIZE, Image, JOURNAL, Shot};
use crate::object::place::limbo::{self, FreedBy};
use crate::object::place::list::{encode_runs, list_size};
use crate::object::place::space::{Breadth, List, Told};
use crate::weave::RwLockWriteGuard;

/// The last checkpoint.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// The superblock as it stands on storage.
    pub(super) superblock: Option<(u64, Super)>,
    /// Whether it was made here: one that was found may be damaged where nobody has looked yet.
    pub(super) is_own: bool,
    /// What it needs in segments of its own: images of leaves and lists, and the pieces of its root.
    pub(super) images: Vec<Extent>,
    /// Where the next image goes.
    pub(super) parts: Parts,
    /// `Log::appended` when it was begun.
    pub(super) appended: u64,
    /// If small objects stayed in the journal for want of room: units that were within reach then.
    pub(super) reach: Option<u64>,
}

/// The sequence of a store's first superblock: creation writes it, and then the one after it, as every change of a superblock does.
pub(super) const FIRST_SUPERBLOCK: u64 = 1;
/// Spans in limbo that a root tells without a sync before.
const LIMBO_MAX: usize = 32;
/// Syncs that are made for it: others go on removing meanwhile.
const SYNCS_MAX: u32 = 4;
/// Bytes that a root takes for each leaf or group, at most.
const PART_LEN: u64 = 48;
/// Bytes that it takes for a span, a pack, a put under way, at most.
const SPAN_LEN: u64 = 20;
/// A leaf's image takes at most this part of a segment, so that little is left at a segment's end.
const LEAF_PART: u64 = 8;

/// What a checkpoint may have to tell.
struct Load {
    count: u64,
    leaves: u64,
    /// Entries of a leaf, at most.
    leaf_len: u64,
    packs: u64,
    under_way: u64,
    room: Breadth,
}

impl Load {
    /// Of a store of one object.
    fn of_few(groups: u64) -> Self {
        Self {
            count: 1,
            leaves: 1,
            leaf_len: 1,
            packs: 0,
            under_way: 1,
            room: Breadth {
                groups,
                ..Breadth::default()
            },
        }
    }

    /// Segments that a checkpoint may need for it. A removal makes it no more: a run, or a span in limbo, is less than an object.
    fn need(&self, geometry: Geometry) -> u32 {
        let size = geometry.segment_size();
        let units = |len: u64| len.div_ceil(size) as u32;
        // A checkpoint syncs first if more are in limbo: then they are in the lists, unless something pins them.
        let (limbo, freed) = if self.room.is_pinned {
            (self.room.limbo, 0)
        } else {
            (LIMBO_MAX as u64, self.room.limbo)
        };
        let parts = (self.leaves + self.leaves / 8 + self.room.groups + 64) * PART_LEN;
        let spans = limbo + self.room.spans + self.packs + self.under_way;
        let root = root_units(geometry, parts + spans * SPAN_LEN);
        // A part does not begin in one run and end in another: of a run less is left than the next part takes.
        let leaf = (self.leaf_len * ENTRY_SIZE as u64 + 8).min(size / 2);
        let leaves = self.count * ENTRY_SIZE as u64 + self.leaves * 8;
        let ends = leaves * leaf / (size - leaf);
        let lists = 2 * (self.room.lists + freed * list_size(1, u32::MAX) as u64);
        // Waiting puts take the rest of a segment and at most one more.
        units(leaves + ends + lists) + root + 3
    }
}

/// Bytes of a leaf's image, at most, in a journal of such segments.
pub(super) fn leaf_image_max(geometry: Geometry) -> u64 {
    geometry.segment_size() / LEAF_PART
}

/// Segments of the least journal of all.
pub(super) const LEAST: u32 = 32;
/// Segments besides those kept and a root, in which a store of a few objects lives.
const LIVING: u32 = 6;

/// Bytes of the smallest journal with which a store of `groups` groups takes its first objects, of segments of this size.
pub(super) fn least_journal(geometry: Geometry, groups: u64) -> u64 {
    let units = Load::of_few(groups).need(geometry);
    let root = (groups * PART_LEN).div_ceil(geometry.segment_size()) as u32;
    let least = |limit| left_by_growth(units, limit) + root + LIVING;
    geometry.offset_of(least(least(0)).max(LEAST))
}

/// Whether what stands on storage is damaged, or the device does not give it.
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

/// What was seen in the moment of a checkpoint.
struct Moment {
    start: crate::log::End,
    shots: Vec<Shot>,
    told: Vec<Told>,
    lists: Vec<List>,
    root: Root,
    /// Of limbo.
    limbo: limbo::Moment,
}

impl Core {
    /// Writes a superblock to both slots, one after the other, so that it is durable, and makes it current in memory. So
    /// each of them says all, and whether the store is open: if one is damaged, nothing is lost or believed that is over.
    pub(super) fn write_super(&self, state: &mut Checkpoint, payload: &Super) -> Result<()> {
        for _ in 0..2 {
            let last = state.superblock.as_ref();
            let sequence = last.map_or(FIRST_SUPERBLOCK - 1, |(sequence, _)| *sequence) + 1;
            self.write_slot(sequence, payload)?;
            state.superblock = Some((sequence, payload.clone()));
        }
        Ok(())
    }

    /// Writes the slot of this sequence, so that it is durable.
    pub(super) fn write_slot(&self, sequence: u64, payload: &Super) -> Result<()> {
        let block = Superblock {
            engine: ENGINE,
            sequence,
            payload: payload.encode(),
        };
        self.log.write_durably(block.slot_offset(), &block.encode())
    }

    /// See the module's text. Does nothing if nothing was changed since the last one.
    pub(super) fn make_checkpoint(&self) -> Result<()> {
        let mut state = self.checkpoint.lock();
        self.log.healthy()?;
        self.refuse_changes()?;
        self.reap();
        if self.is_told(&state) {
            return Ok(());
        }
        let appended = self.log.appended();
        let (kept_from, reach) = self.move_small()?;
        let mut moment = {
            let _alone = self.alone_with_little_limbo()?;
            // What the reserve is for: without a checkpoint there would never be room again.
            self.tell_waiting(Claim::Checkpoint)?;
            let mut room = self.room.lock();
            let start = self.log.end();
            // The root says what has ended, whether or not anything waited to be told.
            let floor = room.floor();
            room.space.settle(floor);
            let (told, lists, limbo) = room.space.tell();
            let root = Root {
                sequence: room.sequence,
                strides: room.space.strides().cloned().collect(),
                between: room.space.between().collect(),
                under_way: room.puts(),
                packs: room.packs.all().collect(),
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
                shots: shots.inspect_err(|_| room.space.soil(&told))?,
                told,
                lists,
                root,
                limbo,
            }
        };
        let written = self.write_checkpoint(&mut state, &mut moment);
        let ended = written.and_then(|()| {
            let mut room = self.room.lock();
            room.space.end_checkpoint(&moment.told, moment.limbo)
        });
        if let Err(error) = ended {
            self.index.soil(&moment.shots);
            self.room.lock().space.soil(&moment.told);
            state.parts.start_new_run();
            if !self.log.is_poisoned() {
                self.release_images(&state);
            }
            return Err(error);
        }
        state.appended = appended;
        state.is_own = true;
        state.reach = reach;
        self.release_journal(kept_from);
        self.release_images(&state);
        self.reap();
        self.keep_for_checkpoint(0);
        Ok(())
    }

    /// Frees segments that nobody looks at any more. Where room is short who looks is given time to go.
    fn reap(&self) {
        let segments = self.log.segments();
        if segments.is_full() {
            segments.reap_patiently(self.log.geometry().segment_size());
        } else {
            segments.reap();
        }
    }

    /// The gate, alone. The root lists each span in limbo, in one row with all else; after a sync most are the groups'.
    fn alone_with_little_limbo(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        for _ in 0..SYNCS_MAX {
            let alone = self.gate.write();
            let room = self.room.lock();
            let is_much = room.space.limbo().count(FreedBy::Sync) > LIMBO_MAX;
            if !is_much || room.space.breadth().is_pinned {
                return Ok(alone);
            }
            drop(room);
            drop(alone);
            self.sync()?;
        }
        Ok(self.gate.write())
    }

    fn write_checkpoint(&self, state: &mut Checkpoint, moment: &mut Moment) -> Result<()> {
        let Some((_, mut payload)) = state.superblock.clone() else {
            unreachable!("an open store has a superblock")
        };
        // What is written anyway leaves its runs.
        let leaves = moment.shots.iter().filter(|shot| !shot.dirty);
        let leaves = leaves.filter_map(|shot| shot.image.map(|image| image.extent));
        let lists = moment.told.iter().filter_map(|told| told.image);
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
                    // It stays where it is, for who can read it one day.
                    Err(error) if is_unreadable(&error) && !shot.dirty => shot.image,
                    leaf => self.write_leaf(state, shot.first, &*leaf?)?,
                }
            };
            leaves.push((shot.first, image));
        }
        for list in &moment.lists {
            let bytes = encode_runs(&list.runs, list.limit);
            let seed = list_seed(self.salt, list.group as u32);
            moment.told[list.group].image = Some(state.parts.write(&self.log, &bytes, seed)?);
        }
        for (at, told) in moment.told.iter_mut().enumerate() {
            if let Some(image) = told.image.filter(|image| sparse.holds(image.offset)) {
                let seed = list_seed(self.salt, at as u32);
                let storage = self.log.storage().as_ref();
                match read_extent_corrected(storage, image, seed, "the list of a group") {
                    Err(error) if is_unreadable(&error) => {}
                    read => {
                        let (bytes, _) = read?;
                        told.image = Some(state.parts.write(&self.log, &bytes, seed)?);
                    }
                }
            }
        }
        let mut root = std::mem::take(&mut moment.root);
        root.leaves = leaves;
        root.groups.clone_from(&moment.told);
        let images: Vec<Extent> = root.images().collect();
        let room = root.encode().len() as u64
            + 8 * self.log.segments().in_use(Use::Other).len() as u64
            + 64;
        let room = room + 8 * u64::from(root_units(self.log.geometry(), room));
        let room = Room::take(&self.log, &mut state.parts, room)?;
        let seed = self.salt ^ ROOT_SEED;
        let mut encode = |other| {
            root.needed.other = other;
            root.encode()
        };
        let pieces = room.write(&self.log, &mut state.parts, seed, &images, &mut encode)?;
        self.flush_devices()?;
        payload.start = moment.start;
        payload.doubt = None;
        payload.lost.clear();
        payload.durable = self.log.durable();
        payload.root = pieces.first().copied();
        payload.next_sequence = self.log.next_sequence();
        payload.sequence = root.sequence;
        payload.units = self.room.lock().space.units();
        self.write_super(state, &payload)?;
        state.images = images;
        state.images.extend(pieces);
        self.index.placed(&root.leaves);
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
        let extent = state.parts.write(&self.log, leaf.as_bytes(), seed)?;
        Ok(Some(Image {
            count: leaf.len() as u32,
            in_journal,
            usage,
            extent,
        }))
    }

    fn release_images(&self, state: &Checkpoint) {
        parts::release_idle(&self.log, state.images.iter().copied(), state.parts);
    }

    /// Segments of the journal from this one on: those before are released, and may be anything's when the root is read.
    fn journal_from(&self, sequence: u64) -> Vec<Segment> {
        let mut segments = self.log.segments().in_use(Use::Log);
        segments.retain(|segment| segment.sequence >= sequence);
        segments
    }

    /// Segments of the journal before this one are needed by nothing: neither by replay, nor by small objects.
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

    /// Has the journal keep so many free segments as the next checkpoint may need, if there are `more` objects by then; to be
    /// called as they become more.
    pub(super) fn keep_for_checkpoint(&self, more: u64) {
        let leaf_len = self.index.leaf_len_max() as u64;
        let (room, packs, under_way) = {
            let room = self.room.lock();
            (room.space.breadth(), room.packs.len(), room.under_way.len())
        };
        let load = Load {
            count: self.index.count() + more,
            // New ones stand in leaves that are half full, at worst.
            leaves: self.index.leaves() as u64 + more / (leaf_len / 2),
            leaf_len,
            packs: packs as u64,
            under_way: under_way as u64,
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

    /// Whether the last checkpoint tells all that there is, and another one would find no more room for small objects.
    fn is_told(&self, state: &Checkpoint) -> bool {
        let Some((_, last)) = &state.superblock else {
            return false;
        };
        let (units, reach) = {
            let room = self.room.lock();
            (room.space.units(), room.space.within_reach())
        };
        let is_at_end = last.start == self.log.end() && last.units == units;
        let has_no_more_room = state.reach.is_none_or(|before| reach <= before);
        state.is_own && is_at_end && has_no_more_room && !self.has_waiting()
    }
}

#[cfg(test)]
pub(super) mod tests;
