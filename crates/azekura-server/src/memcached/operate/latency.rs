//! The latency of requests, by command.
//!
//! A serving thread has a [`Recorder`], with a table that it alone writes: a note is a plain load and store. A reader adds
//! the tables up. Times fall into buckets that are an eighth of an octave wide, from a microsecond to 17 seconds,
//! so a percentile is the end of its bucket, at most an eighth above the true value. (A general histogram would have atomic
//! counters that threads share, or a lock.)
//!
//! The requests of one call of a session took equally long, as their answers leave together; a `get` counts each key.
//! It reads no clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Keys that were read.
    Get,
    /// What stores: set, add, replace, append, prepend, cas, ms.
    Set,
    /// Removals.
    Delete,
    /// Numbers that were counted up or down.
    Count,
    /// New times to live.
    Touch,
    /// Everything else.
    Other,
    /// Not a request: a sync that answers waited for.
    Sync,
}

impl Work {
    /// All of them, in their order.
    pub const ALL: [Self; 7] = [
        Self::Get,
        Self::Set,
        Self::Delete,
        Self::Count,
        Self::Touch,
        Self::Other,
        Self::Sync,
    ];

    /// Its word in figures.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::Count => "incr",
            Self::Touch => "touch",
            Self::Other => "other",
            Self::Sync => "sync",
        }
    }
}

const WORKS: usize = Work::ALL.len();

/// What a call of a session did: how many requests of each work, in the order of [`Work::ALL`], without the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCounts(pub [u32; WORKS - 1]);

impl WorkCounts {
    /// Requests of all kinds.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// Adds what another call did.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Whether nothing was done.
    pub fn is_nothing(&self) -> bool {
        self.0 == [0; WORKS - 1]
    }
}

/// Times below two to this power, in nanoseconds, are in the first bucket.
const FIRST: u32 = 10;
/// Times from two to this power on are in the last one.
const LAST: u32 = 34;
/// Two to this power buckets share an octave.
const PART: u32 = 3;
const BUCKETS: usize = 2 + (((LAST - FIRST) as usize) << PART);

/// The bucket of a time in nanoseconds.
#[inline]
fn bucket(nanos: u64) -> usize {
    let octave = nanos.max(1).ilog2();
    if octave < FIRST {
        return 0;
    }
    if octave >= LAST {
        return BUCKETS - 1;
    }
    let part = (nanos >> (octave - PART)) as usize & ((1 << PART) - 1);
    1 + (((octave - FIRST) as usize) << PART) + part
}

/// Where a bucket ends, in nanoseconds; the last one, which has no end, where it begins.
fn end(index: usize) -> u64 {
    if index + 1 >= BUCKETS {
        return 1 << LAST;
    }
    // The first bucket ends where the second begins.
    let (octave, part) = (index >> PART, index as u64 & ((1 << PART) - 1));
    ((1 << PART) + part) << (octave as u32 + FIRST - PART)
}

/// One work's times of one thread.
#[derive(Debug)]
struct Row {
    counts: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// The times of one thread.
#[repr(align(128))]
#[derive(Debug)]
struct ThreadTimes([Row; WORKS]);

/// Records the times of one thread, which alone writes its table.
#[derive(Debug)]
pub struct Recorder(Arc<ThreadTimes>);

impl Recorder {
    /// Notes what a call of a session did, and how long that took from the moment its thread could have begun.
    #[inline]
    pub fn note(&mut self, did: &WorkCounts, nanos: u64) {
        for (row, count) in self.0.0.iter().zip(did.0) {
            if count != 0 {
                row.add(nanos, u64::from(count));
            }
        }
    }

    /// Notes one time.
    pub fn one(&mut self, work: Work, nanos: u64) {
        if let Some(row) = self.0.0.get(work as usize) {
            row.add(nanos, 1);
        }
    }
}

impl Row {
    #[inline]
    fn add(&self, nanos: u64, count: u64) {
        // One thread writes, so what was loaded is still there.
        let more = |cell: &AtomicU64, by: u64| {
            let sum = cell.load(Ordering::Relaxed).wrapping_add(by);
            cell.store(sum, Ordering::Relaxed);
        };
        if let Some(cell) = self.counts.get(bucket(nanos)) {
            more(cell, count);
        }
        more(&self.nanos, nanos.wrapping_mul(count));
    }
}

/// The times of a service.
#[derive(Debug, Default)]
pub struct Latency {
    threads: Mutex<Vec<Arc<ThreadTimes>>>,
    /// What there was at the last reset.
    base: Mutex<Times>,
}

impl Latency {
    /// A pen for one more thread.
    pub fn recorder(&self) -> Recorder {
        let row = || Row {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            nanos: AtomicU64::new(0),
        };
        let thread = Arc::new(ThreadTimes(std::array::from_fn(|_| row())));
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(Arc::clone(&thread));
        Recorder(thread)
    }

