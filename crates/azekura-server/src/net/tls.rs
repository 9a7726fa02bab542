//! Encrypted connections: certificates, keys and the cipher of one connection.
//!
//! The protocol is rustls's, from TLS 1.2 on; nothing here computes. Certificates can be read again while the server
//! runs: connections that were made before keep theirs. It knows no memcached.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use azekura::error::{Error, Kind, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// What a cipher may hold of answers before the system takes them.
const HELD_MAX: usize = 64 << 10;

/// Records that are looked at for one that says anything, before others have their turn.
const EMPTY_MAX: usize = 16;

/// Reads the certificate chain, the key and, if clients must show a certificate too, who may have signed it.
///
/// Errors: `Invalid` (a file cannot be read, is not what it should be, or the key is another's).
pub(crate) fn identity(
    certificate: &Path,
    key: &Path,
    clients: Option<&Path>,
) -> Result<Arc<ServerConfig>> {
    let chain = certificates(certificate)?;
    let key_of =
        PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable("private key", key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| refused(certificate, &e))?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root).map_err(|e| refused(path, &e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|e| refused(path, &e))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder
        .with_single_cert(chain, key_of)
        .map(Arc::new)
        .map_err(|e| refused(certificate, &e))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|e| unreadable("certificate", path, &e))?
        .collect();
    let found = found.map_err(|e| unreadable("certificate", path, &e))?;
    if found.is_empty() {
        return Err(Error::new(Kind::Invalid, "the file holds no certificate")
            .at(path)
            .remedy("it must hold PEM blocks that begin with BEGIN CERTIFICATE"));
    }
    Ok(found)
}

fn unreadable(what: &str, path: &Path, error: &rustls::pki_types::pem::Error) -> Error {
    let detail = match error {
        rustls::pki_types::pem::Error::Io(e) => io::Error::from(e.kind()).to_string(),
        other => other.to_string(),
    };
    Error::new(Kind::Invalid, format!("cannot read the {what}"))
        .detail(detail)
        .at(path)
        .remedy("it must be a readable PEM file")
}

fn refused(path: &Path, error: &impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, "the certificate cannot be used")
        .detail(error.to_string())
        .at(path)
}

/// A connection with its cipher.
pub(super) struct Tls {
    stream: TcpStream,
    cipher: ServerConnection,
    /// Plain bytes taken since the cipher last held nothing.
    taken: usize,
    /// Whether the system took anything since it was asked.
    moved: bool,
}

impl Tls {
    /// Waits for the client to begin.
    pub(super) fn new(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut cipher = ServerConnection::new(config).map_err(io::Error::other)?;
        cipher.set_buffer_limit(Some(HELD_MAX));
        Ok(Self {
            stream,
            cipher,
            taken: 0,
            moved: false,
        })
    }

    /// Reads plain bytes into the capacity that `into` has left. `Interrupted`: much came and said nothing.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        for _ in 0..EMPTY_MAX {
            let (from, room) = (into.len(), into.capacity() - into.len());
            into.resize(from + room, 0);
            let read = self.cipher.reader().read(&mut into[from..]);
            into.truncate(from + read.as_ref().map_or(0, |len| *len));
            match read {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // A peer that leaves without a word is as gone as one that says so.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.cipher.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            let processed = self.cipher.process_new_packets();
            // The answer of a handshake, or the alert that says what was wrong.
            match self.flush() {
                Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                _ => {}
            }
            processed.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        }
        Err(ErrorKind::Interrupted.into())
    }

    /// Encrypts as much of `from` as may be held, and sends what the system takes.
    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let len = self.cipher.writer().write(from)?;
        self.taken += len;
        match self.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ if len == 0 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(len),
        }
    }

    /// Sends what is held.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.cipher.wants_write() {
            self.moved |= self.cipher.write_tls(&mut self.stream)? > 0;
        }
        self.taken = 0;
        Ok(())
    }

    /// Whether the handshake has not ended.
    pub(super) fn is_greeting(&self) -> bool {
        self.cipher.is_handshaking()
    }

    /// Bytes that the system did not take yet, about.
    pub(super) fn held(&self) -> usize {
        if self.cipher.wants_write() {
            self.taken.max(1)
        } else {
            0
        }
    }

    /// Whether the system took anything since this was asked last.
    pub(super) fn has_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
}

impl Drop for Tls {
    /// Says that this is the end, so that the client can tell it from a cut; if the system takes it.
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, StreamOwned};

    use super::*;

    #[test]
    fn what_the_system_does_not_take_is_said_to_be_held_and_the_end_is_told() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sockets/certificates");
        let chain = folder.join("server.pem");
        let config = identity(&chain, &folder.join("server-key.pem"), None).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(certificates(&chain).unwrap().pop().unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(client), name).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut client = StreamOwned::new(client, stream);
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut tls = Tls::new(stream, config).unwrap();
        let greeting = std::thread::spawn(move || {
            client.write_all(b"mn").unwrap();
            client
        });
        let mut read = Vec::with_capacity(100);
        while read.len() < 2 {
            let _ = tls.read(&mut read);
            std::thread::yield_now();
        }
        let mut client = greeting.join().unwrap();
        assert_eq!(tls.held(), 0);
        let mut sent = 0;
        while let Ok(len) = tls.write(&[b'x'; 10_000]) {
            sent += len;
        }
        assert!(tls.held() > 0);
        assert!(tls.has_moved() && !tls.has_moved());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| all.len())
        });
        while tls.flush().is_err() {
            std::thread::yield_now();
        }
        assert!(tls.held() == 0 && tls.has_moved());
        drop(tls);
        // An end that was not told would be an error.
        assert_eq!(reader.join().unwrap().unwrap(), sent);
    }
}
