//! CRC32C, as a running state, fast for twenty bytes as well as for twenty megabytes.
//!
//! [`crc`] continues a state over bytes: no inversion before or after, so states chain. Short inputs
//! are summed word by word with the CPU's own instruction, inlined (a call through a general library
//! cost a third of the read rate on 20-byte records); long ones go to the `crc-fast` crate, which folds
//! them by carry-less multiplication where the CPU has it. Both give the same numbers on every machine;
//! tests hold them together.
//!
//! It does not know what is summed, nor where the sum is kept.

#![expect(unsafe_code, reason = "one CPU instruction, inlined")]

use std::sync::atomic::{AtomicU8, Ordering};

use crc_fast::{CrcAlgorithm, Digest};

/// Below this length the inlined loop wins over several streams.
const SHORT_LEN: usize = 256;

/// Whether the instruction is there: 0 not asked yet, 1 no, 2 yes.
static HARDWARE: AtomicU8 = AtomicU8::new(0);

#[inline(always)]
fn hardware() -> bool {
    match HARDWARE.load(Ordering::Relaxed) {
        2 => true,
        0 => detect(),
        _ => false,
    }
}

#[cold]
fn detect() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let found = std::arch::is_x86_feature_detected!("sse4.2");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let found = false;
    HARDWARE.store(if found { 2 } else { 1 }, Ordering::Relaxed);
    found
}

/// One step of the instruction over eight bytes.
///
/// # Safety
/// - the CPU has SSE4.2 (`hardware()` reported so).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn step(state: u32, word: u64) -> u32 {
    let mut wide = u64::from(state);
    // SAFETY: the CPU has SSE4.2, of which the instruction is a part; it reads and writes registers only.
    unsafe {
        std::arch::asm!("crc32 {0}, {1}", inout(reg) wide, in(reg) word,
            options(pure, nomem, nostack, preserves_flags));
    }
    wide as u32
}

/// The state after few `bytes`, one step after the other.
///
/// # Safety
/// - the CPU has SSE4.2 (`hardware()` reported so).
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn short(mut state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        // SAFETY: the CPU has SSE4.2: the caller asked `hardware()`.
        state = unsafe { step(state, u64::from_le_bytes(*word)) };
    }
    for byte in rest {
        // SAFETY: the CPU has SSE4.2, of which the instruction is a part; it reads and writes registers only.
        unsafe {
            std::arch::asm!("crc32 {0:e}, {1}", inout(reg) state, in(reg_byte) *byte,
                options(pure, nomem, nostack, preserves_flags));
        }
    }
    state
}

/// The state after `words`, each eight bytes little-endian: for lengths known to be whole words.
#[inline(always)]
pub fn crc_words(mut state: u32, first: u64, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if hardware() {
        // SAFETY: `hardware()` holds.
        state = unsafe { step(state, first) };
        if bytes.len() < SHORT_LEN {
            let (words, rest) = bytes.as_chunks::<8>();
            if let ([a, b], []) = (words, rest) {
                // A key and a value of eight bytes: no loop.
                // SAFETY: `hardware()` holds.
                return unsafe {
                    step(step(state, u64::from_le_bytes(*a)), u64::from_le_bytes(*b))
                };
            }
            // SAFETY: `hardware()` holds.
            return unsafe { short(state, bytes) };
        }
        return library(state, bytes);
    }
    state = library(state, &first.to_le_bytes());
    library(state, bytes)
}

/// The state after `bytes`.
pub fn crc(state: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes.len() < SHORT_LEN && hardware() {
        // SAFETY: `hardware()` holds.
        return unsafe { short(state, bytes) };
    }
    library(state, bytes)
}

/// The polynomial, its bits reversed: what the last bit of the input changes.
pub const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What a state becomes by `2^k` bytes of zeros: `x^(8 * 2^k)` modulo the polynomial, for each `k`.
const BY_ZEROS: [u32; 32] = by_zeros();

#[expect(clippy::indexing_slicing, reason = "`get_mut` is no constant function")]
const fn by_zeros() -> [u32; 32] {
    let mut all = [0; 32];
    // `x^8`: the highest bit is `x^0`.
    let mut power = 1 << 23;
    let mut k = 0;
    while k < all.len() {
        all[k] = power;
        power = product(power, power);
        k += 1;
    }
    all
}

/// The product of two polynomials modulo the polynomial.
const fn product(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, 1 << 31);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(b & 1));
        bit >>= 1;
    }
    product
}

/// The state after `len` zero bytes, in time of the logarithm of `len`. With it states of parts make that of the whole: after `a`
/// and then `b` it is `crc_zeros(crc(state, a), b.len()) ^ crc(0, b)`, since a CRC is linear (zlib's `crc32_combine`).
pub fn crc_zeros(state: u32, len: u32) -> u32 {
    let powers = BY_ZEROS.iter().enumerate();
    powers
        .filter(|(k, _)| len >> k & 1 == 1)
        .fold(state, |state, (_, power)| product(*power, state))
}

/// The library inverts the state in the end; undone here.
fn library(state: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    !(digest.finalize() as u32)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_value_comes_out() {
        assert_eq!(!crc(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn long_sums_are_those_of_their_parts_however_they_are_cut_and_placed() {
        let bytes: Vec<u8> = (0..200_003u32)
            .map(|i| (i.wrapping_mul(i) >> 5) as u8)
            .collect();
        let mut len = 256;
        while len < bytes.len() {
            for start in [0, 1, 7, 8, 15, 63] {
                let whole = &bytes[start.min(len)..len];
                let parts = whole.chunks(255).fold(9, crc);
                assert_eq!(crc(9, whole), parts, "{start}..{len}");
            }
            len += len / 7 + 1;
        }
    }

    #[test]
    fn the_state_after_a_part_is_that_after_zeros_and_that_of_the_part() {
        let bytes: Vec<u8> = (0..70_000u32)
            .map(|i| (i.wrapping_mul(i) >> 7) as u8)
            .collect();
        for len in (0..70).chain([255, 256, 4096, 65_535, 65_536, 70_000]) {
            let part = &bytes[..len];
            let state = !(len as u32);
            let zeros = crc_zeros(state, len as u32);
            assert_eq!(zeros, crc(state, &vec![0; len]), "length {len}");
            assert_eq!(zeros ^ crc(0, part), crc(state, part), "length {len}");
        }
    }

    #[test]
    fn the_inlined_loop_and_the_library_agree_at_every_length() {
        let bytes: Vec<u8> = (0..600u32).map(|i| (i * 31 + 7) as u8).collect();
        for len in 0..bytes.len() {
            let first = 0x0123_4567_89ab_cdef_u64 ^ len as u64;
            let mut whole = first.to_le_bytes().to_vec();
            whole.extend_from_slice(&bytes[..len]);
            assert_eq!(
                crc_words(77, first, &bytes[..len]),
                library(77, &whole),
                "length {len}"
            );
            assert_eq!(crc(77, &whole), library(77, &whole), "length {len}");
            // Bit by bit, as the polynomial states.
            let slow = whole.iter().fold(77u32, |state, byte| {
                (0..8).fold(state ^ u32::from(*byte), |state, _| {
                    (state >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(state & 1))
                })
            });
            assert_eq!(library(77, &whole), slow, "length {len}");
        }
    }
}
