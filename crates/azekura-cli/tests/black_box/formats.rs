//! Records leave and come back: every format, any bytes, and Tkrzw's own tool at the other end.
//! A broken line is one error with its place, and nothing of the input was stored.
//! The details of each format are tested next to its code.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::process::Command;

use crate::program::{Place, lines, notice};

const FORMATS: [&str; 3] = ["tsv", "flat", "jsonl"];

/// A store with awkward records; returns its list in the order of the lines.
fn fill(place: &Place) -> Vec<String> {
    let mut arguments = vec!["set".to_string(), "--hex".into(), "s.azh".into()];
    for byte in 0..=255 {
        arguments.extend([format!("6b{byte:02x}"), format!("{byte:02x}5c22{byte:02x}")]);
    }
    arguments.extend([String::new(), "00".into(), "e6a0a1".into(), String::new()]);
    place.run(&arguments).ok();
    list(place, "s.azh")
}

fn list(place: &Place, file: &str) -> Vec<String> {
    let text = place.run(&["list", "--hex", file]).ok();
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn any_records_come_back_from_every_format_by_file_and_by_pipe() {
    let place = Place::with_store();
    let expected = fill(&place);
    assert_eq!(expected.len(), 258);
    for format in FORMATS {
        place.run(&["export", "s.azh", format, "out"]).ok();
        let piped = place.run(&["export", "s.azh", format]);
        assert_eq!(place.read("out"), piped.out, "{format}");
        let (by_file, by_pipe) = (format!("{format}-file.azh"), format!("{format}-pipe.azh"));
        let said = place
            .run(&["import", "--create", &by_file, format, "out"])
            .ok();
        assert_eq!(said, "258 records stored\n");
        place
            .run_with(&["import", "--create", &by_pipe, format], &piped.out)
            .ok();
        assert_eq!(list(&place, &by_file), expected, "{format}");
        assert_eq!(list(&place, &by_pipe), expected, "{format}");
    }
}

#[test]
fn a_broken_record_is_one_error_and_nothing_is_stored_unless_partial() {
    let broken: [(&str, &[u8], &str); 3] = [
        (
            "tsv",
            b"a\t1\nb\t2\nbroken\n",
            "invalid: line 3 has no tab at in (found \"broken\",",
        ),
        (
            "flat",
            b"\xff\x01a\xff\x011\xff\x01b\xff\x012\x00",
            "invalid: no flat record at in offset 0xc ",
        ),
        (
            "jsonl",
            b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n{\"key\":3}\n",
            "invalid: line 3 is not a JSON record at in (invalid type: integer `3`",
        ),
    ];
    for (format, bytes, message) in broken {
        let place = Place::with_store();
        place.write("in", bytes);
        let error = place.run(&["import", "s.azh", format, "in"]).error(3);
        assert!(error.starts_with(message), "{error}");
        assert_eq!(place.run(&["list", "s.azh"]).ok(), "");
        let error = place.run_with(&["import", "s.azh", format], bytes).error(3);
        assert!(error.contains("(standard input)"), "{error}");
        assert_eq!(place.run(&["list", "s.azh"]).ok(), "");
        place
            .run(&["import", "--create", "new.azh", format, "in"])
            .error(3);
        assert_eq!(
            place.names(),
            ["in", "s.azh"],
            "a failed --create leaves nothing"
        );

        let ran = place.run_with(&["import", "--partial", "s.azh", format], bytes);
        assert_eq!((ran.code, ran.text().as_str()), (3, "2 records stored\n"));
        assert_eq!(place.run(&["get", "s.azh", "a", "b"]).ok(), "a\t1\nb\t2\n");
    }
}

#[test]
fn an_import_replaces_or_keeps_what_is_there() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "a", "old"]).ok();
    let said = place.run_with(
        &["import", "--keep-existing", "s.azh", "tsv"],
        b"a\tnew\nb\tnew\n",
    );
    assert_eq!(said.ok(), "1 record stored, 1 kept as they were\n");
    assert_eq!(
        place.run(&["get", "s.azh", "a", "b"]).ok(),
        "a\told\nb\tnew\n"
    );
    place
        .run_with(&["import", "s.azh", "tsv"], b"a\tnew\na\tnewest\n")
        .ok();
    assert_eq!(place.run(&["get", "s.azh", "a"]).ok(), "newest\n");
}

#[test]
fn an_export_that_cannot_be_written_is_an_error_and_leaves_no_part() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "a", "1"]).ok();
    let error = place
        .run(&["export", "s.azh", "tsv", "nowhere/out"])
        .error(9);
    assert!(
        error.starts_with("io: there is no folder to make the file in at nowhere/out: "),
        "{error}"
    );
    place.write("out", "kept");
    place.run(&["export", "missing.azh", "tsv", "out"]).error(9);
    assert_eq!(place.read("out"), b"kept");
    assert_eq!(place.names(), ["out", "s.azh"]);
}

