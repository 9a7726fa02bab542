//! Loss of power and the death of the process at each event of edits, merges, reverts and openings; full disks, and calls that fail.
//!
//! Afterwards the store opens, and holds the state after some number of edits: at least those synced (after a death, acknowledged), at
//! most those begun. A batch, a clear or a revert is there whole or not at all; totals show an edit that counts twice. The sorted file
//! is whole by itself at every moment. Recoveries are cut again. What is found takes further edits, and keeps them.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use azekura::engine::Engine as _;
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::io::{Access, Directory};
use azekura::order::Order;
use azekura::record::skip::{EditOptions, SkipReader};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore, fail_each};
use azekura::testkit::suite::{case, demand, share};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Edit, Kind};

use super::super::{NAME, Records};
use super::{Model, Store, all};

const KEYS: usize = 12;

/// One thing that a run does.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Many(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Clear,
    Revert,
    Merge,
    Sync,
    Reopen,
}

fn key(random: &mut Random) -> Vec<u8> {
    format!("key-{}", random.index(KEYS)).into_bytes()
}

/// A run, under its configuration, and the states that it went through.
struct Run {
    reducer: &'static str,
    options: EditOptions,
    steps: Vec<Step>,
    /// After each number of edits; after the first the store is there, empty.
    states: RefCell<Vec<Records>>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = self.steps.iter().map(|step| match step {
            Step::Put(key, value) => format!("Put({}, {})", key.escape_ascii(), value.len()),
            Step::Remove(key) => format!("Remove({})", key.escape_ascii()),
            Step::Many(edits) => format!("Many({})", edits.len()),
            other => format!("{other:?}"),
        });
        let steps: Vec<_> = steps.collect();
        write!(f, "{} {:?} {steps:?}", self.reducer, self.options)
    }
}

