//! `object remove-range`: removes all objects of a range of ids at once, and prints how many.
//! The answer is no if there were none. Removing every object needs `--all`.
//! It does not show them: `list` does.

use azekura::{Error, Kind, Result};

use super::place::{Ids, Place};
use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::store::Lasting;

const HELP: &str = "\
Examples:
  azekura object remove-range photos.azo --first 2a --end 30
  azekura object remove-range photos.azo --all

Exit codes: 1 there were none; 3 neither --first nor --end nor --all; 6 the store is in use.
`azekura --help` lists all.";

/// Remove all objects of a range of ids: give --first, --end or both, or --all
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct RemoveRange {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    ids: Ids,
    /// Remove all objects there are
    #[arg(long, conflicts_with_all = ["first", "end"])]
    all: bool,
    #[command(flatten)]
    lasting: Lasting,
}

impl RemoveRange {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        if !self.all && !self.ids.is_given() {
            return Err(Error::new(Kind::Invalid, "no range of ids was given")
                .remedy("give --first, --end or both, or --all"));
        }
        let ids = self.ids.read()?;
        let durability = self.lasting.durability;
        let count = self
            .place
            .with(durability, |store| store.remove_range(ids))?;
        let objects = counted(count, "object", "objects");
        out.line(format_args!("{objects} removed"))?;
        Ok(Outcome::of(count > 0))
    }
}
