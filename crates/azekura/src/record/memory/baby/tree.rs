//! The tree: the way down without locks, and how nodes divide and join.
//!
//! A node on the way is read between two looks at its latch's version, and the descent continues only if they were equal; the
//! version of a child is taken before the parent's second look, so the child was the right one then. Who wants to change
//! something locks the one node at the end of the way, and looks at the parent once more.
//!
//! Lock order: nodes from the leaves upward, the root's place last; leaves among each other by rising keys. A neighbour
//! to be joined is on the same level, and out of order: it is only tried. So no two threads wait for each other, and no
//! change locks more than a node, its new half or its neighbour, and their parents as far as they change too.
//!
//! Invariants: fences of a node are keys of its parent's entries, its own and the next; a level of the tree covers all
//! keys, each once; what is dead has no entry. The root has no fences.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::budget::{Budget, Pay};
use super::frame::{Frame, Frames};
use crate::epoch::Domain;
use crate::error::Result;
use crate::explore;
use crate::node::{Key, Latch, Locked, Node, Value};
use crate::order::Order;

/// Lines at a frame's beginning that a search may touch: header and slots.
pub(super) const LINES_OF_LEAF: usize = 20;
const LINES_OF_INNER: usize = 2;
/// Bytes that a child's number takes in an entry.
const CHILD: usize = 4;

/// Where a way leads: before or at a key.
#[derive(Clone, Copy)]
pub(super) enum To<'k> {
    /// The node where this key is or would be.
    Key(&'k [u8]),
    /// The node with the greatest keys less than this; `None`: with the greatest of all.
    Before(Option<&'k [u8]>),
    /// The node with the least keys.
    First,
}

/// The end of a way, and what must still hold for it to count.
#[derive(Clone, Copy)]
pub(super) struct Descent<'t> {
    pub(super) number: u32,
    pub(super) frame: &'t Frame,
    parent: &'t Latch,
    version: u64,
}

impl Descent<'_> {
    /// Whether the way still leads here.
    #[inline(always)]
    pub(super) fn is_still(&self) -> bool {
        self.parent.is_still(self.version)
    }
}

/// A node, locked.
pub(super) struct Held<'t> {
    pub(super) number: u32,
    pub(super) frame: &'t Frame,
    pub(super) lock: Locked<'t>,
}

impl<'t> Held<'t> {
    #[inline(always)]
    fn lock(number: u32, frame: &'t Frame) -> Self {
        let lock = frame.latch.lock();
        Self {
            number,
            frame,
            lock,
        }
    }
}

pub(super) struct Tree {
    pub(super) order: Order,
    pub(super) frames: Frames,
    /// The root's number, and above it 32 bits of its level. Changed under the lock of `top`.
    root: AtomicU64,
    top: Latch,
}

impl Tree {
    pub(super) fn new(domain: Domain, order: Order, budget: Arc<Budget>) -> Result<Self> {
        let frames = Frames::new(domain, budget)?;
        let tree = Self {
            order,
            frames,
            root: AtomicU64::new(0),
            top: Latch::default(),
        };
        tree.node(tree.frames.at(0)).init(0, None, None);
        Ok(tree)
    }

