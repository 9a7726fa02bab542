//! A full store: new records are refused, and everything that makes room goes on.
//!
//! Stores are filled until they answer `Full`, in memory and files and on simulated disks that cannot grow, with segments of
//! several sizes and other options that are drawn, with and without the background worker. Then they are emptied, shortened,
//! compacted, cleared, closed, killed; after each, what was acknowledged is there, and there is room again. It does not know how
//! much is held in reserve.
//!
//! Lines beginning `tried:` say how much was tried.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use azekura::engine::Persistent as _;
use azekura::io::memory::Memory;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory as _, Storage};
use azekura::record::hash::{HashDb, Options};
use azekura::testkit::configuration::compression;
use azekura::testkit::suite::{case, is_full, share, tried_at_least};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Edit, Engine as _, Kind, Reader as _};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Segment size, bytes of the storage, length of values, with the keeper or without.
const SHAPES: [(u64, u64, usize, bool); 4] = [
    (1 << 16, 8 << 20, 100, false),
    (1 << 16, 8 << 20, 8, true),
    (1 << 20, 64 << 20, 200, true),
    (1 << 17, 8 << 20, 1000, false),
];

/// These, and others that are drawn: small ones of any segments of which there are a hundred or so.
fn shapes() -> Vec<(u64, u64, usize, bool)> {
    let drawn = (0..share(10)).map(|seed| {
        let mut random = Random::new(!(seed + round_seed()));
        let segment_size = 4096 << random.below(6);
        let limit = (128 * segment_size).max(2 << 20) + random.below(4 << 20);
        let len = 8 + random.index(500);
        (segment_size, limit, len, random.one_in(2))
    });
    let all: Vec<_> = SHAPES.into_iter().chain(drawn).collect();
    tried_at_least(all.len() as u64, 10, "shapes of full stores");
    all
}

struct Full {
    memory: Arc<Memory>,
    options: Options,
    db: HashDb,
    model: Model,
    random: Random,
    len: usize,
}

impl Full {
    /// A store filled until a record was refused.
    fn of((segment_size, limit, len, background): (u64, u64, usize, bool)) -> Self {
        let capacity = 128 << 20;
        let memory = Memory::new(capacity).expect("memory");
        let options = Options {
            segment_size,
            background,
            capacity,
            ..Options::default()
        };
        let storage = Arc::clone(&memory) as Arc<dyn Storage>;
        let db = HashDb::create_on(storage, &options).expect("a new store");
        memory.set_limit(limit);
        let mut full = Self {
            memory,
            options,
            db,
            model: Model::new(),
            random: Random::new(segment_size + limit),
            len,
        };
        let filled = full.fill();
        assert!(filled > 1000, "{filled} records");
        let live: usize = full.model.iter().map(|(k, v)| k.len() + v.len()).sum();
        tried(&format!(
            "{filled} records, {live} bytes fill {limit}, segments of {segment_size}"
        ));
        full
    }

    /// Puts new records until one is refused; how many were not.
    fn fill(&mut self) -> u64 {
        for put in 0.. {
            let key = self.random.bytes(12);
            let value = self.random.bytes(self.len);
            match self.db.put(&key, &value) {
                Ok(()) => drop(self.model.insert(key, value)),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    return put;
                }
            }
        }
        unreachable!("the storage is finite")
    }

    /// The keys, in an order of no meaning.
    fn keys(&mut self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = self.model.keys().cloned().collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, self.random.index(at + 1));
        }
        keys
    }

    fn remove(&mut self, key: &[u8]) {
        let known = self.model.remove(key).is_some();
        let removed = self.db.remove(key).expect("a removal of a full store");
        assert_eq!(removed, known);
    }

    fn compare(&self) {
        let mut seen = Model::new();
        let all = self.db.scan(None, &mut |key, value| {
            seen.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        });
        all.expect("a scan");
        assert!(seen == self.model, "{} of {}", seen.len(), self.model.len());
        let report = self.db.check(&mut |_, _| ()).expect("a check");
        assert_eq!(report.damage, Vec::<String>::new());
    }

    /// Opens it again, after the death of the process or a close, on a device without more room.
    fn reopen(self, kill: bool) -> Self {
        let mut next = self;
        if kill {
            next.memory =
                Memory::from_bytes(&next.memory.to_vec(), next.options.capacity).expect("memory");
        }
        drop(std::mem::replace(
            &mut next.db,
            HashDb::create_on(Memory::new(1 << 20).expect("memory"), &small()).expect("a store"),
        ));
        next.memory.set_limit(next.memory.size().expect("a size"));
        let storage = Arc::clone(&next.memory) as Arc<dyn Storage>;
        next.db = HashDb::open_on(storage, &next.options).expect("it opens");
        next
    }
}

