//! Reading the log past damage: what was at an address that does not verify, and where the log continues after it.
//!
//! A damaged place may have held any change of any record. Three findings bound it:
//!
//! 1. *One bit.* If there is exactly one bit whose flip makes the place a frame that verifies (`format::flipped`), and what follows
//!    that frame is in order, then that frame stood there: its keys are all that is affected. A *clear* is never believed: what
//!    it would remove is everything. Nor is blank room after a frame whose wrong bit is the last that should be set: what
//!    blanked its end may have blanked the records that followed.
//! 2. *A value.* If a long frame's head verifies by its own sum ([`Frame::head`]), and what follows the frame is in order, then
//!    that frame stood there, whatever became of its value: its key is all that is affected. Of a batch each record must
//!    verify, or be known by one bit or by its head, and no more than 64 be damaged. Blank room after such a frame is not
//!    believed: what blanked the end of its value may have blanked the records that followed.
//! 3. *Nothing.* If all from the place to the end of the segment is zeros but for one bit, and nothing is linked, the log
//!    ends there: a frame's first word has more than one bit, since its upper half is never zero and a checksum with no bit
//!    at all has a chance of 1 in 2^32.
//!
//! Anything else is unbounded: it affects all that was last written before the place where the log can be read again.
//! That is the next offset at which a frame verifies; what lies between is not looked into, since frames may be missing
//! there without a trace.
//!
//! Segments lead on by links. A link that does not verify is repaired by its one flipped bit, by the one sequence
//! that must come next if the header it leads to is damaged, or by the header that has that sequence, if there was no
//! recovery since (a recovery may have put other segments in the place of those with the sequences that follow). That no link
//! is there states that no segment was opened after this one, unless the header next to it does not verify: then the link may be
//! lost with it, and the headers of the others decide, or, of one that lost its own, a frame in it. A link that is blank next to a header that verifies is believed.
//!
//! It changes nothing: what it finds is `recover`'s to report.

use super::finder::Finder;
use super::layout::{
    FIRST_FRAME, LINK_OFFSET, LogPosition, decode_link, encode_link, link_index, segment_seed,
};
use super::{Link, Log, Segment, Use};
use crate::error::{Error, Kind};
use crate::format::flipped::{LEN_MAX, LONG_MAX, bit_of_long_sum, bits_of_head, flip, mend_frame};
use crate::format::frame::{Frame, FrameKind, Header, INNER, NoFrame};

/// How many recoveries after another a link may lead over without its header.
const EPOCHS: u64 = 16;

/// Records of one batch that are looked into: each costs the time to sum 128 KiB, and a line of what is reported.
const DAMAGED_MAX: u32 = 64;

/// Bytes that are written to a device, or not, as one; the least that is known.
const LINE: usize = 64;

/// A place of the log that does not verify.
#[derive(Debug)]
pub struct Lost {
    /// What is wrong.
    pub what: &'static str,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes that cannot be read; 0: up to the end of the log.
    pub len: u64,
    /// The segment, and the offset in it.
    pub place: (u32, u32),
    /// Where in the log.
    pub from: LogPosition,
    /// What stood there.
    pub stood: Stood,
}

/// What stood in a place that does not verify.
#[derive(Debug)]
pub enum Stood {
    /// Nothing that changes a record.
    Nothing,
    /// A frame with these records.
    Records(Vec<KnownRecord>),
    /// It cannot be known. The log can be read again from there; `None`: not any more.
    Unknown(Option<LogPosition>),
}

/// A frame that does not verify, and is known all the same.
#[derive(Debug)]
pub struct KnownFrame {
    /// What it states.
    pub kind: FrameKind,
    /// Its bytes.
    pub len: u32,
    /// Its records, in order; none of a pad, of an end and of a clear.
    pub records: Vec<KnownRecord>,
    /// Whether one bit of it is wrong and nothing else; of others only the head is known, and records of a batch.
    pub is_corrected: bool,
    /// Whether that bit is the last of it that should be set: its end may have been blanked.
    pub is_cut: bool,
}

