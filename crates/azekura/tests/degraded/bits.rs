//! One wrong bit: what it costs in every region of a file, and what a repair makes of it.
//!
//! A checksum finds the one wrong bit of a header, a link, a frame, an image or a root, so it is read as it was written, or costs
//! the record that stands there. Two wrong bits are in `epochs` and in the suite of damaged files.

use std::sync::Arc;

use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb, HashReader};
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::suite::{demand, share, third, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Edit, Engine as _, Persistent as _};

use std::collections::BTreeSet;

use super::{
    AFFECTED_MAX, Made, ROOM, Regions, Repairs, bytes_of_index, cost, end_of, judge, of_segments,
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

/// Where the log continues after a checkpoint nothing may stand yet: whether that is its end is asked of what stands right before it,
/// which one wrong bit leaves whole, and which is found after what is damaged earlier in the segment.
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

/// A wrong bit costs the record that it is in, however long: up to 128 KiB a repair corrects it, of a longer one the head states
/// which record it was.
#[test]
fn a_wrong_bit_of_a_long_record_costs_that_record() {
    let place = Repairs::new();
    let (mut tried, mut of_heads) = (0, 0);
    for (len, is_corrected) in [(100_000, true), (140_000, false), (900_000, false)] {
        for segment_size in [64 << 10, 1 << 20] {
            let (made, at) = with_a_long_record(len, segment_size);
            let mut random = Random::new(round_seed() + len as u64);
            for case in 0..30 {
                let mut bytes = made.bytes.clone();
                // A third of them in the head, 16 bytes and the key.
                let is_of_head = case % 3 == 0;
                let byte = if is_of_head {
                    at - 20 + random.index(20)
                } else {
                    at + random.index(len)
                };
                bytes[byte] ^= 1 << random.below(8);
                let what = format!("{len} bytes, segments of {segment_size}, byte {byte}");
                let cost = cost(&made, &what, &bytes, None);
                assert!(!cost.refused && !cost.read_only, "{what}: {cost:?}");
                assert!(cost.keys <= 1, "{what}: {cost:?}");
                let report = place.repair(&bytes);
                let is_sum = is_of_head && byte < at - 16;
                let expected = if is_corrected || is_of_head && !is_sum {
                    3
                } else {
                    2
                };
                assert_eq!(report.recovered, expected, "{what}: {report:?}");
                assert!(
                    report.losses == 1 && report.doubtful <= 1,
                    "{what}: {report:?}"
                );
                tried += 1;
                of_heads += u64::from(is_of_head);
            }
        }
    }
    demand(tried, 180, "wrong bits of long records");
    demand(of_heads, 60, "wrong bits of their heads");
}

/// A file with a record of this length between two short ones, the second time it was written, and where its value begins.
fn with_a_long_record(len: usize, segment_size: u64) -> (Made, usize) {
    let (mut made, memory, db) = Made::begin(0, of_segments(segment_size));
    made.now.insert(b"never there".to_vec(), None);
    let mut put = |key: &[u8], value: Vec<u8>| {
        db.put(key, &value).expect("a put");
        made.remember(key.to_vec(), Some(value));
    };
    put(b"before", value_of(1));
    let value = Random::new(len as u64).bytes(len);
    put(b"long", value.clone());
    put(b"behind", value_of(2));
    made.bytes = memory.to_vec();
    drop(db);
    let at = made.bytes.windows(64).position(|of| of == &value[..64]);
    (made, at.expect("values are stored as they are"))
}

/// Damage of any length within a long value costs its record, also of a batch: of the others nothing is in doubt, and no value
/// that was replaced comes back.
#[test]
fn damage_within_long_values_costs_their_records() {
    let place = Repairs::new();
    let (mut tried, mut of_batches, mut past) = (0, 0, 0);
    for round in 0..share(40) {
        let seed = 0x10f6 + round_seed() + round;
        let mut random = Random::new(seed);
        let segment_size = *random.choose(&[16 << 10, 64 << 10, 1 << 20]);
        let (mut made, memory, db) = Made::begin(0, of_segments(segment_size));
        made.now.insert(b"never there".to_vec(), None);
        let keys: Vec<Vec<u8>> = (0..6u8)
            .map(|at| vec![b'a' + at; random.index(400) + 1])
            .collect();
        for key in &keys {
            db.put(key, b"older").expect("a put");
            made.remember(key.clone(), Some(b"older".to_vec()));
        }
        let is_checkpointed = random.one_in(2);
        if is_checkpointed {
            db.checkpoint().expect("a checkpoint");
        }
        // The first of them is long enough to have a head.
        let len_max = if random.one_in(2) { 90_000 } else { 400_000 };
        let values: Vec<Vec<u8>> = (0..4)
            .map(|at| {
                let len = if at == 0 || random.one_in(2) {
                    65_536 + random.index(len_max - 65_536)
                } else {
                    random.index(2000)
                };
                random.bytes(len)
            })
            .collect();
        let is_batch = random.one_in(2);
        let replay_from = |db: &HashDb| {
            let figures = db.inspect();
            figures.into_iter().find(|(name, _)| *name == "replay_from")
        };
        let before = replay_from(&db);
        if is_batch {
            let of: Vec<&[u8]> = keys[..4].iter().map(Vec::as_slice).collect();
            db.update_many(&of, &mut |_| {
                values
                    .iter()
                    .map(|value| Edit::Put(value.clone().into()))
                    .collect()
            })
            .expect("a batch");
        } else {
            for (key, value) in keys.iter().zip(&values) {
                db.put(key, value).expect("a put");
            }
        }
        for (key, value) in keys.iter().zip(&values) {
            made.remember(key.clone(), Some(value.clone()));
        }
        db.put(&keys[4], b"behind").expect("a put");
        made.remember(keys[4].clone(), Some(b"behind".to_vec()));
        let is_synced = random.one_in(2);
        if is_synced {
            db.sync(azekura::Durability::Power).expect("a sync");
        }
        // A checkpoint that came by itself may stand after them: then no older value counts.
        let is_past = before == replay_from(&db);
        made.bytes = memory.to_vec();
        drop(db);
        for _ in 0..8 {
            let hit = loop {
                let at = random.index(4);
                if values[at].len() > 65_535 {
                    break at;
                }
            };
            let value = &values[hit];
            let begins = made.bytes.windows(64).position(|of| of == &value[..64]);
            let begins = begins.expect("values are stored as they are");
            let len = 2 + random.index(value.len().min(9000));
            let from = begins + random.index(value.len() - len + 1);
            let mut bytes = made.bytes.clone();
            let fill = random.bytes(len);
            match random.below(3) {
                0 => bytes[from..from + len].fill(0),
                1 => bytes[from..from + len].copy_from_slice(&fill),
                _ => {
                    bytes[from] ^= 1;
                    bytes[from + len - 1] ^= 0x80;
                }
            }
            let what = format!(
                "seed {seed}: {len} bytes at {from:#x} of {} bytes, a batch {is_batch}, synced {is_synced}",
                value.len()
            );
            let cost = cost(&made, &what, &bytes, None);
            assert!(!cost.refused && !cost.read_only, "{what}: {cost:?}");
            assert!(
                cost.keys == 1 && cost.failed.contains(&keys[hit]),
                "{what}: {cost:?}"
            );
            let report = place.repair(&bytes);
            tried += 1;
            of_batches += u64::from(is_batch);
            if !is_past {
                assert!(
                    report.recovered >= 5 && report.losses == 1,
                    "{what}: {report:?}"
                );
                continue;
            }
            past += 1;
            // What it was before is brought over in its place.
            assert_eq!(report.recovered, 6, "{what}: {report:?}");
            let doubted: BTreeSet<&[u8]> = report.doubted.iter().map(|of| &of.key[..]).collect();
            // A batch that was not synced may not have been written whole.
            let of = if is_batch && !is_synced {
                &keys[..4]
            } else {
                &keys[hit..=hit]
            };
            let of = of.iter().map(Vec::as_slice).collect();
            assert_eq!((doubted, report.losses), (of, 1), "{what}: {report:?}");
        }
    }
    tried_at_least(tried, 320, "damaged long values");
    demand(of_batches, tried / 4, "damaged long values in batches");
    demand(past, tried / 2, "damaged long values past the checkpoint");
}

#[test]
fn a_wrong_bit_of_the_index_costs_nothing_and_is_written_again() {
    let mut found = 0;
    for seed in 0..share(20) {
        let seed = 0x1de + round_seed() + seed;
        let mut random = Random::new(!seed);
        let options = hash_options(&mut random, &Within::bytes(ROOM))
            .segment_size(*random.choose(&[4096, 16 << 10, 64 << 10, 1 << 20]))
            .capacity(ROOM);
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
            let open = || HashDb::open_on(Arc::clone(&memory) as Arc<_>, &made.options.opening);
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
            let db = HashDb::open(&place.target, &made.options.opening)
                .expect("what was repaired opens");
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
    let options = CreateOptions::new().background(false);
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
            let db =
                HashDb::open(&place.target, &options.opening).expect("what was repaired opens");
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
    let options = CreateOptions::new().background(false);
    let bytes = past_the_checkpoint(&options);
    let written = bytes.iter().rposition(|byte| *byte != 0);
    let end = written.expect("a frame").next_multiple_of(8);
    let segment_size = HashDb::open_on(storage(&bytes, None), &options.opening)
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
