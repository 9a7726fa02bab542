//! Scanning what an index points to: all records in the order of their hashes.
//!
//! Since growth keeps the order of hashes, a bookmark stays good for as long as the store lives. The entries of
//! one chunk are taken one after the other; what is put after it later is seen, what was put before it is not, and
//! what was there all along is seen once. A record that is removed and put again meanwhile may stand in a slot that was
//! taken and in one that is still to come: it is seen once, too. It does not know how a record is found at its place.

use rapidhash::v3::RapidSecrets;

use super::bookmark::Start;
use crate::engine::{Bookmark, Damaged, Visit};
use crate::error::{Kind, Result};
use crate::index::hash::{Hash, PARTITIONS};
use crate::index::{Index, Place};
use crate::room;

/// How far ahead records are asked for.
const AHEAD: usize = 16;

/// The place just before `key`.
pub(super) fn bookmark(hash: Hash, key: &[u8]) -> Bookmark {
    Start::at(hash.0, key).bookmark_at_any_rate()
}

/// The place just after `key`.
pub(super) fn after(hash: Hash, key: &[u8]) -> Bookmark {
    Start::after(hash.0, key).bookmark_at_any_rate()
}

/// Receives one record, lent: key and value.
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
            let pin = self.index.pin();
            let (mut entries, next) = match self.index.scan_chunk(&pin, hash) {
                // A part of the index does not verify or cannot be read: the next ones can be loaded.
                Err(error) if matches!(error.kind(), Kind::Corrupted | Kind::Io) => {
                    damaged(error)?;
                    at = (hash.partition() + 1 < PARTITIONS)
                        .then(|| Hash::first_of(hash.partition() + 1));
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
                        stopped = Some(Start::after(hash.0, key).bookmark()?);
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

    /// Entries whose known bits are equal are put in order by all of the hash and the key, one for each key; damaged ones come
    /// first, and are reported in their order.
    fn order_alike(&self, entries: &mut Vec<(u64, Place)>) -> Result<()> {
        let are_alike = |pair: &[(u64, Place)]| matches!(pair, [(a, _), (b, _)] if a == b);
        if !entries.windows(2).any(are_alike) {
            return Ok(());
        }
        let mut ordered = room::vec(entries.len())?;
        for alike in entries.chunk_by(|(a, _), (b, _)| a == b) {
            if let [alone] = alike {
                ordered.push(*alone);
                continue;
            }
            let mut keyed = room::vec(alike.len())?;
            for entry in alike {
                let mut whose = None;
                let lent = (self.lend)(entry.1, &mut |key, _| {
                    whose = Some((Hash::of_key(key, self.secrets), room::copy(key)?));
                    Ok(())
                });
                if !lent.as_ref().is_err_and(|e| e.kind() == Kind::Corrupted) {
                    lent?;
                }
                keyed.push((whose, *entry));
            }
            keyed.sort();
            keyed.dedup_by(|(b, _), (a, _)| a.is_some() && a == b);
            ordered.extend(keyed.into_iter().map(|(_, entry)| entry));
        }
        *entries = ordered;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Index;

    /// As if a record had been removed and put again between two looks at the slots of its chunk.
    #[test]
    fn a_key_that_two_slots_point_to_is_seen_once() {
        let index = Index::new(&crate::epoch::Domain::new()).unwrap();
        let secrets = RapidSecrets::seed(1);
        let keys: Vec<[u8; 2]> = (0..500u16).map(u16::to_le_bytes).collect();
        let pin = index.pin();
        for (at, key) in keys.iter().enumerate() {
            let hash = Hash::of_key(key, &secrets);
            // Of each tenth key two, at places of which both hold it.
            for place in 0..if at % 10 == 0 { 2 } else { 1 } {
                let put = index.lock_to_put(&pin, hash, |_| Ok(None::<()>));
                let (mut locked, _) = put.unwrap();
                locked.fill(1 + at as u64 * 2 + place);
            }
        }
        let scan = Scan {
            index: &index,
            secrets: &secrets,
            prefetch: &|_| (),
            lend: &|place, lent| lent(&keys[(place as usize - 1) / 2], b""),
        };
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            seen.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        assert!(scan.run(None, &mut visit, &mut Err).unwrap().is_none());
        assert_eq!(seen.len(), keys.len());
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), keys.len());
    }
}
