//! The bytes of a snapshot: a head, blocks of records, and an end mark.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4096 | one slot of `format/superblock.rs`, engine's word `snapshot`, sequence 0 |
//! | 4096 | .. | blocks, one after the other; the last is the end mark, and the file ends with it |
//!
//! Payload of the superblock:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | salt: no other snapshot has it |
//! | 8 | 1 | length of the word of the engine that was saved |
//! | 9 | 1 | length of the name of its order; 0: it has none |
//! | 10 | .. | the word, the name |
//!
//! A block:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | CRC32C, seeded with the payload of the superblock and the block's number; covers all that follows |
//! | 4 | 4 | how many records; 0: the end mark |
//! | 8 | 8 | bytes after this header |
//! | 16 | .. | records: 4 key length, whose highest bit states that it expires; 4 value length; 8 when it expires (only with that bit), in ms since 1970; key; value. Or, in the end mark: 8 count of all records; 4 CRC32C of the checksums of all blocks before it; 4 zero |
//!
//! So a block in another's place, or of another file, is none; a block left out is missed by number, count and
//! sum; and without an end mark a file was cut. This module reads and writes no file.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::error::{Error, Kind, Result};
use crate::format::bytes::{Give, Take};
use crate::format::checksum::crc;
use crate::format::superblock::{SLOT_SIZE, Superblock};

/// The word in the superblock.
pub const WORD: [u8; 8] = *b"snapshot";
/// Bytes in front of a block's records.
pub const BLOCK_HEADER_SIZE: usize = 16;
/// Bytes of the end mark, header included.
pub const END_SIZE: usize = BLOCK_HEADER_SIZE + 16;

/// Where the first block begins.
pub const HEAD_SIZE: u64 = SLOT_SIZE;

const SEED: u32 = 0x534e_4150;
const EXPIRES: u32 = 1 << 31;

/// The payload of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// No other snapshot has it.
    pub salt: u64,
    /// The word of the engine that was saved; at most 255 bytes.
    pub engine: String,
    /// The name of its order, if it has one; 1 to 255 bytes.
    pub order: Option<String>,
}

impl Head {
    /// The payload. Names longer than 255 bytes are cut.
    pub fn encode(&self) -> Vec<u8> {
        let cut = |name: &str| {
            let mut end = name.len().min(255);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            name.get(..end).unwrap_or_default().to_owned()
        };
        let engine = cut(&self.engine);
        let order = cut(self.order.as_deref().unwrap_or_default());
        let mut give = Give::default();
        give.u64(self.salt)
            .u8(engine.len() as u8)
            .u8(order.len() as u8)
            .bytes(engine.as_bytes())
            .bytes(order.as_bytes());
        give.0
    }

    /// What `payload` states; `None`: it is no such payload.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut take = Take(payload);
        let salt = take.u64()?;
        let (engine_len, order_len) = (take.u8()?, take.u8()?);
        let mut name = |len: u8| {
            let bytes = take.bytes(usize::from(len))?;
            Some(std::str::from_utf8(bytes).ok()?.to_owned())
        };
        let (engine, order) = (name(engine_len)?, name(order_len)?);
        take.0.is_empty().then_some(Self {
            salt,
            engine,
            order: (order_len > 0).then_some(order),
        })
    }

    /// All of the head.
    pub fn slot(&self) -> Vec<u8> {
        let slot = Superblock {
            engine: WORD,
            sequence: 0,
            payload: self.encode(),
        };
        slot.encode()
    }

    /// What the checksums of this file's blocks begin with.
    pub fn seed(&self) -> u32 {
        crc(SEED, &self.encode())
    }
}

fn block_sum(seed: u32, number: u64, covered: &[u8]) -> u32 {
    crc(crc(seed, &number.to_le_bytes()), covered)
}

/// A block being filled. The room is used again for the next.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            bytes: vec![0; BLOCK_HEADER_SIZE],
            count: 0,
        }
    }
}

