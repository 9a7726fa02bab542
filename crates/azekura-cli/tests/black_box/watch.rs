//! The figures of a running server: by `top`, by events, and by its page in a real browser.
//!
//! The page is drawn by Debian's Chromium without a window, and what it drew is read from its document. Where there is no
//! Chromium, a notice states it. Times are not asserted. It does not know how figures are gathered.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetattr;

use crate::program::{Place, notice};
use crate::serve::Server;

#[test]
fn top_tells_once_what_the_server_is_doing() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    server.ask(&place, &["set", "anna", "Nara"]).ok();
    server.ask(&place, &["get", "anna"]).ok();
    // Standard output is a pipe here, so one picture is all there is.
    for arguments in [
        vec!["top", "--address", &server.address, "--once"],
        vec!["top", "--server", &server.address],
    ] {
        let text = place.run(&arguments).ok();
        for part in [
            "azekura     127.0.0.1:",
            "engine hash",
            "requests/s",
            "latency",
            "records 1",
            "file ",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let line = |word: &str| text.lines().find(|line| line.starts_with(word));
        let set = line("set ").expect("a line of sets");
        assert_eq!(set.split_whitespace().nth(1), Some("1"), "{text}");
        assert!(
            text.is_ascii() && text.lines().all(|line| line.len() <= 80),
            "{text}"
        );
    }
    let address = server.address.clone();
    drop(server);
    let gone = place.run(&["top", "--address", &address]).error(9);
    assert!(gone.contains("azekura serve"), "{gone}");
}

/// Both ends of a terminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("the system has terminals");
    grantpt(&master).expect("it is ours");
    unlockpt(&master).expect("it is ours");
    let name = ptsname(&master, Vec::new()).expect("it has a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, Mode::empty()).expect("it is ours");
    (master, slave)
}

#[test]
fn top_draws_on_a_terminal_until_a_key_ends_it_and_gives_it_back() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    for key in [b"q", b"\x03"] {
        let (master, slave) = terminal();
        let before = tcgetattr(&master).expect("a terminal").local_modes;
        let mut command = place.command(&["top", "--address", &server.address]);
        command
            .stdin(slave.try_clone().expect("a descriptor"))
            .stdout(slave);
        let mut child = command.spawn().expect("it starts");
        // The other ends are the child's alone, so its death ends the reading.
        drop(command);
        let mut seen = String::new();
        let read = |seen: &mut String, until: &str| {
            while !seen.contains(until) {
                let mut buffer = [0; 4096];
                match rustix::io::read(&master, &mut buffer) {
                    Ok(len) => *seen += &String::from_utf8_lossy(&buffer[..len]),
                    Err(_) => break,
                }
            }
        };
        // The second picture stands where the first one did.
        read(&mut seen, "\x1b[J\x1b[H");
        assert!(
            seen.starts_with("\x1b[?1049h") && seen.contains("requests/s"),
            "{seen}"
        );
        rustix::io::write(&master, key).expect("it reads");
        read(&mut seen, "\x1b[?1049l");
        assert!(seen.ends_with("\x1b[?25h\x1b[?1049l"), "{seen}");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        let after = tcgetattr(&master).expect("a terminal").local_modes;
        assert_eq!(before, after);
    }
}

#[test]
fn events_are_lines_of_json_if_asked_for() {
    let place = Place::new();
    place.write("c.toml", "log = \"json\"\nslow-ms = 60000\n");
    let server = Server::start(&place, &["--config", "c.toml"]);
    server.ask(&place, &["set", "a", "b"]).ok();
    let stats = server.ask(&place, &["stats", "settings"]).ok();
    assert!(stats.lines().any(|line| line == "slow_ms 60000"), "{stats}");
    place.write("c.toml", "log = \"json\"\nslow-ms = \"long\"\n");
    server.signal("HUP");
    // It is stopped only when it has said that it did not understand: both go through the same signals, in order.
    let (code, _, messages) = server.end();
    assert_eq!(code, 0);
    let mut said = Vec::new();
    for line in messages.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect(line);
        for name in ["time", "level", "target", "message"] {
            assert!(event[name].is_string(), "{name} in {line}");
        }
        said.push(format!(
            "{}: {}",
            event["level"].as_str().unwrap(),
            event["message"].as_str().unwrap()
        ));
    }
    assert_eq!(
        said.first().map(String::as_str),
        Some("info: serving"),
        "{said:?}"
    );
    assert_eq!(
        said.last().map(String::as_str),
        Some("info: stopped"),
        "{said:?}"
    );
    let refused = said
        .iter()
        .find(|line| line.starts_with("error: reload failed, nothing changed: "));
    assert!(
        refused.is_some_and(|line| line.contains("line 2") && line.contains("slow-ms")),
        "{said:?}"
    );
}

