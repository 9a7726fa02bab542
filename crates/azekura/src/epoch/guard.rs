//! What a thread holds while it is inside: a pin, a critical section, both at once, or an update.
//!
//! Each guard is a store to the thread's own line when it begins and one when it ends, and stays in its thread. Nothing is
//! counted in memory that threads share.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

use super::participant::{IS_UPDATING, Presence, UPDATE_STEP, local};
use super::{Domain, EPOCH};
use crate::explore;

/// While it lives, no item that this thread can find in its domain is reclaimed.
pub struct Pin {
    presence: &'static Presence,
    /// Stays in its thread.
    _thread: PhantomData<*const ()>,
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pin({})", self.presence.domain)
    }
}

impl Presence {
    /// Publishes the epoch in which its thread pins itself. A `light_barrier` comes before any address is followed.
    #[inline(always)]
    fn publish_epoch(&self) {
        explore::yield_point();
        let epoch = EPOCH.load(Ordering::Acquire);
        explore::yield_point();
        // Release: a thread that sees this pin and not the end of the one before knows that all reads under that are over.
        self.pinned.store(epoch, Ordering::Release);
    }
}

impl Domain {
    /// Pins this thread in the domain. Pins nest.
    #[inline(always)]
    pub fn pin(&self) -> Pin {
        let presence = local().presence(self.number);
        let depth = presence.depth.load(Ordering::Relaxed);
        presence.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            presence.publish_epoch();
        }
        presence.light_barrier();
        Pin {
            presence,
            _thread: PhantomData,
        }
    }

    /// As [`pin`](Self::pin) and [`Pin::critical_section`] at once, in fewer instructions.
    #[inline(always)]
    pub(crate) fn pinned_section(&self) -> PinnedSection {
        let presence = local().presence(self.number);
        let section = CriticalSection::begin(presence);
        let depth = presence.depth.load(Ordering::Relaxed);
        let epoch = presence.pinned.load(Ordering::Relaxed);
        presence.depth.store(depth + 1, Ordering::Relaxed);
        if epoch == 0 {
            presence.publish_epoch();
        }
        presence.light_barrier();
        PinnedSection {
            pin: ManuallyDrop::new(Pin {
                presence,
                _thread: PhantomData,
            }),
            section,
            outer: (depth, epoch),
        }
    }

    /// Marks this thread as inside an update of this domain's store, or `None` if it is inside one already (an update from
    /// the closure of another store's update).
    #[inline(always)]
    pub fn update(&self) -> Option<UpdateGuard> {
        let participant = local();
        let word = participant.update();
        let before = word.load(Ordering::Relaxed);
        let guard = (before & IS_UPDATING == 0).then(|| {
            explore::yield_point();
            // Release: a thread that sees this update and not the end of the one before knows what was done in that one.
            word.store(before | self.update_bits(), Ordering::Release);
            UpdateGuard {
                word,
                after: before + UPDATE_STEP,
                _thread: PhantomData,
            }
        });
        participant.presence(self.number).light_barrier();
        guard
    }

    /// The lower bits of a participant's word of updates while its thread is inside one of this domain.
    pub(super) fn update_bits(&self) -> u64 {
        u64::from(self.number) << 1 | IS_UPDATING
    }

    /// Checks, where assertions are compiled in, that a pin is one of this domain: another one protects nothing here.
    #[inline(always)]
    pub(crate) fn check(&self, pin: &Pin) {
        debug_assert_eq!(pin.presence.domain, self.number, "a pin of another store");
    }
}

impl Pin {
    /// A small number that no other living thread has: a thread may own what it numbers.
    #[inline(always)]
    pub fn thread_number(&self) -> usize {
        self.presence.thread as usize
    }

    /// Begins a critical section, which lasts until what it returns is dropped: room is reserved in a log, or what the thread
    /// owns by its number is being changed. No code of a user's runs in it, and it waits for nothing.
    #[inline(always)]
    pub fn critical_section(&self) -> CriticalSection {
        let section = CriticalSection::begin(self.presence);
        self.presence.light_barrier();
        section
    }
}

impl Drop for Pin {
    #[inline(always)]
    fn drop(&mut self) {
        let depth = self.presence.depth.load(Ordering::Relaxed) - 1;
        self.presence.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            explore::yield_point();
            self.presence.pinned.store(0, Ordering::Release);
        }
    }
}

/// A critical section of its thread, until dropped. Sections nest, and end in the reverse order of their beginnings.
#[derive(Debug)]
pub struct CriticalSection {
    word: &'static AtomicU64,
    /// What stands there afterwards.
    after: u64,
    _thread: PhantomData<*const ()>,
}

impl CriticalSection {
    #[inline(always)]
    fn begin(presence: &'static Presence) -> Self {
        let word = &presence.section;
        let value = word.load(Ordering::Relaxed);
        explore::yield_point();
        // Release: a thread that sees this section and not the end of the one before knows what was done in that one.
        word.store(value | 1, Ordering::Release);
        Self {
            word,
            after: value + 2 * u64::from(value.is_multiple_of(2)),
            _thread: PhantomData,
        }
    }
}

impl Drop for CriticalSection {
    #[inline(always)]
    fn drop(&mut self) {
        explore::yield_point();
        self.word.store(self.after, Ordering::Release);
    }
}

/// Its thread is inside an update, until dropped.
#[derive(Debug)]
pub struct UpdateGuard {
    word: &'static AtomicU64,
    /// What stands there afterwards.
    after: u64,
    _thread: PhantomData<*const ()>,
}

impl Drop for UpdateGuard {
    #[inline(always)]
    fn drop(&mut self) {
        explore::yield_point();
        self.word.store(self.after, Ordering::Release);
    }
}

/// A thread inside a short update: pinned, and in a critical section from beginning to end. It counts as a pin: those that
/// begin meanwhile end before it. What it found is put back and not counted down, which costs a short update a fifth of
/// its time.
#[derive(Debug)]
pub(crate) struct PinnedSection {
    /// Not dropped: what it would undo is undone here.
    pin: ManuallyDrop<Pin>,
    section: CriticalSection,
    /// How many pins this thread held before, and what they stored, or 0.
    outer: (u32, u64),
}

impl PinnedSection {
    /// Its pin.
    #[inline(always)]
    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    /// Its critical section.
    #[inline(always)]
    pub(crate) fn section(&self) -> &CriticalSection {
        &self.section
    }
}

impl Drop for PinnedSection {
    #[inline(always)]
    fn drop(&mut self) {
        let (depth, epoch) = self.outer;
        let presence = self.pin.presence;
        debug_assert_eq!(
            presence.depth.load(Ordering::Relaxed),
            depth + 1,
            "a pin that began in a short update ends before it"
        );
        presence.depth.store(depth, Ordering::Relaxed);
        explore::yield_point();
        presence.pinned.store(epoch, Ordering::Release);
    }
}
