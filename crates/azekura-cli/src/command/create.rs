//! `create`: makes a new, empty file. An existing one is refused, never emptied.
//! Some settings are fixed here for the life of the file; `rebuild` writes it anew with others.
//! It does not know what will be stored.

use std::path::PathBuf;

use azekura::Result;
use azekura::record::hash::HashDb;

use crate::exit::Outcome;
use crate::output::Output;
use crate::store::{Shape, Writing, refuse_existing};

/// Make a new, empty file
#[derive(clap::Args)]
pub(crate) struct Create {
    /// The file to make, by convention NAME.azh
    file: PathBuf,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    writing: Writing,
}

impl Create {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.file)?;
        let db = HashDb::create(&self.file, &self.shape.over(self.writing.options()))?;
        self.writing.finish(&db)?;
        db.close()?;
        Ok(Outcome::Yes)
    }
}
