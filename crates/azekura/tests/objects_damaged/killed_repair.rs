//! Repairs that are killed, and repeated.
//!
//! A repair writes zeros over the sectors of the journal that cannot be read, and a journal may end before zeros. Until the repaired
//! store is there, a second repair still names each object that may be older, and each loss. Where the power fails in between,
//! there is always a superblock to repair from.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use azekura::Kind;
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::io::sim::{Atom, Limits, SimDisk};
use azekura::object::{CreateOptions, ObjectId, OpenOptions, Store};
use azekura::testkit::suite::{demand, share, third, tried_at_least};
use azekura::testkit::{Random, round_seed};

use super::{FRONT, JOURNAL, World, id, is_blank_room, journal_of, storages};

/// The sequence of the newest superblock.
fn newest(disk: &SimDisk) -> u64 {
    let head = journal_of(disk, 8192);
    let of = |slot: usize| u64::from_le_bytes(*head[slot + 24..].first_chunk().unwrap());
    of(0).max(of(4096))
}

#[test]
fn a_repair_after_one_that_was_killed_takes_no_older_object_for_certain() {
    let (mut tried, mut doubted) = (0, 0);
    for seed in 0..share(240) {
        let seed = round_seed() + seed;
        let world = World::new(seed, false);
        if world.is_closed {
            continue;
        }
        let mut random = Random::new(seed);
        for before in 0..4 {
            let disk = world.disk.kill_state(world.disk.events());
            let tail = (world.tail / 512 * 512).saturating_sub(before * 512);
            let range = tail.max(FRONT)..tail.max(FRONT) + 512;
            if is_blank_room(&world, &range) {
                continue;
            }
            disk.make_unreadable(JOURNAL, range.clone());
            let (begun, sequence) = (disk.events(), newest(&disk));
            world.repair(&disk).unwrap();
            let ended = disk.events();
            for _ in 0..6 {
                let at = begun + random.index(ended - begun);
                let killed = disk.kill_state(at);
                if newest(&killed) > sequence + 1 {
                    // It is repaired; what would have been reported is gone with the process.
                    continue;
                }
                let store = world.open(&killed.kill_state(killed.events())).unwrap();
                world.judge(&store, None).unwrap_or_else(|what| {
                    panic!("seed {seed} {range:x?} killed at {at} of {begun}..{ended}: {what}")
                });
                let report = world.repair(&killed).unwrap();
                let store = world.open(&killed).unwrap();
                world.judge(&store, Some(&report)).unwrap_or_else(|what| {
                    panic!("seed {seed} {range:x?} killed at {at} of {begun}..{ended}: {what}; {report:?}")
                });
                tried += 1;
                doubted += report.doubtful;
            }
        }
    }
    let what = format!("repairs after a killed one, {doubted} objects in doubt");
    tried_at_least(tried, 600, &what);
    assert!(doubted > 0);
}

