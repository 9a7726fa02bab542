//! The flags of `record`. Rivals have the same.
//!
//! A plan is checked before anything is opened, so that a contradiction is an error and not a
//! strange figure. `count` is per thread, as in Tkrzw's tool: `--count 1000000 --threads 10` are ten
//! million operations. It does not know how a phase is run.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::engine::Durability;
use azekura::error::Result;
use azekura::size::parse_size;
use azekura_wire::durability;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize, Serializer};

use crate::words::{between, flags, refused};

/// Most operations of all threads together: key numbers stay below 2^31, as in Tkrzw's tool.
const OPERATIONS_MAX: u64 = (1 << 31) - 1;

/// The least that a cache is scaled down to: every engine opens with it.
const CACHE_MIN: u64 = 1 << 20;
/// The least that a limit of memory is scaled down to: a process and its threads live in it.
const MEMORY_MIN: u64 = 24 << 20;

/// In which order keys come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// 0, 1, 2, ...; threads take turns
    #[default]
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
    /// Store records, and flush them to the system
    Set,
    /// The same in a store that has been made: a `set` that is not the first phase, under a name of its own
    Update,
    /// Look up the keys in the order of the sets, without copying values
    Get,
    /// The same in another random order
    GetShuffled,
    /// Look up in the order of the sets and copy the value
    GetValue,
    /// Jump to each key and read the record there, a new position every 100
    Iterate,
    /// Read all records in the order of their keys, each thread all of them; of engines that have an order
    Scan,
    /// Remove in the order of the sets, and flush to the system
    Remove,
}

impl Op {
    /// Whether the phase changes the store.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Set | Self::Update | Self::Remove)
    }

    /// Whether the phase stores records.
    pub const fn sets(self) -> bool {
        matches!(self, Self::Set | Self::Update)
    }

    /// Whether the phase goes from record to record, and so has no batches.
    pub const fn visits(self) -> bool {
        matches!(self, Self::Iterate | Self::Scan)
    }

    /// Whether the phase looks keys up, so that some may be missing.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::GetShuffled | Self::GetValue)
    }
}

/// The flags of `record`.
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags of a command line, each for itself"
)]
pub struct Plan {
    /// Where the store is; made by a first phase `set`, otherwise it must exist
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// Operations per thread and phase
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub count: u64,
    /// Operations per thread of every phase after the first, if they are fewer
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later: Option<u64>,
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
    #[serde(serialize_with = "durability_word")]
    pub durability: Durability,
    /// Bytes of the page cache, of engines that have one [default: the engine's]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<u64>,
    /// Run each phase that reads once before it is measured, so that it finds caches as it leaves them
    #[arg(long)]
    pub warm: bool,
    /// Give up what the system's cache has of the store before each phase but the first, so that it reads the device; of engines with a file
    #[arg(long, conflicts_with = "warm")]
    pub cold: bool,
    /// Memory of this process, the system's page cache for its files included, in every phase but a `set` that makes the store
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The memory cgroup, made for this purpose, that enforces --memory: this process enters it and sets its limit
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_group: Option<PathBuf>,
    /// One JSON object per phase instead of a table
    #[arg(long)]
    pub json: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn durability_word<S: Serializer>(of: &Durability, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(of.word())
}

impl Plan {
    /// Operations of all threads in the first phase: keys are numbers below it.
    pub fn operations(&self) -> u64 {
        self.count * self.threads
    }

    /// Operations per thread of the phase at `index`.
    pub fn count_of(&self, index: usize) -> u64 {
        match self.later {
            Some(later) if index > 0 => later,
            _ => self.count,
        }
    }

    /// This plan with its counts and its sizes of memory multiplied: what is a fraction of the data stays that fraction.
    /// No count falls below one, and no size below what an engine needs to work at all.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "a negative scale becomes the least")]
    pub fn scaled(self, by: f64) -> Self {
        let scale = |value: u64, least: u64| ((value as f64 * by) as u64).max(least);
        Self {
            count: scale(self.count, 1),
            later: self.later.map(|later| scale(later, 1)),
            cache: self.cache.map(|cache| scale(cache, CACHE_MIN)),
            memory: self.memory.map(|memory| scale(memory, MEMORY_MIN)),
            ..self
        }
    }

    /// The flags of this plan, for another process.
    pub fn flags(&self) -> Vec<OsString> {
        flags(self.path.as_deref(), self)
    }

    /// `Invalid` if the flags contradict each other.
    pub fn check(&self) -> Result<()> {
        between("--threads", self.threads, 1, 1024)?;
        between("--count", self.count, 1, OPERATIONS_MAX / self.threads)?;
        between("--batch", self.batch as u64, 1, 65_536)?;
        between("--misses", self.misses, 0, 100)?;
        between("--value-size", self.value_size as u64, 0, 1 << 30)?;
        if let Some(later) = self.later {
            between("--later", later, 1, self.count)?;
        }
        match (&self.memory, &self.memory_group) {
            (Some(_), None) => refused(
                "only a memory cgroup limits the system's page cache",
                "make one and name it by --memory-group, or leave --memory out",
            ),
            (None, Some(_)) => refused("no limit for --memory-group", "give it by --memory"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::words::read_flags;

    #[test]
    fn a_plan_comes_back_from_its_flags() {
        let words = "--path a/b --count 7 --later 3 --threads 2 --order zipfian --ops set,get-shuffled,iterate \
                    --value-size 9 --batch 3 --misses 50 --seed 4 --latency --durability power --cache 8192 --warm \
                    --memory 65536 --memory-group c/d --json";
        let flags = read_flags::<Plan>(words).unwrap().flags();
        let expected: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        assert_eq!(flags, expected);
        let again = flags.join(OsStr::new(" ")).into_string().unwrap();
        assert_eq!(read_flags::<Plan>(&again).unwrap().flags(), flags);
    }

    #[test]
    fn a_scaled_plan_keeps_the_ratio_of_data_and_caches() {
        let plan: Plan =
            read_flags("--count 1000 --later 100 --cache 64MiB --memory 80MiB").unwrap();
        let half = plan.clone().scaled(0.5);
        let found = (half.count, half.later, half.cache, half.memory);
        assert_eq!(found, (500, Some(50), Some(32 << 20), Some(40 << 20)));
        assert_eq!([half.count_of(0), half.count_of(1)], [500, 50]);
        let least = plan.scaled(0.0);
        let found = (least.count, least.later, least.cache, least.memory);
        let expected = (1, Some(1), Some(CACHE_MIN), Some(MEMORY_MIN));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_limit_and_its_group_go_together_and_later_phases_are_no_longer() {
        for flags in [
            "--memory 80MiB",
            "--memory-group x",
            "--count 5 --later 6",
            "--later 0",
        ] {
            let plan: Plan = read_flags(flags).unwrap();
            let error = plan.check().expect_err(flags);
            assert_eq!(error.kind(), azekura::Kind::Invalid, "{flags}");
        }
        let plan: Plan = read_flags("--memory 80MiB --memory-group x").unwrap();
        plan.check().unwrap();
    }
}
