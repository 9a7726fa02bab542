//! Crashes of runs of many threads: writers, syncers, clears, upkeep, readers and a follower, cut at any step.
//!
//! ```text
//!   fill, close, open again --> threads under a seeded schedule, on the simulated disk --> events 0 .. n
//!   each chosen event: what a power cut and the death of the process leave --> a fresh open --> judge, per key
//! ```
//! Every change of the disk is a place where another thread may come in, and is an event: so the state after an event is
//! that of a run whose threads are all abandoned in the middle of what they do. Each key has one writer, so the history of
//! a key is known: what was begun, when it was acknowledged, and what syncs and clears were begun meanwhile. A state
//! is judged by it:
//!
//! 1. Of each key a value is found that was put and not refused, or it is absent for a reason; never an older state than one
//!    that must last: all that was acknowledged before the death of the process; before a cut of the power what was durable by
//!    itself, or acknowledged before a sync began that returned.
//! 2. Where the store is one history, a change that is found proves that all is there that was acknowledged before it began.
//! 3. A batch is there whole or not at all. What a clear removed does not return.
//! 4. The store's own check is content, and it takes further changes; in one state of four from several threads, during upkeep.
//! 5. A follower is shown every put since its beginning, in the order of each key.
//!
//! A call may be refused as full only where the engine's promise lets it: a removal, a batch of removals, a clear, a sync, upkeep and
//! a value no longer than the one that it replaces ([`Promise::replaces`]) never are, and nothing is in a store that cannot be full
//! ([`Engine::is_ample`]). What was taken and what was refused is counted ([`Answers`]): who runs storms demands so much of it.
//!
//! A store has its background worker or not. The worker is a thread of the schedule, from the store's opening to its close.
//!
//! An engine joins with [`Engine`] and [`Store`], a page of code. Built with `--cfg azekura_explore` only.

mod history;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use history::{Did, History, value};

use super::Random;
use super::crash::{self, Config, Counts, Crash, End, Ledger};
use super::schedule::{self, Lead, Threads, Tried, yield_point};
use super::suite::summed;
use crate::error::{Kind, Result};
use crate::io::sim::SimDisk;

/// Of so many states that a crash leaves, one is lived on in by several threads.
const SECOND_LIFE_ONE_IN: u64 = 4;
const SECOND_WRITERS: u32 = 2;
const SECOND_CHANGES: u32 = 8;
/// Changes in a batch.
const BATCH_MAX: u32 = 4;
/// At so many of the moments of a store that has a worker, the store after the crash has one, too. It costs thousands of turns.
const SECOND_WORKER_ONE_IN: u64 = 8;
/// Lengths at which encodings change, or frames take a word more: of so many below each, one is drawn.
const LEN_EDGES: [usize; 4] = [16, 256, 65_536, 65_552];
const LEN_EDGE_WIDTH: usize = 16;

/// What threads do with a store: what users call.
pub trait Store: Sync {
    /// Sets the value of key number `key`.
    fn put(&self, key: u32, value: &[u8]) -> Result<()>;
    /// Removes it.
    fn remove(&self, key: u32) -> Result<()>;
    /// Sets and removes (`None`) several at once: all or none.
    fn batch(&self, changes: &[(u32, Option<Vec<u8>>)]) -> Result<()>;
    /// The value.
    fn get(&self, key: u32) -> Result<Option<Vec<u8>>>;
    /// Makes what was acknowledged survive loss of power.
    fn sync(&self) -> Result<()>;
    /// Removes all.
    fn clear(&self) -> Result<()>;
    /// Some upkeep: a checkpoint, a step of cleaning, a compaction, a snapshot that is held.
    fn upkeep(&self, random: &mut Random) -> Result<()>;
    /// Follows the changes until `goes_on` returns false, and then to the end. Calls `goes_on` once it has begun. Shows each
    /// put, in order. A store that cannot be followed returns at once, without calling it.
    fn follow(
        &self,
        goes_on: &mut dyn FnMut() -> bool,
        shown: &mut dyn FnMut(u32, &[u8]),
    ) -> Result<()>;
    /// Verifies everything; what is wrong, if anything is.
    fn damage(&self) -> Result<Option<String>>;
}

