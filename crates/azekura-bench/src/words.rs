//! Flags of every benchmark: words of choices, lines of flags, and the errors of flags that do not fit together.
//!
//! It promises errors that name the flag and what is allowed.
//! It does not know which flags there are.

use std::path::Path;

use azekura::error::{Error, Kind, Result};
use clap::{Args, Command, ValueEnum};

/// The word in flags for a choice.
pub(crate) fn word(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value().expect("no choice is skipped");
    value.get_name().to_owned()
}

/// The plan of a line of flags.
pub(crate) fn read_flags<P: Args>(line: &str) -> std::result::Result<P, clap::Error> {
    let command = P::augment_args(Command::new("plan").no_binary_name(true));
    let matches = command.try_get_matches_from(line.split_whitespace())?;
    P::from_arg_matches(&matches)
}

/// `Invalid`: flags that contradict each other, or leave nothing to do.
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
