//! Wrong input, files that do not belong together, and damage of the pending file: each is an error that states what, where and what to
//! do, and changes nothing; the sorted file stays readable. Of a damaged pending file what was synced is read, or nothing.
//!
//! It does not damage the sorted file: the suite of that does.

use std::path::{Path, PathBuf};

use azekura::io::sim::SimDisk;
use azekura::order::Order;
use azekura::record::skip::{
    BuildOptions, EditOptions, Reducer, ReducingSkipDb, SkipBuilder, SkipDb, SkipReader,
};
use azekura::testkit::suite::{case, demand, share};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Kind, Persistent as _, Reader as _, Verbs as _};

use super::super::refused::{folder, is};
use super::super::{NAME, Records};
use super::{Store, all};

fn pending_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pending");
    name.into()
}

fn options() -> EditOptions {
    EditOptions::new()
}

#[test]
fn options_and_reducers_out_of_range_are_refused() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let little = SkipDb::create(&path, &options().memory(100u64)).unwrap_err();
    is(
        &little,
        Kind::Invalid,
        &["too little memory", "4 KiB or more"],
    );
    let own = Reducer::Own(std::sync::Arc::new(|_, _| {}));
    for reducer in [Reducer::Second, Reducer::All, own] {
        let refused = ReducingSkipDb::create_reducing(&path, reducer, &options());
        is(
            &refused.unwrap_err(),
            Kind::Invalid,
            &["when pending edits are merged", "a.azs"],
        );
    }
    let long = Reducer::Concat(vec![b','; 256]);
    let refused = ReducingSkipDb::create_reducing(&path, long, &options()).unwrap_err();
    is(&refused, Kind::Invalid, &["at most 255 bytes"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn names_that_are_taken_are_refused() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    std::fs::write(pending_of(&path), b"someone else's").unwrap();
    let refused = SkipDb::create(&path, &options()).unwrap_err();
    is(
        &refused,
        Kind::Invalid,
        &["pending edits of this name", "a.azs.pending"],
    );
    std::fs::remove_file(pending_of(&path)).unwrap();
    std::fs::write(&path, b"someone else's").unwrap();
    is(
        &SkipDb::create(&path, &options()).unwrap_err(),
        Kind::Invalid,
        &["a.azs"],
    );
    let refused = SkipDb::open(&path, &options()).unwrap_err();
    is(&refused, Kind::Mismatch, &["not an azekura file"]);
    assert!(!pending_of(&path).exists());
    let absent = SkipDb::open(folder.path().join("none.azs"), &options()).unwrap_err();
    is(&absent, Kind::Io, &["none.azs"]);
}

#[test]
fn a_second_store_of_one_file_is_refused() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let db = SkipDb::create(&path, &options()).unwrap();
    db.put(b"a", b"1").unwrap();
    for _ in 0..2 {
        let refused = SkipDb::open(&path, &options()).unwrap_err();
        is(&refused, Kind::Locked, &["a.azs.pending"]);
        db.merge(&mut |_, _| {}).unwrap();
    }
    // Readers are not kept out.
    assert_eq!(SkipReader::open(&path).unwrap().count(), 1);
    drop(db);
    assert_eq!(SkipDb::open(&path, &options()).unwrap().count(), 1);
}

