//! The checkpoint: the changed parts of the index, written so that replay can begin later.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 alone for a moment: note the log's end P, the count, the dead bytes, the changed partitions | the old checkpoint |
//! | 2 write images of the changed partitions, then the root, to segments of their own | the old checkpoint |
//! | 3 sync: images, root, and all of the log that they may point to | the old checkpoint |
//! | 4 write the superblock over its older slot, durably: replay begins at P; then over the other slot, durably | the old one or the new |
//! | 5 release what only the old one needed: images, and segments cleaned before step 1 | the new one |
//!
//! Images are taken while updates continue: an entry is the one of P or a later one. Replay from P brings every
//! entry to its newest state whatever it began with, and all frames that an image may point to are durable
//! before the superblock names it (step 3). Writers stand still in step 1 only.
//!
//! So images may be newer than P as well, and a checkpoint of many is made in *parts*: after each eighth of the
//! images, steps 2 to 5 with the old P and the old list of the log's segments. What the new images replace is
//! free for those still to be written: a file holds little more than one generation. The last part
//! has the new P; only that one releases segments of the log.

use super::Core;
use super::image;
use super::layout::{Image, Root, Super, image_seed};
use crate::error::{Error, Kind, Result};
use crate::index::hash::PARTITIONS;
use crate::io::Storage;
use crate::kernel::{Committed, NextCheckpoint, SuperblockPair};
use crate::log::manifest::{Extent, Needed, read_extent_corrected, remedy};
use crate::log::parts;
use crate::log::root;
use crate::log::{AllocationClass, End, Geometry, Log, Reserve, Segment, Use};

/// Into how many parts a large checkpoint is cut, and how many segments of images a part has at least.
const PARTS: u64 = 8;
const PART_SEGMENTS_MIN: u64 = 4;
/// In how many runs of neighbouring segments the images of a large file stand at least, and how many segments such
/// a run has at most.
const RUNS: u64 = 4;
const RUN_SEGMENTS_MAX: u64 = 8;

/// Bytes of a record in the log, at least.
const LEN_MIN: u64 = 16;
/// Bytes of a record in an image, at most (`image`): a place, and its distance from the one before.
const ENTRY_LEN_MAX: u64 = 8;
/// Bytes of an image besides: its head, and what is left to a whole word.
const IMAGE_ENDS: u64 = 10;

/// The steps of the reserve: a part of the storage, two segments at least, and one in a small storage.
const STEPS: u32 = 128;
const STEP_MAX: u32 = 16;
const SMALL: u32 = 64;
/// Of a full store's segments such a part is dead or free before an exchange needs room: `log::segment::space`.
const SLACK: u32 = 16;
/// Segments in which a store of a few records lives.
const LIVING: u32 = 4;
/// What errors call an image.
const PART: &str = "a part of the index checkpoint";

/// What a checkpoint states of the log.
struct Moment {
    start: End,
    count: u64,
    log: Vec<Segment>,
    /// The last mark before it.
    mark: Vec<u8>,
}

/// The last checkpoint, and where the next one's images go.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// What the kernel keeps of it.
    pub(super) committed: Committed<Super>,
    /// By partition.
    pub(super) images: Vec<Image>,
    /// Whether a bit of the root on storage is not as it was written.
    pub(super) is_root_corrected: bool,
    /// Segments of the log, as its root lists them.
    pub(super) log: Vec<Segment>,
    /// The mark that its root states.
    pub(super) mark: Vec<u8>,
}

impl Checkpoint {
    /// The one that a superblock and its root state.
    pub(super) fn found(superblock: SuperblockPair<Super>, root: Root) -> Self {
        Self {
            committed: Committed::found(superblock, root.pieces),
            images: root.images,
            is_root_corrected: root.is_corrected,
            log: root.needed.log,
            mark: root.mark,
        }
    }

    /// Bytes of all images.
    pub(super) fn images_len(&self) -> u64 {
        self.images.iter().map(|image| image.extent.len).sum()
    }

    /// Images stand in neighbours where there are some: among segments of the log they would be held in memory with
    /// them, by huge pages.
    fn keep_together(&mut self, geometry: Geometry) {
        let wanted = (self.images_len() / RUNS) >> geometry.shift;
        self.committed
            .parts
            .keep_together(wanted.min(RUN_SEGMENTS_MAX) as u32);
    }
}

/// Where there are images, with the partition.
fn present(images: &[Image]) -> impl Iterator<Item = (usize, Extent)> + '_ {
    let present = images.iter().enumerate().filter(|(_, i)| !i.is_empty());
    present.map(|(partition, image)| (partition, image.extent))
}

