//! Stores of large values, measured as the published benchmark of `CannyLS` did it, and beyond.
//!
//! ```text
//!   draw (keys, values) -> operation (a workload, as JSON) -> execute -> store (stores/; rivals elsewhere)
//!     plan, phases                                              |
//!                          operation (results, as JSON) <-------'
//!                          `--> summary, plot                              suite (several stores)
//! ```
//!
//! The workload, the results and the summary have the shapes of that benchmark's tool, so either program
//! can take the other's. It knows no rival, and nothing of how a store works.

pub mod draw;
pub mod execute;
pub mod operation;
pub mod phases;
pub mod plan;
pub mod plot;
mod published;
pub mod run;
pub mod store;
pub mod stores;
pub mod suite;
pub mod summary;
mod workload;

use std::io::BufReader;
use std::path::Path;

use azekura::error::{Error, Result};
use clap::{Args, Subcommand};

use azekura::size::parse_size;
use draw::Keys;
use operation::{Operation, Outcome, RESULTS, ValueOf, read_array};
use plan::ObjectPlan;
use run::{Candidate, SuitePlan};
use store::Open;
use stores::Engine;
use summary::Tally;

use crate::phase::Class;
use crate::report::{Output, line};
use crate::words::word;

/// The flags and subcommands of `object`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ObjectArguments {
    #[command(subcommand)]
    of: Option<ObjectCommand>,
    /// The store to measure
    #[arg(long, value_enum, default_value_t = Engine::Azekura)]
    engine: Engine,
    #[command(flatten)]
    plan: ObjectPlan,
}

#[derive(Subcommand)]
enum ObjectCommand {
    /// Print a workload as JSON
    #[command(subcommand)]
    Workload(Workload),
    /// Sum up results, which are read from standard input
    Summary(SummaryPlan),
    /// Draw results, which are read from standard input: latency by number
    #[command(subcommand)]
    Plot(plot::PlotCommand),
    /// Run the tables of the published benchmark at a scale, for several stores, and print ratios
    Suite(SuitePlan),
}

/// What a workload does.
#[derive(Clone, Debug, Subcommand)]
pub enum Workload {
    /// Store objects
    Put {
        /// Which
        #[command(flatten)]
        keys: KeysPlan,
        /// Bytes of a value
        #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1KiB")]
        value_size: u64,
    },
    /// Read objects
    Get(KeysPlan),
    /// Remove objects
    Delete(KeysPlan),
}

/// Which keys a workload has.
#[derive(Args, Clone, Debug)]
pub struct KeysPlan {
    /// Operations
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u64,
    /// Keys that are drawn before they are shuffled and cut to the count [default: the count]
    #[arg(long, value_name = "N")]
    population_size: Option<u64>,
    /// Characters of a key, at most 16
    #[arg(long, value_name = "N", default_value_t = 10)]
    key_size: usize,
    /// Other keys for another text, of at most 32 bytes
    #[arg(long, value_name = "TEXT", default_value = "")]
    seed: String,
    /// Another order for another text, of at most 32 bytes; without it, the order in which they are drawn
    #[arg(long, value_name = "TEXT")]
    shuffle: Option<String>,
}

#[derive(Args, Clone, Debug)]
struct SummaryPlan {
    /// Bytes of a value, for MiB per second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    value_size: Option<u64>,
}

/// Runs what the flags ask for; results go to standard output.
///
/// Errors: those of [`phases::run`], and `Invalid` for input that is no workload and no results.
pub fn run(arguments: &ObjectArguments) -> Result<()> {
    match &arguments.of {
        None => measure(
            &word(&arguments.engine),
            arguments.engine.open(),
            &arguments.plan,
        ),
        Some(ObjectCommand::Workload(workload)) => print_workload(workload),
        Some(ObjectCommand::Summary(plan)) => summarize(plan),
        Some(ObjectCommand::Plot(command)) => plot::plot(command, outcomes),
        Some(ObjectCommand::Suite(plan)) => {
            let mut plan = plan.clone();
            if plan.stores.is_empty() {
                plan.stores = stores();
            }
            let words = ["bench", "object", "--engine"];
            suite::run(&plan, &|store, step| suite::process(&words, store, step))
        }
    }
}

/// The stores of this crate that a suite compares, in their classes.
fn stores() -> Vec<Candidate> {
    let words = ["azekura", "device", "files"];
    let all = [Class::Process, Class::Power]
        .into_iter()
        .flat_map(|class| words.map(|store| (store, class)));
    all.map(|(store, class)| Candidate {
        store: store.to_owned(),
        class,
    })
    .collect()
}

/// Runs the phases of `plan` on the store of the name `word`, and prints each in the form of the plan.
pub fn measure(word: &str, open: Open, plan: &ObjectPlan) -> Result<()> {
    let mut output = Output::new(plan.json);
    phases::run(word, open, plan, &mut |phase| {
        if plan::is_stream(plan.results.as_ref()) {
            return Ok(());
        }
        output.phase(&phase)
    })
}

fn print_workload(workload: &Workload) -> Result<()> {
    let (Workload::Put { keys, .. } | Workload::Get(keys) | Workload::Delete(keys)) = workload;
    let population = keys.population_size.unwrap_or(keys.count);
    let shuffle = keys.shuffle.as_deref();
    let drawn = Keys::new(&keys.seed, shuffle, population, keys.count, keys.key_size)?;
    let mut array = phases::writer(Path::new("-"))?;
    for key in drawn {
        array.add(&match workload {
            Workload::Put { value_size, .. } => Operation::Put {
                key,
                value: ValueOf { size: *value_size },
            },
            Workload::Get(_) => Operation::Get { key },
            Workload::Delete(_) => Operation::Delete { key },
        })?;
    }
    array.finish()
}

/// Hands over the results on standard input, one by one.
fn outcomes(each: &mut dyn FnMut(Outcome) -> Result<()>) -> Result<()> {
    read_array(
        BufReader::new(std::io::stdin()),
        Path::new("standard input"),
        RESULTS,
        each,
    )
}

fn summarize(plan: &SummaryPlan) -> Result<()> {
    let mut tally = Tally::default();
    outcomes(&mut |outcome| {
        tally.add(&outcome);
        Ok(())
    })?;
    let summary = tally.finish(plan.value_size);
    let text = serde_json::to_string_pretty(&summary);
    line(&text.map_err(|error| Error::io("cannot write JSON", error))?)
}
