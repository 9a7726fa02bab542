//! Puts that wait in frames of the cache, and how they come into their pages.
//!
//! | a put | under |
//! |---|---|
//! | finds blocks, takes a frame for more | nothing: a frame may have to be written first |
//! | looks whether the page is cold still, and has room; is appended; is added to the page's chain | the page's partition, a critical section |
//! | is merged: keeps what cuts need, dirties the page, is counted | the latch of the page's frame, its partition, a critical section |
//!
//! A checkpoint that looks under the partition finds a put in its chain, or its page dirty since the put. A load that fails leaves the chain as it is. The
//! room of a page is noted when it gives way, before anybody finds it cold.
//!
//! It does not know when to merge (`merge`).

use std::sync::atomic::{AtomicU64, Ordering};

use super::cache::PageCache;
use super::change_buffer::{
    BLOCK, FreeBlocks, NONE, Waiting, WaitingPuts, header, lens_of, room_of, words_of,
};
use super::nodes::AppendedAt;
use super::table::Location;
use crate::error::{Kind, Result};
use crate::log::{AllocationClass, Entry};
use crate::node::tree::{Frame, NodeStore};
use crate::node::{Latch, Value};

/// Eighths of the cache that it may take; of a small one, of which updates hold a larger part, less.
const EIGHTHS: u64 = 3;
const EIGHTHS_OF_SMALL: u64 = 2;
const SMALL: u32 = 1024;
/// Bytes of blocks, at most: a checkpoint may append them again.
const BYTES_MAX: u64 = 256 << 20;
const _: () = assert!(size_of::<Latch>() <= BLOCK * 8 && size_of::<Latch>().is_multiple_of(8));

impl PageCache {
    /// Whether puts wait for a page.
    #[inline(always)]
    pub(super) fn has_waiting(&self, page: u32) -> bool {
        let word = || self.table.waiting(page).load(Ordering::Acquire);
        self.buffer.pages() != 0 && !Waiting::of(word()).is_none()
    }

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

