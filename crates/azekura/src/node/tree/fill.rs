//! Leaves filled from their next ones, and nodes stored anew: what compaction needs of a tree.
//!
//! A leaf that has room takes the first entries of the next leaf: that is divided where they end, and the first half is joined with
//! the leaf before it. Both are changes that updates make as well (`change`), each whole by itself, so other threads, snapshots and a
//! crash in between find a tree. One latch is waited for while none is held; what another thread changes in between makes a leaf
//! less full than it could be, and no more than that.
//!
//! A leaf comes to be full to seven eighths, which is what joining leaves for the next insertions. Leaves below different
//! nodes are not joined. It does not know what is in a leaf, nor where a node is stored.

use super::{Held, NodeStore, To, Tree};
use crate::error::Result;
use crate::node::Key;

/// A leaf that is not fuller than this, in quarters, takes entries of the next one.
const QUARTERS: usize = 3;

/// The way to the node after those that end before `from`: of the first one, if there is none.
fn to(from: Option<&[u8]>) -> To<'_> {
    from.map_or(To::First, To::Key)
}

impl<S: NodeStore> Tree<S> {
    /// Fills the leaf of `from` (the first one, if that is `None`) from those after it. Returns where the next leaf begins; `None` if it
    /// is the last. Errors: as the store gives them for a new node, a moment and a load; each change is made wholly or not at all.
    pub fn fill(&self, from: Option<&[u8]>, charge: S::Charge) -> Result<Option<Vec<u8>>>
    where
        S::Charge: Copy,
    {
        loop {
            let mut upper = Key::default();
            let (used, most) = {
                let Some(held) = self.lock_besides(to(from), 0).map_err(S::error)? else {
                    continue;
                };
                let node = self.node(held.frame);
                if node.upper(&mut upper).is_none() {
                    return Ok(None);
                }
                (node.used(), node.room() - node.room() / 8)
            };
            let next = Ok(Some(upper.bytes().to_vec()));
            if used * 4 > most * QUARTERS || !self.are_of_one(to(from), To::Key(upper.bytes()))? {
                return next;
            }
            let Some(right) = self
                .lock_besides(To::Key(upper.bytes()), 0)
                .map_err(S::error)?
            else {
                continue;
            };
            let node = self.node(right.frame);
            let is_whole = used + node.used() <= most;
            if is_whole {
                drop(right);
            } else {
                let Some(at) = node.front_within(most - used) else {
                    return next;
                };
                let mut separator = Key::default();
                node.separator(at, &mut separator);
                drop(self.divide_at(right, at, separator.bytes(), charge)?);
            }
            if let Some(held) = self.lock_besides(to(from), 0).map_err(S::error)? {
                self.join(held);
            }
            let is_joined = {
                let Some(held) = self.lock_besides(to(from), 0).map_err(S::error)? else {
                    continue;
                };
                let mut now = Key::default();
                match self.node(held.frame).upper(&mut now) {
                    None => return Ok(None),
                    Some(()) => now.bytes() != upper.bytes(),
                }
            };
            // One that took all of the next one may take more.
            if !(is_whole && is_joined) {
                return next;
            }
        }
    }

    /// Whether two leaves are below the same node, at this moment.
    fn are_of_one(&self, left: To<'_>, right: To<'_>) -> Result<bool> {
        let left = self.way(left, 1).map_err(S::error)?;
        let right = self.way(right, 1).map_err(S::error)?;
        Ok(left.zip(right).is_some_and(|(a, b)| a.number == b.number))
    }

    /// Shows the node of `level` where `from` is (the first one, if that is `None`), locked, and has it stored anew, as it is, if
    /// `is_due`. Returns where the next node of the level begins, `Some(None)` if it is the last one; `None` if the root is below the
    /// level. Errors: as the store gives them for a moment and a load.
    pub fn renew(
        &self,
        from: Option<&[u8]>,
        level: u32,
        is_due: &mut dyn FnMut(&Held<'_>) -> bool,
    ) -> Result<Option<Option<Vec<u8>>>> {
        let Some(held) = self.lock_besides(to(from), level).map_err(S::error)? else {
            return Ok(None);
        };
        if is_due(&held) {
            let moment = self.nodes.moment()?;
            self.nodes.change(&held, &moment);
        }
        let mut upper = Key::default();
        let has_upper = self.node(held.frame).upper(&mut upper).is_some();
        Ok(Some(has_upper.then(|| upper.bytes().to_vec())))
    }
}
