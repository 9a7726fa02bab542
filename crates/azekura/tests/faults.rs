//! Full disks, failing writes and syncs, and the longest keys and values: clear errors, nothing lost.
//!
//! Every call of an operation of the simulated disk fails once, at each place of a workload: what was
//! acknowledged is there after the next open, and from a failed write or sync on the handle refuses to
//! write (`Poisoned`) but goes on reading. A full disk is `Full`, and no damage. Limits are exact. Engines
//! that deal with errors wrongly, one way each, prove the net: each must be seen.
//!
//! Lines beginning `tried:` say how much was tried.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;

use azekura::io::memory::Memory;
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::record::hash::{HashDb, KEY_LEN_MAX, Options, VALUE_LEN_MAX};
use azekura::testkit::crash::{Config, Counts, Crash, End, Ledger, fail_each};
use azekura::testkit::{Random, tried};
use azekura::{Durability, Kind, Persistent, Reader, Result};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const NAME: &str = "faults.azh";
const OPS: u64 = 120;

fn options() -> Options {
    Options {
        segment_size: 4096,
        background: false,
        capacity: SimDisk::FILE_SIZE_MAX,
        ..Options::default()
    }
}

fn change(number: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut random = Random::new(number);
    let key = format!("key-{}", random.below(100)).into_bytes();
    // Long enough for the file to grow now and then, and of keys enough that what is lost is not soon put again.
    let len = 1 + random.index(2000);
    (key, (!random.one_in(6)).then(|| random.bytes(len)))
}

fn apply(db: &HashDb, number: u64) -> Result<()> {
    match change(number) {
        (key, Some(value)) => db.put(&key, &value),
        (key, None) => db.remove(&key).map(drop),
    }
}

/// How an engine may deal with an error so that the net must see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A sync that fails is answered as if it had not.
    SyncErrorsSwallowed,
    /// A write for which there is no room is answered as if there were.
    WriteErrorsSwallowed,
    /// Who failed to make a store leaves a file.
    HalfMade,
    /// After a failure the handle is opened anew, silently, and goes on.
    PoisonForgotten,
}

/// Works until the first error; from it on, a handle that is poisoned must stay so.
fn work(disk: &SimDisk, ledger: &Ledger, poisons: bool, bug: Bug) {
    let directory = disk.directory();
    let name = Path::new(NAME);
    let made = ledger.operation(|| {
        if bug == Bug::HalfMade {
            let db = HashDb::create_on(directory.create(name)?, &options())?;
            return directory.sync().map(|()| db);
        }
        HashDb::create_in(&directory, name, &options())
    });
    let Ok(db) = made else { return };
    ledger.synced();
    for number in 0..OPS {
        let outcome = match number % 10 {
            3 => match db.sync(Durability::Power) {
                Err(_) if bug == Bug::SyncErrorsSwallowed => {
                    ledger.synced();
                    return;
                }
                outcome => outcome.map(|()| ledger.synced()),
            },
            6 => db.checkpoint(),
            8 => db.maintain(),
            _ => Ok(()),
        };
        let outcome = outcome.and_then(|()| {
            ledger.operation(|| match apply(&db, number) {
                Err(_) if bug == Bug::WriteErrorsSwallowed => Ok(()),
                outcome => outcome,
            })
        });
        if let Err(error) = outcome {
            if bug == Bug::PoisonForgotten {
                drop(db);
                let storage = directory.open(name, Access::Write);
                let again = storage.and_then(|storage| HashDb::open_on(storage, &options()));
                return again.map_or((), |db| refuses_from_now_on(&db, &error, poisons));
            }
            refuses_from_now_on(&db, &error, poisons);
            return;
        }
    }
    if db.close().is_ok() {
        ledger.synced();
    }
}

