//! The standard library's hash map behind one reader-writer lock: the obvious engine.
//!
//! It is the yardstick of correctness, since its digests are the ones a real engine must produce,
//! and a floor for speed. Memory only: it stays open between the phases of a run.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use azekura::engine::Durability;
use azekura::error::Result;

use crate::mixed::{Chore, Store};
use crate::target::{Setup, Target};

type Map = HashMap<Box<[u8]>, Vec<u8>>;

/// A hash map and its lock.
#[derive(Debug, Default)]
pub struct StdHash(RwLock<Map>);

impl StdHash {
    #[inline]
    fn shared(&self) -> RwLockReadGuard<'_, Map> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
    #[inline]
    fn exclusive(&self) -> RwLockWriteGuard<'_, Map> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for StdHash {
    const NAME: &'static str = "std-hash";
    const PERSISTENT: bool = false;
    type Position<'t> = ();

    fn open(setup: &Setup) -> Result<Self> {
        Ok(Self(RwLock::new(Map::with_capacity(
            setup.records as usize,
        ))))
    }
    fn close(self) -> Result<()> {
        Ok(())
    }
    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut map = self.exclusive();
        if let Some(present) = map.get_mut(key) {
            present.clear();
            present.extend_from_slice(value);
        } else {
            map.insert(key.into(), value.to_vec());
        }
        Ok(())
    }
    #[inline]
    fn has(&self, key: &[u8]) -> Result<bool> {
        Ok(self.shared().contains_key(key))
    }
    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let map = self.shared();
        let found = map.get(key);
        if let Some(found) = found {
            value.clear();
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> Result<bool> {
        Ok(self.exclusive().remove(key).is_some())
    }
    fn position(&self) -> Result<()> {
        Ok(())
    }
    #[inline]
    fn jump(&self, (): &mut (), key: &[u8], visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        if let Some(value) = self.shared().get(key) {
            visit(key, value);
        }
        Ok(())
    }
    fn sync(&self, _: Durability) -> Result<()> {
        Ok(())
    }
}

impl Store for StdHash {
    fn append(&self, key: &[u8], suffix: &[u8]) -> Result<()> {
        self.exclusive()
            .entry(key.into())
            .or_default()
            .extend_from_slice(suffix);
        Ok(())
    }
    fn exchange(&self, key: &[u8], expected: Option<&[u8]>, desired: &[u8]) -> Result<bool> {
        let mut map = self.exclusive();
        let equal = map.get(key).map(Vec::as_slice) == expected;
        if equal {
            map.insert(key.into(), desired.to_vec());
        }
        Ok(equal)
    }
    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.shared()
            .iter()
            .for_each(|(key, value)| visit(key, value));
        Ok(())
    }
    fn count(&self) -> u64 {
        self.shared().len() as u64
    }
    fn clear(&self) -> Result<()> {
        self.exclusive().clear();
        Ok(())
    }
    fn tend(&self, _: Chore) -> Result<()> {
        Ok(())
    }
}
