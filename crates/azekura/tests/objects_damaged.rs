//! Object stores on devices with faults that stay: sectors that cannot be read, and flipped bits, anywhere.
//!
//! Stores of drawn shapes, on one file and on two, of small and large objects, are closed, killed or cut off from power when
//! everything was acknowledged and synced. Then a range of a file cannot be read any more, or one bit is flipped. The store
//! opens all the same; each object gives its newest value or an error, never an older value and never absence; what is not hit is
//! read. A repair makes a store that is changed again, and names what is lost.
//! Lines beginning `tried:` state how much was tried.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use azekura::io::sim::{Limits, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::object::{Change, CreateOptions, ObjectId, Repaired, Store, StoreReader};
use azekura::testkit::suite::{share, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Durability, Kind};

#[path = "objects_damaged/astray.rs"]
mod astray;
#[path = "objects_damaged/killed_repair.rs"]
mod killed_repair;
#[path = "objects_damaged/slots.rs"]
mod slots;

const JOURNAL: &str = "journal.azo";
const DATA: &str = "data.azo";
/// Superblocks and control pages.
const FRONT: u64 = 16_384;

fn id(n: u64) -> ObjectId {
    ObjectId(u128::from(n) << 96 | 5)
}

/// A disk with a store at rest, and what it holds.
struct World {
    disk: SimDisk,
    options: CreateOptions,
    has_data: bool,
    is_closed: bool,
    /// Whether everything was synced when it was left.
    is_synced: bool,
    journal_size: u64,
    /// Offset of what the last change altered in the journal.
    tail: u64,
    now: BTreeMap<ObjectId, Vec<u8>>,
    once: BTreeMap<ObjectId, BTreeSet<Vec<u8>>>,
    ids: u64,
}

fn journal_of(disk: &SimDisk, len: u64) -> Vec<u8> {
    let storage = disk.directory().open(Path::new(JOURNAL), Access::Read);
    let mut bytes = vec![0; len as usize];
    storage.unwrap().read_at(0, &mut bytes).unwrap();
    bytes
}

fn storages(disk: &SimDisk, has_data: bool) -> (Arc<dyn Storage>, Option<Arc<dyn Storage>>) {
    let open = |name| {
        disk.directory()
            .open(Path::new(name), Access::Write)
            .unwrap()
    };
    (open(JOURNAL), has_data.then(|| open(DATA)))
}

/// Options of how changes are made durable.
fn of_syncs(random: &mut Random) -> CreateOptions {
    CreateOptions::new()
        .durability(*random.choose(&[Durability::Process, Durability::Process, Durability::Power]))
        .sync_every(*random.choose(&[None, None, Some(1), Some(7)]))
}

impl World {
    /// `is_synced`: before it was killed; if not, it never loses power.
    fn new(seed: u64, is_synced: bool) -> Self {
        let mut random = Random::new(seed);
        let has_data = random.below(3) == 0;
        // Drawn apart, so that the rest of a seed's store stays what it was.
        let options = of_syncs(&mut Random::new(!seed))
            .group_size(*random.choose(&[64 << 10, 256 << 10]))
            .small_max(*random.choose(&[0, 300, 2048]))
            .background(false);
        let journal_size = *random.choose(&[256 << 10, 512 << 10]);
        let capacity = *random.choose(&[2 << 20, 4 << 20]);
        let disk = SimDisk::new(seed);
        let create = |name, size| {
            let storage = disk.directory().create(Path::new(name)).unwrap();
            storage.resize(size).unwrap();
            storage
        };
        let journal = create(JOURNAL, if has_data { journal_size } else { capacity });
        let data = has_data.then(|| create(DATA, capacity));
        disk.directory().sync().unwrap();
        let made = options.clone().journal_size(journal_size);
        let store = Store::create_on(journal, data, &made, &mut |_, _| {}).unwrap();
        let mut world = Self {
            disk,
            options,
            has_data,
            is_closed: random.below(2) == 0,
            is_synced,
            journal_size,
            tail: FRONT,
            now: BTreeMap::new(),
            once: BTreeMap::new(),
            ids: *random.choose(&[6, 30, 150]),
        };
        let steps = *random.choose(&[20, 120, 300]);
        for _ in 0..steps {
            world.step(&store, &mut random);
        }
        // Until a record begins with a sector, where one of zeros looks like unused space.
        let is_left_so = !world.is_closed && !world.is_synced;
        for _ in 0..if is_left_so { 300 } else { 1 } {
            let before = journal_of(&world.disk, journal_size);
            world.change_last(&store, &mut random);
            let after = journal_of(&world.disk, journal_size);
            let altered = |at: &u64| before[*at as usize] != after[*at as usize];
            if let Some(at) = (FRONT..journal_size).find(altered) {
                world.tail = at;
                if at.is_multiple_of(512) {
                    break;
                }
            }
        }
        // How far a sync went is durable with the next one: after a loss of power, what was not known to be synced and does not
        // verify never ended.
        if world.is_synced {
            store.sync().unwrap();
            store.sync().unwrap();
        }
        if world.is_closed {
            store.close().unwrap();
        } else {
            // A death: it is looked at before the handle is dropped.
            world.disk = world.disk.kill_state(world.disk.events());
            drop(store);
        }
        world
    }

