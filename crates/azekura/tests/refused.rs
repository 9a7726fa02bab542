//! Memory that is refused is an error, `Full` or `Io`, never the end of the process; and nothing is changed by it.
//!
//! This program's allocator refuses the nth request of more than 8 KiB, or all from the nth on, for one n after the
//! other, while an engine in memory does what a script states: records come, grow, are overwritten, many at once, read,
//! scanned, removed, saved and loaded. Afterwards the engine holds what a map next to it holds, but for what was answered
//! with an error. What is smaller, and bounded by a constant, is taken without asking as everywhere in Rust, and is not
//! refused here. Addresses are refused by a limit on the process. Each engine runs in a child, so that one that ends the
//! process is seen; one that does must be. Lines beginning `tried:` state how much was tried.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use azekura::epoch::Domain;
use azekura::index::Index;
use azekura::index::hash::Hash;
use azekura::io::memory::Memory;
use azekura::object::{self, ObjectId, Store};
use azekura::record::cache::{self, CacheDb};
use azekura::record::memory::baby::{self, BabyDb};
use azekura::record::memory::snapshot::{Snapshot, save};
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::record::memory::tiny::{self, TinyDb};
use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{ModelDb, Random, round_seed};
use azekura::{Edit, Engine, Kind, Reader, Result, Verbs};

/// Requests below this are never refused.
const SMALLEST: usize = 8193;

thread_local! {
    /// Whether requests count now.
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    /// Requests until one is refused.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    /// Whether all after that one are, too.
    static FOR_EVER: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<u64> = const { Cell::new(0) };
}

struct Refusing;

impl Refusing {
    fn refuses(size: usize) -> bool {
        if size < SMALLEST || !COUNTS.get() {
            return false;
        }
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        let refuses = left == 1 || left == 0 && FOR_EVER.get();
        if refuses {
            REFUSED.set(REFUSED.get() + 1);
            if std::env::var_os("AZEKURA_SHOW").is_some() {
                COUNTS.set(false);
                let trace = std::backtrace::Backtrace::force_capture();
                writeln!(std::io::stderr(), "refused {size}: {trace}").ok();
                COUNTS.set(true);
            }
        }
        refuses
    }
}

