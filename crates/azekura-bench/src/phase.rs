//! The result of one phase of any benchmark: a header that all share, what it cost, and what only its kind has.
//!
//! It is one JSON object a line, and the same field has the same name and meaning in every benchmark; a field that does
//! not apply is absent. `benchmark` names the kind. Sizes are in bytes, and memory is growth since before the first
//! phase. It measures nothing and prints nothing.

use std::path::Path;

use azekura::Durability;
use azekura::error::{Error, Kind, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::forget::Forgot;
use crate::measure::{self, Calls, Counters, Device, Memory, Percentiles};
use crate::memcache::Protocol;
use crate::object::summary::Summary;
use crate::plan::Order;
use crate::words::word;

/// What an acknowledged change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing: the store has no file
    None,
    /// The death of the process, but for the last few changes
    Buffered,
    /// The death of the process
    Process,
    /// Loss of power: every change waits for the device
    Power,
}

impl From<Durability> for Class {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Process => Self::Process,
            Durability::Power => Self::Power,
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&word(self))
    }
}

/// The result of one phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    /// The engine's or the store's word.
    pub engine: String,
    /// The phase.
    pub op: String,
    /// Its kind of benchmark, and what only that has.
    #[serde(flatten)]
    pub details: Details,
    /// Threads, or operations outstanding at most.
    pub threads: u64,
    /// Operations of all threads.
    pub count: u64,
    /// Bytes of a key, if all have as many.
    pub key_size: Option<u64>,
    /// Bytes of a value, if all have as many.
    pub value_size: Option<u64>,
    /// What an acknowledged write survived; absent for what has no file.
    pub durability: Option<Class>,
    /// Wall time, without opening and closing.
    pub seconds: f64,
    /// Operations of all threads per second of wall time.
    pub ops_per_second: f64,
    /// Bytes of keys and values per second.
    pub bytes_per_second: Option<f64>,
    /// Processor time of the whole process, background threads included.
    pub cpu_seconds: f64,
    /// Latency of a call, or of a whole batch.
    pub latency_us: Option<Percentiles>,
    /// Operations that found their record or object.
    pub hits: Option<u64>,
    /// Records in the store after the phase.
    pub live: Option<u64>,
    /// A sum over everything read, equal for engines that answered equally.
    pub digest: Option<String>,
    /// What it took.
    #[serde(flatten)]
    pub cost: Cost,
}

/// What only one kind of benchmark has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "benchmark", rename_all = "kebab-case")]
pub enum Details {
    /// Phases of equal calls on an engine.
    Record(Record),
    /// Opening a store.
    Open(Open),
    /// A cache over a trace.
    Cache(Cache),
    /// The load of a server.
    Memcache(Memcache),
    /// A store of large values.
    Object(Box<Object>),
    /// Nothing besides the header.
    #[default]
    Plain,
}

/// What only `record` has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The order of the keys.
    pub order: Order,
    /// Records per call, if more than one.
    pub batch: Option<u64>,
    /// Percent of the gets that looked for a missing key.
    pub misses: Option<u64>,
    /// Bytes of the page cache, if they were stated.
    pub cache: Option<u64>,
    /// Bytes of memory that the process had, page cache of the system included, if they were limited.
    pub memory_limit: Option<u64>,
    /// Whether the phase ran once before it was measured.
    pub warm: Option<bool>,
    /// Whether the system's cache had nothing of the store when the phase began.
    pub cold: Option<bool>,
    /// Latency of the engine that does nothing, in the same loop, as often, right afterwards.
    pub latency_none_us: Option<Percentiles>,
    /// The same where each of its calls waits for the median of this phase: the noise of the machine.
    pub latency_wait_us: Option<Percentiles>,
    /// Processor nanoseconds per operation that are the harness's own; for the table.
    #[serde(skip)]
    pub harness_ns: Option<f64>,
}

/// What only `open` has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Open {
    /// Sets that made the store.
    pub records: u64,
    /// Latency of the first lookup after an open.
    pub first_get_us: Option<Percentiles>,
}

/// What only `cache` has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cache {
    /// Records it could hold.
    pub capacity: u64,
    /// Lookups that found their key, of all, in percent.
    pub hit_percent: f64,
}

