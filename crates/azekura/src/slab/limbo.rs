//! Freed places, until no thread can still be reading them.
//!
//! A freed place is noted in its thread's hand. Some hundred of them, or some hundred kilobytes, are sealed together, since
//! a seal costs microseconds; once their grace period has elapsed, their bits are set, and the slots may be taken again. A
//! hand whose thread does not come by any more is asked by others when much waits.
//!
//! Invariant: a slot's bit is set by who settles its hand, once. It does not know who looks, nor which block is worth
//! filling.

#![expect(unsafe_code, reason = "what long records say of themselves")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::Place;
use super::block::{IDLE, Slab, UNIT, block_of, counted, is_worth};
use super::class::{BLOCK, ELSEWHERE, TABLE};
use super::hand::{Current, State};
use super::long;
use super::record;
use crate::epoch::{Batch, Pin, RetireList};
use crate::io::mmap::prefetch;
use crate::weave;

/// Freed places that are sealed together: a seal costs microseconds.
const BATCH: usize = if cfg!(azekura_weave) { 2 } else { 1024 };
/// Or so many bytes.
const BATCH_BYTES: u64 = 256 << 10;
/// Freed bytes that may wait for readers, beside an eighth of those in use, before all hands are asked to let them go.
const WAITING: u64 = 4 << 20;
/// Freed places whose bits are asked for before they are set.
const AHEAD: usize = 8;

impl Slab {
    /// Gives the room at `place` back: to be used again when nobody is pinned since before. The caller has made sure
    /// that nobody can find it any more, and that nobody else frees it.
    #[inline(always)]
    pub fn free(&self, pin: &Pin, place: Place) {
        let mut hand = self.hands.grip(pin);
        let freed = self.to_limbo(&mut hand, place);
        self.live.add(pin, -freed);
        if is_full(&hand.retired) {
            self.settle(&mut hand);
            drop(hand);
            self.notice_thinness();
        }
    }

    /// Notes a freed place; the bytes of its slot. Without memory for the note, the slot is never used again.
    #[inline(always)]
    pub(super) fn to_limbo(&self, hand: &mut State, place: Place) -> i64 {
        let class = self.class(block_of(place));
        let size = TABLE[class].size;
        let mut bytes = u64::from(size);
        if class == ELSEWHERE {
            // SAFETY: a slot of that class which is in use.
            bytes += unsafe { record::elsewhere_bytes(self.at(place)) } as u64;
        }
        if hand.retired.reserve(BATCH) {
            let _ = hand.retired.retire(place, bytes);
        }
        i64::from(size)
    }

    /// Lets what was freed be used again as far as nobody is pinned since, and takes the blocks that hands fill away from
    /// them. A caller who met `Full` calls it unpinned and tries again.
    pub fn reclaim(&self) {
        self.hands.each(|state| {
            self.settle(state);
            for current in &mut state.current {
                self.put_down(std::mem::take(current));
            }
        });
    }

    /// Gives a block up that a hand was filling, with the free slots it had taken out.
    fn put_down(&self, current: Current) {
        if current.block == 0 {
            return;
        }
        if current.bits != 0 {
            let word = self.word(current.block, current.word - 1);
            word.fetch_or(current.bits, Ordering::Release);
            let free = &self.meta(current.block).free;
            free.fetch_add(current.bits.count_ones(), Ordering::SeqCst);
        }
        self.let_go(current.block);
    }

    /// Bytes that were freed and wait for readers, as far as hands gave them up.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether so much waits for readers that some of it waits for its hand's thread to come by.
    pub(super) fn waits_long(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > WAITING + self.live_bytes() / 8
    }

