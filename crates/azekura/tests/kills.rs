//! A process may be killed at any moment: what it acknowledged is there when the file is opened again.
//!
//! A child of this program writes to a hash file and acknowledges each write through a pipe; it is killed
//! (SIGKILL) after a random number of acknowledgements, or at once, and the next child resumes with the same
//! file. So recoveries are killed too, and checkpoints, cleanings and compactions under way. After each kill
//! the file is verified: every acknowledged write, a batch whole or not, nothing that was never written. Other
//! children make files and copies until they are killed: each is there whole, or not at all. The configuration of each
//! file is drawn from its seed, with capacities down to the least, and that of each opening again.
//!
//! The cache of the system survives a kill: loss of power is another suite. Lines beginning `tried:` state how
//! much was tried.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use azekura::io::file::File;
use azekura::record::hash::{CreateOptions, HashDb, HashReader, OpenOptions, repair};
use azekura::testkit::configuration::{Within, hash_options, opening};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Edit, Engine, Kind, Persistent, Reader};

/// For the child: what decides the configuration, the file, the first number it writes, and what is wrong with it.
const SEED: &str = "AZEKURA_TEST_KILL_SEED";
const FILE: &str = "AZEKURA_TEST_KILL_FILE";
const FIRST: &str = "AZEKURA_TEST_KILL_FIRST";
const BUG: &str = "AZEKURA_TEST_KILL_BUG";
/// For a child that makes files: the folder.
const FOLDER: &str = "AZEKURA_TEST_KILL_FOLDER";

const SLOTS: u64 = 200;
const BATCHES: u64 = 8;
const BATCH: u64 = 4;

/// What a store may be: full, too.
const WITHIN: Within = Within {
    holds: None,
    ..Within::file(0)
};

/// The configuration of the file that is made under this seed. Its capacity is so small, or so large, that a full store is
/// seldom the largest one.
fn options(seed: u64) -> CreateOptions {
    let mut random = Random::new(!seed);
    let mut options = hash_options(&mut random, &WITHIN);
    if random.one_in(2) && options.segment_size != 0 {
        let least = HashDb::least_capacity(options.segment_size);
        options.opening.capacity = least + random.below(least / 4096) * 4096;
    }
    options
}

/// That of one of its openings.
fn options_of_opening(seed: u64, number: u64) -> OpenOptions {
    let created = options(seed);
    let next = opening(&mut Random::new(!seed ^ number << 20), &WITHIN, &created);
    next.capacity(created.opening.capacity)
}

/// What operation `number` does. The parent knows it, too.
#[derive(Clone, Copy)]
enum Work {
    Put(u64),
    Remove(u64),
    /// All keys of a batch get this number.
    Batch(u64),
    Checkpoint,
    Compact,
}

impl Work {
    /// Whether it stores records.
    fn stores(self) -> bool {
        matches!(self, Self::Put(_) | Self::Batch(_))
    }
}

fn work(number: u64) -> Work {
    let mut random = Random::new(number);
    match random.below(200) {
        0 => Work::Compact,
        1..3 => Work::Checkpoint,
        3..30 => Work::Remove(random.below(SLOTS)),
        30..60 => Work::Batch(random.below(BATCHES)),
        _ => Work::Put(random.below(SLOTS)),
    }
}

fn slot_key(slot: u64) -> Vec<u8> {
    format!("slot-{slot}").into_bytes()
}

fn batch_key(batch: u64, part: u64) -> Vec<u8> {
    format!("batch-{batch}-{part}").into_bytes()
}

/// The value that operation `number` puts: its number, and bytes that follow from it. In some stretches of operations they are
/// so long that a small store becomes full.
fn value(number: u64) -> Vec<u8> {
    let mut random = Random::new(number ^ 0x5555);
    let long = if number / 256 % 4 == 3 { 4 } else { 60 };
    let len = if random.one_in(long) {
        5000
    } else {
        random.index(150)
    };
    let mut value = number.to_le_bytes().to_vec();
    value.extend(random.bytes(len));
    value
}

