//! Commands of operators: `lru_crawler`, `lru`, `slabs`, `refresh_certs`, and the dumps of `stats`.
//! What is tuned in memcached and not here is judged as there; dumps are compared line by line, in any order.
//! It knows no sockets; the certificate is the test's own word.

use std::sync::Arc;

use azekura::record::memory::tiny::TinyDb;
use azekura_server::memcached::{ClientInfo, Outside, Session, Settings, Transport};

use crate::wire::{Client, NOW, is_like, over, plays, plays_with, service};

#[test]
fn tuning_what_there_is_not_is_judged_and_answered_as_where_it_is_off() {
    plays(
        "> slabs
         < ERROR
         > slabs foo
         < ERROR
         > slabs automove
         < ERROR
         > slabs automove 0
         < OK
         > slabs automove 2
         < OK
         > slabs automove 3
         < ERROR
         > slabs automove x
         < CLIENT_ERROR bad command line format
         > slabs automove ratio 0.5
         < OK
         > slabs automove ratio
         < ERROR
         > slabs automove window 2
         < CLIENT_ERROR automove window too low or too high
         > slabs automove window 30
         < OK
         > slabs reassign 1
         < ERROR
         > slabs reassign 1 2
         < CLIENT_ERROR slab reassignment disabled
         > lru
         < ERROR
         > lru mode flat
         < ERROR
         > lru temp_ttl 10
         < ERROR
         > lru tune 10 10 0.2
         < ERROR
         > lru tune 10 10 0.2 2.0
         < OK
         > lru tune 50 50 1 1
         < ERROR hot and warm pcts must not exceed 80
         > lru tune 10 10 0 1
         < ERROR hot/warm age factors must be greater than 0
         > refresh_certs
         < ERROR
         > extstore free_memchunks 1 1
         < ERROR",
    );
}

#[test]
fn the_crawler_is_switched_asked_and_refused_as_memcacheds() {
    plays(
        "> lru_crawler
         < ERROR
         > lru_crawler foo
         < ERROR
         > lru_crawler crawl
         < ERROR
         > lru_crawler metadump all more
         < ERROR
         > lru_crawler enable
         < ERROR failed to start lru crawler thread
         > lru_crawler sleep 100
         < OK
         > lru_crawler sleep 1000001
         < CLIENT_ERROR sleep must be one second or less
         > lru_crawler tocrawl x
         < CLIENT_ERROR bad command line format
         > lru_crawler tocrawl 10
         < OK
         > lru_crawler crawl 64
         < BADCLASS invalid class id
         > lru_crawler crawl hash
         < ERROR an unknown error happened
         > lru_crawler crawl 2,3
         < OK
         > lru_crawler crawl 1
         < OK
         > lru_crawler crawl all
         < BUSY currently processing crawler request
         > lru_crawler disable
         < OK
         > lru_crawler disable
         < OK
         > lru_crawler crawl all
         < CLIENT_ERROR lru crawler disabled
         > lru_crawler metadump all
         < CLIENT_ERROR lru crawler disabled
         > lru_crawler enable
         < OK
         > lru_crawler metadump 0
         < BADCLASS invalid class id
         > lru_crawler mgdump 1,x
         < BADCLASS invalid class id
         > lru_crawler metadump all
         < OK
         < END
         > lru_crawler mgdump hash
         < OK
         < EN",
    );
    let refused = Settings {
        dump_enabled: false,
        ..Settings::default()
    };
    plays_with(
        &refused,
        "> lru_crawler metadump all
         < ERROR metadump not allowed
         > lru_crawler mgdump all
         < ERROR key dump not allowed
         > stats cachedump 1 0
         < CLIENT_ERROR stats cachedump not allowed
         > keys a 1
         < CLIENT_ERROR dump not allowed",
    );
}

