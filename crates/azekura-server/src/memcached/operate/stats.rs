//! The command `stats`, for text and binary alike.
//!
//! A group is reported as names and values; the protocols frame them. What only the owner of the sockets knows comes
//! from [`Outside`](crate::memcached::Outside). Our own groups besides memcached's: `engine` (the engine's own statistics), `log`
//! (where the bytes of its file are), `durability` (what an acknowledged write survives, and what that costs), `latency`
//! (percentiles by command), and from outside `recent` (the last second). All items are of one class, 1. A statistic of
//! memcached's is reported where it has a true value here; those of its classes, queues and buffers are not. It knows no
//! framing.

use std::sync::atomic::Ordering;

use azekura::engine::{Durability, Stats};

use crate::memcached::command::executor::Executor;
use crate::memcached::operate::counters::WORDS;
use crate::memcached::operate::latency::{Spread, Work};
use crate::memcached::operate::watchers::DETAIL;
use crate::memcached::service::Service;

/// The version that clients see: memcached's, whose protocol this is, and azekura's.
pub(crate) const VERSION: &str = concat!("1.6.45-azekura-", env!("CARGO_PKG_VERSION"));

/// Statistics of a slab class besides its memory.
const CLASS_WORDS: [&str; 8] = [
    "get_hits",
    "cmd_set",
    "delete_hits",
    "incr_hits",
    "decr_hits",
    "cas_hits",
    "cas_badval",
    "touch_hits",
];

/// The percentiles that are reported.
const QUANTILES: [(&str, f64); 5] = [
    ("p50_us", 0.5),
    ("p90_us", 0.9),
    ("p99_us", 0.99),
    ("p999_us", 0.999),
    ("max_us", 1.0),
];

/// `stats reset`.
pub(crate) fn reset(executor: &mut Executor) {
    executor.service.counters.take(&mut executor.tally);
    executor.service.counters.reset();
    executor.service.latency.reset();
    executor.service.sweeps.reset();
    executor.service.key_stats.clear();
}

/// Reports the statistics of a group, `""` for the general ones. Returns whether there is such a group.
pub(crate) fn figures(
    executor: &mut Executor,
    group: &[u8],
    report: &mut dyn FnMut(&str, &str),
) -> bool {
    let service = &*executor.service;
    service.counters.take(&mut executor.tally);
    match group {
        b"" => general(service, report),
        b"settings" => settings(service, report),
        b"items" => items(service, report),
        b"slabs" => slabs(service, report),
        // In packets; in lines they are counted by a walk.
        b"sizes" => report("sizes_status", "disabled"),
        b"engine" => engine(service, report),
        b"log" => log(service, report),
        b"durability" => durability(service, report),
        b"latency" => latency(service, report),
        b"conns" => service.clients.report(service.now(), report),
        b"recent" => outside(service, "recent", report),
        _ => return false,
    }
    true
}

fn outside(service: &Service, group: &str, report: &mut dyn FnMut(&str, &str)) {
    if let Some(outside) = service.outside() {
        outside.figures(group, report);
    }
}

fn general(service: &Service, report: &mut dyn FnMut(&str, &str)) {
    let stats = service.engine.stats();
    report("pid", &std::process::id().to_string());
    let now = service.now();
    report("uptime", &service.uptime_s().to_string());
    report("time", &now.to_string());
    report("version", VERSION);
    report("pointer_size", &usize::BITS.to_string());
    outside(service, "", report);
    for word in WORDS {
        let figure = service.counters.figure(word).unwrap_or(0);
        report(word, &figure.to_string());
    }
    report("curr_items", &stats.count.to_string());
    report("bytes", &held(&stats).to_string());
    // Where records are in a file, the memory that an engine reports is that of its index.
    let index = more(&stats, "index_memory_bytes").unwrap_or(stats.memory_bytes);
    report("hash_bytes", &index.to_string());
    report("limit_maxbytes", &limit(service, &stats).to_string());
    let damage = damage(service);
    if !damage.is_empty() {
        report("damaged_places", &damage.len().to_string());
        let is_read_only = damage.iter().any(|place| place.affects.is_unbounded());
        report("read_only", if is_read_only { "yes" } else { "no" });
    }
    let crawled = &mut |name: &str, figure: u64| report(name, &figure.to_string());
    service.sweeps.report(crawled);
    service.watchers.figures(crawled);
}

/// What of the file is known to be damaged.
fn damage(service: &Service) -> Vec<azekura::Damage> {
    let file = service.engine.as_persistent();
    file.map(azekura::Persistent::damage).unwrap_or_default()
}

/// Bytes of records.
fn held(stats: &Stats) -> u64 {
    match stats.live_bytes {
        0 => stats.memory_bytes,
        bytes => bytes,
    }
}

/// Most bytes there may be; 0: any.
fn limit(service: &Service, stats: &Stats) -> u64 {
    more(stats, "bytes_max").unwrap_or(service.settings.bytes_max)
}

/// The class of all items.
fn items(service: &Service, report: &mut dyn FnMut(&str, &str)) {
    let stats = service.engine.stats();
    if stats.count == 0 {
        return;
    }
    let class =
        &mut |name: &str, figure: u64| report(&format!("items:1:{name}"), &figure.to_string());
    class("number", stats.count);
    class("mem_requested", held(&stats));
    let refused = service.counters.figure("store_no_memory").unwrap_or(0);
    class("outofmemory", refused);
    service.sweeps.report(&mut |name, figure| {
        if name.starts_with("crawler_") {
            class(name, figure);
        }
    });
    outside(service, "items", &mut |name, value| {
        report(&format!("items:1:{name}"), value);
    });
}

