//! Puts that wait for their leaf, as its page is not in memory: no call shows that they do.
//!
//! A store holds several times what its cache does, so most puts find their leaf on storage only. A sorted map agrees with it whatever else is done
//! meanwhile: lookups, removals, walks, counts, ranges, snapshots that live through all of it, checkpoints, copies, caches of another size,
//! threads. What waits is counted, and must be much.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use azekura::engine::{Engine, Ordered, Persistent, Reader};
use azekura::order::Order;
use azekura::record::tree::{Compression, CreateOptions, OpenOptions, Snapshot, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Kind};

use super::beyond::{Model, shown};
use super::{buffered_puts, eight, options};

fn key(number: u64) -> Vec<u8> {
    // Neighbours of different lengths.
    let mut key = eight(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_vec();
    key.resize(8 + (number % 5) as usize, b'k');
    key
}

fn value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(30) {
        0 => 600 + random.below(3000),
        1 => 250 + random.below(20),
        _ => random.below(220),
    };
    random.bytes(len as usize)
}

fn drawn(random: &mut Random) -> CreateOptions {
    let background = random.one_in(2);
    let cache = *random.choose(&[256 << 10, 256 << 10, 512 << 10, 1 << 20]);
    let options = options(random, background).order(Order::Lexical);
    options.cache(cache)
}

fn assert_same(db: &TreeDb, model: &Model) {
    assert_eq!(db.count(), model.len() as u64);
    assert!(shown(db) == *model, "records differ");
    assert_eq!(db.count_range::<&[u8]>(..).unwrap(), model.len() as u64);
    let report = db.check(&mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.damage);
}

/// One call besides puts, and the same on the model.
fn another(db: &TreeDb, model: &mut Model, many: u64, random: &mut Random) {
    let chosen = key(random.below(many));
    match random.below(60) {
        0..20 => assert_eq!(db.get(&chosen).unwrap(), model.get(&chosen).cloned()),
        20..30 => {
            assert_eq!(db.remove(&chosen).unwrap(), model.remove(&chosen).is_some());
        }
        30..38 => {
            let expected = model.get(&chosen).cloned();
            let new = (!random.one_in(4)).then(|| value(random));
            db.update(&chosen, &mut |present| {
                assert_eq!(present.map(<[u8]>::to_vec), expected);
                new.clone()
                    .map_or(Edit::Remove, |new| Edit::Put(new.into()))
            })
            .unwrap();
            match new {
                Some(new) => drop(model.insert(chosen, new)),
                None => drop(model.remove(&chosen)),
            }
        }
        38..44 => {
            let mut cursor = db.cursor();
            cursor.seek(&chosen).unwrap();
            for (key, value) in model.range(chosen..).take(30) {
                assert_eq!(cursor.record(), Some((&key[..], &value[..])));
                cursor.next().unwrap();
            }
        }
        44..48 => {
            let end = key(random.below(many));
            let (from, to) = (chosen.clone().min(end.clone()), chosen.max(end));
            let expected = model.range(from.clone()..to.clone()).count() as u64;
            assert_eq!(db.count_range(from..to).unwrap(), expected);
        }
        48..50 => {
            let keys: Vec<Vec<u8>> = (0..40).map(|_| key(random.below(many))).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            db.read_many(&keys, &mut |at, value| {
                assert_eq!(value, model.get(keys[at]).map(Vec::as_slice));
            })
            .unwrap();
        }
        50 => {
            let from = model.range(chosen..).map(|(key, _)| key.clone());
            let keys: Vec<Vec<u8>> = from.take(1 + random.index(60)).collect();
            if let (Some(from), Some(to)) = (keys.first(), keys.last()) {
                let removed = db.remove_range(&from[..]..=&to[..]).unwrap();
                assert_eq!(removed as usize, keys.len());
                for key in &keys {
                    model.remove(key);
                }
            }
        }
        51 => {
            assert_eq!(db.pop_first().unwrap(), model.pop_first());
        }
        52..54 => db.checkpoint().unwrap(),
        54..56 => db.maintain().unwrap(),
        56 => assert_eq!(db.count(), model.len() as u64),
        57 => {
            let bytes = *random.choose(&[256 << 10, 384 << 10, 1 << 20]);
            db.set_cache(bytes).unwrap();
        }
        58 if random.one_in(10) => db.compact(&mut |_, _| {}).unwrap(),
        _ => {
            let records: Vec<(Vec<u8>, Vec<u8>)> = (0..=random.index(6))
                .map(|_| (key(random.below(many)), value(random)))
                .collect();
            let mut transaction = db.transaction().unwrap();
            for (key, value) in &records {
                transaction.put(key, value).unwrap();
            }
            transaction.commit().unwrap();
            model.extend(records);
        }
    }
}

