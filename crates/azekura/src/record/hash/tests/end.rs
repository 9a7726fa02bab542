//! The log's end and its followers, through the engine: what `position` answers while others append, and that a
//! follower is never silent about what it cannot show. What a crash leaves of an end is tried by reopening a copy of the
//! file that was not closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::*;
use crate::io::over::Over;
use crate::log::follow::Follower;
use crate::log::{AllocationClass, End, Entry, Segment, Use};

/// The end and the open segment were once two truths, and between them the end was past all of a segment that was just
/// opened: a sync of that moment promised, and skipped, everything appended there later.
#[test]
fn the_end_never_goes_back_while_others_append() {
    let db = Arc::new(empty().1);
    let done = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (db, done) = (Arc::clone(&db), Arc::clone(&done));
        std::thread::spawn(move || {
            let (mut last, mut seen) = (db.position(), 0u64);
            while !done.load(Ordering::Relaxed) {
                let now = db.position();
                assert!(last <= now, "{now} after {last}");
                assert!(now.offset <= 4096, "{now}");
                (last, seen) = (now, seen + 1);
            }
            seen
        })
    };
    for round in 0..2000u32 {
        put_each(&db, 0..20u32, &[round as u8; 400]);
        if round % 50 == 0 {
            db.checkpoint().unwrap();
            db.maintain().unwrap();
        }
        if watcher.is_finished() {
            break;
        }
    }
    done.store(true, Ordering::Relaxed);
    assert!(watcher.join().unwrap() > 1000);
}

/// Of each kind of end: at a frame, at the end of a full segment, past a large value, and after opening again.
#[test]
fn what_a_sync_makes_durable_is_the_end_and_opens_again() {
    let (mut memory, mut db) = empty();
    let lens = [1, 40, 400, 100_000, 8, 3000, 2000, 50_000, 4000, 1000];
    let mut closed = 0;
    for (at, len) in lens.into_iter().cycle().take(200).enumerate() {
        db.put(&(at as u32 % 7).to_le_bytes(), &vec![7; len])
            .unwrap();
        closed += u32::from(matches!(db.log().end(), End::Closed { .. }));
        db.sync(Durability::Power).unwrap();
        assert_eq!(db.log().durable(), db.position());
        assert_eq!(db.log().mark().unwrap().durable, db.position());
        if at % 10 == 9 {
            let count = db.count();
            if at % 20 == 9 {
                db.checkpoint().unwrap();
            }
            // As if the process were killed: the file is not closed.
            memory = Memory::from_bytes(&memory.to_vec(), 1 << 26).unwrap();
            db = HashDb::open_on(memory.clone(), &small().opening).unwrap();
            assert_eq!(db.count(), count);
            assert_sound(&db);
        }
    }
    assert!(closed > 20, "{closed}");
}

/// The end that a sync makes durable is the one it began with. What is appended while the device works was not handed to it:
/// were it taken to be durable, the next sync would skip it, and a loss of power would take an acknowledged change.
#[test]
fn what_is_appended_during_a_sync_waits_for_the_next() {
    let db = empty().1;
    db.put(b"before", b"1").unwrap();
    let began = db.position();
    let during = || db.put(b"during", b"2");
    db.log().sync_now_by(|| db.log().flush(&during)).unwrap();
    assert_eq!(db.log().durable(), began);
    assert_eq!(db.log().mark().unwrap().durable, began);
    let syncs = db.log().syncs();
    db.sync(Durability::Power).unwrap();
    assert_eq!(db.log().syncs(), syncs + 1, "the device is reached again");
    assert_eq!(db.log().durable(), db.position());
}

/// Shows the follower all that there is; how much that was.
fn all_of(follower: &mut Follower) -> u64 {
    let advanced = follower.advance(&mut |_, _| ControlFlow::Continue(()));
    advanced.unwrap()
}

