//! Damage that stays, in every region of a hash file: what it costs, key by key, against the acknowledged history.
//!
//! Files are drawn: 10 to 10,000 keys, values of 0 to 70,000 bytes, segments of 4 KiB to 1 MiB, compression, batches, clears,
//! checkpoints, compaction and reopening anywhere. A file is left by a process that was killed, or by a clean close. Then one
//! bit of a region is flipped, or a range of it can no longer be read, or a slot of the superblock is lost. A read must
//! give the newest acknowledged value or absence, or an error; a scan must report damage if it does not show all. Nothing
//! older, nothing removed, nothing absent that is there. A repair brings over nothing else without saying that it is in doubt.
//!
//! What one bit may cost is bounded: `AFFECTED_MAX` keys, in all but a stated share of the cases.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use azekura::format::superblock::{MAGIC, SLOT_SIZE};
use azekura::io::memory::Memory;
use azekura::io::over::Over;
use azekura::io::{Map, Storage};
use azekura::record::hash::{Compression, HashDb, HashReader, Options, repair};
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Edit, Engine, Error, Kind, Persistent, Reader, Result, Verbs};

const ROOM: u64 = 96 << 20;

/// Keys that one flipped bit may cost: a record, a batch, or a part of the index.
const AFFECTED_MAX: u64 = 64;

type Key = Vec<u8>;

/// A file, and what was acknowledged.
struct Made {
    seed: u64,
    bytes: Vec<u8>,
    /// Offset of the log's end.
    end: u64,
    options: Options,
    now: BTreeMap<Key, Option<Vec<u8>>>,
    once: BTreeMap<Key, BTreeSet<Vec<u8>>>,
    /// Whether it was closed.
    is_closed: bool,
}

impl Made {
    /// Of a store in which nothing was put yet.
    fn of(seed: u64, options: Options) -> Self {
        Self {
            seed,
            bytes: Vec::new(),
            end: 0,
            options,
            now: BTreeMap::new(),
            once: BTreeMap::new(),
            is_closed: false,
        }
    }

