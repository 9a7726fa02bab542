//! What each verb does, on the obvious engine; that all engines agree is the conformance suite's.
//!
//! The cases are those where a verb could be told two ways: absent records, delimiters, counters
//! that are none, overflow, repeated keys, equal keys, races.

use std::ops::ControlFlow;

use super::*;
use crate::testkit::ModelDb;

fn keys(db: &ModelDb, search: &Search, limit: usize) -> Vec<String> {
    let mut keys = Vec::new();
    let shown = db
        .search(search, limit, &mut |key, _| {
            keys.push(String::from_utf8_lossy(key).into_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(shown, keys.len() as u64);
    keys
}

fn value(db: &ModelDb, key: &[u8]) -> Vec<u8> {
    db.get(key).unwrap().unwrap()
}

fn named(mode: &str, pattern: &str) -> Search {
    Search::named(mode, pattern.as_bytes()).unwrap()
}

fn filled(names: &[&str]) -> ModelDb {
    let db = ModelDb::new();
    for name in names {
        db.put(name.as_bytes(), b"v").unwrap();
    }
    db
}

#[test]
fn put_new_replace_and_swap_differ_by_presence() {
    let db = ModelDb::new();
    assert!(!db.replace(b"k", b"1").unwrap());
    assert!(!db.contains(b"k").unwrap());
    assert!(db.put_new(b"k", b"1").unwrap());
    assert!(!db.put_new(b"k", b"2").unwrap());
    assert_eq!(db.swap(b"k", b"3").unwrap(), Some(b"1".to_vec()));
    assert!(db.replace(b"k", b"").unwrap());
    assert_eq!(value(&db, b"k"), b"", "an empty value is a value");
    assert_eq!(db.take(b"k").unwrap(), Some(Vec::new()));
    assert!(!db.remove(b"k").unwrap());
}

#[test]
fn append_delimits_only_after_a_present_record() {
    let db = ModelDb::new();
    db.append_many(&[(b"k", b"a"), (b"k", b"b"), (b"", b"c")], b"::")
        .unwrap();
    assert_eq!(value(&db, b"k"), b"a::b");
    assert_eq!(value(&db, b""), b"c");
    db.put(b"k", b"").unwrap();
    db.append(b"k", b"x", b"::").unwrap();
    assert_eq!(value(&db, b"k"), b"::x", "an empty record is present");
}

#[test]
fn a_counter_is_eight_bytes_big_endian() {
    let db = ModelDb::new();
    assert_eq!(db.counter(b"n").unwrap(), None);
    assert_eq!(db.increment(b"n", 2, 256).unwrap(), 258);
    assert_eq!(value(&db, b"n"), [0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(db.increment(b"n", -300, 0).unwrap(), -42);
    assert_eq!(db.increment(b"n", i64::MIN, 5).unwrap(), -42);
    assert_eq!(db.increment(b"other", i64::MIN, 5).unwrap(), 5);
    assert!(
        !db.contains(b"other").unwrap(),
        "the reading form inserts nothing"
    );
    assert_eq!(
        db.increment_float(b"f", 0.5, 1.0).unwrap().to_bits(),
        1.5f64.to_bits()
    );
    assert_eq!(value(&db, b"f"), [0x3f, 0xf8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(db.counter_float(b"f").unwrap(), Some(1.5));
}

#[test]
fn what_is_no_counter_and_what_overflows_is_refused_and_left() {
    let db = ModelDb::new();
    db.put(b"text", b"seven").unwrap();
    let error = db.increment(b"text", 1, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid: value is not a counter for key \"text\" (found 5 bytes, expected 8 bytes); \
         remove the record, or use another key"
    );
    assert_eq!(db.counter(b"text").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(
        db.increment_float(b"text", 1.0, 0.0).unwrap_err().kind(),
        Kind::Invalid
    );
    assert_eq!(value(&db, b"text"), b"seven");
    db.increment(b"n", i64::MAX, 0).unwrap();
    let error = db.increment(b"n", 1, 0).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("counter would overflow for key \"n\""),
        "{error}"
    );
    assert_eq!(db.counter(b"n").unwrap(), Some(i64::MAX));
}

#[test]
fn compare_exchange_tells_what_it_compared() {
    let db = ModelDb::new();
    let exchange = |expected, desired| {
        let outcome = db.compare_exchange(b"k", expected, desired).unwrap();
        (outcome.done, outcome.actual)
    };
    let one = Some(b"1".to_vec());
    assert_eq!(exchange(Expected::Any, Desired::Put(b"0")), (false, None));
    assert_eq!(exchange(Expected::Absent, Desired::Put(b"1")), (true, None));
    for (expected, desired, done) in [
        (Expected::Absent, Desired::Put(b"2"), false),
        (Expected::Value(b""), Desired::Remove, false),
        (Expected::Any, Desired::Keep, true),
        (Expected::Value(b"1"), Desired::Remove, true),
    ] {
        assert_eq!(exchange(expected, desired), (done, one.clone()));
    }
    assert_eq!(exchange(Expected::Absent, Desired::Keep), (true, None));
}

#[test]
fn compare_exchange_many_writes_all_or_nothing() {
    let db = filled(&["a", "b"]);
    let met: &[(&[u8], Expected<'_>)] = &[
        (b"a", Expected::Value(b"v")),
        (b"b", Expected::Any),
        (b"c", Expected::Absent),
    ];
    let unmet: &[(&[u8], Expected<'_>)] = &[(b"a", Expected::Any), (b"a", Expected::Absent)];
    let desired: &[(&[u8], Desired<'_>)] = &[
        (b"a", Desired::Put(b"1")),
        (b"a", Desired::Put(b"2")),
        (b"a", Desired::Keep),
        (b"b", Desired::Remove),
    ];
    assert!(!db.compare_exchange_many(unmet, desired).unwrap());
    assert_eq!(value(&db, b"a"), b"v");
    assert!(db.compare_exchange_many(met, desired).unwrap());
    assert_eq!(value(&db, b"a"), b"2");
    assert!(!db.contains(b"b").unwrap());
}

#[test]
fn rekey_moves_copies_and_stops_at_a_present_record() {
    let db = filled(&["a"]);
    let moved = Rekeyed::Moved(b"v".to_vec());
    assert_eq!(
        db.rekey(b"none", b"a", true, false).unwrap(),
        Rekeyed::Absent
    );
    assert_eq!(db.rekey(b"a", b"b", false, true).unwrap(), moved);
    assert_eq!(db.count(), 2);
    assert_eq!(db.rekey(b"a", b"b", false, false).unwrap(), Rekeyed::Exists);
    assert_eq!(db.rekey(b"a", b"b", true, false).unwrap(), moved);
    assert_eq!(db.count(), 1);
    assert_eq!(
        db.rekey(b"b", b"b", true, false).unwrap(),
        moved,
        "onto itself it stays"
    );
    assert_eq!(db.rekey(b"b", b"b", false, false).unwrap(), Rekeyed::Exists);
    assert_eq!(value(&db, b"b"), b"v");
}

#[test]
fn a_queue_gives_back_in_the_order_of_time() {
    let db = ModelDb::new();
    assert_eq!(db.pop_first().unwrap(), None);
    let key = db.push_last(b"second", Some(2.0)).unwrap();
    assert_eq!(
        key,
        [0, 0, 0, 0, 0x0b, 0xeb, 0xc2, 0x00],
        "2 * 10^8, big-endian"
    );
    assert_eq!(
        db.push_last(b"third", Some(2.0)).unwrap()[7],
        1,
        "counted up until unused"
    );
    db.push_last(b"first", Some(1.0)).unwrap();
    db.push_last(b"last", None).unwrap();
    let values: Vec<_> = std::iter::from_fn(|| db.pop_first().unwrap())
        .map(|(_, value)| value)
        .collect();
    assert_eq!(values, [&b"first"[..], b"second", b"third", b"last"]);
    for bad in [-1.0, f64::NAN, f64::INFINITY, 2e11] {
        assert_eq!(
            db.push_last(b"", Some(bad)).unwrap_err().kind(),
            Kind::Invalid
        );
    }
}

#[test]
fn each_record_is_popped_by_one_of_many() {
    let db = ModelDb::new();
    for n in 0..400u32 {
        db.put(&n.to_le_bytes(), b"").unwrap();
    }
    let popped = std::thread::scope(|scope| {
        let pop = || std::iter::from_fn(|| db.pop_first().unwrap()).count();
        let threads = [(); 4].map(|()| scope.spawn(pop));
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(popped.iter().sum::<usize>(), 400);
}

#[test]
fn forms_for_many_count_what_was_there() {
    let db = ModelDb::new();
    assert_eq!(
        db.put_many_new(&[(b"a", b"1"), (b"a", b"2"), (b"b", b"3")])
            .unwrap(),
        2
    );
    assert_eq!(
        db.get_many(&[b"b", b"none", b"a", b"b"]).unwrap(),
        [
            Some(b"3".to_vec()),
            None,
            Some(b"1".to_vec()),
            Some(b"3".to_vec())
        ]
    );
    db.put_all(&[(b"c", b"1"), (b"c", b"2"), (b"d", b"")])
        .unwrap();
    assert_eq!(value(&db, b"c"), b"2");
    assert_eq!(db.remove_many(&[b"a", b"a", b"none"]).unwrap(), 1);
    assert_eq!(db.remove_all(&[b"b", b"c", b"c", b"none"]).unwrap(), 2);
    assert_eq!(db.count(), 1);
}

#[test]
fn put_all_over_a_limit_changes_nothing() {
    let db = ModelDb::with_limits(2, 2);
    let error = db.put_all(&[(b"a", b"1"), (b"long", b"2")]).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    assert_eq!(db.count(), 0);
}

#[test]
fn verbs_that_read_work_on_a_reader_behind_dyn() {
    let db = filled(&["a"]);
    let reader: &dyn Reader = &db;
    assert_eq!(reader.get(b"a").unwrap().unwrap(), b"v");
    let boxed: Box<dyn Engine> = Box::new(db);
    assert!(boxed.remove(b"a").unwrap());
}

#[test]
fn texts_are_found_at_their_place() {
    let db = filled(&["abc", "bcd", "cab", "c.b", ""]);
    let find = |mode, pattern| keys(&db, &named(mode, pattern), 0);
    assert_eq!(find("contain", "ab"), ["abc", "cab"]);
    assert_eq!(find("begin", "c"), ["c.b", "cab"]);
    assert_eq!(find("end", "b"), ["c.b", "cab"]);
    assert_eq!(find("equal", "abc"), ["abc"]);
    assert_eq!(
        find("contain", "c.b"),
        ["c.b"],
        "a text is not an expression"
    );
    assert_eq!(find("contain*", "bcd\n.b"), ["bcd", "c.b"]);
    assert_eq!(find("begin*", "a\nb"), ["abc", "bcd"]);
    assert_eq!(find("contain", "").len(), 5, "the empty text is everywhere");
    assert_eq!(find("equal", ""), [""]);
    let none = Search::text(&[], Place::Anywhere, false, false).unwrap();
    assert!(keys(&db, &none, 0).is_empty());
}

#[test]
fn case_and_words_are_those_of_the_text() {
    let db = filled(&[
        "Red Apple",
        "redapple",
        "a-RED-b",
        "red_1",
        "\u{c9}t\u{e9} red",
    ]);
    let find = |mode, pattern| keys(&db, &named(mode, pattern), 0).len();
    assert_eq!(find("containcase", "red"), 5);
    assert_eq!(find("containword", "red"), 1);
    assert_eq!(find("containcaseword", "red"), 3);
    assert_eq!(find("containcaseword*", "red\nredapple"), 4);
    assert_eq!(
        find("begincase", "\u{e9}T"),
        1,
        "letters beyond ASCII have cases too"
    );
    assert_eq!(
        find("containword", "-RED-"),
        1,
        "what is no letter is its own boundary"
    );
    assert_eq!(find("equalcase", "RED APPLE"), 1);
}

#[test]
fn keys_and_texts_need_not_be_utf8() {
    let db = ModelDb::new();
    db.put(b"\xffAb\n\x00", b"").unwrap();
    db.put(b"\xfeab", b"").unwrap();
    let count = |text: &[u8], case, words| {
        let search = Search::text(&[text], Place::Anywhere, case, words).unwrap();
        db.search(&search, 0, &mut |_, _| ControlFlow::Continue(()))
            .unwrap()
    };
    assert_eq!(count(b"\xffAb\n", false, false), 1);
    assert_eq!(count(b"\xffaB", true, false), 1);
    assert_eq!(count(b"\xff", true, true), 1);
    assert_eq!(count(b"ab", true, false), 2);
    assert_eq!(count(b"\n\x00", false, false), 1);
}

#[test]
fn an_expression_matches_anywhere_and_a_wrong_one_is_explained() {
    let db = filled(&["a1", "b22", "c"]);
    assert_eq!(keys(&db, &Search::regex("[0-9]{2}$").unwrap(), 0), ["b22"]);
    assert_eq!(keys(&db, &Search::regex("(?i)^A").unwrap(), 0), ["a1"]);
    let error = Search::regex("a(b").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid: not a regular expression (unclosed group)"
    );
    assert_eq!(
        Search::regex("(?:a{1000}){1000}").unwrap_err().kind(),
        Kind::Invalid
    );
    let error = Search::named("similar", b"x").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no search mode is called similar"),
        "{error}"
    );
    assert_eq!(
        Search::named("edit", b"\xff").unwrap_err().kind(),
        Kind::Invalid
    );
}

#[test]
fn the_nearest_keys_come_first_and_equals_by_key() {
    let db = filled(&["kitten", "sitting", "mitten", "bitten", "\u{e9}", "e"]);
    let near = |search: &Search, limit| keys(&db, search, limit);
    assert_eq!(
        near(&Search::nearest_text("kitten"), 3),
        ["kitten", "bitten", "mitten"]
    );
    assert_eq!(near(&Search::nearest_text("kitten"), 0).len(), 6);
    assert_eq!(
        near(&Search::nearest_text("\u{e8}"), 2),
        ["e", "\u{e9}"],
        "one character off"
    );
    assert_eq!(near(&Search::nearest_bytes(b""), 2), ["e", "\u{e9}"]);
    assert_eq!(
        near(&Search::nearest_bytes("\u{e8}".as_bytes()), 1),
        ["\u{e9}"],
        "one byte off"
    );
}

#[test]
fn every_mode_has_a_name_that_is_understood() {
    for mode in Search::MODES {
        Search::named(mode, b"a").unwrap();
    }
}

/// Tkrzw continues to the end of the store after its last hit.
#[test]
fn a_search_ends_with_the_last_record_wanted() {
    struct Counting(ModelDb, std::sync::atomic::AtomicU64);
    impl Reader for Counting {
        fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
            self.0.read(key, visit)
        }
        fn scan_past(
            &self,
            from: Option<&crate::engine::Bookmark>,
            visit: &mut Visit<'_>,
            damaged: &mut crate::engine::Damaged<'_>,
        ) -> Result<Option<crate::engine::Bookmark>> {
            let visit = &mut |key: &[u8], value: &[u8]| {
                self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                visit(key, value)
            };
            self.0.scan_past(from, visit, damaged)
        }
        fn bookmark_at(&self, key: &[u8]) -> crate::engine::Bookmark {
            self.0.bookmark_at(key)
        }
        fn count(&self) -> u64 {
            self.0.count()
        }
        fn stats(&self) -> crate::engine::Stats {
            self.0.stats()
        }
        fn promise(&self) -> crate::engine::Promise {
            self.0.promise()
        }
    }
    let db = Counting(filled(&["a", "b", "b2", "c", "d"]), 0.into());
    let search = named("begin", "b");
    let mut shown = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        shown += 1;
        ControlFlow::Continue(())
    };
    assert_eq!(db.search(&search, 2, &mut visit).unwrap(), 2);
    assert_eq!(shown, 2);
    assert_eq!(db.1.load(std::sync::atomic::Ordering::Relaxed), 3);
    let once = db
        .search(&search, 0, &mut |_, _| ControlFlow::Break(()))
        .unwrap();
    assert_eq!(once, 1, "the visitor ends it too");
}
