//! `get`: prints the values of keys.
//! One key prints its value alone; several print a line each, key and value. Absent keys are named
//! on standard error and make the answer no.
//! It does not know of other writers meanwhile.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::error::quote;
use azekura::{Error, Kind, Result};

use crate::exit::Outcome;
use crate::format::JsonRecord;
use crate::output::Output;
use crate::output::note;
use crate::text::Coding;

/// Print the values of one or more keys
#[derive(clap::Args)]
pub(crate) struct Get {
    /// The file
    file: PathBuf,
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Print the bytes of the value and nothing else, not even a newline (one key only)
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print a JSON object per key; one without a value means that the record is absent
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    coding: Coding,
}

impl Get {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let keys = self.coding.read_all(&self.keys)?;
        if self.raw && keys.len() > 1 {
            return Err(Error::new(Kind::Invalid, "--raw prints one value")
                .found(format!("{} keys", keys.len()), "one key"));
        }
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut values = vec![None; keys.len()];
        azekura::open::open_read_only(&self.file)?.read_many(&keys, &mut |index, value| {
            values[index] = value.map(<[u8]>::to_vec);
        })?;
        for (key, value) in keys.iter().zip(&values) {
            match value {
                _ if self.json => out.json(&JsonRecord::new(key, value.as_deref()))?,
                None => note!("azekura: absent: {}", quote(key)),
                Some(value) if self.raw => out.bytes(value)?,
                Some(value) if keys.len() == 1 => out.line(self.coding.show(value))?,
                Some(value) => out.line(format_args!(
                    "{}\t{}",
                    self.coding.show(key),
                    self.coding.show(value)
                ))?,
            }
        }
        Ok(Outcome::of(values.iter().all(Option::is_some)))
    }
}
