//! The classic text protocol, as transcripts.
//!
//! Where memcached 1.6.45 and 1.6.18 differ, these are the answers of 1.6.45. Each test is a feature of the protocol.
//! What needs a clock or two connections is a conversation with a session instead of a transcript.

mod wire;

use std::sync::Arc;

use azekura::record::memory::tiny::TinyDb;
use azekura_server::memcached::{Next, Outside, Passwords, Session, Settings, Transport};
use wire::{Client, NOW, over, plays, plays_with, service};

#[test]
fn what_was_set_is_got() {
    plays(
        "> set a 5 0 3
         > one
         < STORED
         > get a
         < VALUE a 5 3
         < one
         < END
         > get b
         < END
         > get a b a
         < VALUE a 5 3
         < one
         < VALUE a 5 3
         < one
         < END
         > gets   a
         < VALUE a 5 3 #
         < one
         < END
         > set empty 0 0 0
         >
         < STORED
         > get empty
         < VALUE empty 0 0
         <
         < END
         > delete a
         < DELETED
         > delete a
         < NOT_FOUND
         > set binary 4294967295 0 6
         > a\\r\\n\\x00\\xff.
         < STORED
         > get binary
         < VALUE binary 4294967295 6
         < a\\r\\n\\x00\\xff.
         < END
         > version
         < VERSION #.#.#-azekura-#.#.#",
    );
}

#[test]
fn a_line_may_end_without_a_carriage_return_but_data_may_not() {
    plays(
        "> set a 0 0 2\\nhi
         < STORED
         > get a\\nget a
         < VALUE a 0 2
         < hi
         < END
         < VALUE a 0 2
         < hi
         < END
         > set a 0 0 2
         > hi\\nget a
         < CLIENT_ERROR bad data chunk
         < ERROR",
    );
}

#[test]
fn storing_depends_on_what_is_there() {
    plays(
        "> replace a 0 0 1
         > x
         < NOT_STORED
         > append a 0 0 1
         > x
         < NOT_STORED
         > prepend a 0 0 1
         > x
         < NOT_STORED
         > add a 3 0 3
         > one
         < STORED
         > add a 0 0 3
         > two
         < NOT_STORED
         > append a 9 9 2
         > >>
         < STORED
         > prepend a 9 9 2
         > <<
         < STORED
         > get a
         < VALUE a 3 7
         < <<one>>
         < END
         > replace a 4 0 3
         > two
         < STORED
         > get a
         < VALUE a 4 3
         < two
         < END
         > cas none 0 0 1 1
         > x
         < NOT_FOUND
         > cas a 0 0 1 1
         > x
         < EXISTS",
    );
}

#[test]
fn a_version_is_compared_and_changes_with_every_write() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    let mut version = || {
        let answer = client.send(b"gets a\r\n", 99);
        let line = String::from_utf8(answer).unwrap();
        let version = line.lines().next().unwrap().rsplit(' ').next().unwrap();
        version.parse::<u64>().unwrap()
    };
    let mut client = Client::new(&service);
    client.send(b"set a 0 0 1\r\nx\r\n", 99);
    let first = version();
    client.send(b"touch a 0\r\n", 99);
    assert_eq!(version(), first, "touching is no write");
    for line in [
        "append a 0 0 1\r\n1\r\n",
        "set a 0 0 1\r\n7\r\n",
        "incr a 1\r\n",
    ] {
        let before = version();
        client.send(line.as_bytes(), 99);
        assert!(version() > before, "{line}");
    }
    let line = format!("cas a 0 0 1 {}\r\ny\r\n", version());
    assert_eq!(client.send(line.as_bytes(), 99), b"STORED\r\n");
    assert_eq!(client.send(line.as_bytes(), 99), b"EXISTS\r\n");
    let deleted = format!("cas a 0 0 1 {}\r\ny\r\n", version());
    client.send(b"delete a\r\nset a 0 0 1\r\nz\r\n", 99);
    assert_eq!(
        client.send(deleted.as_bytes(), 99),
        b"EXISTS\r\n",
        "a key that was deleted comes back with another version"
    );
}

