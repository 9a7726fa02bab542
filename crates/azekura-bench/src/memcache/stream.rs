//! One connection to a server, plain or encrypted, that never blocks once it stands.
//!
//! It looks like a socket: bytes are read and written, or it would block. What a cipher holds besides is told, as the
//! system does not: [`holds`](Stream::holds) before waiting to read, [`owes`](Stream::owes) before waiting to write.
//! It knows no protocol.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use azekura::error::{Error, Result};
use rustls::ClientConnection;

use super::Address;
use crate::tls::Trust;

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Tls>),
}

pub(super) struct Tls {
    stream: TcpStream,
    cipher: ClientConnection,
    /// Whether it may hold bytes that were read and not taken.
    holds: bool,
}

impl Stream {
    /// Connects; `trust` is for encrypted addresses.
    pub(super) fn open(address: &Address, trust: Option<&Trust>) -> Result<Self> {
        let describe = |e| {
            Error::io("cannot connect to the server", e)
                .remedy("is it running, and is --address right?")
        };
        let tcp = |address| {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = match (address, trust) {
            (Address::Unix(path), _) => {
                let stream = UnixStream::connect(path).map_err(describe)?;
                stream.set_nonblocking(true).map_err(describe)?;
                Self::Unix(stream)
            }
            (Address::Tcp(address) | Address::Tls(address, _), None) => {
                let stream = tcp(address).map_err(describe)?;
                stream.set_nonblocking(true).map_err(describe)?;
                Self::Tcp(stream)
            }
            (Address::Tcp(address) | Address::Tls(address, _), Some(trust)) => {
                let mut stream = tcp(address).map_err(describe)?;
                let cipher = trust.greet(&mut stream)?;
                stream.set_nonblocking(true).map_err(describe)?;
                Self::Tls(Box::new(Tls {
                    stream,
                    cipher,
                    holds: true,
                }))
            }
        };
        Ok(stream)
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
            Self::Tls(tls) => tls.read(into),
        }
    }

    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream) => stream.write(from),
            Self::Tls(tls) => tls.write(from),
        }
    }

    /// Whether bytes may be here of which the system will not tell.
    pub(super) fn holds(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.holds)
    }

    /// Whether something that was taken has not been sent.
    pub(super) fn owes(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.cipher.wants_write())
    }
}

impl Tls {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.cipher.reader().read(into) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // A server that leaves without a word is as gone as one that says so.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => {
                    self.holds = true;
                    return read;
                }
            }
            self.holds = false;
            if self.cipher.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            let processed = self.cipher.process_new_packets();
            processed.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        }
    }

    /// Encrypts all of `from`, and sends what the system takes.
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let len = self.cipher.writer().write(from)?;
        while self.cipher.wants_write() {
            match self.cipher.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(len)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(tls) => tls.stream.as_fd(),
        }
    }
}
