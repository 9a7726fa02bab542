//! Engines with one deliberate bug each, to prove that what verifies them sees it.
//!
//! A right engine in memory, whose sets go through the bug; all else is passed on as it is. For tests only. It
//! does not know how it is verified.

use azekura::engine::Durability;
use azekura::error::Result;

use super::memory::StdHash;
use crate::target::{Setup, Target};

/// What goes wrong with a set.
pub(crate) trait Bug: Default + Sync {
    const WORD: &'static str;
    fn set(&self, engine: &StdHash, key: &[u8], value: &[u8]) -> Result<()>;
}

/// A right engine but for a bug.
pub(crate) struct Faulty<B>(StdHash, B);

impl<B: Bug> Target for Faulty<B> {
    const NAME: &'static str = B::WORD;
    const PERSISTENT: bool = false;
    type Position<'t>
        = ()
    where
        Self: 't;

    fn open(setup: &Setup) -> Result<Self> {
        Ok(Self(StdHash::open(setup)?, B::default()))
    }
    fn close(self) -> Result<()> {
        Ok(())
    }
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.1.set(&self.0, key, value)
    }
    fn has(&self, key: &[u8]) -> Result<bool> {
        self.0.has(key)
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.get(key, value)
    }
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.0.remove(key)
    }
    fn position(&self) -> Result<()> {
        Ok(())
    }
    fn jump(&self, at: &mut (), key: &[u8], visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.0.jump(at, key, visit)
    }
    fn sync(&self, _: Durability) -> Result<()> {
        Ok(())
    }
}
