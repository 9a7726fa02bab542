//! The superblock of a store: an engine's payload, in two slots.
//!
//! A change is written to the older slot, and when that is durable to the other, so a cut of the power leaves one of them
//! whole: the old superblock or the new one. [`SuperblockPair`] is what both hold.
//!
//! It does not know what a payload states besides its [`Manifest`].

use std::ops::DerefMut;
use std::path::Path;

use super::changes::of_other;
use crate::damage::{Affects, Damage};
use crate::error::{Error, Kind, Result};
use crate::format::superblock::{self, SLOT_SIZE, Superblock};
use crate::io::Storage;
use crate::log::Log;
use crate::log::manifest::Manifest;

/// What an engine keeps in its superblock; what it states of the log is the [`Manifest`] within.
pub trait Payload: Clone + DerefMut<Target = Manifest> {
    /// The engine's word.
    const ENGINE: [u8; 8];
    /// Seed of the checksums of a checkpoint's root, in addition to the salt.
    const ROOT_SEED: u32;

    /// The payload's bytes.
    fn encode(&self) -> Vec<u8>;

    /// Decodes a payload. `None`: impossible values.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// Why the payload, which is whole, is refused: it names what this process does not know. `None`: for no such reason.
    fn unknown(_bytes: &[u8]) -> Option<Error> {
        None
    }

    /// Adds to `error` what to do about a storage that begins with `head` and has no superblock of this engine.
    fn of_other(error: Error, head: &[u8]) -> Error;
}

/// Makes the field `manifest` what a payload dereferences to.
macro_rules! manifest_within {
    ($payload:ty) => {
        impl std::ops::Deref for $payload {
            type Target = $crate::log::manifest::Manifest;

            fn deref(&self) -> &Self::Target {
                &self.manifest
            }
        }

        impl std::ops::DerefMut for $payload {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.manifest
            }
        }
    };
}
pub(crate) use manifest_within;

/// The bytes of both slots, each read by itself.
#[derive(Debug)]
pub struct Slots {
    /// Both, as far as the storage has them; zeros where one cannot be read.
    pub head: Vec<u8>,
    /// The offsets of those that cannot be read, and why.
    pub refused: Vec<(u64, Error)>,
}

impl Slots {
    /// Reads them. Errors: only that of asking for the storage's size.
    pub fn read(storage: &dyn Storage) -> Result<Self> {
        let size = storage.size()?.min(superblock::SIZE);
        let mut head = vec![0; size as usize];
        let mut refused = Vec::new();
        for (offset, bytes) in (0..)
            .step_by(SLOT_SIZE as usize)
            .zip(head.chunks_mut(SLOT_SIZE as usize))
        {
            if let Err(error) = storage.read_at(offset, bytes) {
                bytes.fill(0);
                refused.push((offset, error.at(storage.path()).offset(offset)));
            }
        }
        Ok(Self { head, refused })
    }

    /// The newest whole superblock of this engine.
    pub fn current(mut self, engine: [u8; 8]) -> Result<Superblock> {
        match (Superblock::current(&self.head, &engine), self.refused.pop()) {
            (Ok(block), _) => Ok(block),
            // What it would have stated is unknown.
            (Err(_), Some((_, refused))) => Err(refused),
            (Err(error), None) => Err(error),
        }
    }

    /// The engine whose superblock they hold; `None`: neither is valid.
    pub fn engine(&self) -> Option<[u8; 8]> {
        Superblock::engine_in(&self.head)
    }

    /// The slots that hold no superblock of this engine. `then`: what becomes of them.
    pub fn damaged(&self, path: &Path, engine: [u8; 8], then: &str) -> Vec<Damage> {
        let damaged = self
            .each()
            .filter(|(_, slot)| Superblock::current(slot, &engine).is_err());
        let damage = damaged.map(|(offset, bytes)| Damage {
            path: path.to_path_buf(),
            offset,
            len: bytes.len() as u64,
            found: format!(
                "superblock slot {} cannot be read or does not verify; the other one is used, and nothing is lost{then}",
                offset / SLOT_SIZE
            ),
            affects: Affects::Nothing,
        });
        damage.collect()
    }

    /// Each slot with its offset.
    pub fn each(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let slots = self.head.chunks(SLOT_SIZE as usize);
        (0..).step_by(SLOT_SIZE as usize).zip(slots)
    }
}

/// The slots that hold no superblock of this engine, though a store has one in both.
pub fn damaged_slots<P: Payload>(storage: &dyn Storage) -> Result<Vec<Damage>> {
    let slots = Slots::read(storage)?;
    let then = ": opening the file for writing writes both";
    Ok(slots.damaged(storage.path(), P::ENGINE, then))
}

/// The superblock as it stands on storage.
#[derive(Clone, Debug)]
pub struct SuperblockPair<P> {
    /// Its sequence.
    pub sequence: u64,
    /// The engine's part.
    pub payload: P,
}

impl<P: Payload> SuperblockPair<P> {
    /// The newest valid one. `Mismatch` or `Corrupted` if there is none; `Io` if one that may be it cannot be read.
    pub fn read(storage: &dyn Storage) -> Result<Self> {
        let slots = Slots::read(storage)?;
        let head = slots.head.clone();
        let block = slots
            .current(P::ENGINE)
            .map_err(|error| of_other(P::of_other(error, &head), &head).at(storage.path()))?;
        let payload = P::decode(&block.payload).ok_or_else(|| {
            if let Some(error) = P::unknown(&block.payload) {
                return error.at(storage.path());
            }
            Error::new(Kind::Corrupted, "the superblock holds impossible values")
                .at(storage.path())
                .offset(block.slot_offset())
                .remedy("restore a backup")
        })?;
        Ok(Self {
            sequence: block.sequence,
            payload,
        })
    }

    /// Writes `payload` to both slots of a new storage, durable with the next sync; `before`: the sequence of the superblock
    /// that it was copied from, or 0.
    pub fn create(storage: &dyn Storage, before: u64, payload: P) -> Result<Self> {
        let mut first = Self {
            sequence: before,
            payload,
        };
        first.write_both(&|block| storage.write_at(block.slot_offset(), &block.encode()))?;
        Ok(first)
    }

    /// Writes its slot once more, durably. It may be in the cache only, while the device has in the slot that the next one
    /// goes to the superblock before it.
    pub fn write_again(&self, log: &Log) -> Result<()> {
        let block = self.block();
        log.write_durably(block.slot_offset(), &block.encode())
    }

    /// As `write_again`, of a store without a log, which is repaired.
    pub fn write_to(&self, storage: &dyn Storage) -> Result<()> {
        let block = self.block();
        storage.write_durably(block.slot_offset(), &block.encode())
    }

    /// Puts `payload` in its place, in both slots, each durable before the next is written. What it names is durable
    /// before the call, and so is the slot of this one.
    pub fn replace(&mut self, log: &Log, payload: P) -> Result<()> {
        let mut next = Self {
            sequence: self.sequence,
            payload,
        };
        next.write_both(&|block| log.write_durably(block.slot_offset(), &block.encode()))?;
        *self = next;
        Ok(())
    }

    fn write_both(&mut self, write: &dyn Fn(&Superblock) -> Result<()>) -> Result<()> {
        for _slot in 0..2 {
            self.sequence += 1;
            write(&self.block())?;
        }
        Ok(())
    }

    fn block(&self) -> Superblock {
        Superblock {
            engine: P::ENGINE,
            sequence: self.sequence,
            payload: self.payload.encode(),
        }
    }
}
