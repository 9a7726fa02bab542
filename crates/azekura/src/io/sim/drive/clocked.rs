//! A storage that takes as long as a drive would, on a clock of its own.
//!
//! The bytes are the inner storage's; each `read_at`, `write_at` and `sync` is also a command to the drive, and the
//! clock of the [`Machine`] advances until it is done. So a store runs with its real code, and what the clock shows
//! before and after an operation is what the operation takes on such a drive, the processor's work left out.
//!
//! Calls of several threads are one after the other to the drive: it is one request at a time. A call that fails in the inner
//! storage takes no time. Bytes that may be mapped are in memory: of a [`Sparse`] storage its mapped part is read for nothing,
//! and what changed there is written with the next sync; what is stored through other storages' maps is never charged.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Command, Counts, Drive, Parameters, Sparse};
use crate::error::{Error, Kind, Result, size};
use crate::io::Storage;

#[derive(Debug)]
struct State {
    drive: Drive,
    now: u64,
}

/// A drive and the time, shared by the storages on it.
#[derive(Debug)]
pub struct Machine(Mutex<State>);

impl Machine {
    /// At time 0, with a drive at rest.
    pub fn new(parameters: Parameters) -> Arc<Self> {
        let drive = Drive::new(parameters);
        Arc::new(Self(Mutex::new(State { drive, now: 0 })))
    }

    /// Nanoseconds since it was made.
    pub fn now_ns(&self) -> u64 {
        self.0.lock().now
    }

    /// Lets time pass without a request: a processor works, or a user thinks. The drive drains its
    /// cache meanwhile.
    pub fn pass(&self, ns: u64) {
        self.0.lock().now += ns;
    }

    /// Commands so far.
    pub fn counts(&self) -> Counts {
        self.0.lock().drive.counts()
    }

    /// Runs a command and waits for its end. Panics as [`Drive::submit`] does.
    pub fn wait(&self, command: Command, offset: u64, len: u64) {
        let mut state = self.0.lock();
        let now = state.now;
        state.now = state.drive.run(now, command, offset, len);
    }

    fn capacity(&self) -> u64 {
        self.0.lock().drive.parameters().capacity
    }
}

/// A storage on a [`Machine`].
#[derive(Debug)]
pub struct Clocked {
    inner: Arc<dyn Storage>,
    /// The inner storage, if it knows what of it is in memory.
    cached: Option<Arc<Sparse>>,
    machine: Arc<Machine>,
    /// Where on the drive the storage begins.
    base: u64,
}

impl Clocked {
    /// `inner`, as if it stood at `base` bytes from the outer edge of the machine's drive, in one piece.
    pub fn new(inner: Arc<dyn Storage>, machine: Arc<Machine>, base: u64) -> Arc<Self> {
        Arc::new(Self {
            inner,
            cached: None,
            machine,
            base,
        })
    }

    /// As [`new`](Self::new), with the mapped part of `inner` in memory.
    pub fn over(inner: Arc<Sparse>, machine: Arc<Machine>, base: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(&inner) as _,
            cached: Some(inner),
            machine,
            base,
        })
    }

    fn on_drive(&self, size_wanted: u64) -> Result<()> {
        let capacity = self.machine.capacity();
        if self
            .base
            .checked_add(size_wanted)
            .is_none_or(|end| end > capacity)
        {
            return Err(Error::new(Kind::Full, "the drive ends before the storage")
                .at(self.path())
                .found(
                    size(size_wanted),
                    format!("at most {}", size(capacity.saturating_sub(self.base))),
                ));
        }
        Ok(())
    }

    fn charge(&self, command: Command, offset: u64, len: u64) -> Result<()> {
        self.on_drive(offset.saturating_add(len))?;
        self.machine.wait(command, self.base + offset, len);
        Ok(())
    }

    fn is_in_memory(&self, offset: u64) -> bool {
        let cached = self.cached.as_ref();
        cached.is_some_and(|cached| cached.is_mapped(offset))
    }

    /// Has the drive write what waits in memory of a range.
    fn write_back(&self, within: Range<u64>) -> Result<()> {
        let cached = self.cached.as_ref();
        let waiting = cached.map_or_else(Vec::new, |cached| cached.take_waiting(within));
        waiting
            .into_iter()
            .try_for_each(|range| self.charge(Command::Write, range.start, range.end - range.start))
    }
}

impl crate::io::over::Over for Clocked {
    fn below(&self) -> &dyn Storage {
        self.inner.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)?;
        if self.is_in_memory(offset) {
            return Ok(());
        }
        self.charge(Command::Read, offset, buf.len() as u64)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)?;
        if self.is_in_memory(offset) {
            return Ok(());
        }
        self.charge(Command::Write, offset, bytes.len() as u64)
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_durably(offset, bytes)?;
        if self.is_in_memory(offset) {
            self.write_back(offset..offset + bytes.len() as u64)?;
        } else {
            self.charge(Command::Write, offset, bytes.len() as u64)?;
        }
        self.charge(Command::Flush, 0, 0)
    }

    fn resize(&self, wanted: u64) -> Result<()> {
        self.on_drive(wanted)?;
        self.inner.resize(wanted)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()?;
        self.write_back(0..u64::MAX)?;
        self.charge(Command::Flush, 0, 0)
    }

    /// Through memory, so that what is read is charged; what is written is, if the target is on a machine.
    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        crate::io::copy_through_memory(self, offset, len, target)
    }
}
