//! A snapshot is the store of one moment, whatever is done to the store after it, and costs what it states.
//!
//! Threads change a small store, so that room is soon used again. At a moment at which they all stand, a snapshot is taken and
//! their models are copied; then they continue, and the snapshot is held against the copy. A planted bug, a snapshot that pins
//! nothing, must be caught.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::*;
use crate::error::refusal;
use crate::io::sim::{Fault, Operation, SimDisk};
use crate::io::{Access, Directory};
use crate::object::checkpoint::tests::in_memory;
use crate::object::{Change, CreateOptions};
use crate::testkit::suite::{share, tried_in_rounds};
use crate::testkit::{Random, round_seed};

const NAME: &str = "moment.azo";

fn id(n: u64) -> ObjectId {
    ObjectId(u128::from(n) << 64 | 7)
}

fn value(version: u64, len: usize) -> Vec<u8> {
    Random::new(version).bytes(len)
}

fn options(journal: u64, data: u64) -> CreateOptions {
    CreateOptions::new()
        .capacity(journal + data)
        .journal_size(journal)
        .group_size(256 << 10)
        .background(false)
}

/// A store in memory.
fn store(options: &CreateOptions) -> Store {
    in_memory(options).1
}

/// A store on a disk that is simulated.
fn on_disk(seed: u64, options: &CreateOptions) -> (SimDisk, Store) {
    let disk = SimDisk::new(seed);
    let directory = disk.directory();
    let store = Store::create_in(&directory, Path::new(NAME), options, &mut |_, _| ());
    (disk, store.unwrap())
}

fn open_on(disk: &SimDisk, options: &CreateOptions) -> Store {
    let storage = disk.directory().open(Path::new(NAME), Access::Write);
    Store::open_on(storage.unwrap(), None, &options.opening).unwrap()
}

/// Removes all objects: then so much is free.
fn verify_emptied(store: &Store, empty: u64) {
    store.remove_range(..).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(free(store), empty);
}

/// Free room when nothing is in limbo.
fn free(store: &Store) -> u64 {
    store.sync().unwrap();
    store.check_room().unwrap();
    store.free()
}

#[test]
fn threads_may_share_one() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Snapshot>();
}

/// Threads of the storm.
const THREADS: u64 = 3;
/// Objects of each.
const OWN: u64 = 24;

/// Version and length of each object: the value is made of them.
type Model = BTreeMap<ObjectId, (u64, usize)>;

struct Storm<'s> {
    store: &'s Store,
    models: Vec<Mutex<Model>>,
    /// Shared by whoever makes a change, with its model; alone by whoever takes a snapshot.
    still: RwLock<()>,
    done: AtomicU64,
    ended: AtomicBool,
}

