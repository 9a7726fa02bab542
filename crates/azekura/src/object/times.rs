//! Latencies of direct calls: of each put, get and sync, the device's part, and the rest.
//!
//! | part | from | to |
//! |---|---|---|
//! | device | the request to the system | its completion |
//! | own | the search for space or for the object; the request of a sync | the object is stored, or verified; the sync is shared |
//!
//! For long objects the whole transfer is device time: pieces are checksummed while others are in flight. The rest is processor time,
//! and waits for locks and for other threads' syncs; waits for an object's lock come before. Small objects in the journal need no
//! access, and are not timed. It costs four clock reads and a few additions, some 150 ns for an access. Requests in a queue have times
//! of their own (`served`).

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::queue::{Histogram, Tally};

/// Both parts of the time: the device's and our own.
#[derive(Debug)]
pub(super) struct Breakdown {
    device: Tally,
    own: Tally,
}

/// Of all calls.
#[derive(Debug)]
pub(super) struct Clocks {
    pub(super) put: Breakdown,
    pub(super) get: Breakdown,
    pub(super) sync: Breakdown,
}

/// One call's.
#[derive(Debug)]
pub(super) struct Watch {
    began: Instant,
    device: Option<Duration>,
}

/// Latencies in two parts, a histogram each.
#[derive(Clone, Debug)]
pub struct Took {
    /// The device's part.
    pub device: Histogram,
    /// The rest of the call.
    pub own: Histogram,
}

/// Latencies of direct calls since the store was opened.
#[derive(Clone, Debug)]
pub struct Times {
    /// Puts that wrote an extent.
    pub put: Took,
    /// Gets, and other reads of objects that needed the device.
    pub get: Took,
    /// Syncs, one for each caller: a caller that shared another's sync has no device time.
    pub sync: Took,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self {
            began: Instant::now(),
            device: None,
        }
    }

    /// Times an access to the device.
    pub(super) fn device<T>(&mut self, access: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = access();
        self.device = Some(self.device.unwrap_or_default() + began.elapsed());
        done
    }
}

impl Breakdown {
    fn new() -> Result<Self> {
        Ok(Self {
            device: Tally::new()?,
            own: Tally::new()?,
        })
    }

    /// Records a call that has ended.
    pub(super) fn record(&self, watch: &Watch) {
        let whole = watch.began.elapsed();
        self.own
            .record(whole.saturating_sub(watch.device.unwrap_or_default()));
        if let Some(device) = watch.device {
            self.device.record(device);
        }
    }

    fn took(&self) -> Result<Took> {
        Ok(Took {
            device: self.device.snapshot()?,
            own: self.own.snapshot()?,
        })
    }
}

impl Clocks {
    /// `Full` if there is no memory.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            put: Breakdown::new()?,
            get: Breakdown::new()?,
            sync: Breakdown::new()?,
        })
    }

    pub(super) fn times(&self) -> Result<Times> {
        Ok(Times {
            put: self.put.took()?,
            get: self.get.took()?,
            sync: self.sync.took()?,
        })
    }
}

/// Names of a histogram's statistics.
macro_rules! names {
    ($of:literal) => {
        [
            concat!($of, "_count"),
            concat!($of, "_p50_ns"),
            concat!($of, "_p99_ns"),
            concat!($of, "_p999_ns"),
            concat!($of, "_max_ns"),
        ]
    };
}

impl Times {
    /// All statistics by name; none for calls that never happened.
    pub(super) fn rows(&self) -> Vec<(&'static str, u64)> {
        let all = [
            (names!("put_device"), &self.put.device),
            (names!("put_own"), &self.put.own),
            (names!("get_device"), &self.get.device),
            (names!("get_own"), &self.get.own),
            (names!("sync_device"), &self.sync.device),
            (names!("sync_own"), &self.sync.own),
        ];
        let happened = all.into_iter().filter(|(_, times)| times.count() > 0);
        happened
            .flat_map(|(names, times)| {
                let nanos = |took: Duration| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                let values = [
                    times.count(),
                    nanos(times.quantile(0.5)),
                    nanos(times.quantile(0.99)),
                    nanos(times.quantile(0.999)),
                    nanos(times.max()),
                ];
                names.into_iter().zip(values)
            })
            .collect()
    }
}
