//! The page table: a word for each page, which states where it is.
//!
//! | word | the page is |
//! |---|---|
//! | 0 | of no use, or its chunk was not read yet |
//! | cold: the upper bit is set | on storage, at a place of 63 bits |
//! | hot | in a frame, and was looked at lately |
//! | cool | in a frame |
//!
//! A second word states what waits for the page (`change_buffer`), and is no part of the file. A hit loads one word, and stores nothing where it
//! is hot. Words are read chunk by chunk when they are first needed, so an open does not depend on the number of pages. It does not know what is
//! in a page.

#![expect(unsafe_code, reason = "words in raw memory")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{CHUNK, Place, chunk_seed};
use crate::error::{Error, Kind, Result};
use crate::explore::{self, Mutex};
use crate::io::{Map, Storage};
use crate::log::manifest::{Extent, read_extent, remedy};

/// Pages that have words.
const PAGES: usize = u32::MAX as usize;
const TAG: u32 = 61;
const COLD: u64 = 1 << 63;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// See the module's text.
    Empty,
    /// On storage.
    Cold(Place),
    /// In this frame.
    Hot(u32),
    /// In this frame; not looked at lately.
    Cool(u32),
}

impl Location {
    #[inline(always)]
    fn of(word: u64) -> Self {
        match word >> TAG {
            0..2 => Self::Empty,
            2 => Self::Hot(word as u32),
            3 => Self::Cool(word as u32),
            _ => Self::Cold(Place(word & !COLD)),
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Cold(place) => COLD | place.0,
            Self::Hot(frame) => 2 << TAG | u64::from(frame),
            Self::Cool(frame) => 3 << TAG | u64::from(frame),
        }
    }
}

/// A chunk of the table.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Where the last checkpoint has it.
    extent: Extent,
    is_loaded: bool,
    /// Whether it is not there as it is.
    is_dirty: bool,
}

