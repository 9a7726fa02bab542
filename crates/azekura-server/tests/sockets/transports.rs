//! Every way to a server but TLS: TCP in pieces and in heaps, unix sockets, datagrams, and sockets handed over.
//! The answer is the same whichever way a request came, and however it was cut.
//! It knows no engine.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use azekura::Kind;
use azekura_server::config::Config;
use azekura_server::net::Listeners;

use crate::running::{LOOPBACK, Running, ask, expect, folder, small, texts};

pub(crate) const TALK: &str = "set a 5 0 3\r\nabc\r\nget a b\r\ndelete a\r\nget a\r\n";
pub(crate) const ANSWER: &str = "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nDELETED\r\nEND\r\n";

#[test]
fn a_request_is_answered_alike_however_it_is_cut() {
    let server = Running::start(&small());
    for len in [1, 2, 3, 7, TALK.len()] {
        let mut client = server.connect();
        for piece in TALK.as_bytes().chunks(len) {
            client.write_all(piece).unwrap();
        }
        expect(&mut client, ANSWER);
    }
}

#[test]
fn a_heap_of_requests_is_answered_in_order() {
    let server = Running::start(&small());
    let mut client = server.connect();
    let heap = texts(5000, |n| {
        format!("set k{n} 0 0 4\r\n{n:04}\r\nget k{n}\r\n")
    });
    let answers = texts(5000, |n| {
        format!("STORED\r\nVALUE k{n} 0 4\r\n{n:04}\r\nEND\r\n")
    });
    let mut writer = client.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(heap.as_bytes()).unwrap());
    expect(&mut client, &answers);
    sender.join().unwrap();
}

#[test]
fn a_value_of_many_readings_comes_back_whole() {
    let server = Running::start(&small());
    let mut client = server.connect();
    let value: String = (0..900_000_u32)
        .map(|n| char::from(b'a' + (n % 23) as u8))
        .collect();
    let request = format!("set big 0 0 {}\r\n{value}\r\n", value.len());
    ask(&mut client, &request, "STORED\r\n");
    let answer = format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len());
    ask(&mut client, "get big\r\n", &answer);
    ask(
        &mut client,
        "get big big\r\n",
        &format!("{0}{0}END\r\n", answer.trim_end_matches("END\r\n")),
    );
}

#[test]
fn threads_share_their_clients_and_the_records() {
    let config = Config {
        threads: 3,
        ..small()
    };
    let server = Running::start(&config);
    let mut clients: Vec<_> = (0..9).map(|_| server.connect()).collect();
    for (client, n) in clients.iter_mut().zip(0..) {
        ask(client, &format!("set k{n} 0 0 1\r\n{n}\r\n"), "STORED\r\n");
    }
    for client in &mut clients {
        for n in 0..9 {
            ask(
                client,
                &format!("get k{n}\r\n"),
                &format!("VALUE k{n} 0 1\r\n{n}\r\nEND\r\n"),
            );
        }
    }
}

#[test]
fn a_unix_socket_is_made_anew_kept_from_others_and_removed() {
    let (folder, _) = folder();
    let path = folder.path().join("s");
    let mut listeners = Listeners::new();
    // What a server that was killed leaves.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    listeners.unix(&path, 0o600).unwrap();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let server = Running::over(&small(), listeners, LOOPBACK);
    let mut client = UnixStream::connect(&path).unwrap();
    ask(&mut client, TALK, ANSWER);
    let mut second = Listeners::new();
    assert_eq!(second.unix(&path, 0o600).unwrap_err().kind(), Kind::Locked);
    ask(&mut client, TALK, ANSWER);
    server.stop();
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert_eq!(second.unix(&path, 0o600).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
}

/// The path was removed at the end, whatever was there.
#[test]
fn what_took_the_place_of_a_unix_socket_stays_when_the_server_ends() {
    let (folder, _) = folder();
    let path = folder.path().join("s");
    let mut file_there = Listeners::new();
    file_there.unix(&path, 0o600).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "a file").unwrap();
    drop(file_there);
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    std::fs::remove_file(&path).unwrap();

    let mut first = Listeners::new();
    first.unix(&path, 0o600).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut second = Listeners::new();
    second.unix(&path, 0o600).unwrap();
    drop(first);
    UnixStream::connect(&path).expect("the second server's socket is there");
    drop(second);
    assert!(!path.exists());
}

#[test]
fn a_port_in_use_is_an_error_that_says_what_to_do() {
    let taken = TcpListener::bind(LOOPBACK).unwrap();
    let error = Listeners::new()
        .tcp(taken.local_addr().unwrap(), false)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Locked);
    assert!(error.to_string().contains("--listen"), "{error}");
    let error = Listeners::new().tcp("192.0.2.1:1".parse().unwrap(), false);
    assert!(error.unwrap_err().to_string().contains("no interface"));
}

#[test]
fn a_socket_that_was_handed_over_serves_and_others_are_refused() {
    let made = TcpListener::bind(LOOPBACK).unwrap();
    let address = made.local_addr().unwrap();
    let mut listeners = Listeners::new();
    listeners.adopt(made.into()).unwrap();
    let connected = TcpStream::connect(address).unwrap();
    assert_eq!(
        listeners.adopt(connected.into()).unwrap_err().kind(),
        Kind::Invalid
    );
    let server = Running::over(&small(), listeners, address);
    ask(&mut server.connect(), TALK, ANSWER);
}

#[test]
fn datagrams_are_answered_and_long_answers_split() {
    let mut listeners = Listeners::new();
    let address = listeners.udp(LOOPBACK).unwrap();
    let tcp = listeners.tcp(LOOPBACK, false).unwrap();
    let server = Running::over(&small(), listeners, tcp);
    let value = "x".repeat(3000);
    ask(
        &mut server.connect(),
        &format!("set a 0 0 3000\r\n{value}\r\n"),
        "STORED\r\n",
    );
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    socket.connect(address).unwrap();
    socket.send(b"\x12\x34\0\0\0\x01\0\0get a\r\n").unwrap();
    let mut parts = Vec::new();
    let mut buffer = [0; 2000];
    while parts.len() < 3 {
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..2], [0x12, 0x34]);
        assert_eq!(buffer[4..6], [0, 3]);
        parts.push((buffer[3], buffer[8..len].to_vec()));
    }
    parts.sort();
    let answer: Vec<u8> = parts.into_iter().flat_map(|(_, part)| part).collect();
    assert_eq!(
        String::from_utf8(answer).unwrap(),
        format!("VALUE a 0 3000\r\n{value}\r\nEND\r\n")
    );
}

#[test]
fn nobody_can_connect_before_the_data_is_open() {
    let (_folder, path) = folder();
    let mut listeners = Listeners::new();
    let address = listeners.tcp_later(LOOPBACK, false).unwrap();
    listeners.unix_later(&path, 0o700).unwrap();
    // As long as the data is recovered, and if that fails, a client is refused.
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(UnixStream::connect(&path).is_err());
    // The address is taken all the same.
    let server = Running::over(&small(), listeners, address);
    while TcpStream::connect(address).is_err() {
        std::thread::yield_now();
    }
    ask(&mut server.connect(), TALK, ANSWER);
    ask(&mut UnixStream::connect(&path).unwrap(), TALK, ANSWER);
}
