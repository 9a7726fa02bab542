//! Batches, comparisons and checkpoints as requests: whole or not at all, in order, and with as much in flight as may.
//!
//! What an end leaves of batches is held against a history, as in `crash`; a planted bug, batches that are sent change by
//! change, must be caught.

use parking_lot::Mutex;

use super::crash::{Wait, ends_at, history, send_each, verify};
use super::*;
use crate::object::Stored;

/// Objects of a group, which change together.
const GROUP: u64 = 3;
const GROUPS: u64 = 8;

/// A storage whose accesses take some time each, so that they end in another order than they began.
#[derive(Debug)]
struct Uneven {
    below: Arc<dyn Storage>,
    random: Mutex<Random>,
}

impl Uneven {
    fn over(below: Arc<dyn Storage>, seed: u64) -> Arc<dyn Storage> {
        let random = Mutex::new(Random::new(seed));
        Arc::new(Self { below, random })
    }

    fn dawdle(&self) {
        let time = self.random.lock().below(400);
        std::thread::sleep(std::time::Duration::from_micros(time));
    }
}

impl crate::io::over::Over for Uneven {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.dawdle();
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.dawdle();
        self.below.write_at(offset, bytes)
    }
}

fn batch_of(random: &mut Random, group: u64, version: u64) -> Batch {
    let removes = random.one_in(6);
    let object = |at| {
        let len = match random.below(3) {
            0 => random.index(900),
            _ => 3000 + random.index(9000),
        };
        let bytes = value(version << 8 | at, len);
        let put = !removes && (at == 0 || !random.one_in(5));
        (id(group * GROUP + at), put.then_some(bytes))
    };
    (0..GROUP).map(object).collect()
}

/// Serves a history of batches, and ends it at some moments; what is wrong with what is left, if anything. `split`: the planted bug.
fn ends(seed: u64, asked: Durability, split: bool) -> std::result::Result<(), String> {
    let disk = SimDisk::new(seed);
    let options = store_options(8 << 20);
    let store = create_on(&disk, &options);
    let opened = disk.events();
    let served = Served::start(store, &threads(16)).unwrap();
    let mut random = Random::new(seed);
    let draw = &mut |version| {
        let group = random.below(GROUPS);
        batch_of(&mut random, group, version)
    };
    let send = |batch: &Batch| -> Wait {
        if split {
            return send_each(&served, batch, asked);
        }
        let apply = served.apply(batch.clone()).durability(asked).send();
        Box::new(move || assert!(apply.wait().unwrap().len() == GROUP as usize))
    };
    let history = history(&disk, 100, 6, draw, &send);
    let group = |of| (0..GROUP).map(|n| id(of * GROUP + n)).collect();
    let groups: Vec<Vec<_>> = (0..GROUPS).map(group).collect();
    let verify = |disk: &SimDisk, at| verify(disk, &options, &groups, &history, at);
    ends_at(&disk, opened, seed, (25, false), &verify)?;
    if asked == Durability::Power {
        ends_at(&disk, opened, seed, (25, true), &verify)?;
    }
    Ok(())
}

#[test]
fn a_death_or_a_power_cut_leaves_all_of_a_batch_or_nothing() {
    for asked in [Durability::Process, Durability::Power] {
        for round in 0..2 {
            ends(round_seed() + round, asked, false).unwrap();
        }
    }
}

#[test]
fn the_net_catches_batches_that_are_sent_change_by_change() {
    let caught = (0..4).find_map(|seed| ends(seed, Durability::Process, true).err());
    assert!(caught.unwrap().contains("no state they had"));
}

fn puts(first: u64, count: u64, version: u64, len: usize) -> Batch {
    let put = |n| (id(n), Some(value(version << 8 | n, len)));
    (first..first + count).map(put).collect()
}

fn assert_there(served: &Served, batch: &Batch) {
    for (id, value) in batch {
        let found = served.get(*id).wait().unwrap();
        assert_eq!(found.as_deref(), value.as_deref(), "{id}");
    }
}

