//! The engine alone, over small segments: what a reopen brings back, and what room the log takes.
//!
//! These are the quick ones, for who works on the engine. Its promises are tested in `tests/`, a file
//! for each, with power cuts, kills, damage and threads.

mod checked;
mod closures;
mod cold;
mod copied;
mod doubted;
mod dropped;
mod emergency;
mod end;
mod headless;
mod lengths;
mod lost_root;
mod scattered;
mod synced;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::layout::Super;
use super::*;
use crate::error::{Error, Kind};
use crate::format::frame::FrameKind;
use crate::io::memory::Memory;
use crate::io::sim::{Limits, SimDisk};
use crate::io::{Access, Directory as _, Storage};
use crate::kernel::SuperblockPair;
use crate::log::Address;
use crate::log::layout::FIRST_FRAME;
use crate::log::recover::Prior;
use crate::testkit::Random;
use crate::verbs::Verbs as _;

fn small() -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(1 << 26)
}

/// An empty store of small segments, and where it is.
fn empty() -> (Arc<Memory>, HashDb) {
    let memory = Memory::new(1 << 26).unwrap();
    let db = HashDb::create_on(memory.clone(), &small()).unwrap();
    (memory, db)
}

fn put_each(db: &HashDb, keys: Range<u32>, value: &[u8]) {
    for key in keys {
        db.put(&key.to_le_bytes(), value).unwrap();
    }
}

/// A storage of which these are the bytes, as a process leaves them that is killed.
fn stored(bytes: &[u8]) -> Arc<dyn Storage> {
    Memory::from_bytes(bytes, 1 << 26).unwrap()
}

fn opened(bytes: &[u8]) -> HashDb {
    HashDb::open_on(stored(bytes), &small().opening).unwrap()
}

fn superblock_of(storage: &dyn Storage) -> Super {
    SuperblockPair::<Super>::read(storage).unwrap().payload
}

/// Where this stands first.
fn place_of(bytes: &[u8], sought: &[u8]) -> usize {
    let found = bytes.windows(sought.len()).position(|some| some == sought);
    found.unwrap()
}

/// What a repair brings over into another store, and reports.
fn repaired(storage: &Arc<dyn Storage>) -> (HashDb, RepairReport) {
    let last = superblock_of(storage.as_ref());
    let (_, target) = empty();
    let mut report = RepairReport::default();
    repair_storage(storage, &last, &target, &mut report, &mut |_, _| ()).unwrap();
    (target, report)
}

fn assert_sound(db: &HashDb) {
    let report = db.check(&mut |_, _| ()).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
}

/// For `Log::recover` of a log that its writer has open; `shared`: by another process.
fn with_live_writer(shared: bool) -> Prior {
    Prior {
        coherent: true,
        durable: LogPosition::default(),
        closed: false,
        live: true,
        shared,
        epoch: 1,
    }
}

