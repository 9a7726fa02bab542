//! The socket of one connection, of whatever kind: bytes in, bytes out, never waiting.
//!
//! What would block is said as `ErrorKind::WouldBlock`, the end as a read of no bytes. It knows no protocol and keeps
//! no bytes of its own, but those of a cipher.

use std::io::{self, ErrorKind, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::tls::Tls;

/// A connected socket that does not block.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Tls>),
}

impl Stream {
    /// Reads into the capacity that `into` has left. Returns the bytes read, and whether the socket is known to be empty
    /// behind them. `Interrupted`: others should have their turn before it is asked again.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<(usize, bool)> {
        let room = into.capacity() - into.len();
        let len = match self {
            Self::Tls(tls) => return tls.read(into).map(|len| (len, false)),
            Self::Tcp(stream) => receive(stream, into)?,
            Self::Unix(stream) => receive(stream, into)?,
        };
        Ok((len, len < room))
    }

    /// Writes what the system takes of `from`, at least a byte; all of it goes to the cipher if there is one.
    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        loop {
            let wrote = match self {
                Self::Tcp(stream) => stream.write(from),
                Self::Unix(stream) => stream.write(from),
                Self::Tls(tls) => tls.write(from),
            };
            match wrote {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Ok(0) if !from.is_empty() => return Err(ErrorKind::WriteZero.into()),
                wrote => return wrote,
            }
        }
    }

    /// Whether there is no cipher.
    pub(super) fn is_plain(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Whether a cipher was not agreed upon yet.
    pub(super) fn is_greeting(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_greeting())
    }

    /// Sends what a cipher holds back; `WouldBlock` if the system does not take all of it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.flush(),
            _ => Ok(()),
        }
    }

    /// Bytes that a cipher holds back, about; 0 if the system has all.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Tls(tls) => tls.held(),
            _ => 0,
        }
    }

    /// Whether the system took anything from a cipher since this was asked last.
    pub(super) fn has_moved(&mut self) -> bool {
        match self {
            Self::Tls(tls) => tls.has_moved(),
            _ => false,
        }
    }
}

/// Receives once. A socket's own call: `read` goes through the layer of files first.
fn receive(stream: &impl AsFd, into: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        let room = rustix::buffer::spare_capacity(into);
        match recv(stream, room, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            received => return Ok(received?.1),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(tls) => tls.as_fd(),
        }
    }
}
