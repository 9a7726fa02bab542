//! A file for each object: what a file system does without a store.
//!
//! ```text
//!   PATH/h1/h2/h3/ID      h: the low three bytes of a hash of the id, each in two hexadecimal digits
//! ```
//!
//! With class `process` a put creates or truncates the file and writes it, as in the published benchmark:
//! what is acknowledged is in the page cache. A crash in the middle leaves a part of the value. With
//! `power` it is written under another name, synced, renamed, and the folder is synced; a folder that is made is synced
//! into the one above. That alone is comparable with a store that is durable on acknowledge. It does not
//! report whether a put replaced something. It counts a read for each value, a write for each, and every sync; what the file
//! system makes of them it cannot see. It knows nothing of other processes in the folder.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::error::{Error, Kind, Result};

use crate::generate::mix;
use crate::measure::{Counters, Counting};
use crate::object::store::{Found, Objects, Setup};
use crate::phase::Class;

struct Files {
    root: PathBuf,
    power: bool,
    /// Numbers for the names of files that are being written.
    next: AtomicU64,
    counting: Counting,
}

/// Opens or makes the folder. Errors: `Invalid` (no path, a class it does not have, a folder that is there
/// or is not), `Io`.
pub fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    let root = setup.require_path()?.clone();
    let class = setup.require_class("files", &[Class::Process, Class::Power])?;
    if setup.create {
        fs::create_dir(&root)
            .map_err(|error| Error::io("cannot make the folder", error).at(&root))?;
    } else if !root.is_dir() {
        return Err(Error::new(Kind::Invalid, "there is no folder of objects").at(&root));
    }
    let power = class == Class::Power;
    Ok(Box::new(Files {
        root,
        power,
        next: AtomicU64::new(0),
        counting: Counting::default(),
    }))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_path_buf();
    move |error| Error::io(what, error).at(path)
}

impl Files {
    fn sync_folder(&self, path: &Path) -> Result<()> {
        let folder = File::open(path).map_err(failed("cannot open the folder", path))?;
        self.counting.sync();
        folder
            .sync_all()
            .map_err(failed("cannot sync the folder", path))
    }

    fn place(&self, id: u128) -> PathBuf {
        let hash = mix(mix(id as u64) ^ (id >> 64) as u64);
        let [h1, h2, h3, ..] = hash.to_le_bytes();
        self.root
            .join(format!("{h1:02x}/{h2:02x}/{h3:02x}/{id:032x}"))
    }

    /// Makes the folder of a file and those above it, durably on request.
    fn make_folder(&self, folder: &Path) -> Result<()> {
        let (Some(above), false) = (folder.parent(), folder == self.root) else {
            return Ok(());
        };
        let mut made = fs::create_dir(folder);
        if made
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            self.make_folder(above)?;
            made = fs::create_dir(folder);
        }
        match made {
            Ok(()) if self.power => self.sync_folder(above),
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(failed("cannot make a folder", folder)(error))
            }
            _ => Ok(()),
        }
    }

    fn create(&self, path: &Path, folder: &Path) -> Result<File> {
        match File::create(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make_folder(folder)?;
                File::create(path)
            }
            made => made,
        }
        .map_err(failed("cannot make a file", path))
    }
}

impl Objects for Files {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        let path = self.place(id);
        let folder = path.parent().unwrap_or(&self.root);
        let written = if self.power {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            folder.join(format!("{number}.new"))
        } else {
            path.clone()
        };
        let mut file = self.create(&written, folder)?;
        self.counting.write();
        file.write_all(value)
            .map_err(failed("cannot write", &written))?;
        if self.power {
            self.counting.sync();
            file.sync_data().map_err(failed("cannot sync", &written))?;
            fs::rename(&written, &path).map_err(failed("cannot rename", &written))?;
            self.sync_folder(folder)?;
        }
        Ok(None)
    }

    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let path = self.place(id);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed("cannot open", &path))?,
        };
        let size = file.metadata().map_or(0, |meta| meta.len());
        let mut value = Vec::with_capacity(size as usize);
        self.counting.read();
        file.read_to_end(&mut value)
            .map_err(failed("cannot read", &path))?;
        Ok(Some(Box::new(value)))
    }

    fn remove(&self, id: u128) -> Result<Option<bool>> {
        let path = self.place(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(false)),
            removed => removed.map_err(failed("cannot remove", &path))?,
        }
        if self.power {
            self.sync_folder(path.parent().unwrap_or(&self.root))?;
        }
        Ok(Some(true))
    }

    fn sync(&self) -> Result<()> {
        let root = File::open(&self.root).map_err(failed("cannot open the folder", &self.root))?;
        self.counting.sync();
        rustix::fs::syncfs(&root)
            .map_err(|error| failed("cannot sync the file system", &self.root)(error.into()))
    }

    fn counters(&self) -> Option<Counters> {
        Some(self.counting.counters())
    }
}
