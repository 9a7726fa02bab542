//! Checkpoints: the whole store as it was at a cut, written while writers continue.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 take the cut P, where the log ends; wait for changes that began before it; append again what waits in the change buffer (`merge`) | the old checkpoint |
//! | 2 write each page that was dirty at P as it was then (`write_back`) | the old one; what was written is named by nothing |
//! | 3 write the changed chunks of the page table, and the bitmaps, as of P | the old one |
//! | 4 the root; sync: pages, parts, and the journal up to P; the superblock (`kernel::checkpoint`) | the old one or the new |
//! | 5 what only the old one needed is free: units, page numbers, segments of the journal before P | the new one |
//!
//! While it is written, a page that changes is kept as it was, once, if it is still to be written; writers do nothing else for
//! it. What fails leaves the old checkpoint, and what was written is written again by the next one, where it changed.
//!
//! It does not know when it is due.

use std::sync::atomic::Ordering;

use super::Core;
use super::cache::PageCache;
use super::cut::Taking;
use super::layout::{CHUNK, Place, Root, Super, UNIT, bitmap_seed, chunk_seed};
use super::space::SpaceSizes;
use super::table::Location;
use crate::error::{Kind, Result};
use crate::kernel::changes::CheckpointNumber;
use crate::kernel::{Committed, NextCheckpoint};
use crate::log::manifest::{Extent, Needed};
use crate::log::{End, Log, Reserve, Use, parts};

/// Bytes of the journal in which a page may come in, whatever its size: pages that are full to the brim, as a load leaves them, divide at each put.
const RECORDS_PER_PAGE: u64 = 1024;
/// Segments that a checkpoint may need besides pages and parts.
const SPARE: u64 = 3;
/// Segments that what growth appends to one segment of the journal may take: a page for each two kibibytes of it, and as much that
/// the next checkpoint may need.
const COMING: u32 = 4;
/// Segments of what waits in the change buffer that a segment of the journal may add.
const WAITING_PER_SEGMENT: u64 = 2;
/// Checkpoints that were copied which a store knows, at most.
const COPIED_MAX: usize = 64;

/// The last checkpoint, and where the next one's parts go.
#[derive(Debug)]
pub(super) struct Checkpoint {
    /// What the kernel keeps of it.
    pub(super) committed: Committed<Super>,
    /// Parts of its bitmaps.
    pub(super) bitmaps: Vec<Extent>,
    /// Which one it is.
    pub(super) moment: CheckpointNumber,
    /// Those that copies were made of, oldest first.
    pub(super) copied: Vec<CheckpointNumber>,
    /// The next one is to be copied.
    pub(super) is_to_be_copied: bool,
}

impl Checkpoint {
    /// Where replay begins.
    pub(super) fn start(&self) -> End {
        self.committed.superblock.payload.start
    }
}

/// A moment whose state is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Its position.
    at: u64,
    /// Where replay will begin.
    end: End,
    /// `Log::appended`.
    appended: u64,
}

/// Parts that are there.
fn present(parts: &[Extent]) -> impl Iterator<Item = Extent> + '_ {
    parts.iter().copied().filter(|part| part.len > 0)
}

impl Core {
    /// See the module's text. Does nothing if nothing changed since the last one. What snapshots hold is room for it, too.
    pub(super) fn checkpoint(&self) -> Result<()> {
        loop {
            match self.checkpoint_once() {
                Err(error) if error.kind() == Kind::Full && self.end_snapshot_for_room() => {}
                done => return done,
            }
        }
    }

    /// As [`checkpoint`](Self::checkpoint), of changes that are alone, while its lock is held, even if there are none.
    pub(super) fn checkpoint_alone(&self, state: &mut Checkpoint) -> Result<()> {
        loop {
            self.log.healthy()?;
            let cut = self.take_cut();
            match self.write_at(state, cut) {
                Err(error) if error.kind() == Kind::Full && self.end_snapshot_for_room() => {}
                done => return done,
            }
        }
    }

