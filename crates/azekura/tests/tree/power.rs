//! What a cut of the power, or the death of the process, leaves of a tree file: a prefix of its history.
//!
//! A store is filled, closed or not, and then changed, on the simulated disk, under a configuration that is drawn; its cache holds a
//! part of it, so pages are written and read all the time. At each event the power is cut in many legal ways, the process dies,
//! and recoveries are cut again. The store that then opens must hold the state after some number of operations: at least those
//! synced (or, after a death, acknowledged), at most those begun. It must be sound, take further operations, and hold them. Snapshots
//! live meanwhile, and transactions are among the operations.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use azekura::engine::{Engine, Persistent, Reader};
use azekura::io::sim::{Limits, SimDisk};
use azekura::io::{Access, Directory};
use azekura::order::Order;
use azekura::record::tree::{Compression, CreateOptions, OpenOptions, Snapshot, TreeDb};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Edit, Kind, Result};

use super::{Ends, Keys, buffered_puts, draw_ends, is_in, long, shaped, simulated, value};

const NAME: &str = "power.azt";

#[derive(Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Many(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
    Transaction(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
    Clear,
    /// Everything is removed, and these are loaded, in the order of their keys.
    Load(BTreeMap<Vec<u8>, Vec<u8>>),
    Range(Ends),
    /// The first record is taken out, or the last.
    Pop(bool),
    /// All snapshots are looked at, this many are ended, and one is taken.
    Snapshot(usize),
    Sync,
    Checkpoint,
    Maintain,
    Compact,
    Reopen,
}

struct Case {
    options: CreateOptions,
    next: OpenOptions,
    keys: Keys,
    many: u64,
    first: BTreeMap<Vec<u8>, Vec<u8>>,
    steps: Vec<Step>,
    /// A digest of the state after each number of operations.
    states: RefCell<Vec<u64>>,
    /// Puts that waited for their leaf.
    buffered: Cell<u64>,
}

/// A digest of records, whatever their order.
fn digest<'r>(records: impl Iterator<Item = (&'r [u8], &'r [u8])>) -> u64 {
    records.fold(0, |sum, record| sum.wrapping_add(of_record(record)))
}

fn of_record((key, value): (&[u8], &[u8])) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let len = (key.len() as u64).to_le_bytes();
    for byte in len.iter().chain(key).chain(value) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^ hash >> 29
}

fn of(now: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
    digest(now.iter().map(|(key, value)| (&key[..], &value[..])))
}

impl Case {
    fn draw(seed: u64, count: usize) -> Self {
        let mut random = Random::new(!seed);
        let options = simulated(&mut random);
        let keys = Keys::draw(&mut random, options.order);
        let many = *random.choose(&[8, 200, 2000, 4000]);
        let usual = *random.choose(&[20, 200, 400]);
        let upkeep = *random.choose(&[3, 6, 20]);
        Self::of(&mut random, options, (keys, many, usual), (upkeep, count))
    }

    /// Several times as much as the cache holds, and puts above all, of which many wait for their leaf.
    fn draw_large(seed: u64, count: usize) -> Self {
        let mut random = Random::new(!seed);
        let options = simulated(&mut random);
        let options = options.cache(256u64 << 10).page_size(0_u64);
        let options = options.compression(Compression::None);
        // Keys that are no neighbours leave room in leaves.
        let (order, style) = (Order::Lexical, 3);
        let options = options.order(order);
        let keys = Keys { order, style };
        let many = *random.choose(&[6000, 10_000]);
        let usual = *random.choose(&[200, 250]);
        Self::of(&mut random, options, (keys, many, usual), (0, count))
    }

