//! A copy of a tree file that is used, and what changed since, brought together are the store at the moment of the last.
//!
//! Chains of a copy and changes are compared with a model, record by record, after all that a store does between two copies, over
//! reopenings and kills; threads write meanwhile, each in an order that the copy must be a prefix of; the power is cut at each event of
//! making changes and of applying them. What does not fit is refused, and nothing is changed: other stores, other histories of
//! the same file, copies that were changed, and files of changes of which a byte is not what was written.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::engine::{Engine, Persistent, Reader};
use azekura::io::sim::{Limits, SimDisk};
use azekura::io::{Access, Directory};
use azekura::kernel::SuperblockPair;
use azekura::record::hash::HashDb;
use azekura::record::tree::layout::Super;
use azekura::record::tree::{CheckpointId, CreateOptions, OpenOptions, TreeDb, repair};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Error, Kind, Result};

use super::{Keys, draw_ends, is_in, options, simulated, value};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn quiet(_: u64, _: u64) {}

fn records_of(db: &TreeDb) -> Model {
    let mut records = Model::new();
    db.scan(None, &mut |key, value| {
        records.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    records
}

/// Whether a store holds these records, and nothing else, soundly.
fn assert_holds(db: &TreeDb, model: &Model) {
    assert!(records_of(db) == *model, "it holds other records");
    assert_eq!(db.count(), model.len() as u64);
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

/// The same of a file, which is not touched.
fn assert_file_holds(file: &Path, options: &OpenOptions, model: &Model) {
    let look = file.with_extension("look");
    std::fs::copy(file, &look).unwrap();
    let db = TreeDb::open(&look, options).unwrap();
    assert_holds(&db, model);
    // It is a store like any other.
    db.put(b"after", b"1").unwrap();
    db.close().unwrap();
    let db = TreeDb::open(&look, options).unwrap();
    assert_eq!(
        db.count(),
        model.len() as u64 + u64::from(!model.contains_key(&b"after"[..]))
    );
    drop(db);
    std::fs::remove_file(&look).unwrap();
}

fn apply(copy: &Path, changes: &Path) -> Result<CheckpointId> {
    TreeDb::apply_changes(copy, changes, &mut quiet)
}

/// One change of a store and of its model; what it was.
fn change(
    db: &TreeDb,
    keys: Keys,
    many: u64,
    model: &mut Model,
    random: &mut Random,
) -> &'static str {
    let key = |random: &mut Random| keys.key(random.below(many));
    match random.below(200) {
        0 if random.one_in(3) => {
            db.clear().unwrap();
            model.clear();
            let count = random.below(many.min(500));
            for _ in 0..count {
                model.insert(key(random), value(random, 100));
            }
            let mut sorted: Vec<_> = model.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| keys.order.compare(a, b));
            db.load_sorted(sorted.into_iter().map(Ok)).unwrap();
            "clear and load"
        }
        1 => {
            let near = random.below(many);
            let ends = draw_ends(random, keys.order, |random| {
                keys.key((near + random.below(many / 8 + 1)) % many)
            });
            db.remove_range(ends.clone()).unwrap();
            model.retain(|key, _| !is_in(keys.order, &ends, key));
            "range"
        }
        2 if random.one_in(4) => {
            db.compact(&mut quiet).unwrap();
            "compact"
        }
        3 => {
            db.checkpoint().unwrap();
            "checkpoint"
        }
        4 => {
            db.maintain().unwrap();
            "maintain"
        }
        5..9 => {
            let mut edits = BTreeMap::new();
            for _ in 0..4 {
                edits.insert(key(random), value(random, 400));
            }
            let names: Vec<&[u8]> = edits.keys().map(Vec::as_slice).collect();
            let put = |_: &[Option<&[u8]>]| edits.values().map(|of| Edit::put(of)).collect();
            db.update_many(&names, &mut { put }).unwrap();
            model.extend(edits);
            "batch"
        }
        9..50 => {
            let key = key(random);
            let was = db.remove(&key).unwrap();
            assert_eq!(was, model.remove(&key).is_some());
            "remove"
        }
        _ => {
            let (key, value) = (key(random), value(random, 300));
            db.put(&key, &value).unwrap();
            model.insert(key, value);
            "put"
        }
    }
}

/// A copy that has the changes of some steps, and one that has those of all.
#[test]
fn a_chain_of_changes_is_the_store() {
    let (mut links, mut changed, mut records) = (0, 0, 0);
    for round in 0..share(60).max(6) {
        let seed = round + round_seed();
        let random = &mut Random::new(seed);
        let background = random.one_in(3);
        let options = options(random, background);
        let keys = Keys::draw(random, options.order);
        let many = *random.choose(&[30, 400, 3000, 6000]);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _shown = case(seed, &(&options, keys, many));
        let mut path = at("store.azt");
        let mut db = TreeDb::create(&path, &options).unwrap();
        let mut model = Model::new();
        for _ in 0..random.below(many) {
            change(&db, keys, many, &mut model, random);
        }
        db.copy_to(&at("base"), &mut quiet).unwrap();
        let mut states = vec![(TreeDb::checkpoint_of(at("base")).unwrap(), model.clone())];
        std::fs::copy(at("base"), at("late")).unwrap();
        for link in 1..=4_usize {
            let most = *random.choose(&[0, 3, 100, 2000]);
            for number in 0..random.below(most + 1) {
                change(&db, keys, many, &mut model, random);
                changed += 1;
                if number % 500 == 499 {
                    // The store is opened again, or what a kill leaves of it.
                    let killed = at(&format!("store-{link}-{number}.azt"));
                    if !background && random.one_in(2) {
                        std::fs::copy(&path, &killed).unwrap();
                        path = killed;
                    }
                    db.close().unwrap();
                    db = TreeDb::open(&path, &options.opening).unwrap();
                }
            }
            let (since, before) = states[link - 1].clone();
            let file = at(&format!("changes-{link}"));
            let to = db.copy_changes(since, &file, &mut quiet).unwrap();
            assert_eq!(
                to == since,
                before == model || to.number() == since.number(),
                "{to}"
            );
            states.push((to, model.clone()));
            links += 1;
            if random.one_in(3) {
                // What only opens the copy does not change which checkpoint it is at.
                let copy = TreeDb::open(at("base"), &options.opening).unwrap();
                assert_eq!(records_of(&copy), before);
                copy.close().unwrap();
                assert_eq!(TreeDb::checkpoint_of(at("base")).unwrap(), since);
            }
            for _ in 0..2 {
                assert_eq!(apply(&at("base"), &file).unwrap(), to);
            }
            assert_eq!(TreeDb::checkpoint_of(at("base")).unwrap(), to);
            assert_file_holds(&at("base"), &options.opening, &model);
            records += model.len() as u64;
        }
        // From one of them to the end in one step.
        let first = random.index(3);
        for link in 1..=first {
            apply(&at("late"), &at(&format!("changes-{link}"))).unwrap();
        }
        let to = db
            .copy_changes(states[first].0, at("rest"), &mut quiet)
            .unwrap();
        assert_eq!(to, states[4].0, "nothing changed since");
        assert_eq!(apply(&at("late"), &at("rest")).unwrap(), to);
        assert_file_holds(&at("late"), &options.opening, &model);
        assert_holds(&db, &model);
    }
    tried_at_least(links, 200, "links of chains of changes");
    tried_at_least(changed, 30_000, "changes of stores between copies");
    tried_at_least(records, 20_000, "records of copies compared");
}

/// What thread `thread` puts as its record `number`, the last of them first.
fn of_thread(thread: u64, number: u64) -> (Vec<u8>, Vec<u8>) {
    let random = &mut Random::new(thread << 32 | number);
    let key = format!("{:03}/{thread}", number % 300).into_bytes();
    let len = match random.below(30) {
        0 => 40_000,
        1..4 => 700,
        _ => random.index(200),
    };
    let mut value = number.to_le_bytes().to_vec();
    value.extend(random.bytes(len));
    (key, value)
}

/// Whether the store holds what some thread put up to some record, of these at least and at most.
fn assert_is_prefix(db: &TreeDb, thread: u64, least: u64, most: u64) {
    let mut last = 0;
    let mut found = BTreeMap::new();
    for slot in 0..300 {
        let (key, _) = of_thread(thread, slot);
        let Some(value) = db.get(&key).unwrap() else {
            continue;
        };
        let number = u64::from_le_bytes(*value.first_chunk().unwrap());
        assert_eq!((key, value), of_thread(thread, number));
        found.insert(slot, number);
        last = last.max(number + 1);
    }
    assert!((least..=most).contains(&last), "{last} of {least}..={most}");
    for slot in 0..300 {
        let newest = (0..last)
            .rev()
            .take(300)
            .find(|number| number % 300 == slot);
        assert_eq!(
            found.get(&slot).copied(),
            newest,
            "slot {slot} of {last} records"
        );
    }
}

/// Values outside of leaves are written, and pages give way, while a checkpoint is cut and copied.
#[test]
fn changes_while_threads_write_are_of_one_moment() {
    let (mut links, mut put) = (0, 0);
    for round in 0..share(30).max(4) {
        let seed = round + round_seed();
        let random = &mut Random::new(seed);
        let options =
            options(random, random_background(seed)).order(azekura::order::Order::Lexical);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _shown = case(seed, &options);
        let db = &TreeDb::create(at("store.azt"), &options).unwrap();
        let (begun, done) = (
            &[const { AtomicU64::new(0) }; 3],
            &[const { AtomicU64::new(0) }; 3],
        );
        let is_over = &AtomicBool::new(false);
        let counts = |of: &[AtomicU64; 3]| [0, 1, 2].map(|at| of[at].load(Ordering::SeqCst));
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                scope.spawn(move || {
                    for number in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let (key, value) = of_thread(thread, number);
                        begun[thread as usize].store(number + 1, Ordering::SeqCst);
                        db.put(&key, &value).unwrap();
                        done[thread as usize].store(number + 1, Ordering::SeqCst);
                    }
                });
            }
            let wait = |random: &mut Random| {
                std::thread::sleep(std::time::Duration::from_millis(random.below(40)));
            };
            wait(random);
            db.copy_to(&at("copy"), &mut quiet).unwrap();
            let mut since = TreeDb::checkpoint_of(at("copy")).unwrap();
            for link in 0..6 {
                wait(random);
                let least = counts(done);
                let file = at(&format!("changes-{link}"));
                since = db.copy_changes(since, &file, &mut quiet).unwrap();
                let most = counts(begun);
                assert_eq!(apply(&at("copy"), &file).unwrap(), since);
                let look = at("look");
                std::fs::copy(at("copy"), &look).unwrap();
                let copy = TreeDb::open(&look, &options.opening).unwrap();
                for thread in 0..3 {
                    let index = thread as usize;
                    assert_is_prefix(&copy, thread, least[index], most[index]);
                }
                let report = copy.check(&mut |_, _| {}).unwrap();
                assert!(report.is_sound(), "{:?}", report.damage);
                links += 1;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        put += counts(done).iter().sum::<u64>();
    }
    tried_at_least(links, 100, "links of chains while threads write");
    tried_at_least(put, 20_000, "records that threads put meanwhile");
}