#[test]
fn a_round_that_was_asked_for_finds_all_that_is_over_and_counts_it() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    for i in 0..100 {
        let time = if i == 3 { 10 } else { 0 };
        client.send(format!("set {i} 0 {time} 1\r\nx\r\n").as_bytes(), 99);
    }
    let swept = |records| service.sweep_on(records, &|| true).unwrap().looked;
    // It is in the midst of a round, and nothing is over.
    assert_eq!(swept(7), 7);
    service.set_time(NOW + 10).unwrap();
    assert!(!service.is_sweep_asked());
    assert_eq!(client.send(b"lru_crawler disable\r\n", 99), b"OK\r\n");
    assert_eq!(swept(7), 0);
    client.send(b"lru_crawler enable\r\nlru_crawler crawl all\r\n", 99);
    assert!(service.is_sweep_asked());
    // From the first record to the last, however few at once; not a quarter of the last ones is over.
    assert_eq!(swept(8), 100);
    assert!(!service.is_sweep_asked());
    assert_eq!(service.engine().count(), 99);
    let text = String::from_utf8(client.send(b"stats\r\nstats items\r\n", 99)).unwrap();
    for line in [
        "STAT lru_crawler_running 0",
        "STAT lru_crawler_starts 2",
        "STAT crawler_reclaimed 1",
        "STAT crawler_items_checked 107",
        "STAT items:1:number 99",
        "STAT items:1:crawler_reclaimed 1",
    ] {
        assert!(text.contains(&format!("{line}\r\n")), "{line} in {text}");
    }
}

#[test]
fn metadump_and_its_kin_tell_every_item_in_memcacheds_words() {
    let service = service(Settings::default());
    let mut client = Client::new(&service);
    client.send(
        b"set x:y_-.~ 7 100 1\r\nz\r\nms YSBiJQBj 2 b\r\nhi\r\nset gone 0 -1 1\r\nx\r\n",
        99,
    );
    let mut lines = |line: &str| -> Vec<String> {
        let text = String::from_utf8(client.send(line.as_bytes(), 99)).unwrap();
        let mut lines: Vec<_> = text.split_inclusive('\n').map(str::to_owned).collect();
        let last = lines.len() - 1;
        lines[1..last].sort();
        lines
    };
    let expected = [
        "OK\r\n",
        "key=a%20b%25%00c exp=-1 la=0 cas=# fetch=no cls=1 size=17 flags=0 \n",
        "key=x%3Ay_-.~ exp=1000000100 la=0 cas=# fetch=no cls=1 size=25 flags=7 \n",
        "END\r\n",
    ];
    for classes in ["all", "hash", "1", "2,1"] {
        let found = lines(&format!("lru_crawler metadump {classes}\r\n"));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(is_like(found, expected), "{found} for {expected}");
        }
    }
    assert_eq!(lines("lru_crawler metadump 2\r\n"), ["OK\r\n", "END\r\n"]);
    assert_eq!(
        lines("lru_crawler mgdump all\r\n"),
        ["OK\r\n", "mg YSBiJQBj b\r\n", "mg x:y_-.~\r\n", "EN\r\n"]
    );
    let mut dumped = |line: &str| {
        let text = String::from_utf8(client.send(line.as_bytes(), 99)).unwrap();
        let mut lines: Vec<_> = text.split_terminator("\r\n").map(str::to_owned).collect();
        assert_eq!(lines.pop().as_deref(), Some("END"));
        lines.sort();
        lines
    };
    assert_eq!(
        dumped("stats cachedump 1 0\r\n"),
        [
            "ITEM a%20b%25%00c [2 b; 0 s]",
            "ITEM x:y_-.~ [1 b; 1000000100 s]"
        ]
    );
    assert_eq!(dumped("stats cachedump 1 1\r\n").len(), 1);
    assert_eq!(dumped("stats cachedump 2 0\r\n").len(), 0);
    assert_eq!(
        dumped("stats sizes\r\n"),
        ["STAT 32 2"],
        "what is over is not counted"
    );
    plays(
        "> stats cachedump
         < CLIENT_ERROR bad command line
         > stats cachedump 1
         < CLIENT_ERROR bad command line
         > stats cachedump 1 x
         < CLIENT_ERROR bad command line format
         > stats cachedump 64 1
         < CLIENT_ERROR Illegal slab id",
    );
}

