//! redb, with its default cache of 1 GiB or the plan's.
//!
//! A call is a transaction; a batch is one transaction. With durability `process` commits are made
//! with `Durability::None` and one durable commit ends the phase: that is less than the process's
//! death survives (class `buffered`) and favours redb, which has nothing between it and a full sync. With `power` each
//! commit is durable. A position is an open table.

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::phase::Class;
use azekura_bench::target::{Setup, Target, copy_found};
use redb::{
    AccessGuard, Database, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition,
};

use super::Called as _;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

type Reading = ReadOnlyTable<&'static [u8], &'static [u8]>;
type Writing<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// An open database.
pub(crate) struct Redb {
    db: Database,
    durability: redb::Durability,
}

impl Redb {
    fn table(&self) -> Result<Reading> {
        let txn = self.db.begin_read().or_failed("begin")?;
        txn.open_table(RECORDS).or_failed("open a table")
    }

    fn commit<R>(
        &self,
        durability: redb::Durability,
        write: impl FnOnce(&mut Writing<'_>) -> std::result::Result<R, redb::StorageError>,
    ) -> Result<R> {
        let mut txn = self.db.begin_write().or_failed("begin")?;
        txn.set_durability(durability).or_failed("begin")?;
        let mut table = txn.open_table(RECORDS).or_failed("open a table")?;
        let answer = write(&mut table).or_failed("write")?;
        drop(table);
        txn.commit().or_failed("commit")?;
        Ok(answer)
    }
}

impl Target for Redb {
    const NAME: &'static str = "redb";
    const PERSISTENT: bool = true;
    const ORDERED: bool = true;
    type Position<'t> = Reading;

    fn class(durability: Durability) -> Class {
        match durability {
            Durability::Process => Class::Buffered,
            Durability::Power => Class::Power,
        }
    }
    fn open(setup: &Setup) -> Result<Self> {
        let path = setup.require_path()?;
        let mut options = Database::builder();
        if let Some(cache) = setup.cache {
            options.set_cache_size(usize::try_from(cache).or_failed("open")?);
        }
        let db = if setup.create {
            options.create(path)
        } else {
            options.open(path)
        };
        let db = db.or_failed("open")?;
        let durability = match setup.durability {
            Durability::Process => redb::Durability::None,
            Durability::Power => redb::Durability::Immediate,
        };
        let redb = Self { db, durability };
        redb.commit(redb::Durability::Immediate, |_| Ok(()))?;
        Ok(redb)
    }
    fn close(self) -> Result<()> {
        self.sync(Durability::Power)
    }
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.commit(self.durability, |table| table.insert(key, value).map(drop))
    }
    fn has(&self, key: &[u8]) -> Result<bool> {
        let found = self.table()?.get(key).or_failed("get")?;
        Ok(found.is_some())
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.table()?.get(key).or_failed("get")?;
        Ok(copy_found(found.as_ref().map(AccessGuard::value), value))
    }
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.commit(self.durability, |table| {
            table.remove(key).map(|found| found.is_some())
        })
    }
    fn set_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.commit(self.durability, |table| {
            records
                .iter()
                .try_for_each(|(key, value)| table.insert(key, value).map(drop))
        })
    }
    fn has_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize)) -> Result<()> {
        self.get_many(keys, &mut |index, _| hit(index))
    }
    fn get_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize, &[u8])) -> Result<()> {
        let table = self.table()?;
        for (index, &key) in keys.iter().enumerate() {
            if let Some(found) = table.get(key).or_failed("get")? {
                hit(index, found.value());
            }
        }
        Ok(())
    }
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        self.commit(self.durability, |table| {
            keys.iter().try_fold(0, |sum, &key| {
                Ok(sum + u64::from(table.remove(key)?.is_some()))
            })
        })
    }
    fn position(&self) -> Result<Reading> {
        self.table()
    }
    fn jump(
        &self,
        table: &mut Reading,
        key: &[u8],
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let mut range = ReadableTable::range::<&[u8]>(table, key..).or_failed("jump")?;
        if let Some(found) = range.next() {
            let (key, value) = found.or_failed("jump")?;
            visit(key.value(), value.value());
        }
        Ok(())
    }
    fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        let table = self.table()?;
        for found in table.iter().or_failed("scan")? {
            let (key, value) = found.or_failed("scan")?;
            visit(key.value(), value.value());
        }
        Ok(())
    }
    fn sync(&self, _: Durability) -> Result<()> {
        self.commit(redb::Durability::Immediate, |_| Ok(()))
    }
}
