//! The flags of `object`. Rivals have the same.
//!
//! A plan is checked before anything is opened, so that a contradiction is an error and not a strange
//! figure. It does not know how a phase is run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use azekura::error::{Error, Kind, Result, size};
use azekura::size::parse_size;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::draw::Keys;
use super::operation::VALUE_SIZE_MAX;
use crate::phase::Class;
use crate::words::{between, fits, flags, refused};

/// One phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Store the population, in order
    Put,
    /// Store other values for a sample of it
    Update,
    /// Read a sample
    Get,
    /// Remove a sample
    Delete,
    /// Open, get one object, and close
    Load,
}

impl Op {
    /// By what text the phase shuffles the population, as the published benchmark did.
    pub(super) const fn shuffle(self) -> Option<&'static str> {
        match self {
            Self::Put => None,
            Self::Update => Some("qux"),
            Self::Get | Self::Load => Some("bar"),
            Self::Delete => Some("baz"),
        }
    }

    pub(super) const fn writes(self) -> bool {
        matches!(self, Self::Put | Self::Update | Self::Delete)
    }
}

/// Operations a second.
fn parse_rate(text: &str) -> std::result::Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "a rate is a number")?;
    if rate.is_finite() && rate > 0.0 {
        Ok(rate)
    } else {
        Err("a rate is more than 0".into())
    }
}

/// The flags that `object` and its suite share.
#[derive(Args, Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct How {
    /// Operations outstanding at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: usize,
    /// Write all of a store's file when it is made, where the store can
    #[arg(long)]
    pub fill: bool,
    /// Do not compare the values that are read with those that were put
    #[arg(long)]
    pub no_verify: bool,
    /// Make each value in memory of the store, where it has a call for that, so that it is put without a copy
    #[arg(long)]
    pub drafts: bool,
}

/// The flags of `object`.
#[derive(Args, Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ObjectPlan {
    /// Where the store is; made by a first phase `put`, otherwise it must exist
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// Objects of the population: `put` stores all of them
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub count: u64,
    /// Objects that `update`, `get` and `delete` visit; [default: a hundredth of all, at least one]
    #[arg(long, value_name = "N")]
    pub sample: Option<u64>,
    /// The phases; the store is closed and opened again between them
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "put,update,get,delete,load"
    )]
    pub ops: Vec<Op>,
    /// Characters of a key, at most 16
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "100KiB")]
    pub value_size: u64,
    /// Other keys for another text, of at most 32 bytes
    #[arg(long, value_name = "TEXT", default_value = "foo")]
    pub seed: String,
    /// How operations run
    #[command(flatten)]
    #[serde(flatten)]
    pub how: How,
    /// Operations due each second; latency then counts from when one was due
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// What an acknowledged change survives
    #[arg(long, value_enum, default_value_t = Class::Process)]
    pub durability: Class,
    /// Bytes the store is made for; [default: twice what the values need]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<u64>,
    /// Before each phase, drop the store from the system's caches (as root: all files)
    #[arg(long)]
    pub cold: bool,
    /// Run the operations of a file of JSON, or of standard input (-), instead of phases
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ops", "sample"])]
    #[serde(skip)]
    pub workload: Option<PathBuf>,
    /// Which values the puts of a workload store: another number, other bytes
    #[arg(long, value_name = "N", default_value_t = 0, requires = "workload")]
    #[serde(skip)]
    pub generation: u64,
    /// Write what came of each operation as JSON to a file, or to standard output (-) instead of a table
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub results: Option<PathBuf>,
    /// One JSON object per phase instead of a table
    #[arg(long)]
    pub json: bool,
}

impl ObjectPlan {
    /// Objects that a sample has.
    pub fn sample(&self) -> u64 {
        self.sample
            .unwrap_or((self.count / 100).max(1))
            .min(self.count)
    }

    /// Bytes the store is made for.
    pub fn capacity(&self) -> u64 {
        const BLOCK: u64 = 4096;
        const LEAST: u64 = 64 << 20;
        let object = self
            .value_size
            .next_multiple_of(BLOCK)
            .saturating_add(BLOCK);
        let needed = object.saturating_mul(self.count).saturating_mul(2);
        self.capacity.unwrap_or(needed.saturating_add(LEAST))
    }