/// The slab class of all items: it has no pages and no chunks of one size.
fn slabs(service: &Service, report: &mut dyn FnMut(&str, &str)) {
    let stats = service.engine.stats();
    let is_used = stats.count > 0;
    if is_used {
        report("1:used_chunks", &stats.count.to_string());
        report("1:mem_requested", &held(&stats).to_string());
        for word in CLASS_WORDS {
            let figure = service.counters.figure(word).unwrap_or(0);
            report(&format!("1:{word}"), &figure.to_string());
        }
    }
    report("active_slabs", if is_used { "1" } else { "0" });
    report("total_malloced", &stats.memory_bytes.to_string());
}

fn settings(service: &Service, report: &mut dyn FnMut(&str, &str)) {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let own = &service.settings;
    let promise = service.engine.promise();
    let maxbytes = limit(service, &service.engine.stats());
    let verbosity = service.verbosity.load(Ordering::Relaxed);
    for (name, value) in [
        ("maxbytes", maxbytes.to_string().as_str()),
        ("verbosity", &verbosity.to_string()),
        ("evictions", if promise.evicts { "on" } else { "off" }),
        ("shutdown_command", yes(own.shutdown_enabled)),
        ("stat_key_prefix", ":"),
        ("detail_enabled", yes(service.watchers.want(DETAIL))),
        ("cas_enabled", "yes"),
        ("binding_protocol", "auto-negotiate"),
        ("auth_enabled_sasl", yes(service.has_passwords())),
        ("auth_enabled_ascii", yes(service.has_passwords())),
        ("item_size_max", &service.item_size_max().to_string()),
        ("slab_reassign", "no"),
        ("slab_automove", "0"),
        ("lru_crawler", yes(service.sweeps.is_on())),
        ("flush_enabled", yes(own.flush_enabled)),
        ("dump_enabled", yes(own.dump_enabled)),
        ("lru_maintainer_thread", "no"),
        ("lru_segmented", "no"),
        ("temp_lru", "no"),
        ("track_sizes", "yes"),
        ("client_flags_size", "4"),
        ("output_max", &own.output_max.to_string()),
    ] {
        report(name, value);
    }
    outside(service, "settings", report);
}

fn engine(service: &Service, report: &mut dyn FnMut(&str, &str)) {
    let (promise, stats) = (service.engine.promise(), service.engine.stats());
    report("engine", promise.engine);
    report("survives", survives(service));
    report("evicts", if promise.evicts { "yes" } else { "no" });
    report("count", &stats.count.to_string());
    report("live_bytes", &stats.live_bytes.to_string());
    report("file_bytes", &stats.file_bytes.to_string());
    report("memory_bytes", &stats.memory_bytes.to_string());
    for (name, value) in &stats.more {
        report(name, value);
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
fn more(stats: &Stats, name: &str) -> Option<u64> {
    let found = stats.more.iter().find(|(known, _)| *known == name)?;
    found.1.parse().ok()
}

fn log(service: &Service, report: &mut dyn FnMut(&str, &str)) {
    let stats = service.engine.stats();
    // Without a file there is no log.
    if let Some(bytes) = more(&stats, "log_bytes") {
        report("log_bytes", &bytes.to_string());
        report("live_bytes", &stats.live_bytes.to_string());
        let garbage = bytes.saturating_sub(stats.live_bytes);
        report("garbage_bytes", &garbage.to_string());
        report("file_bytes", &stats.file_bytes.to_string());
    }
}

fn durability(service: &Service, report: &mut dyn FnMut(&str, &str)) {
    report("survives", survives(service));
    outside(service, "durability", report);
    let syncs = more(&service.engine.stats(), "syncs");
    report("syncs", &syncs.unwrap_or(0).to_string());
    let times = service.latency.times();
    spread(times.of(Work::Sync), "sync", report);
    for (kind, count) in service.errors.counts() {
        report(&format!("errors:{kind}"), &count.to_string());
    }
}

fn latency(service: &Service, report: &mut dyn FnMut(&str, &str)) {
    let times = service.latency.times();
    for work in Work::ALL {
        spread(times.of(work), work.word(), report);
    }
}

fn spread(times: &Spread, word: &str, report: &mut dyn FnMut(&str, &str)) {
    figures_of(times, &mut |name, value| {
        report(&format!("{word}:{name}"), value);
    });
}

/// How times are spread, in microseconds; nothing if there are none.
pub(crate) fn figures_of(times: &Spread, report: &mut dyn FnMut(&str, &str)) {
    let count = times.count();
    if count == 0 {
        return;
    }
    let micros = |nanos: f64| format!("{:.1}", nanos / 1e3);
    report("count", &count.to_string());
    report("mean_us", &micros(times.nanos() as f64 / count as f64));
    for (name, part) in QUANTILES {
        report(name, &micros(times.quantile(part) as f64));
    }
}

/// `stats detail ...`; appends the whole answer.
pub(crate) fn detail(service: &Service, word: Option<&[u8]>, output: &mut Vec<u8>) {
    let answer = match word {
        Some(b"on") => {
            service.watchers.set_detail(true);
            "OK"
        }
        Some(b"off") => {
            service.watchers.set_detail(false);
            "OK"
        }
        Some(b"dump") => {
            service.key_stats.dump(output);
            "END"
        }
        _ => "CLIENT_ERROR usage: stats detail on|off|dump",
    };
    output.extend_from_slice(answer.as_bytes());
    output.extend_from_slice(b"\r\n");
}
