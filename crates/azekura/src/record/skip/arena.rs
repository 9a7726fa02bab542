//! Records in memory, in the order in which they came, then in the order of their keys.
//!
//! A record is its bytes, one after the other, and an item of 16 bytes that sorts: eight bytes of the key after what all keys
//! begin with alike, and where the record begins. So nearly every comparison is one of two numbers. Records of equal keys stay in
//! the order in which they came.
//!
//! | bytes of a record | meaning |
//! |---|---|
//! | 4 | length of the key |
//! | 4 | length of the value; all bits set: the key is removed |
//! | .. | the key, then the value |
//!
//! It does not know how much memory is allowed, or where records go.

use std::cmp::Ordering;

use super::node_builder::common_len;
use crate::error::Result;
use crate::io::mmap::prefetch;
use crate::order::Order;
use crate::room;

/// Bytes before a record's key.
const HEAD: usize = 8;
/// The length of the value of a removal.
const REMOVAL: u32 = u32::MAX;
/// How far ahead records are prefetched.
const AHEAD: usize = 16;

/// A record or a removal, lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Put<'r> {
    pub(super) key: &'r [u8],
    /// `None`: the key is removed.
    pub(super) value: Option<&'r [u8]>,
}

impl<'r> Put<'r> {
    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        HEAD + self.key.len() + self.value.map_or(0, <[u8]>::len)
    }

    /// Adds its bytes. Errors: `Full`.
    pub(super) fn encode(&self, into: &mut Vec<u8>) -> Result<()> {
        room::more(into, self.len())?;
        let value_len = self.value.map_or(REMOVAL, |value| value.len() as u32);
        into.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        into.extend_from_slice(&value_len.to_le_bytes());
        into.extend_from_slice(self.key);
        into.extend_from_slice(self.value.unwrap_or_default());
        Ok(())
    }

    /// The one that begins `bytes`; `None`: there is none, or its lengths lead beyond them.
    pub(super) fn decode(bytes: &'r [u8]) -> Option<Self> {
        let (key_len, rest) = bytes.split_first_chunk::<4>()?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize)?;
        let value = match u32::from_le_bytes(*value_len) {
            REMOVAL => None,
            len => Some(rest.get(..len as usize)?),
        };
        Some(Self { key, value })
    }
}

/// What sorts: the upper half by the key, the lower half the offset.
type Item = u128;

/// See the module's text.
#[derive(Default)]
pub(super) struct PutArena {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// Bytes that all keys begin with alike.
    common: usize,
    order: Order,
}

impl PutArena {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }

    /// Bytes that it takes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<Item>()
    }

    pub(super) fn count(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Errors: `Full`, and nothing is changed.
    pub(super) fn add(&mut self, put: Put<'_>) -> Result<()> {
        room::more(&mut self.items, 1)?;
        let offset = self.bytes.len();
        put.encode(&mut self.bytes)?;
        self.items.push(offset as Item);
        self.common = if offset == 0 {
            put.key.len()
        } else {
            let first = self.at(0).key.get(..self.common).unwrap_or_default();
            common_len(first, put.key)
        };
        Ok(())
    }

    fn at(&self, offset: usize) -> Put<'_> {
        let put = self.bytes.get(offset..).and_then(Put::decode);
        put.unwrap_or(Put {
            key: &[],
            value: None,
        })
    }

    /// The record of an item.
    pub(super) fn get(&self, index: usize) -> Option<Put<'_>> {
        if let Some(ahead) = self.items.get(index + AHEAD) {
            prefetch(self.bytes.as_ptr().wrapping_add(*ahead as u64 as usize));
        }
        let item = self.items.get(index)?;
        Some(self.at(*item as u64 as usize))
    }

    /// Puts the records in the order of their keys, those of equal keys in the order in which they came.
    pub(super) fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        if self.order == Order::Lexical {
            for item in &mut items {
                let offset = *item as u64;
                let suffix = self.at(offset as usize).key.get(self.common..);
                *item = Item::from(head_of(suffix.unwrap_or_default())) << 64 | Item::from(offset);
            }
            items.sort_unstable();
            for alike in items.chunk_by_mut(|a, b| a >> 64 == b >> 64) {
                if alike.len() > 1 {
                    alike.sort_unstable_by(|a, b| self.compare(*a, *b));
                }
            }
        } else {
            items.sort_unstable_by(|a, b| self.compare(*a, *b));
        }
        self.items = items;
    }

    fn compare(&self, a: Item, b: Item) -> Ordering {
        let (a, b) = (a as u64 as usize, b as u64 as usize);
        let keys = self.order.compare(self.at(a).key, self.at(b).key);
        keys.then(a.cmp(&b))
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
    }
}

/// The first eight bytes of a key as a number that sorts as they do; zeros after its end.
#[expect(clippy::big_endian_bytes, reason = "numbers that sort as the bytes do")]
pub(super) fn head_of(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    for (to, from) in head.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testkit::Random;

    #[test]
    fn records_come_in_order_and_equal_ones_as_they_came() {
        let mut random = Random::new(11);
        for _ in 0..40 {
            let order = *random.choose(&Order::ALL);
            let prefix_len = *random.choose(&[0, 3, 20]);
            let prefix = random.bytes(prefix_len);
            let mut puts: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
            for _ in 0..500 {
                let len = random.index(12);
                let rest = (0..len).map(|_| *random.choose(b"\x00\x0119az"));
                let key = prefix.iter().copied().chain(rest).collect();
                let value_len = random.index(5);
                let value = (!random.one_in(5)).then(|| random.bytes(value_len));
                puts.push((key, value));
            }
            let mut arena = PutArena::new(order);
            for (key, value) in &puts {
                let value = value.as_deref();
                arena.add(Put { key, value }).unwrap();
            }
            let len = |put: &(Vec<u8>, Option<Vec<u8>>)| {
                8 + put.0.len() + put.1.as_ref().map_or(0, Vec::len) + 16
            };
            assert_eq!(arena.size(), puts.iter().map(len).sum::<usize>());
            arena.sort();
            puts.sort_by(|(a, _), (b, _)| order.compare(a, b));
            for (at, (key, value)) in puts.iter().enumerate() {
                let value = value.as_deref();
                assert_eq!(arena.get(at), Some(Put { key, value }));
            }
            assert_eq!(arena.get(puts.len()), None);
            arena.clear();
            assert!(arena.is_empty() && arena.size() == 0);
        }
    }

    #[test]
    fn no_prefix_of_a_record_decodes() {
        let mut bytes = Vec::new();
        let put = Put {
            key: b"key",
            value: Some(b"value"),
        };
        put.encode(&mut bytes).unwrap();
        for len in 0..bytes.len() {
            assert_eq!(Put::decode(&bytes[..len]), None);
        }
        assert_eq!(Put::decode(&bytes), Some(put));
    }
}
