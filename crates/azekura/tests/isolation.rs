//! Concurrent operations on the hash engine look as if they happened one after the other.
//!
//! Recorded histories are explained by some order (`testkit::history` and `transactions`), and threads with keys of their
//! own find under each exactly what they left there, while segments roll, are cleaned and reused, the index
//! grows and checkpoints are made. Small segments make all of that happen many times a second.
//!
//! That the searches catch racy engines is proved beside them. Crashes are other nets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::io::memory::Memory;
use azekura::record::hash::{HashDb, Options};
use azekura::testkit::history::{self, Plan};
use azekura::testkit::suite::share;
use azekura::testkit::{Random, beside, round_seed, transactions, tried};
use azekura::{Edit, Engine, Persistent, Reader};

fn options(segment_size: u64, background: bool) -> Options {
    Options {
        segment_size,
        background,
        capacity: 1 << 32,
        ..Options::default()
    }
}

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

/// Runs `work` on a store in a file whose innards are kept busy; returns what `unrest` did.
fn beside_unrest(segment_size: u64, work: impl FnOnce(&HashDb)) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("busy.azh");
    let db = HashDb::create(file, &options(segment_size, true)).expect("a new file");
    let unrest = |stop: &AtomicBool| unrest(&db, stop, 77 + round_seed());
    let ((), rounds) = beside(unrest, || work(&db));
    let report = db.check(&mut |_, _| ()).expect("a check");
    assert!(report.is_sound(), "{:?}", report.damage);
    db.close().expect("it closes");
    rounds
}

#[test]
fn operations_of_threads_on_the_same_keys_are_linearizable() {
    let count = share(3000);
    let rounds = beside_unrest(4096, |db| {
        let plans = (0..count).map(|seed| Plan::varied(seed + round_seed()));
        history::explained(db, plans).expect("an order that explains it");
    });
    assert!(rounds > 0);
    tried(&format!(
        "{count} histories, beside {rounds} rounds of unrest"
    ));
}

#[test]
fn updates_of_many_keys_are_serializable() {
    let count = share(1500);
    let rounds = beside_unrest(4096, |db| {
        let plans = (0..count).map(|seed| transactions::varied(seed + round_seed()));
        transactions::explained(db, plans).expect("an order that explains it");
    });
    assert!(rounds > 0);
    tried(&format!(
        "{count} runs of transactions, beside {rounds} rounds of unrest"
    ));
}

#[test]
fn sums_over_accounts_are_the_same_for_every_onlooker() {
    const ACCOUNTS: u64 = 8;
    let transfers = share(20_000);
    let looks = AtomicU64::new(0);
    beside_unrest(4096, |db| {
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
            let mut random = Random::new(11);
            // On until the onlooker has had its turns, whatever the machine gives to whom.
            for transfer in 0.. {
                if transfer >= transfers && looks.load(Ordering::Relaxed) > 100 {
                    break;
                }
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
            }
        };
        beside(onlook, transfer);
    });
    let looks = looks.into_inner();
    tried(&format!("{transfers} transfers and more, {looks} sums"));
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

fn torture_file(segment_size: u64, ops: u64, rounds: u64) {
    let mut compared = 0;
    for seed in 0..rounds {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("torture.azh");
        let db = HashDb::create(&file, &options(segment_size, true)).expect("a new file");
        compared += torture(&db, ops, seed + round_seed());
        let report = db.check(&mut |_, _| ()).expect("a check");
        assert!(report.is_sound(), "{:?}", report.damage);
        let count = db.count();
        db.close().expect("it closes");
        // The log as it was written must say the same as memory did.
        let db = HashDb::open(&file, &options(segment_size, false)).expect("it opens again");
        assert_eq!(db.count(), count);
        assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    }
    tried(&format!(
        "{} operations of {THREADS} threads, segments of {segment_size} B: {compared} answers",
        ops * THREADS * rounds
    ));
}

#[test]
fn threads_with_keys_of_their_own_find_what_they_left_in_small_segments() {
    torture_file(4096, share(60_000), 3);
}

#[test]
fn threads_with_keys_of_their_own_find_what_they_left_in_larger_segments() {
    torture_file(65_536, share(100_000), 2);
}

#[test]
fn threads_without_a_keeper_find_what_they_left() {
    let memory = Memory::new(1 << 28).expect("memory");
    let db = HashDb::create_on(memory, &options(4096, false)).expect("a new store");
    let compared = torture(&db, share(60_000), 9 + round_seed());
    assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    tried(&format!("{compared} answers without a keeper"));
}
