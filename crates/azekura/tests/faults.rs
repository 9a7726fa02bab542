//! Full disks, failing writes and syncs, and the longest keys and values: clear errors, nothing lost.
//!
//! Every call of an operation of the simulated disk fails once, at each place of workloads whose configurations, with
//! capacities down to the least, are drawn from seeds: what was acknowledged is there after the next open, and from a failed
//! write or sync on the handle refuses to write (`Poisoned`) but continues to read. A full disk is `Full`, and no damage.
//! Limits are exact. Engines that handle errors wrongly, one way each, prove the suite: each must be seen.
//!
//! Lines beginning `tried:` state how much was tried.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;

use azekura::io::memory::Memory;
use azekura::io::sim::{Fault, Limits, Operation, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::record::hash::{CreateOptions, HashDb, KEY_LEN_MAX, OpenOptions, VALUE_LEN_MAX};
use azekura::testkit::configuration::{Within, hash_options, opening};
use azekura::testkit::crash::{Config, Counts, Crash, End, Ledger, fail_each};
use azekura::testkit::suite::{case, demand, share, third, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Durability, Kind, Persistent, Reader, Result};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const NAME: &str = "faults.azh";

/// Configurations tried for each fault, at least, in a full run.
const CASES: u64 = 6;

fn options() -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX)
}

type Change = (Vec<u8>, Option<Vec<u8>>);

fn apply(db: &HashDb, change: &Change) -> Result<()> {
    match change {
        (key, Some(value)) => db.put(key, value),
        (key, None) => db.remove(key).map(drop),
    }
}

fn effect(now: &mut State, change: &Change) {
    match change.clone() {
        (key, Some(value)) => drop(now.insert(key, value)),
        (key, None) => drop(now.remove(&key)),
    }
}

/// A configuration, what is done under it, and what came of it.
struct Case {
    seed: u64,
    options: CreateOptions,
    /// Under which the store is opened afterwards.
    next: OpenOptions,
    ops: u64,
    /// Values are shorter.
    len_max: usize,
    /// After each number of operations begun; after none there is no store, after one an empty one.
    states: RefCell<Vec<State>>,
}

impl Case {
    /// The one in which planted bugs are to be seen.
    fn usual() -> Self {
        Self {
            seed: 0,
            options: options(),
            next: options().opening,
            ops: 120,
            len_max: 2000,
            states: RefCell::default(),
        }
    }

    fn draw(seed: u64) -> Self {
        let mut random = Random::new(!seed);
        let within = Within {
            segment_size_max: 64 << 10,
            ..Within::bytes(SimDisk::FILE_SIZE_MAX)
        };
        let options = hash_options(&mut random, &within);
        Self {
            seed: seed << 20,
            next: opening(&mut random, &within, &options),
            ops: 30 + random.below(60),
            len_max: *random.choose(&[60, 2000, 2000, 6000]),
            options,
            states: RefCell::default(),
        }
    }

    fn change(&self, number: u64) -> Change {
        let mut random = Random::new(self.seed + number);
        let key = format!("key-{}", random.below(100)).into_bytes();
        // Long enough for the file to grow now and then, and of keys enough that what is lost is not soon put again.
        let len = 1 + random.index(self.len_max);
        (key, (!random.one_in(6)).then(|| random.bytes(len)))
    }
}

/// How an engine may deal with an error so that the suite must detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A sync that fails is answered as if it had not.
    SyncErrorsSwallowed,
    /// A write for which there is no room is answered as if there were.
    WriteErrorsSwallowed,
    /// Who failed to make a store leaves a file.
    HalfMade,
    /// After a failure the handle is opened anew, silently, and continues.
    PoisonForgotten,
}

