//! A file of changes, which brings a copy of a store from one of its checkpoints to a later one, and the mark of a copy in which that
//! is not complete; which checkpoint of which store.
//!
//! A file of changes:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8192 | both slots of `format::superblock`, of the engine `changes`; sequences 2 and 1 |
//! | 8192 | .. | the bytes of all pieces, one after the other |
//! | .. | .. | the list of pieces; the file ends with it |
//!
//! The payload of its superblock:
//!
//! | size | meaning |
//! |---|---|
//! | 8 | the word of the store's engine |
//! | 4, 16 | salt of the store; the checkpoint that a copy must be at: number, and the one drawn for it |
//! | 16 | the checkpoint that it is at afterwards |
//! | 4, 4 | a segment's size as a power of two; segments of the copy |
//! | 4, 8, 4 | where the log of the copy ends: segment, sequence, offset (0: the segment is full) |
//! | 8, 8, 4 | the list: offset, length, CRC32C seeded with the salt |
//! | 2, .. | the superblock's payload of the copy, with its length before |
//!
//! The list:
//!
//! | size | meaning |
//! |---|---|
//! | 4 | number of pieces; for each: |
//! | 8, 4, 4 | .. offset in the copy, length, CRC32C seeded with salt and offset |
//! | 4 | number of ranges that are zeros; for each: |
//! | 8, 8 | .. offset in the copy, length |
//!
//! The mark takes the place of the superblock, so that no engine takes the copy for a store. It is one of the engine `applying`:
//!
//! | size | meaning |
//! |---|---|
//! | 8, 4, 16, 16 | as above: engine, salt, from, to |
//! | 4, 8 | epoch and next sequence of the copy: its log uses none of them again |
//! | 1, .. | the name of the file of changes, with its length before |
//!
//! This file turns these bytes into values and back.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::error::{Error, Kind, Result};
use crate::format::bytes::{Give, Take};
use crate::format::checksum::crc;
use crate::format::superblock::{SIZE, Superblock};
use crate::log::{End, Geometry};

/// The word of a file of changes.
pub const CHANGES: [u8; 8] = *b"changes\0";
/// The word of a copy that changes are being applied to.
pub const APPLYING: [u8; 8] = *b"applying";
/// Bytes of a piece, at most.
pub const PIECE_MAX: u64 = 1 << 20;
/// Bytes of the name in a mark, at most.
const NAME_MAX: usize = 255;
const LIST_SEED: u32 = 0x4348_4c49;
const PIECE_SEED: u32 = 0x4348_5049;

/// A checkpoint in the history of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckpointNumber {
    /// How many states the store was in at checkpoints before.
    pub number: u64,
    /// What was drawn for it: histories that part give the same numbers, and not this.
    pub drawn: u64,
}

impl CheckpointNumber {
    /// Gives 16 bytes.
    pub fn give(self, give: &mut Give) {
        give.u64(self.number).u64(self.drawn);
    }

    /// What was given.
    pub fn take(take: &mut Take<'_>) -> Option<Self> {
        Some(Self {
            number: take.u64()?,
            drawn: take.u64()?,
        })
    }
}

/// A checkpoint of a store: what a copy is at. As text, `SALT-NUMBER-DRAWN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointId {
    pub(crate) salt: u32,
    pub(crate) moment: CheckpointNumber,
}

impl CheckpointId {
    /// Which checkpoint of the store it is: later ones have higher numbers.
    pub fn number(&self) -> u64 {
        self.moment.number
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckpointNumber { number, drawn } = self.moment;
        write!(f, "{:08x}-{number}-{drawn:016x}", self.salt)
    }
}

impl FromStr for CheckpointId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = || {
            let (salt, rest) = text.split_once('-')?;
            let (number, drawn) = rest.split_once('-')?;
            let id = Self {
                salt: u32::from_str_radix(salt, 16).ok()?,
                moment: CheckpointNumber {
                    number: number.parse().ok()?,
                    drawn: u64::from_str_radix(drawn, 16).ok()?,
                },
            };
            (id.to_string() == text).then_some(id)
        };
        parsed().ok_or_else(|| {
            Error::new(Kind::Invalid, "this is no checkpoint of a store")
                .found(text, "as in `1f2e3d4c-12-0123456789abcdef`")
                .remedy("name the earlier copy, or what `azekura inspect` states as its checkpoint")
        })
    }
}

/// From which checkpoint of which store to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The word of the store's engine.
    pub engine: [u8; 8],
    /// The salt of the store.
    pub salt: u32,
    /// A copy is at this one before.
    pub since: CheckpointNumber,
    /// And at this one after.
    pub to: CheckpointNumber,
}

impl Step {
    fn give(&self, give: &mut Give) {
        give.bytes(&self.engine).u32(self.salt);
        self.since.give(give);
        self.to.give(give);
    }

    fn take(take: &mut Take<'_>) -> Option<Self> {
        Some(Self {
            engine: *take.bytes(8)?.first_chunk()?,
            salt: take.u32()?,
            since: CheckpointNumber::take(take)?,
            to: CheckpointNumber::take(take)?,
        })
    }

