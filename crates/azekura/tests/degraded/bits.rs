//! One wrong bit: what it costs in every region of a file, and what a repair makes of it.
//!
//! A checksum finds the one wrong bit of a header, a link, a frame, an image or a root, so it is read as it was written, or costs
//! the record that stands there. Two wrong bits are in `epochs` and in the suite of damaged files.

use std::sync::Arc;

use azekura::io::memory::Memory;
use azekura::record::hash::{HashDb, HashReader, Options};
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::suite::{demand, share, third, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Edit, Engine as _, Persistent as _};

use super::{
    AFFECTED_MAX, Made, ROOM, Regions, Repairs, bytes_of_index, cost, end_of, judge,
    past_the_checkpoint, storage, value_at, value_of,
};

#[test]
fn one_flipped_bit_anywhere_costs_what_stands_there() {
    let files = third(60);
    let (mut cases, mut refused, mut read_only, mut dear) = (0, 0, 0, 0);
    let (mut unclosed, mut killed_before) = (0, 0);
    let mut regions = Regions::default();
    for file in 0..files {
        let seed = 0xde6 + round_seed() + file;
        let made = Made::draw(seed);
        let mut random = Random::new(!seed);
        for _ in 0..12 {
            let (region, at, bit, bytes) = regions.flip(&made, &mut random);
            let what = format!(
                "bit {bit} at {at:#x} of {region}, closed {}",
                made.is_closed
            );
            let cost = cost(&made, &what, &bytes, None);
            cases += 1;
            unclosed += u64::from(!made.is_closed);
            killed_before += u64::from(made.kills > 0);
            refused += u64::from(cost.refused);
            read_only += u64::from(cost.read_only);
            dear += u64::from(cost.keys > AFFECTED_MAX);
            if region == "superblock" {
                assert!(!cost.refused && cost.keys == 0, "seed {seed}, {what}");
            }
        }
    }
    demand(cases, files * 12, "single bits");
    demand(
        unclosed,
        cases / 2,
        "single bits of files of killed processes",
    );
    demand(
        killed_before,
        cases / 5,
        "single bits of files that were recovered before",
    );
    regions.demand(cases);
    tried(&format!(
        "{cases} bits, {refused} refused, {read_only} read-only, {dear} with more than {AFFECTED_MAX} keys"
    ));
    // A bit of the root of the checkpoint is flipped back. Long frames and clears are all that is unbounded.
    assert_eq!(refused, 0, "of {cases}");
    assert!(read_only * 100 <= cases, "{read_only} of {cases} read-only");
    assert!(dear * 50 <= cases, "{dear} of {cases} cost many keys");
}

/// Of a store without a worker, in segments of this size.
fn of_segments(segment_size: u64) -> Options {
    Options {
        segment_size,
        background: false,
        capacity: ROOM,
        ..Options::default()
    }
}

/// Of a batch whose one bit is wrong, what verifies by itself is read: also that a record was removed.
#[test]
fn every_bit_of_the_last_batch_costs_one_record_of_it() {
    let (mut made, memory, db) = Made::begin(0, of_segments(16 << 10));
    for key in [b"one", b"two", b"few"] {
        db.put(key, b"older").expect("a put");
        made.remember(key.to_vec(), Some(b"older".to_vec()));
    }
    let from = end_of(&db).expect("an open segment");
    db.update_many(&[b"one", b"two"], &mut |_| {
        vec![Edit::Remove, Edit::Put(b"newer".into())]
    })
    .expect("a batch");
    let to = end_of(&db).expect("an open segment");
    made.remember(b"one".to_vec(), None);
    made.remember(b"two".to_vec(), Some(b"newer".to_vec()));
    made.bytes = memory.to_vec();
    drop(db);
    for bit in from * 8..to * 8 {
        let mut bytes = made.bytes.clone();
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        let cost = cost(&made, &format!("bit {bit}"), &bytes, None);
        assert!(!cost.refused && cost.keys <= 1, "bit {bit}: {cost:?}");
    }
    demand((to - from) * 8, 384, "bits of a batch");
}

