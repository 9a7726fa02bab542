//! Object stores: made, filled, looked at, emptied; values from files, pipes and arguments; what is wrong is one line that
//! names the device and, where there is one, the object, with an exit code for scripts.
//! Checks, repairs and copies of them have their own tests.

use azekura::object::{ObjectId, OpenOptions, Store};

use crate::program::{Place, Ran, lines};

const ID: &str = "000000000000000000000000000000ab";

impl Place {
    /// A place with an empty object store, `s.azo`.
    pub(crate) fn with_objects() -> Self {
        let place = Self::new();
        place
            .object(&["create", "s.azo", "--capacity", "48MiB"])
            .ok();
        place
    }

    /// Runs `azekura object` with `arguments`.
    pub(crate) fn object(&self, arguments: &[&str]) -> Ran {
        self.run(&[&["object"], arguments].concat())
    }
}

/// Bytes that no file system makes smaller, different for each `seed`.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 32) as u8
    };
    (0..len).map(|_| next(&mut state)).collect()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn what_is_put_from_a_file_a_pipe_or_the_command_line_is_got_as_it_was() {
    let place = Place::with_objects();
    let values = [
        bytes(300_000, 1),
        bytes(65_536, 2),
        Vec::new(),
        b"told\n\xff".to_vec(),
    ];
    place.write("file", &values[0]);
    place.write("empty", &values[2]);
    place.object(&["put", "s.azo", "1", "file"]).ok();
    place
        .run_with(&["object", "put", "s.azo", "2", "-"], &values[1])
        .ok();
    place.object(&["put", "s.azo", "3", "empty"]).ok();
    place
        .object(&["put", "s.azo", "AB", "--value", "-told"])
        .ok();
    for (id, value) in ["1", "2", "3"].iter().zip(&values) {
        let ran = place.object(&["get", "s.azo", id]);
        assert!(ran.code == 0 && ran.out == *value, "{id}");
        place.object(&["get", "s.azo", id, "--output", "out"]).ok();
        assert!(place.read("out") == *value, "{id}");
    }
    assert_eq!(place.object(&["get", "s.azo", ID]).ok(), "-told");
    place.object(&["put", "s.azo", "ab", "--value", ""]).ok();
    assert_eq!(place.object(&["get", "s.azo", "ab"]).ok(), "");
    assert_eq!(
        place.object(&["list", "s.azo"]).ok(),
        format!(
            "{:032}\t300000\n{:032}\t65536\n{:032}\t0\n{ID}\t0\n",
            1, 2, 3
        )
    );
}

#[test]
fn a_part_of_an_object_is_got_and_one_beyond_its_end_is_refused() {
    let place = Place::with_objects();
    let value = bytes(200_000, 3);
    place.write("file", &value);
    place.object(&["put", "s.azo", "ab", "file"]).ok();
    for (range, wanted) in [
        ("0..1", 0..1),
        ("65535..131073", 65_535..131_073),
        ("128KiB..", 131_072..200_000),
        ("..100", 0..100),
        ("200000..", 200_000..200_000),
        ("7..7", 7..7),
    ] {
        let ran = place.object(&["get", "s.azo", "ab", "--range", range]);
        assert!(
            ran.code == 0 && ran.out == value[wanted],
            "{range}: {}",
            ran.err
        );
    }
    for range in ["0..200001", "200001..", "300000..400000"] {
        let error = place
            .object(&["get", "s.azo", "ab", "--range", range])
            .error(3);
        assert!(
            error.starts_with(&format!(
                "invalid: object {ID} ends before the range does at s.azo (found "
            )) && error.ends_with("expected no more than 0..200000)"),
            "{error}"
        );
    }
    let ran = place.object(&["get", "s.azo", "ab", "--range", "0..=3"]);
    assert!(
        ran.code == 2 && ran.err.contains("0..4 for 0..=3"),
        "{}",
        ran.err
    );
    for range in ["5..4", "x..", "9"] {
        let ran = place.object(&["get", "s.azo", "ab", "--range", range]);
        assert_eq!(ran.code, 2, "{range}");
    }
}

#[test]
fn an_object_that_is_not_there_makes_the_answer_no() {
    let place = Place::with_objects();
    place.object(&["put", "s.azo", "1", "--value", "x"]).ok();
    let absent = format!("azekura: absent: {ID}\n");
    for command in [
        &["get", "s.azo", "ab"][..],
        &["get", "s.azo", "ab", "--output", "out"],
        &["get", "s.azo", "ab", "--range", "1..2"],
        &["head", "s.azo", "ab"],
        &["remove", "s.azo", "ab"],
        &["put", "s.azo", "ab", "--value", "x", "--expect", "9"],
    ] {
        let ran = place.object(command);
        assert_eq!(ran.err, absent, "{command:?}");
        assert_eq!(ran.no(), "", "{command:?}");
    }
    let ran = place.object(&["remove-range", "s.azo", "--first", "2"]);
    assert_eq!(ran.no(), "0 objects removed\n");
    assert_eq!(place.names(), ["s.azo"]);
    let ran = place.object(&["head", "s.azo", "ab", "1"]);
    assert_eq!(ran.err, absent);
    assert_eq!(ran.no(), format!("{:032}\t1\n", 1));
}

