//! Mechanics of the tree in memory: divisions, joining, reuse, long values.
//!
//! After waves of changes, by one thread and by several, every fence is its parent's key and every level covers all
//! keys. What the contract promises is tested by the conformance suite (`tests/ordered.rs`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::cluster::STEM;
use super::*;
use crate::error::Kind;
use crate::node::tree::ROOT;
use crate::testkit::Random;

pub(super) fn shown(db: &BabyDb) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut shown = Vec::new();
    let end = db.scan(None, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), None);
    shown
}

/// Every fence is its parent's key, every level covers all keys, every key lies between its fences, in order.
pub(super) fn assert_sound(db: &BabyDb) {
    fn walk(db: &BabyDb, number: u32, level: u32, low: Option<&[u8]>, up: Option<&[u8]>) {
        let node = db.tree.node(db.tree.nodes.at(number));
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
    walk(db, ROOT, db.tree.height(), None, None);
}

#[test]
fn a_store_in_any_order_agrees_with_a_sorted_map() {
    let mut random = Random::new(3);
    for order in Order::ALL {
        let db = BabyDb::with(&Options::new().order(order)).unwrap();
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
        let bytes = db.tree.nodes.used() * FRAME / 100_000;
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
        assert!(db.tree.nodes.used() < 20, "{}", db.tree.nodes.used());
    }
    assert!(db.tree.nodes.made() < 600, "{}", db.tree.nodes.made());
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
        let mut key = vec![b'k'; STEM - 9];
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
    let longest = vec![b'k'; LIMITS.key as usize];
    db.put(&longest, b"of the longest").unwrap();
    assert_eq!(db.get(&longest).unwrap().unwrap(), b"of the longest");
    let longer = [&longest[..], b"k"].concat();
    let error = db.put(&longer, b"").unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    assert_eq!(
        error.to_string().split(" for key").next(),
        Some("too large: key of 8 MiB exceeds the 8.0 MiB limit of an ordered store in memory")
    );
    assert_eq!(db.get(&longer).unwrap(), None);
    assert!(!db.remove(&longer).unwrap());
    assert!(db.remove(&longest).unwrap());
    assert_eq!((db.count(), db.cells.bytes()), (2000, 0));
}

#[test]
fn keys_that_are_compared_as_a_whole_end_with_a_node() {
    let order = Order::Decimal;
    let db = BabyDb::with(&Options::new().order(order)).unwrap();
    db.put(&[b'1'; KEY_LEN_MAX], &[7; 2000]).unwrap();
    assert_eq!(db.get(&[b'1'; KEY_LEN_MAX]).unwrap(), Some(vec![7; 2000]));
    let error = db.put(&[b'1'; KEY_LEN_MAX + 1], b"").unwrap_err();
    assert_eq!(
        error.to_string().split(" for key").next(),
        Some(
            "too large: key of 511 B exceeds the 510 B limit of an ordered store in memory in this order"
        )
    );
    assert_eq!(db.promise().key_len_max, 510);
    assert_eq!(shown(&db), [(vec![b'1'; KEY_LEN_MAX], vec![7; 2000])]);
}

/// Keys about as long as a stem, and longer, of which many begin alike.
fn long_key(random: &mut Random) -> Vec<u8> {
    let mut key = vec![b'a' + random.below(3) as u8; STEM - 2];
    let len = [0, 1, 2, 3, 4, 6, 700][random.index(7)];
    key.extend((0..len).map(|_| b"\0x\xff"[random.index(3)]));
    key.truncate([STEM + 3, 2000, 9, STEM][random.index(4)]);
    key
}

#[test]
fn long_keys_agree_with_a_sorted_map() {
    let mut random = Random::new(21);
    let db = BabyDb::new().unwrap();
    let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for round in 0..6000 {
        let keys: Vec<Vec<u8>> = (0..4).map(|_| long_key(&mut random)).collect();
        let len = [0, 8, 700][random.index(3)];
        let value = random.bytes(len);
        match random.below(if round < 4000 { 6 } else { 12 }) {
            0..=2 => {
                db.put(&keys[0], &value).unwrap();
                map.insert(keys[0].clone(), value);
            }
            3 => {
                let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                // Of edits of the same key the last counts, so each gets the same.
                let edits = || -> Vec<Edit<'_>> {
                    let edit = |key: &Vec<u8>| match key.len() % 3 {
                        0 => Edit::Remove,
                        1 => Edit::Put(value.as_slice().into()),
                        _ => Edit::Keep,
                    };
                    keys.iter().map(edit).collect()
                };
                db.update_many(&asked, &mut |present| {
                    for (key, present) in keys.iter().zip(present) {
                        assert_eq!(*present, map.get(key).map(Vec::as_slice));
                    }
                    edits()
                })
                .unwrap();
                for (key, edit) in keys.iter().zip(edits()) {
                    match edit {
                        Edit::Put(value) => drop(map.insert(key.clone(), value.into_owned())),
                        Edit::Remove => drop(map.remove(key)),
                        Edit::Keep => {}
                    }
                }
            }
            _ => assert_eq!(db.remove(&keys[0]).unwrap(), map.remove(&keys[0]).is_some()),
        }
        assert_eq!(db.count(), map.len() as u64);
        if round % 100 > 0 {
            continue;
        }
        let sorted: Vec<(Vec<u8>, Vec<u8>)> = map.clone().into_iter().collect();
        assert_eq!(shown(&db), sorted);
        let keys: Vec<&[u8]> = sorted.iter().map(|(key, _)| key.as_slice()).collect();
        db.read_many(&keys, &mut |at, value| {
            assert_eq!(value, Some(&sorted[at].1[..]));
        })
        .unwrap();
        let sought = long_key(&mut random);
        let from = sorted.partition_point(|(key, _)| *key < sought);
        let mut cursor = db.cursor();
        assert_eq!(cursor.seek(&sought).unwrap(), from < sorted.len());
        for record in sorted.iter().skip(from).take(50) {
            assert_eq!(cursor.record(), Some((&record.0[..], &record.1[..])));
            cursor.next().unwrap();
        }
        cursor.seek(&sought).unwrap();
        let mut at = from;
        while at > from.saturating_sub(50) {
            assert!(cursor.previous().unwrap());
            at -= 1;
            assert_eq!(cursor.record().unwrap().0, sorted[at].0);
        }
        // A scan in pieces of three, bookmarks and all.
        let mut bookmark = Some(db.bookmark_at(&sought));
        let mut seen = Vec::new();
        while let Some(from) = bookmark {
            let mut left = 3;
            bookmark = db
                .scan(Some(&from), &mut |key, _| {
                    seen.push(key.to_vec());
                    left -= 1;
                    if left == 0 {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
                .unwrap();
        }
        assert_eq!(seen, keys[from..]);
    }
    assert_sound(&db);
    for key in map.keys() {
        assert!(db.remove(key).unwrap());
    }
    assert_eq!((db.count(), db.cells.bytes(), shown(&db).len()), (0, 0, 0));
}

#[test]
fn members_of_a_cluster_are_freed_when_everything_is_removed() {
    let db = BabyDb::new().unwrap();
    for number in 0..300u64 {
        let key = [&[b'k'; 600][..], &number.to_le_bytes()].concat();
        db.put(&key, &[1; 1000]).unwrap();
    }
    let member = 8 + 4 + 98 + 1000;
    assert_eq!(db.cells.bytes(), 8 + 300 * (8 + member));
    assert_eq!(db.tree.nodes.used(), 1);
    db.clear().unwrap();
    assert_eq!((db.count(), db.cells.bytes()), (0, 0));
}

#[test]
fn removing_in_order_leaves_no_empty_leaves_behind() {
    for descending in [false, true] {
        let db = BabyDb::new().unwrap();
        let key = |number: u64| format!("{number:08}").into_bytes();
        (0..100_000).for_each(|number| db.put(&key(number), b"12345678").unwrap());
        let full = db.tree.nodes.used();
        for number in 0..90_000 {
            let number = if descending { 99_999 - number } else { number };
            assert!(db.remove(&key(number)).unwrap());
        }
        assert_sound(&db);
        let left = db.tree.nodes.used();
        assert!(left < full / 8, "{left} of {full} nodes");
    }
}

#[test]
fn memory_of_nodes_goes_back_when_few_are_left() {
    let db = BabyDb::new().unwrap();
    let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    for is_cleared in [false, true] {
        (0..900_000).for_each(|number| db.put(&key(number), b"12345678").unwrap());
        let most = db.tree.nodes.warm();
        assert!(most > 5000, "{most} nodes");
        if is_cleared {
            db.clear().unwrap();
        } else {
            for number in 1000..900_000 {
                assert!(db.remove(&key(number)).unwrap());
            }
            for number in 0..1000 {
                assert_eq!(db.get(&key(number)).unwrap().unwrap(), b"12345678");
            }
        }
        assert_sound(&db);
        // Other tests' threads may be pinned at any moment, so the last may still wait.
        for _ in 0..1_000_000 {
            db.tree.nodes.release_idle();
            if db.tree.nodes.warm() <= db.tree.nodes.used() + 2 * 1024 {
                break;
            }
            std::thread::yield_now();
        }
        let (used, warm) = (db.tree.nodes.used(), db.tree.nodes.warm());
        assert!(warm <= used + 2 * 1024, "{warm} of {most}, {used} in use");
        assert_eq!(db.stats().memory_bytes, warm * FRAME);
    }
}

#[test]
fn a_batch_reads_what_single_reads_do_concurrently_with_writers() {
    let db = BabyDb::new().unwrap();
    let key = |number: u64| format!("{number:06}").into_bytes();
    // Even keys stay, odd ones come and go.
    (0..20_000).for_each(|number| db.put(&key(number * 2), &key(number)).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for round in 0..60_000u64 {
                    let odd = key(random.below(20_000) * 2 + 1);
                    if round / 10_000 % 2 == 0 {
                        db.put(&odd, &odd).unwrap();
                    } else {
                        db.remove(&odd).unwrap();
                    }
                }
            });
        }
        let mut random = Random::new(9);
        for _ in 0..2000 {
            let count = random.index(80);
            let numbers: Vec<u64> = (0..count).map(|_| random.below(42_000)).collect();
            let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut next = 0;
            db.read_many(&keys, &mut |at, value| {
                assert_eq!(at, next);
                next += 1;
                let number = numbers[at];
                match value {
                    Some(value) if number.is_multiple_of(2) => assert_eq!(value, key(number / 2)),
                    Some(value) => assert_eq!(value, keys[at]),
                    None => assert!(number % 2 == 1 || number >= 40_000, "{number}"),
                }
            })
            .unwrap();
            assert_eq!(next, count);
        }
    });
    assert_sound(&db);
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

