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

    /// How many of the first entries have so many bytes, if a division after them may be made: neither none nor all.
    pub fn front_within(self, bytes: usize) -> Option<usize> {
        let mut sum = 0;
        let at = (0..self.count())
            .take_while(|at| {
                sum += 8 + self.item_len(self.slot(*at));
                sum <= bytes
            })
            .count();
        (0 < at && at < self.count() && self.has_room_for_fence(at)).then_some(at)
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
        let fences_len = self.lower_len() + right.upper_len();
        let room = self.size().saturating_sub(HEADER_WORDS * 8 + fences_len);
        // One without entries is of no use by itself, however full the other is.
        let is_empty = self.count() == 0 || right.count() == 0;
        let most = if is_empty { room } else { room - room / 8 };
        // Common bytes do not become more, so neither become the items smaller.
        if self.used() + right.used() > most {
            return false;
        }
        let (mut low, mut up) = (Key::default(), Key::default());
        let fences = (self.lower(&mut low), right.upper(&mut up));
        let prefix = match (fences, self.order) {
            ((Some(()), Some(())), Order::Lexical) => low
                .bytes()
                .iter()
                .zip(up.bytes())
                .take_while(|(low, up)| low == up)
                .count(),
            _ => 0,
        };
        let bytes = |node: Node<'_>| -> usize {
            let common = node.prefix_len() - prefix.min(node.prefix_len());
            (0..node.count())
                .map(|at| {
                    let slot = node.slot(at);
                    let tail = (slot.key_len() + common).saturating_sub(node.head_len());
                    8 + tail + slot.stored_len()
                })
                .sum()
        };
        bytes(self) + bytes(right) <= most
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