#[test]
fn a_batch_has_as_much_in_flight_as_may_and_others_go_between() {
    let (_folder, storage, served) = gated(&threads(4));
    let batch = puts(0, 30, 1, 5000);
    let apply = || served.apply(batch.clone()).send();
    let applied = storage.writes.hold(4, apply);
    assert_eq!(served.metrics().in_flight_max, 4);
    // After the batch, in any order with its writes, but after what it touches.
    let others: Vec<_> = (100..110)
        .map(|n| served.put(id(n), value(n, 5000)).send())
        .collect();
    let head = served.head(id(29)).send();
    let removed = served.remove(id(0)).send();
    assert_eq!(served.head(id(200)).wait().unwrap(), None);
    assert!(!applied.is_there() && !head.is_there());
    storage.writes.open();
    let sequences = applied.wait().unwrap();
    assert_eq!(sequences.len(), 30);
    assert!(sequences.is_sorted_by(|a, b| a < b));
    assert_eq!(head.wait().unwrap(), Some(5000));
    assert!(removed.wait().unwrap());
    // They flew one for one with its first writes, and at most three of them still do with its last.
    assert!(others.iter().filter(|put| put.is_there()).count() >= 7);
    wait_all(others);
    assert_there(&served, &batch[1..].to_vec());
    let metrics = served.metrics();
    assert_eq!(metrics.counters.enqueued, metrics.counters.done);
    assert_eq!(metrics.in_flight_max, 4);
    served.store().check_room().unwrap();
}

#[test]
fn a_batch_whose_write_fails_leaves_the_old_objects() {
    for (fault, nth) in [(Fault::Error, 0), (Fault::Short(4096), 2), (Fault::Torn, 4)] {
        let disk = SimDisk::new(5);
        let options = store_options(4 << 20);
        let store = create_on(&disk, &options);
        let served = Served::start(Arc::clone(&store), &threads(2)).unwrap();
        let old = puts(0, 5, 1, 9000);
        served.apply(old.clone()).wait().unwrap();
        let faults = disk.faults();
        let nth = faults.count(Operation::Write) + nth;
        faults.fail(Operation::Write, nth, fault);
        refusal(served.apply(puts(0, 7, 2, 9000)).wait(), Kind::Io);
        assert_eq!(served.metrics().counters.failed, 1);
        assert_there(&served, &old);
        assert_eq!(store.count(), 5);
        let killed = open_on(&disk.kill_state(disk.events()), &options);
        assert_eq!(killed.count(), 5);
        for (id, value) in &old {
            assert_eq!(killed.get(*id).unwrap().as_deref(), value.as_deref());
        }
        let new = puts(0, 7, 3, 9000);
        served.apply(new.clone()).wait().unwrap();
        assert_there(&served, &new);
        store.remove_range(..).unwrap();
        store.sync().unwrap();
        store.check_room().unwrap();
    }
}

#[test]
fn batches_that_cannot_be_change_nothing() {
    let store = create_on(&SimDisk::new(7), &store_options(4 << 20));
    let served = Served::start(Arc::clone(&store), &threads(3)).unwrap();
    let kind = |batch| served.apply(batch).wait().unwrap_err().kind();
    let twice = vec![(id(1), Some(value(1, 9000))), (id(2), None), (id(1), None)];
    assert_eq!(kind(twice), Kind::Invalid);
    let mut large = puts(0, 4, 1, 9000);
    large.push((id(4), Some(vec![0; store.len_max() as usize + 1])));
    large.push((id(5), Some(value(1, 9000))));
    assert_eq!(kind(large), Kind::TooLarge);
    // More than the store holds.
    assert_eq!(kind(puts(0, 60, 1, 100_000)), Kind::Full);
    assert_eq!(served.apply(Vec::new()).wait().unwrap(), []);
    assert_eq!(store.count(), 0);
    let all = puts(0, 20, 2, 100_000);
    served.apply(all.clone()).wait().unwrap();
    assert_there(&served, &all);
    assert_eq!(served.metrics().counters.failed, 0);
    store.check_room().unwrap();
}

#[test]
fn a_batch_that_began_is_done_when_the_queue_is_stopped() {
    let (_folder, storage, served) = gated(&threads(2));
    let batch = puts(0, 8, 1, 6000);
    let apply = || served.apply(batch.clone()).send();
    let applied = storage.writes.hold(2, apply);
    let after = served.apply(puts(20, 8, 1, 6000)).send();
    served.stop();
    refusal(after.wait(), Kind::Poisoned);
    assert!(!applied.is_there());
    storage.writes.open();
    let store = Arc::clone(served.store());
    drop(served);
    assert_eq!(applied.wait().unwrap().len(), 8);
    for (id, value) in &batch {
        assert_eq!(store.get(*id).unwrap().as_deref(), value.as_deref());
    }
    assert_eq!(store.count(), 8);
    store.check_room().unwrap();
}

