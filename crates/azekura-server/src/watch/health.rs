//! Whether the server should get requests, and if not, why.
//!
//! It should not while it stops, once its file is poisoned, while its file is not at its path, while the file is so damaged
//! that writes are refused, and while its store is full. Other damage is reported, and requests are served. It is full from
//! the first write that failed for lack of space until a second in which records were stored and no write failed, or until
//! five in which none failed: a load balancer sends no writes to a full server, and the first may succeed. It asks nothing of
//! the engine but where the file is.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use azekura::error::Kind;

use crate::memcached::Service;
use crate::net::Control;

/// After so many looks without a refusal the store may have room.
const QUIET: u32 = 5;

/// What is known of a server's health.
#[derive(Debug, Default)]
pub(crate) struct Health {
    is_full: AtomicBool,
    /// Looks since a write was refused for want of room.
    quiet: AtomicU32,
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
        let trouble = service.errors();
        let since =
            |seen: &AtomicU64, now: u64| now.wrapping_sub(seen.swap(now, Ordering::Relaxed));
        let refused = since(&self.refused, trouble.count(Kind::Full));
        let failed = since(&self.failed, trouble.count(Kind::Io));
        let stored = service.counters().figure("total_items").unwrap_or(0);
        let stored = since(&self.stored, stored);
        if refused > 0 {
            self.is_full.store(true, Ordering::Relaxed);
            self.quiet.store(0, Ordering::Relaxed);
        } else if self.quiet.fetch_add(1, Ordering::Relaxed) + 1 >= QUIET || stored > 0 {
            self.is_full.store(false, Ordering::Relaxed);
        }
        let _ = service.verify_path();
        if failed > 0 {
            // If that failure poisoned the file, this reports and counts it.
            let _ = service.sync();
        }
    }

    /// What is damaged, though requests should come; empty if nothing is.
    pub(super) fn degraded(service: &Service) -> String {
        match damage(service).as_slice() {
            [] => String::new(),
            [first, ..] => format!("degraded: {first}\n"),
        }
    }

    /// Whether requests should come.
    pub(super) fn verdict(&self, service: &Service, control: &Control) -> Result<(), Unfit> {
        let unfit = |word, more: String| Err(Unfit { word, more });
        let trouble = service.errors();
        if control.is_stopping() {
            return unfit("draining", "the server is shutting down".into());
        }
        if trouble.count(Kind::Poisoned) > 0 {
            return unfit("poisoned", trouble.last().unwrap_or_default());
        }
        if let Err(error) = service.verify_path() {
            return unfit("displaced", error.to_string());
        }
        let damage = damage(service);
        if let Some(damage) = damage.iter().find(|place| place.affects.is_unbounded()) {
            let more = format!("writes are refused until the file is repaired: {damage}");
            return unfit("degraded", more);
        }
        let refused = trouble.count(Kind::Full) != self.refused.load(Ordering::Relaxed);
        if refused || self.is_full.load(Ordering::Relaxed) {
            return unfit("full", "writes find no room".into());
        }
        Ok(())
    }
}

fn damage(service: &Service) -> Vec<azekura::Damage> {
    let file = service.engine().as_persistent();
    file.map(azekura::Persistent::damage).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use azekura::error::Error;
    use azekura::record::memory::tiny::TinyDb;

    use super::*;
    use crate::config::Config;
    use crate::memcached::Settings;

    #[test]
    fn a_full_server_that_nobody_writes_to_is_tried_again() {
        let engine = Arc::new(TinyDb::new().unwrap());
        let service = Service::new(engine, Settings::default());
        let control = Control::new(Config::default().limits).unwrap();
        let health = Health::default();
        for _ in 0..2 {
            service.errors().note(&Error::new(Kind::Full, "no room"));
            for _ in 0..QUIET {
                health.look(&service);
                let unfit = health.verdict(&service, &control).unwrap_err();
                assert_eq!(unfit.word, "full");
            }
            health.look(&service);
            assert!(health.verdict(&service, &control).is_ok());
        }
    }
}
