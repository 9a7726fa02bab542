//! The size of the cache, changed while the store is open.
//!
//! | step of a reduction | frames above the new limit |
//! |---|---|
//! | 1 alone, without updates: lower the limit | are not taken any more; what is given back stays aside |
//! | 2 empty each: a clean page is on storage from now on, a changed one moves to a frame below | are given back one by one |
//! | 3 when all were given back, alone: lower the number of frames made | are found by no thread from now on |
//! | 4 when the grace period has elapsed, return their memory to the system | read as zeros |
//!
//! Frames are numbered, and those in use are the ones below `made`: so what is returned is one range of memory. A thread that touches a frame's
//! latch is pinned, inside an update, holds the lock of the checkpoint, or that of who writes pages; step 4 excludes all four, as no frame
//! that is held, or waited for, may become zeros. The lock of the checkpoint is held throughout, so no checkpoint looks for dirty pages while
//! they move. Where step 4 is not possible yet - a thread is pinned for long, perhaps the caller - a later checkpoint does it, and frames
//! that are needed again before are used as they are. The version of a frame that is made later is one that none had before: cursors
//! remember versions while they are not pinned.
//!
//! It does not know what pages hold.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cache::{FRESH, NO_PAGE, PageCache, Retired, check_size, frames_of};
use super::layout::Place;
use super::table::Location;
use super::{Core, TreeDb};
use crate::epoch;
use crate::error::{Error, Kind, Result};
use crate::explore;
use crate::log::{AllocationClass, Patience};
use crate::node::tree::Frame;
use crate::record::gate;

/// Memory that is returned to the system while no thread may take a frame, at a time.
const STEP: u64 = 4 << 20;
/// Between two looks for frames that others still have.
const PAUSE: Duration = Duration::from_micros(100);

impl TreeDb {
    /// Changes how many bytes of pages are kept in memory: at least 256 KiB, and 64 pages, as
    /// [`OpenOptions::cache`](super::OpenOptions::cache), which holds again when the store is opened the next time.
    ///
    /// Others read and write meanwhile; updates wait for those that are under way, twice, and a checkpoint that is being made is waited for. To
    /// reduce it costs some hundred nanoseconds for each page that gives way, and the writing of changed ones that have no place in the rest;
    /// their memory is returned to the system before it returns, unless a thread that reads, perhaps this one, may still look at it: then a
    /// later checkpoint returns it. To reduce it, puts that wait for their leaf are merged first, which reads the leaves. Errors, after which the
    /// cache is as large as before: `Invalid` for fewer bytes, and inside the closure of an update; `Corrupted` if such a leaf cannot be read;
    /// `Full` where a store has no room for what more changed pages may need; `Full`, `Io`, `Poisoned` if changed pages cannot be written.
    pub fn set_cache(&self, bytes: u64) -> Result<()> {
        gate::outside_updates()?;
        check_size(bytes).map_err(|error| error.at(self.core.log.storage().path()))?;
        self.core.set_cache(bytes)
    }
}

impl Core {
    fn set_cache(&self, bytes: u64) -> Result<()> {
        let pages = &self.tree.nodes;
        let limit = frames_of(bytes, pages.shape);
        let mut merged = None;
        while !self.set_limit_with_room(limit, merged.is_some())? {
            // Frames that hold blocks of the change buffer do not give way.
            merged = Some(self.merged()?);
        }
        let mut patience = Patience::short();
        while !self.return_frames() && !epoch::is_pinned() && !patience.is_over() {
            patience.wait();
        }
        Ok(())
    }

    /// Lets there be so many frames; `false`, and nothing is done: they are fewer than there are, and not all that waits `is_merged`.
    fn set_limit_with_room(&self, limit: u32, is_merged: bool) -> Result<bool> {
        let pages = &self.tree.nodes;
        self.with_room(AllocationClass::Exchange, || {
            let _checkpoint = self.checkpoint.lock();
            if limit < pages.limit() && !is_merged {
                return Ok(false);
            }
            pages.return_retired();
            let before = {
                // No update holds more pages than the new limit lets it.
                let _alone = self.gate.alone();
                let before = pages.set_limit(limit);
                self.keep_for_checkpoint();
                if limit > before && !self.log.segments().space().fits_what_is_urgent(0) {
                    pages.set_limit(before);
                    self.keep_for_checkpoint();
                    return Err(self.too_full_for(limit));
                }
                before
            };
            let emptied = pages.empty_above(limit);
            // Those that still have such a frame in hand have ended.
            let _alone = self.gate.alone();
            if let Err(error) = emptied {
                pages.set_limit(before);
                self.keep_for_checkpoint();
                return Err(error);
            }
            pages.retire_above(limit);
            Ok(true)
        })
    }

