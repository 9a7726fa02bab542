//! `azekura serve` and `azekura client`: the real server, started, asked, loaded, signalled and killed.
//!
//! Acknowledged writes are there after `kill -9` and a restart. Ports are free ones that the system gives;
//! the server states which. It does not know the protocol beyond what it takes to set and get.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::program::Place;

/// A running server; killed if the test forgets it.
pub(crate) struct Server {
    pub(crate) child: Child,
    said: BufReader<ChildStdout>,
    pub(crate) address: String,
    /// Its status page, if it has one.
    pub(crate) page: String,
}

impl Server {
    /// Starts with `more` flags, and returns when it has said everything.
    pub(crate) fn start(place: &Place, more: &[&str]) -> Self {
        let mut arguments = vec!["serve", "--data", "d", "--listen", "127.0.0.1:0"];
        arguments.extend(more);
        Self::of(place.command(&arguments))
    }

    /// As `start`, by a command whose output is piped.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        let (mut address, mut page) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            said.read_line(&mut line).expect("a line");
            assert!(!line.is_empty(), "it ended: {:?}", child.wait_with_output());
            if let Some(at) = line.strip_prefix("listens on ") {
                at.trim().clone_into(&mut address);
            }
            if let Some(at) = line.strip_prefix("status page: ") {
                at.trim().clone_into(&mut page);
            }
            if line.starts_with("stop it by") {
                break;
            }
        }
        Self {
            child,
            said,
            address,
            page,
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill exists").success());
    }

    /// Ends in order; returns the exit code, what it said last, and its messages, if the test has not taken them.
    pub(crate) fn end(mut self) -> (i32, String, String) {
        self.signal("TERM");
        let mut last = String::new();
        self.said.read_to_string(&mut last).expect("text");
        let mut messages = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut messages).expect("text");
        }
        let status = self.child.wait().expect("it ends");
        (status.code().expect("no signal"), last, messages)
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn ask(&self, place: &Place, words: &[&str]) -> crate::program::Ran {
        let mut arguments = vec!["client", "--address", &self.address];
        arguments.extend(words);
        place.run(&arguments)
    }
}

/// The texts of the numbers from 1 to `last`.
fn texts(last: u64, text: impl Fn(u64) -> String) -> String {
    (1..=last).map(text).collect::<Vec<_>>().concat()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_client_sets_gets_and_says_no_by_its_exit_code() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    assert_eq!(server.ask(&place, &["set", "anna", "Nara"]).ok(), "");
    assert_eq!(server.ask(&place, &["get", "anna"]).ok(), "Nara\n");
    let present = server.ask(&place, &["add", "anna", "Uji"]);
    assert_eq!(present.code, 1);
    assert!(present.err.contains("present already: \"anna\""));
    for words in [&["replace", "dora", "Uji"][..], &["touch", "dora", "9"]] {
        let absent = server.ask(&place, words);
        assert_eq!(absent.code, 1);
        assert!(absent.err.contains("absent: \"dora\""), "{absent:?}");
    }
    server.ask(&place, &["append", "anna", "!"]).ok();
    server.ask(&place, &["set", "ben", "Uji"]).ok();
    assert_eq!(
        server.ask(&place, &["get", "anna", "ben"]).ok(),
        "anna\tNara!\nben\tUji\n"
    );
    assert_eq!(server.ask(&place, &["get", "--raw", "ben"]).ok(), "Uji");
    let absent = server.ask(&place, &["get", "carl"]);
    assert_eq!(absent.code, 1);
    assert!(absent.err.contains("absent: \"carl\""), "{absent:?}");
    server.ask(&place, &["delete", "ben"]).ok();
    assert_eq!(server.ask(&place, &["delete", "ben"]).code, 1);
    server.ask(&place, &["get", "two words"]).error(3);
    server
        .ask(&place, &["set", "big", &"x".repeat(100_000)])
        .ok();
    assert_eq!(server.ask(&place, &["get", "big"]).ok().len(), 100_001);
    let (code, last, messages) = server.end();
    assert_eq!((code, messages.as_str()), (0, ""));
    assert!(last.contains("stopped"), "{last}");
    // Its data file is like any other, and the error of a stopped server states that.
    let server = Server::start(&place, &[]);
    assert_eq!(server.ask(&place, &["get", "anna"]).ok(), "Nara!\n");
    let address = server.address.clone();
    server.kill();
    let gone = place
        .run(&["client", "--address", &address, "get", "anna"])
        .error(9);
    assert!(gone.contains("azekura serve"), "{gone}");
}

