//! The page cache: frames that hold pages, which of them are there, and which give way.
//!
//! ```text
//!   free frame --load, take--> cool --looked at--> hot --the hand passes--> cool --the hand passes again, clean--> free frame
//! ```
//! 1. A page has one frame at most, and a frame states in its second word which page it holds; who looks between two looks at its
//!    latch's version knows what was there. A hit takes no lock and stores nothing where the page is hot.
//! 2. A page comes in cool, so one pass of a scan does not displace what is looked at again and again.
//! 3. Only who holds a frame's latch changes what it holds. A thread that loads a page holds it until the page is whole: others wait there.
//! 4. What is dirty does not give way before it was written (`write_back`). Who finds no frame writes pages itself.
//! 5. A thread that holds latches waits for no other thread's latch here: they are tried.
//!
//! The memory of frames is one reservation; a frame is one for as long as the store lives, or until the cache is made smaller (`resize`).
//! A page of more than 4 KiB has a frame of as many: it begins as a [`Frame`] does, and its words continue after that. It does not know
//! keys, nor what a change is (`nodes`).

#![expect(unsafe_code, reason = "frames in raw memory")]

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::CACHE_MIN;
use super::change_buffer::ChangeBuffer;
use super::counts::Counts;
use super::cut::Cuts;
use super::image::PageImages;
use super::layout::page_image::{NoPage, Words};
use super::layout::{HEAD_WORDS, PAGE_MAX, PageShape, Place, UNIT};
use super::space::Space;
use super::sums::Sum;
use super::table::{Location, PageTable};
use crate::error::{Error, Kind, Result, quote};
use crate::explore::{self, Mutex};
use crate::io::Map;
use crate::log::Log;
use crate::log::manifest::remedy;
use crate::node::tree::{FRAME, Frame, Stated, next_instance};
use crate::node::{Latch, Node};
use crate::order::Order;
use crate::room;

/// The position of a page's last change that was never in the tree.
pub(super) const FRESH: u64 = u64::MAX;
/// No page.
pub(super) const NO_PAGE: u64 = u32::MAX as u64;
/// Addresses reserved for frames.
const RESERVED_BYTES: u64 = 1 << 38;
/// Frames that a cache has, however small.
const FRAMES_MIN: u64 = 64;
/// Bytes after which frames are in huge pages.
const SMALL_BYTES: u64 = 2 << 20;
/// Frames that the hand passes at a time.
const PASSED: u32 = 64;
/// Versions of a frame between two returns of memory, as a power of two.
const VERSIONS_SHIFT: u32 = 40;
/// How often a frame is looked for before the cache counts as too small.
const TRIES: u32 = 10_000;
/// Pages that are not to give way where nothing can be written: those on the way to others.
const CLEAN_LEAST: u64 = 8;

/// What a frame is known by besides what it holds. Stored under its latch.
#[derive(Debug)]
pub(super) struct About {
    /// Where the page's newest image is; 0: there is none.
    pub(super) place: AtomicU64,
    /// The position of the first change that is not in that image; 0: it is as the page is.
    pub(super) first_dirty: AtomicU64,
    /// The position of the last change that is in that image.
    pub(super) stamp: AtomicU64,
    /// How many records lie below the page.
    pub(super) sum: Sum,
}

/// What the thread that writes pages has.
#[derive(Debug, Default)]
pub(super) struct PageWriter {
    pub(super) images: Vec<u8>,
    /// Neighbours on storage that are not neighbours in `images`.
    pub(super) joined: Vec<u8>,
    /// A page, compressed.
    pub(super) packed: Vec<u8>,
    /// Where the search for dirty pages continues.
    pub(super) hand: u32,
}

/// Frames above the limit whose memory is to be returned.
#[derive(Debug)]
pub(super) struct Retired {
    /// From `made` on.
    pub(super) frames: Range<u32>,
    pub(super) epoch: u64,
}

impl Retired {
    /// How many they are.
    pub(super) fn count(&self) -> u32 {
        self.frames.len() as u32
    }

