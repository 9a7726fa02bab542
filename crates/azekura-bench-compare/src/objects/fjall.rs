//! fjall with values in files of their own, as it recommends for large ones.
//!
//! Such files have 256 MiB instead of 64 MiB; nothing is compressed, neither there nor in the journal, since the
//! values are random. A change goes to the journal and from there to the system (class `process`); with
//! `power` each is followed by its `SyncData`. A put does not report whether it replaced something, nor a removal
//! whether there was anything.

use azekura::error::Result;
use azekura_bench::object::store::{Found, Objects, Setup};
use azekura_bench::phase::Class;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
};

use super::key;
use crate::rivals::Called as _;

const BLOB_FILE_SIZE: u64 = 256 << 20;

struct Fjall {
    db: Database,
    objects: Keyspace,
    class: Class,
}

/// Opens or makes a database.
pub(super) fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    let path = setup.require_path()?;
    let class = setup.require_class("fjall", &[Class::Process, Class::Power])?;
    let db = Database::builder(path)
        .journal_compression(CompressionType::None)
        .open();
    let db = db.or_failed("open")?;
    let values = || {
        KvSeparationOptions::default()
            .compression(CompressionType::None)
            .file_target_size(BLOB_FILE_SIZE)
    };
    let options = || KeyspaceCreateOptions::default().with_kv_separation(Some(values()));
    let objects = db.keyspace("objects", options).or_failed("open")?;
    Ok(Box::new(Fjall { db, objects, class }))
}

impl Fjall {
    fn changed(&self) -> Result<Option<bool>> {
        if self.class == Class::Power {
            self.sync()?;
        }
        Ok(None)
    }
}

impl Objects for Fjall {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        self.objects.insert(key(id), value).or_failed("insert")?;
        self.changed()
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let found = self.objects.get(key(id)).or_failed("get")?;
        Ok(found.map(|value| Box::new(value) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        self.objects.remove(key(id)).or_failed("remove")?;
        self.changed()
    }
    fn sync(&self) -> Result<()> {
        self.db.persist(PersistMode::SyncData).or_failed("persist")
    }
}
