//! TLS as a client: which server certificates are accepted, and which certificate the client presents.
//!
//! A server is accepted if its certificate is for the named host and either was signed by the named authority or is that
//! very certificate. No other authority is accepted, not even those of the system. The protocol is rustls's, from TLS 1.2
//! on. It does not know memcached.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use azekura::{Error, Kind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

use crate::address::Host;
use crate::pem::{certificates, private_key, unusable};

/// What authenticates one server, and the client to it.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    address: String,
}

impl Trust {
    /// For the server at `host`; the file `authority` holds its certificate or that of its signer. `own`: the files of
    /// the client's certificate and key. All are in PEM.
    ///
    /// Errors: `Invalid` (no authority, or a file that cannot be read or used).
    pub fn new(host: &Host, authority: Option<&Path>, own: Option<(&Path, &Path)>) -> Result<Self> {
        let address = host.text();
        let authority = authority.ok_or_else(|| {
            Error::new(
                Kind::Invalid,
                "no authority to verify the server's certificate",
            )
            .remedy("name the file of the server's certificate, or of its signer's, by --authority")
        })?;
        let name = address.rsplit_once(':').map_or(address, |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            Error::new(Kind::Invalid, "no host of a server").found(address, "tls:HOST:PORT")
        })?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|_| unusable(authority))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier::read(authority)?));
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                builder
                    .with_client_auth_cert(chain, private_key(key)?)
                    .map_err(|_| unusable(certificate))?
            }
        };
        Ok(Self {
            config: Arc::new(config),
            name,
            address: address.to_owned(),
        })
    }

    /// Makes the TLS handshake over a new connection, which blocks, and sends nothing else.
    ///
    /// Errors: `Invalid` (the server's certificate is not accepted), `Io` (the connection failed).
    pub fn handshake(&self, stream: &mut TcpStream) -> Result<ClientConnection> {
        let cipher = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut cipher = cipher.map_err(|e| self.refused(io::Error::other(e)))?;
        while cipher.is_handshaking() {
            cipher.complete_io(stream).map_err(|e| self.refused(e))?;
        }
        Ok(cipher)
    }

    /// The error of a handshake.
    fn refused(&self, error: io::Error) -> Error {
        let what = format!("no TLS with {}", self.address);
        match explained(&error) {
            Some((found, remedy)) => Error::new(Kind::Invalid, what).detail(found).remedy(remedy),
            None => Error::io(what, error).remedy("check that its port expects TLS"),
        }
    }
}

/// What was found in the other's TLS, and what the user can do; `None`: it is another error.
pub(crate) fn explained(error: &io::Error) -> Option<(&'static str, &'static str)> {
    use CertificateError as Of;
    Some(match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(of) => match of {
            Of::Expired | Of::ExpiredContext { .. } => (
                "its certificate has expired",
                "renew that, or set the clock of this machine",
            ),
            Of::NotValidYet | Of::NotValidYetContext { .. } => (
                "its certificate is not valid yet",
                "set the clock of the machine that is wrong",
            ),
            Of::UnknownIssuer => (
                "its certificate is neither in the file of --authority nor signed by one there",
                "name the file of its certificate, or of its signer's, by --authority",
            ),
            Of::NotValidForName | Of::NotValidForNameContext { .. } => (
                "its certificate is not for this host",
                "connect by a name that the certificate is for",
            ),
            _ => (
                "its certificate cannot be used",
                "give the server an X.509 certificate of version 3 for its host",
            ),
        },
        rustls::Error::InvalidMessage(_) => (
            "its answer is not TLS",
            "leave out tls: and --authority if its port is not encrypted",
        ),
        rustls::Error::AlertReceived(_) => (
            "it refused the connection",
            "if it requires a client certificate, name one that it accepts by --certificate and --key",
        ),
        _ => (
            "the two have no version or cipher of TLS in common, or one of them made an error",
            "use a server with TLS 1.2 or later",
        ),
    })
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Verifies a server's certificate as webpki does, but for one case: a certificate that was named itself is accepted
/// although it may sign others. `openssl req -x509` makes such certificates.
#[derive(Debug)]
struct Verifier {
    certificates: Vec<CertificateDer<'static>>,
    judge: Arc<WebPkiServerVerifier>,
}

impl Verifier {
    fn read(authority: &Path) -> Result<Self> {
        let certificates = certificates(authority)?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots
                .add(certificate.clone())
                .map_err(|_| unusable(authority))?;
        }
        let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|_| unusable(authority))?;
        Ok(Self {
            certificates,
            judge,
        })
    }
}

/// Whether a certificate was refused because it may sign others. webpki checks that after its times and before its name.
fn may_sign(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            // The type of this error belongs to a crate that rustls does not show.
            format!("{:?}", other.0) == "CaUsedAsEndEntity"
        }
        _ => false,
    }
}

impl ServerCertVerifier for Verifier {
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
