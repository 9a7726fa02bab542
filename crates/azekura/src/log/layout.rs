//! A log on storage: where its segments stand, and the header of each.
//!
//! The storage begins with the engine's superblock; then:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8192 | superblock, two slots (`format::superblock`); it belongs to the engine |
//! | 8192 | 4096 | control block: the mark below; only its first line is used |
//! | 12288 | 4096 | zeros |
//! | 16384 | .. | segments, each `2^shift` bytes; the last may be cut short in a closed file |
//!
//! The mark states how far the log was known to be durable. It is written after each sync, and itself
//! made durable by the next: after a power cut it is a lower bound, which is what recovery needs.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 8192 | 8 | sequence of the durable position |
//! | 8200 | 4 | its offset; 0: everything in segments of earlier sequences is durable |
//! | 8204 | 4 | 1 if a sync failed: the cache may show what the device has not |
//! | 8208 | 4 | CRC32C of the sixteen bytes before |
//!
//! A segment's header. The link is stored when the next segment is opened, before anything is put there.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | magic `azsg` |
//! | 4 | 4 | CRC32C of bytes 8 to 24, seeded with the file's salt |
//! | 8 | 8 | sequence: the epoch of the opening (upper half) and a counter; never used twice |
//! | 16 | 4 | units: how many segments' room this one takes (a frame larger than half a segment), less than 4 GiB |
//! | 20 | 4 | zero |
//! | 24 | 4 | link: index of the next segment of the log, plus one; 0: none yet |
//! | 28 | 4 | CRC32C of the link and of the next segment's sequence, seeded with this segment's seed |
//! | 32 | 32 | zeros |
//! | 64 | .. | frames (`format::frame`) |
//!
//! This file turns these bytes into values and back, and knows nothing of when.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::format::bytes::{Give, Take};
use crate::format::checksum::crc;
use crate::format::flipped::flip;
use crate::format::superblock;

/// Offset of the control block.
pub const CONTROL_OFFSET: u64 = superblock::SIZE;
/// Offset of the first segment.
pub const DATA_OFFSET: u64 = CONTROL_OFFSET + 8192;
/// Offset of the first frame in a segment.
pub const FIRST_FRAME: u32 = 64;
/// Offset of the link word in a segment's header.
pub const LINK_OFFSET: u64 = 24;
/// Bytes of the mark.
pub const MARK_SIZE: usize = 24;
/// Of these, what states something: the sum, and what is summed.
const MARK_SUMMED: usize = 20;

const MAGIC: [u8; 4] = *b"azsg";
const MARK_SEED: u32 = 0x4d41_524b;

const _: () = assert!(DATA_OFFSET.is_multiple_of(4096) && FIRST_FRAME.is_multiple_of(64));

/// A moment in the log's history: order of positions is order of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// Sequence of the segment.
    pub sequence: u64,
    /// Offset in the segment, in bytes.
    pub offset: u32,
}

impl LogPosition {
    /// The position at this offset of the segment of this sequence.
    pub fn new(sequence: u64, offset: u32) -> Self {
        Self { sequence, offset }
    }

    /// After everything in the segment of this sequence, and before everything in later ones.
    pub fn past(sequence: u64) -> Self {
        // Offset 0 is no frame's place: the segment's header is there.
        Self {
            sequence: sequence.saturating_add(1),
            offset: 0,
        }
    }
}

/// Where a log ends, or where replay of it begins: the place of the next frame, if there is room for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The next frame goes to `offset` of this segment.
    Open {
        /// Index of the segment.
        segment: u32,
        /// Its sequence.
        sequence: u64,
        /// Offset in it, in bytes.
        offset: u32,
    },
    /// This segment, the last one, is full; the next frame goes to the segment that its link will lead to.
    Closed {
        /// Index of the segment.
        segment: u32,
        /// Its sequence.
        sequence: u64,
    },
}

impl End {
    /// Open at `offset`, or closed where there is none.
    pub fn of(segment: u32, sequence: u64, offset: Option<u32>) -> Self {
        match offset {
            Some(offset) => Self::Open {
                segment,
                sequence,
                offset,
            },
            None => Self::Closed { segment, sequence },
        }
    }