/// The process is killed while a superblock is written: the cache has it, the device's contents are unknown. The journal also has a
/// sector that cannot be read. A repair writes a superblock over the one that the device surely has.
#[test]
fn a_power_cut_in_a_repair_leaves_a_superblock_also_where_the_newest_was_in_the_cache_only() {
    let options = CreateOptions::new()
        .capacity(2 << 20)
        .journal_size(256 << 10)
        .group_size(128 << 10)
        .background(false);
    let limits = Limits {
        exhaustive: 0,
        singles: 0,
        random: 12,
        ..Limits::default()
    };
    let mut tried = 0;
    for seed in 0..share(10) {
        let seed = round_seed() + seed;
        let mut random = Random::new(seed);
        // A device may tear a superblock between any two lines of it.
        let disk = SimDisk::with_atom(seed, Atom::Line);
        let (directory, name) = (disk.directory(), Path::new(JOURNAL));
        let store = Store::create_in(&directory, name, &options, &mut |_, _| {}).unwrap();
        for n in 0..20 {
            let len = *random.choose(&[30, 5000]);
            let value = random.bytes(len);
            store.put(id(n), &value).unwrap();
        }
        let before = disk.events();
        store.checkpoint().unwrap();
        let mut replay = disk.replay();
        for at in before..disk.events() {
            replay.advance_to(at);
            // All of the next write, or the first lines of it.
            let within = [replay.next_write(), 64 * random.index(4)];
            let of_superblock = |killed: &SimDisk| newest(killed) > newest(&disk.kill_state(at));
            if !of_superblock(&replay.kill(within[0])) {
                continue;
            }
            for within in within {
                let killed = replay.kill(within);
                // What stands in the sector is not known until it is read.
                killed.make_unreadable(JOURNAL, FRONT..FRONT + 512);
                let begun = killed.events();
                let (journal, _) = storages(&killed, false);
                Store::repair_on(&journal, None, &mut |_, _| {}).unwrap();
                for _ in 0..30 {
                    let at = begun + random.index(killed.events() - begun);
                    for cut in killed.crash_states(at, &limits) {
                        let (journal, _) = storages(&cut, false);
                        let repaired = Store::repair_on(&journal, None, &mut |_, _| {});
                        repaired.unwrap_or_else(|error| {
                            let trace = &killed.trace()[..at];
                            panic!("seed {seed}, cut at {at} of a repair: {error}; {trace:#?}")
                        });
                        tried += 1;
                    }
                }
            }
        }
    }
    tried_at_least(tried, 6000, "power cuts in a repair");
}

/// Past the end of the journal nothing stood, so nothing is lost there, also when zeros were written over it.
#[test]
fn a_killed_repair_of_a_bad_sector_after_the_journals_end_puts_nothing_in_doubt() {
    let mut tried = 0;
    for seed in 0..share(60) {
        let seed = round_seed() + seed;
        let world = World::new(seed, false);
        if world.is_closed {
            continue;
        }
        let mut random = Random::new(seed);
        for after in 2..5 {
            let disk = world.disk.kill_state(world.disk.events());
            let begin = world.tail / 512 * 512 + after * 512;
            let range = begin..begin + 512;
            if range.end > world.journal_size || !is_blank_room(&world, &range) {
                continue;
            }
            disk.make_unreadable(JOURNAL, range.clone());
            let begun = disk.events();
            world.repair(&disk).unwrap();
            let ended = disk.events();
            // Soon after the first superblock, too.
            let soon = (begun + 1..(begun + 40).min(ended)).step_by(3);
            let later = [(); 6].map(|()| begun + random.index(ended - begun));
            for at in soon.chain(later) {
                let context = format!("seed {seed} {range:x?} killed at {at} of {begun}..{ended}");
                let killed = disk.kill_state(at);
                let store = world.open(&killed.kill_state(killed.events())).unwrap();
                let errors = world.judge(&store, None);
                assert_eq!(errors, Ok(0), "{context}: {:?}", store.damage());
                let report = world.repair(&killed).unwrap();
                assert_eq!(
                    (report.losses, report.doubtful),
                    (0, 0),
                    "{context}: {report:?}"
                );
                let store = world.open(&killed).unwrap();
                assert_eq!(world.judge(&store, None), Ok(0), "{context}");
                tried += 1;
            }
        }
    }
    tried_at_least(tried, 600, "openings after a killed repair");
}

