//! Sorted files that are edited: the store with pending edits, in random configurations, compared with a model and cut at every moment.
//!
//! | module | what happens |
//! |---|---|
//! | here | a store, and the model next to it |
//! | `model` | thousands of edits, merges, reverts and openings, read in every way; the conformance suite |
//! | `cuts` | loss of power and death at each event of edits and merges; a full disk, and calls that fail |
//! | `killed` | a process that is killed while it edits and merges |
//! | `threads` | readers and editors during merges |
//! | `pending` | what is pending is read by others while a store edits and merges |
//! | `refused` | wrong input, files that do not belong together, damage of the pending file |
//! | `defects` | what a rival of the same shape does wrong, by name |

mod cuts;
mod defects;
mod killed;
mod model;
mod pending;
mod refused;
mod threads;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use azekura::engine::{Engine as _, Ordered, Persistent, Reader};
use azekura::io::Directory;
use azekura::io::sim::SimDisk;
use azekura::order::Order;
use azekura::record::skip::{
    EditOptions, PendingEdits, Reducer, ReducingSkipDb, SkipDb, SkipReader,
};
use azekura::{Edit, Result};

use super::{NAME, Records, reduced};

/// Reducers under which edits may be pending.
pub(crate) const REDUCERS: [&str; 7] = [
    "first",
    "concat",
    "concat-nul",
    "concat-tab",
    "concat-newline",
    "total-decimal",
    "total-big-endian",
];

/// A store of either kind.
pub(crate) enum Store {
    Map(SkipDb),
    Reducing(ReducingSkipDb),
}

pub(crate) fn directory(disk: &SimDisk) -> Box<dyn Directory> {
    Box::new(disk.directory())
}

impl Store {
    /// Makes one, of the reducer of this name; `last`: a map.
    pub(crate) fn create(disk: &SimDisk, reducer: &str, options: &EditOptions) -> Result<Self> {
        let (directory, name) = (directory(disk), Path::new(NAME));
        Ok(match Reducer::from_name(reducer) {
            Some(Reducer::Last) => Self::Map(SkipDb::create_in(directory, name, options)?),
            Some(reducer) => Self::Reducing(ReducingSkipDb::create_reducing_in(
                directory, name, reducer, options,
            )?),
            None => panic!("no reducer {reducer}"),
        })
    }

    pub(crate) fn open(disk: &SimDisk, reducer: &str, options: &EditOptions) -> Result<Self> {
        let (directory, name) = (directory(disk), Path::new(NAME));
        Ok(match Reducer::from_name(reducer) {
            Some(Reducer::Last) => Self::Map(SkipDb::open_in(directory, name, options)?),
            Some(reducer) => Self::Reducing(ReducingSkipDb::open_reducing_in(
                directory, name, reducer, options,
            )?),
            None => panic!("no reducer {reducer}"),
        })
    }

    /// Puts or adds.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Self::Map(db) => db.update(key, &mut |_| Edit::put(value)),
            Self::Reducing(db) => db.add(key, value),
        }
    }

    pub(crate) fn remove(&self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Map(db) => {
                let mut was_there = false;
                db.update(key, &mut |value| {
                    was_there = value.is_some();
                    Edit::Remove
                })?;
                Ok(was_there)
            }
            Self::Reducing(db) => db.remove(key),
        }
    }

    pub(crate) fn clear(&self) -> Result<()> {
        match self {
            Self::Map(db) => db.clear(),
            Self::Reducing(db) => db.clear(),
        }
    }

    pub(crate) fn revert(&self) -> Result<()> {
        match self {
            Self::Map(db) => db.revert(),
            Self::Reducing(db) => db.revert(),
        }
    }

    pub(crate) fn merge(&self) -> Result<()> {
        match self {
            Self::Map(db) => db.merge(&mut |done, of| assert!(done <= of)),
            Self::Reducing(db) => db.merge(&mut |done, of| assert!(done <= of)),
        }
    }

    pub(crate) fn base(&self) -> Arc<SkipReader> {
        match self {
            Self::Map(db) => db.base(),
            Self::Reducing(db) => db.base(),
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Self::Map(db) => db.has_pending(),
            Self::Reducing(db) => db.has_pending(),
        }
    }

    /// How many edits are pending, and that others read the same.
    pub(crate) fn pending_edits(&self, disk: &SimDisk) -> u64 {
        let edits = match self {
            Self::Map(db) => db.pending_edits(),
            Self::Reducing(db) => db.pending_edits(),
        };
        let read = PendingEdits::of_in(&disk.directory(), Path::new(NAME)).unwrap();
        let read = read.unwrap();
        assert_eq!((read.edits, read.count), (edits, self.reader().count()));
        assert_eq!(self.has_pending(), edits > 0);
        edits
    }

    pub(crate) fn close(self) -> Result<()> {
        match self {
            Self::Map(db) => db.close(),
            Self::Reducing(db) => db.close(),
        }
    }

    pub(crate) fn reader(&self) -> &dyn Reader {
        match self {
            Self::Map(db) => db,
            Self::Reducing(db) => db,
        }
    }

    pub(crate) fn ordered(&self) -> &dyn Ordered {
        self.reader().as_ordered().unwrap()
    }

    pub(crate) fn persistent(&self) -> &dyn Persistent {
        self.reader().as_persistent().unwrap()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.reader()
            .read(key, &mut |value| found = value.map(<[u8]>::to_vec))?;
        Ok(found)
    }
}

/// All records of a reader, in its order.
pub(crate) fn all(reader: &dyn Reader) -> Result<Records> {
    let mut records = Records::new();
    let end = reader.scan(None, &mut |key, value| {
        records.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    assert!(end.is_none());
    Ok(records)
}

/// The values of a key, in the order in which they were put.
type Values = Vec<Vec<u8>>;

/// What was put under each key since it was last removed, in order: nothing is reduced before it is compared.
#[derive(Clone, Default)]
pub(crate) struct Model {
    values: BTreeMap<Vec<u8>, Values>,
    /// What keys had before each edit since the last merge.
    undo: Vec<(Vec<u8>, Option<Values>)>,
}

impl Model {
    pub(crate) fn put(&mut self, reducer: &str, key: &[u8], value: &[u8]) {
        let before = self.values.get(key).cloned();
        self.undo.push((key.to_vec(), before));
        let values = self.values.entry(key.to_vec()).or_default();
        if reducer == "last" {
            values.clear();
        }
        values.push(value.to_vec());
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let before = self.values.remove(key);
        let was_there = before.is_some();
        self.undo.push((key.to_vec(), before));
        was_there
    }

    pub(crate) fn clear(&mut self) {
        let keys: Vec<_> = self.values.keys().cloned().collect();
        for key in keys {
            self.remove(&key);
        }
    }

    /// All edits but the last so many are merged.
    pub(crate) fn merged_but(&mut self, last: usize) {
        let merged = self.undo.len() - last;
        self.undo.drain(..merged);
    }

    pub(crate) fn revert(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(values) => self.values.insert(key, values),
                None => self.values.remove(&key),
            };
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.undo.len()
    }

    pub(crate) fn get(&self, reducer: &str, key: &[u8]) -> Option<Vec<u8>> {
        let values = self.values.get(key)?;
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        reduced(reducer, &values).pop()
    }

    pub(crate) fn records(&self, reducer: &str, order: Order) -> Records {
        let keys = self.values.keys();
        let mut records: Records = keys
            .filter_map(|key| Some((key.clone(), self.get(reducer, key)?)))
            .collect();
        records.sort_by(|(a, _), (b, _)| order.compare(a, b));
        records
    }
}
