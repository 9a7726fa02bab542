//! A copy of a store of shards, and what changed since, brought together are the store; until they are complete, nothing opens the copy.
//!
//! Chains of a copy and changes are compared with the store, record by record, over reopenings of both, and while threads write. The power
//! is cut, and writes and syncs fail, while changes are made and applied: then all shards are at one of the two moments, or the copy
//! refuses, and the same call completes it. What does not fit all shards is refused, and no shard is written.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use azekura::engine::{Edit, Engine as _, Persistent as _};
use azekura::io::Directory as _;
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::order::Order;
use azekura::record::tree::{CheckpointId, CreateOptions, TreeDb};
use azekura::shard::{Sharded, files_of};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Db, Kind, Reader as _, Result, Verbs as _};

use super::{keys, scanned};

type Store = Sharded<TreeDb>;
type Records = Vec<(Vec<u8>, Vec<u8>)>;

const STORE: &str = "store.azt";
const COPY: &str = "copy.azt";

fn quiet(_: u64, _: u64) {}

fn options(random: &mut Random, shards: usize) -> CreateOptions {
    let shards = shards as u64;
    CreateOptions::new()
        .order(*random.choose(&[Order::Lexical, Order::Decimal]))
        .segment_size(64u64 << 10)
        .cache(shards * (256 << 10))
        .capacity(shards * (16 << 20))
        .background(false)
}

/// Some changes of a store.
fn change(db: &Store, keys: &[Vec<u8>], count: u64, random: &mut Random) {
    let value = |random: &mut Random| {
        let len = *random.choose(&[0, 10, 100, 600, 5000]);
        random.bytes(len)
    };
    for _ in 0..count {
        let key = random.choose(keys).clone();
        match random.below(200) {
            0 if random.one_in(4) => db.clear().unwrap(),
            1 => (db.shards().iter()).for_each(|shard| shard.checkpoint().unwrap()),
            2..20 => {
                let edits: BTreeMap<_, _> = (0..8)
                    .map(|_| (random.choose(keys).clone(), value(random)))
                    .collect();
                let names: Vec<&[u8]> = edits.keys().map(Vec::as_slice).collect();
                let put = |_: &[Option<&[u8]>]| edits.values().map(|of| Edit::put(of)).collect();
                db.update_many(&names, &mut { put }).unwrap();
            }
            20..70 => drop(db.remove(&key).unwrap()),
            _ => db.put(&key, &value(random)).unwrap(),
        }
    }
}