#[test]
fn numbers_are_counted_up_and_down() {
    plays(
        "> incr n 1
         < NOT_FOUND
         > decr n 1
         < NOT_FOUND
         > set n 7 0 2
         > 10
         < STORED
         > incr n 5
         < 15
         > decr n 10
         < 5
         > get n
         < VALUE n 7 2
         < 5\\x20
         < END
         > decr n 10
         < 0
         > set n 0 0 20
         > 18446744073709551615
         < STORED
         > incr n 1
         < 0
         > incr n 18446744073709551616
         < CLIENT_ERROR invalid numeric delta argument
         > incr n -1
         < CLIENT_ERROR invalid numeric delta argument
         > incr n x
         < CLIENT_ERROR invalid numeric delta argument
         > set t 0 0 4
         > text
         < STORED
         > incr t 1
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > set t 0 0 0
         >
         < STORED
         > decr t 1
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > incr n 3 noreply
         > incr n 1
         < 4",
    );
}

#[test]
fn commands_that_want_no_answer_get_none() {
    plays(
        "> set a 0 0 1 noreply
         > x
         > add a 0 0 1 noreply
         > y
         > append a 0 0 1 noreply
         > y
         > cas a 0 0 1 1 noreply
         > z
         > touch a 100 noreply
         > incr a 1 noreply
         > set a x 0 1 noreply
         > y
         > set a 0 0 -1 noreply
         > get a
         < VALUE a 0 2
         < xy
         < END
         > delete a noreply
         > delete a noreply
         > verbosity 1 noreply
         > flush_all noreply
         > get a
         < END",
    );
}

#[test]
fn lines_that_are_not_as_they_should_be_are_refused() {
    plays(
        ">
         < CLIENT_ERROR bad command line format
         > x
         < CLIENT_ERROR bad command line format
         > unknown
         < ERROR
         > GET a
         < ERROR
         >\\x20 get a
         < ERROR
         > get
         < CLIENT_ERROR bad command line format
         > gets
         < CLIENT_ERROR bad command line format
         > gat 1
         < CLIENT_ERROR bad command line format
         > gat x a
         < CLIENT_ERROR invalid exptime argument
         > set a 0 0
         < CLIENT_ERROR bad command line format
         > set a 0 0 -1
         < CLIENT_ERROR bad command line format
         > set a 0 0 2147483646
         < CLIENT_ERROR bad command line format
         > set a -1 0 2
         > hi
         < CLIENT_ERROR bad command line format
         > set a 4294967296 0 2
         > hi
         < CLIENT_ERROR bad command line format
         > set a 0 soon 2
         > hi
         < CLIENT_ERROR bad command line format
         > cas a 0 0 2
         > hi
         < CLIENT_ERROR bad command line format
         > cas a 0 0 2 x
         > hi
         < CLIENT_ERROR bad command line format
         > delete
         < CLIENT_ERROR bad command line format
         > delete a 10
         < NOT_FOUND
         > delete a 0 noreply
         > delete a b c d e
         < CLIENT_ERROR bad command line format
         > incr a
         < CLIENT_ERROR bad command line format
         > touch a
         < CLIENT_ERROR bad command line format
         > touch a x
         < CLIENT_ERROR invalid exptime argument
         > flush_all x
         < CLIENT_ERROR invalid exptime argument
         > verbosity
         < CLIENT_ERROR bad command line format
         > shutdown
         < SERVER_ERROR: shutdown not enabled
         > shutdown now
         < SERVER_ERROR: shutdown not enabled
         > stats nothing
         < ERROR
         > verbosity 2
         < OK",
    );
}

