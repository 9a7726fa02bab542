//! A save that is interrupted leaves the previous snapshot; a file that was cut or damaged is refused.
//!
//! On the simulated disk: a power cut or a death at every event, each call failing once, a stop before every
//! block. On bytes: every length, each sector unreadable, and the mutations of `testkit::damage`, with a verifier that it catches.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use azekura::io::Storage;
use azekura::io::over::Over;
use azekura::io::sim::{Fault, Limits, Operation, SimDisk};
use azekura::record::memory::snapshot::layout::{
    BLOCK_HEADER_SIZE, BlockHeader, HEAD_SIZE, records,
};
use azekura::record::memory::snapshot::{Snapshot, save_to};
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::testkit::damage::{Effort, Image, Verdict, fuzz, read_all};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Engine, Error, Kind, Reader, Result};

use crate::stores::Failing;
use crate::{
    NAME, bytes_of, bytes_with_salt, fill, load_from, load_on, save_on, save_on_with, small_blocks,
    storage_of, tree,
};

/// Bytes of a block, and records of two snapshots.
fn drawn(seed: u64) -> (usize, u64, u64) {
    let mut random = Random::new(!seed);
    let block_size = *random.choose(&[1, 100, 512, 512, 4096, 256 << 10]);
    (block_size, 1 + random.below(100), 1 + random.below(100))
}

#[test]
fn a_power_cut_at_any_event_leaves_the_previous_snapshot_or_the_new_one() {
    const STATES: u64 = 10_000;
    let (mut states, mut seed) = (0, round_seed());
    while states < share(STATES) {
        states += cut_while_replaced(seed);
        seed += 1;
    }
    let what = "states after a cut or a death while a snapshot is replaced";
    tried_at_least(states, STATES, what);
}

/// Replaces a snapshot, and cuts it at every event; how many states there were.
fn cut_while_replaced(seed: u64) -> u64 {
    let disk = SimDisk::new(1 + seed);
    let (block_size, before, after) = drawn(seed);
    let _shown = case(seed, &(block_size, before, after));
    let (db, old) = tree(2 * seed + 1, before);
    let save_on = |disk: &SimDisk, db| save_on_with(disk, db, block_size);
    save_on(&disk, &db).expect("the first").expect("whole");
    let begin = disk.events();
    db.clear().expect("a clear");
    let new = fill(&db, 2 * seed + 2, after);
    save_on(&disk, &db).expect("the second").expect("whole");
    let limits = Limits {
        exhaustive: 64,
        singles: 8,
        random: 8,
        garbage: true,
        stale: true,
    };
    let (mut states, mut news) = (0u64, 0u64);
    for at in begin..=disk.events() {
        let killed = disk.kill_state(at);
        for state in disk.crash_states(at, &limits).chain([killed]) {
            let found = load_on(&state).unwrap_or_else(|error| panic!("event {at}: {error}"));
            assert!(found == old || found == new, "event {at}: another state");
            assert!(at < disk.events() || found == new, "it had returned");
            states += 1;
            news += u64::from(found == new);
            // And what the cut left does not stand in the way of the next.
            if states.is_multiple_of(16) {
                save_on(&state, &db).expect("the third").expect("whole");
                assert_eq!(load_on(&state).expect("a load"), new);
            }
        }
    }
    assert!(news > 0 && news < states);
    states
}

