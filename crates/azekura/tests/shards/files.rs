//! The files of a store of several shards: what is missing, exchanged, foreign or damaged is refused, by name, and what was repaired is
//! taken in on request.
//!
//! Through the door, as a program uses it, and through the types.

use std::path::{Path, PathBuf};

use azekura::engine::{CheckReport, Persistent};
use azekura::order::Order;
use azekura::record::hash::{self, HashDb};
use azekura::record::tree::{self, TreeDb};
use azekura::shard::Sharded;
use azekura::{Db, Edit, Kind};

use super::scanned;

fn shard(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".shard-{number:03}"));
    name.into()
}

/// Records of a number, in order.
fn fill(db: &Db, count: u32) {
    for number in 0..count {
        db.put(format!("{number:05}"), number.to_le_bytes())
            .unwrap();
    }
}

fn is_full(db: &Db, count: u32) {
    assert_eq!(db.count(), u64::from(count));
    for number in 0..count {
        let found = db.get(format!("{number:05}")).unwrap();
        assert_eq!(found.as_deref(), Some(&number.to_le_bytes()[..]));
    }
}

fn refused(path: &Path, kind: Kind, shown: &str) {
    let error = azekura::open(path).map(drop).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(shown), "{error}");
}

fn with_parameters(path: &Path, parameters: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(parameters);
    name.into()
}

fn sound(db: &Db) -> CheckReport {
    let report = db.check(|done, total| assert!(done <= total)).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
    report
}

#[test]
fn the_door_makes_and_opens_shards_of_both_engines() {
    for name in ["a.azt", "a.azh"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let is_tree = name.ends_with('t');
        let sizes = if is_tree {
            "&cache=8MiB"
        } else {
            "&space_ratio=2"
        };
        let db = azekura::create(with_parameters(&path, &format!("?shards=4{sizes}"))).unwrap();
        fill(&db, 3000);
        assert_eq!(db.order(), is_tree.then_some(Order::Lexical));
        let keys: Vec<String> = (0..30).map(|n| format!("{n:05}")).collect();
        db.update_many(&keys, |values| {
            assert!(values.iter().all(Option::is_some));
            keys.iter().map(|_| Edit::Keep).collect()
        })
        .unwrap();
        if is_tree {
            let range = db.range("00100".."00200").unwrap();
            let found: Vec<_> = range.map(|record| record.unwrap().0).collect();
            assert_eq!(found.len(), 100);
            assert!(found.is_sorted());
            assert_eq!(db.last().unwrap().unwrap().0, b"02999");
            let refused = db.snapshot().map(drop).unwrap_err();
            assert!(refused.to_string().contains("no snapshots"), "{refused}");
            assert!(db.transaction().is_err());
            let mut cursor = db.cursor().unwrap();
            assert!(cursor.seek(b"01000").unwrap() && cursor.previous().unwrap());
            assert_eq!(cursor.record().unwrap().0, b"00999");
        } else {
            let refused = db.range::<&[u8]>(..).map(drop).unwrap_err();
            assert_eq!(refused.kind(), Kind::Invalid);
            db.compact(|_, _| {}).unwrap();
        }
        assert_eq!(db.iter().count(), 3000);
        assert_eq!(sound(&db).records, 3000);
        assert!(db.damage().is_empty());
        let of = |name: &str| {
            let found = db.inspect().into_iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| value).unwrap_or_default()
        };
        assert_eq!(
            (of("shards"), of("count")),
            ("4".to_owned(), "3000".to_owned())
        );
        assert_eq!(of("engine"), if is_tree { "tree" } else { "hash" });
        refused(&path, Kind::Locked, name);
        db.sync().unwrap();
        db.close().unwrap();

        // Under its own number, or none; as whatever engine; for reading; and a copy.
        for parameters in ["", "?shards=4"] {
            let db = azekura::open(with_parameters(&path, parameters)).unwrap();
            is_full(&db, 3000);
            db.close().unwrap();
        }
        let db = azekura::open::open(&path).unwrap();
        assert_eq!(db.count(), 3000);
        let copy = folder.path().join("copy");
        db.as_persistent()
            .unwrap()
            .copy_to(&copy, &mut |_, _| {})
            .unwrap();
        let again = db.as_persistent().unwrap().copy_to(&copy, &mut |_, _| {});
        assert_eq!(again.unwrap_err().kind(), Kind::Invalid);
        drop(db);
        is_full(&azekura::open(&copy).unwrap(), 3000);
        let reader = azekura::open::open_read_only(&path).unwrap();
        assert_eq!(reader.count(), 3000);
        assert!(
            reader
                .as_persistent()
                .unwrap()
                .check(&mut |_, _| {})
                .unwrap()
                .is_sound()
        );
        let copy = folder.path().join("copy of a reader");
        reader
            .as_persistent()
            .unwrap()
            .copy_to(&copy, &mut |_, _| {})
            .unwrap();
        is_full(&azekura::open(&copy).unwrap(), 3000);
        drop(reader);
        let (properties, reader) = azekura::open::inspect(&path).unwrap();
        assert!(
            properties.contains(&("shards", "4".to_owned())),
            "{properties:?}"
        );
        assert_eq!(reader.count(), 3000);
    }
}

