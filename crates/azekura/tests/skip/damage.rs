//! Damaged files: a flipped bit anywhere, an end that is cut off, sectors that the device does not give.
//!
//! Every answer is the right one, or an error; never a wrong one, or absence. What the damage does not touch is read; `check` finds
//! damage that costs anything; a repair brings over all that can be read, and counts what is missing.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use azekura::engine::Cursor as _;
use azekura::io::sim::SimDisk;
use azekura::io::{Access, Directory, Storage};
use azekura::order::Order;
use azekura::record::skip::{BuildOptions, SkipBuilder, SkipReader, repair};
use azekura::testkit::suite::{case, demand, share};
use azekura::testkit::{Random, round_seed};
use azekura::{Kind, Persistent as _, Reader as _};

use super::{Built, NAME, Records};

/// The file's storage.
fn stored(disk: &SimDisk) -> Arc<dyn Storage> {
    let storage = disk.directory().open(Path::new(NAME), Access::Read);
    storage.unwrap()
}

/// Opens the file with an empty cache: what was verified before does not count.
fn opened(disk: &SimDisk) -> azekura::Result<SkipReader> {
    disk.evict();
    SkipReader::open_on(stored(disk))
}

/// Reads everything that can be read. How many records are lost.
fn lost_of(file: &SkipReader, expected: &Records, built: &Built, random: &mut Random) -> usize {
    let mut errors = 0;
    let mut seen = Records::new();
    let end = file.scan_past(
        None,
        &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        },
        &mut |error| {
            assert!(
                matches!(error.kind(), Kind::Corrupted | Kind::Io),
                "{error}"
            );
            errors += 1;
            Ok(())
        },
    );
    assert!(end.unwrap().is_none());
    // They are those of the file, in order, and others are missing.
    let mut rest = expected.iter();
    for record in &seen {
        assert!(
            rest.any(|own| own == record),
            "a record that is not in the file"
        );
    }
    let lost = expected.len() - seen.len();
    assert_eq!(lost > 0, errors > 0, "{lost} records lost, {errors} errors");
    let order = built.order();
    for _ in 0..4 {
        from_a_key(file, &seen, expected, order, random);
    }
    for _ in 0..100 {
        if expected.is_empty() {
            break;
        }
        let (key, _) = random.choose(expected);
        let first = expected.partition_point(|(own, _)| order.compare(own, key).is_lt());
        match file.get(key) {
            Ok(value) => assert_eq!(value.as_ref(), Some(&expected[first].1), "{key:?}"),
            Err(error) => {
                assert!(
                    matches!(error.kind(), Kind::Corrupted | Kind::Io),
                    "{error}"
                );
                assert!(lost > 0, "{error}");
            }
        }
        let index = random.index(expected.len());
        match file.by_index(index as u64) {
            Ok(record) => assert_eq!(record.as_ref(), expected.get(index)),
            Err(error) => assert!(lost > 0, "{error}"),
        }
    }
    lost
}

