//! The cache of an open tree becomes larger and smaller, while threads write, read, scan and look at snapshots, and checkpoints are made.
//!
//! Each writer has keys of its own and knows what they hold; readers verify that a value belongs to its key and does not go back. In
//! the end the tree holds what the writers know, also when it was opened again; and after each reduction the pages in memory are no more
//! than the cache takes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::Kind;
use azekura::engine::{Engine, Ordered, Persistent, Reader};
use azekura::order::Order;
use azekura::record::tree::{CACHE_MIN, CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};

use super::{eight, options};

/// How often the size changes in a case.
const CHANGES: u64 = 12;

/// Bytes that a cache of so many bytes may take, of pages of this size.
fn bound(cache: u64, page: u64) -> u64 {
    cache.max(64 * page)
}

fn page_bytes(db: &TreeDb) -> u64 {
    inspected(db, "page_bytes")
}

fn inspected(db: &TreeDb, name: &str) -> u64 {
    let all = db.inspect();
    let found = all.iter().find(|(named, _)| *named == name);
    found.unwrap().1.parse().unwrap()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let mut value = [eight(number), eight(version)].concat();
    let len = if number.is_multiple_of(40) { 3000 } else { 90 };
    value.resize(16 + len, version as u8);
    value
}

/// The number that eight bytes state.
#[expect(clippy::big_endian_bytes, reason = "as keys state them")]
fn number_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

fn version_of(number: u64, value: &[u8]) -> u64 {
    let version = number_of(&value[8..16]);
    assert_eq!(value, self::value(number, version));
    version
}

/// What one writer did: versions of its keys, each a number with the same rest; 0: there is none.
fn write(db: &TreeDb, is_over: &AtomicBool, done: &[AtomicU64], mut random: Random, rest: u64) {
    let count = done.len() as u64 / 2;
    while !is_over.load(Ordering::Relaxed) {
        let number = random.below(count) * 2 + rest;
        let last = &done[number as usize];
        let version = last.load(Ordering::Relaxed);
        let key = eight(number);
        if random.one_in(5) {
            db.remove(&key).unwrap();
        } else if random.one_in(6) {
            let decide = &mut |before: Option<&[u8]>| {
                assert!(before.is_none_or(|value| version_of(number, value) <= version));
                azekura::Edit::Put(value(number, version + 1).into())
            };
            db.update(&key, decide).unwrap();
        } else {
            db.put(&key, &value(number, version + 1)).unwrap();
        }
        last.store(version + 1, Ordering::Release);
    }
}

#[test]
fn the_cache_changes_its_size_beside_readers_and_writers() {
    let mut changes = 0;
    for round in 0..share(12).max(2) {
        let seed = round + round_seed();
        changes += change_beside_others(seed);
    }
    tried_at_least(changes, share(12).max(2) * CHANGES, "changes of the cache");
}

