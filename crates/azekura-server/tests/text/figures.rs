//! `stats`, and what the server asks of the owner of the sockets.
//! Figures are counted exactly once all calls have returned; an owner of the test's own stands for sockets.
//! It knows no times: those are of the threads.

use std::sync::Arc;

use azekura::record::memory::tiny::TinyDb;
use azekura_server::memcached::{Outside, Settings};

use crate::wire::{Client, over, plays, service};

#[test]
fn figures_count_what_was_done() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    client.send(
        b"set a 0 0 1\r\n1\r\nget a\r\nget b a\r\nincr a 1\r\ndelete c\r\ntouch a 0\r\nmg a v\r\n",
        99,
    );
    let text = String::from_utf8(client.send(b"stats\r\n", 99)).unwrap();
    for line in [
        "cmd_set 1",
        "cmd_get 4",
        "get_hits 3",
        "get_misses 1",
        "incr_hits 1",
        "delete_misses 1",
        "touch_hits 1",
        "cmd_meta 1",
        "curr_items 1",
        "total_items 1",
        "pointer_size 64",
        "uptime 0",
        "time 1000000000",
    ] {
        if line.starts_with("uptime") {
            assert!(text.contains("STAT uptime "));
            continue;
        }
        assert!(
            text.contains(&format!("STAT {line}\r\n")),
            "{line} in {text}"
        );
    }
    assert!(text.ends_with("END\r\n"));
    assert_eq!(client.send(b"stats reset\r\n", 99), b"RESET\r\n");
    assert_eq!(service.counters().figure("cmd_set"), Some(0));
    let engine = String::from_utf8(client.send(b"stats engine\r\n", 99)).unwrap();
    assert!(
        engine.starts_with("STAT engine tiny\r\nSTAT survives nothing\r\n"),
        "{engine}"
    );
    let settings = String::from_utf8(client.send(b"stats settings\r\n", 99)).unwrap();
    assert!(settings.contains("STAT item_size_max 1048576\r\n"));
    plays(
        "> stats sizes
         < END
         > stats items
         < END
         > stats detail
         < CLIENT_ERROR usage: stats detail on|off|dump
         > stats detail on
         < OK
         > set p:a 0 0 1
         > x
         < STORED
         > get p:a p:b q:a
         < VALUE p:a 0 1
         < x
         < END
         > delete p:a
         < DELETED
         > stats detail dump
         < PREFIX p get 2 hit 1 set 1 del 1
         < PREFIX q get 1 hit 0 set 0 del 0
         < END
         > stats detail off
         < OK",
    );
}

