//! Defects of other trees in files, each as a test that this one does not have it.
//!
//! | there | here |
//! |---|---|
//! | after a reopen of a tree of many leaves, the last record was sought in the first leaf | `the_last_leaf_is_found_after_a_reopen` |
//! | records that were synced were lost when others were removed and the process was killed, as a joined page was freed at once | `synced_records_survive_removals_and_a_kill` |
//! | a file that was not closed came back in another order of keys | `the_order_of_keys_is_kept_whatever_ends_the_process` |
//! | one process could open a file for writing twice | `a_file_is_open_for_writing_once` |
//! | going back from a key that was removed missed a leaf | `going_back_from_a_removed_key_misses_nothing` |
//!
//! A killed process is one whose disk is copied as the simulation has it, which includes what no sync was asked for.

use std::path::Path;

use azekura::engine::{Ordered, Persistent, Reader};
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory};
use azekura::order::Order;
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::Random;
use azekura::{Durability, Kind};

fn small() -> CreateOptions {
    let opening = OpenOptions::new().cache(256 << 10).background(false);
    let opening = opening.capacity(SimDisk::FILE_SIZE_MAX);
    CreateOptions::new().segment_size(64 << 10).opening(opening)
}

fn numbered(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

fn open(disk: &SimDisk) -> TreeDb {
    let storage = disk.directory().open(Path::new("t.azt"), Access::Write);
    TreeDb::open_on(storage.unwrap(), &small().opening).unwrap()
}

/// The disk as it is when the process is killed now.
fn killed(disk: &SimDisk) -> SimDisk {
    let mut replay = disk.replay();
    replay.advance_to(disk.events());
    replay.kill(0)
}

#[test]
fn the_last_leaf_is_found_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.azt");
    let db = TreeDb::create(&path, &small()).unwrap();
    for number in 0..5000 {
        db.put(&numbered(number), b"value").unwrap();
    }
    db.close().unwrap();
    let db = TreeDb::open(&path, &small().opening).unwrap();
    let mut cursor = db.cursor();
    assert!(cursor.last().unwrap());
    assert_eq!(cursor.record().unwrap().0, numbered(4999));
    assert!(cursor.seek(&numbered(4998)).unwrap());
    assert_eq!(cursor.record().unwrap().0, numbered(4998));
}

#[test]
fn synced_records_survive_removals_and_a_kill() {
    for shuffled in [false, true] {
        let disk = SimDisk::new(7);
        let directory = disk.directory();
        let db = TreeDb::create_in(&directory, Path::new("t.azt"), &small()).unwrap();
        let mut random = Random::new(5);
        let mut numbers: Vec<u64> = (0..10_000).collect();
        if shuffled {
            for at in (1..numbers.len()).rev() {
                numbers.swap(at, random.index(at + 1));
            }
        }
        for number in &numbers {
            db.put(&numbered(*number), b"synced").unwrap();
        }
        db.sync(Durability::Power).unwrap();
        for number in &numbers {
            db.put(&numbered(10_000 + number), b"after").unwrap();
        }
        for number in numbers.iter().filter(|number| *number % 3 == 0) {
            assert!(db.remove(&numbered(*number)).unwrap());
        }
        let left = open(&killed(&disk));
        drop(db);
        for number in 0..10_000 {
            let found = left.get(&numbered(number)).unwrap();
            let expected = (number % 3 != 0).then_some(&b"synced"[..]);
            assert_eq!(found.as_deref(), expected, "{number}, shuffled {shuffled}");
        }
        assert_eq!(left.count(), 10_000 + 10_000 - 3334);
        assert!(left.check(&mut |_, _| {}).unwrap().is_sound());
    }
}

#[test]
fn the_order_of_keys_is_kept_whatever_ends_the_process() {
    let disk = SimDisk::new(8);
    let directory = disk.directory();
    let options = small().order(Order::Decimal);
    let db = TreeDb::create_in(&directory, Path::new("t.azt"), &options).unwrap();
    for number in [9_u32, 10, 100, 1, 55] {
        db.put(number.to_string().as_bytes(), b"").unwrap();
    }
    let in_order = |db: &TreeDb| {
        let mut keys = Vec::new();
        db.scan(None, &mut |key, _| {
            keys.push(String::from_utf8_lossy(key).into_owned());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        keys.join(" ")
    };
    assert_eq!(in_order(&open(&killed(&disk))), "1 9 10 55 100");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("c.azt");
    db.copy_to(&copy, &mut |_, _| {}).unwrap();
    db.close().unwrap();
    for db in [open(&disk), TreeDb::open(&copy, &small().opening).unwrap()] {
        assert_eq!(db.order(), Order::Decimal);
        assert_eq!(in_order(&db), "1 9 10 55 100");
    }
}

#[test]
fn a_file_is_open_for_writing_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.azt");
    let db = TreeDb::create(&path, &small()).unwrap();
    let again = TreeDb::open(&path, &small().opening);
    assert_eq!(again.map(drop).unwrap_err().kind(), Kind::Locked);
    db.put(b"a", b"b").unwrap();
    db.close().unwrap();
    let db = TreeDb::open(&path, &small().opening).unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"b"[..]));
}

#[test]
fn going_back_from_a_removed_key_misses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let db = TreeDb::create(folder.path().join("t.azt"), &small()).unwrap();
    for number in 0..3000 {
        db.put(&numbered(number), b"value").unwrap();
    }
    let mut cursor = db.cursor();
    assert!(cursor.last().unwrap());
    for number in (1..3000).rev() {
        // The record that the cursor is on goes, at times with all of its leaf.
        assert!(db.remove(&numbered(number)).unwrap());
        assert!(cursor.previous().unwrap());
        assert_eq!(cursor.record().unwrap().0, numbered(number - 1));
    }
    assert_eq!(db.count(), 1);
}
