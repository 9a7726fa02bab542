//! What the engines over `std::collections` share: boxed bytes, limits, edits of many, copies that are lent.
//!
//! A record is two boxes, as the user of a map of byte strings would have it. Values are copied while the lock
//! is held and lent when it is not, so that who looks at a value may call the engine again. Memory that is
//! not to be had is an error here, before anything is changed. It knows neither map nor lock.

use std::cell::Cell;
use std::ops::Deref;

use crate::engine::{Edit, Promise};
use crate::error::{Error, Kind, Result, size};

/// Longest key: what a snapshot holds.
pub(super) const KEY_LEN_MAX: u64 = (1 << 31) - 1;
/// Longest value: what a snapshot holds.
pub(super) const VALUE_LEN_MAX: u64 = u32::MAX as u64;

/// A key or a value.
pub(super) type Bytes = Box<[u8]>;

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

/// A copy; `Full` if there is no memory for it.
#[inline]
pub(super) fn boxed(bytes: &[u8]) -> Result<Bytes> {
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

/// Gives `present` new bytes, in its own room if they are as many. Nothing is changed on an error.
#[inline]
pub(super) fn replace(present: &mut Bytes, value: &[u8]) -> Result<()> {
    if present.len() == value.len() {
        present.copy_from_slice(value);
    } else {
        *present = boxed(value)?;
    }
    Ok(())
}

/// What becomes of a record.
pub(super) enum Change {
    /// It has this key and value.
    Put(Bytes, Bytes),
    /// It goes.
    Remove,
}

/// The changes that `edits` make: for each key the last edit that is not `Keep`, with the index of that key.
/// All memory is taken here. Panics unless there is one edit per key.
pub(super) fn changes(keys: &[&[u8]], edits: Vec<Edit<'_>>) -> Result<Vec<(usize, Change)>> {
    assert_eq!(edits.len(), keys.len(), "one edit per key");
    let mut edits: Vec<(usize, Edit<'_>)> = edits
        .into_iter()
        .enumerate()
        .filter(|(_, edit)| *edit != Edit::Keep)
        .collect();
    // The last of each key comes first, and stays.
    edits.sort_by(|(a, _), (b, _)| keys[*a].cmp(keys[*b]).then(b.cmp(a)));
    edits.dedup_by(|(next, _), (first, _)| keys[*next] == keys[*first]);
    let change = |(index, edit): (usize, Edit<'_>)| {
        let change = match edit {
            Edit::Put(value) => {
                fits(keys[index], &value)?;
                Change::Put(boxed(keys[index])?, boxed(&value)?)
            }
            Edit::Keep | Edit::Remove => Change::Remove,
        };
        Ok((index, change))
    };
    edits.into_iter().map(change).collect()
}

thread_local! {
    /// Room for a copy that is lent, while nobody has it.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Room beyond which it is not kept for the next copy.
const ROOM_MAX: usize = 64 << 10;

/// A copy to be lent. Its room is this thread's, and is used again; within one, another has room of its own.
pub(super) struct Copied(Vec<u8>);

impl Copied {
    #[inline]
    pub(super) fn of(value: &[u8]) -> Result<Self> {
        let mut room = ROOM.take();
        room.clear();
        room.try_reserve(value.len())
            .map_err(|_| no_memory(value.len()))?;
        room.extend_from_slice(value);
        Ok(Self(room))
    }
}

impl Deref for Copied {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Copied {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() <= ROOM_MAX {
            ROOM.set(std::mem::take(&mut self.0));
        }
    }
}

/// What a box of so many bytes takes in the heap, about: the usual allocator adds a word and rounds to two.
pub(super) fn heap_bytes(len: usize) -> u64 {
    if len == 0 {
        0
    } else {
        (len as u64 + 8).next_multiple_of(16).max(32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_repeated_key_the_last_edit_counts_that_is_not_to_keep() {
        let keys: [&[u8]; 5] = [b"b", b"a", b"b", b"a", b"c"];
        let edits = vec![
            Edit::put(b"1"),
            Edit::put(b"2"),
            Edit::Keep,
            Edit::Remove,
            Edit::Keep,
        ];
        let found = changes(&keys, edits).unwrap();
        assert_eq!(found.len(), 2);
        assert!(matches!(found[0], (3, Change::Remove)));
        assert!(
            matches!(&found[1], (0, Change::Put(key, value)) if **key == *b"b" && **value == *b"1")
        );
    }

    #[test]
    fn copies_within_copies_keep_their_bytes() {
        let outer = Copied::of(b"outer").unwrap();
        let inner = Copied::of(b"inner").unwrap();
        assert_eq!((&*outer, &*inner), (&b"outer"[..], &b"inner"[..]));
        drop(outer);
        let next = Copied::of(b"x").unwrap();
        assert_eq!((&*next, &*inner), (&b"x"[..], &b"inner"[..]));
    }
}
