//! The hash file of azekura.
//!
//! Options are the defaults; durability is the plan's.
//! It knows nothing of workloads.

use azekura::engine::Durability;
use azekura::error::Result;
use azekura::record::hash::{CreateOptions, HashDb};

use super::direct::{Direct, Opened, own_calls};
use crate::target::Setup;

/// An open hash file.
pub type Hash = Opened<HashDb>;

impl Direct for HashDb {
    const WORD: &'static str = "hash";
    const PERSISTENT: bool = true;

    fn open(setup: &Setup) -> Result<Self> {
        let options = CreateOptions::new().durability(setup.durability);
        let path = setup.require_path()?;
        if setup.create {
            Self::create(path, &options)
        } else {
            Self::open(path, &options.opening)
        }
    }
    own_calls!();
    fn close(self) -> Result<()> {
        self.close()
    }
    fn sync(&self, durability: Durability) -> Result<()> {
        azekura::Persistent::sync(self, durability)
    }
}
