//! Maps in memory that a user of Rust would take: concurrent ones, and the standard library's behind a lock.
//!
//! Keys and values are boxed byte strings. All grow by themselves, as azekura's engines do, and are otherwise
//! as their constructors make them, but for the hash: all of them get the one that azekura uses, which is much
//! faster than their defaults. A get lends the value in place, under whatever guard the map has. They have no
//! batched calls, so batches are single calls; and a jump is a lookup but in the ordered one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock};

use azekura::engine::Durability;
use azekura::error::Result;
use azekura_bench::target::{Setup, Target, copy_found};
use rapidhash::fast::RandomState;

type Bytes = Box<[u8]>;

/// What is needed of a map.
pub(crate) trait Map: Default + Sync {
    /// The rival's word.
    const NAME: &'static str;
    /// Stores a record.
    fn put(&self, key: &[u8], value: &[u8]);
    /// Lends a value, or its absence.
    fn with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> R;
    /// Removes a record: whether it was there.
    fn remove(&self, key: &[u8]) -> bool;
    /// How many records there are.
    fn len(&self) -> usize;
}

/// A map as a target.
#[derive(Default)]
pub(crate) struct InMemory<M>(M);

impl<M: Map> Target for InMemory<M> {
    const NAME: &'static str = M::NAME;
    const PERSISTENT: bool = false;
    type Position<'t>
        = ()
    where
        Self: 't;

    fn open(_: &Setup) -> Result<Self> {
        Ok(Self(M::default()))
    }
    fn close(self) -> Result<()> {
        Ok(())
    }
    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value);
        Ok(())
    }
    #[inline]
    fn has(&self, key: &[u8]) -> Result<bool> {
        Ok(self.0.with(key, |value| value.is_some()))
    }
    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.0.with(key, |found| copy_found(found, value)))
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> Result<bool> {
        Ok(self.0.remove(key))
    }
    fn position(&self) -> Result<()> {
        Ok(())
    }
    #[inline]
    fn jump(&self, (): &mut (), key: &[u8], visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.0.with(key, |value| {
            if let Some(value) = value {
                visit(key, value);
            }
        });
        Ok(())
    }
    fn records(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
    fn sync(&self, _: Durability) -> Result<()> {
        Ok(())
    }
}

/// A map of the standard library behind its reader-writer lock.
macro_rules! locked {
    ($name:ident, $map:ty, $word:literal) => {
        #[derive(Default)]
        pub(crate) struct $name(RwLock<$map>);

        impl Map for $name {
            const NAME: &'static str = $word;

            #[inline]
            fn put(&self, key: &[u8], value: &[u8]) {
                let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
                map.insert(key.into(), value.into());
            }
            #[inline]
            fn with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> R {
                let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
                visit(map.get(key).map(|value| &**value))
            }
            #[inline]
            fn remove(&self, key: &[u8]) -> bool {
                let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
                map.remove(key).is_some()
            }
            fn len(&self) -> usize {
                self.0.read().unwrap_or_else(PoisonError::into_inner).len()
            }
        }
    };
}
locked!(Std, HashMap<Bytes, Bytes, RandomState>, "std");
locked!(StdBtree, BTreeMap<Bytes, Bytes>, "std-btree");

/// `DashMap`: hash tables behind sharded locks.
#[cfg(feature = "dashmap")]
#[derive(Default)]
pub(crate) struct Dash(dashmap::DashMap<Bytes, Bytes, RandomState>);

#[cfg(feature = "dashmap")]
impl Map for Dash {
    const NAME: &'static str = "dashmap";

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) {
        self.0.insert(key.into(), value.into());
    }
    #[inline]
    fn with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let found = self.0.get(key);
        visit(found.as_ref().map(|entry| &**entry.value()))
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> bool {
        self.0.remove(key).is_some()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// papaya: a hash table without locks, read without waiting.
#[cfg(feature = "papaya")]
#[derive(Default)]
pub(crate) struct Papaya(papaya::HashMap<Bytes, Bytes, RandomState>);

#[cfg(feature = "papaya")]
impl Map for Papaya {
    const NAME: &'static str = "papaya";

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) {
        self.0.pin().insert(key.into(), value.into());
    }
    #[inline]
    fn with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> R {
        visit(self.0.pin().get(key).map(|value| &**value))
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> bool {
        self.0.pin().remove(key).is_some()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// scc: a hash table of buckets with locks of their own.
#[cfg(feature = "scc")]
#[derive(Default)]
pub(crate) struct Scc(scc::HashMap<Bytes, Bytes, RandomState>);

#[cfg(feature = "scc")]
impl Map for Scc {
    const NAME: &'static str = "scc";

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) {
        self.0.upsert_sync(key.into(), value.into());
    }
    #[inline]
    fn with<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> R {
        let mut visit = Some(visit);
        let found = self
            .0
            .read_sync(key, |_, value| visit.take().map(|visit| visit(Some(value))));
        match (found.flatten(), visit) {
            (Some(answer), _) => answer,
            (None, Some(visit)) => visit(None),
            (None, None) => unreachable!("a record that was found was shown"),
        }
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> bool {
        self.0.remove_sync(key).is_some()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}
