//! Searching the bytes of a damaged part of a segment for the next frame.
//!
//! After an address without a frame, each word is tried as the first word of one. Any word states a length, and a checksum of
//! each of these parts would take quadratic time: a value made of such words kept a file from being
//! opened for many seconds. A CRC is linear, so the sum of any part follows from what is known of the two ends: a word costs the
//! logarithm of the length that it states, and the bytes are read once.
//!
//! ```text
//!   origin      from                     to
//!     |----------|------------------------|
//!     known state 'from  known state 'to        sum of the part = 'to ^ zeros('from, to - from)
//! ```
//!
//! A frame that the checksum finds is verified once more in a copy, since another process may be writing. It changes nothing, and does
//! not know what is between the frames.

use std::ops::Range;

use super::Log;
use super::layout::FIRST_FRAME;
use crate::format::checksum::{crc, crc_zeros};
use crate::format::frame::{Frame, Header, INNER, state_of};

/// Bytes from one known state to the next.
const BLOCK: usize = 64;
/// Frames up to this length are summed anew: that is less work.
const SHORT_LEN: usize = 512;

/// Looks for frames in one segment; cheapest where the places asked for rise.
pub struct Finder<'l> {
    log: &'l Log,
    /// Offset of the segment in the file.
    base: u64,
    /// Of its frames.
    seed: u32,
    room: u64,
    /// The first place that was asked for: the states count from there.
    origin: u64,
    /// After each block.
    states: Vec<u32>,
    buf: Vec<u8>,
}

impl<'l> Finder<'l> {
    /// In segment `index`, whose frames have this seed, with so much room.
    pub fn new(log: &'l Log, index: u32, (seed, room): (u32, u64)) -> Self {
        Self {
            log,
            base: log.geometry.offset_of(index),
            seed,
            room,
            origin: u64::from(FIRST_FRAME),
            states: Vec::new(),
            buf: Vec::new(),
        }
    }

    /// In a segment that is in use. `None`: it is not.
    pub fn of(log: &'l Log, index: u32) -> Option<Self> {
        Some(Self::new(log, index, log.segments.seed(index)?))
    }

    /// The first frame that stands by itself and begins at one of these places.
    pub fn first_within(&mut self, begins: Range<u64>) -> Option<u32> {
        (begins.start..begins.end.min(self.room))
            .step_by(8)
            .find(|at| self.is_top(*at))
            .map(|at| at as u32)
    }

    /// Whether a frame that stands by itself begins at `at`.
    pub fn is_top(&mut self, at: u64) -> bool {
        self.header_at(at)
            .is_some_and(|header| header.flags & INNER == 0)
    }

    /// The header of the frame at `at`, also of a part of a batch. `None`: none verifies there.
    pub fn header_at(&mut self, at: u64) -> Option<Header> {
        let left = self.room.checked_sub(at)?;
        let (header, word) = self.log.measure_within(self.base + at, left).ok()?;
        let (len, place) = (header.frame_len(), (at / 8) as u32);
        if len > SHORT_LEN {
            let state = state_of(word, self.seed, place);
            let zeros = crc_zeros(state, len as u32 - 8);
            if zeros ^ self.sum_of(at + 8, at + len as u64) != word as u32 {
                return None;
            }
        }
        self.buf.resize(len, 0);
        self.log.map.copy_out(self.base + at, &mut self.buf);
        let verified = Frame::verify(header, word, &self.buf, self.seed, place);
        verified.ok().map(|frame| frame.header)
    }

    /// The sum of a part, from a state of 0.
    fn sum_of(&mut self, from: u64, to: u64) -> u32 {
        if self.states.is_empty() || from < self.origin {
            self.origin = from;
            self.states = vec![0];
        }
        let before = crc_zeros(self.state_at(from), (to - from) as u32);
        self.state_at(to) ^ before
    }

    /// The state after all from the origin up to `at`.
    fn state_at(&mut self, at: u64) -> u32 {
        let (blocks, rest) = (
            (at - self.origin) / BLOCK as u64,
            (at - self.origin) % BLOCK as u64,
        );
        let mut bytes = [0; BLOCK];
        let mut state = self.states.last().copied().unwrap_or_default();
        while self.states.len() as u64 <= blocks {
            let block = self.origin + (self.states.len() as u64 - 1) * BLOCK as u64;
            self.log.map.copy_out(self.base + block, &mut bytes);
            state = crc(state, &bytes);
            self.states.push(state);
        }
        let known = self.states.get(blocks as usize).copied();
        let bytes = bytes.get_mut(..rest as usize).unwrap_or_default();
        self.log.map.copy_out(self.base + at - rest, bytes);
        crc(known.unwrap_or_default(), bytes)
    }
}
