//! What a repair finds besides the ways from the root: pages of the table whose place is lost, and leaves that no page leads to.
//!
//! | damaged | what is done | what it costs |
//! |---|---|---|
//! | a chunk of the page table | each of its pages is where its newest image stands, of those that are not after the checkpoint | nothing if that image is whole; else an older one counts, if there is any |
//! | an inner page, the root among them | each leaf of the table is read whose keys no way leads to | nothing |
//! | a leaf | | its records, but for what the journal has |
//!
//! An image states its page, its place and the position of its last change, under a checksum. The table of a checkpoint names exactly the pages
//! of that moment, so of a leaf that it names only what the journal changed since is missing; the journal is done again for these
//! records afterwards ([`Orphans`]). It does not decide what is a loss: who walks the tree does.

use std::collections::{BTreeMap, HashMap};

use super::layout::page_image::image_at;
use super::layout::{
    CHUNK, CLEAR, HEAD_WORDS, PUT, Place, REMOVE, REMOVE_RANGE, UNIT, decode_bounds,
};
use super::table::Location;
use super::walk::{Beginning, show_copied};
use super::{Compression, Core, is_damage};
use crate::error::Result;
use crate::format::frame::FrameKind;
use crate::log::LogPosition;
use crate::node::tree::{Begin, LeafCopy, To};
use crate::node::{Key, Node};
use crate::order::{Order, is_from, is_up_to};

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// Of pages: the opening and the position of an image's last change, and where it is.
type Images = HashMap<u32, ((u32, u64), Place)>;

/// Called with a key and its value, or why that cannot be read.
pub(super) type Show<'s> = dyn FnMut(&[u8], Result<&[u8]>) -> Result<()> + 's;

impl Core {
    /// Finds the pages of chunks that cannot be read by their images, of those from before the `checkpoint`; `lose` is called for each such
    /// chunk. Reads the whole file if there is one. Errors: `Io`, `Full`.
    pub(super) fn find_lost_chunks(
        &self,
        chunks: usize,
        checkpoint: LogPosition,
        lose: &mut dyn FnMut(String),
    ) -> Result<()> {
        let pages = &self.tree.nodes;
        let mut lost = Vec::new();
        for number in 0..chunks {
            match pages.load_chunk((number * CHUNK) as u32) {
                Err(error) if is_damage(&error) => {
                    let what = error.without_remedy();
                    lose(format!(
                        "{what}; its pages are looked for by their images, of which one may be older than the one that was written last"
                    ));
                    lost.push(number);
                }
                done => drop(done?),
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        // As images state it: by opening, and in that.
        let sequence = u64::from(checkpoint.sequence as u32) << 32;
        let opening = (checkpoint.sequence >> 32) as u32;
        let end = (opening, (sequence | u64::from(checkpoint.offset)) & !7);
        let found = self.newest_images(&lost, end)?;
        for number in lost {
            let of_chunk = found
                .iter()
                .filter(|(page, _)| **page as usize / CHUNK == number);
            let places: Vec<(u32, Place)> =
                of_chunk.map(|(page, (_, place))| (*page, *place)).collect();
            pages.table.restore(number, &places);
        }
        Ok(())
    }

    /// Of each page of these chunks the newest image from before `end`, by epoch and position, and its place.
    fn newest_images(&self, chunks: &[usize], end: (u32, u64)) -> Result<Images> {
        let pages = &self.tree.nodes;
        let storage = self.log.storage();
        let salt = self.log.geometry().salt;
        let page_units = u64::from(pages.shape.units());
        let least = match pages.shape.compression {
            Compression::None => page_units,
            _ => 1,
        };
        let size = storage.size()?;
        let mut found = Images::new();
        // A piece, and as much as a page may go beyond it.
        let mut bytes = vec![0; (PIECE + page_units * UNIT) as usize];
        for first in (0..size).step_by(PIECE as usize) {
            let len = (size - first).min(bytes.len() as u64) as usize;
            let piece = &mut bytes[..len];
            storage.read_at(first, piece)?;
            for at in (0..len.min(PIECE as usize)).step_by(UNIT as usize) {
                let unit = (first + at as u64) / UNIT;
                let here = &piece[at..];
                let is_lost = |page: u32| chunks.contains(&(page as usize / CHUNK));
                let Some(image) = image_at(here, (salt, unit), least..=page_units, is_lost) else {
                    continue;
                };
                let written = (image.epoch, image.position);
                if written >= end {
                    continue;
                }
                let newest = found.entry(image.page).or_insert((written, image.place));
                if newest.0 < written {
                    *newest = (written, image.place);
                }
            }
        }
        Ok(found)
    }

    /// Shows the records of all leaves of the table that no way leads to; how many such leaves there are. Errors: those of `show`; `Io`.
    pub(super) fn show_unreached(&self, show: &mut Show<'_>) -> Result<u64> {
        let pages = &self.tree.nodes;
        let given_out = pages.space.room().pages();
        let words = pages.blank()?;
        let mut leaves = 0;
        for page in 0..given_out {
            let Location::Cold(place) = pages.table.at(page) else {
                continue;
            };
            match pages.read_sound_if(page, place, (&words, true)) {
                Err(error) if is_damage(&error) => continue,
                read => drop(read?),
            }
            let node = Node::new(&words[HEAD_WORDS..], self.tree.order);
            if node.level() != 0 {
                continue;
            }
            let mut lower = Key::default();
            let to = match node.lower(&mut lower) {
                Some(()) => To::Key(lower.bytes()),
                None => To::First,
            };
            let _pin = self.log.pin();
            match self.tree.way(to, 0) {
                Err(error) if is_damage(&error) => {}
                reached => {
                    reached?;
                    continue;
                }
            }
            leaves += 1;
            let mut copy = LeafCopy::default();
            copy.take_from(node, &Begin::First, usize::MAX)?;
            let _ = show_copied(self, &copy, &Beginning::first(), &mut |key, value| {
                show(key, value)?;
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
        }
        Ok(leaves)
    }
}

/// What the journal states of records whose leaf cannot be reached.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Values that were put last; `None`: it was removed.
    pub(super) records: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Ranges of keys that were removed, as frames state them.
    ranges: Vec<Vec<u8>>,
    /// Whether everything was removed.
    is_cleared: bool,
}

impl Orphans {
    /// A change of the journal, which was done again, or which damage of its leaf keeps from that.
    pub(super) fn note(
        &mut self,
        (kind, key, value): (FrameKind, &[u8], &[u8]),
        is_lost: bool,
        order: Order,
    ) {
        match kind {
            PUT if is_lost => drop(self.records.insert(key.to_vec(), Some(value.to_vec()))),
            REMOVE if is_lost => drop(self.records.insert(key.to_vec(), None)),
            PUT | REMOVE => drop(self.records.remove(key)),
            CLEAR => {
                self.records.clear();
                self.is_cleared = true;
            }
            REMOVE_RANGE => {
                self.records.retain(|key, _| !is_within(value, key, order));
                self.ranges.push(value.to_vec());
            }
            _ => {}
        }
    }

    /// Whether the journal removed what a leaf that was not reached has of a key.
    pub(super) fn removed(&self, key: &[u8], order: Order) -> bool {
        let mut ranges = self.ranges.iter();
        self.is_cleared || ranges.any(|bounds| is_within(bounds, key, order))
    }
}

/// Whether a key is in the range that a frame of the journal states.
fn is_within(bounds: &[u8], key: &[u8], order: Order) -> bool {
    decode_bounds(bounds)
        .is_some_and(|keys| is_from(keys, order, key) && is_up_to(keys, order, key))
}