/// Of a store that only stands in.
fn small() -> Options {
    Options {
        segment_size: 4096,
        background: false,
        capacity: 1 << 20,
        ..Options::default()
    }
}

#[test]
fn a_full_store_can_be_emptied_and_filled_again() {
    for shape in shapes() {
        let mut full = Full::of(shape);
        let before = full.model.len() as u64;
        for _ in 0..2 {
            for key in full.keys() {
                full.remove(&key);
            }
            full.compare();
            let again = full.fill();
            assert!(again > before / 10 * 8, "{again} after {before}: {shape:?}");
            full.compare();
        }
    }
}

#[test]
fn records_that_replace_longer_ones_are_stored_in_a_full_store_and_longer_ones_are_not() {
    for shape in shapes() {
        let mut full = Full::of(shape);
        for key in full.keys() {
            let value = full.random.bytes(full.len / 2);
            full.db.put(&key, &value).expect("a shorter value");
            full.model.insert(key, value);
        }
        full.compare();
        full.fill();
        let key = full.keys().swap_remove(0);
        let long = vec![7; 1 << 20];
        let error = full.db.put(&key, &long).expect_err("a longer value");
        assert_eq!(error.kind(), Kind::Full, "{error}");
        full.compare();
    }
}

#[test]
fn a_full_store_is_compacted() {
    for shape in shapes() {
        let mut full = Full::of(shape);
        full.db.compact(&mut |_, _| ()).expect("nothing to win");
        full.compare();
        full.fill();
        for key in full.keys().into_iter().take(full.model.len() / 2) {
            full.remove(&key);
        }
        let before = full.memory.size().expect("a size");
        full.db.compact(&mut |_, _| ()).expect("half to win");
        let after = full.memory.size().expect("a size");
        assert!(after < before / 4 * 3, "{after} of {before}: {shape:?}");
        full.compare();
    }
}

#[test]
fn new_records_do_not_use_up_what_removals_need() {
    for shape in shapes() {
        let mut full = Full::of(shape);
        // Who stores whatever a removal makes possible gets no deeper than who stores at once.
        for key in full.keys().into_iter().take(500) {
            full.remove(&key);
            full.fill();
        }
        for key in full.keys() {
            full.remove(&key);
        }
        full.compare();
    }
}

#[test]
fn a_full_store_that_was_closed_or_killed_can_be_emptied() {
    for shape in shapes() {
        for kill in [false, true] {
            let mut full = Full::of(shape).reopen(kill);
            full.compare();
            for key in full.keys() {
                full.remove(&key);
            }
            full.compare();
            assert!(full.fill() > 100);
        }
    }
}

#[test]
fn a_full_store_takes_batches_of_removals_and_is_cleared() {
    for shape in shapes() {
        let mut full = Full::of(shape);
        let keys = full.keys();
        for keys in keys.chunks(100).take(20) {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let gone = full
                .db
                .update_many(&keys, &mut |_| keys.iter().map(|_| Edit::Remove).collect());
            gone.expect("removals of many");
            for key in keys {
                full.model.remove(key);
            }
        }
        full.compare();
        full.db.clear().expect("it is cleared");
        full.model.clear();
        full.compare();
        assert!(full.fill() > 1000);
    }
}

#[test]
fn a_store_that_was_full_grows_once_its_device_has_room() {
    for shape in shapes() {
        let mut full = Full::of(shape);
        full.memory.set_limit(shape.1 * 3 / 2);
        let more = full.fill();
        assert!(more > 100, "{more} more");
        full.compare();
    }
}