/// What only `memcache` has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Memcache {
    /// The order of the keys.
    pub order: Order,
    /// Distinct keys.
    pub records: u64,
    /// Records per request, if more than one.
    pub batch: Option<u64>,
    /// Connections to the server.
    pub connections: u64,
    /// Requests in flight on each of them.
    pub depth: u64,
    /// Their protocol.
    pub protocol: Protocol,
    /// Requests that were due each second.
    pub rate: Option<u64>,
    /// Processor time of the server's process.
    pub server_cpu_seconds: Option<f64>,
}

/// What only `object` has.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Object {
    /// Operations that were due each second.
    pub rate: Option<f64>,
    /// Gets and removals that found no object; they and what failed are no part of rates and latencies.
    pub missing: u64,
    /// Operations that the store refused.
    pub failed: u64,
    /// What the system dropped from its caches before.
    pub cold: Option<Forgot>,
    /// How long that took, before anything that is counted here.
    pub forget_seconds: Option<f64>,
    /// How long the sync at the end took, which is no part of `seconds`.
    pub sync_seconds: Option<f64>,
    /// How long the opening call took.
    pub open_seconds: f64,
    /// From before the opening call to the first value.
    pub first_get_seconds: Option<f64>,
    /// From the start of a process to its end, where a whole one was started to open the store.
    pub process_seconds: Option<f64>,
    /// Reads, writes and syncs that the store itself counted.
    pub store: Option<Counters>,
    /// Calls of this process to the system, for any store.
    pub calls: Option<Calls>,
    /// The published tool's figures.
    pub summary: Option<Summary>,
}

/// What a phase took besides time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Growth of resident memory, file pages included.
    pub memory_bytes: Option<u64>,
    /// Growth of private memory that no file backs.
    pub private_bytes: Option<u64>,
    /// Growth of the most that was ever resident.
    pub peak_bytes: Option<u64>,
    /// Size of the store's files after it was closed.
    pub file_bytes: Option<u64>,
    /// Bytes these files take on the device.
    pub allocated_bytes: Option<u64>,
    /// What the store's device did.
    #[serde(flatten)]
    pub device: Device,
}

impl Cost {
    /// Fills in the growth of memory from `before` to `now`.
    pub fn memory(&mut self, before: Option<Memory>, now: Option<Memory>) {
        if let (Some(before), Some(now)) = (before, now) {
            self.memory_bytes = Some(now.resident.saturating_sub(before.resident));
            self.private_bytes = Some(now.private.saturating_sub(before.private));
            self.peak_bytes = Some(now.peak.saturating_sub(before.resident));
        }
    }

    /// Fills in the size of the store's files.
    pub fn files(&mut self, path: &Path) -> Result<()> {
        let (size, allocated) = measure::file_bytes(path)?;
        (self.file_bytes, self.allocated_bytes) = (Some(size), Some(allocated));
        Ok(())
    }
}

/// Shows phases, as they are there, to the function that it is given.
type Shown<'r> = dyn FnMut(Phase) -> Result<()> + 'r;

