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

/// A line for each: its word, whether it is ordered, and how it is made.
macro_rules! in_memory {
    ($($engine:ty, $word:literal, $ordered:literal, $setup:pat => $made:expr;)*) => {$(
        impl Direct for $engine {
            const WORD: &'static str = $word;
            const ORDERED: bool = $ordered;
            fn open($setup: &Setup) -> Result<Self> {
                $made
            }
            own_calls!();
        }
    )*};
}
in_memory! {
    TinyDb, "tiny", false, _ => Self::new();
    BabyDb, "baby", true, _ => Self::new();
    CacheDb, "cache", false, setup => Self::new(setup.records.max(1));
    StdHashDb, "std-hash", false, _ => Ok(Self::new());
    StdTreeDb, "std-tree", true, _ => Ok(Self::new());
}