/// A segment past the position was cleaned and free again: a follower that began there was shown nothing, for ever, and
/// was given this as all.
#[test]
fn a_position_before_a_segment_that_is_gone_is_refused() {
    let (mut refused, mut followed) = (0, 0);
    for count in 1..40u32 {
        let db = empty().1;
        put_each(&db, 0..count, &[1; 200]);
        let from = db.position();
        for i in 0..200u32 {
            db.put(&(1000 + i % 4).to_le_bytes(), &[2; 200]).unwrap();
        }
        for _ in 0..50 {
            db.maintain().unwrap();
        }
        db.put(b"last", b"3").unwrap();
        match db.log().follow(Some(from)) {
            Ok(mut follower) => {
                let shown = all_of(&mut follower);
                assert_eq!(shown, 201, "{count}");
                assert_eq!(follower.position(), db.position());
                followed += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Invalid);
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "{refused} refused, {followed} followed");
}

/// The chain leaps from epoch to epoch: the link alone leads on there.
#[test]
fn a_follower_goes_on_over_openings_after_a_crash() {
    let (mut memory, mut db) = empty();
    let mut positions = vec![db.position()];
    for round in 0..6u8 {
        for i in 0..30u32 {
            db.put(&i.to_le_bytes(), &[round; 300]).unwrap();
            positions.push(db.position());
        }
        memory = Memory::from_bytes(&memory.to_vec(), 1 << 26).unwrap();
        db = HashDb::open_on(memory.clone(), &small().opening).unwrap();
    }
    for (before, from) in positions.iter().enumerate() {
        let mut follower = db.log().follow(Some(*from)).unwrap();
        let shown = all_of(&mut follower);
        assert_eq!(shown, 180 - before as u64);
    }
    let in_use = db.log().segments().in_use(Use::Log);
    let epochs: HashSet<u64> = in_use.iter().map(|s| s.sequence >> 32).collect();
    assert!(epochs.len() > 4, "{epochs:?}");
}

/// What is kept free grows with the records, and the storage with it when a segment is taken. In between, updates once took
/// the way of a full store, which wins room and looks for it each time.
#[test]
fn a_store_that_can_be_grown_is_never_full() {
    for background in [false, true] {
        let options = small().background(background);
        let db = HashDb::create_on(Memory::new(1 << 28).unwrap(), &options).unwrap();
        for key in 0..30_000u32 {
            db.put(&key.to_le_bytes(), &[7; 20]).unwrap();
            assert!(!db.log().segments().is_full(), "{background} {key}");
        }
        for key in 0..30_000u32 {
            db.remove(&key.to_le_bytes()).unwrap();
            assert!(!db.log().segments().is_full(), "{background} {key} removed");
        }
    }
}

/// What a killed thread had reserved for a large value once counted as live for ever: its segments were never cleaned.
#[test]
fn room_of_a_value_that_a_killed_thread_never_published_is_dead() {
    let (memory, db) = empty();
    db.put(b"before", b"value").unwrap();
    db.put(b"large", &vec![0x77; 40_000]).unwrap();
    db.put(b"after", b"value").unwrap();
    let mut bytes = memory.to_vec();
    drop(db);
    let held = place_of(&bytes, &[0x77; 100]);
    let begin = (held - 64) & !4095;
    assert!(bytes[begin..].starts_with(b"azsg"));
    // Nothing of the frame is there: it is published by its first word.
    bytes[begin + 64..begin + 40_960].fill(0);
    let db = opened(&bytes);
    assert!(db.damage().is_empty(), "{:?}", db.damage());
    assert_eq!(db.get(b"after").unwrap(), Some(b"value".to_vec()));
    assert_eq!(db.get(b"large").unwrap(), None);
    let of_log = |db: &HashDb| db.core.log.segments().in_use(Use::Log);
    let large = |segments: &[Segment]| segments.iter().any(|segment| segment.units > 1);
    let segments = of_log(&db);
    let dead: u64 = segments.iter().map(Segment::reclaimable).sum();
    assert!(large(&segments) && dead >= 40_000, "{segments:?}");
    db.compact(&mut |_, _| ()).unwrap();
    assert!(!large(&of_log(&db)), "{:?}", of_log(&db));
}

/// A follower may begin in a segment after that was chosen to be cleaned, and before it is retired.
#[test]
fn a_segment_in_which_a_follower_stands_is_not_retired() {
    let db = empty().1;
    put_each(&db, 0..100u32, &[1; 200]);
    let from = db.position();
    let chosen = db.log().end().segment();
    put_each(&db, 0..100u32, &[2; 200]);
    let is_in_use = || {
        let in_use = db.log().segments().in_use(Use::Log);
        in_use.iter().any(|segment| segment.index == chosen)
    };
    let mut follower = db.log().follow(Some(from)).unwrap();
    db.log().retire_unless_retained(chosen, from.sequence);
    assert!(is_in_use());
    assert_eq!(all_of(&mut follower), 100);
    drop(follower);
    db.log().retire_unless_retained(chosen, from.sequence);
    assert!(!is_in_use());
}

/// A storage of a system that does not state which boot it is.
#[derive(Debug)]
struct Bootless(Arc<Memory>);

impl Over for Bootless {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn boot_id(&self) -> [u8; 16] {
        [0; 16]
    }
}

/// Without a boot id the power may have been lost since: what was not synced and does not verify was never there.
#[test]
fn a_system_without_a_boot_id_may_have_lost_power() {
    let memory = Memory::new(1 << 26).unwrap();
    let db = HashDb::create_on(Arc::new(Bootless(memory.clone())), &small()).unwrap();
    db.put(b"synced", b"value").unwrap();
    db.sync(Durability::Power).unwrap();
    let at = db.log().end();
    db.put(b"not synced", &[7; 100]).unwrap();
    let mut bytes = memory.to_vec();
    drop(db);
    let at = 16384 + at.segment() as usize * 4096 + at.offset().unwrap() as usize;
    bytes[at + 16..at + 100].fill(0xa5);
    let cut = Memory::from_bytes(&bytes, 1 << 26).unwrap();
    let db = HashDb::open_on(Arc::new(Bootless(cut)), &small().opening).unwrap();
    assert!(db.damage().is_empty(), "{:?}", db.damage());
    assert_eq!(db.get(b"synced").unwrap(), Some(b"value".to_vec()));
    assert_eq!(db.get(b"not synced").unwrap(), None);
    db.put(b"not synced", b"later").unwrap();
}

/// Of all that was there before a clear nothing is live; of what was put after it, everything. Once all segments counted as
/// dead when the process was killed after a clear.
#[test]
fn after_a_clear_and_a_kill_what_was_put_since_is_live() {
    let (memory, db) = empty();
    put_each(&db, 0..40u32, &[1; 200]);
    db.clear().unwrap();
    put_each(&db, 0..40u32, &[2; 200]);
    let killed = memory.to_vec();
    let (_, wanted) = db.core.log_bytes();
    let checkpoint = db.core.checkpoint.lock().committed.superblock.clone();
    assert!(
        checkpoint.payload.root.is_none(),
        "replay begins before the clear"
    );
    drop(db);
    let db = opened(&killed);
    let (used, live) = db.core.log_bytes();
    assert!(live >= 40 * 208, "{live} live of {used}");
    assert!(
        live <= wanted + 4096,
        "{live} live of {used}, {wanted} before"
    );
    assert_eq!(db.count(), 40);
}

/// A storage that a writer opens while a reader does.
#[derive(Debug)]
struct Joined {
    memory: Arc<Memory>,
    asked: AtomicUsize,
}

impl Over for Joined {
    fn below(&self) -> &dyn Storage {
        self.memory.as_ref()
    }

    fn has_writer(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) > 0
    }
}

