//! The promises of the contract, as one suite that every engine runs.
//!
//! [`conformance`] makes engines and tries on them: one check for each paragraph of `engine.rs`
//! (update, read, scan and bookmarks, many at once, limits, clear, file), threads and their
//! histories, and random sequences of all verbs against [`Model`], with reopening in between.
//!
//! Promises: what a seed decides it decides again; each piece of work has a deadline, so that a hang
//! is a failure like others; a panic of the engine is one too. It fails on every bug of `broken`.
//!
//! It asks of an engine only what its `Promise` says. Engines that evict are not for this suite:
//! it expects to find what it put. Crashes, damage and lost power are other nets.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use super::history::{self, Plan};
use super::model::Model;
use super::op::{Generator, Op};
use super::random::Random;
use crate::engine::{Bookmark, Durability, Edit, Engine};
use crate::error::{Error, Kind};
use crate::verbs::Verbs;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Random sequences.
    pub sequences: u64,
    /// Operations in each.
    pub ops: u64,
    /// Concurrent histories, half of them of transactions.
    pub histories: u64,
    /// Records in the checks of scans and threads.
    pub records: u64,
    /// Decides every choice.
    pub seed: u64,
    /// How long one piece of work may take until it counts as a hang.
    pub deadline: Duration,
}

impl Effort {
    /// For every run of the tests: a second or two.
    pub const QUICK: Self = Self {
        sequences: 200,
        ops: 200,
        histories: 100,
        records: 600,
        seed: 1,
        deadline: Duration::from_secs(60),
    };
    /// For continuous integration: a million operations.
    pub const FULL: Self = Self {
        sequences: 5000,
        histories: 1000,
        records: 20_000,
        deadline: Duration::from_secs(600),
        ..Self::QUICK
    };
}

/// What was tried, each with how often; `Display` is a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The engine's word.
    pub engine: &'static str,
    /// Name of the check, and how many things it compared.
    pub counts: Vec<(&'static str, u64)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conformance of {}:", self.engine)?;
        self.counts
            .iter()
            .try_for_each(|(name, count)| write!(f, "\n  {count:>9} {name}"))
    }
}

/// A promise that was not kept: which check, and what was seen.
pub struct Failure(String);

impl Failure {
    fn within(self, check: &str) -> Self {
        Self(format!("{check}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be long; what differs is seen at the front.
        match self.0.char_indices().nth(6000) {
            None => f.write_str(&self.0),
            Some((end, _)) => write!(f, "{} ...", &self.0[..end]),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(format!("an error came unexpected: {error}"))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

type Outcomes<T> = Result<T, Failure>;
type Boxed = Box<dyn Engine>;
/// Keys and values, in the order in which they were shown.
type Shown = Vec<(Vec<u8>, Vec<u8>)>;
/// A check: what it compared, on an empty engine of its own.
type Check = fn(&dyn Engine, &Effort) -> Outcomes<u64>;

const CHECKS: &[(&str, Check)] = &[
    ("updates asked once and kept", updates),
    ("panics in updates survived", panics),
    ("reads", reads),
    ("records scanned", scans),
    ("records scanned between changes", scans_between_changes),
    ("records put and read many at once", many),
    ("updates of many at once", updates_of_many),
    ("limits", limits),
    ("clearings", clearings),
    ("updates by threads", threads),
    ("records scanned beside writers", scans_beside_writers),
    ("histories", histories),
    ("files checked", file),
];

/// Runs the suite on engines from `make`, which are new and empty each time.
///
/// `reopen` closes a store and opens it again; `None` for memory. The error names the check, and
/// the seed where one decides. Panics if the engine evicts.
pub fn conformance(
    make: &dyn Fn() -> Boxed,
    reopen: Option<&dyn Fn(Boxed) -> Boxed>,
    effort: &Effort,
) -> Outcomes<Report> {
    let promise = make().promise();
    assert!(!promise.evicts, "this suite expects to find what it put");
    let mut report = Report {
        engine: promise.engine,
        counts: Vec::new(),
    };
    for (name, check) in CHECKS {
        let effort = *effort;
        let (_, count) = guarded(make(), effort.deadline, move |engine| {
            check(engine, &effort)
        })
        .map_err(|failure| failure.within(name))?;
        report.counts.push((name, count));
    }
    let name = "operations in sequences";
    let count = sequences(make, reopen, effort).map_err(|failure| failure.within(name))?;
    report.counts.push((name, count));
    if let Some(reopen) = reopen {
        let name = "bookmarks kept over a reopening";
        let count = bookmarks_over_reopening(make(), reopen, effort)
            .map_err(|failure| failure.within(name))?;
        report.counts.push((name, count));
    }
    Ok(report)
}

/// Runs `work` in a thread of its own, and gives the engine back if it came to an end.
fn guarded<T: Send + 'static>(
    engine: Boxed,
    deadline: Duration,
    work: impl FnOnce(&dyn Engine) -> Outcomes<T> + Send + 'static,
) -> Outcomes<(Boxed, T)> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&*engine)));
        // Nobody listens any more after the deadline.
        drop(sender.send((engine, outcome)));
    });
    match receiver.recv_timeout(deadline) {
        Err(_) => Err(Failure(format!("it hangs: no end after {deadline:?}"))),
        Ok((engine, Ok(outcome))) => outcome.map(|outcome| (engine, outcome)),
        Ok((_, Err(panic))) => Err(Failure(format!("a panic: {}", message(&*panic)))),
    }
}

