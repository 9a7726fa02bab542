//! One cache line: a lock, and seven entries.
//!
//! The lock is one byte; a thread that must wait spins for a short time and then parks outside the bucket, and is woken
//! in fair order (the parking lot's). The other header bytes change under the lock only. Any thread may read entries at
//! any time. A bucket does not know its neighbours, nor what an entry points to.

#![expect(unsafe_code, reason = "the parking lot's contract")]

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot_core::{
    DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, SpinWait, UnparkToken, park, unpark_one,
};

use super::hash::{ADDRESS_BITS, TAG_BITS};
use super::{Place, place_of};
use crate::explore;

/// Entries of a bucket.
pub(super) const SLOTS: usize = 7;
/// A slot that is free.
pub(super) const EMPTY: u64 = 0;
/// A slot that is claimed and not yet filled: no place.
pub(super) const RESERVED: u64 = (1 << ADDRESS_BITS) - 1;

const LOCKED: u8 = 1;
const PARKED: u8 = 2;
/// The waker hands the lock over.
const HANDED: UnparkToken = UnparkToken(1);

#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Bucket {
    state: AtomicU8,
    /// The maximum probe distance: entries whose home this is are at most so many buckets after it. Only grows.
    distance_max: AtomicU8,
    /// The chunk has a successor.
    moved: AtomicU8,
    spare: u8,
    /// A filter of the tags of entries whose home this is and that are in a later bucket. Only grows.
    overflow: AtomicU32,
    slots: [AtomicU64; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    #[inline(always)]
    pub(super) fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    /// Whether it could be locked without waiting.
    #[inline(always)]
    pub(super) fn try_lock(&self) -> bool {
        explore::yield_point();
        self.locks()
    }

    #[inline(always)]
    fn locks(&self) -> bool {
        self.state
            .compare_exchange_weak(0, LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        while explore::wait() {
            if self.locks() {
                return;
            }
        }
        let mut spin = SpinWait::new();
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & LOCKED == 0 {
                match self.state.compare_exchange_weak(
                    state,
                    state | LOCKED,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return,
                    Err(now) => state = now,
                }
                continue;
            }
            if state & PARKED == 0 {
                if spin.spin() {
                    state = self.state.load(Ordering::Relaxed);
                    continue;
                }
                let parked = state | PARKED;
                if let Err(now) = self.state.compare_exchange_weak(
                    state,
                    parked,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    state = now;
                    continue;
                }
            }
            let key = std::ptr::from_ref(&self.state) as usize;
            let validate = || self.state.load(Ordering::Relaxed) == LOCKED | PARKED;
            // SAFETY: the key is an address we own while anybody is in here (the waiter is pinned, the bucket's
            // memory stays), and the closures neither panic nor call the parking lot.
            let result = unsafe { park(key, validate, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None) };
            if result == parking_lot_core::ParkResult::Unparked(HANDED) {
                return;
            }
            spin.reset();
            state = self.state.load(Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn unlock(&self) {
        explore::yield_point();
        let freed = self
            .state
            .compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed);
        if freed.is_err() {
            self.unlock_slow();
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        let key = std::ptr::from_ref(&self.state) as usize;
        let wake = |result: parking_lot_core::UnparkResult| {
            let parked = if result.have_more_threads { PARKED } else { 0 };
            if result.unparked_threads != 0 && result.be_fair {
                self.state.store(LOCKED | parked, Ordering::Relaxed);
                return HANDED;
            }
            self.state.store(parked, Ordering::Release);
            DEFAULT_UNPARK_TOKEN
        };
        // SAFETY: as in `lock_slow`; the closure neither panics nor calls the parking lot.
        unsafe { unpark_one(key, wake) };
    }

    #[inline(always)]
    pub(super) fn is_moved(&self) -> bool {
        explore::yield_point();
        self.moved.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_moved(&self) {
        explore::yield_point();
        self.moved.store(1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn distance_max(&self) -> u32 {
        explore::yield_point();
        u32::from(self.distance_max.load(Ordering::Acquire))
    }

    /// Whether an entry with this tag, whose home this is, may be in a later bucket.
    #[inline(always)]
    pub(super) fn may_overflow(&self, tag: u64) -> bool {
        explore::yield_point();
        self.overflow.load(Ordering::Acquire) >> (tag % 32) & 1 != 0
    }

    /// An entry with this tag may now be `distance` buckets after its home, this bucket, whose lock the caller holds.
    #[inline(always)]
    pub(super) fn extend_distance(&self, distance: u32, tag: u64) {
        let overflow = self.overflow.load(Ordering::Relaxed) | 1 << (tag % 32);
        explore::yield_point();
        self.overflow.store(overflow, Ordering::Release);
        explore::yield_point();
        if distance > u32::from(self.distance_max.load(Ordering::Relaxed)) {
            self.distance_max.store(distance as u8, Ordering::Release);
        }
    }

    /// Its slots, in order.
    #[inline(always)]
    pub(super) fn slots(&self) -> &[AtomicU64; SLOTS] {
        &self.slots
    }

    /// The first slot with this tag; for tag 0 also a free one.
    #[inline(always)]
    pub(super) fn first(&self, tag: u64) -> Option<&AtomicU64> {
        let matches = self.matches(tag);
        if matches == 0 {
            return None;
        }
        debug_assert!(matches < 1 << SLOTS);
        // SAFETY: a bit for each of seven slots, and one of them is set.
        Some(unsafe { self.slots.get_unchecked(matches.trailing_zeros() as usize) })
    }

    /// A bit for each entry with this tag; for tag 0 also for free slots, so check the address.
    #[inline(always)]
    pub(super) fn matches(&self, tag: u64) -> u32 {
        explore::yield_point();
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return self.matches_by_four_loads(tag);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        return self.matches_one_by_one(tag);
    }

    #[cfg_attr(
        all(target_arch = "x86_64", not(test)),
        expect(dead_code, reason = "the portable way")
    )]
    #[inline(always)]
    fn matches_one_by_one(&self, tag: u64) -> u32 {
        let mut found = 0;
        for at in 0..SLOTS {
            let entry = self.slots[at].load(Ordering::Relaxed);
            found |= u32::from(entry >> ADDRESS_BITS == tag) << at;
        }
        found
    }

    /// The same in 24 instructions instead of 100, so that the processor sees further ahead. Two entries a
    /// load; their tags stand in the upper half of each, after eight bits of address. The header is not loaded: a
    /// thread that has just locked the bucket stored one byte of it, and a wider load would wait until that store has left
    /// the processor.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    fn matches_by_four_loads(&self, tag: u64) -> u32 {
        let found: u32;
        // SAFETY: reads the 64 aligned bytes of this bucket and registers, nothing else (SSE2 is in every
        // x86-64 CPU). Each aligned eight bytes are read at once, as a relaxed load would; being assembly,
        // the reads race with other threads' atomic stores as atomic loads do.
        unsafe {
            std::arch::asm!(
                "movd {t}, {tag:e}",
                "pshufd {t}, {t}, 0",
                "movq {a}, [{p} + 8]",
                "pslldq {a}, 8",
                "movdqa {b}, [{p} + 16]",
                "movdqa {c}, [{p} + 32]",
                "movdqa {d}, [{p} + 48]",
                "psrld {a}, 8",
                "psrld {b}, 8",
                "psrld {c}, 8",
                "psrld {d}, 8",
                "pcmpeqd {a}, {t}",
                "pcmpeqd {b}, {t}",
                "pcmpeqd {c}, {t}",
                "pcmpeqd {d}, {t}",
                // The upper halves of two registers side by side, then four tags' verdicts in a byte each.
                "shufps {a}, {b}, 0xdd",
                "shufps {c}, {d}, 0xdd",
                "packssdw {a}, {c}",
                "packsswb {a}, {a}",
                "pmovmskb {found:e}, {a}",
                p = in(reg) std::ptr::from_ref(self),
                tag = in(reg) tag,
                t = out(xmm_reg) _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                found = out(reg) found,
                options(readonly, nostack, preserves_flags),
            );
        }
        // The first verdict is the header's, and the byte stands there twice.
        (found & 0xff) >> 1
    }

    /// Reserves a free slot: the first, unless another thread is quicker.
    #[inline(always)]
    pub(super) fn claim(&self) -> Option<&AtomicU64> {
        // No loop in the common case: a processor cannot predict where it ends.
        explore::yield_point();
        let slot = self.free()?;
        explore::yield_point();
        let claimed = slot.compare_exchange(EMPTY, RESERVED, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_ok() {
            Some(slot)
        } else {
            self.claim_any()
        }
    }

    #[cold]
    fn claim_any(&self) -> Option<&AtomicU64> {
        self.slots.iter().find(|slot| {
            explore::yield_point();
            slot.compare_exchange(EMPTY, RESERVED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        })
    }

    /// The first free slot.
    #[inline(always)]
    fn free(&self) -> Option<&AtomicU64> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return self.free_by_four_loads();
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        return self.free_one_by_one();
    }

    #[cfg_attr(
        all(target_arch = "x86_64", not(test)),
        expect(dead_code, reason = "the portable way")
    )]
    #[inline(always)]
    fn free_one_by_one(&self) -> Option<&AtomicU64> {
        self.slots
            .iter()
            .find(|slot| slot.load(Ordering::Relaxed) == EMPTY)
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    fn free_by_four_loads(&self) -> Option<&AtomicU64> {
        let zeros: u32;
        // SAFETY: as for `matches_by_four_loads`.
        unsafe {
            std::arch::asm!(
                "pxor {t}, {t}",
                "movq {a}, [{p} + 8]",
                "pslldq {a}, 8",
                "movdqa {b}, [{p} + 16]",
                "movdqa {c}, [{p} + 32]",
                "movdqa {d}, [{p} + 48]",
                "pcmpeqd {a}, {t}",
                "pcmpeqd {b}, {t}",
                "pcmpeqd {c}, {t}",
                "pcmpeqd {d}, {t}",
                // Half a word's verdict in a byte each.
                "packssdw {a}, {b}",
                "packssdw {c}, {d}",
                "packsswb {a}, {c}",
                "pmovmskb {zeros:e}, {a}",
                p = in(reg) std::ptr::from_ref(self),
                t = out(xmm_reg) _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                zeros = out(reg) zeros,
                options(readonly, nostack, preserves_flags),
            );
        }
        // A slot is free if both its halves are zero; the first word is the header's.
        let free = (zeros & zeros >> 1 & 0x5555) >> 2;
        (free != 0)
            .then(|| self.slots.get(free.trailing_zeros() as usize / 2 % 8))
            .flatten()
    }
}

const _: () = assert!(TAG_BITS + ADDRESS_BITS == 64);

/// A slot of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'i>(pub(super) &'i AtomicU64);

impl Slot<'_> {
    /// The address in it. Of a slot that is free or only claimed, an address that no record has.
    #[inline(always)]
    pub fn place(self) -> Place {
        explore::yield_point();
        place_of(self.0.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(super) fn store(self, entry: u64) {
        explore::yield_point();
        // Release: the record it points to was published before.
        self.0.store(entry, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_matching_agree() {
        let bucket = Bucket {
            state: AtomicU8::new(3),
            distance_max: AtomicU8::new(200),
            moved: AtomicU8::new(1),
            spare: 255,
            overflow: AtomicU32::new(u32::MAX),
            slots: [const { AtomicU64::new(0) }; SLOTS],
        };
        let mut state = 1u64;
        for round in 0..100_000u64 {
            for slot in &bucket.slots {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let tag = (state >> 61) * 0x10_0001 % (1 << TAG_BITS);
                let free = (state >> 58).is_multiple_of(8);
                let entry = tag << ADDRESS_BITS | state >> 24;
                slot.store(if free { EMPTY } else { entry }, Ordering::Relaxed);
            }
            let tag = (round % 8) * 0x10_0001 % (1 << TAG_BITS);
            assert_eq!(bucket.matches(tag), bucket.matches_one_by_one(tag));
            let place = |slot: Option<&AtomicU64>| slot.map(std::ptr::from_ref);
            let ways = [bucket.free(), bucket.free_one_by_one()];
            assert_eq!(place(ways[0]), place(ways[1]));
        }
    }
}
