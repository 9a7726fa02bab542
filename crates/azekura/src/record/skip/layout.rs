//! The sorted file on storage: the engine's part of the superblock, blocks, and overflows.
//!
//! ```text
//!   | superblock, twice | leaf | leaf | overflow overflow | leaf | .. | level 1 | leaf | .. | level 2 | superblock |
//! ```
//!
//! Superblock payload (after the 32 bytes of `format::superblock`; both slots, and a third in the last 4096 bytes, state the same):
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | identity of the file: seeds its checksums |
//! | 8 | 8 | size of the file in bytes |
//! | 16 | 8 | records |
//! | 24 | 8 | bytes of their keys and values |
//! | 32 | 4 | number of the root block; 0: there are no records |
//! | 36 | 1 | level of the root: 0, it is a leaf |
//! | 37 | 1 | 1: keys repeat, or more than one begins with the same 510 bytes |
//! | 38 | 1 | length of the name of the order |
//! | 39 | 1 | zero |
//! | 40 | .. | name of the order of keys |
//! | .. | 8 | identity of the pending file whose edits a merge wrote into this file (`db`); zeros from here on: there is none |
//! | .. | 8, 4 | of these edits, those before this position of its log: sequence, offset |
//!
//! A block takes 4096 bytes at its number times 4096:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | CRC32C of the rest, seeded with the identity |
//! | 4 | 4 | number of the block |
//! | 8 | 8 | how many records come before the first one in it, or below it |
//! | 16 | 16 | zero |
//! | 32 | 4064 | a node (`node`). Entries of a leaf are records; of others, values are the number of the child (4) and how many records come before its first (6) |
//!
//! A record whose value is longer than 510 bytes, or its key than 509, has an overflow, at a multiple of 8. In its leaf stand up to
//! 510 bytes of the key, and for a value the offset of the overflow in words of 8 bytes:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | CRC32C of the rest, seeded with the identity and the offset |
//! | 4 | 4 | length of the value |
//! | 8 | 4 | length of the key; 0: it stands in the leaf |
//! | 12 | 4 | zero |
//! | 16 | .. | the key, then the value |
//!
//! This file turns these bytes into values and back.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::damage::{Affects, Damage};
use crate::error::{Error, Kind, Result};
use crate::format::bytes::{Give, Take};
use crate::format::checksum::crc;
use crate::format::superblock::{self, SLOT_SIZE, Superblock};
use crate::io::Storage;
use crate::kernel::Slots;
use crate::log::LogPosition;
use crate::node::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::order::Order;

/// The engine's word in the superblock.
pub(super) const ENGINE: [u8; 8] = *b"skip\0\0\0\0";
/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;
/// Bytes before a block's node.
pub(super) const HEAD: u64 = 32;
/// Words of a block's node.
pub(super) const NODE_WORDS: usize = (BLOCK - HEAD) as usize / 8;
/// Keys of so many bytes and more have an overflow: in the leaf stand this many.
pub(super) const STEM: usize = KEY_LEN_MAX;
/// Longest value inside a leaf.
pub(super) const INSIDE: usize = VALUE_LEN_MAX;
/// Bytes before an overflow's key.
pub(super) const OVERFLOW_HEAD: usize = 16;
/// Overflows, and blocks, begin in different pieces of so many bytes.
pub(super) const PIECE: u64 = 512;
/// Bytes of a value of an inner node.
pub(super) const CHILD_LEN: usize = 10;

const _: () = assert!(OVERFLOW_HEAD + INSIDE + 1 > PIECE as usize);
const _: () = assert!(OVERFLOW_HEAD + STEM >= PIECE as usize);
const _: () = assert!(BLOCK.is_multiple_of(PIECE) && superblock::SIZE.is_multiple_of(BLOCK));

/// The pending edits that a merge wrote into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contained {
    /// Identity of the pending file, never 0.
    pub(super) pending: u64,
    /// All of its edits before this position.
    pub(super) until: LogPosition,
}

/// The superblock's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Super {
    pub(super) identity: u64,
    pub(super) size: u64,
    pub(super) count: u64,
    /// Of keys and values.
    pub(super) bytes: u64,
    /// `None`: there are no records.
    pub(super) root: Option<u32>,
    pub(super) height: u8,
    pub(super) repeats: bool,
    pub(super) order: Order,
    pub(super) contained: Option<Contained>,
}

