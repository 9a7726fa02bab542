//! Threads that change, read and scan one tree, whose pages give way, divide and join, while checkpoints are made; and kills
//! in the middle of that.
//!
//! Each writer has keys of its own and notes in a file of its own what it begins and what was acknowledged; readers verify that a value
//! belongs to its key and does not go back. All of it runs in a child, which is killed at some moment; the file is opened, and
//! of each key it must hold what was acknowledged, or what was begun since. Then the next child continues with it.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use azekura::engine::{Engine, Persistent, Reader};
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Edit, order::Order};

use super::{kill_after, options};

/// For the child: the file, and what decides the configuration.
const FILE: &str = "AZEKURA_TEST_TREE_FILE";
const SEED: &str = "AZEKURA_TEST_TREE_SEED";

/// A key of a writer.
fn key(writer: u64, number: u64) -> Vec<u8> {
    // Keys of all writers are neighbours.
    format!("{number:06}-{writer}").into_bytes()
}

/// A value that states its key and its version.
fn value(writer: u64, number: u64, version: u64) -> Vec<u8> {
    let mut value = format!("{writer} {number} {version} ").into_bytes();
    let len = match (number + version) % 50 {
        0 => 3000,
        len => len as usize * 4,
    };
    value.resize(value.len() + len, b'v');
    value
}

fn version_of(writer: u64, number: u64, value: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(value);
    let mut words = text.split(' ');
    assert_eq!(words.next(), Some(&writer.to_string()[..]));
    assert_eq!(words.next(), Some(&number.to_string()[..]));
    let version = words.next().unwrap().parse().unwrap();
    assert_eq!(value, self::value(writer, number, version));
    version
}

/// What each writer did: for each key, the version begun and the one acknowledged; even: removed. Kept in a file, which survives
/// the process.
struct Known {
    keys: u64,
    file: File,
}

impl Known {
    fn open(path: &Path, writers: u64, keys: u64) -> Self {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap();
        file.set_len(writers * keys * 16).unwrap();
        Self { keys, file }
    }

    fn at(&self, writer: u64, number: u64) -> u64 {
        (writer * self.keys + number) * 16
    }

