//! Appending: reserve, copy, publish.
//!
//! ```text
//!   1 reserve   tail += length          one atomic add; the order of adds is the order of history
//!   2 copy      header rest, key, value, padding
//!   3 publish   the first word          a release store: now it is a frame
//! ```
//! A reservation that crosses the segment's end is not used: the thread that made it ends the segment with an end
//! frame, and the first thread that needs it opens the next one. A frame larger than half a segment gets a
//! segment of its own, as long as it needs, in its place in the chain.
//!
//! A crash between 1 and 3 leaves a hole; the write was not acknowledged, so nothing is lost.
//! It does not wait for anything but the space lock.

use std::sync::atomic::Ordering;

use super::layout::{FIRST_FRAME, LINK_OFFSET, SegmentHeader, encode_link, segment_seed};
use super::segment::{AllocationClass, Space, Use};
use super::{Address, CLOSED, Log};
use crate::epoch::CriticalSection;
use crate::error::{Error, Kind, Result, sizes};
use crate::explore;
use crate::format::frame::{FrameKind, Header, INNER, SHORT_KEY_LEN_MAX, SHORT_VALUE_LEN_MAX};
use crate::io::mmap::{Unpublished, copy};

/// What to append.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What the frame states.
    pub kind: FrameKind,
    /// Flags of `format::frame`.
    pub flags: u8,
    /// The key.
    pub key: &'a [u8],
    /// The value as stored.
    pub value: &'a [u8],
}

impl Entry<'_> {
    #[inline(always)]
    fn header(&self, flags: u8) -> Header {
        Header::new(
            self.kind,
            self.flags | flags,
            self.key.len(),
            self.value.len(),
        )
    }

    /// Bytes its frame will take.
    pub fn frame_len(&self) -> usize {
        self.header(0).frame_len()
    }

    /// Bytes that the frame of a batch of these takes; of a single one, its own.
    pub fn batch_len(entries: &[Entry<'_>]) -> usize {
        match entries {
            [entry] => entry.frame_len(),
            _ => Header::new(FrameKind::BATCH, 0, entries.len(), 0).header_len() + body(entries),
        }
    }
}

/// Bytes of the frames within a batch.
fn body(entries: &[Entry<'_>]) -> usize {
    let inner = |entry: &Entry<'_>| entry.header(INNER).frame_len();
    entries.iter().map(inner).sum()
}

/// Where a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its address.
    pub address: Address,
    /// Bytes it takes.
    pub len: usize,
}

/// A frame that is copied and not yet published: no reader sees it, and the log has a hole until it is published or
/// abandoned, within the critical section that it was made in.
#[derive(Debug)]
#[must_use]
pub struct Draft<'s> {
    log: &'s Log,
    offset: u64,
    len: usize,
    word: u64,
}

/// Room that is this thread's alone.
struct Room {
    offset: u64,
    place: u32,
    seed: u32,
}

impl Draft<'_> {
    /// Publishes it.
    #[inline(always)]
    #[expect(unsafe_code, reason = "room is written before it is published")]
    pub fn publish(self) -> Appended {
        if self.log.map.is_observed() {
            self.publish_observed();
        } else {
            // SAFETY: room of a segment of the log, which lies within the map; frames begin at words.
            let word = unsafe { self.log.map.word_within(self.offset) };
            word.store(self.word, Ordering::Release);
        }
        Appended {
            address: Address(self.offset >> 3),
            len: self.len,
        }
    }

    #[cold]
    #[inline(never)]
    fn publish_observed(&self) {
        self.room().publish(self.word);
    }

    #[expect(unsafe_code, reason = "room is written before it is published")]
    fn room(&self) -> Unpublished<'_> {
        // SAFETY: reserved by `Log::draft` for this draft alone, which ends when it is published.
        unsafe { self.log.map.unpublished(self.offset, self.len) }
    }

    /// Makes it an empty frame.
    #[cold]
    #[inline(never)]
    pub fn abandon(self) {
        let (log, len) = (self.log, self.len);
        let Some((index, at)) = log.geometry.locate(self.offset) else {
            unreachable!("a draft lies in the log")
        };
        let Some((seed, _)) = log.segments.seed(index) else {
            unreachable!("a draft lies in a segment of the log")
        };
        let mut frame = self.room();
        let header = Header::pad(len);
        if let Some(word) = header.long_word() {
            frame.put(0, &word.to_le_bytes());
        }
        let word = header.word(seed, at / 8, frame.rest());
        frame.publish(word);
        log.segments.mark_dead(index, len as u64);
    }
}

