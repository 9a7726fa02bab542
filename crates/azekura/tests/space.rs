//! Space in a file: writers that are faster than cleaning do not make it grow for as long as they go on.
//!
//! One test alone in its process: its threads keep all processors busy, and other tests would wait for them. What a
//! store takes at rest, and full, is tested elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

use azekura::Reader;
use azekura::record::hash::{HashDb, Options};
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};

/// Bytes of the log, with what was cleaned and is not free yet.
fn log_bytes(db: &HashDb) -> u64 {
    let figures = db.inspect();
    let of_log = |name: &str| ["log_bytes", "leaving_bytes"].contains(&name);
    let found = figures.iter().filter(|(name, _)| of_log(name));
    found
        .map(|(_, figure)| figure.parse::<u64>().expect("a number"))
        .sum()
}

/// However many writers overwrite: the log, with what waits for a checkpoint, stays below twice the bound of one writer and an
/// interval between checkpoints. It was 7 times the live bytes with four writers.
#[test]
fn writers_that_outrun_the_keeper_are_held_back() {
    let mut puts = 0;
    for (writers, records, segment_size) in [
        (4, 50_000, 1 << 20),
        (8, 20_000, 1 << 20),
        (8, 50_000, 1 << 16),
    ] {
        let options = Options {
            segment_size,
            ..Options::default()
        };
        puts += overwritten_by(writers, records, &options);
    }
    // Options of the opening that do not change the bound.
    let mut random = Random::new(!round_seed());
    let options = Options {
        segment_size: *random.choose(&[1 << 16, 1 << 18, 1 << 20]),
        space_ratio: 1.6,
        background: true,
        ..hash_options(&mut random, &Within::file(256 << 20))
    };
    let _shown = case(round_seed(), &options);
    puts += overwritten_by(1 + random.below(8), 30_000, &options);
    tried_at_least(puts, 19_000_000, "puts that overwrite");
}

fn overwritten_by(writers: u64, records: u64, options: &Options) -> u64 {
    let segment_size = options.segment_size;
    let each = share(5_000_000) / writers;
    let folder = tempfile::tempdir().expect("a folder");
    let db = HashDb::create(folder.path().join("s.azh"), options).expect("a store");
    let value = [7; 1000];
    for key in 0..records {
        db.put(&key.to_le_bytes(), &value).expect("a put");
    }
    let live = db.stats().live_bytes;
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..writers {
            let (db, most, value) = (&db, &most, &value);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for turn in 0..each {
                    let key = random.below(records);
                    db.put(&key.to_le_bytes(), value).expect("a put");
                    if turn % 100 == 0 {
                        most.fetch_max(log_bytes(db), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let most = most.into_inner();
    let bound = live * 8 / 5 + 4 * segment_size;
    let interval = live
        .clamp(16 * segment_size, 128 * segment_size)
        .max(records * 4);
    let puts = writers * each;
    azekura::testkit::tried(&format!(
        "{puts} puts by {writers} writers: {most} bytes of log at most, {live} live, {} promised",
        2 * bound + interval
    ));
    // Each may fill some segments while another one cleans, and more where that one is not given a processor for long.
    let filled = writers * 4 * segment_size + bound / 20;
    assert!(
        most < 2 * bound + interval + filled,
        "{most} bytes of log, {live} live"
    );
    puts
}
