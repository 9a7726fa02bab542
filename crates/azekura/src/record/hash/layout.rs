//! The hash file on storage: the engine's part of the superblock, and the checkpoint.
//!
//! Superblock payload (after the 32 bytes of `format::superblock`):
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | segment size as a power of two, 12 to 26 |
//! | 4 | 4 | salt of all checksums in this file |
//! | 8 | 8 | seed of the hash: chosen keys cannot be made to collide |
//! | 16 | 1 | compression: 0 none, 1 lz4, 2 zstd |
//! | 17 | 1 | state: 0 closed cleanly, 1 open for writing (or its writer died) |
//! | 18 | 2 | zero |
//! | 20 | 4 | epoch: how often it was recovered; upper half of segment sequences |
//! | 24 | 16 | boot id of the system that had it open: distinguishes a dead process from lost power |
//! | 40 | 4, 4, 8 | where replay begins: segment index, offset (0: after the segment), sequence |
//! | 56 | 8, 4 | durable at least to: sequence, offset; of a closed file its end |
//! | 68 | 4 | CRC32C of the root, or of its first piece (`log::root`) |
//! | 72 | 8, 8 | root, or its first piece: offset in the file, length (0: no checkpoint yet) |
//! | 88 | 8 | records at the moment where replay begins |
//! | 96 | 8 | next segment sequence |
//!
//! The root of a checkpoint states where the parts of the index are, and which segments are in use:
//!
//! | size | meaning |
//! |---|---|
//! | 4 | number of partitions that have entries; for each: |
//! | 2, 2 | .. partition, zero |
//! | 4, 4, 4 | .. number of entries, length and CRC32C of the image |
//! | 8 | .. offset of the image in the file |
//! | 4 | number of segments of the log; for each: |
//! | 4, 4, 8, 8 | .. index, units, sequence, dead bytes |
//! | 4 | number of segments that hold images and roots; for each: |
//! | 4, 4 | .. index, units |
//! | 4, .. | length of the last mark before replay begins (0: there is none), and the mark (`mark`) |
//!
//! An image is a partition's entries, packed (`image`). Checksums stand with the parent, so an image that was
//! lost or misplaced is noticed too.
//!
//! This file turns these bytes into values and back.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use super::Compression;
use crate::error::{Error, Result};
use crate::format::bytes::{Give, Take};
use crate::format::checksum::crc;
use crate::format::frame::{Frame, FrameKind, KindPair};
use crate::format::superblock::Superblock;
use crate::index::hash::{ADDRESS_BITS, PARTITIONS};
use crate::kernel::Payload;
use crate::kernel::superblock::manifest_within;
use crate::log::manifest::{Extent, Manifest, Needed};
use crate::log::{Address, Geometry, Log, LogPosition};

/// The engine's word in the superblock.
pub const ENGINE: [u8; 8] = *b"hash\0\0\0\0";

/// Smallest and largest segment, as powers of two.
pub const SHIFTS: std::ops::RangeInclusive<u32> = 12..=26;

/// Records are at least one word of the 40 bits of words that a file may have.
const COUNT_MAX: u64 = 1 << ADDRESS_BITS;

/// The record, which was there, has this value.
pub const PUT: FrameKind = FrameKind::keyed(0);
/// The record with this key is removed.
pub const REMOVE: FrameKind = FrameKind::keyed(1);
/// The record, which was absent, has this value: so replay counts records without a lookup.
pub const INSERT: FrameKind = FrameKind::keyed(2);
/// All records are removed; the value, if there is one, is a mark (`mark`).
pub const CLEAR: FrameKind = FrameKind::wide(0);
/// The kinds that give a record a value.
pub const RECORD: KindPair = KindPair::of(PUT, INSERT);

/// Whether a frame of this kind gives a record a value.
#[inline(always)]
pub const fn is_record(kind: FrameKind) -> bool {
    RECORD.has(kind)
}

/// Whether this version knows what a frame of this kind changes.
pub const fn is_known(kind: FrameKind) -> bool {
    is_record(kind) || matches!(kind, REMOVE | CLEAR | FrameKind::MARK)
}

/// Refuses a frame whose kind this version does not know: what it changes would be lost. Errors: `Corrupted`.
#[inline(always)]
pub fn check_kind(log: &Log, address: Address, kind: FrameKind) -> Result<()> {
    if is_known(kind) {
        Ok(())
    } else {
        Err(log.unknown_kind(address, kind))
    }
}

