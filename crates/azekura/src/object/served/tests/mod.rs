//! A store that is served answers like a map, keeps the order of each object, has as much in flight as it may, shares
//! syncs, and answers everybody, whatever fails or ends.
//!
//! What is in flight is decided by gates (`gated`), not by chance; order and answers are held against a map (`model`), and what
//! ends leave against a history (`crash`). Batches, comparisons and checkpoints: `batches`.

mod batches;
mod crash;
mod gated;
mod late;
mod model;

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::{Options, Pending, Served};
use crate::engine::Durability;
use crate::error::{Kind, Result, refusal};
use crate::io::file::File;
use crate::io::flight::Means;
use crate::io::memory::Memory;
use crate::io::sim::{Fault, Operation, SimDisk};
use crate::io::{Access, Directory, Storage};
use crate::object::{CreateOptions, ObjectId, Store};
use crate::queue::{Deadline, Remedy, Signs};
use crate::testkit::{Random, round_seed};
use gated::Gated;

const NAME: &str = "served.azo";

/// Changes of objects: the value, or none if it is removed.
type Batch = Vec<(ObjectId, Option<Vec<u8>>)>;

fn id(n: u64) -> ObjectId {
    ObjectId(u128::from(n) << 100 | 7)
}

fn value(version: u64, len: usize) -> Vec<u8> {
    Random::new(version).bytes(len)
}

fn store_options(capacity: u64) -> CreateOptions {
    CreateOptions::new()
        .capacity(capacity)
        .journal_size(256 << 10)
        .group_size(128 << 10)
        .background(false)
}

fn threads(depth: usize) -> Options {
    Options {
        depth,
        means: Means::Threads,
        ..Options::default()
    }
}

fn create_on(disk: &SimDisk, options: &CreateOptions) -> Arc<Store> {
    let directory = disk.directory();
    Arc::new(Store::create_in(&directory, Path::new(NAME), options, &mut |_, _| {}).unwrap())
}

fn open_on(disk: &SimDisk, options: &CreateOptions) -> Store {
    let storage = disk.directory().open(Path::new(NAME), Access::Write);
    Store::open_on(storage.unwrap(), None, &options.opening).unwrap()
}

/// What a request for object `n` returns.
fn got(served: &Served, n: u64) -> Option<Vec<u8>> {
    served.get(id(n)).wait().unwrap().map(Into::into)
}

fn wait_all<T>(pending: impl IntoIterator<Item = Pending<T>>) -> Vec<T> {
    let answers = pending.into_iter().map(Pending::wait);
    answers.map(Result::unwrap).collect()
}

/// A store whose values have a device of their own, of which writes can be held up.
fn apart() -> (Arc<Gated>, Served) {
    let [journal, below] = [256 << 10, 8 << 20].map(|size| {
        let memory = Memory::new(8 << 20).unwrap();
        memory.resize(size).unwrap();
        memory
    });
    let storage = Gated::new(below);
    let data: Arc<dyn Storage> = Arc::clone(&storage) as _;
    let options = store_options(8 << 20).journal_size(None);
    let store = Store::create_on(journal, Some(data), &options, &mut |_, _| {}).unwrap();
    let served = Served::start(Arc::new(store), &threads(2)).unwrap();
    (storage, served)
}

/// A store in a file whose writes and syncs can be held up.
fn gated(options: &Options) -> (tempfile::TempDir, Arc<Gated>, Served) {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join(NAME)).unwrap();
    file.resize(8 << 20).unwrap();
    let storage = Gated::new(Arc::new(file));
    let below: Arc<dyn Storage> = Arc::clone(&storage) as _;
    let store = Store::create_on(below, None, &store_options(8 << 20), &mut |_, _| {}).unwrap();
    let served = Served::start(Arc::new(store), options).unwrap();
    (folder, storage, served)
}

