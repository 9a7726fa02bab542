//! `merge`: stores the records of other files in one; later files win.
//! All files are opened before anything is stored, so that a wrong name changes nothing.
//! It does not change the sources.

use std::path::PathBuf;

use azekura::Result;

use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{Conflict, Filler, Writing, for_each};

/// Store the records of other files; later files win
#[derive(clap::Args)]
pub(crate) struct Merge {
    /// The file to store in; it must exist
    target: PathBuf,
    /// The files to take records from
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    #[command(flatten)]
    conflict: Conflict,
    #[command(flatten)]
    writing: Writing,
}

impl Merge {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let target = self.writing.open(&self.target)?;
        let sources = self
            .sources
            .iter()
            .map(|source| azekura::open::open_read_only(source))
            .collect::<Result<Vec<_>>>()?;
        let progress = Progress::new("merging", sources.iter().map(|s| s.count()).sum());
        let mut filler = Filler::new(&*target, self.conflict);
        let mut done = 0;
        for source in &sources {
            for_each(&**source, &mut |key, value| {
                done += 1;
                progress.set(done);
                filler.put(key, value)
            })?;
            filler.flush()?;
        }
        drop(progress);
        self.writing.finish(&*target)?;
        let summary = filler.summary();
        out.after_change(&summary, &summary)?;
        Ok(Outcome::Yes)
    }
}
