//! `Db`, as a program uses it: on a real file, with keys and values of any type that is bytes.
//!
//! Each method answers as its documentation states; what lies beneath has its own suites. Options of creating stay with the
//! file, options of opening do not.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use azekura::order::Order;
use azekura::record::hash::Compression;
use azekura::testkit::Random;
use azekura::verbs::{Desired, Expected, Rekeyed, Search};
use azekura::{CreateOptions, Db, Durability, Edit, Kind, OpenOptions};

/// With a hash file, and with a tree file.
fn with_db(test: impl Fn(&std::path::Path, Db)) {
    for (name, is_tree) in [("records.azh", false), ("records.azt", true)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        let db = azekura::create(&path).expect("a new store");
        assert_eq!(db.order().is_some(), is_tree);
        test(&path, db);
    }
}

fn text(value: Option<Vec<u8>>) -> Option<String> {
    value.map(|value| String::from_utf8(value).expect("text"))
}

#[test]
fn keys_and_values_are_anything_that_is_bytes() {
    with_db(|_, db| {
        db.put("str", String::from("String")).unwrap();
        db.put(b"array", [1u8, 2, 3]).unwrap();
        db.put(vec![0xff; 3], vec![0u8; 5]).unwrap();
        assert_eq!(
            text(db.get(String::from("str")).unwrap()).as_deref(),
            Some("String")
        );
        assert_eq!(
            db.read([0xff; 3], |value| value.map(<[u8]>::len)).unwrap(),
            Some(5)
        );
        let many = db.get_many(&["str", "none"]).unwrap();
        assert_eq!(many, [Some(b"String".to_vec()), None]);
        assert_eq!((db.count(), db.stats().count), (3, 3));
    });
}

#[test]
fn each_verb_answers_as_it_states() {
    with_db(|_, db| {
        assert!(db.put_new("a", "1").unwrap() && !db.put_new("a", "2").unwrap());
        assert!(db.replace("a", "3").unwrap() && !db.replace("b", "3").unwrap());
        assert_eq!(text(db.swap("a", "4").unwrap()).as_deref(), Some("3"));
        assert_eq!(text(db.take("a").unwrap()).as_deref(), Some("4"));
        assert!(!db.contains("a").unwrap() && !db.remove("a").unwrap());
        db.append("log", "x", ",").unwrap();
        db.append_many(&[("log", "y"), ("log", "z")], ",").unwrap();
        assert_eq!(text(db.get("log").unwrap()).as_deref(), Some("x,y,z"));
        assert_eq!(db.increment("n", 2, 40).unwrap(), 42);
        assert_eq!(db.counter("n").unwrap(), Some(42));
        let float = db.increment_float("f", 0.5, 1.0).unwrap();
        assert_eq!(db.counter_float("f").unwrap(), Some(float));
        let swapped = db.compare_exchange("log", Expected::Value(b"x,y,z"), Desired::Put(b"w"));
        assert!(swapped.unwrap().done);
        let moved = db.rekey("log", "log2", false, false).unwrap();
        assert_eq!(moved, Rekeyed::Moved(b"w".to_vec()));
        assert_eq!(db.put_many_new(&[("n", "0"), ("m", "0")]).unwrap(), 1);
        db.put_many(&[("p", "1"), ("q", "2")]).unwrap();
        db.put_all(&[("r", "1"), ("s", "2")]).unwrap();
        let found = db
            .search(&Search::named("begin", b"log").unwrap(), 9)
            .unwrap();
        assert_eq!(found, [(b"log2".to_vec(), b"w".to_vec())]);
        assert!(
            db.compare_exchange_many(&[(b"r", Expected::Any)], &[(b"r", Desired::Remove)])
                .unwrap()
        );
        assert_eq!(db.remove_many(&["p", "r"]).unwrap(), 1);
        assert_eq!(db.remove_all(&["q", "s", "s"]).unwrap(), 2);
        let key = db.push_last("last", Some(1e9)).unwrap();
        assert_eq!(text(db.get(key).unwrap()).as_deref(), Some("last"));
        assert!(db.pop_first().unwrap().is_some());
        db.clear().unwrap();
        assert_eq!((db.count(), db.pop_first().unwrap()), (0, None));
    });
}