/// A scan from a key, wherever it stands, shows what can be read from there on, also in parts; a cursor that fails stands on none.
fn from_a_key(
    file: &SkipReader,
    seen: &Records,
    expected: &Records,
    order: Order,
    random: &mut Random,
) {
    let Some((key, _)) = expected.get(random.index(expected.len().max(1))) else {
        return;
    };
    let wanted = seen
        .iter()
        .filter(|(own, _)| order.compare(own, key).is_ge());
    let mut shown = Records::new();
    let mut from = Some(file.bookmark_at(key));
    while let Some(place) = from {
        let mut left = 1 + random.index(300);
        let scanned = file.scan_past(
            Some(&place),
            &mut |key, value| {
                shown.push((key.to_vec(), value.to_vec()));
                left -= 1;
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
            &mut |_| Ok(()),
        );
        from = scanned.unwrap();
    }
    assert!(wanted.eq(&shown), "a scan from {key:?} shows others");
    let mut cursor = file.cursor();
    cursor.first().ok();
    if cursor.seek(key).is_err() {
        assert!(cursor.get().is_none());
    }
}

/// Repairs the file, and compares what comes out.
fn repaired(built: &Built, expected: &Records, lost: usize, random: &mut Random) {
    let folder = tempfile::tempdir().unwrap();
    let (damaged, target) = (folder.path().join("a.azs"), folder.path().join("b.azs"));
    std::fs::write(&damaged, bytes_of(&*stored(&built.disk))).unwrap();
    let report = repair(&damaged, &target, &mut |_, _| {}).unwrap();
    let file = SkipReader::open(&target).unwrap();
    assert_eq!(file.order(), built.order());
    assert!(file.check(&mut |_, _| {}).unwrap().is_sound());
    assert_eq!(report.recovered, file.count());
    assert_eq!(report.recovered + report.missing, expected.len() as u64);
    assert_eq!(report.missing > 0, report.losses > 0);
    assert_eq!(report.losses.min(1000), report.lost.len() as u64);
    // What the levels above hide is in leaves.
    assert!(
        report.missing <= lost as u64,
        "{report:?}, {lost} were lost to a reader"
    );
    let left = lost_of(&file, &all_of(&file), built, random);
    assert_eq!(left, 0);
    let mut rest = expected.iter();
    for record in &all_of(&file) {
        assert!(
            rest.any(|own| own == record),
            "a record that was not in the file"
        );
    }
}

fn all_of(file: &SkipReader) -> Records {
    let mut all = Records::new();
    file.scan(None, &mut |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// All bytes; zeros where they cannot be read.
fn bytes_of(storage: &dyn Storage) -> Vec<u8> {
    let mut bytes = vec![0; storage.size().unwrap() as usize];
    for (at, sector) in bytes.chunks_mut(512).enumerate() {
        if storage.read_at(at as u64 * 512, sector).is_err() {
            sector.fill(0);
        }
    }
    bytes
}

#[test]
fn a_flipped_bit_costs_what_it_stands_in() {
    let (mut flips, mut costly) = (0, 0);
    for round in 0..share(300) {
        let seed = round_seed() + 1_000_000 + round;
        let built = Built::draw(seed, 4000);
        let _case = case(seed, &built);
        let size = {
            built.build().unwrap();
            stored(&built.disk).size().unwrap()
        };
        let expected = built.expected();
        let mut random = Random::new(!seed);
        for _ in 0..6 {
            let (offset, mask) = (random.below(size), 1 << random.index(8));
            built.disk.rot(NAME, offset, mask);
            let file = opened(&built.disk).unwrap();
            let lost = lost_of(&file, &expected, &built, &mut random);
            let report = file.check(&mut |_, _| {}).unwrap();
            if lost > 0 {
                costly += 1;
                assert!(
                    report.needs_repair(),
                    "a check finds nothing at {offset:#x}"
                );
                let is_root = offset >= size - 8192;
                assert!(lost < expected.len() || expected.len() < 800 || is_root);
            }
            if offset < 8192 || offset >= size - 4096 {
                // One superblock is lost; the others state the same.
                assert_eq!(lost, 0);
            }
            if random.one_in(3) {
                repaired(&built, &expected, lost, &mut random);
            }
            built.disk.rot(NAME, offset, mask);
            flips += 1;
        }
        assert!(
            opened(&built.disk)
                .unwrap()
                .check(&mut |_, _| {})
                .unwrap()
                .is_sound()
        );
    }
    demand(flips, share(300) * 6, "flipped bits of sorted files");
    demand(costly, share(300), "of them that cost records");
}

#[test]
fn sectors_that_cannot_be_read_are_errors() {
    let mut tried = 0;
    for round in 0..share(200) {
        let seed = round_seed() + 2_000_000 + round;
        let built = Built::draw(seed, 4000);
        let _case = case(seed, &built);
        let size = built.build().unwrap().stats().file_bytes;
        let expected = built.expected();
        let mut random = Random::new(!seed);
        let at = random.below(size - 4096) & !511;
        let end = at + 512 * (1 + random.below(8));
        built
            .disk
            .make_unreadable(NAME, at.max(4096)..end.min(size - 4096).max(at.max(4096)));
        let file = opened(&built.disk).unwrap();
        let lost = lost_of(&file, &expected, &built, &mut random);
        repaired(&built, &expected, lost, &mut random);
        tried += 1;
    }
    demand(tried, share(200), "sorted files with unreadable sectors");
}

#[test]
fn a_file_that_is_cut_off_is_refused_and_repaired() {
    let mut tried = 0;
    for round in 0..share(200) {
        let seed = round_seed() + 3_000_000 + round;
        let built = Built::draw(seed, 4000);
        let _case = case(seed, &built);
        let size = built.build().unwrap().stats().file_bytes;
        let expected = built.expected();
        let folder = tempfile::tempdir().unwrap();
        let (damaged, target) = (folder.path().join("a.azs"), folder.path().join("b.azs"));
        let mut bytes = bytes_of(&*stored(&built.disk));
        let mut random = Random::new(!seed);
        let len = random.below(size);
        bytes.truncate(len as usize);
        std::fs::write(&damaged, &bytes).unwrap();
        let refused = SkipReader::open(&damaged).unwrap_err();
        let kind = if len == 0 {
            Kind::Mismatch
        } else {
            Kind::Corrupted
        };
        assert_eq!(refused.kind(), kind, "{refused}");
        match repair(&damaged, &target, &mut |_, _| {}) {
            Ok(report) => {
                assert_eq!(report.recovered + report.missing, expected.len() as u64);
                let file = SkipReader::open(&target).unwrap();
                let all = all_of(&file);
                let mut rest = expected.iter();
                assert!(all.iter().all(|record| rest.any(|own| own == record)));
            }
            Err(error) => {
                assert!(len < 8192, "{error}");
                assert!(!target.exists());
            }
        }
        tried += 1;
    }
    demand(tried, share(200), "sorted files that were cut off");
}

#[test]
fn readers_of_a_replaced_file_keep_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azs");
    let built = |value: &[u8]| {
        let options = BuildOptions::new();
        let new = folder.path().join("new.azs");
        let mut builder = SkipBuilder::create(&new, &options).unwrap();
        for number in 0..5000u32 {
            builder
                .put(format!("{number:08}").as_bytes(), value)
                .unwrap();
        }
        drop(builder.finish(&mut |_, _| {}).unwrap());
        std::fs::rename(&new, &path).unwrap();
    };
    built(b"old");
    let old = Arc::new(SkipReader::open(&path).unwrap());
    built(b"new");
    let new = SkipReader::open(&path).unwrap();
    for number in (0..5000u32).rev() {
        let key = format!("{number:08}");
        assert_eq!(
            old.get(key.as_bytes()).unwrap().as_deref(),
            Some(&b"old"[..])
        );
        assert_eq!(
            new.get(key.as_bytes()).unwrap().as_deref(),
            Some(&b"new"[..])
        );
    }
}

/// Long keys that begin alike, of which one leaf is damaged: those of other leaves are found.
#[test]
fn a_damaged_leaf_costs_long_keys_that_begin_alike_no_other_leaf() {
    let disk = SimDisk::new(1);
    let directory: Box<dyn Directory> = Box::new(disk.directory());
    let options = BuildOptions::new();
    let mut builder = SkipBuilder::create_in(directory, Path::new(NAME), &options).unwrap();
    let key = |number: u32| format!("{}{number:05}", "S".repeat(510)).into_bytes();
    for number in 0..2000 {
        builder
            .put(&key(number), number.to_string().as_bytes())
            .unwrap();
    }
    drop(builder.finish(&mut |_, _| {}).unwrap());
    let open = || opened(&disk).unwrap();
    let size = open().stats().file_bytes;
    let mut damaged_leaves = 0;
    for block in 2..size / 4096 - 1 {
        let offset = block * 4096 + 100;
        disk.rot(NAME, offset, 4);
        let file = open();
        let mut left = 0;
        let scanned = file.scan_past(
            None,
            &mut |_, _| {
                left += 1;
                ControlFlow::Continue(())
            },
            &mut |_| Ok(()),
        );
        scanned.unwrap();
        let found = (0..2000).step_by(7).filter(|number| {
            let found = file.get(&key(*number));
            found.is_ok_and(|value| value == Some(number.to_string().into_bytes()))
        });
        let (found, lost) = (found.count(), 2000 - left);
        if lost < 1000 {
            assert!(
                found + lost / 7 + 3 >= 2000 / 7,
                "{found} of {left} are found"
            );
            damaged_leaves += u64::from(lost > 1);
        }
        disk.rot(NAME, offset, 4);
    }
    demand(damaged_leaves, 8, "damaged leaves of keys that begin alike");
}

/// A copy of damage would take the place of the last whole one.
#[test]
fn a_damaged_file_is_not_copied_and_one_with_a_lost_superblock_is_whole_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut builder = SkipBuilder::create(at("a.azs"), &BuildOptions::new()).unwrap();
    for number in 0..3000 {
        builder
            .put(format!("{number:05}").as_bytes(), b"value")
            .unwrap();
    }
    drop(builder.finish(&mut |_, _| {}).unwrap());
    let whole = std::fs::read(at("a.azs")).unwrap();
    let len = whole.len();
    let mut damaged = whole.clone();
    damaged[20_000] ^= 1;
    std::fs::write(at("b.azs"), &damaged).unwrap();
    let file = SkipReader::open(at("b.azs")).unwrap();
    let error = file.copy_to(&at("c.azs"), &mut |_, _| {}).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted, "{error}");
    assert!(!at("c.azs").exists());
    // Any one of the three superblocks is enough.
    let slots = [0, 4096, len - 4096];
    for lost in 1..7_usize {
        let mut damaged = whole.clone();
        let lost: Vec<usize> = (0..3).filter(|slot| lost >> slot & 1 != 0).collect();
        for slot in &lost {
            damaged[slots[*slot]..slots[*slot] + 4096].fill(0);
        }
        std::fs::write(at("d.azs"), &damaged).unwrap();
        let file = SkipReader::open(at("d.azs")).unwrap();
        assert_eq!(file.damage().len(), lost.len());
        assert_eq!(file.get(b"00007").unwrap().as_deref(), Some(&b"value"[..]));
        assert!(azekura::open::is_sorted(&at("d.azs")).unwrap());
        file.copy_to(&at("e.azs"), &mut |_, _| {}).unwrap();
        assert!(std::fs::read(at("e.azs")).unwrap() == whole);
        std::fs::remove_file(at("e.azs")).unwrap();
    }
}
