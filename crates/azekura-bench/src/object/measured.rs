//! The result of a phase over objects: one JSON object, or a few lines of a table.
//!
//! The names of the fields are those of the other benchmarks where they mean the same; `summary` holds
//! the published tool's figures. What does not apply is absent. A row always tells its class of durability.
//! It measures nothing.

use azekura::error::{Result, size};
use serde::{Deserialize, Serialize};

use super::calls::Calls;
use super::forget::Forgot;
use super::store::{Class, Counters};
use super::summary::{Summary, Tally};
use crate::measure::Device;
use crate::report::{line, read};

/// What a phase took. Sizes are in bytes, memory is growth since before the first phase.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The store's word.
    pub engine: String,
    /// The phase.
    pub op: String,
    /// What an acknowledged change survived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Class>,
    /// Operations outstanding at most.
    pub depth: u64,
    /// Operations that were due each second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Operations, whatever came of them.
    pub count: u64,
    /// Of those, gets and removals that found no object; they and what failed are no part of rates and latencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u64>,
    /// Of those, what the store refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Bytes of a key, if all have as many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_size: Option<u64>,
    /// Bytes of a value, if all have as many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_size: Option<u64>,
    /// What the system was made to forget before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold: Option<Forgot>,
    /// How long that took, before anything that is counted here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forget_seconds: Option<f64>,
    /// Wall time, without opening, the last sync, and closing; making and comparing values is in it.
    pub seconds: f64,
    /// Operations done per second of it.
    pub ops_per_second: f64,
    /// Values' bytes per second of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<f64>,
    /// How long the sync at the end took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_seconds: Option<f64>,
    /// How long the opening call took.
    pub open_seconds: f64,
    /// From before the opening call to the first value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_get_seconds: Option<f64>,
    /// From the start of a process to its end, where a whole one was started to open the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_seconds: Option<f64>,
    /// Processor time of the whole process, of background threads and the making of values, too.
    pub cpu_seconds: f64,
    /// Growth of resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Of that, what no file backs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_bytes: Option<u64>,
    /// Growth of the most that was ever resident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Size of the store's files after it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Bytes these files take on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// Operations that found their object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Requests to read that the device completed, the last sync included, of whoever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_reads: Option<u64>,
    /// Requests to write that it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_writes: Option<u64>,
    /// Requests to make everything durable that it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syncs: Option<u64>,
    /// Bytes of these reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes_read: Option<u64>,
    /// Bytes of these writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes_written: Option<u64>,
    /// Reads, writes and syncs that the store itself counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<Counters>,
    /// Calls of this process to the system, for whatever store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    /// The published tool's figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

impl Measured {
    /// A phase from a line of JSON; `Invalid` if it is none.
    pub fn from_json(line: &str) -> Result<Self> {
        read(line)
    }

    /// Fills in what the device did, and what the store counted before and after.
    pub(super) fn did(&mut self, device: &Device, before: Option<Counters>, now: Option<Counters>) {
        self.device_reads = device.reads;
        self.device_writes = device.writes;
        self.syncs = device.syncs;
        self.device_bytes_read = device.read_bytes;
        self.device_bytes_written = device.written_bytes;
        self.store = before.zip(now).map(|(before, now)| now.since(before));
    }

    /// Fills in what the results come to.
    pub(super) fn sum_up(&mut self, tally: Tally, value_size: Option<u64>, key_size: Option<u64>) {
        // No value is moved by a removal.
        let moved = value_size.filter(|_| self.op != "delete");
        let summary = tally.finish(moved);
        self.count = summary.oks + summary.errors;
        self.key_size = key_size;
        self.value_size = value_size;
        (self.missing, self.failed) = (Some(summary.missing), Some(summary.errors));
        self.ops_per_second = summary.done() as f64 / self.seconds.max(1e-9);
        self.bytes_per_second = moved.map(|size| self.ops_per_second * size as f64);
        self.hits = Some(summary.existence.exists);
        self.summary = Some(summary);
    }

    /// Prints the phase on standard output.
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            return line(&serde_json::to_string(self).expect("a phase has only plain fields"));
        }
        line(&self.table())
    }

    /// The lines for people.
    pub(super) fn table(&self) -> String {
        let class = self.durability.map_or("-", Class::word);
        let value = self.value_size.map_or_else(|| "-".into(), size);
        let key = self
            .key_size
            .map_or_else(|| "-".into(), |size| format!("{size} B"));
        let cold = self.cold.map_or("", |_| ", cold");
        let mut text = format!(
            "{}: {} {} of {value}, keys of {key}, durability {class}, depth {}{cold}\n",
            self.engine, self.count, self.op, self.depth
        );
        if let Some(first) = self.first_get_seconds {
            text += &load_line(self.open_seconds, first, self.seconds);
        }
        if let Some(summary) = &self.summary {
            text += &summary_lines(summary, self.sync_seconds);
        }
        text += &self.costs();
        text.truncate(text.trim_end().len());
        text
    }

    fn costs(&self) -> String {
        let each = |count: Option<u64>| {
            let per = count.map(|count| count as f64 / self.count.max(1) as f64);
            per.map_or_else(|| "-".into(), |per| format!("{per:.2}"))
        };
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), size);
        let per_bytes =
            |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), |b| size(b / self.count.max(1)));
        let own = self.store.map_or_else(String::new, |own| {
            format!(
                "  the store   for each {} reads, {} writes, {} syncs\n",
                each(Some(own.reads)),
                each(Some(own.writes)),
                each(Some(own.syncs))
            )
        });
        let calls = self.calls.map_or_else(String::new, |calls| {
            format!(
                "  the process for each {} calls that read, {} that write; {} from devices, {} to devices\n",
                each(Some(calls.reads)),
                each(Some(calls.writes)),
                per_bytes(Some(calls.bytes_read)),
                per_bytes(Some(calls.bytes_written)),
            )
        });
        format!(
            "  the device  for each {} reads of {}, {} writes of {}, {} flushes\n{own}{calls}  \
             took        {:.2} s of processors, {} of memory ({} private), {} of files\n",
            each(self.device_reads),
            per_bytes(self.device_bytes_read),
            each(self.device_writes),
            per_bytes(self.device_bytes_written),
            each(self.syncs),
            self.cpu_seconds,
            bytes(self.memory_bytes),
            bytes(self.private_bytes),
            bytes(self.allocated_bytes),
        )
    }
}

