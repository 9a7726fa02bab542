//! Files that format version 1 wrote are opened, and hold what they held; and its bytes are as they were.
//!
//! The fixtures lie in `fixtures/hash/`, each with a listing of its records (key and value in hexadecimal, a
//! line each, in order of keys). Copies are opened: a fixture is never written again. They are made
//! by `AZEKURA_WRITE_FIXTURES=1 cargo test --test formats`, which refuses to replace one. Formats that differ,
//! one way each, prove that it is seen.
//!
//! Snapshots lie in `fixtures/snapshot/`, with when a record expires as a third column.
//!
//! Which bytes mean what is described in `format/` and in the layouts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::io::over::Over;
use azekura::record::hash::{Compression, CreateOptions, HashDb, HashReader};
use azekura::record::memory::snapshot::layout::{Block, Head, end_mark};
use azekura::record::memory::snapshot::{Snapshot, save};
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::testkit::fixture::{Difference, Fixtures, NEWER, REORDERED, demand_seen, hex};
use azekura::testkit::suite::tried_at_least;
use azekura::{Edit, Engine, Persistent, Reader};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const FIXTURES: Fixtures = Fixtures {
    engine: "hash",
    extension: "azh",
};
const SNAPSHOT_FIXTURES: Fixtures = Fixtures {
    engine: "snapshot",
    extension: "azs",
};

fn options(compression: Compression) -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .compression(compression)
        .capacity(1 << 30)
}

const NAMES: [&str; 10] = [
    "empty",
    "small",
    "checkpointed",
    "unclean",
    "cleaned",
    "lz4",
    "zstd",
    "batches",
    "large",
    "long",
];

fn put_some(db: &HashDb, count: u32, step: u32) {
    for number in 0..count {
        let key = format!("key-{}", number * step % 97);
        let value = format!("value {number} ").repeat(1 + number as usize % 9);
        db.put(key.as_bytes(), value.as_bytes()).expect("a put");
        if number % 7 == 3 {
            db.remove(format!("key-{}", number / 2).as_bytes())
                .expect("a removal");
        }
    }
    db.put(b"", b"empty key").expect("a put");
    db.put(b"empty value", b"").expect("a put");
}

fn put_batches(db: &HashDb) {
    for number in 0..10u8 {
        let keys: [&[u8]; 3] = [b"one", b"two", &[number]];
        db.update_many(&keys, &mut |_| {
            vec![
                Edit::Put(vec![number; 30].into()),
                if number % 2 == 0 {
                    Edit::Put(vec![number; 5].into())
                } else {
                    Edit::Remove
                },
                Edit::Put(vec![number; 800].into()),
            ]
        })
        .expect("a batch");
    }
}

/// The mark of those that have one.
const MARK: &[u8] = b"the last mark";

/// A key that only a frame of the long form takes.
const LONG_KEY: [u8; 300] = [b'k'; 300];

/// The store of this name, made in `file`, and its records; closed but for "unclean" and "long".
fn make(name: &str, file: &Path) -> State {
    let compression = match name {
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::None,
    };
    let db = HashDb::create(file, &options(compression)).expect("a new file");
    match name {
        "empty" => {}
        "small" => put_some(&db, 12, 1),
        "checkpointed" => {
            put_some(&db, 80, 3);
            db.set_mark(MARK).expect("a mark");
            db.checkpoint().expect("a checkpoint");
            put_some(&db, 9, 5);
        }
        "cleaned" => {
            put_some(&db, 400, 3);
            db.compact(&mut |_, _| ()).expect("a compaction");
            put_some(&db, 20, 5);
        }
        "batches" => put_batches(&db),
        "large" => {
            db.put(b"large", &vec![b'l'; 9000]).expect("a put");
            db.put(b"half", &vec![b'h'; 2040]).expect("a put");
            db.put(b"after", b"x").expect("a put");
        }
        "unclean" => {
            put_some(&db, 60, 3);
            db.set_mark(b"an older one").expect("a mark");
            db.checkpoint().expect("a checkpoint");
            put_batches(&db);
            let mut same = |_: &[Option<&[u8]>]| vec![Edit::put(&[9; 30])];
            db.update_many_with_mark(&[b"one"], &mut same, MARK)
                .expect("a batch");
        }
        "long" => {
            put_some(&db, 12, 1);
            db.put(&LONG_KEY, &[b'v'; 500]).expect("a put");
            db.put(b"after", b"x").expect("a put");
        }
        _ => put_some(&db, 60, 3),
    }
    let state = contents(&db).expect("a scan");
    if matches!(name, "unclean" | "long") {
        let copy = std::fs::read(file).expect("its bytes, as a killed process leaves them");
        db.close().expect("it closes");
        std::fs::write(file, copy).expect("the file is put back");
    } else {
        db.close().expect("it closes");
    }
    state
}