/// What was not synced may be gone after a power cut, and the older object counts: that a repair was killed before has nobody
/// take it for synced.
#[test]
fn a_power_cut_in_a_repair_leaves_the_older_object_of_one_that_was_never_synced() {
    let options = CreateOptions::new()
        .capacity(4 << 20)
        .journal_size(256 << 10)
        .group_size(128 << 10)
        .background(false);
    let limits = Limits {
        exhaustive: 0,
        singles: 0,
        random: 40,
        ..Limits::default()
    };
    let (mut older, mut newer) = (0, 0);
    for seed in 0..share(10) {
        let seed = round_seed() + seed;
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let (directory, name) = (disk.directory(), Path::new(JOURNAL));
        let store = Store::create_in(&directory, name, &options, &mut |_, _| {}).unwrap();
        let [old, new] = [(); 2].map(|()| random.bytes(9000));
        store.put(id(0), &old).unwrap();
        store.checkpoint().unwrap();
        store.put(id(0), &new).unwrap();
        // Until the journal records it.
        for n in 0..300 {
            store.put(id(1 + n % 20), &[n as u8; 3000]).unwrap();
        }
        let journal = journal_of(&disk, 256 << 10);
        let end = journal.iter().rposition(|byte| *byte != 0).unwrap() as u64;
        let killed = disk.kill_state(disk.events());
        killed.make_unreadable(JOURNAL, end..end + 1);
        let (begun, sequence) = (killed.events(), newest(&killed));
        let (journal, _) = storages(&killed, false);
        Store::repair_on(&journal, None, &mut |_, _| {}).unwrap();
        for at in begun..killed.events() {
            let died = killed.kill_state(at);
            if newest(&died) != sequence + 1 {
                continue;
            }
            for cut in killed.crash_states(at, &limits) {
                let (journal, _) = storages(&cut, false);
                let report = Store::repair_on(&journal, None, &mut |_, _| {}).unwrap();
                drop(journal);
                let store = super::open(&cut, &options);
                let found = store.get(id(0));
                let context = || format!("seed {seed}, cut at {at} of a repair: {report:?}");
                match found.unwrap_or_else(|error| panic!("{}: {error}", context())) {
                    Some(found) if *found == *old => older += 1,
                    Some(found) if *found == *new => newer += 1,
                    other => panic!("{}: {:?} bytes", context(), other.map(|of| of.len())),
                }
            }
        }
    }
    tried_at_least(
        older.min(newer),
        20,
        "older and newer objects after a power cut",
    );
}

/// Offset of the root that the newest superblock states.
fn root_of(disk: &SimDisk) -> u64 {
    const ROOT: usize = 32 + 112;
    let head = journal_of(disk, 8192);
    let word = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().unwrap());
    let slot = if word(24) > word(4096 + 24) { 0 } else { 4096 };
    word(slot + ROOT)
}

/// All objects that can be read, with their values.
fn contents(disk: &SimDisk) -> BTreeMap<ObjectId, Vec<u8>> {
    let (journal, _) = storages(disk, false);
    let options = OpenOptions::new().background(false);
    let store = Store::open_on(journal, None, &options).unwrap();
    let ids: Vec<ObjectId> = store.list(..).map(|object| object.unwrap().id).collect();
    let read = ids
        .into_iter()
        .filter_map(|id| Some((id, store.get(id).ok()??.to_vec())));
    read.collect()
}

