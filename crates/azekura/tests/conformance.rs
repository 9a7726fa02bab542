//! The hash engine keeps every promise of the record contract, in each of its settings.
//!
//! The suite of `testkit::conformance` runs over files and memory, with the default options and under configurations that are
//! drawn from seeds, through `&dyn Engine` and by the methods of the engine's own. That the suite catches bugs is proved next to
//! it, on broken engines. Here also: what a reader of a file that another process or handle is writing
//! may see - every acknowledged write, whatever is cleaned, compacted and reused meanwhile.
//!
//! Crashes and damage are other suites. Lines beginning `tried:` state how much was tried.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::engine::{Bookmark, Damaged, Durability, Edit, Powered, Promise, Stats, Visit};
use azekura::io::memory::Memory;
use azekura::record::hash::{Compression, CreateOptions, HashDb, HashReader, OpenOptions};
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::conformance::Report;
use azekura::testkit::conformance::lengths::{LONG_CHECK, LONG_PAIRS};
use azekura::testkit::inherent::{Inherent, removals_of_many};
use azekura::testkit::suite::{case, demand, share, tried_at_least};
use azekura::testkit::{Effort, Random, conformance, round_seed, tried};
use azekura::{Engine, Reader, Result};

fn options(segment_size: u64, background: bool, compression: Compression) -> CreateOptions {
    CreateOptions::new()
        .segment_size(segment_size)
        .background(background)
        .compression(compression)
        .capacity(1 << 32)
}

/// Comparisons of one run of the suite, at least, in a full run.
const COMPARED: u64 = 60_000;

/// Runs the suite on stores in files of a folder of their own, as `wrap` makes an engine of each; returns what was compared.
fn conform(
    effort: &Effort,
    options: &CreateOptions,
    wrap: fn(HashDb) -> Box<dyn Engine>,
) -> Report {
    let folder = tempfile::tempdir().expect("a folder");
    let number = AtomicU64::new(0);
    let make = || {
        let name = format!("{}.azh", number.fetch_add(1, Ordering::Relaxed));
        wrap(HashDb::create(folder.path().join(name), options).expect("a new file"))
    };
    let reopen = |engine: Box<dyn Engine>| {
        let file = engine.as_persistent().expect("a file").path().to_path_buf();
        drop(engine);
        wrap(HashDb::open(file, &options.opening).expect("it opens again"))
    };
    let report = conformance(&make, Some(&reopen), effort);
    report.unwrap_or_else(|failure| panic!("{options:?}: {failure}"))
}

fn as_it_is(db: HashDb) -> Box<dyn Engine> {
    Box::new(db)
}

fn by_its_methods(db: HashDb) -> Box<dyn Engine> {
    Box::new(Inherent::new(db))
}

#[test]
fn the_default_options_conform() {
    let report = conform(&Effort::quick(), &CreateOptions::default(), as_it_is);
    tried_at_least(
        report.total(),
        COMPARED,
        &format!("answers, default: {report}"),
    );
}

#[test]
fn the_methods_that_users_call_conform() {
    for options in [
        options(4096, true, Compression::None),
        CreateOptions::default(),
    ] {
        let report = conform(&Effort::quick(), &options, by_its_methods);
        let what = format!("answers of inherent methods: {report}");
        tried_at_least(report.total(), COMPARED, &what);
    }
    let make = || -> Box<dyn Engine> { Box::new(Inherent::new(StdHashDb::new())) };
    conforms_in_memory(&make);
    let make = || -> Box<dyn Engine> { Box::new(Inherent::new(StdTreeDb::new())) };
    conforms_in_memory(&make);
}

#[test]
fn removals_of_many_by_the_methods_that_users_call_are_those_of_the_model() {
    let mut removed = 0;
    for seed in 0..share(60) {
        let seed = seed + round_seed();
        let options = hash_options(&mut Random::new(!seed), &WITHIN);
        let _shown = case(seed, &options);
        let memory = Memory::new(1 << 32).expect("memory");
        let db = HashDb::create_on(memory, &options).expect("a new store");
        removed += removals_of_many(&db, seed);
        removed += removals_of_many(&StdHashDb::new(), seed);
        removed += removals_of_many(&StdTreeDb::new(), seed);
    }
    tried_at_least(removed, 100_000, "records removed many at once");
}

