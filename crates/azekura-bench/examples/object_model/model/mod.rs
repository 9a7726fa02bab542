//! The published benchmark of `CannyLS` on a model of its disk: what stores ask of it, and how long that takes.
//!
//! ```text
//!   run(plan, pattern) -> phases       published: the tables of 2018, and the replay beside them
//!        `-- Pattern: Cannyls, Files (what they would ask: host -> drive)      beside: stores side by side, as ratios
//!                     Azekura (a real store on `Clocked` storage: what it does ask)
//! ```
//!
//! A [`Pattern`] is anything with a virtual clock. Replays have the full geometry, a terabyte on the whole disk; `scale`
//! divides how many operations are run on it. A real store has a part of the disk and of the objects, with as many
//! operations: seeks are as long as they were, since the arm passes the same share of its way. So the arm's time, which is
//! what a spinning disk sells, needs neither the disk nor the hours. Times are of the disk alone, but where a pattern says
//! that it adds a processor's.
//!
//! It measures nothing of this machine, and writes no byte.

pub(crate) mod beside;
mod cannyls;
mod files;
mod host;
mod own;
pub(crate) mod published;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use azekura::error::Result;
use azekura::io::sim::drive::Counts;

pub(crate) use cannyls::{CAPACITY, Cannyls};
pub(crate) use files::Files;
pub(crate) use own::Azekura;

use azekura::Durability;
use azekura_bench::generate::Choice;
use azekura_bench::measure::{Device, Latency};
use azekura_bench::phase::{Cost, Phase};

/// How long a disk has nothing to do between two phases: what it had in its cache is on the platters then.
const BETWEEN_NS: u64 = 600_000_000_000;

/// The processor's part of a direct call that copies `len` bytes: a guess for the call, and the pace at which files were copied
/// on the published machine.
const fn call_ns(len: u64) -> u64 {
    10_000 + len * files::COPY_NS_PER_MIB / (1 << 20)
}

/// A store, or what one would do, in virtual time. Keys are numbers; an operation returns when its caller would have
/// its answer, and `now_ns` says when that is. A real store stands on `Clocked` storages, and its time and commands
/// are those of their `Machine`.
pub(crate) trait Pattern {
    /// A word for reports.
    fn name(&self) -> &'static str;

    /// What an acknowledged write survives.
    fn survives(&self) -> Durability;

    /// Virtual nanoseconds since it was made.
    fn now_ns(&self) -> u64;

    /// Lets time pass without operations.
    fn pass(&mut self, ns: u64) -> Result<()>;

    /// Commands to the drive so far.
    fn counts(&self) -> Counts;

    /// Has objects `first..first + count` of `len` bytes in the store, as if they had been put in this order behind all
    /// others; takes no time where nothing real is stored.
    fn fill(&mut self, first: u64, count: u64, len: u64) -> Result<()>;

    /// Puts an object.
    fn put(&mut self, key: u64, len: u64) -> Result<()>;

    /// Reads an object.
    fn get(&mut self, key: u64) -> Result<()>;

    /// Removes an object.
    fn remove(&mut self, key: u64) -> Result<()>;
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Bytes of an object.
    pub(crate) size: u64,
    /// Objects in the store after the first phase.
    pub(crate) population: u64,
    /// Objects that are put before the first phase begins, so that no cache is empty.
    pub(crate) warm: u64,
    /// Measured puts of new objects.
    pub(crate) new: u64,
    /// Operations of each other phase, on different objects.
    pub(crate) operations: u64,
    /// Untimed pause before each put, for each MiB of its value: the published tool made its random values there.
    pub(crate) think_ns_per_mib: u64,
    /// Which objects.
    pub(crate) seed: u64,
}

impl Plan {
    /// A column of the published run, a terabyte of objects of `size` bytes (100 KiB, 1 MiB or 10 MiB); every count of
    /// operations is divided by `scale`, but none is below 200.
    pub(crate) fn published(size: u64, scale: u64) -> Self {
        let population = published::population(size);
        let count = |whole: u64| (whole / scale.max(1)).max(200);
        Self {
            size,
            population,
            warm: (2 << 30) / size,
            new: count(population),
            operations: count(population / 100).min(population / 100),
            think_ns_per_mib: 0,
            seed: 2018,
        }
    }

