//! The tree file on storage: the engine's part of the superblock, the root of a checkpoint, its parts, and pages.
//!
//! Superblock payload (after the 32 bytes of `format::superblock`):
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | segment size as a power of two, 16 to 26 |
//! | 4 | 4 | salt of all checksums in this file |
//! | 8 | 1, 7 | bytes of a page as a power of two, 12 to 14 (0: 12), zero |
//! | 16 | 1 | compression of pages: 0 none, 1 lz4, 2 zstd |
//! | 17 | 71 | what it states of the log (`log::manifest`) |
//! | 88 | 8 | records at the moment where replay begins |
//! | 96 | 8 | next segment sequence |
//! | 104 | 1, .. | the name of the order of keys, with its length before |
//!
//! The root of a checkpoint:
//!
//! | size | meaning |
//! |---|---|
//! | 4 | page numbers that were given out |
//! | 8, 8 | the checkpoint's number, and one drawn for it: what names the same units as the checkpoint before has these two of it |
//! | 4 | number of checkpoints, oldest first, that copies were made of; for each, 64 at most: |
//! | 8, 8 | .. its number, and the one drawn for it |
//! | 4 | number of chunks of the page table; for each: |
//! | 8, 4 | .. offset in the file (0: all its places are empty), CRC32C |
//! | 4 | number of bitmap parts; for each: |
//! | 8, 4, 4 | .. offset, CRC32C, length |
//! | .. | the segments in use (`log::manifest::Needed`) |
//!
//! The segments in use are those of the log and of checkpoints; those that hold pages are in the bitmaps. A chunk of the page table is
//! 512 places of 8 bytes. A bitmap part is a row of groups:
//!
//! | size | meaning |
//! |---|---|
//! | 4, 4 | index of the group's first segment, segments |
//! | 8 | the number of the last checkpoint that names a unit of it which the one before did not |
//! | .. | a bit for each unit of 4 KiB, in words of 8 bytes: 1, it is in use |
//!
//! A *place* is where a page's image is:
//!
//! | bits | meaning |
//! |---|---|
//! | 2, the upper of 63 | units of the image, less one |
//! | 32 | its first unit of 4 KiB in the file, from its beginning |
//! | 11 | records of the leaf; 2047: not stated, as of an inner page, a leaf of more, and one that has a list |
//! | 18 | the lower bits of the image's checksum: an image that was lost or misplaced is noticed though its sum is right |
//!
//! A page's image is in a file of its own (`page_image`).
//!
//! A value of more than 510 bytes is a *run* of units; the word in its leaf has 32 bits of unit, 1 that states whether it is a list, 19 of
//! length in units less one, and 12 bits of the run's checksum:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | CRC32C of length and value, seeded with salt, unit, and whether it is a list |
//! | 4 | 4 | length of the value |
//! | 8 | .. | the value |
//!
//! A list has the records whose keys begin with the 510 bytes of its entry's key (`cluster`), in order:
//!
//! | size | meaning |
//! |---|---|
//! | 4 | length of the rest of the key |
//! | 4 | length of the value; the greatest number: it stands in a run of its own, after what of the rest is beyond 1024 bytes |
//! | .. | the rest, its first 1024 bytes at most |
//! | .. | the value, or the word of its run, of 8 bytes |
//!
//! Frames of the journal are those of the log (`format::frame`), of these kinds; several that happened together are one batch:
//!
//! | kind | key | value |
//! |---|---|---|
//! | put, keyed 0 | the record's | the record's |
//! | remove, keyed 1 | the record's | none |
//! | clear, wide 0 | none | none |
//! | remove a range, wide 1 | none | where it begins, where it ends |
//!
//! An end of a range:
//!
//! | size | meaning |
//! |---|---|
//! | 1 | 0: there is no end on this side; 1: this key, which is in the range; 2: this key, which is not |
//! | 4, .. | length of the key, the key; of 0, no more |
//!
//! This file turns these bytes into values and back.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

pub mod page_image;