/// A blank frame before others is what a killed thread left, unless there is a writer. A reader that saw none, and then one, once
/// passed by a frame that this was about to publish, for good.
#[test]
fn a_reader_that_opens_while_a_writer_comes_sees_what_it_publishes() {
    let (memory, db) = empty();
    db.put(b"first", b"value").unwrap();
    let end = db.log().end();
    let at = 16384 + u64::from(end.segment()) * 4096 + u64::from(end.offset().unwrap());
    db.put(b"second", b"value").unwrap();
    db.put(b"third", b"value").unwrap();
    let mut word = [0; 8];
    memory.read_at(at, &mut word).unwrap();
    // As it is while the writer copies it.
    memory.write_at(at, &[0; 8]).unwrap();
    let asked = AtomicUsize::new(0);
    let storage = Joined {
        memory: memory.clone(),
        asked,
    };
    let reader = HashReader::open_on(Arc::new(storage)).unwrap();
    assert_eq!(reader.get(b"first").unwrap(), Some(b"value".to_vec()));
    assert_eq!(reader.get(b"third").unwrap(), None, "it stands after a gap");
    memory.write_at(at, &word).unwrap();
    for key in [&b"first"[..], b"second", b"third"] {
        assert_eq!(reader.get(key).unwrap(), Some(b"value".to_vec()));
    }
}