    /// The error of a cache whose pages a checkpoint might not find room for.
    fn too_full_for(&self, limit: u32) -> Error {
        let bytes = u64::from(limit) << self.tree.nodes.shape.shift();
        let what = format!("the file is too full for a cache of {bytes} bytes");
        Error::new(Kind::Full, what)
            .at(self.log.storage().path())
            .remedy("remove records first, or open the file with more capacity")
    }

    /// Returns the memory of retired frames; whether none is left.
    fn return_frames(&self) -> bool {
        let _checkpoint = self.checkpoint.lock();
        self.tree.nodes.return_retired()
    }
}

impl PageCache {
    /// Lets there be so many frames; how many there might be before. What is idle above is set aside, what was set aside below is idle.
    fn set_limit(&self, limit: u32) -> u32 {
        let mut free = self.free.lock();
        let before = self.limit.swap(limit, Ordering::Relaxed);
        let free = &mut *free;
        free.idle.append(&mut free.leaving);
        let is_above = |number: &mut u32| *number >= limit;
        free.leaving.extend(free.idle.extract_if(.., is_above));
        self.fit_buffer();
        before
    }

    /// Empties all frames above a limit that was just set, until all of them were given back.
    fn empty_above(&self, limit: u32) -> Result<()> {
        loop {
            let made = self.made();
            for number in limit..made {
                self.empty_frame(number)?;
            }
            // Some may be between two owners.
            if self.free.lock().leaving.len() as u32 == made.saturating_sub(limit) {
                return Ok(());
            }
            if !explore::wait() {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Has a frame hold nothing: its page is on storage only, if it is there as it is, else in a frame below the limit.
    fn empty_frame(&self, number: u32) -> Result<()> {
        let frame = self.at(number);
        let about = self.about(number);
        let is_clean = || {
            about.first_dirty.load(Ordering::Relaxed) == 0
                && frame.words[0].load(Ordering::Relaxed) != FRESH
        };
        let mut spare = None;
        let done = loop {
            let Some(page) = Self::page_in(frame) else {
                break Ok(());
            };
            if spare.is_none() && !is_clean() {
                match self.free_frame() {
                    Ok(number) => spare = Some(number),
                    Err(error) => break Err(error),
                }
            }
            let lock = frame.latch.lock();
            if Self::page_in(frame) != Some(page) {
                continue;
            }
            let location = if is_clean() {
                Location::Cold(Place(about.place.load(Ordering::Relaxed)))
            } else if let Some(spare) = spare.take() {
                self.fill_from(spare, frame);
                Location::Hot(spare)
            } else {
                continue;
            };
            // Readers of the old contents see that it changes before anybody finds the page elsewhere.
            lock.change();
            if matches!(location, Location::Cold(_)) {
                self.note_room(page, frame);
            }
            self.table.set(page, location);
            about.first_dirty.store(0, Ordering::Relaxed);
            frame.words[1].store(NO_PAGE, Ordering::Relaxed);
            lock.set_dead(true);
            drop(lock);
            self.give_frame(number);
            break Ok(());
        };
        if let Some(spare) = spare {
            self.give_frame(spare);
        }
        done
    }

    /// Has a frame that holds nothing hold what another one does, whose latch is held.
    fn fill_from(&self, number: u32, from: &Frame) {
        let to = self.at(number);
        let lock = to.latch.lock();
        lock.change();
        for (to, from) in self.words(to).iter().zip(self.words(from)) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let (to, from) = (self.about(number), self.about(self.number_of(from)));
        for (to, from) in [
            (&to.place, &from.place),
            (&to.first_dirty, &from.first_dirty),
            (&to.stamp, &from.stamp),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        lock.set_dead(false);
    }

    /// No frames but those below a limit are made any more: all others were given back. Alone.
    fn retire_above(&self, limit: u32) {
        let mut free = self.free.lock();
        let made = self.made();
        if made <= limit {
            return;
        }
        free.leaving = Vec::new();
        let end = match &free.retired {
            Some(retired) => retired.frames.end.max(made),
            None => made,
        };
        self.made.store(limit, Ordering::Release);
        free.retired = Some(Retired {
            frames: limit..end,
            epoch: self.log.domain().retire_epoch(),
        });
    }

    /// Returns the memory of retired frames to the system, if no thread can hold one; whether none is left. The lock of the checkpoint is
    /// held.
    pub(super) fn return_retired(&self) -> bool {
        loop {
            // No page is being copied from one.
            let _writer = self.writer.lock();
            let mut free = self.free.lock();
            let Some(retired) = &mut free.retired else {
                return true;
            };
            if retired.frames.is_empty() {
                free.retired = None;
                return true;
            }
            if !self.log.domain().has_elapsed(retired.epoch) {
                return false;
            }
            let count = (STEP >> self.shape.shift()) as u32;
            let Range { start, end } = retired.frames;
            let from = end.saturating_sub(count).max(start);
            retired.frames.end = from;
            let bytes = u64::from(end - from) << self.shape.shift();
            free.returns += 1;
            self.frames
                .discard(u64::from(from) << self.shape.shift(), bytes);
        }
    }
}
