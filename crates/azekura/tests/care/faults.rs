//! Every write, sync, resize and read of the device fails once: nothing acknowledged is lost, and nothing is made up.
//!
//! After a failure the handle continues or is poisoned; the store that opens then, also after a death or a power cut, has of each
//! object a state that it had or was about to get. Options and workloads are drawn from seeds. A store that swallows an error is
//! seen.
//! Lines beginning `tried:` state how much was tried.

use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::io::memory::Memory;
use azekura::io::over::Over;
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::io::{Directory as _, Storage};
use azekura::object::{CreateOptions, Store};
use azekura::testkit::configuration::object_options;
use azekura::testkit::crash::{Config, Counts, Ledger, fail_each};
use azekura::testkit::suite::{case, demand, share, tried_in_rounds};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Error, Kind, Result};

use super::defects::{Do, Effects, act, create, open, verify};
use super::{id, options, value};

fn steps(seed: u64) -> Vec<Do> {
    let mut random = Random::new(9 + seed);
    (0..50)
        .map(|at| match random.below(14) {
            0 => Do::Sync,
            1 => Do::Checkpoint,
            2..5 => Do::Remove(random.below(8)),
            _ => Do::Put(
                random.below(8),
                at,
                *random.choose(&[10, 5000, 9000, 66_000]),
            ),
        })
        .collect()
}

/// Works until the first error.
fn work(disk: &SimDisk, ledger: &Ledger, steps: &[Do], options: &CreateOptions, swallows: bool) {
    let Ok(store) = create(disk, options) else {
        return;
    };
    for step in steps {
        let of = match step {
            Do::Put(n, ..) | Do::Remove(n) => Some(*n),
            _ => None,
        };
        let before = of.map(|n| store.get(id(n)));
        let done = match of {
            Some(_) => ledger.operation(|| match act(&store, *step) {
                Err(_) if swallows => Ok(()),
                done => done,
            }),
            None => act(&store, *step).map(|()| ledger.synced()),
        };
        if done.is_ok() && of.is_some() && options.opening.durability == Durability::Power {
            ledger.synced();
        }
        let Err(error) = done else { continue };
        let kinds = [Kind::Io, Kind::Full, Kind::Poisoned];
        assert!(
            kinds.contains(&error.kind()),
            "a fault is reported as one: {error}"
        );
        // What was there is still read, until the new value is there.
        if let (Some(n), Some(Ok(before)), Do::Put(_, version, len)) = (of, before, *step) {
            let now = store.get(id(n)).unwrap();
            assert!(
                now == before || now == Some(value(version, len).into()),
                "{error}"
            );
        }
        return;
    }
    if store.close().is_ok() {
        ledger.synced();
    }
}

fn try_each(
    operation: Operation,
    fault: Fault,
    seed: u64,
    options: &CreateOptions,
    swallows: bool,
) -> Counts {
    let steps = steps(seed);
    let effects = Effects::of(&steps);
    let mut config = Config::new(5 + seed).quick(8);
    config.recovery_one_in = 0;
    fail_each(
        &config,
        operation,
        fault,
        |disk, ledger| work(disk, ledger, &steps, options, swallows),
        |crash| verify(crash, &effects, options),
    )
}

/// Each call of `operation` fails once, under options of several seeds.
fn fail(operation: Operation, fault: Fault) {
    let mut sum = try_each(operation, fault, 0, &options(), false);
    assert!(sum.kills > 0, "{operation:?} is called and fails");
    let drawn = share(7).max(2);
    for seed in 1..=drawn {
        let seed = seed + round_seed();
        let options = object_options(&mut Random::new(!seed), 768 << 10);
        let _shown = case(seed, &options);
        sum = sum.plus(try_each(operation, fault, seed, &options, false));
    }
    let what = format!("states after {operation:?} failed by {fault:?}: {sum:?}");
    let least = match (operation, fault) {
        (Operation::Write, Fault::Torn) => 900,
        (Operation::Write, Fault::Short(_)) => 770,
        (Operation::Write, _) => 530,
        (Operation::Sync, _) => 580,
        (Operation::Resize, _) => 12,
        _ => 5,
    };
    tried_in_rounds(sum.crash_states + sum.kills, 1 + drawn, least, &what);
}

#[test]
fn a_write_that_fails_loses_nothing() {
    for fault in [Fault::Error, Fault::Full, Fault::Short(4096), Fault::Torn] {
        fail(Operation::Write, fault);
    }
}

#[test]
fn a_sync_that_fails_loses_nothing_synced() {
    fail(Operation::Sync, Fault::Error);
}

#[test]
fn room_that_is_refused_loses_nothing() {
    fail(Operation::Resize, Fault::Full);
    fail(Operation::Discard, Fault::Error);
}

#[test]
fn an_error_that_is_swallowed_is_seen() {
    let seen = catch_unwind(|| try_each(Operation::Write, Fault::Error, 0, &options(), true));
    let seen = seen.expect_err("it is seen").downcast::<String>();
    assert!(seen.expect("a message").contains("legal are"));
}