use std::ops::Bound;

use crate::error::Error;
use crate::format::bytes::{Give, Take};
use crate::format::checksum::crc;
use crate::format::frame::FrameKind;
use crate::format::superblock::Superblock;
use crate::kernel::Payload;
use crate::kernel::changes::CheckpointNumber;
use crate::kernel::superblock::manifest_within;
use crate::log::Geometry;
use crate::log::manifest::{Extent, Manifest, Needed};
use crate::node::tree::FRAME;
use crate::order::{KeyBounds, Order};
use crate::record::compression::Compression;

/// The engine's word in the superblock.
pub const ENGINE: [u8; 8] = *b"tree\0\0\0\0";

/// Smallest and largest segment, as powers of two.
pub const SHIFTS: std::ops::RangeInclusive<u32> = 16..=26;

/// Seed of a root's checksum, in addition to the salt.
const ROOT_SEED: u32 = 0x5452_4f54;
const CHUNK_SEED: u32 = 0x4348_554e;
const BITMAP_SEED: u32 = 0x4249_5453;
const RUN_SEED: u32 = 0x5255_4e53;
const LIST_SEED: u32 = 0x4c49_5354;

/// The record with this key has this value.
pub const PUT: FrameKind = FrameKind::keyed(0);
/// The record with this key is removed.
pub const REMOVE: FrameKind = FrameKind::keyed(1);
/// All records are removed.
pub const CLEAR: FrameKind = FrameKind::wide(0);
/// The records between two keys are removed.
pub const REMOVE_RANGE: FrameKind = FrameKind::wide(1);

/// Bytes of a unit, in which places are counted.
pub const UNIT: u64 = FRAME;
/// Places in a chunk of the page table.
pub const CHUNK: usize = 512;
/// Words of a frame before the node's.
pub const HEAD_WORDS: usize = 2;
/// Bytes of an image before the node.
pub const IMAGE_HEAD: usize = 32;
/// Bytes of the largest page.
pub const PAGE_MAX: usize = 1 << PageShape::SHIFT_MAX;
/// Bytes of a run before the value.
pub const RUN_HEAD: usize = 8;

/// Lower bits of a checksum that a place keeps.
const CHECK_BITS: u32 = 18;
const RECORDS_BITS: u32 = 11;
const RECORDS_SHIFT: u32 = CHECK_BITS;
/// In the place of a number of records.
const NOT_STATED: u32 = (1 << RECORDS_BITS) - 1;
const UNIT_BITS: u32 = 32;
const UNIT_SHIFT: u32 = RECORDS_SHIFT + RECORDS_BITS;
const UNITS_BITS: u32 = 2;
const UNITS_SHIFT: u32 = UNIT_SHIFT + UNIT_BITS;
const PLACE_BITS: u32 = UNITS_SHIFT + UNITS_BITS;
/// Bytes that a file has at most: those of units that places have numbers for.
pub const FILE_MAX: u64 = UNIT << UNIT_BITS;
const RUN_CHECK_BITS: u32 = 12;
const RUN_UNITS_BITS: u32 = 19;
const RUN_LIST: u64 = 1 << (RUN_UNITS_BITS + RUN_CHECK_BITS);
const RUN_UNIT_SHIFT: u32 = RUN_UNITS_BITS + RUN_CHECK_BITS + 1;

/// What a frame of [`REMOVE_RANGE`] states.
pub fn encode_bounds((from, to): KeyBounds<'_>) -> Vec<u8> {
    let mut give = Give::default();
    for end in [from, to] {
        let (kind, key) = match end {
            Bound::Unbounded => {
                give.u8(0);
                continue;
            }
            Bound::Included(key) => (1, key),
            Bound::Excluded(key) => (2, key),
        };
        give.u8(kind).u32(key.len() as u32).bytes(key);
    }
    give.0
}

