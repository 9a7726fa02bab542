//! The promises of reading: `read` lends once and a stable value; a scan shows each record once.
//!
//! Scans are broken off anywhere and continued from the bytes of their bookmarks, between changes
//! by others and over a reopening.

use std::collections::BTreeMap;

use super::{Boxed, Effort, Failure, Outcomes, counts, ensure, equal, fill, numbered};
use crate::engine::{Bookmark, Engine};
use crate::error::Kind;
use crate::testkit::Random;
use crate::testkit::op::scanned;
use crate::verbs::Verbs;

/// Keys and values, in the order in which they were shown.
type Shown = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn reads(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
    let records = fill(engine, "read", 100)?;
    for (key, value) in &records {
        let absent = [key, &b"-"[..]].concat();
        for (key, expected) in [(key, Some(value)), (&absent, None)] {
            let mut shown = Vec::new();
            engine.read(key, &mut |value| shown.push(value.map(<[u8]>::to_vec)))?;
            let expected = vec![expected.cloned()];
            equal(&shown, &expected, &format!("read of {key:?} showed"))?;
        }
    }
    // The visitor may call the engine, also for the record it is shown.
    let (key, value) = records.first_key_value().expect("there are records");
    let mut inner = Ok(None);
    engine.read(key, &mut |_| {
        inner = engine.put(key, b"new").and_then(|()| engine.get(key));
    })?;
    let new = Some(b"new".to_vec());
    equal(&inner?, &new, "a read and a put within a read")?;
    let mut lent = None;
    engine.read(key, &mut |value| lent = value.map(<[u8]>::to_vec))?;
    equal(&lent, &new, "a read after a put within a read")?;
    // What was lent does not change under the visitor.
    engine.put(key, value)?;
    let mut same = false;
    let mut outcome = Ok(());
    engine.read(key, &mut |present| {
        outcome = engine.put(key, &vec![b'x'; value.len()]);
        same = present == Some(value);
    })?;
    outcome?;
    ensure(same, || "a lent value changed while it was lent".into())?;
    Ok(2 * records.len() as u64 + 3)
}

/// Scans from `from`, breaking after `most` records; which, and where to resume.
fn scan_some(
    engine: &dyn Engine,
    from: Option<&Bookmark>,
    most: usize,
) -> Outcomes<(Shown, Option<Bookmark>)> {
    let (shown, next) = scanned(engine, from, most);
    let next = next?;
    ensure(shown.len() <= most, || {
        "a scan continued after the visitor broke".into()
    })?;
    ensure(
        next.is_some() || shown.len() < most || most == 0 || from_end(engine, &shown)?,
        || "a scan that broke gave no bookmark".into(),
    )?;
    Ok((shown, next))
}

/// Whether nothing follows what was shown: then a bookmark is not needed.
fn from_end(engine: &dyn Engine, shown: &[(Vec<u8>, Vec<u8>)]) -> Outcomes<bool> {
    let Some((key, _)) = shown.last() else {
        return Ok(true);
    };
    let (after, end) = scanned(engine, Some(&engine.bookmark_at(key)), usize::MAX);
    end?;
    Ok(after.len() <= 1)
}

/// Scans to the end in pieces; `between` runs after each. Bookmarks travel as bytes.
pub(super) fn scan_in_pieces(
    engine: &dyn Engine,
    start: Option<Bookmark>,
    random: &mut Random,
    piece_max: u64,
    mut between: impl FnMut() -> Outcomes<()>,
) -> Outcomes<Shown> {
    let mut all = Vec::new();
    let mut from = start;
    let (mut pieces, pieces_max) = (0, 10_000 + 2 * engine.count());
    loop {
        let most = 1 + random.below(piece_max) as usize;
        let (shown, next) = scan_some(engine, from.as_ref(), most)?;
        all.extend(shown);
        let Some(next) = next else { return Ok(all) };
        from = Some(Bookmark::from_bytes(next.as_bytes()));
        between()?;
        pieces += 1;
        ensure(pieces < pieces_max, || {
            "a scan does not come to its end".into()
        })?;
    }
}

/// The records shown, as a map; `Failure` if one was shown twice.
pub(super) fn once(shown: Shown) -> Outcomes<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut records = BTreeMap::new();
    for (key, value) in shown {
        if records.insert(key.clone(), value).is_some() {
            return Err(Failure(format!("a scan showed {key:?} twice")));
        }
    }
    Ok(records)
}

