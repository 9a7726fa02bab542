//! Leaves in order: some entries of a leaf, copied as it was at one moment.
//!
//! A leaf's upper fence states where the next one begins, and its lower fence where the one before ends. So no leaf points to
//! another, and what comes and goes meanwhile moves no reader past an entry that stays. A reader that finds a leaf changed too
//! often reads it under its lock. It does not know what values outside mean.

use super::{NodeStore, To, Tree};
use crate::error::Result;
use crate::node::{Found, Key, LEVEL_MAX, Node};
use crate::order::Order;
use crate::room;

/// Readings of a leaf that others keep changing, before it is locked.
pub(super) const TRIES: u32 = 16;

/// Where to look for the next entry.
#[derive(Debug)]
pub enum Begin {
    /// The first of all.
    First,
    /// The first that is not less.
    At(Vec<u8>),
    /// The first that is greater.
    After(Vec<u8>),
}

impl Begin {
    /// The way there.
    pub fn to(&self) -> To<'_> {
        match self {
            Self::First => To::First,
            Self::At(key) | Self::After(key) => To::Key(key),
        }
    }

    /// Whether a place is after this one, as each step of a walk has to be: keys that are out of order would lead it in a circle.
    pub fn is_before(&self, next: &Self, order: Order) -> bool {
        let (own, is_after) = match self {
            Self::First => return true,
            Self::At(key) => (key, false),
            Self::After(key) => (key, true),
        };
        match next {
            Self::First => false,
            Self::At(key) => order.compare(own, key).is_lt(),
            Self::After(key) if is_after => order.compare(own, key).is_lt(),
            Self::After(key) => order.compare(own, key).is_le(),
        }
    }

    fn entry(&self, node: Node<'_>) -> usize {
        match self {
            Self::First => 0,
            Self::At(key) => node.find(key).0,
            Self::After(key) => {
                let (at, is_equal) = node.find(key);
                at + usize::from(is_equal)
            }
        }
    }
}

/// Where a value is that was found in a copied leaf.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Copied after its key: so many bytes.
    Copied(usize),
    /// Outside, where this word states.
    Outside(u64),
}

/// Some entries of a leaf, copied.
#[derive(Debug, Default)]
pub struct LeafCopy {
    bytes: Vec<u8>,
    /// Where each begins, the length of its key, its value.
    entries: Vec<(usize, usize, Place)>,
    key: Key,
    /// Whether it begins with the leaf's first entry.
    is_from_start: bool,
    source: Option<Source>,
}

/// Where a copy was made, and when.
#[derive(Clone, Copy, Debug)]
struct Source {
    number: u32,
    /// The frame's address.
    frame: usize,
    version: u64,
}

impl LeafCopy {
    /// How many entries there are.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether what comes before it is in another leaf.
    pub fn is_from_start(&self) -> bool {
        self.is_from_start
    }

    fn clear(&mut self) {
        self.is_from_start = false;
        self.bytes.clear();
        self.entries.clear();
        self.source = None;
    }

    /// Copies up to `most` entries of a leaf, from a place on. Errors: `Full`.
    pub fn take_from(&mut self, node: Node<'_>, from: &Begin, most: usize) -> Result<Looked> {
        self.clear();
        let at = from.entry(node);
        self.is_from_start = at == 0;
        let end = node.count().min(at.saturating_add(most));
        (at..end).try_for_each(|at| self.take(node, at))?;
        let mut fence = Key::default();
        Ok(if at < end {
            Looked::Records
        } else if node.upper(&mut fence).is_some() {
            Looked::Beyond(fence.bytes().to_vec())
        } else {
            Looked::End
        })
    }

    /// Copies up to `most` entries of a leaf that end with the last one less than a key, or its last. Errors: `Full`.
    pub fn take_before(
        &mut self,
        node: Node<'_>,
        key: Option<&[u8]>,
        most: usize,
    ) -> Result<Looked> {
        self.clear();
        let end = key.map_or_else(|| node.count(), |key| node.find(key).0);
        self.is_from_start = end <= most;
        (end.saturating_sub(most)..end).try_for_each(|at| self.take(node, at))?;
        let mut fence = Key::default();
        Ok(if end > 0 {
            Looked::Records
        } else if node.lower(&mut fence).is_some() {
            Looked::Beyond(fence.bytes().to_vec())
        } else {
            Looked::End
        })
    }

    fn take(&mut self, node: Node<'_>, at: usize) -> Result<()> {
        node.key(at, &mut self.key);
        let begin = self.bytes.len();
        room::more(&mut self.bytes, self.key.bytes().len())?;
        self.bytes.extend_from_slice(self.key.bytes());
        let place = match node.value(at) {
            Found::Outside(word) => Place::Outside(word),
            Found::Inside(len, offset) => {
                let start = self.bytes.len();
                room::more(&mut self.bytes, len)?;
                self.bytes.resize(start + len, 0);
                node.copy(offset, &mut self.bytes[start..]);
                Place::Copied(len)
            }
        };
        room::more(&mut self.entries, 1)?;
        self.entries.push((begin, self.key.bytes().len(), place));
        Ok(())
    }

