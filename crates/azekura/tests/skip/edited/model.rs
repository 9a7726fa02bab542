//! Random edits, merges, reverts and openings against the model; and the conformance suite of the contract.
//!
//! Configuration and population are drawn, and memory so small that merges happen by themselves. Every answer is compared: of single
//! keys, of scans in parts, of cursors in both directions, of counts. It cuts nothing: `cuts` does.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::engine::Cursor;
use azekura::io::sim::SimDisk;
use azekura::order::Order;
use azekura::record::skip::{EditOptions, SkipDb};
use azekura::testkit::suite::{case, demand, share, tried_at_least};
use azekura::testkit::{Effort, Random, conformance, round_seed};
use azekura::{Edit, Engine};

use super::super::{Population, Records, draw_order};
use super::{Model, REDUCERS, Store, all};

fn on(cursor: &dyn Cursor) -> Option<(Vec<u8>, Vec<u8>)> {
    let (key, value) = cursor.record()?;
    Some((key.to_vec(), value.to_vec()))
}

/// Compares all that can be asked with the records in order.
fn compare(store: &Store, expected: &Records, order: Order, random: &mut Random) {
    let reader = store.reader();
    assert_eq!(reader.count(), expected.len() as u64, "count");
    assert!(
        all(reader).unwrap() == *expected,
        "a scan shows other records"
    );
    let less = |key: &[u8]| expected.partition_point(|(own, _)| order.compare(own, key).is_lt());
    // A scan in parts.
    let mut seen = Records::new();
    let mut from = None;
    let most = 1 + expected.len() / (1 + random.index(5));
    loop {
        let mut left = 1 + random.index(most);
        let visit = &mut |key: &[u8], value: &[u8]| {
            seen.push((key.to_vec(), value.to_vec()));
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        from = reader.scan(from.as_ref(), visit).unwrap();
        if from.is_none() {
            break;
        }
    }
    assert!(seen == *expected, "a scan in parts shows other records");
    // Cursors.
    let mut cursor = store.ordered().cursor();
    let mut at: Option<usize> = None;
    for _ in 0..60 {
        let count = expected.len();
        let is_there = match random.index(20) {
            0 => {
                at = (count > 0).then_some(0);
                cursor.first()
            }
            1 => {
                at = count.checked_sub(1);
                cursor.last()
            }
            2 if count > 0 => {
                let key = &random.choose(expected).0;
                let sought = &key[..random.index(key.len() + 1)];
                at = Some(less(sought)).filter(|at| *at < count);
                cursor.seek(sought)
            }
            3..=10 => {
                let next = at.map_or(0, |at| at + 1);
                at = (next < count).then_some(next);
                cursor.next()
            }
            _ => {
                at = at.unwrap_or(count).checked_sub(1);
                cursor.previous()
            }
        };
        assert_eq!(is_there.unwrap(), at.is_some());
        assert_eq!(on(&*cursor), at.map(|at| expected[at].clone()));
    }
}

#[test]
fn what_is_edited_is_read_at_once_and_after_merges_and_openings() {
    let (mut edits, mut merges, mut reverts, mut openings) = (0, 0, 0, 0);
    let mut pending = 0;
    for round in 0..share(200) {
        let seed = round_seed() + 20_000_000 + round;
        let mut random = Random::new(seed);
        let random = &mut random;
        let order = draw_order(random);
        let reducer = if random.one_in(2) {
            "last"
        } else {
            *random.choose(&REDUCERS)
        };
        let population = Population::draw(random, order);
        let memory = *random.choose(&[4 << 10, 16 << 10, 16 << 10, 64 << 20]);
        let options = EditOptions::new().order(order).memory(memory);
        let _case = case(seed, &(reducer, &options));
        let disk = SimDisk::new(seed);
        let mut store = Store::create(&disk, reducer, &options).unwrap();
        let mut model = Model::default();
        let mut base = store.base();
        let count = random.index(3000);
        for number in 0..count {
            let before = model.pending();
            match random.below(1000) {
                0..3 => {
                    store.clear().unwrap();
                    model.clear();
                }
                3..8 => {
                    reverts += 1;
                    store.revert().unwrap();
                    model.revert();
                    assert_eq!(store.pending_edits(&disk), 0);
                    assert_eq!(
                        all(store.reader()).unwrap(),
                        all(&*store.base()).unwrap(),
                        "reverted"
                    );
                }
                8..12 => {
                    pending += store.pending_edits(&disk);
                    store.merge().unwrap();
                    assert_eq!(store.pending_edits(&disk), 0);
                }
                12..16 => {
                    openings += 1;
                    let edits = store.pending_edits(&disk);
                    if random.one_in(2) {
                        store.close().unwrap();
                    } else {
                        drop(store);
                    }
                    store = Store::open(&disk, reducer, &options).unwrap();
                    assert_eq!(store.pending_edits(&disk), edits, "opened");
                    base = store.base();
                }
                16..116 => {
                    let key = population.key(random);
                    assert_eq!(store.remove(&key).unwrap(), model.remove(&key));
                }
                116..166 if reducer == "last" => many(&store, &mut model, &population, random),
                166..300 => {
                    let key = population.key(random);
                    assert_eq!(store.get(&key).unwrap(), model.get(reducer, &key));
                }
                _ => {
                    let (key, value) = (population.key(random), population.value(random));
                    store.put(&key, &value).unwrap();
                    model.put(reducer, &key, &value);
                }
            }
            edits += 1;
            let now = store.base();
            if !Arc::ptr_eq(&now, &base) {
                // What was edited last came after it.
                base = now;
                merges += 1;
                model.merged_but(model.pending().saturating_sub(before));
            }
            if number % 500 == 499 {
                compare(&store, &model.records(reducer, order), order, random);
            }
        }
        let expected = model.records(reducer, order);
        compare(&store, &expected, order, random);
        let report = store.persistent().check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{report:?}");
        assert_eq!(report.records, expected.len() as u64);
        store.merge().unwrap();
        assert!(all(&*store.base()).unwrap() == expected, "merged");
        compare(&store, &expected, order, random);
        store.close().unwrap();
        let store = Store::open(&disk, reducer, &options).unwrap();
        compare(&store, &expected, order, random);
    }
    demand(edits, share(200) * 700, "steps on edited files");
    demand(merges, share(200) * 4, "merges among them");
    demand(reverts, share(200), "reverts");
    demand(openings, share(200), "openings");
    demand(pending, share(200), "pending edits counted");
}

/// Edits several keys at once, some of them repeated.
fn many(store: &Store, model: &mut Model, population: &Population, random: &mut Random) {
    let Store::Map(db) = store else { return };
    let count = random.index(8);
    let keys: Vec<_> = (0..count).map(|_| population.key(random)).collect();
    let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let edits: Vec<Option<Option<Vec<u8>>>> = keys
        .iter()
        .map(|_| match random.index(4) {
            0 => None,
            1 => Some(None),
            _ => Some(Some(population.value(random))),
        })
        .collect();
    db.update_many(&lent, &mut |values| {
        let present: Vec<_> = values
            .iter()
            .map(|value| value.map(<[u8]>::to_vec))
            .collect();
        let known: Vec<_> = keys.iter().map(|key| model.get("last", key)).collect();
        assert_eq!(present, known);
        let edits = edits.iter().map(|edit| match edit {
            None => Edit::Keep,
            Some(None) => Edit::Remove,
            Some(Some(value)) => Edit::Put(value.clone().into()),
        });
        edits.collect()
    })
    .unwrap();
    for (key, edit) in keys.iter().zip(&edits) {
        match edit {
            None => {}
            Some(None) => {
                model.remove(key);
            }
            Some(Some(value)) => model.put("last", key, value),
        }
    }
}

#[test]
fn the_map_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let number = AtomicU64::new(0);
    for memory in [8u64 << 10, 64 << 20] {
        let options = EditOptions::new().memory(memory);
        let make = || -> Box<dyn Engine> {
            let name = format!("{}.azs", number.fetch_add(1, Ordering::Relaxed));
            Box::new(SkipDb::create(folder.path().join(name), &options).unwrap())
        };
        let reopen = |engine: Box<dyn Engine>| -> Box<dyn Engine> {
            let path = engine.as_persistent().unwrap().path().to_path_buf();
            drop(engine);
            Box::new(SkipDb::open(path, &options).unwrap())
        };
        let report = conformance(&make, Some(&reopen), &Effort::quick());
        let report = report.unwrap_or_else(|failure| panic!("{options:?}: {failure}"));
        let what = format!("answers of an edited file: {report}");
        tried_at_least(report.total(), 60_000, &what);
    }
}

