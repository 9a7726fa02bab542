//! A process that is killed (SIGKILL) while it edits and merges: what it acknowledged is there when the file is opened again.
//!
//! A child of this program edits a file in a memory so small that it merges all the time, and acknowledges each edit through a pipe.
//! After each kill the file is verified, and the next child resumes with it: so openings are killed, too. The cache of the system
//! survives: loss of power is `cuts`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use azekura::record::skip::{EditOptions, SkipDb, SkipReader};
use azekura::testkit::suite::{demand, share};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Engine as _, Persistent as _, Reader as _};

/// For the child: the file, and the first number that it puts.
const FILE: &str = "AZEKURA_TEST_EDITED_FILE";
const FIRST: &str = "AZEKURA_TEST_EDITED_FIRST";
const KEYS: u64 = 300;

fn options() -> EditOptions {
    EditOptions::new().memory(16u64 << 10)
}

/// Number `n` is put under this key, and removes another.
fn key(number: u64) -> Vec<u8> {
    (number * 7 % KEYS).to_string().into_bytes()
}

fn removed(number: u64) -> Vec<u8> {
    ((number * 7 + 150) % KEYS).to_string().into_bytes()
}

/// Edits from `first` on, in batches of two, until it is killed.
#[test]
fn child() {
    let (Ok(file), Ok(first)) = (std::env::var(FILE), std::env::var(FIRST)) else {
        return;
    };
    let db = SkipDb::open(file, &options()).unwrap();
    let mut out = std::io::stdout();
    for number in first.parse::<u64>().unwrap().. {
        let value = number.to_string().into_bytes();
        db.update_many(&[&key(number), &removed(number)], &mut |_| {
            vec![Edit::Put(value.clone().into()), Edit::Remove]
        })
        .unwrap();
        writeln!(out, "\nacknowledged {number}").unwrap();
        out.flush().unwrap();
    }
}

/// The state after the edits up to this number.
fn state(last: u64) -> Vec<Option<u64>> {
    let mut state = vec![None; KEYS as usize];
    for number in 0..=last {
        state[(number * 7 % KEYS) as usize] = Some(number);
        state[((number * 7 + 150) % KEYS) as usize] = None;
    }
    state
}

fn found(db: &SkipDb) -> Vec<Option<u64>> {
    let value = |key: u64| {
        let value = db.get(key.to_string().as_bytes()).unwrap()?;
        Some(String::from_utf8(value).unwrap().parse().unwrap())
    };
    (0..KEYS).map(value).collect()
}

/// Runs a child until it has acknowledged so many; the last that it acknowledged, if it did any.
fn killed(path: &Path, first: u64, count: u64) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "edited::killed::child", "--nocapture"])
        .env(FILE, path)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = None;
    let mut seen = 0;
    if count == 0 {
        child.kill().unwrap();
    }
    for line in lines {
        let line = line.unwrap();
        if let Some(number) = line.strip_prefix("acknowledged ") {
            last = number.parse().ok().or(last);
            seen += 1;
            if seen == count {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    last
}

#[test]
fn a_killed_process_loses_no_acknowledged_edit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    SkipDb::create(&path, &options()).unwrap().close().unwrap();
    let mut random = Random::new(round_seed());
    let (mut next, mut merged) = (0, 0);
    for _ in 0..share(300) {
        let count = *random.choose(&[0, 1, 20, 300, 900]);
        let count = random.below(count + 1);
        let last = killed(&path, next, count);
        // By itself the sorted file is whole.
        let file = SkipReader::open(&path).unwrap();
        assert!(file.check(&mut |_, _| {}).unwrap().is_sound());
        merged += u64::from(file.count() > 0);
        drop(file);
        let db = SkipDb::open(&path, &options()).unwrap();
        let found = found(&db);
        let acknowledged = last.map_or(next, |last| last + 1);
        // The edit that was under way may be there, and its number is put by the next child again.
        let states = [acknowledged, acknowledged + 1].map(|count| match count {
            0 => vec![None; KEYS as usize],
            count => state(count - 1),
        });
        assert!(states.contains(&found), "after {acknowledged}: {found:?}");
        assert_eq!(db.count(), found.iter().flatten().count() as u64);
        assert!(db.check(&mut |_, _| {}).unwrap().is_sound());
        db.close().unwrap();
        next = acknowledged;
    }
    demand(
        next,
        share(300) * 10,
        "edits acknowledged by processes that were killed",
    );
    demand(
        merged,
        share(300) / 2,
        "deaths of processes that had merged",
    );
}