    fn of(
        random: &mut Random,
        options: CreateOptions,
        (keys, many, usual): (Keys, u64, u64),
        (upkeep, count): (u64, usize),
    ) -> Self {
        let order = options.order;
        let is_large = upkeep == 0;
        let mut first = BTreeMap::new();
        for number in 0..many {
            if !random.one_in(3) {
                first.insert(keys.key(number), value(random, usual));
            }
        }
        let steps = (0..count).map(|_| {
            let chosen = keys.key(random.below(many));
            match random.below(if is_large { 60 } else { upkeep + 20 }) {
                // It stays large.
                3 | 15 if is_large => Step::Put(chosen, value(random, usual)),
                0 => Step::Sync,
                1 => Step::Checkpoint,
                2 if random.one_in(2) => Step::Compact,
                2 => Step::Maintain,
                3 if random.one_in(8) => Step::Clear,
                3 if random.one_in(6) => {
                    let record =
                        |random: &mut Random| (keys.key(random.below(many)), value(random, usual));
                    let count = random.below(many.min(1000));
                    Step::Load((0..count).map(|_| record(random)).collect())
                }
                3 => Step::Reopen,
                4..10 => Step::Remove(chosen),
                10 => Step::Snapshot(random.index(3)),
                14 => Step::Pop(random.one_in(2)),
                15 if random.one_in(2) => {
                    // Neighbours, or any two keys.
                    let near = random.one_in(3).then(|| random.below(many));
                    let key = |random: &mut Random| match near {
                        Some(at) => keys.key((at + random.below(60)) % many),
                        None => keys.key(random.below(many)),
                    };
                    Step::Range(draw_ends(random, order, key))
                }
                11..14 => {
                    let count = 2 + random.index(5);
                    let edit = |random: &mut Random| {
                        let edit = (!random.one_in(3)).then(|| value(random, usual));
                        (keys.key(random.below(many)), edit)
                    };
                    let edits = (0..count).map(|_| edit(random)).collect();
                    if random.one_in(2) {
                        Step::Many(edits)
                    } else {
                        Step::Transaction(edits)
                    }
                }
                _ => Step::Put(chosen, value(random, usual)),
            }
        });
        let steps = steps.collect();
        Self {
            next: options
                .opening
                .clone()
                .cache(*random.choose(&[256 << 10, 1 << 20])),
            options,
            keys,
            many,
            first,
            steps,
            states: RefCell::default(),
            buffered: Cell::default(),
        }
    }
}

fn open(disk: &SimDisk, options: &OpenOptions) -> Result<TreeDb> {
    let storage = disk.directory().open(Path::new(NAME), Access::Write)?;
    TreeDb::open_on(storage, options)
}

