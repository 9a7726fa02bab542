//! What a rival of the same shape does wrong, one test each.
//!
//! Its skip database takes edits that no reader sees before they are synchronised, loses removals of records that were, stores removals as
//! records, and gives a file its name before it is synced, without syncing the folder. Each of these would be seen here.

use std::ops::ControlFlow;

use azekura::engine::Engine as _;
use azekura::io::sim::SimDisk;
use azekura::record::skip::{EditOptions, Reducer, ReducingSkipDb, SkipDb, SkipReader};
use azekura::{Durability, Edit, Persistent as _, Reader as _, Verbs as _};

use super::{Store, all};

fn store() -> (tempfile::TempDir, std::path::PathBuf, SkipDb) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    let db = SkipDb::create(&path, &EditOptions::new()).unwrap();
    (folder, path, db)
}

/// A record that was put is absent until a synchronisation; a comparison and exchange compares with the past.
#[test]
fn a_pending_record_is_visible_at_once() {
    let (_folder, _, db) = store();
    db.put(b"key", b"1").unwrap();
    assert_eq!(db.get(b"key").unwrap(), Some(b"1".to_vec()));
    assert_eq!((db.count(), db.base().count()), (1, 0));
    // An update sees the pending value, not the one of the file.
    db.merge(&mut |_, _| {}).unwrap();
    db.put(b"key", b"2").unwrap();
    let mut seen = None;
    db.update(b"key", &mut |value| {
        seen = value.map(<[u8]>::to_vec);
        Edit::put(b"3")
    })
    .unwrap();
    assert_eq!(seen, Some(b"2".to_vec()));
    assert_eq!(all(&db).unwrap(), [(b"key".to_vec(), b"3".to_vec())]);
}

/// A removal after a synchronisation is forgotten, and the record comes back with the next.
#[test]
fn a_removal_of_a_merged_record_stays() {
    let (_folder, path, db) = store();
    for key in [b"a", b"b", b"c"] {
        db.put(key, b"1").unwrap();
    }
    db.merge(&mut |_, _| {}).unwrap();
    assert!(db.remove(b"b").unwrap());
    let left = [
        (b"a".to_vec(), b"1".to_vec()),
        (b"c".to_vec(), b"1".to_vec()),
    ];
    assert_eq!(db.get(b"b").unwrap(), None);
    assert_eq!(all(&db).unwrap(), left);
    db.sync(Durability::Power).unwrap();
    drop(db);
    let db = SkipDb::open(&path, &EditOptions::new()).unwrap();
    assert_eq!(all(&db).unwrap(), left);
    db.merge(&mut |_, _| {}).unwrap();
    db.merge(&mut |_, _| {}).unwrap();
    drop(db);
    assert_eq!(all(&SkipReader::open(&path).unwrap()).unwrap(), left);
    assert!(
        !SkipDb::open(&path, &EditOptions::new())
            .unwrap()
            .remove(b"b")
            .unwrap()
    );
}

/// Removals under ascending keys come back as records with the marker as their value.
#[test]
fn a_removal_is_never_a_record() {
    let (_folder, path, db) = store();
    for number in 0..1000u32 {
        let key = format!("{number:05}").into_bytes();
        db.put(&key, b"value").unwrap();
        if number % 3 == 0 {
            assert!(db.remove(&key).unwrap());
            // Of a record that is absent, too.
            assert!(!db.remove(&key).unwrap());
        }
    }
    let expected = all(&db).unwrap();
    assert!(expected.iter().all(|(_, value)| value == b"value"));
    assert_eq!(expected.len(), 666);
    db.merge(&mut |_, _| {}).unwrap();
    let file = SkipReader::open(&path).unwrap();
    assert_eq!(all(&file).unwrap(), expected);
    assert_eq!(file.count(), 666);
    // A value that is the byte of a removal in memory is a value.
    for value in [&b""[..], b"\0", b"\x01", b"\x02"] {
        db.put(b"key", value).unwrap();
        assert_eq!(db.get(b"key").unwrap(), Some(value.to_vec()));
        db.merge(&mut |_, _| {}).unwrap();
        assert_eq!(db.get(b"key").unwrap(), Some(value.to_vec()));
    }
}

