//! The published experiment of Flare against servers in turn: ours, memcached, Redis.
//!
//! Each workload is run in pairs, A B A B, every run on a server that was just started, filled first if the workload reads.
//! Ratios are taken within a pair, and their median over the pairs. As the requirements have them, the rate is ours over
//! theirs, and processor time and memory of the server are ours over theirs, too: less is better there.
//!
//! ```text
//!   name | flags of `memcache` | rate ratio at least, cpu ratio at most    (workloads/serve.txt)
//! ```
//!
//! A rival that is not installed is left out, and that is said. It knows nothing of how a server works.

use azekura::error::{Error, Kind, Result};
use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::servers::Program;
use super::{Load, MemcachePlan, Operation};
use crate::measure::{Memory, median};
use crate::plan::read_flags;
use crate::report::{Phase, line};

/// The workloads.
const ROWS: &str = include_str!("../../workloads/serve.txt");

/// Flare's published rates over memcached's, by the workload that repeats the experiment.
const PUBLISHED: [(&str, f64); 2] = [("set, depth 1", 0.395), ("get, depth 1", 0.661)];

/// Requests on the way while a server is filled.
const FILL_DEPTH: usize = 32;

/// The flags of `memcache suite`.
#[derive(Clone, Debug, Args)]
pub struct SuitePlan {
    /// Pairs of runs of each workload
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub pairs: u64,
    /// Threads of each server, and of the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u64,
    /// Distinct keys
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    pub records: u64,
    /// Records each measured phase sets or asks for; as many as there are keys, if not said
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Only workloads whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// The program of memcached
    #[arg(long, value_name = "PROGRAM", default_value = "memcached")]
    pub memcached: String,
    /// The program of Redis
    #[arg(long, value_name = "PROGRAM", default_value = "redis-server")]
    pub redis: String,
    /// More flags for our server, as `serve` has them
    #[arg(
        long,
        value_name = "FLAGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub serve: String,
    /// Keep the servers on the first processor and the load on the others
    #[arg(long)]
    pub pin: bool,
    /// JSON objects for the runs, and no ratios
    #[arg(long)]
    pub json: bool,
}

/// A workload and what is asked of it.
struct Row {
    name: String,
    plan: MemcachePlan,
    rate: Option<f64>,
    cpu: Option<f64>,
}

fn rows(text: &str) -> Result<Vec<Row>> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let wrong =
                || Error::new(Kind::Invalid, "a line of the suite is wrong").key(line.as_bytes());
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let &[name, flags, asked] = parts.as_slice() else {
                return Err(wrong());
            };
            let plan = read_flags::<MemcachePlan>(flags)
                .map_err(|error| wrong().detail(error.to_string()))?;
            let (mut rate, mut cpu) = (None, None);
            for one in asked.split(',') {
                let (what, ratio) = one.trim().split_once(' ').ok_or_else(wrong)?;
                let ratio = ratio.parse().map_err(|_| wrong())?;
                match what {
                    "rate" => rate = Some(ratio),
                    "cpu" => cpu = Some(ratio),
                    _ => return Err(wrong()),
                }
            }
            Ok(Row {
                name: name.to_owned(),
                plan,
                rate,
                cpu,
            })
        })
        .collect()
}

/// What is compared, ours over theirs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratios {
    rate: f64,
    cpu: Option<f64>,
    memory: Option<f64>,
}

impl Ratios {
    fn of(ours: &Phase, theirs: &Phase) -> Self {
        let over = |ours: Option<f64>, theirs: Option<f64>| {
            let (ours, theirs) = (ours?, theirs?);
            (theirs > 0.0).then_some(ours / theirs)
        };
        let bytes = |phase: &Phase| phase.memory_bytes.map(|bytes| bytes as f64);
        Self {
            rate: ours.ops_per_second / theirs.ops_per_second,
            cpu: over(ours.server_cpu_seconds, theirs.server_cpu_seconds),
            memory: over(bytes(ours), bytes(theirs)),
        }
    }
}

/// Runs the workloads and prints each run, and the ratios.
///
/// Errors: `Invalid` (no pairs, or a number of records that makes no key), `Io` (a server cannot be started or goes
/// away), `Corrupted` (an answer that is not the expected one).
pub fn suite(plan: &SuitePlan) -> Result<()> {
    if plan.pairs == 0 || plan.threads == 0 {
        return Err(
            Error::new(Kind::Invalid, "no pairs, no ratio").remedy("--pairs and --threads from 1")
        );
    }
    let mut programs = vec![Program::ours(&plan.serve)?];
    for rival in [
        Program::memcached(plan.memcached.clone()),
        Program::redis(plan.redis.clone()),
    ] {
        if rival.exists() {
            programs.push(rival);
        } else if !plan.json {
            line(&format!("{} cannot be run and is left out", rival.name))?;
        }
    }
    let all = sched_getaffinity(None).unwrap_or_default();
    for row in rows(ROWS)? {
        if !row.name.contains(&plan.only) {
            continue;
        }
        let mut pairs = Vec::new();
        for index in 0..plan.pairs as usize {
            let mut runs: Vec<Option<Phase>> = programs.iter().map(|_| None).collect();
            for turn in 0..programs.len() {
                // Whoever began the pair before ends this one.
                let turn = if index.is_multiple_of(2) {
                    programs.len() - 1 - turn
                } else {
                    turn
                };
                let done = run(plan, &row, &programs[turn], &all)?;
                if plan.json {
                    line(&done.to_json())?;
                } else {
                    show(&row, &done)?;
                }
                runs[turn] = Some(done);
            }
            pairs.push(runs.into_iter().flatten().collect::<Vec<Phase>>());
        }
        if !plan.json {
            for (index, rival) in programs.iter().enumerate().skip(1) {
                compare(&row, &pairs, index, rival.name)?;
            }
        }
    }
    Ok(())
}

