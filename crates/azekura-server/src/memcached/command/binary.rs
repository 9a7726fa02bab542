//! What packets mean: each is executed once it is whole, and answered by packets.
//!
//! Packets that only read do not come here: `gets` answers them in runs. A login is checked by the session, which alone
//! knows its connection.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]
#![expect(clippy::big_endian_bytes, reason = "the protocol is big-endian")]

use azekura::error::{Kind, Result};

use super::arithmetic::{Counted, Step};
use super::executor::Executor;
use super::store::{New, Stored};
use crate::memcached::operate::stats;
use crate::memcached::protocol::binary::{
    Header, Status, answer_read, long, push, refuse, time, word,
};
use crate::memcached::protocol::opcode::Opcode;
use crate::memcached::protocol::text::{Mode, Words};

/// Appends the error of an engine.
pub(crate) fn fail(
    executor: &mut Executor,
    header: &Header,
    error: &azekura::Error,
    output: &mut Vec<u8>,
) {
    let line = executor.error_line(error);
    let status = match error.kind() {
        Kind::TooLarge => Status::TooLarge,
        Kind::Full => Status::Memory,
        _ => Status::Internal,
    };
    let text = line.strip_prefix("SERVER_ERROR ").unwrap_or(&line);
    push(output, header, status as u16, 0, b"", b"", text.as_bytes());
}

/// How a packet that stores does it, whatever version it asks for.
fn mode_of(header: &Header) -> Mode {
    let mode = header.operation().and_then(Opcode::mode);
    mode.unwrap_or(Mode::Replace)
}

/// A packet that is sound and whole, in its parts.
struct Packet<'p> {
    header: &'p Header,
    extras: &'p [u8],
    key: &'p [u8],
    value: &'p [u8],
}

impl Packet<'_> {
    /// The version that the item must have, if the packet states one.
    fn compare(&self) -> Option<u64> {
        (self.header.cas != 0).then_some(self.header.cas)
    }
}

/// What follows a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next one.
    On,
    /// The connection is closed.
    Close,
    /// The packet's value has the credentials of a user.
    Admit,
}

/// Whether the item of a packet that stores is too large; then it was answered, and what a set would replace is gone.
pub(crate) fn refuse_too_large(
    executor: &mut Executor,
    header: &Header,
    packet: &[u8],
    output: &mut Vec<u8>,
) -> bool {
    let (extras, key) = header.front(packet);
    let len = header.value_len().unwrap_or(0);
    // What is joined to an item has no flags of its own.
    if executor.fits(key.len(), word(extras).unwrap_or(0), len) {
        return false;
    }
    let mode = mode_of(header);
    match executor.refuse_too_large((mode, key), mode == Mode::Set) {
        Ok(()) => refuse(output, header, Status::TooLarge),
        Err(error) => fail(executor, header, &error, output),
    }
    true
}

