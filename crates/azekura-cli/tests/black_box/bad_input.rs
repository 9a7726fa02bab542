//! Bad input of every kind: one line that states what is wrong, an exit code for scripts, and nothing
//! is lost: the file that was refused is byte for byte what it was.
//! What damage inside a file does is tested with `check` and `repair`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::program::{Place, lines, notice};

/// Commands that open an existing file, reading or writing.
const COMMANDS: [&[&str]; 10] = [
    &["get", "f", "k"],
    &["set", "f", "k", "v"],
    &["remove", "f", "k"],
    &["increment", "f", "k"],
    &["list", "f"],
    &["inspect", "f"],
    &["check", "f"],
    &["copy", "f", "copy"],
    &["rebuild", "f"],
    &["compact", "f"],
];

/// Every command refuses the file `f` that holds `bytes` with `code` and words, and leaves it alone.
fn refused(bytes: &[u8], code: i32, words: &str) {
    let place = Place::new();
    place.write("f", bytes);
    for command in COMMANDS {
        let error = place.run(command).error(code);
        assert!(
            error.contains(words) && error.contains(" at f"),
            "{command:?}: {error}"
        );
        assert_eq!(place.read("f"), bytes, "{command:?}");
        assert_eq!(place.names(), ["f"], "{command:?}");
    }
}

#[test]
fn an_empty_file_is_refused() {
    refused(b"", 7, "mismatch: the file is empty");
}

#[test]
fn files_of_other_programs_are_refused() {
    refused(
        b"just text, longer than a magic\n",
        7,
        "mismatch: not an azekura file",
    );
    let mut foreign = b"TkrzwHDB\n".to_vec();
    foreign.resize(20_000, 1);
    refused(&foreign, 7, "mismatch: not an azekura file");
    let mut sqlite = b"SQLite format 3\0".to_vec();
    sqlite.resize(8192, 0);
    refused(&sqlite, 7, "mismatch: not an azekura file");
}

#[test]
fn a_file_of_a_newer_version_is_refused() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "k", "v"]).ok();
    let mut bytes = place.read("s.azh");
    for slot in [0, 4096] {
        bytes[slot..slot + 8].copy_from_slice(b"azekura\n");
        bytes[slot + 12..slot + 14].copy_from_slice(&9_u16.to_le_bytes());
    }
    refused(&bytes, 7, "mismatch: the file has a newer format");
}

#[test]
fn a_missing_file_and_a_directory_are_refused() {
    let place = Place::new();
    for command in COMMANDS {
        let error = place.run(command).error(9);
        assert!(
            error.starts_with("io: ") && error.contains(" at f"),
            "{command:?}: {error}"
        );
        assert!(place.names().is_empty(), "{command:?} makes no file");
    }
    std::fs::create_dir(place.path("f")).expect("a directory");
    for command in COMMANDS {
        let error = place.run(command).error(7);
        let expected = "mismatch: not a regular file at f (found a directory, expected a file); ";
        assert!(error.starts_with(expected), "{command:?}: {error}");
        assert_eq!(place.names(), ["f"], "{command:?}");
    }
}

#[test]
fn a_file_without_permission_is_refused() {
    let place = Place::with_store();
    let forbid = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(place.path("s.azh"), forbid).expect("permissions are set");
    if std::fs::File::open(place.path("s.azh")).is_ok() {
        notice("a file without permission is not tested: the superuser may read any file");
        return;
    }
    let error = place.run(&["get", "s.azh", "k"]).error(9);
    assert!(error.contains(" at s.azh"), "{error}");
}