impl Log {
    /// Appends one frame and publishes it. The caller's critical section lasts until its index has the address.
    ///
    /// Costs no system call but where a segment ends and none was prepared. `Full` if there is no room for this
    /// `class`; then nothing was appended.
    #[inline(always)]
    pub fn append(
        &self,
        _mark: &CriticalSection,
        entry: &Entry<'_>,
        class: AllocationClass,
    ) -> Result<Appended> {
        let header = entry.header(0);
        let len = header.frame_len();
        let room = self.reserve(len, class)?;
        self.fill(&room, header, entry);
        Ok(Appended {
            address: Address(room.offset >> 3),
            len,
        })
    }

    /// The first two steps of `append`, if the entry is a short one and the open segment has room for it; the third is
    /// [`Draft::publish`] or [`Draft::abandon`]. `None`: nothing was reserved.
    #[inline(always)]
    #[expect(unsafe_code, reason = "room is written before it is published")]
    pub fn draft<'s>(
        &'s self,
        _mark: &'s CriticalSection,
        kind: FrameKind,
        key: &[u8],
        value: &[u8],
    ) -> Option<Draft<'s>> {
        if key.len() > SHORT_KEY_LEN_MAX || value.len() > SHORT_VALUE_LEN_MAX {
            return None;
        }
        let header = Header {
            kind,
            flags: 0,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
        };
        let len = header.short_len();
        let words = (len / 8) as u64;
        explore::yield_point();
        if (self.tail.0.load(Ordering::Relaxed) & 0xffff_ffff) + words > self.words {
            return None;
        }
        explore::yield_point();
        let tail = self.tail.0.fetch_add(words, Ordering::Acquire);
        let (index, at) = (tail >> 32, tail & 0xffff_ffff);
        if at + words > self.words {
            self.missed(index as u32, at);
            return None;
        }
        let seed = self.segments.seed_of_unit(index)?;
        let offset = self.geometry.offset_of(index as u32) + at * 8;
        debug_assert!(
            8 + key.len() + value.len() <= len && at + words <= self.geometry.segment_size() / 8
        );
        // SAFETY: the tail's addition gave this thread alone the words from `at` to `at + words`, which do not pass
        // `self.words`, the words of a segment of one unit (checked above); `seed_of_unit` confirms that `index` is such a
        // segment. So the range lies in the segment, and the segment in the map. No other thread reads or writes it before
        // its first word is stored. `short_len` is a word, key and value, rounded up: both copies end within `len`.
        let rest = unsafe {
            let room = self.map.at(offset + 8);
            copy(key.as_ptr(), room, key.len());
            copy(value.as_ptr(), room.wrapping_add(key.len()), value.len());
            self.map.bytes_within(offset + 8, len - 8)
        };
        let word = header.short_word(seed, at as u32, rest);
        Some(Draft {
            log: self,
            offset,
            len,
            word,
        })
    }

    /// Ends the segment of a reservation that crossed its end.
    #[cold]
    fn missed(&self, index: u32, at: u64) {
        if at < self.geometry.segment_size() / 8 {
            self.end_segment(index, at as u32, false);
        }
    }

    /// Appends `entries` as one batch: after a crash all of them happened or none. Calls `each` with the
    /// frame of every entry, in order.
    pub fn append_batch(
        &self,
        _mark: &CriticalSection,
        entries: &[Entry<'_>],
        class: AllocationClass,
        mut each: impl FnMut(usize, Appended),
    ) -> Result<()> {
        let body = body(entries);
        // Of a frame's header of two words.
        let most = self.geometry.frame_max() as usize - 16;
        if body > most {
            let (found, most) = sizes(body as u64, most as u64);
            return Err(Error::new(Kind::TooLarge, "a batch is too long")
                .at(self.storage.path())
                .found(found, format!("{most} or less"))
                .remedy("change fewer records at once"));
        }
        let header = Header::new(FrameKind::BATCH, 0, entries.len(), body);
        let room = self.reserve(header.frame_len(), class)?;
        self.mark_rest_of_batch_dead(&room, header, entries);
        let mut at = header.header_len();
        for (index, entry) in entries.iter().enumerate() {
            let inner = entry.header(INNER);
            let part = Room {
                offset: room.offset + at as u64,
                place: room.place + (at / 8) as u32,
                seed: room.seed,
            };
            self.fill(&part, inner, entry);
            each(
                index,
                Appended {
                    address: Address(part.offset >> 3),
                    len: inner.frame_len(),
                },
            );
            at += inner.frame_len();
        }
        let mut frame = self.unpublished(&room, header.frame_len());
        if let Some(word) = header.long_word() {
            frame.put(0, &word.to_le_bytes());
        }
        Self::publish_filled(frame, &room, header);
        Ok(())
    }

    /// Counts as dead what cleaning gives back of a batch's room whatever becomes of its records: the header, and, of segments
    /// of its own, the rest after it. Copies stand by themselves: short ones fill segments but for less than one of them.
    fn mark_rest_of_batch_dead(&self, room: &Room, header: Header, entries: &[Entry<'_>]) {
        let Some((index, _)) = self.geometry.locate(room.offset) else {
            return;
        };
        self.segments.mark_dead(index, header.header_len() as u64);
        let size = self.geometry.segment_size();
        let len = header.frame_len() as u64;
        if len <= size / 2 {
            return;
        }
        let longest = entries.iter().map(Entry::frame_len).max().unwrap_or(0) as u64;
        if longest > size / 2 {
            return;
        }
        let after = u64::from(FIRST_FRAME) + len;
        let rest = after.next_multiple_of(size) - after;
        let wasted = len / (size - longest) * longest;
        self.segments.regain(index, rest.saturating_sub(wasted));
    }

    /// Room of `len` bytes: one atomic add in the common case.
    #[inline(always)]
    fn reserve(&self, len: usize, class: AllocationClass) -> Result<Room> {
        let words = (len / 8) as u64;
        let limit = self.geometry.segment_size() / 8;
        let tail = self.tail.0.load(Ordering::Relaxed);
        if (tail & 0xffff_ffff) + words <= limit && words <= limit / 2 {
            explore::yield_point();
            // Acquire: pairs with the store that opened the segment, so that its header and seed are seen. In one order with
            // `Log::end`, so that who takes an end is seen by who appends after it.
            let tail = self.tail.0.fetch_add(words, Ordering::SeqCst);
            let (index, at) = (tail >> 32, tail & 0xffff_ffff);
            if at + words <= limit
                && let Some(seed) = self.segments.seed_of_unit(index)
            {
                let offset = self.geometry.offset_of(index as u32) + at * 8;
                return Ok(Room {
                    offset,
                    place: at as u32,
                    seed,
                });
            }
            return self.reserve_anew(len, class, Some((index as u32, at)));
        }
        self.reserve_anew(len, class, None)
    }

    /// Room where the open segment has none: `missed` is a reservation that crossed its end.
    #[cold]
    fn reserve_anew(
        &self,
        len: usize,
        class: AllocationClass,
        missed: Option<(u32, u64)>,
    ) -> Result<Room> {
        let limit = self.geometry.segment_size() / 8;
        if let Some((index, at)) = missed {
            self.missed(index, at);
            self.roll(index, class)?;
        } else if (len / 8) as u64 > limit / 2 {
            return self.reserve_large(len, class);
        } else {
            self.roll_exclusive(
                (self.tail.0.load(Ordering::Relaxed) >> 32) as u32,
                (len / 8) as u64,
                class,
            )?;
        }
        self.reserve(len, class)
    }

    /// Ends segment `index` at the word `at`, which is reserved by the caller to the segment's end. `fits`: whether frames
    /// like those before it would fit in the rest, so that cleaning the segment gives the rest back.
    fn end_segment(&self, index: u32, at: u32, fits: bool) {
        let Some((seed, room)) = self.segments.seed(index) else {
            return;
        };
        // Nothing will stand there: it is as good as dead.
        let rest = room.saturating_sub(u64::from(at) * 8);
        if fits {
            self.segments.mark_dead(index, rest);
        } else {
            self.segments.waste(index, rest);
        }
        let header = Header::new(FrameKind::END, 0, 0, 0);
        let offset = self.geometry.offset_of(index) + u64::from(at) * 8;
        self.map.store_u64(offset, header.word(seed, at, &[]));
    }

    /// Opens the next segment if no thread did since `seen` was the open one.
    #[cold]
    fn roll(&self, seen: u32, class: AllocationClass) -> Result<()> {
        let mut space = self.segments.space();
        let index = (self.tail.0.load(Ordering::Relaxed) >> 32) as u32;
        if index == seen {
            self.open_next(&mut space, class)
        } else {
            Ok(())
        }
    }

    /// As `roll`, for a thread that has not added to the tail, and has `words` to add: it takes what is left
    /// of the segment, unless another one was opened since.
    #[cold]
    fn roll_exclusive(&self, seen: u32, words: u64, class: AllocationClass) -> Result<()> {
        let limit = self.geometry.segment_size() / 8;
        let mut space = self.segments.space();
        let tail = self.tail.0.load(Ordering::Relaxed);
        let at = tail & 0xffff_ffff;
        if (tail >> 32) as u32 != seen || at + words <= limit {
            return Ok(());
        }
        // Before the segment is ended: what does not fit is no reason to waste what is left of it.
        space.secure(1, class)?;
        if seen != u32::MAX && at < limit {
            explore::yield_point();
            // Others may add meanwhile; who gets beyond the limit first has ended the segment.
            let before = self.tail.0.fetch_add(limit, Ordering::Relaxed) & 0xffff_ffff;
            if before < limit {
                self.end_segment(seen, before as u32, words == limit);
            }
        }
        self.open_next(&mut space, class)
    }

    pub(super) fn open_next(&self, space: &mut Space<'_>, class: AllocationClass) -> Result<()> {
        self.link_next(space, 1, class, |index| {
            u64::from(index) << 32 | u64::from(FIRST_FRAME / 8)
        })?;
        self.appended
            .fetch_add(self.geometry.segment_size(), Ordering::Relaxed);
        Ok(())
    }

    /// Ends the open segment and continues in the free one nearest to the front.
    pub fn roll_over(&self) -> Result<()> {
        let open = (self.tail.0.load(Ordering::Relaxed) >> 32) as u32;
        let all = self.geometry.segment_size() / 8;
        // As an append: a sync that finds the segment full waits until it is ended, or the mark would promise a frame
        // that a process killed now never stores.
        let pin = self.pin();
        let _mark = pin.critical_section();
        self.roll_exclusive(open, all, AllocationClass::Cleaning)
    }

    /// Takes the next segment and hangs it at the end of the chain; `tail_of` its index is the tail from now on. Both
    /// change under the chain's lock, so that no thread sees the end of one and the tail of the other.
    fn link_next(
        &self,
        space: &mut Space<'_>,
        units: u32,
        class: AllocationClass,
        tail_of: impl FnOnce(u32) -> u64,
    ) -> Result<u32> {
        let mut chain = self.chain.lock();
        let sequence = chain.next_sequence;
        let index = space.take(units, sequence, Use::Log, class)?;
        let header = SegmentHeader { sequence, units }.encode(self.geometry.salt);
        self.map.write(self.geometry.offset_of(index), &header);
        if let Some((last, last_sequence)) = chain.last {
            let seed = segment_seed(self.geometry.salt, last_sequence);
            let offset = self.geometry.offset_of(last) + LINK_OFFSET;
            self.map
                .store_u64(offset, encode_link(index, seed, sequence));
        }
        *chain = super::Chain {
            last: Some((index, sequence)),
            next_sequence: sequence + 1,
            class,
        };
        // Release: the header and the table are there for each thread that adds to it.
        self.tail.0.store(tail_of(index), Ordering::Release);
        drop(chain);
        Ok(index)
    }

    /// A segment of its own for a large frame; the open one ends before it.
    #[cold]
    fn reserve_large(&self, len: usize, class: AllocationClass) -> Result<Room> {
        let limit = self.geometry.segment_size() / 8;
        let units = (len as u64 + u64::from(FIRST_FRAME)).div_ceil(self.geometry.segment_size());
        let mut space = self.segments.space();
        space.secure(units as u32, class)?;
        explore::yield_point();
        let tail = self.tail.0.swap(CLOSED, Ordering::AcqRel);
        let (open, at) = ((tail >> 32) as u32, tail & 0xffff_ffff);
        if open != u32::MAX && at < limit {
            self.end_segment(open, at as u32, true);
        }
        let index = self.link_next(&mut space, units as u32, class, |_| CLOSED)?;
        self.appended
            .fetch_add(units << self.geometry.shift, Ordering::Relaxed);
        let Some((seed, _)) = self.segments.seed(index) else {
            unreachable!("a segment just taken is in the table")
        };
        let after = u64::from(FIRST_FRAME) + len as u64;
        if after < units << self.geometry.shift {
            self.end_segment(index, (after / 8) as u32, false);
        }
        let offset = self.geometry.offset_of(index) + u64::from(FIRST_FRAME);
        Ok(Room {
            offset,
            place: FIRST_FRAME / 8,
            seed,
        })
    }

    /// Copies the frame in and publishes it.
    #[inline(always)]
    fn fill(&self, room: &Room, header: Header, entry: &Entry<'_>) {
        if header.is_long() {
            return self.fill_long(room, header, entry);
        }
        let mut frame = self.unpublished(room, header.frame_len());
        frame.put(0, entry.key);
        frame.put(entry.key.len(), entry.value);
        Self::publish_filled(frame, room, header);
    }

    #[inline(never)]
    fn fill_long(&self, room: &Room, header: Header, entry: &Entry<'_>) {
        let mut frame = self.unpublished(room, header.frame_len());
        if let Some(word) = header.long_word() {
            frame.put(0, &word.to_le_bytes());
        }
        frame.put(8, entry.key);
        frame.put(8 + entry.key.len(), entry.value);
        Self::publish_filled(frame, room, header);
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "room is written before it is published")]
    fn unpublished(&self, room: &Room, len: usize) -> Unpublished<'_> {
        // SAFETY: reserved by this thread, within a segment; no other thread reads or writes it before the
        // first word is stored.
        unsafe { self.map.unpublished(room.offset, len) }
    }

    /// The checksum is taken from the bytes as they stand in the log. The padding is zero: room is handed out
    /// zeroed.
    #[inline(always)]
    fn publish_filled(frame: Unpublished<'_>, room: &Room, header: Header) {
        let word = header.word(room.seed, room.place, frame.rest());
        frame.publish(word);
    }
}
