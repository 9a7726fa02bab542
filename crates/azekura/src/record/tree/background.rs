//! The background work of an open file, and what writers do where there is none, or where it is not enough.
//!
//! | due | when | by |
//! |---|---|---|
//! | a checkpoint | the journal since the last one, or the units that wait for one, are an eighth of the file, from 64 MiB to 256 MiB | the worker; at twice that, the writer |
//! | writing pages | a quarter of the cache is dirty, or few frames are idle | the worker; at three eighths, the writer |
//! | room in a full store | an update finds none | the writer: a checkpoint frees what only the last one needs |
//!
//! A thread that waits here holds nothing: it is before the gate. An update from inside another store's closure waits for nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::layout::UNIT;
use super::{Core, is_full};
use crate::epoch;
use crate::error::{Kind, Result};
use crate::log::{AllocationClass, LogPosition, Patience};
use crate::worker::maintenance::{Maintain, Maintenance};
use crate::worker::{Next, Worker};

/// Bounds of the journal between two checkpoints.
const INTERVAL_MIN: u64 = 64 << 20;
const INTERVAL_MAX: u64 = 256 << 20;
/// Bytes that the notes of an update's divisions take, at most.
const NOTES: u64 = 1024;
/// And at least so many segments, and at most such a part of the capacity.
const INTERVAL_SEGMENTS: u64 = 4;
const PART_OF_CAPACITY: u64 = 8;

/// `Io` if the system gives no thread.
pub(super) fn start(core: &Arc<Core>) -> Result<Worker> {
    let background = Background {
        core: Arc::clone(core),
        position: core.log.end().position(),
    };
    let task = Maintenance::new(background, core.options.sync_interval);
    Worker::start("tree", core.log.storage().path(), &core.notify, task)
}

struct Background {
    core: Arc<Core>,
    /// What the log had when puts that wait were looked at.
    position: LogPosition,
}

impl Background {
    /// What waits in the change buffer takes room of the cache: where nothing was written for a while, it is merged.
    fn merge_what_rests(&mut self, woken: bool) -> Result<Next> {
        if self.core.tree.nodes.buffer.pages() == 0 {
            return Ok(Next::Idle);
        }
        let position = self.core.log.end().position();
        let rests = !woken && position == self.position;
        self.position = position;
        if rests {
            return Ok(if self.core.merge_some()? {
                Next::Now
            } else {
                Next::Idle
            });
        }
        Ok(Next::After(RESTING))
    }
}

impl Maintain for Background {
    fn owes_sync(&self) -> bool {
        true
    }

    fn sync(&mut self) -> Result<()> {
        self.core.log.sync()
    }

    fn work(&mut self, woken: bool) -> Result<Next> {
        self.core.log.segments().reap();
        if woken {
            self.core.keep_for_checkpoint();
            self.core.log.segments().prepare(2)?;
        }
        if self.core.step()? {
            return Ok(Next::Now);
        }
        self.merge_what_rests(woken)
    }

    fn is_healthy(&self) -> bool {
        self.core.log.healthy().is_ok()
    }
}

/// After so long without a write, what waits in the change buffer is merged.
const RESTING: Duration = Duration::from_secs(1);
/// How often room is won for a removal, at most.
const REMOVAL_ROUNDS: u32 = 16;

impl Core {
    fn wake(&self) {
        if self.options.background {
            self.notify.notify();
        }
    }

    /// Whether an update is to look twice.
    #[inline(always)]
    pub(super) fn is_attention_due(&self) -> bool {
        self.log.appended() >= self.wake_at.load(Ordering::Relaxed)
            || self.log.is_alarmed()
            || self.is_too_dirty(3)
            || self.tree.nodes.buffer.is_nearly_full()
    }

    /// Whether so many eighths of the cache are dirty.
    #[inline(always)]
    fn is_too_dirty(&self, eighths: u64) -> bool {
        let pages = &self.tree.nodes;
        // What waits takes room of the cache, too.
        let eighths = eighths - u64::from(pages.buffer.pages() > 0);
        pages.dirty() * 8 > u64::from(pages.limit()) * eighths
    }

    /// Before an update that may append `len` bytes. Errors: `Full`, or what the work met.
    #[cold]
    pub(super) fn attend(&self, class: AllocationClass, len: usize) -> Result<()> {
        self.log.placed()?;
        if epoch::is_within_update() {
            self.wake();
            return Ok(());
        }
        if self.log.appended() >= self.wake_at.load(Ordering::Relaxed) {
            let next = self.log.appended() + self.log.geometry().segment_size();
            self.wake_at.store(next, Ordering::Relaxed);
            self.keep_for_checkpoint();
            self.wake();
            if !self.options.background {
                Self::unless_full(self.step())?;
            } else if self.is_checkpoint_due(2) {
                Self::unless_full(self.checkpoint())?;
            }
        }
        if self.tree.nodes.buffer.is_nearly_full() {
            self.wake();
            Self::unless_full(self.merge_few())?;
            self.bound_versions();
        }
        if self.is_too_dirty(3) {
            self.wake();
            self.clean_some()?;
        }
        if self.log.segments().is_full() {
            self.relieve(class, len)?;
        }
        Ok(())
    }

    /// Readers need clean pages that can give way: dirty ones are not to take all of the cache.
    pub(super) fn clean_for_readers(&self) -> Result<()> {
        while self.is_too_dirty(3) && self.clean_some()? > 0 {}
        Ok(())
    }

