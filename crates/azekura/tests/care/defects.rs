//! The twelve known defects of an older engine of this kind, each with its disaster in three lines, and that it stays away.
//!
//! Where a disaster needs a crash, the workload runs on the simulated disk, and every cut and death is looked at: of each
//! object there is a state that it had or was about to get, whole; nothing synced is lost. The store then takes more.
//! Lines beginning `tried:` state how much was tried.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use azekura::io::memory::Memory;
use azekura::io::sim::{Fault, Limits, Operation, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::object::{Change, CreateOptions, Store};
use azekura::testkit::crash::{Config, Counts, Crash, Ledger, explore};
use azekura::testkit::round_seed;
use azekura::testkit::suite::{demand, share, tried_in_rounds};
use azekura::{Durability, Kind, Result};

use super::{id, opened, options, store_with, value};

pub(crate) const NAME: &str = "defects.azo";

/// What a workload does; values are described by version and length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    Put(u64, u64, usize),
    Remove(u64),
    Sync,
    Checkpoint,
    /// To so many bytes.
    Grow(u64),
}

pub(crate) fn create(disk: &SimDisk, options: &CreateOptions) -> Result<Store> {
    Store::create_in(&disk.directory(), Path::new(NAME), options, &mut |_, _| {})
}

pub(crate) fn open(disk: &SimDisk, options: &CreateOptions) -> Result<Store> {
    let storage = disk.directory().open(Path::new(NAME), Access::Write)?;
    Store::open_on(storage, None, &options.opening)
}

/// What each change of a workload sets, and the bytes of each value, made once for all states.
pub(crate) struct Effects {
    sets: Vec<(u64, Option<(u64, usize)>)>,
    bytes: BTreeMap<(u64, usize), Vec<u8>>,
}

impl Effects {
    pub(crate) fn of(steps: &[Do]) -> Self {
        let effect = |step: &Do| match *step {
            Do::Put(n, version, len) => Some((n, Some((version, len)))),
            Do::Remove(n) => Some((n, None)),
            _ => None,
        };
        let sets: Vec<_> = steps.iter().filter_map(effect).collect();
        let values = sets.iter().filter_map(|(_, set)| *set);
        let bytes = values.map(|of| (of, value(of.0, of.1))).collect();
        Self { sets, bytes }
    }

    fn is(&self, found: Option<&[u8]>, set: Option<(u64, usize)>) -> bool {
        found == set.map(|of| &self.bytes[&of][..])
    }
}

/// Does one step.
pub(crate) fn act(store: &Store, step: Do) -> Result<()> {
    match step {
        Do::Put(n, version, len) => store.put(id(n), &value(version, len)).map(drop),
        Do::Remove(n) => store.remove(id(n)).map(drop),
        Do::Sync => store.sync(),
        Do::Checkpoint => store.checkpoint(),
        Do::Grow(capacity) => store.grow(Some(capacity)).map(drop),
    }
}

/// What opens after a crash, against what was done.
pub(crate) fn verify(
    crash: &Crash<'_>,
    effects: &Effects,
    options: &CreateOptions,
) -> std::result::Result<u64, String> {
    let text = |error: azekura::Error| error.to_string();
    if !crash
        .disk
        .directory()
        .exists(Path::new(NAME))
        .map_err(text)?
    {
        crash.recovered();
        return (crash.done.began == 0)
            .then_some(0)
            .ok_or("it is gone".into());
    }
    let store = open(crash.disk, options).map_err(|error| format!("it does not open: {error}"))?;
    crash.recovered();
    let mut legal: BTreeMap<u64, Vec<Option<(u64, usize)>>> = BTreeMap::new();
    for (at, (n, set)) in effects.sets.iter().enumerate().take(crash.done.began) {
        let states = legal.entry(*n).or_insert_with(|| vec![None]);
        if at < crash.kept() {
            states.clear();
        }
        states.push(*set);
    }
    let mut digest = 0u64;
    for n in 0..64 {
        let found = store.get(id(n)).map_err(text)?;
        let states = legal.get(&n).map_or(&[None][..], |states| &states[..]);
        let shown = states
            .iter()
            .find(|set| effects.is(found.as_deref(), **set));
        let Some(shown) = shown else {
            let len = found.map(|found| found.len());
            return Err(format!(
                "object {n} has {len:?} bytes; legal are {states:?}"
            ));
        };
        let sum = shown.map_or(1, |(version, _)| version + 2);
        digest = digest.wrapping_mul(31).wrapping_add(sum);
    }
    store.check_room().map_err(text)?;
    // Room that a crash left must not be lost, and removals always work.
    store.remove_range(..).map_err(text)?;
    store.put(id(1), &value(9999, 3000)).map_err(text)?;
    store.close().map_err(text)?;
    Ok(digest)
}