/// The mark that a frame holds: itself, or in a clear.
pub fn mark_of<'f>(frame: &Frame<'f>) -> Option<&'f [u8]> {
    let holds = matches!(frame.header.kind, FrameKind::MARK | CLEAR);
    (holds && !frame.value.is_empty()).then_some(frame.value)
}

/// Longest mark.
pub const MARK_LEN_MAX: usize = 4096;

const IMAGE_SEED: u32 = 0x494d_4147;
/// Seed of a root's checksum, in addition to the salt.
pub const ROOT_SEED: u32 = 0x524f_4f54;

/// The engine's part of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Super {
    /// What it states of the log.
    pub manifest: Manifest,
    /// Seed of the hash.
    pub hash_seed: u64,
    /// How values are stored.
    pub compression: Compression,
    /// Records where replay begins.
    pub count: u64,
}

manifest_within!(Super);

impl Super {
    /// Whether a position lies past the end of a log that was closed: nothing was published there, and what stands there
    /// nevertheless is no damage.
    pub fn is_after_close(&self, position: LogPosition) -> bool {
        !self.open && position >= self.durable
    }
}

impl Payload for Super {
    const ENGINE: [u8; 8] = ENGINE;
    const ROOT_SEED: u32 = ROOT_SEED;

    fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        give.u32(self.geometry.shift)
            .u32(self.geometry.salt)
            .u64(self.hash_seed)
            .u8(self.compression as u8);
        self.manifest.give(&mut give);
        give.u64(self.count).u64(self.next_sequence);
        give.0
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let geometry = Geometry {
            shift: take.u32()?,
            salt: take.u32()?,
        };
        let hash_seed = take.u64()?;
        let compression = Compression::from_byte(take.u8()?)?;
        let mut manifest = Manifest::take(geometry, &mut take)?;
        let count = take.u64()?;
        manifest.next_sequence = take.u64()?;
        let sound = SHIFTS.contains(&geometry.shift) && manifest.is_sound() && count <= COUNT_MAX;
        sound.then_some(Self {
            manifest,
            hash_seed,
            compression,
            count,
        })
    }

    fn of_other(error: Error, head: &[u8]) -> Error {
        let is = |engine| Superblock::current(head, engine).is_ok();
        if is(b"tree\0\0\0\0") {
            return error.remedy("it is a tree file: open it with `azekura::open`");
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
        if is(b"object\0\0") || is(b"objdata\0") {
            return error.remedy(
                "it holds objects: use `azekura object get` and the other commands of `azekura object`",
            );
        }
        error
    }
}

/// Where a partition's entries are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Number of entries; 0: there is no image.
    pub count: u32,
    /// Its bytes.
    pub extent: Extent,
}

impl Image {
    /// Whether the partition has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The seed of the checksum of a partition's image.
pub fn image_seed(salt: u32, partition: usize) -> u32 {
    crc(salt ^ IMAGE_SEED, &(partition as u32).to_le_bytes())
}

/// A checkpoint's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// By partition; `PARTITIONS` of them.
    pub images: Vec<Image>,
    /// Segments of the log, of images and of roots.
    pub needed: Needed,
    /// The last mark before replay begins; empty: there is none.
    pub mark: Vec<u8>,
    /// Where it stands itself, if it was read.
    pub pieces: Vec<Extent>,
    /// Whether one bit of it was flipped back when it was read.
    pub is_corrected: bool,
}

impl Root {
    /// A root without a partition.
    pub fn new() -> Self {
        Self {
            images: vec![Image::default(); PARTITIONS],
            ..Self::default()
        }
    }

    /// The root's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        let partitions = || {
            self.images
                .iter()
                .enumerate()
                .filter(|(_, image)| !image.is_empty())
        };
        give.u32(partitions().count() as u32);
        for (partition, image) in partitions() {
            give.u16(partition as u16)
                .u16(0)
                .u32(image.count)
                .u32(image.extent.len as u32)
                .u32(image.extent.crc)
                .u64(image.extent.offset);
        }
        self.needed.give(&mut give);
        give.u32(self.mark.len() as u32).bytes(&self.mark);
        give.0
    }

    /// Decodes a root whose checksum was verified. `None`: impossible values.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let mut root = Self::new();
        for _ in 0..take.u32()? {
            let (partition, image) = take_image(&mut take)?;
            *root.images.get_mut(partition)? = image;
        }
        root.needed = Needed::take(&mut take)?;
        let len = take.u32()? as usize;
        root.mark = take.bytes(len)?.to_vec();
        let is_sound = take.0.is_empty() && len <= MARK_LEN_MAX;
        is_sound.then_some(root)
    }

    /// Decodes the images that the first bytes of a root state, the rest of which is lost; and how many partitions these are:
    /// they stand in rising order, so one that is not stated before the last of them has no entries.
    pub fn decode_first(bytes: &[u8]) -> (Self, usize) {
        let mut take = Take(bytes);
        let mut root = Self::new();
        let Some(count) = take.u32() else {
            return (root, 0);
        };
        let mut listed = 0;
        for _ in 0..count {
            let Some((partition, image)) = take_image(&mut take) else {
                return (root, listed);
            };
            match root.images.get_mut(partition) {
                Some(of) if partition >= listed => *of = image,
                _ => return (Self::new(), 0),
            }
            listed = partition + 1;
        }
        (root, PARTITIONS)
    }
}

