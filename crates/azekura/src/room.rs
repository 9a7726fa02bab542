//! Room in memory that may be refused: for what data or callers decide the size of.
//!
//! The standard library ends the process when memory is refused. What holds a value, a batch or a table asks here
//! instead, and hands `Full` on before it changes anything. What is bounded by a constant of a few kibibytes is taken
//! without asking, as everywhere in Rust.

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

/// Room for so many elements more, and then some.
pub(crate) fn more<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    vec.try_reserve(len)
        .map_err(|_| refused(len.saturating_mul(size_of::<T>())))
}

/// Room for `len` elements in all, and none more than that.
pub(crate) fn exactly<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    vec.try_reserve_exact(len.saturating_sub(vec.len()))
        .map_err(|_| refused(len.saturating_mul(size_of::<T>())))
}

/// A vector of what comes.
pub(crate) fn collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut all = vec(items.len())?;
    all.extend(items);
    Ok(all)
}

/// A copy.
pub(crate) fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = vec(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// One behind the other.
pub(crate) fn concat(parts: &[&[u8]]) -> Result<Vec<u8>> {
    let mut all = vec(parts.iter().map(|part| part.len()).sum())?;
    for part in parts {
        all.extend_from_slice(part);
    }
    Ok(all)
}

/// Room in a map for so many entries more.
pub(crate) fn map<K: Eq + Hash, V>(map: &mut HashMap<K, V>, len: usize) -> Result<()> {
    map.try_reserve(len)
        .map_err(|_| refused(len.saturating_mul(size_of::<(K, V)>())))
}

/// Room for `len` elements in all.
pub(crate) fn hold<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    more(vec, len.saturating_sub(vec.len()))
}
