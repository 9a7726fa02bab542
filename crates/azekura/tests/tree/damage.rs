//! Damaged files: a flipped bit anywhere, an end that is cut off, sectors that the device does not give; of files that were closed, and of
//! some whose process died.
//!
//! Every answer is the right one, or an error; never a wrong one, or absence. A scan passes by what is damaged; `check` finds what
//! readers find. What is written afterwards is right too, also after a reopen, or refused. A repair brings over what can be read, and
//! reports what it costs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use azekura::engine::{Ordered, Persistent, Reader};
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory, Storage};
use azekura::record::tree::{Compression, CreateOptions, TreeDb, repair};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Durability, Error, Kind, Result};

use super::{Keys, draw_ends, is_in, simulated, value};

const NAME: &str = "damaged.azt";

/// A file as some process left it, and what is in it.
struct Left {
    options: CreateOptions,
    keys: Keys,
    many: u64,
    disk: SimDisk,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// All that was ever put.
    ever: HashSet<(Vec<u8>, Vec<u8>)>,
    is_closed: bool,
}

fn open(disk: &SimDisk, options: &CreateOptions) -> Result<TreeDb> {
    // What was verified before does not count.
    disk.evict();
    let storage = disk.directory().open(Path::new(NAME), Access::Write)?;
    TreeDb::open_on(storage, &options.opening)
}

impl Left {
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let options = simulated(&mut random);
        let keys = Keys::draw(&mut random, options.order);
        let many = *random.choose(&[20, 300, 2000]);
        let usual = *random.choose(&[20, 200, 400]);
        let disk = SimDisk::new(seed);
        let mut db = TreeDb::create_in(&disk.directory(), Path::new(NAME), &options).unwrap();
        let mut records = BTreeMap::new();
        let mut ever = HashSet::new();
        let mut put = |db: &TreeDb, records: &mut BTreeMap<_, _>, number, random: &mut Random| {
            let (key, value) = (keys.key(number), value(random, usual));
            db.put(&key, &value).unwrap();
            ever.insert((key.clone(), value.clone()));
            records.insert(key, value);
        };
        for number in 0..many {
            put(&db, &mut records, number, &mut random);
        }
        if random.one_in(2) {
            db.close().unwrap();
            db = open(&disk, &options).unwrap();
        }
        for _ in 0..random.below(many * 2) {
            let number = random.below(many);
            match random.below(300) {
                0 => db.checkpoint().unwrap(),
                1 => {
                    let key = |random: &mut Random| {
                        keys.key((number + random.below(many / 8 + 1)) % many)
                    };
                    let ends = draw_ends(&mut random, options.order, key);
                    let before = records.len();
                    records.retain(|key, _| !is_in(options.order, &ends, key));
                    let removed = db.remove_range(ends).unwrap();
                    assert_eq!(removed as usize, before - records.len());
                }
                2..100 => {
                    let key = keys.key(number);
                    assert_eq!(db.remove(&key).unwrap(), records.remove(&key).is_some());
                }
                _ => put(&db, &mut records, number, &mut random),
            }
        }
        let is_closed = random.one_in(3);
        if is_closed {
            db.close().unwrap();
        } else if random.one_in(2) {
            db.sync(Durability::Power).unwrap();
        }
        let disk = disk.kill_state(disk.events());
        Self {
            options,
            keys,
            many,
            disk,
            records,
            ever,
            is_closed,
        }
    }

    /// The file again, to be damaged.
    fn copy(&self) -> SimDisk {
        self.disk.kill_state(self.disk.events())
    }
}

/// Whether damage may end a call like this.
fn is_of_damage(error: &Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        Kind::Corrupted | Kind::Io | Kind::Mismatch | Kind::Poisoned
    )
}

/// What is expected of a store whose file is damaged.
struct Judge<'l> {
    left: &'l Left,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keys of which an update failed by an error of the device: either state is right.
    unknown: BTreeSet<Vec<u8>>,
}

