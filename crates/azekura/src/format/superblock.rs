//! The fixed place from which a file is understood: two slots, each whole in itself.
//!
//! A new superblock is written over the *older* slot and becomes current by its higher sequence, so
//! a torn write leaves the other slot. The payload belongs to the engine; this module knows magic,
//! kind, version, sequence and checksum. `kernel::superblock` has the order in which both slots are written.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic `azekura\n`: distinguishes this file from others; the newline shows text-mode damage |
//! | 8 | 4 | CRC32C of everything after it to the end of the payload |
//! | 12 | 2 | format version of the file: a newer one is refused, not guessed |
//! | 14 | 2 | payload length in bytes |
//! | 16 | 8 | engine's word, padded with zeros: `hash` |
//! | 24 | 8 | sequence: the higher valid slot counts |
//! | 32 | .. | payload; zeros to the end of the slot |
//!
//! Slots stand at offsets 0 and 4096; each takes one 4096-byte block, the largest unit a device may
//! tear as a whole.

use super::bytes::{Give, Take};
use super::checksum::crc;
use crate::error::{Error, Kind, Result, bytes, quote};

/// Bytes of a slot.
pub const SLOT_SIZE: u64 = 4096;
/// Bytes of both slots.
pub const SIZE: u64 = 2 * SLOT_SIZE;
/// Where in a slot its sequence stands.
pub const SEQUENCE_OFFSET: u64 = 24;
/// The first eight bytes of every azekura file.
pub const MAGIC: [u8; 8] = *b"azekura\n";
/// The format version written by this release.
pub const VERSION: u16 = 1;

const HEADER_SIZE: usize = 32;
const SEED: u32 = 0x5342_4c4b;

/// A valid slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The engine's word.
    pub engine: [u8; 8],
    /// Grows with each superblock written.
    pub sequence: u64,
    /// The engine's part.
    pub payload: Vec<u8>,
}

impl Superblock {
    /// The offset of the slot this sequence is written to.
    pub fn slot_offset(&self) -> u64 {
        (self.sequence & 1) * SLOT_SIZE
    }

