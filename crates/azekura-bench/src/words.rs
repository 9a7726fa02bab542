//! Flags of every benchmark: words of choices, lines of flags, and the errors of flags that do not fit together.
//!
//! It promises errors that name the flag and what is allowed.
//! It does not know which flags there are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use azekura::error::{Error, Kind, Result};
use clap::{Args, Command, ValueEnum};
use serde::Serialize;
use serde_json::Value;

/// The word in flags for a choice.
pub fn word(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value().expect("no choice is skipped");
    value.get_name().to_owned()
}

/// The plan of a line of flags.
pub fn read_flags<P: Args>(line: &str) -> std::result::Result<P, clap::Error> {
    let command = P::augment_args(Command::new("plan").no_binary_name(true));
    let matches = command.try_get_matches_from(line.split_whitespace())?;
    P::from_arg_matches(&matches)
}

/// The flags of a plan, for another process: each field by its name. One that is absent or false is left out.
pub(crate) fn flags(path: Option<&Path>, plan: &impl Serialize) -> Vec<OsString> {
    let word = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let mut flags: Vec<OsString> = Vec::new();
    if let Some(path) = path {
        flags.extend(["--path".into(), path.into()]);
    }
    let plan = serde_json::to_value(plan).expect("a plan has only plain fields");
    for (name, value) in plan.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null | Value::Bool(false) => continue,
            Value::Bool(true) => None,
            Value::Array(all) => Some(all.iter().map(word).collect::<Vec<_>>().join(",")),
            one => Some(word(one)),
        };
        flags.push(format!("--{name}").into());
        flags.extend(value.map(OsString::from));
    }
    flags
}

/// `Invalid`: flags that contradict each other, or leave nothing to do.
pub(crate) fn refused(what: &str, remedy: &str) -> Result<()> {
    Err(Error::new(Kind::Invalid, what).remedy(remedy))
}

/// The place of what is kept in files; `Invalid` if none was given.
pub(crate) fn required(path: Option<&PathBuf>) -> Result<&PathBuf> {
    path.ok_or_else(|| {
        Error::new(Kind::Invalid, "this engine keeps what it stores in files")
            .remedy("give its place by --path")
    })
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
