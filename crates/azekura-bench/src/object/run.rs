//! The flags of a suite over stores of large values, and its steps as plans.
//!
//! A candidate is a store in a class of durability. The counts are those of the published benchmark times the scale. It
//! runs nothing and prints nothing.

use std::path::{Path, PathBuf};

use azekura::error::{Error, Kind, Result};
use azekura::size::parse_size;
use clap::{Args, ValueEnum};

use super::plan::{How, ObjectPlan, Op};
use crate::phase::Class;
use crate::words::read_flags;

/// Bytes of the values of each store of the published benchmark, which had ten million objects of 100 KiB.
const WHOLE: f64 = 1e7 * 102_400.0;

/// A store in a class: `name:class`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The store's word.
    pub store: String,
    /// What an acknowledged change survives.
    pub class: Class,
}

impl Candidate {
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        let (store, class) = text.split_once(':').ok_or("a store is NAME:DURABILITY")?;
        let class = Class::from_str(class, false)
            .map_err(|_| format!("`{class}` is not none, buffered, process or power"))?;
        Ok(Self {
            store: store.to_owned(),
            class,
        })
    }
}

/// The flags of `suite`.
#[derive(Args, Clone, Debug)]
pub struct SuitePlan {
    /// Which part of the published 1 TB each store holds, for each size
    #[arg(long, value_name = "PART", default_value_t = 0.002)]
    pub scale: f64,
    /// The stores, as NAME:DURABILITY [default: all]
    #[arg(long, value_name = "STORES", value_delimiter = ',', value_parser = Candidate::parse)]
    pub stores: Vec<Candidate>,
    /// The store that the others are compared with [default: the first]
    #[arg(long, value_name = "NAME")]
    pub against: Option<String>,
    /// Which phases, besides the puts
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "put,update,get,delete,load"
    )]
    pub tables: Vec<Op>,
    /// Bytes of a value
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
          default_value = "100KiB,1MiB,10MiB")]
    pub sizes: Vec<u64>,
    /// Least number of objects that are updated, read and removed
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub sample_min: u64,
    /// How operations run
    #[command(flatten)]
    pub how: How,
    /// Rounds of all stores
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rounds: u64,
    /// Keep the system's caches before each step
    #[arg(long)]
    pub warm: bool,
    /// The folder where stores are made and removed [default: the system's folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// JSON objects of the steps instead of a table
    #[arg(long)]
    pub json: bool,
    /// Do not show progress
    #[arg(long)]
    pub quiet: bool,
}

impl SuitePlan {
    /// Objects of a size: of 1 MiB and 10 MiB, too, the published benchmark had a power of ten.
    #[expect(clippy::cast_sign_loss, reason = "the scale was checked")]
    pub(super) fn count(&self, value_size: u64) -> u64 {
        let whole = match value_size {
            0x10_0000 => 1e6,
            0xa0_0000 => 1e5,
            _ => WHOLE / value_size as f64,
        };
        ((whole * self.scale).round() as u64).max(1)
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |option: &str| Error::new(Kind::Invalid, format!("{option} is out of range"));
        if !(self.scale > 0.0 && self.scale <= 100.0) {
            return Err(wrong("--scale").found(self.scale, "more than 0 and at most 100"));
        }
        if self.rounds == 0 {
            return Err(wrong("--rounds").found(0, "at least 1"));
        }
        if self.sizes.contains(&0) {
            return Err(wrong("--sizes").found("0 B", "at least 1 B"));
        }
        if self.stores.is_empty() {
            return Err(wrong("--stores").found("no store", "at least one NAME:DURABILITY"));
        }
        Ok(())
    }

    /// Steps of a store at a size: the puts always, a load cold and warm.
    pub(super) fn steps(&self) -> u64 {
        let others = [Op::Update, Op::Get, Op::Delete].iter();
        let others = others.filter(|op| self.tables.contains(op)).count() as u64;
        let loads = u64::from(self.tables.contains(&Op::Load));
        1 + others + if self.warm { loads } else { 2 * loads }
    }

    pub(super) fn step(&self, path: &Path, class: Class, value_size: u64) -> ObjectPlan {
        let count = self.count(value_size);
        ObjectPlan {
            path: Some(path.to_path_buf()),
            count,
            sample: Some((count / 100).max(self.sample_min).min(count)),
            ops: Vec::new(),
            value_size,
            how: self.how,
            durability: class,
            json: true,
            ..read_flags("").expect("every flag has a default")
        }
    }
}