impl Block {
    /// Adds a record. `TooLarge` if a key of 2 GiB or a value of 4 GiB is reached, `Full` if there is no memory.
    pub fn push(&mut self, key: &[u8], value: &[u8], expires_ms: Option<u64>) -> Result<()> {
        let key_len = u32::try_from(key.len())
            .ok()
            .filter(|len| len & EXPIRES == 0);
        let lens = key_len.zip(u32::try_from(value.len()).ok());
        let (key_len, value_len) = lens.ok_or_else(|| {
            Error::new(
                Kind::TooLarge,
                "a snapshot holds keys below 2 GiB, values below 4 GiB",
            )
            .key(key)
        })?;
        let wanted = 16 + key.len() + value.len();
        self.bytes.try_reserve(wanted).map_err(|_| {
            Error::new(Kind::Full, "no memory for a part of the snapshot")
                .detail(crate::error::size(wanted as u64))
        })?;
        let mut give = Give(std::mem::take(&mut self.bytes));
        match expires_ms {
            None => give.u32(key_len).u32(value_len),
            Some(at) => give.u32(key_len | EXPIRES).u32(value_len).u64(at),
        };
        give.bytes(key).bytes(value);
        self.bytes = give.0;
        self.count += 1;
        Ok(())
    }

    /// Records in it.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Its bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no record is in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Finishes it as the block `number`, and adds it to the sum of all.
    pub fn seal(&mut self, seed: u32, number: u64, sum: &mut u32) -> &[u8] {
        let mut header = Give::default();
        header
            .u32(self.count)
            .u64((self.bytes.len() - BLOCK_HEADER_SIZE) as u64);
        if let Some(target) = self.bytes.get_mut(4..BLOCK_HEADER_SIZE) {
            target.copy_from_slice(&header.0);
        }
        let own = block_sum(seed, number, self.bytes.get(4..).unwrap_or_default()).to_le_bytes();
        if let Some(target) = self.bytes.first_chunk_mut::<4>() {
            *target = own;
        }
        *sum = crc(*sum, &own);
        &self.bytes
    }

    /// Empties it. Room for one very large record is given back.
    pub fn clear(&mut self, keep: usize) {
        self.bytes.truncate(BLOCK_HEADER_SIZE);
        self.bytes.shrink_to(keep);
        self.count = 0;
    }
}

/// The end mark after `blocks` blocks.
pub fn end_mark(seed: u32, blocks: u64, records: u64, sum: u32) -> Vec<u8> {
    let mut covered = Give::default();
    covered
        .u32(0)
        .u64((END_SIZE - BLOCK_HEADER_SIZE) as u64)
        .u64(records)
        .u32(sum)
        .u32(0);
    let mut mark = Give::default();
    mark.u32(block_sum(seed, blocks, &covered.0))
        .bytes(&covered.0);
    mark.0
}

/// The header of a block. Not to be trusted before the block is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// As stored.
    pub checksum: u32,
    /// How many records; 0: the end mark.
    pub count: u32,
    /// Bytes after the header.
    pub len: u64,
}

impl BlockHeader {
    /// Decodes a header; `None`: there are fewer bytes than it has.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        Some(Self {
            checksum: take.u32()?,
            count: take.u32()?,
            len: take.u64()?,
        })
    }

    /// The checksum of the block `number` that has this header and these bytes after it.
    pub fn sum(&self, seed: u32, number: u64, rest: &[u8]) -> u32 {
        let mut header = Give::default();
        header.u32(self.count).u64(self.len);
        crc(block_sum(seed, number, &header.0), rest)
    }
}

/// The count and the sum in an end mark, from the bytes after its header.
pub fn end_of(rest: &[u8]) -> Option<(u64, u32)> {
    let mut take = Take(rest);
    let found = (take.u64()?, take.u32()?);
    (take.u32()? == 0 && take.0.is_empty()).then_some(found)
}

