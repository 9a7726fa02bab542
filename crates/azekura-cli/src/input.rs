//! What a command reads records from: a file, a pipe, or standard input.
//!
//! What is read twice, and is no file, is kept in a temporary file without a name. Where it is a terminal, a note states how to end.
//! It does not know the formats.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Seek as _};
use std::path::{Path, PathBuf};

use azekura::{Error, Result};

use crate::output::note;
use crate::whole::{standard_input, unreadable};

/// What is read.
pub(crate) struct Input {
    /// What messages call it.
    pub(crate) name: PathBuf,
    /// Nothing: standard input, read once.
    file: Option<File>,
    /// Bytes; 0 if they are unknown.
    pub(crate) size: u64,
}

impl Input {
    /// Opens `source`. Unless it is read `once`, standard input and pipes go to a temporary file.
    pub(crate) fn open(source: &Path, once: bool) -> Result<Self> {
        let failed = |error| unreadable("cannot read the input", error, source);
        let standard = source == Path::new("-");
        let name = if standard {
            PathBuf::from("(standard input)")
        } else {
            source.to_path_buf()
        };
        if standard && io::stdin().is_terminal() {
            note!("azekura: reading records from the terminal; end with ctrl-d");
        }
        if standard && once {
            drop(standard_input().map_err(failed)?);
            return Ok(Self {
                name,
                file: None,
                size: 0,
            });
        }
        let file = if standard {
            spool(&mut standard_input().map_err(failed)?, &name)?
        } else {
            let mut file = File::open(source).map_err(failed)?;
            let kind = file.metadata().map_err(failed)?.file_type();
            if kind.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            if kind.is_file() || once {
                file
            } else {
                spool(&mut file, &name)?
            }
        };
        let size = file.metadata().map_err(failed)?.len();
        Ok(Self {
            name,
            file: Some(file),
            size,
        })
    }

    /// What is left to be read.
    pub(crate) fn stream(&self) -> Result<Box<dyn BufRead>> {
        match &self.file {
            None => Ok(Box::new(BufReader::new(io::stdin()))),
            Some(file) => {
                let failed = |error| unreadable("cannot read the input", error, &self.name);
                let file = file.try_clone().map_err(failed)?;
                Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
            }
        }
    }

    /// Back to the beginning, of what is not read once.
    pub(crate) fn rewind(&mut self) -> Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| {
            file.rewind()
                .map_err(|error| unreadable("cannot read the input again", error, &self.name))
        })
    }
}

/// Copies a stream that can be read only once into a temporary file without a name.
fn spool(from: &mut dyn io::Read, name: &Path) -> Result<File> {
    tempfile::tempfile()
        .and_then(|mut file| {
            io::copy(from, &mut file)?;
            file.rewind()?;
            Ok(file)
        })
        .map_err(|error| {
            let error = Error::io("cannot keep the input in a temporary file", error).at(name);
            error
                .remedy("free space in the folder for temporary files, or choose another by TMPDIR")
        })
}
