//! Kills of stores with thousands of small objects: 16 threads put, remove, change batches and sync, and the process dies.
//!
//! The stores have 48 to 200 MiB, of which a third to three fifths is used, and objects of 0 to 4 KiB among larger ones: so checkpoints
//! empty sparse packs while others need their room. After each kill every object is compared with what was acknowledged. Lines
//! beginning `tried:` state how much was tried. Options are drawn from the seed, for each store others.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use azekura::object::{Change, CreateOptions, ObjectId, Store};
use azekura::testkit::suite::{case, share, tried_in_rounds};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Kind};

use super::value;

/// For the child: the file, what its options are drawn from, the slots of a thread, and the number of each thread's first operation.
const FILE: &str = "AZEKURA_TEST_KILLED_FILE";
const SEED: &str = "AZEKURA_TEST_KILLED_SEED";
const CAPACITY: &str = "AZEKURA_TEST_KILLED_CAPACITY";
const SLOTS: &str = "AZEKURA_TEST_KILLED_SLOTS";
const FIRST: &str = "AZEKURA_TEST_KILLED_FIRST";
const THREADS: u64 = 16;

type Put = Option<(u64, usize)>;

fn id(thread: u64, slot: u64) -> ObjectId {
    ObjectId(u128::from(slot) << 64 | u128::from(thread))
}

/// What operation `number` of a thread sets; one of several is a batch.
fn work(thread: u64, number: u64, slots: u64) -> (BTreeMap<u64, Put>, Durability) {
    let version = thread << 40 | number << 4;
    let mut random = Random::new(version);
    let count = if random.one_in(8) { 3 } else { 1 };
    let mut sets = BTreeMap::new();
    for part in 0..count {
        let len = match random.below(100) {
            0..3 => 66_000,
            3..10 => random.index(24_000),
            10..60 => random.index(700),
            _ => random.index(4097),
        };
        // All that there is first, then some of it again and again.
        let slot = if number < slots {
            number
        } else {
            random.below(slots)
        };
        let is_put = number < slots || !random.one_in(3);
        sets.insert(slot, is_put.then_some((version + part, len)));
    }
    let durability = if random.one_in(64) {
        Durability::Power
    } else {
        Durability::Process
    };
    (sets, durability)
}

/// Whether operation `number` of a thread puts anything.
fn puts(thread: u64, number: u64, slots: u64) -> bool {
    let (sets, _) = work(thread, number, slots);
    sets.values().any(Option::is_some)
}

/// Drawn from `seed`, and such that there is room for all objects.
fn options(seed: u64, capacity: u64) -> CreateOptions {
    let mut random = Random::new(seed ^ capacity);
    let is_small = capacity < 64 << 20;
    CreateOptions::new()
        .capacity(capacity)
        .journal_size(random.choose(&[1, 2, if is_small { 4 } else { 8 }]) << 20)
        .group_size(*random.choose(&[Some(1 << 20), Some(4 << 20), None]))
        .small_max(if is_small {
            *random.choose(&[2048, 4096])
        } else {
            *random.choose(&[0, 100, 2048, 4096])
        })
        .sync_every(random.one_in(3).then(|| 1 + random.below(200)))
        .sync_interval((random.one_in(3)).then(|| Duration::from_millis(1 + random.below(50))))
        .direct(random.one_in(2))
        .background(!random.one_in(4))
}

fn act(store: &Store, thread: u64, number: u64, slots: u64) -> azekura::Result<()> {
    let (sets, durability) = work(thread, number, slots);
    let values: Vec<_> = sets
        .values()
        .map(|put| put.map(|(version, len)| value(version, len)))
        .collect();
    if let (1, Some((slot, _))) = (sets.len(), sets.first_key_value()) {
        return match &values[0] {
            Some(bytes) => store
                .put_with(id(thread, *slot), bytes, durability)
                .map(drop),
            None => store.remove_with(id(thread, *slot), durability).map(drop),
        };
    }
    let changes: Vec<_> = sets
        .keys()
        .zip(&values)
        .map(|(slot, bytes)| match bytes {
            Some(bytes) => Change::Put(id(thread, *slot), bytes),
            None => Change::Remove(id(thread, *slot)),
        })
        .collect();
    store.apply_with(&changes, durability).map(drop)
}

#[test]
fn the_child_of_a_test_changes_small_objects_until_it_is_killed() {
    // Without a file this is no child.
    let Some(file) = std::env::var_os(FILE) else {
        return;
    };
    let slots = std::env::var(SLOTS).unwrap().parse().unwrap();
    let first = std::env::var(FIRST).unwrap();
    let first: Vec<u64> = first.split(' ').map(|n| n.parse().unwrap()).collect();
    let number = |name| std::env::var(name).unwrap().parse().unwrap();
    let options = options(number(SEED), number(CAPACITY));
    let store = Store::open(&file, &options.opening).unwrap();
    std::thread::scope(|scope| {
        for (thread, first) in (0..).zip(first) {
            let store = &store;
            scope.spawn(move || {
                for number in first.. {
                    let word = match act(store, thread, number, slots) {
                        Ok(()) => b'A',
                        // A put may come too early, before others' room is free again. A removal takes none.
                        Err(error) if error.kind() == Kind::Full && puts(thread, number, slots) => {
                            b'a'
                        }
                        Err(error) => panic!("operation {number} of thread {thread}: {error}"),
                    };
                    // No process reads any more when the parent has failed.
                    if std::io::stderr().write_all(&[word + thread as u8]).is_err() {
                        std::process::exit(0);
                    }
                }
            });
        }
    });
}

