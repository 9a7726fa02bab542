//! Clients that flood, stall, announce what they never send, and never read: memory stays bounded, others are served.
//!
//! The bounds are asserted of this whole process, with room for the test's own buffers.
//! It knows nothing of how a server holds them back.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use azekura_server::config::Config;

use crate::running::{Running, ask, expect, resident, rest, small};

const MIB: u64 = 1 << 20;

#[test]
fn connections_over_the_limit_are_told_so_and_the_others_served() {
    let mut config = small();
    config.limits.connections_max = 3;
    config.limits.operator_connections = 0;
    let server = Running::start(&config);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        ask(client, "mn\r\n", "MN\r\n");
    }
    for _ in 0..20 {
        assert_eq!(
            rest(&mut server.connect()),
            "ERROR Too many open connections\r\n"
        );
    }
    for client in &mut clients {
        ask(client, "mn\r\n", "MN\r\n");
    }
    assert_eq!(server.control.connections().refused, 20);
    // Who leaves makes room.
    drop(clients.pop());
    while server.control.connections().open == 3 {
        std::thread::yield_now();
    }
    ask(&mut server.connect(), "mn\r\n", "MN\r\n");
}

#[test]
fn a_client_that_never_reads_is_held_back_and_loses_nothing() {
    let server = Running::start(&small());
    let mut client = server.connect();
    let value = "v".repeat(100_000);
    let set = format!("set a 0 0 {}\r\n{value}\r\n", value.len());
    ask(&mut client, &set, "STORED\r\n");
    let before = resident();
    // Each request is answered by 14,000 times its bytes; the server stops reading long before 64 MiB of them came.
    client
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let heap = "get a\r\n".repeat(10_000);
    let mut sent = 0;
    let stopped = loop {
        match client.write(&heap.as_bytes()[sent % 7..]) {
            Ok(len) => sent += len,
            Err(e) => break e.kind(),
        }
        assert!((sent as u64) < 64 * MIB, "the server reads on");
    };
    assert!(matches!(
        stopped,
        ErrorKind::WouldBlock | ErrorKind::TimedOut
    ));
    assert!(resident() < before + 64 * MIB);
    let mut other = server.connect();
    ask(&mut other, "mn\r\n", "MN\r\n");
    // Every whole request is answered once it reads.
    let answer = format!("VALUE a 0 {}\r\n{value}\r\nEND\r\n", value.len());
    for _ in 0..(sent / 7).min(300) {
        expect(&mut client, &answer);
    }
}

#[test]
fn a_flood_of_clients_that_never_read_stays_within_bounds_and_others_are_served() {
    const COUNT: usize = 100;
    let mut config = small();
    config.limits.buffers_max = 16 << 20;
    let server = Running::start(&config);
    let mut other = server.connect();
    let value = "v".repeat(100_000);
    let set = format!("set a 0 0 {}\r\n{value}\r\n", value.len());
    ask(&mut other, &set, "STORED\r\n");
    let before = resident();
    // 7 MB of answers are asked for by each, 700 MB in all.
    let heap = "get a\r\n".repeat(70);
    let mut clients = Vec::new();
    for _ in 0..COUNT {
        let mut client = server.connect();
        client.write_all(heap.as_bytes()).unwrap();
        clients.push(client);
        ask(&mut other, "mn\r\n", "MN\r\n");
    }
    assert!(resident() < before + 64 * MIB);
    // Those beyond the bound were dropped; the others are answered once they read.
    let answer = format!("VALUE a 0 {}\r\n{value}\r\nEND\r\n", value.len());
    let mut whole = 0;
    for client in &mut clients {
        let mut found = vec![0; answer.len() * 70];
        if client.read_exact(&mut found).is_ok() {
            assert!(
                found
                    .chunks(answer.len())
                    .all(|one| one == answer.as_bytes())
            );
            whole += 1;
        }
    }
    assert!(whole > 0);
    ask(&mut other, "mn\r\n", "MN\r\n");
}

