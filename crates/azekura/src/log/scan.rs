//! Walking a segment from frame to frame.
//!
//! Recovery, cleaning, `check` and followers all walk here; what a stop means is theirs to decide. A
//! walk looks only at what is published, verifies every frame, and changes nothing.

use std::ops::RangeInclusive;

use super::damaged::KnownFrame;
use super::finder::Finder;
use super::{Address, FIRST_FRAME, Log};
use crate::error::Result;
use crate::format::frame::{Frame, FrameKind, Header, INNER, NoFrame};

/// Places after a hole that are looked into for a damaged frame: each costs the time to sum 128 KiB some hundred times.
const LOOKED_INTO_MAX: usize = 64;

/// Why a walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The segment's end, by its room or an end frame.
    Ended,
    /// No frame here.
    NoFrame {
        /// Offset in the segment.
        at: u32,
        /// Whether its first word is zero: nothing was published.
        blank: bool,
        /// What was found instead of a frame.
        reason: NoFrame,
    },
}

impl Log {
    /// Shows the frames of segment `index` from offset `from` on, batches whole; returns where it stopped.
    ///
    /// The caller sees to it that the segment is not reused meanwhile.
    pub fn walk<'l>(
        &'l self,
        index: u32,
        from: u32,
        visit: &mut dyn FnMut(u32, Frame<'l>) -> Result<()>,
    ) -> Result<Stop> {
        self.walk_by(index, from, &mut |at| match self.look_top(index, at) {
            Ok(frame) if frame.header.kind == FrameKind::END => Ok(Ok(None)),
            Ok(frame) => visit(at, frame).map(|()| Ok(Some(frame.len()))),
            Err(reason) => Ok(Err(reason)),
        })
    }

    /// As `walk`, for a segment that another process may reuse meanwhile: shows copies that verified.
    pub fn walk_copied(
        &self,
        index: u32,
        from: u32,
        visit: &mut dyn FnMut(u32, Frame<'_>) -> Result<()>,
    ) -> Result<Stop> {
        let mut buf = Vec::new();
        self.walk_by(
            index,
            from,
            &mut |at| match self.look_copy(self.address(index, at), &mut buf) {
                Ok(frame) if frame.has(INNER) => Ok(Err(NoFrame::Shape)),
                Ok(frame) if frame.header.kind == FrameKind::END => Ok(Ok(None)),
                Ok(frame) => visit(at, frame).map(|()| Ok(Some(frame.len()))),
                Err(reason) => Ok(Err(reason)),
            },
        )
    }

    /// `step` shows the frame at an offset and answers its length; `None` of an end frame.
    fn walk_by(
        &self,
        index: u32,
        from: u32,
        step: &mut dyn FnMut(u32) -> Result<std::result::Result<Option<usize>, NoFrame>>,
    ) -> Result<Stop> {
        let Some((_, room)) = self.segments.seed(index) else {
            return Ok(Stop::Ended);
        };
        let mut at = u64::from(from);
        while at < room {
            // Looked at once, and before: another process may publish the frame at any moment.
            let blank = self.map.load_u64(self.address(index, at as u32).offset()) == 0;
            match step(at as u32)? {
                Ok(Some(len)) => at += len as u64,
                Ok(None) => return Ok(Stop::Ended),
                Err(reason) => {
                    return Ok(Stop::NoFrame {
                        at: at as u32,
                        blank,
                        reason,
                    });
                }
            }
        }
        Ok(Stop::Ended)
    }

    /// The frame at offset `at`, if it is one that stands by itself.
    fn look_top(&self, index: u32, at: u32) -> std::result::Result<Frame<'_>, NoFrame> {
        let frame = self.look(self.address(index, at))?;
        if frame.has(INNER) {
            Err(NoFrame::Shape)
        } else {
            Ok(frame)
        }
    }

    /// Whether a frame ends at offset `at` that verifies, or is known all the same.
    pub(super) fn ends_a_frame(&self, index: u32, at: u32) -> bool {
        let mut buf = Vec::new();
        let mut from = FIRST_FRAME;
        while from < at {
            let frame = self.look_copy(self.address(index, from), &mut buf);
            let len = frame.ok().map(|frame| frame.len() as u32);
            let len = len.or_else(|| {
                let known = self.known_frame(index, from)?;
                // What blanked the end of one that is known by its head may have blanked more.
                let is_sure = known.is_corrected && !known.is_cut || from + known.len < at;
                is_sure.then_some(known.len)
            });
            let after = len.map(|len| from + len);
            let Some(next) = after.or_else(|| self.resume_after(index, from)) else {
                return false;
            };
            if after == Some(at) {
                return true;
            }
            from = next;
        }
        false
    }

