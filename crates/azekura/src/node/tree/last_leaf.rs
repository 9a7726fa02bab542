//! The leaf that a thread used last: where its next key is in the same one, no way leads there.
//!
//! Promises: it is a guess, of a number, that counts only if the leaf states itself that it has the key. A thread that finds two keys
//! in a row in one leaf looks there first for the next, until one is elsewhere; so keys that come in order cost one level, and those that do not cost a
//! comparison of two numbers. Nothing is stored that another thread looks at.
//!
//! What a way proves by the nodes above, a leaf proves alone where the store keeps to [`NodeStore::DIES_FIRST`]: it holds this number, is not dead, and the
//! key lies between its fences; all of that is looked at once more, with its entries, by the version of its latch. It does not know stores: a
//! guess of another one with such a number is no more wrong than any.

use std::cell::Cell;

use super::{Descent, NodeStore, To, Tree};

thread_local! {
    /// The leaf, and whether two keys in a row were there.
    static LAST: Cell<(u32, bool)> = const { Cell::new((u32::MAX, false)) };
}

impl<S: NodeStore> Tree<S> {
    /// The way to the leaf where `key` is or would be; `None`: it is to be looked for again.
    #[inline(always)]
    pub(super) fn way_to_leaf_of<F>(
        &self,
        key: &[u8],
        load: &impl Fn(u32, &super::Stated<'_>) -> std::result::Result<(), F>,
    ) -> std::result::Result<Option<Descent<'_>>, F> {
        if !S::DIES_FIRST {
            return self.way_by(To::Key(key), 0, load);
        }
        let (last, is_likely) = LAST.get();
        if is_likely {
            if let Some(end) = self.leaf_if_it_has(last, key) {
                return Ok(Some(end));
            }
            LAST.set((last, false));
        }
        let end = self.way_by(To::Key(key), 0, load)?;
        if let Some(end) = &end {
            LAST.set((end.number, end.number == last));
        }
        Ok(end)
    }

    /// Such a leaf, if it is in memory and has the place of `key`.
    #[inline(always)]
    fn leaf_if_it_has(&self, number: u32, key: &[u8]) -> Option<Descent<'_>> {
        let frame = self.nodes.frame(number)?;
        let version = frame.latch.try_begin_alive()?;
        let node = self.node(frame);
        let has_it = self.nodes.holds(frame, number) && node.level() == 0 && node.covers(key);
        has_it.then_some(Descent {
            number,
            frame,
            parent: &frame.latch,
            version,
        })
    }
}
