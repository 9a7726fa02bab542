//! `count`: prints how many records there are, in all or between two keys.
//!
//! Between two keys of a tree file no value is read; all records of any file are counted without a look at one. It is also what
//! `remove-range` would remove. It does not verify: `check` does.

use std::path::PathBuf;

use azekura::Result;

use crate::exit::Outcome;
use crate::output::Output;
use crate::range::{KeyRange, unordered};
use crate::text::Coding;

const HELP: &str = "\
Examples:
  azekura count users.azh
  azekura count users.azt --from b --to c

Exit codes: 3 a range of a file without an order, or one that ends before it begins; 8 damage. `azekura --help` lists all.";

/// Print how many records there are, in all or in a range of keys
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Count {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    range: KeyRange,
    #[command(flatten)]
    coding: Coding,
}

impl Count {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let ends = self.range.read(self.coding)?;
        let store = azekura::open::open_read_only(&self.file)?;
        let count = if self.range.is_given() {
            let ordered = store.as_ordered().ok_or_else(|| unordered(&self.file))?;
            ordered.count_between(ends.bounds())?
        } else {
            store.count()
        };
        out.line(format_args!("{count}"))?;
        Ok(Outcome::Yes)
    }
}