pub(super) fn scans(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let (shown, next) = scan_some(engine, None, usize::MAX)?;
    equal(&(shown.len(), next), &(0, None), "a scan of an empty store")?;
    let mut random = Random::new(effort.seed);
    let mut count = 0;
    for size in [1, 2, 7, 60, effort.records] {
        let records = fill(engine, "scan", size)?;
        for piece_max in [1, 3, 50] {
            let shown = scan_in_pieces(engine, None, &mut random, piece_max, || Ok(()))?;
            count += shown.len() as u64;
            equal(&once(shown)?, &records, "records shown by a scan in pieces")?;
        }
        let (order, next) = scan_some(engine, None, usize::MAX)?;
        equal(&next, &None, "the bookmark at the end of a scan")?;
        equal(&once(order.clone())?, &records, "records shown by a scan")?;
        for _ in 0..20.min(size) {
            let index = random.index(order.len());
            let bookmark = engine.bookmark_at(&order[index].0);
            let rest = scan_in_pieces(engine, Some(bookmark), &mut random, 400, || Ok(()))?;
            let what = "the first record from a bookmark at its key";
            equal(&rest.first(), &order.get(index), what)?;
            once(rest)?;
        }
    }
    // From where no record is, and from bytes that are no bookmark: nothing wrong is shown.
    let records = fill(engine, "scan", effort.records)?;
    for number in 0..200 {
        let len = random.index(40);
        let bytes = random.bytes(len);
        let bookmark = if number % 2 == 0 {
            engine.bookmark_at(&bytes)
        } else {
            Bookmark::from_bytes(&bytes)
        };
        let (shown, end) = scanned(engine, Some(&bookmark), usize::MAX);
        if let Err(error) = end {
            let what = "the error for a bookmark, and whether it is none";
            equal(&(error.kind(), number % 2), &(Kind::Invalid, 1), what)?;
        }
        let right = once(shown)?
            .iter()
            .all(|(key, value)| records.get(key) == Some(value));
        ensure(right, || {
            format!("a record that is not there, from bookmark {bookmark:?}")
        })?;
        count += 1;
    }
    Ok(count)
}

/// Stable records are shown once, though others come and go and they themselves change.
pub(super) fn scans_between_changes(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let mut random = Random::new(effort.seed);
    let mut count = 0;
    for piece_max in [1, 10, 100] {
        engine.clear()?;
        let stable = fill(engine, "stable", effort.records)?;
        fill(engine, "going", effort.records)?;
        let (mut going, mut coming) = (effort.records, 0);
        let mut choices = random.clone();
        let shown = scan_in_pieces(engine, None, &mut random, piece_max, || {
            for _ in 0..piece_max.div_ceil(2) {
                // What comes is bounded, so that the scan may end.
                if coming < 4 * effort.records {
                    engine.put(&numbered("coming", coming), b"new")?;
                    coming += 1;
                }
                if going > 0 {
                    going -= 1;
                    engine.remove(&numbered("going", going))?;
                }
                let number = choices.below(effort.records);
                let key = numbered("stable", number);
                let value = [&stable[&key][..], &vec![b'!'; choices.index(90)]].concat();
                engine.put(&key, &value)?;
            }
            Ok(())
        })?;
        count += shown.len() as u64;
        let shown = once(shown)?;
        for (key, value) in &stable {
            let is_right = shown.get(key).is_some_and(|shown| shown.starts_with(value));
            ensure(is_right, || {
                format!("{key:?} was there all the time: {:?}", shown.get(key))
            })?;
        }
        for (key, value) in &shown {
            let known = key.starts_with(b"stable") || key.starts_with(b"going") || value == b"new";
            ensure(known, || {
                format!("a scan showed {key:?} with {value:?}, which was never put")
            })?;
        }
    }
    Ok(count)
}

pub(super) fn bookmarks_over_reopening(
    engine: Boxed,
    reopen: &dyn Fn(Boxed) -> Boxed,
    effort: &Effort,
) -> Outcomes<u64> {
    let records = fill(&*engine, "kept", effort.records)?;
    let (mut shown, mut next) = scan_some(&*engine, None, records.len() / 3)?;
    let mut engine = reopen(engine);
    while let Some(bookmark) = next {
        let more;
        (more, next) = scan_some(&*engine, Some(&bookmark), records.len() / 3)?;
        shown.extend(more);
        engine = reopen(engine);
    }
    let what = "records shown by a scan over reopenings";
    equal(&once(shown)?, &records, what)?;
    engine.clear()?;
    engine = reopen(engine);
    counts(&*engine, 0, "after a clear and a reopening")?;
    let shown = scan_some(&*engine, None, usize::MAX)?.0;
    equal(&shown, &Vec::new(), "records after a clear")?;
    Ok(records.len() as u64)
}
