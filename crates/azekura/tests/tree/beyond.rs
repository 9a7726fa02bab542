//! What tests of stores beyond their cache share: such a store, in files or on a simulated device, its records in a map, what it states of itself.
//!
//! Keys are spread over all leaves, so that most of them are on storage only when they are put again. It does not know what is tried with such
//! a store; each test states how many puts waited.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use azekura::engine::Reader;
use azekura::io::sim::SimDisk;
use azekura::record::tree::{Compression, CreateOptions, OpenOptions, TreeDb};

use super::eight;

/// What a store has.
pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The name of a store on a simulated device.
pub(super) const NAME: &str = "a.azt";

/// The smallest cache.
pub(super) fn opening() -> OpenOptions {
    OpenOptions::new()
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX)
        .cache(256u64 << 10)
}

/// Of small segments, with pages as they are in memory.
pub(super) fn creating(opening: &OpenOptions) -> CreateOptions {
    CreateOptions::new()
        .compression(Compression::None)
        .segment_size(64u64 << 10)
        .opening(opening.clone())
}

/// A new store on a simulated device.
pub(super) fn on_disk(options: &CreateOptions) -> (SimDisk, TreeDb) {
    let disk = SimDisk::new(1);
    let db = TreeDb::create_in(&disk.directory(), Path::new(NAME), options).unwrap();
    (disk, db)
}

/// Puts so many records.
pub(super) fn fill(db: &TreeDb, many: u64) -> Model {
    let record = |number| {
        db.put(&key(number), &[0; 90]).unwrap();
        (key(number), vec![0; 90])
    };
    (0..many).map(record).collect()
}

/// Different keys of numbers.
pub(super) fn key(number: u64) -> Vec<u8> {
    eight(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_vec()
}

/// All records, each of which is shown once.
pub(super) fn shown(view: &dyn Reader) -> Model {
    let mut records = Model::new();
    let end = view.scan(None, &mut |key, value| {
        assert!(records.insert(key.to_vec(), value.to_vec()).is_none());
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    records
}

/// A number that a store states of itself.
pub(super) fn property(db: &TreeDb, name: &str) -> u64 {
    let properties = db.inspect();
    let found = properties.iter().find(|(known, _)| *known == name);
    found.unwrap().1.parse().unwrap()
}
