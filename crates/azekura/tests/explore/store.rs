//! A store in memory: what is lent is what was put, while others overwrite it, remove it, move it and clear all.
//!
//! The keys of [`neighbours`] share a part of the index, so that they meet in its buckets; long values share few blocks,
//! so that these are emptied, thinned and used again. Freed places are overwritten with zeros at once.

use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::record::memory::tiny::{Options, TinyDb};
use azekura::testkit::schedule::{Threads, yield_point};
use azekura::testkit::{Op, Random};
use azekura::{Edit, Engine, Reader};

use super::{History, all, holds};

/// A slot of 7 KiB, nine in a block.
const LONG: usize = 7000;

fn store() -> TinyDb {
    let options = Options::new().memory_limit(Some(8 << 20));
    TinyDb::with(&options).unwrap()
}

/// Keys of the last of the index's parts, in the order of a scan.
fn neighbours() -> &'static [Vec<u8>] {
    static KEYS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let db = store();
        let keys = (0..200_000u32).map(|number| number.to_le_bytes().to_vec());
        let mut last: Vec<(Vec<u8>, Vec<u8>)> = keys
            .map(|key| (db.bookmark_at(&key).as_bytes().to_vec(), key))
            .filter(|(bookmark, _)| bookmark[0] == 0xff && bookmark[1] >= 0xf0)
            .collect();
        last.sort();
        assert!(last.len() >= 30, "{} keys", last.len());
        last.into_iter().map(|(_, key)| key).collect()
    })
}

/// A value that states of which key and version it is, all through.
fn value(key: &[u8], version: u64, len: usize) -> Vec<u8> {
    let word = u64::from_le_bytes([key[0], key[1], version as u8, 1, 2, 3, 4, 5]);
    let bytes = word.to_le_bytes().into_iter().cycle();
    bytes.take(len).collect()
}

/// Looks at a value as long as it is lent: it does not change.
fn look(db: &TinyDb, key: &[u8]) -> Option<Vec<u8>> {
    look_for(db, key, 3)
}

/// As [`look`], and lets others continue so many times meanwhile.
fn look_for(db: &TinyDb, key: &[u8], points: u32) -> Option<Vec<u8>> {
    db.read_with(key, |lent| {
        let lent = lent?;
        let first = lent.to_vec();
        for _ in 0..points {
            yield_point();
            assert!(lent == first, "what is lent stays");
        }
        Some(first)
    })
    .unwrap()
}

/// Three threads put, remove and look at two keys.
fn meetings(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = store();
    let keys = [&neighbours()[0][..], &neighbours()[1][..]];
    let history = History::new(&keys);
    let mut threads = Threads::default();
    for client in 0..3u64 {
        let (db, history, keys) = (&db, &history, &keys);
        threads.add(move || {
            let mut random = Random::new(seed ^ client << 8);
            for step in 0..5u64 {
                let key = random.choose(keys).to_vec();
                let put = value(&key, client << 4 | step, 8 + random.index(3) * 10);
                let op = match random.below(8) {
                    0..=2 => Op::Get(key),
                    3..=4 => Op::Put(key, put),
                    5 => Op::Swap(key, put),
                    _ => Op::Remove(key),
                };
                history.note(db, client, &op);
                look(db, keys[random.index(2)]);
            }
        });
    }
    run(threads);
    history.check(&db.promise());
    all(&db);
}

/// A record is looked at while it is removed and others are put and removed, which want its room.
fn removal(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = store();
    let keys = neighbours();
    for key in [0, 3, 4, 5] {
        db.put(&keys[key], &value(&keys[key], 1, 20)).unwrap();
    }
    let mut threads = Threads::default();
    let shared = &db;
    threads.add(move || {
        // A batch has room for two: it is sealed with what is freed second, and is free soon after the fourth.
        for key in [3, 0, 4, 5] {
            assert!(shared.remove(&keys[key]).unwrap());
        }
        for round in 0..=seed % 3 {
            shared.put(&keys[1], &value(&keys[1], round, 20)).unwrap();
            assert!(shared.remove(&keys[1]).unwrap());
        }
    });
    threads.add(move || {
        // It begins while the other is somewhere within its first removals, and looks for long.
        for _ in 0..seed % 97 {
            yield_point();
        }
        let found = look_for(shared, &keys[0], 60);
        assert!(found.is_none_or(|found| found == value(&keys[0], 1, 20)));
        shared.put(&keys[2], &value(&keys[2], 1, 20)).unwrap();
        assert!(look(shared, &keys[2]).is_some());
    });
    run(threads);
    assert_eq!(all(&db).len(), 1);
}

