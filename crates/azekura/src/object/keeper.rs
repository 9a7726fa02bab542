//! The keeper: one thread per open store, for what is due now and then.
//!
//! It sleeps until it is rung, or for the sync interval: checkpoints when the journal behind the last one has grown long, and
//! syncs what the interval promises. Where nothing was changed it does nothing. Without it, whoever changes something does
//! what is due.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Core;
use crate::error::{Error, Result};

/// Bytes of journal between two checkpoints, at most: what an open after a crash replays.
const INTERVAL_MAX: u64 = 64 << 20;

/// Wakes the keeper.
#[derive(Debug, Default)]
pub(super) struct Bell {
    state: Mutex<Ring>,
    rang: Condvar,
}

#[derive(Debug, Default)]
struct Ring {
    rung: bool,
    stop: bool,
}

#[derive(Debug)]
pub(super) struct Keeper {
    core: Arc<Core>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// `Io` if the system gives no thread.
    pub(super) fn start(core: &Arc<Core>) -> Result<Self> {
        let own = Arc::clone(core);
        let thread = std::thread::Builder::new()
            .name("azekura-object".into())
            .spawn(move || own.keep())
            .map_err(|error| {
                Error::io("cannot start the keeper's thread", error)
                    .at(core.data.path())
                    .remedy("allow this user more processes, or open without background work")
            })?;
        Ok(Self {
            core: Arc::clone(core),
            thread,
        })
    }

    pub(super) fn stop(self) {
        self.core.bell.state.lock().stop = true;
        self.core.bell.rang.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the keeper panicked");
        }
    }
}

impl Core {
    fn keep(&self) {
        let mut synced = Instant::now();
        loop {
            if let Err(error) = self.keep_once(&mut synced) {
                tracing::error!(%error, "background work failed");
                if self.log.healthy().is_err() {
                    return;
                }
            }
            let mut state = self.bell.state.lock();
            if !state.stop && !state.rung {
                match self.until_sync(synced) {
                    None => self.bell.rang.wait(&mut state),
                    Some(left) => _ = self.bell.rang.wait_for(&mut state, left),
                }
            }
            if state.stop {
                return;
            }
            state.rung = false;
        }
    }

    /// How long until the interval's sync; `None`: there is nothing to sync.
    fn until_sync(&self, synced: Instant) -> Option<Duration> {
        let interval = self.options.sync_interval?;
        let has_changes = self.unsynced.load(Ordering::Relaxed) > 0;
        has_changes.then(|| interval.saturating_sub(synced.elapsed()))
    }

    fn keep_once(&self, synced: &mut Instant) -> Result<()> {
        if self.until_sync(*synced).is_some_and(|left| left.is_zero()) {
            *synced = Instant::now();
            self.sync()?;
        }
        if self.is_checkpoint_due() {
            self.make_checkpoint()?;
        }
        Ok(())
    }

    /// After a change.
    pub(super) fn work_is_due(&self) -> Result<()> {
        if self.options.background {
            let first =
                self.options.sync_interval.is_some() && self.unsynced.load(Ordering::Relaxed) == 1;
            if first || self.is_checkpoint_due() {
                let mut state = self.bell.state.lock();
                if !state.rung {
                    state.rung = true;
                    self.bell.rang.notify_one();
                }
            }
            return Ok(());
        }
        if self.is_checkpoint_due() {
            self.make_checkpoint()?;
        }
        Ok(())
    }

    fn is_checkpoint_due(&self) -> bool {
        let Some(state) = self.checkpoint.try_lock() else {
            return false;
        };
        let size = state
            .superblock
            .as_ref()
            .map_or(0, |(_, last)| last.journal_size);
        self.log.appended() - state.appended >= INTERVAL_MAX.min(size / 4)
    }
}
