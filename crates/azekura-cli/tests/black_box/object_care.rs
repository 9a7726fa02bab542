//! Object stores as wholes: checked, scrubbed, copied, grown, repaired, on devices; figures and the journal.
//! After each, the objects are looked at with another command.
//! What is in them is tested in `objects`.

use std::path::Path;
use std::process::Command;

use azekura::object::{Change, CreateOptions, ObjectId, Store};

use crate::program::{Place, notice};

const ID: &str = "000000000000000000000000000000ab";

/// A value that is nowhere else in a file.
fn value(seed: u8) -> Vec<u8> {
    (0..150_000_u32)
        .map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ seed)
        .collect()
}

/// A store of objects 1 to 9 and ab.
fn filled() -> Place {
    let place = Place::with_objects();
    for seed in 0..10 {
        place.write(&format!("v{seed}"), value(seed));
    }
    let mut command = vec!["object", "put", "s.azo"];
    let ids = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "ab"];
    let names: Vec<String> = (0..10).map(|seed| format!("v{seed}")).collect();
    for (id, name) in ids.iter().zip(&names) {
        command.extend([*id, name]);
    }
    place.run(&command).ok();
    place
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

/// Changes a byte of the value that was made with `seed`.
fn damage(place: &Place, file: &str, seed: u8) {
    let mut bytes = place.read(file);
    let wanted = &value(seed)[70_000..70_032];
    let found = bytes.windows(wanted.len()).position(|w| w == wanted);
    bytes[found.expect("values are stored as they are")] ^= 4;
    place.write(file, bytes);
}

#[test]
fn a_sound_store_is_checked_scrubbed_and_told_in_figures() {
    let place = filled();
    let bytes = "1.4 MiB";
    assert_eq!(
        place.object(&["check", "s.azo"]).ok(),
        format!("sound: 10 objects, 10 of them and {bytes} verified\n")
    );
    assert_eq!(
        place.object(&["check", "s.azo", "--quick"]).ok(),
        "sound: 10 objects, their values not looked at\n"
    );
    let report = json(&place.object(&["check", "s.azo", "--json"]).ok());
    assert_eq!(
        (&report["sound"], &report["verified"], &report["bytes"]),
        (&true.into(), &10.into(), &1_500_000.into())
    );
    assert_eq!(
        place.object(&["scrub", "s.azo", "--rate", "1GiB"]).ok(),
        format!("10 objects read, {bytes} verified, 0 damaged\n")
    );
    assert_eq!(
        place.object(&["scrub", "s.azo", "--first", "9"]).ok(),
        "2 objects read, 293.0 KiB verified, 0 damaged\n"
    );
    let part = ["scrub", "s.azo", "--first", "3", "--end", "6", "--json"];
    assert_eq!(
        json(&place.object(&part).ok()),
        serde_json::json!({"objects": 3, "bytes": 450_000, "damaged": 0, "doubtful": 0, "damage": []})
    );
    let figures = json(&place.object(&["stats", "s.azo", "--json"]).ok());
    for (name, wanted) in [
        ("objects", 10),
        ("bytes", 1_500_000),
        ("extent_bytes", 1_515_520),
        ("data_bytes", 44 << 20),
        ("free_bytes", (44 << 20) - 1_515_520),
        ("journal_bytes", 4 << 20),
    ] {
        assert_eq!(figures[name], wanted, "{name} in {figures}");
    }
    // Of what this command did itself nothing is shown, and the help explains the rest.
    let help = place.object(&["stats", "--help"]).ok();
    for name in figures.as_object().expect("an object").keys() {
        assert!(help.contains(name), "{name} in {help}");
        assert!(
            !name.starts_with("device_") && !name.ends_with("_ns"),
            "{name}"
        );
    }
    let table = place.object(&["stats", "s.azo"]).ok();
    assert!(
        table.contains("data_bytes          46137344 (44 MiB)\n"),
        "{table}"
    );
}

