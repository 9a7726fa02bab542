//! Pages that are read while others are: many keys at once, and the leaves that a walk comes to next.
//!
//! A storage whose cache is filled by hints notes in which order reads begin and are waited for, so that it is seen which
//! overlap. Stores on a simulated disk, which has in its cache what its seed says, are compared with a sorted map: each key is
//! answered once, whatever is in which cache, next to writers, and where reads fail.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::{Arc, Mutex};

use azekura::engine::{Ordered, Persistent, Reader};
use azekura::io::over::Over;
use azekura::io::sim::{Fault, Operation, SimDisk};
use azekura::io::{Access, Directory, Storage};
use azekura::record::tree::{CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Kind, Result};

use super::{Keys, eight, simulated, value};

const NAME: &str = "ahead.azt";

/// What became of a range of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    /// Its read began.
    Begun(Range<u64>),
    /// It was read, after a wait unless it had begun.
    Read(Range<u64>),
}

/// A storage whose cache has what it was asked for. Waited for is one read at a time.
#[derive(Debug)]
struct Noting {
    below: Arc<dyn Storage>,
    notes: Mutex<Vec<Note>>,
}

impl Noting {
    fn note(&self, note: Note) {
        self.notes.lock().unwrap().push(note);
    }

    fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.notes.lock().unwrap())
    }
}

impl Over for Noting {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.note(Note::Read(offset..offset + buf.len() as u64));
        self.below.read_at(offset, buf)
    }

    fn read_at_once(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
        self.note(Note::Begun(offset..offset + buf.len() as u64));
        Ok(false)
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        self.note(Note::Begun(offset..offset + len));
    }
}

/// A file of so many records in leaves that are full, opened on a storage that notes.
fn noted(records: u64, cache: u64, value: &[u8]) -> (TreeDb, Arc<Noting>) {
    let disk = SimDisk::new(1);
    let opening = OpenOptions::new()
        .background(false)
        .capacity(SimDisk::FILE_SIZE_MAX);
    let options = CreateOptions::new()
        .segment_size(1 << 20)
        .opening(opening.clone());
    let db = TreeDb::create_in(&disk.directory(), Path::new(NAME), &options).unwrap();
    let mut next = (0..records).map(|number| Ok((eight(number), value)));
    db.load_sorted(&mut next).unwrap();
    db.close().unwrap();
    let below = disk.directory().open(Path::new(NAME), Access::Write);
    let storage = Arc::new(Noting {
        below: below.unwrap(),
        notes: Mutex::default(),
    });
    let over: Arc<dyn Storage> = Arc::<Noting>::clone(&storage);
    let db = TreeDb::open_on(over, &opening.cache(cache)).unwrap();
    (db, storage)
}

/// The pages of 4 KiB of a range.
fn pages(range: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    range.start / 4096..range.end.div_ceil(4096)
}

/// How many pages were begun and not read, at most; all that were begun; all that were read without a beginning.
fn judge(notes: &[Note]) -> (usize, BTreeSet<u64>, Vec<u64>) {
    let (mut begun, mut now, mut most) = (BTreeSet::new(), BTreeSet::new(), 0);
    let mut waited = Vec::new();
    for note in notes {
        match note {
            Note::Begun(range) => {
                now.extend(pages(range));
                begun.extend(pages(range));
                most = most.max(now.len());
            }
            Note::Read(range) => {
                for page in pages(range) {
                    now.remove(&page);
                    if !begun.contains(&page) {
                        waited.push(page);
                    }
                }
            }
        }
    }
    assert!(now.is_empty(), "begun, and not wanted: {now:?}");
    (most, begun, waited)
}

