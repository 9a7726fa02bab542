//! The log: an append-only chain of segments whose frames are the data.
//!
//! Many threads append at one tail: each reserves its room by one atomic add, copies, and publishes by
//! storing the frame's first word. Position is order: a thread that reserves under a record's lock keeps that
//! record's frames in order, and the whole log is one history.
//!
//! ```text
//!    segment 4            segment 0            segment 7
//!   +--------------+     +--------------+     +--------------+
//!   |hdr f f f f E |---->|hdr f f F f E |---->|hdr f f o f . |  . zeros: not reserved yet
//!   +--------------+     +--------------+     +----------^---+  o hole: reserved, not published
//!    ^checkpoint          ^durable mark             tail-'      E end   F batch
//! ```
//!
//! Invariants:
//! 1. A segment's sequence is never used twice, and the checksum of a frame covers it and the frame's address: bytes of
//!    an earlier use, or at a wrong address, are no frames.
//! 2. A published frame is not written again until its segment was retired, a later checkpoint is durable,
//!    and its grace period has elapsed (`segment`).
//! 3. The link to a segment is stored before anything in it is.
//! 4. Everything before the mark was synced. After it, a power cut leaves a prefix that ends at the first
//!    thing that is no frame; a killed process leaves holes only where a thread was between reserving
//!    and publishing (`recover`).
//!
//! What frames mean, which are live, and when to clean is the engine's. Lock order: the space of the
//! segments, then the chain; the commit's lock alone.

mod append;
mod commit;
pub mod damaged;
pub mod finder;
pub mod follow;
mod group;
pub mod layout;
pub mod manifest;
pub mod parts;
pub mod recover;
pub mod root;
mod scan;
pub mod segment;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::damage::{Affects, Damage};
use crate::epoch::{Domain, Pin};
use crate::error::{Error, Kind, Result};
use crate::explore;
use crate::format::frame::{Frame, FrameKind, Header, KindPair, NoFrame, same};
use crate::io::{Map, Storage};

pub use append::{Appended, Entry};
pub use follow::Retention;
pub use layout::{End, LogPosition};
pub use scan::Stop;
pub use segment::{AllocationClass, Geometry, Patience, Reserve, Segment, Segments, Use};

use layout::{FIRST_FRAME, LINK_OFFSET, Link, SegmentHeader};

/// Where a frame stands in the file, in words of 8 bytes: 40 bits, 8 TiB. 0 is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The offset in the file.
    #[inline(always)]
    pub fn offset(self) -> u64 {
        self.0 << 3
    }
}

/// A short record's frame, not yet verified: offset in its segment, seed, first word, and the rest.
struct ShortFrame<'p> {
    at: u64,
    seed: u32,
    word: u64,
    header: Header,
    rest: &'p [u8],
}

/// A frame that was asked for, and not looked at yet.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    offset: u64,
    index: u32,
}

/// A frame that is dead once the entry of its record points to a later one.
#[derive(Clone, Copy, Debug)]
pub struct Superseded {
    index: u32,
    len: u64,
}

/// The tail when no segment is open for small frames.
const CLOSED: u64 = (u32::MAX as u64) << 32 | u32::MAX as u64 >> 1;

/// See the module's text.
pub struct Log {
    // Set by the opener.
    storage: Arc<dyn Storage>,
    map: Arc<Map>,
    geometry: Geometry,
    /// The table and the space have their own rules.
    segments: Segments,
    /// Index of the open segment (upper half) and offset in it in words (lower half). Reserved by adding;
    /// replaced under the space lock only, and opened under that of the chain, together with what the chain
    /// states. Relaxed adds are enough: what is reserved is private, and
    /// publishing it is a release store of its own.
    tail: Tail,
    /// Words of a segment.
    words: u64,
    /// Under the space lock: the end of the chain, and the next sequence.
    chain: explore::Mutex<Chain>,
    /// Bytes ever appended by this opening; relaxed, for intervals and bounds.
    appended: AtomicU64,
    commit: commit::Commit,
    /// What followers need, and those to come.
    retained: explore::Mutex<follow::Retained>,
}

