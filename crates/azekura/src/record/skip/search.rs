//! Finding records in the blocks of a sorted file: by key, and by how many come before.
//!
//! A lookup goes down from the root to a leaf, one block of each level. Where keys repeat it goes to the first leaf that may have
//! the key. A place among the records is their number in order: what comes next in another leaf is found by going down to that
//! number, so leaves do not point to one another. An error states which keys it affects.
//!
//! It does not know who asks.

use super::blocks::{Blocks, LentRecord, VerifiedBlock};
use super::layout::{BLOCK, STEM};
use crate::error::{Error, Result, quote};
use crate::node::Key;
use crate::order::Order;

/// A place among the entries of a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct InLeaf<'f> {
    pub(super) leaf: VerifiedBlock<'f>,
    pub(super) at: usize,
}

/// Records that cannot be read.
pub(super) struct LostRange {
    pub(super) error: Error,
    /// How many records come before the next that may be read.
    pub(super) next: u64,
}

impl Blocks {
    /// The block at the root, if there are records.
    pub(super) fn root(&self) -> Result<Option<VerifiedBlock<'_>>> {
        let Some(number) = self.top.root else {
            return Ok(None);
        };
        let root = self.block(number);
        root.map(Some)
            .map_err(|error| error.detail("all records are affected"))
    }

    /// The child of an entry. An error states which keys are affected.
    #[inline(always)]
    pub(super) fn child<'f>(
        &'f self,
        parent: VerifiedBlock<'f>,
        at: usize,
        level: u8,
    ) -> Result<VerifiedBlock<'f>> {
        let number = parent.node.child(at);
        match self.block(number) {
            Ok(block) if block.node.level() == level => Ok(block),
            Ok(_) => {
                let offset = u64::from(number) * BLOCK;
                let error = self.damaged(offset, BLOCK, "a block");
                Err(Self::of_range(error, parent, at))
            }
            Err(error) => Err(Self::of_range(error, parent, at)),
        }
    }

    /// Adds to an error which keys it affects: those of an entry.
    #[cold]
    fn of_range(error: Error, parent: VerifiedBlock<'_>, at: usize) -> Error {
        let mut key = Key::default();
        let from = (at > 0).then(|| {
            parent.node.key(at, &mut key);
            quote(key.bytes())
        });
        let to = if at + 1 < parent.node.count() {
            parent.node.key(at + 1, &mut key);
            Some(quote(key.bytes()))
        } else {
            parent.node.upper(&mut key).map(|()| quote(key.bytes()))
        };
        error.detail(match (from, to) {
            (Some(from), Some(to)) => format!("affects keys from {from} to {to}"),
            (Some(from), None) => format!("affects keys from {from} on"),
            (None, Some(to)) => format!("affects keys up to {to}"),
            (None, None) => "affects all keys".to_owned(),
        })
    }

    /// The leaf where `key` is, if it is in the file and keys do not repeat.
    #[inline(always)]
    pub(super) fn leaf_of(&self, key: &[u8]) -> Result<Option<VerifiedBlock<'_>>> {
        let Some(mut block) = self.root()? else {
            return Ok(None);
        };
        for level in (0..self.top.height).rev() {
            block = self.child(block, block.node.child_of(key), level)?;
        }
        Ok(Some(block))
    }

    #[inline(always)]
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        if self.top.repeats || key.len() >= STEM {
            return self.find_first(key);
        }
        let Some(leaf) = self.leaf_of(key)? else {
            return Ok(None);
        };
        self.find_in(leaf, key)
    }

    #[inline(always)]
    pub(super) fn find_in<'f>(
        &'f self,
        leaf: VerifiedBlock<'f>,
        key: &[u8],
    ) -> Result<Option<&'f [u8]>> {
        let (at, is_present) = leaf.node.find(key);
        if !is_present {
            return self.checked(leaf, &[], None);
        }
        let LentRecord { value, .. } = self.content(leaf, at)?;
        self.checked(leaf, value, Some(value))
    }

    #[cold]
    fn find_first(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        let first = self.lower_bound(key)?;
        if !self.is_at(first, key)? {
            return Ok(None);
        }
        let Some(InLeaf { leaf, at }) = self.in_leaf(first)? else {
            return Ok(None);
        };
        let LentRecord { value, .. } = self.content(leaf, at)?;
        self.checked(leaf, value, Some(value))
    }

    /// The leaf of the record before which there are so many others, and its place there.
    pub(super) fn in_leaf(&self, ordinal: u64) -> Result<Option<InLeaf<'_>>> {
        self.locate(ordinal).map_err(|lost| lost.error)
    }

    /// As `in_leaf`; an error comes with where the next records are that it does not affect.
    pub(super) fn locate(
        &self,
        ordinal: u64,
    ) -> std::result::Result<Option<InLeaf<'_>>, LostRange> {
        let count = self.top.count;
        if ordinal >= count {
            return Ok(None);
        }
        let mut end = count;
        let lost = |end| move |error| LostRange { error, next: end };
        let Some(mut block) = self.root().map_err(lost(end))? else {
            return Ok(None);
        };
        for level in (0..self.top.height).rev() {
            let children = block.node.count();
            let (mut low, mut high) = (1, children.max(1));
            while low < high {
                let middle = usize::midpoint(low, high);
                if block.child(middle).1 <= ordinal {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            if low < children {
                end = block.child(low).1;
            }
            block = self.child(block, low - 1, level).map_err(lost(end))?;
        }
        let at = ordinal.saturating_sub(block.ordinal) as usize;
        if at >= block.node.count() {
            let offset = u64::from(block.number) * BLOCK;
            return Err(lost(end)(self.damaged(offset, BLOCK, "a block")));
        }
        let place = Some(InLeaf { leaf: block, at });
        self.checked(block, &[], place).map_err(lost(end))
    }

    /// How many records have keys less than `key`.
    pub(super) fn lower_bound(&self, key: &[u8]) -> Result<u64> {
        let is_long = key.len() >= STEM && self.top.order == Order::Lexical;
        let stem = if is_long { &key[..STEM] } else { key };
        let first = self.first_of(stem)?;
        if !is_long {
            return Ok(first);
        }
        // Those that begin with the same bytes are in the order of their whole keys.
        first_that(first, |ordinal| {
            let Some(InLeaf { leaf, at }) = self.in_leaf(ordinal)? else {
                return Ok(true);
            };
            let mut own = Key::default();
            leaf.node.key(at, &mut own);
            if own.bytes() != stem {
                return Ok(true);
            }
            let found = self.content(leaf, at)?.key;
            Ok(found.is_none_or(|found| found >= key))
        })
    }

    /// How many records stand before the first whose key in its leaf is not less than `key`.
    fn first_of(&self, key: &[u8]) -> Result<u64> {
        let Some(mut block) = self.root()? else {
            return Ok(0);
        };
        let repeats = self.top.repeats;
        for level in (0..self.top.height).rev() {
            let at = if repeats {
                let after = block.node.child_before(Some(key)) + 1;
                first_alike(block, after, key).saturating_sub(1)
            } else {
                block.node.child_of(key)
            };
            block = self.child(block, at, level)?;
        }
        let (mut at, is_equal) = block.node.find(key);
        if repeats && is_equal {
            at = first_alike(block, at, key);
        }
        self.checked(block, &[], block.ordinal + at as u64)
    }

    /// Whether the key of a record, before which there are so many others, is `key`.
    fn is_at(&self, ordinal: u64, key: &[u8]) -> Result<bool> {
        let Some(InLeaf { leaf, at }) = self.in_leaf(ordinal)? else {
            return Ok(false);
        };
        let mut own = Key::default();
        let LentRecord { key: long, .. } = self.content(leaf, at)?;
        let found = long.unwrap_or_else(|| {
            leaf.node.key(at, &mut own);
            own.bytes()
        });
        Ok(found == key)
    }

    /// How many records have keys not greater than `key`.
    pub(super) fn upper_bound(&self, key: &[u8]) -> Result<u64> {
        let first = self.lower_bound(key)?;
        if !self.top.repeats {
            return Ok(first + u64::from(self.is_at(first, key)?));
        }
        first_that(first, |ordinal| Ok(!self.is_at(ordinal, key)?))
    }
}

/// The first number from `low` on for which `is` holds, as it does for all that follow. It goes twice as far each time, then halves.
fn first_that(mut low: u64, is: impl Fn(u64) -> Result<bool>) -> Result<u64> {
    let mut step = 1;
    while !is(low + step - 1)? {
        low += step;
        step *= 2;
    }
    let mut high = low + step - 1;
    while low < high {
        let middle = u64::midpoint(low, high);
        if is(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

/// The first of the entries before `at` whose keys are `key`, if there are some; else `at`.
fn first_alike(block: VerifiedBlock<'_>, mut at: usize, key: &[u8]) -> usize {
    let mut own = Key::default();
    while at > 0 {
        block.node.key(at - 1, &mut own);
        if own.bytes() != key {
            break;
        }
        at -= 1;
    }
    at
}