fn contents(reader: &dyn Reader) -> Result<State, String> {
    let mut state = State::new();
    let scanned = reader.scan(None, &mut |key, value| {
        state.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    });
    scanned.map_err(|error| error.to_string())?;
    Ok(state)
}

fn listing(state: &State) -> String {
    let lines = state
        .iter()
        .map(|(key, value)| [&hex(key), " ", &hex(value), "\n"].concat());
    lines.collect()
}

#[test]
fn files_of_version_1_hold_what_was_put_there() {
    FIXTURES.write(&NAMES, |name, file| listing(&make(name, file)));
    let mut records = 0;
    for name in NAMES {
        let (bytes, list) = FIXTURES.read(name);
        holds(&bytes, &list).unwrap_or_else(|what| panic!("{name}: {what}"));
        records += list.lines().count();
    }
    let what = format!("records of {} fixtures", NAMES.len());
    tried_at_least(records as u64, 397, &what);
    assert!(records >= 397, "{records}");
}

/// A storage under the system that the writer of the fixture `long` was killed under: only threads died, and no power was lost.
#[derive(Debug)]
struct Killed(Arc<Memory>);

impl Over for Killed {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn boot_id(&self) -> [u8; 16] {
        // As the superblock states it, after its 32 bytes of head.
        let mut id = [0; 16];
        self.0.read_at(32 + 24, &mut id).expect("a superblock");
        id
    }
}

/// A long frame has a sum of its head, which files of the first programs do not have.
#[test]
fn damage_within_a_long_record_of_version_1_costs_that_record() {
    let (mut bytes, list) = FIXTURES.read("long");
    let value = bytes.windows(500).position(|of| of == [b'v'; 500]);
    let value = value.expect("the value of the long record");
    bytes[value + 100..value + 200].fill(0);
    let options = options(Compression::None);
    let memory = Memory::from_bytes(&bytes, options.opening.capacity).expect("memory");
    let db = HashDb::open_on(Arc::new(Killed(memory)), &options.opening).expect("it opens");
    let error = db.get(&LONG_KEY).expect_err("its value is lost");
    assert_eq!(error.kind(), azekura::Kind::Corrupted, "{error}");
    let mut read = 0;
    for line in list.lines() {
        let (key, value) = line.split_once(' ').expect("a listing");
        if key != hex(&LONG_KEY) {
            let key: Vec<u8> = (0..key.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&key[at..at + 2], 16).expect("hexadecimal"))
                .collect();
            let found = db.get(&key).expect("no other is affected");
            assert_eq!(found.as_deref().map(hex).as_deref(), Some(value));
            read += 1;
        }
    }
    assert!(read > 10, "{read}");
    db.put(&LONG_KEY, b"again").expect_err("it cannot be read");
    db.put(b"another", b"one").expect("writes continue");
    db.close().expect("it closes");
}

#[test]
fn marks_of_version_1_are_found_in_root_and_log() {
    for (name, mark) in [
        ("checkpointed", Some(MARK)),
        ("unclean", Some(MARK)),
        ("small", None),
    ] {
        let memory = Memory::from_bytes(&FIXTURES.read(name).0, 1 << 26).expect("memory");
        let storage = Arc::new(Killed(memory));
        let db = HashDb::open_on(storage, &options(Compression::None).opening).expect("it opens");
        assert_eq!(db.mark().as_deref(), mark, "{name}");
    }
}

/// What is wrong with a file of these bytes, if it should hold these records and continue.
fn holds(bytes: &[u8], list: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("copy");
    std::fs::write(&file, bytes).expect("a copy");
    let error = |error: azekura::Error| error.to_string();
    let same = |how: &str, reader: &dyn Reader| {
        if listing(&contents(reader)?) == list {
            Ok(())
        } else {
            Err(format!("{how} it holds other records"))
        }
    };
    same("for reading", &HashReader::open(&file).map_err(error)?)?;
    let db = HashDb::open(&file, &options(Compression::None).opening).map_err(error)?;
    same("for writing", &db)?;
    if db.count() != list.lines().count() as u64 {
        return Err(format!("it counts {}", db.count()));
    }
    let report = db.check(&mut |_, _| ()).map_err(error)?;
    if !report.is_sound() {
        return Err(format!("it is damaged: {:?}", report.damage));
    }
    db.put(b"new", b"record").map_err(error)?;
    db.close().map_err(error)?;
    let db = HashDb::open(&file, &options(Compression::None).opening).map_err(error)?;
    match db.get(b"new").map_err(error)? {
        Some(value) if value == b"record" => Ok(()),
        other => Err(format!("a new record came back as {other:?}")),
    }
}

