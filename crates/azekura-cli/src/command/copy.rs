//! `copy`: writes a consistent copy of a file to a new one, while others use it.
//! The copy is the state of one moment after the command began, and is on the device when it ends. Concurrently with a writer it
//! holds what a reader can see: all but what follows a write in progress in the log.
//! It does not know of writers meanwhile.

use std::path::PathBuf;

use azekura::{Error, Kind, Result};

use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{of_target, refuse_existing};

/// Copy a file while it is being used
#[derive(clap::Args)]
pub(crate) struct Copy {
    /// The file
    file: PathBuf,
    /// The file to make
    target: PathBuf,
}

impl Copy {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.target)?;
        let store = azekura::open::open_read_only(&self.file)?;
        let persistent = store.as_persistent().ok_or_else(|| {
            Error::new(Kind::Invalid, "this engine has no file to copy").at(&self.file)
        })?;
        let progress = Progress::work("copying");
        let copied = persistent.copy_to(&self.target, &mut progress.report());
        copied.map_err(|error| of_target(error, &self.target, None))?;
        Ok(Outcome::Yes)
    }
}
