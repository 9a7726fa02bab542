//! What a cut of the power, or the death of the process, leaves of an object store: of each object some state that it
//! had or was about to get, whole; all of a batch or nothing; nothing synced is lost, nothing acknowledged by a death.
//!
//! Workloads of every kind of change run on the simulated disk. At each event the power is cut in many legal ways,
//! the process dies, and recoveries are cut again. The store that then opens is compared, takes further changes, and holds
//! them after a reopen. Planted bugs prove the suite. Lines beginning `tried:` state how much was tried.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use azekura::io::sim::{Atom, Fault, Operation, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::object::{Change, CreateOptions, ObjectId, Store};
use azekura::testkit::configuration::object_options;
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::suite::{case, demand, share, tried_in_rounds};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Durability, Result};

const NAME: &str = "objects.azo";
const IDS: u64 = 10;
const CAPACITY: u64 = 1 << 20;

/// One thing a workload does. Values are made of a version and a length, so that no two are alike.
#[derive(Clone, Debug)]
enum Step {
    Put(u64, Value),
    Remove(u64),
    /// If it has the sequence that it has.
    RemoveIf(u64),
    RemoveRange(u64, u64),
    /// `None`: removed.
    Batch(Vec<(u64, Option<Value>)>),
    Sync,
    Checkpoint,
    Reopen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    version: u64,
    len: usize,
}

impl Value {
    fn bytes(self) -> Vec<u8> {
        Random::new(self.version).bytes(self.len)
    }
}

fn id(n: u64) -> ObjectId {
    ObjectId(u128::from(n) << 100 | 7)
}

fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    let upkeep = *random.choose(&[6, 12, 30]);
    let mut version = 0;
    let mut value = |random: &mut Random| {
        version += 1;
        let len = match random.below(12) {
            0 => 66_000 + random.index(3000),
            1..4 => 4000 + random.index(9000),
            4 => 0,
            _ => random.index(4500),
        };
        Value { version, len }
    };
    (0..count)
        .map(|_| match random.below(upkeep + 20) {
            0 | 1 => Step::Sync,
            2 => Step::Checkpoint,
            3 => Step::Reopen,
            4..6 => Step::Remove(random.below(IDS)),
            6..8 => Step::RemoveIf(random.below(IDS)),
            8 => {
                let first = random.below(IDS);
                Step::RemoveRange(first, first + 1 + random.below(4))
            }
            9..12 => {
                let mut changes = BTreeMap::new();
                for _ in 0..2 + random.index(3) {
                    let put = (!random.one_in(3)).then(|| value(&mut random));
                    changes.insert(random.below(IDS), put);
                }
                Step::Batch(changes.into_iter().collect())
            }
            _ => Step::Put(random.below(IDS), value(&mut random)),
        })
        .collect()
}

/// What each operation sets, by object.
fn effects(steps: &[Step]) -> Vec<BTreeMap<u64, Option<Value>>> {
    let mut effects = Vec::new();
    for step in steps {
        effects.push(match step {
            Step::Put(id, value) => BTreeMap::from([(*id, Some(*value))]),
            Step::Remove(id) | Step::RemoveIf(id) => BTreeMap::from([(*id, None)]),
            Step::RemoveRange(first, end) => {
                (*first..(*end).min(IDS)).map(|id| (id, None)).collect()
            }
            Step::Batch(changes) => changes.iter().copied().collect(),
            _ => continue,
        });
    }
    effects
}

/// What is wrong with the storage that the store runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// There is none: the control.
    None,
    /// Syncs are answered and not done.
    SyncsDropped,
    /// Durable writes are just writes.
    DurableWritesCached,
    /// The system states that it never stopped.
    SameBoot,
    /// A write is acknowledged before it is made.
    AcknowledgedEarly,
    /// Batches are made one by one.
    BatchesSplit,
}

/// A storage that lies as its bug states.
#[derive(Debug)]
struct Lying {
    below: Arc<dyn Storage>,
    bug: Bug,
}

impl azekura::io::over::Over for Lying {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.bug {
            Bug::SyncsDropped | Bug::DurableWritesCached => self.below.write_at(offset, bytes),
            _ => self.below.write_durably(offset, bytes),
        }
    }

    fn sync(&self) -> Result<()> {
        match self.bug {
            Bug::SyncsDropped => Ok(()),
            _ => self.below.sync(),
        }
    }

    fn boot_id(&self) -> [u8; 16] {
        match self.bug {
            Bug::SameBoot => [7; 16],
            _ => self.below.boot_id(),
        }
    }
}

