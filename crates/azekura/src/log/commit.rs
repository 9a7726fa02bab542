//! Durability of the log: the durable position, and the syncs that advance it (group commit).
//!
//! ```text
//!   sync: end of the log is Q --> wait for appends that began --> sync the device --> durable = Q --> mark
//! ```
//! 1. `durable` is moved to Q only after a sync that began when everything before Q was published.
//! 2. The mark on storage follows `durable`; it is durable itself with the next sync.
//! 3. A sync that failed is never repeated: the log is poisoned, and the mark records that, since the cache
//!    may now show what the device does not have. So with a durable write: the system may report through it a
//!    failure that befell other bytes, and reports that once.
//!
//! Threads that need a sync at the same time share one: `group`.

use super::Log;
use super::group::Group;
use super::layout::{CONTROL_OFFSET, DATA_OFFSET, LogPosition, MARK_SIZE, Mark};
use crate::error::Result;
use crate::explore::Mutex;

/// What is known to be durable, and which threads wait for more.
#[derive(Debug, Default)]
pub(super) struct Commit {
    state: Mutex<State>,
    group: Group,
}

#[derive(Debug, Default)]
struct State {
    durable: LogPosition,
    failed: bool,
    /// The mark as it was stored last.
    marked: Option<Mark>,
}

/// Poisons the log unless the sync succeeded, also where the storage panics: what the device has is unknown.
struct Asked<'l> {
    log: &'l Log,
    succeeded: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.succeeded {
            self.log.sync_failed();
        }
    }
}

impl Log {
    /// Returns when everything appended before the call survives loss of power. One sync of the device,
    /// shared by all callers that wait; none if everything already does.
    pub fn sync(&self) -> Result<()> {
        let wanted = self.end().position();
        let is_covered = || {
            self.unpoisoned()?;
            Ok(self.durable() >= wanted)
        };
        self.commit
            .group
            .share(is_covered, || self.flush(&|| Ok(())))
    }

    /// As `sync`, for bytes outside the log: a sync that began after the call, the caller's own or another's.
    pub fn sync_now(&self) -> Result<()> {
        self.sync_now_by(|| self.flush(&|| Ok(())))
    }

    /// As `sync_now`, where the sync is what `lead` does: it calls [`Log::flush`], and may do more before and after.
    /// All callers of a log have to do the same, since one does it for all.
    pub fn sync_now_by(&self, lead: impl FnOnce() -> Result<()>) -> Result<()> {
        let is_covered = || self.unpoisoned().map(|()| false);
        self.commit.group.share(is_covered, lead)
    }

    /// As `sync_now_by`, for a sync that does less than what other callers ask for: none of them is covered by it.
    pub fn sync_alone(&self, lead: impl FnOnce() -> Result<()>) -> Result<()> {
        self.commit.group.alone(|| self.unpoisoned(), lead)
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

    /// Stores the mark. Under the lock, so that a sync that still succeeds does not hide that one failed. One that is as
    /// before is not stored: the next sync would write its page.
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

    /// Asks the device, for the thread that leads a shared sync. `first` makes durable elsewhere what the log's frames rest
    /// on: the end that the mark gets is taken before it, so that no frame appended while it runs is before the mark.
    pub fn flush(&self, first: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut asked = Asked {
            log: self,
            succeeded: false,
        };
        let end = self.end().position();
        self.domain().wait_for_critical_sections();
        // What a device could not write it may have dropped: a later flush that succeeds states nothing of it.
        first()?;
        let synced = self.storage.sync();
        synced.map_err(|error| error.at(self.storage.path()))?;
        asked.succeeded = true;
        let mut state = self.commit.state.lock();
        state.durable = state.durable.max(end);
        let durable = state.durable;
        self.mark_as(&mut state, durable);
        Ok(())
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

    /// How many syncs the device was asked for and answered; durable writes are not among them.
    pub fn syncs(&self) -> u64 {
        self.commit.group.count()
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
        // Past the end of a file that was cut short there is nothing to look at.
        if self.storage.size().ok()? < DATA_OFFSET {
            return None;
        }
        let mut bytes = [0; MARK_SIZE];
        self.map.copy_out(CONTROL_OFFSET, &mut bytes);
        Some(bytes)
    }
}
