//! The fast path of put and free: few instructions, inside one critical section of an update.
//!
//! The record is copied into the next free slot before the caller knows whether it will use it; [`FastPath::keep`] takes the
//! slot once that is decided. So the copy overlaps the wait for the bucket's lock, and little work is left after it.

#![expect(unsafe_code, reason = "slots in raw memory")]

use super::Place;
use super::block::Slab;
use super::class::{TABLE, class_of};
use super::limbo::is_room_for_note;
use super::record::{self, record_bytes};
use super::thread_cache::OwnCache;
use crate::epoch::{Pin, PinnedSection};

/// Bytes of the longest record that the fast path accepts.
const SHORT: usize = 128;

/// Puts and frees inside a critical section of an update. See `Slab::fast_path`.
pub struct FastPath<'s> {
    slab: &'s Slab,
    own: OwnCache<'s>,
    pin: &'s Pin,
}

/// A record in a slot that is not taken yet.
pub struct Draft {
    place: Place,
    class: usize,
}

impl Draft {
    /// The place of the record.
    #[inline(always)]
    pub fn place(&self) -> Place {
        self.place
    }
}

impl Slab {
    /// The fast path for a thread that puts and frees at most one record inside a critical section. `None`: the thread owns
    /// no cache, an evacuation or eviction is due, or the retire list has no room for a freed place.
    #[inline(always)]
    pub(crate) fn fast_path<'s>(&'s self, inside: &'s PinnedSection) -> Option<FastPath<'s>> {
        let mut own = self.caches.own(inside)?;
        let is_due = self.needs_evacuation() || self.is_over() || !is_room_for_note(own.state());
        (!is_due).then_some(FastPath {
            slab: self,
            own,
            pin: inside.pin(),
        })
    }
}

impl FastPath<'_> {
    /// Copies a short record into the next free slot of its class, without taking it: [`keep`](Self::keep) does.
    /// `None`: it is not short, or there is no memory.
    #[inline(always)]
    pub fn draft(&mut self, key: &[u8], value: &[u8], expires: Option<u32>) -> Option<Draft> {
        let bytes = record_bytes(key.len(), value.len(), expires.is_some());
        if bytes > SHORT {
            return None;
        }
        let class = class_of(bytes);
        let cache = self.own.state();
        if cache.current[class].bits == 0 {
            self.slab.refill(cache, class).ok()?;
        }
        let place = cache.current[class].next(class);
        // SAFETY: a slot of `bytes` bytes or more that is this thread's to take, and written by no other thread.
        unsafe { record::write(self.slab.at(place), key, value, expires) };
        Some(Draft { place, class })
    }

    /// Sets the seen bit of a draft.
    #[inline(always)]
    pub fn see(&self, draft: &Draft) {
        // SAFETY: a record that this thread wrote and no other thread knows of.
        unsafe { record::see(self.slab.at(draft.place)) };
    }

    /// Takes the slot of a draft.
    #[inline(always)]
    #[expect(clippy::needless_pass_by_value, reason = "a draft is kept once")]
    pub fn keep(&mut self, draft: Draft) {
        let current = &mut self.own.state().current[draft.class];
        debug_assert_eq!(current.next(draft.class), draft.place, "one at a time");
        current.bits &= current.bits - 1;
        let size = i64::from(TABLE[draft.class].size);
        self.slab.live.add(self.pin, size);
    }

    /// As [`Slab::free`], once an update.
    ///
    /// # Safety
    /// - as for [`Slab::free`].
    #[inline(always)]
    pub unsafe fn free(&mut self, place: Place) {
        // SAFETY: the caller's place, by the contract.
        let freed = unsafe { self.slab.to_limbo(self.own.state(), place) };
        self.slab.live.add(self.pin, -freed);
    }
}
