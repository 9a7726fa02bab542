//! The bytes of a sorted file in memory, verified.
//!
//! The file is mapped and shared between processes. A block, or an overflow, is verified when a process first touches it: one bit of
//! each 512 bytes of the file states that. So a lookup computes no checksum afterwards. A file that has a name is never written:
//! what was verified stays as it is, unless the device fails to give a page again, which is an error and not an answer; but that a
//! reader who keeps what it is lent may see zeros there then.
//!
//! It does not know in what order records are.

#![expect(unsafe_code, reason = "slices of mapped memory")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{
    BLOCK, HEAD, NODE_WORDS, OVERFLOW_HEAD, OverflowHead, PIECE, Super, child_ordinal, ordinal_of,
    verified_ordinal,
};
use crate::damage::Damage;
use crate::error::{Error, Kind, Result, sizes};
use crate::format::superblock;
use crate::io::mmap::prefetch;
use crate::io::{Map, Storage};
use crate::node::{Found, Key, Node};
use crate::room;

/// A block that was verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct VerifiedBlock<'f> {
    pub(super) number: u32,
    /// How many records come before the first in it, or below it.
    pub(super) ordinal: u64,
    pub(super) node: Node<'f>,
    /// Of the node.
    bytes: &'f [u8],
}

impl VerifiedBlock<'_> {
    /// The number of the child of an entry, and how many records come before it.
    pub(super) fn child(self, at: usize) -> (u32, u64) {
        let Found::Inside(_, offset) = self.node.value(at) else {
            return (0, 0);
        };
        let mut ordinal = [0; 6];
        self.node.copy(offset + 4, &mut ordinal);
        (self.node.child(at), child_ordinal(ordinal))
    }

    /// Prefetches what a lookup of a key reads first.
    #[inline(always)]
    pub(super) fn prefetch(self) {
        let count = self.node.count();
        for word in [0, 8, count / 2, count] {
            if let Some(byte) = self.bytes.get(8 * word) {
                prefetch(byte);
            }
        }
    }
}

/// A record of a leaf, lent from the file. Its key is in the leaf, if it is not here.
#[derive(Clone, Copy, Debug)]
pub(super) struct LentRecord<'f> {
    pub(super) key: Option<&'f [u8]>,
    pub(super) value: &'f [u8],
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) storage: Arc<dyn Storage>,
    map: Arc<Map>,
    pub(super) top: Super,
    /// A bit of each piece: what begins there was verified. Relaxed: to verify twice costs time only.
    verified: Vec<AtomicU64>,
}

impl Blocks {
    /// `Mismatch` for a file that is none, `Corrupted` for one that is cut off, `Io`.
    pub(super) fn open(storage: Arc<dyn Storage>) -> Result<Self> {
        let top = Super::read(storage.as_ref())?;
        let there = storage.size()?;
        if there < top.size {
            let (found, expected) = sizes(there, top.size);
            return Err(Error::new(Kind::Corrupted, "the file is cut off")
                .at(storage.path())
                .found(found, expected)
                .remedy("restore it, or take out what is left: azekura repair"));
        }
        Self::over(storage, top)
    }

    /// As `open`, also of a file that is cut off: what is there of it.
    pub(super) fn open_damaged(storage: Arc<dyn Storage>) -> Result<Self> {
        let mut top = Super::read(storage.as_ref())?;
        top.size = top.size.min(storage.size()?);
        Self::over(storage, top)
    }

    fn over(storage: Arc<dyn Storage>, top: Super) -> Result<Self> {
        let map = storage.map(top.size.next_multiple_of(4096))?;
        let words = (top.size / PIECE).div_ceil(64) as usize;
        let verified = room::collect((0..words).map(|_| AtomicU64::new(0)))?;
        Ok(Self {
            storage,
            map,
            top,
            verified,
        })
    }

    #[inline(always)]
    fn is_verified(&self, offset: u64) -> bool {
        let piece = offset / PIECE;
        let word = self.verified.get((piece / 64) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (piece % 64) & 1 != 0)
    }

    fn note_verified(&self, offset: u64) {
        let piece = offset / PIECE;
        if let Some(word) = self.verified.get((piece / 64) as usize) {
            word.fetch_or(1 << (piece % 64), Ordering::Relaxed);
        }
    }

    /// So many bytes of the file.
    #[inline(always)]
    fn bytes(&self, offset: u64, len: u64) -> Option<&[u8]> {
        if offset.checked_add(len)? > self.top.size {
            return None;
        }
        // SAFETY: within the file, whose size was compared with `top.size`. No thread writes to it: a storage of this engine is written
        // before it has its name, by a `Writer` that has ended, and never again.
        Some(unsafe { self.map.bytes_within(offset, len as usize) })
    }

