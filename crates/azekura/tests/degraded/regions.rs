//! Ranges that cannot be read, slots of the superblock that are lost, parts that another program overwrote or cut off.
//!
//! What stood in such a place is unknown, so that records may be affected that stand elsewhere: those are errors, and never older
//! values. Which they may be is bounded by what stood there (`stands`), key by key. A slot of the superblock costs nothing, since
//! there are two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use azekura::Kind;
use azekura::Persistent as _;
use azekura::format::superblock::{MAGIC, SLOT_SIZE};
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb, HashReader, RepairReport, repair_storage};
use azekura::testkit::suite::{demand, share, third, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};

use super::stands::Stands;
use super::{
    Made, ROOM, Regions, Repairs, cost, end_of, judge, past_the_checkpoint, storage, value_at,
    value_of,
};

#[test]
fn a_range_that_cannot_be_read_never_makes_an_older_value_the_newest() {
    let files = third(36);
    let (mut cases, mut refused, mut read_only, mut tails, mut few) = (0, 0, 0, 0, 0);
    let mut regions = Regions::default();
    for file in 0..files {
        let seed = 0xe10 + round_seed() + file;
        let made = Made::draw(seed);
        let stands = Stands::of(&made);
        let mut random = Random::new(!seed);
        for turn in 0..9 {
            let (region, at) = match turn {
                // What was written last, with nothing after it.
                0 if !made.is_closed => {
                    tails += 1;
                    ("tail", made.end - 1)
                }
                _ => regions.place(&made, &mut random),
            };
            let from = at & !4095;
            let to = from + 4096 * random.choose(&[1, 1, 1, 4]);
            // Both slots of the superblock are one more than may be lost.
            let to = if from < SLOT_SIZE { SLOT_SIZE } else { to };
            let what = format!(
                "{from:#x} to {to:#x} of {region}, closed {}",
                made.is_closed
            );
            let cost = cost(&made, &what, &made.bytes, Some((from, to)));
            let may = stands.may_cost((from, to));
            let more: Vec<_> = cost.failed.difference(&may.fail).collect();
            assert!(
                more.is_empty() && (may.be_read_only || !cost.read_only),
                "seed {seed}, {what}: read-only {}, {} keys are errors, of which {} stand elsewhere: {:?}",
                cost.read_only,
                cost.failed.len(),
                more.len(),
                more.iter().map(|key| String::from_utf8_lossy(key))
            );
            few += u64::from(may.fail.len() * 4 < made.now.len());
            cases += 1;
            refused += u64::from(cost.refused);
            read_only += u64::from(cost.read_only);
        }
    }
    demand(cases, files * 9, "unreadable ranges");
    demand(tails, files / 2, "unreadable ends of the log");
    regions.demand(cases - tails);
    // A bound of all keys states nothing.
    demand(few, cases / 4, "ranges that may cost few keys");
    tried(&format!(
        "{cases} ranges, {refused} refused, {read_only} read-only"
    ));
    // Only both slots of the superblock keep a file from being opened.
    assert_eq!(refused, 0, "of {cases}");
}

#[test]
fn losing_a_slot_of_the_superblock_costs_nothing_but_the_slot() {
    let files = third(36);
    let mut cases = 0;
    for file in 0..files {
        let seed = 0x5b0 + round_seed() + file;
        let made = Made::draw(seed);
        let mut random = Random::new(!seed);
        for slot in 0..2 {
            let range = (slot * SLOT_SIZE) as usize..((slot + 1) * SLOT_SIZE) as usize;
            for how in 0..4 {
                let mut bytes = made.bytes.clone();
                let mut unreadable = None;
                match how {
                    0 => bytes[range.clone()].fill(0),
                    1 => {
                        let at = range.start + random.index(136);
                        bytes[at] ^= 1 << random.below(8);
                    }
                    // Torn: the end of another write.
                    2 => bytes[range.start + 16..range.start + 512].fill(0xa5),
                    _ => unreadable = Some((range.start as u64, range.end as u64)),
                }
                let what = format!("slot {slot} lost in way {how}, closed {}", made.is_closed);
                let reader = HashReader::open_on(storage(&bytes, unreadable)).expect("it opens");
                let report = reader.check(&mut |_, _| ()).expect("a check");
                let named = format!("superblock slot {slot}");
                assert!(
                    report.damage.iter().any(|line| line.contains(&named)),
                    "seed {seed}, {what}: {report:?}"
                );
                drop(reader);
                let cost = cost(&made, &what, &bytes, unreadable);
                assert!(
                    !cost.refused && cost.keys == 0 && !cost.read_only,
                    "seed {seed}, {what}: {cost:?}"
                );
                cases += 1;
            }
        }
        // Opening for writing writes both slots.
        let memory = Memory::from_bytes(&made.bytes, ROOM).expect("memory");
        memory
            .write_at(SLOT_SIZE, &[0; 4096])
            .expect("a slot is lost");
        let db = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &made.options.opening)
            .expect("it opens");
        let bytes = memory.to_vec();
        assert!(bytes[..8] == MAGIC && bytes[4096..4104] == MAGIC);
        assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    }
    demand(cases, files * 8, "lost slots");
}

