//! Ranges of keys as arguments: from one key on, up to another.
//!
//! The first key is in the range, the second is not, as in `list`. A range is for files that have an order of keys: what it is compared by is
//! the store's to know, and so is an end before a beginning. It does not know what is done with a range.

use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::path::Path;

use azekura::order::KeyBounds;
use azekura::{Error, Kind, Result};

use crate::text::Coding;

/// The ends of a range of keys.
#[derive(clap::Args)]
pub(crate) struct KeyRange {
    /// Begin with this key, or the next one that there is; in a file whose keys have an order
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End before this key; in a file whose keys have an order
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

/// The keys of a range.
pub(crate) struct Ends {
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

impl KeyRange {
    /// Whether any end was given.
    pub(crate) fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Its keys.
    pub(crate) fn read(&self, coding: Coding) -> Result<Ends> {
        let read = |key: Option<&OsStr>| key.map(|key| coding.read(key)).transpose();
        Ok(Ends {
            from: read(self.from.as_deref())?,
            to: read(self.to.as_deref())?,
        })
    }
}

impl Ends {
    /// As a store takes them.
    pub(crate) fn bounds(&self) -> KeyBounds<'_> {
        let from = self
            .from
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Included);
        let to = self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        (from, to)
    }
}

/// The error of a file without an order of keys.
pub(crate) fn unordered(file: &Path) -> Error {
    Error::new(
        Kind::Invalid,
        "a range is for files whose keys have an order",
    )
    .at(file)
    .found("a hash file", "a tree file, or a sorted file")
    .remedy("make a tree file of it: `azekura create FILE.azt` and `azekura merge`")
}
