//! A tree as a queue of many threads whose process is killed: each item comes out once, and none is lost.
//!
//! Each thread writes to a file of its own what it begins and what is done, and a kill keeps what was written. What is then in the store,
//! and what was taken out, must be what was put in: but for one item that a thread was taking out at each kill.

use std::collections::HashSet;
use std::fs::OpenOptions as Opening;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use azekura::Verbs;
use azekura::engine::{Persistent, Reader};
use azekura::record::tree::{OpenOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};

use super::{kill_after, opening, shaped};

/// For the child: the file, what decides its work, and how many were killed before it.
const FILE: &str = "AZEKURA_TEST_QUEUE_FILE";
const SEED: &str = "AZEKURA_TEST_QUEUE_SEED";
const KILL: &str = "AZEKURA_TEST_QUEUE_KILL";
const THREADS: u64 = 4;
const KILLS: u64 = 4;

/// What a thread writes, with the number of an item.
const PUT_BEGUN: u8 = b'+';
const PUT: u8 = b'p';
const POP_BEGUN: u8 = b'-';
const POPPED: u8 = b'o';
const EMPTY: u8 = b'e';

fn notes(path: &Path, thread: u64) -> PathBuf {
    path.with_extension(thread.to_string())
}

fn opening_of(seed: u64, kill: u64) -> OpenOptions {
    let mut random = Random::new(seed ^ kill << 20);
    let background = random.one_in(2);
    opening(&mut random, background)
}

/// One thread of the child: puts items of numbers of its own, and takes out any, also from the end.
fn work(db: &TreeDb, path: &Path, (seed, kill, thread): (u64, u64, u64)) {
    let mut notes = Opening::new()
        .append(true)
        .create(true)
        .open(notes(path, thread))
        .unwrap();
    let mut note = |what: u8, item: u64| {
        let mut line = [what; 9];
        line[1..].copy_from_slice(&item.to_le_bytes());
        notes.write_all(&line).unwrap();
    };
    let mut random = Random::new(seed ^ kill << 30 ^ thread << 40);
    for number in 0.. {
        // By turns it grows and shrinks.
        let puts = if number / 1000 % 2 == 0 { 6 } else { 4 };
        if random.below(10) < puts {
            let item = kill << 48 | thread << 40 | number;
            let mut value = item.to_le_bytes().to_vec();
            value.resize(8 + random.index(700), 7);
            note(PUT_BEGUN, item);
            db.push_last(&value, None).unwrap();
            note(PUT, item);
        } else {
            note(POP_BEGUN, 0);
            let popped = if random.one_in(5) {
                db.pop_last().unwrap()
            } else {
                db.pop_first().unwrap()
            };
            match popped {
                Some((_, value)) => note(POPPED, item_of(&value)),
                None => note(EMPTY, 0),
            }
        }
        if random.one_in(2000) {
            db.checkpoint().unwrap();
        }
        if random.one_in(6000) {
            db.compact(&mut |_, _| {}).unwrap();
        }
    }
}

fn item_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

#[test]
fn the_child_of_a_test_works_until_it_is_killed() {
    // Without a file there is no parent.
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (seed, kill) = (number(SEED), number(KILL));
    let db = TreeDb::open(&path, &opening_of(seed, kill)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, path) = (&db, &path);
            scope.spawn(move || {
                let work = || work(db, path, (seed, kill, thread));
                let work = std::panic::AssertUnwindSafe(work);
                if std::panic::catch_unwind(work).is_err() {
                    std::process::exit(3);
                }
            });
        }
    });
}

fn child(path: &Path, seed: u64, kill: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "queue::the_child_of_a_test_works_until_it_is_killed",
            "--nocapture",
        ])
        .env(FILE, path)
        .env(SEED, seed.to_string())
        .env(KILL, kill.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the threads noted.
#[derive(Default)]
struct Noted {
    begun: HashSet<u64>,
    put: HashSet<u64>,
    popped: HashSet<u64>,
    /// Pops that a kill came before the end of.
    cut: u64,
}

impl Noted {
    fn read(path: &Path) -> Self {
        let mut noted = Self::default();
        for thread in 0..THREADS {
            let bytes = std::fs::read(notes(path, thread)).unwrap_or_default();
            let mut is_popping = false;
            for line in bytes.chunks_exact(9) {
                let item = item_of(&line[1..]);
                // The next child begins anew.
                noted.cut += u64::from(is_popping && !matches!(line[0], POPPED | EMPTY));
                is_popping = line[0] == POP_BEGUN;
                match line[0] {
                    PUT_BEGUN => drop(noted.begun.insert(item)),
                    PUT => drop(noted.put.insert(item)),
                    POPPED => assert!(noted.popped.insert(item), "{item:x} came out twice"),
                    _ => {}
                }
            }
            noted.cut += u64::from(is_popping);
        }
        noted
    }
}

#[test]
fn each_item_of_a_queue_comes_out_once_across_kills() {
    let (mut kills, mut items) = (0, 0);
    for round in 0..share(20) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let options = shaped(&mut random).segment_size(*random.choose(&[64 << 10, 1 << 20]));
        let _shown = case(seed, &options);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        TreeDb::create(&path, &options).unwrap().close().unwrap();
        for kill in 0..KILLS {
            let running = Duration::from_millis(20 + random.below(300));
            kill_after(child(&path, seed, kill), running);
            let noted = Noted::read(&path);
            let db = TreeDb::open(&path, &opening_of(seed, !kill)).unwrap();
            let report = db.check(&mut |_, _| {}).unwrap();
            assert!(report.is_sound(), "{:?}", report.damage);
            let mut present = HashSet::new();
            db.scan(None, &mut |_, value| {
                let item = item_of(value);
                assert!(present.insert(item), "{item:x} is there twice");
                assert!(noted.begun.contains(&item), "{item:x} was never put in");
                assert!(!noted.popped.contains(&item), "{item:x} is there again");
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            let out = noted.popped.union(&present).copied().collect();
            let lost = noted.put.difference(&out).count() as u64;
            assert!(lost <= noted.cut, "{lost} lost, {} cut", noted.cut);
            kills += 1;
            items += if kill + 1 == KILLS {
                noted.put.len()
            } else {
                0
            };
            if random.one_in(2) {
                db.close().unwrap();
            }
        }
    }
    let what = format!("kills of a queue's threads, which put in {items} items in all");
    tried_at_least(kills, 80, &what);
}
