//! The image of a page on storage: known by its place, its checksum and its number.
//!
//! A page's image, of as many units as a page has, or, compressed, of fewer:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | CRC32C of all after it, seeded with salt and first unit |
//! | 4 | 4 | epoch of the opening that wrote it |
//! | 8 | 4 | length of the compressed node; 0: it is not compressed |
//! | 12 | 4 | records, as its place states them |
//! | 16 | 8 | position of the last change in that opening: sequence, offset (0: before it) |
//! | 24 | 4, 4 | page number, zero |
//! | 32 | .. | the node (`node`), which fills the page; or it compressed, then zeros |
//!
//! This file turns an image into the words of a frame and back, and finds one whose place is not known. It does not know how a node is
//! compressed (`image`), nor what is in it.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{HEAD_WORDS, IMAGE_HEAD, NOT_STATED, Place, UNIT};
use crate::format::checksum::crc;

/// Where the records of an image stand in its head.
const RECORDS_AT: usize = 12;
const PAGE_SEED: u32 = 0x5041_4745;

/// The words of a frame after its latch, outside of a frame: position of the last change, page number, node.
pub type Words = [AtomicU64];

/// Fills an image with a page that is not compressed, but for its checksum. `records`: how many are to be stated.
pub fn fill_image(words: &Words, epoch: u32, records: Option<u32>, image: &mut [u8]) {
    let mut give = image.as_chunks_mut::<8>().0.iter_mut();
    let mut put = |word: u64| {
        if let Some(bytes) = give.next() {
            *bytes = word.to_le_bytes();
        }
    };
    put(u64::from(epoch) << 32);
    put(u64::from(records.unwrap_or(NOT_STATED).min(NOT_STATED)) << 32);
    for word in words {
        put(word.load(Ordering::Relaxed));
    }
}

/// Sums an image, of whole units, to be written from `unit` on; where it is then.
pub fn seal_image(image: &mut [u8], salt: u32, unit: u64) -> Place {
    let sum = crc(page_seed(salt, unit), image.get(4..).unwrap_or_default());
    if let Some(head) = image.first_chunk_mut::<4>() {
        *head = sum.to_le_bytes();
    }
    let records = image.get(RECORDS_AT..).and_then(<[u8]>::first_chunk);
    let records = records.map_or(NOT_STATED, |bytes| u32::from_le_bytes(*bytes));
    Place::new(unit, (image.len() as u64 / UNIT) as u32, records, sum)
}

/// A page's image, not compressed, to be written at `unit`; where it is then.
pub fn encode_page(
    words: &Words,
    (salt, epoch): (u32, u32),
    records: Option<u32>,
    unit: u64,
    image: &mut [u8],
) -> Place {
    fill_image(words, epoch, records, image);
    seal_image(image, salt, unit)
}

/// Why an image is not a page's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPage {
    /// The checksum does not match.
    Sum,
    /// It is whole, but not the one that was written here last.
    Old,
    /// It is another page's.
    Other(u32),
    /// It is whole, and holds nothing that a page is made of: it has another length, or does not decompress.
    Content,
}

/// What the head of a verified image states.
#[derive(Clone, Copy, Debug)]
pub struct ImageHead {
    /// The first words of a frame.
    pub words: [u64; HEAD_WORDS],
    /// Bytes of the compressed node; 0: it is not compressed.
    pub packed_len: u32,
}

/// An image that was found by looking for one.
#[derive(Clone, Copy, Debug)]
pub struct FoundImage {
    /// Its page.
    pub page: u32,
    /// The opening that wrote it.
    pub epoch: u32,
    /// The position of the page's last change, in that opening.
    pub position: u64,
    /// Where it is.
    pub place: Place,
}

/// The image that begins here, at `unit`, of so many units, if there is a whole one of a page that `is_sought`.
pub fn image_at(
    bytes: &[u8],
    (salt, unit): (u32, u64),
    units: RangeInclusive<u64>,
    is_sought: impl Fn(u32) -> bool,
) -> Option<FoundImage> {
    let head = bytes.get(..IMAGE_HEAD)?.as_chunks::<8>().0;
    let word = |at: usize| head.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let page = u32::try_from(word(3))
        .ok()
        .filter(|page| is_sought(*page))?;
    let sum = word(0) as u32;
    for count in units {
        let image = bytes.get(..(count * UNIT) as usize)?;
        if crc(page_seed(salt, unit), image.get(4..).unwrap_or_default()) == sum {
            let records = (word(1) >> 32) as u32;
            return Some(FoundImage {
                page,
                epoch: (word(0) >> 32) as u32,
                position: word(2),
                place: Place::new(unit, count as u32, records, sum),
            });
        }
    }
    None
}

