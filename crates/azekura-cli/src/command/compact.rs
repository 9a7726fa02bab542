//! `compact`: gives the space of removed and replaced records back to the file system.
//! The file stays the same file and keeps its settings.
//! It does not speed anything up: `rebuild` writes the file anew.

use std::path::PathBuf;

use azekura::error::size;
use azekura::record::hash::{HashDb, Options};
use azekura::{Reader as _, Result};

use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;

/// Give unused space back
#[derive(clap::Args)]
pub(crate) struct Compact {
    /// The file
    file: PathBuf,
}

impl Compact {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let db = HashDb::open(&self.file, &Options::default())?;
        let before = db.stats().file_bytes;
        let progress = Progress::work("compacting");
        db.compact(&mut progress.report())?;
        drop(progress);
        let after = db.stats().file_bytes;
        db.close()?;
        out.line(format_args!(
            "{} before, {} after",
            size(before),
            size(after)
        ))?;
        Ok(Outcome::Yes)
    }
}
