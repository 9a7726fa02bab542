//! Counters that several threads share in a full store, by updates with closures, of one and of several. What found no room is
//! tried again without asking, so that it must not be applied where others counted on meanwhile: each update that is answered
//! with success is in the sum, and none that was refused.

use std::sync::atomic::{AtomicU64, Ordering};

use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::suite::{case, demand, third};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Edit, Engine as _, Kind, Reader as _};

/// Counters of a store, and updates of each of its threads.
const COUNTERS: u64 = 4;
const EACH: u64 = 100;
const THREADS: u64 = 4;

fn count_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("a counter"))
}

/// A value of `len` bytes that begins with a count.
fn value_of(count: u64, len: usize) -> Vec<u8> {
    let mut value = count.to_le_bytes().to_vec();
    value.resize(len, 7);
    value
}

/// A store with counters of 0, full of values that shrink, so that no room is left of which the last ones were refused; and
/// the length of its counters. What comes with it lives as long as it does.
fn full_store(seed: u64, random: &mut Random) -> (HashDb, usize, impl Sized) {
    let len_max = *random.choose(&[2000, 20_000, 100_000]);
    let len = 8 + random.index(len_max);
    let options = CreateOptions::new()
        .capacity(16 << 20)
        .segment_size(*random.choose(&[16 << 10, 64 << 10]))
        .background(random.one_in(2));
    let shown = case(seed, &(len, &options));
    let folder = tempfile::tempdir().expect("a folder");
    let db = HashDb::create(folder.path().join("store.azh"), &options).expect("a store");
    for counter in 0..COUNTERS {
        db.put(&counter.to_le_bytes(), &value_of(0, len))
            .expect("room");
    }
    let mut key = COUNTERS;
    for len in [len, len / 2, 100] {
        while db.put(&key.to_le_bytes(), &vec![1; len]).is_ok() {
            key += 1;
        }
    }
    (db, len, (folder, shown))
}

#[test]
fn counts_of_threads_that_share_counters_of_a_full_store_add_up() {
    let (mut updates, mut refused) = (0, 0);
    for seed in 0..third(18) {
        let mut random = Random::new(!(seed + round_seed()));
        let (db, len, _rest) = full_store(seed, &mut random);
        let done: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let db = &db;
                    let mut random = Random::new(!(seed * 16 + thread + round_seed()));
                    scope.spawn(move || {
                        let (mut counted, mut refused) = (0, 0);
                        for _ in 0..EACH {
                            let first = random.below(COUNTERS);
                            let several = [first, (first + 1) % COUNTERS].map(u64::to_le_bytes);
                            // A longer value asks for more room than there may be.
                            let len = len + if random.one_in(4) { len / 4 } else { 0 };
                            let next = |present: Option<&[u8]>| {
                                let count = count_of(present.expect("a counter"));
                                Edit::Put(value_of(count + 1, len).into())
                            };
                            let (of, answer) = if random.one_in(2) {
                                (1, db.update(&several[0], &mut |present| next(present)))
                            } else {
                                let keys = [&several[0][..], &several[1][..]];
                                let decide = &mut |shown: &[Option<&[u8]>]| {
                                    shown.iter().map(|present| next(*present)).collect()
                                };
                                (2, db.update_many(&keys, decide))
                            };
                            match answer {
                                Ok(()) => counted += of,
                                Err(error) => {
                                    assert_eq!(error.kind(), Kind::Full, "{error}");
                                    refused += 1;
                                }
                            }
                        }
                        (counted, refused)
                    })
                })
                .collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().expect("a thread"));
            ended.collect()
        });
        let mut sum = 0;
        for counter in 0..COUNTERS {
            db.read(&counter.to_le_bytes(), &mut |value| {
                sum += count_of(value.expect("a counter"));
            })
            .expect("it is read");
        }
        assert_eq!(sum, done.iter().map(|(counted, _)| counted).sum::<u64>());
        updates += sum;
        refused += done.iter().map(|(_, refused)| refused).sum::<u64>();
    }
    tried(&format!("{refused} updates were refused"));
    demand(updates, third(18) * EACH, "counts in full stores");
}

/// Of two accounts that hold one coin together, or none, each batch changes one by what it saw of both. Who compared only what
/// it changes, when it is tried again, would add a coin where another thread has added one to the account that it keeps.
#[test]
fn what_a_batch_of_a_full_store_keeps_is_what_it_was_decided_on() {
    let (moved, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    for seed in 0..third(18) {
        let mut random = Random::new(!(seed + round_seed()));
        let (db, len, _rest) = full_store(seed, &mut random);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, moved, refused) = (&db, &moved, &refused);
                let mut random = Random::new(!(seed * 16 + thread + round_seed()));
                scope.spawn(move || {
                    for _ in 0..EACH {
                        let (changed, longer) = (random.index(2), random.one_in(4));
                        let keys = [0, 1].map(u64::to_le_bytes);
                        let changes = &mut |shown: &[Option<&[u8]>]| {
                            let coins = [0, 1].map(|at| count_of(shown[at].expect("an account")));
                            let sum = coins[0].wrapping_add(coins[1]);
                            assert!(sum <= 1, "{} coins of one", sum.cast_signed());
                            let change = if sum == 0 { 1 } else { u64::MAX };
                            let len = len + if longer { len / 4 } else { 0 };
                            let mut edits = vec![Edit::Keep, Edit::Keep];
                            let count = coins[changed].wrapping_add(change);
                            edits[changed] = Edit::Put(value_of(count, len).into());
                            edits
                        };
                        let done = db.update_many(&[&keys[0], &keys[1]], changes);
                        let count = if done.is_ok() { moved } else { refused };
                        count.fetch_add(1, Ordering::Relaxed);
                        if let Err(error) = done {
                            assert_eq!(error.kind(), Kind::Full, "{error}");
                        }
                    }
                });
            }
        });
    }
    tried(&format!("{} changes were refused", refused.into_inner()));
    demand(
        moved.into_inner(),
        third(18) * EACH,
        "coins moved in full stores",
    );
}
