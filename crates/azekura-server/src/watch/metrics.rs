//! All metrics of a running server at one moment, gathered for the formats that show them.
//!
//! They are read one after another while requests are served, so they are of nearly one moment. What the system does not
//! report is zero or absent. It knows no format.

use std::path::Path;

use azekura::engine::Stats;

use crate::memcached::Service;
use crate::memcached::latency::Times;
use crate::net::{Connections, Control};

/// The figures of one moment. Counts are since the start, or since they were reset.
pub(super) struct Metrics {
    pub(super) uptime_s: u64,
    /// The engine's own statistics.
    pub(super) engine: Stats,
    /// How long requests took.
    pub(super) times: Times,
    pub(super) connections: Connections,
    pub(super) connections_max: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    /// Records that were stored.
    pub(super) stored: u64,
    /// Records that the cache dropped for others, and such whose time was over.
    pub(super) evicted: u64,
    pub(super) expired: u64,
    /// Logins that failed, and such of them that were refused unseen.
    pub(super) failed_logins: u64,
    pub(super) blocked_logins: u64,
    /// Seconds until the certificate expires, negative after that; `None`: there is none.
    pub(super) certificate_s: Option<i64>,
    /// Failures of the engine, by kind.
    pub(super) errors: Vec<(&'static str, u64)>,
    /// Physical memory of this process.
    pub(super) resident_bytes: u64,
    /// What all threads of this process have computed.
    pub(super) cpu_seconds: f64,
    /// Bytes free on the disk, if records are in a file.
    pub(super) free_bytes: Option<u64>,
}

impl Metrics {
    /// The figures of now. `data` is the folder of the file, if there is one.
    pub(super) fn gather(service: &Service, control: &Control, data: Option<&Path>) -> Self {
        let counted = |name| service.counters().figure(name).unwrap_or(0);
        let (mut evicted, mut expired, mut certificate_s) = (0, 0, None);
        service.owner_figures(&mut |name, value| match name {
            "evictions" => evicted = value.parse().unwrap_or(0),
            "reclaimed" => expired = value.parse().unwrap_or(0),
            "server_cert_expires_in" => certificate_s = value.parse().ok(),
            _ => {}
        });
        Self {
            evicted,
            expired: expired + service.swept(),
            failed_logins: counted("auth_errors"),
            blocked_logins: service.blocked_logins(),
            certificate_s,
            uptime_s: service.uptime_s(),
            engine: service.engine().stats(),
            times: service.latency().times(),
            connections: control.connections(),
            connections_max: control.limits().connections_max,
            hits: counted("get_hits"),
            misses: counted("get_misses"),
            received_bytes: counted("bytes_read"),
            sent_bytes: counted("bytes_written"),
            stored: counted("total_items"),
            errors: service.errors().counts().collect(),
            resident_bytes: resident_bytes(),
            cpu_seconds: cpu_seconds(),
            free_bytes: data.and_then(free_bytes),
        }
    }

    /// A further figure of the engine.
    pub(super) fn more(&self, name: &str) -> Option<u64> {
        let found = self.engine.more.iter().find(|(known, _)| *known == name)?;
        found.1.parse().ok()
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What all threads of this process have computed, for itself and in the system. The system counts the sum exactly, and
/// its parts in ticks: they are reported in the proportion of these.
pub(crate) fn processor_seconds() -> (f64, f64) {
    let sum = cpu_seconds();
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may be anything, the 12th and the 13th word.
    let words = line
        .rsplit_once(')')
        .map_or("", |(_, words)| words)
        .split_whitespace();
    let mut ticks = words.skip(11).map(|word| word.parse().unwrap_or(0.0));
    let (user, system): (f64, f64) = (ticks.next().unwrap_or(0.0), ticks.next().unwrap_or(0.0));
    let all = user + system;
    let part = if all > 0.0 { user / all } else { 1.0 };
    (sum * part, sum * (1.0 - part))
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