/// Sizes of the last checkpoint, from which the need of the next one is estimated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Previous {
    /// Bytes of its images.
    pub(super) len: u64,
    /// How many records they hold.
    pub(super) records: u64,
    /// Bytes of the last mark.
    pub(super) mark: u64,
}

impl Previous {
    pub(super) fn of(images: &[Image], mark: &[u8]) -> Self {
        Self {
            len: images.iter().map(|image| image.extent.len).sum(),
            records: images.iter().map(|image| u64::from(image.count)).sum(),
            mark: mark.len() as u64,
        }
    }
}

/// What the next checkpoint, and a full store, may need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Sizes of the last checkpoint.
    pub(super) last: Previous,
    /// Records there are now.
    pub(super) count: u64,
    /// Segments that hold images and roots now.
    pub(super) taken: u32,
    /// Segments in which the store has to continue, and how many there may be.
    pub(super) total: u32,
    pub(super) limit: u32,
    /// Bytes of the log that cleaning gives back.
    pub(super) reclaimable: u64,
    /// Segments of the log, and whether the store is full or may soon be.
    pub(super) log: u32,
    pub(super) is_near_full: bool,
}

impl Load {
    /// Segments that everything else leaves.
    ///
    /// With I the bytes of all images, after a checkpoint runs take at most four thirds of I, since those
    /// that are less than three fourths full are written again if all together hold too little, and two segments for the
    /// run being filled and the one that may be spared; and a root. Until then it takes besides two parts of the images (the
    /// first gives nothing back before it is durable, and the second may begin before readers let go of the first), a run
    /// of neighbours that is half rewritten, and the next root. What is taken now is not needed again.
    ///
    /// Records that may come before it is computed again count for what growth leaves only: nothing else brings any.
    pub(super) fn reserve(self, geometry: Geometry) -> Reserve {
        let size = geometry.segment_size();
        let coming = if self.is_near_full {
            look_ahead_each(self.total) * size / LEN_MIN
        } else {
            0
        };
        let checkpoint = self.need(geometry, self.count);
        Reserve {
            checkpoint,
            coming: self.need(geometry, self.count + coming) - checkpoint,
            step: if self.limit < SMALL {
                1
            } else {
                (self.total / STEPS).clamp(2, STEP_MAX)
            },
            slack: self.total / SLACK,
            reclaimable: (self.reclaimable / size) as u32,
        }
    }

    /// Segments that a checkpoint of `count` records may need.
    fn need(self, geometry: Geometry, count: u64) -> u32 {
        let size = geometry.segment_size();
        let units = |len: u64| len.div_ceil(size) as u32;
        let new = count.saturating_sub(self.last.records);
        let images = self.last.len + new * ENTRY_LEN_MAX + new.min(PARTITIONS as u64) * IMAGE_ENDS;
        // No image stands in two runs: of each run the end may stay empty.
        let image = (2 * images / PARTITIONS as u64).min(size / 2);
        let images = images.saturating_add(images.saturating_mul(image) / (size - image));
        let parts = images.min(2 * part_len(geometry, images));
        let root = if self.is_near_full {
            // All there is may be the log.
            root_len(count, u64::from(self.total), 0)
        } else {
            root_len(count, u64::from(self.log), u64::from(self.taken))
        };
        let root = root::units(geometry, root + self.last.mark);
        let run = ((images / RUNS) >> geometry.shift).min(RUN_SEGMENTS_MAX) as u32;
        let stays = units(images + images / 3) + 2 + root;
        units(parts) + run + root + stays.saturating_sub(self.taken)
    }
}

/// Bytes of the smallest storage in which a store of such segments takes records and can be full.
pub(super) fn least_capacity(geometry: Geometry) -> u64 {
    let left = |limit: u32| {
        let load = Load {
            last: Previous::default(),
            count: u64::from(LIVING) / 2 * geometry.segment_size() / LEN_MIN,
            taken: 0,
            total: limit,
            limit,
            reclaimable: 0,
            log: 0,
            is_near_full: true,
        };
        // The two that are appended to by users and by cleaning, and two of images and records.
        AllocationClass::Growth.leaves(load.reserve(geometry)) + LIVING
    };
    let mut limit = 1;
    while left(limit) > limit {
        limit = left(limit).max(limit + 1);
    }
    geometry.offset_of(limit)
}

/// Bytes of a root with so many images.
fn root_len(partitions: u64, log: u64, others: u64) -> u64 {
    64 + partitions.min(PARTITIONS as u64) * 24 + log * 24 + others * 8
}

