//! One connected socket that does not block: TCP, a unix socket, or TLS over TCP, of a server or of a client.
//!
//! A call that would block returns `ErrorKind::WouldBlock`; a read of no bytes is the end. It buffers nothing but what TLS
//! buffers: the system does not report those bytes, so [`Stream::held`] does. It knows no protocol above.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use azekura::{Error, Result};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::{Connection, ServerConfig, ServerConnection};

use crate::address::Address;
use crate::trust::Trust;

/// Most bytes that TLS buffers before the system takes them.
const HELD_MAX: usize = 64 << 10;

/// TLS records without data that are read before other connections are served.
const EMPTY_MAX: usize = 16;

/// A connected socket that does not block.
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// A socket of the file system.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<Tls>),
}

impl Stream {
    /// Connects to a server, with TLS if its address states it, for which `trust` is needed.
    ///
    /// Errors: `Io`; `Invalid` (the server's certificate is not accepted, or datagrams have no connection).
    pub fn connect(address: &Address, trust: Option<&Trust>) -> Result<Self> {
        let describe = |e| {
            Error::io(format!("cannot connect to {address}"), e)
                .remedy("start the server, or name another by --address")
        };
        let stream = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).map_err(describe)?;
                stream.set_nonblocking(true).map_err(describe)?;
                return Ok(Self::Unix(stream));
            }
            Address::Tcp(host) | Address::Tls(host) | Address::Udp(host) => {
                TcpStream::connect(host.all()).map_err(describe)?
            }
        };
        stream.set_nodelay(true).map_err(describe)?;
        let mut stream = stream;
        let cipher = match (address, trust) {
            (Address::Tls(_), Some(trust)) => Some(trust.handshake(&mut stream)?),
            _ => None,
        };
        stream.set_nonblocking(true).map_err(describe)?;
        Ok(match cipher {
            Some(cipher) => Self::Tls(Box::new(Tls::new(stream, cipher.into()))),
            None => Self::Tcp(stream),
        })
    }

    /// The server's side of TLS over `stream`, which does not block; the handshake comes with the first reads.
    pub fn accept_tls(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let cipher = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(Tls::new(stream, cipher.into()))))
    }

    /// Reads into the capacity that `into` has left. Returns the number of bytes read, and whether the socket is known to
    /// be empty after them. `Interrupted`: much arrived and held no data; serve other connections before the next call.
    pub fn read(&mut self, into: &mut Vec<u8>) -> io::Result<(usize, bool)> {
        let room = into.capacity() - into.len();
        let len = match self {
            Self::Tls(tls) => return tls.read(into).map(|len| (len, false)),
            Self::Tcp(stream) => receive(stream, into)?,
            Self::Unix(stream) => receive(stream, into)?,
        };
        Ok((len, len < room))
    }

    /// Writes what the system takes of `from`, at least a byte; with TLS what its buffer takes.
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
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

    /// Whether it is not encrypted.
    pub fn is_plain(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Whether the TLS handshake has not ended.
    pub fn is_greeting(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_greeting())
    }

    /// Sends what TLS buffers; `WouldBlock` if the system does not take all of it.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.flush(),
            _ => Ok(()),
        }
    }

    /// About how many bytes TLS buffers; 0 if the system has all.
    pub fn held(&self) -> usize {
        match self {
            Self::Tls(tls) => tls.held(),
            _ => 0,
        }
    }

    /// Whether the system took anything from the buffer of TLS since the last call.
    pub fn has_moved(&mut self) -> bool {
        match self {
            Self::Tls(tls) => tls.has_moved(),
            _ => false,
        }
    }
}

/// Receives once, by the call of sockets: `read` goes through the layer of files first.
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

/// TLS over a socket.
pub struct Tls {
    stream: TcpStream,
    cipher: Connection,
    /// Plain bytes taken since nothing was buffered.
    taken: usize,
    /// Whether the system took anything since the last call of `has_moved`.
    moved: bool,
}

impl Tls {
    fn new(stream: TcpStream, mut cipher: Connection) -> Self {
        cipher.set_buffer_limit(Some(HELD_MAX));
        Self {
            stream,
            cipher,
            taken: 0,
            moved: false,
        }
    }

    /// Reads plain bytes into the capacity that `into` has left.
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        for _ in 0..EMPTY_MAX {
            let (from, room) = (into.len(), into.capacity() - into.len());
            into.resize(from + room, 0);
            let read = self.cipher.reader().read(&mut into[from..]);
            into.truncate(from + read.as_ref().map_or(0, |len| *len));
            match read {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // A peer that leaves without close_notify has left, too.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.cipher.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            let processed = self.cipher.process_new_packets();
            // The answer of a handshake, or an alert with the reason of a failure.
            match self.flush() {
                Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                _ => {}
            }
            processed.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        }
        Err(ErrorKind::Interrupted.into())
    }

    /// Encrypts as much of `from` as may be buffered, and sends what the system takes.
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let len = self.cipher.writer().write(from)?;
        self.taken += len;
        match self.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ if len == 0 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(len),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.cipher.wants_write() {
            self.moved |= self.cipher.write_tls(&mut self.stream)? > 0;
        }
        self.taken = 0;
        Ok(())
    }

    fn is_greeting(&self) -> bool {
        self.cipher.is_handshaking()
    }

    fn held(&self) -> usize {
        if self.cipher.wants_write() {
            self.taken.max(1)
        } else {
            0
        }
    }

    fn has_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
}

impl Drop for Tls {
    /// Sends `close_notify` if the system takes it, so that the peer can distinguish the end from a cut.
    fn drop(&mut self) {
        self.cipher.send_close_notify();
        let _ = self.flush();
    }
}

impl AsFd for Tls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
