//! Readers of a file that another process writes, which read seldom: each answer is the newest, however long ago the last was.
//!
//! A reader knows the log's end by the word that stands there, which is zero until something is appended. Meanwhile checkpoints
//! give the segment up, and the writer uses it again, so that the word is zero for another reason. Twelve readers
//! read one key each at drawn moments; the writer puts, removes, clears, checkpoints and compacts.
//!
//! Lines beginning `tried:` state how much was tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{HashDb, HashReader};
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::suite::{case, demand, share};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Durability, Engine as _, Persistent as _, Reader as _, Verbs as _};

const ROOM: u64 = 16 << 20;
const READERS: usize = 12;

/// What a store may be: small segments are used again soon, and all that is put here fits.
const WITHIN: Within = Within {
    holds: Some(200 * 232),
    segment_size_max: 16 << 10,
    ..Within::bytes(ROOM)
};

#[test]
fn readers_that_look_seldom_see_what_is_newest() {
    let (mut answers, mut late) = (0, 0);
    for seed in 0..share(60) {
        let seed = seed + round_seed();
        let mut random = Random::new(seed);
        let options = hash_options(&mut Random::new(!seed), &WITHIN);
        let _shown = case(seed, &options);
        let memory = Memory::new(ROOM).expect("memory");
        let storage = || Arc::clone(&memory) as Arc<dyn Storage>;
        let db = HashDb::create_on(storage(), &options).expect("a new store");
        let open = || HashReader::open_on(storage()).expect("a reader");
        // When each read last.
        let mut readers: Vec<(HashReader, u64)> = (0..READERS).map(|_| (open(), 0)).collect();
        let mut model = BTreeMap::new();
        let keys = *random.choose(&[5, 30, 200]);
        for op in 0..6000 {
            let key = random.below(keys).to_le_bytes();
            match random.below(400) {
                0..360 => {
                    let len = random.index(200);
                    let value = random.bytes(len);
                    db.put(&key, &value).expect("a put");
                    model.insert(key, value);
                }
                360..390 => {
                    db.remove(&key).expect("a removal");
                    model.remove(&key);
                }
                390..395 => db.checkpoint().expect("a checkpoint"),
                395..397 => db.maintain().expect("a step of upkeep"),
                397 => db.sync(Durability::Power).expect("a sync"),
                398 => db.compact(&mut |_, _| ()).expect("a compaction"),
                _ if random.one_in(8) => {
                    db.clear().expect("a clear");
                    model.clear();
                }
                _ => {}
            }
            if random.one_in(3) {
                let number = random.index(READERS);
                let (reader, last) = &mut readers[number];
                let found = reader.get(&key).expect("an answer");
                assert_eq!(
                    found.as_ref(),
                    model.get(&key),
                    "reader {number} at operation {op}, last read at {last}"
                );
                answers += 1;
                late += u64::from(op - *last > 20);
                *last = op;
            }
        }
        for (reader, _) in &readers {
            assert_eq!(reader.count(), model.len() as u64);
        }
    }
    tried(&format!("{answers} answers of readers"));
    demand(
        late,
        share(60) * 1000,
        "answers after more than twenty changes",
    );
}
