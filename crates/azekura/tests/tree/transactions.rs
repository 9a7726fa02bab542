//! Transactions: what they read and write, alone and next to others, and what is a conflict.
//!
//! A model has what a transaction must show and leave. Threads run transactions whose histories must be explained by an order
//! (`testkit::transactions`), where snapshots alone allow skews, which are found.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use azekura::engine::{
    Bookmark, Damaged, DecideMany, Engine, Persistent, Promise, Reader, Stats, Visit,
};
use azekura::error::Kind;
use azekura::record::tree::{CreateOptions, Isolation, OpenOptions, Transaction, TreeDb};
use azekura::testkit::history::history_key;
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, concurrently, round_seed, transactions};
use azekura::{Edit, order::Order};

use super::{Keys, options, value};

fn small() -> CreateOptions {
    let opening = OpenOptions::new().cache(4u64 << 20).background(false);
    CreateOptions::new()
        .segment_size(64u64 << 10)
        .opening(opening)
}

fn with(records: &[(&str, &str)]) -> (tempfile::TempDir, TreeDb) {
    let folder = tempfile::tempdir().unwrap();
    let db = TreeDb::create(folder.path().join("a.azt"), &small()).unwrap();
    for (key, value) in records {
        db.put(key.as_bytes(), value.as_bytes()).unwrap();
    }
    (folder, db)
}

fn is_conflict(transaction: Transaction<'_>) -> bool {
    match transaction.commit() {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), Kind::Conflict, "{error}");
            true
        }
    }
}

fn shown(transaction: &Transaction<'_>, from: &str, to: &str) -> Vec<String> {
    let range = transaction.range(from..to).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let record = |record: azekura::Result<(Vec<u8>, Vec<u8>)>| {
        let (key, value) = record.unwrap();
        format!("{}={}", text(key), text(value))
    };
    range.map(record).collect()
}