    /// The key of an entry, its value's place, and the value if it was copied.
    pub fn entry(&self, at: usize) -> Option<(&[u8], Place, &[u8])> {
        let (begin, key_len, place) = self.entries.get(at)?;
        let (key, after) = self.bytes.get(*begin..)?.split_at_checked(*key_len)?;
        let value = match place {
            Place::Copied(len) => after.get(..*len)?,
            Place::Outside(_) => &[],
        };
        Some((key, *place, value))
    }

    /// The key of the last entry.
    pub fn last_key(&self) -> &[u8] {
        let last = self.entries.len().checked_sub(1);
        last.and_then(|at| self.entry(at))
            .map_or(&[], |(key, ..)| key)
    }
}

/// What a look at a leaf gave.
#[derive(Debug)]
pub enum Looked {
    /// There are entries.
    Records,
    /// There are none; the leaf ends at this fence.
    Beyond(Vec<u8>),
    /// There are none, and neither has any leaf beyond.
    End,
}

impl<S: NodeStore> Tree<S> {
    /// Looks at the leaf where the way leads, and calls `read` until it has seen a state of the leaf that counts.
    fn look(
        &self,
        to: To<'_>,
        copy: &mut LeafCopy,
        read: &mut dyn FnMut(Node<'_>, &mut LeafCopy) -> Result<Looked>,
    ) -> Result<Looked> {
        for tries in 0.. {
            let end = self.way_to_leaf(to).map_err(S::error)?;
            // No thread changes it while it is locked; but whether it is the right one is still to be checked.
            let lock = (tries >= TRIES).then(|| end.frame.latch.lock());
            let version = end.frame.latch.begin();
            if !self.is_still(&end) {
                continue;
            }
            let looked = read(self.node(end.frame), copy);
            if end.frame.latch.is_still(version) {
                copy.source = Some(Source {
                    number: end.number,
                    frame: std::ptr::from_ref(end.frame) as usize,
                    version,
                });
                return looked;
            }
            drop(lock);
        }
        unreachable!("the tries have no end")
    }

    /// What `read` sees of the leaf where a way leads, in a state that counts.
    pub fn look_at<R>(&self, to: To<'_>, read: &dyn Fn(Node<'_>) -> R) -> Result<R> {
        let mut seen = None;
        self.look(to, &mut LeafCopy::default(), &mut |node, _| {
            seen = Some(read(node));
            Ok(Looked::Records)
        })?;
        match seen {
            Some(seen) => Ok(seen),
            None => unreachable!("a look reads"),
        }
    }

    /// Whether a leaf is as it was copied, so that a look at it now would give the same. Of a store whose frames keep their versions.
    pub fn is_as_copied(&self, copy: &LeafCopy) -> bool {
        copy.source.is_some_and(|source| {
            self.nodes.frame(source.number).is_some_and(|frame| {
                std::ptr::from_ref(frame) as usize == source.frame
                    && self.nodes.holds(frame, source.number)
                    && frame.latch.is_still(source.version)
            })
        })
    }

    /// Copies up to `most` entries from a place on.
    pub fn take_from(&self, from: &Begin, most: usize, copy: &mut LeafCopy) -> Result<Looked> {
        self.look(from.to(), copy, &mut |node, copy| {
            copy.take_from(node, from, most)
        })
    }

    /// Where the smallest part of the tree ends that has a place and cannot be loaded; `None`: nowhere. Errors: that of the root.
    pub fn end_of_unreadable(
        &self,
        from: &Begin,
    ) -> std::result::Result<Option<Vec<u8>>, S::Fault> {
        let mut level = 1;
        loop {
            let end = match self.way(from.to(), level) {
                Ok(Some(end)) => end,
                Err(fault) if level > u32::from(LEVEL_MAX) => return Err(fault),
                // The root is below, and was loaded meanwhile; or all of it up to here cannot be.
                Ok(None) => return Ok(None),
                Err(_) => {
                    level += 1;
                    continue;
                }
            };
            let Some(version) = end.frame.latch.try_begin() else {
                continue;
            };
            let node = self.node(end.frame);
            let entry = from.to().entry(node);
            let mut fence = Key::default();
            let upper = node.upper_of(entry, &mut fence);
            let upper = upper.map(|()| fence.bytes().to_vec());
            if self.is_still(&end) && end.frame.latch.is_still(version) {
                return Ok(upper);
            }
        }
    }

    /// Copies up to `most` entries that end with the last one less than a key, or of all.
    pub fn take_before(
        &self,
        key: Option<&[u8]>,
        most: usize,
        copy: &mut LeafCopy,
    ) -> Result<Looked> {
        self.look(To::Before(key), copy, &mut |node, copy| {
            copy.take_before(node, key, most)
        })
    }
}
