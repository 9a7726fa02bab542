//! Drops a store from the system's caches, so that the next phase reads the device.
//!
//! As root all of the machine's page, folder and inode caches are dropped, as the published benchmark did
//! before each phase: that also slows down other processes. Otherwise the pages of the store's
//! files are given up, file by file; folders and inodes stay. Which of the two was done is part of the result.

use std::fs::{self, File};
use std::path::Path;

use azekura::error::{Error, Result};
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

/// What was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forgot {
    /// All it kept of any file.
    Caches,
    /// The pages of the store's files.
    Pages,
}

/// Writes out what is dirty of the file or folder at `path`, and forgets as much as it may.
pub fn forget(path: &Path) -> Result<Forgot> {
    give_up_pages(path)?;
    // Refused to all but root; and tests must not slow down other processes.
    let all = !cfg!(test) && fs::write("/proc/sys/vm/drop_caches", "3").is_ok();
    Ok(if all { Forgot::Caches } else { Forgot::Pages })
}

pub(crate) fn give_up_pages(path: &Path) -> Result<()> {
    each_file(path, &|file| {
        file.sync_all()?;
        fadvise(file, 0, None, Advice::DontNeed).map_err(Into::into)
    })
}

/// Writes out what is dirty of the file or folder at `path`; its pages stay.
pub(crate) fn write_out(path: &Path) -> Result<()> {
    each_file(path, &File::sync_all)
}

fn each_file(path: &Path, act: &dyn Fn(&File) -> std::io::Result<()>) -> Result<()> {
    let failed = |error| Error::io("cannot write out the pages of the store", error).at(path);
    let meta = fs::metadata(path).map_err(failed)?;
    if meta.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            each_file(&entry.map_err(failed)?.path(), act)?;
        }
        return Ok(());
    }
    let file = File::open(path).map_err(failed)?;
    act(&file).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_every_file_in_a_folder_are_given_up_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        let file = folder.path().join("in/b");
        fs::write(&file, [1; 5]).unwrap();
        write_out(folder.path()).unwrap();
        give_up_pages(folder.path()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), [1; 5]);
        for act in [write_out, give_up_pages] {
            assert!(act(&folder.path().join("gone")).is_err());
        }
    }
}
