//! The pages of the cache as the nodes of a tree: how they change, and come into and out of use.
//!
//! A change has a moment: the position of what was appended for it. From there on its pages are dirty, and before their first change after a
//! cut what that needs of them is kept (`cut`). What goes out of use leaves its frame at once, and its unit and number by the rules of
//! `space`. [`Plain`] is the same where pages are known to be of one unit: where frames are, and how many words nodes have, are constants
//! then. It does not know keys, nor why a page changes.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use super::cache::{FRESH, NO_PAGE, PageCache, costs};
use super::cut::{Kept, Newest, Taking};
use super::layout::{HEAD_WORDS, Place, UNIT};
use super::table::Location;
use crate::epoch::{CriticalSection, Pin};
use crate::error::{Error, Kind, Result};
use crate::explore;
use crate::format::frame::FrameKind;
use crate::io::mmap::prefetch;
use crate::log::{AllocationClass, Appended, Entry};
use crate::node::Node;
use crate::node::tree::{FRAME, Frame, Held, NodeStore, Stated};

/// The position of changes that are replayed: before all others of an opening.
pub(super) const REPLAYED: u64 = 1;
/// The cut of a checkpoint before anything was appended: after what was replayed, before all else.
const FIRST_CUT: u64 = 8;

/// A cache of pages of one unit, where that is known when it is compiled: where frames are, and how many words nodes have, are constants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain<'c>(&'c PageCache);

/// The position of a change, and what it has to keep. The pages have changed when it is dropped.
#[derive(Debug)]
pub(super) struct AppendedAt {
    /// The position.
    pub(super) at: u64,
    newest: Newest,
    // Ends before the pin.
    _section: CriticalSection,
    pin: Pin,
}

impl AppendedAt {
    /// The thread's pin.
    #[inline(always)]
    pub(super) fn pin(&self) -> &Pin {
        &self.pin
    }

    /// Which of two counters counts the change.
    pub(super) fn counter(&self) -> usize {
        self.newest.counter(self.at)
    }
}