/// The ends that a frame states; `None`: these bytes are none.
pub fn decode_bounds(bytes: &[u8]) -> Option<KeyBounds<'_>> {
    let mut take = Take(bytes);
    let mut end = || {
        let kind = take.u8()?;
        if kind == 0 {
            return Some(Bound::Unbounded);
        }
        let len = take.u32()? as usize;
        let key = take.bytes(len)?;
        match kind {
            1 => Some(Bound::Included(key)),
            2 => Some(Bound::Excluded(key)),
            _ => None,
        }
    };
    let bounds = (end()?, end()?);
    take.0.is_empty().then_some(bounds)
}

/// What all pages of a file have in common; fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageShape {
    /// Bytes of a page as a power of two.
    shift: u32,
    /// How images are stored.
    pub compression: Compression,
}

impl PageShape {
    const SHIFT_MIN: u32 = UNIT.trailing_zeros();
    const SHIFT_MAX: u32 = 14;

    /// Pages of one unit.
    pub const PLAIN: Self = Self {
        shift: Self::SHIFT_MIN,
        compression: Compression::None,
    };

    /// Pages of so many bytes: 4, 8 or 16 KiB; 0: 16 where they are compressed, else 4. `None` for other sizes, and for a page of one
    /// unit that is to be compressed: it cannot take less.
    pub fn new(page_size: u64, compression: Compression) -> Option<Self> {
        let is_plain = compression == Compression::None;
        let size = match page_size {
            0 if is_plain => UNIT,
            0 => PAGE_MAX as u64,
            size => size,
        };
        let shift = size.trailing_zeros();
        let least = Self::SHIFT_MIN + u32::from(!is_plain);
        let is_size = size.is_power_of_two() && (least..=Self::SHIFT_MAX).contains(&shift);
        is_size.then_some(Self { shift, compression })
    }

    /// Bytes of a page as a power of two.
    #[inline(always)]
    pub fn shift(self) -> u32 {
        self.shift
    }

    /// Bytes of a page.
    #[inline(always)]
    pub fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// Units of a page that is not compressed.
    pub fn units(self) -> u32 {
        1 << (self.shift - Self::SHIFT_MIN)
    }

    /// Words of a frame after its latch.
    pub fn words(self) -> usize {
        (self.bytes() as usize - IMAGE_HEAD) / 8 + HEAD_WORDS
    }
}

/// The engine's part of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Super {
    /// What it states of the log.
    pub manifest: Manifest,
    /// The order of keys.
    pub order: Order,
    /// What its pages are.
    pub shape: PageShape,
    /// Records where replay begins.
    pub count: u64,
}

manifest_within!(Super);

impl Payload for Super {
    const ENGINE: [u8; 8] = ENGINE;
    const ROOT_SEED: u32 = ROOT_SEED;

    fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        give.u32(self.geometry.shift)
            .u32(self.geometry.salt)
            .u64(self.shape.shift.into())
            .u8(self.shape.compression as u8);
        self.manifest.give(&mut give);
        let name = self.order.name().as_bytes();
        give.u64(self.count)
            .u64(self.next_sequence)
            .u8(name.len() as u8)
            .bytes(name);
        give.0
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (manifest, shape, count, name) = parts(bytes)?;
        let order = Order::of_file(name).ok()?;
        Some(Self {
            manifest,
            order,
            shape,
            count,
        })
    }

    fn unknown(bytes: &[u8]) -> Option<Error> {
        let (.., name) = parts(bytes)?;
        Order::of_file(name).err()
    }

    fn of_other(error: Error, head: &[u8]) -> Error {
        let is = |engine| Superblock::current(head, engine).is_ok();
        if is(b"hash\0\0\0\0") {
            return error
                .remedy("it is a hash file: open it with `HashDb`, or with `azekura::open::open`");
        }
        if is(b"skip\0\0\0\0") {
            return error.remedy(
                "it is a sorted file, which is not changed in place: read it with `SkipReader`, edit it with `SkipDb`, or build another with `azekura skip`",
            );
        }
        if is(b"shards\0\0") {
            return error.remedy(
                "it is the manifest of several shards: open it with `azekura::open`; repair or rebuild a shard's own file",
            );
        }
        error
    }
}

