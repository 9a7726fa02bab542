//! Lists of long keys in stores that have little room besides them: each change writes a list again.
//!
//! A process that dies in the middle leaves a journal whose every frame asks for a whole list when it is done again, and no checkpoint
//! may be made meanwhile: what one frame wrote and the next replaced is the room that there is.

use std::collections::BTreeMap;
use std::path::Path;

use azekura::Kind;
use azekura::engine::{Engine, Persistent, Reader};
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory};
use azekura::record::tree::{CreateOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};

use super::eight;
use super::power::many;
use super::{shaped, value};

const NAME: &str = "crowded.azt";

/// One of many keys of a few lists.
fn key(random: &mut Random, lists: u64) -> Vec<u8> {
    let mut key = format!("{:03}", random.below(lists)).into_bytes();
    key.resize(510, b'k');
    key.extend(format!("{:05}", random.below(3000)).bytes());
    key
}

#[test]
fn a_full_store_of_long_lists_opens_after_a_kill() {
    let (mut opened, mut grown) = (0, 0);
    for round in 0..share(20) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let options: CreateOptions = shaped(&mut random).segment_size(64 << 10);
        let capacity = *random.choose(&[3 << 20, 5 << 20]);
        let opening = options.opening.clone().capacity(capacity);
        let opening = opening.cache(4 << 20).background(false);
        let options = options.opening(opening);
        let lists = *random.choose(&[1, 4, 30]);
        let _shown = case(seed, &(&options, lists));
        let disk = SimDisk::new(seed);
        let db = TreeDb::create_in(&disk.directory(), Path::new(NAME), &options).unwrap();
        let mut model = BTreeMap::new();
        let open = |disk: &SimDisk| {
            let storage = disk.directory().open(Path::new(NAME), Access::Write)?;
            TreeDb::open_on(storage, &options.opening)
        };
        let (mut refused, mut since) = (0, 0);
        while refused < 12 && since < 1000 {
            since += 1;
            // Batches, too: they write each of their lists once, and are done again record by record.
            let count = if random.one_in(3) {
                random.below(90)
            } else {
                1
            };
            let edits: BTreeMap<_, _> = (0..count)
                .map(|_| {
                    let edit = (!random.one_in(5)).then(|| value(&mut random, 300));
                    (key(&mut random, lists), edit)
                })
                .collect();
            match many(&db, &edits) {
                Ok(()) => {
                    for (key, edit) in edits {
                        match edit {
                            Some(value) => drop(model.insert(key, value)),
                            None => drop(model.remove(&key)),
                        }
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    refused += 1;
                }
            }
            if refused > 0 && random.one_in(6) {
                let killed = disk.kill_state(disk.events());
                let db = open(&killed).unwrap();
                let size = db.stats().file_bytes;
                grown += u64::from(size > capacity);
                assert_eq!(db.count(), model.len() as u64);
                for (key, value) in &model {
                    assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
                }
                assert!(db.check(&mut |_, _| {}).unwrap().is_sound());
                opened += 1;
                // What it grew by is given back when there is room.
                db.clear().unwrap();
                db.close().unwrap();
                let size = open(&killed).unwrap().stats().file_bytes;
                assert!(size <= capacity, "{size} bytes");
            }
        }
    }
    let what =
        format!("full stores of long lists opened after a kill, {grown} of them larger for it");
    tried_at_least(opened, 30, &what);
}

/// Pages full to the brim, as a load leaves them, divide at each put: however many of them do before one is refused, removals find room.
#[test]
fn removals_are_taken_after_full_pages_were_divided() {
    const LOADED: u64 = 42_550;
    // The numbers of which one sequence leads there.
    let mut state = 1_663_341_875_487_337_589u64;
    let mut below = |limit: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    };
    let disk = SimDisk::new(12);
    let mut options = CreateOptions::new()
        .page_size(16 << 10)
        .segment_size(64 << 10);
    options.opening = options
        .opening
        .cache(1 << 20)
        .background(false)
        .capacity(11_439_875);
    let db = TreeDb::create_in(&disk.directory(), Path::new(NAME), &options).unwrap();
    let loaded = |number: u64| eight(number << 20);
    db.load_sorted((0..LOADED).map(|number| Ok((loaded(number), [7; 150]))))
        .unwrap();
    let mut refused = 0;
    loop {
        let number = below(LOADED) << 20 | below(1 << 20);
        if let Err(error) = db.put(&eight(number), &[7; 150]) {
            assert_eq!(error.kind(), Kind::Full);
            refused += 1;
            if refused > 300 {
                break;
            }
        }
        db.get(&loaded(below(LOADED))).unwrap();
    }
    let mut removed = 0;
    for _ in 0..500 {
        removed += u64::from(db.remove(&loaded(below(LOADED))).unwrap());
        db.get(&loaded(below(LOADED))).unwrap();
    }
    tried_at_least(removed, 400, "removals after full pages were divided");
}
