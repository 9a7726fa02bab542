//! The shape of an object store, drawn from a seed, and one life of it: from an open to a crash.
//!
//! A life records each change with the events of the disk between which it happened, and what it syncs. So it knows for each
//! event which states of each object a power cut or a death may leave, and verifies a store against them. A store may be full,
//! and then refuses puts, and batches with puts; a removal, a sync, a checkpoint or a snapshot that is refused is a failure.
//!
//! It does not know which crashes are tried.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use azekura::io::sim::{Atom, Fault, Operation, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::object::{Change, CreateOptions, ObjectId, Snapshot, Store};
use azekura::testkit::Random;
use azekura::{Durability, Kind, Result};

pub(crate) const JOURNAL: &str = "journal.azo";
pub(crate) const DATA: &str = "data.azo";

/// The bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) version: u64,
    pub(crate) len: usize,
}

impl Value {
    pub(crate) fn bytes(self) -> Vec<u8> {
        Random::new(self.version).bytes(self.len)
    }
}

pub(crate) fn id(n: u64) -> ObjectId {
    ObjectId(u128::from(n) << 64 | 7)
}

/// What a store and its workload look like.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) options: CreateOptions,
    pub(crate) devices: u8,
    pub(crate) population: u64,
    /// Of a hundred objects, how many are small; the others have up to `len_max` bytes.
    pub(crate) small: u64,
    pub(crate) small_len: usize,
    pub(crate) len_max: usize,
    /// Of a hundred objects, how many are removed after the first checkpoint.
    pub(crate) thinned: u64,
    pub(crate) churn: u64,
    pub(crate) atom: Atom,
}

impl Shape {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5_1a9e);
        let population = *random.choose(&[6, 12, 60, 60, 400, 2000]);
        let is_large = population > 100;
        let journal: u64 = if is_large {
            *random.choose(&[512 << 10, 1 << 20])
        } else {
            *random.choose(&[144 << 10, 256 << 10])
        };
        let small_max = *random.choose(&[0, 100, 2048, 2048, 2048, 8000]);
        let small_len = (*random.choose(&[60, 300, 900, 2000])).min(small_max as usize);
        let len_max = *random.choose(&[4000, 9000, 40_000]);
        // From as much as a few objects take to more than is needed: many of the stores are full.
        let small = *random.choose(&[0, 70, 95, 100]);
        let len = (small * (small_len as u64 / 2 + 60) + (100 - small) * len_max as u64 / 2) / 100;
        let percent = 50 + random.below(150);
        let data = (population * len * percent / 100).clamp(64 << 10, 6 << 20) & !4095;
        let devices = 1 + u8::from(random.one_in(2));
        let group_size = *random.choose(&[Some(64 << 10), Some(128 << 10), Some(1 << 20), None]);
        let power = random.one_in(4);
        Self {
            seed,
            options: CreateOptions::new()
                .capacity(if devices == 2 {
                    data + 8192
                } else {
                    data + journal
                })
                .journal_size(journal)
                .group_size(group_size)
                .small_max(small_max)
                .durability(if power {
                    Durability::Power
                } else {
                    Durability::Process
                })
                .sync_every((!power && random.one_in(3)).then(|| random.below(6)))
                .background(false),
            devices,
            population,
            small,
            small_len,
            len_max,
            thinned: *random.choose(&[0, 40, 60, 75, 95]),
            churn: 40 + random.below(60),
            atom: *random.choose(&[Atom::Sector, Atom::Page]),
        }
    }

    pub(crate) fn create(&self, disk: &SimDisk) -> Result<Store> {
        let directory = disk.directory();
        let journal = directory.create_nameless(Path::new(JOURNAL))?;
        let data = directory.create_nameless(Path::new(DATA))?;
        if self.devices == 2 {
            journal.resize(self.options.journal_size.unwrap_or_default())?;
            data.resize(self.options.capacity)?;
        } else {
            journal.resize(self.options.capacity)?;
        }
        let data = (self.devices == 2).then_some(data);
        let options = self
            .options
            .clone()
            .journal_size(self.options.journal_size.filter(|_| self.devices == 1));
        let store = Store::create_on(Arc::clone(&journal), data.clone(), &options, &mut |_, _| {})?;
        journal.take_name()?;
        if let Some(data) = data {
            data.take_name()?;
        }
        directory.sync()?;
        Ok(store)
    }

    pub(crate) fn open(&self, disk: &SimDisk) -> Result<Store> {
        let directory = disk.directory();
        let journal = directory.open(Path::new(JOURNAL), Access::Write)?;
        let data: Option<Arc<dyn Storage>> = if self.devices == 2 {
            Some(directory.open(Path::new(DATA), Access::Write)?)
        } else {
            None
        };
        Store::open_on(journal, data, &self.options.opening)
    }
}

