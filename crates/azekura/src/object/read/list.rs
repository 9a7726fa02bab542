//! Lists: the objects of a range of ids, in their order, and totals of them.
//!
//! A list takes the entries of one leaf of the index at a time, so it holds at most 1024 of them, and no lock between two calls of
//! `next`: a change that is made meanwhile is listed or not. It does no access, except for leaves that are not loaded.
//!
//! | where | the list | then it |
//! |---|---|---|
//! | a leaf is damaged, or cannot be read | gives the error | continues after the leaf |
//! | an object is in doubt, or absence is (`recover::degraded`) | gives one error before the first such object | continues, with objects as last known |
//! | there is no memory | gives the error | ends |
//!
//! So a caller that stops at an error has listed only what is certain. It reads no values.

use std::iter::Peekable;
use std::ops::RangeBounds;

use crate::error::{Error, Kind, Result};
use crate::object::id::{ObjectId, ids_of};
use crate::object::index::{Entry, Index};
use crate::object::{Core, Store};

/// An object in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: ObjectId,
    /// Bytes of its value.
    pub len: u64,
    /// Bytes it takes on the device; for a small one, in the journal or in a packed extent.
    pub device_bytes: u64,
}

/// Totals of a range of ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects.
    pub count: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Bytes of their extents on the device.
    pub device_bytes: u64,
}

/// The objects of a range of ids, in the order of ids. See [`Store::list`].
#[must_use = "an iterator does nothing until it is used"]
pub struct List<'s> {
    entries: Peekable<Entries<'s>>,
    /// The error of objects in doubt, and the id from which it counts, until it is given.
    doubt: Option<(ObjectId, Error)>,
}

/// Index entries of a range of ids. After a leaf that is damaged or cannot be read it continues with the next one; any other error
/// ends it.
pub(crate) struct Entries<'c> {
    index: &'c Index,
    leaf: std::vec::IntoIter<(ObjectId, Entry)>,
    next: Option<ObjectId>,
    last: ObjectId,
}

impl Store {
    /// The objects of a range of ids, in the order of ids; `..` is all of them. Memory for at most 1024; no access, once the index is
    /// in memory. An object that is changed meanwhile is listed or not.
    ///
    /// `Corrupted` or `Io` where a part of the index is damaged, and `Corrupted` before the first object that is in doubt, or whose
    /// absence is: the list continues after each, with what is known.
    ///
    /// ```
    /// use azekura::object::{CreateOptions, ObjectId, Store};
    ///
    /// # fn main() -> azekura::Result<()> {
    /// # let memory = azekura::io::memory::Memory::from_bytes(&vec![0; 16 << 20], 16 << 20)?;
    /// # let store = Store::create_on(memory, None, &CreateOptions::default(), &mut |_, _| ())?;
    /// store.put(ObjectId(7), b"a cat")?;
    /// store.put(ObjectId(9), b"a cow")?;
    /// for object in store.list(ObjectId(7)..ObjectId(9)) {
    ///     let object = object?;
    ///     assert_eq!((object.id, object.len), (ObjectId(7), 5));
    /// }
    /// assert_eq!(store.list(..).count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self, range: impl RangeBounds<ObjectId>) -> List<'_> {
        List {
            doubt: self.core.doubt_within(&range),
            entries: self.core.entries(range).peekable(),
        }
    }

    /// Totals of the objects of a range of ids. No access. The first error of [`list`](Self::list) is its error.
    pub fn usage(&self, range: impl RangeBounds<ObjectId>) -> Result<Usage> {
        self.list(range).collect()
    }
}