/// Does `change` to each segment that begins with a header.
fn each_segment(bytes: &mut [u8], change: impl Fn(&mut [u8])) {
    let segments = bytes[16_384..].chunks_mut(4096);
    segments
        .filter(|segment| segment.starts_with(b"azsg"))
        .for_each(change);
}

#[test]
fn a_format_that_differs_is_seen() {
    let differences: [Difference; 5] = [
        NEWER,
        REORDERED,
        ("links elsewhere", |bytes| {
            each_segment(bytes, |segment| segment[24..32].rotate_left(4));
        }),
        ("frames from another offset on", |bytes| {
            each_segment(bytes, |segment| segment[64..].rotate_right(8));
        }),
        ("kinds by other numbers", |bytes| {
            each_segment(bytes, |segment| segment[64 + 4] ^= 6);
        }),
    ];
    demand_seen(&differences, &FIXTURES.read("unclean"), holds);
    let (bytes, _) = FIXTURES.read("small");
    let (_, list) = FIXTURES.read("checkpointed");
    let seen = holds(&bytes, &list).expect_err("records are compared");
    assert!(seen.contains("other records"), "{seen}");
    // An engine that puts the value before the key.
    let bytes = bytes_of(|db| db.put(b"value", b"key").expect("a put"));
    assert_ne!(hex(&bytes[FIRST..FIRST + 24]), GOLDEN_PUT);
}

/// In memory, seeds and boot ids are fixed: so is every byte.
fn bytes_of(act: impl FnOnce(&HashDb)) -> Vec<u8> {
    let memory = Memory::new(1 << 20).expect("memory");
    let options = options(Compression::None).capacity(1 << 20);
    let db = HashDb::create_on(Arc::clone(&memory) as Arc<_>, &options).expect("a new store");
    act(&db);
    let bytes = memory.to_vec();
    drop(db);
    bytes
}

/// Where the first frame stands: after the superblock, the control block and the segment's header.
const FIRST: usize = 16_384 + 64;

#[test]
fn the_bytes_of_a_put_are_as_they_were() {
    let bytes = bytes_of(|db| db.put(b"key", b"value").expect("a put"));
    assert_eq!(hex(&bytes[16_384..16_384 + 32]), GOLDEN_SEGMENT);
    assert_eq!(hex(&bytes[FIRST..FIRST + 24]), GOLDEN_PUT);
}

#[test]
fn the_bytes_of_a_batch_are_as_they_were() {
    let bytes = bytes_of(|db| {
        db.update_many(&[b"a", b"b"], &mut |_| {
            vec![Edit::put(b"1"), Edit::put(b"22")]
        })
        .expect("a batch");
    });
    assert_eq!(hex(&bytes[FIRST..FIRST + 48]), GOLDEN_BATCH);
}

#[test]
fn the_bytes_of_a_mark_are_as_they_were() {
    let bytes = bytes_of(|db| {
        db.set_mark(b"mark").expect("a mark");
        db.clear_with_mark(b"last").expect("a clear");
    });
    assert_eq!(hex(&bytes[FIRST..FIRST + 32]), GOLDEN_MARK);
}

#[test]
fn the_bytes_of_a_link_are_as_they_were() {
    let bytes = bytes_of(|db| {
        for number in 0..2 {
            db.put(&[number], &[number; 3000]).expect("a put");
        }
    });
    assert_eq!(hex(&bytes[16_384 + 24..16_384 + 32]), GOLDEN_LINK);
}

const GOLDEN_MARK: &str = "f0c3345f0c0004006d61726b00000000e4770f27070004006c61737400000000";
const GOLDEN_LINK: &str = "02000000689598c7";
const GOLDEN_SEGMENT: &str = "617a7367876c9c8f000000000100000001000000000000000000000000000000";
const GOLDEN_PUT: &str = "fb522b77030305006b657976616c75650000000000000000";
const GOLDEN_BATCH: &str = "dc4d75ef1da210740200000020000000df0e0d094301010061310000000000006641de8b430102006232320000000000";

const SNAPSHOTS: [&str; 4] = ["empty", "tree", "hash", "expiring"];

