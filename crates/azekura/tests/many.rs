//! Many stores in one process: 300 hash files and 100 object stores, open at once.
//!
//! A cluster keeps each partition in a file of its own. Threads, memory and files of the idle stores stay within the bounds that
//! `docs/operations.md` states; all are used at once by four threads; closed, or copied as
//! if the process had died, they open again with all records.
//!
//! One test alone in its process: it counts what the process has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use azekura::object::{self, ObjectId, Store};
use azekura::record::hash::{CreateOptions, HashDb, OpenOptions};
use azekura::testkit::concurrent::tried;
use azekura::testkit::suite::demand;

const FILES: usize = 300;
const STORES: usize = 100;
const THREADS: usize = 4;
const RECORDS: u64 = 100;
/// One of so many is copied as if the process had died.
const PART: usize = 4;
/// Threads of the pool that may be there while all stores work.
const POOL_MAX: u64 = 64;
/// Resident memory of its own, and with pages of files, that an idle store adds: KiB.
const OWN_MAX: u64 = 512;
const RESIDENT_MAX: u64 = 4096;

/// A figure of the process, as the system counts it: KiB, or threads.
fn figure(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the figures of the process");
    let line = status.lines().find(|line| line.starts_with(name));
    let figure = line.and_then(|line| line.split_whitespace().nth(1));
    figure
        .and_then(|figure| figure.parse().ok())
        .expect("a number")
}

fn file(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{number}.az"))
}

fn store(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{number}.azo"))
}

fn store_options() -> object::CreateOptions {
    object::CreateOptions::new()
        .capacity(4 << 20)
        .journal_size(1 << 20)
}

/// Makes so many, by several threads: each waits for its device.
fn each<T: Send>(count: usize, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed))
                    && number < count
                {
                    let one = make(number);
                    made.lock().expect("no panic").insert(number, one);
                }
            });
        }
    });
    let made = made.into_inner().expect("no panic");
    made.into_values().collect()
}

/// The stores of one process.
struct All {
    files: Vec<HashDb>,
    stores: Vec<Store>,
}

impl All {
    fn create(folder: &Path) -> Self {
        let file = |number| HashDb::create(file(folder, number), &CreateOptions::default());
        let store = |number| Store::create(store(folder, number), &store_options());
        Self {
            files: each(FILES, |number| file(number).expect("a new file")),
            stores: each(STORES, |number| store(number).expect("a new store")),
        }
    }

    fn open(folder: &Path, part: usize) -> Self {
        let file = |number| HashDb::open(file(folder, number), &OpenOptions::default());
        let store = |number| Store::open(store(folder, number), &store_options().opening);
        Self {
            files: each(FILES / part, |number| file(number).expect("a file")),
            stores: each(STORES / part, |number| store(number).expect("a store")),
        }
    }

    fn close(self) {
        let (files, stores) = (self.files, self.stores);
        let files: Vec<_> = files
            .into_iter()
            .map(|file| Mutex::new(Some(file)))
            .collect();
        let stores: Vec<_> = stores
            .into_iter()
            .map(|store| Mutex::new(Some(store)))
            .collect();
        each(files.len(), |number| {
            let file = files[number].lock().expect("no panic").take();
            file.expect("closed once").close().expect("a close");
        });
        each(stores.len(), |number| {
            let store = stores[number].lock().expect("no panic").take();
            store.expect("closed once").close().expect("a close");
        });
    }

    /// Every store is changed by every thread.
    fn change(&self, round: u64) {
        std::thread::scope(|scope| {
            for thread in 0..THREADS as u64 {
                scope.spawn(move || {
                    for record in (thread..RECORDS).step_by(THREADS) {
                        for (number, file) in self.files.iter().enumerate() {
                            let value = value(round, record, number);
                            file.put(&record.to_le_bytes(), &value).expect("room");
                        }
                        for (number, store) in self.stores.iter().enumerate() {
                            let value = value(round, record, number);
                            let id = ObjectId(record.into());
                            store.put(id, &value).expect("room");
                        }
                    }
                });
            }
        });
    }

    fn check(&self, round: u64) {
        for record in 0..RECORDS {
            for (number, file) in self.files.iter().enumerate() {
                let found = file.get(&record.to_le_bytes()).expect("a read");
                assert_eq!(found, Some(value(round, record, number)), "file {number}");
            }
            for (number, store) in self.stores.iter().enumerate() {
                let found = store.get(ObjectId(record.into())).expect("a read");
                let found = found.map(|value| value.to_vec());
                assert_eq!(found, Some(value(round, record, number)), "store {number}");
            }
        }
    }
}

fn value(round: u64, record: u64, number: usize) -> Vec<u8> {
    format!("{round} {record} {number}").repeat(5).into_bytes()
}

/// Waits until the background work is done, and its threads have ended.
fn wait_until_idle(threads: u64) {
    let begun = Instant::now();
    while figure("Threads:") > threads {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "threads of idle stores stay"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn hundreds_of_stores_share_their_threads_and_cost_little_while_idle() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let threads = figure("Threads:");
    let before = (figure("RssAnon:"), figure("VmRSS:"));
    let share = |now: u64, before: u64| now.saturating_sub(before) / (FILES + STORES) as u64;

    let all = All::create(folder);
    all.change(1);
    assert!(figure("Threads:") <= threads + POOL_MAX);
    wait_until_idle(threads);
    let own = share(figure("RssAnon:"), before.0);
    let resident = share(figure("VmRSS:"), before.1);
    tried(&format!(
        "{own} KiB of its own, {resident} KiB with pages of files, of a new store"
    ));
    assert!(own <= OWN_MAX && resident <= RESIDENT_MAX);
    all.check(1);

    // A part of them as a process that dies leaves them.
    let killed = tempfile::tempdir().expect("a folder");
    for number in 0..FILES / PART {
        std::fs::copy(file(folder, number), file(killed.path(), number)).expect("a copy");
    }
    for number in 0..STORES / PART {
        std::fs::copy(store(folder, number), store(killed.path(), number)).expect("a copy");
    }
    all.close();
    for (folder, part) in [(folder, 1), (killed.path(), PART)] {
        let all = All::open(folder, part);
        all.check(1);
        all.change(2);
        wait_until_idle(threads);
        // The allocator keeps some of what more stores had: a share of it is no figure of fewer.
        let own = share(figure("RssAnon:"), before.0);
        tried(&format!("{own} KiB of its own, of an opened store"));
        assert!(own <= OWN_MAX);
        all.close();
        let all = All::open(folder, part);
        all.check(2);
        demand(all.files.len() as u64, (FILES / part) as u64, "files");
        demand(
            all.stores.len() as u64,
            (STORES / part) as u64,
            "object stores",
        );
    }
}