fn options() -> CreateOptions {
    CreateOptions::new()
        .capacity(CAPACITY)
        .journal_size(256 << 10)
        .group_size(128 << 10)
        .background(false)
}

fn lying(below: Arc<dyn Storage>, bug: Bug) -> Arc<dyn Storage> {
    Arc::new(Lying { below, bug })
}

fn create(disk: &SimDisk, bug: Bug, options: &CreateOptions) -> Result<Store> {
    let directory = disk.directory();
    let below = directory.create_nameless(Path::new(NAME))?;
    below.resize(options.capacity)?;
    let store = Store::create_on(
        lying(Arc::clone(&below), bug),
        None,
        options,
        &mut |_, _| {},
    )?;
    below.take_name()?;
    directory.sync()?;
    Ok(store)
}

fn open(disk: &SimDisk, bug: Bug, options: &CreateOptions) -> Result<Store> {
    let below = disk.directory().open(Path::new(NAME), Access::Write)?;
    Store::open_on(lying(below, bug), None, &options.opening)
}

fn run(disk: &SimDisk, ledger: &Ledger, steps: &[Step], bug: Bug, options: &CreateOptions) {
    let power = options.opening.durability == Durability::Power;
    let acknowledged = |ledger: &Ledger| {
        ledger.acknowledge();
        if power {
            ledger.synced();
        }
    };
    let mut store = create(disk, bug, options).unwrap();
    for step in steps {
        let act = |store: &Store| match step {
            Step::Put(n, value) => drop(store.put(id(*n), &value.bytes()).unwrap()),
            Step::Remove(n) => drop(store.remove(id(*n)).unwrap()),
            Step::RemoveIf(n) => {
                let sequence = store.sequence(id(*n)).unwrap();
                let expected = sequence.unwrap_or(u64::MAX);
                // Another sequence removes nothing.
                assert!(!store.compare_and_remove(id(*n), expected ^ 1).unwrap());
                let removed = store.compare_and_remove(id(*n), expected).unwrap();
                assert_eq!(removed, sequence.is_some());
            }
            Step::RemoveRange(first, end) => {
                store.remove_range(id(*first)..id(*end)).unwrap();
            }
            Step::Batch(changes) => {
                let values: Vec<_> = changes
                    .iter()
                    .map(|(_, value)| value.map(Value::bytes))
                    .collect();
                let changes: Vec<_> = changes
                    .iter()
                    .zip(&values)
                    .map(|((n, _), value)| match value {
                        Some(bytes) => Change::Put(id(*n), bytes),
                        None => Change::Remove(id(*n)),
                    })
                    .collect();
                if bug == Bug::BatchesSplit {
                    for change in &changes {
                        store.apply(&[*change]).unwrap();
                    }
                } else {
                    store.apply(&changes).unwrap();
                }
            }
            Step::Sync | Step::Checkpoint | Step::Reopen => unreachable!("done below"),
        };
        match step {
            Step::Sync => {
                store.sync().unwrap();
                ledger.synced();
            }
            Step::Checkpoint => {
                store.checkpoint().unwrap();
                ledger.synced();
            }
            Step::Reopen => {
                store.close().unwrap();
                ledger.synced();
                store = open(disk, bug, options).unwrap();
            }
            _ if bug == Bug::AcknowledgedEarly => {
                ledger.begin();
                acknowledged(ledger);
                act(&store);
            }
            _ => {
                ledger.begin();
                act(&store);
                acknowledged(ledger);
            }
        }
    }
    store.close().unwrap();
}