/// Holds the file as another process would: an import that waits for its input.
#[test]
fn a_file_that_another_process_writes_can_be_read_and_not_written() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "k", "v"]).ok();
    let mut holder = place
        .command(&["import", "--partial", "s.azh", "tsv"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Readers see its first batch: from then on it holds the file.
    let mut input = holder.stdin.take().expect("the pipe was asked for");
    let batch = lines(300, |n| format!("n{n}\tv\n"));
    input.write_all(batch.as_bytes()).expect("the holder reads");
    while place.run(&["get", "s.azh", "n0"]).code != 0 {
        let state = holder.try_wait().expect("a state");
        assert!(state.is_none(), "the holder ended too early: {state:?}");
    }
    let message = place.run(&["set", "s.azh", "k", "v"]).error(6);
    assert!(
        message.starts_with("locked: ") && message.contains("s.azh"),
        "{message}"
    );
    for command in [
        &["remove", "s.azh", "k"][..],
        &["compact", "s.azh"],
        &["rebuild", "s.azh"],
        &["import", "s.azh", "tsv", "s.azh"],
        &["merge", "s.azh", "s.azh"],
    ] {
        place.run(command).error(6);
    }
    assert_eq!(place.run(&["get", "s.azh", "k"]).ok(), "v\n");
    place.run(&["check", "s.azh"]).ok();
    place.run(&["copy", "s.azh", "copy.azh"]).ok();
    assert_eq!(place.run(&["get", "copy.azh", "k"]).ok(), "v\n");

    input
        .write_all(b"late\trecord\n")
        .expect("the holder reads");
    drop(input);
    let said = BufReader::new(holder.stdout.take().expect("the pipe was asked for"))
        .lines()
        .next();
    assert_eq!(said.expect("a line").expect("text"), "301 records stored");
    assert!(holder.wait().expect("the holder ends").success());
    assert_eq!(
        place.run(&["get", "s.azh", "k", "late"]).ok(),
        "k\tv\nlate\trecord\n"
    );
}

#[test]
fn keys_and_values_over_the_limit_are_refused_and_the_rest_stays() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "k", "v"]).ok();
    let figures = place.run(&["inspect", "--json", "s.azh"]).ok();
    let figures: serde_json::Value = serde_json::from_str(&figures).expect("one JSON object");
    let limit = |name: &str| figures[name].as_u64().expect("a limit");

    let key_len = usize::try_from(limit("key_len_max") + 1).expect("fits");
    place.write(
        "in",
        [&b"first\t1\n"[..], &vec![b'x'; key_len], b"\tvalue\n"].concat(),
    );
    let error = place.run(&["import", "s.azh", "tsv", "in"]).error(4);
    assert!(
        error.starts_with("too large: the key of line 2 is over the limit at in "),
        "{error}"
    );

    // A flat record announces its length, so that no value needs to be there.
    let mut head = b"\xff\x01k\xff".to_vec();
    let len = limit("value_len_max") + 1;
    let groups: Vec<u8> = (0..5)
        .rev()
        .map(|group| (len >> (7 * group)) as u8 | 0x80)
        .collect();
    head.extend(groups);
    *head.last_mut().expect("not empty") &= 0x7f;
    let error = place.run_with(&["import", "s.azh", "flat"], &head).error(4);
    assert!(
        error.starts_with("too large: the value of a flat record is over the"),
        "{error}"
    );
    assert_eq!(place.run(&["list", "s.azh"]).ok(), "k\tv\n");
}

#[test]
fn wrong_usage_is_told_from_wrong_input() {
    let place = Place::with_store();
    for arguments in [
        &[][..],
        &["no-such-command"],
        &["get", "s.azh"],
        &["list", "s.azh", "--items", "0"],
        &["create", "x.azh", "--segment-size", "12 parsecs"],
        &["create", "x.azh", "--compression", "rar"],
        &["export", "s.azh", "csv"],
        &["set", "s.azh", "a", "b", "--durability", "eternal"],
    ] {
        let ran = place.run(arguments);
        assert_eq!(
            (ran.code, ran.out.is_empty()),
            (2, true),
            "{arguments:?}: {ran:?}"
        );
        assert!(!ran.err.is_empty());
    }
    place
        .run(&["create", "x.azh", "--segment-size", "5000"])
        .error(3);
    place.run(&["get", "--raw", "s.azh", "a", "b"]).error(3);
    assert_eq!(place.names(), ["s.azh"]);
}

