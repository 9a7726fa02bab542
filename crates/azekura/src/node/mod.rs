//! Nodes of a B+ tree in a piece of memory: sorted slots in front, keys and values after.
//!
//! Promises: functions of a node's memory alone, without allocation and without `unsafe`. Reading is total: whatever the
//! bytes state, a reader gets some answer, stays within the memory and comes to an end; so it may read while a thread
//! writes, and ask a [`Latch`] afterwards whether the answer counts. Writing wants the node's lock, which is the
//! caller's to hold.
//!
//! It does not know where nodes live, what a child's number or an outside value means, or who else looks. Trees in
//! memory and in files are made of the same nodes.
//!
//! ```text
//!   | header | slot 0 | slot 1 | ..  -->   free   <--  .. | item | item | lower fence | upper fence |
//! ```
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 2 | entries |
//! | 2 | 2 | where the lowest item begins |
//! | 4 | 2 | bytes of items that no slot points to |
//! | 6 | 1 | level: 0 a leaf, else one more than its children's |
//! | 7 | 1 | 1: there is a lower fence; 2: there is an upper one |
//! | 8 | 2 | bytes that all keys here begin with |
//! | 10 | 2 | length of the lower fence: no key here is less |
//! | 12 | 2 | length of the upper fence: every key here is less, or equal where keys repeat |
//! | 14 | 2 | where the last entry was inserted |
//! | 16 | 2 | how many entries in a row were inserted near the one before |
//! | 18 | 6 | zero |
//! | 24 | 8 each | slots in the order of their keys |
//!
//! | bits of a slot | meaning |
//! |---|---|
//! | 32, the upper | the first four bytes of the key after the common ones, zeros if it ends before; lexical order only |
//! | 14 | where the item begins |
//! | 9 | length of the key after the common bytes |
//! | 9 | length of the value; 511: it stands outside, and the item has eight bytes that state where |
//!
//! An item is the rest of the key, then the value. So a search compares numbers, and looks at an item only where the
//! four bytes are equal. In an inner node a key is the lower fence of the child whose number is the value; the
//! first key is never compared. Common bytes are those of both fences, so they change in a split and a merge only.

mod edit;
mod latch;
mod memory;
mod search;
mod split;
#[cfg(test)]
mod tests;
pub mod tree;

use std::sync::atomic::AtomicU64;

use memory::Memory;

use crate::explore;
use crate::order::Order;
pub use latch::{Latch, Locked};
pub use search::Search;

/// Longest memory of a node, in words of eight bytes.
pub const WORDS_MAX: usize = 2048;
/// Longest key in a node of four kibibytes.
pub const KEY_LEN_MAX: usize = 510;
/// Longest value inside a node.
pub const VALUE_LEN_MAX: usize = 510;

/// More levels than any tree has.
pub const LEVEL_MAX: u8 = 32;
const HEADER_WORDS: usize = 3;
const OUTSIDE: usize = 511;
const HEAD_LEN: usize = 4;
const HAS_LOWER: u64 = 1;
const HAS_UPPER: u64 = 2;

const _: () = assert!(WORDS_MAX * 8 <= 1 << 14);

/// A node in `memory`. Copies are the same node.
#[derive(Clone, Copy, Debug)]
pub struct Node<'m> {
    memory: Memory<'m>,
    order: Order,
}

/// A key of a node, put together.
#[derive(Clone, Debug)]
pub struct Key {
    bytes: [u8; KEY_LEN_MAX + 2],
    len: usize,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            bytes: [0; KEY_LEN_MAX + 2],
            len: 0,
        }
    }
}

impl Key {
    /// Its bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Makes it these bytes, or as many as a key may have.
    pub fn set(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.bytes.len());
        self.bytes[..len].copy_from_slice(&bytes[..len]);
        self.len = len;
    }
}

/// A value to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'v> {
    /// These bytes, at most [`VALUE_LEN_MAX`].
    Inside(&'v [u8]),
    /// A word that points to it.
    Outside(u64),
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the node: so many bytes at this offset.
    Inside(usize, usize),
    /// Outside, where this word states.
    Outside(u64),
}

#[derive(Clone, Copy)]
struct Slot(u64);

impl Slot {
    #[inline(always)]
    fn new(head: u32, offset: usize, key_len: usize, value_len: usize) -> Self {
        debug_assert!(offset < 1 << 14 && key_len < 1 << 9 && value_len < 1 << 9);
        Self(
            u64::from(head) << 32
                | (offset as u64) << 18
                | (key_len as u64) << 9
                | value_len as u64,
        )
    }
    #[inline(always)]
    fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }
    #[inline(always)]
    fn offset(self) -> usize {
        (self.0 >> 18 & 0x3fff) as usize
    }
    #[inline(always)]
    fn key_len(self) -> usize {
        (self.0 >> 9 & 0x1ff) as usize
    }
    #[inline(always)]
    fn value_len(self) -> usize {
        (self.0 & 0x1ff) as usize
    }
    /// Bytes of its value in the item.
    #[inline(always)]
    fn stored_len(self) -> usize {
        match self.value_len() {
            OUTSIDE => 8,
            len => len,
        }
    }
}