impl Storm<'_> {
    fn rage(&self, thread: u64, seed: u64) {
        let mut random = Random::new(seed + thread);
        // Also if it panics: nobody waits for it then.
        let _ending = Ending(&self.ended);
        while !self.ended.load(Ordering::Relaxed) {
            let guard = self.still.read();
            let mut model = self.models[thread as usize].lock().unwrap();
            self.step(&mut model, thread, &mut random);
            drop(model);
            drop(guard);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn step(&self, model: &mut Model, thread: u64, random: &mut Random) {
        let first = thread * 1000;
        let own = |n: u64| id(first + n % OWN);
        let n = random.below(OWN);
        let version = random.below(1 << 60);
        let len = match random.below(8) {
            0..4 => random.index(1500),
            4..7 => 2100 + random.index(9000),
            _ => 60_000 + random.index(20_000),
        };
        // What was left may be pinned: then there is no room for more, and a journal that fills may refuse removals, too.
        let was_made = |result: Result<()>| match result {
            Err(error) if error.kind() == Kind::Full => false,
            other => other.map(|()| true).unwrap(),
        };
        match random.below(32) {
            0 => self.store.sync().unwrap(),
            1 => _ = was_made(self.store.checkpoint()),
            2..7 => {
                let mut was_there = false;
                if was_made(self.store.remove(own(n)).map(|found| was_there = found)) {
                    assert_eq!(was_there, model.remove(&own(n)).is_some());
                }
            }
            7 => {
                let (from, to) = (id(first + n), id(first + n + 3));
                if was_made(self.store.remove_range(from..to).map(drop)) {
                    model.retain(|of, _| *of < from || *of >= to);
                }
            }
            8..11 => {
                let (bytes, gone) = (value(version, len), own(n + 1));
                let batch = [Change::Put(own(n), &bytes), Change::Remove(gone)];
                if was_made(self.store.apply(&batch).map(drop)) {
                    model.insert(own(n), (version, len));
                    model.remove(&gone);
                }
            }
            _ => {
                if was_made(self.store.put(own(n), &value(version, len)).map(drop)) {
                    model.insert(own(n), (version, len));
                }
            }
        }
    }

    /// A snapshot, and what is in it.
    fn moment(&self, is_pinned: bool) -> (Snapshot, Model) {
        let _still = self.still.write();
        let snapshot = self.store.snapshot().unwrap();
        if !is_pinned {
            self.store.core.allocator.lock().space.unpin(snapshot.pin);
        }
        let models = self
            .models
            .iter()
            .map(|model| model.lock().unwrap().clone());
        (snapshot, models.flatten().collect())
    }

    fn wait_for(&self, steps: u64) {
        let until = self.done.load(Ordering::Relaxed) + steps;
        while self.done.load(Ordering::Relaxed) < until && !self.ended.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
}

/// Ends what runs until it is stopped.
struct Ending<'e>(&'e AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the snapshot is what it should be; if not, what is wrong.
fn compare(snapshot: &Snapshot, model: &Model, seed: u64) -> std::result::Result<(), String> {
    let text = |error: crate::error::Error| error.to_string();
    let mut random = Random::new(seed);
    if snapshot.count() != model.len() as u64 {
        return Err(format!("{} of {} objects", snapshot.count(), model.len()));
    }
    let mut wanted = model.iter();
    for found in snapshot.values(..) {
        let (id, bytes) = found.map_err(text)?;
        let (of, (version, len)) = wanted.next().unwrap();
        if id != *of || bytes != value(*version, *len) {
            return Err(format!("{id} is not what {of} was"));
        }
    }
    let ids: Vec<ObjectId> = model.keys().copied().collect();
    let first = ids.get(random.index(ids.len().max(1))).copied();
    let first = first.unwrap_or(ObjectId(0));
    let end = if random.one_in(2) {
        Bound::Excluded(ObjectId(first.0 + (5 << 64)))
    } else {
        Bound::Unbounded
    };
    let range = (Bound::Included(first), end);
    let listed: Vec<_> = snapshot.list(range).map(Result::unwrap).collect();
    let wanted: Vec<_> = model.range(range).collect();
    assert_eq!(listed.len(), wanted.len());
    for (listed, (id, (_, len))) in listed.iter().zip(&wanted) {
        assert_eq!((listed.id, listed.len), (**id, *len as u64));
        assert_eq!(snapshot.head(**id), Some(*len as u64));
    }
    let usage = snapshot.usage(range);
    let bytes: usize = wanted.iter().map(|(_, (_, len))| len).sum();
    assert_eq!(usage.count, listed.len() as u64);
    assert_eq!(usage.bytes, bytes as u64);
    for n in 0..OWN * THREADS {
        let id = id(n / OWN * 1000 + n % OWN);
        let range = random.below(10_000)..random.below(90_000);
        let found = snapshot.get_range(id, range.clone()).map_err(text)?;
        let wanted = model.get(&id).map(|(version, len)| {
            let to = range.end.min(*len as u64).max(range.start.min(*len as u64));
            value(*version, *len)[range.start.min(to) as usize..to as usize].to_vec()
        });
        if found.as_deref() != wanted.as_deref() {
            return Err(format!("{id} at {range:?} is not what it was"));
        }
    }
    Ok(())
}

/// A storm over some snapshots, up to three of different ages at once; how many comparisons of one there were, or what is wrong
/// with one.
fn storm(seed: u64, moments: u64, is_pinned: bool) -> std::result::Result<u64, String> {
    let store = store(&options(256 << 10, 4 << 20));
    let empty = free(&store);
    let storm = Storm {
        store: &store,
        models: (0..THREADS).map(|_| Mutex::default()).collect(),
        still: RwLock::new(()),
        done: AtomicU64::new(0),
        ended: AtomicBool::new(false),
    };
    let compared: std::result::Result<u64, String> = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let storm = &storm;
            scope.spawn(move || storm.rage(thread, seed));
        }
        let mut random = Random::new(seed ^ 0xabcd);
        let mut alive = std::collections::VecDeque::new();
        // Also if this thread panics: the others would never end.
        let _ending = Ending(&storm.ended);
        (0..moments).try_fold(0, |mut compared, _| {
            storm.wait_for(50 + random.below(200));
            alive.push_back(storm.moment(is_pinned));
            for (snapshot, model) in &alive {
                compare(snapshot, model, random.below(u64::MAX))?;
                compared += 1;
            }
            if alive.len() == 3 {
                alive.remove(random.index(3));
            }
            Ok(compared)
        })
    });
    let compared = compared?;
    let left: usize = storm.models.iter().map(|of| of.lock().unwrap().len()).sum();
    assert_eq!(store.count(), left as u64);
    assert!(store.check(true, &mut |_, _| {}).unwrap().is_sound());
    verify_emptied(&store, empty);
    Ok(compared)
}

