//! Compaction gives back what random keys and removals left, and loses nothing during reads, writes and snapshots.
//!
//! Sizes are those of the file: its length, and what the file system has allocated for it. What is drawn among other steps is in `model`, and
//! what cuts of the power leave in `power`; here are bounds on sizes, threads, and full stores.

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura::Kind;
use azekura::engine::{Persistent, Reader};
use azekura::order::Order;
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};

use super::{eight, options};

fn compact(db: &TreeDb) {
    db.compact(&mut |done, all| assert!(done <= all, "{done} of {all}"))
        .unwrap();
}

fn assert_sound(db: &TreeDb, records: u64) {
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
    assert_eq!(report.records, records);
    assert_eq!(db.count(), records);
}

/// Length and allocated bytes of a file.
fn sizes(path: &Path) -> (u64, u64) {
    let metadata = std::fs::metadata(path).unwrap();
    (metadata.len(), metadata.blocks() * 512)
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures that are asserted")]
fn a_file_filled_at_random_is_compacted() {
    const RECORDS: u64 = 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let db = TreeDb::create(&path, &CreateOptions::default()).unwrap();
    let mut random = Random::new(5);
    while db.count() < RECORDS {
        db.put(&eight(random.u64()), &random.u64().to_le_bytes())
            .unwrap();
    }
    db.close().unwrap();
    let filled = sizes(&path);
    assert!(filled.0 < 38 * RECORDS, "closed, it has {filled:?} bytes");
    let db = TreeDb::open(&path, &OpenOptions::default()).unwrap();
    assert_sound(&db, RECORDS);
    compact(&db);
    let compacted = sizes(&path);
    assert_sound(&db, RECORDS);
    let mut random = Random::new(5);
    for _ in 0..1000 {
        let (key, value) = (eight(random.u64()), random.u64().to_le_bytes());
        assert_eq!(db.get(&key).unwrap().as_deref(), Some(&value[..]));
    }
    let live = db.stats().live_bytes;
    db.close().unwrap();
    let closed = sizes(&path);
    println!(
        "tried: bytes of {RECORDS} records, and allocated: {filled:?}, compacted {compacted:?}, closed {closed:?}, of these live {live}"
    );
    assert!(closed.0 <= 28 * RECORDS, "{closed:?}");
    assert!(closed.1 <= 28 * RECORDS, "{closed:?}");
    assert!(compacted.0 <= 30 * RECORDS, "{compacted:?}");
    let db = TreeDb::open(&path, &OpenOptions::default()).unwrap();
    assert_sound(&db, RECORDS);
}

/// Of records and long values all over the file, few are left; some are held by a snapshot for a while.
#[test]
fn a_file_is_cut_to_what_is_left_of_it() {
    let mut saved = 0;
    for round in 0..share(12) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, seed.is_multiple_of(2));
        let _shown = case(seed, &drawn);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let db = TreeDb::create(&path, &drawn.segment_size(64u64 << 10)).unwrap();
        let mut model = std::collections::BTreeMap::new();
        let longest = *random.choose(&[60, 2000, 20_000]);
        for _ in 0..8000 {
            let len = random.below(longest) as usize;
            let (key, value) = (eight(random.below(1 << 20)).to_vec(), random.bytes(len));
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        let snapshot = db.snapshot().unwrap();
        let all = model.len() as u64;
        let gone: Vec<_> = model
            .keys()
            .filter(|_| !random.one_in(6))
            .cloned()
            .collect();
        for key in gone {
            assert!(db.remove(&key).unwrap());
            model.remove(&key);
        }
        let before = sizes(&path).0;
        compact(&db);
        let mut seen = 0;
        let scanned = snapshot.scan(None, &mut |_, _| {
            seen += 1;
            ControlFlow::Continue(())
        });
        match scanned {
            Ok(_) => assert_eq!(seen, all),
            Err(error) => assert_eq!(error.kind(), Kind::TooOld, "{error}"),
        }
        drop(snapshot);
        compact(&db);
        let after = sizes(&path).0;
        for (key, value) in &model {
            assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
        }
        assert_sound(&db, model.len() as u64);
        let live = db.stats().live_bytes;
        // Segments of the log and of parts, and the last of the pages.
        let most = live + live / 8 + 20 * (64 << 10);
        assert!(after <= most, "{before}, then {after} for {live}");
        saved += before.saturating_sub(after);
        db.close().unwrap();
        let db = TreeDb::open(&path, &OpenOptions::new().background(false)).unwrap();
        assert_sound(&db, model.len() as u64);
    }
    tried_at_least(saved, 500_000, "bytes given back");
}