fn change_beside_others(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let options = options(&mut random, seed.is_multiple_of(2)).order(Order::Lexical);
    let _shown = case(seed, &options);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resized.azt");
    let db = TreeDb::create(&path, &options).unwrap();
    let page = page_bytes(&db);
    let count = 20_000;
    for number in 0..count {
        db.put(&eight(number), &value(number, 1)).unwrap();
    }
    let done: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(1)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for rest in 0..2 {
            let random = Random::new(random.u64());
            let (db, is_over, done) = (&db, &is_over, &done);
            scope.spawn(move || write(db, is_over, done, random, rest));
        }
        let mut reading = Random::new(random.u64());
        let (shared, is_over, done) = (&db, &is_over, &done);
        scope.spawn(move || {
            let db = shared;
            while !is_over.load(Ordering::Relaxed) {
                let number = reading.below(count);
                let least = done[number as usize].load(Ordering::Acquire);
                if let Some(value) = db.get(&eight(number)).unwrap() {
                    assert!(version_of(number, &value) >= least);
                }
                if reading.one_in(2000) {
                    let snapshot = db.snapshot().unwrap();
                    let (mut seen, mut last) = (0, None);
                    snapshot
                        .scan_past(
                            None,
                            &mut |key, value| {
                                let number = number_of(key);
                                assert!(last.replace(number) < Some(number));
                                version_of(number, value);
                                seen += 1;
                                ControlFlow::Continue(())
                            },
                            &mut |error| Err(error),
                        )
                        .unwrap();
                    assert_eq!(seen, snapshot.count());
                }
            }
        });
        for _ in 0..CHANGES {
            let cache = *random.choose(&[CACHE_MIN, 300 << 10, 700 << 10, 3 << 20, 16 << 20]);
            db.set_cache(cache).unwrap();
            if random.one_in(3) {
                db.checkpoint().unwrap();
            }
            assert!(inspected(&db, "cache_bytes") <= bound(cache, page));
            std::thread::sleep(std::time::Duration::from_millis(random.below(60)));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    db.set_cache(16 << 20).unwrap();
    let known = all_of(&db);
    db.set_cache(CACHE_MIN).unwrap();
    assert!(db.stats().memory_bytes <= bound(CACHE_MIN, page));
    assert_eq!(all_of(&db), known);
    assert!(db.stats().memory_bytes <= bound(CACHE_MIN, page));
    assert!(db.check(&mut |_, _| {}).unwrap().is_sound());
    for (number, version) in &known {
        assert_eq!(*version, done[*number as usize].load(Ordering::Relaxed));
    }
    drop(db);
    let db = TreeDb::open(&path, &OpenOptions::new().cache(1 << 20)).unwrap();
    assert_eq!(all_of(&db), known);
    assert_eq!(inspected(&db, "cache_bytes"), bound(1 << 20, page));
    CHANGES
}

/// The version of each number that is there.
fn all_of(db: &TreeDb) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    for number in 0..20_000 {
        if let Some(value) = db.get(&eight(number)).unwrap() {
            all.insert(number, version_of(number, &value));
        }
    }
    assert_eq!(all.len() as u64, db.count());
    all
}

#[test]
fn a_reduction_beside_a_reader_that_stays_returns_memory_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("held.azt");
    let opening = OpenOptions::new().cache(16 << 20).background(false);
    let db = TreeDb::create(&path, &CreateOptions::new().opening(opening)).unwrap();
    for number in 0..40_000 {
        db.put(&eight(number), &[7; 90]).unwrap();
    }
    let before = db.stats().memory_bytes;
    assert!(before > 4 << 20);
    db.read_with(&eight(3), |value| {
        db.set_cache(1 << 20).unwrap();
        assert_eq!(value, Some(&[7; 90][..]));
        assert_eq!(db.stats().memory_bytes, before);
        // What is taken again is used as it is.
        db.set_cache(2 << 20).unwrap();
        for number in (0..40_000).step_by(7) {
            assert!(db.get(&eight(number)).unwrap().is_some());
        }
        assert_eq!(db.stats().memory_bytes, before);
        // What a second reduction adds to what waits is not less than that.
        db.set_cache(1 << 20).unwrap();
        assert_eq!(db.stats().memory_bytes, before);
    })
    .unwrap();
    db.put(b"one more", b"").unwrap();
    db.checkpoint().unwrap();
    assert_eq!(db.stats().memory_bytes, 1 << 20);
    for number in 0..40_000 {
        assert_eq!(db.get(&eight(number)).unwrap(), Some(vec![7; 90]));
    }
}

/// Changed pages move to other frames, and the images before their changes are still what a snapshot needs.
#[test]
fn a_snapshot_is_what_it_was_while_the_cache_changes() {
    const NUMBERS: u64 = 12_000;
    let mut compared = 0;
    for round in 0..share(30).max(4) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, false).order(Order::Lexical);
        let _shown = case(seed, &drawn);
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        let mut known = vec![0_u8; NUMBERS as usize];
        for number in 0..NUMBERS {
            db.put(&eight(number), &[0; 90]).unwrap();
        }
        for version in 1..6 {
            db.checkpoint().unwrap();
            let (snapshot, then) = (db.snapshot().unwrap(), known.clone());
            for cache in [CACHE_MIN, 4 << 20, CACHE_MIN, 4 << 20] {
                for _ in 0..1500 {
                    let number = random.below(NUMBERS);
                    db.put(&eight(number), &[version; 90]).unwrap();
                    known[number as usize] = version;
                }
                db.set_cache(cache).unwrap();
                if random.one_in(2) {
                    db.checkpoint().unwrap();
                }
            }
            for (number, version) in (0..NUMBERS).zip(&then) {
                let shown = snapshot.get(eight(number)).unwrap();
                assert_eq!(shown, Some(vec![*version; 90]), "{number}");
                compared += 1;
            }
        }
    }
    tried_at_least(compared, 30 * 5 * NUMBERS, "records of snapshots compared");
}

