//! Object stores: made, filled, looked at, emptied; values from files, pipes and arguments; what is wrong is one line that
//! names the device and, where there is one, the object, with an exit code for scripts.
//! Checks, repairs and copies of them have their own tests.

use azekura::object::{ObjectId, Options, Store};

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
            "full: no room for object {:032x} in one piece at s.azo (found ",
            stored + 2
        )) && error.contains(" free in all, ")
            && error.ends_with(
                " of it in a row, expected 704 KiB in a row); remove objects, or grow the store"
            ),
        "{error}"
    );
    let list = place.object(&["list", "s.azo"]).ok();
    assert_eq!(list.lines().count(), stored + 1, "{list}");
    // A full store gives room back.
    place.object(&["remove", "s.azo", "2"]).ok();
    place.object(&["put", "s.azo", "2", "fits"]).ok();
}

#[test]
fn what_is_no_id_or_does_not_pair_up_is_refused_before_the_store_is_opened() {
    let place = Place::new();
    let no_id =
        "invalid: this is no object id (found \"0xyz\", expected 1 to 32 hexadecimal digits)";
    for command in [
        &["get", "s.azo", "0xyz"][..],
        &["put", "s.azo", "0xyz", "--value", "x"],
        &["head", "s.azo", "1", "0xyz"],
        &["remove", "s.azo", "0xyz"],
        &["list", "s.azo", "--first", "0xyz"],
        &["usage", "s.azo", "--end", "0xyz"],
        &["remove-range", "s.azo", "--end", "0xyz"],
    ] {
        assert_eq!(place.object(command).error(3), no_id, "{command:?}");
    }
    for command in [
        &["put", "s.azo", "1"][..],
        &["put", "s.azo", "1", "a", "2"],
        &["put", "s.azo", "1", "a", "--value", "x"],
        &["put", "s.azo", "1", "-", "2", "-"],
        &["put", "s.azo", "1", "a", "2", "b", "--no-overwrite"],
    ] {
        place.object(command).error(3);
    }
    for command in [
        &[][..],
        &["get", "s.azo"],
        &[
            "put",
            "s.azo",
            "1",
            "--value",
            "x",
            "--durability",
            "eternal",
        ],
        &["put", "s.azo", "1", "a", "--no-overwrite", "--expect", "3"],
        &["remove-range", "s.azo", "--all", "--first", "1"],
        &["create", "s.azo", "--capacity", "10 parsecs"],
        &["list", "s.azo", "--limit", "0"],
    ] {
        assert_eq!(place.object(command).code, 2, "{command:?}");
    }
    assert!(place.names().is_empty());
}

#[test]
fn a_store_that_cannot_be_made_leaves_nothing() {
    let place = Place::with_objects();
    let before = place.read("s.azo");
    place.write("other", "somebody's own");
    for (arguments, code, words) in [
        (
            &["s.azo", "--capacity", "48MiB"][..],
            3,
            "the target exists at s.azo",
        ),
        (
            &["other", "--capacity", "48MiB"],
            3,
            "the target exists at other",
        ),
        (
            &["new.azo", "--capacity", "48MiB", "--data", "other"],
            3,
            "the target exists at other",
        ),
        (
            &["new.azo", "--capacity", "48MiB", "--data", "new.azo"],
            3,
            "journal and values need two places at new.azo",
        ),
        (&["new.azo"], 3, "a new file needs a capacity at new.azo"),
        (
            &["new.azo", "--capacity", "1MiB"],
            3,
            "the journal does not fit at new.azo",
        ),
        (
            &["new.azo", "--capacity", "4MiB"],
            3,
            "the store is too small at new.azo",
        ),
        (
            &["new.azo", "--capacity", "48MiB", "--journal-size", "64KiB"],
            3,
            "the journal is too small at new.azo",
        ),
        (
            &["new.azo", "--capacity", "48MiB", "--group-size", "3MiB"],
            3,
            "a group is a power of two at new.azo (found 3 MiB, 3145728 bytes, expected ",
        ),
        (
            &[
                "new.azo",
                "--capacity",
                "400MiB",
                "--journal-size",
                "144KiB",
                "--group-size",
                "128KiB",
            ],
            3,
            "the journal is too small for so many groups at new.azo (found 144 KiB, and 3199 groups of 128 KiB, expected ",
        ),
        (
            &["/dev/null", "--capacity", "48MiB"],
            3,
            "no store can be made there at /dev/null (found a character device, expected a new name or a block device)",
        ),
        (
            &[".", "--capacity", "48MiB"],
            3,
            "no store can be made there at . (found a folder, ",
        ),
        (&["new.azo", "--capacity", "3000000TiB"], 5, " at new.azo"),
        (
            &["missing/new.azo", "--capacity", "48MiB"],
            9,
            " at missing/new.azo",
        ),
    ] {
        let error = place.object(&[&["create"], arguments].concat()).error(code);
        assert!(error.contains(words), "{arguments:?}: {error}");
        assert_eq!(place.names(), ["other", "s.azo"], "{arguments:?}");
    }
    assert!(place.read("s.azo") == before);
    assert_eq!(place.read("other"), b"somebody's own");
}

