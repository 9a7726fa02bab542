//! The root of a checkpoint: all of a store's metadata as of one moment.
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
//! | 4 | allocation extents that a recovery scans; for each: |
//! | 8, 4, .. | .. sequence, number of spans, spans |
//! | 4, .. | unlisted spans: they belong to no object and to no group's list |
//! | 4 | puts in progress; for each: |
//! | 8, 12 | .. sequence, span |
//! | 4 | packed extents; for each: |
//! | 12, 4, 4 | .. span, objects put there, objects still there |
//! | 4, .. | segments of the journal: index, units, sequence, dead bytes |
//! | 4, .. | segments that hold images and roots: index, units |
//!
//! The image of a leaf is its packed entries (25 bytes: id, place in 5 bytes, length in 30 bits, kind in 2). The image of a list
//! is in `place::list`, a span in `place::span`. The checksum of an image stands with its parent.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::format::bytes::{Give, Take};
use crate::log::manifest::{Extent, Needed};
use crate::object::id::ObjectId;
use crate::object::index::Image;
use crate::object::journal::record::{
    give_allocation_extent, take_allocation_extent, take_sequence,
};
use crate::object::place::space::GroupState;
use crate::object::place::span::{AllocationExtent, Span, give_span, give_spans, take_span};

/// Seed of the root's checksum, combined with the salt.
pub const ROOT_SEED: u32 = 0x4f52_4f54;

/// Seed of a leaf's image; the checksum includes its first id.
pub const LEAF_SEED: u32 = 0x4c45_4146;

/// Seed of a group's list; the checksum includes its number.
pub const LIST_SEED: u32 = 0x4c49_5354;

/// Marks a leaf with objects whose values are in the journal.
const IN_JOURNAL: u32 = 1 << 31;

/// A put that had reserved space and had not ended at the checkpoint's moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutInProgress {
    /// Its sequence.
    pub sequence: u64,
    /// Its space.
    pub span: Span,
}

/// Small objects in one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedExtent {
    /// Its space.
    pub span: Span,
    /// Objects that were put there.
    pub count: u32,
    /// Objects that are still there.
    pub live: u32,
}

/// A checkpoint's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The next change.
    pub sequence: u64,
    /// Leaves of the index.
    pub leaves: Vec<(ObjectId, Option<Image>)>,
    /// Free space by group.
    pub groups: Vec<GroupState>,
    /// Allocation extents that a recovery scans.
    pub allocation_extents: Vec<AllocationExtent>,
    /// Spans that belong to no object and to no group's list.
    pub unlisted: Vec<Span>,
    /// Puts in progress.
    pub in_progress: Vec<PutInProgress>,
    /// Packed extents of small objects.
    pub packed_extents: Vec<PackedExtent>,
    /// Segments of the journal, of images and of roots.
    pub needed: Needed,
    /// Where the root itself stands, if it was read.
    pub pieces: Vec<Extent>,
}

impl Root {
    /// The images it needs.
    pub fn images(&self) -> impl Iterator<Item = Extent> + '_ {
        let leaves = self.leaves.iter().filter_map(|(_, image)| image.as_ref());
        let lists = self.groups.iter().filter_map(|group| group.image);
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
        for group in &self.groups {
            give.u32(group.free);
            give_extent(&mut give, group.image);
        }
        give.u32(self.allocation_extents.len() as u32);
        for allocation_extent in &self.allocation_extents {
            give_allocation_extent(&mut give, allocation_extent);
        }
        give_spans(&mut give, &self.unlisted);
        give.u32(self.in_progress.len() as u32);
        for put in &self.in_progress {
            give.u64(put.sequence);
            give_span(&mut give, put.span);
        }
        give.u32(self.packed_extents.len() as u32);
        for packed in &self.packed_extents {
            give_span(&mut give, packed.span);
            give.u32(packed.count).u32(packed.live);
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
                Some(GroupState {
                    free: take.u32()?,
                    image: some(take_extent(take)?),
                })
            })?,
            allocation_extents: take.all(take_allocation_extent)?,
            unlisted: take.all(take_span)?,
            in_progress: take.all(|take| {
                Some(PutInProgress {
                    sequence: take_sequence(take)?,
                    span: take_span(take)?,
                })
            })?,
            packed_extents: take.all(|take| {
                Some(PackedExtent {
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

    /// Whether all of its spans and groups lie within `units`, in groups of `group_units`.
    pub fn is_within(&self, units: u64, group_units: u32) -> bool {
        let spans = self
            .allocation_extents
            .iter()
            .flat_map(|allocation_extent| &allocation_extent.spans);
        let packed_extents = self.packed_extents.iter().map(|packed| &packed.span);
        let spans = spans.chain(&self.unlisted).chain(packed_extents);
        let within = |span: &Span| {
            span.unit
                .checked_add(u64::from(span.units))
                .is_some_and(|end| end <= units)
        };
        let groups = units.div_ceil(u64::from(group_units));
        spans
            .chain(self.in_progress.iter().map(|put| &put.span))
            .all(within)
            && self.groups.len() as u64 == groups
            && self.groups.iter().enumerate().all(|(at, group)| {
                let left = units - at as u64 * u64::from(group_units);
                let limit = left.min(u64::from(group_units)) as u32;
                // A group without a list is free as a whole, or full.
                group.free == 0
                    || group.free == limit
                    || group.image.is_some() && group.free < limit
            })
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
