//! A tree agrees with a sorted map, in any configuration, whatever is done by whatever method, also after reopens.
//!
//! The order of keys, the cache, the segments, the number of keys and the lengths of values are drawn; so is what is done: puts,
//! removals, updates, updates of many neighbours, clears, checkpoints, compactions, copies.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use azekura::Kind;
use azekura::engine::{Engine, Ordered, Persistent, Reader};
use azekura::record::tree::{Compression, CreateOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, order::Order};

use super::{Keys, eight, opening, options, value};

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
        for record in expected[at..].iter().take(500) {
            let (key, value) = cursor.record().unwrap();
            assert_eq!((key, value), (&record.0[..], &record.1[..]));
            cursor.next().unwrap();
        }
        assert!(cursor.seek(&expected[at].0).unwrap());
        for record in expected[..=at].iter().rev().take(500) {
            let (key, value) = cursor.record().unwrap();
            assert_eq!((key, value), (&record.0[..], &record.1[..]));
            cursor.previous().unwrap();
        }
    }
}

/// A cursor, steps in any direction, and changes next to it in between: each step shows what is next at that moment.
fn walk_while_it_changes(
    db: &TreeDb,
    model: &mut Model,
    (keys, many): (Keys, u64),
    random: &mut Random,
) -> u64 {
    let order = db.order();
    let mut records = sorted(model, order);
    let mut cursor = db.cursor();
    let mut steps = 0;
    for _ in 0..5 {
        let start = keys.key(random.below(many));
        let first = records.partition_point(|(key, _)| order.compare(key, &start).is_lt());
        let mut on = cursor.seek(&start).unwrap().then_some(start);
        assert_eq!(on.is_some(), first < records.len());
        let ahead = random.below(5);
        for _ in 0..random.index(300) {
            let Some(key) = on.take() else { break };
            let near = records.partition_point(|(own, _)| order.compare(own, &key).is_lt());
            if random.one_in(4) {
                // At the cursor or near it.
                let number = near.saturating_sub(2) + random.index(5);
                let changed = match records.get(number) {
                    Some((key, _)) if !random.one_in(3) => key.clone(),
                    _ => keys.key(random.below(many)),
                };
                let at = records.partition_point(|(own, _)| order.compare(own, &changed).is_lt());
                let is_there = records.get(at).is_some_and(|(own, _)| *own == changed);
                if is_there && random.one_in(2) {
                    assert!(db.remove(&changed).unwrap());
                    records.remove(at);
                } else {
                    let value = value(random, 60);
                    db.put(&changed, &value).unwrap();
                    if is_there {
                        records[at].1 = value;
                    } else {
                        records.insert(at, (changed, value));
                    }
                }
            }
            let own =
                |key: &[u8]| records.partition_point(|(own, _)| order.compare(own, key).is_lt());
            let here = cursor.record().unwrap().0.to_vec();
            let at = own(&here);
            let is_there = records.get(at).is_some_and(|(own, _)| *own == here);
            let expected = if random.below(5) < ahead {
                assert!(cursor.next().is_ok());
                records.get(at + usize::from(is_there))
            } else {
                assert!(cursor.previous().is_ok());
                at.checked_sub(1).map(|at| &records[at])
            };
            let found = cursor
                .record()
                .map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(found.as_ref(), expected);
            on = found.map(|(key, _)| key);
            steps += 1;
        }
    }
    *model = records.into_iter().collect();
    steps
}

fn step(db: &TreeDb, model: &mut Model, (keys, many): (Keys, u64), random: &mut Random) {
    let chosen = keys.key(random.below(many));
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
            let first = random.below(many);
            let near = random.one_in(2);
            let mut edits = BTreeMap::new();
            for at in 0..count as u64 {
                let number = if near { first + at } else { random.below(many) };
                let edit = (!random.one_in(3)).then(|| value(random, usual));
                edits.insert(keys.key(number % many), edit);
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
        _ if random.one_in(100) => db.compact(&mut |_, _| {}).unwrap(),
        _ => db.maintain().unwrap(),
    }
}

#[test]
fn a_tree_agrees_with_a_sorted_map() {
    let mut steps = 0;
    for round in 0..share(36) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, seed.is_multiple_of(2));
        let keys = Keys::draw(&mut random, drawn.order);
        // Once in each run at least.
        let (drawn, keys) = match round {
            0 => (drawn.order(Order::Lexical), Keys::long()),
            _ => (drawn, keys),
        };
        let many = *random.choose(&[10, 300, 3000, 20_000]);
        let _shown = case(seed, &(&drawn, keys, many));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let mut db = TreeDb::create(&path, &drawn).unwrap();
        let mut model = Model::new();
        for _ in 0..4 {
            let count = many.max(2000);
            for _ in 0..count {
                step(&db, &mut model, (keys, many), &mut random);
            }
            steps += count;
            assert_same(&db, &model);
            assert_cursors(&db, &model, &mut random);
            steps += walk_while_it_changes(&db, &mut model, (keys, many), &mut random);
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

/// Records of 200 bytes, of which a part is text that repeats: what compressing them one page at a time gives, less the last
/// unit of each, which is not filled.
#[test]
fn compressed_pages_take_fewer_units() {
    let folder = tempfile::tempdir().unwrap();
    let fill = |name: &str, options: CreateOptions, repeats: usize, ascending: bool| {
        let db = TreeDb::create(folder.path().join(name), &options.background(false)).unwrap();
        let mut random = Random::new(3);
        for number in 0..20_000_u64 {
            let number = if ascending { number } else { random.u64() };
            let mut value = random.bytes(200);
            value[..repeats].fill(b' ');
            db.put(&eight(number), &value).unwrap();
        }
        db.checkpoint().unwrap();
        let live = db.stats().live_bytes;
        db.close().unwrap();
        live
    };
    let of = |page_size: u64, compression| {
        let options = CreateOptions::default().page_size(page_size);
        options.compression(compression)
    };
    let mut number = 0;
    let mut part = |compression, repeats, ascending| {
        number += 2;
        let names = [number, number + 1].map(|number| format!("{number}.azt"));
        let plain = of(16 << 10, Compression::None);
        let plain = fill(&names[0], plain, repeats, ascending);
        let packed = fill(&names[1], of(0, compression), repeats, ascending);
        // Of a hundred.
        packed * 100 / plain
    };
    for compression in [Compression::Lz4, Compression::Zstd] {
        for ascending in [true, false] {
            let nothing = part(compression, 0, ascending);
            assert!((75..=100).contains(&nothing), "{nothing} %");
            let half = part(compression, 110, ascending);
            assert!((45..=76).contains(&half), "{half} %");
            let almost_all = part(compression, 190, ascending);
            assert!(almost_all <= 51, "{almost_all} %");
        }
    }
}

#[test]
fn pages_that_there_are_not_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    for (page_size, compression) in [
        (1, Compression::None),
        (2048, Compression::None),
        (12 << 10, Compression::None),
        (32 << 10, Compression::None),
        (4096, Compression::Lz4),
        (1 << 40, Compression::Zstd),
    ] {
        let options = CreateOptions::new().page_size(page_size);
        let refused = TreeDb::create(&path, &options.compression(compression)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid);
        let shown = refused.to_string();
        assert!(
            shown.contains("has no such pages") && shown.contains("16384"),
            "{shown}"
        );
        assert!(!path.exists());
    }
}
