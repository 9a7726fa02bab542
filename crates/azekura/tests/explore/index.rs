//! The index: entries that stay are found while chunks fill, overflow, grow, split and are used again.
//!
//! Keys are numbers; their hashes are chosen so that all stand in one chunk at first. A place is the key and a version, so
//! that a wrong one shows. Where threads are interleaved a chunk has three buckets at most, and then splits.

use std::sync::atomic::{AtomicU64, Ordering};

use azekura::epoch::Domain;
use azekura::index::hash::Hash;
use azekura::index::{Index, Place};
use azekura::testkit::Random;
use azekura::testkit::schedule::Threads;

use super::holds;

const PARTITION: u64 = 5;

/// Keys from here on have a partition of their own each.
const ELSEWHERE: u64 = 1000;

/// Spread over the partition, each with a tag of its own.
fn hash_of(key: u64) -> Hash {
    let tag = key.wrapping_mul(0x9e_3779) & 0xff_ffff;
    let partition = PARTITION + (key + 1).saturating_sub(ELSEWHERE);
    Hash(partition << 52 | tag << 28)
}

fn place(key: u64, version: u64) -> Place {
    key << 8 | version
}

fn put(index: &Index, key: u64, version: u64) {
    let pin = index.pin();
    let hash = hash_of(key);
    let (mut locked, found) = index
        .lock_to_put(&pin, hash, |locked| {
            locked.find(|place| Ok((place >> 8 == key).then_some(())))
        })
        .unwrap();
    match found {
        Some((slot, ())) => locked.replace(slot, place(key, version)),
        None => locked.fill(place(key, version)),
    }
}

fn remove(index: &Index, key: u64) -> bool {
    let pin = index.pin();
    let locked = index.lock(&pin, hash_of(key)).unwrap();
    let found = locked
        .find(|place| Ok((place >> 8 == key).then_some(())))
        .unwrap();
    found.is_some_and(|(slot, ())| {
        locked.remove(slot);
        true
    })
}

fn version(index: &Index, key: u64) -> Option<u64> {
    let pin = index.pin();
    index
        .find(&pin, hash_of(key), |place| {
            Ok((place >> 8 == key).then_some(place & 0xff))
        })
        .unwrap()
}

fn keys_in_order_of_a_scan(index: &Index) -> Vec<u64> {
    let pin = index.pin();
    let mut keys = Vec::new();
    let mut at = Some(Hash(PARTITION << 52));
    while let Some(hash) = at.filter(|hash| hash.partition() == PARTITION as usize) {
        let (entries, next) = index.scan_chunk(&pin, hash).unwrap();
        keys.extend(entries.into_iter().map(|(_, place)| place >> 8));
        at = next;
    }
    keys
}

/// Two writers add `come` keys each to a chunk of `full` entries and change and remove their own; then they make chunks of
/// other partitions, for which old ones are used again. A reader looks for keys that stay.
fn growth(full: u64, come: u64, seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let index = Index::new(&Domain::new()).unwrap();
    for key in 1..=full {
        put(&index, key, 0);
    }
    // The highest version of each key that a writer was done with.
    let done: Vec<AtomicU64> = (0..=full).map(|_| AtomicU64::new(0)).collect();
    let mut threads = Threads::default();
    for writer in 0..2u64 {
        let (index, done) = (&index, &done);
        threads.add(move || {
            let mut random = Random::new(seed ^ writer);
            for step in 0..come {
                let key = 100 * (writer + 1) + step;
                put(index, key, 1);
                assert_eq!(version(index, key), Some(1), "what was put is found");
                // Each writer has half of the keys that stay.
                let stays = 1 + 2 * random.below(full / 2) + writer;
                let next = done[stays as usize].load(Ordering::SeqCst) + 1;
                put(index, stays, next);
                done[stays as usize].store(next, Ordering::SeqCst);
                if random.one_in(3) {
                    assert!(remove(index, key), "what was put is removed");
                    assert_eq!(version(index, key), None, "what was removed is not found");
                    put(index, key, 2);
                }
            }
            put(index, ELSEWHERE + writer, 1);
        });
    }
    let (shared, done) = (&index, &done);
    threads.add(move || {
        let mut random = Random::new(!seed);
        for _ in 0..12 {
            let key = 1 + random.below(full / 2 * 2);
            let before = done[key as usize].load(Ordering::SeqCst);
            let found = version(shared, key).expect("a key that stays is found");
            assert!(found >= before, "key {key}: {found} after {before}");
        }
        let keys = keys_in_order_of_a_scan(shared);
        for key in 1..=full {
            let times = keys.iter().filter(|other| **other == key).count();
            assert_eq!(times, 1, "a scan shows key {key} once");
        }
    });
    run(threads);
    let mut keys = keys_in_order_of_a_scan(&index);
    keys.sort_unstable();
    let expected = (1..=full).chain(100..100 + come).chain(200..200 + come);
    assert_eq!(keys, expected.collect::<Vec<_>>());
    for key in 1..=full {
        let expected = done[key as usize].load(Ordering::SeqCst);
        assert_eq!(version(&index, key), Some(expected), "no update is lost");
    }
}

