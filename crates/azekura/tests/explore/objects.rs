//! Snapshots and checks of an object store while threads change it.
//!
//! A snapshot that is taken during changes and checkpoints shows all objects of one moment. A check finds no damage where a thread
//! appends to the journal and syncs.
//!
//! Small objects that are in the journal at its moment are copied afterwards. A checkpoint moves them into packs and frees their
//! segments, which nothing of the snapshot keeps: so it waits until they are copied.

use azekura::engine::Durability;
use azekura::io::Storage as _;
use azekura::io::memory::Memory;
use azekura::object::{CreateOptions, ObjectId, Store};
use azekura::testkit::schedule::Threads;

use super::holds;

const COUNT: u64 = 24;
const CHANGED: u64 = 6;

fn id(n: u64) -> ObjectId {
    ObjectId(u128::from(n) << 64 | 7)
}

/// Some of them fill a segment of the journal.
fn value(n: u64, version: u8) -> Vec<u8> {
    vec![version ^ n as u8; 600]
}

/// A store with small groups and a small journal.
fn store() -> Store {
    let options = CreateOptions::new()
        .capacity(1 << 20)
        .journal_size(256 << 10)
        .group_size(128 << 10)
        .background(false);
    let memory = Memory::new(options.capacity).unwrap();
    memory.resize(options.capacity).unwrap();
    Store::create_on(memory, None, &options, &mut |_, _| ()).unwrap()
}

/// One thread changes objects and makes checkpoints, another one takes snapshots.
fn snapshots(_: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let store = store();
    for n in 0..COUNT {
        store.put(id(n), &value(n, 1)).unwrap();
    }
    let mut threads = Threads::default();
    let store = &store;
    threads.add(move || {
        for version in 2..4 {
            for n in 0..CHANGED {
                store.put(id(n), &value(n, version)).unwrap();
            }
            store.checkpoint().unwrap();
        }
    });
    threads.add(move || {
        for _ in 0..2 {
            let snapshot = store.snapshot().unwrap();
            assert_eq!(snapshot.count(), COUNT);
            // Objects are changed in their order.
            let mut newest = u8::MAX;
            for n in 0..COUNT {
                let found = snapshot.get(id(n)).expect("an object of the snapshot");
                let found = found.expect("each of them stays");
                let mut versions = 1..4;
                let version = versions.find(|version| found == value(n, *version));
                let version = version.expect("a value that was put");
                assert!(version <= newest, "{n} is newer than one changed before");
                newest = version;
            }
        }
    });
    run(threads);
    assert!(store.check(true, &mut |_, _| ()).unwrap().is_sound());
}

/// One thread puts objects and syncs, another one checks the journal.
fn checks(_: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let store = store();
    let mut threads = Threads::default();
    let store = &store;
    threads.add(move || {
        for n in 0..8 {
            store
                .put_with(id(n), &value(n, 1), Durability::Power)
                .unwrap();
        }
    });
    threads.add(move || {
        for _ in 0..4 {
            let report = store.check(false, &mut |_, _| ()).unwrap();
            assert_eq!(report.findings, []);
            store.journal(&mut |_, _| true).unwrap();
        }
    });
    run(threads);
}

#[test]
fn a_check_during_puts_and_syncs_finds_no_damage() {
    holds("checks during puts and syncs", 3000, &checks);
}

#[test]
fn a_snapshot_during_checkpoints_shows_the_objects_of_one_moment() {
    holds("snapshots during checkpoints", 3000, &snapshots);
}
