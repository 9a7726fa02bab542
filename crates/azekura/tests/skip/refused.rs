//! Wrong input: each is refused with what was found, what was expected, and what to do; and no file is made. A file that has the
//! name by then is left as it is.
//!
//! It does not damage files: `damage` does.

use std::sync::Arc;

use azekura::engine::{Bookmark, Reader as _};
use azekura::order::Order;
use azekura::record::hash::HashReader;
use azekura::record::skip::{BuildOptions, Reducer, SkipBuilder, SkipReader};
use azekura::{Error, Kind};

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn file(folder: &tempfile::TempDir, name: &str, options: &BuildOptions) -> Arc<SkipReader> {
    let mut builder = SkipBuilder::create(folder.path().join(name), options).unwrap();
    builder.put(b"1", b"one").unwrap();
    Arc::new(builder.finish(&mut |_, _| {}).unwrap())
}

pub(crate) fn is(error: &Error, kind: Kind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn a_record_out_of_the_promised_order_is_refused_with_its_number() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let options = BuildOptions::new().is_sorted(true);
    let mut builder = SkipBuilder::create(&path, &options).unwrap();
    builder.put(b"apple", b"1").unwrap();
    builder.put(b"pear", b"2").unwrap();
    let error = builder.put(b"banana", b"3").unwrap_err();
    is(
        &error,
        Kind::Invalid,
        &["record 3", "\"banana\"", "\"pear\"", "sort the input"],
    );
    is(
        &builder.put(b"zebra", b"4").unwrap_err(),
        Kind::Poisoned,
        &["build it again"],
    );
    is(
        &builder.finish(&mut |_, _| {}).unwrap_err(),
        Kind::Poisoned,
        &["a.azs"],
    );
    assert!(!path.exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_name_that_exists_is_refused_at_both_ends() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let options = BuildOptions::new();
    let mut builder = SkipBuilder::create(&path, &options).unwrap();
    builder.put(b"a", b"b").unwrap();
    std::fs::write(&path, b"someone else's").unwrap();
    is(
        &builder.finish(&mut |_, _| {}).unwrap_err(),
        Kind::Invalid,
        &["a.azs"],
    );
    is(
        &SkipBuilder::create(&path, &options).unwrap_err(),
        Kind::Invalid,
        &["a.azs"],
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"someone else's");
}

#[test]
fn options_and_records_out_of_range_are_refused() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let little = BuildOptions::new().memory(1000u64);
    is(
        &SkipBuilder::create(&path, &little).unwrap_err(),
        Kind::Invalid,
        &["too little memory"],
    );
    let mut builder = SkipBuilder::create(&path, &BuildOptions::new()).unwrap();
    is(
        &builder.put(&vec![0; 8 << 20], b"").unwrap_err(),
        Kind::TooLarge,
        &["8.0 MiB"],
    );
    is(
        &builder.remove(&vec![0; 8 << 20]).unwrap_err(),
        Kind::TooLarge,
        &["8.0 MiB"],
    );
    builder.put(&vec![0; (8 << 20) - 1], b"").unwrap();
    assert_eq!(builder.finish(&mut |_, _| {}).unwrap().count(), 1);
    let decimal = BuildOptions::new().order(Order::Decimal);
    let mut builder = SkipBuilder::create(folder.path().join("b.azs"), &decimal).unwrap();
    is(
        &builder.put(&[b'1'; 510], b"").unwrap_err(),
        Kind::TooLarge,
        &["in this order"],
    );
    builder.put(&[b'1'; 509], b"").unwrap();
    // A key that is no number has a place, too.
    builder.put(b"none", b"").unwrap();
    let file = builder.finish(&mut |_, _| {}).unwrap();
    assert_eq!(file.by_index(0).unwrap().unwrap().0, b"none");
    // No key of that length can be in the file.
    assert_eq!(file.get(&[b'1'; 600]).unwrap(), None);
}

