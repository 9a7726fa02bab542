//! The manifest of a store of several shards: what its file states, and the names of the files next to it.
//!
//! A superblock in two slots (`format::superblock`), of the engine `shards`, and nothing else. A change is written to the older slot,
//! durably; but for the one that begins a clear, to both. Its payload:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 2 | shards, 1 to 256 |
//! | 2 | 1 | 0: a store; 1: one of which all records are being removed, which the next opening for writing completes; 2: a copy to which changes are being applied; 3: changes since a copy, and no store |
//! | 3 | 5 | zero |
//! | 8 | 8 | engine's word of the shards, padded with zeros |
//! | 16 | 8 | seed of the hash that states a key's shard |
//! | 24 | 4 each | salt of each shard's file: an exchanged file is noticed |
//! | .. | 1, .. | where changes are being applied: their name, with its length before |
//!
//! A key's shard is the upper 64 bits of the product of its hash (`rapidhash` V3 with that seed) and the number of shards. Shard 7 of
//! `users.azt` is `users.azt.shard-007`, which opens by itself. This file knows bytes and names, and no store.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rapidhash::v3::RapidSecrets;

use crate::error::{Error, Kind, Result};
use crate::format::bytes::{Give, Take};
use crate::format::superblock::{self, Superblock, engine_word};
use crate::io::Storage;
use crate::kernel::changes::{are_changes, not_complete};
use crate::kernel::{Slots, SuperblockPair};
use crate::record::{hash, tree};

/// The engine's word in the superblock of a manifest.
pub const ENGINE: [u8; 8] = *b"shards\0\0";

/// Most shards of a store.
pub const SHARDS_MAX: usize = 256;

/// Which shard a key's record is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash {
    /// Chosen when the store is made: who chooses keys cannot guess it.
    pub(super) seed: u64,
    secrets: RapidSecrets,
}

impl KeyHash {
    pub(super) fn new(seed: u64) -> Self {
        let secrets = RapidSecrets::seed(seed);
        Self { seed, secrets }
    }

    /// A number below `shards`.
    #[inline(always)]
    pub(super) fn shard_of(&self, key: &[u8], shards: usize) -> usize {
        let hash = rapidhash::v3::rapidhash_v3_inline::<true, false, false>(key, &self.secrets);
        ((u128::from(hash) * shards as u128) >> 64) as usize
    }
}

/// What the files of a manifest are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestState {
    /// A store.
    Whole,
    /// A store of which all records are being removed.
    Clearing,
    /// A copy to which changes of this name are being applied.
    Applying(String),
    /// Changes since a copy.
    Changes,
}

/// What a manifest states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardManifest {
    /// What its files are.
    pub state: ManifestState,
    /// The word of the shards' engine.
    pub engine: [u8; 8],
    /// Of the hash that states a key's shard.
    pub seed: u64,
    /// Of each shard's file.
    pub salts: Vec<u32>,
}

impl ShardManifest {
    /// The payload of its superblock.
    pub fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        give.u16(self.salts.len() as u16)
            .u8(match self.state {
                ManifestState::Whole => 0,
                ManifestState::Clearing => 1,
                ManifestState::Applying(_) => 2,
                ManifestState::Changes => 3,
            })
            .bytes(&[0; 5])
            .bytes(&self.engine)
            .u64(self.seed);
        for salt in &self.salts {
            give.u32(*salt);
        }
        if let ManifestState::Applying(name) = &self.state {
            give.u8(name.len() as u8).bytes(name.as_bytes());
        }
        give.0
    }

    /// What was encoded. `None`: impossible values.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let shards = usize::from(take.u16()?);
        let state = take.u8()?;
        let zeros = take.bytes(5)?;
        let engine = *take.bytes(8)?.first_chunk::<8>()?;
        let seed = take.u64()?;
        let salts: Option<Vec<u32>> = (0..shards).map(|_| take.u32()).collect();
        let salts = salts?;
        let state = match state {
            0 => ManifestState::Whole,
            1 => ManifestState::Clearing,
            2 => {
                let len = take.u8()?;
                let name = take.bytes(len.into())?.to_vec();
                ManifestState::Applying(String::from_utf8(name).ok()?)
            }
            3 => ManifestState::Changes,
            _ => return None,
        };
        let sound = (1..=SHARDS_MAX).contains(&shards) && zeros == [0; 5] && take.0.is_empty();
        sound.then_some(Self {
            state,
            engine,
            seed,
            salts,
        })
    }
}

/// A manifest and the file it stands in.
#[derive(Debug)]
pub(super) struct ManifestFile {
    pub(super) storage: Arc<dyn Storage>,
    sequence: u64,
    pub(super) manifest: ShardManifest,
}

impl ManifestFile {
    /// Writes a new one into an empty storage, durably but for its name.
    pub(super) fn create(storage: &Arc<dyn Storage>, manifest: ShardManifest) -> Result<Self> {
        let mut file = Self {
            storage: Arc::clone(storage),
            sequence: 0,
            manifest,
        };
        file.write_both()?;
        Ok(file)
    }

