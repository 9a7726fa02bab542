//! Dividing a node in two, entered in the node above, and joining two; and so on upward.
//!
//! | change | locked when it begins |
//! |---|---|
//! | a node is divided | the node, its new half, the node above, which has room for one entry more |
//! | the root is divided | the root, and two new nodes that take its entries: it becomes the node above them |
//! | two nodes are joined | both, and the node above |
//! | a leaf takes entries of the next one | both, and the node above, which has room for their new fence |
//!
//! A node above without room is divided first, as a change of its own. It does not know why a node is divided or joined.

use super::{Held, NodeStore, ROOT, To, Tree};
use crate::error::Result;
use crate::node::{Key, Node, Value};

/// Bytes that a child's number takes in an entry.
const CHILD: usize = 4;
/// Steps in which a leaf is filled, at most.
const FILLED: usize = 64;

/// What a step of filling a leaf did.
enum Fill {
    /// The next leaf is one with it.
    Joined,
    /// The next leaf is to be read first.
    NotInMemory,
    /// It is as full as it becomes.
    Done,
    /// As that, and there is none after it.
    Last,
}

impl<S: NodeStore> Tree<S> {
    /// Divides a node, where an entry for `key` did not fit; both halves, which stay locked and are being changed. On an error
    /// nothing is changed. Errors: as the store gives them for a new node, a moment and a load.
    #[cold]
    pub fn divide<'t>(
        &'t self,
        held: Held<'t>,
        key: &[u8],
        charge: S::Charge,
    ) -> Result<(Held<'t>, Held<'t>)> {
        let node = self.node(held.frame);
        let (at, _) = node.find(key);
        let at = node.division(at);
        let mut separator = Key::default();
        node.separator(at, &mut separator);
        self.divide_at(held, at, separator.bytes(), charge)
    }

    /// As [`divide`](Self::divide), before the entry at `at`, with `separator` between the halves: one of them may be empty.
    pub fn divide_at<'t>(
        &'t self,
        held: Held<'t>,
        at: usize,
        separator: &[u8],
        charge: S::Charge,
    ) -> Result<(Held<'t>, Held<'t>)> {
        if held.number == ROOT {
            return self.raise(held, at, separator, charge);
        }
        let right = NewNode::take(&self.nodes, charge)?;
        let above = self.above_with_room(&held, separator, charge)?;
        // Found before anything is changed: a comparator of a program's own may panic.
        let place = self.node(above.frame).child_of(separator) + 1;
        let moment = self.nodes.moment()?;
        let right = right.keep();
        for changed in [&held, &above, &right] {
            self.nodes.change(changed, &moment);
        }
        let node = self.node(held.frame);
        node.divide(self.node(right.frame), at, separator);
        enter(self.node(above.frame), place, separator, right.number);
        Ok((held, right))
    }

    /// The node above one that is not the root, locked, with room for an entry more.
    fn above_with_room<'t>(
        &'t self,
        held: &Held<'t>,
        separator: &[u8],
        charge: S::Charge,
    ) -> Result<Held<'t>> {
        let level = u32::from(self.node(held.frame).level()) + 1;
        loop {
            // While a node below the root is locked, the root stays above it.
            let found = self.lock_besides(To::Key(separator), level);
            let found = found.map_err(S::error)?;
            let Some(mut above) = found else { continue };
            while !self.node(above.frame).fits(separator.len(), CHILD) {
                let (left, right) = self.divide(above, separator, charge)?;
                above = if self.node(right.frame).covers(separator) {
                    right
                } else {
                    left
                };
            }
            return Ok(above);
        }
    }

    /// Divides the root, whose entries go to two new nodes.
    fn raise<'t>(
        &'t self,
        root: Held<'t>,
        at: usize,
        separator: &[u8],
        charge: S::Charge,
    ) -> Result<(Held<'t>, Held<'t>)> {
        let left = NewNode::take(&self.nodes, charge)?;
        let right = NewNode::take(&self.nodes, charge)?;
        let moment = self.nodes.moment()?;
        let (left, right) = (left.keep(), right.keep());
        for changed in [&root, &left, &right] {
            self.nodes.change(changed, &moment);
        }
        let node = self.node(root.frame);
        let level = node.level();
        self.node(left.frame).copy_from(node);
        self.node(left.frame)
            .divide(self.node(right.frame), at, separator);
        node.init(level + 1, None, None);
        enter(node, 0, &[], left.number);
        enter(node, 1, separator, right.number);
        drop(root);
        Ok((left, right))
    }

    /// Joins a node that has become sparse with a neighbour, if that is near and free; and so on upward. Nothing is lost if it
    /// cannot be done. Whether it may be done once the neighbours are in memory.
    #[cold]
    pub fn join(&self, held: Held<'_>) -> bool {
        if held.number == ROOT {
            return false;
        }
        let Ok(Some((parent, at))) = self.above(&held) else {
            return false;
        };
        let above = self.node(parent.frame);
        let is_in_memory = |at| at >= above.count() || self.nodes.frame(above.child(at)).is_some();
        let are_near = is_in_memory(at + 1) && is_in_memory(at.saturating_sub(1));
        let Some((right_at, left, right)) = self.neighbours(above, at, held) else {
            return !are_near;
        };
        let Ok(moment) = self.nodes.moment() else {
            return false;
        };
        self.join_two((left, right), (parent, right_at), moment);
        false
    }

    /// The node above one that is not the root, locked, and which of its entries that is. `None`: the root is below it.
    fn above(&self, held: &Held<'_>) -> std::result::Result<Option<(Held<'_>, usize)>, S::Fault> {
        let node = self.node(held.frame);
        let level = u32::from(node.level());
        let mut lower = Key::default();
        // A node without a lower fence is the first of its level: the empty key may be elsewhere in other orders.
        let has_lower = node.lower(&mut lower).is_some();
        let to = if has_lower {
            To::Key(lower.bytes())
        } else {
            To::First
        };
        let Some(parent) = self.lock_besides(to, level + 1)? else {
            return Ok(None);
        };
        let above = self.node(parent.frame);
        let at = if has_lower {
            above.child_of(lower.bytes())
        } else {
            0
        };
        debug_assert_eq!(above.child(at), held.number);
        Ok(Some((parent, at)))
    }

    /// Makes two neighbours one, of which the right one has the entry at `right_at` in the node above; and so on upward.
    fn join_two(
        &self,
        (left, right): (Held<'_>, Held<'_>),
        (parent, right_at): (Held<'_>, usize),
        moment: S::Moment,
    ) {
        let (into, from) = (self.node(left.frame), self.node(right.frame));
        let above = self.node(parent.frame);
        for changed in [&left, &right, &parent] {
            self.nodes.change(changed, &moment);
        }
        into.take(from);
        above.remove(right_at);
        self.nodes.give(right, &moment);
        if above.count() == 1 && parent.number == ROOT {
            // What is left of the level is the root.
            above.copy_from(into);
            self.nodes.give(left, &moment);
            return;
        }
        drop(left);
        drop(moment);
        if above.count() == 1 || is_sparse(above) {
            self.join(parent);
        }
    }

    /// Fills the leaf where a way leads with entries of the next ones below the same node, until a sixteenth of it is free at most, or not
    /// one more fits; leaves that become empty are taken out of use. Whether there are leaves after it: then `next` is where they begin. One that
    /// another thread changes is left as it is. Costs a read of each leaf that is not in memory. Errors: as the store gives
    /// them for a load and a moment; each change is done wholly or not at all.
    pub fn fill_leaf(&self, to: To<'_>, next: &mut Key) -> Result<bool> {
        let mut has_next = true;
        for _ in 0..FILLED {
            let held = self.lock_next_leaf(to).map_err(S::error)?;
            match self.fill_from_next(held, next)? {
                Fill::Joined => {}
                Fill::NotInMemory => {
                    let way = self.way(To::Key(next.bytes()), 0);
                    way.map_err(S::error)?;
                }
                Fill::Done => break,
                Fill::Last => {
                    has_next = false;
                    break;
                }
            }
        }
        Ok(has_next)
    }

    /// One step of [`fill_leaf`](Self::fill_leaf).
    fn fill_from_next(&self, held: Held<'_>, next: &mut Key) -> Result<Fill> {
        let node = self.node(held.frame);
        if held.number == ROOT || node.upper(next).is_none() {
            return Ok(Fill::Last);
        }
        if node.used() * 16 >= node.room() * 15 {
            return Ok(Fill::Done);
        }
        let Some((parent, at)) = self.above(&held).map_err(S::error)? else {
            return Ok(Fill::Done);
        };
        let above = self.node(parent.frame);
        let right_at = at + 1;
        if right_at >= above.count() {
            return Ok(Fill::Done);
        }
        let number = above.child(right_at);
        let Some(frame) = self.nodes.frame(number) else {
            return Ok(Fill::NotInMemory);
        };
        let right = Held::try_lock(number, frame);
        let Some(right) = right.filter(|right| self.nodes.holds(right.frame, number)) else {
            return Ok(Fill::Done);
        };
        let from = self.node(right.frame);
        if node.could_take_all(from) {
            let moment = self.nodes.moment()?;
            self.join_two((held, right), (parent, right_at), moment);
            return Ok(Fill::Joined);
        }
        let mut separator = Key::default();
        let Some(count) = node.share(from, &mut separator) else {
            return Ok(Fill::Done);
        };
        if !above.could_rename(right_at, separator.bytes()) {
            return Ok(Fill::Done);
        }
        let moment = self.nodes.moment()?;
        for changed in [&held, &right, &parent] {
            self.nodes.change(changed, &moment);
        }
        node.take_first(from, count, separator.bytes());
        above.rename(right_at, separator.bytes());
        next.set(separator.bytes());
        Ok(Fill::Done)
    }

    /// Joins the leaf of `key`, if it is sparse, with one next to it that is free. Costs and errors as for [`join_at`](Self::join_at).
    pub fn join_leaf(&self, key: &[u8]) -> std::result::Result<(), S::Fault> {
        self.join_at(To::Key(key), 0)
    }

    /// Joins the node where a way leads at a level, if it is sparse, with one next to it that is free; they are brought into memory. Costs a
    /// read of each that is not there. Errors: those of these reads.
    pub(super) fn join_at(&self, to: To<'_>, level: u32) -> std::result::Result<(), S::Fault> {
        let Some(held) = self.lock_besides(to, level)? else {
            return Ok(());
        };
        let node = self.node(held.frame);
        if held.number == ROOT || !is_sparse(node) {
            return Ok(());
        }
        let (mut low, mut up) = (Key::default(), Key::default());
        let (lower, upper) = (node.lower(&mut low), node.upper(&mut up));
        if !self.join(held) {
            return Ok(());
        }
        if upper.is_some() {
            self.way(To::Key(up.bytes()), level)?;
        }
        if lower.is_some() {
            self.way(To::Before(Some(low.bytes())), level)?;
        }
        match self.lock_besides(to, level)? {
            Some(held) if is_sparse(self.node(held.frame)) => drop(self.join(held)),
            _ => {}
        }
        Ok(())
    }

    /// The child at `at`, which is held, and one next to it that it can be one with, in order; and the right one's entry.
    fn neighbours<'t>(
        &'t self,
        above: Node<'_>,
        at: usize,
        held: Held<'t>,
    ) -> Option<(usize, Held<'t>, Held<'t>)> {
        let try_lock = |at| {
            let number = above.child(at);
            // One that is not in memory is not worth an access.
            let held = Held::try_lock(number, self.nodes.frame(number)?)?;
            self.nodes.holds(held.frame, number).then_some(held)
        };
        let node = self.node(held.frame);
        if at + 1 < above.count()
            && let Some(right) = try_lock(at + 1)
            && node.could_take(self.node(right.frame))
        {
            return Some((at + 1, held, right));
        }
        let left = try_lock(at.checked_sub(1)?)?;
        let could = self.node(left.frame).could_take(node);
        could.then_some((at, left, held))
    }
}

/// A new node, which is given back unless it is kept: on an error, and where a comparator panics.
struct NewNode<'t, S: NodeStore> {
    nodes: &'t S,
    held: Option<Held<'t>>,
}

impl<'t, S: NodeStore> NewNode<'t, S> {
    fn take(nodes: &'t S, charge: S::Charge) -> Result<Self> {
        let held = Some(nodes.take(charge)?);
        Ok(Self { nodes, held })
    }

    fn keep(mut self) -> Held<'t> {
        let held = self.held.take();
        held.unwrap_or_else(|| unreachable!("it is kept once"))
    }
}

impl<S: NodeStore> Drop for NewNode<'_, S> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.nodes.give_back(held);
        }
    }
}

fn enter(node: Node<'_>, at: usize, key: &[u8], child: u32) {
    let entered = node.insert(at, key, Value::Inside(&child.to_le_bytes()));
    debug_assert!(entered, "it fits");
}

/// Whether a node is so empty that it should join a neighbour; now and then only, as that may be full.
#[inline(always)]
pub fn is_sparse(node: Node<'_>) -> bool {
    let count = node.count();
    let is_time = count.is_multiple_of(16) || count < 16 && count.is_power_of_two();
    is_time && node.used() * 3 < node.room()
}