impl Judge<'_> {
    /// Whether every answer is right, or an error; whether there were errors.
    fn is_noticed(&self, db: &TreeDb) -> bool {
        let mut errors = 0;
        let mut note = |error: &Error| {
            assert!(is_of_damage(error), "{error}");
            errors += 1;
        };
        let all: Vec<Vec<u8>> = (0..self.left.many + 5)
            .map(|number| self.left.keys.key(number))
            .collect();
        let mut readable = Vec::with_capacity(all.len());
        for (number, key) in all.iter().enumerate() {
            let found = db.get(key);
            readable.push(found.is_ok());
            match found {
                Err(error) => note(&error),
                Ok(found) => assert!(
                    found.as_ref() == self.records.get(key) || self.unknown.contains(key),
                    "a wrong answer for key {number}: {:?}",
                    found.map(|value| value.len())
                ),
            }
        }
        let mut shown = vec![false; all.len()];
        let keys: Vec<&[u8]> = all.iter().map(|key| &key[..]).collect();
        let many = db.read_many(&keys, &mut |at, found| {
            let right = self.records.get(&all[at]).map(|value| &value[..]);
            assert!(found == right || self.unknown.contains(&all[at]));
            assert!(!std::mem::replace(&mut shown[at], true));
        });
        assert_eq!(shown, readable, "a key of many, or alone");
        assert_eq!(
            many.is_ok(),
            readable.iter().all(|is_readable| *is_readable)
        );
        let order = db.order();
        let mut shown: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut passed = 0;
        let end = db.scan_past(
            None,
            &mut |key, value| {
                shown.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            },
            &mut |error| {
                note(&error);
                passed += 1;
                Ok(())
            },
        );
        if let Err(error) = end {
            note(&error);
            passed += 1;
        }
        assert!(shown.is_sorted_by(|a, b| order.compare(&a.0, &b.0).is_lt()));
        for (key, value) in &shown {
            assert!(self.records.get(key) == Some(value) || self.unknown.contains(key));
        }
        let missing = self.records.len().abs_diff(shown.len());
        assert!(
            missing == 0 || passed > 0 || !self.unknown.is_empty(),
            "{missing} records are missing without an error"
        );
        let mut cursor = db.cursor();
        let mut on = cursor.last();
        let mut seen = 0;
        while let Ok(true) = on {
            let (key, value) = cursor.record().unwrap();
            assert!(
                self.records.get(key).is_some_and(|own| own == value) || self.unknown.contains(key)
            );
            seen += 1;
            on = cursor.previous();
        }
        match on {
            Err(error) => note(&error),
            Ok(_) => assert!(seen == shown.len() || passed > 0),
        }
        errors > 0
    }

    /// Changes the store, as far as it lets.
    fn change(&mut self, db: &TreeDb, random: &mut Random) {
        for number in 0..200 {
            let key = self.left.keys.key(random.below(self.left.many + 5));
            let done = if random.one_in(3) {
                let removed = db.remove(&key);
                removed.map(|was_there| {
                    let expected = self.records.remove(&key).is_some();
                    assert!(was_there == expected || self.unknown.contains(&key));
                })
            } else {
                let value = value(random, 100);
                let put = db.put(&key, &value);
                put.map(|()| drop(self.records.insert(key.clone(), value)))
            };
            if let Err(error) = done {
                assert!(is_of_damage(&error), "{error}");
                if matches!(error.kind(), Kind::Io | Kind::Poisoned) {
                    self.unknown.insert(key);
                }
            }
            if number % 50 == 30 {
                self.change_range(db, random);
            }
            if number % 90 == 50
                && let Err(error) = db.checkpoint()
            {
                assert!(is_of_damage(&error), "{error}");
            }
        }
    }
}

impl Judge<'_> {
    /// Removes neighbours: all of them, or none.
    fn change_range(&mut self, db: &TreeDb, random: &mut Random) {
        let (keys, many) = (self.left.keys, self.left.many);
        let first = random.below(many);
        let key = |random: &mut Random| keys.key((first + random.below(20)) % many);
        let ends = draw_ends(random, db.order(), key);
        if ends.0 == Bound::Unbounded || ends.1 == Bound::Unbounded {
            return;
        }
        let is_in = |key: &[u8]| is_in(db.order(), &ends, key);
        match db.remove_range(ends.clone()) {
            Ok(removed) => {
                let before = self.records.len();
                self.records.retain(|key, _| !is_in(key));
                let expected = before - self.records.len();
                let is_known = !self.unknown.iter().any(|key| is_in(key));
                assert!(removed as usize == expected || !is_known);
            }
            Err(error) => {
                assert!(is_of_damage(&error), "{error}");
                if matches!(error.kind(), Kind::Io | Kind::Poisoned) {
                    let in_range = self.records.keys().filter(|key| is_in(key));
                    self.unknown.extend(in_range.cloned());
                }
            }
        }
    }
}

