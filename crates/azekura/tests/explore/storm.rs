//! Crashes of stores that many threads use: nothing acknowledged is lost at any step of any schedule.
//!
//! Here the hash file and the object store join `testkit::storm` with a page each. Configuration, population and schedule
//! are drawn from the seed, which a failure prints.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use azekura::format::frame::{Frame, FrameKind};
use azekura::io::sim::{Limits, SimDisk};
use azekura::io::{Access, Directory};
use azekura::object::{self, Change, ObjectId, Snapshot};
use azekura::record::hash::layout;
use azekura::record::hash::{self, Compression, HashDb};
use azekura::testkit::configuration::{Within, hash_options};
use azekura::testkit::crash::{Config, Counts};
use azekura::testkit::schedule::{Tried, lead};
use azekura::testkit::storm::{Answers, Engine, Promise, Shape, Store, storm};
use azekura::testkit::suite::{demand, share, third, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Edit, Persistent, Result};

/// A few states at each of a few moments: it is the many runs that count.
fn config(seed: u64, cuts_max: usize) -> Config {
    Config {
        cuts_max,
        limits: Limits {
            exhaustive: 12,
            singles: 3,
            random: 5,
            ..Limits::default()
        },
        recovery_one_in: 48,
        recovery_cuts_max: 2,
        ..Config::new(seed)
    }
}

/// All states; of each kind there are some.
fn states(counts: &Counts) -> u64 {
    assert!(
        counts.crash_states > 0 && counts.recovery_cuts > 0 && counts.kills > 0,
        "{counts:?}"
    );
    counts.crash_states + counts.recovery_cuts + counts.kills
}

/// Runs storms under one seed after the other.
pub(super) fn storms<E: Engine>(
    runs: u64,
    cuts_max: usize,
    mut one: impl FnMut(&mut Random) -> (E, Shape),
) -> (Counts, Tried, Answers) {
    let first = round_seed();
    // One seed again: its number in STORM_SEED.
    let only = std::env::var("STORM_SEED").ok();
    let only: Option<u64> = only.and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(first..first + third(runs), |seed| seed..seed + 1);
    seeds.fold(Default::default(), |sum: (Counts, Tried, Answers), seed| {
        let (engine, shape) = one(&mut Random::new(!seed));
        let (counts, tried, answers) = storm(&config(seed, cuts_max), &engine, &shape);
        assert!(
            answers.taken > 0,
            "seed {seed}: nothing is taken, {shape:?}"
        );
        (sum.0.plus(counts), sum.1.plus(tried), sum.2.plus(answers))
    })
}

/// So many states; of the turns so many were the background worker's, so it took part; and so many changes were taken. Some of
/// `full_least` were refused: some of the stores were full.
pub(super) fn tried(
    (counts, tried, answers): (Counts, Tried, Answers),
    states_least: u64,
    turns_least: u64,
    taken_least: u64,
    full_least: u64,
    what: &str,
) {
    demand(states(&counts), third(states_least), what);
    demand(
        answers.taken,
        third(taken_least),
        &format!("changes taken before {what}"),
    );
    demand(
        answers.refused,
        full_least / 3,
        &format!("changes refused before {what}"),
    );
    let what = format!(
        "turns of the background worker among {} of {what}",
        tried.turns
    );
    if turns_least > 0 {
        demand(tried.turns_of_started, third(turns_least), &what);
    }
}

/// What a store syncs by itself, if it has a worker: at each of its turns, since time does not pass in a schedule.
pub(super) fn sync_interval(random: &mut Random) -> Option<Duration> {
    random.one_in(4).then_some(Duration::from_nanos(1))
}

/// Segments that a hash file takes at most in addition to live bytes: what waits for a checkpoint, images, reserves, open ones of writers.
const HASH_OVERHEAD: u64 = 160;
/// Its room for each live byte: twice the space ratio and an interval, and as much again for segments that are not filled.
const HASH_SPACE: u64 = 16;