#[test]
fn every_set_that_was_answered_survives_a_kill_under_load() {
    sets_survive_kills("hash");
}

#[test]
fn every_set_that_a_tree_answered_survives_a_kill_under_load() {
    sets_survive_kills("tree");
}

fn sets_survive_kills(engine: &str) {
    const CLIENTS: usize = 8;
    let place = Place::new();
    let told: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    for round in 1..=3 {
        let server = Server::start(&place, &["--threads", "2", "--engine", engine]);
        // What earlier rounds had acknowledged.
        for (client, told) in told.iter().enumerate() {
            let mut stream = TcpStream::connect(&server.address).expect("it listens");
            let last = told.load(Ordering::Relaxed);
            let keys = texts(last, |n| format!("get c{client}-{n}\r\n"));
            let values = texts(last, |n| {
                format!("VALUE c{client}-{n} 0 8\r\n{n:08}\r\nEND\r\n")
            });
            let mut writer = stream.try_clone().expect("a descriptor");
            let sender = std::thread::spawn(move || writer.write_all(keys.as_bytes()));
            let mut found = vec![0; values.len()];
            stream.read_exact(&mut found).expect("every answer");
            sender.join().expect("no panic").expect("it reads");
            assert!(found == values.as_bytes(), "client {client}, {last} sets");
        }
        let goal = 2000 * round;
        let all = || told.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>();
        let address = server.address.clone();
        std::thread::scope(|scope| {
            for (client, told) in told.iter().enumerate() {
                let address = &address;
                scope.spawn(move || {
                    let mut stream = TcpStream::connect(address).expect("it listens");
                    let mut n = told.load(Ordering::Relaxed);
                    let mut answer = [0; 8];
                    // Until the server is gone.
                    loop {
                        n += 1;
                        let set = format!("set c{client}-{n} 0 0 8\r\n{n:08}\r\n");
                        if stream.write_all(set.as_bytes()).is_err()
                            || stream.read_exact(&mut answer).is_err()
                        {
                            return;
                        }
                        assert_eq!(&answer, b"STORED\r\n");
                        told.store(n, Ordering::Relaxed);
                    }
                });
            }
            while all() < goal {
                std::thread::yield_now();
            }
            server.kill();
        });
    }
}

#[test]
fn a_wrong_configuration_opens_nothing_and_is_told_with_its_line() {
    let place = Place::new();
    place.write("c.toml", "threads = 2\nengine = \"hush\"\n");
    let serve = ["serve", "--config", "c.toml", "--data", "d"];
    let error = place.run(&serve).error(2);
    for part in ["c.toml", "line 2", "engine", "`hash`"] {
        assert!(error.contains(part), "{error}");
    }
    place.run(&["serve", "--config", "gone.toml"]).error(2);
    let error = place
        .run(&["serve", "--data", "d", "--threads", "0"])
        .error(2);
    assert!(error.contains("--threads"), "{error}");
    let error = place
        .run(&["serve", "--data", "d", "--engine", "tiny"])
        .error(2);
    assert!(error.contains("--data is not allowed"), "{error}");
    assert!(error.contains("or the engine hash"), "{error}");
    let tls = ["--listen", "tls:127.0.0.1:0", "--certificate", "gone.pem"];
    let serve = ["serve", "--data", "d", "--key", "gone.pem"];
    let error = place.run(&[&serve[..], &tls].concat()).error(2);
    assert!(error.contains("gone.pem"), "{error}");
    let cache = ["serve", "--engine", "cache", "--item-max", "65MiB"];
    let error = place.run(&cache).error(2);
    assert!(error.contains("memory-max"), "{error}");
    place.write("users", "anna:Nara\nben\n");
    let error = place
        .run(&["serve", "--data", "d", "--passwords", "users"])
        .error(2);
    assert!(error.contains("users (found line 2"), "{error}");
    assert_eq!(place.names(), ["c.toml", "users"]);
}

/// Hands over a socket as standard input.
fn hand_over(place: &Place, address: &str, more: &[&str]) -> Command {
    let socket = TcpListener::bind(address).expect("it is free");
    let mut command = place.command(&[&["serve", "--data", "d"], more].concat());
    command
        .stdin(OwnedFd::from(socket))
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDS_FIRST_FD", "0");
    command
}

#[test]
fn a_socket_that_was_handed_over_is_told_to_be_open_as_any_other() {
    let place = Place::new();
    let (code, _, messages) = Server::of(hand_over(&place, "0.0.0.0:0", &[])).end();
    assert!(
        code == 0 && messages.contains("no authentication"),
        "{messages}"
    );
    let (code, _, messages) = Server::of(hand_over(&place, "127.0.0.1:0", &[])).end();
    assert_eq!((code, &*messages), (0, ""));
}

