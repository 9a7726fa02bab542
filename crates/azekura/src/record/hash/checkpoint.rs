//! The checkpoint: the changed parts of the index, written so that replay can begin later.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 alone for a moment: note the log's end P, the count, the dead bytes, the changed stripes | the old checkpoint |
//! | 2 write images of the changed stripes, then the root, to segments of their own | the old checkpoint |
//! | 3 sync: images, root, and all of the log that they may point to | the old checkpoint |
//! | 4 write the superblock over its older slot, durably: replay begins at P | the old one or the new |
//! | 5 release what only the old one needed: images, and segments cleaned before step 1 | the new one |
//!
//! Images are taken while updates go on: an entry is the one of P or a later one. Replay from P brings every
//! entry to its newest state whatever it began with, and all frames that an image may point to are durable
//! before the superblock names it (step 3). Writers stand still in step 1 only.
//!
//! So images may be newer than P as well, and a checkpoint of many is made in *parts*: after each eighth of the
//! images, steps 2 to 5 with the old P and the old list of the log's segments. What the new images replace is
//! free for those still to be written: a file holds little more than one generation. The last part
//! has the new P; only that one releases segments of the log.

use super::Core;
use super::image;
use super::layout::{ENGINE, Image, ROOT_SEED, Root, Super, image_seed};
use crate::error::{Error, Kind, Result};
use crate::format::superblock::Superblock;
use crate::index::hash::STRIPES;
use crate::io::Storage;
use crate::log::anchor::{Extent, Needed, read_extent, remedy};
use crate::log::parts::{self, Parts};
use crate::log::{Geometry, LogPosition, Segment, Use};

/// Into how many parts a large checkpoint is cut, and how many segments of images a part has at least.
const PARTS: u64 = 8;
const PART_SEGMENTS_MIN: u64 = 4;
/// In how many runs of neighbouring segments the images of a large file stand at least, and how many segments such
/// a run has at most.
const RUNS: u64 = 4;
const RUN_SEGMENTS_MAX: u64 = 8;

/// Bytes of a record in an image, about (`image`).
const ENTRY_LEN: u64 = 6;

/// What a checkpoint says of the log.
struct Moment {
    start: (u32, LogPosition),
    count: u64,
    log: Vec<Segment>,
}

/// The last checkpoint, and where the next one's images go.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// The superblock as it stands on storage.
    pub(super) superblock: Option<(u64, Super)>,
    /// By stripe.
    pub(super) images: Vec<Image>,
    /// Segments of the log, as its root lists them.
    pub(super) log: Vec<Segment>,
    /// Where the next image goes.
    pub(super) parts: Parts,
    /// `Log::appended` at the last checkpoint.
    pub(super) appended: u64,
}

impl Checkpoint {
    /// Bytes of all images.
    fn images_len(&self) -> u64 {
        self.images.iter().map(|image| image.extent.len).sum()
    }

    fn root(&self) -> Option<Extent> {
        self.superblock.as_ref().and_then(|(_, last)| last.root)
    }

    /// Images stand in neighbours where there are some: among segments of the log they would be held in memory with
    /// them, by huge pages.
    fn keep_together(&mut self, geometry: Geometry) {
        let wanted = (self.images_len() / RUNS) >> geometry.shift;
        self.parts
            .keep_together(wanted.min(RUN_SEGMENTS_MAX) as u32);
    }
}

/// Where there are images, with the stripe.
fn present(images: &[Image]) -> impl Iterator<Item = (usize, Extent)> + '_ {
    let present = images.iter().enumerate().filter(|(_, i)| !i.is_empty());
    present.map(|(stripe, image)| (stripe, image.extent))
}

/// Segments that a checkpoint may need of a file whose last one has `images_len` bytes of images in `taken` segments, and
/// how many of them must be neighbours: two parts of the new images, since the first gives nothing back before it is
/// durable; what runs may take beyond what they hold, and do not yet; and a root that lists `log` segments.
pub(super) fn need(
    geometry: Geometry,
    images_len: u64,
    count: u64,
    log: usize,
    taken: u32,
) -> (u32, u32) {
    let units = |len: u64| len.div_ceil(geometry.segment_size()) as u32;
    let images = images_len.max(count * ENTRY_LEN);
    let parts = images.min(2 * part_len(geometry, images));
    let root = root_units(geometry, (STRIPES + log) as u64 * 24);
    let run = ((images / RUNS) >> geometry.shift).min(RUN_SEGMENTS_MAX) as u32;
    let sparse = units(images + images / 4) + 1 + root;
    let needed = units(parts) + run + root + sparse.saturating_sub(taken);
    (needed, root)
}