    /// Writes some dirty pages: where only a checkpoint may take room, in one; how many are clean now.
    fn clean_some(&self) -> Result<u64> {
        let pages = &self.tree.nodes;
        match pages.write_back_some(false) {
            Err(error) if error.kind() == Kind::Full => {
                let before = pages.dirty();
                self.win_room()?;
                Ok(before.saturating_sub(pages.dirty()))
            }
            other => Ok(other? as u64),
        }
    }

    /// That there is no room for background work is no reason to refuse an update that may need none.
    pub(super) fn unless_full<T>(done: Result<T>) -> Result<()> {
        match done {
            Err(error) if error.kind() != Kind::Full => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes room in a full store for an update: what only the last checkpoint needs is free when the next is durable.
    fn relieve(&self, class: AllocationClass, len: usize) -> Result<()> {
        if self.has_room(class, len) {
            return Ok(());
        }
        self.win_room()?;
        while !self.has_room(class, len) && self.end_snapshot_for_room() {
            self.win_room()?;
        }
        self.log.admit(class, len.max(8))
    }

    /// Before an update of which it is not known yet whether it stores something, of so many bytes at least: what a put would do.
    pub(super) fn win_room_for(&self, len: usize) -> Result<()> {
        let class = AllocationClass::Growth;
        if self.log.segments().is_full() && !self.has_room(class, len) && !epoch::is_within_update()
        {
            self.log.healthy()?;
            Self::unless_full(self.win_room())?;
            while !self.has_room(class, len) && self.end_snapshot_for_room() {
                Self::unless_full(self.win_room())?;
            }
        }
        Ok(())
    }

    /// Whether so many bytes may be appended, and the notes of divisions with them.
    fn has_room(&self, class: AllocationClass, len: usize) -> bool {
        match class {
            AllocationClass::Growth | AllocationClass::Exchange => {
                self.log.admit(class, len.max(8)).is_ok()
            }
            _ => {
                let needed = len as u64 + NOTES;
                let units = needed.div_ceil(self.log.geometry().segment_size());
                self.log.room_in_open() >= needed
                    || self.log.segments().space().is_left(units as u32, class)
            }
        }
    }

    /// Makes room in a full store, in which nothing waits afterwards: who reads is not to find the cache full of pages that cannot be written.
    pub(super) fn win_room(&self) -> Result<()> {
        self.free_superseded()?;
        if self.log.segments().is_full() {
            Self::unless_full(self.unless_damaged(self.merge_all_with_room()))?;
            self.keep_for_checkpoint();
        }
        Ok(())
    }

    /// Makes a checkpoint: what only the one before needed is free.
    pub(super) fn free_superseded(&self) -> Result<()> {
        self.checkpoint()?;
        self.log.segments().reap_to_the_last();
        let mut patience = Patience::short();
        // What this thread holds itself is not let go of while it waits.
        while !self.tree.nodes.space.room().reap_all() && !patience.is_over() && !epoch::is_pinned()
        {
            patience.wait();
        }
        self.release_empty();
        self.keep_for_checkpoint();
        Ok(())
    }

    /// Does an update that finds no room in a full store once more, when room was won; what snapshots hold is room, too. A removal is
    /// tried again where others have taken what was won.
    pub(super) fn with_room<T>(
        &self,
        class: AllocationClass,
        mut update: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut done = update();
        if !is_full(&done) || epoch::is_within_update() {
            return done;
        }
        let mut rounds = match class {
            AllocationClass::Removal => REMOVAL_ROUNDS,
            _ => 1,
        };
        while is_full(&done) && rounds > 0 {
            let appended = self.log.appended();
            self.win_room()?;
            done = update();
            if is_full(&done) && !self.end_snapshot_for_room() {
                let is_taken = self.log.appended() != appended;
                rounds = if is_taken { rounds - 1 } else { 0 };
            }
        }
        done
    }

    /// One bounded step; whether there may be more to do.
    fn step(&self) -> Result<bool> {
        // Who reads merges what waits, too.
        self.bound_versions();
        if self.is_checkpoint_due(1) {
            self.checkpoint()?;
            return Ok(true);
        }
        let pages = &self.tree.nodes;
        let are_few_idle = pages.idle() < pages.limit() / 64 && pages.dirty() > 0;
        if self.is_too_dirty(2) {
            return Ok(self.clean_some()? > 0);
        }
        if pages.is_buffer_used(6) {
            return self.merge_some();
        }
        if are_few_idle {
            pages.evict(pages.limit() / 32);
            return Ok(false);
        }
        Ok(false)
    }

    pub(super) fn maintain(&self) -> Result<()> {
        self.log.healthy()?;
        self.log.segments().reap();
        self.step().map(|_| ())
    }

    /// Whether the journal, or what waits for a checkpoint, is so many times as long as it should be.
    fn is_checkpoint_due(&self, times: u64) -> bool {
        // One that is being made is the one that is due; writers wait for it when they are far ahead.
        if times == 1 && self.checkpoint.try_lock().is_none() {
            return false;
        }
        let from = self.journal_from.load(Ordering::Relaxed);
        let journal = self.log.appended().wrapping_sub(from);
        let room = self.tree.nodes.space.room().sizes();
        let part = room.live() * UNIT / 8;
        let segment = self.log.geometry().segment_size();
        let bounded = |interval: u64| {
            let most = self.options.capacity / PART_OF_CAPACITY;
            interval.min(most).max(INTERVAL_SEGMENTS * segment)
        };
        journal >= times * bounded(part.clamp(INTERVAL_MIN, INTERVAL_MAX))
            || room.waiting * UNIT >= times * bounded(part.max(INTERVAL_MIN))
    }
}
