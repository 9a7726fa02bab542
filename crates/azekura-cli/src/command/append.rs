//! `append`: lengthens a value, in one step with looking at it.
//! An absent record comes into being with the value alone, without the delimiter.
//! It does not know what stands in the values.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::{Result, Verbs as _};

use crate::exit::Outcome;
use crate::output::Output;
use crate::store::Writing;
use crate::text::Coding;

/// Add to the end of a value
#[derive(clap::Args)]
pub(crate) struct Append {
    /// The file
    file: PathBuf,
    /// The key
    key: OsString,
    /// What to add
    value: OsString,
    /// What to put between the present value and the addition
    #[arg(long, short, default_value = "", hide_default_value = true)]
    delimiter: OsString,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    coding: Coding,
}

impl Append {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        let key = self.coding.read(&self.key)?;
        let value = self.coding.read(&self.value)?;
        let delimiter = self.coding.read(&self.delimiter)?;
        let engine = self.writing.open(&self.file)?;
        engine.append(&key, &value, &delimiter)?;
        self.writing.finish(&*engine)?;
        Ok(Outcome::Yes)
    }
}
