//! Reading one record: what the tree sees of its key, and the run where its value stands outside.
//!
//! A run is read under the pin that was there before the leaf was looked at, so its units are not used again meanwhile. Nothing
//! changes but which pages are in memory.

use super::Core;
use super::cluster::{STEM, stem_of, value_beyond};
use super::layout::RunPlace;
use super::nodes::Plain;
use super::view::View;
use crate::error::Result;
use crate::node::Node;
use crate::node::tree::{Buffer, NodeStore, ROOT, Seen, To, Tree};

/// Lends the value of `key`, or its absence, to `visit`.
#[inline]
pub(super) fn lend<R>(
    view: impl View,
    key: &[u8],
    visit: impl FnOnce(Option<&[u8]>) -> R,
) -> Result<R> {
    let _pin = view.core().log.pin();
    let mut buffer = Buffer::default();
    let seen = view.see(stem_of(key), &mut buffer)?;
    lend_seen(view, key, (seen, &buffer), visit)
}

/// Lends what was seen of `key`, by a thread that is pinned since before.
#[inline(always)]
pub(super) fn lend_seen<R>(
    view: impl View,
    key: &[u8],
    (seen, buffer): (Seen, &Buffer),
    visit: impl FnOnce(Option<&[u8]>) -> R,
) -> Result<R> {
    match seen {
        seen if key.len() > STEM => {
            let value = value_beyond(view, key, seen, buffer)?;
            Ok(visit(value.as_deref()))
        }
        Seen::Absent => Ok(visit(None)),
        Seen::Copied(len) => Ok(visit(Some(buffer.bytes(len)))),
        seen @ Seen::Outside(word) if RunPlace(word).is_list() => {
            let value = value_beyond(view, key, seen, buffer)?;
            Ok(visit(value.as_deref()))
        }
        Seen::Outside(word) => {
            let value = view.value_outside(word);
            let value = value.map_err(|error| error.key(key))?;
            Ok(visit(Some(&value)))
        }
    }
}

impl Core {
    /// Levels of the tree.
    pub(super) fn levels(&self) -> u32 {
        let _pin = self.log.pin();
        let _ = self.tree.way(To::First, 0);
        let root = self.tree.nodes.frame(ROOT);
        root.map_or(0, |frame| u32::from(self.tree.node(frame).level()) + 1)
    }

    /// The tree, if its pages are of one unit: what finds a record in it has that as a constant.
    #[inline(always)]
    pub(super) fn plain_tree(&self) -> Option<Tree<Plain<'_>>> {
        let nodes = self.tree.nodes.plain()?;
        let order = self.tree.order;
        Some(Tree { order, nodes })
    }

    /// Lends the value of `key`, or its absence, to `visit`.
    #[inline]
    pub(super) fn read<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        lend(self, key, visit)
    }

    /// The value of a key in a leaf that is held, copied.
    pub(super) fn value_in(&self, node: Node<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut buffer = Buffer::default();
        let seen = Seen::in_leaf(node, stem_of(key), &mut buffer);
        value_beyond(self, key, seen, &buffer)
    }
}