fn refuses_from_now_on(db: &HashDb, error: &azekura::Error, poisons: bool) {
    assert!(
        matches!(error.kind(), Kind::Io | Kind::Full | Kind::Poisoned),
        "a fault of the disk is told as one: {error}"
    );
    let poisoned = db.put(b"after", b"x").err().map(|error| error.kind()) == Some(Kind::Poisoned);
    assert!(poisoned || !poisons, "the state is unknown behind: {error}");
    if poisoned {
        for _ in 0..3 {
            let kind = |outcome: Result<()>| outcome.err().map(|error| error.kind());
            assert_eq!(kind(db.put(b"after", b"x")), Some(Kind::Poisoned));
            assert_eq!(kind(db.remove(b"after").map(drop)), Some(Kind::Poisoned));
            assert_eq!(kind(db.sync(Durability::Power)), Some(Kind::Poisoned));
            assert_eq!(kind(db.checkpoint()), Some(Kind::Poisoned));
        }
    }
    contents(db).expect("reading goes on");
}

fn contents(db: &HashDb) -> Result<State> {
    let mut state = State::new();
    db.scan(None, &mut |key, value| {
        state.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(state)
}

fn is_absent(disk: &SimDisk) -> bool {
    !disk
        .directory()
        .exists(Path::new(NAME))
        .expect("names can be asked for")
}

fn verify(crash: &Crash<'_>, states: &[State]) -> std::result::Result<u64, String> {
    let opened = crash
        .disk
        .directory()
        .open(Path::new(NAME), Access::Write)
        .and_then(|storage| HashDb::open_on(storage, &options()));
    let db = match opened {
        Ok(db) => db,
        // Of a store that could not be made there is nothing.
        Err(_) if crash.kept() == 0 && is_absent(crash.disk) => return Ok(0),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    crash.recovered();
    let mut found = contents(&db).map_err(|error| error.to_string())?;
    // Put behind an error that left the handle usable.
    found.remove(&b"after"[..]);
    let (least, most) = (crash.kept(), crash.done.began);
    // An operation that failed may have happened or not; it is the last.
    if !states[least..=most].contains(&found) {
        let what = if crash.end == End::Power {
            "cut"
        } else {
            "death"
        };
        return Err(format!(
            "no state behind {least} to {most} operations after a {what}"
        ));
    }
    let report = db
        .check(&mut |_, _| ())
        .map_err(|error| error.to_string())?;
    if report.is_sound() {
        Ok(0)
    } else {
        Err(format!("{:?}", report.damage))
    }
}

fn states() -> Vec<State> {
    let mut now = State::new();
    let mut states = vec![State::new(), State::new()];
    for number in 0..OPS {
        match change(number) {
            (key, Some(value)) => drop(now.insert(key, value)),
            (key, None) => drop(now.remove(&key)),
        }
        states.push(now.clone());
    }
    states
}

fn fail(operation: Operation, fault: Fault) {
    let counts = try_each(operation, fault, Bug::None);
    assert!(counts.kills > 0, "{operation:?} is called and fails");
    tried(&format!(
        "{operation:?} fails by {fault:?} at each call: {counts:?}"
    ));
}

fn try_each(operation: Operation, fault: Fault, bug: Bug) -> Counts {
    let states = states();
    let mut config = Config::new(5).quick(8);
    config.recovery_one_in = 0;
    let poisons = matches!(operation, Operation::Write | Operation::Sync);
    fail_each(
        &config,
        operation,
        fault,
        |disk, ledger| work(disk, ledger, poisons, bug),
        |crash| verify(crash, &states),
    )
}

#[test]
fn every_planted_bug_is_seen() {
    let bugs = [
        (Operation::Sync, Bug::SyncErrorsSwallowed, "operations"),
        (Operation::Resize, Bug::WriteErrorsSwallowed, "operations"),
        (Operation::Sync, Bug::HalfMade, "does not open"),
        (Operation::Write, Bug::PoisonForgotten, "unknown behind"),
    ];
    for (operation, bug, told) in bugs {
        // The same faults without the bug are the tests below: they pass.
        let seen =
            catch_unwind(|| try_each(operation, Fault::Error, bug)).expect_err("a bug is seen");
        let seen = seen.downcast::<String>().expect("a message");
        assert!(seen.contains(told), "seen by what was found: {seen}");
        tried(&format!("{bug:?} is seen: {seen}"));
    }
}

#[test]
fn names_that_cannot_be_given_or_kept_leave_no_half() {
    fail(Operation::Name, Fault::Error);
    fail(Operation::SyncNames, Fault::Error);
}

#[test]
fn a_write_that_fails_loses_nothing_acknowledged() {
    fail(Operation::Write, Fault::Error);
    fail(Operation::Write, Fault::Full);
    fail(Operation::Write, Fault::Short(40));
    fail(Operation::Write, Fault::Torn);
}

#[test]
fn a_sync_that_fails_loses_nothing_synced() {
    fail(Operation::Sync, Fault::Error);
}

#[test]
fn growing_that_fails_loses_nothing_acknowledged() {
    fail(Operation::Resize, Fault::Error);
    fail(Operation::Resize, Fault::Full);
}

#[test]
fn a_full_storage_says_so_and_takes_writes_again_when_there_is_room() {
    let memory = Memory::new(1 << 24).expect("memory");
    let options = Options {
        capacity: 1 << 24,
        ..options()
    };
    let db = HashDb::create_on(Arc::clone(&memory) as Arc<dyn Storage>, &options).expect("a store");
    let mut model = State::new();
    let put = |model: &mut State, number: u32| {
        let (key, value) = (number.to_le_bytes().to_vec(), vec![number as u8; 200]);
        let outcome = db.put(&key, &value);
        if outcome.is_ok() {
            model.insert(key, value);
        }
        outcome
    };
    for number in 0..2000 {
        put(&mut model, number).expect("there is room");
    }
    memory.set_limit(memory.size().expect("a size"));
    let error = (2000..10_000)
        .find_map(|number| put(&mut model, number).err())
        .expect("it is full at last");
    assert_eq!(error.kind(), Kind::Full, "{error}");
    assert_eq!(
        contents(&db).expect("a scan"),
        model,
        "what was acknowledged is there"
    );
    memory.set_limit(1 << 24);
    for number in 20_000..22_000 {
        put(&mut model, number).expect("there is room again");
    }
    assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    db.close().expect("it closes");
    let db = HashDb::open_on(memory, &options).expect("it opens again");
    assert_eq!(contents(&db).expect("a scan"), model);
    tried(&format!("{} records around a full storage", model.len()));
}

/// Bytes of memory the system can give now; 0 where it does not tell.
fn memory_available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(0)
        << 10
}

#[test]
fn keys_and_values_are_taken_up_to_their_limits_and_refused_beyond() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("large.azh");
    let options = Options {
        capacity: 1 << 40,
        ..Options::default()
    };
    let db = HashDb::create(&file, &options).expect("a new file");
    let longest = vec![b'k'; KEY_LEN_MAX as usize];
    let over = vec![b'k'; KEY_LEN_MAX as usize + 1];
    db.put(&longest, b"value").expect("the longest key");
    assert_eq!(
        db.put(&over, b"").err().map(|error| error.kind()),
        Some(Kind::TooLarge)
    );
    db.put(b"", b"").expect("an empty key and value");
    let mut sizes = vec![64 << 20];
    if memory_available() > 12 << 30 {
        sizes.push(VALUE_LEN_MAX as usize);
    } else {
        writeln!(
            std::io::stderr(),
            "notice: values up to 300 MiB only: too little memory"
        )
        .expect("stderr can be written");
        sizes.push(300 << 20);
    }
    let largest = sizes[1];
    for len in sizes {
        let value = vec![(len >> 4) as u8; len];
        db.put(b"large", &value).expect("a large value");
        let same = db
            .read_with(b"large", |found| found == Some(&value))
            .expect("a read");
        assert!(same, "{len} bytes come back");
    }
    if largest as u64 == VALUE_LEN_MAX {
        let over = vec![0; largest + 1];
        assert_eq!(
            db.put(b"large", &over).err().map(|error| error.kind()),
            Some(Kind::TooLarge)
        );
    }
    db.close().expect("it closes");
    let db = HashDb::open(&file, &options).expect("it opens again");
    assert_eq!(db.count(), 3);
    assert_eq!(db.get(&longest).expect("a read"), Some(b"value".to_vec()));
    assert_eq!(db.get(b"").expect("a read"), Some(Vec::new()));
    let len = db
        .read_with(b"large", |found| found.map(<[u8]>::len))
        .expect("a read");
    assert_eq!(len, Some(largest));
    tried(&format!(
        "a key of {KEY_LEN_MAX} bytes, a value of {largest}"
    ));
}