#[test]
fn what_is_too_small_or_forgotten_is_told_with_what_helps() {
    let place = Place::new();
    let smaller = "or its journal smaller: --journal-size";
    let (no_journal, no_room) = (
        format!("(found 4 MiB, expected 1 MiB); make the store larger, {smaller}, 144 KiB or more"),
        format!("or more); make it larger, {smaller}"),
    );
    for (arguments, ends) in [
        (&["--capacity", "1MiB"][..], &no_journal[..]),
        (&["--capacity", "4MiB"], &no_room),
        (
            &["--capacity", "48MiB", "--journal-size", "64KiB"],
            "expected 144 KiB or more); make it larger: --journal-size",
        ),
        (
            &[
                "--capacity",
                "48MiB",
                "--journal-size",
                "18446744073709551615",
            ],
            "; make the store larger, or its journal smaller: --journal-size, 144 KiB or more",
        ),
    ] {
        let error = place.object(&[&["create", "new"], arguments].concat());
        let error = error.error(3);
        assert!(error.ends_with(ends), "{arguments:?}: {error}");
        assert!(place.names().is_empty());
    }
    let small = ["--capacity", "1MiB", "--journal-size", "144KiB"];
    let one = [&["create", "one"][..], &small].concat();
    place.object(&one).ok();
    place
        .object(&["create", "two", "--data", "data", "--capacity", "8MiB"])
        .ok();
    place.write("empty", "");
    let first = "; it is a store, or the journal of one: give it first, and no other, or its data with --data";
    for (arguments, ends) in [
        (
            &["two"][..],
            " at two (found 1, expected 2); give the device of its data, too: --data",
        ),
        (
            &["one", "--data", "data"],
            " at one (found 2, expected 1); leave the other device out: no --data",
        ),
        (
            &["data", "--data", "two"],
            "; it is the data of a store: give the store's journal first, and this with --data",
        ),
        (&["two", "--data", "one"], first),
        (
            &["empty"],
            " at empty; remove it, and make a store there with `azekura object create`",
        ),
    ] {
        let error = place.object(&[&["list"], arguments].concat()).error(7);
        assert!(error.ends_with(ends), "{arguments:?}: {error}");
    }
    for (arguments, ends) in [
        (&["two"][..], "; give both devices: --data"),
        (
            &["one", "--data", "data"],
            "; leave the other one out: no --data",
        ),
    ] {
        let error = place.object(&[&["repair"], arguments].concat()).error(7);
        assert!(error.ends_with(ends), "{arguments:?}: {error}");
    }
}

