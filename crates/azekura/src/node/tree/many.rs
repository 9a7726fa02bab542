//! Changes of many entries of leaves that are held: all that compares keys is done before the first is changed.
//!
//! Leaves are divided until each has room for the changes in it, each time as a change of its own; then the place of each change is
//! found, as it will be when those before it in its leaf are made. So what is left is to change entries at known places, which does
//! not fail, and calls no comparator. It does not know what makes changes durable, nor when readers are kept out.

use super::{Held, NodeStore, Tree};
use crate::error::Result;
use crate::node::{Found, Node, Value};
use crate::room;

/// What becomes of an entry of a leaf.
pub trait EntryChange {
    /// Its key.
    fn key(&self) -> &[u8];
    /// What it is given; `None`: it is removed.
    fn value(&self) -> Option<Value<'_>>;

    /// Bytes that its leaf must have room for, at most.
    fn len(&self, node: Node<'_>) -> usize {
        let Some(value) = self.value() else { return 0 };
        let len = value.stored_len();
        let (at, is_present) = node.find(self.key());
        match is_present.then(|| node.value(at)) {
            Some(Found::Inside(before, _)) if before == len => 0,
            Some(Found::Outside(_)) if len == 8 => 0,
            _ => 8 + self.key().len() + len,
        }
    }
}

/// Where an entry is changed.
#[derive(Clone, Copy, Debug)]
pub struct EntryPlace {
    /// Which of the leaves.
    pub leaf: usize,
    /// Which of its entries, when those of lesser keys are changed.
    pub at: usize,
    /// Whether it is there.
    pub is_present: bool,
}

impl<S: NodeStore> Tree<S> {
    /// Divides leaves, which are held, until each has room for all changes in it, in the order of their keys; those with changes, and the
    /// others. `check` is called with the number of leaves whenever there are more. Errors: those of `check` and of a division, of
    /// which some may have happened; no record is changed.
    pub fn make_room<'t, C: EntryChange>(
        &'t self,
        held: Vec<Held<'t>>,
        changes: &[C],
        charge: S::Charge,
        check: &dyn Fn(usize) -> Result<()>,
    ) -> Result<(Vec<Held<'t>>, Vec<Held<'t>>)> {
        let mut ready: Vec<Held<'t>> = room::vec(held.len())?;
        let mut unchanged: Vec<Held<'t>> = room::vec(held.len())?;
        let mut waiting = held;
        waiting.reverse();
        let mut next = 0;
        while let Some(leaf) = waiting.pop() {
            let node = self.node(leaf.frame);
            let here = changes[next..]
                .iter()
                .take_while(|change| node.covers(change.key()))
                .count();
            let mine = &changes[next..next + here];
            let needed: usize = mine.iter().map(|change| change.len(node)).sum();
            let fits = match mine {
                [one] => one.value().is_none_or(|value| {
                    let (at, is_present) = node.find(one.key());
                    node.could_set(at, is_present, one.key(), value)
                }),
                _ => needed == 0 || node.fits(0, needed - 8),
            };
            if fits {
                next += here;
                let list = if here > 0 { &mut ready } else { &mut unchanged };
                room::more(list, 1)?;
                list.push(leaf);
                continue;
            }
            let key = mine[here / 2].key();
            let (left, right) = if node.count() >= 2 {
                self.divide(leaf, key, charge)?
            } else {
                // Between the new records: one of them has room next to one that is there.
                debug_assert!(here > 1);
                let (at, _) = node.find(key);
                self.divide_at(leaf, at, key, charge)?
            };
            check(ready.len() + unchanged.len() + waiting.len())?;
            room::more(&mut waiting, 2)?;
            waiting.push(right);
            waiting.push(left);
        }
        Ok((ready, unchanged))
    }

    /// Where changes are made, in the order of their keys, each in one of these leaves, which have room. Errors: `Full`.
    pub fn places<C: EntryChange>(
        &self,
        leaves: &[Held<'_>],
        changes: &[C],
    ) -> Result<Vec<EntryPlace>> {
        let mut places = room::vec(changes.len())?;
        // By how many there are more entries before it.
        let (mut leaf, mut more) = (0, 0);
        for change in changes {
            while !self.node(leaves[leaf].frame).covers(change.key()) {
                (leaf, more) = (leaf + 1, 0);
            }
            let (at, is_present) = self.node(leaves[leaf].frame).find(change.key());
            places.push(EntryPlace {
                leaf,
                at: at.saturating_add_signed(more),
                is_present,
            });
            more += match (change.value(), is_present) {
                (Some(_), false) => 1,
                (None, true) => -1,
                _ => 0,
            };
        }
        Ok(places)
    }
}
