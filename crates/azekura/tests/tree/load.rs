//! Ascending records are loaded into an empty tree: all of them or none.
//!
//! The records are drawn, with values outside of leaves and long keys among them, and so is the configuration; the store is a new one, one
//! that was cleared, or one whose records were removed one by one. A load ends, or fails at some record: of the input, of its order, of the
//! room. Then the store must hold all, or nothing, also when it was opened again, and take further updates. Snapshots taken before see
//! nothing. Cuts of the power within loads are in `power`.

use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;

use azekura::engine::{Engine, Persistent, Reader};
use azekura::order::Order;
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Error, Kind, Result};

use super::{Keys, eight, opening, options, value};

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Records in the order of their keys, each key once.
fn draw(random: &mut Random, keys: Keys, most: u64) -> Records {
    let count = random.below(most + 1);
    let mut all: Records = (0..count)
        .map(|number| (keys.key(number), value(random, 80)))
        .collect();
    all.sort_by(|(a, _), (b, _)| keys.order.compare(a, b));
    all.dedup_by(|(a, _), (b, _)| keys.order.compare(a, b).is_eq());
    all
}

fn load(db: &TreeDb, records: &Records) -> Result<u64> {
    db.load_sorted(records.iter().map(|(key, value)| Ok((key, value))))
}

fn all_of(db: &TreeDb) -> Records {
    let mut all = Vec::new();
    db.scan(None, &mut |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

fn check(db: &TreeDb, expected: &Records) {
    assert_eq!(db.count() as usize, expected.len());
    assert!(all_of(db) == *expected, "other records are there");
    for (key, value) in expected.iter().step_by(1 + expected.len() / 50) {
        assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
    }
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

/// What ends a load before its end.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Order,
    Twice,
    TooLarge,
    Input,
    Panic,
}

/// A load that a fault ends at a record.
fn load_with(db: &TreeDb, records: &Records, at: usize, fault: Fault) {
    let item = |number: usize| {
        let (key, value) = &records[number];
        if number != at {
            return Ok((key.clone(), value.clone()));
        }
        match fault {
            Fault::Order => Ok((records[number - 2].0.clone(), value.clone())),
            Fault::Twice => Ok((records[number - 1].0.clone(), value.clone())),
            Fault::TooLarge => Ok((vec![b'9'; 9 << 20], value.clone())),
            Fault::Input => Err(Error::new(Kind::Conflict, "the input ends")),
            Fault::Panic => panic!("the input panics"),
        }
    };
    let items = (0..records.len()).map(item);
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| db.load_sorted(items)));
    let expected = match fault {
        Fault::Order | Fault::Twice => Kind::Invalid,
        Fault::TooLarge => Kind::TooLarge,
        Fault::Input => Kind::Conflict,
        Fault::Panic => {
            assert!(done.is_err());
            return;
        }
    };
    let error = done.unwrap().unwrap_err();
    assert_eq!(error.kind(), expected, "{error}");
    if !matches!(fault, Fault::Input) {
        let number = format!("record {} to load", at + 1);
        assert!(error.to_string().contains(&number), "{error}");
    }
}

#[test]
fn a_load_keeps_all_records_or_none() {
    let (mut loaded, mut failed) = (0, 0);
    for round in 0..share(60).max(6) {
        let seed = round + round_seed();
        let mut random = Random::new(seed ^ 0x10ad);
        let drawn = options(&mut random, seed.is_multiple_of(2));
        let keys = Keys::draw(&mut random, drawn.order);
        let most = *random.choose(&[3, 300, 3000, 20_000]);
        let before = random.below(4);
        let _shown = case(seed, &(&drawn, keys, most, before));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let db = TreeDb::create(&path, &drawn).unwrap();
        let records = draw(&mut random, keys, most);
        match before {
            0 => {}
            1 => {
                for (key, _) in &records {
                    db.put(key, b"before").unwrap();
                }
                db.clear().unwrap();
            }
            2 => {
                for (key, _) in records.iter().rev() {
                    db.put(key, b"before").unwrap();
                }
                for (key, _) in &records {
                    db.remove(key).unwrap();
                }
            }
            _ => {
                load(&db, &records).unwrap();
                if !records.is_empty() {
                    let error = load(&db, &records).unwrap_err();
                    assert_eq!(error.kind(), Kind::Invalid);
                    assert!(error.to_string().contains("into an empty store only"));
                }
                check(&db, &records);
                db.clear().unwrap();
            }
        }
        let snapshot = db.snapshot().unwrap();
        if records.len() > 3 {
            for _ in 0..2 {
                let fault = *random.choose(&[
                    Fault::Order,
                    Fault::Twice,
                    Fault::TooLarge,
                    Fault::Input,
                    Fault::Panic,
                ]);
                let at = 2 + random.index(records.len() - 2);
                load_with(&db, &records, at, fault);
                check(&db, &Vec::new());
                failed += 1;
                // What comes after it stands in the journal again: a process that is killed now keeps that.
                if !drawn.opening.background {
                    let (key, left) = (&records[at].0, folder.path().join("left.azt"));
                    db.put(key, b"kept").unwrap();
                    std::fs::copy(&path, &left).unwrap();
                    assert!(db.remove(key).unwrap());
                    let left = TreeDb::open(&left, &OpenOptions::new()).unwrap();
                    assert_eq!(left.get(key).unwrap().as_deref(), Some(&b"kept"[..]));
                    assert_eq!(left.count(), 1);
                }
            }
        }
        assert_eq!(load(&db, &records).unwrap() as usize, records.len());
        loaded += records.len() as u64;
        assert_eq!(snapshot.count(), 0);
        let any = snapshot.scan(None, &mut |_, _| panic!("a record of the load"));
        assert!(any.unwrap().is_none());
        for (key, _) in records.iter().step_by(1 + records.len() / 20) {
            assert_eq!(snapshot.get(key).unwrap(), None);
        }
        drop(snapshot);
        check(&db, &records);
        drop(db);
        let db = TreeDb::open(&path, &opening(&mut random, false)).unwrap();
        check(&db, &records);
        // It is a store as any other.
        let mut left = records;
        for (key, value) in left.iter_mut().filter(|_| random.one_in(3)) {
            db.put(key, b"after").unwrap();
            *value = b"after".to_vec();
        }
        let gone: Records = left.extract_if(.., |_| random.one_in(2)).collect();
        for (key, _) in &gone {
            assert!(db.remove(key).unwrap());
        }
        check(&db, &left);
        db.checkpoint().unwrap();
        drop(db);
        check(&TreeDb::open(&path, &OpenOptions::new()).unwrap(), &left);
    }
    tried_at_least(loaded, 30_000, "records loaded");
    tried_at_least(failed, 40, "loads that failed");
}

