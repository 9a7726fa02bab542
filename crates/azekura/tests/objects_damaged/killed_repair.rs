//! Repairs that are killed, and repeated.
//!
//! A repair writes zeros over the sectors of the journal that cannot be read, and a journal may end before zeros. Until the repaired
//! store is there, a second repair still names each object that may be older, and each loss.

use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, round_seed};

use super::{FRONT, JOURNAL, World, is_blank_room, journal_of};

/// The sequence of the newest superblock.
fn newest(disk: &azekura::io::sim::SimDisk) -> u64 {
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
