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
//! one another, or its operation, is answered, and the connection closed. Behind an operation that it does not know, 1.6.45
//! loses its place if there was a key; here the next packet is the next one. It knows no connection.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]
#![expect(clippy::big_endian_bytes, reason = "the protocol is big-endian")]

use azekura::error::{Kind, Result};

use crate::item::Item;
use crate::memcached::command::execute::{self, Counted, Hand, New, Stored};
use crate::memcached::command::gets::count;
use crate::memcached::operate::{admin, detail};
use crate::memcached::protocol::text::{KEY_LEN_MAX, Mode};
use crate::memcached::session::flush;

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
    /// What is asked for.
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

    /// The operation without its quietness, and whether it is quiet.
    fn operation(&self) -> (u8, bool) {
        match self.opcode {
            0x11..=0x18 => (self.opcode - 0x10, true),
            0x19 | 0x1a => (self.opcode - 0x0b, true),
            own => (own, false),
        }
    }

    /// How a packet that stores does it, whatever version it asks for.
    fn mode(&self) -> Mode {
        match self.operation().0 {
            0x0e => Mode::Append,
            0x0f => Mode::Prepend,
            0x01 => Mode::Set,
            0x02 => Mode::Add,
            _ => Mode::Replace,
        }
    }

    /// Whether the value is stored, and may be long.
    pub(crate) fn stores(&self) -> bool {
        matches!(self.operation().0, 0x01..=0x03 | 0x0e | 0x0f)
    }

    /// Whether it is a read of one key that changes nothing.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.opcode, 0x00 | 0x09 | 0x0c | 0x0d)
            && self.extras_len == 0
            && (1..=KEY_LEN_MAX).contains(&self.key_len)
            && self.body_len == self.key_len
    }

    /// Whether somebody may ask this who has not said who he is.
    pub(crate) fn is_open_to_all(&self) -> bool {
        matches!(self.opcode, 0x0b | 0x20..=0x22)
    }

    /// Extras and key at the front of a packet.
    fn front<'p>(&self, packet: &'p [u8]) -> (&'p [u8], &'p [u8]) {
        let front = packet.get(HEADER_LEN..self.front_len()).unwrap_or_default();
        front.split_at_checked(self.extras_len).unwrap_or_default()
    }
}

/// What went wrong.
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
fn push(
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

/// Appends an answer that says what went wrong.
pub(crate) fn refuse(output: &mut Vec<u8>, header: &Header, status: Status) {
    let text = status.text().as_bytes();
    push(output, header, status as u16, 0, b"", b"", text);
}

/// Appends an answer that tells of an engine's error.
pub(crate) fn fail(hand: &mut Hand, header: &Header, error: &azekura::Error, output: &mut Vec<u8>) {
    let line = hand.error_line(error);
    let status = match error.kind() {
        Kind::TooLarge => Status::TooLarge,
        Kind::Full => Status::Memory,
        _ => Status::Internal,
    };
    let text = line.strip_prefix("SERVER_ERROR ").unwrap_or(&line);
    push(output, header, status as u16, 0, b"", b"", text.as_bytes());
}

/// Answers a read.
#[inline]
pub(crate) fn answer_read(
    output: &mut Vec<u8>,
    header: &Header,
    key: &[u8],
    item: Option<&Item<'_>>,
) {
    let shows_key = matches!(header.opcode, 0x0c | 0x0d | 0x23 | 0x24);
    let Some(item) = item else {
        match header.opcode {
            0x09 | 0x0d | 0x1e | 0x24 => {}
            _ if shows_key => push(output, header, Status::NotFound as u16, 0, b"", key, b""),
            _ => refuse(output, header, Status::NotFound),
        }
        return;
    };
    let flags = item.head.flags.to_be_bytes();
    let (key, value) = match (shows_key, header.opcode) {
        (true, _) => (key, item.data),
        // `touch` shows no value.
        (_, 0x1c) => (&b""[..], &b""[..]),
        _ => (&b""[..], item.data),
    };
    push(output, header, 0, item.head.cas, &flags, key, value);
}

/// What a packet came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next one.
    On,
    /// The connection is closed.
    Close,
    /// The user of this packet's value wants to be admitted.
    Admit,
}

/// Whether the item of a packet that stores is too large; then it was answered, and what a set would replace is gone.
pub(crate) fn refuse_too_large(
    hand: &mut Hand,
    header: &Header,
    packet: &[u8],
    output: &mut Vec<u8>,
) -> bool {
    let (extras, key) = header.front(packet);
    let len = header.value_len().unwrap_or(0);
    // What is joined to an item has no flags of its own.
    if hand.fits(key.len(), word(extras).unwrap_or(0), len) {
        return false;
    }
    let mode = header.mode();
    match hand.refuse_too_large((mode, key), mode == Mode::Set) {
        Ok(()) => refuse(output, header, Status::TooLarge),
        Err(error) => fail(hand, header, &error, output),
    }
    true
}