/// Does operation `number`; whether it was done, and not refused because the store is full.
fn perform(db: &HashDb, number: u64, bug: &str) -> bool {
    let work = work(number);
    let done = match work {
        Work::Put(slot) => db.put(&slot_key(slot), &value(number)),
        Work::Remove(slot) => db.remove(&slot_key(slot)).map(drop),
        Work::Batch(batch) => {
            let keys: Vec<Vec<u8>> = (0..BATCH).map(|part| batch_key(batch, part)).collect();
            let value = value(number);
            if bug == "splits" {
                keys.iter().try_for_each(|key| db.put(key, &value))
            } else {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                db.update_many(&keys, &mut |shown| {
                    shown
                        .iter()
                        .map(|_| Edit::Put(value.clone().into()))
                        .collect()
                })
            }
        }
        Work::Checkpoint => db.checkpoint(),
        Work::Compact => db.compact(&mut |_, _| ()),
    };
    match done {
        Ok(()) => true,
        // Only what stores more is refused.
        Err(error) if error.kind() == Kind::Full && work.stores() => false,
        Err(error) => panic!("operation {number}: {error}"),
    }
}

/// The child: opens, reports it, and works until it is killed.
fn work_until_killed(file: &Path) {
    let number = |name| {
        std::env::var(name)
            .expect("a variable")
            .parse()
            .expect("a number")
    };
    let first: u64 = number(FIRST);
    let bug = std::env::var(BUG).unwrap_or_default();
    let db = HashDb::open(file, &options_of_opening(number(SEED), first)).expect("it opens");
    let mut out = std::io::stderr();
    let mut acknowledge = |byte: u8| {
        // There is no reader any more when the parent has failed.
        if out.write_all(&[byte]).is_err() {
            std::process::exit(0);
        }
    };
    acknowledge(OPEN);
    for number in first.. {
        if bug == "early" {
            acknowledge(DONE);
            perform(&db, number, &bug);
        } else {
            let done = perform(&db, number, &bug);
            acknowledge(if done { DONE } else { REFUSED });
        }
    }
}

/// What the child writes when the file is open, for each operation that was done, and for each that was refused.
const OPEN: u8 = b'o';
const DONE: u8 = b'.';
const REFUSED: u8 = b'f';

/// A child at work. It writes `OPEN`, and `DONE` or `REFUSED` for each operation, to its error output; anything else is a panic.
struct Worker {
    child: Child,
    output: ChildStderr,
}

impl Worker {
    fn start(file: &Path, seed: u64, first: u64, bug: &str) -> Self {
        let (seed, first) = (seed.to_string(), first.to_string());
        let mut child = Self::child(&[
            (SEED, seed.as_ref()),
            (FILE, file.as_os_str()),
            (FIRST, first.as_ref()),
            (BUG, bug.as_ref()),
        ]);
        let output = child.stderr.take().expect("its error output");
        Self { child, output }
    }

    /// This program as a child; these variables state what it does.
    fn child(variables: &[(&str, &OsStr)]) -> Child {
        Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "the_child_of_a_test_works_until_it_is_killed",
                "--nocapture",
            ])
            .envs(variables.iter().copied())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a child")
    }

    /// Kills it once it has written `least` bytes; returns all it wrote.
    fn kill(mut self, least: usize) -> Result<Vec<u8>, String> {
        let mut output = vec![0; least];
        let whole = self.output.read_exact(&mut output);
        self.child.kill().expect("it is killed");
        self.output
            .read_to_end(&mut output)
            .expect("what it wrote before");
        self.child.wait().expect("its end");
        let words = output.strip_prefix(&[OPEN]).unwrap_or(&output);
        if whole.is_err() || words.iter().any(|byte| ![DONE, REFUSED].contains(byte)) {
            return Err(format!(
                "the child failed: {}",
                String::from_utf8_lossy(&output).trim_matches(['.', 'f', '\0'])
            ));
        }
        Ok(output)
    }
}

#[test]
fn the_child_of_a_test_works_until_it_is_killed() {
    // Without a file there is no parent.
    if let Some(file) = std::env::var_os(FILE) {
        work_until_killed(Path::new(&file));
    }
    if let Some(folder) = std::env::var_os(FOLDER) {
        make_until_killed(Path::new(&folder));
    }
}

/// The configuration of a child that makes files, in which twenty records fit.
fn options_of_maker(seed: u64) -> CreateOptions {
    hash_options(&mut Random::new(!seed), &Within::file(100_000))
}

