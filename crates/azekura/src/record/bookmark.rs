//! Bookmarks of engines that scan in the order of a hash: the hash and the key at which to continue, or after which.
//!
//! Bookmarks sort as bytes in scan order. Bytes from outside are checked here; whether the key belongs to the hash is
//! not: one that does not is still a place. What the hash is, and how long it stays the same, is the engine's.
//!
//! | bytes of a bookmark | meaning |
//! |---|---|
//! | 8, big-endian | the hash |
//! | 1 | 0: at the key, 1: after it |
//! | .. | the key |

use std::cmp::Ordering;

use crate::engine::Bookmark;
use crate::error::{Error, Kind, Result, quote};

/// From where a scan resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start<'b> {
    pub(super) hash: u64,
    pub(super) key: &'b [u8],
    pub(super) after: bool,
}

impl<'b> Start<'b> {
    /// The place just before `key`.
    pub(super) fn at(hash: u64, key: &'b [u8]) -> Self {
        Self {
            hash,
            key,
            after: false,
        }
    }

    /// The place just after `key`.
    pub(super) fn after(hash: u64, key: &'b [u8]) -> Self {
        Self {
            after: true,
            ..Self::at(hash, key)
        }
    }

    /// The place a bookmark names, or the first of all. `Invalid` if its bytes are no bookmark.
    #[expect(
        clippy::big_endian_bytes,
        reason = "bookmarks sort as bytes in scan order"
    )]
    pub(super) fn of(bookmark: Option<&'b Bookmark>) -> Result<Self> {
        let Some(bookmark) = bookmark else {
            return Ok(Self::at(0, &[]));
        };
        let bytes = bookmark.as_bytes();
        let parts = bytes.split_first_chunk::<8>().and_then(|(hash, rest)| {
            let (after, key) = rest.split_first()?;
            (*after <= 1).then_some((hash, *after == 1, key))
        });
        let (hash, after, key) = parts.ok_or_else(|| {
            Error::new(Kind::Invalid, "not a bookmark of a store in hash order")
                .found(quote(bytes), "8 bytes of hash, 0 or 1, and a key")
        })?;
        Ok(Self {
            hash: u64::from_be_bytes(*hash),
            key,
            after,
        })
    }

    /// The bytes to keep. Errors: `Full`, for a long key.
    pub(super) fn bookmark(&self) -> Result<Bookmark> {
        Bookmark::of(&[&self.head(), self.key])
    }

    /// As `bookmark`, where a failed allocation cannot be returned as an error.
    pub(super) fn bookmark_at_any_rate(&self) -> Bookmark {
        Bookmark::from_bytes(&[&self.head(), self.key].concat())
    }

    #[expect(
        clippy::big_endian_bytes,
        reason = "bookmarks sort as bytes in scan order"
    )]
    fn head(&self) -> [u8; 9] {
        let mut head = [u8::from(self.after); 9];
        head[..8].copy_from_slice(&self.hash.to_be_bytes());
        head
    }

    /// Whether a record belongs to what is still to be shown.
    pub(super) fn admits(&self, hash: u64, key: &[u8]) -> bool {
        match (hash, key).cmp(&(self.hash, self.key)) {
            Ordering::Less => false,
            Ordering::Equal => !self.after,
            Ordering::Greater => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_name_their_place_and_sort_as_the_scan_goes() {
        let places = [
            Start::at(0, b""),
            Start::at(7, b"a"),
            Start::after(7, b"a"),
            Start::at(256, b""),
        ];
        let bookmarks: Vec<Bookmark> = places.iter().map(|at| at.bookmark().unwrap()).collect();
        for (place, bookmark) in places.iter().zip(&bookmarks) {
            assert_eq!(Start::of(Some(bookmark)).unwrap(), *place);
            assert_eq!(place.bookmark_at_any_rate(), *bookmark);
        }
        assert!(bookmarks.is_sorted());
        assert_eq!(Start::of(None).unwrap(), places[0]);
        assert!(places[1].admits(7, b"a") && !places[2].admits(7, b"a"));
        assert!(places[2].admits(7, b"aa") && !places[2].admits(6, b"b"));
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b""[..], b"1234567", b"12345678", b"12345678\x02key"] {
            let bookmark = Bookmark::from_bytes(bytes);
            let error = Start::of(Some(&bookmark)).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains("8 bytes of hash"), "{error}");
        }
    }
}