#[test]
fn several_puts_are_one_change_and_conditions_hold_one_back() {
    let place = Place::with_objects();
    place.write("file", "from a file");
    place
        .run_with(&["object", "put", "s.azo", "1", "file", "2", "-"], b"piped")
        .ok();
    let error = place
        .object(&["put", "s.azo", "3", "file", "4", "missing"])
        .error(9);
    assert!(
        error.starts_with("io: cannot read the value at missing"),
        "{error}"
    );
    assert_eq!(
        place.object(&["list", "s.azo"]).ok(),
        format!("{:032}\t11\n{:032}\t5\n", 1, 2)
    );

    let text = place
        .object(&["head", "s.azo", "1", "--sequence", "--json"])
        .ok();
    let sequence = json(&text)["sequence"].as_u64().expect("a number");
    let expect = |sequence: u64| {
        let sequence = sequence.to_string();
        place.object(&["put", "s.azo", "1", "--value", "new", "--expect", &sequence])
    };
    let present = format!(
        "azekura: present already: {:032} of sequence {sequence}\n",
        1
    );
    let ran = expect(sequence + 1);
    let other = format!(
        "azekura: another sequence: {:032} (found {sequence}, expected {})\n",
        1,
        sequence + 1
    );
    assert_eq!(ran.err, other);
    ran.no();
    let ran = place.object(&["put", "s.azo", "1", "--value", "new", "--no-overwrite"]);
    assert_eq!(ran.err, present);
    ran.no();
    assert_eq!(place.object(&["get", "s.azo", "1"]).ok(), "from a file");
    expect(sequence).ok();
    assert_eq!(place.object(&["get", "s.azo", "1"]).ok(), "new");
    place
        .object(&["put", "s.azo", "9", "--value", "new", "--no-overwrite"])
        .ok();
}

#[test]
fn lists_and_sums_go_by_ranges_of_ids() {
    let place = Place::with_objects();
    place.write("v", bytes(5000, 4));
    let pairs: Vec<String> = (1..=30)
        .flat_map(|id| [format!("{id:x}"), "v".to_owned()])
        .collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    place.object(&[&["put", "s.azo"], &pairs[..]].concat()).ok();
    let listed = |ids: std::ops::Range<u32>| {
        lines(ids.end - ids.start, |n| {
            format!("{:032x}\t5000\n", ids.start + n)
        })
    };
    assert_eq!(place.object(&["list", "s.azo"]).ok(), listed(1..31));
    let part = ["list", "s.azo", "--first", "a", "--end", "14"];
    assert_eq!(place.object(&part).ok(), listed(10..20));
    let ran = place.object(&[&part[..], &["--limit", "4"]].concat());
    assert_eq!(ran.err, format!("azekura: more with --first {:032x}\n", 14));
    assert_eq!(ran.text(), listed(10..14));
    let text = place
        .object(&["list", "s.azo", "--json", "--limit", "30", "--first", "1e"])
        .ok();
    assert_eq!(
        json(&text),
        serde_json::json!({"id": format!("{:032x}", 30), "len": 5000})
    );
    let text = place
        .object(&["usage", "s.azo", "--first", "a", "--end", "14", "--json"])
        .ok();
    assert_eq!(
        json(&text),
        serde_json::json!({"count": 10, "bytes": 50_000, "device_bytes": 81_920})
    );
    let table = place.object(&["usage", "s.azo"]).ok();
    assert_eq!(
        table,
        "count         30\nbytes         150000 (146.5 KiB)\ndevice_bytes  245760 (240 KiB)\n"
    );
    assert_eq!(
        place
            .object(&["list", "s.azo", "--first", "2", "--end", "1"])
            .error(3),
        format!(
            "invalid: the range of ids ends before it begins (found --first {:032}, --end {:032}, \
             expected them in order)",
            2, 1
        )
    );
}

