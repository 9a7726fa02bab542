//! Size classes: the slot lengths that blocks are divided into.
//!
//! | length of a slot | steps | wasted at most |
//! |---|---|---|
//! | 16 to 128 bytes | 2 bytes | 1 byte |
//! | to 8 KiB | an eighth of the power of two below | an eighth |
//! | longer records | a slot of 16 bytes with the address, and an allocation in units of 1 KiB | an eighth |
//!
//! Arithmetic only; `block` knows which block has which class.

/// Bytes of a block.
pub(super) const BLOCK: u64 = 64 << 10;
/// Bytes of the shortest slot.
pub(super) const SHORTEST: usize = 16;
const FINE: usize = 128;
/// Bytes of the longest slot.
pub(super) const LONGEST: usize = 8192;
const FINE_CLASSES: usize = (FINE - SHORTEST) / 2 + 1;
const DOUBLINGS: usize = (LONGEST / FINE).ilog2() as usize;
/// The class of slots that hold the address of an out-of-line record.
pub(super) const OUT_OF_LINE: usize = FINE_CLASSES + 8 * DOUBLINGS;
/// How many classes there are.
pub(super) const CLASSES: usize = OUT_OF_LINE + 1;
/// Words of the largest bitmap of a block.
pub(super) const WORDS: usize = BLOCK as usize / SHORTEST / 64;

/// A class of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    /// Bytes of a slot.
    pub(super) size: u32,
    /// Slots of a block.
    pub(super) slots: u32,
    /// 2^32 / `size`, rounded up: to divide by multiplying.
    inverse: u32,
}

impl Class {
    const fn of_size(size: usize) -> Self {
        Self {
            size: size as u32,
            slots: (BLOCK as usize / size) as u32,
            inverse: ((1u64 << 32) / size as u64 + 1) as u32,
        }
    }

    /// Which slot of its block begins `offset` bytes after the block's beginning.
    #[inline(always)]
    pub(super) fn slot(&self, offset: u32) -> u32 {
        ((u64::from(offset) * u64::from(self.inverse)) >> 32) as u32
    }

    /// Words of the bitmap of its blocks.
    pub(super) fn words(&self) -> u32 {
        self.slots.div_ceil(64)
    }

    /// The bits of word `word` of the bitmap that stand for slots.
    pub(super) fn all(&self, word: u32) -> u64 {
        let left = self.slots - word * 64;
        if left >= 64 {
            u64::MAX
        } else {
            (1 << left) - 1
        }
    }
}

/// All classes, shortest first; the last is [`OUT_OF_LINE`].
pub(super) static TABLE: [Class; CLASSES] = table();

const fn table() -> [Class; CLASSES] {
    let mut table = [Class::of_size(SHORTEST); CLASSES];
    let mut at = 0;
    while at < FINE_CLASSES {
        table[at] = Class::of_size(SHORTEST + 2 * at);
        at += 1;
    }
    while at < OUT_OF_LINE {
        let coarse = at - FINE_CLASSES;
        let below = FINE << (coarse / 8);
        table[at] = Class::of_size(below + below / 8 * (coarse % 8 + 1));
        at += 1;
    }
    table
}

/// The class of a record of `len` bytes, at most [`LONGEST`].
#[inline(always)]
pub(super) fn class_of(len: usize) -> usize {
    debug_assert!(len <= LONGEST);
    if len <= FINE {
        return len.saturating_sub(SHORTEST - 1) / 2;
    }
    let doubling = (len - 1).ilog2() as usize - FINE.ilog2() as usize;
    let below = FINE << doubling;
    FINE_CLASSES + 8 * doubling + (len - below - 1) / (below / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_shortest_class_that_holds_it() {
        for len in 1..=LONGEST {
            let class = class_of(len);
            let size = TABLE[class].size as usize;
            assert!(size >= len, "{len} in {size}");
            assert!(class == 0 || (TABLE[class - 1].size as usize) < len);
        }
        assert_eq!(TABLE[OUT_OF_LINE].size as usize, SHORTEST);
        assert_eq!(TABLE[OUT_OF_LINE - 1].size as usize, LONGEST);
    }

    #[test]
    fn dividing_by_multiplying_is_exact() {
        for class in &TABLE {
            assert!(class.words() as usize <= WORDS);
            for offset in 0..BLOCK as u32 {
                assert_eq!(class.slot(offset), offset / class.size);
            }
        }
    }
}