#[test]
fn what_is_read_is_of_one_moment_and_what_is_written_is_seen() {
    let (_folder, db) = with(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let mut transaction = db.transaction().unwrap();
    db.put(b"a", b"other").unwrap();
    db.put(b"aa", b"other").unwrap();
    assert_eq!(transaction.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    transaction.put("b", "two").unwrap();
    transaction.put("bb", "new").unwrap();
    transaction.remove("c").unwrap();
    assert_eq!(transaction.get("b").unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(transaction.get("c").unwrap(), None);
    assert_eq!(shown(&transaction, "a", "z"), ["a=1", "b=two", "bb=new"]);
    let backward: Vec<_> = transaction.range("a".."z").unwrap().rev().collect();
    assert_eq!(backward.len(), 3);
    assert_eq!(db.get(b"b").unwrap().as_deref(), Some(&b"2"[..]), "not yet");
    // It has read what was changed.
    assert!(is_conflict(transaction));
    assert_eq!(db.get(b"bb").unwrap(), None, "nothing of it");
}

#[test]
fn a_commit_is_whole_and_what_another_wrote_first_is_a_conflict() {
    let (folder, db) = with(&[("a", "1"), ("b", "2")]);
    let mut first = db.transaction().unwrap();
    let mut second = db.transaction().unwrap();
    first.put("a", "first").unwrap();
    first.remove("b").unwrap();
    first.put("large", vec![b'l'; 30_000]).unwrap();
    second.put("a", "second").unwrap();
    assert!(!is_conflict(first));
    assert!(is_conflict(second), "the first that commits wins");
    assert_eq!(db.count(), 2);
    assert_eq!(
        db.get(b"large").unwrap().map(|value| value.len()),
        Some(30_000)
    );
    let mut same = db.transaction().unwrap();
    same.put("large", "small").unwrap();
    db.put(b"large", &vec![b'x'; 30_000]).unwrap();
    db.put(b"large", &vec![b'l'; 30_000]).unwrap();
    assert!(!is_conflict(same), "it is as it was");
    db.close().unwrap();
    let db = TreeDb::open(folder.path().join("a.azt"), &small().opening).unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"first"[..]));
    assert_eq!(db.get(b"large").unwrap().as_deref(), Some(&b"small"[..]));
}

type Read = fn(&Transaction<'_>);
type Change = fn(&TreeDb);

#[test]
fn what_was_read_must_be_as_it_was_unless_that_is_allowed() {
    let records: Vec<(String, String)> = (0..2000)
        .map(|number| (format!("{number:05}"), "x".repeat(number % 50)))
        .collect();
    let records: Vec<(&str, &str)> = records.iter().map(|(a, b)| (&a[..], &b[..])).collect();
    let get: Read = |of| drop(of.get("00700").unwrap());
    let miss: Read = |of| assert_eq!(of.get("00700.5").unwrap(), None);
    let range: Read = |of| assert_eq!(of.range("00100".."01900").unwrap().count(), 1800);
    let back: Read = |of| assert_eq!(of.range("00100".."01900").unwrap().rev().count(), 1800);
    let some: Read = |of| assert_eq!(of.range("00100"..).unwrap().take(5).count(), 5);
    let all: Read = |of| assert!(of.range::<&str>(..).unwrap().count() >= 2000);
    let none: Read = |_| ();
    let set: Change = |db| db.put(b"00700", b"changed").unwrap();
    let remove: Change = |db| assert!(db.remove(b"00700").unwrap());
    let insert: Change = |db| db.put(b"00700.5", b"new").unwrap();
    let last: Change = |db| db.put(b"99999", b"new").unwrap();
    let first: Change = |db| db.put(b"", b"new").unwrap();
    let within: Change = |db| db.put(b"00102", b"changed").unwrap();
    let tail: Change = |db| assert!(db.remove(b"01899").unwrap());
    let end: Change = |db| db.put(b"01900", b"changed").unwrap();
    let clear: Change = |db| db.clear().unwrap();
    let many: Change = |db| {
        for number in 0..3000 {
            db.put(format!("5{number:05}").as_bytes(), &[b'm'; 100])
                .unwrap();
        }
    };
    for (number, (read, change, is_conflicting)) in [
        (get, set, true),
        (get, remove, true),
        (get, insert, false),
        (get, clear, true),
        (get, many, false),
        (miss, insert, true),
        (miss, set, false),
        (range, set, true),
        (range, remove, true),
        (range, insert, true),
        (range, tail, true),
        (range, last, false),
        (range, first, false),
        (range, end, false),
        (range, many, false),
        (back, set, true),
        (back, tail, true),
        (back, insert, true),
        (back, end, false),
        (some, set, false),
        (some, within, true),
        (all, last, true),
        (all, first, true),
        (all, insert, true),
        (all, many, true),
        (none, clear, false),
        (none, set, false),
    ]
    .into_iter()
    .enumerate()
    {
        let (_folder, db) = with(&records);
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let mut transaction = db.transaction_with(isolation).unwrap();
            read(&transaction);
            transaction
                .put(format!("{isolation:?}"), "written")
                .unwrap();
            if isolation == Isolation::Snapshot {
                // The same as before, so that the next meets the same.
                db.put(b"00800", b"another").unwrap();
                assert!(!is_conflict(transaction), "case {number}");
                continue;
            }
            change(&db);
            assert_eq!(is_conflict(transaction), is_conflicting, "case {number}");
        }
        let is_there = db.get(b"Serializable").unwrap().is_some();
        assert_eq!(is_there, !is_conflicting, "case {number}");
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
    }
}

#[test]
fn two_that_read_what_the_other_writes_do_not_both_commit() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let (_folder, db) = with(&[("a", "1"), ("b", "1")]);
        let mut first = db.transaction_with(isolation).unwrap();
        let mut second = db.transaction_with(isolation).unwrap();
        drop((first.get("a").unwrap(), second.get("b").unwrap()));
        first.put("b", "0").unwrap();
        second.put("a", "0").unwrap();
        assert!(!is_conflict(first));
        assert_eq!(is_conflict(second), isolation == Isolation::Serializable);
    }
}

