//! Space in a file: writers that are faster than cleaning do not make it grow for as long as they continue.
//!
//! One test alone in its process: its threads keep all processors busy, and other tests would wait for them. The bounds are
//! those that `docs/operations.md` states, of the log and of the file. The stores are in memory, where the syncs of a checkpoint
//! take no time, and in a file, where writers continue while one waits for the device. What a store takes at rest, and full, is
//! tested elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

use azekura::Reader;
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::suite::{case, demand, third};
use azekura::testkit::{Random, round_seed};

/// The sum of figures of a store.
fn figures(db: &HashDb, names: &[&str]) -> u64 {
    let figures = db.inspect();
    let found = figures.iter().filter(|(name, _)| names.contains(name));
    found
        .map(|(_, figure)| figure.parse::<u64>().expect("a number"))
        .sum()
}

/// Bytes of the log, with what was cleaned and is not free yet.
const LOG: [&str; 2] = ["log_bytes", "leaving_bytes"];

/// Puts of each case in a full run.
const PUTS: u64 = 1_500_000;

/// However many writers overwrite: the log, with what waits for a checkpoint, stays below twice the bound of one writer and an
/// interval between checkpoints, and four segments for each writer. It was 7 times the live bytes with four writers. The file
/// takes what images of the index and room in advance are, besides.
#[test]
fn writers_that_outrun_the_background_worker_are_held_back() {
    let mut puts = 0;
    for (writers, records, segment_size) in [
        (4, 50_000, 1 << 20),
        (8, 20_000, 1 << 20),
        (8, 50_000, 1 << 16),
    ] {
        let options = CreateOptions::new().segment_size(segment_size);
        puts += overwritten_by(writers, records, &in_memory(&options), segment_size);
    }
    // Options of the opening that do not change the bound.
    let mut random = Random::new(!round_seed());
    let options = hash_options(&mut random, &Within::file(256 << 20))
        .segment_size(*random.choose(&[1 << 16, 1 << 18, 1 << 20]))
        .space_ratio(1.6)
        .background(true);
    let _shown = case(round_seed(), &options);
    let writers = 1 + random.below(8);
    puts += overwritten_by(writers, 30_000, &in_memory(&options), options.segment_size);
    let folder = tempfile::tempdir().expect("a folder");
    let in_file = HashDb::create(folder.path().join("store.azh"), &options).expect("a store");
    puts += overwritten_by(writers, 30_000, &in_file, options.segment_size);
    // Each writer puts as many as the others.
    demand(puts, third(5 * PUTS) - 50, "puts that overwrite");
}

fn in_memory(options: &CreateOptions) -> HashDb {
    let memory = Memory::new(2 << 30).expect("memory");
    HashDb::create_on(memory, options).expect("a store")
}

fn overwritten_by(writers: u64, records: u64, db: &HashDb, segment_size: u64) -> u64 {
    let each = third(PUTS) / writers;
    let value = [7; 1000];
    for key in 0..records {
        db.put(&key.to_le_bytes(), &value).expect("a put");
    }
    let live = db.stats().live_bytes;
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..writers {
            let (most, value) = (&most, &value);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for turn in 0..each {
                    let key = random.below(records);
                    db.put(&key.to_le_bytes(), value).expect("a put");
                    if turn % 100 == 0 {
                        most.fetch_max(figures(db, &LOG), Ordering::Relaxed);
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
    let promised = 2 * bound + interval + writers * 4 * segment_size;
    // An open file does not become smaller.
    let file = figures(db, &["file_bytes"]);
    let images = records * 5 * 11 / 8 + 8 * segment_size;
    let reserve = (file * 3 / 128).clamp(6 * segment_size, 48 * segment_size) + 9 * segment_size;
    let ahead = (file / 16).min(64 * segment_size) + 6 * segment_size + reserve;
    let huge_page = 2 << 20;
    let with_file = ((16 << 10) + promised + images + ahead).next_multiple_of(huge_page);
    let puts = writers * each;
    azekura::testkit::tried(&format!(
        "{puts} puts by {writers} writers, {live} bytes live: {most} of the log at most, {promised} promised; a file of {file}, \
         {with_file} promised"
    ));
    assert!(
        most <= promised,
        "{most} bytes of log, {promised} promised, {live} live"
    );
    assert!(
        file <= with_file,
        "a file of {file} bytes, {with_file} promised, {live} live"
    );
    puts
}
