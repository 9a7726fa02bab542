//! An object on storage: one extent of whole units that certifies itself.
//!
//! An extent is cut into chunks of 64 KiB; the last one is as long as it must be, in units of 4096 bytes. Each chunk
//! ends with a trailer whose checksum is seeded with the store, the place, the id, the sequence and the chunk's number:
//! correct bytes in a wrong place, of another object, or of another put of the same one do not verify. So one read of a
//! chunk gives verified bytes, whether or not the others are read.
//!
//! The first chunk begins with a header:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | magic `azob` |
//! | 4 | 4 | CRC32C of bytes 8 to 64, seeded with the store's salt and the place: a scan finds the extent by it |
//! | 8 | 16 | id, most significant byte first |
//! | 24 | 8 | sequence: grows with every change of the store |
//! | 32 | 4 | length of the value in bytes |
//! | 36 | 4 | flags: 1 part of a batch, which the journal alone commits; 2 packed, which a checkpoint alone commits |
//! | 40 | 24 | zeros |
//! | 64 | .. | the value, interrupted by trailers |
//!
//! The last eight bytes of each chunk are its trailer; before them are zeros where the value ended earlier:
//!
//! | offset from the end | size | meaning |
//! |---|---|---|
//! | 8 | 4 | CRC32C of the chunk before this trailer |
//! | 4 | 4 | lower half of the sequence: chunks read one by one are of one put if these agree |
//!
//! A small object is *packed*: the same header, value and trailer, but it begins and ends at pieces of 64 bytes instead of
//! units, and others stand next to it in one extent, the *packed extent*.
//!
//! This file encodes and decodes in memory. It does not read, write or allocate places.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::ops::Range;

use crate::format::bytes::{Give, Take};
use crate::format::checksum::crc;
use crate::object::id::ObjectId;

/// Granularity of places and lengths on storage, in bytes.
pub const UNIT: u64 = 4096;
/// Bytes of every chunk but the last.
pub const CHUNK: usize = 64 << 10;
/// Bytes in front of the value.
pub const HEADER_LEN: usize = 64;
/// The longest object, in bytes.
pub const LEN_MAX: u64 = 512 << 20;

/// The put is part of a batch.
pub const BATCHED: u32 = 1;
/// The object stands in a packed extent.
pub const PACKED: u32 = 2;

/// Granularity of places of packed objects, in bytes.
pub const PIECE: u64 = 64;

const TRAILER_LEN: usize = 8;
const MAGIC: [u8; 4] = *b"azob";
/// Bytes of the value in the first chunk, and in every other.
const FIRST_LEN: u64 = (CHUNK - HEADER_LEN - TRAILER_LEN) as u64;
const NEXT_LEN: u64 = (CHUNK - TRAILER_LEN) as u64;

const _: () = assert!((CHUNK as u64).is_multiple_of(UNIT) && LEN_MAX < 1 << 30);

/// The header of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The object.
    pub id: ObjectId,
    /// Sequence of its put.
    pub sequence: u64,
    /// Bytes of the value.
    pub len: u32,
    /// [`BATCHED`] or nothing.
    pub flags: u32,
}

/// Why an extent does not verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no header, or another object's.
    Header,
    /// The checksum of this chunk does not match.
    Chunk(u64),
    /// This chunk is of another put than the first one read.
    Mixed(u64),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header => write!(f, "the header is not this object's"),
            Self::Chunk(chunk) => write!(f, "the checksum of chunk {chunk} does not match"),
            Self::Mixed(chunk) => write!(f, "chunk {chunk} is of another put"),
        }
    }
}

/// Chunks of an extent whose value has `len` bytes.
pub fn chunks(len: u64) -> u64 {
    1 + len.saturating_sub(FIRST_LEN).div_ceil(NEXT_LEN)
}

/// Units of such an extent.
pub fn units(len: u64) -> u64 {
    physical(len, chunks(len), UNIT) / UNIT
}

/// Its bytes.
pub fn bytes(len: u64) -> usize {
    (units(len) * UNIT) as usize
}

/// Bytes that an object of `len` bytes takes in a packed extent.
pub fn packed_size(len: u64) -> u64 {
    physical(len, chunks(len), PIECE)
}

/// The longest object that may be packed: it is one chunk.
pub const PACKED_LEN_MAX: u64 = FIRST_LEN;

