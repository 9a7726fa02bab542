//! The published experiment of Flare against servers in turn: ours, memcached, Redis.
//!
//! Each workload runs in rounds, every run on a server that was just started, and filled first if the workload reads. The
//! ratios are those of every comparison: above one is better for ours, of rate, processor time and memory of the server.
//!
//! ```text
//!   name | flags of `memcache` | rate ratio, cpu ratio: at least    (workloads/serve.txt)
//! ```
//!
//! A rival that is not installed is left out with a message. It does not know how a server works.

use azekura::error::Result;
use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::servers::Program;
use super::{Load, MemcachePlan, Operation};
use crate::comparison::{Comparison, Pair, in_turn};
use crate::measure::Memory;
use crate::phase::Phase;
use crate::report::{figures, line};
use crate::suite::{Row, rows};
use crate::words::refused;

/// The workloads.
const ROWS: &str = include_str!("../../workloads/serve.txt");

/// Flare's published rates over memcached's, by the workload that repeats the experiment.
const PUBLISHED: [(&str, f64); 2] = [("set, depth 1", 0.395), ("get, depth 1", 0.661)];

/// Whether ratios are required of that.
fn is_asked(what: &str) -> bool {
    ["rate", "cpu"].contains(&what)
}

/// Requests in flight while a server is filled.
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
    /// Records that each measured phase sets or gets [default: --records]
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

/// Runs the workloads and prints each run, and the ratios.
///
/// Errors: `Invalid` (no pairs, or a number of records that makes no key), `Io` (a server cannot be started or goes
/// away), `Corrupted` (an answer that is not the expected one).
pub fn suite(plan: &SuitePlan) -> Result<()> {
    if plan.pairs == 0 || plan.threads == 0 {
        return refused("nothing to compare", "--pairs and --threads from 1");
    }
    // Ours is last: a round begins with the rivals.
    let mut programs = Vec::new();
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
    programs.push(Program::ours(&plan.serve)?);
    let all = sched_getaffinity(None).unwrap_or_default();
    for row in rows(ROWS, &is_asked)? {
        if !row.name.contains(&plan.only) {
            continue;
        }
        let mut comparisons: Vec<Comparison> = programs[..programs.len() - 1]
            .iter()
            .map(|rival| compare_with(&row, rival))
            .collect();
        for round in 0..plan.pairs {
            let mut done = in_turn(round, programs.len(), |side| {
                run(plan, &row, &programs[side], &all)
            })?;
            if plan.json {
                done.iter().try_for_each(|phase| line(&phase.to_json()))?;
                continue;
            }
            let ours = done.pop().into_iter().collect::<Vec<_>>();
            if done.is_empty() {
                for phase in &ours {
                    line(&format!("{}\n{}", row.name, figures(phase)))?;
                }
            }
            for (comparison, theirs) in comparisons.iter_mut().zip(done) {
                comparison.add(Pair {
                    ours: ours.clone(),
                    theirs: vec![theirs],
                });
            }
        }
        for comparison in comparisons.iter().filter(|_| !plan.json) {
            comparison.print(false)?;
        }
    }
    Ok(())
}

/// A comparison without pairs. What is required of ours, and what was published for Flare, is against memcached.
fn compare_with(row: &Row<MemcachePlan>, rival: &Program) -> Comparison {
    if rival.name != "memcached" {
        return Comparison::new(&format!("{} over {}", row.name, rival.name), Vec::new());
    }
    let published = PUBLISHED.iter().find(|(name, _)| *name == row.name);
    let published = published.map_or_else(String::new, |(_, ratio)| {
        format!("; Flare's published rate: {ratio}")
    });
    let name = format!("{} over memcached{published}", row.name);
    Comparison::new(&name, row.asked.clone())
}

/// One run on a server of its own.
fn run(
    plan: &SuitePlan,
    row: &Row<MemcachePlan>,
    program: &Program,
    all: &CpuSet,
) -> Result<Phase> {
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
    program.name.clone_into(&mut done.engine);
    done.cost.memory(before, after);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_suite_is_understood_and_asks_something() {
        let rows = rows::<MemcachePlan>(ROWS, &is_asked).unwrap();
        assert_eq!(rows.len(), 5);
        for row in &rows {
            row.plan.check().unwrap();
            let (what, _) = &row.asked[0];
            assert!(what == "rate" && row.plan.ops.len() == 1, "{}", row.name);
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
            let row = super::rows::<MemcachePlan>(wrong, &is_asked);
            assert!(row.is_err(), "{wrong}");
        }
    }
}
