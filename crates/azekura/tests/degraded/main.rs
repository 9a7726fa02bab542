//! Damage that stays, in every region of a hash file: what it costs, key by key, against the acknowledged history.
//!
//! Files are drawn: 10 to 10,000 keys, values of 0 to 70,000 bytes, segments of 4 KiB to 1 MiB, compression, batches, clears,
//! checkpoints, compaction and reopening anywhere. A file is left by a process that was killed, or by a clean close. Then one
//! bit of a region is flipped, or a range of it can no longer be read, or a slot of the superblock is lost. A read must
//! give the newest acknowledged value or absence, or an error; a scan must report damage if it does not show all. Nothing
//! older, nothing removed, nothing absent that is there. A repair brings over nothing else without saying that it is in doubt.
//!
//! What one bit may cost is bounded: `AFFECTED_MAX` keys, in all but a stated share of the cases.
//!
//! | module | damage |
//! |---|---|
//! | `bits` | one wrong bit |
//! | `regions` | ranges, slots of the superblock, parts that are cut off or overwritten |
//! | `stands` | what a range may cost by what stands in it |
//! | `cut` | files that are cut off, and bytes past the end of a closed one |
//! | `ends` | blank room, holes and end frames that are not to be believed |
//! | `heads` | what a long frame's head must not be taken to explain |
//! | `epochs` | headers and links of segments, in files that were killed, opened and killed again |

mod bits;
mod cut;
mod ends;
mod epochs;
mod heads;
mod regions;
mod stands;
mod twice;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use azekura::format::superblock::SLOT_SIZE;
use azekura::io::memory::Memory;
use azekura::io::over::Over;
use azekura::io::{Map, Storage};
use azekura::record::hash::{Compression, CreateOptions, HashDb, HashReader, RepairReport, repair};
use azekura::testkit::Random;
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::suite::demand;
use azekura::{Edit, Engine, Error, Kind, Persistent, Reader, Result, Verbs};

const ROOM: u64 = 96 << 20;

/// Keys that one flipped bit may cost: a record, a batch, or a part of the index.
const AFFECTED_MAX: u64 = 64;

type Key = Vec<u8>;

/// Of a store without a worker, in segments of this size.
fn of_segments(segment_size: u64) -> CreateOptions {
    CreateOptions::new()
        .segment_size(segment_size)
        .background(false)
        .capacity(ROOM)
}

/// Where damaged files are repaired, one after the other.
struct Repairs {
    damaged: PathBuf,
    target: PathBuf,
    _folder: tempfile::TempDir,
}

impl Repairs {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            damaged: folder.path().join("old.azh"),
            target: folder.path().join("new.azh"),
            _folder: folder,
        }
    }

    /// Repairs a file of these bytes; what comes out stands at `target`.
    fn repair(&self, bytes: &[u8]) -> RepairReport {
        std::fs::write(&self.damaged, bytes).expect("a file");
        let _gone = std::fs::remove_file(&self.target);
        repair(&self.damaged, &self.target, &mut |_, _| ()).expect("a repair")
    }
}

/// A file, and what was acknowledged.
struct Made {
    seed: u64,
    bytes: Vec<u8>,
    /// Offset of the log's end.
    end: u64,
    options: CreateOptions,
    now: BTreeMap<Key, Option<Vec<u8>>>,
    once: BTreeMap<Key, BTreeSet<Vec<u8>>>,
    /// Whether it was closed.
    is_closed: bool,
    /// How often it was killed and opened before that.
    kills: u64,
}

impl Made {
    /// Of a store in which nothing was put yet.
    fn of(seed: u64, options: CreateOptions) -> Self {
        Self {
            seed,
            bytes: Vec::new(),
            end: 0,
            options,
            now: BTreeMap::new(),
            once: BTreeMap::new(),
            is_closed: false,
            kills: 0,
        }
    }

    /// With the store in which nothing was put yet, and what that stands on.
    fn begin(seed: u64, options: CreateOptions) -> (Self, Arc<Memory>, HashDb) {
        let memory = Memory::new(ROOM).expect("memory");
        let storage = Arc::clone(&memory) as Arc<dyn Storage>;
        let db = HashDb::create_on(storage, &options).expect("a new store");
        (Self::of(seed, options), memory, db)
    }

