//! The leanest hash in memory keeps every promise of the record contract, alone and among threads.
//!
//! The suite of `testkit::conformance` and recorded histories (`testkit::history` and `transactions`) run over it, the latter while its
//! records are overwritten, removed and moved together. That both catch bugs is proved next to them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::Engine;
use azekura::record::memory::tiny::{Options, TinyDb};
use azekura::testkit::conformance::lengths::{LONG_CHECK, LONG_PAIRS};
use azekura::testkit::history::{self, Plan};
use azekura::testkit::inherent::{Inherent, removals_of_many};
use azekura::testkit::suite::{Case, case, demand, share, tried_at_least};
use azekura::testkit::{Effort, Random, concurrently, conformance, round_seed, transactions};

/// A store with so much memory, in which all that is put fits.
fn drawn(seed: u64) -> (TinyDb, Case) {
    let memory_limit = *Random::new(!seed).choose(&[None, Some(64 << 20), Some(1 << 30)]);
    let db = TinyDb::with(&Options::new().memory_limit(memory_limit));
    (db.expect("a new store"), case(seed, &memory_limit))
}

#[test]
fn it_conforms() {
    let as_it_is = || -> Box<dyn Engine> { Box::new(TinyDb::new().expect("a new store")) };
    let limited = || -> Box<dyn Engine> {
        let memory_limit = Some(256 << 20);
        Box::new(TinyDb::with(&Options::new().memory_limit(memory_limit)).expect("a new store"))
    };
    let by_its_methods =
        || -> Box<dyn Engine> { Box::new(Inherent::new(TinyDb::new().expect("a new store"))) };
    let makes: [&dyn Fn() -> Box<dyn Engine>; 3] = [&as_it_is, &limited, &by_its_methods];
    for make in makes {
        let report = conformance(make, None, &Effort::quick()).expect("it conforms");
        demand(
            report.counted(LONG_CHECK),
            LONG_PAIRS,
            "pairs of long values",
        );
        tried_at_least(report.total(), 60_000, &format!("answers: {report}"));
    }
}

#[test]
fn removals_of_many_by_the_methods_that_users_call_are_those_of_the_model() {
    let removed = (0..share(60)).map(|seed| removals_of_many(&drawn(seed).0, seed + round_seed()));
    tried_at_least(removed.sum(), 40_000, "records removed many at once");
}

/// Fills and empties, so that blocks of records become thin, are walked and are used again.
fn unrest(db: &TinyDb, stop: &AtomicBool) -> u64 {
    let mut random = Random::new(77 + round_seed());
    let mut rounds = 0;
    let key = |number: u64| format!("unrest-{number}");
    while !stop.load(Ordering::Relaxed) {
        let value = vec![7; 100 + random.index(400)];
        let count = 12 * (1 << 20) / value.len() as u64;
        for number in 0..count {
            db.put(key(number).as_bytes(), &value).expect("a put");
        }
        for number in (0..count).filter(|number| number % 16 != 0) {
            db.remove(key(number).as_bytes()).expect("a removal");
        }
        rounds += 1;
    }
    rounds
}

fn during_unrest(work: impl FnOnce(&TinyDb)) -> u64 {
    let (db, _shown) = drawn(round_seed());
    let ((), rounds) = concurrently(|stop| unrest(&db, stop), || work(&db));
    rounds
}

#[test]
fn operations_of_threads_on_the_same_keys_are_linearizable() {
    const HISTORIES: u64 = 3000;
    let count = share(HISTORIES);
    let rounds = during_unrest(|db| {
        let plans = (0..count).map(|seed| Plan::varied(seed + round_seed()));
        history::explained(db, plans).expect("an order that explains it");
    });
    assert!(rounds > 0);
    let what = format!("histories, during {rounds} rounds of unrest");
    tried_at_least(count, HISTORIES, &what);
}

