//! The promises of writing, one thread at a time: update one or many, limits, clear, file.
//!
//! Every call is checked by what its closure was shown, how often, and what a read finds after it;
//! refused calls and panics by what they must have left alone.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Effort, Outcomes, counts, ensure, equal, fill, holds, holds_one, numbered};
use crate::engine::{Durability, Edit, Engine};
use crate::error::Kind;
use crate::testkit::{Model, Random};
use crate::verbs::Verbs;

pub(super) fn updates(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
    let mut count = 0;
    let starts: [Option<&[u8]>; 3] = [None, Some(b""), Some(b"before")];
    // Keep, remove, and put.
    let wishes = [None, Some(None)].into_iter();
    let puts: [&[u8]; 3] = [b"", b"after", &[0; 3000]];
    let wishes = wishes.chain(puts.map(|value| Some(Some(value))));
    for key in [&b""[..], b"k", &[0; 40], &[255; 300]] {
        if key.len() as u64 > engine.promise().key_len_max {
            continue;
        }
        for (start, wish) in starts
            .into_iter()
            .flat_map(|start| wishes.clone().map(move |wish| (start, wish)))
        {
            match start {
                None => drop(engine.remove(key)?),
                Some(value) => engine.put(key, value)?,
            }
            let mut shown = Vec::new();
            engine.update(key, &mut |present| {
                shown.push(present.map(<[u8]>::to_vec));
                wish.map_or(Edit::Keep, |put| put.map_or(Edit::Remove, Edit::put))
            })?;
            let present = vec![start.map(<[u8]>::to_vec)];
            equal(&shown, &present, &format!("update of {key:?} showed"))?;
            let what = format_args!("{key:?} after an update to {wish:?}");
            holds_one(engine, key, wish.unwrap_or(start), what)?;
            count += 1;
        }
    }
    Ok(count)
}

/// What the suite throws into an engine: not a real panic, so that no hook prints it.
#[derive(Debug)]
struct Thrown;

pub(super) fn panics(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
    let throw = || -> Edit<'static> { resume_unwind(Box::new(Thrown)) };
    let thrown = |outcome: std::thread::Result<crate::error::Result<()>>| {
        let panic = outcome.err();
        ensure(panic.is_some_and(|panic| panic.is::<Thrown>()), || {
            "a panic of the caller's closure did not reach the caller".into()
        })
    };
    engine.put(b"present", b"value")?;
    engine.put(b"other", b"value")?;
    for key in [&b"present"[..], b"absent"] {
        let before = engine.get(key)?;
        thrown(catch_unwind(AssertUnwindSafe(|| {
            engine.update(key, &mut |_| throw())
        })))?;
        let kept = |what| holds_one(engine, key, before.as_deref(), what);
        kept("record after a panic in update")?;
        thrown(catch_unwind(AssertUnwindSafe(|| {
            engine.update_many(&[key, b"other"], &mut |_| vec![throw()])
        })))?;
        kept("record after a panic in update_many")?;
        // The lock is free again, for other threads too.
        std::thread::scope(|scope| {
            scope
                .spawn(|| engine.append(key, b"1", b""))
                .join()
                .unwrap_or_else(|p| resume_unwind(p))
        })?;
        let expected = [before.unwrap_or_default(), b"1".to_vec()].concat();
        holds_one(engine, key, Some(&expected), "record updated after a panic")?;
    }
    counts(engine, 3, "after panics")?;
    Ok(4)
}

pub(super) fn many(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let mut random = Random::new(effort.seed);
    let mut records: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut count = 0;
    for size in [0, 1, 2, 15, 16, 17, 100, 1000] {
        let batch: Vec<(Vec<u8>, Vec<u8>)> = (0..size)
            .map(|number| {
                let len = random.index(100);
                // Keys repeat within the batch: the last counts.
                (
                    numbered("many", random.below(size.max(3) / 2 + 1)),
                    random.bytes(len + number as usize % 2),
                )
            })
            .collect();
        let borrowed: Vec<(&[u8], &[u8])> = batch.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        engine.put_many(&borrowed)?;
        records.extend(batch.iter().cloned());
        let asked: Vec<Vec<u8>> = (0..size)
            .map(|_| numbered("many", random.below(size + 1)))
            .collect();
        let asked: Vec<&[u8]> = asked.iter().map(Vec::as_slice).collect();
        let mut shown = vec![Vec::new(); asked.len()];
        engine.prefetch_keys(&asked);
        engine.read_many(&asked, &mut |index, value| {
            shown[index].push(value.map(<[u8]>::to_vec));
        })?;
        for (key, shown) in asked.iter().zip(shown) {
            equal(
                &shown,
                &vec![records.get(*key).cloned()],
                &format!("read_many of {key:?} showed"),
            )?;
            count += 1;
        }
        counts(engine, records.len() as u64, "after put_many")?;
    }
    Ok(count)
}

