//! fjall, with its defaults.
//!
//! Writes go to its journal and from there to the system by themselves (durability `process`); with
//! `power` each write or batch is followed by a full sync. A removal writes a mark and does not look,
//! so its answer is always yes. It has no batched reads: these are single calls.

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::target::{Setup, Target, copy_found};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::Called as _;

/// An open database and its one keyspace.
pub(crate) struct Fjall {
    db: Database,
    records: Keyspace,
    power: bool,
}

impl Fjall {
    fn written(&self) -> Result<()> {
        if self.power {
            self.sync(Durability::Power)
        } else {
            Ok(())
        }
    }
}

impl Target for Fjall {
    const NAME: &'static str = "fjall";
    const PERSISTENT: bool = true;
    const COUNTS_REMOVALS: bool = false;
    const ORDERED: bool = true;
    type Position<'t> = ();

    fn open(setup: &Setup) -> Result<Self> {
        let path = setup.require_path()?;
        let db = Database::builder(path).open().or_failed("open")?;
        let records = db
            .keyspace("records", KeyspaceCreateOptions::default)
            .or_failed("open")?;
        Ok(Self {
            db,
            records,
            power: setup.durability == Durability::Power,
        })
    }
    fn close(self) -> Result<()> {
        self.sync(Durability::Process)
    }
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.insert(key, value).or_failed("insert")?;
        self.written()
    }
    fn has(&self, key: &[u8]) -> Result<bool> {
        self.records.contains_key(key).or_failed("get")
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.records.get(key).or_failed("get")?;
        Ok(copy_found(found.as_deref(), value))
    }
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.records.remove(key).or_failed("remove")?;
        self.written()?;
        Ok(true)
    }
    fn set_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = self.db.batch();
        for &(key, value) in records {
            batch.insert(&self.records, key, value);
        }
        batch.commit().or_failed("commit")?;
        self.written()
    }
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut batch = self.db.batch();
        for &key in keys {
            batch.remove(&self.records, key);
        }
        batch.commit().or_failed("commit")?;
        self.written()?;
        Ok(keys.len() as u64)
    }
    fn position(&self) -> Result<()> {
        Ok(())
    }
    fn jump(&self, (): &mut (), key: &[u8], visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        if let Some(found) = self.records.range(key..).next() {
            let (key, value) = found.into_inner().or_failed("jump")?;
            visit(&key, &value);
        }
        Ok(())
    }
    fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        for found in self.records.iter() {
            let (key, value) = found.into_inner().or_failed("scan")?;
            visit(&key, &value);
        }
        Ok(())
    }
    fn sync(&self, durability: Durability) -> Result<()> {
        let mode = match durability {
            Durability::Process => PersistMode::Buffer,
            Durability::Power => PersistMode::SyncAll,
        };
        self.db.persist(mode).or_failed("persist")
    }
}
