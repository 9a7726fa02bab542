//! `object get`: the bytes of an object or of a part of it, to standard output or into a file.
//! A file appears whole or not at all; what was there is replaced, unless it is a store. An absent object is named on
//! standard error and makes the answer no.
//! It does not know what the bytes mean.

use std::ops::Range;
use std::path::PathBuf;

use azekura::object::{ObjectId, StoreReader, Value};
use azekura::{Error, Kind, Result};

use super::place::{self, Place};
use crate::exit::Outcome;
use crate::output::Output;
use crate::store::parse_size;
use crate::whole;

/// Write the bytes of an object to standard output or a file
#[derive(clap::Args)]
pub(crate) struct Get {
    #[command(flatten)]
    place: Place,
    /// The object
    #[arg(value_name = "ID")]
    id: String,
    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The bytes from A to before B; A.. to the end, ..B from the beginning
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    range: Option<Range<u64>>,
}

impl Get {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let id: ObjectId = self.id.parse()?;
        let Some(bytes) = self.place.look(|store| self.read(store, id))? else {
            place::absent(&[id]);
            return Ok(Outcome::No);
        };
        match &self.output {
            None => out.bytes(&bytes)?,
            Some(target) => {
                let refused = "cannot write the object";
                whole::write(target, refused, &mut |to| {
                    to.write_all(&bytes)
                        .map_err(|error| Error::io(refused, error).at(target))
                })?;
            }
        }
        Ok(Outcome::Yes)
    }

    fn read(&self, store: &StoreReader, id: ObjectId) -> Result<Option<Value>> {
        let Some(range) = &self.range else {
            return store.get(id);
        };
        let Some(len) = store.head(id)? else {
            return Ok(None);
        };
        let end = if range.end == u64::MAX {
            len
        } else {
            range.end
        };
        if range.start > len || end > len {
            return Err(Error::new(
                Kind::Invalid,
                format!("object {id} ends before the range does"),
            )
            .at(self.place.device())
            .found(
                format!("{}..{}", range.start, end.max(range.start)),
                format!("no more than 0..{len}"),
            ));
        }
        store.get_range(id, range.start..end)
    }
}

/// Reads `A..B`, `A..` and `..B`; both are sizes.
fn parse_range(text: &str) -> std::result::Result<Range<u64>, String> {
    let (start, end) = text.split_once("..").ok_or("a range is A..B, A.. or ..B")?;
    let read = |part: &str, open: u64| match part {
        "" => Ok(open),
        told => parse_size(told),
    };
    let range = read(start, 0)?..read(end, u64::MAX)?;
    if range.end < range.start {
        return Err("the range ends before it begins".into());
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::parse_range;

    #[test]
    fn ranges_may_be_open_at_both_ends_and_have_units() {
        assert_eq!(parse_range("5..8"), Ok(5..8));
        assert_eq!(parse_range("5.."), Ok(5..u64::MAX));
        assert_eq!(parse_range("..1KiB"), Ok(0..1024));
        assert_eq!(parse_range(".."), Ok(0..u64::MAX));
        for wrong in ["", "5", "8..5", "5..8..9", "a..b", "-1..3"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