fn random_background(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

const STORE: &str = "store.azt";
const COPY: &str = "copy.azt";

/// A chain on a disk of which the power is cut.
struct Chain {
    options: CreateOptions,
    keys: Keys,
    many: u64,
    seed: u64,
    /// What the store held at each copy.
    states: RefCell<Vec<Model>>,
}

fn on(
    disk: &SimDisk,
    name: &str,
    access: Access,
) -> Result<std::sync::Arc<dyn azekura::io::Storage>> {
    disk.directory().open(Path::new(name), access)
}

fn apply_on(disk: &SimDisk, link: usize) -> Result<CheckpointId> {
    let changes = on(disk, &changes_of(link), Access::Read)?;
    let copy = on(disk, COPY, Access::Write)?;
    TreeDb::apply_changes_on(&*copy, &*changes, &mut quiet)
}

fn changes_of(link: usize) -> String {
    format!("changes-{link}")
}

impl Chain {
    fn draw(seed: u64) -> Self {
        let random = &mut Random::new(!seed);
        let options = simulated(random);
        Self {
            keys: Keys::draw(random, options.order),
            many: *random.choose(&[30, 300, 900]),
            options,
            seed,
            states: RefCell::default(),
        }
    }

    fn work(&self, disk: &SimDisk, ledger: &Ledger) {
        let random = &mut Random::new(self.seed);
        let folder = disk.directory();
        let db = TreeDb::create_in(&folder, Path::new(STORE), &self.options).unwrap();
        let mut model = Model::new();
        let mut work = |random: &mut Random| {
            for number in 0..self.many {
                change(&db, self.keys, self.many, &mut model, random);
                // What the copy has is free, and written over.
                if number % (self.many / 3) == 0 {
                    db.checkpoint().unwrap();
                }
            }
            self.states.borrow_mut().push(model.clone());
        };
        work(random);
        let mut since = db.copy_in(&folder, Path::new(COPY), &mut quiet).unwrap();
        ledger.cut_from_here();
        for link in 1..=2 {
            work(random);
            let name = changes_of(link);
            let made = ledger
                .operation(|| db.copy_changes_in(since, &folder, Path::new(&name), &mut quiet));
            since = made.unwrap();
            ledger.synced();
            ledger.operation(|| apply_on(disk, link)).unwrap();
            ledger.synced();
        }
    }

    fn verify(&self, crash: &Crash<'_>) -> std::result::Result<u64, String> {
        let disk = crash.disk;
        let text = |error: Error| error.to_string();
        let states = self.states.borrow();
        // Operations are by turns a file of changes, and its application.
        let (kept, began) = (crash.kept(), crash.done.began);
        for link in 1..=kept.div_ceil(2) {
            on(disk, &changes_of(link), Access::Read).map_err(text)?;
        }
        let open = || TreeDb::open_on(on(disk, COPY, Access::Write)?, &self.options.opening);
        let look = |model: &Model| -> std::result::Result<(), String> {
            let db = open().map_err(text)?;
            let report = db.check(&mut quiet).map_err(text)?;
            if !report.is_sound() || records_of(&db) != *model {
                return Err(format!("a copy of other records, {:?}", report.damage));
            }
            db.close().map_err(text)
        };
        let mut at = match open() {
            Ok(db) => {
                let found = records_of(&db);
                drop(db);
                let within = &states[kept / 2..=began / 2];
                let state = within.iter().position(|state| *state == found);
                kept / 2 + state.ok_or("the copy is at none of the checkpoints")?
            }
            Err(error) => {
                let message = text(error);
                if began == kept || began % 2 == 1 || !message.contains("azekura apply") {
                    return Err(format!("no open: {message}"));
                }
                apply_on(disk, began / 2).map_err(text)?;
                began / 2
            }
        };
        crash.recovered();
        look(&states[at])?;
        while disk
            .directory()
            .exists(Path::new(&changes_of(at + 1)))
            .map_err(text)?
        {
            at += 1;
            for _ in 0..2 {
                apply_on(disk, at).map_err(text)?;
            }
            look(&states[at])?;
        }
        Ok(0)
    }
}

#[test]
fn a_cut_at_any_event_leaves_a_copy_that_is_completed() {
    let mut counts = Counts::default();
    for round in 0..share(10).max(2) {
        let seed = round + round_seed();
        let chain = Chain::draw(seed);
        let _shown = case(seed, &(&chain.options, chain.keys, chain.many));
        let config = Config {
            recovery_one_in: 24,
            recovery_cuts_max: 6,
            ..Config::new(seed).quick(24)
        };
        let tried = explore(
            &config,
            |disk, ledger| chain.work(disk, ledger),
            |crash| chain.verify(crash),
        );
        counts = counts.plus(tried);
    }
    let states = counts.crash_states + counts.recovery_cuts + counts.kills;
    tried_at_least(states, 6000, "states after a crash of copies and changes");
}

/// A small store, a copy of it, and changes since.
struct Small {
    folder: tempfile::TempDir,
    db: TreeDb,
}

impl Small {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = CreateOptions::new()
            .segment_size(64u64 << 10)
            .background(false);
        let db = TreeDb::create(folder.path().join("store.azt"), &options).unwrap();
        let small = Self { folder, db };
        small.put(0);
        small.db.copy_to(&small.at("copy"), &mut quiet).unwrap();
        small.put(1);
        small.changes("changes");
        small
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, version: u64) {
        put(&self.db, version);
    }

    /// Changes since the copy.
    fn changes(&self, name: &str) -> CheckpointId {
        let since = TreeDb::checkpoint_of(self.at("copy")).unwrap();
        self.db
            .copy_changes(since, self.at(name), &mut quiet)
            .unwrap()
    }

    /// Nothing of this is applied, for this reason, and the copy is what it was.
    fn refuses(&self, changes: &str, kind: Kind, reason: &str) {
        let before = std::fs::read(self.at("copy")).unwrap();
        let error = apply(&self.at("copy"), &self.at(changes)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(std::fs::read(self.at("copy")).unwrap() == before);
    }
}

fn put(db: &TreeDb, version: u64) {
    for number in 0..200_u64 {
        let value = format!("{version} {number:>40}");
        db.put(&number.to_le_bytes(), value.as_bytes()).unwrap();
    }
}

#[test]
fn changes_that_do_not_fit_a_copy_are_refused() {
    let (one, other) = (Small::new(), Small::new());
    let opening = OpenOptions::new().background(false);
    std::fs::copy(other.at("changes"), one.at("of-other")).unwrap();
    one.refuses("of-other", Kind::Invalid, "another store");
    let since = TreeDb::checkpoint_of(other.at("copy")).unwrap();
    let error = one
        .db
        .copy_changes(since, one.at("no"), &mut quiet)
        .unwrap_err();
    assert!(error.to_string().contains("another store"), "{error}");
    assert!(!one.at("no").exists());
    let error = one
        .db
        .copy_changes(since, one.at("changes"), &mut quiet)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    // In another order.
    let first = TreeDb::checkpoint_of(one.at("copy")).unwrap();
    std::fs::copy(one.at("copy"), one.at("copy-2")).unwrap();
    let to = apply(&one.at("copy-2"), &one.at("changes")).unwrap();
    one.put(2);
    one.db
        .copy_changes(to, one.at("later"), &mut quiet)
        .unwrap();
    one.refuses(
        "later",
        Kind::Invalid,
        &format!("found {first}, expected {to}"),
    );
    // A copy that was changed, and closed or not.
    let fresh = std::fs::read(one.at("copy")).unwrap();
    let copy = TreeDb::open(one.at("copy"), &opening).unwrap();
    one.refuses_locked();
    copy.put(b"own", b"1").unwrap();
    let killed = std::fs::read(one.at("copy")).unwrap();
    copy.close().unwrap();
    one.refuses("changes", Kind::Invalid, "is not at the checkpoint");
    std::fs::write(one.at("copy"), killed).unwrap();
    one.refuses("changes", Kind::Invalid, "was opened since it was made");
    std::fs::write(one.at("copy"), &fresh).unwrap();
    // What is no such file.
    one.refuses("store.azt", Kind::Mismatch, "another engine");
    std::fs::write(one.at("text"), "no changes").unwrap();
    one.refuses("text", Kind::Mismatch, "not an azekura file");
    let error = apply(&one.at("text"), &one.at("changes")).unwrap_err();
    assert_eq!(error.kind(), Kind::Mismatch, "{error}");
    // Opening it as a store names what it is not.
    for error in refused_opens(&one.at("changes"), &one.at("new")) {
        assert!(error.contains("azekura apply COPY CHANGES"), "{error}");
    }
    apply(&one.at("copy"), &one.at("changes")).unwrap();
}

impl Small {
    fn refuses_locked(&self) {
        let error = apply(&self.at("copy"), &self.at("changes")).unwrap_err();
        assert_eq!(error.kind(), Kind::Locked, "{error}");
    }
}

/// The errors of all that opens a file.
fn refused_opens(file: &Path, new: &Path) -> Vec<String> {
    let errors = [
        TreeDb::open(file, &OpenOptions::new()).map(drop),
        HashDb::open(file, &azekura::record::hash::OpenOptions::new()).map(drop),
        azekura::open::open(file).map(drop),
        azekura::open::open_read_only(file).map(drop),
        azekura::open::inspect(file).map(drop),
        repair(file, new, &mut quiet).map(drop),
        TreeDb::checkpoint_of(file).map(drop),
    ];
    assert!(!new.exists());
    errors.map(|error| error.unwrap_err().to_string()).to_vec()
}

/// A store is restored from a file that it was, and written: the same numbers are of other states then, under the same salt.
#[test]
fn a_copy_of_another_history_is_refused() {
    let mut refused = 0;
    for forked_open in [false, true] {
        let small = Small::new();
        let (path, fork) = (small.at("store.azt"), small.at("fork.azt"));
        let opening = OpenOptions::new().background(false);
        let folder = small.folder.path().to_path_buf();
        let at = |name: &str| folder.join(name);
        let Small { folder: _kept, db } = small;
        let db = if forked_open {
            db.checkpoint().unwrap();
            std::fs::copy(&path, &fork).unwrap();
            db
        } else {
            db.close().unwrap();
            std::fs::copy(&path, &fork).unwrap();
            TreeDb::open(&path, &opening).unwrap()
        };
        let forked = TreeDb::open(&fork, &opening).unwrap();
        let base = TreeDb::checkpoint_of(at("copy")).unwrap();
        std::fs::copy(at("copy"), at("copy-2")).unwrap();
        put(&db, 7);
        put(&forked, 8);
        let to = db.copy_changes(base, at("one"), &mut quiet).unwrap();
        let forked_to = forked.copy_changes(base, at("two"), &mut quiet).unwrap();
        assert_eq!(to.number(), forked_to.number(), "the same number");
        assert_ne!(to, forked_to);
        apply(&at("copy"), &at("one")).unwrap();
        apply(&at("copy-2"), &at("two")).unwrap();
        assert_file_holds(&at("copy"), &opening, &records_of(&db));
        assert_file_holds(&at("copy-2"), &opening, &records_of(&forked));
        for store in [&db, &forked] {
            put(store, 9);
            store.checkpoint().unwrap();
        }
        for (store, since) in [(&db, forked_to), (&forked, to)] {
            let error = store.copy_changes(since, at("no"), &mut quiet).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            assert!(error.to_string().contains("another history"), "{error}");
            refused += 1;
        }
        let next = forked
            .copy_changes(forked_to, at("next"), &mut quiet)
            .unwrap();
        let error = apply(&at("copy"), &at("next")).unwrap_err();
        assert!(
            error.to_string().contains("is not at the checkpoint"),
            "{error}"
        );
        assert_eq!(apply(&at("copy-2"), &at("next")).unwrap(), next);
        // The copy is the store's own again, and goes its own way.
        let restored = TreeDb::open(at("copy"), &opening).unwrap();
        put(&restored, 3);
        let own = restored.copy_changes(to, at("own"), &mut quiet).unwrap();
        assert!(db.copy_changes(own, at("no"), &mut quiet).is_err());
        refused += 2;
    }
    tried_at_least(refused, 8, "copies of another history refused");
}

/// Of the last copies that were made each is known, and of those before none.
#[test]
fn a_store_knows_its_last_copies() {
    let small = Small::new();
    let first = TreeDb::checkpoint_of(small.at("copy")).unwrap();
    let mut made = vec![first, small.changes("same")];
    for round in 0..80_u64 {
        small.db.put(b"round", &round.to_le_bytes()).unwrap();
        let name = format!("changes-{round}");
        made.push(
            small
                .db
                .copy_changes(made[1 + round as usize], small.at(&name), &mut quiet)
                .unwrap(),
        );
    }
    let known = |since: &CheckpointId| {
        let _ = std::fs::remove_file(small.at("try"));
        small
            .db
            .copy_changes(*since, small.at("try"), &mut quiet)
            .is_ok()
    };
    let is_known: Vec<bool> = made.iter().map(known).collect();
    let mut expected = vec![false; made.len() - 64];
    expected.extend([true; 64]);
    assert_eq!(is_known, expected);
    // The order in which they were made leads the first to the last.
    let mut last = apply(&small.at("copy"), &small.at("changes")).unwrap();
    for round in 0..80 {
        last = apply(&small.at("copy"), &small.at(&format!("changes-{round}"))).unwrap();
    }
    assert_eq!(Some(&last), made.last());
    assert_file_holds(
        &small.at("copy"),
        &OpenOptions::new(),
        &records_of(&small.db),
    );
}

#[test]
fn each_byte_of_changes_is_verified_before_any_is_applied() {
    let small = Small::new();
    let bytes = std::fs::read(small.at("changes")).unwrap();
    let (mut flipped, step) = (0, if share(2) == 2 { 7 } else { 131 });
    let is_tried = |at: &usize| *at < 400 || *at + 400 > bytes.len() || at.is_multiple_of(step);
    for at in (0..bytes.len()).filter(is_tried) {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        std::fs::write(small.at("flipped"), &other).unwrap();
        let error = apply(&small.at("copy"), &small.at("flipped")).unwrap_err();
        let is_known = matches!(error.kind(), Kind::Corrupted | Kind::Mismatch);
        assert!(is_known, "byte {at}: {error}");
        flipped += 1;
    }
    for len in [0, 100, 4096, 8191, 8192, 10_000, bytes.len() - 1] {
        std::fs::write(small.at("flipped"), &bytes[..len]).unwrap();
        apply(&small.at("copy"), &small.at("flipped")).unwrap_err();
    }
    let longer = [&bytes[..], b"0"].concat();
    std::fs::write(small.at("flipped"), longer).unwrap();
    small.refuses("flipped", Kind::Corrupted, "does not verify");
    apply(&small.at("copy"), &small.at("changes")).unwrap();
    tried_at_least(flipped, 1000, "bytes of changes flipped");
}

/// A copy whose changes are not complete is no store until they are.
#[test]
fn what_is_not_complete_is_not_opened() {
    let disk = SimDisk::new(round_seed());
    let folder = disk.directory();
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX);
    let db = TreeDb::create_in(&folder, Path::new(STORE), &options).unwrap();
    put(&db, 0);
    let since = db.copy_in(&folder, Path::new(COPY), &mut quiet).unwrap();
    for link in 1..=2 {
        put(&db, link);
        let name = changes_of(link as usize);
        db.copy_changes_in(since, &folder, Path::new(&name), &mut quiet)
            .unwrap();
    }
    let before = disk.events();
    apply_on(&disk, 1).unwrap();
    let mut marked = 0;
    for event in before..disk.events() {
        let state = disk.kill_state(event);
        let bytes = |storage: std::sync::Arc<dyn azekura::io::Storage>| {
            let mut bytes = vec![0; storage.size().unwrap() as usize];
            storage.read_at(0, &mut bytes).unwrap();
            bytes
        };
        let copy = bytes(on(&state, COPY, Access::Read).unwrap());
        let files = tempfile::tempdir().unwrap();
        let file = files.path().join("copy");
        std::fs::write(&file, copy).unwrap();
        if TreeDb::checkpoint_of(&file).is_ok() {
            continue;
        }
        marked += 1;
        for error in refused_opens(&file, &files.path().join("new")) {
            assert!(error.contains("not complete"), "{error}");
            assert!(error.contains("azekura apply COPY changes-1"), "{error}");
        }
        for link in 1..=2 {
            let changes = bytes(on(&disk, &changes_of(link), Access::Read).unwrap());
            std::fs::write(files.path().join(changes_of(link)), changes).unwrap();
        }
        let error = apply(&file, &files.path().join("changes-2")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("other changes are being applied"),
            "{error}"
        );
        apply(&file, &files.path().join("changes-1")).unwrap();
        let mut model = Model::new();
        for number in 0..200_u64 {
            let value = format!("1 {number:>40}");
            model.insert(number.to_le_bytes().to_vec(), value.into_bytes());
        }
        assert_file_holds(&file, &OpenOptions::new(), &model);
    }
    tried_at_least(marked, 10, "copies with changes that are not complete");
}

