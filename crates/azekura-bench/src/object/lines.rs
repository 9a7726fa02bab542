//! A phase over objects as a few lines of text.
//!
//! A row always states its class of durability, and accesses are shown for each operation: of the device, of the store
//! itself and of the process. It measures nothing.

use azekura::error::size;

use super::summary::Summary;
use crate::phase::{Class, Object, Phase};

/// The lines of a phase.
pub(super) fn table(phase: &Phase) -> String {
    let nothing = Object::default();
    let object = phase.object().unwrap_or(&nothing);
    let class = phase.durability.map_or("-", Class::word);
    let value = phase.value_size.map_or_else(|| "-".into(), size);
    let key = phase
        .key_size
        .map_or_else(|| "-".into(), |size| format!("{size} B"));
    let cold = object.cold.map_or("", |_| ", cold");
    let mut text = format!(
        "{}: {} {} of {value}, keys of {key}, durability {class}, depth {}{cold}\n",
        phase.engine, phase.count, phase.op, phase.threads
    );
    if let Some(first) = object.first_get_seconds {
        text += &load_line(object.open_seconds, first, phase.seconds);
    }
    if let Some(summary) = &object.summary {
        text += &summary_lines(summary, object.sync_seconds);
    }
    text += &costs(phase, object);
    text.truncate(text.trim_end().len());
    text
}

fn costs(phase: &Phase, object: &Object) -> String {
    let cost = &phase.cost;
    let each = |count: Option<u64>| {
        let per = count.map(|count| count as f64 / phase.count.max(1) as f64);
        per.map_or_else(|| "-".into(), |per| format!("{per:.2}"))
    };
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), size);
    let per_bytes =
        |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), |b| size(b / phase.count.max(1)));
    let own = object.store.map_or_else(String::new, |own| {
        format!(
            "  the store   for each {} reads, {} writes, {} syncs\n",
            each(Some(own.reads)),
            each(Some(own.writes)),
            each(Some(own.syncs))
        )
    });
    let calls = object.calls.map_or_else(String::new, |calls| {
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
        each(cost.device.reads),
        per_bytes(cost.device.bytes_read),
        each(cost.device.writes),
        per_bytes(cost.device.bytes_written),
        each(cost.device.syncs),
        phase.cpu_seconds,
        bytes(cost.memory_bytes),
        bytes(cost.private_bytes),
        bytes(cost.allocated_bytes),
    )
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
         answers     {} done, {} failed, {} missing; {} existed, {} did not, {} unknown\n",
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
    use super::*;
    use crate::forget::Forgot;
    use crate::measure::{Calls, Counters, Device};
    use crate::phase::{Cost, Details};

    #[test]
    fn a_phase_shows_its_accesses_for_each_operation() {
        let phase = Phase {
            engine: "files".into(),
            op: "put".into(),
            durability: Some(Class::Power),
            threads: 2,
            count: 4,
            key_size: Some(16),
            value_size: Some(4096),
            cost: Cost {
                device: Device {
                    writes: Some(8),
                    syncs: Some(4),
                    ..Device::default()
                },
                ..Cost::default()
            },
            details: Details::Object(Box::new(Object {
                cold: Some(Forgot::Pages),
                store: Some(Counters {
                    reads: 0,
                    writes: 4,
                    syncs: 1,
                }),
                calls: Some(Calls {
                    reads: 8,
                    ..Calls::default()
                }),
                ..Object::default()
            })),
            ..Phase::default()
        };
        let table = table(&phase);
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
