//! A full store: new records are refused, and everything that makes room is accepted.
//!
//! Stores are filled until they answer `Full`, in memory and files and on simulated disks that cannot grow, with segments of
//! several sizes and other options that are drawn, with and without the background worker. Then they are emptied, shortened,
//! compacted, cleared, closed, killed; after each, what was acknowledged is there, and there is room again. It does not know how
//! much is held in reserve.
//!
//! | module | full by |
//! |---|---|
//! | here | the limit of the storage |
//! | `bounded` | `OpenOptions::capacity`, with several writers |
//! | `table` | the capacities and lengths of values with which stores once locked up |
//! | `small` | default options, on small devices |
//! | `neighbours` | long values, for which free segments must lie side by side |
//! | `shared` | long values of counters that threads share |
//! | `compacted` | not full: what one compaction gives back |
//!
//! Lines beginning `tried:` state how much was tried.

mod bounded;
mod compacted;
mod neighbours;
mod shared;
mod small;
mod table;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use azekura::engine::Persistent as _;
use azekura::io::memory::Memory;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory as _, Storage};
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::suite::{demand, third};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Edit, Engine as _, Kind, Reader as _};

type Model = HashMap<Vec<u8>, Vec<u8>>;

/// Segment size, bytes of the storage, length of values, with the background worker or without.
const SHAPES: [(u64, u64, usize, bool); 4] = [
    (1 << 16, 8 << 20, 100, false),
    (1 << 16, 8 << 20, 8, true),
    (1 << 20, 64 << 20, 200, true),
    (1 << 17, 8 << 20, 1000, false),
];

/// Runs a test on these, and on others that are drawn: small ones of any segments of which there are a hundred or so.
fn with_each_shape(test: impl Fn((u64, u64, usize, bool))) {
    let drawn = (0..third(4)).map(|seed| {
        let mut random = Random::new(!(seed + round_seed()));
        let segment_size = 4096 << random.below(6);
        let limit = (128 * segment_size).max(2 << 20) + random.below(4 << 20);
        let len = 8 + random.index(500);
        (segment_size, limit, len, random.one_in(2))
    });
    let mut tried_shapes = 0;
    for shape in SHAPES.into_iter().chain(drawn) {
        test(shape);
        tried_shapes += 1;
    }
    let least = SHAPES.len() as u64 + third(4);
    demand(tried_shapes, least, "shapes of full stores");
}

struct Full {
    memory: Arc<Memory>,
    options: CreateOptions,
    db: HashDb,
    model: Model,
    random: Random,
    len: usize,
}

impl Full {
    /// A store filled until a record was refused.
    fn of((segment_size, limit, len, background): (u64, u64, usize, bool)) -> Self {
        let capacity = 128 << 20;
        let memory = Memory::new(capacity).expect("memory");
        let options = CreateOptions::new()
            .segment_size(segment_size)
            .background(background)
            .capacity(capacity);
        let storage = Arc::clone(&memory) as Arc<dyn Storage>;
        let db = HashDb::create_on(storage, &options).expect("a new store");
        memory.set_limit(limit);
        let mut full = Self {
            memory,
            options,
            db,
            model: Model::new(),
            random: Random::new(segment_size + limit),
            len,
        };
        let filled = full.fill();
        assert!(filled > 1000, "{filled} records");
        let live: usize = full.model.iter().map(|(k, v)| k.len() + v.len()).sum();
        tried(&format!(
            "{filled} records, {live} bytes fill {limit}, segments of {segment_size}"
        ));
        full
    }

    /// Puts new records until one is refused; how many were not.
    fn fill(&mut self) -> u64 {
        for put in 0.. {
            let key = self.random.bytes(12);
            let value = self.random.bytes(self.len);
            match self.db.put(&key, &value) {
                Ok(()) => drop(self.model.insert(key, value)),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    return put;
                }
            }
        }
        unreachable!("the storage is finite")
    }

    /// The keys, in an order of no meaning.
    fn keys(&mut self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = self.model.keys().cloned().collect();
        // From here on the seed decides.
        keys.sort_unstable();
        for at in (1..keys.len()).rev() {
            keys.swap(at, self.random.index(at + 1));
        }
        keys
    }

    fn remove(&mut self, key: &[u8]) {
        let known = self.model.remove(key).is_some();
        let removed = self.db.remove(key).expect("a removal of a full store");
        assert_eq!(removed, known);
    }

    fn compare(&self) {
        let mut seen = HashSet::with_capacity(self.model.len());
        let all = self.db.scan(None, &mut |key, value| {
            let known = self.model.get(key).map(Vec::as_slice);
            assert_eq!(known, Some(value), "{key:?}");
            assert!(seen.insert(key.to_vec()), "{key:?} is shown twice");
            ControlFlow::Continue(())
        });
        all.expect("a scan");
        assert_eq!(seen.len(), self.model.len());
        let report = self.db.check(&mut |_, _| ()).expect("a check");
        assert_eq!(report.damage, Vec::<String>::new());
    }

    /// What the death of the process leaves: the bytes of one moment. The background worker may write while they are copied,
    /// so they are copied until two copies in a row are the same.
    fn at_rest(&self) -> Vec<u8> {
        let mut bytes = self.memory.to_vec();
        loop {
            let again = self.memory.to_vec();
            if again == bytes {
                return again;
            }
            bytes = again;
        }
    }

    /// Opens it again, after the death of the process or a close, on a device without more room.
    fn reopen(self, kill: bool) -> Self {
        let mut next = self;
        if kill {
            next.memory =
                Memory::from_bytes(&next.at_rest(), next.options.opening.capacity).expect("memory");
        }
        drop(std::mem::replace(&mut next.db, standing_in()));
        next.memory.set_limit(next.memory.size().expect("a size"));
        let storage = Arc::clone(&next.memory) as Arc<dyn Storage>;
        next.db = HashDb::open_on(storage, &next.options.opening).expect("it opens");
        next
    }
}