/// A chunk is filled and grows while a thread locks several of its buckets at once.
fn many_locks(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let index = Index::new(&Domain::new()).unwrap();
    for key in 1..=26 {
        put(&index, key, 0);
    }
    let mut threads = Threads::default();
    for thread in 0..2u64 {
        let index = &index;
        threads.add(move || {
            let mut random = Random::new(seed ^ thread);
            for _ in 0..3 {
                let keys: Vec<u64> = (0..3).map(|_| 1 + random.below(26)).collect();
                let hashes: Vec<Hash> = keys.iter().map(|key| hash_of(*key)).collect();
                let pin = index.pin();
                let here =
                    |key: u64| move |place: Place| Ok((place >> 8 == key).then_some(place & 0xff));
                let (locked, found) = index
                    .lock_many_to_put(&pin, &hashes, |at, locked| locked.find(here(keys[at])))
                    .unwrap();
                // A key that is given twice is counted once: all were looked up before.
                for (at, found) in found.iter().enumerate() {
                    let (slot, version) = found.expect("a key that stays is found");
                    locked[at].replace(slot, place(keys[at], version + 1));
                }
            }
        });
    }
    let shared = &index;
    threads.add(move || {
        for key in 0..4 {
            put(shared, 100 + key, 1);
            let own = 1 + key;
            let pin = shared.pin();
            let locked = shared.lock(&pin, hash_of(own)).unwrap();
            let found = locked
                .find(|place| Ok((place >> 8 == own).then_some(place & 0xff)))
                .unwrap();
            let (slot, version) = found.expect("a key that stays is found");
            locked.replace(slot, place(own, version + 1));
        }
    });
    run(threads);
    let sum: u64 = (1..=26).filter_map(|key| version(&index, key)).sum();
    // What two threads were to add to at once, both added to.
    let mut asked = 4;
    for thread in 0..2u64 {
        let mut random = Random::new(seed ^ thread);
        for _ in 0..3 {
            let mut keys: Vec<u64> = (0..3).map(|_| 1 + random.below(26)).collect();
            keys.sort_unstable();
            keys.dedup();
            asked += keys.len() as u64;
        }
    }
    assert_eq!(sum, asked, "no update is lost");
}

#[test]
fn keys_that_stay_are_found_while_a_chunk_grows() {
    holds("a chunk that grows", 8000, &|seed, run| {
        growth(20, 5, seed, run);
    });
}

#[test]
fn keys_that_stay_are_found_while_a_chunk_splits() {
    holds("a chunk that splits", 8000, &|seed, run| {
        growth(32, 5, seed, run);
    });
    holds("a chunk that is used again", 8000, &|seed, run| {
        growth(21, 1, seed, run);
    });
}

#[test]
fn several_locks_at_once_lose_no_update() {
    holds("several locks at once", 8000, &many_locks);
}
