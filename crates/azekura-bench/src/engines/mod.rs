//! The engines this crate measures, as [`Target`]s, and the word by which each is chosen.
//!
//! A file here states which of an engine's calls stand for the calls of a workload, and nothing else; `direct` does so
//! for all engines of azekura at once, the others for the rest.
//! Rivals are not here: they need libraries that are not built by default.

pub mod direct;
pub mod hash;
pub mod memory;
pub mod none;
pub mod skip;
pub mod tree;

use azekura::Durability;
use azekura::error::Result;
use clap::ValueEnum;

use crate::opens::{self, OpenPlan};
use crate::phase::Phase;
use crate::plan::Plan;
use crate::target::Target;
use crate::words::{refused, word};
use crate::workload;
use hash::Hash;
use memory::{Baby, Cache, StdHash, StdTree, Tiny};
use none::Nothing;
use skip::Skip;
use tree::Tree;

/// The engines this crate can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// azekura's hash file
    Hash,
    /// azekura's tree file
    Tree,
    /// azekura's sorted file, of which a phase that writes makes a new one
    Skip,
    /// The leanest hash in memory
    Tiny,
    /// The ordered store in memory
    Baby,
    /// The standard library's hash map behind sharded locks, in memory
    StdHash,
    /// The standard library's ordered map behind a lock, in memory
    StdTree,
    /// azekura's cache in memory, with room for every record
    Cache,
    /// Nothing: the cost of the harness
    None,
}

/// Evaluates an expression with `$target` standing for the engine's target.
macro_rules! with_target {
    ($engine:expr, $target:ident => $call:expr) => {
        with_target!(@ $engine, $target, $call, Hash: Hash, Tree: Tree, Skip: Skip, Tiny: Tiny, Baby: Baby, Cache: Cache,
            StdHash: StdHash, StdTree: StdTree, None: Nothing)
    };
    (@ $engine:expr, $target:ident, $call:expr, $($word:ident: $type:ty),*) => {
        match $engine {
            $(Engine::$word => {
                type $target = $type;
                $call
            })*
        }
    };
}

impl Engine {
    /// `Invalid` if records are to survive a power cut which the engine keeps in memory.
    ///
    /// For what a user asked. A suite runs such a row on an engine in memory as if nothing had been
    /// asked, so that all its engines read the same; no durability is reported then.
    pub fn check(self, durability: Durability) -> Result<()> {
        let persistent = with_target!(self, T => T::PERSISTENT);
        if persistent || durability != Durability::Power {
            return Ok(());
        }
        refused(
            "no write survives a power cut in memory",
            "leave --durability out, or choose an engine in a file",
        )
    }

    /// Whether it keeps its records in the order of their keys.
    pub fn is_ordered(self) -> bool {
        with_target!(self, T => T::ORDERED)
    }

    /// Whether a removal reports if there was a record.
    pub fn counts_removals(self) -> bool {
        with_target!(self, T => T::COUNTS_REMOVALS)
    }

    /// Runs the phases of `plan`; `emit` is shown each result as it is there.
    pub fn record(self, plan: &Plan, emit: &mut dyn FnMut(Phase) -> Result<()>) -> Result<()> {
        with_target!(self, T => workload::record::<T>(plan, emit))
    }

    /// Measures opening; `Invalid` for an engine that has no file.
    pub fn opens(self, plan: &OpenPlan, emit: &mut dyn FnMut(Phase) -> Result<()>) -> Result<()> {
        if self == Self::Skip {
            return refused(
                "a sorted file has no writer that could be killed: it is there when it is whole",
                "measure record --engine skip, or open another engine",
            );
        }
        with_target!(self, T => opens::run::<T>(plan, &word(&self), emit))
    }
}

#[cfg(test)]
mod tests {
    use azekura::Kind;

    use super::*;

    #[test]
    fn only_engines_in_files_are_asked_to_survive_a_power_cut() {
        for &engine in Engine::value_variants() {
            let refused = engine.check(Durability::Power).err();
            let in_file = matches!(engine, Engine::Hash | Engine::Tree | Engine::Skip);
            let expected = (!in_file).then_some(Kind::Invalid);
            let found = refused.map(|error| error.kind());
            assert_eq!(found, expected, "{}", word(&engine));
            engine.check(Durability::Process).unwrap();
        }
    }
}