#[test]
fn pending_edits_of_another_file_or_an_older_copy_are_refused() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let db = SkipDb::create(at("a.azs"), &options()).unwrap();
    db.put(b"a", b"1").unwrap();
    db.merge(&mut |_, _| {}).unwrap();
    std::fs::copy(at("a.azs"), at("old")).unwrap();
    db.put(b"b", b"2").unwrap();
    db.merge(&mut |_, _| {}).unwrap();
    db.put(b"c", b"3").unwrap();
    db.close().unwrap();
    std::fs::copy(at("a.azs"), at("new")).unwrap();
    // An older copy: the edit of `b` is in neither.
    std::fs::copy(at("old"), at("a.azs")).unwrap();
    let refused = SkipDb::open(at("a.azs"), &options()).unwrap_err();
    is(
        &refused,
        Kind::Mismatch,
        &[
            "it is an older copy",
            "a.azs.pending",
            "itself stays readable",
            "remove this file",
        ],
    );
    assert_eq!(SkipReader::open(at("a.azs")).unwrap().count(), 1);
    // Another file.
    std::fs::remove_file(at("a.azs")).unwrap();
    let mut builder = SkipBuilder::create(at("a.azs"), &BuildOptions::new()).unwrap();
    builder.put(b"x", b"y").unwrap();
    builder.finish(&mut |_, _| {}).unwrap();
    let refused = SkipDb::open(at("a.azs"), &options()).unwrap_err();
    is(
        &refused,
        Kind::Mismatch,
        &["of another sorted file", "expected file"],
    );
    // The right one.
    std::fs::copy(at("new"), at("a.azs")).unwrap();
    let db = SkipDb::open(at("a.azs"), &options()).unwrap();
    assert_eq!(db.count(), 3);
    drop(db);
    // Without its pending file it is what was merged last, and takes edits.
    std::fs::remove_file(at("a.azs.pending")).unwrap();
    let db = SkipDb::open(at("a.azs"), &options()).unwrap();
    assert_eq!(db.count(), 2);
    db.put(b"d", b"4").unwrap();
    drop(db);
    assert_eq!(SkipDb::open(at("a.azs"), &options()).unwrap().count(), 3);
}

#[test]
fn another_reducer_and_another_engine_are_refused() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let total = || Reducer::TotalDecimal;
    let db = ReducingSkipDb::create_reducing(&path, total(), &options()).unwrap();
    db.add(b"a", b"1").unwrap();
    drop(db);
    let refused = SkipDb::open(&path, &options()).unwrap_err();
    is(
        &refused,
        Kind::Mismatch,
        &["another reducer", "found total-decimal, expected last"],
    );
    let db = ReducingSkipDb::open_reducing(&path, total(), &options()).unwrap();
    assert_eq!(db.get(b"a").unwrap(), Some(b"1".to_vec()));
    drop(db);
    std::fs::remove_file(pending_of(&path)).unwrap();
    azekura::create(pending_of(&path)).unwrap().close().unwrap();
    let refused = SkipDb::open(&path, &options()).unwrap_err();
    is(
        &refused,
        Kind::Mismatch,
        &["found hash", "a.azs.pending", "move the other file away"],
    );
}

#[test]
fn a_file_in_which_keys_repeat_is_refused_and_long_keys_that_begin_alike_are_not() {
    let folder = folder();
    let build = |name: &str, keys: &[Vec<u8>]| {
        let path = folder.path().join(name);
        let mut builder =
            SkipBuilder::create(&path, &BuildOptions::new().reducer(Reducer::All)).unwrap();
        for key in keys {
            builder.put(key, b"value").unwrap();
        }
        assert!(builder.finish(&mut |_, _| {}).unwrap().may_repeat());
        path
    };
    let path = build(
        "a.azs",
        &[b"a".to_vec(), b"twice".to_vec(), b"twice".to_vec()],
    );
    let refused = SkipDb::open(path, &options()).unwrap_err();
    is(
        &refused,
        Kind::Invalid,
        &["keys repeat", "\"twice\"", "azekura skip merge"],
    );
    let long = |end: u8| [vec![b'k'; 600], vec![end]].concat();
    let path = build("b.azs", &[long(1), long(2)]);
    for _ in 0..2 {
        let db = SkipDb::open(&path, &options()).unwrap();
        db.put(&long(3), b"third").unwrap();
        db.remove(&long(1)).unwrap();
        assert_eq!(db.count(), 2);
        assert_eq!(db.get(&long(2)).unwrap(), Some(b"value".to_vec()));
        db.merge(&mut |_, _| {}).unwrap();
        assert_eq!(db.base().count(), 2);
    }
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let decimal = options().order(Order::Decimal);
    let db = SkipDb::create(&path, &decimal).unwrap();
    is(
        &db.put(&[b'1'; 510], b"").unwrap_err(),
        Kind::TooLarge,
        &["in this order"],
    );
    db.put(&[b'1'; 509], b"").unwrap();
    db.merge(&mut |_, _| {}).unwrap();
    assert_eq!(db.base().count(), 1);
    // A bookmark of other bytes.
    let bookmark = azekura::engine::Bookmark::from_bytes(b"\x07key");
    let visit = &mut |_: &[u8], _: &[u8]| std::ops::ControlFlow::Continue(());
    is(
        &db.scan(Some(&bookmark), visit).unwrap_err(),
        Kind::Invalid,
        &["bookmark"],
    );
}

