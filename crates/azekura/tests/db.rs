//! `Db`, as a program uses it: on a real file, with keys and values of any type that is bytes.
//!
//! Each method answers as its documentation states; what lies beneath has its own suites. Options of creating stay with the
//! file, options of opening do not.

use azekura::record::hash::Compression;
use azekura::verbs::{Desired, Expected, Rekeyed, Search};
use azekura::{CreateOptions, Db, Durability, Edit, Kind, OpenOptions};

fn with_db(test: impl FnOnce(&std::path::Path, Db)) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.azh");
    let db = azekura::create(&path).expect("a new store");
    test(&path, db);
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
        db.close().unwrap();
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
        let shown = db.engine().inspect();
        assert!(shown.contains(&("compression", "lz4".into())), "{shown:?}");
        assert!(
            shown.contains(&("segment_size", "65536".into())),
            "{shown:?}"
        );
    });
}