    /// A change that no record follows.
    fn change_last(&mut self, store: &Store, random: &mut Random) {
        let of = id(random.below(self.ids));
        let len = random.index(300);
        let value = random.bytes(len);
        store.put(of, &value).unwrap();
        self.put(of, value);
    }

    fn put(&mut self, id: ObjectId, value: Vec<u8>) {
        self.once.entry(id).or_default().insert(value.clone());
        self.now.insert(id, value);
    }

    fn step(&mut self, store: &Store, random: &mut Random) {
        let of = id(random.below(self.ids));
        let len = match random.below(4) {
            0 => random.index(300),
            1 => random.index(2048),
            2 => 2049 + random.index(9000),
            _ => *random.choose(&[0, 100, 4000, 4096, 20_000]),
        };
        let value = random.bytes(len);
        match random.below(40) {
            0 => store.checkpoint().unwrap(),
            1 => store.sync().unwrap(),
            2..6 => {
                store.remove(of).unwrap();
                self.now.remove(&of);
            }
            6 => {
                let end = ObjectId(of.0 + (3 << 96));
                store.remove_range(of..end).unwrap();
                self.now.retain(|id, _| *id < of || *id >= end);
            }
            7 => {
                let other = ObjectId(of.0 + (1 << 96));
                store
                    .apply(&[Change::Put(of, &value), Change::Remove(other)])
                    .unwrap();
                self.put(of, value);
                self.now.remove(&other);
            }
            8 => {
                store.put_with(of, &value, Durability::Power).unwrap();
                self.put(of, value);
            }
            _ => {
                store.put(of, &value).unwrap();
                self.put(of, value);
            }
        }
    }

    /// The disk as it stands now, independent; after a death perhaps without power.
    fn disk(&self, random: &mut Random) -> SimDisk {
        let at = self.disk.events();
        if !self.is_closed && self.is_synced && random.below(2) == 0 {
            let limits = Limits {
                exhaustive: 0,
                singles: 0,
                random: 1,
                ..Limits::default()
            };
            if let Some(cut) = self.disk.crash_states(at, &limits).next() {
                return cut;
            }
        }
        self.disk.kill_state(at)
    }

    fn open(&self, disk: &SimDisk) -> azekura::Result<Store> {
        let (journal, data) = storages(disk, self.has_data);
        Store::open_on(journal, data, &self.options.opening)
    }

    fn repair(&self, disk: &SimDisk) -> azekura::Result<Repaired> {
        let (journal, data) = storages(disk, self.has_data);
        Store::repair_on(&journal, data.as_ref(), &mut |_, _| {})
    }

    /// How many objects give an error. After a repair that reports losses an object may be gone, and one that it names as in doubt
    /// may be an older one.
    fn judge(&self, store: &Store, report: Option<&Repaired>) -> Result<u64, String> {
        let mut errors = 0;
        for n in 0..self.ids + 4 {
            let now = self.now.get(&id(n));
            match store.get(id(n)) {
                Ok(found) if found.as_deref() == now.map(|now| &now[..]) => {}
                Err(error) if [Kind::Corrupted, Kind::Io].contains(&error.kind()) => errors += 1,
                Err(error) => return Err(format!("object {n}: {error}")),
                Ok(found) => {
                    let was_once = found.as_deref().is_none_or(|found| {
                        self.once.get(&id(n)).is_some_and(|of| of.contains(found))
                    });
                    let may_differ = report.is_some_and(|report| match &found {
                        None => report.losses > 0,
                        Some(_) => report.doubted.iter().any(|of| of.id == id(n)),
                    });
                    if !may_differ || !was_once {
                        let (found, now) = (found.map(|of| of.len()), now.map(Vec::len));
                        return Err(format!("object {n} has {found:?} bytes instead of {now:?}"));
                    }
                }
            }
        }
        Ok(errors)
    }
}