fn load_line(open: f64, first: f64, end: f64) -> String {
    let (open, first, end) = (duration(open), duration(first), duration(end));
    format!("  open        {open}, to the first value {first}, to the end {end}\n")
}

/// The published figures for people, with those that were added.
pub(super) fn summary_lines(summary: &Summary, sync: Option<f64>) -> String {
    let mib = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1}"));
    let latency = &summary.latency;
    let existence = &summary.existence;
    format!(
        "  rate        {:.1} op/s and {} MiB/s of the sum of latencies, {:.1} op/s and {} MiB/s of {} \
         that passed{}\n  latency     min {}  median {}  p95 {}  p99 {}  p99.9 {}  p99.99 {}  max {}\n  \
         answers     {} done, {} failed, {} missing; {} existed, {} did not, {} not told\n",
        summary.ops,
        mib(summary.mib_per_second),
        summary.done() as f64 / summary.wall.max(1e-9),
        mib(summary.wall_mib_per_second),
        duration(summary.wall),
        sync.map_or_else(String::new, |sync| format!(
            ", and {} of sync",
            duration(sync)
        )),
        duration(latency.min),
        duration(latency.median),
        duration(latency.p95),
        duration(latency.p99),
        duration(latency.p999),
        duration(latency.p9999),
        duration(latency.max),
        summary.done(),
        summary.errors,
        summary.missing,
        existence.exists,
        existence.absents,
        existence.unknowns,
    )
}

/// Seconds with three digits and a unit.
pub(super) fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        0.0 => return "0 s".into(),
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use azekura::Kind;

    use super::*;

    #[test]
    fn a_phase_has_the_documented_names_and_comes_back_from_json() {
        let phase = Measured {
            engine: "files".into(),
            op: "put".into(),
            durability: Some(Class::Power),
            depth: 2,
            count: 4,
            key_size: Some(16),
            value_size: Some(4096),
            cold: Some(Forgot::Pages),
            seconds: 2.0,
            ops_per_second: 2.0,
            bytes_per_second: Some(8192.0),
            open_seconds: 0.5,
            device_writes: Some(8),
            syncs: Some(4),
            store: Some(Counters {
                reads: 0,
                writes: 4,
                syncs: 1,
            }),
            calls: Some(Calls {
                reads: 8,
                ..Calls::default()
            }),
            summary: Some(Tally::default().finish(None)),
            ..Measured::default()
        };
        let json = serde_json::to_string(&phase).unwrap();
        assert_eq!(
            json.split(",\"summary\"").next().unwrap(),
            "{\"engine\":\"files\",\"op\":\"put\",\"durability\":\"power\",\"depth\":2,\"count\":4,\
             \"key_size\":16,\"value_size\":4096,\"cold\":\"pages\",\"seconds\":2.0,\
             \"ops_per_second\":2.0,\"bytes_per_second\":8192.0,\"open_seconds\":0.5,\
             \"cpu_seconds\":0.0,\"device_writes\":8,\"syncs\":4,\
             \"store\":{\"reads\":0,\"writes\":4,\"syncs\":1},\
             \"calls\":{\"reads\":8,\"writes\":0,\"bytes_read\":0,\"bytes_written\":0}"
        );
        let again = serde_json::to_string(&Measured::from_json(&json).unwrap()).unwrap();
        assert_eq!(again, json);
        assert_eq!(Measured::from_json("{}").unwrap_err().kind(), Kind::Invalid);
        let table = phase.table();
        for part in [
            "4 put of 4 KiB",
            "durability power",
            "2.00 writes of",
            "1.00 flushes",
            "the store   for each 0.00 reads, 1.00 writes, 0.25 syncs",
            "2.00 calls that read",
            ", cold",
        ] {
            assert!(table.contains(part), "{part} in {table}");
        }
    }

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        let shown = [0.0, 0.000_001_25, 0.012_34, 0.5, 2.0, 123.4].map(duration);
        assert_eq!(
            shown,
            ["0 s", "1.25 us", "12.3 ms", "500 ms", "2.00 s", "123 s"]
        );
    }
}
