//! Ordered engines keep every promise of the record contract, in every order of keys.
//!
//! The suite of `testkit::conformance` runs over `BabyDb` with each comparator; its ordered checks compare cursors and
//! scans with a model that sorts by the same comparator. Recorded histories (`testkit::history` and `transactions`) run
//! while leaves around their keys divide and join. Lines beginning `tried:` state how much was tried.

use std::sync::atomic::{AtomicBool, Ordering};

use azekura::Engine;
use azekura::order::Order;
use azekura::record::memory::baby::{BabyDb, Options};
use azekura::testkit::conformance::lengths::{LONG_CHECK, LONG_PAIRS};
use azekura::testkit::history::{self, Plan};
use azekura::testkit::inherent::{Inherent, removals_of_many};
use azekura::testkit::suite::{Case, case, demand, share, tried_at_least};
use azekura::testkit::{Effort, Random, concurrently, conformance, round_seed, transactions};

/// A store of drawn order and memory, in which all that is put fits.
fn drawn(seed: u64) -> (BabyDb, Case) {
    let mut random = Random::new(!seed);
    let options = Options::new()
        .order(*random.choose(&Order::ALL))
        .memory_limit(*random.choose(&[None, Some(256 << 20), Some(1 << 30)]));
    let db = BabyDb::with(&options).expect("a store");
    (db, case(seed, &options))
}

#[test]
fn the_ordered_store_in_memory_conforms() {
    let as_it_is = || -> Box<dyn Engine> { Box::new(BabyDb::new().expect("a store")) };
    let by_its_methods =
        || -> Box<dyn Engine> { Box::new(Inherent::new(BabyDb::new().expect("a store"))) };
    let makes: [&dyn Fn() -> Box<dyn Engine>; 2] = [&as_it_is, &by_its_methods];
    for make in makes {
        let report = conformance(make, None, &Effort::quick()).expect("lexical");
        demand(
            report.counted(LONG_CHECK),
            LONG_PAIRS,
            "pairs of long values",
        );
        tried_at_least(
            report.total(),
            60_000,
            &format!("answers, lexical: {report}"),
        );
    }
}

#[test]
fn removals_of_many_by_the_methods_that_users_call_are_those_of_the_model() {
    let lexical = || BabyDb::new().expect("a store");
    let removed = (0..share(60)).map(|seed| removals_of_many(&lexical(), seed + round_seed()));
    tried_at_least(removed.sum(), 40_000, "records removed many at once");
}

#[test]
fn it_conforms_in_every_other_order() {
    for (number, order) in Order::ALL.into_iter().enumerate().skip(1) {
        let memory_limit = (number % 2 == 0).then_some(512 << 20);
        let effort = Effort {
            sequences: 20,
            histories: 10,
            ..Effort::quick()
        };
        let make = || -> Box<dyn Engine> {
            Box::new(
                BabyDb::with(&Options::new().order(order).memory_limit(memory_limit))
                    .expect("a store"),
            )
        };
        let report = conformance(&make, None, &effort)
            .unwrap_or_else(|failure| panic!("{}: {failure}", order.name()));
        demand(
            report.counted(LONG_CHECK),
            LONG_PAIRS,
            "pairs of long values",
        );
        let what = format!("answers, {}: {report}", order.name());
        tried_at_least(report.total(), 4000, &what);
    }
}

/// Puts and removes records among those of the histories, so that leaves divide and join.
fn unrest(db: &BabyDb, stop: &AtomicBool) -> u64 {
    let mut random = Random::new(77 + round_seed());
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let keys: Vec<Vec<u8>> = (0..300)
            .map(|_| [&[random.below(256) as u8][..], b"~unrest", &random.bytes(4)].concat())
            .collect();
        let value = random.bytes(400);
        for key in &keys {
            db.put(key, &value).expect("a put");
        }
        for key in &keys {
            db.remove(key).expect("a removal");
        }
        rounds += 1;
    }
    rounds
}

fn during_unrest(work: impl FnOnce(&BabyDb)) -> u64 {
    let (db, _shown) = drawn(round_seed());
    let ((), rounds) = concurrently(|stop| unrest(&db, stop), || work(&db));
    rounds
}

#[test]
fn operations_of_threads_on_the_same_keys_are_linearizable() {
    const HISTORIES: u64 = 2000;
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
    const RUNS: u64 = 1000;
    let count = share(RUNS);
    let rounds = during_unrest(|db| {
        let plans = (0..count).map(|seed| transactions::varied(seed + round_seed()));
        transactions::explained(db, plans).expect("an order that explains it");
    });
    assert!(rounds > 0);
    let what = format!("runs of transactions, during {rounds} rounds of unrest");
    tried_at_least(count, RUNS, &what);
}
