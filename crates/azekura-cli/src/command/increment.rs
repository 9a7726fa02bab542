//! `increment`: adds to a counter and prints what it then is, in one step.
//! A counter is an 8-byte big-endian number, signed or with `--float` a double, so that counters of
//! Tkrzw continue to count. A value of another shape is refused and stays, as is a sum that is infinite or not a number.
//! It does not know decimal text: a value "41" is no counter.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::{Engine, Error, Kind, Result, Verbs as _};

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
    #[arg(default_value = "1")]
    by: String,
    /// What an absent counter starts from
    #[arg(long, default_value = "0", value_name = "NUMBER")]
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
        let now = if self.float {
            let (by, initial) = (finite(&self.by)?, finite(&self.initial)?);
            let engine = self.writing.open(&self.file)?;
            refuse_overflow(&*engine, &key, by, initial)?;
            let now = engine.increment_float(&key, by, initial)?;
            self.writing.finish(&*engine)?;
            now.to_string()
        } else {
            let (by, initial) = (whole(&self.by)?, whole(&self.initial)?);
            // The library's call adds nothing by this number.
            if by == i64::MIN {
                return Err(Error::new(Kind::Invalid, "what to add is out of range")
                    .found(by, format!("{} to {}", -i64::MAX, i64::MAX)));
            }
            let engine = self.writing.open(&self.file)?;
            let now: i64 = engine.increment(&key, by, initial)?;
            self.writing.finish(&*engine)?;
            now.to_string()
        };
        out.after_change(
            &now,
            format_args!("the counter was changed and is now {now}"),
        )?;
        Ok(Outcome::Yes)
    }
}

/// A number that a counter can hold and add.
fn finite(text: &str) -> Result<f64> {
    let read = text.parse().ok().filter(|read: &f64| read.is_finite());
    read.ok_or_else(|| {
        let (least, most) = (f64::MIN, f64::MAX);
        Error::new(Kind::Invalid, format!("{text:?} is not a finite number"))
            .remedy(format!("give a number from {least:e} to {most:e}"))
    })
}

fn whole(text: &str) -> Result<i64> {
    text.parse().map_err(|_| {
        let (least, most) = (-i64::MAX, i64::MAX);
        Error::new(
            Kind::Invalid,
            format!("{text:?} is not a whole number of 64 bits"),
        )
        .remedy(format!(
            "give one from {least} to {most}; other numbers need --float"
        ))
    })
}

/// Refuses a sum that is infinite or not a number, which the library would store. No other thread writes between this and the
/// addition: the file is open for writing by this process alone.
fn refuse_overflow(engine: &dyn Engine, key: &[u8], by: f64, initial: f64) -> Result<()> {
    let before = engine.counter_float(key)?.unwrap_or(initial);
    if (before + by).is_finite() {
        return Ok(());
    }
    let what = "the counter would not be a finite number";
    let error = Error::new(Kind::Invalid, what).key(key);
    let remedy = if before.is_finite() {
        "add a smaller amount"
    } else {
        "remove the record, or use another key"
    };
    Err(error
        .detail(format!("it is {before:e}, to be added is {by:e}"))
        .remedy(remedy))
}
