//! The data file of a running server is moved, replaced or removed.
//!
//! The next server would not find what is written then. So writes are refused, reads are served, and
//! statistics report it; when the file is back, so are writes. With `--durability power` nothing at all is acknowledged
//! that began after the file went away.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::Place;
use crate::serve::Server;

const FILE: &str = "d/records.azh";

/// Sets keys until one is refused, or (`refused` is false) until one is taken; the keys that were.
fn set_until(place: &Place, server: &Server, refused: bool, round: u32) -> Vec<String> {
    let (from, mut taken) = (Instant::now(), Vec::new());
    for number in 0.. {
        let key = format!("key-{round}-{number}");
        let said = server.ask(place, &["set", &key, "value"]);
        if said.code == 0 {
            taken.push(key);
        }
        if (said.code != 0) == refused {
            assert!(!refused || said.err.contains("io: "), "{said:?}");
            return taken;
        }
        assert!(from.elapsed() < Duration::from_secs(30), "{said:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    unreachable!()
}

fn health(server: &Server) -> String {
    crate::watch::page(&server.page, "/health")
}

#[test]
fn a_server_whose_file_is_moved_or_replaced_takes_nothing_until_it_is_back() {
    for durability in ["process", "power"] {
        let place = Place::new();
        let server = Server::start(
            &place,
            &["--metrics", "127.0.0.1:0", "--durability", durability],
        );
        let (file, away) = (place.path(FILE), place.path("away"));
        server.ask(&place, &["set", "before", "1"]).ok();
        let mut kept = vec!["before".to_owned()];
        for round in 0..4 {
            // Also by the folder's name, and with another file in its place.
            if round == 2 {
                std::fs::rename(place.path("d"), &away).expect("the folder is moved");
            } else {
                std::fs::rename(&file, &away).expect("the file is moved");
            }
            if round == 1 {
                std::fs::copy(&away, &file).expect("a backup is put there");
            }
            let taken = set_until(&place, &server, true, round);
            if durability == "power" {
                assert_eq!(taken, Vec::<String>::new());
            }
            kept.extend(taken);
            assert_eq!(server.ask(&place, &["get", "before"]).ok(), "1\n");
            for change in [
                &["delete", "before"][..],
                &["append", "before", "2"],
                &["touch", "before", "9"],
                &["flush"],
            ] {
                assert_ne!(server.ask(&place, change).code, 0, "{change:?}");
            }
            let said = health(&server);
            assert!(
                said.contains(" 503 ") && said.contains("displaced: "),
                "{said}"
            );
            let metrics = crate::watch::page(&server.page, "/metrics");
            assert!(metrics.contains("azekura_healthy 0"), "{metrics}");
            let to = if round == 2 {
                place.path("d")
            } else {
                file.clone()
            };
            std::fs::rename(&away, &to).expect("it is put back");
            kept.extend(set_until(&place, &server, false, 10 + round));
            assert!(health(&server).contains(" 200 "));
        }
        // What was taken in between is there, killed or not.
        server.kill();
        let listed = place.run(&["list", FILE]).ok();
        for key in &kept {
            assert!(listed.contains(key.as_str()), "{key} is lost: {listed}");
        }
    }
}

#[test]
fn a_server_whose_file_is_removed_says_how_to_save_it_and_ends_with_an_error() {
    let place = Place::new();
    let server = Server::start(&place, &["--metrics", "127.0.0.1:0"]);
    server.ask(&place, &["set", "before", "1"]).ok();
    std::fs::remove_file(place.path(FILE)).expect("it is removed");
    let taken = set_until(&place, &server, true, 0);
    let said = health(&server);
    let from = said
        .split_whitespace()
        .find(|word| word.starts_with("/proc/"));
    let from = from.unwrap_or_else(|| panic!("no place to copy from: {said}"));
    std::fs::copy(Path::new(from), place.path("saved.azh")).expect("it can be saved");
    let (code, _, messages) = server.end();
    assert_eq!(code, 9, "{messages}");
    assert!(
        messages.contains("removed") && messages.contains("writes are refused"),
        "{messages}"
    );
    let listed = place.run(&["list", "saved.azh"]).ok();
    for key in taken.iter().map(String::as_str).chain(["before"]) {
        assert!(listed.contains(key), "{key} is lost: {listed}");
    }
}