/// How a trial went.
#[derive(Default, Debug)]
struct Tally {
    opened: u64,
    /// Objects that were read before a repair.
    asked: u64,
    read_only: u64,
    errors: u64,
    repaired: u64,
    lossy: u64,
}

/// After a fault: `expected`, how many objects may give an error before a repair.
fn try_fault(
    world: &World,
    disk: &SimDisk,
    expected: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let text = |what: &'static str| move |error: azekura::Error| format!("{what}: {error}");
    let store = world.open(disk).map_err(text("it does not open"))?;
    tally.opened += 1;
    tally.read_only += u64::from(store.is_read_only());
    let errors = world.judge(&store, None)?;
    tally.errors += errors;
    tally.asked += world.ids + 4;
    if errors > expected {
        let damage = store.damage();
        return Err(format!(
            "{errors} objects are errors, {expected} may be: {damage:?}"
        ));
    }
    let check = store
        .check(true, &mut |_, _| {})
        .map_err(text("no check"))?;
    if errors > 0 && check.is_sound() {
        return Err("objects are errors, and the check finds nothing".into());
    }
    if store.is_read_only() {
        if store.damage().is_empty() || check.is_sound() {
            return Err("a damaged store has no damage".into());
        }
        let refused = [
            store.put(id(0), b"more").map(drop),
            store.put(id(0), &[1; 9000]).map(drop),
            store.remove_range(..).map(drop),
            store.checkpoint(),
        ];
        if refused.iter().any(|done| {
            !matches!(done, Ok(()) if world.now.is_empty())
                && !done
                    .as_ref()
                    .is_err_and(|error| error.kind() == Kind::Corrupted)
        }) {
            return Err(format!("a damaged store is changed: {refused:?}"));
        }
    }
    match store.close() {
        // It wrote to a part of a sector that cannot be read: nothing was acknowledged.
        Err(error) if [Kind::Io, Kind::Corrupted, Kind::Poisoned].contains(&error.kind()) => {}
        other => other.map_err(text("no close"))?,
    }
    let report = world.repair(disk).map_err(text("no repair"))?;
    tally.repaired += 1;
    let is_lossy = report.losses > 0 || report.doubtful > 0;
    tally.lossy += u64::from(is_lossy);
    let store = world
        .open(disk)
        .map_err(text("not opened after a repair"))?;
    if store.is_read_only() {
        let damage = store.damage();
        return Err(format!(
            "repaired, and not to be changed: {damage:?}; {report:?}"
        ));
    }
    let left = world
        .judge(&store, Some(&report))
        .map_err(|what| format!("repaired: {what}; {report:?}"))?;
    if left > 0 && report.damaged == 0 {
        return Err(format!(
            "{left} objects are errors after a repair that says nothing"
        ));
    }
    store.put(id(0), b"more").map_err(text("no put"))?;
    if store.get(id(0)).map_err(text("no get"))?.as_deref() != Some(&b"more"[..]) {
        return Err("what was put after a repair is not there".into());
    }
    store.close().map_err(text("no close after a repair"))
}

/// Regions of the files of a store.
const REGIONS: [&str; 5] = [
    "slots of superblocks and labels",
    "control pages",
    "places of the journal",
    "last records of the journal",
    "places of the data",
];

