//! A full device, played by a limit on the size of files.
//!
//! What does not fit is said, and a full file can be emptied, shortened and compacted.
//! It does not know where exactly a file is full.

use std::ffi::OsString;
use std::process::Command;

use crate::program::{Place, Ran, lines};

const RECORDS: u32 = 150_000;

/// Runs the program where no file may grow beyond 30 to 60 MiB (shells count in different units).
fn run_limited(place: &Place, arguments: &[&str]) -> Ran {
    let program = place.command(arguments);
    let mut words: Vec<OsString> = vec![program.get_program().into()];
    words.extend(program.get_args().map(Into::into));
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 60000; exec \"$@\"", "sh"])
        .args(words)
        .current_dir(place.path("."))
        .output()
        .expect("a shell");
    Ran {
        code: output.status.code().expect("no signal"),
        out: output.stdout,
        err: String::from_utf8(output.stderr).expect("messages are text"),
    }
}

fn count(place: &Place) -> u32 {
    let text = place.run(&["inspect", "--json", "s.azh"]).ok();
    let object: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    let count = object["count"].as_u64().expect("a number");
    u32::try_from(count).expect("a small one")
}

#[test]
fn an_import_that_fills_the_device_says_how_far_it_came_or_leaves_no_file() {
    let place = Place::with_store();
    let value = "v".repeat(500);
    place.write("in", lines(RECORDS, |n| format!("{n:06}\t{value}\n")));

    let error = run_limited(&place, &["import", "--create", "new.azh", "tsv", "in"]).error(5);
    assert!(error.starts_with("full: "), "{error}");
    assert_eq!(place.names(), ["in", "s.azh"]);

    let error = run_limited(&place, &["import", "s.azh", "tsv", "in"]).error(5);
    let stored = count(&place);
    assert!(stored > 10_000, "{stored}");
    let told = format!(
        "the first {stored} of {RECORDS} records are stored; make room and import the same again for the others"
    );
    assert!(error.ends_with(&told), "{error}");
    place
        .run(&["get", "s.azh", &format!("{:06}", stored - 1)])
        .ok();
    place.run(&["get", "s.azh", &format!("{stored:06}")]).no();

    // It is full, and can be emptied and compacted as it is.
    let keys: Vec<String> = (0..5000).map(|n| format!("{n:06}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    run_limited(
        &place,
        &[&["remove", "--each", "s.azh"], &keys[..]].concat(),
    )
    .ok();
    run_limited(&place, &["compact", "s.azh"]).ok();
    assert_eq!(count(&place), stored - 5000);
    run_limited(&place, &["set", "s.azh", "one", "more"]).ok();

    place.run(&["import", "s.azh", "tsv", "in"]).ok();
    assert_eq!(count(&place), RECORDS + 1);
    place.run(&["check", "s.azh"]).ok();
}
