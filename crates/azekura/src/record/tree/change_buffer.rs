//! The change buffer: puts whose leaf is not in memory, until it is.
//!
//! A put that overwrites or adds needs nothing of what its leaf holds. So where that is on storage only, the put is appended to the journal, kept here
//! by the leaf's page, and made when the page comes into memory: then, or when the buffer needs room, all puts of the page at once. Random puts into
//! much more than the cache holds read and write each leaf once for several of them. (InnoDB's change buffer, without its pages on storage.)
//!
//! ```text
//!   word of a page:  last block of its puts | how many words they take | bytes that are free in its image
//!   block:           the one before | seven words: header of a put (position, lengths of key and value), key and value, next header ..
//! ```
//! 1. A put is here only while its page is cold: who brings the page into memory takes it out under the page's stripe, and merges it before any other
//!    thread sees the page. Under the stripe, a cold page stays cold; inside the gate, it stays where the node above has it.
//! 2. Each is merged as a change at its own position, in the order of positions: what a cut sees does not depend on when that is.
//! 3. A page takes no more than fits in it, each put counted as a new record: merging divides no leaf, and never fails. What is free in an image is
//!    known of pages that were in memory; a put to another one brings it in.
//! 4. The durable checkpoint has it in its page, or the journal after that has it: a checkpoint appends again what stays (`merge`).
//!
//! Blocks are 64 bytes of frames of the cache, which bounds them. It does not know trees, nor when to merge.

#![expect(unsafe_code, reason = "words in raw memory")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::cache::PageCache;
use super::layout::PUT;
use super::nodes::AppendedAt;
use super::table::Location;
use crate::error::{Kind, Result};
use crate::explore::{Mutex, MutexGuard};
use crate::io::Map;
use crate::log::{AllocationClass, Entry};
use crate::node::tree::{Frame, NodeStore};
use crate::node::{Latch, Value};

/// Longest key, and longest value, that wait here.
pub(super) const LEN_MAX: usize = 255;
/// Parts of the pages, each with a lock.
const STRIPES: usize = 64;
/// Words of a block, of which the first is the link to the one before.
const BLOCK: usize = 8;
/// No block: the one where a frame has its latch.
const NONE: u32 = 0;
const _: () = assert!(size_of::<Latch>() <= BLOCK * 8 && size_of::<Latch>().is_multiple_of(8));
/// Eighths of the cache that it may take; of a small one, of which updates hold a larger part, less.
const EIGHTHS: u64 = 3;
const EIGHTHS_OF_SMALL: u64 = 2;
const SMALL: u32 = 1024;
/// Bytes of blocks, at most: a checkpoint may append them again.
const BYTES_MAX: u64 = 256 << 20;
/// Bits of a position's sequence and offset in a header.
const SEQUENCE_BITS: u32 = 25;
const OFFSET_BITS: u32 = 23;

/// What waits for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The last block.
    block: u32,
    /// Words of all puts.
    words: u16,
    /// Bytes that are free in the page's image, and not taken by these; 0: not known.
    room: u16,
}

impl Waiting {
    fn of(word: u64) -> Self {
        Self {
            block: word as u32,
            words: (word >> 32) as u16,
            room: (word >> 48) as u16,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.block) | u64::from(self.words) << 32 | u64::from(self.room) << 48
    }

    pub(super) fn is_none(self) -> bool {
        self.words == 0
    }
}

/// A put that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitingPut {
    /// Its position.
    pub(super) at: u64,
    /// Key and value.
    bytes: Vec<u8>,
    key_len: usize,
}

impl WaitingPut {
    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len]
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[self.key_len..]
    }

    /// How it is appended.
    pub(super) fn entry(&self) -> Entry<'_> {
        Entry {
            kind: PUT,
            flags: 0,
            key: self.key(),
            value: self.value(),
        }
    }
}

