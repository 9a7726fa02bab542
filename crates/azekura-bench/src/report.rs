//! What is printed: phases as JSON lines or as a table, and progress.
//!
//! JSON goes to standard output and nothing else does; the progress bar goes to standard error, and only if that is a
//! terminal. The table of every benchmark has the same columns; below a row stands, by its name in JSON, what is in no
//! column. It measures nothing.

use std::io::Write;
use std::time::Duration;

use azekura::error::{Error, Result, size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value};

use crate::phase::{Details, Phase, named};

/// Standard output, as a table or as JSON lines.
pub struct Output {
    json: bool,
    rows: u64,
}

impl Output {
    /// Nothing is printed yet.
    pub const fn new(json: bool) -> Self {
        Self { json, rows: 0 }
    }

    /// Prints a phase.
    pub fn phase(&mut self, phase: &Phase) -> Result<()> {
        if self.json {
            return line(&phase.to_json());
        }
        if self.rows == 0 {
            line(&header())?;
        }
        self.rows += 1;
        line(&figures(phase))
    }

    /// Explains the table.
    pub fn finish(self) -> Result<()> {
        if self.json || self.rows == 0 {
            return Ok(());
        }
        line(
            "ns: wall time per operation of all threads; cpu ns: processor time per operation; harness:\n\
             its share that drawing and formatting keys take; memory: growth of resident memory, of\n\
             which private is not backed by the file, and each is that by record; written: bytes that the\n\
             process wrote towards devices, by operation, opening and closing included.",
        )
    }
}

/// The columns of [`figures`].
pub(crate) fn header() -> String {
    format!(
        "{:<13} {:<13} {:>12} {:>9} {:>9} {:>9} {:>10} {:>10} {:>8} {:>10} {:>8} {:>11}  {}",
        "engine",
        "phase",
        "ops/s",
        "ns",
        "cpu ns",
        "harness",
        "memory",
        "private",
        "each",
        "file",
        "written",
        "hits",
        "digest"
    )
}

/// What has a column, and what names the kind of benchmark.
const SHOWN: [&str; 11] = [
    "engine",
    "op",
    "benchmark",
    "ops_per_second",
    "cpu_seconds",
    "memory_bytes",
    "private_bytes",
    "file_bytes",
    "hits",
    "live",
    "digest",
];

/// A row, and below it what has no column.
pub(crate) fn figures(phase: &Phase) -> String {
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), size);
    let tenths = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.1}"));
    let harness = match &phase.details {
        Details::Record(record) => record.harness_ns,
        _ => None,
    };
    let mut text = format!(
        "{:<13} {:<13} {:>12.0} {:>9.1} {:>9.1} {:>9} {:>10} {:>10} {:>8} {:>10} {:>8} {:>11}  {}\n",
        phase.engine,
        phase.op,
        phase.ops_per_second,
        1e9 / phase.ops_per_second,
        phase.cpu_seconds * 1e9 / phase.count as f64,
        tenths(harness),
        bytes(phase.cost.memory_bytes),
        bytes(phase.cost.private_bytes),
        tenths(phase.bytes_per_record()),
        bytes(phase.cost.file_bytes),
        tenths(phase.bytes_written_each()),
        phase
            .hits
            .map_or_else(|| "-".into(), |hits| hits.to_string()),
        phase.digest.as_deref().unwrap_or("-"),
    );
    let mut others = named(phase);
    others.retain(|name, _| !SHOWN.contains(&name.as_str()));
    text += &by_name("", &others);
    if let (Details::Record(record), Some(us)) = (&phase.details, &phase.latency_us) {
        for (what, other) in [
            ("of nothing", &record.latency_none_us),
            ("of a wait", &record.latency_wait_us),
        ] {
            if let Some(other) = other {
                let (mut times, other) = (named(us), named(other));
                for (name, times) in &mut times {
                    let both = times.as_f64().zip(other[name].as_f64());
                    *times = both.map(|(us, other)| us / other).into();
                }
                text += &by_name(&format!("times that {what}"), &times);
            }
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// A line of `name figure` for each, and one more for each group of figures.
pub(crate) fn by_name(of: &str, fields: &Map<String, Value>) -> String {
    let (mut text, mut groups) = (format!("  {of}"), String::new());
    for (name, value) in fields {
        let shown = match value {
            Value::Object(group) => {
                groups += &by_name(name, group);
                continue;
            }
            Value::Number(number) if number.is_f64() => {
                let number = number.as_f64().unwrap_or_default();
                // Four digits at least, of seconds as of operations.
                let digits = match number.abs().log10().ceil() {
                    exponent if exponent.is_finite() => (4.0 - exponent).clamp(0.0, 9.0),
                    _ => 0.0,
                };
                #[expect(clippy::cast_sign_loss, reason = "it is clamped")]
                let digits = digits as usize;
                format!("{number:.digits$}")
            }
            Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        text.extend(["  ", name, " ", &shown]);
    }
    text + "\n" + &groups
}

/// Seconds with a unit.
pub(crate) fn duration(seconds: f64) -> String {
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    format!("{duration:.2?}")
}

/// Prints a line on standard output; `Io` if it cannot be written.
pub fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|e| Error::io("cannot print", e))
}

/// A bar for `count` steps, on standard error if that is a terminal and not `quiet`.
pub fn progress(what: &str, count: u64, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let style = ProgressStyle::with_template("{msg:13} {wide_bar} {human_pos} {per_sec} {eta}")
        .expect("the template is well formed");
    ProgressBar::with_draw_target(Some(count), target)
        .with_style(style)
        .with_message(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Counters, Device};
    use crate::phase::{Class, Cost, Object};

    #[test]
    fn what_has_no_column_stands_below_the_row_by_its_name() {
        let phase = Phase {
            engine: "files".into(),
            op: "put".into(),
            durability: Some(Class::Power),
            count: 4,
            cost: Cost {
                file_bytes: Some(4096),
                device: Device {
                    writes: Some(8),
                    ..Device::default()
                },
                ..Cost::default()
            },
            details: Details::Object(Box::new(Object {
                missing: 2,
                open_seconds: 0.000_012_34,
                store: Some(Counters::default()),
                ..Object::default()
            })),
            ..Phase::default()
        };
        let text = figures(&phase);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for (line, part) in [
            (0, "4 KiB"),
            (
                1,
                "  missing 2  failed 0  open_seconds 0.00001234  threads 0  count 4",
            ),
            (1, "  durability power  "),
            (1, "  device_writes 8"),
            (2, "  store  reads 0  writes 0  syncs 0"),
        ] {
            assert!(lines[line].contains(part), "{part} in {text}");
        }
    }
}
