//! Keys in groups, so that the cache misses of a group overlap instead of following one another.
//!
//! Two passes, one over the buckets and one over the records; the third, which answers, is the engine's. It does not
//! know what stands at a place.

use rapidhash::v3::RapidSecrets;

use crate::epoch::Pin;
use crate::error::Result;
use crate::index::hash::Hash;
use crate::index::{Index, Place, Probed};

/// Keys of a group: enough to hide a miss, few enough to stay in the first cache.
pub(super) const GROUP: usize = 32;

/// What has a key: a key, or a record.
pub(super) trait Keyed {
    fn key(&self) -> &[u8];
}

impl Keyed for &[u8] {
    #[inline(always)]
    fn key(&self) -> &[u8] {
        self
    }
}

impl Keyed for (&[u8], &[u8]) {
    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.0
    }
}

/// Prefetches the buckets and (by `prefetch`) the records of these keys.
#[inline(always)]
pub(super) fn prefetch_keys(
    index: &Index,
    secrets: &RapidSecrets,
    prefetch: impl Fn(Place),
    keys: &[&[u8]],
) {
    // The callback is infallible.
    let _ = in_groups(index, secrets, prefetch, keys, |_, _, _, _| Ok(()));
}

/// Calls `each` with every item, in order, its number, and the hash of its key, under a pin of its group, whose buckets
/// and then (by `prefetch`) records were prefetched before. The first error ends it.
#[inline(always)]
pub(super) fn in_groups<T: Keyed>(
    index: &Index,
    secrets: &RapidSecrets,
    prefetch: impl Fn(Place),
    items: &[T],
    mut each: impl FnMut(&Pin, usize, &T, Hash) -> Result<()>,
) -> Result<()> {
    for (group, items) in items.chunks(GROUP).enumerate() {
        let pin = index.pin();
        let hashes = hashes_of(&pin, index, secrets, &prefetch, items);
        for (at, (item, hash)) in items.iter().zip(&hashes).enumerate() {
            each(&pin, group * GROUP + at, item, *hash)?;
        }
    }
    Ok(())
}

/// As [`in_groups`], without a pin while `each` runs: for updates that may have to wait for a grace period.
#[inline(always)]
pub(super) fn in_groups_unpinned<T: Keyed>(
    index: &Index,
    secrets: &RapidSecrets,
    prefetch: impl Fn(Place),
    items: &[T],
    mut each: impl FnMut(&T, Hash) -> Result<()>,
) -> Result<()> {
    for items in items.chunks(GROUP) {
        let hashes = hashes_of(&index.pin(), index, secrets, &prefetch, items);
        for (item, hash) in items.iter().zip(&hashes) {
            each(item, *hash)?;
        }
    }
    Ok(())
}

/// The hashes of a group, whose buckets and then records are prefetched.
#[inline(always)]
fn hashes_of<T: Keyed>(
    pin: &Pin,
    index: &Index,
    secrets: &RapidSecrets,
    prefetch: &impl Fn(Place),
    items: &[T],
) -> [Hash; GROUP] {
    let mut hashes = [Hash(0); GROUP];
    for (item, hash) in items.iter().zip(&mut hashes) {
        *hash = Hash::of_key(item.key(), secrets);
        index.prefetch(pin, *hash);
    }
    for hash in &hashes[..items.len()] {
        if let Probed::At(place) = index.probe(pin, *hash) {
            prefetch(place);
        }
    }
    hashes
}