#[test]
fn secrets_that_others_may_read_or_hear_are_told_of_at_the_start() {
    let place = Place::new();
    place.write("open", "anna:Nara\n");
    place.write_secret("closed", "anna:Nara\n");
    let messages = |passwords: &str, more: &[&str]| {
        let flags = [&["--passwords", passwords], more].concat();
        let (code, _, messages) = Server::start(&place, &flags).end();
        assert_eq!(code, 0, "{messages}");
        messages
    };
    assert_eq!(messages("closed", &[]), "");
    let open = messages("open", &[]);
    assert!(
        open.contains("chmod 600") && open.contains("file=\"open\""),
        "{open}"
    );
    let heard = messages("closed", &["--listen", "0.0.0.0:0"]);
    assert!(
        heard.contains("warn: passwords cross the network"),
        "{heard}"
    );
}

#[test]
fn udp_is_not_asked_for_in_vain_when_a_socket_was_handed_over() {
    let place = Place::new();
    let mut command = hand_over(&place, "127.0.0.1:0", &["--listen", "udp:127.0.0.1:0"]);
    let ended = command.output().expect("it runs");
    let messages = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{messages}");
    assert!(messages.contains("handed over"), "{messages}");
    assert!(place.names().is_empty());
}

#[test]
fn an_address_or_data_in_use_is_told_with_what_to_do() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let error = place
        .run(&["serve", "--data", "e", "--listen", &server.address])
        .error(6);
    assert!(error.contains("--listen"), "{error}");
    assert!(!place.names().contains(&"e".to_owned()));
    let error = place
        .run(&["serve", "--data", "d", "--listen", "127.0.0.1:0"])
        .error(6);
    assert!(error.contains("--data"), "{error}");
    // Whatever the address is for.
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let udp = format!("udp:{}", udp.local_addr().expect("an address"));
    let at = server.address.as_str();
    let listen = "--listen";
    for (arguments, option) in [
        (&[listen, udp.as_str()][..], listen),
        (&[listen, "127.0.0.1:0", "--metrics", at], "--metrics"),
        (&["--engine", "cache", listen, at], listen),
    ] {
        let error = place.run(&[&["serve"], arguments].concat()).error(6);
        let expected = format!("; stop it, or choose another address by {option}");
        assert!(error.ends_with(&expected), "{error}");
    }
    let cache = ["serve", "--engine", "cache", listen, "unix:s"];
    let server = Server::of(place.command(&cache));
    place.run(&cache).error(6);
    drop(server);
}

#[test]
fn a_hangup_takes_over_limits_and_a_wrong_file_changes_nothing() {
    let place = Place::new();
    place.write("c.toml", "connections-max = 50\n");
    let mut server = Server::start(&place, &["--config", "c.toml"]);
    let mut messages = BufReader::new(server.child.stderr.take().expect("a pipe"));
    let reload = |text: &str, messages: &mut BufReader<_>| {
        place.write("c.toml", text);
        server.signal("HUP");
        let mut line = String::new();
        messages.read_line(&mut line).expect("a line");
        line
    };
    let line = reload("connections-max = \"many\"\n", &mut messages);
    assert!(
        line.contains("reload failed, nothing changed") && line.contains("line 1"),
        "{line}"
    );
    server.ask(&place, &["set", "a", "b"]).ok();
    let limits = "connections-max = 1\noperator-connections = 0\n";
    let line = reload(limits, &mut messages);
    assert!(
        line.contains("reloaded connections-max, connections-per-address, operator-connections"),
        "{line}"
    );
    // What it cannot reload it names.
    let line = reload(
        &format!("{limits}threads = 7\ncapacity = \"1GiB\"\nflush = false\n"),
        &mut messages,
    );
    assert!(line.contains("reloaded nothing"), "{line}");
    let mut line = String::new();
    messages.read_line(&mut line).expect("a line");
    assert!(
        line.contains("unchanged until a restart: threads, capacity, flush"),
        "{line}"
    );
    let held = TcpStream::connect(&server.address).expect("it listens");
    let mut refused = TcpStream::connect(&server.address).expect("it listens");
    let mut answer = String::new();
    refused.read_to_string(&mut answer).expect("text");
    assert_eq!(answer, "ERROR Too many open connections\r\n");
    drop(held);
}

/// A line of the log that has `words`.
fn line_with(words: &str, messages: &mut impl BufRead) -> String {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        let len = messages.read_line(&mut line).expect("a line");
        assert!(len > 0, "it ended");
    }
    line
}