/// Each crash of this workload; of one seed so many states are tried at least.
pub(crate) fn every_crash(name: &str, steps: &[Do], options: &CreateOptions, least: u64) {
    let mut counts = Counts::default();
    let effects = Effects::of(steps);
    let rounds = share(6).max(2);
    for seed in 0..rounds {
        let mut config = Config::new(seed + round_seed()).quick(80);
        config.recovery_one_in = 64;
        let work = |disk: &SimDisk, ledger: &Ledger| {
            let store = create(disk, options).unwrap();
            for step in steps {
                match step {
                    Do::Put(..) | Do::Remove(_) => {
                        ledger.begin();
                        act(&store, *step).unwrap();
                        ledger.acknowledge();
                        if options.opening.durability == Durability::Power {
                            ledger.synced();
                        }
                    }
                    _ => {
                        act(&store, *step).unwrap();
                        ledger.synced();
                    }
                }
            }
            store.close().unwrap();
        };
        counts = counts.plus(explore(&config, work, |crash| {
            verify(crash, &effects, options)
        }));
    }
    let what = format!("states, {name}: {counts:?}");
    tried_in_rounds(counts.crash_states, rounds, least, &what);
}

/// Room for five objects of a unit or two.
fn tight() -> CreateOptions {
    options()
        .capacity((256 << 10) + (64 << 10))
        .group_size(64 << 10)
}

/// D1: an object was put and synced, then removed; its room was used again at once.
/// The process died before the removal was on the device.
/// The removed object was back, with the bytes of the other one.
#[test]
fn d1_room_is_used_again_only_when_what_freed_it_is_durable() {
    let mut steps = vec![Do::Put(1, 1, 28_000), Do::Put(2, 2, 28_000)];
    // The index on storage has them: one whose bytes are another's is not taken for removed.
    steps.push(Do::Checkpoint);
    for round in 0..6 {
        let at = 10 + 3 * round;
        steps.extend([Do::Remove(1), Do::Put(3, at, 28_000)]);
        steps.extend([Do::Remove(3), Do::Put(1, at + 1, 28_000), Do::Checkpoint]);
    }
    every_crash("d1", &steps, &tight(), 1_240);
}

/// D2: an object was put again with the same length, in place.
/// The power went in the middle of that write.
/// The object had the head of the new value and the tail of the old one, and no error.
#[test]
fn d2_a_value_is_never_written_over() {
    let steps: Vec<Do> = (0..12)
        .flat_map(|at| [Do::Put(1, at, 4000), Do::Put(2, 100 + at, 70_000), Do::Sync])
        .collect();
    every_crash("d2", &steps, &options(), 1_570);
}

/// D3: every operation was durable; an object was put again with another length.
/// Its new place overlapped the old one in part, and the process died in between.
/// The old value was garbage.
#[test]
fn d3_a_new_place_never_overlaps_the_old_one() {
    let options = tight().durability(Durability::Power);
    let lens = [9000, 13_000, 5000, 17_000, 100, 12_000];
    let steps: Vec<Do> = (0..30)
        .map(|at| Do::Put(at % 2, at, lens[at as usize % 6]))
        .collect();
    every_crash("d3", &steps, &options, 1_330);
}

