//! Partitions that are not in memory: what a clear does to one that is being loaded, and what a failed load leaves.
//!
//! A thread loads all partitions while the store is cleared, at a later moment each round; the deterministic test of the same
//! race is the index's own. Slots that are only reserved, and pins within pins, are here, too.

use std::sync::Arc;

use super::*;
use crate::index::Source as _;
use crate::index::hash::PARTITIONS;
use crate::log::{Address, AllocationClass};
use crate::record::hash::recover::Replay;

/// A store of so many records, all of which its last checkpoint holds.
fn at_a_checkpoint(count: u32, value: &[u8]) -> (Arc<Memory>, HashDb) {
    let (memory, db) = empty();
    put_each(&db, 0..count, value);
    db.checkpoint().unwrap();
    (memory, db)
}

/// What replay finds in the log of an open store from `start` on, and where each frame stands and how long it is.
fn replayed(db: &HashDb, start: End) -> (Replay, Vec<(Address, usize)>) {
    let mut replay = Replay::new(db.core.secrets);
    let mut frames = Vec::new();
    let found = db
        .log()
        .recover(start, with_live_writer(false), &mut |address, frame| {
            frames.push((address, frame.len()));
            replay.record((address, 1), &frame, 0);
            Ok(())
        });
    found.unwrap();
    (replay, frames)
}

fn dead_bytes(log: &Log) -> u64 {
    let in_use = log.segments().in_use(Use::Log);
    in_use.iter().map(|segment| segment.dead).sum()
}

