//! Threads, full stores, and kills: single objects stay single, and full is never for ever.
//!
//! What threads saw of an object must have some order of its operations that explains it; a store at its limit gives back what
//! is removed, and takes as much again; threads that replace objects are not refused while there is room for one more of each;
//! a process that is killed while many threads put has kept what it acknowledged. Lines beginning `tried:` state how much was
//! tried.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::object::{CreateOptions, Store};
use azekura::testkit::configuration::object_options;
use azekura::testkit::suite::{case, share, tried_at_least, tried_in_rounds};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Durability, Kind};

use super::{id, options, store_with, value};

/// What was asked of one object, and answered. Versions stand for values.
#[derive(Clone, Copy, Debug)]
enum Saw {
    Got(Option<u64>),
    Put(u64),
    /// Whether it was there.
    Removed(bool),
    /// Expected, new, and whether it was done; the expected is a version.
    Compared(Option<u64>, u64, bool),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    called: u64,
    returned: u64,
    saw: Saw,
}

/// Makes `now` the version after an event; whether it can come next.
fn step(now: &mut Option<u64>, saw: Saw) -> bool {
    match saw {
        Saw::Got(found) => return found == *now,
        Saw::Put(version) => *now = Some(version),
        Saw::Removed(was_there) => return was_there == now.take().is_some(),
        Saw::Compared(expected, version, done) => {
            if (expected == *now) != done {
                return false;
            }
            if done {
                *now = Some(version);
            }
        }
    }
    true
}

/// Whether some order explains the events: none stands before one that had returned when it was called.
fn is_explained(events: &[Event]) -> bool {
    fn search(
        events: &[Event],
        done: u64,
        now: Option<u64>,
        seen: &mut HashSet<(u64, Option<u64>)>,
    ) -> bool {
        if done.count_ones() as usize == events.len() {
            return true;
        }
        if !seen.insert((done, now)) {
            return false;
        }
        let open = || (0..events.len()).filter(|at| done >> at & 1 == 0);
        let first_return = open().map(|at| events[at].returned).min();
        open().any(|at| {
            let may_be_next = first_return.is_some_and(|first| events[at].called <= first);
            let mut next = now;
            may_be_next
                && step(&mut next, events[at].saw)
                && search(events, done | 1 << at, next, seen)
        })
    }
    assert!(events.len() < 64);
    search(events, 0, None, &mut HashSet::new())
}

/// Threads on three objects; the events of each. `lost`: a planted bug, gets that answer with what was there before.
fn history(seed: u64, options: &CreateOptions, is_stale: bool) -> Vec<Vec<Event>> {
    let (_, store) = store_with(options);
    let clock = AtomicU64::new(0);
    let threads = 4;
    let sequences = parking(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, clock, sequences) = (&store, &clock, &sequences);
            scope.spawn(move || {
                let mut random = Random::new(seed * 8 + thread as u64);
                let mut events: Vec<(u64, Event)> = Vec::new();
                for number in 0..36 {
                    let n = random.below(3);
                    let version = (1 + thread as u64) << 32 | number;
                    let called = clock.fetch_add(1, Ordering::SeqCst);
                    let saw = operate(store, &mut random, n, version);
                    let returned = clock.fetch_add(1, Ordering::SeqCst);
                    let saw = match saw {
                        Saw::Got(Some(_)) if is_stale && number % 5 == 4 => Saw::Got(Some(77)),
                        saw => saw,
                    };
                    let event = Event {
                        called,
                        returned,
                        saw,
                    };
                    events.push((n, event));
                }
                *sequences[thread].lock().unwrap() = events;
            });
        }
    });
    let mut of = vec![Vec::new(); 3];
    for events in sequences {
        for (n, event) in events.into_inner().unwrap() {
            if of[n as usize].len() < 63 {
                of[n as usize].push(event);
            }
        }
    }
    of
}

type GroupState = std::sync::Mutex<Vec<(u64, Event)>>;

fn parking(threads: usize) -> Vec<GroupState> {
    (0..threads).map(|_| GroupState::default()).collect()
}

/// Values begin with their version; some span chunks.
fn versioned(version: u64) -> Vec<u8> {
    let len = [0, 100, 5000, 66_000][version as usize % 4];
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(value(version, len));
    bytes
}

fn version_of(bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    assert!(bytes == versioned(version), "the bytes of two values");
    version
}

fn operate(store: &Store, random: &mut Random, n: u64, version: u64) -> Saw {
    match random.below(8) {
        0..3 => Saw::Got(store.get(id(n)).unwrap().map(|bytes| version_of(&bytes))),
        3..5 => {
            store.put(id(n), &versioned(version)).unwrap();
            Saw::Put(version)
        }
        5 => Saw::Removed(store.remove(id(n)).unwrap()),
        _ => {
            let found = store.get_with_sequence(id(n)).unwrap();
            let (expected, sequence) = found
                .map(|(bytes, sequence)| (version_of(&bytes), sequence))
                .unzip();
            let done = store
                .compare_and_put(id(n), sequence, &versioned(version))
                .unwrap();
            Saw::Compared(expected, version, done.is_some())
        }
    }
}

