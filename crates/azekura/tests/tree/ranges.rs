//! Ranges of keys that are counted and removed agree with a sorted map, as do records that are taken out at either end.
//!
//! Orders, caches, keys, ends and the lengths of ranges are drawn. Snapshots keep what a removal dropped; threads that read, write and
//! remove see all of a range or none; a full store takes a removal.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura::engine::{Engine, Persistent, Reader};
use azekura::order::Order;
use azekura::record::tree::{CreateOptions, OpenOptions, Snapshot, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Kind};

use super::{Ends, Keys, draw_ends, opening, options, value};

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// A sorted list of records, in an order.
struct Sorted {
    order: Order,
    records: Records,
}

impl Sorted {
    fn new(order: Order) -> Self {
        Self {
            order,
            records: Vec::new(),
        }
    }

    fn at(&self, key: &[u8]) -> usize {
        self.records
            .partition_point(|(own, _)| self.order.compare(own, key).is_lt())
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let at = self.at(&key);
        match self.records.get_mut(at) {
            Some(record) if record.0 == key => record.1 = value,
            _ => self.records.insert(at, (key, value)),
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let at = self.at(key);
        let is_there = self.records.get(at).is_some_and(|(own, _)| own == key);
        if is_there {
            self.records.remove(at);
        }
        is_there
    }

    fn places(&self, ends: &Ends) -> std::ops::Range<usize> {
        let after = |key: &[u8]| {
            let at = self.at(key);
            at + usize::from(self.records.get(at).is_some_and(|(own, _)| own == key))
        };
        let begin = match &ends.0 {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.at(key),
            Bound::Excluded(key) => after(key),
        };
        let end = match &ends.1 {
            Bound::Unbounded => self.records.len(),
            Bound::Included(key) => after(key),
            Bound::Excluded(key) => self.at(key),
        };
        begin..end.max(begin)
    }
}

fn all_of(reader: &dyn Reader) -> Records {
    let mut shown = Records::new();
    let end = reader.scan(None, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    shown
}

fn assert_same(db: &TreeDb, model: &Sorted) {
    assert_eq!(db.count(), model.records.len() as u64);
    assert!(all_of(db) == model.records, "records differ");
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
    assert_eq!(report.records, model.records.len() as u64);
}

/// Takes a record out at an end; whether it was the right one.
fn pop(db: &TreeDb, model: &mut Sorted, is_first: bool) {
    let expected = if model.records.is_empty() {
        None
    } else if is_first {
        Some(model.records.remove(0))
    } else {
        model.records.pop()
    };
    let popped = if is_first {
        db.pop_first()
    } else {
        db.pop_last()
    };
    assert_eq!(popped.unwrap(), expected);
}

#[test]
fn ranges_agree_with_a_sorted_map() {
    let (mut removals, mut removed, mut counted, mut popped) = (0, 0, 0, 0);
    for round in 0..share(36) {
        let seed = round + round_seed();
        let mut random = Random::new(seed ^ 0x7a6e);
        let drawn = options(&mut random, seed.is_multiple_of(2));
        let drawn = if random.one_in(2) {
            drawn.order(*random.choose(&Order::ALL))
        } else {
            drawn
        };
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
        let mut model = Sorted::new(drawn.order);
        for _ in 0..3 {
            for _ in 0..many {
                let (key, value) = (keys.key(random.below(many)), value(&mut random, 60));
                db.put(&key, &value).unwrap();
                model.put(key, value);
            }
            let mut snapshots: Vec<(Snapshot<'_>, Records)> = Vec::new();
            for _ in 0..30 {
                // A part of the keys, or neighbours.
                let near = random.one_in(2).then(|| random.below(many));
                let ends = draw_ends(&mut random, drawn.order, |random| {
                    keys.key(match near {
                        Some(at) => (at + random.below(40)) % many,
                        None => random.below(many),
                    })
                });
                let places = model.places(&ends);
                let expected = places.len() as u64;
                assert_eq!(db.count_range(ends.clone()).unwrap(), expected, "{ends:?}");
                counted += 1;
                let is_large = expected * 2 > model.records.len() as u64;
                if !is_large || random.one_in(6) {
                    if random.one_in(6) {
                        snapshots.push((db.snapshot().unwrap(), model.records.clone()));
                    }
                    match db.remove_range(ends.clone()) {
                        // Of a tree with more levels than so small a cache takes.
                        Err(error) => assert_eq!(error.kind(), Kind::TooLarge, "{error}"),
                        Ok(done) => {
                            assert_eq!(done, expected, "{ends:?}");
                            model.records.drain(places);
                            removals += 1;
                            removed += expected;
                            assert_eq!(db.count_range(ends.clone()).unwrap(), 0);
                        }
                    }
                    assert_eq!(db.count(), model.records.len() as u64);
                }
                for _ in 0..random.below(4) {
                    pop(&db, &mut model, random.one_in(2));
                    popped += 1;
                }
                for _ in 0..random.below(60) {
                    let (key, value) = (keys.key(random.below(many)), value(&mut random, 60));
                    if random.one_in(3) {
                        assert_eq!(db.remove(&key).unwrap(), model.remove(&key));
                    } else {
                        db.put(&key, &value).unwrap();
                        model.put(key, value);
                    }
                }
                match random.below(12) {
                    0 => db.checkpoint().unwrap(),
                    1 => db.maintain().unwrap(),
                    2 => assert_same(&db, &model),
                    _ => {}
                }
                if let Some((snapshot, then)) = snapshots.get(random.index(snapshots.len().max(1)))
                {
                    let sorted = Sorted {
                        order: drawn.order,
                        records: then.clone(),
                    };
                    let expected = sorted.places(&ends).len() as u64;
                    assert_eq!(snapshot.count_range(ends.clone()).unwrap(), expected);
                }
            }
            for (snapshot, then) in &snapshots {
                assert!(all_of(snapshot) == *then, "a snapshot changed");
            }
            drop(snapshots);
            assert_same(&db, &model);
            // Pages that went out of use are not counted as changed any more.
            db.checkpoint().unwrap();
            let inspected = db.inspect();
            let dirty = inspected.iter().find(|(of, _)| *of == "dirty_pages");
            assert_eq!(dirty.unwrap().1, "0");
            if random.one_in(2) {
                db.close().unwrap();
            } else {
                drop(db);
            }
            db = TreeDb::open(&path, &opening(&mut random, seed.is_multiple_of(2))).unwrap();
            assert_same(&db, &model);
        }
    }
    let what = format!("removals of ranges, of {removed} records in all");
    tried_at_least(removals, 1000, &what);
    tried_at_least(counted, 1500, "ranges counted");
    tried_at_least(popped, 1500, "records taken out at an end");
}

/// Readers, without a snapshot or with one, see all of a removed range or nothing of it, whoever else writes next to it or in it.
#[test]
fn readers_see_all_of_a_range_or_nothing() {
    const RANGES: u64 = 6;
    let (removals, looks) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..share(16).max(2) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, seed.is_multiple_of(2)).order(Order::Lexical);
        let each = *random.choose(&[20, 400, 2000]);
        let long = *random.choose(&[8, 60, 700]);
        let _shown = case(seed, &(&drawn, each, long));
        let folder = tempfile::tempdir().unwrap();
        let db = &TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        // Of each range, all records have the number of the round in which they were put; others are between.
        let name = |range: u64, number: u64| format!("{range}/{number:05}").into_bytes();
        let other = |range: u64, number: u64| format!("{range}-{number:05}").into_bytes();
        let value = |turn: u64| {
            let mut value = turn.to_le_bytes().to_vec();
            value.resize(long, turn as u8);
            value
        };
        let turn_of = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
        let ends = |range: u64| format!("{range}/").into_bytes()..format!("{range}/~").into_bytes();
        let is_over = &AtomicBool::new(false);
        let (removals, looks) = (&removals, &looks);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..RANGES)
                .map(|range| {
                    let mut random = Random::new(seed << 8 | range);
                    scope.spawn(move || {
                        let begun = Instant::now();
                        let mut turn = 0;
                        while begun.elapsed() < Duration::from_millis(700) || turn < 4 {
                            turn += 1;
                            for number in 0..each {
                                db.put(&name(range, number), &value(turn)).unwrap();
                                if random.one_in(8) {
                                    let number = random.below(40);
                                    db.put(&other(range, number), &value(turn)).unwrap();
                                }
                            }
                            assert_eq!(db.count_range(ends(range)).unwrap(), each);
                            assert_eq!(db.remove_range(ends(range)).unwrap(), each);
                            assert_eq!(db.count_range(ends(range)).unwrap(), 0);
                            removals.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for reader in 0..2_u64 {
                let mut random = Random::new(seed ^ reader << 33);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let range = random.below(RANGES);
                        let (one, two) = (random.below(each), random.below(each));
                        // Puts are in rising order: what is gone was removed, or is not there yet, if the first record is newer.
                        let first = db.get(&name(range, one.max(two))).unwrap();
                        let second = db.get(&name(range, one.min(two))).unwrap();
                        if let Some(first) = first.as_deref() {
                            // It was there when all before it were; then the range went as a whole, or is put again.
                            let later = second.as_deref().map(turn_of);
                            assert!(later.is_none_or(|later| later >= turn_of(first)));
                            let last = db.get(&name(range, one.max(two))).unwrap();
                            let is_same = last.as_deref().map(turn_of) == Some(turn_of(first));
                            assert!(
                                !(later.is_none() && is_same),
                                "a record was gone, and one after it was not"
                            );
                        }
                        if random.one_in(10) {
                            let snapshot = db.snapshot().unwrap();
                            let count = snapshot.count_range(ends(range)).unwrap();
                            if random.one_in(3) {
                                std::thread::sleep(Duration::from_millis(2));
                            }
                            let mut shown = 0;
                            let mut turns = BTreeSet::new();
                            for record in snapshot.range(ends(range)).unwrap() {
                                let (key, value) = record.unwrap();
                                assert_eq!(key, name(range, shown), "a record is missing");
                                shown += 1;
                                turns.insert(turn_of(&value));
                            }
                            assert_eq!(shown, count);
                            assert!(turns.len() <= 1, "{turns:?}");
                            looks.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    db.checkpoint().unwrap();
                    db.maintain().unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            for writer in writers {
                let joined = writer.join();
                if joined.is_err() {
                    is_over.store(true, Ordering::Relaxed);
                }
                joined.unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
        assert_eq!(report.records, db.count());
    }
    tried_at_least(
        removals.into_inner(),
        300,
        "ranges removed while others read",
    );
    tried_at_least(looks.into_inner(), 300, "ranges of snapshots");
}

/// A process that dies after removals of ranges, which no checkpoint has: they are done again, with the same ends.
#[test]
fn ranges_are_removed_again_after_a_kill() {
    let mut again = 0;
    for round in 0..share(40).max(6) {
        let seed = round + round_seed();
        let mut random = Random::new(seed ^ 0x51ab);
        let drawn = options(&mut random, false);
        let keys = Keys::draw(&mut random, drawn.order);
        let (drawn, keys) = match round {
            0 => (drawn.order(Order::Lexical), Keys::long()),
            _ => (drawn, keys),
        };
        let many = *random.choose(&[20, 600]);
        let _shown = case(seed, &(&drawn, keys, many));
        let folder = tempfile::tempdir().unwrap();
        let (path, killed) = (folder.path().join("a.azt"), folder.path().join("b.azt"));
        let db = TreeDb::create(&path, &drawn).unwrap();
        let mut model = Sorted::new(drawn.order);
        for number in 0..many {
            let (key, value) = (keys.key(number), value(&mut random, 60));
            db.put(&key, &value).unwrap();
            model.put(key, value);
        }
        db.checkpoint().unwrap();
        for _ in 0..9 {
            let from = random.below(many);
            let ends = draw_ends(&mut random, drawn.order, |random| {
                keys.key((from + random.below(12)) % many)
            });
            let places = model.places(&ends);
            assert_eq!(db.remove_range(ends).unwrap(), places.len() as u64);
            again += u64::from(!places.is_empty());
            model.records.drain(places);
            let (key, value) = (keys.key(random.below(many)), value(&mut random, 60));
            db.put(&key, &value).unwrap();
            model.put(key, value);
        }
        // As its process leaves it when it dies.
        std::fs::copy(&path, &killed).unwrap();
        let opened = TreeDb::open(&killed, &opening(&mut random, false)).unwrap();
        assert_same(&opened, &model);
        assert_same(&db, &model);
    }
    tried_at_least(again, 100, "removals of ranges done again");
}

/// Records come into a range, and go, while it is removed again and again from a cache that holds a part of it: what a leaf had when it
/// was looked at first is not what is counted, nor what is given back.
#[test]
fn what_comes_into_a_range_meanwhile_is_counted() {
    const MANY: u64 = 12_000;
    let changes = AtomicU64::new(0);
    for round in 0..share(10).max(2) {
        let seed = round + round_seed();
        let folder = tempfile::tempdir().unwrap();
        let opening = OpenOptions::new().cache(256u64 << 10);
        let small = CreateOptions::new().segment_size(64u64 << 10);
        let db = &TreeDb::create(folder.path().join("a.azt"), &small.opening(opening)).unwrap();
        let name = |number: u64| format!("{number:06}").into_bytes();
        let (is_over, changes) = (&AtomicBool::new(false), &changes);
        let left = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2_u64)
                .map(|thread| {
                    let mut random = Random::new(seed << 8 | thread);
                    scope.spawn(move || {
                        while !is_over.load(Ordering::Relaxed) {
                            let number = random.below(MANY);
                            if random.one_in(4) {
                                db.remove(&name(number)).unwrap();
                            } else {
                                let len = *random.choose(&[40, 200, 200, 900]);
                                db.put(&name(number), &vec![7; len]).unwrap();
                            }
                            changes.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let mut random = Random::new(seed);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1500) {
                let (from, len) = (random.below(MANY), random.below(MANY));
                db.remove_range(name(from)..name(from + len)).unwrap();
                std::thread::sleep(Duration::from_millis(random.below(40)));
            }
            is_over.store(true, Ordering::Relaxed);
            for writer in writers {
                writer.join().unwrap();
            }
            all_of(db).len() as u64
        });
        assert_eq!(db.count(), left);
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
        assert_eq!(report.records, left);
    }
    tried_at_least(
        changes.into_inner(),
        10_000,
        "changes of ranges that are being removed",
    );
}

/// A store that takes nothing more takes the removal of a range, and has its room again.
#[test]
fn a_full_store_takes_the_removal_of_a_range() {
    let mut removed = 0;
    for round in 0..share(12).max(2) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let opening = OpenOptions::new()
            .cache(*random.choose(&[256 << 10, 1 << 20, 64 << 20]))
            .background(random.one_in(2))
            .capacity(*random.choose(&[2 << 20, 4 << 20]));
        let len = *random.choose(&[20, 300, 3000]);
        let drawn = CreateOptions::new()
            .segment_size(64u64 << 10)
            .opening(opening);
        let _shown = case(seed, &(&drawn, len));
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        let name = |number: u64| format!("{:08}", number.wrapping_mul(7919) % 1_000_003);
        for _ in 0..3 {
            let (mut number, mut failures) = (0, 0);
            while failures < 5 {
                match db.put(name(number).as_bytes(), &vec![7; len]) {
                    Ok(()) => number += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Full, "{error}");
                        failures += 1;
                    }
                }
            }
            let count = db.count();
            // The ends of this range are more than the journal has room for: nothing is removed, and no page is left over.
            let mut long = b"~".to_vec();
            long.resize(6 << 20, b'~');
            let error = db.remove_range(&b"001"[..]..&long[..]).unwrap_err();
            assert_eq!(error.kind(), Kind::Full, "{error}");
            assert_eq!(db.count(), count);
            let report = db.check(&mut |_, _| {}).unwrap();
            assert!(report.is_sound(), "{:?}", report.damage);
            let parts = [("00".."003"), ("003".."0099"), ("0099".."~")];
            for part in parts {
                let here = db.count_range(part.clone()).unwrap();
                assert_eq!(db.remove_range(part).unwrap(), here);
                removed += here;
            }
            assert_eq!(db.count(), 0, "of {count}");
            let report = db.check(&mut |_, _| {}).unwrap();
            assert!(report.is_sound(), "{:?}", report.damage);
        }
    }
    tried_at_least(
        removed,
        20_000,
        "records in ranges that full stores removed",
    );
}

/// A reader on its way down, while all pages below it go out of use, and some of them are not in memory, finds absence, not damage.
#[test]
fn a_reader_meets_no_damage_where_all_is_removed() {
    let (mut removals, reads) = (0, AtomicU64::new(0));
    for round in 0..share(10).max(2) {
        let folder = tempfile::tempdir().unwrap();
        let opening = OpenOptions::new().cache(256u64 << 10);
        let options = CreateOptions::new()
            .segment_size(64u64 << 10)
            .opening(opening);
        let db = &TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
        // Seven keys a page: inner pages are many.
        let key = |number: u64| {
            let mut key = format!("{number:06}").into_bytes();
            key.resize(500, b'k');
            key
        };
        let is_over = &AtomicBool::new(false);
        let (reads, turn_now) = (&reads, &AtomicU64::new(0));
        std::thread::scope(|scope| {
            for reader in 0..3_u64 {
                let mut random = Random::new(round << 8 | reader);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let number = random.below(3000);
                        match db.get(&key(number)) {
                            Ok(found) => assert!(found.is_none_or(|found| found == b"value")),
                            Err(error) => {
                                is_over.store(true, Ordering::Relaxed);
                                panic!("turn {}: {error}", turn_now.load(Ordering::Relaxed));
                            }
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for turn in 0..12_u64 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                turn_now.store(turn, Ordering::Relaxed);
                (0..3000).for_each(|number| db.put(&key(number), b"value").unwrap());
                if turn % 2 == 0 {
                    db.clear().unwrap();
                } else {
                    let removed = db.remove_range(key(0)..=key(2999)).unwrap();
                    assert_eq!(removed, 3000);
                }
                removals += 1;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(db.count(), 0);
    }
    tried_at_least(removals, 100, "removals of everything");
    tried_at_least(reads.into_inner(), 10_000, "reads next to them");
}

#[test]
fn ranges_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let db = TreeDb::create(folder.path().join("a.azt"), &CreateOptions::default()).unwrap();
    db.put(b"b", b"1").unwrap();
    let long = vec![b'x'; 8 << 20];
    let error = db.remove_range("c".."a").unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert_eq!(db.count_range("c".."a").unwrap_err().kind(), Kind::Invalid);
    let error = db.remove_range(&long[..]..).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    assert_eq!(db.count_range(&long[..]..).unwrap(), 0);
    assert_eq!(db.remove_range("b".."b").unwrap(), 0);
    let ends = (Bound::Excluded("a"), Bound::Excluded("a"));
    assert_eq!(db.remove_range::<&str>(ends).unwrap(), 0);
    db.update(b"b", &mut |_| {
        let error = db.remove_range::<&str>(..).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        Edit::Keep
    })
    .unwrap();
    assert_eq!(db.count(), 1);
    assert_eq!(db.remove_range("b"..="b").unwrap(), 1);
}