#[test]
fn a_damaged_value_is_found_by_checks_and_scrubs_and_never_copied() {
    let place = filled();
    place.object(&["copy", "s.azo", "copy.azo"]).ok();
    damage(&place, "s.azo", 9);
    let named = format!("damage: corrupted: object {ID} does not verify at s.azo offset 0x");
    for (command, verdict) in [
        (
            &["check", "s.azo"][..],
            "\ndamaged: 10 objects, 9 of them and ",
        ),
        (&["scrub", "s.azo"], " verified, 1 damaged\n"),
    ] {
        let ran = place.object(command);
        assert_eq!((ran.code, ran.err.as_str()), (8, ""), "{ran:?}");
        let said = ran.text();
        assert!(said.starts_with(&named) && said.contains(verdict), "{said}");
        let remedy =
            "\nput these objects again from a copy, or remove them: no value can be repaired\n";
        assert!(said.ends_with(remedy), "{said}");
    }
    let ran = place.object(&["scrub", "s.azo", "--json"]);
    assert_eq!(ran.code, 8);
    let report = json(&ran.text());
    assert_eq!(
        (&report["damaged"], &report["damage"][0]["object"]),
        (&1.into(), &ID.into())
    );
    let ran = place.object(&["check", "s.azo", "--json"]);
    assert_eq!(ran.code, 8);
    let report = json(&ran.text());
    let finding = &report["damage"][0];
    assert_eq!(
        (&report["found"], &finding["device"], &finding["object"]),
        (&1.into(), &"s.azo".into(), &ID.into())
    );
    assert!(finding["offset"].is_u64(), "{report}");
    place.object(&["check", "s.azo", "--quick"]).ok();

    let error = place.object(&["copy", "s.azo", "new.azo"]).error(8);
    assert!(error.starts_with(&named["damage: ".len()..]), "{error}");
    assert!(!place.names().contains(&"new.azo".to_owned()));
    // The copy from before has it.
    place.object(&["get", "copy.azo", "ab", "-o", "out"]).ok();
    assert!(place.read("out") == value(9));
}

#[test]
fn a_copy_holds_the_same_objects_and_replaces_nothing() {
    let place = filled();
    place.object(&["copy", "s.azo", "copy.azo"]).ok();
    let listed = place.object(&["list", "s.azo"]).ok();
    assert_eq!(place.object(&["list", "copy.azo"]).ok(), listed);
    place.object(&["check", "copy.azo"]).ok();
    place.object(&["get", "copy.azo", "3", "-o", "out"]).ok();
    assert!(place.read("out") == value(2));
    let error = place.object(&["copy", "s.azo", "copy.azo"]).error(3);
    assert!(
        error.starts_with("invalid: the target exists at copy.azo"),
        "{error}"
    );
    // Values that have a device of their own come into one file.
    place
        .object(&["create", "two", "--data", "two.data", "--capacity", "16MiB"])
        .ok();
    place
        .object(&["put", "two", "--data", "two.data", "1", "v4"])
        .ok();
    place
        .object(&["copy", "two", "--data", "two.data", "one.azo"])
        .ok();
    place.object(&["get", "one.azo", "1", "-o", "out"]).ok();
    assert!(place.read("out") == value(4));
}

#[test]
fn a_grown_store_has_more_room_and_none_shrinks() {
    let place = filled();
    let grown = place.object(&["grow", "s.azo", "--capacity", "64MiB"]).ok();
    assert_eq!(grown, "62914560 B for values (60 MiB)\n");
    assert_eq!(place.read("s.azo").len(), 64 << 20);
    assert_eq!(place.object(&["grow", "s.azo"]).ok(), grown);
    let error = place
        .object(&["grow", "s.azo", "--capacity", "48MiB"])
        .error(3);
    assert!(
        error.starts_with("invalid: a store does not shrink at s.azo (found 48 MiB, expected ")
            && error.ends_with("; make a smaller one, and put the objects there"),
        "{error}"
    );
    for (capacity, code) in [("1TiB", 5), ("3000000TiB", 3)] {
        let ran = place.object(&["grow", "s.azo", "--capacity", capacity]);
        let error = ran.error(code);
        assert!(error.contains(" at s.azo"), "{error}");
    }
    let figures = json(&place.object(&["stats", "s.azo", "--json"]).ok());
    assert_eq!(figures["data_bytes"], 60 << 20);
    let verdict = place.object(&["check", "s.azo"]).ok();
    assert!(verdict.starts_with("sound: 10 objects"), "{verdict}");
}

