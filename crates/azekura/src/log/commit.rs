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
//!    may now show what the device does not have. So with a durable write: the system may tell it of a
//!    failure that befell other bytes, and tells that once.

use parking_lot::{Condvar, Mutex};

use super::Log;
use super::layout::{CONTROL_OFFSET, DATA_OFFSET, LogPosition, Mark};
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
    failed: bool,
    /// The mark as it was stored last.
    marked: Option<Mark>,
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

    /// Writes `bytes` so that they survive loss of power, and waits for nothing else. A failure poisons.
    pub fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.storage.write_durably(offset, bytes);
        if written.is_err() {
            self.sync_failed();
        }
        written
    }

    fn sync_failed(&self) {
        self.poison();
        let mut state = self.commit.state.lock();
        state.failed = true;
        let durable = state.durable;
        self.mark_as(&mut state, durable);
    }

    /// Stores the mark. Under the lock, so that a sync that still succeeds does not hide that one failed. One that says
    /// nothing new is not stored: the next sync would write its page.
    fn mark_as(&self, state: &mut State, durable: LogPosition) {
        let mark = Mark {
            durable,
            sync_failed: state.failed,
        };
        if state.marked != Some(mark) {
            self.map.write(CONTROL_OFFSET, &mark.encode());
            state.marked = Some(mark);
        }
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
        epoch::wait_for_brief();
        if let Err(error) = self.storage.sync() {
            self.sync_failed();
            return Err(error.at(self.storage.path()));
        }
        self.mark_as(&mut self.commit.state.lock(), end);
        Ok(end)
    }

    /// How far the log is known to be durable.
    pub fn durable(&self) -> LogPosition {
        self.commit.state.lock().durable
    }

    /// Sets what recovery found to be durable, and makes a mark of it.
    pub fn set_durable(&self, durable: LogPosition) {
        let mut state = self.commit.state.lock();
        state.durable = durable;
        self.mark_as(&mut state, durable);
    }

    /// How many syncs the device was asked for by [`Log::sync`]; durable writes are not among them.
    pub fn syncs(&self) -> u64 {
        self.commit.state.lock().syncs
    }

    /// The mark as it stands on storage.
    pub fn mark(&self) -> Option<Mark> {
        // Behind the end of a file that was cut short there is nothing to look at.
        if self.storage.size().ok()? < DATA_OFFSET {
            return None;
        }
        let mut bytes = [0; super::layout::MARK_SIZE];
        self.map.copy_out(CONTROL_OFFSET, &mut bytes);
        Mark::decode(&bytes)
    }
}
