//! Power cuts and deaths while a store grows, is copied, or is repaired.
//!
//! Grown: the old size or the new one, and every object. A copy is there whole or not at all. A repair that was cut can be made
//! again, and brings back what it would have brought. Lines beginning `tried:` state how much was tried.

use std::path::Path;

use azekura::Kind;
use azekura::format::superblock::Superblock;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory};
use azekura::kernel::Payload;
use azekura::object::Store;
use azekura::object::layout::{ENGINE, ROOT_SEED, Root, Super};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::round_seed;
use azekura::testkit::suite::{share, tried_in_rounds};

use super::defects::{Do, NAME, create, every_crash, open};
use super::{contents, id, options, value};

#[test]
fn a_crash_while_growing_leaves_the_old_size_or_the_new() {
    let options = options()
        .capacity((256 << 10) + (96 << 10))
        .group_size(64 << 10);
    let mut steps = vec![Do::Put(1, 1, 40_000), Do::Put(2, 2, 30_000), Do::Sync];
    for round in 0..4u64 {
        steps.push(Do::Grow(
            (256 << 10) + (96 << 10) + (round + 1) * (40 << 10),
        ));
        steps.push(Do::Put(3 + round, 30 + round, 30_000));
        steps.push(Do::Put(1, 10 + round, 9_000));
    }
    every_crash("grow", &steps, &options, 1590);
}

fn filled(disk: &SimDisk, ledger: &Ledger) -> Store {
    let store = create(disk, &options()).unwrap();
    ledger.begin();
    for n in 0..8 {
        store.put(id(n), &value(n, 3000 * n as usize)).unwrap();
    }
    store.remove(id(0)).unwrap();
    store.checkpoint().unwrap();
    ledger.acknowledge();
    ledger.synced();
    store
}

/// Whether a store has what `filled` put there.
fn is_filled(store: &Store) -> Result<(), String> {
    store.check_room().map_err(|error| error.to_string())?;
    let all = contents(store);
    let right =
        all.len() == 7 && (1..8).all(|n| all.get(&id(n)) == Some(&value(n, 3000 * n as usize)));
    right
        .then_some(())
        .ok_or_else(|| format!("{:?}", all.keys()))
}

#[test]
fn a_crash_while_copying_leaves_a_whole_copy_or_none() {
    let mut counts = Counts::default();
    let rounds = share(20);
    for seed in 0..rounds {
        counts = counts.plus(cut_copies(3 + seed + round_seed()));
    }
    let what = format!("states of a store that was copied: {counts:?}");
    tried_in_rounds(counts.crash_states, rounds, 700, &what);
}

fn cut_copies(seed: u64) -> Counts {
    let copy = Path::new("copy.azo");
    let mut config = Config::new(seed).quick(120);
    config.recovery_one_in = 0;
    explore(
        &config,
        |disk, ledger| {
            let store = filled(disk, ledger);
            store
                .copy_in(&disk.directory(), copy, &mut |_, _| {})
                .unwrap();
            ledger.operation(|| store.close()).unwrap();
            ledger.synced();
        },
        |crash: &Crash<'_>| {
            let text = |error: azekura::Error| error.to_string();
            let directory = crash.disk.directory();
            let exists = directory.exists(copy).map_err(text)?;
            if exists {
                let storage = directory.open(copy, Access::Write).map_err(text)?;
                let store = Store::open_on(storage, None, &options().opening).map_err(text)?;
                is_filled(&store)?;
            } else if crash.kept() > 1 {
                return Err("the copy is gone".into());
            }
            crash.recovered();
            Ok(u64::from(exists))
        },
    )
}

/// Where the root of the last checkpoint, and the first leaf, stand in the file.
fn targets(disk: &SimDisk) -> [u64; 2] {
    let storage = disk
        .directory()
        .open(Path::new(NAME), Access::Write)
        .unwrap();
    let mut head = vec![0; 8192];
    storage.read_at(0, &mut head).unwrap();
    let block = Superblock::current(&head, &ENGINE).unwrap();
    let own = Super::decode(&block.payload).unwrap();
    let extent = own.manifest.root.unwrap();
    let seed = own.manifest.geometry.salt ^ ROOT_SEED;
    let bytes = azekura::log::manifest::read_extent(storage.as_ref(), extent, seed, "the root");
    let root = Root::decode(&bytes.unwrap()).unwrap();
    [extent.offset, root.leaves[0].1.unwrap().extent.offset]
}

fn repaired(disk: &SimDisk) -> azekura::Result<()> {
    let storage = disk.directory().open(Path::new(NAME), Access::Write)?;
    Store::repair_on(&storage, None, &mut |_, _| {}).map(drop)
}

fn cut_repairs(which: usize, seed: u64) -> Counts {
    let mut config = Config::new(7 + which as u64 + seed).quick(120);
    config.recovery_one_in = 32;
    explore(
        &config,
        |disk, ledger| {
            filled(disk, ledger).close().unwrap();
            disk.rot(NAME, targets(disk)[which] + 30, 4);
            repaired(disk).unwrap();
        },
        |crash: &Crash<'_>| {
            if crash.kept() == 0 {
                crash.recovered();
                return Ok(0);
            }
            // A leaf comes in when it is needed: opening does not see that it is damaged.
            let is_sound = |store: Store| {
                let report = store.check(false, &mut |_, _| {}).unwrap();
                report.is_sound().then_some(store)
            };
            let opened = match open(crash.disk, &options()) {
                Err(error) if error.kind() != Kind::Corrupted => return Err(error.to_string()),
                opened => opened.ok().and_then(is_sound),
            };
            let store = match opened {
                Some(store) => Ok(store),
                None => repaired(crash.disk).and_then(|()| open(crash.disk, &options())),
            };
            let store = store.map_err(|error| format!("it does not open: {error}"))?;
            crash.recovered();
            // With the root lost, what was removed may be back.
            if which == 0 && store.head(id(0)).unwrap().is_some() {
                store.remove(id(0)).unwrap();
            }
            is_filled(&store)?;
            store.remove_range(..).unwrap();
            store.close().map_err(|error| error.to_string())?;
            Ok(1)
        },
    )
}

#[test]
fn a_repair_that_is_cut_is_made_again() {
    for which in [0, 1] {
        let mut counts = Counts::default();
        let rounds = share(6).max(2);
        for seed in 0..rounds {
            counts = counts.plus(cut_repairs(which, seed + round_seed()));
        }
        let what = format!("states of a store that was repaired: {counts:?}");
        tried_in_rounds(counts.crash_states, rounds, 1700, &what);
    }
}