#[test]
fn hangups_with_damaged_configurations_lose_nothing_while_clients_work() {
    let place = Place::new();
    let good = "capacity = \"64MiB\"\npasswords = \"users\"\n";
    place.write_secret("users", "anna:Nara\n");
    place.write_secret("broken", "anna\n");
    place.write("c.toml", good);
    let mut server = Server::start(&place, &["--config", "c.toml"]);
    let mut messages = BufReader::new(server.child.stderr.take().expect("a pipe"));
    let ends = AtomicBool::new(false);
    let stored = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|client| {
                let (address, ends) = (&server.address, &ends);
                scope.spawn(move || {
                    let mut stream = TcpStream::connect(address).expect("it listens");
                    let mut answer = [0; 8];
                    let (mut n, mut request) = (0, "set l 0 0 9\r\nanna Nara\r\n".to_owned());
                    while !ends.load(Ordering::Relaxed) {
                        stream.write_all(request.as_bytes()).expect("it reads");
                        stream.read_exact(&mut answer).expect("an answer");
                        assert_eq!(&answer, b"STORED\r\n");
                        n += 1;
                        request = format!("set c{client}-{n} 0 0 1\r\nv\r\n");
                    }
                    n - 1
                })
            })
            .collect();
        for damaged in [
            &b"\xff\xfe"[..],
            b"threads = = 1\n",
            b"no-such-key = 1\n",
            b"connections-max = 0\n",
            b"capacity = \"2MiB\"\nitem-max = \"3MiB\"\n",
            b"passwords = \"gone\"\n",
            b"passwords = \"broken\"\n",
            b"listen = [\"tls:127.0.0.1:0\"]\ncertificate = \"gone\"\nkey = \"gone\"\n",
        ] {
            place.write("c.toml", damaged);
            server.signal("HUP");
            line_with("reload failed, nothing changed: ", &mut messages);
        }
        std::fs::remove_file(place.path("c.toml")).expect("it is there");
        server.signal("HUP");
        line_with("reload failed, nothing changed: ", &mut messages);
        place.write("c.toml", good);
        for _ in 0..20 {
            server.signal("HUP");
        }
        line_with("reloaded nothing", &mut messages);
        ends.store(true, Ordering::Relaxed);
        let stored = clients
            .into_iter()
            .map(|client| client.join().expect("no panic"));
        stored.collect::<Vec<u32>>()
    });
    // A login is required as before, and each acknowledged record is there.
    server.ask(&place, &["get", "c0-1"]).error(3);
    let (code, last, _) = server.end();
    assert!(code == 0 && last.contains("stopped"), "{last}");
    let keys = place.run(&["list", "--keys", "d/records.azh"]).ok();
    let found: std::collections::HashSet<&str> = keys.lines().collect();
    for (client, stored) in stored.into_iter().enumerate() {
        assert!(stored > 0);
        for n in 1..=stored {
            assert!(found.contains(&*format!("c{client}-{n}")), "c{client}-{n}");
        }
    }
}

/// It was reported to need a restart, and was taken over.
#[test]
fn a_hangup_leaves_the_longest_item_where_the_memory_is_another() {
    let place = Place::new();
    place.write("c.toml", "engine = \"cache\"\n");
    let serve = ["serve", "--config", "c.toml", "--listen", "127.0.0.1:0"];
    let mut server = Server::of(place.command(&serve));
    let mut messages = BufReader::new(server.child.stderr.take().expect("a pipe"));
    place.write(
        "c.toml",
        "engine = \"cache\"\nmemory-max = \"4GiB\"\nitem-max = \"9MiB\"\n",
    );
    server.signal("HUP");
    let line = line_with("until a restart", &mut messages);
    assert!(
        line.contains("item-max, ") && line.contains("memory-max;"),
        "{line}"
    );
    let set = ["client", "--address", &server.address, "set", "k"];
    place.run_with(&set, &vec![b'v'; 2 << 20]).error(4);
    place.run_with(&set, &vec![b'v'; 1 << 19]).ok();
}

