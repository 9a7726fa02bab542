//! What a running server shows over HTTP: transcripts over a real socket, and every line of the metrics read.
//!
//! Requests are sent whole, byte by byte and wrong; answers are taken apart as a client would. Times are not asserted.
//! It knows of figures only their names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use azekura_server::config::{Config, DurabilityLevel, Engine};
use azekura_server::net::Listeners;

use crate::running::{Running, ask, folder, rest, small};

/// A server, and where its figures are asked for.
pub(crate) fn watched(config: &Config) -> (Running, SocketAddr) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut listeners = Listeners::new();
    let address = listeners.tcp(any, false).unwrap();
    let door = listeners.metrics(any).unwrap();
    (Running::over(config, listeners, address), door)
}

fn guest(door: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(door).unwrap();
    // Longer than any test may take.
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

/// An answer, taken apart.
pub(crate) struct Answer {
    status: u16,
    fields: BTreeMap<String, String>,
    pub(crate) body: String,
}

fn told(request: &str, door: SocketAddr) -> Answer {
    let mut guest = guest(door);
    guest.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    guest
        .read_to_string(&mut text)
        .expect("an answer, and its end");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| {
        let rest = line.strip_prefix("HTTP/1.1 ")?;
        rest.split(' ').next()?.parse().ok()
    });
    let fields: BTreeMap<String, String> = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").expect("a field");
            (name.to_ascii_lowercase(), value.to_owned())
        })
        .collect();
    assert_eq!(fields["connection"], "close");
    Answer {
        status: status.expect("a status"),
        fields,
        body: body.to_owned(),
    }
}

pub(crate) fn page(path: &str, door: SocketAddr) -> Answer {
    let answer = told(&format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"), door);
    let length = answer.fields["content-length"].parse();
    assert_eq!(length, Ok(answer.body.len()), "{path}");
    answer
}

#[test]
fn pages_are_there_and_others_are_not() {
    let (_server, door) = watched(&small());
    for (path, status, kind) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/health", 200, "text/plain; charset=utf-8"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("/stats.json", 200, "application/json"),
        ("/stats.json?since=5", 200, "application/json"),
        ("/stats.json?since=many", 200, "application/json"),
        ("/nothing", 404, "text/plain"),
        ("/../etc/passwd", 404, "text/plain"),
    ] {
        let answer = page(path, door);
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.fields["content-type"], kind, "{path}");
    }
    assert_eq!(page("/health", door).body, "ok\n");
    let head = told("HEAD / HTTP/1.1\r\nHost: here\r\n\r\n", door);
    let whole = page("/", door);
    assert_eq!(head.fields, whole.fields);
    assert_eq!(head.body, "");
    // It loads nothing from elsewhere.
    for loads in ["src=", "href=\"http", "url(", "@import", "import("] {
        assert!(!whole.body.contains(loads), "{loads}");
    }
}

#[test]
fn what_is_no_request_is_refused_by_its_status() {
    let (server, door) = watched(&small());
    let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(60_000));
    let endless = "GET / HTTP/1.1\r\n".to_owned() + &"a: b\r\n".repeat(10_000);
    for (request, status) in [
        ("get a\r\n\r\n", 400),
        ("\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET / HTTP/3.0\r\n\r\n", 505),
        (long.as_str(), 431),
        (endless.as_str(), 431),
    ] {
        let shown = &request[..request.len().min(60)];
        assert_eq!(told(request, door).status, status, "{shown}");
    }
    assert_eq!(
        told("POST / HTTP/1.1\r\nHost: a\r\n\r\n", door).fields["allow"],
        "GET, HEAD"
    );
    // No other client was affected.
    ask(&mut server.connect(), "mn\r\n", "MN\r\n");
}

