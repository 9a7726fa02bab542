//! A connection's end, its user, and its engine when it fails or must sync.
//! A client that is not admitted gets that answer and no more; an engine's failure is one line, and the next request is read.
//! It knows no sockets.

use std::sync::Arc;

use azekura::record::memory::tiny::TinyDb;
use azekura_server::memcached::{Passwords, Session, Settings, Transport};

use crate::wire::{Client, over, service};

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
    assert_eq!(service.counters().figure("auth_cmds"), Some(6));
    assert_eq!(service.counters().figure("auth_errors"), Some(3));
    // No data is that long, so what follows is a line.
    let answer = Client::new(&service).send(b"set a 0 0 18446744073709551615\r\nmn\r\n", 99);
    assert_eq!(answer, b"CLIENT_ERROR unauthenticated\r\n".repeat(2));
    let long = format!("set a 0 0 600\r\n{}\r\n", "x".repeat(600));
    let answer = Client::new(&service).send(long.as_bytes(), 100);
    assert_eq!(answer, b"CLIENT_ERROR auth token too long\r\n");
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
    // Also where it is asked for among others, and by whoever wants to know about it.
    client.send(b"set other 0 0 1\r\nx\r\n", 99);
    let asked =
        b"get other\r\nget other foreign other\r\nmg foreign v\r\nmg other v\r\nme foreign\r\n";
    let answer = client.send(asked, 999);
    let there = "VALUE other 0 1\r\nx\r\n";
    let expected = format!("{there}END\r\n{there}{line}{line}VA 1\r\nx\r\n{line}");
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    let answer = client.send(b"delete foreign\r\nget foreign\r\n", 99);
    assert_eq!(answer, b"DELETED\r\nEND\r\n");
}

#[test]
fn an_engine_that_is_full_says_so_and_goes_on_reading() {
    let options = azekura::record::memory::tiny::Options::new().memory_limit(Some(4 << 20));
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