/// A file, a range of it at a drawn place, how many objects it may affect at most, and its region.
fn region(world: &World, random: &mut Random) -> (&'static str, Range<u64>, u64, usize) {
    let len: u64 = *random.choose(&[1, 512, 4096, 16_384]);
    let file_size = |name| {
        let storage = world.disk.directory().open(Path::new(name), Access::Read);
        storage.unwrap().size().unwrap()
    };
    let data = if world.has_data { DATA } else { JOURNAL };
    let all = world.ids + 4;
    // What was not appended to the journal cannot be distinguished from unused space: of what was not synced, it alone is hit.
    let region = if world.is_closed || world.is_synced {
        random.below(7)
    } else {
        1 + random.below(4)
    };
    let of = [0, 1, 2, 2, 3, 4, 4][region as usize];
    let (name, within, expected) = match region {
        // A slot of a superblock or label costs nothing, however much of it cannot be read.
        0 => (*random.choose(&[JOURNAL, data]), None, 0),
        1 => (JOURNAL, Some(8192..FRONT), 0),
        2 | 3 => (JOURNAL, Some(FRONT..world.journal_size), all),
        // The last record, with nothing after it.
        4 => {
            let start = world.tail / 512 * 512;
            let end = (start + len.max(512)).min(world.journal_size);
            return (JOURNAL, start..end, all, of);
        }
        _ => {
            let begin = if world.has_data {
                8192
            } else {
                world.journal_size
            };
            // Each object takes a unit of its own, or in a pack 64 bytes at least, of a sector that is hit.
            (
                data,
                Some(begin..file_size(data)),
                2 + (len + 1024).div_ceil(64),
            )
        }
    };
    let Some(within) = within else {
        let slot = random.below(2) * 4096;
        return (name, slot..slot + len.min(4096), expected, of);
    };
    let mut start = within.start + random.below((within.end - within.start) / 512) * 512;
    if random.below(2) == 0 {
        // Where something stands.
        let storage = world.disk.directory().open(Path::new(name), Access::Read);
        let mut bytes = vec![0; (within.end - within.start) as usize];
        storage.unwrap().read_at(within.start, &mut bytes).unwrap();
        let held: Vec<u64> = (0..bytes.len() as u64)
            .filter(|at| bytes[*at as usize] != 0)
            .collect();
        if !held.is_empty() {
            start = within.start + *random.choose(&held) / 512 * 512;
        }
    }
    (name, start..(start + len).min(within.end), expected, of)
}

/// Whether nothing ever stood in the sectors of this range of the journal, nor stands in the one before, where the next record
/// may begin: by design no object is affected if it cannot be read.
fn is_blank_room(world: &World, range: &Range<u64>) -> bool {
    let begin = range.start / 512 * 512;
    let sectors = (begin - 512) as usize..range.end.next_multiple_of(512) as usize;
    let journal = journal_of(&world.disk, world.journal_size);
    begin > FRONT && journal[sectors].iter().all(|byte| *byte == 0)
}

#[test]
fn sectors_that_stay_unreadable_cost_what_they_held() {
    let mut blank = Tally::default();
    let mut tally = Tally::default();
    let mut regions = [0; REGIONS.len()];
    for seed in 0..share(400) {
        let seed = round_seed() + seed;
        let world = World::new(seed, seed.is_multiple_of(2));
        let mut random = Random::new(seed);
        for _ in 0..10 {
            let disk = world.disk(&mut random);
            let (name, range, mut expected, place) = region(&world, &mut random);
            let is_journal = name == JOURNAL && (FRONT..world.journal_size).contains(&range.start);
            let mut of = &mut tally;
            if is_journal && is_blank_room(&world, &range) {
                (of, expected) = (&mut blank, 0);
            }
            disk.make_unreadable(name, range.clone());
            if let Err(what) = try_fault(&world, &disk, expected, of) {
                let World {
                    has_data,
                    is_closed,
                    ..
                } = world;
                panic!(
                    "seed {seed}, two files {has_data}, closed {is_closed}, {name} {range:x?}: {what}"
                );
            }
            regions[place] += 1;
        }
    }
    let opened = tally.opened + blank.opened;
    tried_at_least(opened, 4000, &format!("unreadable ranges: {tally:?}"));
    for (at, least) in [280, 450, 1000, 450, 600].into_iter().enumerate() {
        tried_at_least(regions[at], least, REGIONS[at]);
    }
    let what = format!("unreadable ranges of blank room: {blank:?}");
    tried_at_least(blank.opened, 500, &what);
    // The rest of the segment that is appended to is room in use: nothing is in doubt, and nothing is written there.
    assert!(
        blank.errors == 0 && blank.read_only * 20 < blank.opened,
        "{blank:?}"
    );
    // What is lost of the journal leaves in doubt what stands before it, and not what stands after it or in images.
    assert!(tally.errors * 2 < tally.asked, "{tally:?}");
    assert!(
        tally.read_only > 0 && tally.errors > 0 && tally.lossy > 0,
        "{tally:?}"
    );
}