#[test]
fn a_request_may_come_byte_by_byte_while_others_are_answered() {
    let (_server, door) = watched(&small());
    let mut silent: Vec<_> = (0..100).map(|_| guest(door)).collect();
    let mut slow = guest(door);
    for byte in b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" {
        slow.write_all(&[*byte]).unwrap();
        if *byte == b' ' {
            assert_eq!(page("/health", door).status, 200);
        }
    }
    assert!(rest(&mut slow).ends_with("\r\n\r\nok\n"));
    // Those who send nothing are let go when others come.
    assert_eq!(rest(&mut silent[0]), "");
}

/// Reads the text format; returns samples by name and labels. It is strict: what it does not know fails.
pub(crate) fn samples(text: &str) -> BTreeMap<String, f64> {
    let is_name = |name: &str| {
        let first = name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        first
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
    };
    let (mut helped, mut typed) = (BTreeSet::new(), BTreeMap::new());
    let mut samples = BTreeMap::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help");
            assert!(is_name(name) && !help.is_empty(), "{line}");
            assert!(helped.insert(name.to_owned()), "helped twice: {line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(helped.contains(name), "a type without a help: {line}");
            let before = typed.insert(name.to_owned(), kind.to_owned());
            assert_eq!(before, None, "typed twice: {line}");
            name.clone_into(&mut family);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect("a brace")),
            None => (series, ""),
        };
        let known = match typed[&family].as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| name.strip_suffix(end) == Some(&family)),
            kind => name == family && (kind != "counter" || name.ends_with("_total")),
        };
        assert!(is_name(name) && known, "not of its family: {line}");
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (name, value) = label.split_once('=').expect("a label");
            assert!(is_name(name) && value.len() >= 2, "{line}");
            assert!(value.starts_with('"') && value.ends_with('"'), "{line}");
        }
        let value: f64 = value.parse().expect("a number");
        assert!(value >= 0.0, "{line}");
        assert_eq!(
            samples.insert(series.to_owned(), value),
            None,
            "twice: {line}"
        );
    }
    assert!(text.ends_with('\n'));
    assert!(typed.len() > 20, "{typed:?}");
    samples
}