/// Where the last frame filled its segment, a follower that was shown all stood before the log's end, and would for ever.
#[test]
fn a_follower_that_was_shown_all_stands_where_the_log_does() {
    let db = empty().1;
    let mut follower = db.log().follow(Some(db.position())).unwrap();
    let (mut shown, mut closed) = (0, 0);
    for len in (0..400).map(|at| 3000 + at * 8) {
        db.put(b"key", &vec![7; len]).unwrap();
        shown += all_of(&mut follower);
        assert_eq!(follower.position(), db.position(), "{len} bytes");
        closed += u32::from(matches!(db.log().end(), End::Closed { .. }));
        let resumed = db.log().follow(Some(follower.position())).unwrap();
        assert_eq!(resumed.position(), db.position(), "{len} bytes");
    }
    assert!(
        shown == 400 && closed > 10,
        "{shown} shown, {closed} closed"
    );
}

/// A writer came after the reader had opened a closed file: what it appended is the log, and damage in it no end.
#[test]
fn what_is_damaged_after_a_close_is_an_error_to_a_reader_that_was_there() {
    for lost in 0..4u8 {
        let (memory, db) = empty();
        for key in 0..4u8 {
            db.put(&[key], &[1; 100]).unwrap();
        }
        db.close().unwrap();
        let reader = HashReader::open_on(memory.clone()).unwrap();
        assert_eq!(reader.get(&[0]).unwrap(), Some(vec![1; 100]));
        let writer = HashDb::open_on(memory.clone(), &small().opening).unwrap();
        let mut ends = vec![writer.position()];
        for key in 0..4u8 {
            writer.put(&[key], &[2; 100]).unwrap();
            ends.push(writer.position());
        }
        let (from, index) = (ends[usize::from(lost)], writer.log().end().segment());
        assert_eq!(from.sequence, ends[4].sequence, "all in one segment");
        let at = writer.log().geometry().offset_of(index) + u64::from(from.offset);
        memory.map(1 << 24).unwrap().write(at + 40, &[0xa5; 24]);
        for key in 0..4u8 {
            let found = reader.get(&[key]);
            let is_newest = matches!(&found, Ok(Some(value)) if *value == [2; 100]);
            assert!(found.is_err() || is_newest, "{lost} {key}: {found:?}");
            assert!(key != lost || found.is_err(), "{lost}: {found:?}");
        }
    }
}

/// A writer came and closed after the reader had opened: what stands after that close is not the log, as for who opens now.
#[test]
fn what_stands_after_a_later_close_is_no_damage_to_a_reader_that_was_there() {
    let (memory, db) = empty();
    db.put(b"key", b"older").unwrap();
    db.close().unwrap();
    let reader = HashReader::open_on(memory.clone()).unwrap();
    assert_eq!(reader.get(b"key").unwrap().as_deref(), Some(&b"older"[..]));
    let db = HashDb::open_on(memory.clone(), &small().opening).unwrap();
    db.put(b"key", b"newer").unwrap();
    let end = db.position();
    let at = db.log().geometry().offset_of(db.log().end().segment()) + u64::from(end.offset);
    db.close().unwrap();
    let closed = HashReader::open_on(memory.clone()).unwrap().inspect();
    assert!(closed.contains(&("position", end.to_string())));
    memory.map(1 << 24).unwrap().write(at, &[0xa5; 24]);
    for reader in [reader, HashReader::open_on(memory).unwrap()] {
        for _ in 0..2 {
            let found = reader.get(b"key").unwrap();
            assert_eq!(found.as_deref(), Some(&b"newer"[..]));
            assert_eq!(reader.get(b"other").unwrap(), None);
        }
    }
}

