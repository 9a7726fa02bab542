//! Concurrent operations on the hash engine look as if they happened one after the other.
//!
//! Recorded histories are explained by some order (`testkit::history` and `transactions`), and threads with keys of their
//! own find under each exactly what they left there, while segments roll, are cleaned and reused, the index
//! grows and checkpoints are made. Small segments make all of that happen many times a second. Each test runs on several
//! stores, whose configurations are drawn from seeds: files and memory, with the background worker and without.
//!
//! That the searches catch racy engines is proved next to them. Crashes are other suites.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::io::memory::Memory;
use azekura::record::hash::HashDb;
use azekura::testkit::configuration::{Within, hash_options, opening};
use azekura::testkit::history::{self, Plan};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, concurrently, round_seed, transactions};
use azekura::{Edit, Engine, Persistent, Reader};

/// Stores among which the work of a test is divided.
const STORES: u64 = 6;

/// What a store may be: all that is put here fits.
const WITHIN: Within = Within {
    capacity_max: 1 << 32,
    ..Within::file(4 << 20)
};

/// Keeps the engine's own work going: overwriting, growth, checkpoints, cleaning, compaction.
fn unrest(db: &HashDb, stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..50 {
            let key = format!("unrest-{}", random.below(2000));
            let len = random.index(200);
            if random.one_in(4) {
                db.remove(key.as_bytes()).expect("a removal");
            } else {
                db.put(key.as_bytes(), &vec![7; len]).expect("a put");
            }
        }
        match random.below(20) {
            0 => db.checkpoint().expect("a checkpoint"),
            1 => db.compact(&mut |_, _| ()).expect("a compaction"),
            2 | 3 => db.maintain().expect("a step"),
            _ => {}
        }
        rounds += 1;
    }
    rounds
}

/// Runs `work` on stores of drawn configurations, in files or in memory, whose innards are kept busy; it gets the number of each.
/// Returns what `unrest` did.
fn during_unrest(first: u64, work: impl Fn(&HashDb, u64)) -> u64 {
    let mut rounds = 0;
    for number in 0..STORES {
        let seed = first + number + round_seed();
        let mut random = Random::new(!seed);
        let options = hash_options(&mut random, &WITHIN);
        let _shown = case(seed, &options);
        let folder = tempfile::tempdir().expect("a folder");
        let db = if random.one_in(4) {
            let memory = Memory::new(1 << 32).expect("memory");
            HashDb::create_on(memory, &options)
        } else {
            HashDb::create(folder.path().join("busy.azh"), &options)
        };
        let db = db.expect("a new store");
        let unrest = |stop: &AtomicBool| unrest(&db, stop, 77 + seed);
        rounds += concurrently(unrest, || work(&db, number)).1;
        let report = db.check(&mut |_, _| ()).expect("a check");
        assert!(report.is_sound(), "{:?}", report.damage);
        db.close().expect("it closes");
    }
    assert!(rounds >= STORES, "{rounds} rounds of unrest");
    rounds
}

/// The seeds of one store's part of `count` plans.
fn part(count: u64, number: u64) -> impl Iterator<Item = u64> {
    (0..count)
        .filter(move |seed| seed % STORES == number)
        .map(|seed| seed + round_seed())
}

#[test]
fn operations_of_threads_on_the_same_keys_are_linearizable() {
    const HISTORIES: u64 = 3000;
    let count = share(HISTORIES);
    let explained = AtomicU64::new(0);
    let rounds = during_unrest(100, |db, number| {
        let plans = part(count, number).map(Plan::varied);
        let of_store = history::explained(db, plans).expect("an order that explains it");
        explained.fetch_add(of_store, Ordering::Relaxed);
    });
    let what = format!("histories on {STORES} stores, during {rounds} rounds of unrest");
    tried_at_least(explained.into_inner(), HISTORIES, &what);
}

#[test]
fn updates_of_many_keys_are_serializable() {
    const RUNS: u64 = 1500;
    let count = share(RUNS);
    let explained = AtomicU64::new(0);
    let rounds = during_unrest(200, |db, number| {
        let plans = part(count, number).map(transactions::varied);
        let of_store = transactions::explained(db, plans).expect("an order that explains it");
        explained.fetch_add(of_store, Ordering::Relaxed);
    });
    let what = format!("runs of transactions on {STORES} stores, during {rounds} rounds of unrest");
    tried_at_least(explained.into_inner(), RUNS, &what);
}

