//! Crashes of object stores of every shape: what a cut of the power or the death of the process leaves of few or thousands of
//! objects, on one device or two, with sparse packs, snapshots held, writes that fail, and in stores that are full.
//!
//! ```text
//!   seed --> shape: size, journal, groups, small_max, devices, durability, sync_every, population, lengths
//!        --> first life: fill, thin out, churn --crash--> verify --> second life: churn --crash--> verify
//! ```
//! Half of the crashes are within checkpoints. What a recovery shows is durable when the store is open: a second life that
//! crashes must keep it. Lines beginning `tried:` state how much was tried.

use std::collections::BTreeMap;
use std::path::Path;

use azekura::io::sim::{Limits, Operation, SimDisk};
use azekura::object::{CreateOptions, Store};
use azekura::testkit::round_seed;
use azekura::testkit::suite::{share, tried_at_least};
use azekura::{Durability, Kind};

#[path = "object_shapes/life.rs"]
mod life;

use life::{End, JOURNAL, Life, Shape, Value, id};

/// States that were verified.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    cuts: u64,
    deaths: u64,
    second: u64,
    /// Changes of the lives that were crashed: taken, and refused by a full store.
    taken: u64,
    refused: u64,
}

/// Crashes a life at so many events.
fn crash(life: &mut Life<'_>, count: usize, tried: &mut Tried, is_first: bool) {
    let limits = Limits {
        exhaustive: 6,
        singles: 2,
        random: 3,
        ..Limits::default()
    };
    tried.taken += life.taken();
    tried.refused += life.refused;
    let mut replay = life.disk.replay();
    for at in life.moments(count) {
        replay.advance_to(at);
        let cuts = replay.choices(&limits);
        let cuts = cuts.iter().map(|choice| (End::Power, replay.cut(choice)));
        let inside = replay.next_write() / 2;
        let deaths = [0, inside].map(|within| (End::Process, replay.kill(within)));
        for (end, disk) in cuts.chain(deaths) {
            match end {
                End::Power => tried.cuts += 1,
                End::Process => tried.deaths += 1,
            }
            let shape = life.shape;
            let place = |what: String| -> ! {
                let which = if is_first { "first" } else { "second" };
                panic!(
                    "seed {}: {end:?}, {which} life, event {at} of {}: {what}; {shape:?}",
                    shape.seed, life.end
                )
            };
            let store = match shape.open(&disk) {
                Ok(store) => store,
                Err(error) => place(format!("it does not open: {error}")),
            };
            let found = match life.verify(&store, at, end) {
                Ok(found) => found,
                Err(what) => place(what),
            };
            let second_one_in = if shape.population > 100 { 40 } else { 10 };
            if is_first && life.random.one_in(second_one_in) {
                let mut next = Life::new(shape, disk, found, life.random.below(1 << 30));
                next.churn(store, 24);
                let before = tried.cuts + tried.deaths;
                crash(&mut next, 2, tried, false);
                tried.second += tried.cuts + tried.deaths - before;
            } else if is_first {
                // Room that the crash left is not lost.
                store.remove_range(..).unwrap();
                store.sync().unwrap();
                store.check_room().unwrap();
            }
        }
    }
}

fn explore(seed: u64, tried: &mut Tried) {
    let shape = Shape::new(seed);
    let disk = SimDisk::with_atom(seed, shape.atom);
    let store = match shape.create(&disk) {
        Ok(store) => store,
        // The least journal depends on the groups.
        Err(error) if error.kind() == Kind::Invalid => return,
        Err(error) => panic!("seed {seed}: {error}; {shape:?}"),
    };
    let mut life = Life::new(&shape, disk, BTreeMap::new(), seed);
    life.fill(&store);
    life.churn(store, shape.churn);
    let count = if shape.population > 100 { 10 } else { 24 };
    crash(&mut life, count, tried, true);
}

#[test]
fn a_crash_of_a_store_of_any_shape_leaves_what_was_acknowledged() {
    let mut tried = Tried::default();
    let seed = round_seed();
    for round in 0..share(100) {
        explore(seed + round, &mut tried);
    }
    tried_at_least(tried.cuts, 29_000, "cuts of the power");
    tried_at_least(tried.deaths, 8800, "deaths of the process");
    tried_at_least(tried.second, 24_000, "of them in a second life");
    tried_at_least(tried.taken, 55_000, "changes taken");
    tried_at_least(tried.refused, 400, "changes refused by full stores");
}

