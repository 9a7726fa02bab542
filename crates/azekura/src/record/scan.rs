//! Scanning what an index points to: all records in the order of their hashes.
//!
//! A bookmark is the hash and the key behind which to go on; since growth keeps the order of hashes, it
//! stays good for as long as the store lives. The entries of one chunk are taken at one moment; what is
//! put behind it later is seen, what was put before it is not, and what was there all along is seen once.
//!
//! | bytes of a bookmark | meaning |
//! |---|---|
//! | 8, big-endian | the hash |
//! | 1 | 0: at the key, 1: behind it |
//! | .. | the key |

use rapidhash::v3::RapidSecrets;

use crate::engine::{Bookmark, Visit};
use crate::epoch;
use crate::error::{Error, Kind, Result};
use crate::index::hash::Hash;
use crate::index::{Index, Place};

/// How far ahead records are asked for.
const AHEAD: usize = 16;

/// The place just before `key`.
pub(super) fn bookmark(hash: Hash, key: &[u8]) -> Bookmark {
    encode(hash, false, key)
}

/// The place just behind `key`.
pub(super) fn behind(hash: Hash, key: &[u8]) -> Bookmark {
    encode(hash, true, key)
}

#[expect(
    clippy::big_endian_bytes,
    reason = "bookmarks sort as bytes in scan order"
)]
fn encode(hash: Hash, behind: bool, key: &[u8]) -> Bookmark {
    let mut bytes = hash.0.to_be_bytes().to_vec();
    bytes.push(u8::from(behind));
    bytes.extend_from_slice(key);
    Bookmark::from_bytes(&bytes)
}

/// From where a scan goes on.
struct From<'b> {
    hash: Hash,
    behind: bool,
    key: &'b [u8],
}

#[expect(
    clippy::big_endian_bytes,
    reason = "bookmarks sort as bytes in scan order"
)]
fn decode(bookmark: &Bookmark) -> Result<From<'_>> {
    let bytes = bookmark.as_bytes();
    let parts = bytes.split_first_chunk::<8>().and_then(|(hash, rest)| {
        let (behind, key) = rest.split_first()?;
        (*behind <= 1).then_some((hash, *behind == 1, key))
    });
    let (hash, behind, key) = parts.ok_or_else(|| {
        Error::new(Kind::Invalid, "not a bookmark of a store in hash order").found(
            crate::error::quote(bytes),
            "8 bytes of hash, 0 or 1, and a key",
        )
    })?;
    Ok(From {
        hash: Hash(u64::from_be_bytes(*hash)),
        behind,
        key,
    })
}

impl From<'_> {
    fn admits(&self, hash: Hash, key: &[u8]) -> bool {
        match (hash, key).cmp(&(self.hash, self.key)) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => !self.behind,
            std::cmp::Ordering::Greater => true,
        }
    }
}

/// Is lent a record: key and value.
pub(super) type Lend<'v> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'v;

/// What is scanned: an index, and a way to the records it points to.
pub(super) struct Scan<'s> {
    pub(super) index: &'s Index,
    pub(super) secrets: &'s RapidSecrets,
    pub(super) prefetch: &'s dyn Fn(Place),
    /// Lends the record at a place, if there is one, for the duration of a call.
    pub(super) lend: &'s dyn Fn(Place, &mut Lend<'_>) -> Result<()>,
}

impl Scan<'_> {
    pub(super) fn run(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Bookmark>> {
        let start = match from {
            Some(bookmark) => decode(bookmark)?,
            None => From {
                hash: Hash(0),
                behind: false,
                key: &[],
            },
        };
        let mut at = Some(start.hash);
        while let Some(hash) = at {
            let pin = epoch::pin();
            let (mut entries, next) = self.index.scan_chunk(&pin, hash)?;
            self.order_alike(&mut entries)?;
            for (_, place) in entries.iter().take(AHEAD) {
                (self.prefetch)(*place);
            }
            for (done, (_, place)) in entries.iter().enumerate() {
                if let Some((_, ahead)) = entries.get(done + AHEAD) {
                    (self.prefetch)(*ahead);
                }
                let mut stopped = None;
                (self.lend)(*place, &mut |key, value| {
                    let hash = Hash::of_key(key, self.secrets);
                    if start.admits(hash, key) && visit(key, value).is_break() {
                        stopped = Some(behind(hash, key));
                    }
                    Ok(())
                })?;
                if stopped.is_some() {
                    return Ok(stopped);
                }
            }
            at = next;
        }
        Ok(None)
    }

    /// Entries whose known bits are equal are put in order by all of the hash and the key.
    fn order_alike(&self, entries: &mut [(u64, Place)]) -> Result<()> {
        for alike in entries
            .chunk_by_mut(|(a, _), (b, _)| a == b)
            .filter(|alike| alike.len() > 1)
        {
            let mut keyed = Vec::with_capacity(alike.len());
            for entry in alike.iter() {
                let mut keys = (Hash(0), Vec::new());
                (self.lend)(entry.1, &mut |key, _| {
                    keys = (Hash::of_key(key, self.secrets), key.to_vec());
                    Ok(())
                })?;
                keyed.push((keys, *entry));
            }
            keyed.sort();
            for (entry, (_, sorted)) in alike.iter_mut().zip(keyed) {
                *entry = sorted;
            }
        }
        Ok(())
    }
}
