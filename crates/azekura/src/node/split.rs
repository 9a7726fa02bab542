//! Dividing a node in two, and making two one, under the locks of both.
//!
//! A node that filled up in a run of neighbouring insertions is divided where the run is, so that ascending and
//! descending keys leave full nodes behind; others in the middle of their bytes. The fence between two leaves is the
//! shortest key that divides them. It does not know parents.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use super::{Found, HEADER_WORDS, Key, Memory, Node, Slot, Value, WORDS_MAX};
use crate::explore;
use crate::order::Order;

/// Insertions in a row that make a run.
const RUN: u64 = 16;

impl Node<'_> {
    /// The entry to divide at, of at least two, when one is to be inserted at `at`: the first of the right node.
    pub fn division(self, at: usize) -> usize {
        let count = self.count();
        let at = at.clamp(1, count - 1);
        if self.memory.word(2) >= RUN && self.has_room_for_fence(at) {
            return at;
        }
        let bytes = |at| 8 + self.item_len(self.slot(at));
        let half = self.used() / 2;
        let mut sum = 0;
        let middle = (0..count).find(|at| {
            sum += bytes(*at);
            sum > half
        });
        middle.unwrap_or(count / 2).clamp(1, count - 1)
    }

    /// Whether, divided before the entry at `at`, both halves have room for the fence between them: what one half loses may be
    /// shorter than that. In the middle they have it always.
    fn has_room_for_fence(self, at: usize) -> bool {
        let fence_len = self.key_len(at);
        let items = (0..at).map(|at| 8 + self.item_len(self.slot(at)));
        let left = items.sum::<usize>();
        let right = self.used() - left;
        let room = self.size() - HEADER_WORDS * 8 - fence_len;
        left + self.lower_len() <= room && right + self.upper_len() <= room
    }

    /// The fence to put before the entry at `at`, which is not the first.
    pub fn separator(self, at: usize, key: &mut Key) {
        self.key(at, key);
        if self.level() == 0 && self.order == Order::Lexical {
            let mut before = Key::default();
            self.key(at - 1, &mut before);
            let alike = key
                .bytes()
                .iter()
                .zip(before.bytes())
                .take_while(|(key, before)| key == before)
                .count();
            key.len = key.len.min(alike + 1);
        }
    }

    /// Moves the entries from `at` on to `right`, with `separator` between the nodes.
    pub fn divide(self, right: Node<'_>, at: usize, separator: &[u8]) {
        let words = [const { AtomicU64::new(0) }; WORDS_MAX];
        let before = self.copy_in(&words);
        let (mut low, mut up) = (Key::default(), Key::default());
        let lower = before.lower(&mut low).map(|()| low.bytes());
        let upper = before.upper(&mut up).map(|()| up.bytes());
        right.init(self.level(), Some(separator), upper);
        right.append(before, at..before.count());
        explore::yield_point();
        self.init(self.level(), lower, Some(separator));
        explore::yield_point();
        self.append(before, 0..at);
    }

    fn copy_in(self, words: &[AtomicU64; WORDS_MAX]) -> Node<'_> {
        let copy = Node {
            memory: Memory(&words[..self.memory.0.len()]),
            order: self.order,
        };
        copy.memory.copy_from(self.memory);
        copy
    }

    /// Whether this node could take the entries of `right`, the next one: with an eighth to spare, if both have any.
    pub fn could_take(self, right: Node<'_>) -> bool {
        // One without entries is of no use by itself, however full the other is.
        let part = if self.count() == 0 || right.count() == 0 {
            0
        } else {
            8
        };
        let mut up = Key::default();
        let upper = right.upper(&mut up).map(|()| up.bytes());
        self.could_hold(right, right.count(), upper, part)
    }

    /// As [`could_take`](Self::could_take), with nothing to spare.
    pub fn could_take_all(self, right: Node<'_>) -> bool {
        let mut up = Key::default();
        let upper = right.upper(&mut up).map(|()| up.bytes());
        self.could_hold(right, right.count(), upper, 0)
    }

    /// Whether this node would have room for the first `count` entries of `right`, the next one, besides its own, with `upper` as its
    /// fence, and a part of its room to spare, if that is not 0.
    fn could_hold(self, right: Node<'_>, count: usize, upper: Option<&[u8]>, part: usize) -> bool {
        let fences_len = self.lower_len() + upper.map_or(0, <[u8]>::len);
        let room = self.size().saturating_sub(HEADER_WORDS * 8 + fences_len);
        let most = room - room.checked_div(part).unwrap_or(0);
        // Common bytes do not become more, so neither become the items smaller.
        if count == right.count() && self.used() + right.used() > most {
            return false;
        }
        let mut low = Key::default();
        let prefix = match (self.lower(&mut low), upper, self.order) {
            (Some(()), Some(upper), Order::Lexical) => low
                .bytes()
                .iter()
                .zip(upper)
                .take_while(|(low, up)| low == up)
                .count(),
            _ => 0,
        };
        let bytes = |node: Node<'_>, count: usize| -> usize {
            let common = node.prefix_len() - prefix.min(node.prefix_len());
            (0..count)
                .map(|at| {
                    let slot = node.slot(at);
                    let tail = (slot.key_len() + common).saturating_sub(node.head_len());
                    8 + tail + slot.stored_len()
                })
                .sum()
        };
        bytes(self, self.count()) + bytes(right, count) <= most
    }

    /// How many of the first entries of `right`, the next leaf, this one can take so that it is as full as it becomes; some stay. The
    /// fence that is then between them is put into `separator`. `None`: not one.
    pub fn share(self, right: Node<'_>, separator: &mut Key) -> Option<usize> {
        let bytes = |at| 8 + right.item_len(right.slot(at));
        let mut left = self.room().saturating_sub(self.used());
        let fitting = (0..right.count()).take_while(|at| {
            let fits = bytes(*at) <= left;
            left = left.saturating_sub(bytes(*at));
            fits
        });
        // Where the common bytes become less, fewer fit.
        let most = fitting.count().min(right.count().saturating_sub(1));
        (1..=most).rev().find(|count| {
            right.separator(*count, separator);
            let fence = separator.bytes();
            let stays: usize = (*count..right.count()).map(bytes).sum();
            let room = right.size() - HEADER_WORDS * 8 - right.upper_len();
            stays + fence.len() <= room && self.could_hold(right, *count, Some(fence), 0)
        })
    }

    /// Takes the first `count` entries of `right`, the next leaf, as [`share`](Self::share) found them, with `separator` between the two.
    pub fn take_first(self, right: Node<'_>, count: usize, separator: &[u8]) {
        let words = [const { AtomicU64::new(0) }; WORDS_MAX];
        let left_before = self.copy_in(&words);
        let words = [const { AtomicU64::new(0) }; WORDS_MAX];
        let right_before = right.copy_in(&words);
        let (mut low, mut up) = (Key::default(), Key::default());
        let lower = left_before.lower(&mut low).map(|()| low.bytes());
        let upper = right_before.upper(&mut up).map(|()| up.bytes());
        self.init(self.level(), lower, Some(separator));
        explore::yield_point();
        self.append(left_before, 0..left_before.count());
        self.append(right_before, 0..count);
        right.init(right.level(), Some(separator), upper);
        explore::yield_point();
        right.append(right_before, count..right_before.count());
    }

    /// Takes the entries of `right`, the next one, which it [could](Self::could_take).
    pub fn take(self, right: Node<'_>) {
        let words = [const { AtomicU64::new(0) }; WORDS_MAX];
        let before = self.copy_in(&words);
        let (mut low, mut up) = (Key::default(), Key::default());
        let lower = before.lower(&mut low).map(|()| low.bytes());
        let upper = right.upper(&mut up).map(|()| up.bytes());
        self.init(self.level(), lower, upper);
        explore::yield_point();
        self.append(before, 0..before.count());
        self.append(right, 0..right.count());
    }

    /// Puts entries of another node after the last.
    fn append(self, from: Node<'_>, range: Range<usize>) {
        let mut key = Key::default();
        let is_alike = self.prefix_len() == from.prefix_len();
        for at in range {
            let slot = from.slot(at);
            if is_alike {
                let offset = self.lowest() - from.item_len(slot);
                self.move_item(from, slot, offset);
                let count = self.count();
                let (key_len, value_len) = (slot.key_len(), slot.value_len());
                self.set_slot(count, Slot::new(slot.head(), offset, key_len, value_len));
                self.memory
                    .set_bits(0, 4, (offset << 16 | (count + 1)) as u64);
                continue;
            }
            from.key(at, &mut key);
            let mut bytes = [0; 512];
            let value = match from.value(at) {
                Found::Outside(word) => Value::Outside(word),
                Found::Inside(len, offset) => {
                    from.copy(offset, &mut bytes[..len]);
                    Value::Inside(&bytes[..len])
                }
            };
            let has_room = self.insert(self.count(), key.bytes(), value);
            debug_assert!(has_room, "what is moved has room");
        }
        self.memory.set_word(2, 0);
    }
}
