//! The superblock of an object store, and the label of its second device.
//!
//! One file or device, or two with the data on the second:
//!
//! | offset | meaning |
//! |---|---|
//! | 0 | superblock, control block and segments of the journal (`log::layout`), to the data's offset |
//! | the data's offset | units of 4096 bytes: extents of objects (`place::extent`), and free space |
//!
//! With two devices, the first ends with the journal, and the second begins with a *label*: a superblock of its own in both
//! slots, whose payload is the store's 16 bytes of identity and the number of units.
//!
//! Superblock payload (after the 32 bytes of `format::superblock`):
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | segment size of the journal as a power of two |
//! | 4 | 4 | salt of all checksums of this store |
//! | 8 | 16 | identity: differs from store to store |
//! | 24 | 8 | bytes that belong to the journal |
//! | 32 | 8 | offset of the data, on its device |
//! | 40 | 8 | units of data |
//! | 48 | 4 | units of an allocation group |
//! | 52 | 4 | longest sectors of a device that the store may be on |
//! | 56 | 1 | devices: 1 or 2 |
//! | 57 | 1 | state: 0 closed cleanly, 1 open for writing (or its writer died) |
//! | 58 | 2 | zero |
//! | 60 | 4 | epoch: how often it was recovered |
//! | 64 | 16 | boot id of the system that had it open |
//! | 80 | 4, 4, 8 | where replay begins: segment index, offset, sequence |
//! | 96 | 8, 4 | durable at least to: sequence, offset |
//! | 108 | 4 | CRC32C of the root, or of its first piece (`log::root`) |
//! | 112 | 8, 8 | root, or its first piece: offset, length (0: no checkpoint yet) |
//! | 128 | 8 | next segment sequence |
//! | 136 | 8 | next sequence of changes, at least |
//! | 144 | 12, 12 | only where a recovery found records that do not match the data: positions from and to which puts must verify to count; zeros if only the next field follows |
//! | 168 | 8, 8 .. | only during a repair: lost places of the journal (`care::lost`), offset and length of each |
//!
//! This file encodes and decodes; when a superblock is written is decided elsewhere.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::ops::Range;

use crate::error::{Error, Kind, Result};
use crate::format::bytes::{Give, Take};
use crate::format::superblock::Superblock;
use crate::io::Storage;
use crate::kernel::Payload;
use crate::kernel::superblock::manifest_within;
use crate::log::manifest::Manifest;
use crate::log::{Geometry, LogPosition};
use crate::object::checkpoint::root::ROOT_SEED;
use crate::object::journal::record::SEQUENCES_END;
use crate::object::place::extent::{PIECE, UNIT};

/// Identifies the engine in the superblock.
pub const ENGINE: [u8; 8] = *b"object\0\0";

/// Identifies the label of a second device.
pub const DATA: [u8; 8] = *b"objdata\0";

/// Smallest and largest segment of the journal, as powers of two.
pub const SHIFTS: std::ops::RangeInclusive<u32> = 12..=24;

/// End of the data that a place can address: 40 bits of pieces.
pub(crate) const PLACES_END: u64 = PIECE << 40;

/// The engine's part of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Super {
    /// State of the journal.
    pub manifest: Manifest,
    /// Differs from store to store.
    pub identity: [u8; 16],
    /// Bytes that belong to the journal.
    pub journal_size: u64,
    /// Offset of the data, on its device.
    pub data_offset: u64,
    /// Units of data.
    pub units: u64,
    /// Units of an allocation group.
    pub group_units: u32,
    /// The longest sectors of a device that it may be on, in bytes.
    pub alignment: u32,
    /// 1 or 2.
    pub devices: u8,
    /// The next change gets this sequence or a later one.
    pub sequence: u64,
    /// Between these positions the journal did not match the data after loss of power: each put there must verify. Ends with the
    /// next checkpoint.
    pub doubt: Option<(LogPosition, LogPosition)>,
    /// Places of the journal, in order, whose contents a repair that did not end could not know.
    pub lost: Vec<Range<u64>>,
}

manifest_within!(Super);

impl Payload for Super {
    const ENGINE: [u8; 8] = ENGINE;
    const ROOT_SEED: u32 = ROOT_SEED;

    fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        give.u32(self.geometry.shift)
            .u32(self.geometry.salt)
            .bytes(&self.identity)
            .u64(self.journal_size)
            .u64(self.data_offset)
            .u64(self.units)
            .u32(self.group_units)
            .u32(self.alignment)
            .u8(self.devices);
        self.manifest.give(&mut give);
        give.u64(self.next_sequence).u64(self.sequence);
        let (from, to) = self.doubt.unwrap_or_default();
        if self.doubt.is_some() || !self.lost.is_empty() {
            for at in [from, to] {
                give.u64(at.sequence).u32(at.offset);
            }
        }
        for range in &self.lost {
            give.u64(range.start).u64(range.end - range.start);
        }
        give.0
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let geometry = Geometry {
            shift: take.u32()?,
            salt: take.u32()?,
        };
        let identity = take.id()?;
        let (journal_size, data_offset, units) = (take.u64()?, take.u64()?, take.u64()?);
        let (group_units, alignment) = (take.u32()?, take.u32()?);
        let devices = take.u8()?;
        let mut manifest = Manifest::take(geometry, &mut take)?;
        manifest.next_sequence = take.u64()?;
        let sequence = take.u64()?;
        let (doubt, lost) = take_doubt(&mut take, journal_size)?;
        let own = Self {
            manifest,
            identity,
            journal_size,
            data_offset,
            units,
            group_units,
            alignment,
            devices,
            sequence,
            doubt,
            lost,
        };
        let end = units.checked_mul(UNIT)?.checked_add(data_offset)?;
        let sound = SHIFTS.contains(&geometry.shift)
            && own.manifest.is_sound()
            && journal_size >= geometry.offset_of(2)
            && data_offset.is_multiple_of(UNIT)
            && match devices {
                1 => journal_size <= data_offset,
                devices => devices == 2,
            }
            && end <= PLACES_END
            && group_units.is_power_of_two()
            && own.sequence < SEQUENCES_END;
        sound.then_some(own)
    }

    fn of_other(error: Error, head: &[u8]) -> Error {
        other_place(error, head)
    }
}

impl Super {
    /// Offset of a unit on the data's device.
    pub fn offset_of(&self, unit: u64) -> u64 {
        self.data_offset + unit * UNIT
    }

    /// Whether this label is the store's.
    pub(crate) fn has_label(&self, label: &Superblock) -> bool {
        decode_label(&label.payload).is_some_and(|(identity, _)| identity == self.identity)
    }

    /// `Mismatch` if this label, which `data` has, is another store's.
    pub(crate) fn check_label(&self, label: &Superblock, data: &dyn Storage) -> Result<()> {
        if self.has_label(label) {
            return Ok(());
        }
        let error = Error::new(Kind::Mismatch, "the data belongs to another store").at(data.path());
        Err(error.remedy("give the journal and the data of one store"))
    }
}

/// Adds what to do about a device that begins with `head` instead of what was expected.
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

/// Two positions, or none, and sorted places within a journal of this size.
type Doubted = (Option<(LogPosition, LogPosition)>, Vec<Range<u64>>);

/// `None`: impossible values.
fn take_doubt(take: &mut Take<'_>, journal_size: u64) -> Option<Doubted> {
    if take.0.is_empty() {
        return Some((None, Vec::new()));
    }
    let mut at = || Some(LogPosition::new(take.u64()?, take.u32()?));
    let doubt = (at()?, at()?);
    let (mut lost, mut end) = (Vec::new(), 0);
    while !take.0.is_empty() {
        let (start, len) = (take.u64()?, take.u64()?);
        if start < end || len == 0 {
            return None;
        }
        end = start.checked_add(len).filter(|end| *end <= journal_size)?;
        lost.push(start..end);
    }
    let is_doubt = lost.is_empty() || doubt != Default::default();
    Some((is_doubt.then_some(doubt), lost))
}

/// The payload of the label of a second device.
pub fn encode_label(identity: [u8; 16], units: u64) -> Vec<u8> {
    let mut give = Give::default();
    give.bytes(&identity).u64(units);
    give.0
}

/// The identity of the store whose data a second device holds.
pub fn decode_label(payload: &[u8]) -> Option<([u8; 16], u64)> {
    let mut take = Take(payload);
    Some((take.id()?, take.u64()?))
}
