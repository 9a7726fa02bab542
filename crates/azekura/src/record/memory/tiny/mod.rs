//! The leanest hash in memory: an index of eight bytes an entry, and packed records.
//!
//! Promises:
//! 1. A lookup costs two cache misses, one in the index and one in the record; an absent key costs one. Reads take no lock and
//!    store to no shared line; writers of different buckets do not wait for one another.
//! 2. It grows by itself, a few hundred entries at a time.
//! 3. A record of 8 and 8 bytes takes 18 bytes and its share of the index, 10 to 14. The room of removed and overwritten
//!    records is used again: records take at most 2.25 times what live ones need, 6 MiB, and 64 KiB for each length of
//!    record and each of at most 32 threads (or two for each processor) that put such, and what
//!    was freed and may still be read: 4 MiB, an eighth, and 256 KiB for each thread, whatever came and went.
//! 4. `update_many` is isolated. Nothing survives the process.
//!
//! ```text
//!   put     hash --> slab: copy the record in --> bucket: lock, point the entry to it --> slab: free the old one
//!   get     hash --> bucket: tag --> record: compare, lend
//! ```
//!
//! | step of a put | what others see |
//! |---|---|
//! | 1 enter the gate, pinned; copy the record into a free slot | nothing |
//! | 2 lock the bucket, find the entry or claim a slot for one | nothing |
//! | 3 store the entry | the new record |
//! | 4 give the old record's slot back | still readable by who found it before |
//!
//! Invariants: an entry points to a whole record; a place is freed by who took its entry away, under the bucket's lock, once.
//! Lock order: the gate, the slab's walk, the index's, a thread cache of the slab. No file, no clock, no thread of its own.

mod update;

use crate::counter::Counter;
use crate::engine::{Bookmark, Damaged, DecideMany, Edit, Engine, Promise, Reader, Stats, Visit};
use crate::error::Result;
use crate::record::gate::{self, Gate};
use crate::record::scan::{self, Lend};
use crate::record::table::{LIMITS, Table};
use crate::room;
use crate::slab::Record;

/// How a store in memory is made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of memory its records may take, at least 1 MiB; beyond, a put is answered `Full`. The index is not counted.
    /// `None`: what the system gives.
    pub memory_limit: Option<u64>,
}

setters! {
    Options {
        memory_limit: impl Into<Option<u64>>,
    }
}

/// A hash in memory. See the module's text.
pub struct TinyDb {
    table: Table,
    /// Lets updates pass; closed while everything is removed.
    gate: Gate,
    count: Counter,
}

impl std::fmt::Debug for TinyDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TinyDb")
            .field("count", &self.count.sum())
            .finish_non_exhaustive()
    }
}

impl TinyDb {
    /// An empty store. `Io` if the system refuses the addresses.
    pub fn new() -> Result<Self> {
        Self::with(&Options::default())
    }

    /// An empty store. `Invalid` for a limit below 1 MiB.
    pub fn with(options: &Options) -> Result<Self> {
        let table = Table::new(options.memory_limit)?;
        Ok(Self {
            gate: Gate::new(table.domain().clone()),
            table,
            count: Counter::new(0)?,
        })
    }

    /// The value of `key`, copied. `Full` if there is no memory for it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read_with(key, |value| value.map(room::copy).transpose())?
    }

    /// Lends the value of `key`, or its absence, to `visit`: no copy, no lock.
    #[inline]
    pub fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let hash = self.table.hash(key);
        let pin = self.table.pin();
        let found = self.table.find(&pin, key, hash)?;
        Ok(visit(found.map(|record| record.value)))
    }
}

impl Reader for TinyDb {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.read_with(key, visit)
    }

    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.table.in_groups(keys, |pin, index, key, hash| {
            let found = self.table.find(pin, key, hash)?;
            visit(index, found.map(|record| record.value));
            Ok(())
        })
    }

    fn prefetch_keys(&self, keys: &[&[u8]]) {
        self.table.prefetch_keys(keys);
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        _: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let show = |record: &Record<'_>, lent: &mut Lend<'_>| lent(record.key, record.value);
        self.table.scan(from, &show, visit)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        scan::bookmark(self.table.hash(key), key)
    }

    fn count(&self) -> u64 {
        self.count.sum()
    }

    fn stats(&self) -> Stats {
        let (records, index) = (
            self.table.slab.memory_bytes(),
            self.table.index.memory_bytes(),
        );
        Stats {
            count: self.count.sum(),
            live_bytes: self.table.slab.live_bytes(),
            file_bytes: 0,
            memory_bytes: records + index,
            more: vec![
                ("record_memory_bytes", records.to_string()),
                ("index_memory_bytes", index.to_string()),
            ],
        }
    }

    fn promise(&self) -> Promise {
        Promise {
            engine: "tiny",
            evicts: false,
            durability: None,
            update_many_is_crash_atomic: false,
            key_len_max: LIMITS.key,
            value_len_max: LIMITS.value,
        }
    }
}

impl Engine for TinyDb {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.edit(key, decide)
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        self.edit_many(keys, decide)
    }

    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let put = |key: &[u8], hash, value: &[u8]| self.put_hashed(key, hash, value);
        self.table.put_each(records, put)
    }

    fn clear(&self) -> Result<()> {
        gate::outside_updates()?;
        self.remove_all()
    }
}

#[cfg(test)]
mod tests;
