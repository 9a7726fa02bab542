//! What goes with time: items that expire, the sweep, `flush_all`.
//! The clock is set by the test, so no test waits.
//! It knows no threads: the sweep is called.

use azekura_server::memcached::Settings;

use crate::wire::{Client, NOW, service};

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
    let refused = crate::wire::service(Settings {
        flush_enabled: false,
        ..Settings::default()
    });
    let answer = Client::new(&refused).send(b"flush_all\r\n", 99);
    assert_eq!(answer, b"CLIENT_ERROR flush_all not allowed\r\n");
}
