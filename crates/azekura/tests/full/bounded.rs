//! Stores that are full at their capacity: all that makes room is accepted, under drawn configurations, with several writers.
//!
//! [`Bounded`] is such a store, with the keys that each writer put, and does to all of them what a test wants; it counts the
//! syncs that this costs. It knows the capacity, and not how much of it is kept free.

use std::path::Path;
use std::sync::Arc;

use azekura::io::memory::Memory;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory as _};
use azekura::record::hash::{CreateOptions, HashDb};
use azekura::testkit::configuration::compression;
use azekura::testkit::suite::{case, demand, is_full, third};
use azekura::testkit::{Random, round_seed, tried};
use azekura::{Engine as _, Kind, Persistent as _};

use super::standing_in;

/// A store whose capacity is the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn {
    /// 0: the library chooses.
    pub(crate) segment_size: u64,
    pub(crate) capacity: u64,
    pub(crate) len: usize,
    pub(crate) writers: usize,
    pub(crate) background: bool,
}

impl Drawn {
    /// Records that a round of some seconds has time for. Larger stores are in `table`.
    const RECORDS_MAX: u64 = 40_000;

    fn of(random: &mut Random, capacity_max: u64) -> Self {
        loop {
            let segment_size = match random.below(13) {
                0 | 1 => 0,
                doublings => 4096 << (doublings - 2),
            };
            let least = HashDb::least_capacity(segment_size.max(4096));
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
    pub(crate) fn value(&self, seed: u64) -> Vec<u8> {
        Random::new(seed).bytes(self.len)
    }
}

/// Where a store is.
pub(crate) enum Place {
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

    fn create(&self, options: &CreateOptions) -> azekura::Result<HashDb> {
        match self {
            Self::Memory(memory) => HashDb::create_on(Arc::clone(memory) as Arc<_>, options),
            Self::Disk(disk) => {
                HashDb::create_in(&disk.directory(), Path::new(Self::NAME), options)
            }
            Self::File(folder) => HashDb::create(folder.path().join(Self::NAME), options),
        }
    }

    fn open(&self, options: &CreateOptions) -> azekura::Result<HashDb> {
        match self {
            Self::Memory(memory) => HashDb::open_on(Arc::clone(memory) as Arc<_>, &options.opening),
            Self::Disk(disk) => {
                let directory = disk.directory();
                HashDb::open_on(
                    directory.open(Path::new(Self::NAME), Access::Write)?,
                    &options.opening,
                )
            }
            Self::File(folder) => HashDb::open(folder.path().join(Self::NAME), &options.opening),
        }
    }
}

pub(crate) struct Bounded {
    pub(crate) drawn: Drawn,
    options: CreateOptions,
    place: Place,
    pub(crate) db: HashDb,
    /// Keys of each writer.
    pub(crate) keys: Vec<Vec<u64>>,
    next: u64,
    /// Bytes of a segment, also where the library chose it.
    segment_size: u64,
}

impl Bounded {
    /// The options that are not part of `drawn` come from `random`, as does the place.
    fn of(drawn: Drawn, random: &mut Random) -> Self {
        let options = CreateOptions::new()
            .segment_size(drawn.segment_size)
            .capacity(drawn.capacity)
            .background(drawn.background)
            .compression(compression(random))
            .space_ratio(*random.choose(&[1.1, 1.6, 1.6, 3.0]))
            .syncs_often(random.one_in(4));
        let place = Place::draw(random, drawn.capacity);
        Self::with(drawn, options, place)
    }

    pub(crate) fn with(drawn: Drawn, options: CreateOptions, place: Place) -> Self {
        tried(&format!("in a store in {}: {options:?}", place.word()));
        let db = place.create(&options).expect("a new store");
        let mut bounded = Self {
            drawn,
            options,
            place,
            segment_size: db.log().geometry().segment_size(),
            db,
            keys: vec![Vec::new(); drawn.writers],
            next: 0,
        };
        assert!(bounded.fill() > 0, "{drawn:?}");
        bounded
    }

    pub(crate) fn count(&self) -> u64 {
        self.keys.iter().map(|keys| keys.len() as u64).sum()
    }

    /// All writers put new records until one is refused.
    pub(crate) fn fill(&mut self) -> u64 {
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
    pub(crate) fn each(
        &self,
        what: &str,
        act: impl Fn(&HashDb, u64) -> azekura::Result<()> + Sync,
    ) {
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
        let segments = (after.1 - before.1) / self.segment_size;
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

    pub(crate) fn upkeep(&self) {
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

    pub(crate) fn check(&self) {
        let drawn = self.drawn;
        let report = self.db.check(&mut |_, _| ()).expect("a check");
        assert_eq!(report.damage, Vec::<String>::new(), "{drawn:?}");
        assert_eq!(report.records, self.count(), "{drawn:?}");
    }
}

/// Syncs that a full store may ask for, for each segment it appends, copies included.
const SYNCS_FOR_SEGMENT: u64 = 8;

/// Whatever the configuration: of a store that is full at its capacity no removal, no value that is as long or shorter, no
/// checkpoint, no compaction and no copy is refused, and after it was cleared it holds as much as before.
#[test]
fn a_store_full_at_its_capacity_goes_on() {
    let rounds = third(60);
    let capacity_max = if is_full() { 64 << 20 } else { 16 << 20 };
    let first = std::env::var("FULL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let round = round_seed();
    let seeds = first.map_or(round..round + rounds, |seed| seed..seed + 1);
    let (mut tried_seeds, mut chosen) = (0, 0);
    for seed in seeds {
        let mut random = Random::new(seed);
        let drawn = Drawn::of(&mut random, capacity_max);
        chosen += u64::from(drawn.segment_size == 0);
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
        full.upkeep();
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
        full.upkeep();
        full.fill();
        drop(std::mem::replace(&mut full.db, standing_in()));
        full.db = full.place.open(&full.options).expect("it opens");
        full.check();
        full.each("removal after reopening", |db, key| {
            assert!(db.remove(&key.to_le_bytes())?);
            Ok(())
        });
        full.keys.iter_mut().for_each(Vec::clear);
        full.upkeep();
        full.fill();
        full.db.clear().expect("it is cleared");
        full.keys.iter_mut().for_each(Vec::clear);
        let again = full.fill();
        // A checkpoint holds a segment more than a store that was never closed; and of few segments, what is free may lie
        // where a root finds no neighbours.
        let of_segment = (full.segment_size / (drawn.len as u64 + 32)).max(1);
        let tenths = if drawn.capacity / full.segment_size < 512 {
            6
        } else {
            9
        };
        assert!(
            again * 10 >= first * tenths || again + 2 * of_segment >= first,
            "{again} records after {first}: {drawn:?}: {:?}",
            full.db.inspect()
        );
        full.upkeep();
        tried_seeds += 1;
    }
    if first.is_none() {
        demand(
            chosen,
            third(6),
            "of them with segments that the library chose",
        );
        demand(tried_seeds, rounds, "configurations of full stores");
    }
}