pub(super) fn updates_of_many(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
    engine.put(b"a", b"1")?;
    engine.put(b"b", b"2")?;
    let mut shown = Vec::new();
    let keys: [&[u8]; 6] = [b"b", b"a", b"none", b"a", b"a", b"b"];
    engine.update_many(&keys, &mut |present| {
        shown.push(
            present
                .iter()
                .map(|value| value.map(<[u8]>::to_vec))
                .collect(),
        );
        vec![
            Edit::Remove,
            Edit::put(b"first"),
            Edit::put(b"new"),
            Edit::put(b"last"),
            Edit::Keep,
            Edit::Keep,
        ]
    })?;
    let (one, two) = (Some(b"1".to_vec()), Some(b"2".to_vec()));
    let expected = vec![vec![two.clone(), one.clone(), None, one.clone(), one, two]];
    equal(&shown, &expected, "update_many showed")?;
    for (key, value) in [
        (b"a".as_slice(), Some(&b"last"[..])),
        (b"b", None),
        (b"none", Some(b"new")),
    ] {
        holds_one(
            engine,
            key,
            value,
            format_args!("{key:?} after update_many"),
        )?;
    }
    engine.update_many(&[], &mut |present| {
        assert!(present.is_empty(), "no key has no value");
        Vec::new()
    })?;
    // Put, then removed, in one call; and the other way about.
    let edits = |first: Option<&'static [u8]>, last: Option<&'static [u8]>| {
        let edit = |value: Option<&'static [u8]>| value.map_or(Edit::Remove, Edit::put);
        engine.update_many(&[b"a", b"a"], &mut |_| vec![edit(first), edit(last)])
    };
    edits(Some(b"x"), None)?;
    let what = "a record put and removed in one update_many";
    holds_one(engine, b"a", None, what)?;
    edits(None, Some(b"y"))?;
    let what = "a record removed and put in one update_many";
    holds_one(engine, b"a", Some(b"y"), what)?;
    let wide: Vec<Vec<u8>> = (0..300).map(|number| numbered("wide", number)).collect();
    let wide: Vec<(&[u8], &[u8])> = wide.iter().map(|key| (&key[..], &key[..])).collect();
    engine.put_all(&wide)?;
    counts(engine, 302, "after update_many of 300 records")?;
    let keys: Vec<&[u8]> = wide.iter().map(|(key, _)| *key).collect();
    equal(&engine.remove_all(&keys)?, &300, "records removed at once")?;
    counts(engine, 2, "after removing at once")?;
    Ok(6)
}

pub(super) fn limits(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
    /// Beyond this a test would want more memory than it should.
    const REACH: u64 = 64 << 20;
    let promise = engine.promise();
    let refused = |outcome: crate::error::Result<()>, what: &str| {
        let kind = outcome.err().map(|error| error.kind());
        equal(&kind, &Some(Kind::TooLarge), what)
    };
    engine.put(b"k", b"before")?;
    let mut count = 0;
    if promise.key_len_max < REACH {
        let longest = vec![b'k'; promise.key_len_max as usize];
        engine.put(&longest, b"value")?;
        let kept = |what| holds_one(engine, &longest, Some(b"value"), what);
        kept("record with the longest key")?;
        let over = [&longest[..], b"k"].concat();
        refused(engine.put(&over, b"x"), "put with a key beyond the limit")?;
        let all: [(&[u8], &[u8]); 2] = [(b"k", b"x"), (&over, b"x")];
        refused(engine.put_all(&all), "put_all with a key beyond the limit")?;
        kept("record next to a refused key")?;
        ensure(engine.remove(&longest)?, || {
            "the longest key was not removed".into()
        })?;
        count += 2;
    }
    if promise.value_len_max < REACH {
        let longest: Vec<u8> = (0..promise.value_len_max)
            .map(|n| ((n * 31) >> 3) as u8)
            .collect();
        engine.put(b"long", &longest)?;
        let kept = |what: &str| {
            let found = engine.get(b"long")?;
            ensure(found.as_ref() == Some(&longest), || what.into())
        };
        kept("the longest value differs")?;
        let over = [&longest[..], b"k"].concat();
        refused(engine.put(b"k", &over), "put with a value beyond the limit")?;
        refused(engine.append(b"long", b"x", b""), "append beyond the limit")?;
        kept("a refused append changed it")?;
        let all: [(&[u8], &[u8]); 3] = [(b"k", b"x"), (b"new", &over), (b"last", b"x")];
        let put = engine.put_all(&all);
        refused(put, "put_all with a value beyond the limit")?;
        let what = "a record after a refused one in put_all";
        equal(&engine.contains(b"last")?, &false, what)?;
        holds_one(engine, b"k", Some(b"before"), "record of a refused update")?;
        let put = engine.put_many(&all);
        refused(put, "put_many with a value beyond the limit")?;
        let values = engine.get_many(&[b"k", b"new", b"last"])?;
        equal(
            &values,
            &vec![Some(b"x".to_vec()), None, None],
            "records of a put_many that failed",
        )?;
        count += 4;
    }
    Ok(count)
}

pub(super) fn clearings(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    for _ in 0..3 {
        let records = fill(engine, "clear", effort.records)?;
        counts(engine, records.len() as u64, "before a clear")?;
        engine.clear()?;
        let keys: Vec<_> = records.into_keys().collect();
        holds(engine, &Model::new(&engine.promise()), &keys)?;
    }
    engine.clear()?;
    fill(engine, "clear", 10)?;
    counts(engine, 10, "of a store used after a clear")?;
    Ok(4)
}

pub(super) fn file(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let Some(file) = engine.as_persistent() else {
        return Ok(0);
    };
    let records = fill(engine, "file", effort.records)?;
    for durability in [Durability::Process, Durability::Power] {
        file.sync(durability)?;
    }
    let mut reported = Vec::new();
    let report = file.check(&mut |done, total| reported.push((done, total)))?;
    ensure(report.is_sound(), || {
        format!("a sound file is reported as damaged: {:?}", report.damage)
    })?;
    equal(&report.records, &(records.len() as u64), "records verified")?;
    ensure(reported.iter().all(|(done, total)| done <= total), || {
        format!("progress {reported:?}")
    })?;
    Ok(1)
}
