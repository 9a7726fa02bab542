//! `rekey`: gives a record another key, or copies it to one, in one atomic step.
//! The answer is no, and nothing changes, if the old key is absent, or the new one present and not
//! to be overwritten.
//! It does not know what refers to the old key.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::error::quote;
use azekura::verbs::Rekeyed;
use azekura::{Result, Verbs as _};

use crate::exit::Outcome;
use crate::output::Output;
use crate::output::note;
use crate::store::Writing;
use crate::text::Coding;

/// Give a record another key
#[derive(clap::Args)]
pub(crate) struct Rekey {
    /// The file
    file: PathBuf,
    /// The present key
    old: OsString,
    /// The key it shall have
    new: OsString,
    /// Leave everything as it is if the new key is present; the exit code is then 1
    #[arg(long)]
    no_overwrite: bool,
    /// Keep the record under the old key too
    #[arg(long)]
    copy: bool,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    coding: Coding,
}

impl Rekey {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        let old = self.coding.read(&self.old)?;
        let new = self.coding.read(&self.new)?;
        let engine = self.writing.open(&self.file)?;
        let outcome = engine.rekey(&old, &new, !self.no_overwrite, self.copy)?;
        self.writing.finish(&*engine)?;
        match outcome {
            Rekeyed::Moved(_) => return Ok(Outcome::Yes),
            Rekeyed::Absent => note!("azekura: absent: {}", quote(&old)),
            Rekeyed::Exists => note!("azekura: present already: {}", quote(&new)),
        }
        Ok(Outcome::No)
    }
}
