//! The root of a checkpoint, in pieces: a long one needs no neighbouring segments, which a full store may not have, and of
//! each piece a flipped bit is known by its checksum (`format::flipped`).
//!
//! The superblock states where the first piece is. A piece is at most `PIECE_MAX` bytes. One that is as long as that continues,
//! and ends with where the next one is; a shorter one is the last. They are short, so that damage of more than a bit passes for
//! one in 1 of 100,000 cases only:
//!
//! | size | meaning |
//! |---|---|
//! | piece - 20 | bytes of the root |
//! | 4, 8, 8 | the next piece: CRC32C, offset, length |
//!
//! They are written from the last to the first, since each holds the next one's checksum. If all together are longer than a
//! segment, they stand in segments of their own.
//!
//! It does not know what a root states, nor when it is durable.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use super::manifest::{Extent, read_extent, read_extent_corrected, remedy};
use super::parts::{self, Parts};
use super::segment::{AllocationClass, Patience, Use};
use super::{Geometry, Log};
use crate::error::{Error, Kind, Result};
use crate::format::bytes::{Give, Take};
use crate::io::Storage;

/// Bytes of the longest piece; a segment is some of them.
const PIECE_MAX: u64 = 4 << 10;
/// Bytes that state where the next piece is.
const NEXT: u64 = 20;
/// What errors call it.
const WHAT: &str = "the root of the checkpoint";

/// How many pieces a root of `len` bytes has. The last is shorter than the others.
fn pieces(len: u64) -> u64 {
    if len < PIECE_MAX {
        1
    } else {
        (len + 1 - NEXT).div_ceil(PIECE_MAX - NEXT)
    }
}

/// Bytes of all pieces of a root of `len` bytes.
fn whole_len(len: u64) -> u64 {
    len + (pieces(len) - 1) * NEXT
}

/// How many segments a root of `len` bytes takes, if it is alone in them.
pub fn units(geometry: Geometry, len: u64) -> u32 {
    // Segments are whole numbers of pieces.
    whole_len(len).div_ceil(geometry.segment_size()) as u32
}

/// Where a root will stand.
#[derive(Debug)]
pub struct Room {
    /// Offsets of segments of its own: a part next to it would keep one when the root is long replaced. If there are none, it
    /// stands with the parts.
    apart: Vec<u64>,
}

impl Room {
    /// Takes room for a root of at most `len` bytes. `Full` if there is none; what was taken is idle then.
    pub fn take(log: &Log, parts: &mut Parts, len: u64) -> Result<Self> {
        let geometry = log.geometry();
        let whole = whole_len(len);
        if whole <= geometry.segment_size() {
            parts.make_room(log, whole, AllocationClass::Checkpoint)?;
            return Ok(Self { apart: Vec::new() });
        }
        let segments = log.segments();
        let take = || {
            segments
                .space()
                .take(1, 0, Use::Other, AllocationClass::Checkpoint)
        };
        let mut patience = Patience::default();
        let taken = (0..units(geometry, len)).map(|_| segments.patiently(&mut patience, take));
        let taken = taken.map(|index| index.map(|index| geometry.offset_of(index)));
        Ok(Self {
            apart: taken.collect::<Result<_>>()?,
        })
    }

    /// A byte of each segment taken.
    fn places(&self) -> impl Iterator<Item = Extent> + '_ {
        self.apart.iter().map(|&offset| Extent {
            offset,
            len: 1,
            crc: 0,
        })
    }

    /// Writes the root that `encode` makes of the segments that are needed, by `images` and itself: index, units. Its checksums
    /// have `seed`. Answers where its pieces are, the first one first. What was taken and is not needed is idle then. A failed
    /// write poisons the log.
    pub fn write(
        mut self,
        log: &Log,
        parts: &mut Parts,
        seed: u32,
        images: &[Extent],
        encode: &mut dyn FnMut(Vec<(u32, u32)>) -> Vec<u8>,
    ) -> Result<Vec<Extent>> {
        let geometry = log.geometry();
        let is_apart = !self.apart.is_empty();
        // An idle one must not be reported as needed: it may be cut off the storage's end.
        let bytes = loop {
            // A run that is being filled and holds no image is not needed by a root that stands apart.
            let filled = if is_apart { Parts::default() } else { *parts };
            let needed = images.iter().copied().chain(self.places());
            let needed = parts::needed(log, needed, filled);
            let bytes = encode(needed);
            let units = units(geometry, bytes.len() as u64) as usize;
            if self.apart.len() <= units {
                break bytes;
            }
            self.apart.truncate(units);
        };
        let mut apart = self.apart.into_iter();
        let mut own = apart.next().map(|offset| Parts::within(geometry, offset));
        let mut written: Vec<Extent> = Vec::new();
        for piece in pieces_of(&bytes).into_iter().rev() {
            let mut piece = piece.to_vec();
            if let Some(next) = written.last() {
                piece.extend(give(*next));
            }
            if own.is_some_and(|own| !own.has_room(piece.len() as u64)) {
                own = apart.next().map(|offset| Parts::within(geometry, offset));
            }
            let room = match &mut own {
                Some(own) => own,
                None if is_apart => {
                    return Err(
                        Error::new(Kind::Full, "a root needs more room than it asked for")
                            .at(log.storage().path()),
                    );
                }
                None => &mut *parts,
            };
            written.push(room.write(log, &piece, seed)?);
        }
        written.reverse();
        Ok(written)
    }
}

