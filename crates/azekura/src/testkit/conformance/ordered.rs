//! The promises of order: scans and cursors show records as the order's name states, from anywhere, both ways.
//!
//! The expected order is a sorted list, by the comparator of the same name. A cursor remembers its key, so it goes
//! on from there when its record was removed and others came next to it. Engines without an order pass: they promise none.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{Effort, Outcomes, ensure, equal, numbered};
use crate::engine::{Cursor, Engine, Ordered};
use crate::error::Result;
use crate::order::{Order, is_from, is_up_to, pair};
use crate::testkit::op::scanned;
use crate::testkit::{Random, concurrently};
use crate::verbs::Verbs;

type Record = (Vec<u8>, Vec<u8>);

/// The records, sorted.
struct Sorted {
    order: Order,
    records: Vec<Record>,
}

impl Sorted {
    /// The first that is not less than `key`.
    fn at(&self, key: &[u8]) -> usize {
        self.records
            .partition_point(|(other, _)| self.order.compare(other, key).is_lt())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let at = self.at(key);
        match self.records.get_mut(at) {
            Some(record) if record.0 == key => record.1 = value.to_vec(),
            _ => self.records.insert(at, (key.to_vec(), value.to_vec())),
        }
    }

    fn remove(&mut self, key: &[u8]) {
        let at = self.at(key);
        if self.records.get(at).is_some_and(|record| record.0 == key) {
            self.records.remove(at);
        }
    }
}

/// A key such as some order cares for.
fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(2000);
    match random.below(6) {
        0 => format!("{number}").into_bytes(),
        1 => format!("-{number}.5").into_bytes(),
        2 => format!("{number:X}").into_bytes(),
        3 => (0..random.below(9))
            .map(|_| random.below(256) as u8)
            .collect(),
        4 => pair(format!("{}", number % 50).as_bytes(), b"second"),
        _ => format!("all of these begin alike {number}").into_bytes(),
    }
}

fn record(cursor: &dyn Cursor) -> Option<Record> {
    let (key, value) = cursor.record()?;
    Some((key.to_vec(), value.to_vec()))
}

/// Moves to the first or the last record.
fn begin(cursor: &mut dyn Cursor, forward: bool) -> Result<bool> {
    if forward {
        cursor.first()
    } else {
        cursor.last()
    }
}

/// Moves to the next or the previous record.
fn step(cursor: &mut dyn Cursor, forward: bool) -> Result<bool> {
    if forward {
        cursor.next()
    } else {
        cursor.previous()
    }
}

pub(super) fn ordered(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let Some(door) = engine.as_ordered() else {
        return Ok(0);
    };
    let order = Order::from_name(door.order_name())
        .ok_or_else(|| format!("no order is named {:?}", door.order_name()))?;
    let mut random = Random::new(effort.seed);
    let mut sorted = Sorted {
        order,
        records: Vec::new(),
    };
    ensure(!door.cursor().first()?, || "a first record of none".into())?;
    ensure(!door.cursor().last()?, || "a last record of none".into())?;
    for _ in 0..effort.records {
        let (key, value) = (key(&mut random), numbered("value", random.below(1 << 20)));
        engine.put(&key, &value)?;
        sorted.put(&key, &value);
    }
    let mut count = both_ways(engine, door, &sorted)?;
    count += from_anywhere(engine, door, &mut sorted, &mut random)?;
    count += ranges(engine, door, &mut sorted, &mut random)?;
    count += with_writers(engine, door, effort)?;
    Ok(count)
}

/// Ranges are counted, and removed where the engine is one that can be changed, as the sorted list has them.
fn ranges(
    engine: &dyn Engine,
    door: &dyn Ordered,
    sorted: &mut Sorted,
    random: &mut Random,
) -> Outcomes<u64> {
    let mut count = 0;
    for turn in 0..40 {
        let (mut first, mut last) = (key(random), key(random));
        if sorted.order.compare(&first, &last).is_gt() {
            std::mem::swap(&mut first, &mut last);
        }
        if turn % 3 == 0 {
            // A few neighbours.
            let at = sorted.at(&first);
            let near = sorted.records.get(at + random.index(30));
            last = near.map_or(last, |(key, _)| key.clone());
        }
        let end = |random: &mut Random, key| match random.below(9) {
            0 => Bound::Unbounded,
            1..5 => Bound::Included(key),
            _ => Bound::Excluded(key),
        };
        let keys = (end(random, &first[..]), end(random, &last[..]));
        let order = sorted.order;
        let is_in = |key: &[u8]| is_from(keys, order, key) && is_up_to(keys, order, key);
        let expected = sorted.records.iter().filter(|(key, _)| is_in(key)).count() as u64;
        let what = format!("records from {keys:?}");
        equal(&door.count_between(keys)?, &expected, &what)?;
        count += expected;
        let is_some = expected < sorted.records.len() as u64 / 4;
        if let Some(ordered) = engine.as_ordered_engine().filter(|_| is_some) {
            equal(&ordered.remove_between(keys)?, &expected, &what)?;
            sorted.records.retain(|(key, _)| !is_in(key));
            equal(&door.count_between(keys)?, &0, &what)?;
        }
    }
    let (scanned, end) = scanned(engine, None, usize::MAX);
    end?;
    equal(&scanned, &sorted.records, "records that ranges left")?;
    let reversed = (Bound::Included(&b"2"[..]), Bound::Included(&b"1"[..]));
    if sorted.order.compare(b"2", b"1").is_gt() {
        let refused = door.count_between(reversed);
        ensure(refused.is_err(), || {
            "a range that ends before it begins".into()
        })?;
    }
    Ok(count)
}

