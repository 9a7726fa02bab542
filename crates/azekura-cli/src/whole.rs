//! Whole files: a value that is read from one, and results that appear as one.
//!
//! Promises: a file that is written appears whole or not at all, and one that is broken off leaves nothing; a pipe or a
//! device is written to as it is; a store is never replaced. What is read is bounded.
//! It does not know what the bytes mean.

use std::fs;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;

use azekura::io::Storage as _;
use azekura::io::file::{self, File};
use azekura::{Error, Kind, Result};
use azekura_bench::outputs::refuse_store;
use rustix::fs::{OFlags, fcntl_getfl, fstat, stat};

/// Bytes that are read between two reports.
const PIECE: u64 = 1 << 20;

/// Writes the results of a command; an error of its writer is for the closure to name.
pub(crate) type Write<'w> = dyn FnMut(&mut dyn io::Write) -> Result<()> + 'w;

/// The bytes of a file or of standard input (`-`), at most one more than `limit`, which the store refuses.
pub(crate) fn read(source: &Path, limit: u64) -> Result<Vec<u8>> {
    read_reporting(source, limit, &mut |_| ())
}

/// As [`read`]; `progress` gets how many bytes there are so far.
pub(crate) fn read_reporting(
    source: &Path,
    limit: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<u8>> {
    let bound = limit.saturating_add(1);
    let read = if is_standard_input(source) {
        standard_input().and_then(|input| read_from(input.take(bound), 0, progress))
    } else {
        let expected = len_of(source).unwrap_or(0).min(bound);
        fs::File::open(source).and_then(|file| read_from(file.take(bound), expected, progress))
    };
    read.map_err(|error| unreadable("cannot read the value", error, source))
}

/// The error of an input that cannot be read, with what its user can do.
pub(crate) fn unreadable(what: &str, error: io::Error, source: &Path) -> Error {
    let remedy = if is_standard_input(source) {
        "give the input by a pipe, or name a file (/dev/null for no bytes)"
    } else {
        "check the path, and that you may read it"
    };
    refused(what, error, source, remedy)
}

/// The error of a target that cannot be written, with what its user can do.
pub(crate) fn unwritable(what: &str, error: io::Error, target: &Path) -> Error {
    refused(what, error, target, "name another target")
}

/// A folder is no file, whatever the system would do with it. Where there is no room, the error states its own remedy.
fn refused(what: &str, error: io::Error, path: &Path, remedy: &str) -> Error {
    if error.kind() == io::ErrorKind::IsADirectory {
        return Error::new(Kind::Invalid, what)
            .at(path)
            .found("a folder", "a file")
            .remedy("give the path of the file itself");
    }
    let error = Error::io(what, error).at(path);
    if error.kind() == Kind::Full {
        return error;
    }
    error.remedy(remedy)
}

/// Standard input. An error if the process was started without one: Rust puts the null device in its place, open for reading and
/// writing, where a value would be found to be empty.
pub(crate) fn standard_input() -> io::Result<io::StdinLock<'static>> {
    let input = io::stdin().lock();
    let access = OFlags::RWMODE & fcntl_getfl(&input)?;
    let (found, null) = (fstat(&input)?, stat("/dev/null")?);
    if access == OFlags::RDWR && (found.st_dev, found.st_ino) == (null.st_dev, null.st_ino) {
        return Err(io::Error::other("standard input is closed"));
    }
    Ok(input)
}

/// How long a source is, if that is known before it is read.
pub(crate) fn len_of(source: &Path) -> Option<u64> {
    let found = fs::metadata(source).ok().filter(fs::Metadata::is_file)?;
    (!is_standard_input(source)).then_some(found.len())
}

fn is_standard_input(source: &Path) -> bool {
    source == Path::new("-")
}

fn read_from(
    mut from: impl io::Read,
    expected: u64,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    value.try_reserve_exact(expected as usize)?;
    while from.by_ref().take(PIECE).read_to_end(&mut value)? > 0 {
        progress(value.len() as u64);
    }
    Ok(value)
}

/// Writes what `write` gives to `target`; `refused` names what could not be written. A file that is there is replaced in
/// one step, unless it is a store.
pub(crate) fn write(target: &Path, refused: &'static str, write: &mut Write<'_>) -> Result<()> {
    let failed = |error| unwritable(refused, error, target);
    match fs::metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace(target, &failed, write),
        Err(error) => Err(failed(error)),
        Ok(there) if there.is_file() => {
            refuse_store(target, refused)?;
            // What a symbolic link leads to is replaced, not the link.
            let target = fs::canonicalize(target).map_err(failed)?;
            replace(&target, &failed, write)
        }
        // Putting a file in its place would take a device away from all other programs.
        Ok(_) => {
            let to = fs::OpenOptions::new().write(true).open(target);
            buffered(to.map_err(failed)?, &failed, write)
        }
    }
}

/// Puts the results in the place of `target` in one step, with owner and mode of a file that was there.
fn replace(
    target: &Path,
    failed: &dyn Fn(io::Error) -> Error,
    write: &mut Write<'_>,
) -> Result<()> {
    let new = File::create_replacing(target)?;
    buffered(new.as_stream(), failed, write)?;
    if target.exists() {
        new.keep_owner_and_mode_of(target)?;
    }
    new.sync()?;
    new.take_name()?;
    file::sync_directory(target)
}

fn buffered(
    to: impl io::Write,
    failed: &dyn Fn(io::Error) -> Error,
    write: &mut Write<'_>,
) -> Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 16, to);
    write(&mut writer)?;
    writer.flush().map_err(failed)
}