#[test]
fn a_snapshot_stays_as_it_is_in_a_storm() {
    let (rounds, mut compared) = (share(12).max(3), 0);
    for round in 0..rounds {
        compared += storm(round_seed() + round, 40, true).unwrap();
    }
    tried_in_rounds(
        compared,
        rounds,
        110,
        "comparisons of a snapshot in a storm",
    );
}

#[test]
fn the_net_catches_a_snapshot_that_pins_nothing() {
    let caught = (0..4).find_map(|seed| storm(seed, 40, false).err());
    assert!(caught.is_some());
}

#[test]
fn changes_are_in_it_whole_and_none_that_was_acknowledged_before_is_missing() {
    let store = store(&options(256 << 10, 4 << 20));
    let pair = |store: &Store, version: u64| {
        let bytes = value(version, 3000);
        let changes = [0, 1].map(|n| Change::Put(id(n), &bytes));
        // A snapshot that is held for long keeps all room that comes free, which comes back when it is dropped.
        while let Err(refused) = store.apply(&changes) {
            assert_eq!(refused.kind(), Kind::Full);
            std::thread::yield_now();
        }
    };
    pair(&store, 0);
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                begun.store(version, Ordering::SeqCst);
                pair(&store, version);
                ended.store(version, Ordering::SeqCst);
                if version % 8 == 0 {
                    store.remove_range(..).unwrap();
                }
            }
        });
        let _ending = Ending(&stop);
        for _ in 0..300 {
            let first = ended.load(Ordering::SeqCst);
            let snapshot = store.snapshot().unwrap();
            let last = begun.load(Ordering::SeqCst);
            let [a, b] = [0, 1].map(|n| snapshot.get(id(n)).unwrap());
            assert_eq!(a, b);
            match a {
                Some(found) => assert!((first..=last).any(|version| found == value(version, 3000))),
                None => assert!((first..=last).any(|version| version % 8 == 0)),
            }
        }
    });
}

#[test]
fn what_is_left_keeps_its_room_until_the_snapshot_is_dropped() {
    const COUNT: u64 = 60;
    const SIZE: u64 = 16 << 10;
    let store = store(&options(256 << 10, 2 << 20));
    let again = |round: u64| {
        let put = |n: u64| store.put(id(n), &value(round * 1000 + n, 12_500));
        (0..COUNT).try_for_each(|n| put(n).map(drop))
    };
    again(0).unwrap();
    let half = free(&store);
    let snapshot = store.snapshot().unwrap();
    let refused = (1..3).find_map(|round| again(round).err()).unwrap();
    assert_eq!(refused.kind(), Kind::Full);
    assert!(free(&store) <= half - COUNT * SIZE);
    // A younger one keeps only what is left after it.
    drop(store.snapshot().unwrap());
    assert!(free(&store) <= half - COUNT * SIZE);
    for n in 0..COUNT {
        assert_eq!(snapshot.get(id(n)).unwrap(), Some(value(n, 12_500).into()));
    }
    drop(snapshot);
    assert_eq!(free(&store), half);
    for round in 3..6 {
        again(round).unwrap();
        assert_eq!(free(&store), half);
    }
}