/// A record of a frame that does not verify as a whole.
#[derive(Debug)]
pub struct KnownRecord {
    /// Offset in the segment.
    pub at: u32,
    /// Kind, flags and lengths.
    pub header: Header,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value as stored, of a corrected record or a mark; else nothing.
    pub value: Vec<u8>,
    /// What is known of it.
    pub standing: Standing,
}

/// What is known of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All: it verifies by itself.
    Verifies,
    /// All, as a checksum asks for: one bit is wrong, or nothing but what is no part of the record.
    Corrected,
    /// Its key. The value is damaged.
    ValueLost,
}

impl KnownRecord {
    fn of(at: u32, frame: &Frame<'_>, standing: Standing) -> Self {
        // A mark is its value.
        let has_value = standing == Standing::Corrected || frame.header.kind == FrameKind::MARK;
        Self {
            at,
            header: frame.header,
            key: frame.key.to_vec(),
            value: if has_value {
                frame.value.to_vec()
            } else {
                Vec::new()
            },
            standing,
        }
    }

    /// As a frame; without a value where it is not known.
    pub fn frame(&self) -> Frame<'_> {
        Frame {
            header: self.header,
            key: &self.key,
            value: &self.value,
        }
    }
}

/// The result of looking into a damaged place.
pub(super) enum Look {
    /// The frame that stood there.
    Known(KnownFrame),
    /// A stray bit where nothing was published.
    End,
    /// It cannot be known; the next frame that verifies in the segment.
    Unknown(Option<u32>),
}

/// What the headers of all segments state of the one after a given sequence.
enum Found {
    Next(Segment),
    /// Not which it is, but that there may have been one.
    Later,
    NoneLater,
}

/// The segment after one whose link does not verify.
pub(super) enum Onward {
    /// This one; with the link word as it should be.
    To(Segment, u64),
    /// There is none: the word is zero but for one bit.
    End,
    /// It cannot be known.
    Unknown,
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether the bytes of a frame at this offset of a segment have a line of zeros, as far as it lies within them.
fn has_blank_line(bytes: &[u8], offset: usize) -> bool {
    let first = LINE - offset % LINE;
    let (head, rest) = bytes.split_at(first.min(bytes.len()));
    std::iter::once(head).chain(rest.chunks(LINE)).any(is_blank)
}

impl Log {
    /// Looks into a place of segment `index` that does not verify; `epoch` is the newest recovery's; `is_synced`: something was
    /// published there.
    pub(super) fn look_into(&self, index: u32, at: u32, epoch: u32, is_synced: bool) -> Look {
        let Some((_, room)) = self.segments.seed(index) else {
            return Look::Unknown(None);
        };
        if let Some(frame) = self.known_in_order(index, at) {
            return Look::Known(frame);
        }
        let sequence = self.segments.sequence_of(index).unwrap_or_default();
        let is_unlinked = || {
            self.settled_link(index, sequence) == Link::None
                || matches!(self.onward(index, sequence, epoch), Onward::End)
        };
        // Where what stood before it is lost, too, the bit may be all that is left of what followed.
        // The bit is counted first: the rest is done once at most, whatever number of places is damaged.
        if !is_synced
            && self.is_one_stray_bit(index, at, room)
            && is_unlinked()
            && !self.is_blanked(index, sequence, at)
        {
            return Look::End;
        }
        Look::Unknown(self.resume_after(index, at))
    }

    /// Whether no link leads on from a segment, and nothing stands there from this place on but one wrong bit.
    pub fn ends_in_a_stray_bit(&self, index: u32, at: u32) -> bool {
        let Some((_, room)) = self.segments.seed(index) else {
            return false;
        };
        let sequence = self.segments.sequence_of(index).unwrap_or_default();
        self.settled_link(index, sequence) == Link::None && self.is_one_stray_bit(index, at, room)
    }

