//! The object store on storage: superblock, root of a checkpoint, records of the journal.
//!
//! One file or device, or two with the data on the second:
//!
//! | offset | meaning |
//! |---|---|
//! | 0 | superblock, control block and segments of the journal (`log::layout`), to the data's offset |
//! | the data's offset | units of 4096 bytes: extents of objects (`extent`), and free room |
//!
//! With two, the first ends with the journal, and the second begins with a *label*, a superblock of its own in both slots,
//! whose payload is the store's 16 bytes of identity and the number of units.
//!
//! Superblock payload (behind the 32 bytes of `format::superblock`):
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
//! | 144 | 12, 12 | only where a recovery found the journal untrue: from and to where its puts must verify to count; or zeros, before: |
//! | 168 | 8, 8 .. | only while a repair is at work: places of the journal that are lost (`lost`), offset and length of each |
//!
//! Root of a checkpoint; all is as of one moment:
//!
//! | size | meaning |
//! |---|---|
//! | 8 | next sequence of changes |
//! | 4 | leaves of the index; for each: |
//! | 16, 4, 8 | .. first id, objects (2^31 more if some are in the journal), bytes of their extents |
//! | 8, 4, 4 | .. image: offset, length (0: the leaf is empty), CRC32C |
//! | 4 | groups; for each: |
//! | 4 | .. free units |
//! | 8, 4, 4 | .. image of the list: offset, length (0: all or none is free), CRC32C |
//! | 4 | strides that a recovery scans; for each: |
//! | 8, 4, .. | .. sequence, number of spans, spans |
//! | 4, .. | spans that are nobody's and not in the groups' lists |
//! | 4 | puts under way; for each: |
//! | 8, 12 | .. sequence, span |
//! | 4 | packs; for each: |
//! | 12, 4, 4 | .. span, objects that were put there, objects that are there still |
//! | 4, .. | segments of the journal: index, units, sequence, dead bytes |
//! | 4, .. | segments that hold images and roots: index, units |
//!
//! A span is 8 bytes of unit and 4 of length. The image of a leaf is its packed entries (25 bytes: id, place in 5 bytes, length
//! in 30 bits, kind in 2); that of a list is its runs, 4 and 4 bytes each, or, where that is shorter, a map: a bit for each unit, lowest first, set
//! if it is free, in whole 8 bytes, and one byte more. Checksums stand with the parent.
//!
//! Records of the journal are frames (`format::frame`). With a key of 16 bytes, an id, a record is about an object; `Put`:
//! sequence (8), entry (9); `Insert`: sequence (8), and the value itself, of a small object; `Remove`: sequence (8). With a key of one byte it is a note; all are `Put`:
//!
//! | key | value |
//! |---|---|
//! | `S` | a stride was opened: sequence, number of spans, spans |
//! | `V` | the put of this sequence failed: its extent is not there, whatever a scan finds |
//! | `F` | every put before this sequence has ended and stands before this note |
//! | `R` | removed: sequence (8), first id (16), last id (16) |
//! | `B` | a batch, all of it or nothing; for each change: 1 put or 0 removed (1), id (16), sequence (8), of a put its entry (9) |
//!
//! This file turns these bytes into values and back, and knows nothing of when.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::ops::{Deref, DerefMut, Range};

use crate::error::Result;
use crate::format::bytes::{Give, Take};
use crate::format::frame::{Frame, FrameKind};
use crate::log::anchor::{Anchor, Extent, Needed};
use crate::log::{Address, Geometry, LogPosition};
use crate::object::id::ObjectId;
use crate::object::index::{Entry, Image, JOURNAL};
use crate::object::place::extent::{PACKED_LEN_MAX, PIECE, UNIT};
use crate::object::place::runs::{Run, Runs};
use crate::object::place::space::{Span, Stride, Told};
use crate::room;

/// The engine's word in the superblock.
pub const ENGINE: [u8; 8] = *b"object\0\0";
/// The word in the label of a second device.
pub const DATA: [u8; 8] = *b"objdata\0";

