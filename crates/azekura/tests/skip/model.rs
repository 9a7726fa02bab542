//! Files of random records, read in every way, against the same records in a sorted list.
//!
//! What is asked: every key and keys that are absent, each number in order, ranges, cursors in both directions, scans that
//! are continued by bookmarks, in one thread and in several. It does not damage anything.

use std::collections::HashSet;
use std::ops::ControlFlow;

use azekura::engine::Cursor as _;
use azekura::record::skip::{SkipCursor, SkipReader};
use azekura::testkit::suite::{case, demand, share};
use azekura::testkit::{Random, round_seed};
use azekura::{Persistent as _, Reader as _};

use super::{Built, Records};

#[test]
fn what_was_put_is_read_in_every_way() {
    let (mut files, mut records, mut runs) = (0, 0, 0);
    for round in 0..share(1200) {
        let seed = round_seed() + round;
        let count_max = if round % 10 == 0 { 20_000 } else { 3000 };
        let built = Built::draw(seed, count_max);
        let _case = case(seed, &built);
        let file = built.build().unwrap();
        let expected = built.expected();
        compare(&file, &expected, &built, &mut Random::new(!seed));
        files += 1;
        records += expected.len() as u64;
        runs += u64::from(!built.options.is_sorted && built.inputs.len() > 2000);
    }
    demand(files, share(1200), "sorted files against a model");
    demand(records, share(1200) * 600, "records in them");
    demand(runs, share(1200) / 8, "of them sorted in several runs");
}

/// A key between others, or beside them.
fn absent(random: &mut Random, records: &Records, present: &HashSet<&[u8]>) -> Vec<u8> {
    loop {
        let mut key = match records.len() {
            0 => Vec::new(),
            len => records[random.index(len)].0.clone(),
        };
        match random.index(3) {
            0 => key.push(*random.choose(b"\x00a0\xff")),
            1 => drop(key.pop()),
            _ => {
                let len = random.index(6);
                key = random.bytes(len);
            }
        }
        if !present.contains(&key[..]) {
            return key;
        }
    }
}

fn on(cursor: &SkipCursor<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (key, value) = cursor.get()?;
    assert_eq!(cursor.record(), Some((key, value)));
    Some((key.to_vec(), value.to_vec()))
}

