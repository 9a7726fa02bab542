//! What a running server tells of itself over its own protocol: how long requests took, what syncs were shared.
//!
//! Counts are asserted, times are not: only that they are there, and in order.
//! It knows the names of figures as users do.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use azekura_server::config::{Config, Engine, Survives};

use crate::running::{Running, ask, folder, small};

/// The figures of a group.
pub(crate) fn stats(stream: &mut TcpStream, group: &str) -> Vec<(String, String)> {
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
        durability: Survives::Power,
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
