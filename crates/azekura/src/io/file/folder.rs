//! A folder of files, and what is done to their names.
//!
//! Names are relative to the folder. A name that was made, changed or removed is durable when the folder was
//! synced, not before. It does not know what the files hold, nor who has them open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::File;
use crate::error::{Error, Result};
use crate::io::{Access, Directory, Storage};

/// The folder a path lies in.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the name of `path` durable: syncs the folder it is in.
pub fn sync_directory(path: impl AsRef<Path>) -> Result<()> {
    sync_folder(folder_of(path.as_ref()))
}

fn sync_folder(folder: &Path) -> Result<()> {
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| Error::io("cannot sync the folder", e).at(folder))
}

/// Removes a file.
pub fn remove(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    std::fs::remove_file(path).map_err(|e| Error::io("cannot remove", e).at(path))
}

/// A folder of files.
#[derive(Clone, Debug)]
pub struct Files(PathBuf);

impl Files {
    /// The folder at `path`, which must exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder a path lies in, and its name there.
    pub fn of(path: &Path) -> (Self, &Path) {
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => (Self::new(folder), Path::new(name)),
            // A root, or a way up: there is no file of that name.
            _ => (Self::new(""), path),
        }
    }
}

impl Directory for Files {
    fn create(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(File::create(self.0.join(name))?))
    }

    fn create_nameless(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(File::create_nameless(self.0.join(name))?))
    }

    fn create_replacing(&self, name: &Path) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(File::create_replacing(self.0.join(name))?))
    }

    fn open(&self, name: &Path, access: Access) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(File::open(self.0.join(name), access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
            .map_err(|e| Error::io("cannot rename", e).at(self.0.join(from)))
    }

    fn remove(&self, name: &Path) -> Result<()> {
        std::fs::remove_file(self.0.join(name))
            .map_err(|e| Error::io("cannot remove", e).at(self.0.join(name)))
    }

    fn exists(&self, name: &Path) -> Result<bool> {
        let path = self.0.join(name);
        path.try_exists()
            .map_err(|e| Error::io("cannot look for the file", e).at(path))
    }

    fn list(&self) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.0)
            .map_err(|e| Error::io("cannot list the folder", e).at(&self.0))?;
        let mut names: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.file_name().into())
            .collect();
        names.sort();
        Ok(names)
    }

    fn sync(&self) -> Result<()> {
        sync_folder(if self.0.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &self.0
        })
    }
}
