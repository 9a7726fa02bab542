//! Maps in memory that a user of Rust would take: concurrent ones, and the standard library's behind a lock.
//!
//! Keys and values are boxed byte strings. All grow by themselves, as azekura's engines do, and are otherwise
//! as their constructors make them, but for the hash: all of them get the one that azekura uses, which is much
//! faster than their defaults. A get lends the value in place, under whatever guard the map has. They have no
//! batched calls, so batches are single calls; and a jump is a lookup but in the ordered one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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

fn read<M>(map: &RwLock<M>) -> RwLockReadGuard<'_, M> {
    map.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<M>(map: &RwLock<M>) -> RwLockWriteGuard<'_, M> {
    map.write().unwrap_or_else(PoisonError::into_inner)
}

/// A map for each: its type and word, and its calls.
macro_rules! maps {
    ($this:ident, $key:ident, $value:ident, $visit:ident: $(
        $(#[$of:meta])* $name:ident($map:ty), $word:literal,
        put $put:expr, with $with:expr, remove $remove:expr, len $len:expr;
    )*) => {$(
        $(#[$of])*
        #[derive(Default)]
        pub(crate) struct $name($map);

        $(#[$of])*
        impl Map for $name {
            const NAME: &'static str = $word;

            #[inline]
            fn put(&$this, $key: &[u8], $value: &[u8]) {
                $put;
            }
            #[inline]
            fn with<R>(&$this, $key: &[u8], $visit: impl FnOnce(Option<&[u8]>) -> R) -> R {
                $with
            }
            #[inline]
            fn remove(&$this, $key: &[u8]) -> bool {
                $remove.is_some()
            }
            fn len(&$this) -> usize {
                $len
            }
        }
    )*};
}
maps! { self, key, value, visit:
    /// The standard library's hash map behind its reader-writer lock.
    Std(RwLock<HashMap<Bytes, Bytes, RandomState>>), "std",
        put write(&self.0).insert(key.into(), value.into()),
        with visit(read(&self.0).get(key).map(|value| &**value)),
        remove write(&self.0).remove(key),
        len read(&self.0).len();
    /// The standard library's ordered map under such a lock.
    StdBtree(RwLock<BTreeMap<Bytes, Bytes>>), "std-btree",
        put write(&self.0).insert(key.into(), value.into()),
        with visit(read(&self.0).get(key).map(|value| &**value)),
        remove write(&self.0).remove(key),
        len read(&self.0).len();
    /// `DashMap`: hash tables behind sharded locks.
    #[cfg(feature = "dashmap")]
    Dash(dashmap::DashMap<Bytes, Bytes, RandomState>), "dashmap",
        put self.0.insert(key.into(), value.into()),
        with visit(self.0.get(key).as_ref().map(|entry| &**entry.value())),
        remove self.0.remove(key),
        len self.0.len();
    /// papaya: a hash table without locks, read without waiting.
    #[cfg(feature = "papaya")]
    Papaya(papaya::HashMap<Bytes, Bytes, RandomState>), "papaya",
        put self.0.pin().insert(key.into(), value.into()),
        with visit(self.0.pin().get(key).map(|value| &**value)),
        remove self.0.pin().remove(key),
        len self.0.len();
    /// scc: a hash table of buckets with locks of their own.
    #[cfg(feature = "scc")]
    Scc(scc::HashMap<Bytes, Bytes, RandomState>), "scc",
        put self.0.upsert_sync(key.into(), value.into()),
        with {
            let mut visit = Some(visit);
            let mut lend = |value: Option<&[u8]>| visit.take().map(|visit| visit(value));
            let found = self.0.read_sync(key, |_, value| lend(Some(&**value)));
            let found = found.unwrap_or_else(|| lend(None));
            found.expect("a value, or its absence, is lent once")
        },
        remove self.0.remove_sync(key),
        len self.0.len();
}
