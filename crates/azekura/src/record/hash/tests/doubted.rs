//! What a repair doubts, record by record.
//!
//! Each is named by its key, its place in the damaged file and the reason, in the order of the log, as many as a report may
//! name. How much of it there may be after damage of any kind is tried in `tests/degraded/`.

use super::*;
use crate::damage::Affects;

fn key(n: u32) -> Vec<u8> {
    format!("key-{n:05}").into_bytes()
}

fn value(n: u32) -> Vec<u8> {
    format!("value-{n:05}").into_bytes()
}

/// A file of `count` records as a killed process leaves it; the first `before` are those of a checkpoint.
fn killed(count: u32, before: u32) -> Vec<u8> {
    let (memory, db) = empty();
    for n in 0..count {
        if n == before {
            db.checkpoint().unwrap();
        }
        db.put(&key(n), &value(n)).unwrap();
    }
    if before == count {
        db.checkpoint().unwrap();
    }
    memory.to_vec()
}

/// Offset of the frame of a record: its first word stands before the key.
fn frame_at(bytes: &[u8], n: u32) -> u64 {
    place_of(bytes, &key(n)) as u64 - 8
}

fn blank_root(bytes: &mut [u8]) {
    let root = superblock_of(stored(bytes).as_ref()).root.unwrap();
    bytes[root.offset as usize..][..root.len as usize].fill(0);
}

fn report_of(bytes: &[u8]) -> RepairReport {
    let (_, report) = repaired(&stored(bytes));
    assert_eq!(report.losses, report.lost.len() as u64);
    report
}

#[test]
fn a_record_that_was_rebuilt_from_one_wrong_bit_is_named() {
    let mut bytes = killed(100, 20);
    let offset = frame_at(&bytes, 50);
    bytes[offset as usize + 20] ^= 4;
    let report = report_of(&bytes);
    let doubted = Doubted {
        key: key(50),
        offset,
        reason: Doubt::Corrected,
    };
    assert_eq!((report.doubtful, report.doubted), (1, vec![doubted]));
}

#[test]
fn records_before_a_part_of_the_log_that_is_lost_are_named_with_its_place() {
    let mut bytes = killed(100, 20);
    let (from, to) = (frame_at(&bytes, 50), frame_at(&bytes, 52));
    bytes[from as usize..to as usize].fill(0xa5);
    let report = report_of(&bytes);
    let doubted: Vec<Doubted> = (0..50)
        .map(|n| Doubted {
            key: key(n),
            offset: frame_at(&bytes, n),
            reason: Doubt::LogLost(from),
        })
        .collect();
    assert_eq!((report.doubtful, report.doubted), (50, doubted));
}

/// What opening states of damage.
fn affected(bytes: &[u8]) -> Vec<Affects> {
    let damage = opened(bytes).damage();
    damage.into_iter().map(|damage| damage.affects).collect()
}

/// Opening stated that no record was affected, and a repair named each as in doubt.
#[test]
fn without_a_root_a_repair_doubts_no_record_where_the_log_is_whole_since_it_began() {
    let mut bytes = killed(1200, 1200);
    blank_root(&mut bytes);
    let report = report_of(&bytes);
    assert_eq!((report.doubtful, report.losses), (0, 1));
    assert_eq!(affected(&bytes), [Affects::Nothing]);
}

#[test]
fn records_of_which_the_index_is_lost_are_named_a_thousand_of_them_and_the_rest_counted() {
    let mut bytes = killed(1201, 1201);
    blank_root(&mut bytes);
    // What is lost last before the checkpoint may have removed any record.
    let at = frame_at(&bytes, 1200) as usize;
    bytes[at..at + 24].fill(0xa5);
    let report = report_of(&bytes);
    assert_eq!(report.doubtful, 1200);
    assert!(affected(&bytes).iter().any(Affects::is_unbounded));
    let named: Vec<_> = report.doubted.iter().map(|doubted| &doubted.key).collect();
    let wanted: Vec<_> = (0..1000).map(key).collect();
    assert_eq!(named, wanted.iter().collect::<Vec<_>>());
    let is_lost = |doubted: &Doubted| doubted.reason == Doubt::IndexLost;
    assert!(report.doubted.iter().all(is_lost));
}

#[test]
fn long_keys_in_doubt_do_not_fill_the_memory() {
    let (memory, db) = empty();
    for n in 0..5 {
        db.put(&vec![n; 400_000], b"value").unwrap();
    }
    db.checkpoint().unwrap();
    let mut bytes = memory.to_vec();
    let at = place_of(&bytes, &[4; 64]);
    bytes[at - 8..at + 64].fill(0xa5);
    blank_root(&mut bytes);
    let report = report_of(&bytes);
    assert_eq!((report.doubtful, report.doubted.len()), (4, 2));
}

/// What hides a later mark leaves the one before it, which is not the last.
#[test]
fn a_file_that_damage_keeps_from_being_written_states_no_mark() {
    let (memory, db) = empty();
    for n in 1..3 {
        db.set_mark(format!("applied to {n}").as_bytes()).unwrap();
        db.put(&key(n), &value(n)).unwrap();
    }
    let mut bytes = memory.to_vec();
    let mark = b"applied to 2";
    let at = place_of(&bytes, mark);
    bytes[at - 8..at + mark.len()].fill(0x5a);
    let damaged = opened(&bytes);
    assert!(damaged.log().is_refused());
    assert_eq!(damaged.mark(), None);
}

#[test]
fn a_clear_without_a_mark_keeps_the_last_one() {
    for (own, found) in [(None, "applied"), (Some("cleared"), "cleared")] {
        let (memory, db) = empty();
        db.set_mark(b"applied").unwrap();
        db.put(&key(1), &value(1)).unwrap();
        match own {
            None => db.clear().unwrap(),
            Some(mark) => db.clear_with_mark(str::as_bytes(mark)).unwrap(),
        }
        let again = opened(&memory.to_vec());
        assert_eq!(
            (again.mark().as_deref(), again.count()),
            (Some(found.as_bytes()), 0)
        );
    }
}