/// Segments of a root of `len` bytes: where it is several, roots of about the same length take the same room in turn.
fn root_units(geometry: Geometry, len: u64) -> u32 {
    match len.div_ceil(geometry.segment_size()) {
        few @ 0..8 => few.next_power_of_two() as u32,
        more => more.next_multiple_of(8) as u32,
    }
}

fn part_len(geometry: Geometry, images_len: u64) -> u64 {
    (images_len / PARTS).max(PART_SEGMENTS_MIN * geometry.segment_size())
}

impl Core {
    /// Writes a superblock so that it is durable, and makes it current in memory. What it names is durable
    /// before, and so is the slot of the one before: else a cut in here could leave neither.
    pub(super) fn write_super(&self, state: &mut Checkpoint, payload: Super) -> Result<()> {
        self.write_super_by(state, payload, |block, bytes| {
            self.log.write_durably(block.slot_offset(), bytes)
        })
    }

    /// As `write_super`, but durable with the next sync only.
    pub(super) fn write_super_lazily(&self, state: &mut Checkpoint, payload: Super) -> Result<()> {
        self.write_super_by(state, payload, |block, bytes| {
            self.log.storage().write_at(block.slot_offset(), bytes)
        })
    }

    fn write_super_by(
        &self,
        state: &mut Checkpoint,
        payload: Super,
        write: impl FnOnce(&Superblock, &[u8]) -> Result<()>,
    ) -> Result<()> {
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
        if let Err(error) = write(&block, &block.encode()) {
            self.log.poison();
            return Err(error);
        }
        state.superblock = Some((sequence, payload));
        Ok(())
    }

    /// Syncs the storage whatever the log says is durable; a failure poisons.
    pub(super) fn sync_storage(&self) -> Result<()> {
        self.log.sync_now()
    }

    /// See the module's text. Does nothing if nothing was appended since the last one.
    pub(super) fn checkpoint(&self) -> Result<()> {
        self.checkpoint_in_parts(None)
    }

    /// With parts of so many bytes of images, if that is said.
    pub(super) fn checkpoint_in_parts(&self, part_len: Option<u64>) -> Result<()> {
        let mut state = self.checkpoint.lock();
        self.log.healthy()?;
        let retired = self.log.segments().retired();
        let (moment, mut stripes) = {
            let _alone = self.gate.alone();
            let start = self.log.end();
            let nothing_new = state
                .superblock
                .as_ref()
                .is_some_and(|(_, last)| last.start == start);
            if nothing_new && retired.is_empty() {
                return Ok(());
            }
            let moment = Moment {
                start,
                count: self.count(),
                log: self.log.segments().in_use(Use::Log),
            };
            (moment, self.index.take_dirty())
        };
        let appended = self.log.appended();
        let start = moment.start;
        let changed = stripes.clone();
        stripes.extend(self.stripes_in_sparse_runs(&state, &stripes));
        if self.log.segments().is_full() {
            // Run by run, so that each is free as soon as may be.
            stripes.sort_unstable_by_key(|stripe| state.images[*stripe].extent.offset);
        }
        if let Err(error) = self.write_checkpoint(&mut state, moment, &stripes, part_len) {
            for stripe in changed {
                self.index.mark_dirty(stripe);
            }
            // What it wrote is nobody's, and its room is wanted: it may have failed for want of it.
            if !self.log.is_poisoned() {
                state.parts.start_new_run();
                self.release_images(&state);
            }
            return Err(error);
        }
        state.appended = appended;
        self.keep_for_checkpoint(&state);
        *self.replay_from.lock() = start.1;
        self.log.segments().release(&retired);
        self.release_images(&state);
        Ok(())
    }

    fn write_checkpoint(
        &self,
        state: &mut Checkpoint,
        moment: Moment,
        stripes: &[usize],
        part_len: Option<u64>,
    ) -> Result<()> {
        let Some((_, last)) = state.superblock.clone() else {
            unreachable!("an open file has a superblock")
        };
        let salt = last.geometry.salt;
        let part_len = part_len.unwrap_or_else(|| self.part_len(state));
        let mut images = state.images.clone();
        let mut entries = Vec::new();
        let mut written = 0;
        state.keep_together(self.log.geometry());
        for &stripe in stripes {
            if written >= part_len {
                let before = Moment {
                    start: last.start,
                    count: last.count,
                    log: state.log.clone(),
                };
                self.publish(state, images.clone(), before)?;
                self.release_images(state);
                self.log.segments().reap_patiently(part_len / 2);
                written = 0;
            }
            self.index.warm(stripe)?;
            entries.clear();
            self.index.capture(stripe, &mut entries);
            images[stripe] = if entries.is_empty() {
                Image::default()
            } else {
                let bytes = image::encode(&mut entries);
                let seed = image_seed(salt, stripe);
                let extent = state.parts.write(&self.log, &bytes, seed)?;
                written += extent.len;
                Image {
                    count: entries.len() as u32,
                    extent,
                }
            };
        }
        self.publish(state, images, moment)
    }

