//! The flags of `record`: what is measured, as the user said it. Rivals take the same.
//!
//! A plan is checked before anything is opened, so that a contradiction is an error and not a
//! strange figure. `count` is per thread, as in Tkrzw's tool: `--count 1000000 --threads 10` are ten
//! million operations. It does not know how a phase is run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use azekura::engine::Durability;
use azekura::error::{Error, Kind, Result};
use azekura_wire::durability;
use clap::{Args, Command, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::engines::memory::{Baby, Cache, StdHash, StdTree, Tiny};
use crate::engines::{hash::Hash, none::Nothing};
use crate::opens::{self, OpenPlan};
use crate::report::Phase;
use crate::target::Target;
use crate::workload;

/// Most operations of all threads together: key numbers stay below 2^31, as in Tkrzw's tool.
const OPERATIONS_MAX: u64 = (1 << 31) - 1;

/// The engines this crate can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// azekura's hash file
    Hash,
    /// The leanest hash in memory
    Tiny,
    /// The ordered store in memory
    Baby,
    /// The standard library's hash map behind sharded locks, in memory
    StdHash,
    /// The standard library's ordered map behind a lock, in memory
    StdTree,
    /// azekura's cache in memory, with room for every record
    Cache,
    /// Nothing: the cost of the harness
    None,
}

/// Evaluates an expression with `$target` standing for the engine's target; `none` for the engine that does
/// nothing.
macro_rules! with_target {
    ($engine:expr, $target:ident => $call:expr, none => $none:expr) => {
        match $engine {
            Engine::Hash => with_target!(@ $target, Hash, $call),
            Engine::Tiny => with_target!(@ $target, Tiny, $call),
            Engine::Baby => with_target!(@ $target, Baby, $call),
            Engine::StdHash => with_target!(@ $target, StdHash, $call),
            Engine::StdTree => with_target!(@ $target, StdTree, $call),
            Engine::Cache => with_target!(@ $target, Cache, $call),
            Engine::None => $none,
        }
    };
    (@ $target:ident, $type:ty, $call:expr) => {{
        type $target = $type;
        $call
    }};
}

impl Engine {
    /// What is measured if nothing is said.
    pub const DEFAULT: Self = Self::Hash;

    /// `Invalid` if records are to survive a power cut which the engine keeps in memory.
    ///
    /// For what a user asked. A suite runs such a row on an engine in memory as if nothing had been
    /// asked, so that all its engines read the same; no durability is reported then.
    pub fn check(self, durability: Durability) -> Result<()> {
        let persistent = with_target!(self, T => T::PERSISTENT, none => Nothing::PERSISTENT);
        if persistent || durability != Durability::Power {
            return Ok(());
        }
        Err(
            Error::new(Kind::Invalid, "no write survives a power cut in memory")
                .remedy("leave --durability out, or choose an engine in a file"),
        )
    }

    /// Runs the phases of `plan`; `emit` is shown each result as it is there.
    pub fn record(self, plan: &Plan, emit: &mut dyn FnMut(Phase) -> Result<()>) -> Result<()> {
        with_target!(self, T => workload::record::<T>(plan, emit),
            none => workload::record::<Nothing>(plan, emit))
    }

    /// The word in flags.
    pub fn word(self) -> String {
        word(&self)
    }

    /// Measures opening; `Invalid` for an engine that has no file.
    pub fn opens(self, plan: &OpenPlan, emit: &mut dyn FnMut(Phase) -> Result<()>) -> Result<()> {
        with_target!(self, T => opens::run::<T>(plan, self, emit),
            none => opens::run::<Nothing>(plan, self, emit))
    }
}

/// In which order keys come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// 0, 1, 2, ...; threads take turns
    Sequential,
    /// Uniform with repetitions: 63 % of the keys are distinct
    Random,
    /// Every key exactly once, in random order
    Shuffled,
    /// Some keys very often (theta 0.99), scattered over the key space
    Zipfian,
}

/// One phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Store records, and hand them to the system
    Set,
    /// Look up the keys in the order of the sets, without copying values
    Get,
    /// The same in another random order
    GetShuffled,
    /// Look up in the order of the sets and copy the value
    GetValue,
    /// Jump to each key and read the record there, a new position every 100
    Iterate,
    /// Remove in the order of the sets, and hand it to the system
    Remove,
}

impl Op {
    /// The word in flags and results.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::GetShuffled => "get-shuffled",
            Self::GetValue => "get-value",
            Self::Iterate => "iterate",
            Self::Remove => "remove",
        }
    }

    /// Whether the phase changes the store.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Set | Self::Remove)
    }

    /// Whether the phase looks keys up, so that some may be missing.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::GetShuffled | Self::GetValue)
    }
}

