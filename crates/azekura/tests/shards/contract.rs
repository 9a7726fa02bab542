//! Shards of every engine conform, in memory and in files; what only a store of several shards does is compared with a model.
//!
//! The suite of `testkit::conformance` compares with the obvious model, with threads, histories, reopening and cursors; here are its
//! configurations, ranges from both ends, an update of many keys that one shard refuses, and a closure that panics.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use azekura::engine::{Bookmark, Edit, Engine, Ordered};
use azekura::order::Order;
use azekura::record::hash::{self, HashDb};
use azekura::record::memory::baby::{BabyDb, Options};
use azekura::record::memory::std_hash::StdHashDb;
use azekura::record::memory::std_tree::StdTreeDb;
use azekura::record::memory::tiny::TinyDb;
use azekura::record::tree::{self, TreeDb};
use azekura::shard::{CreateShard, ShardFile, Sharded};
use azekura::testkit::suite::{case, share, tried_at_least};
use azekura::testkit::{Effort, Random, conformance, round_seed};
use azekura::{Kind, Reader as _, Verbs as _};

use super::{keys, scanned};

fn babies(shards: usize, order: Order, limit: Option<u64>) -> Sharded<BabyDb> {
    let options = Options::new().order(order).memory_limit(limit);
    let shards = (0..shards).map(|_| BabyDb::with(&options).unwrap());
    Sharded::over_ordered(shards.collect(), 7).unwrap()
}

fn effort(seed: u64) -> Effort {
    Effort {
        sequences: 20,
        histories: 10,
        seed,
        ..Effort::quick()
    }
}

fn conforms_in_memory(make: &dyn Fn() -> Box<dyn Engine>, seed: u64) -> u64 {
    let report = conformance(make, None, &effort(seed));
    report.unwrap_or_else(|failure| panic!("{failure}")).total()
}

#[test]
fn shards_in_memory_conform() {
    let mut total = 0;
    for round in 0..share(30) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let shards = *random.choose(&[1, 2, 3, 8, 40]);
        let order = *random.choose(&Order::ALL);
        let _shown = case(seed, &(shards, order));
        total += match round % 4 {
            0 | 1 => conforms_in_memory(&|| Box::new(babies(shards, order, None)), seed),
            2 => {
                let make = || (0..shards).map(|_| TinyDb::new().unwrap()).collect();
                conforms_in_memory(&|| Box::new(Sharded::over(make(), seed).unwrap()), seed)
            }
            _ if random.one_in(2) => {
                let make = || (0..shards).map(|_| StdHashDb::new()).collect();
                conforms_in_memory(&|| Box::new(Sharded::over(make(), seed).unwrap()), seed)
            }
            _ => {
                let make = || (0..shards).map(|_| StdTreeDb::new()).collect();
                let make = || Sharded::over_ordered(make(), seed).unwrap();
                conforms_in_memory(&|| Box::new(make()), seed)
            }
        };
    }
    tried_at_least(total, 300_000, "answers of shards in memory");
}

fn conforms_in_files<E: CreateShard>(
    shards: usize,
    options: &E::Creation,
    opening: &E::Opening,
    seed: u64,
) -> u64
where
    Sharded<E>: Engine,
{
    let folder = tempfile::tempdir().unwrap();
    let number = AtomicU64::new(0);
    let make = || -> Box<dyn Engine> {
        let name = format!("{}.az", number.fetch_add(1, Ordering::Relaxed));
        Box::new(Sharded::<E>::create(folder.path().join(name), shards, options).unwrap())
    };
    let reopen = |engine: Box<dyn Engine>| -> Box<dyn Engine> {
        let file = engine.as_persistent().unwrap().path().to_path_buf();
        drop(engine);
        Box::new(Sharded::<E>::open(file, opening).unwrap())
    };
    let report = conformance(&make, Some(&reopen), &effort(seed));
    report.unwrap_or_else(|failure| panic!("{failure}")).total()
}

#[test]
fn shards_in_files_conform() {
    let mut total = 0;
    for round in 0..share(20) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let shards = *random.choose(&[1, 2, 3, 5]);
        let background = random.one_in(2);
        if round % 2 == 0 {
            let order = *random.choose(&Order::ALL);
            let options = tree::CreateOptions::new()
                .order(order)
                .segment_size(64u64 << 10)
                .cache(shards as u64 * *random.choose(&[256 << 10, 1 << 20]))
                .background(background);
            let _shown = case(seed, &(shards, &options));
            total += conforms_in_files::<TreeDb>(shards, &options, &options.opening, seed);
        } else {
            let options = hash::CreateOptions::new()
                .segment_size(*random.choose(&[4096u64, 64 << 10]))
                .background(background)
                .capacity(1u64 << 32);
            let _shown = case(seed, &(shards, &options));
            total += conforms_in_files::<HashDb>(shards, &options, &options.opening, seed);
        }
    }
    tried_at_least(total, 150_000, "answers of shards in files");
}