    /// Index of the last segment.
    pub fn segment(self) -> u32 {
        match self {
            Self::Open { segment, .. } | Self::Closed { segment, .. } => segment,
        }
    }

    /// Sequence of the last segment.
    pub fn sequence(self) -> u64 {
        match self {
            Self::Open { sequence, .. } | Self::Closed { sequence, .. } => sequence,
        }
    }

    /// Offset of the next frame in the last segment; `None`: it goes to another one.
    pub fn offset(self) -> Option<u32> {
        match self {
            Self::Open { offset, .. } => Some(offset),
            Self::Closed { .. } => None,
        }
    }

    /// The moment in history: everything appended lies before it, and what will be appended does not.
    pub fn position(self) -> LogPosition {
        match self {
            Self::Open {
                sequence, offset, ..
            } => LogPosition { sequence, offset },
            Self::Closed { sequence, .. } => LogPosition::past(sequence),
        }
    }

    /// The same segment without room for another frame.
    #[must_use]
    pub fn closed(self) -> Self {
        Self::Closed {
            segment: self.segment(),
            sequence: self.sequence(),
        }
    }
}

impl std::fmt::Display for LogPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}+{:#x}", self.sequence, self.offset)
    }
}

/// The seed of a segment's frames.
pub fn segment_seed(salt: u32, sequence: u64) -> u32 {
    crc(salt, &sequence.to_le_bytes())
}

/// What a segment's header states of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Never used twice in a file.
    pub sequence: u64,
    /// How many segments' room it takes.
    pub units: u32,
}

impl SegmentHeader {
    /// The first 32 bytes, without a link.
    pub fn encode(&self, salt: u32) -> Vec<u8> {
        let mut body = Give::default();
        body.u64(self.sequence).u32(self.units).u32(0);
        let mut header = Give::default();
        header
            .bytes(&MAGIC)
            .u32(crc(salt, &body.0))
            .bytes(&body.0)
            .u64(0);
        header.0
    }

    /// Decodes the first 24 bytes. `None`: not a header of this file.
    pub fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let mut take = Take(bytes);
        if take.bytes(4)? != MAGIC {
            return None;
        }
        let stored = take.u32()?;
        if crc(salt, take.0.get(..16)?) != stored {
            return None;
        }
        let header = Self {
            sequence: take.u64()?,
            units: take.u32()?,
        };
        // No writer gives the last sequence: the next one is always a number.
        (header.units > 0 && header.sequence < u64::MAX).then_some(header)
    }
}

/// Segments a log may have.
const SEGMENTS_MAX: u32 = 1 << 30;

/// The link word to the segment at `next`, below `SEGMENTS_MAX`, that has this sequence.
pub fn encode_link(next: u32, seed: u32, next_sequence: u64) -> u64 {
    let link = next + 1;
    u64::from(link) | u64::from(link_crc(link, seed, next_sequence)) << 32
}

fn link_crc(link: u32, seed: u32, next_sequence: u64) -> u32 {
    let mut summed = Give::default();
    summed.u32(link).u64(next_sequence);
    crc(seed, &summed.0)
}

/// What a link word states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// No next segment was opened.
    None,
    /// The next segment, which stands there.
    To(Next),
    /// Neither: the word is damaged, or what stands there is not what it leads to.
    Damaged,
}

/// Where a link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Index of the segment.
    pub index: u32,
    /// Its sequence, later than that of the segment before.
    pub sequence: u64,
}

/// The index a link word states, unverified.
pub fn link_index(word: u64) -> Option<u32> {
    (word as u32)
        .checked_sub(1)
        .filter(|next| *next < SEGMENTS_MAX)
}

/// Decodes the link word of a segment of this seed and sequence; `header_of` states what stands at an index.
pub fn decode_link(
    word: u64,
    seed: u32,
    sequence: u64,
    header_of: impl FnOnce(u32) -> Option<SegmentHeader>,
) -> Link {
    if word == 0 {
        return Link::None;
    }
    let found = link_index(word).and_then(|index| {
        let next = header_of(index)?.sequence;
        // Without this order a chain made to deceive could go round for ever.
        let leads = link_crc(word as u32, seed, next) == (word >> 32) as u32 && next > sequence;
        leads.then_some(Next {
            index,
            sequence: next,
        })
    });
    found.map_or(Link::Damaged, Link::To)
}

