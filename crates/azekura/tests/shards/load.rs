//! Ascending records are loaded into an empty store of shards: all of them or none.
//!
//! The number of shards, the order and the records are drawn. A load ends, or fails at some record, or at some write, sync or growth
//! of one of its files, or the power is cut in it. Then the store must hold all records or nothing, also when it was opened again,
//! and take further updates, but where it states that it is to be opened again. A load into a store that has records, or of an engine without an order, is refused.

use std::panic::AssertUnwindSafe;
use std::path::Path;

use azekura::engine::Persistent as _;
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::order::Order;
use azekura::record::tree::{CreateOptions, TreeDb};
use azekura::shard::Sharded;
use azekura::testkit::crash::{Config, explore};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Error, Kind, Reader as _, Result, Verbs as _};

use super::{keys, scanned};

const NAME: &str = "loaded.azt";

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Records in this order, each key once.
fn draw(random: &mut Random, order: Order, most: u64) -> Records {
    let many = random.below(most + 1);
    let mut all: Records = keys(random, many)
        .into_iter()
        .map(|key| {
            let len = *random.choose(&[0, 10, 100, 100, 3000]);
            (key, random.bytes(len))
        })
        .collect();
    all.sort_by(|(a, _), (b, _)| order.compare(a, b));
    all.dedup_by(|(a, _), (b, _)| order.compare(a, b).is_eq());
    all
}

fn options(shards: usize, order: Order) -> CreateOptions {
    let shards = shards as u64;
    CreateOptions::new()
        .order(order)
        .segment_size(64u64 << 10)
        .cache(shards * (256 << 10))
        .capacity(shards * (16 << 20))
        .background(false)
}

fn load(db: &mut Sharded<TreeDb>, records: &Records) -> Result<u64> {
    db.load_sorted(records.iter().map(|(key, value)| Ok((key, value))))
}

/// Whether a store holds these records and is sound, each in its shard.
fn assert_holds(db: &Sharded<TreeDb>, records: &Records) {
    assert!(scanned(db) == *records, "other records are there");
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
    assert_eq!(report.records, records.len() as u64);
}

/// What ends a load before its end.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Order,
    Twice,
    TooLarge,
    Input,
    Panic,
}

/// A load that something wrong ends at a record; whether the store is to be opened again.
fn load_with(db: &mut Sharded<TreeDb>, records: &Records, at: usize, wrong: Wrong) -> bool {
    let item = |number: usize| {
        let (key, value) = &records[number];
        if number != at {
            return Ok((key.clone(), value.clone()));
        }
        match wrong {
            Wrong::Order => Ok((records[number - 2].0.clone(), value.clone())),
            Wrong::Twice => Ok((records[number - 1].0.clone(), value.clone())),
            Wrong::TooLarge => Ok((vec![b'9'; 9 << 20], value.clone())),
            Wrong::Input => Err(Error::new(Kind::Conflict, "the input ends")),
            Wrong::Panic => panic!("the input panics"),
        }
    };
    let items = (0..records.len()).map(item);
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| db.load_sorted(items)));
    let expected = match wrong {
        Wrong::Order | Wrong::Twice => Kind::Invalid,
        Wrong::TooLarge => Kind::TooLarge,
        Wrong::Input => Kind::Conflict,
        Wrong::Panic => {
            assert!(done.is_err());
            return true;
        }
    };
    let error = done.unwrap().unwrap_err();
    assert_eq!(error.kind(), expected, "{error}");
    if !matches!(wrong, Wrong::Input) {
        let number = format!("record {} to load", at + 1);
        assert!(error.to_string().contains(&number), "{error}");
    }
    false
}