/// What another program has put under the name is left as it is, and what is edited stays pending.
#[test]
fn a_file_that_was_replaced_is_not_overwritten() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let db = SkipDb::create(&path, &options()).unwrap();
    for round in 0..2 {
        db.put(b"key", b"1").unwrap();
        db.verify_path().unwrap();
        let kept = folder.path().join("kept");
        std::fs::rename(&path, &kept).unwrap();
        std::fs::write(&path, b"someone else's").unwrap();
        assert_eq!(db.verify_path().unwrap_err().kind(), Kind::Io, "{round}");
        assert_eq!(db.merge(&mut |_, _| {}).unwrap_err().kind(), Kind::Io);
        assert_eq!(std::fs::read(&path).unwrap(), b"someone else's");
        assert!(db.has_pending());
        std::fs::rename(&kept, &path).unwrap();
        let before = SkipReader::open(&path).unwrap();
        before.verify_path().unwrap();
        db.merge(&mut |_, _| {}).unwrap();
        let after = SkipReader::open(&path).unwrap();
        after.verify_path().unwrap();
        // A reader of the file before keeps it, and can see that it is replaced.
        assert_eq!((before.count(), after.count()), (round, 1));
        assert_eq!(before.verify_path().unwrap_err().kind(), Kind::Io);
    }
}

/// What a repair leaves of a damaged file is the one that its pending edits belong to.
#[test]
fn a_repaired_file_takes_its_pending_edits() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let db = SkipDb::create(at("a.azs"), &options()).unwrap();
    for number in 0..2000u32 {
        db.put(&number.to_le_bytes(), &[7; 100]).unwrap();
    }
    db.merge(&mut |_, _| {}).unwrap();
    db.put(b"pending", b"1").unwrap();
    db.close().unwrap();
    let mut bytes = std::fs::read(at("a.azs")).unwrap();
    bytes[40_000] ^= 1;
    std::fs::write(at("a.azs"), &bytes).unwrap();
    // Its damage keeps it from being merged, and nothing else.
    let db = SkipDb::open(at("a.azs"), &options()).unwrap();
    assert_eq!(
        db.merge(&mut |_, _| {}).unwrap_err().kind(),
        Kind::Corrupted
    );
    assert_eq!(db.get(b"pending").unwrap(), Some(b"1".to_vec()));
    assert!(!db.check(&mut |_, _| {}).unwrap().is_sound());
    drop(db);
    let repaired = azekura::record::skip::repair(&at("a.azs"), &at("b.azs"), &mut |_, _| {});
    let left = repaired.unwrap().recovered;
    assert!(left < 2000 && left > 1800);
    std::fs::rename(at("b.azs"), at("a.azs")).unwrap();
    let db = SkipDb::open(at("a.azs"), &options()).unwrap();
    db.merge(&mut |_, _| {}).unwrap();
    assert_eq!(db.base().count(), left + 1);
}

/// A call from within another store's closure would wait for itself.
#[test]
fn a_merge_within_an_update_of_another_store_is_refused() {
    let folder = folder();
    let db = SkipDb::create(folder.path().join("a.azs"), &options().memory(4096u64)).unwrap();
    let other = SkipDb::create(folder.path().join("b.azs"), &options()).unwrap();
    let mut refused = Vec::new();
    azekura::Engine::update(&other, b"key", &mut |_| {
        // Edits are taken, also many: they merge later.
        for number in 0..200u32 {
            db.put(&number.to_le_bytes(), &[7; 100]).unwrap();
        }
        refused.push(db.merge(&mut |_, _| {}).unwrap_err());
        refused.push(db.revert().unwrap_err());
        refused.push(azekura::Engine::clear(&db).unwrap_err());
        refused.push(db.check(&mut |_, _| {}).unwrap_err());
        azekura::Edit::Keep
    })
    .unwrap();
    for error in refused {
        is(&error, Kind::Invalid, &["from the closure of an update"]);
    }
    assert_eq!((db.count(), db.base().count()), (200, 0));
    db.put(b"last", b"").unwrap();
    assert_eq!(db.base().count(), 200);
}