    /// Of 300 records, and closed.
    fn closed(seed: u64, options: Options) -> Self {
        let bytes = past_the_checkpoint(&options);
        let memory = Memory::from_bytes(&bytes, ROOM).expect("memory");
        let db = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &options).expect("it opens");
        db.close().expect("it closes");
        let records = (0..300).map(|key: u64| (key.to_le_bytes().to_vec(), Some(value_of(key))));
        Self {
            bytes: memory.to_vec(),
            now: records.collect(),
            is_closed: true,
            ..Self::of(seed, options)
        }
    }

    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let compression = *random.choose(&[Compression::None, Compression::Lz4, Compression::Zstd]);
        let options = Options {
            segment_size: *random.choose(&[4096, 16 << 10, 64 << 10, 1 << 20]),
            background: false,
            compression: if random.one_in(2) {
                Compression::None
            } else {
                compression
            },
            capacity: ROOM,
            // What is no property of the file.
            ..hash_options(&mut Random::new(seed ^ 0x0b5e), &Within::bytes(ROOM))
        };
        let keys = *random.choose(&[10, 40, 200, 1000, 10_000]);
        let ops = random.below(3 * keys).max(20);
        let long = *random.choose(&[30, 100, 600, 5000]);
        let memory = Memory::new(ROOM).expect("memory");
        let storage = || Arc::clone(&memory) as Arc<dyn Storage>;
        let mut db = HashDb::create_on(storage(), &options).expect("a new store");
        let mut made = Self::of(seed, options);
        made.is_closed = random.one_in(3);
        made.now.insert(b"never there".to_vec(), None);
        for _ in 0..ops {
            let key = format!("key-{}", random.below(keys)).into_bytes();
            match random.below(100) {
                0..70 => {
                    let mut len = random.index(long);
                    if random.one_in(400) {
                        len = *random.choose(&[0, 65_500, 70_000]);
                    }
                    let mut value = random.bytes(len / 2);
                    value.resize(len, b'x');
                    db.put(&key, &value).expect("a put");
                    made.remember(key, Some(value));
                }
                70..85 => {
                    db.remove(&key).expect("a removal");
                    made.remember(key, None);
                }
                85..93 => {
                    let keys: Vec<Key> = (0..3)
                        .map(|part| format!("key-{}", (random.below(keys) / 3) * 3 + part))
                        .map(String::into_bytes)
                        .collect();
                    let keys: BTreeSet<Key> = keys.into_iter().collect();
                    let value = random.bytes(20);
                    let shown: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                    let removes: Vec<bool> = keys.iter().map(|_| random.one_in(3)).collect();
                    let edit = |removes: &bool| match removes {
                        true => Edit::Remove,
                        false => Edit::Put(value.clone().into()),
                    };
                    db.update_many(&shown, &mut |_| removes.iter().map(edit).collect())
                        .expect("a batch");
                    for (key, removes) in keys.into_iter().zip(&removes) {
                        made.remember(key, (!removes).then(|| value.clone()));
                    }
                }
                93 if random.one_in(10) => {
                    db.clear().expect("a clear");
                    let keys: Vec<Key> = made.now.keys().cloned().collect();
                    for key in keys {
                        made.remember(key, None);
                    }
                }
                94 => db.checkpoint().expect("a checkpoint"),
                95 => db.sync(azekura::Durability::Power).expect("a sync"),
                96 if random.one_in(4) => db.compact(&mut |_, _| ()).expect("a compaction"),
                97 if random.one_in(4) => {
                    db.close().expect("it closes");
                    db = HashDb::open_on(storage(), &made.options).expect("it opens again");
                }
                98 if random.one_in(4) => {
                    // Killed, and opened by the next process.
                    let left = Memory::from_bytes(&memory.to_vec(), ROOM).expect("memory");
                    drop(HashDb::open_on(left, &made.options).expect("it recovers"));
                }
                _ => {}
            }
        }
        let end = db.log().end();
        let segment = db.log().geometry().offset_of(end.segment());
        made.end = segment + u64::from(end.offset().unwrap_or_default());
        if made.is_closed {
            db.close().expect("it closes");
            made.bytes = memory.to_vec();
        } else {
            made.bytes = memory.to_vec();
            drop(db);
        }
        made
    }

    fn remember(&mut self, key: Key, value: Option<Vec<u8>>) {
        if let Some(Some(before)) = self.now.insert(key.clone(), value) {
            self.once.entry(key).or_default().insert(before);
        }
    }

    fn open(&self, bytes: &[u8], unreadable: Option<(u64, u64)>) -> Result<HashDb> {
        HashDb::open_on(storage(bytes, unreadable), &self.options)
    }
}

/// A storage of which a range cannot be read: reading it is an error, and through the map it is zeros that are known to be
/// none, which is what a page that the system cannot bring in becomes.
#[derive(Debug)]
struct Unreadable {
    memory: Arc<Memory>,
    range: (u64, u64),
}

impl Over for Unreadable {
    fn below(&self) -> &dyn Storage {
        self.memory.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (from, to) = self.range;
        if offset < to && from < offset + buf.len() as u64 {
            return Err(
                Error::io("cannot read", std::io::Error::from_raw_os_error(5)).offset(offset),
            );
        }
        self.memory.read_at(offset, buf)
    }

    fn map(&self, capacity: u64) -> Result<Arc<Map>> {
        let map = self.memory.map(capacity)?;
        let (from, to) = self.range;
        let end = to.min(self.memory.size()?);
        if from < end {
            map.zero(from, end - from);
            map.note_unreadable(from, end - from);
        }
        Ok(map)
    }
}

fn storage(bytes: &[u8], unreadable: Option<(u64, u64)>) -> Arc<dyn Storage> {
    let memory = Memory::from_bytes(bytes, ROOM).expect("memory");
    match unreadable {
        Some(range) => Arc::new(Unreadable { memory, range }),
        None => memory,
    }
}

