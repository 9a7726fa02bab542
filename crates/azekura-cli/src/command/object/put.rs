//! `object put`: stores values from files, a pipe or the command line, replacing what was there.
//! Several are one change: after a crash all of them are there or none. `--no-overwrite` and `--expect` store one value if
//! the object is as it was thought to be; otherwise the answer is no.
//! Values are read before the store is opened, so that what is in it may come from another command through a pipe.
//! It does not know what the values mean.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use azekura::error::{size, sizes};
use azekura::object::extent::{LEN_MAX, PACKED_LEN_MAX};
use azekura::object::{Change, ObjectId, OpenOptions, Store};
use azekura::{Error, Kind, Result};

use super::place::{self, Place};
use crate::exit::Outcome;
use crate::output::note;
use crate::output::{Output, counted};
use crate::progress::{Progress, Waiting};
use crate::store::Lasting;
use crate::whole;
use azekura::size::parse_size;

const HELP: &str = "\
Examples:
  azekura object put photos.azo 2a cat.jpg
  azekura object put photos.azo 2b dog.jpg 2c cow.jpg      # both or none
  tar c folder | azekura object put backups.azo 7 -

Several values that are put at once are stored apart, in 4 KiB each at least, however short they are.
Values are read before the store is opened, so one of its own objects may come through a pipe.
An empty pipe is an empty value: in a shell use `set -o pipefail`, or a file, where the source may fail.

Exit codes: 1 a condition does not hold; 4 a value is too long; 5 no room; 6 the store is in use.
`azekura --help` lists all.";

/// Store values, replacing what was there
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Put {
    #[command(flatten)]
    place: Place,
    /// Ids and the files of their values in turn; - is standard input
    #[arg(required = true, value_name = "ID FILE|-")]
    pairs: Vec<OsString>,
    /// The value of the one ID given
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    value: Option<OsString>,
    /// Store nothing if there is such an object; the exit code is then 1
    #[arg(long)]
    no_overwrite: bool,
    /// Store nothing unless the object's sequence is this one (see head); the exit code is then 1
    #[arg(long, value_name = "SEQUENCE", conflicts_with = "no_overwrite")]
    expect: Option<u64>,
    /// Keep values of up to so many bytes (65464 at most) in the journal, and later many in one extent; 0: none
    #[arg(long, value_parser = parse_small, value_name = "SIZE", default_value = "2KiB")]
    small_max: u64,
    #[command(flatten)]
    lasting: Lasting,
}

/// A size of a value that may stand with others in one extent.
fn parse_small(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text)? {
        small if small > PACKED_LEN_MAX => Err(format!("at most {PACKED_LEN_MAX} B")),
        small => Ok(small),
    }
}

impl Put {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        let (ids, sources) = self.pairs()?;
        let options = OpenOptions::new()
            .durability(self.lasting.durability)
            .small_max(self.small_max);
        self.place.refuse_missing()?;
        let values = self.values(&sources)?;
        let stored = self.place.with_options(options, |store| {
            self.refuse_long(&ids, &sources, &values, store.len_max())?;
            let bytes = values.iter().map(|value| value.len() as u64).sum();
            let _waiting = Waiting::new("storing", bytes);
            self.store(store, &ids, &values)
        })?;
        Ok(Outcome::of(stored))
    }

    /// The ids, and where their values are; none if they are in the arguments.
    fn pairs(&self) -> Result<(Vec<ObjectId>, Vec<&Path>)> {
        let is_told = self.value.is_some();
        let count = self.pairs.len();
        if is_told && count != 1 || !is_told && !count.is_multiple_of(2) {
            let expected = if is_told {
                "one id, when the value is an argument"
            } else {
                "a file after each id"
            };
            return Err(Error::new(Kind::Invalid, "ids and values do not pair up")
                .found(counted(count as u64, "word", "words"), expected)
                .remedy("a value is a file, - or --value TEXT"));
        }
        let words: Vec<String> = self
            .pairs
            .iter()
            .step_by(2)
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let ids = place::ids(&words)?;
        if ids.len() > 1 && (self.no_overwrite || self.expect.is_some()) {
            return Err(
                Error::new(Kind::Invalid, "a condition takes exactly one object").found(
                    counted(ids.len() as u64, "object", "objects"),
                    "one with --no-overwrite and --expect",
                ),
            );
        }
        let sources: Vec<&Path> = self
            .pairs
            .iter()
            .skip(1)
            .step_by(2)
            .map(Path::new)
            .collect();
        if sources
            .iter()
            .filter(|source| **source == Path::new("-"))
            .count()
            > 1
        {
            return Err(Error::new(
                Kind::Invalid,
                "standard input is the value of one object",
            ));
        }
        Ok((ids, sources))
    }

    /// The values, each no longer than any object may be, and a byte.
    fn values(&self, sources: &[&Path]) -> Result<Vec<Vec<u8>>> {
        let total = sources.iter().filter_map(|source| whole::len_of(source));
        let progress = Progress::patient("reading", total.sum());
        let mut done = 0;
        let given = self.value.iter().map(|value| Ok(value.as_bytes().to_vec()));
        let read = sources.iter().map(|source| {
            let read = whole::read_reporting(source, LEN_MAX, &mut |len| progress.set(done + len))?;
            done += read.len() as u64;
            Ok(read)
        });
        given.chain(read).collect()
    }

    /// `TooLarge` for a value that the store does not take.
    fn refuse_long(
        &self,
        ids: &[ObjectId],
        sources: &[&Path],
        values: &[Vec<u8>],
        limit: u64,
    ) -> Result<()> {
        for (at, (id, value)) in ids.iter().zip(values).enumerate() {
            let read = value.len() as u64;
            if read <= limit {
                continue;
            }
            let len = sources.get(at).and_then(|source| whole::len_of(source));
            let (found, most) = match len {
                Some(len) => sizes(len.max(read), limit),
                // The rest of it was not read.
                None if read > LEN_MAX => (format!("over {}", size(LEN_MAX)), size(limit)),
                None => sizes(read, limit),
            };
            return Err(
                Error::new(Kind::TooLarge, format!("object {id} exceeds the limit"))
                    .at(self.place.device())
                    .found(found, format!("at most {most}"))
                    .remedy("store it in parts, grow the store, or make a store with larger groups: --group-size"),
            );
        }
        Ok(())
    }

    /// Whether they were stored.
    fn store(&self, store: &Store, ids: &[ObjectId], values: &[Vec<u8>]) -> Result<bool> {
        if let ([id], [value]) = (ids, values) {
            if !self.no_overwrite && self.expect.is_none() {
                return store.put(*id, value).map(|_| true);
            }
            let stored = store.compare_and_put(*id, self.expect, value)?;
            if stored.is_none() {
                match (store.sequence(*id)?, self.expect) {
                    (None, _) => note!("azekura: absent: {id}"),
                    (Some(found), Some(expected)) => note!(
                        "azekura: another sequence: {id} (found {found}, expected {expected})"
                    ),
                    (Some(found), None) => {
                        note!("azekura: present already: {id} of sequence {found}");
                    }
                }
            }
            return Ok(stored.is_some());
        }
        let changes: Vec<Change<'_>> = ids
            .iter()
            .zip(values)
            .map(|(id, value)| Change::Put(*id, value))
            .collect();
        store.apply(&changes).map(|_| true)
    }
}