/// Blocks, and the frames they are in.
#[derive(Debug, Default)]
struct Blocks {
    /// The first of those that are free, each linked to the next.
    free: u32,
    free_count: u64,
    frames: Vec<u32>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ChangeBuffer {
    words: Arc<Map>,
    stripes: Vec<Mutex<()>>,
    blocks: Mutex<Blocks>,
    /// Pages that have puts here. Raised before, and lowered after these are seen. Changes under a stripe.
    pages: AtomicU64,
    /// Puts that were added. Relaxed: a count.
    pub(super) added: AtomicU64,
    /// Blocks that hold puts.
    used: AtomicU64,
    /// Blocks after which it is nearly full.
    nearly_all: AtomicU64,
    /// Those who keep it from taking more.
    closers: AtomicU32,
    /// The page where the next round continues. Relaxed: a hint.
    pub(super) hand: AtomicU32,
}

impl ChangeBuffer {
    /// An empty one. `Io` if the system refuses the addresses.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            words: Map::anonymous((1 << 32) * 8, None)?,
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            blocks: Mutex::default(),
            pages: AtomicU64::new(0),
            added: AtomicU64::new(0),
            used: AtomicU64::new(0),
            nearly_all: AtomicU64::new(0),
            closers: AtomicU32::new(0),
            hand: AtomicU32::new(0),
        })
    }

    #[inline(always)]
    fn word(&self, page: u32) -> &AtomicU64 {
        // SAFETY: there are words for all numbers of 32 bits (`new`), at a page's beginning, in a map that lives as long.
        unsafe { self.words.word_within(u64::from(page) * 8) }
    }

    /// While it is held, nothing of the page is added, and the page does not come into memory.
    pub(super) fn stripe(&self, page: u32) -> MutexGuard<'_, ()> {
        self.stripes[page as usize % STRIPES].lock()
    }

    /// Pages that have puts here.
    #[inline(always)]
    pub(super) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Whether a page has puts here.
    pub(super) fn has(&self, page: u32) -> bool {
        self.pages() != 0 && !Waiting::of(self.word(page).load(Ordering::Acquire)).is_none()
    }

    /// Whether a put may be added.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.closers.load(Ordering::Relaxed) == 0
    }

    /// Whether what waits is to be merged by writers.
    #[inline(always)]
    pub(super) fn is_nearly_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.nearly_all.load(Ordering::Relaxed)
    }
}

/// Bytes that an entry takes in a node, at most.
fn room_of(key: &[u8], value: &[u8]) -> usize {
    8 + key.len() + value.len()
}

/// Words that a put takes.
fn words_of(len: usize) -> usize {
    1 + len.div_ceil(8)
}

fn header(at: u64, key: &[u8], value: &[u8]) -> u64 {
    let sequence = at >> 32 & ((1 << SEQUENCE_BITS) - 1);
    let offset = (at & 0xffff_ffff) >> 3 & ((1 << OFFSET_BITS) - 1);
    (sequence << OFFSET_BITS | offset) << 16 | (key.len() as u64) << 8 | value.len() as u64
}

/// The position of a header, which is not after `end` in the log, and much nearer to it than sequences repeat.
fn position(header: u64, end: u64) -> u64 {
    let packed = header >> 16;
    let offset = (packed & ((1 << OFFSET_BITS) - 1)) << 3;
    let low = packed >> OFFSET_BITS;
    let end = end >> 32;
    let mut sequence = end & !((1 << SEQUENCE_BITS) - 1) | low;
    if sequence > end {
        sequence = sequence.saturating_sub(1 << SEQUENCE_BITS);
    }
    sequence << 32 | offset
}

impl PageCache {
    fn blocks_per_frame(&self) -> u32 {
        1 << (self.shape.shift() - 6)
    }

    fn block(&self, number: u32) -> &[AtomicU64] {
        let per_frame = self.blocks_per_frame();
        let frame = self.at(number / per_frame);
        // Words of a frame are counted from after its latch.
        let first = (number % per_frame) as usize * BLOCK - size_of::<Latch>() / 8;
        self.words_from(frame, first, BLOCK)
    }

    /// Blocks that there may be.
    fn blocks_max(&self) -> u64 {
        let eighths = if self.limit() < SMALL {
            EIGHTHS_OF_SMALL
        } else {
            EIGHTHS
        };
        let frames = u64::from(self.limit()) * eighths / 8;
        let frames = frames.min(BYTES_MAX >> self.shape.shift());
        frames * u64::from(self.blocks_per_frame() - 1)
    }

    /// Whether so many eighths of what the buffer may have is used.
    pub(super) fn is_buffer_used(&self, eighths: u64) -> bool {
        self.buffer.used.load(Ordering::Relaxed) * 8 > self.blocks_max() * eighths
    }

    /// The number of frames has changed.
    pub(super) fn fit_buffer(&self) {
        let nearly_all = self.blocks_max() / 8 * 7;
        self.buffer.nearly_all.store(nearly_all, Ordering::Relaxed);
    }

    /// Bytes that a checkpoint may append again.
    pub(super) fn buffered_bytes(&self) -> u64 {
        let used = self.buffer.used.load(Ordering::Relaxed) * BLOCK as u64 * 8;
        used + used / 4
    }

