//! The engines this crate measures, as [`Target`](crate::target::Target)s.
//!
//! A file here says which of an engine's calls stand for the calls of a workload, and nothing else; `direct` says it
//! of all engines of azekura at once, the others what is left.
//! Rivals are not here: they carry libraries that nobody else should have to build.

pub mod direct;
#[cfg(test)]
pub(crate) mod faulty;
pub mod hash;
pub mod memory;
pub mod none;