/// What a payload states: of the log, how many records, the name of the order. `None`: impossible values.
fn parts(bytes: &[u8]) -> Option<(Manifest, PageShape, u64, &[u8])> {
    let mut take = Take(bytes);
    let geometry = Geometry {
        shift: take.u32()?,
        salt: take.u32()?,
    };
    let page_size = match take.u64()? {
        0 => UNIT,
        shift => 1_u64.checked_shl(u32::try_from(shift).ok()?)?,
    };
    let compression = Compression::from_byte(take.u8()?)?;
    let shape = PageShape::new(page_size, compression)?;
    let mut manifest = Manifest::take(geometry, &mut take)?;
    let count = take.u64()?;
    manifest.next_sequence = take.u64()?;
    let len = take.u8()?;
    let name = take.bytes(len.into())?;
    let sound = SHIFTS.contains(&geometry.shift) && manifest.is_sound();
    sound.then_some((manifest, shape, count, name))
}

/// What the root of a checkpoint states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Page numbers given out.
    pub pages: u32,
    /// Which checkpoint it is.
    pub moment: CheckpointNumber,
    /// Those that copies were made of, oldest first.
    pub copied: Vec<CheckpointNumber>,
    /// Chunks of the page table; of an empty one the length is 0.
    pub chunks: Vec<Extent>,
    /// Parts of the bitmaps.
    pub bitmaps: Vec<Extent>,
    /// The segments in use.
    pub needed: Needed,
}

impl Root {
    /// Bytes of it, at most, for so many segments next to the log.
    pub fn len_max(&self, others: u64) -> u64 {
        let parts = self.chunks.len() as u64 * 12 + self.bitmaps.len() as u64 * 16;
        64 + parts + self.copied.len() as u64 * 16 + self.needed.log.len() as u64 * 24 + others * 8
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        give.u32(self.pages);
        self.moment.give(&mut give);
        give.u32(self.copied.len() as u32);
        for moment in &self.copied {
            moment.give(&mut give);
        }
        give.u32(self.chunks.len() as u32);
        for chunk in &self.chunks {
            give.u64(chunk.offset).u32(chunk.crc);
        }
        give.u32(self.bitmaps.len() as u32);
        for part in &self.bitmaps {
            give.u64(part.offset).u32(part.crc).u32(part.len as u32);
        }
        self.needed.give(&mut give);
        give.0
    }

    /// What was encoded. `None`: impossible values.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let pages = take.u32()?;
        let moment = CheckpointNumber::take(&mut take)?;
        let copied = take.all(CheckpointNumber::take)?;
        let chunks = take.all(|take| {
            let (offset, crc) = (take.u64()?, take.u32()?);
            let len = if offset == 0 { 0 } else { CHUNK as u64 * 8 };
            Some(Extent { offset, len, crc })
        })?;
        let bitmaps = take.all(|take| {
            let (offset, crc, len) = (take.u64()?, take.u32()?, take.u32()?);
            let len = u64::from(len);
            Some(Extent { offset, len, crc })
        })?;
        let needed = Needed::take(&mut take)?;
        let sound = (pages as usize).div_ceil(CHUNK) == chunks.len() && moment.number < u64::MAX;
        sound.then_some(Self {
            pages,
            moment,
            copied,
            chunks,
            bitmaps,
            needed,
        })
    }
}

/// The seed of a chunk's checksum.
pub fn chunk_seed(salt: u32, chunk: usize) -> u32 {
    crc(salt ^ CHUNK_SEED, &(chunk as u64).to_le_bytes())
}

/// The seed of a bitmap part's checksum.
pub fn bitmap_seed(salt: u32) -> u32 {
    salt ^ BITMAP_SEED
}

/// Where a page's image is. 0 is nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub u64);

impl Place {
    /// Nowhere.
    pub const NONE: Self = Self(0);

