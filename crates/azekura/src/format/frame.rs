//! A frame: length, kind and checksum around one payload in a log.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | CRC32C, seeded with the segment's sequence; covers place, the rest, and the padding |
//! | 4 | 4 bits | kind; 0 is no frame, so that zeros (a hole) are not one |
//! | 4 | 4 bits | flags: long 1, moved 2, inner 4, compressed 8 |
//! | 5 | 1 | key length; in the long form with the two bytes after it the head's sum |
//! | 6 | 2 | value length |
//! | 8 | 4, 4 | long form only: key length, value length |
//! | 8 or 16 | .. | key, value, zeros to a multiple of 8 |
//!
//! The first eight bytes are one word, stored last: with it the frame comes into being. *Place* is the
//! frame's offset in its segment, in words; it is summed but not stored, so a frame passes only where
//! it was written. *The head's sum* is the low 24 bits of CRC32C, seeded as the frame's, of place, kind, flags, the lengths and
//! the key: of a long frame whose value is damaged it states which record stood there ([`Frame::head`]). It is not looked at where
//! the frame verifies, and files of before it have zeros there. *Moved*: cleaning copied it, followers of the log skip it. *Inner*: it is part of a
//! batch, and alone, where a scan looks for frames, it is none. An 8-byte key with an 8-byte value
//! takes 24 bytes.
//!
//! It does not know segments, addresses or what is put.

use std::fmt;

use super::bytes::Take;
use super::checksum::crc_words;

/// The kind of a frame. Four kinds are the log's own; what the others mean is known to the engine that appends them.
///
/// An engine's kinds are of two classes, so that the log can state what damage affects: a frame of a *keyed* kind changes
/// what belongs to its key and nothing else; one of a *wide* kind may change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameKind(u8);

impl FrameKind {
    /// A note of the engine's user that is no record: replay shows it, scans and followers do not.
    pub const MARK: Self = Self(12);
    /// All of the inner frames in the value happened at once; the key length counts them.
    pub const BATCH: Self = Self(13);
    /// Nothing: recovery fills a hole with it.
    pub const PAD: Self = Self(14);
    /// The segment ends here.
    pub const END: Self = Self(15);

    /// The engine's keyed kind of this number, of [`KEYED`].
    pub const fn keyed(number: u8) -> Self {
        assert!(number < KEYED);
        Self(FIRST_KEYED + number)
    }

    /// The engine's wide kind of this number, of [`WIDE`].
    pub const fn wide(number: u8) -> Self {
        assert!(number < WIDE);
        Self(FIRST_WIDE + number)
    }

    /// Whether it is an engine's, and changes only what belongs to its key.
    #[inline(always)]
    pub const fn is_keyed(self) -> bool {
        self.0 < FIRST_WIDE
    }

    /// Whether it is an engine's, and may change anything.
    pub const fn is_wide(self) -> bool {
        FIRST_WIDE <= self.0 && self.0 < Self::MARK.0
    }

    /// The four bits that stand in the frame.
    #[inline(always)]
    pub const fn bits(self) -> u8 {
        self.0
    }

    #[inline(always)]
    const fn from_bits(bits: u8) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }
}

/// How many keyed kinds an engine may have, and how many wide ones.
pub const KEYED: u8 = FIRST_WIDE - FIRST_KEYED;
/// See [`KEYED`].
pub const WIDE: u8 = FrameKind::MARK.0 - FIRST_WIDE;
const FIRST_KEYED: u8 = 1;
const FIRST_WIDE: u8 = 7;

/// Two kinds that differ in one bit only, so that one comparison finds a frame of either ([`Header::of_short`]).
#[derive(Clone, Copy, Debug)]
pub struct KindPair(FrameKind, u8);

impl KindPair {
    /// These two. Panics if they differ in more than one bit.
    pub const fn of(a: FrameKind, b: FrameKind) -> Self {
        let either = a.0 ^ b.0;
        assert!(either.is_power_of_two());
        Self(FrameKind(a.0 & b.0), either)
    }

    /// Whether it is one of them.
    #[inline(always)]
    pub const fn has(self, kind: FrameKind) -> bool {
        kind.0 & !self.1 == self.0.0
    }
}

/// The longest key of the short form.
pub const SHORT_KEY_LEN_MAX: usize = 0xff;
/// The longest value of the short form.
pub const SHORT_VALUE_LEN_MAX: usize = 0xffff;