#[test]
fn removals_alone_and_checkpoints_are_made_while_all_that_may_fly_hangs() {
    let (storage, served) = apart();
    served.apply(puts(0, 4, 1, 9000)).wait().unwrap();
    let put = || [8, 9].map(|n| served.put(id(n), value(n, 9000)).send());
    let flying = storage.writes.hold(2, put);
    let removed = served.apply(vec![(id(1), None), (id(2), None), (id(7), None)]);
    assert_eq!(removed.wait().unwrap().len(), 3);
    assert_eq!(served.store().count(), 2);
    let mut records = 0;
    let mut count = || {
        records = 0;
        let counted = served.store().journal(&mut |_, _| {
            records += 1;
            true
        });
        counted.map(|()| records).unwrap()
    };
    assert!(count() > 0);
    let many: Vec<_> = (0..4).map(|_| served.checkpoint().send()).collect();
    wait_all(many);
    assert_eq!(count(), 0);
    assert_eq!(storage.writes.waiting(), 2);
    storage.writes.open();
    wait_all(flying);
    let metrics = served.metrics();
    assert_eq!(metrics.counters.enqueued, metrics.counters.done);
}

#[test]
fn a_checkpoint_that_fails_says_so_to_all_who_asked() {
    let disk = SimDisk::new(3);
    let served = Served::start(create_on(&disk, &store_options(4 << 20)), &threads(2)).unwrap();
    served.put(id(1), value(1, 9000)).wait().unwrap();
    let faults = disk.faults();
    faults.fail_from(Operation::Sync, faults.count(Operation::Sync), Fault::Error);
    let asked = [(); 2].map(|()| served.checkpoint().send());
    for made in asked {
        assert!(made.wait().is_err());
    }
    faults.clear();
}

fn with_number(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(len, 7);
    bytes
}

fn number_in(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

/// Adds one to the number in object `n`, whoever else does.
async fn add(served: &Served, n: u64, len: usize) -> Result<u64> {
    loop {
        let sequence = served.sequence(id(n)).deadline(Deadline::Immediate).await?;
        let before = served.get(id(n)).await?;
        let number = before.map_or(0, |bytes| number_in(&bytes));
        let bytes = with_number(number + 1, len);
        let put: Option<Stored> = served.compare_and_put(id(n), sequence, bytes).await?;
        if let Some(stored) = put {
            assert_eq!(stored.replaced, number > 0);
            assert!(sequence.is_none_or(|before| before < stored.sequence));
            return Ok(number + 1);
        }
    }
}

#[test]
fn of_those_who_compare_each_wins_once() {
    // Long ones; small ones, which checkpoints move meanwhile.
    for len in [5000, 500] {
        let folder = tempfile::tempdir().unwrap();
        let options = store_options(16 << 20).background(true);
        let file = File::create(folder.path().join(NAME)).unwrap();
        file.resize(options.capacity).unwrap();
        let storage = Uneven::over(Arc::new(file), round_seed());
        let store = Store::create_on(storage, None, &options, &mut |_, _| {}).unwrap();
        let served = Served::start(Arc::new(store), &threads(8)).unwrap();
        let served = &served;
        let task = |n: u64| async move {
            for round in 0..6 {
                add(served, n % 2, len).await?;
                if round % 2 == 0 {
                    served.checkpoint().await?;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let ended: Vec<Result<()>> = run_all((0..6).map(task).collect());
                ended.into_iter().for_each(Result::unwrap);
            });
            // Direct calls compete.
            for _ in 0..12 {
                let store = served.store();
                while {
                    let sequence = store.sequence(id(0)).unwrap();
                    let before = store.get(id(0)).unwrap();
                    let bytes = with_number(before.map_or(0, |bytes| number_in(&bytes)) + 1, len);
                    let put = store.compare_and_put(id(0), sequence, &bytes);
                    put.unwrap().is_none()
                } {}
            }
        });
        for (n, wanted) in [(0, 18 + 12), (1, 18)] {
            let bytes = served.get(id(n)).wait().unwrap().unwrap();
            assert_eq!(number_in(&bytes), wanted);
        }
        served.store().check_room().unwrap();
    }
}