#[test]
fn a_flood_of_half_requests_is_dropped_and_others_are_served() {
    const COUNT: u64 = 500;
    const HALVES: [&[u8]; 5] = [
        b"get a",
        b"set k 0 0 1000000\r\nab",
        b"ms k 5000\r\nab",
        b"\x80\x01\x00\x01\x08",
        b"\x80\x01\x00\x01\x08\x00\x00\x00\x00\x10\x00\x00",
    ];
    let mut config = small();
    config.limits.stall_s = 1;
    config.limits.connections_max = COUNT + 1;
    let server = Running::start(&config);
    let mut other = server.connect();
    ask(&mut other, "set a 0 0 1\r\nb\r\n", "STORED\r\n");
    let before = resident();
    let mut clients: Vec<_> = (0..COUNT)
        .map(|n| {
            let mut client = server.connect();
            client.write_all(HALVES[n as usize % 5]).unwrap();
            client
        })
        .collect();
    ask(&mut other, "get a\r\n", "VALUE a 0 1\r\nb\r\nEND\r\n");
    assert!(resident() < before + 16 * MIB);
    // Each ends without an answer, and who asks whole requests stays.
    for client in &mut clients {
        let mut answer = Vec::new();
        let ended = client.read_to_end(&mut answer);
        let is_reset = |e: &std::io::Error| e.kind() == ErrorKind::ConnectionReset;
        assert!(
            ended.is_ok() || ended.as_ref().is_err_and(is_reset),
            "{ended:?}"
        );
        assert_eq!(answer, b"");
    }
    assert_eq!(server.control.connections().dropped, COUNT);
    ask(&mut other, "get a\r\n", "VALUE a 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn one_get_of_many_large_values_does_not_make_memory_grow() {
    let server = Running::start(&small());
    let mut client = server.connect();
    let value = "v".repeat(1_000_000);
    let set = format!("set a 0 0 {}\r\n{value}\r\n", value.len());
    ask(&mut client, &set, "STORED\r\n");
    let before = resident();
    let request = format!("get{}\r\n", " a".repeat(500));
    client.write_all(request.as_bytes()).unwrap();
    // The first bytes have come, so the server is at it; 500 MB wait for a reader.
    expect(&mut client, "VALUE a 0 1000000\r\n");
    ask(&mut server.connect(), "mn\r\n", "MN\r\n");
    assert!(resident() < before + 64 * MIB);
    let mut left = 500 * (19 + 1_000_000 + 2) + 5 - 19;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let len = client.read(&mut buffer).unwrap();
        assert!(len > 0);
        left -= len;
    }
}

#[test]
fn announced_lengths_take_no_memory_until_bytes_come() {
    let server = Running::start(&small());
    let before = resident();
    let mut clients = Vec::new();
    for n in 0..400 {
        let mut client = server.connect();
        client
            .write_all(format!("set k{n} 0 0 1000000\r\nab").as_bytes())
            .unwrap();
        clients.push(client);
    }
    ask(&mut server.connect(), "mn\r\n", "MN\r\n");
    assert!(resident() < before + 32 * MIB);
    // Lengths beyond every limit are refused at once.
    for length in ["1048576", "1073741824"] {
        let mut client = server.connect();
        ask(
            &mut client,
            &format!("set k 0 0 {length}\r\n"),
            "SERVER_ERROR object too large for cache\r\n",
        );
    }
    for length in ["2147483647", "4294967297", "18446744073709551615", "-1"] {
        let mut client = server.connect();
        ask(
            &mut client,
            &format!("set k 0 0 {length}\r\n"),
            "CLIENT_ERROR bad command line format\r\n",
        );
    }
}