#[test]
fn an_iterator_shows_each_record_once_over_many_batches() {
    with_db(|_, db| {
        for number in 0..2000u32 {
            db.put(number.to_le_bytes(), number.to_string()).unwrap();
        }
        let mut numbers: Vec<u32> = db
            .iter()
            .map(|record| {
                let (key, value) = record.expect("a record");
                let number = u32::from_le_bytes(key.try_into().expect("four bytes"));
                assert_eq!(value, number.to_string().into_bytes());
                number
            })
            .collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..2000));
        let mut iter = (&db).into_iter();
        assert!(iter.by_ref().take(10).all(|record| record.is_ok()));
        assert_eq!(iter.count(), 1990);
    });
}

#[test]
fn an_iterator_ends_with_an_error_after_the_records_before_it() {
    with_db(|path, db| {
        for number in 0..100u32 {
            let value = format!("the value of {number:05}");
            db.put(number.to_le_bytes(), value).unwrap();
        }
        let (_, last) = db.iter().last().expect("a record").unwrap();
        let is_tree = db.as_tree().is_some();
        db.close().unwrap();
        if is_tree {
            // All records are of one page there.
            return;
        }
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.windows(last.len()).position(|found| found == last);
        let at = at.expect("the last value");
        bytes[at..at + last.len()].fill(0);
        std::fs::write(path, bytes).unwrap();
        let db = azekura::open(path).unwrap();
        let mut iter = db.iter();
        assert!(iter.by_ref().take(99).all(|record| record.is_ok()));
        let error = iter.next().expect("an end that is told").unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted);
        assert!(iter.next().is_none());
    });
}

#[test]
fn a_store_is_made_once_and_opened_again_with_options() {
    with_db(|path, db| {
        db.update("a", |value| {
            assert_eq!(value, None);
            Edit::put(b"1")
        })
        .unwrap();
        db.sync().unwrap();
        assert_eq!(
            azekura::open(path).err().map(|error| error.kind()),
            Some(Kind::Locked)
        );
        let copy = path.with_extension("copy");
        db.copy_to(&copy, |_, _| ()).unwrap();
        assert!(db.check(|_, _| ()).unwrap().is_sound() && db.damage().is_empty());
        db.compact(|_, _| ()).unwrap();
        assert_eq!(db.path(), path);
        db.close().unwrap();
        let again = azekura::create(path).err().map(|error| error.kind());
        assert_eq!(again, Some(Kind::Invalid), "nothing is written over");
        if path.extension().is_some_and(|of| of == "azt") {
            let named =
                |file: &std::path::Path| format!("{}?cache=1MiB&durability=power", file.display());
            for file in [path, &copy] {
                let db = azekura::open(named(file)).unwrap();
                assert_eq!(text(db.get("a").unwrap()).as_deref(), Some("1"));
                assert_eq!(db.engine().promise().durability, Some(Durability::Power));
            }
            return;
        }
        let opening = OpenOptions::new()
            .durability(Durability::Power)
            .capacity(1 << 30)
            .space_ratio(2.0)
            .background(false);
        for file in [path, &copy] {
            let db = Db::open(file, &opening).unwrap();
            assert_eq!(text(db.get("a").unwrap()).as_deref(), Some("1"));
        }
        let refused = Db::open(path, &opening.clone().space_ratio(0.5)).err();
        assert_eq!(refused.map(|error| error.kind()), Some(Kind::Invalid));
        let made = path.with_extension("lz4");
        let options = CreateOptions::new()
            .compression(Compression::Lz4)
            .segment_size(64 << 10)
            .opening(opening);
        let db = Db::create(&made, &options).unwrap();
        db.put("text", "a".repeat(4000)).unwrap();
        let shown = db.inspect();
        assert!(shown.contains(&("compression", "lz4".into())), "{shown:?}");
        assert!(
            shown.contains(&("segment_size", "65536".into())),
            "{shown:?}"
        );
    });
}

fn key_of((key, _): &(Vec<u8>, Vec<u8>)) -> &[u8] {
    key
}

