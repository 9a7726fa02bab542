//! What is measured: the few calls a workload makes, each as the engine offers it fastest.
//!
//! [`Target`] is a trait of static methods, not of objects: the worker loop is compiled for every
//! engine by itself, and nothing stands between it and the engine's own call. Rivals implement it
//! in the crate of the comparison. A call that an engine does not have is made from those it has
//! (the batched calls here), as the documentation of the benchmark states.
//!
//! It does not know workloads or clocks.

use std::path::PathBuf;

use azekura::engine::Durability;
use azekura::error::Result;

use crate::phase::Class;
use crate::words::{refused, required};

/// How a store is opened for a phase.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the store is, for stores that have a place.
    pub path: Option<PathBuf>,
    /// Whether it is to be made new; otherwise it must exist.
    pub create: bool,
    /// How many records it is going to hold at most, for engines that want to know.
    pub records: u64,
    /// What an acknowledged write has to survive.
    pub durability: Durability,
    /// Bytes of a page cache, if it is not the engine's to choose.
    pub cache: Option<u64>,
}

impl Setup {
    /// The path, for engines that need one.
    pub fn require_path(&self) -> Result<&PathBuf> {
        required(self.path.as_ref())
    }
}

/// Copies what was found, if anything was, to `value`, whose content is replaced: whether it was.
#[inline]
pub fn copy_found(found: Option<&[u8]>, value: &mut Vec<u8>) -> bool {
    if let Some(found) = found {
        value.clear();
        value.extend_from_slice(found);
    }
    found.is_some()
}

/// `Invalid`: the phase `scan` of an engine that has no order.
pub(crate) fn no_order() -> Result<()> {
    refused(
        "this engine keeps its records in no order",
        "leave the phase `scan` out, or choose an ordered engine",
    )
}

/// One open store. Methods are called by many threads at once.
pub trait Target: Sync + Sized {
    /// The engine's word in results.
    const NAME: &'static str;
    /// Whether the records outlive [`close`](Target::close).
    const PERSISTENT: bool;
    /// Whether a removal reports if there was a record. One that does not look writes a mark, and always answers yes.
    const COUNTS_REMOVALS: bool = true;
    /// Whether it keeps records in the order of their keys, and so can be scanned.
    const ORDERED: bool = false;
    /// A place to jump from; kept for a hundred jumps, then made anew.
    type Position<'t>
    where
        Self: 't;

    /// What an acknowledged write really survives where this was asked for: a rival may have nothing that is as strong.
    fn class(durability: Durability) -> Class {
        durability.into()
    }

    /// Opens or makes the store.
    fn open(setup: &Setup) -> Result<Self>;

    /// Closes it; everything acknowledged is with the system afterwards.
    fn close(self) -> Result<()>;

    /// Stores a record, replacing the one there.
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Looks a record up without copying its value: whether it is there.
    fn has(&self, key: &[u8]) -> Result<bool>;

    /// Copies a value to `value`, whose content is replaced: whether it is there.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Removes a record: whether it was there, if it [counts removals](Target::COUNTS_REMOVALS).
    fn remove(&self, key: &[u8]) -> Result<bool>;

    /// Stores several records.
    #[inline]
    fn set_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        records
            .iter()
            .try_for_each(|(key, value)| self.set(key, value))
    }

    /// Looks several records up without copying; `hit` gets the indexes of those that are there.
    #[inline]
    fn has_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize)) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            if self.has(key)? {
                hit(index);
            }
        }
        Ok(())
    }

    /// Reads several values; `hit` gets the index and the value of those that are there.
    #[inline]
    fn get_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize, &[u8])) -> Result<()> {
        let mut value = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            if self.get(key, &mut value)? {
                hit(index, &value);
            }
        }
        Ok(())
    }

    /// Removes several records: how many were there.
    #[inline]
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        keys.iter()
            .try_fold(0, |sum, key| Ok(sum + u64::from(self.remove(key)?)))
    }

    /// A position, not yet anywhere.
    fn position(&self) -> Result<Self::Position<'_>>;

    /// Jumps to `key` and lends the record there to `visit`, if there is one.
    fn jump(
        &self,
        position: &mut Self::Position<'_>,
        key: &[u8],
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<()>;

    /// Lends all records to `visit`, in the order of their keys. `Invalid` from an engine that has no order.
    fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        let _ = visit;
        no_order()
    }

    /// Records in the store, if it counts them.
    fn records(&self) -> Option<u64> {
        None
    }

    /// Flushes everything to the system (`Process`) or syncs it to the device (`Power`).
    fn sync(&self, durability: Durability) -> Result<()>;
}