#[test]
fn a_call_that_fails_leaves_the_previous_snapshot() {
    let (db, old) = tree(3, 40);
    let mut failed = 0;
    for operation in [
        Operation::Read,
        Operation::Write,
        Operation::Resize,
        Operation::Sync,
        Operation::Name,
        Operation::SyncNames,
    ] {
        for fault in [Fault::Error, Fault::Full, Fault::Short(300), Fault::Torn] {
            for nth in 0.. {
                let disk = SimDisk::new(7);
                save_on(&disk, &db).expect("the first").expect("whole");
                let more = StdTreeDb::new();
                let new = fill(&more, 4, 50);
                let nth_of_all = disk.faults().count(operation) + nth;
                disk.faults().fail(operation, nth_of_all, fault);
                let saved = save_on(&disk, &more);
                let struck = disk.faults().struck() > 0;
                disk.faults().clear();
                let found = load_on(&disk).expect("a snapshot is there");
                let what = format!("{operation:?} {nth}, {fault:?}");
                assert_eq!(saved.is_ok(), !struck, "{what}");
                // A name that was taken and could not be made durable is taken all the same.
                let named = operation == Operation::SyncNames || !struck;
                assert_eq!(found, if named { new } else { old.clone() }, "{what}");
                if !struck {
                    break;
                }
                failed += 1;
            }
        }
    }
    tried_at_least(failed, 41, "failing calls while a snapshot is replaced");
    assert!(failed > 40);
}

#[test]
fn an_engine_that_fails_to_scan_leaves_the_previous_snapshot() {
    let disk = SimDisk::new(1);
    let (db, old) = tree(12, 30);
    save_on(&disk, &db).expect("the first").expect("whole");
    let failing = Failing(StdTreeDb::new(), AtomicU64::new(0));
    let error = save_on(&disk, &failing).expect_err("it fails");
    assert_eq!(error.kind(), Kind::Corrupted);
    assert!(error.to_string().contains(NAME), "{error}");
    assert_eq!(load_on(&disk).expect("the first"), old);
}

