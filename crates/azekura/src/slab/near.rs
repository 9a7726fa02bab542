//! The short way to put and free, in few instructions, inside a short update.
//!
//! A record is copied into the next free slot before it is known whether it will stand there; the slot is taken when that
//! is known. So the copy is made while the bucket is waited for, and little is left to do behind it.

#![expect(unsafe_code, reason = "slots in raw memory")]

use super::Place;
use super::block::Slab;
use super::class::{TABLE, class_of};
use super::hand::Own;
use super::limbo::is_room_for_note;
use super::record::{self, record_bytes};
use crate::epoch::{Pin, PinnedSection};

/// Bytes of records that the short way takes.
const SHORT: usize = 128;

/// Puts and frees in few instructions, inside a short update. See `Slab::near`.
pub struct Near<'s> {
    slab: &'s Slab,
    own: Own<'s>,
    pin: &'s Pin,
}

/// A record that was copied into a slot that is not taken yet.
pub struct Draft {
    place: Place,
    class: usize,
}

impl Draft {
    /// Where the record stands.
    #[inline(always)]
    pub fn place(&self) -> Place {
        self.place
    }
}

impl Slab {
    /// The short way to put and free, for a thread inside a short update that puts and frees one record at most. `None`:
    /// the thread owns no hand, records are to be moved
    /// together or dropped for their memory, or there is no room to note a freed place.
    #[inline(always)]
    pub(crate) fn near<'s>(&'s self, inside: &'s PinnedSection) -> Option<Near<'s>> {
        let mut own = self.hands.own(inside)?;
        let is_due = self.is_thin() || self.is_over() || !is_room_for_note(own.state());
        (!is_due).then_some(Near {
            slab: self,
            own,
            pin: inside.pin(),
        })
    }
}

impl Near<'_> {
    /// Copies a short record into the next free slot of its class, without taking it: [`keep`](Self::keep) does.
    /// `None`: it is not short, or there is no memory.
    #[inline(always)]
    pub fn draft(&mut self, key: &[u8], value: &[u8], expires: Option<u32>) -> Option<Draft> {
        let bytes = record_bytes(key.len(), value.len(), expires.is_some());
        if bytes > SHORT {
            return None;
        }
        let class = class_of(bytes);
        let hand = self.own.state();
        if hand.current[class].bits == 0 {
            self.slab.refill(hand, class).ok()?;
        }
        let place = hand.current[class].next(class);
        // SAFETY: a slot of `bytes` bytes or more that is this thread's to take, and written by nobody else.
        unsafe { record::write(self.slab.at(place), key, value, expires) };
        Some(Draft { place, class })
    }

    /// Notes that a draft was looked at.
    #[inline(always)]
    pub fn see(&self, draft: &Draft) {
        // SAFETY: a record that this thread wrote and nobody else knows of.
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
    #[inline(always)]
    pub fn free(&mut self, place: Place) {
        let freed = self.slab.to_limbo(self.own.state(), place);
        self.slab.live.add(self.pin, -freed);
    }
}