#[expect(unsafe_code, reason = "an allocator")]
// SAFETY: every request is the system's allocator's, or refused with a null pointer, as the contract allows.
unsafe impl GlobalAlloc for Refusing {
    /// # Safety
    /// - the contract of `GlobalAlloc`.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// - the contract of `GlobalAlloc`.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System`, as all do.
        unsafe { System.dealloc(at, layout) };
    }

    /// # Safety
    /// - the contract of `GlobalAlloc`.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Becoming smaller is not refused: no allocator does.
        if size > layout.size() && Self::refuses(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Runs `call` of an engine, whose requests count.
fn counted<T>(call: impl FnOnce() -> T) -> T {
    COUNTS.set(true);
    let done = call();
    COUNTS.set(false);
    done
}

/// Runs what the test does itself while an engine calls it.
fn uncounted<T>(call: impl FnOnce() -> T) -> T {
    let counts = COUNTS.replace(false);
    let done = call();
    COUNTS.set(counts);
    done
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;
/// Makes an engine; its options are drawn.
type Make = fn(&mut Random) -> Result<Box<dyn Engine>>;

const ENGINES: [(&str, Make); 5] = [
    ("std-hash", |random| {
        let records = *random.choose(&[0, 1, 5000]);
        Ok(Box::new(StdHashDb::with_capacity(records)?))
    }),
    ("std-tree", |_| Ok(Box::new(StdTreeDb::new()))),
    ("tiny", |random| {
        let memory_limit = *random.choose(&[None, Some(4 << 20), Some(1 << 30)]);
        Ok(Box::new(TinyDb::with(
            &tiny::Options::new().memory_limit(memory_limit),
        )?))
    }),
    ("baby", |random| {
        let memory_limit = *random.choose(&[None, Some(4 << 20), Some(1 << 30)]);
        let options = baby::Options::new().memory_limit(memory_limit);
        Ok(Box::new(BabyDb::with(&options)?))
    }),
    ("cache", |random| {
        let options = cache::Options::new()
            .records_max(*random.choose(&[Some(200), Some(1 << 20)]))
            .bytes_max(*random.choose(&[None, Some(1 << 20), Some(1 << 30)]));
        Ok(Box::new(CacheDb::with(&options)?))
    }),
];
/// An engine that does not ask for memory.
const PLANTED: (&str, Make) = ("planted", |_| Ok(Box::new(ModelDb::new())));

/// The answer of an engine: what it gave, or `None` if memory was refused, which is the only error there may be.
fn answer<T>(answer: Result<T>) -> Option<T> {
    match answer {
        Ok(done) => Some(done),
        Err(error) if error.kind() == Kind::Full => None,
        Err(error) => panic!("{error}"),
    }
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let len = match random.below(6) {
        0 => random.index(30),
        1..=2 => random.index(300),
        3..=4 => random.index(9000),
        _ => random.index(60_000),
    };
    random.bytes(len)
}

fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(700);
    let mut key = format!("key-{number}").into_bytes();
    match number % 14 {
        7 => key.resize(400, b'.'),
        // Longer than what is taken without asking.
        3 => key.resize(9000, b'.'),
        // In a node of `BabyDb` all of these are one entry.
        0 => drop(key.splice(..0, [b'.'; 600])),
        _ => {}
    }
    key
}

/// Scans all records, and breaks off at one in `breaks`, to continue from the bookmark; how many there were.
fn scan(db: &dyn Engine, breaks: usize) -> Result<u64> {
    let (mut count, mut from) = (0, None);
    loop {
        from = db.scan(from.as_ref(), &mut |_, _| {
            count += 1;
            if count % breaks.max(1) as u64 == 1 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if from.is_none() {
            return Ok(count);
        }
    }
}

/// One call after the other, and what the engine must hold then.
struct Script {
    db: Box<dyn Engine>,
    holds: Records,
    random: Random,
    refused: u64,
}

impl Script {
    /// What is there at the end was put last; what an engine that drops records dropped is nowhere.
    fn check(&mut self) {
        let evicts = self.db.promise().evicts;
        let mut found = Records::new();
        let broke = self.db.scan(None, &mut |key, value| {
            assert!(found.insert(key.to_vec(), value.to_vec()).is_none());
            ControlFlow::Continue(())
        });
        assert!(broke.expect("memory is there again").is_none());
        assert_eq!(self.db.count(), found.len() as u64);
        for (key, value) in &found {
            assert!(self.holds.get(key) == Some(value), "a wrong value");
        }
        assert!(
            evicts || found.len() == self.holds.len(),
            "a record is lost"
        );
        for (key, value) in &self.holds {
            let read = self.db.get(key).expect("memory is there again");
            assert!(read.as_ref() == Some(value) || evicts && read.is_none());
        }
        self.holds = found;
    }

    fn step(&mut self) {
        let (random, db) = (&mut self.random, &*self.db);
        let key = key(random);
        let done = match random.below(16) {
            0..=4 => {
                let value = bytes(random);
                let done = answer(counted(|| db.put(&key, &value)));
                done.map(|()| drop(self.holds.insert(key, value)))
            }
            5 => answer(counted(|| db.remove(&key))).map(|was| {
                assert!(self.holds.remove(&key).is_some() == was || db.promise().evicts);
            }),
            6 => answer(counted(|| db.get(&key))).map(|found| {
                assert!(found.as_ref() == self.holds.get(&key) || db.promise().evicts);
            }),
            7 => answer(counted(|| db.append(&key, b"more", b","))).map(|()| {
                let value = uncounted(|| db.get(&key)).expect("memory is there again");
                assert!(value.is_some() || db.promise().evicts, "it was appended");
                match value {
                    Some(value) => drop(self.holds.insert(key, value)),
                    None => drop(self.holds.remove(&key)),
                }
            }),
            8 => answer(counted(|| db.swap(&key, b"swapped"))).map(|before| {
                let held = self.holds.insert(key, b"swapped".to_vec());
                assert!(before == held || db.promise().evicts);
            }),
            9..=10 => return self.many(),
            11 => return self.batch(),
            12 => {
                let breaks = random.index(9);
                answer(counted(|| scan(db, breaks))).map(|count| assert_eq!(count, db.count()))
            }
            13 => return self.walk(),
            14 => return self.snapshot(),
            _ if random.one_in(4) => answer(counted(|| db.clear())).map(|()| self.holds.clear()),
            _ => {
                let keys: Vec<&[u8]> = self.holds.keys().map(Vec::as_slice).collect();
                answer(counted(|| db.get_many(&keys))).map(|values| {
                    for (key, value) in keys.iter().zip(values) {
                        assert!(self.holds.get(*key) == value.as_ref() || db.promise().evicts);
                    }
                })
            }
        };
        self.refused += u64::from(done.is_none());
    }

    /// Many records in one update: all or none.
    fn many(&mut self) {
        let (random, db) = (&mut self.random, &*self.db);
        let keys: Vec<Vec<u8>> = (0..random.index(900)).map(|_| key(random)).collect();
        let wishes: Vec<Option<Vec<u8>>> = keys
            .iter()
            .map(|_| (!random.one_in(4)).then(|| bytes(random)))
            .collect();
        let named: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let done = answer(counted(|| {
            db.update_many(&named, &mut |_| {
                uncounted(|| {
                    let edit = |wish: &Option<Vec<u8>>| match wish {
                        Some(value) => Edit::Put(value.clone().into()),
                        None => Edit::Remove,
                    };
                    wishes.iter().map(edit).collect()
                })
            })
        }));
        self.refused += u64::from(done.is_none());
        if done.is_some() {
            for (key, wish) in keys.into_iter().zip(wishes) {
                match wish {
                    Some(value) => drop(self.holds.insert(key, value)),
                    None => drop(self.holds.remove(&key)),
                }
            }
        }
    }

    /// Many records, one after the other: those before the first that failed are there.
    fn batch(&mut self) {
        let (random, db) = (&mut self.random, &*self.db);
        let records: Vec<(Vec<u8>, Vec<u8>)> = (0..random.index(100))
            .map(|_| (key(random), bytes(random)))
            .collect();
        let lent: Vec<(&[u8], &[u8])> = records.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        let done = answer(counted(|| db.put_many(&lent)));
        self.refused += u64::from(done.is_none());
        let mut records = records.into_iter();
        if done.is_some() {
            self.holds.extend(records);
            return;
        }
        // What the engine holds shows how far it came.
        let mut holds = self.holds.clone();
        loop {
            let mut there = 0;
            let same = holds.iter().all(|(key, value)| {
                let found = db.get(key).expect("memory is there again");
                there += u64::from(found.is_some());
                found.as_ref() == Some(value) || db.promise().evicts && found.is_none()
            });
            if same && there == db.count() {
                break;
            }
            let (key, value) = records.next().expect("records are put in their order");
            holds.insert(key, value);
        }
        self.holds = holds;
    }

    fn walk(&mut self) {
        let Some(ordered) = self.db.as_ordered() else {
            return;
        };
        let mut cursor = ordered.cursor();
        let mut there = answer(counted(|| cursor.last()));
        while there == Some(true) {
            let (key, value) = cursor.record().expect("it is on a record");
            assert!(self.holds.get(key).is_some_and(|held| held == value));
            there = answer(counted(|| cursor.previous()));
        }
        self.refused += u64::from(there.is_none());
    }

    /// Saves all records; if that was possible, empties the engine and loads them.
    fn snapshot(&mut self) {
        let folder = tempfile::tempdir().expect("a folder");
        let (db, path) = (&*self.db, folder.path().join("snapshot"));
        let proceed = &mut |_, _| ControlFlow::Continue(());
        let saved = answer(counted(|| save(db, &path, proceed)));
        self.refused += u64::from(saved.is_none());
        if saved.flatten().is_none() || answer(counted(|| db.clear())).is_none() {
            return;
        }
        let loaded = counted(|| Snapshot::open(&path)?.load_into(db, &mut |_, _| ()));
        if let Err(error) = loaded {
            assert!(db.count() == 0 || error.to_string().contains("clear the engine"));
            assert_eq!(error.kind(), Kind::Full, "{error}");
            db.clear().expect("memory is there again");
            self.refused += 1;
            self.holds.clear();
        }
    }
}

/// Runs a script in which the nth request is refused; how many were refused, and how many calls answered so.
fn run(make: Make, seed: u64, n: u64, for_ever: bool) -> (u64, u64) {
    LEFT.set(n);
    FOR_EVER.set(for_ever);
    REFUSED.set(0);
    let mut random = Random::new(seed);
    let Some(db) = answer(counted(|| make(&mut random))) else {
        return (REFUSED.get(), 1);
    };
    let mut script = Script {
        db,
        holds: Records::new(),
        random,
        refused: 0,
    };
    for _ in 0..60 {
        script.step();
    }
    let refused = REFUSED.get();
    LEFT.set(0);
    FOR_EVER.set(false);
    script.check();
    for _ in 0..20 {
        script.step();
    }
    script.check();
    (refused, script.refused)
}

/// Of each engine, at least, in a full run.
const SCRIPTS: u64 = 400;

/// In a child: one n after the other, until the script asks less often than that; and again with other scripts and options.
fn run_all(make: Make) {
    let (mut ns, mut refused, mut errors) = (0, 0, 0);
    let rounds = (0..share(10)).flat_map(|round| [(round, false), (round, true)]);
    for (round, for_ever) in rounds {
        let mut n = 1;
        loop {
            let seed = round_seed() + round * 1000 + n % 5;
            let one = run(make, seed, n, for_ever);
            ns += 1;
            refused += one.0;
            errors += one.1;
            if one.0 == 0 {
                break;
            }
            n += 1 + n / 10;
        }
    }
    writeln!(
        std::io::stdout(),
        "{ns} scripts, {refused} requests refused, {errors} calls answered so"
    )
    .expect("stdout can be written");
}

#[test]
fn a_child_runs_one_engine() {
    let Ok(name) = std::env::var("AZEKURA_REFUSED") else {
        return;
    };
    if name == "addresses" {
        return refuse_addresses();
    }
    let engines = ENGINES.iter().chain([&PLANTED]);
    let (_, make) = engines
        .clone()
        .find(|(other, _)| *other == name)
        .expect("an engine");
    run_all(*make);
}

/// In a child: the engines that reserve addresses for all that they may become return `Io` where there are too few.
fn refuse_addresses() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = Rlimit {
        current: Some(2 << 30),
        maximum: Some(2 << 30),
    };
    setrlimit(Resource::As, limit).expect("a limit can be lowered");
    for name in ["tiny", "baby", "cache"] {
        let (_, make) = ENGINES
            .iter()
            .find(|(other, _)| *other == name)
            .expect("an engine");
        let made = make(&mut Random::new(0));
        let error = made.err().expect("there are too few addresses");
        assert_eq!(error.kind(), Kind::Io, "{name}: {error}");
    }
}

fn child(engine: &str) -> std::process::Output {
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .args(["--exact", "a_child_runs_one_engine", "--nocapture"])
        .env("AZEKURA_REFUSED", engine)
        .stdin(Stdio::null())
        .output()
        .expect("a child")
}

fn holds(engine: &str) {
    let output = child(engine);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    let tried = out.lines().find(|line| line.contains("scripts"));
    let (scripts, what) = tried.and_then(|line| line.split_once(' ')).expect("it ran");
    let scripts = scripts.parse().expect("a number");
    tried_at_least(scripts, SCRIPTS, &format!("{what}: {engine}"));
}

#[test]
fn std_hash_answers_when_memory_is_refused() {
    holds("std-hash");
}

#[test]
fn std_tree_answers_when_memory_is_refused() {
    holds("std-tree");
}

#[test]
fn tiny_answers_when_memory_is_refused() {
    holds("tiny");
}

#[test]
fn baby_answers_when_memory_is_refused() {
    holds("baby");
}

#[test]
fn a_cache_answers_when_memory_is_refused() {
    holds("cache");
}

#[test]
fn a_cache_drops_others_for_a_record_whose_memory_is_refused() {
    let db = CacheDb::new(1 << 20).expect("memory");
    for number in 0..100u64 {
        db.put(&number.to_le_bytes(), &[1; 9000]).expect("memory");
    }
    LEFT.set(1);
    REFUSED.set(0);
    // Records themselves stand in addresses that were had before; what remembers them grows now and then.
    let mut number = 100u64;
    while REFUSED.get() == 0 {
        number += 1;
        assert!(number < 10_000, "nothing was asked for");
        counted(|| db.put(&number.to_le_bytes(), &[2; 9000])).expect("others gave their memory");
    }
    LEFT.set(0);
    assert_eq!(REFUSED.get(), 1);
    assert!(db.count() < number - 1, "{} records", db.count());
    let found = db.get(&number.to_le_bytes()).expect("a get");
    assert_eq!(found, Some(vec![2; 9000]));
}

#[test]
fn addresses_that_are_refused_are_an_error() {
    let output = child("addresses");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_index_whose_directory_is_refused_stays_whole() {
    // All in one part of the index, so that its chunk is divided, and the directory doubled, soon.
    let hash = |key: u64| Hash(5 << 52 | (key.wrapping_mul(0x9e_3779) & 0xff_ffff) << 28);
    for n in 1..=6 {
        let index = Index::new(&Domain::new()).expect("memory");
        let mut there = Vec::new();
        LEFT.set(n);
        REFUSED.set(0);
        for key in 1..=3000u64 {
            let pin = index.pin();
            let locked = counted(|| index.lock_to_put(&pin, hash(key), |_| Ok(None::<()>)));
            if let Some((mut locked, _)) = answer(locked) {
                locked.fill(key);
                there.push(key);
            }
        }
        LEFT.set(0);
        assert_eq!(
            3000 - there.len() as u64,
            REFUSED.get(),
            "who is refused is not there"
        );
        assert!(n > 1 || REFUSED.get() == 1, "the directory grew");
        let mut found = Vec::new();
        let mut at = Some(Hash(5 << 52));
        while let Some(from) = at {
            let (entries, next) = index.scan_chunk(&index.pin(), from).expect("it is warm");
            found.extend(entries.into_iter().map(|(_, place)| place));
            at = next;
        }
        found.sort_unstable();
        assert!(found == there, "each that was put is there once");
    }
}

#[test]
fn an_engine_that_does_not_ask_is_caught() {
    let output = child("planted");
    assert_eq!(output.status.signal(), Some(6), "it aborts");
}

/// The removal of a range is recorded before memory is refused for the rest of it: then the store takes no more changes, or all
/// of the range is there.
#[test]
fn a_range_is_removed_whole_or_its_store_is_poisoned() {
    const COUNT: u64 = 600;
    let mut poisoned = 0;
    for n in 1..8 {
        let options = object::CreateOptions::new()
            .capacity(16 << 20)
            .background(false);
        let memory = Memory::from_bytes(&vec![0; 16 << 20], 16 << 20).expect("memory");
        let store = Store::create_on(memory, None, &options, &mut |_, _| ()).expect("a store");
        for id in 0..COUNT {
            store.put(ObjectId(id.into()), b"a value").expect("a put");
        }
        LEFT.set(n);
        FOR_EVER.set(false);
        let removed = counted(|| store.remove_range(..));
        let left = if removed.is_ok() { 0 } else { COUNT };
        let is_poisoned = store.put(ObjectId(COUNT.into()), b"more").is_err();
        poisoned += u64::from(is_poisoned);
        assert!(
            is_poisoned || store.count() == left + 1,
            "{} after {removed:?}, request {n} refused",
            store.count()
        );
    }
    tried_at_least(poisoned, 1, "ranges that were removed in part");
}

#[test]
fn no_capacity_is_an_error() {
    let kind = |made: Result<()>| made.expect_err("nothing fits").kind();
    for limit in [0, 1, (1 << 20) - 1] {
        let options = tiny::Options::new().memory_limit(Some(limit));
        assert_eq!(kind(TinyDb::with(&options).map(drop)), Kind::Invalid);
    }
    assert_eq!(kind(CacheDb::new(0).map(drop)), Kind::Invalid);
    for (records_max, bytes_max) in [
        (None, None),
        (Some(0), Some(1 << 20)),
        (Some(1), Some(0)),
        (None, Some(31)),
    ] {
        let options = cache::Options::new()
            .records_max(records_max)
            .bytes_max(bytes_max);
        assert_eq!(kind(CacheDb::with(&options).map(drop)), Kind::Invalid);
        let db = CacheDb::new(1).expect("one fits");
        assert_eq!(kind(db.resize(records_max, bytes_max)), Kind::Invalid);
        db.put(b"k", b"v").expect("one fits");
    }
    let db = StdHashDb::with_capacity(0).expect("it grows");
    db.put(b"k", b"v").expect("it grows");
    assert_eq!(
        kind(StdHashDb::with_capacity(u64::MAX).map(drop)),
        Kind::Full
    );
    assert_eq!(
        kind(StdHashDb::with_capacity(1 << 50).map(drop)),
        Kind::Full
    );
}
