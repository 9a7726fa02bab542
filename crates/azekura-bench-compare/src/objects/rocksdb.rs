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

#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{c_double, c_int, c_uchar, c_void};

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::object::store::{Found, Objects, Setup};
use azekura_bench::phase::Class;
use azekura_bench::target::Target;

use super::key;
use crate::rivals::rocksdb::RocksDb;

const MEMTABLE_SIZE: usize = 256 << 20;
const BLOB_FILE_SIZE: u64 = 256 << 20;
const BLOB_SIZE_MIN: u64 = 4 << 10;
const BLOOM_BITS: c_double = 10.0;
const BLOB_AGE_CUTOFF: c_double = 0.25;
const BLOB_GARBAGE: c_double = 0.5;

type Handle = *mut c_void;

// SAFETY: declared as in rocksdb/c.h of RocksDB 7; opaque structures are `void`.
unsafe extern "C" {
    fn rocksdb_options_optimize_universal_style_compaction(options: Handle, memtable_budget: u64);
    fn rocksdb_options_set_write_buffer_size(options: Handle, size: usize);
    fn rocksdb_options_set_use_direct_reads(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_compression(options: Handle, kind: c_int);
    fn rocksdb_options_set_compression_per_level(
        options: Handle,
        kinds: *const c_int,
        count: usize,
    );
    fn rocksdb_block_based_options_create() -> Handle;
    fn rocksdb_block_based_options_destroy(options: Handle);
    fn rocksdb_filterpolicy_create_bloom_full(bits: c_double) -> Handle;
    fn rocksdb_block_based_options_set_filter_policy(options: Handle, policy: Handle);
    fn rocksdb_options_set_block_based_table_factory(options: Handle, tables: Handle);
    fn rocksdb_options_set_enable_blob_files(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_min_blob_size(options: Handle, size: u64);
    fn rocksdb_options_set_blob_file_size(options: Handle, size: u64);
    fn rocksdb_options_set_blob_compression_type(options: Handle, kind: c_int);
    fn rocksdb_options_set_enable_blob_gc(options: Handle, yes: c_uchar);
    fn rocksdb_options_set_blob_gc_age_cutoff(options: Handle, part: c_double);
    fn rocksdb_options_set_blob_gc_force_threshold(options: Handle, part: c_double);
}

struct Rocks {
    db: RocksDb,
    class: Class,
}

/// Opens or makes a database with its defaults.
pub(super) fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    with(setup, |_| ())
}

/// Opens or makes one for large values in tables.
pub(super) fn open_tuned(setup: &Setup) -> Result<Box<dyn Objects>> {
    with(setup, |options| {
        // SAFETY: the options are live; the list of kinds is read during the call.
        unsafe {
            rocksdb_options_optimize_universal_style_compaction(options, MEMTABLE_SIZE as u64);
            // It asks for compression by level, which comes before the one for all.
            rocksdb_options_set_compression_per_level(options, std::ptr::null(), 0);
            rocksdb_options_set_compression(options, 0);
        }
        direct(options);
    })
}

/// Opens or makes one with values in files of their own.
pub(super) fn open_blob(setup: &Setup) -> Result<Box<dyn Objects>> {
    with(setup, |options| {
        direct(options);
        // SAFETY: the options are live.
        unsafe {
            rocksdb_options_set_enable_blob_files(options, 1);
            rocksdb_options_set_min_blob_size(options, BLOB_SIZE_MIN);
            rocksdb_options_set_blob_file_size(options, BLOB_FILE_SIZE);
            rocksdb_options_set_blob_compression_type(options, 0);
            rocksdb_options_set_enable_blob_gc(options, 1);
            rocksdb_options_set_blob_gc_age_cutoff(options, BLOB_AGE_CUTOFF);
            rocksdb_options_set_blob_gc_force_threshold(options, BLOB_GARBAGE);
        }
    })
}

/// Large memtables, no page cache but for the log, and bloom filters.
fn direct(options: Handle) {
    // SAFETY: the options are live; those of tables take over the filter, are copied by the factory, and are
    // freed once.
    unsafe {
        rocksdb_options_set_write_buffer_size(options, MEMTABLE_SIZE);
        rocksdb_options_set_use_direct_reads(options, 1);
        rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
        let tables = rocksdb_block_based_options_create();
        let bloom = rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS);
        rocksdb_block_based_options_set_filter_policy(tables, bloom);
        rocksdb_options_set_block_based_table_factory(options, tables);
        rocksdb_block_based_options_destroy(tables);
    }
}

fn with(setup: &Setup, tune: impl FnOnce(Handle)) -> Result<Box<dyn Objects>> {
    let path = setup.require_path()?;
    let class = setup.require_class("rocksdb", &[Class::Process, Class::Power])?;
    let db = RocksDb::tuned(path, setup.create, class == Class::Power, tune)?;
    Ok(Box::new(Rocks { db, class }))
}

impl Objects for Rocks {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        self.db.set(&key(id), value).map(|()| None)
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let found = self.db.pin(&key(id))?;
        Ok(found.map(|value| Box::new(value) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        self.db.remove(&key(id)).map(|_| None)
    }
    fn sync(&self) -> Result<()> {
        Target::sync(&self.db, Durability::Power)
    }
    fn durability(&self) -> Class {
        self.class
    }
}
