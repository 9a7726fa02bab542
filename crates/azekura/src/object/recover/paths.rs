//! Stores by path: a new file or an existing one, a block device, or two of these.
//!
//! | created at | size |
//! |---|---|
//! | one new file | [`CreateOptions::capacity`] bytes |
//! | one device | the whole device |
//! | two places | a device is used whole; a data file has the capacity; a journal file [`CreateOptions::journal_size`], or a 64th of the data, at least 4 MiB |
//!
//! 1. An existing file is refused, and never truncated. A new one appears when it can be opened; of two, the data's before the
//!    journal's, so that a file with the journal's name is always a whole store.
//! 2. A device is used if it is blank, as far as its first and last MiB show: file systems, partition tables and stores leave marks
//!    there. [`CreateOptions::overwrite`] uses any.
//!
//! `create` and `open` do the rest.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::io::file::{File, is_device, remove, sync_directory};
use crate::io::{Access, Storage};
use crate::object::place::extent::UNIT;
use crate::object::recover::create::{JOURNAL_MIN, JOURNAL_PART};
use crate::object::{CreateOptions, OpenOptions, Repaired, Store};

/// Bytes at each end of a device that must be blank.
const MARKS: u64 = 1 << 20;

impl Store {
    /// Creates a store in a new file, or on a block device. See [`create_with_data`](Self::create_with_data).
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<Self> {
        Self::create_with_data(path, None, options, &mut |_, _| {})
    }

    /// Creates a store at `path`, a new file or a block device; with `data` the journal and the checkpoints are there, and the
    /// values at `data`, which is another new file or device. The module's text has their sizes. `progress` gets the bytes
    /// filled so far, and their total.
    ///
    /// `Invalid` if the file exists, a device is not blank, or both paths are the same; `Full` if the file system has no space;
    /// `Locked` if a device is in use. Costs a write of everything to be filled, and syncs. If it fails, it leaves no file.
    pub fn create_with_data(
        path: impl AsRef<Path>,
        data: Option<&Path>,
        options: &CreateOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let path = path.as_ref();
        let journal = New::at(path, options)?;
        let Some(data) = data else {
            journal.resize(options.capacity)?;
            let store = Self::create_on(Arc::clone(&journal.storage), None, options, progress)?;
            journal.appear()?;
            return Ok(store);
        };
        if data == path {
            return Err(
                Error::new(Kind::Invalid, "journal and values need two places")
                    .at(path)
                    .remedy("leave --data out"),
            );
        }
        let data = New::at(data, options)?;
        data.resize(options.capacity)?;
        let part = (data.storage.size()? / JOURNAL_PART).max(JOURNAL_MIN);
        let journal_size = options.journal_size.unwrap_or(part);
        journal.resize(
            journal_size
                .checked_next_multiple_of(UNIT)
                .unwrap_or(journal_size),
        )?;
        // Two places are used whole.
        let options = options.clone().journal_size(None);
        let storages = [&journal, &data].map(|new| Arc::clone(&new.storage));
        let [first, second] = storages;
        let store = Self::create_on(first, Some(second), &options, progress)?;
        data.appear()?;
        // Data without a journal is useless.
        journal.appear().inspect_err(|_| data.vanish())?;
        Ok(store)
    }

    /// Opens the store in a file or on a device; after a crash, recovers it. `Locked` if it is open anywhere, `Mismatch` if it
    /// is not an object store of a known version.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        Self::open_with_data(path, None, options)
    }

    /// As [`open`](Self::open); `data` is the other file or device of a store on two: `Mismatch` if it is another store's, or
    /// the store has another number of them.
    pub fn open_with_data(
        path: impl AsRef<Path>,
        data: Option<&Path>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let (journal, data) = alone(path.as_ref(), data)?;
        Self::open_on(journal, data, options)
    }

    /// Repairs the store in a file or on a device, in place. See [`repair_on`](Self::repair_on).
    pub fn repair(path: impl AsRef<Path>, progress: &mut dyn FnMut(u64, u64)) -> Result<Repaired> {
        Self::repair_with_data(path, None, progress)
    }

    /// As [`repair`](Self::repair); `data` is the other file or device of a store on two.
    pub fn repair_with_data(
        path: impl AsRef<Path>,
        data: Option<&Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Repaired> {
        let (journal, data) = alone(path.as_ref(), data)?;
        Self::repair_on(&journal, data.as_ref(), progress)
    }
}

type Shared = Arc<dyn Storage>;

/// Opens a file or device exclusively.
fn alone(journal: &Path, data: Option<&Path>) -> Result<(Shared, Option<Shared>)> {
    let open = |path| -> Result<Shared> { Ok(Arc::new(File::open_alone(path)?)) };
    Ok((open(journal)?, data.map(open).transpose()?))
}

/// A storage that becomes a part of a new store.
struct New {
    storage: Shared,
    is_file: bool,
}

impl New {
    /// A new file without a name, or a device that may be used.
    fn at(path: &Path, options: &CreateOptions) -> Result<Self> {
        let is_file = !is_device(path);
        let file = if is_file {
            File::create_nameless(path)?
        } else {
            let device = File::open(path, Access::Write)?;
            if !options.overwrite {
                refuse_marks(&device, path)?;
            }
            device
        };
        Ok(Self {
            storage: Arc::new(file),
            is_file,
        })
    }

    /// Resizes a file; a device keeps its size.
    fn resize(&self, size: u64) -> Result<()> {
        if self.is_file {
            self.storage.resize(size)?;
        }
        Ok(())
    }

    /// Removes the name of a file.
    fn vanish(&self) {
        if self.is_file {
            let _ = remove(self.storage.path());
        }
    }

