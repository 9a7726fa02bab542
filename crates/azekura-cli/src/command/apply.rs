//! `apply`: brings an earlier copy of a tree file, or of several as one store, forward, with the changes that `copy --since` wrote.
//! All of the changes are verified before the copy is written. Until it is complete nothing opens the copy: killed or failed, the same
//! command again completes it.
//! It does not need the file that was copied.

use std::path::PathBuf;

use azekura::{Db, Result};

use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  azekura copy users.azt monday.changes --since backup.azt
  azekura apply backup.azt monday.changes && azekura check backup.azt";

/// Bring an earlier copy of a tree file forward with changes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    /// The copy, as it was when the changes were made; run again after an interruption
    copy: PathBuf,
    /// What `azekura copy --since` wrote
    changes: PathBuf,
}

impl Apply {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let progress = Progress::work("applying");
        let to = Db::apply_changes(&self.copy, &self.changes, progress.report())?;
        drop(progress);
        let at: Vec<String> = to.iter().map(ToString::to_string).collect();
        let at = at.join(",");
        out.after_change(&at, format_args!("the copy is at checkpoint {at}"))?;
        Ok(Outcome::Yes)
    }
}
