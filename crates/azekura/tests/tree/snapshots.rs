//! Snapshots are what the store was at their moment, whatever happens to it since.
//!
//! A model keeps what each snapshot must show, by every way there is, until it ends; threads move sums about under snapshots; full stores
//! end the oldest. When all have ended, nothing is held.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::engine::{Engine, Ordered, Persistent, Reader};
use azekura::error::Kind;
use azekura::record::tree::{CreateOptions, OpenOptions, Snapshot, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, order::Order};

use super::{Keys, draw_ends, is_in, opening, options, value};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn scanned(store: &dyn Reader) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut shown = Vec::new();
    let end = store.scan(None, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    shown
}

fn sorted(model: &Model, order: Order) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records: Vec<_> = model.clone().into_iter().collect();
    records.sort_by(|a, b| order.compare(&a.0, &b.0));
    records
}

fn inspected(db: &TreeDb, name: &str) -> u64 {
    let all = db.inspect();
    let found = all.iter().find(|(of, _)| *of == name);
    found.unwrap().1.parse().unwrap()
}

/// Records that are looked for, from a few places, both ways.
fn assert_snapshot(snapshot: &Snapshot<'_>, model: &Model, whole: bool, random: &mut Random) {
    assert_eq!(snapshot.count(), model.len() as u64);
    let expected = sorted(model, snapshot.order());
    if whole {
        let shown = scanned(snapshot);
        assert_eq!(shown.len(), expected.len());
        assert!(shown == expected, "records differ");
    }
    if expected.is_empty() {
        return;
    }
    for _ in 0..20 {
        let (key, value) = &expected[random.index(expected.len())];
        assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
        let mut missing = key.clone();
        missing.push(0);
        let found = snapshot.get(&missing).unwrap();
        assert_eq!(found.as_ref(), model.get(&missing));
    }
    let mut cursor = snapshot.cursor();
    let at = random.index(expected.len());
    assert!(cursor.seek(&expected[at].0).unwrap());
    for record in expected[at..].iter().take(100) {
        assert_eq!(cursor.record(), Some((&record.0[..], &record.1[..])));
        cursor.next().unwrap();
    }
    assert!(cursor.seek(&expected[at].0).unwrap());
    for record in expected[..=at].iter().rev().take(100) {
        assert_eq!(cursor.record(), Some((&record.0[..], &record.1[..])));
        cursor.previous().unwrap();
    }
}

