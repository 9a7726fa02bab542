//! Statistics as JSON: for the status page, and for other programs.
//!
//! ```text
//!   { version, engine, durability, uptime_s, healthy, why, connections_max, slow_ms,
//!     latency: { get: { count, mean_us, p50_us, .. }, .. },
//!     totals: { .. }, columns: [ name, .. ], rows: [ [ number, value or null, .. ], .. ] }
//! ```
//!
//! `rows` are the last seconds, oldest first, in the order of `columns`. It gathers nothing.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::memcached::figures_of;
use crate::memcached::latency::Work;

use super::Snapshot;
use super::history::{Row, WORDS, number};

/// The document. A member that is absent does not apply.
#[derive(Serialize)]
struct Document<'s> {
    version: &'static str,
    engine: &'static str,
    durability: &'s str,
    uptime_s: u64,
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    connections_max: u64,
    slow_ms: u32,
    /// By command, then by figure.
    latency: BTreeMap<&'static str, BTreeMap<String, Value>>,
    totals: Totals,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

/// Counts since the start.
#[derive(Serialize)]
struct Totals {
    hits: u64,
    misses: u64,
    stored: u64,
    received_bytes: u64,
    sent_bytes: u64,
    connections_accepted: u64,
    connections_refused: u64,
    connections_dropped: u64,
    answers_that_waited: u64,
    slow_requests: u64,
    /// By kind.
    errors: BTreeMap<&'static str, u64>,
}

/// A number that was formatted for people.
fn value(text: &str) -> Value {
    text.parse().unwrap_or(Value::Null)
}

/// The document as a line.
pub(super) fn render(shown: &Snapshot<'_>, rows: &[Row]) -> String {
    let figures = &shown.figures;
    let connections = &figures.connections;
    let mut latency: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for work in Work::ALL {
        figures_of(figures.times.of(work), &mut |name, text| {
            let of = latency.entry(work.word()).or_default();
            of.insert(name.to_owned(), value(text));
        });
    }
    let cells = |row: &Row| {
        let values = (0..WORDS.len()).map(|column| row.value(column));
        let values = values.map(|cell| cell.map_or(Value::Null, |cell| value(&number(cell))));
        std::iter::once(row.number.into()).chain(values).collect()
    };
    let unfit = shown.verdict.as_ref().err();
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        engine: shown.engine,
        durability: shown.durability,
        uptime_s: figures.uptime_s,
        healthy: unfit.is_none(),
        why: unfit.map(|unfit| format!("{}: {}", unfit.word, unfit.more)),
        connections_max: figures.connections_max,
        slow_ms: shown.slow_ms,
        latency,
        totals: Totals {
            hits: figures.hits,
            misses: figures.misses,
            stored: figures.stored,
            received_bytes: figures.received_bytes,
            sent_bytes: figures.sent_bytes,
            connections_accepted: connections.accepted,
            connections_refused: connections.refused,
            connections_dropped: connections.dropped,
            answers_that_waited: connections.waited,
            slow_requests: connections.slow,
            errors: figures.errors.iter().copied().collect(),
        },
        columns: std::iter::once("number")
            .chain(WORDS.iter().copied())
            .collect(),
        rows: rows.iter().map(cells).collect(),
    };
    // Maps with names for keys and finite numbers always have a form.
    let text = serde_json::to_string(&document).unwrap_or_default();
    text + "\n"
}