#[test]
fn a_flipped_bit_gives_the_newest_value_or_an_error() {
    // Of what was not synced, an object whose bytes do not verify may be one whose put never ended.
    let mut tally = Tally::default();
    let mut regions = [0; REGIONS.len()];
    for seed in 0..share(400) {
        let seed = round_seed() + 10_000 + seed;
        let world = World::new(seed, true);
        let mut random = Random::new(seed);
        for _ in 0..10 {
            let disk = world.disk(&mut random);
            let (name, range, _, place) = region(&world, &mut random);
            let storage = disk
                .directory()
                .open(Path::new(name), Access::Read)
                .unwrap();
            // A place that holds something, if there is one near.
            let mut bytes = vec![0; (range.end - range.start) as usize];
            storage.read_at(range.start, &mut bytes).unwrap();
            let held: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
            let at = if held.is_empty() {
                0
            } else {
                *random.choose(&held)
            };
            let (at, mask) = (range.start + at as u64, 1 << random.below(8));
            drop(storage);
            disk.rot(name, at, mask);
            // A slot of a superblock or label costs nothing. Of records and images of the journal nothing is lost, but the object
            // whose value the record is; of the data the object that stands there, also in a pack.
            let expected = u64::from(place > 0);
            if let Err(what) = try_fault(&world, &disk, expected, &mut tally) {
                let World {
                    has_data,
                    is_closed,
                    ..
                } = world;
                panic!(
                    "seed {seed}, two files {has_data}, closed {is_closed}, bit {mask:#x} of {name} at {at:#x}: {what}"
                );
            }
            regions[place] += 1;
        }
    }
    tried_at_least(tally.opened, 4000, &format!("flipped bits: {tally:?}"));
    for (at, least) in [400, 400, 850, 400, 850].into_iter().enumerate() {
        tried_at_least(regions[at], least, REGIONS[at]);
    }
    assert!(tally.read_only > 0 && tally.errors > 0, "{tally:?}");
    // Of the mark, and of records of the journal that recovery has to replay.
    assert!(tally.read_only * 5 < tally.opened, "{tally:?}");
}

/// Where in a file these bytes stand.
fn find(disk: &SimDisk, name: &str, wanted: &[u8]) -> Vec<u64> {
    let storage = disk
        .directory()
        .open(Path::new(name), Access::Read)
        .unwrap();
    let mut bytes = vec![0; storage.size().unwrap() as usize];
    storage.read_at(0, &mut bytes).unwrap();
    let windows = bytes.windows(wanted.len()).enumerate();
    windows
        .filter(|(_, of)| *of == wanted)
        .map(|(at, _)| at as u64)
        .collect()
}

fn small_world() -> (SimDisk, Store, CreateOptions) {
    let disk = SimDisk::new(round_seed());
    let options = CreateOptions::new()
        .capacity(2 << 20)
        .journal_size(256 << 10)
        .group_size(128 << 10)
        .background(false);
    let store = Store::create_in(
        &disk.directory(),
        Path::new(JOURNAL),
        &options,
        &mut |_, _| {},
    );
    (disk, store.unwrap(), options)
}

fn open(disk: &SimDisk, options: &CreateOptions) -> Store {
    let (journal, _) = storages(disk, false);
    Store::open_on(journal, None, &options.opening).unwrap()
}

#[test]
fn a_synced_object_that_rots_after_a_crash_is_an_error_and_no_older_one() {
    let mut random = Random::new(round_seed());
    let (disk, store, options) = small_world();
    let [first, second, other] = [(); 3].map(|()| random.bytes(9000));
    store.put(id(1), &first).unwrap();
    store.put_with(id(1), &second, Durability::Power).unwrap();
    store.put(id(2), &other).unwrap();
    store.sync().unwrap();
    let killed = disk.kill_state(disk.events());
    for value in [&second, &other] {
        let at = find(&killed, JOURNAL, &value[100..200]);
        assert_eq!(at.len(), 1);
        killed.rot(JOURNAL, at[0], 4);
    }
    let store = open(&killed, &options);
    for n in [1, 2] {
        let error = store.get(id(n)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted, "{error}");
    }
    let check = store.check(true, &mut |_, _| {}).unwrap();
    let named: BTreeSet<_> = check
        .findings
        .iter()
        .filter_map(|found| found.object)
        .collect();
    assert_eq!(named, BTreeSet::from([id(1), id(2)]));
    drop(store);
    let (journal, _) = storages(&killed, false);
    let report = Store::repair_on(&journal, None, &mut |_, _| {}).unwrap();
    assert_eq!(report.damaged, 2, "{report:?}");
}