/// The file is renamed before it is synced, and the folder never is.
#[test]
fn a_merged_file_is_synced_then_named_then_its_name_synced_then_the_log_trimmed() {
    let disk = SimDisk::new(1);
    let store = Store::create(&disk, "last", &EditOptions::new()).unwrap();
    store.put(b"key", b"1").unwrap();
    let before = disk.events();
    store.merge().unwrap();
    let trace = disk.trace();
    let merge = &trace[before..];
    let at = |what: &str| {
        let found = merge.iter().position(|event| event.starts_with(what));
        found.unwrap_or_else(|| panic!("no {what} in {merge:#?}"))
    };
    let renamed = at("rename");
    let written = &merge[..renamed];
    let last_write = written
        .iter()
        .rposition(|event| event.starts_with("write file 2"));
    let synced = written
        .iter()
        .rposition(|event| event.starts_with("sync file 2"));
    assert!(last_write.is_some() && synced > last_write, "{merge:#?}");
    // The log before the file that states how far it contains it.
    let log_synced = merge
        .iter()
        .position(|event| event.starts_with("sync file 1"));
    assert!(log_synced.is_some_and(|at| at < renamed), "{merge:#?}");
    let names_synced = at("sync of the names begun");
    assert!(names_synced > renamed, "{merge:#?}");
    // The pending file's superblock only then.
    let superblock = merge
        .iter()
        .position(|event| event.starts_with("write file 1 0x"));
    assert!(superblock.is_some_and(|at| at > names_synced), "{merge:#?}");
}

/// What a reducer makes of records that are synchronised twice.
#[test]
fn a_total_that_is_merged_again_and_again_is_the_total() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    let total = || Reducer::TotalDecimal;
    let db = ReducingSkipDb::create_reducing(&path, total(), &EditOptions::new()).unwrap();
    for round in 1..=10 {
        db.add(b"key", b"5").unwrap();
        db.merge(&mut |_, _| {}).unwrap();
        db.merge(&mut |_, _| {}).unwrap();
        let sum = (5 * round).to_string().into_bytes();
        assert_eq!(db.get(b"key").unwrap(), Some(sum));
    }
    // Removed, then added to: nothing of before.
    assert!(db.remove(b"key").unwrap());
    db.add(b"key", b"7").unwrap();
    db.add(b"key", b"1").unwrap();
    assert_eq!(db.get(b"key").unwrap(), Some(b"8".to_vec()));
    drop(db);
    let db = ReducingSkipDb::open_reducing(&path, total(), &EditOptions::new()).unwrap();
    assert_eq!(db.get(b"key").unwrap(), Some(b"8".to_vec()));
    assert_eq!(db.count(), 1);
}

/// An edit that also asks for the value before is answered as a duplication.
#[test]
fn an_edit_that_replaces_shows_the_value_before() {
    let (_folder, _, db) = store();
    let replace = |value: &[u8]| {
        let mut before = None;
        db.update(b"key", &mut |present| {
            before = present.map(<[u8]>::to_vec);
            Edit::Put(value.to_vec().into())
        })
        .unwrap();
        before
    };
    assert_eq!(replace(b"1"), None);
    assert_eq!(replace(b"2"), Some(b"1".to_vec()));
    db.merge(&mut |_, _| {}).unwrap();
    assert_eq!(replace(b"3"), Some(b"2".to_vec()));
}

/// What a pending edit adds to is in a damaged block: the record is lost, and not what was added alone.
#[test]
fn a_scan_past_damage_does_not_show_what_was_added_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    let options = EditOptions::new();
    let name = |number: u32| format!("{number:08}").into_bytes();
    let db = ReducingSkipDb::create_reducing(&path, Reducer::TotalDecimal, &options).unwrap();
    for number in 0..20_000 {
        db.add(&name(number), b"1000").unwrap();
    }
    db.merge(&mut |_, _| {}).unwrap();
    for number in (0..20_000).step_by(7) {
        db.add(&name(number), b"5").unwrap();
    }
    db.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64]
        .iter_mut()
        .for_each(|byte| *byte ^= 0x55);
    std::fs::write(&path, bytes).unwrap();
    let db = ReducingSkipDb::open_reducing(&path, Reducer::TotalDecimal, &options).unwrap();
    let (mut shown, mut errors) = (0, 0);
    let end = db.scan_past(
        None,
        &mut |key, value| {
            let number: u32 = String::from_utf8_lossy(key).parse().unwrap();
            let expected: &[u8] = if number.is_multiple_of(7) {
                b"1005"
            } else {
                b"1000"
            };
            assert_eq!(value, expected, "{number}");
            shown += 1;
            ControlFlow::Continue(())
        },
        &mut |_| {
            errors += 1;
            Ok(())
        },
    );
    assert!(end.unwrap().is_none());
    assert!(
        errors == 1 && shown > 19_000 && shown < 20_000,
        "{shown} shown"
    );
}
