//! Puts that wait for their leaf, where it is narrow: lengths at the edges of blocks, a device that takes no writes any more, everything
//! removed, values outside of their leaf that a put replaces.
//!
//! The store is on a simulated device, its process killed by looking at what that has. Each test states how many puts waited, so that none of
//! them passes in a store whose cache holds all.

use std::path::Path;

use azekura::engine::{Durability, Engine, Persistent, Reader};
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::io::{Access, Directory};
use azekura::record::tree::{OpenOptions, TreeDb};
use azekura::testkit::suite::tried_at_least;
use azekura::{Kind, Result};

use super::beyond::{Model, NAME, creating, fill, key, on_disk, opening, shown};
use super::buffered_puts;

/// A store of so many records, several times what its cache holds, whose leaves were all in memory once.
fn beyond_cache(opening: &OpenOptions, many: u64) -> (SimDisk, TreeDb, Model) {
    let (disk, db) = on_disk(&creating(opening));
    let model = fill(&db, many);
    (disk, db, model)
}

fn put(db: &TreeDb, model: &mut Model, key: &[u8], value: &[u8]) -> Result<()> {
    db.put(key, value)?;
    model.insert(key.to_vec(), value.to_vec());
    Ok(())
}

/// The store as an open after a kill finds it now.
fn killed(disk: &SimDisk) -> TreeDb {
    let disk = disk.kill_state(disk.events());
    let storage = disk.directory().open(Path::new(NAME), Access::Write);
    TreeDb::open_on(storage.unwrap(), &opening()).unwrap()
}

/// Keys and values of each length around the edges of words, of blocks and of what may wait, put twice, are carried by checkpoints, replayed
/// after a kill, and merged.
#[test]
fn puts_of_lengths_at_each_edge_wait_and_are_found() {
    let lens = [
        0, 1, 7, 8, 9, 39, 40, 41, 48, 95, 96, 97, 104, 247, 248, 254, 255, 256,
    ];
    let mut waited = 0;
    for checkpoints in 0..3 {
        let (disk, db, mut model) = beyond_cache(&opening(), 9000);
        let before = buffered_puts(&db);
        for (at, len) in lens.into_iter().enumerate() {
            for (number, more) in [0, 1, 6, 8, 54, 246, 247, 248].into_iter().enumerate() {
                let chosen = (at * 8 + number) as u64 * 61;
                let mut key = key(chosen);
                key.resize(8 + more, b'k');
                put(&db, &mut model, &key, &[1; 20]).unwrap();
                put(&db, &mut model, &key, &vec![at as u8; len]).unwrap();
            }
        }
        put(&db, &mut model, &[], b"of no key").unwrap();
        put(&db, &mut model, &[], &[]).unwrap();
        for _ in 0..checkpoints {
            db.checkpoint().unwrap();
            assert!(shown(&killed(&disk)) == model, "what was carried differs");
        }
        waited += buffered_puts(&db) - before;
        assert!(shown(&killed(&disk)) == model, "what is replayed differs");
        assert!(shown(&db) == model, "what was merged differs");
        assert_eq!(db.count(), model.len() as u64);
        db.close().unwrap();
        assert!(shown(&killed(&disk)) == model, "what was closed differs");
    }
    tried_at_least(waited, 300, "puts of lengths at edges that waited");
}

/// Pages that are merged as they are read are not written any more: they are not to take the whole cache.
#[test]
fn a_store_that_is_poisoned_is_read_on() {
    let (disk, db, mut model) = beyond_cache(&opening(), 9000);
    let before = buffered_puts(&db);
    for number in (0..9000).step_by(7) {
        put(&db, &mut model, &key(number), &[1; 60]).unwrap();
    }
    let waited = buffered_puts(&db) - before;
    for operation in [Operation::Sync, Operation::Write] {
        disk.faults().fail_from(operation, 0, Fault::Error);
    }
    let error = db.sync(Durability::Power).unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert_eq!(db.put(b"k", b"v").unwrap_err().kind(), Kind::Poisoned);
    for _ in 0..2 {
        for (key, value) in &model {
            assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
        }
    }
    assert!(shown(&db) == model);
    tried_at_least(waited, 300, "puts that waited in a store that was poisoned");
}

