//! Figures of trouble move: each is zero at first, and counts what happened, in `stats` and in the metrics alike.
//!
//! Connections that are dropped, by reason, and refused; logins that fail; handshakes that fail, and the age of the
//! certificate; records that a cache drops. That the figures of commands move is tested without sockets, in `text`.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use azekura_server::config::{Address, Config, Engine};
use azekura_server::net::Listeners;

use crate::encrypted::{encrypted, file, with_certificate};
use crate::figures::{stats, value};
use crate::hostile::login;
use crate::running::{LOOPBACK, Running, ask, rest, small};
use crate::watch::{page, samples, watched};

/// The series of drops for one reason.
const fn dropped(reason: usize) -> &'static str {
    [
        "azekura_connections_dropped_total{reason=\"idle\"}",
        "azekura_connections_dropped_total{reason=\"request\"}",
        "azekura_connections_dropped_total{reason=\"answer\"}",
        "azekura_connections_dropped_total{reason=\"buffers\"}",
        "azekura_connections_dropped_total{reason=\"sync\"}",
    ][reason]
}

/// A figure of `stats`.
fn figure(client: &mut TcpStream, name: &str) -> u64 {
    let general = stats(client, "");
    let found = value(&general, name);
    let number = found.as_ref().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{name} is {found:?}"))
}

/// Holds figures of `stats`, and the series of the metrics that belong to them, against what they must be.
fn are(client: &mut TcpStream, door: SocketAddr, wanted: &[(&str, &str, u64)]) {
    let series = samples(&page("/metrics", door).body);
    for (name, label, count) in wanted {
        assert_eq!(figure(client, name), *count, "{name}");
        let found = series.get(*label).map(ToString::to_string);
        assert_eq!(found, Some(count.to_string()), "{label}");
    }
}

fn wait(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn connections_that_are_dropped_are_counted_by_their_reason() {
    let mut config = small();
    let patient = config.limits.clone();
    config.limits.idle_s = 1;
    config.limits.stall_s = 1;
    let (server, door) = watched(&config);
    let drops = || server.control.connections().dropped_for;
    let _idle = server.connect();
    let mut half = server.connect();
    half.write_all(b"get a").unwrap();
    let mut deaf = server.connect();
    let value = "v".repeat(100_000);
    let set = format!("set a 0 0 {}\r\n{value}\r\n", value.len());
    ask(&mut deaf, &set, "STORED\r\n");
    // 70 MB of answers: more than the system holds for a client.
    deaf.write_all("get a\r\n".repeat(700).as_bytes()).unwrap();
    wait(|| drops()[..3] == [1, 1, 1]);
    // From here on no connection is dropped for being slow, on however slow a machine.
    server.control.set_limits(patient);
    let mut client = server.connect();
    are(
        &mut client,
        door,
        &[
            ("idle_kicks", dropped(0), 1),
            ("dropped_idle", dropped(0), 1),
            ("dropped_request", dropped(1), 1),
            ("dropped_answer", dropped(2), 1),
            ("dropped_buffers", dropped(3), 0),
            ("dropped_sync", dropped(4), 0),
        ],
    );
    assert_eq!(figure(&mut client, "connections_dropped"), 3);
}

#[test]
fn bytes_that_connections_hold_are_shown_and_drops_for_them_are_counted() {
    const HELD: &str = "connection_buffer_bytes";
    let (server, door) = watched(&small());
    let mut client = server.connect();
    let part = format!("set k 0 0 1000000\r\n{}", "x".repeat(500_000));
    let mut large = server.connect();
    large.write_all(part.as_bytes()).unwrap();
    while figure(&mut client, HELD) < 500_000 {}
    let held = samples(&page("/metrics", door).body)["azekura_connection_buffer_bytes"];
    assert!(held >= 500_000.0, "{held}");
    drop(large);
    while figure(&mut client, HELD) >= 500_000 {}

    let mut limits = small().limits;
    limits.buffers_max = 4 << 20;
    server.control.set_limits(limits);
    let mut others = Vec::new();
    let drops = || server.control.connections().dropped_for[3];
    while drops() == 0 {
        let mut other = server.connect();
        // A connection that was dropped cannot be written to.
        let _gone = other.write_all(part.as_bytes());
        others.push(other);
    }
    drop(others);
    while server.control.connections().open > 1 {
        ask(&mut client, "mn\r\n", "MN\r\n");
    }
    are(
        &mut client,
        door,
        &[("dropped_buffers", dropped(3), drops())],
    );
}

#[test]
fn connections_that_are_refused_are_counted() {
    let mut config = small();
    config.limits.per_address_max = 3;
    config.limits.operators = Vec::new();
    let (server, door) = watched(&config);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        ask(client, "mn\r\n", "MN\r\n");
    }
    let refused = [
        "azekura_connections_refused_total",
        "azekura_connections_refused_by_address_total",
    ];
    let figures = |count| {
        [
            ("rejected_connections", refused[0], count),
            ("rejected_address", refused[1], count),
            ("total_connections", "azekura_connections_accepted_total", 3),
            ("curr_connections", "azekura_connections", 3),
        ]
    };
    are(&mut clients[0], door, &figures(0));
    for _ in 0..2 {
        let refusal = "ERROR Too many open connections\r\n";
        assert_eq!(rest(&mut server.connect()), refusal);
    }
    are(&mut clients[0], door, &figures(2));
}

