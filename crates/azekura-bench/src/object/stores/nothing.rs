//! The store that does nothing: what is left of a phase is the cost of the harness.
//!
//! It claims that every object is there and shows none. Its class is `none`, so it is compared with
//! no other store. It keeps nothing.

use std::hint::black_box;

use azekura::error::Result;

use crate::object::store::{Found, Objects, Setup};
use crate::phase::Class;

struct Nothing;

/// Opens it: always, at whatever place and class.
pub fn open(_: &Setup) -> Result<Box<dyn Objects>> {
    Ok(Box::new(Nothing))
}

impl Objects for Nothing {
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>> {
        black_box((id, value));
        Ok(None)
    }
    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        black_box(id);
        Ok(Some(Box::new([])))
    }
    fn remove(&self, id: u128) -> Result<Option<bool>> {
        black_box(id);
        Ok(None)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn durability(&self, _: Class) -> Class {
        Class::None
    }
    fn verifiable(&self) -> bool {
        false
    }
}