/// Segments that are appended between one look ahead and the next: a thousandth of the storage, since it costs a look at each.
pub(super) fn look_ahead_each(total: u32) -> u64 {
    u64::from(total / 1024).max(1)
}

/// Bytes of images between two roots.
fn part_len(geometry: Geometry, images_len: u64) -> u64 {
    (images_len / PARTS).max(PART_SEGMENTS_MIN * geometry.segment_size())
}

/// Has the log keep what the next checkpoint may need of `count` records, if the images of the last one hold so many
/// bytes and records.
pub(super) fn keep_for_checkpoint(log: &Log, last: Previous, count: u64) {
    let segments = log.segments();
    let other = segments.in_use(Use::Other);
    let dead = segments.in_use(Use::Log);
    let load = Load {
        last,
        count,
        taken: other.iter().map(|s| s.units).sum(),
        log: dead.len() as u32,
        is_near_full: segments.is_full() || segments.total() >= segments.limit() / 2,
        total: segments.span(),
        limit: segments.limit().max(segments.span()),
        reclaimable: dead.iter().map(Segment::reclaimable).sum(),
    };
    segments.keep(load.reserve(log.geometry()));
}

impl Core {
    /// See the module's text. Does nothing if nothing was appended since the last one.
    /// Where a full store lacks room for it, it is made once more, in the smallest parts: each gives back what it replaces.
    pub(super) fn checkpoint(&self) -> Result<()> {
        match self.checkpoint_in_parts(None) {
            Err(error) if error.kind() == Kind::Full => {
                self.log.segments().reap_to_the_last();
                self.checkpoint_in_parts(Some(self.log.geometry().segment_size()))
            }
            other => other,
        }
    }

    /// With parts of so many bytes of images, if given.
    pub(super) fn checkpoint_in_parts(&self, part_len: Option<u64>) -> Result<()> {
        let mut state = self.checkpoint.lock();
        self.log.healthy()?;
        let retired = self.log.segments().retired();
        let (moment, mut partitions) = {
            let _alone = self.gate.alone();
            let start = self.log.end();
            let corrected = std::mem::take(&mut *self.known.corrected.lock());
            for partition in &corrected {
                self.index.mark_dirty(*partition);
            }
            let nothing_new = !state.is_root_corrected
                && corrected.is_empty()
                && state.committed.superblock.payload.start == start;
            if nothing_new && retired.is_empty() {
                return Ok(());
            }
            let moment = Moment {
                start,
                count: self.count(),
                log: self.log.segments().in_use(Use::Log),
                mark: self.mark.lock().clone(),
            };
            (moment, self.index.take_dirty())
        };
        let appended = self.log.appended();
        let start = moment.start;
        let changed = partitions.clone();
        partitions.extend(self.partitions_in_sparse_runs(&state, &partitions));
        // Run by run, so that each is free as soon as may be, whatever order the last ones left: the store may come to be full
        // meanwhile.
        partitions.sort_unstable_by_key(|partition| state.images[*partition].extent.offset);
        if let Err(error) =
            self.write_checkpoint(&mut state, moment, (&partitions, &changed), part_len)
        {
            for partition in changed {
                self.index.mark_dirty(partition);
            }
            // No root refers to what it wrote, and its room is needed: it may have failed for lack of room.
            if !self.log.is_poisoned() {
                state.committed.parts.start_new_run();
                self.release_images(&state);
            }
            return Err(error);
        }
        state.committed.appended = appended;
        self.keep_for_checkpoint(&state);
        *self.replay_from.lock() = start;
        self.log.segments().release(&retired);
        self.release_images(&state);
        Ok(())
    }

    fn write_checkpoint(
        &self,
        state: &mut Checkpoint,
        moment: Moment,
        (partitions, changed): (&[usize], &[usize]),
        part_len: Option<u64>,
    ) -> Result<()> {
        let last = state.committed.superblock.payload.clone();
        let salt = last.geometry.salt;
        let whole = state.images_len();
        let part_len = part_len.unwrap_or_else(|| self::part_len(self.log.geometry(), whole));
        let mut images = state.images.clone();
        let mut entries = Vec::new();
        let mut written = 0;
        state.keep_together(self.log.geometry());
        for &partition in partitions {
            if written >= part_len {
                let before = Moment {
                    start: last.start,
                    count: last.count,
                    log: state.log.clone(),
                    mark: state.mark.clone(),
                };
                self.publish(state, images.clone(), before)?;
                self.release_images(state);
                self.log.segments().reap_patiently(part_len / 2);
                written = 0;
            }
            match self.index.load(partition) {
                // Its image cannot be read, and stays as it is: nothing was changed in it.
                Err(error)
                    if [Kind::Corrupted, Kind::Io].contains(&error.kind())
                        && changed.binary_search(&partition).is_err() =>
                {
                    continue;
                }
                warmed => warmed?,
            }
            entries.clear();
            self.index.capture(partition, &mut entries);
            images[partition] = if entries.is_empty() {
                Image::default()
            } else {
                let bytes = image::encode(&mut entries);
                let seed = image_seed(salt, partition);
                let extent = state.committed.parts.write(&self.log, &bytes, seed)?;
                written += extent.len;
                Image {
                    count: entries.len() as u32,
                    extent,
                }
            };
        }
        self.publish(state, images, moment)
    }