    /// A slot's bytes, padded with zeros.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.payload.len() + HEADER_SIZE <= SLOT_SIZE as usize);
        let mut covered = Give::default();
        covered
            .u16(VERSION)
            .u16(self.payload.len() as u16)
            .bytes(&self.engine)
            .u64(self.sequence)
            .bytes(&self.payload);
        let mut slot = Give::default();
        slot.bytes(&MAGIC)
            .u32(crc(SEED, &covered.0))
            .bytes(&covered.0);
        slot.0.resize(SLOT_SIZE as usize, 0);
        slot.0
    }

    /// Decodes a slot. `None`: not a valid slot (never written, torn or damaged).
    fn decode(slot: &[u8]) -> Option<Self> {
        if !slot.starts_with(&MAGIC) {
            return None;
        }
        Self::decode_after_magic(slot)
    }

    /// As [`decode`](Self::decode), whatever the magic is.
    fn decode_after_magic(slot: &[u8]) -> Option<Self> {
        let mut take = Take(slot);
        take.bytes(8)?;
        let stored = take.u32()?;
        let body = take.0;
        let _version = take.u16()?;
        let len = usize::from(take.u16()?);
        let covered = body.get(..HEADER_SIZE - 12 + len)?;
        if crc(SEED, covered) != stored {
            return None;
        }
        let engine = *take.bytes(8)?.first_chunk::<8>()?;
        let sequence = take.u64()?;
        Some(Self {
            engine,
            sequence,
            payload: take.bytes(len)?.to_vec(),
        })
    }

    /// The engine of the newest valid slot of a file that begins with `head`, whatever it is; `None`: no slot is valid.
    pub fn engine_in(head: &[u8]) -> Option<[u8; 8]> {
        let slots = head.chunks(SLOT_SIZE as usize).take(2);
        let newest = slots
            .filter_map(Self::decode)
            .max_by_key(|slot| slot.sequence);
        newest.map(|slot| slot.engine)
    }

    /// Whether a file that begins with `head` (both slots, or what there is) is an azekura file, whole or damaged: one of its
    /// slots has the magic, or verifies but for the magic.
    pub fn is_in(head: &[u8]) -> bool {
        let mut slots = head.chunks(SLOT_SIZE as usize).take(2);
        slots.any(|slot| slot.starts_with(&MAGIC) || Self::decode_after_magic(slot).is_some())
    }

    /// The current superblock of a file that begins with `head` (both slots, or what there is).
    ///
    /// Errors: `Mismatch` for another program's file, an empty one, another engine's or a newer
    /// version; `Corrupted` if both slots of an azekura file are damaged.
    pub fn current(head: &[u8], engine: &[u8; 8]) -> Result<Self> {
        let slots: Vec<&[u8]> = head.chunks(SLOT_SIZE as usize).take(2).collect();
        let newest = slots
            .iter()
            .filter_map(|slot| Self::decode(slot))
            .max_by_key(|s| s.sequence);
        // A newer release may sum its slots in another way: a newer version counts whether or not the slot
        // is valid to us, unless both slots are ours and one is merely damaged.
        let claimed = slots
            .iter()
            .filter(|slot| newest.is_none() || Self::decode(slot).is_some());
        if let Some(newer) = claimed
            .filter_map(|slot| version(slot))
            .find(|v| *v > VERSION)
        {
            // Without a slot that verifies a flipped bit of a version looks the same.
            let remedy = match &newest {
                Some(_) => "open it with a newer azekura",
                None => {
                    "open it with a newer azekura; if none wrote it, both superblocks are damaged: restore a backup"
                }
            };
            return Err(Error::new(Kind::Mismatch, "the file has a newer format")
                .found(format!("version {newer}"), format!("at most {VERSION}"))
                .remedy(remedy));
        }
        let Some(newest) = newest else {
            return Err(Self::unreadable(head, &slots));
        };
        if newest.engine != *engine {
            return Err(
                Error::new(Kind::Mismatch, "the file belongs to another engine")
                    .found(engine_word(&newest.engine), engine_word(engine)),
            );
        }
        Ok(newest)
    }

    fn unreadable(head: &[u8], slots: &[&[u8]]) -> Error {
        if head.is_empty() {
            return Error::new(Kind::Mismatch, "the file is empty")
                .remedy("create a store there with `azekura create` after removing it");
        }
        let is_one = head.len() as u64 == SLOT_SIZE;
        if slots.iter().any(|slot| slot.starts_with(&MAGIC)) {
            if !is_one && (head.len() as u64) < SIZE {
                return Error::new(Kind::Corrupted, "the file is too short for a store")
                    .found(bytes(head.len()), format!("{SIZE} or more"))
                    .remedy("restore a backup: what is cut off stated where everything is");
            }
            let what = if is_one {
                "the superblock is damaged"
            } else {
                "both superblocks are damaged"
            };
            return Error::new(Kind::Corrupted, what)
                .offset(0)
                .remedy("both superblocks are unreadable; restore from a backup");
        }
        let start = head.get(..head.len().min(8)).unwrap_or_default();
        let remedy = if head.iter().all(|byte| *byte == 0) {
            "it begins with zeros: if a store was there, both its superblocks are lost: restore a backup; else check the path"
        } else {
            "it is no store: check the path"
        };
        Error::new(Kind::Mismatch, "not an azekura file")
            .found(quote(start), quote(&MAGIC))
            .remedy(remedy)
    }
}

/// The version a slot claims, whether or not the rest is valid: newer layouts may sum differently.
fn version(slot: &[u8]) -> Option<u16> {
    let mut take = Take(slot);
    (take.bytes(8)? == MAGIC).then_some(())?;
    take.u32()?;
    take.u16()
}

