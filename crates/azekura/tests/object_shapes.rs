//! Crashes of object stores of every shape: what a cut of the power or the death of the process leaves of few or thousands of
//! objects, on one device or two, with sparse packs, snapshots held, writes that fail, and in stores that are full.
//!
//! ```text
//!   seed --> shape: size, journal, groups, small_max, devices, durability, sync_every, population, lengths
//!        --> first life: fill, thin out, churn --crash--> verify --> second life: churn --crash--> verify
//! ```
//! Half of the crashes are within checkpoints. What a recovery shows is durable when the store is open: a second life that
//! crashes must keep it. Lines beginning `tried:` say how much was tried.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use azekura::io::sim::{Atom, Fault, Limits, Operation, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::object::{Change, ObjectId, Options, Snapshot, Store};
use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Kind, Result};

const JOURNAL: &str = "journal.azo";
const DATA: &str = "data.azo";

/// The bytes of an object.
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
    ObjectId(u128::from(n) << 64 | 7)
}

/// What a store and its workload look like.
#[derive(Clone, Debug)]
struct Shape {
    seed: u64,
    options: Options,
    devices: u8,
    population: u64,
    /// Of a hundred objects, how many are small; the others have up to `len_max` bytes.
    small: u64,
    small_len: usize,
    len_max: usize,
    /// Of a hundred objects, how many are removed after the first checkpoint.
    thinned: u64,
    churn: u64,
    atom: Atom,
}

impl Shape {
    fn new(seed: u64) -> Self {
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
            options: Options {
                capacity: if devices == 2 {
                    data + 8192
                } else {
                    data + journal
                },
                journal_size: Some(journal),
                group_size,
                small_max,
                durability: if power {
                    Durability::Power
                } else {
                    Durability::Process
                },
                sync_every: (!power && random.one_in(3)).then(|| random.below(6)),
                background: false,
                ..Options::default()
            },
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

    fn create(&self, disk: &SimDisk) -> Result<Store> {
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
        let options = Options {
            journal_size: self.options.journal_size.filter(|_| self.devices == 1),
            ..self.options.clone()
        };
        let store = Store::create_on(Arc::clone(&journal), data.clone(), &options, &mut |_, _| {})?;
        journal.take_name()?;
        if let Some(data) = data {
            data.take_name()?;
        }
        directory.sync()?;
        Ok(store)
    }

    fn open(&self, disk: &SimDisk) -> Result<Store> {
        let directory = disk.directory();
        let journal = directory.open(Path::new(JOURNAL), Access::Write)?;
        let data: Option<Arc<dyn Storage>> = if self.devices == 2 {
            Some(directory.open(Path::new(DATA), Access::Write)?)
        } else {
            None
        };
        Store::open_on(journal, data, &self.options)
    }
}

/// What ended a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Power,
    Process,
}

/// A change, and when: in events of the disk.
#[derive(Debug)]
struct Op {
    sets: BTreeMap<u64, Option<Value>>,
    began: usize,
    ended: usize,
    /// Otherwise it failed: what was before holds.
    is_acknowledged: bool,
}

/// A state of an object, and the operation that made it; `None`: it was there from the beginning.
type State = (Option<usize>, Option<Value>);

/// A store from an open to a crash.
struct Life<'s> {
    shape: &'s Shape,
    disk: SimDisk,
    random: Random,
    /// What there was at its beginning: durable.
    start: BTreeMap<u64, Value>,
    now: BTreeMap<u64, Value>,
    ops: Vec<Op>,
    /// The event at which so many operations were durable.
    synced: Vec<(usize, usize)>,
    /// The events of checkpoints.
    checkpoints: Vec<(usize, usize)>,
    begin: usize,
    end: usize,
    version: u64,
}

