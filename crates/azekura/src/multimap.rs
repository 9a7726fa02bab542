//! One key, many values: a multimap over any engine whose keys are in an order of pairs. What an index of records by another field needs.
//!
//! ```text
//!   (key, value)  --order::pair-->  the key of a record without a value, in an order of pairs
//! ```
//! 1. A value stands once under a key. Values of a key are neighbours, in the order of their bytes; keys are in the first half's order.
//! 2. Each change is one update of the store: isolated, and as durable as the store's updates are.
//! 3. Reading many values is a scan of the store: what was there all along is shown, once; it is not of one moment.
//! 4. Key and value together have the length of the store's keys at most, less the few bytes that state where the value begins.
//!
//! It does not know where the records are.

use std::ops::ControlFlow;

use crate::engine::{Edit, Engine, Ordered, Visit};
use crate::error::{Error, Kind, Result};
use crate::order::{Base, Order, halves, pair};
use crate::room;

/// See the module's text.
#[derive(Debug)]
pub struct Multimap<E> {
    store: E,
}

impl<E: Engine + Ordered> Multimap<E> {
    /// A multimap in this store, which may hold pairs already. `Invalid` if its order is none of pairs.
    pub fn over(store: E) -> Result<Self> {
        let name = store.order_name();
        if matches!(Order::from_name(name), Some(Order::Pair(_))) {
            return Ok(Self { store });
        }
        Err(
            Error::new(Kind::Invalid, "the store does not order its keys as pairs")
                .found(name, Order::Pair(Base::Lexical).name())
                .remedy("make the store with one of the orders of pairs"),
        )
    }

    /// The store.
    pub fn store(&self) -> &E {
        &self.store
    }

    /// The store, to be closed.
    pub fn into_store(self) -> E {
        self.store
    }

    /// Adds a value to those of `key`; whether it was not there. Errors as the store's update has them.
    pub fn add(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut is_new = false;
        self.store.update(&pair(key, value), &mut |present| {
            is_new = present.is_none();
            if is_new { Edit::put(b"") } else { Edit::Keep }
        })?;
        Ok(is_new)
    }

    /// Takes a value from those of `key`; whether it was there. Errors as the store's update has them.
    pub fn remove(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut was_there = false;
        self.store.update(&pair(key, value), &mut |present| {
            was_there = present.is_some();
            Edit::Remove
        })?;
        Ok(was_there)
    }

    /// Whether `key` has this value. Costs a read of the store.
    pub fn contains(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut is_there = false;
        self.store
            .read(&pair(key, value), &mut |found| is_there = found.is_some())?;
        Ok(is_there)
    }

    /// The first `max` values of `key`, in the order of their bytes. Costs a search, and a step for each.
    pub fn values(&self, key: &[u8], max: usize) -> Result<Vec<Vec<u8>>> {
        let mut values = Vec::new();
        let mut taken = Ok(());
        if max == 0 {
            return Ok(values);
        }
        self.each_value(key, &mut |value| {
            taken = room::copy(value).and_then(|value| {
                room::more(&mut values, 1)?;
                values.push(value);
                Ok(())
            });
            if taken.is_err() || values.len() == max {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        taken.map(|()| values)
    }

    /// Shows the values of `key`, in the order of their bytes, until `visit` breaks off.
    pub fn each_value(
        &self,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.each_pair(Some((key, b"")), &mut |own, value| {
            if own == key {
                visit(value)
            } else {
                ControlFlow::Break(())
            }
        })
    }

    /// Shows all pairs in order, from the first one that is not less than `from`, until `visit` breaks off.
    pub fn each_pair(&self, from: Option<(&[u8], &[u8])>, visit: &mut Visit<'_>) -> Result<()> {
        let from = from.map(|(key, value)| self.store.bookmark_at(&pair(key, value)));
        let mut show = |record: &[u8], _: &[u8]| {
            let (key, value) = halves(record);
            visit(key, value)
        };
        self.store.scan(from.as_ref(), &mut show).map(drop)
    }

    /// How many pairs there are.
    pub fn count(&self) -> u64 {
        self.store.count()
    }
}