#[test]
fn unfinished_requests_of_all_clients_stay_within_the_bound() {
    let mut config = small();
    config.limits.buffers_max = 4 << 20;
    let server = Running::start(&config);
    let before = resident();
    let part = format!("set k 0 0 1000000\r\n{}", "x".repeat(500_000));
    let mut clients = Vec::new();
    for _ in 0..64 {
        let mut client = server.connect();
        // Who is dropped cannot be written to.
        let _ = client.write_all(part.as_bytes());
        clients.push(client);
    }
    ask(&mut server.connect(), "mn\r\n", "MN\r\n");
    assert!(resident() < before + 48 * MIB);
    ask(&mut server.connect(), "set a 0 0 1\r\nb\r\n", "STORED\r\n");
    drop(clients);
}

#[test]
fn the_longest_item_comes_and_goes_through_the_least_buffers() {
    let mut config = small();
    config.item_max = 17 << 20;
    // What the configuration asks for, for one thread.
    config.limits.buffers_max = 18 << 20;
    let server = Running::start(&config);
    let mut client = server.connect();
    let value = "v".repeat((17 << 20) - 100);
    let set = format!("set a 0 0 {}\r\n{value}\r\n", value.len());
    ask(&mut client, &set, "STORED\r\n");
    let answer = format!("VALUE a 0 {}\r\n{value}\r\nEND\r\n", value.len());
    ask(&mut client, "get a\r\n", &answer);
}

#[test]
fn a_line_without_an_end_closes_its_connection_only() {
    let server = Running::start(&small());
    let mut other = server.connect();
    ask(&mut other, "mn\r\n", "MN\r\n");
    let mut client = server.connect();
    let _ = client.write_all("x".repeat(10_000).as_bytes());
    let _ = rest(&mut client);
    ask(&mut other, "mn\r\n", "MN\r\n");
}

#[test]
fn idle_connections_cost_little_memory() {
    const COUNT: u64 = 400;
    let config = Config {
        threads: 1,
        ..small()
    };
    let server = Running::start(&config);
    let open = || {
        let mut client = server.connect();
        ask(
            &mut client,
            "set a 0 0 2\r\nbc\r\nget a\r\n",
            "STORED\r\nVALUE a 0 2\r\nbc\r\nEND\r\n",
        );
        // Records are built in a buffer that is the thread's.
        let value = "v".repeat(3000);
        let set = format!("set b 0 0 3000\r\n{value}\r\n").repeat(10);
        ask(&mut client, &set, &"STORED\r\n".repeat(10));
        client
    };
    let mut clients: Vec<_> = (0..COUNT).map(|_| open()).collect();
    let before = resident();
    clients.extend((0..COUNT).map(|_| open()));
    assert!(resident() - before < COUNT * 8 * 1024);
}

/// A server with a password, and a client of it that has not logged in.
fn guarded(stall_s: u32) -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passwords");
    std::fs::write(&path, "anna:top secret word\n").unwrap();
    let mut config = small();
    config.passwords = Some(path);
    config.limits.stall_s = stall_s;
    (folder, Running::start(&config))
}

pub(crate) fn login(words: &str) -> String {
    format!("set auth 0 0 {}\r\n{words}\r\n", words.len())
}

#[test]
fn a_password_may_contain_spaces_and_nothing_may_follow_it() {
    let (_folder, server) = guarded(30);
    let failure = "CLIENT_ERROR authentication failure\r\n";
    for words in [
        "anna top secret",
        "anna top secret word junk",
        " anna top secret word",
        "anna  top secret word",
        "anna top secret word ",
    ] {
        ask(&mut server.connect(), &login(words), failure);
    }
    ask(
        &mut server.connect(),
        &login("anna top secret word"),
        "STORED\r\n",
    );
}

