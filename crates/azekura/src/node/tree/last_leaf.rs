//! The leaf that a thread used last: where its next key is in the same one, no way leads there.
//!
//! Promises: a thread that finds two keys in a row in one leaf looks there first for the next, until one is elsewhere. So keys that come in
//! order cost one level, and others a comparison of two numbers. Nothing is stored that another thread looks at.
//!
//! What a way proves by the nodes above, a leaf proves alone in a store that has an [instance](NodeStore::instance): it holds this number,
//! is not dead, and the key lies between its fences; all of that is looked at once more, with its entries, by the version of its latch.
//! It does not know why such a leaf is the right one.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Descent, NodeStore, Stated, To, Tree};

/// A leaf, of one store.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Leaf {
    instance: Option<NonZeroU64>,
    number: u32,
}

thread_local! {
    /// The leaf, and whether two keys in a row were there.
    static LAST: Cell<(Leaf, bool)> = const {
        let none = Leaf { instance: None, number: 0 };
        Cell::new((none, false))
    };
}

/// A number that none before had.
pub fn next_instance() -> NonZeroU64 {
    static GIVEN_OUT: AtomicU64 = AtomicU64::new(0);
    NonZeroU64::MIN.saturating_add(GIVEN_OUT.fetch_add(1, Ordering::Relaxed))
}

impl<S: NodeStore> Tree<S> {
    /// The way to the leaf where `key` is or would be; `None`: it is to be looked for again.
    #[inline(always)]
    pub(super) fn way_to_leaf_of<F>(
        &self,
        key: &[u8],
        load: &impl Fn(u32, &Stated<'_>) -> std::result::Result<(), F>,
    ) -> std::result::Result<Option<Descent<'_>>, F> {
        let instance = self.nodes.instance();
        if instance.is_none() {
            return self.way_by(To::Key(key), 0, load);
        }
        let (last, is_likely) = LAST.get();
        if is_likely && last.instance == instance {
            if let Some(end) = self.leaf_if_it_has(last.number, key) {
                return Ok(Some(end));
            }
            LAST.set((last, false));
        }
        let end = self.way_by(To::Key(key), 0, load)?;
        if let Some(Descent { number, .. }) = end {
            let leaf = Leaf { instance, number };
            LAST.set((leaf, leaf == last));
        }
        Ok(end)
    }

    /// This leaf, if it is in memory and has the place of `key`.
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
