//! A storage that takes as long as a drive would, on a clock of its own.
//!
//! The bytes are the inner storage's; each `read_at`, `write_at` and `sync` is also a command to the drive, and the
//! clock of the [`Machine`] goes on until it is done. So a store runs with its real code, and what the clock says
//! before and after an operation is what the operation takes on such a drive, the processor's work left out.
//!
//! Calls of several threads are one after the other to the drive: it is one request at a time. What is stored
//! through a map is free of charge, as the system would write it at a moment that nobody knows. A call that fails
//! in the inner storage takes no time.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Command, Counts, Drive, Parameters};
use crate::error::{Error, Kind, Result, size};
use crate::io::{Map, Storage};

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

    /// Lets time pass in which nobody asks for anything: a processor works, or a user thinks. The drive drains its
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
    machine: Arc<Machine>,
    /// Where on the drive the storage begins.
    base: u64,
}

impl Clocked {
    /// `inner`, as if it stood at `base` bytes from the outer edge of the machine's drive, in one piece.
    pub fn new(inner: Arc<dyn Storage>, machine: Arc<Machine>, base: u64) -> Arc<Self> {
        Arc::new(Self {
            inner,
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
}

impl Storage for Clocked {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)?;
        self.charge(Command::Read, offset, buf.len() as u64)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)?;
        self.charge(Command::Write, offset, bytes.len() as u64)
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_durably(offset, bytes)?;
        self.charge(Command::Write, offset, bytes.len() as u64)?;
        self.charge(Command::Flush, 0, 0)
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn resize(&self, wanted: u64) -> Result<()> {
        self.on_drive(wanted)?;
        self.inner.resize(wanted)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()?;
        self.charge(Command::Flush, 0, 0)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }

    fn allocated(&self) -> Result<u64> {
        self.inner.allocated()
    }

    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        self.inner.map(capacity)
    }

    /// Through memory, so that what is read is charged; what is written is, if the target is on a machine.
    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        crate::io::copy_through_memory(self, offset, len, target)
    }

    fn drop_cache(&self) -> Result<()> {
        self.inner.drop_cache()
    }

    fn boot_id(&self) -> [u8; 16] {
        self.inner.boot_id()
    }

    fn entropy(&self) -> u64 {
        self.inner.entropy()
    }

    fn has_writer(&self) -> bool {
        self.inner.has_writer()
    }

    fn take_name(&self) -> Result<()> {
        self.inner.take_name()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}