/// The head of a key of which the common bytes are gone.
#[inline(always)]
fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<HEAD_LEN>() {
        Some(head) => u32::from_le_bytes(*head).swap_bytes(),
        None => suffix
            .iter()
            .zip([24, 16, 8, 0])
            .fold(0, |head, (byte, shift)| head | u32::from(*byte) << shift),
    }
}

impl<'m> Node<'m> {
    /// The node in `words`, at most [`WORDS_MAX`] of them; it is one after [`init`](Self::init).
    #[inline(always)]
    pub fn new(words: &'m [AtomicU64], order: Order) -> Self {
        Self {
            memory: Memory(words),
            order,
        }
    }

    /// How many bytes of a key stand in its slot.
    #[inline(always)]
    fn head_len(self) -> usize {
        if self.order == Order::Lexical {
            HEAD_LEN
        } else {
            0
        }
    }

    #[inline(always)]
    fn size(self) -> usize {
        self.memory.0.len() * 8
    }

    /// Entries.
    #[inline(always)]
    pub fn count(self) -> usize {
        let count = (self.memory.word(0) & 0xffff) as usize;
        count.min(self.memory.0.len() - HEADER_WORDS)
    }

    #[inline(always)]
    fn lowest(self) -> usize {
        self.memory.bits(2, 2) as usize
    }

    #[inline(always)]
    fn dead(self) -> usize {
        self.memory.bits(4, 2) as usize
    }

    /// 0: a leaf.
    #[inline(always)]
    pub fn level(self) -> u8 {
        self.memory.bits(6, 1) as u8
    }

    #[inline(always)]
    fn flags(self) -> u64 {
        self.memory.bits(7, 1)
    }

    #[inline(always)]
    fn prefix_len(self) -> usize {
        self.memory.bits(8, 2) as usize
    }

    fn lower_len(self) -> usize {
        self.memory.bits(10, 2) as usize
    }

    fn upper_len(self) -> usize {
        self.memory.bits(12, 2) as usize
    }

    #[inline(always)]
    fn slot(self, at: usize) -> Slot {
        Slot(self.memory.word(HEADER_WORDS + at))
    }

    #[inline(always)]
    fn set_slot(self, at: usize, slot: Slot) {
        self.memory.set_word(HEADER_WORDS + at, slot.0);
    }

    /// Bytes of a slot's item that belong to its key.
    #[inline(always)]
    fn tail_len(self, slot: Slot) -> usize {
        slot.key_len().saturating_sub(self.head_len())
    }

    #[inline(always)]
    fn item_len(self, slot: Slot) -> usize {
        self.tail_len(slot) + slot.stored_len()
    }

    /// Where the fences begin.
    fn items_end(self) -> usize {
        self.size()
            .saturating_sub(self.lower_len() + self.upper_len())
    }

    /// Bytes between slots and items.
    fn gap(self) -> usize {
        self.lowest()
            .saturating_sub((HEADER_WORDS + self.count()) * 8)
    }

    /// Where its bytes are that belong to no slot and no item.
    pub fn free(self) -> std::ops::Range<usize> {
        let slots_end = (HEADER_WORDS + self.count()) * 8;
        slots_end..self.lowest().min(self.size())
    }

    /// Bytes of slots and of items in use.
    pub fn used(self) -> usize {
        let items = self.items_end().saturating_sub(self.lowest() + self.dead());
        self.count() * 8 + items
    }

    /// Bytes for slots and items.
    pub fn room(self) -> usize {
        self.items_end().saturating_sub(HEADER_WORDS * 8)
    }

    /// Whether its bytes are those of a node that others have changed by these functions only: what lies in it lies within it,
    /// and changing it stays there. For a node that comes from storage; costs a look at each slot.
    pub fn is_sound(self) -> bool {
        let count = (self.memory.word(0) & 0xffff) as usize;
        let fences = self.lower_len() + self.upper_len();
        let (lowest, end) = (self.lowest(), self.items_end());
        let is_fence = |flag: u64, len: usize| match self.flags() & flag {
            0 => len == 0,
            _ => len <= KEY_LEN_MAX,
        };
        let is_shaped = fences <= self.size()
            && is_fence(HAS_LOWER, self.lower_len())
            && is_fence(HAS_UPPER, self.upper_len())
            && (HEADER_WORDS + count) * 8 <= lowest
            && lowest <= end
            && self.prefix_len() <= self.lower_len()
            && self.level() <= LEVEL_MAX
            && (self.level() == 0 || count > 0);
        let is_within = |at: usize| {
            let slot = self.slot(at);
            let is_child = self.level() == 0 || slot.value_len() == 4;
            is_child
                && lowest <= slot.offset()
                && slot.offset() + self.item_len(slot) <= end
                && self.prefix_len() + slot.key_len() <= KEY_LEN_MAX
        };
        let items =
            |count: usize| -> usize { (0..count).map(|at| self.item_len(self.slot(at))).sum() };
        is_shaped && (0..count).all(is_within) && items(count) + self.dead() == end - lowest
    }

