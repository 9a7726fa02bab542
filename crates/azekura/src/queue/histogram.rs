//! Histograms of durations, in buckets that grow with them.
//!
//! Sixteen buckets for each power of two of nanoseconds, so a reported duration is at most 1/16 longer than the recorded one, up to
//! 584 years. Recording costs one addition; a histogram takes 8 KiB. The idea is `HdrHistogram`'s.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Result;
use crate::room;

/// Buckets for each power of two, as a power of two.
const FINE: u32 = 4;
const BUCKETS: usize = ((64 - FINE as usize) << FINE) + (1 << FINE);

/// Durations, counted.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: Duration,
    max: Duration,
}

/// The bucket of a number. Small ones have one each.
fn bucket(nanos: u64) -> usize {
    let power = (nanos | 1).ilog2().max(FINE) - FINE;
    ((u64::from(power) << FINE) + (nanos >> power)) as usize
}

/// The largest number in a bucket.
fn end_of(bucket: usize) -> u64 {
    let (coarse, fine) = (bucket as u64 >> FINE, bucket as u64 & ((1 << FINE) - 1));
    if coarse == 0 {
        return fine;
    }
    let power = coarse - 1;
    let next = u128::from((1 << FINE) + fine + 1) << power;
    (next - 1) as u64
}

/// A histogram into which threads record concurrently: relaxed sums, so a snapshot may miss what is being recorded.
#[derive(Debug)]
pub struct Tally {
    buckets: Box<[AtomicU64]>,
    /// Nanoseconds.
    sum: AtomicU64,
    max: AtomicU64,
}

impl Tally {
    /// Without any durations. Errors: `Full`.
    pub fn new() -> Result<Self> {
        Ok(Self {
            buckets: room::collect((0..BUCKETS).map(|_| AtomicU64::new(0)))?.into_boxed_slice(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        })
    }

    /// Records one.
    pub fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
        self.max.fetch_max(nanos, Ordering::Relaxed);
    }

    /// A copy of the recorded durations. Errors: `Full`.
    pub fn snapshot(&self) -> Result<Histogram> {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let buckets = room::collect(self.buckets.iter().map(load))?;
        Ok(Histogram {
            count: buckets.iter().sum(),
            buckets: buckets.into_boxed_slice(),
            sum: Duration::from_nanos(load(&self.sum)),
            max: Duration::from_nanos(load(&self.max)),
        })
    }
}

impl Histogram {
    /// Without any durations. Errors: `Full`.
    pub fn new() -> Result<Self> {
        Ok(Self {
            buckets: room::collect((0..BUCKETS).map(|_| 0))?.into_boxed_slice(),
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        })
    }

    /// Records one.
    pub fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        self.max = self.max.max(took);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest, exactly.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The mean, exactly; zero if there are none.
    pub fn mean(&self) -> Duration {
        let nanos = self.sum.as_nanos() / u128::from(self.count.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The quantile `part` (0.5, 0.99): that part of them was not longer; zero if there are none. Costs a walk over the buckets.
    pub fn quantile(&self, part: f64) -> Duration {
        // In counts: at least one, at most all.
        let wanted = (part.clamp(0.0, 1.0) * self.count as f64).ceil();
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen > 0 && seen as f64 >= wanted {
                return Duration::from_nanos(end_of(bucket)).min(self.max);
            }
        }
        self.max
    }

    /// Counts of durations up to each of `limits`, which rise: cumulative buckets for metrics.
    pub fn below(&self, limits: &[Duration]) -> Vec<u64> {
        let within = |limit: &Duration| {
            let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            self.buckets.iter().take(bucket(nanos) + 1).sum()
        };
        limits.iter().map(within).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_lies_in_one_bucket_and_buckets_follow_one_another() {
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!(end_of(BUCKETS - 1), u64::MAX);
        for at in 0..BUCKETS {
            assert_eq!(bucket(end_of(at)), at);
            if at + 1 < BUCKETS {
                assert_eq!(bucket(end_of(at) + 1), at + 1);
            }
        }
    }

    #[test]
    fn quantiles_are_a_sixteenth_too_long_at_most() {
        let mut histogram = Histogram::new().unwrap();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        for micros in 1..=10_000 {
            histogram.record(Duration::from_micros(micros));
        }
        for (part, micros) in [
            (0.0, 1),
            (0.5, 5000),
            (0.99, 9900),
            (0.9999, 9999),
            (1.0, 10_000),
        ] {
            let (estimate, exact) = (histogram.quantile(part), Duration::from_micros(micros));
            assert!(
                exact <= estimate && estimate <= exact * 17 / 16,
                "{part}: {estimate:?}"
            );
        }
        assert_eq!(histogram.max(), Duration::from_millis(10));
        assert_eq!(histogram.mean(), Duration::from_nanos(5_000_500));
        assert_eq!(
            (histogram.count(), histogram.sum()),
            (10_000, Duration::from_millis(50_005))
        );
        histogram.record(Duration::MAX);
        assert_eq!(histogram.quantile(1.0), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn counts_below_limits_rise_to_all() {
        let mut histogram = Histogram::new().unwrap();
        for millis in [1, 10, 100, 1000] {
            histogram.record(Duration::from_millis(millis));
        }
        let limits = [0, 2, 20, 2000].map(Duration::from_millis);
        assert_eq!(histogram.below(&limits), [0, 1, 2, 4]);
    }
}