impl Core {
    /// The entries of a range.
    pub(crate) fn entries(&self, range: impl RangeBounds<ObjectId>) -> Entries<'_> {
        let ids = ids_of(&range);
        Entries {
            index: &self.index,
            leaf: Vec::new().into_iter(),
            next: ids.as_ref().map(|ids| *ids.start()),
            last: ids.map_or(ObjectId(0), |ids| *ids.end()),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<(ObjectId, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((id, entry)) = self.leaf.next() {
                return (id <= self.last).then_some(Ok((id, entry)));
            }
            let from = self.next.take().filter(|from| *from <= self.last)?;
            match self.index.page(from) {
                Ok(page) => {
                    self.leaf = page.entries.into_iter();
                    self.next = page.next;
                }
                Err(error) => {
                    if [Kind::Corrupted, Kind::Io].contains(&error.kind()) {
                        self.next = self.index.after(from);
                    }
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Iterator for List<'_> {
    type Item = Result<Listed>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_certain = match (self.entries.peek(), &self.doubt) {
            (_, None) | (Some(Err(_)), _) => true,
            (Some(Ok((id, _))), Some((from, _))) => id < from,
            (None, Some(_)) => false,
        };
        if !is_certain {
            return self.doubt.take().map(|(_, error)| Err(error));
        }
        let next = self.entries.next()?;
        Some(next.map(|(id, entry)| Listed::of(id, entry)))
    }
}

impl std::iter::FusedIterator for List<'_> {}

impl std::fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("List").finish_non_exhaustive()
    }
}

impl Listed {
    pub(crate) fn of(id: ObjectId, entry: Entry) -> Self {
        Self {
            id,
            len: u64::from(entry.len),
            device_bytes: entry.device_bytes(),
        }
    }
}

impl FromIterator<Listed> for Usage {
    fn from_iter<I: IntoIterator<Item = Listed>>(objects: I) -> Self {
        let mut usage = Self::default();
        for listed in objects {
            usage.count += 1;
            usage.bytes += listed.len;
            usage.device_bytes += listed.device_bytes;
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::error::refusal;
    use crate::io::Storage;
    use crate::object::checkpoint::tests::{leaves, without_small_objects};
    use crate::testkit::{Random, round_seed};

    #[test]
    fn a_list_has_the_objects_of_its_range_in_order_while_others_come_and_go() {
        let (_, _, store) = without_small_objects(4 << 20);
        let mut random = Random::new(round_seed());
        let mut held = BTreeSet::new();
        for _ in 0..400 {
            let id = ObjectId(u128::from(random.below(1000)));
            store.put(id, b"value").unwrap();
            held.insert(id);
        }
        for _ in 0..20 {
            let from = ObjectId(u128::from(random.below(1000)));
            let to = ObjectId(from.0 + u128::from(random.below(300)));
            let mut listed = Vec::new();
            for object in store.list(from..=to) {
                let id = object.unwrap().id;
                listed.push(id);
                assert!(store.remove(id).unwrap());
                let beyond = ObjectId(id.0 + (1 << 80));
                store.put(beyond, b"other").unwrap();
                store.remove(beyond).unwrap();
            }
            assert!(listed.iter().eq(held.range(from..=to)));
            assert_eq!(store.list(from..=to).count(), 0);
            for id in listed {
                store.put(id, b"again").unwrap();
            }
            let all = store.list(..).map(|object| object.unwrap().id);
            assert!(all.eq(held.iter().copied()));
        }
    }

    #[test]
    fn the_error_of_objects_in_doubt_comes_before_the_first_of_them() {
        let (_, _, store) = without_small_objects(4 << 20);
        for n in 0..6 {
            store.put(ObjectId(n), b"value").unwrap();
        }
        for from in 0..8 {
            let error = Error::new(Kind::Corrupted, "objects are in doubt");
            let list = List {
                entries: store.core.entries(..).peekable(),
                doubt: Some((ObjectId(from as u128), error)),
            };
            let is_error: Vec<bool> = list.map(|object| object.is_err()).collect();
            assert_eq!(is_error.len(), 7);
            assert!(is_error[from.min(6)]);
        }
    }

    #[test]
    fn a_damaged_leaf_is_an_error_in_its_place_and_the_list_continues() {
        let (options, memory, store) = without_small_objects(4 << 20);
        for n in 0..200 {
            store.put(ObjectId(n), b"value").unwrap();
        }
        store.close().unwrap();
        let storage = Arc::clone(&memory) as Arc<dyn Storage>;
        let leaves = leaves(storage.as_ref());
        let [(from, at), (to, _)] = leaves[1..3] else {
            panic!("{} leaves", leaves.len());
        };
        storage.write_at(at, &[0x5a; 24]).unwrap();
        let store = Store::open_on(storage, None, &options.opening).unwrap();
        let listed: Vec<_> = store.list(..).collect();
        let at = listed.iter().position(Result::is_err).unwrap();
        refusal(listed[at].as_ref(), Kind::Corrupted);
        let known = listed.iter().flatten().map(|object| object.id);
        let left = (0..200).map(ObjectId).filter(|id| *id < from || *id >= to);
        assert!(known.eq(left));
        assert_eq!(at as u128, from.0);
        assert_eq!(store.usage(..from).unwrap().count, at as u64);
        refusal(store.usage(..), Kind::Corrupted);
    }
}
