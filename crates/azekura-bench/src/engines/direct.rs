//! azekura's engines as targets: one piece of code for all, compiled once for each.
//!
//! Lookups lend the value in place, batches use the calls that overlap memory accesses, a jump is a scan from a
//! bookmark that is broken off at once. Nothing goes through a table of functions but the closures that the contract
//! itself lends to. What differs from engine to engine is [`Direct`]: the calls that are each engine's own, how it is
//! opened, and what a file needs besides. It does not know which engines there are.

use std::ops::ControlFlow;

use azekura::engine::{Durability, Engine};
use azekura::error::Result;

use crate::target::{Setup, Target, copy_found, no_order};

/// An engine whose own calls can be measured.
pub trait Direct: Engine + Sized {
    /// Its word in results.
    const WORD: &'static str;
    /// Whether its records outlive it.
    const PERSISTENT: bool = false;
    /// As [`Target::ORDERED`].
    const ORDERED: bool = false;

    /// Opens or makes it.
    fn open(setup: &Setup) -> Result<Self>;
    /// The engine's own `put`.
    fn put_directly(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// The engine's own `read_with`.
    fn read_directly<R>(&self, key: &[u8], visit: impl FnOnce(Option<&[u8]>) -> R) -> Result<R>;
    /// The engine's own `remove`.
    fn remove_directly(&self, key: &[u8]) -> Result<bool>;
    /// The engine's own `remove_many`, or the verb.
    fn remove_many_directly(&self, keys: &[&[u8]]) -> Result<u64>;
    /// As [`Target::close`].
    fn close(self) -> Result<()> {
        Ok(())
    }
    /// As [`Target::sync`].
    fn sync(&self, _: Durability) -> Result<()> {
        Ok(())
    }
}

/// The calls of [`Direct`] that every engine has under the same names, but in no trait: a trait's method that takes a
/// closure by its type cannot be called on an engine behind a pointer.
macro_rules! own_calls {
    () => {
        #[inline]
        fn put_directly(&self, key: &[u8], value: &[u8]) -> Result<()> {
            self.put(key, value)
        }
        #[inline]
        fn read_directly<R>(
            &self,
            key: &[u8],
            visit: impl FnOnce(Option<&[u8]>) -> R,
        ) -> Result<R> {
            self.read_with(key, visit)
        }
        #[inline]
        fn remove_directly(&self, key: &[u8]) -> Result<bool> {
            self.remove(key)
        }
        #[inline]
        fn remove_many_directly(&self, keys: &[&[u8]]) -> Result<u64> {
            self.remove_many(keys)
        }
    };
}
pub(super) use own_calls;

/// An open engine.
pub struct Opened<E>(E);

impl<E: Direct> Target for Opened<E> {
    const NAME: &'static str = E::WORD;
    const PERSISTENT: bool = E::PERSISTENT;
    const ORDERED: bool = E::ORDERED;
    type Position<'t>
        = ()
    where
        Self: 't;

    fn open(setup: &Setup) -> Result<Self> {
        E::open(setup).map(Self)
    }
    fn close(self) -> Result<()> {
        self.0.close()
    }
    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put_directly(key, value)
    }
    #[inline]
    fn has(&self, key: &[u8]) -> Result<bool> {
        self.0.read_directly(key, |value| value.is_some())
    }
    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.read_directly(key, |found| copy_found(found, value))
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.0.remove_directly(key)
    }
    #[inline]
    fn set_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        self.0.put_many(records)
    }
    #[inline]
    fn has_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize)) -> Result<()> {
        self.0.read_many(keys, &mut |index, value| {
            if value.is_some() {
                hit(index);
            }
        })
    }
    #[inline]
    fn get_many(&self, keys: &[&[u8]], hit: &mut impl FnMut(usize, &[u8])) -> Result<()> {
        self.0.read_many(keys, &mut |index, value| {
            if let Some(value) = value {
                hit(index, value);
            }
        })
    }
    #[inline]
    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64> {
        self.0.remove_many_directly(keys)
    }
    fn position(&self) -> Result<()> {
        Ok(())
    }
    fn jump(&self, (): &mut (), key: &[u8], visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        let from = self.0.bookmark_at(key);
        self.0.scan(Some(&from), &mut |key, value| {
            visit(key, value);
            ControlFlow::Break(())
        })?;
        Ok(())
    }
    fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
        if !E::ORDERED {
            return no_order();
        }
        self.0.scan(None, &mut |key, value| {
            visit(key, value);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
    fn sync(&self, durability: Durability) -> Result<()> {
        self.0.sync(durability)
    }
    fn records(&self) -> Option<u64> {
        Some(self.0.count())
    }
}
