//! A cache: what it lends is the last value put, or nothing, while others make it drop records; and its bounds hold.
//!
//! It holds three records, and five keys are put. Each thread's turn may come between any two steps of dropping one, also
//! while the application's callback runs.

use std::sync::{Arc, Mutex};

use azekura::Reader;
use azekura::record::cache::{CacheDb, Options};
use azekura::testkit::schedule::{Threads, yield_point};
use azekura::testkit::{Op, Random};

use super::{History, all, holds};

const RECORDS_MAX: u64 = 3;
const CLIENTS: u64 = 3;

/// Clients put, remove and look at five keys.
fn dropping(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    let db = CacheDb::with(
        &Options::new()
            .records_max(Some(RECORDS_MAX))
            .dropped(Arc::new(move |key, value, _| {
                yield_point();
                teller.lock().unwrap().push((key.to_vec(), value.to_vec()));
            })),
    )
    .unwrap();
    let names: Vec<Vec<u8>> = (0..5u8).map(|key| vec![b'k', key]).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let history = History::new(&keys);
    let mut threads = Threads::default();
    for client in 0..CLIENTS {
        let (db, history, keys) = (&db, &history, &keys);
        threads.add(move || {
            let mut random = Random::new(seed ^ client << 8);
            for step in 0..5u8 {
                let key = random.choose(keys).to_vec();
                let put = [&key[..], &[client as u8, step]].concat().repeat(5);
                let op = match random.below(8) {
                    0..=1 => Op::Get(key),
                    7 => Op::Remove(key),
                    _ => Op::Put(key, put),
                };
                history.note(db, client, &op);
                let under_way = CLIENTS - 1;
                assert!(db.count() <= RECORDS_MAX + under_way, "the bound holds");
                db.read_with(keys[random.index(5)], |lent| {
                    let first = lent.map(<[u8]>::to_vec);
                    yield_point();
                    yield_point();
                    assert_eq!(lent, first.as_deref(), "what is lent stays");
                })
                .unwrap();
            }
        });
    }
    run(threads);
    assert!(db.count() <= RECORDS_MAX, "the bound holds");
    history.check(&db.promise());
    for (key, value) in all(&db).iter().chain(&*told.lock().unwrap()) {
        assert_eq!(value.len(), 20);
        assert!(value.starts_with(key), "each value is of its key");
    }
    // Every record can be dropped.
    db.resize(Some(1), None).unwrap();
    assert!(db.count() <= 1);
    for key in keys {
        db.remove(key).unwrap();
    }
    assert_eq!(db.count(), 0);
}

/// One client puts, and each put has a record dropped, whose room is used again soon; another one looks at what is dropped, for
/// long.
fn looked_at(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = CacheDb::with(&Options::new().records_max(Some(2))).unwrap();
    let db = &db;
    let mut threads = Threads::default();
    threads.add(move || {
        let mut random = Random::new(seed);
        for step in 0..24 {
            let key = random.below(3) as u8;
            db.put(&[key], &[key, step].repeat(10)).unwrap();
        }
    });
    threads.add(move || {
        let mut random = Random::new(!seed);
        for _ in 0..8 {
            let key = random.below(3) as u8;
            db.read_with(&[key], |lent| {
                let first = lent.map(<[u8]>::to_vec);
                for _ in 0..60 {
                    yield_point();
                }
                assert_eq!(lent, first.as_deref(), "what is lent stays");
                assert!(lent.is_none_or(|value| value[0] == key));
            })
            .unwrap();
        }
    });
    run(threads);
    assert!(db.count() <= 2, "the bound holds");
}

#[test]
fn what_a_cache_drops_stays_while_it_is_lent() {
    holds("what is lent of a cache that drops", 12_000, &looked_at);
}

#[test]
fn a_cache_lends_the_last_value_or_nothing() {
    holds("a cache that drops", 12_000, &dropping);
}
