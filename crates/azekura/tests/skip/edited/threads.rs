//! Threads that read, by the store and by the sorted file alone, while others edit and merge.
//!
//! Values of a key only grow: a reader that saw one never sees an older one. What stays is in every scan once, in order. Edits that are
//! made together are seen together. Nothing that threads add to a total is lost or counted twice, also after another opening.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::engine::Ordered as _;
use azekura::record::skip::{EditOptions, Reducer, ReducingSkipDb, SkipDb, SkipReader};
use azekura::testkit::suite::{demand, share};
use azekura::testkit::{Random, concurrently, round_seed};
use azekura::{Edit, Engine as _, Persistent as _, Reader as _};

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

fn number(value: Option<&[u8]>) -> u64 {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// States that it is over, however the work ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn readers_see_no_older_value_whatever_is_merged() {
    let (mut seen, mut merges) = (0, 0);
    for round in 0..6 {
        let (seen_now, merges_now) = read_during_merges(round_seed() + round * 1000);
        (seen, merges) = (seen + seen_now, merges + merges_now);
    }
    demand(seen, 600, "readings during edits and merges");
    demand(merges, share(300), "files that a reader met under the name");
}

/// How often was read, and how many files were met.
fn read_during_merges(seed: u64) -> (u64, u64) {
    const KEYS: u64 = 400;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    let options = EditOptions::new().memory(8u64 << 10);
    let db = SkipDb::create(&path, &options).unwrap();
    for at in 0..KEYS {
        db.update(&key(at), &mut |_| Edit::put(b"0")).unwrap();
    }
    let (over, seen, merges) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let edit = |seed: u64| {
        let mut random = Random::new(seed);
        for _ in 0..share(20_000) {
            // Neighbours are changed together, the second by the first one's number.
            let at = random.below(KEYS / 2) * 2;
            let (first, second) = (key(at), key(at + 1));
            db.update_many(&[&first, &second], &mut |values| {
                let next = number(values[0]).max(number(values[1])) + 1;
                let next = next.to_string().into_bytes();
                vec![Edit::Put(next.clone().into()), Edit::Put(next.into())]
            })
            .unwrap();
        }
    };
    let read = |seed: u64| {
        let mut random = Random::new(seed);
        let mut last = vec![0; KEYS as usize];
        while !over.load(Ordering::Relaxed) {
            let at = random.below(KEYS / 2) * 2;
            for at in [at, at + 1] {
                let found = db.read_with(&key(at), number).unwrap();
                let before = last[at as usize];
                assert!(found >= before, "key {at}: {found} after {before}");
                last[at as usize] = found;
            }
            // The pair was read in its order: the second is at least as new.
            assert!(last[at as usize + 1] >= last[at as usize]);
            seen.fetch_add(1, Ordering::Relaxed);
        }
    };
    let scan = || {
        let mut rounds = 0;
        while !over.load(Ordering::Relaxed) {
            let mut at = 0;
            db.scan(None, &mut |found, _| {
                assert_eq!(found, key(at));
                at += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(at, KEYS);
            let mut cursor = db.cursor();
            let mut is_there = cursor.last().unwrap();
            for at in (0..KEYS).rev() {
                assert!(is_there);
                assert_eq!(cursor.record().unwrap().0, key(at));
                is_there = cursor.previous().unwrap();
            }
            rounds += 1;
        }
        seen.fetch_add(rounds, Ordering::Relaxed);
    };
    // What another process sees: the file of the name, each time opened anew.
    let read_base = || {
        let mut last = vec![0; KEYS as usize];
        let mut identity = 0;
        while !over.load(Ordering::Relaxed) {
            let file = SkipReader::open(&path).unwrap();
            let mut sum = 0;
            for at in 0..KEYS {
                let found = file.read_with(&key(at), number).unwrap();
                assert!(
                    found >= last[at as usize],
                    "the file of the name is an older one"
                );
                last[at as usize] = found;
                sum += found;
            }
            if sum != identity {
                merges.fetch_add(1, Ordering::Relaxed);
                identity = sum;
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || read(seed + thread));
        }
        scope.spawn(scan);
        scope.spawn(read_base);
        let _over = Over(&over);
        std::thread::scope(|editors| {
            for thread in 0..3 {
                editors.spawn(move || edit(seed + 100 + thread));
            }
        });
    });
    (seen.into_inner(), merges.into_inner())
}

#[test]
fn a_check_beside_threads_finds_nothing() {
    let mut checks = 0;
    for seed in round_seed()..round_seed() + 3 {
        let folder = tempfile::tempdir().unwrap();
        let db = SkipDb::create(folder.path().join("a.azs"), &EditOptions::new()).unwrap();
        let over = AtomicBool::new(false);
        let (db, over) = (&db, &over);
        std::thread::scope(|scope| {
            let _over = Over(over);
            for thread in 0..3 {
                scope.spawn(move || {
                    let mut random = Random::new(seed * 10 + thread);
                    while !over.load(Ordering::Relaxed) {
                        let keys: Vec<_> = (0..8).map(|_| key(random.below(60))).collect();
                        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                        let edit = |random: &mut Random| match random.below(2) {
                            0 => Edit::Remove,
                            _ => Edit::put(b"there"),
                        };
                        db.update_many(&keys, &mut |_| {
                            keys.iter().map(|_| edit(&mut random)).collect()
                        })
                        .unwrap();
                    }
                });
            }
            for _ in 0..share(600) {
                let report = db.check(&mut |_, _| {}).unwrap();
                assert!(report.is_sound(), "{:?}", report.damage);
                checks += 1;
            }
        });
    }
    demand(checks, share(1800), "checks beside threads that edit");
}

#[test]
fn what_threads_add_is_counted_once() {
    let merges = (0..8).map(add_during_merges).sum();
    demand(merges, 16, "merges while threads add");
}

/// How often was merged.
fn add_during_merges(round: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    let options = EditOptions::new().memory(16u64 << 10);
    let (threads, adds) = (4, share(60_000));
    let total = |db: &ReducingSkipDb| {
        let mut total = 0;
        db.scan(None, &mut |_, value| {
            total += number(Some(value));
            ControlFlow::Continue(())
        })
        .unwrap();
        total
    };
    let open = || ReducingSkipDb::open_reducing(&path, Reducer::TotalDecimal, &options).unwrap();
    let db = ReducingSkipDb::create_reducing(&path, Reducer::TotalDecimal, &options).unwrap();
    let add = |seed: u64| {
        let mut random = Random::new(seed);
        for _ in 0..adds {
            db.add(&key(random.below(300)), b"1").unwrap();
        }
    };
    let merge = |over: &AtomicBool| {
        let mut count = 0;
        while !over.load(Ordering::Relaxed) {
            db.merge(&mut |_, _| {}).unwrap();
            count += 1;
        }
        count
    };
    let ((), merges) = concurrently(merge, || {
        std::thread::scope(|scope| {
            for seed in 0..threads {
                scope.spawn(move || add(seed + 10 * round));
            }
        });
    });
    assert_eq!(total(&db), threads * adds);
    drop(db);
    let db = open();
    assert_eq!(total(&db), threads * adds);
    db.merge(&mut |_, _| {}).unwrap();
    assert_eq!(total(&db), threads * adds);
    merges
}

/// A revert is between two edits, whole: a thread that counts up never finds a number that was never put.
#[test]
fn a_revert_and_a_clear_among_edits_leave_whole_states() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    let db = SkipDb::create(&path, &EditOptions::new().memory(64u64 << 10)).unwrap();
    let keys: Vec<Vec<u8>> = (0..6).map(key).collect();
    let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let edit = |over: &AtomicBool| {
        let mut edits = 0;
        while !over.load(Ordering::Relaxed) {
            db.update_many(&lent, &mut |values| {
                let numbers: Vec<u64> = values.iter().map(|value| number(*value)).collect();
                assert!(numbers.iter().all(|n| *n == numbers[0]), "{numbers:?}");
                let next = (numbers[0] + 1).to_string().into_bytes();
                values
                    .iter()
                    .map(|_| Edit::Put(next.clone().into()))
                    .collect()
            })
            .unwrap();
            edits += 1;
        }
        edits
    };
    let ((), edits) = concurrently(edit, || {
        for round in 0..share(1000) {
            match round % 3 {
                0 => db.revert().unwrap(),
                1 => db.clear().unwrap(),
                _ => db.merge(&mut |_, _| {}).unwrap(),
            }
        }
    });
    demand(edits, 10, "edits of six keys among reverts");
    assert!([0, 6].contains(&db.count()));
    drop(db);
    let db = SkipDb::open(&path, &EditOptions::new()).unwrap();
    let values: Vec<_> = keys.iter().map(|key| db.get(key).unwrap()).collect();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
}