#[test]
fn a_read_that_fails_or_lies_is_an_error_or_the_right_bytes() {
    let disk = SimDisk::new(4);
    let store = create(&disk, &options()).unwrap();
    for n in 0..8 {
        store.put(id(n), &value(n, 9000 * n as usize)).unwrap();
    }
    let mut refused = 0;
    for fault in [Fault::Error, Fault::Flip] {
        for many in [false, true] {
            for n in 0..8 {
                let next = disk.faults().count(Operation::Read);
                if many {
                    disk.faults().fail_from(Operation::Read, next, fault);
                } else {
                    disk.faults().fail(Operation::Read, next, fault);
                }
                match store.get(id(n)) {
                    Ok(found) => assert_eq!(found, Some(value(n, 9000 * n as usize).into())),
                    Err(error) => {
                        refused += 1;
                        assert!(
                            matches!(error.kind(), Kind::Io | Kind::Corrupted),
                            "{error}"
                        );
                    }
                }
                disk.faults().clear();
                let found = store.get(id(n)).unwrap();
                assert_eq!(found, Some(value(n, 9000 * n as usize).into()));
            }
        }
    }
    assert!(refused >= 20, "{refused} reads failed");
    store.close().unwrap();
    // Opening reads, too.
    let mut failed = 0;
    for nth in 0..12 {
        let next = disk.faults().count(Operation::Read) + nth;
        disk.faults().fail(Operation::Read, next, Fault::Error);
        let opened = open(&disk, &options());
        disk.faults().clear();
        // What cannot be read the first time costs nothing but changes.
        let store = opened.unwrap();
        failed += u64::from(store.is_read_only());
        for n in 0..8 {
            let found = store.get(id(n)).unwrap();
            assert_eq!(found, Some(value(n, 9000 * n as usize).into()));
        }
        store.close().unwrap();
    }
    assert!(failed >= 2, "{failed} opens met the fault");
    assert_eq!(open(&disk, &options()).unwrap().count(), 8);
}

/// A device whose first sync after `fails` ends when all who are to wait have come, and fails.
#[derive(Debug)]
struct Lost {
    memory: Arc<Memory>,
    fails: AtomicBool,
    waiting: AtomicU64,
    syncs: AtomicU64,
}

impl Over for Lost {
    fn below(&self) -> &dyn Storage {
        self.memory.as_ref()
    }

    fn sync(&self) -> Result<()> {
        if !self.fails.load(Ordering::SeqCst) {
            return self.memory.sync();
        }
        self.syncs.fetch_add(1, Ordering::SeqCst);
        while self.waiting.load(Ordering::SeqCst) < WAITING {
            std::thread::yield_now();
        }
        // They are about to wait for this sync.
        std::thread::sleep(std::time::Duration::from_millis(100));
        Err(Error::new(Kind::Io, "the device is gone"))
    }
}

const WAITING: u64 = 4;

#[test]
fn who_waited_for_a_sync_that_failed_asks_the_device_for_no_other() {
    let lost = Arc::new(Lost {
        memory: Memory::new(8 << 20).unwrap(),
        fails: AtomicBool::new(false),
        waiting: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
    });
    lost.memory.resize(8 << 20).unwrap();
    let storage = Arc::clone(&lost) as Arc<dyn Storage>;
    let options = CreateOptions::new().background(false);
    let store = Store::create_on(storage, None, &options, &mut |_, _| {}).unwrap();
    store.put(id(1), &value(1, 5000)).unwrap();
    lost.fails.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..WAITING {
            scope.spawn(|| {
                lost.waiting.fetch_add(1, Ordering::SeqCst);
                assert!(store.sync().is_err());
            });
        }
    });
    assert_eq!(lost.syncs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_copy_of_which_a_call_fails_is_an_error_and_leaves_no_name() {
    let operations = [
        Operation::Write,
        Operation::Sync,
        Operation::Name,
        Operation::SyncNames,
    ];
    let mut tried = 0;
    for operation in operations {
        for nth in 0..200 {
            let disk = SimDisk::new(1);
            let (directory, copy) = (disk.directory(), Path::new("copy"));
            let store = create(&disk, &options()).unwrap();
            for n in 0..8 {
                store.put(id(n), &value(n, 5000)).unwrap();
            }
            store.checkpoint().unwrap();
            let count = disk.faults().count(operation);
            disk.faults().fail(operation, count + nth, Fault::Error);
            let copied = store.copy_in(&directory, copy, &mut |_, _| {});
            let struck = disk.faults().struck();
            disk.faults().clear();
            if struck == 0 {
                copied.unwrap();
                break;
            }
            assert!(
                copied.is_err(),
                "{operation:?} {nth}: the error is swallowed"
            );
            assert!(
                !directory.exists(copy).unwrap(),
                "{operation:?} {nth}: the name stays"
            );
            tried += 1;
        }
    }
    demand(tried, 20, "copies of which a call failed");
}