#[test]
fn as_many_are_in_flight_as_may_and_the_rest_waits() {
    let (_folder, storage, served) = gated(&threads(16));
    let put = |n| served.put(id(n), value(n, 5000)).send();
    let pending: Vec<_> = storage.writes.hold(16, || (0..20).map(put).collect());
    let metrics = served.metrics();
    assert_eq!((metrics.in_flight, metrics.in_flight_max), (16, 16));
    assert_eq!(metrics.len, 4);
    assert_eq!(storage.writes.waiting(), 16);
    storage.writes.open();
    for (n, pending) in (0..).zip(pending) {
        assert!(!pending.wait().unwrap().replaced);
        let found = served.store().get(id(n)).unwrap();
        assert_eq!(found, Some(value(n, 5000).into()));
    }
    let metrics = served.metrics();
    assert_eq!((metrics.counters.done, metrics.times.count()), (20, 20));
}

#[test]
fn the_stores_figures_count_requests_by_any_means() {
    for means in [Means::Threads, Means::Best] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path().join(NAME), &store_options(8 << 20)).unwrap();
        let options = Options {
            means,
            ..Options::default()
        };
        let served = Served::start(Arc::new(store), &options).unwrap();
        let figures = || {
            let stats = served.store().stats().unwrap();
            let (writes, reads) = (stats.device_writes, stats.device_reads);
            [
                writes,
                stats.device_write_bytes,
                reads,
                stats.device_read_bytes,
            ]
        };
        let before = figures();
        for n in 0..10 {
            served.put(id(n), value(n, 5000)).wait().unwrap();
            assert_eq!(got(&served, n), Some(value(n, 5000)));
        }
        let asked = figures();
        let more = std::array::from_fn(|at| asked[at] - before[at]);
        assert_eq!([10, 81_920, 10, 81_920], more, "{}", served.means());
    }
}

#[test]
fn puts_that_land_while_a_sync_is_made_share_the_next() {
    let (_folder, storage, served) = gated(&threads(4));
    let durable = |n| {
        let put = served.put(id(n), value(n, 5000));
        put.durability(Durability::Power).send()
    };
    let before = *storage.synced.lock();
    let first = storage.syncs.hold(1, || durable(0));
    let others: Vec<_> = (1..9).map(durable).collect();
    let sync = served.sync().send();
    while served.metrics().counters.done < 9 {
        std::thread::yield_now();
    }
    // Done in the thread, after all that was done before.
    assert_eq!(served.head(id(3)).wait().unwrap(), Some(5000));
    assert!(!first.is_there() && others.iter().all(|other| !other.is_there()));
    storage.syncs.open();
    first.wait().unwrap();
    wait_all(others);
    sync.wait().unwrap();
    assert_eq!(*storage.synced.lock() - before, 2);
}

#[test]
fn stopping_fails_what_waits_and_finishes_what_flies() {
    let (_folder, storage, served) = gated(&threads(4));
    let put = |n| served.put(id(n), value(n, 5000)).send();
    let pending: Vec<_> = storage.writes.hold(4, || (0..10).map(put).collect());
    served.stop();
    assert!(served.is_stopped());
    let mut pending = pending.into_iter();
    let flying: Vec<_> = pending.by_ref().take(4).collect();
    // While the gate is still closed.
    for waiting in pending {
        refusal(waiting.wait(), Kind::Poisoned);
    }
    refusal(served.head(id(0)).wait(), Kind::Poisoned);
    storage.writes.open();
    let store = Arc::clone(served.store());
    drop(served);
    for (n, flying) in (0..).zip(flying) {
        flying.wait().unwrap();
        assert_eq!(store.get(id(n)).unwrap(), Some(value(n, 5000).into()));
    }
    assert_eq!(store.count(), 4);
    // The store is open.
    store.put(id(9), b"direct").unwrap();
    store.check_room().unwrap();
}

#[test]
fn dropping_answers_everybody_and_keeps_what_was_acknowledged() {
    for round in 0..8 {
        let disk = SimDisk::new(round);
        let options = store_options(4 << 20);
        let store = create_on(&disk, &options);
        let served = Served::start(Arc::clone(&store), &threads(16)).unwrap();
        let pending: Vec<_> = (0..64)
            .map(|n| {
                let put = served.put(id(n), value(n, 3000 + n as usize));
                put.durability(Durability::Power).send()
            })
            .collect();
        drop(served);
        let killed = open_on(&disk.kill_state(disk.events()), &options);
        let mut there = 0;
        for (n, pending) in (0..).zip(pending) {
            assert!(pending.is_there());
            let wanted = match pending.wait() {
                Ok(_) => Some(value(n, 3000 + n as usize).into()),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Poisoned, "{error}");
                    None
                }
            };
            there += u64::from(wanted.is_some());
            assert_eq!(store.get(id(n)).unwrap(), wanted);
            assert_eq!(killed.get(id(n)).unwrap(), wanted);
        }
        assert_eq!(store.count(), there);
        store.check_room().unwrap();
    }
}

