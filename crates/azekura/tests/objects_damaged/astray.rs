//! A page of the journal with another one written over it, or zeros, where the journal continues after the checkpoint: what was told
//! there may have changed any small object, and the blank place after what was written over is not the journal's end.
//! Where what stands right before that place differs by one bit or none, it counts as whole, and the loss cannot be detected.

use azekura::object::{CreateOptions, Store};
use azekura::testkit::Random;
use azekura::testkit::round_seed;
use azekura::testkit::suite::{share, tried_at_least};

use super::*;

const PAGE: u64 = 4096;

/// Where the journal continues after the newest checkpoint, as the superblock's payload states it.
fn replay_from(journal: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(*journal[at..].first_chunk().unwrap());
    let half = |at: usize| u64::from(word(at) as u32);
    let slot = if word(24) > word(4096 + 24) { 0 } else { 4096 };
    let payload = slot + 32;
    FRONT + (half(payload + 80) << half(payload)) + half(payload + 84)
}

/// A store of small objects that was killed after a checkpoint and some changes that nothing synced.
fn drawn(seed: u64, random: &mut Random) -> World {
    let options = CreateOptions::new()
        .group_size(64 << 10)
        .small_max(2048)
        .background(false)
        .journal_size(512 << 10);
    let disk = SimDisk::new(seed);
    let journal = disk.directory().create(Path::new(JOURNAL)).unwrap();
    journal.resize(2 << 20).unwrap();
    disk.directory().sync().unwrap();
    let store = Store::create_on(journal, None, &options, &mut |_, _| {}).unwrap();
    let mut world = World {
        disk,
        options: options.journal_size(None),
        has_data: false,
        is_closed: false,
        is_synced: false,
        journal_size: 512 << 10,
        tail: FRONT,
        now: BTreeMap::new(),
        once: BTreeMap::new(),
        ids: 40,
    };
    for _ in 0..random.below(200) {
        world.change_last(&store, random);
    }
    if random.below(4) > 0 {
        store.checkpoint().unwrap();
    }
    for _ in 0..=random.below(12) {
        if random.below(3) == 0 {
            let of = id(random.below(world.ids));
            store.remove(of).unwrap();
            world.now.remove(&of);
        } else {
            world.change_last(&store, random);
        }
    }
    world.disk = world.disk.kill_state(world.disk.events());
    drop(store);
    world
}

#[test]
fn a_page_written_over_the_end_of_the_journal_makes_no_object_absent_or_older() {
    let (mut cases, mut errors, mut asked) = (0, 0, 0);
    for seed in 0..share(300) {
        let seed = 0xa57 + round_seed() + seed;
        let mut random = Random::new(seed);
        let world = drawn(seed, &mut random);
        let journal = journal_of(&world.disk, world.journal_size);
        let from = replay_from(&journal);
        let page = from / PAGE * PAGE;
        let pages = (FRONT..world.journal_size).step_by(PAGE as usize);
        let bytes = |page: u64| &journal[page as usize..(page + PAGE) as usize];
        let is_written =
            |other: &u64| *other != page && bytes(*other).iter().any(|byte| *byte != 0);
        let written: Vec<u64> = pages.filter(is_written).collect();
        for turn in 0..4 {
            let disk = world.disk.kill_state(world.disk.events());
            let zeros = [0; PAGE as usize];
            let over = if written.is_empty() || turn == 0 {
                &zeros
            } else {
                bytes(*random.choose(&written))
            };
            // Where what stands right before differs by one bit, the space looks as if nothing was appended.
            let before = (from - page) as usize;
            let differing = over.iter().zip(bytes(page)).take(before);
            if differing.map(|(a, b)| (a ^ b).count_ones()).sum::<u32>() <= 1 {
                continue;
            }
            let storage = disk.directory().open(Path::new(JOURNAL), Access::Write);
            storage.unwrap().write_at(page, over).unwrap();
            let what = format!("seed {seed}, turn {turn}, over {page:#x}, replay from {from:#x}");
            let store = world
                .open(&disk)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            errors += world
                .judge(&store, None)
                .unwrap_or_else(|how| panic!("{what}: {how}; {:?}", store.damage()));
            drop(store);
            let report = world.repair(&disk).unwrap();
            let store = world.open(&disk).unwrap();
            world
                .judge(&store, Some(&report))
                .unwrap_or_else(|how| panic!("{what}, repaired: {how}; {report:?}"));
            asked += world.ids + 4;
            cases += 1;
        }
    }
    tried_at_least(cases, 1000, "pages written over the journal's end");
    assert!(
        errors > cases && errors < asked,
        "{errors} of {asked} reads failed"
    );
}
