//! The end of a server, and the start after it: what was received is answered, what was answered is there.
//! Durability that waits for the device is shared by those who wait together.
//! It knows no transport but TCP.

use std::io::Write as _;

use azekura::Kind;
use azekura::record::hash::{HashDb, OpenOptions};
use azekura_server::Server;
use azekura_server::config::{Config, DurabilityLevel, Engine};
use azekura_server::net::{Control, Listeners};

use crate::figures::{stats, value};
use crate::running::{Running, ask, expect, folder, rest, small, texts};

fn in_file(data: &std::path::Path, durability: DurabilityLevel) -> Config {
    Config {
        data: data.to_path_buf(),
        engine: Engine::Hash,
        durability,
        ..small()
    }
}

#[test]
fn what_was_received_before_the_end_is_answered_and_kept() {
    let (_folder, data) = folder();
    let config = in_file(&data, DurabilityLevel::Process);
    let server = Running::start(&config);
    let mut client = server.connect();
    let heap = texts(1000, |n| format!("set k{n} 7 0 4\r\n{n:04}\r\n"));
    client.write_all(heap.as_bytes()).unwrap();
    // An answer shows that the heap is being served.
    expect(&mut client, "STORED\r\n");
    server.stop();
    assert_eq!(rest(&mut client), "STORED\r\n".repeat(999));
    let server = Running::start(&config);
    let mut client = server.connect();
    for n in 0..1000 {
        ask(
            &mut client,
            &format!("get k{n}\r\n"),
            &format!("VALUE k{n} 7 4\r\n{n:04}\r\nEND\r\n"),
        );
    }
}

#[test]
fn clients_that_wait_for_the_device_share_its_syncs() {
    const CLIENTS: u64 = 32;
    const ROUNDS: u64 = 20;
    let (_folder, data) = folder();
    let server = Running::start(&in_file(&data, DurabilityLevel::Power));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for round in 0..ROUNDS {
        for (client, n) in clients.iter_mut().zip(0..) {
            let set = format!("set k{n} 0 0 2\r\n{round:02}\r\n");
            client.write_all(set.as_bytes()).unwrap();
        }
        for client in &mut clients {
            expect(client, "STORED\r\n");
        }
    }
    ask(
        &mut clients[0],
        "get k5\r\n",
        "VALUE k5 0 2\r\n19\r\nEND\r\n",
    );
    server.stop();
    let inspected = HashDb::open(data.join("records.azh"), &OpenOptions::default());
    assert_eq!(azekura::Reader::count(&inspected.unwrap()), CLIENTS);
}

#[test]
fn data_that_another_process_has_open_is_an_error_that_says_what_to_do() {
    let (_folder, data) = folder();
    let config = in_file(&data, DurabilityLevel::Process);
    let _server = Running::start(&config);
    let control = Control::new(config.limits.clone()).unwrap();
    let error = Server::open(&config, &control).err().unwrap();
    assert_eq!(error.kind(), Kind::Locked);
    assert!(error.to_string().contains("--data"), "{error}");
}

#[test]
fn a_server_without_an_address_is_refused() {
    let control = Control::new(small().limits).unwrap();
    let error = Server::run(&small(), Listeners::new(), &control).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn what_nobody_asked_to_sync_is_synced_by_the_clock_if_that_is_said() {
    let (_folder, data) = folder();
    let config = Config {
        sync_interval_ms: 5,
        ..in_file(&data, DurabilityLevel::Process)
    };
    let server = Running::start(&config);
    let mut client = server.connect();
    ask(&mut client, "set a 0 0 1\r\nx\r\n", "STORED\r\n");
    let mut figure = |group: &str, name: &str| -> u64 {
        value(&stats(&mut client, group), name)
            .unwrap()
            .parse()
            .unwrap()
    };
    assert_eq!(figure("settings", "sync_interval"), 5);
    let before = figure("durability", "syncs");
    // Where nothing was written there is nothing to sync.
    let mut writer = server.connect();
    while figure("durability", "syncs") < before + 3 {
        ask(&mut writer, "set a 0 0 1\r\nx\r\n", "STORED\r\n");
    }
    // No answer waited for them.
    assert_eq!(figure("durability", "answers_that_waited"), 0);
}