/// A page that comes back to a frame whose memory was returned meanwhile is not taken for what a cursor has copied of it. So many
/// others come into memory before that it is once the same frame.
#[test]
fn a_cursor_knows_a_page_that_left_and_came_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("back.azt");
    let opening = OpenOptions::new().cache(16 << 20).background(false);
    let db = TreeDb::create(&path, &CreateOptions::new().opening(opening.clone())).unwrap();
    for number in 0..40_000 {
        db.put(&eight(number), &[7; 90]).unwrap();
    }
    db.close().unwrap();
    let reads = |db: &TreeDb| inspected(db, "page_reads");
    let mut tried = 0;
    for others in 0..160 {
        let db = TreeDb::open(&path, &opening).unwrap();
        for number in 0..3000 {
            db.get(&eight(number)).unwrap();
        }
        let mut cursor = db.cursor();
        assert!(cursor.seek(&eight(3010)).unwrap() && cursor.next().unwrap());
        db.set_cache(CACHE_MIN).unwrap();
        let was_there = db.get(&eight(3012)).unwrap().is_some();
        if was_there {
            db.remove(&eight(3012)).unwrap();
        } else {
            db.put(&eight(3012), &[7; 90]).unwrap();
        }
        db.checkpoint().unwrap();
        for number in 20_000..25_000 {
            db.get(&eight(number)).unwrap();
        }
        db.set_cache(16 << 20).unwrap();
        let before = reads(&db);
        let mut number = 30_000;
        while reads(&db) < before + others {
            db.get(&eight(number)).unwrap();
            number += 1;
        }
        db.get(&eight(3011)).unwrap();
        assert!(cursor.next().unwrap());
        let expected = eight(if was_there { 3013 } else { 3012 });
        assert_eq!(
            cursor.record().unwrap().0,
            expected,
            "after {others} others"
        );
        drop(cursor);
        db.close().unwrap();
        tried += 1;
    }
    tried_at_least(tried, 160, "pages that left and came back");
}

#[test]
fn a_cache_that_is_too_small_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("least.azt");
    let db = azekura::create(&path).unwrap();
    let error = db.set_cache(CACHE_MIN - 1).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    let text = error.to_string();
    assert!(text.contains("262143 bytes") && text.contains("least.azt"));
    db.set_cache(CACHE_MIN).unwrap();
    let other = azekura::create(folder.path().join("hash.azh")).unwrap();
    assert_eq!(other.set_cache(1 << 30).unwrap_err().kind(), Kind::Invalid);
    let inner = db.as_tree().unwrap();
    let mut refused = None;
    other
        .update("key", |_| {
            refused = inner.set_cache(1 << 20).err();
            azekura::Edit::Keep
        })
        .unwrap();
    assert_eq!(refused.unwrap().kind(), Kind::Invalid);
}

/// A full store takes all removals, also when it was given a larger cache, or refuses that.
#[test]
fn a_full_store_with_a_larger_cache_takes_all_removals() {
    let (mut refused, mut taken) = (0, 0);
    for (page_size, larger) in [(4096, 512), (4096, 2048), (16_384, 2048), (16_384, 4096)] {
        for overwritten in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let opening = OpenOptions::new()
                .cache(256u64 << 10)
                .capacity(6u64 << 20)
                .background(false);
            let options = CreateOptions::new()
                .page_size(page_size)
                .segment_size(64u64 << 10)
                .opening(opening);
            let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
            let key = |number: u64| eight(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut many = 0;
            while db.put(&key(many), &[7; 150]).is_ok() {
                many += 1;
            }
            for number in (0..many).filter(|_| overwritten) {
                let _ = db.put(&key(number), &[8; 150]);
            }
            match db.set_cache(larger << 10) {
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full);
                    refused += 1;
                }
                Ok(()) => taken += 1,
            }
            for number in 0..many {
                assert!(db.remove(&key(number)).unwrap(), "{number} of {many}");
            }
            assert_eq!(db.count(), 0);
            db.put(b"more", b"fits").unwrap();
        }
    }
    assert!(refused > 0, "{refused} refused, {taken} taken");
}