/// Verifies an image; the position of the last change is 0 if another opening wrote it.
pub fn decode_head(
    image: &[u8],
    (salt, epoch): (u32, u32),
    page: u32,
    place: Place,
) -> Result<ImageHead, NoPage> {
    let words = image.as_chunks::<8>().0;
    let word = |at: usize| words.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let sum = crc(
        page_seed(salt, place.unit()),
        image.get(4..).unwrap_or_default(),
    );
    if word(0) as u32 != sum {
        return Err(NoPage::Sum);
    }
    if !place.has_sum(sum) {
        return Err(NoPage::Old);
    }
    if word(3) as u32 != page {
        return Err(NoPage::Other(word(3) as u32));
    }
    let is_of_now = (word(0) >> 32) as u32 == epoch;
    Ok(ImageHead {
        words: [if is_of_now { word(2) } else { 0 }, word(3)],
        packed_len: word(1) as u32,
    })
}

/// Verifies an image that is not compressed, and gives the words of its page to `put`, in order, with their numbers.
pub fn decode_page(
    image: &[u8],
    identity: (u32, u32),
    page: u32,
    place: Place,
    put: &mut dyn FnMut(usize, u64),
) -> Result<(), NoPage> {
    let head = decode_head(image, identity, page, place)?;
    if head.packed_len != 0 {
        return Err(NoPage::Content);
    }
    give_words(head, image.get(IMAGE_HEAD..).unwrap_or_default(), put);
    Ok(())
}

/// Gives the words of a page to `put`, of which this is the head and the node.
pub fn give_words(head: ImageHead, node: &[u8], put: &mut dyn FnMut(usize, u64)) {
    for (at, word) in head.words.into_iter().enumerate() {
        put(at, word);
    }
    for (at, bytes) in node.as_chunks::<8>().0.iter().enumerate() {
        put(HEAD_WORDS + at, u64::from_le_bytes(*bytes));
    }
}

fn page_seed(salt: u32, unit: u64) -> u32 {
    crc(salt ^ PAGE_SEED, &unit.to_le_bytes())
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a panic is a failed test")]
mod tests {
    use super::super::PageShape;
    use super::*;
    use crate::node::tree::{FRAME, FRAME_WORDS};

    #[test]
    fn a_page_is_known_by_its_place_its_sum_and_its_number() {
        let words = [const { AtomicU64::new(0) }; FRAME_WORDS];
        assert_eq!(PageShape::PLAIN.words(), FRAME_WORDS);
        for (at, word) in words.iter().enumerate() {
            word.store(at as u64 * 3, Ordering::Relaxed);
        }
        words[1].store(9, Ordering::Relaxed);
        let mut image = [0; FRAME as usize];
        let place = encode_page(&words, (5, 2), Some(33), 77, &mut image);
        let read = |image: &[u8], page, place| {
            let mut read = vec![0; FRAME_WORDS];
            decode_page(image, (5, 2), page, place, &mut |at, word| read[at] = word).map(|()| read)
        };
        let expected: Vec<u64> = words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        assert_eq!(read(&image, 9, place), Ok(expected));
        assert_eq!(read(&image, 8, place), Err(NoPage::Other(9)));
        assert_eq!(read(&image, 9, Place(place.0 ^ 1)), Err(NoPage::Old));
        assert_eq!(
            read(&image, 9, Place::new(78, 1, 33, place.0 as u32)),
            Err(NoPage::Sum)
        );
        image[100] ^= 4;
        assert_eq!(read(&image, 9, place), Err(NoPage::Sum));
        assert_eq!((place.unit(), place.offset()), (77, 77 * 4096));
    }

    #[test]
    fn an_image_is_found_where_it_begins_and_is_whole() {
        let words = [const { AtomicU64::new(0) }; FRAME_WORDS];
        words[0].store(800, Ordering::Relaxed);
        words[1].store(9, Ordering::Relaxed);
        for units in [1, 2, 4] {
            let mut bytes = vec![0; units * FRAME as usize];
            fill_image(&words, 2, Some(33), &mut bytes);
            let place = seal_image(&mut bytes, 5, 77);
            // Others come after it.
            bytes.resize(6 * FRAME as usize, 7);
            let at = |bytes: &[u8], seed, page| image_at(bytes, seed, 1..=4, |one| one == page);
            let Some(found) = at(&bytes, (5, 77), 9) else {
                panic!("an image of {units} units is not found");
            };
            assert_eq!((found.page, found.epoch, found.position), (9, 2, 800));
            assert_eq!(found.place, place);
            assert!(at(&bytes, (5, 77), 8).is_none(), "another page is sought");
            assert!(at(&bytes, (5, 78), 9).is_none(), "it was not written here");
            assert!(at(&bytes, (6, 77), 9).is_none(), "it is another file's");
            assert!(at(&bytes[..units * FRAME as usize - 1], (5, 77), 9).is_none());
            bytes[100] ^= 1;
            assert!(at(&bytes, (5, 77), 9).is_none(), "it is damaged");
        }
    }
}