#[test]
fn a_store_beyond_its_cache_agrees_with_a_sorted_map() {
    let (mut waited, mut looked_at) = (0, 0);
    for round in 0..share(24) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let options = drawn(&mut random);
        let many = *random.choose(&[6000, 12_000]);
        let puts_of_ten = *random.choose(&[5, 9]);
        let _shown = case(seed, &(&options, many, puts_of_ten));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let mut db = TreeDb::create(&path, &options).unwrap();
        let mut model = Model::new();
        for _ in 0..3 {
            let mut snapshots: Vec<(Snapshot<'_>, Model)> = Vec::new();
            let with_snapshots = random.one_in(2);
            for _ in 0..many / 2 {
                if with_snapshots && random.one_in(700) {
                    if snapshots.len() > 2 {
                        snapshots.remove(random.index(3));
                    }
                    snapshots.push((db.snapshot().unwrap(), model.clone()));
                }
                if random.one_in(900) {
                    for (snapshot, then) in &snapshots {
                        looked_at += is_as_then(snapshot, then);
                    }
                }
                if random.below(10) < puts_of_ten {
                    let (key, value) = (key(random.below(many)), value(&mut random));
                    db.put(&key, &value).unwrap();
                    model.insert(key, value);
                } else {
                    another(&db, &mut model, many, &mut random);
                }
            }
            for (snapshot, then) in &snapshots {
                looked_at += is_as_then(snapshot, then);
            }
            drop(snapshots);
            waited += buffered_puts(&db);
            if random.one_in(2) {
                let copy = folder.path().join("copy.azt");
                db.copy_to(&copy, &mut |_, _| {}).unwrap();
                let opened = TreeDb::open(&copy, &OpenOptions::new()).unwrap();
                assert!(shown(&opened) == model, "the copy differs");
                drop(opened);
                std::fs::remove_file(&copy).unwrap();
            }
            if random.one_in(2) {
                assert_same(&db, &model);
            }
            if random.one_in(8) {
                db.clear().unwrap();
                model.clear();
                assert_same(&db, &model);
            }
            db.close().unwrap();
            db = TreeDb::open(&path, &options.opening).unwrap();
        }
        assert_same(&db, &model);
    }
    tried_at_least(looked_at, 20, "snapshots that stayed as they were");
    tried_at_least(waited, 6_000, "puts that waited for their leaf");
}

/// 1, if the snapshot was not ended.
fn is_as_then(snapshot: &Snapshot<'_>, then: &Model) -> u64 {
    let mut records = Model::new();
    let scanned = snapshot.scan(None, &mut |key, value| {
        records.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    });
    match scanned {
        Err(error) if error.kind() == Kind::TooOld => return 0,
        scanned => assert_eq!(scanned.unwrap(), None),
    }
    assert!(records == *then, "a snapshot changed");
    assert_eq!(snapshot.count(), then.len() as u64);
    1
}

