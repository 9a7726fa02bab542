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

/// Reads the certificate chain, the key and, if clients must show a certificate too, who may have signed it.
///
/// Errors: `Io` (a file cannot be read), `Invalid` (it is not what it should be, or the key is another's).
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
    let what = format!("cannot read the {what}");
    let error = match error {
        rustls::pki_types::pem::Error::Io(e) => Error::io(what, io::Error::from(e.kind())),
        other => Error::new(Kind::Invalid, what).detail(other.to_string()),
    };
    error.at(path).remedy("it must be a readable PEM file")
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
}

impl Tls {
    /// Waits for the client to begin.
    pub(super) fn new(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let mut cipher = ServerConnection::new(config).map_err(io::Error::other)?;
        cipher.set_buffer_limit(Some(HELD_MAX));
        Ok(Self { stream, cipher })
    }

    /// Reads plain bytes into the capacity that `into` has left.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
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
    }

    /// Encrypts as much of `from` as may be held, and sends what the system takes.
    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let len = self.cipher.writer().write(from)?;
        match self.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ if len == 0 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(len),
        }
    }

    /// Sends what is held.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.cipher.wants_write() {
            self.cipher.write_tls(&mut self.stream)?;
        }
        Ok(())
    }
}

impl AsFd for Tls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