/// Whether a packet's lengths are what its operation has.
pub(crate) fn is_sound(header: &Header) -> bool {
    let (operation, _) = header.operation();
    let extras: &[usize] = match operation {
        0x01..=0x03 => &[8],
        0x05 | 0x06 => &[20],
        0x08 => &[0, 4],
        0x1c | 0x1d | 0x1e | 0x23 | 0x24 => &[4],
        _ => &[0],
    };
    let has_value = header.value_len() != Some(0);
    let (has_key, may_have_value) = match operation {
        0x01..=0x03 | 0x0e | 0x0f | 0x21 | 0x22 => (header.key_len > 0, true),
        0x07 | 0x08 | 0x0a | 0x0b | 0x20 => (header.key_len == 0, false),
        0x10 => (true, false),
        _ => (header.key_len > 0, false),
    };
    extras.contains(&header.extras_len) && has_key && (may_have_value || !has_value)
}

/// Whether the operation is one of ours, or at least its lengths are judged.
pub(crate) fn is_known(header: &Header, has_passwords: bool) -> bool {
    match header.opcode {
        0x00..=0x1a | 0x1c..=0x1e | 0x23 | 0x24 => true,
        0x20..=0x22 => has_passwords || !is_sound(header),
        _ => false,
    }
}

/// The number in four bytes.
fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The number in eight bytes from `at`.
fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes(*bytes))
}

/// A time to live as these packets have it: 32 bits without a sign.
fn time(bits: u32) -> i64 {
    i64::from(bits)
}

/// Executes a packet that is sound and whole: `packet` up to its key, `value` behind it.
pub(crate) fn execute(
    hand: &mut Hand,
    header: &Header,
    packet: &[u8],
    value: &[u8],
    output: &mut Vec<u8>,
) -> After {
    let done = match header.operation().0 {
        0x01..=0x03 | 0x0e | 0x0f => store(hand, header, packet, value, output),
        0x04 => delete(hand, header, packet, output),
        0x05 | 0x06 => arithmetic(hand, header, packet, output),
        0x07 => {
            if header.opcode == 0x07 {
                push(output, header, 0, 0, b"", b"", b"");
            }
            return After::Close;
        }
        0x08 => flush_all(hand, header, packet, output),
        0x0a => {
            push(output, header, 0, 0, b"", b"", b"");
            Ok(())
        }
        0x0b => {
            push(output, header, 0, 0, b"", b"", admin::VERSION.as_bytes());
            Ok(())
        }
        0x10 => {
            stat(hand, header, packet, output);
            Ok(())
        }
        0x1c | 0x1d | 0x1e | 0x23 | 0x24 => touch(hand, header, packet, output),
        0x20 => {
            push(output, header, 0, 0, b"", b"", b"PLAIN");
            Ok(())
        }
        0x21 | 0x22 => return After::Admit,
        _ => {
            refuse(output, header, Status::Unknown);
            Ok(())
        }
    };
    if let Err(error) = done {
        fail(hand, header, &error, output);
    }
    After::On
}

