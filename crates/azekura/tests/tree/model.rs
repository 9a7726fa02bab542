//! A tree agrees with a sorted map, in any configuration, whatever is done by whatever method, also after reopens.
//!
//! The order of keys, the cache, the segments, the number of keys and the lengths of values are drawn; so is what is done: puts,
//! removals, updates, updates of many neighbours, clears, checkpoints, copies.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use azekura::engine::{Engine, Ordered, Persistent, Reader};
use azekura::record::tree::{CreateOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, order::Order};

use super::{eight, key, opening, options, value};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The records of a model in an order.
fn sorted(model: &Model, order: Order) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records: Vec<_> = model.clone().into_iter().collect();
    records.sort_by(|a, b| order.compare(&a.0, &b.0));
    records
}

fn assert_same(db: &TreeDb, model: &Model) {
    assert_eq!(db.count(), model.len() as u64);
    let expected = sorted(model, db.order());
    let mut shown = Vec::with_capacity(expected.len());
    let end = db.scan(None, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    assert_eq!(shown.len(), expected.len());
    assert!(shown == expected, "records differ");
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
    assert_eq!(report.records, model.len() as u64);
}

/// Cursors from a few places, both ways.
fn assert_cursors(db: &TreeDb, model: &Model, random: &mut Random) {
    let expected = sorted(model, db.order());
    let mut cursor = db.cursor();
    for _ in 0..5 {
        if expected.is_empty() {
            assert!(!cursor.first().unwrap() && !cursor.last().unwrap());
            return;
        }
        let at = random.index(expected.len());
        assert!(cursor.seek(&expected[at].0).unwrap());
        for record in expected[at..].iter().take(20) {
            let (key, value) = cursor.record().unwrap();
            assert_eq!((key, value), (&record.0[..], &record.1[..]));
            cursor.next().unwrap();
        }
        assert!(cursor.seek(&expected[at].0).unwrap());
        for record in expected[..=at].iter().rev().take(20) {
            let (key, value) = cursor.record().unwrap();
            assert_eq!((key, value), (&record.0[..], &record.1[..]));
            cursor.previous().unwrap();
        }
    }
}

fn step(db: &TreeDb, model: &mut Model, keys: u64, random: &mut Random) {
    let order = db.order();
    let chosen = key(random.below(keys), order);
    let usual = 60;
    match random.below(20) {
        0..10 => {
            let value = value(random, usual);
            db.put(&chosen, &value).unwrap();
            model.insert(chosen, value);
        }
        10..14 => {
            assert_eq!(db.remove(&chosen).unwrap(), model.remove(&chosen).is_some());
        }
        14..16 => {
            let expected = model.get(&chosen).cloned();
            let new = (!random.one_in(4)).then(|| value(random, usual));
            db.update(&chosen, &mut |present| {
                assert_eq!(present.map(<[u8]>::to_vec), expected);
                match &new {
                    Some(value) => Edit::Put(value.clone().into()),
                    None => Edit::Remove,
                }
            })
            .unwrap();
            match new {
                Some(value) => drop(model.insert(chosen, value)),
                None => drop(model.remove(&chosen)),
            }
        }
        16..18 => {
            let most = if random.one_in(8) { 120 } else { 5 };
            let count = 1 + random.index(most);
            // Of some, neighbours: many of them in one leaf.
            let first = random.below(keys);
            let near = random.one_in(2);
            let mut edits = BTreeMap::new();
            for at in 0..count as u64 {
                let number = if near { first + at } else { random.below(keys) };
                let edit = (!random.one_in(3)).then(|| value(random, usual));
                edits.insert(key(number % keys, order), edit);
            }
            let names: Vec<&[u8]> = edits.keys().map(Vec::as_slice).collect();
            let done = db.update_many(&names, &mut |present| {
                for (name, present) in names.iter().zip(present) {
                    assert_eq!(*present, model.get(*name).map(Vec::as_slice));
                }
                edits
                    .values()
                    .map(|edit| match edit {
                        Some(value) => Edit::Put(value.clone().into()),
                        None => Edit::Remove,
                    })
                    .collect()
            });
            match done {
                Ok(()) => {
                    for (key, edit) in edits {
                        match edit {
                            Some(value) => drop(model.insert(key, value)),
                            None => drop(model.remove(&key)),
                        }
                    }
                }
                Err(error) => assert_eq!(error.kind(), azekura::Kind::TooLarge, "{error}"),
            }
        }
        18 => assert_eq!(db.get(&chosen).unwrap().as_ref(), model.get(&chosen)),
        _ if random.one_in(400) => {
            db.clear().unwrap();
            model.clear();
        }
        _ if random.one_in(20) => db.checkpoint().unwrap(),
        _ => db.maintain().unwrap(),
    }
}

#[test]
fn a_tree_agrees_with_a_sorted_map() {
    let mut steps = 0;
    for round in 0..share(24) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, seed.is_multiple_of(2));
        let keys = *random.choose(&[10, 300, 3000, 20_000]);
        let _shown = case(seed, &(&drawn, keys));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let mut db = TreeDb::create(&path, &drawn).unwrap();
        let mut model = Model::new();
        for _ in 0..4 {
            let count = keys.max(2000);
            for _ in 0..count {
                step(&db, &mut model, keys, &mut random);
            }
            steps += count;
            assert_same(&db, &model);
            assert_cursors(&db, &model, &mut random);
            if random.one_in(2) {
                if random.one_in(2) {
                    db.close().unwrap();
                } else {
                    drop(db);
                }
                db = TreeDb::open(&path, &opening(&mut random, seed.is_multiple_of(2))).unwrap();
                assert_same(&db, &model);
            } else {
                let copy = folder.path().join("copy.azt");
                db.copy_to(&copy, &mut |_, _| {}).unwrap();
                let copied = TreeDb::open(&copy, &drawn.opening).unwrap();
                assert_same(&copied, &model);
                drop(copied);
                std::fs::remove_file(&copy).unwrap();
            }
        }
    }
    tried_at_least(steps, 300_000, "steps");
}

#[test]
fn ascending_keys_leave_full_leaves_and_a_bound_of_random_ones() {
    let folder = tempfile::tempdir().unwrap();
    let fill = |name: &str, ascending: bool| {
        let db = TreeDb::create(folder.path().join(name), &CreateOptions::default()).unwrap();
        let mut random = Random::new(3);
        for number in 0..100_000_u64 {
            let number = if ascending { number } else { random.u64() };
            db.put(&eight(number), &[7; 8]).unwrap();
        }
        db.stats().live_bytes / db.count()
    };
    let (full, random) = (fill("a.azt", true), fill("r.azt", false));
    assert!(full <= 24, "{full} bytes a record");
    assert!(random <= 36, "{random} bytes a record");
}