/// On lines of its own: every append writes it.
#[repr(align(128))]
struct Tail(AtomicU64);

/// The end of the chain.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// Index and sequence. `None`: the log was not begun.
    last: Option<(u32, u64)>,
    next_sequence: u64,
    /// What the last segment was taken for.
    class: AllocationClass,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("path", &self.storage.path())
            .finish_non_exhaustive()
    }
}

impl Log {
    /// A log over `storage` that has no segment yet: `recover` finds them, or [`Log::begin`] makes the first.
    pub fn new(storage: Arc<dyn Storage>, map: Arc<Map>, geometry: Geometry) -> Result<Self> {
        let segments = Segments::new(Arc::clone(&storage), Arc::clone(&map), geometry)?;
        // The first pin of a process takes milliseconds where there are threads: not in a caller's first call.
        drop(segments.domain.pin());
        Ok(Self {
            storage,
            map,
            geometry,
            segments,
            tail: Tail(AtomicU64::new(CLOSED)),
            words: geometry.segment_size() / 8,
            chain: explore::Mutex::new(Chain {
                last: None,
                next_sequence: 0,
                class: AllocationClass::Checkpoint,
            }),
            appended: AtomicU64::new(0),
            commit: commit::Commit::default(),
            retained: explore::Mutex::default(),
        })
    }

    /// What threads pin themselves in while they are at frames of this log.
    #[inline(always)]
    pub fn domain(&self) -> &Domain {
        &self.segments.domain
    }

    /// Pins this thread: no segment that it can find is reused meanwhile.
    #[inline(always)]
    pub fn pin(&self) -> Pin {
        self.segments.domain.pin()
    }

    /// Begins a chain with a first segment of this sequence.
    pub fn begin(&self, sequence: u64) -> Result<()> {
        self.chain.lock().next_sequence = sequence;
        self.open_next(&mut self.segments.space(), AllocationClass::Checkpoint)
    }

    /// Lets the chain continue after `end`, with sequences from `next_sequence` on. Where that is closed, a new segment is
    /// taken with the first append.
    pub fn resume(&self, end: End, next_sequence: u64) {
        let mut chain = self.chain.lock();
        *chain = Chain {
            last: Some((end.segment(), end.sequence())),
            next_sequence,
            class: AllocationClass::Checkpoint,
        };
        let tail = end.offset().map_or(CLOSED, |offset| {
            u64::from(end.segment()) << 32 | u64::from(offset / 8)
        });
        self.tail.0.store(tail, Ordering::Relaxed);
    }

    /// The segments.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Sizes and salt.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The storage below.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The mapped storage.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// The sequence the next segment will get.
    pub fn next_sequence(&self) -> u64 {
        self.chain.lock().next_sequence
    }

    /// Bytes appended since the log was opened.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// The end of the log, after everything reserved. Of a log that was not begun: before its first segment.
    pub fn end(&self) -> End {
        let chain = self.chain.lock();
        explore::yield_point();
        let tail = self.tail.0.load(Ordering::SeqCst);
        let (open, offset) = ((tail >> 32) as u32, (tail & 0xffff_ffff) * 8);
        let (segment, sequence) = chain
            .last
            .unwrap_or((0, chain.next_sequence.saturating_sub(1)));
        // The tail is opened under the chain's lock: one that is of another segment is closed.
        debug_assert!(open == u32::MAX || open == segment);
        let has_room = open == segment && offset < self.geometry.segment_size();
        End::of(segment, sequence, has_room.then_some(offset as u32))
    }

