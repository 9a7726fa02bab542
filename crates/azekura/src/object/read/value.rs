//! Values: the bytes that a get returns, in the buffer into which the device wrote them.
//!
//! A value is verified in the buffer and returned with it, so that only the bytes after a chunk's trailer are copied. The buffer
//! returns to the store's pool when the value is dropped. A value that fills less than half of its buffer is copied, so that many
//! small values do not keep large buffers.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::error::Result;
use crate::io::aligned::AlignedBuf;
use crate::object::place::buffers::Buffers;
use crate::room;

/// Bytes that were read and verified. It derefs to a slice; `Vec::from` copies most of them into a vector. With the feature `bytes` it
/// becomes a `Bytes` without a copy.
///
/// It takes at most twice its length of memory.
pub struct Value(Held);

enum Held {
    Alone(Vec<u8>),
    Lent {
        buf: AlignedBuf,
        bytes: Range<usize>,
        buffers: Arc<Buffers>,
    },
}

impl Value {
    /// Bytes `bytes` of `buf`, which came from `buffers`. `Full` if they are few and there is no memory for a copy.
    pub(crate) fn of(buf: AlignedBuf, bytes: Range<usize>, buffers: &Arc<Buffers>) -> Result<Self> {
        if 2 * bytes.len() >= buf.capacity() {
            let buffers = Arc::clone(buffers);
            return Ok(Self(Held::Lent {
                buf,
                bytes,
                buffers,
            }));
        }
        let copy = room::copy(&buf[bytes]);
        buffers.give(buf);
        copy.map(Self::from)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Held::Alone(bytes))
    }
}

impl From<Value> for Vec<u8> {
    fn from(mut value: Value) -> Self {
        match &mut value.0 {
            Held::Alone(bytes) => std::mem::take(bytes),
            Held::Lent { .. } => value.to_vec(),
        }
    }
}

/// Without a copy. The buffer returns to the store when the last clone is dropped.
#[cfg(feature = "bytes")]
impl From<Value> for bytes::Bytes {
    fn from(value: Value) -> Self {
        Self::from_owner(value)
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Alone(bytes) => bytes,
            Held::Lent { buf, bytes, .. } => &buf[bytes.clone()],
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<B: AsRef<[u8]> + ?Sized> PartialEq<B> for Value {
    fn eq(&self, other: &B) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if let Held::Lent { buf, buffers, .. } = &mut self.0 {
            buffers.give(std::mem::take(buf));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_buffer_while_it_fills_half_of_it_and_gives_it_back() {
        let buffers = Arc::new(Buffers::new(4096));
        for (bytes, is_lent) in [(64..40_000, true), (64..30_000, false), (0..0, false)] {
            let mut buf = buffers.take(65_536).unwrap();
            buf[bytes.clone()].fill(7);
            let value = Value::of(buf, bytes.clone(), &buffers).unwrap();
            let wanted = vec![7; bytes.len()];
            assert!(value == wanted);
            assert_eq!(buffers.held() == 0, is_lent, "{bytes:?}");
            let copied: Vec<u8> = value.into();
            assert!(copied == wanted);
            assert!(buffers.held() >= 65_536, "{bytes:?}");
        }
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn a_value_becomes_shared_bytes_without_a_copy_and_gives_its_buffer_back_after_the_last() {
        let buffers = Arc::new(Buffers::new(4096));
        for (bytes, is_lent) in [(64..40_000, true), (64..30_000, false)] {
            let mut buf = buffers.take(65_536).unwrap();
            buf[bytes.clone()].fill(7);
            let value = Value::of(buf, bytes.clone(), &buffers).unwrap();
            let at = value.as_ptr();
            let shared = bytes::Bytes::from(value);
            let part = shared.slice(10..20);
            assert_eq!((shared.as_ptr(), shared.len()), (at, bytes.len()));
            drop(shared);
            assert_eq!(buffers.held() == 0, is_lent);
            assert_eq!(part, [7; 10][..]);
            drop(part);
            assert!(buffers.held() >= 65_536);
        }
    }
}
