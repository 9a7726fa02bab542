//! The stores this crate can measure by itself, each with the words it is called by.
//!
//! Rivals have their own list of the same shape in the crate of the comparison. What a store does is in
//! its file. It does not know workloads.

pub mod azekura;
pub mod device;
pub mod files;
pub mod nothing;

use clap::ValueEnum;

use super::store::Open;

/// A store of large values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// azekura's object store
    Azekura,
    /// A file for each object, in three levels of folders
    Files,
    /// No store: a written file past the page cache, written in order and read at random
    Device,
    /// Nothing: the cost of the harness
    None,
}

impl Engine {
    /// How it is opened.
    pub const fn open(self) -> Open {
        match self {
            Self::Azekura => azekura::open,
            Self::Files => files::open,
            Self::Device => device::open,
            Self::None => nothing::open,
        }
    }
}