/// D4: fifty objects were synced; the journal was cleaned.
/// The new beginning of the journal was stored while the records it had moved were still in memory; the process died.
/// There was no object left.
#[test]
fn d4_the_journal_begins_later_only_when_what_it_said_stands_elsewhere() {
    let mut steps: Vec<Do> = (0..50).map(|n| Do::Put(n, n, 100)).collect();
    steps.extend([Do::Sync, Do::Checkpoint, Do::Remove(7), Do::Checkpoint]);
    steps.extend([Do::Put(8, 88, 5000), Do::Checkpoint, Do::Checkpoint]);
    every_crash("d4", &steps, &options(), 1_560);
}

/// D5: many records went to the journal with one flush.
/// Some of its sectors arrived and some did not.
/// The file could not be opened any more.
#[test]
fn d5_a_torn_flush_of_the_journal_leaves_a_store_that_opens() {
    let mut steps = Vec::new();
    for round in 0..4 {
        steps.extend((0..40).map(|n| Do::Put(n, round * 100 + n, 10)));
        steps.extend((0..40).step_by(3).map(Do::Remove));
        steps.push(Do::Sync);
    }
    let options = options().capacity(2 << 20);
    every_crash("d5", &steps, &options, 1_400);
}

/// D6: a value and its record were written, and one flush made for both.
/// The record arrived, and the value did not.
/// The object was garbage.
#[test]
fn d6_a_record_without_its_value_is_no_object() {
    let options = options().durability(Durability::Power);
    let steps: Vec<Do> = (0..16)
        .map(|at| Do::Put(at % 5, at, 3000 + 700 * at as usize))
        .collect();
    every_crash("d6", &steps, &options, 1_000);
}

/// D7: two objects were put again and again, always in the same places.
/// Cleaning took every old record for a live one, and the journal filled up.
/// Puts and removals failed for ever, also after a restart.
#[test]
fn d7_two_objects_are_put_for_ever() {
    let (memory, store) = store_with(&tight());
    for at in 0..20_000 {
        store.put(id(at % 2), &value(at, 4000)).unwrap();
    }
    store.close().unwrap();
    let store = opened(&memory.to_vec());
    for at in 20_000..22_000 {
        store.put(id(at % 2), &value(at, 4000)).unwrap();
    }
    assert!(store.remove(id(0)).unwrap());
    assert_eq!(store.get(id(1)).unwrap(), Some(value(21_999, 4000).into()));
    store.check_room().unwrap();
}

/// D8: an object was to be put again, and there was no room, or the device refused.
/// The old value was forgotten before the new one was there.
/// It was gone, or back after a restart, or the file did not open.
#[test]
fn d8_a_put_that_fails_leaves_the_old_value() {
    let (memory, store) = store_with(&tight());
    store.put(id(1), &value(1, 30_000)).unwrap();
    let refused = store.put(id(1), &value(2, 60_000)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Full);
    assert_eq!(store.get(id(1)).unwrap(), Some(value(1, 30_000).into()));
    let refused = store.put(id(1), &value(2, 600_000)).unwrap_err();
    assert_eq!(refused.kind(), Kind::TooLarge);
    store.close().unwrap();
    assert_eq!(
        opened(&memory.to_vec()).get(id(1)).unwrap(),
        Some(value(1, 30_000).into())
    );
    for fault in [Fault::Error, Fault::Full, Fault::Torn, Fault::Short(4096)] {
        let disk = SimDisk::new(1);
        let options = options();
        let store = create(&disk, &options).unwrap();
        store.put(id(1), &value(1, 30_000)).unwrap();
        let next = disk.faults().count(Operation::Write);
        disk.faults().fail(Operation::Write, next, fault);
        let refused = store.put(id(1), &value(2, 20_000)).unwrap_err();
        assert!(matches!(refused.kind(), Kind::Io | Kind::Full), "{refused}");
        assert_eq!(store.get(id(1)).unwrap(), Some(value(1, 30_000).into()));
        // The handle continues: nothing that is known was touched.
        store.put(id(2), &value(3, 20_000)).unwrap();
        store.check_room().unwrap();
        let killed = disk.kill_state(disk.events());
        store.close().unwrap();
        for disk in [disk, killed] {
            let store = open(&disk, &options).unwrap();
            for (n, version, len) in [(1, 1, 30_000), (2, 3, 20_000)] {
                assert_eq!(
                    store.get(id(n)).unwrap(),
                    Some(value(version, len).into()),
                    "{fault:?}"
                );
            }
            store.check_room().unwrap();
        }
    }
}

