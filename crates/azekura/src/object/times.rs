//! How long direct calls take: of each put and get of the device, and of each sync, the device's part, and all the rest.
//!
//! | time | from | to |
//! |---|---|---|
//! | device | the request is made to the system | it is answered |
//! | own | room or place is looked for; a sync is asked for | the object is there, or verified; the sync is shared out |
//!
//! Of long objects all of the transfer is the device's: pieces are summed while others are at the device.
//! The rest is the processor's, and waits for locks and for others' syncs; waits for an object's turn are before. Small objects in
//! the journal are no access, and are not timed. It costs four looks at the clock and a few additions, some 150 ns of an
//! access. Requests in a queue have times of their own (`served`).

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::queue::{Histogram, Tally};

/// Both parts.
#[derive(Debug)]
pub(super) struct Parts {
    device: Tally,
    own: Tally,
}

/// Of all calls.
#[derive(Debug)]
pub(super) struct Clocks {
    pub(super) put: Parts,
    pub(super) get: Parts,
    pub(super) sync: Parts,
}

/// One call's.
#[derive(Debug)]
pub(super) struct Watch {
    began: Instant,
    device: Option<Duration>,
}

/// How long something took, in its two parts; what is shown of each is a histogram.
#[derive(Clone, Debug)]
pub struct Took {
    /// The device's part.
    pub device: Histogram,
    /// All the rest of the call.
    pub own: Histogram,
}

/// How long direct calls took since the store was opened.
#[derive(Clone, Debug)]
pub struct Times {
    /// Puts that wrote an extent.
    pub put: Took,
    /// Gets, and other reads of objects that needed the device.
    pub get: Took,
    /// Syncs, of those who asked: who shared another's had no device's part.
    pub sync: Took,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self {
            began: Instant::now(),
            device: None,
        }
    }

    /// Has the device do something.
    pub(super) fn device<T>(&mut self, access: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = access();
        self.device = Some(self.device.unwrap_or_default() + began.elapsed());
        done
    }
}

impl Parts {
    fn new() -> Result<Self> {
        Ok(Self {
            device: Tally::new()?,
            own: Tally::new()?,
        })
    }

    /// A call is done.
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
            put: Parts::new()?,
            get: Parts::new()?,
            sync: Parts::new()?,
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

/// Names of a histogram's figures.
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
    /// All figures by name; none of what did not happen.
    pub(super) fn figures(&self) -> Vec<(&'static str, u64)> {
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
                let figures = [
                    times.count(),
                    nanos(times.quantile(0.5)),
                    nanos(times.quantile(0.99)),
                    nanos(times.quantile(0.999)),
                    nanos(times.max()),
                ];
                names.into_iter().zip(figures)
            })
            .collect()
    }
}
