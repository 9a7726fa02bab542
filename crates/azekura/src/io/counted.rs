//! A storage that counts what it is asked for.
//!
//! Reads, writes and syncs as the caller makes them, with their bytes; what a storage below makes of them, stores into a
//! map, and requests that go to the file behind it, are not seen. Counters may be shared by several storages. It changes nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::file::File;
use super::{Map, Storage};
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

/// See the module's text.
#[derive(Debug)]
pub struct Counted {
    below: Arc<dyn Storage>,
    counts: Arc<Counts>,
}

impl Counted {
    /// Counts what `below` is asked for.
    pub fn over(below: Arc<dyn Storage>, counts: &Arc<Counts>) -> Arc<dyn Storage> {
        Arc::new(Self {
            below,
            counts: Arc::clone(counts),
        })
    }

    fn wrote(&self, bytes: &[u8]) {
        add(&self.counts.writes, 1);
        add(&self.counts.bytes_written, bytes.len() as u64);
    }
}

impl Storage for Counted {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        add(&self.counts.reads, 1);
        add(&self.counts.bytes_read, buf.len() as u64);
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.wrote(bytes);
        self.below.write_at(offset, bytes)
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.wrote(bytes);
        add(&self.counts.syncs, 1);
        self.below.write_durably(offset, bytes)
    }

    fn size(&self) -> Result<u64> {
        self.below.size()
    }

    fn resize(&self, size: u64) -> Result<()> {
        self.below.resize(size)
    }

    fn sync(&self) -> Result<()> {
        add(&self.counts.syncs, 1);
        self.below.sync()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.below.discard(offset, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.below.allocate(offset, len)
    }

    fn allocated(&self) -> Result<u64> {
        self.below.allocated()
    }

    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        self.below.map(capacity)
    }

    fn copy_range_to(&self, offset: u64, len: u64, target: &dyn Storage) -> Result<()> {
        self.below.copy_range_to(offset, len, target)
    }

    fn drop_cache(&self) -> Result<()> {
        self.below.drop_cache()
    }

    fn boot_id(&self) -> [u8; 16] {
        self.below.boot_id()
    }

    fn entropy(&self) -> u64 {
        self.below.entropy()
    }

    fn has_writer(&self) -> bool {
        self.below.has_writer()
    }

    fn take_name(&self) -> Result<()> {
        self.below.take_name()
    }

    fn path(&self) -> &Path {
        self.below.path()
    }

    fn alignment(&self) -> u64 {
        self.below.alignment()
    }

    fn behind(&self) -> Option<(&std::fs::File, u64)> {
        self.below.behind()
    }

    fn as_file(&self) -> Option<&File> {
        self.below.as_file()
    }
}