#[test]
fn a_full_disk_takes_removals() {
    let disk = SimDisk::new(7);
    let name = Path::new("full.azh");
    let options = Options {
        segment_size: 1 << 16,
        capacity: SimDisk::FILE_SIZE_MAX,
        ..small()
    };
    let db = HashDb::create_in(&disk.directory(), name, &options).expect("a new file");
    disk.set_capacity(4 << 20);
    let mut records = 0u32;
    while db.put(&records.to_le_bytes(), &[9; 500]).is_ok() {
        records += 1;
    }
    assert!(records > 1000, "{records}");
    for key in 0..records {
        assert!(db.remove(&key.to_le_bytes()).expect("a removal"), "{key}");
    }
    db.close().expect("it closes");
    let storage = disk.directory().open(name, Access::Write);
    let db = HashDb::open_on(storage.expect("a file"), &options).expect("it opens");
    assert_eq!(db.count(), 0);
    tried(&format!("{records} removals of a full disk"));
}

/// A store whose capacity is the limit.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    segment_size: u64,
    capacity: u64,
    len: usize,
    writers: usize,
    background: bool,
}

impl Drawn {
    /// Records that a test of some seconds has time for.
    const RECORDS_MAX: u64 = 40_000;

    fn of(random: &mut Random, capacity_max: u64) -> Self {
        loop {
            let segment_size = 4096 << random.below(11);
            let least = HashDb::least_capacity(segment_size);
            let doublings = (capacity_max.max(least) / least).ilog2() + 1;
            let capacity = least << random.below(u64::from(doublings));
            let capacity = capacity + random.below(capacity / 4096) * 4096;
            let len = 8usize << random.below(14);
            let drawn = Self {
                segment_size,
                capacity,
                len: (len + random.index(len)).min(100_000),
                writers: 1 + random.index(4),
                background: random.below(2) == 1,
            };
            let fits = drawn.capacity <= capacity_max.max(least);
            let records = drawn.capacity / (drawn.len as u64 + 32);
            if fits && (50..Self::RECORDS_MAX).contains(&records) {
                return drawn;
            }
        }
    }

    /// Bytes that no compression makes shorter.
    fn value(&self, seed: u64) -> Vec<u8> {
        Random::new(seed).bytes(self.len)
    }
}

/// Where a store is.
enum Place {
    /// Of the capacity's size.
    Memory(Arc<Memory>),
    /// As large, and every write kept: for small stores.
    Disk(SimDisk),
    /// On a device with more room.
    File(tempfile::TempDir),
}

impl Place {
    const NAME: &str = "full.azh";

    fn draw(random: &mut Random, capacity: u64) -> Self {
        match random.below(4) {
            0 if capacity <= 4 << 20 => {
                let disk = SimDisk::new(capacity);
                disk.set_capacity(capacity);
                Self::Disk(disk)
            }
            1 => Self::File(tempfile::tempdir().expect("a folder")),
            _ => Self::Memory(Memory::new(capacity).expect("memory")),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Disk(_) => "simulated disk",
            Self::File(_) => "file",
        }
    }

    fn create(&self, options: &Options) -> azekura::Result<HashDb> {
        match self {
            Self::Memory(memory) => HashDb::create_on(Arc::clone(memory) as Arc<_>, options),
            Self::Disk(disk) => {
                HashDb::create_in(&disk.directory(), Path::new(Self::NAME), options)
            }
            Self::File(folder) => HashDb::create(folder.path().join(Self::NAME), options),
        }
    }

    fn open(&self, options: &Options) -> azekura::Result<HashDb> {
        match self {
            Self::Memory(memory) => HashDb::open_on(Arc::clone(memory) as Arc<_>, options),
            Self::Disk(disk) => {
                let directory = disk.directory();
                HashDb::open_on(
                    directory.open(Path::new(Self::NAME), Access::Write)?,
                    options,
                )
            }
            Self::File(folder) => HashDb::open(folder.path().join(Self::NAME), options),
        }
    }
}

struct Bounded {
    drawn: Drawn,
    options: Options,
    place: Place,
    db: HashDb,
    /// Keys of each writer.
    keys: Vec<Vec<u64>>,
    next: u64,
}

impl Bounded {
    /// The options that are not part of `drawn` come from `random`, as does the place.
    fn of(drawn: Drawn, random: &mut Random) -> Self {
        let options = Options {
            segment_size: drawn.segment_size,
            capacity: drawn.capacity,
            background: drawn.background,
            compression: compression(random),
            space_ratio: *random.choose(&[1.1, 1.6, 1.6, 3.0]),
            syncs_often: random.one_in(4),
            ..Options::default()
        };
        let place = Place::draw(random, drawn.capacity);
        tried(&format!("in a store in {}: {options:?}", place.word()));
        let db = place.create(&options).expect("a new store");
        let mut bounded = Self {
            drawn,
            options,
            place,
            db,
            keys: vec![Vec::new(); drawn.writers],
            next: 0,
        };
        assert!(bounded.fill() > 0, "{drawn:?}");
        bounded
    }

