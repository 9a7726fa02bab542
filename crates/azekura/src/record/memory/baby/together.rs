//! Many ways down at once, so that their cache misses overlap.
//!
//! A group of keys goes level by level; in a node each search goes probe by probe, and what a probe will look at is brought
//! near while the others take their turn. So a key costs the lines its own search touches, five of a leaf, and waits for
//! none of them alone. A way on which another thread changed something ends; its key goes alone afterwards. It changes nothing.

use super::BabyDb;
use super::tree::BabyTree;
use crate::io::mmap::prefetch;
use crate::node::Search;
use crate::node::tree::{Buffer, Descent, LINES_OF_LEAF, NodeStore, Seen, To};
use crate::order::Order;

/// Keys whose ways are gone together.
pub(super) const GROUP: usize = 32;

/// How far a key has come.
#[derive(Clone, Copy)]
pub(super) struct Way<'t> {
    /// The node that is being looked at.
    end: Descent<'t>,
    /// Of its latch.
    version: u64,
    search: Search,
}

pub(super) type Ways<'t> = [Option<Way<'t>>; GROUP];

#[inline(always)]
fn bring<T>(word: Option<&T>) {
    if let Some(word) = word {
        prefetch(std::ptr::from_ref(word).cast());
    }
}

impl BabyTree {
    /// Begins the search in the node at a way's end.
    #[inline(always)]
    fn begin<'t>(&self, end: Descent<'t>, key: &[u8]) -> Option<Way<'t>> {
        let version = end.frame.latch.begin();
        let search = self.node(end.frame).search(key);
        self.is_still(&end).then_some(Way {
            end,
            version,
            search,
        })
    }

    /// The child that a finished search found, its first lines on their way.
    #[inline(always)]
    fn descend<'t>(&'t self, way: &Way<'t>, key: &[u8], lines: usize) -> Option<Way<'t>> {
        let node = self.node(way.end.frame);
        let (at, is_equal) = node.find_at(&way.search, key);
        let number = node.child(at.saturating_sub(usize::from(!is_equal)));
        let latch = &way.end.frame.latch;
        if !latch.is_still(way.version) {
            return None;
        }
        self.nodes.prefetch(number, lines);
        Some(Way {
            end: Descent {
                number,
                frame: self.nodes.at(number),
                parent: latch,
                version: way.version,
            },
            ..*way
        })
    }

    /// Brings the leaves of up to a group of keys near, and in them the items that the heads lead to.
    #[inline(always)]
    pub(super) fn locate<'t, 'k>(
        &'t self,
        keys: &(impl Iterator<Item = &'k [u8]> + Clone),
        ways: &mut Ways<'t>,
    ) {
        let height = self.height();
        // In other orders a search is not gone by probes, and wants all slots.
        let lines = if self.order == Order::Lexical {
            1
        } else {
            LINES_OF_LEAF
        };
        for (key, way) in keys.clone().zip(ways.iter_mut()) {
            let Ok(end) = self.way(To::Key(key), height);
            *way = end.and_then(|end| self.begin(end, key));
        }
        for _ in 0..height {
            self.search(ways);
            for (key, way) in keys.clone().zip(ways.iter_mut()) {
                *way = way.as_ref().and_then(|way| self.descend(way, key, lines));
            }
            for (key, way) in keys.clone().zip(ways.iter_mut()) {
                *way = way.as_ref().and_then(|way| self.begin(way.end, key));
            }
        }
        self.search(ways);
    }

    /// Finishes the searches of all, a probe of each in turn.
    #[inline(always)]
    fn search(&self, ways: &mut Ways<'_>) {
        let mut is_far = true;
        while is_far {
            is_far = false;
            for way in ways.iter_mut().flatten() {
                let node = self.node(way.end.frame);
                is_far |= node.halve(&mut way.search);
                node.next_words(&way.search).into_iter().for_each(bring);
            }
        }
        for way in ways.iter_mut().flatten() {
            let node = self.node(way.end.frame);
            bring(node.item_word(node.finish(&mut way.search)));
        }
    }
}

impl BabyDb {
    /// What is at the end of a way to `key`; `None` if it does not count.
    #[inline(always)]
    pub(super) fn see_along(&self, way: &Way<'_>, key: &[u8], buffer: &mut Buffer) -> Option<Seen> {
        let node = self.tree.node(way.end.frame);
        let seen = Seen::of_entry(node, node.find_at(&way.search, key), buffer);
        way.end.frame.latch.is_still(way.version).then_some(seen)
    }
}
