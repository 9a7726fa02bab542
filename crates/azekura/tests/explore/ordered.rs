//! A tree in memory: its nodes divide, join, are returned to the system and used again, concurrently with readers without locks.
//!
//! Records are so long that a leaf holds seven, so a few of them make leaves divide and join, and the root come and go.
//! Keys that stay are found by every way there is: alone, in a batch, by a scan, by a cursor. Values outside of nodes are
//! overwritten with zeros when they are freed.

use std::ops::ControlFlow;

use azekura::engine::Ordered;
use azekura::record::memory::baby::BabyDb;
use azekura::testkit::schedule::{Threads, yield_point};
use azekura::testkit::{Op, Random};
use azekura::{Edit, Engine, Reader};

use super::{History, all, holds};

/// Inside of a node, seven of them; and outside.
const INSIDE: usize = 480;
const OUTSIDE: usize = 600;

/// A key so long that a node above leaves holds few, if asked.
fn key(number: u64, is_long: bool) -> Vec<u8> {
    let mut key = vec![b'k'; if is_long { 400 } else { 2 }];
    key.extend_from_slice(format!("{number:03}").as_bytes());
    key
}

/// A value that states of which key and version it is, all through.
fn value(number: u64, version: u64, len: usize) -> Vec<u8> {
    let word = (number << 32 | version << 8 | 1).to_le_bytes();
    word.into_iter().cycle().take(len).collect()
}

/// Threads put, remove, look at and clear three neighbours among records that fill their leaf.
fn meetings(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = BabyDb::new().unwrap();
    for number in [10, 20, 30, 40, 50, 60] {
        db.put(&key(number, false), &value(number, 0, INSIDE))
            .unwrap();
    }
    let names = [25, 35, 36].map(|number| key(number, false));
    let keys = [0, 1, 2].map(|at: usize| names[at].as_slice());
    let history = History::new(&keys);
    let mut threads = Threads::default();
    for client in 0..3u64 {
        let (db, history, keys) = (&db, &history, &keys);
        threads.add(move || {
            let mut random = Random::new(seed ^ client << 8);
            for step in 0..4u64 {
                let key = random.choose(keys).to_vec();
                let len = [8, INSIDE, OUTSIDE][random.index(3)];
                let put = value(client, step, len);
                let op = match random.below(8) {
                    0..=1 => Op::Get(key),
                    2..=3 => Op::Put(key, put),
                    4 => Op::Swap(key, put),
                    5 if client == 0 => Op::Clear,
                    _ => Op::Remove(key),
                };
                history.note(db, client, &op);
                look(db, keys[random.index(3)]);
            }
        });
    }
    run(threads);
    history.check(&db.promise());
    all(&db);
}

/// Looks at a value as long as it is lent: it does not change.
fn look(db: &BabyDb, key: &[u8]) {
    db.read_with(key, |lent| {
        if let Some(lent) = lent {
            let first = lent.to_vec();
            for _ in 0..3 {
                yield_point();
                assert!(lent == first, "what is lent stays");
            }
        }
    })
    .unwrap();
}

