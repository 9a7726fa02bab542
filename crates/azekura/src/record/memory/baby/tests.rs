//! Mechanics of the tree in memory: divisions, joining, reuse, long values.
//!
//! After waves of changes, by one thread and by several, every fence is its parent's key and every level covers all
//! keys. What the contract promises is tested by the conformance suite (`tests/ordered.rs`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::*;
use crate::error::Kind;
use crate::testkit::Random;

fn shown(db: &BabyDb) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut shown = Vec::new();
    let end = db.scan(None, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    shown
}

/// Every fence is its parent's key, every level covers all keys, every key lies between its fences, in order.
fn assert_sound(db: &BabyDb) {
    fn walk(db: &BabyDb, number: u32, level: u32, low: Option<&[u8]>, up: Option<&[u8]>) {
        let node = db.tree.node(db.tree.frames.at(number));
        assert_eq!(u32::from(node.level()), level);
        let mut key = crate::node::Key::default();
        assert_eq!(node.lower(&mut key).map(|()| key.bytes()), low);
        assert_eq!(node.upper(&mut key).map(|()| key.bytes()), up);
        let keys: Vec<Vec<u8>> = (0..node.count())
            .map(|at| {
                node.key(at, &mut key);
                key.bytes().to_vec()
            })
            .collect();
        let order = db.tree.order;
        let from = usize::from(level > 0);
        for pair in keys[from.min(keys.len())..].windows(2) {
            assert!(order.compare(&pair[0], &pair[1]).is_lt());
        }
        for key in &keys[from.min(keys.len())..] {
            assert!(node.covers(key), "{key:?}");
        }
        if level > 0 {
            for at in 0..keys.len() {
                let low = if at == 0 { low } else { Some(&keys[at][..]) };
                let up = keys.get(at + 1).map(Vec::as_slice).or(up);
                walk(db, node.child(at), level - 1, low, up);
            }
        }
    }
    let end = db.tree.way(To::First, db.tree.height()).unwrap();
    walk(db, end.number, db.tree.height(), None, None);
}

#[test]
fn a_store_in_any_order_agrees_with_a_sorted_map() {
    let mut random = Random::new(3);
    for order in Order::ALL {
        let db = BabyDb::with(&Options { order }).unwrap();
        let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for round in 0..20_000u64 {
            let number = random.below(3000);
            let key = match number % 4 {
                0 => format!("{number}"),
                1 => format!("a common beginning {number:06}"),
                2 => format!("-{number}.{}", "x".repeat((number % 300) as usize)),
                _ => format!("{number:x}"),
            }
            .into_bytes();
            if round % 20_000 < 12_000 && random.below(4) > 0 || random.below(4) == 0 {
                let len = [0, 8, 30, 200, 510, 511, 3000][random.index(7)];
                let value = random.bytes(len);
                db.put(&key, &value).unwrap();
                map.insert(key, value);
            } else {
                assert_eq!(db.remove(&key).unwrap(), map.remove(&key).is_some());
            }
            if round % 4000 == 0 {
                assert_sound(&db);
            }
        }
        assert_sound(&db);
        for (key, value) in &map {
            assert_eq!(db.get(key).unwrap().as_ref(), Some(value));
        }
        let mut sorted: Vec<_> = map.into_iter().collect();
        sorted.sort_by(|(a, _), (b, _)| order.compare(a, b));
        assert_eq!(shown(&db), sorted);
        let mut cursor = db.cursor();
        for (key, value) in sorted.iter().rev() {
            assert!(cursor.previous().unwrap());
            assert_eq!(cursor.record(), Some((&key[..], &value[..])));
        }
        assert!(!cursor.previous().unwrap());
    }
}

#[test]
fn ascending_and_descending_keys_leave_full_leaves() {
    for descending in [false, true] {
        let db = BabyDb::new().unwrap();
        for number in 0..100_000u64 {
            let number = if descending { 99_999 - number } else { number };
            db.put(format!("{number:08}").as_bytes(), b"12345678")
                .unwrap();
        }
        assert_sound(&db);
        let bytes = db.tree.frames.used() * FRAME / 100_000;
        assert!(bytes < 22, "{bytes} bytes a record");
    }
}

