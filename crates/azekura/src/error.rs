//! The one error of the library, and the only place where messages are shaped.
//!
//! An [`Error`] states what happened, where, what was found against what was expected, and what the
//! caller can do. Its [`Kind`] is chosen by what the caller does next. It is boxed, so a `Result`
//! stays one word larger than its value. Absence (`None`) and a failed comparison are not errors.
//!
//! It does not know engines or formats: they hand in words and places, this module sets them.
//!
//! ```text
//! corrupted: record checksum does not match at users.azh offset 0x1f40 key "anna"
//!            (stored 9d3c1a07, computed 00e1b2f4); run `azekura check users.azh`
//! `-- kind   `-- what                          `-- place            `-- found, expected  `-- remedy
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of everything in this library that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller should do next, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An argument breaks a stated rule: fix the call.
    Invalid,
    /// A key or value is beyond the stated limit: split it, or choose another engine.
    TooLarge,
    /// The configured or physical space is used up: remove records, or grow.
    Full,
    /// Another handle or process holds the file: wait, or open it read-only.
    Locked,
    /// Not an azekura file, another engine's, or a newer format: open it with the right one.
    Mismatch,
    /// Bytes contradict a checksum or an invariant: check, repair, or restore a backup.
    Corrupted,
    /// The system refused: look at the source.
    Io,
    /// An earlier failed write or sync left the state unknown: drop the handle and reopen.
    Poisoned,
    /// Others changed what a transaction rests on: begin it again.
    Conflict,
    /// A snapshot was ended, since what it held had become too much: take a new one.
    TooOld,
}

impl Kind {
    /// All of them. Programs number them in this order.
    pub const ALL: [Self; 10] = [
        Self::Invalid,
        Self::TooLarge,
        Self::Full,
        Self::Locked,
        Self::Mismatch,
        Self::Corrupted,
        Self::Io,
        Self::Poisoned,
        Self::Conflict,
        Self::TooOld,
    ];

    /// The word a message begins with.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::TooLarge => "too large",
            Self::Full => "full",
            Self::Locked => "locked",
            Self::Mismatch => "mismatch",
            Self::Corrupted => "corrupted",
            Self::Io => "io",
            Self::Poisoned => "poisoned",
            Self::Conflict => "conflict",
            Self::TooOld => "too old",
        }
    }
}

/// What went wrong, where, and what can be done about it. `Display` is one line.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    what: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    key: Option<Vec<u8>>,
    detail: Option<String>,
    remedy: Option<String>,
    source: Option<std::io::Error>,
}

impl Error {
    /// An error of `kind`; `what` is lower case, without a full stop.
    #[cold]
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            what: what.into(),
            path: None,
            offset: None,
            key: None,
            detail: None,
            remedy: None,
            source: None,
        }))
    }

    /// The system refused `what`. A full device or quota, and a file of the largest size allowed, become [`Kind::Full`].
    #[cold]
    pub fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        let kind = match source.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge => Kind::Full,
            _ => Kind::Io,
        };
        let mut error = Self::new(kind, what);
        if kind == Kind::Full {
            let remedy = match source.kind() {
                std::io::ErrorKind::FileTooLarge => {
                    "raise the limit of the size of files (ulimit -f), then try again; reopen a store that was open"
                }
                _ => "free space on that file system, then try again; reopen a store that was open",
            };
            error.0.remedy = Some(remedy.into());
        }
        error.0.source = Some(source);
        error
    }

    /// Adds the file or device it happened at, unless an inner layer named one.
    #[must_use]
    pub fn at(mut self, path: impl AsRef<Path>) -> Self {
        if self.0.path.is_none() {
            self.0.path = Some(path.as_ref().to_path_buf());
        }
        self
    }

    /// Adds the byte offset in the file.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Adds the key; the message shows at most 64 bytes of it, escaped.
    #[must_use]
    pub fn key(mut self, key: &[u8]) -> Self {
        self.0.key.get_or_insert_with(|| key.to_vec());
        self
    }

    /// Adds "(found X, expected Y)".
    #[must_use]
    pub fn found(self, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        self.detail(format!("found {found}, expected {expected}"))
    }

    /// Adds a detail in parentheses.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds whose it is, before the detail.
    pub(crate) fn of(self, whose: impl fmt::Display) -> Self {
        let detail = match &self.0.detail {
            Some(detail) => format!("{whose}; {detail}"),
            None => whose.to_string(),
        };
        self.detail(detail)
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// Without a remedy: where it is reported as a finding, it is already handled.
    pub(crate) fn without_remedy(mut self) -> Self {
        self.0.remedy = None;
        self
    }

    /// Another remedy, if it has the `present` one.
    pub(crate) fn remedy_instead(self, present: &str, remedy: &str) -> Self {
        if self.has_remedy(present) {
            self.remedy(remedy)
        } else {
            self
        }
    }

    /// Whether it has this remedy.
    pub(crate) fn has_remedy(&self, remedy: &str) -> bool {
        self.0.remedy.as_deref() == Some(remedy)
    }

    /// What the caller should do next.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What happened, without where, why and what can be done.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The file it happened at, if a file was involved.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte offset in the file, if it names one.
    pub fn place(&self) -> Option<u64> {
        self.0.offset
    }

    /// The error of the system that caused it, if there is one.
    pub fn system(&self) -> Option<&std::io::Error> {
        self.0.source.as_ref()
    }
}

