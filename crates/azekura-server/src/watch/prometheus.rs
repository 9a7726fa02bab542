//! Metrics in the Prometheus text format.
//!
//! Each metric has a help and a type before its samples. Counters may fall to zero after `stats reset`, which readers
//! take for a restart. Times are histograms of octaves, in seconds. It gathers nothing.

use std::fmt::{Display, Write as _};

use crate::memcached::latency::{Spread, Work};
use crate::net::Dropped;

use super::Snapshot;
use super::metrics::Metrics;

/// The media type of the format.
pub(super) const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text of metrics that is being written.
struct Text(String);

impl Text {
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample; `labels` is empty, or what stands in the braces.
    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, "gauge", help);
        self.sample(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, "counter", help);
        self.sample(name, "", value);
    }

    /// The samples of a histogram.
    fn spread(&mut self, name: &str, label: &str, times: &Spread) {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let comma = if label.is_empty() { "" } else { "," };
        let bucket = format!("{name}_bucket");
        for (nanos, below) in times.octaves() {
            let end = seconds(nanos);
            self.sample(&bucket, &format!("{label}{comma}le=\"{end}\""), below);
        }
        let count = times.count();
        self.sample(&bucket, &format!("{label}{comma}le=\"+Inf\""), count);
        self.sample(&format!("{name}_sum"), label, seconds(times.nanos()));
        self.sample(&format!("{name}_count"), label, count);
    }
}

/// A label and its value.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name}=\"{}\"", value.replace('\n', "\\n"))
}

/// The document.
pub(super) fn render(shown: &Snapshot<'_>) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    identity(&mut text, shown);
    let figures = &shown.figures;
    times(&mut text, figures);
    counters(&mut text, figures);
    gauges(&mut text, figures);
    file(&mut text, figures);
    text.0
}

/// Identity and health.
fn identity(text: &mut Text, shown: &Snapshot<'_>) {
    let figures = &shown.figures;
    text.begin(
        "azekura_info",
        "gauge",
        "Version, engine and durability; always 1.",
    );
    let labels = [
        label("version", env!("CARGO_PKG_VERSION")),
        label("engine", shown.engine),
        label("durability", shown.durability),
    ];
    text.sample("azekura_info", &labels.join(","), 1);
    let fit = u8::from(shown.verdict.is_ok());
    text.gauge(
        "azekura_healthy",
        "Whether the server is healthy: 1 or 0.",
        fit,
    );
    text.gauge(
        "azekura_uptime_seconds",
        "Time since the start.",
        figures.uptime_s,
    );
}

/// How long requests and syncs took.
fn times(text: &mut Text, figures: &Metrics) {
    let name = "azekura_request_seconds";
    let help =
        "Time from waking for requests until they are answered, by command; a get counts each key.";
    text.begin(name, "histogram", help);
    for work in Work::ALL.into_iter().filter(|work| *work != Work::Sync) {
        text.spread(name, &label("command", work.word()), figures.times.of(work));
    }
    let name = "azekura_sync_seconds";
    text.begin(name, "histogram", "Time of syncs that answers waited for.");
    text.spread(name, "", figures.times.of(Work::Sync));
}