/// Of a store that only stands in.
fn standing_in() -> HashDb {
    let memory = Memory::new(1 << 20).expect("memory");
    HashDb::create_on(memory, &small_options()).expect("a store")
}

fn small_options() -> CreateOptions {
    CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(1 << 20)
}

#[test]
fn a_full_store_can_be_emptied_and_filled_again() {
    with_each_shape(|shape| {
        let mut full = Full::of(shape);
        let before = full.model.len() as u64;
        for _ in 0..2 {
            for key in full.keys() {
                full.remove(&key);
            }
            full.compare();
            let again = full.fill();
            assert!(again > before / 10 * 8, "{again} after {before}: {shape:?}");
            full.compare();
        }
    });
}

#[test]
fn records_that_replace_longer_ones_are_stored_in_a_full_store_and_longer_ones_are_not() {
    with_each_shape(|shape| {
        let mut full = Full::of(shape);
        for key in full.keys() {
            let value = full.random.bytes(full.len / 2);
            full.db.put(&key, &value).expect("a shorter value");
            full.model.insert(key, value);
        }
        full.compare();
        full.fill();
        let key = full.keys().swap_remove(0);
        let long = vec![7; 1 << 20];
        let error = full.db.put(&key, &long).expect_err("a longer value");
        assert_eq!(error.kind(), Kind::Full, "{error}");
        full.compare();
    });
}

#[test]
fn a_full_store_is_compacted() {
    with_each_shape(|shape| {
        let mut full = Full::of(shape);
        full.db.compact(&mut |_, _| ()).expect("nothing to win");
        full.compare();
        full.fill();
        for key in full.keys().into_iter().take(full.model.len() / 2) {
            full.remove(&key);
        }
        let before = full.memory.size().expect("a size");
        full.db.compact(&mut |_, _| ()).expect("half to win");
        let after = full.memory.size().expect("a size");
        assert!(after < before / 4 * 3, "{after} of {before}: {shape:?}");
        full.compare();
    });
}

#[test]
fn new_records_do_not_use_up_what_removals_need() {
    with_each_shape(|shape| {
        let mut full = Full::of(shape);
        // A store that is filled after each removal holds no more than one that is filled once.
        for key in full.keys().into_iter().take(500) {
            full.remove(&key);
            full.fill();
        }
        for key in full.keys() {
            full.remove(&key);
        }
        full.compare();
    });
}

#[test]
fn a_full_store_that_was_closed_or_killed_can_be_emptied() {
    with_each_shape(|shape| {
        for kill in [false, true] {
            let mut full = Full::of(shape).reopen(kill);
            full.compare();
            for key in full.keys() {
                full.remove(&key);
            }
            full.compare();
            assert!(full.fill() > 100);
        }
    });
}

#[test]
fn a_full_store_takes_batches_of_removals_and_is_cleared() {
    with_each_shape(|shape| {
        let mut full = Full::of(shape);
        let keys = full.keys();
        for keys in keys.chunks(100).take(20) {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let gone = full
                .db
                .update_many(&keys, &mut |_| keys.iter().map(|_| Edit::Remove).collect());
            gone.expect("removals of many");
            for key in keys {
                full.model.remove(key);
            }
        }
        full.compare();
        full.db.clear().expect("it is cleared");
        full.model.clear();
        full.compare();
        assert!(full.fill() > 1000);
    });
}

#[test]
fn a_store_that_was_full_grows_once_its_device_has_room() {
    with_each_shape(|shape| {
        let mut full = Full::of(shape);
        full.memory.set_limit(shape.1 * 3 / 2);
        let more = full.fill();
        assert!(more > 100, "{more} more");
        full.compare();
    });
}

#[test]
fn a_full_disk_takes_removals() {
    let disk = SimDisk::new(7);
    let name = Path::new("full.azh");
    let options = small_options()
        .segment_size(1 << 16)
        .capacity(SimDisk::FILE_SIZE_MAX);
    let db = HashDb::create_in(&disk.directory(), name, &options).expect("a new file");
    disk.set_capacity(4 << 20);
    let mut records = 0u32;
    while db.put(&records.to_le_bytes(), &[9; 500]).is_ok() {
        records += 1;
    }
    assert!(records > 1000, "{records}");
    for key in 0..records {
        assert!(db.remove(&key.to_le_bytes()).expect("a removal"), "{key}");
    }
    db.close().expect("it closes");
    let storage = disk.directory().open(name, Access::Write);
    let db = HashDb::open_on(storage.expect("a file"), &options.opening).expect("it opens");
    assert_eq!(db.count(), 0);
    tried(&format!("{records} removals of a full disk"));
}