#[test]
fn updates_of_many_keys_are_serializable() {
    const RUNS: u64 = 1500;
    let count = share(RUNS);
    let rounds = during_unrest(|db| {
        let plans = (0..count).map(|seed| transactions::varied(seed + round_seed()));
        transactions::explained(db, plans).expect("an order that explains it");
    });
    assert!(rounds > 0);
    let what = format!("runs of transactions, during {rounds} rounds of unrest");
    tried_at_least(count, RUNS, &what);
}

/// Each thread owns some keys and knows what it left under each; readers of all keys see values that were put under
/// them. Values state whose they are, at both ends, so that a slot that is used too early shows.
#[test]
fn threads_find_what_they_left_while_records_move() {
    const KEYS: u64 = 3000;
    const OPS: u64 = 200_000;
    let ops = share(OPS);
    let looks = AtomicU64::new(0);
    let db = TinyDb::new().expect("a new store");
    let value = |key: u64, version: u64, len: usize| {
        let mut value = [key.to_le_bytes(), version.to_le_bytes()].concat();
        value.resize(16 + len, version as u8);
        value.extend_from_slice(&key.to_le_bytes());
        value
    };
    let is_whole = |key: u64, value: &[u8]| {
        let version = value[8];
        value.len() >= 24
            && value[..8] == key.to_le_bytes()
            && value[value.len() - 8..] == key.to_le_bytes()
            && value[16..value.len() - 8]
                .iter()
                .all(|byte| *byte == version)
    };
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (db, looks) = (&db, &looks);
            scope.spawn(move || {
                let mut random = Random::new(thread + round_seed());
                let mut left = vec![None; KEYS as usize];
                for op in 0..ops {
                    let own = random.below(KEYS);
                    let key = own << 2 | thread;
                    // Long and short by turns of thousands, so that blocks become thin.
                    let long = op / 20_000 % 2 == 0;
                    let len = if long {
                        random.index(3000)
                    } else {
                        random.index(20)
                    };
                    if random.one_in(4) {
                        db.remove(&key.to_le_bytes()).expect("a removal");
                        left[own as usize] = None;
                    } else {
                        let value = value(key, op, len);
                        db.put(&key.to_le_bytes(), &value).expect("a put");
                        left[own as usize] = Some(value);
                    }
                    let look = random.below(KEYS);
                    let key = look << 2 | thread;
                    assert_eq!(
                        db.get(&key.to_le_bytes()).expect("a get"),
                        left[look as usize]
                    );
                    let other = look << 2 | random.below(3);
                    db.read_with(&other.to_le_bytes(), |found| {
                        assert!(found.is_none_or(|value| is_whole(other, value)));
                    })
                    .expect("a get");
                    looks.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
    });
    tried_at_least(looks.into_inner(), 6 * OPS, "reads of records that move");
}

/// The place of what is replaced is used again, on the path that nearly every put takes.
#[test]
fn a_key_that_is_put_again_and_again_takes_no_more_memory() {
    let db = TinyDb::with(&Options::new().memory_limit(64u64 << 20)).unwrap();
    for number in 0..4_000_000_u32 {
        db.put(b"key", &[number as u8; 24]).unwrap();
    }
    assert_eq!(
        db.get(b"key").unwrap().as_deref(),
        Some(&[4_000_000_u32.wrapping_sub(1) as u8; 24][..])
    );
}

/// What an update of many made ready before one of its values had no room is given back.
#[test]
fn an_update_of_many_that_has_no_room_keeps_none() {
    let db = TinyDb::with(&Options::new().memory_limit(8u64 << 20)).unwrap();
    let (small, large) = (vec![1; 100_000], vec![2; 16 << 20]);
    for _ in 0..1000 {
        let keys: [&[u8]; 2] = [b"small", b"large"];
        let refused = Engine::update_many(&db, &keys, &mut |_| {
            vec![azekura::Edit::put(&small), azekura::Edit::put(&large)]
        });
        assert_eq!(refused.unwrap_err().kind(), azekura::Kind::Full);
    }
    db.put(b"small", &small).unwrap();
    assert_eq!(azekura::Reader::count(&db), 1);
}
