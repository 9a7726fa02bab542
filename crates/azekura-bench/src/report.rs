//! One shape of result: a JSON object per phase, or a table for people.
//!
//! The names of the fields are the same for every engine and rival; what does not apply is absent.
//! JSON goes to standard output and nothing else does; the progress bar goes to standard error, and
//! only where that is a terminal. It measures nothing.

use std::io::Write;

use azekura::error::{Error, Kind, Result, size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::measure::{Device, Percentiles};
use crate::memcache::Protocol;
use crate::plan::Order;
use azekura::Durability;

/// The result of one phase. Sizes are in bytes, memory is growth since before the first phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The engine's word.
    pub engine: String,
    /// The phase.
    pub op: String,
    /// In which order keys came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Threads.
    pub threads: u64,
    /// Operations of all threads.
    pub count: u64,
    /// Sets that made the store, where its opening is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Bytes of a key.
    pub key_size: u64,
    /// Bytes of a value.
    pub value_size: u64,
    /// Records per call, if more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Connections to a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Requests on the way on each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// What is spoken on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Requests that were due each second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Percent of the gets that looked for a missing key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses: Option<u64>,
    /// Wall time, without opening and closing.
    pub seconds: f64,
    /// Operations of all threads per second of wall time.
    pub ops_per_second: f64,
    /// Bytes of keys and values given and copied, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<f64>,
    /// Processor time of the whole process, background threads included.
    pub cpu_seconds: f64,
    /// Processor time of the server's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_seconds: Option<f64>,
    /// Latency of a call (of a whole batch, if calls are batched).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Percentiles>,
    /// Latency of the first lookup after an open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_get_us: Option<Percentiles>,
    /// Latency of the engine that does nothing, in the same loop, as often, right afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_none_us: Option<Percentiles>,
    /// The same where each of its calls waits for the median of this phase: the noise of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_wait_us: Option<Percentiles>,
    /// Growth of resident memory, file pages included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Growth of private memory that no file backs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_bytes: Option<u64>,
    /// Growth of the most that was ever resident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Records in the store after the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<u64>,
    /// Size of the store's files after it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Bytes these files take on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
    /// Operations that found their record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Requests to read that the store's device completed from opening to closing, of whoever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_reads: Option<u64>,
    /// Requests to write that it completed meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_writes: Option<u64>,
    /// Bytes that this process wrote towards devices meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes_written: Option<u64>,
    /// Requests to make everything durable that the device completed meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syncs: Option<u64>,
    /// What an acknowledged write survived; nothing, if it is absent.
    #[serde(
        with = "azekura_wire::durability",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub durability: Option<Durability>,
    /// A sum over everything read, equal for engines that answered equally.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Processor nanoseconds per operation that are the harness's own; for the table.
    #[serde(skip)]
    pub harness_ns: Option<f64>,
}

impl Phase {
    /// The phase as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a phase has only plain fields")
    }

    /// Private memory per record after the phase, in bytes.
    pub fn bytes_per_record(&self) -> Option<f64> {
        let live = self.live.filter(|live| *live > 0)?;
        Some(self.private_bytes? as f64 / live as f64)
    }

    /// Fills in what the device did.
    pub fn device(&mut self, did: &Device) {
        self.device_reads = did.reads;
        self.device_writes = did.writes;
        self.device_bytes_written = did.bytes_written;
        self.syncs = did.syncs;
    }

    /// A phase from a line of JSON; `Invalid` if it is none.
    pub fn from_json(line: &str) -> Result<Self> {
        read(line)
    }
}

/// A result from a line of JSON; `Invalid` if it is none.
pub(crate) fn read<T: DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line).map_err(|error| {
        Error::new(Kind::Invalid, "not a result")
            .key(line.as_bytes())
            .detail(error.to_string())
    })
}

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
        line(&format!(
            "{:<13} {:>12.0} {:>9.1} {:>9.1} {:>9} {:>10} {:>10} {:>8} {:>10} {:>11}  {}",
            phase.op,
            phase.ops_per_second,
            1e9 / phase.ops_per_second,
            phase.cpu_seconds * 1e9 / phase.count as f64,
            phase
                .harness_ns
                .map_or_else(|| "-".into(), |ns| format!("{ns:.1}")),
            bytes(phase.memory_bytes),
            bytes(phase.private_bytes),
            phase
                .bytes_per_record()
                .map_or_else(|| "-".into(), |each| format!("{each:.1}")),
            bytes(phase.file_bytes),
            phase
                .hits
                .map_or_else(|| "-".into(), |hits| hits.to_string()),
            phase.digest.as_deref().unwrap_or("-"),
        ))?;
        let latency = |of: &str, us: &Percentiles| {
            line(&format!(
                "  {of:<11} us: p50 {:.2}  p90 {:.2}  p99 {:.2}  p99.9 {:.1}  p99.99 {:.1}  max {:.1}",
                us.p50, us.p90, us.p99, us.p999, us.p9999, us.max
            ))
        };
        if let Some(seconds) = phase.server_cpu_seconds {
            line(&format!(
                "  server      us of its processor time per operation: {:.2}",
                seconds * 1e6 / phase.count as f64
            ))?;
        }
        if let Some(us) = &phase.first_get_us {
            latency("first get", us)?;
        }
        if let Some(us) = &phase.latency_us {
            latency("of a call", us)?;
            let others = [
                ("of nothing", &phase.latency_none_us),
                ("of a wait", &phase.latency_wait_us),
            ];
            for (what, other) in others {
                let Some(other) = other else { continue };
                latency(what, other)?;
                line(&format!(
                    "  {:<11} p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  p99.99 {:.1}  max {:.1}",
                    "  times",
                    us.p50 / other.p50,
                    us.p90 / other.p90,
                    us.p99 / other.p99,
                    us.p999 / other.p999,
                    us.p9999 / other.p9999,
                    us.max / other.max
                ))?;
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

/// Prints a line on standard output; `Io` if nobody reads it.
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

    #[test]
    fn a_phase_has_the_documented_names_and_comes_back_from_json() {
        let phase = Phase {
            engine: "hash".into(),
            op: "get-shuffled".into(),
            order: Some(Order::Random),
            threads: 2,
            count: 10,
            key_size: 8,
            value_size: 8,
            seconds: 0.5,
            ops_per_second: 20.0,
            bytes_per_second: Some(160.0),
            cpu_seconds: 0.25,
            memory_bytes: Some(1),
            file_bytes: Some(2),
            hits: Some(10),
            device_writes: Some(3),
            syncs: Some(4),
            durability: Some(Durability::Process),
            digest: Some("00".into()),
            harness_ns: Some(1.0),
            ..Phase::default()
        };
        let json = phase.to_json();
        assert_eq!(
            json,
            "{\"engine\":\"hash\",\"op\":\"get-shuffled\",\"order\":\"random\",\"threads\":2,\"count\":10,\
             \"key_size\":8,\"value_size\":8,\"seconds\":0.5,\"ops_per_second\":20.0,\
             \"bytes_per_second\":160.0,\"cpu_seconds\":0.25,\"memory_bytes\":1,\"file_bytes\":2,\
             \"hits\":10,\"device_writes\":3,\"syncs\":4,\"durability\":\"process\",\"digest\":\"00\"}"
        );
        assert_eq!(Phase::from_json(&json).unwrap().to_json(), json);
        assert_eq!(Phase::from_json("{}").unwrap_err().kind(), Kind::Invalid);
    }
}