/// Stores that are nearly full of small objects in packs, most of which are removed then: checkpoints empty sparse packs, and
/// need the room.
#[test]
fn sparse_packs_that_are_emptied_keep_their_objects_at_a_death_anywhere() {
    let mut states = 0;
    for round in 0..share(30) {
        let seed = round_seed() + 5000 + round;
        let shape = Shape {
            devices: 1 + (seed % 2) as u8,
            population: 2500,
            small: 97,
            small_len: 600,
            len_max: 9000,
            thinned: 60 + 5 * (seed % 4),
            options: Shape::new(seed)
                .options
                .capacity((1 << 20) + (700 << 10) + (seed % 5) * (100 << 10))
                .journal_size(512 << 10)
                .group_size(128 << 10)
                .small_max(2048)
                .durability(Durability::Process)
                .sync_every(None),
            ..Shape::new(seed)
        };
        let disk = SimDisk::with_atom(seed, shape.atom);
        let store = shape.create(&disk).unwrap();
        let mut life = Life::new(&shape, disk, BTreeMap::new(), seed);
        life.fill(&store);
        for _ in 0..4 {
            for n in 0..300 {
                if life.random.one_in(2) {
                    life.put(&store, 8 * n + seed % 8);
                } else {
                    life.remove(&store, 8 * n + seed % 8);
                }
            }
            life.checkpoint(&store);
        }
        life.end = life.disk.events();
        let mut replay = life.disk.replay();
        let last = life.checkpoints.clone();
        for (from, to) in last.into_iter().skip(1) {
            let step = ((to - from) / 12).max(1);
            for at in (from..=to).step_by(step) {
                replay.advance_to(at);
                let store = shape.open(&replay.kill(0)).unwrap();
                if let Err(what) = life.verify(&store, at, End::Process) {
                    panic!("seed {seed}: event {at} of {}: {what}", life.end);
                }
                states += 1;
            }
        }
    }
    tried_at_least(states, 1250, "deaths within checkpoints that empty packs");
}

/// A synced object was replaced, and the process died. The next one gave the room of the first to others at once. The power went,
/// and the replacement with it: neither of the two was there.
#[test]
fn room_that_a_recovery_frees_is_used_when_what_it_found_is_durable() {
    let mut states = 0;
    for devices in [1, 2] {
        for seed in 0..share(40).max(4) {
            let shape = Shape {
                devices,
                population: 40,
                options: Shape::new(seed)
                    .options
                    .capacity((128 << 10) + if devices == 1 { 256 << 10 } else { 8192 })
                    .journal_size(256 << 10)
                    .group_size(128 << 10)
                    .small_max(0)
                    .durability(Durability::Process)
                    .sync_every(None),
                ..Shape::new(seed)
            };
            let disk = SimDisk::new(seed);
            let store = shape.create(&disk).unwrap();
            let value = |version, len| Value { version, len };
            store.put(id(1), &value(1, 28_000).bytes()).unwrap();
            store.sync().unwrap();
            store.put(id(1), &value(2, 28_000).bytes()).unwrap();
            let killed = disk.kill_state(disk.events());
            let store = shape.open(&killed).unwrap();
            let begin = killed.events();
            for n in 2..12 {
                if store.put(id(n), &value(n, 16_000).bytes()).is_err() {
                    break;
                }
            }
            for at in [begin, killed.events()] {
                for after in killed.crash_states(at, &Limits::default()) {
                    let store = shape.open(&after).unwrap();
                    let found = store.get(id(1)).unwrap();
                    assert_eq!(found, Some(value(2, 28_000).bytes().into()), "seed {seed}");
                    states += 1;
                }
            }
        }
    }
    tried_at_least(states, 9100, "cuts after a recovery");
}

