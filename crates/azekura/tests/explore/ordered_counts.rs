//! Ranges of a tree file are counted while leaves, and pages above them, divide, join, give way and are written.
//!
//! Each thread has numbers of its own, side by side: what it counts of them is what it left there, whatever sums others know, make
//! unknown, or are making. Keys are so long, and left whole, that a few records make a tree of three levels.

use std::collections::BTreeSet;
use std::path::Path;

use azekura::Reader;
use azekura::io::sim::SimDisk;
use azekura::order::Order;
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::Random;
use azekura::testkit::schedule::Threads;

use super::holds;

/// Numbers that a thread may use.
const EACH: u64 = 1000;
const THREADS: u64 = 3;

fn key(number: u64) -> Vec<u8> {
    format!("{number:0400}").into_bytes()
}

fn count(db: &TreeDb, from: u64, to: u64) -> u64 {
    db.count_range(key(from)..key(to)).unwrap()
}

fn counting(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let disk = SimDisk::new(seed);
    let opening = OpenOptions::new()
        .cache(256u64 << 10)
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX);
    let options = CreateOptions::new()
        .order(Order::Decimal)
        .segment_size(64u64 << 10)
        .opening(opening);
    let db = &TreeDb::create_in(&disk.directory(), Path::new("a.azt"), &options).unwrap();
    let first: Vec<u64> = (0..THREADS)
        .flat_map(|thread| (0..40).map(move |number| thread * EACH + number * 20))
        .collect();
    for number in &first {
        db.put(&key(*number), b"first").unwrap();
    }
    if seed.is_multiple_of(2) {
        db.checkpoint().unwrap();
    }
    if seed.is_multiple_of(3) {
        assert_eq!(count(db, 0, THREADS * EACH), first.len() as u64);
    }
    let mut threads = Threads::default();
    for thread in 0..THREADS {
        let base = thread * EACH;
        let own = first.iter().copied();
        let mut own: BTreeSet<u64> = own.filter(|n| (base..base + EACH).contains(n)).collect();
        threads.add(move || {
            let mut random = Random::new(seed ^ thread << 8);
            for _ in 0..4 {
                let number = base + random.below(EACH);
                match random.below(8) {
                    0..3 => {
                        for number in number..(number + 6).min(base + EACH) {
                            db.put(&key(number), b"next").unwrap();
                            own.insert(number);
                        }
                    }
                    3..5 => {
                        let from = own.range(number..).copied().take(6);
                        for number in from.collect::<Vec<_>>() {
                            assert!(db.remove(&key(number)).unwrap());
                            own.remove(&number);
                        }
                    }
                    5 => {
                        let end = base + EACH;
                        let removed = db.remove_range(key(number)..key(end)).unwrap();
                        assert_eq!(removed, own.split_off(&number).len() as u64);
                    }
                    6 => db.maintain().unwrap(),
                    _ => db.checkpoint().unwrap(),
                }
                let counted = count(db, base, base + EACH);
                assert_eq!(counted, own.len() as u64, "of thread {thread}");
                if random.one_in(3) {
                    // Others come and go, own ones do not.
                    assert!(count(db, 0, THREADS * EACH) >= own.len() as u64);
                }
            }
        });
    }
    run(threads);
    assert_eq!(count(db, 0, THREADS * EACH), db.count());
    assert_eq!(db.count_range::<&[u8]>(..).unwrap(), db.count());
}

#[test]
fn what_a_thread_left_in_a_range_is_what_it_counts() {
    holds("counts of ranges", 4000, &counting);
}
