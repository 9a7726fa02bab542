//! Group commit: threads that need durability at the same time share one sync.
//!
//! ```text
//!   a asks --> leads sync 1 ----------------> done
//!   b asks ------> waits for sync 2 --------> leads it --> done
//!   c asks ---------> waits for sync 2 -------------------> done
//! ```
//! A sync that began before a call covers nothing that the caller wrote, unless the caller knows that it does; the next one
//! covers it. What a sync is, and what follows when it succeeds, is the caller's.

use crate::error::Result;
use crate::explore::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
struct State {
    begun: u64,
    ended: u64,
    leading: bool,
    succeeded: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Group {
    state: Mutex<State>,
    ended: Condvar,
}

/// Ends when it is dropped, also by a panic of the sync: then the next caller leads.
struct Leading<'g>(&'g Group);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.state.lock().leading = false;
        self.0.ended.notify_all();
    }
}

impl Group {
    /// Returns when `is_covered`, or when a `sync` that began after the call has succeeded: the caller's own, or another's. An
    /// error of `is_covered`, or of the caller's own sync, is the result; after another's failure a waiting caller leads the
    /// next.
    pub(super) fn share(
        &self,
        is_covered: impl Fn() -> Result<bool>,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let state = self.state.lock();
        let wanted = state.begun + 1;
        let Some(mut state) =
            self.free(state, |state| Ok(state.ended >= wanted || is_covered()?))?
        else {
            return Ok(());
        };
        state.begun += 1;
        let own = state.begun;
        self.lead(state, Some(own), sync)
    }

    /// As `share`, for a `sync` that is not what others ask for: it covers no other call, and none covers it.
    pub(super) fn alone(
        &self,
        check: impl Fn() -> Result<()>,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match self.free(self.state.lock(), |_| check().map(|()| false))? {
            Some(state) => self.lead(state, None, sync),
            None => Ok(()),
        }
    }

    /// Waits until no thread leads; `None` once `is_done`.
    fn free<'g>(
        &'g self,
        mut state: MutexGuard<'g, State>,
        is_done: impl Fn(&State) -> Result<bool>,
    ) -> Result<Option<MutexGuard<'g, State>>> {
        loop {
            if is_done(&state)? {
                return Ok(None);
            }
            if !state.leading {
                return Ok(Some(state));
            }
            self.ended.wait(&mut state);
        }
    }

    /// Leads the sync of this number, if it covers other callers.
    fn lead(
        &self,
        mut state: MutexGuard<'_, State>,
        number: Option<u64>,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        state.leading = true;
        drop(state);
        let leading = Leading(self);
        let result = sync();
        if result.is_ok() {
            let mut state = self.state.lock();
            state.succeeded += 1;
            state.ended = number.unwrap_or(state.ended);
        }
        drop(leading);
        result
    }

    /// How many syncs succeeded.
    pub(super) fn count(&self) -> u64 {
        self.state.lock().succeeded
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::error::{Error, Kind};

    #[test]
    fn many_callers_share_few_syncs_and_none_returns_before_its_own() {
        let group = Group::default();
        let written = AtomicU64::new(0);
        let durable = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let own = written.fetch_add(1, Ordering::SeqCst) + 1;
                        let sync = || {
                            let seen = written.load(Ordering::SeqCst);
                            std::thread::sleep(std::time::Duration::from_micros(200));
                            durable.fetch_max(seen, Ordering::SeqCst);
                            Ok(())
                        };
                        group.share(|| Ok(false), sync).ok();
                        assert!(durable.load(Ordering::SeqCst) >= own);
                    }
                });
            }
        });
        assert!(group.count() < 500, "{} syncs for 800 calls", group.count());
    }

    #[test]
    fn the_leader_gets_the_failure() {
        let group = Group::default();
        let refused = group.share(
            || Ok(false),
            || Err(Error::new(Kind::Io, "the device is gone")),
        );
        assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::Io));
        assert_eq!(group.count(), 0);
        group.share(|| Ok(false), || Ok(())).ok();
    }

    /// Two callers wait while a third syncs; the first of them leads, and fails.
    #[test]
    fn a_caller_that_waits_does_not_succeed_with_a_sync_that_failed() {
        let group = Group::default();
        let (called, calls) = std::sync::mpsc::channel();
        let led = AtomicU64::new(0);
        let share = || {
            let is_covered = || {
                called.send(()).ok();
                Ok(false)
            };
            group.share(is_covered, || match led.fetch_add(1, Ordering::SeqCst) {
                0 => Err(Error::new(Kind::Io, "the device is gone")),
                _ => Ok(()),
            })
        };
        let shared = std::thread::scope(|scope| {
            let (begun, begins) = std::sync::mpsc::channel();
            let (group, calls) = (&group, calls);
            scope.spawn(move || {
                let sync = || {
                    begun.send(()).ok();
                    // They hold the lock when they ask whether they are covered, until they wait.
                    calls.iter().take(2).for_each(drop);
                    Ok(())
                };
                group.share(|| Ok(false), sync).ok();
            });
            begins.recv().ok();
            let waiting = [(); 2].map(|()| scope.spawn(share));
            waiting.map(|thread| thread.join().is_ok_and(|shared| shared.is_ok()))
        });
        assert_eq!(shared.iter().filter(|is_ok| **is_ok).count(), 1);
        assert_eq!((led.into_inner(), group.count()), (2, 2));
    }

    #[test]
    fn a_sync_that_panics_leaves_the_lead_to_the_next() {
        let group = Group::default();
        let panics = || group.share(|| Ok(false), || panic!("the device's driver panics"));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(panicked.is_err());
        // Without a deadline the test would hang.
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let shared = group.share(|| Ok(false), || Ok(()));
            sender.send(shared.is_ok() && group.count() == 1).ok();
        });
        let within = std::time::Duration::from_secs(20);
        assert!(ended.recv_timeout(within).unwrap_or(false));
    }
}