    /// One of the checkpoints.
    pub fn id(&self, moment: CheckpointNumber) -> CheckpointId {
        CheckpointId {
            salt: self.salt,
            moment,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (since, to) = (self.id(self.since), self.id(self.to));
        write!(f, "from {since} to {to}")
    }
}

/// What a file of changes states of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// From where to where.
    pub step: Step,
    /// A segment's size as a power of two.
    pub shift: u32,
    /// Segments of the copy.
    pub segments: u32,
    /// Where the log of the copy ends.
    pub end: End,
    /// The list: offset, length, checksum.
    pub list: (u64, u64, u32),
    /// The superblock's payload of the copy.
    pub payload: Vec<u8>,
}

impl Head {
    /// Both slots.
    pub fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        self.step.give(&mut give);
        let (offset, len, sum) = self.list;
        give.u32(self.shift)
            .u32(self.segments)
            .u32(self.end.segment())
            .u64(self.end.sequence())
            .u32(self.end.offset().unwrap_or(0))
            .u64(offset)
            .u64(len)
            .u32(sum)
            .u16(self.payload.len() as u16)
            .bytes(&self.payload);
        let slot = |sequence| {
            let block = Superblock {
                engine: CHANGES,
                sequence,
                payload: give.0.clone(),
            };
            block.encode()
        };
        [slot(2), slot(1)].concat()
    }

    /// What was encoded, of a file that begins with these bytes. `Mismatch`: it is another file; `Corrupted`: a byte is not as it was written.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let block = Superblock::current(bytes, &CHANGES)?;
        let head = Self::decode_payload(&block.payload);
        head.filter(|head| head.encode() == bytes)
            .ok_or_else(|| damaged("its head").offset(0))
    }

    fn decode_payload(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        let step = Step::take(&mut take)?;
        let (shift, segments) = (take.u32()?, take.u32()?);
        let (segment, sequence, offset) = (take.u32()?, take.u64()?, take.u32()?);
        let list = (take.u64()?, take.u64()?, take.u32()?);
        let len = take.u16()?;
        let payload = take.bytes(len.into())?.to_vec();
        let is_sound = (12..32).contains(&shift) && segment < segments && take.0.is_empty();
        is_sound.then_some(Self {
            step,
            shift,
            segments,
            end: End::of(segment, sequence, (offset != 0).then_some(offset)),
            list,
            payload,
        })
    }

    /// Of the copy.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            shift: self.shift,
            salt: self.step.salt,
        }
    }
}

/// The error of a file of changes that is not what was written.
pub fn damaged(what: &str) -> Error {
    Error::new(
        Kind::Corrupted,
        format!("the file of changes is damaged: {what} does not verify"),
    )
    .remedy("make the changes again, since the same copy")
}

/// Bytes of the copy that stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedPiece {
    /// The offset in the copy.
    pub offset: u64,
    /// Their length.
    pub len: u32,
    /// Their checksum.
    pub sum: u32,
}

impl ChangedPiece {
    /// The piece of these bytes.
    pub fn of(salt: u32, offset: u64, bytes: &[u8]) -> Self {
        let seed = crc(salt ^ PIECE_SEED, &offset.to_le_bytes());
        Self {
            offset,
            len: bytes.len() as u32,
            sum: crc(seed, bytes),
        }
    }
}

/// What stands in a file of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// In the order of their bytes.
    pub pieces: Vec<ChangedPiece>,
    /// Ranges of the copy that are zeros: offset, length.
    pub blank: Vec<(u64, u64)>,
}

impl List {
    /// Its bytes, and their checksum.
    pub fn encode(&self, salt: u32) -> (Vec<u8>, u32) {
        let mut give = Give::default();
        give.u32(self.pieces.len() as u32);
        for piece in &self.pieces {
            give.u64(piece.offset).u32(piece.len).u32(piece.sum);
        }
        give.u32(self.blank.len() as u32);
        for (offset, len) in &self.blank {
            give.u64(*offset).u64(*len);
        }
        let sum = crc(salt ^ LIST_SEED, &give.0);
        (give.0, sum)
    }

    /// What was encoded, of pieces that fill the file from the head to this list, and lie between the superblock and the end of the copy.
    /// `None`: it is not.
    pub fn decode(bytes: &[u8], head: &Head) -> Option<Self> {
        let (offset, _, sum) = head.list;
        if crc(head.step.salt ^ LIST_SEED, bytes) != sum {
            return None;
        }
        let (first, end) = (
            head.geometry().offset_of(0),
            head.geometry().offset_of(head.segments),
        );
        let is_within = |from: u64, len: u64| {
            from >= first && from.checked_add(len).is_some_and(|to| to <= end)
        };
        let mut take = Take(bytes);
        let pieces = take.all(|take| {
            let (offset, len, sum) = (take.u64()?, take.u32()?, take.u32()?);
            let is_piece = u64::from(len) <= PIECE_MAX && is_within(offset, len.into());
            is_piece.then_some(ChangedPiece { offset, len, sum })
        })?;
        let blank = take.all(|take| {
            let (offset, len) = (take.u64()?, take.u64()?);
            is_within(offset, len).then_some((offset, len))
        })?;
        let len: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        (take.0.is_empty() && SIZE + len == offset).then_some(Self { pieces, blank })
    }
}