const LONG: u8 = 1;
/// Cleaning copied this frame; what it states was already true.
pub const MOVED: u8 = 2;
/// Part of a batch.
pub const INNER: u8 = 4;
/// The value is compressed, after four bytes of its own length.
pub const COMPRESSED: u8 = 8;

/// The lengths and kind in front of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame states.
    pub kind: FrameKind,
    /// [`MOVED`], [`INNER`], [`COMPRESSED`]; the length flag is derived.
    pub flags: u8,
    /// Bytes of key (for a batch: how many inner frames).
    pub key_len: u32,
    /// Bytes of value as stored.
    pub value_len: u32,
}

impl Header {
    /// A header; the form follows from the lengths.
    #[inline(always)]
    pub fn new(kind: FrameKind, flags: u8, key_len: usize, value_len: usize) -> Self {
        debug_assert!(u32::try_from(key_len).is_ok() && u32::try_from(value_len).is_ok());
        let short = key_len <= SHORT_KEY_LEN_MAX
            && value_len <= SHORT_VALUE_LEN_MAX
            && !matches!(kind, FrameKind::BATCH);
        let flags = if short { flags & !LONG } else { flags | LONG };
        Self {
            kind,
            flags,
            key_len: key_len as u32,
            value_len: value_len as u32,
        }
    }

    /// A pad: a frame of exactly `len` bytes, a multiple of 8, that states nothing. Of the long form it has a second word
    /// ([`Header::long_word`]); what else stands in it is summed as it is.
    pub fn pad(len: usize) -> Self {
        debug_assert!(len >= 8 && len.is_multiple_of(8));
        let value_len = len - 8;
        if value_len <= SHORT_VALUE_LEN_MAX {
            return Self::new(FrameKind::PAD, 0, 0, value_len);
        }
        // Long also where the shorter value would fit the short form.
        Self {
            kind: FrameKind::PAD,
            flags: LONG,
            key_len: 0,
            value_len: (len - 16) as u32,
        }
    }

    /// Whether the lengths stand in a second word.
    #[inline(always)]
    pub fn is_long(&self) -> bool {
        self.flags & LONG != 0
    }

    /// Bytes in front of the key.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        if self.is_long() { 16 } else { 8 }
    }

    /// Bytes of key in the frame.
    #[inline(always)]
    pub fn key_bytes(&self) -> usize {
        if matches!(self.kind, FrameKind::BATCH) {
            0
        } else {
            self.key_len as usize
        }
    }

    /// Bytes of the whole frame, padding included: a multiple of 8.
    #[inline(always)]
    pub fn frame_len(&self) -> usize {
        (self.header_len() + self.key_bytes() + self.value_len as usize + 7) & !7
    }

    /// The upper half of the first word.
    #[inline(always)]
    fn meta(&self) -> u32 {
        let lens = if self.is_long() {
            0
        } else {
            self.key_len << 8 | self.value_len << 16
        };
        u32::from(self.kind.0) | u32::from(self.flags) << 4 | lens
    }

    /// The second word of the long form.
    #[inline(always)]
    pub fn long_word(&self) -> Option<u64> {
        self.is_long()
            .then(|| u64::from(self.key_len) | u64::from(self.value_len) << 32)
    }

    /// The first word, for a frame whose bytes after it are `rest` (padding included).
    #[inline(always)]
    pub fn word(&self, seed: u32, place: u32, rest: &[u8]) -> u64 {
        debug_assert_eq!(rest.len() + 8, self.frame_len());
        let mut meta = self.meta();
        if self.is_long() {
            let head = rest.get(..8 + self.key_bytes()).unwrap_or_default();
            meta |= head_sum(seed, place, meta, head) << 8;
        }
        u64::from(sum(seed, place, meta, rest)) | u64::from(meta) << 32
    }

    /// As `word`, for a header of the short form.
    #[inline(always)]
    pub fn short_word(&self, seed: u32, place: u32, rest: &[u8]) -> u64 {
        debug_assert_eq!(rest.len() + 8, self.frame_len());
        let lens = self.key_len << 8 | self.value_len << 16;
        let meta = u32::from(self.kind.0) | u32::from(self.flags) << 4 | lens;
        u64::from(sum(seed, place, meta, rest)) | u64::from(meta) << 32
    }

    /// Decodes a frame's first word. Verifies nothing. Of the long form the lengths are still to be had
    /// ([`Header::with_lens`]). `None`: no frame.
    #[inline(always)]
    pub fn of_word(word: u64) -> Option<Self> {
        let meta = (word >> 32) as u32;
        let kind = FrameKind::from_bits(meta as u8 & 15)?;
        let flags = meta as u8 >> 4;
        Some(Self {
            kind,
            flags,
            key_len: meta >> 8 & 0xff,
            value_len: meta >> 16,
        })
    }

    /// Decodes the first word of a frame of one of `kinds` in the short form that is not compressed and whose key has this
    /// length. `None`: another frame.
    #[inline(always)]
    pub fn of_short(kinds: KindPair, word: u64, key_len: usize) -> Option<Self> {
        let compared = (0xff0f & !u32::from(kinds.1)) | u32::from(LONG | COMPRESSED) << 4;
        let meta = (word >> 32) as u32;
        if u64::from(meta & compared) != (key_len as u64) << 8 | u64::from(kinds.0.0) {
            return None;
        }
        Some(Self {
            kind: FrameKind(meta as u8 & 15),
            flags: (meta >> 4) as u8 & 15,
            key_len: key_len as u32,
            value_len: meta >> 16,
        })
    }

    /// Whether `word` has the sum of a frame whose bytes after it are `rest`.
    #[inline(always)]
    pub fn is_sum(word: u64, seed: u32, place: u32, rest: &[u8]) -> bool {
        sum(seed, place, (word >> 32) as u32, rest) == word as u32
    }

    /// Bytes of the whole frame of the short form.
    #[inline(always)]
    pub fn short_len(&self) -> usize {
        (8 + self.key_len as usize + self.value_len as usize + 7) & !7
    }

    /// The long form, with the lengths in its second word.
    #[inline(always)]
    #[must_use]
    pub fn with_lens(self, second: u64) -> Self {
        Self {
            key_len: second as u32,
            value_len: (second >> 32) as u32,
            ..self
        }
    }
}

