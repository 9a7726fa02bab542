//! `--capacity`: how large a file may become, for commands and for a server.
//!
//! Too small a capacity is refused with the least one and changes nothing; a file at its capacity refuses new records, stays
//! as large as it may be, and takes removals, equal values and compaction by any command. It does not know how much a full
//! store keeps free.

use azekura::record::hash::HashDb;

use crate::full::{Client, count};
use crate::program::{Place, lines};
use crate::serve::Server;

const CAPACITY: &str = "--capacity=2MiB";

#[test]
fn too_small_a_capacity_is_refused_with_the_least_one_by_every_command_that_writes() {
    let place = Place::new();
    place.write("in", "a\t1\n");
    let least = HashDb::least_capacity(4096);
    let least = format!("expected {least} bytes or more");
    for new in [
        &["create", "new.azh"][..],
        &["import", "--create", "new.azh", "tsv", "in"],
        &["import", "--create", "--partial", "new.azh", "tsv", "in"],
    ] {
        let error = place.run(&[new, &["--capacity", "4KiB"]].concat()).error(3);
        assert!(error.contains(&least), "{new:?}: {error}");
        assert_eq!(place.names(), ["in"], "{new:?}");
    }
    for more in [&[][..], &["--partial"], &["--sorted"]] {
        let new = ["import", "--create", "new.azt", "tsv", "in"];
        let error = place.run(&[&new, more, &["--capacity", "4KiB"]].concat());
        let error = error.error(3);
        assert!(error.contains("expected at least"), "{more:?}: {error}");
        assert_eq!(place.names(), ["in"], "{more:?}");
    }
    place
        .run(&["create", "s.azh", "--segment-size", "4KiB"])
        .ok();
    place.run(&["set", "s.azh", "b", "2"]).ok();
    place.run(&["create", "t.azh", "--capacity", "256KiB"]).ok();
    let before = place.read("s.azh");
    for change in [
        &["set", "s.azh", "a", "1"][..],
        &["append", "s.azh", "a", "1"],
        &["increment", "s.azh", "n"],
        &["rekey", "s.azh", "b", "c"],
        &["remove", "s.azh", "b"],
        &["import", "s.azh", "tsv", "in"],
        &["merge", "s.azh", "t.azh"],
        &["compact", "s.azh"],
        &["rebuild", "s.azh"],
    ] {
        let run = |capacity| place.run(&[change, &["--capacity", capacity]].concat());
        let error = run("32KiB").error(3);
        assert!(error.contains(&least), "{change:?}: {error}");
        // What is rebuilt is opened before the new file is made.
        assert!(
            place.read("s.azh") == before || change[0] == "rebuild",
            "{change:?}"
        );
        // And with enough it is done, on a copy.
        place.run(&["copy", "s.azh", "kept.azh"]).ok();
        let ran = run("256KiB");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{change:?}");
        std::fs::rename(place.path("kept.azh"), place.path("s.azh")).expect("a file of ours");
        place.write("s.azh", &before);
    }
    place
        .run(&["create", "new.azh", "--capacity", "1000001"])
        .ok();
    let unknown = place.run(&["create", "new.azh", "--capacity", "1MB"]);
    assert_eq!(unknown.code, 2);
}