/// A hash file of some configuration, on a disk of so many bytes if they are few.
struct Hash(hash::CreateOptions, Option<u64>);

impl Hash {
    fn draw(random: &mut Random) -> Self {
        let options = hash_options(random, &Within::bytes(SimDisk::FILE_SIZE_MAX))
            .sync_interval(sync_interval(random));
        let segment_size = options.segment_size;
        let is_small = options.opening.capacity == SimDisk::FILE_SIZE_MAX
            && (1..=16 << 10).contains(&segment_size)
            && random.one_in(2);
        let disk_size = is_small.then(|| segment_size * (50 + random.below(150)));
        Self(options, disk_size)
    }

    /// One that is not full.
    fn draw_roomy(random: &mut Random) -> Self {
        let Self(options, _) = Self::draw(random);
        let capacity = SimDisk::FILE_SIZE_MAX;
        Self(options.clone().capacity(capacity), None)
    }

    fn options(&self, background: bool) -> hash::CreateOptions {
        self.0.clone().background(background)
    }

    fn bound(&self, disk: &SimDisk) {
        if let Some(size) = self.1 {
            disk.set_capacity(size);
        }
    }
}

const NAME: &str = "storm";

/// Several changes of a store at once, of keys that a number states: all or none.
pub(super) fn batch(
    db: &dyn azekura::Engine,
    changes: &[(u32, Option<Vec<u8>>)],
    name: impl Fn(u32) -> Vec<u8>,
) -> Result<()> {
    let names: Vec<Vec<u8>> = changes.iter().map(|(key, _)| name(*key)).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    db.update_many(&keys, &mut |_| {
        let edit = |(_, put): &(u32, Option<Vec<u8>>)| match put {
            Some(value) => Edit::Put(value.clone().into()),
            None => Edit::Remove,
        };
        changes.iter().map(edit).collect()
    })
}

/// What a check finds.
pub(super) fn damage_of(db: &dyn Persistent) -> Result<Option<String>> {
    let report = db.check(&mut |_, _| ())?;
    Ok((!report.is_sound()).then(|| format!("{:?}", report.damage)))
}

/// An open hash file.
struct File(HashDb);

impl Engine for Hash {
    type Store = File;

    fn create(&self, disk: &SimDisk, has_worker: bool) -> Result<File> {
        self.bound(disk);
        let options = self.options(has_worker);
        HashDb::create_in(&disk.directory(), Path::new(NAME), &options).map(File)
    }

    fn open(&self, disk: &SimDisk, has_worker: bool) -> Result<File> {
        self.bound(disk);
        let storage = disk.directory().open(Path::new(NAME), Access::Write)?;
        HashDb::open_on(storage, &self.options(has_worker).opening).map(File)
    }

    fn close(&self, store: File) -> Result<()> {
        store.0.close()
    }

    fn promise(&self) -> Promise {
        Promise {
            durable: self.0.opening.durability == Durability::Power,
            one_history: true,
            // Of what is compressed, a shorter value may be the longer one.
            replaces: self.0.compression == Compression::None,
        }
    }

    fn is_ample(&self, shape: &Shape) -> bool {
        let segment_size = match self.0.segment_size {
            0 => (self.0.opening.capacity / 512).max(4096),
            size => size,
        };
        let first = u64::from(shape.keys) * (shape.first_max as u64 + 32);
        let changed = u64::from(shape.keys.min(shape.puts_max())) * (shape.len_max as u64 + 32);
        let most = HASH_OVERHEAD * segment_size + HASH_SPACE * (first + changed);
        self.1.is_none() && most <= self.0.opening.capacity
    }
}

fn number(key: &[u8]) -> u32 {
    u32::from_le_bytes(key[..4].try_into().expect("a key of four bytes"))
}