impl Super {
    fn encode(&self) -> Vec<u8> {
        let name = self.order.name();
        let mut give = Give::default();
        give.u64(self.identity)
            .u64(self.size)
            .u64(self.count)
            .u64(self.bytes)
            .u32(self.root.unwrap_or(0))
            .u8(self.height)
            .u8(self.repeats.into())
            .u8(name.len() as u8)
            .u8(0)
            .bytes(name.as_bytes());
        if let Some(Contained { pending, until }) = self.contained {
            give.u64(pending).u64(until.sequence).u32(until.offset);
        }
        give.0
    }

    /// A slot, of which sequences 2 and 1 are those at the beginning, and 0 that at the end.
    fn slot(&self, sequence: u64) -> Vec<u8> {
        let block = Superblock {
            engine: ENGINE,
            sequence,
            payload: self.encode(),
        };
        block.encode()
    }

    /// Writes all slots.
    pub(super) fn write(&self, storage: &dyn Storage) -> Result<()> {
        storage.write_at(self.size - SLOT_SIZE, &self.slot(0))?;
        storage.write_at(0, &[self.slot(2), self.slot(1)].concat())
    }

    /// The slots of a file that do not verify, or cannot be read.
    pub(super) fn damaged(&self, storage: &dyn Storage) -> Result<Vec<Damage>> {
        let mut damaged = Slots::read(storage)?.damaged(storage.path(), ENGINE, "");
        let offset = self.size - SLOT_SIZE;
        if last_slot(storage, self.size).is_none() {
            damaged.push(Damage {
                path: storage.path().to_path_buf(),
                offset,
                len: SLOT_SIZE,
                found: "the superblock at the end cannot be read or does not verify; those at the beginning are used, and nothing is lost"
                    .into(),
                affects: Affects::Nothing,
            });
        }
        Ok(damaged)
    }

    /// The payload, and the name of its order. `None`: impossible values.
    fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        let mut take = Take(payload);
        let (identity, size) = (take.u64()?, take.u64()?);
        let (count, bytes) = (take.u64()?, take.u64()?);
        let root = take.u32()?;
        let (height, repeats) = (take.u8()?, take.u8()?);
        let len = take.u8()?;
        let zero = take.u8()?;
        let name = take.bytes(len.into())?;
        let contained = if take.rest_is_zero() {
            None
        } else {
            Some(Contained {
                pending: take.u64().filter(|pending| *pending != 0)?,
                until: LogPosition::new(take.u64()?, take.u32()?),
            })
        };
        let found = Self {
            identity,
            size,
            count,
            bytes,
            root: (root != 0).then_some(root),
            height,
            repeats: repeats == 1,
            order: Order::default(),
            contained,
        };
        let is_possible = take.rest_is_zero()
            && zero == 0
            && repeats <= 1
            && size.is_multiple_of(BLOCK)
            && size >= superblock::SIZE + SLOT_SIZE
            && size / BLOCK <= 1 << 32
            && (root == 0) == (count == 0)
            && count < 1 << 48
            && height < 32;
        is_possible.then_some((found, name))
    }

    /// Reads it. `Mismatch` for a file that is none, or of an order that this version does not know; `Corrupted`, `Io`.
    pub(super) fn read(storage: &dyn Storage) -> Result<Self> {
        let slots = Slots::read(storage)?;
        let last = match slots.engine() {
            None => last_slot(storage, storage.size()?),
            Some(_) => None,
        };
        let block = last.map_or_else(|| slots.current(ENGINE), Ok);
        let block = block.map_err(|error| other_file(error).at(storage.path()))?;
        let (found, name) = Self::decode(&block.payload).ok_or_else(|| {
            Error::new(Kind::Corrupted, "the superblock holds impossible values")
                .at(storage.path())
                .offset(block.slot_offset())
                .remedy("restore a backup")
        })?;
        let order = Order::of_file(name).map_err(|error| error.at(storage.path()))?;
        Ok(Self { order, ..found })
    }
}

/// The superblock at the end of a file of this size, which it states. It counts where those at the beginning are lost, and only
/// there: what ends a file of another engine may be anything.
fn last_slot(storage: &dyn Storage, size: u64) -> Option<Superblock> {
    let mut slot = vec![0; SLOT_SIZE as usize];
    storage
        .read_at(size.checked_sub(SLOT_SIZE)?, &mut slot)
        .ok()?;
    let block = Superblock::current(&slot, &ENGINE).ok()?;
    let (top, _) = Super::decode(&block.payload)?;
    (top.size == size).then_some(block)
}

