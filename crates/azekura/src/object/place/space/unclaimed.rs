//! Permission to free space without a commit, in a store that is being opened or repaired.
//!
//! A recovery and a repair find out from storage what is in use, and all else is free at once: no index in memory pointed to it
//! yet, and they put nothing there before what they found is durable. Used space that becomes free in a running store waits in
//! limbo instead. So [`Space::new`] returns this value with the space, opening passes it on to recovery, and it is dropped before
//! an object can be changed: a running store has none.

use super::Space;
use crate::error::Result;
use crate::object::place::span::Span;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Unclaimed(());

#[expect(clippy::unused_self, reason = "the value itself is the permission")]
impl Unclaimed {
    /// For space of which nothing was handed out yet.
    pub(super) fn new() -> Self {
        Self(())
    }

    /// Frees units that no object occupies; units that are free stay so.
    pub(crate) fn free(&self, space: &mut Space, span: Span) -> Result<()> {
        space.add(span)
    }

    /// Removes the units of an object that was found, whether or not they are free.
    pub(crate) fn claim(&self, space: &mut Space, span: Span) -> Result<()> {
        space.claim(span)
    }
}
