//! A place among the records of a sorted file, in both directions.
//!
//! It holds the leaf, so the next record is a step within it; another leaf is found by going down to the number of its first
//! record. It lends from the file, and copies at most 510 bytes of a key.
//!
//! It does not know damage beyond the record it is on.

use super::blocks::{Blocks, LentRecord};
use super::search::InLeaf;
use crate::engine::Cursor;
use crate::error::Result;
use crate::node::Key;

/// A cursor over a sorted file. A call that finds no record, or fails, leaves it on none.
pub struct SkipCursor<'f> {
    blocks: &'f Blocks,
    place: Option<InLeaf<'f>>,
    /// The key, if it is not in `content`.
    key: Key,
    content: LentRecord<'f>,
}

impl std::fmt::Debug for SkipCursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SkipCursor")
            .field("index", &self.index())
            .finish_non_exhaustive()
    }
}

impl<'f> SkipCursor<'f> {
    pub(super) fn new(blocks: &'f Blocks) -> Self {
        Self {
            blocks,
            place: None,
            key: Key::default(),
            content: LentRecord {
                key: None,
                value: &[],
            },
        }
    }

    /// How many records come before the one it is on; `None`: it is on none.
    pub fn index(&self) -> Option<u64> {
        let place = self.place.as_ref()?;
        Some(place.leaf.ordinal + place.at as u64)
    }

    /// Key and value of the record it is on.
    #[inline]
    pub fn get(&self) -> Option<(&[u8], &'f [u8])> {
        self.place.as_ref()?;
        let key = self.content.key.unwrap_or_else(|| self.key.bytes());
        Some((key, self.content.value))
    }

    /// Moves to the record before which there are `index` others; `false`: there are not so many. Costs as much as a lookup.
    pub fn seek_index(&mut self, index: u64) -> Result<bool> {
        self.place = None;
        match self.blocks.in_leaf(index)? {
            Some(place) => self.arrive(place),
            None => Ok(false),
        }
    }

    /// Moves to the last record whose key is less than `key`; `false`: there is none.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        self.place = None;
        let index = self.blocks.lower_bound(key)?;
        self.seek_last_of(index)
    }

    /// Moves to the last record whose key is not greater than `key`; `false`: there is none.
    pub fn seek_at_most(&mut self, key: &[u8]) -> Result<bool> {
        self.place = None;
        let index = self.blocks.upper_bound(key)?;
        self.seek_last_of(index)
    }

    /// Moves to the first record whose key is greater than `key`; `false`: there is none.
    pub fn seek_after(&mut self, key: &[u8]) -> Result<bool> {
        self.place = None;
        let index = self.blocks.upper_bound(key)?;
        self.seek_index(index)
    }

    /// Moves to the last of the first so many records.
    fn seek_last_of(&mut self, count: u64) -> Result<bool> {
        self.place = None;
        match count.checked_sub(1) {
            Some(index) => self.seek_index(index),
            None => Ok(false),
        }
    }

    /// Moves to the next record, or to none.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<()> {
        self.next().map(drop)
    }

    #[inline]
    fn arrive(&mut self, place: InLeaf<'f>) -> Result<bool> {
        self.place = None;
        let blocks = self.blocks;
        let content = blocks.content(place.leaf, place.at)?;
        if content.key.is_none() {
            place.leaf.node.key(place.at, &mut self.key);
        }
        self.content = blocks.checked(place.leaf, content.value, content)?;
        self.place = Some(place);
        Ok(true)
    }
}

impl Cursor for SkipCursor<'_> {
    fn first(&mut self) -> Result<bool> {
        self.seek_index(0)
    }

    fn last(&mut self) -> Result<bool> {
        self.seek_last_of(self.blocks.top.count)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.place = None;
        let index = self.blocks.lower_bound(key)?;
        self.seek_index(index)
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        match self.place.take() {
            None => self.first(),
            Some(InLeaf { leaf, at }) if at + 1 < leaf.node.count() => {
                self.arrive(InLeaf { leaf, at: at + 1 })
            }
            Some(InLeaf { leaf, at }) => self.seek_index(leaf.ordinal + at as u64 + 1),
        }
    }

    fn previous(&mut self) -> Result<bool> {
        match self.place.take() {
            None => self.last(),
            Some(InLeaf { leaf, at: 0 }) => self.seek_last_of(leaf.ordinal),
            Some(InLeaf { leaf, at }) => self.arrive(InLeaf { leaf, at: at - 1 }),
        }
    }

    fn record(&self) -> Option<(&[u8], &[u8])> {
        self.get()
    }
}
