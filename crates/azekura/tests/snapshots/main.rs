//! A snapshot is the records of an engine, whole, or an error; and the one before it is never lost.
//!
//! Here: saved and loaded between engines of every kind, with records that expire, and what is no snapshot. In
//! `interrupted`: power cuts at every event, failing calls, stops, files cut at every length and damaged by
//! `testkit::damage`. In `background`: concurrently with writers. Lines beginning `tried:` state how much was tried.

mod background;
mod interrupted;
mod stores;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use azekura::io::memory::Memory;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory, Storage};
use azekura::record::cache::CacheDb;
use azekura::record::hash::HashDb;
use azekura::record::memory::baby::BabyDb;
use azekura::record::memory::snapshot::layout::{Head, end_mark};
use azekura::record::memory::snapshot::{Loaded, Options, Saved, Snapshot, load, save, save_to};
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::record::memory::tiny::TinyDb;
use azekura::testkit::{ModelDb, Random};
use azekura::{Edit, Engine, Kind, Reader, Result, Verbs};
use stores::{Failing, Timed};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn proceed(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

const NAME: &str = "a.snapshot";

fn small_blocks() -> Options {
    Options::new().block_size(512)
}

fn contents(reader: &dyn Reader) -> State {
    let mut state = State::new();
    let mut show = |key: &[u8], value: &[u8]| {
        let before = state.insert(key.to_vec(), value.to_vec());
        assert_eq!(before, None, "a scan shows each record once");
        ControlFlow::Continue(())
    };
    reader.scan(None, &mut show).expect("a scan");
    state
}

fn fill(engine: &dyn Engine, seed: u64, count: u64) -> State {
    let mut random = Random::new(seed);
    for number in 0..count {
        let key = format!("key-{}", random.below(2 * count));
        let len = random.index(120);
        let mut value = number.to_le_bytes().to_vec();
        value.extend(random.bytes(len));
        engine
            .update(key.as_bytes(), &mut |_| Edit::put(&value))
            .expect("a put");
    }
    let more: [(&[u8], &[u8]); 3] = [
        (b"", b"empty key"),
        (b"empty value", b""),
        (b"large", &[7; 3000]),
    ];
    engine.put_many(&more).expect("puts");
    contents(engine)
}

/// A tree and what it holds.
fn tree(seed: u64, count: u64) -> (StdTreeDb, State) {
    let db = StdTreeDb::new();
    let state = fill(&db, seed, count);
    (db, state)
}

fn save_on(disk: &SimDisk, source: &dyn Reader) -> Result<Option<Saved>> {
    save_on_with(disk, source, small_blocks().block_size)
}

fn save_on_with(disk: &SimDisk, source: &dyn Reader, block_size: usize) -> Result<Option<Saved>> {
    let (directory, name) = (disk.directory(), Path::new(NAME));
    let options = Options::new().block_size(block_size);
    save_to(source, &directory, name, &options, &mut proceed)
}

fn load_from(storage: Arc<dyn Storage>) -> Result<State> {
    let db = StdTreeDb::new();
    let loaded = Snapshot::open_on(storage)?.load_into(&db, &mut |_, _| ());
    if let Err(error) = loaded {
        assert_eq!(db.count(), 0, "nothing half-loaded");
        return Err(error);
    }
    Ok(contents(&db))
}

fn load_on(disk: &SimDisk) -> Result<State> {
    load_from(disk.directory().open(Path::new(NAME), Access::Read)?)
}

fn open_and_load(path: &Path) -> Result<State> {
    load(path, StdTreeDb::new()).map(|db| contents(&db))
}

fn bytes_of(source: &dyn Reader) -> Vec<u8> {
    bytes_with_salt(source, 5)
}

/// What the seed of the disk is, a real file has from the system.
fn bytes_with_salt(source: &dyn Reader, seed: u64) -> Vec<u8> {
    let disk = SimDisk::new(seed);
    save_on(&disk, source).expect("a snapshot");
    let file = disk
        .directory()
        .open(Path::new(NAME), Access::Read)
        .expect("it is there");
    let mut bytes = vec![0; file.size().expect("a size") as usize];
    file.read_at(0, &mut bytes).expect("its bytes");
    bytes
}

fn storage_of(bytes: &[u8]) -> Arc<dyn Storage> {
    Memory::from_bytes(bytes, bytes.len() as u64).expect("memory")
}

fn hash_file(path: &Path) -> HashDb {
    HashDb::create(path, &azekura::record::hash::CreateOptions::default()).expect("a store")
}

#[test]
fn engines_of_every_kind_are_saved_and_filled_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let sources: [(&str, Box<dyn Engine>); 4] = [
        ("std-hash", Box::new(StdHashDb::new())),
        ("std-tree", Box::new(StdTreeDb::new())),
        ("hash", Box::new(hash_file(&folder.path().join("hash")))),
        ("model", Box::new(ModelDb::new())),
    ];
    let path = folder.path().join(NAME);
    for (seed, (word, source)) in sources.iter().enumerate() {
        let state = fill(&**source, seed as u64, 4000);
        let mut told = Vec::new();
        let saved = save(&**source, &path, &mut |done, total| {
            told.push((done, total));
            ControlFlow::Continue(())
        });
        let saved = saved.expect("a snapshot").expect("nobody stopped it");
        let size = std::fs::metadata(&path).expect("a file").len();
        assert_eq!((saved.records, saved.bytes), (state.len() as u64, size));
        assert!(told.is_sorted() && told.len() > 1);
        let snapshot = Snapshot::open(&path).expect("a snapshot");
        assert_eq!(snapshot.engine(), *word);
        let ordered = ["std-tree", "model"].contains(word);
        assert_eq!(snapshot.order(), ordered.then_some("lexical"));
        let summary = snapshot.check(&mut |_, _| ()).expect("it is whole");
        assert_eq!(
            (summary.records, summary.expiring, summary.bytes),
            (saved.records, 0, size)
        );
        assert_eq!((summary.key_len_max, summary.value_len_max), (11, 3000));
        let hash = load(&path, StdHashDb::new()).expect("a load");
        assert_eq!(contents(&hash), state, "{word}");
        assert_eq!(open_and_load(&path).expect("a load"), state, "{word}");
        let mut read = State::new();
        let all = snapshot.read(&mut |key, value, _| {
            read.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        });
        all.expect("it is whole");
        assert_eq!(read, state);
        let mut seen = 0;
        let some = snapshot.read(&mut |_, _, _| {
            seen += 1;
            ControlFlow::Break(())
        });
        some.expect("breaking is no error");
        assert_eq!(seen, 1);
    }
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 2, "nothing else is left");
}

