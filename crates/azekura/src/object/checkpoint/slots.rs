//! Reading the superblock and the root of a store, as an opener, a check and a repair do.
//!
//! Both slots of a superblock are read, each by itself: one that the device refuses does not hide the other. An error states
//! what stands in the place of a superblock, and what to do.

use crate::error::{Error, Kind, Result};
use crate::format::superblock::{self, Superblock};
use crate::io::Storage;
use crate::log::root;
use crate::object::checkpoint::images::to_repair;
use crate::object::checkpoint::root::{ROOT_SEED, Root};
use crate::object::checkpoint::superblock::{DATA, ENGINE, Super};

/// The slots of a superblock or label, each read by itself.
pub(crate) struct Slots {
    /// Both; zeros where one cannot be read.
    pub(crate) head: Vec<u8>,
    /// Those that cannot be read, and why.
    pub(crate) refused: Vec<(u64, Error)>,
}

impl Slots {
    pub(crate) fn read(storage: &dyn Storage) -> Result<Self> {
        let size = storage.size()?.min(superblock::SIZE);
        let mut head = vec![0; size as usize];
        let mut refused = Vec::new();
        for (slot, bytes) in head.chunks_mut(superblock::SLOT_SIZE as usize).enumerate() {
            let offset = slot as u64 * superblock::SLOT_SIZE;
            if let Err(error) = storage.read_at(offset, bytes) {
                bytes.fill(0);
                refused.push((offset, error.at(storage.path()).offset(offset)));
            }
        }
        Ok(Self { head, refused })
    }

    /// The newest whole one, of this engine.
    pub(crate) fn current(mut self, engine: [u8; 8]) -> Result<Superblock> {
        match (Superblock::current(&self.head, &engine), self.refused.pop()) {
            (Ok(block), _) => Ok(block),
            // The unreadable slot may have been the newest.
            (Err(_), Some((_, refused))) => Err(refused),
            (Err(error), None) => Err(error),
        }
    }
}

/// The newest valid superblock: its sequence and payload.
pub(crate) fn read_super(storage: &dyn Storage) -> Result<(u64, Super)> {
    let slots = Slots::read(storage)?;
    let head = slots.head.clone();
    let block = slots
        .current(ENGINE)
        .map_err(|error| other_place(error, &head).at(storage.path()))?;
    let payload = Super::decode(&block.payload).ok_or_else(|| {
        Error::new(Kind::Corrupted, "the superblock holds impossible values")
            .at(storage.path())
            .offset(block.slot_offset())
            .remedy("restore a backup")
    })?;
    Ok((block.sequence, payload))
}

/// Adds a remedy to the error of a place that begins with `head` instead of a superblock.
pub(crate) fn other_place(error: Error, head: &[u8]) -> Error {
    let is = |engine| Superblock::current(head, engine).is_ok();
    if error.kind() == Kind::Io {
        error.remedy("neither superblock can be used: restore a backup")
    } else if head.is_empty() {
        error.remedy("remove it, and make a store there with `azekura object create`")
    } else if head.iter().all(|byte| *byte == 0) {
        error.remedy(
            "it begins with zeros: if a store was there, both its superblocks are lost: restore a backup; else check the path, or \
             make a store there with `azekura object create`",
        )
    } else if is(b"hash\0\0\0\0") {
        error.remedy("it holds records: `azekura get` and its like are for these")
    } else if is(&DATA) {
        error.remedy(
            "it is the data of a store: give the store's journal first, and this with --data",
        )
    } else if is(&ENGINE) {
        error.remedy("it is a store, or the journal of one: give it first, and no other, or its data with --data")
    } else {
        error
    }
}

/// The root of the last checkpoint; of a store without one, an empty one.
pub(crate) fn read_root(storage: &dyn Storage, last: &Super) -> Result<Root> {
    let Some(extent) = last.anchor.root else {
        return Ok(Root {
            sequence: last.sequence,
            ..Root::default()
        });
    };
    let seed = last.geometry.salt ^ ROOT_SEED;
    let mut read = root::Read::from(extent);
    read.read(storage, seed, false)
        .map_err(|error| to_repair(error, storage))?;
    let root = Root::decode(&read.bytes)
        .filter(|root| root.is_within(last.units, last.group_units))
        .ok_or_else(|| {
            Error::new(
                Kind::Corrupted,
                "the root of the checkpoint holds impossible values",
            )
            .at(storage.path())
            .offset(extent.offset)
            .remedy("run `azekura object repair`")
        })?;
    Ok(Root {
        pieces: read.pieces,
        ..root
    })
}
