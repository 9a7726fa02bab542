//! Ranges are counted exactly by a thread of which all changes in them are, whatever others do next to them, and what is on storage is counted unread.
//!
//! Trees are made high by long keys of an order that leaves them whole. Ranges span subtrees of several levels, which divide and join and
//! come into and out of memory meanwhile. How the model counts is a set of numbers.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use azekura::engine::{Engine, Ordered, Persistent, Reader};
use azekura::order::Order;
use azekura::record::tree::{CACHE_MIN, CreateOptions, OpenOptions, TreeDb};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Random, round_seed};
use azekura::{Edit, Kind};

use super::{options, shaped};

/// The numbers of a thread lie side by side.
const EACH: u64 = 100_000;

/// How keys state numbers.
#[derive(Clone, Copy, Debug)]
struct Names {
    width: usize,
    is_long: bool,
}

impl Names {
    fn key(self, number: u64) -> Vec<u8> {
        let width = self.width;
        let mut key = format!("{number:0width$}").into_bytes();
        if self.is_long && number.is_multiple_of(50) {
            // Some that share their first 510 bytes.
            key = format!("{:07}", number / 500).into_bytes();
            key.resize(510, b'0');
            key.extend(format!("{number}").into_bytes());
        } else if self.is_long {
            key = format!("{:07}-{number}", number / 500).into_bytes();
        }
        key
    }
}

/// What a thread does to its own numbers, and what it counts.
struct Worker<'d> {
    db: &'d TreeDb,
    names: Names,
    base: u64,
    span: u64,
    records: BTreeSet<u64>,
    random: Random,
    counted: u64,
}

impl Worker<'_> {
    fn number(&mut self) -> u64 {
        self.base + self.random.below(self.span)
    }

    fn change(&mut self) {
        let number = self.number();
        let key = self.names.key(number);
        let value = vec![b'v'; *self.random.choose(&[8, 8, 60, 700])];
        match self.random.below(12) {
            0..5 => {
                self.db.put(&key, &value).unwrap();
                self.records.insert(number);
            }
            5 | 6 => {
                let was_there = self.db.remove(&key).unwrap();
                assert_eq!(was_there, self.records.remove(&number));
            }
            7 => {
                let db = self.db;
                db.update(&key, &mut |_| Edit::Put(value.clone().into()))
                    .unwrap();
                self.records.insert(number);
            }
            8 => self.change_many(&value),
            9 => {
                let mut transaction = self.db.transaction().unwrap();
                transaction.put(&key, &value).unwrap();
                match transaction.commit() {
                    Ok(()) => drop(self.records.insert(number)),
                    Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
                }
            }
            // In a row, and out of it.
            10 => {
                for number in number..(number + 40).min(self.base + self.span) {
                    self.db.put(&self.names.key(number), &value).unwrap();
                    self.records.insert(number);
                }
            }
            _ if self.names.is_long => {}
            _ => {
                let end = number + self.random.below(200);
                let ends = self.names.key(number)..self.names.key(end);
                let removed = self.db.remove_range(ends).unwrap();
                let before = self.records.len();
                self.records.retain(|own| !(number..end).contains(own));
                assert_eq!(removed, (before - self.records.len()) as u64);
            }
        }
    }

    fn change_many(&mut self, value: &[u8]) {
        let numbers: Vec<u64> = (0..5).map(|_| self.number()).collect();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|n| self.names.key(*n)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let done = self.db.update_many(&keys, &mut |values: &[Option<&[u8]>]| {
            let edit = |there: Option<&[u8]>| match there {
                Some(_) => Edit::Remove,
                None => Edit::Put(value.to_vec().into()),
            };
            values.iter().copied().map(edit).collect()
        });
        match done {
            Ok(()) => {
                for number in numbers.into_iter().collect::<BTreeSet<_>>() {
                    if !self.records.remove(&number) {
                        self.records.insert(number);
                    }
                }
            }
            Err(error) => assert_eq!(error.kind(), Kind::TooLarge, "{error}"),
        }
    }

    /// All of the thread's own, or a part.
    fn count(&mut self) {
        let (mut from, mut to) = (self.base, self.base + EACH - 1);
        if self.random.one_in(2) {
            (from, to) = (self.number(), self.number());
        }
        let (from, to) = (from.min(to), from.max(to));
        let keys = (self.names.key(from), self.names.key(to));
        let is_open = self.random.one_in(2);
        let (ends, expected) = if is_open || self.names.is_long {
            let ends = (Bound::Included(&keys.0[..]), Bound::Excluded(&keys.1[..]));
            let within = |number: &&u64| {
                let key = self.names.key(**number);
                keys.0 <= key && key < keys.1
            };
            let expected = if self.names.is_long {
                self.records.iter().filter(within).count()
            } else {
                self.records.range(from..to).count()
            };
            (ends, expected)
        } else {
            let ends = (Bound::Excluded(&keys.0[..]), Bound::Included(&keys.1[..]));
            let within = (Bound::Excluded(from), Bound::Included(to.max(from + 1)));
            let expected = if from == to {
                0
            } else {
                self.records.range(within).count()
            };
            (ends, expected)
        };
        if self.db.order().compare(&keys.0, &keys.1).is_ge() {
            return;
        }
        let counted = self.db.count_between(ends).unwrap();
        assert_eq!(counted, expected as u64, "{from} to {to}, open {is_open}");
        self.counted += 1;
    }
}