/// It once left a temporary file behind, under a name of its own, each time it was broken off.
#[test]
fn an_export_that_is_broken_off_by_a_signal_leaves_nothing_behind() {
    let place = Place::with_store();
    let lines = lines(200_000, |n| format!("key{n}\t{}\n", "value".repeat(20)));
    place
        .run_with(&["import", "s.azh", "tsv"], lines.as_bytes())
        .ok();
    let export = ["export", "s.azh", "tsv", "out"];
    let mut child = place.command(&export).spawn().expect("it starts");
    // It is killed once it has the file without a name that it writes to.
    let files = format!("/proc/{}/fd", child.id());
    let is_writing = || {
        let files = std::fs::read_dir(&files).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        targets.any(|target| target.to_string_lossy().ends_with(" (deleted)"))
    };
    while child.try_wait().expect("a child of ours").is_none() && !is_writing() {}
    child.kill().expect("a child of ours");
    let ended = child.wait().expect("it ends");
    assert_eq!(ended.code(), None, "it was ended by a signal");
    assert_eq!(place.names(), ["s.azh"]);
    // And where it may not write so much.
    let limited = Command::new("sh")
        .args(["-c", "ulimit -f 64; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_azekura"))
        .args(export)
        .current_dir(place.path(""))
        .output()
        .expect("a shell");
    assert_eq!(limited.status.code(), Some(5));
    assert_eq!(place.names(), ["s.azh"]);
    place.run(&["export", "s.azh", "tsv", "out"]).ok();
    assert_eq!(place.names(), ["out", "s.azh"]);
}

/// Who moves over from Tkrzw brings data along: its tool's exports come in here and ours go in there.
#[test]
fn records_move_from_tkrzw_and_back() {
    let tool = |arguments: &[&str], place: &Place| {
        let mut command = Command::new("tkrzw_dbm_util");
        let output = command
            .args(arguments)
            .current_dir(place.path(""))
            .output()
            .ok()?;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        Some(output.stdout)
    };
    let place = Place::with_store();
    if tool(&["create", "probe.tkh"], &place).is_none() {
        notice(
            "the move from Tkrzw is not tested: tkrzw_dbm_util (package tkrzw-utils) is missing",
        );
        return;
    }
    let expected = fill(&place);
    place.run(&["export", "s.azh", "flat", "ours.flat"]).ok();
    place.run(&["export", "s.azh", "tsv", "ours.tsv"]).ok();
    for (from, flags) in [
        ("ours.flat", &[][..]),
        ("ours.tsv", &["--tsv", "--escape"][..]),
    ] {
        let hash = format!("{from}.tkh");
        tool(&["create", &hash], &place);
        // Tkrzw's own file from ours, and ours again from its exports in both forms.
        tool(&[&["import"], flags, &[&hash, from]].concat(), &place);
        for (format, flags) in [("flat", &[][..]), ("tsv", &["--tsv", "--escape"][..])] {
            let (name, back) = (format!("{from}.{format}"), format!("{from}.{format}.azh"));
            tool(&[&["export"], flags, &[&hash, &name]].concat(), &place);
            place
                .run(&["import", "--create", &back, format, &name])
                .ok();
            let found = list(&place, &back);
            assert_eq!(found, expected, "{from} to Tkrzw and back as {format}");
        }
    }
    tool(&["create", "counter.tkh"], &place);
    tool(&["set", "--incr", "40", "counter.tkh", "n", "1"], &place);
    tool(&["export", "counter.tkh", "counter.flat"], &place);
    place.run(&["import", "s.azh", "flat", "counter.flat"]).ok();
    assert_eq!(
        place.run(&["increment", "s.azh", "n"]).ok(),
        "42\n",
        "counters continue to count"
    );
}

/// An export once put a file in the place of whatever its target was: of a store, or, run by the superuser, of a
/// device that the whole machine uses.
#[test]
fn an_export_replaces_files_only() {
    let place = Place::with_store();
    place.run(&["set", "s.azh", "k", "v"]).ok();
    let store = place.read("s.azh");
    std::os::unix::fs::symlink("s.azh", place.path("to-store")).expect("a link");
    for target in ["s.azh", "to-store"] {
        let error = place.run(&["export", "s.azh", "tsv", target]).error(3);
        assert!(
            error.starts_with("invalid: the target is a store at "),
            "{error}"
        );
    }
    assert_eq!(place.read("s.azh"), store);
    std::fs::create_dir(place.path("folder")).expect("a folder");
    let error = place.run(&["export", "s.azh", "tsv", "folder"]).error(3);
    assert!(error.contains(" at folder (found a folder, "), "{error}");
    place.run(&["export", "s.azh", "tsv", "none/out"]).error(9);

    place.write("old.tsv", "what was there");
    let shared = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(place.path("old.tsv"), shared).expect("permissions are set");
    std::os::unix::fs::symlink("old.tsv", place.path("link")).expect("a link");
    place.run(&["export", "s.azh", "tsv", "link"]).ok();
    assert_eq!(place.read("old.tsv"), b"k\tv\n");
    let found = |name: &str| std::fs::symlink_metadata(place.path(name)).expect("it is there");
    assert!(found("link").is_symlink(), "the link is what it was");
    assert_eq!(found("old.tsv").permissions().mode() & 0o777, 0o644);

    let made = Command::new("mkfifo").arg(place.path("pipe")).status();
    assert!(made.expect("mkfifo is there").success());
    let pipe = place.path("pipe");
    let reader = std::thread::spawn(move || std::fs::read(pipe).expect("the pipe is read"));
    place.run(&["export", "s.azh", "tsv", "pipe"]).ok();
    assert!(
        found("pipe").file_type().is_fifo(),
        "the pipe is what it was"
    );
    assert_eq!(reader.join().expect("it ends"), b"k\tv\n");
}
