//! One flipped bit, and which one a checksum states it is.
//!
//! A CRC is linear: a single flipped bit changes the sum by a word that no other bit of the same bytes gives, whatever they
//! are. So of a frame or image of which one bit rotted, the bytes that were written are known as well as any whose checksum
//! holds. Other damage passes for one flipped bit with a chance of the bits summed in 2^32. What is longer than [`LEN_MAX`] is
//! therefore not corrected, which keeps it below 1 in 4000 for the longest, and below 1 in a million for 500 bytes. Whether a bit of
//! it is wrong can be asked, up to [`LONG_MAX`], by who has other evidence.
//!
//! It does not know where the bytes stand, nor what they state.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use super::checksum::POLYNOMIAL;
use super::frame::{Frame, HEAD_SUM, Header, INNER, NoFrame};

/// Bytes of the longest frame or image in which a bit is looked for.
pub const LEN_MAX: usize = 128 << 10;
/// Bytes of the longest frame that is checked for one flipped bit.
pub const LONG_MAX: usize = 64 << 20;

/// Bits of a frame's first words, which state how long it is.
const HEAD_BITS: usize = 128;
const WORD_BITS: usize = 64;

/// Flips a bit; nothing if there are not so many.
pub fn flip(bytes: &mut [u8], bit: usize) {
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

/// Which bit of the `len` bytes that are summed last changes the sum by `delta`. `None`: no single one, or they are longer than
/// [`LEN_MAX`].
pub fn bit_of_sum(delta: u32, len: usize) -> Option<usize> {
    bits_of_sum(delta, u32::MAX, len, LEN_MAX).next()
}

/// As [`bit_of_sum`], of up to [`LONG_MAX`] bytes, among which other damage passes for one bit with a chance of up to one in eight.
pub fn bit_of_long_sum(delta: u32, len: usize) -> Option<usize> {
    bits_of_sum(delta, u32::MAX, len, LONG_MAX).next()
}

/// As [`bit_of_sum`], of a sum of which only the bits of `kept` are known: each bit that it may be.
fn bits_of_sum(delta: u32, kept: u32, len: usize, max: usize) -> impl Iterator<Item = usize> {
    let bits = if len > max || delta == 0 { 0 } else { len * 8 };
    let mut state = POLYNOMIAL;
    (0..bits).rev().filter(move |_| {
        let is_it = state & kept == delta;
        state = (state >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(state & 1));
        is_it
    })
}

/// Each bit of the head of a long frame, at the front of `bytes`, with which flipped the head's own sum holds. Its lengths and key
/// must lie within them, and within [`LEN_MAX`].
pub fn bits_of_head(bytes: &[u8], seed: u32, place: u32) -> Vec<usize> {
    let mut other = bytes.to_vec();
    let mut found = Vec::new();
    // The first half of the first word is the sum of the whole.
    for bit in WORD_BITS / 2..HEAD_BITS {
        flip(&mut other, bit);
        if Frame::head(&other, seed, place).is_some_and(|head| head.delta == 0) {
            found.push(bit);
        }
        flip(&mut other, bit);
    }
    if let Some(head) = Frame::head(bytes, seed, place) {
        let bits = bits_of_sum(head.delta, HEAD_SUM, head.key.len(), LEN_MAX);
        found.extend(bits.map(|bit| HEAD_BITS + bit));
    }
    found
}

/// Flips the one bit that makes `bytes` begin with a frame; the bit, and the frame's length. `None`: there is no such bit, and
/// nothing is changed. A frame that is a part of another is one only if `inner` states that such a one is looked for, and only then.
/// A bit of a head whose own sum holds is not the one.
pub fn mend_frame(bytes: &mut [u8], seed: u32, place: u32, inner: bool) -> Option<(usize, usize)> {
    let bytes = match bytes.len() {
        len if len > LEN_MAX => bytes.get_mut(..LEN_MAX)?,
        _ => bytes,
    };
    let verifies = |bytes: &[u8], bit: usize| {
        let frame = Frame::decode(bytes, seed, place).ok()?;
        // Only a long one has its length in the second word.
        let is_whole = frame.has(INNER) == inner && (bit < WORD_BITS || frame.header.is_long());
        is_whole.then(|| frame.len())
    };
    let head = Frame::head(bytes, seed, place).filter(|head| head.delta == 0);
    let whole = head.map_or(0..0, |head| WORD_BITS / 2..HEAD_BITS + head.key.len() * 8);
    // A bit of the head: with it the length may change, so each is tried.
    for bit in (0..HEAD_BITS.min(bytes.len() * 8)).filter(|bit| !whole.contains(bit)) {
        flip(bytes, bit);
        if let Some(len) = verifies(bytes, bit) {
            return Some((bit, len));
        }
        flip(bytes, bit);
    }
    let Err(NoFrame::Checksum { stored, computed }) = Frame::decode(bytes, seed, place) else {
        return None;
    };
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    let mut header = Header::of_word(u64::from_le_bytes(*word))?;
    if header.is_long() {
        header = header.with_lens(u64::from_le_bytes(*rest.first_chunk()?));
    }
    if (header.flags & INNER != 0) != inner {
        return None;
    }
    // The first word has the sum of what follows.
    let bit = WORD_BITS + bit_of_sum(stored ^ computed, header.frame_len().checked_sub(8)?)?;
    if whole.contains(&bit) {
        return None;
    }
    flip(bytes, bit);
    let len = Frame::decode(bytes, seed, place).map(|frame| frame.len());
    if len.is_err() {
        flip(bytes, bit);
    }
    len.ok().map(|len| (bit, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum::crc;
    use crate::format::frame::FrameKind;
    use crate::format::frame::tests::build;
    use crate::testkit::Random;

    fn frame(key: &[u8], value: &[u8]) -> Vec<u8> {
        build(FrameKind::keyed(0), 0, key, value, 5, 9)
    }

    #[test]
    fn a_sum_names_the_one_bit_that_was_flipped() {
        let mut random = Random::new(1);
        for len in [1, 7, 8, 63, 500, 4096, LEN_MAX] {
            let mut bytes = random.bytes(len);
            let sum = crc(77, &bytes);
            for _ in 0..50 {
                let bit = random.index(len * 8);
                flip(&mut bytes, bit);
                assert_eq!(bit_of_sum(sum ^ crc(77, &bytes), len), Some(bit));
                flip(&mut bytes, bit);
            }
        }
        assert_eq!(bit_of_sum(0, 4096), None);
        assert_eq!(bit_of_sum(POLYNOMIAL, LEN_MAX + 1), None);
    }

    #[test]
    fn each_flipped_bit_of_a_long_head_is_among_those_that_are_found() {
        for (key_len, step) in [(0, 1), (8, 1), (300, 1), (20_000, 97)] {
            let mut bytes = frame(&vec![6; key_len], &vec![7; 70_000]);
            bytes.truncate(16 + key_len);
            assert_eq!(bits_of_head(&bytes, 5, 9), []);
            for bit in (32..bytes.len() * 8).step_by(step) {
                flip(&mut bytes, bit);
                let found = bits_of_head(&bytes, 5, 9);
                assert!(found.contains(&bit) && found.len() <= 3, "{bit}: {found:?}");
                flip(&mut bytes, bit);
            }
        }
    }

    /// Two wrong bits in an image of [`LEN_MAX`] bytes pass for one of another place in some cases of ten thousand, not in more.
    #[test]
    fn two_flipped_bits_hardly_ever_pass_for_one() {
        let mut random = Random::new(2);
        let mut bytes = random.bytes(LEN_MAX);
        let sum = crc(77, &bytes);
        let mut passed = 0;
        for _ in 0..200 {
            let bits = [0, 1].map(|_| random.index(LEN_MAX * 8));
            for bit in bits {
                flip(&mut bytes, bit);
            }
            passed += u32::from(bit_of_sum(sum ^ crc(77, &bytes), LEN_MAX).is_some());
            for bit in bits {
                flip(&mut bytes, bit);
            }
        }
        assert!(passed <= 2, "{passed} of 200");
    }

    #[test]
    fn each_flipped_bit_of_a_frame_is_found_and_two_are_not() {
        for (key, value) in [
            (&b"k"[..], vec![7; 20]),
            (b"12345678", vec![9; 8]),
            (&[3; 300], vec![1; 50]),
        ] {
            let whole = frame(key, &value);
            let mut room = whole.clone();
            room.resize(whole.len() + 64, 0);
            for bit in 0..whole.len() * 8 {
                let mut damaged = room.clone();
                flip(&mut damaged, bit);
                let found = mend_frame(&mut damaged, 5, 9, false);
                assert_eq!(found, Some((bit, whole.len())), "bit {bit}");
                assert_eq!(damaged, room, "bit {bit}");
                let other = (bit * 7 + 13) % (whole.len() * 8);
                if other != bit {
                    flip(&mut damaged, bit);
                    flip(&mut damaged, other);
                    let twice = damaged.clone();
                    assert_eq!(
                        mend_frame(&mut damaged, 5, 9, false),
                        None,
                        "bits {bit}, {other}"
                    );
                    assert_eq!(damaged, twice);
                }
            }
        }
    }
}