#[test]
fn sums_over_accounts_are_the_same_for_every_onlooker() {
    const ACCOUNTS: u64 = 8;
    const TRANSFERS: u64 = 24_000;
    let transfers = share(TRANSFERS).div_ceil(STORES);
    let (all_looks, all_transfers) = (AtomicU64::new(0), AtomicU64::new(0));
    during_unrest(300, |db, store| {
        let looks = AtomicU64::new(0);
        let keys: Vec<Vec<u8>> = (0..ACCOUNTS)
            .map(|n| format!("account-{n}").into_bytes())
            .collect();
        for key in &keys {
            db.put(key, &100u64.to_le_bytes()).expect("a put");
        }
        let number = |value: Option<&[u8]>| {
            let value = value.expect("an account");
            u64::from_le_bytes(value.try_into().expect("eight bytes"))
        };
        let onlook = |stop: &AtomicBool| {
            let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            while !stop.load(Ordering::Relaxed) {
                let mut sum = 0;
                db.update_many(&all, &mut |values| {
                    sum = values.iter().map(|value| number(*value)).sum();
                    values.iter().map(|_| Edit::Keep).collect()
                })
                .expect("a look");
                assert_eq!(sum, ACCOUNTS * 100);
                looks.fetch_add(1, Ordering::Relaxed);
            }
        };
        let transfer = || {
            let mut random = Random::new(11 + store + round_seed());
            // On until the onlooker has had its turns, whatever the machine gives to whom.
            let mut done = 0;
            while done < transfers || looks.load(Ordering::Relaxed) <= 20 {
                let (from, to) = (random.index(keys.len()), random.index(keys.len()));
                if from == to {
                    continue;
                }
                db.update_many(&[&keys[from], &keys[to]], &mut |values| {
                    let (rich, poor) = (number(values[0]), number(values[1]));
                    let moved = rich.min(3);
                    vec![
                        Edit::Put((rich - moved).to_le_bytes().to_vec().into()),
                        Edit::Put((poor + moved).to_le_bytes().to_vec().into()),
                    ]
                })
                .expect("a transfer");
                done += 1;
            }
            all_transfers.fetch_add(done, Ordering::Relaxed);
        };
        concurrently(onlook, transfer);
        all_looks.fetch_add(looks.into_inner(), Ordering::Relaxed);
    });
    let what = format!("transfers, during {} sums", all_looks.into_inner());
    tried_at_least(all_transfers.into_inner(), TRANSFERS, &what);
}

const THREADS: u64 = 4;

/// Each thread works on keys of its own and knows what they hold: whatever the engine moves, reuses or
/// zeroes meanwhile, every value must be the one last put. Returns how many answers were compared.
fn torture(db: &HashDb, ops: u64, seed: u64) -> u64 {
    let compared = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let compared = &compared;
            scope.spawn(move || {
                let mut random = Random::new(seed << 8 | thread);
                let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
                let mut seen = 0u64;
                for step in 0..ops {
                    let number = random.below(400);
                    let key = (thread << 32 | number).to_le_bytes();
                    match random.below(8) {
                        0..4 => {
                            let len = if random.one_in(50) {
                                3000
                            } else {
                                random.index(120)
                            };
                            let mut value = vec![(step ^ number) as u8; len];
                            value.extend_from_slice(&step.to_le_bytes());
                            db.put(&key, &value).expect("a put");
                            model.insert(number, value);
                        }
                        4 => {
                            let there = db.remove(&key).expect("a removal");
                            assert_eq!(there, model.remove(&number).is_some(), "{thread} {step}");
                            seen += 1;
                        }
                        _ => {
                            let found = db.get(&key).expect("a read");
                            assert_eq!(found.as_ref(), model.get(&number), "{thread} {step}");
                            seen += 1;
                        }
                    }
                }
                for number in 0..400 {
                    let found = db
                        .get(&(thread << 32 | number).to_le_bytes())
                        .expect("a read");
                    assert_eq!(found.as_ref(), model.get(&number), "{thread}, at the end");
                    seen += 1;
                }
                compared.fetch_add(seen, Ordering::Relaxed);
            });
        }
    });
    compared.into_inner()
}

/// As above, in files and in memory of drawn configurations: with threads of the library or without, segments of any size.
#[test]
fn threads_with_keys_of_their_own_find_what_they_left() {
    const OPS: u64 = 60_000;
    const FILES: u64 = 10;
    let ops = share(OPS);
    let mut compared = 0;
    for number in 0..FILES {
        let seed = 400 + number + round_seed();
        let mut random = Random::new(!seed);
        let mut options = hash_options(&mut random, &WITHIN);
        if number % 2 == 0 {
            // Small segments, so that all is moved and used again many times.
            options.segment_size = 4096;
        }
        let next = opening(&mut random, &WITHIN, &options);
        let _shown = case(seed, &(&options, &next));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("torture.azh");
        let db = HashDb::create(&file, &options).expect("a new file");
        compared += torture(&db, ops, seed);
        let report = db.check(&mut |_, _| ()).expect("a check");
        assert!(report.is_sound(), "{:?}", report.damage);
        let count = db.count();
        db.close().expect("it closes");
        // The log as it was written must state the same as memory did.
        let db = HashDb::open(&file, &next).expect("it opens again");
        assert_eq!(db.count(), count);
        assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    }
    let what = format!("answers compared, of {THREADS} threads on {FILES} files");
    tried_at_least(compared, OPS * THREADS * FILES / 3, &what);
}

#[test]
fn threads_on_a_store_in_memory_find_what_they_left() {
    const OPS: u64 = 60_000;
    const STORES: u64 = 4;
    let ops = share(OPS);
    let mut compared = 0;
    for number in 0..STORES {
        let seed = 500 + number + round_seed();
        let within = Within {
            capacity_max: 1 << 28,
            durable: true,
            ..WITHIN
        };
        let options = hash_options(&mut Random::new(!seed), &within);
        let _shown = case(seed, &options);
        let memory = Memory::new(1 << 28).expect("memory");
        let db = HashDb::create_on(memory, &options).expect("a new store");
        compared += torture(&db, ops, seed);
        assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    }
    let what = format!("answers compared, of {THREADS} threads on {STORES} stores in memory");
    tried_at_least(compared, OPS * THREADS * STORES / 3, &what);
}
