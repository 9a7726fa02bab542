//! Conflicts: requests that touch the same object wait for one another, if one of them writes it.
//!
//! A request waits for the nearest earlier ones with which it conflicts; those wait for the ones before them. So requests for one object
//! keep the order in which they were pushed, and are not in flight at once; reads alone may be. A range conflicts with every object
//! within it.
//!
//! A request that fails while it waits stays as an abandoned entry until the requests before it are done: later ones wait for these
//! through it. It does not know deadlines or places.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

/// What a request touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touches {
    /// One object.
    One(u128),
    /// Some objects.
    Many(Vec<u128>),
    /// All objects of a range, present or future.
    Range(RangeInclusive<u128>),
}

impl Touches {
    fn ids(&self) -> &[u128] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
            Self::Range(_) => &[],
        }
    }

    fn meets(&self, range: &RangeInclusive<u128>) -> bool {
        match self {
            Self::Range(own) => own.start() <= range.end() && range.start() <= own.end(),
            _ => self.ids().iter().any(|id| range.contains(id)),
        }
    }
}

/// Requests that are not done, by number; numbers grow.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    nodes: HashMap<u64, Node>,
    ids: BTreeMap<u128, Users>,
    /// Of requests that touch ranges.
    ranges: BTreeMap<u64, (RangeInclusive<u128>, bool)>,
}

#[derive(Debug)]
struct Node {
    touches: Touches,
    waits_for: Vec<u64>,
    /// How many requests it waits for.
    left: usize,
    /// Requests that wait for it.
    blocks: Vec<u64>,
    is_ghost: bool,
}

/// The nearest requests that touch one object.
#[derive(Debug, Default)]
struct Users {
    write: Option<u64>,
    /// Reads after that write.
    reads: BTreeSet<u64>,
}

impl Users {
    /// The requests for which a new one has to wait.
    fn before(&self, writes: bool) -> impl Iterator<Item = u64> {
        let reads = self.reads.iter().filter(move |_| writes);
        self.write.into_iter().chain(reads.copied())
    }
}

impl Conflicts {
    /// Adds a request after all others; returns whether it waits for none.
    pub(super) fn add(&mut self, number: u64, touches: Touches, writes: bool) -> bool {
        let mut waits_for: Vec<u64> = Vec::new();
        let ranges = self.ranges.iter();
        waits_for.extend(
            ranges
                .filter(|(_, (range, wrote))| (writes || *wrote) && touches.meets(range))
                .map(|(number, _)| *number),
        );
        if let Touches::Range(range) = &touches {
            if range.start() <= range.end() {
                let within = self.ids.range(range.clone());
                waits_for.extend(within.flat_map(|(_, users)| users.before(writes)));
            }
            self.ranges.insert(number, (range.clone(), writes));
        }
        for id in touches.ids() {
            let users = self.ids.entry(*id).or_default();
            waits_for.extend(users.before(writes));
            if writes {
                users.write = Some(number);
                users.reads.clear();
            } else {
                users.reads.insert(number);
            }
        }
        waits_for.sort_unstable();
        waits_for.dedup();
        // An object may be named twice.
        waits_for.retain(|other| *other != number);
        for other in &waits_for {
            if let Some(other) = self.nodes.get_mut(other) {
                other.blocks.push(number);
            }
        }
        let left = waits_for.len();
        let node = Node {
            touches,
            waits_for,
            left,
            blocks: Vec::new(),
            is_ghost: false,
        };
        self.nodes.insert(number, node);
        left == 0
    }

    /// The requests for which a request waited when it was pushed.
    pub(super) fn before(&self, number: u64) -> &[u64] {
        self.nodes.get(&number).map_or(&[], |node| &node.waits_for)
    }

    /// Ends a request: it is done, or failed. Adds requests that wait for none any more to `freed`.
    pub(super) fn end(&mut self, number: u64, freed: &mut Vec<u64>) {
        let mut ended = vec![number];
        while let Some(number) = ended.pop() {
            match self.nodes.get_mut(&number) {
                Some(node) if node.left > 0 => {
                    node.is_ghost = true;
                    continue;
                }
                None => continue,
                Some(_) => {}
            }
            let Some(node) = self.nodes.remove(&number) else {
                continue;
            };
            self.forget(number, &node.touches);
            for other in node.blocks {
                let Some(node) = self.nodes.get_mut(&other) else {
                    continue;
                };
                node.left -= 1;
                if node.left == 0 {
                    let free = if node.is_ghost {
                        &mut ended
                    } else {
                        &mut *freed
                    };
                    free.push(other);
                }
            }
        }
    }

    fn forget(&mut self, number: u64, touches: &Touches) {
        self.ranges.remove(&number);
        for id in touches.ids() {
            let Some(users) = self.ids.get_mut(id) else {
                continue;
            };
            users.reads.remove(&number);
            users.write = users.write.filter(|write| *write != number);
            if users.write.is_none() && users.reads.is_empty() {
                self.ids.remove(id);
            }
        }
    }

    /// Whether nothing is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.ids.is_empty() && self.ranges.is_empty()
    }
}