/// The places that a chunk of this number states, where storage has it; `None`: an impossible one. `Corrupted` with the offset; `Io`.
pub(super) fn read_chunk(
    storage: &dyn Storage,
    salt: u32,
    (number, extent): (usize, Extent),
    units_max: u32,
) -> Result<Vec<Option<Place>>> {
    let seed = chunk_seed(salt, number);
    let bytes = read_extent(storage, extent, seed, "a chunk of the page table")?;
    let place = |bytes: &[u8; 8]| Place::decode(u64::from_le_bytes(*bytes), units_max);
    Ok(bytes.as_chunks::<8>().0.iter().map(place).collect())
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct PageTable {
    words: Arc<Map>,
    waiting: Arc<Map>,
    chunks: Mutex<Vec<Chunk>>,
    /// Units of a page, at most.
    units_max: u32,
}

impl PageTable {
    /// The table of a checkpoint that has these chunks, of pages of so many units at most. `Io` if the system refuses the addresses.
    pub(super) fn new(chunks: &[Extent], units_max: u32) -> Result<Self> {
        let chunk = |extent: &Extent| Chunk {
            extent: *extent,
            is_loaded: extent.len == 0,
            is_dirty: false,
        };
        Ok(Self {
            words: Map::anonymous((PAGES as u64 + 1) * 8, None)?,
            waiting: Map::anonymous((PAGES as u64 + 1) * 8, None)?,
            chunks: Mutex::new(chunks.iter().map(chunk).collect()),
            units_max,
        })
    }

    #[inline(always)]
    fn word(&self, page: u32) -> &AtomicU64 {
        // SAFETY: there are words for all numbers of 32 bits (`new`), at a page's beginning, in a map that lives as long.
        unsafe { self.words.word_within(u64::from(page) * 8) }
    }

    /// What waits for a page.
    #[inline(always)]
    pub(super) fn waiting(&self, page: u32) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.waiting.word_within(u64::from(page) * 8) }
    }

    /// Where a page is.
    #[inline(always)]
    pub(super) fn at(&self, page: u32) -> Location {
        explore::yield_point();
        Location::of(self.word(page).load(Ordering::Acquire))
    }

    /// The frame of a page, which is hot from now on.
    #[inline(always)]
    pub(super) fn frame(&self, page: u32) -> Option<u32> {
        explore::yield_point();
        let word = self.word(page).load(Ordering::Acquire);
        match word >> TAG {
            2 => Some(word as u32),
            3 => {
                let hot = Location::Hot(word as u32).word();
                // Where another thread was faster, it is hot, or will be looked for again.
                let _ = self.word(page).compare_exchange(
                    word,
                    hot,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                Some(word as u32)
            }
            _ => None,
        }
    }

    /// Whether the page was `before` and is `after` now.
    pub(super) fn exchange(&self, page: u32, before: Location, after: Location) -> bool {
        explore::yield_point();
        let exchanged = self.word(page).compare_exchange(
            before.word(),
            after.word(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        exchanged.is_ok()
    }

    /// The page is there, whatever it was.
    pub(super) fn set(&self, page: u32, at: Location) {
        explore::yield_point();
        self.word(page).store(at.word(), Ordering::Release);
    }

    /// Reads the chunk of a page, if that was not done; whether it was to be done. What it finds free is given to `free`: numbers below
    /// `pages`. `Corrupted` with the offset; `Io`.
    pub(super) fn load(
        &self,
        page: u32,
        pages: u32,
        (storage, salt): (&dyn Storage, u32),
        free: &mut dyn FnMut(u32),
    ) -> Result<bool> {
        let number = page as usize / CHUNK;
        let mut chunks = self.chunks.lock();
        let Some(chunk) = chunks.get_mut(number) else {
            return Ok(false);
        };
        if chunk.is_loaded {
            return Ok(false);
        }
        let places = read_chunk(storage, salt, (number, chunk.extent), self.units_max)?;
        let places: Option<Vec<Place>> = places.into_iter().collect();
        // All or none: a page that came into memory must not be set again.
        let places = places.ok_or_else(|| {
            Error::new(
                Kind::Corrupted,
                "a chunk of the page table holds impossible places",
            )
            .at(storage.path())
            .offset(chunk.extent.offset)
            .remedy(remedy(storage))
        })?;
        for (at, place) in places.into_iter().enumerate() {
            let page = (number * CHUNK + at) as u32;
            if !place.is_none() {
                self.set(page, Location::Cold(place));
            } else if page < pages {
                free(page);
            }
        }
        chunk.is_loaded = true;
        Ok(true)
    }

    /// A chunk that cannot be read has these pages.
    pub(super) fn restore(&self, number: usize, places: &[(u32, Place)]) {
        let mut chunks = self.chunks.lock();
        for (page, place) in places {
            self.set(*page, Location::Cold(*place));
        }
        if let Some(chunk) = chunks.get_mut(number) {
            chunk.is_loaded = true;
        }
    }

    /// The chunk of a page is not on storage as it is.
    pub(super) fn mark_dirty(&self, page: u32) {
        let number = page as usize / CHUNK;
        let mut chunks = self.chunks.lock();
        if chunks.len() <= number {
            chunks.resize(
                number + 1,
                Chunk {
                    is_loaded: true,
                    ..Chunk::default()
                },
            );
        }
        chunks[number].is_dirty = true;
    }

    /// The chunks that are not on storage as they are.
    pub(super) fn dirty(&self) -> Vec<usize> {
        let chunks = self.chunks.lock();
        let dirty = chunks
            .iter()
            .enumerate()
            .filter(|(_, chunk)| chunk.is_dirty);
        dirty.map(|(number, _)| number).collect()
    }

    /// How many chunks there are.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.lock().len()
    }

    /// A chunk is about to be written: what changes in it from now on makes it dirty again.
    pub(super) fn begin_write(&self, number: usize) {
        if let Some(chunk) = self.chunks.lock().get_mut(number) {
            chunk.is_dirty = false;
        }
    }

    /// Where all chunks are.
    pub(super) fn extents(&self) -> Vec<Extent> {
        self.chunks
            .lock()
            .iter()
            .map(|chunk| chunk.extent)
            .collect()
    }

    /// A durable checkpoint has the chunks here.
    pub(super) fn set_extents(&self, extents: &[Extent]) {
        for (chunk, extent) in self.chunks.lock().iter_mut().zip(extents) {
            chunk.extent = *extent;
        }
    }

    /// A checkpoint that wrote these chunks was given up.
    pub(super) fn mark_chunks_dirty(&self, numbers: &[usize]) {
        let mut chunks = self.chunks.lock();
        for number in numbers {
            if let Some(chunk) = chunks.get_mut(*number) {
                chunk.is_dirty = true;
            }
        }
    }
}