    /// Whether nothing but results may be printed.
    pub fn quiet(&self) -> bool {
        self.json || is_stream(self.results.as_ref())
    }

    /// Refuses what contradicts itself: `Invalid`.
    pub fn check(&self) -> Result<()> {
        between("--depth", self.how.depth as u64, 1, 4096)?;
        between("--generation", self.generation, 0, u32::MAX.into())?;
        if self.count == 0 {
            return refused("an empty population", "--count 1 or more");
        }
        if self.json && is_stream(self.results.as_ref()) {
            return refused(
                "two kinds of JSON on standard output",
                "--json or --results -, not both",
            );
        }
        if self.ops.iter().skip(1).any(|&op| op == Op::Put) {
            return refused(
                "only the first phase can be `put`",
                "leave it out: `update` stores again",
            );
        }
        for other in [&self.workload, &self.path] {
            if let (Some(results), Some(other)) = (&self.results, other)
                && !is_stream(Some(results))
                && is_same(results, other)
            {
                return refused(
                    "the results would be written over what is measured",
                    "another file for --results",
                );
            }
        }
        if self.workload.is_none() {
            Keys::new(&self.seed, None, self.count, self.count, self.key_size)?;
            if self.value_size > VALUE_SIZE_MAX {
                return Err(Error::new(Kind::TooLarge, "a value has at most 512 MiB")
                    .found(size(self.value_size), size(VALUE_SIZE_MAX)));
            }
        }
        let Some(path) = &self.path else {
            return Ok(());
        };
        let creates = self.ops.first() == Some(&Op::Put);
        if self.workload.is_some() {
            return Ok(());
        }
        fits(path, "put", creates)
    }

    /// The flags of this plan, which has phases and keeps no results, for another process.
    pub fn flags(&self) -> Vec<OsString> {
        flags(self.path.as_deref(), self)
    }
}

/// Whether results go to standard output, or come from standard input.
pub(super) fn is_stream(path: Option<&PathBuf>) -> bool {
    path.is_some_and(|path| path == Path::new("-"))
}

/// Whether both are one file, which is there.
fn is_same(one: &Path, other: &Path) -> bool {
    let canonical = |path: &Path| path.canonicalize().ok();
    one == other || canonical(one).is_some_and(|one| canonical(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::words::read_flags;

    fn plan(flags: &str) -> ObjectPlan {
        read_flags(flags).unwrap()
    }

    #[test]
    fn a_plan_comes_back_from_its_flags() {
        for flags in [
            "",
            "--path a/b --count 5 --sample 2 --ops get,load --key-size 8 --value-size 1MiB --seed x \
             --depth 4 --rate 0.5 --durability power --capacity 1GiB --fill --no-verify --drafts --cold --json",
        ] {
            let first = plan(flags);
            let words = first.flags().join(OsStr::new(" "));
            let again = plan(&words.into_string().unwrap());
            assert_eq!(again.flags(), first.flags(), "{flags}");
            assert_eq!(format!("{again:?}"), format!("{first:?}"));
        }
    }

    #[test]
    fn a_rate_is_a_number_above_zero() {
        assert!(parse_rate("0").is_err() && parse_rate("inf").is_err() && parse_rate("x").is_err());
    }

    #[test]
    fn a_sample_is_a_hundredth_but_at_least_one_and_at_most_all() {
        assert_eq!(plan("--count 12345").sample(), 123);
        assert_eq!(plan("--count 5").sample(), 1);
        assert_eq!(plan("--count 5 --sample 9").sample(), 5);
    }

    #[test]
    fn contradictions_are_refused() {
        for flags in [
            "--depth 0",
            "--count 0",
            "--ops put,get,put",
            "--json --results -",
            "--workload w --generation 5000000000",
            "--path gone/gone --ops get",
            "--key-size 0",
            "--key-size 17",
            "--seed a-text-of-more-than-thirty-two-bytes",
            "--workload w --results w",
            "--path s --results s",
        ] {
            assert_eq!(
                plan(flags).check().unwrap_err().kind(),
                Kind::Invalid,
                "{flags}"
            );
        }
        let large = plan("--value-size 513MiB").check().unwrap_err();
        assert_eq!(large.kind(), Kind::TooLarge);
        plan("--workload - --results -").check().unwrap();
        plan("").check().unwrap();
    }
}