#[test]
fn nothing_and_one_large_record_are_snapshots_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(NAME);
    let db = StdTreeDb::new();
    for value in [None, Some(vec![3; 5 << 20])] {
        if let Some(value) = &value {
            db.put(b"key", value).expect("a put");
        }
        let saved = save(&db, &path, &mut proceed);
        let saved = saved.expect("a snapshot").expect("whole");
        assert_eq!(saved.records, u64::from(value.is_some()));
        let loaded = load(&path, StdHashDb::new()).expect("a load");
        let found = loaded.read_with(b"key", |value| value.map(<[u8]>::to_vec));
        assert!(found.expect("a read") == value);
    }
}

#[test]
fn what_is_no_snapshot_is_told_apart_and_never_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let store = hash_file(&at("store"));
    store.put(b"key", b"value").expect("a put");
    std::fs::create_dir(at("folder")).expect("a folder");
    let text = "somebody's text, which is longer than a head has to be";
    std::fs::write(at("text"), text).expect("a file");
    std::fs::write(at("empty"), "").expect("a file");
    std::os::unix::fs::symlink(at("text"), at("link")).expect("a link");
    let (db, state) = tree(9, 20);
    let open = |name: &str| Snapshot::open(&at(name)).expect_err(name);
    for (name, what) in [
        ("store", "found hash, expected snapshot"),
        ("folder", "found a directory"),
        ("text", "not an azekura file"),
        ("empty", "the file is empty"),
        ("link", "found a symbolic link"),
    ] {
        let error = open(name);
        assert_eq!(error.kind(), Kind::Mismatch);
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(open("none").kind(), Kind::Io);
    for name in ["store", "folder", "text", "link"] {
        let error = save(&db, &at(name), &mut proceed).expect_err(name);
        assert_eq!(error.kind(), Kind::Mismatch, "{error}");
    }
    assert_eq!(
        std::fs::read(at("text")).expect("it is there"),
        text.as_bytes()
    );
    assert_eq!(
        store.get(b"key").expect("a get").as_deref(),
        Some(&b"value"[..])
    );
    store.close().expect("it is still its own");
    let refused = |path: &Path| {
        save(&db, path, &mut proceed)
            .expect_err("it is refused")
            .kind()
    };
    assert_eq!(refused(Path::new("/")), Kind::Mismatch);
    assert_eq!(refused(&at("none/a")), Kind::Io);
    // An empty file holds nothing, and a damaged snapshot nothing that is whole.
    let saved = |path: &Path| {
        save(&db, path, &mut proceed)
            .expect("a snapshot")
            .expect("whole")
    };
    saved(&at("empty"));
    let mut damaged = std::fs::read(at("empty")).expect("it is there");
    damaged[100..].fill(0xee);
    std::fs::write(at("damaged"), &damaged).expect("a file");
    let error = open_and_load(&at("damaged")).expect_err("damaged");
    assert_eq!(error.kind(), Kind::Corrupted);
    saved(&at("damaged"));
    assert_eq!(open_and_load(&at("damaged")).expect("whole"), state);
    let mut newer = bytes_of(&db);
    newer[12] = 9;
    let error = load_from(storage_of(&newer)).expect_err("newer");
    assert_eq!(error.kind(), Kind::Mismatch);
    let what = "newer format at memory (found version 9";
    assert!(error.to_string().contains(what), "{error}");
}

