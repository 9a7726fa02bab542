//! The latency of one thread's requests, from its wakeup until their answers were handed to the system, and slow ones.
//!
//! The clock is read once when the thread wakes and once for each turn of a connection, so a wait for the turns of other
//! connections counts. A slow turn is logged: command and key of its first request, how many requests there were, bytes in
//! and out. No more than ten are logged in a second; all are counted. It keeps no request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::memcached::latency::{Recorder, Work, WorkCounts};
use crate::memcached::{RequestSummary, Service};

/// Slow turns that are logged in a second.
const LOGGED_MAX: u32 = 10;

/// A turn: what it did, and what is logged of it if it was slow.
pub(super) struct Turned<'b> {
    pub(super) did: WorkCounts,
    /// The first bytes of the first request.
    pub(super) front: &'b [u8],
    pub(super) bytes_in: usize,
    pub(super) bytes_out: usize,
}

/// A thread's watch.
pub(super) struct Meter {
    recorder: Recorder,
    /// When the thread woke.
    woke: Instant,
    /// The threshold of slow; `None`: nothing is logged.
    pub(super) slow: Option<Duration>,
    slow_requests: Arc<SlowRequests>,
}

impl Meter {
    pub(super) fn new(service: &Service, slow_requests: Arc<SlowRequests>) -> Self {
        Self {
            recorder: service.latency().recorder(),
            woke: Instant::now(),
            slow: None,
            slow_requests,
        }
    }

    /// The thread has work from now on.
    #[inline]
    pub(super) fn wake(&mut self) {
        self.woke = Instant::now();
    }

    /// When it woke.
    pub(super) fn woke(&self) -> Instant {
        self.woke
    }

    /// Notes what was done since `from`; returns the time.
    #[inline]
    pub(super) fn note(&mut self, from: Instant, turned: &Turned<'_>) -> Instant {
        let now = Instant::now();
        if turned.did.is_nothing() {
            return now;
        }
        let took = now.saturating_duration_since(from);
        self.recorder.note(&turned.did, nanos(took));
        if self.slow.is_some_and(|slow| took >= slow) {
            self.slow_requests.log(now, took, turned);
        }
        now
    }

    /// Notes a sync that answers waited for since `from`.
    pub(super) fn sync(&mut self, from: Instant) {
        self.recorder.one(Work::Sync, nanos(from.elapsed()));
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The slow requests of all threads.
#[derive(Debug, Default)]
pub(crate) struct SlowRequests {
    slow: AtomicU64,
    second: Mutex<Second>,
}

/// A second in which some were logged.
#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    logged: u32,
    /// How many were not logged since one was.
    held_back: u64,
}

impl Second {
    /// Whether one more may be logged now, and how many were not before it.
    fn admits(&mut self, now: Instant) -> Option<u64> {
        let is_over = |began: Instant| now.saturating_duration_since(began).as_secs() > 0;
        if self.began.is_none_or(is_over) {
            (self.began, self.logged) = (Some(now), 0);
        }
        if self.logged == LOGGED_MAX {
            self.held_back += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.held_back))
    }
}

impl SlowRequests {
    /// Slow requests since the start.
    pub(crate) fn count(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    #[cold]
    fn log(&self, now: Instant, took: Duration, turned: &Turned<'_>) {
        let requests = turned.did.count();
        self.slow.fetch_add(requests, Ordering::Relaxed);
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held_back) = second.admits(now) else {
            return;
        };
        drop(second);
        let request = RequestSummary::read(turned.front);
        tracing::warn!(
            command = request.command,
            key = request.key,
            requests,
            bytes_in = turned.bytes_in,
            bytes_out = turned.bytes_out,
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            held_back,
            "slow request"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fmt::{Debug, Write as _};
    use std::sync::Arc;

    use azekura::record::memory::tiny::TinyDb;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use crate::memcached::Settings;

    /// Keeps what events state.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Heard {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            struct Words(String);
            impl Visit for Words {
                fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                    let _ = write!(self.0, "{}={value:?} ", field.name());
                }
            }
            let mut words = Words(String::new());
            event.record(&mut words);
            self.0.lock().unwrap().push(words.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_slow_turn_is_told_with_its_first_request_and_counted_with_all() {
        let service = Service::new(Arc::new(TinyDb::new().unwrap()), Settings::default());
        let slow_requests = Arc::new(SlowRequests::default());
        let mut meter = Meter::new(&service, Arc::clone(&slow_requests));
        let turned = Turned {
            did: WorkCounts([2, 0, 0, 0, 0, 0]),
            front: b"get anna\r\nget ben\r\n",
            bytes_in: 20,
            bytes_out: 10,
        };
        let start = Instant::now();
        let before = start
            .checked_sub(Duration::from_millis(50))
            .unwrap_or(start);
        let heard = Heard::default();
        tracing::subscriber::with_default(heard.clone(), || {
            // There is no threshold.
            meter.note(before, &turned);
            meter.slow = Some(Duration::from_millis(50));
            meter.note(before, &turned);
            meter.slow = Some(Duration::from_secs(3600));
            meter.note(before, &turned);
        });
        let logged = heard.0.lock().unwrap().join("\n");
        assert!(
            logged.contains("command=\"get\" key=\"anna\" requests=2 bytes_in=20 bytes_out=10"),
            "{logged}"
        );
        assert_eq!(
            (heard.0.lock().unwrap().len(), slow_requests.count()),
            (1, 2)
        );
        let times = service.latency().times();
        assert_eq!(times.of(Work::Get).count(), 6);
        assert!(times.of(Work::Get).quantile(0.01) >= 50_000_000);
    }

    #[test]
    fn a_second_admits_so_many_and_the_next_says_how_many_were_held_back() {
        let mut second = Second::default();
        let start = Instant::now();
        let mut at = |millis| second.admits(start + Duration::from_millis(millis));
        for _ in 0..LOGGED_MAX {
            assert_eq!(at(0), Some(0));
        }
        assert_eq!((at(1), at(999)), (None, None));
        assert_eq!((at(1000), at(1001)), (Some(2), Some(0)));
    }
}
