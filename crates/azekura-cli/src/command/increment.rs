//! `increment`: adds to a counter and prints what it then is, in one step.
//! A counter is an 8-byte big-endian number, signed or with `--float` a double, so that counters of
//! Tkrzw go on counting. A value of another shape is refused and stays.
//! It does not know decimal text: a value "41" is no counter.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::{Error, Kind, Result, Verbs as _};

use crate::exit::Outcome;
use crate::output::Output;
use crate::store::Writing;
use crate::text::Coding;

/// Add to a counter and print it
#[derive(clap::Args)]
pub(crate) struct Increment {
    /// The file
    file: PathBuf,
    /// The key
    key: OsString,
    /// What to add; may be negative
    #[arg(default_value = "1", allow_negative_numbers = true)]
    by: String,
    /// What an absent counter starts from
    #[arg(
        long,
        default_value = "0",
        allow_negative_numbers = true,
        value_name = "NUMBER"
    )]
    initial: String,
    /// The counter is a floating point number
    #[arg(long)]
    float: bool,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    coding: Coding,
}

impl Increment {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let key = self.coding.read(&self.key)?;
        if self.float {
            let (by, initial) = (number(&self.by)?, number(&self.initial)?);
            let engine = self.writing.open(&self.file)?;
            let now: f64 = engine.increment_float(&key, by, initial)?;
            self.writing.finish(&*engine)?;
            out.line(now)?;
        } else {
            let (by, initial) = (number(&self.by)?, number(&self.initial)?);
            // The library's call adds nothing by this number.
            if by == i64::MIN {
                return Err(Error::new(Kind::Invalid, "what to add is out of range")
                    .found(by, format!("{} to {}", -i64::MAX, i64::MAX)));
            }
            let engine = self.writing.open(&self.file)?;
            let now: i64 = engine.increment(&key, by, initial)?;
            self.writing.finish(&*engine)?;
            out.line(now)?;
        }
        Ok(Outcome::Yes)
    }
}

fn number<N: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<N> {
    text.parse().map_err(|error| {
        Error::new(Kind::Invalid, format!("{text:?} is not a number"))
            .detail(format!("{error}"))
            .remedy("counters are whole numbers of 64 bits, or any with --float")
    })
}
