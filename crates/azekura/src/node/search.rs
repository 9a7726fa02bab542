//! Finding a key's place among a node's entries.
//!
//! In lexical order by the heads, without a branch that depends on them, then by the items where heads are equal; in
//! other orders by whole keys. It does not change the node.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use super::{HEADER_WORDS, Key, Node, Slot, head_of};
use crate::order::Order;

impl Node<'_> {
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

    #[inline(always)]
    fn find_from(self, first: usize, key: &[u8]) -> (usize, bool) {
        let count = self.count();
        if self.order != Order::Lexical {
            return self.find_by(first, count, key);
        }
        let suffix = key.get(self.prefix_len()..).unwrap_or_default();
        let head = head_of(suffix);
        if first >= count {
            return (first, false);
        }
        // Ascending keys come behind the last, again and again.
        let last = self.slot(count - 1);
        if head >= last.head() && (head > last.head() || self.compare(last, suffix).is_lt()) {
            return (count, false);
        }
        let at = self.heads_below(u64::from(head) << 32, first, count);
        let slot = self.slot(at);
        if slot.head() != head {
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
        // No item begins where the low bits of this slot say.
        let behind = u64::from(head) << 32 | u64::from(u32::MAX);
        let mut high = self.heads_below(behind, low, count);
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
        use std::sync::atomic::Ordering::Relaxed;
        let range = HEADER_WORDS + first..HEADER_WORDS + count;
        let Some(slots) = self.memory.0.get(range) else {
            return first;
        };
        let mut base = 0;
        let mut len = slots.len();
        while len > 1 {
            let half = len / 2;
            let is_below = slots
                .get(base + half - 1)
                .is_some_and(|slot| slot.load(Relaxed) < target);
            base = select_unpredictable(is_below, base + half, base);
            len -= half;
        }
        let is_below = slots
            .get(base)
            .is_some_and(|slot| slot.load(Relaxed) < target);
        first + base + usize::from(is_below)
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
