//! `export`: writes every record in a form other programs read.
//! A file given as the target appears whole or not at all, and an export that is broken off leaves nothing; a pipe or a
//! device is written to, and a store is never replaced. Writers may go on meanwhile: the scan's promise holds, every record that is present
//! throughout comes out exactly once.
//! It does not know the formats: `format/` does.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use azekura::format::superblock::MAGIC;
use azekura::io::Storage as _;
use azekura::io::file::{self, File as NewFile};
use azekura::{Error, Kind, Reader, Result};

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
    /// Where to write; - or nothing is standard output. A file that is there is replaced, unless it is a store
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
        match fs::metadata(&self.target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.replace(&*store, &self.target)?;
            }
            Err(error) => return Err(failed(error)),
            Ok(there) if there.is_file() => {
                if is_store(&self.target).map_err(failed)? {
                    return Err(Error::new(Kind::Invalid, "the target is a store")
                        .at(&self.target)
                        .remedy("choose another name, or remove it first"));
                }
                // Behind a symbolic link stands what is to be replaced.
                let target = fs::canonicalize(&self.target).map_err(failed)?;
                self.replace(&*store, &target)?;
            }
            // Putting a file in its place would take a device away from everybody else.
            Ok(_) => {
                let mut options = fs::OpenOptions::new();
                let to = options.write(true).open(&self.target).map_err(failed)?;
                self.buffered(&*store, to, failed)?;
            }
        }
        Ok(Outcome::Yes)
    }

    /// Puts the export in the place of `target` in one step, with owner and mode of a file that was there.
    fn replace(&self, store: &dyn Reader, target: &Path) -> Result<()> {
        let failed = |error| Error::io("cannot write the export", error).at(&self.target);
        let new = NewFile::create_replacing(target)?;
        self.buffered(store, new.as_stream(), failed)?;
        if target.exists() {
            new.keep_owner_and_mode_of(target)?;
        }
        new.sync()?;
        new.take_name()?;
        file::sync_directory(target)
    }

    fn buffered<W: io::Write>(
        &self,
        store: &dyn Reader,
        to: W,
        failed: impl Fn(io::Error) -> Error + Copy,
    ) -> Result<W> {
        let mut writer = BufWriter::with_capacity(1 << 16, to);
        self.write(store, &mut writer, failed)?;
        writer.flush().map_err(failed)?;
        writer
            .into_inner()
            .map_err(|error| failed(error.into_error()))
    }

    fn write(
        &self,
        store: &dyn Reader,
        to: &mut dyn io::Write,
        failed: impl Fn(io::Error) -> Error,
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

/// Whether the file at `path` begins as stores do.
fn is_store(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?
        .take(MAGIC.len() as u64)
        .read_to_end(&mut start)?;
    Ok(start == MAGIC)
}