/// A file that cannot grow, by another error than that the device is full, is read on, and opened again as it was.
#[test]
fn a_store_whose_file_cannot_grow_is_read_on() {
    let (disk, db, mut model) = beyond_cache(&opening(), 9000);
    db.checkpoint().unwrap();
    disk.faults().fail_from(Operation::Resize, 0, Fault::Error);
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    let (mut refused, mut looked) = (0, 0);
    for step in 0..18_000 {
        let key = &keys[step * 7919 % keys.len()];
        if let Err(error) = put(&db, &mut model, key, &[2; 60]) {
            assert!(matches!(error.kind(), Kind::Io | Kind::Poisoned));
            refused += 1;
        }
        let other = &keys[step * 5003 % keys.len()];
        assert_eq!(db.get(other).unwrap().as_ref(), model.get(other));
        looked += 1;
    }
    assert!(shown(&db) == model);
    assert!(shown(&killed(&disk)) == model);
    tried_at_least(refused, 1000, "puts that found no room to grow");
    tried_at_least(looked, 18_000, "reads of a store that cannot grow");
}

/// What was put before everything is removed, and still waits, does not come back.
#[test]
fn what_waits_goes_with_everything() {
    let mut waited = 0;
    for is_range in [false, true] {
        let (disk, db, _) = beyond_cache(&opening(), 9000);
        let before = buffered_puts(&db);
        for number in (0..9000).step_by(7) {
            db.put(&key(number), &[1; 60]).unwrap();
        }
        waited += buffered_puts(&db) - before;
        if is_range {
            assert_eq!(db.remove_range::<&[u8]>(..).unwrap(), 9000);
        } else {
            db.clear().unwrap();
        }
        assert_eq!(db.count(), 0);
        db.checkpoint().unwrap();
        assert!(shown(&killed(&disk)).is_empty());
        let mut model = Model::new();
        for number in 0..9000 {
            put(&db, &mut model, &key(number), &[2; 90]).unwrap();
        }
        db.checkpoint().unwrap();
        assert!(shown(&killed(&disk)) == model);
        assert!(shown(&db) == model);
        assert_eq!(db.count(), 9000);
    }
    tried_at_least(waited, 300, "puts that waited when everything was removed");
}

/// A value outside of its leaf that a put replaces which waits is given back: the file does not grow.
#[test]
fn values_outside_that_what_waits_replaces_are_given_back() {
    let (_disk, db, mut model) = beyond_cache(&opening(), 9000);
    let properties = |db: &TreeDb| db.stats().live_bytes;
    let least = properties(&db);
    let before = buffered_puts(&db);
    for _ in 0..3 {
        for number in (0..9000).step_by(30) {
            put(&db, &mut model, &key(number), &vec![3; 20_000]).unwrap();
        }
        for number in (0..9000).step_by(7) {
            put(&db, &mut model, &key(number), &[4; 50]).unwrap();
        }
        for number in (0..9000).step_by(30) {
            put(&db, &mut model, &key(number), &[5; 90]).unwrap();
        }
    }
    let waited = buffered_puts(&db) - before;
    assert!(shown(&db) == model);
    for _ in 0..3 {
        db.checkpoint().unwrap();
    }
    let live = properties(&db);
    assert!(live < least + least / 2, "{least} bytes, and {live} now");
    tried_at_least(waited, 300, "puts that waited, some for values outside");
}

/// A store that is full while puts wait for more leaves than the cache holds still takes removals, and answers.
#[test]
fn a_full_store_in_which_puts_wait_takes_all_removals() {
    let (mut waited, mut removed) = (0, 0);
    for (page_size, cache, capacity) in [
        (4096, 256u64 << 10, 6u64 << 20),
        (8192, 512 << 10, 6 << 20),
        (16_384, 2 << 20, 15 << 20),
    ] {
        let opening = opening().cache(cache).capacity(capacity);
        let (_disk, db) = on_disk(&creating(&opening).page_size(page_size));
        let mut model = Model::new();
        let mut number = 0;
        while put(&db, &mut model, &key(number), &[0; 90]).is_ok() {
            number += 1;
        }
        for _ in 0..2 {
            // Room for some more puts, of which most wait.
            for number in (0..number).filter(|number| number % 5 == 0) {
                if db.remove(&key(number)).unwrap() {
                    model.remove(&key(number));
                }
            }
            for number in 0..number {
                let _ = put(
                    &db,
                    &mut model,
                    &key(number.wrapping_mul(7919) % number.max(1)),
                    &[1; 90],
                );
                let _ = put(&db, &mut model, &key(number), &[2; 91]);
            }
        }
        waited += buffered_puts(&db);
        assert!(shown(&db) == model, "{page_size}, {cache}, {capacity}");
        for key in model.keys() {
            assert!(db.remove(key).unwrap(), "{page_size}, {cache}, {capacity}");
            removed += 1;
        }
        assert_eq!(db.count(), 0);
        db.put(b"more", b"fits").unwrap();
    }
    tried_at_least(waited, 300, "puts that waited in stores that were full");
    tried_at_least(removed, 3000, "removals from full stores");
}