/// A copy that another system opened, and closed, is at the same checkpoint; its journal had an epoch of its own since.
#[test]
fn epochs_that_a_copy_had_are_not_used_again() {
    let disk = SimDisk::new(round_seed());
    let options = CreateOptions::new()
        .segment_size(64u64 << 10)
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX);
    let db = TreeDb::create_in(&disk.directory(), Path::new(STORE), &options).unwrap();
    put(&db, 0);
    let copy = Path::new(COPY);
    let since = db.copy_in(&disk.directory(), copy, &mut quiet).unwrap();
    put(&db, 1);
    let name = changes_of(1);
    db.copy_changes_in(since, &disk.directory(), Path::new(&name), &mut quiet)
        .unwrap();
    let mut model = Model::new();
    let mut states = disk.crash_states(disk.events(), &Limits::default());
    let mut disk = states.next().unwrap();
    let superblock = |disk: &SimDisk| {
        let storage = on(disk, COPY, Access::Read).unwrap();
        SuperblockPair::<Super>::read(&*storage).unwrap().payload
    };
    let first = superblock(&disk);
    for _ in 0..3 {
        let copy =
            TreeDb::open_on(on(&disk, COPY, Access::Write).unwrap(), &options.opening).unwrap();
        model = records_of(&copy);
        copy.close().unwrap();
        let mut states = disk.crash_states(disk.events(), &Limits::default());
        disk = states.next().unwrap();
    }
    let opened = superblock(&disk);
    assert!(opened.epoch > first.epoch, "{opened:?}");
    apply_on(&disk, 1).unwrap();
    let applied = superblock(&disk);
    assert!(applied.epoch >= opened.epoch, "{applied:?}");
    assert!(applied.next_sequence >= opened.next_sequence, "{applied:?}");
    let copy = TreeDb::open_on(on(&disk, COPY, Access::Write).unwrap(), &options.opening).unwrap();
    assert_ne!(records_of(&copy), model);
    assert_holds(&copy, &records_of(&db));
}

