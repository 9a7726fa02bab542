//! Salvage: the segments and the frames of a damaged log that verify by themselves.
//!
//! ```text
//!   frame | frame | hole . . . . | frame | hole . .
//!                   each eighth byte is tried
//! ```
//!
//! A hole is damage, or space that nothing was appended to. The engine decides which, and reports what is lost.

use crate::format::frame::{Frame, FrameKind};
use crate::log::finder::Finder;
use crate::log::layout::{FIRST_FRAME, SegmentHeader};
use crate::log::{Address, Log, LogPosition, Segment};

/// The segments within the first `count` places of which `header_of` finds the header, in the order of places.
pub(crate) fn headed(
    count: u64,
    header_of: impl Fn(u32) -> Option<SegmentHeader>,
) -> impl Iterator<Item = Segment> {
    (0..count as u32).filter_map(move |index| {
        let header = header_of(index)?;
        let segment = Segment::new(index, header.units, header.sequence);
        segment.is_within(count).then_some(segment)
    })
}

/// Where a scan stands, and the frame that verifies there.
pub(crate) type Step<'s> = (LogPosition, Address, Option<Frame<'s>>);

/// A scan of one segment, over holes.
pub(crate) struct SegmentScan<'l> {
    log: &'l Log,
    segment: Segment,
    finder: Option<Finder<'l>>,
    at: u64,
    room: u64,
    is_in_hole: bool,
    buf: Vec<u8>,
}

impl<'l> SegmentScan<'l> {
    /// Of a segment that is in use.
    pub(crate) fn new(log: &'l Log, segment: Segment) -> Self {
        Self {
            log,
            segment,
            finder: Finder::of(log, segment.index),
            at: u64::from(FIRST_FRAME),
            room: u64::from(segment.units) << log.geometry().shift,
            is_in_hole: false,
            buf: Vec::new(),
        }
    }

    /// The next frame, or the next place in a hole. After an end frame there is none.
    pub(crate) fn step(&mut self) -> Option<Step<'_>> {
        let at = self.at;
        if at + 8 > self.room {
            return None;
        }
        let address = self.log.address(self.segment.index, at as u32);
        // In a hole a word may state any length: to sum all of them takes quadratic time.
        let finder = self.finder.as_mut().filter(|_| self.is_in_hole);
        let is_tried = !self.is_in_hole || finder.is_some_and(|of| of.header_at(at).is_some());
        let frame = is_tried.then(|| self.log.copy_frame(address, &mut self.buf).ok());
        let frame = frame.flatten();
        let len = frame.as_ref().map_or(8, |frame| frame.len() as u64);
        let is_end = frame
            .as_ref()
            .is_some_and(|frame| frame.header.kind == FrameKind::END);
        self.at = if is_end { self.room } else { at + len };
        self.is_in_hole = frame.is_none();
        let position = LogPosition::new(self.segment.sequence, at as u32);
        Some((position, address, frame))
    }

    /// Continues after a frame that the caller knows though it does not verify.
    pub(crate) fn skip_to(&mut self, at: u64) {
        self.at = at;
        self.is_in_hole = false;
    }
}
