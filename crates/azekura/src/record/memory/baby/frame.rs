//! Where nodes live: frames of four kibibytes, numbered, in one reservation of memory.
//!
//! A frame is a latch and a node's words. Once made it stays a frame for as long as the store lives, whatever it holds, and
//! its latch's version only grows. So a reader may look at any frame at any time, also one that was given back and taken
//! for something else: it sees bytes of no use, and a version that is not the one it knew. That is why nodes, unlike
//! values, need no epochs. Behind the first mebibytes the memory is in huge pages. It does not know what nodes hold.

#![expect(unsafe_code, reason = "frames in raw memory")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Kind, Result};
use crate::io::Map;
use crate::io::mmap::prefetch;
use crate::node::Latch;

/// Bytes of a frame.
pub(super) const FRAME: u64 = 4096;
/// Words of a node in it.
pub(super) const WORDS: usize = (FRAME as usize - size_of::<Latch>()) / 8;
/// Addresses reserved; memory is taken as it is touched.
const RESERVED_BYTES: u64 = 1 << 38;
const SMALL_BYTES: u64 = 2 << 20;

#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) latch: Latch,
    pub(super) words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Frame>() as u64 == FRAME);

pub(super) struct Frames {
    memory: Arc<Map>,
    /// Frames made so far. Grows under the lock of `free`.
    end: AtomicU32,
    /// Those that hold nothing.
    free: Mutex<Vec<u32>>,
}

impl Frames {
    /// Room for frames, and the first one.
    pub(super) fn new() -> Result<Self> {
        let memory = Map::anonymous(RESERVED_BYTES, None)?;
        memory.advise_huge(SMALL_BYTES, RESERVED_BYTES - SMALL_BYTES);
        let frames = Self {
            memory,
            end: AtomicU32::new(0),
            free: Mutex::default(),
        };
        frames.make()?;
        Ok(frames)
    }

    /// The frame of this number, or, if none was made, the first.
    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "a frame begins a page")]
    pub(super) fn at(&self, number: u32) -> &Frame {
        let number = if number < self.end.load(Ordering::Acquire) {
            number
        } else {
            0
        };
        // SAFETY: all frames below `end` were written by `make` before `end` was stored with release, lie in the
        // reservation, which lives as long as `self`, and are never unmade. All their parts may be shared.
        unsafe { &*self.memory.at(u64::from(number) * FRAME).cast::<Frame>() }
    }

    /// Has the first `lines` lines of a frame brought near.
    #[inline(always)]
    pub(super) fn prefetch(&self, number: u32, lines: usize) {
        let start = std::ptr::from_ref(self.at(number)).cast::<u8>();
        for line in 0..lines {
            prefetch(start.wrapping_add(line * 64));
        }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a frame begins a page")]
    fn make(&self) -> Result<u32> {
        let _alone = self.free.lock();
        let number = self.end.load(Ordering::Relaxed);
        if u64::from(number) >= RESERVED_BYTES / FRAME {
            return Err(no_addresses());
        }
        let at = self.memory.at(u64::from(number) * FRAME).cast::<Frame>();
        // SAFETY: within the reservation, at a page's beginning, and nobody else's: it is not below `end`, and `end`
        // grows under the lock that is held. Its words are zero already.
        unsafe { (&raw mut (*at).latch).write(Latch::default()) };
        self.end.store(number + 1, Ordering::Release);
        Ok(number)
    }

    /// A frame that holds nothing. `Full` if there are no more addresses.
    pub(super) fn take(&self) -> Result<u32> {
        let free = self.free.lock().pop();
        free.map_or_else(|| self.make(), Ok)
    }

    /// Gives back a frame that is dead and that nothing points to.
    pub(super) fn give(&self, number: u32) {
        let mut free = self.free.lock();
        // Without memory to remember it, it is not used again.
        if free.try_reserve(1).is_ok() {
            free.push(number);
        }
    }

    /// `Full` unless as many frames can be had, and some more for others meanwhile.
    pub(super) fn expect(&self, count: u64) -> Result<()> {
        const OTHERS: u64 = 1 << 16;
        let left = RESERVED_BYTES / FRAME - self.made();
        if count + OTHERS > left {
            return Err(no_addresses());
        }
        Ok(())
    }

    /// Frames made.
    pub(super) fn made(&self) -> u64 {
        u64::from(self.end.load(Ordering::Relaxed))
    }

    /// Frames in use.
    pub(super) fn used(&self) -> u64 {
        self.made() - self.free.lock().len() as u64
    }
}

#[cold]
fn no_addresses() -> Error {
    Error::new(Kind::Full, "the store has used up its address space").remedy("remove records")
}