#[test]
fn keys_have_at_most_250_bytes() {
    let (long, longer) = ("k".repeat(250), "k".repeat(251));
    plays(&format!(
        "> set {long} 0 0 1
         > x
         < STORED
         > get {long}
         < VALUE {long} 0 1
         < x
         < END
         > get {longer}
         < CLIENT_ERROR bad command line format
         > get {long} {longer}
         < CLIENT_ERROR bad command line format
         > set {longer} 0 0 1
         > x
         < CLIENT_ERROR bad command line format
         > delete {longer}
         < CLIENT_ERROR bad command line format
         > incr {longer} 1
         < CLIENT_ERROR bad command line format
         > touch {longer} 1
         < CLIENT_ERROR bad command line format
         > gat 1 {longer}
         < CLIENT_ERROR bad command line format"
    ));
}

#[test]
fn data_that_does_not_end_where_it_should_is_refused_and_read_as_a_line() {
    plays(
        "> set a 0 0 2
         > hi there
         < CLIENT_ERROR bad data chunk
         < ERROR
         > get a
         < END",
    );
}

#[test]
fn an_item_too_large_passes_by_and_only_a_set_takes_the_old_one_along() {
    let settings = Settings {
        item_size_max: 1024,
        ..Settings::default()
    };
    let (fits, over) = (1024 - 59 - 1, 1024 - 59);
    let data = "x".repeat(over);
    plays_with(
        &settings,
        &format!(
            "> set a 0 0 {fits}
             > {}
             < STORED
             > set a 0 0 {over}
             > {data}
             < SERVER_ERROR object too large for cache
             > get a
             < END
             > set a 0 0 1
             > x
             < STORED
             > append a 0 0 {}
             > {}
             < NOT_STORED
             > add a 0 0 {over} noreply
             > {data}
             > replace a 0 0 {over}
             > {data}
             < SERVER_ERROR object too large for cache
             > append a 0 0 {over}
             > {data}
             < SERVER_ERROR object too large for cache
             > prepend a 0 0 {over}
             > {data}
             < SERVER_ERROR object too large for cache
             > cas a 0 0 {over} 1
             > {data}
             < SERVER_ERROR object too large for cache
             > get a
             < VALUE a 0 1
             < x
             < END",
            &data[1..],
            fits - 1,
            &data[2..],
        ),
    );
}

#[test]
fn long_data_comes_in_pieces_and_little_is_kept() {
    let service = service(Settings::default());
    let data: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    let mut sent = b"set a 1 0 300000\r\n".to_vec();
    sent.extend_from_slice(&data);
    sent.extend_from_slice(b"\r\nget a\r\n");
    let mut client = Client::new(&service);
    let answer = client.send(&sent, 1000);
    assert!(client.kept_max < 2048, "{} bytes", client.kept_max);
    let mut expected = b"STORED\r\nVALUE a 1 300000\r\n".to_vec();
    expected.extend_from_slice(&data);
    expected.extend_from_slice(b"\r\nEND\r\n");
    assert_eq!(answer, expected);
    // The data's end is looked at, wherever it was cut.
    let mut bad = b"set a 1 0 5000\r\n".to_vec();
    bad.extend_from_slice(&data[..5000]);
    bad.extend_from_slice(b"xx");
    assert_eq!(client.send(&bad, 4999), b"CLIENT_ERROR bad data chunk\r\n");
}

#[test]
fn a_get_of_endless_keys_is_answered_as_they_come() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    for i in 0..3000 {
        sent.extend_from_slice(format!("set key-{i} 0 0 4 noreply\r\n{i:4}\r\n").as_bytes());
    }
    sent.extend_from_slice(b"get");
    for i in 0..3000 {
        sent.extend_from_slice(format!(" key-{i} none").as_bytes());
        expected.extend_from_slice(format!("VALUE key-{i} 0 4\r\n{i:4}\r\n").as_bytes());
    }
    sent.extend_from_slice(b"\r\nmn\r\n");
    expected.extend_from_slice(b"END\r\nMN\r\n");
    for piece in [1, 100, usize::MAX] {
        let answer = client.send(&sent, piece);
        assert_eq!(
            String::from_utf8_lossy(&answer),
            String::from_utf8_lossy(&expected),
            "in pieces of {piece}"
        );
    }
    let mut client = Client::new(&service);
    client.send(&sent, 100);
    assert!(client.kept_max < 8192, "{} bytes", client.kept_max);
}