    fn get(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn set(&self, at: u64, version: u64) {
        self.file.write_all_at(&version.to_le_bytes(), at).unwrap();
    }

    fn begun(&self, at: u64) -> u64 {
        self.get(at)
    }

    fn done(&self, at: u64) -> u64 {
        self.get(at + 8)
    }

    fn begin(&self, at: u64, version: u64) {
        self.set(at, version);
    }

    fn acknowledge(&self, at: u64, version: u64) {
        self.set(at + 8, version);
    }
}

fn write(db: &TreeDb, known: &Known, writer: u64, random: &mut Random) {
    let number = random.below(known.keys);
    let at = known.at(writer, number);
    let before = known.done(at);
    let is_there = before % 2 == 1;
    let next = if is_there && random.one_in(3) {
        before + 1
    } else if is_there {
        before + 2
    } else {
        before + 1
    };
    known.begin(at, next);
    let name = key(writer, number);
    if next % 2 == 0 {
        assert!(
            db.remove(&name).unwrap(),
            "{}",
            String::from_utf8_lossy(&name)
        );
    } else {
        let value = value(writer, number, next);
        match random.below(3) {
            0 => db
                .update(&name, &mut |present| {
                    let version = present.map(|value| version_of(writer, number, value));
                    assert_eq!(version.unwrap_or(0), if is_there { before } else { 0 });
                    Edit::Put(value.clone().into())
                })
                .unwrap(),
            _ => db.put(&name, &value).unwrap(),
        }
    }
    known.acknowledge(at, next);
}

/// Several keys of one writer at once.
fn write_many(db: &TreeDb, known: &Known, writer: u64, random: &mut Random) {
    let mut numbers: Vec<u64> = (0..3).map(|_| random.below(known.keys)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut edits = Vec::new();
    for number in &numbers {
        let at = known.at(writer, *number);
        let before = known.done(at);
        let next = before + 1 + before % 2;
        known.begin(at, next);
        edits.push((key(writer, *number), value(writer, *number, next), at, next));
    }
    let keys: Vec<&[u8]> = edits.iter().map(|(key, ..)| &key[..]).collect();
    db.update_many(&keys, &mut |_| {
        edits
            .iter()
            .map(|(_, value, ..)| Edit::Put(value.clone().into()))
            .collect()
    })
    .unwrap();
    for (.., at, next) in &edits {
        known.acknowledge(*at, *next);
    }
}

/// What the file of a killed process holds is what was acknowledged, or begun; it is what there is from now on.
fn judge(path: &Path, opening: &OpenOptions, writers: u64, known: &Known) {
    let db = TreeDb::open(path, opening).unwrap();
    let mut count = 0;
    for writer in 0..writers {
        for number in 0..known.keys {
            let at = known.at(writer, number);
            let (done, begun) = (known.done(at), known.begun(at));
            let found = db.get(&key(writer, number)).unwrap();
            count += u64::from(found.is_some());
            let found = found.map(|value| version_of(writer, number, &value));
            let is = match found {
                Some(version) => (done..=begun).contains(&version).then_some(version),
                // Removed, or never there.
                None => (done..=begun).find(|version| version % 2 == 0),
            };
            let Some(is) = is else {
                panic!(
                    "writer {writer}, key {number}: found {found:?}, acknowledged {done}, begun {begun}"
                );
            };
            known.begin(at, is);
            known.acknowledge(at, is);
        }
    }
    assert_eq!(db.count(), count);
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

/// What a seed decides.
struct Drawn {
    options: CreateOptions,
    writers: u64,
    keys: u64,
}

impl Drawn {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            options: options(&mut random, !seed.is_multiple_of(3)).order(Order::Lexical),
            writers: 1 + random.below(4),
            keys: *random.choose(&[50, 1000, 8000]),
        }
    }
}

/// All threads, until the process is killed.
fn work_until_killed(path: &Path, seed: u64) {
    let Drawn {
        options,
        writers,
        keys,
    } = Drawn::of(seed);
    let db = TreeDb::open_or_create(path, &options).unwrap();
    let known = Known::open(&path.with_extension("known"), writers, keys);
    let salt = u64::from(std::process::id());
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (db, known) = (&db, &known);
            let mut random = Random::new(seed ^ salt ^ writer << 40);
            scope.spawn(move || {
                ended(|| {
                    if random.one_in(10) {
                        write_many(db, known, writer, &mut random);
                    } else {
                        write(db, known, writer, &mut random);
                    }
                });
            });
        }
        for reader in 0..2 {
            let (db, known) = (&db, &known);
            let mut random = Random::new(seed ^ salt ^ reader << 50);
            scope.spawn(move || ended(|| read_some(db, known, writers, &mut random)));
        }
        let db = &db;
        let mut random = Random::new(seed ^ salt);
        scope.spawn(move || {
            ended(|| {
                if random.one_in(8) {
                    let report = db.check(&mut |_, _| {}).unwrap();
                    assert!(report.is_sound(), "{:?}", report.damage);
                }
                db.checkpoint().unwrap();
                db.maintain().unwrap();
                if random.one_in(6) {
                    db.compact(&mut |_, _| {}).unwrap();
                }
                db.sync(Durability::Power).unwrap();
                std::thread::sleep(Duration::from_millis(3));
            });
        });
    });
}

/// Does it again and again; a failure ends the process, with a message that the parent shows.
fn ended(mut act: impl FnMut()) {
    let act = AssertUnwindSafe(|| {
        loop {
            act();
        }
    });
    if std::panic::catch_unwind(act).is_err() {
        std::process::exit(3);
    }
}

#[test]
fn the_child_of_a_test_works_until_it_is_killed() {
    // Without a file there is no parent.
    if let (Some(file), Ok(seed)) = (std::env::var_os(FILE), std::env::var(SEED)) {
        work_until_killed(Path::new(&file), seed.parse().unwrap());
    }
}