#[test]
fn every_line_of_the_metrics_is_of_the_format_and_counts_what_was_asked() {
    let (_folder, data) = folder();
    let (server, door) = watched(&Config {
        data,
        engine: Engine::Hash,
        durability: DurabilityLevel::Power,
        ..small()
    });
    let mut client = server.connect();
    ask(&mut client, "set a 0 0 1\r\nb\r\n", "STORED\r\n");
    ask(&mut client, "get a\r\n", "VALUE a 0 1\r\nb\r\nEND\r\n");
    ask(&mut client, "get c\r\n", "END\r\n");
    // An answer leaves a moment before it is counted; one of the same thread comes after that.
    ask(&mut client, "mn\r\n", "MN\r\n");
    let found = samples(&page("/metrics", door).body);
    for (series, value) in [
        ("azekura_healthy", 1.0),
        ("azekura_connections", 1.0),
        ("azekura_records", 1.0),
        ("azekura_stored_total", 1.0),
        ("azekura_answers_waited_total", 1.0),
        ("azekura_sync_seconds_count", 1.0),
        ("azekura_reads_total{result=\"hit\"}", 1.0),
        ("azekura_reads_total{result=\"miss\"}", 1.0),
        ("azekura_request_seconds_count{command=\"get\"}", 2.0),
        ("azekura_request_seconds_count{command=\"set\"}", 1.0),
        (
            "azekura_request_seconds_bucket{command=\"get\",le=\"+Inf\"}",
            2.0,
        ),
        ("azekura_errors_total{kind=\"poisoned\"}", 0.0),
        ("azekura_evicted_total", 0.0),
        ("azekura_expired_total", 0.0),
        ("azekura_login_failures_total", 0.0),
        ("azekura_connections_dropped_total{reason=\"idle\"}", 0.0),
        ("azekura_connections_dropped_total{reason=\"buffers\"}", 0.0),
    ] {
        assert_eq!(found.get(series), Some(&value), "{series}");
    }
    for series in [
        "azekura_file_bytes",
        "azekura_log_bytes",
        "azekura_free_bytes",
        "process_resident_memory_bytes",
        "azekura_syncs_total",
    ] {
        assert!(found[series] > 0.0, "{series}");
    }
    // Buckets count what is below them, so they do not fall.
    let mut last = 0.0;
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    for (series, value) in &found {
        let end = series.strip_prefix("azekura_request_seconds_bucket{command=\"get\",le=\"");
        if let Some(end) = end.and_then(|end| end.strip_suffix("\"}")) {
            let end = if end == "+Inf" {
                f64::INFINITY
            } else {
                end.parse().unwrap()
            };
            buckets.push((end, *value));
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (_, below) in buckets {
        assert!(below >= last);
        last = below;
    }
    assert!(found["azekura_request_seconds_sum{command=\"get\"}"] > 0.0);
}

#[test]
fn health_says_full_until_records_can_be_stored_again() {
    let (server, door) = watched(&Config {
        memory_max: Some(1 << 20),
        ..small()
    });
    let mut client = server.connect();
    let data = "x".repeat(100_000);
    let mut answers = Vec::new();
    for n in 0..30 {
        let set = format!("set k{n} 0 0 {}\r\n{data}\r\n", data.len());
        client.write_all(set.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        answers.push(String::from_utf8(answer).unwrap());
    }
    assert!(
        answers
            .last()
            .unwrap()
            .starts_with("SERVER_ERROR out of memory"),
        "{answers:?}"
    );
    let health = page("/health", door);
    assert_eq!(
        (health.status, health.body.as_str()),
        (503, "full: writes find no room\n")
    );
    let found = samples(&page("/metrics", door).body);
    assert!(found["azekura_healthy"] < 0.5);
    assert!(
        page("/stats.json", door)
            .body
            .contains("\"healthy\":false,\"why\":\"full: ")
    );
    ask(&mut client, "flush_all\r\n", "OK\r\n");
    // The next look finds that records are stored again; it is not hurried by being asked.
    while page("/health", door).status != 200 {
        ask(&mut client, "set a 0 0 1\r\nb\r\n", "STORED\r\n");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn health_says_draining_while_a_client_has_answers_to_read() {
    let mut config = small();
    config.limits.grace_s = 30;
    let (server, door) = watched(&config);
    let mut client = server.connect();
    let data = "x".repeat(100_000);
    let set = format!("set a 0 0 {}\r\n{data}\r\n", data.len());
    ask(&mut client, &set, "STORED\r\n");
    client
        .write_all("get a\r\n".repeat(2000).as_bytes())
        .unwrap();
    crate::running::expect(&mut client, "VALUE a 0 100000\r\n");
    assert_eq!(page("/health", door).status, 200);
    server.control.stop();
    let health = page("/health", door);
    assert_eq!(
        (health.status, health.body.as_str()),
        (503, "draining: the server is shutting down\n")
    );
    drop(client);
}

#[test]
fn the_last_second_is_told_to_clients_too() {
    let (server, door) = watched(&small());
    let mut client = server.connect();
    loop {
        ask(&mut client, "get a\r\n", "END\r\n");
        let recent = crate::figures::stats(&mut client, "recent");
        let gets = crate::figures::value(&recent, "gets_per_second");
        if let Some(gets) = gets.and_then(|text| text.parse::<f64>().ok())
            && gets > 0.0
        {
            assert_eq!(
                crate::figures::value(&recent, "connections").as_deref(),
                Some("1")
            );
            break;
        }
    }
    let json = page("/stats.json", door).body;
    assert!(
        json.contains("\"columns\":[\"number\",\"gets_per_second\""),
        "{json}"
    );
    assert!(json.contains("\"rows\":[[1,"), "{json}");
    let later = page("/stats.json?since=1000000", door).body;
    assert!(later.ends_with("\"rows\":[]}\n"), "{later}");
}