#[test]
fn a_long_line_that_is_no_get_closes_the_connection() {
    let service = service(Settings::default());
    for (line, is_closed) in [
        ("set", true),
        ("stats", true),
        ("get", false),
        ("gets", false),
    ] {
        let mut client = Client::new(&service);
        let line = format!("{line} {}", "k ".repeat(1500));
        client.send(line.as_bytes(), 1000);
        assert_eq!(client.is_closed, is_closed, "{line}");
    }
}

#[test]
fn items_expire_and_touching_changes_when() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    let set = b"set r 0 10 1\r\nx\r\nset a 0 1000000020 1\r\nx\r\nset n 0 -1 1\r\nx\r\nset e 0 0 1\r\nx\r\n";
    assert_eq!(client.send(set, 99), b"STORED\r\n".repeat(4));
    let present = |now: u32| {
        service.set_time(now).unwrap();
        let mut client = Client::new(&service);
        let answer = client.send(b"get r a n e\r\n", 99);
        let lines = String::from_utf8(answer).unwrap();
        lines
            .lines()
            .filter_map(|line| line.strip_prefix("VALUE "))
            .map(|line| &line[..1])
            .collect::<String>()
    };
    assert_eq!(present(NOW), "rae");
    assert_eq!(present(NOW + 9), "rae");
    assert_eq!(present(NOW + 10), "ae");
    assert_eq!(present(NOW + 20), "e");
    service.set_time(NOW + 5).unwrap();
    assert_eq!(
        client.send(b"touch r 100\r\ntouch n 5\r\n", 99),
        b"TOUCHED\r\nNOT_FOUND\r\n"
    );
    assert_eq!(
        client.send(b"gat 200 a z\r\n", 99),
        b"VALUE a 0 1\r\nx\r\nEND\r\n"
    );
    assert_eq!(present(NOW + 104), "rae");
    assert_eq!(present(NOW + 105), "ae");
    assert_eq!(present(NOW + 205), "e");
    assert_eq!(
        client.send(b"add r 0 0 1\r\ny\r\ndelete a\r\nincr a 1\r\n", 99),
        b"STORED\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
        "an item that is over is absent"
    );
}

#[test]
fn what_is_over_is_swept_away() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    for i in 0..100 {
        let time = if i % 2 == 0 { 10 } else { 0 };
        client.send(format!("set {i} 0 {time} 1\r\nx\r\n").as_bytes(), 99);
    }
    assert_eq!(service.sweep(1000).unwrap().removed, 0);
    service.set_time(NOW + 10).unwrap();
    assert_eq!(service.engine().count(), 100);
    let (mut removed, mut looked, mut calls) = (0, 0, 0);
    loop {
        let swept = service.sweep(7).unwrap();
        assert!(swept.looked <= 7);
        (removed, looked, calls) = (removed + swept.removed, looked + swept.looked, calls + 1);
        if swept.is_round {
            break;
        }
    }
    assert_eq!((removed, looked, service.engine().count()), (50, 100, 50));
    assert!(calls >= 15);
}

#[test]
fn numbers_and_times_are_read_as_1_6_45_reads_them() {
    plays(
        "> set k +1 0 1
         > a
         < STORED
         > get k
         < VALUE k 1 1
         < a
         < END
         > touch k 3000000000
         < CLIENT_ERROR invalid exptime argument
         > gat 3000000000 k
         < CLIENT_ERROR invalid exptime argument
         > flush_all 3000000000
         < CLIENT_ERROR invalid exptime argument
         > set k 0 3000000000 1
         > b
         < STORED
         > get k
         < END
         > cas k 0 0 5
         > versi
         < CLIENT_ERROR bad command line format
         > cas k 0 0 1 noreply
         > b
         > set k 0 0 +1
         < CLIENT_ERROR bad command line format
         > set k 0 0 10
         > 12 monkeys
         < STORED
         > incr k +1
         < CLIENT_ERROR invalid numeric delta argument
         > incr k 1
         < 13
         > get k
         < VALUE k 0 10
         < 13        
         < END
         > set k 0 0 3
         > 12x
         < STORED
         > incr k 1
         < CLIENT_ERROR cannot increment or decrement non-numeric value
         > set k 0 0 3
         > +12
         < STORED
         > incr k 1
         < 13
         > verbosity 99999999999
         < CLIENT_ERROR bad command line format
         > cache_memlimit x
         < ERROR
         > cache_memlimit
         < ERROR
         > shutdown x
         < SERVER_ERROR: shutdown not enabled",
    );
}

