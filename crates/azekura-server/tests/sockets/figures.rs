//! The statistics of a running server over its own protocol: how long requests took, what syncs were shared.
//!
//! Counts are asserted, times are not: only that they are there, and in order.
//! It knows the names of figures as users do.

use std::io::{Read, Write};

use azekura_server::config::{Config, DurabilityLevel, Engine};

use crate::running::{Running, ask, folder, small};

/// The figures of a group.
pub(crate) fn stats(stream: &mut (impl Read + Write), group: &str) -> Vec<(String, String)> {
    stream
        .write_all(format!("stats {group}\r\n").as_bytes())
        .unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.ends_with("END\r\n") {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "the server closed: {text}");
        text += std::str::from_utf8(&buffer[..len]).unwrap();
    }
    let figure = |line: &str| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        Some((name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(figure).collect()
}

/// One of them.
pub(crate) fn value(figures: &[(String, String)], name: &str) -> Option<String> {
    let found = figures.iter().find(|(known, _)| known == name)?;
    Some(found.1.clone())
}

#[test]
fn requests_are_counted_by_command_with_their_times() {
    let server = Running::start(&small());
    let mut client = server.connect();
    ask(&mut client, "set a 0 0 1\r\n1\r\n", "STORED\r\n");
    ask(&mut client, "incr a 2\r\n", "3\r\n");
    for _ in 0..5 {
        let answer = "VALUE a 0 1\r\n3\r\nEND\r\n";
        ask(&mut client, "get a b\r\n", answer);
    }
    ask(
        &mut client,
        "touch a 0\r\ndelete b\r\n",
        "TOUCHED\r\nNOT_FOUND\r\n",
    );
    ask(&mut client, "mn\r\n", "MN\r\n");
    let latency = stats(&mut client, "latency");
    let count = |word: &str| value(&latency, &format!("{word}:count"));
    for (word, expected) in [
        ("set", 1),
        ("incr", 1),
        ("get", 10),
        ("touch", 1),
        ("delete", 1),
    ] {
        assert_eq!(
            count(word),
            Some(expected.to_string()),
            "{word} {latency:?}"
        );
    }
    assert!(count("other").is_some() && count("sync").is_none());
    let micros = |name: &str| value(&latency, name).unwrap().parse::<f64>().unwrap();
    let all: Vec<f64> = ["p50", "p90", "p99", "p999", "max"]
        .iter()
        .map(|name| micros(&format!("get:{name}_us")))
        .collect();
    assert!(all[0] > 0.0 && all.is_sorted(), "{all:?}");
    ask(&mut client, "stats reset\r\n", "RESET\r\n");
    let latency = stats(&mut client, "latency");
    assert_eq!(value(&latency, "get:count"), None);
}

#[test]
fn a_large_value_that_came_in_pieces_is_one_set() {
    let server = Running::start(&small());
    let mut client = server.connect();
    let data = "x".repeat(100_000);
    client.write_all(b"set big 0 0 100000\r\n").unwrap();
    for piece in data.as_bytes().chunks(7000) {
        client.write_all(piece).unwrap();
    }
    ask(&mut client, "\r\n", "STORED\r\n");
    let latency = stats(&mut client, "latency");
    assert_eq!(value(&latency, "set:count").as_deref(), Some("1"));
    assert_eq!(value(&latency, "other:count"), None);
}

#[test]
fn answers_that_waited_for_a_sync_are_counted_with_the_syncs() {
    let (_folder, data) = folder();
    let server = Running::start(&Config {
        data,
        engine: Engine::Hash,
        durability: DurabilityLevel::Power,
        ..small()
    });
    let mut client = server.connect();
    for _ in 0..3 {
        ask(&mut client, "set a 0 0 1\r\n1\r\n", "STORED\r\n");
    }
    ask(&mut client, "get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    let durability = stats(&mut client, "durability");
    let of = |name: &str| value(&durability, name).unwrap();
    assert_eq!(
        (of("durability").as_str(), of("survives").as_str()),
        ("power", "loss of power")
    );
    assert_eq!(
        (of("answers_that_waited"), of("sync:count")),
        ("3".into(), "3".into())
    );
    assert!(of("syncs").parse::<u64>().unwrap() >= 3);
    assert_eq!(of("errors:io"), "0");
    let latency = stats(&mut client, "latency");
    assert_eq!(value(&latency, "set:count").as_deref(), Some("3"));
    let log = stats(&mut client, "log");
    let bytes = |name: &str| value(&log, name).unwrap().parse::<u64>().unwrap();
    assert_eq!(
        bytes("log_bytes") - bytes("live_bytes"),
        bytes("garbage_bytes")
    );
    assert!(bytes("file_bytes") >= bytes("log_bytes"));
}

#[test]
fn an_engine_in_memory_has_no_log_to_tell_of() {
    let server = Running::start(&small());
    let mut client = server.connect();
    assert_eq!(stats(&mut client, "log"), []);
    let durability = stats(&mut client, "durability");
    assert_eq!(value(&durability, "survives").as_deref(), Some("nothing"));
}

#[test]
fn who_is_connected_is_told_with_his_address() {
    let server = Running::start(&small());
    let mut client = server.connect();
    let idle = server.connect();
    ask(&mut client, "mn\r\n", "MN\r\n");
    // The other one may be accepted later.
    let figures = loop {
        let figures = stats(&mut client, "conns");
        if figures.iter().filter(|(_, of)| of == "conn_read").count() == 2 {
            break figures;
        }
    };
    let has = |name: &str, value: &str| {
        let is_it = |of: &&(String, String)| of.0.ends_with(name) && of.1 == value;
        figures.iter().filter(is_it).count()
    };
    let listener = format!("tcp:{}", server.address);
    assert_eq!(
        (has(":addr", &listener), has(":state", "conn_listening")),
        (1, 1)
    );
    assert_eq!(has(":listen_addr", &listener), 2);
    for client in [&client, &idle] {
        let address = format!("tcp:{}", client.local_addr().unwrap());
        assert_eq!(has(":addr", &address), 1, "{figures:?}");
    }
    let idle_address = format!("tcp:{}", idle.local_addr().unwrap());
    drop(idle);
    while lists_value(&stats(&mut client, "conns"), &idle_address) {}
}

/// Whether a figure has this value.
fn lists_value(figures: &[(String, String)], value: &str) -> bool {
    figures.iter().any(|(_, of)| of == value)
}

#[test]
fn what_a_cache_drops_is_counted() {
    let server = Running::start(&Config {
        engine: Engine::Cache,
        memory_max: Some(1 << 20),
        ..small()
    });
    let mut client = server.connect();
    let data = "x".repeat(1000);
    for n in 0..3000 {
        // Of every third the time is over when it is dropped.
        let time = if n % 3 == 0 { -1 } else { 0 };
        let set = format!("set {n} 0 {time} 1000\r\n{data}\r\n");
        ask(&mut client, &set, "STORED\r\n");
    }
    let figures = stats(&mut client, "");
    let of = |name: &str| value(&figures, name).unwrap().parse::<u64>().unwrap();
    assert_eq!(of("limit_maxbytes"), 1 << 20);
    assert!(of("evictions") > 1000 && of("reclaimed") > 500);
    assert_eq!(of("curr_items") + of("evictions") + of("reclaimed"), 3000);
    let items = stats(&mut client, "items");
    assert_eq!(
        value(&items, "items:1:evicted"),
        value(&figures, "evictions")
    );
    // The sweep finds those that are still there, once it runs.
    ask(&mut client, "lru_crawler crawl all\r\n", "OK\r\n");
    let reclaimed = loop {
        let figures = stats(&mut client, "");
        if value(&figures, "lru_crawler_running").as_deref() == Some("0") {
            break value(&figures, "crawler_reclaimed").unwrap();
        }
    };
    assert_eq!(reclaimed.parse::<u64>().unwrap(), 1000 - of("reclaimed"));
}

#[test]
fn the_names_that_exporters_of_figures_look_for_are_there() {
    let server = Running::start(&small());
    let mut client = server.connect();
    ask(&mut client, "set a 0 0 1\r\n1\r\n", "STORED\r\n");
    for (group, names) in [
        (
            "",
            "pid uptime time version pointer_size rusage_user rusage_system max_connections curr_connections \
             total_connections rejected_connections connection_structures cmd_get cmd_set cmd_flush cmd_touch cmd_meta \
             get_hits get_misses get_expired delete_hits delete_misses incr_hits incr_misses decr_hits \
             decr_misses cas_hits cas_misses cas_badval touch_hits touch_misses store_too_large store_no_memory \
             auth_cmds auth_errors bytes_read bytes_written limit_maxbytes accepting_conns listen_disabled_num \
             time_in_listen_disabled_us threads conn_yields hash_bytes curr_items total_items bytes evictions reclaimed \
             lru_crawler_running lru_crawler_starts crawler_reclaimed crawler_items_checked idle_kicks dropped_request \
             rejected_address connection_buffer_bytes",
        ),
        (
            "settings",
            "maxbytes maxconns tcpport udpport inter verbosity evictions domain_socket umask shutdown_command \
             num_threads stat_key_prefix detail_enabled cas_enabled binding_protocol auth_enabled_sasl \
             auth_enabled_ascii item_size_max maxconns_fast flush_enabled dump_enabled idle_timeout lru_crawler \
             slab_reassign slab_automove track_sizes client_flags_size ssl_enabled tcp_backlog",
        ),
        (
            "items",
            "items:1:number items:1:mem_requested items:1:evicted items:1:outofmemory items:1:reclaimed \
             items:1:crawler_reclaimed items:1:crawler_items_checked",
        ),
        (
            "slabs",
            "1:used_chunks 1:mem_requested 1:get_hits 1:cmd_set 1:delete_hits 1:incr_hits 1:decr_hits 1:cas_hits \
             1:cas_badval 1:touch_hits active_slabs total_malloced",
        ),
    ] {
        let figures = stats(&mut client, group);
        for name in names.split_whitespace() {
            let found = figures.iter().filter(|(known, _)| known == name).count();
            assert_eq!(found, 1, "{name} of {group:?}: {figures:?}");
        }
    }
    let general = stats(&mut client, "");
    // What has no true value is absent.
    assert_eq!(value(&general, "get_flushed"), None);
    let seconds = |name| value(&general, name).unwrap().parse::<f64>().unwrap();
    assert!(seconds("rusage_user") + seconds("rusage_system") > 0.0);
}