#[test]
fn a_load_keeps_all_records_or_none() {
    let (mut loaded, mut failed) = (0, 0);
    for round in 0..share(60).max(12) {
        let seed = round + round_seed();
        let mut random = Random::new(seed ^ 0x10ad);
        let shards = *random.choose(&[1, 2, 3, 8]);
        let order = *random.choose(&[Order::Lexical, Order::Lexical, Order::Decimal]);
        let most = *random.choose(&[3, 300, 3000]);
        let records = draw(&mut random, order, most);
        let _shown = case(seed, &(shards, order, records.len()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let options = options(shards, order);
        let mut db = Sharded::<TreeDb>::create(&path, shards, &options).unwrap();
        let wrongs = [
            Wrong::Order,
            Wrong::Twice,
            Wrong::TooLarge,
            Wrong::Input,
            Wrong::Panic,
        ];
        if records.len() > 2 {
            for wrong in wrongs {
                let at = 2 + random.index(records.len() - 2);
                if load_with(&mut db, &records, at, wrong) {
                    let error = db.put(b"key", b"value").unwrap_err();
                    assert_eq!(error.kind(), Kind::Poisoned, "{error}");
                    assert_eq!(load(&mut db, &records).unwrap_err().kind(), Kind::Poisoned);
                    drop(db);
                    db = Sharded::open(&path, &options.opening).unwrap();
                }
                assert_holds(&db, &Vec::new());
                failed += 1;
            }
        }
        db.put(b"other", b"1").unwrap();
        let error = load(&mut db, &records).unwrap_err();
        assert!(error.to_string().contains("empty store only"), "{error}");
        assert!(db.remove(b"other").unwrap());
        assert_eq!(load(&mut db, &records).unwrap(), records.len() as u64);
        assert_holds(&db, &records);
        drop(db);
        let db = Sharded::<TreeDb>::open(&path, &options.opening).unwrap();
        assert_holds(&db, &records);
        db.put(b"other", b"1").unwrap();
        loaded += records.len() as u64;
    }
    tried_at_least(loaded, 10_000, "records loaded into shards");
    tried_at_least(failed, 120, "loads of shards that failed");
}

/// The power is cut, or the process dies, at any moment of a load.
#[test]
fn a_load_that_is_cut_leaves_all_records_or_none() {
    let mut states = 0;
    for round in 0..share(10) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let shards = 2 + random.index(3);
        let records = draw(&mut random, Order::Lexical, 400);
        let options = options(shards, Order::Lexical);
        let _shown = case(seed, &(shards, records.len()));
        let config = Config {
            recovery_one_in: 24,
            recovery_cuts_max: 4,
            ..Config::new(seed).quick(24)
        };
        let counts = explore(
            &config,
            |disk, ledger| {
                let folder = disk.directory();
                let made = Sharded::<TreeDb>::create_in(&folder, Path::new(NAME), shards, &options);
                let mut db = made.unwrap();
                ledger.cut_from_here();
                ledger.operation(|| load(&mut db, &records)).unwrap();
                ledger.synced();
            },
            |crash| {
                let folder = crash.disk.directory();
                let opened = Sharded::<TreeDb>::open_in(&folder, Path::new(NAME), &options.opening);
                let db = opened.map_err(|error| format!("no open: {error}"))?;
                crash.recovered();
                let found = scanned(&db);
                let is_all = found == records;
                if !is_all && (crash.kept() > 0 || !found.is_empty()) {
                    return Err(format!("{} of {} records", found.len(), records.len()));
                }
                let report = db.check(&mut |_, _| {}).map_err(|e| e.to_string())?;
                if !report.is_sound() {
                    return Err(format!("not sound: {:?}", report.damage));
                }
                db.put(b"afterwards", b"value").map_err(|e| e.to_string())?;
                Ok(u64::from(is_all))
            },
        );
        states += counts.crash_states + counts.recovery_cuts + counts.kills;
    }
    tried_at_least(states, 6000, "states after a crash within a load of shards");
}

/// A write, a sync or a growth of one of the files fails.
#[test]
fn a_load_that_a_file_fails_leaves_all_records_or_none() {
    let mut failed = 0;
    let mut random = Random::new(round_seed());
    let mut records = draw(&mut random, Order::Lexical, 300);
    records.push((vec![0xff; 40], vec![1; 100_000]));
    let options = options(3, Order::Lexical);
    let step = if share(2) == 2 { 1 } else { 3 };
    for operation in [Operation::Sync, Operation::Write, Operation::Resize] {
        for nth in (0..).step_by(step) {
            let disk = SimDisk::new(7);
            let folder = disk.directory();
            let made = Sharded::<TreeDb>::create_in(&folder, Path::new(NAME), 3, &options);
            let mut db = made.unwrap();
            let before = disk.faults().count(operation);
            disk.faults().fail(operation, before + nth, Fault::Error);
            let done = load(&mut db, &records);
            if disk.faults().struck() == 0 {
                done.unwrap();
                break;
            }
            disk.faults().clear();
            failed += u64::from(done.is_err());
            if done.is_err() && db.put(b"later", b"value").is_ok() {
                assert_eq!(db.count(), 1, "nothing is left but what came later");
                assert!(db.remove(b"later").unwrap());
            }
            drop(db);
            let opened = Sharded::<TreeDb>::open_in(&folder, Path::new(NAME), &options.opening);
            let db = opened.unwrap();
            let left = if done.is_ok() { &records } else { &Vec::new() };
            let found = scanned(&db);
            assert!(
                found == *left || found == records,
                "{operation:?} {nth}: {} of {}",
                found.len(),
                records.len()
            );
            db.put(b"later", b"value").unwrap();
        }
    }
    tried_at_least(failed, 20, "loads of shards in which a file fails");
}

#[test]
fn a_store_loads_whatever_its_files_if_they_have_an_order() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let records = || (0..100).map(|n| Ok((format!("{n:03}"), n.to_string())));
    for name in ["one.azt", "four.azt?shards=4"] {
        let mut db = azekura::create(at(name)).unwrap();
        assert_eq!(db.load_sorted(records()).unwrap(), 100);
        assert_eq!(db.get("042").unwrap().as_deref(), Some(&b"42"[..]));
        assert_eq!(db.load_sorted(records()).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(db.count(), 100);
    }
    for name in ["one.azh", "four.azh?shards=4"] {
        let mut db = azekura::create(at(name)).unwrap();
        let error = db.load_sorted(records()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("no order of keys"), "{error}");
    }
}
