//! Finding a key's place among a node's entries.
//!
//! In lexical order by the heads, without a branch that depends on them, then by the items where heads are equal; in
//! other orders by whole keys. A search by heads can also be gone probe by probe, among those of other keys, so that their
//! cache misses overlap. It does not change the node.

use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::sync::atomic::AtomicU64;

use super::{HEADER_WORDS, Key, Node, Slot, head_of};
use crate::explore;
use crate::order::Order;

/// Slots that are looked at without further steps: they lie in two lines.
const NEAR: usize = 8;

/// A search by heads that goes step by step.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    target: u64,
    base: usize,
    len: usize,
}

impl<'m> Node<'m> {
    /// The first entry whose key is not less than `key`, and whether it is equal. `key` lies between the fences.
    #[inline(always)]
    pub fn find(self, key: &[u8]) -> (usize, bool) {
        self.find_from(0, key)
    }

    /// The entry of the child where `key` is, which lies between the fences.
    #[inline(always)]
    pub fn child_of(self, key: &[u8]) -> usize {
        let (at, is_equal) = self.find_from(1, key);
        at.saturating_sub(usize::from(!is_equal))
    }

    /// The entry of the last child that may have keys less than `key`; `None`: the last of all.
    pub fn child_before(self, key: Option<&[u8]>) -> usize {
        let at = key.map_or_else(|| self.count(), |key| self.find_from(1, key).0);
        at.saturating_sub(1)
    }

    /// As [`find`](Self::find) where keys may repeat: the first of several equal entries. `key` may also be the upper fence.
    pub fn find_first(self, key: &[u8]) -> (usize, bool) {
        self.first_alike(0, key)
    }

    /// As [`child_before`](Self::child_before) where keys may repeat.
    pub fn child_before_first(self, key: &[u8]) -> usize {
        self.first_alike(1, key).0.saturating_sub(1)
    }

    /// The first of the equal entries of which a search from `first` on finds any.
    fn first_alike(self, first: usize, key: &[u8]) -> (usize, bool) {
        let (mut at, is_equal) = self.find_from(first, key);
        let mut other = Key::default();
        while is_equal && at > first {
            self.key(at - 1, &mut other);
            if other.bytes() != key {
                break;
            }
            at -= 1;
        }
        (at, is_equal)
    }

    #[inline(always)]
    fn find_from(self, first: usize, key: &[u8]) -> (usize, bool) {
        let count = self.count();
        explore::yield_point();
        if self.order != Order::Lexical {
            return self.find_by(first, count, key);
        }
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        let head = head_of(suffix);
        if first >= count {
            return (first, false);
        }
        // Ascending keys come after the last, again and again.
        let last = self.slot(count - 1);
        if head >= last.head() && (head > last.head() || self.compare(last, suffix).is_lt()) {
            return (count, false);
        }
        // Who takes records off in order takes the first, again and again.
        let at = if head <= self.slot(first).head() {
            first
        } else {
            self.heads_below(u64::from(head) << 32, first, count)
        };
        self.found(at, count, head, suffix)
    }

    /// The place of a key with this head, of which the first entry whose head is not less is known.
    #[inline(always)]
    fn found(self, at: usize, count: usize, head: u32, suffix: &[u8]) -> (usize, bool) {
        let slot = self.slot(at);
        explore::yield_point();
        if at >= count || slot.head() != head {
            return (at, false);
        }
        match self.compare(slot, suffix) {
            Ordering::Equal => (at, true),
            Ordering::Greater => (at, false),
            Ordering::Less => self.find_alike(at + 1, count, head, suffix),
        }
    }

    /// Among entries with this head.
    fn find_alike(self, mut low: usize, count: usize, head: u32, suffix: &[u8]) -> (usize, bool) {
        // No item begins where the low bits of this slot state.
        let after = u64::from(head) << 32 | u64::from(u32::MAX);
        let mut high = self.heads_below(after, low, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.compare(self.slot(middle), suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// The first entry from `first` on whose slot is not less than `target`.
    #[inline(always)]
    fn heads_below(self, target: u64, first: usize, count: usize) -> usize {
        let mut search = Search {
            target,
            base: first,
            len: count.saturating_sub(first),
        };
        self.finish(&mut search)
    }

    /// Begins a search that goes step by step, so that many can go together; in other orders it is done at once.
    #[inline(always)]
    pub fn search(self, key: &[u8]) -> Search {
        let first = usize::from(self.level() > 0);
        let count = self.count();
        if self.order != Order::Lexical {
            return Search {
                target: 0,
                base: self.find_by(first, count, key).0,
                len: 0,
            };
        }
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        Search {
            target: u64::from(head_of(suffix)) << 32,
            base: first,
            len: count.saturating_sub(first),
        }
    }

    /// Halves what is left of a search; whether more than a line's worth is left.
    #[inline(always)]
    pub fn halve(self, search: &mut Search) -> bool {
        let half = search.len / 2;
        let probe = self
            .memory
            .word(HEADER_WORDS + (search.base + half).saturating_sub(1));
        search.base = select_unpredictable(probe < search.target, search.base + half, search.base);
        search.len -= half;
        search.len > NEAR
    }

    /// The words that the next halving, or the end of a search, looks at.
    #[inline(always)]
    pub fn next_words(self, search: &Search) -> [Option<&'m AtomicU64>; 2] {
        let word = |at| self.memory.0.get(HEADER_WORDS + at);
        if search.len > NEAR {
            [word((search.base + search.len / 2).saturating_sub(1)), None]
        } else {
            [word(search.base), word(search.base + search.len)]
        }
    }

    /// The end of a search by heads.
    #[inline(always)]
    pub fn finish(self, search: &mut Search) -> usize {
        while search.len > 1 {
            self.halve(search);
        }
        let is_below =
            search.len == 1 && self.memory.word(HEADER_WORDS + search.base) < search.target;
        search.base += usize::from(is_below);
        search.len = 0;
        search.base
    }

    /// As [`find`](Self::find), after a search that was finished.
    #[inline(always)]
    pub fn find_at(self, search: &Search, key: &[u8]) -> (usize, bool) {
        if self.order != Order::Lexical {
            let mut other = Key::default();
            self.key(search.base, &mut other);
            let is_equal = search.base < self.count() && other.bytes() == key;
            return (search.base, is_equal);
        }
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        self.found(
            search.base,
            self.count(),
            (search.target >> 32) as u32,
            suffix,
        )
    }

    /// How the key of `slot` compares with `suffix`, whose head is the same.
    #[inline(always)]
    fn compare(self, slot: Slot, suffix: &[u8]) -> Ordering {
        let tail = suffix.get(super::HEAD_LEN..).unwrap_or_default();
        self.memory
            .compare(slot.offset(), self.tail_len(slot), tail)
            .then(slot.key_len().cmp(&suffix.len()))
    }

    fn find_by(self, first: usize, count: usize, key: &[u8]) -> (usize, bool) {
        let (mut low, mut high) = (first, count.max(first));
        let mut other = Key::default();
        while low < high {
            let middle = usize::midpoint(low, high);
            self.key(middle, &mut other);
            match self.order.compare(other.bytes(), key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }
}