/// What ended a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Power,
    Process,
}

/// A change, and when: in events of the disk.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) sets: BTreeMap<u64, Option<Value>>,
    pub(crate) began: usize,
    pub(crate) ended: usize,
    /// Otherwise it failed: what was before holds.
    pub(crate) is_acknowledged: bool,
}

/// A state of an object, and the operation that made it; `None`: it was there from the beginning.
pub(crate) type State = (Option<usize>, Option<Value>);

/// A store from an open to a crash.
pub(crate) struct Life<'s> {
    pub(crate) shape: &'s Shape,
    pub(crate) disk: SimDisk,
    pub(crate) random: Random,
    /// What there was at its beginning: durable.
    pub(crate) start: BTreeMap<u64, Value>,
    pub(crate) now: BTreeMap<u64, Value>,
    pub(crate) ops: Vec<Op>,
    /// The event at which so many operations were durable.
    pub(crate) synced: Vec<(usize, usize)>,
    /// How many changes the full store refused.
    pub(crate) refused: u64,
    /// The events of checkpoints.
    pub(crate) checkpoints: Vec<(usize, usize)>,
    pub(crate) begin: usize,
    pub(crate) end: usize,
    pub(crate) version: u64,
}

impl<'s> Life<'s> {
    pub(crate) fn new(
        shape: &'s Shape,
        disk: SimDisk,
        start: BTreeMap<u64, Value>,
        seed: u64,
    ) -> Self {
        let begin = disk.events();
        Self {
            shape,
            disk,
            random: Random::new(seed),
            now: start.clone(),
            start,
            ops: Vec::new(),
            synced: Vec::new(),
            refused: 0,
            checkpoints: Vec::new(),
            begin,
            end: begin,
            version: seed << 24,
        }
    }

    pub(crate) fn value(&mut self) -> Value {
        self.version += 1;
        let most = if self.random.below(100) < self.shape.small {
            self.shape.small_len
        } else {
            self.shape.len_max
        };
        Value {
            version: self.version,
            len: self.random.index(most + 1),
        }
    }