/// Where keys are long, a fence that moves between two leaves may be longer than the one before, in nodes above that are full.
#[test]
fn keys_of_all_lengths_are_compacted() {
    let mut compacted = 0;
    for round in 0..share(40).max(8) {
        let seed = round + round_seed();
        let mut random = Random::new(seed ^ 0xc0);
        let drawn = options(&mut random, false).order(Order::Lexical);
        let letters = 1 + random.below(3);
        let _shown = case(seed, &(&drawn, letters));
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        let mut model = std::collections::BTreeMap::new();
        for _ in 0..4 {
            for _ in 0..1500 {
                let longest = *random.choose(&[20, 200, 509]);
                let len = 1 + random.below(longest) as usize;
                let mut key = random.bytes(len);
                for byte in &mut key {
                    *byte %= letters as u8 + 1;
                }
                let most = *random.choose(&[10, 400]);
                let value = vec![7; random.below(most) as usize];
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            model.retain(|key, _| {
                let stays = random.one_in(2);
                assert!(stays || db.remove(key).unwrap());
                stays
            });
            compact(&db);
            compacted += model.len() as u64;
            for (key, value) in &model {
                assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
            }
            assert_sound(&db, model.len() as u64);
        }
    }
    tried_at_least(compacted, 40 * 4000, "records of all lengths compacted");
}

/// Each writer has keys of its own, and knows what it wrote; readers meanwhile see each record once, and of each the last value or a
/// newer one.
#[test]
fn threads_read_and_write_while_it_is_compacted() {
    const KEYS: u64 = 6000;
    let mut rounds = 0;
    for round in 0..share(6) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, true).order(Order::Lexical);
        let _shown = case(seed, &drawn);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let db = TreeDb::create(&path, &drawn).unwrap();
        let key = |writer: u64, number: u64| eight(number * 2 + writer);
        let value = |number: u64, version: u64| {
            let mut value = [number.to_le_bytes(), version.to_le_bytes()].concat();
            let len = if number.is_multiple_of(40) { 3000 } else { 40 };
            value.resize(16 + len, number as u8);
            value
        };
        let stop = AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let writers = [0, 1].map(|writer| {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ writer);
                    let mut known = std::collections::BTreeMap::new();
                    let mut version = 0;
                    while version < 2000 || !stop.load(Ordering::Relaxed) {
                        version += 1;
                        let number = random.below(KEYS);
                        if random.one_in(3) {
                            let removed = db.remove(&key(writer, number)).unwrap();
                            assert_eq!(removed, known.remove(&number).is_some());
                        } else {
                            db.put(&key(writer, number), &value(number, version))
                                .unwrap();
                            known.insert(number, version);
                        }
                        let number = random.below(KEYS);
                        let expected = known.get(&number).map(|of| value(number, *of));
                        assert_eq!(db.get(&key(writer, number)).unwrap(), expected);
                    }
                    known
                })
            });
            // A snapshot that outlives compactions stays what it was.
            let keeper = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot().unwrap();
                    let all = || {
                        let mut all = Vec::new();
                        let scanned = snapshot.scan(None, &mut |key, value| {
                            all.push((key.to_vec(), value.to_vec()));
                            ControlFlow::Continue(())
                        });
                        scanned.map(|_| all)
                    };
                    let Ok(then) = all() else { continue };
                    for _ in 0..6 {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        match all() {
                            Ok(now) => assert!(now == then, "it is another one"),
                            Err(error) => {
                                assert_eq!(error.kind(), Kind::TooOld, "{error}");
                                break;
                            }
                        }
                    }
                }
            });
            let reader = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut last: Option<Vec<u8>> = None;
                    let end = db.scan(None, &mut |key, shown| {
                        assert!(last.as_deref().is_none_or(|last| last < key));
                        last = Some(key.to_vec());
                        assert!(shown.len() == 56 || shown.len() == 3016);
                        ControlFlow::Continue(())
                    });
                    assert_eq!(end.unwrap(), None);
                    let snapshot = db.snapshot().unwrap();
                    let count = snapshot.count();
                    let mut seen = 0;
                    let scanned = snapshot.scan(None, &mut |_, _| {
                        seen += 1;
                        ControlFlow::Continue(())
                    });
                    scanned.unwrap();
                    assert_eq!(seen, count);
                }
            });
            for _ in 0..6 {
                compact(&db);
                rounds += 1;
            }
            stop.store(true, Ordering::Relaxed);
            keeper.join().unwrap();
            reader.join().unwrap();
            writers.map(|writer| writer.join().unwrap())
        });
        let count = written.iter().map(|known| known.len() as u64).sum();
        for (writer, known) in written.iter().enumerate() {
            for (number, version) in known {
                let shown = db.get(&key(writer as u64, *number)).unwrap();
                assert_eq!(shown, Some(value(*number, *version)));
            }
        }
        assert_sound(&db, count);
        db.close().unwrap();
        let db = TreeDb::open(&path, &OpenOptions::new().background(false)).unwrap();
        assert_sound(&db, count);
    }
    tried_at_least(rounds, 36, "compactions while threads read and write");
}

/// A store that takes no more is compacted, and takes more then: at its end, as random keys divide leaves that are full.
#[test]
fn a_full_store_is_compacted() {
    let mut taken = 0;
    for round in 0..share(8) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, false).order(Order::Lexical);
        let opening = drawn.opening.clone().capacity(4u64 << 20);
        let drawn = drawn.opening(opening).segment_size(64u64 << 10);
        let _shown = case(seed, &drawn);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let db = TreeDb::create(&path, &drawn).unwrap();
        let fill = |key: &mut dyn FnMut() -> u64| {
            loop {
                match db.put(&eight(key()), &[7; 30]) {
                    Err(error) if error.kind() == Kind::Full => break db.count(),
                    done => done.unwrap(),
                }
            }
        };
        let full = fill(&mut || random.u64() >> 1);
        compact(&db);
        assert_sound(&db, full);
        let mut last = 1 << 63;
        let more = fill(&mut || {
            last += 1;
            last
        });
        assert!(more > full + full / 10, "{full}, then {more} records");
        taken += more - full;
        compact(&db);
        assert_sound(&db, more);
        db.close().unwrap();
        let db = TreeDb::open(&path, &OpenOptions::new().background(false)).unwrap();
        assert_sound(&db, more);
    }
    tried_at_least(
        taken,
        10_000,
        "records put into stores that were full before",
    );
}
