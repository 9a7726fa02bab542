//! The checkpoint: what changed of the index and the free room, written so that replay can begin later.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 0 small objects move from the journal into packs (`small`) | the old checkpoint |
//! | 1 alone for a moment: tell what waits; share the leaves, copy the changed lists, note the journal's end | the old checkpoint |
//! | 2 write images of what changed, then the root, to segments of their own | the old one |
//! | 3 sync: the data, then journal, images and root | the old one |
//! | 4 write the superblock over its older slot, durably: replay begins at the noted end | the old one or the new |
//! | 5 release the journal before it, and images that only the old one needed | the new one |
//!
//! All of it is as of one moment, since leaves are shared and not written while they are changed. Images stand in runs of
//! segments; where a run holds little that is needed, that is written again, so that runs become free.
//!
//! It does not decide when.

use super::Core;
use super::index::{Image, JOURNAL, Shot};
use super::layout::{ENGINE, LEAF_SEED, LIST_SEED, ROOT_SEED, Root, Super, encode_runs};
use super::space::Told;
use crate::error::Result;
use crate::format::checksum::crc;
use crate::format::superblock::Superblock;
use crate::log::anchor::Extent;
use crate::log::parts::{self, Parts};
use crate::log::{Geometry, Segment, Use};

/// The last checkpoint.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// The superblock as it stands on storage.
    pub(super) superblock: Option<(u64, Super)>,
    /// Images it needs: of leaves and lists.
    pub(super) images: Vec<Extent>,
    /// Where the next image goes.
    pub(super) parts: Parts,
    /// `Log::appended` when it was begun.
    pub(super) appended: u64,
}

/// Bytes of an object in the images and the root, about.
const OBJECT_LEN: u64 = 26;
/// Bytes that a root takes for each leaf or group, at most.
const PART_LEN: u64 = 48;

/// Segments that a checkpoint may need of a store of `count` objects, `leaves` leaves and `groups` groups, and how many of them
/// in a row.
pub(super) fn need(geometry: Geometry, count: u64, leaves: u64, groups: u64) -> (u32, u32) {
    let units = |len: u64| len.div_ceil(geometry.segment_size()) as u32;
    let root = units((leaves + leaves / 8 + groups + 64) * PART_LEN);
    (units(count * OBJECT_LEN) + root + 2, root)
}

/// The seed of a leaf's image.
pub(super) fn leaf_seed(salt: u32, first: super::ObjectId) -> u32 {
    crc(salt ^ LEAF_SEED, &first.to_bytes())
}

/// The seed of a list's image.
pub(super) fn list_seed(salt: u32, group: u32) -> u32 {
    crc(salt ^ LIST_SEED, &group.to_le_bytes())
}

/// What was seen in the moment of a checkpoint.
struct Moment {
    start: (u32, crate::log::LogPosition),
    shots: Vec<Shot>,
    told: Vec<Told>,
    lists: Vec<(usize, super::runs::Runs)>,
    root: Root,
}

impl Core {
    /// Writes a superblock so that it is durable, and makes it current in memory.
    pub(super) fn write_super(&self, state: &mut Checkpoint, payload: Super) -> Result<()> {
        let sequence = state
            .superblock
            .as_ref()
            .map_or(0, |(sequence, _)| *sequence)
            + 1;
        let block = Superblock {
            engine: ENGINE,
            sequence,
            payload: payload.encode(),
        };
        self.log
            .write_durably(block.slot_offset(), &block.encode())?;
        state.superblock = Some((sequence, payload));
        Ok(())
    }

