//! Where the segments of a log lie in its storage.
//!
//! Promises: arithmetic only; of an offset before the first segment there is no place.
//! It does not know which segments exist.

use std::ops::RangeInclusive;

use crate::io::Storage;
use crate::log::layout::{DATA_OFFSET, FIRST_FRAME};

/// Segments that the room of a store should hold.
const SEGMENTS_WANTED: u64 = 512;

/// Sizes and salt, fixed when the file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Segments are `2^shift` bytes.
    pub shift: u32,
    /// Makes this file's checksums its own.
    pub salt: u32,
}

impl Geometry {
    /// Bytes of a segment.
    #[inline(always)]
    pub fn segment_size(&self) -> u64 {
        1 << self.shift
    }

    /// The largest power of two of which the capacity, and the room that the device has left, hold 512 segments, within these.
    pub fn fitting_size(storage: &dyn Storage, capacity: u64, sizes: RangeInclusive<u64>) -> u64 {
        let room = capacity.min(storage.free().unwrap_or(u64::MAX));
        let fitting: u64 = 1 << (room / SEGMENTS_WANTED).max(1).ilog2();
        fitting.clamp(*sizes.start(), *sizes.end())
    }

    /// Whether a segment of the log takes the room of so many: an offset in it, also the one after it, is 32 bits.
    pub fn is_room(self, units: u32) -> bool {
        u64::from(units) <= u64::from(u32::MAX) >> self.shift
    }

    /// Most bytes of a frame: with the header before it, it fits into the largest room.
    pub fn frame_max(self) -> u64 {
        (u64::from(u32::MAX) >> self.shift << self.shift) - u64::from(FIRST_FRAME)
    }

    /// Offset in the file of segment `index`.
    #[inline(always)]
    pub fn offset_of(&self, index: u32) -> u64 {
        DATA_OFFSET + (u64::from(index) << self.shift)
    }

    /// How many segments a storage of `capacity` bytes has.
    pub(super) fn fitting(self, capacity: u64) -> u32 {
        // Addresses are 40 bits of 8-byte words: 8 TiB.
        let room = capacity.min(1 << 43).saturating_sub(DATA_OFFSET) >> self.shift;
        room.min(1 << 30) as u32
    }

    /// Size of a storage of `total` segments: it ends with a huge page where its capacity allows, and where that is two
    /// segments more at most, or an eighth, since a page that reaches beyond the end is not mapped as one.
    pub(super) fn size_of(self, total: u32, capacity: u64) -> u64 {
        const HUGE_PAGE: u64 = 2 << 20;
        let end = self.offset_of(total);
        let least = if self.segment_size() < HUGE_PAGE / 2 {
            8 * HUGE_PAGE
        } else {
            HUGE_PAGE
        };
        if end < least {
            end
        } else {
            end.next_multiple_of(HUGE_PAGE).min(capacity.max(end))
        }
    }

    /// The segment that holds file offset `offset`, and the offset in it.
    #[inline(always)]
    pub fn locate(&self, offset: u64) -> Option<(u32, u32)> {
        let data = offset.checked_sub(DATA_OFFSET)?;
        let index = u32::try_from(data >> self.shift).ok()?;
        Some((index, (data & (self.segment_size() - 1)) as u32))
    }
}
