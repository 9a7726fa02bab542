//! Certificates and private keys from PEM files.
//!
//! It promises errors that name the file and what it must hold.
//! It verifies nothing.

use std::path::Path;

use azekura::{Error, Kind, Result};
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificates of a file, at least one.
///
/// Errors: `Invalid` (the file cannot be read, or is not one of certificates).
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found = found.map_err(|e| unreadable("certificate", path, &e))?;
    if found.is_empty() {
        return Err(Error::new(Kind::Invalid, "the file holds no certificate")
            .at(path)
            .remedy("it must hold PEM blocks that begin with BEGIN CERTIFICATE"));
    }
    Ok(found)
}

/// The private key of a file. Errors: `Invalid`.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| unreadable("private key", path, &e))
}

fn unreadable(what: &str, path: &Path, error: &PemError) -> Error {
    let detail = match error {
        PemError::Io(e) => e.to_string(),
        PemError::NoItemsFound => format!("it holds no {what}"),
        _ => "a PEM block in it is damaged".into(),
    };
    Error::new(Kind::Invalid, format!("cannot read the {what}"))
        .detail(detail)
        .at(path)
        .remedy("it must be a readable PEM file")
}

/// The error of a certificate that TLS refuses.
pub fn unusable(path: &Path) -> Error {
    Error::new(Kind::Invalid, "the certificate cannot be used")
        .at(path)
        .remedy("it must be an X.509 certificate of version 3, and the private key its own")
}
