//! Filling nodes with entries that come in order, each as full as it can be.
//!
//! A node is closed when its entries do not fit together with a fence before the next entry. So the fence is the shortest key that
//! divides two leaves, and all that the keys between two fences begin with alike is stored once. Entries that surely fit cost two
//! additions; the fence is computed for the last ones only.
//!
//! It does not know where nodes are written, or what entries mean.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::NODE_WORDS;
use crate::error::Result;
use crate::node::{KEY_LEN_MAX, Node, Value};
use crate::order::Order;
use crate::room;

/// Bytes of a node's own, before its slots.
const NODE_HEAD: usize = 24;
/// Bytes of a slot.
const SLOT: usize = 8;
/// Bytes of a key that stand in its slot.
const IN_SLOT: usize = 4;

// An entry of any length fits between any fences.
const _: () = assert!(NODE_HEAD + SLOT + 4 * KEY_LEN_MAX <= NODE_WORDS * 8);

/// A node that is full.
#[derive(Debug)]
pub(super) struct ClosedNode {
    /// No key in it is less; empty for the first node of a level.
    pub(super) lower: Vec<u8>,
    /// Of its first entry.
    pub(super) ordinal: u64,
    pub(super) bytes: Vec<u8>,
}

struct Entry {
    /// Where its key begins.
    at: usize,
    key_len: usize,
    value: Stored,
    ordinal: u64,
}

/// A value whose bytes, if any, come after the key's.
enum Stored {
    Inside(usize),
    Outside(u64),
}

impl Stored {
    fn len(&self) -> usize {
        match self {
            Self::Inside(len) => *len,
            Self::Outside(_) => 8,
        }
    }
}

/// The node of a level that is being filled.
pub(super) struct NodeBuilder {
    order: Order,
    level: u8,
    lower: Option<Vec<u8>>,
    /// Keys and values.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    values_len: usize,
    /// Bytes of keys outside of slots, were there no common prefix.
    tails_len: usize,
    /// The same with this common prefix.
    shortened: Shortened,
}

/// How much of the keys is stored where so many bytes are common to all.
#[derive(Default)]
struct Shortened {
    prefix: usize,
    tails_len: usize,
    /// Of how many entries.
    count: usize,
}

/// The shortest key, at a leaf in lexical order, that is greater than `before` and not greater than `key`.
fn fence<'k>(order: Order, level: u8, before: &[u8], key: &'k [u8]) -> &'k [u8] {
    if level > 0 || order != Order::Lexical {
        return key;
    }
    let common = common_len(before, key);
    &key[..key.len().min(common + 1)]
}

