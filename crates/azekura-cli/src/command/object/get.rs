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
use crate::output::note;
use crate::progress::{Progress, Waiting};
use crate::whole;
use azekura::size::parse_size;

const HELP: &str = "\
Examples:
  azekura object get photos.azo 2a --output cat.jpg
  azekura object get photos.azo 2a --range 1MiB..2MiB | xxd
  azekura object get photos.azo 2a | azekura object put others.azo 2a -

Exit codes: 1 there is no such object; 3 the range ends after the object; 6 the store is in use;
8 the object does not verify, or a newer value may be lost: then what is left is written.
`azekura --help` lists all.";

/// Write the bytes of an object to standard output or a file
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Get {
    #[command(flatten)]
    place: Place,
    /// The object
    #[arg(value_name = "ID")]
    id: String,
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The bytes from A to before B, sizes as 64KiB; A.. to the end, ..B from the beginning
    /// [default: all]
    #[arg(long, value_name = "A..B", value_parser = parse_range, allow_hyphen_values = true)]
    range: Option<Range<u64>>,
}

impl Get {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let id: ObjectId = self.id.parse()?;
        let (bytes, is_doubtful) = self.place.look(|store| {
            let is_doubtful = store.is_doubtful(id)?;
            Ok((self.read(store, id, is_doubtful)?, is_doubtful))
        })?;
        if is_doubtful {
            note!("azekura: in doubt: {id}: a newer value, or its removal, may be lost");
        }
        let outcome = Outcome::of_whole(!is_doubtful);
        let Some(bytes) = bytes else {
            place::absent(&[id]);
            return Ok(if is_doubtful { outcome } else { Outcome::No });
        };
        match &self.output {
            None => in_pieces(&bytes, &mut |piece| out.bytes(piece))?,
            Some(target) => {
                let refused = "cannot write the object";
                whole::write(target, refused, &mut |to| {
                    in_pieces(&bytes, &mut |piece| {
                        to.write_all(piece)
                            .map_err(|error| whole::unwritable(refused, error, target))
                    })
                })?;
            }
        }
        Ok(outcome)
    }

    /// The bytes that are wanted; of an object in doubt, of what is left of it. Unlike `Store::get_range` it refuses a range
    /// that ends past the object: the output does not state how many bytes were requested, and a file that is too short is
    /// noticed late.
    fn read(&self, store: &StoreReader, id: ObjectId, is_doubtful: bool) -> Result<Option<Value>> {
        if is_doubtful {
            let range = self.range.clone().unwrap_or(0..u64::MAX);
            return store.last_known(id, range);
        }
        let Some(len) = store.head(id)? else {
            return Ok(None);
        };
        let Some(range) = &self.range else {
            let _waiting = Waiting::new("reading", len);
            return store.get(id);
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
        let _waiting = Waiting::new("reading", end - range.start);
        store.get_range(id, range.start..end)
    }
}

/// Bytes that are written between two reports.
const PIECE: usize = 1 << 20;

/// Writes `bytes`, and shows how far it is.
fn in_pieces(bytes: &[u8], write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let progress = Progress::patient("writing", bytes.len() as u64);
    let mut done = 0;
    for piece in bytes.chunks(PIECE) {
        write(piece)?;
        done += piece.len() as u64;
        progress.set(done);
    }
    Ok(())
}

/// Reads `A..B`, `A..` and `..B`; both are sizes.
fn parse_range(text: &str) -> std::result::Result<Range<u64>, String> {
    let (start, end) = text.split_once("..").ok_or("a range is A..B, A.. or ..B")?;
    if end.starts_with('=') {
        let form = "a range is A..B, A.. or ..B, and B is the first byte after it: 0..4 for 0..=3";
        return Err(form.into());
    }
    let read = |part: &str, open: u64| match part {
        "" => Ok(open),
        text => parse_size(text),
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
        assert!(parse_range("0..=3").is_err_and(|text| text.contains("0..4 for 0..=3")));
        for wrong in ["", "5", "8..5", "5..8..9", "a..b", "-1..3"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