fn assert_holds(db: &Store, records: &Records) {
    assert!(scanned(db) == *records, "other records");
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

#[test]
fn a_chain_of_changes_is_the_store() {
    let (mut links, mut records) = (0, 0);
    for round in 0..share(30).max(4) {
        let seed = round + round_seed();
        let random = &mut Random::new(seed);
        let shards = 1 + random.index(5);
        let options = options(random, shards);
        let many = *random.choose(&[30, 400, 3000]);
        let keys = keys(random, many);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _shown = case(seed, &(shards, many, &options));
        let mut db = Store::create(at(STORE), shards, &options).unwrap();
        change(&db, &keys, many, random);
        db.copy_to(&at(COPY), &mut quiet).unwrap();
        for link in 0..5 {
            let most = *random.choose(&[0, 3, 100, 2000]);
            let count = random.below(most + 1);
            change(&db, &keys, count, random);
            if random.one_in(3) {
                db.close().unwrap();
                db = Store::open(at(STORE), &options.opening).unwrap();
            }
            if random.one_in(3) {
                // What only opens the copy is no change of it.
                let copy = Store::open(at(COPY), &options.opening).unwrap();
                records += copy.count();
                copy.close().unwrap();
            }
            let since = Db::checkpoints_of(at(COPY)).unwrap();
            assert_eq!(since.len(), shards);
            let name = format!("changes-{link}");
            let to = db.copy_changes(&since, at(&name), &mut quiet).unwrap();
            for _ in 0..2 {
                let applied = Store::apply_changes(at(COPY), at(&name), &mut quiet).unwrap();
                assert_eq!(applied, to);
            }
            assert_eq!(Store::checkpoints_of(at(COPY)).unwrap(), to);
            let copy = Store::open(at(COPY), &options.opening).unwrap();
            let now = scanned(&db);
            records += now.len() as u64;
            assert_holds(&copy, &now);
            copy.close().unwrap();
            links += 1;
        }
    }
    tried_at_least(links, 150, "links of chains of changes of shards");
    tried_at_least(records, 10_000, "records of copies of shards compared");
}

/// Threads put records, each in an order: each shard of a copy has those of each thread up to some record.
#[test]
fn changes_while_threads_write_are_of_a_moment_of_each_shard() {
    let (mut links, mut records) = (0, 0);
    for round in 0..share(20).max(2) {
        let seed = round + round_seed();
        let random = &mut Random::new(seed);
        let shards = 2 + random.index(4);
        let options = options(random, shards).order(Order::Lexical);
        let _shown = case(seed, &(shards, &options));
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let db = &Store::create(at(STORE), shards, &options).unwrap();
        let key = |thread: u64, number: u64| format!("{thread}/{number:07}").into_bytes();
        let counters = || [const { AtomicU64::new(0) }; 3];
        let (begun, done) = (&counters(), &counters());
        let counts = |of: &[AtomicU64; 3]| [0, 1, 2].map(|at| of[at].load(Ordering::SeqCst));
        let is_over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                scope.spawn(move || {
                    for number in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        begun[thread as usize].store(number + 1, Ordering::SeqCst);
                        db.put(&key(thread, number), &number.to_le_bytes()).unwrap();
                        done[thread as usize].store(number + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_micros(100));
                    }
                });
            }
            db.copy_to(&at(COPY), &mut quiet).unwrap();
            for link in 0..4 {
                std::thread::sleep(Duration::from_millis(random.below(30)));
                let least = counts(done);
                let since = Store::checkpoints_of(at(COPY)).unwrap();
                let name = format!("changes-{link}");
                db.copy_changes(&since, at(&name), &mut quiet).unwrap();
                let most = counts(begun);
                Store::apply_changes(at(COPY), at(&name), &mut quiet).unwrap();
                let copy = Store::open(at(COPY), &options.opening).unwrap();
                for thread in 0..3_u64 {
                    let (least, most) = (least[thread as usize], most[thread as usize]);
                    for (shard, store) in copy.shards().iter().enumerate() {
                        let is_own = |number: &u64| copy.shard_of(&key(thread, *number)) == shard;
                        let own: Vec<u64> = (0..most).filter(is_own).collect();
                        let is_there = |number: &u64| store.get(&key(thread, *number)).unwrap();
                        let there = own.partition_point(|number| is_there(number).is_some());
                        let is_prefix =
                            own[there..].iter().all(|number| is_there(number).is_none());
                        assert!(is_prefix, "shard {shard} of {thread}: a record is missing");
                        assert!(own[there..].iter().all(|number| *number >= least));
                        records += there;
                    }
                }
                let all: u64 = most.iter().sum();
                assert!(copy.count() <= all, "{} of {all}", copy.count());
                copy.close().unwrap();
                links += 1;
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
    tried_at_least(links, 80, "links of changes of shards while threads write");
    tried_at_least(records as u64, 4000, "records of them looked up");
}

/// A copy, changes and further changes on a disk of which the power is cut while they are made and applied.
struct Chain {
    shards: usize,
    options: CreateOptions,
    keys: Vec<Vec<u8>>,
    seed: u64,
    states: RefCell<Vec<Records>>,
}

fn changes_of(link: usize) -> PathBuf {
    format!("changes-{link}").into()
}

fn apply_on(disk: &SimDisk, link: usize) -> Result<Vec<CheckpointId>> {
    let folder = disk.directory();
    let (copy, changes) = (Path::new(COPY), changes_of(link));
    Store::apply_changes_in((&folder, copy), (&folder, &changes), &mut quiet)
}

impl Chain {
    fn draw(seed: u64) -> Self {
        let random = &mut Random::new(!seed);
        let shards = 2 + random.index(3);
        Self {
            shards,
            options: options(random, shards),
            keys: keys(random, 200),
            seed,
            states: RefCell::default(),
        }
    }

    fn open_copy(&self, disk: &SimDisk) -> Result<Store> {
        Store::open_in(&disk.directory(), Path::new(COPY), &self.options.opening)
    }

    /// A store, its copy, and two links of a chain, of which `each` is called with the work of one.
    fn work(&self, disk: &SimDisk, mut each: impl FnMut(&mut dyn FnMut())) {
        let random = &mut Random::new(self.seed);
        let folder = disk.directory();
        let name = Path::new(STORE);
        let db = Store::create_in(&folder, name, self.shards, &self.options).unwrap();
        change(&db, &self.keys, 300, random);
        self.states.borrow_mut().push(scanned(&db));
        let copied = db.copy_in(&folder, Path::new(COPY), &mut quiet);
        let mut since = copied.unwrap();
        for link in 1..=2 {
            change(&db, &self.keys, 60, random);
            self.states.borrow_mut().push(scanned(&db));
            each(&mut || {
                let name = changes_of(link);
                let made = db.copy_changes_in(&since, &folder, &name, &mut quiet);
                since = made.unwrap();
            });
            each(&mut || drop(apply_on(disk, link).unwrap()));
        }
    }

    fn verify(&self, crash: &Crash<'_>) -> std::result::Result<u64, String> {
        let disk = crash.disk;
        let states = self.states.borrow();
        let (kept, began) = (crash.kept(), crash.done.began);
        let mut at = match self.open_copy(disk) {
            Ok(db) => {
                let found = scanned(&db);
                let within = &states[kept / 2..=began / 2];
                let state = within.iter().position(|state| *state == found);
                kept / 2 + state.ok_or("the copy is at none of the moments")?
            }
            Err(error) => {
                let message = error.to_string();
                let link = began / 2;
                let wanted = format!("`azekura apply COPY changes-{link}`");
                if began == kept || began % 2 == 1 || !message.contains(&wanted) {
                    return Err(format!("no open: {message}"));
                }
                apply_on(disk, link).map_err(|error| format!("not completed: {error}"))?;
                link
            }
        };
        crash.recovered();
        loop {
            let copy = self.open_copy(disk).map_err(|error| error.to_string())?;
            let report = copy.check(&mut quiet).map_err(|error| error.to_string())?;
            if !report.is_sound() || scanned(&copy) != states[at] {
                return Err(format!("other records, {:?}", report.damage));
            }
            copy.close().map_err(|error| error.to_string())?;
            at += 1;
            let is_there = disk.directory().exists(&changes_of(at));
            if !is_there.map_err(|error| error.to_string())? {
                return Ok(0);
            }
            apply_on(disk, at).map_err(|error| format!("link {at}: {error}"))?;
        }
    }
}

#[test]
fn a_cut_at_any_event_leaves_a_copy_that_is_completed() {
    let mut counts = Counts::default();
    for round in 0..share(8) {
        let seed = round + round_seed();
        let chain = Chain::draw(seed);
        let _shown = case(seed, &(chain.shards, &chain.options));
        let config = Config {
            recovery_one_in: 24,
            recovery_cuts_max: 4,
            ..Config::new(seed).quick(24)
        };
        let work = |disk: &SimDisk, ledger: &Ledger| {
            let mut is_first = true;
            chain.work(disk, |step| {
                if std::mem::take(&mut is_first) {
                    ledger.cut_from_here();
                }
                let done: Result<()> = ledger.operation(|| {
                    step();
                    Ok(())
                });
                done.unwrap();
                ledger.synced();
            });
        };
        counts = counts.plus(explore(&config, work, |crash| chain.verify(crash)));
    }
    let states = counts.crash_states + counts.recovery_cuts + counts.kills;
    tried_at_least(states, 6000, "states after a crash of changes of shards");
}

/// A write, sync or growth fails while changes are applied: the same call completes them.
#[test]
fn an_application_that_fails_is_completed_by_the_same_call() {
    let mut failed = 0;
    let chain = Chain::draw(round_seed());
    let _shown = case(chain.seed, &(chain.shards, &chain.options));
    let step = if share(2) == 2 { 1 } else { 5 };
    for operation in [Operation::Write, Operation::Sync, Operation::Resize] {
        for nth in (0..).step_by(step) {
            let disk = SimDisk::new(11);
            chain.states.borrow_mut().clear();
            let (mut links, mut is_over) = (0, false);
            chain.work(&disk, |work| {
                links += 1;
                if links < 4 {
                    return work();
                }
                let before = disk.faults().count(operation);
                disk.faults().fail(operation, before + nth, Fault::Error);
                let done = apply_on(&disk, 2);
                is_over = disk.faults().struck() == 0;
                disk.faults().clear();
                if done.is_err() {
                    failed += 1;
                    if let Err(error) = chain.open_copy(&disk) {
                        let shown = error.to_string();
                        assert!(shown.contains("`azekura apply COPY changes-2`"), "{shown}");
                    }
                }
                apply_on(&disk, 2).unwrap();
            });
            let copy = chain.open_copy(&disk).unwrap();
            assert_holds(&copy, &chain.states.borrow()[2]);
            if is_over {
                break;
            }
        }
    }
    tried_at_least(failed, 30, "applications of changes to shards that failed");
}

/// A store of three shards, a copy of it, and changes since.
struct Small {
    folder: tempfile::TempDir,
    db: Store,
}

impl Small {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&mut Random::new(1), 3);
        let db = Store::create(folder.path().join(STORE), 3, &options).unwrap();
        let small = Self { folder, db };
        small.put(0);
        small.db.copy_to(&small.at(COPY), &mut quiet).unwrap();
        small.put(1);
        small.changes("one");
        small
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, version: u64) {
        for number in 0..200_u64 {
            let value = format!("{version} {number:>40}");
            self.db
                .put(&number.to_le_bytes(), value.as_bytes())
                .unwrap();
        }
    }

    /// Changes since the copy.
    fn changes(&self, name: &str) -> Vec<CheckpointId> {
        let since = Store::checkpoints_of(self.at(COPY)).unwrap();
        let to = self.db.copy_changes(&since, self.at(name), &mut quiet);
        to.unwrap()
    }

    fn apply(&self, name: &str) -> Result<Vec<CheckpointId>> {
        Db::apply_changes(self.at(COPY), self.at(name), quiet)
    }

    /// All files of a store, or of changes, by name.
    fn bytes(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut names = files_of(&self.at(name)).unwrap();
        names.push(self.at(name));
        let read = |name: PathBuf| std::fs::read(&name).map(|bytes| (name, bytes)).ok();
        names.into_iter().filter_map(read).collect()
    }

    /// Nothing of this is applied, for this reason, and all of the copy is what it was.
    fn refuses(&self, changes: &str, kind: Kind, reason: &str) {
        let before = self.bytes(COPY);
        let error = self.apply(changes).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(self.bytes(COPY) == before, "{reason}");
    }
}