/// Opens a damaged file, reads all of it, changes it, opens it again; whether it opened, and whether readers noticed.
fn judge(left: &Left, disk: &SimDisk, random: &mut Random) -> (bool, bool) {
    let db = match open(disk, &left.options) {
        Ok(db) => db,
        Err(error) => {
            assert!(is_of_damage(&error), "{error}");
            return (false, true);
        }
    };
    let mut judge = Judge {
        left,
        records: left.records.clone(),
        unknown: BTreeSet::new(),
    };
    let is_noticed = judge.is_noticed(&db);
    match db.check(&mut |_, _| {}) {
        Ok(report) => assert!(
            !is_noticed || !report.is_sound(),
            "a check finds nothing, readers do"
        ),
        Err(error) => assert!(is_of_damage(&error), "{error}"),
    }
    judge.change(&db, random);
    judge.is_noticed(&db);
    if random.one_in(2) {
        if let Err(error) = db.close() {
            assert!(is_of_damage(&error), "{error}");
        }
    } else {
        drop(db);
    }
    match open(disk, &left.options) {
        Ok(db) => drop(judge.is_noticed(&db)),
        Err(error) => assert!(is_of_damage(&error), "{error}"),
    }
    (true, is_noticed)
}

/// The bytes of a file, with zeros for what cannot be read.
fn bytes_of(disk: &SimDisk) -> Vec<u8> {
    let storage: Arc<dyn Storage> = disk
        .directory()
        .open(Path::new(NAME), Access::Read)
        .unwrap();
    let mut bytes = vec![0; storage.size().unwrap() as usize];
    for (at, sector) in bytes.chunks_mut(512).enumerate() {
        if storage.read_at(at as u64 * 512, sector).is_err() {
            sector.fill(0);
        }
    }
    bytes
}

/// Repairs a file of these bytes; whether there was enough of it.
fn repaired(left: &Left, bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let (damaged, target) = (folder.path().join("a.azt"), folder.path().join("b.azt"));
    std::fs::write(&damaged, bytes).unwrap();
    let report = match repair(&damaged, &target, &mut |_, _| {}) {
        Ok(report) => report,
        Err(error) => {
            assert!(is_of_damage(&error), "{error}");
            assert!(!target.exists(), "a file is left of a repair that failed");
            return false;
        }
    };
    assert_eq!(std::fs::read(&damaged).unwrap(), bytes, "it is only read");
    let db = TreeDb::open(&target, &left.options.opening).unwrap();
    assert_eq!(db.order(), left.options.order);
    assert_eq!(db.count(), report.recovered);
    assert!(db.check(&mut |_, _| {}).unwrap().is_sound());
    let mut same = 0;
    let end = db.scan(None, &mut |key, value| {
        let is_same = left.records.get(key).is_some_and(|own| own == value);
        same += usize::from(is_same);
        // Where the journal is damaged, what it changed is as it was before.
        let was = left.ever.contains(&(key.to_vec(), value.to_vec()));
        assert!(
            is_same || (was && !left.is_closed && report.losses > 0),
            "a record that was not there: {} bytes, {was}, {report:?}",
            value.len()
        );
        ControlFlow::Continue(())
    });
    assert!(end.unwrap().is_none());
    assert!(
        same == left.records.len() || report.losses > 0,
        "{report:?}"
    );
    assert_eq!(report.lost.len() as u64, report.losses.min(1000));
    true
}