impl Store for File {
    fn put(&self, key: u32, value: &[u8]) -> Result<()> {
        self.0.put(&key.to_le_bytes(), value)
    }

    fn remove(&self, key: u32) -> Result<()> {
        self.0.remove(&key.to_le_bytes()).map(drop)
    }

    fn batch(&self, changes: &[(u32, Option<Vec<u8>>)]) -> Result<()> {
        batch(&self.0, changes, |key| key.to_le_bytes().to_vec())
    }

    fn get(&self, key: u32) -> Result<Option<Vec<u8>>> {
        self.0.get(&key.to_le_bytes())
    }

    fn sync(&self) -> Result<()> {
        Persistent::sync(&self.0, Durability::Power)
    }

    fn clear(&self) -> Result<()> {
        azekura::Engine::clear(&self.0)
    }

    fn upkeep(&self, random: &mut Random) -> Result<()> {
        match random.below(8) {
            0 => self.0.compact(&mut |_, _| ()),
            1..3 => self.0.checkpoint(),
            _ => self.0.maintain(),
        }
    }

    fn follow(
        &self,
        goes_on: &mut dyn FnMut() -> bool,
        shown: &mut dyn FnMut(u32, &[u8]),
    ) -> Result<()> {
        let mut follower = self.0.log().follow(None)?;
        let mut show = |frame: &Frame<'_>| {
            if matches!(frame.header.kind, layout::PUT | layout::INSERT) {
                let value = self.0.value_of(frame).expect("a value of a follower");
                shown(number(frame.key), &value);
            }
        };
        // Where the log ended when the last change had returned, and how often that is waited for.
        let (mut until, mut left) = (None, 1000);
        loop {
            if !goes_on() {
                until.get_or_insert_with(|| self.0.position());
                left -= 1;
            }
            follower.advance(&mut |after, frame| {
                if frame.header.kind == FrameKind::BATCH {
                    self.0
                        .log()
                        .inner(after, frame)
                        .for_each(|inner| show(&inner));
                } else {
                    show(&frame);
                }
                ControlFlow::Continue(())
            })?;
            // An append that is under way, the worker's too, hides what stands after it until it has ended.
            if left == 0 || until.is_some_and(|until| follower.position() >= until) {
                return Ok(());
            }
        }
    }

    fn damage(&self) -> Result<Option<String>> {
        damage_of(&self.0)
    }
}

/// Room of an object store for each byte that is live or under way: what was replaced is free after a sync, and there are pieces.
const OBJECT_SPACE: u64 = 4;

/// An object store of some configuration, on one device or two.
struct Objects {
    options: object::CreateOptions,
    devices: u32,
    /// Whether snapshots are taken, which keep what others leave.
    has_snapshots: bool,
}

impl Objects {
    /// Direct access is of files: the simulated disk has none.
    fn draw(random: &mut Random) -> Self {
        let sync_every = random.one_in(4).then(|| random.below(6));
        let devices = 1 + random.below(2) as u32;
        let journal: u64 = *random.choose(&[512 << 10, 1 << 20]);
        let data = *random.choose(&[256 << 10, 512 << 10, 1 << 20, 3 << 20, 7 << 20]);
        Self {
            options: object::CreateOptions::new()
                .capacity(if devices == 1 { data + journal } else { data })
                .journal_size(journal)
                .group_size(*random.choose(&[128 << 10, 256 << 10]))
                .small_max(*random.choose(&[0, 300, 2048, 4096, 60_000]))
                .durability(*random.choose(&[
                    Durability::Process,
                    Durability::Process,
                    Durability::Power,
                ]))
                .sync_interval(sync_interval(random))
                .sync_every(sync_every),
            devices,
            has_snapshots: !random.one_in(4),
        }
    }

    fn options(&self, background: bool) -> object::CreateOptions {
        self.options.clone().background(background)
    }
}

const DATA: &str = "storm-data";