/// Ranges, and scans that are broken off anywhere, while records come and go between the steps.
#[test]
fn ranges_and_bookmarks_agree_with_a_sorted_list() {
    let mut steps = 0;
    for round in 0..share(60) {
        let seed = round + round_seed();
        let mut random = Random::new(seed);
        let (shards, order) = (*random.choose(&[1, 2, 5, 17]), *random.choose(&Order::ALL));
        let _shown = case(seed, &(shards, order));
        let db = babies(shards, order, None);
        let all = keys(&mut random, 400);
        let mut model: Vec<Vec<u8>> = Vec::new();
        for key in &all {
            if random.one_in(2) {
                db.put(key, key).unwrap();
                model.push(key.clone());
            }
        }
        model.sort_by(|a, b| order.compare(a, b));
        for _ in 0..40 {
            let mut ends = [random.choose(&all).clone(), random.choose(&all).clone()];
            ends.sort_by(|a, b| order.compare(a, b));
            let [from, to] = ends;
            let bound = |random: &mut Random, key: &Vec<u8>| match random.below(3) {
                0 => Bound::Included(key.clone()),
                1 => Bound::Excluded(key.clone()),
                _ => Bound::Unbounded,
            };
            let (from, to) = (bound(&mut random, &from), bound(&mut random, &to));
            let is_within = |key: &&Vec<u8>| {
                (match &from {
                    Bound::Included(from) => order.compare(key, from).is_ge(),
                    Bound::Excluded(from) => order.compare(key, from).is_gt(),
                    Bound::Unbounded => true,
                }) && match &to {
                    Bound::Included(to) => order.compare(key, to).is_le(),
                    Bound::Excluded(to) => order.compare(key, to).is_lt(),
                    Bound::Unbounded => true,
                }
            };
            let mut expected: std::collections::VecDeque<_> =
                model.iter().filter(is_within).cloned().collect();
            let mut range = db.range((from.clone(), to.clone())).unwrap();
            loop {
                let is_front = random.one_in(2);
                // What others remove before its turn is not shown.
                if random.one_in(30) && expected.len() > 4 {
                    let gone = expected.remove(expected.len() / 2).unwrap();
                    db.remove(&gone).unwrap();
                    model.retain(|key| *key != gone);
                }
                let (found, next) = if is_front {
                    (range.next(), expected.pop_front())
                } else {
                    (range.next_back(), expected.pop_back())
                };
                let found = found.transpose().unwrap().map(|(key, _)| key);
                assert_eq!(found, next, "forward: {is_front}");
                steps += 1;
                if next.is_none() {
                    break;
                }
            }
        }
        let mut shown = Vec::new();
        let mut from: Option<Bookmark> = None;
        loop {
            let most = 1 + random.index(30);
            let mut count = 0;
            let next = db.scan(from.as_ref(), &mut |key, _| {
                shown.push(key.to_vec());
                count += 1;
                if count == most {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            from = next.unwrap();
            if from.is_none() {
                break;
            }
        }
        assert_eq!(shown, model);
        steps += shown.len() as u64;
    }
    tried_at_least(steps, 100_000, "steps of ranges and scans");
}

/// One shard has no memory left: the parts of the others are taken back, whichever it is.
#[test]
fn an_update_that_a_shard_refuses_changes_nothing() {
    let mut refused = 0;
    for full in 0..4 {
        let options = |limit| Options::new().memory_limit(limit);
        let shard = |at| {
            let limit = (at == full).then_some(8 << 20);
            BabyDb::with(&options(limit)).unwrap()
        };
        let db = Sharded::over_ordered((0..4).map(shard).collect(), 11).unwrap();
        let names: Vec<Vec<u8>> = (0..200).map(|n| format!("{n}").into_bytes()).collect();
        for name in &names {
            db.put(name, name).unwrap();
        }
        let before = scanned(&db);
        let large = vec![1; 9 << 20];
        for round in 0..12 {
            let chosen: Vec<&[u8]> = names[round..round + 20].iter().map(|k| &k[..]).collect();
            let mut calls = 0;
            let updated = db.update_many(&chosen, &mut |values| {
                calls += 1;
                let edit = |(at, _)| match at % 3 {
                    0 => Edit::Remove,
                    1 => Edit::put(b"short"),
                    _ => Edit::put(&large),
                };
                values.iter().enumerate().map(edit).collect()
            });
            assert_eq!(calls, 1);
            match updated {
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    assert!(
                        error.to_string().contains(&format!("shard {full}")),
                        "{error}"
                    );
                    assert_eq!(scanned(&db), before, "round {round}");
                    refused += 1;
                }
                Ok(()) => {
                    // It fitted: as before.
                    for name in &names {
                        db.put(name, name).unwrap();
                    }
                }
            }
        }
    }
    assert!(refused >= 30, "{refused} were refused");
}

#[test]
fn what_is_wrong_in_an_update_of_several_shards_changes_nothing() {
    for shards in [2, 9, 256] {
        let db = babies(shards, Order::Lexical, None);
        let names: Vec<Vec<u8>> = (0..2000).map(|n| format!("{n}").into_bytes()).collect();
        let all: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        assert!(db.shards().iter().all(|shard| shard.count() == 0));
        // All shards at once, each key with its own value.
        db.update_many(&all, &mut |values| {
            assert!(values.iter().all(Option::is_none));
            all.iter().map(|key| Edit::put(key)).collect()
        })
        .unwrap();
        assert!(db.shards().iter().all(|shard| shard.count() > 0));
        for (at, shard) in db.shards().iter().enumerate() {
            for (key, value) in scanned(shard) {
                assert_eq!((db.shard_of(&key), &key), (at, &value));
            }
        }
        let before = scanned(&db);
        let few = db.update_many(&all, &mut |_| vec![Edit::Remove]);
        assert_eq!(few.unwrap_err().kind(), Kind::Invalid);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            db.update_many(&all, &mut |_| panic!("in the closure"))
        }));
        assert!(panicked.is_err());
        assert_eq!(scanned(&db), before);
        // No lock is left, and values come in the order of the keys.
        db.update_many(&all, &mut |values| {
            let own: Vec<Option<&[u8]>> = all.iter().map(|key| Some(*key)).collect();
            assert_eq!(values, own);
            all.iter().map(|_| Edit::Remove).collect()
        })
        .unwrap();
        assert_eq!(db.count(), 0);
    }
    for count in [0, 257] {
        let shards: Vec<StdHashDb> = (0..count).map(|_| StdHashDb::new()).collect();
        assert_eq!(Sharded::over(shards, 1).unwrap_err().kind(), Kind::Invalid);
    }
    let orders = [Order::Lexical, Order::Decimal];
    let shards = orders.map(|order| BabyDb::with(&Options::new().order(order)).unwrap());
    let error = Sharded::over_ordered(shards.into(), 1).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the orders of the shards differ"),
        "{error}"
    );
}