#[test]
fn what_threads_see_of_an_object_has_an_order() {
    const HISTORIES: u64 = 600;
    let mut events = 0;
    for seed in 0..share(HISTORIES) {
        let seed = round_seed() + seed;
        let options =
            object_options(&mut Random::new(!seed), 2 << 20).background(seed.is_multiple_of(2));
        let _shown = case(seed, &options);
        for of in history(seed, &options, false) {
            events += of.len();
            // Cut at a number: an operation left out might have been seen.
            if of.len() < 63 {
                assert!(is_explained(&of), "seed {seed}: {of:?}");
            }
        }
    }
    let what = "operations of 4 threads on 3 objects";
    tried_at_least(events as u64, HISTORIES * 115, what);
}

#[test]
fn a_value_that_nobody_put_has_no_order() {
    let seen = (0..20).any(|seed| {
        let all = history(seed, &options(), true);
        all.iter().any(|of| of.len() < 63 && !is_explained(of))
    });
    assert!(seen, "the planted bug is not seen");
}

#[test]
fn a_store_at_its_limit_gives_back_what_is_removed_and_takes_as_much_again() {
    for (what, lens) in [
        ("uniform", &[8000][..]),
        ("mixed", &[100, 4000, 9000, 20_000, 60_000]),
    ] {
        let options = options().capacity(4 << 20);
        let (memory, store) = store_with(&options);
        let mut random = Random::new(round_seed());
        let mut now: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let (mut refused, mut most, mut most_tries) = (0, 0, 0);
        for version in 0..12_000u64 {
            let n = random.below(600);
            let len = *random.choose(lens);
            match store.put(id(n), &value(version, len)) {
                Ok(_) => drop(now.insert(n, (version, len))),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    refused += 1;
                    // Whatever leaves makes room for its like, at once; of small ones, some must leave.
                    let mut tries = 0;
                    loop {
                        let Some((&gone, &(_, len))) = now.iter().nth(random.index(now.len()))
                        else {
                            panic!("full, and nothing in it");
                        };
                        assert!(store.remove(id(gone)).unwrap());
                        now.remove(&gone);
                        tries += 1;
                        match store.put(id(gone), &value(version, len)) {
                            Ok(_) => {
                                now.insert(gone, (version, len));
                                break;
                            }
                            Err(error) => assert_eq!(error.kind(), Kind::Full, "{error}"),
                        }
                    }
                    most_tries = most_tries.max(tries);
                }
            }
            if version % 64 == 0 {
                let all = store.usage(..).unwrap();
                most = most.max(all.device_bytes);
            }
        }
        store.check_room().unwrap();
        let least = if lens.len() == 1 { 1 } else { 16 };
        assert!(
            most_tries <= least,
            "{what}: room came back after {most_tries} removals"
        );
        let data = (4 << 20) - (256 << 10);
        assert!(refused > 100, "{what}: it was full {refused} times");
        assert!(
            most * 100 > data * 95,
            "{what}: {most} of {data} bytes were in use"
        );
        store.close().unwrap();
        let store = super::opened(&memory.to_vec());
        assert_eq!(store.count(), now.len() as u64);
        for (n, (version, len)) in &now {
            assert_eq!(
                store.get(id(*n)).unwrap(),
                Some(value(*version, *len).into())
            );
        }
        store.remove_range(..).unwrap();
        store.sync().unwrap();
        let free = store.stats().unwrap().free_bytes;
        assert_eq!(free, data, "{what}: all of it is free again");
        tried(&format!(
            "{what}: full {refused} times, {most} of {data} bytes in use"
        ));
    }
}

/// Threads that put objects again where there is room for one more of each than there are: each finds what the others left,
/// though another one may have taken it before, more than once.
#[test]
fn threads_that_replace_objects_in_the_last_room_are_not_refused() {
    const THREADS: u64 = 4;
    let (mut puts, stores) = (0, share(40).max(4));
    for seed in 0..stores {
        let mut random = Random::new(round_seed() + seed);
        let background = random.one_in(2);
        let options = object_options(&mut random, 1 << 20)
            .background(background)
            .sync_every(None)
            .durability(Durability::Process);
        let _shown = case(seed, &options);
        let (_, store) = store_with(&options);
        // A group is filled by these, to the last unit.
        let len = 65_000;
        let mut count = 0;
        while let Ok(_stored) = store.put(id(count), &value(count, len)) {
            count += 1;
        }
        count -= THREADS;
        store.remove_range(id(count)..).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let store = &store;
                scope.spawn(move || {
                    let own = (0..count).filter(|n| n % THREADS == thread);
                    for (version, n) in own.cycle().take(200).enumerate() {
                        store.put(id(n), &value(version as u64, len)).unwrap();
                    }
                });
            }
        });
        store.check_room().unwrap();
        puts += THREADS * 200;
    }
    tried_at_least(puts, 40 * 800, "objects put again in the last room");
}