/// Compares what opens after a crash; the digest is of what was found.
fn verify(
    crash: &Crash<'_>,
    effects: &[BTreeMap<u64, Option<Value>>],
    bug: Bug,
    options: &CreateOptions,
) -> std::result::Result<u64, String> {
    let exists = crash.disk.directory().exists(Path::new(NAME)).unwrap();
    if !exists {
        crash.recovered();
        return if crash.done.began == 0 {
            Ok(0)
        } else {
            Err("the file is gone".into())
        };
    }
    let store =
        open(crash.disk, bug, options).map_err(|error| format!("it does not open: {error}"))?;
    crash.recovered();
    let (kept, began) = (crash.kept(), crash.done.began);
    let mut digest = 1u64;
    // Of each object, the operations whose state it shows: those that must be seen are not overtaken by earlier ones.
    let mut shown: BTreeMap<u64, Vec<Option<usize>>> = BTreeMap::new();
    for n in 0..IDS {
        let found = store.get(id(n)).map_err(|error| error.to_string())?;
        let of: Vec<usize> = (0..began)
            .filter(|at| effects[*at].contains_key(&n))
            .collect();
        let least = of.iter().rposition(|at| *at < kept);
        let from = least.map_or(0, |at| at + 1);
        let candidates =
            std::iter::once(least.map(|at| of[at])).chain(of[from..].iter().copied().map(Some));
        let candidates: Vec<Option<usize>> = candidates
            .filter(|at| {
                let value = at.and_then(|at| effects[at][&n]);
                found == value.map(|value| value.bytes().into())
            })
            .collect();
        if candidates.is_empty() {
            return Err(format!(
                "object {n} has {:?} bytes, which is no state after {kept} of {began} operations",
                found.map(|f| f.len())
            ));
        }
        let head = store.head(id(n)).map_err(|error| error.to_string())?;
        if head != found.as_ref().map(|found| found.len() as u64) {
            return Err(format!("object {n}: the length is told as {head:?}"));
        }
        digest = digest
            .wrapping_mul(31)
            .wrapping_add(found.map_or(7, |found| found.iter().map(|b| u64::from(*b)).sum()));
        shown.insert(n, candidates);
    }
    // A batch is there whole or not at all: who shows it rules out that another shows less.
    for (at, effect) in effects
        .iter()
        .enumerate()
        .take(began)
        .filter(|(_, effect)| effect.len() > 1)
    {
        let surely = effect
            .keys()
            .any(|n| shown[n].iter().all(|c| c.is_some_and(|c| c >= at)) && shown[n] == [Some(at)]);
        let surely_not = effect
            .keys()
            .any(|n| shown[n].iter().all(|c| c.is_none_or(|c| c < at)));
        if surely && surely_not {
            return Err(format!("operation {at} is there in part"));
        }
    }
    let listed: azekura::Result<Vec<_>> = store.list(..).collect();
    let listed = listed.map_err(|error| error.to_string())?;
    if listed.len() as u64 != store.count() {
        return Err(format!(
            "{} listed, {} counted",
            listed.len(),
            store.count()
        ));
    }
    store.check_room().map_err(|error| error.to_string())?;
    // It takes further changes, and holds them.
    let more = Value {
        version: 1 << 40,
        len: 5000,
    };
    for n in 0..IDS + 2 {
        store
            .put(id(n), &more.bytes())
            .map_err(|error| error.to_string())?;
    }
    store.check_room().map_err(|error| error.to_string())?;
    store.close().map_err(|error| error.to_string())?;
    let store = open(crash.disk, bug, options)
        .map_err(|error| format!("it does not open again: {error}"))?;
    for n in 0..IDS + 2 {
        if store.get(id(n)).map_err(|error| error.to_string())? != Some(more.bytes().into()) {
            return Err(format!("object {n}, put afterwards, is not there"));
        }
    }
    Ok(digest)
}

fn explored(
    seed: u64,
    count: usize,
    bug: Bug,
    options: &CreateOptions,
    quick: Option<usize>,
) -> Counts {
    let steps = steps(seed, count);
    let effects = effects(&steps);
    let mut config = Config::new(seed);
    if let Some(cuts) = quick {
        config = config.quick(cuts);
        config.recovery_one_in = 64;
    }
    config.atom = if seed.is_multiple_of(2) {
        Atom::Sector
    } else {
        Atom::Page
    };
    explore(
        &config,
        |disk, ledger| run(disk, ledger, &steps, bug, options),
        |crash| verify(crash, &effects, bug, options),
    )
}