    /// Seals what was freed, and sets the bits of what no thread can hold any more.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&self, state: &mut State) {
        let sealed = state.retired.seal();
        self.waiting.fetch_add(sealed, Ordering::Relaxed);
        loop {
            let batch = state.retired.next_elapsed();
            #[cfg(test)]
            let batch = batch.or_else(|| self.hasty.then(|| state.retired.next_early()).flatten());
            let Some(Batch { weight, items, .. }) = batch else {
                return;
            };
            self.waiting.fetch_sub(weight, Ordering::Relaxed);
            for (at, place) in items.iter().enumerate() {
                if let Some(soon) = items.get(at + AHEAD) {
                    prefetch(std::ptr::from_ref(self.bit(*soon).0).cast());
                }
                // SAFETY: `free` noted the place, once, when no reader could find it any more; its batch's grace period has
                // elapsed, and the batch is off the list.
                unsafe { self.set_free(*place) };
            }
        }
    }

    /// The bit that says whether a slot is free.
    #[inline(always)]
    fn bit(&self, place: Place) -> (&AtomicU64, u64) {
        let block = block_of(place);
        let slot = TABLE[self.class(block)].slot((place * UNIT % BLOCK) as u32);
        (self.word(block, slot / 64), 1 << (slot % 64))
    }

    /// Lets a slot be taken again, and frees what it refers to.
    ///
    /// # Safety
    /// - the slot was in use, `free` noted it, and no thread looks at it any more;
    /// - it is set free once.
    unsafe fn set_free(&self, place: Place) {
        let block = block_of(place);
        let class = self.class(block);
        if class == ELSEWHERE {
            // SAFETY: a slot of that class; the rest is this function's contract.
            unsafe { self.drop_elsewhere(place) };
        }
        let shape = &TABLE[class];
        #[cfg(azekura_weave)]
        self.spoil(place, shape);
        let (word, bit) = self.bit(place);
        weave::point();
        let before = word.fetch_or(bit, Ordering::Release);
        debug_assert!(before & bit == 0, "a place was freed twice");
        let meta = self.meta(block);
        weave::point();
        let free = counted(meta.free.fetch_add(1, Ordering::SeqCst).wrapping_add(1));
        weave::point();
        let state = meta.state.load(Ordering::SeqCst);
        if free == shape.slots || state == IDLE && is_worth(free, shape.slots) {
            let mut list = self.classes[class].lock();
            // Meanwhile it may have been pooled by somebody else, and even be of another class.
            if self.class(block) == class {
                self.reconsider(block, class, &mut list);
            }
        }
    }

    /// Overwrites what nobody looks at any more: who does nevertheless finds neither key nor value.
    #[cfg(azekura_weave)]
    fn spoil(&self, place: Place, shape: &super::class::Class) {
        // SAFETY: a slot of that class that was in use; nobody has taken it yet.
        unsafe { self.at(place).write_bytes(0, shape.size as usize) };
    }

    /// Frees the allocation that a slot of the class `ELSEWHERE` refers to.
    ///
    /// # Safety
    /// - the slot is of that class and was in use, and no thread looks at it or its allocation any more;
    /// - it is not taken again before this returns, and this is called once for each use of it.
    unsafe fn drop_elsewhere(&self, place: Place) {
        // SAFETY: such a slot holds address and length of its allocation from when it was taken, and both stay until it is
        // taken again.
        let (at, bytes) = unsafe {
            let slot = self.at(place);
            (
                record::elsewhere(slot),
                record::elsewhere_bytes(slot) as u64,
            )
        };
        let rounded = long::rounded(bytes);
        self.elsewhere.fetch_sub(rounded, Ordering::Relaxed);
        self.long.give_back(at, bytes);
    }
}

/// Whether one more place may be noted before a seal is due, and there is memory for the note.
#[inline(always)]
pub(super) fn is_room_for_note(hand: &mut State) -> bool {
    let retired = &mut hand.retired;
    retired.fresh_count() + 1 < BATCH
        && retired.fresh_weight() < BATCH_BYTES
        && retired.reserve(BATCH)
}

/// Whether a seal is due.
#[inline(always)]
fn is_full(retired: &RetireList<Place>) -> bool {
    retired.fresh_count() >= BATCH || retired.fresh_weight() >= BATCH_BYTES
}
