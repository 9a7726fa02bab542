//! What is of one moment has what waits for its leaf since before: copies and changes of copies, a store that is closed, snapshots over
//! checkpoints, what a removal of everything states.
//!
//! Few puts wait, for leaves all over the file, so none is merged before what is tried; each test demands that they still wait then.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura::engine::{Persistent, Reader};
use azekura::record::tree::{OpenOptions, TreeDb};
use azekura::testkit::suite::{share, tried_at_least};

use super::beyond::{Model, creating, fill, key, opening, property, shown};

const MANY: u64 = 9000;

/// A store of which its cache holds a fifth, where nothing waits.
fn beyond_cache(path: &Path) -> (TreeDb, Model) {
    let db = TreeDb::create(path, &creating(&opening())).unwrap();
    let model = fill(&db, MANY);
    assert_eq!(db.count(), MANY);
    (db, model)
}

/// Puts of a version, of which some are new records; for how many pages they wait.
fn put_some(db: &TreeDb, model: &mut Model, version: u8) -> u64 {
    for number in (0..MANY).step_by(90) {
        let new = MANY * (1 + u64::from(version)) + number;
        for number in [number, new] {
            db.put(&key(number), &[version; 20]).unwrap();
            model.insert(key(number), vec![version; 20]);
        }
    }
    property(db, "buffered_pages")
}

#[test]
fn copies_and_changes_have_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (db, mut model) = beyond_cache(&at("a.azt"));
    let mut waited = put_some(&db, &mut model, 1);
    db.copy_to(&at("copy.azt"), &mut |_, _| {}).unwrap();
    let mut since = TreeDb::checkpoint_of(at("copy.azt")).unwrap();
    for version in 2..6 {
        // One that is opened takes no changes any more.
        std::fs::copy(at("copy.azt"), at("opened.azt")).unwrap();
        let opened = TreeDb::open(at("opened.azt"), &OpenOptions::new()).unwrap();
        assert!(shown(&opened) == model, "the copy differs");
        assert_eq!(opened.count(), model.len() as u64);
        drop(opened);
        waited += put_some(&db, &mut model, version);
        let changes = at(&format!("changes.{version}"));
        since = db.copy_changes(since, &changes, &mut |_, _| {}).unwrap();
        TreeDb::apply_changes(at("copy.azt"), &changes, &mut |_, _| {}).unwrap();
    }
    tried_at_least(
        waited,
        200,
        "pages for which puts waited when copies were made",
    );
}

/// One thread puts numbers that rise: a copy that has one of them has all before it.
#[test]
fn copies_are_of_one_moment_while_a_thread_puts_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (db, first) = beyond_cache(&folder.path().join("a.azt"));
    let is_done = AtomicBool::new(false);
    let chosen = |number: u64| key(number * 7919 % MANY);
    let mut compared = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1;
            while !is_done.load(Ordering::Relaxed) {
                db.put(&chosen(number), &number.to_le_bytes()).unwrap();
                number += 1;
            }
        });
        for round in 0..share(40).max(8) {
            let path = folder.path().join(format!("copy{round}.azt"));
            let copied = db.copy_to(&path, &mut |_, _| {});
            if copied.is_err() {
                is_done.store(true, Ordering::Relaxed);
            }
            copied.unwrap();
            let copy = TreeDb::open(&path, &OpenOptions::new()).unwrap();
            let records = shown(&copy);
            drop(copy);
            std::fs::remove_file(&path).unwrap();
            let numbers = records
                .values()
                .filter_map(|value| value.as_slice().try_into().ok());
            let last = numbers.map(u64::from_le_bytes).max().unwrap_or(0);
            let mut model = first.clone();
            for number in last.saturating_sub(MANY) + 1..=last {
                model.insert(chosen(number), number.to_le_bytes().to_vec());
            }
            if records != model {
                is_done.store(true, Ordering::Relaxed);
            }
            assert!(records == model, "a copy lacks what was put before");
            compared += 1;
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let waited = property(&db, "buffered_puts");
    tried_at_least(waited, 300, "puts that waited while copies were made");
    tried_at_least(
        compared,
        40,
        "copies of a store that a thread writes beyond its cache",
    );
}

#[test]
fn a_closed_store_has_nothing_to_replay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let (mut db, mut model) = beyond_cache(&path);
    let mut waited = 0;
    for version in 1..4 {
        waited += put_some(&db, &mut model, version);
        db.close().unwrap();
        db = TreeDb::open(&path, &opening()).unwrap();
        assert_eq!(property(&db, "dirty_pages"), 0, "something was replayed");
        assert_eq!(db.stats().count, model.len() as u64);
        assert!(shown(&db) == model);
    }
    tried_at_least(
        waited,
        100,
        "pages for which puts waited when the store was closed",
    );
}

/// A checkpoint appends again what waits, but not what a snapshot has where it is.
#[test]
fn a_checkpoint_leaves_what_waits_in_its_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let (db, mut model) = beyond_cache(&folder.path().join("a.azt"));
    let mut waited = 0;
    let mut snapshots = Vec::new();
    for version in 1..4 {
        waited += put_some(&db, &mut model, version);
        snapshots.push((db.snapshot().unwrap(), model.clone()));
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
    }
    assert_eq!(db.count(), model.len() as u64);
    for (snapshot, then) in &snapshots {
        assert!(shown(snapshot) == *then, "a snapshot changed");
        assert_eq!(snapshot.count(), then.len() as u64);
    }
    tried_at_least(
        waited,
        100,
        "pages for which puts waited at a checkpoint with snapshots",
    );
}

#[test]
fn a_removal_of_everything_counts_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (db, mut model) = beyond_cache(&folder.path().join("a.azt"));
    let waited = put_some(&db, &mut model, 1);
    let removed = db.remove_range::<&[u8]>(..).unwrap();
    assert_eq!(removed, model.len() as u64);
    assert_eq!(db.count(), 0);
    tried_at_least(
        waited,
        30,
        "pages for which puts waited when everything was removed",
    );
}