#[test]
fn a_rate_of_nothing_and_small_values_that_are_not_are_refused() {
    let place = Place::with_objects();
    let refused = |arguments: &[&str], words: &str| {
        let ran = place.object(arguments);
        assert!(ran.code == 2 && ran.err.contains(words), "{ran:?}");
    };
    refused(
        &["scrub", "s.azo", "--rate", "0"],
        "a rate is more than nothing",
    );
    let put = ["put", "s.azo", "1", "--value", "x", "--small-max"];
    for size in ["1MiB", "64KiB", "65465"] {
        refused(&[&put[..], &[size]].concat(), "at most 65464 B");
    }
    assert_eq!(place.object(&["list", "s.azo"]).ok(), "");
    place.object(&[&put[..], &["65464"]].concat()).ok();
    place.object(&["scrub", "s.azo", "--rate", "1MiB"]).ok();
}

#[test]
fn files_that_are_no_object_store_are_refused_and_left_alone() {
    let place = Place::with_store();
    place.write("text", "just text, longer than a magic\n");
    place.write("empty", "");
    place
        .object(&["create", "newer.azo", "--capacity", "8MiB"])
        .ok();
    let mut newer = place.read("newer.azo");
    for slot in [0, 4096] {
        newer[slot..slot + 8].copy_from_slice(b"azekura\n");
        newer[slot + 12..slot + 14].copy_from_slice(&9_u16.to_le_bytes());
    }
    place.write("newer.azo", &newer);
    for (file, words) in [
        ("text", "mismatch: not an azekura file at text"),
        ("empty", "mismatch: the file is empty at empty"),
        (
            "s.azh",
            "mismatch: the file belongs to another engine at s.azh",
        ),
        (
            "newer.azo",
            "mismatch: the file has a newer format at newer.azo",
        ),
    ] {
        let before = place.read(file);
        let remedied = place.object(&["list", file]).error(7).contains("; ");
        assert!(remedied, "{file}");
        for command in [
            &["get", file, "1"][..],
            &["put", file, "1", "--value", "x"],
            &["head", file, "1"],
            &["remove", file, "1"],
            &["remove-range", file, "--all"],
            &["list", file],
            &["usage", file],
        ] {
            let error = place.object(command).error(7);
            assert!(error.starts_with(words), "{command:?}: {error}");
        }
        assert!(place.read(file) == before, "{file}");
    }
    let error = place.object(&["list", "missing"]).error(9);
    assert!(
        error.starts_with("io: there is no such file at missing")
            && error.ends_with("make the store with `azekura object create`"),
        "{error}"
    );
    // Nor are records looked for among objects.
    place
        .object(&["create", "o.azo", "--capacity", "8MiB"])
        .ok();
    let error = place.run(&["get", "o.azo", "k"]).error(7);
    assert!(
        error.starts_with("mismatch: the file belongs to another engine at o.azo"),
        "{error}"
    );
}

#[test]
fn a_store_whose_file_was_cut_is_refused_and_told_what_is_missing() {
    let place = Place::with_objects();
    place.object(&["put", "s.azo", "1", "--value", "x"]).ok();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.path("s.azo"))
        .expect("the file is ours");
    file.set_len(40 << 20).expect("a file is cut");
    let error = place.object(&["get", "s.azo", "1"]).error(8);
    assert_eq!(
        error,
        "corrupted: the device is shorter than the store at s.azo (found 40 MiB, expected 48 MiB); \
         restore its size, or run `azekura object repair`"
    );
    place.write("short", &place.read("s.azo")[..100]);
    assert_eq!(
        place.object(&["get", "short", "1"]).error(8),
        "corrupted: the file is too short for a store at short (found 100 bytes, expected 8192 or more); \
         restore a backup: what is cut off told where everything is"
    );
    file.set_len(48 << 20).expect("a file is made longer");
    assert_eq!(place.object(&["get", "s.azo", "1"]).ok(), "x");
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
            "mismatch: the store has another number of devices at a ",
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
    let options = Options {
        background: false,
        ..Options::default()
    };
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
    // Who would write is told what helps: an object store that is open is not read either.
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
    // What is not there is told before anything is read.
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
