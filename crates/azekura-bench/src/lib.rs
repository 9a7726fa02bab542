//! Everything that measures azekura: `azekura bench`, `azekura stress`, and what the comparison with rivals is built on.
//!
//! One worker loop, compiled once per engine, so that any two engines are measured by the same
//! instructions; one shape of output, so that any two results can be laid side by side. Every value
//! that is read is verified, and a digest of what was read is part of each result: a wrong engine is
//! seen, not timed.
//!
//! ```text
//!   plan ----> workload ----> target (engines/; rivals implement it elsewhere)
//!   (flags)      |  `-- generate (keys, values)     measure (time, processor, memory, files)
//!                v
//!              report (table or JSON lines)         stress (threads and kills: every answer modelled)
//!   limit (memory, page cache included)
//!   cache (hit ratio over a trace)                  opens (open, after a close and after a kill)
//!   memcache (a server, over connections)
//!   object (stores of large values)            
//!   outputs (files that may be written)             threads (which may be refused)
//! ```
//!
//! It links no rival's library (servers of others are measured over their protocols), and knows nothing of how an engine works.

pub mod cache;
pub mod child;
pub mod comparison;
pub mod engines;
pub mod forget;
pub mod generate;
pub mod limit;
pub mod measure;
pub mod memcache;
pub mod object;
pub mod opens;
pub mod outputs;
pub mod phase;
pub mod plan;
pub mod report;
pub mod stress;
pub mod suite;
pub mod target;
pub mod threads;
mod unfinished;
pub mod words;
pub mod workload;

use azekura::error::{Error, Kind, Result};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use cache::CachePlan;
use engines::Engine;
use memcache::{MemcachePlan, SuitePlan};
use object::ObjectArguments;
use opens::OpenPlan;
use plan::Plan;
use report::Output;

#[derive(Subcommand)]
enum Bench {
    /// Set, get, iterate and remove, phase by phase
    Record {
        /// The engine to measure; `none` does nothing and measures the harness
        #[arg(long, value_enum, default_value_t = Engine::Hash)]
        engine: Engine,
        #[command(flatten)]
        plan: Plan,
    },
    /// The time to open a store that was closed, and one whose writer was killed
    Open {
        /// The engine to measure
        #[arg(long, value_enum, default_value_t = Engine::Hash)]
        engine: Engine,
        #[command(flatten)]
        plan: OpenPlan,
    },
    /// The hit ratio of the cache over a trace of keys, and an exact LRU's
    Cache(CachePlan),
    /// Sets and gets over many connections to a server of memcached's protocol
    Memcache(Box<MemcacheArguments>),
    /// Put, update, get, delete and load large values, as a published benchmark did
    Object(Box<ObjectArguments>),
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
struct MemcacheArguments {
    #[command(subcommand)]
    of: Option<MemcacheCommand>,
    #[command(flatten)]
    plan: MemcachePlan,
}

#[derive(Subcommand)]
enum MemcacheCommand {
    /// The published experiment of Flare against our server, memcached and Redis in turn, with ratios
    Suite(SuitePlan),
}

/// The command `bench` with its subcommands, to be mounted in a program.
pub fn command() -> Command {
    let command = Command::new("bench").about("Measure an engine on this machine");
    Bench::augment_subcommands(command)
        .subcommand_required(true)
        .arg_required_else_help(true)
}

/// Runs what `matches` of [`command`] ask for; results go to standard output.
///
/// Errors: `Invalid` (flags that contradict each other, a file that exists or does not), `Corrupted`
/// (an engine answered wrongly), and whatever the engine reports.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let bench = Bench::from_arg_matches(matches)
        .map_err(|error| Error::new(Kind::Invalid, error.to_string()))?;
    match bench {
        Bench::Record { engine, plan } => {
            engine.check(plan.durability)?;
            let mut output = Output::new(plan.json);
            engine.record(&plan, &mut |phase| output.phase(&phase))?;
            output.finish()
        }
        Bench::Open { engine, plan } => {
            let mut output = Output::new(plan.json);
            engine.opens(&plan, &mut |phase| output.phase(&phase))?;
            output.finish()
        }
        Bench::Cache(plan) => cache::cache(&plan),
        Bench::Memcache(arguments) => match &arguments.of {
            None => memcache::memcache(&arguments.plan),
            Some(MemcacheCommand::Suite(plan)) => memcache::suite(plan),
        },
        Bench::Object(arguments) => object::run(&arguments),
    }
}