/// Seeds of checksums, beside the salt.
pub const ROOT_SEED: u32 = 0x4f52_4f54;
/// Of a leaf's image; its first id is summed, too.
pub const LEAF_SEED: u32 = 0x4c45_4146;
/// Of a group's list; its number is summed, too.
pub const LIST_SEED: u32 = 0x4c49_5354;

/// Smallest and largest segment of the journal, as powers of two.
pub const SHIFTS: std::ops::RangeInclusive<u32> = 12..=24;

/// The engine's part of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Super {
    /// What it says of the journal.
    pub anchor: Anchor,
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
    /// Between these positions the journal was not true of the data after lost power: each put there must verify. Ends with
    /// the next checkpoint.
    pub doubt: Option<(LogPosition, LogPosition)>,
    /// Places of the journal, in order, of which a repair that did not end could not know what stood there.
    pub lost: Vec<Range<u64>>,
}

impl Deref for Super {
    type Target = Anchor;

    fn deref(&self) -> &Anchor {
        &self.anchor
    }
}

impl DerefMut for Super {
    fn deref_mut(&mut self) -> &mut Anchor {
        &mut self.anchor
    }
}

impl Super {
    /// The payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
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
        self.anchor.give(&mut give);
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

    /// Decodes a payload. `None`: impossible values.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let geometry = Geometry {
            shift: take.u32()?,
            salt: take.u32()?,
        };
        let identity = take.id()?;
        let (journal_size, data_offset, units) = (take.u64()?, take.u64()?, take.u64()?);
        let (group_units, alignment) = (take.u32()?, take.u32()?);
        let devices = take.u8()?;
        let mut anchor = Anchor::take(geometry, &mut take)?;
        anchor.next_sequence = take.u64()?;
        let sequence = take.u64()?;
        let (doubt, lost) = take_doubt(&mut take, journal_size)?;
        let own = Self {
            anchor,
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
            && own.anchor.is_sound()
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

    /// Offset of a unit on the data's device.
    pub fn offset_of(&self, unit: u64) -> u64 {
        self.data_offset + unit * UNIT
    }
}

/// Two positions, or none, and places in order of a journal of this size.
type Doubted = (Option<(LogPosition, LogPosition)>, Vec<Range<u64>>);

/// `None` if it is none of that.
fn take_doubt(take: &mut Take<'_>, journal_size: u64) -> Option<Doubted> {
    if take.0.is_empty() {
        return Some((None, Vec::new()));
    }
    let mut at = || {
        Some(LogPosition {
            sequence: take.u64()?,
            offset: take.u32()?,
        })
    };
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

/// Behind the last byte of data that a place can tell: 40 bits of pieces.
pub const PLACES_END: u64 = PIECE << 40;

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

/// A put that had its room and had not ended when the checkpoint was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// Its sequence.
    pub sequence: u64,
    /// Its room.
    pub span: Span,
}

/// Small objects in one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its room.
    pub span: Span,
    /// Objects that were put there.
    pub count: u32,
    /// Objects that are there still.
    pub live: u32,
}

/// Marks a leaf with objects whose values are in the journal.
const IN_JOURNAL: u32 = 1 << 31;

/// A checkpoint's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The next change.
    pub sequence: u64,
    /// Leaves of the index.
    pub leaves: Vec<(ObjectId, Option<Image>)>,
    /// Free room by group.
    pub groups: Vec<Told>,
    /// Strides that a recovery scans.
    pub strides: Vec<Stride>,
    /// Room that is nobody's and not in the groups' lists.
    pub between: Vec<Span>,
    /// Puts under way.
    pub under_way: Vec<UnderWay>,
    /// Packs of small objects.
    pub packs: Vec<Pack>,
    /// Segments of the journal, of images and of roots.
    pub needed: Needed,
    /// Where it stands itself, if it was read.
    pub pieces: Vec<Extent>,
}

/// Sequences of changes are below it.
pub const SEQUENCES_END: u64 = 1 << 63;

fn take_sequence(take: &mut Take<'_>) -> Option<u64> {
    take.u64().filter(|sequence| *sequence < SEQUENCES_END)
}

fn give_span(give: &mut Give, span: Span) {
    give.u64(span.unit).u32(span.units);
}