#[test]
fn a_put_whose_write_fails_leaves_the_old_object() {
    for fault in [Fault::Error, Fault::Short(4096), Fault::Torn] {
        let disk = SimDisk::new(5);
        let options = store_options(4 << 20);
        let store = create_on(&disk, &options);
        let served = Served::start(Arc::clone(&store), &threads(16)).unwrap();
        served.put(id(1), value(1, 9000)).wait().unwrap();
        let faults = disk.faults();
        faults.fail(Operation::Write, faults.count(Operation::Write), fault);
        refusal(served.put(id(1), value(2, 9000)).wait(), Kind::Io);
        assert_eq!(got(&served, 1), Some(value(1, 9000)));
        let killed = open_on(&disk.kill_state(disk.events()), &options);
        assert_eq!(killed.get(id(1)).unwrap(), Some(value(1, 9000).into()));
        assert!(served.put(id(1), value(3, 9000)).wait().unwrap().replaced);
        assert_eq!(got(&served, 1), Some(value(3, 9000)));
        assert_eq!(served.metrics().counters.failed, 1);
        store.check_room().unwrap();
    }
}

#[test]
fn a_device_that_fails_stops_the_queue_and_not_the_store() {
    let mut options = threads(2);
    options.queue.signs = Signs {
        errors: 1,
        remedy: Remedy::Stop,
        ..Signs::default()
    };
    let (_folder, storage, served) = gated(&options);
    *storage.fails.lock() = true;
    refusal(served.put(id(1), value(1, 9000)).wait(), Kind::Io);
    assert!(served.is_stopped());
    *storage.fails.lock() = false;
    refusal(served.put(id(1), value(1, 9000)).wait(), Kind::Poisoned);
    assert_eq!(served.metrics().findings, 1);
    served.store().put(id(1), &value(1, 9000)).unwrap();
}

#[test]
fn a_storage_that_panics_fails_the_request_alone() {
    let (_folder, storage, served) = gated(&threads(2));
    *storage.panics.lock() = true;
    assert!(served.put(id(1), value(1, 9000)).wait().is_err());
    *storage.panics.lock() = false;
    served.put(id(1), value(2, 9000)).wait().unwrap();
    assert_eq!(got(&served, 1), Some(value(2, 9000)));
}

#[test]
fn damage_is_an_error_that_names_the_object() {
    let disk = SimDisk::new(6);
    let served = Served::start(create_on(&disk, &store_options(4 << 20)), &threads(4)).unwrap();
    served.put(id(1), value(1, 9000)).wait().unwrap();
    let faults = disk.faults();
    let reads = faults.count(Operation::Read);
    faults.fail_from(Operation::Read, reads, Fault::Flip);
    let error = refusal(served.get(id(1)).wait(), Kind::Corrupted);
    assert!(error.contains(&id(1).to_string()), "{error}");
    // Looked at as often as it may have moved, and once in its turn.
    assert_eq!(faults.count(Operation::Read) - reads, 4);
    faults.clear();
    assert_eq!(got(&served, 1), Some(value(1, 9000)));
}

#[test]
fn late_requests_fail_where_they_should() {
    let mut options = threads(1);
    options.queue.fail_late = true;
    let (_folder, storage, served) = gated(&options);
    let put = || served.put(id(1), value(1, 9000)).send();
    let flies = storage.writes.hold(1, put);
    let at_once = Deadline::Within(std::time::Duration::ZERO);
    let late = served.put(id(2), value(2, 9000)).deadline(at_once).send();
    let patient = served.put(id(3), value(3, 9000)).send();
    storage.writes.open();
    flies.wait().unwrap();
    let error = refusal(late.wait(), Kind::Full);
    assert!(error.contains("deadline"), "{error}");
    patient.wait().unwrap();
    assert_eq!(served.metrics().counters.late, 1);
    assert_eq!(served.store().count(), 2);
}

