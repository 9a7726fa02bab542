//! `remove`: removes records.
//! Several keys are one change, all or nothing across a crash, unless `--each` is given. Absent keys are
//! named on standard error and make the answer no; the others are removed all the same.
//! It does not give space back: the engine does, or `compact`.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::error::quote;
use azekura::{Edit, Result};

use crate::exit::Outcome;
use crate::output::Output;
use crate::output::note;
use crate::store::Writing;
use crate::text::Coding;

/// Remove records
#[derive(clap::Args)]
pub(crate) struct Remove {
    /// The file
    file: PathBuf,
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Remove them one by one instead of all at once
    #[arg(long)]
    each: bool,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    coding: Coding,
}

impl Remove {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        let keys = self.coding.read_all(&self.keys)?;
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let engine = self.writing.open(&self.file)?;
        let mut absent = Vec::new();
        for group in keys.chunks(if self.each { 1 } else { keys.len() }) {
            engine.update_many(group, &mut |values| {
                let missing = group
                    .iter()
                    .zip(values)
                    .filter(|(_, value)| value.is_none());
                absent.extend(missing.map(|(key, _)| *key));
                values.iter().map(|_| Edit::Remove).collect()
            })?;
        }
        self.writing.finish(&*engine)?;
        for key in &absent {
            note!("azekura: absent: {}", quote(key));
        }
        Ok(Outcome::of(absent.is_empty()))
    }
}