/// Here a part is half a kilobyte. What is replayed onto images of several moments must
/// be the same as onto those of one.
#[test]
fn a_checkpoint_made_in_parts_may_be_cut_anywhere() {
    let name = Path::new("parts.azh");
    let disk = SimDisk::new(1);
    let db = HashDb::create_on(disk.directory().create(name).unwrap(), &small()).unwrap();
    disk.directory().sync().unwrap();
    let key = |i: u32| i.wrapping_mul(0x9e37_79b9).to_le_bytes();
    let value = |i: u32, round: u32| [i, round].map(u32::to_le_bytes).concat();
    let fill = |range: Range<u32>, round| {
        for i in range {
            db.put(&key(i), &value(i, round)).unwrap();
        }
    };
    fill(0..400, 0);
    db.set_mark(b"applied to 7").unwrap();
    db.checkpoint().unwrap();
    fill(100..500, 1);
    for i in 0..50 {
        assert!(db.remove(&key(i)).unwrap());
    }
    db.sync(Durability::Power).unwrap();
    let (before, syncs) = (disk.events(), db.core.log.syncs());
    db.core.checkpoint_in_parts(Some(512)).unwrap();
    let (after, syncs) = (disk.events(), db.core.log.syncs() - syncs);
    assert!(syncs >= 4, "{syncs} syncs: it was made in parts");
    let verify = |disk: &SimDisk, what: &str| {
        let storage = disk.directory().open(name, Access::Write).unwrap();
        let db = HashDb::open_on(storage, &small().opening).expect(what);
        assert_eq!(db.count(), 450, "{what}");
        assert_eq!(db.mark().as_deref(), Some(&b"applied to 7"[..]), "{what}");
        assert_sound(&db);
        for i in 0..500 {
            let wanted = (i >= 50).then(|| value(i, u32::from(i >= 100)));
            assert_eq!(db.get(&key(i)).unwrap(), wanted, "{i} {what}");
        }
    };
    let limits = Limits {
        exhaustive: 16,
        singles: 4,
        random: 4,
        ..Limits::default()
    };
    for at in before..=after {
        verify(&disk.kill_state(at), &format!("killed after event {at}"));
        for cut in disk.crash_states(at, &limits) {
            verify(&cut, &format!("power cut after event {at}"));
        }
    }
}

#[test]
fn churn_stays_within_the_space_bound() {
    let (memory, db) = empty();
    for round in 0..200u32 {
        put_each(&db, 0..500u32, &[round as u8; 100]);
    }
    assert_eq!(db.count(), 500);
    let live = 500 * 112;
    let size = memory.size().unwrap();
    // Twice over: other tests' threads, held up while they are pinned, keep space from being reused.
    let bound = 2 * (2 * live + (8 + 2 * 64 + 70) * 4096);
    assert!(size < bound, "{size} bytes, at most {bound}");
    for i in 0..500u32 {
        assert_eq!(db.get(&i.to_le_bytes()).unwrap(), Some(vec![199; 100]));
    }
}

/// A slot that is reserved and not filled looks like the last place there can be, which lies beyond the mapping.
#[test]
fn a_prefetch_of_any_place_stays_within_the_mapping() {
    let db = empty().1;
    for place in [0, 1 << 20, (1 << 40) - 1] {
        db.log().prefetch(Address(place));
        db.log().prefetch_lines(Address(place), 70_000);
    }
}

#[test]
fn compact_leaves_little_more_than_the_live_bytes() {
    let (memory, db) = empty();
    put_each(&db, 0..20_000u32, &[1; 100]);
    for i in 0..18_000u32 {
        assert!(db.remove(&i.to_le_bytes()).unwrap());
    }
    let mut size = u64::MAX;
    for _ in 0..20 {
        db.compact(&mut |_, _| ()).unwrap();
        size = memory.size().unwrap();
        if size < 2000 * 112 * 2 {
            break;
        }
    }
    assert!(size < 2000 * 112 * 2, "{size}");
    for i in 18_000..20_000u32 {
        assert_eq!(db.get(&i.to_le_bytes()).unwrap(), Some(vec![1; 100]));
    }
    db.close().unwrap();
    let db = HashDb::open_on(memory, &small().opening).unwrap();
    assert_eq!(db.count(), 2000);
    assert_sound(&db);
}

