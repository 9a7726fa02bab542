//! Bytes in atomic words: what a reader may look at while a writer changes it.
//!
//! Byte `n` is bits `8 * (n % 8)` and up of word `n / 8`, on every machine. Loads are relaxed, so a reader concurrent with a writer
//! gets old and new words mixed, and nothing worse; who reads so must ask a latch what it was worth. Where there is
//! nothing, zeros are read, and nothing is stored. It does not know nodes.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug)]
pub(super) struct Memory<'m>(pub(super) &'m [AtomicU64]);

#[inline(always)]
fn mask(len: usize) -> u64 {
    if len >= 8 {
        u64::MAX
    } else {
        (1 << (len * 8)) - 1
    }
}

/// Fewer than eight bytes as a little-endian number, by two loads that may overlap: a copy of so few would be a call.
#[inline(always)]
fn few(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return u64::from(u32::from_le_bytes(*first)) | last << ((bytes.len() - 4) * 8);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
        let last = u64::from(u16::from_le_bytes(*last));
        return u64::from(u16::from_le_bytes(*first)) | last << ((bytes.len() - 2) * 8);
    }
    bytes.first().map_or(0, |byte| u64::from(*byte))
}

impl Memory<'_> {
    #[inline(always)]
    pub(super) fn word(self, at: usize) -> u64 {
        self.0
            .get(at)
            .map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn set_word(self, at: usize, value: u64) {
        debug_assert!(at < self.0.len());
        if let Some(word) = self.0.get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// At most eight bytes, as a little-endian number.
    #[inline(always)]
    pub(super) fn bits(self, at: usize, len: usize) -> u64 {
        let (word, shift) = (at / 8, at % 8 * 8);
        let mut value = self.word(word) >> shift;
        if shift + len * 8 > 64 {
            value |= self.word(word + 1) << (64 - shift);
        }
        value & mask(len)
    }

    #[inline(always)]
    pub(super) fn set_bits(self, at: usize, len: usize, value: u64) {
        let (word, shift) = (at / 8, at % 8 * 8);
        let (mask, value) = (mask(len), value & mask(len));
        self.set_word(word, self.word(word) & !(mask << shift) | value << shift);
        if shift + len * 8 > 64 {
            let after = 64 - shift;
            self.set_word(
                word + 1,
                self.word(word + 1) & !(mask >> after) | value >> after,
            );
        }
    }

    #[inline(always)]
    pub(super) fn read(self, mut at: usize, into: &mut [u8]) {
        let mut chunks = into.chunks_exact_mut(8);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.bits(at, 8).to_le_bytes());
            at += 8;
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            let bytes = self.bits(at, rest.len()).to_le_bytes();
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
    }

    #[inline(always)]
    pub(super) fn write(self, mut at: usize, from: &[u8]) {
        let (chunks, rest) = from.as_chunks::<8>();
        for chunk in chunks {
            self.set_bits(at, 8, u64::from_le_bytes(*chunk));
            at += 8;
        }
        if !rest.is_empty() {
            self.set_bits(at, rest.len(), few(rest));
        }
    }

    /// How the bytes at `at` compare with `other`, as bytes.
    #[inline(always)]
    pub(super) fn compare(self, mut at: usize, len: usize, other: &[u8]) -> std::cmp::Ordering {
        let alike = len.min(other.len());
        let (chunks, rest) = other.get(..alike).unwrap_or_default().as_chunks::<8>();
        for chunk in chunks {
            let theirs = u64::from_le_bytes(*chunk).swap_bytes();
            let ours = self.bits(at, 8).swap_bytes();
            if ours != theirs {
                return ours.cmp(&theirs);
            }
            at += 8;
        }
        if !rest.is_empty() {
            let theirs = few(rest).swap_bytes();
            let ours = self.bits(at, rest.len()).swap_bytes();
            if ours != theirs {
                return ours.cmp(&theirs);
            }
        }
        len.cmp(&other.len())
    }

    /// Moves `count` words by one up or down.
    #[inline(always)]
    pub(super) fn shift_up(self, from: usize, count: usize) {
        let Some(words) = self.0.get(from..=from + count) else {
            return;
        };
        for pair in words.windows(2).rev() {
            pair[1].store(pair[0].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Moves `count` words from after `to` to it.
    #[inline(always)]
    pub(super) fn shift_down(self, to: usize, count: usize) {
        let Some(words) = self.0.get(to..=to + count) else {
            return;
        };
        for pair in words.windows(2) {
            pair[0].store(pair[1].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Makes it what `other`, as long, is.
    pub(super) fn copy_from(self, other: Memory<'_>) {
        for (to, from) in self.0.iter().zip(other.0) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