    /// See the module's text.
    pub(super) fn make_checkpoint(&self) -> Result<()> {
        let mut state = self.checkpoint.lock();
        self.log.healthy()?;
        self.log.segments().reap();
        let appended = self.log.appended();
        let kept_from = self.move_small()?;
        let mut moment = {
            let _alone = self.gate.write();
            self.tell_waiting()?;
            let mut room = self.room.lock();
            let start = self.log.end();
            let (told, lists) = room.space.tell();
            let root = Root {
                sequence: room.sequence,
                strides: room.space.strides().cloned().collect(),
                between: room.space.between().collect(),
                under_way: room.puts(),
                packs: room.packs.all().collect(),
                log: self.journal_from(kept_from.sequence),
                ..Root::default()
            };
            let shots = self.index.snapshot(true);
            Moment {
                start,
                shots: shots.inspect_err(|_| room.space.soil(&told))?,
                told,
                lists,
                root,
            }
        };
        if let Err(error) = self.write_checkpoint(&mut state, &mut moment) {
            self.index.soil(&moment.shots);
            self.room.lock().space.soil(&moment.told);
            state.parts = Parts::default();
            if !self.log.is_poisoned() {
                self.release_images(&state);
            }
            return Err(error);
        }
        state.appended = appended;
        self.release_journal(kept_from.sequence);
        self.release_images(&state);
        self.keep_for_checkpoint(&state);
        Ok(())
    }

    fn write_checkpoint(&self, state: &mut Checkpoint, moment: &mut Moment) -> Result<()> {
        let Some((_, mut payload)) = state.superblock.clone() else {
            unreachable!("an open store has a superblock")
        };
        let sparse = parts::sparse(&self.log, needed_images(state));
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
                let leaf = self.index.leaf_of(shot, end)?;
                self.write_leaf(state, shot.first, &leaf)?
            };
            leaves.push((shot.first, image));
        }
        for (at, runs) in &moment.lists {
            let bytes = encode_runs(runs);
            let seed = list_seed(self.salt, *at as u32);
            moment.told[*at].image = Some(state.parts.write(&self.log, &bytes, seed)?);
        }
        for (at, told) in moment.told.iter_mut().enumerate() {
            if let Some(image) = told.image.filter(|image| sparse.holds(image.offset)) {
                let seed = list_seed(self.salt, at as u32);
                let bytes = crate::log::anchor::read_extent(
                    self.log.storage().as_ref(),
                    image,
                    seed,
                    "the list of a group",
                )?;
                told.image = Some(state.parts.write(&self.log, &bytes, seed)?);
            }
        }
        let mut root = std::mem::take(&mut moment.root);
        root.leaves = leaves;
        root.groups.clone_from(&moment.told);
        let images: Vec<Extent> = root.images().collect();
        let room = root.encode().len() as u64
            + 8 * self.log.segments().in_use(Use::Other).len() as u64
            + 64;
        state.parts.make_room(&self.log, room)?;
        root.other = parts::needed(&self.log, &images, state.parts);
        let bytes = root.encode();
        let extent = state
            .parts
            .write(&self.log, &bytes, self.salt ^ ROOT_SEED)?;
        self.flush_devices()?;
        payload.start = moment.start;
        payload.doubt = None;
        payload.durable = self.log.durable();
        payload.root = Some(extent);
        payload.next_sequence = self.log.next_sequence();
        payload.sequence = root.sequence;
        payload.units = self.room.lock().space.units();
        self.write_super(state, payload)?;
        state.images = images;
        self.index.placed(&root.leaves);
        let mut room = self.room.lock();
        room.space.placed(&moment.told);
        room.space.arrive()
    }

    fn write_leaf(
        &self,
        state: &mut Checkpoint,
        first: super::ObjectId,
        leaf: &super::index::Leaf,
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
        parts::release_idle(&self.log, needed_images(state), state.parts);
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

    /// Has the journal keep so many free segments as the next checkpoint may need.
    pub(super) fn keep_for_checkpoint(&self, state: &Checkpoint) {
        let groups = match &state.superblock {
            Some((_, last)) => last.units.div_ceil(u64::from(last.group_units)),
            None => 0,
        };
        let leaves = self.index.leaves() as u64;
        let (units, root) = need(self.log.geometry(), self.index.count(), leaves, groups);
        self.log.segments().keep_for_checkpoint(units, root);
    }
}

/// All that the last checkpoint needs in segments of its own.
fn needed_images(state: &Checkpoint) -> Vec<&Extent> {
    let root = state
        .superblock
        .as_ref()
        .and_then(|(_, last)| last.anchor.root.as_ref());
    state.images.iter().chain(root).collect()
}
