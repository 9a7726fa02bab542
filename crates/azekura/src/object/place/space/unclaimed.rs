//! What nobody has claimed in a store that is being opened or repaired: free without a commit.
//!
//! A recovery and a repair find out from storage what is in use, and all else is free at once: no index in memory pointed to it
//! yet, and nothing is put there before what they found is durable, which is theirs to see to. That is another thing than used
//! room that becomes free, which waits in limbo for the commit that whoever retires it names. So [`Space::new`] gives this with
//! the room, opening passes it on to recovery, and it ends before anyone can change an object: a store that runs has none.
//!
//! It does not know what stands where.

use super::Space;
use crate::error::Result;
use crate::object::place::span::Span;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Unclaimed(());

#[expect(clippy::unused_self, reason = "the value itself is the permission")]
impl Unclaimed {
    /// Of room of which nothing was given away yet.
    pub(super) fn new() -> Self {
        Self(())
    }

    /// Nobody has these units: they are free, as those that already were.
    pub(crate) fn free(&self, space: &mut Space, span: Span) -> Result<()> {
        space.add(span)
    }

    /// An object was found there: the units are taken out, free or not.
    pub(crate) fn claim(&self, space: &mut Space, span: Span) -> Result<()> {
        space.claim(span)
    }
}
