//! Reading images of a checkpoint: leaves of the index, lists of free space.
//!
//! An image is verified against its checksum, and its values against the store's size. The images of an open store are read with
//! one wrong bit corrected, and the place is recorded: `Store::damage` reports it, and the image stays as it is until a
//! checkpoint writes it again. A repair reads them as they are.
//!
//! The root lists the images.

use std::path::Path;
use std::sync::Arc;

use crate::damage::Damage;
use crate::error::{Error, Kind, Result};
use crate::explore::Mutex;
use crate::io::Storage;
use crate::kernel;
use crate::log::manifest::{Extent, read_extent, read_extent_corrected};
use crate::object::ObjectId;
use crate::object::checkpoint::root::Root;
use crate::object::checkpoint::superblock::Super;
use crate::object::checkpoint::{leaf_seed, list_seed};
use crate::object::index::{self, Entry, Image, Leaf};
use crate::object::place::list::decode_runs;
use crate::object::place::runs::Runs;
use crate::object::place::space;

/// Images of a checkpoint.
pub(crate) struct Images {
    storage: Arc<dyn Storage>,
    salt: u32,
    /// Units of the store: no object ends after them.
    units: u64,
    /// Where corrected bits are recorded; `None`: none is corrected.
    corrected: Option<Arc<CorrectedBits>>,
}

/// Places of images of which one wrong bit was corrected when they were read.
#[derive(Debug, Default)]
pub(crate) struct CorrectedBits(Mutex<Vec<Damage>>);

impl CorrectedBits {
    pub(crate) fn list(&self) -> Vec<Damage> {
        self.0.lock().clone()
    }

    /// Adds damage, once.
    #[cold]
    fn add(&self, damage: Damage) {
        let mut list = self.0.lock();
        if !list.contains(&damage) {
            list.push(damage);
        }
    }
}

impl Images {
    /// Without correction: an image that does not verify is an error.
    pub(crate) fn new(storage: &Arc<dyn Storage>, salt: u32, units: u64) -> Self {
        Self {
            storage: Arc::clone(storage),
            salt,
            units,
            corrected: None,
        }
    }

    /// One wrong bit of an image is corrected, and recorded.
    pub(crate) fn correcting(self, corrected: &Arc<CorrectedBits>) -> Self {
        Self {
            corrected: Some(Arc::clone(corrected)),
            ..self
        }
    }

    /// Of the device on which they are.
    pub(crate) fn path(&self) -> &Path {
        self.storage.path()
    }

    fn read(&self, extent: Extent, seed: u32, what: &str) -> Result<Vec<u8>> {
        let storage = self.storage.as_ref();
        let read = match &self.corrected {
            None => read_extent(storage, extent, seed, what),
            Some(corrected) => {
                read_extent_corrected(storage, extent, seed, what).map(|(bytes, bit)| {
                    if let Some(offset) = bit {
                        corrected.add(Damage::of_bit(storage.path(), offset, what));
                    }
                    bytes
                })
            }
        };
        read.map_err(|error| to_repair(error, storage))
    }

    pub(crate) fn impossible(&self, what: &str, image: Extent) -> Error {
        Error::new(Kind::Corrupted, format!("{what} holds impossible values"))
            .at(self.storage.path())
            .offset(image.offset)
            .remedy("run `azekura object repair`")
    }
}

impl index::Source for Images {
    fn load(&self, image: &Image, first: ObjectId, end: Option<ObjectId>) -> Result<Leaf> {
        let what = "a part of the index";
        let seed = leaf_seed(self.salt, first);
        let bytes = self.read(image.extent, seed, what)?;
        let impossible = || self.impossible(what, image.extent);
        let leaf = Leaf::of_image(&bytes, first, end).ok_or_else(impossible)??;
        let within = |(_, entry): (ObjectId, Entry)| entry.is_within(self.units);
        if leaf.len() as u64 != u64::from(image.count) || !leaf.entries().all(within) {
            return Err(impossible());
        }
        Ok(leaf)
    }
}

impl space::Source for Images {
    fn runs(&self, group: u32, image: Extent, limit: u32) -> Result<Runs> {
        let what = "the list of a group";
        let bytes = self.read(image, list_seed(self.salt, group), what)?;
        decode_runs(&bytes, limit).unwrap_or_else(|| Err(self.impossible(what, image)))
    }
}

/// The root of the last checkpoint; of a store without one, an empty one.
pub(crate) fn read_root(storage: &dyn Storage, last: &Super) -> Result<Root> {
    let decode = |bytes: &[u8]| {
        Root::decode(bytes).filter(|root| root.is_within(last.units, last.group_units))
    };
    let read = kernel::checkpoint::read_root(storage, last, false, decode)
        .map_err(|error| to_repair(error, storage))?;
    Ok(match read {
        None => Root {
            sequence: last.sequence,
            ..Root::default()
        },
        Some((root, read)) => Root {
            pieces: read.pieces,
            ..root
        },
    })
}

/// Replaces the log's remedy, which is for record stores, by the object store's.
pub(crate) fn to_repair(error: Error, storage: &dyn Storage) -> Error {
    if error.kind() == Kind::Corrupted {
        let path = storage.path().display();
        return error.remedy(format!("run `azekura object repair {path}`"));
    }
    error
}