/// D9: a bit of a value, of a length or of a record turned on the device.
/// Nothing was summed.
/// Values and lengths were wrong in silence, and one bit of the journal closed the whole file.
#[test]
fn d9_every_byte_of_an_object_is_summed() {
    let (memory, store) = store_with(&options());
    store.put(id(1), &value(1, 5000)).unwrap();
    store.put(id(2), &value(2, 100)).unwrap();
    store.close().unwrap();
    let bytes = memory.to_vec();
    let at = bytes
        .windows(8)
        .position(|window| *window == value(1, 5000)[..8]);
    let extent = at.unwrap() - 64;
    for offset in (extent..extent + 8192).step_by(7).chain([extent + 8191]) {
        let mut flipped = bytes.clone();
        flipped[offset] ^= 0x10;
        let store = opened(&flipped);
        let error = store.get(id(1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted, "{offset:#x}: {error}");
        assert_eq!(store.head(id(1)).unwrap(), Some(5000));
        assert_eq!(store.get(id(2)).unwrap(), Some(value(2, 100).into()));
    }
}

/// D10: a put was to be durable when acknowledged.
/// It was acknowledged, and then the flush failed.
/// No error was reported, and the value was lost.
#[test]
fn d10_nothing_is_acknowledged_before_its_flush() {
    let disk = SimDisk::new(2);
    let store = create(&disk, &options()).unwrap();
    for at in 0..5 {
        let before = disk.faults().count(Operation::Sync);
        store
            .put_with(id(at), &value(at, 100), Durability::Power)
            .unwrap();
        assert_eq!(disk.faults().count(Operation::Sync), before + 1);
    }
    let next = disk.faults().count(Operation::Sync);
    disk.faults().fail(Operation::Sync, next, Fault::Error);
    let refused = store.put_with(id(9), &value(9, 100), Durability::Power);
    assert_eq!(refused.unwrap_err().kind(), Kind::Io);
    // What the device has is not known any more: nothing is taken before it is opened again.
    let refused = store.put(id(9), &value(9, 100)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Poisoned);
    assert_eq!(store.get(id(4)).unwrap(), Some(value(4, 100).into()));
    drop(store);
    let store = open(&disk, &options()).unwrap();
    for at in 0..5 {
        assert_eq!(store.get(id(at)).unwrap(), Some(value(at, 100).into()));
    }
}

/// D11: the file was cut short after the store's back.
/// A read that gave fewer bytes was taken for a whole one.
/// The value was what happened to be in memory.
#[test]
fn d11_a_short_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.azo");
    for direct in [true, false] {
        let options = options().direct(direct);
        let store = Store::create(&path, &options).unwrap();
        store.put(id(1), &value(1, 100_000)).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len((256 << 10) + 70_000).unwrap();
        let error = store.get(id(1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted, "{error}");
        drop(store);
        let error = Store::open(&path, &options.opening).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted, "{error}");
        std::fs::remove_file(&path).unwrap();
    }
}

/// A device of 4096-byte sectors that refuses everything else from an offset on: the journal before it goes by the page cache.
#[derive(Debug)]
struct Sectors(Arc<Memory>, u64);

impl Sectors {
    fn check(&self, offset: u64, bytes: &[u8]) {
        if offset < self.1 {
            return;
        }
        let all = offset | bytes.len() as u64;
        assert!(
            all.is_multiple_of(4096),
            "{offset:#x}, {} bytes",
            bytes.len()
        );
    }
}