    fn new(unit: u64, units: u32, records: u32, sum: u32) -> Self {
        debug_assert!(unit >> UNIT_BITS == 0 && (1..=1 << UNITS_BITS).contains(&units));
        let place = u64::from(units - 1) << UNITS_SHIFT | unit << UNIT_SHIFT;
        let records = u64::from(records.min(NOT_STATED)) << RECORDS_SHIFT;
        Self(place | records | u64::from(sum) & ((1 << CHECK_BITS) - 1))
    }

    /// One as it stands in a chunk, of a page of so many units at most. `None`: impossible.
    pub fn decode(word: u64, units_max: u32) -> Option<Self> {
        let is_place = word >> PLACE_BITS == 0;
        let place = Self(word);
        (is_place && place.units() <= units_max).then_some(place)
    }

    /// The first unit.
    pub fn unit(self) -> u64 {
        self.0 >> UNIT_SHIFT & ((1 << UNIT_BITS) - 1)
    }

    /// How many units.
    pub fn units(self) -> u32 {
        (self.0 >> UNITS_SHIFT) as u32 + 1
    }

    /// How many records the leaf has; `None`: that is not stated.
    pub fn records(self) -> Option<u32> {
        let records = (self.0 >> RECORDS_SHIFT) as u32 & NOT_STATED;
        (records != NOT_STATED).then_some(records)
    }

    /// The offset in the file.
    pub fn offset(self) -> u64 {
        self.unit() * UNIT
    }

    /// Whether it is nowhere.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    fn has_sum(self, sum: u32) -> bool {
        (self.0 ^ u64::from(sum)) & ((1 << CHECK_BITS) - 1) == 0
    }
}

/// Where a value outside of its leaf is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPlace(pub u64);

impl RunPlace {
    /// The unit where it begins.
    pub fn unit(self) -> u64 {
        self.0 >> RUN_UNIT_SHIFT
    }

    /// Whether it is a list of records.
    pub fn is_list(self) -> bool {
        self.0 & RUN_LIST != 0
    }

    /// How many units it takes.
    pub fn units(self) -> u64 {
        ((self.0 >> RUN_CHECK_BITS) & ((1 << RUN_UNITS_BITS) - 1)) + 1
    }

    /// Units that a value of this length takes.
    pub fn units_of(len: usize) -> u64 {
        ((RUN_HEAD + len) as u64).div_ceil(UNIT)
    }

    /// A list that cannot be read, whatever the file has.
    pub const UNREADABLE_LIST: Self = Self(!0);

    fn new(unit: u64, is_list: bool, units: u64, sum: u32) -> Self {
        let list = if is_list { RUN_LIST } else { 0 };
        let sum = u64::from(sum) & ((1 << RUN_CHECK_BITS) - 1);
        Self(unit << RUN_UNIT_SHIFT | list | (units - 1) << RUN_CHECK_BITS | sum)
    }

    /// Encodes the parts of a value, or of a list, into `run`, for the units from this one on; its place.
    pub fn encode(salt: u32, unit: u64, is_list: bool, parts: &[&[u8]], run: &mut Vec<u8>) -> Self {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        run.extend_from_slice(&[0; 4]);
        run.extend_from_slice(&(len as u32).to_le_bytes());
        for part in parts {
            run.extend_from_slice(part);
        }
        let seed = run_seed(salt, unit, is_list);
        let sum = crc(seed, run.get(4..).unwrap_or_default());
        if let Some(head) = run.first_chunk_mut::<4>() {
            *head = sum.to_le_bytes();
        }
        Self::new(unit, is_list, Self::units_of(len), sum)
    }

    /// The value in the bytes of its units. `None`: they are not what was written here.
    pub fn decode(self, salt: u32, run: &[u8]) -> Option<&[u8]> {
        let (sum, rest) = run.split_first_chunk::<4>()?;
        let (len, value) = rest.split_first_chunk::<4>()?;
        let value = value.get(..u32::from_le_bytes(*len) as usize)?;
        let seed = run_seed(salt, self.unit(), self.is_list());
        let computed = crc(seed, rest.get(..4 + value.len())?);
        let is_whole = u32::from_le_bytes(*sum) == computed
            && Self::new(self.unit(), self.is_list(), self.units(), computed) == self;
        is_whole.then_some(value)
    }
}