#[test]
fn places_where_nothing_can_be_made_or_read_are_named() {
    let place = Place::with_store();
    std::fs::create_dir(place.path("folder")).expect("a folder");
    for (command, words) in [
        (
            &["create", "none/x.azh"][..],
            "io: there is no folder to make the file in at none/x.azh: ",
        ),
        (
            &["copy", "s.azh", "none/x.azh"],
            "io: there is no folder to make the file in at none/x.azh: ",
        ),
        (
            &["create", "s.azh/x.azh"],
            "io: cannot make the file at s.azh/x.azh: ",
        ),
    ] {
        let error = place.run(command).error(9);
        assert!(error.starts_with(words), "{command:?}: {error}");
    }
    assert_eq!(place.names(), ["folder", "s.azh"]);
}

/// Some were errors of the system, and had no remedy.
#[test]
fn a_folder_in_place_of_a_file_is_invalid_whatever_the_file_is_for() {
    let place = Place::with_store();
    std::fs::create_dir(place.path("folder")).expect("a folder");
    let create = ["object", "create", "s.azo", "--capacity", "16MiB"];
    place.run(&create).ok();
    let put = ["object", "put", "s.azo", "1", "--value", "x"];
    place.run(&put).ok();
    for arguments in [
        "import s.azh tsv folder",
        "export s.azh tsv folder",
        "set s.azh k --value-file folder",
        "object put s.azo 1 folder",
        "object get s.azo 1 --output folder",
        "client --login folder version",
        "create folder",
        "import --create folder tsv s.azh",
        "copy s.azh folder",
        "object create folder --capacity 16MiB",
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let error = place.run(&arguments).error(3);
        assert!(
            error.starts_with("invalid: ") && error.contains(" at folder"),
            "{error}"
        );
        assert!(
            error.ends_with("; give the path of the file itself")
                || error.contains("; choose another name"),
            "{error}"
        );
    }
    assert_eq!(place.names(), ["folder", "s.azh", "s.azo"]);
}

#[test]
fn what_cannot_be_read_or_written_is_reported_with_what_to_do() {
    let place = Place::with_store();
    let read = "; check the path, and that you may read it";
    for (arguments, remedy) in [
        (&["import", "s.azh", "tsv", "none"][..], read),
        (&["set", "s.azh", "k", "--value-file", "none"], read),
        (&["tour", "none"], read),
        (&["client", "--login", "none", "version"], read),
        (
            &["export", "s.azh", "tsv", "s.azh/x"],
            "; name another target",
        ),
    ] {
        let error = place.run(arguments).error(9);
        assert!(error.ends_with(remedy), "{arguments:?}: {error}");
    }
}