    fn is_one_stray_bit(&self, index: u32, at: u32, room: u64) -> bool {
        let mut bits = 0;
        for at in (u64::from(at)..room).step_by(8) {
            bits += self
                .map
                .load_u64(self.address(index, at as u32).offset())
                .count_ones();
            if bits > 1 {
                return false;
            }
        }
        bits == 1
    }

    /// As `known_frame`, if what follows that frame is in order: the end of the segment, a frame, or blank room that is known to be
    /// that. A clear is not believed.
    pub fn known_in_order(&self, index: u32, at: u32) -> Option<KnownFrame> {
        let (_, room) = self.segments.seed(index)?;
        let frame = self.known_frame(index, at)?;
        let after = at + frame.len;
        let in_order = u64::from(after) >= room
            || self.is_blank_after(&frame, (index, at), after)
            || Finder::of(self, index).is_some_and(|mut of| of.is_top(u64::from(after)));
        (in_order && !frame.kind.is_wide()).then_some(frame)
    }

    /// Whether nothing was published after a frame that is known. What blanked the end of one that is known by its head alone may
    /// have blanked what stood after it, too, unless it has its segments for itself.
    fn is_blank_after(&self, frame: &KnownFrame, (index, at): (u32, u32), after: u32) -> bool {
        let is_alone = at == FIRST_FRAME
            && frame.kind != FrameKind::PAD
            && u64::from(frame.len) > self.geometry.segment_size() / 2;
        self.map.load_u64(self.address(index, after).offset()) == 0
            && (is_alone || !frame.is_cut && self.is_one_bit_wrong(frame, index, at))
    }

    /// The frame that stood at a place where none verifies, if its head or a flipped bit states which.
    pub(super) fn known_frame(&self, index: u32, at: u32) -> Option<KnownFrame> {
        let (seed, room) = self.segments.seed(index)?;
        let left = room.checked_sub(u64::from(at))?;
        self.known_within((index, at), seed, left as usize, false)
    }

    /// Whether one wrong bit keeps a frame from standing here that was written whole. What was written in part, or blanked, has lines
    /// of zeros: this must have none.
    pub(super) fn is_but_for_a_bit(&self, index: u32, at: u32) -> bool {
        self.known_in_order(index, at).is_some_and(|frame| {
            let bytes = self.copied(index, at, frame.len as usize);
            bytes.is_some_and(|bytes| !has_blank_line(&bytes, at as usize))
                && self.is_one_bit_wrong(&frame, index, at)
        })
    }

    /// As `known_frame`, in so much room; `inner`: a part of a batch.
    fn known_within(
        &self,
        (index, at): (u32, u32),
        seed: u32,
        left: usize,
        inner: bool,
    ) -> Option<KnownFrame> {
        let place = at / 8;
        let stored = self.copied(index, at, left.min(LEN_MAX) & !7)?;
        let mut bytes = stored.clone();
        if let Some((bit, len)) = mend_frame(&mut bytes, seed, place, inner)
            && let Some(mut frame) = self.of_corrected((index, at), seed, &bytes)
        {
            let rest = stored.get(bit / 8..len);
            frame.is_cut = rest.is_some_and(is_blank);
            return Some(frame);
        }
        let is_one =
            |header: Header| header.frame_len() <= left && (header.flags & INNER != 0) == inner;
        let head = Frame::head(&stored, seed, place).filter(|head| head.delta == 0);
        let Some(head) = head else {
            // One bit of a head before more than was looked at so far.
            let bits = bits_of_head(&stored, seed, place);
            return bits.into_iter().find_map(|bit| {
                let mut other = stored.clone();
                flip(&mut other, bit);
                let header = Frame::head(&other, seed, place)?.header;
                if !is_one(header) || header.frame_len() <= stored.len() {
                    return None;
                }
                let mut whole = self.copied(index, at, header.frame_len())?;
                flip(&mut whole, bit);
                self.of_corrected((index, at), seed, &whole)
            });
        };
        let header = head.header;
        if !is_one(header) {
            return None;
        }
        let records = match header.kind {
            // None is a part of another one.
            FrameKind::BATCH if inner => return None,
            FrameKind::BATCH => self.records_of_batch((index, at), seed, header)?,
            FrameKind::PAD => Vec::new(),
            kind if kind.is_keyed() => {
                let (key, value) = (head.key, &[][..]);
                let frame = Frame { header, key, value };
                let standing = match header.value_len {
                    0 => Standing::Corrected,
                    _ => Standing::ValueLost,
                };
                vec![KnownRecord::of(at, &frame, standing)]
            }
            // A mark belongs to no key, and a frame of a wide kind may change anything.
            _ => return None,
        };
        let is_one_bit = |record: &KnownRecord| record.standing == Standing::Corrected;
        let has_all = || records.iter().all(|of| of.standing != Standing::ValueLost);
        let is_corrected = header.kind == FrameKind::BATCH
            && has_all()
            && records.iter().filter(|of| is_one_bit(of)).count() == 1;
        Some(KnownFrame {
            kind: header.kind,
            len: header.frame_len() as u32,
            records,
            is_corrected,
            is_cut: false,
        })
    }

