//! What a phase took: processor time, memory by kind, bytes of files, work of the device, latency; and the middle of what
//! several took.
//!
//! Memory is read from `/proc/self/status`: private (anonymous) pages are what an engine costs, file
//! pages are what the page cache would hold anyway and are shared with every process that maps the file. On a
//! system without that file the memory figures are absent. It knows nothing of engines.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azekura::error::{Error, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Processor seconds of all threads of this process so far, background threads included.
pub fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default().as_secs_f64()
}

/// The number after `name` and a colon, at the beginning of a line of what the kernel reports.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

/// Resident memory of this process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// All resident pages.
    pub resident: u64,
    /// Of those, the private ones that no file backs.
    pub private: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

impl Memory {
    /// As of now; `None` where the system does not report it.
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/status").ok()?)
    }

    /// That of another process; `None` if it is gone, or the system does not report it.
    pub fn of(process: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let bytes = |name| Some(field(status, name)? * 1024);
        Some(Self {
            resident: bytes("VmRSS")?,
            private: bytes("RssAnon")?,
            peak: bytes("VmHWM")?,
        })
    }
}

/// What the kernel calls a sector in its statistics, whatever the device has.
const SECTOR: u64 = 512;

/// What the device under a store did so far, or meanwhile, and what this process gave it to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Requests to read that it completed, for any process.
    #[serde(rename = "device_reads")]
    pub reads: Option<u64>,
    /// Requests to write that it completed, for any process.
    #[serde(rename = "device_writes")]
    pub writes: Option<u64>,
    /// Bytes of the reads that it completed, for any process.
    #[serde(rename = "device_bytes_read")]
    pub bytes_read: Option<u64>,
    /// Bytes of the writes that it completed, for any process.
    #[serde(rename = "device_bytes_written")]
    pub bytes_written: Option<u64>,
    /// Requests to make everything durable that it completed, for any process.
    pub syncs: Option<u64>,
    /// Bytes that this process wrote towards devices; a page that is changed through a map counts when it
    /// gets dirty.
    pub process_bytes_written: Option<u64>,
}

impl Device {
    /// As of now, for the device that holds the folder of `path`; absent is what the system does not report.
    pub fn now(path: &Path) -> Self {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let number = std::fs::metadata(folder.unwrap_or(Path::new("."))).map(|meta| meta.dev());
        let stat = number.and_then(|number| {
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))
        });
        let io = std::fs::read_to_string("/proc/self/io");
        Self::parse(&stat.unwrap_or_default(), &io.unwrap_or_default())
    }

    fn parse(stat: &str, io: &str) -> Self {
        let field = |index: usize| stat.split_whitespace().nth(index)?.parse::<u64>().ok();
        Self {
            reads: field(0),
            writes: field(4),
            syncs: field(15),
            bytes_read: field(2).map(|sectors| sectors * SECTOR),
            bytes_written: field(6).map(|sectors| sectors * SECTOR),
            process_bytes_written: self::field(io, "write_bytes"),
        }
    }

    /// What was done since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let less = |now: Option<u64>, before| Some(now?.saturating_sub(before?));
        Self {
            reads: less(self.reads, before.reads),
            writes: less(self.writes, before.writes),
            syncs: less(self.syncs, before.syncs),
            bytes_read: less(self.bytes_read, before.bytes_read),
            bytes_written: less(self.bytes_written, before.bytes_written),
            process_bytes_written: less(self.process_bytes_written, before.process_bytes_written),
        }
    }
}

/// What a store counted by itself since it was opened, where it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests to read that it gave to its device.
    pub reads: u64,
    /// Requests to write.
    pub writes: u64,
    /// Requests to make everything durable.
    pub syncs: u64,
}

/// Gives counts that only grow a difference, field by field.
macro_rules! growing {
    ($counts:ty: $($field:ident),*) => {
        impl $counts {
            /// What was counted since `before`.
            #[must_use]
            pub const fn since(self, before: Self) -> Self {
                Self { $($field: self.$field.saturating_sub(before.$field)),* }
            }
        }
    };
}
growing!(Counters: reads, writes, syncs);
growing!(Calls: reads, writes, bytes_read, bytes_written);

/// Counts requests of a store, by many threads.
#[derive(Debug, Default)]
pub struct Counting([AtomicU64; 3]);

impl Counting {
    /// Counts a request to read.
    pub fn read(&self) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request to write, and returns how many there were before.
    pub fn write(&self) -> u64 {
        self.0[1].fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a request to make everything durable.
    pub fn sync(&self) {
        self.0[2].fetch_add(1, Ordering::Relaxed);
    }

    /// As of now.
    pub fn counters(&self) -> Counters {
        let [reads, writes, syncs] = [0, 1, 2].map(|of: usize| self.0[of].load(Ordering::Relaxed));
        Counters {
            reads,
            writes,
            syncs,
        }
    }
}

/// Calls of this process that read and write files, and the bytes that it moved from and to devices, as the kernel counts
/// them for every process: some calls of the harness are among them (less than ten, and one for every 8 KiB of results).
/// Accesses through a map and requests by a ring are no calls, and a sync is neither read nor write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// Calls that read.
    pub reads: u64,
    /// Calls that write.
    pub writes: u64,
    /// Bytes that came from devices.
    pub bytes_read: u64,
    /// Bytes that went to devices, or will: a page counts when it gets dirty.
    pub bytes_written: u64,
}