/// A clear once let the partition that was being loaded come back: `count` was 0, and a scan showed some records.
#[test]
fn records_that_are_loaded_while_all_is_cleared_stay_cleared() {
    const LIMIT: u64 = 1 << 27;
    let options = CreateOptions::new().background(false);
    let memory = Memory::new(LIMIT).unwrap();
    let db = HashDb::create_on(memory.clone(), &options).unwrap();
    put_each(&db, 0..200_000u32, b"value");
    db.checkpoint().unwrap();
    db.close().unwrap();
    for round in 0..10 {
        let copy = Memory::from_bytes(&memory.to_vec(), LIMIT).unwrap();
        let db = Arc::new(HashDb::open_on(copy, &options.opening).unwrap());
        let loading = {
            let db = Arc::clone(&db);
            std::thread::spawn(move || {
                for partition in 0..PARTITIONS {
                    db.core.index.load(partition).unwrap();
                }
            })
        };
        std::thread::sleep(std::time::Duration::from_micros(300 * round));
        db.clear().unwrap();
        loading.join().unwrap();
        assert_eq!(db.count(), 0);
        let mut shown = 0;
        db.scan(None, &mut |_, _| {
            shown += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(shown, 0, "round {round}");
        assert_sound(&db);
    }
}

/// A load whose partition could not be built, for want of memory, once had dropped what the log recorded.
#[test]
fn a_load_that_came_to_nothing_is_made_again_whole() {
    let (_, db) = empty();
    for i in 0..100u32 {
        db.put(&(i % 60).to_le_bytes(), b"value").unwrap();
    }
    let log = Arc::clone(&db.core.log);
    let start = End::of(0, crate::log::manifest::FIRST_SEQUENCE, Some(FIRST_FRAME));
    let (replay, _) = replayed(&db, start);
    let salt = log.geometry().salt;
    let before = dead_bytes(&log);
    let cold = replay.into_source(
        Arc::clone(&log),
        salt,
        vec![crate::record::hash::layout::Image::default(); PARTITIONS],
    );
    let mut count = 0;
    for partition in 0..PARTITIONS {
        let first = cold.load(partition).unwrap();
        assert_eq!(cold.load(partition).unwrap(), first);
        assert_eq!(dead_bytes(&log), before, "what is not loaded kills nothing");
        count += first.len();
    }
    assert_eq!(count, 60);
    for partition in 0..PARTITIONS {
        cold.loaded(partition);
    }
    assert!(dead_bytes(&log) > before);
}

/// An image may be newer than the place where replay begins: an earlier frame then replaces what a later one brings back. That
/// one was once counted as dead all the same, and again when it was replaced.
#[test]
fn a_frame_that_an_image_held_before_replay_reached_it_is_not_dead() {
    let (memory, db) = empty();
    let start = db.log().end();
    let key = b"key";
    db.put(key, &[1; 100]).unwrap();
    db.put(key, &[2; 300]).unwrap();
    let hash = Hash::of_key(key, &db.core.secrets);
    let log = Arc::clone(&db.core.log);
    let (replay, frames) = replayed(&db, start);
    let [(_, first), (second, _)] = frames[..] else {
        panic!("{} frames", frames.len())
    };
    let mut entries = vec![crate::index::entry(hash, second.0)];
    let bytes = crate::record::hash::image::encode(&mut entries);
    let (salt, partition, offset) = (
        log.geometry().salt,
        hash.partition(),
        memory.size().unwrap(),
    );
    memory.resize(offset + bytes.len() as u64).unwrap();
    memory.write_at(offset, &bytes).unwrap();
    let seed = layout::image_seed(salt, partition);
    let mut images = vec![layout::Image::default(); PARTITIONS];
    images[partition] = layout::Image {
        count: 1,
        extent: crate::log::manifest::Extent {
            offset,
            len: bytes.len() as u64,
            crc: crate::format::checksum::crc(seed, &bytes),
        },
    };
    let before = dead_bytes(&log);
    let cold = replay.into_source(Arc::clone(&log), salt, images);
    assert_eq!(cold.load(partition).unwrap(), entries);
    cold.loaded(partition);
    assert_eq!(dead_bytes(&log) - before, first as u64);
}

/// A checkpoint that there is no room for leaves what was changed for the next one: else the next begins after changes that no
/// image holds.
#[test]
fn what_a_refused_checkpoint_left_out_is_in_the_next() {
    let (memory, db) = at_a_checkpoint(2000, b"before");
    put_each(&db, 0..1000u32, b"after");
    let segments = db.log().segments();
    memory.set_limit(memory.size().unwrap());
    let mut taken = Vec::new();
    let take = || {
        segments
            .space()
            .take(1, 0, Use::Other, AllocationClass::Checkpoint)
    };
    while let Ok(index) = take() {
        taken.push((index, 1));
    }
    let error = db.core.checkpoint_in_parts(None).unwrap_err();
    assert_eq!(error.kind(), Kind::Full, "{error}");
    for (index, _) in &taken {
        segments.retire(*index);
    }
    segments.release(&taken);
    segments.reap_to_the_last();
    memory.set_limit(1 << 26);
    db.checkpoint().unwrap();
    let killed = memory.to_vec();
    drop(db);
    let db = opened(&killed);
    for i in 0..2000u32 {
        let wanted = if i < 1000 { &b"after"[..] } else { b"before" };
        assert_eq!(
            db.get(&i.to_le_bytes()).unwrap().as_deref(),
            Some(wanted),
            "{i}"
        );
    }
}

/// A closed store of 20,000 records, a page of its images that the device cannot read, and the parts of the index that stand
/// there.
fn with_unreadable_images() -> (lost_root::Unreadable, Vec<usize>) {
    let (memory, db) = at_a_checkpoint(20_000, b"value");
    let images = db.core.checkpoint.lock().images.clone();
    db.close().unwrap();
    let page = images[PARTITIONS / 2].extent.offset & !4095;
    let is_there = |partition: &usize| {
        let extent = images[*partition].extent;
        !images[*partition].is_empty()
            && extent.offset < page + 4096
            && page < extent.offset + extent.len
    };
    let lost: Vec<usize> = (0..PARTITIONS).filter(is_there).collect();
    assert!(lost.len() > 1, "{} parts", lost.len());
    (lost_root::Unreadable { memory, page }, lost)
}

/// An image that the device cannot read once ended a scan, where one that does not verify was reported and passed.
#[test]
fn a_scan_continues_past_a_part_of_the_index_that_cannot_be_read() {
    let (storage, lost) = with_unreadable_images();
    let db = HashDb::open_on(Arc::new(storage), &small().opening).unwrap();
    let is_lost = |i: &u32| {
        let hash = Hash::of_key(&i.to_le_bytes(), &db.core.secrets);
        lost.contains(&hash.partition())
    };
    let records = (0..20_000).filter(is_lost).count();
    let (mut shown, mut reported) = (0, Vec::new());
    db.scan_past(
        None,
        &mut |_, _| {
            shown += 1;
            ControlFlow::Continue(())
        },
        &mut |error| {
            reported.push(error.kind());
            Ok(())
        },
    )
    .unwrap();
    assert_eq!(shown, 20_000 - records);
    assert_eq!(reported, vec![Kind::Io; lost.len()]);
}

/// A change of a key whose part of the index a reader cannot read once kept it from following the log, and every read of any key
/// was refused.
#[test]
fn a_reader_concurrent_with_a_writer_follows_past_a_part_of_the_index_that_it_cannot_read() {
    let (storage, lost) = with_unreadable_images();
    let writer = HashDb::open_on(storage.memory.clone(), &small().opening).unwrap();
    let reader = HashReader::open_on(Arc::new(storage)).unwrap();
    let mut refused = 0;
    for round in 0..2u8 {
        for i in (0..20_000u32).step_by(20) {
            writer.put(&i.to_le_bytes(), &[round]).unwrap();
        }
        for i in (0..20_000u32).step_by(10) {
            let key = i.to_le_bytes();
            let found = reader.get(&key);
            if lost.contains(&Hash::of_key(&key, &writer.core.secrets).partition()) {
                assert_eq!(found.unwrap_err().kind(), Kind::Io);
                refused += 1;
            } else {
                let wanted = if i % 20 == 0 { &[round][..] } else { b"value" };
                assert_eq!(found.unwrap().as_deref(), Some(wanted), "{i}");
            }
        }
    }
    assert!(refused > 0);
}

/// The slot of an insertion under way holds an address beyond any map.
#[test]
fn a_slot_that_is_only_reserved_leads_nowhere() {
    let db = empty().1;
    assert!(db.log().locate(Address((1 << 40) - 1)).is_none());
}