/// The header of a batch is of no use to a copy of its records; and the records of a long one are copied side by side.
#[test]
fn of_a_batch_only_its_records_count_as_live() {
    let (memory, db) = empty();
    let keys: Vec<[u8; 4]> = (0..4000u32).map(u32::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    for pair in keys.chunks(2) {
        db.update_many(pair, &mut |_| vec![Edit::put(&[1; 8]), Edit::put(&[2; 8])])
            .unwrap();
    }
    let live_frames = |db: &HashDb| {
        let (_, live) = db.core.log_bytes();
        let segments = db.log().segments().in_use(Use::Log).len() as u64;
        live - segments * u64::from(FIRST_FRAME)
    };
    assert_eq!(live_frames(&db), 4000 * 24);
    let killed = memory.to_vec();
    drop(db);
    let db = opened(&killed);
    let live = live_frames(&db);
    assert!(live <= 4000 * 24 + 4096, "{live} after a kill");
    // Each takes three segments, and more than half of the last one stays empty.
    for some in keys.chunks(400) {
        db.update_many(some, &mut |_| {
            some.iter().map(|_| Edit::put(&[3; 8])).collect()
        })
        .unwrap();
    }
    let log = db.log().segments().in_use(Use::Log);
    let won: u64 = log
        .iter()
        .filter(|s| s.units == 3)
        .map(Segment::reclaimable)
        .sum();
    assert!(won >= 10 * 2048, "{won}");
}

/// Values that take several segments each are moved to the front, too: 6 to 10 times the live bytes stayed.
#[test]
fn compact_gives_back_the_room_between_values_that_are_longer_than_segments() {
    for (segment_size, longest, keys) in [(4096, 20_000, 400u64), (64 << 10, 300_000, 60)] {
        let memory = Memory::new(1 << 28).unwrap();
        let options = small().segment_size(segment_size);
        let db = HashDb::create_on(memory.clone(), &options).unwrap();
        let mut random = Random::new(segment_size);
        let mut model = std::collections::BTreeMap::new();
        for turn in 0..keys * 6 {
            let key = random.below(keys);
            let value = vec![turn as u8; random.index(longest)];
            db.put(&key.to_le_bytes(), &value).unwrap();
            model.insert(key, value);
        }
        for key in 0..keys / 2 {
            db.remove(&key.to_le_bytes()).unwrap();
            model.remove(&key);
        }
        let live: u64 = model.values().map(|value| value.len() as u64).sum();
        for _ in 0..20 {
            db.compact(&mut |_, _| ()).unwrap();
        }
        let size = memory.size().unwrap();
        assert!(
            size < 2 * live,
            "{size} bytes for {live}, segments of {segment_size}"
        );
        for (key, value) in &model {
            assert_eq!(db.get(&key.to_le_bytes()).unwrap().as_ref(), Some(value));
        }
        assert_sound(&db);
    }
}

/// A copy made while others wrote once took the checkpoint's images, which pointed to frames after the
/// place where the copied log ended: the copy could be opened, and half of its records could not be read.
#[test]
fn a_copy_made_concurrently_with_writers_is_sound_and_holds_what_was_acknowledged_before() {
    let memory = Memory::new(1 << 28).unwrap();
    let options = small().background(true).capacity(1 << 28);
    let db = HashDb::create_on(memory, &options).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let mut i = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    db.put(&(2 * (i % 5000) + thread).to_le_bytes(), &i.to_le_bytes())
                        .unwrap();
                    i += 1;
                }
            });
        }
        for round in 0..20u32 {
            let key = [b"round".as_slice(), &round.to_le_bytes()].concat();
            db.put(&key, b"acknowledged").unwrap();
            let target = Memory::new(1 << 28).unwrap();
            db.core.copy_onto(target.as_ref(), &mut |_, _| ()).unwrap();
            let copy = HashDb::open_on(target, &small().opening).unwrap();
            assert_sound(&copy);
            assert_eq!(
                copy.get(&key).unwrap().as_deref(),
                Some(b"acknowledged".as_slice())
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_follower_is_shown_every_change_in_order_and_can_read_compressed_values() {
    let options = small().compression(Compression::Lz4);
    let db = HashDb::create_on(Memory::new(1 << 26).unwrap(), &options).unwrap();
    let from = db.position();
    let mut follower = db.log().follow(Some(from)).unwrap();
    for i in 0..2000u32 {
        db.put(&(i % 50).to_le_bytes(), &[i as u8; 200]).unwrap();
        db.maintain().unwrap();
    }
    assert!(db.remove(&7u32.to_le_bytes()).unwrap());
    let mut seen = Vec::new();
    follower
        .advance(&mut |_, frame| {
            seen.push((
                frame.key.to_vec(),
                db.value_of(&frame).unwrap().into_owned(),
            ));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen.len(), 2001);
    for (i, (key, value)) in seen[..2000].iter().enumerate() {
        assert_eq!(key, &(i as u32 % 50).to_le_bytes());
        assert_eq!(value, &[i as u8; 200]);
    }
    assert_eq!(seen[2000], (7u32.to_le_bytes().to_vec(), Vec::new()));
}

#[test]
fn a_follower_shows_a_batch_as_one_and_what_is_in_it() {
    let db = empty().1;
    let from = db.position();
    let mut follower = db.log().follow(Some(from)).unwrap();
    let keys: [&[u8]; 3] = [b"first", b"second", b"third"];
    for round in 0..100u8 {
        let value = [round; 100];
        db.update_many(&keys, &mut |_| {
            keys.iter()
                .map(|_| Edit::Put(Cow::Borrowed(&value[..])))
                .collect()
        })
        .unwrap();
    }
    let (mut shown, mut after) = (Vec::new(), from);
    let advanced = follower.advance(&mut |position, frame| {
        assert!(frame.header.kind == FrameKind::BATCH && position > after);
        after = position;
        shown.extend(
            db.log()
                .inner(position, frame)
                .map(|inner| (inner.key.to_vec(), inner.value[0], inner.value.len())),
        );
        ControlFlow::Continue(())
    });
    assert_eq!(advanced.unwrap(), 100);
    let rounds = (0..100u8).flat_map(|round| keys.map(|key| (key.to_vec(), round, 100)));
    assert!(shown.into_iter().eq(rounds));
}

#[test]
fn where_no_frame_ends_nobody_follows_from() {
    let db = empty().1;
    db.put(b"key", b"value").unwrap();
    let end = db.position();
    assert!(db.log().follow(Some(end)).is_ok());
    // Before all of a segment is a moment, though no frame's place.
    let before = LogPosition { offset: 0, ..end };
    assert!(db.log().follow(Some(before)).is_ok());
    for offset in [8, FIRST_FRAME - 8, end.offset - 1, end.offset + 4] {
        let error = db.log().follow(Some(LogPosition { offset, ..end }));
        assert_eq!(error.unwrap_err().kind(), Kind::Invalid, "{offset}");
    }
}

/// All of its bytes were once tried as frames, of whatever lengths stood there.
#[test]
fn a_large_value_whose_head_is_damaged_is_given_up_as_a_whole() {
    let (memory, db) = empty();
    db.put(b"small", b"1").unwrap();
    db.put(b"large", &vec![7; 100_000]).unwrap();
    db.put(b"behind", b"2").unwrap();
    db.close().unwrap();
    let bytes = memory.to_vec();
    let at = place_of(&bytes, &[7; 8]) as u64;
    // The lengths stand before the key.
    memory.write_at(at - 13, &[8; 8]).unwrap();
    let storage: Arc<dyn Storage> = memory;
    let (target, report) = repaired(&storage);
    assert_eq!(target.count(), 2);
    assert_eq!(report.lost.len(), 2, "{:?}", report.lost);
    assert!(
        report.lost[0].ends_with("to the end of their segment cannot be read"),
        "{:?}",
        report.lost
    );
}

/// Who began to follow while the segment was being cleaned once stood in one that was given away: it was shown nothing
/// more, for ever, or what had come into it since.
#[test]
fn a_segment_that_a_follower_came_to_while_it_was_cleaned_is_kept() {
    let db = empty().1;
    let from = db.position();
    let put = |round: u8| {
        for i in 0..400u32 {
            db.put(&(i % 50).to_le_bytes(), &[round; 200]).unwrap();
        }
    };
    put(1);
    db.checkpoint().unwrap();
    let chosen = db.core.emptiest(|_| true).expect("a segment to clean");
    let mut follower = db
        .log()
        .follow(Some(LogPosition::new(chosen.sequence, FIRST_FRAME)));
    let follower = follower.as_mut().unwrap();
    assert!(chosen.sequence >= from.sequence);
    db.core.clean(chosen).unwrap();
    for round in 2..20 {
        put(round);
        db.checkpoint().unwrap();
        db.maintain().unwrap();
    }
    let mut rounds = Vec::new();
    let flow = ControlFlow::Continue(());
    follower
        .advance(&mut |_, frame| {
            rounds.push(frame.value[0]);
            flow
        })
        .unwrap();
    assert!(
        rounds.is_sorted() && rounds.first() == Some(&1),
        "{rounds:?}"
    );
    assert!(rounds.len() > 18 * 400, "{}", rounds.len());
}

#[test]
fn a_store_that_ends_with_a_large_value_opens_again() {
    let (memory, db) = empty();
    db.put(b"small", b"1").unwrap();
    db.put(b"large", &vec![7; 100_000]).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = HashDb::open_on(memory.clone(), &small().opening).unwrap();
    assert_eq!(
        db.get(b"large").unwrap().map(|value| value.len()),
        Some(100_000)
    );
    db.put(b"more", b"2").unwrap();
    db.close().unwrap();
    let db = HashDb::open_on(memory, &small().opening).unwrap();
    assert_eq!(db.count(), 3);
    assert_sound(&db);
}

/// A segment that was ended early was once taken for full of live records, and each compaction left some.
#[test]
fn compacting_again_and_again_does_not_lengthen_a_small_file() {
    let (_, db) = empty();
    db.put(b"key", b"value").unwrap();
    db.compact(&mut |_, _| ()).unwrap();
    let once = db.stats().file_bytes;
    let (mut now, mut tries) = (0, 0);
    // Readers of other tests in this process may hold freed segments for a moment: the length counts that stays.
    while tries < 10 || now > once + 2 * 4096 {
        db.compact(&mut |_, _| ()).unwrap();
        now = db.stats().file_bytes;
        tries += 1;
        assert!(tries < 1000, "{now} after {once}");
    }
    assert_eq!(db.get(b"key").unwrap(), Some(b"value".to_vec()));
}

/// Two segments of records as a process leaves them that is killed, without a sync: nothing tells what was
/// on its way.
fn killed(folder: &Path) -> (PathBuf, Vec<u8>) {
    let path = folder.join("killed.azh");
    let db = HashDb::create(&path, &small()).unwrap();
    for i in 0..60u32 {
        db.put(format!("key{i:02}").as_bytes(), &[7; 100]).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    db.close().unwrap();
    (path, bytes)
}

#[test]
fn what_a_killed_thread_left_open_in_the_log_is_not_damage() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut bytes) = killed(folder.path());
    // Its room was reserved and filled, and its first word not stored.
    let at = place_of(&bytes, b"key05");
    bytes[at - 8..at].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let reader = HashReader::open(&path).unwrap();
    assert_eq!(reader.count(), 59);
    let report = reader.check(&mut |_, _| ()).unwrap();
    assert_eq!((report.damage, report.records), (Vec::new(), 59));
    // What was synced cannot be open.
    let db = HashDb::open(&path, &small().opening).unwrap();
    db.sync(Durability::Power).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    drop(db);
    let at = place_of(&bytes, b"key06");
    bytes[at - 8..at].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    let reader = HashReader::open(&path).unwrap();
    let mut damage = reader.damage().into_iter();
    assert!(damage.any(|place| place.affects.is_unbounded()));
    assert_eq!(reader.get(b"key07").unwrap(), Some(vec![7; 100]));
    for older in [&b"key04"[..], b"key06", b"absent"] {
        let error = reader.get(older).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted, "{error}");
    }
    let reader = reader.reading_doubtful();
    assert_eq!(reader.get(b"key04").unwrap(), Some(vec![7; 100]));
}

#[test]
fn a_reader_opens_concurrently_with_a_writer_that_compacts_all_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.azh");
    let db = HashDb::create(&path, &small()).unwrap();
    db.put(b"stays", b"here").unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                put_each(&db, 0..100_u32, &[7; 400]);
                for key in 0..100_u32 {
                    db.remove(&key.to_le_bytes()).unwrap();
                }
                db.compact(&mut |_, _| ()).unwrap();
            }
        });
        let found: Vec<Result<Option<Vec<u8>>>> = (0..2000)
            .map(|_| HashReader::open(&path)?.get(b"stays"))
            .collect();
        ends.store(true, Ordering::Relaxed);
        for found in found {
            assert_eq!(found.unwrap().as_deref(), Some(&b"here"[..]));
        }
    });
}