/// Kills a child after `least` answers: all answers, a byte each.
fn kill(
    file: &Path,
    (seed, capacity): (u64, u64),
    first: &[u64],
    slots: u64,
    least: usize,
) -> Vec<u8> {
    let text: Vec<String> = first.iter().map(u64::to_string).collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killed::the_child_of_a_test_changes_small_objects_until_it_is_killed",
            "--nocapture",
        ])
        .env(FILE, file)
        .env(SEED, seed.to_string())
        .env(CAPACITY, capacity.to_string())
        .env(SLOTS, slots.to_string())
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
    let is_word = |byte: &u8| (0..THREADS as u8).contains(&((byte | 32).wrapping_sub(b'a')));
    assert!(
        whole.is_ok() && said.iter().all(is_word),
        "the child failed: {}",
        String::from_utf8_lossy(&said)
    );
    said
}

/// What a thread did, and what it has.
#[derive(Clone, Default)]
struct Thread {
    number: u64,
    now: BTreeMap<u64, Put>,
}

impl Thread {
    fn is_shown(&self, store: &Store, thread: u64, slots: u64) -> Result<(), String> {
        for slot in 0..slots {
            let wanted = self.now.get(&slot).copied().flatten();
            let found = store
                .get(id(thread, slot))
                .map_err(|error| error.to_string())?;
            if found != wanted.map(|(version, len)| value(version, len).into()) {
                let len = found.map(|found| found.len());
                return Err(format!("slot {slot} has {len:?} bytes, not {wanted:?}"));
            }
        }
        Ok(())
    }
}

/// Kills a store so often; operations that were acknowledged before the first kill, and later.
fn killed(seed: u64, capacity: u64, slots: u64, kills: u64) -> [u64; 2] {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("killed.azo");
    let options = options(seed, capacity);
    let _case = case(seed, &options);
    Store::create(&file, &options).unwrap().close().unwrap();
    let mut random = Random::new(seed);
    let mut threads = vec![Thread::default(); THREADS as usize];
    let mut acknowledged = [0; 2];
    let (mut most, mut refused) = (0, 0);
    for round in 0..kills {
        let first: Vec<u64> = threads.iter().map(|thread| thread.number).collect();
        let least = if round == 0 {
            (slots * THREADS * 3 / 2) as usize
        } else {
            500 + ((8000 * (round - 1) + random.below(8000)) / (kills - 1)) as usize
        };
        for word in kill(&file, (seed, capacity), &first, slots, least) {
            let thread = u64::from((word | 32) - b'a');
            let of = &mut threads[thread as usize];
            if word.is_ascii_uppercase() {
                of.now.extend(work(thread, of.number, slots).0);
                acknowledged[usize::from(round > 0)] += 1;
            } else {
                refused += 1;
            }
            of.number += 1;
        }
        let store = Store::open(&file, &options.opening)
            .unwrap_or_else(|error| panic!("seed {seed}, kill {round}: {error}"));
        for (thread, of) in (0..).zip(&mut threads) {
            // One more may have happened and not been said.
            let mut next = of.clone();
            next.now.extend(work(thread, of.number, slots).0);
            next.number += 1;
            if let Err(what) = of.is_shown(&store, thread, slots) {
                if let Err(other) = next.is_shown(&store, thread, slots) {
                    panic!(
                        "seed {seed}, kill {round}: thread {thread} is not as after {} operations: {what}; {other}",
                        of.number
                    );
                }
                *of = next;
            }
        }
        store.check_room().unwrap();
        let used = store.usage(..).unwrap().device_bytes;
        most = most.max(used * 100 / capacity);
        assert!(store.check(true, &mut |_, _| {}).unwrap().is_sound());
        // Every other time the next child recovers by itself what two kills left.
        if round % 2 == 0 {
            store.close().unwrap();
        }
    }
    let taken: u64 = acknowledged.iter().sum();
    assert!(
        refused * 1000 <= taken,
        "seed {seed}: a store with room left refused {refused} changes of {}",
        taken + refused
    );
    azekura::testkit::tried(&format!(
        "{kills} kills of a store of {} MiB, {most} % full, which refused {refused} changes",
        capacity >> 20
    ));
    acknowledged
}

#[test]
fn stores_of_small_objects_killed_under_sixteen_threads_keep_what_they_acknowledged() {
    let seed = round_seed();
    let stores = [(200 << 20, 650), (96 << 20, 600), (48 << 20, 480)];
    let kills = share(16).max(4);
    // Each mostly waits for its device.
    let acknowledged = std::thread::scope(|scope| {
        let of = stores
            .map(|(capacity, slots)| scope.spawn(move || killed(seed, capacity, slots, kills)));
        of.map(|thread| thread.join().expect("a store that is killed"))
    });
    let [first, later] = [0, 1].map(|at| acknowledged.iter().map(|of| of[at]).sum());
    tried_in_rounds(
        first,
        3,
        11_000,
        "operations acknowledged before a first kill",
    );
    tried_in_rounds(
        later,
        3 * (kills - 1),
        3600,
        "operations acknowledged before later kills",
    );
}
