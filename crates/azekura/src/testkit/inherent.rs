//! The methods of an engine's own, which users call on the concrete type, as an engine: so that every suite tries them.
//!
//! `get`, `read_with`, `put`, `remove` and `remove_many` of an engine take other paths through its code than `read` and
//! `update`, through which `&dyn Engine` and the verbs go. [`Inherent`] answers the primitives of the contract by these
//! methods. What they cannot do (several records at once) is the engine's own primitive. A change is a read and a write here,
//! so changes take turns; reads do not.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::Random;
use crate::engine::{
    Bookmark, Damaged, DecideMany, Edit, Engine, Ordered, Persistent, Promise, Reader, Stats, Visit,
};
use crate::error::Result;
use crate::record::cache::CacheDb;
use crate::record::hash::HashDb;
use crate::record::memory::baby::BabyDb;
use crate::record::memory::std_hash::StdHashDb;
use crate::record::memory::std_tree::StdTreeDb;
use crate::record::memory::tiny::TinyDb;
use crate::verbs::Verbs;

/// The methods of an engine's own.
pub trait Methods: Engine {
    /// Its `read_with`.
    fn own_read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;
    /// Its `put`.
    fn own_put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Its `remove`.
    fn own_remove(&self, key: &[u8]) -> Result<bool>;

    /// Its `get`, or the verb.
    fn own_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Its `remove_many`, or the verb.
    fn own_remove_many(&self, keys: &[&[u8]]) -> Result<u64>;
}

macro_rules! methods {
    ($($engine:ty),*) => {$(
        impl Methods for $engine {
            fn own_read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
                <$engine>::read_with(self, key, visit)
            }
            fn own_put(&self, key: &[u8], value: &[u8]) -> Result<()> {
                <$engine>::put(self, key, value)
            }
            fn own_remove(&self, key: &[u8]) -> Result<bool> {
                <$engine>::remove(self, key)
            }
            fn own_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
                <$engine>::get(self, key)
            }
            fn own_remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
                <$engine>::remove_many(self, keys)
            }
        }
    )*};
}
methods!(HashDb, TinyDb, BabyDb, CacheDb, StdHashDb, StdTreeDb);

/// An engine, used by its own methods.
pub struct Inherent<E>(E, Mutex<()>);

impl<E> Inherent<E> {
    /// Uses `engine` so.
    pub fn new(engine: E) -> Self {
        Self(engine, Mutex::default())
    }
}

impl<E: Methods> Reader for Inherent<E> {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.0.own_read(key, visit)
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        self.0.scan_past(from, visit, damaged)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        self.0.bookmark_at(key)
    }

    fn count(&self) -> u64 {
        self.0.count()
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn promise(&self) -> Promise {
        self.0.promise()
    }

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        self.0.as_ordered()
    }

    fn as_persistent(&self) -> Option<&dyn Persistent> {
        self.0.as_persistent()
    }
}

impl<E: Methods> Engine for Inherent<E> {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        let _one = self.1.lock();
        let present = self.0.own_get(key)?;
        match decide(present.as_deref()) {
            Edit::Keep => Ok(()),
            Edit::Put(value) => self.0.own_put(key, &value),
            Edit::Remove => self.0.own_remove(key).map(drop),
        }
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> Result<()> {
        let _one = self.1.lock();
        self.0.update_many(keys, decide)
    }

    fn clear(&self) -> Result<()> {
        let _one = self.1.lock();
        self.0.clear()
    }
}

/// Puts and removes records by their own methods, many at once, present, absent and named twice; compares with a model. How many
/// keys were removed.
///
/// Panics, with the seed, if the engine does not do what the model does.
pub fn removals_of_many(db: &dyn Methods, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut model = BTreeMap::new();
    let mut sum = 0;
    for round in 0..40 {
        for _ in 0..random.below(200) {
            let (key, len) = (random.below(300).to_le_bytes(), random.index(200));
            let value = random.bytes(len);
            db.own_put(&key, &value).expect("a put");
            model.insert(key, value);
        }
        let keys: Vec<[u8; 8]> = (0..random.below(200))
            .map(|_| random.below(400).to_le_bytes())
            .collect();
        let named: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        let removed = keys.iter().filter(|key| model.remove(*key).is_some());
        let removed = removed.count() as u64;
        let found = db.own_remove_many(&named).expect("removals");
        assert_eq!(found, removed, "seed {seed}, round {round}");
        assert_eq!(db.count(), model.len() as u64, "seed {seed}, round {round}");
        for key in 0..400u64 {
            let key = key.to_le_bytes();
            let found = db.own_get(&key).expect("a read");
            assert_eq!(
                found.as_ref(),
                model.get(&key),
                "seed {seed}, round {round}"
            );
        }
        sum += removed;
    }
    sum
}