fn run_seed(salt: u32, unit: u64, is_list: bool) -> u32 {
    let seed = if is_list { LIST_SEED } else { RUN_SEED };
    crc(salt ^ seed, &unit.to_le_bytes())
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a panic is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_what_was_encoded() {
        let extent = |offset| Extent {
            offset,
            len: 4096,
            crc: 7,
        };
        let root = Root {
            pages: 700,
            moment: CheckpointNumber {
                number: 9,
                drawn: 1 << 63,
            },
            copied: vec![CheckpointNumber::default(); 2],
            chunks: vec![extent(4096), extent(8192)],
            bitmaps: vec![extent(12288)],
            needed: Needed {
                log: Vec::new(),
                other: vec![(3, 1), (4, 2)],
            },
        };
        let bytes = root.encode();
        assert!(bytes.len() as u64 <= root.len_max(2));
        assert_eq!(Root::decode(&bytes), Some(root));
        for len in 0..bytes.len() {
            assert_eq!(Root::decode(&bytes[..len]), None, "cut at {len}");
        }
    }

    #[test]
    fn a_place_states_what_it_was_made_of() {
        for (unit, units, records) in [(1, 1, 0), ((1 << 32) - 1, 4, 2046), (77, 2, 180)] {
            let place = Place::new(unit, units, records, u32::MAX);
            assert_eq!(Place::decode(place.0, 4), Some(place));
            assert_eq!((place.unit(), place.units()), (unit, units));
            assert_eq!(place.records(), Some(records));
            assert!(place.has_sum(u32::MAX) && !place.has_sum(0));
            assert_eq!(Place::decode(place.0, units - 1), None, "a longer page");
            assert_eq!(Place::decode(place.0 | 1 << 63, 4), None);
        }
        assert_eq!(Place::new(5, 1, 2047, 0).records(), None);
        assert_eq!(Place::new(5, 1, u32::MAX, 0).records(), None);
    }

    #[test]
    fn ends_of_a_range_are_these_bytes() {
        let golden: [(KeyBounds<'_>, &[u8]); 3] = [
            ((Bound::Unbounded, Bound::Unbounded), &[0, 0]),
            (
                (Bound::Included(b"ab"), Bound::Excluded(b"")),
                &[1, 2, 0, 0, 0, b'a', b'b', 2, 0, 0, 0, 0],
            ),
            (
                (Bound::Unbounded, Bound::Included(b"z")),
                &[0, 1, 1, 0, 0, 0, b'z'],
            ),
        ];
        for (bounds, bytes) in golden {
            assert_eq!(encode_bounds(bounds), bytes);
            assert_eq!(decode_bounds(bytes), Some(bounds));
            for len in 0..bytes.len() {
                assert_eq!(decode_bounds(&bytes[..len]), None, "cut at {len}");
            }
            assert_eq!(decode_bounds(&[bytes, &[0]].concat()), None, "too long");
        }
        assert_eq!(decode_bounds(&[3, 0, 0, 0, 0, 0]), None);
        assert_eq!(decode_bounds(&[1, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }

    #[test]
    fn a_run_is_known_by_its_word() {
        let value = vec![3; 5000];
        let mut run = Vec::new();
        let place = RunPlace::encode(5, 1 << 20, false, &[&value], &mut run);
        assert_eq!((place.unit(), place.units()), (1 << 20, 2));
        assert_eq!(place.decode(5, &run), Some(&value[..]));
        assert_eq!(RunPlace(place.0 ^ 1).decode(5, &run), None);
        assert_eq!(place.decode(6, &run), None);
        run[4999] ^= 1;
        assert_eq!(place.decode(5, &run), None);
    }
}
