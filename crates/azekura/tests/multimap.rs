//! A multimap agrees with a map of sets, over every engine that has orders of pairs, whatever the order of its keys; and of threads
//! that add one pair at once, one adds it.
//!
//! It does not test what a crash leaves: each change is one update of a store, whose own suites do.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use azekura::engine::{Engine, Ordered};
use azekura::multimap::Multimap;
use azekura::order::Order;
use azekura::record::memory::baby::{BabyDb, Options};
use azekura::record::tree::{CreateOptions, TreeDb};
use azekura::testkit::suite::{case, demand, share};
use azekura::testkit::{Random, round_seed};
use azekura::{Kind, Persistent as _};

/// A key or a value: short ones repeat, and some are the beginning of others, or no number where the order wants one.
fn part(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => random.bytes(random.clone().below(200) as usize),
        1 => Vec::new(),
        2 => format!("{}", random.below(40)).repeat(2).into_bytes(),
        3 => [b"Kk"[random.index(2)]; 3].to_vec(),
        _ => random.below(40).to_string().into_bytes(),
    }
}

fn agrees<E: Engine + Ordered>(map: &Multimap<E>, order: Order, seed: u64) -> u64 {
    // A pair's first half is ordered as keys are by the order of the same name.
    let first = order.name().trim_start_matches("pair-");
    let base = Order::from_name(first).expect("an order of keys");
    let mut random = Random::new(seed);
    let mut model: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for _ in 0..1500 {
        let (key, value) = (part(&mut random), part(&mut random));
        let present = model.entry(key.clone()).or_default();
        match random.below(6) {
            0..3 => assert_eq!(
                map.add(&key, &value).unwrap(),
                present.insert(value.clone())
            ),
            3 => assert_eq!(map.remove(&key, &value).unwrap(), present.remove(&value)),
            4 => assert_eq!(
                map.contains(&key, &value).unwrap(),
                present.contains(&value)
            ),
            _ => {
                let max = random.index(6);
                let expected: Vec<_> = present.iter().take(max).cloned().collect();
                assert_eq!(map.values(&key, max).unwrap(), expected);
            }
        }
    }
    let mut expected: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (key, values) in &model {
        expected.extend(values.iter().map(|value| (key.clone(), value.clone())));
        let all: Vec<_> = values.iter().cloned().collect();
        assert_eq!(map.values(key, usize::MAX).unwrap(), all);
    }
    expected.sort_by(|a, b| {
        let keys = base.compare(&a.0, &b.0);
        keys.then_with(|| a.1.cmp(&b.1))
    });
    assert_eq!(map.count(), expected.len() as u64);
    for from in [None, expected.get(random.index(expected.len()))] {
        let at = from.map_or(0, |from| {
            expected.iter().position(|own| own == from).unwrap()
        });
        let mut shown = Vec::new();
        let from = from.map(|(key, value)| (&key[..], &value[..]));
        map.each_pair(from, &mut |key, value| {
            shown.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(shown, expected[at..]);
    }
    1500
}

fn orders() -> Vec<Order> {
    let all = Order::ALL.into_iter();
    all.filter(|order| matches!(order, Order::Pair(_)))
        .collect()
}

#[test]
fn a_multimap_agrees_with_a_map_of_sets() {
    let mut steps = 0;
    for round in 0..share(60) {
        let seed = round + round_seed();
        let order = *Random::new(seed).choose(&orders());
        let _shown = case(seed, &order);
        let baby = BabyDb::with(&Options::new().order(order)).unwrap();
        steps += agrees(&Multimap::over(baby).unwrap(), order, seed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.azt");
        let options = CreateOptions::new().order(order).cache(256u64 << 10);
        let map = Multimap::over(TreeDb::create(&path, &options).unwrap()).unwrap();
        steps += agrees(&map, order, seed);
        // It is there when the store is opened again.
        let count = map.count();
        map.into_store().close().unwrap();
        let map = Multimap::over(TreeDb::open(&path, &options.opening).unwrap()).unwrap();
        assert_eq!(map.count(), count);
        assert!(map.store().check(&mut |_, _| {}).unwrap().is_sound());
    }
    demand(steps, share(60) * 3000, "steps of multimaps");
}

#[test]
fn wrong_orders_and_lengths_are_refused() {
    for order in Order::ALL {
        let made = Multimap::over(BabyDb::with(&Options::new().order(order)).unwrap());
        match made {
            Ok(_) => assert!(matches!(order, Order::Pair(_))),
            Err(error) => {
                assert!(!matches!(order, Order::Pair(_)));
                assert_eq!(error.kind(), Kind::Invalid);
                assert!(error.to_string().contains("pair"), "{error}");
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions::new().order(orders()[0]);
    let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
    let map = Multimap::over(db).unwrap();
    let error = map.add(&[b'k'; 300], &[b'v'; 300]).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    assert!(map.add(&[b'k'; 300], &[b'v'; 200]).unwrap());
    assert_eq!(map.values(&[b'k'; 300], 9).unwrap(), [[b'v'; 200]]);
}

#[test]
fn of_threads_that_add_one_pair_one_adds_it() {
    let map = Multimap::over(BabyDb::with(&Options::new().order(orders()[0])).unwrap()).unwrap();
    let map = &map;
    let added: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    let pairs = (0..4000_u32).map(|n| (n % 7, n));
                    let add = |(key, value): (u32, u32)| {
                        map.add(&key.to_le_bytes(), &value.to_le_bytes()).unwrap()
                    };
                    pairs.filter(|pair| add(*pair)).count() as u64
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!((added, map.count()), (4000, 4000));
    assert_eq!(map.values(&3_u32.to_le_bytes(), 10_000).unwrap().len(), 571);
}