/// Damages files in one way, again and again, so often at least in a full run; what is asserted of each is what this module promises.
/// Whether readers noticed is of damage that they can come to.
fn suite(
    (rounds, salt): (u64, u64),
    (full_least, what): (u64, &str),
    reaches_readers: bool,
    damage: &dyn Fn(&SimDisk, u64, &mut Random),
) {
    let (mut tried, mut opened, mut noticed, mut repairs) = (0, 0, 0, 0);
    for round in 0..share(rounds) {
        let seed = round + round_seed() + salt;
        let left = Left::draw(seed);
        let _shown = case(seed, &(&left.options, left.keys, left.many, left.is_closed));
        let mut random = Random::new(!seed);
        let size = bytes_of(&left.disk).len() as u64;
        for _ in 0..8 {
            let disk = left.copy();
            damage(&disk, size, &mut random);
            if random.one_in(3) {
                repairs += u64::from(repaired(&left, &bytes_of(&disk)));
            }
            let (is_open, is_noticed) = judge(&left, &disk, &mut random);
            tried += 1;
            opened += u64::from(is_open);
            noticed += u64::from(is_open && is_noticed);
        }
    }
    assert!(repairs > 0 || tried < 100, "nothing was repaired");
    if reaches_readers {
        assert!(opened * 3 > tried);
        assert!(noticed > 0 || tried < 100, "readers came to no damage");
    }
    let what = format!(
        "{what}; {opened} files opened, readers noticed {noticed}, {repairs} were repaired"
    );
    tried_at_least(tried, full_least, &what);
}

#[test]
fn a_flipped_bit_costs_its_page() {
    suite(
        (60, 0),
        (400, "bits flipped"),
        true,
        &|disk, size, random| {
            let bytes = bytes_of(disk);
            let mut draw = || {
                // The first pages often: what is found by its offset is there.
                let end = if random.one_in(4) {
                    size.min(8 * 4096)
                } else {
                    size
                };
                random.below(end)
            };
            // Where something stands, mostly.
            let mut offset = draw();
            for _ in 0..4 {
                if bytes[offset as usize] != 0 {
                    break;
                }
                offset = draw();
            }
            disk.rot(NAME, offset, 1 << random.below(8));
        },
    );
}

/// Units of a file in which a compressed image begins, with its length.
fn packed_images(bytes: &[u8]) -> Vec<(usize, usize)> {
    let begins = |(number, unit): (usize, &[u8])| {
        let word = |at: usize| u32::from_le_bytes(*unit[at..].first_chunk().unwrap());
        let len = word(8) as usize;
        // Epoch, records, number of the page, and zero.
        let is_head = word(4) < 16 && word(12) < 2048 && word(24) < 1000 && word(28) == 0;
        let is_packed = (1..16 << 10).contains(&len) && is_head;
        is_packed.then_some((number * 4096, 32 + len))
    };
    let units = bytes.chunks_exact(4096).enumerate().skip(4);
    units.filter_map(begins).collect()
}

#[test]
fn a_bit_of_any_compressed_page_is_noticed_and_costs_that_page() {
    let mut tried = 0;
    for (round, compression) in [Compression::Lz4, Compression::Zstd]
        .into_iter()
        .enumerate()
    {
        let mut random = Random::new(round as u64 + round_seed());
        let folder = tempfile::tempdir().unwrap();
        let (path, damaged) = (folder.path().join("a.azt"), folder.path().join("b.azt"));
        let options = CreateOptions::new().compression(compression);
        let options = options.segment_size(64u64 << 10).background(false);
        let db = TreeDb::create(&path, &options).unwrap();
        let key = |number: u32| format!("{number:06}").into_bytes();
        let value = |number: u32| format!("{number:>200}").into_bytes();
        let count = 1500;
        (0..count).for_each(|number| db.put(&key(number), &value(number)).unwrap());
        db.checkpoint().unwrap();
        let properties = db.inspect();
        let pages = properties
            .iter()
            .find(|(name, _)| *name == "pages")
            .unwrap();
        let pages: u64 = pages.1.parse().unwrap();
        db.close().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut noticed = 0;
        for (offset, len) in packed_images(&bytes) {
            let mut bytes = bytes.clone();
            bytes[offset + random.index(len)] ^= 1 << random.below(8);
            std::fs::write(&damaged, &bytes).unwrap();
            let db = TreeDb::open(&damaged, &options.opening).unwrap();
            let mut lost = 0;
            for number in 0..count {
                match db.get(&key(number)) {
                    Ok(found) => assert!(found == Some(value(number))),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Corrupted, "{error}");
                        assert!(error.to_string().contains("it costs the records from"));
                        lost += 1;
                    }
                }
            }
            let report = db.check(&mut |_, _| {}).unwrap();
            assert_eq!(report.is_sound(), lost == 0);
            if lost == 0 {
                continue;
            }
            noticed += 1;
            assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
            assert!(report.damage[0].contains("it costs the records from"));
            // The root costs all of them, until a repair finds its leaves.
            let is_root = lost == count;
            assert!(lost < 200 || is_root, "{lost} records are lost");
            drop(db);
            let target = folder.path().join("c.azt");
            let report = repair(&damaged, &target, &mut |_, _| {}).unwrap();
            let costs = if is_root { 0 } else { lost };
            assert_eq!(report.recovered, u64::from(count - costs));
            assert_eq!(report.found_leaves > 0, is_root);
            let repaired = TreeDb::open(&target, &options.opening).unwrap();
            let shape = |db: &TreeDb| {
                let of = |(name, _): &(&str, String)| matches!(*name, "compression" | "page_bytes");
                db.inspect().into_iter().filter(of).collect::<Vec<_>>()
            };
            let expected = [
                ("page_bytes", "16384".to_owned()),
                ("compression", compression.word().to_owned()),
            ];
            assert_eq!(shape(&repaired), expected);
            drop(repaired);
            std::fs::remove_file(&target).unwrap();
        }
        // Those that are no more were written before, and superseded.
        assert_eq!(noticed, pages, "of all pages a bit is noticed");
        tried += noticed;
    }
    tried_at_least(tried, 30, "compressed pages of which a bit was flipped");
}