/// Each figure of commands, with what moves it alone of those next to it.
#[test]
fn every_figure_of_commands_moves_when_what_it_counts_happens() {
    let options = azekura::record::memory::tiny::Options::new().memory_limit(Some(4 << 20));
    let engine = TinyDb::with(&options).unwrap();
    let service = over(Arc::new(engine), Settings::default());
    service.set_time(1_000_000_000).unwrap();
    let mut client = Client::new(&service);
    let large = format!("set large 0 0 2000000\r\n{}\r\n", "x".repeat(2_000_000));
    let before = "set a 0 0 1\r\n1\r\nset n 0 0 1\r\n5\r\n";
    client.send(before.as_bytes(), 99);
    for (request, moved) in [
        ("get a\r\n", &["cmd_get", "get_hits"][..]),
        ("get b\r\n", &["cmd_get", "get_misses"]),
        (
            "set c 0 -1 1\r\n1\r\nget c\r\n",
            &["cmd_set", "total_items", "get_expired", "get_misses"],
        ),
        ("flush_all 1000\r\n", &["cmd_flush"]),
        ("touch a 0\r\n", &["cmd_touch", "touch_hits"]),
        ("touch b 0\r\n", &["cmd_touch", "touch_misses"]),
        ("mg a v\r\n", &["cmd_meta", "get_hits"]),
        ("set d 0 0 1\r\n1\r\ndelete d\r\n", &["delete_hits"]),
        ("delete d\r\n", &["delete_misses"]),
        ("incr n 1\r\n", &["incr_hits"]),
        ("incr b 1\r\n", &["incr_misses"]),
        ("decr n 1\r\n", &["decr_hits"]),
        ("decr b 1\r\n", &["decr_misses"]),
        ("cas b 0 0 1 1\r\n1\r\n", &["cas_misses"]),
        ("cas a 0 0 1 18446744073709551615\r\n1\r\n", &["cas_badval"]),
        (
            "ms e 1\r\nx\r\nme e\r\n",
            &["cmd_meta", "cmd_set", "total_items"],
        ),
        (&large, &["store_too_large"]),
        ("version\r\n", &["bytes_read", "bytes_written"]),
    ] {
        let figures = |name: &&str| service.counters().figure(name).expect(name);
        let was: Vec<u64> = moved.iter().map(figures).collect();
        client.send(request.as_bytes(), 99_999);
        for (name, was) in moved.iter().zip(was) {
            let shown = &request[..request.len().min(60)];
            assert!(figures(name) > was, "{name} after {shown:?}");
        }
    }
    // The version of a record is known from its answer.
    let answer = client.send(b"gets a\r\n", 99);
    let text = String::from_utf8(answer).unwrap();
    let version = text.lines().next().and_then(|line| line.rsplit(' ').next());
    let cas = format!("cas a 0 0 1 {}\r\n2\r\n", version.unwrap());
    let stored = client.send(cas.as_bytes(), 99);
    assert_eq!(stored, b"STORED\r\n");
    assert_eq!(service.counters().figure("cas_hits"), Some(1));
    // What finds no room, and an answer that is longer than the output may be.
    let data = "x".repeat(100_000);
    for n in 0..100 {
        let set = format!("set k{n} 0 0 100000\r\n{data}\r\n");
        client.send(set.as_bytes(), 1 << 20);
    }
    assert!(service.counters().figure("store_no_memory") > Some(0));
    let before = service.counters().figure("conn_yields");
    client.send("get k0\r\n".repeat(50).as_bytes(), 1 << 20);
    assert!(service.counters().figure("conn_yields") > before);
}

struct ServerControl(std::sync::mpsc::Sender<bool>);

impl Outside for ServerControl {
    fn figures(&self, group: &str, report: &mut dyn FnMut(&str, &str)) {
        report(&format!("{group}:own"), "1");
    }
    fn shut_down(&self, graceful: bool) {
        self.0.send(graceful).unwrap();
    }
    fn set_memory_limit(&self, bytes: u64) -> bool {
        bytes == 64 << 20
    }
}

#[test]
fn what_only_the_owner_of_the_sockets_knows_comes_from_him() {
    let service = service(Settings {
        shutdown_enabled: true,
        ..Settings::default()
    });
    let (report, received) = std::sync::mpsc::channel();
    let mut client = Client::new(&service);
    let limits =
        b"cache_memlimit 64\r\ncache_memlimit 7\r\ncache_memlimit 1000000001\r\ncache_memlimit\r\n";
    let expected = "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n\
        MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n\
        ERROR\r\n";
    let refused = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
    let answer = client.send(limits, 99);
    assert_eq!(
        String::from_utf8_lossy(&answer),
        format!("{refused}{expected}")
    );
    service.set_outside(Box::new(ServerControl(report)));
    let answer = client.send(limits, 99);
    assert_eq!(
        String::from_utf8_lossy(&answer),
        format!("OK\r\n{expected}")
    );
    let recent = client.send(b"stats recent\r\n", 99);
    assert_eq!(recent, b"STAT recent:own 1\r\nEND\r\n");
    let answer = client.send(b"shutdown x\r\n", 99);
    assert_eq!(answer, b"CLIENT_ERROR invalid shutdown mode\r\n");
    client.send(b"shutdown graceful\r\n", 99);
    assert!(client.is_closed);
    assert!(received.recv().unwrap());
}
