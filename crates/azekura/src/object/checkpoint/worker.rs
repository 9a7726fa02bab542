//! The background worker of an open store.
//!
//! It sleeps until it is woken, or until the sync interval has passed: it makes a checkpoint when the journal after the last one has
//! grown long, and syncs at the interval. While nothing changes it does nothing. In a store without a worker, the thread that changes
//! something does this work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{Kind, Result};
use crate::object::Core;
use crate::worker::Worker;

/// Bytes of journal between two checkpoints, at most: what an open after a crash replays.
const INTERVAL_MAX: u64 = 64 << 20;

/// `Io` if the system gives no thread.
pub(crate) fn start(core: &Arc<Core>) -> Result<Worker> {
    let own = Arc::clone(core);
    let path = core.data.path();
    Worker::start("azekura-object", path, &core.wakeup, move || own.work())
}

impl Core {
    fn work(&self) {
        let mut synced = Instant::now();
        loop {
            if let Err(error) = self.work_once(&mut synced) {
                tracing::error!(%error, "background work failed");
                if self.log.healthy().is_err() {
                    return;
                }
            }
            if self.wakeup.wait(self.until_sync(synced)).stop {
                return;
            }
        }
    }

    /// Time until the interval's sync; `None`: there is nothing to sync.
    fn until_sync(&self, synced: Instant) -> Option<Duration> {
        let interval = self.options.sync_interval?;
        let has_changes = self.unsynced.load(Ordering::Relaxed) > 0;
        has_changes.then(|| interval.saturating_sub(synced.elapsed()))
    }

    fn work_once(&self, synced: &mut Instant) -> Result<()> {
        if self.until_sync(*synced).is_some_and(|left| left.is_zero()) {
            *synced = Instant::now();
            self.sync_all()?;
        }
        if self.is_checkpoint_due() {
            self.make_checkpoint()?;
        }
        Ok(())
    }

    /// After a change.
    pub(crate) fn work_is_due(&self) -> Result<()> {
        if self.options.background {
            if self.is_checkpoint_due() {
                self.wakeup.wake();
            }
            return Ok(());
        }
        if self.is_checkpoint_due() {
            match self.make_checkpoint() {
                // The change was made. An operation without journal space retries by itself.
                Err(error) if error.kind() == Kind::Full => {}
                other => return other,
            }
        }
        Ok(())
    }

    fn is_checkpoint_due(&self) -> bool {
        let Some(state) = self.checkpoint.try_lock() else {
            return false;
        };
        let size = state.last().journal_size;
        self.log.appended() - state.committed.appended >= INTERVAL_MAX.min(size / 4)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use crate::engine::Durability;
    use crate::io::sim::SimDisk;
    use crate::object::{Options, Store};

    #[test]
    fn of_changes_that_are_counted_at_once_one_wakes_the_worker_for_the_interval() {
        let options = Options {
            capacity: 8 << 20,
            sync_interval: Some(Duration::from_secs(1)),
            background: false,
            ..Options::default()
        };
        let directory = SimDisk::new(4).directory();
        let name = Path::new("kept.azo");
        let store = Store::create_in(&directory, name, &options, &mut |_, _| {}).unwrap();
        for _ in 0..2 {
            // Two threads that change something: both count before either goes on.
            assert!(!store.core.owes_sync(Durability::Process));
            assert!(!store.core.owes_sync(Durability::Process));
            store.core.work_is_due().unwrap();
            assert!(store.core.wakeup.pending().work);
            store.core.wakeup.wait(Some(Duration::ZERO));
            assert!(!store.core.owes_sync(Durability::Process));
            assert!(!store.core.wakeup.pending().work, "it is awake already");
            store.sync().unwrap();
        }
    }
}
