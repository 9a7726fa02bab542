//! A copy of a tree file that is used, and what changed since, brought together are the store at the moment of the last.
//!
//! Chains of a copy and changes are compared with a model, record by record, after all that a store does between two copies, over
//! reopenings and kills; threads write meanwhile, each in an order that the copy must be a prefix of; the power is cut at each event of
//! making changes and of applying them. What does not fit is tested in `copies_refused`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::engine::{Engine, Persistent, Reader};
use azekura::io::sim::{Limits, SimDisk};
use azekura::io::{Access, Directory};
use azekura::kernel::SuperblockPair;
use azekura::record::tree::layout::Super;
use azekura::record::tree::{CheckpointId, CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Error, Result};

use super::{Keys, draw_ends, is_in, options, simulated, value};

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn quiet(_: u64, _: u64) {}

pub(super) fn records_of(db: &TreeDb) -> Model {
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
pub(super) fn assert_file_holds(file: &Path, options: &OpenOptions, model: &Model) {
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

pub(super) fn apply(copy: &Path, changes: &Path) -> Result<CheckpointId> {
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

pub(super) const STORE: &str = "store.azt";
pub(super) const COPY: &str = "copy.azt";

/// A chain on a disk of which the power is cut.
struct Chain {
    options: CreateOptions,
    keys: Keys,
    many: u64,
    seed: u64,
    /// What the store held at each copy.
    states: RefCell<Vec<Model>>,
}

pub(super) fn on(
    disk: &SimDisk,
    name: &str,
    access: Access,
) -> Result<std::sync::Arc<dyn azekura::io::Storage>> {
    disk.directory().open(Path::new(name), access)
}

pub(super) fn apply_on(disk: &SimDisk, link: usize) -> Result<CheckpointId> {
    let changes = on(disk, &changes_of(link), Access::Read)?;
    let copy = on(disk, COPY, Access::Write)?;
    TreeDb::apply_changes_on(&*copy, &*changes, &mut quiet)
}

pub(super) fn changes_of(link: usize) -> String {
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

pub(super) fn put(db: &TreeDb, version: u64) {
    for number in 0..200_u64 {
        let value = format!("{version} {number:>40}");
        db.put(&number.to_le_bytes(), value.as_bytes()).unwrap();
    }
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