    /// As [`checkpoint_alone`](Self::checkpoint_alone), one that is to be copied: it states that it is. Does nothing if it does already,
    /// and nothing changed since.
    pub(super) fn checkpoint_to_copy(&self, state: &mut Checkpoint) -> Result<()> {
        let is_last = state.start() == self.log.end();
        if is_last && self.tree.nodes.dirty() == 0 && state.copied.last() == Some(&state.moment) {
            return self.log.healthy();
        }
        state.is_to_be_copied = true;
        let done = self.checkpoint_alone(state);
        state.is_to_be_copied = false;
        done
    }

    fn checkpoint_once(&self) -> Result<()> {
        let mut state = self.checkpoint.lock();
        self.log.healthy()?;
        let pages = &self.tree.nodes;
        if pages.is_replaying() {
            return Ok(());
        }
        let start = state.start();
        let is_named = state.committed.superblock.payload.root.is_some();
        if is_named && start == self.log.end() && pages.dirty() == 0 {
            return Ok(());
        }
        let cut = self.take_cut();
        self.sums.rest_unless_used();
        self.write_at(&mut state, cut)
    }

    /// Step 1, while the last checkpoint's lock is held.
    pub(super) fn take_cut(&self) -> Cut {
        let pages = &self.tree.nodes;
        let appended = self.log.appended();
        let taking = pages.cuts.taking();
        let (at, end) = {
            let _writer = pages.writer.lock();
            // Writers wait while a cut is taken: the room is not waited for meanwhile.
            let mut room = pages.space.room();
            let publish = |cut| room.begin_cut(cut);
            pages.cuts.take(&taking, || pages.end_as_cut(), publish)
        };
        self.count_from_cut(&taking, at);
        Cut { at, end, appended }
    }

    /// Begins to know the number of records at the cut that was just taken: all changes before it have changed their pages, or wait for them, when this
    /// returns.
    pub(super) fn count_from_cut(&self, _: &Taking, cut: u64) {
        self.log.domain().wait_for_critical_sections();
        let pages = &self.tree.nodes;
        pages.counts.begin_cut(cut, pages.cuts.counter_before());
    }

    /// The other steps.
    pub(super) fn write_at(&self, state: &mut Checkpoint, cut: Cut) -> Result<()> {
        let pages = &self.tree.nodes;
        let Cut { end, appended, .. } = cut;
        let done = self.write_checkpoint(state, cut);
        {
            let taking = pages.cuts.taking();
            let _writer = pages.writer.lock();
            pages.space.room().end_cut(done.is_ok());
            pages.forget_versions(&taking, cut.at);
        }
        pages.counts.end_cut(cut.at);
        if let Ok(again) = &done {
            // What was appended counts by segments.
            let appended = (appended + *again).min(self.log.appended());
            state.committed.appended = appended;
            self.journal_from.store(appended, Ordering::Relaxed);
            *self.replay_from.lock() = end.position();
            *self.moment.lock() = state.moment;
            self.log.release_before(end);
            self.release_empty();
        } else if !self.log.is_poisoned() {
            state.committed.parts.start_new_run();
        }
        if !self.log.is_poisoned() {
            let extents = pages.table.extents();
            let named = present(&extents).chain(present(&state.bitmaps));
            state.committed.release_idle(&self.log, named);
        }
        pages.return_retired();
        self.keep_for_checkpoint();
        self.bound_snapshots();
        done.map(drop)
    }

    /// How many bytes were appended again.
    fn write_checkpoint(&self, state: &mut Checkpoint, cut: Cut) -> Result<u64> {
        let pages = &self.tree.nodes;
        let again = self.settle_waiting(cut.at)?;
        pages.save_all(cut.at)?;
        pages.save_versions(cut.at)?;
        let mut written = Vec::new();
        let done = self.write_parts(state, cut, &mut written);
        if done.is_err() {
            pages.table.mark_chunks_dirty(&written);
        }
        done.map(|()| again)
    }

    /// Gives the log the segments of groups in which nothing is in use: no checkpoint names them.
    pub(super) fn release_empty(&self) {
        let empty = self.tree.nodes.space.room().take_empty();
        self.log.segments().release_at_once(&empty);
    }

