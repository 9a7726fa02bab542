//! `record`: phases of equal calls from several threads, timed.
//!
//! A phase opens the store, prepares every thread's keys, starts the clock, lets the threads run,
//! hands writes to the system, stops the clock, looks at memory, closes the store and looks at the
//! file. So opening, closing and the shuffling of keys are not timed; drawing and formatting keys
//! and the soft sync of a writing phase are, as in Tkrzw's tool. A store without a file stays open.
//!
//! Values read are compared with what was written: a difference ends the run with `Corrupted`.

use std::time::{Duration, Instant};

use azekura::error::{Error, Kind, Result};
use indicatif::ProgressBar;

use crate::engines::none::Nothing;
use crate::forget::{give_up_pages, write_out};
use crate::generate::{Choice, Key, Keys, Source, Values, fold, number_of};
use crate::limit::MemoryGroup;
use crate::measure::{Device, Latency, Memory};
use crate::phase::{Details, Phase, Record};
use crate::plan::{Op, Plan};
use crate::report;
use crate::target::{Setup, Target, no_order};
use crate::threads::together;
use crate::words::{fits, word};

/// Operations between two reports of progress.
const REPORT_EVERY: u64 = 1 << 14;
/// Keys drawn and formatted before they are used: few enough to stay in the nearest cache, many enough that
/// drawing them does not stand between two operations. It is timed, but the processor sees engine calls
/// one after the other, as in a program that has its keys.
const CHUNK: usize = 512;
/// Jumps from one position, as in Tkrzw's tool.
const JUMPS_PER_POSITION: u64 = 100;
/// Operations that measure the cost of the harness well enough.
const HARNESS_OPERATIONS: u64 = 1 << 20;

/// Runs the phases of `plan` on `T`; `emit` is shown each result as it is there.
///
/// The store is left where it is. Errors: `Invalid` (flags out of range; the file exists before a
/// first phase `set`, or does not before another), `Corrupted` (a value read is not the one
/// written), and what the engine reports.
pub fn record<T: Target>(plan: &Plan, emit: &mut dyn FnMut(Phase) -> Result<()>) -> Result<()> {
    plan.check()?;
    if let (true, Some(path)) = (T::PERSISTENT, &plan.path) {
        fits(path, "set", plan.ops.first() == Some(&Op::Set))?;
    }
    if !T::ORDERED && plan.ops.contains(&Op::Scan) {
        return no_order();
    }
    let group = plan.memory_group.as_deref().map(MemoryGroup::enter);
    let group = group.transpose()?;
    let source = source(plan);
    let values = Values::new(plan.value_size);
    let before = Memory::now();
    let mut open: Option<T> = None;
    let mut is_limited = false;
    let device = || plan.path.as_deref().map(Device::now).unwrap_or_default();
    for (index, &op) in plan.ops.iter().enumerate() {
        let creates = index == 0 && op == Op::Set;
        if let (false, false, Some(group), Some(memory)) =
            (creates, is_limited, &group, plan.memory)
        {
            if let (true, Some(path)) = (T::PERSISTENT, &plan.path) {
                give_up_pages(path)?;
            }
            group.limit(memory)?;
            is_limited = true;
        }
        if let (true, true, false, Some(path)) = (plan.cold, T::PERSISTENT, creates, &plan.path) {
            give_up_pages(path)?;
        }
        let idle = device();
        let target = match open.take() {
            Some(target) => target,
            None => T::open(&Setup {
                path: plan.path.clone(),
                create: creates,
                records: plan.operations(),
                durability: plan.durability,
                cache: plan.cache,
            })?,
        };
        let count = plan.count_of(index);
        let warm = plan.warm && !op.writes();
        if warm {
            run(&target, plan, op, count, &source, &values)?;
        }
        let mut phase = run(&target, plan, op, count, &source, &values)?;
        phase.cost.memory(before, Memory::now());
        phase.live = target.records();
        if T::PERSISTENT {
            target.close()?;
        } else {
            open = Some(target);
        }
        if let (true, Some(path)) = (T::PERSISTENT, &plan.path) {
            if op.writes() {
                // Not timed: what the phase left dirty is the device's work, too, and not the next phase's.
                write_out(path)?;
            }
            phase.cost.files(path)?;
            phase.cost.device = device().since(idle);
        }
        let mut details = Record {
            order: plan.order,
            batch: (plan.batch > 1 && !op.visits()).then_some(plan.batch as u64),
            misses: (plan.misses > 0 && op.reads()).then_some(plan.misses),
            cache: plan.cache,
            memory_limit: plan.memory.filter(|_| is_limited),
            warm: warm.then_some(true),
            cold: (plan.cold && !creates).then_some(true),
            ..Record::default()
        };
        if let Some(us) = &phase.latency_us {
            // A batch is as many calls of an engine without batches.
            let median = Duration::from_secs_f64(us.p50 / 1e6 / plan.batch as f64);
            details.latency_none_us = nothing(plan, op, count, Duration::ZERO)?.latency_us;
            details.latency_wait_us = nothing(plan, op, count, median)?.latency_us;
        }
        if !plan.json && op != Op::Scan {
            details.harness_ns = Some(harness_ns(plan, op)?);
        }
        phase.details = Details::Record(details);
        emit(phase)?;
    }
    open.map_or(Ok(()), Target::close)
}

