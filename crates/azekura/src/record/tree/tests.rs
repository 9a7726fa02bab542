//! The tree file: what only its own module can see.
//!
//! What users see of it is tested in `tests/tree`: a model, cuts of the power, killed threads, full stores. Here a tree agrees
//! with a sorted map, and a check is content, through reopens and copies.

use super::layout::Place;
use super::*;
use crate::testkit::random::Random;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

fn small() -> CreateOptions {
    CreateOptions::new()
        .segment_size(64 << 10)
        .opening(OpenOptions::new().cache(CACHE_MIN).background(false))
}

/// Of each shape that pages may have.
fn shapes() -> [CreateOptions; 6] {
    let of = |page_size: u64, compression| small().page_size(page_size).compression(compression);
    [
        of(0, Compression::None),
        of(8 << 10, Compression::None),
        of(16 << 10, Compression::None),
        of(8 << 10, Compression::Lz4),
        of(0, Compression::Lz4),
        of(0, Compression::Zstd),
    ]
}

fn records(db: &TreeDb) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut shown = Vec::new();
    let end = db.scan(None, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    shown
}

#[test]
fn a_tree_agrees_with_a_sorted_map_also_after_reopens() {
    for options in shapes() {
        agree(&options);
    }
}

fn agree(options: &CreateOptions) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let mut random = Random::new(7);
    let mut model = BTreeMap::new();
    let mut db = TreeDb::create(&path, options).unwrap();
    for round in 0..4_u8 {
        for _ in 0..20_000 {
            let key = random.below(30_000).to_string().into_bytes();
            if random.below(4) == 0 {
                assert_eq!(db.remove(&key).unwrap(), model.remove(&key).is_some());
            } else {
                let len = if random.below(50) == 0 {
                    random.below(9000)
                } else {
                    random.below(100)
                };
                // One that does not compress, or one that does.
                let value = if random.one_in(2) {
                    random.bytes(len as usize)
                } else {
                    vec![b'a' + round; len as usize]
                };
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        assert_eq!(db.count(), model.len() as u64, "round {round}");
        let expected: Vec<_> = model.clone().into_iter().collect();
        assert!(records(&db) == expected, "round {round}");
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "round {round}: {:?}", report.damage);
        if round % 2 == 0 {
            db.close().unwrap();
            db = TreeDb::open(&path, &small().opening).unwrap();
        } else {
            let copy = folder.path().join(format!("{round}.azt"));
            db.copy_to(&copy, &mut |_, _| {}).unwrap();
            let copied = TreeDb::open(&copy, &small().opening).unwrap();
            assert!(records(&copied) == expected);
        }
        for (key, value) in &model {
            assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
        }
    }
}