#[test]
fn a_sector_that_cannot_be_read_costs_its_page() {
    let what = (250, "sectors made unreadable");
    suite((40, 1 << 20), what, true, &|disk, size, random| {
        let offset = random.below(size);
        disk.make_unreadable(NAME, offset..offset + 1);
    });
}

#[test]
fn a_journal_that_is_cut_off_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cut) = (folder.path().join("a.azt"), folder.path().join("b.azt"));
    let options = CreateOptions::new().segment_size(64u64 << 10);
    let db = TreeDb::create(&path, &options).unwrap();
    for number in 0..2000_u32 {
        db.put(number.to_string().as_bytes(), &[7; 100]).unwrap();
    }
    // As its process left it when it died.
    let bytes = std::fs::read(&path).unwrap();
    // In each of its segments; the first one the superblock names.
    for len in [20_000, 90_001, 140_000, 200_000, 240_000] {
        std::fs::write(&cut, &bytes[..len]).unwrap();
        let error = TreeDb::open(&cut, &options.opening).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted, "{len}: {error}");
    }
    std::fs::write(&cut, &bytes).unwrap();
    assert_eq!(TreeDb::open(&cut, &options.opening).unwrap().count(), 2000);
}

#[test]
fn an_end_that_is_cut_off_is_noticed() {
    suite(
        (25, 2 << 20),
        (150, "ends cut off"),
        false,
        &|disk, size, random| {
            let storage = disk.directory().open(Path::new(NAME), Access::Write);
            storage.unwrap().resize(random.below(size)).unwrap();
        },
    );
}

#[test]
fn a_file_that_is_open_is_not_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let (path, target) = (folder.path().join("a.azt"), folder.path().join("b.azt"));
    let db = TreeDb::create(&path, &CreateOptions::new()).unwrap();
    db.put(b"key", b"value").unwrap();
    let refused = repair(&path, &target, &mut |_, _| {}).unwrap_err();
    assert!(
        refused.kind() == Kind::Locked && !target.exists(),
        "{refused}"
    );
    db.close().unwrap();
    // Nor is it opened while it is repaired; and what is reported is of the file.
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(5).rposition(|part| part == b"value").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut is_locked = false;
    let report = repair(&path, &target, &mut |_, _| {
        let opened = TreeDb::open(&path, &CreateOptions::new().opening);
        is_locked = opened.is_err_and(|error| error.kind() == Kind::Locked);
    })
    .unwrap();
    assert!(is_locked && report.recovered == 0);
    assert!(
        report.lost.iter().any(|lost| lost.contains("a.azt")),
        "{report:?}"
    );
}