#[test]
fn reads_of_a_batch_overlap() {
    let mut keys_read = 0;
    for (value, many) in [(&[b'v'; 100][..], 20_000), (&[b'v'; 600], 6_000)] {
        let is_outside = value.len() > 510;
        let (db, storage) = noted(many, 4 << 20, value);
        // Inner nodes come into memory, and all chunks of the table.
        for number in (0..20_000).step_by(3000) {
            db.get(&eight(number)).unwrap();
        }
        storage.take();
        for first in [100, 1_900, 4_300] {
            // Of a leaf each, but for the last eight, which are in the leaves of others.
            let numbers: Vec<u64> = (0..24)
                .map(|at| first + at * 42)
                .chain((0..8).map(|at| first + at * 42))
                .collect();
            let keys: Vec<[u8; 8]> = numbers.iter().map(|number| eight(*number)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let mut shown = BTreeSet::new();
            db.read_many(&keys, &mut |at, found| {
                assert_eq!(found, Some(value));
                assert!(shown.insert(at));
            })
            .unwrap();
            assert_eq!(shown.len(), 32);
            keys_read += 32;
            let (most, _, waited) = judge(&storage.take());
            assert!(most >= 20, "at most {most} reads at once");
            assert!(waited.is_empty(), "{waited:?} were waited for alone");
        }
        // What is in memory is read from there.
        let key = eight(0);
        db.read_many(&[&key[..], &key[..]], &mut |_, found| {
            assert_eq!(found, Some(value));
        })
        .unwrap();
        let again = storage.take();
        assert!(is_outside || again.is_empty(), "{again:?}");
    }
    tried_at_least(keys_read, 190, "keys read in batches");
}

/// Walks from a key in one direction over so many records.
fn walk(reader: &dyn Ordered, from: Option<u64>, is_rising: bool, records: u64) {
    let mut cursor = reader.cursor();
    let mut on = match (from, is_rising) {
        (Some(from), _) => cursor.seek(&eight(from)),
        (None, true) => cursor.first(),
        (None, false) => cursor.last(),
    }
    .unwrap();
    for _ in 1..records {
        assert!(on);
        on = if is_rising {
            cursor.next()
        } else {
            cursor.previous()
        }
        .unwrap();
    }
    assert!(on);
}

#[test]
fn walks_read_ahead_as_far_as_they_come() {
    let value = [b'v'; 100];
    let per_leaf = 34;
    let mut walks = 0;
    for round in 0..share(20) {
        let mut random = Random::new(round + round_seed());
        let kind = random.below(4);
        let is_rising = kind == 3 || random.one_in(2);
        let _shown = case(round, &(kind, is_rising));
        let (db, storage) = noted(20_000, *random.choose(&[256 << 10, 4 << 20]), &value);
        for number in (0..20_000).step_by(1500) {
            db.get(&eight(number)).unwrap();
        }
        storage.take();
        let snapshot = (kind == 2).then(|| db.snapshot().unwrap());
        let over = |from, records| match &snapshot {
            Some(snapshot) => walk(snapshot, from, is_rising, records),
            None => walk(&db, from, is_rising, records),
        };
        // In two leaves at most.
        over(Some(2_000), 30);
        let is_begun = |note: &Note| matches!(note, Note::Begun(_));
        let notes = storage.take();
        assert!(!notes.iter().any(is_begun), "a short walk: {notes:?}");
        if kind == 3 {
            let mut count = 0;
            let visit = &mut |_: &[u8], _: &[u8]| {
                count += 1;
                ControlFlow::Continue(())
            };
            db.scan(None, visit).unwrap();
            assert_eq!(count, 20_000);
        } else {
            over(None, 20_000);
        }
        let (most, begun, waited) = judge(&storage.take());
        assert!((6..=9).contains(&most), "{most} pages were begun at once");
        let leaves = 20_000 / per_leaf;
        assert!(begun.len() > leaves * 8 / 10, "{} leaves", begun.len());
        assert!(waited.len() < leaves / 10, "{} alone", waited.len());
        walks += 1;
    }
    tried_at_least(walks, 20, "walks");
}

/// What was shown of a key; the value, if it is there.
type Shown = Option<Option<Vec<u8>>>;

/// A store on a simulated disk, and what is in it.
struct Store {
    keys: Keys,
    many: u64,
    disk: SimDisk,
    options: CreateOptions,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Store {
    fn draw(seed: u64) -> (Self, TreeDb) {
        let mut random = Random::new(seed);
        let options = simulated(&mut random);
        let keys = Keys::draw(&mut random, options.order);
        let many = *random.choose(&[300, 3000, 8000]);
        let disk = SimDisk::new(seed);
        let db = TreeDb::create_in(&disk.directory(), Path::new(NAME), &options).unwrap();
        let mut store = Self {
            keys,
            many,
            disk,
            options,
            records: BTreeMap::new(),
        };
        for number in 0..many {
            store.put(&db, number, &mut random);
        }
        db.close().unwrap();
        let db = store.open();
        (store, db)
    }

    fn open(&self) -> TreeDb {
        let storage = self.disk.directory().open(Path::new(NAME), Access::Write);
        TreeDb::open_on(storage.unwrap(), &self.options.opening).unwrap()
    }

    fn put(&mut self, db: &TreeDb, number: u64, random: &mut Random) {
        let (key, value) = (self.keys.key(number), value(random, 300));
        db.put(&key, &value).unwrap();
        self.records.insert(key, value);
    }

    /// A batch of keys, some of them absent, and some more than once.
    fn batch(&self, random: &mut Random) -> Vec<Vec<u8>> {
        let count = *random.choose(&[0, 1, 2, 31, 32, 33, 100]);
        let first = random.below(self.many);
        let spread = *random.choose(&[1, 40, self.many]);
        (0..count)
            .map(|_| {
                self.keys
                    .key((first + random.below(spread)) % (self.many + 20))
            })
            .collect()
    }

    /// Reads them: what was shown of each, and the error.
    fn read(db: &TreeDb, keys: &[Vec<u8>]) -> (Vec<Shown>, Result<()>) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut shown = vec![None; keys.len()];
        let read = db.read_many(&keys, &mut |at, value| {
            let before = shown[at].replace(value.map(<[u8]>::to_vec));
            assert!(before.is_none(), "key {at} was shown twice");
        });
        (shown, read)
    }
}

#[test]
fn many_keys_are_read_as_a_sorted_map_has_them() {
    let (mut keys_read, mut begun) = (0, 0);
    for round in 0..share(30) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let (mut store, mut db) = Store::draw(seed);
        let _shown = case(seed, &(&store.options, store.keys, store.many));
        for _ in 0..150 {
            let keys = store.batch(&mut random);
            let (shown, read) = Store::read(&db, &keys);
            read.unwrap();
            for (key, shown) in keys.iter().zip(&shown) {
                assert_eq!(shown.as_ref().unwrap().as_ref(), store.records.get(key));
            }
            keys_read += keys.len() as u64;
            match random.below(20) {
                0 => {
                    db.close().unwrap();
                    db = store.open();
                }
                1 => db.maintain().unwrap(),
                2..8 => {
                    for _ in 0..20 {
                        store.put(&db, random.below(store.many), &mut random);
                    }
                }
                _ => {}
            }
        }
        begun += store.disk.faults().count(Operation::ReadAhead);
    }
    tried_at_least(keys_read, 80_000, "keys read in batches");
    tried_at_least(begun, 3000, "reads that began before they were waited for");
}