/// What only grows.
fn counters(text: &mut Text, figures: &Metrics) {
    let connections = &figures.connections;
    let name = "azekura_reads_total";
    text.begin(name, "counter", "Keys that were looked up.");
    text.sample(name, &label("result", "hit"), figures.hits);
    text.sample(name, &label("result", "miss"), figures.misses);
    let name = "azekura_errors_total";
    text.begin(name, "counter", "Failures of the engine, by kind.");
    for (kind, count) in &figures.errors {
        text.sample(name, &label("kind", kind), count);
    }
    let name = "azekura_connections_dropped_total";
    text.begin(
        name,
        "counter",
        "Connections dropped by the server, by reason.",
    );
    for (why, count) in Dropped::ALL.iter().zip(connections.dropped_for) {
        text.sample(name, &label("reason", why.word()), count);
    }
    for (name, help, value) in [
        (
            "azekura_evicted_total",
            "Records that the cache dropped for others.",
            figures.evicted,
        ),
        (
            "azekura_expired_total",
            "Expired records that were removed.",
            figures.expired,
        ),
        (
            "azekura_login_failures_total",
            "Logins that failed.",
            figures.failed_logins,
        ),
        (
            "azekura_logins_blocked_total",
            "Logins refused as their address had failed too often.",
            figures.blocked_logins,
        ),
        (
            "azekura_connections_refused_by_address_total",
            "Connections refused, as their address had too many.",
            connections.refused_address,
        ),
        (
            "azekura_handshakes_failed_total",
            "Handshakes of TLS that failed.",
            connections.handshakes_failed,
        ),
        (
            "azekura_stored_total",
            "Records that were stored.",
            figures.stored,
        ),
        (
            "azekura_received_bytes_total",
            "Bytes of requests.",
            figures.received_bytes,
        ),
        (
            "azekura_sent_bytes_total",
            "Bytes of answers.",
            figures.sent_bytes,
        ),
        (
            "azekura_answers_waited_total",
            "Times a connection waited for a sync before it was answered.",
            connections.waited,
        ),
        (
            "azekura_slow_requests_total",
            "Requests that took as long as slow-ms.",
            connections.slow,
        ),
        (
            "azekura_connections_accepted_total",
            "Connections accepted.",
            connections.accepted,
        ),
        (
            "azekura_connections_refused_total",
            "Connections refused because there were too many.",
            connections.refused,
        ),
    ] {
        text.counter(name, help, value);
    }
}

/// What there is now.
fn gauges(text: &mut Text, figures: &Metrics) {
    let (engine, connections) = (&figures.engine, &figures.connections);
    for (name, help, value) in [
        ("azekura_connections", "Connections open.", connections.open),
        (
            "azekura_connections_max",
            "Most connections at once.",
            figures.connections_max,
        ),
        ("azekura_records", "Records present.", engine.count),
        (
            "azekura_engine_memory_bytes",
            "Memory the engine holds.",
            engine.memory_bytes,
        ),
        (
            "process_resident_memory_bytes",
            "Physical memory of the process.",
            figures.resident_bytes,
        ),
    ] {
        text.gauge(name, help, value);
    }
    text.gauge(
        "azekura_connection_buffer_bytes",
        "Bytes of unfinished requests and unread answers.",
        connections.held_bytes,
    );
    if let Some(seconds) = figures.certificate_s {
        text.gauge(
            "azekura_certificate_expires_seconds",
            "Time until the certificate expires; negative after that.",
            seconds,
        );
    }
    let cpu = figures.cpu_seconds;
    text.counter("process_cpu_seconds_total", "CPU time of all threads.", cpu);
}

/// What only engines in a file have.
fn file(text: &mut Text, figures: &Metrics) {
    let engine = &figures.engine;
    if engine.file_bytes > 0 {
        let help = "Size of the file.";
        text.gauge("azekura_file_bytes", help, engine.file_bytes);
        let help = "Bytes of the file that hold present records.";
        text.gauge("azekura_live_bytes", help, engine.live_bytes);
    }
    for (name, own, kind, help) in [
        (
            "azekura_log_bytes",
            "log_bytes",
            "gauge",
            "Bytes of the log, live or not.",
        ),
        (
            "azekura_syncs_total",
            "syncs",
            "counter",
            "Syncs of the file.",
        ),
        (
            "azekura_damaged_places",
            "damaged_places",
            "gauge",
            "Places of the file that are known to be damaged.",
        ),
    ] {
        if let Some(value) = figures.more(own) {
            text.begin(name, kind, help);
            text.sample(name, "", value);
        }
    }
    if let Some(bytes) = figures.free_bytes {
        text.gauge(
            "azekura_free_bytes",
            "Free space on the file system of the data file.",
            bytes,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_label_is_escaped() {
        assert_eq!(label("a", "b\\c\"d\ne"), "a=\"b\\\\c\\\"d\\ne\"");
    }
}