/// What fits is what the longest key needs.
const WITHIN: Within = Within {
    capacity_max: 1 << 32,
    ..Within::file(32 << 20)
};

#[test]
fn every_drawn_configuration_conforms() {
    const CONFIGURATIONS: u64 = 40;
    let mut compared = 0;
    for seed in 0..share(CONFIGURATIONS) {
        let seed = seed + round_seed();
        let options = hash_options(&mut Random::new(!seed), &WITHIN);
        let _shown = case(seed, &options);
        let effort = Effort {
            sequences: 20,
            histories: 10,
            seed,
            ..Effort::QUICK
        };
        let wrap = if seed.is_multiple_of(3) {
            by_its_methods
        } else {
            as_it_is
        };
        compared += conform(&effort, &options, wrap).total();
    }
    let what = format!("answers under {} configurations", share(CONFIGURATIONS));
    tried_at_least(compared, CONFIGURATIONS * 10_000, &what);
}

#[test]
fn stores_in_memory_of_drawn_configurations_conform() {
    for seed in 0..2 {
        let seed = seed + 1000 + round_seed();
        let within = Within {
            durable: true,
            ..WITHIN
        };
        let options = hash_options(&mut Random::new(!seed), &within);
        let _shown = case(seed, &options);
        let make = || -> Box<dyn Engine> {
            let memory = Memory::new(1 << 32).expect("memory");
            Box::new(HashDb::create_on(memory, &options).expect("a new store"))
        };
        drop(conforms_without_a_file(&make));
    }
}

/// `Powered` borrows its engine; the suite wants to own one.
struct OwnPowered(HashDb);

impl Reader for OwnPowered {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        Powered(&self.0).read(key, visit)
    }
    fn read_many(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        Powered(&self.0).read_many(keys, visit)
    }
    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> Result<Option<Bookmark>> {
        Powered(&self.0).scan_past(from, visit, damaged)
    }
    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        Powered(&self.0).bookmark_at(key)
    }
    fn count(&self) -> u64 {
        Powered(&self.0).count()
    }
    fn stats(&self) -> Stats {
        Powered(&self.0).stats()
    }
    fn promise(&self) -> Promise {
        Powered(&self.0).promise()
    }
}

impl Engine for OwnPowered {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> Result<()> {
        Powered(&self.0).update(key, decide)
    }
    fn update_many<'a>(
        &self,
        keys: &[&[u8]],
        decide: &mut dyn FnMut(&[Option<&[u8]>]) -> Vec<Edit<'a>>,
    ) -> Result<()> {
        Powered(&self.0).update_many(keys, decide)
    }
    fn put_many(&self, records: &[(&[u8], &[u8])]) -> Result<()> {
        Powered(&self.0).put_many(records)
    }
    fn clear(&self) -> Result<()> {
        Powered(&self.0).clear()
    }
}

#[test]
fn an_engine_that_syncs_every_write_conforms_and_says_so() {
    let make = || -> Box<dyn Engine> {
        let memory = Memory::new(1 << 30).expect("memory");
        let options = options(4096, true, Compression::None);
        Box::new(OwnPowered(
            HashDb::create_on(memory, &options).expect("a new store"),
        ))
    };
    assert_eq!(make().promise().durability, Some(Durability::Power));
    conforms_in_memory(&make);
}

// What follows is about readers concurrent with a writer.

const KEYS: u64 = 300;
/// Keys from here on are written once.
const STABLE: u64 = 1000;

/// Every seventh version of a key is its absence; the others are a value that only it has.
fn value_of(key: u64, version: u64) -> Option<Vec<u8>> {
    (!version.is_multiple_of(7)).then(|| {
        let mut value = [key.to_le_bytes(), version.to_le_bytes()].concat();
        let len = 16 + (Random::new(key << 40 | version).below(300) as usize);
        value.extend(Random::new(version).bytes(len));
        value
    })
}

