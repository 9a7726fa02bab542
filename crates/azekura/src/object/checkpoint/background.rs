//! The background work of an open store.
//!
//! A step is due when the journal past the last checkpoint has grown long, and at the sync interval if there are changes. Without
//! a background worker, the thread that changes something does what is due.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Kind, Result};
use crate::object::Core;
use crate::worker::maintenance::{Maintain, Maintenance};
use crate::worker::{Next, Worker};

/// Bytes of journal between two checkpoints, at most: what an open after a crash replays.
const INTERVAL_MAX: u64 = 64 << 20;

/// `Io` if the system gives no thread.
pub(crate) fn start(core: &Arc<Core>) -> Result<Worker> {
    let background = Background(Arc::clone(core));
    let task = Maintenance::new(background, core.options.sync_interval);
    Worker::start("object", core.data.path(), &core.notify, task)
}

struct Background(Arc<Core>);

impl Maintain for Background {
    fn owes_sync(&self) -> bool {
        self.0.unsynced.load(Ordering::Relaxed) > 0
    }

    fn sync(&mut self) -> Result<()> {
        self.0.sync_all()
    }

    fn work(&mut self, _woken: bool) -> Result<Next> {
        if self.0.is_checkpoint_due() {
            self.0.make_checkpoint()?;
        }
        Ok(Next::Idle)
    }

    fn is_healthy(&self) -> bool {
        self.0.log.healthy().is_ok()
    }
}

impl Core {
    /// After a change.
    pub(crate) fn work_is_due(&self) -> Result<()> {
        if self.options.background {
            if self.is_checkpoint_due() {
                self.notify.notify();
            }
            return Ok(());
        }
        if self.is_checkpoint_due() {
            match self.make_checkpoint() {
                // The change was made. One that finds no room in the journal tries again.
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
    use crate::object::{CreateOptions, Store};

    #[test]
    fn of_changes_that_are_counted_at_once_one_wakes_the_background_worker_for_the_interval() {
        let options = CreateOptions::new()
            .capacity(8 << 20)
            .sync_interval(Duration::from_secs(1))
            .background(false);
        let directory = SimDisk::new(4).directory();
        let name = Path::new("kept.azo");
        let store = Store::create_in(&directory, name, &options, &mut |_, _| {}).unwrap();
        for _ in 0..2 {
            // Two threads that change something: both count before either continues.
            assert!(!store.core.owes_sync(Durability::Process));
            assert!(!store.core.owes_sync(Durability::Process));
            store.core.work_is_due().unwrap();
            assert!(store.core.notify.take());
            assert!(!store.core.owes_sync(Durability::Process));
            assert!(!store.core.notify.is_notified(), "it is awake already");
            store.sync().unwrap();
        }
    }
}