    /// Whether one bit is wrong of a frame that is known, also of one too long for that to be believed of any: it must have no blank
    /// line. Not asked of each that is known, since it takes the time to sum it eight times or more.
    fn is_one_bit_wrong(&self, frame: &KnownFrame, index: u32, at: u32) -> bool {
        let len = frame.len as usize;
        if frame.is_corrected || len <= LEN_MAX || len > LONG_MAX {
            return frame.is_corrected;
        }
        let (Some((seed, _)), Some(bytes)) =
            (self.segments.seed(index), self.copied(index, at, len))
        else {
            return false;
        };
        if has_blank_line(&bytes, at as usize) {
            return false;
        }
        match Frame::decode(&bytes, seed, at / 8) {
            Err(NoFrame::Checksum { stored, computed }) => {
                let delta = stored ^ computed;
                // A bit of the sum itself, or of what is summed.
                delta.is_power_of_two() || bit_of_long_sum(delta, len - 8).is_some()
            }
            _ => false,
        }
    }

    /// The frame at the front of `bytes`, one bit of which was corrected.
    fn of_corrected(&self, (index, at): (u32, u32), seed: u32, bytes: &[u8]) -> Option<KnownFrame> {
        let frame = Frame::decode(bytes, seed, at / 8).ok()?;
        let records = match frame.header.kind {
            FrameKind::BATCH => {
                let mut buf = Vec::new();
                let inner = frame.inner(seed, at / 8).map(|(place, inner)| {
                    // The bit is in one of them, or before all.
                    let is_whole = self.look_copy(self.address(index, place * 8), &mut buf);
                    let standing = match is_whole {
                        Ok(_) => Standing::Verifies,
                        Err(_) => Standing::Corrected,
                    };
                    KnownRecord::of(place * 8, &inner, standing)
                });
                let records: Vec<_> = inner.collect();
                // Where one of them does not verify though the whole does, another bit than the wrong one was flipped.
                (records.len() == frame.header.key_len as usize).then_some(records)?
            }
            kind if kind.is_keyed() || kind == FrameKind::MARK => {
                vec![KnownRecord::of(at, &frame, Standing::Corrected)]
            }
            _ => Vec::new(),
        };
        Some(KnownFrame {
            kind: frame.header.kind,
            len: frame.len() as u32,
            records,
            is_corrected: true,
            is_cut: false,
        })
    }

