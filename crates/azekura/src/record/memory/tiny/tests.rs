//! The engine alone: what room it takes while records come and go, and its limits.
//!
//! The threads of other tests may be pinned meanwhile, so bounds are asked for with room to spare.
//! The contract is tested in `tests/tiny.rs`, with threads.

use super::*;
use crate::error::Kind;
use crate::testkit::random::Random;
use crate::verbs::Verbs as _;

#[test]
fn memory_does_not_grow_under_overwrites_and_changes_of_length() {
    let db = TinyDb::new().unwrap();
    let mut random = Random::new(3);
    let mut most = [0; 4];
    for (round, value_len) in [8usize, 200, 8, 200].into_iter().enumerate() {
        for _ in 0..600_000 {
            let key = random.below(100_000).to_le_bytes();
            db.put(&key, &vec![1; value_len]).unwrap();
        }
        most[round] = db.slab.memory_bytes();
    }
    let live = 100_000 * Slab::bytes_of(8, 200, false);
    assert!(most[3] < 2 * live + (16 << 20), "{most:?}");
}

#[test]
fn an_emptied_store_gives_its_memory_back() {
    let db = TinyDb::new().unwrap();
    for key in 0..500_000u64 {
        db.put(&key.to_le_bytes(), &[7; 40]).unwrap();
    }
    let full = db.slab.memory_bytes();
    for key in (0..500_000u64).filter(|key| key % 50 != 0) {
        assert!(db.remove(&key.to_le_bytes()).unwrap());
    }
    for key in (0..500_000u64).step_by(50) {
        assert_eq!(db.get(&key.to_le_bytes()).unwrap(), Some(vec![7; 40]));
    }
    assert!(
        db.slab.memory_bytes() < full * 2 / 3,
        "{} of {full}",
        db.slab.memory_bytes()
    );
    assert_eq!(db.count(), 10_000);
    db.clear().unwrap();
    assert_eq!(
        (db.count(), db.get(&0u64.to_le_bytes()).unwrap()),
        (0, None)
    );
}

#[test]
fn a_limit_answers_full_and_loses_nothing() {
    assert_eq!(
        TinyDb::with(&Options {
            memory_limit: Some(0)
        })
        .unwrap_err()
        .kind(),
        Kind::Invalid
    );
    let db = TinyDb::with(&Options {
        memory_limit: Some(4 << 20),
    })
    .unwrap();
    let mut put = 0u64;
    let error = loop {
        match db.put(&put.to_le_bytes(), &[3; 100]) {
            Ok(()) => put += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::Full);
    assert!(put > 20_000 && db.count() == put);
    assert_eq!(
        db.update(b"other", &mut |_| Edit::put(&[0; 5000]))
            .unwrap_err()
            .kind(),
        Kind::Full
    );
    for key in 0..put {
        assert_eq!(db.get(&key.to_le_bytes()).unwrap(), Some(vec![3; 100]));
    }
    for key in 0..put / 2 {
        assert!(db.remove(&key.to_le_bytes()).unwrap());
    }
    for key in 0..put / 4 {
        db.put(&key.to_le_bytes(), &[4; 100]).unwrap();
    }
}

#[test]
fn verbs_work_on_it() {
    let db = TinyDb::new().unwrap();
    db.append(b"list", b"a", b",").unwrap();
    db.append(b"list", b"b", b",").unwrap();
    assert_eq!(db.get(b"list").unwrap(), Some(b"a,b".to_vec()));
    let long = vec![9u8; 3 << 20];
    db.put(b"long", &long).unwrap();
    db.put(b"", b"").unwrap();
    assert_eq!(db.get(b"long").unwrap().as_ref(), Some(&long));
    assert_eq!(db.get(b"").unwrap(), Some(Vec::new()));
    assert_eq!(db.count(), 3);
    let key = vec![1u8; 8 << 20];
    assert_eq!(db.put(&key, b"").unwrap_err().kind(), Kind::TooLarge);
}