/// A store as one configuration makes it.
pub trait Engine {
    /// The store.
    type Store: Store;
    /// A new one, with its background worker or without.
    fn create(&self, disk: &SimDisk, has_worker: bool) -> Result<Self::Store>;
    /// The one that is there.
    fn open(&self, disk: &SimDisk, has_worker: bool) -> Result<Self::Store>;
    /// Ends it well.
    fn close(&self, store: Self::Store) -> Result<()>;
    /// What it promises.
    fn promise(&self) -> Promise;
    /// Whether it has room for a run of this shape whatever comes: then nothing may be refused.
    fn is_ample(&self, shape: &Shape) -> bool;
}

/// What an engine promises beyond the rest.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Each acknowledged change survives loss of power.
    pub durable: bool,
    /// What survives loss of power is a prefix of all changes, not of each key's only.
    pub one_history: bool,
    /// A full store takes a value that is no longer than the one that it replaces.
    pub replaces: bool,
}

/// What a store answered to changes that it was asked for: puts, removals and batches, the first filling included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Changes that were acknowledged.
    pub taken: u64,
    /// Changes that were refused, since the store was full.
    pub refused: u64,
}

summed!(Answers: taken, refused);

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Keys.
    pub keys: u32,
    /// Threads that change them.
    pub writers: u32,
    /// Changes of each.
    pub changes: u32,
    /// Bytes of the longest value.
    pub len_max: usize,
    /// Bytes of the longest value that is there from the beginning, but for 8.
    pub first_max: usize,
    /// Of the lengths, one of so many is at an edge where encodings change; 0: none.
    pub edge_one_in: u64,
    /// How many of the changes are of few keys: one of so many is of any.
    pub any_one_in: u64,
    /// Clears.
    pub clears: u32,
    /// Syncs, by two threads.
    pub syncs: u32,
    /// Steps of upkeep.
    pub upkeep: u32,
    /// Whether the store has its background worker.
    pub has_worker: bool,
    /// Whether a follower is shown all changes. It holds the room of what it was not shown yet.
    pub has_follower: bool,
}

impl Shape {
    /// Draws one.
    pub fn draw(random: &mut Random) -> Self {
        let keys = *random.choose(&[4, 16, 64, 64, 300, 300, 1000, 10_000]);
        Self {
            keys,
            writers: 1 + random.below(4) as u32,
            changes: 8 + random.below(40) as u32,
            len_max: *random.choose(&[12, 60, 300, 1200, 5000, 70_000]),
            first_max: *random.choose(&[60, 60, 400]),
            any_one_in: *random.choose(&[1, 2, 8]),
            clears: random.below(12).saturating_sub(8) as u32,
            syncs: random.below(10) as u32,
            upkeep: random.below(16) as u32,
            edge_one_in: *random.choose(&[0, 4, 8]),
            has_worker: random.one_in(2),
            has_follower: !random.one_in(4),
        }
    }

    /// The most keys that writers put.
    pub fn puts_max(&self) -> u32 {
        self.writers * self.changes * BATCH_MAX
    }

    /// The length of a value.
    fn len(&self, random: &mut Random) -> usize {
        let edges = LEN_EDGES.iter().filter(|edge| **edge <= self.len_max);
        let edges: Vec<usize> = edges.copied().collect();
        if self.edge_one_in > 0 && !edges.is_empty() && random.one_in(self.edge_one_in) {
            return random.choose(&edges) - random.index(LEN_EDGE_WIDTH);
        }
        match random.below(6) {
            0 => random.index(self.len_max.min(16)),
            1 => self.len_max - random.index(self.len_max.min(40)),
            _ => random.index(self.len_max.min(400)),
        }
    }
}

