//! Where an object store is, and which of its objects are meant.
//!
//! Promises: a store that a command opened is closed before the command answers, and a close that fails is an error.
//! It does not know what is done with the store.

use std::fs;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use azekura::io::file::File;
use azekura::object::{Listed, ObjectId, OpenOptions, Store, StoreReader};
use azekura::{Durability, Error, Kind, Result};

use crate::exit::Outcome;
use crate::output::note;

/// The file or device of a store, or both of them.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Place {
    /// The store, a file or a block device; with --data the one of its journal
    store: PathBuf,
    /// The other file or device, of a store whose values have one of their own
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
}

impl Place {
    /// The store's path, as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.store
    }

    /// The path of its values, if that is another.
    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// Where a value is.
    pub(crate) fn device(&self) -> &Path {
        self.data.as_deref().unwrap_or(&self.store)
    }

    /// `Invalid` if both paths lead to one file or device.
    pub(crate) fn refuse_one(&self) -> Result<()> {
        // Two nodes of one device have its number.
        let identity = |path: &Path| {
            let found = fs::metadata(path).ok()?;
            Some(match found.rdev() {
                0 => (found.dev(), found.ino()),
                device => (device, 0),
            })
        };
        let is_one = self.data().is_some_and(|data| {
            let one = identity(self.path());
            data == self.path() || one.is_some() && one == identity(data)
        });
        if !is_one {
            return Ok(());
        }
        let what = "journal and values need two places";
        Err(Error::new(Kind::Invalid, what)
            .at(self.path())
            .remedy("leave --data out, or give the other file or device of the store"))
    }

    /// Refuses a store that is not there, before anything is done for it.
    pub(crate) fn refuse_missing(&self) -> Result<()> {
        self.refuse_one()?;
        for path in [Some(self.path()), self.data()].into_iter().flatten() {
            if fs::metadata(path).is_err() {
                File::open_alone(path).map_err(made_first)?;
            }
        }
        Ok(())
    }

    /// Opens the store, has `work` done, and closes it.
    pub(crate) fn with<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Store) -> Result<T>,
    ) -> Result<T> {
        self.with_options(OpenOptions::new().durability(durability), work)
    }

    /// As [`with`](Self::with), with options.
    pub(crate) fn with_options<T>(
        &self,
        options: OpenOptions,
        work: impl FnOnce(&Store) -> Result<T>,
    ) -> Result<T> {
        // Only its user waits for a command.
        let options = options.background(false);
        self.refuse_one()?;
        let store = Store::open_with_data(&self.store, self.data(), &options)
            .map_err(|error| made_first(error).at(&self.store))?;
        let done = work(&store)?;
        store.close()?;
        Ok(done)
    }

    /// Opens the store, has `work` look at it, and leaves the file as it was. Known damage is printed on standard error.
    pub(crate) fn look<T>(&self, work: impl FnOnce(&StoreReader) -> Result<T>) -> Result<T> {
        self.refuse_one()?;
        let store = StoreReader::open(&self.store, self.data())
            .map_err(|error| made_first(error).at(&self.store))?;
        for damage in store.damage() {
            note!("azekura: damage: {damage}");
        }
        if store.is_degraded() {
            note!("azekura: the store is damaged: run `azekura object check`, then `repair`");
        }
        work(&store)
    }
}

/// What to do if there is nothing at a store's path.
pub(crate) fn made_first(error: Error) -> Error {
    let is_missing = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    if error.system().is_some_and(is_missing) {
        error.remedy("check the path, or make the store with `azekura object create`")
    } else {
        error
    }
}

/// The ids that arguments name.
pub(crate) fn ids(texts: &[String]) -> Result<Vec<ObjectId>> {
    texts.iter().map(|text| text.parse()).collect()
}

/// Shows the objects of a range until `show` returns false; returns how the command ends. Damage, and doubt, is reported on standard
/// error, once, after what is known.
pub(crate) fn each_listed(
    store: &StoreReader,
    ids: Bounds,
    mut show: impl FnMut(Listed) -> Result<bool>,
) -> Result<Outcome> {
    let mut damage = None;
    for object in store.list(ids) {
        match object {
            Ok(listed) => {
                if !show(listed)? {
                    break;
                }
            }
            Err(error) if [Kind::Corrupted, Kind::Io].contains(&error.kind()) => {
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(match damage {
        Some(error) => {
            note!("azekura: {error}");
            Outcome::Damaged
        }
        None => outcome_of(store),
    })
}

/// How a command ends that showed what a store holds: one that is damaged shows what is left.
pub(crate) fn outcome_of(store: &StoreReader) -> Outcome {
    Outcome::of_whole(!store.is_degraded())
}

/// States which objects there are not.
pub(crate) fn absent(ids: &[ObjectId]) {
    for id in ids {
        note!("azekura: absent: {id}");
    }
}

/// A range of ids, as the library takes it.
pub(crate) type Bounds = (Bound<ObjectId>, Bound<ObjectId>);

/// A range of ids.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Ids {
    /// Begin with this id [default: the lowest]
    #[arg(long, value_name = "ID")]
    first: Option<String>,
    /// End before this id [default: after the highest]
    #[arg(long, value_name = "ID")]
    end: Option<String>,
}

impl Ids {
    /// Whether the range has a beginning or an end.
    pub(crate) fn is_given(&self) -> bool {
        self.first.is_some() || self.end.is_some()
    }

    /// The range. `Invalid` if they are no ids, or in the wrong order.
    pub(crate) fn read(&self) -> Result<Bounds> {
        let read = |text: &Option<String>| text.as_deref().map(str::parse::<ObjectId>).transpose();
        let (first, end) = (read(&self.first)?, read(&self.end)?);
        if let (Some(first), Some(end)) = (first, end)
            && end < first
        {
            let what = "the range of ids ends before it begins";
            return Err(Error::new(Kind::Invalid, what)
                .found(format!("--first {first}, --end {end}"), "them in order"));
        }
        Ok((
            first.map_or(Bound::Unbounded, Bound::Included),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}