/// Long records come and go in a store whose blocks are nearly empty, so that records are moved; some stay.
fn thinning(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = store();
    let keys: Vec<&[u8]> = neighbours().iter().take(30).map(Vec::as_slice).collect();
    for key in &keys {
        db.put(key, &value(key, 0, LONG)).unwrap();
    }
    let (stay, go): (Vec<_>, Vec<_>) = (0..30).partition(|at| at % 8 == 3);
    for at in go.iter().skip(2) {
        db.remove(keys[*at]).unwrap();
    }
    let versions: Vec<AtomicU64> = keys.iter().map(|_| AtomicU64::new(0)).collect();
    let mut threads = Threads::default();
    for writer in 0..2usize {
        let (db, keys, stay, go, versions) = (&db, &keys, &stay, &go, &versions);
        threads.add(move || {
            let mut random = Random::new(seed ^ writer as u64);
            for step in 1..8u64 {
                let passing = keys[go[2 * random.index(4) + writer]];
                if random.one_in(2) {
                    db.put(passing, &value(passing, step, LONG)).unwrap();
                } else {
                    db.remove(passing).unwrap();
                }
                if step % 3 == writer as u64 {
                    let at = stay[2 * random.index(2) + writer];
                    db.put(keys[at], &value(keys[at], step, LONG)).unwrap();
                    versions[at].store(step, Ordering::SeqCst);
                }
            }
        });
    }
    let (db_, keys_, stay_, versions_) = (&db, &keys, &stay, &versions);
    threads.add(move || {
        let mut random = Random::new(!seed);
        for _ in 0..8 {
            let at = *random.choose(stay_);
            let before = versions_[at].load(Ordering::SeqCst);
            let found = look(db_, keys_[at]).expect("a key that stays is found");
            let version = u64::from(found[2]);
            assert!(version >= before, "{version} after {before}");
            assert!(found == value(keys_[at], version, LONG), "a whole value");
        }
    });
    run(threads);
    for at in stay {
        let version = versions[at].load(Ordering::SeqCst);
        assert!(db.get(keys[at]).unwrap().unwrap() == value(keys[at], version, LONG));
    }
    all(&db);
}

