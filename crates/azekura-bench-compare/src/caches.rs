//! Caches over a trace: azekura's, the exact LRU, and those a user of Rust would take.
//!
//! All get the same keys and 8-byte values, the same capacity in records, and the hash that azekura uses. A rival that
//! does its work later is given time to: the trace is one thread's, and what is pending is run every 256 puts.

use azekura::error::Result;
use azekura_bench::cache::{CachePlan, cache_over, run};
#[cfg(any(feature = "moka", feature = "quick_cache"))]
use azekura_bench::cache::{Cached, VALUE};
use azekura_bench::report::Output;
#[cfg(any(feature = "moka", feature = "quick_cache"))]
use rapidhash::fast::RandomState;

#[cfg(any(feature = "moka", feature = "quick_cache"))]
type Bytes = Box<[u8]>;

/// moka's cache for threads.
#[cfg(feature = "moka")]
struct Moka {
    cache: moka::sync::Cache<Bytes, Bytes, RandomState>,
    puts: std::cell::Cell<u64>,
}

#[cfg(feature = "moka")]
impl Cached for Moka {
    fn get(&self, key: &[u8]) -> Result<bool> {
        Ok(self.cache.get(key).is_some())
    }
    fn put(&self, key: &[u8]) -> Result<()> {
        self.cache.insert(key.into(), VALUE[..].into());
        self.puts.set(self.puts.get() + 1);
        if self.puts.get().is_multiple_of(256) {
            self.cache.run_pending_tasks();
        }
        Ok(())
    }
    fn finish_pending(&self) {
        self.cache.run_pending_tasks();
    }
}

/// `quick_cache`'s cache for threads.
#[cfg(feature = "quick_cache")]
struct Quick(quick_cache::sync::Cache<Bytes, Bytes, quick_cache::UnitWeighter, RandomState>);

#[cfg(feature = "quick_cache")]
impl Cached for Quick {
    fn get(&self, key: &[u8]) -> Result<bool> {
        Ok(self.0.get(key).is_some())
    }
    fn put(&self, key: &[u8]) -> Result<()> {
        self.0.insert(key.into(), VALUE[..].into());
        Ok(())
    }
}

/// Runs the trace over azekura's cache, the exact LRU and all rivals.
pub(crate) fn cache(plan: &CachePlan) -> Result<()> {
    let keys = plan.keys()?;
    let mut output = Output::new(plan.json);
    cache_over(plan, &keys, &mut output)?;
    #[cfg(feature = "moka")]
    {
        let cache = moka::sync::Cache::builder()
            .max_capacity(plan.capacity)
            .build_with_hasher(RandomState::new());
        let moka = Moka {
            cache,
            puts: std::cell::Cell::new(0),
        };
        output.phase(&run("moka", &moka, &keys, plan.capacity)?)?;
    }
    #[cfg(feature = "quick_cache")]
    {
        let cache = quick_cache::sync::Cache::with(
            plan.capacity as usize,
            plan.capacity,
            quick_cache::UnitWeighter,
            RandomState::new(),
            quick_cache::sync::DefaultLifecycle::default(),
        );
        output.phase(&run("quick-cache", &Quick(cache), &keys, plan.capacity)?)?;
    }
    Ok(())
}
