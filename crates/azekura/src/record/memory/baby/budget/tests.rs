//! A store that may not take more memory: what it answers, and what it keeps.
//!
//! At the limit a put changes nothing and returns `Full`; what is removed makes room, for nodes and for what stands outside,
//! whichever had it before; an update of many happens whole or not at all, whoever else takes the rest meanwhile.

use std::collections::BTreeMap;

use crate::engine::{Edit, Engine, Reader};
use crate::error::Kind;
use crate::record::memory::baby::cluster::STEM;
use crate::record::memory::baby::tests::{assert_sound, shown};
use crate::record::memory::baby::{BabyDb, Options};
use crate::testkit::Random;

const LIMIT: u64 = 2 << 20;

fn ascending(number: u64) -> [u8; 8] {
    number.swap_bytes().to_le_bytes()
}

fn limited() -> BabyDb {
    BabyDb::with(&Options::new().memory_limit(LIMIT)).unwrap()
}

#[test]
fn a_store_at_its_limit_refuses_and_loses_nothing() {
    let db = limited();
    let mut random = Random::new(4);
    let mut map = BTreeMap::new();
    let mut refused = 0;
    for _ in 0..60_000 {
        let mut key = random.below(1 << 40).to_le_bytes().to_vec();
        if random.below(50) == 0 {
            key.resize(STEM + 10, 0);
        }
        let len = [8, 30, 1000][random.index(3)];
        let value = random.bytes(len);
        match db.put(&key, &value) {
            Ok(()) => drop(map.insert(key, value)),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full);
                assert_eq!(
                    error.to_string(),
                    "full: the store has taken the 2 MiB it may; remove records, or raise the limit"
                );
                refused += 1;
            }
        }
        assert!(db.stats().memory_bytes <= LIMIT);
    }
    assert!(
        refused > 1000 && map.len() > 500,
        "{refused}, {}",
        map.len()
    );
    assert_sound(&db);
    assert_eq!(shown(&db), map.clone().into_iter().collect::<Vec<_>>());
    for key in map.keys() {
        assert!(db.remove(key).unwrap());
    }
    assert_eq!((db.count(), db.cells.bytes()), (0, 0));
    let low = BabyDb::with(&Options::new().memory_limit(4096));
    assert_eq!(low.unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn room_of_removed_records_is_room_for_long_values() {
    let db = limited();
    let mut number = 0u64;
    while db.put(&ascending(number), b"12345678").is_ok() {
        number += 1;
    }
    assert!(number > 100_000, "{number} records");
    for number in 0..number {
        assert!(db.remove(&ascending(number)).unwrap());
    }
    for number in 0..20u64 {
        db.put(&ascending(number), &vec![1; 100_000]).unwrap();
    }
    let error = db.put(b"more", &vec![1; 100_000]).unwrap_err();
    assert_eq!(error.kind(), Kind::Full);
    // What waits for others who are pinned is gone when they are.
    let is_within = || {
        db.put(&ascending(0), &[2; 1000]).unwrap();
        db.stats().memory_bytes <= LIMIT
    };
    assert!((0..1_000_000).any(|_| is_within()), "{:?}", db.stats());
}

#[test]
fn an_update_of_many_at_the_limit_happens_whole_or_not_at_all() {
    const TOGETHER: u64 = 40;
    let db = limited();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for batch in 0..400 {
                    // Far apart, so that many leaves divide.
                    let keys: Vec<[u8; 16]> = (0..TOGETHER)
                        .map(|_| {
                            let tag = thread << 32 | batch;
                            let parts = [random.below(u64::MAX), tag].map(ascending);
                            parts.as_flattened().try_into().unwrap()
                        })
                        .collect();
                    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 16]>::as_slice).collect();
                    let len = [8, 200, 900][random.index(3)];
                    let value = random.bytes(len);
                    let done = db.update_many(&keys, &mut |_| {
                        keys.iter().map(|_| Edit::put(&value)).collect()
                    });
                    assert!(done.map_or_else(|error| error.kind() == Kind::Full, |()| true));
                    // Others who take what is left, one by one.
                    let alone = [ascending(random.below(u64::MAX)), [0xff; 8]].concat();
                    let _ = db.put(&alone, &[7; 100]);
                }
            });
        }
    });
    assert_sound(&db);
    let records = shown(&db);
    assert_eq!(records.len() as u64, db.count());
    let mut batches: BTreeMap<&[u8], u64> = BTreeMap::new();
    for (key, _) in &records {
        *batches.entry(&key[8..]).or_default() += 1;
    }
    batches.remove(&[0xff; 8][..]);
    assert!(
        batches.len() > 10 && batches.len() < 1600,
        "{}",
        batches.len()
    );
    assert!(batches.values().all(|count| *count == TOGETHER));
    let bytes = db.stats().memory_bytes;
    assert!(bytes < LIMIT + LIMIT / 4, "{bytes} bytes");
}

#[test]
fn an_update_of_many_that_changes_nothing_is_not_refused_at_the_limit() {
    let db = limited();
    let mut random = Random::new(3);
    let mut keys = Vec::new();
    loop {
        let key = random.u64().to_le_bytes();
        if db.put(&key, &[1; 20]).is_err() {
            break;
        }
        keys.push(key);
    }
    for group in keys.chunks(64) {
        let keys: Vec<&[u8]> = group.iter().map(<[u8; 8]>::as_slice).collect();
        db.update_many(&keys, &mut |values| {
            values.iter().map(|_| Edit::Keep).collect()
        })
        .unwrap();
    }
}
