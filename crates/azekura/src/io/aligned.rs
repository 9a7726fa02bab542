//! Memory at aligned addresses, for what goes past the page cache.
//!
//! An [`AlignedBuf`] is bytes at a multiple of a power of two, taken from the system by a call that may be refused.
//! Its length can be changed within its room, so one buffer serves objects of many sizes. All of its bytes are
//! initialized; those of a buffer that was used before are what its last user left there.
//!
//! It does not know who reads and writes it.

use std::ops::{Deref, DerefMut};

use crate::error::{Error, Kind, Result, size};
use crate::room;

/// Least alignment that fits nearly every file system and device, whatever they claim.
pub const ALIGNMENT: u64 = 4096;

/// Bytes at an address that is a multiple of an alignment; by default none.
#[derive(Default)]
pub struct AlignedBuf {
    /// Never grows, so its bytes stay where they are.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` zeros at a multiple of `alignment`. Errors: `Full` if the system gives no memory, `Invalid` if
    /// `alignment` is no power of two. Costs what zeroing costs.
    pub fn zeroed(len: usize, alignment: u64) -> Result<Self> {
        if !alignment.is_power_of_two() {
            return Err(
                Error::new(Kind::Invalid, "the alignment of a buffer is a power of two")
                    .found(alignment, size(ALIGNMENT)),
            );
        }
        let room = len.saturating_add(alignment as usize);
        let mut bytes = room::vec(room)?;
        bytes.resize(room, 0);
        let start = bytes.as_ptr().align_offset(alignment as usize);
        Ok(Self { bytes, start, len })
    }

    /// Most bytes it can hold without moving.
    pub fn capacity(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Makes it longer or shorter, within its capacity: a programmer error beyond. What comes into view is what it was
    /// when it went out of view, or zeros.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "{len} bytes in a buffer of {}",
            self.capacity()
        );
        self.len = len;
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::refusal;

    #[test]
    fn buffers_stand_at_multiples_of_the_alignment() {
        for alignment in [1, 512, 4096, 65536] {
            for len in [0, 1, 4096, 100_000] {
                let buffer = AlignedBuf::zeroed(len, alignment).unwrap();
                let at = buffer.as_ptr().addr() as u64;
                assert_eq!((buffer.len(), at % alignment), (len, 0));
            }
        }
    }

    #[test]
    fn a_buffer_changes_its_length_and_stays_in_its_place() {
        let mut buffer = AlignedBuf::zeroed(8192, ALIGNMENT).unwrap();
        let at = buffer.as_ptr();
        buffer.fill(7);
        buffer.set_len(4096);
        assert_eq!(buffer.len(), 4096);
        buffer.set_len(8192);
        assert!(buffer.iter().all(|byte| *byte == 7) && buffer.as_ptr() == at);
    }

    #[test]
    fn memory_that_is_not_there_and_an_odd_alignment_are_errors() {
        refusal(AlignedBuf::zeroed(usize::MAX - 5000, ALIGNMENT), Kind::Full);
        let odd = AlignedBuf::zeroed(1, 1000).unwrap_err();
        assert_eq!(
            odd.to_string(),
            "invalid: the alignment of a buffer is a power of two (found 1000, expected 4 KiB)"
        );
    }
}
