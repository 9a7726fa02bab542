//! The tree in memory: all of its leaves, shown or removed at once.
//!
//! Ways, locks, division and joining are those of every tree of nodes (`node::tree`). A clear gives the nodes of before to a root
//! of their own, so that the store is empty at one moment, and takes them apart afterwards. It does not know what values mean.

use super::budget::Pay;
use super::frame::Frames;
use crate::error::Result;
use crate::node::Node;
use crate::node::tree::{self, Held, NodeStore, ROOT};

/// A tree whose nodes are all in memory.
pub(super) type BabyTree = tree::Tree<Frames>;

impl BabyTree {
    /// Levels above the leaves.
    pub(super) fn height(&self) -> u32 {
        u32::from(self.node(self.nodes.at(ROOT)).level())
    }

    /// Puts an empty leaf in the place of everything, while no update is under way; `visit` is shown what was there, and
    /// may state what is to be forgotten of it.
    pub(super) fn clear(&self, visit: &mut dyn FnMut(Node<'_>)) -> Result<()> {
        let before = self.nodes.take(Pay::Anyway)?;
        let root = Held::lock(ROOT, self.nodes.at(ROOT));
        root.lock.change();
        self.node(before.frame).copy_from(self.node(root.frame));
        self.node(root.frame).init(0, None, None);
        drop(root);
        let (number, level) = (before.number, self.node(before.frame).level());
        drop(before);
        self.show(number, level, visit, &|number| {
            self.nodes
                .give(Held::lock(number, self.nodes.at(number)), &());
        });
        self.nodes.release_idle();
        Ok(())
    }

    /// Shows every leaf, of a store that no other thread has.
    pub(super) fn leaves(&mut self, visit: &mut dyn FnMut(Node<'_>)) {
        let level = self.height() as u8;
        self.show(ROOT, level, visit, &|_| ());
    }

    /// Shows every leaf below a node, or itself; `done` gets the number of each node that all was shown of.
    fn show(&self, number: u32, level: u8, visit: &mut dyn FnMut(Node<'_>), done: &dyn Fn(u32)) {
        let node = self.node(self.nodes.at(number));
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