#[test]
fn logins_that_fail_and_those_of_a_blocked_address_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passwords");
    std::fs::write(&path, "anna:Nara\n").unwrap();
    let (server, door) = watched(&Config {
        passwords: Some(path),
        ..small()
    });
    let mut client = server.connect();
    ask(&mut client, &login("anna Nara"), "STORED\r\n");
    let failed = |count| ("auth_errors", "azekura_login_failures_total", count);
    are(&mut client, door, &[failed(0)]);
    // After ten, all are refused that come from here.
    for words in [["anna Uji"; 10].as_slice(), &["anna Nara"; 2]].concat() {
        let failure = "CLIENT_ERROR authentication failure\r\n";
        ask(&mut server.connect(), &login(words), failure);
    }
    are(&mut client, door, &[failed(12)]);
    assert_eq!(figure(&mut client, "auth_cmds"), 13);
    let series = samples(&page("/metrics", door).body);
    let blocked = series["azekura_logins_blocked_total"].to_string();
    assert_eq!(blocked, "2");
}

#[test]
fn failed_handshakes_and_the_age_of_the_certificate_are_shown() {
    let mut listeners = Listeners::new();
    let address = listeners.tcp(LOOPBACK, true).unwrap();
    let door = listeners.metrics(LOOPBACK).unwrap();
    let config = Config {
        listen: vec![Address::Tls(address.into())],
        ..with_certificate()
    };
    let server = Running::over(&config, listeners, address);
    let mut client = encrypted(address);
    let mut figures = |group: &str| stats(&mut client, group);
    let settings = figures("settings");
    for (name, wanted) in [
        ("ssl_enabled", "yes".to_owned()),
        ("ssl_chain_cert", file("server.pem").display().to_string()),
        ("ssl_key", file("server-key.pem").display().to_string()),
        ("ssl_verify_mode", "0".to_owned()),
        ("ssl_ca_cert", "NULL".to_owned()),
        ("ssl_min_version", "tlsv1.2".to_owned()),
        ("tcp_backlog", "1024".to_owned()),
    ] {
        assert_eq!(value(&settings, name), Some(wanted), "{name}");
    }
    let of = |figures: &[(String, String)], name: &str| -> i64 {
        let found = value(figures, name);
        let number = found.as_ref().and_then(|text| text.parse().ok());
        number.unwrap_or_else(|| panic!("{name} is {found:?}"))
    };
    let first = figures("");
    assert_eq!(of(&first, "ssl_handshake_errors"), 0);
    let mut plain = server.connect();
    plain.write_all(b"get a\r\n").unwrap();
    rest(&mut plain);
    wait(|| server.control.connections().handshakes_failed == 1);
    // The certificate ages, and its end comes nearer, second by second.
    let left = "server_cert_expires_in";
    let later = loop {
        let later = figures("");
        if of(&later, left) + 2 <= of(&first, left) {
            break later;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let age = "time_since_server_cert_refresh";
    assert!(of(&later, age) > of(&first, age), "{later:?}");
    assert_eq!(of(&later, "ssl_handshake_errors"), 1);
    assert!(of(&later, left) > 24 * 3600);
    let series = samples(&page("/metrics", door).body);
    let failed = series["azekura_handshakes_failed_total"].to_string();
    assert_eq!(failed, "1");
    let shown = series["azekura_certificate_expires_seconds"];
    assert!(shown > 0.0 && shown <= of(&later, left) as f64, "{shown}");
}

#[test]
fn what_a_cache_drops_is_in_the_metrics_too() {
    let (server, door) = watched(&Config {
        engine: Engine::Cache,
        memory_max: Some(1 << 20),
        ..small()
    });
    let mut client = server.connect();
    let series = |name: &str| samples(&page("/metrics", door).body)[name].to_string();
    let (evicted, expired) = ("azekura_evicted_total", "azekura_expired_total");
    assert_eq!((series(evicted), series(expired)), ("0".into(), "0".into()));
    let data = "x".repeat(1000);
    for n in 0..3000 {
        // Of every third the time is over when it is dropped.
        let time = if n % 3 == 0 { -1 } else { 0 };
        let set = format!("set {n} 0 {time} 1000\r\n{data}\r\n");
        ask(&mut client, &set, "STORED\r\n");
    }
    // Until the sweep has looked at all: nothing is counted any more after that.
    ask(&mut client, "lru_crawler crawl all\r\n", "OK\r\n");
    while figure(&mut client, "lru_crawler_running") != 0 {}
    let figures = ["evictions", "reclaimed", "crawler_reclaimed"];
    let [dropped, reclaimed, swept] = figures.map(|name| figure(&mut client, name));
    assert!(
        dropped > 1000 && reclaimed > 500,
        "{dropped} {reclaimed} {swept}"
    );
    assert_eq!(series(evicted), dropped.to_string());
    assert_eq!(series(expired), (reclaimed + swept).to_string());
}
