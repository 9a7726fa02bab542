//! The promises of the contract, as one suite that every engine runs.
//!
//! [`conformance`] makes engines and tries on them: one check for each paragraph of `engine.rs`
//! (update, read, scan and bookmarks, order, many at once, limits, clear, file), threads and their
//! histories, and random sequences of all verbs against [`Model`], with reopening in between.
//!
//! Promises: what a seed decides it decides again; each piece of work has a deadline, so that a hang
//! is a failure like others; a panic of the engine is one too. It fails on every bug of `broken`.
//!
//! It asks of an engine only what its `Promise` states. An engine that evicts is made with room for
//! all that is put, and then keeps it; [`evictions`] tries it with little. Crashes, damage and lost
//! power are other suites.

mod evict;
pub mod lengths;
mod ordered;
mod scans;
mod threads;
mod updates;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use super::model::Model;
use super::op::{Generator, Op};
use super::random::{Random, round_seed};
use super::suite::share;
use crate::engine::Engine;
use crate::error::Error;
use crate::verbs::Verbs;
pub use evict::{Bounds, evictions};
use lengths::{lengths, long_lengths};
use ordered::ordered;
use scans::{bookmarks_over_reopening, reads, scans, scans_between_changes};
use threads::{histories, scans_with_writers, threads};
use updates::{clearings, file, limits, many, panics, updates, updates_of_many};

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Random sequences.
    pub sequences: u64,
    /// Operations in each.
    pub ops: u64,
    /// Concurrent histories, half of them of transactions.
    pub histories: u64,
    /// Records in the checks of scans and threads.
    pub records: u64,
    /// Decides every choice.
    pub seed: u64,
    /// How long one piece of work may take until it counts as a hang: long, since a machine may be busy with others.
    pub deadline: Duration,
}

impl Effort {
    /// For every run of the tests: a second or two.
    pub const QUICK: Self = Self {
        sequences: 200,
        ops: 200,
        histories: 100,
        records: 600,
        seed: 1,
        deadline: Duration::from_secs(600),
    };
    /// For continuous integration: a million operations.
    pub const FULL: Self = Self {
        sequences: 5000,
        histories: 1000,
        records: 20_000,
        ..Self::QUICK
    };

    /// This run's share of [`QUICK`](Self::QUICK), with the seed of this round of a soak.
    pub fn quick() -> Self {
        Self {
            sequences: share(Self::QUICK.sequences),
            histories: share(Self::QUICK.histories),
            seed: Self::QUICK.seed + round_seed(),
            ..Self::QUICK
        }
    }
}

/// What was tried, each with how often; `Display` is a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The engine's word.
    pub engine: &'static str,
    /// Name of the check, and how many things it compared.
    pub counts: Vec<(&'static str, u64)>,
}

impl Report {
    /// All that was compared.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// What the check of this name compared.
    pub fn counted(&self, name: &str) -> u64 {
        let of_name = self.counts.iter().filter(|(found, _)| *found == name);
        of_name.map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conformance of {}:", self.engine)?;
        self.counts
            .iter()
            .try_for_each(|(name, count)| write!(f, "\n  {count:>9} {name}"))
    }
}

/// A promise that was not kept: which check, and what was seen.
pub struct Failure(String);

impl Failure {
    fn within(self, check: &str) -> Self {
        Self(format!("{check}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be long; what differs is seen at the front.
        match self.0.char_indices().nth(6000) {
            None => f.write_str(&self.0),
            Some((end, _)) => write!(f, "{} ...", &self.0[..end]),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(format!("an error came unexpected: {error}"))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

type Outcomes<T> = Result<T, Failure>;
type Boxed = Box<dyn Engine>;
/// A check: what it compared, on an empty engine of its own.
type Check = fn(&dyn Engine, &Effort) -> Outcomes<u64>;

const CHECKS: &[(&str, Check)] = &[
    ("updates asked once and kept", updates),
    ("panics in updates survived", panics),
    ("reads", reads),
    ("records scanned", scans),
    ("records scanned between changes", scans_between_changes),
    ("records put and read many at once", many),
    ("updates of many at once", updates_of_many),
    ("limits", limits),
    ("values over values of other lengths", lengths),
    (lengths::LONG_CHECK, long_lengths),
    ("clearings", clearings),
    ("updates by threads", threads),
    ("records scanned during writes", scans_with_writers),
    ("steps of cursors in order", ordered),
    ("histories", histories),
    ("files checked", file),
];

/// Runs the suite on engines from `make`, which are new and empty each time.
///
/// `reopen` closes a store and opens it again; `None` for memory. The error names the check, and
/// the seed where one decides. An engine that evicts must have room for 100,000 records.
pub fn conformance(
    make: &dyn Fn() -> Boxed,
    reopen: Option<&dyn Fn(Boxed) -> Boxed>,
    effort: &Effort,
) -> Outcomes<Report> {
    let promise = make().promise();
    let mut report = Report {
        engine: promise.engine,
        counts: Vec::new(),
    };
    let mut note = |name, count: Outcomes<u64>| -> Outcomes<()> {
        let count = count.map_err(|failure| failure.within(name))?;
        report.counts.push((name, count));
        Ok(())
    };
    for (name, check) in CHECKS {
        note(name, checked(make(), *check, *effort))?;
    }
    note("operations in sequences", sequences(make, reopen, effort))?;
    if let Some(reopen) = reopen {
        let count = bookmarks_over_reopening(make(), reopen, effort);
        note("bookmarks kept over a reopening", count)?;
    }
    Ok(report)
}

/// Runs `work` in a thread of its own, and gives the engine back if it came to an end.
fn guarded<T: Send + 'static>(
    engine: Boxed,
    deadline: Duration,
    work: impl FnOnce(&dyn Engine) -> Outcomes<T> + Send + 'static,
) -> Outcomes<(Boxed, T)> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&*engine)));
        // No thread receives any more after the deadline.
        drop(sender.send((engine, outcome)));
    });
    match receiver.recv_timeout(deadline) {
        Err(_) => Err(Failure(format!("it hangs: no end after {deadline:?}"))),
        Ok((engine, Ok(outcome))) => outcome.map(|outcome| (engine, outcome)),
        Ok((_, Err(panic))) => Err(Failure(format!("a panic: {}", message(&*panic)))),
    }
}