#[test]
fn sizes_are_told_in_steps_and_in_pieces_as_there_is_room() {
    let service = service(Settings {
        item_size_max: 8 << 20,
        output_max: 50,
        ..Settings::default()
    });
    let mut client = Client::new(&service);
    // 9 bytes of a head, and 2 of the key.
    for (key, len) in (10..).zip([21, 22, 53, 53, (1 << 20) - 11, (1 << 20) - 10, 3 << 20]) {
        let set = format!("set {key} 0 0 {len}\r\n{}\r\n", "x".repeat(len));
        assert_eq!(client.send(set.as_bytes(), 1 << 20), b"STORED\r\n");
    }
    let told = String::from_utf8(client.send(b"stats sizes\r\n", 99)).unwrap();
    assert_eq!(
        told,
        "STAT 32 1\r\nSTAT 64 3\r\nSTAT 1048576 1\r\nSTAT 2097152 1\r\nSTAT 4194304 1\r\nEND\r\n"
    );
}

#[test]
fn who_is_connected_is_told_with_what_he_does() {
    let service = service(Settings::default());
    let place = |number| ClientInfo {
        number,
        address: format!("tcp:192.0.2.1:{number}"),
        listener: "tcp:192.0.2.9:11211".into(),
        ip: None,
    };
    let of = |number| Session::new(Arc::clone(&service), Transport::Tcp).from(place(number));
    let listener = service.listener(ClientInfo {
        number: 3,
        address: "tcp:192.0.2.9:11211".into(),
        ..ClientInfo::default()
    });
    let (mut idle, mut busy, gone) = (of(7), of(8), of(9));
    idle.serve(b"get a\r\n", &mut Vec::new());
    service.set_time(NOW + 5).unwrap();
    // Short data waits in the caller's buffer, long data is collected: both are read.
    let mut short = of(10);
    short.serve(b"set a 0 0 50\r\nx", &mut Vec::new());
    busy.serve(b"set a 0 0 5000\r\nx", &mut Vec::new());
    drop(gone);
    service.set_time(NOW + 7).unwrap();
    let mut told = Vec::new();
    let mut asks = Session::new(Arc::clone(&service), Transport::Tcp);
    asks.serve(b"stats conns\r\n", &mut told);
    assert_eq!(
        String::from_utf8(told).unwrap(),
        "STAT 3:addr tcp:192.0.2.9:11211\r\nSTAT 3:state conn_listening\r\nSTAT 3:secs_since_last_cmd 7\r\n\
         STAT 7:addr tcp:192.0.2.1:7\r\nSTAT 7:listen_addr tcp:192.0.2.9:11211\r\nSTAT 7:state conn_read\r\n\
         STAT 7:secs_since_last_cmd 7\r\n\
         STAT 8:addr tcp:192.0.2.1:8\r\nSTAT 8:listen_addr tcp:192.0.2.9:11211\r\nSTAT 8:state conn_nread\r\n\
         STAT 8:secs_since_last_cmd 2\r\n\
         STAT 10:addr tcp:192.0.2.1:10\r\nSTAT 10:listen_addr tcp:192.0.2.9:11211\r\nSTAT 10:state conn_nread\r\n\
         STAT 10:secs_since_last_cmd 2\r\nEND\r\n"
    );
    drop((listener, idle, busy, short));
    let mut told = Vec::new();
    asks.serve(b"stats conns\r\n", &mut told);
    assert_eq!(told, b"END\r\n");
}

/// Whether there is a certificate, or it cannot be used.
struct Certified(Option<&'static str>);

impl Outside for Certified {
    fn figures(&self, _: &str, _: &mut dyn FnMut(&str, &str)) {}
    fn shut_down(&self, _: bool) {}
    fn refresh_certificates(&self) -> azekura::Result<bool> {
        match self.0 {
            None => Ok(true),
            Some(why) => Err(azekura::Error::new(azekura::Kind::Invalid, why)),
        }
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_told_as_such() {
    for (why, answer) in [
        (None, "OK\r\n"),
        (
            Some("the key is another's"),
            "SERVER_ERROR invalid: the key is another's\r\n",
        ),
    ] {
        let service = over(Arc::new(TinyDb::new().unwrap()), Settings::default());
        service.set_outside(Box::new(Certified(why)));
        let found = Client::new(&service).send(b"refresh_certs\r\n", 99);
        assert_eq!(String::from_utf8_lossy(&found), answer);
    }
}