pub(super) fn many(db: &TreeDb, edits: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<()> {
    let keys: Vec<&[u8]> = edits.keys().map(Vec::as_slice).collect();
    db.update_many(&keys, &mut |_| {
        let edit = |edit: &Option<Vec<u8>>| match edit {
            Some(value) => Edit::Put(value.clone().into()),
            None => Edit::Remove,
        };
        edits.values().map(edit).collect()
    })
}

/// The same in a transaction, which reads some of it.
fn transact(db: &TreeDb, edits: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<()> {
    let mut transaction = db.transaction()?;
    if let Some((first, _)) = edits.first_key_value() {
        for record in transaction.range(&first[..]..)?.take(3) {
            drop(record?);
        }
    }
    for (key, edit) in edits {
        match edit {
            Some(value) => transaction.put(key, value)?,
            None => transaction.remove(key)?,
        }
    }
    transaction.commit()
}

fn load(db: &TreeDb, order: Order, records: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<()> {
    let mut sorted: Vec<_> = records.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| order.compare(a, b));
    let loaded = db.load_sorted(sorted.into_iter().map(Ok))?;
    assert_eq!(loaded as usize, records.len());
    Ok(())
}

impl Case {
    fn work(&self, disk: &SimDisk, ledger: &Ledger) {
        let folder = disk.directory();
        let mut db = TreeDb::create_in(&folder, Path::new(NAME), &self.options).unwrap();
        for (key, value) in &self.first {
            db.put(key, value).unwrap();
        }
        let mut now = self.first.clone();
        self.states.borrow_mut().push(of(&now));
        if self.steps.len().is_multiple_of(2) {
            db.close().unwrap();
            db = open(disk, &self.next).unwrap();
        } else {
            db.sync(Durability::Power).unwrap();
        }
        ledger.cut_from_here();
        let mut steps = &self.steps[..];
        while !steps.is_empty() {
            // Up to a reopen, before which all snapshots end.
            let is_reopen = |step: &Step| matches!(step, Step::Reopen);
            let count = steps.iter().position(is_reopen);
            let (these, rest) = steps.split_at(count.unwrap_or(steps.len()));
            let before = buffered_puts(&db);
            self.work_on(&db, these, &mut now, ledger);
            let buffered = buffered_puts(&db) - before;
            self.buffered.set(self.buffered.get() + buffered);
            if rest.is_empty() {
                break;
            }
            db.close().unwrap();
            ledger.synced();
            db = open(disk, &self.next).unwrap();
            steps = &rest[1..];
        }
        drop(db);
    }

    fn work_on(
        &self,
        db: &TreeDb,
        steps: &[Step],
        now: &mut BTreeMap<Vec<u8>, Vec<u8>>,
        ledger: &Ledger,
    ) {
        let order = self.options.order;
        let durable = self.options.opening.durability == Durability::Power;
        let mut snapshots: Vec<(Snapshot<'_>, u64)> = Vec::new();
        for step in steps {
            let change = match step {
                Step::Snapshot(ended) => {
                    for (snapshot, then) in &snapshots {
                        let mut found = 0_u64;
                        let scanned = snapshot.scan(None, &mut |key, value| {
                            found = found.wrapping_add(of_record((key, value)));
                            ControlFlow::Continue(())
                        });
                        scanned.unwrap();
                        assert_eq!(found, *then, "a snapshot changed");
                    }
                    snapshots.drain(..(*ended).min(snapshots.len()));
                    snapshots.push((db.snapshot().unwrap(), of(now)));
                    continue;
                }
                Step::Sync => {
                    db.sync(Durability::Power).unwrap();
                    ledger.synced();
                    continue;
                }
                Step::Checkpoint => {
                    db.checkpoint().unwrap();
                    continue;
                }
                Step::Maintain => {
                    db.maintain().unwrap();
                    continue;
                }
                Step::Compact => {
                    db.compact(&mut |_, _| {}).unwrap();
                    ledger.synced();
                    continue;
                }
                change => change,
            };
            if matches!(change, Step::Load(_)) && !now.is_empty() {
                now.clear();
                self.states.borrow_mut().push(of(now));
                ledger.operation(|| db.clear()).unwrap();
            }
            let mut after = now.clone();
            match change {
                Step::Load(records) => after = records.clone(),
                Step::Put(key, value) => drop(after.insert(key.clone(), value.clone())),
                Step::Remove(key) => drop(after.remove(key)),
                Step::Many(edits) | Step::Transaction(edits) => {
                    for (key, edit) in edits {
                        match edit {
                            Some(value) => drop(after.insert(key.clone(), value.clone())),
                            None => drop(after.remove(key)),
                        }
                    }
                }
                Step::Range(ends) => after.retain(|key, _| !is_in(order, ends, key)),
                Step::Pop(is_first) => {
                    let keys = after.keys();
                    let compare = |a: &&Vec<u8>, b: &&Vec<u8>| order.compare(a, b);
                    let key = if *is_first {
                        keys.min_by(compare)
                    } else {
                        keys.max_by(compare)
                    };
                    if let Some(key) = key.cloned() {
                        after.remove(&key);
                    }
                }
                _ => after.clear(),
            }
            self.states.borrow_mut().push(of(&after));
            let done = ledger.operation(|| match change {
                Step::Put(key, value) => db.put(key, value),
                Step::Remove(key) => db.remove(key).map(drop),
                Step::Many(edits) => many(db, edits),
                Step::Transaction(edits) => transact(db, edits),
                Step::Range(ends) => {
                    let removed = db.remove_range(ends.clone())?;
                    assert_eq!(removed as usize, now.len() - after.len());
                    Ok(())
                }
                Step::Pop(true) => db.pop_first().map(drop),
                Step::Pop(false) => db.pop_last().map(drop),
                Step::Load(records) => load(db, order, records),
                _ => db.clear(),
            });
            done.unwrap();
            if durable || matches!(change, Step::Load(_)) {
                ledger.synced();
            }
            *now = after;
        }
    }

    fn verify(&self, crash: &Crash<'_>) -> std::result::Result<u64, String> {
        let db = open(crash.disk, &self.next).map_err(|error| format!("no open: {error}"))?;
        crash.recovered();
        let mut found = 0_u64;
        let mut count = 0;
        db.scan(None, &mut |key, value| {
            found = found.wrapping_add(of_record((key, value)));
            count += 1;
            ControlFlow::Continue(())
        })
        .map_err(|error| format!("no scan: {error}"))?;
        if db.count() != count {
            return Err(format!("{} are counted, {count} are there", db.count()));
        }
        let states = self.states.borrow();
        let (least, most) = (crash.kept(), crash.done.began);
        if !states[least..=most.min(states.len() - 1)].contains(&found) {
            let known = states.iter().position(|state| *state == found);
            return Err(format!(
                "found state {known:?}, wanted one from {least} to {most}"
            ));
        }
        // It continues.
        let random = &mut Random::new(found);
        let changed = self.keys.key(random.below(self.many));
        db.put(&changed, b"after").map_err(|e| e.to_string())?;
        if random.one_in(3) {
            let report = db.check(&mut |_, _| {}).map_err(|e| e.to_string())?;
            if !report.is_sound() {
                return Err(format!("not sound: {:?}", report.damage));
            }
        }
        if random.one_in(4) {
            drop(db);
            let db = open(crash.disk, &self.next).map_err(|error| error.to_string())?;
            let value = db.get(&changed).map_err(|error| error.to_string())?;
            if value.as_deref() != Some(b"after") {
                return Err("what was put afterwards is gone".into());
            }
        }
        Ok(found)
    }
}

#[test]
fn every_cut_leaves_a_prefix() {
    let draw = |seed| Case::draw(seed, 12 + (seed % 40) as usize);
    let (states, _) = cut_everywhere(24, 24, draw);
    tried_at_least(states, 12_000, "states after a crash");
}

/// Puts that wait for their leaf are in the prefix: a checkpoint appends them again, or they are in their pages.
#[test]
fn every_cut_leaves_a_prefix_of_what_waits_for_leaves() {
    // An odd number: it is not opened again before the first, when nothing is known of what its leaves have free.
    let draw = |seed| Case::draw_large(seed, 81 + (seed % 40) as usize * 2);
    let (states, buffered) = cut_everywhere(16, 6, draw);
    tried_at_least(buffered, 300, "puts that waited for their leaf");
    tried_at_least(states, 2_000, "states after a crash, where puts waited");
}

/// How many states were looked at, and how many puts waited for their leaf.
fn cut_everywhere(rounds: u64, cuts: usize, draw: impl Fn(u64) -> Case) -> (u64, u64) {
    let mut counts = Counts::default();
    let mut buffered = 0;
    for round in 0..share(rounds) {
        let seed = round + round_seed();
        let case_of = draw(seed);
        let _shown = case(
            seed,
            &(&case_of.options, case_of.keys, case_of.many, &case_of.next),
        );
        let config = Config {
            recovery_one_in: 24,
            recovery_cuts_max: 4,
            ..Config::new(seed).quick(cuts)
        };
        let tried = explore(
            &config,
            |disk, ledger| case_of.work(disk, ledger),
            |crash| case_of.verify(crash),
        );
        counts = counts.plus(tried);
        buffered += case_of.buffered.get();
    }
    let states = counts.crash_states + counts.recovery_cuts + counts.kills;
    (states, buffered)
}

/// Of a checkpoint, values and pages that were replaced since stay what they were: a cut may lose all that came after it.
#[test]
fn what_was_replaced_stays_until_the_next_checkpoint() {
    let mut states = 0;
    // Values outside of their leaves; and leaves of which the cache holds a part, so that they are written all the time.
    for (round, (count, len)) in (0..share(10)).flat_map(|n| [(n, (100, 5000)), (n, (900, 300))]) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let options = simulated(&mut random).durability(Durability::Process);
        let options = options.cache(256u64 << 10);
        let _shown = case(seed, &(&options, count, len));
        let disk = SimDisk::new(seed);
        let db = TreeDb::create_in(&disk.directory(), Path::new(NAME), &options).unwrap();
        let name = |number: u64| format!("{number:03}").into_bytes();
        let value = |number: u64, version: u8| vec![number as u8 ^ version << 5; len];
        let put = |version| {
            (0..count).for_each(|number| db.put(&name(number), &value(number, version)).unwrap());
        };
        put(0);
        db.checkpoint().unwrap();
        (1..4).for_each(put);
        let limits = Limits {
            exhaustive: 4,
            singles: 4,
            random: 12,
            ..Limits::default()
        };
        for state in disk.crash_states(disk.events(), &limits).take(20) {
            let db = open(&state, &options.opening).unwrap();
            for number in 0..count {
                let found = db.get(&name(number)).unwrap();
                let is_one = (0..4).any(|version| found.as_ref() == Some(&value(number, version)));
                assert!(is_one, "value {number} is none that was put");
            }
            states += 1;
        }
    }
    tried_at_least(states, 200, "cuts after values and pages were replaced");
}

/// A batch that would leave no room for a checkpoint is refused, before anything is done for it; one that is taken can be removed.
#[test]
fn a_batch_that_a_full_store_takes_can_be_removed_again() {
    let (mut taken, mut refused) = (0, 0);
    for (round, count) in [300, 1000, 1250, 1500, 2000, 2500, 4000, 6000]
        .into_iter()
        .enumerate()
    {
        for (by_transaction, keeps) in [(false, 0), (true, 0), (true, 300)] {
            let folder = tempfile::tempdir().unwrap();
            let opening = OpenOptions::new()
                .background(round % 2 == 0)
                .capacity(4u64 << 20);
            let options = shaped(&mut Random::new(round as u64 * 3 + keeps))
                .segment_size(64u64 << 10)
                .opening(opening.clone());
            let _shown = case(round as u64, &(&options, count, by_transaction, keeps));
            let path = folder.path().join("a.azt");
            let db = TreeDb::create(&path, &options).unwrap();
            for number in 0..keeps {
                db.put(format!("a{number:07}").as_bytes(), &[2; 500])
                    .unwrap();
            }
            let edits: BTreeMap<Vec<u8>, Option<Vec<u8>>> = (0..count)
                .map(|number| (format!("k{number:07}").into_bytes(), Some(vec![1; 500])))
                .collect();
            let done = if by_transaction {
                transact(&db, &edits)
            } else {
                many(&db, &edits)
            };
            match done {
                Ok(()) => {
                    taken += 1;
                    assert_eq!(db.count(), count + keeps);
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    assert_eq!(db.count(), keeps);
                    db.put(b"another", &[1; 500]).unwrap();
                }
            }
            db.checkpoint().unwrap();
            for key in edits.keys() {
                db.remove(key).unwrap();
            }
            let report = db.check(&mut |_, _| {}).unwrap();
            assert!(report.is_sound(), "{:?}", report.damage);
            db.clear().unwrap();
            db.put(b"another", &[1; 500]).unwrap();
            db.close().unwrap();
            let db = TreeDb::open(&path, &opening).unwrap();
            db.put(b"one more", &[1; 500]).unwrap();
            assert_eq!(db.count(), 2);
        }
    }
    tried_at_least(taken, 6, "batches that a small store took");
    tried_at_least(refused, 9, "batches that a small store refused");
}

/// Options of a store that is soon full.
fn small(random: &mut Random) -> CreateOptions {
    simulated(random).capacity(*random.choose(&[2 << 20, 4 << 20]))
}

/// The replay fills a cache with changed pages, of a store that has little room for them: readers find frames all the same.
#[test]
fn a_store_that_is_killed_when_almost_full_is_read_whole() {
    let mut opened = 0;
    for round in 0..share(10) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let options = small(&mut random).cache(*random.choose(&[256 << 10, 4 << 20]));
        let keys = Keys::draw(&mut random, options.order);
        let _shown = case(seed, &(&options, keys));
        let disk = SimDisk::new(seed);
        let db = TreeDb::create_in(&disk.directory(), Path::new(NAME), &options).unwrap();
        // What was put, and where the trace ended then.
        let mut puts = Vec::new();
        loop {
            let (key, value) = (keys.key(random.below(100_000)), value(&mut random, 300));
            match db.put(&key, &value) {
                Ok(()) => puts.push((key, value, disk.events())),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    break;
                }
            }
        }
        for _ in 0..12 {
            let count = puts.len() - random.index(puts.len() / 2);
            let killed = disk.kill_state(puts[count - 1].2);
            let cache = *random.choose(&[256 << 10, 300 << 10, 1 << 20]);
            let db = open(&killed, &options.opening.clone().cache(cache)).unwrap();
            let model: BTreeMap<_, _> = puts[..count].iter().map(|put| (&put.0, &put.1)).collect();
            assert_eq!(db.count(), model.len() as u64);
            for (key, value) in model {
                assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
            }
            opened += 1;
        }
    }
    tried_at_least(opened, 120, "stores killed when almost full");
}