/// What a panic says.
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without words")
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcomes<()> {
    if holds {
        Ok(())
    } else {
        Err(Failure(otherwise()))
    }
}

fn equal<T: PartialEq + fmt::Debug>(found: &T, expected: &T, what: &str) -> Outcomes<()> {
    ensure(found == expected, || {
        format!("{what}: found {found:?}, expected {expected:?}")
    })
}

/// Random operations against the model. One engine serves some sequences, cleared between them.
fn sequences(
    make: &dyn Fn() -> Boxed,
    reopen: Option<&dyn Fn(Boxed) -> Boxed>,
    effort: &Effort,
) -> Outcomes<u64> {
    const SEQUENCES_PER_ENGINE: u64 = 20;
    let mut done = 0;
    let mut kept = None;
    for number in 0..effort.sequences {
        let mut engine = match kept.take() {
            Some(engine) if number % SEQUENCES_PER_ENGINE != 0 => engine,
            _ => make(),
        };
        let seed = effort.seed.wrapping_mul(0x9e3779b97f4a7c15) ^ number;
        let promise = engine.promise();
        let mut generator = Generator::new(Random::new(seed), &promise);
        let mut model = Model::new(&promise);
        engine.clear()?;
        while done < (number + 1) * effort.ops {
            let left = (number + 1) * effort.ops - done;
            let ops = left.min(1 + generator.random().below(80));
            let run = move |engine: &dyn Engine| {
                run_ops(engine, &mut generator, &mut model, ops)?;
                Ok((generator, model))
            };
            let state;
            (engine, state) = guarded(engine, effort.deadline, run)
                .map_err(|failure| failure.within(&format!("seed {seed:#x}")))?;
            (generator, model) = state;
            if let Some(reopen) = reopen {
                engine = reopen(engine);
            }
            let whole = move |engine: &dyn Engine| {
                holds(engine, &model, generator.keys())?;
                Ok((generator, model))
            };
            (engine, (generator, model)) = guarded(engine, effort.deadline, whole)
                .map_err(|failure| failure.within(&format!("seed {seed:#x}, all of it")))?;
            done += ops;
        }
        kept = Some(engine);
    }
    Ok(done)
}

fn run_ops(
    engine: &dyn Engine,
    generator: &mut Generator,
    model: &mut Model,
    ops: u64,
) -> Outcomes<()> {
    for _ in 0..ops {
        let op = generator.op();
        let outcome = op.run(engine)?;
        model.check(&op, &outcome)?;
        equal(
            &engine.count(),
            &(model.records.len() as u64),
            &format!("count after {op:?}"),
        )?;
    }
    Ok(())
}

