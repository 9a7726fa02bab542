//! Scanning what an index points to: all records in the order of their hashes.
//!
//! Since growth keeps the order of hashes, a bookmark stays good for as long as the store lives. The entries of
//! one chunk are taken at one moment; what is put behind it later is seen, what was put before it is not, and
//! what was there all along is seen once. It does not know how a record is found at its place.

use rapidhash::v3::RapidSecrets;

use super::bookmark::Start;
use crate::engine::{Bookmark, Damaged, Visit};
use crate::epoch;
use crate::error::{Kind, Result};
use crate::index::hash::{Hash, STRIPES};
use crate::index::{Index, Place};
use crate::room;

/// How far ahead records are asked for.
const AHEAD: usize = 16;

/// The place just before `key`.
pub(super) fn bookmark(hash: Hash, key: &[u8]) -> Bookmark {
    Start::at(hash.0, key).bookmark_at_any_rate()
}

/// The place just behind `key`.
pub(super) fn behind(hash: Hash, key: &[u8]) -> Bookmark {
    Start::behind(hash.0, key).bookmark_at_any_rate()
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
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        let start = Start::of(from)?;
        let mut at = Some(Hash(start.hash));
        while let Some(hash) = at {
            let pin = epoch::pin();
            let (mut entries, next) = match self.index.scan_chunk(&pin, hash) {
                // A part of the index does not verify or cannot be read: the next ones can be loaded.
                Err(error) if matches!(error.kind(), Kind::Corrupted | Kind::Io) => {
                    damaged(error)?;
                    at = (hash.stripe() + 1 < STRIPES).then(|| Hash::first_of(hash.stripe() + 1));
                    continue;
                }
                scanned => scanned?,
            };
            self.order_alike(&mut entries)?;
            for (_, place) in entries.iter().take(AHEAD) {
                (self.prefetch)(*place);
            }
            for (done, (_, place)) in entries.iter().enumerate() {
                if let Some((_, ahead)) = entries.get(done + AHEAD) {
                    (self.prefetch)(*ahead);
                }
                let mut stopped = None;
                let lent = (self.lend)(*place, &mut |key, value| {
                    let hash = Hash::of_key(key, self.secrets);
                    if start.admits(hash.0, key) && visit(key, value).is_break() {
                        stopped = Some(Start::behind(hash.0, key).bookmark()?);
                    }
                    Ok(())
                });
                match lent {
                    Err(error) if error.kind() == Kind::Corrupted => damaged(error)?,
                    lent => lent?,
                }
                if stopped.is_some() {
                    return Ok(stopped);
                }
            }
            at = next;
        }
        Ok(None)
    }

    /// Entries whose known bits are equal are put in order by all of the hash and the key; damaged ones come
    /// first, and are told of when it is their turn.
    fn order_alike(&self, entries: &mut [(u64, Place)]) -> Result<()> {
        for alike in entries
            .chunk_by_mut(|(a, _), (b, _)| a == b)
            .filter(|alike| alike.len() > 1)
        {
            let mut keyed = room::vec(alike.len())?;
            for entry in alike.iter() {
                let mut keys = (Hash(0), Vec::new());
                let lent = (self.lend)(entry.1, &mut |key, _| {
                    keys = (Hash::of_key(key, self.secrets), room::copy(key)?);
                    Ok(())
                });
                if !lent.as_ref().is_err_and(|e| e.kind() == Kind::Corrupted) {
                    lent?;
                }
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