#[test]
fn a_file_at_its_capacity_refuses_new_records_and_takes_all_that_makes_room() {
    const RECORDS: u32 = 20_000;
    let place = Place::new();
    let value = "v".repeat(200);
    place.write("in", lines(RECORDS, |n| format!("{n:06}\t{value}\n")));
    let is_bounded = || place.read("s.azh").len() <= 2 << 20;

    let error = place
        .run(&["import", "--create", "s.azh", "tsv", "in", CAPACITY])
        .error(5);
    assert!(error.contains("reached its capacity"), "{error}");
    assert_eq!(place.names(), ["in"]);
    place.run(&["create", "s.azh", CAPACITY]).ok();
    let error = place
        .run(&["import", "s.azh", "tsv", "in", CAPACITY])
        .error(5);
    let stored = count(&place);
    let told = format!("the first {stored} of {RECORDS} records are stored");
    assert!(error.contains(&told) && stored > 2000, "{error}");
    assert!(is_bounded());

    // Values as long as those that are there, and then no records.
    let equal = "w".repeat(200);
    for n in 0..5 {
        let key = format!("{n:06}");
        place.run(&["set", "s.azh", &key, &equal, CAPACITY]).ok();
        assert_eq!(
            place.run(&["get", "s.azh", &key]).ok(),
            format!("{equal}\n")
        );
    }
    let keys: Vec<String> = (0..stored).map(|n| format!("{n:06}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let (first, rest) = keys.split_at(keys.len() / 2);
    let remove = |more: &[&str], keys: &[&str]| {
        let words = ["remove", "s.azh", CAPACITY, "--durability=process"];
        place.run(&[&words[..], more, keys].concat()).ok();
        assert!(is_bounded());
    };
    remove(&["--each"], first);
    for keys in rest.chunks(100) {
        remove(&[], keys);
    }
    assert_eq!(count(&place), 0);
    place.run(&["compact", "s.azh", CAPACITY]).ok();
    place
        .run(&["import", "s.azh", "tsv", "in", CAPACITY])
        .error(5);
    assert!(
        count(&place) * 10 >= stored * 9,
        "{} after {stored}",
        count(&place)
    );
    assert!(is_bounded());
    // The file keeps no capacity.
    place.run(&["import", "s.azh", "tsv", "in"]).ok();
    assert_eq!(count(&place), RECORDS);
    // One that is larger by now is full under it, and nothing of it is lost.
    place
        .run(&["set", "s.azh", "new", &value, CAPACITY])
        .error(5);
    place.run(&["remove", "s.azh", CAPACITY, "000000"]).ok();
    place.run(&["check", "s.azh"]).ok();
    assert_eq!(count(&place), RECORDS - 1);
}

#[test]
fn a_server_at_its_capacity_refuses_sets_and_takes_removals() {
    let place = Place::new();
    let error = place
        .run(&["serve", "--data", "d", "--capacity", "10KiB"])
        .error(2);
    assert!(
        error.contains("--capacity is not allowed") && error.contains("expected at least "),
        "{error}"
    );
    place.write("c.toml", "engine = \"cache\"\ncapacity = \"1MiB\"\n");
    let error = place.run(&["serve", "--config", "c.toml"]).error(2);
    assert!(
        error.contains("line 2: capacity") && error.contains("memory-max"),
        "{error}"
    );
    assert_eq!(place.names(), ["c.toml"]);

    place.write("c.toml", "capacity = \"2MiB\"\n");
    let server = Server::start(&place, &["--config", "c.toml"]);
    let mut client = Client::new(&server);
    let value = "v".repeat(1000);
    let set = |n: u32| format!("set k{n} 0 0 {}\r\n{value}\r\n", value.len());
    let mut stored = 0;
    let refusal = loop {
        let answer = client.ask(&set(stored));
        if answer != "STORED\r\n" {
            break answer;
        }
        stored += 1;
        assert!(stored < 3000, "it grows on");
    };
    assert!(
        refusal.starts_with("SERVER_ERROR full: ") && stored > 500,
        "{refusal}"
    );
    let size = || place.read("d/records.azh").len();
    assert!(size() <= 2 << 20);
    let limit = server.ask(&place, &["stats"]).ok();
    assert!(limit.contains("limit_maxbytes 2097152"), "{limit}");
    // As long as before: done. After a kill, too.
    assert_eq!(client.ask(&set(0)), "STORED\r\n");
    client.finds(stored, &value);
    server.kill();
    let server = Server::start(&place, &["--config", "c.toml"]);
    let mut client = Client::new(&server);
    client.finds(stored, &value);
    for n in 0..stored {
        assert_eq!(client.ask(&format!("delete k{n}\r\n")), "DELETED\r\n");
    }
    for n in 0..stored / 2 {
        assert_eq!(client.ask(&set(n)), "STORED\r\n");
    }
    assert!(size() <= 2 << 20);
    let (code, _, messages) = server.end();
    assert_eq!(code, 0, "{messages}");
    // Less than the file's segments need.
    place
        .run(&["rebuild", "d/records.azh", "--segment-size", "64KiB"])
        .ok();
    let error = place
        .run(&["serve", "--data", "d", "--capacity", "256KiB"])
        .error(3);
    assert!(error.contains("bytes or more"), "{error}");
}