#[test]
fn nodes_and_values_of_a_queue_are_used_again() {
    let db = BabyDb::new().unwrap();
    let value = |number: u64| vec![number as u8; if number.is_multiple_of(16) { 2000 } else { 20 }];
    let mut most = 0;
    for number in 0..400_000u64 {
        // A few wanderers between, so that leaves do not empty from one end only.
        let key = |number: u64| {
            let (step, lane) = (number / 3, number % 3);
            format!("{:08}{lane}", step + lane * 5000).into_bytes()
        };
        db.put(&key(number), &value(number)).unwrap();
        if let Some(first) = number.checked_sub(20_000) {
            assert!(db.remove(&key(first)).unwrap());
        }
        most = most.max(db.tree.nodes.used());
    }
    assert_sound(&db);
    assert_eq!(db.count(), 20_000);
    assert_eq!(db.cells.bytes(), 20_000 / 16 * 2008);
    // Within an update a node may be there whose like is given back at its end.
    let made = db.tree.nodes.made();
    assert!(made <= most + 4, "{made} nodes made, {most} in use at most");
    assert!(most < 600, "{most} nodes for 20000 records");
}

#[test]
fn a_walk_both_ways_shows_what_stays_once_concurrently_with_writers() {
    let db = BabyDb::new().unwrap();
    let key = |number: u64| format!("{number:06}").into_bytes();
    // Multiples of eight stay; what is between comes and goes in waves, so that leaves divide and join.
    let stay: Vec<Vec<u8>> = (0..2000).map(|number| key(number * 8)).collect();
    for key in &stay {
        db.put(key, key).unwrap();
    }
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut round = 0u64;
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    let passing = key(random.below(2000) * 8 + 1 + random.below(7));
                    if (round / 8000).is_multiple_of(2) {
                        db.put(&passing, &passing).unwrap();
                    } else {
                        db.remove(&passing).unwrap();
                    }
                    round += 1;
                }
            });
        }
        let rising = |seen: &[Vec<u8>]| {
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
            let stayed = seen.iter().filter(|key| stay.binary_search(key).is_ok());
            assert_eq!(stayed.count(), stay.len());
        };
        for _ in 0..20 {
            let mut cursor = db.cursor();
            let mut seen = Vec::new();
            while cursor.next().unwrap() {
                let (key, value) = cursor.record().unwrap();
                assert_eq!(key, value);
                seen.push(key.to_vec());
            }
            rising(&seen);
            let (mut cursor, mut seen) = (db.cursor(), Vec::new());
            while cursor.previous().unwrap() {
                seen.push(cursor.record().unwrap().0.to_vec());
            }
            seen.reverse();
            rising(&seen);
            let (mut from, mut seen) = (Some(db.bookmark_at(b"")), Vec::new());
            while let Some(bookmark) = from {
                from = db
                    .scan(Some(&bookmark), &mut |key, _| {
                        seen.push(key.to_vec());
                        match seen.len() % 100 {
                            0 => ControlFlow::Break(()),
                            _ => ControlFlow::Continue(()),
                        }
                    })
                    .unwrap();
            }
            rising(&seen);
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_sound(&db);
}

#[test]
fn leaves_of_a_few_large_records_are_joined_as_well() {
    let db = BabyDb::new().unwrap();
    let mut random = Random::new(7);
    let keys: Vec<[u8; 8]> = (0..20_000).map(|_| random.u64().to_le_bytes()).collect();
    for key in &keys {
        db.put(key, &[1; 200]).unwrap();
    }
    let full = db.tree.nodes.used();
    for key in keys.iter().enumerate().filter(|(at, _)| at % 10 != 0) {
        assert!(db.remove(key.1).unwrap());
    }
    let left = db.tree.nodes.used();
    assert!(left * 3 < full, "{left} nodes of {full}");
    assert_sound(&db);
}
