//! Freed slots, from [`Slab::free`] until no thread can still read them.
//!
//! `free` puts the place on the retire list of its thread's cache. Some thousand places, or some hundred kilobytes, form one
//! batch, since sealing a batch costs microseconds; once its grace period has elapsed, the bits of its slots are set, and the
//! slots may be taken again. If much waits in caches of idle threads, another thread reclaims for all of them.
//!
//! Invariant: a slot's bit is set once, by the thread that reclaims the cache which holds its place. This module does not know
//! which threads read, nor which block is worth filling.

#![expect(unsafe_code, reason = "lengths and addresses of out-of-line records")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::Place;
use super::block::{IDLE, Slab, UNIT, block_of, counted, is_worth};
use super::class::{BLOCK, OUT_OF_LINE, TABLE};
use super::long;
use super::record;
use super::thread_cache::{Current, State};
use crate::epoch::{Batch, Pin, RetireList};
use crate::explore;
use crate::io::mmap::prefetch;

/// Freed places that are sealed together: a seal costs microseconds.
const BATCH: usize = if cfg!(azekura_explore) { 2 } else { 1024 };
/// Or so many bytes.
const BATCH_BYTES: u64 = 256 << 10;
/// Freed bytes that may wait for readers, in addition to an eighth of those in use, before all caches are reclaimed.
const WAITING: u64 = 4 << 20;
/// Distance, in freed places, at which bits are prefetched before they are set.
const AHEAD: usize = 8;

impl Slab {
    /// Frees the slot at `place`; it is reused once its grace period has elapsed.
    ///
    /// # Safety
    /// - `put` or a draft of this slab gave the place, and it is freed once: no thread that pins from now on can find it.
    #[inline(always)]
    pub unsafe fn free(&self, pin: &Pin, place: Place) {
        let mut cache = self.caches.lock(pin);
        // SAFETY: the caller's place, by the contract.
        let freed = unsafe { self.to_limbo(&mut cache, place) };
        self.live.add(pin, -freed);
        if is_full(&cache.retired) {
            self.reclaim_elapsed(&mut cache);
            drop(cache);
            self.update_needs_evacuation();
        }
    }

    /// Puts a freed place on the retire list; returns the bytes of its slot. If the list has no memory, the slot is leaked.
    ///
    /// # Safety
    /// - as for [`Slab::free`].
    #[inline(always)]
    pub(super) unsafe fn to_limbo(&self, cache: &mut State, place: Place) -> i64 {
        let class = self.class(block_of(place));
        let size = TABLE[class].size;
        let mut bytes = u64::from(size);
        if class == OUT_OF_LINE {
            // SAFETY: a slot of that class which is in use, by the contract.
            bytes += unsafe { record::out_of_line_bytes(self.at(place)) } as u64;
        }
        if cache.retired.reserve(BATCH) {
            let _ = cache.retired.retire(place, bytes);
        }
        i64::from(size)
    }

    /// Reclaims the freed slots whose grace period has elapsed, and takes the blocks that caches fill away from
    /// them. A caller that got `Full` calls it unpinned and tries again.
    pub fn reclaim(&self) {
        self.caches.each(|state| {
            self.reclaim_elapsed(state);
            for current in &mut state.current {
                self.release_current(std::mem::take(current));
            }
        });
    }

    /// Releases the block that a cache fills, with the free slots that the cache had taken out.
    fn release_current(&self, current: Current) {
        if current.block == 0 {
            return;
        }
        if current.bits != 0 {
            let word = self.word(current.block, current.word - 1);
            word.fetch_or(current.bits, Ordering::Release);
            let free = &self.meta(current.block).free;
            free.fetch_add(current.bits.count_ones(), Ordering::SeqCst);
        }
        self.release_block(current.block);
    }

    /// Freed bytes in sealed batches whose grace period has not elapsed.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether so much waits that some of it probably waits in caches of idle threads.
    pub(super) fn waits_long(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > WAITING + self.live_bytes() / 8
    }

    /// Seals the current batch, and sets the bits of the batches whose grace period has elapsed.
    #[cold]
    #[inline(never)]
    pub(super) fn reclaim_elapsed(&self, state: &mut State) {
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

    /// The bit that states whether a slot is free.
    #[inline(always)]
    fn bit(&self, place: Place) -> (&AtomicU64, u64) {
        let block = block_of(place);
        let slot = TABLE[self.class(block)].slot((place * UNIT % BLOCK) as u32);
        (self.word(block, slot / 64), 1 << (slot % 64))
    }

    /// Marks a slot free, and frees the allocation it refers to.
    ///
    /// # Safety
    /// - the slot was in use, `free` noted it, and no thread reads it any more;
    /// - it is set free once.
    unsafe fn set_free(&self, place: Place) {
        let block = block_of(place);
        let class = self.class(block);
        if class == OUT_OF_LINE {
            // SAFETY: a slot of that class; the rest is this function's contract.
            unsafe { self.drop_out_of_line(place) };
        }
        let shape = &TABLE[class];
        #[cfg(azekura_explore)]
        self.spoil(place, shape);
        let (word, bit) = self.bit(place);
        explore::yield_point();
        let before = word.fetch_or(bit, Ordering::Release);
        debug_assert!(before & bit == 0, "a place was freed twice");
        let meta = self.meta(block);
        explore::yield_point();
        let free = counted(meta.free.fetch_add(1, Ordering::SeqCst).wrapping_add(1));
        explore::yield_point();
        let state = meta.state.load(Ordering::SeqCst);
        if free == shape.slots || state == IDLE && is_worth(free, shape.slots) {
            let mut list = self.classes[class].lock();
            // Another thread may have pooled it meanwhile, and it may even have another class.
            if self.class(block) == class {
                self.reconsider(block, class, &mut list);
            }
        }
    }

    /// Overwrites a slot that no thread may read any more: a reader that does finds neither key nor value.
    #[cfg(azekura_explore)]
    fn spoil(&self, place: Place, shape: &super::class::Class) {
        // SAFETY: a slot of that class that was in use; no thread has taken it yet.
        unsafe { self.at(place).write_bytes(0, shape.size as usize) };
    }

    /// Frees the allocation that a slot of the class `OUT_OF_LINE` refers to.
    ///
    /// # Safety
    /// - the slot is of that class and was in use, and no thread reads it or its allocation any more;
    /// - it is not taken again before this returns, and this is called once for each use of it.
    unsafe fn drop_out_of_line(&self, place: Place) {
        // SAFETY: such a slot holds address and length of its allocation from when it was taken, and both stay until it is
        // taken again.
        let (at, bytes) = unsafe {
            let slot = self.at(place);
            (
                record::out_of_line(slot),
                record::out_of_line_bytes(slot) as u64,
            )
        };
        let rounded = long::rounded(bytes);
        self.out_of_line.fetch_sub(rounded, Ordering::Relaxed);
        self.long.give_back(at, bytes);
    }
}

/// Whether the retire list takes one more place before a seal is due, without an allocation.
#[inline(always)]
pub(super) fn is_room_for_note(cache: &mut State) -> bool {
    let retired = &mut cache.retired;
    retired.fresh_count() + 1 < BATCH
        && retired.fresh_weight() < BATCH_BYTES
        && retired.reserve(BATCH)
}

/// Whether a seal is due.
#[inline(always)]
fn is_full(retired: &RetireList<Place>) -> bool {
    retired.fresh_count() >= BATCH || retired.fresh_weight() >= BATCH_BYTES
}
