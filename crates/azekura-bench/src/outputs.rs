//! Files of results: which existing file may be replaced by one.
//!
//! Promises: a store is recognised by either of its superblock slots, so one that is damaged is not replaced either, and so
//! is everything else of ours that begins with a superblock: object stores and their second halves, snapshots, files of the
//! device under measurement. It does not know what is written, nor how.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use azekura::error::{Error, Kind, Result};
use azekura::format::superblock::{SIZE, Superblock};

/// `Invalid` if a regular file at `path` is a store; `refused` names what could not be written if that cannot be found out.
/// Errors: `Io` otherwise.
pub fn refuse_store(path: &Path, refused: &'static str) -> Result<()> {
    let failed = |error| Error::io(refused, error).at(path);
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.is_file() => return Ok(()),
        Ok(_) => {}
    }
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(SIZE).read_to_end(&mut head))
        .map_err(failed)?;
    if Superblock::is_in(&head) {
        return Err(Error::new(Kind::Invalid, "the target is a store")
            .at(path)
            .remedy("choose another name, or remove it first"));
    }
    Ok(())
}
