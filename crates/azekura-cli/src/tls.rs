//! The cipher of a connection to a server: whom to believe, and what to show.
//!
//! A server is believed whose certificate was signed by the authority that was named, and is for the host that was named; no
//! other authority is known, the system's neither. The protocol is rustls's, from TLS 1.2 on. It knows no memcached.

use std::io;
use std::path::Path;
use std::sync::Arc;

use azekura::{Error, Kind, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// The cipher for the server at `address`, `HOST:PORT`; `own`: files of the certificate to show, and of its key.
///
/// Errors: `Invalid` (no authority, no host, or a file that is not what it should be), `Io` (a file cannot be read).
pub(crate) fn cipher(
    address: &str,
    authority: Option<&Path>,
    own: Option<(&Path, &Path)>,
) -> Result<ClientConnection> {
    let authority = authority.ok_or_else(|| {
        Error::new(Kind::Invalid, "nobody is named who signs for the server")
            .remedy("name the file of its certificate, or of who signed that, by --authority")
    })?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        Error::new(Kind::Invalid, "no host of a server").found(address, "tls:HOST:PORT")
    })?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        roots
            .add(certificate)
            .map_err(|e| unusable(authority, &e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(authority, &e))?
        .with_root_certificates(roots);
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
    ClientConnection::new(Arc::new(config), name).map_err(|e| unusable(authority, &e))
}

/// Why the server is not talked to.
pub(crate) fn refused(address: &str, error: io::Error) -> Error {
    if let Some(inner) = error.get_ref()
        && inner.is::<rustls::Error>()
    {
        let detail = error.to_string();
        // What `openssl req -x509` makes unless it is told otherwise.
        let remedy = if detail.contains("CaUsedAsEndEntity") {
            "its certificate is an authority's (CA:TRUE): let it show one that this has signed, or make it with CA:FALSE"
        } else {
            "--authority must have signed its certificate, and that must be for this host"
        };
        return Error::new(Kind::Invalid, format!("no TLS with {address}"))
            .detail(detail)
            .remedy(remedy);
    }
    Error::io(format!("no TLS with {address}"), error)
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

fn unusable(path: &Path, error: &rustls::Error) -> Error {
    Error::new(Kind::Invalid, "a certificate cannot be used")
        .detail(error.to_string())
        .at(path)
}