    /// Steps 3 and 4; the chunks that were written are added to `written`.
    fn write_parts(
        &self,
        state: &mut Checkpoint,
        Cut { at, end, .. }: Cut,
        written: &mut Vec<usize>,
    ) -> Result<()> {
        let pages = &self.tree.nodes;
        let salt = self.log.geometry().salt;
        let given_out = pages.space.room().pages();
        let mut chunks = pages.table.extents();
        chunks.resize((given_out as usize).div_ceil(CHUNK), Extent::default());
        let mut dirty = pages.table.dirty();
        dirty.retain(|number| *number < chunks.len());
        let mut stays: Vec<bool> = chunks.iter().map(|extent| extent.len > 0).collect();
        for number in &dirty {
            stays[*number] = false;
        }
        let numbered = chunks.iter().zip(&stays);
        let counted = numbered.filter_map(|(extent, stays)| stays.then_some(*extent));
        let sparse = parts::sparse(
            &self.log,
            counted.chain(state.committed.root.iter().copied()),
        );
        let is_sparse = |number: &usize| stays[*number] && sparse.holds(chunks[*number].offset);
        dirty.extend((0..chunks.len()).filter(is_sparse));
        for number in dirty {
            match pages.load_chunk((number * CHUNK) as u32) {
                // What is only to be elsewhere stays where it is.
                Err(_) if stays[number] => continue,
                loaded => drop(loaded?),
            }
            written.push(number);
            pages.table.begin_write(number);
            let bytes = pages.chunk_at_cut(number);
            chunks[number] = if bytes.iter().all(|byte| *byte == 0) {
                Extent::default()
            } else {
                let seed = chunk_seed(salt, number);
                state.committed.parts.write(&self.log, &bytes, seed)?
            };
        }
        let mut bitmaps = Vec::new();
        let (parts, is_changed) = pages.space.room().parts_at_cut(state.moment.number);
        let mut moment = state.moment;
        // Of the same units is of the same records: none is written over while it is named.
        if is_changed || state.committed.superblock.payload.root.is_none() {
            moment = CheckpointNumber {
                number: moment.number + 1,
                drawn: self.log.storage().entropy(),
            };
        }
        let mut copied = state.copied.clone();
        if state.is_to_be_copied && copied.last() != Some(&moment) {
            copied.push(moment);
            copied.drain(..copied.len().saturating_sub(COPIED_MAX));
        }
        for part in parts {
            let extent = state
                .committed
                .parts
                .write(&self.log, &part, bitmap_seed(salt))?;
            bitmaps.push(extent);
        }
        let mut log = self.log.segments().in_use(Use::Log);
        log.retain(|segment| segment.sequence == end.sequence());
        let others = self.log.segments().in_use(Use::Other).len() as u64;
        let extents: Vec<Extent> = present(&chunks).chain(present(&bitmaps)).collect();
        let mut root = Root {
            pages: given_out,
            moment,
            copied,
            chunks,
            bitmaps,
            needed: Needed {
                log,
                other: Vec::new(),
            },
        };
        let len = root.len_max(others);
        let mut encode = |other| {
            root.needed.other = other;
            root.encode()
        };
        let next = NextCheckpoint {
            start: end,
            len,
            images: &extents,
            encode: &mut encode,
        };
        let sync = || self.log.sync_now();
        let count = pages.counts.at_cut(at);
        (state.committed).commit(&self.log, next, sync, |payload| payload.count = count)?;
        pages.table.set_extents(&root.chunks);
        state.bitmaps = root.bitmaps;
        (state.moment, state.copied) = (root.moment, root.copied);
        Ok(())
    }

    /// Has the log keep what the next checkpoint may need: a place for each page that may be dirty, and the parts.
    pub(super) fn keep_for_checkpoint(&self) {
        let pages = &self.tree.nodes;
        let size = self.log.geometry().segment_size();
        let chunks = pages.table.chunks() as u64;
        let mut room = pages.space.room();
        let units = u64::from(pages.shape.units());
        let cache = (u64::from(pages.limit()), units, pages.dirty());
        let dirty = may_be_dirty(&room.sizes(), cache, size);
        let are_dirty = pages.dirty() * units;
        let reserve = reserve(&self.log, &room.sizes(), (dirty, are_dirty), chunks);
        let parts = u64::from(reserve.checkpoint) * (size / UNIT);
        let again = match pages.buffered_bytes() {
            0 => 0,
            bytes => bytes.div_ceil(size) + WAITING_PER_SEGMENT,
        };
        let reserve = Reserve {
            checkpoint: reserve.checkpoint + again as u32,
            ..reserve
        };
        room.keep(dirty.max(parts) + SPARE * (size / UNIT));
        drop(room);
        self.log.segments().keep(reserve);
    }
}