fn write(db: &HashDb, key: u64, version: u64) -> Result<()> {
    match value_of(key, version) {
        Some(value) => db.put(&key.to_le_bytes(), &value),
        None => db.remove(&key.to_le_bytes()).map(drop),
    }
}

/// Fails unless `found` is a version from `least` to `most` of the key.
fn judge(key: u64, found: Option<&[u8]>, least: u64, most: u64) {
    let Some(found) = found else {
        let absent = (least..=most).any(|version| version.is_multiple_of(7));
        assert!(
            absent,
            "key {key} is absent, but was present from {least} to {most}"
        );
        return;
    };
    let version = version_of(found);
    assert!(
        (least..=most).contains(&version),
        "key {key}: {version}, not {least} to {most}"
    );
    assert_eq!(value_of(key, version).as_deref(), Some(found), "key {key}");
}

/// What a reader answers for `key` once it is not older than `least`. A write on its way - here the background worker's, which moves
/// records - hides from a reader what follows it in the log, for a moment: the reader tries again, a bounded number of times.
fn read_current(
    reader: &HashReader,
    key: u64,
    least: u64,
    most: &dyn Fn() -> u64,
) -> Option<Vec<u8>> {
    const TIMES: u64 = 1_000_000;
    let mut found = None;
    for _ in 0..TIMES {
        reader
            .read(&key.to_le_bytes(), &mut |value| {
                found = value.map(<[u8]>::to_vec);
            })
            .expect("a read");
        let is_old = match &found {
            Some(value) => version_of(value) < least,
            None => !(least..=most()).any(|version| version.is_multiple_of(7)),
        };
        if !is_old {
            break;
        }
        std::thread::yield_now();
    }
    found
}

fn version_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[8..16].try_into().expect("sixteen bytes and more"))
}

/// Overwrites keys until `stop`, with all that makes a writer reuse room. Tells each write before and
/// after it is made.
fn churn(
    db: &HashDb,
    random: &mut Random,
    versions: &mut HashMap<u64, u64>,
    before: &mut dyn FnMut(u64, u64),
    after: &mut dyn FnMut(u64, u64),
    number: u64,
) {
    for step in 0..number {
        let key = random.below(KEYS);
        let version = versions.entry(key).or_insert(0);
        *version += 1;
        before(key, *version);
        write(db, key, *version).expect("a write");
        after(key, *version);
        match step % 20_000 {
            3000 | 9000 | 15_000 => db.checkpoint().expect("a checkpoint"),
            12_000 => db.compact(&mut |_, _| ()).expect("a compaction"),
            _ => {}
        }
    }
}

/// What a file may be that readers follow: of segments so small that they are used again soon.
const FOLLOWED: Within = Within {
    capacity_max: 1 << 26,
    segment_size_max: 64 << 10,
    ..Within::file(1 << 20)
};

fn with_stable_keys(file: &Path, options: &CreateOptions) -> HashDb {
    let db = HashDb::create(file, options).expect("a new file");
    for key in STABLE..STABLE + 100 {
        write(&db, key, 1).expect("a write");
    }
    db
}

#[test]
fn a_reader_in_the_same_process_sees_every_acknowledged_write() {
    const WRITES: u64 = 300_000;
    const FILES: u64 = 6;
    let writes = share(WRITES) / FILES;
    let (mut written, mut reads) = (0, 0);
    for seed in 0..FILES {
        let seed = 2000 + seed + round_seed();
        let options = hash_options(&mut Random::new(!seed), &FOLLOWED);
        let _shown = case(seed, &options);
        let of_file = read_concurrently_with_a_writer(seed, &options, writes);
        (written, reads) = (written + of_file.0, reads + of_file.1);
    }
    tried_at_least(written, WRITES, &format!("writes during {reads} reads"));
}

