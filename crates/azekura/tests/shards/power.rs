//! What a cut of the power, or the death of the process, leaves of a store of several shards: of each shard a prefix of its history.
//!
//! A store is filled and changed on the simulated disk. At each event the power is cut in many legal ways, the process dies, and
//! recoveries are cut again. Of the store that then opens, each shard must hold the state after some number of operations: at least those
//! synced (or acknowledged), at most those begun; an update of many is in a shard wholly or not at all; and a clear has removed the
//! records of all shards or of none. A store whose creation is cut short is not there, or is whole.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use azekura::engine::{Edit, Engine as _, Persistent as _};
use azekura::io::Directory as _;
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::order::Order;
use azekura::record::hash::{self, HashDb};
use azekura::record::tree::{self, TreeDb};
use azekura::shard::{CreateShard, Sharded};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Kind, Reader as _, Verbs as _};

use super::{keys, scanned};

const NAME: &str = "power.az";

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Many(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
    Clear,
    Sync,
    Reopen,
}

struct Case<E: CreateShard> {
    shards: usize,
    options: E::Creation,
    opening: E::Opening,
    first: Records,
    steps: Vec<Step>,
    /// All records after each number of operations; by which of them all were removed.
    states: RefCell<Vec<Records>>,
    clears: RefCell<Vec<usize>>,
}

impl<E: CreateShard> Case<E> {
    fn draw(seed: u64, options: E::Creation, opening: E::Opening) -> Self {
        let mut random = Random::new(!seed);
        let keys = keys(&mut random, 60);
        let value = |random: &mut Random| {
            let len = *random.choose(&[0, 10, 100, 600, 5000]);
            random.bytes(len)
        };
        let mut first = Records::new();
        for key in &keys {
            if random.one_in(2) {
                first.insert(key.clone(), value(&mut random));
            }
        }
        let steps = (0..30).map(|_| {
            let chosen = random.choose(&keys).clone();
            match random.below(16) {
                0 | 1 => Step::Sync,
                2 => Step::Reopen,
                3 => Step::Clear,
                4 | 5 => Step::Remove(chosen),
                6..12 => {
                    let count = 2 + random.index(8);
                    let edit = |random: &mut Random| {
                        let edit = (!random.one_in(3)).then(|| value(random));
                        (random.choose(&keys).clone(), edit)
                    };
                    Step::Many((0..count).map(|_| edit(&mut random)).collect())
                }
                _ => Step::Put(chosen, value(&mut random)),
            }
        });
        Self {
            shards: 2 + (seed % 3) as usize,
            steps: steps.collect(),
            options,
            opening,
            first,
            states: RefCell::default(),
            clears: RefCell::default(),
        }
    }

    fn open(&self, disk: &SimDisk) -> azekura::Result<Sharded<E>> {
        Sharded::open_in(&disk.directory(), Path::new(NAME), &self.opening)
    }

    fn work(&self, disk: &SimDisk, ledger: &Ledger) {
        let folder = disk.directory();
        let made = Sharded::<E>::create_in(&folder, Path::new(NAME), self.shards, &self.options);
        let mut db = made.unwrap();
        let mut now = self.first.clone();
        for (key, value) in &now {
            db.put(key, value).unwrap();
        }
        db.sync(Durability::Power).unwrap();
        self.states.borrow_mut().push(now.clone());
        ledger.cut_from_here();
        for step in &self.steps {
            match step {
                Step::Sync => {
                    db.sync(Durability::Power).unwrap();
                    ledger.synced();
                    continue;
                }
                Step::Reopen => {
                    db.close().unwrap();
                    ledger.synced();
                    db = self.open(disk).unwrap();
                    continue;
                }
                Step::Put(key, value) => drop(now.insert(key.clone(), value.clone())),
                Step::Remove(key) => drop(now.remove(key)),
                Step::Many(edits) => {
                    for (key, edit) in edits {
                        match edit {
                            Some(value) => drop(now.insert(key.clone(), value.clone())),
                            None => drop(now.remove(key)),
                        }
                    }
                }
                Step::Clear => {
                    now.clear();
                    self.clears.borrow_mut().push(self.states.borrow().len());
                }
            }
            self.states.borrow_mut().push(now.clone());
            let done = ledger.operation(|| match step {
                Step::Put(key, value) => db.put(key, value),
                Step::Remove(key) => db.remove(key).map(drop),
                Step::Many(edits) => {
                    let keys: Vec<&[u8]> = edits.keys().map(Vec::as_slice).collect();
                    db.update_many(&keys, &mut |_| {
                        let edit = |edit: &Option<Vec<u8>>| match edit {
                            Some(value) => Edit::Put(value.clone().into()),
                            None => Edit::Remove,
                        };
                        edits.values().map(edit).collect()
                    })
                }
                _ => db.clear(),
            });
            done.unwrap();
            if matches!(step, Step::Clear) {
                // It is durable when it returns.
                ledger.synced();
            }
        }
    }

