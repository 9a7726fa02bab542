//! Keys too long for a node: those with the same beginning are one entry, whose value stands outside and lists them.
//!
//! In lexical order a key of 510 bytes or more is its *stem*, the first 510, and the rest, and the order of keys is that
//! of stems, then of rests. So an entry whose key has 510 bytes is a cluster: a cell with a word for each member, in
//! order, and each member a cell of its own. An update makes a new list, which costs eight bytes for each record that shares the
//! stem; a value is not copied for its neighbours' sake. Other orders do not divide so, and have no longer keys. Nodes
//! know nothing of this.
//!
//! | offset in a member | size | meaning |
//! |---|---|---|
//! | 0 | 4 | length of the rest of the key |
//! | 4 | .. | the rest, then the value |

use super::BabyDb;
use super::budget::Pay;
use crate::engine::Edit;
use crate::epoch::{Domain, Pin};
use crate::error::Result;
use crate::node::{Found, KEY_LEN_MAX, Node, Value};
use crate::order::Order;
use crate::room;

/// Bytes of a stem.
pub(super) const STEM: usize = KEY_LEN_MAX;

/// The members of a cluster.
#[derive(Clone, Copy)]
pub(super) struct Cluster<'p> {
    pin: &'p Pin,
    /// A word each.
    list: &'p [u8],
}

/// A record with a long key.
#[derive(Clone, Copy)]
pub(super) struct Member<'p> {
    pub(super) word: u64,
    pub(super) rest: &'p [u8],
    pub(super) value: &'p [u8],
}

impl<'p> Cluster<'p> {
    /// The cluster after a word, which was found under the pin as the value of a key of a stem's length.
    pub(super) fn at(pin: &'p Pin, word: u64) -> Self {
        let list = BabyDb::outside(pin, word);
        Self { pin, list }
    }

    /// The members that an entry's value lists; none if there is no value.
    pub(super) fn of(pin: &'p Pin, found: Option<Found>) -> Self {
        match found {
            Some(Found::Outside(word)) => Self::at(pin, word),
            Some(Found::Inside(..)) | None => Self { pin, list: &[] },
        }
    }

    pub(super) fn count(self) -> usize {
        self.list.len() / 8
    }

    pub(super) fn words(self) -> impl ExactSizeIterator<Item = u64> {
        let words = self.list.as_chunks::<8>().0;
        words.iter().map(|word| u64::from_le_bytes(*word))
    }

    fn member(self, word: u64) -> Member<'p> {
        let bytes = BabyDb::outside(self.pin, word);
        let (rest, value) = bytes
            .split_first_chunk::<4>()
            .and_then(|(len, bytes)| bytes.split_at_checked(u32::from_le_bytes(*len) as usize))
            .unwrap_or_default();
        Member { word, rest, value }
    }

    /// The one at a place.
    pub(super) fn get(self, at: usize) -> Option<Member<'p>> {
        let word = self.list.as_chunks::<8>().0.get(at)?;
        Some(self.member(u64::from_le_bytes(*word)))
    }

    /// How many come before a rest, itself counted or not.
    pub(super) fn before(self, rest: &[u8], is_after: bool) -> usize {
        match self.find(rest) {
            Ok((at, _)) => at + usize::from(is_after),
            Err(at) => at,
        }
    }

    /// Where the member with this rest is, or would be.
    pub(super) fn find(self, rest: &[u8]) -> std::result::Result<(usize, Member<'p>), usize> {
        let words = self.list.as_chunks::<8>().0;
        let of = |word: &[u8; 8]| self.member(u64::from_le_bytes(*word));
        let at = words.partition_point(|word| of(word).rest < rest);
        match words.get(at).map(of) {
            Some(member) if member.rest == rest => Ok((at, member)),
            _ => Err(at),
        }
    }
}

/// Shows the words of all that stands outside of a leaf, of lists and of their members.
pub(super) fn words_of(domain: &Domain, node: Node<'_>, order: Order, visit: &mut dyn FnMut(u64)) {
    for at in 0..node.count() {
        let Found::Outside(word) = node.value(at) else {
            continue;
        };
        if is_stem(order, node.key_len(at)) {
            let pin = domain.pin();
            Cluster::at(&pin, word).words().for_each(&mut *visit);
        }
        visit(word);
    }
}

