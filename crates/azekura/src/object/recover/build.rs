//! The parts of an open store, built from its superblock and root: the log, the data device, and `Core`.
//!
//! Creating, opening and repairing a store all begin here. Nothing is read from storage: the superblock and the root, which
//! the caller has, state everything; leaves and lists are read when they are needed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::{Error, Kind, Result, size};
use crate::explore::{Mutex, RwLock};
use crate::io::Storage;
use crate::io::counted::{Counted, Counts};
use crate::io::direct::DirectFile;
use crate::io::front::Front;
use crate::kernel::SuperblockPair;
use crate::log::{Geometry, Log};
use crate::object::checkpoint::images::{CorrectedBits, Images};
use crate::object::checkpoint::root::Root;
use crate::object::checkpoint::superblock::Super;
use crate::object::checkpoint::{Checkpoint, leaf_image_max};
use crate::object::index::Index;
use crate::object::place::buffers::Buffers;
use crate::object::place::long::Flights;
use crate::object::place::space::{Space, Unclaimed};
use crate::object::times::Clocks;
use crate::object::write::small::PackedExtents;
use crate::object::{Allocator, Core, OpenOptions};

/// Units are written one at a time: a longer sector would be rewritten together with its other units.
pub(crate) fn check_sectors(data: &dyn Storage, alignment: u32) -> Result<()> {
    let (found, most) = (data.alignment(), u64::from(alignment));
    if found > most {
        let what = "the device's sectors are longer than those of the store";
        return Err(Error::new(Kind::Mismatch, what)
            .at(data.path())
            .found(size(found), format!("at most {}", size(most)))
            .remedy("use a device with shorter ones; `azekura object copy` brings a store there"));
    }
    Ok(())
}

/// The storage of the data: with direct access, if the options ask for it and the file system has it.
pub(crate) fn data_of(
    journal: &Arc<dyn Storage>,
    data: Option<&Arc<dyn Storage>>,
    options: &OpenOptions,
) -> Arc<dyn Storage> {
    let storage = data.unwrap_or(journal);
    let direct = storage
        .as_file()
        .filter(|_| options.direct)
        .and_then(|file| DirectFile::reopened(file).ok());
    match direct {
        Some(direct) => Arc::new(direct),
        None => Arc::clone(storage),
    }
}

pub(crate) fn open_log(front: Arc<Front>, geometry: Geometry, size: u64) -> Result<Log> {
    let map = front.map(size.next_multiple_of(4096))?;
    // Few pages change between two syncs.
    map.advise_plain();
    Log::new(front, map, geometry)
}

pub(crate) fn build(
    log: Log,
    data: Arc<dyn Storage>,
    counts: Arc<Counts>,
    options: &OpenOptions,
    superblock: SuperblockPair<Super>,
    root: Option<&Root>,
) -> Result<(Core, Unclaimed)> {
    let state = Checkpoint::found(superblock, root);
    let payload = state.last();
    check_sectors(data.as_ref(), payload.alignment)?;
    let storage = Arc::clone(log.storage());
    let salt = payload.geometry.salt;
    let corrected: Arc<CorrectedBits> = Arc::default();
    let images = || Images::new(&storage, salt, payload.units).correcting(&corrected);
    let (source, lists) = (images(), images());
    let root = root.filter(|_| payload.root.is_some());
    let (space, unclaimed) = Space::new(
        payload.units,
        payload.group_units,
        root.map(|root| &root.groups[..]),
        Box::new(lists),
    );
    let alignment = data.alignment();
    let leaves = root.map_or_else(Vec::new, |root| root.leaves.clone());
    let core = Core {
        log,
        data: Counted::over(data, &counts),
        counts,
        times: Clocks::new()?,
        salt,
        data_offset: payload.data_offset,
        group_units: payload.group_units,
        devices: payload.devices,
        options: options.clone(),
        index: Index::new(leaves, Box::new(source), leaf_image_max(payload.geometry)),
        locks: Arc::default(),
        buffers: Arc::new(Buffers::new(alignment)),
        flights: Flights::default(),
        notify: Arc::default(),
        gate: RwLock::new(()),
        batch: Mutex::default(),
        allocator: Mutex::new(Allocator {
            space,
            sequence: payload.sequence,
            in_progress: std::collections::BTreeMap::new(),
            packed_extents: root.map_or_else(PackedExtents::default, |root| {
                PackedExtents::of(&root.packed_extents)
            }),
        }),
        checkpoint: Mutex::new(state),
        flaws: std::sync::OnceLock::new(),
        corrected,
        unsynced: AtomicU64::new(0),
    };
    Ok((core, unclaimed))
}