    /// Frames below a number are in use again.
    pub(super) fn keep_below(&mut self, made: u32) {
        self.frames.start = self.frames.start.max(made).min(self.frames.end);
    }
}

/// Frames that hold nothing.
#[derive(Debug, Default)]
pub(super) struct FreeFrames {
    /// Below the limit: to be taken.
    pub(super) idle: Vec<u32>,
    /// Above it: not to be taken any more (`resize`).
    pub(super) leaving: Vec<u32>,
    /// Above `made`: their memory is to be returned.
    pub(super) retired: Option<Retired>,
    /// How often memory was returned.
    pub(super) returns: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct PageCache {
    pub(super) log: Arc<Log>,
    pub(super) space: Space,
    pub(super) table: PageTable,
    pub(super) cuts: Cuts,
    pub(super) counts: Counts,
    pub(super) buffer: ChangeBuffer,
    /// Of all that the process had.
    pub(super) instance: NonZeroU64,
    pub(super) epoch: u32,
    /// What its pages are.
    pub(super) shape: PageShape,
    pub(super) images: PageImages,
    pub(super) order: Order,
    /// Words of a node.
    pub(super) node_words: usize,
    pub(super) frames: Arc<Map>,
    about: Arc<Map>,
    /// Frames that hold nothing.
    pub(super) free: Mutex<FreeFrames>,
    /// Frames made so far; changes under the lock of `free`.
    pub(super) made: AtomicU32,
    /// Frames that there may be; changes under the lock of `free`.
    pub(super) limit: AtomicU32,
    hand: AtomicU32,
    /// Pages that are not on storage as they are.
    pub(super) dirty: AtomicU64,
    /// Held by who writes pages.
    pub(super) writer: Mutex<PageWriter>,
    /// 0, or the position of changes for which nothing is appended: [`REPLAYED`], while the journal is replayed, or that of a load.
    pub(super) unlogged: AtomicU64,
    /// Page numbers below were given out when the file was opened.
    given_out_at_open: u32,
    /// Pages read. Relaxed: a count.
    pub(super) reads: AtomicU64,
    /// Pages written. Relaxed: a count.
    pub(super) writes: AtomicU64,
}

/// Which records a page costs that has these fences.
pub(super) fn costs(stated: &Stated<'_>) -> String {
    let shown = |key: Option<&[u8]>, end: &str| key.map_or_else(|| end.to_owned(), quote);
    format!(
        "it costs the records from {} up to {}",
        shown(stated.lower, "the first"),
        shown(stated.upper, "the last")
    )
}

/// `Invalid` for a cache of fewer bytes than the least.
pub(super) fn check_size(bytes: u64) -> Result<()> {
    if bytes >= CACHE_MIN {
        return Ok(());
    }
    let error = Error::new(Kind::Invalid, "the cache is too small");
    Err(error.found(
        format!("{bytes} bytes"),
        format!("at least {CACHE_MIN} bytes"),
    ))
}

/// Frames of pages of this shape for so many bytes.
pub(super) fn frames_of(cache: u64, shape: PageShape) -> u32 {
    let cache = cache.clamp(FRAMES_MIN * shape.bytes(), RESERVED_BYTES);
    (cache >> shape.shift()) as u32
}

impl PageCache {
    /// A cache of so many bytes, or of 64 pages if these are more, above a table. `Io` if the system refuses the addresses.
    pub(super) fn new(
        (log, epoch, order, shape): (Arc<Log>, u32, Order, PageShape),
        (space, table, count): (Space, PageTable, u64),
        cache: u64,
    ) -> Result<Self> {
        // The last frame may be the last of the smallest, and its words are looked at as those of a page.
        let frames = Map::anonymous(RESERVED_BYTES + PAGE_MAX as u64, None)?;
        frames.advise_huge(SMALL_BYTES, RESERVED_BYTES - SMALL_BYTES);
        let given_out_at_open = space.room().pages();
        let pages = Self {
            log,
            space,
            table,
            cuts: Cuts::default(),
            counts: Counts::new(count)?,
            buffer: ChangeBuffer::new(),
            instance: next_instance(),
            epoch,
            shape,
            images: PageImages::new(shape, order),
            order,
            node_words: shape.words() - HEAD_WORDS,
            frames,
            about: Map::anonymous(RESERVED_BYTES / FRAME * size_of::<About>() as u64, None)?,
            free: Mutex::default(),
            made: AtomicU32::new(0),
            limit: AtomicU32::new(frames_of(cache, shape)),
            hand: AtomicU32::new(0),
            dirty: AtomicU64::new(0),
            writer: Mutex::default(),
            unlogged: AtomicU64::new(0),
            given_out_at_open,
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        };
        pages.fit_buffer();
        Ok(pages)
    }