/// What a file cost that was damaged.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// It was not opened.
    refused: bool,
    /// Keys whose read is an error.
    keys: u64,
    /// Whether writes are refused.
    read_only: bool,
}

/// Reads every key and scans; panics at anything wrong.
fn judge(made: &Made, what: &str, reader: &dyn Reader) -> u64 {
    let seed = made.seed;
    let mut failed = 0;
    for (key, newest) in &made.now {
        match reader.get(key) {
            Ok(found) => assert_eq!(
                found.as_ref().map(Vec::len).zip(found.as_deref()),
                newest.as_ref().map(Vec::len).zip(newest.as_deref()),
                "seed {seed}, {what}: {:?}",
                String::from_utf8_lossy(key)
            ),
            Err(error) => {
                assert!(
                    matches!(error.kind(), Kind::Corrupted | Kind::Io),
                    "seed {seed}, {what}: {error}"
                );
                failed += 1;
            }
        }
    }
    let (mut shown, mut reported) = (BTreeSet::new(), 0);
    let ended = reader.scan_past(
        None,
        &mut |key, value| {
            assert_eq!(
                made.now.get(key).and_then(Option::as_deref),
                Some(value),
                "seed {seed}, {what}: a scan shows {:?}",
                String::from_utf8_lossy(key)
            );
            assert!(shown.insert(key.to_vec()), "seed {seed}, {what}: twice");
            ControlFlow::Continue(())
        },
        &mut |_| {
            reported += 1;
            Ok(())
        },
    );
    let present = made.now.values().filter(|value| value.is_some()).count();
    assert!(
        shown.len() == present || reported > 0 || ended.is_err(),
        "seed {seed}, {what}: a scan shows {} of {present} records and reports nothing",
        shown.len()
    );
    failed
}

/// Opens a damaged file for writing and for reading, and judges both.
fn cost(made: &Made, what: &str, bytes: &[u8], unreadable: Option<(u64, u64)>) -> Cost {
    let seed = made.seed;
    let by_reader = HashReader::open_on(storage(bytes, unreadable));
    if let Ok(reader) = &by_reader {
        let failed = judge(made, what, reader);
        if failed > 0 {
            let sound = reader.check(&mut |_, _| ()).is_ok_and(|r| r.is_sound());
            assert!(!sound, "seed {seed}, {what}: reads fail, and it is sound");
        }
    }
    let db = match made.open(bytes, unreadable) {
        Ok(db) => db,
        Err(error) => {
            let kinds = [Kind::Corrupted, Kind::Io];
            assert!(
                kinds.contains(&error.kind()),
                "seed {seed}, {what}: {error}"
            );
            return Cost {
                refused: true,
                ..Cost::default()
            };
        }
    };
    let keys = judge(made, what, &db);
    let read_only = db.damage().iter().any(|d| d.affects.is_unbounded());
    let written = db.put(b"new", b"value");
    assert!(
        !(read_only && written.is_ok()),
        "seed {seed}, {what}: written beside what is unknown"
    );
    if written.is_ok() {
        // What goes on after the damage is read back by the next process, with the same answers.
        let _checkpointed = db.checkpoint();
        assert_eq!(judge_beside(made, what, &db), keys, "seed {seed}, {what}");
        if db.close().is_ok()
            && unreadable.is_none()
            && let Ok(reopened) = by_reader
        {
            drop(reopened);
        }
    }
    Cost {
        refused: false,
        keys,
        read_only,
    }
}

/// As `judge`, with the one record more that was put.
fn judge_beside(made: &Made, what: &str, db: &HashDb) -> u64 {
    let mut failed = 0;
    for (key, newest) in &made.now {
        match db.get(key) {
            Ok(found) => assert_eq!(&found, newest, "seed {}, {what}, later", made.seed),
            Err(_) => failed += 1,
        }
    }
    failed
}