#[test]
fn another_number_of_shards_is_refused_and_nothing_is_made_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let made = azekura::create(with_parameters(&path, "?shards=3")).unwrap();
    fill(&made, 100);
    made.close().unwrap();
    for other in ["?shards=2", "?shards=4"] {
        let found = azekura::open(with_parameters(&path, other))
            .map(drop)
            .unwrap_err();
        assert_eq!(found.kind(), Kind::Mismatch);
        assert!(found.to_string().contains("found 3, expected"), "{found}");
    }
    let error = azekura::create(with_parameters(&path, "?shards=3")).map(drop);
    assert_eq!(error.unwrap_err().kind(), Kind::Invalid);
    let plain = folder.path().join("b.azt");
    azekura::create(&plain).unwrap().close().unwrap();
    let found = azekura::open(with_parameters(&plain, "?shards=1"))
        .map(drop)
        .unwrap_err();
    assert!(
        found.to_string().contains("found one file, expected 1"),
        "{found}"
    );
    // A manifest is no store of one file; nor are its shards of another engine.
    let opening = tree::OpenOptions::new();
    let error = TreeDb::open(&path, &opening).map(drop).unwrap_err();
    assert!(
        error.to_string().contains("found shards, expected tree"),
        "{error}"
    );
    let other = Sharded::<HashDb>::open(&path, &hash::OpenOptions::new());
    let error = other.map(drop).unwrap_err();
    assert!(
        error.to_string().contains("found tree, expected hash"),
        "{error}"
    );
    // What is too little for so many; and nothing is left of it.
    let small = folder.path().join("small.azt");
    let error = azekura::create(with_parameters(&small, "?shards=8&cache=1MiB")).map(drop);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("shard 0 of 8"), "{error}");
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .collect();
    let left = left
        .iter()
        .filter(|file| file.path().to_string_lossy().contains("small"));
    assert_eq!(left.count(), 0);
    // A shard's file of a store whose manifest is not there.
    std::fs::rename(&path, folder.path().join("kept")).unwrap();
    let error = azekura::create(with_parameters(&path, "?shards=3"))
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    let file = shard(&path, 0).display().to_string();
    assert!(
        error.to_string().contains(&format!("at {file};")),
        "{error}"
    );
    std::fs::rename(folder.path().join("kept"), &path).unwrap();
    is_full(&azekura::open(&path).unwrap(), 100);
}

#[test]
fn a_missing_exchanged_or_foreign_file_is_refused_by_name() {
    for name in ["a.azt", "a.azh"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        for path in [&path, &folder.path().join(format!("other-{name}"))] {
            let db = azekura::create(with_parameters(path, "?shards=3")).unwrap();
            fill(&db, 1000);
            db.close().unwrap();
        }
        let at = |number| shard(&path, number);
        let aside = folder.path().join("aside");
        std::fs::rename(at(1), &aside).unwrap();
        refused(&path, Kind::Mismatch, "shard 1 of 3 is missing");
        refused(&path, Kind::Mismatch, &at(1).display().to_string());
        std::fs::rename(at(2), at(1)).unwrap();
        std::fs::rename(&aside, at(2)).unwrap();
        refused(&path, Kind::Mismatch, "it is shard 2 of this store");
        std::fs::rename(at(1), &aside).unwrap();
        std::fs::rename(at(2), at(1)).unwrap();
        std::fs::rename(&aside, at(2)).unwrap();
        is_full(&azekura::open(&path).unwrap(), 1000);
        let other = shard(&folder.path().join(format!("other-{name}")), 2);
        std::fs::rename(at(2), &aside).unwrap();
        std::fs::copy(&other, at(2)).unwrap();
        refused(&path, Kind::Mismatch, "it is of no shard of this store");
        std::fs::write(at(2), "text").unwrap();
        refused(&path, Kind::Mismatch, "not an azekura file");
        std::fs::rename(&aside, at(2)).unwrap();
        // The manifest: one slot heals, two are fatal, and the shards open by themselves.
        let whole = std::fs::read(&path).unwrap();
        let damaged = |slots: &[usize]| {
            let mut bytes = whole.clone();
            for slot in slots {
                bytes[slot * 4096 + 50] ^= 4;
            }
            std::fs::write(&path, bytes).unwrap();
        };
        damaged(&[1]);
        let reader = azekura::open::open_read_only(&path).unwrap();
        let report = reader
            .as_persistent()
            .unwrap()
            .check(&mut |_, _| {})
            .unwrap();
        // A tree is opened as for writing, which writes the slot again.
        let is_tree = name.ends_with('t');
        assert!(!report.needs_repair() && report.is_sound() == is_tree);
        drop(reader);
        let db = azekura::open(&path).unwrap();
        is_full(&db, 1000);
        sound(&db);
        db.close().unwrap();
        damaged(&[0, 1]);
        let error = azekura::open(&path).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted, "{error}");
        let counts = (0..3).map(|number| azekura::open(at(number)).unwrap().count());
        assert_eq!(counts.sum::<u64>(), 1000);
        // No prefix of a manifest opens, or panics.
        for len in [0, 1, 40, 4096, 5000] {
            std::fs::write(&path, &whole[..len]).unwrap();
            let opened = azekura::open(&path);
            assert!(len == 4096 || len == 5000 || opened.is_err(), "{len}");
        }
    }
}