/// Ends the work of threads, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Changes a store and its model in one way.
fn change(db: &TreeDb, model: &mut Model, (keys, many): (Keys, u64), random: &mut Random) {
    match random.below(60) {
        0 => {
            // Neighbours, together.
            let first = random.below(many);
            let names: Vec<Vec<u8>> = (first..first + 4).map(|at| keys.key(at)).collect();
            let values: Vec<Vec<u8>> = names.iter().map(|_| value(random, 60)).collect();
            let slices: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
            let edits = |_: &[Option<&[u8]>]| values.iter().map(|of| Edit::put(of)).collect();
            let mut edits = edits;
            db.update_many(&slices, &mut edits).unwrap();
            model.extend(names.into_iter().zip(values));
        }
        1 if random.one_in(12) => {
            db.clear().unwrap();
            model.clear();
        }
        2 => {
            // Leaves are joined.
            let first = random.below(many);
            for at in first..(first + many / 10).min(many) {
                let key = keys.key(at);
                let was_there = model.remove(&key).is_some();
                assert_eq!(db.remove(&key).unwrap(), was_there);
            }
        }
        3 if random.one_in(3) => {
            let first = random.below(many);
            let key = |random: &mut Random| keys.key((first + random.below(many / 5 + 1)) % many);
            let mut ends = draw_ends(random, db.order(), key);
            if random.one_in(2) {
                // Most of it, at times all.
                ends.0 = Bound::Unbounded;
            }
            let before = model.len();
            model.retain(|key, _| !is_in(db.order(), &ends, key));
            let removed = db.remove_range(ends).unwrap();
            assert_eq!(removed as usize, before - model.len());
        }
        3 => db.maintain().unwrap(),
        4 if random.one_in(3) => db.checkpoint().unwrap(),
        5..20 => {
            let key = keys.key(random.below(many));
            let was_there = model.remove(&key).is_some();
            assert_eq!(db.remove(&key).unwrap(), was_there);
        }
        _ => {
            let key = keys.key(random.below(many));
            let value = value(random, 60);
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

#[test]
fn snapshots_are_what_the_store_was() {
    let (mut taken, mut looked, mut changes) = (0, 0, 0);
    for seed in 0..share(60) {
        let seed = seed + round_seed();
        let random = &mut Random::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let has_worker = random.one_in(2);
        let options = options(random, has_worker);
        let _case = case(seed, &options);
        let path = folder.path().join("a.azt");
        let mut db = TreeDb::create(&path, &options).unwrap();
        let keys = Keys::draw(random, options.order);
        let many = *random.choose(&[10, 300, 3000, 10_000]);
        let mut model = Model::new();
        for _ in 0..2 {
            let mut snapshots: Vec<(Snapshot<'_>, Model)> = Vec::new();
            for _ in 0..random.below(12) + 4 {
                for _ in 0..=random.below(many.min(2000)) {
                    change(&db, &mut model, (keys, many), random);
                    changes += 1;
                }
                for _ in 0..random.below(3) {
                    snapshots.push((db.snapshot().unwrap(), model.clone()));
                    taken += 1;
                }
                for (snapshot, then) in &snapshots {
                    assert_snapshot(snapshot, then, random.one_in(3), random);
                    looked += 1;
                }
                while !snapshots.is_empty() && random.one_in(2) {
                    let at = random.index(snapshots.len());
                    drop(snapshots.swap_remove(at));
                }
                if random.one_in(3) {
                    let report = db.check(&mut |_, _| {}).unwrap();
                    assert!(report.is_sound(), "{:?}", report.damage);
                }
            }
            for (snapshot, then) in &snapshots {
                assert_snapshot(snapshot, then, true, random);
            }
            drop(snapshots);
            assert_eq!(scanned(&db), sorted(&model, db.order()));
            assert_eq!(inspected(&db, "held_bytes"), 0);
            assert_eq!(inspected(&db, "versions_in_memory"), 0);
            let report = db.check(&mut |_, _| {}).unwrap();
            assert!(report.is_sound(), "{:?}", report.damage);
            db.close().unwrap();
            db = TreeDb::open(&path, &opening(random, has_worker)).unwrap();
        }
        assert_eq!(scanned(&db), sorted(&model, db.order()));
    }
    tried_at_least(taken, 300, "snapshots");
    tried_at_least(looked, 600, "looks at a snapshot");
    tried_at_least(changes, 20_000, "changes next to snapshots");
}

#[test]
fn snapshots_show_one_moment_while_threads_move_sums() {
    const ACCOUNTS: u64 = 400;
    const EACH: u64 = 1000;
    let account = |number: u64| format!("account {number:05}").into_bytes();
    let (mut shown, mut moved) = (0, 0);
    for seed in 0..share(12) {
        let seed = seed + round_seed();
        let random = &mut Random::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let options = options(random, true);
        let options = options.order(Order::Lexical);
        let _case = case(seed, &options);
        let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
        for number in 0..ACCOUNTS {
            db.put(&account(number), &EACH.to_le_bytes()).unwrap();
        }
        let db = &db;
        let is_over = AtomicBool::new(false);
        let done = AtomicU64::new(0);
        let seeds: Vec<u64> = (0..4).map(|_| random.below(u64::MAX)).collect();
        std::thread::scope(|scope| {
            for seed in &seeds[..2] {
                let (is_over, done) = (&is_over, &done);
                scope.spawn(move || {
                    let mut random = Random::new(*seed);
                    while !is_over.load(Ordering::Relaxed) {
                        let from = random.below(ACCOUNTS);
                        let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
                        let by = random.below(50);
                        let names = [account(from), account(to)];
                        let mut both = [0, 0];
                        db.update_many(&[&names[0], &names[1]], &mut |values| {
                            both = [0, 1].map(|at: usize| {
                                u64::from_le_bytes(values[at].unwrap().try_into().unwrap())
                            });
                            let by = by.min(both[0]);
                            both = [both[0] - by, both[1] + by];
                            both.iter()
                                .map(|of| Edit::Put(of.to_le_bytes().to_vec().into()))
                                .collect()
                        })
                        .unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // Records between the accounts come and go: leaves divide and join.
            let is_over_too = &is_over;
            let seed = seeds[2];
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !is_over_too.load(Ordering::Relaxed) {
                    let first = random.below(ACCOUNTS);
                    for number in first..(first + 30).min(ACCOUNTS) {
                        for part in 0..4 {
                            let mut key = account(number);
                            key.extend_from_slice(format!(" {part}").as_bytes());
                            if random.one_in(2) {
                                let value = value(&mut random, 300);
                                db.put(&key, &value).unwrap();
                            } else {
                                db.remove(&key).unwrap();
                            }
                        }
                    }
                }
            });
            let mut random = Random::new(seeds[3]);
            let _over = Over(&is_over);
            let mut kept = Vec::new();
            for _ in 0..60 {
                let snapshot = db.snapshot().unwrap();
                let all = scanned(&snapshot);
                let accounts = all.iter().filter(|(key, _)| key.len() == 13);
                let sums =
                    accounts.map(|(_, value)| u64::from_le_bytes(value[..].try_into().unwrap()));
                let sums: Vec<u64> = sums.collect();
                assert_eq!(sums.len() as u64, ACCOUNTS);
                assert_eq!(sums.iter().sum::<u64>(), ACCOUNTS * EACH);
                assert_eq!(all.len() as u64, snapshot.count());
                shown += 1;
                kept.push((snapshot, all));
                for (snapshot, all) in &kept {
                    if random.one_in(4) {
                        assert!(scanned(snapshot) == *all, "a snapshot changed");
                    }
                    let (key, value) = &all[random.index(all.len())];
                    assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
                }
                while kept.len() > 4 || (!kept.is_empty() && random.one_in(3)) {
                    kept.swap_remove(random.index(kept.len()));
                }
            }
            drop(kept);
        });
        moved += done.load(Ordering::Relaxed);
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
        assert_eq!(inspected(db, "held_bytes"), 0);
        assert_eq!(inspected(db, "versions_in_memory"), 0);
    }
    tried_at_least(shown, 50, "snapshots next to threads");
    tried_at_least(moved, 1000, "sums moved");
}

#[test]
fn a_full_store_ends_the_oldest_snapshots_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let opening = OpenOptions::new()
        .cache(256u64 << 10)
        .background(false)
        .capacity(6u64 << 20);
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .opening(opening);
    let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    let key = |number: u64| format!("{number:06}").into_bytes();
    for number in 0..10_000 {
        db.put(&key(number), &[b'a'; 40]).unwrap();
    }
    let first = db.snapshot().unwrap();
    let before = scanned(&first);
    // All pages change again and again: what the snapshots need is more than the file has room for.
    let mut later = Vec::new();
    for round in 0..30_u8 {
        later.push(db.snapshot().unwrap());
        for number in 0..10_000 {
            db.put(&key(number), &[b'b' + round % 20; 40]).unwrap();
        }
    }
    assert_eq!(before.len(), 10_000);
    let error = first.get(key(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::TooOld, "{error}");
    let scan = first.scan(None, &mut |_, _| ControlFlow::Continue(()));
    assert_eq!(scan.unwrap_err().kind(), Kind::TooOld);
    let mut cursor = first.cursor();
    assert_eq!(cursor.last().unwrap_err().kind(), Kind::TooOld);
    drop(cursor);
    let last = later.last().unwrap();
    match last.get(key(77)) {
        Ok(value) => assert_eq!(value.as_deref(), Some(&[b'b' + 28 % 20; 40][..])),
        Err(error) => assert_eq!(error.kind(), Kind::TooOld),
    }
    drop((first, later));
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
    assert_eq!(inspected(&db, "held_bytes"), 0);
    assert_eq!(db.get(&key(77)).unwrap(), Some(vec![b'b' + 29 % 20; 40]));
}

#[test]
fn snapshots_that_hold_nothing_are_not_ended_for_what_has_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let opening = OpenOptions::new().background(false).capacity(6u64 << 20);
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .opening(opening);
    let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    db.put(b"small", b"value").unwrap();
    let snapshots = [db.snapshot().unwrap(), db.snapshot().unwrap()];
    let refused = db.put(b"large", &vec![0; 20 << 20]).unwrap_err();
    assert_eq!(refused.kind(), Kind::Full);
    let mut transaction = db.transaction().unwrap();
    transaction.put("large", vec![0; 20 << 20]).unwrap();
    assert_eq!(transaction.commit().unwrap_err().kind(), Kind::Full);
    for snapshot in &snapshots {
        assert_eq!(
            snapshot.get("small").unwrap().as_deref(),
            Some(&b"value"[..])
        );
    }
}

/// Most pages are on storage only when all is cleared, and their places are used again.
#[test]
fn a_snapshot_outlives_a_clear() {
    let folder = tempfile::tempdir().unwrap();
    let opening = OpenOptions::new().cache(256u64 << 10).background(false);
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .opening(opening);
    let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    let key = |number: u64| format!("{number:06}").into_bytes();
    for number in 0..20_000 {
        let len = if number % 100 == 0 { 5000 } else { 40 };
        db.put(&key(number), &vec![b'a'; len]).unwrap();
    }
    db.checkpoint().unwrap();
    let snapshot = db.snapshot().unwrap();
    let before = scanned(&snapshot);
    for round in 0..3_u8 {
        db.clear().unwrap();
        db.checkpoint().unwrap();
        for number in 0..20_000 {
            db.put(&key(number), &[b'b' + round; 60]).unwrap();
        }
        db.checkpoint().unwrap();
    }
    assert_eq!(before.len(), 20_000);
    assert!(scanned(&snapshot) == before, "it shows what came later");
    assert_eq!(
        snapshot.get(key(100)).unwrap().map(|of| of.len()),
        Some(5000)
    );
    drop(snapshot);
    assert_eq!(inspected(&db, "held_bytes"), 0);
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

#[test]
fn a_snapshot_is_not_taken_inside_an_update() {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions::new();
    let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    let other = TreeDb::create(folder.path().join("b.azt"), &options).unwrap();
    let mut refused = None;
    other
        .update(b"key", &mut |_| {
            refused = db.snapshot().err().map(|error| error.kind());
            Edit::Keep
        })
        .unwrap();
    assert_eq!(refused, Some(Kind::Invalid));
}