#[test]
fn late_requests_fail_in_time_while_all_that_may_fly_hangs() {
    let mut options = threads(2);
    options.queue.fail_late = true;
    let (_folder, storage, served) = gated(&options);
    let put = || [1, 2].map(|n| served.put(id(n), value(n, 9000)).send());
    let flying = storage.writes.hold(2, put);
    let dated = |n: u64, millis| {
        let put = served.put(id(n), value(n, 9000));
        let deadline = Deadline::Within(std::time::Duration::from_millis(millis));
        put.deadline(deadline).send()
    };
    // The second is due before the one that the thread waits for.
    for late in [dated(3, 60), dated(4, 5)] {
        // The gate is still closed.
        let error = refusal(late.wait(), Kind::Full);
        assert!(error.contains("deadline"), "{error}");
    }
    assert_eq!(storage.writes.waiting(), 2);
    storage.writes.open();
    wait_all(flying);
    assert_eq!(served.metrics().counters.late, 2);
    assert_eq!(served.store().count(), 2);
}

#[test]
fn what_needs_no_access_is_done_while_all_that_may_fly_hangs() {
    // The journal is elsewhere: who waits, waits for the data.
    let (storage, served) = apart();
    for n in 0..4 {
        served.put(id(n), value(n, 9000)).wait().unwrap();
    }
    let put = || [0, 1].map(|n| served.put(id(n), value(9, 9500)).send());
    let flying = storage.writes.hold(2, put);
    let waits = served.put(id(2), value(9, 9500)).send();
    // The gate is still closed.
    assert_eq!(served.head(id(3)).wait().unwrap(), Some(9000));
    assert!(served.remove(id(3)).wait().unwrap());
    assert_eq!(served.usage(id(3)..).wait().unwrap().count, 0);
    assert_eq!(served.list(id(3).., 9).wait().unwrap(), []);
    served.sync().wait().unwrap();
    // What touches the same objects keeps its order.
    let heads = [0, 2].map(|n| served.head(id(n)).deadline(Deadline::Immediate).send());
    let removed = served.remove_range(id(0)..id(3)).send();
    assert_eq!(served.head(id(7)).wait().unwrap(), None);
    assert!(heads.iter().all(|head| !head.is_there()) && !removed.is_there());
    assert_eq!(storage.writes.waiting(), 2);
    storage.writes.open();
    wait_all(flying.into_iter().chain([waits]));
    assert_eq!(wait_all(heads), [Some(9500); 2]);
    assert_eq!(removed.wait().unwrap(), 3);
}

/// A request that has begun is carried out, though its answer is dropped.
#[test]
fn a_dropped_request_that_has_not_begun_leaves_the_queue_and_changes_nothing() {
    let mut options = threads(1);
    options.queue.limits.len_max = 4;
    let (_folder, storage, served) = gated(&options);
    let put = |n: u64| served.put(id(n), value(n, 9000)).send();
    let begun = storage.writes.hold(1, || put(0));
    let waiting: Vec<_> = (1..5).map(put).collect();
    refusal(put(9).wait(), Kind::Full);
    assert_eq!(served.metrics().len, 4);
    drop(waiting);
    assert_eq!(served.metrics().len, 0);
    let others: Vec<_> = (5..8).map(put).collect();
    let head = served.head(id(0)).send();
    refusal(put(9).wait(), Kind::Full);
    drop(begun);
    assert_eq!(served.metrics().in_flight, 1);
    storage.writes.open();
    assert_eq!(head.wait().unwrap(), Some(9000));
    wait_all(others);
    let ids = served.store().list(..).map(|object| object.unwrap().id);
    assert!(ids.eq([0, 5, 6, 7].map(id)));
    let counters = served.metrics().counters;
    assert_eq!((counters.cancelled, counters.refused), (4, 2));
    assert_eq!((counters.enqueued, counters.done), (9, 5));
}

