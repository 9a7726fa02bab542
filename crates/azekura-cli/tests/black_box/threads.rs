//! A system that gives no more threads: an error that states it, whichever thread it was.
//!
//! The limit of processes does not hold for the superuser, so a test that runs as such starts the program as another user.
//! It does not know which threads a command starts.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::program::{Place, Ran, notice};

/// A user who owns nothing.
const OTHER: u32 = 65_534;

/// The program where its user may have so many processes and threads; `None`: it cannot be run like that.
fn run_limited(place: &Place, count: u64, arguments: &[&str]) -> Option<Ran> {
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--nproc={count}"))
        .arg(env!("CARGO_BIN_EXE_azekura"))
        .args(arguments)
        .current_dir(place.path("."))
        .env("TMPDIR", place.path("."))
        .stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(OTHER).gid(OTHER);
    }
    let output = command.output().ok()?;
    Some(Ran {
        code: output.status.code().expect("no signal"),
        out: output.stdout,
        err: String::from_utf8(output.stderr).expect("messages are text"),
    })
}

/// All but those of an engine in a file panicked.
#[test]
fn a_thread_that_cannot_be_started_is_an_error_that_names_the_limit() {
    let place = Place::new();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.path("."), all).expect("a folder of ours");
    let version = run_limited(&place, 1, &["--version"]);
    if version.is_none_or(|ran| ran.code != 0) {
        notice(
            "limits of threads were not tested: prlimit, or the program as another user, cannot be run",
        );
        return;
    }
    let fails = |count: u64, command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        let ran = run_limited(&place, count, &words).expect("it ran before");
        assert_eq!(ran.code, 9, "{command}, {count}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{command}, {count}: {ran:?}");
        assert!(ran.err.contains("(ulimit -u)"), "{ran:?}");
    };
    for command in [
        "create new.azh",
        "tour",
        "stress --engine tiny --count 1 --path .",
        "bench record --engine tiny --count 100 --threads 2",
        "bench object --engine files --path o --count 3 --value-size 1KiB",
        "serve --listen 127.0.0.1:0 --data d",
    ] {
        fails(1, command);
    }
    // Each thread of a server, and some of those that work together: the others end.
    for count in 1..=6 {
        fails(
            count,
            "serve --engine tiny --listen 127.0.0.1:0 --threads 2",
        );
    }
    for count in 2..=4 {
        fails(count, "stress --engine tiny --count 1 --path . --threads 3");
    }
    fails(2, "bench record --engine tiny --count 100 --threads 2");
    fails(
        3,
        "bench object --engine files --path o --depth 4 --count 9 --value-size 1KiB",
    );
}
