//! Taking a range of keys out of a tree: entries of the leaves at its ends, and whole subtrees between them, by one thread that is alone.
//!
//! Promises: nothing is changed before all that must be known is known, and then nothing fails. A reader sees all of the range or
//! none of it: what changes is being changed, or dead, before the first of it can be read again. It does not read the leaves between
//! the ends; who asks does, where values stand outside, or records are counted. It does not know why it is alone.
//!
//! ```text
//!   a node on the way to an end    [ .. | way | ===== whole ===== ]         children between the ways go, their subtrees with them
//!   afterwards                     [ .. | way | seam ]                      one child stays for their keys: nodes of one entry each,
//!                                                                           down to an empty leaf
//! ```
//! A seam is of new nodes, which have room for its fences whatever they are; the nodes next to it keep theirs, so none can be too
//! small. It is made before, and nothing points to it until then. What is sparse is joined with its neighbours afterwards, as ever ([`Tree::join_seams`]).

use std::ops::{Bound, Range};

use super::{Held, NodeStore, ROOT, Stated, To, Tree};
use crate::error::{Error, Kind, Result};
use crate::node::{Key, Node, Value};
use crate::order::{KeyBounds, key_of};
use crate::room;

/// The entries of a leaf whose keys are in a range; an end that is a key lies between the leaf's fences.
pub fn entries_in(node: Node<'_>, (from, to): KeyBounds<'_>) -> Range<usize> {
    let place = |key: &[u8], is_after: bool| {
        let (at, is_present) = node.find(key);
        at + usize::from(is_after && is_present)
    };
    let begin = match from {
        Bound::Unbounded => 0,
        Bound::Included(key) => place(key, false),
        Bound::Excluded(key) => place(key, true),
    };
    let end = match to {
        Bound::Unbounded => node.count(),
        Bound::Included(key) => place(key, true),
        Bound::Excluded(key) => place(key, false),
    };
    begin..end.max(begin)
}

/// Who is shown what a range has.
pub trait RangeVisitor {
    /// A leaf that lies in the range, by its number; it was not loaded for this.
    fn leaf(&mut self, number: u32, stated: &Stated<'_>) -> Result<()>;
    /// A leaf at an end, and those of its entries that are in the range.
    fn entries(&mut self, node: Node<'_>, entries: Range<usize>) -> Result<()>;
    /// A node that cannot be read. With `Ok` it goes as it is, if it lies in the range, and stays as it is at an end.
    fn unreadable(&mut self, error: Error) -> Result<()>;
}

/// Where nodes may have become sparse.
#[derive(Debug)]
pub struct Seam {
    /// Their lower fence.
    lower: Option<Vec<u8>>,
    /// The uppermost of them.
    level: u32,
}

/// A node on the way to an end, of which children go.
#[derive(Debug)]
struct Above<'t> {
    held: Held<'t>,
    whole: Range<usize>,
    /// The nodes that take their place, the leaf first.
    seam: Vec<u32>,
}

/// What is to be taken out, locked where it changes.
#[derive(Debug, Default)]
pub struct Excision<'t> {
    leaves: Vec<(Held<'t>, Range<usize>)>,
    above: Vec<Above<'t>>,
    /// Entries of the leaves that stay, with another value: which leaf, where, and the word of that.
    renamed: Vec<(usize, usize, u64)>,
    /// Nodes that go, each after the one above it.
    whole: Vec<u32>,
    seams: Vec<Seam>,
}

impl Excision<'_> {
    /// How many nodes are locked.
    pub fn held(&self) -> usize {
        self.leaves.len() + self.above.len()
    }

    /// Whether there is nothing to be done.
    pub fn is_empty(&self) -> bool {
        let takes_none = self.leaves.iter().all(|(_, entries)| entries.is_empty());
        takes_none && self.renamed.is_empty() && self.whole.is_empty()
    }

