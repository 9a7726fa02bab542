//! The binary protocol: packets of a 24-byte header and a body of extras, key and value.
//!
//! | offset | size | request | answer |
//! |---|---|---|---|
//! | 0 | 1 | 0x80 | 0x81 |
//! | 1 | 1 | operation | the same |
//! | 2 | 2 | key length | the same, of the answer |
//! | 4 | 1 | length of extras | the same, of the answer |
//! | 5 | 1 | 0 | 0 |
//! | 6 | 2 | 0 | status |
//! | 8 | 4 | length of the body | the same, of the answer |
//! | 12 | 4 | any | that of the request |
//! | 16 | 8 | version that must be there, or 0 | version |
//!
//! Numbers are big-endian. Quiet operations answer errors only, quiet reads hits only. A packet whose lengths contradict
//! one another, or its operation, is answered, and the connection closed. After an unknown operation with a key 1.6.45
//! loses its place in the stream; here the next packet is found. It knows no connection.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]
#![expect(clippy::big_endian_bytes, reason = "the protocol is big-endian")]

use super::opcode::{Opcode, Shape};
use super::text::KEY_LEN_MAX;
use crate::item::Item;

/// Bytes of a header.
pub const HEADER_LEN: usize = 24;
/// The first byte of a request.
pub const REQUEST: u8 = 0x80;
const ANSWER: u8 = 0x81;
/// Longest body.
const BODY_LEN_MAX: usize = 1 << 30;

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The code of the operation, sent back as it is.
    pub opcode: u8,
    /// Bytes of the key.
    pub key_len: usize,
    /// Bytes of the extras.
    pub extras_len: usize,
    /// Bytes of extras, key and value.
    pub body_len: usize,
    /// Sent back as it is.
    pub opaque: u32,
    /// The version that must be there; 0: any.
    pub cas: u64,
}

impl Header {
    /// The header at the front of `bytes`; `None`: there are not 24, or they are no request.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let [
            magic,
            opcode,
            k0,
            k1,
            extras,
            _,
            _,
            _,
            b0,
            b1,
            b2,
            b3,
            o0,
            o1,
            o2,
            o3,
            cas @ ..,
        ] = *header;
        (magic == REQUEST).then(|| Self {
            opcode,
            key_len: usize::from(u16::from_be_bytes([k0, k1])),
            extras_len: usize::from(extras),
            body_len: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
            opaque: u32::from_be_bytes([o0, o1, o2, o3]),
            cas: u64::from_be_bytes(cas),
        })
    }

    /// Whether the body is longer than any may be.
    pub(crate) const fn is_too_long(&self) -> bool {
        self.body_len > BODY_LEN_MAX
    }

    /// Bytes before the value.
    pub const fn front_len(&self) -> usize {
        HEADER_LEN + self.extras_len + self.key_len
    }

    /// Bytes of the value; `None`: the lengths contradict one another.
    pub fn value_len(&self) -> Option<usize> {
        self.body_len.checked_sub(self.extras_len + self.key_len)
    }

    /// The operation; `None`: there is none of this code.
    #[inline]
    pub(crate) fn operation(&self) -> Option<Opcode> {
        Opcode::of(self.opcode)
    }

    /// Whether nothing but errors, or hits of a read, is answered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.operation().is_some_and(Opcode::is_quiet)
    }

    /// Whether the value is stored, and may be long.
    pub(crate) fn stores(&self) -> bool {
        self.operation().is_some_and(|of| of.mode().is_some())
    }

    /// Whether it reads one key and changes nothing, and its lengths are right.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        self.operation().is_some_and(Opcode::is_read)
            && self.extras_len == 0
            && (1..=KEY_LEN_MAX).contains(&self.key_len)
            && self.body_len == self.key_len
    }

    /// Whether a client may send it that has not authenticated.
    pub(crate) fn is_open_to_all(&self) -> bool {
        self.operation()
            .is_some_and(|of| of == Opcode::Version || of.is_authentication())
    }

    /// Whether the lengths are those of the operation.
    pub(crate) fn is_sound(&self) -> bool {
        let Some(Shape { extras, key, value }) = self.operation().map(Opcode::shape) else {
            return false;
        };
        extras.contains(&self.extras_len)
            && key.admits(self.key_len)
            && self.value_len().is_some_and(|len| value.admits(len))
    }

    /// Whether the operation is executed, or at least its lengths are judged: those of authentication are not executed
    /// where there are no passwords.
    pub(crate) fn is_known(&self, has_passwords: bool) -> bool {
        self.operation()
            .is_some_and(|of| !of.is_authentication() || has_passwords || !self.is_sound())
    }

    /// Extras and key at the front of a packet.
    pub(crate) fn front<'p>(&self, packet: &'p [u8]) -> (&'p [u8], &'p [u8]) {
        let front = packet.get(HEADER_LEN..self.front_len()).unwrap_or_default();
        front.split_at_checked(self.extras_len).unwrap_or_default()
    }
}

