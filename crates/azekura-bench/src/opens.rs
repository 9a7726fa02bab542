//! `open`: the time to open a store that was closed, and one whose writer was killed.
//!
//! ```text
//!   make: one random set for each record; close
//!   open         x repeat: open, look one record up, close     the file's pages are in the page cache
//!   open-cold    x repeat: the same                            the file's pages were given up before
//!   open-killed  x repeat: another process sets, is killed by SIGKILL in the middle; open, look up,
//!                          verify every set it reported; close   the file's pages are in the page cache
//! ```
//!
//! A time is that of one call, until the store can be used; the lookup is timed by itself, since an engine
//! may put off work until the first use. It does not know how an engine recovers.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use azekura::engine::Durability;
use azekura::error::{Error, Kind, Result};
use clap::Args;
use serde::Serialize;

use crate::forget::give_up_pages;
use crate::generate::{Key, Keys, Source, Values};
use crate::measure::{self, Device, Latency, Memory};
use crate::phase::{Details, Open, Phase};
use crate::plan::Order;
use crate::report;
use crate::target::{Setup, Target};
use crate::unfinished;
use crate::words::{between, fits, flags};

/// Sets between two reports of the writer that is to be killed.
const BLOCK: usize = 1 << 10;
/// Bytes of a value.
const VALUE_LEN: usize = 8;

/// The flags of `open`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct OpenPlan {
    /// Where the store is made; it must not exist
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// Sets that make the store, of random keys: 63 % of so many records
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub count: u64,
    /// Opens of each kind
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeat: u64,
    /// Other keys for another seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// One JSON object per kind instead of a table
    #[arg(long)]
    pub json: bool,
    /// Be the writer that is killed: set values of this round, and report how many
    #[arg(long, value_name = "ROUND", hide = true)]
    pub write: Option<u64>,
}

impl OpenPlan {
    fn setup(&self, create: bool) -> Setup {
        Setup {
            path: self.path.clone(),
            create,
            records: self.count,
            durability: Durability::Process,
            cache: None,
        }
    }

    /// The keys of every round.
    fn keys(&self) -> Keys {
        Source::new(Order::Random, self.count).keys(self.count, 1, 0, self.seed)
    }

    /// How many sets a writer of `round` reports at least before it is killed: in each round at another place.
    fn sets_before_kill(&self, round: u64) -> u64 {
        (self.count / 4 * round / self.repeat).max(1)
    }
}

/// Makes a store and opens it in each way; `emit` is shown each result as it is there.
///
/// `engine` is the word of `T` for the writer's process. The store is left where it is. Errors: `Invalid` (flags out of
/// range, a file that exists, an engine without a file), `Corrupted` (a set that a killed writer reported is
/// not there), and what the engine reports.
pub fn run<T: Target>(
    plan: &OpenPlan,
    engine: &str,
    emit: &mut dyn FnMut(Phase) -> Result<()>,
) -> Result<()> {
    between("--count", plan.count, 1, (1 << 31) - 1)?;
    between("--repeat", plan.repeat, 1, 1000)?;
    if !T::PERSISTENT {
        return Err(Error::new(Kind::Invalid, "this engine has no file to open")
            .found(engine, "an engine in a file"));
    }
    let path = plan.setup(false).require_path()?.clone();
    if let Some(round) = plan.write {
        return write::<T>(plan, round);
    }
    fits(&path, "open", true)?;
    make::<T>(plan)?;
    for op in ["open", "open-cold", "open-killed"] {
        emit(opens::<T>(plan, engine, op)?)?;
    }
    Ok(())
}

fn make<T: Target>(plan: &OpenPlan) -> Result<()> {
    let target = T::open(&plan.setup(true))?;
    let bar = report::progress("make", plan.count, plan.json);
    set_all(&target, plan, 0, &mut |done| {
        bar.set_position(done);
        Ok(())
    })?;
    bar.finish_and_clear();
    target.close()
}

/// Sets every key to its value of `round`; `done` gets the number of sets so far.
fn set_all<T: Target>(
    target: &T,
    plan: &OpenPlan,
    round: u64,
    done: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (values, mut keys) = (Values::new(VALUE_LEN), plan.keys());
    let (mut key, mut numbers, mut sets) = (Key::EMPTY, Vec::new(), 0);
    loop {
        keys.draw(BLOCK, &mut numbers);
        if numbers.is_empty() {
            return Ok(());
        }
        for &number in &numbers {
            key.set(number);
            target.set(key.bytes(), values.of(number + round))?;
        }
        sets += numbers.len() as u64;
        done(sets)?;
    }
}

/// The process that is killed; one that comes to its end waits for its death.
fn write<T: Target>(plan: &OpenPlan, round: u64) -> Result<()> {
    let target = T::open(&plan.setup(false))?;
    let mut out = std::io::stdout().lock();
    set_all(&target, plan, round, &mut |sets| {
        writeln!(out, "{sets}")
            .and_then(|()| out.flush())
            .map_err(|e| Error::io("cannot report", e))
    })?;
    loop {
        std::thread::park();
    }
}