/// Units of pages that may be dirty until it is computed again, in so many frames, each of so many units, of which so many are dirty: as
/// many as a segment of the journal may add are among them.
pub(super) fn may_be_dirty(
    sizes: &SpaceSizes,
    (frames, units, dirty): (u64, u64, u64),
    segment_size: u64,
) -> u64 {
    // A page that is not dirty has an image. Of a chunk that was not read yet, all numbers count as pages.
    let pages = sizes.pages.min(sizes.used + dirty);
    (pages.min(frames) + segment_size / RECORDS_PER_PAGE) * units
}

/// What a checkpoint needs of the segments for so many units of pages that may be dirty, and that are, and chunks. A page without an
/// image keeps the units that it is written to, and the checkpoint after that needs as much again: as many as are dirty are such pages.
pub(super) fn reserve(
    log: &Log,
    sizes: &SpaceSizes,
    (dirty, are_dirty): (u64, u64),
    chunks: u64,
) -> Reserve {
    let size = log.geometry().segment_size();
    // Units that are free between others are as good as those of free segments.
    let missing = dirty.saturating_sub(sizes.free);
    let groups = (sizes.units * UNIT).div_ceil(size);
    let bitmaps = sizes.units / 8 + 24 * groups;
    let bytes = (missing + chunks) * UNIT + bitmaps + chunks * 16;
    Reserve {
        checkpoint: (bytes.div_ceil(size) + SPARE) as u32,
        coming: COMING + (are_dirty * UNIT).div_ceil(size) as u32,
        step: (log.segments().total() / 64).clamp(1, 8),
        slack: 0,
        reclaimable: 0,
    }
}

impl PageCache {
    /// Writes all pages that were dirty at a cut.
    fn save_all(&self, cut: u64) -> Result<()> {
        loop {
            // What fails elsewhere may keep this from ever ending.
            self.log.healthy()?;
            let frames = self.dirty_at(cut);
            if frames.is_empty() {
                return Ok(());
            }
            let mut saved = 0;
            for batch in frames.chunks(self.batch()) {
                let mut writer = self.writer.lock();
                saved += self.save(&mut writer, batch, true)?;
            }
            if saved == 0 {
                // They are held by others, who are waited for while nothing is.
                for number in frames {
                    drop(self.at(number).latch.lock());
                }
            }
        }
    }

    /// The places of a chunk's pages at the cut.
    fn chunk_at_cut(&self, number: usize) -> Vec<u8> {
        let first = (number * CHUNK) as u32;
        let room = self.space.room();
        let mut bytes = Vec::with_capacity(CHUNK * 8);
        let mut is_changed = false;
        for page in first..first + CHUNK as u32 {
            let place = match room.place_at_cut(page) {
                Some(place) => {
                    is_changed = true;
                    place
                }
                None => self.place(page),
            };
            bytes.extend_from_slice(&place.0.to_le_bytes());
        }
        drop(room);
        if is_changed {
            // The next checkpoint has other places.
            self.table.mark_dirty(first);
        }
        bytes
    }

    /// Where the newest image of a page is. The room is held: it does not change.
    fn place(&self, page: u32) -> Place {
        loop {
            let at = self.table.at(page);
            let number = match at {
                Location::Empty => return Place::NONE,
                Location::Cold(place) => return place,
                Location::Hot(number) | Location::Cool(number) => number,
            };
            let frame = self.at(number);
            let version = frame.latch.version();
            let place = Place(self.about(number).place.load(Ordering::Relaxed));
            let holds = Self::page_in(frame) == Some(page);
            let is_there = match self.table.at(page) {
                Location::Hot(now) | Location::Cool(now) => now == number,
                Location::Cold(_) | Location::Empty => false,
            };
            // Nor was it another page's in between.
            if holds && is_there && frame.latch.is_still(version) {
                return place;
            }
        }
    }
}