#[test]
fn an_emptied_store_gives_its_nodes_back() {
    let db = BabyDb::new().unwrap();
    let mut random = Random::new(9);
    for _ in 0..3 {
        let mut keys: Vec<u64> = (0..50_000).collect();
        for number in &keys {
            db.put(format!("{number:08}").as_bytes(), &number.to_le_bytes())
                .unwrap();
        }
        while !keys.is_empty() {
            let number = keys.swap_remove(random.index(keys.len()));
            assert!(db.remove(format!("{number:08}").as_bytes()).unwrap());
        }
        assert_sound(&db);
        assert_eq!(db.count(), 0);
        assert!(db.tree.frames.used() < 20, "{}", db.tree.frames.used());
    }
    assert!(db.tree.frames.made() < 600, "{}", db.tree.frames.made());
}

#[test]
fn long_values_are_freed_when_they_are_replaced_removed_and_cleared() {
    let db = BabyDb::new().unwrap();
    for round in 0..500u64 {
        db.put(&(round % 10).to_le_bytes(), &vec![round as u8; 5000])
            .unwrap();
    }
    assert_eq!(db.cells.bytes(), 10 * 5008);
    assert!(db.remove(&3u64.to_le_bytes()).unwrap());
    db.put(&4u64.to_le_bytes(), b"short").unwrap();
    assert_eq!(db.cells.bytes(), 8 * 5008);
    let mut lent = Vec::new();
    db.read_with(&5u64.to_le_bytes(), |value| {
        db.clear().unwrap();
        lent = value.unwrap().to_vec();
    })
    .unwrap();
    assert_eq!(lent, vec![(495 % 256) as u8; 5000]);
    assert_eq!((db.cells.bytes(), db.count()), (0, 0));
}

#[test]
fn the_longest_keys_and_values_find_their_way() {
    let db = BabyDb::new().unwrap();
    let key = |number: u64| {
        let mut key = vec![b'k'; KEY_LEN_MAX - 8];
        key.extend_from_slice(&number.to_le_bytes());
        key
    };
    for number in 0..2000u64 {
        db.put(&key(number * 7919 % 2000), &[b'v'; 510]).unwrap();
    }
    assert_sound(&db);
    for number in 0..2000 {
        assert!(db.get(&key(number)).unwrap().is_some());
    }
    let error = db.put(&vec![0; KEY_LEN_MAX + 1], b"").unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    assert_eq!(db.get(&vec![b'k'; 5000]).unwrap(), None);
    assert_eq!(
        error.to_string().split(" for key").next(),
        Some("too large: key of 511 B exceeds the 510 B limit of an ordered store in memory")
    );
}

#[test]
fn an_update_of_many_divides_leaves_and_joins_them() {
    let db = BabyDb::new().unwrap();
    let keys: Vec<Vec<u8>> = (0..2000u64)
        .map(|n| format!("{n:08}").into_bytes())
        .collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let put = |len: usize| {
        db.update_many(&keys, &mut |_| {
            keys.iter()
                .map(|_| Edit::Put(vec![7; len].into()))
                .collect()
        })
    };
    for len in [100, 10, 500, 3000] {
        put(len).unwrap();
        assert_sound(&db);
        assert_eq!(db.count(), 2000);
        assert!(shown(&db).iter().all(|(_, value)| value.len() == len));
    }
    db.update_many(&keys, &mut |present| {
        assert!(
            present
                .iter()
                .all(|value| value.is_some_and(|value| value.len() == 3000))
        );
        keys.iter().map(|_| Edit::Remove).collect()
    })
    .unwrap();
    assert_eq!((db.count(), db.cells.bytes(), shown(&db).len()), (0, 0, 0));
    assert_sound(&db);
}

#[test]
fn threads_that_put_and_remove_neighbours_leave_a_sound_tree() {
    let db = BabyDb::new().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for round in 0..40_000u64 {
                    let number = random.below(4000) * 4 + thread;
                    let key = format!("{number:06}").into_bytes();
                    // Waves of growing and of shrinking, so that nodes divide and join.
                    if random.below(10) < if round / 5000 % 2 == 0 { 8 } else { 2 } {
                        db.put(&key, &key).unwrap();
                        assert_eq!(db.get(&key).unwrap(), Some(key));
                    } else {
                        db.remove(&key).unwrap();
                        assert_eq!(db.get(&key).unwrap(), None);
                    }
                }
            });
        }
        let db = &db;
        scope.spawn(move || {
            for _ in 0..100 {
                let mut last = Vec::new();
                db.scan(None, &mut |key, value| {
                    assert!(last.as_slice() < key && key == value);
                    last = key.to_vec();
                    ControlFlow::Continue(())
                })
                .unwrap();
            }
        });
    });
    assert_sound(&db);
    assert_eq!(shown(&db).len() as u64, db.count());
}
