//! A pool of aligned buffers for extents.
//!
//! A fresh buffer costs page faults and zeroing, for a mebibyte as much as its write to a fast device. A few are kept, by size;
//! larger ones are freed.

use crate::error::Result;
use crate::explore::Mutex;
use crate::io::aligned::AlignedBuf;

/// Most bytes of buffers that are kept.
const KEPT_MAX: usize = 32 << 20;
/// Sizes of buffers are multiples of it, so that they can be reused.
const STEP: usize = 64 << 10;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Buffers {
    alignment: u64,
    kept: Mutex<Vec<AlignedBuf>>,
}

impl Buffers {
    /// Buffers at multiples of `alignment`.
    pub(crate) fn new(alignment: u64) -> Self {
        Self {
            alignment,
            kept: Mutex::default(),
        }
    }

    /// A buffer of `len` bytes with arbitrary contents. `Full` if there is no memory.
    pub(crate) fn take(&self, len: usize) -> Result<AlignedBuf> {
        let wanted = len.next_multiple_of(STEP);
        let mut kept = self.kept.lock();
        let fits = |buf: &AlignedBuf| (wanted..=2 * wanted).contains(&buf.capacity());
        let found = kept.iter().rposition(fits).map(|at| kept.swap_remove(at));
        drop(kept);
        let mut buf = match found {
            Some(buf) => buf,
            None => AlignedBuf::zeroed(wanted, self.alignment)?,
        };
        buf.set_len(len);
        Ok(buf)
    }

    /// Returns a buffer to the pool.
    pub(crate) fn give(&self, buf: AlignedBuf) {
        let mut kept = self.kept.lock();
        if bytes(&kept) + buf.capacity() <= KEPT_MAX {
            kept.push(buf);
        }
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        bytes(&self.kept.lock())
    }
}

fn bytes(kept: &[AlignedBuf]) -> usize {
    kept.iter().map(AlignedBuf::capacity).sum()
}