/// The user and the password of a packet of the mechanism PLAIN.
pub(crate) fn credentials<'v>(
    header: &Header,
    packet: &[u8],
    value: &'v [u8],
) -> Option<(&'v [u8], &'v [u8])> {
    let (_, mechanism) = header.front(packet);
    let mut parts = value.splitn(3, |byte| *byte == 0);
    let (_, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    (mechanism == b"PLAIN").then_some((user, password))
}

/// Answers whether a user was admitted.
pub(crate) fn admitted(header: &Header, is_admitted: bool, output: &mut Vec<u8>) {
    if is_admitted {
        push(output, header, 0, 0, b"", b"", b"Authenticated");
    } else {
        refuse(output, header, Status::NotAdmitted);
    }
}

fn store(
    hand: &mut Hand,
    header: &Header,
    packet: &[u8],
    value: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let (extras, key) = header.front(packet);
    let is_quiet = header.operation().1;
    let mode = match header.mode() {
        Mode::Set | Mode::Add | Mode::Replace if header.cas != 0 => Mode::Cas,
        mode => mode,
    };
    let exptime = time(extras.get(4..).and_then(word).unwrap_or(0));
    let stored = hand.store(&New {
        mode,
        key,
        flags: word(extras).unwrap_or(0),
        expires: hand.service.expires(exptime),
        data: value,
        compare: (header.cas != 0).then_some(header.cas),
        version: None,
        may_be_stale: false,
        vivify: false,
        is_binary_key: false,
    })?;
    match stored {
        Stored::Done { cas, .. } if !is_quiet => push(output, header, 0, cas, b"", b"", b""),
        Stored::Done { .. } => {}
        Stored::Exists => refuse(output, header, Status::Exists),
        Stored::NotFound => refuse(output, header, Status::NotFound),
        Stored::Refused => refuse(
            output,
            header,
            match mode {
                Mode::Add => Status::Exists,
                Mode::Replace => Status::NotFound,
                _ => Status::NotStored,
            },
        ),
    }
    Ok(())
}

fn delete(hand: &mut Hand, header: &Header, packet: &[u8], output: &mut Vec<u8>) -> Result<()> {
    let (_, key) = header.front(packet);
    let compare = (header.cas != 0).then_some(header.cas);
    match hand.remove(key, compare, "delete")? {
        Some(true) if header.operation().1 => {}
        Some(true) => push(output, header, 0, 0, b"", b"", b""),
        Some(false) => refuse(output, header, Status::Exists),
        None => refuse(output, header, Status::NotFound),
    }
    Ok(())
}

fn arithmetic(hand: &mut Hand, header: &Header, packet: &[u8], output: &mut Vec<u8>) -> Result<()> {
    let (extras, key) = header.front(packet);
    let (operation, is_quiet) = header.operation();
    let (Some(delta), Some(initial), Some(exptime)) = (
        long(extras, 0),
        long(extras, 8),
        extras.get(16..).and_then(word),
    ) else {
        refuse(output, header, Status::Invalid);
        return Ok(());
    };
    let expires = hand.service.expires(time(exptime));
    let counted = hand.count(
        key,
        &execute::Step {
            up: operation == 0x05,
            delta,
            compare: (header.cas != 0).then_some(header.cas),
            version: None,
            // All ones: nothing is created.
            initial: (exptime != u32::MAX).then_some((initial, expires)),
            expires: None,
        },
    )?;
    match counted {
        Counted::Done { .. } if is_quiet => {}
        Counted::Done { number, head, .. } => {
            push(output, header, 0, head.cas, b"", b"", &number.to_be_bytes());
        }
        Counted::NotFound => refuse(output, header, Status::NotFound),
        Counted::Exists => refuse(output, header, Status::Exists),
        Counted::NoNumber => refuse(output, header, Status::NoNumber),
        Counted::TooLarge => refuse(output, header, Status::Memory),
    }
    Ok(())
}

fn flush_all(hand: &mut Hand, header: &Header, packet: &[u8], output: &mut Vec<u8>) -> Result<()> {
    let (extras, _) = header.front(packet);
    if hand.service.settings.flush_enabled {
        flush(hand, time(word(extras).unwrap_or(0)))?;
        if !header.operation().1 {
            push(output, header, 0, 0, b"", b"", b"");
        }
    } else {
        refuse(output, header, Status::NotAdmitted);
    }
    Ok(())
}

fn touch(hand: &mut Hand, header: &Header, packet: &[u8], output: &mut Vec<u8>) -> Result<()> {
    let (extras, key) = header.front(packet);
    let expires = hand.service.expires(time(word(extras).unwrap_or(0)));
    let found = hand.touch(key, expires, |item| {
        answer_read(output, header, key, Some(&item));
    })?;
    if header.opcode != 0x1c {
        count(hand, key, found, found);
    }
    if !found {
        answer_read(output, header, key, None);
    }
    Ok(())
}

fn stat(hand: &mut Hand, header: &Header, packet: &[u8], output: &mut Vec<u8>) {
    let (_, group) = header.front(packet);
    let mut words = crate::memcached::protocol::text::Words(group);
    let (name, word) = (words.next().unwrap_or_default(), words.next());
    match name {
        b"reset" => admin::reset(hand),
        b"detail" => {
            let mut text = Vec::new();
            match word {
                Some(b"dump") => {
                    detail::detail(&hand.service, word, &mut text);
                    push(output, header, 0, 0, b"", b"detailed", &text);
                }
                Some(b"on" | b"off") => detail::detail(&hand.service, word, &mut text),
                _ => return refuse(output, header, Status::NotFound),
            }
        }
        _ => {
            let known = admin::figures(hand, name, &mut |name, value| {
                push(output, header, 0, 0, b"", name.as_bytes(), value.as_bytes());
            });
            if !known {
                return refuse(output, header, Status::NotFound);
            }
        }
    }
    push(output, header, 0, 0, b"", b"", b"");
}
