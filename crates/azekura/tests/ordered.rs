//! Ordered engines keep every promise of the record contract, in every order of keys.
//!
//! The suite of `testkit::conformance` runs over `BabyDb` with each comparator; its ordered checks compare cursors and
//! scans with a model that sorts by the same comparator. Recorded histories (`testkit::history` and `transactions`) run
//! while leaves around their keys divide and join. Lines beginning `tried:` say how much was tried.

use std::sync::atomic::{AtomicBool, Ordering};

use azekura::Engine;
use azekura::order::Order;
use azekura::record::memory::baby::{BabyDb, Options};
use azekura::testkit::history::{self, Plan};
use azekura::testkit::suite::share;
use azekura::testkit::{Effort, Random, beside, conformance, round_seed, transactions, tried};

#[test]
fn the_ordered_store_in_memory_conforms() {
    let make = || -> Box<dyn Engine> { Box::new(BabyDb::new().expect("a store")) };
    let report = conformance(&make, None, &Effort::quick()).expect("lexical");
    tried(&format!("lexical: {report}"));
}

#[test]
fn it_conforms_in_every_other_order() {
    for order in Order::ALL.into_iter().skip(1) {
        let effort = Effort {
            sequences: 20,
            histories: 10,
            ..Effort::quick()
        };
        let make = || -> Box<dyn Engine> {
            Box::new(
                BabyDb::with(&Options {
                    order,
                    ..Options::default()
                })
                .expect("a store"),
            )
        };
        let report = conformance(&make, None, &effort)
            .unwrap_or_else(|failure| panic!("{}: {failure}", order.name()));
        tried(&format!("{}: {report}", order.name()));
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

fn beside_unrest(work: impl FnOnce(&BabyDb)) -> u64 {
    let db = BabyDb::new().expect("a store");
    let ((), rounds) = beside(|stop| unrest(&db, stop), || work(&db));
    rounds
}

#[test]
fn operations_of_threads_on_the_same_keys_are_linearizable() {
    let count = share(2000);
    let rounds = beside_unrest(|db| {
        let plans = (0..count).map(|seed| Plan::varied(seed + round_seed()));
        history::explained(db, plans).expect("an order that explains it");
    });
    assert!(rounds > 0);
    tried(&format!(
        "{count} histories, beside {rounds} rounds of unrest"
    ));
}

#[test]
fn updates_of_many_keys_are_serializable() {
    let count = share(1000);
    let rounds = beside_unrest(|db| {
        let plans = (0..count).map(|seed| transactions::varied(seed + round_seed()));
        transactions::explained(db, plans).expect("an order that explains it");
    });
    assert!(rounds > 0);
    tried(&format!(
        "{count} runs of transactions, beside {rounds} rounds of unrest"
    ));
}
