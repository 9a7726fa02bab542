//! A capacity holds for one opening: the next one may state another.
//!
//! Stores are filled under one capacity and opened under another, the least one, one below or about their size, or one that
//! leaves them a little room. New records are refused then, and what makes room is done, however often the store is opened
//! again; the excess over the capacity is bounded. It does not know what is kept free for it.
//!
//! Lines beginning `tried:` state how much was tried.

use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::Random;
use azekura::testkit::suite::{share, tried_at_least};
use azekura::{Edit, Engine as _, Kind, Reader as _};

/// What a store was filled with, and the capacity that it is opened with next.
#[derive(Debug)]
struct Drawn {
    segment_size: u64,
    records: u32,
    len: usize,
    background: bool,
    /// Whether some are removed before.
    is_thinned: bool,
    /// 0 to 4: the least capacity, below the size, the size, half of the least more, the least more.
    capacity: u64,
}

impl Drawn {
    fn of(seed: u64, random: &mut Random) -> Self {
        let segment_size = 4096 << random.below(4);
        let len = 8 << random.below(7);
        Self {
            segment_size,
            records: (random.below(1 << 18) / (len + 32) + 100).min(1500) as u32,
            len: len as usize,
            background: random.below(2) == 1,
            is_thinned: random.below(4) == 0,
            capacity: seed % 5,
        }
    }

    fn options(&self, capacity: u64) -> CreateOptions {
        CreateOptions::new()
            .segment_size(self.segment_size)
            .background(self.background)
            .capacity(capacity)
    }
}

#[test]
fn a_store_opened_with_a_smaller_capacity_is_full_and_not_stuck() {
    let (mut full, mut compared) = (0, 0);
    for seed in 0..share(100) {
        let mut random = Random::new(seed);
        let drawn = Drawn::of(seed, &mut random);

        let memory = Memory::new(1 << 26).expect("memory");
        let storage = || Arc::clone(&memory) as Arc<dyn Storage>;
        let db = HashDb::create_on(storage(), &drawn.options(1 << 26)).expect("a new store");
        for key in 0..drawn.records {
            db.put(&key.to_le_bytes(), &vec![1; drawn.len])
                .expect("it has room");
        }
        let mut keys: Vec<u32> = (0..drawn.records).collect();
        if drawn.is_thinned {
            keys.retain(|key| key % 3 > 0);
            for key in (0..drawn.records).filter(|key| key % 3 == 0) {
                assert!(db.remove(&key.to_le_bytes()).expect("a removal"));
            }
        }
        db.close().expect("it is closed");
        let size = memory.size().expect("a size");
        let least = HashDb::least_capacity(drawn.segment_size);
        let capacity = match drawn.capacity {
            0 => least,
            1 => size / 2,
            2 => size,
            3 => size + least / 2,
            _ => size + least,
        };
        let options = drawn.options(capacity.next_multiple_of(4096).max(least));
        let mut sizes = Vec::new();
        let mut next = drawn.records;
        let mut refused = 0;
        for opening in 0..3 {
            let what = format!("seed {seed}, opening {opening}, {drawn:?}");
            let db = HashDb::open_on(storage(), &options.opening).expect(&what);
            while match db.put(&next.to_le_bytes(), &vec![2; drawn.len]) {
                Ok(()) => true,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{what}: {error}");
                    refused += 1;
                    false
                }
            } {
                keys.push(next);
                next += 1;
            }
            for key in &keys {
                db.put(&key.to_le_bytes(), &vec![opening; drawn.len])
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            db.checkpoint().expect(&what);
            if random.below(2) == 0 {
                db.compact(&mut |_, _| ()).expect(&what);
            }
            assert_eq!(db.count(), keys.len() as u64, "{what}");
            for key in &keys {
                let value = db.get(&key.to_le_bytes()).expect(&what);
                assert_eq!(value, Some(vec![opening; drawn.len]), "{what}");
                compared += 1;
            }
            db.close().expect(&what);
            sizes.push(memory.size().expect("a size"));
        }
        // What a full store keeps free, of records of any length.
        let most = options.opening.capacity.max(size) / 4 * 7 + 2 * least;
        assert!(
            sizes.iter().all(|size| *size <= most),
            "at most {most}, {sizes:?}: {drawn:?}"
        );
        // Removals, one by one and as one change.
        let db = HashDb::open_on(storage(), &options.opening).expect("it opens");
        let (half, rest) = keys.split_at(keys.len() / 2);
        for key in half {
            assert!(db.remove(&key.to_le_bytes()).expect("a removal"));
        }
        let rest: Vec<[u8; 4]> = rest.iter().map(|key| key.to_le_bytes()).collect();
        for rest in rest.chunks(20) {
            let rest: Vec<&[u8]> = rest.iter().map(|key| &key[..]).collect();
            db.update_many(&rest, &mut |olds| {
                olds.iter().map(|_| Edit::Remove).collect()
            })
            .expect("removals");
        }
        assert_eq!(db.count(), 0);
        db.put(b"new", b"record").expect("there is room again");
        full += u64::from(refused == 3 && !keys.is_empty());
    }
    tried_at_least(
        full,
        100,
        "stores full under another capacity, three times each",
    );
    tried_at_least(compared, 100_000, "values read from them");
}

