//! The hash file of azekura, through its inherent calls.
//!
//! Lookups lend the value in place (`read_with`), batches use the calls that overlap memory
//! accesses, iteration goes from a bookmark. Options are the defaults; durability is the plan's.

use std::ops::ControlFlow;

use azekura::engine::{Durability, Edit, Engine as _, Persistent as _, Reader as _};
use azekura::error::{Error, Kind, Result};
use azekura::record::hash::{HashDb, HashReader, Options};

use crate::mixed::{Chore, Store};
use crate::target::{Setup, Target};

/// An open hash file.
pub struct Hash(HashDb);

impl Target for Hash {
    const NAME: &'static str = "hash";
    const PERSISTENT: bool = true;
    type Position<'t> = ();

    fn open(setup: &Setup) -> Result<Self> {
        let options = Options {
            durability: setup.durability,
            ..Options::default()
        };
        let path = setup.require_path()?;
        let open = if setup.create {
            HashDb::create
        } else {
            HashDb::open
        };
        open(path, &options).map(Self)
    }
    fn close(self) -> Result<()> {
        self.0.close()
    }
    #[inline]
    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }
    #[inline]
    fn has(&self, key: &[u8]) -> Result<bool> {
        self.0.read_with(key, |value| value.is_some())
    }
    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.read_with(key, |found| {
            if let Some(found) = found {
                value.clear();
                value.extend_from_slice(found);
            }
            found.is_some()
        })
    }
    #[inline]
    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.0.remove(key)
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
        self.0.remove_many(keys)
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
    fn sync(&self, durability: Durability) -> Result<()> {
        self.0.sync(durability)
    }
    fn records(&self) -> Option<u64> {
        Some(self.0.count())
    }
}

impl Store for Hash {
    fn append(&self, key: &[u8], suffix: &[u8]) -> Result<()> {
        self.0.update(key, &mut |present| {
            let mut value = present.unwrap_or_default().to_vec();
            value.extend_from_slice(suffix);
            Edit::Put(value.into())
        })
    }
    fn exchange(&self, key: &[u8], expected: Option<&[u8]>, desired: &[u8]) -> Result<bool> {
        let mut equal = false;
        self.0.update(key, &mut |present| {
            equal = present == expected;
            if equal {
                Edit::put(desired)
            } else {
                Edit::Keep
            }
        })?;
        Ok(equal)
    }
    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.0.scan(None, &mut |key, value| {
            visit(key, value);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
    fn count(&self) -> u64 {
        self.0.count()
    }
    fn clear(&self) -> Result<()> {
        self.0.clear()
    }
    fn tend(&self, chore: Chore) -> Result<()> {
        let path = self.0.path();
        match chore {
            Chore::Sync => self.0.sync(Durability::Power),
            Chore::Checkpoint => self.0.checkpoint(),
            Chore::Compact => self.0.compact(&mut |_, _| ()),
            Chore::Copy => {
                let target = path.with_extension("copy");
                self.0.copy_to(&target, &mut |_, _| ())?;
                let report = HashReader::open(&target)?.check(&mut |_, _| ())?;
                if let Some(first) = report.damage.first() {
                    // The copy stays, to be looked at.
                    let more = report.damage.len() - 1;
                    return Err(Error::new(Kind::Corrupted, "a hot copy is damaged")
                        .at(target)
                        .detail(format!("{first}; and {more} more")));
                }
                std::fs::remove_file(&target)
                    .map_err(|e| Error::io("cannot remove the copy", e).at(&target))
            }
        }
    }
}