/// Leaves, and with long keys the nodes above them, divide and join concurrently with a reader of what stays.
fn dividing(is_long: bool, seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = BabyDb::new().unwrap();
    let stay: Vec<u64> = (0..12).map(|number| number * 10).collect();
    for number in &stay {
        db.put(&key(*number, is_long), &value(*number, 0, 100))
            .unwrap();
    }
    let mut threads = Threads::default();
    for writer in 0..2u64 {
        let db = &db;
        threads.add(move || {
            let mut random = Random::new(seed ^ writer);
            let own = |number: u64| number * 2 + 1 + writer;
            let first = random.below(80);
            let few: Vec<u64> = (0..8)
                .map(|step| own((first + step) / 4 * 5 + step % 4))
                .collect();
            for number in &few {
                db.put(&key(*number, is_long), &value(*number, 1, INSIDE))
                    .unwrap();
            }
            for number in &few {
                let removed = db.remove(&key(*number, is_long)).unwrap();
                assert!(removed, "{number} was put and is removed");
            }
        });
    }
    let (shared, stay) = (&db, &stay);
    threads.add(move || {
        let mut random = Random::new(!seed);
        for _ in 0..3 {
            let number = *random.choose(stay);
            let found = shared.get(&key(number, is_long)).unwrap();
            assert!(found == Some(value(number, 0, 100)), "{number} stays");
        }
        let keys: Vec<Vec<u8>> = stay.iter().map(|number| key(*number, is_long)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        shared
            .read_many(&keys, &mut |at, found| {
                assert!(
                    found == Some(&value(stay[at], 0, 100)),
                    "{} stays",
                    stay[at]
                );
            })
            .unwrap();
        let mut seen = Vec::new();
        shared
            .scan(None, &mut |key, _| {
                seen.push(key.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        shows(&seen, &keys);
        let mut cursor = shared.cursor();
        let mut seen = Vec::new();
        while cursor.previous().unwrap() {
            seen.extend(cursor.record().map(|(key, _)| key.to_vec()));
        }
        seen.reverse();
        shows(&seen, &keys);
    });
    run(threads);
    assert_eq!(all(&db).len(), stay.len());
}

/// What was shown rises, and has each of the keys that stay.
fn shows(seen: &[Vec<u8>], stay: &[&[u8]]) {
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "in order");
    let times = seen.iter().filter(|key| stay.contains(&key.as_slice()));
    assert_eq!(times.count(), stay.len(), "what stays is shown once");
}

/// Money moves between accounts whose records become longer and shorter, so that leaves divide meanwhile.
fn transfers(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = BabyDb::new().unwrap();
    let names: Vec<Vec<u8>> = (0..8).map(|number| key(number, false)).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let account = |sum: u64, len: usize| {
        let mut account = sum.to_le_bytes().to_vec();
        account.resize(len, 7);
        account
    };
    let sum_of = |value: Option<&[u8]>| {
        let bytes = value.and_then(|value| value.first_chunk::<8>());
        u64::from_le_bytes(*bytes.expect("an account is there"))
    };
    for key in &keys {
        db.put(key, &account(100, 300)).unwrap();
    }
    let mut threads = Threads::default();
    for client in 0..3u64 {
        let (db, keys) = (&db, &keys);
        threads.add(move || {
            let mut random = Random::new(seed ^ client << 8);
            for _ in 0..2 {
                let from = random.index(8);
                let to = (from + 1 + random.index(7)) % 8;
                let len = [8, 500, OUTSIDE][random.index(3)];
                db.update_many(&[keys[from], keys[to]], &mut |present| {
                    let (a, b) = (sum_of(present[0]) - 1, sum_of(present[1]) + 1);
                    vec![
                        Edit::Put(account(a, len).into()),
                        Edit::Put(account(b, 500).into()),
                    ]
                })
                .unwrap();
                let mut sum = 0;
                db.update_many(keys, &mut |present| {
                    sum = present.iter().map(|value| sum_of(*value)).sum();
                    present.iter().map(|_| Edit::Keep).collect()
                })
                .unwrap();
                assert_eq!(sum, 800, "no money is made or lost");
            }
        });
    }
    run(threads);
    let sum: u64 = all(&db).iter().map(|(_, value)| sum_of(Some(value))).sum();
    assert_eq!(sum, 800, "no money is made or lost");
}

#[test]
fn some_order_explains_what_threads_saw_of_keys_in_a_tree() {
    holds("put, remove and read in a tree", 12_000, &meetings);
}

#[test]
fn keys_that_stay_are_found_while_nodes_divide_and_join() {
    holds("leaves that divide and join", 6000, &|seed, run| {
        dividing(false, seed, run);
    });
    holds("nodes above leaves that do", 4000, &|seed, run| {
        dividing(true, seed, run);
    });
}

#[test]
fn updates_of_several_keys_of_a_tree_are_isolated() {
    holds("updates of several keys of a tree", 6000, &transfers);
}