#[test]
fn what_does_not_fit_all_shards_is_refused_and_no_shard_is_written() {
    let (small, other) = (Small::new(), Small::new());
    let shard = |name: &str, number: usize| small.at(&format!("{name}.shard-{number:03}"));
    let restore = |bytes: &BTreeMap<PathBuf, Vec<u8>>| {
        for (name, bytes) in bytes {
            std::fs::write(name, bytes).unwrap();
        }
    };
    // Of another store, and a store that is none.
    for (name, bytes) in other.bytes("one") {
        std::fs::write(small.at("other").with_file_name(of_other(&name)), bytes).unwrap();
    }
    small.refuses("other", Kind::Invalid, "another store");
    small.refuses(STORE, Kind::Mismatch, "no changes of a store of shards");
    let since = Store::checkpoints_of(other.at(COPY)).unwrap();
    for since in [&since[..], &since[..2]] {
        let error = small.db.copy_changes(since, small.at("no"), &mut quiet);
        assert_eq!(error.unwrap_err().kind(), Kind::Invalid);
    }
    // In another order.
    let first = small.bytes(COPY);
    small.apply("one").unwrap();
    small.put(2);
    small.changes("two");
    let second = small.bytes(COPY);
    restore(&first);
    small.refuses("two", Kind::Invalid, "is not at the checkpoint");
    // One shard is further than the others, and what the manifest states of it is lost: only the same changes fit all.
    restore(&BTreeMap::from([(
        shard(COPY, 1),
        second[&shard(COPY, 1)].clone(),
    )]));
    small.refuses("two", Kind::Invalid, "is not at the checkpoint");
    restore(&first);
    // A shard's changes are missing, exchanged, or damaged.
    let changes = small.bytes("one");
    std::fs::remove_file(shard("one", 2)).unwrap();
    small.refuses("one", Kind::Mismatch, "shard 2 of 3 is missing");
    std::fs::write(shard("one", 2), &changes[&shard("one", 1)]).unwrap();
    small.refuses("one", Kind::Invalid, "another store");
    let mut random = Random::new(round_seed());
    let mut flipped = 0;
    for _ in 0..share(600) {
        let mut bytes = changes[&shard("one", 2)].clone();
        let at = random.index(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        std::fs::write(shard("one", 2), bytes).unwrap();
        let error = small.apply("one").unwrap_err();
        let is_known = matches!(error.kind(), Kind::Corrupted | Kind::Mismatch);
        assert!(is_known, "byte {at}: {error}");
        flipped += 1;
    }
    assert!(small.bytes(COPY) == first, "nothing was written");
    restore(&changes);
    // A shard of the copy is missing, open, or was changed.
    std::fs::remove_file(shard(COPY, 0)).unwrap();
    small.refuses("one", Kind::Mismatch, "shard 0 of 3 is missing");
    restore(&first);
    let opening = options(&mut Random::new(1), 3).opening;
    let copy = Store::open(small.at(COPY), &opening).unwrap();
    assert_eq!(small.apply("one").unwrap_err().kind(), Kind::Locked);
    copy.put(b"own", b"1").unwrap();
    copy.close().unwrap();
    small.refuses("one", Kind::Invalid, "is not at the checkpoint");
    restore(&first);
    small.apply("one").unwrap();
    small.apply("two").unwrap();
    tried_at_least(flipped, 600, "bytes of a shard's changes flipped");
}

/// The name of a file in the place of another one's, after its own.
fn of_other(name: &Path) -> String {
    let name = name.file_name().unwrap().to_str().unwrap();
    name.replacen("one", "other", 1)
}

/// Changes are no store, nor is a copy of which some shards are brought forward.
#[test]
fn what_is_not_complete_is_not_opened() {
    let small = Small::new();
    let refused = |name: &str| {
        let file = small.at(name);
        let errors = [
            azekura::open(&file).map(drop),
            azekura::open::open(&file).map(drop),
            azekura::open::open_read_only(&file).map(drop),
            azekura::open::inspect(&file).map(drop),
            Db::checkpoints_of(&file).map(drop),
        ];
        errors.map(|error| error.unwrap_err().to_string())
    };
    for error in refused("one") {
        assert!(error.contains("azekura apply COPY CHANGES"), "{error}");
    }
    // As a kill between two shards leaves it, by each of the library's own words.
    let disk = SimDisk::new(round_seed());
    let chain = Chain::draw(1);
    let mut links = 0;
    let mut before = 0;
    chain.work(&disk, |work| {
        links += 1;
        if links == 4 {
            before = disk.events();
        }
        work();
    });
    let mut incomplete = 0;
    for event in before..disk.events() {
        let state = disk.kill_state(event);
        let states = chain.states.borrow();
        let error = match chain.open_copy(&state) {
            Err(error) => error,
            Ok(copy) => {
                let found = scanned(&copy);
                let is_whole = found == states[1] || found == states[2];
                assert!(is_whole, "some shards are brought forward");
                continue;
            }
        };
        incomplete += 1;
        assert_eq!(error.kind(), Kind::Mismatch, "{error}");
        for part in ["not complete", "`azekura apply COPY changes-2`", COPY] {
            assert!(error.to_string().contains(part), "{error}");
        }
        let folder = state.directory();
        let asked = Store::checkpoints_in(&folder, Path::new(COPY));
        assert!(asked.unwrap_err().to_string().contains("not complete"));
        match apply_on(&state, 1) {
            Err(error) => assert_eq!(error.kind(), Kind::Invalid, "{error}"),
            // No shard was written yet: it is the copy that it was.
            Ok(_) => assert_holds(&chain.open_copy(&state).unwrap(), &states[1]),
        }
        let done = apply_on(&state, 2).unwrap();
        assert_eq!(
            done,
            Store::checkpoints_in(&folder, Path::new(COPY)).unwrap()
        );
        assert_holds(&chain.open_copy(&state).unwrap(), &states[2]);
    }
    tried_at_least(
        incomplete,
        10,
        "copies of shards with changes that are not complete",
    );
}