fn take_span(take: &mut Take<'_>) -> Option<Span> {
    Some(Span {
        unit: take.u64()?,
        units: take.u32()?,
    })
}

fn give_spans(give: &mut Give, spans: &[Span]) {
    give.u32(spans.len() as u32);
    for span in spans {
        give_span(give, *span);
    }
}

fn give_extent(give: &mut Give, extent: Option<Extent>) {
    let extent = extent.unwrap_or_default();
    give.u64(extent.offset)
        .u32(extent.len as u32)
        .u32(extent.crc);
}

fn take_extent(take: &mut Take<'_>) -> Option<Extent> {
    let extent = Extent {
        offset: take.u64()?,
        len: u64::from(take.u32()?),
        crc: take.u32()?,
    };
    Some(extent)
}

fn some(extent: Extent) -> Option<Extent> {
    (extent.len > 0).then_some(extent)
}

fn give_stride(give: &mut Give, stride: &Stride) {
    give.u64(stride.sequence);
    give_spans(give, &stride.spans);
}

fn take_stride(take: &mut Take<'_>) -> Option<Stride> {
    Some(Stride {
        sequence: take_sequence(take)?,
        spans: take.all(take_span)?,
    })
}

impl Root {
    /// The images it needs.
    pub fn images(&self) -> impl Iterator<Item = Extent> + '_ {
        let leaves = self.leaves.iter().filter_map(|(_, image)| image.as_ref());
        let lists = self.groups.iter().filter_map(|told| told.image);
        leaves.map(|image| image.extent).chain(lists)
    }

    /// The root's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        give.u64(self.sequence).u32(self.leaves.len() as u32);
        for (first, image) in &self.leaves {
            let (count, usage) = image.map_or((0, 0), |image| {
                let mark = if image.in_journal { IN_JOURNAL } else { 0 };
                (image.count | mark, image.usage)
            });
            give.bytes(&first.to_bytes()).u32(count).u64(usage);
            give_extent(&mut give, image.map(|image| image.extent));
        }
        give.u32(self.groups.len() as u32);
        for told in &self.groups {
            give.u32(told.free);
            give_extent(&mut give, told.image);
        }
        give.u32(self.strides.len() as u32);
        for stride in &self.strides {
            give_stride(&mut give, stride);
        }
        give_spans(&mut give, &self.between);
        give.u32(self.under_way.len() as u32);
        for put in &self.under_way {
            give.u64(put.sequence);
            give_span(&mut give, put.span);
        }
        give.u32(self.packs.len() as u32);
        for pack in &self.packs {
            give_span(&mut give, pack.span);
            give.u32(pack.count).u32(pack.live);
        }
        self.needed.give(&mut give);
        give.0
    }

    /// Decodes a root whose checksum was verified. `None`: impossible values.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let root = Self {
            sequence: take_sequence(&mut take)?,
            leaves: take.all(|take| {
                let first = ObjectId::from_bytes(take.id()?);
                let (count, usage) = (take.u32()?, take.u64()?);
                let image = some(take_extent(take)?).map(|extent| Image {
                    count: count & !IN_JOURNAL,
                    in_journal: count & IN_JOURNAL != 0,
                    usage,
                    extent,
                });
                Some((first, image))
            })?,
            groups: take.all(|take| {
                Some(Told {
                    free: take.u32()?,
                    image: some(take_extent(take)?),
                })
            })?,
            strides: take.all(take_stride)?,
            between: take.all(take_span)?,
            under_way: take.all(|take| {
                Some(UnderWay {
                    sequence: take_sequence(take)?,
                    span: take_span(take)?,
                })
            })?,
            packs: take.all(|take| {
                Some(Pack {
                    span: take_span(take)?,
                    count: take.u32()?,
                    live: take.u32()?,
                })
            })?,
            needed: Needed::take(&mut take)?,
            pieces: Vec::new(),
        };
        let ordered = root.leaves.is_sorted_by(|a, b| a.0 < b.0)
            && root.leaves.first().is_none_or(|(first, _)| first.0 == 0);
        (take.0.is_empty() && ordered).then_some(root)
    }

    /// Whether everything it tells of lies within `units` in groups of `group_units`.
    pub fn is_within(&self, units: u64, group_units: u32) -> bool {
        let spans = self.strides.iter().flat_map(|stride| &stride.spans);
        let packs = self.packs.iter().map(|pack| &pack.span);
        let spans = spans.chain(&self.between).chain(packs);
        let within = |span: &Span| {
            span.unit
                .checked_add(u64::from(span.units))
                .is_some_and(|end| end <= units)
        };
        let groups = units.div_ceil(u64::from(group_units));
        spans
            .chain(self.under_way.iter().map(|put| &put.span))
            .all(within)
            && self.groups.len() as u64 == groups
            && self.groups.iter().enumerate().all(|(at, told)| {
                let left = units - at as u64 * u64::from(group_units);
                let limit = left.min(u64::from(group_units)) as u32;
                // Without a list all of it is free, or nothing.
                told.free == 0 || told.free == limit || told.image.is_some() && told.free < limit
            })
    }
}

