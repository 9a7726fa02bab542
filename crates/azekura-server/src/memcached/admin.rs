//! `stats` and the other commands of operators, for text and binary alike.
//!
//! A group of figures is told as names and values; the protocols frame them. What only the owner of the sockets knows comes
//! from [`Outside`](super::Outside). Our own groups beside memcached's: `engine` (what the engine tells of itself), `log`
//! (where the bytes of its file are), `durability` (what an acknowledged write survives, and what that costs), `latency`
//! (percentiles by command), and from outside `recent` (the last second). `stats detail` counts by the part of a key
//! before the first colon, for 1,024 of them at most; what is not printable in one is told as `%XX`. It knows no framing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use azekura::engine::Durability;

use super::execute::Hand;
use super::latency::{Spread, Work};
use super::number;
use super::service::Service;
use super::stats::WORDS;

/// The version told to clients: the dialect, and who speaks it.
pub(super) const VERSION: &str = concat!("1.6.45-azekura-", env!("CARGO_PKG_VERSION"));

/// The percentiles that are told.
const QUANTILES: [(&str, f64); 5] = [
    ("p50_us", 0.5),
    ("p90_us", 0.9),
    ("p99_us", 0.99),
    ("p999_us", 0.999),
    ("max_us", 1.0),
];

/// Prefixes counted at most.
const PREFIXES_MAX: usize = 1024;

/// What was done with keys of one prefix.
#[derive(Clone, Copy, Debug, Default)]
struct Prefix {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// Counts by prefix, while switched on.
#[derive(Debug, Default)]
pub(super) struct Detail {
    is_on: AtomicBool,
    prefixes: Mutex<BTreeMap<Vec<u8>, Prefix>>,
}

/// What was done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Get { hit: bool },
    Set,
    Delete,
}

impl Detail {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    #[cold]
    pub(super) fn note(&self, key: &[u8], done: Done) {
        let Some(len) = memchr::memchr(b':', key) else {
            return;
        };
        let prefix = key.get(..len).unwrap_or_default();
        let mut prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        if !prefixes.contains_key(prefix) {
            if prefixes.len() >= PREFIXES_MAX {
                return;
            }
            prefixes.insert(prefix.to_vec(), Prefix::default());
        }
        let Some(counts) = prefixes.get_mut(prefix) else {
            return;
        };
        match done {
            Done::Get { hit } => {
                counts.gets += 1;
                counts.hits += u64::from(hit);
            }
            Done::Set => counts.sets += 1,
            Done::Delete => counts.deletes += 1,
        }
    }

    fn dump(&self, output: &mut Vec<u8>) {
        let prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        for (prefix, counts) in &*prefixes {
            output.extend_from_slice(b"PREFIX ");
            number::push_key(output, prefix);
            for (word, count) in [
                ("get", counts.gets),
                ("hit", counts.hits),
                ("set", counts.sets),
                ("del", counts.deletes),
            ] {
                output.push(b' ');
                output.extend_from_slice(word.as_bytes());
                output.push(b' ');
                number::push(output, count);
            }
            output.extend_from_slice(b"\r\n");
        }
    }

    fn clear(&self) {
        let mut prefixes = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        prefixes.clear();
    }
}

