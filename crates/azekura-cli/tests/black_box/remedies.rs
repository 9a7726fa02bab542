//! What an error advises can be done, by the user of that command.
//!
//! The advice names the option, the key of the configuration or the command that helps, and is about the file that the error is
//! about. It does not know which errors there are.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use crate::full::run_limited_to;
use crate::program::{Place, Ran, lines};
use crate::secured::certificate;
use crate::serve::Server;

/// The place, with a file of many records, and one of few.
fn filled() -> Place {
    let place = Place::with_store();
    place.write("in", lines(2000, |n| format!("{n:04}\t{n:01000}\n")));
    place.run(&["import", "s.azh", "tsv", "in"]).ok();
    place
}

/// The message of a run to a full standard output, which is an error.
fn to_full(place: &Place, arguments: &[&str]) -> String {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = place.command(arguments);
    let output = command.stdout(Stdio::from(full.expect("the device")));
    let output = output.output().expect("it starts");
    let err = String::from_utf8(output.stderr).expect("text");
    let code = output.status.code().expect("no signal");
    let out = output.stdout;
    Ran { code, out, err }.error(5)
}

/// It read as if nothing had been done, and was then done twice.
#[test]
fn a_change_whose_result_cannot_be_printed_is_reported_as_made() {
    let place = Place::with_store();
    place.write("in", "a\t1\nb\t2\n");
    place.run(&["create", "new.azh"]).ok();
    let increment = ["increment", "s.azh", "n", "5"];
    for (arguments, made) in [
        (&increment[..], "the counter was changed and is now 5"),
        (
            &["increment", "--float", "s.azh", "f", "0.5"],
            "the counter was changed and is now 0.5",
        ),
        (&["import", "s.azh", "tsv", "in"], "2 records stored"),
        (&["merge", "new.azh", "s.azh"], "4 records stored"),
        (&["compact", "s.azh"], "the file is compacted, "),
        (&["rebuild", "s.azh"], "the file is rebuilt, 4 records, "),
    ] {
        let error = to_full(&place, arguments);
        let told = format!("; do not repeat the command: {made}");
        assert!(error.contains(&told), "{arguments:?}: {error}");
    }
    assert_eq!(place.run(&["increment", "s.azh", "n", "0"]).ok(), "5\n");
    let server = Server::start(&place, &[]);
    server.ask(&place, &["set", "n", "5"]).ok();
    let error = to_full(
        &place,
        &["client", "--address", &server.address, "increment", "n"],
    );
    assert!(
        error.ends_with("; do not repeat the command: the counter was changed and is now 6"),
        "{error}"
    );
}
/// Advised was to open the file read-only, for which no command that writes has an option.
#[test]
fn a_command_that_writes_to_a_file_in_use_advises_what_its_user_can_do() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let file = "d/records.azh";
    place.write("in", "a\t1\n");
    for arguments in [
        &["set", file, "k", "v"][..],
        &["increment", file, "k"],
        &["import", file, "tsv", "in"],
        &["compact", file],
        &["rebuild", file],
        &["repair", file, "new.azh"],
    ] {
        let error = place.run(arguments).error(6);
        let pid = server.child.id();
        let expected = format!(
            "locked: it is open for writing by process {pid} at {file}; run the command again when that process has ended, or \
             stop that process"
        );
        assert_eq!(error, expected, "{arguments:?}");
    }
}
/// Advised was to remove records: from a file that was never made.
#[test]
fn a_target_that_is_full_is_not_made_and_the_advice_is_about_it() {
    let place = filled();
    let create = ["create", "s.azo", "--capacity", "16MiB"];
    place.object(&create).ok();
    let of_limit = "; the target is not made; raise the limit of the size of files (ulimit -f), or choose a target on another file system";
    for arguments in [
        &["copy", "s.azh", "new"][..],
        &["repair", "s.azh", "new"],
        &["rebuild", "s.azh"],
        &["import", "--create", "new", "tsv", "in"],
        &["object", "copy", "s.azo", "new"],
    ] {
        let before = place.read("s.azh");
        let error = run_limited_to(&place, "1000", arguments).error(5);
        assert!(error.ends_with(of_limit), "{arguments:?}: {error}");
        assert_eq!(place.names(), ["in", "s.azh", "s.azo"], "{arguments:?}");
        assert!(place.read("s.azh") == before || arguments[0] == "rebuild");
    }
    let error = place.run(&[
        "import",
        "--create",
        "new",
        "tsv",
        "in",
        "--capacity",
        "1MiB",
    ]);
    let error = error.error(5);
    assert!(
        error.ends_with("; the target is not made; raise --capacity"),
        "{error}"
    );
    // A file that was there has records to remove.
    place
        .run(&["create", "small.azh", "--capacity", "256KiB"])
        .ok();
    let value = "v".repeat(100_000);
    let set = [
        "set",
        "small.azh",
        "a",
        &value,
        "b",
        &value,
        "c",
        &value,
        "--capacity",
        "256KiB",
    ];
    let error = place.run(&set).error(5);
    assert!(
        error.ends_with("; remove records, or give the store more room"),
        "{error}"
    );
}
/// The error had no remedy.
#[test]
fn an_object_store_given_for_a_file_of_records_is_named_with_its_commands() {
    let place = Place::with_store();
    let create = ["create", "s.azo", "--capacity", "16MiB"];
    place.object(&create).ok();
    let create = "object create two.azo --data two.data --capacity 16MiB";
    place.run(&create.split(' ').collect::<Vec<_>>()).ok();
    for file in ["s.azo", "two.azo", "two.data"] {
        for arguments in [
            &["get", file, "k"][..],
            &["set", file, "k", "v"],
            &["list", file],
            &["check", file],
            &["repair", file, "new"],
            &["merge", "s.azh", file],
        ] {
            let error = place.run(arguments).error(7);
            let advised = "; it holds objects: use `azekura object get` and the other commands of `azekura object`";
            assert!(error.ends_with(advised), "{arguments:?}: {error}");
        }
    }
    let error = place.run(&["object", "get", "s.azh", "1"]).error(7);
    assert!(
        error.ends_with("; it holds records: `azekura get` and its like are for these"),
        "{error}"
    );
}
#[test]
fn a_check_does_not_advise_to_check() {
    let place = filled();
    let mut bytes = place.read("s.azh");
    // Of two neighbours the second is found by the index, not by the walk of the log.
    for n in [1000, 1001] {
        let value = format!("{n:01000}");
        let at = bytes
            .windows(1000)
            .position(|found| found == value.as_bytes());
        let at = at.expect("records are stored as they are");
        bytes[at + 100..at + 120].fill(0xa5);
    }
    place.write("s.azh", &bytes);
    let ran = place.run(&["check", "s.azh"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let text = ran.text();
    assert!(
        text.contains("damage: corrupted: record checksum does not match"),
        "{text}"
    );
    assert!(!text.contains("azekura check"), "{text}");
    assert_eq!(text.matches("azekura repair").count(), 1, "{text}");
    let error = place.run(&["get", "s.azh", "1000"]).error(8);
    assert!(error.ends_with("; run `azekura check s.azh`"), "{error}");
}

#[test]
fn a_check_of_objects_does_not_advise_to_check() {
    let place = Place::new();
    let create = ["create", "s.azo", "--capacity", "16MiB"];
    place.object(&create).ok();
    place.write("value", "v".repeat(100_000));
    place.run(&["object", "put", "s.azo", "1", "value"]).ok();
    let mut bytes = place.read("s.azo");
    let at = bytes.windows(1000).position(|found| found == [b'v'; 1000]);
    bytes[at.expect("values are stored as they are") + 500] = 0xa5;
    bytes[at.expect("values are stored as they are") + 600] = 0xa5;
    place.write("s.azo", &bytes);
    for command in ["check", "scrub"] {
        let ran = place.run(&["object", command, "s.azo"]);
        assert_eq!(ran.code, 8, "{ran:?}");
        let text = ran.text();
        assert!(
            text.contains("; restore it from a copy, or remove it\n"),
            "{text}"
        );
        assert!(!text.contains("azekura object check"), "{text}");
    }
    let error = place.run(&["object", "get", "s.azo", "1"]).error(8);
    assert!(
        error.ends_with("; `azekura object check` finds all such"),
        "{error}"
    );
}
/// It was cut off after 64 bytes, and the remedy with it.
#[test]
fn what_a_server_refuses_by_is_shown_to_its_end() {
    let place = Place::new();
    let (code, ..) = Server::start(&place, &[]).end();
    assert_eq!(code, 0);
    place.run(&["set", "d/records.azh", "k", "no item"]).ok();
    let server = Server::start(&place, &[]);
    assert_eq!(
        server.ask(&place, &["get", "k"]).error(8),
        "corrupted: the server refused (\"SERVER_ERROR corrupted: the record's value is no item for key \"k\"; set or delete it, \
         if this file is the server's\")"
    );
}
/// It was a refusal of seven unprintable bytes.
#[test]
fn a_client_without_tls_at_an_address_of_tls_is_advised_to_use_it() {
    let place = Place::new();
    let (chain, key) = (certificate("server.pem"), certificate("server-key.pem"));
    let flags = [
        "--listen",
        "tls:127.0.0.1:0",
        "--certificate",
        &chain,
        "--key",
        &key,
    ];
    let server = Server::start(&place, &flags);
    let (at, _) = server.address.split_once(" (TLS)").expect("the last one");
    let at = at.strip_prefix("tls:").unwrap_or(at);
    for arguments in [
        &["client", "--address", at, "version"][..],
        &["client", "--address", at, "set", "k", "v"],
        &["client", "--address", at, "get", "k"],
        &["top", "--once", "--address", at],
    ] {
        let expected = format!(
            "invalid: {at} expects TLS, and the request was not encrypted; use --address tls:{at}"
        );
        assert_eq!(place.run(arguments).error(3), expected);
    }
}
/// The words were those of the library of TLS.
#[test]
fn an_error_of_tls_states_in_words_what_was_found_and_what_to_do() {
    let (own, key, other) = (
        certificate("server.pem"),
        certificate("server-key.pem"),
        certificate("authority.pem"),
    );
    let listen = [
        "--listen",
        "tls:127.0.0.1:0",
        "--certificate",
        &own,
        "--key",
        &key,
    ];
    let place = Place::new();
    let server = Server::start(&place, &listen);
    let port = |server: &Server| {
        let at = server.address.trim_end_matches(" (TLS)");
        at.rsplit_once(':').expect("a port").1.to_owned()
    };
    let at = port(&server);
    let plain = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let plain_at = plain.local_addr().expect("an address").port();
    let answers = std::thread::spawn(move || {
        let (mut client, _) = plain.accept().expect("a client");
        client.write_all(b"ERROR\r\n").expect("it reads");
        let _ = client.read(&mut [0; 64]);
    });
    let ask = |host: &str, authority: &str| {
        let ask = ["client", "--address", host, "--authority", authority];
        place.run(&[&ask[..], &["version"]].concat())
    };
    for (host, authority, words) in [
        (
            format!("tls:localhost:{at}"),
            &other,
            "(its certificate is neither in the file of --authority nor signed by one there); name the file of ",
        ),
        (
            format!("tls:127.0.0.1:{at}"),
            &own,
            "(its certificate is not for this host); connect by a name that the certificate is for",
        ),
        (
            format!("tls:localhost:{plain_at}"),
            &own,
            "(its answer is not TLS); leave out tls: ",
        ),
        (
            format!("tls:localhost:{at}"),
            &key,
            "; it must hold PEM blocks that begin with BEGIN CERTIFICATE",
        ),
    ] {
        let error = ask(&host, authority).error(3);
        assert!(error.contains(words), "{error}");
    }
    answers.join().expect("no panic");
    // A server that requires a client certificate ends the connection, before or after its answer could be read.
    let second = Place::new();
    let strict = [&listen[..], &["--client-authority", &own]].concat();
    let strict = Server::start(&second, &strict);
    let ran = ask(&format!("tls:localhost:{}", port(&strict)), &own);
    assert!([3, 9].contains(&ran.code), "{ran:?}");
    assert!(!ran.err.contains("fatal alert"), "{ran:?}");
}

/// What was named was a part of them.
#[test]
fn the_groups_of_statistics_that_an_error_names_are_there() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let error = server.ask(&place, &["stats", "none"]).error(3);
    let (groups, _) = error.split_once(" are groups of").expect("groups");
    let (_, groups) = groups.split_once("; ").expect("a remedy");
    let groups: Vec<&str> = groups
        .split(", ")
        .flat_map(|group| group.split(" and "))
        .collect();
    assert_eq!(groups.len(), 10);
    for group in groups {
        server.ask(&place, &["stats", group]).ok();
    }
}

#[test]
fn an_error_of_a_connection_names_the_address_that_was_tried() {
    let place = Place::new();
    for (at, words) in [
        ("127.0.0.1:1", "127.0.0.1:1: "),
        ("unix:none", "unix:none: "),
    ] {
        let bench = ["bench", "memcache", "--records", "1", "--address", at];
        let error = place.run(&bench).error(9);
        assert!(
            error.starts_with(&format!("io: cannot connect to {words}")),
            "{error}"
        );
        assert!(
            error.ends_with("; start the server, or name another by --address"),
            "{error}"
        );
    }
}

/// It was no multiple of 4 KiB.
#[test]
fn a_capacity_that_is_too_large_is_refused_with_the_largest() {
    let place = Place::new();
    for (size, words) in [
        ("100TiB", "(found 100 TiB, expected at most 8TiB)"),
        ("18446744073709551615", "expected at most 8TiB)"),
        ("16777216TiB", "`16777216TiB` does not fit in 64 bits"),
        ("1", "expected at least "),
        ("1000001", "(found 1000001 B, expected a multiple of 4KiB)"),
    ] {
        let ran = place.run(&["serve", "--capacity", size]);
        assert!(ran.code == 2 && ran.err.contains(words), "{ran:?}");
    }
    let error = place
        .run(&["create", "new.azh", "--capacity", "100TiB"])
        .error(3);
    assert_eq!(
        error,
        "invalid: the capacity is too large (found 100 TiB, expected at most 64 TiB)"
    );
    assert!(place.names().is_empty());
}
/// It advised smaller segments, of a file that has those it has, and did not name where the capacity is stated.
#[test]
fn a_server_that_cannot_open_what_is_there_names_the_key_or_the_option() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("d")).expect("a folder");
    place
        .run(&["create", "d/records.azh", "--segment-size", "1MiB"])
        .ok();
    place.write("plain", "");
    place.write(
        "c.toml",
        "data = \"d\"\nlisten = [\"127.0.0.1:0\"]\ncapacity = \"256KiB\"\n",
    );
    place.write("u.toml", "data = \"d\"\n\nlisten = [\"unix:plain\"]\n");
    for (arguments, ends) in [
        (
            &["--config", "c.toml"][..],
            "; state a larger capacity (c.toml line 3: capacity)",
        ),
        (
            &["--config", "c.toml", "--capacity", "260KiB"],
            "; state a larger capacity (--capacity)",
        ),
        (
            &["--config", "u.toml"],
            "; remove the file, or state another path (u.toml line 3: listen)",
        ),
        (
            &["--config", "c.toml", "--listen", "unix:plain"],
            "; remove the file, or state another path (--listen)",
        ),
    ] {
        let error = place.run(&[&["serve"], arguments].concat()).error(3);
        assert!(error.ends_with(ends), "{arguments:?}: {error}");
    }
    let error = place
        .run(&["set", "d/records.azh", "a", "b", "--capacity", "256KiB"])
        .error(3);
    assert!(error.ends_with("; raise the capacity"), "{error}");
}
/// Both were no address.
#[test]
fn a_host_that_is_not_found_and_a_port_out_of_range_have_messages_of_their_own() {
    let place = Place::new();
    for (address, words) in [
        (
            "127.0.0.1:70000",
            "the port of `127.0.0.1:70000` is not from 0 to 65535",
        ),
        (
            "nowhere.invalid:1",
            "the host of `nowhere.invalid:1` is not found: ",
        ),
        (
            "nowhere",
            "`nowhere` is not an address: HOST:PORT, tls:HOST:PORT, ",
        ),
    ] {
        let ran = place.run(&["serve", "--listen", address]);
        assert!(ran.code == 2 && ran.err.contains(words), "{ran:?}");
    }
    let ask = |address: &str, code| {
        place
            .run(&["client", "--address", address, "version"])
            .error(code)
    };
    assert_eq!(
        ask("127.0.0.1:70000", 3),
        "invalid: the port of --address is out of range (found 70000, expected 1 to 65535)"
    );
    let error = ask("nowhere.invalid:1", 9);
    assert!(
        error.starts_with("io: the host nowhere.invalid is not found: "),
        "{error}"
    );
    assert!(error.ends_with("; check the host in --address"), "{error}");
    assert!(place.names().is_empty());
}