/// A scan concurrently with writers that make the part of the index grow.
fn scanning(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = store();
    let keys = neighbours();
    let (stay, come): (Vec<_>, Vec<_>) = (0..30).partition(|at| at % 3 != 0);
    for at in &stay {
        db.put(&keys[*at], &value(&keys[*at], 0, 20)).unwrap();
    }
    let mut threads = Threads::default();
    for writer in 0..2usize {
        let (db, come) = (&db, &come);
        threads.add(move || {
            let mut random = Random::new(seed ^ writer as u64);
            for _ in 0..6 {
                let key = &keys[come[2 * random.index(come.len() / 2) + writer]];
                db.put(key, &value(key, 1, 20)).unwrap();
                if random.one_in(3) {
                    db.remove(key).unwrap();
                }
            }
        });
    }
    let (shared, stay_) = (&db, &stay);
    threads.add(move || {
        let mut seen = Vec::new();
        let mut from = Some(shared.bookmark_at(&keys[0]));
        while let Some(bookmark) = from {
            from = shared
                .scan(Some(&bookmark), &mut |key, value| {
                    let first = value.to_vec();
                    yield_point();
                    assert!(value == first, "what is lent stays");
                    seen.push(key.to_vec());
                    // In pieces, so that it continues from bookmarks.
                    if seen.len() % 7 == 0 {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
                .unwrap();
        }
        for at in stay_ {
            let times = seen.iter().filter(|key| **key == keys[*at]).count();
            assert_eq!(times, 1, "a scan shows what stays once");
        }
        assert!(
            seen.windows(2)
                .all(|pair| shared.bookmark_at(&pair[0]).as_bytes()
                    < shared.bookmark_at(&pair[1]).as_bytes()),
            "a scan keeps its order"
        );
    });
    run(threads);
    all(&db);
}

/// Everything is removed while others put and look.
fn clearing(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = store();
    let keys = [&neighbours()[0][..], &neighbours()[9][..]];
    let history = History::new(&keys);
    let mut threads = Threads::default();
    for client in 0..3u64 {
        let (db, history, keys) = (&db, &history, &keys);
        threads.add(move || {
            let mut random = Random::new(seed ^ client << 8);
            for step in 0..4u64 {
                let key = random.choose(keys).to_vec();
                let put = value(&key, client << 4 | step, 8 + random.index(3) * 10);
                let op = match random.below(6) {
                    0 => Op::Get(key),
                    1 if client == 0 => Op::Clear,
                    5 => Op::Remove(key),
                    _ => Op::Put(key, put),
                };
                history.note(db, client, &op);
            }
        });
    }
    run(threads);
    history.check(&db.promise());
    all(&db);
}

/// Everything is removed while others put and look, some of them from inside another store's closure.
fn nesting(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let (outer, db) = (store(), store());
    let keys = [&neighbours()[0][..], &neighbours()[9][..]];
    let history = History::new(&keys);
    let mut threads = Threads::default();
    for client in 0..3u64 {
        let (outer, db, history, keys) = (&outer, &db, &history, &keys);
        threads.add(move || {
            let mut random = Random::new(seed ^ client << 8);
            for step in 0..4u64 {
                let key = random.choose(keys).to_vec();
                let op = match random.below(6) {
                    0 if client == 0 => Op::Clear,
                    1 => Op::Remove(key),
                    // Longer than what the short way takes.
                    _ => Op::Put(key.clone(), value(&key, client << 4 | step, 9000)),
                };
                if client == 0 {
                    history.note(db, client, &op);
                } else {
                    outer
                        .update(&client.to_le_bytes(), &mut |_| {
                            history.note(db, client, &op);
                            Edit::Keep
                        })
                        .unwrap();
                }
            }
        });
    }
    run(threads);
    history.check(&db.promise());
    all(&db);
}

/// Money moves between accounts, by several keys at once and by one.
fn transfers(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = store();
    let keys: Vec<&[u8]> = [0, 7, 14, 21].map(|at| &neighbours()[at][..]).to_vec();
    for key in &keys {
        db.put(key, &100u64.to_le_bytes()).unwrap();
    }
    let number = |value: Option<&[u8]>| {
        let bytes = value.expect("an account is there");
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    };
    let mut threads = Threads::default();
    for client in 0..3u64 {
        let (db, keys) = (&db, &keys);
        threads.add(move || {
            let mut random = Random::new(seed ^ client << 8);
            for _ in 0..3 {
                let (from, to) = (random.index(4), random.index(4));
                if from == to {
                    db.update(keys[from], &mut |present| {
                        Edit::Put(number(present).to_le_bytes().to_vec().into())
                    })
                    .unwrap();
                    continue;
                }
                db.update_many(&[keys[from], keys[to]], &mut |present| {
                    let (a, b) = (number(present[0]) - 1, number(present[1]) + 1);
                    vec![
                        Edit::Put(a.to_le_bytes().to_vec().into()),
                        Edit::Put(b.to_le_bytes().to_vec().into()),
                    ]
                })
                .unwrap();
                let mut sum = 0;
                db.update_many(keys, &mut |present| {
                    sum = present.iter().map(|value| number(*value)).sum();
                    present.iter().map(|_| Edit::Keep).collect()
                })
                .unwrap();
                assert_eq!(sum, 400, "no money is made or lost");
            }
        });
    }
    run(threads);
    let sum: u64 = all(&db).iter().map(|(_, value)| number(Some(value))).sum();
    assert_eq!(sum, 400, "no money is made or lost");
}

#[test]
fn some_order_explains_what_threads_saw_of_a_key() {
    holds("put, remove and read", 16_000, &meetings);
    holds("a removal", 16_000, &removal);
}

#[test]
fn records_are_whole_while_they_are_moved_together() {
    holds("blocks that are thinned", 8000, &thinning);
}

#[test]
fn a_scan_shows_what_stays_once_while_the_index_grows() {
    holds("a scan during growth", 4000, &scanning);
}

#[test]
fn clear_is_one_moment() {
    holds("clear", 12_000, &clearing);
    holds("clear during updates inside others", 12_000, &nesting);
}

#[test]
fn updates_of_several_keys_are_isolated() {
    holds("updates of several keys", 8000, &transfers);
}