/// Bytes of a run in the list of a group.
const RUN_SIZE: usize = 8;

/// Bytes of a map of `limit` units, with one more: no list of runs is so long.
fn map_size(limit: u32) -> usize {
    limit.div_ceil(64) as usize * 8 + 1
}

/// Bytes of the list of a group of `limit` units with so many runs.
pub fn list_size(runs: usize, limit: u32) -> usize {
    (runs * RUN_SIZE).min(map_size(limit))
}

/// The image of the list of a group of `limit` units.
pub fn encode_runs(runs: &Runs, limit: u32) -> Vec<u8> {
    let runs = runs.as_slice();
    if runs.len() * RUN_SIZE >= map_size(limit) {
        let mut map = vec![0u8; map_size(limit)];
        for unit in runs.iter().flat_map(|run| run.start..run.start + run.len) {
            if let Some(byte) = map.get_mut(unit as usize / 8) {
                *byte |= 1 << (unit % 8);
            }
        }
        return map;
    }
    let mut give = Give::default();
    for run in runs {
        give.u32(run.start).u32(run.len);
    }
    give.0
}

/// The list of a group of `limit` units. `None`: impossible values.
pub fn decode_runs(bytes: &[u8], limit: u32) -> Option<Result<Runs>> {
    let runs = if bytes.len() == map_size(limit) {
        runs_of_map(bytes)
    } else {
        let (pairs, rest) = bytes.as_chunks::<RUN_SIZE>();
        if !rest.is_empty() {
            return None;
        }
        room::collect(pairs.iter().map(|pair| {
            let word = u64::from_le_bytes(*pair);
            Run {
                start: word as u32,
                len: (word >> 32) as u32,
            }
        }))
    };
    match runs {
        Ok(runs) => Runs::of(runs, limit).map(Ok),
        Err(error) => Some(Err(error)),
    }
}

/// Where bits are set, one behind the other.
fn runs_of_map(map: &[u8]) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, byte) in map.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            let unit = at as u32 * 8 + bit;
            match runs.last_mut() {
                Some(last) if last.start + last.len == unit => last.len += 1,
                _ => {
                    room::more(&mut runs, 1)?;
                    runs.push(Run {
                        start: unit,
                        len: 1,
                    });
                }
            }
        }
    }
    Ok(runs)
}

/// What the journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The object is there since this sequence.
    Put(ObjectId, u64, Entry),
    /// The small object of this length is there since this sequence; its value is in the frame at this address.
    Small(ObjectId, u64, Entry),
    /// The object is gone since this sequence.
    Removed(ObjectId, u64),
    /// All objects from the first to the last id are gone since this sequence.
    RangeRemoved(u64, ObjectId, ObjectId),
    /// All of these, `Put` and `Removed`, or none.
    Batch(Vec<Record>),
    /// A stride was opened.
    Opened(Stride),
    /// Every put before this sequence has ended and was told before.
    Settled(u64),
    /// The put of this sequence failed: what a scan finds of it does not count.
    Voided(u64),
}