#[test]
fn a_file_cut_short_before_its_records_gives_errors_wherever_it_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = killed(folder.path());
    for len in [4096, 4200, 8191, 8192, 8193, 8200, 12_288, 16_384, 16_500] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let found = HashReader::open(&path).and_then(|reader| {
            assert!(!reader.check(&mut |_, _| ())?.is_sound(), "{len}");
            reader.get(b"never there")
        });
        let error = found.unwrap_err();
        // Without the one slot that was written yet, nothing tells what it was.
        let kinds = [Kind::Corrupted, Kind::Mismatch];
        assert!(kinds.contains(&error.kind()), "{len}: {error}");
    }
}

#[test]
fn a_repair_of_a_file_cut_short_says_so_and_saves_what_stands_before() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes) = killed(folder.path());
    for (len, least) in [(8192, 0), (16_384, 0), (16_384 + 2048, 10)] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let target = folder.path().join(format!("{len}.azh"));
        let report = repair(&path, &target, &mut |_, _| ()).unwrap();
        assert!(!report.lost.is_empty(), "{len}");
        assert!(report.recovered >= least, "{len}: {report:?}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes[..len]);
    }
}

/// What a capacity leaves after the last segment is no segment that was cut off.
#[test]
fn a_full_file_of_an_odd_capacity_takes_changes_after_a_kill() {
    for rest in [0, 1, 7, 23, 24, 100, 4095] {
        let capacity = (35 << 20) + rest;
        let options = small().segment_size(16 << 10).capacity(capacity);
        let memory = Memory::new(1 << 26).unwrap();
        let db = HashDb::create_on(memory.clone(), &options).unwrap();
        let mut key = 0u32;
        while db.put(&key.to_le_bytes(), &[1; 4000]).is_ok() {
            key += 1;
        }
        let bytes = memory.to_vec();
        assert_eq!(bytes.len() as u64, capacity);
        drop(db);
        for bytes in [bytes, memory.to_vec()] {
            let memory = Memory::from_bytes(&bytes, 1 << 26).unwrap();
            let db = HashDb::open_on(memory, &options.opening).unwrap();
            assert!(db.damage().is_empty(), "{rest}: {:?}", db.damage());
            assert!(db.remove(&0u32.to_le_bytes()).unwrap(), "{rest}");
            assert_eq!(db.count(), u64::from(key) - 1);
        }
    }
}

