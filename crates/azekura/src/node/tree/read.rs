//! Reading one entry: down the tree without locks, the value copied out of its leaf.
//!
//! A leaf that others keep changing is read under its lock after some tries. It does not know what stands outside of a leaf: who
//! calls is pinned from before, so that it stays there.

use super::walk::TRIES;
use super::{NodeStore, Stated, Tree};
use crate::node::{Found, Latch, Node};

/// Values up to here are copied without an allocation.
const SMALL: usize = 64;

/// What a reader found, copied or known to count.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// There is none.
    Absent,
    /// So many bytes, copied.
    Copied(usize),
    /// It stands outside, where this word states.
    Outside(u64),
}

/// Where values are copied to.
#[derive(Debug)]
pub struct Buffer {
    small: [u8; SMALL],
    large: Vec<u8>,
}

impl Default for Buffer {
    #[inline(always)]
    fn default() -> Self {
        Self {
            small: [0; SMALL],
            large: Vec::new(),
        }
    }
}

impl Buffer {
    #[inline(always)]
    fn room(&mut self, len: usize) -> &mut [u8] {
        if len <= SMALL {
            return &mut self.small[..len];
        }
        self.large.resize(len, 0);
        &mut self.large
    }

    /// The bytes that were copied last, which are so many.
    #[inline(always)]
    pub fn bytes(&self, len: usize) -> &[u8] {
        if len <= SMALL {
            &self.small[..len]
        } else {
            &self.large
        }
    }
}

impl Seen {
    /// What there is of `key` in a leaf.
    #[inline(always)]
    pub fn in_leaf(node: Node<'_>, key: &[u8], buffer: &mut Buffer) -> Self {
        Self::of_entry(node, node.find(key), buffer)
    }

    /// What there is at a place that a search found.
    #[inline(always)]
    pub fn of_entry(node: Node<'_>, (at, is_present): (usize, bool), buffer: &mut Buffer) -> Self {
        if !is_present {
            return Self::Absent;
        }
        match node.value(at) {
            Found::Inside(len, offset) => {
                node.copy(offset, buffer.room(len));
                Self::Copied(len)
            }
            Found::Outside(word) => Self::Outside(word),
        }
    }
}

impl<S: NodeStore> Tree<S> {
    /// What there is of `key`.
    #[inline(always)]
    pub fn see(&self, key: &[u8], buffer: &mut Buffer) -> std::result::Result<Seen, S::Fault> {
        let load = |number, stated: &Stated<'_>| self.nodes.load(number, stated);
        let begin = |latch: &Latch| Some(latch.begin());
        match self.see_by(key, buffer, &load, begin)? {
            Some(seen) => Ok(seen),
            None => self.see_locked(key, buffer),
        }
    }

    /// As `see`, without a wait for a leaf that another thread has; `load` brings nodes into memory, or ends it. `None`: not without a wait.
    #[inline(always)]
    pub fn see_at_once<F>(
        &self,
        key: &[u8],
        buffer: &mut Buffer,
        load: &impl Fn(u32, &Stated<'_>) -> std::result::Result<(), F>,
    ) -> std::result::Result<Option<Seen>, F> {
        self.see_by(key, buffer, load, Latch::try_begin)
    }

    /// `None`: `begin` gave no version, or others kept changing the leaf.
    #[inline(always)]
    fn see_by<F>(
        &self,
        key: &[u8],
        buffer: &mut Buffer,
        load: &impl Fn(u32, &Stated<'_>) -> std::result::Result<(), F>,
        begin: impl Fn(&Latch) -> Option<u64>,
    ) -> std::result::Result<Option<Seen>, F> {
        for _ in 0..TRIES {
            let Some(end) = self.way_to_leaf_of(key, load)? else {
                continue;
            };
            let Some(version) = begin(&end.frame.latch) else {
                return Ok(None);
            };
            if !self.is_still(&end) {
                continue;
            }
            let seen = Seen::in_leaf(self.node(end.frame), key, buffer);
            if end.frame.latch.is_still(version) {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    #[cold]
    #[inline(never)]
    fn see_locked(&self, key: &[u8], buffer: &mut Buffer) -> std::result::Result<Seen, S::Fault> {
        let held = self.lock_leaf(key)?;
        Ok(Seen::in_leaf(self.node(held.frame), key, buffer))
    }
}