    /// One of `part` objects of a column of the published run, for stores on a drive and in a capacity divided by `part`, and
    /// as many operations as were run, divided by `scale`; but no object twice in a phase.
    pub(crate) fn of_part(size: u64, part: u64, scale: u64) -> Self {
        let whole = published::population(size);
        let population = (whole / part.max(1)).max(1);
        let warm = ((2 << 30) / size / scale.max(1)).min(population / 2);
        Self {
            size,
            population,
            warm,
            new: population - warm,
            operations: (whole / 100 / scale.max(1)).clamp(1, population),
            think_ns_per_mib: 0,
            seed: 2018,
        }
    }
}

/// Runs PUT new, PUT update, GET and DELETE, in the published order, and tells each phase as it ends. Seconds are
/// virtual, and the sum of the latencies, as in the published tool.
pub(crate) fn run(
    plan: &Plan,
    pattern: &mut dyn Pattern,
    report: &mut dyn FnMut(Phase) -> Result<()>,
) -> Result<()> {
    let Plan {
        size,
        population,
        warm,
        ..
    } = *plan;
    let new = plan.new.min(population.saturating_sub(warm));
    for key in 0..warm {
        pattern.put(key, size)?;
    }
    report(phase(
        plan,
        pattern,
        "put new",
        warm..warm + new,
        |pattern, key| pattern.put(key, size),
    )?)?;
    let put = warm + new;
    pattern.fill(put, population.saturating_sub(put), size)?;
    let mut choice = Choice::new(plan.seed);
    let mut some = || {
        let mut seen = HashSet::new();
        let wanted = plan.operations.min(population) as usize;
        let mut keys = Vec::with_capacity(wanted);
        while keys.len() < wanted {
            let key = choice.below(population);
            if seen.insert(key) {
                keys.push(key);
            }
        }
        keys
    };
    pattern.pass(BETWEEN_NS)?;
    report(phase(
        plan,
        pattern,
        "put update",
        some(),
        |pattern, key| pattern.put(key, size),
    )?)?;
    pattern.pass(BETWEEN_NS)?;
    report(phase(plan, pattern, "get", some(), |pattern, key| {
        pattern.get(key)
    })?)?;
    pattern.pass(BETWEEN_NS)?;
    report(phase(plan, pattern, "delete", some(), |pattern, key| {
        pattern.remove(key)
    })?)
}

fn phase(
    plan: &Plan,
    pattern: &mut dyn Pattern,
    op: &str,
    keys: impl IntoIterator<Item = u64>,
    act: impl Fn(&mut dyn Pattern, u64) -> Result<()>,
) -> Result<Phase> {
    let before = pattern.counts();
    let think = if op.starts_with("put") {
        plan.think_ns_per_mib * plan.size / (1 << 20)
    } else {
        0
    };
    let (mut latency, mut sum) = (Latency::default(), 0);
    for key in keys {
        pattern.pass(think)?;
        let start = pattern.now_ns();
        act(pattern, key)?;
        let took = pattern.now_ns() - start;
        latency.record(Duration::from_nanos(took));
        sum += took;
    }
    let after = pattern.counts();
    let (count, seconds) = (latency.count(), sum as f64 / 1e9);
    let moves = op != "delete";
    Ok(Phase {
        engine: pattern.name().to_owned(),
        op: op.to_owned(),
        threads: 1,
        count,
        key_size: Some(16),
        value_size: Some(plan.size),
        seconds,
        ops_per_second: count as f64 / seconds,
        bytes_per_second: moves.then(|| (count * plan.size) as f64 / seconds),
        latency_us: latency.percentiles(),
        cost: Cost {
            device: Device {
                reads: Some(after.reads - before.reads),
                writes: Some(after.writes - before.writes),
                syncs: Some(after.flushes - before.flushes),
                ..Device::default()
            },
            ..Cost::default()
        },
        durability: Some(pattern.survives().into()),
        ..Phase::default()
    })
}
