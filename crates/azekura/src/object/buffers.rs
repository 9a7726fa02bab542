//! Aligned memory for extents, used again.
//!
//! A fresh buffer costs page faults and zeros, for a mebibyte as much as its write to a fast device. A few are kept, by
//! size; what is larger than that is given back. It knows nothing of what is in them.

use parking_lot::Mutex;

use crate::io::direct::AlignedBuf;

/// Bytes of buffers that are kept, at most.
const KEPT_MAX: usize = 32 << 20;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    kept: Mutex<Vec<AlignedBuf>>,
}

impl Buffers {
    /// A buffer of `len` bytes or more; what is in it is anything.
    pub(super) fn take(&self, len: usize) -> AlignedBuf {
        let mut kept = self.kept.lock();
        let fits = |buf: &AlignedBuf| buf.len() >= len && buf.len() <= 2 * len.max(64 << 10);
        if let Some(at) = kept.iter().position(fits) {
            return kept.swap_remove(at);
        }
        drop(kept);
        AlignedBuf::zeroed(len.next_power_of_two().min(len.next_multiple_of(1 << 20)))
    }

    /// Takes one back.
    pub(super) fn give(&self, buf: AlignedBuf) {
        let mut kept = self.kept.lock();
        let held: usize = kept.iter().map(|buf| buf.len()).sum();
        if held + buf.len() <= KEPT_MAX {
            kept.push(buf);
        }
    }
}