impl Calls {
    /// As of now; `None` where the system does not report it.
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/io").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name| field(text, name);
        Some(Self {
            reads: field("syscr")?,
            writes: field("syscw")?,
            bytes_read: field("read_bytes")?,
            bytes_written: field("write_bytes")?,
        })
    }
}

/// Size and allocated bytes of a file, or of all files of a folder.
pub fn file_bytes(path: &Path) -> Result<(u64, u64)> {
    let describe = |e| Error::io("cannot measure the store", e).at(path);
    let meta = std::fs::metadata(path).map_err(describe)?;
    if !meta.is_dir() {
        return Ok((meta.len(), meta.blocks() * 512));
    }
    let mut sum = (0, 0);
    for entry in std::fs::read_dir(path).map_err(describe)? {
        let (size, allocated) = file_bytes(&entry.map_err(describe)?.path())?;
        sum = (sum.0 + size, sum.1 + allocated);
    }
    Ok(sum)
}

/// The longest latency that is distinguished from longer ones.
const HOUR_NS: u64 = 3_600_000_000_000;

/// Latencies of one thread or, merged, of all; three digits are kept.
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        // With bounds: one that grows by itself cuts at its present end what is recorded saturating.
        Self(Histogram::new_with_bounds(1, HOUR_NS, 3).expect("the bounds are in order"))
    }
}

impl Latency {
    /// Counts one call.
    #[inline]
    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record(took.as_nanos() as u64);
    }

    /// Adds another thread's calls.
    pub fn merge(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("all histograms have the same bounds");
    }

    /// Calls counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The percentiles in microseconds; `None` if nothing was counted.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |quantile| us(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| Percentiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: us(self.0.max()),
        })
    }
}

/// Latency in microseconds: so many calls in a hundred (thousand, ...) were not slower.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the quantiles")]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub p9999: f64,
    pub max: f64,
}

/// The middle value, which one wild measurement does not move; of an even number, the mean of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len.is_multiple_of(2) => Some(f64::midpoint(values[middle - 1], values[middle])),
        _ => Some(values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_fields_of_the_kernel() {
        let status = "Name:\tx\nVmHWM:\t    30 kB\nVmRSS:\t    20 kB\nRssAnon:\t     5 kB\n";
        let memory = Memory::parse(status).unwrap();
        assert_eq!(
            (memory.resident, memory.private, memory.peak),
            (20480, 5120, 30720)
        );
        assert!(Memory::parse("VmRSS: x\n").is_none());
    }

    #[test]
    fn device_figures_are_the_differences_of_what_the_kernel_counts() {
        let stat = |n: u64| format!("{n} 0 {n} 0 {} 0 8 0 0 0 0 0 0 0 0 {} 0\n", n + 1, n + 2);
        let before = Device::parse(&stat(10), "wchar: 3\nwrite_bytes: 4096\n");
        let now = Device::parse(&stat(15), "wchar: 9\nwrite_bytes: 12288\n");
        let expected = Device {
            reads: Some(5),
            writes: Some(5),
            syncs: Some(5),
            bytes_read: Some(5 * 512),
            bytes_written: Some(0),
            process_bytes_written: Some(8192),
        };
        assert_eq!(now.since(before), expected);
        assert_eq!(Device::parse("", ""), Device::default());
    }

    #[test]
    fn a_folder_is_the_sum_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        std::fs::write(folder.path().join("a"), [1; 10]).unwrap();
        std::fs::write(folder.path().join("in/b"), [1; 5]).unwrap();
        assert_eq!(file_bytes(folder.path()).unwrap().0, 15);
        assert!(file_bytes(&folder.path().join("gone")).is_err());
    }

    #[test]
    fn processor_time_grows_with_work() {
        let before = cpu_seconds();
        let mut x = 1_u64;
        while cpu_seconds() <= before {
            x = std::hint::black_box(crate::generate::mix(x));
        }
        assert!(cpu_seconds() > before);
    }

    #[test]
    fn the_median_ignores_one_wild_value() {
        assert_eq!(median([2.0, 100.0, 1.9]), Some(2.0));
        assert_eq!(median([1.0, 2.0]), Some(1.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn percentiles_of_equal_calls_are_equal() {
        let mut latency = Latency::default();
        assert!(latency.percentiles().is_none());
        for _ in 0..10 {
            latency.record(Duration::from_micros(2));
        }
        let mut all = Latency::default();
        all.merge(&latency);
        let found = all.percentiles().unwrap();
        assert!((found.p50 - 2.0).abs() < 0.01 && (found.p9999 - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_long_call_is_not_cut_short() {
        let mut latency = Latency::default();
        for took in [40, 3_000, 7_000_000, 90_000_000_000] {
            latency.record(Duration::from_nanos(took));
        }
        let found = latency.percentiles().unwrap();
        assert!((found.max / 90e6 - 1.0).abs() < 0.002, "{found:?}");
        assert!((found.p50 / 3.0 - 1.0).abs() < 0.002, "{found:?}");
    }

    #[test]
    fn calls_are_read_from_the_fields_of_the_kernel() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
                    cancelled_write_bytes: 7\n";
        let found = Calls::parse(text).unwrap();
        let of = |reads, writes, bytes_read, bytes_written| Calls {
            reads,
            writes,
            bytes_read,
            bytes_written,
        };
        assert_eq!(found, of(3, 4, 5, 6));
        assert_eq!(of(10, 10, 10, 10).since(found), of(7, 6, 5, 4));
        assert!(Calls::parse("syscr: 3\n").is_none());
    }
}
