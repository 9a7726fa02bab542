//! Fallible allocation: for collections whose size data or callers decide.
//!
//! The standard library aborts the process when an allocation fails. Code that allocates a value, a batch or a table uses
//! these functions instead, and returns `Full` before it changes anything. Allocations that a constant bounds to a few
//! kibibytes use the standard library, as everywhere in Rust.

use std::collections::HashMap;
use std::hash::Hash;

use crate::error::{Error, Kind, Result, size};

#[cold]
fn refused(bytes: usize) -> Error {
    Error::new(Kind::Full, "the system gives no memory")
        .detail(format!("{} wanted", size(bytes as u64)))
}

/// An empty vector with room for exactly `len` elements.
pub(crate) fn vec<T>(len: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(len)
        .map_err(|_| refused(len.saturating_mul(size_of::<T>())))?;
    Ok(room)
}

/// Reserves capacity for at least `len` more elements.
pub(crate) fn more<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    vec.try_reserve(len)
        .map_err(|_| refused(len.saturating_mul(size_of::<T>())))
}

/// Reserves capacity for exactly `len` elements in all.
pub(crate) fn exactly<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    vec.try_reserve_exact(len.saturating_sub(vec.len()))
        .map_err(|_| refused(len.saturating_mul(size_of::<T>())))
}

/// Collects the items into a vector.
pub(crate) fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut all = vec(items.len())?;
    all.extend(items);
    Ok(all)
}

/// A copy of the bytes.
pub(crate) fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = vec(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// All parts in one vector, in order.
pub(crate) fn concat(parts: &[&[u8]]) -> Result<Vec<u8>> {
    let mut all = vec(parts.iter().map(|part| part.len()).sum())?;
    for part in parts {
        all.extend_from_slice(part);
    }
    Ok(all)
}

/// Reserves capacity in a map for `len` more entries.
pub(crate) fn map<K: Eq + Hash, V>(map: &mut HashMap<K, V>, len: usize) -> Result<()> {
    map.try_reserve(len)
        .map_err(|_| refused(len.saturating_mul(size_of::<(K, V)>())))
}

/// Reserves capacity for at least `len` elements in all.
pub(crate) fn hold<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    more(vec, len.saturating_sub(vec.len()))
}