impl azekura::io::over::Over for Sectors {
    fn below(&self) -> &dyn Storage {
        self.0.as_ref()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf);
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes);
        self.0.write_at(offset, bytes)
    }

    fn write_durably(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes);
        self.0.write_durably(offset, bytes)
    }
}

/// D12: the device had sectors of 4096 bytes.
/// The engine wrote and read 512.
/// No store could be made on it.
#[test]
fn d12_the_data_is_accessed_in_blocks_of_4096_only() {
    let device = |size| {
        let memory = Memory::new(8 << 20).unwrap();
        memory.resize(size).unwrap();
        memory
    };
    let journal: Arc<dyn Storage> = device(256 << 10);
    let data: Arc<dyn Storage> = Arc::new(Sectors(device(1 << 20), 0));
    let both: Arc<dyn Storage> = Arc::new(Sectors(device(1 << 20), 256 << 10));
    for (journal, data) in [(journal, Some(data)), (both, None)] {
        let options = options().journal_size(options().journal_size.filter(|_| data.is_none()));
        let on = (Arc::clone(&journal), data.clone());
        let store = Store::create_on(on.0, on.1, &options, &mut |_, _| {}).unwrap();
        for (n, len) in [0, 1, 4000, 4096, 70_000, 66_000].into_iter().enumerate() {
            store.put(id(n as u64), &value(n as u64, len)).unwrap();
            let part = store.get_range(id(n as u64), 5..(len as u64 / 2).max(5));
            part.unwrap().unwrap();
        }
        assert!(store.check(true, &mut |_, _| {}).unwrap().is_sound());
        store.close().unwrap();
        let store = Store::open_on(journal, data, &options.opening).unwrap();
        assert_eq!(store.get(id(4)).unwrap(), Some(value(4, 70_000).into()));
    }
}

/// A batch was synced together with an update of one of its objects, and that object's first room was used again.
/// The power went before a mark on the device said how far it had been synced.
/// The batch was held for undone, since an extent of it was gone: its other object was not there.
#[test]
fn a_synced_batch_stays_when_the_room_of_an_object_replaced_since_is_used_again() {
    let options = options()
        .capacity((256 << 10) + (128 << 10))
        .group_size(128 << 10)
        .durability(Durability::Process);
    let mut states = 0;
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let store = create(&disk, &options).unwrap();
        // Four have room.
        store.put(id(4), &value(4, 28_000)).unwrap();
        store.sync().unwrap();
        let (first, second) = (value(1, 28_000), value(2, 28_000));
        let put = |n, value| Change::Put(id(n), value);
        store.apply(&[put(1, &first), put(2, &second)]).unwrap();
        store.put(id(1), &value(11, 28_000)).unwrap();
        store.sync().unwrap();
        let full = store.put(id(3), &value(3, 60_000)).unwrap_err();
        assert_eq!(full.kind(), Kind::Full, "only the first room is free");
        store.put(id(3), &value(3, 28_000)).unwrap();
        for after in disk.crash_states(disk.events(), &Limits::default()) {
            states += 1;
            let store = open(&after, &options).unwrap();
            for (n, version) in [(1, 11), (2, 2), (4, 4)] {
                assert_eq!(
                    store.get(id(n)).unwrap(),
                    Some(value(version, 28_000).into()),
                    "{n}"
                );
            }
            store.check_room().unwrap();
        }
    }
    demand(states, 920, "states of a synced batch, and room used again");
}

/// A storage that has something done after its next sync, before that returns.
struct BehindSync {
    below: Arc<dyn Storage>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for BehindSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BehindSync").field(&self.below).finish()
    }
}

impl azekura::io::over::Over for BehindSync {
    fn below(&self) -> &dyn Storage {
        self.below.as_ref()
    }

    fn sync(&self) -> Result<()> {
        self.below.sync()?;
        if let Some(then) = self.then.lock().unwrap().take() {
            then();
        }
        Ok(())
    }
}

