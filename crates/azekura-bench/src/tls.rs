//! The ciphers of connections to a server: whom to believe, and what to show.
//!
//! A server is believed whose certificate was signed by the authority that was named, or is that very certificate, and is
//! for the host that was named; no other authority is known, the system's neither. The load program and the client of the
//! command line use it. The protocol is rustls's, from TLS 1.2 on. It knows no memcached.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use azekura::{Error, Kind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

/// Whom to believe about one server, and what to show to it.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
    address: String,
}

impl Trust {
    /// For the server at `address`, `HOST:PORT`, whose certificate the file `authority` has, or that of who signed it;
    /// `own`: files of the certificate to show, and of its key. All in PEM.
    ///
    /// Errors: `Invalid` (no authority, no host, or a file that is not what it should be), `Io` (a file cannot be read).
    pub fn new(
        address: &str,
        authority: Option<&Path>,
        own: Option<(&Path, &Path)>,
    ) -> Result<Self> {
        let authority = authority.ok_or_else(|| {
            Error::new(Kind::Invalid, "nobody is named who signs for the server")
                .remedy("name the file of its certificate, or of who signed that, by --authority")
        })?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::new(Kind::Invalid, "no host of a server").found(address, "tls:HOST:PORT")
        })?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(authority, &e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Known::read(authority)?));
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let private = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, &e))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|e| unusable(certificate, &e))?
            }
        };
        Ok(Self {
            config: Arc::new(config),
            host,
            address: address.to_owned(),
        })
    }

    /// Says who is who over a connection that was just made, and waits for it; nothing else is sent. The stream blocks.
    ///
    /// Errors: `Invalid` (the server is not the one that is believed), `Io` (the connection failed).
    pub fn greet(&self, stream: &mut TcpStream) -> Result<ClientConnection> {
        let cipher = ClientConnection::new(Arc::clone(&self.config), self.host.clone());
        let mut cipher = cipher.map_err(|e| self.refused(io::Error::other(e)))?;
        while cipher.is_handshaking() {
            cipher.complete_io(stream).map_err(|e| self.refused(e))?;
        }
        Ok(cipher)
    }

    /// Why the server is not talked to.
    fn refused(&self, error: io::Error) -> Error {
        let what = format!("no TLS with {}", self.address);
        if let Some(inner) = error.get_ref()
            && inner.is::<rustls::Error>()
        {
            return Error::new(Kind::Invalid, what)
                .detail(error.to_string())
                .remedy(
                    "--authority must have signed its certificate, and that must be for this host",
                );
        }
        Error::io(what, error)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Judges a server's certificate as webpki does, by the authorities that are known, but for one case: a certificate that
/// is known itself is believed although it may sign others. That is what `openssl req -x509` makes, and whoever names it
/// means it.
#[derive(Debug)]
struct Known {
    certificates: Vec<CertificateDer<'static>>,
    judge: Arc<WebPkiServerVerifier>,
}

impl Known {
    fn read(authority: &Path) -> Result<Self> {
        let certificates = certificates(authority)?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots
                .add(certificate.clone())
                .map_err(|e| unusable(authority, &e))?;
        }
        let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|e| unusable(authority, &e))?;
        Ok(Self {
            certificates,
            judge,
        })
    }
}

/// Whether a certificate was refused because it may sign others. That is judged behind its times, before its name.
fn may_sign(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            // The type of this error belongs to a crate that rustls does not show.
            format!("{:?}", other.0) == "CaUsedAsEndEntity"
        }
        _ => false,
    }
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let judged = self.judge.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match judged {
            Err(error) if may_sign(&error) && self.certificates.contains(end_entity) => {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&certificate, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.judge
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.judge
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|e| unreadable(path, &e))?
        .collect();
    let found = found.map_err(|e| unreadable(path, &e))?;
    if found.is_empty() {
        return Err(Error::new(Kind::Invalid, "the file holds no certificate")
            .at(path)
            .remedy("it must hold PEM blocks that begin with BEGIN CERTIFICATE"));
    }
    Ok(found)
}

fn unreadable(path: &Path, error: &rustls::pki_types::pem::Error) -> Error {
    let what = "cannot read a PEM file";
    let error = match error {
        rustls::pki_types::pem::Error::Io(e) => Error::io(what, io::Error::from(e.kind())),
        other => Error::new(Kind::Invalid, what).detail(other.to_string()),
    };
    error.at(path)
}

fn unusable(path: &Path, error: &impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, "a certificate cannot be used")
        .detail(error.to_string())
        .at(path)
}
