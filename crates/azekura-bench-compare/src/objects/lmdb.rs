//! LMDB, through heed: a value is a run of pages in the map.
//!
//! Opened and called as for records ([`rivals::lmdb`](crate::rivals::lmdb)): with class `process` commits are not synchronised
//! (`MDB_NOSYNC`), with `power` each is. A get copies the value: the map alone would be pages that were never read.

use azekura::Durability;
use azekura::error::Result;
use azekura_bench::object::store::{Found, Objects, Setup};
use azekura_bench::phase::Class;
use azekura_bench::target::Target;

use super::key;
use crate::rivals::lmdb::Lmdb;

/// Addresses are reserved in these units, and so many more than the values need.
const UNIT: u64 = 1 << 30;

/// Opens or makes an environment.
pub(super) fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    let path = setup.require_path()?;
    let class = setup.require_class("lmdb", &[Class::Process, Class::Power])?;
    let map_size = (setup.capacity.next_multiple_of(UNIT) + UNIT) as usize;
    let db = Lmdb::at(path, map_size, class == Class::Power)?;
    Ok(Box::new(db))
}

impl Objects for Lmdb {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        self.set(&key(id), value).map(|()| None)
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let found = self.copy(&key(id))?;
        Ok(found.map(|value| Box::new(value) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        Target::remove(self, &key(id)).map(Some)
    }
    fn sync(&self) -> Result<()> {
        Target::sync(self, Durability::Power)
    }
    fn close(self: Box<Self>) -> Result<()> {
        Target::close(*self)
    }
}
