//! Segments of a killed file whose headers were lost, the links next to them included: what stands in them and after them is
//! found, or is an error. Blank ranges of several lengths are tried at each segment of the log: less than a header, a sector, a
//! page. What a flipped bit costs is tried in `tests/degraded/`.

use super::*;

/// A link that was lost with the header next to it was once taken for the end of the log: all later records were absent, without
/// an error, and the next change made that final.
#[test]
fn a_blank_header_of_any_segment_hides_no_later_one() {
    const SIZE: usize = 16 << 10;
    let options = small().segment_size(SIZE as u64);
    let memory = Memory::new(1 << 26).unwrap();
    let db = HashDb::create_on(memory.clone(), &options).unwrap();
    let value_of = |key: u32| vec![key as u8; 100 + key as usize % 200];
    let keys = 0..1500u32;
    for key in keys.clone() {
        db.put(&key.to_le_bytes(), b"old").unwrap();
        db.put(&key.to_le_bytes(), &value_of(key)).unwrap();
    }
    let killed = memory.to_vec();
    drop(db);
    let segments = (killed.len() - 16384) / SIZE;
    let (mut tried, mut refused) = (0, 0);
    let is_of_log = |segment: &usize| killed[16384 + segment * SIZE..].starts_with(b"azsg");
    for segment in (0..segments).filter(is_of_log) {
        for (from, to) in [(0, 16), (0, 32), (0, 64), (0, 512), (0, 4096), (8, 32)] {
            let mut bytes = killed.clone();
            let at = 16384 + segment * SIZE;
            bytes[at + from..at + to].fill(0);
            let damaged = stored(&bytes);
            let context = format!("segment {segment}, {from}..{to}");
            for turn in 0..2 {
                let Ok(db) = HashDb::open_on(damaged.clone(), &options.opening) else {
                    panic!("{context}: it does not open");
                };
                for key in keys.clone() {
                    match db.get(&key.to_le_bytes()) {
                        Ok(found) => assert_eq!(
                            found,
                            Some(value_of(key)),
                            "{context}: {key} turn {turn} {:?}",
                            db.damage()
                        ),
                        Err(error) => {
                            assert_eq!(error.kind(), Kind::Corrupted, "{context}: {key}");
                            assert!(to > 64, "{context}: {key}: {error}");
                            refused += 1;
                        }
                    }
                }
                // Where it is still accepted, a change must not make a loss final.
                let _ = db.put(b"new", b"value");
                tried += 1;
            }
            let (target, report) = repaired(&stored(&bytes));
            if to <= 64 {
                assert_eq!(target.count(), 1500, "{context}: {:?}", report.lost);
            } else if target.count() < 1500 {
                assert!(report.losses > 0, "{context}");
            }
        }
    }
    assert!(tried > 100 && refused > 0, "{tried} {refused}");
}