#[test]
fn maps_in_other_orders_conform() {
    let folder = tempfile::tempdir().unwrap();
    let number = AtomicU64::new(0);
    let mut random = Random::new(round_seed());
    for order in Order::ALL {
        let options = EditOptions::new().order(order);
        if !random.one_in(3) {
            continue;
        }
        let make = || -> Box<dyn Engine> {
            let name = format!("{}.azs", number.fetch_add(1, Ordering::Relaxed));
            Box::new(SkipDb::create(folder.path().join(name), &options).unwrap())
        };
        let effort = Effort {
            sequences: 4,
            histories: 4,
            ..Effort::quick()
        };
        let report = conformance(&make, None, &effort);
        let report = report.unwrap_or_else(|failure| panic!("{options:?}: {failure}"));
        tried_at_least(report.total(), 1, &format!("answers in an order: {report}"));
    }
}

/// What was merged or reverted takes no room of the pending file.
#[test]
fn the_pending_file_does_not_grow_with_merges_and_reverts() {
    const MEMORY: u64 = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    let pending = folder.path().join("a.azs.pending");
    let options = EditOptions::new().memory(MEMORY);
    let mut db = SkipDb::create(&path, &options).unwrap();
    let (mut most, mut edits) = (0, 0);
    for round in 0..share(400) {
        for number in 0..300u64 {
            let key = (number * 7 % 100).to_string();
            db.update(key.as_bytes(), &mut |_| Edit::put(&[7; 100]))
                .unwrap();
            edits += 1;
        }
        match round % 8 {
            0..5 => db.revert().unwrap(),
            5 => db.clear().unwrap(),
            6 => {
                drop(db);
                db = SkipDb::open(&path, &options).unwrap();
            }
            _ => {}
        }
        most = most.max(std::fs::metadata(&pending).unwrap().len());
    }
    assert!(most < 4 * MEMORY, "the pending file takes {most} bytes");
    db.merge(&mut |_, _| {}).unwrap();
    db.close().unwrap();
    assert!(std::fs::metadata(&pending).unwrap().len() <= most);
    demand(
        edits,
        share(400) * 300,
        "edits of 100 bytes in a pending file of 64 KiB",
    );
}
