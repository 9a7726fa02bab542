//! azekura compared with its rivals: the same workloads through the rivals' own libraries.
//!
//! `record` measures one rival, or, with `--against azekura`, both in turn; `table` runs a suite and
//! prints measured ratios next to the required ones; `cache` compares hit ratios. Nothing depends on this program: it links
//! other people's libraries, which are needed to build it and nothing else.
//!
//! ```text
//!   main -> pairs (a process per run) -> rivals (a Target each) -> azekura_bench::workload
//!      |--> caches (hit ratios over a trace)   objects (stores of large values, by azekura_bench::object)
//!      `--> azekura_bench::comparison (table, JSON, file)  machine (the heading)
//! ```

mod caches;
mod machine;
mod objects;
mod pairs;
mod rivals;

use std::path::PathBuf;
use std::process::ExitCode;

use azekura::error::{Error, Kind, Result};
use azekura_bench::cache::CachePlan;
use azekura_bench::comparison::{self, Comparison};
use azekura_bench::plan::{Op, Plan};
use azekura_bench::report::Output;
use azekura_bench::suite::Suite;
use azekura_wire::exit::code_of;
use clap::{Args, Parser};

use objects::ObjectArguments;
use rivals::Rival;

/// Measure azekura compared with its rivals
#[derive(Parser)]
#[command(name = "azekura-bench-compare", version)]
enum Compare {
    /// Measure one rival, or compare two
    Record(Record),
    /// Run a suite of workloads and print measured ratios next to the required ones
    Table(Table),
    /// The hit ratios of caches over a trace of keys
    Cache(CachePlan),
    /// Measure a store of large values, or several compared with each other
    Object(Box<ObjectArguments>),
}

#[derive(Args)]
struct Record {
    /// The store to measure
    #[arg(long, value_enum)]
    rival: Rival,
    /// Run this one in turn with the rival and print ratios; --path is not used then
    #[arg(long, value_enum)]
    against: Option<Rival>,
    #[command(flatten)]
    pairing: Pairing,
    #[command(flatten)]
    plan: Plan,
}

#[derive(Args)]
struct Table {
    /// The workloads [default: those with the ratios required against the rival]
    #[arg(long, value_enum)]
    suite: Option<Suite>,
    /// The rival
    #[arg(long, value_enum, default_value = "tkrzw-hash")]
    rival: Rival,
    /// Which engine of azekura; if not given, the rival's counterpart
    #[arg(long, value_enum)]
    against: Option<Rival>,
    /// Only workloads whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Multiply all counts, and the memory that rows state
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A memory cgroup, made for this purpose, for the rows that limit memory; they are left out otherwise
    #[arg(long, value_name = "FOLDER")]
    memory_group: Option<PathBuf>,
    /// Also those that take very long
    #[arg(long)]
    huge: bool,
    /// JSON objects instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pairing: Pairing,
}

#[derive(Args)]
struct Pairing {
    /// Pairs of runs
    #[arg(long, value_name = "N", default_value_t = 5)]
    pairs: u64,
    /// Where stores are made and removed; the system's folder for temporary files if not given
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Also write the results to a file, to be kept
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl Pairing {
    /// Runs and prints the pairs of each workload, and records them if asked to.
    fn compare(
        &self,
        rival: Rival,
        against: Rival,
        workloads: Vec<(Comparison, Plan)>,
        json: bool,
    ) -> Result<()> {
        if self.pairs == 0 {
            return Err(Error::new(Kind::Invalid, "nothing to compare").remedy("--pairs 1 or more"));
        }
        if workloads.is_empty() {
            return Err(Error::new(Kind::Invalid, "no workload is left to run")
                .remedy("choose others by --suite, --only or --huge"));
        }
        let folder = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let command: Vec<String> = std::env::args().skip(1).collect();
        let mut heading = machine::describe(&folder);
        let versions = format!("{}; {}", against.row().version, rival.row().version);
        let command = format!("azekura-bench-compare {}", command.join(" "));
        heading.extend([("versions", versions), ("command", command)]);
        let mut done = Vec::new();
        for (mut workload, plan) in workloads {
            for index in 0..self.pairs {
                workload.add(pairs::run(rival, against, &plan, &folder, index)?);
            }
            workload.print(json)?;
            done.push(workload);
            // After each workload: a long run that is interrupted keeps what it has.
            if let Some(file) = &self.record {
                comparison::record(file, &heading, &done)?;
            }
        }
        Ok(())
    }
}

fn run(compare: Compare) -> Result<()> {
    match compare {
        Compare::Record(Record {
            rival,
            against,
            pairing,
            plan,
        }) => {
            let Some(against) = against else {
                let mut output = Output::new(plan.json);
                (rival.row().run)(&plan, &mut |phase| output.phase(&phase))?;
                return output.finish();
            };
            plan.check()?;
            let name = format!("{} operations, {} threads", plan.operations(), plan.threads);
            let (json, workload) = (plan.json, Comparison::new(&name, Vec::new()));
            pairing.compare(rival, against, vec![(workload, plan)], json)
        }
        Compare::Cache(plan) => caches::cache(&plan),
        Compare::Object(arguments) => objects::run(&arguments),
        Compare::Table(table) => {
            let (ours, suite) = table.rival.row().counterpart;
            let rows = table.suite.unwrap_or(suite).rows()?.into_iter();
            let chosen =
                rows.filter(|row| row.name.contains(&table.only) && (table.huge || !row.huge));
            let (rival, against) = (table.rival, table.against.unwrap_or(ours));
            let mut run = Vec::new();
            for row in chosen {
                match hindrance(&row.plan, &table, against) {
                    None => run.push(row),
                    Some(why) => notice(&format!("left out, {why}: {}", row.name)),
                }
            }
            let scaled = run.into_iter().map(|row| {
                // The name states the counts; a scaled run must not pass for the full one.
                let name = match table.scale {
                    1.0 => row.name,
                    scale => format!("{}, scaled by {scale}", row.name),
                };
                let memory_group = table
                    .memory_group
                    .clone()
                    .filter(|_| row.plan.memory.is_some());
                let plan = Plan {
                    memory_group,
                    ..row.plan
                };
                (Comparison::new(&name, row.asked), plan.scaled(table.scale))
            });
            let pairing = table.pairing;
            pairing.compare(rival, against, scaled.collect(), table.json)
        }
    }
}

/// Why a workload cannot run as it stands, if it cannot: then it must not pass for one that did.
fn hindrance(plan: &Plan, table: &Table, against: Rival) -> Option<&'static str> {
    let ordered = |rival: Rival| rival.row().is_ordered;
    if plan.memory.is_some() && table.memory_group.is_none() {
        return Some("since no --memory-group limits the system's page cache");
    }
    let scans = plan.ops.contains(&Op::Scan);
    (scans && !(ordered(table.rival) && ordered(against)))
        .then_some("since one side has no order to scan in")
}

/// Prints a line on standard error.
fn notice(text: &str) {
    use std::io::Write;
    // There is nowhere to report to if standard error is gone too.
    let _ = writeln!(std::io::stderr(), "azekura-bench-compare: {text}");
}

fn main() -> ExitCode {
    match run(Compare::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            notice(&error.to_string());
            ExitCode::from(code_of(error.kind()))
        }
    }
}