    fn verify(&self, crash: &Crash<'_>) -> Result<u64, String> {
        let db = self
            .open(crash.disk)
            .map_err(|error| format!("no open: {error}"))?;
        crash.recovered();
        let states = self.states.borrow();
        let (least, most) = (crash.kept(), crash.done.began.min(states.len() - 1));
        let mut digest = 0;
        let mut possible: Vec<Vec<usize>> = Vec::new();
        for (shard, store) in db.shards().iter().enumerate() {
            let found: Records = scanned(store).into_iter().collect();
            let is_own = |(key, _): &(&Vec<u8>, &Vec<u8>)| db.shard_of(key) == shard;
            let is_it = |at: &usize| states[*at].iter().filter(is_own).eq(found.iter());
            let at: Vec<usize> = (least..=most).filter(is_it).collect();
            if at.is_empty() {
                let known = (0..states.len()).find(is_it);
                return Err(format!(
                    "shard {shard} is in state {known:?}, wanted one from {least} to {most}"
                ));
            }
            for (key, value) in &found {
                let record = Random::new(value.iter().fold(key.len() as u64, |sum, byte| {
                    sum.wrapping_mul(31) ^ u64::from(*byte)
                }))
                .below(u64::MAX);
                let key = key
                    .iter()
                    .fold(7, |sum: u64, byte| sum.wrapping_mul(131) ^ u64::from(*byte));
                digest = u64::wrapping_add(digest, record ^ key);
            }
            possible.push(at);
        }
        for clear in self
            .clears
            .borrow()
            .iter()
            .filter(|at| (least + 1..=most).contains(at))
        {
            let are = |is_after: bool| {
                let may = |at: &Vec<usize>| at.iter().any(|at| (at >= clear) == is_after);
                possible.iter().all(may)
            };
            if !are(true) && !are(false) {
                return Err(format!("clear {clear} has removed a part: {possible:?}"));
            }
        }
        let report = db
            .check(&mut |_, _| {})
            .map_err(|error| error.to_string())?;
        if !report.is_sound() {
            return Err(format!("not sound: {:?}", report.damage));
        }
        // It continues, and holds that.
        let before = scanned(&db);
        db.put(b"afterwards", b"value").map_err(|e| e.to_string())?;
        drop(db);
        let db = self.open(crash.disk).map_err(|error| error.to_string())?;
        if db.count() != before.len() as u64 + 1 {
            return Err(format!("{} records, then {}", before.len(), db.count()));
        }
        Ok(digest)
    }
}

fn explored<E: CreateShard>(seed: u64, options: E::Creation, opening: E::Opening) -> Counts {
    let case_of = Case::<E>::draw(seed, options, opening);
    let _shown = case(seed, &(case_of.shards, &case_of.steps));
    let config = Config {
        recovery_one_in: 24,
        recovery_cuts_max: 4,
        ..Config::new(seed).quick(24)
    };
    explore(
        &config,
        |disk, ledger| case_of.work(disk, ledger),
        |crash| case_of.verify(crash),
    )
}

fn of_tree(random: &mut Random) -> tree::CreateOptions {
    let shards = 4;
    tree::CreateOptions::new()
        .order(*random.choose(&[Order::Lexical, Order::Decimal]))
        .segment_size(64u64 << 10)
        .cache(shards * (256 << 10))
        .capacity(shards * (16 << 20))
        .background(false)
}

fn of_hash() -> hash::CreateOptions {
    hash::CreateOptions::new()
        .segment_size(4096u64)
        .capacity(64u64 << 20)
        .background(false)
}