/// A few records more in a small store are many parts of the index more: what a checkpoint needs grows faster than what it was
/// asked for.
#[test]
fn a_store_that_was_filled_since_its_checkpoint_takes_equal_values() {
    let mut count = 0;
    for shift in 12..16 {
        for first in [0, 100, 300, 768, 1500] {
            let segment_size = 1 << shift;
            let options = CreateOptions::new()
                .segment_size(segment_size)
                .background(false)
                .capacity(HashDb::least_capacity(segment_size));
            let memory = Memory::new(options.opening.capacity).expect("memory");
            let storage = || Arc::clone(&memory) as Arc<dyn Storage>;
            let db = HashDb::create_on(storage(), &options).expect("a new store");
            let put = |db: &HashDb, key: u32, value: u64| {
                db.put(&key.to_le_bytes(), &value.to_le_bytes())
            };
            let fits = (0..first).all(|key| put(&db, key, 0).is_ok());
            db.close().expect("it is closed");
            if !fits {
                continue;
            }
            let db = HashDb::open_on(storage(), &options.opening).expect("it opens");
            let mut keys = first;
            while put(&db, keys, 1).is_ok() {
                keys += 1;
            }
            for key in 0..keys {
                put(&db, key, 2)
                    .unwrap_or_else(|error| panic!("{options:?}, {key} of {keys}: {error}"));
            }
            for key in 0..keys {
                assert!(db.remove(&key.to_le_bytes()).expect("a removal"));
            }
            count += 1;
        }
    }
    assert!(count >= 16, "{count} stores");
}

#[test]
fn too_small_a_capacity_is_refused_with_the_least_one() {
    for segment_size in [4096, 1 << 16, 1 << 20] {
        let least = HashDb::least_capacity(segment_size);
        let memory = Memory::new(1 << 26).expect("memory");
        let storage = || Arc::clone(&memory) as Arc<dyn Storage>;
        let options = |capacity| {
            CreateOptions::new()
                .segment_size(segment_size)
                .capacity(capacity)
        };
        let told = format!("expected {least} bytes or more");
        for capacity in [0, 1, 4096, least - 4096] {
            let error = HashDb::create_on(storage(), &options(capacity)).err();
            let error = error.expect("it is refused").to_string();
            assert!(error.contains(&told), "{error}");
        }
        HashDb::create_on(storage(), &options(least))
            .expect("a new store")
            .close()
            .expect("it is closed");
        for capacity in [0, 1, 4096, least - 4096] {
            let error = HashDb::open_on(storage(), &options(capacity).opening).err();
            let error = error.expect("it is refused");
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(&told), "{error}");
        }
        let db = HashDb::open_on(storage(), &options(least).opening).expect("it opens");
        db.put(b"key", b"value").expect("it has room");
    }
}