#[test]
fn objects_that_move_in_pieces_stay_too() {
    let store = store(&options(256 << 10, 24 << 20).group_size(8 << 20));
    let long = |version| value(version, 3_000_000);
    store.put(id(0), &long(0)).unwrap();
    let snapshot = store.snapshot().unwrap();
    // Until there is no room but the one that is pinned.
    let refused = (1..20).find_map(|version| {
        store.sync().unwrap();
        store.put(id(0), &long(version)).err()
    });
    assert_eq!(refused.unwrap().kind(), Kind::Full);
    assert!(snapshot.get(id(0)).unwrap() == Some(long(0).into()));
    let part = snapshot.get_range(id(0), 2_900_000..u64::MAX).unwrap();
    assert!(part.unwrap() == long(0)[2_900_000..]);
    drop(snapshot);
    store.put(id(0), &long(20)).unwrap();
}

#[test]
fn a_full_store_has_snapshots_too_and_takes_removals_meanwhile() {
    let store = store(&options(1 << 20, 2 << 20));
    let empty = free(&store);
    let mut count = 0;
    // Long ones, then small ones: in packed extents, and in the journal where there is no room for packed extents.
    for len in [60_000, 4000, 500] {
        while let Ok(_stored) = store.put(id(count), &value(count, len)) {
            count += 1;
        }
    }
    refusal(store.put(id(count), &value(count, 500)), Kind::Full);
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.count(), count);
    assert!(!snapshot.small.is_empty());
    let before: Vec<_> = snapshot.values(..).collect();
    for n in 0..count {
        assert!(store.remove(id(n)).unwrap());
    }
    store.checkpoint().unwrap();
    assert_eq!(store.count(), 0);
    refusal(store.put(id(0), &value(0, 60_000)), Kind::Full);
    let after: Vec<_> = snapshot.values(..).collect();
    assert_eq!(after.len(), count as usize);
    for (before, after) in before.into_iter().zip(after) {
        assert_eq!(before.unwrap(), after.unwrap());
    }
    drop(snapshot);
    assert_eq!(free(&store), empty);
}

#[test]
fn removals_go_on_in_a_full_store_however_long_one_lives() {
    let store = store(&options(1 << 20, 3 << 20));
    let empty = free(&store);
    let lens = [200, 1500, 3000, 9000];
    for n in 0.. {
        let len = lens[n as usize % 4];
        if store.put(id(n), &value(n, len)).is_err() {
            break;
        }
    }
    let snapshot = store.snapshot().unwrap();
    let before: Vec<_> = snapshot.values(..).collect();
    // Nothing that is removed gives room, small objects stay in the journal, and it is full of what is over.
    let mut random = Random::new(round_seed());
    let mut there = 0;
    for _ in 0..100_000 {
        let n = random.below(snapshot.count());
        if random.one_in(2) {
            there += u32::from(store.remove(id(n)).unwrap());
        }
        // Mostly there is no room.
        let _ = store.put(id(n), &value(n, lens[random.index(4)]));
    }
    assert!(there > 20_000, "{there}");
    for (n, object) in (0..).zip(&before) {
        let value = &object.as_ref().unwrap().1;
        assert_eq!(snapshot.get(id(n)).unwrap().as_ref(), Some(value));
    }
    drop(snapshot);
    for n in 0..before.len() as u64 {
        store.remove(id(n)).unwrap();
        store.put(id(n), &value(n, 100)).unwrap();
    }
    verify_emptied(&store, empty);
}

#[test]
fn it_may_be_read_when_the_store_is_closed_and_keeps_others_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    let options = options(256 << 10, 4 << 20);
    let store = Store::create(&path, &options).unwrap();
    let empty = free(&store);
    for n in 0..40 {
        store.put(id(n), &value(n, 200 * n as usize)).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for n in 0..30 {
        store.put(id(n), &value(100 + n, 5000)).unwrap();
    }
    store.remove_range(id(30)..).unwrap();
    store.close().unwrap();
    refusal(Store::open(&path, &options.opening), Kind::Locked);
    let all = std::thread::spawn(move || {
        let all: Vec<_> = snapshot.values(..).collect();
        drop(snapshot);
        all
    });
    let all = all.join().unwrap();
    assert_eq!(all.len(), 40);
    for (n, object) in (0..).zip(all) {
        let wanted = value(n, 200 * n as usize);
        assert_eq!(object.unwrap(), (id(n), wanted.into()));
    }
    let store = Store::open(&path, &options.opening).unwrap();
    assert_eq!(store.count(), 30);
    for n in 0..30 {
        assert_eq!(store.get(id(n)).unwrap(), Some(value(100 + n, 5000).into()));
    }
    store.remove_range(..).unwrap();
    assert_eq!(free(&store), empty);
}

