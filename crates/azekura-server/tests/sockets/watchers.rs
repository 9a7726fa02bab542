//! `watch` over real sockets: who comes and goes, what a cache drops, one who does not read, and the end of the server.
//! The other lines of a watcher are compared without sockets.
//! It knows no engine.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use azekura_server::config::{Config, Engine};

use crate::running::{Running, ask, rest, small};

/// Reads lines until one contains `word`, and returns that.
fn until(lines: &mut BufReader<TcpStream>, word: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "no line of {word}");
        if line.contains(word) {
            return line;
        }
    }
}

fn watch(server: &Running, kinds: &str) -> BufReader<TcpStream> {
    let mut watcher = server.connect();
    ask(&mut watcher, &format!("watch {kinds}\r\n"), "OK\r\n");
    BufReader::new(watcher)
}

#[test]
fn who_comes_and_goes_is_told_with_why() {
    let mut config = small();
    config.limits.idle_s = 1;
    let server = Running::start(&config);
    let mut lines = watch(&server, "connevents");
    let mut client = server.connect();
    let port = client.local_addr().unwrap().port();
    let came = until(
        &mut lines,
        &format!("type=conn_new rip=127.0.0.1 rport={port} "),
    );
    assert!(came.contains(" transport=tcp cfd="), "{came}");
    ask(&mut client, "mn\r\nquit\r\n", "MN\r\n");
    let went = until(
        &mut lines,
        &format!("type=conn_close rip=127.0.0.1 rport={port} "),
    );
    assert!(went.contains(" reason=normal cfd="), "{went}");
    // A watcher asks nothing, and is not idle.
    let idle = server.connect();
    let port = idle.local_addr().unwrap().port();
    until(
        &mut lines,
        &format!("rport={port} transport=tcp reason=idle_timeout"),
    );
    let mut last = server.connect();
    ask(&mut last, "mn\r\n", "MN\r\n");
    server.stop();
    assert_eq!(rest(lines.get_mut()).matches("type=item_get").count(), 0);
}

#[test]
fn what_a_cache_drops_is_told() {
    let config = Config {
        engine: Engine::Cache,
        memory_max: Some(4 << 20),
        ..small()
    };
    let server = Running::start(&config);
    let mut lines = watch(&server, "evictions");
    let mut client = server.connect();
    let value = "v".repeat(100_000);
    for n in 0..100 {
        let set = format!("set k{n} 0 1000 100000\r\n{value}\r\n");
        ask(&mut client, &set, "STORED\r\n");
    }
    let line = until(&mut lines, "type=eviction key=k");
    assert!(line.contains(" fetch=no ttl="), "{line}");
    assert!(line.ends_with(" la=0 clsid=1 size=100000\n"), "{line}");
}

#[test]
fn a_watcher_that_does_not_read_is_passed_by_and_dropped_at_last() {
    let mut config = small();
    // Counted in whole seconds, and the client must not be dropped while this machine does something else.
    config.limits.stall_s = 3;
    let server = Running::start(&config);
    let lines = watch(&server, "fetchers");
    let mut client = server.connect();
    let get = format!("get {}\r\n", "k".repeat(250)).repeat(1000);
    let answer = "END\r\n".repeat(1000);
    while server.control.connections().dropped == 0 {
        ask(&mut client, &get, &answer);
    }
    drop(lines);
    ask(&mut client, "mn\r\n", "MN\r\n");
}

#[test]
fn a_connection_that_fails_is_told_with_its_reason() {
    let server = Running::start(&small());
    let mut lines = watch(&server, "connevents");
    // A client that leaves with answers unread resets its connection.
    let mut client = server.connect();
    ask(&mut client, "set a 0 0 1\r\nb\r\n", "STORED\r\n");
    client.write_all(&b"get a\r\n".repeat(20_000)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(client);
    let line = until(&mut lines, "type=conn_close");
    assert!(line.contains("reason=error"), "{line}");
}
