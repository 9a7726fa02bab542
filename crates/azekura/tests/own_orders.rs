//! Orders that a program registers: stores of every engine are in them, keep their names through every copy and repair, are refused where
//! they are not registered, and stay whole when a comparator panics.
//!
//! The conformance suite runs in each; a comparator that panics now and then, as its thread states, is held against a model: what was
//! under way is done wholly or not at all. Lines beginning `tried:` state how much was tried.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use azekura::engine::{Edit, Engine, Persistent};
use azekura::order::Order;
use azekura::record::memory::baby::{BabyDb, Options};
use azekura::record::skip::{self, BuildOptions, EditOptions, SkipBuilder, SkipDb, SkipReader};
use azekura::record::tree::{self, CreateOptions, TreeDb};
use azekura::shard::Sharded;
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Effort, Random, conformance, round_seed};
use azekura::{Kind, Reader as _, Verbs as _};

type Key = Vec<u8>;

/// By the last byte, then by the one before, and so on.
fn by_suffix(a: &[u8], b: &[u8]) -> Ordering {
    a.iter().rev().cmp(b.iter().rev())
}

/// Which deems most keys equal.
fn by_sum(a: &[u8], b: &[u8]) -> Ordering {
    let sum = |key: &[u8]| key.iter().fold(0_u64, |sum, byte| sum + u64::from(*byte)) % 7;
    sum(a).cmp(&sum(b))
}

thread_local! {
    /// After how many comparisons one panics; 0: none does.
    static PANICS_AFTER: Cell<u64> = const { Cell::new(0) };
}

/// In reverse, but that it panics where its thread wants that.
fn panicking(a: &[u8], b: &[u8]) -> Ordering {
    let after = PANICS_AFTER.get();
    if after > 0 {
        PANICS_AFTER.set(after - 1);
        if after == 1 {
            // Without the message of a panic, of which there are thousands.
            resume_unwind(Box::new("a comparator panics"));
        }
    }
    b.cmp(a)
}

/// The orders, registered once in this process.
fn orders() -> [Order; 3] {
    static ORDERS: OnceLock<[Order; 3]> = OnceLock::new();
    *ORDERS.get_or_init(|| {
        [
            Order::register("test.by-suffix", by_suffix).unwrap(),
            Order::register("test.by-sum", by_sum).unwrap(),
            Order::register("test.panicking", panicking).unwrap(),
        ]
    })
}

