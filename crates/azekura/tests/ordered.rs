//! Ordered engines keep every promise of the record contract, in every order of keys.
//!
//! The suite of `testkit::conformance` runs over `BabyDb` with each comparator; its ordered checks compare cursors and
//! scans with a model that sorts by the same comparator. Lines beginning `tried:` say how much was tried.

use azekura::Engine;
use azekura::order::Order;
use azekura::record::memory::baby::{BabyDb, Options};
use azekura::testkit::{Effort, conformance, tried};

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