#[test]
fn a_full_store_takes_removals_and_loses_nothing() {
    let mut refused = 0;
    for round in 0..share(10) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let options = small(&mut random);
        let keys = Keys::draw(&mut random, options.order);
        let _shown = case(seed, &(&options, keys));
        let mut disk = SimDisk::new(seed);
        let folder = disk.directory();
        let mut db = TreeDb::create_in(&folder, Path::new(NAME), &options).unwrap();
        let mut model = BTreeMap::new();
        for cycle in 0..3 {
            let mut failures = 0;
            while failures < 5 {
                let key = keys.key(random.below(100_000));
                let value = value(&mut random, 300);
                match db.put(&key, &value) {
                    Ok(()) => drop(model.insert(key, value)),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Full, "{error}");
                        failures += 1;
                        refused += 1;
                    }
                }
            }
            assert_eq!(db.count(), model.len() as u64);
            for (key, value) in &model {
                assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
            }
            if cycle == 1 {
                // Its replay fills the cache with changed pages: readers find frames all the same.
                disk = disk.kill_state(disk.events());
                db = open(&disk, &options.opening).unwrap();
                for (key, value) in &model {
                    assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
                }
            }
            let mut gone: Vec<Vec<u8>> = model.keys().step_by(2).cloned().collect();
            if cycle != 0 {
                // Each changes another leaf.
                for at in (1..gone.len()).rev() {
                    gone.swap(at, random.index(at + 1));
                }
            }
            for key in gone {
                assert!(db.remove(&key).unwrap());
                model.remove(&key);
            }
            let report = db.check(&mut |_, _| {}).unwrap();
            assert!(report.is_sound(), "{:?}", report.damage);
        }
        db.close().unwrap();
        let db = open(&disk, &options.opening).unwrap();
        assert_eq!(db.count(), model.len() as u64);
    }
    tried_at_least(refused, 100, "puts that a full store refused");
}