    /// Does a change; whether the store takes more. One that changes nothing leaves no mark.
    pub(crate) fn change(
        &mut self,
        sets: BTreeMap<u64, Option<Value>>,
        act: impl FnOnce() -> Result<bool>,
    ) -> bool {
        let began = self.disk.events();
        let done = act();
        let ended = self.disk.events();
        let is_acknowledged = match &done {
            Ok(true) => true,
            Ok(false) => return true,
            Err(error) if error.kind() == Kind::Full => {
                let takes_room = sets.values().any(Option::is_some);
                assert!(takes_room, "a removal of {sets:?} is refused: {error}");
                self.refused += 1;
                return true;
            }
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Poisoned) => false,
            Err(error) => panic!("{error}"),
        };
        if is_acknowledged {
            for (n, value) in &sets {
                match value {
                    Some(value) => drop(self.now.insert(*n, *value)),
                    None => drop(self.now.remove(n)),
                }
            }
        }
        self.ops.push(Op {
            sets,
            began,
            ended,
            is_acknowledged,
        });
        if is_acknowledged && self.shape.options.opening.durability == Durability::Power {
            self.is_synced();
        }
        done.is_ok() || self.disk.faults().struck() > 0
    }

    /// That is refused for no other reason than a write that failed before.
    fn is_poisoned(&self, what: &str, error: &azekura::Error) {
        let is_poisoned = error.kind() == Kind::Poisoned && self.disk.faults().struck() > 0;
        assert!(is_poisoned, "{what} is refused: {error}");
    }

    /// Changes that were acknowledged.
    pub(crate) fn taken(&self) -> u64 {
        self.ops.iter().filter(|op| op.is_acknowledged).count() as u64
    }

    pub(crate) fn is_synced(&mut self) {
        self.synced.push((self.disk.events(), self.ops.len()));
    }

    pub(crate) fn put(&mut self, store: &Store, n: u64) -> bool {
        let value = self.value();
        let sets = BTreeMap::from([(n, Some(value))]);
        self.change(sets, || store.put(id(n), &value.bytes()).map(|_| true))
    }

    pub(crate) fn remove(&mut self, store: &Store, n: u64) -> bool {
        self.change(BTreeMap::from([(n, None)]), || store.remove(id(n)))
    }

    pub(crate) fn checkpoint(&mut self, store: &Store) {
        let before = self.disk.events();
        match store.checkpoint() {
            Ok(()) => self.is_synced(),
            Err(error) => self.is_poisoned("a checkpoint", &error),
        }
        self.checkpoints.push((before, self.disk.events()));
    }

    pub(crate) fn fill(&mut self, store: &Store) {
        for n in 0..self.shape.population {
            self.put(store, n);
        }
        self.checkpoint(store);
        for n in 0..self.shape.population {
            if self.random.below(100) < self.shape.thinned {
                self.remove(store, n);
            }
        }
    }

    pub(crate) fn churn(&mut self, mut store: Store, steps: u64) {
        let mut held: Vec<(Snapshot, BTreeMap<u64, Value>)> = Vec::new();
        let ids = self.shape.population;
        for _ in 0..steps {
            let n = self.random.below(ids);
            let takes_more = match self.random.below(40) {
                0..2 => {
                    match store.sync() {
                        Ok(()) => self.is_synced(),
                        Err(error) => self.is_poisoned("a sync", &error),
                    }
                    true
                }
                2..5 => {
                    self.checkpoint(&store);
                    true
                }
                5 => {
                    match store.snapshot() {
                        Ok(snapshot) => held.push((snapshot, self.now.clone())),
                        Err(error) => self.is_poisoned("a snapshot", &error),
                    }
                    true
                }
                6..8 => {
                    if let Some((snapshot, then)) = held.pop() {
                        self.compare(&snapshot, &then);
                    }
                    true
                }
                8 if self.disk.faults().struck() == 0 => {
                    held.clear();
                    if let Err(error) = store.close() {
                        panic!("a close is refused: {error}");
                    }
                    self.is_synced();
                    store = self.shape.open(&self.disk).unwrap();
                    true
                }
                9..11 => self.fail_a_put(&store, n),
                11..13 => {
                    let end = n + 1 + self.random.below(ids / 8 + 2);
                    let sets = (n..end.min(ids)).map(|n| (n, None)).collect();
                    self.change(sets, || Ok(store.remove_range(id(n)..id(end))? > 0))
                }
                13..16 => self.batch(&store),
                16..22 => self.remove(&store, n),
                // As many as make packs, or room for what is longer.
                22..24 => (0..20).all(|_| {
                    let n = self.random.below(ids);
                    self.put(&store, n)
                }),
                24..26 => (0..20).all(|_| {
                    let n = self.random.below(ids);
                    self.remove(&store, n)
                }),
                _ => self.put(&store, n),
            };
            if !takes_more {
                break;
            }
        }
        for (snapshot, then) in held {
            self.compare(&snapshot, &then);
        }
        self.end = self.disk.events();
    }

    pub(crate) fn compare(&mut self, snapshot: &Snapshot, then: &BTreeMap<u64, Value>) {
        for _ in 0..20 {
            let n = self.random.below(self.shape.population);
            let wanted = then.get(&n).map(|value| value.bytes().into());
            assert_eq!(snapshot.get(id(n)).unwrap(), wanted, "a snapshot's {n}");
        }
    }

    /// A put whose write fails, and arrives in part or whole.
    pub(crate) fn fail_a_put(&mut self, store: &Store, n: u64) -> bool {
        let value = Value {
            len: self.shape.options.opening.small_max as usize + 1 + self.random.index(9000),
            ..self.value()
        };
        let fault = *self.random.choose(&[
            Fault::Error,
            Fault::Torn,
            Fault::Short(4096),
            Fault::Short(1 << 20),
        ]);
        let disk = self.disk.clone();
        let next = disk.faults().count(Operation::Write);
        disk.faults().fail(Operation::Write, next, fault);
        let sets = BTreeMap::from([(n, Some(value))]);
        let takes_more = self.change(sets, || store.put(id(n), &value.bytes()).map(|_| true));
        disk.faults().clear();
        takes_more
    }

    pub(crate) fn batch(&mut self, store: &Store) -> bool {
        let mut sets = BTreeMap::new();
        for _ in 0..2 + self.random.index(4) {
            let value = (!self.random.one_in(3)).then(|| self.value());
            sets.insert(self.random.below(self.shape.population), value);
        }
        let values: Vec<_> = sets.values().map(|value| value.map(Value::bytes)).collect();
        let changes: Vec<_> = sets
            .keys()
            .zip(&values)
            .map(|(n, value)| match value {
                Some(bytes) => Change::Put(id(*n), bytes),
                None => Change::Remove(id(*n)),
            })
            .collect();
        self.change(sets.clone(), || store.apply(&changes).map(|_| true))
    }

    /// How many operations must be there after such an end at this event.
    pub(crate) fn kept(&self, at: usize, end: End) -> usize {
        let ended = self.ops.iter().take_while(|op| op.ended <= at).count();
        if end == End::Process {
            return ended;
        }
        let synced = self.synced.iter().filter(|(event, _)| *event <= at);
        let synced = synced.map(|(_, ops)| *ops).max().unwrap_or(0);
        let Some(every) = self.shape.options.opening.sync_every else {
            return synced;
        };
        let acknowledged = (0..ended).rev().filter(|at| self.ops[*at].is_acknowledged);
        let kept = acknowledged.map(|at| at + 1).nth(every as usize);
        synced.max(kept.unwrap_or(0))
    }

    /// Compares what a disk holds after a crash at this event; what it shows.
    pub(crate) fn verify(
        &self,
        store: &Store,
        at: usize,
        end: End,
    ) -> std::result::Result<BTreeMap<u64, Value>, String> {
        let text = |error: azekura::Error| error.to_string();
        let kept = self.kept(at, end);
        let mut legal: BTreeMap<u64, Vec<State>> = BTreeMap::new();
        for n in 0..self.shape.population {
            legal.insert(n, vec![(None, self.start.get(&n).copied())]);
        }
        let began = self.ops.iter().take_while(|op| op.began <= at).count();
        for (number, op) in self.ops.iter().enumerate().take(began) {
            if number < kept && !op.is_acknowledged {
                continue;
            }
            for (n, set) in &op.sets {
                let states = legal.entry(*n).or_default();
                if number < kept {
                    states.clear();
                }
                states.push((Some(number), *set));
            }
        }
        let mut found = BTreeMap::new();
        for (n, states) in &mut legal {
            let bytes = store.get(id(*n)).map_err(|e| format!("object {n}: {e}"))?;
            let len = bytes.as_ref().map(|bytes| bytes.len());
            let all = states.clone();
            states.retain(|(_, set)| {
                set.map(|value| value.len) == len && bytes == set.map(|value| value.bytes().into())
            });
            let Some((_, state)) = states.first() else {
                return Err(format!("object {n} has {len:?} bytes, legal are {all:?}"));
            };
            if let Some(value) = state {
                found.insert(*n, *value);
            }
        }
        // A batch that one object surely shows is not missing of another.
        for (number, op) in self.ops.iter().enumerate().take(began).skip(kept) {
            let shows = |n: &u64| legal[n] == [(Some(number), op.sets[n])];
            let misses = |n: &u64| {
                legal[n]
                    .iter()
                    .all(|(of, _)| of.is_none_or(|of| of < number))
            };
            if op.sets.keys().any(shows) && op.sets.keys().any(misses) {
                return Err(format!("operation {number} is there in part"));
            }
        }
        if store.count() != found.len() as u64 {
            return Err(format!("{} are counted", store.count()));
        }
        store.check_room().map_err(text)?;
        Ok(found)
    }

    /// The events to crash at: half of them within checkpoints.
    pub(crate) fn moments(&mut self, count: usize) -> Vec<usize> {
        let mut moments = vec![self.end];
        for at in 0..count {
            let within = (at % 2 == 0 && !self.checkpoints.is_empty())
                .then(|| *self.random.choose(&self.checkpoints));
            let (from, to) = within.unwrap_or((self.begin, self.end));
            moments.push(from + self.random.index(to - from + 1));
        }
        moments.sort_unstable();
        moments.dedup();
        moments
    }
}
