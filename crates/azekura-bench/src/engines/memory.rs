//! The engines of azekura that keep their records in memory, through their inherent calls.
//!
//! All of them are measured by the same lines, compiled once for each. `read_with` is the engine's own. Where it
//! has a `put`, `remove` or `remove_many` of its own, that is called; where it has none, the verb or the trait's
//! method of the same name, of that engine by its type: nothing goes through a table of functions but the
//! closures that the contract itself lends to. They have no file: a store stays open between the
//! phases of a run, and its memory is what a result tells.
//!
//! A new engine is one line at the end, one in `plan.rs`, and its word there.

use std::ops::ControlFlow;

use azekura::engine::{Durability, Edit, Engine, Reader};
use azekura::error::Result;
use azekura::record::cache::CacheDb;
use azekura::record::memory::baby::BabyDb;
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::record::memory::tiny::TinyDb;
use azekura::verbs::Verbs;

use crate::mixed::{Chore, Store};
use crate::target::{Setup, Target};

/// Makes the target `$target` of the engine `$engine`, whose word is `$word`.
macro_rules! in_memory {
    ($target:ident, $engine:ty, $word:literal, $open:expr) => {
        #[doc = concat!("An engine in memory: `", $word, "`.")]
        pub struct $target($engine);

        impl Target for $target {
            const NAME: &'static str = $word;
            const PERSISTENT: bool = false;
            type Position<'t> = ();

            fn open(setup: &Setup) -> Result<Self> {
                let open: fn(&Setup) -> Result<$engine> = $open;
                open(setup).map(Self)
            }
            fn close(self) -> Result<()> {
                Ok(())
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
            fn jump(
                &self,
                (): &mut (),
                key: &[u8],
                visit: &mut impl FnMut(&[u8], &[u8]),
            ) -> Result<()> {
                let from = self.0.bookmark_at(key);
                self.0.scan(Some(&from), &mut |key, value| {
                    visit(key, value);
                    ControlFlow::Break(())
                })?;
                Ok(())
            }
            fn sync(&self, _: Durability) -> Result<()> {
                Ok(())
            }
            fn records(&self) -> Option<u64> {
                Some(self.0.count())
            }
        }

        impl Store for $target {
            fn append(&self, key: &[u8], suffix: &[u8]) -> Result<()> {
                append(&self.0, key, suffix)
            }
            fn exchange(
                &self,
                key: &[u8],
                expected: Option<&[u8]>,
                desired: &[u8],
            ) -> Result<bool> {
                exchange(&self.0, key, expected, desired)
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
            fn tend(&self, _: Chore) -> Result<()> {
                Ok(())
            }
        }
    };
}

fn append(engine: &impl Engine, key: &[u8], suffix: &[u8]) -> Result<()> {
    engine.update(key, &mut |present| {
        let mut value = present.unwrap_or_default().to_vec();
        value.extend_from_slice(suffix);
        Edit::Put(value.into())
    })
}

fn exchange(
    engine: &impl Engine,
    key: &[u8],
    expected: Option<&[u8]>,
    desired: &[u8],
) -> Result<bool> {
    let mut equal = false;
    engine.update(key, &mut |present| {
        equal = present == expected;
        if equal {
            Edit::put(desired)
        } else {
            Edit::Keep
        }
    })?;
    Ok(equal)
}

in_memory!(Tiny, TinyDb, "tiny", |_| TinyDb::new());
in_memory!(Baby, BabyDb, "baby", |_| BabyDb::new());
in_memory!(StdHash, StdHashDb, "std-hash", |_| Ok(StdHashDb::new()));
in_memory!(StdTree, StdTreeDb, "std-tree", |_| Ok(StdTreeDb::new()));
// With room for every record, so that each can be verified.
in_memory!(Cache, CacheDb, "cache", |setup| CacheDb::new(
    setup.records.max(1)
));