#[test]
fn what_no_other_thread_changes_is_counted_exactly() {
    let mut counted = 0;
    for round in 0..share(30).max(4) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let is_long = random.one_in(4);
        let order = if is_long {
            Order::Lexical
        } else {
            *random.choose(&[Order::Decimal, Order::Decimal, Order::Lexical])
        };
        let drawn = options(&mut random, true).order(order);
        let names = Names {
            width: *random.choose(&[8, 200, 400]),
            is_long,
        };
        let threads = 1 + random.below(4);
        let (span, pause) = (
            *random.choose(&[300, 3000, 20_000]),
            *random.choose(&[1, 4, 30]),
        );
        let _shown = case(seed, &(&drawn, names, threads, span, pause));
        let folder = tempfile::tempdir().unwrap();
        let db = &TreeDb::create(folder.path().join("a.azt"), &drawn).unwrap();
        let is_over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let mut worker = Worker {
                        db,
                        names,
                        base: thread * EACH,
                        span,
                        records: BTreeSet::new(),
                        random: Random::new(seed << 8 | thread),
                        counted: 0,
                    };
                    scope.spawn(move || {
                        for number in (worker.base..worker.base + span).step_by(3) {
                            db.put(&names.key(number), b"first").unwrap();
                            worker.records.insert(number);
                        }
                        for _ in 0..300 {
                            for _ in 0..=worker.random.below(pause) {
                                worker.change();
                            }
                            worker.count();
                        }
                        (worker.counted, worker.records.len() as u64)
                    })
                })
                .collect();
            let mut random = Random::new(!seed);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    match random.below(4) {
                        0 => db.checkpoint().unwrap(),
                        1 => db.compact(&mut |_, _| {}).unwrap(),
                        2 => db
                            .set_cache(*random.choose(&[CACHE_MIN, 1 << 20, 8 << 20]))
                            .unwrap(),
                        _ => {}
                    }
                    std::thread::sleep(Duration::from_millis(random.below(20)));
                }
            });
            let ended: Vec<_> = workers
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect();
            is_over.store(true, Ordering::Relaxed);
            let mut all = 0;
            for worker in ended {
                let (times, records) = worker.unwrap();
                counted += times;
                all += records;
            }
            assert_eq!(db.count_range::<&[u8]>(..).unwrap(), all);
            assert_eq!(db.count(), all);
        });
        assert!(db.check(&mut |_, _| {}).unwrap().is_sound());
    }
    tried_at_least(counted, 10_000, "counts of ranges next to changes");
}

fn reads(db: &TreeDb) -> u64 {
    let facts = db.inspect();
    let reads = facts.iter().find(|(name, _)| *name == "page_reads");
    reads.unwrap().1.parse().unwrap()
}

/// The second count in a row looks at the ends alone, and the first one, after an open, at inner pages.
#[test]
fn a_count_reads_inner_pages_and_two_leaves() {
    let mut counted = 0;
    for round in 0..share(20).max(4) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let drawn: CreateOptions = shaped(&mut random)
            .order(*random.choose(&[Order::Lexical, Order::Decimal, Order::CaseFolded]))
            .segment_size(256 << 10);
        let width = *random.choose(&[8, 100]);
        let count = 20_000 + random.below(20_000);
        let _shown = case(seed, &(&drawn, width, count));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let db = TreeDb::create(&path, &drawn).unwrap();
        for at in 0..count {
            let number = at.wrapping_mul(7919) % count;
            let key = format!("{number:0width$}");
            db.put(key.as_bytes(), b"eight by").unwrap();
        }
        let count = db.count();
        db.close().unwrap();
        let leaves = std::fs::metadata(&path).unwrap().len() >> 14;
        let cache = OpenOptions::new().cache(1 << 20).background(false);
        let db = TreeDb::open(&path, &cache).unwrap();
        assert_eq!(db.count_range::<&[u8]>(..).unwrap(), count);
        let first = reads(&db);
        assert!(first * 4 < leaves.max(40), "{first} of {leaves} were read");
        for _ in 0..20 {
            let before = reads(&db);
            assert_eq!(db.count_range::<&[u8]>(..).unwrap(), count);
            assert_eq!(reads(&db), before);
            counted += 1;
            // A change below, and it is counted again.
            let key = format!("{:0width$}", random.below(count));
            let removed = u64::from(db.remove(key.as_bytes()).unwrap());
            assert_eq!(db.count_range::<&[u8]>(..).unwrap(), count - removed);
            db.put(key.as_bytes(), b"eight by").unwrap();
            counted += 1;
        }
    }
    tried_at_least(counted, 800, "counts, of which the pages read were counted");
}