    /// The first frame after a hole at `at` in segment `index`.
    pub fn resume_after(&self, index: u32, at: u32) -> Option<u32> {
        let (_, room) = self.segments.seed(index)?;
        if room > self.geometry.segment_size() {
            // A large frame is alone in its segment.
            return None;
        }
        Finder::of(self, index)?.first_within(u64::from(at) + 8..room)
    }

    /// Where a hole at `at` ends: at the first frame after it that verifies, or before that at those that are damaged, lead up to it, and
    /// are known; also at such a one after which nothing stands any more. `None`: neither is there. What is damaged and not known
    /// cannot be distinguished from what a thread that died had written.
    pub(super) fn end_of_hole(&self, index: u32, at: u32) -> Option<u32> {
        let (_, room) = self.segments.seed(index)?;
        if room > self.geometry.segment_size() {
            return None;
        }
        let whole = self.resume_after(index, at);
        let mut end = whole.unwrap_or_else(|| self.end_of_bytes(index, at, room as u32));
        let mut found = whole;
        let mut left = LOOKED_INTO_MAX;
        let mut next = self.leading_to(index, at, end..=end, &mut left);
        if next.is_none() && whole.is_none() && end < room as u32 {
            // What stands last may end with zeros.
            left = LOOKED_INTO_MAX;
            next = self.leading_to(index, at, end + 8..=room as u32, &mut left);
        }
        // Each that is found may have another one before it.
        while let Some(from) = next {
            (found, end) = (Some(from), from);
            next = self.leading_to(index, at, end..=end, &mut left);
        }
        found
    }

    /// The last place after `at` and before these ends where a frame stands that is damaged and known, and ends with one of them; so
    /// many places are looked into.
    fn leading_to(
        &self,
        index: u32,
        at: u32,
        ends: RangeInclusive<u32>,
        left: &mut usize,
    ) -> Option<u32> {
        (at + 8..*ends.start()).step_by(8).rev().find(|from| {
            let lens = ends.start() - from..=ends.end() - from;
            if *left == 0 || !self.may_lead(index, *from, &lens) {
                return false;
            }
            *left -= 1;
            let frame = self.known_frame(index, *from);
            // Where it may end anywhere, torn bytes and enough zeros are a frame by chance, but for one bit among the zeros.
            let may_be_chance = |frame: &KnownFrame| frame.is_cut && ends.start() < ends.end();
            frame.is_some_and(|frame| lens.contains(&frame.len) && !may_be_chance(&frame))
        })
    }

    /// Where the last word stands that is not zero, from `at` on in a segment of so much room: after it.
    fn end_of_bytes(&self, index: u32, at: u32, room: u32) -> u32 {
        let is_set = |from: &u32| self.map.load_u64(self.address(index, *from).offset()) != 0;
        let last = (at..room).step_by(8).rev().find(is_set);
        last.map_or(at, |from| from + 8)
    }

    /// Whether the lengths at `from` state a frame of so many bytes, or do but for one bit.
    fn may_lead(&self, index: u32, from: u32, len: &RangeInclusive<u32>) -> bool {
        let offset = self.address(index, from).offset();
        let word = self.map.load_u64(offset);
        if word == 0 {
            return false;
        }
        let lens = if *len.end() >= 16 {
            self.map.load_u64(offset + 8)
        } else {
            0
        };
        let states = |word: u64, lens: u64| {
            let header = Header::of_word(word).map(|header| {
                if header.is_long() {
                    header.with_lens(lens)
                } else {
                    header
                }
            });
            header.is_some_and(|header| len.contains(&(header.frame_len() as u32)))
        };
        states(word, lens)
            || (32..64).any(|bit| states(word ^ 1 << bit, lens))
            || (0..64).any(|bit| states(word, lens ^ 1 << bit))
    }

    /// Shows the records and marks of a frame at `at` of segment `index`: itself, or the inner ones of a batch, each
    /// with its address.
    pub fn each_record<'f>(
        &self,
        index: u32,
        at: u32,
        frame: Frame<'f>,
        visit: &mut dyn FnMut(Address, Frame<'f>) -> Result<()>,
    ) -> Result<()> {
        match (frame.header.kind, self.segments.seed(index)) {
            (FrameKind::BATCH, Some((seed, _))) => {
                for (place, inner) in frame.inner(seed, at / 8) {
                    visit(self.address(index, place * 8), inner)?;
                }
                Ok(())
            }
            (FrameKind::PAD | FrameKind::END, _) => Ok(()),
            _ => visit(self.address(index, at), frame),
        }
    }
}
