//! Thread caches: the blocks that a thread fills, and the slots that it freed.
//!
//! ```text
//!   thread 0 --> cache 0: the block it fills, one per class; the retire list
//!   thread 1 --> cache 1                                                        a critical section, no lock
//!   ...
//!   threads with high numbers --> the last cache                                a lock
//! ```
//!
//! A thread cache belongs to the thread of its number, and to the next thread of that number once that one is gone. Its owner
//! uses it inside a critical section of the epochs, which costs two stores and no atomic exchange. A thread that needs all
//! caches closes them, and waits for the critical sections.
//!
//! Promises: no other thread accesses a cache meanwhile; no user code runs there, and nothing in it waits for a thread that
//! itself waits for critical sections. It does not know what a place is.

#![expect(
    unsafe_code,
    reason = "state that one thread owns at a time, without a lock"
)]

use std::cell::UnsafeCell;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use super::Place;
use super::class::CLASSES;
use crate::epoch::{CriticalSection, Domain, Pin, PinnedSection, RetireList};
use crate::error::Result;
use crate::explore::{self, Mutex, MutexGuard};
use crate::room;

/// Thread caches, the shared one included: so many, or two for each processor if that is more.
const CACHES_MIN: usize = if cfg!(azekura_explore) { 3 } else { 32 };

/// The state of a thread cache.
pub(super) struct State {
    pub(super) current: [Current; CLASSES],
    /// Freed places, weighed by their bytes.
    pub(super) retired: RetireList<Place>,
}

/// The block that the thread fills with records of a class.
#[derive(Clone, Copy, Default)]
pub(super) struct Current {
    /// Free slots of the word before `word` that are this cache's.
    pub(super) bits: u64,
    /// 0: none.
    pub(super) block: u32,
    /// The next word of the bitmap to read.
    pub(super) word: u32,
}

#[repr(align(128))]
struct ThreadCache(UnsafeCell<State>);

impl ThreadCache {
    fn new(domain: Domain) -> Self {
        Self(UnsafeCell::new(State {
            current: [Current::default(); CLASSES],
            retired: RetireList::new(domain),
        }))
    }
}

// SAFETY: the state is reached through a `CacheGuard` only, and there is one for a cache at a time (see `ThreadCaches`).
unsafe impl Sync for ThreadCache {}

/// All thread caches of a slab.
pub(super) struct ThreadCaches {
    domain: Domain,
    all: Box<[ThreadCache]>,
    /// Owners stay out. The critical sections order it: the closing thread makes all threads pass a barrier.
    closed: AtomicBool,
    /// Locked while the caches are closed.
    closing: Mutex<()>,
    /// Locks the last cache.
    shared: Mutex<()>,
}

/// The cache of a thread inside a critical section, for as long as that lasts.
pub(super) struct OwnCache<'h>(&'h ThreadCache);

/// Exclusive access of this thread to a cache.
pub(super) struct CacheGuard<'h> {
    cache: &'h ThreadCache,
    _until: Until<'h>,
}

enum Until<'h> {
    Section(#[expect(dead_code, reason = "dropped")] CriticalSection),
    Unlocked(#[expect(dead_code, reason = "dropped")] MutexGuard<'h, ()>),
}

impl ThreadCaches {
    /// At most `most` caches, since each keeps blocks that others could fill. Errors: `Full`.
    pub(super) fn new(domain: Domain, most: u64) -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let caches = if cfg!(azekura_explore) {
            CACHES_MIN
        } else {
            CACHES_MIN.max(2 * processors).min(most as usize).max(2)
        };
        let all = room::collect((0..caches).map(|_| ThreadCache::new(domain.clone())))?;
        Ok(Self {
            domain,
            all: all.into_boxed_slice(),
            closed: AtomicBool::new(false),
            closing: Mutex::default(),
            shared: Mutex::default(),
        })
    }

    /// The cache of this thread. The thread holds no other guard of this slab, and is in no critical section.
    #[inline(always)]
    pub(super) fn lock<'h>(&'h self, pin: &Pin) -> CacheGuard<'h> {
        self.domain.check(pin);
        let number = pin.thread_number();
        let last = self.all.len() - 1;
        if number < last {
            loop {
                let section = pin.critical_section();
                explore::yield_point();
                if !self.closed.load(Ordering::Acquire) {
                    return CacheGuard {
                        cache: &self.all[number],
                        _until: Until::Section(section),
                    };
                }
                drop(section);
                drop(self.closing.lock());
            }
        }
        CacheGuard {
            _until: Until::Unlocked(self.shared.lock()),
            cache: &self.all[last],
        }
    }

    /// The cache of a thread inside a critical section, if it owns one and the caches are open. It stays open for the thread
    /// until the section ends.
    #[inline(always)]
    pub(super) fn own<'h>(&'h self, inside: &'h PinnedSection) -> Option<OwnCache<'h>> {
        let number = inside.pin().thread_number();
        explore::yield_point();
        if number >= self.all.len() - 1 || self.closed.load(Ordering::Acquire) {
            return None;
        }
        Some(OwnCache(&self.all[number]))
    }

    /// Passes every cache to `show` while no owner uses one. Waits for owners inside: some nanoseconds each.
    pub(super) fn each(&self, mut show: impl FnMut(&mut State)) {
        let _closing = self.closing.lock();
        let _shared = self.shared.lock();
        self.closed.store(true, Ordering::Release);
        self.domain.wait_for_critical_sections();
        for cache in &self.all {
            // SAFETY: owners that were inside have left, later ones see that it is closed, and the last cache is locked.
            show(unsafe { &mut *cache.0.get() });
        }
        explore::yield_point();
        self.closed.store(false, Ordering::Release);
    }
}

impl OwnCache<'_> {
    /// The state. The thread takes no guard meanwhile.
    #[inline(always)]
    pub(super) fn state(&mut self) -> &mut State {
        // SAFETY: it is open for this thread as long as its critical section lives (`ThreadCaches::own`), which outlives this;
        // the thread has no guard meanwhile.
        unsafe { &mut *self.0.0.get() }
    }
}

impl Deref for CacheGuard<'_> {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        // SAFETY: as for `deref_mut`.
        unsafe { &*self.cache.0.get() }
    }
}

impl DerefMut for CacheGuard<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: by promise of `lock` the thread has one guard; other threads own other caches, or hold the lock of the last
        // one in turn; `each` waits for the critical section, which lives as long as the guard. A later owner of the
        // cache got its number from this thread, after all it did.
        unsafe { &mut *self.cache.0.get() }
    }
}
