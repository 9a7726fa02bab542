//! TLS: what is sent by it, and how such a connection ends: by either side, in the midst, or before it began.
//! A client trusts the certificate that lies in the folder next to this file.
//! It knows the protocol no further than to ask.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use azekura_server::config::{Certificate, Config};
use azekura_server::net::Listeners;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::running::{LOOPBACK, Running, ask, expect, rest, small, texts};
use crate::transports::{ANSWER, TALK};

pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/sockets/certificates")
        .join(name)
}

/// A client's side, that trusts the server's certificate.
fn handshake() -> ClientConnection {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file("server.pem")).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

pub(crate) fn encrypted(address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    StreamOwned::new(handshake(), stream)
}

pub(crate) fn with_certificate() -> Config {
    Config {
        certificate: Some(Certificate {
            chain: file("server.pem"),
            key: file("server-key.pem"),
            client_authority: None,
        }),
        ..small()
    }
}

#[test]
fn an_encrypted_connection_carries_small_and_large_answers() {
    let mut listeners = Listeners::new();
    let address = listeners.tcp(LOOPBACK, true).unwrap();
    let server = Running::over(&with_certificate(), listeners, address);
    let mut client = encrypted(address);
    ask(&mut client, TALK, ANSWER);
    let value = "y".repeat(700_000);
    let request = format!("set big 0 0 {}\r\n{value}\r\n", value.len());
    ask(&mut client, &request, "STORED\r\n");
    let answer = format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len());
    ask(&mut client, "get big\r\n", &answer);
    // A client without TLS gets no answer, and does no harm.
    let mut plain = server.connect();
    plain.write_all(b"get a\r\n").unwrap();
    assert!(!rest(&mut plain).contains("END"));
    ask(&mut client, TALK, ANSWER);
}

#[test]
fn a_certificate_that_cannot_be_used_is_an_error_that_names_the_file() {
    let control = azekura_server::net::Control::new(small().limits).unwrap();
    let mut config = with_certificate();
    let mut try_files = |chain: PathBuf, key: PathBuf| {
        config.certificate = Some(Certificate {
            chain,
            key,
            client_authority: None,
        });
        azekura_server::Server::open(&config, &control)
            .err()
            .unwrap()
            .to_string()
    };
    assert!(try_files(file("gone.pem"), file("server-key.pem")).contains("gone.pem"));
    assert!(try_files(file("server-key.pem"), file("server-key.pem")).contains("server-key.pem"));
    assert!(try_files(file("server.pem"), file("server.pem")).contains("server.pem"));
}

/// A server that speaks nothing but TLS.
fn running(config: &Config) -> Running {
    let mut listeners = Listeners::new();
    let address = listeners.tcp(LOOPBACK, true).unwrap();
    Running::over(config, listeners, address)
}

#[test]
fn what_an_encrypted_client_sent_before_the_end_is_answered_and_the_end_is_told() {
    let server = running(&with_certificate());
    let mut client = encrypted(server.address);
    let heap = texts(1000, |n| format!("set k{n} 7 0 4\r\n{n:04}\r\n"));
    client.write_all(heap.as_bytes()).unwrap();
    expect(&mut client, "STORED\r\n");
    server.stop();
    let mut all = String::new();
    // An end without close_notify would be an error.
    client.read_to_string(&mut all).unwrap();
    assert_eq!(all, "STORED\r\n".repeat(999));
}

#[test]
fn a_server_that_ends_lets_go_of_handshakes_that_never_ended() {
    let server = running(&with_certificate());
    let mut silent = TcpStream::connect(server.address).unwrap();
    let mut half = TcpStream::connect(server.address).unwrap();
    half.write_all(&greeting()[..20]).unwrap();
    let mut client = encrypted(server.address);
    ask(&mut client, TALK, ANSWER);
    assert_eq!(server.control.connections().open, 3);
    server.stop();
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
    for stream in [&mut silent, &mut half] {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut all = Vec::new();
        let ended = stream.read_to_end(&mut all);
        let is_reset = |e: &std::io::Error| e.kind() == ErrorKind::ConnectionReset;
        assert!(ended.is_ok() || ended.as_ref().is_err_and(is_reset));
    }
}

/// What a client begins with.
fn greeting() -> Vec<u8> {
    let mut connection = handshake();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_handshake_that_stalls_is_dropped_by_the_limits() {
    let mut config = with_certificate();
    // It is no client that may rest.
    config.limits.idle_s = 0;
    config.limits.stall_s = 1;
    let server = running(&config);
    let begun = greeting();
    // Nothing, a part of the first message, and all of it without an answer to the server's.
    let mut stalled: Vec<_> = [0, 20, begun.len()]
        .into_iter()
        .map(|len| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            stream.write_all(&begun[..len]).unwrap();
            stream
        })
        .collect();
    for stream in &mut stalled {
        let mut all = Vec::new();
        let ended = stream.read_to_end(&mut all);
        let is_reset = |e: &std::io::Error| e.kind() == ErrorKind::ConnectionReset;
        assert!(
            ended.is_ok() || ended.as_ref().is_err_and(is_reset),
            "{ended:?}"
        );
    }
    assert_eq!(server.control.connections().dropped, 3);
    // No other client was affected.
    ask(&mut encrypted(server.address), TALK, ANSWER);
}

#[test]
fn an_encrypted_client_that_closed_its_side_is_answered() {
    let server = running(&with_certificate());
    let mut client = encrypted(server.address);
    ask(&mut client, "set a 0 0 1\r\n1\r\n", "STORED\r\n");
    // It states that it is done, and closes its half of the connection.
    client.write_all(b"get a\r\n").unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), "VALUE a 0 1\r\n1\r\nEND\r\n");
    // One that leaves in the midst of a request, without a word, is let go.
    let mut client = encrypted(server.address);
    client.write_all(b"set a 0 0 5000\r\nx").unwrap();
    client.sock.shutdown(Shutdown::Both).unwrap();
    let mut other = encrypted(server.address);
    while server.control.connections().open > 1 {
        ask(&mut other, "mn\r\n", "MN\r\n");
    }
    ask(&mut other, TALK, ANSWER);
}

#[test]
fn a_certificate_is_read_again_when_a_client_asks() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = (folder.path().join("chain"), folder.path().join("key"));
    std::fs::copy(file("server.pem"), &chain).unwrap();
    std::fs::copy(file("server-key.pem"), &key).unwrap();
    let mut config = with_certificate();
    config.certificate = Some(Certificate {
        chain: chain.clone(),
        key,
        client_authority: None,
    });
    let server = running(&config);
    let mut client = encrypted(server.address);
    ask(&mut client, "refresh_certs\r\n", "OK\r\n");
    std::fs::write(&chain, "no certificate").unwrap();
    client.write_all(b"refresh_certs\r\nquit\r\n").unwrap();
    let said = rest(&mut client);
    assert!(
        said.starts_with("SERVER_ERROR ") && said.contains("certificate") && !said.contains('/'),
        "{said}"
    );
    // The one it had stays.
    ask(&mut encrypted(server.address), TALK, ANSWER);
}
