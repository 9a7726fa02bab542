//! The records of the journal, as frames of the log (`format::frame`).
//!
//! | kind | key | value |
//! |---|---|---|
//! | keyed 0, put | id (16) | sequence (8), entry (9) |
//! | keyed 1, removed | id (16) | sequence (8) |
//! | keyed 2, small | id (16) | sequence (8), and the value itself, of a small object |
//! | wide 0, range removed | | sequence (8), first id (16), last id (16) |
//! | wide 1, batch: all of it or nothing | | for each change: 1 put or 0 removed (1), id (16), sequence (8), of a put its entry (9) |
//! | wide 2, an allocation extent was opened | | sequence, number of spans, spans |
//! | wide 3, low-water mark: every put below this sequence has ended and is recorded before | | sequence (8) |
//! | wide 4, the put of this sequence was aborted: an extent of it that a scan finds does not count | | sequence (8) |
//!
//! This file encodes and decodes; `journal` appends.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::format::bytes::{Give, Take};
use crate::format::frame::{Frame, FrameKind};
use crate::log::Address;
use crate::object::id::ObjectId;
use crate::object::index::{Entry, JOURNAL};
use crate::object::place::extent::PACKED_LEN_MAX;
use crate::object::place::span::{AllocationExtent, give_spans, take_span};

/// Sequences of changes are below it.
pub(crate) const SEQUENCES_END: u64 = 1 << 63;

/// One record of the journal.
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
    /// An allocation extent was opened.
    Opened(AllocationExtent),
    /// The low-water mark: every put below this sequence has ended and is recorded before this record.
    LowWater(u64),
    /// The put of this sequence was aborted: an extent of it that a scan finds does not count.
    Aborted(u64),
}

const PUT: FrameKind = FrameKind::keyed(0);
const REMOVED: FrameKind = FrameKind::keyed(1);
const SMALL: FrameKind = FrameKind::keyed(2);
const RANGE_REMOVED: FrameKind = FrameKind::wide(0);
const BATCH: FrameKind = FrameKind::wide(1);
const OPENED: FrameKind = FrameKind::wide(2);
const LOW_WATER: FrameKind = FrameKind::wide(3);
const ABORTED: FrameKind = FrameKind::wide(4);

impl Record {
    /// Kind, key and value of its frame; a small object's frame is made where its value is.
    pub fn encode(&self) -> (FrameKind, Vec<u8>, Vec<u8>) {
        let mut give = Give::default();
        let kind = match self {
            Self::Put(_, sequence, entry) => {
                give.u64(*sequence).bytes(&entry.to_bytes());
                PUT
            }
            Self::Small(_, sequence, _) => {
                give.u64(*sequence);
                SMALL
            }
            Self::Removed(_, sequence) => {
                give.u64(*sequence);
                REMOVED
            }
            Self::RangeRemoved(sequence, first, last) => {
                give.u64(*sequence)
                    .bytes(&first.to_bytes())
                    .bytes(&last.to_bytes());
                RANGE_REMOVED
            }
            Self::Batch(records) => {
                for record in records {
                    record.give_inner(&mut give);
                }
                BATCH
            }
            Self::Opened(allocation_extent) => {
                give_allocation_extent(&mut give, allocation_extent);
                OPENED
            }
            Self::LowWater(sequence) => {
                give.u64(*sequence);
                LOW_WATER
            }
            Self::Aborted(sequence) => {
                give.u64(*sequence);
                ABORTED
            }
        };
        let key = self.id().map(|id| id.to_bytes().to_vec());
        (kind, key.unwrap_or_default(), give.0)
    }

    /// Decodes the frame at `address`. `None`: unknown record type.
    pub fn decode(address: Address, frame: &Frame<'_>) -> Option<Self> {
        let mut take = Take(frame.value);
        let kind = frame.header.kind;
        let record = if kind.is_keyed() {
            let id = ObjectId::from_bytes(frame.key.try_into().ok()?);
            let sequence = take_sequence(&mut take)?;
            match kind {
                PUT => Self::Put(id, sequence, Entry::from_bytes(take.bytes(9)?)?),
                REMOVED => Self::Removed(id, sequence),
                SMALL => {
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
            match kind {
                RANGE_REMOVED => {
                    let sequence = take_sequence(&mut take)?;
                    let first = ObjectId::from_bytes(take.id()?);
                    Self::RangeRemoved(sequence, first, ObjectId::from_bytes(take.id()?))
                }
                BATCH => {
                    let mut records = Vec::new();
                    while !take.0.is_empty() {
                        records.push(Self::take_inner(&mut take)?);
                    }
                    Self::Batch(records)
                }
                OPENED => Self::Opened(take_allocation_extent(&mut take)?),
                LOW_WATER => Self::LowWater(take_sequence(&mut take)?),
                ABORTED => Self::Aborted(take_sequence(&mut take)?),
                _ => return None,
            }
        };
        take.0.is_empty().then_some(record)
    }

    /// The id, of a change of one object.
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

pub(crate) fn take_sequence(take: &mut Take<'_>) -> Option<u64> {
    take.u64().filter(|sequence| *sequence < SEQUENCES_END)
}

pub(crate) fn give_allocation_extent(give: &mut Give, allocation_extent: &AllocationExtent) {
    give.u64(allocation_extent.sequence);
    give_spans(give, &allocation_extent.spans);
}

pub(crate) fn take_allocation_extent(take: &mut Take<'_>) -> Option<AllocationExtent> {
    Some(AllocationExtent {
        sequence: take_sequence(take)?,
        spans: take.all(take_span)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::frame::Header;
    use crate::object::checkpoint::root::{PutInProgress, Root};
    use crate::object::place::span::Span;

    /// One more than a sequence that was read is a sequence, whatever a damaged or forged file states.
    #[test]
    fn sequences_beyond_the_last_are_damage_wherever_one_is_read() {
        let is_read = |record: Record| {
            let (kind, key, value) = record.encode();
            let header = Header::new(kind, 0, key.len(), value.len());
            let (key, value) = (&key[..], &value[..]);
            let frame = Frame { header, key, value };
            Record::decode(Address(0), &frame) == Some(record)
        };
        let (id, span) = (ObjectId(1), Span { unit: 2, units: 3 });
        let (place, len, kind) = (4, 5000, 0);
        let entry = Entry { place, len, kind };
        for sequence in [SEQUENCES_END - 1, SEQUENCES_END, u64::MAX] {
            let spans = vec![span];
            let opened = AllocationExtent { sequence, spans };
            let records = [
                Record::Put(id, sequence, entry),
                Record::Removed(id, sequence),
                Record::RangeRemoved(sequence, id, id),
                Record::Batch(vec![Record::Put(id, sequence, entry)]),
                Record::Batch(vec![Record::Removed(id, sequence)]),
                Record::Opened(opened.clone()),
                Record::LowWater(sequence),
                Record::Aborted(sequence),
            ];
            let is_sequence = sequence < SEQUENCES_END;
            for record in records {
                assert_eq!(is_read(record.clone()), is_sequence, "{record:?}");
            }
            let mut roots = [(); 3].map(|()| Root::default());
            roots[0].sequence = sequence;
            roots[1].allocation_extents.push(opened);
            roots[2].in_progress.push(PutInProgress { sequence, span });
            for root in roots {
                let is_root = Root::decode(&root.encode()) == Some(root);
                assert_eq!(is_root, is_sequence, "{sequence:#x}");
            }
        }
    }
}