#[test]
fn work_is_done_again_until_it_commits() {
    let (_folder, db) = with(&[("n", "0")]);
    let mut tries = 0;
    let sum = db
        .transact(|transaction| {
            tries += 1;
            let number = transaction.get("n")?.unwrap_or_default();
            if tries < 5 {
                db.put(b"n", tries.to_string().as_bytes())?;
            }
            let number = String::from_utf8(number).unwrap().parse::<u64>().unwrap() + 100;
            transaction.put("n", number.to_string())?;
            Ok(number)
        })
        .unwrap();
    assert_eq!((tries, sum), (5, 104));
    let mut tries = 0;
    let error = db
        .transact(|transaction| {
            tries += 1;
            transaction.put("n", "never")?;
            db.put(b"n", tries.to_string().as_bytes())
        })
        .unwrap_err();
    assert_eq!((tries, error.kind()), (16, Kind::Conflict));
    // What the work refuses is not tried again.
    let error = db
        .transact(|transaction| transaction.put(vec![0; 8 << 20], ""))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
}

#[test]
fn that_others_put_too_many_records_to_be_compared_is_a_conflict() {
    let folder = tempfile::tempdir().unwrap();
    let options = small().cache(256u64 << 10);
    let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    let key = |number: u64| format!("k{number:07}").into_bytes();
    db.put(&key(0), b"first").unwrap();
    let mut tries = 0;
    db.transact(|transaction| {
        tries += 1;
        let (mut last, _) = transaction.range::<&[u8]>(..)?.next_back().unwrap()?;
        if tries == 1 {
            for number in 1..100 {
                db.put(&key(number), &[1; 400])?;
            }
        }
        last.push(b'x');
        transaction.put(last, "next")
    })
    .unwrap();
    assert_eq!(tries, 2);
    assert_eq!(db.get(b"k0000099x").unwrap().as_deref(), Some(&b"next"[..]));
}

