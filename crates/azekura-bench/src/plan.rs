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

use crate::words::{between, flags};

/// Most operations of all threads together: key numbers stay below 2^31, as in Tkrzw's tool.
const OPERATIONS_MAX: u64 = (1 << 31) - 1;

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
    /// Look up the keys in the order of the sets, without copying values
    Get,
    /// The same in another random order
    GetShuffled,
    /// Look up in the order of the sets and copy the value
    GetValue,
    /// Jump to each key and read the record there, a new position every 100
    Iterate,
    /// Remove in the order of the sets, and flush to the system
    Remove,
}

impl Op {
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
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// Where the store is; made by a first phase `set`, otherwise it must exist
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
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
    #[serde(serialize_with = "durability_word")]
    pub durability: Durability,
    /// Bytes of the page cache, of engines that have one [default: the engine's]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<u64>,
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
    /// Operations of all threads in a phase.
    pub fn operations(&self) -> u64 {
        self.count * self.threads
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::words::read_flags;

    #[test]
    fn a_plan_comes_back_from_its_flags() {
        let words = "--path a/b --count 7 --threads 2 --order zipfian --ops set,get-shuffled,iterate \
                    --value-size 9 --batch 3 --misses 50 --seed 4 --latency --durability power --cache 8192 --json";
        let flags = read_flags::<Plan>(words).unwrap().flags();
        let expected: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        assert_eq!(flags, expected);
        let again = flags.join(OsStr::new(" ")).into_string().unwrap();
        assert_eq!(read_flags::<Plan>(&again).unwrap().flags(), flags);
    }
}