/// Some changes, of a model too, of which no checkpoint is made.
fn change(
    db: &TreeDb,
    model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    random: &mut Random,
    (keys, count): (u64, u64),
) {
    for _ in 0..count {
        let key = format!("{:05}", random.below(keys)).into_bytes();
        match random.below(10) {
            0..4 => {
                assert_eq!(db.remove(&key).unwrap(), model.remove(&key).is_some());
            }
            4 => {
                db.core.tree.nodes.write_back_some(true).unwrap();
                db.core.tree.nodes.evict(40);
            }
            _ => {
                let len = if random.one_in(20) {
                    2000
                } else {
                    random.below(200)
                };
                let value = random.bytes(len as usize);
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
}

/// What a process that is killed now leaves is this.
fn assert_left(db: &TreeDb, left: &Path, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let _ = std::fs::remove_file(left);
    std::fs::copy(db.path(), left).unwrap();
    let found = TreeDb::open(left, &small().opening).unwrap();
    assert_eq!(found.count(), model.len() as u64);
    let shown = records(&found);
    let shown = shown.iter().map(|(key, value)| (key, value));
    assert!(shown.eq(model));
    let report = found.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

#[test]
fn a_checkpoint_is_of_its_cut_whatever_changes_meanwhile() {
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let options = if seed < 8 {
            small()
        } else {
            random.choose(&shapes()).clone()
        };
        let folder = tempfile::tempdir().unwrap();
        let (path, left) = (folder.path().join("a.azt"), folder.path().join("left.azt"));
        let db = TreeDb::create(&path, &options).unwrap();
        let mut model = BTreeMap::new();
        // Of many chunks of the page table, or one.
        let (keys, len) = match seed {
            0 => (100_000, 900),
            1..4 => (20_000, 400),
            _ => (3000, 40),
        };
        for number in (0..keys).step_by(2) {
            let key = format!("{number:05}").into_bytes();
            let value = random.bytes(len);
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        change(&db, &mut model, &mut random, (keys, 4000));
        for _ in 0..if seed == 0 { 5 } else { 3 } {
            // Between the cut and what is written of it pages change, give way, divide, join and go.
            let mut state = db.core.checkpoint.lock();
            let cut = db.core.take_cut();
            let count = *random.choose(&[1, 30, 30, 1500]);
            change(&db, &mut model, &mut random, (keys, count));
            db.core.write_at(&mut state, cut).unwrap();
            drop(state);
            // What it has given back is used, or not.
            let count = *random.choose(&[0, 1500]);
            change(&db, &mut model, &mut random, (keys, count));
            assert_left(&db, &left, &model);
            // And once more of what changed meanwhile, and nothing else.
            db.checkpoint().unwrap();
            assert_left(&db, &left, &model);
            // Of few chunks, so that some are as the last checkpoint has them, or of all.
            let count = *random.choose(&[1, 300]);
            change(&db, &mut model, &mut random, (keys, count));
        }
    }
}

#[test]
fn a_check_names_what_the_bitmaps_have_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let db = TreeDb::create(folder.path().join("a.azt"), &small()).unwrap();
    for number in 0..300_u32 {
        db.put(&number.to_le_bytes(), &[7; 100]).unwrap();
    }
    let check = || db.check(&mut |_, _| {}).unwrap().damage;
    assert_eq!(check(), Vec::<String>::new());
    let room = || db.core.tree.nodes.space.room();
    let class = crate::log::AllocationClass::Growth;
    let units = room().take_units(&[1; 3], class, false).unwrap();
    db.put(b"one", b"more").unwrap();
    let first = units[0] * layout::UNIT;
    let lost = format!(
        "3 units of 4096 bytes are in use and hold nothing, the first of them at offset {first}"
    );
    assert_eq!(check(), [lost]);
    // No page is to be written after this, which could take the unit.
    db.put(b"one", b"other").unwrap();
    db.core.tree.nodes.write_back_some(true).unwrap();
    let of_leaf = Place(db.core.tree.nodes.about(1).place.load(Ordering::Relaxed)).unit();
    for unit in units.into_iter().chain([of_leaf]) {
        room().give_units(unit, 1);
    }
    let damage = check();
    let what = format!(
        "stands at offset {}, which counts as free",
        of_leaf * layout::UNIT
    );
    assert!(damage.len() == 1 && damage[0].contains(&what), "{damage:?}");
}

#[test]
fn a_unit_that_is_given_back_twice_poisons_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let db = TreeDb::create(folder.path().join("a.azt"), &small()).unwrap();
    db.put(b"one", b"1").unwrap();
    let space = &db.core.tree.nodes.space;
    let class = crate::log::AllocationClass::Growth;
    let unit = space.room().take_units(&[1], class, true).unwrap()[0];
    let used = space.room().sizes().used;
    space.room().give_units(unit, 1);
    db.put(b"one", b"2").unwrap();
    space.room().give_units(unit, 1);
    assert_eq!(space.room().sizes().used + 1, used);
    assert_eq!(db.put(b"one", b"3").unwrap_err().kind(), Kind::Poisoned);
    assert_eq!(db.get(b"one").unwrap().as_deref(), Some(&b"2"[..]));
}