    /// The records of a batch whose head verifies; `None`: one of them is not known.
    fn records_of_batch(
        &self,
        (index, at): (u32, u32),
        seed: u32,
        header: Header,
    ) -> Option<Vec<KnownRecord>> {
        let mut from = at + header.header_len() as u32;
        let until = from.checked_add(header.value_len)?;
        let mut records = Vec::new();
        let (mut buf, mut damaged) = (Vec::new(), 0);
        while from < until {
            let left = until - from;
            let whole = self.look_copy(self.address(index, from), &mut buf);
            let whole = whole.ok().filter(|frame| frame.has(INNER));
            let len = if let Some(frame) = whole {
                records.push(KnownRecord::of(from, &frame, Standing::Verifies));
                frame.len() as u32
            } else {
                damaged += 1;
                if damaged > DAMAGED_MAX {
                    return None;
                }
                let known = self.known_within((index, from), seed, left as usize, true)?;
                records.extend(known.records);
                known.len
            };
            if len > left {
                return None;
            }
            from += len;
        }
        (records.len() == header.key_len as usize).then_some(records)
    }

    /// So many bytes of a segment as they stand there. `None`: there is no memory for them.
    fn copied(&self, index: u32, at: u32, len: usize) -> Option<Vec<u8>> {
        let mut bytes = crate::room::vec(len).ok()?;
        bytes.resize(len, 0);
        self.map
            .copy_out(self.address(index, at).offset(), &mut bytes);
        Some(bytes)
    }

    /// Which segment follows segment `index`, whose link word leads to none; `epoch` is the newest recovery's.
    pub(super) fn onward(&self, index: u32, sequence: u64, epoch: u32) -> Onward {
        let at = self.geometry.offset_of(index) + LINK_OFFSET;
        let word = self.map.load_u64(at);
        let seed = segment_seed(self.geometry.salt, sequence);
        for bit in 0..64 {
            let other = word ^ 1 << bit;
            let leads = decode_link(other, seed, sequence, |next| self.header_within(next));
            if let Link::To(next) = leads
                && let Some(header) = self.header_within(next.index)
                && let Some(segment) = self.candidate(next.index, header.sequence)
            {
                return Onward::To(segment, other);
            }
        }
        // The header that it leads to is damaged: the sequence must be the next one, or the first of an epoch.
        if let Some(next) = link_index(word) {
            let epoch = sequence >> 32;
            let firsts = (1..=EPOCHS).map(|more| (epoch + more) << 32);
            for wanted in std::iter::once(sequence + 1).chain(firsts) {
                if encode_link(next, seed, wanted) == word
                    && let Some(segment) = self.candidate(next, wanted)
                {
                    return Onward::To(segment, word);
                }
            }
        }
        if word.is_power_of_two() {
            return Onward::End;
        }
        match self.by_header(sequence, epoch) {
            Found::Next(next) => Onward::To(next, encode_link(next.index, seed, next.sequence)),
            // Its header may be lost, too.
            Found::NoneLater if word == 0 => match self.by_frames(sequence + 1) {
                Some(next) => Onward::To(next, encode_link(next.index, seed, next.sequence)),
                None => Onward::End,
            },
            Found::NoneLater | Found::Later => Onward::Unknown,
        }
    }

    /// The segment whose header has the sequence after this one, if no recovery came since; `epoch` is the newest one's.
    fn by_header(&self, sequence: u64, epoch: u32) -> Found {
        if u64::from(epoch) > sequence >> 32 {
            return Found::Later;
        }
        let Some(count) = self.count() else {
            return Found::Later;
        };
        let mut found = Found::NoneLater;
        for index in 0..count {
            let Some(header) = self.header_within(index) else {
                continue;
            };
            if header.sequence >> 32 > sequence >> 32 {
                return Found::Later;
            }
            if header.sequence == sequence + 1
                && let Some(next) = self.candidate(index, header.sequence)
            {
                found = Found::Next(next);
            } else if header.sequence > sequence && !matches!(found, Found::Next(_)) {
                found = Found::Later;
            }
        }
        found
    }

