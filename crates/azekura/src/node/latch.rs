//! A lock whose holder states when it changes what it guards, so that readers need not take it.
//!
//! Readers note the version, read, and ask whether it still counts. Only while the guarded is being changed must they
//! wait: a moment by looking again, then parked like one who wants the lock, so no thread spins without bound. Who holds
//! the lock and changes nothing disturbs no reader.
//!
//! Orderings: the holder's stores lie between a release fence after the odd version and a release store of the even
//! one; the reader's loads between an acquire load of the version and an acquire fence before the second. So who reads
//! any store of a change sees a version that is not the first. It does not know what it guards.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use crate::explore::{self, Mutex, MutexGuard};

/// Looks at a changing version before the reader parks.
const SPINS: u32 = 64;
const CHANGING: u64 = 1;
const DEAD: u64 = 2;
const STEP: u64 = 4;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Latch {
    /// Bit 0: a change is under way. Bit 1: what it guards is out of use. Above: changes. Stored by the lock's holder.
    version: AtomicU64,
    lock: Mutex<()>,
}

/// The lock, held. What is changed must be between [`change`](Locked::change) and its drop.
#[derive(Debug)]
pub struct Locked<'l> {
    latch: &'l Latch,
    _lock: MutexGuard<'l, ()>,
}

impl Latch {
    /// The version that reading begins with.
    #[inline(always)]
    pub fn begin(&self) -> u64 {
        explore::yield_point();
        let version = self.version.load(Ordering::Acquire);
        if version & CHANGING == 0 {
            return version;
        }
        self.begin_later()
    }

    /// As `begin`, but does not wait; `None`: a change is under way.
    pub fn try_begin(&self) -> Option<u64> {
        explore::yield_point();
        let version = self.version.load(Ordering::Acquire);
        (version & CHANGING == 0).then_some(version)
    }

    /// As `try_begin`; `None` also if what it guards is out of use.
    #[inline(always)]
    pub fn try_begin_alive(&self) -> Option<u64> {
        self.try_begin().filter(|version| version & DEAD == 0)
    }

    /// As `begin`, but waits no longer than that; `None`: a change is still under way.
    #[cold]
    pub fn begin_within(&self, longest: Duration) -> Option<u64> {
        for _ in 0..SPINS {
            if let Some(version) = self.try_begin() {
                return Some(version);
            }
            if !explore::wait() {
                spin_loop();
            }
        }
        drop(self.lock.try_lock_for(longest));
        self.try_begin()
    }

    /// The version as it is, also during a change: if it is the same later, what the latch guards was not made another thing
    /// meanwhile.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    #[cold]
    fn begin_later(&self) -> u64 {
        loop {
            for _ in 0..SPINS {
                let version = self.version.load(Ordering::Acquire);
                if version & CHANGING == 0 {
                    return version;
                }
                if !explore::wait() {
                    spin_loop();
                }
            }
            drop(self.lock.lock());
        }
    }

    /// Whether what was read since `version` was begun with counts: nothing was changed.
    #[inline(always)]
    pub fn is_still(&self, version: u64) -> bool {
        explore::yield_point();
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Waits for the lock, parked.
    #[inline(always)]
    pub fn lock(&self) -> Locked<'_> {
        Locked {
            _lock: self.lock.lock(),
            latch: self,
        }
    }

    /// Waits for the lock, but not for longer.
    pub fn lock_for(&self, longest: Duration) -> Option<Locked<'_>> {
        Some(Locked {
            _lock: self.lock.try_lock_for(longest)?,
            latch: self,
        })
    }

    /// The lock, if no thread has it.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        Some(Locked {
            _lock: self.lock.try_lock()?,
            latch: self,
        })
    }
}

impl Locked<'_> {
    /// Begins a change, if none is under way: from now on readers wait.
    #[inline(always)]
    pub fn change(&self) {
        let version = self.latch.version.load(Ordering::Relaxed);
        self.latch
            .version
            .store(version | CHANGING, Ordering::Relaxed);
        fence(Ordering::Release);
        explore::yield_point();
    }

    /// Continues with versions from this multiple of 4 on, if those that it has are before: of a latch that may have been made anew in the
    /// place of one whose versions are remembered. Within a change.
    pub fn raise(&self, least: u64) {
        let version = self.latch.version.load(Ordering::Relaxed);
        if version < least {
            let raised = least | version & (CHANGING | DEAD);
            self.latch.version.store(raised, Ordering::Relaxed);
        }
    }

    /// Takes what it guards out of use, or into use again. Within a change.
    pub fn set_dead(&self, is_dead: bool) {
        let version = self.latch.version.load(Ordering::Relaxed) & !DEAD;
        let dead = if is_dead { DEAD } else { 0 };
        self.latch.version.store(version | dead, Ordering::Relaxed);
    }

    /// Whether what it guards is out of use.
    #[inline(always)]
    pub fn is_dead(&self) -> bool {
        self.latch.version.load(Ordering::Relaxed) & DEAD != 0
    }
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let version = self.latch.version.load(Ordering::Relaxed);
        if version & CHANGING != 0 {
            explore::yield_point();
            let next = (version & !CHANGING).wrapping_add(STEP);
            self.latch.version.store(next, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_counts_until_something_is_changed() {
        let latch = Latch::default();
        let version = latch.begin();
        let locked = latch.lock();
        assert!(latch.is_still(version), "a lock alone changes nothing");
        drop(locked);
        assert!(latch.is_still(version));
        let locked = latch.lock();
        locked.change();
        assert!(!latch.is_still(version));
        drop(locked);
        assert!(!latch.is_still(version), "also when the change is over");
        assert!(latch.is_still(latch.begin()));
    }

    #[test]
    fn who_wants_to_read_waits_for_a_change_to_end() {
        let latch = Latch::default();
        let locked = latch.lock();
        locked.change();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| latch.begin());
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            assert!(!reader.is_finished());
            drop(locked);
            assert!(latch.is_still(reader.join().unwrap()));
        });
    }

    #[test]
    fn pairs_of_words_are_read_whole_concurrently_with_a_writer() {
        let latch = Latch::default();
        let pair = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=20_000 {
                    let locked = latch.lock();
                    locked.change();
                    pair[0].store(number, Ordering::Relaxed);
                    pair[1].store(number, Ordering::Relaxed);
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 20_000 {
                        let version = latch.begin();
                        let read = [0, 1].map(|at: usize| pair[at].load(Ordering::Relaxed));
                        if latch.is_still(version) {
                            assert_eq!(read[0], read[1]);
                            assert!(read[0] >= last);
                            last = read[0];
                        }
                    }
                });
            }
        });
    }
}
