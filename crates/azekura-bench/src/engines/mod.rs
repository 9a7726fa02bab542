//! The engines this crate measures, one file each, as [`Target`](crate::target::Target)s.
//!
//! A file here says which of an engine's calls stand for the calls of a workload, and nothing else.
//! Rivals are not here: they carry libraries that nobody else should have to build.

pub mod hash;
pub mod memory;
pub mod none;