#[test]
fn a_repair_names_values_that_it_cannot_mend() {
    let place = filled();
    damage(&place, "s.azo", 9);
    let ran = place.object(&["repair", "s.azo"]);
    assert_eq!((ran.code, ran.err.as_str()), (8, ""), "{ran:?}");
    let said = ran.text();
    let named = format!("damaged: corrupted: object {ID} does not verify at s.azo offset 0x");
    assert!(said.starts_with(&named), "{said}");
    let summary = "\n10 objects, 0 of them in doubt, 0 losses, 1 damaged and beyond repair\n";
    assert!(said.ends_with(summary), "{said}");
    let ran = place.object(&["repair", "s.azo", "--json"]);
    assert_eq!(ran.code, 8);
    assert_eq!(json(&ran.text())["damaged"], 1);
}

#[test]
fn a_check_counts_the_superblocks_that_are_on_the_device() {
    for slot in [0, 4096] {
        let place = filled();
        let mut bytes = place.read("s.azo");
        bytes[slot..slot + 4096].fill(0);
        place.write("s.azo", bytes);
        // The slot is lost and nothing else; the next change writes it again. A store that was not closed is no other case.
        let mut killed = killed_with_small_objects(&Place::new());
        killed[slot..slot + 4096].fill(0);
        place.write("killed.azo", killed);
        let ran = place.object(&["check", "killed.azo"]);
        assert_eq!(ran.code, 8, "{ran:?}");
        let text = ran.text();
        assert!(text.contains("nothing is lost"), "{text}");
        // One remedy, and the one that is enough.
        let remedy = "no repair is needed: the next command that writes to killed.azo writes the superblock again\n";
        assert!(text.ends_with(remedy), "{text}");
        assert!(!text.contains("object repair"), "{text}");
        let ran = place.object(&["check", "s.azo", "--json"]);
        assert_eq!(ran.code, 8, "{ran:?}");
        let report = json(&ran.text());
        assert_eq!(report["superblocks"], 1, "{report}");
        assert!(
            report["damage"].to_string().contains("nothing is lost"),
            "{report}"
        );
        place.object(&["put", "s.azo", "1", "--value", "x"]).ok();
        let report = json(&place.object(&["check", "s.azo", "--json"]).ok());
        assert_eq!(report["superblocks"], 2);
    }
}