/// What stands in the place of a copy's superblock while changes are being applied to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyMark {
    /// From where to where.
    pub step: Step,
    /// Epoch and next sequence of the copy before.
    pub used: (u32, u64),
    /// The name of the file of changes.
    pub name: String,
}

impl ApplyMark {
    /// One for changes that are in a file of this path.
    pub fn new(step: Step, used: (u32, u64), path: &Path) -> Self {
        Self {
            step,
            used,
            name: name_to_mark(path),
        }
    }

    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut give = Give::default();
        self.step.give(&mut give);
        let (epoch, next) = self.used;
        give.u32(epoch)
            .u64(next)
            .u8(self.name.len() as u8)
            .bytes(self.name.as_bytes());
        give.0
    }

    /// What was encoded. `None`: impossible values.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut take = Take(payload);
        let step = Step::take(&mut take)?;
        let used = (take.u32()?, take.u64()?);
        let len = take.u8()?;
        let name = String::from_utf8(take.bytes(len.into())?.to_vec()).ok()?;
        take.0.is_empty().then_some(Self { step, used, name })
    }
}

/// The error of who opens a storage that begins with `head` as a store: where it is one of the two kinds of files here, what to do.
pub fn of_other(error: Error, head: &[u8]) -> Error {
    match Superblock::engine_in(head) {
        Some(CHANGES) => are_changes(error),
        Some(APPLYING) => {
            let block = Superblock::current(head, &APPLYING).ok();
            let mark = block.and_then(|block| ApplyMark::decode(&block.payload));
            let (step, name) = mark.map_or_else(
                || ("which cannot be read".into(), "CHANGES".into()),
                |mark| (mark.step.to_string(), mark.name),
            );
            not_complete(&name).detail(step)
        }
        _ => error,
    }
}

/// The error of who opens changes as a store.
pub fn are_changes(error: Error) -> Error {
    error.remedy(
        "it is a file of changes: `azekura apply COPY CHANGES` brings an earlier copy forward with it",
    )
}

/// The error of who opens a copy before the changes of this name are complete.
pub fn not_complete(name: &str) -> Error {
    let what = "it is a copy to which changes are applied, and they are not complete";
    Error::new(Kind::Mismatch, what).remedy(format!(
        "run `azekura apply COPY {name}` again, or make a new copy"
    ))
}

/// The name of the file of changes at this path, as far as a mark has room for it.
pub fn name_to_mark(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut end = name.len().min(NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use crate::error::refusal;

    fn step() -> Step {
        Step {
            engine: *b"tree\0\0\0\0",
            salt: 5,
            since: CheckpointNumber {
                number: 2,
                drawn: 7,
            },
            to: CheckpointNumber {
                number: 9,
                drawn: u64::MAX,
            },
        }
    }

    #[test]
    fn a_checkpoint_is_what_its_text_states() {
        let id = step().id(step().to);
        assert_eq!(id.to_string(), "00000005-9-ffffffffffffffff");
        assert_eq!(id.to_string().parse::<CheckpointId>().unwrap(), id);
        for text in [
            "",
            "5-9-f",
            "00000005-9",
            "00000005-09-ffffffffffffffff",
            "a/b-c",
        ] {
            refusal(text.parse::<CheckpointId>(), Kind::Invalid);
        }
    }

    #[test]
    fn each_byte_of_a_head_counts() {
        let piece = ChangedPiece::of(5, 1 << 16, b"bytes");
        let list = List {
            pieces: vec![piece],
            blank: vec![(2 << 16, 1 << 16)],
        };
        let (bytes, sum) = list.encode(5);
        let head = Head {
            step: step(),
            shift: 16,
            segments: 4,
            end: End::of(1, 3, Some(64)),
            list: (SIZE + 5, bytes.len() as u64, sum),
            payload: vec![1; 30],
        };
        assert_eq!(List::decode(&bytes, &head), Some(list));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(List::decode(&other, &head), None, "byte {at}");
        }
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes).unwrap(), head);
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(Head::decode(&other).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_mark_is_what_was_encoded() {
        let long = "n".repeat(NAME_MAX + 40);
        let mark = ApplyMark::new(step(), (3, 1 << 33), Path::new(&long));
        assert_eq!(mark.name.len(), NAME_MAX);
        let bytes = mark.encode();
        assert_eq!(ApplyMark::decode(&bytes), Some(mark));
        for len in 0..bytes.len() {
            assert_eq!(ApplyMark::decode(&bytes[..len]), None, "cut at {len}");
        }
    }
}