/// A bit of the pending file: what was synced is read, or the opening is refused; never other answers.
#[test]
fn a_flipped_bit_of_the_pending_file_gives_no_other_answer() {
    let (mut refused, mut read) = (0, 0);
    for round in 0..share(600) {
        let seed = round_seed() + 40_000_000 + round;
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let reducer = *random.choose(&["last", "total-decimal"]);
        let _case = case(seed, &reducer);
        let store = Store::create(&disk, reducer, &options().memory(1u64 << 20)).unwrap();
        let put = |store: &Store, random: &mut Random| {
            let key = random.below(100).to_string().into_bytes();
            let value = random.below(1 << 20).to_string().into_bytes();
            store.put(&key, &value).unwrap();
        };
        for _ in 0..random.index(60) {
            put(&store, &mut random);
        }
        store.merge().unwrap();
        let merged = all(&*store.base()).unwrap();
        for _ in 0..=random.index(60) {
            put(&store, &mut random);
        }
        store.persistent().sync(Durability::Power).unwrap();
        let expected: Records = all(store.reader()).unwrap();
        let is_closed = random.one_in(2);
        if is_closed {
            store.close().unwrap();
        } else {
            std::mem::forget(store);
        }
        let disk = disk.kill_state(disk.events());
        let pending = format!("{NAME}.pending");
        let name = Path::new(&pending);
        let storage =
            azekura::io::Directory::open(&disk.directory(), name, azekura::io::Access::Read);
        let size = storage.unwrap().size().unwrap();
        // Most of the file is blank.
        let offset = match random.index(4) {
            0 => random.below(16 << 10),
            _ => (16 << 10) + random.below((size - (16 << 10)).min(2048)),
        };
        disk.rot(name, offset, 1 << random.index(8));
        match Store::open(&disk, reducer, &options()) {
            Ok(store) => {
                read += 1;
                assert!(all(store.reader()).unwrap() == expected, "other records");
            }
            Err(error) => {
                refused += 1;
                is(
                    &error,
                    Kind::Corrupted,
                    &[&pending, "itself stays readable"],
                );
            }
        }
        let directory = disk.directory();
        let file =
            azekura::io::Directory::open(&directory, Path::new(NAME), azekura::io::Access::Read);
        let file = SkipReader::open_on(file.unwrap()).unwrap();
        assert!(all(&file).unwrap() == merged, "the sorted file");
    }
    demand(refused, share(600) / 20, "pending files refused for a bit");
    demand(read, share(600) / 10, "pending files read in spite of it");
}

#[test]
fn a_pending_file_that_is_cut_off_is_refused() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let db = SkipDb::create(&path, &options().memory(64u64 << 10)).unwrap();
    for number in 0..200u32 {
        db.put(&number.to_le_bytes(), &[7; 100]).unwrap();
    }
    db.close().unwrap();
    let whole = std::fs::read(pending_of(&path)).unwrap();
    let mut lens: Vec<usize> = (0..whole.len()).step_by(997).collect();
    lens.extend([1, 4095, 4096, 8191, 8192, 16384, 16448]);
    for len in lens {
        std::fs::write(pending_of(&path), &whole[..len]).unwrap();
        match SkipDb::open(&path, &options()) {
            Ok(db) => assert_eq!(db.count(), 200, "{len}"),
            Err(error) => {
                let kinds = [Kind::Corrupted, Kind::Mismatch];
                assert!(kinds.contains(&error.kind()), "{len}: {error}");
            }
        }
        assert_eq!(SkipReader::open(&path).unwrap().count(), 0);
    }
}