/// Bytes of the first `count` chunks of an extent whose end is a multiple of `grain`.
fn physical(len: u64, count: u64, grain: u64) -> u64 {
    let all = chunks(len);
    if count < all {
        return count * CHUNK as u64;
    }
    let trailers = all * TRAILER_LEN as u64;
    (HEADER_LEN as u64 + len + trailers).next_multiple_of(grain)
}

/// Which bytes of the value chunk `chunk` holds.
fn value_range(len: u64, chunk: u64) -> Range<u64> {
    let start = match chunk {
        0 => 0,
        _ => FIRST_LEN + (chunk - 1) * NEXT_LEN,
    };
    let end = FIRST_LEN + chunk * NEXT_LEN;
    start.min(len)..end.min(len)
}

/// Which bytes of chunk `chunk` are the value's.
fn room_of(chunk: u64, len: u64) -> Range<usize> {
    let start = if chunk == 0 { HEADER_LEN } else { 0 };
    let held = value_range(len, chunk);
    start..start + (held.end - held.start) as usize
}

/// Where in its extent the bytes of a value of `len` bytes from `at` on are, up to the next trailer.
pub fn room(extent: &mut [u8], len: u64, at: u64) -> &mut [u8] {
    let chunk = chunk_of(at);
    let room = room_of(chunk, len);
    let within = (at - value_range(len, chunk).start) as usize;
    let begin = chunk as usize * CHUNK;
    extent
        .get_mut(begin + room.start + within..begin + room.end)
        .unwrap_or_default()
}

/// The seeds of one put's checksums.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    salt: u32,
    place: u64,
    id: ObjectId,
    /// Granularity of the end.
    grain: u64,
}

impl Seal {
    /// Of object `id`, whose extent begins at `place`, in pieces, of the store with this salt.
    pub fn new(salt: u32, place: u64, id: ObjectId) -> Self {
        Self {
            salt,
            place,
            id,
            grain: UNIT,
        }
    }

    /// As `new`, of an object in a packed extent.
    pub fn packed(salt: u32, place: u64, id: ObjectId) -> Self {
        Self {
            grain: PIECE,
            ..Self::new(salt, place, id)
        }
    }

    fn of_header(&self) -> u32 {
        crc(self.salt, &self.place.to_le_bytes())
    }

    fn of_chunk(&self, chunk: u64) -> u32 {
        let seed = crc(self.of_header(), &self.id.to_bytes());
        crc(seed, &chunk.to_le_bytes())
    }

    /// Fills `extent`, which has the units (or the packed size) of the value's length, with header, value and trailers.
    pub fn encode(&self, extent: &mut [u8], sequence: u64, flags: u32, value: &[u8]) {
        let len = value.len() as u64;
        debug_assert_eq!(extent.len() as u64, physical(len, chunks(len), self.grain));
        self.encode_from(0, extent, sequence, flags, value);
    }

    /// Fills `chunks`, some of an extent from chunk `first` on, with their part of the whole value, and seals them.
    pub fn encode_from(
        &self,
        first: u64,
        chunks: &mut [u8],
        sequence: u64,
        flags: u32,
        value: &[u8],
    ) {
        let len = value.len() as u64;
        // Chunk by chunk: copied bytes are still in the cache when they are checksummed.
        for (chunk, bytes) in (first..).zip(chunks.chunks_mut(CHUNK)) {
            let held = value_range(len, chunk);
            if let Some(held) = value.get(held.start as usize..held.end as usize)
                && let Some(room) = bytes.get_mut(room_of(chunk, len))
            {
                room.copy_from_slice(held);
            }
            self.sign(chunk, bytes, sequence, flags, len);
        }
    }

    /// Adds header, padding and trailers to `chunks`, some of an extent from chunk `first` on, in which the value's bytes are.
    pub fn sign(&self, first: u64, chunks: &mut [u8], sequence: u64, flags: u32, len: u64) {
        for (chunk, bytes) in (first..).zip(chunks.chunks_mut(CHUNK)) {
            let Some((body, trailer)) = bytes.split_last_chunk_mut::<TRAILER_LEN>() else {
                unreachable!("a chunk has a unit or more")
            };
            if let (0, Some(head)) = (chunk, body.first_chunk_mut()) {
                *head = self.header(sequence, len as u32, flags);
            }
            if let Some(padding) = body.get_mut(room_of(chunk, len).end..) {
                padding.fill(0);
            }
            *trailer = self.trailer(chunk, sequence, body);
        }
    }