/// A dropped request keeps its place in the order of those that touch the same objects, and changes nothing.
#[test]
fn what_waited_for_a_dropped_request_waits_for_those_before_it() {
    let (_folder, storage, served) = gated(&threads(2));
    let put = || served.put(id(1), value(1, 9000)).send();
    let begun = storage.writes.hold(1, put);
    let removed = served.remove_range(id(1)..id(3)).send();
    let head = served.head(id(1)).send();
    assert!(!head.is_there() && !removed.is_there());
    drop(removed);
    assert_eq!(served.metrics().len, 1);
    // One that no request is before begins, while the put is still in flight.
    assert_eq!(served.head(id(7)).wait().unwrap(), None);
    assert!(!head.is_there());
    assert_eq!(storage.writes.waiting(), 1);
    storage.writes.open();
    begun.wait().unwrap();
    assert_eq!(head.wait().unwrap(), Some(9000));
    assert_eq!(served.store().count(), 1);
    assert_eq!(served.metrics().counters.cancelled, 1);
}

/// It begins at once, though the device takes nothing.
#[test]
fn what_waited_for_a_dropped_request_alone_begins() {
    let (_folder, storage, served) = gated(&threads(1));
    let put = || served.put(id(0), value(0, 9000)).send();
    let begun = storage.writes.hold(1, put);
    let waiting = served.put(id(1), value(1, 9000)).send();
    let head = served.head(id(1)).send();
    while !served.shared.state.lock().asleep {
        std::thread::yield_now();
    }
    assert!(!head.is_there());
    drop(waiting);
    assert_eq!(head.wait().unwrap(), None);
    assert_eq!(storage.writes.waiting(), 1);
    storage.writes.open();
    begun.wait().unwrap();
}

#[test]
fn a_removal_is_synced_if_its_durability_asks_for_it() {
    let (_folder, storage, served) = gated(&threads(4));
    for n in 0..4 {
        served.put(id(n), value(n, 5000)).wait().unwrap();
    }
    let synced = || *storage.synced.lock();
    let before = synced();
    assert!(served.remove(id(0)).wait().unwrap());
    assert_eq!(served.remove_range(id(1)..id(2)).wait().unwrap(), 1);
    assert_eq!(synced(), before);
    let durable = served.remove(id(2)).durability(Durability::Power);
    assert!(durable.wait().unwrap());
    assert_eq!(synced(), before + 1);
    let durable = served.remove_range(id(3)..).durability(Durability::Power);
    assert_eq!(durable.wait().unwrap(), 1);
    assert_eq!(synced(), before + 2);
}

#[test]
fn the_urgent_goes_first() {
    let (_folder, storage, served) = gated(&threads(1));
    let put = || served.put(id(0), value(0, 9000)).send();
    let flies = storage.writes.hold(1, put);
    let whenever = served.put(id(1), value(1, 9000)).send();
    let soon = Deadline::Within(std::time::Duration::from_secs(9));
    let soon = served.put(id(2), value(2, 9000)).deadline(soon).send();
    let now = served.put(id(3), value(3, 9000));
    let now = now.deadline(Deadline::Immediate).send();
    storage.writes.open();
    let order = wait_all([flies, now, soon, whenever]);
    let sequences: Vec<u64> = order.iter().map(|stored| stored.sequence).collect();
    assert!(sequences.is_sorted(), "{sequences:?}");
}

#[test]
fn drafts_are_put_as_values_are() {
    let store = create_on(&SimDisk::new(8), &store_options(4 << 20));
    let served = Served::start(store, &threads(1)).unwrap();
    for len in [100, 9000, 100_000] {
        let mut draft = served.store().draft(len as u64).unwrap();
        draft.fill_from(&mut &value(1, len)[..]).unwrap();
        served.put_draft(id(1), draft).wait().unwrap();
        assert_eq!(got(&served, 1), Some(value(1, len)));
    }
    for len in [100, 9000] {
        let unfilled = served.store().draft(len).unwrap();
        refusal(served.put_draft(id(2), unfilled).wait(), Kind::Invalid);
    }
    assert_eq!(served.store().count(), 1);
}