/// Shows `bytes` quoted and escaped, cut at 64 bytes.
pub fn quote(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(64)];
    let dots = if bytes.len() > 64 { "..." } else { "" };
    format!("\"{}{dots}\"", shown.escape_ascii())
}

/// Shows a size with its unit, as `4 KiB` or `5.2 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() < 0.05 || unit == 0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Shows two sizes, found and expected: exactly, where they differ and their units would hide it.
pub fn sizes(found: u64, expected: u64) -> (String, String) {
    let (one, other) = (size(found), size(expected));
    if found != expected && one == other {
        return (format!("{found} bytes"), format!("{expected} bytes"));
    }
    (one, other)
}

/// So many bytes in words: `1 byte`, `8 bytes`.
pub fn bytes(len: usize) -> String {
    format!("{len} {}", if len == 1 { "byte" } else { "bytes" })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        write!(f, "{}: {}", inner.kind.word(), inner.what)?;
        if let Some(path) = &inner.path {
            write!(f, " at {}", path.display())?;
        }
        if let Some(offset) = inner.offset {
            write!(f, " offset {offset:#x}")?;
        }
        if let Some(key) = &inner.key {
            write!(f, " for key {}", quote(key))?;
        }
        if let Some(detail) = &inner.detail {
            write!(f, " ({detail})")?;
        }
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        if let Some(remedy) = &inner.remedy {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

/// The text of an error that is expected to be of this kind.
#[cfg(test)]
#[track_caller]
pub(crate) fn refusal<T, E: std::borrow::Borrow<Error>>(
    result: std::result::Result<T, E>,
    kind: Kind,
) -> String {
    let error = result.err().expect("it is not refused");
    assert_eq!(error.borrow().kind(), kind, "{}", error.borrow());
    error.borrow().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_what_where_found_expected_and_remedy() {
        let error = Error::new(Kind::Corrupted, "record checksum does not match")
            .at("users.azh")
            .offset(0x1f40)
            .key(b"an\xffna")
            .found("9d3c1a07", "00e1b2f4")
            .remedy("run `azekura check users.azh`");
        assert_eq!(
            error.to_string(),
            "corrupted: record checksum does not match at users.azh offset 0x1f40 for key \"an\\xffna\" \
             (found 9d3c1a07, expected 00e1b2f4); run `azekura check users.azh`"
        );
    }

    #[test]
    fn a_full_device_is_full_and_keeps_its_source() {
        let error = Error::io("cannot grow", std::io::Error::from_raw_os_error(28)).at("a");
        assert_eq!(error.kind(), Kind::Full);
        assert!(error.system().is_some());
    }

    #[test]
    fn long_keys_are_cut_and_sizes_have_units() {
        assert_eq!(quote(&[b'a'; 70]).len(), 64 + 5);
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(5_452_595), "5.2 MiB");
        let pair = |one: &str, other: &str| (one.into(), other.into());
        assert_eq!(sizes(4096, 1 << 20), pair("4 KiB", "1 MiB"));
        assert_eq!(sizes(4096, 4096), pair("4 KiB", "4 KiB"));
        let alike = pair("1048577 bytes", "1048576 bytes");
        assert_eq!(sizes((1 << 20) + 1, 1 << 20), alike);
    }
}
