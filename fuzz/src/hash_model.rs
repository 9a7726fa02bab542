//! Fuzzes the hash engine against the model: each operation gives back what the model states.
//!
//! The input chooses keys, values, verbs, and when to reopen, checkpoint, clean and compact, over
//! segments of 4 KiB, so that a few operations reach their ends. After every reopen, and at the end,
//! all records are compared and the file is checked.
//! It does not damage anything: `hash_open` does.

use std::sync::Arc;

use azekura::engine::{Persistent, Reader};
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::{Generator, Model, Op, Random};

const LIMIT: u64 = 1 << 26;
/// Short inputs are used up by the keys: what follows is then made of them.
const OPERATIONS_MIN: u32 = 40;
/// Enough for a tour of all there is; more only makes a round slow.
const OPERATIONS_MAX: u32 = 300;

fn compare(db: &HashDb, model: &mut Model) {
    let scan = Op::Scan;
    let shown = scan.run(db).expect("a scan");
    model.check(&scan, &shown).expect("all records");
    let report = db.check(&mut |_, _| ()).expect("a check");
    assert!(report.is_sound(), "{report:?}");
}

/// Inputs to begin with: choices of a few hundred operations.
pub fn seeds() -> Vec<Vec<u8>> {
    (0..3).map(|seed| Random::new(seed).bytes(400)).collect()
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let options = CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(LIMIT);
    let memory = Memory::new(LIMIT).expect("memory");
    let mut db = HashDb::create_on(Arc::clone(&memory) as Arc<_>, &options).expect("a new store");
    let promise = db.promise();
    let mut model = Model::new(&promise);
    let mut generator = Generator::new(Random::from_bytes(bytes), &promise);
    for count in 0..OPERATIONS_MAX {
        if count >= OPERATIONS_MIN && !generator.random().has_input() {
            break;
        }
        match generator.random().below(24) {
            0 => {
                db.close().expect("a close");
                db = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &options.opening)
                    .expect("a reopen");
                compare(&db, &mut model);
            }
            1 => {
                // As after a kill: what the file holds at this moment is all there is.
                let left = Memory::from_bytes(&memory.to_vec(), LIMIT).expect("memory");
                let found = HashDb::open_on(left, &options.opening).expect("an open after a kill");
                compare(&found, &mut model);
            }
            2 => db.checkpoint().expect("a checkpoint"),
            3 => db.maintain().expect("the background work"),
            4 => db.compact(&mut |_, _| ()).expect("a compaction"),
            _ => {
                let op = generator.op();
                let outcome = op.run(&db).expect("no fault is injected");
                if let Err(difference) = model.check(&op, &outcome) {
                    panic!("{difference}");
                }
            }
        }
    }
    compare(&db, &mut model);
}