impl PageCache {
    /// The same, if its pages are of one unit.
    #[inline(always)]
    pub(super) fn plain(&self) -> Option<Plain<'_>> {
        (self.shape.bytes() == UNIT).then_some(Plain(self))
    }

    /// As `load`; whether the page is in memory. If it may not wait for the device, its read may only have begun.
    pub(super) fn load_if(&self, number: u32, stated: &Stated<'_>, may_wait: bool) -> Result<bool> {
        let loaded = self.load_page(number, stated, may_wait);
        loaded.map_err(|error| match error.kind() {
            Kind::Corrupted | Kind::Io => error.detail(costs(stated)),
            _ => error,
        })
    }

    /// Whether changes are those of a journal that is being replayed.
    pub(super) fn is_replaying(&self) -> bool {
        self.unlogged.load(Ordering::Relaxed) == REPLAYED
    }

    /// The position of what was appended.
    #[inline(always)]
    pub(super) fn position_of(&self, appended: Appended) -> u64 {
        let at = self.log.position(appended.address).unwrap_or_default();
        u64::from(at.sequence as u32) << 32 | u64::from(at.offset)
    }

    /// Where the log ends, as a cut.
    pub(super) fn end_as_cut(&self) -> (u64, crate::log::End) {
        let end = self.log.end();
        let at = end.position();
        if (at.sequence >> 32) as u32 != self.epoch {
            return (FIRST_CUT, end);
        }
        let at = u64::from(at.sequence as u32) << 32 | u64::from(at.offset);
        ((at & !7).max(FIRST_CUT), end)
    }

    /// Appends, and makes a moment of its position: all nodes that will change are locked.
    #[inline(always)]
    pub(super) fn append(
        &self,
        pin: Pin,
        entry: &Entry<'_>,
        class: AllocationClass,
    ) -> Result<AppendedAt> {
        let section = pin.critical_section();
        let unlogged = self.unlogged.load(Ordering::Relaxed);
        if unlogged != 0 {
            return Ok(self.unlogged_at(unlogged, pin, section));
        }
        let appended = self.log.append(&section, entry, class)?;
        let at = self.position_of(appended);
        explore::yield_point();
        Ok(AppendedAt {
            at,
            newest: self.cuts.newest(),
            _section: section,
            pin,
        })
    }

    #[cold]
    fn unlogged_at(&self, at: u64, pin: Pin, section: CriticalSection) -> AppendedAt {
        let newest = match at {
            REPLAYED => Newest::NONE,
            _ => self.cuts.newest(),
        };
        AppendedAt {
            at,
            newest,
            _section: section,
            pin,
        }
    }

    /// As `append`, of a batch.
    pub(super) fn append_batch(
        &self,
        pin: Pin,
        entries: &[Entry<'_>],
        class: AllocationClass,
    ) -> Result<AppendedAt> {
        let section = pin.critical_section();
        let unlogged = self.unlogged.load(Ordering::Relaxed);
        if unlogged != 0 {
            return Ok(self.unlogged_at(unlogged, pin, section));
        }
        let mut at = 0;
        self.log
            .append_batch(&section, entries, class, |number, appended| {
                if number == 0 {
                    at = self.position_of(appended);
                }
            })?;
        Ok(AppendedAt {
            at,
            newest: self.cuts.newest(),
            _section: section,
            pin,
        })
    }

    /// The first page of an empty store, which was just taken, is to be written.
    pub(super) fn begin_root(&self, held: &Held<'_>) {
        let about = self.about(self.number_of(held.frame));
        about.first_dirty.store(REPLAYED, Ordering::Relaxed);
        held.frame.words[0].store(REPLAYED, Ordering::Relaxed);
        self.dirty.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a page out of its frame and out of use, by a change at `position`.
    pub(super) fn retire(&self, held: Held<'_>, position: u64) {
        let number = self.number_of(held.frame);
        let about = self.about(number);
        let place = Place(about.place.load(Ordering::Relaxed));
        let first_dirty = about.first_dirty.load(Ordering::Relaxed);
        held.lock.change();
        {
            let mut room = self.space.room();
            let dirty_at_cut = room
                .cut()
                .is_some_and(|cut| 0 < first_dirty && first_dirty < cut);
            if !dirty_at_cut {
                room.note_place_at_cut(held.number, place);
            }
            let until = if first_dirty == 0 {
                position
            } else {
                first_dirty
            };
            let since = about.stamp.load(Ordering::Relaxed);
            room.supersede_image(place, (since, until));
            room.retire_page(held.number, position);
            self.table.set(held.number, Location::Empty);
            about.first_dirty.store(0, Ordering::Relaxed);
        }
        self.table.mark_dirty(held.number);
        if first_dirty != 0 {
            self.dirty.fetch_sub(1, Ordering::Relaxed);
        }
        held.frame.words[1].store(NO_PAGE, Ordering::Relaxed);
        held.lock.set_dead(true);
        drop(held);
        self.give_frame(number);
    }
}

impl PageCache {
    /// A cut is over, as the room knows: versions that none needs are no more.
    pub(super) fn forget_versions(&self, taking: &Taking, cut: u64) {
        let (next, greatest, checkpoint) = {
            let room = self.space.room();
            (room.snapshot_after(cut), room.greatest_cut(), room.cut())
        };
        self.cuts.end(taking, (cut, next, greatest), |version| {
            checkpoint.is_some_and(|cut| version.words_of(cut).is_some())
                || self
                    .space
                    .room()
                    .is_needed_by_snapshot(version.stamp, version.until)
        });
    }

    /// Keeps a page as it is before a change at `until`, if the checkpoint that is being made or a snapshot needs that. The caller has
    /// its frame's lock.
    #[cold]
    #[inline(never)]
    pub(super) fn keep(&self, page: u32, frame: &Frame, until: u64) {
        let about = self.about(self.number_of(frame));
        let stamp = frame.words[0].load(Ordering::Relaxed);
        let first_dirty = about.first_dirty.load(Ordering::Relaxed);
        let is_needed = || {
            let room = self.space.room();
            // Of a page that is on storage the checkpoint has the place.
            let is_to_write = |cut| 0 < first_dirty && first_dirty < cut;
            let is_of = |cut| stamp < cut && cut <= until;
            room.cut().is_some_and(|cut| is_to_write(cut) && is_of(cut))
                || room.is_needed_by_snapshot(stamp, until)
        };
        // What is only shown in a page is not in its image, though that is clean.
        let is_stored = first_dirty == 0 && stamp == about.stamp.load(Ordering::Relaxed);
        self.cuts.keep(page, (stamp, until), is_needed, || {
            if is_stored {
                Kept::Image(Place(about.place.load(Ordering::Relaxed)))
            } else {
                Kept::copy(self.words(frame))
            }
        });
    }

    /// Begins to change the page that is held, in the frame of this number.
    #[inline(always)]
    fn begin_change(&self, held: &Held<'_>, number: u32, moment: &AppendedAt) {
        let frame = held.frame;
        let about = self.about(number);
        let first_dirty = about.first_dirty.load(Ordering::Relaxed);
        if frame.words[0].load(Ordering::Relaxed) < moment.newest.at() {
            self.keep(held.number, frame, moment.at);
        }
        held.lock.change();
        if first_dirty == 0 {
            about.first_dirty.store(moment.at, Ordering::Relaxed);
            self.dirty.fetch_add(1, Ordering::Relaxed);
        }
        frame.words[0].store(moment.at, Ordering::Relaxed);
        if self.node(frame).level() != 0 {
            about.sum.forget();
        }
    }

    /// Takes a page out of use, wherever it is, by a change at `position`; whether it was in use.
    fn empty(&self, page: u32, position: u64) -> bool {
        loop {
            let at = self.table.at(page);
            let number = match at {
                Location::Empty => return false,
                Location::Cold(place) => {
                    if self.empty_cold(page, place, position) {
                        return true;
                    }
                    continue;
                }
                Location::Hot(number) | Location::Cool(number) => number,
            };
            let frame = self.at(number);
            let lock = frame.latch.lock();
            if Self::page_in(frame) != Some(page) {
                continue;
            }
            self.keep(page, frame, position);
            lock.change();
            self.table.set(page, Location::Empty);
            let first_dirty = &self.about(number).first_dirty;
            if first_dirty.swap(0, Ordering::Relaxed) != 0 {
                self.dirty.fetch_sub(1, Ordering::Relaxed);
            }
            frame.words[1].store(NO_PAGE, Ordering::Relaxed);
            lock.set_dead(true);
            drop(lock);
            self.give_frame(number);
            return true;
        }
    }

    /// Takes a page that is only on storage out of use, by a change at `position`; whether it still was there.
    fn empty_cold(&self, page: u32, place: Place, position: u64) -> bool {
        // Its last change is not known without a look at it: a version that was kept before counts first.
        let is_needed = || self.space.room().is_needed_by_snapshot(0, position);
        self.cuts
            .keep(page, (0, position), is_needed, || Kept::Image(place));
        let cold = Location::Cold(place);
        let is_emptied = self.table.exchange(page, cold, Location::Empty);
        if is_emptied {
            self.forget_waiting(page);
        }
        is_emptied
    }

    /// Takes all pages but the root, which is held and is being changed at `position`, out of use, while no other thread changes
    /// any. All chunks are loaded.
    ///
    /// A reader on its way down looks for a child by a page that is still as it was: so pages in memory go level by level, from the top,
    /// and what is only on storage after them. None of a level comes into memory, to be read, when those above are gone.
    pub(super) fn retire_all(&self, root: &Held<'_>, position: u64) {
        // No image is on its way to a place.
        let _writer = self.writer.lock();
        let pages = self.space.room().pages();
        let retire = |page| {
            if self.empty(page, position) {
                self.table.mark_dirty(page);
                self.space.room().retire_page(page, position);
            }
        };
        let others = || (0..pages).filter(|page| *page != root.number);
        for level in (1..self.node(root.frame).level()).rev() {
            let is_of_level = |page: &u32| self.level_in_memory(*page) == Some(level);
            others().filter(is_of_level).for_each(retire);
        }
        others().for_each(retire);
        let about = self.about(self.number_of(root.frame));
        about.place.store(0, Ordering::Relaxed);
        self.space.room().supersede_all(position);
    }

    /// The level of a page, if it is in memory.
    fn level_in_memory(&self, page: u32) -> Option<u8> {
        let (Location::Hot(number) | Location::Cool(number)) = self.table.at(page) else {
            return None;
        };
        let frame = self.at(number);
        let lock = frame.latch.lock();
        let level = self.node(frame).level();
        let holds = Self::page_in(frame) == Some(page) && !lock.is_dead();
        holds.then_some(level)
    }
}

impl NodeStore for PageCache {
    type Fault = Error;
    type Moment = AppendedAt;
    type Charge = ();

    fn error(fault: Error) -> Error {
        fault
    }

    #[inline(always)]
    fn node<'f>(&'f self, frame: &'f Frame) -> Node<'f> {
        let words = self.words_from(frame, HEAD_WORDS, self.node_words);
        Node::new(words, self.order)
    }

    #[inline(always)]
    fn frame(&self, number: u32) -> Option<&Frame> {
        self.table.frame(number).map(|number| self.at(number))
    }

    #[inline(always)]
    fn holds(&self, frame: &Frame, number: u32) -> bool {
        frame.words[1].load(Ordering::Relaxed) == u64::from(number)
    }

    fn load(&self, number: u32, stated: &Stated<'_>) -> Result<()> {
        self.load_if(number, stated, true)?;
        Ok(())
    }

    #[inline(always)]
    fn prefetch(&self, number: u32, lines: usize) {
        if let Location::Hot(number) | Location::Cool(number) = self.table.at(number) {
            let start = std::ptr::from_ref(self.at(number)).cast::<u8>();
            for line in 0..lines {
                prefetch(start.wrapping_add(line * 64));
            }
        }
    }

    #[inline(always)]
    fn instance(&self) -> Option<NonZeroU64> {
        Some(self.instance)
    }

    fn take(&self, (): ()) -> Result<Held<'_>> {
        let number = self.free_frame()?;
        let page = self.space.room().take_page();
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                self.give_frame(number);
                return Err(error);
            }
        };
        let held = Held::lock(page, self.at(number));
        held.lock.change();
        held.lock.set_dead(false);
        let about = self.about(number);
        about.place.store(0, Ordering::Relaxed);
        about.first_dirty.store(0, Ordering::Relaxed);
        about.sum.forget();
        held.frame.words[0].store(FRESH, Ordering::Relaxed);
        held.frame.words[1].store(u64::from(page), Ordering::Relaxed);
        self.table.set(page, Location::Hot(number));
        Ok(held)
    }

    fn give_back(&self, held: Held<'_>) {
        let number = self.number_of(held.frame);
        let page = held.number;
        held.lock.change();
        self.table.set(page, Location::Empty);
        held.frame.words[1].store(NO_PAGE, Ordering::Relaxed);
        held.lock.set_dead(true);
        drop(held);
        self.space.room().give_page(page);
        self.give_frame(number);
    }

    fn give_back_number(&self, page: u32) {
        let position = if self.is_replaying() {
            REPLAYED
        } else {
            self.end_as_cut().0
        };
        loop {
            match self.table.at(page) {
                Location::Empty => return,
                Location::Cold(place) => {
                    let cold = Location::Cold(place);
                    if self.table.exchange(page, cold, Location::Empty) {
                        self.forget_waiting(page);
                        self.table.mark_dirty(page);
                        let mut room = self.space.room();
                        room.supersede_image(place, (position, position));
                        room.retire_page(page, position);
                        return;
                    }
                }
                Location::Hot(number) | Location::Cool(number) => {
                    let held = Held::lock(page, self.at(number));
                    if Self::page_in(held.frame) == Some(page) {
                        self.retire(held, position);
                        return;
                    }
                }
            }
        }
    }

    /// A note in the log that states nothing, for its position.
    fn moment(&self) -> Result<AppendedAt> {
        let entry = Entry {
            kind: FrameKind::PAD,
            flags: 0,
            key: &[],
            value: &[],
        };
        self.append(self.log.pin(), &entry, AllocationClass::Removal)
    }

    #[inline(always)]
    fn change(&self, held: &Held<'_>, moment: &AppendedAt) {
        self.begin_change(held, self.number_of(held.frame), moment);
    }

    fn give(&self, held: Held<'_>, moment: &AppendedAt) {
        self.retire(held, moment.at);
    }

    fn give_number(&self, page: u32, moment: &AppendedAt) {
        loop {
            let at = self.table.at(page);
            match at {
                Location::Empty => return,
                Location::Cold(place) => {
                    if !self.empty_cold(page, place, moment.at) {
                        continue;
                    }
                    self.table.mark_dirty(page);
                    let mut room = self.space.room();
                    // When it was changed last is not known without a look at it: a snapshot that lives may need it.
                    room.supersede_image(place, (0, moment.at));
                    room.retire_page(page, moment.at);
                    return;
                }
                Location::Hot(number) | Location::Cool(number) => {
                    let held = Held::lock(page, self.at(number));
                    if Self::page_in(held.frame) == Some(page) {
                        self.change(&held, moment);
                        self.retire(held, moment.at);
                        return;
                    }
                }
            }
        }
    }
}