/// This program as a child that works on a file.
fn child(path: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "threads::the_child_of_a_test_works_until_it_is_killed",
            "--nocapture",
        ])
        .env(FILE, path)
        .env(SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn threads_that_are_killed_lose_nothing() {
    let (mut changes, mut kills) = (0, 0);
    for round in 0..share(12) {
        let seed = round + round_seed();
        let drawn = Drawn::of(seed);
        let _shown = case(seed, &(&drawn.options, drawn.writers, drawn.keys));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let mut random = Random::new(seed);
        for _ in 0..4 {
            let running = Duration::from_millis(80 + random.below(300));
            kill_after(child(&path, seed), running);
            if !path.exists() {
                continue;
            }
            let known = Known::open(&path.with_extension("known"), drawn.writers, drawn.keys);
            judge(&path, &drawn.options.opening, drawn.writers, &known);
            changes += (0..drawn.writers * drawn.keys)
                .map(|at| known.done(at * 16))
                .sum::<u64>();
            kills += 1;
        }
    }
    let what = format!("processes killed while threads changed a tree, {changes} times in all");
    tried_at_least(kills, 40, &what);
}

fn read_some(db: &TreeDb, known: &Known, writers: u64, random: &mut Random) {
    let writer = random.below(writers);
    let number = random.below(known.keys);
    let at = known.at(writer, number);
    let done = known.done(at);
    let found = db.get(&key(writer, number)).unwrap();
    let begun = known.begun(at);
    match found.map(|value| version_of(writer, number, &value)) {
        Some(version) => assert!(
            (done..=begun).contains(&version),
            "{done} {version} {begun}"
        ),
        None => assert!(
            (done..=begun).any(|version| version % 2 == 0),
            "writer {writer}, key {number} is gone: {done} {begun}"
        ),
    }
    if random.one_in(50) {
        let mut last: Vec<u8> = Vec::new();
        let from = db.bookmark_at(&key(0, number));
        let mut left = 300;
        db.scan(Some(&from), &mut |key, value| {
            assert!(last.as_slice() < key);
            last = key.to_vec();
            let text = String::from_utf8_lossy(key).into_owned();
            let (number, writer) = text.split_once('-').unwrap();
            version_of(writer.parse().unwrap(), number.parse().unwrap(), value);
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
    }
}

/// Threads fill a store with values longer than a segment, and remove them, while another makes checkpoints and copies: what comes to
/// be empty is handed out once.
#[test]
fn a_full_store_of_long_values_hands_nothing_out_twice() {
    let (changes, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..share(20).max(3) {
        let seed = round + round_seed();
        let folder = tempfile::tempdir().unwrap();
        let opening = OpenOptions::new()
            .cache(256u64 << 10)
            .background(false)
            .capacity(8u64 << 20);
        let options = CreateOptions::new()
            .segment_size(64u64 << 10)
            .opening(opening.clone());
        let _shown = case(seed, &options);
        let path = folder.path().join("a.azt");
        let db = TreeDb::create(&path, &options).unwrap();
        let begun = Instant::now();
        let is_over = || begun.elapsed() > Duration::from_millis(1200);
        let done = |done: azekura::Result<()>| match done {
            Ok(()) => drop(changes.fetch_add(1, Ordering::Relaxed)),
            Err(error) => {
                assert_eq!(error.kind(), azekura::Kind::Full, "{error}");
                refused.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (db, done, is_over, copy) = (&db, &done, &is_over, &folder.path().join("copy"));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    let random = &mut Random::new(seed * 7 + thread);
                    let mut removals = 30;
                    while !is_over() {
                        if random.one_in(100) {
                            removals = *random.choose(&[5, 30, 80]);
                        }
                        let key = |random: &mut Random| {
                            let mut key = format!("{thread}/{:03}", random.below(100)).into_bytes();
                            key.resize(480, b'k');
                            key
                        };
                        let name = key(random);
                        let len = *random.choose(&[300, 5000, 40_000, 100_000]);
                        let value = vec![thread as u8; random.index(len)];
                        if random.below(100) < removals {
                            done(db.remove(&name).map(drop));
                        } else {
                            done(db.put(&name, &value));
                        }
                        db.get(&key(random)).unwrap();
                    }
                });
            }
            scope.spawn(move || {
                let random = &mut Random::new(seed);
                while !is_over() {
                    std::thread::sleep(Duration::from_millis(random.below(30)));
                    match random.below(3) {
                        0 => {
                            let _ = std::fs::remove_file(copy);
                            done(db.copy_to(copy, &mut |_, _| {}));
                        }
                        1 => done(db.maintain()),
                        _ => done(db.checkpoint()),
                    }
                }
            });
        });
        let sound = |db: &TreeDb| match db.check(&mut |_, _| {}) {
            Ok(report) => assert!(report.is_sound(), "{:?}", report.damage),
            Err(error) => assert_eq!(error.kind(), azekura::Kind::Full, "{error}"),
        };
        sound(db);
        drop(TreeDb::open(copy, &OpenOptions::new()).map(|copy| sound(&copy)));
    }
    tried_at_least(changes.into_inner(), 2000, "changes in full stores");
    tried_at_least(
        refused.into_inner(),
        200,
        "changes that full stores refused",
    );
}