/// An engine's word without its padding.
pub fn engine_word(engine: &[u8; 8]) -> String {
    engine
        .iter()
        .take_while(|b| **b != 0)
        .map(|b| char::from(*b))
        .collect()
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::error::refusal;

    fn block(sequence: u64) -> Superblock {
        Superblock {
            engine: *b"hash\0\0\0\0",
            sequence,
            payload: vec![7; 100],
        }
    }

    fn head(blocks: &[Superblock]) -> Vec<u8> {
        let mut head = vec![0; SIZE as usize];
        for block in blocks {
            let at = block.slot_offset() as usize;
            head[at..at + SLOT_SIZE as usize].copy_from_slice(&block.encode());
        }
        head
    }

    #[test]
    fn the_newer_valid_slot_counts_and_a_torn_one_leaves_the_other() {
        let mut bytes = head(&[block(4), block(5)]);
        assert_eq!(
            Superblock::current(&bytes, b"hash\0\0\0\0").unwrap(),
            block(5)
        );
        bytes[4096 + 60] ^= 1;
        assert_eq!(
            Superblock::current(&bytes, b"hash\0\0\0\0").unwrap(),
            block(4)
        );
        bytes[60] ^= 1;
        refusal(
            Superblock::current(&bytes, b"hash\0\0\0\0"),
            Kind::Corrupted,
        );
    }

    #[test]
    fn foreign_empty_newer_and_other_engines_files_are_refused_by_name() {
        let kind = |bytes: &[u8]| {
            Superblock::current(bytes, b"hash\0\0\0\0")
                .unwrap_err()
                .kind()
        };
        assert_eq!(kind(b""), Kind::Mismatch);
        assert_eq!(kind(b"TkrzwHDB\nand so on"), Kind::Mismatch);
        let mut newer = head(&[block(1), block(2)]);
        newer[12] = 9;
        newer[4096 + 12] = 9;
        let error = Superblock::current(&newer, b"hash\0\0\0\0").unwrap_err();
        assert!(
            error.to_string().contains("newer format (found version 9"),
            "{error}"
        );
        let error = Superblock::current(&head(&[block(1)]), b"tree\0\0\0\0").unwrap_err();
        assert!(
            error.to_string().contains("found hash, expected tree"),
            "{error}"
        );
    }

    #[test]
    fn what_is_too_short_or_damaged_is_told_apart_and_a_newer_version_is_no_damage() {
        let report = |bytes: &[u8]| {
            let error = Superblock::current(bytes, b"hash\0\0\0\0").unwrap_err();
            error.to_string()
        };
        let mut bytes = head(&[block(4), block(5)]);
        bytes[40] ^= 1;
        bytes[4096 + 40] ^= 1;
        for len in [100, 5000] {
            let cut = &bytes[..len];
            let wanted = format!(
                "corrupted: the file is too short for a store (found {len} bytes, expected 8192 or more); restore"
            );
            assert!(report(cut).starts_with(&wanted), "{}", report(cut));
        }
        let one = report(&bytes[..4096]);
        assert!(
            one.starts_with("corrupted: the superblock is damaged offset 0x0; "),
            "{one}"
        );
        let both = report(&bytes);
        assert!(
            both.starts_with("corrupted: both superblocks are damaged"),
            "{both}"
        );
        let blank = report(&[0; 8192]);
        assert!(
            blank.starts_with("mismatch: not an azekura file ")
                && blank.contains("both its superblocks are lost: restore a backup"),
            "{blank}"
        );
        // One slot of a newer release, the other one damaged, or both torn.
        bytes[4096 + 12] = 7;
        let newer = report(&bytes);
        assert!(
            newer.contains("newer format (found version 7, expected at most 1)"),
            "{newer}"
        );
        // A bit of the version is flipped in one slot, another bit in the other: that looks as the above.
        let mut rotten = head(&[block(4), block(5)]);
        rotten[12] ^= 4;
        rotten[4096 + 40] ^= 1;
        let rotten = report(&rotten);
        assert!(
            rotten.contains("newer format (found version 5, expected at most 1)")
                && rotten.ends_with("both superblocks are damaged: restore a backup"),
            "{rotten}"
        );
        let foreign = report(b"PK\x03\x04 and so on");
        assert!(
            foreign.ends_with("; it is no store: check the path"),
            "{foreign}"
        );
    }

    #[test]
    fn a_slot_properly_written_by_a_newer_version_is_refused() {
        let mut newer = block(3).encode();
        newer[12] = 2;
        let len = usize::from(u16::from_le_bytes([newer[14], newer[15]]));
        let sum = crc(SEED, &newer[12..32 + len]);
        newer[8..12].copy_from_slice(&sum.to_le_bytes());
        let mut bytes = head(&[block(2)]);
        bytes[4096..8192].copy_from_slice(&newer);
        let error = Superblock::current(&bytes, b"hash\0\0\0\0").unwrap_err();
        assert!(
            error.to_string().contains("newer format (found version 2"),
            "{error}"
        );
        // A checksum holds: it is no damage.
        assert!(error.has_remedy("open it with a newer azekura"), "{error}");
    }

    #[test]
    fn no_prefix_of_a_slot_panics() {
        let bytes = head(&[block(1)]);
        for len in 0..bytes.len().min(300) {
            let _ = Superblock::current(&bytes[..len], b"hash\0\0\0\0");
            let _ = Superblock::current(&bytes[4096..4096 + len], b"hash\0\0\0\0");
        }
    }
}
