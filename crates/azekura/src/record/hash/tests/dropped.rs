//! Segments that a recovery dropped stay dropped.
//!
//! Their headers stand in free segments; neither damage nor a repair brings back what they hold. Files lose power in the middle
//! of their log, are recovered, and are damaged or repaired then.

use std::collections::BTreeMap;

use super::super::layout::ENGINE;
use super::*;
use crate::format::superblock::Superblock;
use crate::kernel::Payload;

const SIZE: usize = 16 << 10;

pub(super) fn options() -> CreateOptions {
    small().segment_size(SIZE as u64)
}

fn value_of(key: u32, round: u32) -> Vec<u8> {
    vec![(key + 7 * round) as u8; 100 + key as usize % 200]
}

fn contents(db: &HashDb) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    db.scan(None, &mut |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

/// Where the segment with a sequence stands.
pub(super) fn place_of_sequence(bytes: &[u8], sequence: u64) -> Option<usize> {
    let places = (16384..bytes.len()).step_by(SIZE);
    let mut of_log = places.filter(|at| bytes[*at..].starts_with(b"azsg"));
    let header = |at: usize| u64::from_le_bytes(*bytes[at + 8..].first_chunk().unwrap());
    of_log.find(|at| header(*at) == sequence)
}

/// A file that lost power in the middle of a segment of its log, so many after the one where replay begins, and was recovered;
/// what it holds then, and the sequence of that segment.
pub(super) fn recovered(after: u64) -> (Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>, u64) {
    let memory = Memory::new(1 << 26).unwrap();
    let db = HashDb::create_on(memory.clone(), &options()).unwrap();
    for round in 0..8 {
        for key in 0..200u32 {
            db.put(&key.to_le_bytes(), &value_of(key, round)).unwrap();
        }
    }
    let mut bytes = memory.to_vec();
    drop(db);
    let SuperblockPair {
        sequence,
        payload: mut last,
    } = SuperblockPair::<Super>::read(stored(&bytes).as_ref()).unwrap();
    last.boot_id = [7; 16];
    for sequence in [sequence, sequence + 1] {
        let block = Superblock {
            engine: ENGINE,
            sequence,
            payload: last.encode(),
        };
        let at = block.slot_offset() as usize;
        let block = block.encode();
        bytes[at..at + block.len()].copy_from_slice(&block);
    }
    let ends = last.start.sequence() + after;
    let at = place_of_sequence(&bytes, ends).unwrap();
    bytes[at + SIZE / 2..at + SIZE / 2 + 4096].fill(0);
    let cut = Memory::from_bytes(&bytes, 1 << 26).unwrap();
    let db = HashDb::open_on(cut.clone(), &options().opening).unwrap();
    assert!(db.damage().is_empty());
    let held = contents(&db);
    let bytes = cut.to_vec();
    drop(db);
    (bytes, held, ends)
}

#[test]
fn a_blank_header_and_link_bring_back_no_segment_that_was_dropped() {
    let mut stale = 0;
    for after in 1..4 {
        let (mut bytes, held, ends) = recovered(after);
        let at = place_of_sequence(&bytes, ends).unwrap();
        stale += u32::from(place_of_sequence(&bytes, ends + 1).is_some());
        bytes[at..at + 64].fill(0);
        let db = opened(&bytes);
        assert!(!db.damage().is_empty(), "segment {ends:#x}");
        for key in 0..200u32 {
            let key = key.to_le_bytes();
            match db.get(&key) {
                Ok(found) => assert_eq!(found.as_ref(), held.get(&key[..]), "segment {ends:#x}"),
                Err(error) => assert_eq!(error.kind(), Kind::Corrupted),
            }
        }
    }
    assert!(stale > 2, "{stale} segments were there still");
}

#[test]
fn a_repair_leaves_out_the_segments_that_a_recovery_dropped() {
    for after in 1..4 {
        let (bytes, held, ends) = recovered(after);
        for more in [0u32, 10] {
            let mut memory = Memory::from_bytes(&bytes, 1 << 26).unwrap();
            let mut wanted = held.clone();
            if more > 0 {
                let db = HashDb::open_on(memory.clone(), &options().opening).unwrap();
                for key in 0..more {
                    let (key, value) = (key.to_le_bytes(), value_of(key, 9));
                    db.put(&key, &value).unwrap();
                    wanted.insert(key.to_vec(), value);
                }
                memory = Memory::from_bytes(&memory.to_vec(), 1 << 26).unwrap();
                drop(db);
            }
            let storage: Arc<dyn Storage> = memory;
            let (target, report) = repaired(&storage);
            let found = contents(&target);
            let older = wanted
                .iter()
                .filter(|(key, value)| found.get(*key) != Some(value))
                .count();
            assert_eq!(older, 0, "segment {ends:#x}, {more} more: {report:?}");
        }
    }
}
