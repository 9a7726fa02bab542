//! The calls on a store of large values that are measured.
//!
//! A store is called through `dyn Objects`, since a call takes a microsecond at least and most take a
//! device's time. A figure is worth nothing without the [`Class`] it was reached in: classes are printed
//! with every row, and rows of different classes are not compared. Rivals implement the trait in the crate
//! of the comparison. It does not know workloads or clocks.

use std::io::Read;
use std::path::PathBuf;

use azekura::error::{Error, Kind, Result};

use crate::measure::Counters;
use crate::phase::Class;
use crate::words::{required, word};

/// How a store is opened for a phase.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the store is, for stores that have a place.
    pub path: Option<PathBuf>,
    /// Whether it is to be made new; otherwise it must exist.
    pub create: bool,
    /// What an acknowledged change has to survive.
    pub class: Class,
    /// Bytes it is made for, values and all it needs in addition.
    pub capacity: u64,
    /// Whether all of its file is to be written when it is made, where the store can.
    pub fill: bool,
    /// Objects it is made for, for stores that are laid out by it.
    pub objects: u64,
    /// Bytes of a value, for the same.
    pub value_size: u64,
}

impl Setup {
    /// The path, for stores that need one.
    pub fn require_path(&self) -> Result<&PathBuf> {
        required(self.path.as_ref())
    }

    /// The class, if it is one of those the store has; otherwise an error that names them.
    pub fn require_class(&self, store: &str, offered: &[Class]) -> Result<Class> {
        if offered.contains(&self.class) {
            return Ok(self.class);
        }
        let words: Vec<String> = offered.iter().map(word).collect();
        let what = format!("{store} does not offer durability {}", self.class);
        Err(Error::new(Kind::Invalid, what).remedy(format!("--durability {}", words.join(" or "))))
    }
}

/// A value that was read.
pub type Found<'s> = Box<dyn AsRef<[u8]> + 's>;

/// Memory of a store, in which a value is made that is put without a copy.
pub trait Draft {
    /// Makes the value in it.
    fn fill(&mut self, from: &mut dyn Read) -> Result<()>;

    /// As [`Objects::put`].
    fn put(self: Box<Self>, id: u128) -> Result<Option<bool>>;
}

/// One open store of large values. Methods are called by many threads at once.
pub trait Objects: Send + Sync {
    /// Stores `value` under `id`, replacing what is there: whether something was; `None` if the store does
    /// not report it.
    fn put(&self, id: u128, value: &[u8]) -> Result<Option<bool>>;

    /// Memory for a value of `len` bytes, if the store has a call for it.
    fn draft(&self, _len: u64) -> Result<Option<Box<dyn Draft + '_>>> {
        Ok(None)
    }

    /// Reads the value of `id`, if it is there, and hands it over in whatever memory the store has it in.
    fn get(&self, id: u128) -> Result<Option<Found<'_>>>;

    /// Removes `id`: whether it was there; `None` if the store does not report it.
    fn remove(&self, id: u128) -> Result<Option<bool>>;

    /// Brings everything acknowledged to the device.
    fn sync(&self) -> Result<()>;

    /// What an acknowledged change survives: the class that it was opened for, or nothing.
    fn durability(&self, class: Class) -> Class {
        class
    }

    /// Whether a get hands over the value that was put, so that it can be compared.
    fn verifiable(&self) -> bool {
        true
    }

    /// Closes it. Dropping it does the same, but reports no error.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    /// What it counted since it was opened.
    fn counters(&self) -> Option<Counters> {
        None
    }
}

/// How a kind of store is made or opened.
pub type Open = fn(&Setup) -> Result<Box<dyn Objects>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_is_not_offered_is_refused_with_those_that_are() {
        let setup = Setup {
            path: None,
            create: true,
            class: Class::Buffered,
            capacity: 0,
            fill: false,
            objects: 0,
            value_size: 0,
        };
        let offered = [Class::Process, Class::Power];
        let error = setup.require_class("files", &offered).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid: files does not offer durability buffered; --durability process or power"
        );
        assert_eq!(
            setup.require_class("x", &[Class::Buffered]).unwrap(),
            Class::Buffered
        );
        assert_eq!(setup.require_path().unwrap_err().kind(), Kind::Invalid);
    }
}
