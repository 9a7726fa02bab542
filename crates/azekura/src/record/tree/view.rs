//! What records are read through: the store as it is, or as it was (`snapshot`).
//!
//! Who reads is pinned for as long as it looks at what a word names: its units are not used again meanwhile. It does not know what is
//! looked for.

use std::ops::Range;

use super::Core;
use crate::error::Result;
use crate::node::Node;
use crate::node::tree::{Begin, Buffer, LeafCopy, Looked, Seen, To};

/// What is read through.
pub(super) trait View: Copy {
    /// Whose records they are.
    fn core(&self) -> &Core;
    /// What there is of `key`, by a thread that is pinned.
    fn see(&self, key: &[u8], buffer: &mut Buffer) -> Result<Seen>;
    /// Copies up to `most` entries from a place on.
    fn take_from(&self, from: &Begin, most: usize, copy: &mut LeafCopy) -> Result<Looked>;
    /// Copies up to `most` entries that end with the last one less than a key, or of all.
    fn take_before(&self, key: Option<&[u8]>, most: usize, copy: &mut LeafCopy) -> Result<Looked>;
    /// Begins to read the leaves before or after the one where a way leads, by their number from there, as far as the node above names them;
    /// how many it named.
    fn read_ahead(&self, to: To<'_>, is_rising: bool, leaves: Range<usize>) -> usize;
    /// Whether a look at a leaf that was copied would give the same now.
    fn is_as_copied(&self, copy: &LeafCopy) -> bool;
    /// Where the smallest part ends that has a place and cannot be loaded; `None`: nowhere.
    fn end_of_unreadable(&self, from: &Begin) -> Result<Option<Vec<u8>>>;
    /// The value that a word of a leaf names.
    fn value_outside(&self, word: u64) -> Result<Vec<u8>>;
    /// What `read` sees of the leaf where a way leads, in a state that counts.
    fn look_at<R>(&self, to: To<'_>, read: &dyn Fn(Node<'_>) -> R) -> Result<R>;
}

impl View for &Core {
    fn core(&self) -> &Core {
        self
    }

    #[inline(always)]
    fn see(&self, key: &[u8], buffer: &mut Buffer) -> Result<Seen> {
        match self.plain_tree() {
            Some(tree) => tree.see(key, buffer),
            None => self.tree.see(key, buffer),
        }
    }

    fn take_from(&self, from: &Begin, most: usize, copy: &mut LeafCopy) -> Result<Looked> {
        self.tree.take_from(from, most, copy)
    }

    fn take_before(&self, key: Option<&[u8]>, most: usize, copy: &mut LeafCopy) -> Result<Looked> {
        self.tree.take_before(key, most, copy)
    }

    fn read_ahead(&self, to: To<'_>, is_rising: bool, leaves: Range<usize>) -> usize {
        // What cannot be read is reported by who needs it.
        let Ok(Some(end)) = self.tree.way(to, 1) else {
            return 0;
        };
        let pages = &self.tree.nodes;
        let place_of = |page| pages.place_of_cold(page);
        pages.read_ahead(self.tree.node(end.frame), (to, is_rising), leaves, place_of)
    }

    fn is_as_copied(&self, copy: &LeafCopy) -> bool {
        self.tree.is_as_copied(copy)
    }

    fn end_of_unreadable(&self, from: &Begin) -> Result<Option<Vec<u8>>> {
        self.tree.end_of_unreadable(from)
    }

    fn value_outside(&self, word: u64) -> Result<Vec<u8>> {
        self.read_run(word)
    }

    fn look_at<R>(&self, to: To<'_>, read: &dyn Fn(Node<'_>) -> R) -> Result<R> {
        self.tree.look_at(to, read)
    }
}