impl NodeStore for Plain<'_> {
    type Fault = Error;
    type Moment = AppendedAt;
    type Charge = ();

    fn error(fault: Error) -> Error {
        fault
    }

    #[inline(always)]
    fn node<'f>(&'f self, frame: &'f Frame) -> Node<'f> {
        Node::new(&frame.words[HEAD_WORDS..], self.0.order)
    }

    #[inline(always)]
    fn frame(&self, number: u32) -> Option<&Frame> {
        let frame = self.0.table.frame(number);
        frame.map(|number| self.0.at_plain(number))
    }

    #[inline(always)]
    fn holds(&self, frame: &Frame, number: u32) -> bool {
        self.0.holds(frame, number)
    }

    fn load(&self, number: u32, stated: &Stated<'_>) -> Result<()> {
        self.0.load(number, stated)
    }

    #[inline(always)]
    fn prefetch(&self, number: u32, lines: usize) {
        self.0.prefetch(number, lines);
    }

    #[inline(always)]
    fn instance(&self) -> Option<NonZeroU64> {
        self.0.instance()
    }

    fn take(&self, (): ()) -> Result<Held<'_>> {
        self.0.take(())
    }

    fn give_back(&self, held: Held<'_>) {
        self.0.give_back(held);
    }

    fn moment(&self) -> Result<AppendedAt> {
        self.0.moment()
    }

    #[inline(always)]
    fn change(&self, held: &Held<'_>, moment: &AppendedAt) {
        let at = std::ptr::from_ref(held.frame) as usize - self.0.frames.at(0) as usize;
        let number = (at / FRAME as usize) as u32;
        self.0.begin_change(held, number, moment);
    }

    fn give(&self, held: Held<'_>, moment: &AppendedAt) {
        self.0.give(held, moment);
    }
}