/// They were taken for options.
#[test]
fn a_negative_number_is_a_value_and_where_it_must_not_be_one_the_error_is_about_it() {
    let place = Place::with_store();
    let run = |arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        place.run(&arguments)
    };
    run("set s.azh -5 -6.5").ok();
    assert_eq!(run("get s.azh -5").ok(), "-6.5\n");
    assert_eq!(run("increment s.azh n -5").ok(), "-5\n");
    assert_eq!(
        run("increment --float s.azh f -2e3 --initial -1").ok(),
        "-2001\n"
    );
    run("append s.azh -5 -7").ok();
    run("remove s.azh -5").ok();
    for (arguments, expected) in [
        (
            "list s.azh --items -1",
            "'-1' for '--items <COUNT>': expected a whole number that is not negative",
        ),
        (
            "search s.azh a --limit -1",
            "expected a whole number that is not negative",
        ),
        (
            "serve --threads -1",
            "'-1' for '--threads <N>': expected a whole number that is not negative",
        ),
        (
            "serve --threads 99999999999999999999",
            "expected a number of fewer digits",
        ),
        (
            "serve --threads 5s",
            "expected a whole number, without a unit",
        ),
        (
            "serve --operator here",
            "expected an IP address, without a port",
        ),
        (
            "client set k v --flags -1",
            "'-1' for '--flags <N>': expected a number from 0 to 4294967295",
        ),
        (
            "create x.azh --capacity -1",
            "`-1` is not a size: a number of bytes, or one with KiB",
        ),
        ("object get s.azo 1 --range -1..3", "`-1` is not a size"),
    ] {
        let ran = run(arguments);
        assert!(
            ran.code == 2 && ran.err.contains(expected),
            "{arguments}: {ran:?}"
        );
        assert!(!ran.err.contains("invalid digit"), "{ran:?}");
    }
    for (arguments, expected) in [
        (
            "increment s.azh n 1e3",
            "invalid: \"1e3\" is not a whole number of 64 bits; give one from -9223372036854775807 to 9223372036854775807; other numbers need --float",
        ),
        (
            "increment s.azh n 99999999999999999999",
            "invalid: \"99999999999999999999\" is not a whole number of 64 bits; ",
        ),
        ("object get s.azo -5", "invalid: "),
    ] {
        let error = run(arguments).error(3);
        assert!(error.starts_with(expected), "{arguments}: {error}");
    }
    // No server is contacted.
    let error = run("client --address 127.0.0.1:1 touch k -1").error(9);
    assert!(error.contains("cannot connect to 127.0.0.1:1"), "{error}");
}

#[test]
fn a_file_whose_beginning_is_gone_is_damaged_and_says_what_is_left_to_do() {
    let place = Place::with_store();
    let start = place.read("s.azh")[..100].to_vec();
    refused(&start, 8, "corrupted: the file is too short for a store");
    place.write("s.azh", &start);
    let error = place.run(&["repair", "s.azh", "new.azh"]).error(8);
    assert!(error.contains("; restore a backup"), "{error}");
    assert_eq!(place.names(), ["s.azh"]);
}

/// The first only printed the counter, and the bound of the others held for nothing.
#[test]
fn a_number_that_adds_nothing_and_a_bound_without_effect_are_refused() {
    let place = Place::with_store();
    place.run(&["increment", "s.azh", "n", "5"]).ok();
    let least = "-9223372036854775808";
    let error = place.run(&["increment", "s.azh", "n", least]).error(3);
    let expected = format!(
        "invalid: what to add is out of range (found {least}, expected -9223372036854775807 to 9223372036854775807)"
    );
    assert_eq!(error, expected);
    let sum = place.run(&["increment", "s.azh", "n", "-9223372036854775807"]);
    assert_eq!(sum.ok(), "-9223372036854775802\n");
    place
        .run(&["object", "create", "s.azo", "--capacity", "16MiB"])
        .ok();
    for change in [
        &["put", "s.azo", "1", "--value", "x"][..],
        &["remove", "s.azo", "1"],
        &["remove-range", "s.azo", "--first", "1"],
    ] {
        let ran = place.run(&[&["object"], change, &["--capacity", "4KiB"]].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("'--capacity'"), "{ran:?}");
    }
}

/// A closed standard input is no empty value; the null device is one.
#[test]
fn a_value_from_a_closed_standard_input_is_refused() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "k", "kept"]).ok();
    let set = ["set", "s.azh", "k", "--value-file", "-"];
    let error = place.run_redirected("<&-", &set).error(9);
    assert_eq!(
        error,
        "io: cannot read the value at -: standard input is closed; give the input by a pipe, or name a file (/dev/null for no bytes)"
    );
    let import = ["import", "s.azh", "tsv"];
    let error = place.run_redirected("<&-", &import).error(9);
    assert!(error.contains(": standard input is closed; "), "{error}");
    assert_eq!(place.run(&["get", "s.azh", "k"]).ok(), "kept\n");
    place.run_redirected("</dev/null", &import).ok();
    place.run_redirected("</dev/null", &set).ok();
    assert_eq!(place.run(&["get", "s.azh", "k"]).ok(), "\n");
}
