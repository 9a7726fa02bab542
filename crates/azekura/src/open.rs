//! Choosing an engine from the superblock: for programs that take whatever file they are given.
//!
//! Today every file is a hash file, so what is not one is the hash engine's to refuse. Who knows the engine
//! opens it directly, with options.

use std::path::Path;

use crate::engine::{Engine, Reader};
use crate::error::Result;
use crate::record::hash::{HashDb, HashReader, OpenOptions};

/// Opens an existing store of any engine for reading and writing, with default options.
///
/// `Mismatch` if it is no azekura file or of a newer version, `Locked` if it is open for writing.
pub fn open(path: &Path) -> Result<Box<dyn Engine>> {
    open_to_grow(path, OpenOptions::new().capacity)
}

/// As [`open`], of a store that may become as large as `capacity`. `Invalid` if that is too small for it.
pub fn open_to_grow(path: &Path, capacity: u64) -> Result<Box<dyn Engine>> {
    let options = OpenOptions::new().capacity(capacity);
    Ok(Box::new(HashDb::open(path, &options)?))
}

/// Opens an existing store of any engine for reading, concurrently with its writer if there is one.
pub fn open_read_only(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(HashReader::open(path)?))
}

/// As [`open_read_only`], but of a damaged store it reads also the records of which a newer version may be lost: for who
/// takes out what there is, and reports that by `damage`.
pub fn open_damaged(path: &Path) -> Result<Box<dyn Reader>> {
    Ok(Box::new(HashReader::open(path)?.reading_doubtful()))
}