    /// All times since the start or the last reset. What is noted meanwhile may or may not be in them.
    pub fn times(&self) -> Times {
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        self.all().since(&base)
    }

    /// Lets times begin anew.
    pub fn reset(&self) {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        *base = self.all();
    }

    fn all(&self) -> Times {
        let mut all = Times::default();
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in &*threads {
            for (spread, row) in all.0.iter_mut().zip(&thread.0) {
                for (sum, cell) in spread.counts.iter_mut().zip(&row.counts) {
                    *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
                }
                let nanos = row.nanos.load(Ordering::Relaxed);
                spread.nanos = spread.nanos.wrapping_add(nanos);
            }
        }
        all
    }
}

/// Times by work.
#[derive(Clone, Debug)]
pub struct Times(Box<[Spread; WORKS]>);

impl Default for Times {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Spread::default())))
    }
}

impl Times {
    /// The times of one work.
    pub fn of(&self, work: Work) -> &Spread {
        &self.0[work as usize]
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut after = self.clone();
        for (spread, before) in after.0.iter_mut().zip(&*earlier.0) {
            for (count, before) in spread.counts.iter_mut().zip(before.counts) {
                *count = count.saturating_sub(before);
            }
            spread.nanos = spread.nanos.wrapping_sub(before.nanos);
        }
        after
    }

    /// The times of all requests together.
    pub fn requests(&self) -> Spread {
        let mut all = Spread::default();
        for spread in self.0.iter().take(WORKS - 1) {
            for (sum, count) in all.counts.iter_mut().zip(spread.counts) {
                *sum += count;
            }
            all.nanos = all.nanos.wrapping_add(spread.nanos);
        }
        all
    }
}

/// How times are spread.
#[derive(Clone, Debug)]
pub struct Spread {
    counts: [u64; BUCKETS],
    nanos: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            nanos: 0,
        }
    }
}

impl Spread {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum, in nanoseconds.
    pub fn nanos(&self) -> u64 {
        self.nanos
    }

    /// The time that a part of them, from 0 to 1, does not exceed, in nanoseconds; 0 if there are none.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.count() as f64 * part).max(1.0);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen as f64 >= wanted {
                return end(index);
            }
        }
        0
    }

    /// How many took less than each power of two nanoseconds, from about a microsecond to about nine seconds: pairs of the
    /// power's value and the count of all below it.
    pub fn octaves(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..(LAST - FIRST) as usize).map(|octave| {
            let below = self.counts.iter().take(1 + (octave << PART)).sum();
            (1 << (octave as u32 + FIRST), below)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_below_the_end_of_its_bucket_and_at_most_an_eighth() {
        assert_eq!((bucket(0), bucket(1023), end(0)), (0, 0, 1024));
        assert_eq!(
            (bucket(1 << LAST), bucket(u64::MAX)),
            (BUCKETS - 1, BUCKETS - 1)
        );
        for octave in FIRST..LAST {
            for nanos in [
                1 << octave,
                (1 << octave) + 1,
                (3 << octave) / 2,
                (2 << octave) - 1,
            ] {
                let end = end(bucket(nanos));
                assert!(end > nanos && end - nanos <= nanos / 8 + 1, "{nanos} {end}");
            }
        }
        let ends: Vec<u64> = (0..BUCKETS).map(end).collect();
        assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn notes_of_all_threads_are_added_up_and_reset() {
        let latency = Latency::default();
        let (mut one, mut two) = (latency.recorder(), latency.recorder());
        one.note(&WorkCounts([90, 1, 0, 0, 0, 0]), 2000);
        two.note(&WorkCounts([10, 0, 0, 0, 0, 0]), 1_000_000);
        two.one(Work::Sync, 5000);
        let times = latency.times();
        let get = times.of(Work::Get);
        assert_eq!((get.count(), get.nanos()), (100, 10_180_000));
        assert_eq!(
            (get.quantile(0.5), get.quantile(0.9), get.quantile(0.91)),
            (2048, 2048, 1_048_576)
        );
        assert_eq!(times.requests().count(), 101);
        assert_eq!(times.of(Work::Sync).count(), 1);
        assert_eq!(times.of(Work::Touch).quantile(0.99), 0);
        let below: Vec<u64> = get.octaves().map(|(_, below)| below).collect();
        assert_eq!((below[0], below[1], below.last()), (0, 90, Some(&100)));
        latency.reset();
        one.note(&WorkCounts([1, 0, 0, 0, 0, 0]), 2000);
        assert_eq!(latency.times().requests().count(), 1);
    }
}