/// For the child: the file, and the number of each thread's first operation.
const FILE: &str = "AZEKURA_TEST_OBJECTS_FILE";
const FIRST: &str = "AZEKURA_TEST_OBJECTS_FIRST";
const THREADS: u64 = 16;

fn of_thread(thread: u64, slot: u64) -> azekura::object::ObjectId {
    id(thread * 16 + slot)
}

/// What operation `number` of a thread does: a slot, and what it gets.
fn work(thread: u64, number: u64) -> (u64, Option<(u64, usize)>) {
    let version = thread << 32 | number;
    let mut random = Random::new(version);
    let len = *random.choose(&[0, 500, 5000, 66_000]);
    let put = (!random.one_in(5)).then_some((version, len));
    (random.below(6), put)
}

fn on_disk() -> CreateOptions {
    CreateOptions::new()
        .capacity(32 << 20)
        .journal_size(1 << 20)
        .group_size(1 << 20)
}

#[test]
fn the_child_of_a_test_puts_until_it_is_killed() {
    // Without a file this is no child.
    let Some(file) = std::env::var_os(FILE) else {
        return;
    };
    let first = std::env::var(FIRST).unwrap();
    let first: Vec<u64> = first.split(' ').map(|n| n.parse().unwrap()).collect();
    let store = Store::open(&file, &on_disk().opening).unwrap();
    std::thread::scope(|scope| {
        for (thread, first) in first.into_iter().enumerate() {
            let (store, thread) = (&store, thread as u64);
            scope.spawn(move || {
                for number in first.. {
                    let (slot, put) = work(thread, number);
                    let of = of_thread(thread, slot);
                    match put {
                        Some((version, len)) => drop(store.put(of, &value(version, len)).unwrap()),
                        None => drop(store.remove(of).unwrap()),
                    }
                    // No process reads any more when the parent has failed.
                    if std::io::stderr().write_all(&[b'A' + thread as u8]).is_err() {
                        std::process::exit(0);
                    }
                }
            });
        }
    });
}

/// Whether a thread's objects are as after its first `count` operations.
fn is_after(store: &Store, thread: u64, count: u64) -> bool {
    let mut now = BTreeMap::new();
    for number in 0..count {
        let (slot, put) = work(thread, number);
        now.insert(slot, put);
    }
    (0..6).all(|slot| {
        let put = now.get(&slot).copied().flatten();
        store.get(of_thread(thread, slot)).unwrap()
            == put.map(|(version, len)| value(version, len).into())
    })
}

/// Kills a child after `least` acknowledgements; how many each thread made.
fn kill(file: &Path, first: &[u64], least: usize) -> Vec<u64> {
    let text: Vec<String> = first.iter().map(u64::to_string).collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crowd::the_child_of_a_test_puts_until_it_is_killed",
            "--nocapture",
        ])
        .env(FILE, file)
        .env(FIRST, text.join(" "))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stderr.take().unwrap();
    let mut said = vec![0; least];
    let whole = out.read_exact(&mut said);
    child.kill().unwrap();
    out.read_to_end(&mut said).unwrap();
    child.wait().unwrap();
    let is_word = |byte: &u8| (b'A'..b'A' + THREADS as u8).contains(byte);
    assert!(
        whole.is_ok() && said.iter().all(is_word),
        "the child failed: {}",
        String::from_utf8_lossy(&said)
    );
    let mut of = vec![0; THREADS as usize];
    for byte in said {
        of[usize::from(byte - b'A')] += 1;
    }
    of
}

#[test]
fn a_process_that_is_killed_while_sixteen_threads_put_keeps_what_it_acknowledged() {
    let rounds = share(40).max(12);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("killed.azo");
    Store::create(&file, &on_disk()).unwrap().close().unwrap();
    let mut random = Random::new(round_seed());
    let (mut first, mut kills) = (vec![0; THREADS as usize], 0);
    for round in 0..rounds {
        let least = (400 * round + random.below(400)) / rounds;
        let counts = kill(&file, &first, least as usize);
        let store = Store::open(&file, &on_disk().opening).unwrap();
        for (thread, first) in first.iter_mut().enumerate() {
            let done = *first + counts[thread];
            let thread = thread as u64;
            // One more may have happened and not been said.
            let found = (done..=done + 1).find(|count| is_after(&store, thread, *count));
            *first = found.unwrap_or_else(|| {
                panic!("round {round}: thread {thread} is not as after {done} operations")
            });
        }
        store.check_room().unwrap();
        assert!(store.check(true, &mut |_, _| {}).unwrap().is_sound());
        store.close().unwrap();
        kills += 1;
    }
    tried_in_rounds(kills, rounds, 1, "kills");
    let what = format!("acknowledged operations of {THREADS} threads that were killed");
    tried_in_rounds(first.iter().sum(), rounds, 160, &what);
}
