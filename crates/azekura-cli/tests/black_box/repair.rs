//! `repair` names what it doubts.
//!
//! Each record in doubt is named with its key, its place and the reason, a thousand at most and how many more, as lines and as
//! JSON. The files are those of a process that was killed: a library's handle is open while they are copied.

use azekura::record::hash::{CreateOptions, HashDb};

use crate::program::{Place, lines};

fn key(n: u32) -> String {
    format!("key-{n:05}")
}

/// `s.azh` as a process leaves it that was killed after it stored `count` records.
fn killed(count: u32) -> (Place, Vec<u8>) {
    let place = Place::new();
    let options = CreateOptions::new().background(false);
    let db = HashDb::create(place.path("open.azh"), &options).expect("a new file");
    for n in 0..count {
        let value = format!("value {n}");
        db.put(key(n).as_bytes(), value.as_bytes()).expect("a put");
    }
    db.put(b"\xff\x00", b"no text").expect("a put");
    let bytes = place.read("open.azh");
    (place, bytes)
}

/// Offset of the frame of a record, whose first word stands before the key.
fn frame_at(bytes: &[u8], key: &[u8]) -> usize {
    let at = bytes.windows(key.len()).position(|found| found == key);
    at.expect("records are stored as they are") - 8
}

fn json(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).expect("one JSON object")
}

