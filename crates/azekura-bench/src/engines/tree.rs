//! The tree file of azekura.
//!
//! Options are the defaults; durability and, if it is stated, the cache are the plan's.
//! It knows nothing of workloads.

use azekura::engine::Durability;
use azekura::error::Result;
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};

use super::direct::{Direct, Opened, own_calls};
use crate::target::Setup;

/// An open tree file.
pub type Tree = Opened<TreeDb>;

impl Direct for TreeDb {
    const WORD: &'static str = "tree";
    const PERSISTENT: bool = true;
    const ORDERED: bool = true;

    fn open(setup: &Setup) -> Result<Self> {
        let usual = OpenOptions::new().durability(setup.durability);
        let cache = setup.cache.unwrap_or(usual.cache);
        let options = CreateOptions::new().opening(usual.cache(cache));
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