    fn count(&self) -> u64 {
        self.keys.iter().map(|keys| keys.len() as u64).sum()
    }

    /// All writers put new records until one is refused.
    fn fill(&mut self) -> u64 {
        let before = self.count();
        let (db, drawn, next) = (&self.db, self.drawn, self.next);
        std::thread::scope(|scope| {
            for (writer, keys) in self.keys.iter_mut().enumerate() {
                scope.spawn(move || {
                    let value = drawn.value(writer as u64);
                    for key in next.. {
                        let key = key << 3 | writer as u64;
                        match db.put(&key.to_le_bytes(), &value) {
                            Ok(()) => keys.push(key),
                            Err(error) if error.kind() == Kind::Full => return,
                            Err(error) => panic!("{error}: {drawn:?}"),
                        }
                    }
                });
            }
        });
        let most = self.keys.iter().flatten().max().copied().unwrap_or(0);
        self.next = (most >> 3) + 1;
        self.count() - before
    }

    /// Each writer does it to all its keys; how many times the device was synced for each segment appended.
    fn each(&self, what: &str, act: impl Fn(&HashDb, u64) -> azekura::Result<()> + Sync) {
        let (db, drawn, act) = (&self.db, self.drawn, &act);
        let before = self.figures();
        std::thread::scope(|scope| {
            for keys in &self.keys {
                scope.spawn(move || {
                    for (done, key) in keys.iter().enumerate() {
                        if let Err(error) = act(db, *key) {
                            panic!(
                                "{what} of key {done} of {} refused: {error}: {drawn:?}: {:?}",
                                keys.len(),
                                db.inspect()
                            );
                        }
                    }
                });
            }
        });
        let after = self.figures();
        let syncs = after.0 - before.0;
        let segments = (after.1 - before.1) / drawn.segment_size;
        let bound = SYNCS_FOR_SEGMENT * segments + 64;
        let of = self.count();
        tried(&format!(
            "{what} of {of}: {syncs} syncs, {segments} segments appended"
        ));
        assert!(
            syncs <= bound,
            "{what}: {syncs} syncs for {segments} segments, {of} updates: {drawn:?}"
        );
    }

    /// Each writer puts all its keys again, some at a time.
    fn put_many(&self, value: &[u8]) {
        let (db, drawn) = (&self.db, self.drawn);
        std::thread::scope(|scope| {
            for keys in &self.keys {
                scope.spawn(move || {
                    for some in keys.chunks(100) {
                        let names: Vec<[u8; 8]> =
                            some.iter().map(|key| key.to_le_bytes()).collect();
                        let records: Vec<(&[u8], &[u8])> =
                            names.iter().map(|name| (&name[..], value)).collect();
                        if let Err(error) = db.put_many(&records) {
                            panic!("many refused: {error}: {drawn:?}: {:?}", db.inspect());
                        }
                    }
                });
            }
        });
    }

    /// Syncs, and bytes appended.
    fn figures(&self) -> (u64, u64) {
        (self.db.log().syncs(), self.db.log().appended())
    }

    fn care(&self) {
        let drawn = self.drawn;
        let done = |what: &str, result: azekura::Result<()>| {
            result.unwrap_or_else(|error| {
                panic!("{what}: {error}: {drawn:?}: {:?}", self.db.inspect())
            });
        };
        done("checkpoint", self.db.checkpoint());
        done("compact", self.db.compact(&mut |_, _| ()));
        let folder = tempfile::tempdir().expect("a folder");
        done(
            "copy",
            self.db
                .copy_to(&folder.path().join("copy.azh"), &mut |_, _| ()),
        );
    }

    fn check(&self) {
        let drawn = self.drawn;
        let report = self.db.check(&mut |_, _| ()).expect("a check");
        assert_eq!(report.damage, Vec::<String>::new(), "{drawn:?}");
        assert_eq!(report.records, self.count(), "{drawn:?}");
    }
}

