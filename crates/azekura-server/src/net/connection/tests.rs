//! A connection over a pair of sockets, turn by turn: what it owes, when it is overdue, and what a sync holds back.
//!
//! The worker is left out: each test gives the turns itself and states what the socket reported. Times are seconds that the
//! test sets.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use azekura::record::memory::tiny::TinyDb;

use super::super::meter::SlowRequests;
use super::*;
use crate::memcached::{Service, Settings, Transport};

/// A connection, its client, and what a thread lends.
fn connected(settings: Settings) -> (Connection, UnixStream, Turn) {
    let service = Arc::new(Service::new(Arc::new(TinyDb::new().unwrap()), settings));
    let (ours, client) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    let session = Session::new(Arc::clone(&service), Transport::Unix);
    let turn = Turn {
        input: Vec::with_capacity(1 << 12),
        is_fed: false,
        output: Vec::new(),
        scratch: Vec::new(),
        now_s: 0,
        held: 0,
        held_max: 1 << 20,
        meter: Meter::new(&service, Arc::new(SlowRequests::default())),
    };
    (
        Connection::new(Stream::Unix(ours), session, 0),
        client,
        turn,
    )
}

#[test]
fn a_walk_that_keeps_its_pauses_is_not_stalled() {
    let (mut connection, mut client, mut turn) = connected(Settings::default());
    for n in 0..3 {
        let set = format!("set {n} 0 0 1000 noreply\r\n{:01000}\r\n", 0);
        client.write_all(set.as_bytes()).unwrap();
        connection.changed(true, false);
        assert_eq!(connection.advance(&mut turn), Action::Rest);
    }
    client.write_all(b"dump 0 0 1 1\r\n").unwrap();
    connection.changed(true, false);
    let mut now_s = 0;
    let mut answer = [0; 2048];
    for _ in 0..2 {
        turn.now_s = now_s;
        assert!(matches!(connection.advance(&mut turn), Action::Sleep(_)));
        assert!(client.read(&mut answer).unwrap() > 1000);
        // However long it sleeps, it owes something, not the client.
        now_s += 100;
        assert_eq!(connection.overdue(now_s, 3, 3), None);
        connection.wake();
    }
    turn.now_s = now_s;
    while connection.advance(&mut turn) != Action::Rest {
        connection.wake();
    }
    // Its last bytes left now: from here on it is idle.
    assert_eq!(connection.overdue(now_s + 3, 3, 3), None);
    assert_eq!(connection.overdue(now_s + 4, 3, 3), Some(Overdue::Idle));
}

#[test]
fn who_hangs_up_while_a_walk_sleeps_is_closed() {
    let (mut connection, mut client, mut turn) = connected(Settings::default());
    client
        .write_all(b"set a 0 0 1\r\nb\r\nset b 0 0 1\r\nb\r\ndump 1000000 0 1 1\r\n")
        .unwrap();
    connection.changed(true, false);
    // A pause as long as this follows each record.
    let second = Duration::from_secs(1);
    assert_eq!(connection.advance(&mut turn), Action::Sleep(second));
    connection.changed(true, true);
    assert_eq!(connection.advance(&mut turn), Action::Rest);
    assert_eq!(connection.overdue(4, 0, 3), Some(Overdue::Request));
    connection.hung_up();
    assert_eq!(connection.advance(&mut turn), Action::Close);
}

#[test]
fn a_pipeline_cut_within_requests_is_read_by_whole_buffers() {
    let settings = Settings {
        power: true,
        ..Settings::default()
    };
    let (mut connection, mut client, mut turn) = connected(settings);
    turn.input = Vec::with_capacity(1 << 14);
    let set = b"set ab 0 0 1\r\nb\r\n";
    let count = (6 << 14) / set.len();
    client.write_all(&set.repeat(count)).unwrap();
    connection.changed(true, false);
    let mut syncs = 0;
    while connection.advance(&mut turn) == Action::Commit {
        connection.synced();
        syncs += 1;
    }
    // Seven, as each but the first begins with a part that is there.
    assert_eq!(syncs, 7);
    assert!(connection.is_at_rest() && connection.held() == 0);
    let mut received = vec![0; 2 * count * b"STORED\r\n".len()];
    let len = client.read(&mut received).unwrap();
    assert_eq!(received[..len], b"STORED\r\n".repeat(count));
}

#[test]
fn an_answer_that_waits_for_a_sync_does_not_leave_whatever_else_happens() {
    let settings = Settings {
        power: true,
        ..Settings::default()
    };
    let (mut connection, mut client, mut turn) = connected(settings);
    let set = b"set a 0 0 1\r\nb\r\n";
    client.write_all(set).unwrap();
    connection.changed(true, false);
    assert_eq!(connection.advance(&mut turn), Action::Commit);
    // More comes, and the connection has another turn, before the device has been asked.
    client.write_all(set).unwrap();
    connection.changed(true, false);
    assert_eq!(connection.advance(&mut turn), Action::Rest);
    let mut answer = [0; 64];
    assert_eq!(
        client.read(&mut answer).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    // However long that takes, it is not the client who stalls.
    assert_eq!(connection.overdue(100, 3, 3), None);
    assert!(!connection.is_at_rest());
    connection.synced();
    assert_eq!(connection.advance(&mut turn), Action::Commit);
    assert_eq!(client.read(&mut answer).unwrap(), b"STORED\r\n".len());
}