#[test]
fn what_cannot_be_is_refused() {
    let disk = SimDisk::new(7);
    let store = create_on(&disk, &store_options(4 << 20));
    let started = Served::start(Arc::clone(&store), &threads(0));
    refusal(started, Kind::Invalid);
    let served = Served::start(Arc::clone(&store), &threads(1)).unwrap();
    let large = vec![0; store.len_max() as usize + 1];
    refusal(served.put(id(1), large).wait(), Kind::TooLarge);
    assert_eq!(served.remove_range(id(2)..id(1)).wait().unwrap(), 0);
    assert_eq!(served.list(.., 0).wait().unwrap(), []);
    assert_eq!(served.metrics().counters.failed, 0);
}

/// Wakes a thread, once for each time it was unwoken.
struct Alarm {
    rang: AtomicBool,
    thread: std::thread::Thread,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rang.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Polls all tasks to their ends, each only when it was woken.
fn run_all<T>(tasks: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut tasks: Vec<_> = tasks.into_iter().map(Box::pin).collect();
    let alarm = || Alarm {
        rang: AtomicBool::new(true),
        thread: std::thread::current(),
    };
    let alarms: Vec<_> = tasks.iter().map(|_| Arc::new(alarm())).collect();
    let mut done: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
    while done.iter().any(Option::is_none) {
        for ((task, alarm), done) in tasks.iter_mut().zip(&alarms).zip(&mut done) {
            if done.is_none() && alarm.rang.swap(false, Ordering::SeqCst) {
                let waker = Waker::from(Arc::clone(alarm));
                if let Poll::Ready(result) = pin!(task).poll(&mut Context::from_waker(&waker)) {
                    *done = Some(result);
                }
            }
        }
        let is_idle = !alarms.iter().any(|alarm| alarm.rang.load(Ordering::SeqCst));
        if is_idle && done.iter().any(Option::is_none) {
            std::thread::park();
        }
    }
    done.into_iter().flatten().collect()
}

#[test]
fn futures_need_no_runtime() {
    let disk = SimDisk::new(8);
    let served = Served::start(create_on(&disk, &store_options(4 << 20)), &threads(16)).unwrap();
    let served = &served;
    let task = |n: u64| async move {
        for round in 0..20 {
            let wanted = value(n << 8 | round, (n * 700 + round) as usize);
            let stored = served.put(id(n), wanted.clone()).await?;
            assert_eq!(stored.replaced, round > 0);
            let found = served.get(id(n)).deadline(Deadline::Immediate).await?;
            assert_eq!(found, Some(wanted.into()));
        }
        served.remove(id(n)).await
    };
    let removed: Vec<Result<bool>> = run_all((0..16).map(task).collect());
    assert!(removed.into_iter().all(|removed| removed.unwrap()));
    assert_eq!(served.store().count(), 0);
}

#[test]
fn many_threads_wait_and_call_the_store_besides() {
    let folder = tempfile::tempdir().unwrap();
    let options = store_options(32 << 20).background(true);
    let store = Store::create(folder.path().join(NAME), &options).unwrap();
    let served = Served::start(Arc::new(store), &Options::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let served = &served;
            scope.spawn(move || {
                for round in 0..150u64 {
                    // An object that states who put it, and one of one's own.
                    let shared = id(round % 5);
                    let own = id(100 + thread);
                    let bytes = vec![thread as u8; 3000 + 500 * thread as usize];
                    if thread % 2 == 0 {
                        served.put(shared, bytes.clone()).wait().unwrap();
                    } else {
                        served.store().put(shared, &bytes).unwrap();
                    }
                    let found = served.get(shared).wait().unwrap().unwrap();
                    let by = usize::from(found[0]);
                    assert_eq!(found, vec![by as u8; 3000 + 500 * by]);
                    let durable = served.put(own, bytes.clone());
                    durable.durability(Durability::Power).wait().unwrap();
                    assert_eq!(served.store().get(own).unwrap(), Some(bytes.into()));
                }
            });
        }
    });
    served.store().check_room().unwrap();
    assert_eq!(served.store().count(), 11);
}