impl<'s> Life<'s> {
    fn new(shape: &'s Shape, disk: SimDisk, start: BTreeMap<u64, Value>, seed: u64) -> Self {
        let begin = disk.events();
        Self {
            shape,
            disk,
            random: Random::new(seed),
            now: start.clone(),
            start,
            ops: Vec::new(),
            synced: Vec::new(),
            checkpoints: Vec::new(),
            begin,
            end: begin,
            version: seed << 24,
        }
    }

    fn value(&mut self) -> Value {
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
    fn change(
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
            Err(error) if error.kind() == Kind::Full => return true,
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
        if is_acknowledged && self.shape.options.durability == Durability::Power {
            self.is_synced();
        }
        done.is_ok() || self.disk.faults().struck() > 0
    }

    fn is_synced(&mut self) {
        self.synced.push((self.disk.events(), self.ops.len()));
    }

    fn put(&mut self, store: &Store, n: u64) -> bool {
        let value = self.value();
        let sets = BTreeMap::from([(n, Some(value))]);
        self.change(sets, || store.put(id(n), &value.bytes()).map(|_| true))
    }

    fn remove(&mut self, store: &Store, n: u64) -> bool {
        self.change(BTreeMap::from([(n, None)]), || store.remove(id(n)))
    }

    fn checkpoint(&mut self, store: &Store) {
        let before = self.disk.events();
        match store.checkpoint() {
            Ok(()) => self.is_synced(),
            Err(error) => assert!(
                matches!(error.kind(), Kind::Full | Kind::Poisoned),
                "{error}"
            ),
        }
        self.checkpoints.push((before, self.disk.events()));
    }

    fn fill(&mut self, store: &Store) {
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

    fn churn(&mut self, mut store: Store, steps: u64) {
        let mut held: Vec<(Snapshot, BTreeMap<u64, Value>)> = Vec::new();
        let ids = self.shape.population;
        for _ in 0..steps {
            let n = self.random.below(ids);
            let takes_more = match self.random.below(40) {
                0..2 => {
                    if store.sync().is_ok() {
                        self.is_synced();
                    }
                    true
                }
                2..5 => {
                    self.checkpoint(&store);
                    true
                }
                5 => {
                    if let Ok(snapshot) = store.snapshot() {
                        held.push((snapshot, self.now.clone()));
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
                    if store.close().is_ok() {
                        self.is_synced();
                    }
                    store = self.shape.open(&self.disk).unwrap();
                    true
                }
                9..11 => self.fail_a_put(&store, n),
                11..13 => {
                    let end = n + 1 + self.random.below(ids / 8 + 2);
                    let sets = (n..end.min(ids)).map(|n| (n, None)).collect();
                    self.change(sets, || Ok(store.remove_range(id(n), Some(id(end)))? > 0))
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

    fn compare(&mut self, snapshot: &Snapshot, then: &BTreeMap<u64, Value>) {
        for _ in 0..20 {
            let n = self.random.below(self.shape.population);
            let wanted = then.get(&n).map(|value| value.bytes().into());
            assert_eq!(snapshot.get(id(n)).unwrap(), wanted, "a snapshot's {n}");
        }
    }

    /// A put whose write fails, and arrives in part or whole.
    fn fail_a_put(&mut self, store: &Store, n: u64) -> bool {
        let value = Value {
            len: self.shape.options.small_max as usize + 1 + self.random.index(9000),
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

    fn batch(&mut self, store: &Store) -> bool {
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
    fn kept(&self, at: usize, end: End) -> usize {
        let ended = self.ops.iter().take_while(|op| op.ended <= at).count();
        if end == End::Process {
            return ended;
        }
        let synced = self.synced.iter().filter(|(event, _)| *event <= at);
        let synced = synced.map(|(_, ops)| *ops).max().unwrap_or(0);
        let Some(every) = self.shape.options.sync_every else {
            return synced;
        };
        let acknowledged = (0..ended).rev().filter(|at| self.ops[*at].is_acknowledged);
        let kept = acknowledged.map(|at| at + 1).nth(every as usize);
        synced.max(kept.unwrap_or(0))
    }

    /// Compares what a disk holds after a crash at this event; what it shows.
    fn verify(
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
    fn moments(&mut self, count: usize) -> Vec<usize> {
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

/// States that were verified.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    cuts: u64,
    deaths: u64,
    second: u64,
}

/// Crashes a life at so many events.
fn crash(life: &mut Life<'_>, count: usize, tried: &mut Tried, is_first: bool) {
    let limits = Limits {
        exhaustive: 6,
        singles: 2,
        random: 3,
        ..Limits::default()
    };
    let mut replay = life.disk.replay();
    for at in life.moments(count) {
        replay.advance_to(at);
        let cuts = replay.choices(&limits);
        let cuts = cuts.iter().map(|choice| (End::Power, replay.cut(choice)));
        let inside = replay.next_write() / 2;
        let deaths = [0, inside].map(|within| (End::Process, replay.kill(within)));
        for (end, disk) in cuts.chain(deaths) {
            match end {
                End::Power => tried.cuts += 1,
                End::Process => tried.deaths += 1,
            }
            let shape = life.shape;
            let place = |what: String| -> ! {
                let which = if is_first { "first" } else { "second" };
                panic!(
                    "seed {}: {end:?}, {which} life, event {at} of {}: {what}; {shape:?}",
                    shape.seed, life.end
                )
            };
            let store = match shape.open(&disk) {
                Ok(store) => store,
                Err(error) => place(format!("it does not open: {error}")),
            };
            let found = match life.verify(&store, at, end) {
                Ok(found) => found,
                Err(what) => place(what),
            };
            let second_one_in = if shape.population > 100 { 40 } else { 10 };
            if is_first && life.random.one_in(second_one_in) {
                let mut next = Life::new(shape, disk, found, life.random.below(1 << 30));
                next.churn(store, 24);
                let before = tried.cuts + tried.deaths;
                crash(&mut next, 2, tried, false);
                tried.second += tried.cuts + tried.deaths - before;
            } else if is_first {
                // Room that the crash left is not lost.
                store.remove_range(ObjectId(0), None).unwrap();
                store.sync().unwrap();
                store.check_room().unwrap();
            }
        }
    }
}

fn explore(seed: u64, tried: &mut Tried) {
    let shape = Shape::new(seed);
    let disk = SimDisk::with_atom(seed, shape.atom);
    let store = match shape.create(&disk) {
        Ok(store) => store,
        // The least journal depends on the groups.
        Err(error) if error.kind() == Kind::Invalid => return,
        Err(error) => panic!("seed {seed}: {error}; {shape:?}"),
    };
    let mut life = Life::new(&shape, disk, BTreeMap::new(), seed);
    life.fill(&store);
    life.churn(store, shape.churn);
    let count = if shape.population > 100 { 10 } else { 24 };
    crash(&mut life, count, tried, true);
}

#[test]
fn a_crash_of_a_store_of_any_shape_leaves_what_was_acknowledged() {
    let mut tried = Tried::default();
    let seed = round_seed();
    for round in 0..share(100) {
        explore(seed + round, &mut tried);
    }
    tried_at_least(tried.cuts, 6000, "cuts of the power");
    tried_at_least(tried.deaths, 2000, "deaths of the process");
    tried_at_least(tried.second, 500, "of them in a second life");
}

/// Stores that are nearly full of small objects in packs, most of which are removed then: checkpoints empty sparse packs, and
/// need the room.
#[test]
fn sparse_packs_that_are_emptied_keep_their_objects_at_a_death_anywhere() {
    let mut states = 0;
    for round in 0..share(30) {
        let seed = round_seed() + 5000 + round;
        let shape = Shape {
            devices: 1 + (seed % 2) as u8,
            population: 2500,
            small: 97,
            small_len: 600,
            len_max: 9000,
            thinned: 60 + 5 * (seed % 4),
            options: Options {
                capacity: (1 << 20) + (700 << 10) + (seed % 5) * (100 << 10),
                journal_size: Some(512 << 10),
                group_size: Some(128 << 10),
                small_max: 2048,
                durability: Durability::Process,
                sync_every: None,
                ..Shape::new(seed).options
            },
            ..Shape::new(seed)
        };
        let disk = SimDisk::with_atom(seed, shape.atom);
        let store = shape.create(&disk).unwrap();
        let mut life = Life::new(&shape, disk, BTreeMap::new(), seed);
        life.fill(&store);
        for _ in 0..4 {
            for n in 0..300 {
                if life.random.one_in(2) {
                    life.put(&store, 8 * n + seed % 8);
                } else {
                    life.remove(&store, 8 * n + seed % 8);
                }
            }
            life.checkpoint(&store);
        }
        life.end = life.disk.events();
        let mut replay = life.disk.replay();
        let last = life.checkpoints.clone();
        for (from, to) in last.into_iter().skip(1) {
            let step = ((to - from) / 12).max(1);
            for at in (from..=to).step_by(step) {
                replay.advance_to(at);
                let store = shape.open(&replay.kill(0)).unwrap();
                if let Err(what) = life.verify(&store, at, End::Process) {
                    panic!("seed {seed}: event {at} of {}: {what}", life.end);
                }
                states += 1;
            }
        }
    }
    tried_at_least(states, 1000, "deaths within checkpoints that empty packs");
}

/// A synced object was replaced, and the process died. The next one gave the room of the first to others at once. The power went,
/// and the replacement with it: neither of the two was there.
#[test]
fn room_that_a_recovery_frees_is_used_when_what_it_found_is_durable() {
    let mut states = 0;
    for devices in [1, 2] {
        for seed in 0..share(40).max(4) {
            let shape = Shape {
                devices,
                population: 40,
                options: Options {
                    capacity: (128 << 10) + if devices == 1 { 256 << 10 } else { 8192 },
                    journal_size: Some(256 << 10),
                    group_size: Some(128 << 10),
                    small_max: 0,
                    durability: Durability::Process,
                    sync_every: None,
                    ..Shape::new(seed).options
                },
                ..Shape::new(seed)
            };
            let disk = SimDisk::new(seed);
            let store = shape.create(&disk).unwrap();
            let value = |version, len| Value { version, len };
            store.put(id(1), &value(1, 28_000).bytes()).unwrap();
            store.sync().unwrap();
            store.put(id(1), &value(2, 28_000).bytes()).unwrap();
            let killed = disk.kill_state(disk.events());
            let store = shape.open(&killed).unwrap();
            let begin = killed.events();
            for n in 2..12 {
                if store.put(id(n), &value(n, 16_000).bytes()).is_err() {
                    break;
                }
            }
            for at in [begin, killed.events()] {
                for after in killed.crash_states(at, &Limits::default()) {
                    let store = shape.open(&after).unwrap();
                    let found = store.get(id(1)).unwrap();
                    assert_eq!(found, Some(value(2, 28_000).bytes().into()), "seed {seed}");
                    states += 1;
                }
            }
        }
    }
    tried_at_least(states, 1000, "cuts after a recovery");
}

/// `sync_every` says how many acknowledged changes a power cut takes at most.
#[test]
fn with_sync_every_a_change_more_than_so_many_syncs() {
    for every in [0u64, 1, 3, 10] {
        for small_max in [0, 2048] {
            let options = Options {
                capacity: 1 << 20,
                journal_size: Some(256 << 10),
                group_size: Some(128 << 10),
                small_max,
                sync_every: Some(every),
                background: false,
                ..Options::default()
            };
            let disk = SimDisk::new(every);
            let store = Store::create_in(
                &disk.directory(),
                Path::new(JOURNAL),
                &options,
                &mut |_, _| {},
            )
            .unwrap();
            for n in 0..3 * (every + 1) {
                let before = disk.faults().count(Operation::Sync);
                store.put(id(n), b"a value").unwrap();
                let syncs = disk.faults().count(Operation::Sync) - before;
                let is_due = (n + 1).is_multiple_of(every + 1);
                assert_eq!(syncs, u64::from(is_due), "change {n}, every {every}");
            }
        }
    }
}

/// A store on one device with four groups of 16 units, in which each object has an extent of its own.
fn tight(seed: u64) -> Shape {
    Shape {
        devices: 1,
        population: 40,
        options: Options {
            capacity: 512 << 10,
            journal_size: Some(256 << 10),
            group_size: Some(64 << 10),
            small_max: 0,
            durability: Durability::Process,
            sync_every: None,
            ..Shape::new(seed).options
        },
        ..Shape::new(seed)
    }
}

/// An object was synced and removed, and others filled all room. The power went before the removal was durable: the object was
/// back, with the bytes of another.
#[test]
fn room_is_not_used_again_before_what_freed_it_is_durable() {
    let mut states = 0;
    for seed in 0..share(40) {
        let shape = tight(seed);
        let disk = SimDisk::new(seed);
        let store = shape.create(&disk).unwrap();
        let value = |version| Value {
            version,
            len: 12_000,
        };
        let mut full = 0;
        while store.put(id(full), &value(full).bytes()).is_ok() {
            full += 1;
        }
        // The index on storage has them: one whose bytes are another's is not taken for removed.
        store.checkpoint().unwrap();
        let mut now: Vec<u64> = (0..full).collect();
        for round in 0..4u64 {
            let n = (seed + 3 * round) % full;
            store.remove(id(n)).unwrap();
            let version = 1000 + round;
            store.put(id(n), &value(version).bytes()).unwrap();
            for after in disk.crash_states(disk.events(), &Limits::default()) {
                states += 1;
                let store = shape.open(&after).unwrap();
                for (other, version) in now.iter().enumerate() {
                    let found = store.get(id(other as u64)).unwrap();
                    let mut is_legal = found == Some(value(*version).bytes().into());
                    if other as u64 == n {
                        let new = value(1000 + round).bytes();
                        is_legal |= found.is_none_or(|found| found[..] == new[..]);
                    }
                    assert!(is_legal, "seed {seed}: {other}");
                }
                store.check_room().unwrap();
            }
            now[n as usize] = version;
            store.checkpoint().unwrap();
        }
    }
    tried_at_least(states, 1000, "cuts after room was used again");
}

/// Puts that the power took left whole extents in a stride that no journal stated. The next stride there had an earlier
/// sequence than theirs: after another crash they were back.
#[test]
fn a_recovery_leaves_sequences_out_that_puts_without_a_trace_had() {
    let mut states = 0;
    for seed in 0..share(40) {
        let shape = tight(seed);
        let disk = SimDisk::new(seed);
        let store = shape.create(&disk).unwrap();
        let value = |version| Value {
            version,
            len: 12_000,
        };
        // The first stride has 16 units, which five of three fill.
        for n in 0..5 {
            store.put(id(n), &value(n).bytes()).unwrap();
        }
        store.sync().unwrap();
        for n in 10..13 {
            store.put(id(n), &value(n).bytes()).unwrap();
        }
        for after in disk.crash_states(disk.events(), &Limits::default()) {
            let store = shape.open(&after).unwrap();
            let gone: Vec<u64> = (10..13)
                .filter(|n| store.get(id(*n)).unwrap().is_none())
                .collect();
            store.put(id(20), &value(20).bytes()).unwrap();
            let killed = after.kill_state(after.events());
            let store = shape.open(&killed).unwrap();
            for n in &gone {
                let found = store.get(id(*n)).unwrap();
                assert!(found.is_none(), "seed {seed}: {n} is back");
            }
            states += u64::from(gone.len() == 3);
        }
    }
    tried_at_least(states, 100, "cuts that left no trace of three puts");
}