#[test]
fn only_a_whole_snapshot_is_loaded_and_into_an_empty_store_only() {
    let (db, state) = tree(10, 50);
    let snapshot = Snapshot::open_on(storage_of(&bytes_of(&db))).expect("a snapshot");
    let refused = |engine: &dyn Engine| {
        let loaded = snapshot.load_into(engine, &mut |_, _| ());
        loaded.expect_err("it is refused").kind()
    };
    assert_eq!(refused(&db), Kind::Invalid);
    assert_eq!(contents(&db), state);
    // A store with smaller limits is refused before anything is put there; one that fails is emptied.
    let small = ModelDb::with_limits(100, 2999);
    assert_eq!((refused(&small), small.count()), (Kind::TooLarge, 0));
    let failing = Failing(StdTreeDb::new(), AtomicU64::new(20));
    assert_eq!((refused(&failing), failing.count()), (Kind::Full, 0));
    let mut told = Vec::new();
    let fresh = StdTreeDb::new();
    let loaded = snapshot.load_into(&fresh, &mut |done, total| told.push((total, done)));
    assert_eq!(loaded.expect("a load").records, state.len() as u64);
    let end = told.last().is_some_and(|(total, done)| total == done);
    assert!(told.is_sorted() && end);
}

#[test]
fn a_snapshot_in_another_order_is_refused() {
    // As a tree in decimal order would save it.
    let head = Head {
        salt: 1,
        engine: "baby".into(),
        order: Some("decimal".into()),
    };
    let mut bytes = head.slot();
    bytes.extend(end_mark(head.seed(), 0, 0, 0));
    let snapshot = Snapshot::open_on(storage_of(&bytes)).expect("a snapshot");
    let error = snapshot
        .load_into(&StdTreeDb::new(), &mut |_, _| ())
        .expect_err("another order");
    assert_eq!(
        error.to_string(),
        "mismatch: the snapshot has another order of keys at memory (found decimal, expected \
         lexical); load it into a store of its order, or into one without an order"
    );
    let loaded = snapshot.load_into(&StdHashDb::new(), &mut |_, _| ());
    assert_eq!(loaded.expect("a hash has no order"), Loaded::default());
}

