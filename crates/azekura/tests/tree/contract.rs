//! The tree engine keeps every promise of the record contract, in drawn configurations.
//!
//! The suite of `testkit::conformance` compares it with the obvious model, with threads, reopening, cursors and the longest
//! records; here are its configurations only. Crashes and damage are other suites.

use std::sync::atomic::{AtomicU64, Ordering};

use azekura::engine::Engine;
use azekura::order::Order;
use azekura::record::hash::HashDb;
use azekura::record::tree::{CreateOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Effort, Random, conformance, round_seed};
use azekura::{Kind, Reader as _};

use super::options;

fn conform(options: &CreateOptions) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let number = AtomicU64::new(0);
    let make = || -> Box<dyn Engine> {
        let name = format!("{}.azt", number.fetch_add(1, Ordering::Relaxed));
        Box::new(TreeDb::create(folder.path().join(name), options).unwrap())
    };
    let reopen = |engine: Box<dyn Engine>| -> Box<dyn Engine> {
        let file = engine.as_persistent().unwrap().path().to_path_buf();
        drop(engine);
        Box::new(TreeDb::open(file, &options.opening).unwrap())
    };
    let report = conformance(&make, Some(&reopen), &Effort::quick());
    report
        .unwrap_or_else(|failure| panic!("{options:?}: {failure}"))
        .total()
}

#[test]
fn the_default_options_conform() {
    let total = conform(&CreateOptions::default());
    tried_at_least(total, 30_000, "answers, default");
}

#[test]
fn drawn_configurations_conform() {
    let mut total = 0;
    for round in 0..share(10) {
        let seed = round + round_seed();
        let drawn = options(&mut Random::new(seed), seed.is_multiple_of(2));
        let _shown = case(seed, &drawn);
        total += conform(&drawn);
    }
    tried_at_least(total, 300_000, "answers, drawn configurations");
}

#[test]
fn wrong_input_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let kind = |result: azekura::Result<TreeDb>| result.map(drop).unwrap_err().kind();
    let usual = CreateOptions::new;
    for size in [1, 4096, 100_000, 128 << 20] {
        let made = TreeDb::create(&path, &usual().segment_size(size));
        assert_eq!(kind(made), Kind::Invalid, "segments of {size}");
    }
    let opening = usual().opening;
    let small = usual().opening(opening.clone().cache(1000));
    assert_eq!(kind(TreeDb::create(&path, &small)), Kind::Invalid);
    let small = usual().opening(opening.clone().capacity(1000));
    assert_eq!(kind(TreeDb::create(&path, &small)), Kind::Invalid);
    assert!(!path.exists());
    let db = TreeDb::create(&path, &usual()).unwrap();
    assert_eq!(kind(TreeDb::create(&path, &usual())), Kind::Invalid);
    assert_eq!(kind(TreeDb::open(&path, &opening)), Kind::Locked);
    let long = vec![7; 8 << 20];
    assert_eq!(db.put(&long, b"").unwrap_err().kind(), Kind::TooLarge);
    assert_eq!(db.get(&long).unwrap(), None);
    assert!(!db.remove(&long).unwrap());
    let longest = &long[1..];
    db.put(longest, b"longest").unwrap();
    assert_eq!(db.get(longest).unwrap().as_deref(), Some(&b"longest"[..]));
    let other = usual().order(Order::Decimal);
    let other = TreeDb::create(folder.path().join("decimal.azt"), &other).unwrap();
    assert_eq!(other.promise().key_len_max, 510);
    assert_eq!(
        other.put(&long[..511], b"").unwrap_err().kind(),
        Kind::TooLarge
    );
    assert_eq!(other.get(&long[..511]).unwrap(), None);
    assert!(!other.remove(&long[..511]).unwrap());
    other.put(&long[..510], b"longest").unwrap();
    assert_eq!(other.count(), 1);
    assert_eq!(db.count(), 1);
    db.close().unwrap();
    for (bytes, what) in [
        (&b""[..], "empty"),
        (b"text", "text"),
        (&[0; 9000], "zeros"),
    ] {
        let other = folder.path().join(what);
        std::fs::write(&other, bytes).unwrap();
        assert_eq!(
            kind(TreeDb::open(&other, &opening)),
            Kind::Mismatch,
            "{what}"
        );
    }
    let hash = folder.path().join("a.azh");
    drop(azekura::create(&hash).unwrap());
    let error = TreeDb::open(&hash, &opening).unwrap_err();
    assert!(error.to_string().contains("it is a hash file"), "{error}");
    let refused = HashDb::open(&path, &azekura::OpenOptions::new());
    let error = refused.err().expect("no hash file");
    assert!(error.to_string().contains("it is a tree file"), "{error}");
    let db = azekura::open(&path).unwrap();
    assert!(db.as_tree().is_some());
    db.close().unwrap();
    let db = azekura::open::open(&path).unwrap();
    assert_eq!(db.promise().engine, "tree");
}