    #[inline(always)]
    pub(super) fn node<'t>(&self, frame: &'t Frame) -> Node<'t> {
        Node::new(&frame.words, self.order)
    }

    fn root(&self) -> (u32, u32) {
        explore::yield_point();
        let root = self.root.load(Ordering::Acquire);
        (root as u32, (root >> 32) as u32)
    }

    /// Levels above the leaves.
    pub(super) fn height(&self) -> u32 {
        self.root().1
    }

    /// The way down to `level`; `None`: the root is below it.
    #[inline(always)]
    pub(super) fn way(&self, to: To<'_>, level: u32) -> Option<Descent<'_>> {
        'again: loop {
            let mut parent = &self.top;
            let mut version = parent.begin();
            let (mut number, mut at) = self.root();
            if !parent.is_still(version) {
                continue;
            }
            if at < level {
                return None;
            }
            while at > level {
                let frame = self.frames.at(number);
                let seen = frame.latch.begin();
                if !parent.is_still(version) {
                    continue 'again;
                }
                let node = self.node(frame);
                let entry = match to {
                    To::Key(key) => node.child_of(key),
                    To::Before(key) => node.child_before(key),
                    To::First => 0,
                };
                number = node.child(entry);
                at -= 1;
                let lines = if at == 0 {
                    LINES_OF_LEAF
                } else {
                    LINES_OF_INNER
                };
                self.frames.prefetch(number, lines);
                (parent, version) = (&frame.latch, seen);
                if !parent.is_still(version) {
                    continue 'again;
                }
            }
            return Some(self.end(number, parent, version));
        }
    }

    /// The way to a leaf.
    #[inline(always)]
    pub(super) fn way_to_leaf(&self, to: To<'_>) -> Descent<'_> {
        loop {
            if let Some(end) = self.way(to, 0) {
                return end;
            }
        }
    }

    /// The end of a way at the child of the node that `parent` guards.
    #[inline(always)]
    pub(super) fn end<'t>(&'t self, number: u32, parent: &'t Latch, version: u64) -> Descent<'t> {
        Descent {
            number,
            frame: self.frames.at(number),
            parent,
            version,
        }
    }

    /// Locks the leaf where `key` is or would be.
    #[inline(always)]
    pub(super) fn lock_leaf(&self, key: &[u8]) -> Held<'_> {
        loop {
            if let Some(held) = self.lock(key, 0) {
                return held;
            }
        }
    }

    /// Locks the node of `level` that covers `key`; `None`: the root is below it.
    #[inline(always)]
    fn lock(&self, key: &[u8], level: u32) -> Option<Held<'_>> {
        loop {
            let end = self.way(To::Key(key), level)?;
            let held = Held::lock(end.number, end.frame);
            // No thread changed the parent, or at least this is still the right one: no thread changes it any more.
            let is_right = end.is_still() || self.is_place_of(&held, key, level);
            if is_right {
                return Some(held);
            }
        }
    }

    #[cold]
    fn is_place_of(&self, held: &Held<'_>, key: &[u8], level: u32) -> bool {
        let node = self.node(held.frame);
        !held.lock.is_dead() && u32::from(node.level()) == level && node.covers(key)
    }

    /// A new node, locked, being changed, and of no use to anybody yet.
    fn fresh(&self, pay: Pay) -> Result<Held<'_>> {
        let number = self.frames.take(pay)?;
        let held = Held::lock(number, self.frames.at(number));
        held.lock.change();
        held.lock.set_dead(false);
        Ok(held)
    }

    /// Takes a node out of use. Nothing points to it any more.
    fn mark_dead(&self, held: Held<'_>) {
        held.lock.change();
        held.lock.set_dead(true);
        let number = held.number;
        drop(held);
        self.frames.give(number);
    }

    /// Divides a node, where an entry for `key` did not fit at `at`. Both halves stay locked and are being changed; on an
    /// error nothing is changed. `Full`: no memory.
    #[cold]
    pub(super) fn divide<'t>(&'t self, held: &Held<'t>, key: &[u8], pay: Pay) -> Result<Held<'t>> {
        let node = self.node(held.frame);
        let (at, _) = node.find(key);
        let at = node.division(at);
        let mut separator = Key::default();
        node.separator(at, &mut separator);
        let separator = separator.bytes();
        let right = self.fresh(pay)?;
        let done = self.enter(held, separator, right.number, pay);
        if let Err(error) = done {
            self.mark_dead(right);
            return Err(error);
        }
        held.lock.change();
        node.divide(self.node(right.frame), at, separator);
        drop(done);
        Ok(right)
    }

    /// Makes `right` the neighbour of `held` in its parent, which stays locked until the node is divided.
    fn enter<'t>(
        &'t self,
        held: &Held<'t>,
        separator: &[u8],
        right: u32,
        pay: Pay,
    ) -> Result<Above<'t>> {
        let level = u32::from(self.node(held.frame).level());
        let Some(mut parent) = self.lock(separator, level + 1) else {
            return self.raise(held, separator, right, pay);
        };
        while !self.node(parent.frame).fits(separator.len(), CHILD) {
            let half = self.divide(&parent, separator, pay)?;
            if self.node(half.frame).covers(separator) {
                parent = half;
            }
        }
        parent.lock.change();
        let node = self.node(parent.frame);
        let child = right.to_le_bytes();
        let entered = node.insert(
            node.child_of(separator) + 1,
            separator,
            Value::Inside(&child),
        );
        debug_assert!(entered, "it fits");
        Ok(Above::Parent(parent))
    }

    /// A new root, above the old one and its new half.
    fn raise<'t>(
        &'t self,
        held: &Held<'t>,
        separator: &[u8],
        right: u32,
        pay: Pay,
    ) -> Result<Above<'t>> {
        let root = self.fresh(pay)?;
        let level = u32::from(self.node(held.frame).level()) + 1;
        let node = self.node(root.frame);
        node.init(level as u8, None, None);
        for (at, (key, child)) in [(&[][..], held.number), (separator, right)]
            .iter()
            .enumerate()
        {
            let entered = node.insert(at, key, Value::Inside(&child.to_le_bytes()));
            debug_assert!(entered, "an empty node has room");
        }
        let top = self.top.lock();
        top.change();
        let word = u64::from(level) << 32 | u64::from(root.number);
        self.root.store(word, Ordering::Release);
        Ok(Above::Top(root, top))
    }

    /// Joins a node that has become sparse with a neighbour, if that is near and free; and so on upward.
    #[cold]
    pub(super) fn join(&self, held: Held<'_>) {
        let node = self.node(held.frame);
        let level = u32::from(node.level());
        let mut lower = Key::default();
        // A node without a lower fence is the first of its level: the empty key may be elsewhere in other orders.
        let has_lower = node.lower(&mut lower).is_some();
        let parent = if has_lower {
            self.lock(lower.bytes(), level + 1)
        } else {
            self.lock_first(level + 1)
        };
        let Some(parent) = parent else { return };
        let above = self.node(parent.frame);
        let at = if has_lower {
            above.child_of(lower.bytes())
        } else {
            0
        };
        debug_assert_eq!(above.child(at), held.number);
        let Some((right_at, left, right)) = self.neighbours(&above, at, held) else {
            return;
        };
        let (into, from) = (self.node(left.frame), self.node(right.frame));
        for changed in [&left, &right, &parent] {
            changed.lock.change();
        }
        into.take(from);
        above.remove(right_at);
        self.mark_dead(right);
        drop(left);
        if above.count() == 1 {
            if let Some(parent) = self.lower_root(parent) {
                self.join(parent);
            }
        } else if is_sparse(above) {
            self.join(parent);
        }
    }

    fn lock_first(&self, level: u32) -> Option<Held<'_>> {
        loop {
            let end = self.way(To::First, level)?;
            let held = Held::lock(end.number, end.frame);
            if end.is_still() {
                return Some(held);
            }
        }
    }

    /// The child at `at`, which is held, and one next to it that it can be one with, in order; and the right one's entry.
    fn neighbours<'t>(
        &'t self,
        above: &Node<'_>,
        at: usize,
        held: Held<'t>,
    ) -> Option<(usize, Held<'t>, Held<'t>)> {
        let try_lock = |at| {
            let number = above.child(at);
            let frame = self.frames.at(number);
            Some(Held {
                number,
                frame,
                lock: frame.latch.try_lock()?,
            })
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

    /// Makes the only child of the root the root; gives `held` back if it is not the root.
    fn lower_root<'t>(&self, held: Held<'t>) -> Option<Held<'t>> {
        let top = self.top.lock();
        if self.root().0 != held.number {
            return Some(held);
        }
        let node = self.node(held.frame);
        let level = u64::from(node.level()) - 1;
        top.change();
        let word = level << 32 | u64::from(node.child(0));
        self.root.store(word, Ordering::Release);
        drop(top);
        self.mark_dead(held);
        None
    }

    /// Puts an empty leaf in the place of everything, while no update is under way; `visit` is shown what was there, and
    /// may state what is to be forgotten of it.
    pub(super) fn clear(&self, visit: &mut dyn FnMut(Node<'_>)) -> Result<()> {
        let leaf = self.fresh(Pay::Anyway)?;
        self.node(leaf.frame).init(0, None, None);
        let (number, level) = self.root();
        let top = self.top.lock();
        top.change();
        self.root.store(u64::from(leaf.number), Ordering::Release);
        drop((top, leaf));
        self.show(number, level, visit, &|number| {
            self.mark_dead(Held::lock(number, self.frames.at(number)));
        });
        self.frames.release_idle();
        Ok(())
    }

    /// Shows every leaf, of a store that no other thread has.
    pub(super) fn leaves(&mut self, visit: &mut dyn FnMut(Node<'_>)) {
        let (number, level) = self.root();
        self.show(number, level, visit, &|_| ());
    }

    /// Shows every leaf below a node, or itself; `done` gets the number of each node that all was shown of.
    fn show(&self, number: u32, level: u32, visit: &mut dyn FnMut(Node<'_>), done: &dyn Fn(u32)) {
        let node = self.node(self.frames.at(number));
        if level == 0 {
            visit(node);
        } else {
            for at in 0..node.count() {
                self.show(node.child(at), level - 1, visit, done);
            }
        }
        done(number);
    }
}

/// What stays locked above a node that is being divided.
#[expect(dead_code, reason = "held until they are dropped")]
enum Above<'t> {
    Parent(Held<'t>),
    Top(Held<'t>, Locked<'t>),
}

/// Whether a node is so empty that it should join a neighbour; now and then only, as that may be full.
#[inline(always)]
pub(super) fn is_sparse(node: Node<'_>) -> bool {
    let count = node.count();
    (count < 16 || count.is_multiple_of(8)) && node.used() * 3 < node.room()
}