#[test]
fn every_page_of_a_store_may_be_unreadable_and_repair_works() {
    /// Small objects share packs, and packs pages.
    const ERRORS_MAX: u64 = 20;
    let (mut tally, mut most) = (0, 0);
    for is_closed in [false, true] {
        let (disk, store, options) = small_world();
        let mut random = Random::new(round_seed());
        let mut now = BTreeMap::new();
        for n in 0..40 {
            let len = *random.choose(&[30, 900, 5000, 20_000]);
            let value = random.bytes(len);
            store.put(id(n), &value).unwrap();
            now.insert(id(n), value);
            if n == 20 {
                store.checkpoint().unwrap();
            }
        }
        store.sync().unwrap();
        let rest = if is_closed {
            store.close().unwrap();
            disk
        } else {
            disk.kill_state(disk.events())
        };
        let pages = (2 << 20) / 4096;
        let step = match share(10) {
            10 => 1,
            5 => 2,
            _ => 7,
        };
        for page in (0..pages).step_by(step) {
            tally += 1;
            let disk = rest.kill_state(rest.events());
            disk.make_unreadable(JOURNAL, page * 4096..(page + 1) * 4096);
            let store = open(&disk, &options);
            let mut errors = 0;
            let mut readable = Vec::new();
            for (id, value) in &now {
                match store.get(*id) {
                    Ok(found) => {
                        assert_eq!(found.as_deref(), Some(&value[..]), "page {page}");
                        readable.push(id);
                    }
                    Err(_) => errors += 1,
                }
            }
            most = most.max(errors);
            // Without the mark, which stands after the superblocks, and what the journal states nothing is written.
            if !(2..64).contains(&page) {
                assert!(
                    errors <= ERRORS_MAX && !store.is_read_only(),
                    "page {page}: {errors}"
                );
            }
            if page < 4 {
                assert_eq!(errors, 0, "page {page} holds no object");
            }
            drop(store);
            let reader = StoreReader::open_on(storages(&disk, false).0, None).unwrap();
            reader.check(true, &mut |_, _| {}).unwrap();
            drop(reader);
            let (journal, _) = storages(&disk, false);
            Store::repair_on(&journal, None, &mut |_, _| {}).unwrap();
            drop(journal);
            let store = open(&disk, &options);
            for id in readable {
                let found = store.get(*id).unwrap();
                assert_eq!(
                    found.as_deref(),
                    Some(&now[id][..]),
                    "page {page}, repaired"
                );
            }
            store.put(id(99), b"more").unwrap();
            store.close().unwrap();
        }
    }
    tried(&format!("one page of objects costs {most} of them at most"));
    tried_at_least(tally, 1024, "unreadable pages, each with a repair");
}

/// Another program cuts the file below the journal, which is mapped. Reading what is gone was the end of the process.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn a_file_that_is_cut_below_its_journal_is_an_error_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.azo");
    let options = CreateOptions::new()
        .capacity(2 << 20)
        .journal_size(256 << 10)
        .group_size(64 << 10)
        .small_max(2048)
        .background(false);
    let value = |n: u64| vec![n as u8; if n < 150 { 300 } else { 9000 }];
    for end in [0, 4096, 8192, FRONT, FRONT + 4096, FRONT + 20_000] {
        let store = Store::create(&path, &options).unwrap();
        for n in 0..170 {
            store.put(id(n), &value(n)).unwrap();
        }
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(end).unwrap();
        let mut failed = 0;
        for n in 0..170 {
            match store.get(id(n)) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&value(n)[..]), "{n}, cut at {end}"),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Corrupted, "{n}, cut at {end}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 100, "{failed} objects are errors, cut at {end}");
        assert!(
            !store.damage().is_empty() && store.is_read_only(),
            "cut at {end}"
        );
        let check = store.check(true, &mut |_, _| {});
        assert!(!check.is_ok_and(|check| check.is_sound()), "cut at {end}");
        for change in [
            store.put(id(1), b"more").map(drop),
            store.put(id(1), &[1; 9000]).map(drop),
            store.remove(id(2)).map(drop),
            store.sync(),
            store.checkpoint(),
        ] {
            let refused = change.expect_err("nothing is acknowledged");
            let kinds = [Kind::Corrupted, Kind::Io, Kind::Poisoned];
            assert!(kinds.contains(&refused.kind()), "cut at {end}: {refused}");
        }
        drop(store);
        std::fs::remove_file(&path).unwrap();
    }
}
