//! Correcting one flipped bit, where a checksum identifies it.
//!
//! Of a record, header, link or image with one flipped bit, the original bytes are known (`format::flipped`). A place of the journal
//! that is one bit away from zeros was never written.
//!
//! The caller decides where the correction goes: into memory, for a store that is opened damaged; in place, by a repair.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::error::{Kind, Result};
use crate::format::checksum::crc;
use crate::format::flipped::{LEN_MAX, bit_of_sum, flip, mend_frame};
use crate::format::frame::Frame;
use crate::io::Storage;
use crate::log::Address;
use crate::log::layout::{
    FIRST_FRAME, LINK_OFFSET, Link, SegmentHeader, decode_link, link_index, segment_seed,
};
use crate::log::manifest::Extent;
use crate::log::root;
use crate::object::checkpoint::images::read_root;
use crate::object::checkpoint::root::ROOT_SEED;
use crate::object::checkpoint::superblock::Super;
use crate::object::checkpoint::{leaf_seed, list_seed};
use crate::object::journal::record::Record;

/// Most bits that are corrected in one store.
pub(crate) const CORRECTED_MAX: usize = 64;

/// Bytes of a segment's header, with the checksum that covers them.
const HEADER_LEN: usize = 24;

/// A corrected bit.
#[derive(Debug)]
pub(crate) struct Corrected {
    /// Offset of its byte in the journal's storage.
    pub(crate) offset: u64,
    /// What holds the bit.
    pub(crate) what: String,
}

/// A copy with one bit flipped.
fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    flip(&mut copy, bit);
    copy
}

/// Reads `len` bytes, or as many as there are.
fn read(journal: &dyn Storage, last: &Super, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len.min(last.journal_size.saturating_sub(offset)) as usize];
    journal.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Writes the byte of `bytes`, which begin at `offset`, that holds this bit, flipped; `what` holds the bit.
fn write(
    journal: &dyn Storage,
    offset: u64,
    bytes: &[u8],
    bit: usize,
    what: impl Into<String>,
) -> Result<Option<Corrected>> {
    let (at, what) = (bit / 8, what.into());
    let offset = offset + at as u64;
    if let Some(byte) = bytes.get(at) {
        journal.write_at(offset, &[byte ^ 1 << (bit % 8)])?;
    }
    Ok(Some(Corrected { offset, what }))
}

/// Corrects the flipped bit of the journal at `offset`, which recovery reports. `None`: more than one bit is wrong.
pub(crate) fn correct(
    journal: &dyn Storage,
    last: &Super,
    offset: u64,
) -> Result<Option<Corrected>> {
    let geometry = last.geometry;
    let Some((index, within)) = geometry.locate(offset) else {
        return Ok(None);
    };
    let begin = offset - u64::from(within);
    let head = read(journal, last, begin, u64::from(FIRST_FRAME))?;
    let Some(header) = SegmentHeader::decode(&head, geometry.salt) else {
        return correct_header(journal, last, index);
    };
    if u64::from(within) == LINK_OFFSET {
        return correct_link(journal, last, begin, header.sequence);
    }
    if within < FIRST_FRAME {
        return Ok(None);
    }
    let size = (u64::from(header.units) << geometry.shift).saturating_sub(u64::from(within));
    let bytes = read(journal, last, offset, size.min(LEN_MAX as u64))?;
    let seed = segment_seed(geometry.salt, header.sequence);
    let Some((bit, what)) = bit_of_record(&bytes, seed, within, offset) else {
        return Ok(None);
    };
    write(journal, offset, &bytes, bit, what)
}

/// The flipped bit of a record, and its object.
fn bit_of_record(bytes: &[u8], seed: u32, within: u32, offset: u64) -> Option<(usize, String)> {
    let place = within / 8;
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    if word.is_power_of_two() {
        return Some((word.trailing_zeros() as usize, "blank space".into()));
    }
    let mut corrected = bytes.to_vec();
    let (bit, _) = mend_frame(&mut corrected, seed, place, false)?;
    let frame = Frame::decode(&corrected, seed, place).ok()?;
    let record = Record::decode(Address(offset >> 3), &frame);
    let what = match record.as_ref().and_then(Record::id) {
        Some(id) => format!("a record of object {id}"),
        None => "a record of the journal".to_owned(),
    };
    Some((bit, what))
}