#[test]
fn levels_and_addresses_that_are_none_are_told_with_what_is_allowed() {
    let place = Place::new();
    place.write("c.toml", "log-level = \"loud\"\n");
    let error = place.run(&["serve", "--config", "c.toml"]).error(2);
    assert!(
        error.contains("line 1") && error.contains("`debug`"),
        "{error}"
    );
    let taken = Server::start(&place, &["--metrics", "127.0.0.1:0"]);
    let at = taken
        .page
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let arguments = [
        "serve",
        "--data",
        "e",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        at,
    ];
    let error = place.run(&arguments).error(6);
    assert!(error.contains("--metrics"), "{error}");
}

/// The answer to a GET, with its head.
pub(crate) fn page(url: &str, path: &str) -> String {
    let at = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(at).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    text
}

/// Chromium without a window and without a word to anybody else.
fn chromium(place: &Place) -> Option<Command> {
    let program = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| {
            let asked = Command::new(name)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            asked.is_ok_and(|status| status.success())
        })?;
    let mut command = Command::new(program);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--virtual-time-budget=2500",
            "--timeout=60000",
            "--window-size=1280,1400",
        ])
        .arg(format!(
            "--user-data-dir={}",
            place.path("browser").display()
        ))
        .stderr(Stdio::null());
    Some(command)
}

#[test]
fn the_page_draws_what_the_server_does_in_a_real_browser() {
    let place = Place::new();
    let server = Server::start(&place, &["--metrics", "127.0.0.1:0"]);
    assert!(page(&server.page, "/health").ends_with("\r\n\r\nok\n"));
    let Some(mut browser) = chromium(&place) else {
        notice("the page is not tested: Chromium is not installed (Debian: chromium)");
        return;
    };
    // Load, until there are some seconds to draw.
    let number = |text: &str| text.matches("\n[").count() + text.matches("],[").count();
    loop {
        let arguments = [
            "bench",
            "memcache",
            "--address",
            &server.address,
            "--records",
            "2000",
            "--connections",
            "8",
            "--ops",
            "set,get",
            "--json",
        ];
        place.run(&arguments).ok();
        if number(&page(&server.page, "/stats.json")) >= 4 {
            break;
        }
    }
    let drawn = browser
        .args(["--dump-dom", &server.page])
        .output()
        .expect("it starts");
    let document = String::from_utf8_lossy(&drawn.stdout);
    assert!(document.contains(">healthy</span>"), "{document}");
    assert!(document.contains("engine hash"), "{document}");
    // A line of at least two points, drawn and not broken off.
    for column in [
        "gets_per_second",
        "sets_per_second",
        "p99_us",
        "received_bytes_per_second",
        "resident_bytes",
        "file_bytes",
        "connections",
        "records",
    ] {
        let series = document
            .split(&format!("data-column=\"{column}\" d=\""))
            .nth(1);
        let path = series
            .and_then(|rest| rest.split('"').next())
            .unwrap_or_default();
        assert!(
            path.starts_with('M') && path.contains('L'),
            "{column}: {path}"
        );
        assert!(
            !path.contains("NaN") && !path.contains("Infinity"),
            "{column}: {path}"
        );
    }
    assert!(document.contains("<td>set</td>"), "{document}");
}