    /// The segment of that sequence, whose header is lost, by a frame in it. Reads all segments without a header.
    pub fn by_frames(&self, sequence: u64) -> Option<Segment> {
        let seed = segment_seed(self.geometry.salt, sequence);
        let size = self.storage.size().ok()?;
        let mut headless = (0..self.count()?).filter(|index| self.header_within(*index).is_none());
        let found = headless.find(|index| {
            // A large one reaches beyond its first unit.
            let left = size.saturating_sub(self.geometry.offset_of(*index));
            let mut finder = Finder::new(self, *index, (seed, left.min(u64::from(u32::MAX))));
            let begins = u64::from(FIRST_FRAME)..self.geometry.segment_size();
            finder.first_within(begins).is_some()
        });
        self.candidate(found?, sequence)
    }

    /// Segments that the storage has room for. `None`: its size is unknown.
    fn count(&self) -> Option<u32> {
        let size = self.storage.size().ok()?;
        Some((size.saturating_sub(self.geometry.offset_of(0)) >> self.geometry.shift) as u32)
    }

    /// The link of a segment, where no other process changes it: none whose header does not verify is lost with it.
    pub(super) fn settled_link(&self, index: u32, sequence: u64) -> Link {
        match self.link(index, sequence) {
            Link::None if self.is_headless(index, sequence) => Link::Damaged,
            link => link,
        }
    }

    /// Whether the header of a segment of that sequence does not verify.
    pub(super) fn is_headless(&self, index: u32, sequence: u64) -> bool {
        self.header_within(index)
            .is_none_or(|header| header.sequence != sequence)
    }

    /// The header of a segment that may lie beyond the storage's end.
    pub(super) fn header_within(&self, index: u32) -> Option<super::SegmentHeader> {
        let header_end = self.geometry.offset_of(index) + u64::from(FIRST_FRAME);
        let inside = self.storage.size().is_ok_and(|size| header_end <= size);
        inside.then(|| self.header(index)).flatten()
    }

    /// A segment of that sequence at `index`, with as many units as its header states, or its first frame, as far as that is
    /// known.
    pub fn candidate(&self, index: u32, sequence: u64) -> Option<Segment> {
        let size = self.storage.size().ok()?;
        let offset = self.geometry.offset_of(index);
        let first = offset + u64::from(FIRST_FRAME);
        if first + 16 > size {
            return None;
        }
        let header = self.header(index).filter(|h| h.sequence == sequence);
        let units = header.map_or_else(
            || {
                let seed = segment_seed(self.geometry.salt, sequence);
                let left = (size - first).min(u64::from(u32::MAX));
                let verified = Finder::new(self, index, (seed, u64::from(FIRST_FRAME) + left))
                    .header_at(u64::from(FIRST_FRAME))
                    .map(|header| header.frame_len() as u64);
                let len = verified.or_else(|| {
                    let known = self.known_within((index, FIRST_FRAME), seed, left as usize, false);
                    known.map(|frame| u64::from(frame.len))
                });
                let whole = u64::from(FIRST_FRAME) + len.unwrap_or_default();
                whole.div_ceil(self.geometry.segment_size()) as u32
            },
            |header| header.units,
        );
        let end = self.geometry.offset_of(index.checked_add(units)?);
        (end <= size).then(|| Segment::new(index, units, sequence))
    }

    /// Takes a segment into use whose header may be damaged; whether it could be.
    pub(super) fn enter_candidate(&self, segment: Segment) -> bool {
        self.segments.sequence_of(segment.index) == Some(segment.sequence)
            || self.segments.adopt(segment, Use::Log).is_ok()
    }

    /// A place that does not verify, as an error.
    #[cold]
    pub fn lost_error(&self, lost: &Lost) -> Error {
        Error::new(Kind::Corrupted, lost.what)
            .at(self.storage.path())
            .offset(lost.offset)
            .remedy(format!(
                "run `azekura repair {} NEW-FILE`, or restore a backup",
                self.storage.path().display()
            ))
    }
}