/// A room of 4 GiB was counted as one of none: what was damaged in it was passed by for ever.
#[test]
fn a_header_that_states_more_room_than_an_offset_reaches_is_none() {
    use std::os::unix::fs::FileExt as _;
    const SIZE: u64 = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forged.azh");
    let options = small().segment_size(SIZE).capacity(1 << 40);
    let db = HashDb::create(&path, &options).unwrap();
    for key in 0..10u8 {
        db.put(&[key], b"value").unwrap();
    }
    let last = superblock_of(db.log().storage().as_ref());
    let from = last.geometry.offset_of(last.start.segment());
    let mut killed = std::fs::read(&path).unwrap();
    db.close().unwrap();
    let header = crate::log::layout::SegmentHeader {
        sequence: last.start.sequence(),
        units: 1 << (32 - 26),
    };
    let forged = header.encode(last.geometry.salt);
    let at = from as usize;
    killed[at..at + forged.len()].copy_from_slice(&forged);
    killed[at + 64..at + 200].fill(0xa5);
    std::fs::write(&path, &killed).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(from + 65 * SIZE).unwrap();
    file.write_all_at(&[0xa5; 64], from + 64).unwrap();
    let db = HashDb::open(&path, &options.opening).unwrap();
    assert!(!db.damage().is_empty());
    for key in 0..10u8 {
        assert_ne!(db.get(&[key]).ok(), Some(None), "{key}");
    }
    drop(db);
    let reader = HashReader::open(&path).unwrap();
    assert!(!reader.check(&mut |_, _| ()).unwrap().is_sound());
}