    /// Refuses if an earlier write or sync failed.
    #[inline(always)]
    pub fn healthy(&self) -> Result<()> {
        let alarms = segment::POISONED | segment::REFUSED;
        // A page that cannot be read must not be written either: what is stored there would be lost.
        if self.segments.has_alarm(alarms) || self.map.has_unreadable() {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// Refuses if an earlier write or sync failed, but not for damage.
    pub(super) fn unpoisoned(&self) -> Result<()> {
        if self.is_poisoned() {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// Looks whether the path still leads to the file, as [`File::verify_path`](crate::io::file::File::verify_path). While it does
    /// not, updates are refused (`placed`).
    pub fn verify_path(&self) -> Result<()> {
        let file = self.storage.as_file();
        let verified = file.map_or(Ok(()), crate::io::file::File::verify_path);
        if verified.is_err() {
            self.segments.raise(segment::DISPLACED);
        } else if self.segments.has_alarm(segment::DISPLACED) {
            self.segments.clear_alarm(segment::DISPLACED);
        }
        verified
    }

    /// Refuses if the path did not lead to the file when it was last looked at, and does not now.
    pub fn placed(&self) -> Result<()> {
        if self.segments.has_alarm(segment::DISPLACED) {
            return self.verify_path();
        }
        Ok(())
    }

    /// Whether writes are refused because of damage.
    #[inline(always)]
    pub fn is_refused(&self) -> bool {
        self.segments.has_alarm(segment::REFUSED) || self.map.has_unreadable()
    }

    /// Refuses writes from now on: what they rest on is damaged. Reads continue.
    pub fn refuse(&self) {
        self.segments.raise(segment::REFUSED);
    }

    /// Whether an earlier write or sync failed.
    #[inline(always)]
    pub fn is_poisoned(&self) -> bool {
        self.segments.has_alarm(segment::POISONED)
    }

    /// Whether updates are to look twice: the log is poisoned, the store is full, or its file displaced.
    #[inline(always)]
    pub fn is_alarmed(&self) -> bool {
        self.segments.is_alarmed()
    }

    /// Refuses to append `len` bytes of this `class` where a full store has no room for them; called before anything is appended. The open
    /// segment takes it if it was not taken for a more urgent class, whose room it is. Where `len` is 0, it is not known
    /// yet, and a segment is to be free.
    #[inline(always)]
    pub fn admit(&self, class: AllocationClass, len: usize) -> Result<()> {
        if self.segments.is_full()
            && matches!(class, AllocationClass::Growth | AllocationClass::Exchange)
        {
            return self.admit_to_full(class, len);
        }
        Ok(())
    }

    #[cold]
    fn admit_to_full(&self, class: AllocationClass, len: usize) -> Result<()> {
        {
            let chain = self.chain.lock();
            let words = (len / 8) as u64;
            if chain.class <= class
                && (1..=self.words / 2).contains(&words)
                && words <= self.words_in_open(&chain)
            {
                return Ok(());
            }
        }
        self.segments.space().secure(self.units_of(len), class)
    }

    /// Bytes that short frames may still take of the open segment.
    pub fn room_in_open(&self) -> u64 {
        8 * self.words_in_open(&self.chain.lock())
    }

    /// Words that are left of the segment at the end of the chain; 0 if it is closed.
    fn words_in_open(&self, chain: &Chain) -> u64 {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let (open, at) = ((tail >> 32) as u32, tail & 0xffff_ffff);
        let is_open = chain.last.is_some_and(|(index, _)| index == open);
        if is_open {
            self.words.saturating_sub(at)
        } else {
            0
        }
    }

    /// Segments that a frame of `len` bytes takes, or is appended to.
    pub fn units_of(&self, len: usize) -> u32 {
        let size = self.geometry.segment_size();
        if len as u64 <= size / 2 {
            return 1;
        }
        (len as u64 + u64::from(FIRST_FRAME)).div_ceil(size) as u32
    }

    /// Segments that frames of these lengths take beyond the open one, appended in their order while no other thread appends; and
    /// those that the longest of them takes side by side.
    pub fn units_for(&self, lens: impl IntoIterator<Item = usize>) -> (u32, u32) {
        let size = self.geometry.segment_size();
        let (mut needed, mut longest) = (0, 0);
        let mut rest = self.room_in_open();
        for len in lens {
            let units = self.units_of(len);
            let len = len as u64;
            if len > size / 2 {
                // It is alone in its segments.
                (needed, rest) = (needed + units, 0);
                longest = longest.max(units);
            } else if len > rest {
                (needed, rest) = (needed + 1, size - u64::from(FIRST_FRAME) - len);
                longest = longest.max(1);
            } else {
                rest -= len;
            }
        }
        (needed, longest)
    }

    #[cold]
    fn refusal(&self) -> Error {
        let path = self.storage.path();
        if !self.is_poisoned() {
            return Error::new(Kind::Corrupted, "the file is damaged and can be read only")
                .at(path)
                .remedy(format!("run `azekura repair {} NEW-FILE`", path.display()));
        }
        Error::new(
            Kind::Poisoned,
            "an earlier write or sync failed, the state is unknown",
        )
        .at(path)
        .remedy("close it and open it again; recovery runs then")
    }

    /// Refuses everything from now on.
    pub fn poison(&self) {
        self.segments.raise(segment::POISONED);
    }

    /// The frame at `address`, verified, lent as long as the pin lives. One storage access if it is not in
    /// memory. `Corrupted` if the address is no frame's or the checksum does not match.
    #[inline]
    pub fn frame<'p>(&'p self, pin: &'p Pin, address: Address) -> Result<Frame<'p>> {
        self.domain().check(pin);
        match self.look(address) {
            Ok(frame) => Ok(frame),
            Err(reason) => Err(self.frame_error(address, reason)),
        }
    }

    /// Asks the CPU for the frame's first line.
    #[inline(always)]
    pub fn prefetch(&self, address: Address) {
        crate::io::mmap::prefetch(self.map.at(address.offset().min(self.map.capacity() - 8)));
    }

    /// Asks for the lines of a frame that is thought to have `len` bytes, but not for more than four: after them the CPU
    /// sees by itself that they are read in order.
    #[inline(always)]
    pub fn prefetch_lines(&self, address: Address, len: usize) {
        let at = |offset: u64| self.map.at(offset.min(self.map.capacity() - 8));
        let end = address.offset() + len.min(4 * 64) as u64;
        let mut next = address.offset();
        crate::io::mmap::prefetch(at(next));
        next = (next | 63) + 1;
        while next < end {
            crate::io::mmap::prefetch(at(next));
            next += 64;
        }
    }

    /// Where a frame stands: its header and first word, the seed, the offset in its segment. What is found
    /// lies within the segment.
    #[inline(always)]
    fn measure(&self, address: Address) -> std::result::Result<(Header, u64, u32, u32), NoFrame> {
        let offset = address.offset();
        let (index, at) = self.geometry.locate(offset).ok_or(NoFrame::Shape)?;
        let (seed, room, at) = self.segments.place(index, at).ok_or(NoFrame::Shape)?;
        let (header, word) = self.measure_within(offset, room - u64::from(at))?;
        Ok((header, word, seed, at))
    }

    /// As `measure`, at this offset of the file, from where there is so much room.
    #[inline(always)]
    fn measure_within(
        &self,
        offset: u64,
        left: u64,
    ) -> std::result::Result<(Header, u64), NoFrame> {
        let word = self.map.load_u64(offset);
        let mut header = Header::of_word(word).ok_or(NoFrame::Shape)?;
        if header.is_long() {
            if left < 16 {
                return Err(NoFrame::Shape);
            }
            header = header.with_lens(self.map.load_u64(offset + 8));
        }
        if header.frame_len() as u64 > left {
            return Err(NoFrame::Shape);
        }
        Ok((header, word))
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the one place that lends published bytes")]
    fn look(&self, address: Address) -> std::result::Result<Frame<'_>, NoFrame> {
        let (header, word, seed, at) = self.measure(address)?;
        // SAFETY: within a segment of the log (measured), which lies within the storage. The first word is
        // not zero, so the frame is published (acquired above) or, if these are no frame's bytes, no thread
        // writes here either: a segment's unreserved room is all zeros. It is not reused while the
        // caller is pinned (invariant 2), which `frame` demands and `scan` holds by other means.
        let bytes = unsafe { self.map.bytes(address.offset(), header.frame_len()) };
        Frame::verify(header, word, bytes, seed, at / 8)
    }

    /// The frame at `address` if it is the common case: a record of `key` in the short form, uncompressed, in
    /// a segment of one unit, and whole. `None`: it is not known; `frame` knows.
    ///
    /// The same verification as `frame`'s, in a quarter of its instructions: what waits for a record's cache
    /// miss must fit into the processor's scheduler, or the next lookup's miss does not begin meanwhile.
    #[inline(always)]
    #[expect(unsafe_code, reason = "lends published bytes, as `look` does")]
    pub fn frame_of_key<'p>(
        &'p self,
        pin: &'p Pin,
        kinds: KindPair,
        address: Address,
        key: &[u8],
    ) -> Option<Frame<'p>> {
        self.domain().check(pin);
        let near = self.short_frame(kinds, address, key.len())?;
        let header = near.header;
        let (at, value_len) = (address.offset() + 8, header.value_len as usize);
        // SAFETY: key and value lie within the frame's rest, by its length.
        let (stored, value) = unsafe {
            (
                self.map.bytes_within(at, key.len()),
                self.map.bytes_within(at + key.len() as u64, value_len),
            )
        };
        let place = (near.at / 8) as u32;
        let is_whole = Header::is_sum(near.word, near.seed, place, near.rest);
        (is_whole && same(stored, key)).then_some(Frame {
            header,
            key: stored,
            value,
        })
    }

    /// Finds the frame at `address` and asks the CPU for it, so that it comes while the caller does something else. `None`: it
    /// is not in a segment of one unit.
    #[inline(always)]
    pub fn locate(&self, address: Address) -> Option<Located> {
        let offset = address.offset();
        let index = offset.wrapping_sub(layout::DATA_OFFSET) >> self.geometry.shift;
        // First: a slot that is only reserved has an address beyond the map.
        self.segments.seed_of_unit(index)?;
        crate::io::mmap::prefetch(self.map.at(offset));
        Some(Located {
            offset,
            index: index as u32,
        })
    }

    /// The segment and length of the frame, if it is a short record of `key` as for `frame_of_key`. Only the
    /// key is compared: a caller that is about to mark the frame dead need not have it whole.
    #[inline(always)]
    #[expect(unsafe_code, reason = "lends published bytes, as `look` does")]
    pub fn superseded_by_key(
        &self,
        pin: &Pin,
        kinds: KindPair,
        sought: &Located,
        key: &[u8],
    ) -> Option<Superseded> {
        self.domain().check(pin);
        let offset = sought.offset;
        // SAFETY: the unit is a segment of the log, which lies within the storage; addresses are of words.
        let word = unsafe { self.map.load_within(offset) };
        let len = Header::of_short(kinds, word, key.len())?.short_len() as u64;
        let at = offset.wrapping_sub(layout::DATA_OFFSET) & (self.words * 8 - 1);
        if at + len > self.words * 8 {
            return None;
        }
        // SAFETY: `at + len` is within the segment, which lies within the storage, and the key within the first `len` bytes of
        // the frame, after its word. The word is that of a short record of such a key, so its bytes were written before it
        // was, or are those of an earlier use, which no thread writes either: a segment is not reused while a thread is pinned.
        let stored = unsafe { self.map.bytes_within(offset + 8, key.len()) };
        same(stored, key).then_some(Superseded {
            index: sought.index,
            len,
        })
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "lends published bytes, as `look` does")]
    fn short_frame(
        &self,
        kinds: KindPair,
        address: Address,
        key_len: usize,
    ) -> Option<ShortFrame<'_>> {
        let offset = address.offset();
        let data = offset.wrapping_sub(layout::DATA_OFFSET);
        let index = data >> self.geometry.shift;
        let seed = self.segments.seed_of_unit(index)?;
        // SAFETY: the unit is a segment of the log, which lies within the storage; addresses are of words.
        let word = unsafe { self.map.load_within(offset) };
        let header = Header::of_short(kinds, word, key_len)?;
        let len = header.short_len();
        let size = self.geometry.segment_size();
        let at = data & (size - 1);
        if at + len as u64 > size {
            return None;
        }
        // SAFETY: as in `look`: within a segment of the log, published, not reused while pinned.
        let rest = unsafe { self.map.bytes_within(offset + 8, len - 8) };
        Some(ShortFrame {
            at,
            seed,
            word,
            header,
            rest,
        })
    }