/// A root's bytes, piece by piece.
fn pieces_of(bytes: &[u8]) -> Vec<&[u8]> {
    let max = PIECE_MAX as usize;
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while rest.len() >= max {
        let (piece, after) = rest.split_at(max - NEXT as usize);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

fn give(next: Extent) -> Vec<u8> {
    let mut give = Give::default();
    give.u32(next.crc).u64(next.offset).u64(next.len);
    give.0
}

fn take(bytes: &[u8]) -> Option<Extent> {
    let mut take = Take(bytes);
    let crc = take.u32()?;
    let (offset, len) = (take.u64()?, take.u64()?);
    Some(Extent { offset, len, crc })
}

/// A root as it was read.
#[derive(Debug, Default)]
pub struct Read {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where its pieces are; if one could not be read, that one last.
    pub pieces: Vec<Extent>,
    /// Whether a bit of it was flipped back.
    pub is_corrected: bool,
    next: Option<Extent>,
}

impl Read {
    /// What begins with the piece at `first`.
    pub fn from(first: Extent) -> Self {
        Self {
            next: Some(first),
            ..Self::default()
        }
    }

    /// Reads all of it, and verifies it with `seed`; one flipped bit of a piece is flipped back, if `corrects`. `Corrupted`, with the
    /// offset of the piece.
    pub fn read(&mut self, storage: &dyn Storage, seed: u32, corrects: bool) -> Result<()> {
        let mut seen = BTreeSet::new();
        while let Some(extent) = self.next {
            // No writer gives pieces that go in a circle.
            if extent.len > PIECE_MAX || !seen.insert(extent.offset) {
                return Err(
                    Error::new(Kind::Corrupted, format!("{WHAT} holds impossible values"))
                        .at(storage.path())
                        .offset(extent.offset)
                        .found(
                            format!("{} bytes", extent.len),
                            format!("at most {PIECE_MAX}, each once"),
                        )
                        .remedy(remedy(storage)),
                );
            }
            self.pieces.push(extent);
            let mut piece = if corrects {
                let (piece, bit) = read_extent_corrected(storage, extent, seed, WHAT)?;
                self.is_corrected |= bit.is_some();
                piece
            } else {
                read_extent(storage, extent, seed, WHAT)?
            };
            self.next = None;
            if extent.len == PIECE_MAX {
                let after = piece.split_off(piece.len() - NEXT as usize);
                self.next = take(&after);
            }
            self.bytes.append(&mut piece);
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::refusal;
    use crate::io::memory::Memory;
    use crate::testkit::Random;

    const GEOMETRY: Geometry = Geometry { shift: 12, salt: 7 };
    const SIZE: usize = 1 << 12;
    const SEED: u32 = 5;

    fn log() -> (Arc<Memory>, Log) {
        let memory = Memory::new(1 << 20).unwrap();
        let storage: Arc<dyn Storage> = memory.clone();
        let map = storage.map(1 << 20).unwrap();
        let log = Log::new(storage, map, GEOMETRY).unwrap();
        log.begin(1 << 32).unwrap();
        (memory, log)
    }

    #[test]
    fn what_is_released_twice_is_free_once() {
        let (_memory, log) = log();
        let segments = log.segments();
        let class = AllocationClass::Checkpoint;
        let take = || segments.space().take(1, 0, Use::Other, class);
        let index = take().unwrap();
        segments.retire(index);
        let retired = segments.retired();
        assert_eq!(retired, [(index, 1)]);
        for _ in 0..2 {
            segments.release(&retired);
            segments.reap_to_the_last();
            let mut taken: Vec<u32> = Vec::new();
            while let Ok(index) = take() {
                assert!(
                    !taken.contains(&index),
                    "segment {index} is handed out twice"
                );
                taken.push(index);
            }
            assert!(taken.is_empty() || taken.contains(&index));
        }
    }

    fn free(log: &Log, taken: &[(u32, u32)]) {
        for (index, _) in taken {
            log.segments().retire(*index);
        }
        log.segments().release(taken);
        log.segments().reap_to_the_last();
    }

    fn segments_of(pieces: &[Extent]) -> Vec<(u32, u32)> {
        let of_it = |piece: &Extent| (GEOMETRY.locate(piece.offset).unwrap().0, 1);
        pieces.iter().map(of_it).collect()
    }

    fn written(log: &Log, bytes: &[u8]) -> Vec<Extent> {
        let mut parts = Parts::default();
        let room = Room::take(log, &mut parts, bytes.len() as u64).unwrap();
        room.write(log, &mut parts, SEED, &[], &mut |_| bytes.to_vec())
            .unwrap()
    }

    fn read(storage: &dyn Storage, first: Extent, corrects: bool) -> (Result<()>, Read) {
        let mut read = Read::from(first);
        (read.read(storage, SEED, corrects), read)
    }

    /// Takes all segments of a device that is full, and frees every other one, so that there are no neighbours.
    fn scatter(storage: &Memory, log: &Log) {
        storage.set_limit(1 << 18);
        let mut taken = Vec::new();
        let take = || {
            let mut space = log.segments().space();
            space.take(1, 0, Use::Other, AllocationClass::Checkpoint)
        };
        while let Ok(index) = take() {
            taken.push(index);
        }
        assert!(taken.len() > 40, "{taken:?}");
        let every_other = taken.iter().step_by(2).map(|at| (*at, 1));
        free(log, &every_other.collect::<Vec<_>>());
    }

    #[test]
    fn roots_of_any_length_come_back_without_neighbours() {
        let (storage, log) = log();
        scatter(&storage, &log);
        let edges = [1, 2, 3].map(|pieces| pieces * (SIZE - NEXT as usize) + NEXT as usize);
        let around = edges.iter().flat_map(|edge| edge - 21..edge + 22);
        for len in around.chain([1, 2, 100, 5000, 60_000]) {
            let bytes = Random::new(len as u64).bytes(len);
            let pieces = written(&log, &bytes);
            assert_eq!(
                pieces.len() as u32,
                units(GEOMETRY, len as u64),
                "{len} bytes"
            );
            let (found, read) = read(storage.as_ref(), pieces[0], false);
            found.unwrap();
            assert_eq!((read.bytes, &read.pieces), (bytes, &pieces), "{len} bytes");
            free(&log, &segments_of(&pieces));
        }
    }

    #[test]
    fn a_wrong_bit_of_any_piece_is_seen_where_it_is_and_flipped_back() {
        let (storage, log) = log();
        let bytes = vec![9; 3 * SIZE];
        let pieces = written(&log, &bytes);
        assert_eq!(pieces.len(), 4);
        for (at, piece) in pieces.iter().enumerate() {
            for offset in [0, piece.len / 2, piece.len - 1] {
                let mut byte = [0];
                storage.read_at(piece.offset + offset, &mut byte).unwrap();
                let flip = [byte[0] ^ 4];
                storage.write_at(piece.offset + offset, &flip).unwrap();
                let (found, was) = read(storage.as_ref(), pieces[0], true);
                found.unwrap();
                assert_eq!(was.bytes, bytes);
                let (found, read) = read(storage.as_ref(), pieces[0], false);
                let error = found.unwrap_err();
                assert_eq!(error.kind(), Kind::Corrupted);
                assert_eq!(error.place(), Some(piece.offset), "{error}");
                assert_eq!(read.pieces, pieces[..=at]);
                storage.write_at(piece.offset + offset, &byte).unwrap();
            }
        }
    }

    /// What is reported as needed may not be cut off; what is not needed may be.
    #[test]
    fn a_root_reports_the_segments_that_it_takes_and_no_others() {
        let (_, log) = log();
        let mut parts = Parts::default();
        for (taken, len) in [(30_000, 9000), (9000, 8900), (9000, 100), (9000, 9000)] {
            let room = Room::take(&log, &mut parts, taken).unwrap();
            let mut reported = Vec::new();
            let mut encode = |needed| {
                reported = needed;
                vec![1; len]
            };
            let pieces = room.write(&log, &mut parts, SEED, &[], &mut encode);
            let mut stands = segments_of(&pieces.unwrap());
            stands.sort_unstable();
            assert_eq!(reported, stands, "{len} bytes in room for {taken}");
        }
    }

    #[test]
    fn pieces_of_a_root_share_the_segments_of_large_ones() {
        let geometry = Geometry { shift: 17, salt: 7 };
        let storage: Arc<dyn Storage> = Memory::new(8 << 20).unwrap();
        let map = storage.map(8 << 20).unwrap();
        let log = Log::new(Arc::clone(&storage), map, geometry).unwrap();
        log.begin(1 << 32).unwrap();
        for (len, units_wanted) in [(60_000, 1), (130_000, 1), (131_060, 2), (400_000, 4)] {
            assert_eq!(units(geometry, len), units_wanted, "{len} bytes");
            let bytes = Random::new(len).bytes(len as usize);
            let before = log.segments().in_use(Use::Other).len();
            let pieces = written(&log, &bytes);
            let taken = log.segments().in_use(Use::Other).len() - before;
            assert_eq!(taken as u32, units_wanted, "{len} bytes");
            let mut read = Read::from(pieces[0]);
            read.read(storage.as_ref(), SEED, false).unwrap();
            assert_eq!((read.bytes, read.pieces), (bytes, pieces), "{len} bytes");
        }
    }

    #[test]
    fn a_piece_that_is_longer_than_a_segment_is_refused() {
        let (storage, log) = log();
        let mut first = written(&log, &[9; 100])[0];
        first.len = SIZE as u64 + 1;
        let (found, _) = read(storage.as_ref(), first, true);
        refusal(found, Kind::Corrupted);
    }
}