/// Works until the first error; from it on, a handle that is poisoned must stay so. What a store refuses because its capacity
/// is reached is no error, but an operation that changes nothing.
fn work(disk: &SimDisk, ledger: &Ledger, case: &Case, poisons: bool, bug: Bug) {
    let directory = disk.directory();
    let name = Path::new(NAME);
    *case.states.borrow_mut() = vec![State::new(), State::new()];
    let made = ledger.operation(|| {
        if bug == Bug::HalfMade {
            let db = HashDb::create_on(directory.create(name)?, &case.options)?;
            return directory.sync().map(|()| db);
        }
        HashDb::create_in(&directory, name, &case.options)
    });
    let Ok(db) = made else { return };
    ledger.synced();
    let mut now = State::new();
    for number in 0..case.ops {
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
        let change = case.change(number);
        let outcome = outcome.and_then(|()| {
            ledger.operation(|| {
                let outcome = match apply(&db, &change) {
                    Err(_) if bug == Bug::WriteErrorsSwallowed => Ok(()),
                    Err(error) if error.kind() == Kind::Full && disk.faults().struck() == 0 => {
                        assert!(change.1.is_some(), "a removal is refused: {error}");
                        case.states.borrow_mut().push(now.clone());
                        return Ok(());
                    }
                    outcome => outcome,
                };
                effect(&mut now, &change);
                case.states.borrow_mut().push(now.clone());
                outcome
            })
        });
        if let Err(error) = outcome {
            if bug == Bug::PoisonForgotten {
                drop(db);
                let storage = directory.open(name, Access::Write);
                let again =
                    storage.and_then(|storage| HashDb::open_on(storage, &case.options.opening));
                return again.map_or((), |db| refuses_from_now_on(&db, &error, poisons));
            }
            refuses_from_now_on(&db, &error, poisons);
            return;
        }
        if case.options.opening.durability == Durability::Power {
            ledger.synced();
        }
    }
    if db.close().is_ok() {
        ledger.synced();
    }
}

