//! `copy`: writes a consistent copy of a file to a new one, while others use it.
//! The copy is the state of one moment after the command began, and is on the device when it ends. Concurrently with a writer it
//! holds what a reader can see: all but what follows a write in progress in the log.
//! With `--since`, of a tree file, it writes what changed since an earlier copy, for `apply`. Of a store of several shards each is copied at
//! a moment of its own.
//! It does not know of writers meanwhile.

use std::path::{Path, PathBuf};

use azekura::record::tree;
use azekura::{Db, Error, Kind, OpenOptions, Result};

use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{of_target, refuse_existing};

const EXAMPLES: &str = "\
Examples:
  azekura copy users.azh backup.azh
  azekura copy users.azt backup.azt
  azekura copy users.azt monday.changes --since backup.azt
  azekura apply backup.azt monday.changes";

/// Copy a file while it is being used, or what changed since an earlier copy
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Copy {
    /// The file
    file: PathBuf,
    /// The file to make
    target: PathBuf,
    /// Write what changed since this earlier copy of a tree file, or of several as one store, for `azekura apply`; a file, or the
    /// checkpoint it is at as `azekura inspect` states it. A copy that was changed, or is more than 64 copies old, is refused
    #[arg(long, value_name = "COPY")]
    since: Option<PathBuf>,
}

impl Copy {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.target)?;
        if let Some(since) = &self.since {
            return self.copy_changes(since);
        }
        let store = azekura::open::open_read_only(&self.file)?;
        let persistent = store.as_persistent().ok_or_else(|| {
            Error::new(Kind::Invalid, "this engine has no file to copy").at(&self.file)
        })?;
        let progress = Progress::work("copying");
        let copied = persistent.copy_to(&self.target, &mut progress.report());
        copied.map_err(|error| of_target(error, &self.target, None))?;
        Ok(Outcome::Yes)
    }

    fn copy_changes(&self, since: &Path) -> Result<Outcome> {
        let since = if since.exists() {
            Db::checkpoints_of(since)?
        } else {
            let ids = since.to_string_lossy();
            let ids = ids.split(',').map(str::parse);
            ids.collect::<Result<Vec<_>>>()?
        };
        let of_tree = tree::OpenOptions::new().background(false);
        let of_hash = OpenOptions::new().background(false);
        let db = Db::open_with(&self.file, &of_hash, &of_tree)?;
        let progress = Progress::work("copying");
        let copied = db.copy_changes(&since, &self.target, progress.report());
        copied.map_err(|error| of_target(error, &self.target, None))?;
        db.close()?;
        Ok(Outcome::Yes)
    }
}