#[test]
fn every_crash_leaves_of_each_object_a_state_it_had() {
    let mut counts = Counts::default();
    let rounds = share(25).max(5);
    for round in 0..rounds {
        let seed = round_seed() + round;
        let options = object_options(&mut Random::new(!seed), 768 << 10);
        let _shown = case(seed, &options);
        counts = counts.plus(explored(seed, 60, Bug::None, &options, Some(60)));
    }
    let states = counts.crash_states + counts.recovery_cuts;
    let what = format!("states of objects: {counts:?}");
    tried_in_rounds(states, rounds, 2350, &what);
}

/// Objects that are written and read in pieces, several of which are at the device at once.
#[test]
fn crashes_within_long_objects_leave_each_whole() {
    let value = |version, len| Value { version, len };
    let steps = [
        Step::Put(1, value(1, 3_200_000)),
        Step::Sync,
        Step::Put(1, value(2, 2_200_000)),
        Step::Put(2, value(3, 4 << 20)),
        Step::Batch(vec![
            (1, Some(value(4, 2_500_000))),
            (3, Some(value(5, 70_000))),
        ]),
        Step::Remove(2),
        Step::Sync,
    ];
    let options = CreateOptions::new()
        .capacity(20 << 20)
        .journal_size(256 << 10)
        .background(false);
    let mut config = Config::new(round_seed()).quick(40);
    config.recovery_one_in = 64;
    config.recovery_cuts_max = 8;
    config.limits.exhaustive = 8;
    config.limits.singles = 6;
    config.limits.random = 6;
    let effects = effects(&steps);
    let counts = explore(
        &config,
        |disk, ledger| run(disk, ledger, &steps, Bug::None, &options),
        |crash| verify(crash, &effects, Bug::None, &options),
    );
    let what = format!("states of long objects: {counts:?}");
    demand(counts.crash_states, 330, &what);
}

#[test]
fn planted_bugs_are_seen() {
    for bug in [
        Bug::SyncsDropped,
        Bug::DurableWritesCached,
        Bug::SameBoot,
        Bug::AcknowledgedEarly,
        Bug::BatchesSplit,
    ] {
        let seen = (0..40).find(|seed| {
            let options = options().durability(if seed % 2 == 0 {
                Durability::Power
            } else {
                Durability::Process
            });
            let quiet = AssertUnwindSafe(|| explored(1000 + seed, 40, bug, &options, Some(40)));
            catch_unwind(quiet).is_err()
        });
        tried(&format!("{bug:?} is seen with seed {seen:?}"));
        assert!(seen.is_some(), "{bug:?} is not seen");
    }
}

#[test]
fn small_objects_move_into_packs_and_their_room_comes_back() {
    let disk = SimDisk::new(3);
    let options = options().journal_size(144 << 10);
    let store = create(&disk, Bug::None, &options).unwrap();
    let free = |store: &Store| {
        store.sync().unwrap();
        store.check_room().unwrap();
        store.free()
    };
    let empty = free(&store);
    let value = |n: u64, round: u64| Random::new(n << 8 | round).bytes(900);
    // More than the journal holds, so that it goes round.
    for n in 0..400 {
        store.put(id(n), &value(n, 0)).unwrap();
    }
    store.checkpoint().unwrap();
    let full = free(&store);
    assert!(
        empty - full <= 400 * 1024 + (64 << 10),
        "{} bytes for 400",
        empty - full
    );
    // Nine of ten go, all over: what is left keeps no pack.
    for n in (0..400).filter(|n| n % 10 != 0) {
        assert!(store.remove(id(n)).unwrap());
    }
    store.checkpoint().unwrap();
    let sparse = free(&store);
    assert!(
        empty - sparse <= 40 * 1024 + (64 << 10),
        "{} bytes for 40",
        empty - sparse
    );
    for n in 0..400 {
        let wanted = (n % 10 == 0).then(|| value(n, 0).into());
        assert_eq!(store.get(id(n)).unwrap(), wanted);
    }
    // Updates of packed ones, and what a death leaves of them.
    for n in (0..400).step_by(10) {
        store.put(id(n), &value(n, 1)).unwrap();
    }
    let killed = disk.kill_state(disk.events());
    let after = open(&killed, Bug::None, &options).unwrap();
    after.check_room().unwrap();
    for n in (0..400).step_by(10) {
        assert_eq!(after.get(id(n)).unwrap(), Some(value(n, 1).into()));
        assert_eq!(
            after.get_range(id(n), 5..9).unwrap(),
            Some(value(n, 1)[5..9].to_vec().into())
        );
        assert_eq!(
            after.sequence(id(n)).unwrap(),
            store.sequence(id(n)).unwrap()
        );
    }
    assert_eq!(after.count(), 40);
}