    /// The frame of a number.
    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "a frame begins a page")]
    pub(super) fn at(&self, number: u32) -> &Frame {
        let at = u64::from(number) << self.shape.shift() & (RESERVED_BYTES - FRAME);
        // SAFETY: within the reservation, which lives as long as `self`; all zeros, as it comes, it is a frame: a latch as
        // new and words. All its parts may be shared.
        unsafe { &*self.frames.at(at).cast::<Frame>() }
    }

    /// As [`at`](Self::at), where pages are of one unit.
    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "a frame begins a page")]
    pub(super) fn at_plain(&self, number: u32) -> &Frame {
        let number = u64::from(number) & (RESERVED_BYTES / FRAME - 1);
        // SAFETY: as above.
        unsafe { &*self.frames.at(number * FRAME).cast::<Frame>() }
    }

    /// So many words of a frame from one on, at most those of the largest page.
    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "a frame's words are aligned")]
    pub(super) fn words_from(&self, frame: &Frame, first: usize, count: usize) -> &Words {
        let at = std::ptr::from_ref(frame) as usize - self.frames.at(0) as usize;
        let at = at as u64 & (RESERVED_BYTES - FRAME);
        let first = at + (size_of::<Latch>() + first * 8) as u64;
        debug_assert!(size_of::<Latch>() + (HEAD_WORDS + self.node_words) * 8 <= PAGE_MAX);
        // SAFETY: `at` is below the end of the frames, and what is reserved goes beyond that by the largest page, in which the words of
        // any page lie. It lives as long as `self`, is zeros or words, and all its words may be shared.
        unsafe { std::slice::from_raw_parts(self.frames.at(first).cast::<AtomicU64>(), count) }
    }

    /// All words of a frame: those of a [`Frame`], and those after it.
    pub(super) fn words(&self, frame: &Frame) -> &Words {
        self.words_from(frame, 0, HEAD_WORDS + self.node_words)
    }

    /// Words for a page outside of a frame. `Full` if there is no memory.
    pub(super) fn blank(&self) -> Result<Vec<AtomicU64>> {
        room::collect((0..self.shape.words()).map(|_| AtomicU64::new(0)))
    }

    /// What is known of a frame.
    #[inline(always)]
    #[expect(
        clippy::cast_ptr_alignment,
        reason = "they are words, from a page's beginning"
    )]
    pub(super) fn about(&self, number: u32) -> &About {
        let number = u64::from(number) & (RESERVED_BYTES / FRAME - 1);
        // SAFETY: as above, of words.
        unsafe {
            &*self
                .about
                .at(number * size_of::<About>() as u64)
                .cast::<About>()
        }
    }

    /// The number of a frame.
    pub(super) fn number_of(&self, frame: &Frame) -> u32 {
        let start = self.frames.at(0) as usize;
        ((std::ptr::from_ref(frame) as usize - start) >> self.shape.shift()) as u32
    }

    /// The page that a frame holds.
    #[inline(always)]
    pub(super) fn page_in(frame: &Frame) -> Option<u32> {
        let word = frame.words[1].load(Ordering::Relaxed);
        (word != NO_PAGE).then_some(word as u32)
    }

    /// Frames made.
    pub(super) fn made(&self) -> u32 {
        self.made.load(Ordering::Acquire)
    }

    /// Frames that there may be.
    pub(super) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes of pages that may be in memory.
    pub(super) fn bytes_max(&self) -> u64 {
        u64::from(self.limit()) << self.shape.shift()
    }

    /// Bytes of frames that have memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let free = self.free.lock();
        let retired = free.retired.as_ref().map_or(0, Retired::count);
        u64::from(self.made() + retired) << self.shape.shift()
    }

    /// Pages that are not on storage as they are.
    pub(super) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// A frame that holds nothing. `Full` if all are in use at once; else as pages are written.
    pub(super) fn free_frame(&self) -> Result<u32> {
        let mut passed = 0;
        let are_too_dirty = || self.dirty() * 8 > u64::from(self.limit()) * 3;
        if self.buffer.pages() > 0 && are_too_dirty() && !self.log.is_poisoned() {
            // Who reads makes pages dirty, too: what cannot be written is left to who writes.
            let _ = self.write_back_some(false);
        }
        for tries in 0..TRIES {
            {
                let mut free = self.free.lock();
                if let Some(number) = free.idle.pop() {
                    return Ok(number);
                }
                let made = self.made.load(Ordering::Relaxed);
                if made < self.limit() {
                    let frame = self.at(made);
                    frame.words[1].store(NO_PAGE, Ordering::Relaxed);
                    let lock = frame.latch.lock();
                    lock.change();
                    // Its version may be zero again; a cursor remembers versions.
                    lock.raise(free.returns << VERSIONS_SHIFT);
                    lock.set_dead(true);
                    drop(lock);
                    self.made.store(made + 1, Ordering::Release);
                    if let Some(retired) = &mut free.retired {
                        retired.keep_below(made + 1);
                    }
                    return Ok(made);
                }
            }
            if !self.log.is_poisoned() && self.is_crowded() {
                // `Full` before the node above gives way, and is loaded in the place of this one.
                self.make_some_clean()?;
            }
            let passing = PASSED * (1 + tries);
            passed += u64::from(passing);
            if self.evict(passing) == 0 {
                let written = self.write_back_some(tries > 2);
                self.stop_if_io(&written);
                match written {
                    // A store that is full, or takes no writes any more: what is clean gives way when the hand has passed it twice.
                    Err(error)
                        if (error.kind() == Kind::Full || self.log.is_poisoned())
                            && passed < 4 * u64::from(self.made()) => {}
                    written => drop(written?),
                }
                if tries > 8 && !explore::wait() {
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
            }
        }
        Err(
            Error::new(Kind::Full, "all pages of the cache are in use at once")
                .at(self.log.storage().path())
                .remedy("open the store with a larger cache"),
        )
    }

    /// Where no place for pages can be had but for room, as where the file does not grow, the store takes no writes any more: so it is read on.
    fn stop_if_io(&self, written: &Result<usize>) {
        if written
            .as_ref()
            .is_err_and(|error| error.kind() == Kind::Io)
        {
            self.log.poison();
        }
    }

    /// What is merged makes pages dirty: these are to take half of the frames at most, so that the way to the next one finds some. `Full` if
    /// they cannot be written before a checkpoint.
    pub(super) fn make_clean_for_merge(&self) -> Result<()> {
        let frames = self.limit().saturating_sub(self.frames_of_blocks());
        if self.dirty() * 2 > u64::from(frames) {
            self.make_some_clean()?;
        }
        Ok(())
    }

    /// Writes some dirty pages, unless nothing is written any more. Errors: `Full`, `Corrupted`.
    fn make_some_clean(&self) -> Result<()> {
        let written = self.write_back_some(true);
        self.stop_if_io(&written);
        if self.log.is_poisoned() {
            return Ok(());
        }
        written.map(drop)
    }

    /// Whether so few frames have a page that can give way that one on the way to another would.
    fn is_crowded(&self) -> bool {
        let (made, dirty) = (self.made(), self.dirty());
        // Blocks take less than half of the frames: where few are dirty, they need not be counted.
        made >= self.limit()
            && dirty * 2 >= u64::from(made)
            && u64::from(made) <= dirty + u64::from(self.frames_of_blocks()) + CLEAN_LEAST
    }

    pub(super) fn give_frame(&self, number: u32) {
        let mut free = self.free.lock();
        if number < self.limit() {
            free.idle.push(number);
        } else {
            free.leaving.push(number);
        }
    }

    /// Frames without a page that may be had at once.
    pub(super) fn idle(&self) -> u32 {
        let free = self.free.lock().idle.len() as u32;
        free + self.limit().saturating_sub(self.made())
    }

    /// Passes over so many frames, and makes those free that are cool and clean; how many.
    pub(super) fn evict(&self, count: u32) -> u32 {
        // Of what is made now, nothing becomes zeros meanwhile (`resize`).
        let _pin = self.log.pin();
        let made = self.made().max(1);
        let mut evicted = 0;
        for _ in 0..count.min(2 * made) {
            let number = self.hand.fetch_add(1, Ordering::Relaxed) % made;
            let frame = self.at(number);
            let Some(page) = Self::page_in(frame) else {
                continue;
            };
            if self
                .table
                .exchange(page, Location::Hot(number), Location::Cool(number))
            {
                continue;
            }
            let about = self.about(number);
            if about.first_dirty.load(Ordering::Relaxed) != 0 {
                continue;
            }
            let Some(lock) = frame.latch.try_lock() else {
                continue;
            };
            let is_clean = about.first_dirty.load(Ordering::Relaxed) == 0
                && frame.words[0].load(Ordering::Relaxed) != FRESH;
            if Self::page_in(frame) != Some(page) || !is_clean {
                continue;
            }
            let place = Place(about.place.load(Ordering::Relaxed));
            // Readers of the old contents see that it changes before anybody can load the page elsewhere.
            lock.change();
            self.note_room(page, frame);
            if !self
                .table
                .exchange(page, Location::Cool(number), Location::Cold(place))
            {
                continue;
            }
            frame.words[1].store(NO_PAGE, Ordering::Relaxed);
            lock.set_dead(true);
            drop(lock);
            self.give_frame(number);
            evicted += 1;
            if evicted >= PASSED {
                break;
            }
        }
        evicted
    }

    /// Brings a page into memory; whether it is there. If it `may_wait` for the device, it is; else the page's read has begun.
    #[cold]
    pub(super) fn load_page(&self, page: u32, stated: &Stated<'_>, may_wait: bool) -> Result<bool> {
        loop {
            let place = match self.table.at(page) {
                Location::Hot(_) | Location::Cool(_) => return Ok(true),
                Location::Cold(place) => place,
                Location::Empty => {
                    if !self.load_chunk(page)? && self.table.at(page) == Location::Empty {
                        return Err(self.damaged(page, None, "a page that there is not is named"));
                    }
                    continue;
                }
            };
            let number = self.free_frame()?;
            let frame = self.at(number);
            let lock = frame.latch.lock();
            lock.change();
            let about = self.about(number);
            about.place.store(place.0, Ordering::Relaxed);
            about.first_dirty.store(0, Ordering::Relaxed);
            about.sum.forget();
            frame.words[0].store(0, Ordering::Relaxed);
            frame.words[1].store(u64::from(page), Ordering::Relaxed);
            let is_taken = {
                // A put that is being added to what waits for the page is waited for.
                let _partition = self.buffer.partition(page);
                let cold = Location::Cold(place);
                self.table.exchange(page, cold, Location::Cool(number))
            };
            if !is_taken {
                frame.words[1].store(NO_PAGE, Ordering::Relaxed);
                drop(lock);
                self.give_frame(number);
                continue;
            }
            let read = self.read_page_if(page, place, stated, (self.words(frame), may_wait));
            let read = read.and_then(|is_read| {
                if is_read {
                    let stamp = frame.words[0].load(Ordering::Relaxed);
                    about.stamp.store(stamp, Ordering::Relaxed);
                    self.merge_into(page, frame)?;
                }
                Ok(is_read)
            });
            if matches!(read, Ok(true)) {
                lock.set_dead(false);
            } else {
                frame.words[1].store(NO_PAGE, Ordering::Relaxed);
                if read.is_err() {
                    self.note_unreadable(page);
                }
                self.table.set(page, Location::Cold(place));
                drop(lock);
                self.give_frame(number);
            }
            return read;
        }
    }

    /// Reads the chunk of a page; whether that was to be done.
    pub(super) fn load_chunk(&self, page: u32) -> Result<bool> {
        let storage = (&**self.log.storage(), self.log.geometry().salt);
        let mut free = Vec::new();
        let is_loaded = self
            .table
            .load(page, self.given_out_at_open, storage, &mut |page| {
                free.push(page);
            })?;
        let mut room = self.space.room();
        for page in free {
            room.give_page(page);
        }
        Ok(is_loaded)
    }

    /// Reads a page, of which its parent stated this, from a place, to the words of a frame or others.
    pub(super) fn read_page(
        &self,
        page: u32,
        place: Place,
        stated: &Stated<'_>,
        words: &Words,
    ) -> Result<()> {
        self.read_page_if(page, place, stated, (words, true))?;
        Ok(())
    }

    /// As `read_page`; whether it was read. If it may not wait for the device, its read may only have begun.
    fn read_page_if(
        &self,
        page: u32,
        place: Place,
        stated: &Stated<'_>,
        (words, may_wait): (&Words, bool),
    ) -> Result<bool> {
        if !self.read_sound_if(page, place, (words, may_wait))? {
            return Ok(false);
        }
        if !stated.holds_of(Node::new(&words[HEAD_WORDS..], self.order)) {
            return Err(self.misnamed(page, Some(place)));
        }
        Ok(true)
    }

    /// As `read_page_if`, whatever its parent states.
    #[inline(always)]
    pub(super) fn read_sound_if(
        &self,
        page: u32,
        place: Place,
        to: (&Words, bool),
    ) -> Result<bool> {
        let is_read = match place.units() {
            1 => self.read_image(page, place, &mut [0; UNIT as usize], to)?,
            units => {
                let mut image = [0; PAGE_MAX];
                let image = &mut image[..units as usize * UNIT as usize];
                self.read_image(page, place, image, to)?
            }
        };
        if is_read && !Node::new(&to.0[HEAD_WORDS..], self.order).is_sound() {
            return Err(self.damaged(page, Some(place), "a page holds impossible values"));
        }
        Ok(is_read)
    }

    /// Reads a page's image by way of a buffer of its size; whether it was read.
    #[inline(always)]
    fn read_image(
        &self,
        page: u32,
        place: Place,
        image: &mut [u8],
        (words, may_wait): (&Words, bool),
    ) -> Result<bool> {
        let identity = (self.log.geometry().salt, self.epoch);
        let storage = self.log.storage();
        let mut put = |at: usize, word: u64| {
            if at != 1
                && let Some(to) = words.get(at)
            {
                to.store(word, Ordering::Relaxed);
            }
        };
        let read = storage.read_if(place.offset(), image, may_wait);
        let is_read = read.map_err(|error| error.at(storage.path()).offset(place.offset()))?;
        if !is_read {
            return Ok(false);
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.images
            .decode(image, identity, page, place, &mut put)
            .map_err(|reason| self.no_page(page, place, reason))?;
        Ok(true)
    }

    fn no_page(&self, page: u32, place: Place, reason: NoPage) -> Error {
        let what = match reason {
            NoPage::Sum => "a page is damaged",
            NoPage::Old => "a page is not the one that was written last",
            NoPage::Other(_) => "another page stands where a page was written",
            NoPage::Content => "a page is written in a form that its file does not have",
        };
        self.damaged(page, Some(place), what)
    }

    /// The error of a page that is whole, and another one than its parent states.
    #[cold]
    pub(super) fn misnamed(&self, page: u32, place: Option<Place>) -> Error {
        let what = "a page is not the one that its parent names";
        self.damaged(page, place, what)
    }

    #[cold]
    pub(super) fn damaged(&self, page: u32, place: Option<Place>, what: &str) -> Error {
        let storage = self.log.storage();
        let error = Error::new(Kind::Corrupted, format!("{what} (number {page})"))
            .at(storage.path())
            .remedy(remedy(&**storage));
        match place {
            Some(place) => error.offset(place.offset()),
            None => error,
        }
    }
}