/// The child that makes files: a new one, a copy of it, what a reader and a repair make of that.
fn make_until_killed(folder: &Path) {
    let early = std::env::var(BUG).is_ok_and(|bug| bug == "early");
    let seed = std::env::var(SEED).expect("a seed").parse();
    let options = options_of_maker(seed.expect("a number"));
    let mut out = std::io::stderr();
    let mut made = |file: &Path| {
        let name = file.file_name().expect("a name").to_string_lossy();
        if writeln!(out, "{name}").is_err() {
            std::process::exit(0);
        }
    };
    for number in 0.. {
        let [new, copy, read, repaired] =
            ["new", "copy", "read", "repaired"].map(|kind| folder.join(format!("{kind}-{number}")));
        let db = if early {
            let file = File::create(&new).expect("a file that is no store yet");
            HashDb::create_on(Arc::new(file), &options).expect("a store")
        } else {
            HashDb::create(&new, &options).expect("a new file")
        };
        made(&new);
        for number in 0..20 {
            db.put(&slot_key(number), &value(number)).expect("a put");
        }
        db.copy_to(&copy, &mut |_, _| ()).expect("a copy");
        made(&copy);
        let reader = HashReader::open(&new).expect("a reader");
        let reader = reader.as_persistent().expect("it can be copied");
        reader.copy_to(&read, &mut |_, _| ()).expect("a copy");
        made(&read);
        db.close().expect("it closes");
        repair(&copy, &repaired, &mut |_, _| ()).expect("a repair");
        made(&repaired);
    }
}

/// Kills a child that makes files after `least` of them; how many files there were then.
fn kill_maker(seed: u64, least: usize, within: Duration, bug: &str) -> Result<usize, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let text = seed.to_string();
    let mut child = Worker::child(&[
        (SEED, text.as_ref()),
        (FOLDER, folder.path().as_os_str()),
        (BUG, bug.as_ref()),
    ]);
    let mut output = BufReader::new(child.stderr.take().expect("its error output"));
    let mut text = String::new();
    for _ in 0..least {
        output.read_line(&mut text).expect("a name");
    }
    std::thread::sleep(within);
    child.kill().expect("it is killed");
    output.read_to_string(&mut text).expect("the rest");
    child.wait().expect("its end");
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .expect("the folder")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into())
        .collect();
    // What has a name that begins with a dot was not finished (where files cannot be without one).
    names.retain(|name| !name.starts_with('.'));
    let whole: Vec<&str> = text.lines().collect();
    if let Some(absent) = whole.iter().find(|name| !names.iter().any(|n| n == *name)) {
        return Err(format!("{absent:?} was made and is not there"));
    }
    for name in &names {
        let db = HashDb::open(folder.path().join(name), &options_of_maker(seed).opening)
            .map_err(|error| format!("{name} does not open: {error}"))?;
        let report = db
            .check(&mut |_, _| ())
            .map_err(|error| error.to_string())?;
        let wanted = if name.starts_with("new-") { 0 } else { 20 };
        if !report.is_sound() || db.count() < wanted {
            return Err(format!("{name} has {} records: {report:?}", db.count()));
        }
    }
    Ok(names.len())
}

#[test]
fn making_files_is_killed_anywhere() {
    let mut random = Random::new(3 + round_seed());
    let (mut files, mut children) = (0, 0);
    for seed in 0..share(150) {
        let seed = seed + round_seed();
        let _shown = case(seed, &options_of_maker(seed));
        let within = Duration::from_micros(random.below(4000));
        files += kill_maker(seed, random.index(9), within, "").expect("whole files");
        children += 1;
    }
    tried_at_least(children, 150, "children killed while they make files");
    tried_at_least(files as u64, 3 * 150, "files made by killed children");
}

#[test]
fn files_that_are_named_before_they_are_whole_are_seen() {
    let mut random = Random::new(4);
    let seen = (0..400).find_map(|seed| {
        let within = Duration::from_micros(random.below(1000));
        kill_maker(seed, 4 * random.index(3), within, "early").err()
    });
    let seen = seen.expect("a bug is seen");
    assert!(seen.contains("does not open"), "{seen}");
    tried(&format!("named early is seen: {seen}"));
}