/// How many bytes two keys begin with alike.
pub(super) fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl NodeBuilder {
    pub(super) fn new(order: Order, level: u8) -> Self {
        Self {
            order,
            level,
            lower: None,
            bytes: Vec::new(),
            entries: Vec::new(),
            values_len: 0,
            tails_len: 0,
            shortened: Shortened::default(),
        }
    }

    fn key(&self, at: usize) -> &[u8] {
        let entry = &self.entries[at];
        &self.bytes[entry.at..entry.at + entry.key_len]
    }

    /// The key that was added last.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        let last = self.entries.len().checked_sub(1)?;
        Some(self.key(last))
    }

    fn in_slot(&self) -> usize {
        if self.order == Order::Lexical {
            IN_SLOT
        } else {
            0
        }
    }

    /// Adds an entry after all others; the node of those before, if it is full now.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        value: Value<'_>,
        ordinal: u64,
    ) -> Result<Option<ClosedNode>> {
        let mut closed = None;
        if !self.surely_fits() {
            let count = self.entries.len();
            let upper = fence(self.order, self.level, self.key(count - 1), key).to_vec();
            if !self.fits(Some(&upper)) {
                closed = Some(self.close_before_last()?);
            }
        }
        let at = self.bytes.len();
        let (inside, stored) = match value {
            Value::Inside(bytes) => (bytes, Stored::Inside(bytes.len())),
            Value::Outside(word) => (&[][..], Stored::Outside(word)),
        };
        room::more(&mut self.bytes, key.len() + inside.len())?;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(inside);
        self.values_len += stored.len();
        self.tails_len += key.len().saturating_sub(self.in_slot());
        self.entries.push(Entry {
            at,
            key_len: key.len(),
            value: stored,
            ordinal,
        });
        Ok(closed)
    }

    /// The nodes of what is left, at most two, when no entry follows.
    pub(super) fn finish(&mut self) -> Result<Vec<ClosedNode>> {
        let mut closed = Vec::new();
        if self.entries.is_empty() {
            return Ok(closed);
        }
        if !self.fits(None) {
            closed.push(self.close_before_last()?);
        }
        closed.push(self.close(self.entries.len(), None)?);
        self.entries.clear();
        Ok(closed)
    }

    fn lower_len(&self) -> usize {
        self.lower.as_ref().map_or(0, Vec::len)
    }

    /// Whether the entries fit, whatever the upper fence is.
    fn surely_fits(&self) -> bool {
        let fences = self.lower_len() + KEY_LEN_MAX;
        let entries = self.entries.len() * SLOT + self.tails_len + self.values_len;
        NODE_HEAD + fences + entries <= NODE_WORDS * 8
    }

    /// Whether the entries fit with this upper fence.
    fn fits(&mut self, upper: Option<&[u8]>) -> bool {
        let prefix = match (&self.lower, upper, self.order) {
            (Some(lower), Some(upper), Order::Lexical) => common_len(lower, upper),
            _ => 0,
        };
        if prefix != self.shortened.prefix {
            self.shortened = Shortened {
                prefix,
                ..Shortened::default()
            };
        }
        let in_slot = self.in_slot();
        for entry in &self.entries[self.shortened.count..] {
            self.shortened.tails_len += entry.key_len.saturating_sub(prefix + in_slot);
        }
        self.shortened.count = self.entries.len();
        let fences = self.lower_len() + upper.map_or(0, <[u8]>::len);
        let entries = self.entries.len() * SLOT + self.shortened.tails_len + self.values_len;
        NODE_HEAD + fences + entries <= NODE_WORDS * 8
    }

    /// Closes the node before its last entry, which begins the next one. With that fence they did fit when the last one came, or one
    /// alone does.
    fn close_before_last(&mut self) -> Result<ClosedNode> {
        let last = self.entries.len() - 1;
        if last == 0 {
            unreachable!("one entry fits between any fences");
        }
        let upper = fence(self.order, self.level, self.key(last - 1), self.key(last)).to_vec();
        let closed = self.close(last, Some(&upper))?;
        let entry = self.entries.remove(last);
        self.entries.clear();
        self.bytes.drain(..entry.at);
        self.values_len = entry.value.len();
        self.tails_len = entry.key_len.saturating_sub(self.in_slot());
        self.shortened = Shortened::default();
        self.entries.push(Entry { at: 0, ..entry });
        self.lower = Some(upper);
        Ok(closed)
    }

    /// The node of the first `count` entries.
    fn close(&self, count: usize, upper: Option<&[u8]>) -> Result<ClosedNode> {
        let words: [AtomicU64; NODE_WORDS] = [const { AtomicU64::new(0) }; NODE_WORDS];
        let node = Node::new(&words, self.order);
        node.init(self.level, self.lower.as_deref(), upper);
        for (at, entry) in self.entries.iter().enumerate().take(count) {
            let key_end = entry.at + entry.key_len;
            let value = match entry.value {
                Stored::Inside(len) => Value::Inside(&self.bytes[key_end..key_end + len]),
                Stored::Outside(word) => Value::Outside(word),
            };
            let has_room = node.insert(at, self.key(at), value);
            assert!(
                has_room,
                "the sizes of a node's entries were added up wrongly"
            );
        }
        let mut bytes = room::vec(NODE_WORDS * 8)?;
        for word in &words {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        Ok(ClosedNode {
            lower: room::copy(self.lower.as_deref().unwrap_or_default())?,
            ordinal: self.entries.first().map_or(0, |entry| entry.ordinal),
            bytes,
        })
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::node::{Found, Key};
    use crate::testkit::Random;

    /// Fills nodes with these entries, and reads them again.
    fn round_trip(order: Order, entries: &[(Vec<u8>, Vec<u8>)]) -> usize {
        let mut builder = NodeBuilder::new(order, 0);
        let mut nodes = Vec::new();
        for (at, (key, value)) in entries.iter().enumerate() {
            nodes.extend(builder.add(key, Value::Inside(value), at as u64).unwrap());
        }
        nodes.extend(builder.finish().unwrap());
        let mut at = 0;
        let mut before: Option<Vec<u8>> = None;
        for closed in &nodes {
            assert_eq!(closed.ordinal, at as u64);
            let words: Vec<AtomicU64> = closed
                .bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| AtomicU64::new(u64::from_le_bytes(*word)))
                .collect();
            let node = Node::new(&words, order);
            let mut key = Key::default();
            let lower = node.lower(&mut key).map(|()| key.bytes().to_vec());
            assert_eq!(lower, before, "a node begins where the one before ends");
            before = node.upper(&mut key).map(|()| key.bytes().to_vec());
            for index in 0..node.count() {
                let (expected, value) = &entries[at];
                node.key(index, &mut key);
                assert_eq!(key.bytes(), expected);
                assert!(node.covers(expected) || before.as_ref() == Some(expected));
                let Found::Inside(len, offset) = node.value(index) else {
                    panic!("a value inside");
                };
                let mut found = vec![0; len];
                node.copy(offset, &mut found);
                assert_eq!(found, *value);
                at += 1;
            }
        }
        assert_eq!(at, entries.len());
        assert_eq!(before, None);
        nodes.len()
    }

    #[test]
    fn ascending_records_of_eight_and_eight_bytes_fill_nodes() {
        let entries: Vec<_> = (0..100_000)
            .map(|number| (format!("{number:08}").into_bytes(), vec![7; 8]))
            .collect();
        let nodes = round_trip(Order::Lexical, &entries);
        // 16 to 17 bytes each: a slot and a value, and little of a key.
        assert!(nodes <= 100_000 / 235, "{nodes} nodes");
    }

    #[test]
    fn entries_of_any_length_come_back() {
        let mut random = Random::new(3);
        for round in 0..60 {
            let alphabet = if round % 2 == 0 { 2 } else { 256 };
            let longest = *random.choose(&[1, 9, 40, 510]);
            let value_max = *random.choose(&[0, 8, 510]);
            let mut entries: Vec<(Vec<u8>, Vec<u8>)> = (0..800)
                .map(|_| {
                    let len = random.index(longest + 1);
                    let key = (0..len).map(|_| random.index(alphabet) as u8);
                    (key.collect(), vec![1; random.index(value_max + 1)])
                })
                .collect();
            let order = *random.choose(&Order::ALL);
            entries.sort_by(|(a, _), (b, _)| order.compare(a, b));
            round_trip(order, &entries);
        }
    }

    #[test]
    fn nothing_makes_no_node() {
        assert_eq!(round_trip(Order::Lexical, &[]), 0);
    }
}