/// Such a store was left without its other slot, and changes that were applied to such a copy failed when its first slot stated them.
#[test]
fn a_manifest_that_was_cut_off_is_written_whole_again() {
    for name in ["a.azt", "a.azh"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let db = azekura::create(with_parameters(&path, "?shards=3")).unwrap();
        fill(&db, 1000);
        db.close().unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), 8192);
        for len in [1000, 4096, 4097, 5000] {
            std::fs::write(&path, &whole[..len]).unwrap();
            let db = azekura::open(&path).unwrap();
            is_full(&db, 1000);
            sound(&db);
            db.close().unwrap();
            let now = std::fs::read(&path).unwrap();
            assert_eq!(now.len(), whole.len(), "{name} cut at {len}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let db = azekura::create(with_parameters(&at("a.azt"), "?shards=3")).unwrap();
    fill(&db, 500);
    db.copy_to(at("c.azt"), |_, _| {}).unwrap();
    let since = azekura::Db::checkpoints_of(at("c.azt")).unwrap();
    fill(&db, 1000);
    db.copy_changes(&since, at("changes"), |_, _| {}).unwrap();
    let whole = std::fs::read(at("c.azt")).unwrap();
    std::fs::write(at("c.azt"), &whole[..4000]).unwrap();
    azekura::Db::apply_changes(at("c.azt"), at("changes"), |_, _| {}).unwrap();
    is_full(&azekura::open(at("c.azt")).unwrap(), 1000);
}

#[test]
fn a_repaired_shard_is_taken_in_on_request_and_a_wrong_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let options = tree::CreateOptions::new().order(Order::Decimal);
    let db = Sharded::<TreeDb>::create(&path, 3, &options).unwrap();
    for number in 0..2000_u32 {
        azekura::Verbs::put(&db, number.to_string().as_bytes(), b"value").unwrap();
    }
    let before = scanned(&db);
    assert_eq!(before[1999].0, b"1999");
    db.close().unwrap();
    let (old, new) = (shard(&path, 1), folder.path().join("repaired"));
    tree::repair(&old, &new, &mut |_, _| {}).unwrap();
    std::fs::rename(&new, &old).unwrap();
    refused(&path, Kind::Mismatch, "open_replaced");
    let opening = tree::OpenOptions::new();
    let db = Sharded::<TreeDb>::open_replaced(&path, &opening).unwrap();
    assert_eq!(scanned(&db), before);
    db.close().unwrap();
    let db = Sharded::<TreeDb>::open(&path, &opening).unwrap();
    assert_eq!(scanned(&db), before);
    db.close().unwrap();
    // Exchanged files hold records of each other.
    let aside = folder.path().join("aside");
    std::fs::rename(&old, &aside).unwrap();
    std::fs::rename(shard(&path, 0), &old).unwrap();
    std::fs::rename(&aside, shard(&path, 0)).unwrap();
    let error = Sharded::<TreeDb>::open_replaced(&path, &opening).unwrap_err();
    assert_eq!(error.kind(), Kind::Mismatch);
    assert!(error.to_string().contains("belong into others"), "{error}");
    refused(&path, Kind::Mismatch, "files were exchanged");
}

/// What a shard holds that is not its own is damage, which a check states.
#[test]
fn a_check_finds_records_in_the_wrong_shard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azh");
    let options = hash::CreateOptions::new();
    let db = Sharded::<HashDb>::create(&path, 2, &options).unwrap();
    let key = b"astray";
    let wrong = 1 - db.shard_of(key);
    azekura::Verbs::put(&db.shards()[wrong], key, b"value").unwrap();
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.needs_repair());
    let found = &report.damage[0];
    assert!(
        found.contains(&format!("shard-00{wrong}")) && found.contains("astray"),
        "{found}"
    );
}