/// One writer: its own keys, one change after the other.
fn write(store: &dyn Store, history: &History, shape: &Shape, writer: u32, seed: u64) {
    let mut random = Random::new(seed ^ u64::from(writer) << 40);
    let own: Vec<u32> = (0..shape.keys)
        .filter(|key| key % shape.writers == writer)
        .collect();
    if own.is_empty() {
        return;
    }
    for step in 0..shape.changes {
        let version = writer << 16 | (step + 1);
        let any = random.one_in(shape.any_one_in);
        let choose = |random: &mut Random| {
            let few = if any { own.len() } else { own.len().min(3) };
            own[random.index(few)]
        };
        match random.below(10) {
            0..2 => {
                let key = choose(&mut random);
                history.changes(&[(key, None)], |_| store.remove(key));
            }
            2..4 => {
                let mut changes = BTreeMap::new();
                let removed_one_in = *random.choose(&[1, 4, 4, 4]);
                for _ in 0..2 + random.below(u64::from(BATCH_MAX) - 1) {
                    let put =
                        (!random.one_in(removed_one_in)).then(|| (version, shape.len(&mut random)));
                    changes.insert(choose(&mut random), put);
                }
                let changes: Vec<_> = changes.into_iter().collect();
                history.changes(&changes, |made| store.batch(made));
            }
            _ => {
                let (key, len) = (choose(&mut random), shape.len(&mut random));
                history.changes(&[(key, Some((version, len)))], |made| {
                    store.put(key, made[0].1.as_deref().unwrap_or_default())
                });
            }
        }
    }
}

/// What a follower was shown of each key, and when it had begun.
#[derive(Default)]
struct Shown {
    since: Option<u64>,
    puts: BTreeMap<u32, Vec<Vec<u8>>>,
}

impl Shown {
    /// Every put of each key since the beginning was shown once, in order.
    fn check(&self, history: &History) {
        let Some(since) = self.since else {
            return;
        };
        for (key, dids) in (0u32..).zip(&history.keys) {
            let dids = dids.lock();
            let puts: Vec<(&Did, Vec<u8>)> = dids
                .iter()
                .filter_map(|did| {
                    did.put
                        .map(|(version, len)| (did, value(key, version, len)))
                })
                .collect();
            let shown = self.puts.get(&key).map_or(&[][..], Vec::as_slice);
            let least = puts
                .iter()
                .filter(|(did, _)| did.span.began.tick > since)
                .count();
            let skipped = puts.len().checked_sub(shown.len());
            let in_order = skipped.is_some_and(|skipped| {
                let wanted = puts[skipped..].iter().map(|(_, value)| value);
                wanted.eq(shown)
            });
            assert!(
                in_order && shown.len() >= least,
                "a follower was shown {} puts of key {key}, at least {least} of {} were to be",
                shown.len(),
                puts.len()
            );
        }
    }
}