/// Nanoseconds of one operation of the phase `op` when the engine does nothing.
fn harness_ns(plan: &Plan, op: Op) -> Result<f64> {
    let plan = Plan {
        latency: false,
        ..plan.clone()
    };
    let count = plan.count.min(HARNESS_OPERATIONS / plan.threads).max(1);
    let phase = nothing(&plan, op, count, Duration::ZERO)?;
    Ok(phase.cpu_seconds * 1e9 / phase.count as f64)
}

/// The phase `op`, so many calls of each thread, when the engine only waits.
fn nothing(plan: &Plan, op: Op, count: u64, wait: Duration) -> Result<Phase> {
    let values = Values::new(plan.value_size);
    run(&Nothing { wait }, plan, op, count, &source(plan), &values)
}

fn source(plan: &Plan) -> Source {
    Source::new(plan.order, plan.operations())
}

/// What one thread found.
#[derive(Default)]
struct Tally {
    hits: u64,
    digest: u64,
    value_bytes: u64,
    wrong: Option<Vec<u8>>,
    latency: Latency,
}

impl Tally {
    #[inline]
    fn hit(&mut self, key: &[u8]) {
        self.hits += 1;
        self.digest = self.digest.wrapping_add(fold(key));
    }

    #[inline]
    fn read(&mut self, key: &[u8], found: &[u8], expected: &[u8]) {
        self.hits += 1;
        self.value_bytes += found.len() as u64;
        self.digest = self.digest.wrapping_add(fold(key) ^ fold(found));
        if found != expected {
            self.wrong.get_or_insert_with(|| key.to_vec());
        }
    }

    fn merge(&mut self, other: Self) {
        self.hits += other.hits;
        self.digest = self.digest.wrapping_add(other.digest);
        self.value_bytes += other.value_bytes;
        self.wrong = self.wrong.take().or(other.wrong);
        self.latency.merge(&other.latency);
    }
}