    /// Has the log keep what the next checkpoint may need.
    pub(super) fn keep_for_checkpoint(&self, state: &Checkpoint) {
        let previous = Previous::of(&state.images, &self.mark.lock());
        *self.previous.lock() = previous;
        self.look_ahead();
    }

    /// What a checkpoint may need grows with the records.
    pub(super) fn look_ahead(&self) {
        let previous = self.previous.lock();
        keep_for_checkpoint(&self.log, *previous, self.count());
    }

    /// Writes a root of `images` and makes it the file's: `moment` is where replay begins.
    fn publish(&self, state: &mut Checkpoint, images: Vec<Image>, moment: Moment) -> Result<()> {
        let Moment {
            start,
            count,
            log,
            mark,
        } = moment;
        // The root lists its own segments too.
        let others = self.log.segments().in_use(Use::Other).len() as u64;
        let partitions = present(&images).count() as u64;
        let len = root_len(partitions, log.len() as u64, others) + mark.len() as u64;
        // Only runs that this checkpoint needs: the others are free once it is durable, and a recovery
        // may find anything in them.
        let extents: Vec<Extent> = present(&images).map(|(_, extent)| extent).collect();
        let mut root = Root {
            images,
            needed: Needed {
                log,
                other: Vec::new(),
            },
            mark,
            ..Root::default()
        };
        let mut encode = |other| {
            root.needed.other = other;
            root.encode()
        };
        let next = NextCheckpoint {
            start,
            len,
            images: &extents,
            encode: &mut encode,
        };
        let sync = || self.log.sync_now();
        (state.committed).commit(&self.log, next, sync, |payload| payload.count = count)?;
        state.images = root.images;
        state.is_root_corrected = false;
        state.log = root.needed.log;
        state.mark = root.mark;
        state.keep_together(self.log.geometry());
        self.keep_for_checkpoint(state);
        Ok(())
    }

    /// Partitions to write again so that runs become free which will hold little when the `changed` ones are gone: also of a store
    /// that is not full, since the few that stay may keep all the old runs when it comes to be.
    fn partitions_in_sparse_runs(&self, state: &Checkpoint, changed: &[usize]) -> Vec<usize> {
        let stays = |partition: usize| changed.binary_search(&partition).is_err();
        let counted = present(&state.images).filter(|(partition, _)| stays(*partition));
        let counted = counted
            .map(|(_, extent)| extent)
            .chain(state.committed.root.iter().copied());
        let sparse = parts::sparse(&self.log, counted);
        present(&state.images)
            .filter(|(partition, extent)| sparse.holds(extent.offset) && stays(*partition))
            .map(|(partition, _)| partition)
            .collect()
    }

    /// Frees the runs that the checkpoint just made does not need.
    fn release_images(&self, state: &Checkpoint) {
        let images = present(&state.images).map(|(_, extent)| extent);
        state.committed.release_idle(&self.log, images);
    }

    /// Reads a partition's image and verifies it. One wrong bit is read as it was written; then the offset of its byte, too.
    pub(super) fn read_image(
        storage: &dyn Storage,
        salt: u32,
        partition: usize,
        image: Image,
    ) -> Result<(Vec<u64>, Option<u64>)> {
        if image.is_empty() {
            return Ok((Vec::new(), None));
        }
        let seed = image_seed(salt, partition);
        let (bytes, bit) = read_extent_corrected(storage, image.extent, seed, PART)?;
        let entries = image::decode(&bytes, image.count).ok_or_else(|| {
            Error::new(Kind::Corrupted, format!("{PART} is damaged"))
                .at(storage.path())
                .offset(image.extent.offset)
                .detail(format!("it does not hold {} entries", image.count))
                .remedy(remedy(storage))
        })?;
        Ok((entries, bit))
    }
}