/// A record in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'b> {
    /// Its key.
    pub key: &'b [u8],
    /// Its value.
    pub value: &'b [u8],
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// The records of a block, from the bytes after its header; `None` where these are none.
pub fn records(rest: &[u8], count: u32) -> impl Iterator<Item = Option<Record<'_>>> {
    let mut take = Take(rest);
    let mut left = count;
    std::iter::from_fn(move || {
        if left == 0 {
            // What follows the last record belongs to no record.
            return (!std::mem::take(&mut take.0).is_empty()).then_some(None);
        }
        left -= 1;
        let record = record(&mut take);
        if record.is_none() {
            (left, take.0) = (0, &[]);
        }
        Some(record)
    })
}

fn record<'b>(take: &mut Take<'b>) -> Option<Record<'b>> {
    let (key_len, value_len) = (take.u32()?, take.u32()?);
    let expires_ms = match key_len & EXPIRES {
        0 => None,
        _ => Some(take.u64()?),
    };
    Some(Record {
        expires_ms,
        key: take.bytes((key_len & !EXPIRES) as usize)?,
        value: take.bytes(value_len as usize)?,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn head(order: Option<&str>) -> Head {
        Head {
            salt: 7,
            engine: "std-tree".into(),
            order: order.map(Into::into),
        }
    }

    #[test]
    fn a_head_comes_back_as_it_was_and_in_no_other_length() {
        for head in [head(None), head(Some("lexical"))] {
            let bytes = head.encode();
            assert_eq!(Head::decode(&bytes), Some(head));
            assert_eq!(Head::decode(&[&bytes[..], b"x"].concat()), None);
            assert!((0..bytes.len()).all(|len| Head::decode(&bytes[..len]).is_none()));
        }
        assert_ne!(head(None).seed(), head(Some("lexical")).seed());
    }

    #[test]
    fn a_block_has_its_records_and_its_sum_only_in_its_place() {
        let mut block = Block::default();
        block.push(b"", b"value", None).unwrap();
        block.push(b"key", b"", Some(u64::MAX)).unwrap();
        let mut sum = 1;
        let bytes = block.seal(9, 4, &mut sum).to_vec();
        let header = BlockHeader::decode(&bytes).unwrap();
        let rest = &bytes[BLOCK_HEADER_SIZE..];
        assert_eq!((header.count, header.len), (2, rest.len() as u64));
        assert_eq!(header.sum(9, 4, rest), header.checksum);
        assert_ne!(header.sum(9, 5, rest), header.checksum);
        assert_ne!(header.sum(8, 4, rest), header.checksum);
        assert_eq!(sum, crc(1, &bytes[..4]));
        let found: Vec<_> = records(rest, 2).map(Option::unwrap).collect();
        assert_eq!(
            (found[0].key, found[0].value, found[0].expires_ms),
            (&b""[..], &b"value"[..], None)
        );
        assert_eq!(
            (found[1].key, found[1].expires_ms),
            (&b"key"[..], Some(u64::MAX))
        );
        // Too few, too many, cut.
        assert!(records(rest, 1).any(|record| record.is_none()));
        assert!(records(rest, 3).any(|record| record.is_none()));
        for len in 0..rest.len() {
            assert!(records(&rest[..len], 2).any(|record| record.is_none()));
        }
        block.clear(0);
        assert!(block.is_empty());
    }

    #[test]
    fn an_end_mark_says_how_many_and_what_they_sum_to() {
        let mark = end_mark(3, 2, 70, 5);
        let header = BlockHeader::decode(&mark).unwrap();
        let rest = &mark[BLOCK_HEADER_SIZE..];
        assert_eq!((mark.len(), header.count), (END_SIZE, 0));
        assert_eq!(header.sum(3, 2, rest), header.checksum);
        assert_eq!(end_of(rest), Some((70, 5)));
        assert_eq!(end_of(&rest[1..]), None);
    }
}