    /// Has the log keep so many free segments as the next checkpoint may need.
    pub(super) fn keep_for_checkpoint(&self, state: &Checkpoint) {
        let segments = self.log.segments();
        let log = segments.in_use(Use::Log).len();
        let geometry = self.log.geometry();
        let taken = segments.in_use(Use::Other).iter().map(|s| s.units).sum();
        let (units, root) = need(geometry, state.images_len(), self.count(), log, taken);
        segments.keep_for_checkpoint(units, root);
    }

    /// Bytes of images between two roots.
    fn part_len(&self, state: &Checkpoint) -> u64 {
        part_len(self.log.geometry(), state.images_len())
    }

    /// Writes a root of `images` and makes it the file's: `moment` is where replay begins.
    fn publish(&self, state: &mut Checkpoint, images: Vec<Image>, moment: Moment) -> Result<()> {
        let Some((_, mut payload)) = state.superblock.clone() else {
            unreachable!("an open file has a superblock")
        };
        let Moment { start, count, log } = moment;
        let geometry = self.log.geometry();
        // The root lists its own run too: it is taken before the list is made.
        let room = (present(&images).count() * 24
            + log.len() * 24
            + self.log.segments().in_use(Use::Other).len() * 8
            + 64) as u64;
        // A long one stands alone: an image beside it would hold its whole run when the root is long replaced.
        let mut alone = Parts::default();
        let (writing, room) = if room > geometry.segment_size() {
            let units = u64::from(root_units(geometry, room));
            (&mut alone, units << geometry.shift)
        } else {
            (&mut state.parts, room)
        };
        writing.make_room(&self.log, room)?;
        // Only runs that this checkpoint needs: the others are free once it is durable, and a recovery
        // may find anything in them.
        let extents = present(&images).map(|(_, extent)| extent);
        let other = parts::needed(&self.log, extents, *writing);
        let needed = Needed { log, other };
        let root = Root { images, needed };
        let extent = writing.write(&self.log, &root.encode(), geometry.salt ^ ROOT_SEED)?;
        self.sync_storage()?;
        payload.start = start;
        payload.durable = self.log.durable();
        payload.root = Some(extent);
        payload.next_sequence = self.log.next_sequence();
        payload.count = count;
        self.write_super(state, payload)?;
        state.images = root.images;
        state.log = root.needed.log;
        state.keep_together(geometry);
        Ok(())
    }

    /// Stripes to write again so that runs which hold little become free. Of a full store, runs that will hold little
    /// when the `changed` ones are gone.
    fn stripes_in_sparse_runs(&self, state: &Checkpoint, changed: &[usize]) -> Vec<usize> {
        let is_full = self.log.segments().is_full();
        let stays = |stripe: usize| changed.binary_search(&stripe).is_err();
        let counted = present(&state.images).filter(|(stripe, _)| !is_full || stays(*stripe));
        let counted = counted.map(|(_, extent)| extent).chain(state.root());
        let sparse = parts::sparse(&self.log, counted);
        present(&state.images)
            .filter(|(stripe, extent)| sparse.holds(extent.offset) && stays(*stripe))
            .map(|(stripe, _)| stripe)
            .collect()
    }

    /// Frees the runs that the checkpoint just made does not need.
    fn release_images(&self, state: &Checkpoint) {
        let images = present(&state.images).map(|(_, extent)| extent);
        parts::release_idle(&self.log, images.chain(state.root()), state.parts);
    }

    /// Reads a stripe's image and verifies it.
    pub(super) fn read_image(
        storage: &dyn Storage,
        salt: u32,
        stripe: usize,
        image: Image,
    ) -> Result<Vec<u64>> {
        if image.is_empty() {
            return Ok(Vec::new());
        }
        let what = "a part of the index checkpoint";
        let bytes = read_extent(storage, image.extent, image_seed(salt, stripe), what)?;
        image::decode(&bytes, image.count).ok_or_else(|| {
            Error::new(Kind::Corrupted, format!("{what} is damaged"))
                .at(storage.path())
                .offset(image.extent.offset)
                .detail(format!("it does not hold {} entries", image.count))
                .remedy(remedy(storage))
        })
    }
}