/// A store, and snapshots that are held for a while.
struct Held {
    // Dropped first.
    snapshots: Mutex<Vec<Snapshot>>,
    has_snapshots: bool,
    store: object::Store,
}

impl Objects {
    fn held(&self, store: object::Store) -> Held {
        Held {
            snapshots: Mutex::default(),
            has_snapshots: self.has_snapshots,
            store,
        }
    }
}

impl Engine for Objects {
    type Store = Held;

    fn create(&self, disk: &SimDisk, has_worker: bool) -> Result<Held> {
        let directory = disk.directory();
        let journal = directory.create(Path::new(NAME))?;
        let data = if self.devices == 2 {
            let data = directory.create(Path::new(DATA))?;
            data.resize(self.options.capacity)?;
            journal.resize(self.options.journal_size.unwrap_or(1 << 20) + (64 << 10))?;
            Some(data)
        } else {
            journal.resize(self.options.capacity)?;
            None
        };
        let options = self.options(has_worker);
        let store = object::Store::create_on(journal, data, &options, &mut |_, _| {})?;
        directory.sync()?;
        Ok(self.held(store))
    }

    fn open(&self, disk: &SimDisk, has_worker: bool) -> Result<Held> {
        let open = |name: &str| disk.directory().open(Path::new(name), Access::Write);
        let data = (self.devices == 2).then(|| open(DATA)).transpose()?;
        let options = self.options(has_worker);
        object::Store::open_on(open(NAME)?, data, &options.opening).map(|store| self.held(store))
    }

    fn close(&self, store: Held) -> Result<()> {
        drop(store.snapshots);
        store.store.close()
    }

    fn promise(&self) -> Promise {
        Promise {
            durable: self.options.opening.durability == Durability::Power
                || self.options.opening.sync_every == Some(0),
            one_history: false,
            // A value goes to another place.
            replaces: false,
        }
    }

    fn is_ample(&self, shape: &Shape) -> bool {
        let journal = self.options.journal_size.unwrap_or_default();
        let data = match self.devices {
            1 => self.options.capacity - journal,
            _ => self.options.capacity,
        };
        let units = |len: usize| (len as u64 + 200).div_ceil(4096) * 4096;
        let under_way = u64::from(shape.writers) * 4 * units(shape.len_max);
        let first = u64::from(shape.keys) * units(shape.first_max);
        let changed = u64::from(shape.keys.min(shape.puts_max())) * units(shape.len_max);
        let is_in_journal = u64::from(shape.keys) * 250 <= journal / 4;
        !self.has_snapshots && OBJECT_SPACE * (first + changed + under_way) <= data && is_in_journal
    }
}

fn id(key: u32) -> ObjectId {
    ObjectId(u128::from(key) << 90 | 7)
}

impl Store for Held {
    fn put(&self, key: u32, value: &[u8]) -> Result<()> {
        self.store.put(id(key), value).map(drop)
    }

    /// Also as a range of one, which is another record of the journal.
    fn remove(&self, key: u32) -> Result<()> {
        if key.is_multiple_of(3) {
            return self.store.remove_range(id(key)..=id(key)).map(drop);
        }
        self.store.remove(id(key)).map(drop)
    }

    fn batch(&self, changes: &[(u32, Option<Vec<u8>>)]) -> Result<()> {
        let changes: Vec<Change<'_>> = changes
            .iter()
            .map(|(key, put)| match put {
                Some(value) => Change::Put(id(*key), value),
                None => Change::Remove(id(*key)),
            })
            .collect();
        self.store.apply(&changes).map(drop)
    }

    fn get(&self, key: u32) -> Result<Option<Vec<u8>>> {
        Ok(self.store.get(id(key))?.map(|value| value.to_vec()))
    }

    fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    fn clear(&self) -> Result<()> {
        self.store.remove_range(..).map(drop)
    }

