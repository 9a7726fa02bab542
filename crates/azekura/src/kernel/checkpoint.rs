//! The commit of a checkpoint: its root is written, and the superblock names it.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 the engine writes its images, as parts | the old checkpoint |
//! | 2 the root, in pieces | the old one |
//! | 3 sync: images, root, and all of the log that they may point to | the old one |
//! | 4 the superblock over its older slot, durably, then over the other: replay begins at the noted end | the old one or the new |
//! | 5 the engine releases what only the old one needed | the new one |
//!
//! Steps 2 to 4 are here. A root refers to its own segments, too, so room for it is taken before the list of them is made.
//!
//! It does not know images, nor when a checkpoint is due.

use super::superblock::{Payload, SuperblockPair};
use crate::error::{Error, Kind, Result};
use crate::io::Storage;
use crate::log::manifest::{Extent, remedy};
use crate::log::parts::{self, Parts};
use crate::log::root::{self, Room};
use crate::log::{End, Log};

/// The last checkpoint, as far as it is the same for all engines.
#[derive(Debug)]
pub struct Committed<P> {
    /// The superblock that names it.
    pub superblock: SuperblockPair<P>,
    /// Where the pieces of its root are.
    pub root: Vec<Extent>,
    /// Where the next part goes.
    pub parts: Parts,
    /// `Log::appended` when it was begun.
    pub appended: u64,
}

/// A checkpoint that is to be committed.
pub struct NextCheckpoint<'r> {
    /// Where replay will begin.
    pub start: End,
    /// Bytes of the root, at most.
    pub len: u64,
    /// The images that it needs.
    pub images: &'r [Extent],
    /// Its bytes, given the segments that hold images and root: index, units.
    pub encode: &'r mut dyn FnMut(Vec<(u32, u32)>) -> Vec<u8>,
}

impl<P: Payload> Committed<P> {
    /// The checkpoint that a superblock names, with the pieces of its root.
    pub fn found(superblock: SuperblockPair<P>, root: Vec<Extent>) -> Self {
        Self {
            superblock,
            root,
            parts: Parts::default(),
            appended: 0,
        }
    }

    /// See the module's text. `sync` is step 3; `change` sets what else the payload states. After an error the old checkpoint
    /// is the last one, and what was written is idle.
    pub fn commit(
        &mut self,
        log: &Log,
        next: NextCheckpoint<'_>,
        sync: impl FnOnce() -> Result<()>,
        change: impl FnOnce(&mut P),
    ) -> Result<()> {
        let NextCheckpoint {
            start,
            len,
            images,
            encode,
        } = next;
        let geometry = log.geometry();
        let len = len + 8 * u64::from(root::units(geometry, len));
        let room = Room::take(log, &mut self.parts, len)?;
        let seed = geometry.salt ^ P::ROOT_SEED;
        let pieces = room.write(log, &mut self.parts, seed, images, encode)?;
        sync()?;
        let mut payload = self.superblock.payload.clone();
        payload.start = start;
        payload.durable = log.durable();
        payload.root = pieces.first().copied();
        payload.next_sequence = log.next_sequence();
        change(&mut payload);
        self.superblock.replace(log, payload)?;
        self.root = pieces;
        Ok(())
    }

    /// Frees the runs of segments that neither these images nor the root need.
    pub fn release_idle(&self, log: &Log, images: impl Iterator<Item = Extent>) {
        parts::release_idle(log, images.chain(self.root.iter().copied()), self.parts);
    }

    /// States that the store is closed: all of the log is durable, up to its end.
    pub fn close(&mut self, log: &Log) -> Result<()> {
        let mut payload = self.superblock.payload.clone();
        payload.open = false;
        payload.durable = log.end().position();
        payload.next_sequence = log.next_sequence();
        self.superblock.replace(log, payload)
    }
}

/// Reads the root that `last` names, and decodes it; `None`: it names none. `corrects`: whether one wrong bit of a piece is read
/// as it was written. `Corrupted`, with the offset.
pub fn read_root<P: Payload, R>(
    storage: &dyn Storage,
    last: &P,
    corrects: bool,
    decode: impl FnOnce(&[u8]) -> Option<R>,
) -> Result<Option<(R, root::Read)>> {
    let Some(extent) = last.root else {
        return Ok(None);
    };
    let mut read = root::Read::from(extent);
    read.read(storage, last.geometry.salt ^ P::ROOT_SEED, corrects)?;
    let root = decode(&read.bytes).ok_or_else(|| {
        let what = "the root of the checkpoint holds impossible values";
        Error::new(Kind::Corrupted, what)
            .at(storage.path())
            .offset(extent.offset)
            .remedy(remedy(storage))
    })?;
    Ok(Some((root, read)))
}
