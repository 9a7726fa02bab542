//! However threads meet, the index, the slab, the epochs and what is made of them answer as if one came after the other.
//!
//! Here seeds decide how they meet (`testkit::schedule`): `index` has writers grow a chunk under readers, `store` has them
//! overwrite, remove, move and scan records of a `TinyDb`, `ordered` has them divide and join nodes of a `BabyDb`, `cache`
//! has them drop records that others read. Each rule that readers without locks rely on is broken once, by a planted bug,
//! and must be missed. Built with `--cfg azekura_weave` only (`make weave`); lines beginning `tried:` say how much was tried.

#![cfg(azekura_weave)]

mod cache;
mod index;
mod ordered;
mod store;

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::engine::Promise;
use azekura::testkit::history::{Event, linearizable};
use azekura::testkit::schedule::{Bug, Plan, Threads, explore};
use azekura::testkit::{Op, Outcome};
use azekura::{Engine, Reader};

type Scenario<'s> = &'s dyn Fn(u64, &mut dyn FnMut(Threads<'_>));

/// No schedule fails.
fn holds(name: &str, schedules: u64, scenario: Scenario<'_>) {
    match explore(Plan::new(schedules), scenario) {
        Ok(tried) => writeln!(
            std::io::stderr(),
            "tried: {name}: {} schedules, {} turns, {} changes of thread",
            tried.schedules,
            tried.turns,
            tried.changes
        )
        .expect("stderr can be written"),
        Err(failure) => panic!("seed {}: {}", failure.seed, failure.what),
    }
}

/// With the bug planted, some schedule fails.
fn catches(bug: Bug, schedules: u64, scenario: Scenario<'_>) {
    let failure = explore(Plan::with(schedules, bug), scenario).expect_err("the bug is found");
    writeln!(
        std::io::stderr(),
        "tried: {bug:?}: found in schedule {} of {schedules}: {}",
        failure.schedules,
        failure.what.lines().next().unwrap_or_default()
    )
    .expect("stderr can be written");
    let again = Plan {
        seed: failure.seed,
        ..Plan::with(1, bug)
    };
    let again = explore(again, scenario).expect_err("the seed decides");
    assert_eq!(again.what, failure.what, "the seed decides all of it");
}

/// What threads saw of a few keys.
struct History {
    clock: AtomicU64,
    keys: Vec<(Vec<u8>, Mutex<Vec<Event>>)>,
}

impl History {
    fn new(keys: &[&[u8]]) -> Self {
        Self {
            clock: AtomicU64::new(0),
            keys: keys
                .iter()
                .map(|key| (key.to_vec(), Mutex::default()))
                .collect(),
        }
    }

    /// Runs `op` and notes it for each key that it is about.
    fn note(&self, db: &dyn Engine, client: u64, op: &Op) -> Outcome {
        let called = self.clock.fetch_add(1, Ordering::SeqCst);
        let outcome = op.run(db).expect("memory is not short");
        let returned = self.clock.fetch_add(1, Ordering::SeqCst);
        for (key, events) in &self.keys {
            let concerns = match op {
                Op::Get(of) | Op::Put(of, _) | Op::Swap(of, _) | Op::Remove(of) => of == key,
                _ => true,
            };
            if concerns {
                events.lock().unwrap().push(Event {
                    client,
                    called,
                    returned,
                    op: op.clone(),
                    outcome: outcome.clone(),
                });
            }
        }
        outcome
    }

    /// Some order explains what was seen of each key.
    fn check(&self, promise: &Promise) {
        for (_, events) in &self.keys {
            if let Err(why) = linearizable(&events.lock().unwrap(), promise) {
                panic!("{why}");
            }
        }
    }
}

/// Everything there is, each record once.
fn all(db: &dyn Reader) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    db.scan(None, &mut |key, value| {
        records.push((key.to_vec(), value.to_vec()));
        std::ops::ControlFlow::Continue(())
    })
    .expect("memory is not short");
    assert_eq!(records.len() as u64, db.count(), "as many as are counted");
    records.sort();
    records
}
