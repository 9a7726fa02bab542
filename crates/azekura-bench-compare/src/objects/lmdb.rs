//! LMDB, through heed: a value is a run of pages in the map.
//!
//! A change is a transaction. With class `process` commits are not synchronised (`MDB_NOSYNC`), with `power`
//! each is. Read-ahead is off, as its documentation advises for random access. A get copies the value: the
//! map alone would be pages that were never read.

#![expect(unsafe_code, reason = "a memory-mapped file is opened")]

use azekura::error::Result;
use azekura_bench::object::store::{Found, Objects, Setup};
use azekura_bench::phase::Class;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use super::key;
use crate::rivals::failed;

/// Addresses are reserved in these units, and so many more than the values need.
const UNIT: u64 = 1 << 30;

struct Lmdb {
    env: Env,
    objects: Database<Bytes, Bytes>,
    class: Class,
}

/// Opens or makes an environment.
pub(super) fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    let path = setup.require_path()?;
    let class = setup.require_class("lmdb", &[Class::Process, Class::Power])?;
    std::fs::create_dir_all(path).map_err(|error| failed("create", error))?;
    let mut flags = EnvFlags::NO_READ_AHEAD;
    if class == Class::Process {
        flags |= EnvFlags::NO_SYNC;
    }
    let mut options = EnvOpenOptions::new();
    options.map_size((setup.capacity.next_multiple_of(UNIT) + UNIT) as usize);
    // SAFETY: the folder is this run's own, so nobody else changes the mapped file; what the flags give up
    // (loss of power) is what the plan asked to give up.
    let env = unsafe { options.flags(flags).open(path) };
    let env = env.map_err(|error| failed("open", error))?;
    let mut txn = env.write_txn().map_err(|error| failed("begin", error))?;
    let objects = env
        .create_database(&mut txn, None)
        .map_err(|error| failed("open", error))?;
    txn.commit().map_err(|error| failed("commit", error))?;
    Ok(Box::new(Lmdb {
        env,
        objects,
        class,
    }))
}

impl Objects for Lmdb {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        let mut txn = self
            .env
            .write_txn()
            .map_err(|error| failed("begin", error))?;
        self.objects
            .put(&mut txn, &key(id), value)
            .map_err(|error| failed("put", error))?;
        txn.commit().map_err(|error| failed("commit", error))?;
        Ok(None)
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let txn = self
            .env
            .read_txn()
            .map_err(|error| failed("begin", error))?;
        let found = self
            .objects
            .get(&txn, &key(id))
            .map_err(|error| failed("get", error))?;
        Ok(found.map(|value| Box::new(value.to_vec()) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        let mut txn = self
            .env
            .write_txn()
            .map_err(|error| failed("begin", error))?;
        let there = self
            .objects
            .delete(&mut txn, &key(id))
            .map_err(|error| failed("delete", error))?;
        txn.commit().map_err(|error| failed("commit", error))?;
        Ok(Some(there))
    }
    fn sync(&self) -> Result<()> {
        self.env.force_sync().map_err(|error| failed("sync", error))
    }
    fn durability(&self) -> Class {
        self.class
    }
    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