fn scanned(db: &dyn Engine) -> Vec<(Key, Key)> {
    let mut all = Vec::new();
    let end = db.scan(None, &mut |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    all
}

/// What a scan of these records shows.
fn sorted(records: &BTreeMap<Key, Key>, order: Order) -> Vec<(Key, Key)> {
    let mut all: Vec<_> = records.clone().into_iter().collect();
    all.sort_by(|(a, _), (b, _)| order.compare(a, b));
    all
}

#[test]
fn every_ordered_engine_conforms_in_an_order_of_the_programs_own() {
    let mut total = 0;
    let folder = tempfile::tempdir().unwrap();
    let number = AtomicU64::new(0);
    let fresh = |end| {
        folder
            .path()
            .join(format!("{}.{end}", number.fetch_add(1, Relaxed)))
    };
    for (nth, order) in orders().into_iter().enumerate() {
        let effort = Effort {
            sequences: 20,
            histories: 10,
            ..Effort::quick()
        };
        let make =
            || -> Box<dyn Engine> { Box::new(BabyDb::with(&Options::new().order(order)).unwrap()) };
        total += conformance(&make, None, &effort).unwrap().total();
        if nth == 1 {
            continue;
        }
        let options = CreateOptions::new()
            .order(order)
            .segment_size(64u64 << 10)
            .cache(1u64 << 20);
        let make =
            || -> Box<dyn Engine> { Box::new(TreeDb::create(fresh("azt"), &options).unwrap()) };
        let reopen = |engine: Box<dyn Engine>| -> Box<dyn Engine> {
            let file = engine.as_persistent().unwrap().path().to_path_buf();
            drop(engine);
            let opening = options.opening.clone().expected_order(order);
            Box::new(TreeDb::open(file, &opening).unwrap())
        };
        total += conformance(&make, Some(&reopen), &effort).unwrap().total();
        if nth == 2 {
            continue;
        }
        let options = EditOptions::new().order(order);
        let make =
            || -> Box<dyn Engine> { Box::new(SkipDb::create(fresh("azs"), &options).unwrap()) };
        let reopen = |engine: Box<dyn Engine>| -> Box<dyn Engine> {
            let file = engine.as_persistent().unwrap().path().to_path_buf();
            drop(engine);
            Box::new(SkipDb::open(file, &options).unwrap())
        };
        total += conformance(&make, Some(&reopen), &effort).unwrap().total();
    }
    tried_at_least(total, 30_000, "answers in orders of the program's own");
}

#[test]
fn the_order_stays_through_copies_repairs_and_merges() {
    for order in orders() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut random = Random::new(5 + round_seed());
        let records: BTreeMap<Key, Key> = (0..3000)
            .map(|_| (random.clone().bytes(random.index(12)), random.bytes(20)))
            .collect();
        let expected = sorted(&records, order);
        let options = CreateOptions::new().order(order).cache(1u64 << 20);
        let db = TreeDb::create(at("a.azt"), &options).unwrap();
        for (key, value) in &records {
            db.put(key, value).unwrap();
        }
        db.copy_to(&at("copy.azt"), &mut |_, _| {}).unwrap();
        db.close().unwrap();
        tree::repair(&at("a.azt"), &at("repaired.azt"), &mut |_, _| {}).unwrap();
        for name in ["a.azt", "copy.azt", "repaired.azt"] {
            let db = azekura::open(at(name)).unwrap();
            assert_eq!(db.order(), Some(order), "{name}");
            let found: Vec<_> = db.range::<&[u8]>(..).unwrap().map(Result::unwrap).collect();
            assert_eq!(found, expected, "{name}");
            assert!(db.check(|_, _| {}).unwrap().is_sound());
            db.close().unwrap();
        }
        let other = at(&format!("a.azt?order={}", order.name()));
        assert_eq!(azekura::open(other).unwrap().count(), expected.len() as u64);
        let wrong = azekura::open(at("a.azt?order=lexical"))
            .map(drop)
            .unwrap_err();
        assert!(wrong.to_string().contains(order.name()), "{wrong}");
        let shards = Sharded::<TreeDb>::create(at("b.azt"), 3, &options).unwrap();
        for (key, value) in &records {
            shards.put(key, value).unwrap();
        }
        shards.close().unwrap();
        assert_eq!(
            scanned(&*azekura::open::open(&at("b.azt")).unwrap()),
            expected
        );
        // Sorted files: built from any order of input, merged, edited, repaired.
        let options = BuildOptions::new().order(order);
        let mut builder = SkipBuilder::create(at("a.azs"), &options).unwrap();
        for (key, value) in records.iter().step_by(2) {
            builder.put(key, value).unwrap();
        }
        builder.finish(&mut |_, _| {}).unwrap();
        let db = SkipDb::open(at("a.azs"), &EditOptions::new()).unwrap();
        for (key, value) in records.iter().skip(1).step_by(2) {
            db.put(key, value).unwrap();
        }
        db.merge(&mut |_, _| {}).unwrap();
        assert_eq!((db.order(), scanned(&db)), (order, expected));
        db.close().unwrap();
        skip::repair(&at("a.azs"), &at("r.azs"), &mut |_, _| {}).unwrap();
        let reader = SkipReader::open(at("r.azs")).unwrap();
        assert_eq!(
            (reader.order(), reader.count()),
            (order, records.len() as u64)
        );
    }
}

/// Set for the child: the folder of files whose order it does not know.
const UNKNOWN: &str = "AZEKURA_TEST_UNKNOWN_ORDER";

#[test]
fn a_file_in_an_order_that_is_not_registered_is_refused() {
    if let Some(folder) = std::env::var_os(UNKNOWN) {
        refuses(Path::new(&folder));
        writeln!(std::io::stdout(), "\nrefused").unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let [order, ..] = orders();
    let options = CreateOptions::new().order(order);
    let db = TreeDb::create(at("a.azt"), &options).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    Sharded::<TreeDb>::create(at("b.azt"), 2, &options)
        .unwrap()
        .close()
        .unwrap();
    let options = BuildOptions::new().order(order);
    let builder = SkipBuilder::create(at("a.azs"), &options).unwrap();
    builder.finish(&mut |_, _| {}).unwrap();
    let before = std::fs::read(at("a.azt")).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_file_in_an_order_that_is_not_registered_is_refused",
            "--nocapture",
        ])
        .env(UNKNOWN, folder.path())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && shown.contains("\nrefused"),
        "{shown}"
    );
    // The child opened it in the end, so it is another; but what it was refused it left alone.
    assert_eq!(std::fs::read(at("before.azt")).unwrap(), before);
}