/// Why a packet failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    NotFound = 1,
    Exists = 2,
    TooLarge = 3,
    Invalid = 4,
    NotStored = 5,
    NoNumber = 6,
    NotAdmitted = 0x20,
    Unknown = 0x81,
    Memory = 0x82,
    Internal = 0x84,
}

impl Status {
    const fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::Invalid => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NoNumber => "Non-numeric server-side value for incr or decr",
            Self::NotAdmitted => "Auth failure.",
            Self::Unknown => "Unknown command",
            Self::Memory => "Out of memory",
            Self::Internal => "Internal error",
        }
    }
}

/// Appends an answer.
pub(crate) fn push(
    output: &mut Vec<u8>,
    header: &Header,
    status: u16,
    cas: u64,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) {
    let body_len = extras.len() + key.len() + value.len();
    output.reserve(HEADER_LEN + body_len);
    output.extend_from_slice(&[ANSWER, header.opcode]);
    output.extend_from_slice(&(key.len() as u16).to_be_bytes());
    output.extend_from_slice(&[extras.len() as u8, 0]);
    output.extend_from_slice(&status.to_be_bytes());
    output.extend_from_slice(&(body_len as u32).to_be_bytes());
    output.extend_from_slice(&header.opaque.to_be_bytes());
    output.extend_from_slice(&cas.to_be_bytes());
    output.extend_from_slice(extras);
    output.extend_from_slice(key);
    output.extend_from_slice(value);
}

/// Appends an error.
pub(crate) fn refuse(output: &mut Vec<u8>, header: &Header, status: Status) {
    let text = status.text().as_bytes();
    push(output, header, status as u16, 0, b"", b"", text);
}

/// Answers a read.
#[inline]
pub(crate) fn answer_read(
    output: &mut Vec<u8>,
    header: &Header,
    key: &[u8],
    item: Option<&Item<'_>>,
) {
    let Some(operation) = header.operation() else {
        return;
    };
    let shown = if operation.shows_key() { key } else { b"" };
    match item {
        Some(item) => {
            let flags = item.head.flags.to_be_bytes();
            // `touch` shows no value.
            let value = match operation {
                Opcode::Touch => b"",
                _ => item.data,
            };
            push(output, header, 0, item.head.cas, &flags, shown, value);
        }
        None if operation.is_quiet() => {}
        None if operation.shows_key() => {
            push(output, header, Status::NotFound as u16, 0, b"", key, b"");
        }
        None => refuse(output, header, Status::NotFound),
    }
}

/// The number in four bytes.
pub(crate) fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The number in eight bytes from `at`.
pub(crate) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes(*bytes))
}

/// A time to live as these packets have it: 32 bits without a sign.
pub(crate) fn time(bits: u32) -> i64 {
    i64::from(bits)
}
