//! Files that format version 1 wrote are opened, and hold what they held; and its bytes are as they were.
//!
//! The fixtures lie in `fixtures/hash/`, each with a listing of its records (key and value in hexadecimal, a
//! line each, in order of keys). Copies are opened: a fixture is never written again. They are made
//! by `AZEKURA_WRITE_FIXTURES=1 cargo test --test formats`, which refuses to replace one.
//!
//! Which bytes mean what is told in `format/` and in the layouts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azekura::io::memory::Memory;
use azekura::record::hash::{Compression, HashDb, HashReader, Options};
use azekura::{Edit, Engine, Persistent, Reader};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn fixtures() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the library lies two folders below the root")
        .join("fixtures/hash")
}

fn options(compression: Compression) -> Options {
    Options {
        segment_size: 4096,
        background: false,
        compression,
        capacity: 1 << 30,
        ..Options::default()
    }
}

const NAMES: [&str; 9] = [
    "empty",
    "small",
    "checkpointed",
    "unclean",
    "cleaned",
    "lz4",
    "zstd",
    "batches",
    "large",
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

/// The store of this name, made in `file`, and its records; closed but for "unclean".
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
            db.checkpoint().expect("a checkpoint");
            put_batches(&db);
        }
        _ => put_some(&db, 60, 3),
    }
    let state = contents(&db);
    if name == "unclean" {
        let copy = std::fs::read(file).expect("its bytes, as a killed process leaves them");
        db.close().expect("it closes");
        std::fs::write(file, copy).expect("the file is put back");
    } else {
        db.close().expect("it closes");
    }
    state
}

fn contents(reader: &dyn Reader) -> State {
    let mut state = State::new();
    reader
        .scan(None, &mut |key, value| {
            state.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })
        .expect("a scan");
    state
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes it");
        text
    })
}

fn listing(state: &State) -> String {
    let lines = state
        .iter()
        .map(|(key, value)| [&hex(key), " ", &hex(value), "\n"].concat());
    lines.collect()
}

#[test]
fn files_of_version_1_hold_what_was_put_there() {
    let fixtures = fixtures();
    if std::env::var_os("AZEKURA_WRITE_FIXTURES").is_some() {
        std::fs::create_dir_all(&fixtures).expect("the folder");
        for name in NAMES {
            let file = fixtures.join(format!("{name}-1.azh"));
            if !file.exists() {
                let list = listing(&make(name, &file));
                std::fs::write(fixtures.join(format!("{name}-1.txt")), list).expect("a listing");
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut records = 0;
    for name in NAMES {
        let list = std::fs::read_to_string(fixtures.join(format!("{name}-1.txt")));
        let list = list.expect("the listing of a fixture");
        let copy = folder.path().join(name);
        std::fs::copy(fixtures.join(format!("{name}-1.azh")), &copy).expect("a copy");
        let reader = HashReader::open(&copy).expect("it opens for reading");
        assert_eq!(listing(&contents(&reader)), list, "{name}, for reading");
        drop(reader);
        let db = HashDb::open(&copy, &options(Compression::None)).expect("it opens");
        assert_eq!(listing(&contents(&db)), list, "{name}");
        assert_eq!(db.count(), list.lines().count() as u64, "{name}");
        let report = db.check(&mut |_, _| ()).expect("a check");
        assert!(report.is_sound(), "{name}: {:?}", report.damage);
        db.put(b"new", b"record").expect("it takes records");
        db.close().expect("it closes");
        let db = HashDb::open(&copy, &options(Compression::None)).expect("it opens again");
        assert_eq!(
            db.get(b"new").expect("a read"),
            Some(b"record".to_vec()),
            "{name}"
        );
        records += list.lines().count();
    }
    writeln!(
        std::io::stderr(),
        "tried: {} fixtures, {records} records",
        NAMES.len()
    )
    .expect("stderr can be written");
}

/// In memory, seeds and boot ids are fixed: so is every byte.
fn bytes_of(act: impl FnOnce(&HashDb)) -> Vec<u8> {
    let memory = Memory::new(1 << 20).expect("memory");
    let options = Options {
        capacity: 1 << 20,
        ..options(Compression::None)
    };
    let db = HashDb::create_on(Arc::clone(&memory) as Arc<_>, &options).expect("a new store");
    act(&db);
    let bytes = memory.to_vec();
    drop(db);
    bytes
}

/// Where the first frame stands: behind the superblock, the control block and the segment's header.
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

const GOLDEN_SEGMENT: &str = "617a7367876c9c8f000000000100000001000000000000000000000000000000";
const GOLDEN_PUT: &str = "ea2daa9b090305006b657976616c75650000000000000000";
const GOLDEN_BATCH: &str = "26e33c17130000000200000020000000ce718ce5490101006131000000000000773e5f67490102006232320000000000";