fn refuses(folder: &Path) {
    let at = |name: &str| folder.join(name);
    let refused = |result: azekura::Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), Kind::Mismatch, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("\"test.by-suffix\"") && text.contains("Order::register"),
            "{text}"
        );
    };
    refused(azekura::open(at("a.azt")).map(drop));
    refused(azekura::open(at("b.azt")).map(drop));
    refused(azekura::open::open(&at("a.azt")).map(drop));
    refused(azekura::open::open_read_only(&at("a.azt")).map(drop));
    refused(TreeDb::open(at("a.azt"), &tree::OpenOptions::new()).map(drop));
    refused(tree::repair(&at("a.azt"), &at("r.azt"), &mut |_, _| {}).map(drop));
    refused(SkipReader::open(at("a.azs")).map(drop));
    refused(SkipDb::open(at("a.azs"), &EditOptions::new()).map(drop));
    assert!(!at("r.azt").exists());
    std::fs::copy(at("a.azt"), at("before.azt")).unwrap();
    let order = Order::register("test.by-suffix", by_suffix).unwrap();
    let db = azekura::open(at("a.azt")).unwrap();
    assert_eq!((db.order(), db.count()), (Some(order), 1));
}

/// One operation: what becomes of each of its keys.
type Edits = BTreeMap<Key, Option<Key>>;

fn drawn(random: &mut Random, keys: u64) -> Edits {
    let count = *random.choose(&[1, 1, 1, 3, 30]);
    let edit = |random: &mut Random| {
        let number = random.below(keys);
        let len = (number % 90) as usize;
        let key = [format!("{number:05}").into_bytes(), vec![b'k'; len]].concat();
        let value = *random.choose(&[5, 60, 400, 3000]);
        let value = (!random.one_in(3)).then(|| random.bytes(value));
        (key, value)
    };
    (0..count).map(|_| edit(random)).collect()
}

fn apply(db: &dyn Engine, edits: &Edits, by_closure: bool) -> azekura::Result<()> {
    let edit = |value: &Option<Key>| match value {
        Some(value) => Edit::Put(value.clone().into()),
        None => Edit::Remove,
    };
    match edits.iter().next() {
        Some((key, Some(value))) if edits.len() == 1 && !by_closure => db.put(key, value),
        Some((key, None)) if edits.len() == 1 && !by_closure => db.remove(key).map(drop),
        Some((key, value)) if edits.len() == 1 => db.update(key, &mut |_| edit(value)),
        _ => {
            let keys: Vec<&[u8]> = edits.keys().map(Vec::as_slice).collect();
            db.update_many(&keys, &mut |_| edits.values().map(edit).collect())
        }
    }
}

/// Whether each of these keys is as the edits leave it (`true`), or as it was.
fn is_done(db: &dyn Engine, edits: &Edits, records: &BTreeMap<Key, Key>) -> bool {
    let found: Vec<_> = edits.keys().map(|key| db.get(key).unwrap()).collect();
    if found.iter().eq(edits.values()) {
        return true;
    }
    let before: Vec<_> = edits.keys().map(|key| records.get(key).cloned()).collect();
    assert_eq!(found, before, "an update is done in part");
    false
}

/// Edits a store while its comparator panics now and then; what it holds then, and how many operations panicked.
fn edit_with_panics(
    mut db: Box<dyn Engine>,
    reopen: &dyn Fn(Box<dyn Engine>) -> Box<dyn Engine>,
    seed: u64,
    steps: u64,
) -> (Box<dyn Engine>, BTreeMap<Key, Key>, u64) {
    let mut random = Random::new(seed);
    let keys = *random.choose(&[50, 600, 4000]);
    let mut records = BTreeMap::new();
    let mut panics = 0;
    for step in 0..steps {
        let edits = drawn(&mut random, keys);
        let by_closure = random.one_in(2);
        if random.one_in(2) {
            PANICS_AFTER.set(1 + random.below(60));
        }
        let applied = catch_unwind(AssertUnwindSafe(|| apply(&*db, &edits, by_closure)));
        PANICS_AFTER.set(0);
        let done = match applied {
            Ok(Ok(())) => true,
            // More leaves than the cache may have locked.
            Ok(Err(error)) if error.kind() == Kind::TooLarge => {
                assert!(!is_done(&*db, &edits, &records), "{error}");
                false
            }
            Ok(Err(error)) => {
                assert_eq!(error.kind(), Kind::Poisoned, "{error}");
                db = reopen(db);
                is_done(&*db, &edits, &records)
            }
            Err(_) => {
                panics += 1;
                if db.get(b"0").is_err() || db.put(b"probe", b"").is_err() {
                    db = reopen(db);
                } else {
                    db.remove(b"probe").unwrap();
                }
                is_done(&*db, &edits, &records)
            }
        };
        if done {
            for (key, value) in edits {
                match value {
                    Some(value) => drop(records.insert(key, value)),
                    None => drop(records.remove(&key)),
                }
            }
        }
        // Readers, too.
        PANICS_AFTER.set(1 + random.below(30));
        let key = format!("{:05}", random.below(keys));
        let _ = catch_unwind(AssertUnwindSafe(|| db.get(key.as_bytes())));
        PANICS_AFTER.set(0);
        if step % 200 == 0 {
            assert_eq!(scanned(&*db), sorted(&records, orders()[2]), "step {step}");
        }
    }
    assert_eq!(scanned(&*db), sorted(&records, orders()[2]));
    assert_eq!(db.count(), records.len() as u64);
    (db, records, panics)
}

