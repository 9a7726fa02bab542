//! A partition's entries as a checkpoint keeps them: sorted, and packed bit by bit.
//!
//! | size | meaning |
//! |---|---|
//! | 1 | p, bits of a place: 0 to 40 |
//! | 1 | k, bits of a tag's distance that are not counted one by one: 0 to 24 |
//! | .. | for each entry, lowest bit first: distance of its tag from the tag before, divided by 2^k, as so many zeros and a one; the distance's lower k bits; p bits of place |
//! | .. | zeros to a whole byte |
//!
//! Tags of a partition are spread evenly, so their distances are geometrically distributed, and a distance takes two
//! bits more than its mean has (idea: Golomb 1966, Rice 1979). With six million records an entry takes
//! 5.2 bytes instead of 8. Decoding is total: it ends where the bytes do.
//!
//! It does not know where images stand, nor their checksums.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use crate::index::hash::{ADDRESS_BITS, TAG_BITS};
use crate::index::place_of;

/// Zeros that are put at once.
const ZEROS_MAX: u32 = 31;
/// Steps for each entry that sorting what is nearly in order may take.
const MOVES_MAX: usize = 16;

/// The image of `entries` ([`crate::index::entry`]), which are sorted in passing. Cheapest where they are nearly in order,
/// as an index has them.
pub fn encode(entries: &mut [u64]) -> Vec<u8> {
    sort(entries);
    let largest = entries.iter().map(|entry| place_of(*entry)).max();
    let place_bits = u64::BITS - largest.unwrap_or(0).leading_zeros();
    let mean = (1 << TAG_BITS) / (entries.len() as u64).max(1);
    let rest_bits = mean.max(1).ilog2();
    // All distances together are less than one tag's range.
    let zeros = (1u64 << TAG_BITS >> rest_bits) as usize;
    let bits = entries.len() * (1 + rest_bits + place_bits) as usize + zeros;
    let mut writer = Writer::new(&[place_bits as u8, rest_bits as u8], bits);
    let mut before = 0;
    for entry in entries {
        let tag = *entry >> ADDRESS_BITS;
        let distance = tag - before;
        before = tag;
        let mut zeros = (distance >> rest_bits) as u32;
        while zeros > ZEROS_MAX {
            writer.put(0, ZEROS_MAX);
            zeros -= ZEROS_MAX;
        }
        let rest = distance & ((1 << rest_bits) - 1);
        writer.put((rest << 1 | 1) << zeros, zeros + 1 + rest_bits);
        writer.put(place_of(*entry), place_bits);
    }
    writer.end()
}

/// Sorts what is nearly in order: an index has the entries of a partition by buckets, and an entry not far from its own.
fn sort(entries: &mut [u64]) {
    let mut moves = entries.len() * MOVES_MAX;
    for at in 1..entries.len() {
        let (sorted, rest) = entries.split_at_mut(at);
        let Some(entry) = rest.first_mut() else {
            return;
        };
        // What is larger goes one up, until it is this entry's turn.
        let mut hole = entry;
        let moving = *hole;
        for other in sorted.iter_mut().rev() {
            if *other <= moving {
                break;
            }
            *hole = *other;
            hole = other;
            moves -= 1;
        }
        *hole = moving;
        // The next one may take as many as there are before it.
        if moves <= at {
            entries.sort_unstable();
            return;
        }
    }
}

/// The `count` entries of an image, by rising tag. `None`: this is none.
pub fn decode(bytes: &[u8], count: u32) -> Option<Vec<u64>> {
    let (&[place_bits, rest_bits], rest) = bytes.split_first_chunk::<2>()?;
    let (place_bits, rest_bits) = (u32::from(place_bits), u32::from(rest_bits));
    // An entry takes at least a bit: what a damaged count asks for is not reserved.
    let bits_there = (rest.len() as u64).checked_mul(8)?;
    if place_bits > ADDRESS_BITS || rest_bits > TAG_BITS || u64::from(count) > bits_there {
        return None;
    }
    let mut bits = Reader {
        rest,
        ..Reader::default()
    };
    let mut entries = Vec::with_capacity(count as usize);
    let mut tag = 0u64;
    for _ in 0..count {
        let high = u64::from(bits.zeros()?);
        tag += (high << rest_bits) + bits.take(rest_bits)?;
        if tag >> TAG_BITS != 0 {
            return None;
        }
        entries.push(tag << ADDRESS_BITS | bits.take(place_bits)?);
    }
    // Less than a byte is left, and it is zero.
    (bits.rest.is_empty() && bits.held < 8 && bits.ahead == 0).then_some(entries)
}

/// Writes bits, lowest first.
struct Writer {
    /// With room for what is to come, and a word more.
    bytes: Vec<u8>,
    /// Whole bytes so far.
    len: usize,
    /// Bits not yet counted in `len`, and how many: less than 8 between calls.
    pending: u64,
    held: u32,
}