#[test]
fn every_cut_leaves_a_prefix_of_each_shard() {
    let mut counts = Counts::default();
    for round in 0..share(24) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let tried = if round % 2 == 0 {
            let options = of_tree(&mut random);
            let opening = options.opening.clone();
            explored::<TreeDb>(seed, options, opening)
        } else {
            let options = of_hash();
            let opening = options.opening.clone();
            explored::<HashDb>(seed, options, opening)
        };
        counts = counts.plus(tried);
    }
    let states = counts.crash_states + counts.recovery_cuts + counts.kills;
    tried_at_least(states, 12_000, "states of shards after a crash");
}

#[test]
fn a_creation_that_is_cut_short_leaves_no_store_or_a_whole_one() {
    let config = Config {
        recovery_one_in: 0,
        ..Config::new(round_seed()).quick(60)
    };
    let options = of_hash();
    let counts = explore(
        &config,
        |disk, ledger| {
            let folder = disk.directory();
            let made = ledger
                .operation(|| Sharded::<HashDb>::create_in(&folder, Path::new(NAME), 3, &options));
            ledger.synced();
            drop(made.unwrap());
        },
        |crash| {
            let folder = crash.disk.directory();
            let opened = Sharded::<HashDb>::open_in(&folder, Path::new(NAME), &options.opening);
            let is_there = folder
                .exists(Path::new(NAME))
                .map_err(|error| error.to_string())?;
            match opened {
                Ok(db) if db.count() == 0 && db.shards().len() == 3 => Ok(1),
                Ok(_) => Err("another store".into()),
                Err(error) if is_there || crash.kept() > 0 => Err(error.to_string()),
                // What is left is named, and makes room for another trial when it is removed.
                Err(_) => {
                    let again =
                        || Sharded::<HashDb>::create_in(&folder, Path::new(NAME), 3, &options);
                    if let Err(error) = again() {
                        if error.kind() != Kind::Invalid {
                            return Err(error.to_string());
                        }
                        for name in folder.list().map_err(|error| error.to_string())? {
                            folder.remove(&name).map_err(|error| error.to_string())?;
                        }
                        again().map_err(|error| error.to_string())?;
                    }
                    Ok(0)
                }
            }
        },
    );
    let states = counts.crash_states + counts.kills;
    assert!(states > 300, "{states} states");
}

/// A clear that fails in the middle refuses what the next opening would remove, and is completed by that.
#[test]
fn a_clear_that_fails_is_completed_by_the_next_opening() {
    let mut failed = 0;
    for operation in [Operation::Sync, Operation::Write] {
        failed += clears_that_fail(operation);
    }
    assert!(failed >= 6, "{failed} failed");
}

fn clears_that_fail(operation: Operation) -> u64 {
    let mut failed = 0;
    for nth in 0.. {
        let disk = SimDisk::new(5);
        let options = of_hash();
        let folder = disk.directory();
        let made = Sharded::<HashDb>::create_in(&folder, Path::new(NAME), 3, &options);
        let db = made.unwrap();
        for number in 0..60_u32 {
            db.put(&number.to_le_bytes(), b"value").unwrap();
        }
        db.sync(Durability::Power).unwrap();
        let before = disk.faults().count(operation);
        disk.faults().fail(operation, before + nth, Fault::Error);
        let cleared = db.clear();
        if disk.faults().struck() == 0 {
            cleared.unwrap();
            break;
        }
        disk.faults().clear();
        let Err(_) = cleared else { continue };
        failed += 1;
        let put = db.put(b"later", b"value").unwrap_err();
        assert_eq!(put.kind(), Kind::Poisoned, "{put}");
        // A copy would be whole, and of what is left.
        let target = tempfile::tempdir().unwrap();
        let copied = db.copy_to(&target.path().join("copy.azh"), &mut |_, _| {});
        assert_eq!(copied.unwrap_err().kind(), Kind::Poisoned);
        drop(db);
        let db = Sharded::<HashDb>::open_in(&folder, Path::new(NAME), &options.opening).unwrap();
        assert!(
            db.count() == 0 || db.count() == 60,
            "{} are left",
            db.count()
        );
        db.put(b"later", b"value").unwrap();
    }
    failed
}