/// A batch was put when the flush of the data device had ended and that of the journal had not begun.
/// The journal's mark said that everything up to the batch was on the devices, and the power went.
/// Its objects, of which nothing had been promised, were there and were damaged.
#[test]
fn what_is_put_between_the_flushes_of_two_devices_is_not_marked_durable() {
    let options = options()
        .capacity(1 << 20)
        .journal_size(None)
        .durability(Durability::Process);
    let mut states = 0;
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let create = |name: &str, size| {
            let storage = disk.directory().create(Path::new(name)).unwrap();
            storage.resize(size).unwrap();
            storage
        };
        let (journal, data) = (create("journal.azo", 256 << 10), create(NAME, 1 << 20));
        disk.directory().sync().unwrap();
        let data = Arc::new(BehindSync {
            below: data,
            then: Mutex::default(),
        });
        let on = Arc::clone(&data) as Arc<dyn Storage>;
        let store = Store::create_on(journal, Some(on), &options, &mut |_, _| {}).unwrap();
        let store = Arc::new(store);
        store.put(id(1), &value(1, 9000)).unwrap();
        let late = Arc::clone(&store);
        *data.then.lock().unwrap() = Some(Box::new(move || {
            let put = std::thread::spawn(move || {
                let (two, three) = (value(2, 9000), value(3, 9000));
                let put = |n, value| Change::Put(id(n), value);
                late.apply(&[put(2, &two), put(3, &three)]).map(drop)
            });
            put.join().unwrap().unwrap();
        }));
        store.sync().unwrap();
        assert!(data.then.lock().unwrap().is_none(), "it was put");
        for after in disk.crash_states(disk.events(), &Limits::default()) {
            states += 1;
            let open = |name| after.directory().open(Path::new(name), Access::Write);
            let (journal, data) = (open("journal.azo").unwrap(), open(NAME).unwrap());
            let store = Store::open_on(journal, Some(data), &options.opening).unwrap();
            assert_eq!(store.get(id(1)).unwrap(), Some(value(1, 9000).into()));
            let late = [2, 3].map(|n| store.get(id(n)).unwrap());
            let whole = [2, 3].map(|n| Some(value(n, 9000).into()));
            assert!(late == whole || late == [None, None], "all or nothing");
            assert!(store.damage().is_empty(), "{:?}", store.damage());
            store.put(id(4), &value(4, 9000)).unwrap();
        }
    }
    demand(states, 810, "states after a put between two flushes");
}

/// A store was closed and opened again, objects were put and synced, and the process died.
/// The superblock that said it was open had rotted; the other one said that it was closed.
/// What had been put since was not looked for: it was gone, and its room was given to others.
#[test]
fn either_superblock_alone_tells_that_the_store_is_open() {
    let (memory, store) = super::store_with(&options());
    for n in 0..3 {
        store.put(id(n), &value(n, 9000)).unwrap();
    }
    store.close().unwrap();
    let storage = Arc::clone(&memory) as Arc<dyn Storage>;
    let store = Store::open_on(storage, None, &options().opening).unwrap();
    let put = |from: u64, to: u64| {
        for n in from..to {
            store
                .put_with(id(n), &value(n, 9000), Durability::Power)
                .unwrap();
        }
    };
    put(3, 30);
    let opened_once = memory.to_vec();
    store.checkpoint().unwrap();
    put(30, 50);
    for (killed, count) in [(opened_once, 30), (memory.to_vec(), 50)] {
        for slot in 0..2 {
            for at in [0, 8, 24, 40, 100] {
                let mut rotten = killed.clone();
                rotten[slot * 4096 + at] ^= 16;
                let after = opened(&rotten);
                assert_eq!(after.count(), count, "slot {slot}, byte {at}");
                for n in 0..count {
                    assert_eq!(after.get(id(n)).unwrap(), Some(value(n, 9000).into()));
                }
                after.check_room().unwrap();
            }
        }
    }
}