#[test]
fn more_connections_are_served_than_a_shell_lets_a_program_have_descriptors() {
    let place = Place::new();
    let serve = [
        "serve",
        "--data",
        "d",
        "--listen",
        "127.0.0.1:0",
        "--threads",
        "1",
        "--connections-max",
        "300",
    ];
    let start = |limit: &str| {
        let direct = place.command(&serve);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("ulimit {limit} 200; exec \"$0\" \"$@\"")])
            .arg(direct.get_program())
            .args(direct.get_args())
            .current_dir(place.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Server::of(shell)
    };
    let server = start("-Sn");
    let mut clients = Vec::new();
    for _ in 0..300 {
        let mut client = TcpStream::connect(&server.address).expect("it listens");
        client.write_all(b"mn\r\n").expect("it reads");
        let mut answer = [0; 4];
        client.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"MN\r\n");
        clients.push(client);
    }
    assert_eq!(server.end().2, "");
    // Where the system allows no more, that is reported.
    let messages = start("-n").end().2;
    assert!(
        messages.contains("fewer descriptors") && messages.contains("allowed=200"),
        "{messages}"
    );
}

#[test]
fn the_load_program_verifies_every_answer_of_the_server() {
    let place = Place::new();
    let server = Server::start(&place, &["--threads", "2"]);
    let pid = server.child.id().to_string();
    for protocol in ["text", "meta", "binary"] {
        for depth in ["1", "16"] {
            let arguments = [
                "bench",
                "memcache",
                "--address",
                &server.address,
                "--protocol",
                protocol,
                "--depth",
                depth,
                "--records",
                "3000",
                "--connections",
                "7",
                "--ops",
                "set,get,mix,remove",
                "--server",
                &pid,
                "--json",
            ];
            let said = place.run(&arguments).ok();
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines.len(), 4, "{said}");
            assert!(
                lines[1].contains("\"hits\":3000") && lines[1].contains("\"server_cpu_seconds\"")
            );
        }
    }
    let arguments = [
        "bench",
        "memcache",
        "--address",
        &server.address,
        "--records",
        "2000",
        "--batch",
        "100",
        "--rate",
        "20000",
        "--threads",
        "2",
        "--order",
        "zipfian",
        "--json",
    ];
    let said = place.run(&arguments).ok();
    assert!(
        said.contains("\"rate\":20000") && said.contains("\"batch\":100"),
        "{said}"
    );
}

/// A crash left the log past the checkpoint; then bytes of it rotted. Nothing of the folder was served.
#[test]
fn a_damaged_folder_is_served_as_far_as_it_is_sure_and_says_so() {
    for wide in [false, true] {
        let place = Place::new();
        let server = Server::start(&place, &[]);
        for n in 0..40 {
            let (key, value) = (format!("key{n}"), format!("the value {n} of it"));
            server.ask(&place, &["set", &key, &value]).ok();
        }
        server.kill();
        let file = place.path("d").join("records.azh");
        let mut bytes = std::fs::read(&file).expect("a file");
        let needle = b"the value 20 of it";
        let at = bytes.windows(needle.len()).position(|part| part == needle);
        let at = at.expect("values are stored as they are");
        if wide {
            bytes[at..at + 16].fill(0xa5);
        } else {
            bytes[at + 4] ^= 1;
        }
        std::fs::write(&file, &bytes).expect("it is damaged");

        // The commands on the closed folder.
        let listed = place.run(&["list", "d/records.azh"]);
        assert_eq!(listed.code, 8, "{listed:?}");
        assert!(listed.err.contains("azekura: damage: "), "{listed:?}");
        assert!(listed.text().lines().count() >= 39);
        assert_eq!(place.run(&["check", "d/records.azh"]).code, 8);
        assert_eq!(place.run(&["export", "d/records.azh", "tsv"]).code, 8);

        let server = Server::start(&place, &["--metrics", "127.0.0.1:0"]);
        assert_eq!(
            server.ask(&place, &["get", "key30"]).ok(),
            "the value 30 of it\n"
        );
        assert_ne!(server.ask(&place, &["get", "key20"]).code, 0);
        let sure = server.ask(&place, &["get", "key10"]);
        assert_eq!(sure.code == 0, !wide, "{sure:?}");
        let set = server.ask(&place, &["set", "new", "value"]);
        assert_eq!(set.code == 0, !wide, "{set:?}");
        let health = crate::watch::page(&server.page, "/health");
        assert!(health.contains("\r\n\r\ndegraded: "), "{health}");
        assert_eq!(health.contains(" 503 "), wide, "{health}");
        let metrics = crate::watch::page(&server.page, "/metrics");
        assert!(metrics.contains("azekura_damaged_places 1"), "{metrics}");
        let top = place.run(&["top", "--once", "--address", &server.address]);
        assert!(top.text().contains("DAMAGED     places 1"));
        let (code, _, messages) = server.end();
        assert_eq!(code, 0, "{messages}");
        assert!(messages.contains("the data file is damaged"), "{messages}");
    }
}