/// A reader of a file concurrently with a writer in the process; how many writes were acknowledged, and how many reads were judged.
fn read_concurrently_with_a_writer(seed: u64, options: &CreateOptions, writes: u64) -> (u64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("read.azh");
    let db = with_stable_keys(&file, options);
    let acked: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let begun: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let (mut reads, mut scans) = (0u64, 0u64);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut versions = HashMap::new();
            churn(
                &db,
                &mut Random::new(seed),
                &mut versions,
                &mut |key, version| begun[key as usize].store(version, Ordering::SeqCst),
                &mut |key, version| {
                    acked[key as usize].store(version, Ordering::SeqCst);
                    written.fetch_add(1, Ordering::Relaxed);
                },
                writes,
            );
            stop.store(true, Ordering::SeqCst);
        });
        let reader = HashReader::open(&file).expect("a reader");
        let mut random = Random::new(!seed);
        while !stop.load(Ordering::SeqCst) {
            for _ in 0..200 {
                let key = random.below(KEYS);
                let least = acked[key as usize].load(Ordering::SeqCst);
                let most = || begun[key as usize].load(Ordering::SeqCst);
                let found = read_current(&reader, key, least, &most);
                judge(key, found.as_deref(), least, most());
                reads += 1;
            }
            let mut shown = HashSet::new();
            let least: Vec<u64> = acked
                .iter()
                .map(|version| version.load(Ordering::SeqCst))
                .collect();
            // A scan follows the log as far as a read does: first a read of each that is current.
            for (key, least) in least.iter().enumerate() {
                let most = || begun[key].load(Ordering::SeqCst);
                read_current(&reader, key as u64, *least, &most);
            }
            reader
                .scan(None, &mut |key, value| {
                    let key = u64::from_le_bytes(key.try_into().expect("eight bytes"));
                    // A scan shows what was current at some moment of it, not at its end.
                    let (from, to) = if key >= STABLE {
                        (1, 1)
                    } else {
                        (
                            least[key as usize],
                            begun[key as usize].load(Ordering::SeqCst),
                        )
                    };
                    judge(key, Some(value), from, to);
                    assert!(shown.insert(key), "key {key} is shown twice");
                    ControlFlow::Continue(())
                })
                .expect("a scan");
            let stable = shown.iter().filter(|key| **key >= STABLE).count();
            assert_eq!(stable, 100, "records present all the time are all shown");
            scans += 1;
        }
    });
    db.close().expect("it closes");
    assert!(reads > 200 && scans > 1, "{reads} reads, {scans} scans");
    (written.into_inner(), reads)
}

/// Set for the child: the file to read. It answers "ok" or dies.
const READS: &str = "AZEKURA_TEST_READS";

#[test]
fn a_reader_in_another_process_sees_every_acknowledged_write() {
    if let Some(file) = std::env::var_os(READS) {
        read_what_is_told(Path::new(&file));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("read.azh");
    let options = hash_options(&mut Random::new(round_seed()), &FOLLOWED);
    let _shown = case(round_seed(), &options);
    let db = with_stable_keys(&file, &options);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "a_reader_in_another_process_sees_every_acknowledged_write",
            "--nocapture",
        ])
        .env(READS, &file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut to = std::io::BufWriter::new(child.stdin.take().expect("its input"));
    let mut versions = HashMap::new();
    let mut random = Random::new(9 + round_seed());
    for _ in 0..150 {
        // What was acknowledged is reported at once, so that the child reads while more is written.
        let mut told = Vec::new();
        churn(
            &db,
            &mut random,
            &mut versions,
            &mut |_, _| (),
            &mut |key, version| writeln!(told, "{key} {version}").expect("memory"),
            400,
        );
        db.checkpoint().expect("a checkpoint");
        to.write_all(&told).expect("the child listens");
    }
    drop(to);
    let output = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let read = said
        .lines()
        .find_map(|line| line.strip_prefix("read "))
        .expect("a count");
    assert_eq!(read, "60000");
    tried_at_least(
        60_000,
        60_000,
        "reads concurrently with a writer in another process",
    );
}