/// `stats detail ...`; appends the whole answer.
pub(super) fn detail(service: &Service, word: Option<&[u8]>, output: &mut Vec<u8>) {
    let answer = match word {
        Some(b"on") => {
            service.detail.is_on.store(true, Ordering::Relaxed);
            "OK"
        }
        Some(b"off") => {
            service.detail.is_on.store(false, Ordering::Relaxed);
            "OK"
        }
        Some(b"dump") => {
            service.detail.dump(output);
            "END"
        }
        _ => "CLIENT_ERROR usage: stats detail on|off|dump",
    };
    output.extend_from_slice(answer.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// `stats reset`.
pub(super) fn reset(hand: &mut Hand) {
    hand.service.stats.take(&mut hand.tally);
    hand.service.stats.reset();
    hand.service.latency.reset();
    hand.service.detail.clear();
}

/// Tells the figures of a group, `""` for the general ones. Whether there is such a group.
pub(super) fn figures(hand: &mut Hand, group: &[u8], tell: &mut dyn FnMut(&str, &str)) -> bool {
    let service = &*hand.service;
    service.stats.take(&mut hand.tally);
    match group {
        b"" => general(service, tell),
        b"settings" => settings(service, tell),
        b"items" => {
            let count = service.engine.count();
            if count > 0 {
                tell("items:1:number", &count.to_string());
            }
        }
        b"slabs" => {
            let stats = service.engine.stats();
            tell("active_slabs", "0");
            tell("total_malloced", &stats.memory_bytes.to_string());
        }
        b"sizes" => tell("sizes_status", "disabled"),
        b"engine" => engine(service, tell),
        b"log" => log(service, tell),
        b"durability" => durability(service, tell),
        b"latency" => latency(service, tell),
        b"conns" => outside(service, "conns", tell),
        b"recent" => outside(service, "recent", tell),
        _ => return false,
    }
    true
}

fn outside(service: &Service, group: &str, tell: &mut dyn FnMut(&str, &str)) {
    if let Some(outside) = service.outside() {
        outside.figures(group, tell);
    }
}

fn general(service: &Service, tell: &mut dyn FnMut(&str, &str)) {
    let stats = service.engine.stats();
    tell("pid", &std::process::id().to_string());
    let now = service.now();
    tell("uptime", &service.uptime_s().to_string());
    tell("time", &now.to_string());
    tell("version", VERSION);
    tell("pointer_size", &usize::BITS.to_string());
    outside(service, "", tell);
    for word in WORDS {
        let figure = service.stats.figure(word).unwrap_or(0);
        tell(word, &figure.to_string());
    }
    tell("curr_items", &stats.count.to_string());
    let bytes = stats.live_bytes.max(if stats.live_bytes == 0 {
        stats.memory_bytes
    } else {
        0
    });
    tell("bytes", &bytes.to_string());
    for (name, own) in [("evictions", "evictions"), ("limit_maxbytes", "bytes_max")] {
        tell(name, &more(&stats, own).unwrap_or(0).to_string());
    }
}

fn settings(service: &Service, tell: &mut dyn FnMut(&str, &str)) {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let own = &service.settings;
    tell("item_size_max", &service.item_size_max().to_string());
    tell("cas_enabled", "yes");
    tell("binding_protocol", "auto-negotiate");
    tell("stat_key_prefix", ":");
    tell("detail_enabled", yes(service.detail.is_on()));
    tell(
        "verbosity",
        &service.verbosity.load(Ordering::Relaxed).to_string(),
    );
    tell("auth_enabled_sasl", yes(service.has_passwords()));
    tell("auth_enabled_ascii", yes(service.has_passwords()));
    tell("flush_enabled", yes(own.flush_enabled));
    tell("dump_enabled", yes(own.dump_enabled));
    tell("shutdown_command", yes(own.shutdown_enabled));
    tell("output_max", &own.output_max.to_string());
    outside(service, "settings", tell);
}

fn engine(service: &Service, tell: &mut dyn FnMut(&str, &str)) {
    let (promise, stats) = (service.engine.promise(), service.engine.stats());
    tell("engine", promise.engine);
    tell("survives", survives(service));
    tell("evicts", if promise.evicts { "yes" } else { "no" });
    tell("count", &stats.count.to_string());
    tell("live_bytes", &stats.live_bytes.to_string());
    tell("file_bytes", &stats.file_bytes.to_string());
    tell("memory_bytes", &stats.memory_bytes.to_string());
    for (name, value) in &stats.more {
        tell(name, value);
    }
}

/// What an acknowledged write survives.
fn survives(service: &Service) -> &'static str {
    match service.engine.promise().durability {
        None => "nothing",
        Some(Durability::Power) => "loss of power",
        Some(Durability::Process) if service.settings.power => "loss of power",
        Some(Durability::Process) => "the process",
    }
}

/// A further figure of an engine.
fn more(stats: &azekura::engine::Stats, name: &str) -> Option<u64> {
    let found = stats.more.iter().find(|(known, _)| *known == name)?;
    found.1.parse().ok()
}

fn log(service: &Service, tell: &mut dyn FnMut(&str, &str)) {
    let stats = service.engine.stats();
    // Who has no file has no log.
    if let Some(bytes) = more(&stats, "log_bytes") {
        tell("log_bytes", &bytes.to_string());
        tell("live_bytes", &stats.live_bytes.to_string());
        let garbage = bytes.saturating_sub(stats.live_bytes);
        tell("garbage_bytes", &garbage.to_string());
        tell("file_bytes", &stats.file_bytes.to_string());
    }
}

fn durability(service: &Service, tell: &mut dyn FnMut(&str, &str)) {
    tell("survives", survives(service));
    outside(service, "durability", tell);
    let syncs = more(&service.engine.stats(), "syncs");
    tell("syncs", &syncs.unwrap_or(0).to_string());
    let times = service.latency.times();
    spread(times.of(Work::Sync), "sync", tell);
    for (kind, count) in service.trouble.counts() {
        tell(&format!("errors:{kind}"), &count.to_string());
    }
}

fn latency(service: &Service, tell: &mut dyn FnMut(&str, &str)) {
    let times = service.latency.times();
    for work in Work::ALL {
        spread(times.of(work), work.word(), tell);
    }
}

fn spread(times: &Spread, word: &str, tell: &mut dyn FnMut(&str, &str)) {
    figures_of(times, &mut |name, value| {
        tell(&format!("{word}:{name}"), value);
    });
}

/// How times are spread, in microseconds; nothing if there are none.
pub(crate) fn figures_of(times: &Spread, tell: &mut dyn FnMut(&str, &str)) {
    let count = times.count();
    if count == 0 {
        return;
    }
    let micros = |nanos: f64| format!("{:.1}", nanos / 1e3);
    tell("count", &count.to_string());
    tell("mean_us", &micros(times.nanos() as f64 / count as f64));
    for (name, part) in QUANTILES {
        tell(name, &micros(times.quantile(part) as f64));
    }
}