/// Where superblock, mark, segments' headers, frames, images and blank room are: a place in one of them.
fn place(bytes: &[u8], segment_size: u64, random: &mut Random) -> (&'static str, u64) {
    let size = bytes.len() as u64;
    let segments = (size - 16384) / segment_size;
    let segment = 16384 + random.below(segments.max(1)) * segment_size;
    let in_use: Vec<u64> = (0..segments)
        .map(|index| 16384 + index * segment_size)
        .filter(|at| bytes[*at as usize..].starts_with(b"azsg"))
        .collect();
    match random.below(10) {
        0 => ("superblock", random.below(2 * SLOT_SIZE)),
        1 => ("mark", 8192 + random.below(24)),
        2 | 3 if !in_use.is_empty() => ("header", random.choose(&in_use) + random.below(64)),
        4 => ("anywhere", random.below(size)),
        5 => ("segment", segment + random.below(segment_size)),
        _ => {
            // Where something stands.
            let mut at = random.below(size);
            for _ in 0..200 {
                if bytes[at as usize] != 0 {
                    break;
                }
                at = 16384 + random.below(size - 16384);
            }
            ("bytes", at)
        }
    }
}

#[test]
fn one_flipped_bit_anywhere_costs_what_stands_there() {
    let files = share(200);
    let (mut cases, mut refused, mut read_only, mut dear, mut unclosed) = (0, 0, 0, 0, 0);
    for file in 0..files {
        let seed = 0xde6 + round_seed() + file;
        let made = Made::draw(seed);
        let mut random = Random::new(!seed);
        for _ in 0..12 {
            let (region, at) = place(&made.bytes, made.options.segment_size, &mut random);
            let mut bytes = made.bytes.clone();
            let bit = random.below(8);
            bytes[at as usize] ^= 1 << bit;
            let what = format!(
                "bit {bit} at {at:#x} of {region}, closed {}",
                made.is_closed
            );
            let cost = cost(&made, &what, &bytes, None);
            cases += 1;
            unclosed += u64::from(!made.is_closed);
            refused += u64::from(cost.refused);
            read_only += u64::from(cost.read_only);
            dear += u64::from(cost.keys > AFFECTED_MAX);
            if region == "superblock" {
                assert!(!cost.refused && cost.keys == 0, "seed {seed}, {what}");
            }
        }
    }
    tried_at_least(cases, 2000, "single bits");
    tried_at_least(unclosed, 1000, "single bits of files of killed processes");
    tried(&format!(
        "{cases} bits, {refused} refused, {read_only} read-only, {dear} with more than {AFFECTED_MAX} keys"
    ));
    // A bit of the root of the checkpoint is flipped back. Long frames and clears are all that is unbounded.
    assert_eq!(refused, 0, "of {cases}");
    assert!(read_only * 100 <= cases, "{read_only} of {cases} read-only");
    assert!(dear * 50 <= cases, "{dear} of {cases} cost many keys");
}

#[test]
fn a_range_that_cannot_be_read_never_makes_an_older_value_the_newest() {
    let files = share(120);
    let (mut cases, mut refused, mut read_only) = (0, 0, 0);
    for file in 0..files {
        let seed = 0xe10 + round_seed() + file;
        let made = Made::draw(seed);
        let mut random = Random::new(!seed);
        for turn in 0..9 {
            let (region, at) = match turn {
                // What was written last, with nothing behind it.
                0 if !made.is_closed => ("tail", made.end - 1),
                _ => place(&made.bytes, made.options.segment_size, &mut random),
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
            cases += 1;
            refused += u64::from(cost.refused);
            read_only += u64::from(cost.read_only);
        }
    }
    tried_at_least(cases, 900, "unreadable ranges");
    tried(&format!(
        "{cases} ranges, {refused} refused, {read_only} read-only"
    ));
    // Only the root of the checkpoint, or both slots of the superblock, keep a file from being opened.
    assert!(refused * 12 <= cases, "{refused} of {cases} refused");
    assert!(read_only * 2 <= cases, "{read_only} of {cases} read-only");
}

#[test]
fn losing_a_slot_of_the_superblock_costs_nothing_but_the_slot() {
    let files = share(120);
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
        let db = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &made.options).expect("it opens");
        let bytes = memory.to_vec();
        assert!(bytes[..8] == MAGIC && bytes[4096..4104] == MAGIC);
        assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    }
    tried_at_least(cases, 900, "lost slots");
}