/// One run on a server of its own.
fn run(plan: &SuitePlan, row: &Row, program: &Program, all: &CpuSet) -> Result<Phase> {
    pin(plan, all, |cpu| cpu == 0);
    let server = program.start(plan.threads)?;
    pin(plan, all, |cpu| cpu != 0);
    let before = Memory::of(server.process());
    let measured = MemcachePlan {
        address: server.address.clone(),
        authority: None,
        protocol: program.protocol,
        threads: plan.threads,
        records: plan.records,
        count: plan.count,
        server: Some(server.process()),
        json: plan.json,
        ..row.plan.clone()
    };
    measured.check()?;
    let operation = measured.ops.first().copied().unwrap_or(Operation::Set);
    if operation != Operation::Set {
        let fill = MemcachePlan {
            depth: FILL_DEPTH,
            batch: 1,
            count: None,
            ..measured.clone()
        };
        Load::new(&fill)?.phase(Operation::Set)?;
    }
    let mut done = Load::new(&measured)?.phase(operation)?;
    let after = Memory::of(server.process());
    let grown = |of: fn(Memory) -> u64| Some(of(after?).saturating_sub(of(before?)));
    program.name.clone_into(&mut done.engine);
    done.memory_bytes = grown(|memory| memory.resident);
    done.private_bytes = grown(|memory| memory.private);
    // A phase of sets may have set fewer than all.
    done.live = (operation != Operation::Set || plan.count.is_none()).then_some(plan.records);
    pin(plan, all, |_| true);
    Ok(done)
}

/// Keeps this thread, and what it starts from here on, on the processors that `keep` names.
fn pin(plan: &SuitePlan, all: &CpuSet, keep: impl Fn(usize) -> bool) {
    if !plan.pin {
        return;
    }
    let mut set = CpuSet::new();
    for (index, cpu) in (0..CpuSet::MAX_CPU)
        .filter(|cpu| all.is_set(*cpu))
        .enumerate()
    {
        if keep(index) {
            set.set(cpu);
        }
    }
    // Where there is one processor only, there is nothing to choose.
    let _ = sched_setaffinity(None, &set);
}

fn show(row: &Row, done: &Phase) -> Result<()> {
    let per =
        |of: Option<f64>, unit: &str| of.map_or_else(String::new, |of| format!("{of:.2} {unit}"));
    let each = done.live.filter(|live| *live > 0);
    let bytes = |bytes: Option<u64>| Some(bytes? as f64 / each? as f64);
    let latency = done.latency_us.as_ref();
    line(&format!(
        "{:<16} {:<10} {:>10.0}/s  {:>9}  p50 {:.0} us  p99.9 {:.0} us  resident {}",
        row.name,
        done.engine,
        done.ops_per_second,
        per(
            done.server_cpu_seconds
                .map(|seconds| seconds * 1e6 / done.count as f64),
            "us cpu"
        ),
        latency.map_or(0.0, |us| us.p50),
        latency.map_or(0.0, |us| us.p999),
        per(bytes(done.memory_bytes), "bytes each"),
    ))
}

fn compare(row: &Row, pairs: &[Vec<Phase>], rival: usize, name: &str) -> Result<()> {
    let ratios: Vec<Ratios> = pairs
        .iter()
        .filter_map(|runs| Some(Ratios::of(runs.first()?, runs.get(rival)?)))
        .collect();
    let is_memcached = name == "memcached";
    let asked = |asked: Option<f64>, how: &str| match asked {
        Some(asked) if is_memcached => format!(" (asked: {how} {asked})"),
        _ => String::new(),
    };
    let told = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
    let published = PUBLISHED
        .iter()
        .find(|(published, _)| is_memcached && *published == row.name);
    line(&format!(
        "{:<16} over {name}: rate {}{}, cpu {}{}, resident {}{}",
        row.name,
        told(median(ratios.iter().map(|ratios| ratios.rate))),
        asked(row.rate, "at least"),
        told(median(ratios.iter().filter_map(|ratios| ratios.cpu))),
        asked(row.cpu, "at most"),
        told(median(ratios.iter().filter_map(|ratios| ratios.memory))),
        published.map_or_else(String::new, |(_, ratio)| format!(
            "; Flare's published rate: {ratio}"
        )),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_suite_is_understood_and_asks_something() {
        let rows = rows(ROWS).unwrap();
        assert_eq!(rows.len(), 5);
        for row in &rows {
            row.plan.check().unwrap();
            assert!(
                row.rate.is_some() && row.plan.ops.len() == 1,
                "{}",
                row.name
            );
        }
        for (name, _) in PUBLISHED {
            let row = rows.iter().find(|row| row.name == name).unwrap();
            assert_eq!((row.plan.connections, row.plan.depth), (40, 1));
        }
        for wrong in [
            "a | --ops set",
            "a | --ops sit | rate 1",
            "a | --ops set | rats 1",
        ] {
            assert!(super::rows(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ratios_are_ours_over_theirs() {
        let run = |rate, cpu, memory| Phase {
            ops_per_second: rate,
            server_cpu_seconds: Some(cpu),
            memory_bytes: Some(memory),
            ..Phase::default()
        };
        let ratios = Ratios::of(&run(300.0, 1.0, 50), &run(100.0, 4.0, 100));
        let expected = Ratios {
            rate: 3.0,
            cpu: Some(0.25),
            memory: Some(0.5),
        };
        assert_eq!(ratios, expected);
    }
}
