//! Images of pages, plain or compressed: what is written of a page, and the page that an image holds.
//!
//! A page is compressed when it is written, and decompressed when it is read; in memory it is a node as any other. Compressed it takes
//! as many units as it needs; one that is not a unit shorter then is written as it is. What lies free in the node is written as zeros.
//!
//! Decompression sees bytes whose checksum holds, is bounded by the page, and refuses what does not fill it. Contexts of zstd,
//! 100 KiB each and more, are kept for the next page, as many as there were threads at once. It does not know where images are.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::fmt;

use zstd::bulk::{Compressor, Decompressor};

use super::layout::page_image::{NoPage, Words, decode_head, decode_page, fill_image, give_words};
use super::layout::{HEAD_WORDS, IMAGE_HEAD, PAGE_MAX, PageShape, Place, RunPlace, UNIT};
use crate::explore::Mutex;
use crate::node::{Found, KEY_LEN_MAX, Node};
use crate::order::Order;
use crate::record::compression::Compression;

/// Bytes of a node.
const NODE_MAX: usize = PAGE_MAX - IMAGE_HEAD;
/// Bytes that a node takes when it becomes longer by being compressed, at most: a tenth more, by lz4.
pub(super) const PACKED_MAX: usize = NODE_MAX + NODE_MAX / 8;

/// The word of a list, if a value is one.
pub(super) fn list_of(value: Found) -> Option<u64> {
    match value {
        Found::Outside(word) if RunPlace(word).is_list() => Some(word),
        Found::Outside(_) | Found::Inside(..) => None,
    }
}

/// The words of the lists that a leaf has.
pub(super) fn lists_in(node: Node<'_>, order: Order) -> impl Iterator<Item = u64> {
    let entries = match order {
        Order::Lexical => node.count(),
        _ => 0,
    };
    let stems = (0..entries).filter(move |at| node.key_len(*at) == KEY_LEN_MAX);
    stems.filter_map(move |at| list_of(node.value(at)))
}

/// How many records a leaf has; `None`: it is none, or it has a list.
fn records_in(node: Node<'_>, order: Order) -> Option<u32> {
    let is_counted = node.level() == 0 && lists_in(node, order).next().is_none();
    is_counted.then_some(node.count() as u32)
}

/// See the module's text.
pub(super) struct PageImages {
    shape: PageShape,
    order: Order,
    compressors: Mutex<Vec<Compressor<'static>>>,
    decompressors: Mutex<Vec<Decompressor<'static>>>,
}

