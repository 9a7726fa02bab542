//! Snapshots and transactions of a tree file, whose leaves divide, join, give way and are written, with checkpoints in between.
//!
//! Sums that are moved about are whole in every snapshot; and where a transaction writes what it has read of another record, no snapshot
//! that has a later value of that record lacks the transaction.

use std::ops::ControlFlow;
use std::path::Path;

use azekura::engine::{Persistent, Reader};
use azekura::io::sim::SimDisk;
use azekura::record::tree::{CreateOptions, OpenOptions, Snapshot, TreeDb};
use azekura::testkit::Random;
use azekura::testkit::configuration::compression;
use azekura::testkit::schedule::Threads;
use azekura::{Edit, Engine, Kind, Result};

use super::holds;

const ACCOUNTS: u64 = 24;
const EACH: u64 = 100;

fn account(number: u64) -> Vec<u8> {
    format!("account {number:02}").into_bytes()
}

/// A value of a number, as long as that says: leaves hold some ten of them.
fn long(number: u64, len: usize) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + len, 7);
    value
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk::<8>().expect("a number is there"))
}

fn store(seed: u64) -> TreeDb {
    let disk = SimDisk::new(seed);
    let opening = OpenOptions::new()
        .cache(256u64 << 10)
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX);
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .compression(compression(&mut Random::new(seed)))
        .opening(opening);
    let db = TreeDb::create_in(&disk.directory(), Path::new("a.azt"), &options).unwrap();
    for account_number in 0..ACCOUNTS {
        db.put(&account(account_number), &long(EACH, 380)).unwrap();
    }
    if seed.is_multiple_of(3) {
        db.checkpoint().unwrap();
    }
    db
}

fn sum(snapshot: &Snapshot<'_>) -> u64 {
    let (mut sum, mut count) = (0, 0);
    snapshot
        .scan(None, &mut |key, value| {
            if key.starts_with(b"account") {
                sum += number(value);
            }
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(count, snapshot.count());
    sum
}

/// Moves a sum from one account to another, by an update of both, or a transaction.
fn transfer(db: &TreeDb, random: &mut Random) -> Result<()> {
    let from = random.below(ACCOUNTS);
    let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
    let (from, to) = (account(from), account(to));
    let lens = [8, 380, 900].map(|len| len + random.index(40));
    let (a_len, b_len) = (*random.choose(&lens), *random.choose(&lens));
    if random.one_in(2) {
        return db.update_many(&[&from, &to], &mut |present| {
            let of = |at: usize| number(present[at].expect("it is there"));
            vec![
                Edit::Put(long(of(0) - 1, a_len).into()),
                Edit::Put(long(of(1) + 1, b_len).into()),
            ]
        });
    }
    let done = db.transact(|transaction| {
        let of = |key: &[u8]| Ok::<_, azekura::Error>(number(&transaction.get(key)?.unwrap()));
        let (a, b) = (of(&from)?, of(&to)?);
        transaction.put(&from, long(a - 1, a_len))?;
        transaction.put(&to, long(b + 1, b_len))
    });
    match done {
        Err(error) if error.kind() == Kind::Conflict => Ok(()),
        done => done,
    }
}

fn moving(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = store(seed);
    let mut threads = Threads::default();
    for client in 0..2u64 {
        let db = &db;
        threads.add(move || {
            let mut random = Random::new(seed ^ client << 8);
            for _ in 0..3 {
                transfer(db, &mut random).unwrap();
                match random.below(4) {
                    0 => db.checkpoint().unwrap(),
                    1 => db.maintain().unwrap(),
                    2 => {
                        let key = account(random.below(ACCOUNTS) + 100);
                        db.put(&key[..9], &long(0, 700)).unwrap();
                    }
                    _ => drop(db.remove(&account(random.below(9) + 100)[..9]).unwrap()),
                }
            }
        });
    }
    threads.add(|| {
        let mut kept: Vec<Snapshot<'_>> = Vec::new();
        for _ in 0..3 {
            kept.push(db.snapshot().unwrap());
            for snapshot in &kept {
                assert_eq!(sum(snapshot), ACCOUNTS * EACH, "a sum is not whole");
            }
            if kept.len() > 1 {
                kept.remove(0);
            }
        }
    });
    run(threads);
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

/// One writes x blindly, one writes to y what it read of x: if y changes after a snapshot, that is not to less than the snapshot has
/// of x.
fn read_and_write(seed: u64, run: &mut dyn FnMut(Threads<'_>)) {
    let db = store(seed);
    let (x, y) = (account(0), account(ACCOUNTS - 1));
    for key in [&x, &y] {
        db.put(key, &long(0, 380)).unwrap();
    }
    let mut threads = Threads::default();
    threads.add(|| {
        for version in 1..5 {
            db.put(&x, &long(version, 380)).unwrap();
        }
    });
    threads.add(|| {
        for round in 0..4 {
            if round == seed % 5 {
                db.checkpoint().unwrap();
            }
            let done = if seed.is_multiple_of(2) {
                db.transact(|transaction| {
                    let seen = transaction.get(&x)?.unwrap();
                    transaction.put(&y, seen)
                })
            } else {
                db.update_many(&[&x, &y], &mut |present| {
                    let seen = present[0].expect("it is there").to_vec();
                    vec![Edit::Keep, Edit::Put(seen.into())]
                })
            };
            match done {
                Err(error) if error.kind() == Kind::Conflict => {}
                done => done.unwrap(),
            }
        }
    });
    threads.add(|| {
        let mut before = (0, 0);
        for _ in 0..5 {
            let snapshot = db.snapshot().unwrap();
            let of = |key: &[u8]| number(&snapshot.get(key).unwrap().unwrap());
            let now = (of(&x), of(&y));
            assert!(now.0 >= before.0 && now.1 <= now.0);
            assert!(
                now.1 == before.1 || now.1 >= before.0,
                "{before:?}, then {now:?}"
            );
            before = now;
        }
    });
    run(threads);
}

#[test]
fn sums_are_whole_in_every_snapshot() {
    holds("sums that are moved under snapshots", 3000, &moving);
}

#[test]
fn what_was_read_is_as_it_was_when_what_rests_on_it_is_seen() {
    let what = "transactions whose reads others write";
    holds(what, 6000, &read_and_write);
}
