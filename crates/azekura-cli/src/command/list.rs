//! `list`: prints records in the engine's order, from the first or from a place.
//! A list that stops before the end prints on standard error where to continue: the bookmark stays valid
//! while the file changes and grows.
//! Damage is reported on standard error and passed by; the exit code is then 8.
//! It does not sort.

use std::ffi::OsString;
use std::path::PathBuf;

use azekura::engine::Bookmark;
use azekura::{Error, Kind, Result};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::exit::Outcome;
use crate::listing::Listing;
use crate::output::Output;
use crate::output::note;
use crate::store::walk_past_damage;

/// Print records: a line each, key and value
#[derive(clap::Args)]
pub(crate) struct List {
    /// The file
    file: PathBuf,
    /// Print at most so many records, and then where to continue [default: all]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    items: Option<u64>,
    /// Begin with this key; in a hash file, if it is present
    #[arg(long, value_name = "KEY", conflicts_with = "bookmark")]
    from: Option<OsString>,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "HEX")]
    bookmark: Option<String>,
    #[command(flatten)]
    listing: Listing,
}

impl List {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let from_key = self
            .from
            .as_deref()
            .map(|key| self.listing.coding.read(key))
            .transpose()?;
        let bookmark = self.bookmark.as_deref().map(read_bookmark).transpose()?;
        let store = azekura::open::open_damaged(&self.file)?;
        let from = from_key.map(|key| store.bookmark_at(&key)).or(bookmark);
        let count = self.items.unwrap_or(u64::MAX);
        let mut print = |key: &[u8], value: &[u8]| self.listing.print(out, key, value);
        let (next, is_damaged) = walk_past_damage(&*store, from.as_ref(), count, &mut print)?;
        if let Some(next) = next {
            note!(
                "azekura: more with --bookmark {}",
                HEXLOWER.encode(next.as_bytes())
            );
        }
        Ok(Outcome::of_whole(!is_damaged))
    }
}

fn read_bookmark(text: &str) -> Result<Bookmark> {
    let bytes = HEXLOWER_PERMISSIVE
        .decode(text.as_bytes())
        .map_err(|error| {
            Error::new(Kind::Invalid, "a bookmark is hexadecimal digits").detail(error.to_string())
        })?;
    Ok(Bookmark::from_bytes(&bytes))
}