    fn upkeep(&self, random: &mut Random) -> Result<()> {
        match random.below(4) {
            0 if self.has_snapshots => {
                let snapshot = self.store.snapshot()?;
                self.snapshots.lock().expect("no panic").push(snapshot);
                Ok(())
            }
            1 => {
                let snapshot = self.snapshots.lock().expect("no panic").pop();
                drop(snapshot);
                Ok(())
            }
            _ => self.store.checkpoint(),
        }
    }

    fn follow(&self, _: &mut dyn FnMut() -> bool, _: &mut dyn FnMut(u32, &[u8])) -> Result<()> {
        Ok(())
    }

    fn damage(&self) -> Result<Option<String>> {
        self.store.check_room()?;
        let report = self.store.check(true, &mut |_, _| ())?;
        Ok((!report.is_sound()).then(|| format!("{report:?}")))
    }
}

#[test]
fn a_hash_file_that_threads_use_loses_nothing_in_a_crash() {
    let ran = storms(72, 2, |random| (Hash::draw(random), Shape::draw(random)));
    let what = "crashes of a hash file that threads use";
    tried(ran, 1800, 30_000, 4000, 30, what);
}

/// Few changes of several threads, each of which returns when it is durable: their syncs are shared, and what one thread appends
/// while the device works for another is not part of that.
#[test]
fn a_change_that_waited_for_a_shared_sync_survives_loss_of_power() {
    let ran = storms(76, 10, |random| {
        let mut engine = Hash::draw_roomy(random);
        engine.0.opening.durability = Durability::Power;
        engine.0.segment_size = *random.choose(&[4096, 4096, 64 << 10]);
        // The longer values open segments while others sync.
        let (len_max, changes) = *random.choose(&[(40, 5), (40, 5), (2000, 30)]);
        let shape = Shape {
            keys: 4,
            writers: 4,
            changes,
            len_max,
            first_max: 60,
            any_one_in: 1,
            edge_one_in: 0,
            clears: 0,
            syncs: 4,
            upkeep: 0,
            has_worker: random.one_in(2),
            has_follower: true,
        };
        (engine, shape)
    });
    tried(ran, 4500, 3000, 1500, 0, "crashes around shared syncs");
}

/// So many keys that the background worker is loading some of them whenever all is cleared; readers and writers do, too.
#[test]
fn a_cleared_file_that_was_just_opened_stays_clear() {
    let ran = storms(60, 1, |random| {
        let shape = Shape {
            keys: 600,
            writers: 2,
            changes: 6,
            len_max: 20,
            first_max: 60,
            any_one_in: 1,
            edge_one_in: 0,
            clears: 1,
            syncs: 0,
            upkeep: 0,
            has_worker: !random.one_in(4),
            has_follower: true,
        };
        (Hash::draw(random), shape)
    });
    tried(ran, 450, 30_000, 1000, 0, "crashes around a clear");
}

/// Writers fill one small segment after the other, which the background worker and upkeep clean meanwhile.
#[test]
fn records_that_are_updated_while_their_segments_are_cleaned_stay_so() {
    let ran = storms(300, 1, |random| {
        let mut engine = Hash::draw_roomy(random);
        engine.0.segment_size = 4096;
        engine.0.opening.space_ratio = 1.1;
        engine.0.compression = Compression::None;
        let shape = Shape {
            keys: *random.choose(&[12, 60, 200]),
            writers: 3,
            changes: 200,
            len_max: 1200,
            first_max: 60,
            any_one_in: 1,
            edge_one_in: 4,
            clears: 0,
            syncs: 4,
            upkeep: 40,
            has_worker: !random.one_in(4),
            has_follower: true,
        };
        (engine, shape)
    });
    let what = "crashes among segments that are cleaned";
    tried(ran, 1800, 90_000, 150_000, 0, what);
}

