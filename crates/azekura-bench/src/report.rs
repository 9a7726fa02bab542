//! What is printed: phases as JSON lines or as a table, and progress.
//!
//! JSON goes to standard output and nothing else does; the progress bar goes to standard error, and only if that is a
//! terminal. Phases of objects have a table of their own (`object/lines.rs`). It measures nothing.

use std::io::Write;

use azekura::error::{Error, Result, size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::measure::Percentiles;
use crate::phase::{Details, Phase};

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
            line(&format!(
                "{:<13} {:>12} {:>9} {:>9} {:>9} {:>10} {:>10} {:>8} {:>10} {:>11}  {}",
                "phase",
                "ops/s",
                "ns",
                "cpu ns",
                "harness",
                "memory",
                "private",
                "each",
                "file",
                "hits",
                "digest"
            ))?;
        }
        self.rows += 1;
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), size);
        let tenths = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.1}"));
        let harness = match &phase.details {
            Details::Record(record) => record.harness_ns,
            _ => None,
        };
        line(&format!(
            "{:<13} {:>12.0} {:>9.1} {:>9.1} {:>9} {:>10} {:>10} {:>8} {:>10} {:>11}  {}",
            phase.op,
            phase.ops_per_second,
            1e9 / phase.ops_per_second,
            phase.cpu_seconds * 1e9 / phase.count as f64,
            tenths(harness),
            bytes(phase.cost.memory_bytes),
            bytes(phase.cost.private_bytes),
            tenths(phase.bytes_per_record()),
            bytes(phase.cost.file_bytes),
            phase
                .hits
                .map_or_else(|| "-".into(), |hits| hits.to_string()),
            phase.digest.as_deref().unwrap_or("-"),
        ))?;
        match &phase.details {
            Details::Memcache(memcache) => {
                if let Some(seconds) = memcache.server_cpu_seconds {
                    line(&format!(
                        "  server      us of its processor time per operation: {:.2}",
                        seconds * 1e6 / phase.count as f64
                    ))?;
                }
            }
            Details::Open(open) => latency("first get", open.first_get_us.as_ref())?,
            _ => {}
        }
        latency("of a call", phase.latency_us.as_ref())?;
        if let (Details::Record(record), Some(us)) = (&phase.details, &phase.latency_us) {
            for (what, other) in [
                ("of nothing", &record.latency_none_us),
                ("of a wait", &record.latency_wait_us),
            ] {
                latency(what, other.as_ref())?;
                if let Some(other) = other {
                    let times = us.zip(other, |us, other| us / other);
                    line(&format!("  {:<11} {}", "  times", percentiles(&times, 1)))?;
                }
            }
        }
        Ok(())
    }

    /// Explains the table.
    pub fn finish(self) -> Result<()> {
        if self.json || self.rows == 0 {
            return Ok(());
        }
        line(
            "ns: wall time per operation of all threads; cpu ns: processor time per operation; harness:\n\
             its share that drawing and formatting keys take; memory: growth of resident memory, of\n\
             which private is not backed by the file, and each is that by record.",
        )
    }
}

fn latency(of: &str, us: Option<&Percentiles>) -> Result<()> {
    us.map_or(Ok(()), |us| {
        line(&format!("  {of:<11} us: {}", percentiles(us, 2)))
    })
}

fn percentiles(us: &Percentiles, digits: usize) -> String {
    format!(
        "p50 {:.digits$}  p90 {:.digits$}  p99 {:.digits$}  p99.9 {:.1}  p99.99 {:.1}  max {:.1}",
        us.p50, us.p90, us.p99, us.p999, us.p9999, us.max
    )
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
