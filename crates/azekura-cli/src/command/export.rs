//! `export`: writes every record in a form other programs read.
//! A file given as the target appears whole or not at all, and an export that is broken off leaves nothing; a pipe or a
//! device is written to, and a store is never replaced. Writers may continue meanwhile: the scan's promise holds, every record that is present
//! throughout comes out exactly once.
//! Damage is reported on standard error and passed by; the exit code is then 8, and a file that is there is not replaced.
//! It does not know the formats: `format/` does.

use std::io;
use std::path::{Path, PathBuf};

use azekura::{Error, Kind, Reader, Result};

use crate::exit::Outcome;
use crate::format::Format;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::store::walk_past_damage;
use crate::whole;

/// Write the records as tsv, flat records or JSON lines
#[derive(clap::Args)]
pub(crate) struct Export {
    /// The file
    file: PathBuf,
    /// The form
    format: Format,
    /// Where to write; - or nothing is standard output. A file that is there is replaced, unless it is a store or records cannot be read
    #[arg(default_value = "-", hide_default_value = true)]
    target: PathBuf,
}

impl Export {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let store = azekura::open::open_damaged(&self.file)?;
        if self.target == Path::new("-") {
            return self.write(&*store, out.writer(), output::failed);
        }
        let mut outcome = Outcome::Yes;
        let refused = "cannot write the export";
        whole::write(&self.target, refused, &mut |to| {
            let failed = |error| whole::unwritable(refused, error, &self.target);
            outcome = self.write(&*store, to, failed)?;
            if matches!(outcome, Outcome::Damaged) && self.target.is_file() {
                return Err(self.kept());
            }
            Ok(())
        })?;
        Ok(outcome)
    }

    /// What is there may be the last whole export.
    fn kept(&self) -> Error {
        let message = "records could not be read, and the file that is there was not replaced by those that could";
        Error::new(Kind::Corrupted, message)
            .at(&self.target)
            .remedy("give another name as the target, and it holds all that can be read")
    }

    fn write(
        &self,
        store: &dyn Reader,
        to: &mut dyn io::Write,
        failed: impl Fn(io::Error) -> Error,
    ) -> Result<Outcome> {
        let progress = Progress::new("exporting", store.count());
        let mut done = 0;
        let mut write = |key: &[u8], value: &[u8]| {
            done += 1;
            progress.set(done);
            self.format.write(to, key, value).map_err(&failed)
        };
        let (_, is_damaged) = walk_past_damage(store, None, u64::MAX, &mut write)?;
        self.format.end(to).map_err(failed)?;
        Ok(Outcome::of_whole(!is_damaged))
    }
}
