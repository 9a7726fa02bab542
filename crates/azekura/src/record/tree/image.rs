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

use super::layout::{
    HEAD_WORDS, IMAGE_HEAD, NoPage, PAGE_MAX, PageShape, Place, UNIT, Words, decode_head,
    decode_page, fill_image, give_words,
};
use crate::explore::Mutex;
use crate::node::Node;
use crate::order::Order;
use crate::record::compression::Compression;

/// Bytes of a node.
const NODE_MAX: usize = PAGE_MAX - IMAGE_HEAD;
/// Bytes that a node takes when it becomes longer by being compressed, at most: a tenth more, by lz4.
const PACKED_MAX: usize = NODE_MAX + NODE_MAX / 8;

/// See the module's text.
pub(super) struct Images {
    shape: PageShape,
    order: Order,
    compressors: Mutex<Vec<Compressor<'static>>>,
    decompressors: Mutex<Vec<Decompressor<'static>>>,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl Images {
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
    pub(super) fn fill(&self, words: &Words, epoch: u32, image: &mut [u8]) -> u32 {
        fill_image(words, epoch, image);
        if self.shape.compression == Compression::None {
            return self.shape.units();
        }
        let node = Node::new(words.get(HEAD_WORDS..).unwrap_or_default(), self.order);
        let (head, bytes) = image.split_at_mut(IMAGE_HEAD);
        if let Some(free) = bytes.get_mut(node.free()) {
            free.fill(0);
        }
        let mut packed = [0; PACKED_MAX];
        let Some(len) = self.pack(bytes, &mut packed) else {
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
    fn pack(&self, node: &[u8], packed: &mut [u8]) -> Option<usize> {
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
        if self.unpack(packed, node) != Some(len) {
            return Err(NoPage::Content);
        }
        give_words(head, node, put);
        Ok(())
    }

    /// Decompresses; how long it is. `None`: it is damaged, or longer than the node.
    fn unpack(&self, packed: &[u8], node: &mut [u8]) -> Option<usize> {
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