#[test]
fn a_stopped_save_leaves_the_previous_snapshot_whenever_it_is_stopped() {
    let disk = SimDisk::new(1);
    let (db, old) = tree(13, 80);
    save_on(&disk, &db).expect("the first").expect("whole");
    let other = StdTreeDb::new();
    let new = fill(&other, 14, 80);
    for stop in 0.. {
        let mut calls = 0;
        let (directory, name) = (disk.directory(), Path::new(NAME));
        let saved = save_to(&other, &directory, name, &small_blocks(), &mut |_, _| {
            calls += 1;
            if calls > stop {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let saved = saved.expect("stopping is no error");
        let found = load_on(&disk).expect("one of the two");
        assert_eq!(
            found,
            if saved.is_some() {
                new.clone()
            } else {
                old.clone()
            }
        );
        if saved.is_some() {
            assert!(stop > 10);
            break;
        }
    }
}

#[test]
fn a_file_cut_at_any_length_is_refused() {
    let (db, state) = tree(5, 25);
    let bytes = bytes_of(&db);
    assert_eq!(load_from(storage_of(&bytes)).expect("the whole"), state);
    for len in 0..bytes.len() {
        let error = load_from(storage_of(&bytes[..len])).expect_err("it is not whole");
        let expected = if len < 8 {
            Kind::Mismatch
        } else {
            Kind::Corrupted
        };
        assert_eq!(error.kind(), expected, "{len}: {error}");
        if len as u64 >= HEAD_SIZE {
            assert!(error.to_string().contains("cut"), "{len}: {error}");
        }
    }
    let longer = [&bytes[..], &[0]].concat();
    let error = load_from(storage_of(&longer)).expect_err("it is too long");
    let what = "follows the end mark";
    assert!(error.to_string().contains(what), "{error}");
    tried_at_least(bytes.len() as u64, 3000, "lengths of a file");
}

fn image(older: u64, seed: u64, count: u64) -> Image {
    let (db, state) = tree(seed, count);
    let present = state.into_iter().map(|(key, value)| (key, Some(value)));
    let mut now: BTreeMap<_, _> = present.collect();
    now.insert(b"absent".to_vec(), None);
    Image {
        bytes: bytes_of(&db),
        older: bytes_with_salt(&tree(older, count).0, 6),
        now,
        ..Image::default()
    }
}

#[test]
fn a_damaged_snapshot_gives_all_that_was_saved_or_an_error() {
    const CASES: u64 = 20_000;
    let mut images = vec![
        image(1, 2, 0),
        image(3, 4, 5),
        image(5, 6, 60),
        image(7, 7, 300),
    ];
    images.extend((0..share(100)).map(|seed| {
        let seed = seed + round_seed();
        image(100 + 2 * seed, 101 + 2 * seed, drawn(seed).1)
    }));
    let verify = |image: &Image, bytes: Vec<u8>| {
        if bytes == image.older {
            let what = "the older snapshot, undamaged";
            return Verdict::Refused(Error::new(Kind::Invalid, what));
        }
        let db = StdHashDb::new();
        let opened = Snapshot::open_on(storage_of(&bytes));
        match opened.and_then(|snapshot| snapshot.load_into(&db, &mut |_, _| ())) {
            Err(error) => {
                let kinds = [Kind::Corrupted, Kind::Mismatch];
                assert!(kinds.contains(&error.kind()), "{error}");
                assert_eq!(db.count(), 0, "nothing half-loaded");
                Verdict::Refused(error)
            }
            Ok(_) => read_all(&db, image.now.keys()),
        }
    };
    let effort = Effort {
        cases: share(CASES),
        seed: 11 + round_seed(),
        ..Effort::QUICK
    };
    let counts = fuzz(images, Arc::new(verify), &effort);
    let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(counts.refused > counts.cases / 2 && counts.partly == 0);
    tried_at_least(counts.cases, CASES, &format!("cases, snapshots: {counts}"));
}

/// A file of which some sectors cannot be read, each time.
#[derive(Debug)]
struct Unreadable {
    file: Arc<dyn Storage>,
    sectors: Range<u64>,
}

impl Over for Unreadable {
    fn below(&self) -> &dyn Storage {
        self.file.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset < self.sectors.end && self.sectors.start < offset + buf.len() as u64 {
            let error = std::io::Error::from_raw_os_error(5);
            return Err(Error::io("cannot read", error).offset(offset));
        }
        self.file.read_at(offset, buf)
    }
}

#[test]
fn a_snapshot_with_a_range_that_stays_unreadable_is_refused_and_nothing_half_loaded() {
    const SECTOR: u64 = 512;
    let mut tried = 0;
    for seed in 0..share(40) {
        let seed = seed + round_seed();
        let (db, state) = tree(seed, drawn(seed).1 + 60);
        let file = storage_of(&bytes_of(&db));
        let size = file.size().expect("a size");
        for from in (0..size).step_by(SECTOR as usize) {
            let storage = |sectors| Unreadable {
                file: Arc::clone(&file),
                sectors,
            };
            let error = load_from(Arc::new(storage(from..from + SECTOR))).expect_err("a sector");
            assert_eq!(error.kind(), Kind::Io, "seed {seed}, {from}: {error}");
            tried += 1;
        }
        assert_eq!(load_from(file).expect("the whole"), state);
    }
    tried_at_least(tried, 500, "unreadable sectors of snapshots");
}

/// What is loaded if no checksum is looked at: records by their lengths alone.
#[test]
fn a_reader_that_believes_blocks_without_their_sums_is_seen() {
    let verify = |image: &Image, bytes: Vec<u8>| {
        let db = StdHashDb::new();
        let mut rest = bytes.get(HEAD_SIZE as usize..).unwrap_or_default();
        while let Some(header) = BlockHeader::decode(rest).filter(|header| header.count > 0) {
            let body = rest.get(BLOCK_HEADER_SIZE..);
            let Some(body) = body.and_then(|body| body.get(..header.len as usize)) else {
                break;
            };
            for record in records(body, header.count).map_while(|record| record) {
                db.put(record.key, record.value).expect("a put");
            }
            rest = &rest[BLOCK_HEADER_SIZE + body.len()..];
        }
        read_all(&db, image.now.keys())
    };
    let effort = Effort {
        cases: 500,
        ..Effort::QUICK
    };
    let failure = fuzz(vec![image(5, 6, 60)], Arc::new(verify), &effort).expect_err("it is seen");
    tried(&format!("believing is seen in case {}", failure.case));
}