/// What the file must hold, and what was under way.
#[derive(Default)]
struct Ledger {
    slots: BTreeMap<u64, Vec<u8>>,
    batches: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Ledger {
    /// What the child wrote, but for its first word: the refused operations changed nothing.
    fn acknowledged(&mut self, words: &[u8]) {
        for (number, word) in (self.next..).zip(words) {
            if *word == DONE {
                self.apply(number);
            }
        }
        self.next += words.len() as u64;
    }

    fn apply(&mut self, number: u64) {
        match work(number) {
            Work::Put(slot) => drop(self.slots.insert(slot, value(number))),
            Work::Remove(slot) => drop(self.slots.remove(&slot)),
            Work::Batch(batch) => drop(self.batches.insert(batch, value(number))),
            Work::Checkpoint | Work::Compact => {}
        }
    }

    /// Compares with the store; the operation under way may have happened, and is then taken in.
    fn verify(&mut self, db: &HashDb) -> Result<u64, String> {
        let get = |key: Vec<u8>| db.get(&key).map_err(|error| error.to_string());
        let mut compared = 0;
        let under_way = self.next;
        let mut happened = false;
        for slot in 0..SLOTS {
            let found = get(slot_key(slot))?;
            if found.as_ref() != self.slots.get(&slot) {
                let legal = match work(under_way) {
                    Work::Put(of) => of == slot && found == Some(value(under_way)),
                    Work::Remove(of) => of == slot && found.is_none(),
                    _ => false,
                };
                if !legal {
                    return Err(format!("slot {slot} after {under_way} operations"));
                }
                happened = true;
            }
            compared += 1;
        }
        for batch in 0..BATCHES {
            let parts: Vec<Option<Vec<u8>>> = (0..BATCH)
                .map(|part| get(batch_key(batch, part)))
                .collect::<Result<_, _>>()?;
            if parts.iter().any(|part| *part != parts[0]) {
                return Err(format!("batch {batch} is there in part after {under_way}"));
            }
            if parts[0].as_ref() != self.batches.get(&batch) {
                let legal = matches!(work(under_way), Work::Batch(of) if of == batch)
                    && parts[0] == Some(value(under_way));
                if !legal {
                    return Err(format!("batch {batch} after {under_way} operations"));
                }
                happened = true;
            }
            compared += BATCH;
        }
        if happened {
            self.apply(under_way);
        }
        // Whether it happened or not: it is not done again.
        self.next += 1;
        let present = self.slots.len() as u64 + self.batches.len() as u64 * BATCH;
        if db.count() != present {
            return Err(format!("{} counted, {present} present", db.count()));
        }
        let report = db
            .check(&mut |_, _| ())
            .map_err(|error| error.to_string())?;
        if report.is_sound() {
            Ok(compared)
        } else {
            Err(format!("{:?}", report.damage))
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    kills: u64,
    /// Of these, before the child had reported that the file is open.
    before_open: u64,
    acknowledged: u64,
    /// Of these, refused because the store was full.
    refused: u64,
    compared: u64,
}

/// Kills children one after the other, all at work on the same file.
fn kill_children(kills: u64, seed: u64, bug: &str, counts: &mut Counts) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("killed.azh");
    let mut random = Random::new(seed);
    let mut ledger = Ledger::default();
    // Making the file is not among these moments: see `making_files_is_killed_anywhere`.
    let db = HashDb::create(&file, &options(seed)).expect("a new file");
    db.close().expect("it closes");
    for _ in 0..kills {
        // Some die before, or while, they recover what the one before left.
        let worker = Worker::start(&file, seed, ledger.next, bug);
        let at_once = random.one_in(3);
        let output = if at_once {
            std::thread::sleep(Duration::from_micros(random.below(6000)));
            worker.kill(0)?
        } else {
            worker.kill(1 + random.index(300))?
        };
        counts.kills += 1;
        let Some(words) = output.strip_prefix(&[OPEN]) else {
            counts.before_open += 1;
            continue;
        };
        counts.acknowledged += words.len() as u64;
        let refused = |word: &u8| u64::from(*word == REFUSED);
        counts.refused += words.iter().map(refused).sum::<u64>();
        ledger.acknowledged(words);
        let options = options_of_opening(seed, !ledger.next);
        let db = HashDb::open(&file, &options).map_err(|error| error.to_string())?;
        counts.compared += ledger.verify(&db)?;
        db.close().map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[test]
fn whatever_a_killed_process_acknowledged_is_there() {
    // So many in a row on one file; more files than that in a full run.
    const KILLS: u64 = 11;
    let mut counts = Counts::default();
    for seed in 0..share(100) {
        let seed = seed + round_seed();
        let _shown = case(seed, &options(seed));
        kill_children(KILLS, seed, "", &mut counts).expect("nothing is lost");
    }
    let what = format!("operations acknowledged by killed children: {counts:?}");
    tried_at_least(counts.acknowledged, 20_000, &what);
    assert!(
        counts.before_open > share(40) && counts.refused > share(100),
        "{counts:?}"
    );
}

#[test]
fn planted_bugs_are_seen_by_killing() {
    for bug in ["early", "splits"] {
        let failed =
            (7..37).find_map(|seed| kill_children(20, seed, bug, &mut Counts::default()).err());
        let failed = failed.expect("a bug is seen");
        assert!(failed.contains("after"), "seen by what was found: {failed}");
        tried(&format!("{bug} is seen: {failed}"));
    }
}