#[test]
fn objects_are_removed_one_by_one_by_ranges_and_all_at_once() {
    let place = Place::with_objects();
    for id in ["1", "2", "3", "4", "5", "6"] {
        place.object(&["put", "s.azo", id, "--value", "x"]).ok();
    }
    place.object(&["remove", "s.azo", "1"]).ok();
    let ran = place.object(&["remove", "s.azo", "2", "ab", "3", "2"]);
    assert_eq!(ran.err, format!("azekura: absent: {ID}\n"));
    ran.no();
    let range = ["remove-range", "s.azo", "--first", "4", "--end", "5"];
    assert_eq!(place.object(&range).ok(), "1 object removed\n");
    assert_eq!(
        place.object(&["list", "s.azo"]).ok(),
        format!("{:032}\t1\n{:032}\t1\n", 5, 6)
    );
    let error = place.object(&["remove-range", "s.azo"]).error(3);
    assert!(
        error.ends_with("; give --first, --end or both, or --all"),
        "{error}"
    );
    let all = ["remove-range", "s.azo", "--all", "--durability", "process"];
    assert_eq!(place.object(&all).ok(), "2 objects removed\n");
    assert_eq!(place.object(&["list", "s.azo"]).ok(), "");
}

#[test]
fn values_over_the_limit_and_full_stores_are_refused_and_the_rest_stays() {
    let place = Place::new();
    let create = [
        "create",
        "s.azo",
        "--capacity",
        "6MiB",
        "--journal-size",
        "4MiB",
    ];
    place
        .object(&[&create[..], &["--group-size", "1MiB"]].concat())
        .ok();
    place.write("long", vec![7; 1 << 20]);
    place.write("fits", vec![7; 700 << 10]);
    place.object(&["put", "s.azo", "1", "--value", "x"]).ok();
    for (command, input) in [
        (&["object", "put", "s.azo", "ab", "long"][..], &b""[..]),
        (&["object", "put", "s.azo", "ab", "-"], &vec![7; 1 << 20]),
    ] {
        let error = place.run_with(command, input).error(4);
        assert!(
            error.starts_with(&format!(
                "too large: object {ID} exceeds the limit at s.azo (found 1 MiB, expected at most "
            )) && error.ends_with("or make a store with larger groups: --group-size"),
            "{error}"
        );
    }
    let mut stored = 0;
    let error = loop {
        let ran = place.object(&["put", "s.azo", &format!("{:x}", stored + 2), "fits"]);
        if ran.code != 0 {
            break ran.error(5);
        }
        stored += 1;
    };
    assert!(stored > 0, "{error}");
    assert!(
        error.starts_with(&format!(
            "full: no contiguous space for object {:032x} at s.azo (found ",
            stored + 2
        )) && error.contains(" free, longest run ")
            && error.ends_with(", expected 704 KiB contiguous); remove objects, or grow the store"),
        "{error}"
    );
    let list = place.object(&["list", "s.azo"]).ok();
    assert_eq!(list.lines().count(), stored + 1, "{list}");
    // A full store gives room back.
    place.object(&["remove", "s.azo", "2"]).ok();
    place.object(&["put", "s.azo", "2", "fits"]).ok();
}

#[test]
fn damage_in_a_value_is_an_error_that_names_place_and_object() {
    let place = Place::with_objects();
    let value = bytes(200_000, 5);
    place.write("file", &value);
    place.object(&["put", "s.azo", "ab", "file"]).ok();
    place
        .object(&["put", "s.azo", "1", "--value", "whole"])
        .ok();
    let mut store = place.read("s.azo");
    let wanted = &value[100_000..100_064];
    let at = store
        .windows(wanted.len())
        .position(|window| window == wanted)
        .expect("values are stored as they are");
    store[at] ^= 1;
    place.write("s.azo", &store);
    for command in [
        &["get", "s.azo", "ab"][..],
        &["get", "s.azo", "ab", "--output", "out"],
        &["get", "s.azo", "ab", "--range", "100000..100001"],
    ] {
        let error = place.object(command).error(8);
        assert!(
            error.starts_with(&format!(
                "corrupted: object {ID} does not verify at s.azo offset 0x"
            )),
            "{error}"
        );
    }
    assert!(!place.names().contains(&"out".to_owned()));
    assert_eq!(place.object(&["get", "s.azo", "1"]).ok(), "whole");
    let ran = place.object(&["get", "s.azo", "ab", "--range", "0..100"]);
    assert!(
        ran.code == 0 && ran.out == value[..100],
        "other chunks are whole"
    );
}

#[test]
fn a_value_goes_to_a_file_whole_and_never_over_a_store() {
    let place = Place::with_objects();
    place.object(&["put", "s.azo", "1", "--value", "x"]).ok();
    place.write("out", "what was there, and is longer");
    place.object(&["get", "s.azo", "1", "-o", "out"]).ok();
    assert_eq!(place.read("out"), b"x");
    for (target, code, words) in [
        ("s.azo", 3, "invalid: the target is a store at s.azo"),
        (
            "missing/out",
            9,
            "io: there is no folder to make the file in at missing/out",
        ),
    ] {
        let error = place
            .object(&["get", "s.azo", "1", "-o", target])
            .error(code);
        assert!(error.starts_with(words), "{error}");
    }
    assert_eq!(place.object(&["get", "s.azo", "1"]).ok(), "x");
}