#[test]
fn a_range_is_what_a_sorted_map_has_from_either_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = Random::new(11);
    let mut tried = 0;
    for round in 0..20 {
        let order = *random.choose(&Order::ALL);
        let path = folder.path().join(format!("{round}.azt"));
        let named = format!("{}?order={}&cache=256KiB", path.display(), order.name());
        let db = azekura::create(&named).unwrap();
        assert_eq!(db.order(), Some(order));
        let count = *random.choose(&[0, 1, 5, 3000]);
        let mut records: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for number in 0..count {
            let key = random.below(4 * count).to_string().into_bytes();
            let value = vec![number as u8; random.index(700)];
            db.put(&key, &value).unwrap();
            records.retain(|record| key_of(record) != key);
            records.push((key, value));
        }
        records.sort_by(|a, b| order.compare(&a.0, &b.0));
        assert!(db.iter().map(Result::unwrap).eq(records.iter().cloned()));
        assert_eq!(db.first().unwrap(), records.first().cloned());
        assert_eq!(db.last().unwrap(), records.last().cloned());
        for _ in 0..50 {
            let mut bound = || {
                let key = random.below(4 * count + 2).to_string().into_bytes();
                match random.below(3) {
                    0 => Bound::Unbounded,
                    1 => Bound::Included(key),
                    _ => Bound::Excluded(key),
                }
            };
            let (from, to) = (bound(), bound());
            let compare =
                |record: &(Vec<u8>, Vec<u8>), key: &Vec<u8>| order.compare(&record.0, key);
            let is_from = |record: &&(Vec<u8>, Vec<u8>)| match &from {
                Bound::Unbounded => true,
                Bound::Included(key) => compare(record, key).is_ge(),
                Bound::Excluded(key) => compare(record, key).is_gt(),
            };
            let is_to = |record: &&(Vec<u8>, Vec<u8>)| match &to {
                Bound::Unbounded => true,
                Bound::Included(key) => compare(record, key).is_le(),
                Bound::Excluded(key) => compare(record, key).is_lt(),
            };
            let in_range = records.iter().filter(is_from).filter(is_to);
            let mut left: VecDeque<_> = in_range.cloned().collect();
            let range = db.range((from.clone(), to.clone()));
            let is_reversed = match (&from, &to) {
                (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
                (
                    Bound::Included(a) | Bound::Excluded(a),
                    Bound::Included(b) | Bound::Excluded(b),
                ) => order.compare(a, b).is_gt(),
            };
            if is_reversed {
                assert_eq!(range.err().map(|error| error.kind()), Some(Kind::Invalid));
                continue;
            }
            let mut range = range.unwrap();
            let is_front = *random.choose(&[Some(true), Some(false), None]);
            loop {
                let (found, expected) = if is_front.unwrap_or_else(|| random.one_in(2)) {
                    (range.next(), left.pop_front())
                } else {
                    (range.next_back(), left.pop_back())
                };
                let found = found.map(Result::unwrap);
                assert!(
                    found == expected,
                    "{order:?} {from:?} {to:?}: {found:?}, {expected:?}"
                );
                if found.is_none() {
                    break;
                }
                tried += 1;
            }
            assert!(range.next().is_none() && range.next_back().is_none());
        }
    }
    assert!(tried > 10_000, "{tried} records of ranges");
}

/// What others put right after the end of a range is not taken for its last record.
#[test]
fn the_last_of_a_range_is_found_while_others_change_what_is_beyond_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = azekura::create(folder.path().join("a.azt")).unwrap();
    db.put("a", "1").unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                db.put("c", "x").unwrap();
                db.remove("c").unwrap();
            }
        });
        for round in 0..100_000 {
            let last = db.range("a"..="b").unwrap().next_back();
            let last = last.map(|record| record.unwrap().0);
            if last.as_deref() != Some(b"a") {
                is_done.store(true, Ordering::Relaxed);
                panic!("{last:?} in round {round}");
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_range_that_has_ended_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = azekura::create(folder.path().join("a.azt")).unwrap();
    db.put("b", "1").unwrap();
    let mut range = db.range("a".."z").unwrap();
    assert!(range.next().is_some() && range.next().is_none());
    db.put("c", "2").unwrap();
    assert!(range.next().is_none() && range.next_back().is_none());
    let mut range = db.range("a".."z").unwrap().rev();
    assert_eq!(range.by_ref().count(), 2);
    db.put("aa", "3").unwrap();
    assert!(range.next().is_none());
}

#[test]
fn a_hash_file_has_neither_snapshots_nor_transactions() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = azekura::create(folder.path().join("a.azh")).unwrap();
    let refused = [
        db.snapshot().err(),
        db.transaction().err(),
        db.transact(|_| Ok(())).err(),
    ];
    for error in refused {
        assert_eq!(error.unwrap().kind(), Kind::Invalid);
    }
}

