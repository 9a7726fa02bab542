//! `RocksDB` in three ways: its defaults, set up for large values in its tables, and with values in files of
//! their own.
//!
//! | way | what is not default |
//! |---|---|
//! | `rocksdb` | no compression, since the values are random; it is what the published benchmark did |
//! | `rocksdb-tuned` | universal compaction with memtables of 256 MiB, direct reads, direct flushes and compactions, bloom filters of 10 bits a key |
//! | `rocksdb-blob` | the same, by levels, with values from 4 KiB in blob files of 256 MiB, whose garbage is collected from an age of a quarter and a half of garbage |
//!
//! A value is written twice, to the log and to a table or blob file. Class `power` sets the write option
//! `sync`. Neither a put nor a removal reports what was there.

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::object::store::{Found, Objects, Setup};
use azekura_bench::phase::Class;
use azekura_bench::target::Target;

use super::key;
use crate::rivals::rocksdb::RocksDb;

/// Large memtables, no page cache but for the log, and bloom filters.
const DIRECT: &str = "write_buffer_size=268435456;use_direct_reads=true;\
    use_direct_io_for_flush_and_compaction=true;\
    block_based_table_factory={filter_policy=bloomfilter:10:false}";
/// What the library's own tuning for universal compaction sets, but for compression.
const TABLES: &str = "compaction_style=kCompactionStyleUniversal;max_write_buffer_number=6;\
    min_write_buffer_number_to_merge=2";
const BLOBS: &str = "enable_blob_files=true;min_blob_size=4096;blob_file_size=268435456;\
    enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=0.25;\
    blob_garbage_collection_force_threshold=0.5";

/// Opens or makes a database with its defaults.
pub(super) fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    with(setup, "")
}

/// Opens or makes one for large values in tables.
pub(super) fn open_tuned(setup: &Setup) -> Result<Box<dyn Objects>> {
    with(setup, &format!("{DIRECT};{TABLES}"))
}

/// Opens or makes one with values in files of their own.
pub(super) fn open_blob(setup: &Setup) -> Result<Box<dyn Objects>> {
    with(setup, &format!("{DIRECT};{BLOBS}"))
}

fn with(setup: &Setup, options: &str) -> Result<Box<dyn Objects>> {
    let path = setup.require_path()?;
    let class = setup.require_class("rocksdb", &[Class::Process, Class::Power])?;
    let power = class == Class::Power;
    let db = RocksDb::with_options(path, setup.create, power, None, options)?;
    Ok(Box::new(db))
}

impl Objects for RocksDb {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        self.set(&key(id), value).map(|()| None)
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let found = self.pin(&key(id))?;
        Ok(found.map(|value| Box::new(value) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        Target::remove(self, &key(id)).map(|_| None)
    }
    fn sync(&self) -> Result<()> {
        Target::sync(self, Durability::Power)
    }
}