pub(crate) fn compare(file: &SkipReader, expected: &Records, built: &Built, random: &mut Random) {
    let order = built.order();
    assert_eq!(file.count(), expected.len() as u64);
    assert_eq!(file.order(), order);
    let less = |key: &[u8]| expected.partition_point(|(own, _)| order.compare(own, key).is_lt());
    let up_to = |key: &[u8]| expected.partition_point(|(own, _)| order.compare(own, key).is_le());
    let present: HashSet<&[u8]> = expected.iter().map(|(key, _)| &key[..]).collect();

    // All, in order.
    let mut scanned = Records::new();
    let end = file
        .scan(None, &mut |key, value| {
            scanned.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(end.is_none());
    assert_eq!(scanned.len(), expected.len());
    assert!(scanned == *expected, "a scan shows other records");

    // Some of them, and of those that are absent.
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..200 {
        if !expected.is_empty() {
            keys.push(expected[random.index(expected.len())].0.clone());
        }
        keys.push(absent(random, expected, &present));
    }
    let value_of = |key: &[u8]| {
        let at = less(key);
        let record = expected.get(at).filter(|(own, _)| own == key);
        record.map(|(_, value)| value.clone())
    };
    let mut cursor = file.cursor();
    for key in &keys {
        assert_eq!(file.get(key).unwrap(), value_of(key), "{key:?}");
        let (first, end) = (less(key), up_to(key));
        assert_eq!(file.index_of(key).unwrap(), first as u64);
        let mut values = Vec::new();
        file.values(key, |value| {
            values.push(value.to_vec());
            true
        })
        .unwrap();
        let alike: Vec<_> = expected[first..end]
            .iter()
            .map(|(_, value)| value.clone())
            .collect();
        assert_eq!(values, alike);
        let at = |index: Option<usize>| index.and_then(|at| expected.get(at)).cloned();
        assert_eq!(cursor.seek(key).unwrap(), at(Some(first)).is_some());
        assert_eq!(on(&cursor), at(Some(first)));
        cursor.seek_after(key).unwrap();
        assert_eq!(on(&cursor), at(Some(end)));
        cursor.seek_before(key).unwrap();
        assert_eq!(on(&cursor), at(first.checked_sub(1)));
        cursor.seek_at_most(key).unwrap();
        assert_eq!(on(&cursor), at(end.checked_sub(1)));
        let other = random.choose(&keys);
        let range = less(other).saturating_sub(first) as u64;
        assert_eq!(file.count_range(key, other).unwrap(), range);
    }
    let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut many = vec![None; keys.len()];
    file.read_many(&lent, &mut |at, value| {
        many[at] = Some(value.map(<[u8]>::to_vec));
    })
    .unwrap();
    for (key, value) in keys.iter().zip(many) {
        assert_eq!(value, Some(value_of(key)));
    }
    by_numbers(file, expected, random);
    bookmarks(file, expected, random);
    let report = file.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
    assert_eq!(report.records, expected.len() as u64);
}

/// Cursors that step back and forth, and numbers in order.
fn by_numbers(file: &SkipReader, expected: &Records, random: &mut Random) {
    let count = expected.len();
    for _ in 0..100 {
        let index = random.index(count + 2);
        assert_eq!(
            file.by_index(index as u64).unwrap(),
            expected.get(index).cloned()
        );
    }
    let mut cursor = file.cursor();
    assert_eq!(on(&cursor), None);
    let mut at: Option<usize> = None;
    for _ in 0..600 {
        let is_there = match random.index(20) {
            0 => {
                at = (count > 0).then_some(0);
                cursor.first()
            }
            1 => {
                at = count.checked_sub(1);
                cursor.last()
            }
            2 => {
                let index = random.index(count + 1);
                at = (index < count).then_some(index);
                cursor.seek_index(index as u64)
            }
            3..=10 => {
                let next = at.map_or(0, |at| at + 1);
                at = (next < count).then_some(next);
                cursor.next()
            }
            _ => {
                at = at.unwrap_or(count).checked_sub(1);
                cursor.previous()
            }
        };
        assert_eq!(is_there.unwrap(), at.is_some());
        assert_eq!(cursor.index(), at.map(|at| at as u64));
        assert_eq!(on(&cursor), at.map(|at| expected[at].clone()));
    }
}

/// A scan that is broken off and continued shows each record once; one from a key begins there.
fn bookmarks(file: &SkipReader, expected: &Records, random: &mut Random) {
    let mut seen = Records::new();
    let mut from = None;
    let most = 1 + expected.len() / (1 + random.index(5));
    loop {
        let mut left = 1 + random.index(most);
        from = file
            .scan(from.as_ref(), &mut |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                left -= 1;
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap();
        if from.is_none() {
            break;
        }
    }
    assert!(seen == *expected, "a scan in parts shows other records");
    if expected.is_empty() {
        return;
    }
    let key = &random.choose(expected).0;
    let mut first = None;
    file.scan(Some(&file.bookmark_at(key)), &mut |key, value| {
        first = Some((key.to_vec(), value.to_vec()));
        ControlFlow::Break(())
    })
    .unwrap();
    let wanted = expected.iter().find(|(own, _)| own == key).cloned();
    assert_eq!(first, wanted);
}

#[test]
fn threads_share_a_file() {
    let built = Built::draw(round_seed() + 5_000_000, 20_000);
    let _case = case(round_seed(), &built);
    let file = built.build().unwrap();
    let expected = built.expected();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (file, expected) = (&file, &expected);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..3000 {
                    let index = random.index(expected.len().max(1));
                    let found = file.by_index(index as u64).unwrap();
                    assert_eq!(found.as_ref(), expected.get(index));
                }
            });
        }
    });
}

#[test]
fn a_copy_is_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let built = Built::draw(round_seed() + 6_000_000, 5000);
    let _case = case(round_seed(), &built);
    let (path, copy) = (folder.path().join("a.azs"), folder.path().join("b.azs"));
    let mut builder = azekura::record::skip::SkipBuilder::create(&path, &built.options).unwrap();
    for (key, value) in &built.inputs {
        match value {
            Some(value) => builder.put(key, value).unwrap(),
            None => builder.remove(key).unwrap(),
        }
    }
    let file = builder.finish(&mut |_, _| {}).unwrap();
    file.copy_to(&copy, &mut |_, _| {}).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&copy).unwrap());
    let copied = SkipReader::open(&copy).unwrap();
    assert_eq!(copied.count(), file.count());
    let kind = file.copy_to(&copy, &mut |_, _| {}).unwrap_err().kind();
    assert_eq!(kind, azekura::Kind::Invalid);
}