/// What waits when a snapshot is taken is in it, also what is put over it afterwards, before the page comes into memory.
#[test]
fn what_waits_is_in_snapshots_as_it_was_put() {
    let mut looked_at = 0;
    for with_checkpoint in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (db, many) = beyond_cache(&folder.path().join("a.azt"));
        let before = buffered_puts(&db);
        let put = |version: u8| {
            for number in (0..many).step_by(7) {
                db.put(&key(number), &[version; 90]).unwrap();
            }
        };
        put(1);
        let first = db.snapshot().unwrap();
        put(2);
        if with_checkpoint {
            db.checkpoint().unwrap();
        }
        let second = db.snapshot().unwrap();
        put(3);
        db.checkpoint().unwrap();
        for number in (0..many).step_by(7) {
            let key = key(number);
            assert_eq!(first.get(&key).unwrap(), Some(vec![1; 90]));
            assert_eq!(second.get(&key).unwrap(), Some(vec![2; 90]));
            assert_eq!(db.get(&key).unwrap(), Some(vec![3; 90]));
            looked_at += 1;
        }
        assert_eq!(first.count(), many);
        let waited = buffered_puts(&db) - before;
        tried_at_least(waited, 300, "puts around snapshots that waited");
    }
    tried_at_least(looked_at, 1000, "records in two snapshots");
}

/// A store of so many records, of which its cache holds a fifth, and whose leaves were all in memory once.
fn beyond_cache(path: &Path) -> (TreeDb, u64) {
    let opening = OpenOptions::new().cache(256u64 << 10).background(false);
    let options = CreateOptions::new()
        .compression(Compression::None)
        .segment_size(64u64 << 10)
        .opening(opening);
    let db = TreeDb::create(path, &options).unwrap();
    let many = 9000;
    for number in 0..many {
        db.put(&key(number), &[0; 90]).unwrap();
    }
    (db, many)
}

/// Counts of ranges know what waits, and so does the count of all.
#[test]
fn what_waits_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (db, many) = beyond_cache(&folder.path().join("a.azt"));
    let mut count = many;
    let mut random = Random::new(1);
    let mut waited = 0;
    for round in 0..share(60) {
        let before = buffered_puts(&db);
        for number in 0..50 {
            // Above all others, in leaves all over the file.
            db.put(&key(many + round * 50 + number), b"new").unwrap();
            count += 1;
        }
        waited += buffered_puts(&db) - before;
        match random.below(3) {
            0 => assert_eq!(db.count(), count),
            1 => assert_eq!(db.count_range::<&[u8]>(..).unwrap(), count),
            _ => {
                let middle = key(random.below(many));
                let below = db.count_range(..&middle[..]).unwrap();
                let above = db.count_range(&middle[..]..).unwrap();
                assert_eq!(below + above, count);
            }
        }
    }
    assert_eq!(db.count(), count);
    tried_at_least(waited, 300, "puts of new records that waited");
}

