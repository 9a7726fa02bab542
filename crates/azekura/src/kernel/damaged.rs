//! The damaged file that a repair reads.
//!
//! It is only read, and no process writes it while it is: a repair would bring over half of a change. A copy of it that a repair works on
//! keeps its path, so that what is found is of the file, not of the copy, which is made where the target is to be.
//!
//! It does not know what a file holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Kind, Result};
use crate::io::file::{File, Files};
use crate::io::over::Over;
use crate::io::{Access, Directory as _, Storage};

/// The file, which no process writes meanwhile: for writing, though nothing is written; for reading where it may only be read.
/// `Locked` if a process writes it; `Io`.
pub(crate) fn open(damaged: &Path) -> Result<Arc<dyn Storage>> {
    let storage = match File::open(damaged, Access::Write) {
        Err(error) if error.kind() != Kind::Locked => {
            let storage = File::open(damaged, Access::Read).map_err(|_| error)?;
            keep_unchanged(&storage)?;
            storage
        }
        other => other?,
    };
    Ok(Arc::new(storage))
}

/// Keeps writers away from a file that was opened for reading, as long as it is open. Who may write it may be another user.
pub(crate) fn keep_unchanged(storage: &File) -> Result<()> {
    let remedy = "end that process, or repair a copy";
    let kept = storage.keep_writers_out();
    kept.map_err(|error| match error.kind() {
        Kind::Locked => error.remedy(remedy),
        _ => error,
    })
}

/// An empty copy of a damaged file, in the folder where `target` is to be, without a name there: it is gone with its handle.
pub(crate) fn copy_of(damaged: &dyn Storage, target: &Path) -> Result<Arc<dyn Storage>> {
    let (directory, name) = Files::of(target);
    let copy = directory.create_nameless(name)?;
    let path = damaged.path().to_path_buf();
    Ok(Arc::new(Copied { copy, path }))
}

/// A copy, under the path of the file that it is of.
#[derive(Debug)]
struct Copied {
    copy: Arc<dyn Storage>,
    path: PathBuf,
}

impl Over for Copied {
    fn below(&self) -> &dyn Storage {
        self.copy.as_ref()
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
