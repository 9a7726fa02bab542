//! What snapshots and transactions of a tree file cost, next to what the store does without them.
//!
//! `cargo run --release -p azekura-bench --example moments -- [RECORDS]` makes a tree of so many records of 8 and 8 bytes in a temporary
//! folder (a million, if none is stated), and prints a line for each measure: how many there were in a second. Each is taken three times, in
//! turns with the measure that it is compared with; the median counts. It compares no other program.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use azekura::engine::Engine;
use azekura::record::tree::{CreateOptions, Isolation, TreeDb};
use azekura::{Edit, Reader, Result};

/// How long a measure runs, at least.
const LEAST: Duration = Duration::from_millis(700);
const ROUNDS: usize = 3;

/// Numbers in no order, each below a bound.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[expect(clippy::big_endian_bytes, reason = "keys in the order of numbers")]
fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// How many in a second: `work` does some, and states how many.
fn rate(work: &mut dyn FnMut() -> Result<u64>) -> Result<f64> {
    let begun = Instant::now();
    let mut done = 0;
    while begun.elapsed() < LEAST {
        done += work()?;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

type Measure<'m> = (&'static str, &'m mut dyn FnMut() -> Result<u64>);

/// Takes measures in turns, and prints the median of each.
fn compare(measures: &mut [Measure<'_>]) -> Result<()> {
    let mut rates = vec![Vec::new(); measures.len()];
    for _ in 0..ROUNDS {
        for (rates, (_, work)) in rates.iter_mut().zip(measures.iter_mut()) {
            rates.push(rate(work)?);
        }
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let mut out = std::io::stdout().lock();
    let medians: Vec<f64> = rates.iter_mut().map(median).collect();
    for ((name, _), median) in measures.iter().zip(&medians) {
        let ratio = median / medians[0];
        writeln!(out, "{name:<56} {median:>12.0} /s {ratio:>7.2}x").expect("a line");
    }
    writeln!(out).expect("a line");
    Ok(())
}

fn scan(store: &dyn Reader) -> Result<u64> {
    let mut shown = 0;
    store.scan(None, &mut |_, _| {
        shown += 1;
        ControlFlow::Continue(())
    })?;
    Ok(shown)
}

fn main() -> Result<()> {
    let records: u64 = std::env::args()
        .nth(1)
        .map_or(1_000_000, |text| text.parse().expect("a number of records"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let db = TreeDb::create(folder.path().join("moments.azt"), &CreateOptions::new())?;
    for number in 0..records {
        db.put(&key(number), &number.to_le_bytes())?;
    }
    db.checkpoint()?;
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut draws: Vec<[u8; 8]> = (0..1 << 16).map(|_| key(numbers.below(records))).collect();
    let get = |store: &dyn Reader, draws: &[[u8; 8]]| {
        for key in draws {
            store.read(key, &mut |value| assert!(value.is_some()))?;
        }
        Ok(draws.len() as u64)
    };
    let put = |draws: &[[u8; 8]]| {
        for key in &draws[..1 << 12] {
            db.put(key, key)?;
        }
        Ok(1 << 12)
    };

    let snapshot = db.snapshot()?;
    compare(&mut [
        ("get, at random", &mut || get(&db, &draws)),
        ("get from a snapshot, nothing changed since", &mut || {
            get(&snapshot, &draws)
        }),
    ])?;
    compare(&mut [
        ("scan", &mut || scan(&db)),
        ("scan of a snapshot, nothing changed since", &mut || {
            scan(&snapshot)
        }),
    ])?;
    for key in &draws {
        db.put(key, key)?;
    }
    compare(&mut [
        ("scan", &mut || scan(&db)),
        ("scan of a snapshot, most pages changed since", &mut || {
            scan(&snapshot)
        }),
    ])?;
    drop(snapshot);

    compare(&mut [
        ("put, at random, no snapshot", &mut || put(&draws)),
        ("put, a snapshot for each 4096", &mut || {
            let _snapshot = db.snapshot()?;
            put(&draws)
        }),
    ])?;
    compare(&mut [
        ("put, at random", &mut || put(&draws)),
        ("a snapshot taken and dropped", &mut || {
            db.snapshot().map(|_| 1)
        }),
    ])?;

    draws.truncate(512);
    let pairs: Vec<[&[u8]; 2]> = draws
        .chunks(2)
        .map(|pair| [&pair[0][..], &pair[1][..]])
        .collect();
    let transact = |isolation| {
        for pair in &pairs {
            let mut transaction = db.transaction_with(isolation)?;
            for key in pair {
                let value = transaction.get(key)?.unwrap_or_default();
                transaction.put(key, value)?;
            }
            transaction.commit()?;
        }
        Ok(pairs.len() as u64)
    };
    compare(&mut [
        ("two records changed by `update_many`", &mut || {
            for pair in &pairs {
                db.update_many(pair, &mut |values| {
                    let same = |value: Option<&[u8]>| Edit::Put(value.unwrap().to_vec().into());
                    values.iter().copied().map(same).collect()
                })?;
            }
            Ok(pairs.len() as u64)
        }),
        ("by a transaction that is serializable", &mut || {
            transact(Isolation::Serializable)
        }),
        ("by a transaction at a snapshot", &mut || {
            transact(Isolation::Snapshot)
        }),
    ])?;
    db.close()
}