/// What a panic states.
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcomes<()> {
    if holds {
        Ok(())
    } else {
        Err(Failure(otherwise()))
    }
}

fn equal<T: PartialEq + fmt::Debug>(found: &T, expected: &T, what: &str) -> Outcomes<()> {
    ensure(found == expected, || {
        format!("{what}: found {found:?}, expected {expected:?}")
    })
}

/// What `key` holds; `what` names the record.
fn holds_one(
    engine: &dyn Engine,
    key: &[u8],
    expected: Option<&[u8]>,
    what: impl fmt::Display,
) -> Outcomes<()> {
    let found = engine.get(key)?;
    equal(&found.as_deref(), &expected, &what.to_string())
}

/// How many records there are; `when` names the moment.
fn counts(engine: &dyn Engine, expected: u64, when: impl fmt::Display) -> Outcomes<()> {
    equal(&engine.count(), &expected, &format!("count {when}"))
}

/// Random operations against the model. One engine serves some sequences, cleared between them.
fn sequences(
    make: &dyn Fn() -> Boxed,
    reopen: Option<&dyn Fn(Boxed) -> Boxed>,
    effort: &Effort,
) -> Outcomes<u64> {
    const SEQUENCES_PER_ENGINE: u64 = 20;
    let mut done = 0;
    let mut kept = None;
    for number in 0..effort.sequences {
        let mut engine = match kept.take() {
            Some(engine) if number % SEQUENCES_PER_ENGINE != 0 => engine,
            _ => make(),
        };
        let seed = effort.seed.wrapping_mul(0x9e3779b97f4a7c15) ^ number;
        let promise = engine.promise();
        let mut generator = Generator::new(Random::new(seed), &promise);
        let mut model = Model::new(&promise);
        engine.clear()?;
        while done < (number + 1) * effort.ops {
            let left = (number + 1) * effort.ops - done;
            let ops = left.min(1 + generator.random().below(80));
            let run = move |engine: &dyn Engine| {
                run_ops(engine, &mut generator, &mut model, ops)?;
                Ok((generator, model))
            };
            let state;
            (engine, state) = guarded(engine, effort.deadline, run)
                .map_err(|failure| failure.within(&format!("seed {seed:#x}")))?;
            (generator, model) = state;
            if let Some(reopen) = reopen {
                engine = reopen(engine);
            }
            let whole = move |engine: &dyn Engine| {
                holds(engine, &model, generator.keys())?;
                Ok((generator, model))
            };
            (engine, (generator, model)) = guarded(engine, effort.deadline, whole)
                .map_err(|failure| failure.within(&format!("seed {seed:#x}, all of it")))?;
            done += ops;
        }
        kept = Some(engine);
    }
    Ok(done)
}

fn run_ops(
    engine: &dyn Engine,
    generator: &mut Generator,
    model: &mut Model,
    ops: u64,
) -> Outcomes<()> {
    for _ in 0..ops {
        let op = generator.op();
        let outcome = op.run(engine)?;
        model.check(&op, &outcome)?;
        let when = format_args!("after {op:?}");
        counts(engine, model.records.len() as u64, when)?;
    }
    Ok(())
}

/// Whether the engine holds what the model holds, by every way to look.
fn holds(engine: &dyn Engine, model: &Model, keys: &[Vec<u8>]) -> Outcomes<()> {
    let mut model = model.clone();
    for op in [Op::Scan, Op::GetMany(keys.to_vec())] {
        model.check(&op, &op.run(engine)?)?;
    }
    for key in keys {
        let expected = model.records.get(key).map(Vec::as_slice);
        holds_one(engine, key, expected, format_args!("record {key:?}"))?;
    }
    let count = model.records.len() as u64;
    equal(&engine.count(), &count, "count")?;
    equal(&engine.stats().count, &count, "count in stats")
}

fn numbered(prefix: &str, number: u64) -> Vec<u8> {
    format!("{prefix}{number:06}").into_bytes()
}

/// Fills in records; values of many lengths.
fn fill(engine: &dyn Engine, prefix: &str, count: u64) -> Outcomes<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut records = BTreeMap::new();
    for number in 0..count {
        let key = numbered(prefix, number);
        let mut value = key.clone();
        value.resize(key.len() + (number % 70) as usize, b'.');
        engine.put(&key, &value)?;
        records.insert(key, value);
    }
    Ok(records)
}

/// A check of the suite alone, on one engine; for tests of engines that look for one thing.
///
/// Panics if no check has the name `report` gives it.
pub fn check(name: &str, engine: Boxed, effort: &Effort) -> Outcomes<u64> {
    let found = CHECKS.iter().find(|(other, _)| *other == name);
    let (_, check) = found.expect("a check of this name");
    checked(engine, *check, *effort)
}

fn checked(engine: Boxed, check: Check, effort: Effort) -> Outcomes<u64> {
    let work = move |engine: &dyn Engine| check(engine, &effort);
    guarded(engine, effort.deadline, work).map(|(_, count)| count)
}

#[cfg(test)]
mod tests;
