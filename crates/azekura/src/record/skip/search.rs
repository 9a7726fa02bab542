//! Finding records in the blocks of a sorted file: by key, and by how many come before.
//!
//! A lookup goes down from the root to a leaf, one block of each level; where keys repeat, to the first leaf that may have the key.
//! A place among the records is their number in order: what comes next in another leaf is found by going down to that number, so
//! leaves do not point to one another. An error states which keys it affects.
//!
//! It does not know its callers.

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
        let of_all = |error: Error| error.detail("all records are affected");
        let root = self.block(number).map_err(of_all)?;
        if root.node.level() != self.top.height {
            let error = self.damaged(u64::from(number) * BLOCK, BLOCK, "the root");
            return Err(of_all(error));
        }
        Ok(Some(root))
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
        let Some(found) = self.in_leaf(self.lower_bound(key)?)? else {
            return Ok(None);
        };
        if !self.is_of(&found, key)? {
            return Ok(None);
        }
        let LentRecord { value, .. } = self.content(found.leaf, found.at)?;
        self.checked(found.leaf, value, Some(value))
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
        let at = ordinal.checked_sub(block.ordinal).map(|at| at as usize);
        let Some(at) = at.filter(|at| *at < block.node.count()) else {
            let offset = u64::from(block.number) * BLOCK;
            return Err(lost(end)(self.damaged(offset, BLOCK, "a block")));
        };
        let place = Some(InLeaf { leaf: block, at });
        self.checked(block, &[], place).map_err(lost(end))
    }

    /// How many records have keys less than `key`.
    pub(super) fn lower_bound(&self, key: &[u8]) -> Result<u64> {
        self.lower_bound_or_lost(key).map_err(|lost| lost.error)
    }

    /// As `lower_bound`; an error comes with where the next records are that it does not affect.
    pub(super) fn lower_bound_or_lost(&self, key: &[u8]) -> std::result::Result<u64, LostRange> {
        let is_long = key.len() >= STEM && self.top.order == Order::Lexical;
        let stem = if is_long { &key[..STEM] } else { key };
        if !is_long {
            return self.first_of(stem);
        }
        // Those that begin with the same bytes are in the order of their whole keys.
        let is_reached = |found: &InLeaf<'_>| {
            let mut own = Key::default();
            found.leaf.node.key(found.at, &mut own);
            if own.bytes() != stem {
                return Ok(true);
            }
            let found = self.content(found.leaf, found.at)?.key;
            Ok(found.is_none_or(|found| found >= key))
        };
        let first = match self.first_of(stem) {
            // The first of them are damaged: what is not among these comes later.
            Err(lost) => match self.locate(lost.next) {
                Ok(Some(next)) if matches!(is_reached(&next), Ok(false)) => lost.next,
                _ => return Err(lost),
            },
            Ok(first) => first,
        };
        Ok(self.first_that(first, is_reached))
    }

    /// The first record from number `low` on for which `is` holds, as it does for all that follow; their number if there is none. It
    /// goes twice as far each time, then halves. For a record that cannot be read the next that can counts.
    fn first_that(&self, mut low: u64, is: impl Fn(&InLeaf<'_>) -> Result<bool>) -> u64 {
        let is = |mut ordinal: u64| loop {
            let next = match self.locate(ordinal) {
                Ok(None) => return true,
                Ok(Some(found)) => match is(&found) {
                    Ok(is) => return is,
                    Err(_) => ordinal + 1,
                },
                Err(lost) => lost.next,
            };
            // Ordinals that damage states may not lead on.
            ordinal = next.max(ordinal + 1);
        };
        let mut step = 1;
        while !is(low + step - 1) {
            low += step;
            step *= 2;
        }
        let mut high = low + step - 1;
        while low < high {
            let middle = u64::midpoint(low, high);
            if is(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// How many records stand before the first whose key in its leaf is not less than `key`. Where keys repeat, it looks at a fence
    /// in the leaf before, too.
    fn first_of(&self, key: &[u8]) -> std::result::Result<u64, LostRange> {
        let mut end = self.top.count;
        let lost = |end| move |error| LostRange { error, next: end };
        let Some(mut block) = self.root().map_err(lost(end))? else {
            return Ok(0);
        };
        for level in (0..self.top.height).rev() {
            let at = if self.top.repeats {
                block.node.child_before_first(key)
            } else {
                block.node.child_of(key)
            };
            if at + 1 < block.node.count() {
                end = block.child(at + 1).1;
            }
            block = self.child(block, at, level).map_err(lost(end))?;
        }
        let (at, _) = if self.top.repeats {
            block.node.find_first(key)
        } else {
            block.node.find(key)
        };
        let found = block.ordinal.saturating_add(at as u64);
        self.checked(block, &[], found).map_err(lost(end))
    }

    /// Whether the key of a record is `key`.
    fn is_of(&self, found: &InLeaf<'_>, key: &[u8]) -> Result<bool> {
        let mut own = Key::default();
        let LentRecord { key: long, .. } = self.content(found.leaf, found.at)?;
        let stands = long.unwrap_or_else(|| {
            found.leaf.node.key(found.at, &mut own);
            own.bytes()
        });
        self.checked(found.leaf, long.unwrap_or_default(), stands == key)
    }

    /// How many records have keys not greater than `key`.
    pub(super) fn upper_bound(&self, key: &[u8]) -> Result<u64> {
        let first = self.lower_bound(key)?;
        if !self.top.repeats {
            let found = self.in_leaf(first)?;
            let is_equal = found.is_some_and(|found| self.is_of(&found, key).unwrap_or(false));
            return Ok(first + u64::from(is_equal));
        }
        Ok(self.first_that(first, |found| Ok(!self.is_of(found, key)?)))
    }
}
