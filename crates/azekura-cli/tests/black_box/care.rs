//! Files as wholes: copied, merged, compacted, rebuilt, checked, repaired, inspected.
//! After each, the records are looked at with another command.
//! Broken files have their own tests.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use azekura::record::hash::{HashDb, OpenOptions};

use crate::program::{Place, lines};

/// A store of `count` records `key0` ... with values that compress.
fn filled(count: u32) -> Place {
    let place = Place::with_store();
    let lines = lines(count, |n| {
        format!("key{n}\t{}\n", format!("value{n} ").repeat(50))
    });
    place
        .run_with(&["import", "s.azh", "tsv"], lines.as_bytes())
        .ok();
    place
}

fn sorted(place: &Place, file: &str) -> Vec<String> {
    let text = place.run(&["list", file]).ok();
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

fn figure(place: &Place, file: &str, name: &str) -> serde_json::Value {
    let text = place.run(&["inspect", "--json", file]).ok();
    let object: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    assert!(!object[name].is_null(), "{name} in {text}");
    object[name].clone()
}

#[test]
fn a_copy_holds_the_same_records_and_never_replaces_a_file() {
    let place = filled(2000);
    place.run(&["copy", "s.azh", "copy.azh"]).ok();
    assert_eq!(sorted(&place, "copy.azh"), sorted(&place, "s.azh"));
    let before = place.read("copy.azh");
    let error = place.run(&["copy", "s.azh", "copy.azh"]).error(3);
    assert!(
        error.starts_with("invalid: the target exists at copy.azh; "),
        "{error}"
    );
    assert_eq!(place.read("copy.azh"), before);
    place.run(&["create", "copy.azh"]).error(3);
    assert_eq!(place.read("copy.azh"), before);
}

#[test]
fn a_copy_has_the_settings_of_the_file() {
    let place = Place::new();
    place
        .run(&[
            "create",
            "s.azh",
            "--segment-size",
            "64KiB",
            "--compression",
            "zstd",
        ])
        .ok();
    place.run(&["copy", "s.azh", "copy.azh"]).ok();
    assert_eq!(figure(&place, "copy.azh", "segment_size"), 65_536);
    assert_eq!(figure(&place, "copy.azh", "compression"), "zstd");
}

#[test]
fn later_files_win_a_merge_unless_existing_records_are_kept() {
    let place = Place::new();
    for (file, records) in [
        ("a.azh", &["x", "a", "y", "a"][..]),
        ("b.azh", &["y", "b", "z", "b"][..]),
        ("c.azh", &["z", "c"][..]),
    ] {
        place.run(&["create", file]).ok();
        place.run(&[&["set", file], records].concat()).ok();
    }
    place.run(&["copy", "a.azh", "kept.azh"]).ok();
    place
        .run(&["merge", "a.azh", "missing.azh", "b.azh"])
        .error(9);
    assert_eq!(
        sorted(&place, "a.azh"),
        ["x\ta", "y\ta"],
        "a wrong name changes nothing"
    );
    assert_eq!(
        place.run(&["merge", "a.azh", "b.azh", "c.azh"]).ok(),
        "3 records stored\n"
    );
    assert_eq!(sorted(&place, "a.azh"), ["x\ta", "y\tb", "z\tc"]);
    let said = place
        .run(&["merge", "--keep-existing", "kept.azh", "b.azh", "c.azh"])
        .ok();
    assert_eq!(said, "1 record stored, 2 kept as they were\n");
    assert_eq!(sorted(&place, "kept.azh"), ["x\ta", "y\ta", "z\tb"]);
}

/// Opens the store as a program that uses the library does.
fn marked(place: &Place, change: impl Fn(&HashDb) -> azekura::Result<()>) {
    let db = HashDb::open(place.path("s.azh"), &OpenOptions::default()).expect("it opens");
    change(&db).expect("a change");
    db.close().expect("it closes");
}

#[test]
fn a_rebuild_changes_the_settings_asked_for_and_keeps_the_others_and_the_records() {
    let place = filled(3000);
    let records = sorted(&place, "s.azh");
    assert_eq!(figure(&place, "s.azh", "compression"), "none");
    place.write("s.azh.rebuilding", "somebody's own");
    marked(&place, |db| db.set_mark(b"applied to 7"));
    place
        .run(&[
            "rebuild",
            "s.azh",
            "--compression",
            "zstd",
            "--segment-size",
            "64KiB",
        ])
        .ok();
    assert_eq!(sorted(&place, "s.azh"), records);
    place.run(&["rebuild", "s.azh"]).ok();
    assert_eq!(sorted(&place, "s.azh"), records);
    assert_eq!(figure(&place, "s.azh", "compression"), "zstd");
    assert_eq!(figure(&place, "s.azh", "segment_size"), 65_536);
    assert_eq!(figure(&place, "s.azh", "count"), 3000);
    place.run(&["check", "s.azh"]).ok();
    marked(&place, |db| {
        assert_eq!(db.mark().as_deref(), Some(&b"applied to 7"[..]));
        Ok(())
    });
    assert_eq!(place.names(), ["s.azh", "s.azh.rebuilding"]);
    assert_eq!(
        place.read("s.azh.rebuilding"),
        b"somebody's own",
        "no other file is touched"
    );
}

#[test]
fn a_rebuild_leaves_the_mode_of_the_file() {
    let place = filled(10);
    let mode = || {
        fs::metadata(place.path("s.azh"))
            .expect("it is there")
            .mode()
            & 0o7777
    };
    let group = fs::Permissions::from_mode(0o640);
    fs::set_permissions(place.path("s.azh"), group).expect("it is ours");
    place.run(&["rebuild", "s.azh"]).ok();
    assert_eq!(mode(), 0o640);
}

#[test]
fn compacting_keeps_the_records_and_gives_space_back() {
    let place = filled(20_000);
    let keys: Vec<String> = (0..19_990).map(|n| format!("key{n}")).collect();
    let before = figure(&place, "s.azh", "file_bytes").as_u64();
    for keys in keys.chunks(2000) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        place
            .run(&[&["remove", "--durability", "process", "s.azh"], &keys[..]].concat())
            .ok();
    }
    let records = sorted(&place, "s.azh");
    assert_eq!(records.len(), 10);
    place.run(&["compact", "s.azh"]).ok();
    assert_eq!(sorted(&place, "s.azh"), records);
    let after = figure(&place, "s.azh", "file_bytes").as_u64();
    assert!(after < before, "{after:?} after, {before:?} before");
}