    /// The first or last entry that was to be taken out of a leaf stays, perhaps with another value outside than the one it has.
    pub fn keep(&mut self, (leaf, at): (usize, usize), word: Option<u64>) -> Result<()> {
        if let Some((_, entries)) = self.leaves.get_mut(leaf) {
            if at == entries.start {
                entries.start += 1;
            } else {
                debug_assert_eq!(at + 1, entries.end);
                entries.end = at;
            }
        }
        if let Some(word) = word {
            room::more(&mut self.renamed, 1)?;
            self.renamed.push((leaf, at, word));
        }
        Ok(())
    }
}

/// A range of the tree that is looked through.
struct Survey<'t, 'v, S> {
    tree: &'t Tree<S>,
    visitor: &'v mut dyn RangeVisitor,
    found: Excision<'t>,
}

impl<S: NodeStore> Tree<S> {
    /// Finds what a range has, by a thread that is alone. Errors: those of the visitor; `Full`.
    pub fn survey(
        &self,
        keys: KeyBounds<'_>,
        visitor: &mut dyn RangeVisitor,
    ) -> Result<Excision<'_>> {
        let mut survey = Survey {
            tree: self,
            visitor,
            found: Excision::default(),
        };
        survey.node(ROOT, &Stated::default(), keys)?;
        Ok(survey.found)
    }

    /// The leaf, and the entry of `key` in it, if that is to be taken out.
    pub fn found_in<'t>(
        &'t self,
        excision: &Excision<'t>,
        key: &[u8],
    ) -> Option<((usize, usize), Node<'t>)> {
        let mut leaves = excision.leaves.iter().enumerate();
        leaves.find_map(|(leaf, (held, entries))| {
            let node = self.node(held.frame);
            let (at, is_present) = node.covers(key).then(|| node.find(key))?;
            (is_present && entries.contains(&at)).then_some(((leaf, at), node))
        })
    }

    /// Makes the seams, which nothing points to yet. On an error there are none. Errors: as the store gives them for a new node and a
    /// moment; `Full`.
    pub fn make_seams(&self, excision: &mut Excision<'_>, charge: S::Charge) -> Result<()> {
        let mut made = Ok(());
        for above in &mut excision.above {
            made = made.and_then(|()| self.make_seam(above, &mut excision.seams, charge));
        }
        for (leaf, _) in &excision.leaves {
            let seam = || self.seam_of(leaf, None);
            made = made.and_then(|()| push(&mut excision.seams, seam()?));
        }
        if made.is_err() {
            self.give_seams_back(excision);
        }
        made
    }

    fn make_seam(
        &self,
        above: &mut Above<'_>,
        seams: &mut Vec<Seam>,
        charge: S::Charge,
    ) -> Result<()> {
        let Above { held, whole, seam } = above;
        let node = self.node(held.frame);
        let (mut low, mut up) = (Key::default(), Key::default());
        let lower = node.lower_of(whole.start, &mut low).map(|()| low.bytes());
        let upper = node.upper_of(whole.end - 1, &mut up).map(|()| up.bytes());
        for level in 0..node.level() {
            room::more(seam, 1)?;
            let made = self.nodes.take(charge)?;
            let moment = match self.nodes.moment() {
                Ok(moment) => moment,
                Err(error) => {
                    self.nodes.give_back(made);
                    return Err(error);
                }
            };
            self.nodes.change(&made, &moment);
            let node = self.node(made.frame);
            node.init(level, lower, upper);
            if let Some(child) = seam.last() {
                let child = u32::to_le_bytes(*child);
                let entered = node.insert(0, lower.unwrap_or_default(), Value::Inside(&child));
                debug_assert!(entered, "it is empty");
            }
            seam.push(made.number);
        }
        push(seams, self.seam_of(held, None)?)?;
        push(seams, self.seam_of(held, Some(whole.start))?)
    }

    /// Takes seams out of use that are not made use of.
    pub fn give_seams_back(&self, excision: &mut Excision<'_>) {
        for above in &mut excision.above {
            for number in above.seam.drain(..) {
                self.nodes.give_back_number(number);
            }
        }
        excision.seams.clear();
    }

    /// A seam that begins at a node, or where the child of one of its entries does.
    fn seam_of(&self, held: &Held<'_>, entry: Option<usize>) -> Result<Seam> {
        let node = self.node(held.frame);
        let mut key = Key::default();
        let lower = match entry {
            Some(entry) => node.lower_of(entry, &mut key),
            None => node.lower(&mut key),
        };
        let lower = lower.map(|()| room::copy(key.bytes())).transpose()?;
        let level = u32::from(node.level()) - u32::from(entry.is_some());
        Ok(Seam { lower, level })
    }

    /// Takes out what was found, and puts the seams that were made in its place, at a moment; where nodes may be sparse afterwards.
    pub fn cut_out(&self, excision: Excision<'_>, moment: &S::Moment) -> Vec<Seam> {
        let Excision {
            leaves,
            above,
            renamed,
            whole,
            seams,
        } = excision;
        for (leaf, _) in &leaves {
            self.nodes.change(leaf, moment);
        }
        for Above { held, .. } in &above {
            self.nodes.change(held, moment);
        }
        for number in whole {
            self.nodes.give_number(number, moment);
        }
        for Above { held, whole, seam } in &above {
            let node = self.node(held.frame);
            for at in (whole.start + 1..whole.end).rev() {
                node.remove(at);
            }
            if let Some(child) = seam.last() {
                let child = u32::to_le_bytes(*child);
                let is_set = node.replace(whole.start, &[], Value::Inside(&child));
                debug_assert!(is_set, "it is as long as the one before");
            }
        }
        for (leaf, at, word) in renamed {
            let node = leaves.get(leaf).map(|(held, _)| self.node(held.frame));
            let is_set = node.is_some_and(|node| node.replace(at, &[], Value::Outside(word)));
            debug_assert!(is_set, "it is as long as the one before");
        }
        for (leaf, entries) in &leaves {
            let node = self.node(leaf.frame);
            entries.clone().rev().for_each(|at| node.remove(at));
        }
        seams
    }

    /// Joins what is sparse in these places with its neighbours, level by level. Nothing is lost where that fails.
    pub fn join_seams(&self, seams: &[Seam]) -> std::result::Result<(), S::Fault> {
        for Seam { lower, level } in seams {
            let to = lower.as_deref().map_or(To::First, To::Key);
            for level in (0..=*level).rev() {
                self.join_at(to, level)?;
            }
        }
        self.lower_root()
    }

    /// Makes the root what its only child is, as often as it has one alone.
    fn lower_root(&self) -> std::result::Result<(), S::Fault> {
        loop {
            let root = self.lock_root()?;
            let node = self.node(root.frame);
            if node.level() == 0 || node.count() != 1 {
                return Ok(());
            }
            let number = node.child(0);
            let child = self.nodes.frame(number);
            let child = child.and_then(|frame| Held::try_lock(number, frame));
            let child = child.filter(|child| self.nodes.holds(child.frame, number));
            let (Some(child), Ok(moment)) = (child, self.nodes.moment()) else {
                return Ok(());
            };
            for changed in [&root, &child] {
                self.nodes.change(changed, &moment);
            }
            node.copy_from(self.node(child.frame));
            self.nodes.give(child, &moment);
        }
    }
}