/// `sync_every` states how many acknowledged changes a power cut takes at most.
#[test]
fn with_sync_every_a_change_more_than_so_many_syncs() {
    for every in [0u64, 1, 3, 10] {
        for small_max in [0, 2048] {
            let options = CreateOptions::new()
                .capacity(1 << 20)
                .journal_size(256 << 10)
                .group_size(128 << 10)
                .small_max(small_max)
                .sync_every(every)
                .background(false);
            let disk = SimDisk::new(every);
            let store = Store::create_in(
                &disk.directory(),
                Path::new(JOURNAL),
                &options,
                &mut |_, _| {},
            )
            .unwrap();
            for n in 0..3 * (every + 1) {
                let before = disk.faults().count(Operation::Sync);
                store.put(id(n), b"a value").unwrap();
                let syncs = disk.faults().count(Operation::Sync) - before;
                let is_due = (n + 1).is_multiple_of(every + 1);
                assert_eq!(syncs, u64::from(is_due), "change {n}, every {every}");
            }
        }
    }
}

/// A store on one device with four groups of 16 units, in which each object has an extent of its own.
fn tight(seed: u64) -> Shape {
    Shape {
        devices: 1,
        population: 40,
        options: Shape::new(seed)
            .options
            .capacity(512 << 10)
            .journal_size(256 << 10)
            .group_size(64 << 10)
            .small_max(0)
            .durability(Durability::Process)
            .sync_every(None),
        ..Shape::new(seed)
    }
}

/// An object was synced and removed, and others filled all room. The power went before the removal was durable: the object was
/// back, with the bytes of another.
#[test]
fn room_is_not_used_again_before_what_freed_it_is_durable() {
    let mut states = 0;
    for seed in 0..share(40) {
        let shape = tight(seed);
        let disk = SimDisk::new(seed);
        let store = shape.create(&disk).unwrap();
        let value = |version| Value {
            version,
            len: 12_000,
        };
        let mut full = 0;
        while store.put(id(full), &value(full).bytes()).is_ok() {
            full += 1;
        }
        // The index on storage has them: one whose bytes are another's is not taken for removed.
        store.checkpoint().unwrap();
        let mut now: Vec<u64> = (0..full).collect();
        for round in 0..4u64 {
            let n = (seed + 3 * round) % full;
            store.remove(id(n)).unwrap();
            let version = 1000 + round;
            store.put(id(n), &value(version).bytes()).unwrap();
            for after in disk.crash_states(disk.events(), &Limits::default()) {
                states += 1;
                let store = shape.open(&after).unwrap();
                for (other, version) in now.iter().enumerate() {
                    let found = store.get(id(other as u64)).unwrap();
                    let mut is_legal = found == Some(value(*version).bytes().into());
                    if other as u64 == n {
                        let new = value(1000 + round).bytes();
                        is_legal |= found.is_none_or(|found| found[..] == new[..]);
                    }
                    assert!(is_legal, "seed {seed}: {other}");
                }
                store.check_room().unwrap();
            }
            now[n as usize] = version;
            store.checkpoint().unwrap();
        }
    }
    tried_at_least(states, 9900, "cuts after room was used again");
}

/// Puts that the power took left whole extents in a stride that no journal stated. The next stride there had an earlier
/// sequence than theirs: after another crash they were back.
#[test]
fn a_recovery_leaves_sequences_out_that_puts_without_a_trace_had() {
    let mut states = 0;
    for seed in 0..share(40) {
        let shape = tight(seed);
        let disk = SimDisk::new(seed);
        let store = shape.create(&disk).unwrap();
        let value = |version| Value {
            version,
            len: 12_000,
        };
        // The first stride has 16 units, which five of three fill.
        for n in 0..5 {
            store.put(id(n), &value(n).bytes()).unwrap();
        }
        store.sync().unwrap();
        for n in 10..13 {
            store.put(id(n), &value(n).bytes()).unwrap();
        }
        for after in disk.crash_states(disk.events(), &Limits::default()) {
            let store = shape.open(&after).unwrap();
            let gone: Vec<u64> = (10..13)
                .filter(|n| store.get(id(*n)).unwrap().is_none())
                .collect();
            store.put(id(20), &value(20).bytes()).unwrap();
            let killed = after.kill_state(after.events());
            let store = shape.open(&killed).unwrap();
            for n in &gone {
                let found = store.get(id(*n)).unwrap();
                assert!(found.is_none(), "seed {seed}: {n} is back");
            }
            states += u64::from(gone.len() == 3);
        }
    }
    tried_at_least(states, 1900, "cuts that left no trace of three puts");
}