#[test]
fn a_read_that_fails_costs_its_keys() {
    let (mut failed, mut batches) = (0, 0);
    for round in 0..share(30) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let (store, db) = Store::draw(seed);
        let _shown = case(seed, &(&store.options, store.keys, store.many));
        for _ in 0..60 {
            let faults = store.disk.faults();
            let nth = faults.count(Operation::Read) + random.below(40);
            let fault = *random.choose(&[Fault::Error, Fault::Flip]);
            faults.fail(Operation::Read, nth, fault);
            let struck = faults.struck();
            let keys = store.batch(&mut random);
            let (shown, read) = Store::read(&db, &keys);
            for (key, shown) in keys.iter().zip(&shown) {
                let right = store.records.get(key);
                assert!(shown.as_ref().is_none_or(|found| found.as_ref() == right));
            }
            let missing = shown.iter().filter(|shown| shown.is_none()).count();
            batches += 1;
            match read {
                Ok(()) => assert_eq!(missing, 0),
                Err(error) => {
                    assert!(
                        matches!(error.kind(), Kind::Corrupted | Kind::Io),
                        "{error}"
                    );
                    assert!(faults.struck() > struck);
                    // One read failed, once: that of a page, a list or a run; all others are shown.
                    assert_eq!(missing, 1, "of {}: {error}", keys.len());
                    failed += 1;
                }
            }
            faults.clear();
            // It is there again.
            let (shown, read) = Store::read(&db, &keys);
            read.unwrap();
            assert!(shown.iter().all(Option::is_some));
        }
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
    }
    tried_at_least(batches, 1400, "batches");
    tried_at_least(failed, 100, "batches of which a read failed");
}