/// What a full store asks for before it copies a segment is what the copies take.
#[test]
fn the_segments_that_frames_take_are_counted_before_they_are_appended() {
    let mut random = Random::new(crate::testkit::round_seed() ^ 0x5e9);
    let mut all = 0;
    for segment_size in [4096, 16_384] {
        let options = small()
            .segment_size(segment_size)
            .compression(Compression::None)
            .capacity(1 << 30)
            // Nothing is cleaned meanwhile.
            .space_ratio(100.0);
        let memory = Memory::new(1 << 30).unwrap();
        let db = HashDb::create_on(memory, &options).unwrap();
        let log = &db.core.log;
        let used = || -> u32 {
            log.segments()
                .in_use(Use::Log)
                .iter()
                .map(|s| s.units)
                .sum()
        };
        let mut key = 0u64;
        for _ in 0..400 {
            let size = segment_size as usize;
            let max = *random.choose(&[100, size / 3, size / 2 + 40, 3 * size]);
            let records: Vec<_> = (0..=random.index(12))
                .map(|_| {
                    key += 1;
                    let len = 1 + random.index(max);
                    (key.to_le_bytes(), random.bytes(len))
                })
                .collect();
            let lens: Vec<usize> = records
                .iter()
                .map(|(k, v)| db.core.frame_len(k, v))
                .collect();
            let (needed, longest) = log.units_for(lens.iter().copied());
            let before = used();
            for (key, value) in &records {
                // As a copy is: a put takes more of the open segment.
                let entry = Entry {
                    kind: layout::PUT,
                    flags: 0,
                    key,
                    value,
                };
                let mark = log.pin().critical_section();
                log.append(&mark, &entry, AllocationClass::Cleaning)
                    .unwrap();
            }
            let most = lens.iter().map(|len| log.units_of(*len)).max().unwrap();
            assert_eq!(used() - before, needed, "{lens:?} in segments of {size}");
            assert!(
                longest <= most && (longest == most || needed == 0 || most == 1),
                "{lens:?}"
            );
            all += needed;
        }
    }
    assert!(all > 1000, "{all}");
}

fn assert_unknown(refused: &Error) {
    let text = refused.to_string();
    assert!(text.contains("unknown record type"), "{text}");
}

/// A later version may write records of more types: what one of them changes is not known, so the file is not opened, and a
/// repair names it.
#[test]
fn a_record_of_unknown_type_is_refused_and_left_out_by_a_repair() {
    let unknown = |kind, key| Entry {
        kind,
        flags: 0,
        key,
        value: b"of a later version",
    };
    let alone = |kind| vec![unknown(kind, &b"new"[..])];
    let in_a_batch = vec![
        Entry {
            kind: layout::INSERT,
            flags: 0,
            key: b"known",
            value: b"value",
        },
        unknown(FrameKind::keyed(4), b"new"),
    ];
    let cases = [
        (alone(FrameKind::keyed(5)), 2),
        (alone(FrameKind::wide(3)), 2),
        (in_a_batch, 3),
    ];
    for (entries, left) in cases {
        let (memory, db) = empty();
        let reader = HashReader::open_on(memory.clone()).unwrap();
        db.put(b"one", b"1").unwrap();
        {
            let pin = db.core.index.pin();
            let guard = pin.critical_section();
            if let [entry] = entries.as_slice() {
                db.log()
                    .append(&guard, entry, AllocationClass::Growth)
                    .unwrap();
            } else {
                let appended =
                    db.log()
                        .append_batch(&guard, &entries, AllocationClass::Growth, |_, _| ());
                appended.unwrap();
            }
        }
        db.put(b"two", b"2").unwrap();
        db.sync(Durability::Power).unwrap();
        let mut bytes = memory.to_vec();
        let killed = stored(&bytes);
        let at = bytes
            .windows(18)
            .rposition(|of| of == b"of a later version");
        bytes[at.unwrap()] ^= 1;
        // Of a damaged one that may change anything, all before it is in doubt.
        let is_wide = entries[0].kind.is_wide();
        match HashDb::open_on(stored(&bytes), &small().opening) {
            Ok(db) => {
                assert!(is_wide, "{:?}", entries[0].kind);
                assert_eq!(db.put(b"one", b"1").unwrap_err().kind(), Kind::Corrupted);
                assert_eq!(db.get(b"one").unwrap_err().kind(), Kind::Corrupted);
            }
            Err(refused) => assert_unknown(&refused),
        }
        let refused = HashDb::open_on(killed.clone(), &small().opening)
            .err()
            .unwrap();
        assert_eq!(refused.kind(), Kind::Corrupted, "{refused}");
        assert_unknown(&refused);
        assert_unknown(&reader.get(b"two").unwrap_err());
        let (db, report) = repaired(&killed);
        let is_named = |what: &String| what.contains("unknown type");
        assert!(report.lost.iter().any(is_named), "{report:?}");
        assert_eq!(db.count(), left, "{report:?}");
        assert_eq!(db.get(b"new").unwrap(), None);
    }
}
