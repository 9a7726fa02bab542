//! When what waits in the change buffer is merged, and what becomes of it at a checkpoint.
//!
//! | when | what |
//! |---|---|
//! | its page comes into memory | it is merged, by who brings it there (`cache`) |
//! | the buffer is nearly full, or nothing was added for a while | pages are brought into memory, in rounds: by the worker; full, by the writer |
//! | a checkpoint at a cut P | what waits since before P is appended again, a page's puts as one batch: replay from P finds it there |
//! | a copy, a close, a compaction, a count, a load, a removal of everything, a smaller cache | all of it is merged first |
//!
//! A page's puts are appended again under its partition: no change of the same keys comes in between, so the order in the journal is that in which they
//! were made, from any checkpoint on. From then on they count as made there, unless a snapshot lives that has them at their own position:
//! then the page is brought into memory. What waits for a page that cannot be read stays, and is appended again each time: it is in the journal when a
//! repair looks there.
//!
//! It does not know what waits, nor how it is merged (`change_buffer`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::change_buffer::{LEN_MAX, WaitingPut};
use super::nodes::AppendedAt;
use super::{Core, is_damage, is_damage_or_full, is_full};
use crate::error::{Error, Result};
use crate::log::{AllocationClass, Entry};
use crate::node::tree::{Stated, To};
use crate::order::Order;

/// Pages that are brought into memory together, and those that one put waits for.
const ROUND: usize = 64;
const ROUND_OF_WRITER: usize = 16;
/// How often a way may lead to other pages before a page counts as lost, and how long another thread is waited for that brings it into memory.
const TRIES: u32 = 1000;
const PATIENCE: Duration = Duration::from_millis(1);

/// While it lives, no put waits, but those for pages that cannot be read.
pub(super) struct AllMerged<'c> {
    core: &'c Core,
}

impl Drop for AllMerged<'_> {
    fn drop(&mut self) {
        self.core.tree.nodes.reopen_buffer();
    }
}

impl Core {
    /// Whether a put may wait for its leaf. Comparators of a program's own may panic, which they are not to do in a merge.
    fn may_wait(&self, entry: &Entry<'_>) -> bool {
        let pages = &self.tree.nodes;
        pages.buffer.is_open()
            && entry.key.len().max(entry.value.len()) <= LEN_MAX
            && pages.unlogged.load(Ordering::Relaxed) == 0
            && !matches!(self.tree.order, Order::Registered(_))
            && !self.log.segments().is_full()
    }

    /// Has a put wait for its leaf, if that is not in memory; `false`, and nothing is done: it is, or the put may not wait, or there is no room for
    /// it. The caller is inside the gate.
    #[cold]
    #[inline(never)]
    pub(super) fn put_later(&self, entry: &Entry<'_>, class: AllocationClass) -> Result<bool> {
        let pages = &self.tree.nodes;
        if !self.may_wait(entry) {
            return Ok(false);
        }
        let Some(above) = self.tree.way(To::Key(entry.key), 1)? else {
            return Ok(false);
        };
        let version = above.frame.latch.begin();
        if !self.tree.is_still(&above) {
            return Ok(false);
        }
        let node = self.node_of(above.frame);
        let page = node.child(node.child_of(entry.key));
        let is_still = || above.frame.latch.is_still(version);
        if !is_still() {
            return Ok(false);
        }
        let Some(moment) = pages.buffer_put(page, is_still, entry, class)? else {
            return Ok(false);
        };
        if self.sums.is_on() {
            self.forget_sums(entry.key);
        }
        drop::<AppendedAt>(moment);
        Ok(true)
    }

