//! Keys in groups, so that the cache misses of a group overlap instead of following one another.
//!
//! Two passes, one over the buckets and one over the records; the third, which answers, is the engine's. It does not
//! know what stands at a place.

use rapidhash::v3::RapidSecrets;

use crate::epoch::Pin;
use crate::index::hash::Hash;
use crate::index::{Glance, Index, Place};

/// Keys of a group: enough to hide a miss, few enough to stay in the first cache.
pub(super) const GROUP: usize = 32;

/// Hashes a group of keys and has their buckets, then (by `prefetch`) their records, brought near.
#[inline(always)]
pub(super) fn approach<'k>(
    index: &Index,
    pin: &Pin,
    secrets: &RapidSecrets,
    keys: impl Iterator<Item = &'k [u8]>,
    hashes: &mut [Hash; GROUP],
    prefetch: impl Fn(Place),
) {
    let mut len = 0;
    for (key, hash) in keys.zip(hashes.iter_mut()) {
        *hash = Hash::of_key(key, secrets);
        index.prefetch(pin, *hash);
        len += 1;
    }
    for hash in &hashes[..len] {
        if let Glance::At(place) = index.glance(pin, *hash) {
            prefetch(place);
        }
    }
}