/// Whether the engine holds what the model holds, by every way to look.
fn holds(engine: &dyn Engine, model: &Model, keys: &[Vec<u8>]) -> Outcomes<()> {
    let mut model = model.clone();
    for op in [Op::Scan, Op::GetMany(keys.to_vec())] {
        model.check(&op, &op.run(engine)?)?;
    }
    for key in keys {
        equal(
            &engine.get(key)?,
            &model.records.get(key).cloned(),
            &format!("record {key:?}"),
        )?;
    }
    let count = model.records.len() as u64;
    equal(&engine.count(), &count, "count")?;
    equal(&engine.stats().count, &count, "count in stats")
}

fn numbered(prefix: &str, number: u64) -> Vec<u8> {
    format!("{prefix}{number:06}").into_bytes()
}

/// Fills in records; values of many lengths.
fn fill(engine: &dyn Engine, prefix: &str, count: u64) -> Outcomes<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut records = BTreeMap::new();
    for number in 0..count {
        let key = numbered(prefix, number);
        let mut value = key.clone();
        value.resize(key.len() + (number % 70) as usize, b'.');
        engine.put(&key, &value)?;
        records.insert(key, value);
    }
    Ok(records)
}

fn updates(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
    let mut count = 0;
    let starts: [Option<&[u8]>; 3] = [None, Some(b""), Some(b"before")];
    let wishes: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"after"), Some(&[0; 3000])];
    for key in [&b""[..], b"k", &[0; 40], &[255; 300]] {
        if key.len() as u64 > engine.promise().key_len_max {
            continue;
        }
        for start in starts {
            let set = |engine: &dyn Engine| match start {
                None => engine.remove(key).map(drop),
                Some(value) => engine.put(key, value),
            };
            let shows = |shown: &[Option<Vec<u8>>]| {
                equal(
                    &shown,
                    &&[start.map(<[u8]>::to_vec)][..],
                    &format!("update of {key:?} showed"),
                )
            };
            for wish in wishes {
                set(engine)?;
                let mut shown = Vec::new();
                engine.update(key, &mut |present| {
                    shown.push(present.map(<[u8]>::to_vec));
                    wish.map_or(Edit::Remove, Edit::put)
                })?;
                shows(&shown)?;
                equal(
                    &engine.get(key)?.as_deref(),
                    &wish,
                    &format!("{key:?} after an update"),
                )?;
                count += 1;
            }
            set(engine)?;
            let mut shown = Vec::new();
            engine.update(key, &mut |present| {
                shown.push(present.map(<[u8]>::to_vec));
                Edit::Keep
            })?;
            shows(&shown)?;
            equal(
                &engine.get(key)?.as_deref(),
                &start,
                &format!("{key:?} after being kept"),
            )?;
            count += 1;
        }
    }
    Ok(count)
}

/// What the suite throws into an engine: not a real panic, so that no hook prints it.
#[derive(Debug)]
struct Thrown;

fn panics(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
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
        equal(&engine.get(key)?, &before, "record after a panic in update")?;
        thrown(catch_unwind(AssertUnwindSafe(|| {
            engine.update_many(&[key, b"other"], &mut |_| vec![throw()])
        })))?;
        equal(
            &engine.get(key)?,
            &before,
            "record after a panic in update_many",
        )?;
        // The lock is free again, for other threads too.
        std::thread::scope(|scope| {
            scope
                .spawn(|| engine.append(key, b"1", b""))
                .join()
                .unwrap_or_else(|p| resume_unwind(p))
        })?;
        let expected = [before.unwrap_or_default(), b"1".to_vec()].concat();
        equal(
            &engine.get(key)?,
            &Some(expected),
            "record updated after a panic",
        )?;
    }
    equal(&engine.count(), &3, "count after panics")?;
    Ok(4)
}

