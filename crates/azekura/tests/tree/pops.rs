//! Threads that take records out at the ends of a tree file: each is taken once, in its order, and none is left.
//!
//! Next to others that put records, and alone, until there is none. It does not test one thread alone: `ranges` compares that with a
//! sorted map.

use std::sync::atomic::{AtomicI64, Ordering};

use azekura::engine::{Persistent, Reader};
use azekura::order::Order;
use azekura::record::tree::TreeDb;
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::verbs::Verbs;

use super::options;

/// Threads that push and pop: each value is taken out once, at the first end in the order in which one thread put it.
#[test]
fn what_is_pushed_is_popped_once() {
    let mut popped = 0;
    for round in 0..share(10).max(2) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, true).order(Order::Lexical);
        let pushers = 1 + random.below(3);
        let (poppers, both_ends) = (1 + random.below(3), random.one_in(2));
        let _shown = case(seed, &(&drawn, pushers, poppers, both_ends));
        let folder = tempfile::tempdir().unwrap();
        let db = &TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        let left = &AtomicI64::new((pushers * 1500).cast_signed());
        let taken: Vec<Vec<(u64, u64)>> = std::thread::scope(|scope| {
            for pusher in 0..pushers {
                scope.spawn(move || {
                    for number in 0..1500_u64 {
                        let mut value = format!("{pusher} {number} ").into_bytes();
                        value.resize(if number % 40 == 0 { 900 } else { 30 }, b'.');
                        db.push_last(&value, None).unwrap();
                    }
                });
            }
            let threads: Vec<_> = (0..poppers)
                .map(|popper| {
                    scope.spawn(move || {
                        let mut taken = Vec::new();
                        while left.load(Ordering::Relaxed) > 0 {
                            let is_last = both_ends && popper == 0;
                            let one = if is_last {
                                db.pop_last()
                            } else {
                                db.pop_first()
                            };
                            let Some((_, value)) = one.unwrap() else {
                                std::thread::yield_now();
                                continue;
                            };
                            left.fetch_sub(1, Ordering::Relaxed);
                            let text = String::from_utf8(value).unwrap();
                            let mut words = text.split(' ').map(str::parse);
                            let mut next = || words.next().unwrap().unwrap();
                            taken.push((next(), next()));
                        }
                        (taken, both_ends && popper == 0)
                    })
                })
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join().unwrap());
            ended
                .map(|(taken, is_last)| {
                    for pusher in 0..pushers {
                        let own = taken.iter().filter(|(of, _)| *of == pusher);
                        assert!(is_last || own.is_sorted_by(|a, b| a.1 < b.1));
                    }
                    taken
                })
                .collect()
        });
        let mut all: Vec<_> = taken.into_iter().flatten().collect();
        popped += all.len() as u64;
        all.sort_unstable();
        let expected = (0..pushers).flat_map(|pusher| (0..1500).map(move |at| (pusher, at)));
        assert!(all.into_iter().eq(expected));
        assert_eq!(db.count(), 0);
        assert!(db.check(&mut |_, _| {}).unwrap().is_sound());
    }
    tried_at_least(popped, 15_000, "values pushed and popped");
}

/// Threads that only pop: the one that finds none has found the store empty. Seven keys a leaf: they become empty often.
#[test]
fn there_is_none_to_pop_only_when_all_are_taken() {
    let mut popped = 0;
    for round in 0..share(400) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn = options(&mut random, true).order(Order::Lexical);
        let _shown = case(seed, &drawn);
        let folder = tempfile::tempdir().unwrap();
        let db = &TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        for number in 0..2000 {
            let mut key = format!("{number:06}").into_bytes();
            key.resize(500, b'k');
            db.put(&key, b"value").unwrap();
        }
        let taken: u64 = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| {
                scope.spawn(|| {
                    let mut taken = 0;
                    while db.pop_last().unwrap().is_some() {
                        taken += 1;
                    }
                    assert_eq!(db.count(), 0, "none is found though there are some");
                    taken
                })
            });
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!(taken, 2000);
        popped += taken;
    }
    tried_at_least(popped, 800_000, "records popped until none is left");
}