    /// The block of this number. `Corrupted` or `Io`: it does not verify, or cannot be read.
    #[inline(always)]
    pub(super) fn block(&self, number: u32) -> Result<VerifiedBlock<'_>> {
        let offset = u64::from(number) * BLOCK;
        if !self.is_verified(offset) {
            self.verify(number)?;
        }
        self.check_readable(offset, BLOCK, "a block")?;
        let Some((head, bytes)) = self
            .bytes(offset, BLOCK)
            .and_then(|bytes| bytes.split_at_checked(HEAD as usize))
        else {
            return Err(self.damaged(offset, BLOCK, "a block"));
        };
        // SAFETY: as `bytes`: within the file, since a whole block is. Blocks and heads are multiples of 8.
        let words = unsafe { self.map.words_within(offset + HEAD, NODE_WORDS) };
        Ok(VerifiedBlock {
            number,
            ordinal: verified_ordinal(head),
            node: Node::new(words, self.top.order),
            bytes,
        })
    }

    #[cold]
    #[inline(never)]
    fn verify(&self, number: u32) -> Result<()> {
        let offset = u64::from(number) * BLOCK;
        let bytes = self.bytes(offset, BLOCK);
        let ordinal = bytes.and_then(|bytes| ordinal_of(self.top.identity, number, bytes));
        let is_block =
            offset >= superblock::SIZE && ordinal.is_some_and(|ordinal| ordinal < self.top.count);
        if !is_block {
            return Err(self.damaged(offset, BLOCK, "a block"));
        }
        self.note_verified(offset);
        Ok(())
    }

    /// What an entry of a leaf states, at a place within it.
    #[inline(always)]
    pub(super) fn content<'f>(
        &'f self,
        leaf: VerifiedBlock<'f>,
        at: usize,
    ) -> Result<LentRecord<'f>> {
        match leaf.node.value(at) {
            Found::Inside(len, offset) => match leaf.bytes.get(offset..offset + len) {
                Some(value) => Ok(LentRecord { key: None, value }),
                None => Err(self.damaged(u64::from(leaf.number) * BLOCK, BLOCK, "a block")),
            },
            Found::Outside(word) => self.overflow(word).map_err(|error| {
                let mut own = Key::default();
                leaf.node.key(at, &mut own);
                error.key(own.bytes())
            }),
        }
    }

    /// The overflow that a word points to.
    fn overflow(&self, word: u64) -> Result<LentRecord<'_>> {
        const WHAT: &str = "the overflow of a record";
        let offset = word.saturating_mul(8);
        let mut len = OVERFLOW_HEAD as u64;
        self.check_readable(offset, len, WHAT)?;
        let mut found = || {
            let head = OverflowHead::decode(self.bytes(offset, OVERFLOW_HEAD as u64)?)?;
            let content = self.bytes(offset + OVERFLOW_HEAD as u64, head.len())?;
            len += head.len();
            if !self.is_verified(offset) {
                if !head.is_sum_of(self.top.identity, offset, content) {
                    return None;
                }
                self.note_verified(offset);
            }
            let (key, value) = content.split_at_checked(head.key_len as usize)?;
            Some(LentRecord {
                key: (!key.is_empty()).then_some(key),
                value,
            })
        };
        let found = found();
        self.check_readable(offset, len, WHAT)?;
        found.ok_or_else(|| self.damaged(offset, len, WHAT))
    }

    /// As if the system had replaced the pages of a range.
    #[cfg(test)]
    pub(super) fn note_unreadable(&self, offset: u64, len: u64) {
        self.map.note_unreadable(offset, len);
    }

    /// Private memory that it takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.verified) as u64
    }

    /// The superblock slots that are damaged.
    pub(super) fn damaged_slots(&self) -> Vec<Damage> {
        self.top.damaged(self.storage.as_ref()).unwrap_or_default()
    }

    /// `answer`, if the pages of a block and of a value that were read for it came from the file: the system replaces others by zeros.
    #[inline(always)]
    pub(super) fn checked<T>(&self, leaf: VerifiedBlock<'_>, value: &[u8], answer: T) -> Result<T> {
        self.check_readable(u64::from(leaf.number) * BLOCK, BLOCK, "a block")?;
        self.still_there(value)?;
        Ok(answer)
    }

    /// Checks that the pages of a slice of the file came from the file, as far as they were read.
    #[inline(always)]
    pub(super) fn still_there(&self, value: &[u8]) -> Result<()> {
        if !self.map.has_unreadable() {
            return Ok(());
        }
        let at = (value.as_ptr() as usize).wrapping_sub(self.map.at(0) as usize) as u64;
        self.check_readable(at, value.len() as u64, "a value")
    }

    #[inline(always)]
    fn check_readable(&self, offset: u64, len: u64, what: &str) -> Result<()> {
        if !self.map.has_unreadable() {
            return Ok(());
        }
        let is_within = offset < self.top.size && len > 0;
        if is_within
            && self
                .map
                .is_unreadable(offset, len.min(self.top.size - offset))
        {
            return Err(self.damaged(offset, len, what));
        }
        Ok(())
    }

    /// The error of something that does not verify, or cannot be read.
    #[cold]
    pub(super) fn damaged(&self, offset: u64, len: u64, what: &str) -> Error {
        let is_unreadable = self.map.has_unreadable()
            && offset < self.top.size
            && self
                .map
                .is_unreadable(offset, len.min(self.top.size - offset));
        let error = if is_unreadable {
            Error::new(Kind::Io, format!("{what} cannot be read from the device"))
        } else {
            Error::new(Kind::Corrupted, format!("{what} does not verify"))
        };
        error
            .at(self.storage.path())
            .offset(offset)
            .remedy("take out what is left: azekura repair; or build the file again")
    }
}
