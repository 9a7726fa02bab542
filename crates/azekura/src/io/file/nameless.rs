//! Files before they have their name.
//!
//! A file without a name is one that the system forgets with its last handle (`O_TMPFILE`). Where the file
//! system has none, it stands next to its name as `.NAME.` and sixteen digits and `.new`; what a dead process
//! left of that kind is removed when the next file is made for that name: its lock is free, so no process makes
//! it any more. It does not know what is written before the name is taken.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

use super::folder::folder_of;
use super::{File, entropy, not_made, present};
use crate::error::{Error, Kind, Result};
use crate::io::Access;

/// Where a file stands until it takes its name.
#[derive(Debug)]
pub(super) enum Nameless {
    /// Nowhere: it is gone with its handle.
    Unlinked,
    /// Under this other name.
    Temporary(PathBuf),
}

impl File {
    /// Makes a new file for `path` that has no name yet, and locks it for writing. `Invalid` if the name
    /// exists. It gets it with [`take_name`](crate::io::Storage::take_name), or is gone with its handle.
    pub fn create_nameless(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if present(path)? {
            return Err(not_made(path, ErrorKind::AlreadyExists.into()));
        }
        // What no file can be called is refused before the file is filled.
        if let Err(error) = std::fs::symlink_metadata(path)
            && error.kind() == ErrorKind::InvalidFilename
        {
            return Err(not_made(path, error));
        }
        Self::unlinked(path)?.map_or_else(|| Self::temporary(path), Ok)
    }

    /// As [`create_nameless`](Self::create_nameless), but `path` may be a file already, which it then
    /// replaces: renamed over it, at every moment the name leads to the one or the other, whole. `Mismatch`
    /// if `path` is anything but a file.
    pub fn create_replacing(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        present(path)?;
        // A file that dies between its two names leaves the first: it is removed here.
        remove_dead(path);
        let mut file = Self::unlinked(path)?.map_or_else(|| Self::temporary(path), Ok)?;
        file.replaces = true;
        Ok(file)
    }

    /// `None`: the file system has no files without names, or none that can get one.
    pub(super) fn unlinked(path: &Path) -> Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
        let file = match options.open(folder_of(path)) {
            Ok(file) => file,
            Err(error) => match error.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => return Ok(None),
                _ => return Err(not_made(path, error)),
            },
        };
        if std::fs::symlink_metadata(descriptor_of(&file)).is_err() {
            return Ok(None);
        }
        let file = Self::locked(file, path, Access::Write)?;
        *file.nameless.lock() = Some(Nameless::Unlinked);
        Ok(Some(file))
    }

    pub(super) fn temporary(path: &Path) -> Result<Self> {
        remove_dead(path);
        loop {
            let temporary = temporary_name(path);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(&temporary).map_err(|e| not_made(path, e))?;
            // Another process may take it for a dead process's, lock it and remove it, until it is locked.
            match Self::locked(file, path, Access::Write) {
                Ok(file) if file.file.metadata().is_ok_and(|found| found.nlink() > 0) => {
                    *file.nameless.lock() = Some(Nameless::Temporary(temporary));
                    return Ok(file);
                }
                Err(error) if error.kind() != Kind::Locked => return Err(error),
                _ => {}
            }
        }
    }

    /// Makes the name of a file that has one this file's own, from whomever has it.
    fn replace(&self, temporary: &Path) -> std::result::Result<(), Errno> {
        rustix::fs::rename(temporary, &self.path)
    }

    /// As `replace`, for a file without any name. It has another in between.
    fn link_and_replace(&self) -> std::result::Result<(), Errno> {
        let temporary = temporary_name(&self.path);
        let descriptor = descriptor_of(&self.file);
        rustix::fs::linkat(CWD, &descriptor, CWD, &temporary, AtFlags::SYMLINK_FOLLOW)?;
        self.replace(&temporary).inspect_err(|_| {
            // Left behind it costs room until the next file is made for that name.
            let _ = std::fs::remove_file(&temporary);
        })
    }

    /// Gives it its name, if it has none yet.
    pub(super) fn get_name(&self) -> Result<()> {
        let mut nameless = self.nameless.lock();
        let done = match &*nameless {
            None => return Ok(()),
            Some(Nameless::Unlinked) if self.replaces => self.link_and_replace(),
            Some(Nameless::Temporary(temporary)) if self.replaces => self.replace(temporary),
            Some(Nameless::Unlinked) => {
                let descriptor = descriptor_of(&self.file);
                rustix::fs::linkat(CWD, &descriptor, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)
            }
            Some(Nameless::Temporary(temporary)) => {
                let flags = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(CWD, temporary, CWD, &self.path, flags) {
                    Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                        rustix::fs::linkat(CWD, temporary, CWD, &self.path, AtFlags::empty())
                            .and_then(|()| rustix::fs::unlink(temporary))
                    }
                    other => other,
                }
            }
        };
        done.map_err(|error| match error {
            Errno::EXIST => not_made(&self.path, error.into()),
            _ => Error::io("cannot give the file its name", error).at(&self.path),
        })?;
        *nameless = None;
        Ok(())
    }
}

/// The system's own name of an open file, through which it can be linked.
fn descriptor_of(file: &std::fs::File) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

const TEMPORARY_SUFFIX: &str = ".new";

/// How the names begin under which new files stand that are meant for `path`.
fn temporary_prefix(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    format!(".{}.", name.to_string_lossy())
}

/// Another such name.
fn temporary_name(path: &Path) -> PathBuf {
    let digits = format!("{:016x}", entropy());
    folder_of(path).join([&*temporary_prefix(path), &digits, TEMPORARY_SUFFIX].concat())
}

/// Removes what dead processes left next to `path`.
fn remove_dead(path: &Path) {
    for left in temporaries_left(path) {
        // Its lock is free: who made it is dead, or has not locked it yet and will look again.
        if let Ok(dead) = File::open(&left, Access::Write) {
            let _ = std::fs::remove_file(&left);
            drop(dead);
        }
    }
}

/// What stands next to `path` under such a name.
pub(super) fn temporaries_left(path: &Path) -> Vec<PathBuf> {
    let beginning = temporary_prefix(path);
    let is_ours = |name: &str| {
        let digits = name
            .strip_prefix(&beginning)?
            .strip_suffix(TEMPORARY_SUFFIX)?;
        (digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(())
    };
    let entries = std::fs::read_dir(folder_of(path));
    let entries = entries.into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().and_then(is_ours).is_some())
        .map(|entry| entry.path())
        .collect()
}