#[test]
fn a_repair_of_a_file_that_lost_a_superblock_slot_brings_all_over_and_doubts_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (damaged, target) = (folder.path().join("old.azh"), folder.path().join("new.azh"));
    let files = share(40);
    for file in 0..files {
        let made = Made::draw(0x51_07 + round_seed() + file);
        let at = (file % 2 * SLOT_SIZE) as usize;
        let mut bytes = made.bytes.clone();
        bytes[at..at + SLOT_SIZE as usize].fill(if file % 4 < 2 { 0 } else { 0xa5 });
        std::fs::write(&damaged, &bytes).expect("a file");
        let _gone = std::fs::remove_file(&target);
        let report = repair(&damaged, &target, &mut |_, _| ()).expect("a repair");
        assert_eq!((report.doubtful, report.losses), (0, 0), "{report:?}");
        let db = HashDb::open(&target, &made.options).expect("what was repaired opens");
        assert_eq!(judge(&made, "repaired", &db), 0);
    }
    tried_at_least(files, 40, "repairs of files without a slot");
}

#[test]
fn a_repair_after_one_flipped_bit_doubts_what_stood_there() {
    let files = share(60);
    let folder = tempfile::tempdir().expect("a folder");
    let (damaged, target) = (folder.path().join("old.azh"), folder.path().join("new.azh"));
    let (mut cases, mut widely) = (0, 0);
    for file in 0..files {
        let seed = 0x4e9 + round_seed() + file;
        let made = Made::draw(seed);
        let mut random = Random::new(!seed);
        for _ in 0..3 {
            let (region, at) = place(&made.bytes, made.options.segment_size, &mut random);
            let mut bytes = made.bytes.clone();
            bytes[at as usize] ^= 1 << random.below(8);
            std::fs::write(&damaged, &bytes).expect("a file");
            let _gone = std::fs::remove_file(&target);
            let report = repair(&damaged, &target, &mut |_, _| ()).expect("a repair");
            let db = HashDb::open(&target, &made.options).expect("what was repaired opens");
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
            // Without the root nothing says which records were there.
            let has_root = !report.lost.iter().any(|line| line.contains("the root of"));
            widely += u64::from(has_root && report.doubtful > AFFECTED_MAX);
        }
    }
    tried_at_least(cases, 150, "repairs");
    tried(&format!(
        "{cases} repairs, {widely} with more than {AFFECTED_MAX} records in doubt"
    ));
    assert!(
        widely * 12 <= cases,
        "{widely} of {cases} doubt many records"
    );
}

fn value_of(key: u64) -> Vec<u8> {
    Random::new(key).bytes(64)
}

/// A file of 300 records that no checkpoint states, of a process that was killed.
fn past_the_checkpoint(options: &Options) -> Vec<u8> {
    let memory = Memory::new(ROOM).expect("memory");
    let db = HashDb::create_on(Arc::clone(&memory) as Arc<_>, options).expect("a new store");
    for key in 0..300u64 {
        db.put(&key.to_le_bytes(), &value_of(key)).expect("a put");
    }
    memory.to_vec()
}

/// Where the value of a key stands in such a file.
fn value_at(bytes: &[u8], key: u64) -> usize {
    let wanted = value_of(key);
    let at = bytes.windows(64).position(|found| found == wanted);
    at.expect("values are stored as they are")
}

/// The frames past a checkpoint are the only place that states a change: where one cannot be read, each record before it may
/// have been changed there. A frame with one wrong bit can be rebuilt by its checksum, so only its own record is in doubt.
#[test]
fn a_repair_rebuilds_a_frame_of_one_wrong_bit_and_doubts_no_other_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let (damaged, target) = (folder.path().join("old.azh"), folder.path().join("new.azh"));
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
            std::fs::write(&damaged, &bytes).expect("a file");
            let _gone = std::fs::remove_file(&target);
            let report = repair(&damaged, &target, &mut |_, _| ()).expect("a repair");
            assert_eq!(
                (report.recovered, report.doubtful),
                (300, 1),
                "{key}: {report:?}"
            );
            let db = HashDb::open(&target, &options).expect("what was repaired opens");
            for key in 0..300u64 {
                let found = db.get(&key.to_le_bytes()).expect("a sound file");
                assert_eq!(found, Some(value_of(key)));
            }
        }
    }
}