/// Whether two slices of equal length are equal; eight bytes, a common key, without a call.
#[inline(always)]
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    match (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        (Some(x), Some(y)) if a.len() == 8 => u64::from_le_bytes(*x) == u64::from_le_bytes(*y),
        _ => a == b,
    }
}

#[inline(always)]
fn sum(seed: u32, place: u32, meta: u32, rest: &[u8]) -> u32 {
    crc_words(seed, summed_first(place, meta), rest)
}

/// What is summed before the bytes that follow a frame's first word.
#[inline(always)]
fn summed_first(place: u32, meta: u32) -> u64 {
    u64::from(place) | u64::from(meta) << 32
}

/// The state of the sum of a frame with this first word before the bytes that follow it.
pub fn state_of(word: u64, seed: u32, place: u32) -> u32 {
    crc_words(seed, summed_first(place, (word >> 32) as u32), &[])
}

/// The sum of a long frame's head: `meta` without it, and `head` from the lengths up to the key's end.
#[inline]
fn head_sum(seed: u32, place: u32, meta: u32, head: &[u8]) -> u32 {
    sum(seed, place, meta & 0xff, head) & HEAD_SUM
}

/// The bits that a head's sum has.
pub const HEAD_SUM: u32 = 0x00ff_ffff;

/// The header and key of a frame of the long form, of which nothing but these is known.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Kind, flags and lengths.
    pub header: Header,
    /// The key; of a batch nothing.
    pub key: &'a [u8],
    /// What the head's sum, as it is stored, is wrong by; 0: it holds.
    pub delta: u32,
}

/// A frame whose checksum was verified.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Kind, flags and lengths.
    pub header: Header,
    /// The key.
    pub key: &'a [u8],
    /// The value as stored; the inner frames of a batch.
    pub value: &'a [u8],
}

/// Why bytes are not the frame that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFrame {
    /// The kind or the lengths are impossible here.
    Shape,
    /// The checksum stored is not the one computed.
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
}

impl fmt::Display for NoFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => f.write_str("no frame stands there"),
            Self::Checksum { stored, computed } => {
                write!(f, "stored {stored:08x}, computed {computed:08x}")
            }
        }
    }
}