/// The phases that `run` shows.
pub fn collect(run: impl FnOnce(&mut Shown<'_>) -> Result<()>) -> Result<Vec<Phase>> {
    let mut phases = Vec::new();
    run(&mut |phase| {
        phases.push(phase);
        Ok(())
    })?;
    Ok(phases)
}

/// The fields of a result by name, but for those that do not apply.
pub(crate) fn named(result: &impl Serialize) -> Map<String, Value> {
    let fields = serde_json::to_value(result).expect("a result has only plain fields");
    let fields = fields.as_object().cloned().unwrap_or_default();
    let there = fields.into_iter().filter(|(_, value)| !value.is_null());
    there.collect()
}

impl Phase {
    /// The phase as one line of JSON.
    pub fn to_json(&self) -> String {
        Value::from(named(self)).to_string()
    }

    /// A phase from a line of JSON; `Invalid` if it is none.
    pub fn from_json(line: &str) -> Result<Self> {
        serde_json::from_str(line).map_err(|error| {
            Error::new(Kind::Invalid, "not a result")
                .key(line.as_bytes())
                .detail(error.to_string())
        })
    }

    /// Private memory per record after the phase, in bytes.
    pub fn bytes_per_record(&self) -> Option<f64> {
        let live = self.live.filter(|live| *live > 0)?;
        Some(self.cost.private_bytes? as f64 / live as f64)
    }

    /// Bytes that the process wrote towards devices, for each operation, opening and closing included.
    pub fn bytes_written_each(&self) -> Option<f64> {
        let written = self.cost.device.process_bytes_written?;
        (self.count > 0).then(|| written as f64 / self.count as f64)
    }

    /// Processor seconds of what was measured: of the server, where there is one, otherwise of this process.
    pub fn cpu(&self) -> Option<f64> {
        match &self.details {
            Details::Memcache(memcache) => memcache.server_cpu_seconds,
            _ => Some(self.cpu_seconds),
        }
    }

    /// Operations a second, as they are compared: of objects, where one was outstanding at a time, those of the sum of
    /// latencies, as published; of a load, openings.
    pub fn rate(&self) -> f64 {
        match self.object() {
            None => self.ops_per_second,
            Some(object) => match &object.summary {
                Some(summary) if self.threads == 1 => summary.ops,
                Some(summary) => summary.done() as f64 / summary.wall.max(1e-9),
                None => 1.0 / object.open_seconds.max(1e-9),
            },
        }
    }

    /// The published tool's figures, if it is one of `object` that has them.
    pub fn summary(&self) -> Option<&Summary> {
        self.object()?.summary.as_ref()
    }

    /// The fields of `object`, if it is one of those.
    pub fn object(&self) -> Option<&Object> {
        match &self.details {
            Details::Object(object) => Some(object),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::summary::Tally;

    #[test]
    fn phases_have_the_documented_names_and_come_back_from_json() {
        let phase = Phase {
            engine: "hash".into(),
            op: "get-shuffled".into(),
            threads: 2,
            count: 10,
            key_size: Some(8),
            value_size: Some(8),
            seconds: 0.5,
            ops_per_second: 20.0,
            bytes_per_second: Some(160.0),
            cpu_seconds: 0.25,
            hits: Some(10),
            durability: Some(Class::Process),
            digest: Some("00".into()),
            cost: Cost {
                memory_bytes: Some(1),
                device: Device {
                    writes: Some(3),
                    syncs: Some(4),
                    ..Device::default()
                },
                ..Cost::default()
            },
            details: Details::Record(Record {
                order: Order::Random,
                harness_ns: Some(1.0),
                ..Record::default()
            }),
            ..Phase::default()
        };
        let json = phase.to_json();
        assert_eq!(
            json,
            "{\"engine\":\"hash\",\"op\":\"get-shuffled\",\"benchmark\":\"record\",\"order\":\"random\",\
             \"threads\":2,\"count\":10,\"key_size\":8,\"value_size\":8,\"durability\":\"process\",\
             \"seconds\":0.5,\"ops_per_second\":20.0,\"bytes_per_second\":160.0,\"cpu_seconds\":0.25,\
             \"hits\":10,\"digest\":\"00\",\"memory_bytes\":1,\"device_writes\":3,\"syncs\":4}"
        );
        assert_eq!(Phase::from_json(&json).unwrap().to_json(), json);
        assert_eq!(Phase::from_json("{}").unwrap_err().kind(), Kind::Invalid);
        let details = [
            Details::Open(Open::default()),
            Details::Cache(Cache::default()),
            Details::Memcache(Memcache::default()),
            Details::Object(Box::new(Object {
                cold: Some(Forgot::Pages),
                store: Some(Counters::default()),
                calls: Some(Calls::default()),
                summary: Some(Tally::default().finish(None)),
                ..Object::default()
            })),
            Details::Plain,
        ];
        for details in details {
            let phase = Phase {
                details,
                ..Phase::default()
            };
            let json = phase.to_json();
            assert!(!json.contains("null"), "{json}");
            assert_eq!(Phase::from_json(&json).unwrap().to_json(), json);
        }
    }
}
