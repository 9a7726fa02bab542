//! What puts that wait for their leaf may take where they meet snapshots, and a device that takes no writes any more.
//!
//! A page that is merged keeps what snapshots see of it, in memory where two puts around a snapshot waited together: that is bounded, also where a read merges
//! it. Of a poisoned store pages are shown with what waits, and give way again: as often as that is, all is as it was, the store and its snapshots.

use azekura::Kind;
use azekura::engine::{Durability, Persistent, Reader};
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::record::tree::{CreateOptions, OpenOptions, Snapshot, TreeDb};
use azekura::testkit::suite::tried_at_least;

use super::beyond::{Model, creating, fill, key, on_disk, opening, property, shown};
use super::buffered_puts;

/// Versions of pages of 4 KiB that a store with a small cache may have in memory: 16 MiB.
const VERSIONS_MAX: u64 = 4096;

fn options(cache: u64) -> CreateOptions {
    creating(&opening().cache(cache))
}

/// No write and no sync arrives any more.
fn poison(disk: &SimDisk, db: &TreeDb) {
    for operation in [Operation::Sync, Operation::Write] {
        disk.faults().fail_from(operation, 0, Fault::Error);
    }
    let error = db.sync(Durability::Power).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert_eq!(db.put(b"k", b"v").unwrap_err().kind(), Kind::Poisoned);
}

/// A store on a disk, several times what its cache holds.
fn beyond_cache(cache: u64) -> (SimDisk, TreeDb, Model) {
    let (disk, db) = on_disk(&options(cache));
    let model = fill(&db, 9000);
    (disk, db, model)
}

/// Puts before, between and after snapshots wait for the same pages, some of new records.
#[test]
fn a_poisoned_store_shows_its_snapshots_what_waited() {
    let (disk, db, mut model) = beyond_cache(256 << 10);
    let before = buffered_puts(&db);
    let mut snapshots: Vec<(Snapshot<'_>, Model)> = Vec::new();
    for version in 1..=4 {
        for number in (0..9000).step_by(90) {
            let new = key(10_000 * u64::from(version) + number);
            for key in [key(number), new] {
                db.put(&key, &[version; 20]).unwrap();
                model.insert(key, vec![version; 20]);
            }
        }
        if version < 4 {
            snapshots.push((db.snapshot().unwrap(), model.clone()));
        }
    }
    let waited = buffered_puts(&db) - before;
    poison(&disk, &db);
    let count = db.count();
    let mut versions = None;
    let mut looked_at = 0;
    for _ in 0..3 {
        for (snapshot, then) in &snapshots {
            assert!(shown(snapshot) == *then, "a snapshot changed");
            looked_at += then.len() as u64;
        }
        for (key, value) in &model {
            assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
        }
        // A page that is shown again keeps nothing again.
        let kept = property(&db, "versions_in_memory");
        assert_eq!(*versions.get_or_insert(kept), kept);
        assert_eq!(db.count(), count, "what is shown is not counted");
    }
    tried_at_least(
        waited,
        300,
        "puts around snapshots of a store that was poisoned",
    );
    tried_at_least(
        looked_at,
        80_000,
        "records of snapshots of a poisoned store",
    );
}

/// All that is clean was looked at lately, and the rest cannot be written: what is clean gives way all the same.
#[test]
fn a_poisoned_store_with_changed_pages_is_read_on() {
    let mut looked_at = 0;
    for cache in [256u64 << 10, 1 << 20] {
        let (disk, db, mut model) = beyond_cache(cache);
        // Nothing waits.
        assert_eq!(db.count(), 9000);
        db.checkpoint().unwrap();
        let frames = cache >> 12;
        let dirty = || property(&db, "dirty_pages");
        // Neighbours, which fill most of the cache.
        let near: Vec<Vec<u8>> = model.keys().take(frames as usize * 18).cloned().collect();
        for round in 0..4 {
            for key in &near {
                db.get(key).unwrap();
                if round == 2 && dirty() < frames / 8 {
                    db.put(key, &[1; 90]).unwrap();
                    model.insert(key.clone(), vec![1; 90]);
                }
            }
        }
        assert!(dirty() > 0);
        poison(&disk, &db);
        for _ in 0..3 {
            for (key, value) in model.iter().rev() {
                assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
                looked_at += 1;
            }
        }
        assert!(shown(&db) == model);
    }
    tried_at_least(
        looked_at,
        50_000,
        "records of a poisoned store with changed pages",
    );
}

/// Who merges pages around a snapshot keeps no more of them in memory than a store may: it ends the snapshot.
#[test]
fn what_is_merged_around_a_snapshot_is_bounded_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let opening = OpenOptions::new().background(false).cache(4u64 << 20);
    let db = TreeDb::create(&path, &options(4 << 20).opening(opening)).unwrap();
    let many = 48_000;
    for number in 0..many {
        db.put(&key(number), &[0; 400]).unwrap();
    }
    db.checkpoint().unwrap();
    let versions = || property(&db, "versions_in_memory");
    let waiting = || property(&db, "buffered_pages");
    let mut merged = 0;
    for way in 0..3 {
        let put = |version: u8| {
            for number in (0..many).step_by(4) {
                db.put(&key(number), &[version; 8]).unwrap();
            }
        };
        put(2 * way + 1);
        let snapshot = db.snapshot().unwrap();
        put(2 * way + 2);
        let before = waiting();
        assert!(before > VERSIONS_MAX + 500, "{before} pages");
        merged += before;
        match way {
            0 => {
                for number in (0..many).step_by(4) {
                    let found = db.get(&key(number)).unwrap();
                    assert_eq!(found, Some(vec![2 * way + 2; 8]));
                }
                assert!(versions() > VERSIONS_MAX, "{} versions", versions());
                db.maintain().unwrap();
            }
            1 => {
                assert_eq!(db.count(), many);
                assert_eq!(waiting(), 0);
            }
            _ => {
                db.checkpoint().unwrap();
                assert!(
                    waiting() > 0,
                    "what no snapshot sees any more is not merged"
                );
            }
        }
        assert!(
            versions() <= VERSIONS_MAX,
            "way {way}: {} versions",
            versions()
        );
        let error = snapshot.get(key(0)).unwrap_err();
        assert_eq!(error.kind(), Kind::TooOld);
    }
    tried_at_least(merged, 12_000, "pages that were merged around snapshots");
}