#[test]
fn only_one_shard_is_crash_atomic_and_what_is_promised_else_is_the_least() {
    let promised = |shards| babies(shards, Order::Lexical, None).promise();
    let one = BabyDb::new().unwrap().promise();
    assert_eq!(promised(1), one);
    let several = promised(3);
    assert!(!several.update_many_is_crash_atomic);
    assert_eq!(several.key_len_max, one.key_len_max);
    let folder = tempfile::tempdir().unwrap();
    for (shards, atomic) in [(1, true), (2, false)] {
        let path = folder.path().join(format!("{shards}.azt"));
        let db = Sharded::<TreeDb>::create(path, shards, &tree::CreateOptions::new()).unwrap();
        assert_eq!(db.promise().update_many_is_crash_atomic, atomic);
        assert_eq!(db.order_name(), "lexical");
    }
}

/// An even hash: no shard has much more than its part, of keys that differ little.
#[test]
fn keys_are_spread_evenly() {
    let db = babies(16, Order::Lexical, None);
    let mut counts: HashMap<usize, u64> = HashMap::new();
    for number in 0..64_000_u64 {
        *counts
            .entry(db.shard_of(&number.to_le_bytes()))
            .or_default() += 1;
    }
    let counts: BTreeMap<_, _> = counts.into_iter().collect();
    assert_eq!(counts.len(), 16);
    assert!(
        counts.values().all(|n| (3600..4400).contains(n)),
        "{counts:?}"
    );
}

/// Keys stay where they were put, whatever the release.
#[test]
fn the_shard_of_a_key_is_part_of_the_format() {
    let shards = (0..256).map(|_| StdHashDb::new()).collect();
    let db = Sharded::over(shards, 42).unwrap();
    let keys: [&[u8]; 4] = [b"", b"a", b"apple", b"a longer key of some words"];
    assert_eq!(keys.map(|key| db.shard_of(key)), [29, 249, 81, 239]);
    assert_eq!(db.shard_of(&[7; 100]), 81);
}

#[test]
fn a_file_engine_states_how_its_options_are_shared() {
    let whole = tree::OpenOptions::new()
        .cache(8u64 << 20)
        .capacity(1u64 << 30);
    let own = TreeDb::share(&whole, 4);
    assert_eq!((own.cache, own.capacity), (2 << 20, 1 << 28));
}
