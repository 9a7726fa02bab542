//! However threads meet, the index, the slab, the epochs and what is made of them answer as if one came after the other.
//!
//! Here seeds decide how they meet (`testkit::schedule`): `index` has writers grow a chunk under readers, `store` has them
//! overwrite, remove, move and scan records of a `TinyDb`, `ordered` has them divide and join nodes of a `BabyDb`, `cache`
//! has them drop records that others read, `reader` has them put records while a reader opens their file, `synced` has them
//! share syncs, `marks` has them set marks, `objects` takes snapshots of an object store during its checkpoints, `storm` crashes hash files and object stores
//! that they use, `storm_ordered` tree files and edited sorted files, `ordered_snapshots` reads and commits in tree files, `ordered_counts` counts ranges of them. Each rule that readers without locks rely on is broken once by a patch in `mutants/`,
//! and one of these tests must fail then. Built with `--cfg azekura_explore` only (`make explore`); lines beginning `tried:` state how much was tried.

#![cfg(azekura_explore)]

mod cache;
mod index;
mod marks;
mod objects;
mod ordered;
mod ordered_counts;
mod ordered_snapshots;
mod reader;
mod store;
mod storm;
mod storm_ordered;
mod synced;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::engine::Promise;
use azekura::testkit::history::{Event, linearizable};
use azekura::testkit::schedule::{Plan, Threads, explore, yield_point};
use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Op, Outcome};
use azekura::{Engine, Reader};

/// Changes of thread that a schedule must have, on average.
const CHANGES_LEAST: u64 = 5;

type Scenario<'s> = &'s dyn Fn(u64, &mut dyn FnMut(Threads<'_>));

/// No schedule fails. Of so many, a run that is not full tries a tenth.
fn holds(name: &str, schedules: u64, scenario: Scenario<'_>) {
    match explore(Plan::new(share(schedules)), scenario) {
        Ok(tried) => {
            let (turns, changes) = (tried.turns, tried.changes);
            let what = format!("schedules of {name}, {turns} turns");
            tried_at_least(tried.schedules, schedules, &what);
            // Threads that never meet prove nothing.
            let what = format!("changes of thread of {name}");
            tried_at_least(changes, CHANGES_LEAST * schedules, &what);
        }
        Err(failure) => panic!("seed {}: {}", failure.seed, failure.what),
    }
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

/// Threads add to a number as none may: they load it, let others come in between, and store it.
fn lost_update(run: &mut dyn FnMut(Threads<'_>)) {
    let sum = AtomicU64::new(0);
    let mut threads = Threads::default();
    for _ in 0..3 {
        let sum = &sum;
        threads.add(move || {
            for _ in 0..4 {
                yield_point();
                let before = sum.load(Ordering::SeqCst);
                yield_point();
                sum.store(before + 1, Ordering::SeqCst);
            }
        });
    }
    run(threads);
    let sum = sum.load(Ordering::SeqCst);
    assert_eq!(sum, 12, "an update was lost");
}

#[test]
fn a_lost_update_is_found_and_its_seed_decides_all_of_it() {
    let scenario = |_: u64, run: &mut dyn FnMut(Threads<'_>)| lost_update(run);
    let failure = explore(Plan::new(100), scenario).expect_err("it is found");
    let again = Plan {
        schedules: 1,
        seed: failure.seed,
    };
    let again = explore(again, scenario).expect_err("the seed decides");
    assert_eq!(again.what, failure.what, "the seed decides all of it");
}