fn read_what_is_told(file: &Path) {
    let reader = HashReader::open(file).expect("a reader");
    let mut read = 0u64;
    for line in BufReader::new(std::io::stdin()).lines() {
        let line = line.expect("a line");
        let (key, version) = line.split_once(' ').expect("two numbers");
        let (key, least): (u64, u64) = (
            key.parse().expect("a key"),
            version.parse().expect("a version"),
        );
        // The writer went on meanwhile: how far is not known here.
        let most = u64::MAX >> 1;
        let found = read_current(&reader, key, least, &|| most);
        judge(key, found.as_deref(), least, most);
        read += 1;
    }
    writeln!(std::io::stdout(), "\nread {read}").expect("the parent listens");
}

#[test]
fn a_reader_that_is_left_behind_finds_its_way() {
    const ROUNDS: u64 = 3000;
    const EACH: u64 = 50;
    let mut reads = 0;
    for seed in 0..share(ROUNDS) / EACH {
        let seed = 3000 + seed + round_seed();
        let options = hash_options(&mut Random::new(!seed), &FOLLOWED).background(false);
        let _shown = case(seed, &options);
        reads += read_far_behind(seed, &options, EACH);
    }
    let what = format!("reads, each {KEYS} after some rewritings of the file");
    tried_at_least(reads, ROUNDS * KEYS, &what);
}

/// Reads by one handle, after each of so many rounds of writes; how many were judged.
fn read_far_behind(seed: u64, options: &CreateOptions, rounds: u64) -> u64 {
    let memory = Memory::new(1 << 26).expect("memory");
    let db = HashDb::create_on(Arc::clone(&memory) as Arc<_>, options).expect("a new store");
    let mut versions = HashMap::new();
    let mut random = Random::new(seed);
    let reader = HashReader::open_on(Arc::clone(&memory) as Arc<_>).expect("a reader");
    let mut reads = 0;
    for _ in 0..rounds {
        // Some file's worth of overwriting passes between two reads of the same handle. Where it ends, the
        // place where the reader's log ended may be retired, in use again, or blank for its next use,
        // which once was taken for the end of the log.
        let writes = 1000 + random.below(2000);
        churn(
            &db,
            &mut random,
            &mut versions,
            &mut |_, _| (),
            &mut |_, _| (),
            writes,
        );
        for key in 0..KEYS {
            let version = versions.get(&key).copied().unwrap_or(0);
            let mut found = None;
            reader
                .read(&key.to_le_bytes(), &mut |value| {
                    found = value.map(<[u8]>::to_vec);
                })
                .expect("a read");
            judge(key, found.as_deref(), version, version);
            reads += 1;
        }
    }
    reads
}

#[test]
fn who_looks_at_a_value_keeps_nobody_from_renewing_the_reader() {
    let memory = Memory::new(1 << 26).expect("memory");
    let db = HashDb::create_on(
        Arc::clone(&memory) as Arc<_>,
        &options(4096, false, Compression::None),
    )
    .expect("a new store");
    let reader = HashReader::open_on(Arc::clone(&memory) as Arc<_>).expect("a reader");
    let begun_at = |reader: &HashReader| {
        let mut all = reader.inspect().into_iter();
        all.find(|(name, _)| *name == "replay_from")
            .expect("where it began")
    };
    let mut looks = 0;
    for round in 1..=5 {
        write(&db, STABLE, round).expect("a write");
        let before = begun_at(&reader);
        reader
            .read(&STABLE.to_le_bytes(), &mut |value| {
                // While this closure runs, others are left behind, renew the view and read.
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut versions = HashMap::new();
                        let quiet: &mut dyn FnMut(u64, u64) = &mut |_, _| ();
                        let mut random = Random::new(round);
                        churn(
                            &db,
                            &mut random,
                            &mut versions,
                            quiet,
                            &mut |_, _| (),
                            20_000,
                        );
                        for (key, _) in versions {
                            reader
                                .read(&key.to_le_bytes(), &mut |_| ())
                                .expect("a read");
                        }
                    });
                });
                assert_ne!(begun_at(&reader), before, "the view was renewed");
                judge(STABLE, value, round, round);
                reader
                    .read(&STABLE.to_le_bytes(), &mut |value| {
                        judge(STABLE, value, round, round);
                        looks += 1;
                    })
                    .expect("a read inside a read");
            })
            .expect("a read");
    }
    assert_eq!(looks, 5);
    tried_at_least(
        looks,
        5,
        "reads of a value, during each of which the reader was renewed",
    );
}