#[test]
fn keys_of_any_bytes_do_not_break_the_lines_of_a_dump() {
    plays(
        "> ms YQ0KRU5EICU= 1 b
         > x
         < HD
         > keys a 9
         < KEY a%0D%0AEND%20%25
         < END
         > dump_key
         < KEY a%0D%0AEND%20%25
         < END
         > dump
         < VALUE a%0D%0AEND%20%25 0 1 # 0
         < x
         < END
         > stats detail on
         < OK
         > ms DQo6YQ== 1 b
         > x
         < HD
         > stats detail dump
         < PREFIX %0D%0A get 0 hit 0 set 1 del 0
         < END",
    );
}

#[test]
fn flushing_removes_all_now_or_later() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    let answer = client.send(b"set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\n", 99);
    assert_eq!(answer, b"STORED\r\nOK\r\nEND\r\n");
    let answer = client.send(b"set a 0 0 1\r\nx\r\nflush_all 10\r\nget a\r\n", 99);
    assert_eq!(answer, b"STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    service.set_time(NOW + 9).unwrap();
    assert_eq!(service.engine().count(), 1);
    service.set_time(NOW + 10).unwrap();
    assert_eq!(service.engine().count(), 0);
    let refused = wire::service(Settings {
        flush_enabled: false,
        ..Settings::default()
    });
    let answer = Client::new(&refused).send(b"flush_all\r\n", 99);
    assert_eq!(answer, b"CLIENT_ERROR flush_all not allowed\r\n");
}

