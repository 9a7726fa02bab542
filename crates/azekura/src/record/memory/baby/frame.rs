//! Where nodes live: frames of four kibibytes, numbered, in one reservation of memory.
//!
//! A frame is a latch and a node's words. Once made it stays a frame for as long as the store lives, whatever it holds. So a
//! reader may look at any frame at any time, also one that was given back and taken for something else: it sees bytes of no
//! use, and a version that is not the one it knew. That is why nodes, unlike values, need no epochs to be used again.
//!
//! Of frames that hold nothing, as many as are in use, and at least four mebibytes, keep their memory; at a limit, no more
//! than it leaves room for, and a few. What is more goes back to the system, some frames with each that is given back, when
//! its grace period has elapsed: it then reads as zeros, its version too, which no reader remembers any more. As many as
//! may be kept may wait for that. After the first mebibytes the memory is in huge pages. It does not know what nodes hold.

#![expect(unsafe_code, reason = "frames in raw memory")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::budget::{Budget, Pay};
use crate::epoch::{Batch, Domain};
use crate::error::{Error, Kind, Result};
use crate::explore::Mutex;
use crate::io::Map;
use crate::io::mmap::prefetch;
use crate::node::tree::{FRAME, Frame, Held, NodeStore, Stated};
use crate::node::{Latch, Node};
use crate::order::Order;

/// Addresses reserved; memory is taken as it is touched.
const RESERVED_BYTES: u64 = 1 << 38;
const SMALL_BYTES: u64 = 2 << 20;
/// Frames without use that keep their memory, at least.
const KEPT: u64 = if cfg!(azekura_explore) { 1 } else { 1024 };
/// Frames that may be more than are kept, so that a seal is for some of them.
const MORE: u64 = if cfg!(azekura_explore) { 0 } else { 16 };
/// Frames returned to the system at a time, each perhaps by a call of its own.
const STEP: usize = 64;

pub(super) struct Frames {
    order: Order,
    domain: Domain,
    memory: Arc<Map>,
    budget: Arc<Budget>,
    /// Frames made so far. Grows under the lock of `spare`.
    end: AtomicU32,
    spare: Mutex<Spare>,
}

/// Frames that hold nothing.
#[derive(Default)]
struct Spare {
    /// To be used again first.
    warm: Vec<u32>,
    /// To be returned to the system when their grace period has elapsed, rising.
    aging: Batch<u32>,
    /// Returned: all zeros, and without memory until they are used.
    cold: Vec<u32>,
}

impl Spare {
    fn count(&self) -> u64 {
        (self.warm.len() + self.aging.items.len() + self.cold.len()) as u64
    }

    /// Lets the warm ones age.
    fn age(&mut self, domain: &Domain) {
        let mut warm = std::mem::take(&mut self.warm);
        warm.sort_unstable();
        self.aging = Batch::seal(domain, warm, 0);
    }

    /// Takes some of those that aged; how many there are of them.
    fn take_aged(&mut self, leaving: &mut [u32; STEP]) -> usize {
        let aging = &mut self.aging.items;
        let rest = aging.len().saturating_sub(STEP);
        let aged = aging.drain(rest..);
        aged.zip(leaving).map(|(number, to)| *to = number).count()
    }
}

