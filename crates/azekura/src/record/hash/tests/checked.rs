//! The check of a store in use: what others change meanwhile is no damage, and a count that is wrong is.
//!
//! The changes are made where the check shows its progress, so they always come between the same two steps of it. What
//! threads change during a check is tried by `azekura stress`.

use super::*;
use crate::index::hash::PARTITIONS;

/// A store of `count` records.
fn filled(count: u32) -> HashDb {
    let (_, db) = empty();
    put_each(&db, 0..count, b"value");
    db
}

/// Of keys that are not stored, one whose record would stand in a partition that `wanted` takes.
fn absent(db: &HashDb, wanted: impl Fn(usize) -> bool) -> [u8; 4] {
    let keys = (1 << 20..).map(u32::to_le_bytes);
    let found = |key: &[u8; 4]| wanted(db.core.hash(key).partition());
    keys.take(1 << 16).find(found).unwrap()
}

/// One record goes that the check has not seen yet, and another comes where it has been: one fewer is found than there are, and
/// as many are counted before and after.
#[test]
fn records_that_come_and_go_while_a_store_is_checked_are_no_damage() {
    let db = filled(2000);
    let keys = (0..2000u32).map(u32::to_le_bytes);
    let later = |key: &[u8; 4]| db.core.hash(key).partition() > PARTITIONS * 3 / 4;
    let goes = keys.clone().find(later).unwrap();
    let comes = absent(&db, |partition| partition < PARTITIONS / 4);
    let mut is_changed = false;
    let report = db.check(&mut |done, total| {
        if total - done <= PARTITIONS as u64 / 2 && !is_changed {
            is_changed = true;
            db.put(&comes, b"value").unwrap();
            assert!(db.remove(&goes).unwrap());
        }
    });
    let report = report.unwrap();
    assert!(is_changed);
    assert_eq!((report.records, db.count()), (1999, 2000));
    assert_eq!(report.damage, Vec::<String>::new());
}

#[test]
fn a_count_that_is_wrong_is_found_where_nothing_is_changed_meanwhile() {
    let db = filled(100);
    assert_sound(&db);
    db.core.count.add(&db.core.index.pin(), 1);
    let report = db.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.damage, ["100 records found, 101 counted"]);
}

/// A segment that is freed and taken again while the headers are read has the header of its later use.
#[test]
fn the_header_of_a_segment_that_was_taken_again_is_no_damage() {
    let db = filled(1);
    let log = db.log();
    let seen = log.segments().in_use(Use::Log);
    log.roll_over().unwrap();
    log.segments().retire(seen[0].index);
    log.segments().release(&log.segments().retired());
    while log.segments().sequence_of(seen[0].index).is_none() {
        log.roll_over().unwrap();
    }
    assert_ne!(log.end().sequence(), seen[0].sequence);
    assert!(!log.is_mismatched(&seen[0]));
    assert_eq!(log.mismatched_headers(), []);
}