    /// Of 300 records, and closed.
    fn closed(seed: u64, options: CreateOptions) -> Self {
        let bytes = past_the_checkpoint(&options);
        let memory = Memory::from_bytes(&bytes, ROOM).expect("memory");
        let db =
            HashDb::open_on(Arc::clone(&memory) as Arc<_>, &options.opening).expect("it opens");
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
        let options = hash_options(&mut Random::new(seed ^ 0x0b5e), &Within::bytes(ROOM))
            .segment_size(*random.choose(&[4096, 16 << 10, 64 << 10, 1 << 20]))
            .background(false)
            .compression(if random.one_in(2) {
                Compression::None
            } else {
                compression
            })
            .capacity(ROOM);
        let keys = *random.choose(&[10, 40, 200, 1000, 10_000]);
        let ops = random.below(3 * keys).max(20);
        let long = *random.choose(&[30, 100, 600, 5000]);
        let on = |memory: &Arc<Memory>| Arc::clone(memory) as Arc<dyn Storage>;
        let (mut made, mut memory, mut db) = Self::begin(seed, options);
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
                    db = HashDb::open_on(on(&memory), &made.options.opening)
                        .expect("it opens again");
                }
                98 if random.one_in(4) => {
                    // Killed, and opened by the next process, which continues.
                    memory = Memory::from_bytes(&memory.to_vec(), ROOM).expect("memory");
                    db = HashDb::open_on(on(&memory), &made.options.opening).expect("it recovers");
                    made.kills += 1;
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
        HashDb::open_on(storage(bytes, unreadable), &self.options.opening)
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
            self.memory.discard(from, end - from)?;
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
#[derive(Clone, Debug, Default)]
struct Cost {
    /// It was not opened.
    refused: bool,
    /// How many keys gave an error.
    keys: u64,
    /// Which, read by a writer or by a reader.
    failed: BTreeSet<Key>,
    /// Whether writes are refused.
    read_only: bool,
}

/// Reads every key and scans; panics at anything wrong. How many keys gave an error.
fn judge(made: &Made, what: &str, reader: &dyn Reader) -> u64 {
    failing(made, what, reader).len() as u64
}

/// As `judge`: the keys that gave an error.
fn failing(made: &Made, what: &str, reader: &dyn Reader) -> BTreeSet<Key> {
    let seed = made.seed;
    let mut failed = BTreeSet::new();
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
                failed.insert(key.clone());
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
    let mut failed = BTreeSet::new();
    if let Ok(reader) = &by_reader {
        failed = failing(made, what, reader);
        if !failed.is_empty() {
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
    let of_writer = failing(made, what, &db);
    let keys = of_writer.len() as u64;
    failed.extend(of_writer);
    let read_only = db.damage().iter().any(|d| d.affects.is_unbounded());
    let written = db.put(b"new", b"value");
    assert!(
        !(read_only && written.is_ok()),
        "seed {seed}, {what}: written next to what is unknown"
    );
    if written.is_ok() {
        // What continues after the damage is read back by the next process, with the same answers.
        let _checkpointed = db.checkpoint();
        assert_eq!(
            judge_with_unknown(made, what, &db),
            keys,
            "seed {seed}, {what}"
        );
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
        failed,
        read_only,
    }
}

/// As `judge`, with the one record more that was put.
fn judge_with_unknown(made: &Made, what: &str, db: &HashDb) -> u64 {
    let mut failed = 0;
    for (key, newest) in &made.now {
        match db.get(key) {
            Ok(found) => assert_eq!(&found, newest, "seed {}, {what}, later", made.seed),
            Err(_) => failed += 1,
        }
    }
    failed
}

/// What is damaged by turns.
const REGIONS: [&str; 10] = [
    "superblock",
    "mark",
    "header",
    "header",
    "anywhere",
    "segment",
    "bytes",
    "bytes",
    "bytes",
    "index",
];

/// Draws places to be damaged, of one region after the other, and counts them.
#[derive(Default)]
struct Regions {
    turn: usize,
    counts: BTreeMap<&'static str, u64>,
}

impl Regions {
    /// A place in the superblock, the mark, a segment's header, anywhere, in any segment, where something stands, or in the root
    /// of a checkpoint or an image of the index.
    fn place(&mut self, made: &Made, random: &mut Random) -> (&'static str, u64) {
        let (bytes, segment_size) = (&made.bytes, made.options.segment_size);
        let size = bytes.len() as u64;
        let segments = (size - 16384) / segment_size;
        let segment = 16384 + random.below(segments.max(1)) * segment_size;
        let in_use: Vec<u64> = headers(bytes, segment_size).collect();
        let mut region = REGIONS[self.turn % REGIONS.len()];
        self.turn += 1;
        let place = match region {
            "superblock" => random.below(2 * SLOT_SIZE),
            "mark" => 8192 + random.below(24),
            "header" if !in_use.is_empty() => random.choose(&in_use) + random.below(64),
            "anywhere" => random.below(size),
            "segment" => segment + random.below(segment_size),
            "index" if !bytes_of_index(made).is_empty() => *random.choose(&bytes_of_index(made)),
            _ => {
                region = "bytes";
                // Where something stands.
                let mut at = random.below(size);
                for _ in 0..200 {
                    if bytes[at as usize] != 0 {
                        break;
                    }
                    at = 16384 + random.below(size - 16384);
                }
                at
            }
        };
        *self.counts.entry(region).or_default() += 1;
        (region, place)
    }

    /// One wrong bit at a drawn place: the region, the byte, the bit in it, and the file.
    fn flip(&mut self, made: &Made, random: &mut Random) -> (&'static str, u64, u64, Vec<u8>) {
        let (region, at) = self.place(made, random);
        let bit = random.below(8);
        let mut bytes = made.bytes.clone();
        bytes[at as usize] ^= 1 << bit;
        (region, at, bit, bytes)
    }

    /// Panics unless each region had its turns of so many cases.
    fn demand(&self, cases: u64) {
        for region in [
            "superblock",
            "mark",
            "header",
            "anywhere",
            "segment",
            "bytes",
            "index",
        ] {
            let turns = REGIONS.iter().filter(|of| **of == region).count() as u64;
            // Of the files of killed processes some have no checkpoint.
            let share = if region == "index" { 4 } else { 9 };
            let least = (cases * turns * share / 100).max(1);
            let count = self.counts.get(region).copied().unwrap_or_default();
            demand(count, least, &format!("places of the region: {region}"));
        }
    }
}

/// Where the log of a store ends in its file; `None`: the last segment is closed.
fn end_of(db: &HashDb) -> Option<u64> {
    let end = db.log().end();
    let segment = db.log().geometry().offset_of(end.segment());
    end.offset().map(|offset| segment + u64::from(offset))
}

/// Bytes of images and roots: they stand in segments without a header.
fn bytes_of_index(made: &Made) -> Vec<u64> {
    let size = made.options.segment_size as usize;
    let segments = made.bytes[16384..].chunks(size).enumerate();
    let images = segments.filter(|(_, bytes)| !bytes.starts_with(b"azsg"));
    let held = images.flat_map(|(index, bytes)| {
        let held = (0..bytes.len()).filter(|at| bytes[*at] != 0);
        held.map(move |at| (16384 + index * size + at) as u64)
    });
    held.collect()
}

/// Where segments of the log begin.
fn headers(bytes: &[u8], segment_size: u64) -> impl Iterator<Item = u64> {
    (16384..bytes.len() as u64)
        .step_by(segment_size as usize)
        .filter(|at| bytes[*at as usize..].starts_with(b"azsg"))
}

fn value_of(key: u64) -> Vec<u8> {
    Random::new(key).bytes(64)
}

/// A file of 300 records that no checkpoint states, of a process that was killed.
fn past_the_checkpoint(options: &CreateOptions) -> Vec<u8> {
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