/// Runs a writer of `round` and kills it amid its sets; returns how many it reported.
fn kill_writer(plan: &OpenPlan, engine: &str, round: u64) -> Result<u64> {
    let failed = |error| Error::io("cannot run the writer", error);
    let write = Some(round);
    let order = OpenPlan {
        write,
        ..plan.clone()
    };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command
        .args(["bench", "open", "--engine", engine])
        .args(flags(plan.path.as_deref(), &order))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let (mut child, _listed) = unfinished::spawn(&mut command)?;
    let pipe = child.stdout.take().expect("the pipe was requested");
    let mut reported = 0;
    for line in BufReader::new(pipe).lines() {
        // A last line may be half a number, which is a smaller one or none.
        let Ok(sets) = line.map_err(failed)?.parse::<u64>() else {
            break;
        };
        reported = reported.max(sets);
        if reported >= plan.sets_before_kill(round) {
            // SIGKILL; again is harmless while the rest of the pipe is drained.
            child.kill().map_err(failed)?;
        }
    }
    let status = child.wait().map_err(failed)?;
    match status.code() {
        None => Ok(reported),
        Some(_) => Err(
            Error::new(Kind::Io, "the writer ended before it was killed")
                .detail(status.to_string()),
        ),
    }
}

/// Opens as often as asked.
fn opens<T: Target>(plan: &OpenPlan, engine: &str, op: &str) -> Result<Phase> {
    let path = plan.setup(false).require_path()?.clone();
    let values = Values::new(VALUE_LEN);
    let mut numbers = Vec::new();
    plan.keys().draw(1, &mut numbers);
    let mut first = Key::EMPTY;
    first.set(numbers[0]);
    let (mut opened, mut looked_up) = (Latency::default(), Latency::default());
    let mut phase = Phase {
        engine: T::NAME.to_owned(),
        op: op.to_owned(),
        threads: 1,
        count: plan.repeat,
        key_size: Some(8),
        value_size: Some(VALUE_LEN as u64),
        durability: Some(Durability::Process.into()),
        ..Phase::default()
    };
    let mut verified = 0;
    let (idle, before) = (Device::now(&path), Memory::now());
    let bar = report::progress(op, plan.repeat, plan.json);
    for round in 1..=plan.repeat {
        let mut reported = 0;
        match op {
            "open-cold" => give_up_pages(&path)?,
            "open-killed" => reported = kill_writer(plan, engine, round)?,
            _ => {}
        }
        let (cpu, start) = (measure::cpu_seconds(), Instant::now());
        let target = T::open(&plan.setup(false))?;
        let took = start.elapsed();
        phase.seconds += took.as_secs_f64();
        phase.cpu_seconds += measure::cpu_seconds() - cpu;
        opened.record(took);
        let start = Instant::now();
        let found = target.has(first.bytes())?;
        looked_up.record(start.elapsed());
        if !found {
            let error = Error::new(Kind::Corrupted, "a record is missing after an open");
            return Err(error.key(first.bytes()));
        }
        phase.cost.memory(before, Memory::now());
        verified += verify(&target, plan, &values, round, reported)?;
        target.close()?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    phase.cost.files(&path)?;
    phase.cost.device = Device::now(&path).since(idle);
    phase.ops_per_second = phase.count as f64 / phase.seconds.max(1e-9);
    phase.latency_us = opened.percentiles();
    phase.hits = Some(plan.repeat + verified);
    phase.details = Details::Open(Open {
        records: plan.count,
        first_get_us: looked_up.percentiles(),
    });
    Ok(phase)
}

/// Compares the first `reported` sets of `round` with what is there; returns how many.
fn verify<T: Target>(
    target: &T,
    plan: &OpenPlan,
    values: &Values,
    round: u64,
    reported: u64,
) -> Result<u64> {
    let (mut keys, mut numbers) = (plan.keys(), Vec::new());
    let (mut key, mut value, mut left) = (Key::EMPTY, Vec::new(), reported);
    while left > 0 {
        keys.draw(left.min(BLOCK as u64) as usize, &mut numbers);
        left -= numbers.len() as u64;
        for &number in &numbers {
            key.set(number);
            if !target.get(key.bytes(), &mut value)? || value != values.of(number + round) {
                let what = "a set that was reported before the kill is not there";
                return Err(Error::new(Kind::Corrupted, what).key(key.bytes()));
            }
        }
    }
    Ok(reported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{hash::Hash, memory::StdHash};

    fn plan(path: Option<PathBuf>) -> OpenPlan {
        OpenPlan {
            path,
            count: 2000,
            repeat: 2,
            seed: 0,
            json: true,
            write: None,
        }
    }

    #[test]
    fn sets_of_another_round_are_told_from_those_reported() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(Some(folder.path().join("x.azh")));
        make::<Hash>(&plan).unwrap();
        let target = Hash::open(&plan.setup(false)).unwrap();
        let values = Values::new(VALUE_LEN);
        assert_eq!(verify(&target, &plan, &values, 0, 1500).unwrap(), 1500);
        let error = verify(&target, &plan, &values, 1, 1500).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_anything_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.azh");
        let refuse = |error: Result<()>| assert_eq!(error.unwrap_err().kind(), Kind::Invalid);
        let ours = |plan: &OpenPlan| run::<Hash>(plan, "hash", &mut |_| Ok(()));
        refuse(ours(&plan(None)));
        refuse(ours(&OpenPlan {
            count: 0,
            ..plan(Some(path.clone()))
        }));
        let there = plan(Some(path.clone()));
        refuse(run::<StdHash>(&there, "std-hash", &mut |_| Ok(())));
        assert!(!path.exists());
        std::fs::write(&path, b"somebody's file").unwrap();
        refuse(ours(&there));
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's file");
    }
}