/// Where the log goes on after a checkpoint nothing may stand yet: whether that is its end is asked of what stands right before it,
/// which one wrong bit leaves whole, and which is found behind what is damaged earlier in the segment.
#[test]
fn wrong_bits_before_a_checkpoint_at_the_end_cost_the_record_that_stands_there() {
    let (mut made, memory, db) = Made::begin(0, of_segments(16 << 10));
    let mut ends = vec![end_of(&db).expect("an open segment")];
    for key in 0..4u64 {
        db.put(&key.to_le_bytes(), &value_of(key)).expect("a put");
        made.remember(key.to_le_bytes().to_vec(), Some(value_of(key)));
        ends.push(end_of(&db).expect("an open segment"));
    }
    db.checkpoint().expect("a checkpoint");
    made.bytes = memory.to_vec();
    drop(db);
    let mut tried = 0;
    let mut judge = |bits: &[u64]| {
        let mut bytes = made.bytes.clone();
        for bit in bits {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let what = format!("bits {bits:?}");
        let cost = cost(&made, &what, &bytes, None);
        assert!(!cost.refused && !cost.read_only, "{what}: {cost:?}");
        assert!(cost.keys <= 1, "{what}: {cost:?}");
        tried += 1;
    };
    for bit in ends[3] * 8..ends[4] * 8 {
        judge(&[bit]);
    }
    for bit in ends[1] * 8..ends[2] * 8 - 9 {
        judge(&[bit, bit + 9]);
    }
    demand(tried, 1000, "wrong bits before a checkpoint at the end");
}

/// Up to 128 KiB a wrong bit costs the record that it is in. In a longer one it is not looked for: what was written before may have
/// been changed there, so that is an error until a repair, which reports what it lost; what was written behind is read.
#[test]
fn a_wrong_bit_of_a_long_record_gives_no_wrong_answer() {
    let place = Repairs::new();
    let mut tried = 0;
    for (len, is_corrected) in [(100_000, true), (140_000, false), (900_000, false)] {
        for segment_size in [64 << 10, 1 << 20] {
            let (mut made, memory, db) = Made::begin(0, of_segments(segment_size));
            made.now.insert(b"never there".to_vec(), None);
            let mut put = |key: &[u8], value: Vec<u8>| {
                db.put(key, &value).expect("a put");
                made.remember(key.to_vec(), Some(value));
            };
            put(b"before", value_of(1));
            put(b"long", Random::new(len).bytes(len as usize));
            put(b"behind", value_of(2));
            made.bytes = memory.to_vec();
            drop(db);
            let long = made.now[&b"long"[..]].clone().expect("it is there");
            let at = made.bytes.windows(64).position(|of| of == &long[..64]);
            let at = at.expect("values are stored as they are");
            let mut random = Random::new(round_seed() + len);
            for _ in 0..20 {
                let mut bytes = made.bytes.clone();
                bytes[at + random.index(long.len())] ^= 1 << random.below(8);
                let what = format!("{len} bytes, segments of {segment_size}");
                let cost = cost(&made, &what, &bytes, None);
                assert!(!cost.refused, "{what}: {cost:?}");
                assert!(!cost.failed.contains(&b"behind"[..]), "{what}: {cost:?}");
                let few = cost.keys <= 1 && !cost.read_only;
                assert!(few || !is_corrected, "{what}: {cost:?}");
                let report = place.repair(&bytes);
                let (found, lost) = (report.recovered, report.losses);
                assert!(found == 3 || found >= 2 && lost > 0, "{what}: {report:?}");
                tried += 1;
            }
        }
    }
    demand(tried, 120, "wrong bits of long records");
}

#[test]
fn a_wrong_bit_of_the_index_costs_nothing_and_is_written_again() {
    let mut found = 0;
    for seed in 0..share(20) {
        let seed = 0x1de + round_seed() + seed;
        let mut random = Random::new(!seed);
        let options = Options {
            segment_size: *random.choose(&[4096, 16 << 10, 64 << 10, 1 << 20]),
            capacity: ROOM,
            ..hash_options(&mut random, &Within::bytes(ROOM))
        };
        let made = Made::closed(seed, options);
        let held = bytes_of_index(&made);
        for _ in 0..20 {
            let at = *random.choose(&held);
            let mut bytes = made.bytes.clone();
            bytes[at as usize] ^= 1 << random.below(8);
            let reader = HashReader::open_on(storage(&bytes, None)).expect("it opens");
            let report = reader.check(&mut |_, _| ()).expect("a check");
            drop(reader);
            let is_of_index = |damage: &String| damage.contains("a part of the index");
            if !report.damage.iter().any(is_of_index) {
                continue;
            }
            found += 1;
            let memory = Memory::from_bytes(&bytes, ROOM).expect("memory");
            let open = || HashDb::open_on(Arc::clone(&memory) as Arc<_>, &made.options);
            let db = open().expect("it opens");
            assert_eq!(judge(&made, "a bit of the index", &db), 0);
            let known = db.damage();
            assert_eq!(known.len(), 1, "{known:?}");
            assert_eq!((known[0].offset, known[0].len), (at, 1), "{known:?}");
            assert!(
                !db.check(&mut |_, _| ()).expect("a check").is_sound(),
                "seed {seed}"
            );
            db.close().expect("it closes");
            let db = open().expect("it opens again");
            assert_eq!(judge(&made, "written again", &db), 0);
            let report = db.check(&mut |_, _| ()).expect("a check");
            assert!(report.is_sound(), "seed {seed}: {:?}", report.damage);
            assert!(db.damage().is_empty(), "seed {seed}");
        }
    }
    tried_at_least(found, 100, "wrong bits of the index");
}

#[test]
fn a_repair_after_one_flipped_bit_doubts_what_stood_there() {
    let files = third(18);
    let place = Repairs::new();
    let (mut cases, mut widely) = (0, 0);
    let mut regions = Regions::default();
    for file in 0..files {
        let seed = 0x4e9 + round_seed() + file;
        let made = Made::draw(seed);
        let mut random = Random::new(!seed);
        for _ in 0..3 {
            let (region, at, _, bytes) = regions.flip(&made, &mut random);
            let report = place.repair(&bytes);
            let db = HashDb::open(&place.target, &made.options).expect("what was repaired opens");
            let mut wrong = 0;
            for (key, newest) in &made.now {
                let found = db.get(key).expect("a sound file");
                if &found != newest {
                    wrong += 1;
                    let once = made.once.get(key);
                    let was = |value: &Vec<u8>| once.is_some_and(|once| once.contains(value));
                    assert!(
                        found.as_ref().is_none_or(was),
                        "seed {seed}, {at:#x} of {region}: {key:?} never had this value"
                    );
                }
            }
            assert!(
                wrong <= report.doubtful + 64 * report.lost.len() as u64,
                "seed {seed}, {at:#x} of {region}: {wrong} wrong, {report:?}"
            );
            cases += 1;
            // Without the root it is unknown which records were there.
            let has_root = !report.lost.iter().any(|line| line.contains("the root of"));
            widely += u64::from(has_root && report.doubtful > AFFECTED_MAX);
        }
    }
    demand(cases, files * 3, "repairs");
    regions.demand(cases);
    tried(&format!(
        "{cases} repairs, {widely} with more than {AFFECTED_MAX} records in doubt"
    ));
    assert!(
        widely * 12 <= cases,
        "{widely} of {cases} doubt many records"
    );
}

/// The frames past a checkpoint are the only place that states a change: where one cannot be read, each record before it may
/// have been changed there. A frame with one wrong bit can be rebuilt by its checksum, so only its own record is in doubt.
#[test]
fn a_repair_rebuilds_a_frame_of_one_wrong_bit_and_doubts_no_other_record() {
    let place = Repairs::new();
    let options = Options {
        background: false,
        ..Options::default()
    };
    let bytes = past_the_checkpoint(&options);
    for key in [7, 150, 290] {
        let at = value_at(&bytes, key);
        // In the value, and in the key before it.
        for (byte, bit) in [(at, 0), (at + 40, 7), (at - 3, 3)] {
            let mut bytes = bytes.clone();
            bytes[byte] ^= 1 << bit;
            let report = place.repair(&bytes);
            assert_eq!(
                (report.recovered, report.doubtful),
                (300, 1),
                "{key}: {report:?}"
            );
            let db = HashDb::open(&place.target, &options).expect("what was repaired opens");
            for key in 0..300u64 {
                let found = db.get(&key.to_le_bytes()).expect("a sound file");
                assert_eq!(found, Some(value_of(key)));
            }
        }
    }
}

/// Room that nothing was appended to is blank, so one bit that stands there is wrong, and no record was lost with it.
#[test]
fn a_repair_after_one_wrong_bit_past_the_end_of_the_log_loses_and_doubts_nothing() {
    let place = Repairs::new();
    let options = Options {
        background: false,
        ..Options::default()
    };
    let bytes = past_the_checkpoint(&options);
    let written = bytes.iter().rposition(|byte| *byte != 0);
    let end = written.expect("a frame").next_multiple_of(8);
    let segment_size = HashDb::open_on(storage(&bytes, None), &options)
        .expect("it opens")
        .log()
        .geometry()
        .segment_size() as usize;
    let segment = 16384 + (end - 16384) / segment_size * segment_size;
    let last = segment + segment_size - 8;
    for at in [end, end + 8, (end + last) / 16 * 8, last] {
        for (byte, bit) in [(0, 0), (3, 5), (7, 7)] {
            let mut bytes = bytes.clone();
            bytes.resize(bytes.len().max(segment + segment_size), 0);
            bytes[at + byte] ^= 1 << bit;
            let report = place.repair(&bytes);
            assert_eq!(
                (report.recovered, report.doubtful, report.losses),
                (300, 0, 0),
                "{at:#x} past {end:#x}: {report:?}"
            );
        }
    }
}