fn both_ways(engine: &dyn Engine, door: &dyn Ordered, sorted: &Sorted) -> Outcomes<u64> {
    let (scanned, end) = scanned(engine, None, usize::MAX);
    end?;
    equal(&scanned, &sorted.records, "records scanned in order")?;
    for forward in [true, false] {
        let mut expected: Vec<_> = sorted.records.iter().cloned().map(Some).collect();
        if !forward {
            expected.reverse();
        }
        let mut cursor = door.cursor();
        let mut there = begin(&mut *cursor, forward)?;
        for expected in expected.into_iter().chain([None]) {
            let found = (there, record(&*cursor));
            let what = format!("the next record, forward: {forward}");
            equal(&found, &(expected.is_some(), expected), &what)?;
            if there {
                there = step(&mut *cursor, forward)?;
            }
        }
    }
    Ok(3 * sorted.records.len() as u64)
}

/// Seeks, and steps from there, while records come and go, the cursor's own among them.
fn from_anywhere(
    engine: &dyn Engine,
    door: &dyn Ordered,
    sorted: &mut Sorted,
    random: &mut Random,
) -> Outcomes<u64> {
    let mut count = 0;
    for round in 0..400 {
        let sought = key(random);
        let mut at = sorted.at(&sought);
        let expected = sorted.records.get(at).cloned();
        let (shown, end) = scanned(engine, Some(&engine.bookmark_at(&sought)), 1);
        end?;
        let what = format!("the record from a bookmark at {sought:?}");
        equal(&&shown[..], &expected.as_slice(), &what)?;
        let mut cursor = door.cursor();
        let there = cursor.seek(&sought)?;
        let found = (there, record(&*cursor));
        let what = format!("a seek of {sought:?}");
        equal(&found, &(expected.is_some(), expected), &what)?;
        for _ in 0..10 {
            let Some((present, _)) = record(&*cursor) else {
                break;
            };
            if round % 2 == 1 {
                let (going, coming) = (key(random), key(random));
                for key in [&going, &present] {
                    engine.remove(key)?;
                    sorted.remove(key);
                }
                engine.put(&coming, b"came")?;
                sorted.put(&coming, b"came");
            }
            let forward = random.below(3) > 0;
            at = sorted.at(&present);
            let expected = if forward {
                let is_there = sorted
                    .records
                    .get(at)
                    .is_some_and(|(key, _)| *key == present);
                sorted.records.get(at + usize::from(is_there))
            } else {
                at.checked_sub(1).and_then(|at| sorted.records.get(at))
            };
            let there = step(&mut *cursor, forward)?;
            let found = (there, record(&*cursor));
            let what = format!("a step from {present:?}, forward: {forward}");
            equal(&found, &(expected.is_some(), expected.cloned()), &what)?;
            count += 1;
        }
    }
    Ok(count)
}

/// What stays is shown once, in order, by cursors of both ways, while others come and go.
fn with_writers(engine: &dyn Engine, door: &dyn Ordered, effort: &Effort) -> Outcomes<u64> {
    engine.clear()?;
    let order = Order::from_name(door.order_name()).unwrap_or_default();
    let mut stable = BTreeMap::new();
    for number in 0..effort.records {
        let key = numbered("stays", number);
        engine.put(&key, &key)?;
        stable.insert(key, 0u64);
    }
    let write = |over: &AtomicBool| -> Outcomes<()> {
        let mut number = 0;
        while !over.load(Relaxed) {
            number += 1;
            let key = [numbered("stays", number % effort.records), vec![b'+'; 40]].concat();
            if (number / effort.records).is_multiple_of(2) {
                engine.put(&key, &key)?;
            } else {
                engine.remove(&key)?;
            }
        }
        Ok(())
    };
    let walk = || -> Outcomes<u64> {
        let mut count = 0;
        for round in 0..6 {
            let forward = round % 2 == 0;
            let mut cursor = door.cursor();
            let mut there = begin(&mut *cursor, forward)?;
            let mut last: Option<Vec<u8>> = None;
            while there {
                let Some((key, value)) = record(&*cursor) else {
                    return Err("a cursor that is on a record shows none".to_owned().into());
                };
                let in_order = last.as_ref().is_none_or(|last| {
                    let step = order.compare(last, &key);
                    if forward { step.is_lt() } else { step.is_gt() }
                });
                ensure(in_order && value == key, || {
                    format!("{key:?} with {value:?} after {last:?}, forward: {forward}")
                })?;
                if let Some(shown) = stable.get_mut(&key) {
                    *shown += 1;
                }
                last = Some(key);
                there = step(&mut *cursor, forward)?;
                count += 1;
            }
            let missed = stable.iter().find(|(_, shown)| **shown != round + 1);
            ensure(missed.is_none(), || {
                format!("not shown once: {missed:?}, in round {round}")
            })?;
        }
        Ok(count)
    };
    let (walked, wrote) = concurrently(write, walk);
    wrote?;
    walked
}
