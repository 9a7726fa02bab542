//! Space in a file: writers that are faster than cleaning do not make it grow for as long as they go on.
//!
//! One test alone in its process: its threads keep all processors busy, and other tests would wait for them. What a
//! store takes at rest, and full, is tested elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

use azekura::Reader;
use azekura::record::hash::{HashDb, Options};
use azekura::testkit::{Random, tried};

/// Bytes of the log.
fn log_bytes(db: &HashDb) -> u64 {
    let stats = db.stats();
    let figure = stats.more.iter().find(|(name, _)| *name == "log_bytes");
    figure.expect("a figure").1.parse().expect("a number")
}

/// Nobody but the keeper and one writer cleaned, so that more of them than there were processors made the log longer
/// for as long as they wrote: 26 times the live bytes after half a minute.
#[test]
fn writers_that_outrun_the_keeper_are_held_back() {
    const RECORDS: u64 = 20_000;
    const WRITERS: u64 = 8;
    const EACH: u64 = 100_000;
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options {
        segment_size: 1 << 20,
        ..Options::default()
    };
    let db = HashDb::create(folder.path().join("s.azh"), &options).expect("a store");
    let value = [7; 1000];
    for key in 0..RECORDS {
        db.put(&key.to_le_bytes(), &value).expect("a put");
    }
    let live = db.stats().live_bytes;
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..WRITERS {
            let (db, most, value) = (&db, &most, &value);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for turn in 0..EACH {
                    let key = random.below(RECORDS);
                    db.put(&key.to_le_bytes(), value).expect("a put");
                    if turn % 500 == 0 {
                        most.fetch_max(log_bytes(db), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let most = most.into_inner();
    let segment = options.segment_size;
    let bound = live * 8 / 5 + 4 * segment;
    let interval = live.clamp(16 * segment, 128 * segment);
    // Each of them may have filled some segments before it was held back.
    assert!(
        most < 2 * (2 * bound + interval),
        "{most} bytes of log, {live} live"
    );
    let puts = WRITERS * EACH;
    tried(&format!(
        "{puts} puts by {WRITERS} writers: {most} bytes of log at most, {live} live"
    ));
}