fn take_image(take: &mut Take<'_>) -> Option<(usize, Image)> {
    let partition = usize::from(take.u16()?);
    let _zero = take.u16()?;
    let (count, len) = (take.u32()?, u64::from(take.u32()?));
    let (crc, offset) = (take.u32()?, take.u64()?);
    let extent = Extent { offset, len, crc };
    Some((partition, Image { count, extent }))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use crate::log::{End, LogPosition, Segment};

    fn sample() -> Super {
        let manifest = Manifest {
            geometry: Geometry {
                shift: 20,
                salt: 0x0102_0304,
            },
            open: true,
            epoch: 6,
            boot_id: [7; 16],
            start: at(9, 72),
            durable: LogPosition::new(11, 12),
            root: Some(Extent {
                offset: 13,
                len: 14,
                crc: 15,
            }),
            next_sequence: 17,
        };
        Super {
            manifest,
            hash_seed: 5,
            compression: Compression::Lz4,
            count: 16,
        }
    }

    #[test]
    fn the_bytes_of_the_superblock_are_as_the_table_says() {
        let bytes = sample().encode();
        assert_eq!(bytes.len(), 104);
        assert_eq!(&bytes[..8], &[20, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(&bytes[16..24], &[1, 1, 0, 0, 6, 0, 0, 0]);
        assert_eq!(&bytes[40..48], &[8, 0, 0, 0, 72, 0, 0, 0]);
        assert_eq!(
            (bytes[56], bytes[64], bytes[68], bytes[72]),
            (11, 12, 15, 13)
        );
        assert_eq!((bytes[80], bytes[88], bytes[96]), (14, 16, 17));
        assert_eq!(Super::decode(&bytes), Some(sample()));
        for len in 0..bytes.len() {
            assert_eq!(Super::decode(&bytes[..len]), None);
        }
    }

    fn at(sequence: u64, offset: u32) -> End {
        End::of(8, sequence, Some(offset))
    }

    #[test]
    fn numbers_that_no_writer_gives_are_refused() {
        let refused = |spoil: fn(&mut Super)| {
            let mut spoilt = sample();
            spoil(&mut spoilt);
            Super::decode(&spoilt.encode()).is_none()
        };
        assert!(refused(|own| own.geometry.shift = 27));
        assert!(refused(|own| own.start = at(9, 74)));
        assert!(refused(|own| own.start = at(9, 56)));
        assert!(refused(|own| own.epoch = u32::MAX));
        assert!(refused(|own| own.next_sequence = u64::MAX));
        assert!(refused(|own| own.start = at(u64::MAX, 72)));
        assert!(refused(|own| own.count = u64::MAX));
        assert!(!refused(|own| own.start = own.start.closed()));
    }

    #[test]
    fn a_root_comes_back_and_no_prefix_of_it_does() {
        let mut root = Root::new();
        let image = |count, offset, len, crc| {
            let extent = Extent { offset, len, crc };
            Image { count, extent }
        };
        root.images[3] = image(5, 4096, 7, 6);
        root.images[4095] = image(7, 8192, 9, 8);
        root.needed.log.push(Segment {
            index: 0,
            units: 1,
            sequence: 1 << 32,
            dead: 99,
            waste: 0,
        });
        root.needed.other.push((1, 2));
        root.mark = b"a mark".to_vec();
        let bytes = root.encode();
        assert_eq!(Root::decode(&bytes), Some(root.clone()));
        for len in 0..bytes.len() {
            assert_eq!(Root::decode(&bytes[..len]), None);
            let (first, listed) = Root::decode_first(&bytes[..len]);
            let wanted = match len {
                0..28 => 0,
                28..52 => 4,
                _ => PARTITIONS,
            };
            assert_eq!(listed, wanted, "{len} bytes");
            assert_eq!(first.images[..listed], root.images[..listed], "{len} bytes");
        }
    }
}
