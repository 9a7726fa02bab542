//! Images of the index that are left where they stand do not keep the room of those that are written again.
//!
//! A checkpoint of a store that was not full once let a few images that had not changed keep all the old runs of segments: it
//! held twice what it needed. When the store came to be full after that, nothing was appended that asked for another
//! checkpoint, and removals found no room, for ever.

use super::*;
use crate::index::hash::PARTITIONS;
use crate::log::Use;
use crate::testkit::suite::{case, share, tried_at_least};

/// A store in memory that is full of records which are all key: of these the images are largest compared with the log.
fn filled(options: &CreateOptions) -> (HashDb, Vec<u64>) {
    let memory = Memory::new(options.opening.capacity).unwrap();
    let db = HashDb::create_on(memory, options).unwrap();
    let mut keys = Vec::new();
    fill(&db, &mut keys);
    (db, keys)
}

/// Puts more, until a record is refused.
fn fill(db: &HashDb, keys: &mut Vec<u64>) {
    let next = keys.last().map_or(0, |last| last + 1);
    for key in next.. {
        match db.put(&key.to_le_bytes(), b"") {
            Ok(()) => keys.push(key),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full, "{error}");
                return;
            }
        }
    }
}

/// Segments that images and root take, and as many as they may: four thirds of what they hold, those that may be spared, a root,
/// and the run that is being filled.
fn taken(db: &HashDb) -> (u64, u64) {
    let segments = db.core.log.segments();
    let size = db.core.log.geometry().segment_size();
    let state = db.core.checkpoint.lock();
    let images = state.images_len();
    let root: u64 = state.committed.root.iter().map(|piece| piece.len).sum();
    let runs = segments.in_use(Use::Other).into_iter();
    let taken = runs.map(|run| u64::from(run.units)).sum();
    let most = (images + images / 3).div_ceil(size) + root.div_ceil(size) + 4 + 8;
    (taken, most)
}

/// Some partitions are to be written again, and there is news for a checkpoint.
fn change(db: &HashDb, keys: &[u64], mut is_changed: impl FnMut(usize) -> bool) {
    for partition in (0..PARTITIONS).filter(|partition| is_changed(*partition)) {
        db.core.index.load(partition).unwrap();
        db.core.index.mark_dirty(partition);
    }
    if let Some(key) = keys.first() {
        db.put(&key.to_le_bytes(), b"").unwrap();
    }
}

#[test]
fn the_few_images_that_stay_do_not_keep_the_room_of_all() {
    let (mut checkpoints, stores) = (0, share(20).max(2));
    for seed in 0..stores {
        let mut random = Random::new(seed);
        let segment_size = 4096 << random.below(2);
        let capacity = (4 << 20) + random.below(512) * 4096;
        let options = small().segment_size(segment_size).capacity(capacity);
        let _shown = case(seed, &options);
        let (db, mut keys) = filled(&options);
        let mut rounds = 0;
        while !keys.is_empty() {
            // It is full, or not any more.
            for key in keys.drain(keys.len() - keys.len().min(random.index(4000))..) {
                assert!(db.remove(&key.to_le_bytes()).unwrap());
            }
            let stay = 2 + random.below(30);
            change(&db, &keys, |_| !random.one_in(stay));
            db.checkpoint().unwrap();
            let (taken, most) = taken(&db);
            assert!(taken <= most, "{taken} segments, {most} at most");
            (checkpoints, rounds) = (checkpoints + 1, rounds + 1);
        }
        assert!(rounds > 20, "{rounds}");
    }
    tried_at_least(checkpoints, 20 * 20, "checkpoints of stores that were full");
}

/// In whatever order the images stand, and whether or not the store is full when it begins: a checkpoint takes no more than is
/// kept for it, though others took all the rest meanwhile.
#[test]
fn a_checkpoint_needs_no_more_than_is_kept_for_it() {
    let (mut checkpoints, mut full, stores) = (0, 0, share(20).max(2));
    for seed in 0..stores {
        let mut random = Random::new(!seed);
        let segment_size = 4096;
        let capacity = (4 << 20) + random.below(512) * 4096;
        let options = small().segment_size(segment_size).capacity(capacity);
        let _shown = case(seed, &options);
        let (db, mut keys) = filled(&options);
        for round in 0..30 {
            change(&db, &keys, |_| random.one_in(1 + round % 6));
            match random.below(4) {
                0 => {
                    for key in keys.drain(keys.len() - keys.len() / 50..) {
                        assert!(db.remove(&key.to_le_bytes()).unwrap());
                    }
                }
                1 => fill(&db, &mut keys),
                _ => {}
            }
            db.core.look_ahead();
            let segments = db.core.log.segments();
            full += u64::from(segments.is_full());
            let kept = segments.reserve().checkpoint as usize;
            let free = segments.space().others().nth(kept);
            let aside = segments
                .space()
                .set_aside(&(free.unwrap_or(u32::MAX)..u32::MAX));
            db.core.checkpoint_in_parts(None).unwrap();
            db.core.log.segments().space().put_back(aside);
            checkpoints += 1;
        }
    }
    let what = "checkpoints with no more room than is kept for them";
    tried_at_least(checkpoints, 20 * 30, what);
    assert!(
        (checkpoints / 10..checkpoints * 9 / 10).contains(&full),
        "{full}"
    );
}