/// Adds batches of long values to a store that is almost full, until there is room for a part of one only, and removes those that
/// there was room for; how many were refused.
fn refuse_batches(db: &TreeDb, random: &mut Random) -> u64 {
    let (mut refused, mut taken) = (0, Vec::new());
    for round in 0..20 {
        let len = *random.choose(&[600, 5000, 30_000]);
        let edit = |number| {
            let key = format!("long {round} {number}").into_bytes();
            (key, Some(vec![round; len]))
        };
        let edits: BTreeMap<_, _> = (0..8).map(edit).collect();
        match many(db, &edits) {
            Ok(()) => taken.extend(edits.into_keys()),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Full, "{error}");
                refused += 1;
            }
        }
    }
    for key in taken {
        assert!(db.remove(&key).unwrap());
    }
    refused
}

/// An empty store's units are those of its pages, once the last checkpoint but one is forgotten.
fn assert_nothing_is_kept(db: &TreeDb) {
    for _ in 0..3 {
        db.put(b"one", b"more").unwrap();
        db.remove(b"one").unwrap();
        db.checkpoint().unwrap();
        db.maintain().unwrap();
    }
    let properties = db.inspect();
    let of = |name| {
        let found = properties.iter().find(|(of, _)| *of == name).unwrap();
        found.1.parse::<u64>().unwrap()
    };
    let used = of("used_bytes") - of("waiting_bytes");
    let is_plain = properties.contains(&("compression", "none".into()));
    let most = of("pages") * of("page_bytes");
    assert!(
        used == most || !is_plain && 0 < used && used < most,
        "{properties:?}"
    );
}