/// How far the log was known to be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Everything before it was synced.
    pub durable: LogPosition,
    /// Whether a sync failed since: then the cache is not to be believed.
    pub sync_failed: bool,
}

impl Mark {
    /// The mark's bytes.
    pub fn encode(&self) -> [u8; MARK_SIZE] {
        let mut give = Give::default();
        give.u64(self.durable.sequence)
            .u32(self.durable.offset)
            .u32(u32::from(self.sync_failed));
        let sum = crc(MARK_SEED, &give.0);
        give.u32(sum).u32(0);
        *give.0.first_chunk().unwrap_or(&[0; MARK_SIZE])
    }

    /// Decodes a mark, also one of which one bit is wrong. `None`: never written, or lost; recovery then falls back to the
    /// checkpoint.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::verify(bytes).or_else(|| {
            (0..8 * MARK_SUMMED).find_map(|bit| {
                let mut other = bytes.to_vec();
                flip(&mut other, bit);
                Self::verify(&other)
            })
        })
    }

    /// As `decode`, but of one wrong bit `None`.
    pub fn verify(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let body = take.0.get(..16)?;
        let durable = LogPosition::new(take.u64()?, take.u32()?);
        let sync_failed = take.u32()?;
        (crc(MARK_SEED, body) == take.u32()? && sync_failed <= 1).then_some(Self {
            durable,
            sync_failed: sync_failed == 1,
        })
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_header_are_as_the_table_says() {
        let header = SegmentHeader {
            sequence: 0x1_0000_0002,
            units: 3,
        };
        let bytes = header.encode(7);
        assert_eq!(&bytes[..4], b"azsg");
        assert_eq!(
            &bytes[8..24],
            &[2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(bytes.len(), 32);
        assert_eq!(SegmentHeader::decode(&bytes, 7), Some(header));
        assert_eq!(
            SegmentHeader::decode(&bytes, 8),
            None,
            "another file's salt"
        );
        for len in 0..24 {
            assert_eq!(SegmentHeader::decode(&bytes[..len], 7), None);
        }
        let sequence = u64::MAX;
        let last = SegmentHeader { sequence, units: 3 };
        let found = SegmentHeader::decode(&last.encode(7), 7);
        assert_eq!(found, None, "no sequence comes after it");
    }

    #[test]
    fn links_and_marks_come_back_and_damage_is_told() {
        let header = |sequence| move |_| Some(SegmentHeader { sequence, units: 1 });
        let next = |index, sequence| Link::To(Next { index, sequence });
        let word = encode_link(0, 9, 7);
        assert_eq!(decode_link(word, 9, 6, header(7)), next(0, 7));
        assert_eq!(decode_link(word, 8, 6, header(7)), Link::Damaged);
        assert_eq!(
            decode_link(word, 9, 6, header(8)),
            Link::Damaged,
            "another lap"
        );
        assert_eq!(
            decode_link(word, 9, 7, header(7)),
            Link::Damaged,
            "a circle"
        );
        assert_eq!(decode_link(word, 9, 6, |_| None), Link::Damaged);
        for bit in 0..64 {
            assert_eq!(decode_link(word ^ 1 << bit, 9, 6, header(7)), Link::Damaged);
        }
        assert_eq!(decode_link(0, 9, 6, |_| None), Link::None);
        let far = encode_link(SEGMENTS_MAX, 9, 7);
        assert_eq!(decode_link(far, 9, 6, header(7)), Link::Damaged);
        let mark = Mark {
            durable: LogPosition::new(5, 640),
            sync_failed: true,
        };
        for bit in 0..8 * MARK_SIZE {
            let mut bytes = mark.encode();
            assert_eq!(Mark::decode(&bytes), Some(mark));
            flip(&mut bytes, bit);
            assert_eq!(Mark::decode(&bytes), Some(mark), "bit {bit}");
            flip(&mut bytes, (bit + 7) % (8 * MARK_SUMMED));
            let is_one = bit >= 8 * MARK_SUMMED;
            assert_eq!(Mark::decode(&bytes).is_some(), is_one, "bits from {bit}");
        }
        assert_eq!(Mark::decode(&[0; MARK_SIZE]), None);
    }
}
