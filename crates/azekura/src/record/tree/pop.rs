//! Taking out the first or the last record, under the lock of its leaf.
//!
//! Leaves without records may lie before the first one, or after the last. They are held, too, by rising keys, until the record is out: so at
//! that moment it is the first, or the last. It does not know what a queue's keys mean.

use super::Core;
use super::cluster::cluster_of;
use super::layout::RunPlace;
use crate::error::Result;
use crate::log::AllocationClass;
use crate::node::tree::{Held, To};
use crate::node::{Found, Key};
use crate::room;

/// A key and its value.
type Record = (Vec<u8>, Vec<u8>);

/// What a look from a leaf on has taken out.
enum Popped {
    Record(Record),
    /// The store has none.
    Nothing,
    /// There is none from that leaf on, and leaves are before it.
    NothingHere,
}

impl Core {
    /// Takes out the first record, or the last; `None`: there is none.
    pub(super) fn pop(&self, is_first: bool) -> Result<Option<Record>> {
        let class = AllocationClass::Removal;
        let popped = self.with_room(class, || {
            let _inside = self.begin(class, 0)?;
            if is_first {
                Ok(match self.pop_inside(To::First, true)? {
                    Popped::Record(record) => Some(record),
                    Popped::Nothing | Popped::NothingHere => None,
                })
            } else {
                self.pop_last_inside()
            }
        })?;
        self.end()?;
        Ok(popped)
    }

    /// The last record is in the leaf where leaves, backwards, cease to be empty: from there on they are locked, and looked at again. Where
    /// others have emptied them meanwhile, leaves before them may have records.
    fn pop_last_inside(&self) -> Result<Option<Record>> {
        let mut before: Option<Vec<u8>> = None;
        loop {
            let to = To::Before(before.as_deref());
            let mut fence = Key::default();
            let lower = {
                let held = self.tree.lock_next_leaf(to)?;
                let node = self.node_of(held.frame);
                let has_lower = node.lower(&mut fence).is_some();
                (node.count() == 0 && has_lower).then(|| fence.bytes().to_vec())
            };
            match lower {
                Some(lower) => before = Some(lower),
                None => match self.pop_inside(to, false)? {
                    Popped::Record(record) => return Ok(Some(record)),
                    Popped::Nothing => return Ok(None),
                    Popped::NothingHere => before = None,
                },
            }
        }
    }

    /// Takes out the first record, or the last, of a leaf and those after it.
    fn pop_inside(&self, to: To<'_>, is_first: bool) -> Result<Popped> {
        let pin = self.log.pin();
        let most = (self.tree.nodes.limit() as usize / 8).max(1);
        // The leaf that has it, so far, and those without records after the ones that do not matter.
        let mut chosen = None;
        let mut empty: Vec<Held<'_>> = room::vec(1)?;
        let mut held = self.tree.lock_next_leaf(to)?;
        let mut fence = Key::default();
        let are_all = self.node_of(held.frame).lower(&mut fence).is_none();
        loop {
            let node = self.node_of(held.frame);
            let is_end = node.upper(&mut fence).is_none();
            if node.count() > 0 {
                chosen = Some(held);
                if !is_first {
                    empty.clear();
                }
            } else {
                if empty.len() == most {
                    // As many as that were passed before it can be called the first, or the last, of a moment at which they were empty.
                    empty.clear();
                }
                room::more(&mut empty, 1)?;
                empty.push(held);
            }
            if is_end || is_first && chosen.is_some() {
                break;
            }
            held = self.tree.lock_next_leaf(To::Key(fence.bytes()))?;
        }
        let Some(held) = chosen else {
            return Ok(if are_all {
                Popped::Nothing
            } else {
                Popped::NothingHere
            });
        };
        let node = self.node_of(held.frame);
        let mut stem = Key::default();
        let at = if is_first { 0 } else { node.count() - 1 };
        node.key(at, &mut stem);
        let (key, value) = match node.value(at) {
            Found::Outside(word) if RunPlace(word).is_list() => {
                let cluster = cluster_of(self, stem.bytes(), word)?;
                let at = if is_first {
                    0
                } else {
                    cluster.count().saturating_sub(1)
                };
                let record = cluster.record(at, &|word| self.read_run(word));
                let record = record.map_err(|error| error.key(stem.bytes()))?;
                let (rest, value) = record.unwrap_or_default();
                (room::concat(&[stem.bytes(), &rest])?, value)
            }
            _ => {
                let key = room::copy(stem.bytes())?;
                let value = self.value_in(node, &key)?.unwrap_or_default();
                (key, value)
            }
        };
        drop(pin);
        let is_sparse = self.erase_held(held, &key, AllocationClass::Removal)?;
        drop(empty);
        if is_sparse == Some(true) {
            self.join_leaf(&key);
        }
        Ok(Popped::Record((key, value)))
    }
}