#[test]
fn times_to_live_go_on_while_nobody_has_the_records() {
    let at = |now_ms: fn() -> u64| Options::new().now_ms(now_ms).block_size(64);
    let disk = SimDisk::new(1);
    let db = Timed(ModelDb::new());
    for (key, ms) in [
        (b"for ever", 0u64),
        (b"an hour.", 3_600_000),
        (b"a second", 1000),
        (b"an end..", u64::MAX),
    ] {
        db.put_many(&[(key, &ms.to_le_bytes())]).expect("a put");
    }
    let name = Path::new(NAME);
    let saved = save_to(&db, &disk.directory(), name, &at(|| 5000), &mut proceed);
    saved.expect("a snapshot").expect("whole");
    let file = disk.directory().open(name, Access::Read);
    let snapshot = Snapshot::open_on(file.expect("it is there")).expect("a snapshot");
    assert_eq!(snapshot.check(&mut |_, _| ()).expect("whole").expiring, 3);
    let later = Timed(ModelDb::new());
    let loaded = snapshot.load_with(&later, &at(|| 6000), &mut |_, _| ());
    let expected = Loaded {
        records: 3,
        expired: 1,
    };
    assert_eq!(loaded.expect("a load"), expected);
    let left = |key: &[u8; 8]| {
        let mut left = None;
        let read = later.read(key, &mut |value| left = value.map(Timed::left));
        read.expect("a read");
        left
    };
    assert_eq!(left(b"for ever"), Some(None));
    assert_eq!(left(b"an hour."), Some(Some(Duration::from_secs(3599))));
    assert_eq!(left(b"a second"), None);
    let end = Duration::from_millis(u64::MAX - 6000);
    assert_eq!(left(b"an end.."), Some(Some(end)));
    // Who keeps records for ever does not take them.
    let keeps = StdTreeDb::new();
    let error = snapshot
        .load_into(&keeps, &mut |_, _| ())
        .expect_err("it would keep them");
    assert_eq!((error.kind(), keeps.count()), (Kind::Mismatch, 0));
    assert!(error.to_string().contains("3 of 4"), "{error}");
}

/// Saved from one, loaded into another, and the same records are there.
fn moves(from: &dyn Engine, to: &dyn Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("moved.snapshot");
    for number in 0..3000u64 {
        from.put(
            &number.to_le_bytes(),
            &vec![number as u8; number as usize % 90],
        )
        .expect("a put");
    }
    let saved = save(from, &path, &mut |_, _| ControlFlow::Continue(())).expect("it is saved");
    assert_eq!(saved.expect("it was not stopped").records, 3000);
    let snapshot = Snapshot::open(&path).expect("a snapshot");
    snapshot
        .load_into(to, &mut |_, _| ())
        .expect("it is loaded");
    assert_eq!(to.count(), 3000);
    for number in 0..3000u64 {
        let value = to.get(&number.to_le_bytes()).expect("a get");
        assert_eq!(value, Some(vec![number as u8; number as usize % 90]));
    }
}

#[test]
fn every_engine_in_memory_is_saved_and_filled() {
    let tiny = || TinyDb::new().expect("a new store");
    moves(&tiny(), &tiny());
    moves(&StdHashDb::new(), &tiny());
    let baby = || BabyDb::new().expect("a new store");
    moves(&baby(), &baby());
    let cache = || CacheDb::new(4000).expect("a new cache");
    moves(&cache(), &cache());
    moves(&tiny(), &cache());
}

#[test]
fn a_cache_keeps_times_to_live_in_a_snapshot() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cache.snapshot");
    let cache = CacheDb::new(100).expect("a new cache");
    cache.put(b"for ever", b"1").expect("a put");
    let day = Duration::from_secs(86_400);
    cache.put_for(b"for a day", b"2", day).expect("a put");
    save(&cache, &path, &mut |_, _| ControlFlow::Continue(())).expect("it is saved");
    let other = CacheDb::new(100).expect("a new cache");
    let snapshot = Snapshot::open(&path).expect("a snapshot");
    snapshot
        .load_into(&other, &mut |_, _| ())
        .expect("it is loaded");
    assert_eq!(other.time_left(b"for ever").expect("a look"), Some(None));
    let left = other.time_left(b"for a day").expect("a look");
    let left = left.expect("it is there").expect("it expires");
    // Never early: its tick may be up to two later.
    assert!(left < day * 2 && left > day / 2, "{left:?}");
}
