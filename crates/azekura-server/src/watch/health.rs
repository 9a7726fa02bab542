//! Whether the server should get requests, and if not, why.
//!
//! It should not once it was told to end, once its file is poisoned, and while its store is full. Full it is from the
//! first write that found no room until a second in which records were stored and none was refused. It asks for nothing
//! from the engine but what failed anyway.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::error::Kind;

use crate::memcached::Service;
use crate::net::Control;

/// What is known of a server's health.
#[derive(Debug, Default)]
pub(crate) struct Health {
    is_full: AtomicBool,
    /// Writes refused for want of room, failures of the system, and records stored, when it was last looked.
    refused: AtomicU64,
    failed: AtomicU64,
    stored: AtomicU64,
}

/// Why a server should not get requests: a word, and more about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) word: &'static str,
    pub(super) more: String,
}

impl Health {
    /// Looks at what happened since the last look; to be called about once a second.
    pub(super) fn look(&self, service: &Service) {
        let trouble = service.trouble();
        let since =
            |seen: &AtomicU64, now: u64| now.wrapping_sub(seen.swap(now, Ordering::Relaxed));
        let refused = since(&self.refused, trouble.count(Kind::Full));
        let failed = since(&self.failed, trouble.count(Kind::Io));
        let stored = service.stats().figure("total_items").unwrap_or(0);
        let stored = since(&self.stored, stored);
        if refused > 0 {
            self.is_full.store(true, Ordering::Relaxed);
        } else if stored > 0 {
            self.is_full.store(false, Ordering::Relaxed);
        }
        if failed > 0 {
            // If that failure poisoned the file, this says so, and is counted.
            let _ = service.sync();
        }
    }

    /// Whether requests should come.
    pub(super) fn verdict(&self, service: &Service, control: &Control) -> Result<(), Unfit> {
        let unfit = |word, more: String| Err(Unfit { word, more });
        let trouble = service.trouble();
        if control.is_stopping() {
            return unfit("draining", "the server was told to end".into());
        }
        if trouble.count(Kind::Poisoned) > 0 {
            return unfit("poisoned", trouble.last().unwrap_or_default());
        }
        let refused = trouble.count(Kind::Full) != self.refused.load(Ordering::Relaxed);
        if refused || self.is_full.load(Ordering::Relaxed) {
            return unfit("full", "writes find no room".into());
        }
        Ok(())
    }
}