    /// The frame of `len` bytes at `address`, of which the caller knows that it is the record's.
    #[inline(always)]
    pub fn superseded(&self, address: Address, len: usize) -> Option<Superseded> {
        let (index, _) = self.geometry.locate(address.offset())?;
        self.segments.counted(index).map(|index| Superseded {
            index,
            len: len as u64,
        })
    }

    /// Counts a frame as dead, since a later one states what its record is.
    #[inline(always)]
    pub fn mark_superseded_dead(&self, superseded: &Superseded) {
        self.segments
            .mark_unit_dead(superseded.index, superseded.len);
    }

    /// As `frame`, for a log that another process writes: the frame is copied to `buf` and verified there, since
    /// its segment may be reused at any moment.
    pub fn copy_frame<'b>(&self, address: Address, buf: &'b mut Vec<u8>) -> Result<Frame<'b>> {
        self.look_copy(address, buf)
            .map_err(|reason| self.frame_error(address, reason))
    }

    fn look_copy<'b>(
        &self,
        address: Address,
        buf: &'b mut Vec<u8>,
    ) -> std::result::Result<Frame<'b>, NoFrame> {
        let (header, word, seed, at) = self.measure(address)?;
        buf.resize(header.frame_len(), 0);
        self.map.copy_out(address.offset(), buf);
        Frame::verify(header, word, buf, seed, at / 8)
    }

    /// Whether the key of a frame that does not verify reads like `key`.
    #[cold]
    pub fn seems_of(&self, address: Address, key: &[u8]) -> bool {
        let Ok((header, ..)) = self.measure(address) else {
            return false;
        };
        let from = header.header_len();
        if header.key_bytes() != key.len() || from + key.len() > header.frame_len() {
            return false;
        }
        let mut stored = vec![0; key.len()];
        self.map
            .copy_out(address.offset() + from as u64, &mut stored);
        stored == key
    }

    #[cold]
    fn frame_error(&self, address: Address, reason: NoFrame) -> Error {
        if self.map.has_unreadable() {
            // From here on updates look twice, and are refused before they store into what is gone.
            self.refuse();
        }
        let error = Error::new(Kind::Corrupted, "record checksum does not match")
            .at(self.storage.path())
            .offset(address.offset())
            .detail(reason.to_string());
        error.remedy(format!(
            "run `azekura check {}`",
            self.storage.path().display()
        ))
    }

    /// The header of segment `index` as it stands on storage.
    pub fn header(&self, index: u32) -> Option<SegmentHeader> {
        let mut bytes = [0; 24];
        self.map
            .copy_out(self.geometry.offset_of(index), &mut bytes);
        SegmentHeader::decode(&bytes, self.geometry.salt)
            .filter(|header| self.geometry.is_room(header.units))
    }

    /// The link of segment `index`, whose sequence is `sequence`.
    pub fn link(&self, index: u32, sequence: u64) -> layout::Link {
        let word = self
            .map
            .load_u64(self.geometry.offset_of(index) + LINK_OFFSET);
        if word == 0 && self.is_unreadable(index, LINK_OFFSET as u32) {
            return layout::Link::Damaged;
        }
        let seed = layout::segment_seed(self.geometry.salt, sequence);
        // Anything may stand in a damaged word: nothing is looked at beyond the storage's end.
        layout::decode_link(word, seed, sequence, |next| self.header_within(next))
    }

    /// Whether the word at offset `at` in segment `index` could not be loaded: its zeros state nothing.
    pub fn is_unreadable(&self, index: u32, at: u32) -> bool {
        self.map.has_unreadable()
            && (self.map).is_unreadable(self.geometry.offset_of(index) + u64::from(at), 8)
    }

    /// What of the file could not be loaded.
    pub fn unreadable(&self) -> Vec<Damage> {
        if !self.map.has_unreadable() {
            return Vec::new();
        }
        let damage = |offset, len| Damage {
            path: self.storage.path().to_path_buf(),
            offset,
            len,
            found: "the system cannot read a part of the file".to_owned(),
            affects: Affects::Place,
        };
        match self.map.unreadable_pages() {
            Some(pages) => pages.into_iter().map(|page| damage(page, 4096)).collect(),
            None => vec![damage(0, 0)],
        }
    }

    /// The address of offset `at` in segment `index`.
    pub fn address(&self, index: u32, at: u32) -> Address {
        Address((self.geometry.offset_of(index) + u64::from(at)) >> 3)
    }

    /// The position of `address`, for a frame in a segment of the log.
    pub fn position(&self, address: Address) -> Option<LogPosition> {
        let (index, offset) = self.geometry.locate(address.offset())?;
        let (_, _, offset) = self.segments.place(index, offset)?;
        let sequence = self.segments.sequence_of(self.segments.first_of(index))?;
        Some(LogPosition::new(sequence, offset))
    }

    /// Segments in use whose header on storage is not what is known of them.
    pub fn mismatched_headers(&self) -> Vec<Segment> {
        let mut segments = self.segments.in_use(Use::Log);
        segments.retain(|of| self.is_mismatched(of));
        segments
    }

    /// Whether the header of a segment is not what is known of it. One that was retired meanwhile may have been taken again.
    pub(crate) fn is_mismatched(&self, of: &Segment) -> bool {
        let (sequence, units) = (of.sequence, of.units);
        self.header(of.index) != Some(SegmentHeader { sequence, units })
            && self.segments.sequence_of(of.index) == Some(sequence)
    }

    /// Gives the segments that lie wholly before `start` back, which a durable checkpoint has made the begin of replay, and what was
    /// retired before that checkpoint.
    pub fn release_before(&self, start: End) {
        let mut before = self.segments.in_use(Use::Log);
        before.retain(|segment| segment.sequence < start.sequence());
        for segment in &before {
            self.segments.retire(segment.index);
        }
        self.segments.release(&self.segments.retired());
    }

    /// The error of a frame whose kind this version of an engine does not know: what it changes would be lost.
    #[cold]
    pub fn unknown_kind(&self, address: Address, kind: FrameKind) -> Error {
        Error::new(Kind::Corrupted, "unknown record type")
            .at(self.storage.path())
            .offset(address.offset())
            .found(format!("type {}", kind.bits()), "one of this version")
            .remedy("open it with the version that wrote it")
    }

    /// Rewrites the mismatched headers, but not their links.
    pub fn rewrite_headers(&self) {
        for Segment {
            index,
            units,
            sequence,
            ..
        } in self.mismatched_headers()
        {
            let header = SegmentHeader { sequence, units }.encode(self.geometry.salt);
            let before_link = &header[..LINK_OFFSET as usize];
            self.map.write(self.geometry.offset_of(index), before_link);
            tracing::warn!(index, sequence, "the header of a segment is rewritten");
        }
    }

    /// Counts the frame of `len` bytes at `address` as dead.
    #[inline(always)]
    pub fn mark_dead(&self, address: Address, len: usize) {
        if let Some((index, _)) = self.geometry.locate(address.offset()) {
            self.segments
                .mark_dead(self.segments.first_of(index), len as u64);
        }
    }
}