/// One range leaves its end out, and another, which begins later, has it.
#[test]
fn an_end_counts_as_read_if_one_of_two_ranges_has_it() {
    let (_folder, db) = with(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let mut transaction = db.transaction().unwrap();
    assert_eq!(shown(&transaction, "a", "c"), ["a=1", "b=2"]);
    assert_eq!(transaction.range("b"..="c").unwrap().count(), 2);
    transaction.put("x", "new").unwrap();
    db.put(b"c", b"other").unwrap();
    assert!(is_conflict(transaction));
}

/// An end of a range may be longer than any key, and its first bytes another number: the leaves from there on are locked, in order.
#[test]
fn a_range_from_a_number_of_many_digits_commits() {
    let folder = tempfile::tempdir().unwrap();
    let options = small().order(Order::Decimal);
    let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    for number in 0..5000 {
        db.put(number.to_string().as_bytes(), &[7; 40]).unwrap();
    }
    let (report, reported) = std::sync::mpsc::channel();
    // It is left where it is if it never ends.
    std::thread::spawn(move || {
        let mut transaction = db.transaction().unwrap();
        transaction.get("1500").unwrap();
        let from = format!("{:0600}", 3000);
        let range = transaction.range(&from[..]..="3002").unwrap();
        let shown = range.map(|record| record.unwrap().0).collect::<Vec<_>>();
        transaction.put("4000", "new").unwrap();
        transaction.commit().unwrap();
        report.send((shown, db.get(b"4000").unwrap())).unwrap();
    });
    let longest = std::time::Duration::from_secs(60);
    let (shown, put) = reported.recv_timeout(longest).expect("it ends");
    assert_eq!(shown, [b"3000", b"3001", b"3002"]);
    assert_eq!(put.as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_transaction_is_refused_where_it_cannot_be() {
    let (_folder, db) = with(&[("a", "1")]);
    let mut transaction = db.transaction().unwrap();
    assert_eq!(
        transaction.put(vec![b'k'; 8 << 20], "").unwrap_err().kind(),
        Kind::TooLarge
    );
    assert_eq!(
        transaction.remove(vec![b'k'; 8 << 20]).unwrap_err().kind(),
        Kind::TooLarge
    );
    assert_eq!(
        transaction.get(vec![b'k'; 8 << 20]).unwrap_err().kind(),
        Kind::TooLarge
    );
    let reversed = transaction.range("b".."a").err().unwrap();
    assert_eq!(reversed.kind(), Kind::Invalid);
    // More leaves than the cache lets one change hold.
    drop(transaction);
    for number in 0..30_000_u32 {
        db.put(&number.to_le_bytes(), &[7; 100]).unwrap();
    }
    let mut transaction = db.transaction().unwrap();
    for number in 0..30_000_u32 {
        transaction.put(number.to_le_bytes(), [8; 100]).unwrap();
    }
    let error = transaction.commit().unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    let (_other_folder, other) = with(&[]);
    let transaction = std::cell::Cell::new(Some(db.transaction().unwrap()));
    other
        .update(b"key", &mut |_| {
            let committed = transaction.take().unwrap().commit();
            assert_eq!(committed.unwrap_err().kind(), Kind::Invalid);
            Edit::Keep
        })
        .unwrap();
}

/// What a transaction has in front of the snapshot that it began with.
#[test]
fn a_transaction_agrees_with_a_sorted_map() {
    let (mut ranges, mut commits) = (0, 0);
    for round in 0..share(40) {
        let seed = round + round_seed();
        let random = &mut Random::new(seed);
        let drawn = options(random, false);
        let opening = drawn.opening.clone().cache(4u64 << 20);
        let drawn = drawn.opening(opening);
        let _case = case(seed, &drawn);
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        let keys = Keys::draw(random, drawn.order);
        let many = *random.choose(&[5, 40, 400, 3000]);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for number in (0..many).step_by(2) {
            let value = value(random, 60);
            db.put(&keys.key(number), &value).unwrap();
            model.insert(keys.key(number), value);
        }
        for _ in 0..6 {
            let before = model.clone();
            let mut transaction = db.transaction().unwrap();
            for _ in 0..random.below(many.min(300)) {
                let key = keys.key(random.below(many));
                match random.below(6) {
                    0 => {
                        transaction.remove(&key).unwrap();
                        model.remove(&key);
                    }
                    1..4 => {
                        let value = value(random, 60);
                        transaction.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                    _ => assert_eq!(transaction.get(&key).unwrap().as_ref(), model.get(&key)),
                }
                if !random.one_in(10) {
                    continue;
                }
                ranges += 1;
                assert_range(&transaction, &model, (drawn.order, keys, many), random);
            }
            if random.one_in(4) {
                drop(transaction);
                model = before;
            } else {
                match transaction.commit() {
                    Ok(()) => commits += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::TooLarge, "{error}");
                        model = before;
                    }
                }
            }
            assert_eq!(db.count(), model.len() as u64);
            for (key, value) in &model {
                assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
            }
        }
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
    }
    tried_at_least(ranges, 400, "ranges in transactions");
    tried_at_least(commits, 100, "commits");
}

fn assert_range(
    transaction: &Transaction<'_>,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    (order, keys, many): (Order, Keys, u64),
    random: &mut Random,
) {
    let mut ends = [random.below(many), random.below(many)].map(|number| keys.key(number));
    ends.sort_by(|a, b| order.compare(a, b));
    let [from, to] = ends;
    let bound = |key: Vec<u8>, random: &mut Random| match random.below(3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    };
    let (from, to) = (bound(from, random), bound(to, random));
    let is_within = |key: &Vec<u8>| {
        let after = match &from {
            Bound::Included(from) => order.compare(key, from).is_ge(),
            Bound::Excluded(from) => order.compare(key, from).is_gt(),
            Bound::Unbounded => true,
        };
        after
            && match &to {
                Bound::Included(to) => order.compare(key, to).is_le(),
                Bound::Excluded(to) => order.compare(key, to).is_lt(),
                Bound::Unbounded => true,
            }
    };
    let expected = model.iter().filter(|(key, _)| is_within(key));
    let mut expected: Vec<_> = expected.map(|(a, b)| (a.clone(), b.clone())).collect();
    expected.sort_by(|a, b| order.compare(&a.0, &b.0));
    let mut range = transaction
        .range::<Vec<u8>>((from.clone(), to.clone()))
        .unwrap();
    let (mut front, mut back) = (Vec::new(), Vec::new());
    // From either end, until they meet.
    loop {
        if random.one_in(2) {
            let Some(record) = range.next() else { break };
            front.push(record.unwrap());
        } else {
            let Some(record) = range.next_back() else {
                break;
            };
            back.push(record.unwrap());
        }
    }
    front.extend(back.into_iter().rev());
    assert!(front == expected, "{front:?}\n{expected:?}");
}

/// Pairs of records of which at most one may be on: each transaction reads both, and turns one on if both are off. With snapshots
/// alone, both would be turned on at times. Others turn them off, blindly, and count in a record of their own.
#[test]
fn threads_never_skew_what_transactions_rest_on() {
    const PAIRS: u64 = 20;
    let (mut on, mut counted) = (0, 0);
    for round in 0..share(12) {
        let seed = round + round_seed();
        let random = &mut Random::new(seed);
        let drawn = options(random, true);
        let drawn = drawn.order(Order::Lexical);
        let _case = case(seed, &drawn);
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        // The halves of a pair are far apart: in different leaves.
        let name = |pair: u64, half: u64| format!("{half} {pair:03}").into_bytes();
        for pair in 0..PAIRS {
            for half in 0..2 {
                db.put(&name(pair, half), &vec![b'0'; 200 + pair as usize])
                    .unwrap();
            }
        }
        let (turned, begun) = (AtomicU64::new(0), AtomicU64::new(0));
        let seeds: Vec<u64> = (0..3).map(|_| random.below(u64::MAX)).collect();
        std::thread::scope(|scope| {
            for seed in &seeds {
                let (db, turned, begun) = (&db, &turned, &begun);
                scope.spawn(move || {
                    let random = &mut Random::new(*seed);
                    for _ in 0..300 {
                        let (pair, half) = (random.below(PAIRS), random.below(2));
                        begun.fetch_add(1, Ordering::Relaxed);
                        let by_range = random.one_in(3);
                        let done = db.transact(|transaction| {
                            let is_on = |value: Option<Vec<u8>>| value.unwrap()[0] == b'1';
                            let both: [bool; 2] = if by_range {
                                let mut is_on = [false; 2];
                                for at in 0..2 {
                                    let range = name(pair, at)..=name(pair, at);
                                    for record in transaction.range(range)? {
                                        is_on[at as usize] = record?.1[0] == b'1';
                                    }
                                }
                                is_on
                            } else {
                                let read = |at| transaction.get(name(pair, at));
                                [is_on(read(0)?), is_on(read(1)?)]
                            };
                            assert!(!(both[0] && both[1]), "both of pair {pair} are on");
                            let mut value = vec![b'0'; 200 + pair as usize];
                            if !both[0] && !both[1] {
                                value[0] = b'1';
                            }
                            transaction.put(name(pair, half), value)?;
                            let all = transaction.get("count")?.unwrap_or_default();
                            let all = String::from_utf8(all).unwrap().parse().unwrap_or(0_u64);
                            if !both[0] && !both[1] {
                                transaction.put("count", (all + 1).to_string())?;
                                return Ok(true);
                            }
                            Ok(false)
                        });
                        match done {
                            Ok(was) => {
                                turned.fetch_add(u64::from(was), Ordering::Relaxed);
                            }
                            Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
                        }
                        // A snapshot shows no pair with both halves on.
                        let snapshot = db.snapshot().unwrap();
                        for pair in 0..PAIRS {
                            let of = |half| snapshot.get(name(pair, half)).unwrap().unwrap()[0];
                            assert!(of(0) == b'0' || of(1) == b'0', "both of pair {pair}");
                        }
                    }
                });
            }
        });
        let all = db.get(b"count").unwrap().unwrap_or_default();
        let all: u64 = String::from_utf8(all).unwrap().parse().unwrap_or(0);
        assert_eq!(all, turned.load(Ordering::Relaxed), "no update is lost");
        on += all;
        counted += begun.load(Ordering::Relaxed);
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
    }
    tried_at_least(on, 500, "halves turned on");
    tried_at_least(counted, 5000, "transactions next to threads");
}

/// A tree whose updates of many are transactions; those that write nothing read a snapshot.
struct Transacting<'d>(&'d TreeDb, Isolation);

impl Reader for Transacting<'_> {
    fn read(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> azekura::Result<()> {
        self.0.read(key, visit)
    }

    fn scan_past(
        &self,
        from: Option<&Bookmark>,
        visit: &mut Visit<'_>,
        damaged: &mut Damaged<'_>,
    ) -> azekura::Result<Option<Bookmark>> {
        self.0.scan_past(from, visit, damaged)
    }

    fn bookmark_at(&self, key: &[u8]) -> Bookmark {
        self.0.bookmark_at(key)
    }

    fn count(&self) -> u64 {
        self.0.count()
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn promise(&self) -> Promise {
        self.0.promise()
    }
}

impl Engine for Transacting<'_> {
    fn update<'a>(
        &self,
        key: &[u8],
        decide: &mut dyn FnMut(Option<&[u8]>) -> Edit<'a>,
    ) -> azekura::Result<()> {
        self.0.update(key, decide)
    }

    fn update_many(&self, keys: &[&[u8]], decide: DecideMany<'_, '_>) -> azekura::Result<()> {
        loop {
            let mut transaction = self.0.transaction_with(self.1)?;
            let mut values = Vec::new();
            for (at, key) in keys.iter().enumerate() {
                values.push(if at % 2 == 0 {
                    transaction.get(key)?
                } else {
                    let mut range = transaction.range(*key..=*key)?;
                    let record = range.next().transpose()?;
                    record.map(|(_, value)| value)
                });
            }
            let shown: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            for (key, edit) in keys.iter().zip(decide(&shown)) {
                match edit {
                    Edit::Put(value) => transaction.put(key, value)?,
                    Edit::Remove => transaction.remove(key)?,
                    Edit::Keep => {}
                }
            }
            match transaction.commit() {
                Err(error) if error.kind() == Kind::Conflict => {}
                committed => return committed,
            }
        }
    }

    fn clear(&self) -> azekura::Result<()> {
        self.0.clear()
    }
}

