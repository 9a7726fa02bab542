//! Bookmarks of engines that scan in the order of keys: the key at which to resume, or after which.
//!
//! Bytes from outside are checked here. Whether the key is in the store is not: one that is not is still a place.
//! It does not know the order.
//!
//! | bytes of a bookmark | meaning |
//! |---|---|
//! | 1 | 0: at the key, 1: after it |
//! | .. | the key |

use crate::engine::Bookmark;
use crate::error::{Error, Kind, Result, quote};

/// The place at `key`, where a failed allocation cannot be returned as an error.
pub(crate) fn at(key: &[u8]) -> Bookmark {
    Bookmark::from_bytes(&[&[0], key].concat())
}

/// The place after `key`. Errors: `Full`.
pub(crate) fn after(key: &[u8]) -> Result<Bookmark> {
    Bookmark::of(&[&[1], key])
}

/// The key of a bookmark, and whether the place is after it. `Invalid` if its bytes are no bookmark.
pub(crate) fn decode(bookmark: &Bookmark) -> Result<(&[u8], bool)> {
    match bookmark.as_bytes().split_first() {
        Some((after @ 0..=1, key)) => Ok((key, *after == 1)),
        _ => Err(
            Error::new(Kind::Invalid, "not a bookmark of a store in key order")
                .found(quote(bookmark.as_bytes()), "one that this store gave"),
        ),
    }
}
