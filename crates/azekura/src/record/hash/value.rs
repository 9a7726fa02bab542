//! Values as they are stored: plain, or compressed where that makes them shorter.
//!
//! A compressed value is four bytes of its own length and the compressed bytes; the frame's flag marks it.
//! Decompression is bounded by that length, which is bounded by the limit: damaged bytes do not
//! allocate more. It does not know where frames are, nor whose value it is.

use std::borrow::Cow;

use super::{Compression, VALUE_LEN_MAX};
use crate::error::{Error, Kind, Result};
use crate::format::frame::{COMPRESSED, Frame};

/// Below this length nothing is won.
const COMPRESS_LEN_MIN: usize = 64;

/// Values shorter than this are stored as they are.
pub(super) fn plain_below(compression: Compression) -> usize {
    match compression {
        Compression::None => usize::MAX,
        Compression::Lz4 | Compression::Zstd => COMPRESS_LEN_MIN,
    }
}

/// The bytes to store for `value`, and the frame's flag.
#[inline(always)]
pub(super) fn encode(compression: Compression, value: &[u8]) -> (Cow<'_, [u8]>, u8) {
    if value.len() < plain_below(compression) {
        return (Cow::Borrowed(value), 0);
    }
    compress(compression, value)
}

fn compress(compression: Compression, value: &[u8]) -> (Cow<'_, [u8]>, u8) {
    let mut stored = (value.len() as u32).to_le_bytes().to_vec();
    match compression {
        Compression::None => return (Cow::Borrowed(value), 0),
        Compression::Lz4 => stored.extend_from_slice(&lz4_flex::block::compress(value)),
        Compression::Zstd => match zstd::bulk::compress(value, 0) {
            Ok(compressed) => stored.extend_from_slice(&compressed),
            Err(_) => return (Cow::Borrowed(value), 0),
        },
    }
    if stored.len() < value.len() {
        (Cow::Owned(stored), COMPRESSED)
    } else {
        (Cow::Borrowed(value), 0)
    }
}

/// The value a frame stores.
#[inline(always)]
pub(super) fn decode<'f>(compression: Compression, frame: &Frame<'f>) -> Result<Cow<'f, [u8]>> {
    if frame.has(COMPRESSED) {
        decompress(compression, frame)
    } else {
        Ok(Cow::Borrowed(frame.value))
    }
}

#[cold]
fn decompress<'f>(compression: Compression, frame: &Frame<'f>) -> Result<Cow<'f, [u8]>> {
    let broken =
        || Error::new(Kind::Corrupted, "a compressed value does not decompress").key(frame.key);
    let (len, bytes) = frame.value.split_first_chunk::<4>().ok_or_else(broken)?;
    let len = u32::from_le_bytes(*len) as usize;
    if len as u64 > VALUE_LEN_MAX {
        return Err(broken());
    }
    let value = match compression {
        Compression::None => return Err(broken()),
        Compression::Lz4 => lz4_flex::block::decompress(bytes, len).map_err(|_| broken())?,
        Compression::Zstd => zstd::bulk::decompress(bytes, len).map_err(|_| broken())?,
    };
    if value.len() == len {
        Ok(Cow::Owned(value))
    } else {
        Err(broken())
    }
}