    /// Frames that hold blocks.
    pub(super) fn frames_of_blocks(&self) -> u32 {
        self.buffer.blocks.lock().frames.len() as u32
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

    /// Has so many blocks free, if there may be as many. No latch and no partition is held.
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
    fn release_blocks(&self, blocks: &mut FreeBlocks) {
        blocks.free = NONE;
        blocks.free_count = 0;
        for frame in blocks.frames.drain(..) {
            self.give_frame(frame);
        }
    }

    /// Nothing is added from when this returns until as many calls of `reopen_buffer`.
    pub(super) fn close_buffer(&self) {
        self.buffer.closers.fetch_add(1, Ordering::SeqCst);
        for partition in &self.buffer.partitions {
            drop(partition.lock());
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
        let word = self.table.waiting(page);
        let room_in = |waiting: Waiting| usize::from(waiting.room).checked_sub(needed);
        if room_in(Waiting::of(word.load(Ordering::Relaxed))).is_none() {
            return Ok(None);
        }
        let most = words.div_ceil(BLOCK - 1) as u64 + 1;
        if !self.find_blocks(most)? {
            return Ok(None);
        }
        let partition = buffer.partition(page);
        let is_cold = matches!(self.table.at(page), Location::Cold(_));
        if !is_cold || !is_still() || !buffer.is_open() {
            return Ok(None);
        }
        let before = Waiting::of(word.load(Ordering::Relaxed));
        let total = (usize::from(before.words) + words).try_into();
        let (Some(room), Ok(total)) = (room_in(before), total) else {
            return Ok(None);
        };
        // Others may have taken what was free.
        let Some(fresh) = self.take_blocks(before, total) else {
            return Ok(None);
        };
        let moment = match self.append(self.log.pin(), entry, class) {
            Ok(moment) => moment,
            Err(error) => {
                self.cut_chain(fresh.last().copied(), before.block);
                return Err(error);
            }
        };
        self.store(before, &fresh, moment.at, entry);
        let block = fresh.last().copied().unwrap_or(before.block);
        let waiting = Waiting {
            block,
            words: total,
            room: room as u16,
        };
        if before.is_none() {
            buffer.pages.fetch_add(1, Ordering::Release);
        }
        word.store(waiting.word(), Ordering::Release);
        buffer.added.fetch_add(1, Ordering::Relaxed);
        drop(partition);
        Ok(Some(moment))
    }

    /// Blocks for so many words in all, each linked to the one before; `None`: there are too few.
    fn take_blocks(&self, before: Waiting, total: u16) -> Option<Vec<u32>> {
        let [used, needed] =
            [before.words, total].map(|words| usize::from(words).div_ceil(BLOCK - 1));
        let mut fresh = Vec::new();
        for _ in used..needed {
            let last = fresh.last().copied().unwrap_or(before.block);
            let Some(block) = self.take_block(last) else {
                self.cut_chain(fresh.last().copied(), before.block);
                return None;
            };
            fresh.push(block);
        }
        Some(fresh)
    }

    /// Writes a put to the end of a chain, and into blocks that follow it.
    fn store(&self, before: Waiting, fresh: &[u32], at: u64, entry: &Entry<'_>) {
        let (key, value) = (entry.key, entry.value);
        let mut block = before.block;
        let mut fresh = fresh.iter();
        let mut place = usize::from(before.words);
        let mut put = |word: u64| {
            if place.is_multiple_of(BLOCK - 1)
                && let Some(next) = fresh.next()
            {
                block = *next;
            }
            self.block(block)[1 + place % (BLOCK - 1)].store(word, Ordering::Relaxed);
            place += 1;
        };
        put(header(at, key.len(), value.len()));
        let mut bytes = key.iter().chain(value);
        for _ in 1..words_of(key.len() + value.len()) {
            let mut word = [0; 8];
            for byte in &mut word {
                *byte = bytes.next().copied().unwrap_or_default();
            }
            put(u64::from_le_bytes(word));
        }
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

    /// The puts that wait for a page whose partition is held.
    pub(super) fn waiting_puts(&self, page: u32) -> WaitingPuts {
        self.puts_of(Waiting::of(
            self.table.waiting(page).load(Ordering::Acquire),
        ))
    }

    fn puts_of(&self, waiting: Waiting) -> WaitingPuts {
        let total = usize::from(waiting.words);
        let mut bytes = vec![0; total * 8];
        let mut block = waiting.block;
        for first in (0..total).step_by(BLOCK - 1).rev() {
            let from = self.block(block);
            let (words, _) = bytes[first * 8..].as_chunks_mut::<8>();
            for (to, from) in words.iter_mut().zip(&from[1..]) {
                *to = from.load(Ordering::Relaxed).to_le_bytes();
            }
            block = from[0].load(Ordering::Relaxed) as u32;
        }
        let (end, _) = self.end_as_cut();
        WaitingPuts { bytes, end }
    }

    /// The key of a put that waits for a page whose partition is held.
    pub(super) fn waiting_key(&self, page: u32) -> Option<Vec<u8>> {
        let puts = self.waiting_puts(page);
        puts.iter().next().map(|put| put.key.to_vec())
    }

    /// The next pages from one on that have puts here, at most so many, and where the search ended; `None`: all were looked at.
    pub(super) fn next_waiting(&self, from: u32, most: usize) -> (Vec<u32>, Option<u32>) {
        let mut found = Vec::new();
        let given_out = self.space.room().pages();
        for page in from..given_out {
            if self.has_waiting(page) {
                found.push(page);
                if found.len() == most {
                    return (found, Some(page + 1));
                }
            }
        }
        (found, None)
    }

    /// Gives all puts of a page, whose partition is held, a later position: they were appended again.
    pub(super) fn set_position(&self, page: u32, at: u64) {
        let waiting = Waiting::of(self.table.waiting(page).load(Ordering::Acquire));
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
            let (key_len, value_len) = lens_of(before);
            word.store(header(at, key_len, value_len), Ordering::Relaxed);
            next += words_of(key_len + value_len);
        }
    }

    /// A page cannot be read: no more puts wait for it.
    pub(super) fn note_unreadable(&self, page: u32) {
        let _partition = self.buffer.partition(page);
        let word = self.table.waiting(page);
        let waiting = Waiting {
            room: 0,
            ..Waiting::of(word.load(Ordering::Relaxed))
        };
        word.store(waiting.word(), Ordering::Release);
    }

    /// What waits for a page is of no use any more: the page is out of use. The caller is alone.
    pub(super) fn forget_waiting(&self, page: u32) {
        let _partition = self.buffer.partition(page);
        let waiting = Waiting::of(self.table.waiting(page).load(Ordering::Acquire));
        self.end_waiting(page, waiting);
    }

    /// Nothing waits for a page any more, whose partition is held.
    fn end_waiting(&self, page: u32, waiting: Waiting) {
        self.table.waiting(page).store(0, Ordering::Release);
        if !waiting.is_none() {
            self.give_blocks(waiting.block);
            // Who finds none finds the pages changed.
            self.buffer.pages.fetch_sub(1, Ordering::Release);
        }
    }

    /// Merges what waits for a page into it, in its frame, whose latch is held, which is being changed, and which no other thread looks into. An
    /// error, and nothing is changed, if it does not fit.
    ///
    /// Under the partition: a checkpoint finds the puts here, or the page dirty since the first of them.
    #[inline(always)]
    pub(super) fn merge_into(&self, page: u32, frame: &Frame) -> Result<()> {
        if !self.has_waiting(page) {
            return Ok(());
        }
        self.merge_waiting(page, frame)
    }

    #[cold]
    #[inline(never)]
    fn merge_waiting(&self, page: u32, frame: &Frame) -> Result<()> {
        let _partition = self.buffer.partition(page);
        let waiting = Waiting::of(self.table.waiting(page).load(Ordering::Acquire));
        let puts = self.puts_of(waiting);
        let needed = puts.iter().map(|put| room_of(put.key, put.value));
        let node = self.node(frame);
        if node.level() != 0 || node.used() + needed.sum::<usize>() > node.room() {
            let what = "a page is fuller than it was when it gave way";
            return Err(self.damaged(page, None, what));
        }
        let about = self.about(self.number_of(frame));
        let pin = self.log.pin();
        let _section = pin.critical_section();
        let newest = self.cuts.newest();
        // Nothing is written any more: pages are to give way as they are on storage, and are shown as they would be.
        let is_shown_only = self.log.is_poisoned();
        for put in puts.iter() {
            // It was, when the page was shown before.
            let is_kept = || is_shown_only && self.cuts.is_kept(page, put.at);
            if frame.words[0].load(Ordering::Relaxed) < newest.at() && !is_kept() {
                self.keep(page, frame, put.at);
            }
            if !is_shown_only && about.first_dirty.load(Ordering::Relaxed) == 0 {
                about.first_dirty.store(put.at, Ordering::Release);
                self.dirty.fetch_add(1, Ordering::Relaxed);
            }
            frame.words[0].store(put.at, Ordering::Relaxed);
            let (at, is_present) = node.find(put.key);
            let before = is_present.then(|| node.value(at));
            let is_set = node.set(at, is_present, put.key, Value::Inside(put.value));
            debug_assert!(is_set, "a page has room for what waits for it");
            match before {
                _ if is_shown_only => {}
                None => self.counts.add_merged(&pin, put.at, newest),
                Some(before) => self.supersede(before, put.at),
            }
        }
        if !is_shown_only {
            self.end_waiting(page, waiting);
        }
        Ok(())
    }

    /// A page gives way, whose latch is held. What was only shown in it still waits.
    pub(super) fn note_room(&self, page: u32, frame: &Frame) {
        if self.has_waiting(page) {
            return;
        }
        let node = self.node(frame);
        let room = match node.level() {
            0 => node.room().saturating_sub(node.used()),
            _ => 0,
        };
        let waiting = Waiting {
            room: room.min(u16::MAX.into()) as u16,
            ..Waiting::default()
        };
        let word = self.table.waiting(page);
        word.store(waiting.word(), Ordering::Release);
    }
}
