//! What the engines over `std::collections` share: byte strings, limits, changes to come, copies that are lent.
//!
//! A record is two byte strings, each of 24 bytes: up to 22 stand in place, as in the strings of C++, more in a
//! box. For short records that halves memory and misses. Values are copied while the lock
//! is held and lent when it is not, so that who looks at a value may call the engine again. Memory that is
//! not to be had is an error here, before anything is changed. It knows neither map nor lock.

use std::borrow::Borrow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::engine::{Edit, Promise};
use crate::error::{Error, Kind, Result, size};
use crate::room;

/// Longest key: what a snapshot holds.
pub(super) const KEY_LEN_MAX: u64 = (1 << 31) - 1;
/// Longest value: what a snapshot holds.
pub(super) const VALUE_LEN_MAX: u64 = u32::MAX as u64;

/// Bytes that stand in place.
const SHORT_LEN_MAX: usize = 22;

/// A key or a value.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    /// Length, and the bytes in front.
    Short(u8, [u8; SHORT_LEN_MAX]),
    /// Elsewhere.
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<Bytes>() == 24, "no more than three words");

impl Bytes {
    /// A copy; `Full` if there is no memory for it.
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > SHORT_LEN_MAX {
            return boxed(bytes).map(Self::Long);
        }
        let mut short = [0; SHORT_LEN_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Ok(Self::Short(bytes.len() as u8, short))
    }

    /// Becomes a copy of `bytes`, in its own room if they are as many. Nothing is changed on an error.
    #[inline]
    pub(super) fn replace(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Long(present) if present.len() == bytes.len() => present.copy_from_slice(bytes),
            _ => *self = Self::of(bytes)?,
        }
        Ok(())
    }

    /// What it takes elsewhere, about: the usual allocator adds a word and rounds to two.
    pub(super) fn heap_bytes(&self) -> u64 {
        match self {
            Self::Short(..) => 0,
            Self::Long(bytes) => (bytes.len() as u64 + 8).next_multiple_of(16).max(32),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }
}

// As byte slices, so that a map of them can be asked by a slice.

impl Borrow<[u8]> for Bytes {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Hash for Bytes {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (**self).hash(hasher);
    }
}

impl PartialEq for Bytes {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl PartialOrd for Bytes {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bytes {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

pub(super) const fn promise(engine: &'static str) -> Promise {
    Promise {
        engine,
        evicts: false,
        durability: None,
        update_many_is_crash_atomic: false,
        key_len_max: KEY_LEN_MAX,
        value_len_max: VALUE_LEN_MAX,
    }
}

#[cold]
pub(super) fn no_memory(wanted: usize) -> Error {
    Error::new(Kind::Full, "no memory for a record")
        .detail(format!("{} wanted", size(wanted as u64)))
}

fn boxed(bytes: &[u8]) -> Result<Box<[u8]>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| no_memory(bytes.len()))?;
    copy.extend_from_slice(bytes);
    Ok(copy.into_boxed_slice())
}

/// `TooLarge` if a record of these lengths is over the limits.
#[inline]
pub(super) fn fits(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() as u64 > KEY_LEN_MAX || value.len() as u64 > VALUE_LEN_MAX {
        return Err(too_large(key, value));
    }
    Ok(())
}

#[cold]
fn too_large(key: &[u8], value: &[u8]) -> Error {
    let (what, len, most) = if key.len() as u64 > KEY_LEN_MAX {
        ("key", key.len(), KEY_LEN_MAX)
    } else {
        ("value", value.len(), VALUE_LEN_MAX)
    };
    let what = format!(
        "{what} of {} exceeds the limit of {}",
        size(len as u64),
        size(most)
    );
    Error::new(Kind::TooLarge, what).key(key)
}

/// What becomes of a record.
pub(super) enum Change {
    /// It has this key and value.
    Put(Bytes, Bytes),
    /// It goes.
    Remove,
}

/// The changes that edits make of records. All memory is taken here.
pub(super) fn changes<'k>(
    records: &[&'k [u8]],
    edits: Vec<Edit<'_>>,
) -> Result<Vec<(&'k [u8], Change)>> {
    let mut changes = room::vec(records.len())?;
    for (key, edit) in records.iter().zip(edits) {
        match edit {
            Edit::Keep => {}
            Edit::Remove => changes.push((*key, Change::Remove)),
            Edit::Put(value) => changes.push((*key, put(key, &value)?)),
        }
    }
    Ok(changes)
}

fn put(key: &[u8], value: &[u8]) -> Result<Change> {
    fits(key, value)?;
    Ok(Change::Put(Bytes::of(key)?, Bytes::of(value)?))
}

thread_local! {
    /// The buffer of a copy that is lent, while no caller has it.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Room beyond which it is not kept for the next copy.
const ROOM_MAX: usize = 64 << 10;

/// A copy to be lent. One that is long has the room of this thread, which is used again; within it, another has
/// room of its own.
pub(super) enum Copied {
    Short(Bytes),
    Long(Vec<u8>),
}

impl Copied {
    #[inline]
    pub(super) fn of(value: &Bytes) -> Result<Self> {
        match value {
            Bytes::Short(len, bytes) => Ok(Self::Short(Bytes::Short(*len, *bytes))),
            Bytes::Long(bytes) => {
                let mut room = ROOM.take();
                room.clear();
                room.try_reserve(bytes.len())
                    .map_err(|_| no_memory(bytes.len()))?;
                room.extend_from_slice(bytes);
                Ok(Self::Long(room))
            }
        }
    }
}

impl Deref for Copied {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

impl Drop for Copied {
    #[inline]
    fn drop(&mut self) {
        if let Self::Long(room) = self
            && room.capacity() <= ROOM_MAX
        {
            ROOM.set(std::mem::take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_themselves_in_place_and_elsewhere() {
        let text: Vec<u8> = (0..60).collect();
        let mut changing = Bytes::of(b"").unwrap();
        for len in 0..text.len() {
            let bytes = Bytes::of(&text[..len]).unwrap();
            assert_eq!(&*bytes, &text[..len]);
            assert_eq!(bytes.heap_bytes() == 0, len <= SHORT_LEN_MAX);
            assert!(len == 0 || Bytes::of(&text[..len - 1]).unwrap() < bytes);
            changing.replace(&bytes).unwrap();
            assert_eq!(changing, bytes);
            changing.replace(&text[60 - len..]).unwrap();
            assert_eq!(&*changing, &text[60 - len..]);
        }
    }

    #[test]
    fn copies_within_copies_keep_their_bytes() {
        let copied =
            |text: &str| Copied::of(&Bytes::of(text.repeat(9).as_bytes()).unwrap()).unwrap();
        let outer = copied("outer");
        let inner = copied("inner");
        assert_eq!((&outer[..5], &inner[..5]), (&b"outer"[..], &b"inner"[..]));
        drop(outer);
        let next = copied("other");
        assert_eq!((&next[..5], &inner[..5]), (&b"other"[..], &b"inner"[..]));
        let short = Copied::of(&Bytes::of(b"x").unwrap()).unwrap();
        assert_eq!(&*short, b"x");
    }
}
