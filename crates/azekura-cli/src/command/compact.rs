//! `compact`: gives the space of removed and replaced records back to the file system, of a hash file or a tree file, or of
//! each shard of a store of several.
//! The file stays the same file and keeps its settings.
//! It does not speed anything up: `rebuild` writes the file anew.

use std::path::PathBuf;

use azekura::Result;
use azekura::error::size;

use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{Room, size_of};

/// Give unused space back
#[derive(clap::Args)]
pub(crate) struct Compact {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    room: Room,
}

impl Compact {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        // Not the store's own figures: while it is open it has room in advance, which closing gives back.
        let before = size_of(&self.file);
        let db = self.room.open_db(&self.file)?;
        let progress = Progress::work("compacting");
        db.compact(&mut progress.report())?;
        drop(progress);
        db.close()?;
        let after = size_of(&self.file);
        let sizes = format!("{} before, {} after", size(before), size(after));
        out.after_change(&sizes, format_args!("the file is compacted, {sizes}"))?;
        Ok(Outcome::Yes)
    }
}
