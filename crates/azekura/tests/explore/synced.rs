//! A thread that waits for the sync of another returns only when its own changes are durable.
//!
//! Threads put records of their own into one hash file and sync it. A sync that began before a change was published does not
//! make it durable: a thread that waited for that one waits for the next, or leads it.

use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::io::over::Over;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::schedule::{Threads, yield_point};
use azekura::{Durability, Persistent, Result};

use super::holds;

const THREADS: u8 = 3;
const CHANGES: u8 = 3;

/// A device that takes its time to sync: others come in between.
#[derive(Debug)]
struct Slow(Arc<Memory>);

impl Over for Slow {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn sync(&self) -> Result<()> {
        for _ in 0..4 {
            yield_point();
        }
        self.0.sync()
    }
}

fn shared_syncs(_: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let options = CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(1 << 20)
        .durability(Durability::Process);
    let memory = Memory::new(options.opening.capacity).unwrap();
    let db = HashDb::create_on(Arc::new(Slow(memory)), &options).unwrap();
    let before = db.log().syncs();
    let mut threads = Threads::default();
    for own in 0..THREADS {
        let db = &db;
        threads.add(move || {
            for change in 0..CHANGES {
                db.put(&[own, change], &[change; 30]).unwrap();
                let end = db.position();
                Persistent::sync(db, Durability::Power).unwrap();
                let durable = db.log().durable();
                assert!(durable >= end, "{durable:?} after a sync at {end:?}");
            }
        });
    }
    run(threads);
    let syncs = db.log().syncs() - before;
    assert!((1..=u64::from(THREADS * CHANGES)).contains(&syncs));
    assert_eq!(db.log().durable(), db.position());
}

#[test]
fn a_shared_sync_makes_durable_what_each_thread_waits_for() {
    holds("threads that share syncs", 3000, &shared_syncs);
}