    fn trailer(&self, chunk: u64, sequence: u64, body: &[u8]) -> [u8; TRAILER_LEN] {
        let low = sequence as u32;
        let seed = crc(self.of_chunk(chunk), &low.to_le_bytes());
        let sum = crc(seed, body);
        (u64::from(low) << 32 | u64::from(sum)).to_le_bytes()
    }

    fn header(&self, sequence: u64, len: u32, flags: u32) -> [u8; HEADER_LEN] {
        let mut body = Give::default();
        body.bytes(&self.id.to_bytes())
            .u64(sequence)
            .u32(len)
            .u32(flags);
        body.0.resize(HEADER_LEN - 8, 0);
        let mut header = Give::default();
        header
            .bytes(&MAGIC)
            .u32(crc(self.of_header(), &body.0))
            .bytes(&body.0);
        *header.0.first_chunk().unwrap_or(&[0; HEADER_LEN])
    }

    /// Verifies `read`, which begins with the first chunk of [`chunks_of`] and holds all that have some of bytes `range` of
    /// the value of `len` bytes, and moves those of the later chunks up, over the trailers between. Returns where the bytes
    /// are then, and the sequence of the put, its lower half if the first chunk is not among them.
    pub fn decode(
        &self,
        read: &mut [u8],
        len: u64,
        range: &Range<u64>,
    ) -> Result<(Range<usize>, u64), Fault> {
        let mut reading = self.reading(len, range);
        let mut whole: Option<Range<usize>> = None;
        for begin in (0..read.len()).step_by(CHUNK) {
            let Some(held) = reading.verify(read.get(begin..).unwrap_or_default())? else {
                break;
            };
            let held = begin + held.start..begin + held.end;
            match &mut whole {
                None => whole = Some(held),
                Some(whole) => {
                    let to = whole.end;
                    whole.end += held.len();
                    read.copy_within(held, to);
                }
            }
        }
        let sequence = reading.sequence()?;
        Ok((whole.unwrap_or_default(), sequence))
    }

    /// A value whose chunks are read one after the other.
    pub fn reading(&self, len: u64, range: &Range<u64>) -> Reading {
        Reading {
            seal: *self,
            len,
            range: range.clone(),
            chunks: chunks_of(len, range),
            put: None,
        }
    }
}

/// A value whose chunks are arriving.
#[derive(Debug)]
pub struct Reading {
    seal: Seal,
    len: u64,
    range: Range<u64>,
    /// Chunks that are still missing.
    chunks: Range<u64>,
    /// The put that the first one is of.
    put: Option<u64>,
}

impl Reading {
    /// Appends what of the range the chunks in `read` hold: the next ones, all of them whole.
    pub fn take(&mut self, read: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        for bytes in read.chunks(CHUNK) {
            let Some(held) = self.verify(bytes)? else {
                break;
            };
            out.extend_from_slice(bytes.get(held).unwrap_or_default());
        }
        Ok(())
    }

    /// Verifies the next chunk, with which `bytes` begins. Returns where in it are bytes of the range; `None` after the last.
    pub(crate) fn verify(&mut self, bytes: &[u8]) -> Result<Option<Range<usize>>, Fault> {
        let Some(chunk) = self.chunks.next() else {
            return Ok(None);
        };
        let (seal, len) = (&self.seal, self.len);
        let end = physical(len, chunk + 1, seal.grain);
        let physical = end - physical(len, chunk, seal.grain);
        let (body, trailer) = bytes
            .get(..physical as usize)
            .and_then(|bytes| bytes.split_last_chunk::<TRAILER_LEN>())
            .ok_or(Fault::Chunk(chunk))?;
        let low = u64::from_le_bytes(*trailer) >> 32;
        if seal.trailer(chunk, low, body) != *trailer {
            return Err(Fault::Chunk(chunk));
        }
        let (mut head_len, mut sequence) = (0, low);
        if chunk == 0 {
            let header = Header::decode(body, seal.salt, seal.place).ok_or(Fault::Header)?;
            if header.id != seal.id || u64::from(header.len) != len {
                return Err(Fault::Header);
            }
            (head_len, sequence) = (HEADER_LEN, header.sequence);
        }
        match self.put {
            Some(first) if first as u32 != low as u32 => return Err(Fault::Mixed(chunk)),
            Some(_) => {}
            None => self.put = Some(sequence),
        }
        let held = value_range(len, chunk);
        let from = self.range.start.max(held.start) - held.start;
        let to = self.range.end.min(held.end).saturating_sub(held.start);
        Ok(Some(
            head_len + from as usize..head_len + to.max(from) as usize,
        ))
    }