/// Changes are as long as what changed, roughly.
#[test]
fn changes_are_shorter_than_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let len = |name: &str| std::fs::metadata(at(name)).unwrap().len();
    let options = CreateOptions::new()
        .cache(2u64 << 20)
        .segment_size(256u64 << 10);
    let db = TreeDb::create(at("store.azt"), &options).unwrap();
    let many = 200_000_u64;
    let name = |number: u64| format!("{number:010}").into_bytes();
    for number in 0..many {
        db.put(&name(number), &[7; 100]).unwrap();
    }
    db.copy_to(&at("copy"), &mut quiet).unwrap();
    let since = TreeDb::checkpoint_of(at("copy")).unwrap();
    let to = db.copy_changes(since, at("none"), &mut quiet).unwrap();
    assert_eq!(to, since);
    for number in many..many + many / 100 {
        db.put(&name(number), &[8; 100]).unwrap();
    }
    let since = db.copy_changes(since, at("appended"), &mut quiet).unwrap();
    let random = &mut Random::new(round_seed());
    for _ in 0..many / 100 {
        db.put(&name(random.below(many)), &[9; 100]).unwrap();
    }
    db.copy_changes(since, at("updated"), &mut quiet).unwrap();
    let copy = len("copy");
    let per_mille = |name: &str| len(name) * 1000 / copy;
    let shares = ["none", "appended", "updated"].map(per_mille);
    assert!(shares[0] < 60 && shares[1] < 150, "{shares:?}");
    assert!(shares[2] < 900, "{shares:?}");
    let what = format!(
        "per mille of {copy} bytes are left out by changes of 1 % appended; with none {}, updated {} are in",
        shares[0], shares[2]
    );
    azekura::testkit::suite::demand(1000 - shares[1], 850, &what);
}
