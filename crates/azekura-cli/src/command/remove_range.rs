//! `remove-range`: removes all records between two keys at once, and prints how many.
//!
//! One change of a tree file, of which a crash leaves all or nothing. The answer is no if there were none. Removing every record needs
//! `--all`. It does not show them: `list` does, and `count` states how many there are.

use std::path::PathBuf;

use azekura::{Error, Kind, Result};

use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::range::{KeyRange, unordered};
use crate::store::Writing;
use crate::text::Coding;

const HELP: &str = "\
Examples:
  azekura remove-range users.azt --from 2024 --to 2025
  azekura remove-range users.azt --all

Exit codes: 1 there were none; 3 neither --from nor --to nor --all, or a file without an order of keys; 6 the file is in use.
`azekura --help` lists all.";

/// Remove all records of a range of keys: give --from, --to or both, or --all
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct RemoveRange {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    range: KeyRange,
    /// Remove all records there are
    #[arg(long, conflicts_with_all = ["from", "to"])]
    all: bool,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    coding: Coding,
}

impl RemoveRange {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        if !self.all && !self.range.is_given() {
            return Err(Error::new(Kind::Invalid, "no range of keys was given")
                .remedy("give --from, --to or both, or --all"));
        }
        let ends = self.range.read(self.coding)?;
        let engine = self.writing.open(&self.file)?;
        let count = match engine.as_ordered_engine() {
            Some(ordered) => ordered.remove_between(ends.bounds())?,
            None if self.all => {
                let count = engine.count();
                engine.clear()?;
                count
            }
            None => return Err(unordered(&self.file)),
        };
        self.writing.finish(&*engine)?;
        let records = counted(count, "record", "records");
        out.line(format_args!("{records} removed"))?;
        Ok(Outcome::of(count > 0))
    }
}