/// Whether a storage holds a sorted file.
pub(super) fn is_sorted_file(storage: &dyn Storage) -> bool {
    let Ok(slots) = Slots::read(storage) else {
        return false;
    };
    let has_last = || {
        let size = storage.size().ok();
        size.and_then(|size| last_slot(storage, size)).is_some()
    };
    slots
        .engine()
        .map_or_else(has_last, |engine| engine == ENGINE)
}

/// The error of a file that is no sorted one.
fn other_file(error: Error) -> Error {
    if error.kind() != Kind::Mismatch || error.what().contains("newer") {
        return error;
    }
    error.remedy(
        "give a sorted file; of a hash file one is made by `azekura export` and `azekura skip build`",
    )
}

/// The bytes of a block before its node, for a node of `node`'s bytes.
pub(super) fn head(identity: u64, number: u32, ordinal: u64, node: &[u8]) -> [u8; HEAD as usize] {
    let mut covered = Give::default();
    covered.u32(number).u64(ordinal).u64(0).u64(0);
    let sum = crc(crc(identity as u32, &covered.0), node);
    let mut head = [0; HEAD as usize];
    for (to, from) in head
        .iter_mut()
        .zip(sum.to_le_bytes().iter().chain(&covered.0))
    {
        *to = *from;
    }
    head
}

/// How many records come before the first of a block of this number, if its checksum holds. `bytes` are the block's.
pub(super) fn ordinal_of(identity: u64, number: u32, bytes: &[u8]) -> Option<u64> {
    let mut take = Take(bytes);
    let sum = take.u32()?;
    let covered = take.0;
    let (own, ordinal) = (take.u32()?, take.u64()?);
    (own == number && crc(identity as u32, covered) == sum).then_some(ordinal)
}

/// How many records come before the first of a block that was verified.
pub(super) fn verified_ordinal(bytes: &[u8]) -> u64 {
    let ordinal = bytes.get(8..).and_then(<[u8]>::first_chunk::<8>);
    ordinal.map_or(0, |ordinal| u64::from_le_bytes(*ordinal))
}

/// The value of an entry of an inner node.
pub(super) fn child(number: u32, ordinal: u64) -> [u8; CHILD_LEN] {
    let mut value = [0; CHILD_LEN];
    let bytes = number
        .to_le_bytes()
        .into_iter()
        .chain(ordinal.to_le_bytes());
    for (to, from) in value.iter_mut().zip(bytes) {
        *to = from;
    }
    value
}

/// How many records come before the first of a child, of the last six bytes of an entry's value.
pub(super) fn child_ordinal(value: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = value;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// What stands before the key of an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverflowHead {
    sum: u32,
    pub(super) value_len: u32,
    pub(super) key_len: u32,
}

impl OverflowHead {
    fn seed(identity: u64, offset: u64) -> u32 {
        (identity as u32).wrapping_add((offset / 8) as u32)
    }

    fn lengths(value_len: u32, key_len: u32) -> Give {
        let mut lengths = Give::default();
        lengths.u32(value_len).u32(key_len).u32(0);
        lengths
    }

    /// The bytes of the head of an overflow at `offset`.
    pub(super) fn encode(identity: u64, offset: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let lengths = Self::lengths(value.len() as u32, key.len() as u32);
        let seed = Self::seed(identity, offset);
        let sum = crc(crc(crc(seed, &lengths.0), key), value);
        let mut head = Give::default();
        head.u32(sum).bytes(&lengths.0);
        head.0
    }

