//! The test bench for engines: an obvious engine to compare with, and suites that test the others.
//!
//! ```text
//!   random        one seed decides everything
//!   op            operations, and which of them a seed tries
//!   model         what every operation must do; ModelDb, the same as an engine
//!   configuration options of hash files, drawn from a seed
//!   concurrent    work that is tried while something else runs; how much was tried
//!   conformance   the promises of the contract, checked on any engine      proved by: broken
//!   inherent      the methods of an engine's own, as an engine: for all of these
//!   history       concurrent runs, and whether some order explains them    proved by: broken
//!   transactions  the same for updates of several keys at once             proved by: broken
//!   damage        files with flipped, lost and swapped bytes               proved by: a toy
//!   crash         power cuts, kills and faults at every moment of a run    proved by: a toy
//!   schedule      threads whose meetings a seed decides                   proved by: mutants
//!   storm         crashes at every moment of a run of many such threads    proved by: mutants
//!   suite         how much a suite tries: all, or a tenth; fewer than it must is a failure
//!   broken        engines with one deliberate bug each, to prove the suites
//! ```
//!
//! Nothing here depends on time or the network. It changes no behaviour of the library.

pub mod broken;
pub mod concurrent;
pub mod configuration;
pub mod conformance;
pub mod crash;
pub mod damage;
pub mod fixture;
pub mod history;
pub mod inherent;
pub mod model;
pub mod op;
pub mod random;
#[cfg(azekura_explore)]
pub mod schedule;
#[cfg(azekura_explore)]
pub mod storm;
pub mod suite;
pub mod transactions;

pub use concurrent::{concurrently, tried};
pub use conformance::{Effort, conformance};
pub use inherent::Inherent;
pub use model::{Model, ModelDb};
pub use op::{Generator, Op, Outcome};
pub use random::{Random, round_seed};