#[test]
fn quitting_and_speaking_http_close_the_connection() {
    let service = service(Settings::default());
    for line in ["quit\r\n", "POST / HTTP/1.1\r\n"] {
        let mut client = Client::new(&service);
        assert_eq!(client.send(line.as_bytes(), 99), b"");
        assert!(client.is_closed, "{line}");
    }
}

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
    assert_eq!(service.stats().figure("cmd_set"), Some(0));
    let engine = String::from_utf8(client.send(b"stats engine\r\n", 99)).unwrap();
    assert!(
        engine.starts_with("STAT engine tiny\r\nSTAT survives nothing\r\n"),
        "{engine}"
    );
    let settings = String::from_utf8(client.send(b"stats settings\r\n", 99)).unwrap();
    assert!(settings.contains("STAT item_size_max 1048576\r\n"));
    plays(
        "> stats sizes
         < STAT sizes_status disabled
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

struct Owner(std::sync::mpsc::Sender<bool>);

impl Outside for Owner {
    fn figures(&self, group: &str, tell: &mut dyn FnMut(&str, &str)) {
        tell(&format!("{group}:own"), "1");
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
    let (tell, told) = std::sync::mpsc::channel();
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
    service.set_outside(Box::new(Owner(tell)));
    let answer = client.send(limits, 99);
    assert_eq!(
        String::from_utf8_lossy(&answer),
        format!("OK\r\n{expected}")
    );
    let conns = client.send(b"stats conns\r\n", 99);
    assert_eq!(conns, b"STAT conns:own 1\r\nEND\r\n");
    let answer = client.send(b"shutdown x\r\n", 99);
    assert_eq!(answer, b"CLIENT_ERROR invalid shutdown mode\r\n");
    client.send(b"shutdown graceful\r\n", 99);
    assert!(client.is_closed);
    assert!(told.recv().unwrap());
}

#[test]
fn who_has_no_password_is_refused_until_he_has() {
    let service = service(Settings::default());
    service.set_passwords(Some(Passwords::parse(b"anna:secret\n").unwrap()));
    let sent = b"get a\r\nset a 0 0 11\r\nanna public\r\nset a 0 0 4\r\nanna\r\nset a 0 0 1\r\nxyz\
        set x 0 0 11\r\nanna secret\r\nset a 0 0 1\r\nx\r\nget a\r\n";
    let expected = "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\n\
        CLIENT_ERROR bad authentication token format\r\nCLIENT_ERROR bad command line termination\r\n\
        STORED\r\nSTORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n";
    for piece in [1, 5, usize::MAX] {
        let answer = Client::new(&service).send(sent, piece);
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }
    assert_eq!(service.stats().figure("auth_cmds"), Some(6));
    assert_eq!(service.stats().figure("auth_errors"), Some(3));
    // No data is that long, so what follows is a line.
    let answer = Client::new(&service).send(b"set a 0 0 18446744073709551615\r\nmn\r\n", 99);
    assert_eq!(answer, b"CLIENT_ERROR unauthenticated\r\n".repeat(2));
    let long = format!("set a 0 0 600\r\n{}\r\n", "x".repeat(600));
    let answer = Client::new(&service).send(long.as_bytes(), 100);
    assert_eq!(answer, b"CLIENT_ERROR auth token too long\r\n");
}

#[test]
fn a_full_output_is_written_before_more_is_said() {
    let service = service(Settings {
        output_max: 1000,
        ..Settings::default()
    });
    let mut session = Session::new(Arc::clone(&service), Transport::Tcp);
    let mut sent = format!("set a 0 0 500\r\n{}\r\n", "x".repeat(500)).into_bytes();
    sent.extend_from_slice(b"get");
    sent.extend_from_slice(&b" a".repeat(100));
    sent.extend_from_slice(b"\r\n");
    let mut output = Vec::new();
    let (mut at, mut yields) = (0, 0);
    loop {
        let served = session.serve(&sent[at..], &mut output);
        at += served.consumed;
        assert!(
            output.len() < 1000 + 600,
            "one value over the limit at most"
        );
        match served.next {
            Next::Yield => {
                let again = session.serve(&sent[at..], &mut output);
                assert_eq!((again.consumed, again.next), (0, Next::Yield));
                output.clear();
                yields += 1;
            }
            Next::More { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(yields > 40);
    assert_eq!(at, sent.len());
}

#[test]
fn a_datagram_that_is_not_whole_leaves_nothing_behind() {
    let service = service(Settings::default());
    let mut session = Session::new(Arc::clone(&service), Transport::Udp);
    let mut output = Vec::new();
    session.serve(b"set a 0 0 9000\r\nhalf", &mut output);
    session.serve(b"set a 0 0 1\r\nx\r\nget", &mut output);
    session.serve(b"get a\r\n", &mut output);
    assert_eq!(output, b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn records_of_others_are_damage_and_not_absence() {
    let db = Arc::new(TinyDb::new().unwrap());
    azekura::Verbs::put(&*db, b"foreign", b"\xffwhat is this").unwrap();
    let service = over(db, Settings::default());
    let mut client = Client::new(&service);
    let answer = client.send(b"get foreign other\r\nadd foreign 0 0 1\r\nx\r\n", 99);
    let line = "SERVER_ERROR corrupted: the record's value is no item for key \"foreign\"; \
        set or delete it, if this file is the server's\r\n";
    assert_eq!(String::from_utf8_lossy(&answer), format!("{line}{line}"));
    let answer = client.send(b"delete foreign\r\nget foreign\r\n", 99);
    assert_eq!(answer, b"DELETED\r\nEND\r\n");
}

#[test]
fn an_engine_that_is_full_says_so_and_goes_on_reading() {
    let options = azekura::record::memory::tiny::Options {
        memory_limit: Some(4 << 20),
    };
    let service = over(
        Arc::new(TinyDb::with(&options).unwrap()),
        Settings::default(),
    );
    let mut client = Client::new(&service);
    client.send(b"set a 0 0 1\r\nx\r\n", 99);
    let data = "x".repeat(100_000);
    let mut refused = 0;
    for i in 0..100 {
        let answer = client.send(
            format!("set k{i} 0 0 100000\r\n{data}\r\n").as_bytes(),
            1 << 20,
        );
        if answer == b"SERVER_ERROR out of memory storing object\r\n" {
            refused += 1;
        } else {
            assert_eq!(answer, b"STORED\r\n");
        }
    }
    assert!(refused > 0);
    assert_eq!(
        client.send(b"get a\r\n", 99),
        b"VALUE a 0 1\r\nx\r\nEND\r\n"
    );
}

#[test]
fn all_keys_and_all_items_can_be_walked() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    for i in 0..5000 {
        client.send(
            format!("set key-{i} 7 0 3\r\n{:3}\r\n", i % 1000).as_bytes(),
            99,
        );
    }
    client.send(b"set gone 0 -1 1\r\nx\r\nset other 0 100 1\r\nx\r\n", 99);
    let lines = |client: &mut Client, line: &str| -> Vec<String> {
        let answer = client.send(line.as_bytes(), 99);
        let text = String::from_utf8(answer).unwrap();
        text.split("\r\n").map(str::to_owned).collect()
    };
    let mut keys = lines(&mut client, "dump_key\r\n");
    assert_eq!(keys.split_off(5001), ["END", ""]);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 5001);
    let dump = lines(&mut client, "dump\r\n");
    let heads: Vec<_> = dump.iter().filter(|l| l.starts_with("VALUE ")).collect();
    assert_eq!(heads.len(), 5001);
    let other = dump
        .iter()
        .find(|line| line.starts_with("VALUE other 0 1 "));
    assert!(other.unwrap().ends_with(&format!(" {}", NOW + 100)));
    let mut found = lines(&mut client, "keys key-123 oth 9999\r\n");
    found.sort();
    assert_eq!(
        found.iter().filter(|line| line.starts_with("KEY ")).count(),
        12
    );
    assert_eq!(lines(&mut client, "keys key- 7\r\n").len(), 7 + 2);
    assert_eq!(client.paused_ms, 0);
    lines(&mut client, "dump 0 0 1 100\r\n");
    let bytes = dump.iter().map(|line| line.len() as u64 + 2).sum::<u64>();
    let expected = bytes * 1000 / (100 << 10);
    assert!(
        (expected * 8 / 10..=expected).contains(&client.paused_ms),
        "{} for {expected}",
        client.paused_ms
    );
    assert_eq!(
        client.send(b"dump 0 1 2\r\nkeys\r\ndump x\r\n", 99),
        b"CLIENT_ERROR there is one partition: 0 of 1\r\nCLIENT_ERROR bad command line format\r\n\
          CLIENT_ERROR bad command line format\r\n"
    );
}

#[test]
fn writes_ask_for_a_sync_where_answers_must_survive_loss_of_power() {
    for power in [false, true] {
        let service = service(Settings {
            power,
            ..Settings::default()
        });
        let mut session = Session::new(Arc::clone(&service), Transport::Tcp);
        let mut ask = |line: &str| session.serve(line.as_bytes(), &mut Vec::new()).must_sync;
        for line in [
            "set a 0 0 1\r\n1\r\n",
            "incr a 1\r\n",
            "touch a 9\r\n",
            "delete a\r\n",
            "ms a 1\r\nx\r\n",
            "flush_all\r\n",
        ] {
            assert_eq!(ask(line), power, "{line}");
        }
        for line in [
            "get a\r\n",
            "mg a v\r\n",
            "delete a\r\n",
            "add a 0\r\n",
            "version\r\n",
        ] {
            assert!(!ask(line), "{line}");
        }
        assert!(ask("ms a 1 Yp\r\nx\r\n"), "one request may ask for it");
    }
}