/// Some order explains what each transaction saw and wrote, in time; with snapshots alone, there are runs that none explains.
#[test]
fn some_order_explains_all_transactions() {
    const STORES: u64 = 6;
    let runs = share(1200);
    let (mut explained, mut skewed) = (0, 0);
    for store in 0..STORES {
        let seed = 500 + store + round_seed();
        let random = &mut Random::new(seed);
        let drawn = options(random, store % 2 == 0).order(Order::Lexical);
        let _case = case(seed, &drawn);
        let folder = tempfile::tempdir().unwrap();
        let db = TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        let unrest = |stop: &AtomicBool| {
            // The keys come to be in leaves of their own, and together again.
            let mut random = Random::new(seed);
            while !stop.load(Ordering::Relaxed) {
                let mut key = history_key(random.below(7));
                key.extend_from_slice(&[0, random.below(40) as u8]);
                if random.one_in(2) {
                    db.put(&key, &vec![1; 480]).unwrap();
                } else {
                    db.remove(&key).unwrap();
                }
                if random.one_in(400) {
                    db.checkpoint().unwrap();
                }
            }
        };
        let of_store = |count: u64| {
            let all = (0..count).filter(move |number| number % STORES == store);
            all.map(|number| transactions::varied(number + round_seed()))
        };
        let work = || {
            let serializable = Transacting(&db, Isolation::Serializable);
            let explained = transactions::explained(&serializable, of_store(runs));
            let snapshots = Transacting(&db, Isolation::Snapshot);
            let (mut tried, mut skewed) = (0, 0);
            // On a busy machine they seldom meet: until some did.
            for plan in of_store(runs.max(120) * 50) {
                if tried * STORES >= runs.max(120) && skewed > 0 {
                    break;
                }
                tried += 1;
                skewed += usize::from(transactions::explained(&snapshots, [plan]).is_err());
            }
            (explained.expect("an order"), skewed)
        };
        let ((of_store, of_snapshots), ()) = concurrently(unrest, work);
        explained += of_store;
        skewed += of_snapshots;
        let report = db.check(&mut |_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.damage);
    }
    assert!(
        skewed > 0,
        "snapshots alone were enough: nothing was put to the test"
    );
    tried_at_least(
        explained,
        1200,
        "runs of transactions that an order explains",
    );
}
