//! What one compaction gives back where values are longer than segments, or nearly as long.
//!
//! Such values take whole segments, and what is free between them has many lengths, so a compaction has to move them before
//! the file can be cut. It is called once, as users call it. Concurrently with a reader it leaves what
//! the reader is lent.

use std::collections::BTreeMap;
use std::sync::Arc;

use azekura::Persistent as _;
use azekura::io::Storage;
use azekura::io::memory::Memory;
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::suite::demand;
use azekura::testkit::{Random, round_seed, tried};

/// Segment size; length of the longest value, keys.
const STORES: [(u64, usize, u64); 3] = [
    (4 << 10, 60_000, 320),
    (64 << 10, 300_000, 60),
    (1 << 20, 300_000, 60),
];

/// Half of the keys are removed after all were overwritten often: some 4 MB live in 20 to 50. What stays is half more than is
/// live, since a long frame takes whole segments, and six segments; it was ten times the live bytes.
#[test]
fn one_compaction_gives_back_what_large_values_left() {
    let mut had_room = 0;
    for (segment_size, longest, keys) in STORES {
        let memory = Memory::new(1 << 28).expect("memory");
        let options = CreateOptions::new()
            .segment_size(segment_size)
            .background(false)
            .capacity(1 << 28);
        let storage = Arc::clone(&memory) as Arc<dyn Storage>;
        let db = HashDb::create_on(storage, &options).expect("a new store");
        let mut random = Random::new(segment_size + round_seed());
        let mut model = BTreeMap::new();
        for _ in 0..keys * 6 {
            let key = random.below(keys);
            let len = random.index(longest);
            let value = random.bytes(len);
            db.put(&key.to_le_bytes(), &value).expect("a put");
            model.insert(key, value);
        }
        for key in 0..keys / 2 {
            db.remove(&key.to_le_bytes()).expect("a removal");
            model.remove(&key);
        }
        let live: u64 = model.values().map(|value| value.len() as u64).sum();
        let before = memory.size().expect("a size");
        db.compact(&mut |_, _| ()).expect("a compaction");
        let after = memory.size().expect("a size");
        tried(&format!(
            "segments of {segment_size}: {live} live, {before} before, {after} after one compaction"
        ));
        let bound = live + live / 2 + 6 * segment_size;
        // Of a file that was as small before, nothing is learnt.
        had_room += u64::from(before > bound);
        assert!(
            after < bound,
            "{after} bytes for {live} live, segments of {segment_size}"
        );
        for (key, value) in &model {
            let found = db.get(&key.to_le_bytes()).expect("a get");
            assert_eq!(found.as_ref(), Some(value));
        }
        assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
    }
    demand(
        had_room,
        STORES.len() as u64,
        "files that held more than a compaction may leave",
    );
}

/// A compaction concurrently with a reader cuts nothing off that the reader is lent; the next one does. What stands before the record is
/// free when the compaction begins, so the record is moved there, and its old segment is the last one of the file.
#[test]
fn a_value_that_is_lent_stays_while_the_file_is_compacted() {
    let memory = Memory::new(1 << 28).expect("memory");
    let options = CreateOptions::new()
        .segment_size(4096)
        .background(false)
        .capacity(1 << 28);
    let storage = Arc::clone(&memory) as Arc<dyn Storage>;
    let db = HashDb::create_on(storage, &options).expect("a new store");
    let lent = Random::new(round_seed()).bytes(1500);
    db.put(b"before", &vec![1; 1 << 20]).expect("a put");
    db.put(b"lent", &lent).expect("a put");
    let bytes = memory.to_vec();
    let mut places = bytes.windows(lent.len());
    let offset = places.position(|found| found == lent).expect("a place") as u64;
    assert!(db.remove(b"before").expect("a removal"));
    for _ in 0..20 {
        db.checkpoint().expect("a checkpoint");
        db.maintain().expect("a step");
    }
    let size = || memory.size().expect("a size");
    let compact = || db.compact(&mut |_, _| ()).expect("a compaction");
    db.read_with(b"lent", |value| {
        // By another thread, since it waits for readers for a while.
        std::thread::scope(|scope| scope.spawn(compact).join().expect("no panic"));
        assert!(
            size() > offset,
            "{} bytes, {offset} before the value",
            size()
        );
        assert_eq!(value, Some(&lent[..]));
    })
    .expect("a read");
    compact();
    assert!(
        size() < offset,
        "{} bytes, {offset} before the value",
        size()
    );
    assert_eq!(db.get(b"lent").expect("a read"), Some(lent));
    assert!(db.check(&mut |_, _| ()).expect("a check").is_sound());
}