impl<'a> Frame<'a> {
    /// Verifies and decodes the frame at the front of `bytes`, which may reach beyond it.
    pub fn decode(bytes: &'a [u8], seed: u32, place: u32) -> Result<Self, NoFrame> {
        let mut take = Take(bytes);
        let word = take.u64().ok_or(NoFrame::Shape)?;
        let mut header = Header::of_word(word).ok_or(NoFrame::Shape)?;
        if header.is_long() {
            header = header.with_lens(take.u64().ok_or(NoFrame::Shape)?);
        }
        let whole = bytes.get(..header.frame_len()).ok_or(NoFrame::Shape)?;
        Self::verify(header, word, whole, seed, place)
    }

    /// Decodes the head of a long frame at the front of `bytes`, which need not reach to its end. `None`: there is none, or its
    /// key reaches beyond them. Whether its sum holds is left to the caller.
    pub fn head(bytes: &'a [u8], seed: u32, place: u32) -> Option<Head<'a>> {
        let mut take = Take(bytes);
        let word = take.u64()?;
        let header = Header::of_word(word)?;
        if !header.is_long() {
            return None;
        }
        let header = header.with_lens(take.u64()?);
        let summed = bytes.get(8..16 + header.key_bytes())?;
        let meta = (word >> 32) as u32;
        Some(Head {
            header,
            key: summed.get(8..)?,
            delta: head_sum(seed, place, meta, summed) ^ meta >> 8,
        })
    }

    /// Verifies the frame with this header and first word that takes exactly `whole`.
    #[inline(always)]
    pub fn verify(
        header: Header,
        word: u64,
        whole: &'a [u8],
        seed: u32,
        place: u32,
    ) -> Result<Self, NoFrame> {
        let (stored, meta) = (word as u32, (word >> 32) as u32);
        let rest = whole.get(8..).ok_or(NoFrame::Shape)?;
        let computed = sum(seed, place, meta, rest);
        if computed != stored {
            return Err(NoFrame::Checksum { stored, computed });
        }
        let from = header.header_len();
        let after_key = from + header.key_bytes();
        let key = whole.get(from..after_key).ok_or(NoFrame::Shape)?;
        let end = after_key + header.value_len as usize;
        let value = whole.get(after_key..end).ok_or(NoFrame::Shape)?;
        Ok(Self { header, key, value })
    }

    /// Bytes of the whole frame.
    pub fn len(&self) -> usize {
        self.header.frame_len()
    }

    /// Frames are never empty; for the lint's sake.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether `flag` is set.
    pub fn has(&self, flag: u8) -> bool {
        self.header.flags & flag != 0
    }

    /// The inner frames of a batch at `place`, each with its own place. Ends early at a bad one, which a
    /// verified batch does not have.
    pub fn inner(&self, seed: u32, place: u32) -> impl Iterator<Item = (u32, Frame<'a>)> + use<'a> {
        let mut rest = if matches!(self.header.kind, FrameKind::BATCH) {
            self.value
        } else {
            &[]
        };
        let mut at = place.wrapping_add((self.header.header_len() / 8) as u32);
        std::iter::from_fn(move || {
            let frame = Frame::decode(rest, seed, at)
                .ok()
                .filter(|frame| frame.has(INNER))?;
            let found = (at, frame);
            rest = rest.get(frame.len()..)?;
            at = at.wrapping_add((frame.len() / 8) as u32);
            Some(found)
        })
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
pub(super) mod tests {
    use super::*;

    const PUT: FrameKind = FrameKind::keyed(0);
    const REMOVE: FrameKind = FrameKind::keyed(1);
    const INSERT: FrameKind = FrameKind::keyed(2);

    pub(in crate::format) fn build(
        kind: FrameKind,
        flags: u8,
        key: &[u8],
        value: &[u8],
        seed: u32,
        place: u32,
    ) -> Vec<u8> {
        let header = Header::new(kind, flags, key.len(), value.len());
        let mut rest = Vec::new();
        if let Some(word) = header.long_word() {
            rest.extend_from_slice(&word.to_le_bytes());
        }
        rest.extend_from_slice(key);
        rest.extend_from_slice(value);
        rest.resize(header.frame_len() - 8, 0);
        let mut frame = header.word(seed, place, &rest).to_le_bytes().to_vec();
        frame.extend_from_slice(&rest);
        frame
    }

    #[test]
    fn a_pad_of_any_length_is_a_frame_of_that_length() {
        for len in (8..600).chain(65_400..65_700).step_by(8) {
            let header = Header::pad(len);
            assert_eq!(header.frame_len(), len);
            let mut bytes = vec![7; len];
            if let Some(word) = header.long_word() {
                bytes[8..16].copy_from_slice(&word.to_le_bytes());
            }
            let word = header.word(1, 2, &bytes[8..]);
            bytes[..8].copy_from_slice(&word.to_le_bytes());
            let found = Frame::decode(&bytes, 1, 2).unwrap();
            assert_eq!((found.header, found.len()), (header, len));
        }
    }

    #[test]
    fn a_long_frames_head_says_which_record_stood_there_whatever_became_of_its_value() {
        for (kind, key, value_len) in [
            (PUT, vec![3; 10], 70_000),
            (INSERT, vec![4; 300], 5),
            (REMOVE, vec![5; 1000], 0),
            (FrameKind::BATCH, vec![], 1000),
        ] {
            let mut bytes = build(kind, 0, &key, &vec![7; value_len], 5, 9);
            let whole = bytes.clone();
            assert!(Frame::decode(&bytes, 5, 9).is_ok());
            bytes[16 + key.len()..].fill(0xee);
            bytes[..4].fill(0xee);
            let head = Frame::head(&bytes, 5, 9).unwrap();
            assert_eq!(
                (head.delta, head.key, head.header.kind),
                (0, &key[..], kind)
            );
            assert_eq!(head.header.frame_len(), bytes.len());
            for bit in 32..(16 + key.len()) * 8 {
                bytes.clone_from(&whole);
                bytes[bit / 8] ^= 1 << (bit % 8);
                let holds = |head: Head<'_>| head.delta == 0;
                assert!(!Frame::head(&bytes, 5, 9).is_some_and(holds), "bit {bit}");
            }
            for (seed, place) in [(6, 9), (5, 10)] {
                assert_ne!(Frame::head(&whole, seed, place).unwrap().delta, 0);
            }
        }
        let short = build(PUT, 0, b"key", b"value", 5, 9);
        assert!(Frame::head(&short, 5, 9).is_none());
    }

    #[test]
    fn a_record_of_eight_and_eight_bytes_takes_twenty_four() {
        let bytes = build(PUT, 0, b"12345678", b"abcdefgh", 5, 9);
        assert_eq!(bytes.len(), 24);
        let frame = Frame::decode(&bytes, 5, 9).unwrap();
        assert_eq!(
            (frame.key, frame.value),
            (&b"12345678"[..], &b"abcdefgh"[..])
        );
    }

    #[test]
    fn a_frame_passes_only_where_it_was_written_and_undamaged() {
        for (key, value) in [
            (vec![], vec![]),
            (vec![1; 255], vec![2; 300]),
            (vec![1; 256], vec![3; 70_000]),
        ] {
            let bytes = build(PUT, MOVED, &key, &value, 5, 9);
            assert!(Frame::decode(&bytes, 5, 9).is_ok_and(|f| f.key == key && f.value == value));
            assert!(Frame::decode(&bytes, 6, 9).is_err(), "another lap");
            assert!(Frame::decode(&bytes, 5, 10).is_err(), "another place");
            for bit in 0..bytes.len().min(40) * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(Frame::decode(&damaged, 5, 9).is_err(), "bit {bit}");
            }
            for len in 0..bytes.len().min(64) {
                assert!(Frame::decode(&bytes[..len], 5, 9).is_err(), "cut at {len}");
            }
        }
    }

    #[test]
    fn the_bytes_of_a_frame_are_as_the_table_says() {
        let bytes = build(PUT, 0, b"k", b"vv", 0, 0);
        assert_eq!(bytes.len(), 16);
        assert_eq!(&bytes[4..8], &[0x01, 1, 2, 0]);
        assert_eq!(&bytes[8..], b"kvv\0\0\0\0\0");
        let long = build(REMOVE, 0, &[b'x'; 256], b"", 0, 0);
        assert_eq!(long[4], 0x12);
        assert_eq!(&long[8..16], &[0, 1, 0, 0, 0, 0, 0, 0]);
        // Place, kind and flags, lengths, key; a running state, of which the low three bytes stand there.
        let mut summed = vec![0, 0, 0, 0, 0x12, 0, 0, 0];
        summed.extend_from_slice(&long[8..16 + 256]);
        let sum = super::super::checksum::crc(0, &summed).to_le_bytes();
        assert_eq!(&long[5..8], &sum[..3]);
    }

    #[test]
    fn zeros_are_no_frame() {
        assert_eq!(Frame::decode(&[0; 64], 0, 0).unwrap_err(), NoFrame::Shape);
    }
}
