//! `object remove-range`: removes all objects of a range of ids at once, and says how many.
//! The answer is no if there were none. All objects there are go only if that is said: `--all`.
//! It does not show them: `list` does.

use azekura::{Error, Kind, Result};

use super::place::{Ids, Place};
use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::store::Writing;

/// Remove all objects of a range of ids
#[derive(clap::Args)]
pub(crate) struct RemoveRange {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    ids: Ids,
    /// Remove all objects there are
    #[arg(long, conflicts_with_all = ["first", "end"])]
    all: bool,
    #[command(flatten)]
    writing: Writing,
}

impl RemoveRange {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        if !self.all && !self.ids.is_told() {
            return Err(Error::new(Kind::Invalid, "no range of ids was given")
                .remedy("give --first, --end or both, or --all"));
        }
        let (first, end) = self.ids.read()?;
        let durability = self.writing.durability();
        let count = self
            .place
            .with(durability, |store| store.remove_range(first, end))?;
        let objects = counted(count, "object", "objects");
        out.line(format_args!("{objects} removed"))?;
        Ok(Outcome::of(count > 0))
    }
}
