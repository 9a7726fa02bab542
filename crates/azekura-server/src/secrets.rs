//! The files that the configuration names: passwords, the certificate and its key.
//!
//! They are read as a whole or not at all, so that an error in one changes nothing. A file that other users of the machine
//! may read is used, and logged as a warning. It knows no protocol and no sockets.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use azekura::error::{Error, Kind, Result};

use crate::config::{Certificate, Config};
use crate::memcached::Passwords;
use crate::net::{tls, validity};

/// What the files state.
pub(crate) struct Secrets {
    pub(crate) passwords: Option<Passwords>,
    pub(crate) identity: Option<Arc<rustls::ServerConfig>>,
    /// When the certificate expires, in seconds since 1970; `None`: there is none, or it does not state.
    pub(crate) expires: Option<u64>,
    pub(crate) contents: Contents,
}

/// Hashes of the contents of the files, by which a change is known; of files that are not configured, of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) passwords: u64,
    /// Of the chain, the key and the authority of clients.
    pub(crate) certificate: u64,
}

impl Contents {
    /// A file that cannot be read is like an empty one: the use of it reports that.
    fn read(config: &Config) -> Self {
        let hash = |paths: &[Option<&Path>]| {
            let mut hasher = DefaultHasher::new();
            for path in paths.iter().flatten() {
                std::fs::read(path).unwrap_or_default().hash(&mut hasher);
            }
            hasher.finish()
        };
        let files = config.certificate.as_ref();
        Self {
            passwords: hash(&[config.passwords.as_deref()]),
            certificate: hash(&[
                files.map(|files| files.chain.as_path()),
                files.map(|files| files.key.as_path()),
                files.and_then(|files| files.client_authority.as_deref()),
            ]),
        }
    }
}

impl Secrets {
    /// Errors: `Invalid` (a file cannot be used).
    pub(crate) fn read(config: &Config) -> Result<Self> {
        // Before they are used: a file that changes in between then counts as changed at the next reading, too.
        let contents = Contents::read(config);
        let passwords = config.passwords.as_deref().map(passwords).transpose()?;
        Ok(Self {
            passwords,
            identity: identity(config.certificate.as_ref())?,
            expires: config
                .certificate
                .as_ref()
                .and_then(|files| validity::expiry_of(&files.chain)),
            contents,
        })
    }
}

/// Logs a warning for each file of secrets that other users may read.
pub(crate) fn warn(config: &Config) {
    let key = config.certificate.as_ref().map(|files| files.key.as_path());
    for path in [config.passwords.as_deref(), key].into_iter().flatten() {
        if is_open_to_others(path) {
            let file = path.display().to_string();
            tracing::warn!(
                file,
                "other users can read this file of secrets: make it private by chmod 600"
            );
        }
    }
}

/// Whether the group or other users may read a file.
pub fn is_open_to_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|of| of.is_file() && of.mode() & 0o044 != 0)
}

fn passwords(path: &Path) -> Result<Passwords> {
    let text = std::fs::read(path).map_err(|e| {
        Error::new(Kind::Invalid, "cannot read the password file")
            .detail(e.to_string())
            .at(path)
            .remedy("--passwords names a file of lines name:password")
    })?;
    Passwords::parse(&text).map_err(|found| {
        Error::new(Kind::Invalid, "invalid password file")
            .at(path)
            .found(found, "one line name:password for each user")
    })
}

/// What a certificate's files state; `None`: there is none.
pub(crate) fn identity(files: Option<&Certificate>) -> Result<Option<Arc<rustls::ServerConfig>>> {
    let read = |files: &Certificate| {
        tls::identity(&files.chain, &files.key, files.client_authority.as_deref())
    };
    files.map(read).transpose()
}