    /// The sequence of the put, its lower half if the first chunk is not among those wanted.
    pub fn sequence(&self) -> Result<u64, Fault> {
        match self.put {
            Some(put) if self.chunks.is_empty() => Ok(put),
            _ => Err(Fault::Chunk(self.chunks.start)),
        }
    }
}

/// Which chunk holds byte `at` of a value that is longer.
fn chunk_of(at: u64) -> u64 {
    match at.checked_sub(FIRST_LEN) {
        None => 0,
        Some(after) => 1 + after / NEXT_LEN,
    }
}

/// Which chunks hold bytes `range` of a value of `len` bytes; at least one.
pub fn chunks_of(len: u64, range: &Range<u64>) -> Range<u64> {
    let first = chunk_of(range.start.min(len.saturating_sub(1)));
    let last = chunk_of(
        range
            .end
            .saturating_sub(1)
            .max(range.start)
            .min(len.saturating_sub(1)),
    );
    first..last + 1
}

/// Which bytes of the extent these chunks are, from its beginning.
pub fn bytes_of(len: u64, chunks: &Range<u64>) -> Range<u64> {
    physical(len, chunks.start, UNIT)..physical(len, chunks.end, UNIT)
}

impl Header {
    /// Decodes what stands at `place`, in pieces, of the store with this salt. `None`: no object begins there.
    pub fn decode(bytes: &[u8], salt: u32, place: u64) -> Option<Self> {
        let mut take = Take(bytes.get(..HEADER_LEN)?);
        if take.bytes(4)? != MAGIC {
            return None;
        }
        let stored = take.u32()?;
        if crc(crc(salt, &place.to_le_bytes()), take.0) != stored {
            return None;
        }
        let id = ObjectId::from_bytes(take.id()?);
        let (sequence, len, flags) = (take.u64()?, take.u32()?, take.u32()?);
        let header = Self {
            id,
            sequence,
            len,
            flags,
        };
        (u64::from(len) <= LEN_MAX && sequence < 1 << 63).then_some(header)
    }