#[test]
fn a_repair_of_a_file_that_lost_a_superblock_slot_brings_all_over_and_doubts_nothing() {
    let place = Repairs::new();
    let mut repairs = 0;
    for file in 0..third(12) {
        let made = Made::draw(0x51_07 + round_seed() + file);
        let at = (file % 2 * SLOT_SIZE) as usize;
        let mut bytes = made.bytes.clone();
        bytes[at..at + SLOT_SIZE as usize].fill(if file % 4 < 2 { 0 } else { 0xa5 });
        let report = place.repair(&bytes);
        assert_eq!((report.doubtful, report.losses), (0, 0), "{report:?}");
        let db =
            HashDb::open(&place.target, &made.options.opening).expect("what was repaired opens");
        assert_eq!(judge(&made, "repaired", &db), 0);
        repairs += 1;
    }
    demand(repairs, third(12), "repairs of files without a slot");
}

/// A repair ends, gives no value that was never put, and names each older one; a record that is gone it reports as lost.
#[test]
fn a_repair_of_a_file_of_which_a_range_cannot_be_read_takes_nothing_older_for_certain() {
    let files = third(60);
    let (mut cases, mut older) = (0, 0);
    let mut regions = Regions::default();
    for file in 0..files {
        let seed = 0x7e10 + round_seed() + file;
        let made = Made::draw(seed);
        let stands = Stands::of(&made);
        let mut random = Random::new(!seed);
        for _ in 0..9 {
            let (region, at) = regions.place(&made, &mut random);
            let from = at & !4095;
            let to = from + 4096 * random.choose(&[1, 1, 1, 4]);
            let to = if from < SLOT_SIZE { SLOT_SIZE } else { to };
            let what = format!("seed {seed}, {from:#x} to {to:#x} of {region}");
            let options = CreateOptions::new()
                .segment_size(4096)
                .compression(made.options.compression)
                .background(false)
                .capacity(ROOM);
            let target = HashDb::create_on(Memory::new(ROOM).expect("memory"), &options);
            let target = target.expect("a new store");
            let mut report = RepairReport::default();
            let storage = storage(&made.bytes, Some((from, to)));
            let last = stands.superblock(&(from..to));
            repair_storage(&storage, &last, &target, &mut report, &mut |_, _| ())
                .expect("a repair");
            let doubted: BTreeSet<&[u8]> = report.doubted.iter().map(|of| &of.key[..]).collect();
            let is_named =
                |key: &[u8]| doubted.contains(key) || report.doubtful > report.doubted.len() as u64;
            for (key, newest) in &made.now {
                let found = target.get(key).expect("a sound file");
                if &found == newest {
                    continue;
                }
                let name = String::from_utf8_lossy(key);
                let Some(value) = found else {
                    assert!(report.losses > 0, "{what}: {name} is gone: {report:?}");
                    continue;
                };
                let once = made.once.get(key).is_some_and(|of| of.contains(&value));
                assert!(once && is_named(key), "{what}: {name}, once {once}");
                older += 1;
            }
            cases += 1;
        }
    }
    demand(cases, files * 9, "repairs of files with unreadable ranges");
    demand(older, files, "older values that they bring over");
    regions.demand(cases);
}