/// A journal that is small compared with what its checkpoints tell of many small objects: the reserve was less than a checkpoint that
/// appends all of them again, so none could be made any more, and no room came back.
#[test]
fn a_journal_full_of_small_objects_is_refused_opened_and_emptied() {
    for (seed, len, journal) in [(1, 900, 192), (2, 40, 1 << 10), (3, 200, 4 << 10)] {
        let disk = SimDisk::new(seed);
        let options = options().capacity(64 << 20).journal_size(journal << 10);
        let mut random = Random::new(seed);
        let mut store = create(&disk, Bug::None, &options).unwrap();
        // In any order, so that every checkpoint changes every leaf.
        let mut kept = Vec::new();
        let mut refused = 0;
        while refused < 60 {
            let id = ObjectId(u128::from(random.below(u64::MAX)) << 40);
            match store.put(id, &vec![len as u8; len]) {
                Ok(_) => kept.push(id),
                Err(error) => {
                    assert_eq!(error.kind(), azekura::Kind::Full);
                    let said = error.to_string();
                    assert!(
                        said.starts_with("full: the journal is full at objects.azo (")
                            && said.ends_with("with a larger journal: --journal-size"),
                        "{said}"
                    );
                    refused += 1;
                }
            }
            if refused > 0 && refused % 20 == 0 {
                refused += 1;
                let killed = disk.kill_state(disk.events());
                let after = open(&killed, Bug::None, &options).unwrap();
                assert_eq!(after.count(), kept.len() as u64);
                after.check_room().unwrap();
                drop(after);
                drop(store);
                store = open(&disk, Bug::None, &options).unwrap();
            }
        }
        store.checkpoint().unwrap();
        // The smallest journals are mostly reserve.
        let least = journal as usize * if journal < 256 { 4 } else { 7 };
        assert!(kept.len() > least, "{} of {len} bytes", kept.len());
        let (gone, stay) = kept.split_at(kept.len() / 2);
        for id in gone {
            assert!(store.remove(*id).unwrap());
        }
        store.checkpoint().unwrap();
        for (n, id) in gone.iter().enumerate().take(gone.len() / 2) {
            let put = store.put(*id, &vec![1; len]);
            assert!(put.is_ok(), "{n} of {}: {put:?}", gone.len());
        }
        store.close().unwrap();
        let store = open(&disk, Bug::None, &options).unwrap();
        for id in stay {
            assert_eq!(store.get(*id).unwrap(), Some(vec![len as u8; len].into()));
        }
        tried(&format!(
            "{} objects of {len} bytes fill the journal",
            kept.len()
        ));
    }
}

/// A put over a packed object failed, and the journal got a record of what held instead: the place in the pack. Replay counted the
/// object as gone from there, the pack's room became free, and the next puts went over an object that no caller had removed.
#[test]
fn a_failed_put_over_a_packed_object_leaves_it_its_room() {
    let disk = SimDisk::new(4);
    let options = options();
    let store = create(&disk, Bug::None, &options).unwrap();
    let small = Random::new(1).bytes(900);
    store.put(id(1), &small).unwrap();
    store.checkpoint().unwrap();
    let next = disk.faults().count(Operation::Write);
    disk.faults().fail(Operation::Write, next, Fault::Error);
    assert!(store.put(id(1), &vec![7; 9000]).is_err());
    assert_eq!(disk.faults().struck(), 1);
    assert_eq!(store.get(id(1)).unwrap(), Some(small.clone().into()));
    store.put(id(2), &vec![8; 5000]).unwrap();
    let killed = disk.kill_state(disk.events());
    let store = open(&killed, Bug::None, &options).unwrap();
    // All of the room is used, and used again.
    for round in 0..2 {
        let mut n = 100;
        while store.put(id(n), &vec![round; 9000]).is_ok() {
            n += 1;
        }
        assert!(n > 150, "{n}");
        store.remove_range(id(100)..).unwrap();
        store.sync().unwrap();
    }
    assert_eq!(store.get(id(1)).unwrap(), Some(small.into()));
    assert_eq!(store.get(id(2)).unwrap(), Some(vec![8; 5000].into()));
    store.check_room().unwrap();
}