#[test]
fn a_comparator_that_panics_leaves_every_store_whole() {
    let [_, _, order] = orders();
    let mut tried = 0;
    for round in 0..share(30) {
        let seed = round + round_seed();
        let _shown = case(seed, &"panics");
        let none = |_: Box<dyn Engine>| -> Box<dyn Engine> { panic!("it is in memory") };
        let baby = BabyDb::with(&Options::new().order(order)).unwrap();
        let (db, .., panics) = edit_with_panics(Box::new(baby), &none, seed, 1500);
        tried += panics;
        // What was taken for an update that panicked was given back.
        db.clear().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let options = CreateOptions::new()
            .order(order)
            .segment_size(64u64 << 10)
            .cache(*Random::new(seed).choose(&[512u64 << 10, 4 << 20]))
            .background(seed.is_multiple_of(2));
        let made = TreeDb::create(&path, &options).unwrap();
        let again = |engine: Box<dyn Engine>| -> Box<dyn Engine> {
            drop(engine);
            Box::new(TreeDb::open(&path, &options.opening).unwrap())
        };
        let (db, records, panics) = edit_with_panics(Box::new(made), &again, seed, 1500);
        tried += panics;
        let report = db.as_persistent().unwrap().check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
        let db = again(db);
        assert_eq!(scanned(&*db), sorted(&records, order));
        let report = db.as_persistent().unwrap().check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
        let path = folder.path().join("a.azs");
        let options = EditOptions::new().order(order).memory(256u64 << 10);
        let made = SkipDb::create(&path, &options).unwrap();
        let again = |engine: Box<dyn Engine>| -> Box<dyn Engine> {
            drop(engine);
            Box::new(SkipDb::open(&path, &options).unwrap())
        };
        let (db, records, panics) = edit_with_panics(Box::new(made), &again, seed, 1000);
        tried += panics;
        assert_eq!(scanned(&*again(db)), sorted(&records, order));
    }
    tried_at_least(tried, 15_000, "operations whose comparator panicked");
}

#[test]
fn threads_whose_comparators_panic_do_not_disturb_each_other() {
    let [_, _, order] = orders();
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions::new().order(order).cache(1u64 << 20);
    let tree = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    let baby = BabyDb::with(&Options::new().order(order)).unwrap();
    let stores: [&dyn Engine; 2] = [&tree, &baby];
    let steps = share(20_000);
    for db in stores {
        let models: Vec<BTreeMap<Key, Key>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut random = Random::new(thread + round_seed());
                        let mut records = BTreeMap::new();
                        for _ in 0..steps {
                            // Keys of its own, among those of the others.
                            let edits = drawn(&mut random, 300);
                            let own = |key: Key| [key, vec![b'a' + thread as u8]].concat();
                            let edits: Edits = edits
                                .into_iter()
                                .map(|(key, value)| (own(key), value))
                                .collect();
                            if thread < 2 && random.one_in(2) {
                                PANICS_AFTER.set(1 + random.below(60));
                            }
                            let applied =
                                catch_unwind(AssertUnwindSafe(|| apply(db, &edits, true)));
                            PANICS_AFTER.set(0);
                            let done = match applied {
                                Ok(applied) => applied.map(|()| true).unwrap(),
                                Err(_) => is_done(db, &edits, &records),
                            };
                            if done {
                                for (key, value) in edits {
                                    match value {
                                        Some(value) => drop(records.insert(key, value)),
                                        None => drop(records.remove(&key)),
                                    }
                                }
                            }
                        }
                        records
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let all = models.into_iter().flatten().collect();
        assert_eq!(scanned(db), sorted(&all, order));
        assert_eq!(db.count(), all.len() as u64);
    }
    assert!(tree.check(&mut |_, _| {}).unwrap().is_sound());
    tried_at_least(
        8 * steps,
        160_000,
        "edits of threads of which two have comparators that panic",
    );
}