#[test]
fn failed_logins_are_delayed_counted_and_limited_by_address() {
    let (_folder, server) = guarded(30);
    let failure = "CLIENT_ERROR authentication failure\r\n";
    let mut client = server.connect();
    let start = Instant::now();
    // What is sent after a failure waits for a second.
    for _ in 0..2 {
        ask(&mut client, &login("anna wrong"), failure);
    }
    assert!(start.elapsed() >= Duration::from_millis(900));
    for _ in 0..8 {
        ask(&mut server.connect(), &login("anna wrong"), failure);
    }
    // Ten failed: now the right password is refused, too, from here.
    ask(
        &mut server.connect(),
        &login("anna top secret word"),
        failure,
    );
}

#[test]
fn who_does_not_log_in_is_dropped_whatever_he_sends() {
    // Longer than the pause after a failure.
    let (_folder, server) = guarded(3);
    let mut client = server.connect();
    let start = Instant::now();
    let mut answer = [0; 64];
    // The answers are read, so that nothing else ends it.
    while client.write_all(b"x\r\n").is_ok() && client.read(&mut answer).is_ok_and(|n| n > 0) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "it is served for ever"
        );
    }
}

#[test]
fn a_request_that_comes_byte_by_byte_has_no_more_time_than_another() {
    let mut config = small();
    config.limits.stall_s = 2;
    let server = Running::start(&config);
    let mut other = server.connect();
    let mut slow: Vec<_> = (0..3).map(|_| server.connect()).collect();
    slow[0].write_all(b"get ").unwrap();
    slow[1].write_all(b"set a 0 0 1000\r\n").unwrap();
    slow[2].write_all(b"set b 0 0 900000\r\n").unwrap();
    let start = Instant::now();
    while server.control.connections().dropped < 3 {
        for client in &mut slow {
            let _ = client.write_all(b"k");
        }
        ask(&mut other, "mn\r\n", "MN\r\n");
        std::thread::sleep(Duration::from_millis(100));
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "a byte is time enough"
        );
    }
    // A long value that comes at more than the least rate has its time, which is more than that.
    let value = "v".repeat(120_000);
    let mut client = server.connect();
    write!(client, "set long 0 0 {}\r\n", value.len()).unwrap();
    for part in value.as_bytes().chunks(3000) {
        client.write_all(part).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    ask(&mut client, "\r\n", "STORED\r\n");
    assert_eq!(server.control.connections().dropped_for, [0, 3, 0, 0, 0]);
}

#[test]
fn one_address_has_its_share_and_operators_have_theirs() {
    let mut config = small();
    config.limits.connections_max = 6;
    config.limits.per_address_max = 4;
    config.limits.operator_connections = 2;
    config.limits.operators = Vec::new();
    let server = Running::start(&config);
    let mut slow: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut slow {
        ask(client, "mn\r\n", "MN\r\n");
    }
    let refusal = "ERROR Too many open connections\r\n";
    assert_eq!(rest(&mut server.connect()), refusal);
    assert_eq!(server.control.connections().refused_address, 1);
    // As an operator's address it has what others have left, and what is kept.
    let mut limits = config.limits.clone();
    limits.operators = vec![[127, 0, 0, 1].into()];
    server.control.set_limits(limits);
    for _ in 0..4 {
        let mut client = server.connect();
        ask(&mut client, "mn\r\n", "MN\r\n");
        slow.push(client);
    }
    assert_eq!(rest(&mut server.connect()), refusal);
    drop(slow);
    while server.control.connections().open > 0 {
        std::thread::yield_now();
    }
    // Who left counts no more: the address has its share again.
    server.control.set_limits(config.limits.clone());
    let mut again: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut again {
        ask(client, "mn\r\n", "MN\r\n");
    }
}

#[test]
fn a_client_that_stalls_delays_the_end_by_the_grace_only() {
    let mut config = small();
    config.limits.grace_s = 1;
    let server = Running::start(&config);
    let mut client = server.connect();
    client.write_all(b"set a 0 0 100\r\nhalf").unwrap();
    ask(&mut server.connect(), "mn\r\n", "MN\r\n");
    let start = Instant::now();
    server.stop();
    assert!(start.elapsed() < Duration::from_millis(2500));
}
