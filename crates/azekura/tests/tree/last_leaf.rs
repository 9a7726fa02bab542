//! Keys that come in order, which are looked for in the leaf where the one before was: it is never one that is no more, or another store's.
//!
//! One thread uses two stores in turn, whose pages have the same numbers; others read in order while everything, or a range, is removed and
//! put again: a reader that starts after a removal sees nothing from before it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::engine::{Engine, Reader};
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::Random;
use azekura::testkit::suite::tried_at_least;

use super::eight;

fn store(folder: &std::path::Path, name: &str, cache: u64) -> TreeDb {
    let opening = OpenOptions::new().cache(cache).background(false);
    TreeDb::create(folder.join(name), &CreateOptions::new().opening(opening)).unwrap()
}

#[test]
fn two_stores_in_turn_keep_their_own_records() {
    let folder = tempfile::tempdir().unwrap();
    let stores = [
        store(folder.path(), "a.azt", 1 << 20),
        store(folder.path(), "b.azt", 256 << 10),
    ];
    let mut models = [BTreeMap::new(), BTreeMap::new()];
    let mut random = Random::new(azekura::testkit::round_seed());
    let mut looked = 0;
    for round in 0..60u64 {
        let first = random.below(20_000);
        let is_down = random.one_in(3);
        for steps in 0..50 {
            for (at, (db, model)) in stores.iter().zip(&mut models).enumerate() {
                for step in steps * 20..steps * 20 + 20 {
                    let number = if is_down {
                        (first + 1000 - step) * 3
                    } else {
                        (first + step) * 3
                    };
                    let key = eight(number + at as u64);
                    match random.below(8) {
                        0 => assert_eq!(db.remove(&key).unwrap(), model.remove(&key).is_some()),
                        1..4 => {
                            db.put(&key, &eight(round)).unwrap();
                            model.insert(key, eight(round));
                        }
                        _ => {
                            let found = db.get(&key).unwrap();
                            assert_eq!(found.as_deref(), model.get(&key).map(|value| &value[..]));
                            looked += 1;
                        }
                    }
                }
                // What the other store has is never here.
                let of_other = eight((first + steps * 20) * 3 + 1 - at as u64);
                assert_eq!(db.get(&of_other).unwrap(), None);
            }
        }
        match random.below(6) {
            0 => {
                stores[0].clear().unwrap();
                models[0].clear();
            }
            1 => {
                let (from, to) = (eight(first * 3), eight((first + 500) * 3));
                let removed = stores[1].remove_range(&from[..]..&to[..]).unwrap();
                let count = models[1].len() as u64;
                models[1].retain(|key, _| *key < from || *key >= to);
                assert_eq!(removed, count - models[1].len() as u64);
            }
            _ => {}
        }
    }
    for (db, model) in stores.iter().zip(&models) {
        assert_eq!(db.count(), model.len() as u64);
    }
    tried_at_least(looked, 10_000, "keys that were looked for in order");
}

#[test]
fn who_reads_in_order_sees_nothing_from_before_a_removal() {
    const KEYS: u64 = 3000;
    let folder = tempfile::tempdir().unwrap();
    let db = store(folder.path(), "a.azt", 1 << 20);
    let (generation, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut turns, seen) = (0u64, AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut random = Random::new(7);
                while !is_over.load(Ordering::SeqCst) {
                    let first = random.below(KEYS);
                    for number in first..KEYS.min(first + 300) {
                        let least = generation.load(Ordering::SeqCst);
                        if let Some(value) = db.get(&eight(number)).unwrap() {
                            let found = u64::from_le_bytes(value.try_into().unwrap());
                            assert!(found >= least, "{number} is of {found}, before {least}");
                            seen.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        let ends = std::time::Instant::now() + std::time::Duration::from_millis(1500);
        while std::time::Instant::now() < ends {
            turns += 1;
            for number in 0..KEYS {
                db.put(&eight(number), &turns.to_le_bytes()).unwrap();
            }
            if turns.is_multiple_of(2) {
                db.clear().unwrap();
            } else {
                db.remove_range::<&[u8]>(..).unwrap();
            }
            generation.store(turns + 1, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    tried_at_least(turns, 50, "removals next to readers in order");
    tried_at_least(seen.into_inner(), 5000, "records read in order meanwhile");
}