/// Values of all lengths at which frames are encoded otherwise, each put over another: what is drafted and given up leaves a
/// frame, too.
#[test]
fn values_of_edge_lengths_that_threads_put_over_each_other_survive() {
    let ran = storms(36, 1, |random| {
        let mut engine = Hash::draw_roomy(random);
        engine.0.segment_size = *random.choose(&[256 << 10, 512 << 10]);
        engine.0.compression = Compression::None;
        let shape = Shape {
            keys: 6,
            writers: 2,
            changes: 30,
            len_max: 70_000,
            first_max: 60,
            any_one_in: 1,
            edge_one_in: 2,
            clears: 0,
            syncs: 2,
            upkeep: 2,
            has_worker: random.one_in(2),
            has_follower: true,
        };
        (engine, shape)
    });
    tried(
        ran,
        600,
        600,
        1800,
        0,
        "crashes among values of edge lengths",
    );
}

#[test]
fn an_object_store_that_threads_use_loses_nothing_in_a_crash() {
    let ran = storms(90, 3, |random| {
        let shape = Shape::draw(random);
        let keys = shape.keys.min(1000);
        (Objects::draw(random), Shape { keys, ..shape })
    });
    let what = "crashes of an object store that threads use";
    tried(ran, 3000, 300, 4000, 30, what);
}

/// Several threads at once in stores that are full all the time, with values of at most so many bytes.
pub(super) fn crowded(random: &mut Random, lens: &[usize]) -> Shape {
    Shape {
        keys: *random.choose(&[60, 300]),
        writers: 1 + random.below(4) as u32,
        changes: 120,
        len_max: *random.choose(lens),
        first_max: *random.choose(&[400, 4000]),
        any_one_in: *random.choose(&[1, 8]),
        edge_one_in: 0,
        clears: random.below(3) as u32,
        syncs: random.below(10) as u32,
        upkeep: random.below(40) as u32,
        has_worker: random.one_in(2),
        has_follower: random.one_in(3),
    }
}

/// A full hash file, of the least capacity or a little more.
fn full_hash(random: &mut Random) -> Hash {
    let segment_size = *random.choose(&[4096, 4096, 16 << 10]);
    let least = HashDb::least_capacity(segment_size);
    let mut engine = Hash::draw(random);
    engine.0.segment_size = segment_size;
    engine.0.opening.capacity = least + segment_size * *random.choose(&[0, 0, 1, 7, 40]);
    engine.1 = None;
    engine
}

#[test]
fn a_full_hash_file_takes_all_that_frees_from_one_writer() {
    let ran = storms(60, 1, |random| {
        let shape = Shape {
            writers: 1,
            changes: 300,
            has_follower: false,
            ..crowded(random, &[300, 1200, 3000])
        };
        (full_hash(random), shape)
    });
    let what = "crashes of a full hash file of one writer";
    tried(ran, 600, 30_000, 6000, 12, what);
}

#[test]
fn a_full_hash_file_that_threads_use_takes_all_that_frees() {
    let ran = storms(60, 1, |random| {
        let shape = crowded(random, &[300, 1200, 3000, 20_000]);
        (full_hash(random), shape)
    });
    let what = "crashes of a full hash file";
    tried(ran, 600, 30_000, 6000, 60, what);
}

#[test]
fn a_full_object_store_that_threads_use_takes_all_that_frees() {
    let ran = storms(60, 1, |random| {
        let mut engine = Objects::draw(random);
        let journal = *random.choose(&[192 << 10, 256 << 10, 512 << 10]);
        let data = *random.choose(&[256 << 10, 512 << 10, 1 << 20]);
        engine.options.journal_size = Some(journal);
        engine.options.group_size = Some(128 << 10);
        engine.options.capacity = if engine.devices == 1 {
            data + journal
        } else {
            data
        };
        let shape = Shape {
            has_follower: false,
            ..crowded(random, &[300, 1200, 5000, 20_000])
        };
        (engine, shape)
    });
    let what = "crashes of a full object store";
    tried(ran, 600, 300, 10_000, 300, what);
}