/// Of any cache and shape of records, also one larger than the store: what was filled takes removals, and then the same again. What
/// was refused meanwhile keeps nothing in use.
#[test]
fn a_store_that_was_full_is_filled_again_after_removals() {
    let (mut removed, mut refilled, mut refused) = (0, 0, 0);
    for round in 0..share(20) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let capacity = *random.choose(&[2 << 20, 4 << 20, 8 << 20]);
        let cache = *random.choose(&[256 << 10, 1 << 20, 4 << 20, 256 << 20]);
        let opening = OpenOptions::new().cache(cache).capacity(capacity);
        let options = shaped(&mut random).opening(opening.background(false));
        let (len, failures) = (
            *random.choose(&[20, 100, 400, 3000]),
            *random.choose(&[1, 5, 20]),
        );
        let are_long = random.one_in(3);
        let _shown = case(seed, &(&options, len, failures, are_long));
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join(NAME), &options).unwrap();
        let name = |number: u64| {
            let spread = number.wrapping_mul(7919) % 1_000_003;
            // Of those, eight share a list.
            if are_long {
                return long(number / 8 * 7919 % 100_003 * 8 + number % 8);
            }
            format!("{spread:08}").into_bytes()
        };
        let fill = || {
            let (mut count, mut failed) = (0, 0);
            while failed < failures {
                match db.put(&name(count), &vec![7; len]) {
                    Ok(()) => count += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Full, "{error}");
                        failed += 1;
                    }
                }
            }
            count
        };
        let count = fill();
        let mut numbers: Vec<u64> = (0..count).collect();
        if random.one_in(2) {
            for at in (1..numbers.len()).rev() {
                numbers.swap(at, random.index(at + 1));
            }
        }
        for number in numbers {
            assert!(db.remove(&name(number)).unwrap(), "{number} of {count}");
            removed += 1;
            if removed % 500 == 0 {
                let mut shown = 0;
                db.scan(None, &mut |_, _| {
                    shown += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
                assert_eq!(shown, db.count());
            }
        }
        let again = fill();
        assert!(again * 2 > count, "{count} records, then {again}");
        refilled += 1;
        for number in 0..again / 4 {
            db.remove(&name(number)).unwrap();
        }
        db.checkpoint().unwrap();
        refused += refuse_batches(&db, &mut random);
        assert!(db.check(&mut |_, _| {}).unwrap().is_sound());
        for number in again / 4..again {
            db.remove(&name(number)).unwrap();
        }
        assert_eq!(db.count(), 0);
        assert_nothing_is_kept(&db);
    }
    tried_at_least(
        refused,
        40,
        "batches of long values that a full store refused",
    );
    let what = format!("full stores emptied and filled again, {removed} records removed");
    tried_at_least(refilled, 20, &what);
}