/// A full store was emptied, filled and emptied again, without a sync.
/// What had been freed was appended span by span in one row of the journal, for which no room was kept.
/// Removals were refused in a full store, and so was the checkpoint that would have given them room.
#[test]
fn removals_find_room_however_long_nobody_syncs() {
    let options = options()
        .capacity(400 << 20)
        .journal_size(2 << 20)
        .group_size(None)
        .small_max(0)
        .durability(Durability::Process);
    let memory = Memory::new(400 << 20).unwrap();
    memory.resize(options.capacity).unwrap();
    let store = Store::create_on(memory, None, &options, &mut |_, _| {}).unwrap();
    let value = value(1, 2100);
    for round in 0..3 {
        let mut count = 0;
        while store.put(id(count), &value).is_ok() {
            count += 1;
        }
        assert!(count > 10_000, "round {round}: {count}");
        for n in 0..count {
            assert!(
                store.remove(id(n)).unwrap(),
                "round {round}: {n} of {count}"
            );
        }
    }
    store.check_room().unwrap();
    store.close().unwrap();
}

/// Each kind of change takes a durability of its own, and keeps it: what asks for the device survives any cut after it, and
/// what does not makes no sync.
#[test]
fn every_change_takes_a_durability_of_its_own() {
    type Act = fn(&Store, Durability) -> azekura::Result<()>;
    let acts: [(&str, Act, [Option<u64>; 3]); 7] = [
        (
            "put",
            |store, durability| store.put_with(id(0), &value(7, 100), durability).map(drop),
            [Some(7), Some(1), Some(2)],
        ),
        (
            "compare and put",
            |store, durability| {
                let expected = store
                    .get_with_sequence(id(1))?
                    .map(|(_, sequence)| sequence);
                let put =
                    store.compare_and_put_with(id(1), expected, &value(8, 100), durability)?;
                assert!(put.is_some());
                Ok(())
            },
            [Some(0), Some(8), Some(2)],
        ),
        (
            "put draft",
            |store, durability| {
                let mut draft = store.draft(100)?;
                draft.fill_from(&mut &value(7, 100)[..])?;
                store.put_draft_with(id(0), draft, durability).map(drop)
            },
            [Some(7), Some(1), Some(2)],
        ),
        (
            "compare and remove",
            |store, durability| {
                let expected = store.sequence(id(2))?.unwrap();
                assert!(store.compare_and_remove_with(id(2), expected, durability)?);
                Ok(())
            },
            [Some(0), Some(1), None],
        ),
        (
            "remove",
            |store, durability| store.remove_with(id(2), durability).map(drop),
            [Some(0), Some(1), None],
        ),
        (
            "remove range",
            |store, durability| store.remove_range_with(id(1).., durability).map(drop),
            [Some(0), None, None],
        ),
        (
            "apply",
            |store, durability| {
                let value = value(9, 100);
                let changes = [Change::Put(id(1), &value), Change::Remove(id(0))];
                store.apply_with(&changes, durability).map(drop)
            },
            [None, Some(9), Some(2)],
        ),
    ];
    let mut states = 0;
    for (name, act, after) in acts {
        for durability in [Durability::Process, Durability::Power] {
            let disk = SimDisk::new(3);
            let store = create(&disk, &options()).unwrap();
            for n in 0..3 {
                store
                    .put_with(id(n), &value(n, 100), Durability::Power)
                    .unwrap();
            }
            let before = disk.faults().count(Operation::Sync);
            act(&store, durability).unwrap();
            let syncs = disk.faults().count(Operation::Sync) - before;
            let is_power = durability == Durability::Power;
            assert_eq!(syncs > 0, is_power, "{name}: {syncs} syncs");
            if !is_power {
                continue;
            }
            for cut in disk.crash_states(disk.events(), &Limits::default()) {
                let store = open(&cut, &options()).unwrap();
                for (n, of) in (0..).zip(after) {
                    let found = store.get(id(n)).unwrap();
                    assert_eq!(
                        found,
                        of.map(|of| value(of, 100).into()),
                        "{name}: object {n}"
                    );
                }
                states += 1;
            }
        }
    }
    assert!(states >= 5, "{states} states");
}
