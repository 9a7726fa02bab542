//! The hash file of azekura.
//!
//! Options are the defaults; durability is the plan's. Its chores are its own calls; a hot copy is opened again and
//! checked, and stays where it is if it is damaged.

use azekura::engine::{Durability, Persistent as _};
use azekura::error::{Error, Kind, Result};
use azekura::record::hash::{HashDb, HashReader, Options};

use super::direct::{Direct, Opened, own_calls};
use crate::mixed::Chore;
use crate::target::Setup;

/// An open hash file.
pub type Hash = Opened<HashDb>;

impl Direct for HashDb {
    const WORD: &'static str = "hash";
    const PERSISTENT: bool = true;

    fn open(setup: &Setup) -> Result<Self> {
        let options = Options {
            durability: setup.durability,
            ..Options::default()
        };
        let path = setup.require_path()?;
        if setup.create {
            Self::create(path, &options)
        } else {
            Self::open(path, &options)
        }
    }
    own_calls!();
    fn close(self) -> Result<()> {
        self.close()
    }
    fn sync(&self, durability: Durability) -> Result<()> {
        azekura::Persistent::sync(self, durability)
    }
    fn tend(&self, chore: Chore) -> Result<()> {
        match chore {
            Chore::Sync => azekura::Persistent::sync(self, Durability::Power),
            Chore::Checkpoint => self.checkpoint(),
            Chore::Compact => self.compact(&mut |_, _| ()),
            Chore::Copy => {
                let target = self.path().with_extension("copy");
                self.copy_to(&target, &mut |_, _| ())?;
                let report = HashReader::open(&target)?.check(&mut |_, _| ())?;
                if let Some(first) = report.damage.first() {
                    let more = report.damage.len() - 1;
                    return Err(Error::new(Kind::Corrupted, "a hot copy is damaged")
                        .at(target)
                        .detail(format!("{first}; and {more} more")));
                }
                std::fs::remove_file(&target)
                    .map_err(|e| Error::io("cannot remove the copy", e).at(&target))
            }
        }
    }
}