    /// Has so many blocks free, if there may be as many. No latch and no stripe is held.
    fn find_blocks(&self, count: u64) -> Result<bool> {
        loop {
            {
                let blocks = self.buffer.blocks.lock();
                if blocks.free_count >= count {
                    return Ok(true);
                }
                if !self.buffer.is_open() {
                    return Ok(false);
                }
                let per_frame = u64::from(self.blocks_per_frame() - 1);
                if (blocks.frames.len() as u64 + 1) * per_frame > self.blocks_max() {
                    return Ok(false);
                }
            }
            let number = match self.free_frame() {
                Err(error) if error.kind() == Kind::Full => return Ok(false),
                found => found?,
            };
            let mut blocks = self.buffer.blocks.lock();
            if !self.buffer.is_open() {
                drop(blocks);
                self.give_frame(number);
                return Ok(false);
            }
            let first = number * self.blocks_per_frame();
            for block in first + 1..first + self.blocks_per_frame() {
                self.block(block)[0].store(blocks.free.into(), Ordering::Relaxed);
                blocks.free = block;
            }
            blocks.free_count += u64::from(self.blocks_per_frame() - 1);
            blocks.frames.push(number);
        }
    }

    /// A block, linked to another one.
    fn take_block(&self, before: u32) -> Option<u32> {
        let mut blocks = self.buffer.blocks.lock();
        let number = blocks.free;
        if number == NONE {
            return None;
        }
        let link = &self.block(number)[0];
        blocks.free = link.load(Ordering::Relaxed) as u32;
        blocks.free_count -= 1;
        link.store(before.into(), Ordering::Relaxed);
        self.buffer.used.fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    /// Gives back the last block of a chain and all before it. Where no puts wait any more, the frames are the cache's again.
    fn give_blocks(&self, mut last: u32) {
        let mut blocks = self.buffer.blocks.lock();
        let mut count = 0;
        while last != NONE {
            let link = &self.block(last)[0];
            let before = link.load(Ordering::Relaxed) as u32;
            link.store(blocks.free.into(), Ordering::Relaxed);
            blocks.free = last;
            count += 1;
            last = before;
        }
        blocks.free_count += count;
        if self.buffer.used.fetch_sub(count, Ordering::Relaxed) == count {
            self.release_blocks(&mut blocks);
        }
    }

    /// No puts wait.
    fn release_blocks(&self, blocks: &mut Blocks) {
        blocks.free = NONE;
        blocks.free_count = 0;
        for frame in blocks.frames.drain(..) {
            self.give_frame(frame);
        }
    }

    /// Nothing is added from when this returns until as many calls of `reopen_buffer`.
    pub(super) fn close_buffer(&self) {
        self.buffer.closers.fetch_add(1, Ordering::SeqCst);
        for stripe in &self.buffer.stripes {
            drop(stripe.lock());
        }
        let mut blocks = self.buffer.blocks.lock();
        if self.buffer.used.load(Ordering::Relaxed) == 0 {
            self.release_blocks(&mut blocks);
        }
    }

    /// See `close_buffer`.
    pub(super) fn reopen_buffer(&self) {
        self.buffer.closers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Adds a put to what waits for a page that is cold, where `is_still` states that its key belongs to that page; its moment, or
    /// `None`, and nothing is changed: the page is in memory, or has no room, or the buffer. The caller is inside the gate.
    pub(super) fn buffer_put(
        &self,
        page: u32,
        is_still: impl Fn() -> bool,
        entry: &Entry<'_>,
        class: AllocationClass,
    ) -> Result<Option<AppendedAt>> {
        let buffer = &self.buffer;
        let words = words_of(entry.key.len() + entry.value.len());
        let needed = room_of(entry.key, entry.value);
        let word = buffer.word(page);
        let room_in = |waiting: Waiting| usize::from(waiting.room).checked_sub(needed);
        if room_in(Waiting::of(word.load(Ordering::Relaxed))).is_none() {
            return Ok(None);
        }
        let most = words.div_ceil(BLOCK - 1) as u64 + 1;
        if !self.find_blocks(most)? {
            return Ok(None);
        }
        let stripe = buffer.stripe(page);
        let is_cold = matches!(self.table.at(page), Location::Cold(_));
        if !is_cold || !is_still() || !buffer.is_open() {
            return Ok(None);
        }
        let before = Waiting::of(word.load(Ordering::Relaxed));
        let total = (usize::from(before.words) + words).try_into();
        let (Some(room), Ok(total)) = (room_in(before), total) else {
            return Ok(None);
        };
        // Others may have taken them since.
        let mut fresh = Vec::new();
        let used = usize::from(before.words).div_ceil(BLOCK - 1);
        for _ in used..usize::from(total).div_ceil(BLOCK - 1) {
            let last = fresh.last().copied().unwrap_or(before.block);
            match self.take_block(last) {
                Some(block) => fresh.push(block),
                None => {
                    self.cut_chain(fresh.last().copied(), before.block);
                    return Ok(None);
                }
            }
        }
        let moment = match self.append(self.log.pin(), entry, class) {
            Ok(moment) => moment,
            Err(error) => {
                self.cut_chain(fresh.last().copied(), before.block);
                return Err(error);
            }
        };
        let mut block = before.block;
        let mut next = fresh.iter();
        let mut at = usize::from(before.words);
        let mut put = |value: u64| {
            if at.is_multiple_of(BLOCK - 1)
                && let Some(next) = next.next()
            {
                block = *next;
            }
            self.block(block)[1 + at % (BLOCK - 1)].store(value, Ordering::Relaxed);
            at += 1;
        };
        put(header(moment.at, entry.key, entry.value));
        let mut bytes = entry.key.iter().chain(entry.value);
        for _ in 1..words {
            let mut value = [0; 8];
            for byte in &mut value {
                *byte = bytes.next().copied().unwrap_or_default();
            }
            put(u64::from_le_bytes(value));
        }
        let waiting = Waiting {
            block,
            words: total,
            // 0 is not known.
            room: room as u16,
        };
        if before.is_none() {
            buffer.pages.fetch_add(1, Ordering::Release);
        }
        word.store(waiting.word(), Ordering::Release);
        buffer.added.fetch_add(1, Ordering::Relaxed);
        drop(stripe);
        Ok(Some(moment))
    }

    /// Gives back the last blocks of a chain up to one that stays.
    fn cut_chain(&self, last: Option<u32>, stays: u32) {
        let Some(last) = last else { return };
        let mut first = last;
        loop {
            let link = &self.block(first)[0];
            let before = link.load(Ordering::Relaxed) as u32;
            if before == stays {
                link.store(NONE.into(), Ordering::Relaxed);
                break;
            }
            first = before;
        }
        self.give_blocks(last);
    }

    /// The puts that wait for a page whose stripe is held, in the order of their positions.
    pub(super) fn waiting_puts(&self, page: u32) -> Vec<WaitingPut> {
        self.puts_of(Waiting::of(self.buffer.word(page).load(Ordering::Acquire)))
    }

    fn puts_of(&self, waiting: Waiting) -> Vec<WaitingPut> {
        let total = usize::from(waiting.words);
        let mut words = vec![0; total];
        let mut block = waiting.block;
        for first in (0..total).step_by(BLOCK - 1).rev() {
            let from = self.block(block);
            let part = &mut words[first..total.min(first + BLOCK - 1)];
            for (to, from) in part.iter_mut().zip(&from[1..]) {
                *to = from.load(Ordering::Relaxed);
            }
            block = from[0].load(Ordering::Relaxed) as u32;
        }
        let (end, _) = self.end_as_cut();
        let mut puts = Vec::new();
        let mut words = words.into_iter();
        while let Some(header) = words.next() {
            let (key_len, value_len) = ((header >> 8 & 255) as usize, (header & 255) as usize);
            let len = key_len + value_len;
            let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
            for word in words.by_ref().take(words_of(len) - 1) {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            bytes.truncate(len);
            puts.push(WaitingPut {
                at: position(header, end),
                bytes,
                key_len,
            });
        }
        puts
    }

    /// The key of a put that waits for a page whose stripe is held.
    pub(super) fn waiting_key(&self, page: u32) -> Option<Vec<u8>> {
        let puts = self.waiting_puts(page);
        puts.first().map(|put| put.key().to_vec())
    }

    /// The next pages from one on that have puts here, at most so many, and where the search ended; `None`: all were looked at.
    pub(super) fn next_waiting(&self, from: u32, most: usize) -> (Vec<u32>, Option<u32>) {
        let mut found = Vec::new();
        let given_out = self.space.room().pages();
        for page in from..given_out {
            if self.buffer.has(page) {
                found.push(page);
                if found.len() == most {
                    return (found, Some(page + 1));
                }
            }
        }
        (found, None)
    }

    /// Gives all puts of a page, whose stripe is held, a later position: they were appended again.
    pub(super) fn set_position(&self, page: u32, at: u64) {
        let waiting = Waiting::of(self.buffer.word(page).load(Ordering::Acquire));
        let total = usize::from(waiting.words);
        let mut blocks = Vec::new();
        let mut block = waiting.block;
        while block != NONE {
            blocks.push(block);
            block = self.block(block)[0].load(Ordering::Relaxed) as u32;
        }
        blocks.reverse();
        let mut next = 0;
        while next < total {
            let Some(block) = blocks.get(next / (BLOCK - 1)) else {
                return;
            };
            let word = &self.block(*block)[1 + next % (BLOCK - 1)];
            let before = word.load(Ordering::Relaxed);
            let lens = before & 0xffff;
            word.store(header(at, &[], &[]) | lens, Ordering::Relaxed);
            next += words_of((lens >> 8) as usize + (lens & 255) as usize);
        }
    }

    /// A page cannot be read: no more puts wait for it.
    pub(super) fn note_unreadable(&self, page: u32) {
        let _stripe = self.buffer.stripe(page);
        let word = self.buffer.word(page);
        let waiting = Waiting {
            room: 0,
            ..Waiting::of(word.load(Ordering::Relaxed))
        };
        word.store(waiting.word(), Ordering::Release);
    }

    /// What waits for a page is of no use any more: the page is out of use. The caller is alone.
    pub(super) fn forget_waiting(&self, page: u32) {
        let _stripe = self.buffer.stripe(page);
        let waiting = Waiting::of(self.buffer.word(page).load(Ordering::Acquire));
        self.end_waiting(page, waiting);
    }

    /// Nothing waits for a page any more, whose stripe is held.
    fn end_waiting(&self, page: u32, waiting: Waiting) {
        self.buffer.word(page).store(0, Ordering::Release);
        if !waiting.is_none() {
            self.give_blocks(waiting.block);
            // Who finds none finds the pages changed.
            self.buffer.pages.fetch_sub(1, Ordering::Release);
        }
    }

    /// Merges what waits for a page into it, in its frame, whose latch is held, which is being changed, and which no other thread looks into. An
    /// error, and nothing is changed, if it does not fit.
    ///
    /// Under the stripe: a checkpoint finds the puts here, or the page dirty since the first of them.
    #[inline(always)]
    pub(super) fn merge_into(&self, page: u32, frame: &Frame) -> Result<()> {
        if !self.buffer.has(page) {
            return Ok(());
        }
        self.merge_waiting(page, frame)
    }

    #[cold]
    #[inline(never)]
    fn merge_waiting(&self, page: u32, frame: &Frame) -> Result<()> {
        let _stripe = self.buffer.stripe(page);
        let waiting = Waiting::of(self.buffer.word(page).load(Ordering::Acquire));
        let puts = self.puts_of(waiting);
        let needed = puts.iter().map(|put| room_of(put.key(), put.value()));
        let node = self.node(frame);
        if node.level() != 0 || node.used() + needed.sum::<usize>() > node.room() {
            let what = "a page is fuller than it was when it gave way";
            return Err(self.damaged(page, None, what));
        }
        let about = self.about(self.number_of(frame));
        let pin = self.log.pin();
        let _section = pin.critical_section();
        let newest = self.cuts.newest();
        for put in &puts {
            if frame.words[0].load(Ordering::Relaxed) < newest.at() {
                self.keep(page, frame, put.at);
            }
            if about.first_dirty.load(Ordering::Relaxed) == 0 {
                about.first_dirty.store(put.at, Ordering::Release);
                self.dirty.fetch_add(1, Ordering::Relaxed);
            }
            frame.words[0].store(put.at, Ordering::Relaxed);
            let (at, is_present) = node.find(put.key());
            let before = is_present.then(|| node.value(at));
            let is_set = node.set(at, is_present, put.key(), Value::Inside(put.value()));
            debug_assert!(is_set, "a page has room for what waits for it");
            match before {
                None => self.counts.add_merged(&pin, put.at, newest),
                Some(before) => self.supersede(before, put.at),
            }
        }
        self.end_waiting(page, waiting);
        Ok(())
    }

    /// A page gives way, whose latch is held.
    pub(super) fn note_room(&self, page: u32, frame: &Frame) {
        let node = self.node(frame);
        let room = match node.level() {
            0 => node.room().saturating_sub(node.used()),
            _ => 0,
        };
        let waiting = Waiting {
            room: room.min(u16::MAX.into()) as u16,
            ..Waiting::default()
        };
        let word = self.buffer.word(page);
        word.store(waiting.word(), Ordering::Release);
    }
}
