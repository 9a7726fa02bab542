//! Fuzzes snapshots: any file gives all records that were saved, or an error; never a panic.
//!
//! The input is taken for a file, for the blocks after a true head, and for the damage of a true snapshot, so
//! that what is after each checksum is reached too: blocks are decoded with and without looking at their sums.
//! It does not know which errors are the right ones.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use azekura::io::memory::Memory;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory, Storage};
use azekura::record::memory::snapshot::layout::{
    BLOCK_HEADER_SIZE, Block, BlockHeader, Head, end_mark, end_of, records,
};
use azekura::record::memory::snapshot::{Options, Snapshot, save_to};
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::testkit::Random;
use azekura::testkit::damage::{Image, Mutation};
use azekura::{Kind, Reader, Verbs};

/// A snapshot of forty records in small blocks; each value begins with its key.
fn sound() -> &'static Image {
    static SOUND: OnceLock<Image> = OnceLock::new();
    SOUND.get_or_init(|| {
        let db = StdTreeDb::new();
        let mut image = Image::default();
        for number in 0..40u32 {
            let key = number.to_le_bytes().to_vec();
            let value = key.repeat(1 + number as usize % 20);
            db.put(&key, &value).expect("a put");
            image.now.insert(key, Some(value));
        }
        let disk = SimDisk::new(1);
        let options = Options::new().block_size(256);
        let (directory, name) = (disk.directory(), Path::new("a"));
        let proceed = &mut |_, _| ControlFlow::Continue(());
        save_to(&db, &directory, name, &options, proceed).expect("a snapshot");
        let file = directory.open(name, Access::Read).expect("a file");
        image.bytes = vec![0; file.size().expect("a size") as usize];
        file.read_at(0, &mut image.bytes).expect("its bytes");
        image
    })
}

/// What is loaded from a file of these bytes, if it is a snapshot.
fn load(bytes: &[u8]) -> Option<StdTreeDb> {
    let storage = Memory::from_bytes(bytes, bytes.len() as u64).expect("memory");
    let db = StdTreeDb::new();
    let loaded = Snapshot::open_on(storage as Arc<dyn Storage>)
        .and_then(|snapshot| snapshot.load_into(&db, &mut |_, _| ()));
    match loaded {
        Ok(loaded) => {
            assert!(db.count() <= loaded.records);
            Some(db)
        }
        Err(error) => {
            let expected = [Kind::Corrupted, Kind::Mismatch, Kind::Full, Kind::TooLarge];
            assert!(expected.contains(&error.kind()), "{error}");
            assert_eq!(db.count(), 0, "nothing half-loaded");
            None
        }
    }
}

/// Inputs to begin with: a snapshot that the library saved, and the records of its first block.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut block = Block::default();
    for (key, value) in &sound().now {
        let value = value.as_deref().unwrap_or_default();
        block.push(key, value, None).expect("it fits");
    }
    let sealed = block.seal(1, 0, &mut 0);
    vec![sound().bytes.clone(), sealed[BLOCK_HEADER_SIZE..].to_vec()]
}

/// Checks one input; panics where a promise is broken.
pub fn check(bytes: &[u8]) {
    let _ = load(bytes);
    let _ = end_of(bytes);
    if let Some(read) = Head::decode(bytes) {
        assert_eq!(Head::decode(&read.encode()), Some(read));
    }

    // Blocks of any bytes, with true sums.
    let mut random = Random::from_bytes(bytes);
    let head = Head {
        salt: random.u64(),
        engine: "fuzz".into(),
        order: random.one_in(2).then(|| "lexical".into()),
    };
    let mut file = head.slot();
    let count = 1 + random.below(5) as u32;
    let mut header = BlockHeader {
        checksum: 0,
        count,
        len: bytes.len() as u64,
    };
    header.checksum = header.sum(head.seed(), 0, bytes);
    file.extend(header.checksum.to_le_bytes());
    file.extend(header.count.to_le_bytes());
    file.extend(header.len.to_le_bytes());
    file.extend_from_slice(bytes);
    let sum = azekura::format::checksum::crc(0, &header.checksum.to_le_bytes());
    file.extend(end_mark(head.seed(), 1, u64::from(count), sum));
    let decoded: Option<Vec<_>> = records(bytes, count).collect();
    let expires = |all: &Vec<azekura::record::memory::snapshot::layout::Record<'_>>| {
        all.iter().any(|record| record.expires_ms.is_some())
    };
    let loads = decoded.as_ref().is_some_and(|all| !expires(all));
    assert_eq!(load(&file).is_some(), loads);
    if let Some(all) = decoded {
        // What was read is written as it was.
        let mut block = Block::default();
        for record in &all {
            block
                .push(record.key, record.value, record.expires_ms)
                .expect("it was in a block");
        }
        let again = block.seal(head.seed(), 0, &mut 0);
        assert_eq!(&again[BLOCK_HEADER_SIZE..], bytes);
    }

    let image = sound();
    let mutation = Mutation::choose(image, &mut random);
    if let Some(db) = load(&mutation.apply(image)) {
        for (key, value) in &image.now {
            assert_eq!(db.get(key).expect("a get").as_ref(), value.as_ref());
        }
        assert_eq!(db.count(), image.now.len() as u64, "{mutation:?}");
    }
}