/// A range that another program overwrote can be read, so only what the log states shows that a part of it is lost.
#[test]
fn a_file_whose_log_was_overwritten_in_part_takes_no_changes() {
    let options = Options {
        background: false,
        ..Options::default()
    };
    let mut bytes = past_the_checkpoint(&options);
    let at = value_at(&bytes, 150);
    bytes[at - 2000..at].copy_from_slice(&Random::new(1).bytes(2000));
    let memory = Memory::from_bytes(&bytes, ROOM).expect("memory");
    let db = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &options).expect("it opens");
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
        let db = HashDb::open_on(Arc::clone(&memory) as Arc<_>, &made.options).expect("it opens");
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

/// Bytes of images and roots: they stand in segments without a header.
fn bytes_of_images(made: &Made) -> Vec<u64> {
    let size = made.options.segment_size as usize;
    let segments = made.bytes[16384..].chunks(size).enumerate();
    let images = segments.filter(|(_, bytes)| !bytes.starts_with(b"azsg"));
    let held = images.flat_map(|(index, bytes)| {
        let held = (0..bytes.len()).filter(|at| bytes[*at] != 0);
        held.map(move |at| (16384 + index * size + at) as u64)
    });
    held.collect()
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
        let held = bytes_of_images(&made);
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

/// Another program cuts the file. Reading what is gone was the end of the process.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn a_page_of_the_file_that_is_gone_is_an_error_and_ends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cut.azh");
    let options = Options {
        segment_size: 64 << 10,
        background: false,
        ..Options::default()
    };
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
    let files = share(40);
    for file in 0..files {
        let seed = 0xb1a + round_seed() + file;
        let mut random = Random::new(seed);
        let options = Options {
            segment_size: *random.choose(&[16 << 10, 64 << 10, 1 << 20]),
            background: false,
            capacity: ROOM,
            ..Options::default()
        };
        let memory = Memory::new(ROOM).expect("memory");
        let on = Arc::clone(&memory) as Arc<dyn Storage>;
        let db = HashDb::create_on(on, &options).expect("a new store");
        let mut made = Made::of(seed, options);
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
            let end = db.log().end();
            let at = db.log().geometry().offset_of(end.segment());
            page = end.offset().map(|offset| at + u64::from(offset));
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
    }
    tried_at_least(files, 40, "unreadable pages that begin with a frame");
}

/// Of a batch whose one bit is wrong, what verifies by itself is read: also that a record was removed.
#[test]
fn every_bit_of_the_last_batch_costs_one_record_of_it() {
    let options = Options {
        segment_size: 16 << 10,
        background: false,
        capacity: ROOM,
        ..Options::default()
    };
    let memory = Memory::new(ROOM).expect("memory");
    let on = Arc::clone(&memory) as Arc<dyn Storage>;
    let db = HashDb::create_on(on, &options).expect("a new store");
    let mut made = Made::of(0, options);
    for key in [b"one", b"two", b"few"] {
        db.put(key, b"older").expect("a put");
        made.remember(key.to_vec(), Some(b"older".to_vec()));
    }
    let place = |db: &HashDb| {
        let end = db.log().end();
        let at = db.log().geometry().offset_of(end.segment());
        at + u64::from(end.offset().expect("an open segment"))
    };
    let from = place(&db);
    db.update_many(&[b"one", b"two"], &mut |_| {
        vec![Edit::Remove, Edit::Put(b"newer".into())]
    })
    .expect("a batch");
    let to = place(&db);
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
    tried(&format!("{} bits of a batch", (to - from) * 8));
}