/// A range that another program overwrote can be read, so only what the log states shows that a part of it is lost.
#[test]
fn a_file_whose_log_was_overwritten_in_part_takes_no_changes() {
    let options = CreateOptions::new().background(false);
    let mut bytes = past_the_checkpoint(&options);
    let at = value_at(&bytes, 150);
    bytes[at - 2000..at].copy_from_slice(&Random::new(1).bytes(2000));
    let memory = Memory::from_bytes(&bytes, ROOM).expect("memory");
    let db = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &options.opening).expect("it opens");
    assert!(db.damage().iter().any(|d| d.affects.is_unbounded()));
    let refused = db.put(b"new", b"value").expect_err("nothing is written");
    assert_eq!(refused.kind(), Kind::Corrupted, "{refused}");
    let refused = db.remove(&290u64.to_le_bytes());
    assert!(refused.is_err(), "nothing is removed");
    assert_eq!(
        db.get(&290u64.to_le_bytes()).expect("after the damage"),
        Some(value_of(290))
    );
    db.close().expect("it closes");
    assert!(memory.to_vec() == bytes, "the file is as it was");
}

#[test]
fn after_a_clean_close_nothing_lies_past_the_checkpoint() {
    for seed in 0..share(60) {
        let made = Made::draw(seed);
        let memory = Memory::from_bytes(&made.bytes, ROOM).expect("memory");
        let db = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &made.options.opening)
            .expect("it opens");
        db.put(b"the last", b"change").expect("a put");
        db.close().expect("it closes");
        let reader = HashReader::open_on(memory).expect("it opens");
        let properties: BTreeMap<_, _> = reader.inspect().into_iter().collect();
        assert_eq!(
            properties["position"], properties["replay_from"],
            "seed {seed}"
        );
    }
}

/// Another program cuts the file. Reading what is gone was the end of the process.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn a_page_of_the_file_that_is_gone_is_an_error_and_ends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cut.azh");
    let options = CreateOptions::new()
        .segment_size(64 << 10)
        .background(false);
    let db = HashDb::create(&path, &options).expect("a new store");
    let key = |i: u32| i.to_le_bytes();
    for i in 0..5000 {
        db.put(&key(i), &[i as u8; 200]).expect("a put");
    }
    let size = std::fs::metadata(&path).expect("its size").len();
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    // The end of an open file is free: what it keeps for going on when it is full.
    file.and_then(|file| file.set_len(size / 4))
        .expect("it is cut");
    let (mut right, mut failed) = (0, 0);
    for i in 0..5000 {
        match db.get(&key(i)) {
            Ok(found) => {
                assert_eq!(found, Some(vec![i as u8; 200]), "{i}");
                right += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupted, "{error}");
                failed += 1;
            }
        }
    }
    assert!(right > 100 && failed > 100, "{right} read, {failed} not");
    assert!(!db.damage().is_empty());
    let error = db.put(b"new", b"value").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted, "{error}");
}

/// A frame that begins with a page that cannot be read: zeros stand where it was, as in room that was never written.
#[test]
fn a_page_that_cannot_be_read_is_not_taken_for_blank_room() {
    let mut cases = 0;
    for file in 0..share(40) {
        let seed = 0xb1a + round_seed() + file;
        let mut random = Random::new(seed);
        let options = CreateOptions::new()
            .segment_size(*random.choose(&[16 << 10, 64 << 10, 1 << 20]))
            .background(false)
            .capacity(ROOM);
        let (mut made, memory, db) = Made::begin(seed, options);
        let put = |made: &mut Made, random: &mut Random| {
            let key = format!("key-{}", random.below(20)).into_bytes();
            let len = random.index(60);
            let value = random.bytes(len);
            db.put(&key, &value).expect("a put");
            made.remember(key, Some(value));
        };
        let mut page = None;
        for _ in 0..100_000 {
            put(&mut made, &mut random);
            page = end_of(&db);
            if page.is_some_and(|page| page.is_multiple_of(4096)) {
                break;
            }
        }
        let page = page.filter(|page| page.is_multiple_of(4096));
        let page = page.expect("a frame ends with a page");
        for _ in 0..=random.below(4) {
            put(&mut made, &mut random);
        }
        made.bytes = memory.to_vec();
        drop(db);
        let range = Some((page, page + 4096));
        let cost = cost(
            &made,
            "the page where the last frames stand",
            &made.bytes,
            range,
        );
        assert!(!cost.refused && cost.keys > 0, "seed {seed}: {cost:?}");
        cases += 1;
    }
    tried_at_least(cases, 40, "unreadable pages that begin with a frame");
}