    /// The least key that may be here; `None`: any.
    pub fn lower(self, key: &mut Key) -> Option<()> {
        (self.flags() & HAS_LOWER != 0).then_some(())?;
        let len = self.lower_len();
        self.fence(self.items_end(), len, key);
        Some(())
    }

    /// The key all keys here are less than; `None`: there is none.
    pub fn upper(self, key: &mut Key) -> Option<()> {
        (self.flags() & HAS_UPPER != 0).then_some(())?;
        let len = self.upper_len();
        self.fence(self.size().saturating_sub(len), len, key);
        Some(())
    }

    /// The lower fence of the child of an entry; `None`: it has none.
    pub fn lower_of(self, at: usize, key: &mut Key) -> Option<()> {
        if at == 0 {
            return self.lower(key);
        }
        self.key(at, key);
        Some(())
    }

    /// The upper fence of the child of an entry; `None`: it has none.
    pub fn upper_of(self, at: usize, key: &mut Key) -> Option<()> {
        if at + 1 >= self.count() {
            return self.upper(key);
        }
        self.key(at + 1, key);
        Some(())
    }

    fn fence(self, at: usize, len: usize, key: &mut Key) {
        key.len = len.min(key.bytes.len());
        self.memory.read(at, &mut key.bytes[..key.len]);
    }

    /// Whether `key` lies between the fences.
    #[inline]
    pub fn covers(self, key: &[u8]) -> bool {
        if self.order == Order::Lexical {
            let (flags, len) = (self.flags(), self.upper_len());
            let at = self.size().saturating_sub(len);
            return (flags & HAS_LOWER == 0
                || self
                    .memory
                    .compare(self.items_end(), self.lower_len(), key)
                    .is_le())
                && (flags & HAS_UPPER == 0 || self.memory.compare(at, len, key).is_gt());
        }
        self.covers_by_order(key)
    }

    fn covers_by_order(self, key: &[u8]) -> bool {
        let mut fence = Key::default();
        if self.lower(&mut fence).is_some() && self.order.compare(key, fence.bytes()).is_lt() {
            return false;
        }
        self.upper(&mut fence).is_none() || self.order.compare(key, fence.bytes()).is_lt()
    }

    /// Bytes of the whole key of an entry.
    pub fn key_len(self, at: usize) -> usize {
        self.prefix_len() + self.slot(at).key_len()
    }

    /// The whole key of an entry.
    pub fn key(self, at: usize, key: &mut Key) {
        let slot = self.slot(at);
        let prefix = self.prefix_len().min(self.lower_len());
        let head = slot.key_len().min(self.head_len());
        let tail = self.tail_len(slot);
        let len = (prefix + head + tail).min(key.bytes.len());
        if prefix + head <= len {
            self.memory.read(self.items_end(), &mut key.bytes[..prefix]);
            let bytes = slot.head().swap_bytes().to_le_bytes();
            key.bytes[prefix..prefix + head].copy_from_slice(&bytes[..head]);
            self.memory
                .read(slot.offset(), &mut key.bytes[prefix + head..len]);
        }
        key.len = len;
    }

    /// Where the value of an entry is.
    #[inline(always)]
    pub fn value(self, at: usize) -> Found {
        let slot = self.slot(at);
        explore::yield_point();
        let offset = slot.offset() + self.tail_len(slot);
        match slot.value_len() {
            OUTSIDE => Found::Outside(self.memory.bits(offset, 8)),
            len => Found::Inside(len, offset),
        }
    }

    /// Copies the bytes of a value inside to `into`, which is as long.
    #[inline(always)]
    pub fn copy(self, offset: usize, into: &mut [u8]) {
        explore::yield_point();
        self.memory.read(offset, into);
    }

    /// The number of the child of an entry.
    #[inline(always)]
    pub fn child(self, at: usize) -> u32 {
        let slot = self.slot(at);
        explore::yield_point();
        self.memory.bits(slot.offset() + self.tail_len(slot), 4) as u32
    }

    /// The first word of the item of an entry: to load it prefetches the item.
    #[inline(always)]
    pub fn item_word(self, at: usize) -> Option<&'m AtomicU64> {
        self.memory.0.get(self.slot(at).offset() / 8)
    }
}
