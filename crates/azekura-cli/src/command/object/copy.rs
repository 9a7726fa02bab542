//! `object copy`: writes all objects of a store to a new one, verified on the way.
//! The copy is one file, also of a store with two devices; it appears when it is whole, and replaces nothing.
//! It copies no damage: an object that does not verify, or is in doubt, is an error, and there is no copy.

use std::path::PathBuf;

use azekura::{Durability, Result};

use super::place::Place;
use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{of_target, refuse_existing};

const HELP: &str = "\
Example:
  azekura object copy photos.azo backup.azo

Exit codes: 3 the target exists; 5 no room; 6 the store is in use; 8 an object does not verify, or is
in doubt: repair the store first.
`azekura --help` lists all.";

/// Copy a store to a new file
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Copy {
    #[command(flatten)]
    place: Place,
    /// The file to make
    target: PathBuf,
}

impl Copy {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.target)?;
        let progress = Progress::work("copying");
        self.place.with(Durability::Process, |store| {
            let copied = store.copy_to(&self.target, &mut progress.report());
            copied.map_err(|error| of_target(error, &self.target, None))
        })?;
        Ok(Outcome::Yes)
    }
}