/// A snapshot of records that expire, from its parts, so that every byte is fixed.
fn expiring() -> Vec<u8> {
    let head = Head {
        salt: 0x0123_4567_89ab_cdef,
        engine: "cache".into(),
        order: None,
    };
    let (mut bytes, mut sum) = (head.slot(), 0);
    let mut block = Block::default();
    let records: [(&[u8], &[u8], Option<u64>); 3] = [
        (b"key", b"value", None),
        (b"", b"", Some(1_800_000_000_000)),
        (b"late", b"x", Some(u64::MAX)),
    ];
    for (number, (key, value, expires_ms)) in records.into_iter().enumerate() {
        block.push(key, value, expires_ms).expect("a record");
        if number > 0 {
            let number = number as u64 - 1;
            bytes.extend_from_slice(block.seal(head.seed(), number, &mut sum));
            block.clear(0);
        }
    }
    bytes.extend(end_mark(head.seed(), 2, 3, sum));
    bytes
}

/// The snapshot of this name, made in `file`.
fn make_snapshot(name: &str, file: &Path) {
    let (hash, tree) = (StdHashDb::new(), StdTreeDb::new());
    let source: &dyn Engine = match name {
        "expiring" => {
            std::fs::write(file, expiring()).expect("a file");
            return;
        }
        "hash" => &hash,
        _ => &tree,
    };
    if name != "empty" {
        for number in 0..60u32 {
            let key = format!("key-{number}");
            let value = format!("value {number} ").repeat(number as usize % 9);
            let puts: [(&[u8], &[u8]); 1] = [(key.as_bytes(), value.as_bytes())];
            source.put_many(&puts).expect("a put");
        }
        let more: [(&[u8], &[u8]); 2] = [(b"", b"empty key"), (b"large", &[b'l'; 5000])];
        source.put_many(&more).expect("puts");
    }
    let progress = &mut |_, _| ControlFlow::Continue(());
    save(source, file, progress)
        .expect("a snapshot")
        .expect("whole");
}

/// All records of a snapshot, verified as a whole, in order of keys.
fn listing_of_snapshot(file: &Path) -> Result<String, String> {
    let snapshot = Snapshot::open(file).map_err(|error| error.to_string())?;
    let mut lines = BTreeMap::new();
    let read = snapshot.read(&mut |key, value, expires_ms| {
        let at = expires_ms.map_or_else(String::new, |at| format!(" {at}"));
        let line = [&hex(key), " ", &hex(value), &at, "\n"].concat();
        lines.insert(key.to_vec(), line);
        ControlFlow::Continue(())
    });
    read.map_err(|error| error.to_string())?;
    Ok(lines.into_values().collect())
}

#[test]
fn snapshots_of_version_1_hold_what_was_saved_there() {
    SNAPSHOT_FIXTURES.write(&SNAPSHOTS, |name, file| {
        make_snapshot(name, file);
        listing_of_snapshot(file).expect("it is whole")
    });
    let mut records = 0;
    for name in SNAPSHOTS {
        let file = SNAPSHOT_FIXTURES.file(name);
        let (_, list) = SNAPSHOT_FIXTURES.read(name);
        assert_eq!(listing_of_snapshot(&file).as_ref(), Ok(&list), "{name}");
        let snapshot = Snapshot::open(&file).expect("a snapshot");
        let engine = match name {
            "hash" => "std-hash",
            "expiring" => "cache",
            _ => "std-tree",
        };
        assert_eq!(snapshot.engine(), engine);
        assert_eq!(
            snapshot.order(),
            (engine == "std-tree").then_some("lexical")
        );
        records += list.lines().count();
    }
    let what = format!("records of {} snapshots", SNAPSHOTS.len());
    tried_at_least(records as u64, 120, &what);
    assert!(records >= 120, "{records}");
}

#[test]
fn the_bytes_of_a_snapshot_are_as_they_were() {
    let bytes = expiring();
    assert!(bytes == SNAPSHOT_FIXTURES.read("expiring").0);
    assert_eq!(hex(&bytes[..48]), GOLDEN_HEAD);
    assert_eq!(hex(&bytes[4096..]), GOLDEN_BLOCKS);
}

const GOLDEN_HEAD: &str = "617a656b7572610ab655496c01000f00736e617073686f740000000000000000efcdab89674523010500636163686500";
const GOLDEN_BLOCKS: &str = "37be3f7402000000200000000000000003000000050000006b657976616c7565000000800000000000505c18a3010000dd9f0ce90100000015000000000000000400008001000000ffffffffffffffff6c61746578509e1c650000000010000000000000000300000000000000d0e3da4300000000";