/// As for the hash file, also where the data has a device of its own: what is put while that one works for another is not part of
/// what the journal states afterwards.
#[test]
fn an_object_that_waited_for_a_shared_sync_survives_loss_of_power() {
    let ran = storms(60, 20, |random| {
        let mut engine = Objects::draw(random);
        engine.options.opening.durability = Durability::Power;
        engine.options.capacity = 2 << 20;
        engine.options.opening.small_max = *random.choose(&[0, 300]);
        engine.devices = 1 + u32::from(!random.one_in(4));
        let shape = Shape {
            keys: 8,
            writers: 4,
            changes: 5,
            len_max: 2000,
            first_max: 60,
            any_one_in: 1,
            edge_one_in: 0,
            clears: 0,
            syncs: 4,
            upkeep: 1,
            has_worker: random.one_in(2),
            has_follower: true,
        };
        (engine, shape)
    });
    let what = "crashes of an object store around shared syncs";
    tried(ran, 4500, 300, 1300, 0, what);
}

/// A store that is nearly full, where packs of so many small objects become sparse while one checkpoint follows the other, objects
/// that have extents of their own are put into the room that they leave, and others sync.
fn among_sparse_packs(random: &mut Random, keys: u32) -> (Objects, Shape) {
    let mut engine = Objects::draw(random);
    engine.has_snapshots = random.one_in(2);
    // What the checkpoints need to move the objects of sparse packs, and not much more.
    let data = (u64::from(keys) * 1280) + random.below(2) * (64 << 10);
    let journal = 512 << 10;
    let options = &mut engine.options;
    options.opening.small_max = 2048;
    options.journal_size = Some(journal);
    options.group_size = Some(128 << 10);
    options.opening.durability = Durability::Power;
    options.capacity = if engine.devices == 2 {
        data
    } else {
        data + journal
    };
    let shape = Shape {
        keys,
        writers: 3,
        changes: 400,
        len_max: 2300,
        first_max: 1500,
        any_one_in: 1,
        edge_one_in: 0,
        clears: 0,
        syncs: 40,
        upkeep: 80,
        has_worker: !random.one_in(4),
        has_follower: false,
    };
    (engine, shape)
}

#[test]
fn hundreds_of_small_objects_survive_while_packs_become_sparse() {
    let ran = storms(18, 12, |random| among_sparse_packs(random, 600));
    tried(ran, 1500, 6, 10_000, 90, "crashes among sparse packs");
}

#[test]
fn thousands_of_small_objects_survive_while_packs_become_sparse() {
    let ran = storms(12, 3, |random| among_sparse_packs(random, 4000));
    tried(ran, 300, 6, 7000, 30, "crashes among many sparse packs");
}

#[test]
fn a_worker_that_outlives_its_schedule_is_found() {
    let ran = lead(1, |_| {
        let disk = SimDisk::new(1);
        let file = Hash::draw(&mut Random::new(1)).create(&disk, true);
        std::mem::forget(file.expect("a new file"));
    });
    let what = ran.expect_err("the worker is still there");
    assert!(what.contains("outlives"), "{what}");
}

#[test]
fn a_seed_decides_all_that_threads_and_a_worker_do() {
    let seeds = share(30);
    for seed in 1..=seeds {
        let run = || {
            let mut random = Random::new(seed);
            let shape = Shape {
                keys: 64,
                has_worker: true,
                ..Shape::draw(&mut random)
            };
            let (counts, tried, answers) =
                storm(&config(seed, 1), &Hash::draw(&mut random), &shape);
            assert!(tried.turns_of_started > 0, "the worker takes part");
            (counts, tried, answers)
        };
        // What a process makes once for each of its threads is there after the first.
        run();
        assert_eq!(run(), run(), "seed {seed}");
    }
    tried_at_least(seeds, 30, "storms that were run again");
}
