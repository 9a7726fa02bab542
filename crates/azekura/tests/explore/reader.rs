//! A reader of a hash file that opens while writers come is shown all that they put.
//!
//! Reader and writers share a storage as processes do: the reader queries it for a writer, and reads the log at any
//! moment of their appends. What was reserved and is not published looks like what a killed thread left, so a reader that
//! saw no writer when it began must read again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura::io::over::Over;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory, Storage};
use azekura::record::hash::{CreateOptions, HashDb, HashReader};
use azekura::testkit::schedule::{Threads, yield_point};
use azekura::{Engine, Reader, Verbs};

use super::holds;

/// What the reader sees of the file: others come in between before each answer.
#[derive(Debug)]
struct Watched {
    file: Arc<dyn Storage>,
    has_writer: Arc<AtomicBool>,
}

impl Over for Watched {
    fn below(&self) -> &dyn Storage {
        self.file.as_ref()
    }

    fn has_writer(&self) -> bool {
        yield_point();
        let has_writer = self.has_writer.load(Ordering::SeqCst);
        yield_point();
        has_writer
    }
}

/// Two threads put, and one opens a reader.
fn opening(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let disk = SimDisk::new(seed);
    let name = Path::new("shared");
    let options = CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX);
    let storage = disk.directory().create(name).unwrap();
    let db = HashDb::create_on(storage, &options).unwrap();
    db.put(b"before", b"value").unwrap();
    let has_writer = Arc::new(AtomicBool::new(false));
    let watched: Arc<dyn Storage> = Arc::new(Watched {
        file: disk.directory().open(name, Access::Read).unwrap(),
        has_writer: Arc::clone(&has_writer),
    });
    let mut reader = None;
    let mut threads = Threads::default();
    for client in 0..2u8 {
        let (db, has_writer) = (&db, &has_writer);
        threads.add(move || {
            for _ in 0..seed % 7 {
                yield_point();
            }
            // The file is locked for writing before anything is appended.
            has_writer.store(true, Ordering::SeqCst);
            for step in 0..4 {
                let engine: &dyn Engine = db;
                engine.put(&[client, step], &[step; 40]).unwrap();
            }
        });
    }
    let opened = &mut reader;
    threads.add(move || {
        *opened = Some(HashReader::open_on(watched).unwrap());
    });
    run(threads);
    let reader = reader.expect("the thread has opened it");
    for key in [0, 1]
        .iter()
        .flat_map(|client| (0..4).map(|step| [*client, step]))
    {
        let value = reader.get(&key).unwrap();
        assert_eq!(value, Some(vec![key[1]; 40]), "{key:?}");
    }
    assert_eq!(reader.count(), 9, "records that the reader counts");
}

#[test]
fn a_reader_that_opens_while_writers_come_sees_all_that_they_put() {
    holds(
        "a reader that opens concurrently with writers",
        6000,
        &opening,
    );
}