impl Run {
    fn draw(seed: u64, count: usize) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let reducer = *random.choose(&["last", "total-decimal", "concat"]);
        let durability = if random.one_in(3) {
            Durability::Power
        } else {
            Durability::Process
        };
        let memory = *random.choose(&[4u64 << 10, 4 << 10, 64 << 20]);
        let long = *random.choose(&[20, 300, 3000]);
        let steps = (0..count)
            .map(|_| match random.below(40) {
                0..3 => Step::Merge,
                3..5 => Step::Reopen,
                5..8 => Step::Sync,
                8 => Step::Revert,
                9 => Step::Clear,
                10..15 => Step::Remove(key(random)),
                15..20 if reducer == "last" => {
                    let edits = (0..2 + random.index(4)).map(|_| {
                        let len = random.index(60);
                        (key(random), (!random.one_in(3)).then(|| random.bytes(len)))
                    });
                    Step::Many(edits.collect())
                }
                _ => {
                    let len = random.index(long);
                    let value = match reducer {
                        "total-decimal" => random.below(1000).to_string().into_bytes(),
                        _ => random.bytes(len),
                    };
                    Step::Put(key(random), value)
                }
            })
            .collect();
        Self {
            reducer,
            options: EditOptions::new().memory(memory).durability(durability),
            steps,
            states: RefCell::default(),
        }
    }

    /// Runs the steps; ends at the first error, which it returns.
    fn work(&self, disk: &SimDisk, ledger: &Ledger) -> azekura::Result<()> {
        *self.states.borrow_mut() = vec![Records::new(), Records::new()];
        let mut store = ledger.operation(|| Store::create(disk, self.reducer, &self.options))?;
        ledger.synced();
        let mut model = Model::default();
        let mut base = store.base();
        for step in &self.steps {
            let before = model.pending();
            match step {
                Step::Merge => {
                    store.merge()?;
                    ledger.synced();
                }
                Step::Sync => {
                    store.persistent().sync(Durability::Power)?;
                    ledger.synced();
                }
                Step::Reopen => {
                    store.close()?;
                    ledger.synced();
                    store = Store::open(disk, self.reducer, &self.options)?;
                    base = store.base();
                }
                edit => {
                    ledger.begin();
                    let mut after = model.clone();
                    self.effect(&mut after, edit);
                    // What is begun may be found.
                    self.states
                        .borrow_mut()
                        .push(after.records(self.reducer, Order::Lexical));
                    Self::apply(&store, edit)?;
                    model = after;
                    ledger.acknowledge();
                    if self.options.durability == Durability::Power {
                        ledger.synced();
                    }
                }
            }
            let now = store.base();
            if !Arc::ptr_eq(&now, &base) {
                base = now;
                model.merged_but(model.pending().saturating_sub(before));
            }
        }
        Ok(())
    }

    fn apply(store: &Store, step: &Step) -> azekura::Result<()> {
        match (step, store) {
            (Step::Put(key, value), _) => store.put(key, value),
            (Step::Remove(key), _) => store.remove(key).map(drop),
            (Step::Clear, _) => store.clear(),
            (Step::Revert, _) => store.revert(),
            (Step::Many(edits), Store::Map(db)) => {
                let keys: Vec<&[u8]> = edits.iter().map(|(key, _)| key.as_slice()).collect();
                db.update_many(&keys, &mut |_| {
                    let edits = edits.iter().map(|(_, value)| match value {
                        Some(value) => Edit::Put(value.clone().into()),
                        None => Edit::Remove,
                    });
                    edits.collect()
                })
            }
            _ => unreachable!("the others change nothing"),
        }
    }

    fn effect(&self, model: &mut Model, step: &Step) {
        match step {
            Step::Put(key, value) => model.put(self.reducer, key, value),
            Step::Remove(key) => drop(model.remove(key)),
            Step::Clear => model.clear(),
            Step::Revert => model.revert(),
            Step::Many(edits) => {
                for (key, value) in edits {
                    match value {
                        Some(value) => model.put(self.reducer, key, value),
                        None => drop(model.remove(key)),
                    }
                }
            }
            _ => unreachable!("the others change nothing"),
        }
    }

    /// Whether a crash left what it may; a digest of that.
    fn verify(&self, crash: &Crash<'_>) -> Result<u64, String> {
        let directory = crash.disk.directory();
        let kept = crash.kept();
        if !directory.exists(Path::new(NAME)).map_err(text)? {
            return if kept == 0 {
                Ok(0)
            } else {
                Err("no file".into())
            };
        }
        // The sorted file by itself.
        let storage = directory
            .open(Path::new(NAME), Access::Read)
            .map_err(text)?;
        all(&SkipReader::open_on(storage).map_err(text)?).map_err(text)?;
        let store = Store::open(crash.disk, self.reducer, &self.options).map_err(text)?;
        crash.recovered();
        let found = all(store.reader()).map_err(text)?;
        let states = self.states.borrow();
        let most = crash.done.began.min(states.len() - 1);
        let Some(state) = (kept..=most).find(|at| states[*at] == found) else {
            let states: Vec<_> = states[kept..=most].iter().map(shown).collect();
            let found = shown(&found);
            return Err(format!("{found:?} is none of {kept} to {most}: {states:?}"));
        };
        if store.reader().count() != found.len() as u64 {
            return Err(format!("{} records counted", store.reader().count()));
        }
        let report = store.persistent().check(&mut |_, _| {}).map_err(text)?;
        if !report.is_sound() {
            return Err(format!("{report:?}"));
        }
        // It is lived on in.
        let mut model = Model::default();
        for (key, value) in &found {
            model.put(self.reducer, key, value);
        }
        let reads = |store: &Store, model: &Model, when: &str| {
            let expected = model.records(self.reducer, Order::Lexical);
            let found = all(store.reader()).map_err(text)?;
            if found == expected {
                Ok(())
            } else {
                Err(format!(
                    "{when} of state {state}: {found:?}, not {expected:?}"
                ))
            }
        };
        let edit = |store: &Store, model: &mut Model, key: &[u8]| {
            model.put(self.reducer, key, b"7");
            store.put(key, b"7").map_err(text)
        };
        edit(&store, &mut model, b"key-1")?;
        if state % 2 == 0 {
            store.merge().map_err(text)?;
            reads(&store, &model, "a merge")?;
        }
        edit(&store, &mut model, b"new")?;
        drop(store);
        let store = Store::open(crash.disk, self.reducer, &self.options).map_err(text)?;
        reads(&store, &model, "another opening")?;
        let mut hasher = DefaultHasher::new();
        found.hash(&mut hasher);
        Ok(hasher.finish())
    }
}

/// Records with the length and a digest of their values.
fn shown(records: &Records) -> Vec<String> {
    let shown = records.iter().map(|(key, value)| {
        let sum = value.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        format!("{}:{}/{sum}", key.escape_ascii(), value.len())
    });
    shown.collect()
}

#[expect(clippy::needless_pass_by_value, reason = "given to `map_err`")]
fn text(error: azekura::Error) -> String {
    error.to_string()
}

#[test]
fn a_cut_leaves_a_prefix_of_the_edits_whatever_was_being_merged() {
    let (mut counts, mut named) = (Counts::default(), 0);
    for round in 0..share(120) {
        let seed = round_seed() + 30_000_000 + round;
        let run = Run::draw(seed, 60);
        let _case = case(seed, &run);
        let config = Config {
            recovery_one_in: 64,
            recovery_cuts_max: 4,
            ..Config::new(seed).quick(60)
        };
        let work = |disk: &SimDisk, ledger: &Ledger| {
            run.work(disk, ledger).unwrap();
            named += disk.faults().count(Operation::SyncNames).saturating_sub(2);
        };
        counts = counts.plus(explore(&config, work, |crash| run.verify(crash)));
    }
    demand(
        counts.crash_states,
        share(120) * 300,
        "states of an edited file after a cut",
    );
    demand(
        counts.recovery_cuts,
        share(120) * 50,
        "recoveries cut again",
    );
    demand(named, share(120) * 3, "merges that were cut");
}