#[test]
fn a_label_that_was_zeroed_is_written_again_and_no_strangers_device_gets_one() {
    let place = filled();
    place
        .object(&["create", "two", "--data", "data", "--capacity", "16MiB"])
        .ok();
    place
        .object(&["put", "two", "--data", "data", "1", "v4"])
        .ok();
    let mut bytes = place.read("data");
    bytes[..8192].fill(0);
    place.write("data", &bytes);
    bytes.fill(0);
    bytes[65_536..65_544].copy_from_slice(b"_BHRfS_M");
    place.write("stranger", &bytes);
    let error = place
        .object(&["repair", "two", "--data", "stranger"])
        .error(7);
    assert!(
        error.starts_with(
            "mismatch: the device has no label, and nothing of this store at stranger; "
        ),
        "{error}"
    );
    assert!(place.read("stranger") == bytes);
    let ran = place.object(&["repair", "two", "--data", "data"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert_eq!(
        ran.text(),
        "lost: the label was damaged at data offset 0x0\n1 object, 0 of them in doubt, 1 loss\n"
    );
    place
        .object(&["get", "two", "1", "--data", "data", "-o", "out"])
        .ok();
    assert!(place.read("out") == value(4));
}

/// Everything but superblocks and values is gone: the journal, and the index in it.
#[test]
fn a_store_without_its_journal_is_refused_and_repaired_from_its_values() {
    let place = filled();
    assert_eq!(
        place.object(&["repair", "s.azo"]).ok(),
        "10 objects, 0 of them in doubt, 0 losses\n"
    );
    let mut bytes = place.read("s.azo");
    bytes[8192..4 << 20].fill(0);
    place.write("s.azo", &bytes);
    // The objects are listed by their own headers, and the damage is reported.
    let ran = place.object(&["list", "s.azo"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    assert!(ran.err.contains("s.azo"), "{ran:?}");
    assert_eq!(ran.text().lines().count(), 10);
    let ran = place.object(&["repair", "s.azo", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (8, ""), "{ran:?}");
    let report = json(&ran.text());
    assert_eq!(report["objects"], 10, "{report}");
    assert_eq!(
        report["doubted"].as_array().map(Vec::len),
        Some(10),
        "{report}"
    );
    assert!(
        report["lost"]
            .as_array()
            .is_some_and(|lost| !lost.is_empty())
    );
    let verdict = place.object(&["check", "s.azo"]).ok();
    assert!(verdict.starts_with("sound: 10 objects"), "{verdict}");
    place.object(&["get", "s.azo", "ab", "-o", "out"]).ok();
    assert!(place.read("out") == value(9));
}

#[test]
fn what_is_no_store_is_not_repaired_either() {
    let place = Place::with_store();
    place.write("text", "just text, longer than a magic\n");
    for (file, words) in [
        ("text", "mismatch: not an azekura file at text"),
        (
            "s.azh",
            "mismatch: the file belongs to another engine at s.azh",
        ),
    ] {
        let before = place.read(file);
        let commands = ["stats", "journal", "check", "scrub", "repair", "grow"];
        for command in commands {
            let error = place.object(&[command, file]).error(7);
            assert!(error.starts_with(words), "{command}: {error}");
        }
        let error = place.object(&["copy", file, "new.azo"]).error(7);
        assert!(error.starts_with(words), "{error}");
        assert!(place.read(file) == before, "{file}");
    }
    for command in ["stats", "journal", "check", "scrub", "repair", "grow"] {
        place.object(&[command, "missing"]).error(9);
    }
    assert_eq!(place.names(), ["s.azh", "text"]);
}

/// The file as a crash would leave it: copied while the store is open.
#[test]
fn the_journal_shows_what_was_not_in_a_checkpoint_yet() {
    let place = Place::new();
    let options = CreateOptions::new().capacity(16 << 20).background(false);
    let store = Store::create(place.path("s.azo"), &options).expect("a store");
    store.put(ObjectId(1), b"one").expect("room");
    store.put(ObjectId(2), b"two").expect("room");
    store.checkpoint().expect("a checkpoint");
    store.remove(ObjectId(1)).expect("it is there");
    store
        .apply(&[
            Change::Put(ObjectId(3), b"three"),
            Change::Remove(ObjectId(2)),
        ])
        .expect("room");
    store
        .remove_range(ObjectId(0)..ObjectId(9))
        .expect("a range");
    store.put(ObjectId(0xab), &[7; 5000]).expect("room");
    store.put(ObjectId(0xac), b"last").expect("room");
    store.sync().expect("a sync");
    place.write("crashed.azo", place.read("s.azo"));
    store.close().expect("a close");
    assert_eq!(place.object(&["journal", "s.azo"]).ok(), "");

    let crashed = place.read("crashed.azo");
    let text = place.object(&["journal", "crashed.azo", "--json"]).ok();
    let records: Vec<serde_json::Value> = text.lines().map(json).collect();
    let of = |kind: &str| {
        let found = records.iter().find(|record| record["record"] == kind);
        found.unwrap_or_else(|| panic!("{kind} in {text}"))
    };
    let id = |id: u128| serde_json::Value::from(ObjectId(id).to_string());
    assert_eq!(of("removed")["id"], id(1));
    let batch = &of("batch")["records"];
    assert_eq!((&batch[0]["id"], &batch[0]["len"]), (&id(3), &5.into()));
    assert_eq!(
        (&batch[1]["id"], &batch[1]["record"]),
        (&id(2), &"removed".into())
    );
    let range = of("range_removed");
    assert_eq!((&range["first"], &range["last"]), (&id(0), &id(8)));
    let (long, small) = (of("put"), of("small"));
    assert_eq!((&long["id"], &long["len"]), (&id(0xab), &5000.into()));
    assert_eq!((&small["id"], &small["len"]), (&id(0xac), &4.into()));
    let sorted = records.iter().map(|record| record["offset"].as_u64());
    assert!(sorted.is_sorted(), "{text}");

    place.write("crashed.azo", crashed);
    let lines = place.object(&["journal", "crashed.azo"]).ok();
    assert!(lines.contains(&format!("  put {ID} sequence ")), "{lines}");
    assert_eq!(
        place.object(&["list", "crashed.azo"]).ok(),
        format!("{ID}\t5000\n{}\t4\n", ObjectId(0xac))
    );
}

/// What `crashed` would be after a death of the process that has `s.azo` open: small objects 1 to 9, not in a checkpoint.
fn killed_with_small_objects(place: &Place) -> Vec<u8> {
    let options = CreateOptions::new().capacity(16 << 20).background(false);
    let store = Store::create(place.path("s.azo"), &options).expect("a store");
    for n in 1..10 {
        let value = format!("small object {n} of nine");
        store.put(ObjectId(n), value.as_bytes()).expect("room");
    }
    store.sync().expect("a sync");
    let bytes = place.read("s.azo");
    store.close().expect("a close");
    bytes
}

#[test]
fn a_store_in_doubt_is_not_copied_and_every_command_reports_the_doubt() {
    let place = Place::new();
    let mut bytes = killed_with_small_objects(&place);
    let wanted = b"small object 5 of nine";
    let at = bytes.windows(wanted.len()).position(|w| w == wanted);
    bytes[at.expect("values are stored as they are")] ^= 3;
    place.write("s.azo", &bytes);
    let ran = place.object(&["copy", "s.azo", "copy.azo"]);
    assert_eq!((ran.code, &ran.out[..]), (8, &b""[..]), "{ran:?}");
    assert!(
        ran.err.contains("objects are in doubt")
            && ran.err.contains("`azekura object repair s.azo`"),
        "{ran:?}"
    );
    assert!(!place.path("copy.azo").exists());
    let refused = place.object(&["head", "s.azo", "1"]);
    assert_eq!((refused.code, refused.text().as_str()), (8, ""));
    // What shows what is left of it reports the doubt.
    let ran = place.object(&["scrub", "s.azo"]);
    let line = b"8 objects read, 176 B verified, 0 damaged, 4 in doubt\n";
    assert_eq!((ran.code, &ran.out[..]), (8, &line[..]), "{ran:?}");
    let first = place.object(&["scrub", "s.azo", "--end", "3", "--json"]);
    assert_eq!(
        (first.code, &json(&first.text())["doubtful"]),
        (8, &2.into())
    );
    for command in ["usage", "list", "stats"] {
        let ran = place.object(&[command, "s.azo"]);
        assert_eq!(ran.code, 8, "{ran:?}");
        assert!(ran.err.contains("the store is damaged"), "{ran:?}");
        assert!(!ran.out.is_empty(), "{ran:?}");
    }
    // Each line of a check names its place once.
    let ran = place.object(&["check", "s.azo"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let said = ran.text();
    let lines = said.lines().filter(|line| line.starts_with("damage: "));
    for line in lines {
        assert_eq!(line.matches(" at s.azo offset 0x").count(), 1, "{line}");
        assert_eq!(line.matches("offset").count(), 1, "{line}");
    }
    assert_eq!(place.object(&["repair", "s.azo"]).code, 8);
    place.object(&["copy", "s.azo", "copy.azo"]).ok();
    assert_eq!(place.object(&["list", "copy.azo"]).ok().lines().count(), 8);
}

#[test]
fn a_repair_tells_which_changes_a_damaged_place_of_the_journal_may_have_held() {
    let place = Place::new();
    let mut bytes = killed_with_small_objects(&place);
    let wanted = b"small object 5 of nine";
    let at = bytes.windows(wanted.len()).position(|w| w == wanted);
    // Two bits: one alone is found by the checksum.
    bytes[at.expect("values are stored as they are")] ^= 3;
    place.write("s.azo", &bytes);
    let ran = place.object(&["check", "s.azo"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let ran = place.object(&["repair", "s.azo"]);
    assert_eq!((ran.code, ran.err.as_str()), (8, ""), "{ran:?}");
    let said = ran.text();
    assert!(
        said.starts_with("lost: the journal cannot be read at s.azo offset 0x")
            && said.contains(": of the changes between sequences 4 and 6 small objects "),
        "{said}"
    );
    // What was stored before it may have been replaced there; what came after it was not.
    let doubted: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("in doubt: object "))
        .collect();
    assert_eq!(doubted.len(), 4, "{said}");
    assert!(
        doubted
            .iter()
            .all(|line| line.contains(" at s.azo offset 0x")
                && line.contains(": the journal at offset 0x")
                && line.ends_with(" is lost, where it may have been removed or replaced")),
        "{said}"
    );
    assert!(
        said.contains("\n8 objects, 4 of them in doubt, 1 loss\n"),
        "{said}"
    );
    place.write("s.azo", &bytes);
    let report = json(&place.object(&["repair", "s.azo", "--json"]).text());
    assert_eq!(
        (&report["losses"], &report["doubtful"]),
        (&1.into(), &4.into())
    );
    let first = &report["doubted"][0];
    assert_eq!(first["id"], ObjectId(1).to_string().as_str(), "{report}");
    assert!(first["offset"].is_u64() && first["why"].is_string() && first["device"] == "s.azo");
    assert_eq!(place.object(&["list", "s.azo"]).ok().lines().count(), 8);
}

#[test]
fn a_repair_without_a_checkpoint_says_that_removed_objects_may_be_back() {
    let place = filled();
    let mut bytes = place.read("s.azo");
    bytes[16 << 10..4 << 20].fill(0xff);
    place.write("s.azo", &bytes);
    let ran = place.object(&["check", "s.azo"]);
    assert_eq!(ran.code, 8, "{ran:?}");
    let ran = place.object(&["repair", "s.azo"]);
    assert_eq!((ran.code, ran.err.as_str()), (8, ""), "{ran:?}");
    let said = ran.text();
    assert!(
        said.contains(&format!("in doubt: object {ID} at s.azo offset 0x"))
            && said.contains(": the parts of the index and of the lists of free space that state ")
            && said.contains("\nobjects in doubt may have been removed or replaced before: "),
        "{said}"
    );
}

/// A block device over a file, taken back when it is dropped.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        match made {
            Ok(made) if made.status.success() => Some(Self(
                String::from_utf8_lossy(&made.stdout).trim().to_owned(),
            )),
            _ => {
                notice("object stores on block devices are not tested: there are none to be had");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

#[test]
fn a_device_is_taken_whole_if_it_is_blank_or_by_force_and_grows_with_it() {
    let place = Place::new();
    place.write("disk", vec![0; 24 << 20]);
    let Some(device) = Loop::over(&place.path("disk")) else {
        return;
    };
    let disk = device.0.as_str();
    let error = place
        .object(&["create", disk, "--capacity", "16MiB"])
        .error(3);
    assert!(
        error.starts_with("invalid: the capacity of a device cannot be chosen at /dev/"),
        "{error}"
    );
    place.object(&["create", disk]).ok();
    place
        .object(&["put", disk, "ab", "--value", "on a disk"])
        .ok();
    assert_eq!(place.object(&["get", disk, "ab"]).ok(), "on a disk");
    let error = place.object(&["create", disk]).error(3);
    assert_eq!(
        error,
        format!(
            "invalid: the device is not blank at {disk} offset 0x0; choose another one, or lose what is on it: --force"
        )
    );
    assert_eq!(place.object(&["get", disk, "ab"]).ok(), "on a disk");

    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.path("disk"))
        .expect("the file is ours");
    file.set_len(32 << 20).expect("a longer file");
    let grown = Command::new("losetup")
        .args(["--set-capacity", disk])
        .status();
    assert!(grown.expect("it was there before").success());
    assert_eq!(
        place.object(&["grow", disk]).ok(),
        format!("{} B for values (28 MiB)\n", 28 << 20)
    );
    let verdict = place.object(&["check", disk]).ok();
    assert!(verdict.starts_with("sound: 1 object,"), "{verdict}");

    place
        .object(&["create", "s.azo", "--data", disk, "--force"])
        .ok();
    assert_eq!(place.read("s.azo").len(), 4 << 20);
    place
        .object(&["put", "s.azo", "--data", disk, "1", "--value", "x"])
        .ok();
    let error = place.object(&["get", disk, "ab"]).error(7);
    assert!(error.starts_with("mismatch: "), "{error}");
}