fn push(seams: &mut Vec<Seam>, seam: Seam) -> Result<()> {
    room::more(seams, 1)?;
    seams.push(seam);
    Ok(())
}

impl<'t, S: NodeStore> Survey<'t, '_, S> {
    /// A node that has an end, or both.
    fn node(&mut self, number: u32, stated: &Stated<'_>, keys: KeyBounds<'_>) -> Result<()> {
        let held = match self.hold(number, stated) {
            Ok(held) => held,
            Err(error) => return self.visitor.unreadable(error),
        };
        let node = self.tree.node(held.frame);
        if node.level() == 0 {
            let entries = entries_in(node, keys);
            if !entries.is_empty() {
                self.visitor.entries(node, entries.clone())?;
                room::more(&mut self.found.leaves, 1)?;
                self.found.leaves.push((held, entries));
            }
            return Ok(());
        }
        let (from, to) = keys;
        let left = key_of(&from).map(|key| node.child_of(key));
        let right = key_of(&to).map(|key| node.child_of(key));
        let whole = left.map_or(0, |at| at + 1)..right.unwrap_or_else(|| node.count());
        for at in whole.clone() {
            self.child(node, at, &mut |survey, number, stated| {
                survey.whole(number, stated)
            })?;
        }
        if let Some(at) = left {
            let to = if right == left { to } else { Bound::Unbounded };
            self.child(node, at, &mut |survey, number, stated| {
                survey.node(number, stated, (from, to))
            })?;
        }
        if let Some(at) = right.filter(|_| right != left) {
            self.child(node, at, &mut |survey, number, stated| {
                survey.node(number, stated, (Bound::Unbounded, to))
            })?;
        }
        if !whole.is_empty() {
            room::more(&mut self.found.above, 1)?;
            let seam = room::vec(usize::from(node.level()))?;
            self.found.above.push(Above { held, whole, seam });
        }
        Ok(())
    }

    /// A node that lies in the range, and all below it.
    fn whole(&mut self, number: u32, stated: &Stated<'_>) -> Result<()> {
        room::more(&mut self.found.whole, 1)?;
        self.found.whole.push(number);
        if stated.level == Some(0) {
            return self.visitor.leaf(number, stated);
        }
        let held = match self.hold(number, stated) {
            Ok(held) => held,
            Err(error) => return self.visitor.unreadable(error),
        };
        let node = self.tree.node(held.frame);
        for at in 0..node.count() {
            self.child(node, at, &mut |survey, number, stated| {
                survey.whole(number, stated)
            })?;
        }
        Ok(())
    }

    /// Continues with the child of an entry.
    fn child(
        &mut self,
        node: Node<'_>,
        at: usize,
        next: &mut dyn FnMut(&mut Self, u32, &Stated<'_>) -> Result<()>,
    ) -> Result<()> {
        let (mut low, mut up) = (Key::default(), Key::default());
        let stated = Stated {
            level: node.level().checked_sub(1),
            lower: node.lower_of(at, &mut low).map(|()| low.bytes()),
            upper: node.upper_of(at, &mut up).map(|()| up.bytes()),
        };
        next(self, node.child(at), &stated)
    }

    /// Locks a node, which is in memory then, and stays there. What it has must be as stated and in order: so no node is met twice,
    /// whatever the bytes are.
    fn hold(&self, number: u32, stated: &Stated<'_>) -> Result<Held<'t>> {
        let nodes = &self.tree.nodes;
        loop {
            let Some(frame) = nodes.frame(number) else {
                nodes.load(number, stated).map_err(S::error)?;
                continue;
            };
            let version = frame.latch.begin();
            if !nodes.holds(frame, number) {
                continue;
            }
            let is_right = self.is_right(self.tree.node(frame), stated);
            if !frame.latch.is_still(version) {
                continue;
            }
            if !is_right {
                return Err(Error::new(
                    Kind::Corrupted,
                    format!("page {number} is not the one that its parent names"),
                ));
            }
            let held = Held::lock(number, frame);
            if nodes.holds(frame, number) {
                return Ok(held);
            }
        }
    }

    fn is_right(&self, node: Node<'_>, stated: &Stated<'_>) -> bool {
        if !stated.holds_of(node) {
            return false;
        }
        if node.level() == 0 {
            return true;
        }
        let (mut low, mut up) = (Key::default(), Key::default());
        (0..node.count()).all(|at| {
            let has_lower = node.lower_of(at, &mut low).is_some();
            let has_upper = node.upper_of(at, &mut up).is_some();
            let order = self.tree.order;
            !(has_lower && has_upper) || order.compare(low.bytes(), up.bytes()).is_lt()
        })
    }
}
