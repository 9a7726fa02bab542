//! Changing a node's entries, under its lock.
//!
//! An item that is replaced or removed leaves dead bytes; they are squeezed out when the room is needed. What does not
//! fit is not done: the caller splits the node and tries again. It does not know parents, nor readers.

use std::sync::atomic::AtomicU64;

use super::{
    HAS_LOWER, HAS_UPPER, HEADER_WORDS, Memory, Node, OUTSIDE, Slot, Value, WORDS_MAX, head_of,
};
use crate::explore;
use crate::order::Order;

/// How near, in entries, an insertion must be to the one before to count as of one run.
const NEAR: usize = 12;

impl Value<'_> {
    /// Bytes that it takes in a node.
    pub fn stored_len(self) -> usize {
        match self {
            Self::Inside(bytes) => bytes.len(),
            Self::Outside(_) => 8,
        }
    }

    fn slot_len(self) -> usize {
        match self {
            Self::Inside(bytes) => bytes.len(),
            Self::Outside(_) => OUTSIDE,
        }
    }
}

impl Node<'_> {
    /// Makes it an empty node between two fences.
    pub fn init(self, level: u8, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        let prefix = match (lower, upper, self.order) {
            (Some(lower), Some(upper), Order::Lexical) => lower
                .iter()
                .zip(upper)
                .take_while(|(low, up)| low == up)
                .count(),
            _ => 0,
        };
        let flags = if lower.is_some() { HAS_LOWER } else { 0 }
            | if upper.is_some() { HAS_UPPER } else { 0 };
        let (lower, upper) = (lower.unwrap_or_default(), upper.unwrap_or_default());
        let end = self.size() - lower.len() - upper.len();
        let word = |parts: [u64; 4]| parts.iter().rev().fold(0, |word, part| (word << 16) | part);
        let first = word([0, end as u64, 0, u64::from(level) | flags << 8]);
        self.memory.set_word(0, first);
        let lens = [prefix, lower.len(), upper.len(), 0].map(|len| len as u64);
        self.memory.set_word(1, word(lens));
        self.memory.set_word(2, 0);
        self.memory.write(end, lower);
        self.memory.write(end + lower.len(), upper);
    }

    /// Makes it a copy of another node of the same size.
    pub fn copy_from(self, other: Node<'_>) {
        self.memory.copy_from(other.memory);
    }

    fn set_count(self, count: usize) {
        self.memory.set_bits(0, 2, count as u64);
    }

    fn set_lowest(self, lowest: usize) {
        self.memory.set_bits(2, 2, lowest as u64);
    }

    fn set_dead(self, dead: usize) {
        self.memory.set_bits(4, 2, dead as u64);
    }

    /// Whether an entry with a key of this length and a value of that would fit.
    pub fn fits(self, key_len: usize, value_len: usize) -> bool {
        let key = key_len.saturating_sub(self.prefix_len() + self.head_len());
        8 + key + value_len <= self.gap() + self.dead()
    }

    /// Whether an entry for `key` could be put, or given another value, where `find` reported.
    pub fn could_set(self, at: usize, is_present: bool, key: &[u8], value: Value<'_>) -> bool {
        if !is_present {
            return self.fits(key.len(), value.stored_len());
        }
        let slot = self.slot(at);
        let len = self.tail_len(slot) + value.stored_len();
        slot.stored_len() == value.stored_len()
            || len <= self.gap() + self.dead() + self.item_len(slot)
    }

    /// Puts an entry, or gives it another value, where `find` reported; `false`, and nothing is changed, if there is no room.
    #[inline(always)]
    pub fn set(self, at: usize, is_present: bool, key: &[u8], value: Value<'_>) -> bool {
        if is_present {
            self.replace(at, key, value)
        } else {
            self.insert(at, key, value)
        }
    }

    /// Puts an entry at `at`; `false`, and nothing is changed, if there is no room.
    #[inline(always)]
    pub fn insert(self, at: usize, key: &[u8], value: Value<'_>) -> bool {
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        let tail = suffix.get(self.head_len()..).unwrap_or_default();
        let len = tail.len() + value.stored_len();
        if 8 + len > self.gap() {
            if 8 + len > self.gap() + self.dead() {
                return false;
            }
            self.squeeze();
        }
        let first = self.memory.word(0);
        let count = (first & 0xffff) as usize;
        let offset = (first >> 16 & 0xffff) as usize - len;
        self.write_item(offset, tail, value);
        explore::yield_point();
        self.memory.shift_up(HEADER_WORDS + at, count - at);
        explore::yield_point();
        let head = if self.head_len() == 0 {
            0
        } else {
            head_of(suffix)
        };
        let slot = Slot::new(head, offset, suffix.len(), value.slot_len());
        self.set_slot(at, slot);
        explore::yield_point();
        // Entries and lowest item stand in one word, and where the last insertion was at the end of the next.
        let counts = (offset as u64) << 16 | (count + 1) as u64;
        self.memory.set_word(0, first & !0xffff_ffff | counts);
        let second = self.memory.word(1);
        let last = (second >> 48) as usize;
        self.memory
            .set_word(1, second & !(0xffff << 48) | (at as u64) << 48);
        let run = self.memory.word(2);
        let is_near = at.abs_diff(last) <= NEAR;
        self.memory
            .set_word(2, if is_near { (run + 1).min(0xffff) } else { 0 });
        true
    }

    #[inline(always)]
    fn write_item(self, offset: usize, tail: &[u8], value: Value<'_>) {
        self.memory.write(offset, tail);
        match value {
            Value::Inside(bytes) => self.memory.write(offset + tail.len(), bytes),
            Value::Outside(word) => self.memory.set_bits(offset + tail.len(), 8, word),
        }
    }

    /// Gives the entry at `at`, whose key is `key`, another value; `false`, and nothing is changed, if there is no room.
    #[inline(always)]
    pub fn replace(self, at: usize, key: &[u8], value: Value<'_>) -> bool {
        let slot = self.slot(at);
        let tail_len = self.tail_len(slot);
        if slot.stored_len() == value.stored_len() {
            let lens = Slot::new(slot.head(), slot.offset(), slot.key_len(), value.slot_len());
            self.set_slot(at, lens);
            explore::yield_point();
            let offset = slot.offset() + tail_len;
            match value {
                Value::Inside(bytes) => self.memory.write(offset, bytes),
                Value::Outside(word) => self.memory.set_bits(offset, 8, word),
            }
            return true;
        }
        let len = tail_len + value.stored_len();
        if len > self.gap() {
            if len > self.gap() + self.dead() + self.item_len(slot) {
                return false;
            }
            // Its own item is as good as dead; an empty one keeps the slot's place.
            self.set_dead(self.dead() + self.item_len(slot));
            self.set_slot(at, Slot::new(slot.head(), 0, 0, 0));
            self.squeeze();
        } else {
            self.set_dead(self.dead() + self.item_len(slot));
        }
        let offset = self.lowest() - len;
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        let tail = suffix.get(self.head_len()..).unwrap_or_default();
        self.write_item(offset, tail, value);
        explore::yield_point();
        self.set_slot(
            at,
            Slot::new(slot.head(), offset, suffix.len(), value.slot_len()),
        );
        self.set_lowest(offset);
        true
    }

    /// Removes an entry.
    #[inline(always)]
    pub fn remove(self, at: usize) {
        let count = self.count();
        let len = self.item_len(self.slot(at));
        self.memory.shift_down(HEADER_WORDS + at, count - at - 1);
        explore::yield_point();
        self.set_count(count - 1);
        self.set_dead(self.dead() + len);
    }

    /// Whether the entry at `at` could have this key in place of its own.
    pub fn could_rename(self, at: usize, key: &[u8]) -> bool {
        let slot = self.slot(at);
        let key_len = key
            .len()
            .saturating_sub(self.prefix_len() + self.head_len());
        key_len + slot.stored_len() <= self.gap() + self.dead() + self.item_len(slot)
    }

    /// Gives the entry of a child another key, which it [could](Self::could_rename) have, between those of its neighbours.
    pub fn rename(self, at: usize, key: &[u8]) {
        let child = self.child(at);
        self.remove(at);
        let is_renamed = self.insert(at, key, Value::Inside(&child.to_le_bytes()));
        debug_assert!(is_renamed, "it fits");
    }

    /// Squeezes dead bytes out.
    #[cold]
    fn squeeze(self) {
        let words = [const { AtomicU64::new(0) }; WORDS_MAX];
        let before = Node {
            memory: Memory(&words[..self.memory.0.len()]),
            order: self.order,
        };
        before.memory.copy_from(self.memory);
        let mut lowest = self.items_end();
        for at in 0..self.count() {
            explore::yield_point();
            let slot = before.slot(at);
            let len = self.item_len(slot);
            lowest -= len;
            self.move_item(before, slot, lowest);
            self.set_slot(
                at,
                Slot::new(slot.head(), lowest, slot.key_len(), slot.value_len()),
            );
        }
        self.set_lowest(lowest);
        self.set_dead(0);
    }

    /// Copies the item of `slot` of another node to `offset`.
    pub(super) fn move_item(self, from: Node<'_>, slot: Slot, offset: usize) {
        let len = from.item_len(slot);
        for at in (0..len).step_by(8) {
            let step = (len - at).min(8);
            let bits = from.memory.bits(slot.offset() + at, step);
            self.memory.set_bits(offset + at, step, bits);
        }
    }
}