// What follows is about engines in memory.

/// What takes long values over each other counts them.
fn conforms_in_memory(make: &dyn Fn() -> Box<dyn Engine>) {
    let report = conforms_without_a_file(make);
    let pairs = report.counted(LONG_CHECK);
    demand(pairs, LONG_PAIRS, "pairs of long values");
}

fn conforms_without_a_file(make: &dyn Fn() -> Box<dyn Engine>) -> Report {
    let report = conformance(make, None, &Effort::quick()).expect("memory");
    tried_at_least(report.total(), COMPARED, &format!("answers: {report}"));
    report
}

#[test]
fn the_standard_hash_conforms() {
    conforms_in_memory(&|| Box::new(StdHashDb::new()));
}

#[test]
fn the_standard_tree_conforms() {
    conforms_in_memory(&|| Box::new(StdTreeDb::new()));
}

/// A handle's other reads once brought the copied view up to date while it was copied: the copy had one half of an
/// update of two records.
#[test]
fn a_readers_copy_is_of_one_moment_while_others_read() {
    const RECORDS: u64 = 3000;
    const COPIES: u64 = 8;
    // A copy is refused as locked concurrently with a writer that renews the file under its reader again and again.
    const TRIES: u64 = 1000;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("moving.azh");
    let db = HashDb::create(&file, &options(1 << 20, true, Compression::None)).expect("a file");
    // Pairs that are always equal, spread over the whole order of a scan.
    let keys: Vec<[Vec<u8>; 2]> = (0..RECORDS)
        .map(|n| [0, 1].map(|half| format!("{half}-{n}").into_bytes()))
        .collect();
    let write = |round: u64| {
        for [one, other] in &keys {
            let value = round.to_le_bytes();
            db.update_many(&[one, other], &mut |_| {
                vec![Edit::put(&value), Edit::put(&value)]
            })
            .expect("an update");
        }
    };
    write(0);
    let reader = HashReader::open(&file).expect("a reader");
    let stop = AtomicBool::new(false);
    let (copies, torn) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 1;
            while !stop.load(Ordering::Relaxed) {
                write(round);
                round += 1;
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                reader.read(b"0-0", &mut |_| ()).expect("a read");
            }
        });
        let (mut copies, mut torn) = (0, None);
        for copy in 0..TRIES {
            if copies == COPIES {
                break;
            }
            let target = folder.path().join(format!("{copy}.azh"));
            match azekura::Persistent::copy_to(&reader, &target, &mut |_, _| ()) {
                Ok(()) => {}
                Err(error) if error.kind() == azekura::Kind::Locked => continue,
                Err(error) => {
                    torn = Some(format!("a copy failed: {error}"));
                    break;
                }
            }
            let copied = match HashDb::open(&target, &OpenOptions::default()) {
                Ok(copied) => copied,
                Err(error) => {
                    torn = Some(format!("copy {copy} does not open: {error}"));
                    break;
                }
            };
            copies += 1;
            let differs = |[one, other]: &&[Vec<u8>; 2]| {
                copied.get(one).expect("a get") != copied.get(other).expect("a get")
            };
            torn = keys
                .iter()
                .find(differs)
                .map(|pair| format!("{pair:?} of copy {copy}"));
            if torn.is_some() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        (copies, torn)
    });
    assert_eq!(torn, None);
    tried(&format!(
        "{copies} copies by a reader concurrent with a writer of pairs and another thread's reads"
    ));
    assert_eq!(copies, COPIES, "of {TRIES}");
}
