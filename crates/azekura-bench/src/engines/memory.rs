//! The engines of azekura that keep their records in memory.
//!
//! They have no file: a store stays open between the phases of a run, and a result shows its memory.
//!
//! A new engine is a type and a few lines here, one line in `plan.rs`, and its word there.

use azekura::error::Result;
use azekura::record::cache::CacheDb;
use azekura::record::memory::baby::BabyDb;
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::record::memory::tiny::TinyDb;
use azekura::verbs::Verbs;

use super::direct::{Direct, Opened, own_calls};
use crate::target::Setup;

/// The leanest hash.
pub type Tiny = Opened<TinyDb>;
/// The ordered store.
pub type Baby = Opened<BabyDb>;
/// The cache, with room for every record, so that each can be verified.
pub type Cache = Opened<CacheDb>;
/// The standard library's hash map behind sharded locks.
pub type StdHash = Opened<StdHashDb>;
/// The standard library's ordered map behind a lock.
pub type StdTree = Opened<StdTreeDb>;

impl Direct for TinyDb {
    const WORD: &'static str = "tiny";
    fn open(_: &Setup) -> Result<Self> {
        Self::new()
    }
    own_calls!();
}

impl Direct for BabyDb {
    const WORD: &'static str = "baby";
    fn open(_: &Setup) -> Result<Self> {
        Self::new()
    }
    own_calls!();
}

impl Direct for CacheDb {
    const WORD: &'static str = "cache";
    fn open(setup: &Setup) -> Result<Self> {
        Self::new(setup.records.max(1))
    }
    own_calls!();
}

impl Direct for StdHashDb {
    const WORD: &'static str = "std-hash";
    fn open(_: &Setup) -> Result<Self> {
        Ok(Self::new())
    }
    own_calls!();
}

impl Direct for StdTreeDb {
    const WORD: &'static str = "std-tree";
    fn open(_: &Setup) -> Result<Self> {
        Ok(Self::new())
    }
    own_calls!();
}
