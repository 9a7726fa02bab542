//! Reading one record: down the tree without locks, the value copied out of its leaf.
//!
//! A leaf that others keep changing is read under its lock after some tries. A value outside of its leaf is read from its run, under
//! the pin that was there before the leaf was looked at. It changes nothing but which pages are in memory.

use super::Core;
use crate::error::Result;
use crate::node::tree::{NodeStore, ROOT, To};
use crate::node::{Found, Node};
use crate::room;

/// Readings of a leaf that others keep changing, before it is locked.
const TRIES: u32 = 16;
/// Values up to here are copied without an allocation.
const SMALL: usize = 64;

/// What a reader found, copied or known to count.
pub(super) enum Seen {
    Absent,
    /// So many bytes, copied.
    Copied(usize),
    /// A run.
    Outside(u64),
}

/// Where values are copied to.
pub(super) struct Buffer {
    small: [u8; SMALL],
    large: Vec<u8>,
}

impl Buffer {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            small: [0; SMALL],
            large: Vec::new(),
        }
    }

    #[inline(always)]
    fn room(&mut self, len: usize) -> &mut [u8] {
        if len <= SMALL {
            return &mut self.small[..len];
        }
        self.large.resize(len, 0);
        &mut self.large
    }

    #[inline(always)]
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        if len <= SMALL {
            &self.small[..len]
        } else {
            &self.large
        }
    }
}

impl Core {
    /// Levels of the tree.
    pub(super) fn levels(&self) -> u32 {
        let _ = self.tree.way(To::First, 0);
        let root = self.tree.nodes.frame(ROOT);
        root.map_or(0, |frame| u32::from(self.tree.node(frame).level()) + 1)
    }

    /// Lends the value of `key`, or its absence, to `visit`.
    #[inline]
    pub(super) fn read<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let _pin = self.log.pin();
        let mut buffer = Buffer::new();
        match self.see(key, &mut buffer)? {
            Seen::Absent => Ok(visit(None)),
            Seen::Copied(len) => Ok(visit(Some(buffer.bytes(len)))),
            Seen::Outside(word) => {
                let value = self.read_run(word).map_err(|error| error.key(key))?;
                Ok(visit(Some(&value)))
            }
        }
    }

    #[inline(always)]
    fn see(&self, key: &[u8], buffer: &mut Buffer) -> Result<Seen> {
        for _ in 0..TRIES {
            let end = self.tree.way_to_leaf(To::Key(key))?;
            let version = end.frame.latch.begin();
            if !self.tree.is_still(&end) {
                continue;
            }
            let seen = Self::see_in(self.tree.node(end.frame), key, buffer);
            if end.frame.latch.is_still(version) {
                return Ok(seen);
            }
        }
        let held = self.tree.lock_leaf(key)?;
        Ok(Self::see_in(self.tree.node(held.frame), key, buffer))
    }

    /// What there is of `key` in its leaf.
    #[inline(always)]
    pub(super) fn see_in(node: Node<'_>, key: &[u8], buffer: &mut Buffer) -> Seen {
        let (at, is_present) = node.find(key);
        if !is_present {
            return Seen::Absent;
        }
        match node.value(at) {
            Found::Inside(len, offset) => {
                node.copy(offset, buffer.room(len));
                Seen::Copied(len)
            }
            Found::Outside(word) => Seen::Outside(word),
        }
    }

    /// The value of a key in a leaf that is held, copied.
    pub(super) fn value_in(&self, node: Node<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut buffer = Buffer::new();
        match Self::see_in(node, key, &mut buffer) {
            Seen::Absent => Ok(None),
            Seen::Copied(len) => room::copy(buffer.bytes(len)).map(Some),
            Seen::Outside(word) => {
                let value = self.read_run(word).map_err(|error| error.key(key))?;
                Ok(Some(value))
            }
        }
    }
}