    /// Links a file to its name.
    fn appear(&self) -> Result<()> {
        if self.is_file {
            self.storage.take_name()?;
            // As `io::create_whole`: a name that could not be made durable is no store's.
            sync_directory(self.storage.path()).inspect_err(|_| self.vanish())?;
        }
        Ok(())
    }
}

/// Refuses a device with anything written at its ends.
fn refuse_marks(device: &File, path: &Path) -> Result<()> {
    let size = device.size()?;
    let mut bytes = vec![0; MARKS.min(size) as usize];
    for offset in [0, size - bytes.len() as u64] {
        device.read_at(offset, &mut bytes)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Err(Error::new(Kind::Invalid, "the device is not blank")
                .at(path)
                .offset(offset + at as u64)
                .remedy("choose another one, or lose what is on it: --force"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::refusal;
    use crate::object::{ObjectId, StoreReader};

    fn options() -> CreateOptions {
        CreateOptions::new().capacity(8 << 20).background(false)
    }

    fn quiet() -> impl FnMut(u64, u64) {
        |_, _| {}
    }

    #[test]
    fn a_store_on_two_files_is_made_opened_looked_at_and_repaired_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let [journal, data] = ["journal", "data"].map(|name| folder.path().join(name));
        let filled = options().fill(true);
        let mut given = (0, 0);
        let store = Store::create_with_data(&journal, Some(&data), &filled, &mut |done, all| {
            given = (done, all);
        });
        let store = store.unwrap();
        assert_eq!(given, ((8 << 20) - 8192, (8 << 20) - 8192));
        let size = |path| std::fs::metadata(path).unwrap().len();
        // The least journal there is by default.
        assert_eq!([size(&journal), size(&data)], [4 << 20, 8 << 20]);
        store.put(ObjectId(1), &vec![7; 100_000]).unwrap();
        store.close().unwrap();
        let store = Store::open_with_data(&journal, Some(&data), &options().opening).unwrap();
        assert_eq!(store.head(ObjectId(1)).unwrap(), Some(100_000));
        store.close().unwrap();
        let reader = StoreReader::open(&journal, Some(&data)).unwrap();
        assert_eq!(reader.count(), 1);
        drop(reader);
        let repaired = Store::repair_with_data(&journal, Some(&data), &mut quiet()).unwrap();
        assert_eq!((repaired.objects, repaired.damaged), (1, 0));
        for (path, other) in [(&journal, None), (&data, None), (&data, Some(&journal))] {
            let other = other.map(std::path::PathBuf::as_path);
            let opened = Store::open_with_data(path, other, &options().opening);
            refusal(opened, Kind::Mismatch);
        }
        // A journal of a size of its own.
        let [journal, data] = ["one", "other"].map(|name| folder.path().join(name));
        let given = options().journal_size(1 << 20);
        let store = Store::create_with_data(&journal, Some(&data), &given, &mut quiet());
        drop(store.unwrap());
        assert_eq!([size(&journal), size(&data)], [1 << 20, 8 << 20]);
    }

    #[test]
    fn what_is_there_stays_and_what_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [journal, data, other] =
            ["journal", "data", "other"].map(|name| folder.path().join(name));
        std::fs::write(&other, "somebody's own").unwrap();
        let small = options().capacity(20 << 10);
        let taken = "already a file of that name";
        for (journal, data, options, words) in [
            (&other, None, options(), taken),
            (&other, Some(&data), options(), taken),
            (&journal, Some(&other), options(), taken),
            (&journal, Some(&journal), options(), "two places"),
            (&journal, Some(&data), small, "the store is too small"),
        ] {
            let data = data.map(std::path::PathBuf::as_path);
            let refused = Store::create_with_data(journal, data, &options, &mut quiet());
            let refused = refusal(refused, Kind::Invalid);
            assert!(refused.contains(words), "{refused}");
        }
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(std::fs::read(&other).unwrap(), b"somebody's own");
    }

    #[test]
    fn sizes_need_not_be_whole_units_and_a_lost_label_is_not_called_a_blank_place() {
        let folder = tempfile::tempdir().unwrap();
        let [journal, data] = ["journal", "data"].map(|name| folder.path().join(name));
        let odd = options().journal_size(300_001);
        let store = Store::create_with_data(&journal, Some(&data), &odd, &mut quiet()).unwrap();
        store.put(ObjectId(1), &[7; 5000]).unwrap();
        assert_eq!(store.grow(Some((12 << 20) + 5)).unwrap(), (12 << 20) - 8192);
        store.close().unwrap();
        let sound = std::fs::read(&data).unwrap();
        std::fs::write(&data, [&[0; 8192], &sound[8192..]].concat()).unwrap();
        let open = || Store::open_with_data(&journal, Some(&data), &odd.opening);
        let message = open().unwrap_err().to_string();
        assert!(message.ends_with("its label is lost: run `azekura object repair` with --data"));
        Store::repair_with_data(&journal, Some(&data), &mut quiet()).unwrap();
        let store = open().unwrap();
        assert_eq!(store.get(ObjectId(1)).unwrap(), Some(vec![7; 5000].into()));
    }

    #[test]
    fn a_store_is_not_made_larger_than_its_journal_tells_nor_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let small = options()
            .journal_size(144 << 10)
            .group_size(4096)
            .capacity(256 << 10);
        let store = Store::create(&path, &small).unwrap();
        let refused = store.grow(Some(16 << 20)).unwrap_err();
        assert!(refused.to_string().contains("too small for so many groups"));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 256 << 10);
    }
}