    /// Merges what waits for a page; whether it is merged. If it may not wait for the device, the page's read may only have begun.
    fn merge_page(&self, page: u32, may_wait: bool) -> Result<bool> {
        let pages = &self.tree.nodes;
        let load = |number: u32, stated: &Stated<'_>| {
            let loaded = pages.load_if(number, stated, may_wait).map_err(Some)?;
            loaded.then_some(()).ok_or(None)
        };
        let mut elsewhere = 0;
        while elsewhere < TRIES {
            let key = {
                let _partition = pages.buffer.partition(page);
                pages.waiting_key(page)
            };
            let Some(key) = key else { return Ok(true) };
            self.log.healthy()?;
            pages.make_clean_for_merge()?;
            let _pin = self.log.pin();
            match self.tree.way_by(To::Key(&key), 0, &load) {
                Err(None) => return Ok(false),
                Err(Some(error)) => return Err(error),
                // Who brings it into memory merges it.
                Ok(Some(end)) if end.number == page => drop(end.frame.latch.begin_within(PATIENCE)),
                Ok(_) => elsewhere += 1,
            }
        }
        let what = "puts wait for a page that none above it names";
        Err(pages.damaged(page, None, what))
    }

    /// Merges what waits for some pages. What cannot be read stays: the first such error.
    fn merge_pages(&self, mut found: Vec<u32>, failed: &mut Result<()>) -> Result<()> {
        for may_wait in [false, true] {
            let mut later = Vec::new();
            for page in found {
                match self.merge_page(page, may_wait) {
                    Ok(true) => {}
                    Ok(false) => later.push(page),
                    Err(error) if is_damage(&error) => {
                        if failed.is_ok() {
                            *failed = Err(error);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            found = later;
        }
        Ok(())
    }

    /// As `merge_some`, by who has a put to make.
    pub(super) fn merge_few(&self) -> Result<()> {
        self.merge_of_round(ROUND_OF_WRITER).map(drop)
    }

    /// Merges some of what waits; whether there may be more to do.
    pub(super) fn merge_some(&self) -> Result<bool> {
        self.merge_of_round(ROUND)
    }

    fn merge_of_round(&self, most: usize) -> Result<bool> {
        let pages = &self.tree.nodes;
        let before = pages.buffer.pages();
        let hand = pages.buffer.hand.load(Ordering::Relaxed);
        let (found, next) = pages.next_waiting(hand, most);
        pages
            .buffer
            .hand
            .store(next.unwrap_or(0), Ordering::Relaxed);
        // What cannot be read is reported by who needs it.
        self.merge_pages(found, &mut Ok(()))?;
        // Where nothing became less, the round is ended, and none begun.
        Ok(pages.buffer.pages() < before || hand != 0)
    }

    /// Merges all that waits, and lets no put wait while what it returns lives. `Corrupted` and `Io`, when all else is merged, if a page cannot
    /// be read. The caller holds nothing.
    pub(super) fn merged(&self) -> Result<AllMerged<'_>> {
        self.merged_but(|_| false)
    }

    /// As `merged`, but for what fails in one of these ways: that stays.
    pub(super) fn merged_but(&self, stays: fn(&Error) -> bool) -> Result<AllMerged<'_>> {
        let pages = &self.tree.nodes;
        pages.close_buffer();
        let merged = AllMerged { core: self };
        match self.merge_all_with_room() {
            Err(error) if stays(&error) => self.log.healthy()?,
            done => done?,
        }
        Ok(merged)
    }

    /// What cannot be read is not what was asked for.
    pub(super) fn unless_damaged(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if is_damage(&error) => self.log.healthy(),
            done => done,
        }
    }

    /// Merges what waits: what was there before is merged when it returns, and more may come. `Corrupted` and `Io` as of `merged`; `Poisoned`.
    pub(super) fn merge_all(&self) -> Result<()> {
        self.merge_rounds(|| self.bound_versions())
    }

    /// As `merge_all`; in a full store, where what was superseded is free after a checkpoint, with one after each part. `Full` if even then none
    /// finds room.
    pub(super) fn merge_all_with_room(&self) -> Result<()> {
        let buffer = &self.tree.nodes.buffer;
        loop {
            let before = buffer.pages();
            let merged = self.merge_all();
            if !is_full(&merged) {
                return merged;
            }
            self.free_superseded()?;
            if buffer.pages() >= before {
                return merged;
            }
        }
    }

    /// As `merge_all`, by who has the cuts: no snapshot is ended for what it has in memory.
    pub(super) fn merge_all_alone(&self) -> Result<()> {
        self.merge_rounds(|| ())
    }

    fn merge_rounds(&self, after_each: impl Fn()) -> Result<()> {
        let pages = &self.tree.nodes;
        let mut failed = Ok(());
        let mut from = (pages.buffer.pages() > 0).then_some(0);
        while let Some(first) = from {
            let (found, next) = pages.next_waiting(first, ROUND);
            self.merge_pages(found, &mut failed)?;
            after_each();
            from = next;
        }
        failed
    }

    /// How many records there are, with what waits.
    pub(super) fn count_all(&self) -> u64 {
        if self.tree.nodes.buffer.pages() > 0
            && let Err(error) = self.merge_all()
        {
            tracing::warn!(%error, "puts that wait for a page are not counted");
        }
        self.tree.nodes.counts.sum()
    }

    /// Deals with all that waits since before a cut, whose earlier changes have all been made: afterwards it is in its pages, or after the cut in the
    /// journal. How many bytes were appended.
    pub(super) fn settle_waiting(&self, cut: u64) -> Result<u64> {
        let pages = &self.tree.nodes;
        if pages.buffer.pages() == 0 {
            return Ok(0);
        }
        let mut bytes = 0;
        let given_out = pages.space.room().pages();
        for page in 0..given_out {
            if pages.has_waiting(page) {
                bytes += self.settle_page(page, cut)?;
                self.bound_versions();
            }
        }
        debug_assert!(self.is_settled(cut), "what waited is after the cut");
        Ok(bytes)
    }

    /// Whether nothing waits since before a cut.
    fn is_settled(&self, cut: u64) -> bool {
        let pages = &self.tree.nodes;
        let given_out = pages.space.room().pages();
        (0..given_out).all(|page| {
            let _partition = pages
                .has_waiting(page)
                .then(|| pages.buffer.partition(page));
            pages.waiting_puts(page).iter().all(|put| put.at >= cut)
        })
    }

    fn settle_page(&self, page: u32, cut: u64) -> Result<u64> {
        if let Some(bytes) = self.carry(page, cut)? {
            return Ok(bytes);
        }
        match self.merge_page(page, true) {
            Err(error) if is_damage_or_full(&error) => {
                // It cannot be as the snapshots have it.
                while self.end_oldest_snapshot() {
                    if let Some(bytes) = self.carry(page, cut)? {
                        return Ok(bytes);
                    }
                }
                Err(error)
            }
            merged => merged.map(|_| 0),
        }
    }

    /// Appends what waits for a page since before a cut again, so many bytes; `None`: it is to be merged.
    fn carry(&self, page: u32, cut: u64) -> Result<Option<u64>> {
        let pages = &self.tree.nodes;
        let _partition = pages.buffer.partition(page);
        let puts = pages.waiting_puts(page);
        let first = puts.iter().next().map(|put| put.at);
        let Some(first) = first.filter(|at| *at < cut) else {
            return Ok(Some(0));
        };
        let is_seen = |until| pages.space.room().is_needed_by_snapshot(first, until);
        if is_seen(u64::MAX) {
            return Ok(None);
        }
        let entries: Vec<Entry<'_>> = puts.iter().map(WaitingPut::entry).collect();
        let class = AllocationClass::Checkpoint;
        let appended = match &entries[..] {
            [one] => pages.append(self.log.pin(), one, class),
            many => pages.append_batch(self.log.pin(), many, class),
        };
        if is_full(&appended) {
            return Ok(None);
        }
        let moment = appended?;
        // One that was taken meanwhile sees them where they were.
        if is_seen(moment.at) {
            return Ok(None);
        }
        pages.set_position(page, moment.at);
        Ok(Some(Entry::batch_len(&entries) as u64))
    }
}