#[test]
fn journal_and_values_may_be_apart_and_belong_together() {
    let place = Place::new();
    for name in ["a", "b"] {
        let data = format!("{name}.data");
        place
            .object(&[
                "create",
                name,
                "--data",
                &data,
                "--capacity",
                "16MiB",
                "--fill",
            ])
            .ok();
        place
            .object(&["put", name, "--data", &data, "1", "--value", name])
            .ok();
    }
    assert_eq!(place.names(), ["a", "a.data", "b", "b.data"]);
    assert_eq!(
        place.object(&["get", "a", "1", "--data", "a.data"]).ok(),
        "a"
    );
    for (command, words) in [
        (
            &["get", "a", "1", "--data", "b.data"][..],
            "mismatch: the data belongs to another store at b.data",
        ),
        (
            &["get", "a", "1"],
            "mismatch: the store has a different number of devices at a ",
        ),
        (
            &["get", "a.data", "1"],
            "mismatch: the file belongs to another engine at a.data",
        ),
        (&["get", "a.data", "1", "--data", "a"], "mismatch: "),
    ] {
        let error = place.object(command).error(7);
        assert!(error.starts_with(words), "{command:?}: {error}");
    }
    place
        .object(&["get", "a", "1", "--data", "missing"])
        .error(9);
}

/// Holds the store, as another program would.
fn held(place: &Place) -> Store {
    let options = OpenOptions::new().background(false);
    Store::open(place.path("s.azo"), &options).expect("nobody has it open")
}

#[test]
fn a_store_that_another_process_has_open_is_locked() {
    let place = Place::with_objects();
    let holder = held(&place);
    let refused = place.object(&["list", "s.azo"]).error(6);
    assert!(
        refused.starts_with("locked: ") && refused.contains(" at s.azo"),
        "{refused}"
    );
    // The error of a writer has a remedy: an object store that is open is not read either.
    for command in [
        &["put", "s.azo", "2", "--value", "x"][..],
        &["repair", "s.azo"],
    ] {
        let refused = place.object(command).error(6);
        let remedy = " at s.azo; ask the program that has it open, or stop it";
        assert!(refused.ends_with(remedy), "{command:?}: {refused}");
    }
    holder.put(ObjectId(1), b"").expect("room");
    holder.close().expect("a close");
    assert_eq!(place.object(&["get", "s.azo", "1"]).ok(), "");
}

/// The put had the store open while it waited for its value: the get was refused as locked.
#[test]
fn an_object_goes_through_a_pipe_to_another_store_and_within_one() {
    let place = Place::with_objects();
    place
        .object(&["create", "t.azo", "--capacity", "48MiB"])
        .ok();
    let value = bytes(700_000, 8);
    place.write("file", &value);
    place.object(&["put", "s.azo", "1", "file"]).ok();
    for store in ["s.azo", "t.azo"] {
        let program = env!("CARGO_BIN_EXE_azekura");
        let line =
            format!("{program} object get s.azo 1 | {program} object put {store} 2 - && echo done");
        let ran = std::process::Command::new("sh")
            .args(["-c", &line])
            .current_dir(place.path("."))
            .output()
            .expect("a shell");
        assert_eq!(
            (&ran.stdout[..], &ran.stderr[..]),
            (&b"done\n"[..], &b""[..])
        );
        place.object(&["get", store, "2", "-o", "out"]).ok();
        assert!(place.read("out") == value, "{store}");
    }
    // A missing object is reported before anything is read.
    let error = place.object(&["put", "missing", "1", "nowhere"]).error(9);
    assert!(
        error.ends_with("make the store with `azekura object create`"),
        "{error}"
    );
}

#[test]
fn commands_that_only_look_change_no_byte_of_a_store_that_was_killed() {
    let place = Place::with_objects();
    place.write("file", bytes(100_000, 1));
    place
        .object(&["put", "s.azo", "1", "file", "2", "file"])
        .ok();
    let holder = held(&place);
    holder
        .put(ObjectId(3), b"not in a checkpoint")
        .expect("room");
    let before = place.read("s.azo");
    holder.close().expect("a close");
    // As its death would have left it.
    place.write("s.azo", &before);
    for command in [
        &["get", "s.azo", "1", "--output", "same"][..],
        &["head", "s.azo", "1", "2"],
        &["list", "s.azo"],
        &["usage", "s.azo"],
        &["stats", "s.azo"],
        &["journal", "s.azo"],
        &["check", "s.azo"],
        &["scrub", "s.azo"],
    ] {
        place.object(command).ok();
        assert!(place.read("s.azo") == before, "{command:?}");
    }
    assert_eq!(place.read("same"), bytes(100_000, 1));
    place.object(&["remove", "s.azo", "1"]).ok();
    assert!(place.read("s.azo") != before);
}