    /// The head that begins `bytes`.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        Some(Self {
            sum: take.u32()?,
            value_len: take.u32()?,
            key_len: take.u32()?,
        })
    }

    /// Bytes of key and value.
    pub(super) fn len(self) -> u64 {
        u64::from(self.key_len) + u64::from(self.value_len)
    }

    /// Whether the checksum of an overflow at `offset` holds, of which `content` comes after the head.
    pub(super) fn is_sum_of(self, identity: u64, offset: u64, content: &[u8]) -> bool {
        let lengths = Self::lengths(self.value_len, self.key_len);
        let seed = Self::seed(identity, offset);
        crc(crc(seed, &lengths.0), content) == self.sum
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn top() -> Super {
        Super {
            identity: 0x0102_0304_0506_0708,
            size: 5 * BLOCK,
            count: 9,
            bytes: 100,
            root: Some(3),
            height: 1,
            repeats: true,
            order: Order::Decimal,
            contained: None,
        }
    }

    #[test]
    fn a_superblock_has_the_bytes_of_the_table() {
        let payload = top().encode();
        assert_eq!(payload[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(payload[8..16], (5 * 4096u64).to_le_bytes());
        assert_eq!(payload[16..24], 9u64.to_le_bytes());
        assert_eq!(payload[24..32], 100u64.to_le_bytes());
        assert_eq!(payload[32..40], [3, 0, 0, 0, 1, 1, 7, 0]);
        assert_eq!(payload[40..], *b"decimal");
        let (found, name) = Super::decode(&payload).unwrap();
        assert_eq!((found.count, name), (9, &b"decimal"[..]));
    }

    #[test]
    fn what_a_merge_contained_stands_after_the_name() {
        let contained = Contained {
            pending: 0x1122,
            until: LogPosition::new(7, 64),
        };
        let top = Super {
            contained: Some(contained),
            ..top()
        };
        let payload = top.encode();
        assert_eq!(payload[47..55], 0x1122u64.to_le_bytes());
        assert_eq!(payload[55..63], 7u64.to_le_bytes());
        assert_eq!(payload[63..], 64u32.to_le_bytes());
        let (found, _) = Super::decode(&payload).unwrap();
        assert_eq!(found.contained, Some(contained));
        // A pending file has an identity, and what follows is zero.
        let other = |at: usize, byte: u8| {
            let mut payload = [&payload[..], &[0; 8]].concat();
            payload[at] = byte;
            payload[47] = if at == 47 { byte } else { 0x22 };
            payload
        };
        assert!(Super::decode(&other(70, 1)).is_none());
        let mut nameless = other(47, 0);
        nameless[48] = 0;
        assert!(Super::decode(&nameless).is_none());
    }

    #[test]
    fn impossible_superblocks_are_refused() {
        for (at, byte) in [
            (8, 1),
            (32, 0),
            (37, 2),
            (39, 1),
            (36, 32),
            (21, 1),
            (23, 1),
        ] {
            let mut payload = top().encode();
            payload[at] = byte;
            if at == 32 {
                payload[32..36].fill(0);
            }
            let found = Super::decode(&payload);
            assert_eq!(found.is_some(), at == 21, "{at}");
        }
        let payload = top().encode();
        for len in 0..payload.len() {
            assert!(Super::decode(&payload[..len]).is_none());
        }
    }

    #[test]
    fn a_block_verifies_only_in_its_place_and_file() {
        let node = [7; 4064];
        let mut block = head(5, 9, 77, &node).to_vec();
        block.extend_from_slice(&node);
        assert_eq!(block[4..16], [9, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ordinal_of(5, 9, &block), Some(77));
        assert_eq!(verified_ordinal(&block), 77);
        assert_eq!(ordinal_of(6, 9, &block), None);
        assert_eq!(ordinal_of(5, 8, &block), None);
        for at in 0..block.len() {
            block[at] ^= 4;
            assert_eq!(ordinal_of(5, 9, &block), None, "{at}");
            block[at] ^= 4;
        }
    }

    #[test]
    fn an_overflow_verifies_only_in_its_place() {
        let mut bytes = OverflowHead::encode(5, 4096, b"key", b"value");
        assert_eq!(bytes[4..], [5, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let head = OverflowHead::decode(&bytes).unwrap();
        assert_eq!(head.len(), 8);
        assert!(head.is_sum_of(5, 4096, b"keyvalue"));
        assert!(!head.is_sum_of(5, 4104, b"keyvalue"));
        assert!(!head.is_sum_of(5, 4096, b"keyvalua"));
        bytes[8] = 4;
        let other = OverflowHead::decode(&bytes).unwrap();
        assert!(!other.is_sum_of(5, 4096, b"keyvalue"));
    }

    #[test]
    fn a_child_is_ten_bytes() {
        let value = child(0x0102_0304, 0x0a0b_0c0d_0e0f);
        assert_eq!(value, [4, 3, 2, 1, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa]);
        let rest = *value[4..].first_chunk().unwrap();
        assert_eq!(child_ordinal(rest), 0x0a0b_0c0d_0e0f);
    }
}