fn reads(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
    let records = fill(engine, "read", 100)?;
    for (key, value) in &records {
        let absent = [key, &b"-"[..]].concat();
        for (key, expected) in [(key, Some(value)), (&absent, None)] {
            let mut shown = Vec::new();
            engine.read(key, &mut |value| shown.push(value.map(<[u8]>::to_vec)))?;
            equal(
                &shown,
                &vec![expected.cloned()],
                &format!("read of {key:?} showed"),
            )?;
        }
    }
    // The visitor may call the engine, also for the record it is shown.
    let (key, value) = records.first_key_value().expect("there are records");
    let mut inner = Ok(None);
    engine.read(key, &mut |_| {
        inner = engine.put(key, b"new").and_then(|()| engine.get(key));
    })?;
    equal(
        &inner?,
        &Some(b"new".to_vec()),
        "a read and a put within a read",
    )?;
    let mut lent = None;
    engine.read(key, &mut |value| lent = value.map(<[u8]>::to_vec))?;
    equal(
        &lent,
        &Some(b"new".to_vec()),
        "a read after a put within a read",
    )?;
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

/// Scans from `from`, breaking after `most` records; which, and where to go on.
fn scan_some(
    engine: &dyn Engine,
    from: Option<&Bookmark>,
    most: usize,
) -> Outcomes<(Shown, Option<Bookmark>)> {
    let mut shown = Vec::new();
    let next = engine.scan(from, &mut |key, value| {
        shown.push((key.to_vec(), value.to_vec()));
        if shown.len() >= most {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    ensure(shown.len() <= most, || {
        "a scan went on after the visitor broke".into()
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
    let mut after = 0;
    engine.scan(Some(&engine.bookmark_at(key)), &mut |_, _| {
        after += 1;
        ControlFlow::Continue(())
    })?;
    Ok(after <= 1)
}

/// Scans to the end in pieces; `between` runs after each. Bookmarks travel as bytes.
fn scan_in_pieces(
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
fn once(shown: Shown) -> Outcomes<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut records = BTreeMap::new();
    for (key, value) in shown {
        if records.insert(key.clone(), value).is_some() {
            return Err(Failure(format!("a scan showed {key:?} twice")));
        }
    }
    Ok(records)
}

fn scans(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
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
            equal(
                &rest.first(),
                &order.get(index),
                "the first record from a bookmark at its key",
            )?;
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
        let mut shown = Vec::new();
        let outcome = engine.scan(Some(&bookmark), &mut |key, value| {
            shown.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        if let Err(error) = outcome {
            equal(
                &error.kind(),
                &Kind::Invalid,
                "the error for a bookmark that is none",
            )?;
            equal(
                &(number % 2),
                &1,
                "the error for a bookmark at an absent key",
            )?;
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
fn scans_between_changes(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
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
                format!("a scan showed {key:?} with {value:?}, which nobody put")
            })?;
        }
    }
    Ok(count)
}

fn bookmarks_over_reopening(
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
    equal(
        &once(shown)?,
        &records,
        "records shown by a scan over reopenings",
    )?;
    engine.clear()?;
    engine = reopen(engine);
    equal(&engine.count(), &0, "count after a clear and a reopening")?;
    equal(
        &scan_some(&*engine, None, usize::MAX)?.0,
        &Vec::new(),
        "records after a clear",
    )?;
    Ok(records.len() as u64)
}

fn many(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
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
        equal(
            &engine.count(),
            &(records.len() as u64),
            "count after put_many",
        )?;
    }
    Ok(count)
}

fn updates_of_many(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
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
        equal(
            &engine.get(key)?.as_deref(),
            &value,
            &format!("{key:?} after update_many"),
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
    equal(
        &engine.get(b"a")?,
        &None,
        "a record put and removed in one update_many",
    )?;
    edits(None, Some(b"y"))?;
    equal(
        &engine.get(b"a")?,
        &Some(b"y".to_vec()),
        "a record removed and put in one update_many",
    )?;
    let wide: Vec<Vec<u8>> = (0..300).map(|number| numbered("wide", number)).collect();
    let wide: Vec<(&[u8], &[u8])> = wide.iter().map(|key| (&key[..], &key[..])).collect();
    engine.put_all(&wide)?;
    equal(
        &engine.count(),
        &302,
        "count after update_many of 300 records",
    )?;
    let keys: Vec<&[u8]> = wide.iter().map(|(key, _)| *key).collect();
    equal(&engine.remove_all(&keys)?, &300, "records removed at once")?;
    equal(&engine.count(), &2, "count after removing at once")?;
    Ok(6)
}

fn limits(engine: &dyn Engine, _: &Effort) -> Outcomes<u64> {
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
        equal(
            &engine.get(&longest)?,
            &Some(b"value".to_vec()),
            "record with the longest key",
        )?;
        let over = [&longest[..], b"k"].concat();
        refused(engine.put(&over, b"x"), "put with a key beyond the limit")?;
        let all: [(&[u8], &[u8]); 2] = [(b"k", b"x"), (&over, b"x")];
        refused(engine.put_all(&all), "put_all with a key beyond the limit")?;
        equal(
            &engine.get(&longest)?,
            &Some(b"value".to_vec()),
            "record beside a refused key",
        )?;
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
        ensure(engine.get(b"long")?.as_ref() == Some(&longest), || {
            "the longest value differs".into()
        })?;
        let over = [&longest[..], b"k"].concat();
        refused(engine.put(b"k", &over), "put with a value beyond the limit")?;
        refused(engine.append(b"long", b"x", b""), "append beyond the limit")?;
        ensure(engine.get(b"long")?.as_ref() == Some(&longest), || {
            "a refused append changed it".into()
        })?;
        let all: [(&[u8], &[u8]); 3] = [(b"k", b"x"), (b"new", &over), (b"last", b"x")];
        refused(
            engine.put_all(&all),
            "put_all with a value beyond the limit",
        )?;
        equal(
            &engine.contains(b"last")?,
            &false,
            "a record after a refused one in put_all",
        )?;
        equal(
            &engine.get(b"k")?,
            &Some(b"before".to_vec()),
            "record of a refused update",
        )?;
        refused(
            engine.put_many(&all),
            "put_many with a value beyond the limit",
        )?;
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

fn clearings(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    for _ in 0..3 {
        let records = fill(engine, "clear", effort.records)?;
        equal(
            &engine.count(),
            &(records.len() as u64),
            "count before a clear",
        )?;
        engine.clear()?;
        holds(
            engine,
            &Model::new(&engine.promise()),
            &records.into_keys().collect::<Vec<_>>(),
        )?;
    }
    engine.clear()?;
    fill(engine, "clear", 10)?;
    equal(&engine.count(), &10, "count of a store used after a clear")?;
    Ok(4)
}

const THREADS: u64 = 4;

/// A value that shows from which number it was made, and every byte of which is checked.
fn stamped(number: u64) -> Vec<u8> {
    let len = 8 + (number % 113) as usize;
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn number_stamped(value: &[u8]) -> Outcomes<u64> {
    let bytes = value
        .first_chunk()
        .ok_or_else(|| Failure(format!("a torn value {value:?}")))?;
    let number = u64::from_le_bytes(*bytes);
    ensure(stamped(number) == value, || {
        format!("a torn value {value:?}")
    })?;
    Ok(number)
}

/// Runs `work` in threads that start together, with their numbers, and adds up what they return.
fn in_threads(work: impl Fn(u64) -> Outcomes<u64> + Sync) -> Outcomes<u64> {
    let start = Barrier::new(THREADS as usize);
    let run = |number| {
        start.wait();
        work(number)
    };
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || run(n))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Outcomes<u64>>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads
            .into_iter()
            .map(join)
            .try_fold(0, |sum, count| Ok(sum + count?))
    })
}

fn threads(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let rounds = 2 * effort.records;
    let mut done = 0;
    // No increment is lost.
    done += in_threads(|_| {
        for round in 0..rounds {
            engine.increment(format!("counter{}", round % 3).as_bytes(), 1, 0)?;
        }
        Ok(rounds)
    })?;
    let sum = (0..3).try_fold(0, |sum, n| {
        let counter = engine.counter(format!("counter{n}").as_bytes())?;
        crate::error::Result::Ok(sum + counter.unwrap_or(0))
    })?;
    equal(
        &sum,
        &((THREADS * rounds).cast_signed()),
        "sum of increments by threads",
    )?;
    // One record, one writer: all see whole values and never go back, the writer its own.
    let last = AtomicU64::new(0);
    engine.put(b"stamp", &stamped(0))?;
    let read = || {
        let value = engine.get(b"stamp")?;
        number_stamped(&value.ok_or_else(|| Failure("a record went".into()))?)
    };
    done += in_threads(|thread| {
        let mut newest = 0;
        for round in 1..=rounds {
            let least = if thread == 0 {
                engine.put(b"stamp", &stamped(round))?;
                last.store(round, Ordering::SeqCst);
                round
            } else {
                last.load(Ordering::SeqCst).max(newest)
            };
            newest = read()?;
            ensure(newest >= least, || {
                format!("read {newest} after {least} was acknowledged")
            })?;
        }
        Ok(rounds)
    })?;
    // One of those who insert wins.
    let wins = in_threads(|thread| {
        let insert = |n| engine.put_new(&numbered("race", n), &stamped(thread));
        (0..rounds).try_fold(0, |wins, n| Ok(wins + u64::from(insert(n)?)))
    })?;
    equal(&wins, &rounds, "inserts that won a race")?;
    let removed = in_threads(|_| {
        let remove = |n| engine.remove(&numbered("race", n));
        (0..rounds).try_fold(0, |wins, n| Ok(wins + u64::from(remove(n)?)))
    })?;
    equal(&removed, &rounds, "removals that won a race")?;
    // Money moves between accounts, and there is always as much of it.
    let accounts: [&[u8]; 3] = [b"x", b"y", b"z"];
    for account in accounts {
        engine.put(account, &stamped(1 << 32))?;
    }
    done += in_threads(|thread| {
        let mut random = Random::new(effort.seed ^ thread);
        for round in 0..rounds / 4 {
            let (from, to) = (random.index(3), random.index(3));
            let mut sum = Ok(0);
            engine.update_many(&accounts, &mut |present| {
                let amounts = present
                    .iter()
                    .map(|value| number_stamped(value.unwrap_or_default()));
                let mut amounts = match amounts.collect::<Outcomes<Vec<u64>>>() {
                    Ok(amounts) => amounts,
                    Err(failure) => {
                        sum = Err(failure);
                        return vec![Edit::Keep, Edit::Keep, Edit::Keep];
                    }
                };
                sum = Ok(amounts.iter().sum());
                amounts[from] -= 1 + round;
                amounts[to] += 1 + round;
                // The third is left alone: whoever wrote it too would hide a lost transfer.
                let edit = |(index, amount): (usize, &u64)| {
                    if [from, to].contains(&index) {
                        Edit::Put(stamped(*amount).into())
                    } else {
                        Edit::Keep
                    }
                };
                amounts.iter().enumerate().map(edit).collect()
            })?;
            equal(&sum?, &(3 << 32), "sum of accounts")?;
        }
        Ok(rounds / 4)
    })?;
    equal(&engine.count(), &7, "count after threads")?;
    Ok(done)
}

fn scans_beside_writers(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let stable = fill(engine, "stable", effort.records)?;
    let stop = AtomicBool::new(false);
    in_threads(|thread| {
        if thread == 0 {
            let mut random = Random::new(effort.seed);
            let mut scan = || {
                let mut count = 0;
                for piece_max in [7, 1000, u64::MAX >> 1] {
                    let shown = scan_in_pieces(engine, None, &mut random, piece_max, || Ok(()))?;
                    count += shown.len() as u64;
                    let shown = once(shown)?;
                    let missing = stable
                        .iter()
                        .find(|(key, value)| shown.get(*key) != Some(value));
                    ensure(missing.is_none(), || {
                        format!("was there all the time: {missing:?}")
                    })?;
                    for (key, value) in shown.iter().filter(|(key, _)| !stable.contains_key(*key)) {
                        number_stamped(value).map_err(|f| f.within(&format!("{key:?}")))?;
                    }
                }
                Ok(count)
            };
            let outcome = catch_unwind(AssertUnwindSafe(&mut scan));
            // The writers end in any case.
            stop.store(true, Ordering::SeqCst);
            return outcome.unwrap_or_else(|panic| resume_unwind(panic));
        }
        let prefix = format!("writer{thread}-");
        let mut round = 0;
        while !stop.load(Ordering::SeqCst) {
            let key = numbered(&prefix, round % effort.records);
            if (round / effort.records).is_multiple_of(2) {
                engine.put(&key, &stamped(round))?;
            } else {
                engine.remove(&key)?;
            }
            round += 1;
        }
        Ok(0)
    })
}

fn histories(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let promise = engine.promise();
    for number in 0..effort.histories.div_ceil(2) {
        let plan = Plan {
            keys: 1 + number % 3,
            ..Plan::new(effort.seed.wrapping_add(number))
        };
        for events in history::record(engine, plan)? {
            history::linearizable(&events, &promise)
                .map_err(|text| Failure(format!("{plan:?}: {text}")))?;
        }
        let plan = Plan {
            keys: 3,
            ops: 40,
            ..plan
        };
        history::serializable(&history::record_transactions(engine, plan)?)
            .map_err(|text| Failure(format!("{plan:?}: {text}")))?;
    }
    Ok(2 * effort.histories.div_ceil(2))
}

fn file(engine: &dyn Engine, effort: &Effort) -> Outcomes<u64> {
    let Some(file) = engine.as_persistent() else {
        return Ok(0);
    };
    let records = fill(engine, "file", effort.records)?;
    for durability in [Durability::Process, Durability::Power] {
        file.sync(durability)?;
    }
    let mut told = Vec::new();
    let report = file.check(&mut |done, total| told.push((done, total)))?;
    ensure(report.is_sound(), || {
        format!("a sound file is said to be damaged: {:?}", report.damage)
    })?;
    equal(&report.records, &(records.len() as u64), "records verified")?;
    ensure(told.iter().all(|(done, total)| done <= total), || {
        format!("progress {told:?}")
    })?;
    Ok(1)
}

/// A check of the suite alone, on one engine; for tests of engines that look for one thing.
///
/// Panics if no check has the name `report` gives it.
pub fn check(name: &str, engine: Boxed, effort: &Effort) -> Outcomes<u64> {
    let (_, check) = CHECKS
        .iter()
        .find(|(other, _)| *other == name)
        .expect("a check of this name");
    let effort = *effort;
    guarded(engine, effort.deadline, move |engine| {
        check(engine, &effort)
    })
    .map(|(_, count)| count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::broken::{Broken, Bug};
    use crate::testkit::{ModelDb, Outcome};

    #[test]
    fn the_obvious_engine_keeps_every_promise() {
        let report = conformance(
            &|| Box::new(ModelDb::with_limits(500, 150_000)),
            None,
            &Effort::QUICK,
        )
        .unwrap();
        assert_eq!(report.counts.len(), 1 + CHECKS.len());
        assert!(
            report
                .counts
                .contains(&("operations in sequences", 200 * 200))
        );
        let counted = |(name, count): &(&str, u64)| *count > 0 || *name == "files checked";
        assert!(report.counts.iter().all(counted), "{report}");
    }

    #[test]
    fn every_bug_is_caught_by_the_suite() {
        let mut uncaught = Vec::new();
        for bug in Bug::ALL {
            let deadline = match bug {
                Bug::PanicLocks => Duration::from_secs(2),
                _ => Effort::QUICK.deadline,
            };
            let effort = Effort {
                deadline,
                ..Effort::QUICK
            };
            if conformance(&|| Box::new(Broken::new(*bug)), None, &effort).is_ok() {
                uncaught.push(bug);
            }
        }
        assert!(uncaught.is_empty(), "not caught: {uncaught:?}");
    }

    /// The sequences catch most bugs; each check must catch one by itself.
    #[test]
    fn every_check_catches_a_bug_by_itself() {
        let effort = Effort {
            deadline: Duration::from_secs(20),
            ..Effort::QUICK
        };
        let catches = |name: &str, bug: Bug| {
            assert!(
                check(name, Box::new(Broken::new(bug)), &effort).is_err(),
                "{name}: {bug:?}"
            );
        };
        for bug in [
            Bug::AsksTwice,
            Bug::KeepTouches,
            Bug::EmptyIsAbsent,
            Bug::ZerosCut,
        ] {
            catches("updates asked once and kept", bug);
        }
        for bug in [
            Bug::DroppedWrite,
            Bug::KeysCut,
            Bug::ZerosCut,
            Bug::CountDrifts,
            Bug::StaleRead,
        ] {
            let caught = sequences(&|| Box::new(Broken::new(bug)), None, &effort);
            assert!(caught.is_err(), "sequences: {bug:?}");
        }
        catches("panics in updates survived", Bug::PanicRemoves);
        catches("reads", Bug::VisitsTwice);
        catches("reads", Bug::WrongAbsent);
        for bug in [
            Bug::ScanSkips,
            Bug::ScanRepeats,
            Bug::ScanGoesOn,
            Bug::BookmarkBehind,
            Bug::BookmarkForgotten,
        ] {
            catches("records scanned", bug);
        }
        catches("records scanned between changes", Bug::ScanSkips);
        catches("records scanned between changes", Bug::ScanRepeats);
        for bug in [
            Bug::ReadManyShifted,
            Bug::PutManyBackward,
            Bug::PutManyShort,
        ] {
            catches("records put and read many at once", bug);
        }
        catches("updates of many at once", Bug::HalfUpdateMany);
        catches("updates of many at once", Bug::FirstEditCounts);
        catches("limits", Bug::OverLimitCut);
        catches("limits", Bug::OverLimitHalf);
        catches("clearings", Bug::ClearLeaves);
        for bug in [
            Bug::RacyUpdate,
            Bug::RacyUpdateMany,
            Bug::StaleRead,
            Bug::TornRead,
        ] {
            catches("updates by threads", bug);
        }
        catches("records scanned beside writers", Bug::ScanSkips);
        for bug in [Bug::RacyUpdate, Bug::RacyUpdateMany, Bug::StaleRead] {
            catches("histories", bug);
        }
    }

    /// A store in memory, "reopened" by copying it; the copier may have a bug.
    fn copied(engine: &dyn Engine, lose: usize) -> Boxed {
        let copy = ModelDb::with_limits(500, 150_000);
        let Outcome::Records(records) = Op::Scan.run(engine).unwrap() else {
            unreachable!()
        };
        for (key, value) in &records[..records.len().saturating_sub(lose)] {
            copy.put(key, value).unwrap();
        }
        Box::new(copy)
    }

    #[test]
    fn what_is_lost_by_a_reopening_is_caught() {
        let make: &dyn Fn() -> Boxed = &|| Box::new(ModelDb::with_limits(500, 150_000));
        let effort = Effort {
            sequences: 20,
            ..Effort::QUICK
        };
        let report = conformance(make, Some(&|engine| copied(&*engine, 0)), &effort).unwrap();
        assert_eq!(report.counts.len(), 2 + CHECKS.len());
        let lossy = conformance(make, Some(&|engine| copied(&*engine, 1)), &effort);
        assert!(lossy.unwrap_err().to_string().contains("all of it"));
        let bookmarks = bookmarks_over_reopening(make(), &|engine| copied(&*engine, 1), &effort);
        assert!(bookmarks.is_err());
    }

    #[test]
    fn a_hang_and_a_panic_are_failures() {
        let deadline = Duration::from_millis(50);
        let hang = guarded(Box::new(ModelDb::new()), deadline, |_| {
            loop {
                std::thread::park();
            }
        });
        let hang: Outcomes<(Boxed, ())> = hang;
        assert!(hang.err().unwrap().to_string().contains("it hangs"));
        let panic: Outcomes<(Boxed, ())> =
            guarded(Box::new(ModelDb::new()), Duration::from_secs(60), |_| {
                resume_unwind(Box::new("why"))
            });
        assert_eq!(panic.err().unwrap().to_string(), "a panic: why");
    }
}