fn correct_header(journal: &dyn Storage, last: &Super, index: u32) -> Result<Option<Corrected>> {
    let geometry = last.geometry;
    let begin = geometry.offset_of(index);
    if begin + u64::from(FIRST_FRAME) > last.journal_size {
        return Ok(None);
    }
    let head = read(journal, last, begin, HEADER_LEN as u64)?;
    let is_whole = |bit: &usize| SegmentHeader::decode(&flipped(&head, *bit), geometry.salt);
    let Some(bit) = (0..HEADER_LEN * 8).find(|bit| is_whole(bit).is_some()) else {
        return Ok(None);
    };
    let what = "the header of a segment of the journal";
    write(journal, begin, &head, bit, what)
}

/// The link of the segment at `begin`, or the header that it leads to.
fn correct_link(
    journal: &dyn Storage,
    last: &Super,
    begin: u64,
    sequence: u64,
) -> Result<Option<Corrected>> {
    let geometry = last.geometry;
    let seed = segment_seed(geometry.salt, sequence);
    let header_of = |index: u32| {
        let at = geometry.offset_of(index);
        let is_inside = at + u64::from(FIRST_FRAME) <= last.journal_size;
        let head = is_inside.then(|| read(journal, last, at, HEADER_LEN as u64));
        SegmentHeader::decode(&head?.ok()?, geometry.salt)
    };
    let bytes = read(journal, last, begin + LINK_OFFSET, 8)?;
    let word = bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word));
    let leads = |bit: &u32| {
        matches!(
            decode_link(word ^ 1 << bit, seed, sequence, header_of),
            Link::To(_)
        )
    };
    let bit = if word.is_power_of_two() {
        Some(word.trailing_zeros())
    } else {
        (0..u64::BITS).find(leads)
    };
    if let Some(bit) = bit {
        let what = "the link of a segment of the journal";
        return write(journal, begin + LINK_OFFSET, &bytes, bit as usize, what);
    }
    match link_index(word) {
        Some(next) if header_of(next).is_none() => correct_header(journal, last, next),
        _ => Ok(None),
    }
}

/// Corrects the flipped bit of the image at `extent`, whose checksum has this `seed`. `None`: it is whole, or more than one bit
/// is wrong.
pub(crate) fn correct_image(
    journal: &dyn Storage,
    last: &Super,
    extent: Extent,
    seed: u32,
) -> Result<Option<Corrected>> {
    if extent
        .offset
        .checked_add(extent.len)
        .is_none_or(|end| end > last.journal_size)
    {
        return Ok(None);
    }
    let bytes = read(journal, last, extent.offset, extent.len)?;
    let delta = crc(seed, &bytes) ^ extent.crc;
    let Some(bit) = bit_of_sum(delta, bytes.len()) else {
        return Ok(None);
    };
    let what = "an image of the checkpoint";
    write(journal, extent.offset, &bytes, bit, what)
}

/// Runs `open` until no flipped bit of `journal` makes it fail, and corrects each.
pub(crate) fn with_corrected<T>(
    journal: &dyn Storage,
    last: &Super,
    mut open: impl FnMut() -> Result<T>,
) -> Result<(T, Vec<Corrected>)> {
    let mut corrected = Vec::new();
    loop {
        let error = match open() {
            Ok(opened) => return Ok((opened, corrected)),
            Err(error) => error,
        };
        let place = error
            .place()
            .filter(|_| error.kind() == Kind::Corrupted && corrected.len() < CORRECTED_MAX);
        let Some(offset) = place else {
            return Err(error);
        };
        match correct_at(journal, last, offset) {
            Ok(Some(one)) => corrected.push(one),
            _ => return Err(error),
        }
    }
}

/// Corrects the flipped bit of the image or record at `offset`.
fn correct_at(journal: &dyn Storage, last: &Super, offset: u64) -> Result<Option<Corrected>> {
    let salt = last.geometry.salt;
    if let Some(first) = last.manifest.root {
        let seed = salt ^ ROOT_SEED;
        let mut read = root::Read::from(first);
        // The pieces up to the one that cannot be read.
        let _ = read.read(journal, seed, false);
        if let Some(piece) = read.pieces.iter().find(|piece| piece.offset == offset) {
            return correct_image(journal, last, *piece, seed);
        }
    }
    if let Ok(root) = read_root(journal, last) {
        for (first, image) in &root.leaves {
            if let Some(image) = image.filter(|image| image.extent.offset == offset) {
                return correct_image(journal, last, image.extent, leaf_seed(salt, *first));
            }
        }
        for (group, state) in root.groups.iter().enumerate() {
            if let Some(image) = state.image.filter(|image| image.offset == offset) {
                return correct_image(journal, last, image, list_seed(salt, group as u32));
            }
        }
    }
    correct(journal, last, offset)
}
