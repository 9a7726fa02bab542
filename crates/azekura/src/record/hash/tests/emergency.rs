//! Emergency cleaning of a full store in which the emptiest segment cannot be cleaned: its copies need free segments side by side.
//!
//! It was a batch of several segments, of which a part is dead; no free segment has a free neighbour. Another segment, of which
//! less is dead, gives room back.

use super::*;
use crate::log::{AllocationClass, Patience, Use};

/// The index of the segment in which a record stands, and its sequence.
fn segment_of(db: &HashDb, key: &[u8]) -> (u32, Option<u64>) {
    let address = db.core.place_of(key, db.core.hash(key)).unwrap();
    let place = db.core.log.geometry().locate(address.offset());
    let (unit, _) = place.unwrap();
    let index = db.core.log.segments().first_of(unit);
    (index, db.core.log.segments().sequence_of(index))
}

/// No free segment has a free neighbour.
fn part_free_segments(db: &HashDb) {
    let segments = db.core.log.segments();
    // What others of the process hold up is not to come between.
    segments.reap_to_the_last();
    while segments.first_free().is_some() {
        let taken = segments
            .space()
            .take(1, 0, Use::Other, AllocationClass::Checkpoint);
        let index = taken.unwrap();
        assert!(segments.first_free() != Some(index));
    }
    let runs = segments.in_use(Use::Other).into_iter();
    let even: Vec<u32> = runs.map(|run| run.index).filter(|i| i % 2 == 0).collect();
    let images = db.core.checkpoint.lock();
    let needed = |index: u32| {
        let extents = images.images.iter().map(|image| image.extent);
        let mut extents = extents.chain(images.committed.root.iter().copied());
        extents.any(|extent| {
            let place = db.core.log.geometry().locate(extent.offset);
            extent.len > 0 && place.is_some_and(|(at, _)| at == index)
        })
    };
    let idle: Vec<(u32, u32)> = even
        .into_iter()
        .filter(|index| !needed(*index))
        .map(|index| (index, 1))
        .collect();
    for (index, _) in &idle {
        segments.retire(*index);
    }
    segments.release(&idle);
    segments.reap_to_the_last();
}

#[test]
fn where_the_emptiest_segment_does_not_fit_another_one_is_cleaned() {
    let options = small().capacity(1 << 20);
    let db = HashDb::create_on(Memory::new(1 << 20).unwrap(), &options).unwrap();
    let long: [&[u8]; 3] = [b"long 0", b"long 1", b"long 2"];
    db.update_many(&long, &mut |_| {
        let put = |_| Edit::Put(vec![7; 6000].into());
        (0..3).map(put).collect()
    })
    .unwrap();
    let refused = (0u32..).find_map(|key| db.put(&key.to_le_bytes(), &[1; 900]).err());
    assert_eq!(refused.unwrap().kind(), Kind::Full);
    let (batch, sequence) = segment_of(&db, long[1]);
    let (single, sequence_of_single) = segment_of(&db, &40u32.to_le_bytes());
    assert!(db.remove(long[0]).unwrap());
    assert!(db.remove(&40u32.to_le_bytes()).unwrap());
    db.checkpoint().unwrap();
    let segments = db.core.log.segments();
    assert_eq!(segments.sequence_of(batch), sequence);
    let emptiest = db.core.emptiest(|_| true).unwrap();
    assert_eq!(emptiest.index, batch);
    part_free_segments(&db);
    assert!(segments.space().left_for(AllocationClass::Cleaning) >= 4);
    assert!(!segments.space().is_left(2, AllocationClass::Cleaning));
    let refused = db.core.clean(emptiest).unwrap_err();
    assert_eq!(refused.kind(), Kind::Full, "{refused}");
    let relieved = db
        .core
        .relieve(true, None, None, true, &mut Patience::default());
    assert_ne!(segments.sequence_of(single), sequence_of_single);
    relieved.unwrap();
}