/// Runs all threads of `shape` on `store` under one schedule, and judges what is there in the end.
fn run(lead: &Lead, store: &dyn Store, history: &History, shape: &Shape, seed: u64) {
    let busy = AtomicUsize::new(shape.writers as usize);
    let shown = Mutex::new(Shown::default());
    let mut threads = Threads::default();
    let busy = &busy;
    for writer in 0..shape.writers {
        threads.add(move || {
            write(store, history, shape, writer, seed);
            busy.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let idle = move |times: u64| {
        for _ in 0..times {
            if busy.load(Ordering::SeqCst) > 0 {
                yield_point();
            }
        }
    };
    // Two, so that one may share the sync of the other.
    for syncer in 0..2 {
        threads.add(move || {
            let mut random = Random::new(!seed ^ u64::from(syncer));
            for _ in (syncer..shape.syncs).step_by(2) {
                idle(random.below(200));
                let span = history.span("a sync", || store.sync());
                history.syncs.lock().push(span);
            }
        });
    }
    threads.add(move || {
        let mut random = Random::new(seed ^ 0x0c1e);
        for _ in 0..shape.clears.min(8) {
            idle(random.below(400));
            history.clears_begun.fetch_add(1, Ordering::SeqCst);
            let span = history.span("a clear", || store.clear());
            history.clears.lock().push(span);
        }
    });
    threads.add(move || {
        let mut random = Random::new(seed ^ 0x0bee);
        for _ in 0..shape.upkeep {
            idle(random.below(150));
            history.span("upkeep", || store.upkeep(&mut random));
        }
    });
    threads.add(move || {
        let mut random = Random::new(seed ^ 0x5ead);
        while busy.load(Ordering::SeqCst) > 0 {
            let key = random.below(u64::from(shape.keys)) as u32;
            if let Err(error) = store.get(key) {
                panic!("key {key} cannot be read: {error}");
            }
            schedule::wait();
        }
    });
    let shared = &shown;
    let follow = move || {
        let mut goes_on = || {
            let mut shown = shared.lock();
            if shown.since.is_none() {
                shown.since = Some(history.now().tick);
            }
            drop(shown);
            schedule::wait();
            busy.load(Ordering::SeqCst) > 0
        };
        let mut show = |key: u32, value: &[u8]| {
            let mut shown = shared.lock();
            shown.puts.entry(key).or_default().push(value.to_vec());
        };
        if let Err(error) = store.follow(&mut goes_on, &mut show) {
            panic!("a follower is refused: {error}");
        }
    };
    if shape.has_follower {
        threads.add(follow);
    }
    if let Err(what) = lead.run(threads) {
        panic!("seed {seed:#x}, {shape:?}: {what}");
    }
    let now = |key| store.get(key);
    let judged = history.judge(usize::MAX, End::Process, &now);
    if let Err(what) = judged {
        panic!("seed {seed:#x}, {shape:?}, before any crash: {what}");
    }
    shown.lock().check(history);
}

/// Puts a first value under most keys, and has it on the device.
fn fill(store: &dyn Store, history: &History, shape: &Shape, random: &mut Random) {
    let mut keys: Vec<u32> = (0..shape.keys).collect();
    if shape.keys > 4 {
        keys.retain(|_| !random.one_in(6));
    }
    for keys in keys.chunks(if shape.keys > 100 { 50 } else { 1 }) {
        let mut first = |key: &u32| {
            let len = random.index(shape.len_max.min(shape.first_max)) + 8;
            (*key, Some((0, len)))
        };
        let changes: Vec<_> = keys.iter().map(&mut first).collect();
        history.changes(&changes, |made| match made {
            [(key, Some(value))] => store.put(*key, value),
            many => store.batch(many),
        });
    }
    let span = history.span("a sync", || store.sync());
    history.syncs.lock().push(span);
}

/// One run of `shape` on a new store of `engine`, and every state that `config` chooses of it; the counts.
///
/// # Panics
/// With seed, shape, event and choice, if a state is none that may be, or a change is refused that may not be.
pub fn storm<E: Engine>(config: &Config, engine: &E, shape: &Shape) -> (Counts, Tried, Answers) {
    let seed = config.seed;
    let slot: Mutex<Option<History>> = Mutex::new(None);
    let tried = Mutex::new(Tried::default());
    let note = |more: Tried| {
        let mut tried = tried.lock();
        *tried = tried.plus(more);
    };
    let workload = |disk: &SimDisk, ledger: &Ledger| {
        let mut random = Random::new(seed);
        let history = {
            let mut promise = engine.promise();
            // What it holds may be all that could be used again.
            promise.replaces &= !shape.has_follower;
            History::new(disk, shape, promise, engine.is_ample(shape))
        };
        let has_worker = shape.has_worker;
        let ran = schedule::lead(seed, |lead| {
            let mut store = engine.create(disk, has_worker).expect("a new store");
            fill(&store, &history, shape, &mut random);
            if random.one_in(2) || shape.clears > 0 {
                // What is read for the first time is loaded by several at once, also while it is cleared.
                engine.close(store).expect("it closes");
                store = engine.open(disk, has_worker).expect("it opens again");
            }
            ledger.cut_from_here();
            run(lead, &store, &history, shape, seed);
        });
        match ran {
            Ok(((), tried)) => note(tried),
            Err(what) => panic!("seed {seed:#x}, {shape:?}: {what}"),
        }
        *slot.lock() = Some(history);
    };
    let counts = crash::explore(config, workload, |crash| {
        let slot = slot.lock();
        let history = slot.as_ref().ok_or("nothing was run")?;
        let of = Random::new(seed ^ (crash.done.events as u64) << 32).below(SECOND_WORKER_ONE_IN);
        let what = if shape.has_worker && of == 0 {
            schedule::lead(seed, |lead| verify(crash, engine, history, Some(lead))).and_then(
                |(what, tried)| {
                    note(tried);
                    what
                },
            )
        } else {
            verify(crash, engine, history, None)
        };
        what.map_err(|what| format!("{what}; {shape:?}"))
    });
    let answers = slot.into_inner().map(|history| history.answers());
    (counts, tried.into_inner(), answers.unwrap_or_default())
}

/// Opens what a crash left, judges it, and lets it continue; with a background worker if there is a lead.
fn verify<E: Engine>(
    crash: &Crash<'_>,
    engine: &E,
    history: &History,
    lead: Option<&Lead>,
) -> std::result::Result<u64, String> {
    let store = engine
        .open(crash.disk, lead.is_some())
        .map_err(|error| format!("it does not open: {error}"))?;
    crash.recovered();
    let digest = history.judge(crash.done.events, crash.end, &|key| store.get(key))?;
    let fail = |error: crate::Error| error.to_string();
    if let Some(damage) = store.damage().map_err(fail)? {
        return Err(format!("it is damaged: {damage}"));
    }
    let refused = |what: &str| {
        let what = format!("{what} is refused after a crash");
        move |error: crate::Error| format!("{what}: {error}")
    };
    let wanted = match store.put(0, b"after the crash") {
        Err(error) if error.kind() == Kind::Full && !history.is_ample => {
            store.remove(0).map_err(refused("a removal"))?;
            None
        }
        put => {
            put.map_err(refused("a put"))?;
            Some(&b"after the crash"[..])
        }
    };
    store.sync().map_err(refused("a sync"))?;
    if store.get(0).map_err(fail)?.as_deref() != wanted {
        return Err("it does not continue".to_owned());
    }
    if digest.is_multiple_of(SECOND_LIFE_ONE_IN) {
        live_on(&store, history, digest, lead)?;
        store.sync().map_err(refused("a sync"))?;
        if let Some(damage) = store.damage().map_err(fail)? {
            return Err(format!("it is damaged after it continued: {damage}"));
        }
    }
    Ok(digest)
}

/// Several threads change what a crash left, during upkeep; each finds what it left.
fn live_on(
    store: &dyn Store,
    history: &History,
    seed: u64,
    lead: Option<&Lead>,
) -> std::result::Result<(), String> {
    let keys = history.keys.len() as u32;
    let mut threads = Threads::default();
    for thread in 0..SECOND_WRITERS {
        threads.add(move || {
            let mut random = Random::new(seed ^ u64::from(thread));
            let mut left = BTreeMap::new();
            for turn in 0..SECOND_CHANGES {
                let key =
                    random.below(u64::from(keys)) as u32 / SECOND_WRITERS * SECOND_WRITERS + thread;
                let new = (key < keys && !random.one_in(4)).then(|| value(key, turn, 20));
                let done = match &new {
                    _ if key >= keys => continue,
                    Some(value) => store.put(key, value),
                    None => store.remove(key),
                };
                match done {
                    Err(error)
                        if error.kind() == Kind::Full && new.is_some() && !history.is_ample =>
                    {
                        drop(left.remove(&key));
                    }
                    Err(error) => panic!("{new:?} refused after a crash: {error}"),
                    Ok(()) => drop(left.insert(key, new)),
                }
                yield_point();
            }
            for (key, wanted) in left {
                let found = store.get(key).expect("it can be read");
                assert_eq!(found, wanted, "key {key}, after a crash");
            }
        });
    }
    threads.add(move || {
        let mut random = Random::new(!seed);
        for _ in 0..3 {
            if let Err(error) = store.upkeep(&mut random) {
                panic!("upkeep is refused after a crash: {error}");
            }
        }
    });
    match lead {
        Some(lead) => lead.run(threads),
        None => schedule::lead(seed, |lead| lead.run(threads)).and_then(|(ran, _)| ran),
    }
}
