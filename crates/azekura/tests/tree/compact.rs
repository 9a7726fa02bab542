//! Compaction makes a tree file short, keeps every record, and runs beside readers, writers and snapshots.
//!
//! Models, threads that write meanwhile, and snapshots are compared with what a compaction leaves; sizes are those that the file
//! system states. Cuts of the power during a compaction are in `power`. It knows no other engine.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura::engine::{Engine, Persistent, Reader};
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::suite::{case, share};
use azekura::testkit::{Random, round_seed};

use super::{Keys, eight, options, value};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn all(db: &dyn Reader) -> Model {
    let mut found = Model::new();
    db.scan(None, &mut |key, value| {
        let before = found.insert(key.to_vec(), value.to_vec());
        assert_eq!(before, None, "a key is shown once");
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

fn assert_sound(db: &TreeDb) {
    let report = db.check(&mut |_, _| ()).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

fn len_of(db: &TreeDb) -> u64 {
    std::fs::metadata(db.path()).unwrap().len()
}

#[test]
fn random_records_take_28_bytes_each_and_some_segments_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("size.azt");
    let opening = OpenOptions::new().cache(8 << 20);
    let db = TreeDb::create(&path, &CreateOptions::new().opening(opening.clone())).unwrap();
    let count = share(1_000_000).max(100_000);
    let key = |number: u64| eight(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for number in 0..count {
        db.put(&key(number), &eight(number)).unwrap();
    }
    db.checkpoint().unwrap();
    let before = len_of(&db);
    let mut last = (0, 0);
    db.compact(&mut |done, total| {
        assert!(done <= total, "{done} of {total}");
        last = (done, total);
    })
    .unwrap();
    assert!(last.0 == last.1 && last.1 > 0, "it ends with all done");
    let after = len_of(&db);
    let bound = count * 28 + (5 << 20);
    assert!(after <= bound.min(before), "{before} bytes, then {after}");
    assert_sound(&db);
    db.close().unwrap();
    let closed = std::fs::metadata(&path).unwrap().len();
    assert!(closed <= bound, "{closed}");
    let db = TreeDb::open(&path, &opening).unwrap();
    assert_eq!(db.count(), count);
    for number in (0..count).step_by(97) {
        let value = db.get(&key(number)).unwrap();
        assert_eq!(value.as_deref(), Some(&eight(number)[..]));
    }
}

#[test]
fn every_record_stays_whatever_the_store_is_like() {
    for round in 0..share(12) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let background = random.one_in(2);
        let options = options(&mut random, background);
        let keys = Keys::draw(&mut random, options.order);
        let many = *random.choose(&[1, 300, 3000]);
        let usual = *random.choose(&[20, 200]);
        let _shown = case(seed, &(&options, keys, many, usual));
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join("model.azt"), &options).unwrap();
        let mut model = Model::new();
        for step in 0..3 {
            for _ in 0..many {
                let key = keys.key(random.below(many));
                if step > 0 && !random.one_in(3) {
                    db.remove(&key).unwrap();
                    model.remove(&key);
                } else {
                    let value = value(&mut random, usual);
                    db.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            let before = all(&db);
            let snapshot = random.one_in(2).then(|| db.snapshot().unwrap());
            db.compact(&mut |_, _| ()).unwrap();
            assert!(all(&db) == model, "the records are others");
            if let Some(snapshot) = snapshot {
                assert!(all(&snapshot) == before, "a snapshot changed");
            }
            assert_eq!(db.count(), model.len() as u64);
            assert_sound(&db);
        }
        let path = db.path().to_path_buf();
        db.close().unwrap();
        let db = TreeDb::open(&path, &options.opening).unwrap();
        assert!(all(&db) == model, "the records are others after an open");
    }
}

#[test]
fn what_is_removed_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions::new().segment_size(64 << 10);
    let db = TreeDb::create(folder.path().join("removed.azt"), &options).unwrap();
    let mut random = Random::new(round_seed());
    for number in 0..4000_u64 {
        db.put(&eight(number), &random.bytes(6000)).unwrap();
    }
    for number in 0..4000_u64 {
        if !number.is_multiple_of(10) {
            db.remove(&eight(number)).unwrap();
        }
    }
    let before = len_of(&db);
    db.compact(&mut |_, _| ()).unwrap();
    let after = len_of(&db);
    // 400 values of two units, and little else.
    assert!(
        after < 400 * 8192 * 2 && after * 4 < before,
        "{before}, {after}"
    );
    assert_sound(&db);
    assert_eq!(db.count(), 400);
}

#[test]
fn readers_and_writers_continue() {
    let seed = round_seed();
    let mut random = Random::new(seed);
    let options = options(&mut random, true).order(azekura::order::Order::Lexical);
    let _shown = case(seed, &options);
    let folder = tempfile::tempdir().unwrap();
    let db = TreeDb::create(folder.path().join("threads.azt"), &options).unwrap();
    let many = 20_000_u64;
    // Records of a pair of keys are put together, with one value.
    let put = |number: u64, value: &[u8]| {
        let pair = [eight(number), eight(number + many)];
        let keys: Vec<&[u8]> = pair.iter().map(|key| &key[..]).collect();
        db.update_many(&keys, &mut |_| {
            let edit = || azekura::Edit::Put(value.to_vec().into());
            vec![edit(), edit()]
        })
        .unwrap();
    };
    for number in 0..many {
        put((number * 7919) % many, &eight(number));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (is_over, db, put) = (&is_over, &db, &put);
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread);
                while !is_over.load(Ordering::Relaxed) {
                    let number = random.below(many);
                    if random.one_in(2) {
                        let len = if random.one_in(50) { 3000 } else { 8 };
                        put(number, &random.bytes(len));
                    } else {
                        assert!(db.get(&eight(number)).unwrap().is_some());
                    }
                }
            });
        }
        for _ in 0..3 {
            db.compact(&mut |_, _| ()).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let found = all(&db);
    assert_eq!(found.len() as u64, 2 * many);
    for number in 0..many {
        let (first, second) = (
            &found[&eight(number)[..]],
            &found[&eight(number + many)[..]],
        );
        assert_eq!(first, second, "pair {number}");
    }
    assert_sound(&db);
}
