//! The hash as the index uses it, and its parts.
//!
//! | bits | from the top | use |
//! |---|---|---|
//! | 12 | 0 | the partition: the unit that is loaded and checkpointed |
//! | 24 | 12 | the tag: stored in the entry |
//! | 28 | 36 | not stored |
//!
//! The upper 36 bits are known of every entry without reading its record: enough to grow chunks and to
//! split them, up to some hundred billion records. Which bits choose the chunk moves with its depth.
//!
//! Skew: a uniform hash `u` in [0, 1) becomes `u + k u (1 - u)`, which is monotone and makes the mass of
//! equal pieces vary by a factor of two over the range, evenly in the logarithm. Chunks then reach
//! their limit at different times, at every size of the whole. It knows neither chunks nor keys.

use rapidhash::v3::RapidSecrets;

/// Bits that choose the partition.
pub const PARTITION_BITS: u32 = 12;
/// How many partitions there are.
pub const PARTITIONS: usize = 1 << PARTITION_BITS;
/// Bits of hash in an entry.
pub const TAG_BITS: u32 = 24;
/// Bits of an entry's hash that are known.
pub const KNOWN_BITS: u32 = PARTITION_BITS + TAG_BITS;
/// Bits of address in an entry.
pub const ADDRESS_BITS: u32 = 64 - TAG_BITS;

/// A skewed hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub u64);

impl Hash {
    /// Skews a uniform hash.
    #[inline(always)]
    pub fn of(uniform: u64) -> Self {
        #[expect(clippy::cast_sign_loss, reason = "it is positive")]
        const K: u128 = (0.343 * (1u64 << 63) as f64 * 2.0) as u128;
        let spread = (u128::from(uniform) * u128::from(!uniform)) >> 64;
        Self(uniform + ((spread * K) >> 64) as u64)
    }

    /// The hash of a key, under the secrets of a store.
    #[inline(always)]
    pub fn of_key(key: &[u8], secrets: &RapidSecrets) -> Self {
        let uniform = rapidhash::v3::rapidhash_v3_inline::<true, false, false>(key, secrets);
        Self::of(uniform)
    }

    /// The smallest hash of a partition.
    pub fn first_of(partition: usize) -> Self {
        Self((partition as u64) << (64 - PARTITION_BITS))
    }

    /// Which partition it belongs to.
    #[inline(always)]
    pub fn partition(self) -> usize {
        (self.0 >> (64 - PARTITION_BITS)) as usize
    }

    /// The bits stored in its entry.
    #[inline(always)]
    pub fn tag(self) -> u64 {
        (self.0 >> (64 - KNOWN_BITS)) & ((1 << TAG_BITS) - 1)
    }

    /// The bits known of its entry.
    #[inline(always)]
    pub fn known(self) -> u64 {
        self.0 >> (64 - KNOWN_BITS)
    }

    /// The smallest hash after all that share its first `depth` bits.
    pub fn next_prefix(self, depth: u32) -> Option<Self> {
        let prefix = self.0 >> (64 - depth);
        let next = prefix + 1;
        (next >> depth == 0).then(|| Self(next << (64 - depth)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_keeps_order_and_spreads_mass_by_a_factor_of_two() {
        let mut before = Hash::of(0);
        let mut first = 0;
        let mut last = 0;
        for step in 1..=4096u64 {
            let uniform = (step << 52).wrapping_sub(1);
            let hash = Hash::of(uniform);
            assert!(hash >= before);
            before = hash;
            first += u32::from(hash.0 < u64::MAX / 16);
            last += u32::from(hash.0 > u64::MAX / 16 * 15);
        }
        assert_eq!(Hash::of(0).0, 0);
        assert!(Hash::of(u64::MAX).0 > u64::MAX - (1 << 20));
        let ratio = f64::from(last) / f64::from(first);
        assert!((1.7..2.3).contains(&ratio), "{first} {last}");
    }

    #[test]
    fn prefixes_follow_one_another_and_end() {
        let hash = Hash::first_of(PARTITIONS - 1);
        assert_eq!(hash.next_prefix(12), None);
        assert_eq!(Hash(0).next_prefix(12), Some(Hash::first_of(1)));
        assert!(
            hash.next_prefix(13)
                .is_some_and(|next| next.partition() == PARTITIONS - 1)
        );
    }
}