#[test]
fn a_death_while_one_lives_loses_neither_objects_nor_room() {
    let options = options(256 << 10, 2 << 20);
    let (disk, store) = on_disk(4, &options);
    let empty = free(&store);
    for n in 0..60 {
        store.put(id(n), &value(n, 500 * (n % 9) as usize)).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for n in 0..60 {
        store
            .put(id(n), &value(100 + n, 400 * (n % 9) as usize))
            .unwrap();
        if n % 20 == 0 {
            store.checkpoint().unwrap();
        }
    }
    let died = disk.kill_state(disk.events());
    drop(snapshot);
    let store = open_on(&died, &options);
    for n in 0..60 {
        let wanted = value(100 + n, 400 * (n % 9) as usize);
        assert_eq!(store.get(id(n)).unwrap(), Some(wanted.into()));
    }
    verify_emptied(&store, empty);
}

#[test]
fn it_costs_no_access_to_take_and_one_read_to_get() {
    let store = store(&options(1 << 20, 8 << 20));
    for n in 0..500 {
        store.put(id(n), &value(n, 5000)).unwrap();
        store.put(id(1000 + n), &value(n, 50)).unwrap();
    }
    let accesses = || {
        let stats = store.stats().unwrap();
        [stats.device_reads, stats.device_writes, stats.device_syncs]
    };
    let before = accesses();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.count(), 1000);
    assert_eq!(snapshot.head(id(3)), Some(5000));
    assert_eq!(snapshot.list(..).count(), 1000);
    for n in 0..500 {
        let found = snapshot.get(id(1000 + n)).unwrap();
        assert_eq!(found, Some(value(n, 50).into()));
    }
    assert_eq!(accesses(), before);
    for n in 0..10 {
        assert_eq!(snapshot.get(id(n)).unwrap(), Some(value(n, 5000).into()));
        for id in [id(n), id(1000 + n)] {
            let sequence = store.sequence(id).unwrap();
            assert_eq!(snapshot.sequence(id).unwrap(), sequence);
        }
    }
    assert_eq!(accesses(), [before[0] + 30, before[1], before[2]]);
}

#[test]
fn what_is_in_the_journal_is_packed_first_where_it_is_much() {
    let store = store(&options(32 << 20, 24 << 20));
    let put = |count: u64| {
        for n in 0..count {
            store.put(id(n), &value(n, 2000)).unwrap();
        }
    };
    put(1000);
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.small.len(), 1000);
    put(2500);
    let later = store.snapshot().unwrap();
    assert_eq!(later.small.len(), 0);
    for (snapshot, count) in [(&snapshot, 1000), (&later, 2500)] {
        assert_eq!(snapshot.count(), count);
        for (n, object) in (0..).zip(snapshot.values(..)) {
            assert_eq!(object.unwrap(), (id(n), value(n, 2000).into()));
        }
    }
}

#[test]
fn a_store_that_was_just_opened_is_read_once() {
    let options = options(1 << 20, 8 << 20);
    let (disk, store) = on_disk(9, &options);
    for n in 0..5000 {
        store.put(id(n), &value(n, 90)).unwrap();
    }
    store.close().unwrap();
    let store = open_on(&disk, &options);
    for is_cold in [true, false] {
        let reads = disk.faults().count(Operation::Read);
        let snapshot = store.snapshot().unwrap();
        assert_eq!(disk.faults().count(Operation::Read) > reads, is_cold);
        assert_eq!(snapshot.list(..).count(), 5000);
        assert_eq!(snapshot.get(id(77)).unwrap(), Some(value(77, 90).into()));
    }
}

#[test]
fn an_object_that_does_not_verify_is_an_error_and_the_next_ones_are_not() {
    let (disk, store) = on_disk(5, &options(256 << 10, 2 << 20));
    for n in 0..9 {
        store.put(id(n), &value(n, 6000)).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    let faults = disk.faults();
    let fifth = faults.count(Operation::Read) + 4;
    faults.fail(Operation::Read, fifth, Fault::Flip);
    let all: Vec<_> = snapshot.values(..).collect();
    for (n, object) in (0..).zip(all) {
        if n == 4 {
            let error = refusal(object, Kind::Corrupted);
            assert!(error.contains(&id(4).to_string()), "{error}");
        } else {
            assert_eq!(object.unwrap(), (id(n), value(n, 6000).into()));
        }
    }
}