fn run<T: Target>(
    target: &T,
    plan: &Plan,
    op: Op,
    count: u64,
    source: &Source,
    values: &Values,
) -> Result<Phase> {
    let operations = count * plan.threads;
    let bar = report::progress(&word(&op), operations, plan.json);
    let prepare = |thread| {
        let mut keys = source.keys(plan.count, plan.threads, thread, plan.seed);
        if op == Op::GetShuffled {
            keys = keys.shuffled(plan.seed.wrapping_add(thread) ^ 0x5eed);
        }
        Ok(Worker {
            target,
            keys: keys.first(count),
            values,
            misses: Misses::new(if op.reads() { plan.misses } else { 0 }, thread),
            bar: &bar,
            tally: Tally::default(),
        })
    };
    let work = |worker: Worker<'_, T>| match (plan.latency, plan.batch) {
        (false, 1) => worker.singles::<false>(op),
        (true, 1) => worker.singles::<true>(op),
        (false, batch) => worker.batches::<false>(op, batch),
        (true, batch) => worker.batches::<true>(op, batch),
    };
    let finish = || {
        if op.writes() {
            target.sync(plan.durability)?;
        }
        Ok(())
    };
    let ran = together(plan.threads, prepare, work, finish, || ())?;
    let mut tally = Tally::default();
    for found in ran.results {
        tally.merge(found);
    }
    bar.finish_and_clear();
    if let Some(key) = tally.wrong {
        return Err(Error::new(Kind::Corrupted, "a value read is not the one written").key(&key));
    }
    // A scan is as many operations as it found records.
    let operations = if op == Op::Scan {
        tally.hits
    } else {
        operations
    };
    let written = if op.sets() {
        operations * plan.value_size as u64
    } else {
        0
    };
    let bytes = operations * 8 + written + tally.value_bytes;
    Ok(Phase {
        engine: T::NAME.to_owned(),
        op: word(&op),
        threads: plan.threads,
        count: operations,
        key_size: Some(8),
        value_size: Some(plan.value_size as u64),
        seconds: ran.seconds,
        ops_per_second: operations as f64 / ran.seconds,
        bytes_per_second: Some(bytes as f64 / ran.seconds),
        cpu_seconds: ran.cpu,
        latency_us: tally.latency.percentiles(),
        hits: (!op.sets()).then_some(tally.hits),
        durability: T::PERSISTENT.then(|| T::class(plan.durability)),
        digest: (!op.writes()).then(|| format!("{:016x}", tally.digest)),
        ..Phase::default()
    })
}

/// Chooses which gets look for a key that is not there.
struct Misses {
    percent: u64,
    choice: Choice,
}

impl Misses {
    fn new(percent: u64, thread: u64) -> Self {
        Self {
            percent,
            choice: Choice::new(thread ^ 0x0dd5),
        }
    }

    #[inline]
    fn write(&mut self, keys: &mut [Key], numbers: &[u64]) {
        for (key, &number) in keys.iter_mut().zip(numbers) {
            key.set(number);
        }
        if self.percent > 0 {
            for key in &mut keys[..numbers.len()] {
                if self.choice.below(100) < self.percent {
                    key.spoil();
                }
            }
        }
    }
}

/// One thread of a phase.
struct Worker<'a, T> {
    target: &'a T,
    keys: Keys,
    values: &'a Values,
    misses: Misses,
    bar: &'a ProgressBar,
    tally: Tally,
}