impl fmt::Debug for PageImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageImages")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl PageImages {
    /// Of pages of this shape.
    pub(super) fn new(shape: PageShape, order: Order) -> Self {
        Self {
            shape,
            order,
            compressors: Mutex::default(),
            decompressors: Mutex::default(),
        }
    }

    /// Fills `image`, of as many bytes as a page has, with what is to be written of a page, but for its checksum; how many units count.
    /// `packed` is of [`PACKED_MAX`] bytes, which it overwrites.
    pub(super) fn fill(
        &self,
        words: &Words,
        epoch: u32,
        image: &mut [u8],
        packed: &mut [u8],
    ) -> u32 {
        let node = Node::new(words.get(HEAD_WORDS..).unwrap_or_default(), self.order);
        fill_image(words, epoch, records_in(node, self.order), image);
        if self.shape.compression == Compression::None {
            return self.shape.units();
        }
        let (head, bytes) = image.split_at_mut(IMAGE_HEAD);
        if let Some(free) = bytes.get_mut(node.free()) {
            free.fill(0);
        }
        let Some(len) = self.compress(bytes, packed) else {
            return self.shape.units();
        };
        let units = (IMAGE_HEAD + len).div_ceil(UNIT as usize) as u32;
        let (Some(packed), true) = (packed.get(..len), units < self.shape.units()) else {
            return self.shape.units();
        };
        if let Some(at) = head.get_mut(8..12) {
            at.copy_from_slice(&(len as u32).to_le_bytes());
        }
        bytes.fill(0);
        if let Some(to) = bytes.get_mut(..len) {
            to.copy_from_slice(packed);
        }
        units
    }

    /// Compresses; how long it is. `None`: it cannot be done.
    fn compress(&self, node: &[u8], packed: &mut [u8]) -> Option<usize> {
        match self.shape.compression {
            Compression::None => None,
            Compression::Lz4 => lz4_flex::block::compress_into(node, packed).ok(),
            Compression::Zstd => {
                let kept = self.compressors.lock().pop();
                let mut compressor = match kept {
                    Some(kept) => kept,
                    None => Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL).ok()?,
                };
                let len = compressor.compress_to_buffer(node, packed).ok();
                self.compressors.lock().push(compressor);
                len
            }
        }
    }

    /// Verifies an image, of the units that its place states, and gives the words of its page to `put`, in order, with their numbers.
    pub(super) fn decode(
        &self,
        image: &[u8],
        identity: (u32, u32),
        page: u32,
        place: Place,
        put: &mut dyn FnMut(usize, u64),
    ) -> Result<(), NoPage> {
        if image.len() as u64 == self.shape.bytes() {
            return decode_page(image, identity, page, place, put);
        }
        let head = decode_head(image, identity, page, place)?;
        let packed = image.get(IMAGE_HEAD..).unwrap_or_default();
        let packed = packed.get(..head.packed_len as usize);
        let packed = packed.ok_or(NoPage::Content)?;
        let mut node = [0; NODE_MAX];
        let len = self.shape.bytes() as usize - IMAGE_HEAD;
        let node = node.get_mut(..len).ok_or(NoPage::Content)?;
        if self.decompress(packed, node) != Some(len) {
            return Err(NoPage::Content);
        }
        give_words(head, node, put);
        Ok(())
    }

    /// Decompresses; how long it is. `None`: it is damaged, or longer than the node.
    fn decompress(&self, packed: &[u8], node: &mut [u8]) -> Option<usize> {
        match self.shape.compression {
            Compression::None => None,
            Compression::Lz4 => lz4_flex::block::decompress_into(packed, node).ok(),
            Compression::Zstd => {
                let kept = self.decompressors.lock().pop();
                let mut decompressor = match kept {
                    Some(kept) => kept,
                    None => Decompressor::new().ok()?,
                };
                let len = decompressor.decompress_to_buffer(packed, node).ok();
                self.decompressors.lock().push(decompressor);
                len
            }
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is a failed test"
)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::layout::page_image::seal_image;
    use super::*;
    use crate::node::Value;
    use crate::testkit::random::Random;

    const IDENTITY: (u32, u32) = (7, 3);
    const PAGE: u32 = 12;

    /// A page with records that compress by about so many of eight bytes.
    fn page(shape: PageShape, of_eight: usize, random: &mut Random) -> Vec<AtomicU64> {
        let words: Vec<AtomicU64> = (0..shape.words())
            .map(|_| random.below(u64::MAX).into())
            .collect();
        words[0].store(77, Ordering::Relaxed);
        words[1].store(PAGE.into(), Ordering::Relaxed);
        let node = Node::new(&words[HEAD_WORDS..], Order::Lexical);
        node.init(0, None, None);
        for number in 0_u32.. {
            let key = number.to_le_bytes();
            let mut value = random.bytes(100);
            value[..of_eight * 12].fill(7);
            let (at, is_present) = node.find(&key);
            if !node.set(at, is_present, &key, Value::Inside(&value)) {
                break;
            }
        }
        words
    }

    fn records(words: &[AtomicU64]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let node = Node::new(&words[HEAD_WORDS..], Order::Lexical);
        assert!(node.is_sound());
        let mut key = crate::node::Key::default();
        let record = |at| {
            node.key(at, &mut key);
            let crate::node::Found::Inside(len, offset) = node.value(at) else {
                panic!("it stands inside");
            };
            let mut value = vec![0; len];
            node.copy(offset, &mut value);
            (key.bytes().to_vec(), value)
        };
        (0..node.count()).map(record).collect()
    }

    fn decode(images: &PageImages, image: &[u8], place: Place) -> Result<Vec<AtomicU64>, NoPage> {
        let words: Vec<AtomicU64> = (0..images.shape.words()).map(|_| 0.into()).collect();
        let mut put = |at: usize, word| words[at].store(word, Ordering::Relaxed);
        images.decode(image, IDENTITY, PAGE, place, &mut put)?;
        Ok(words)
    }

    fn shape(page_size: u64, compression: Compression) -> PageShape {
        PageShape::new(page_size, compression).unwrap()
    }

    #[test]
    fn a_page_is_what_its_image_states_and_takes_what_it_needs() {
        let mut random = Random::new(5);
        for (page_size, compression) in [
            (4096, Compression::None),
            (8192, Compression::None),
            (16384, Compression::None),
            (8192, Compression::Lz4),
            (16384, Compression::Lz4),
            (8192, Compression::Zstd),
            (16384, Compression::Zstd),
        ] {
            let shape = shape(page_size, compression);
            let images = PageImages::new(shape, Order::Lexical);
            let mut taken = Vec::new();
            for of_eight in 0..=8 {
                let words = page(shape, of_eight, &mut random);
                let mut image = vec![9; page_size as usize];
                let mut packed = vec![0; PACKED_MAX];
                let units = images.fill(&words, IDENTITY.1, &mut image, &mut packed);
                taken.push(units);
                let image = &mut image[..units as usize * UNIT as usize];
                let place = seal_image(image, IDENTITY.0, 1000);
                assert_eq!((place.unit(), place.units()), (1000, units));
                assert_eq!(place.records(), Some(records(&words).len() as u32));
                let read = decode(&images, image, place).unwrap();
                assert_eq!(read[0].load(Ordering::Relaxed), 77);
                assert_eq!(read[1].load(Ordering::Relaxed), PAGE.into());
                assert!(records(&read) == records(&words));
                for _ in 0..50 {
                    let (at, bit) = (random.index(image.len()), random.below(8));
                    image[at] ^= 1 << bit;
                    assert!(decode(&images, image, place).is_err());
                    image[at] ^= 1 << bit;
                }
            }
            let whole = shape.units();
            if compression == Compression::None {
                assert_eq!(taken, [whole; 9]);
            } else {
                assert_eq!((taken[0], taken[8]), (whole, 1), "{taken:?}");
                assert!(taken.is_sorted_by(|a, b| a >= b), "{taken:?}");
            }
        }
    }

    /// With true checksums.
    #[test]
    fn an_image_that_is_no_page_is_refused() {
        let mut random = Random::new(6);
        for compression in [Compression::Lz4, Compression::Zstd] {
            let images = PageImages::new(shape(0, compression), Order::Lexical);
            let plain = PageImages::new(shape(16 << 10, Compression::None), Order::Lexical);
            let refused = |content: &[u8], len: u32| {
                let mut image = vec![0; 2 * UNIT as usize];
                image[4] = 3;
                image[8..12].copy_from_slice(&len.to_le_bytes());
                image[24..28].copy_from_slice(&PAGE.to_le_bytes());
                image[IMAGE_HEAD..][..content.len()].copy_from_slice(content);
                let place = seal_image(&mut image, IDENTITY.0, 9);
                for images in [&images, &plain] {
                    let found = decode(images, &image, place);
                    assert_eq!(found.unwrap_err(), NoPage::Content, "{len} bytes");
                }
            };
            // A node of another length.
            for len in [0, 1, 4064, NODE_MAX - 1, NODE_MAX + 1, 1 << 20] {
                let node = vec![7; len];
                let packed = if compression == Compression::Zstd {
                    zstd::bulk::compress(&node, 0).unwrap()
                } else {
                    lz4_flex::block::compress(&node)
                };
                refused(&packed, packed.len() as u32);
            }
            // None at all, and one that is longer than its image.
            refused(&[], 0);
            refused(&[1; 40], u32::MAX);
            refused(&[1; 40], 2 * UNIT as u32 - IMAGE_HEAD as u32 + 1);
            for _ in 0..2000 {
                let len = 1 + random.index(3000);
                let content = random.bytes(len);
                refused(&content, content.len() as u32);
            }
        }
    }
}
