//! A storage that counts its reads, writes and syncs.
//!
//! Reads, writes and syncs as the caller makes them, with their bytes, also those that go past it to the file below, when
//! they are launched; it does not see what a storage below makes of them, nor stores into a map. Counters may be shared by
//! several storages. It changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Storage;
use super::file::File;
use crate::error::Result;

/// What was asked for; each a relaxed sum.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads.
    pub reads: AtomicU64,
    /// Bytes of them.
    pub bytes_read: AtomicU64,
    /// Writes, durable ones too.
    pub writes: AtomicU64,
    /// Bytes of them.
    pub bytes_written: AtomicU64,
    /// Syncs, and durable writes.
    pub syncs: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counts {
    /// Counts a read of `len` bytes.
    fn note_read(&self, len: usize) {
        add(&self.reads, 1);
        add(&self.bytes_read, len as u64);
    }

    /// Counts a write of `len` bytes.
    fn note_write(&self, len: usize) {
        add(&self.writes, 1);
        add(&self.bytes_written, len as u64);
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Counted {
    below: Arc<dyn Storage>,
    counts: Arc<Counts>,
}

impl Counted {
    /// Counts the calls to `below`.
    pub fn over(below: Arc<dyn Storage>, counts: &Arc<Counts>) -> Arc<dyn Storage> {
        Arc::new(Self {
            below,
            counts: Arc::clone(counts),
        })
    }
}

impl super::over::Over for Counted {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.counts.note_read(buf.len());
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.counts.note_write(bytes.len());
        self.below.write_at(offset, bytes)
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.counts.note_write(bytes.len());
        add(&self.counts.syncs, 1);
        self.below.write_durably(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        add(&self.counts.syncs, 1);
        self.below.sync()
    }

    fn passed_by(&self, is_read: bool, len: usize) {
        if is_read {
            self.counts.note_read(len);
        } else {
            self.counts.note_write(len);
        }
    }

    fn backing_file(&self) -> Option<(&std::fs::File, u64)> {
        self.below.backing_file()
    }

    fn as_file(&self) -> Option<&File> {
        self.below.as_file()
    }
}
