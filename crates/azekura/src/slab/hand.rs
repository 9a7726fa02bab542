//! Hands: what a thread fills, and what it freed.
//!
//! ```text
//!   thread 0 --> hand 0: the block it fills, class by class; the retire list
//!   thread 1 --> hand 1                                                        a mark, no lock
//!   ...
//!   threads with high numbers --> the last hand                                a lock
//! ```
//!
//! A hand belongs to the thread of its number, and to a later one when that thread is gone. Its owner marks itself while
//! it works there, as if it had room reserved in a log, so it pays two stores and no atomic exchange. Who needs all
//! hands closes them, and waits for those marks.
//!
//! Promises: nobody else looks into a hand meanwhile; no code of a user's runs there, and nothing is waited for that waits
//! for marks. It does not know what a place is.

#![expect(unsafe_code, reason = "what one thread owns at a time, without a lock")]

use std::cell::UnsafeCell;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use super::Place;
use super::class::CLASSES;
use crate::epoch::{CriticalSection, Domain, Pin, PinnedSection, RetireList};
use crate::error::Result;
use crate::room;
use crate::weave::{self, Mutex, MutexGuard};

/// Hands of one thread each, and one for all other threads: so many, or two for each processor.
const HANDS_MIN: usize = if cfg!(azekura_weave) { 3 } else { 32 };

/// What a thread fills, and what it freed.
pub(super) struct State {
    pub(super) current: [Current; CLASSES],
    /// What was freed; its weight is bytes.
    pub(super) retired: RetireList<Place>,
}

/// The block that is filled with records of a class.
#[derive(Clone, Copy, Default)]
pub(super) struct Current {
    /// Free slots of the word before `word` that are this hand's.
    pub(super) bits: u64,
    /// 0: none.
    pub(super) block: u32,
    /// The next word of the bitmap to look at.
    pub(super) word: u32,
}

#[repr(align(128))]
struct Hand(UnsafeCell<State>);

impl Hand {
    fn new(domain: Domain) -> Self {
        Self(UnsafeCell::new(State {
            current: [Current::default(); CLASSES],
            retired: RetireList::new(domain),
        }))
    }
}

// SAFETY: the state is reached through a `Grip` only, and there is one for a hand at a time (see `Hands`).
unsafe impl Sync for Hand {}

/// All hands of a slab.
pub(super) struct Hands {
    domain: Domain,
    all: Box<[Hand]>,
    /// Owners stay out. The marks give it its order: who closes it makes all threads pass a barrier.
    closed: AtomicBool,
    /// Held as long as it is closed.
    closing: Mutex<()>,
    /// Of the last hand.
    shared: Mutex<()>,
}

/// The hand of a thread that is inside a short update, as long as that lasts.
pub(super) struct Own<'h>(&'h Hand);

/// A hand, as long as it is this thread's alone.
pub(super) struct Grip<'h> {
    hand: &'h Hand,
    _until: Until<'h>,
}

enum Until<'h> {
    Unmarked(#[expect(dead_code, reason = "dropped")] CriticalSection),
    Unlocked(#[expect(dead_code, reason = "dropped")] MutexGuard<'h, ()>),
}

impl Hands {
    /// `most`: how many there may be, since each keeps blocks that others could fill. Errors: `Full`.
    pub(super) fn new(domain: Domain, most: u64) -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let hands = if cfg!(azekura_weave) {
            HANDS_MIN
        } else {
            HANDS_MIN.max(2 * processors).min(most as usize).max(2)
        };
        let all = room::collect((0..hands).map(|_| Hand::new(domain.clone())))?;
        Ok(Self {
            domain,
            all: all.into_boxed_slice(),
            closed: AtomicBool::new(false),
            closing: Mutex::default(),
            shared: Mutex::default(),
        })
    }

    /// The hand of this thread. The thread has no other grip here, and no mark of an append.
    #[inline(always)]
    pub(super) fn grip<'h>(&'h self, pin: &Pin) -> Grip<'h> {
        self.domain.check(pin);
        let number = pin.thread_number();
        let last = self.all.len() - 1;
        if number < last {
            loop {
                let mark = pin.critical_section();
                weave::point();
                if !self.closed.load(Ordering::Acquire) {
                    return Grip {
                        hand: &self.all[number],
                        _until: Until::Unmarked(mark),
                    };
                }
                drop(mark);
                drop(self.closing.lock());
            }
        }
        Grip {
            _until: Until::Unlocked(self.shared.lock()),
            hand: &self.all[last],
        }
    }

    /// The hand of a thread inside a short update, if it owns one and it is open. It stays open for the thread until
    /// the update ends.
    #[inline(always)]
    pub(super) fn own<'h>(&'h self, inside: &'h PinnedSection) -> Option<Own<'h>> {
        let number = inside.pin().thread_number();
        weave::point();
        if number >= self.all.len() - 1 || self.closed.load(Ordering::Acquire) {
            return None;
        }
        Some(Own(&self.all[number]))
    }

    /// Shows every hand, one after the other, while nobody is at one. Waits for those who are: some nanoseconds each.
    pub(super) fn each(&self, mut show: impl FnMut(&mut State)) {
        let _closing = self.closing.lock();
        let _shared = self.shared.lock();
        self.closed.store(true, Ordering::Release);
        self.domain.wait_for_critical_sections();
        for hand in &self.all {
            // SAFETY: owners that were here have left, those who come see that it is closed, and the last hand is locked.
            show(unsafe { &mut *hand.0.get() });
        }
        weave::point();
        self.closed.store(false, Ordering::Release);
    }
}

impl Own<'_> {
    /// The hand. The thread looks for no other grip meanwhile.
    #[inline(always)]
    pub(super) fn state(&mut self) -> &mut State {
        // SAFETY: it is open for this thread as long as the mark of its update lives (`Hands::own`), which outlives this;
        // the thread has no grip meanwhile.
        unsafe { &mut *self.0.0.get() }
    }
}

impl Deref for Grip<'_> {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        // SAFETY: as for `deref_mut`.
        unsafe { &*self.hand.0.get() }
    }
}

impl DerefMut for Grip<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: by promise of `grip` the thread has one grip; other threads own other hands, or hold the lock of the last
        // one in turn; `each` waits for the mark, which lives as long as the grip. A later owner of the hand got its number
        // from this thread, behind all it did.
        unsafe { &mut *self.hand.0.get() }
    }
}