#[test]
fn check_and_inspect_say_what_there_is() {
    let place = filled(100);
    let verdict = place.run(&["check", "s.azh"]).ok();
    assert!(verdict.starts_with("sound: 100 records and "), "{verdict}");
    let json = place.run(&["check", "--json", "s.azh"]).ok();
    let report: serde_json::Value = serde_json::from_str(&json).expect("one JSON object");
    assert_eq!(
        (&report["sound"], &report["records"]),
        (&true.into(), &100.into())
    );
    let table = place.run(&["inspect", "s.azh"]).ok();
    assert!(
        table
            .lines()
            .any(|line| line.starts_with("count ") && line.ends_with(" 100")),
        "{table}"
    );
}

/// Damage in the middle of the records: the check names it, reading never invents, and the repair
/// brings the other records out.
#[test]
fn damage_is_found_and_a_repair_saves_the_rest() {
    let place = filled(2000);
    let records = sorted(&place, "s.azh");
    place.run(&["copy", "s.azh", "broken.azh"]).ok();
    let mut bytes = place.read("broken.azh");
    let at = find(&bytes, b"value1000 value1000").expect("values are stored as they are");
    bytes[at + 3] ^= 0x20;
    place.write("broken.azh", &bytes);

    let ran = place.run(&["check", "broken.azh"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    // Listed by the check, or met before it: while the log after the last checkpoint is read.
    let names_it = ran.err.starts_with("azekura: corrupted: ") || {
        let text = String::from_utf8_lossy(&ran.out);
        text.starts_with("damage: ") && text.contains("\ndamaged: ")
    };
    assert!(names_it, "{ran:?}");
    let ran = place.run(&["get", "broken.azh", "key1000"]);
    assert_eq!((ran.code, ran.out.as_slice()), (8, &b""[..]), "{ran:?}");

    let before = place.read("broken.azh");
    let ran = place.run(&["repair", "broken.azh", "saved.azh"]);
    assert_eq!(ran.code, 8, "something was lost: {ran:?}");
    assert_eq!(
        place.read("broken.azh"),
        before,
        "the damaged file is only read"
    );
    let saved = sorted(&place, "saved.azh");
    assert_eq!(
        saved.len(),
        2000,
        "the damaged one, too: its checksum locates the bit"
    );
    assert!(
        saved.iter().all(|record| records.contains(record)),
        "nothing is invented"
    );
    place.run(&["check", "saved.azh"]).ok();
    place.run(&["repair", "broken.azh", "saved.azh"]).error(3);
}

#[test]
fn a_damage_is_told_once() {
    let place = filled(10_000);
    // What is after the last checkpoint is read before anything is reported.
    place.run(&["rebuild", "s.azh"]).ok();
    let mut bytes = place.read("s.azh");
    let at = find(&bytes, b"value1000 value1000").expect("values are stored as they are");
    bytes[at + 3] ^= 0x20;
    place.write("s.azh", &bytes);
    let ran = place.run(&["check", "s.azh"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let told = String::from_utf8_lossy(&ran.out);
    let count = told.lines().filter(|line| line.starts_with("damage: "));
    assert_eq!(count.count(), 1, "{told}");
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
