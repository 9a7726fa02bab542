//! `SQLite`: a row for each object, its value a blob.
//!
//! Pages of 64 KiB, a write-ahead log, no map of the file. `synchronous` is NORMAL for class `process`, in
//! which the log is synced at checkpoints, and FULL for `power`, in which each commit is. A change is a
//! transaction. Threads take turns at one connection.

use std::sync::{Mutex, MutexGuard};

use azekura::error::Result;
use azekura_bench::object::store::{Found, Objects, Setup};
use azekura_bench::phase::Class;
use rusqlite::{Connection, OptionalExtension};

use super::key;
use crate::rivals::Called as _;

struct Sqlite(Mutex<Connection>);

/// Opens or makes a database.
pub(super) fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    let path = setup.require_path()?;
    let class = setup.require_class("sqlite", &[Class::Process, Class::Power])?;
    let synchronous = if class == Class::Power {
        "FULL"
    } else {
        "NORMAL"
    };
    let connection = Connection::open(path).or_failed("open")?;
    let prepared = connection.execute_batch(&format!(
        "PRAGMA page_size = 65536; PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; \
         PRAGMA mmap_size = 0; \
         CREATE TABLE IF NOT EXISTS objects (id BLOB PRIMARY KEY, value BLOB NOT NULL)"
    ));
    prepared.or_failed("open")?;
    Ok(Box::new(Sqlite(Mutex::new(connection))))
}

impl Sqlite {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().expect("no thread panics in a call")
    }
}

impl Objects for Sqlite {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        let connection = self.connection();
        let statement = connection.prepare_cached("REPLACE INTO objects VALUES (?1, ?2)");
        let done = statement.and_then(|mut statement| statement.execute((key(id), value)));
        done.map(|_| None).or_failed("put")
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let connection = self.connection();
        let statement = connection.prepare_cached("SELECT value FROM objects WHERE id = ?1");
        let found = statement.and_then(|mut statement| {
            statement
                .query_row([key(id)], |row| row.get::<_, Vec<u8>>(0))
                .optional()
        });
        let found = found.or_failed("get")?;
        Ok(found.map(|value| Box::new(value) as Found<'_>))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        let connection = self.connection();
        let statement = connection.prepare_cached("DELETE FROM objects WHERE id = ?1");
        let removed = statement.and_then(|mut statement| statement.execute([key(id)]));
        removed.map(|rows| Some(rows > 0)).or_failed("delete")
    }
    fn sync(&self) -> Result<()> {
        // A checkpoint syncs the log, copies it to the file, and syncs that.
        let done = self
            .connection()
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
        done.or_failed("checkpoint")
    }
}