#[test]
fn files_that_do_not_fit_together_are_refused() {
    let folder = folder();
    let options = BuildOptions::new();
    let decimal = file(
        &folder,
        "decimal.azs",
        &BuildOptions::new().order(Order::Decimal),
    );
    let mut builder = SkipBuilder::create(folder.path().join("a.azs"), &options).unwrap();
    let error = builder.merge(&decimal).unwrap_err();
    is(
        &error,
        Kind::Mismatch,
        &["decimal.azs", "found decimal, expected lexical"],
    );
    let lexical = file(&folder, "lexical.azs", &options);
    builder.merge(&lexical).unwrap();
    assert_eq!(builder.finish(&mut |_, _| {}).unwrap().count(), 1);
    let sorted = BuildOptions::new().is_sorted(true);
    let mut builder = SkipBuilder::create(folder.path().join("b.azs"), &sorted).unwrap();
    is(
        &builder.merge(&lexical).unwrap_err(),
        Kind::Invalid,
        &["leave the promise out"],
    );
    let as_hash = HashReader::open(folder.path().join("lexical.azs"))
        .err()
        .unwrap();
    is(&as_hash, Kind::Mismatch, &["found skip, expected hash"]);
    std::fs::write(folder.path().join("text"), b"no store").unwrap();
    is(
        &SkipReader::open(folder.path().join("text")).unwrap_err(),
        Kind::Mismatch,
        &["not an azekura file"],
    );
    is(
        &SkipReader::open(folder.path().join("none")).unwrap_err(),
        Kind::Io,
        &["none"],
    );
}

#[test]
fn a_bookmark_of_other_bytes_is_refused() {
    let folder = folder();
    let file = file(&folder, "a.azs", &BuildOptions::new().reducer(Reducer::All));
    for bytes in [&b""[..], b"\x02short", b"\x03key"] {
        let bookmark = Bookmark::from_bytes(bytes);
        let error = file
            .scan(Some(&bookmark), &mut |_, _| {
                std::ops::ControlFlow::Continue(())
            })
            .unwrap_err();
        is(&error, Kind::Invalid, &["bookmark"]);
    }
    // One that states more than there is leads to the end.
    let bookmark = Bookmark::from_bytes(&[&[2], &[0xff; 8][..]].concat());
    let end = file.scan(Some(&bookmark), &mut |_, _| {
        std::ops::ControlFlow::Continue(())
    });
    assert!(end.unwrap().is_none());
}

#[test]
fn a_builder_that_is_dropped_leaves_nothing() {
    let folder = folder();
    let path = folder.path().join("a.azs");
    let mut builder = SkipBuilder::create(&path, &BuildOptions::new().memory(64u64 << 10)).unwrap();
    for number in 0..10_000u32 {
        builder.put(&number.to_le_bytes(), b"value").unwrap();
    }
    drop(builder);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// What ends a file of another engine may be anything, also the end of a sorted file.
#[test]
fn a_hash_file_that_ends_as_a_sorted_one_is_a_hash_file() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    file(&folder, "a.azs", &BuildOptions::new());
    azekura::create(at("b.azh")).unwrap().close().unwrap();
    let mut bytes = std::fs::read(at("a.azs")).unwrap();
    let hash = std::fs::read(at("b.azh")).unwrap();
    bytes[..8192].copy_from_slice(&hash[..8192]);
    std::fs::write(at("c"), &bytes).unwrap();
    assert!(!azekura::open::is_sorted(&at("c")).unwrap());
    let refused = SkipReader::open(at("c")).unwrap_err();
    is(&refused, Kind::Mismatch, &["found hash, expected skip"]);
    // Of a file that was cut off, and whose beginning is lost, another size is stated.
    bytes[..8192].fill(0);
    bytes.drain(8192..8192 + 4096);
    std::fs::write(at("c"), &bytes).unwrap();
    assert!(!azekura::open::is_sorted(&at("c")).unwrap());
}

/// A store that a failed sync poisoned reports that, also where a caller asks for no more than is done anyway.
#[test]
fn a_poisoned_store_refuses_every_sync() {
    use azekura::io::sim::{Fault, Operation, SimDisk};
    use azekura::{Durability, Persistent as _, Verbs as _};
    let disk = SimDisk::new(1);
    let name = std::path::Path::new("a.azs");
    let options = azekura::record::skip::EditOptions::new();
    let made = azekura::record::skip::SkipDb::create_in(Box::new(disk.directory()), name, &options);
    let db = made.unwrap();
    db.put(b"key", b"value").unwrap();
    db.sync(Durability::Process).unwrap();
    let syncs = disk.faults().count(Operation::Sync);
    disk.faults().fail(Operation::Sync, syncs, Fault::Error);
    db.sync(Durability::Power).unwrap_err();
    let error = db.sync(Durability::Process).unwrap_err();
    assert_eq!(error.kind(), Kind::Poisoned, "{error}");
}
