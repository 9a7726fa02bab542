//! `export`: writes every record in a form other programs read.
//! A file given as the target appears whole or not at all. Writers may go on meanwhile: the scan's
//! promise holds, every record that is present throughout comes out exactly once.
//! It does not know the formats: `format/` does.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use azekura::{Error, Reader, Result};

use crate::exit::Outcome;
use crate::format::Format;
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::store::for_each;

/// Write the records as tsv, flat records or JSON lines
#[derive(clap::Args)]
pub(crate) struct Export {
    /// The file
    file: PathBuf,
    /// The form
    format: Format,
    /// Where to write; - or nothing is standard output
    #[arg(default_value = "-", hide_default_value = true)]
    target: PathBuf,
}

impl Export {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let store = azekura::open::open_read_only(&self.file)?;
        if self.target == Path::new("-") {
            self.write(&*store, out.writer(), output::failed)?;
            return Ok(Outcome::Yes);
        }
        let failed = |error| Error::io("cannot write the export", error).at(&self.target);
        let directory = match self.target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let temporary = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
        let mut writer = std::io::BufWriter::with_capacity(1 << 16, temporary);
        self.write(&*store, &mut writer, failed)?;
        writer.flush().map_err(failed)?;
        let temporary = writer
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        temporary.as_file().sync_all().map_err(failed)?;
        temporary
            .persist(&self.target)
            .map_err(|error| failed(error.error))?;
        Ok(Outcome::Yes)
    }

    fn write(
        &self,
        store: &dyn Reader,
        to: &mut dyn std::io::Write,
        failed: impl Fn(std::io::Error) -> Error,
    ) -> Result<()> {
        let progress = Progress::new("exporting", store.count());
        let mut done = 0;
        for_each(store, &mut |key, value| {
            done += 1;
            progress.set(done);
            self.format.write(to, key, value).map_err(&failed)
        })?;
        self.format.end(to).map_err(failed)
    }
}