/// Two keys of which the index knows the same bits: it cannot tell them apart, the records can.
fn keys_with_one_tag(db: &HashDb) -> [Vec<u8>; 2] {
    let mut known: Vec<(u64, u32)> = (0..4_000_000u32)
        .map(|i| (db.core.hash(&i.to_le_bytes()).known(), i))
        .collect();
    known.sort_unstable();
    let pair = known.windows(2).find(|pair| pair[0].0 == pair[1].0);
    let pair = pair.expect("a hundred such pairs are expected");
    [pair[0].1, pair[1].1].map(|i| i.to_le_bytes().to_vec())
}

#[test]
fn keys_that_the_index_cannot_tell_apart_keep_their_records() {
    let (memory, mut db) = empty();
    let [a, b] = keys_with_one_tag(&db);
    for round in 0..5u32 {
        let value = |key: &[u8]| [key, &round.to_le_bytes()].concat();
        // Each finds the other's record first in some round: the frame it made for nothing is a hole no more.
        for key in [&a, &b, &b, &a] {
            db.put(key, &value(key)).unwrap();
        }
        assert_eq!(db.count(), 2);
        for key in [&a, &b] {
            assert_eq!(db.get(key).unwrap(), Some(value(key)));
        }
        db.close().unwrap();
        db = HashDb::open_on(memory.clone(), &small().opening).unwrap();
        assert_sound(&db);
        let (first, second) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        assert!(db.remove(first).unwrap());
        assert!(!db.remove(first).unwrap());
        assert_eq!(db.get(second).unwrap(), Some(value(second)));
        assert!(db.remove(second).unwrap());
        assert_eq!(db.count(), 0);
    }
}

