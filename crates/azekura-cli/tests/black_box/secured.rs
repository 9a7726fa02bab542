//! `azekura client` and `azekura top` against a server that speaks TLS and wants to know who asks.
//!
//! The server's certificate is its own authority and is for this machine by name. Errors are reported before a word of
//! the request is sent. It does not know how a cipher works.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use crate::program::Place;
use crate::serve::Server;

pub(crate) fn certificate(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../azekura-server/tests/sockets");
    let path = folder.join("certificates").join(name);
    path.to_str().expect("a path of text").to_owned()
}

#[test]
fn a_server_that_speaks_tls_and_wants_a_login_is_asked_by_client_and_top() {
    let place = Place::new();
    place.write_secret("users", "anna:Nara\nben:Uji in Kyoto\n");
    place.write_secret("anna", "anna:Nara\n");
    place.write_secret("ben", "ben:Uji in Kyoto\n");
    place.write_secret("wrong", "anna:Uji\n");
    place.write_secret("none", "anna\n");
    place.write("open", "anna:Nara\n");
    let (chain, key) = (certificate("server.pem"), certificate("server-key.pem"));
    let flags = [
        "--listen",
        "tls:127.0.0.1:0",
        "--certificate",
        &chain,
        "--key",
        &key,
        "--passwords",
        "users",
    ];
    let server = Server::start(&place, &flags);
    let (at, _) = server.address.split_once(" (TLS)").expect("the last one");
    let port = at.rsplit_once(':').expect("a port").1;
    let address = format!("tls:localhost:{port}");
    let secured = ["--address", &address, "--authority", &chain];
    let ask = |login: &str, words: &[&str]| {
        let mut arguments = vec!["client"];
        arguments.extend(secured);
        arguments.extend(["--login", login]);
        arguments.extend(words);
        place.run(&arguments)
    };
    assert_eq!(ask("anna", &["set", "a", "1"]).ok(), "");
    assert_eq!(ask("anna", &["get", "a"]).ok(), "1\n");
    assert_eq!(ask("ben", &["get", "a"]).ok(), "1\n");
    let value = "x".repeat(100_000);
    ask("anna", &["set", "big", &value]).ok();
    assert_eq!(ask("anna", &["get", "big"]).ok().trim_end(), value);
    let mut top = vec!["top", "--once", "--login", "anna"];
    top.extend(secured);
    assert!(place.run(&top).ok().contains("engine hash"));

    let open = ask("open", &["get", "a"]);
    assert_eq!((open.code, &open.out[..]), (0, &b"1\n"[..]));
    assert!(open.err.contains("chmod 600"), "{}", open.err);
    let wrong = ask("wrong", &["get", "a"]).error(3);
    assert!(wrong.contains("authentication failure"), "{wrong}");
    let none = ask("none", &["get", "a"]).error(3);
    assert!(none.contains("name:password"), "{none}");
    let said_nothing = place.run(&[
        "client", "get", "a", secured[0], secured[1], secured[2], secured[3],
    ]);
    let said_nothing = said_nothing.error(3);
    assert!(said_nothing.contains("--login"), "{said_nothing}");
    let unknown = place.run(&["client", "--address", &address, "get", "a"]);
    assert!(unknown.error(3).contains("--authority"));
    // An authority for a connection that is not encrypted: the password is not sent.
    let plain = secured.map(|word| word.strip_prefix("tls:").unwrap_or(word));
    let mut arguments = vec!["client", "--login", "anna", "get", "a"];
    arguments.extend(plain);
    assert!(place.run(&arguments).error(3).contains("encrypted"));
    // Another name, and another's certificate.
    let by_number = format!("tls:127.0.0.1:{port}");
    let arguments = [
        "client",
        "--address",
        &by_number,
        "--authority",
        &chain,
        "get",
        "a",
    ];
    assert!(place.run(&arguments).error(3).contains("for this host"));
    let arguments = [
        "client",
        "--address",
        &address,
        "--authority",
        &key,
        "get",
        "a",
    ];
    assert!(place.run(&arguments).error(3).contains("server-key.pem"));
    // The failed login left a trace, with its address and the name that was tried.
    let (_, _, messages) = server.end();
    let failed: Vec<&str> = messages
        .lines()
        .filter(|line| line.contains("authentication failed"))
        .collect();
    assert!(
        matches!(failed[..], [line] if line.contains("127.0.0.1") && line.contains("anna")),
        "{messages}"
    );
}