    /// Reads one. `Mismatch` if it is none of a known version, `Corrupted`, `Io`.
    pub(super) fn read(storage: Arc<dyn Storage>) -> Result<Self> {
        let current = Slots::read(storage.as_ref())?.current(ENGINE);
        let block = current.map_err(|error| error.at(storage.path()))?;
        let manifest = ShardManifest::decode(&block.payload).ok_or_else(|| {
            Error::new(Kind::Corrupted, "the manifest holds impossible values")
                .at(storage.path())
                .offset(block.slot_offset())
                .remedy("restore a backup of this file: the shards next to it hold the records")
        })?;
        Ok(Self {
            storage,
            sequence: block.sequence,
            manifest,
        })
    }

    /// `Mismatch` if the shards are of another engine.
    pub(super) fn check_engine(&self, engine: [u8; 8]) -> Result<()> {
        if self.manifest.engine == engine {
            return Ok(());
        }
        let (found, expected) = (engine_word(&self.manifest.engine), engine_word(&engine));
        Err(
            Error::new(Kind::Mismatch, "the shards are of another engine")
                .at(self.storage.path())
                .found(found, expected)
                .remedy("open it with `azekura::open`, which chooses the engine"),
        )
    }

    /// `Mismatch` unless its files are a store that opens.
    pub(super) fn check_is_store(&self) -> Result<()> {
        let error = match &self.manifest.state {
            ManifestState::Whole | ManifestState::Clearing => return Ok(()),
            ManifestState::Applying(name) => not_complete(name),
            ManifestState::Changes => {
                let what = "the files are changes of a store of shards, and no store";
                are_changes(Error::new(Kind::Mismatch, what))
            }
        };
        Err(error.at(self.storage.path()))
    }

    /// Whether both slots hold it.
    pub(super) fn is_whole(&self) -> Result<bool> {
        let slots = Slots::read(self.storage.as_ref())?;
        let then = slots.damaged(self.storage.path(), ENGINE, "");
        let has_both = self.storage.size()? >= superblock::SIZE;
        Ok(has_both && then.is_empty() && slots.refused.is_empty())
    }

    /// Writes that all records are being removed, to one slot, durably.
    pub(super) fn begin_clear(&mut self) -> Result<()> {
        self.manifest.state = ManifestState::Clearing;
        self.write()
    }

    /// Writes that all records are removed, to both slots: the damage of one of them must not begin that again.
    pub(super) fn end_clear(&mut self) -> Result<()> {
        self.write_state(ManifestState::Whole)
    }

    /// Writes what its files are, to both slots.
    pub(super) fn write_state(&mut self, state: ManifestState) -> Result<()> {
        self.manifest.state = state;
        self.write_both()
    }

    /// Writes it to both slots, each durable before the other is written.
    pub(super) fn write_both(&mut self) -> Result<()> {
        self.write()?;
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        // Of one that was cut off, the other slot may be there.
        if self.storage.size()? < superblock::SIZE {
            self.storage.resize(superblock::SIZE)?;
        }
        self.sequence += 1;
        let block = Superblock {
            engine: ENGINE,
            sequence: self.sequence,
            payload: self.manifest.encode(),
        };
        self.storage
            .write_durably(block.slot_offset(), &block.encode())
    }
}

/// The salt in the superblock of a shard's file, which distinguishes it from other files. Errors as for the opening of that engine.
pub(super) fn salt_of(storage: &dyn Storage, engine: [u8; 8]) -> Result<u32> {
    if engine == tree::layout::ENGINE {
        let found = SuperblockPair::<tree::layout::Super>::read(storage)?;
        return Ok(found.payload.geometry.salt);
    }
    let found = SuperblockPair::<hash::layout::Super>::read(storage)?;
    Ok(found.payload.geometry.salt)
}

/// The name of a shard's file, next to the manifest of that name.
pub fn shard_name(name: &Path, shard: usize) -> PathBuf {
    let mut name = name.as_os_str().to_owned();
    name.push(format!(".shard-{shard:03}"));
    name.into()
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a panic is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_what_was_encoded_and_no_part_of_it_is_one() {
        let states = [
            ManifestState::Whole,
            ManifestState::Clearing,
            ManifestState::Applying("n".repeat(255)),
            ManifestState::Applying(String::new()),
            ManifestState::Changes,
        ];
        for (shards, state) in [1, 3, SHARDS_MAX, 2, 4].into_iter().zip(states) {
            let manifest = ShardManifest {
                state,
                engine: tree::layout::ENGINE,
                seed: 0x0123_4567_89ab_cdef,
                salts: (0..shards as u32).map(|n| n * 77).collect(),
            };
            let bytes = manifest.encode();
            assert_eq!(ShardManifest::decode(&bytes), Some(manifest));
            for len in 0..bytes.len() {
                assert_eq!(ShardManifest::decode(&bytes[..len]), None, "cut at {len}");
            }
            // Another state, and each byte that is zero.
            for at in 2..8 {
                let mut other = bytes.clone();
                other[at] += 4;
                assert_eq!(ShardManifest::decode(&other), None, "byte {at}");
            }
        }
        let none = [0; 24];
        assert_eq!(ShardManifest::decode(&none), None, "no shards");
    }
}