/// Whether a key of so many bytes in a node is the stem of a cluster.
#[inline(always)]
pub(super) fn is_stem(order: Order, len: usize) -> bool {
    len == STEM && order == Order::Lexical
}

impl BabyDb {
    /// Whether a key is a member's.
    #[inline(always)]
    pub(super) fn is_long(&self, key: &[u8]) -> bool {
        key.len() >= STEM && self.tree.order == Order::Lexical
    }

    /// Lends the value of a long key.
    #[cold]
    #[inline(never)]
    pub(super) fn read_long<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let pin = self.domain.pin();
        let (stem, rest) = key.split_at(STEM);
        let found = match self.see(stem, &mut super::Buffer::default()) {
            super::Seen::Outside(word) => Some(Found::Outside(word)),
            super::Seen::Absent | super::Seen::Copied(_) => None,
        };
        let member = Cluster::of(&pin, found).find(rest);
        visit(member.ok().map(|(_, member)| member.value))
    }

    /// Makes a member. Errors as [`put_outside`](Self::put_outside).
    pub(super) fn make_member(&self, rest: &[u8], value: &[u8]) -> Result<u64> {
        let len = (rest.len() as u32).to_le_bytes();
        self.put_outside(&[&len, rest, value], Pay::Asked)
    }

    /// Makes a list of members, of which there were `before`. Errors as [`put_outside`](Self::put_outside), but for a
    /// shorter list the budget is not asked.
    pub(super) fn make_list(&self, words: &[u64], before: usize) -> Result<u64> {
        let list = room::collect(words.iter().map(|word| word.to_le_bytes()))?;
        let pay = if words.len() < before {
            Pay::Anyway
        } else {
            Pay::Asked
        };
        self.put_outside(&[list.as_flattened()], pay)
    }

    /// Removes a long key; whether it was there.
    #[cold]
    pub(super) fn remove_long(&self, key: &[u8]) -> Result<bool> {
        if key.len() as u64 > self.limits.key {
            return Ok(false);
        }
        let mut is_present = false;
        self.edit_long(key, |value| {
            is_present = value.is_some();
            Edit::Remove
        })?;
        Ok(is_present)
    }

    /// One update of a long key.
    #[cold]
    #[inline(never)]
    pub(super) fn edit_long<'a>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        self.limits.check(key, &[])?;
        let _inside = self.gate.enter();
        let pin = self.domain.pin();
        let (stem, rest) = key.split_at(STEM);
        let Ok(held) = self.tree.lock_leaf(stem);
        let node = self.tree.node(held.frame);
        let (at, is_present) = node.find(stem);
        let cluster = Cluster::of(&pin, is_present.then(|| node.value(at)));
        let place = cluster.find(rest);
        let before = place.ok().map(|(_, member)| member);
        let count = cluster.count();
        let mut words = room::vec(count + 1)?;
        words.extend(cluster.words());
        match decide(before.map(|member| member.value)) {
            Edit::Put(value) => {
                self.limits.check(key, &value)?;
                let member = self.make_member(rest, &value)?;
                match place {
                    Ok((place, _)) => words[place] = member,
                    Err(place) => words.insert(place, member),
                }
                let stored = self.make_list(&words, count).and_then(|list| {
                    self.store(&pin, held, stem, at, is_present, Value::Outside(list))
                });
                if let Err(error) = stored {
                    self.discard(Value::Outside(member));
                    return Err(error);
                }
                // A new entry was counted when it was stored.
                if before.is_none() && is_present {
                    self.count.add(&pin, 1);
                }
            }
            Edit::Remove => {
                let Ok((place, _)) = place else { return Ok(()) };
                words.remove(place);
                if words.is_empty() {
                    self.erase(&pin, held, at);
                } else {
                    let list = self.make_list(&words, count)?;
                    self.store(&pin, held, stem, at, true, Value::Outside(list))?;
                    self.count.add(&pin, -1);
                }
            }
            Edit::Keep => return Ok(()),
        }
        self.retire(before.map(|member| Found::Outside(member.word)));
        Ok(())
    }
}
