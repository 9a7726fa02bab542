//! What is long: data, lines, answers; and how little is kept of it.
//! A length that is announced takes no room, and what a client does not read is not said.
//! It knows no sockets: how much is kept is what the session leaves unconsumed.

use std::sync::Arc;

use azekura_server::memcached::{Next, Session, Settings, Transport};

use crate::wire::{Client, plays_with, service};

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
             > append a 0 0 {}
             > {}
             < STORED
             > set a 0 0 1
             > x
             < STORED
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
            fits,
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