#[test]
fn a_record_in_doubt_is_named_with_its_place_and_the_reason() {
    let (place, mut bytes) = killed(50);
    let places = [
        frame_at(&bytes, key(7).as_bytes()),
        frame_at(&bytes, b"\xff\x00no text"),
    ];
    for at in places {
        bytes[at + 10] ^= 1;
    }
    place.write("s.azh", &bytes);
    let ran = place.run(&["repair", "s.azh", "new.azh"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let text = String::from_utf8(ran.out).expect("text");
    let why = "one bit of it was wrong, and was set as its checksum asks for";
    for (at, key) in places.iter().zip(["key-00007", "\\xff\\x00"]) {
        let line = format!("in doubt: the record of key \"{key}\" at offset {at:#x}: {why}");
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let named = text.lines().filter(|line| line.starts_with("in doubt: "));
    assert_eq!(named.count(), 2, "{text}");
    assert!(
        text.ends_with("\n51 records recovered, 2 of them in doubt, 2 losses\n"),
        "{text}"
    );
    let ran = place.run(&["repair", "--json", "s.azh", "again.azh"]);
    let report = json(&ran.out);
    assert_eq!((ran.code, &report["doubtful"]), (8, &2.into()));
    assert_eq!(
        report["doubted"],
        serde_json::json!([
            {"key": "key-00007", "offset": places[0], "why": why},
            {"key_base64": "/wA=", "offset": places[1], "why": why},
        ])
    );
}

#[test]
fn a_thousand_records_in_doubt_are_named_and_the_others_counted() {
    let (place, mut bytes) = killed(1500);
    let from = frame_at(&bytes, key(1400).as_bytes());
    let to = frame_at(&bytes, key(1401).as_bytes());
    bytes[from..to].fill(0xa5);
    place.write("s.azh", &bytes);
    let ran = place.run(&["repair", "s.azh", "new.azh"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let text = String::from_utf8(ran.out).expect("text");
    let end = format!("{from:#x} is lost, where it may have been removed or replaced");
    let named = text.lines().filter(|line| line.ends_with(&end));
    assert_eq!(named.count(), 1000);
    assert!(text.contains("\nin doubt: 400 more\n"), "{text}");
    let ran = place.run(&["repair", "--json", "s.azh", "again.azh"]);
    let report = json(&ran.out);
    assert_eq!(report["doubtful"], 1400);
    assert_eq!(report["doubted"].as_array().map(Vec::len), Some(1000));
}

#[test]
fn a_check_of_a_file_that_lost_a_superblock_slot_asks_for_no_repair() {
    for slot in [0, 4096] {
        let (place, mut bytes) = killed(50);
        bytes[slot..slot + 4096].fill(0);
        place.write("s.azh", &bytes);
        let ran = place.run(&["check", "s.azh"]);
        assert_eq!(ran.code, 8, "{ran:?}");
        let text = ran.text();
        assert!(text.contains("nothing is lost"), "{text}");
        let remedy = "no repair is needed: the next command that writes to s.azh writes the superblock again\n";
        assert!(text.ends_with(remedy), "{text}");
        assert!(!text.contains("azekura repair"), "{text}");
        place.run(&["set", "s.azh", "a", "b"]).ok();
        let verdict = place.run(&["check", "s.azh"]).ok();
        assert!(verdict.starts_with("sound: 52 records"), "{verdict}");
    }
}

/// What was lost stood at the target, where the copy is made that is read of a file that is cut short within a segment.
#[test]
fn what_a_repair_finds_of_a_file_that_was_cut_short_is_of_that_file() {
    let place = Place::new();
    let records = lines(200, |n| format!("{n:04}\t{n:0100}\n"));
    place.write("in", records);
    let create = ["create", "s.azh", "--segment-size", "4KiB"];
    place.run(&create).ok();
    place.run(&["import", "s.azh", "tsv", "in"]).ok();
    let bytes = place.read("s.azh");
    place.write("s.azh", &bytes[..3 * 4096 + 2000]);
    let ran = place.run(&["repair", "s.azh", "new.azh"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let text = ran.text();
    let root = "lost: corrupted: the root of the checkpoint lies beyond the end of the file at s.azh offset ";
    assert!(text.starts_with(root), "{text}");
    assert!(!text.contains("new.azh"), "{text}");
}

#[test]
fn a_get_of_a_record_in_doubt_names_the_commands_that_show_it() {
    let (place, mut bytes) = killed(50);
    let at = frame_at(&bytes, key(7).as_bytes());
    bytes[at..at + 16].fill(0xee);
    place.write("s.azh", &bytes);
    // What was written before the damage may have been changed by what stood there.
    let error = place.run(&["get", "s.azh", &key(3)]).error(8);
    for command in [
        "azekura repair s.azh NEW-FILE",
        "azekura list s.azh",
        "azekura export s.azh",
    ] {
        assert!(error.contains(command), "{error}");
    }
    let ran = place.run(&["list", "s.azh"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let text = ran.text();
    assert!(text.contains(&key(3)), "{text}");
}

/// A note that finds no room on its way is no reason to end: what is left of a damaged file is exported, and the exit code is the same.
#[test]
fn notes_that_cannot_be_written_change_no_result() {
    let (place, mut bytes) = killed(50);
    let at = frame_at(&bytes, key(7).as_bytes());
    bytes[at + 10..at + 14].fill(0xa5);
    place.write("s.azh", &bytes);
    let full = || std::fs::File::create("/dev/full").expect("a device of Linux");
    let code_of = |place: &Place, arguments: &[&str]| {
        let ran = place.command(arguments).stderr(full()).output();
        ran.expect("it runs").status.code()
    };
    let noted = place.run(&["export", "s.azh", "tsv", "noted.tsv"]);
    assert_eq!(noted.code, 8, "{noted:?}");
    assert!(noted.err.contains("damage"), "{noted:?}");
    assert_eq!(
        code_of(&place, &["export", "s.azh", "tsv", "silent.tsv"]),
        Some(8)
    );
    assert_eq!(place.read("silent.tsv"), place.read("noted.tsv"));
    assert!(place.read("silent.tsv").len() > 500);
    // The last whole export is not replaced by one in which records are missing.
    place.write("whole.tsv", "what was there");
    let kept = place.run(&["export", "s.azh", "tsv", "whole.tsv"]);
    assert!(
        kept.code == 8 && kept.err.contains("was not replaced"),
        "{kept:?}"
    );
    assert_eq!(place.read("whole.tsv"), b"what was there");
    assert_eq!(code_of(&place, &["list", "s.azh"]), Some(8));
    let place = Place::with_store();
    place.run(&["set", "s.azh", "there", "value"]).ok();
    for (arguments, code) in [
        (&["get", "s.azh", "absent"][..], 1),
        (&["remove", "s.azh", "absent"], 1),
        (&["set", "s.azh", "there", "x", "--no-overwrite"], 1),
        (&["list", "s.azh", "--items", "1"], 0),
    ] {
        assert_eq!(code_of(&place, arguments), Some(code), "{arguments:?}");
    }
}