/// A store that cannot hold what is loaded is empty afterwards, and takes as many records as before.
#[test]
fn a_load_that_finds_no_room_leaves_nothing() {
    let mut failed = 0;
    for round in 0..share(16).max(4) {
        let seed = round + round_seed();
        let mut random = Random::new(seed ^ 0xf011);
        let opening = OpenOptions::new()
            .cache(*random.choose(&[256 << 10, 1 << 20, 64 << 20]))
            .background(random.one_in(2))
            .capacity(*random.choose(&[2 << 20, 4 << 20, 8 << 20]));
        let len = *random.choose(&[20, 300, 3000]);
        let drawn = CreateOptions::new()
            .segment_size(64u64 << 10)
            .opening(opening);
        let _shown = case(seed, &(&drawn, len));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let db = TreeDb::create(&path, &drawn).unwrap();
        let mut most = None;
        for _ in 0..3 {
            let mut given = 0;
            let records = (0..u64::MAX).map(|number| {
                given = number;
                Ok((eight(number), vec![number as u8; len]))
            });
            let error = db.load_sorted(records).unwrap_err();
            assert_eq!(error.kind(), Kind::Full, "{error}");
            failed += 1;
            check(&db, &Vec::new());
            // Where it fails differs by what the checkpoint has left.
            let first = *most.get_or_insert(given);
            assert!(given > first / 2, "{given} of {first}");
            let half: Records = (0..first / 2)
                .map(|number| (eight(number).to_vec(), vec![number as u8; len]))
                .collect();
            load(&db, &half).unwrap();
            check(&db, &half);
            db.clear().unwrap();
        }
        drop(db);
        check(&TreeDb::open(&path, &drawn.opening).unwrap(), &Vec::new());
    }
    tried_at_least(failed, 10, "loads that found no room");
}

/// Leaves are full: of a million records of 8 and 8 bytes each takes no more of the file than this.
#[test]
fn a_loaded_file_has_no_room_to_spare() {
    const COUNT: u64 = 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let db = TreeDb::create(&path, &CreateOptions::new()).unwrap();
    let records = (0..COUNT).map(|number| Ok((eight(number), eight(!number))));
    assert_eq!(db.load_sorted(records).unwrap(), COUNT);
    db.close().unwrap();
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < COUNT * 24, "{bytes}");
    let db = TreeDb::open(&path, &OpenOptions::new().cache(1 << 20)).unwrap();
    let mut next = 0;
    db.scan(None, &mut |key, value| {
        assert_eq!((key, value), (&eight(next)[..], &eight(!next)[..]));
        next += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(next, COUNT);
}

#[test]
fn an_order_other_than_that_of_bytes_is_the_one_that_counts() {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions::new().order(Order::Decimal);
    let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    let error = db
        .load_sorted(["10", "9"].map(|key| Ok((key, ""))))
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("record 2 to load"), "{text}");
    assert!(
        text.contains("found \"9\", expected a key after \"10\""),
        "{text}"
    );
    let loaded = db.load_sorted(["9", "10"].map(|key| Ok((key, ""))));
    assert_eq!(loaded.unwrap(), 2);
}