#[test]
fn batches_and_walks_next_to_writers_see_each_record_whole() {
    let value = |number: u64, version: u64| {
        let mut value = [eight(number), eight(version)].concat();
        let len = if number.is_multiple_of(40) { 900 } else { 60 };
        value.resize(16 + len, version as u8);
        value
    };
    let is_of = |number: u64, found: &[u8]| {
        let version = found.get(8..16).map(<[u8; 8]>::try_from);
        let Some(Ok(version)) = version else {
            return false;
        };
        #[expect(clippy::big_endian_bytes, reason = "as `eight` states numbers")]
        let version = u64::from_be_bytes(version);
        found == value(number, version)
    };
    let mut keys_read = 0;
    for round in 0..share(6) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let options = super::shaped(&mut random)
            .segment_size(64 << 10)
            .opening(super::opening(&mut random, seed.is_multiple_of(2)));
        let _shown = case(seed, &options);
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
        let many = 6000;
        for number in 0..many {
            db.put(&eight(number), &value(number, 0)).unwrap();
        }
        let read: u64 = std::thread::scope(|scope| {
            let (db, value, is_of) = (&db, &value, &is_of);
            for writer in 0..2 {
                let mut random = Random::new(seed ^ writer << 40);
                scope.spawn(move || {
                    for version in 1..4000 {
                        // Even numbers come and go, the others stay.
                        let number = random.below(many);
                        if number.is_multiple_of(2) && random.one_in(2) {
                            db.remove(&eight(number)).unwrap();
                        } else {
                            db.put(&eight(number), &value(number, version)).unwrap();
                        }
                    }
                });
            }
            let readers = [0, 1].map(|reader| {
                let mut random = Random::new(seed ^ reader << 50);
                scope.spawn(move || {
                    let mut read = 0;
                    for _ in 0..60 {
                        let numbers: Vec<u64> = (0..40).map(|_| random.below(many)).collect();
                        let keys: Vec<Vec<u8>> = numbers
                            .iter()
                            .map(|number| eight(*number).to_vec())
                            .collect();
                        let (shown, end) = Store::read(db, &keys);
                        end.unwrap();
                        for (number, shown) in numbers.iter().zip(shown) {
                            match shown.unwrap() {
                                Some(found) => assert!(is_of(*number, &found)),
                                None => assert!(number.is_multiple_of(2), "{number} is gone"),
                            }
                        }
                        read += 40;
                        if random.one_in(12) {
                            let is_rising = random.one_in(2);
                            let mut cursor = db.cursor();
                            let mut on = if is_rising {
                                cursor.first()
                            } else {
                                cursor.last()
                            };
                            let mut odd = 0;
                            while on.unwrap() {
                                let (key, found) = cursor.record().unwrap();
                                #[expect(
                                    clippy::big_endian_bytes,
                                    reason = "as `eight` states numbers"
                                )]
                                let number = u64::from_be_bytes(key.try_into().unwrap());
                                assert!(is_of(number, found));
                                odd += number % 2;
                                on = if is_rising {
                                    cursor.next()
                                } else {
                                    cursor.previous()
                                };
                            }
                            assert_eq!(odd, many / 2);
                        }
                    }
                    read
                })
            });
            readers.map(|reader| reader.join().unwrap()).iter().sum()
        });
        keys_read += read;
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
    }
    tried_at_least(keys_read, 28_000, "keys read in batches next to writers");
}