impl<T: Target> Worker<'_, T> {
    fn singles<const TIMED: bool>(mut self, op: Op) -> Result<Tally> {
        let (target, values) = (self.target, self.values);
        match op {
            Op::Set | Op::Update => {
                self.each::<TIMED>(|_, number, key| {
                    target.set(key, values.of(number)).map(|()| false)
                })?;
            }
            Op::Get | Op::GetShuffled => self.each::<TIMED>(|_, _, key| target.has(key))?,
            Op::GetValue => {
                let mut value = Vec::new();
                self.each::<TIMED>(|tally, number, key| {
                    if target.get(key, &mut value)? {
                        tally.read(key, &value, values.of(number));
                    }
                    Ok(false)
                })?;
            }
            Op::Iterate => self.iterate::<TIMED>()?,
            Op::Scan => self.scan()?,
            Op::Remove => self.each::<TIMED>(|_, _, key| target.remove(key))?,
        }
        Ok(self.tally)
    }

    fn iterate<const TIMED: bool>(&mut self) -> Result<()> {
        let (target, values) = (self.target, self.values);
        let (mut position, mut jumps) = (None, 0);
        self.each::<TIMED>(|tally, number, key| {
            if jumps == JUMPS_PER_POSITION {
                // Given up before the next is made: a thread may have but one in some engines.
                (position, jumps) = (None, 0);
            }
            jumps += 1;
            let position = match &mut position {
                Some(position) => position,
                none => none.insert(target.position()?),
            };
            target.jump(position, key, &mut |at, value| {
                if at == key {
                    tally.read(at, value, values.of(number));
                } else {
                    tally.wrong.get_or_insert_with(|| key.to_vec());
                }
            })?;
            Ok(false)
        })
    }

    /// Reads all records; one that is not after the one before it, or has another's value, is wrong.
    fn scan(&mut self) -> Result<()> {
        let (target, values, tally) = (self.target, self.values, &mut self.tally);
        let mut before = 0;
        target.scan(&mut |key, value| match number_of(key) {
            Some((number, rank)) if rank > before => {
                tally.read(key, value, values.of(number));
                before = rank;
            }
            _ => _ = tally.wrong.get_or_insert_with(|| key.to_vec()),
        })?;
        self.bar.inc(self.tally.hits);
        Ok(())
    }

    /// Calls `step` with each key; the loop that is measured. The hits that `step` returns are counted afterwards.
    #[inline]
    fn each<const TIMED: bool>(
        &mut self,
        mut step: impl FnMut(&mut Tally, u64, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let mut keys = vec![Key::EMPTY; CHUNK];
        let mut numbers = Vec::with_capacity(CHUNK);
        let mut hits = vec![false; CHUNK];
        let mut unreported = 0;
        loop {
            self.keys.draw(CHUNK, &mut numbers);
            self.misses.write(&mut keys, &numbers);
            for ((key, &number), hit) in keys.iter().zip(&numbers).zip(&mut hits) {
                let start = TIMED.then(Instant::now);
                *hit = step(&mut self.tally, number, key.bytes())?;
                if let Some(start) = start {
                    self.tally.latency.record(start.elapsed());
                }
            }
            for (key, _) in keys[..numbers.len()]
                .iter()
                .zip(&hits)
                .filter(|(_, hit)| **hit)
            {
                self.tally.hit(key.bytes());
            }
            unreported += numbers.len() as u64;
            if unreported >= REPORT_EVERY || numbers.len() < CHUNK {
                self.bar.inc(unreported);
                unreported = 0;
            }
            if numbers.len() < CHUNK {
                return Ok(());
            }
        }
    }

    fn batches<const TIMED: bool>(mut self, op: Op, batch: usize) -> Result<Tally> {
        if op.visits() {
            return self.singles::<TIMED>(op);
        }
        let (target, values) = (self.target, self.values);
        let mut keys = vec![Key::EMPTY; batch];
        let mut numbers = Vec::with_capacity(batch);
        let mut unreported = 0;
        loop {
            self.keys.draw(batch, &mut numbers);
            if numbers.is_empty() {
                self.bar.inc(unreported);
                return Ok(self.tally);
            }
            self.misses.write(&mut keys, &numbers);
            let texts: Vec<&[u8]> = keys[..numbers.len()].iter().map(Key::bytes).collect();
            let tally = &mut self.tally;
            let start = TIMED.then(Instant::now);
            match op {
                Op::Set | Op::Update => {
                    let numbered = texts.iter().zip(&numbers);
                    let records: Vec<_> = numbered.map(|(&key, &n)| (key, values.of(n))).collect();
                    target.set_many(&records)?;
                }
                Op::GetValue => target.get_many(&texts, &mut |index, value| {
                    tally.read(texts[index], value, values.of(numbers[index]));
                })?,
                Op::Remove => tally.hits += target.remove_many(&texts)?,
                Op::Get | Op::GetShuffled | Op::Iterate | Op::Scan => {
                    target.has_many(&texts, &mut |index| tally.hit(texts[index]))?;
                }
            }
            if let Some(start) = start {
                self.tally.latency.record(start.elapsed());
            }
            unreported += numbers.len() as u64;
            if unreported >= REPORT_EVERY {
                self.bar.inc(unreported);
                unreported = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use azekura::engine::Durability;

    use super::*;
    use crate::engines::Engine;
    use crate::engines::memory::{StdHash, StdTree};
    use crate::phase::collect;
    use crate::words::read_flags;

    fn plan(flags: &str) -> Plan {
        read_flags(flags).unwrap()
    }

    fn phases<T: Target>(plan: &Plan) -> Vec<Phase> {
        collect(|emit| record::<T>(plan, emit)).unwrap()
    }

    const ALL: &str = "--json --ops set,get,get-shuffled,get-value,iterate,remove";

    #[test]
    fn a_scan_reads_every_record_once_and_is_as_many_operations() {
        let flags = "--json --count 500 --order random --batch 7 --ops set,get-value,scan";
        let found = phases::<StdTree>(&plan(flags));
        assert_eq!(found[2].count, found[0].live.unwrap());
        assert_eq!(found[2].hits, found[0].live);
        // Every thread reads all of them, so that twice as much is read, and no record more.
        let twice = phases::<StdTree>(&plan(
            "--json --count 250 --threads 2 --order shuffled --ops set,scan",
        ));
        assert_eq!(twice[1].hits, Some(1000));
        let once = phases::<StdTree>(&plan(
            "--json --count 500 --order shuffled --ops set,scan,get-value",
        ));
        assert_eq!(once[1].digest, once[2].digest, "the same records");
        let refused = record::<StdHash>(&plan("--json --ops set,scan"), &mut |_| Ok(()));
        assert_eq!(refused.unwrap_err().kind(), Kind::Invalid);
    }

    /// Answers like the tree of the standard library, but scans badly.
    struct Scans<const HOW: u8>(StdTree);

    impl<const HOW: u8> Target for Scans<HOW> {
        const NAME: &'static str = "scans";
        const PERSISTENT: bool = false;
        const ORDERED: bool = true;
        type Position<'t> = ();
        fn open(setup: &Setup) -> Result<Self> {
            StdTree::open(setup).map(Self)
        }
        fn close(self) -> Result<()> {
            self.0.close()
        }
        fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
            self.0.set(key, value)
        }
        fn has(&self, key: &[u8]) -> Result<bool> {
            self.0.has(key)
        }
        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            self.0.get(key, value)
        }
        fn remove(&self, key: &[u8]) -> Result<bool> {
            self.0.remove(key)
        }
        fn position(&self) -> Result<()> {
            self.0.position()
        }
        fn jump(
            &self,
            (): &mut (),
            key: &[u8],
            visit: &mut impl FnMut(&[u8], &[u8]),
        ) -> Result<()> {
            self.0.jump(&mut (), key, visit)
        }
        fn scan(&self, visit: &mut impl FnMut(&[u8], &[u8])) -> Result<()> {
            self.0.scan(&mut |key, value| match HOW {
                0 => visit(key, value),
                1 => {
                    visit(key, value);
                    visit(key, value);
                }
                2 => visit(b"text", value),
                _ => visit(key, b"another."),
            })
        }
        fn sync(&self, durability: Durability) -> Result<()> {
            self.0.sync(durability)
        }
    }

    #[test]
    fn a_scan_out_of_order_or_with_another_value_is_seen() {
        let plan = plan("--json --count 10 --ops set,scan");
        record::<Scans<0>>(&plan, &mut |_| Ok(())).unwrap();
        let wrong = [
            record::<Scans<1>>(&plan, &mut |_| Ok(())),
            record::<Scans<2>>(&plan, &mut |_| Ok(())),
            record::<Scans<3>>(&plan, &mut |_| Ok(())),
        ];
        for wrong in wrong {
            assert_eq!(wrong.unwrap_err().kind(), Kind::Corrupted);
        }
    }

    #[test]
    fn later_phases_are_shorter_and_updates_replace_what_is_there() {
        for order in ["sequential", "random", "shuffled", "zipfian"] {
            let found = phases::<StdHash>(&plan(&format!(
                "--json --count 400 --later 30 --threads 2 --order {order} --warm --ops set,update,get,get-shuffled"
            )));
            let counts: Vec<u64> = found.iter().map(|phase| phase.count).collect();
            assert_eq!(counts, [800, 60, 60, 60], "{order}");
            assert_eq!(found[1].live, found[0].live, "{order}");
            assert_eq!(found[2].hits, Some(60), "{order}");
            let warm = |phase: &Phase| match &phase.details {
                Details::Record(record) => record.warm,
                _ => None,
            };
            assert_eq!([1, 2].map(|index| warm(&found[index])), [None, Some(true)]);
        }
    }

    #[test]
    fn cold_phases_give_what_others_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut found = Vec::new();
        for (at, cold) in ["", "--cold"].into_iter().enumerate() {
            let plan = Plan {
                path: Some(folder.path().join(format!("{at}.azt"))),
                ..plan(&format!(
                    "--json {cold} --count 3000 --order shuffled --batch 32 --cache 1MiB --ops set,get-value,scan"
                ))
            };
            let mut emit = |phase: Phase| {
                let Details::Record(record) = phase.details else {
                    panic!("a record has details of records");
                };
                let expected = (at == 1 && phase.op != "set").then_some(true);
                assert_eq!(record.cold, expected, "{}", phase.op);
                found.push((phase.hits, phase.digest));
                Ok(())
            };
            Engine::Tree.record(&plan, &mut emit).unwrap();
        }
        assert_eq!(found[..3], found[3..]);
    }

    #[test]
    fn memory_is_limited_from_the_second_phase_on() {
        let folder = tempfile::tempdir().unwrap();
        let limit = folder.path().join("memory.max");
        std::fs::write(&limit, "0").unwrap();
        let plan = Plan {
            path: Some(folder.path().join("x.azt")),
            memory: Some(12_345),
            memory_group: Some(folder.path().to_path_buf()),
            ..plan("--json --count 10 --ops set,get,update")
        };
        let mut found = Vec::new();
        let mut emit = |phase: Phase| {
            let Details::Record(record) = phase.details else {
                panic!("a record has details of records");
            };
            found.push((
                record.memory_limit,
                std::fs::read_to_string(&limit).unwrap(),
            ));
            Ok(())
        };
        Engine::Tree.record(&plan, &mut emit).unwrap();
        let limited = (Some(12_345), "12345".to_owned());
        assert_eq!(found, [(None, "max".into()), limited.clone(), limited]);
    }

    #[test]
    fn every_phase_finds_what_the_sets_wrote() {
        for order in ["sequential", "random", "shuffled", "zipfian"] {
            let found = phases::<StdHash>(&plan(&format!(
                "{ALL} --count 500 --threads 3 --order {order}"
            )));
            assert_eq!(found.len(), 6);
            for phase in &found[1..5] {
                assert_eq!(phase.hits, Some(1500), "{order} {:?}", phase.op);
            }
            assert_eq!(
                found[1].digest, found[2].digest,
                "the same keys in another order"
            );
            assert_eq!(
                found[3].digest, found[4].digest,
                "the same records, read in two ways"
            );
            let removed = found[5].hits.unwrap();
            match order {
                "sequential" | "shuffled" => assert_eq!(removed, 1500),
                _ => assert!(removed < 1500 && removed > 0),
            }
        }
    }

    #[test]
    fn batches_find_the_same_as_single_calls() {
        let flags = format!("{ALL} --count 501 --threads 2 --order random");
        let single = phases::<StdHash>(&plan(&flags));
        let batched = phases::<StdHash>(&plan(&format!("{flags} --batch 32 --latency")));
        for (one, many) in single.iter().zip(&batched) {
            assert_eq!(
                (one.hits, &one.digest),
                (many.hits, &many.digest),
                "{:?}",
                one.op
            );
            assert!(many.latency_us.is_some());
        }
        assert!(matches!(&batched[0].details, Details::Record(record) if record.batch == Some(32)));
    }

    #[test]
    fn half_of_the_gets_miss_when_asked() {
        let found = phases::<StdHash>(&plan(
            "--json --count 10000 --misses 50 --ops set,get,remove",
        ));
        let hits = found[1].hits.unwrap();
        assert!((4800..5200).contains(&hits), "{hits}");
        assert_eq!(found[2].hits, Some(10_000), "removals do not miss");
    }

    #[test]
    fn a_value_that_is_not_the_one_expected_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.azh");
        let run = |flags: &str| {
            let path = Some(path.clone());
            let plan = plan(&format!("--json --count 10 {flags}"));
            Engine::Hash.record(&Plan { path, ..plan }, &mut |_| Ok(()))
        };
        run("--ops set").unwrap();
        for op in ["get-value", "iterate", "get-value --batch 8"] {
            run(&format!("--ops {op}")).unwrap();
            let error = run(&format!("--value-size 9 --ops {op}")).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupted);
        }
    }

    #[test]
    fn contradicting_flags_and_places_are_refused_before_anything_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.azh");
        let refuse = |flags: &str| {
            let plan = Plan {
                path: Some(path.clone()),
                ..plan(flags)
            };
            let error = Engine::Hash.record(&plan, &mut |_| Ok(())).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
        };
        refuse("--threads 0");
        refuse("--count 0");
        refuse("--batch 0");
        refuse("--misses 101");
        refuse("--ops get");
        assert!(!path.exists());
        std::fs::write(&path, b"somebody's file").unwrap();
        refuse("--ops set");
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's file");
    }
}