/// Every event of one merge, each with many choices: between the name and the sync of the folder, between that and the superblock of
/// the pending file, and while segments are given back.
#[test]
fn a_cut_at_each_event_of_a_merge_loses_nothing_and_counts_nothing_twice() {
    let mut counts = Counts::default();
    for round in 0..share(60) {
        let seed = round_seed() + 31_000_000 + round;
        let mut random = Random::new(seed);
        let random = &mut random;
        let reducer = *random.choose(&["last", "total-decimal"]);
        let options = EditOptions::new().memory(1u64 << 20);
        let run = Run {
            reducer,
            options,
            steps: Vec::new(),
            states: RefCell::default(),
        };
        let _case = case(seed, &run);
        let edits = 1 + random.index(300);
        let edits: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..edits)
            .map(|_| {
                let value = random.below(1000).to_string().into_bytes();
                (key(random), (!random.one_in(4)).then_some(value))
            })
            .collect();
        let work = |disk: &SimDisk, ledger: &Ledger| {
            let store = ledger
                .operation(|| Store::create(disk, reducer, &options))
                .unwrap();
            let mut model = Model::default();
            let mut edit = |at: std::ops::Range<usize>| {
                for (key, value) in &edits[at] {
                    if let Some(value) = value {
                        store.put(key, value).unwrap();
                        model.put(reducer, key, value);
                    } else {
                        store.remove(key).unwrap();
                        model.remove(key);
                    }
                }
            };
            edit(0..edits.len() / 2);
            store.merge().unwrap();
            edit(edits.len() / 2..edits.len());
            store.persistent().sync(Durability::Power).unwrap();
            *run.states.borrow_mut() = vec![model.records(reducer, Order::Lexical); 2];
            ledger.synced();
            ledger.cut_from_here();
            store.merge().unwrap();
            drop(store);
        };
        let config = Config::new(seed);
        let config = Config {
            recovery_one_in: 32,
            ..config.quick(usize::MAX)
        };
        counts = counts.plus(explore(&config, work, |crash| run.verify(crash)));
    }
    demand(
        counts.crash_states,
        share(60) * 60,
        "states of a merge after a cut",
    );
    demand(counts.kills, share(60) * 20, "deaths during a merge");
}

#[test]
fn a_call_that_fails_loses_nothing() {
    let mut counts = Counts::default();
    for round in 0..share(40) {
        let seed = round_seed() + 32_000_000 + round;
        let run = Run::draw(seed, 20);
        let _case = case(seed, &run);
        let config = Config::new(seed).quick(4);
        let operation = [
            Operation::Write,
            Operation::Resize,
            Operation::Sync,
            Operation::Name,
            Operation::SyncNames,
        ];
        let operation = operation[round as usize % operation.len()];
        let fault = if round % 3 == 0 {
            Fault::Full
        } else {
            Fault::Error
        };
        let work = |disk: &SimDisk, ledger: &Ledger| {
            run.work(disk, ledger).err();
        };
        let failed = fail_each(&config, operation, fault, work, |crash| run.verify(crash));
        counts = counts.plus(failed);
    }
    demand(
        counts.crash_states,
        share(40) * 20,
        "states after a call that failed",
    );
}

/// A disk without room for a merge: edits stay pending, and are merged when there is.
#[test]
fn a_full_disk_leaves_edits_pending() {
    let mut refused = 0;
    for round in 0..share(60) {
        let seed = round_seed() + 33_000_000 + round;
        let mut random = Random::new(seed);
        let reducer = *random.choose(&["last", "total-decimal"]);
        let memory = *random.choose(&[16u64 << 10, 1 << 20]);
        let options = EditOptions::new().memory(memory);
        let _case = case(seed, &(reducer, &options));
        let disk = SimDisk::new(seed);
        let store = Store::create(&disk, reducer, &options).unwrap();
        let mut model = Model::default();
        let mut put = |store: &Store, random: &mut Random| -> azekura::Result<()> {
            let key = random.below(3000).to_string().into_bytes();
            store.put(&key, b"12")?;
            model.put(reducer, &key, b"12");
            Ok(())
        };
        for _ in 0..1000 {
            put(&store, &mut random).unwrap();
        }
        store.merge().unwrap();
        disk.set_capacity(0);
        disk.faults().fail_from(Operation::Resize, 0, Fault::Full);
        let mut accepted = 0;
        while accepted < 2000 {
            match put(&store, &mut random) {
                Ok(()) => accepted += 1,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    break;
                }
            }
        }
        let error = store.merge().unwrap_err();
        assert_eq!(error.kind(), Kind::Full, "{error}");
        refused += 1;
        assert!(store.has_pending());
        // A later one finds the layer that the failed one left, and edits after it.
        disk.set_capacity(u64::MAX);
        disk.faults().clear();
        for _ in 0..20 {
            put(&store, &mut random).unwrap();
        }
        let expected = model.records(reducer, Order::Lexical);
        assert_eq!(all(store.reader()).unwrap(), expected);
        if random.one_in(3) {
            drop(store);
            let store = Store::open(&disk, reducer, &options).unwrap();
            assert_eq!(all(store.reader()).unwrap(), expected);
            continue;
        }
        store.merge().unwrap();
        assert!(!store.has_pending());
        assert_eq!(all(&*store.base()).unwrap(), expected);
        assert_eq!(store.reader().count(), expected.len() as u64);
    }
    demand(refused, share(60), "merges that a full disk refused");
}