/// A server with this certificate; the host and port at which it is one.
fn encrypted(place: &Place, name: &str) -> (Server, String) {
    let (chain, key) = (
        certificate(&format!("{name}.pem")),
        certificate(&format!("{name}-key.pem")),
    );
    let flags = [
        "--listen",
        "tls:127.0.0.1:0",
        "--certificate",
        &chain,
        "--key",
        &key,
    ];
    let server = Server::start(place, &flags);
    let at = server.address.trim_end_matches(" (TLS)");
    let port = at.rsplit_once(':').expect("a port").1.to_owned();
    (server, format!("tls:localhost:{port}"))
}

#[test]
fn a_certificate_that_stands_for_itself_is_believed_if_it_is_the_named_one() {
    // The second may sign others, as `openssl req -x509` makes them.
    for (name, other) in [("server", "authority"), ("authority", "server")] {
        let place = Place::new();
        let (_server, address) = encrypted(&place, name);
        let ask = |address: &str, authority: &str| {
            let authority = certificate(authority);
            let place = &place;
            place.run(&[
                "client",
                "--address",
                address,
                "--authority",
                &authority,
                "version",
            ])
        };
        let own = format!("{name}.pem");
        assert!(ask(&address, &own).ok().starts_with("1.6.45-azekura"));
        let elsewhere = address.replace("localhost", "127.0.0.1");
        let error = ask(&elsewhere, &own).error(3);
        assert!(error.contains("for this host"), "{error}");
        ask(&address, &format!("{other}.pem")).error(3);
    }
}

#[test]
fn a_server_that_speaks_tls_is_loaded() {
    let place = Place::new();
    let (_server, address) = encrypted(&place, "authority");
    let authority = certificate("authority.pem");
    let mut arguments: Vec<&str> =
        "bench memcache --connections 3 --depth 40 --records 5000 --value-size 3000 --json"
            .split(' ')
            .collect();
    arguments.extend(["--address", &address]);
    let error = place.run(&arguments).error(3);
    assert!(error.contains("--authority"), "{error}");
    arguments.extend(["--authority", &authority]);
    let said = place.run(&arguments).ok();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("\"hits\":5000"), "{said}");
    let plain = arguments
        .iter()
        .map(|word| word.strip_prefix("tls:").unwrap_or(word))
        .collect::<Vec<_>>();
    assert!(place.run(&plain).error(3).contains("encrypted"));
}

#[test]
fn a_hangup_reports_passwords_and_a_certificate_only_if_they_changed() {
    let place = Place::new();
    let copy = |from: &str, to: &str| {
        let text = std::fs::read(certificate(from)).expect("a certificate");
        place.write_secret(to, std::str::from_utf8(&text).expect("text"));
    };
    place.write_secret("users", "anna:Nara\n");
    copy("server.pem", "chain");
    copy("server-key.pem", "key");
    let flags = [
        "--listen",
        "tls:127.0.0.1:0",
        "--certificate",
        "chain",
        "--key",
        "key",
        "--passwords",
        "users",
    ];
    let mut server = Server::start(&place, &flags);
    let mut messages = BufReader::new(server.child.stderr.take().expect("a pipe"));
    let mut reload = || {
        server.signal("HUP");
        let mut line = String::new();
        while !line.contains("reloaded") {
            line.clear();
            let len = messages.read_line(&mut line).expect("a line");
            assert!(len > 0, "it ended");
        }
        line.trim().to_owned()
    };
    let line = reload();
    assert!(line.ends_with("reloaded nothing"), "{line}");
    place.write_secret("users", "anna:Uji\n");
    let line = reload();
    assert!(line.ends_with("reloaded passwords"), "{line}");
    copy("authority.pem", "chain");
    copy("authority-key.pem", "key");
    let line = reload();
    assert!(line.ends_with("reloaded certificate"), "{line}");
    let line = reload();
    assert!(line.ends_with("reloaded nothing"), "{line}");
}