#[test]
fn a_cursor_goes_both_ways_and_a_hash_file_has_none() {
    with_db(|_, db| {
        db.put_many(&[("a", "1"), ("b", "2"), ("c", "3")]).unwrap();
        if db.as_hash().is_some() {
            let kinds = [
                db.cursor().err().map(|error| error.kind()),
                db.range("a".."b").err().map(|error| error.kind()),
                db.first().err().map(|error| error.kind()),
            ];
            assert_eq!(kinds, [Some(Kind::Invalid); 3]);
            return;
        }
        let mut cursor = db.cursor().unwrap();
        assert!(cursor.seek(b"bb").unwrap());
        assert_eq!(cursor.record(), Some((&b"c"[..], &b"3"[..])));
        assert!(cursor.previous().unwrap());
        assert_eq!(cursor.record(), Some((&b"b"[..], &b"2"[..])));
    });
}

#[test]
fn the_engine_is_of_the_name_or_the_parameters_and_the_order_must_be_the_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for (name, is_tree) in [
        ("a", false),
        ("b?engine=tree&order=decimal", true),
        ("c.azt?engine=hash&compression=lz4", false),
        ("d.azt?segment_size=128KiB", true),
    ] {
        let db = azekura::create(at(name)).expect(name);
        assert_eq!(db.as_tree().is_some(), is_tree, "{name}");
        db.close().unwrap();
    }
    let created = azekura::create(at("e.azt?cache=1MiB/")).map_err(|error| error.kind());
    assert_eq!(created.err(), Some(Kind::Invalid));
    let made = std::fs::read(at("b")).unwrap();
    let kind = |name: &str| azekura::open(at(name)).err().map(|error| error.kind());
    assert_eq!(kind("b?order=pair-lexical"), Some(Kind::Mismatch));
    assert!(
        std::fs::read(at("b")).unwrap() == made,
        "what is refused is not changed"
    );
    for (name, expected) in [
        ("b?order=decimal", None),
        ("b?order=lexical", Some(Kind::Mismatch)),
        ("b?space_ratio=2", Some(Kind::Invalid)),
        ("c.azt?cache=1MiB", Some(Kind::Invalid)),
        ("c.azt?space_ratio=2&capacity=1GiB", None),
        ("c.azt?space_ratio=nan", Some(Kind::Invalid)),
        ("d.azt?cache=1", Some(Kind::Invalid)),
        ("d.azt?capacity=18446744073709551615", Some(Kind::Invalid)),
        ("d.azt?capacity=8388607TiB", Some(Kind::Invalid)),
        ("d.azt?sync_interval=0s", Some(Kind::Invalid)),
        ("none.azt?cache=1MiB", Some(Kind::Io)),
        ("d.azt?engine=tree", Some(Kind::Invalid)),
        ("none.azt", Some(Kind::Io)),
    ] {
        assert_eq!(kind(name), expected, "{name}");
    }
    let names = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = names.map(|of| of.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "b", "c.azt", "d.azt"]);
}

/// None would sync all the time: it is another option that does that for each change.
#[test]
fn a_sync_interval_of_zero_is_refused_by_every_engine() {
    use azekura::object::{self, Store};
    use azekura::record::tree::{self, TreeDb};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let zero = std::time::Duration::ZERO;
    let refused = |error: azekura::Error| {
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("interval") || text.contains("more than none"),
            "{text}"
        );
    };
    let hash = CreateOptions::new().sync_interval(zero);
    refused(Db::create(at("a"), &hash).map(drop).unwrap_err());
    let tree = tree::CreateOptions::new().sync_interval(zero);
    refused(TreeDb::create(at("a"), &tree).map(drop).unwrap_err());
    let objects = object::CreateOptions::new().capacity(64u64 << 20);
    let memory = || azekura::io::memory::Memory::new(64 << 20).unwrap();
    let wrong = objects.clone().sync_interval(zero);
    refused(
        Store::create_on(memory(), None, &wrong, &mut |_, _| {})
            .map(drop)
            .unwrap_err(),
    );
    refused(
        azekura::create(at("a.azt?sync_interval=0s"))
            .map(drop)
            .unwrap_err(),
    );
    assert!(!at("a").exists() && !at("a.azt").exists());
    azekura::create(at("a.azh")).unwrap().close().unwrap();
    azekura::create(at("a.azt")).unwrap().close().unwrap();
    refused(Db::open(at("a.azh"), &hash.opening).map(drop).unwrap_err());
    refused(
        TreeDb::open(at("a.azt"), &tree.opening)
            .map(drop)
            .unwrap_err(),
    );
}
