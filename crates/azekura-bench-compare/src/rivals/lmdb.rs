//! LMDB, through heed.
//!
//! A call is a transaction; a batch is one transaction. With durability `process` commits are not
//! synchronised (`MDB_NOSYNC`) and live in the system's page cache; with `power` each is. Lookups
//! lend the value from the map. Read-ahead is off, as its documentation advises for random access. Its cache is the system's
//! page cache: only a memory cgroup bounds it.

#![expect(unsafe_code, reason = "a memory-mapped file is opened")]

use std::path::Path;

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::target::{Setup, Target, copy_found};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use super::Called as _;

/// Addresses reserved; the file grows as it is used.
const MAP_SIZE: usize = 1 << 37;
const READERS: u32 = 2048;

/// An open environment and its one database.
pub(crate) struct Lmdb {
    env: Env,
    records: Database<Bytes, Bytes>,
}

/// Name and version of the C library.
pub(crate) fn version() -> String {
    format!(
        "lmdb {}, through {}",
        heed::lmdb_version().string,
        super::locked("heed")
    )
}

impl Lmdb {
    /// Opens or makes an environment of so many addresses, whose commits are synchronised or not.
    pub(crate) fn at(path: &Path, map_size: usize, syncs: bool) -> Result<Self> {
        std::fs::create_dir_all(path).or_failed("create")?;
        let mut flags = EnvFlags::NO_READ_AHEAD;
        flags.set(EnvFlags::NO_SYNC, !syncs);
        let mut options = EnvOpenOptions::new();
        options.map_size(map_size).max_readers(READERS);
        // SAFETY: the folder is this run's own, so no other process changes the mapped file; what the
        // flags give up (loss of power) is what the plan asked to give up.
        let env = unsafe { options.flags(flags).open(path) };
        let env = env.or_failed("open")?;
        let mut txn = env.write_txn().or_failed("begin")?;
        let records = env.create_database(&mut txn, None).or_failed("open")?;
        txn.commit().or_failed("commit")?;
        Ok(Self { env, records })
    }

    /// Copies a value.
    pub(crate) fn copy(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.reading(|txn| Ok(self.records.get(txn, key)?.map(<[u8]>::to_vec)))
    }

    fn reading<R>(&self, read: impl FnOnce(&RoTxn<'_>) -> heed::Result<R>) -> Result<R> {
        let txn = self.env.read_txn().or_failed("begin")?;
        read(&txn).or_failed("read")
    }

    fn writing<R>(&self, write: impl FnOnce(&mut heed::RwTxn<'_>) -> heed::Result<R>) -> Result<R> {
        let mut txn = self.env.write_txn().or_failed("begin")?;
        let answer = write(&mut txn).or_failed("write")?;
        txn.commit().or_failed("commit")?;
        Ok(answer)
    }
}

impl Target for Lmdb {
    const NAME: &'static str = "lmdb";
    const PERSISTENT: bool = true;
    const ORDERED: bool = true;
    type Position<'t> = RoTxn<'t, WithTls>;

    fn open(setup: &Setup) -> Result<Self> {
        let syncs = setup.durability == Durability::Power;
        Self::at(setup.require_path()?, MAP_SIZE, syncs)
    }
    fn close(self) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.writing(|txn| self.records.put(txn, key, value))
    }
    fn has(&self, key: &[u8]) -> Result<bool> {
        self.reading(|txn| Ok(self.records.get(txn, key)?.is_some()))
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.reading(|txn| {
            let found = self.records.get(txn, key)?;
            Ok(copy_found(found, value))
        })
    }
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.writing(|txn| self.records.delete(txn, key))
    }
    fn set_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.writing(|txn| {
            records
                .iter()
                .try_for_each(|(key, value)| self.records.put(txn, key, value))
        })
    }
    fn has_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize)) -> Result<()> {
        self.get_many(keys, &mut |index, _| hit(index))
    }
    fn get_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize, &[u8])) -> Result<()> {
        self.reading(|txn| {
            for (index, key) in keys.iter().enumerate() {
                if let Some(value) = self.records.get(txn, key)? {
                    hit(index, value);
                }
            }
            Ok(())
        })
    }
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        self.writing(|txn| {
            keys.iter().try_fold(0, |sum, key| {
                Ok(sum + u64::from(self.records.delete(txn, key)?))
            })
        })
    }
    fn position(&self) -> Result<RoTxn<'_, WithTls>> {
        self.env.read_txn().or_failed("begin")
    }
    fn jump(
        &self,
        txn: &mut RoTxn<'_, WithTls>,
        key: &[u8],
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let found = self.records.get_greater_than_or_equal_to(txn, key);
        if let Some((key, value)) = found.or_failed("jump")? {
            visit(key, value);
        }
        Ok(())
    }
    fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.reading(|txn| {
            for found in self.records.iter(txn)?.move_between_keys() {
                let (key, value) = found?;
                visit(key, value);
            }
            Ok(())
        })
    }
    fn sync(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Process => Ok(()),
            Durability::Power => self.env.force_sync().or_failed("sync"),
        }
    }
}
