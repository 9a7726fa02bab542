//! The last mark in memory is the last one of the log.
//!
//! Threads set marks of their own in one hash file: alone, with a batch, with a clear. What an open finds afterwards, from the
//! log, and from a checkpoint, is the mark that the store had.

use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::Random;
use azekura::testkit::schedule::Threads;
use azekura::{Edit, Result};

use super::holds;

const CAPACITY: u64 = 1 << 20;

/// The mark of the store that a death would leave here.
fn mark_after_a_death(memory: &Memory, options: &CreateOptions) -> Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; memory.size()? as usize];
    memory.read_at(0, &mut bytes)?;
    let copy = Memory::new(CAPACITY)?;
    copy.resize(bytes.len() as u64)?;
    copy.write_at(0, &bytes)?;
    Ok(HashDb::open_on(copy, &options.opening)?.mark())
}

fn marks(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let options = CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(CAPACITY);
    let memory = Memory::new(CAPACITY).unwrap();
    let storage: Arc<dyn Storage> = Arc::clone(&memory) as _;
    let db = HashDb::create_on(storage, &options).unwrap();
    let mut threads = Threads::default();
    for own in 0..3u8 {
        let db = &db;
        let mut random = Random::new(seed ^ u64::from(own));
        threads.add(move || {
            for change in 0..3u8 {
                let mark = [own, change];
                let set = match random.below(6) {
                    0 => db.clear_with_mark(&mark),
                    1 | 2 => {
                        let put = |_: &[Option<&[u8]>]| vec![Edit::Put(mark.to_vec().into())];
                        db.update_many_with_mark(&[&mark], &mut { put }, &mark)
                    }
                    _ => db.set_mark(&mark),
                };
                set.unwrap();
            }
        });
    }
    run(threads);
    let last = db.mark();
    assert_eq!(mark_after_a_death(&memory, &options).unwrap(), last);
    db.checkpoint().unwrap();
    assert_eq!(mark_after_a_death(&memory, &options).unwrap(), last);
}

#[test]
fn the_last_mark_is_the_last_one_of_the_log() {
    holds("threads that set marks", 3000, &marks);
}