/// Executes a packet that is sound and whole: `front` up to its key, then `value`.
pub(crate) fn execute(
    executor: &mut Executor,
    header: &Header,
    front: &[u8],
    value: &[u8],
    output: &mut Vec<u8>,
) -> After {
    let Some(operation) = header.operation() else {
        refuse(output, header, Status::Unknown);
        return After::On;
    };
    let (extras, key) = header.front(front);
    let packet = Packet {
        header,
        extras,
        key,
        value,
    };
    let done = match operation.loud() {
        Opcode::Set | Opcode::Add | Opcode::Replace | Opcode::Append | Opcode::Prepend => {
            store(executor, &packet, output)
        }
        Opcode::Delete => delete(executor, &packet, output),
        up @ (Opcode::Increment | Opcode::Decrement) => {
            arithmetic(executor, &packet, up == Opcode::Increment, output)
        }
        Opcode::Quit => {
            if !operation.is_quiet() {
                push(output, header, 0, 0, b"", b"", b"");
            }
            return After::Close;
        }
        Opcode::Flush => flush_all(executor, &packet, output),
        Opcode::Noop => {
            push(output, header, 0, 0, b"", b"", b"");
            Ok(())
        }
        Opcode::Version => {
            push(output, header, 0, 0, b"", b"", stats::VERSION.as_bytes());
            Ok(())
        }
        Opcode::AuthList => {
            push(output, header, 0, 0, b"", b"", b"PLAIN");
            Ok(())
        }
        Opcode::Stat => {
            stat(executor, &packet, output);
            Ok(())
        }
        Opcode::Touch | Opcode::GetAndTouch | Opcode::GetAndTouchWithKey => {
            touch(executor, &packet, output)
        }
        Opcode::AuthStart | Opcode::AuthStep => return After::Admit,
        // Reads are answered in runs, before this; `loud` gives no other.
        _ => {
            refuse(output, header, Status::Unknown);
            Ok(())
        }
    };
    if let Err(error) = done {
        fail(executor, header, &error, output);
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

fn store(executor: &mut Executor, packet: &Packet<'_>, output: &mut Vec<u8>) -> Result<()> {
    let (header, extras) = (packet.header, packet.extras);
    let is_quiet = header.is_quiet();
    let mode = match mode_of(header) {
        Mode::Set | Mode::Add | Mode::Replace if header.cas != 0 => Mode::Cas,
        mode => mode,
    };
    let exptime = time(extras.get(4..).and_then(word).unwrap_or(0));
    let stored = executor.store(&New {
        mode,
        key: packet.key,
        flags: word(extras).unwrap_or(0),
        expires: executor.service.expires(exptime),
        data: packet.value,
        compare: packet.compare(),
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

fn delete(executor: &mut Executor, packet: &Packet<'_>, output: &mut Vec<u8>) -> Result<()> {
    let header = packet.header;
    match executor.remove(packet.key, packet.compare(), "delete")? {
        Some(true) if header.is_quiet() => {}
        Some(true) => push(output, header, 0, 0, b"", b"", b""),
        Some(false) => refuse(output, header, Status::Exists),
        None => refuse(output, header, Status::NotFound),
    }
    Ok(())
}

fn arithmetic(
    executor: &mut Executor,
    packet: &Packet<'_>,
    up: bool,
    output: &mut Vec<u8>,
) -> Result<()> {
    let (header, extras) = (packet.header, packet.extras);
    let (Some(delta), Some(initial), Some(exptime)) = (
        long(extras, 0),
        long(extras, 8),
        extras.get(16..).and_then(word),
    ) else {
        refuse(output, header, Status::Invalid);
        return Ok(());
    };
    let expires = executor.service.expires(time(exptime));
    let counted = executor.count(
        packet.key,
        &Step {
            up,
            delta,
            compare: packet.compare(),
            version: None,
            // All ones: nothing is created.
            initial: (exptime != u32::MAX).then_some((initial, expires)),
            expires: None,
        },
    )?;
    match counted {
        Counted::Done { .. } if header.is_quiet() => {}
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

fn flush_all(executor: &mut Executor, packet: &Packet<'_>, output: &mut Vec<u8>) -> Result<()> {
    let header = packet.header;
    if executor.service.settings.flush_enabled {
        executor.flush(time(word(packet.extras).unwrap_or(0)))?;
        if !header.is_quiet() {
            push(output, header, 0, 0, b"", b"", b"");
        }
    } else {
        refuse(output, header, Status::NotAdmitted);
    }
    Ok(())
}

fn touch(executor: &mut Executor, packet: &Packet<'_>, output: &mut Vec<u8>) -> Result<()> {
    let (header, key) = (packet.header, packet.key);
    let expires = executor
        .service
        .expires(time(word(packet.extras).unwrap_or(0)));
    let found = executor.touch(key, expires, |item| {
        answer_read(output, header, key, Some(&item));
    })?;
    if header.operation() != Some(Opcode::Touch) {
        executor.note_read(key, found, found);
    }
    if !found {
        answer_read(output, header, key, None);
    }
    Ok(())
}

fn stat(executor: &mut Executor, packet: &Packet<'_>, output: &mut Vec<u8>) {
    let header = packet.header;
    let mut words = Words(packet.key);
    let (name, word) = (words.next().unwrap_or_default(), words.next());
    match name {
        b"reset" => stats::reset(executor),
        b"detail" => {
            let mut text = Vec::new();
            match word {
                Some(b"dump") => {
                    stats::detail(&executor.service, word, &mut text);
                    push(output, header, 0, 0, b"", b"detailed", &text);
                }
                Some(b"on" | b"off") => stats::detail(&executor.service, word, &mut text),
                _ => return refuse(output, header, Status::NotFound),
            }
        }
        _ => {
            let known = stats::figures(executor, name, &mut |name, value| {
                push(output, header, 0, 0, b"", name.as_bytes(), value.as_bytes());
            });
            if !known {
                return refuse(output, header, Status::NotFound);
            }
        }
    }
    push(output, header, 0, 0, b"", b"", b"");
}