/// With default options: the first record is stored where the device has 1 MiB left, and a small device or capacity is filled
/// to 85 % by keys and values.
#[test]
fn small_devices_and_capacities_hold_records() {
    let devices = [1u64 << 20, 2 << 20, 16 << 20, 32 << 20, 64 << 20];
    for (device, capacity) in devices
        .into_iter()
        .flat_map(|size| [(size, 1 << 40), (size, size)])
    {
        let memory =
            Memory::new(if capacity == device { device } else { 1 << 31 }).expect("memory");
        memory.set_limit(device);
        let options = Options {
            capacity,
            ..Options::default()
        };
        let storage = Arc::clone(&memory) as Arc<dyn Storage>;
        let db = HashDb::create_on(storage, &options).expect("a new store");
        let value = [7; 1000];
        let mut records = 0u64;
        while records * 1008 < device.min(capacity)
            && db.put(&records.to_le_bytes(), &value).is_ok()
        {
            records += 1;
        }
        let room = device.min(capacity);
        let part = records * 1008 * 100 / room;
        tried(&format!("{room} bytes hold {records} records: {part} %"));
        assert!(records > 0, "{room}");
        assert!(room < 32 << 20 || part >= 85, "{room} bytes: {part} %");
        for key in 0..records {
            assert!(db.remove(&key.to_le_bytes()).expect("a removal"));
        }
    }
}

/// Syncs that a full store may ask for, for each segment it appends, copies included.
const SYNCS_FOR_SEGMENT: u64 = 8;

/// Whatever the configuration: of a store that is full at its capacity no removal, no value that is as long or shorter, no
/// checkpoint, no compaction and no copy is refused, and after it was cleared it holds as much as before.
#[test]
fn a_store_full_at_its_capacity_goes_on() {
    let rounds = share(200);
    let capacity_max = if is_full() { 64 << 20 } else { 16 << 20 };
    let first = std::env::var("FULL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let round = round_seed();
    let seeds = first.map_or(round..round + rounds, |seed| seed..seed + 1);
    for seed in seeds.clone() {
        let mut random = Random::new(seed);
        let drawn = Drawn::of(&mut random, capacity_max);
        let _shown = case(seed, &drawn);
        tried(&format!("seed {seed}: {drawn:?}"));
        let mut full = Bounded::of(drawn, &mut Random::new(!seed));
        let first = full.count();
        let live = first * (drawn.len as u64 + 8);
        tried(&format!(
            "{first} records, {} % live",
            live * 100 / drawn.capacity
        ));
        let value = drawn.value(9);
        full.each("equal length", |db, key| db.put(&key.to_le_bytes(), &value));
        full.put_many(&value);
        full.care();
        full.each("shorter", |db, key| {
            db.put(&key.to_le_bytes(), &value[..drawn.len / 2])
        });
        full.fill();
        full.check();
        // Half of it, and the rest after it was opened again.
        full.each("removal", |db, key| {
            if key % 2 == 0 {
                assert!(db.remove(&key.to_le_bytes())?);
            }
            Ok(())
        });
        for keys in &mut full.keys {
            keys.retain(|key| key % 2 == 1);
        }
        full.care();
        full.fill();
        let other = HashDb::create_on(Memory::new(1 << 20).expect("memory"), &small());
        drop(std::mem::replace(&mut full.db, other.expect("a store")));
        full.db = full.place.open(&full.options).expect("it opens");
        full.check();
        full.each("removal after reopening", |db, key| {
            assert!(db.remove(&key.to_le_bytes())?);
            Ok(())
        });
        full.keys.iter_mut().for_each(Vec::clear);
        full.care();
        full.fill();
        full.db.clear().expect("it is cleared");
        full.keys.iter_mut().for_each(Vec::clear);
        let again = full.fill();
        // A checkpoint holds a segment more than a store that was never closed; and of few segments, what is free may lie
        // where a root finds no neighbours.
        let of_segment = (drawn.segment_size / (drawn.len as u64 + 32)).max(1);
        let tenths = if drawn.capacity / drawn.segment_size < 512 {
            6
        } else {
            9
        };
        assert!(
            again * 10 >= first * tenths || again + 2 * of_segment >= first,
            "{again} records after {first}: {drawn:?}: {:?}",
            full.db.inspect()
        );
        full.care();
    }
    if first.is_none() {
        tried_at_least(seeds.count() as u64, 200, "configurations of full stores");
    }
}