impl Frames {
    /// Room for frames, and the first one, an empty leaf.
    pub(super) fn new(order: Order, domain: Domain, budget: Arc<Budget>) -> Result<Self> {
        let memory = Map::anonymous(RESERVED_BYTES, None)?;
        memory.advise_huge(SMALL_BYTES, RESERVED_BYTES - SMALL_BYTES);
        let frames = Self {
            order,
            domain,
            memory,
            budget,
            end: AtomicU32::new(0),
            spare: Mutex::default(),
        };
        let first = frames.take_number(Pay::Asked)?;
        frames.node(frames.at(first)).init(0, None, None);
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
        // reservation, which lives as long as `self`, and are never unmade. All their parts may be shared. One returned to
        // the system is all zeros, which is a latch as new and words; no thread holds or changes it meanwhile, as
        // no thread that knew it is pinned any more; one that reads a stale number only loads its version.
        unsafe { &*self.memory.at(u64::from(number) * FRAME).cast::<Frame>() }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a frame begins a page")]
    fn make(&self, _alone: &Spare) -> Result<u32> {
        let number = self.end.load(Ordering::Relaxed);
        if u64::from(number) >= RESERVED_BYTES / FRAME {
            return Err(no_addresses());
        }
        let at = self.memory.at(u64::from(number) * FRAME).cast::<Frame>();
        // SAFETY: within the reservation, at a page's beginning, and no other thread's: it is not below `end`, and `end`
        // grows under the lock whose guarded is shown. Its words are zero already.
        unsafe { (&raw mut (*at).latch).write(Latch::default()) };
        self.end.store(number + 1, Ordering::Release);
        Ok(number)
    }

    /// A frame that holds nothing. `Full` if there are no more addresses, or the budget refuses it.
    fn take_number(&self, pay: Pay) -> Result<u32> {
        self.budget.take(FRAME, pay)?;
        let mut spare = self.spare.lock();
        let near = spare.warm.pop().or_else(|| spare.aging.items.pop());
        let number = match near.or_else(|| spare.cold.pop()) {
            Some(number) => Ok(number),
            None => self.make(&spare),
        };
        if number.is_err() {
            self.budget.give(FRAME);
        }
        number
    }

    /// Gives back a frame that is dead and that nothing points to.
    fn give_number(&self, number: u32) {
        self.budget.give(FRAME);
        let mut spare = self.spare.lock();
        // Without memory to remember it, it is not used again.
        if spare.warm.try_reserve(1).is_ok() {
            spare.warm.push(number);
        }
        drop(spare);
        self.return_some();
    }

    /// Returns the memory of idle frames to the system, where no reader can hold them.
    pub(super) fn release_idle(&self) {
        while self.return_some() {}
    }

    /// Returns some frames to the system, if there are too many that hold nothing; whether it did.
    fn return_some(&self) -> bool {
        let mut spare = self.spare.lock();
        if spare.aging.items.is_empty() {
            let used = self.made() - spare.count();
            let kept = used.max(KEPT).min(self.budget.left() / FRAME);
            if spare.warm.len() as u64 <= kept + MORE {
                return false;
            }
            spare.age(&self.domain);
        }
        if !spare.aging.has_elapsed(&self.domain) {
            return false;
        }
        let mut leaving = [0; STEP];
        let count = spare.take_aged(&mut leaving);
        drop(spare);
        let leaving = &leaving[..count];
        for run in leaving.chunk_by(|number, next| next - number == 1) {
            let bytes = run.len() as u64 * FRAME;
            self.memory.discard(u64::from(run[0]) * FRAME, bytes);
        }
        let mut spare = self.spare.lock();
        // As above.
        if spare.cold.try_reserve(count).is_ok() {
            spare.cold.extend(leaving);
        }
        true
    }

    /// Whether there is a limit to what they take.
    pub(super) fn are_limited(&self) -> bool {
        self.budget.is_limited()
    }

    /// Sets aside what `count` frames take of the budget, until it is [released](Self::release), for who then takes
    /// them [anyway](Pay::Anyway). `Full` if it is refused, or if there are no addresses for `most`, and some more for
    /// others meanwhile.
    pub(super) fn reserve(&self, count: u64, most: u64) -> Result<()> {
        const OTHERS: u64 = 1 << 16;
        let left = RESERVED_BYTES / FRAME - self.used();
        if most + OTHERS > left {
            return Err(no_addresses());
        }
        self.budget.take(count * FRAME, Pay::Asked)
    }

    /// Ends what [`reserve`](Self::reserve) began.
    pub(super) fn release(&self, count: u64) {
        self.budget.give(count * FRAME);
    }

    /// Frames made.
    pub(super) fn made(&self) -> u64 {
        u64::from(self.end.load(Ordering::Relaxed))
    }

    /// Frames in use.
    pub(super) fn used(&self) -> u64 {
        let spare = self.spare.lock();
        self.made() - spare.count()
    }

    /// Frames that have memory.
    pub(super) fn warm(&self) -> u64 {
        let spare = self.spare.lock();
        self.made() - spare.cold.len() as u64
    }
}

impl NodeStore for Frames {
    type Fault = Infallible;
    type Moment = ();
    type Charge = Pay;

    fn error(never: Infallible) -> Error {
        match never {}
    }

    #[inline(always)]
    fn node<'f>(&'f self, frame: &'f Frame) -> Node<'f> {
        Node::new(&frame.words, self.order)
    }

    #[inline(always)]
    fn frame(&self, number: u32) -> Option<&Frame> {
        Some(self.at(number))
    }

    #[inline(always)]
    fn holds(&self, _: &Frame, _: u32) -> bool {
        true
    }

    fn load(&self, _: u32, _: &Stated<'_>) -> std::result::Result<(), Infallible> {
        Ok(())
    }

    #[inline(always)]
    fn prefetch(&self, number: u32, lines: usize) {
        let start = std::ptr::from_ref(self.at(number)).cast::<u8>();
        for line in 0..lines {
            prefetch(start.wrapping_add(line * 64));
        }
    }

    fn take(&self, pay: Pay) -> Result<Held<'_>> {
        let number = self.take_number(pay)?;
        let held = Held::lock(number, self.at(number));
        held.lock.change();
        held.lock.set_dead(false);
        Ok(held)
    }

    fn give_back(&self, held: Held<'_>) {
        self.give(held, &());
    }

    #[inline(always)]
    fn moment(&self) -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    fn change(&self, held: &Held<'_>, (): &()) {
        held.lock.change();
    }

    fn give(&self, held: Held<'_>, (): &()) {
        held.lock.change();
        held.lock.set_dead(true);
        let number = held.number;
        drop(held);
        self.give_number(number);
    }
}

#[cold]
fn no_addresses() -> Error {
    Error::new(Kind::Full, "the store has used up its address space").remedy("remove records")
}
