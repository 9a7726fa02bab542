//! Object stores that are not made, or not opened: ids, sizes, rates and paths that are wrong, and files that are no object store
//! or were cut. Each is refused with one line that names what is wrong and what helps, and nothing is changed.
//! Refusals of single objects are with what works, in `objects.rs`.

use crate::program::Place;

#[test]
fn what_is_no_id_or_does_not_pair_up_is_refused_before_the_store_is_opened() {
    let place = Place::new();
    let no_id =
        "invalid: malformed object id (found \"0xyz\", expected 1 to 32 hexadecimal digits)";
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
    place.write("other", "text of the user");
    for (arguments, code, words) in [
        ("s.azo --capacity 48MiB", 3, "the target exists at s.azo"),
        ("other --capacity 48MiB", 3, "the target exists at other"),
        (
            "new.azo --capacity 48MiB --data other",
            3,
            "the target exists at other",
        ),
        (
            "new.azo --capacity 48MiB --data new.azo",
            3,
            "journal and values need two places at new.azo",
        ),
        ("new.azo", 3, "a new file needs a capacity at new.azo"),
        (
            "new.azo --capacity 1MiB",
            3,
            "the journal does not fit at new.azo",
        ),
        (
            "new.azo --capacity 4MiB",
            3,
            "the store is too small at new.azo",
        ),
        (
            "new.azo --capacity 48MiB --journal-size 64KiB",
            3,
            "the journal is too small at new.azo",
        ),
        (
            "new.azo --capacity 48MiB --group-size 3MiB",
            3,
            "a group is a power of two at new.azo (found 3 MiB, 3145728 bytes, expected ",
        ),
        (
            "new.azo --capacity 400MiB --journal-size 144KiB --group-size 128KiB",
            3,
            "the journal is too small for so many groups at new.azo (found 144 KiB, and 3199 groups of 128 KiB, expected ",
        ),
        (
            "/dev/null --capacity 48MiB",
            3,
            "no store can be made there at /dev/null (found a character device, expected a new name or a block device)",
        ),
        (
            ". --capacity 48MiB",
            3,
            "no store can be made there at . (found a folder, ",
        ),
        ("new.azo --capacity 3000000TiB", 5, " at new.azo"),
        ("missing/new.azo --capacity 48MiB", 9, " at missing/new.azo"),
    ] {
        let command: Vec<&str> = std::iter::once("create")
            .chain(arguments.split(' '))
            .collect();
        let error = place.object(&command).error(code);
        assert!(error.contains(words), "{arguments}: {error}");
        assert_eq!(place.names(), ["other", "s.azo"], "{arguments}");
    }
    assert!(place.read("s.azo") == before);
    assert_eq!(place.read("other"), b"text of the user");
}

#[test]
fn what_is_too_small_or_forgotten_is_refused_with_a_remedy() {
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

/// It was locked, by this process.
#[test]
fn one_file_is_not_journal_and_values() {
    let place = Place::new();
    let create = |store: &[&str]| {
        let size = ["--capacity", "16MiB"];
        place.object(&[&["create"], store, &size].concat()).ok();
    };
    create(&["one"]);
    create(&["two", "--data", "data"]);
    std::fs::hard_link(place.path("two"), place.path("link")).expect("a file of ours");
    let before = ["one", "two"].map(|name| place.read(name));
    for store in [
        ["one", "one"],
        ["two", "two"],
        ["two", "link"],
        ["one", "./one"],
    ] {
        let [path, data] = store;
        for arguments in [
            &["put", path, "1", "--value", "x"][..],
            &["list", path],
            &["remove-range", "--all", path],
            &["repair", path],
        ] {
            let error = place.object(&[arguments, &["--data", data]].concat());
            let expected = format!(
                "invalid: journal and values need two places at {path}; leave --data out, or give the other file or device of the \
                 store"
            );
            assert_eq!(error.error(3), expected, "{arguments:?}");
        }
    }
    assert!(["one", "two"].map(|name| place.read(name)) == before);
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
fn a_store_whose_file_was_cut_is_refused_and_the_error_states_what_is_missing() {
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
         restore a backup: what is cut off stated where everything is"
    );
    file.set_len(48 << 20).expect("a file is made longer");
    assert_eq!(place.object(&["get", "s.azo", "1"]).ok(), "x");
}
