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

use super::Log;
use super::layout::{CONTROL_OFFSET, DATA_OFFSET, LogPosition, MARK_SIZE, Mark};
use crate::error::Result;
use crate::weave::{Condvar, Mutex};

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

/// Leads a sync until dropped, also by a panic of the storage: who waits must not wait for ever.
struct Leader<'l> {
    log: &'l Log,
    /// Whether the sync answered.
    has_answer: bool,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.has_answer {
            // What the device has is unknown.
            self.log.sync_failed();
        }
        self.log.commit.state.lock().leading = false;
        self.log.commit.done.notify_all();
    }
}

impl Log {
    /// Returns when everything appended before the call survives loss of power. One sync of the device,
    /// shared by all who wait; none if everything already is.
    pub fn sync(&self) -> Result<()> {
        self.sync_unless_durable(Some(self.end().position()), &|| Ok(()))
    }

    /// As `sync`, for bytes the log knows nothing of: always asks the device.
    pub fn sync_now(&self) -> Result<()> {
        self.sync_now_after(&|| Ok(()))
    }

    /// As `sync_now`, where the log's frames are true only of what `first` makes durable elsewhere: the end that the mark
    /// gets is taken before `first`, so that no frame appended while it runs is before the mark.
    pub fn sync_now_after(&self, first: &dyn Fn() -> Result<()>) -> Result<()> {
        self.sync_unless_durable(None, first)
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

    fn sync_unless_durable(
        &self,
        wanted: Option<LogPosition>,
        first: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let mut state = self.commit.state.lock();
        loop {
            self.unpoisoned()?;
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
        let mut leader = Leader {
            log: self,
            has_answer: false,
        };
        let durable = self.sync_to_end(first);
        leader.has_answer = true;
        let durable = durable?;
        let mut state = self.commit.state.lock();
        state.durable = state.durable.max(durable);
        state.syncs += 1;
        drop(state);
        drop(leader);
        Ok(())
    }

    fn sync_to_end(&self, first: &dyn Fn() -> Result<()>) -> Result<LogPosition> {
        let end = self.end().position();
        self.domain().wait_for_critical_sections();
        // What a device could not write it may have dropped: a later flush that succeeds says nothing of it.
        first().inspect_err(|_| self.sync_failed())?;
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
        Mark::decode(&self.mark_bytes()?)
    }

    /// Whether the mark verifies as it stands there.
    pub fn is_mark_whole(&self) -> bool {
        self.mark_bytes()
            .is_some_and(|bytes| Mark::verify(&bytes).is_some())
    }

    fn mark_bytes(&self) -> Option<[u8; MARK_SIZE]> {
        // Behind the end of a file that was cut short there is nothing to look at.
        if self.storage.size().ok()? < DATA_OFFSET {
            return None;
        }
        let mut bytes = [0; MARK_SIZE];
        self.map.copy_out(CONTROL_OFFSET, &mut bytes);
        Some(bytes)
    }
}
