//! `list`: prints records in the engine's order, from the first or from a place, up to another, or backwards.
//! A list that stops before the end prints on standard error where to continue: the bookmark stays valid
//! while the file changes and grows.
//! Damage is reported on standard error and passed by; the exit code is then 8. A list backwards ends at it.
//! It does not sort: an end and a direction are for files that have an order of keys.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::PathBuf;

use azekura::engine::{Bookmark, Ordered, Reader};
use azekura::error::quote;
use azekura::order::Order;
use azekura::{Error, Kind, Result};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::exit::Outcome;
use crate::listing::Listing;
use crate::output::Output;
use crate::output::note;
use crate::store::{note_known_damage, walk_until};

/// Print records: a line each, key and value
#[derive(clap::Args)]
pub(crate) struct List {
    /// The file
    file: PathBuf,
    /// Print at most so many records, and then where to continue [default: all]
    #[arg(long, visible_alias = "limit", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    items: Option<u64>,
    /// Begin with this key; in a hash file, if it is present
    #[arg(long, value_name = "KEY", conflicts_with = "bookmark")]
    from: Option<OsString>,
    /// End before this key; in a file whose keys have an order
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Print the last record first; in a file whose keys have an order
    #[arg(long, conflicts_with = "bookmark")]
    reverse: bool,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "HEX")]
    bookmark: Option<String>,
    #[command(flatten)]
    listing: Listing,
}

/// Keys between which records are listed: from the first on, and before the second.
struct Range {
    order: Order,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

impl Range {
    fn is_from(&self, key: &[u8]) -> bool {
        let from = self.from.as_deref();
        from.is_none_or(|from| self.order.compare(key, from).is_ge())
    }

    fn is_before_end(&self, key: &[u8]) -> bool {
        let to = self.to.as_deref();
        to.is_none_or(|to| self.order.compare(key, to).is_lt())
    }

    /// `Invalid` if it ends before it begins.
    fn check(&self) -> Result<()> {
        let (Some(from), Some(to)) = (&self.from, &self.to) else {
            return Ok(());
        };
        if self.order.compare(from, to).is_le() {
            return Ok(());
        }
        let what = format!(
            "the list ends before it begins, in {} order",
            self.order.name()
        );
        Err(Error::new(Kind::Invalid, what)
            .found(
                format!("--from {} --to {}", quote(from), quote(to)),
                "a --to that is not less",
            )
            .remedy("exchange the keys; --reverse prints from the end, between the same keys"))
    }
}

impl List {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let read = |key: Option<&OsStr>| key.map(|key| self.listing.coding.read(key)).transpose();
        let (from, to) = (read(self.from.as_deref())?, read(self.to.as_deref())?);
        let bookmark = self.bookmark.as_deref().map(read_bookmark).transpose()?;
        let store = azekura::open::open_damaged(&self.file)?;
        let start = from
            .as_deref()
            .map(|key| store.bookmark_at(key))
            .or(bookmark);
        if to.is_none() && !self.reverse {
            return self.forward(out, &*store, start.as_ref(), &|_| true);
        }
        let ordered = store.as_ordered().ok_or_else(|| self.unordered())?;
        let order = Order::from_name(ordered.order_name()).unwrap_or_default();
        let range = Range { order, from, to };
        range.check()?;
        if self.reverse {
            return self.backward(out, &*store, ordered, &range);
        }
        self.forward(out, &*store, start.as_ref(), &|key| {
            range.is_before_end(key)
        })
    }

    fn forward(
        &self,
        out: &mut Output<'_>,
        store: &dyn Reader,
        from: Option<&Bookmark>,
        is_before_end: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Outcome> {
        let mut left = self.items.unwrap_or(u64::MAX);
        let mut is_at_end = false;
        let (next, is_damaged) = walk_until(store, from, &mut |key, value| {
            is_at_end = !is_before_end(key);
            if is_at_end {
                return Ok(ControlFlow::Break(()));
            }
            left -= 1;
            self.listing.print(out, key, value)?;
            Ok(match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })
        })?;
        if let Some(next) = next.filter(|_| !is_at_end) {
            note!(
                "azekura: more with --bookmark {}",
                HEXLOWER.encode(next.as_bytes())
            );
        }
        Ok(Outcome::of_whole(!is_damaged))
    }

    fn backward(
        &self,
        out: &mut Output<'_>,
        store: &dyn Reader,
        ordered: &dyn Ordered,
        range: &Range,
    ) -> Result<Outcome> {
        let is_damaged = note_known_damage(store);
        let mut left = self.items.unwrap_or(u64::MAX);
        let mut cursor = ordered.cursor();
        let mut is_there = match &range.to {
            None => cursor.last()?,
            // From no record the previous one is the last.
            Some(to) => {
                cursor.seek(to)?;
                cursor.previous()?
            }
        };
        let mut last = Vec::new();
        while let Some((key, value)) = cursor.record().filter(|_| is_there) {
            if !range.is_from(key) {
                break;
            }
            if left == 0 {
                if key == last {
                    note!("azekura: more, the next of the same key: print more at once");
                } else {
                    let last = self.listing.coding.show(&last);
                    note!("azekura: more with --reverse --to {last}");
                }
                break;
            }
            left -= 1;
            self.listing.print(out, key, value)?;
            key.clone_into(&mut last);
            is_there = cursor.previous()?;
        }
        Ok(Outcome::of_whole(!is_damaged))
    }

    fn unordered(&self) -> Error {
        let option = if self.reverse { "--reverse" } else { "--to" };
        let what = format!("{option} is for files whose keys have an order");
        Error::new(Kind::Invalid, what)
            .at(&self.file)
            .found("a hash file", "a sorted file")
            .remedy("make a sorted file of it: `azekura export` and `azekura skip build`")
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