    /// Units of the extent.
    pub fn units(&self) -> u64 {
        units(u64::from(self.len))
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const LENS: [u64; 12] = [
        0,
        1,
        4024,
        4025,
        FIRST_LEN - 1,
        FIRST_LEN,
        FIRST_LEN + 1,
        102_400,
        FIRST_LEN + NEXT_LEN,
        FIRST_LEN + NEXT_LEN + 1,
        FIRST_LEN + NEXT_LEN + 4088,
        1 << 20,
    ];

    fn value(len: u64) -> Vec<u8> {
        (0..len).map(|at| ((at * 31) >> 3) as u8 | 1).collect()
    }

    fn extent(seal: Seal, len: u64, sequence: u64) -> Vec<u8> {
        let mut bytes = vec![0xee; (units(len) * UNIT) as usize];
        seal.encode(&mut bytes, sequence, 0, &value(len));
        bytes
    }

    const SEAL: Seal = Seal {
        salt: 7,
        place: 11,
        id: ObjectId(0xabc),
        grain: UNIT,
    };

    #[test]
    fn the_bytes_are_as_the_table_says() {
        let bytes = extent(SEAL, 3, 0x0102_0304_0506);
        assert_eq!(bytes.len(), 4096);
        assert_eq!(&bytes[..4], b"azob");
        assert_eq!(&bytes[8..24], &ObjectId(0xabc).to_bytes());
        assert_eq!(
            &bytes[24..40],
            &[6, 5, 4, 3, 2, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(&bytes[64..67], &value(3)[..]);
        assert!(bytes[67..4088].iter().all(|byte| *byte == 0));
        assert_eq!(&bytes[4092..], &[6, 5, 4, 3]);
    }

    #[test]
    fn values_and_parts_of_them_come_back() {
        for len in LENS {
            let bytes = extent(SEAL, len, 9);
            assert!(
                bytes.len() as u64 <= (len + 64 + 8 * chunks(len)).next_multiple_of(UNIT) + UNIT
            );
            let cuts = [
                0,
                1,
                FIRST_LEN - 1,
                FIRST_LEN,
                FIRST_LEN + NEXT_LEN,
                len / 2,
                len,
            ];
            for start in cuts.into_iter().filter(|cut| *cut <= len) {
                for end in cuts.into_iter().filter(|cut| (start..=len).contains(cut)) {
                    let range = start..end;
                    let of = bytes_of(len, &chunks_of(len, &range));
                    let read = &mut bytes[of.start as usize..of.end as usize].to_vec();
                    let mut out = Vec::new();
                    let mut reading = SEAL.reading(len, &range);
                    reading.take(read, &mut out).unwrap();
                    assert_eq!(reading.sequence(), Ok(9));
                    let (found, sequence) = SEAL.decode(read, len, &range).unwrap();
                    assert_eq!(sequence, 9);
                    let wanted = &value(len)[start as usize..end as usize];
                    assert!(read[found] == *wanted && out == *wanted, "{len} {range:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_passes_under_another_name_place_or_length_or_with_a_flipped_bit() {
        for len in [0, 5000, FIRST_LEN + 1] {
            let bytes = extent(SEAL, len, 9);
            let refused = |seal: Seal, bytes: &[u8], len: u64| {
                let read = seal.decode(&mut bytes.to_vec(), len, &(0..len));
                assert!(read.is_err(), "{len}");
            };
            refused(Seal { salt: 8, ..SEAL }, &bytes, len);
            refused(Seal { place: 12, ..SEAL }, &bytes, len);
            let id = ObjectId(0xabd);
            refused(Seal { id, ..SEAL }, &bytes, len);
            refused(SEAL, &bytes, len + 1);
            for at in (0..bytes.len()).step_by(61).chain([bytes.len() - 1]) {
                let mut flipped = bytes.clone();
                flipped[at] ^= 4;
                refused(SEAL, &flipped, len);
            }
            for cut in [0, 64, bytes.len() - 1] {
                refused(SEAL, &bytes[..cut], len);
            }
        }
    }

    #[test]
    fn packed_objects_come_back_and_are_not_taken_for_extents() {
        for len in [0, 1, 56, 57, 100, 2048, PACKED_LEN_MAX] {
            let seal = Seal::packed(7, 3, ObjectId(9));
            let mut bytes = vec![0xee; packed_size(len) as usize];
            assert!(bytes.len() as u64 <= len + 72 + 63 && bytes.len().is_multiple_of(64));
            seal.encode(&mut bytes, 5, PACKED, &value(len));
            let (found, sequence) = seal.decode(&mut bytes, len, &(0..len)).unwrap();
            assert_eq!((&bytes[found], sequence), (&value(len)[..], 5));
            let header = Header::decode(&bytes, 7, 3).unwrap();
            assert_eq!(header.flags, PACKED);
            bytes.resize((units(len) * UNIT) as usize, 0);
            if bytes.len() as u64 > packed_size(len) {
                let other = Seal::new(7, 3, ObjectId(9));
                assert!(other.decode(&mut bytes, len, &(0..len)).is_err());
            }
        }
    }

    #[test]
    fn chunks_of_two_puts_are_no_value() {
        let len = FIRST_LEN + NEXT_LEN + 7;
        let mut mixed = extent(SEAL, len, 9);
        let later = extent(SEAL, len, 10);
        mixed[CHUNK..2 * CHUNK].copy_from_slice(&later[CHUNK..2 * CHUNK]);
        let read = |range: Range<u64>| {
            let of = bytes_of(len, &chunks_of(len, &range));
            let bytes = &mut mixed[of.start as usize..of.end as usize].to_vec();
            SEAL.decode(bytes, len, &range)
                .map(|(_, sequence)| sequence)
        };
        assert_eq!(read(0..len), Err(Fault::Mixed(1)));
        assert_eq!(read(FIRST_LEN..len), Err(Fault::Mixed(2)));
        assert_eq!(read(FIRST_LEN..FIRST_LEN + 5), Ok(10));
    }

    #[test]
    fn headers_are_known_where_they_were_written_only() {
        let bytes = extent(SEAL, 5000, 9);
        let header = Header::decode(&bytes, 7, 11).unwrap();
        assert_eq!((header.id, header.sequence, header.len), (SEAL.id, 9, 5000));
        assert_eq!(header.units(), 2);
        assert_eq!(Header::decode(&bytes, 7, 12), None);
        assert_eq!(Header::decode(&bytes, 8, 11), None);
        for len in 0..HEADER_LEN {
            assert_eq!(Header::decode(&bytes[..len], 7, 11), None);
        }
        for (sequence, is_one) in [((1 << 63) - 1, true), (1 << 63, false), (u64::MAX, false)] {
            let header = Header::decode(&extent(SEAL, 5000, sequence), 7, 11);
            assert_eq!(header.is_some(), is_one, "{sequence:#x}");
        }
    }
}