impl Record {
    /// Kind, key and value of its frame; a small object's frame is made where its value is.
    pub fn encode(&self) -> (FrameKind, Vec<u8>, Vec<u8>) {
        let mut give = Give::default();
        let mut kind = FrameKind::Put;
        let key = match self {
            Self::Put(id, sequence, entry) => {
                give.u64(*sequence).bytes(&entry.to_bytes());
                id.to_bytes().to_vec()
            }
            Self::Small(id, sequence, _) => {
                kind = FrameKind::Insert;
                give.u64(*sequence);
                id.to_bytes().to_vec()
            }
            Self::Removed(id, sequence) => {
                kind = FrameKind::Remove;
                give.u64(*sequence);
                id.to_bytes().to_vec()
            }
            Self::RangeRemoved(sequence, first, last) => {
                give.u64(*sequence)
                    .bytes(&first.to_bytes())
                    .bytes(&last.to_bytes());
                b"R".to_vec()
            }
            Self::Batch(records) => {
                for record in records {
                    record.give_inner(&mut give);
                }
                b"B".to_vec()
            }
            Self::Opened(stride) => {
                give_stride(&mut give, stride);
                b"S".to_vec()
            }
            Self::Settled(sequence) => {
                give.u64(*sequence);
                b"F".to_vec()
            }
            Self::Voided(sequence) => {
                give.u64(*sequence);
                b"V".to_vec()
            }
        };
        (kind, key, give.0)
    }

    /// What the frame at `address` says. `None`: it is none of these.
    pub fn decode(address: Address, frame: &Frame<'_>) -> Option<Self> {
        let mut take = Take(frame.value);
        let record = if let Some((id, [])) = frame.key.split_first_chunk::<16>() {
            let id = ObjectId::from_bytes(*id);
            let sequence = take_sequence(&mut take)?;
            match frame.header.kind {
                FrameKind::Put => Self::Put(id, sequence, Entry::from_bytes(take.bytes(9)?)?),
                FrameKind::Remove => Self::Removed(id, sequence),
                FrameKind::Insert => {
                    let len = take.bytes(take.0.len())?.len();
                    let len = u32::try_from(len)
                        .ok()
                        .filter(|len| u64::from(*len) <= PACKED_LEN_MAX)?;
                    let place = address.0;
                    let kind = JOURNAL;
                    Self::Small(id, sequence, Entry { place, len, kind })
                }
                _ => return None,
            }
        } else {
            match frame.key {
                b"R" => {
                    let sequence = take_sequence(&mut take)?;
                    let first = ObjectId::from_bytes(take.id()?);
                    Self::RangeRemoved(sequence, first, ObjectId::from_bytes(take.id()?))
                }
                b"B" => {
                    let mut records = Vec::new();
                    while !take.0.is_empty() {
                        records.push(Self::take_inner(&mut take)?);
                    }
                    Self::Batch(records)
                }
                b"S" => Self::Opened(take_stride(&mut take)?),
                b"F" => Self::Settled(take_sequence(&mut take)?),
                b"V" => Self::Voided(take_sequence(&mut take)?),
                _ => return None,
            }
        };
        take.0.is_empty().then_some(record)
    }

    /// Whose change it is, if it is of one object.
    pub fn id(&self) -> Option<ObjectId> {
        match self {
            Self::Put(id, ..) | Self::Small(id, ..) | Self::Removed(id, _) => Some(*id),
            _ => None,
        }
    }

    fn give_inner(&self, give: &mut Give) {
        match self {
            Self::Put(id, sequence, entry) => {
                give.u8(1)
                    .bytes(&id.to_bytes())
                    .u64(*sequence)
                    .bytes(&entry.to_bytes());
            }
            Self::Removed(id, sequence) => {
                give.u8(0).bytes(&id.to_bytes()).u64(*sequence);
            }
            _ => debug_assert!(false, "a batch has changes of objects only"),
        }
    }

    fn take_inner(take: &mut Take<'_>) -> Option<Self> {
        let is_put = take.u8()?;
        let (id, sequence) = (ObjectId::from_bytes(take.id()?), take_sequence(take)?);
        match is_put {
            0 => Some(Self::Removed(id, sequence)),
            1 => Some(Self::Put(id, sequence, Entry::from_bytes(take.bytes(9)?)?)),
            _ => None,
        }
    }
}
