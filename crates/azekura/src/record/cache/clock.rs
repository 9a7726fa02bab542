//! The time by which records expire, in tenths of a second.
//!
//! A record holds the tick at which it expires: never before its time, at most a tick later. 32 bits of ticks are 13
//! years; what would live longer lives so long. It does not know records.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Milliseconds of a tick.
const TICK_MS: u64 = 100;

/// Gives the time: milliseconds since any moment, never less than before.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// A clock that `now_ms` is.
    pub fn new(now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ms))
    }

    /// The tick at which what may live for `time` from now expires.
    pub(super) fn expiry(&self, time: Duration) -> u32 {
        let time_ms = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let tick = (self.0)().saturating_add(time_ms).div_ceil(TICK_MS);
        u32::try_from(tick).unwrap_or(u32::MAX)
    }

    /// Whether what expires at `tick` has.
    pub(super) fn has_passed(&self, tick: u32) -> bool {
        (self.0)() / TICK_MS >= u64::from(tick)
    }

    /// How long it is until `tick`.
    pub(super) fn left(&self, tick: u32) -> Duration {
        Duration::from_millis((u64::from(tick) * TICK_MS).saturating_sub((self.0)()))
    }
}

impl Default for Clock {
    /// The system's, which is not set back, from now on.
    fn default() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed().as_millis() as u64)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({} ms)", (self.0)())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_expires_before_its_time() {
        for now in [0, 1, 99, 100, 12_345] {
            for time in [0, 1, 100, 101, 5000] {
                let tick = Clock::new(move || now).expiry(Duration::from_millis(time));
                let at = |later: u64| Clock::new(move || now + later).has_passed(tick);
                assert!(time == 0 || !at(time - 1), "{now} {time}");
                assert!(at(time + TICK_MS - 1), "{now} {time}");
                let left = Clock::new(move || now).left(tick).as_millis() as u64;
                assert!((time..time + TICK_MS).contains(&left));
            }
        }
        let forever = Clock::new(|| 7).expiry(Duration::MAX);
        assert_eq!(forever, u32::MAX);
    }
}