/// The flags of `record`.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Where the store is; made by a first phase `set`, otherwise it must exist
    #[arg(long, value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// Operations per thread and phase
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub count: u64,
    /// Threads
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub threads: u64,
    /// In which order keys come
    #[arg(long, value_enum, default_value_t = Order::Sequential)]
    pub order: Order,
    /// The phases; the store is closed and opened again between them
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "set,get,iterate,remove"
    )]
    pub ops: Vec<Op>,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    pub value_size: usize,
    /// Records per call (not for iterate)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: usize,
    /// How many gets of a hundred look for a key that is not there
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub misses: u64,
    /// Other keys for another seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Measure the latency of each call, which costs two readings of the clock
    #[arg(long)]
    pub latency: bool,
    /// What an acknowledged write survives
    #[arg(long, value_parser = durability::parser(), default_value = "process", value_name = "LEVEL")]
    pub durability: Durability,
    /// One JSON object per phase instead of a table
    #[arg(long)]
    pub json: bool,
}

impl Plan {
    /// Operations of all threads in a phase.
    pub fn operations(&self) -> u64 {
        self.count * self.threads
    }

    /// The flags that say this plan, for another process.
    pub fn flags(&self) -> Vec<OsString> {
        let ops: Vec<&str> = self.ops.iter().map(|op| op.word()).collect();
        let mut flags: Vec<OsString> = Vec::new();
        let mut say = |flag: &str, value: &dyn AsRef<OsStr>| {
            flags.extend([flag.into(), value.as_ref().to_owned()]);
        };
        if let Some(path) = &self.path {
            say("--path", path);
        }
        say("--count", &self.count.to_string());
        say("--threads", &self.threads.to_string());
        say("--order", &word(&self.order));
        say("--ops", &ops.join(","));
        say("--value-size", &self.value_size.to_string());
        say("--batch", &self.batch.to_string());
        say("--misses", &self.misses.to_string());
        say("--seed", &self.seed.to_string());
        say("--durability", &durability::word(self.durability));
        for (flag, is_set) in [("--latency", self.latency), ("--json", self.json)] {
            flags.extend(is_set.then(|| flag.into()));
        }
        flags
    }

    /// `Invalid` if the flags contradict each other.
    pub fn check(&self) -> Result<()> {
        between("--threads", self.threads, 1, 1024)?;
        between("--count", self.count, 1, OPERATIONS_MAX / self.threads)?;
        between("--batch", self.batch as u64, 1, 65_536)?;
        between("--misses", self.misses, 0, 100)?;
        between("--value-size", self.value_size as u64, 0, 1 << 30)?;
        Ok(())
    }
}

/// The word in flags for a choice.
pub(crate) fn word(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value().expect("no choice is skipped");
    value.get_name().to_owned()
}

/// The plan that a line of flags says.
pub(crate) fn read_flags<P: Args>(line: &str) -> std::result::Result<P, clap::Error> {
    let command = P::augment_args(Command::new("plan").no_binary_name(true));
    let said = command.try_get_matches_from(line.split_whitespace())?;
    P::from_arg_matches(&said)
}

/// `Invalid`: flags that contradict each other, or ask for nothing.
pub(crate) fn refused(what: &str, remedy: &str) -> Result<()> {
    Err(Error::new(Kind::Invalid, what).remedy(remedy))
}

/// `Invalid` if there is a store at `path` though the phase `first` makes it, or none though it does not.
pub(crate) fn fits(path: &Path, first: &str, creates: bool) -> Result<()> {
    match (creates, path.exists()) {
        (true, true) => {
            let what = format!("a first phase `{first}` makes a new store");
            Err(Error::new(Kind::Invalid, what)
                .at(path)
                .found("a file", "none")
                .remedy("remove it or choose another path"))
        }
        (false, false) => Err(Error::new(Kind::Invalid, "there is no store to measure")
            .at(path)
            .remedy(format!("begin with the phase `{first}`"))),
        _ => Ok(()),
    }
}

/// `Invalid` unless `value` of `flag` lies in the range.
pub(crate) fn between(flag: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::new(Kind::Invalid, format!("{flag} is out of range"))
        .found(value, format!("{least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_comes_back_from_its_flags() {
        let said = "--path a/b --count 7 --threads 2 --order zipfian --ops set,get-shuffled,iterate \
                    --value-size 9 --batch 3 --misses 50 --seed 4 --durability power --latency --json";
        let flags = read_flags::<Plan>(said).unwrap().flags();
        let expected: Vec<OsString> = said.split_whitespace().map(OsString::from).collect();
        assert_eq!(flags, expected);
        let again = flags.join(OsStr::new(" ")).into_string().unwrap();
        assert_eq!(read_flags::<Plan>(&again).unwrap().flags(), flags);
    }

    #[test]
    fn only_engines_in_files_are_asked_to_survive_a_power_cut() {
        for &engine in Engine::value_variants() {
            let refused = engine
                .check(Durability::Power)
                .map_err(|error| error.kind());
            let expected = if engine == Engine::Hash {
                Ok(())
            } else {
                Err(Kind::Invalid)
            };
            assert_eq!(refused, expected, "{}", engine.word());
            engine.check(Durability::Process).unwrap();
        }
    }
}