/// Threads put, remove and read what others do not, while pages come and go; all of it is there at the end, and after a reopen.
#[test]
fn threads_beyond_the_cache_lose_nothing() {
    let mut waited = 0;
    for round in 0..share(12) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let options = drawn(&mut random);
        let writers = 2 + random.below(4);
        let many = *random.choose(&[2000, 5000]);
        let _shown = case(seed, &(&options, writers, many));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let db = TreeDb::create(&path, &options).unwrap();
        let is_done = AtomicBool::new(false);
        let models: Vec<Model> = std::thread::scope(|scope| {
            let (db, done) = (&db, &is_done);
            let write = |writer: u64| {
                move || {
                    let mut random = Random::new(seed ^ writer << 32);
                    let mut model = Model::new();
                    for _ in 0..3 * many {
                        let key = key(random.below(many) * writers + writer);
                        match random.below(10) {
                            0 => {
                                let found = db.remove(&key).unwrap();
                                assert_eq!(found, model.remove(&key).is_some());
                            }
                            1 => assert_eq!(db.get(&key).unwrap(), model.get(&key).cloned()),
                            _ => {
                                let value = value(&mut random);
                                db.put(&key, &value).unwrap();
                                model.insert(key, value);
                            }
                        }
                    }
                    model
                }
            };
            let upkeep = scope.spawn(move || {
                let mut random = Random::new(seed);
                while !done.load(Ordering::Relaxed) {
                    match random.below(5) {
                        0 => db.checkpoint().unwrap(),
                        1 => drop(db.count()),
                        2 => {
                            let snapshot = db.snapshot().unwrap();
                            let then = snapshot.count();
                            std::thread::sleep(Duration::from_millis(3));
                            assert_eq!(snapshot.count(), then);
                        }
                        3 => drop(db.count_range::<&[u8]>(..).unwrap()),
                        _ => db.set_cache((256 << 10) * (1 + random.below(3))).unwrap(),
                    }
                }
            });
            let running: Vec<_> = (0..writers)
                .map(|writer| scope.spawn(write(writer)))
                .collect();
            let models = running.into_iter().map(|thread| thread.join().unwrap());
            let models = models.collect();
            done.store(true, Ordering::Relaxed);
            upkeep.join().unwrap();
            models
        });
        let model: Model = models.into_iter().flatten().collect();
        waited += buffered_puts(&db);
        assert_same(&db, &model);
        db.close().unwrap();
        let db = TreeDb::open(&path, &options.opening).unwrap();
        assert_same(&db, &model);
    }
    tried_at_least(waited, 10_000, "puts of threads that waited for their leaf");
}

/// What waits for a page that turns out to be unreadable is kept: a checkpoint appends it again, and a repair finds it.
#[test]
fn what_waits_for_a_damaged_page_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.azt");
    let (db, many) = beyond_cache(&path);
    let known = |number: u64| Random::new(!number).bytes(80);
    let chosen = 77;
    db.put(&key(chosen), &known(chosen)).unwrap();
    let others = |db: &TreeDb| {
        // Others come into memory, so that this leaf gives way.
        for number in (0..many).filter(|number| number % 3 == 0 && *number != chosen) {
            db.get(&key(number)).unwrap();
        }
    };
    db.checkpoint().unwrap();
    others(&db);
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let place = bytes.windows(80).position(|part| part == known(chosen));
    let mut from = place.unwrap();
    let mut damaged = 0;
    while let Some(at) = bytes[from..]
        .windows(80)
        .position(|part| part == known(chosen))
    {
        file.write_all_at(&[0xee; 16], (from + at) as u64).unwrap();
        from += at + 80;
        damaged += 1;
    }
    assert!(damaged > 0);
    let before = buffered_puts(&db);
    db.put(&key(chosen), b"put after the damage").unwrap();
    assert_eq!(buffered_puts(&db), before + 1, "it waits");
    for _ in 0..3 {
        db.checkpoint().unwrap();
        // More than before the cut of the last one.
        db.put(&key(chosen + 1), b"another").unwrap();
    }
    let error = db.get(&key(chosen)).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted);
    let error = db.put(&key(chosen), b"no more").unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted, "no more waits for it");
    assert_eq!(db.get(&key(chosen + 3)).unwrap(), Some(vec![0; 90]));
    assert!(db.count() >= many - 100);
    db.set_cache(512 << 10).unwrap();
    let error = db.set_cache(256 << 10).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupted, "what waits is in the way");
    db.checkpoint().unwrap();
    db.close().unwrap();
    let target = folder.path().join("repaired.azt");
    azekura::record::tree::repair(&path, &target, &mut |_, _| {}).unwrap();
    let db = TreeDb::open(&target, &OpenOptions::new()).unwrap();
    let found = db.get(&key(chosen)).unwrap();
    assert_eq!(found.as_deref(), Some(&b"put after the damage"[..]));
    assert_eq!(db.get(&key(chosen + 3)).unwrap(), Some(vec![0; 90]));
}