fn refuses_from_now_on(db: &HashDb, error: &azekura::Error, poisons: bool) {
    assert!(
        matches!(error.kind(), Kind::Io | Kind::Full | Kind::Poisoned),
        "a fault of the disk is reported as one: {error}"
    );
    let poisoned = db.put(b"after", b"x").err().map(|error| error.kind()) == Some(Kind::Poisoned);
    assert!(poisoned || !poisons, "the state is unknown after: {error}");
    if poisoned {
        for _ in 0..3 {
            let kind = |outcome: Result<()>| outcome.err().map(|error| error.kind());
            assert_eq!(kind(db.put(b"after", b"x")), Some(Kind::Poisoned));
            assert_eq!(kind(db.remove(b"after").map(drop)), Some(Kind::Poisoned));
            assert_eq!(kind(db.sync(Durability::Power)), Some(Kind::Poisoned));
            assert_eq!(kind(db.checkpoint()), Some(Kind::Poisoned));
        }
    }
    contents(db).expect("reading continues");
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

fn verify(crash: &Crash<'_>, case: &Case) -> std::result::Result<u64, String> {
    let states = case.states.borrow();
    let opened = crash
        .disk
        .directory()
        .open(Path::new(NAME), Access::Write)
        .and_then(|storage| HashDb::open_on(storage, &case.next));
    let db = match opened {
        Ok(db) => db,
        // Of a store that could not be made there is nothing.
        Err(_) if crash.kept() == 0 && is_absent(crash.disk) => return Ok(0),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    crash.recovered();
    let mut found = contents(&db).map_err(|error| error.to_string())?;
    // Put after an error that left the handle usable.
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
            "no state after {least} to {most} operations and a {what}"
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

/// Each call of `operation` fails once, in workloads under configurations of their own: one after another, until enough was
/// tried.
fn fail(operation: Operation, fault: Fault) {
    let least = third(match operation {
        Operation::Write => 45_000,
        Operation::Sync => 15_000,
        Operation::Resize => 750,
        _ => 24,
    });
    let mut sum = Counts::default();
    let mut cases = 0;
    // Cases that try hardly anything end, and fail.
    while (cases < third(CASES) || sum.crash_states + sum.kills < least)
        && cases < 10 * third(CASES)
    {
        let seed = cases + round_seed();
        let drawn = Case::draw(seed);
        let _shown = case(
            seed,
            &(&drawn.options, &drawn.next, drawn.ops, drawn.len_max),
        );
        let counts = try_each(&drawn, operation, fault, Bug::None);
        assert!(counts.kills > 0, "{operation:?} is called and fails");
        sum = sum.plus(counts);
        cases += 1;
    }
    let what = format!(
        "states of {cases} configurations after {operation:?} failed by {fault:?}: {sum:?}"
    );
    demand(sum.crash_states + sum.kills, least, &what);
}

fn try_each(case: &Case, operation: Operation, fault: Fault, bug: Bug) -> Counts {
    let mut config = Config::new(5 + case.seed).quick(8);
    if bug == Bug::None {
        // Of many configurations and calls, rather than many states of each.
        config.limits = Limits {
            exhaustive: 32,
            singles: 8,
            random: 8,
            ..config.limits
        };
    }
    config.recovery_one_in = 0;
    let poisons = matches!(operation, Operation::Write | Operation::Sync);
    fail_each(
        &config,
        operation,
        fault,
        |disk, ledger| work(disk, ledger, case, poisons, bug),
        |crash| verify(crash, case),
    )
}

#[test]
fn every_planted_bug_is_seen() {
    let bugs = [
        (Operation::Sync, Bug::SyncErrorsSwallowed, "operations"),
        (Operation::Resize, Bug::WriteErrorsSwallowed, "operations"),
        (Operation::Sync, Bug::HalfMade, "does not open"),
        (Operation::Write, Bug::PoisonForgotten, "unknown after"),
    ];
    for (operation, bug, words) in bugs {
        // The same faults without the bug are the tests below: they pass.
        let seen = catch_unwind(|| try_each(&Case::usual(), operation, Fault::Error, bug))
            .expect_err("a bug is seen");
        let seen = seen.downcast::<String>().expect("a message");
        assert!(seen.contains(words), "seen by what was found: {seen}");
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
}

#[test]
fn a_write_without_room_loses_nothing_acknowledged() {
    fail(Operation::Write, Fault::Full);
}

#[test]
fn a_write_that_is_cut_short_loses_nothing_acknowledged() {
    fail(Operation::Write, Fault::Short(40));
}

#[test]
fn a_write_that_is_torn_loses_nothing_acknowledged() {
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
    let mut records = 0;
    for seed in 0..share(60) {
        let seed = seed + round_seed();
        let within = Within {
            capacity_max: 1 << 24,
            durable: true,
            ..Within::file(3 << 20)
        };
        let options = hash_options(&mut Random::new(!seed), &within);
        let _shown = case(seed, &options);
        records += fill_and_make_room(&options);
    }
    tried_at_least(records, 60 * 4000, "records around full storages");
}

/// Fills a storage that cannot grow, and fills on when it can; how many records there are then.
fn fill_and_make_room(options: &CreateOptions) -> u64 {
    let memory = Memory::new(1 << 24).expect("memory");
    let db = HashDb::create_on(Arc::clone(&memory) as Arc<dyn Storage>, options).expect("a store");
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
    // Runs of one byte are short when they are compressed.
    let error = (2000..200_000)
        .find_map(|number| put(&mut model, number).err())
        .expect("it is full at last");
    assert_eq!(error.kind(), Kind::Full, "{error}");
    assert_eq!(
        contents(&db).expect("a scan"),
        model,
        "what was acknowledged is there"
    );
    memory.set_limit(1 << 24);
    for number in 200_000..202_000 {
        put(&mut model, number).expect("there is room again");
    }
    assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    db.close().expect("it closes");
    let db = HashDb::open_on(memory, &options.opening).expect("it opens again");
    assert_eq!(contents(&db).expect("a scan"), model);
    model.len() as u64
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
    let options = CreateOptions::new().capacity(1 << 40);
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
    let db = HashDb::open(&file, &options.opening).expect("it opens again");
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