/// While a snapshot keeps all room, small objects are written again and again within the journal. A death at any time leaves each as it was.
#[test]
fn small_objects_that_are_renewed_in_the_journal_outlive_deaths() {
    let mut killed = 0;
    for seed in 0..3 {
        let disk = SimDisk::new(seed);
        let options = options().journal_size(256 << 10);
        let mut random = Random::new(round_seed() + 900 + seed);
        let store = create(&disk, Bug::None, &options).unwrap();
        let mut there = BTreeMap::new();
        let mut count = 0;
        loop {
            let value = Value {
                version: count,
                len: *random.choose(&[60, 900, 9000]),
            };
            if store.put(id(count), &value.bytes()).is_err() {
                break;
            }
            there.insert(count, value);
            count += 1;
        }
        let snapshot = store.snapshot().unwrap();
        let mut between = Vec::new();
        for round in 0..12_000 {
            let n = random.below(count);
            let value = Value {
                version: 10_000 + round,
                len: *random.choose(&[60, 900]),
            };
            if random.one_in(2) {
                assert_eq!(store.remove(id(n)).unwrap(), there.remove(&n).is_some());
            } else if store.put(id(n), &value.bytes()).is_ok() {
                there.insert(n, value);
            }
            if round % 200 == 0 {
                between.push((disk.events(), there.clone()));
            }
        }
        // Within changes and checkpoints, too: then the one that was going on has happened or not.
        let mut moments = vec![(disk.events(), there.clone())];
        for version in 50_000..50_150 {
            let n = random.below(count);
            let value = Value { version, len: 500 };
            if random.one_in(2) {
                store.remove(id(n)).unwrap();
                there.remove(&n);
            } else if store.put(id(n), &value.bytes()).is_ok() {
                there.insert(n, value);
            }
            moments.push((disk.events(), there.clone()));
        }
        store.checkpoint().unwrap();
        moments.push((disk.events(), there.clone()));
        let mut replay = disk.replay();
        for (event, there) in between {
            replay.advance_to(event);
            let after = open(&replay.kill(0), Bug::None, &options).unwrap();
            assert_eq!(after.count(), there.len() as u64, "seed {seed}, {event}");
            for (n, value) in &there {
                let found = after.get(id(*n)).unwrap();
                assert_eq!(found, Some(value.bytes().into()), "seed {seed}, {event}");
            }
            after.check_room().unwrap();
            killed += 1;
        }
        let (first, last) = (moments[0].0, disk.events());
        for event in (first..last).step_by(((last - first) / 60).max(1)) {
            let at = moments.partition_point(|(ended, _)| *ended <= event);
            replay.advance_to(event);
            let after = open(&replay.kill(0), Bug::None, &options).unwrap();
            let is = |there: &BTreeMap<u64, Value>| {
                (0..count).all(|n| {
                    let value = there.get(&n).map(|value| value.bytes().into());
                    after.get(id(n)).unwrap() == value
                })
            };
            let legal = &moments[at.saturating_sub(1)..=at];
            assert!(legal.iter().any(|(_, there)| is(there)), "event {event}");
            after.check_room().unwrap();
            killed += 1;
        }
        let appended = store.stats().unwrap().journal_appended_bytes;
        assert!(appended > 3 * (256 << 10), "{appended}");
        assert_eq!(snapshot.count(), count);
        drop(snapshot);
        store.close().unwrap();
    }
    tried_in_rounds(killed, 3, 98, "deaths in a journal that is renewed");
}

/// The name of the journal is the last that a store on two files takes.
#[test]
fn a_store_whose_journal_has_its_name_taken_meanwhile_leaves_no_data() {
    let folder = tempfile::tempdir().unwrap();
    let [journal, data] = ["journal", "data"].map(|name| folder.path().join(name));
    let options = CreateOptions::new()
        .capacity(8 << 20)
        .background(false)
        .fill(true);
    let made = Store::create_with_data(&journal, Some(&data), &options, &mut |_, _| {
        std::fs::write(&journal, "another program's").unwrap();
    });
    assert_eq!(made.err().unwrap().kind(), azekura::Kind::Invalid);
    assert!(!data.exists(), "the data stays");
    assert_eq!(std::fs::read(&journal).unwrap(), b"another program's");
}