#[test]
fn a_scan_ends_at_damage_or_continues_past_it() {
    let (memory, db) = empty();
    // One of a pair is damaged: their order among themselves is that of the records.
    let pair = keys_with_one_tag(&db);
    let keys: Vec<Vec<u8>> = (0..50).map(|i| format!("key{i}").into_bytes()).collect();
    for key in keys.iter().chain(&pair) {
        db.put(key, &[b"the value of ", &key[..]].concat()).unwrap();
    }
    // After a checkpoint, or opening would find it.
    db.checkpoint().unwrap();
    db.close().unwrap();
    let needle = [b"the value of ", &pair[0][..]].concat();
    let at = place_of(&memory.to_vec(), &needle) as u64;
    memory.write_at(at, b"T").unwrap();

    let writer = HashDb::open_on(memory.clone(), &small().opening).unwrap();
    let reader = HashReader::open_on(memory).unwrap();
    for db in [&writer as &dyn Reader, &reader] {
        let error = db.scan(None, &mut |_, _| ControlFlow::Continue(()));
        assert_eq!(error.unwrap_err().kind(), Kind::Corrupted);
        let (mut shown, mut reported) = (HashSet::new(), Vec::new());
        let visit = &mut |key: &[u8], _: &[u8]| {
            assert!(shown.insert(key.to_vec()), "once");
            ControlFlow::Continue(())
        };
        let damaged = &mut |error: Error| {
            reported.push(error.kind());
            Ok(())
        };
        assert_eq!(db.scan_past(None, visit, damaged).unwrap(), None);
        let sound = keys.iter().chain(&pair[1..]).cloned();
        assert_eq!(shown, sound.collect());
        assert_eq!(reported, [Kind::Corrupted]);
    }
}