/// Where the root is lost, small objects are found in segments that the journal needs no more. A repair that is killed does not
/// write over them.
#[test]
fn a_repair_after_one_that_was_killed_finds_the_same_objects() {
    let (mut tried, mut in_doubt) = (0, 0);
    for seed in 0..third(60) {
        let seed = round_seed() + seed;
        let mut random = Random::new(seed);
        // With room for what is rebuilt next to what is kept.
        let journal_size = *random.choose(&[352_256, 512 << 10]);
        let options = CreateOptions::new()
            .capacity(*random.choose(&[900_000, 2 << 20]))
            .journal_size(journal_size)
            .group_size(128 << 10)
            .background(false);
        let disk = SimDisk::new(seed);
        let (directory, name) = (disk.directory(), Path::new(JOURNAL));
        let store = Store::create_in(&directory, name, &options, &mut |_, _| {}).unwrap();
        let ids = *random.choose(&[60, 100, 200]);
        let len_max = *random.choose(&[300, 2000]);
        let mut now: BTreeMap<ObjectId, Vec<u8>> = BTreeMap::new();
        for _ in 0..3000 {
            let id = id(random.below(ids));
            if random.one_in(4) {
                store.remove(id).unwrap();
                now.remove(&id);
                continue;
            }
            let len = 1 + random.index(len_max);
            let value = random.bytes(len);
            match store.put(id, &value) {
                Ok(_) => drop(now.insert(id, value)),
                Err(error) => assert_eq!(error.kind(), Kind::Full, "{error}"),
            }
            if random.one_in(1000) {
                store.checkpoint().unwrap();
            }
        }
        let disk = disk.kill_state(disk.events());
        drop(store);
        let repair = |disk: &SimDisk| {
            let (journal, _) = storages(disk, false);
            Store::repair_on(&journal, None, &mut |_, _| {}).unwrap()
        };
        for _ in 0..8 {
            // A part of the journal is lost, mostly with the root.
            let len: u64 = *random.choose(&[4 << 10, 16 << 10, 64 << 10]);
            let anywhere = FRONT + random.below(journal_size - FRONT - len);
            let near_root = root_of(&disk).saturating_sub(random.below(len)).max(FRONT);
            let offset = *random.choose(&[near_root, near_root, near_root, anywhere]);
            let offset = offset.min(journal_size - len);
            let whole = disk.kill_state(disk.events());
            let (journal, _) = storages(&whole, false);
            journal.write_at(offset, &vec![0; len as usize]).unwrap();
            drop(journal);
            let (begun, sequence) = (whole.events(), newest(&whole));
            let at_once = repair(&whole);
            let ended = whole.events();
            let right = contents(&whole.kill_state(ended));
            let right = right
                .iter()
                .filter(|(id, value)| now.get(id) == Some(*value));
            let right: Vec<_> = right.collect();
            in_doubt += u64::from(at_once.doubtful > 0);
            for _ in 0..6 {
                let at = begun + random.index(ended - begun);
                let killed = whole.kill_state(at);
                if newest(&killed) > sequence + 1 {
                    // It is repaired.
                    continue;
                }
                let report = repair(&killed);
                let found = contents(&killed);
                for (id, value) in &right {
                    assert!(
                        found.get(id) == Some(*value),
                        "seed {seed}, {len} bytes lost at {offset:#x}, killed at {at} of {begun}..{ended}: object {id} is \
                         lost; at once {at_once:?}; again {report:?}"
                    );
                }
                tried += 1;
            }
        }
    }
    let what =
        format!("repairs after a killed one, {in_doubt} damaged stores with objects in doubt");
    demand(tried, third(60) * 16, &what);
    assert!(in_doubt > 0);
}

/// Extents are looked for up to the end of the data.
#[test]
fn a_repair_finds_the_object_in_the_last_unit() {
    let options = CreateOptions::new()
        .capacity(1 << 20)
        .journal_size(256 << 10)
        .group_size(128 << 10)
        .small_max(0)
        .background(false);
    let memory = Memory::new(8 << 20).unwrap();
    memory.resize(1 << 20).unwrap();
    let storage: Arc<dyn Storage> = memory.clone();
    let store = Store::create_on(storage, None, &options, &mut |_, _| {}).unwrap();
    let mut count = 0;
    while store.put(id(count), &vec![count as u8; 4000]).is_ok() {
        count += 1;
    }
    store.close().unwrap();
    let mut bytes = memory.to_vec();
    assert!(
        bytes[(1 << 20) - 4096..].starts_with(b"azob"),
        "the last unit is free"
    );
    bytes[8192..256 << 10].fill(0xa5);
    let storage: Arc<dyn Storage> = Memory::from_bytes(&bytes, 8 << 20).unwrap();
    let report = Store::repair_on(&storage, None, &mut |_, _| {}).unwrap();
    assert_eq!(report.objects, count);
}