impl Writer {
    /// One that begins with `head`, and for which `bits` bits are to come.
    fn new(head: &[u8], bits: usize) -> Self {
        let mut bytes = vec![0; head.len() + bits / 8 + 16];
        for (byte, first) in bytes.iter_mut().zip(head) {
            *byte = *first;
        }
        Self {
            bytes,
            len: head.len(),
            pending: 0,
            held: 0,
        }
    }

    /// Appends the lowest `len` bits of `value`, which has no others; at most 56.
    #[inline(always)]
    fn put(&mut self, value: u64, len: u32) {
        self.pending |= value << self.held;
        self.held += len;
        if let Some(word) = self.bytes.get_mut(self.len..self.len + 8) {
            word.copy_from_slice(&self.pending.to_le_bytes());
        }
        let whole = self.held / 8;
        self.len += whole as usize;
        self.pending >>= whole * 8;
        self.held %= 8;
    }

    fn end(mut self) -> Vec<u8> {
        // The last bits stand there already.
        self.bytes.truncate(self.len + usize::from(self.held > 0));
        self.bytes
    }
}

/// Reads bits, lowest first.
#[derive(Default)]
struct Reader<'a> {
    rest: &'a [u8],
    /// Bits taken from `rest` and not yet given out, and how many.
    ahead: u64,
    held: u32,
}

impl Reader<'_> {
    /// Holds at least `len` bits, at most 56. `None`: so many are not left.
    #[inline(always)]
    fn hold(&mut self, len: u32) -> Option<()> {
        if self.held >= len {
            return Some(());
        }
        if let Some(word) = self.rest.first_chunk::<8>() {
            // As many whole bytes as there is room for.
            let bytes = (63 - self.held) / 8;
            let word = u64::from_le_bytes(*word) & (u64::MAX >> (64 - bytes * 8));
            self.ahead |= word << self.held;
            self.held += bytes * 8;
            self.rest = self.rest.get(bytes as usize..)?;
            return Some(());
        }
        self.hold_last(len)
    }

    /// As `hold`, byte by byte.
    fn hold_last(&mut self, len: u32) -> Option<()> {
        while self.held < len {
            let (byte, rest) = self.rest.split_first()?;
            self.ahead |= u64::from(*byte) << self.held;
            self.held += 8;
            self.rest = rest;
        }
        Some(())
    }

    #[inline(always)]
    fn take(&mut self, len: u32) -> Option<u64> {
        self.hold(len)?;
        let value = self.ahead & ((1 << len) - 1);
        self.ahead >>= len;
        self.held -= len;
        Some(value)
    }

    /// The number of zeros in front of the next one, which is taken too. At most 2^24: more is no distance.
    #[inline(always)]
    fn zeros(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.ahead == 0 {
            zeros += self.held;
            self.held = 0;
            if zeros > 1 << TAG_BITS {
                return None;
            }
            self.hold(8)?;
        }
        let more = self.ahead.trailing_zeros();
        self.ahead >>= more + 1;
        self.held -= more + 1;
        Some(zeros + more)
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Entries of a partition: places below `places`, tags by `tag`.
    fn entries(count: u64, places: u64, tag: impl Fn(u64) -> u64) -> Vec<u64> {
        let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (0..count)
            .map(|n| ((tag(n) % (1 << TAG_BITS)) << ADDRESS_BITS) | (spread(n) % places.max(1)))
            .collect()
    }

    #[test]
    fn entries_come_back_sorted_whatever_their_spread() {
        let spread = |n: u64| n.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
        for count in [0, 1, 2, 3, 100, 1543, 20_000] {
            for places in [1, 2, 1 << 25, 1 << ADDRESS_BITS] {
                for of in [
                    entries(count, places, spread),
                    entries(count, places, |_| 0),
                    entries(count, places, |_| u64::MAX),
                    entries(count, places, |n| n % 2 * u64::MAX),
                ] {
                    let mut sorted = of.clone();
                    let bytes = encode(&mut sorted);
                    assert_eq!(decode(&bytes, count as u32).unwrap(), sorted);
                    let mut wanted = of;
                    wanted.sort_unstable();
                    assert_eq!(sorted, wanted);
                }
            }
        }
    }

    #[test]
    fn six_million_records_take_little_more_than_five_bytes_each() {
        let spread = |n: u64| n.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
        let mut of = entries(1543, 30_000_000, spread);
        let bytes = encode(&mut of);
        assert!(bytes.len() * 10 < 1543 * 53, "{} bytes", bytes.len());
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let mut of = entries(50, 1000, |n| n * 1000);
        let bytes = encode(&mut of);
        assert!(decode(&bytes, 51).is_none(), "more entries than there are");
        assert!(decode(&bytes, 49).is_none(), "fewer");
        assert!(decode(&bytes, u32::MAX).is_none());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], 50).is_none(), "cut at {len}");
        }
        assert!(decode(&[41, 3, 255], 1).is_none(), "places of 41 bits");
        assert!(decode(&[3, 25, 255], 1).is_none(), "distances of 25 bits");
        let zeros = vec![0; 1 << 22];
        assert!(decode(&[&[0, 24][..], &zeros].concat(), 1).is_none());
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decode(&longer, 50).is_none(), "a byte too many");
    }
}
