//! The promises that threads test: no update lost, no value torn, no going back.
//!
//! Threads start together and count what they did; what must add up is added up. The histories
//! that `history` and `transactions` record and judge are made here too.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::scans::{once, scan_in_pieces};
use super::{Effort, Failure, Outcomes, counts, ensure, equal, fill, numbered};
use crate::engine::{Edit, Engine};
use crate::testkit::history::{self, Plan, together};
use crate::testkit::{Random, transactions};
use crate::verbs::Verbs;

const THREADS: u64 = 4;

/// A value that shows from which number it was made, and every byte of which is checked.
fn stamped(number: u64) -> Vec<u8> {
    let len = 8 + (number % 113) as usize;
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn number_stamped(value: &[u8]) -> Outcomes<u64> {
    let bytes = value
        .first_chunk()
        .ok_or_else(|| Failure(format!("a torn value {value:?}")))?;
    let number = u64::from_le_bytes(*bytes);
    ensure(stamped(number) == value, || {
        format!("a torn value {value:?}")
    })?;
    Ok(number)
}

/// Runs `work` in threads that start together, with their numbers, and adds up what they return.
fn in_threads(work: impl Fn(u64) -> Outcomes<u64> + Sync) -> Outcomes<u64> {
    Ok(together(THREADS, work)?.into_iter().sum())
}

pub(super) fn threads(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let rounds = 2 * effort.records;
    let mut done = no_increment_is_lost(engine, rounds)?;
    done += nobody_goes_back(engine, rounds)?;
    one_of_a_race_wins(engine, rounds)?;
    done += money_stays(engine, effort.seed, rounds / 4)?;
    // Three counters, a stamp, three accounts.
    counts(engine, 7, "after threads")?;
    Ok(done)
}

fn no_increment_is_lost(engine: &dyn Engine, rounds: u64) -> Outcomes<u64> {
    let key = |number: u64| format!("counter{number}");
    let done = in_threads(|_| {
        for round in 0..rounds {
            engine.increment(key(round % 3).as_bytes(), 1, 0)?;
        }
        Ok(rounds)
    })?;
    let sum = (0..3).try_fold(0, |sum, number| {
        let counter = engine.counter(key(number).as_bytes())?;
        crate::error::Result::Ok(sum + counter.unwrap_or(0))
    })?;
    let expected = (THREADS * rounds).cast_signed();
    equal(&sum, &expected, "sum of increments by threads")?;
    Ok(done)
}

/// One record, one writer: all see whole values and never go back, the writer its own.
fn nobody_goes_back(engine: &dyn Engine, rounds: u64) -> Outcomes<u64> {
    let last = AtomicU64::new(0);
    engine.put(b"stamp", &stamped(0))?;
    let read = || {
        let value = engine.get(b"stamp")?;
        number_stamped(&value.ok_or_else(|| Failure("a record went".into()))?)
    };
    in_threads(|thread| {
        let mut newest = 0;
        for round in 1..=rounds {
            let least = if thread == 0 {
                engine.put(b"stamp", &stamped(round))?;
                last.store(round, Ordering::SeqCst);
                round
            } else {
                last.load(Ordering::SeqCst).max(newest)
            };
            newest = read()?;
            ensure(newest >= least, || {
                format!("read {newest} after {least} was acknowledged")
            })?;
        }
        Ok(rounds)
    })
}

fn one_of_a_race_wins(engine: &dyn Engine, rounds: u64) -> Outcomes<()> {
    let wins = in_threads(|thread| {
        let insert = |n| engine.put_new(&numbered("race", n), &stamped(thread));
        (0..rounds).try_fold(0, |wins, n| Ok(wins + u64::from(insert(n)?)))
    })?;
    equal(&wins, &rounds, "inserts that won a race")?;
    let removed = in_threads(|_| {
        let remove = |n| engine.remove(&numbered("race", n));
        (0..rounds).try_fold(0, |wins, n| Ok(wins + u64::from(remove(n)?)))
    })?;
    equal(&removed, &rounds, "removals that won a race")
}

/// Money moves between accounts, and there is always as much of it.
fn money_stays(engine: &dyn Engine, seed: u64, rounds: u64) -> Outcomes<u64> {
    let accounts: [&[u8]; 3] = [b"x", b"y", b"z"];
    for account in accounts {
        engine.put(account, &stamped(1 << 32))?;
    }
    in_threads(|thread| {
        let mut random = Random::new(seed ^ thread);
        for round in 0..rounds {
            let (from, to) = (random.index(3), random.index(3));
            let mut sum = Ok(0);
            engine.update_many(&accounts, &mut |present| {
                let amounts = present
                    .iter()
                    .map(|value| number_stamped(value.unwrap_or_default()));
                let mut amounts = match amounts.collect::<Outcomes<Vec<u64>>>() {
                    Ok(amounts) => amounts,
                    Err(failure) => {
                        sum = Err(failure);
                        return vec![Edit::Keep, Edit::Keep, Edit::Keep];
                    }
                };
                sum = Ok(amounts.iter().sum());
                amounts[from] -= 1 + round;
                amounts[to] += 1 + round;
                // The third is left alone: a second writer would hide a lost transfer.
                let edit = |(index, amount): (usize, &u64)| {
                    if [from, to].contains(&index) {
                        Edit::Put(stamped(*amount).into())
                    } else {
                        Edit::Keep
                    }
                };
                amounts.iter().enumerate().map(edit).collect()
            })?;
            equal(&sum?, &(3 << 32), "sum of accounts")?;
        }
        Ok(rounds)
    })
}

pub(super) fn scans_with_writers(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let stable = fill(engine, "stable", effort.records)?;
    let stop = AtomicBool::new(false);
    in_threads(|thread| {
        if thread == 0 {
            let mut random = Random::new(effort.seed);
            let mut scan = || {
                let mut count = 0;
                for piece_max in [7, 1000, u64::MAX >> 1] {
                    let shown = scan_in_pieces(engine, None, &mut random, piece_max, || Ok(()))?;
                    count += shown.len() as u64;
                    let shown = once(shown)?;
                    let missing = stable
                        .iter()
                        .find(|(key, value)| shown.get(*key) != Some(value));
                    ensure(missing.is_none(), || {
                        format!("was there all the time: {missing:?}")
                    })?;
                    for (key, value) in shown.iter().filter(|(key, _)| !stable.contains_key(*key)) {
                        number_stamped(value).map_err(|f| f.within(&format!("{key:?}")))?;
                    }
                }
                Ok(count)
            };
            let outcome = catch_unwind(AssertUnwindSafe(&mut scan));
            // The writers end in any case.
            stop.store(true, Ordering::SeqCst);
            return outcome.unwrap_or_else(|panic| resume_unwind(panic));
        }
        let prefix = format!("writer{thread}-");
        let mut round = 0;
        while !stop.load(Ordering::SeqCst) {
            let key = numbered(&prefix, round % effort.records);
            if (round / effort.records).is_multiple_of(2) {
                engine.put(&key, &stamped(round))?;
            } else {
                engine.remove(&key)?;
            }
            round += 1;
        }
        Ok(0)
    })
}

pub(super) fn histories(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let plans = |keys: fn(u64) -> u64, ops| {
        (0..effort.histories.div_ceil(2)).map(move |number| Plan {
            keys: keys(number),
            ops,
            ..Plan::new(effort.seed.wrapping_add(number))
        })
    };
    let single = history::explained(engine, plans(|number| 1 + number % 3, 20))?;
    Ok(single + transactions::explained(engine, plans(|_| 3, 40))?)
}
