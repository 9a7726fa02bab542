//! Group commit: many threads that ask for durability share one sync.
//!
//! ```text
//!   a asks --> leads: end of log is Q, waits for appends under way, syncs, durable = Q, wakes all
//!   b asks --> waits ----------------------------------------------------> its end <= Q: done
//!   c asks -----------> waits -------------------------------------------> its end >  Q: leads the next
//! ```
//! 1. `durable` is moved to Q only after a sync that began when everything before Q was published.
//! 2. The mark on storage follows `durable`; it is durable itself with the next sync.
//! 3. A sync that failed is never repeated: the log is poisoned, and the mark says so, since the cache
//!    may now show what the device does not have.

use parking_lot::{Condvar, Mutex};

use super::Log;
use super::layout::{CONTROL_OFFSET, LogPosition, Mark};
use crate::epoch;
use crate::error::Result;

/// Who waits for which sync.
#[derive(Debug, Default)]
pub(super) struct Commit {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    durable: LogPosition,
    leading: bool,
    syncs: u64,
}

impl Log {
    /// Returns when everything appended before the call survives loss of power. One sync of the device,
    /// shared by all who wait; none if everything already is.
    pub fn sync(&self) -> Result<()> {
        self.sync_unless_durable(Some(self.end().1))
    }

    /// As `sync`, for bytes the log knows nothing of: always asks the device.
    pub fn sync_now(&self) -> Result<()> {
        self.sync_unless_durable(None)
    }

    fn sync_unless_durable(&self, wanted: Option<LogPosition>) -> Result<()> {
        let mut state = self.commit.state.lock();
        loop {
            self.healthy()?;
            if wanted.is_some_and(|wanted| state.durable >= wanted) {
                return Ok(());
            }
            if !state.leading {
                break;
            }
            self.commit.done.wait(&mut state);
        }
        state.leading = true;
        drop(state);
        let result = self.sync_to_end();
        let mut state = self.commit.state.lock();
        state.leading = false;
        if let Ok(durable) = result {
            state.durable = state.durable.max(durable);
            state.syncs += 1;
        }
        self.commit.done.notify_all();
        result.map(|_| ())
    }

    fn sync_to_end(&self) -> Result<LogPosition> {
        let (_, end) = self.end();
        epoch::wait_for_appends();
        let synced = self.storage.sync();
        let sync_failed = synced.is_err();
        if sync_failed {
            self.poison();
        }
        let durable = if sync_failed { self.durable() } else { end };
        self.map.write(
            CONTROL_OFFSET,
            &Mark {
                durable,
                sync_failed,
            }
            .encode(),
        );
        synced.map_err(|error| error.at(self.storage.path()))?;
        Ok(end)
    }

    /// How far the log is known to be durable.
    pub fn durable(&self) -> LogPosition {
        self.commit.state.lock().durable
    }

    /// Sets what recovery found to be durable, and makes a mark of it.
    pub fn set_durable(&self, durable: LogPosition) {
        self.commit.state.lock().durable = durable;
        self.map.write(
            CONTROL_OFFSET,
            &Mark {
                durable,
                sync_failed: false,
            }
            .encode(),
        );
    }

    /// How many syncs the device was asked for by [`Log::sync`].
    pub fn syncs(&self) -> u64 {
        self.commit.state.lock().syncs
    }

    /// The mark as it stands on storage.
    pub fn mark(&self) -> Option<Mark> {
        let mut bytes = [0; super::layout::MARK_SIZE];
        self.map.copy_out(CONTROL_OFFSET, &mut bytes);
        Mark::decode(&bytes)
    }
}
