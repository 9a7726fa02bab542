//! Group commit: threads that wait for durability at the same time share one sync.
//!
//! ```text
//!   a calls --> leads sync 1 ----------------> done
//!   b calls ------> waits for sync 2 --------> leads it --> done
//!   c calls ---------> waits for sync 2 -------------------> done
//! ```
//! A sync that began before a call does not cover what the caller wrote; the next one does. The caller supplies the sync and what
//! follows its success.

use crate::error::Result;
use crate::weave::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    begun: u64,
    ended: u64,
    leading: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    state: Mutex<State>,
    ended: Condvar,
}

/// The lead ends when it is dropped, also by a panic of the sync: then the next caller leads.
struct Leading<'c>(&'c GroupCommit);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.state.lock().leading = false;
        self.0.ended.notify_all();
    }
}

impl GroupCommit {
    /// Returns when a `sync` that began after the call has succeeded: the caller's, or another thread's. If the caller's fails,
    /// its error is the result, and a waiting thread leads the next.
    pub(crate) fn share(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        loop {
            if state.ended >= wanted {
                return Ok(());
            }
            if !state.leading {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.leading = true;
        state.begun += 1;
        let own = state.begun;
        drop(state);
        let leading = Leading(self);
        let result = sync();
        if result.is_ok() {
            self.state.lock().ended = own;
        }
        drop(leading);
        result
    }

    /// How many syncs succeeded.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::error::{Error, Kind};

    #[test]
    fn many_who_ask_share_few_syncs_and_none_returns_before_its_own() {
        let commit = GroupCommit::default();
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
                        commit.share(sync).ok();
                        assert!(durable.load(Ordering::SeqCst) >= own);
                    }
                });
            }
        });
        assert!(
            commit.count() < 500,
            "{} syncs for 800 calls",
            commit.count()
        );
    }

    #[test]
    fn who_leads_is_told_of_the_failure() {
        let commit = GroupCommit::default();
        let refused = commit.share(|| Err(Error::new(Kind::Io, "the device is gone")));
        assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::Io));
        assert_eq!(commit.count(), 0);
        commit.share(|| Ok(())).ok();
    }

    #[test]
    fn a_sync_that_panics_leaves_the_lead_to_the_next() {
        let commit = GroupCommit::default();
        let panics = || commit.share(|| panic!("the device's driver panics"));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(panicked.is_err());
        // Without a deadline the test would hang.
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let shared = commit.share(|| Ok(()));
            sender.send(shared.is_ok() && commit.count() == 2).ok();
        });
        let within = std::time::Duration::from_secs(20);
        assert!(ended.recv_timeout(within).unwrap_or(false));
    }
}