#[test]
fn a_comparison_costs_one_read_and_none_where_nothing_is_expected() {
    let store = create_on(&SimDisk::new(2), &store_options(4 << 20));
    let served = Served::start(store, &threads(2)).unwrap();
    let accesses = || {
        let stats = served.store().stats().unwrap();
        [stats.device_reads, stats.device_writes]
    };
    // The allocation extent.
    served.put(id(0), value(0, 5000)).wait().unwrap();
    let mut before = accesses();
    let mut cost = || {
        let now = accesses();
        let cost = [now[0] - before[0], now[1] - before[1]];
        before = now;
        cost
    };
    let put = |expected, version| {
        let put = served.compare_and_put(id(1), expected, value(version, 5000));
        put.wait().unwrap()
    };
    let first = put(None, 1).unwrap();
    assert_eq!((first.replaced, cost()), (false, [0, 1]));
    assert_eq!((put(None, 2), cost()), (None, [0, 0]));
    assert_eq!((put(Some(first.sequence + 1), 2), cost()), (None, [1, 0]));
    let second = put(Some(first.sequence), 2).unwrap();
    assert_eq!((second.replaced, cost()), (true, [1, 1]));
    let sequence = served.sequence(id(1)).wait().unwrap();
    assert_eq!((sequence, cost()), (Some(second.sequence), [1, 0]));
    assert_eq!(served.sequence(id(2)).wait().unwrap(), None);
    let absent = served.compare_and_put(id(2), Some(1), value(1, 5000));
    assert_eq!((absent.wait().unwrap(), cost()), (None, [0, 0]));
    let found = served.get_with_sequence(id(1)).wait().unwrap();
    assert_eq!(found, Some((value(2, 5000).into(), second.sequence)));
    assert_eq!(cost(), [1, 0]);
    let remove = |expected| served.compare_and_remove(id(1), expected).wait();
    assert_eq!((remove(first.sequence).unwrap(), cost()), (false, [1, 0]));
    assert_eq!((remove(second.sequence).unwrap(), cost()), (true, [1, 0]));
    assert_eq!((remove(second.sequence).unwrap(), cost()), (false, [0, 0]));
}

#[test]
fn a_comparison_with_damage_is_an_error_and_changes_nothing() {
    let disk = SimDisk::new(6);
    let store = create_on(&disk, &store_options(4 << 20));
    let served = Served::start(store, &threads(4)).unwrap();
    let stored = served.put(id(1), value(1, 9000)).wait().unwrap();
    let faults = disk.faults();
    for fault in [Fault::Flip, Fault::Error] {
        faults.fail_from(Operation::Read, faults.count(Operation::Read), fault);
        let wanted = match fault {
            Fault::Flip => Kind::Corrupted,
            _ => Kind::Io,
        };
        let put = served.compare_and_put(id(1), Some(stored.sequence), value(2, 9000));
        refusal(put.wait(), wanted);
        refusal(served.sequence(id(1)).wait(), wanted);
        let remove = served.compare_and_remove(id(1), stored.sequence);
        refusal(remove.wait(), wanted);
        faults.clear();
        // Its turn is over.
        let found = served.get(id(1)).wait().unwrap();
        assert_eq!(found, Some(value(1, 9000).into()));
        served.store().put(id(2), &value(2, 9000)).unwrap();
    }
    let next = faults.count(Operation::Write);
    faults.fail(Operation::Write, next, Fault::Error);
    let put = served.compare_and_put(id(1), Some(stored.sequence), value(2, 9000));
    refusal(put.wait(), Kind::Io);
    let put = served.compare_and_put(id(1), Some(stored.sequence), value(2, 9000));
    assert!(put.wait().unwrap().unwrap().replaced);
}

#[test]
fn batches_on_a_storage_that_dawdles_are_done_in_order() {
    let below = Memory::new(16 << 20).unwrap();
    below.resize(16 << 20).unwrap();
    let storage = Uneven::over(below, round_seed());
    let options = store_options(16 << 20);
    let store = Store::create_on(storage, None, &options, &mut |_, _| {}).unwrap();
    let served = Served::start(Arc::new(store), &threads(7)).unwrap();
    let mut random = Random::new(round_seed());
    let mut model = std::collections::BTreeMap::new();
    let mut pending = Vec::new();
    for version in 0..60 {
        // Two groups at once, so that batches meet.
        let (a, b) = (random.below(GROUPS), random.below(GROUPS - 1));
        let mut batch = batch_of(&mut random, a, version);
        batch.extend(batch_of(&mut random, (a + b + 1) % GROUPS, version << 32));
        for (id, value) in &batch {
            model.insert(*id, value.clone());
        }
        pending.push(served.apply(batch).send());
    }
    let sequences = wait_all(pending);
    assert!(sequences.iter().all(|of| of.len() == 2 * GROUP as usize));
    let all: Batch = model.into_iter().collect();
    assert_there(&served, &all);
    assert!(served.metrics().in_flight_max > 1);
    served.store().check_room().unwrap();
}
