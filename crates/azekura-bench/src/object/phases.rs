//! The phases of the published benchmark over one store: put, update, get, delete, load.
//!
//! One seed gives every phase its keys: `put` stores the population in order, `update`, `get` and
//! `delete` visit samples of it, each in an order of its own (the shuffles `qux`, `bar`, `baz`). The store is
//! closed and opened again between phases. A phase that writes ends with a sync, which is timed apart and
//! in which the device finishes what the page cache only held: so what the device did is counted whole.
//! `load` opens, gets one object, and closes. Instead of phases there may be a workload from a file.
//!
//! It does not know which stores there are.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;
use std::time::Instant;

use azekura::error::{Error, Kind, Result};

use super::draw::Keys;
use super::execute::{Load, execute};
use super::operation::{ArrayWriter, Operation, Operations, Outcome, ValueOf};
use super::plan::{ObjectPlan, Op};
use super::store::{Objects, Open, Setup};
use super::summary::Tally;
use super::workload::Workload;
use crate::forget::forget;
use crate::measure::{self, Calls, Counters, Device, Memory};
use crate::outputs::refuse_store;
use crate::phase::{Details, Object, Phase};
use crate::report::progress;
use crate::unfinished::Unfinished;
use crate::words::word;

type Results = ArrayWriter<Box<dyn Write + Send>>;

/// Runs the phases of `plan` on the store that `open` opens and results call `engine`; `emit` is shown each
/// phase as it is there.
///
/// Errors: `Invalid` (flags that contradict each other, a store that is there or is not, a workload that is
/// none, objects that were looked for and never put), `Corrupted` (a value that is not what was put, and an object that
/// is not where this run had put one), and the first error of the store, after the phase in which it came was shown. A
/// store that the run made is removed then, but not one that was found to be wrong.
pub fn run(
    engine: &str,
    open: Open,
    plan: &ObjectPlan,
    emit: &mut dyn FnMut(Phase) -> Result<()>,
) -> Result<()> {
    plan.check()?;
    let workload = plan.workload.as_deref().map(Workload::open).transpose()?;
    let absent = plan.path.as_ref().filter(|path| !path.exists());
    if let (Some(workload), Some(path)) = (&workload, absent) {
        workload.fits_a_new_store(path)?;
    }
    let mut results: Option<Results> = plan.results.as_deref().map(writer).transpose()?;
    let made = absent.map(|path| Unfinished::at(path)).transpose()?;
    let mut runner = Runner {
        engine,
        open,
        plan,
        workload: workload.as_ref(),
        results: &mut results,
        opened: false,
        before: Memory::now(),
    };
    let ran = runner.all(emit);
    let opened = runner.opened;
    // The results are complete, even after an error.
    let ran = ran.and(results.map_or(Ok(()), ArrayWriter::finish));
    let Some(made) = made else { return ran };
    match ran {
        Ok(()) => {
            made.keep();
            Ok(())
        }
        Err(error) => Err(given_up(made, opened, error)),
    }
}

/// Removes the store that a run made before it failed, unless it shows what is wrong, or another process made it
/// first.
fn given_up(made: Unfinished, opened: bool, error: Error) -> Error {
    let exists = |system: &std::io::Error| system.kind() == ErrorKind::AlreadyExists;
    let taken =
        matches!(error.kind(), Kind::Invalid | Kind::Locked) || error.system().is_some_and(exists);
    if !opened && taken {
        made.keep();
        return error;
    }
    let path = made.path().to_path_buf();
    if error.kind() == Kind::Corrupted {
        made.keep();
        return error.at(path).remedy("the store is kept, to be looked at");
    }
    match made.remove() {
        Ok(()) => error,
        Err(_) => error.remedy(format!("remove {}", path.display())),
    }
}

impl ObjectPlan {
    fn count_of(&self, op: Op) -> u64 {
        if op == Op::Put {
            self.count
        } else {
            self.sample()
        }
    }

    /// The operations of a phase.
    pub fn operations(&self, op: Op) -> Result<Operations> {
        let count = self.count_of(op);
        let keys = Keys::new(&self.seed, op.shuffle(), self.count, count, self.key_size)?;
        let value = ValueOf {
            size: self.value_size,
        };
        Ok(Box::new(keys.map(move |key| match op {
            Op::Put | Op::Update => Operation::Put { key, value },
            Op::Get | Op::Load => Operation::Get { key },
            Op::Delete => Operation::Delete { key },
        })))
    }

    fn setup(&self, create: bool) -> Setup {
        Setup {
            path: self.path.clone(),
            create,
            class: self.durability,
            capacity: self.capacity(),
            fill: self.how.fill,
            objects: self.count,
            value_size: self.value_size,
        }
    }
}

struct Runner<'p> {
    engine: &'p str,
    open: Open,
    plan: &'p ObjectPlan,
    workload: Option<&'p Workload>,
    results: &'p mut Option<Results>,
    /// Whether the store was opened, or made, once.
    opened: bool,
    /// Memory before the first phase.
    before: Option<Memory>,
}

/// What the device under the store did so far.
fn device(plan: &ObjectPlan) -> Device {
    let path = plan.path.as_deref();
    path.map_or_else(Device::default, Device::now)
}

/// What did not go as it should in a phase.
#[derive(Default)]
struct Faults {
    failed: u64,
    /// Key and error of the first that failed.
    first: Option<(String, serde_json::Value)>,
    missing: u64,
    /// Number and key of those that found no object, the first of them.
    missed: Vec<(u64, String)>,
}

impl Faults {
    /// Of so many it is judged whether there ought to have been an object.
    const MISSED_MAX: usize = 1 << 16;

    fn note(&mut self, outcome: &Outcome) {
        if let Some(error) = &outcome.error {
            self.failed += 1;
            self.first
                .get_or_insert_with(|| (outcome.key.clone(), error.clone()));
        } else if outcome.is_missing() {
            self.missing += 1;
            if self.missed.len() < Self::MISSED_MAX {
                self.missed.push((outcome.seqno, outcome.key.clone()));
            }
        }
    }
}

impl Runner<'_> {
    /// Runs the phases, or the workload, and shows each.
    fn all(&mut self, emit: &mut dyn FnMut(Phase) -> Result<()>) -> Result<()> {
        let plan = self.plan;
        if let Some(workload) = self.workload {
            let create = plan.path.as_ref().is_none_or(|path| !path.exists());
            let load = (workload.count(), plan.generation);
            let operations = workload.operations();
            let (phase, faults) = self.phase("workload", operations, load, create, true)?;
            // Where several are outstanding, a get may overtake its put.
            let lost = match plan.how.depth {
                1 => workload.first_lost(&faults.missed),
                _ => None,
            };
            let failure = faults.failure(phase.count, lost, true);
            emit(phase)?;
            return failure;
        }
        for (index, &op) in plan.ops.iter().enumerate() {
            let put_here = plan.ops[..index].contains(&Op::Put);
            let (phase, faults) = if op == Op::Load {
                self.load(index)?
            } else {
                let before = plan.ops[..index].iter();
                let generation = before.filter(|&&before| before.writes()).count();
                let load = (plan.count_of(op), generation as u64);
                let operations = plan.operations(op)?;
                let create = index == 0 && op == Op::Put;
                self.phase(&word(&op), operations, load, create, op.writes())?
            };
            let removed = self.removed(index, &faults.missed)?;
            let lost = faults
                .missed
                .iter()
                .find(|(_, key)| !removed.contains(key.as_str()));
            let lost = lost.map(|(_, key)| key.clone());
            let failure = faults.failure(phase.count, lost, put_here);
            emit(phase)?;
            failure?;
        }
        Ok(())
    }

    /// Which of these objects the phases before the one at `index` removed and did not put again.
    fn removed<'k>(&self, index: usize, of: &'k [(u64, String)]) -> Result<HashSet<&'k str>> {
        let asked: HashSet<&str> = of.iter().map(|(_, key)| key.as_str()).collect();
        let mut removed = HashSet::new();
        for &op in &self.plan.ops[..index] {
            if asked.is_empty() || !matches!(op, Op::Update | Op::Delete) {
                continue;
            }
            for operation in self.plan.operations(op)? {
                if let Some(&key) = asked.get(operation.key()) {
                    if op == Op::Delete {
                        removed.insert(key);
                    } else {
                        removed.remove(key);
                    }
                }
            }
        }
        Ok(removed)
    }

    /// Drops the store from the system's caches with `--cold`, and begins a result.
    fn begin(&self, op: &str, create: bool) -> Result<(Phase, Object)> {
        let start = Instant::now();
        let cold = match &self.plan.path {
            Some(path) if self.plan.cold && !create => Some(forget(path)?),
            _ => None,
        };
        // Those of a workload have what they have.
        let is_planned = op != "workload";
        let phase = Phase {
            engine: self.engine.to_owned(),
            op: op.to_owned(),
            threads: self.plan.how.depth as u64,
            key_size: is_planned.then_some(self.plan.key_size as u64),
            value_size: is_planned.then_some(self.plan.value_size),
            ..Phase::default()
        };
        let object = Object {
            rate: self.plan.rate,
            cold,
            forget_seconds: cold.map(|_| start.elapsed().as_secs_f64()),
            ..Object::default()
        };
        Ok((phase, object))
    }

    /// Runs operations: so many, whose puts store that generation of values.
    fn phase(
        &mut self,
        op: &str,
        mut operations: Operations,
        (count, generation): (u64, u64),
        create: bool,
        writes: bool,
    ) -> Result<(Phase, Faults)> {
        let plan = self.plan;
        let (mut phase, mut object) = self.begin(op, create)?;
        let start = Instant::now();
        let store = (self.open)(&plan.setup(create))?;
        object.open_seconds = start.elapsed().as_secs_f64();
        self.opened = true;
        let bar = progress(op, count, plan.quiet());
        let (mut tally, mut faults) = (Tally::default(), Faults::default());
        let results = &mut *self.results;
        let mut keep = |outcome: Outcome| {
            faults.note(&outcome);
            tally.add(&outcome);
            bar.inc(1);
            results
                .as_mut()
                .map_or(Ok(()), |results| results.add(&outcome))
        };
        let how = Load {
            how: plan.how,
            rate: plan.rate,
            generation,
        };
        let (before, own, calls) = (device(plan), store.counters(), Calls::now());
        let cpu = measure::cpu_seconds();
        phase.seconds = execute(&*store, &mut *operations, &how, &mut keep)?;
        bar.finish_and_clear();
        let start = Instant::now();
        if writes {
            store.sync()?;
            object.sync_seconds = Some(start.elapsed().as_secs_f64());
        }
        phase.cpu_seconds = measure::cpu_seconds() - cpu;
        self.costs(&mut phase, &mut object, &*store, (before, own, calls));
        store.close()?;
        self.files(&mut phase)?;
        sum_up(&mut phase, &mut object, tally);
        phase.details = Details::Object(Box::new(object));
        Ok((phase, faults))
    }

    /// The first object of the sample that is still there, as far as the phases before `index` show.
    fn to_load(&self, index: usize) -> Result<String> {
        const LOOKED_AT: usize = 1000;
        let keys = self.plan.operations(Op::Load)?.take(LOOKED_AT);
        let keys = keys.map(Operation::into_key);
        let keys: Vec<(u64, String)> = (0..).zip(keys).collect();
        let removed = self.removed(index, &keys)?;
        let there = keys.iter().find(|(_, key)| !removed.contains(key.as_str()));
        let key = there.or(keys.first()).map(|(_, key)| key.clone());
        Ok(key.unwrap_or_default())
    }

    /// Opens the store, gets an object of the sample, and closes.
    fn load(&mut self, index: usize) -> Result<(Phase, Faults)> {
        let (mut phase, mut object) = self.begin(&word(&Op::Load), false)?;
        let key = self.to_load(index)?;
        let (before, calls) = (device(self.plan), Calls::now());
        let (cpu, start) = (measure::cpu_seconds(), Instant::now());
        let store = (self.open)(&self.plan.setup(false))?;
        object.open_seconds = start.elapsed().as_secs_f64();
        // It counts from its opening, which belongs to it.
        let own = store.counters().map(|_| Counters::default());
        let there = store.get(super::draw::id_of(&key)?)?.is_some();
        object.first_get_seconds = Some(start.elapsed().as_secs_f64());
        self.costs(&mut phase, &mut object, &*store, (before, own, calls));
        store.close()?;
        phase.seconds = start.elapsed().as_secs_f64();
        phase.cpu_seconds = measure::cpu_seconds() - cpu;
        phase.count = 1;
        phase.ops_per_second = 1.0 / phase.seconds.max(1e-9);
        phase.hits = Some(u64::from(there));
        object.missing = u64::from(!there);
        self.files(&mut phase)?;
        phase.details = Details::Object(Box::new(object));
        let mut faults = Faults::default();
        if !there {
            (faults.missing, faults.missed) = (1, vec![(0, key)]);
        }
        Ok((phase, faults))
    }

    /// Memory, and what the device, the store and the process did since `before`.
    fn costs(
        &self,
        phase: &mut Phase,
        object: &mut Object,
        store: &dyn Objects,
        before: (Device, Option<Counters>, Option<Calls>),
    ) {
        let (did, own, calls) = before;
        phase.durability = Some(store.durability(self.plan.durability));
        phase.cost.memory(self.before, Memory::now());
        phase.cost.device = device(self.plan).since(did);
        let calls = calls.zip(Calls::now());
        object.calls = calls.map(|(before, now)| now.since(before));
        object.store = own.zip(store.counters()).map(|(own, now)| now.since(own));
    }

    fn files(&self, phase: &mut Phase) -> Result<()> {
        if let Some(path) = self.plan.path.as_deref().filter(|path| path.exists()) {
            phase.cost.files(path)?;
        }
        Ok(())
    }
}

/// Fills in what the results come to.
fn sum_up(phase: &mut Phase, object: &mut Object, tally: Tally) {
    // A removal moves no value.
    let moved = phase.value_size.filter(|_| phase.op != "delete");
    let summary = tally.finish(moved);
    phase.count = summary.oks + summary.errors;
    (object.missing, object.failed) = (summary.missing, summary.errors);
    phase.ops_per_second = summary.done() as f64 / phase.seconds.max(1e-9);
    phase.bytes_per_second = moved.map(|size| phase.ops_per_second * size as f64);
    phase.hits = Some(summary.existence.exists);
    object.summary = Some(summary);
}

impl Faults {
    /// What a run ends with after such a phase of `count` operations: the error of the store, or that an object was not there,
    /// `lost`, which had been put: by this run, or by one before.
    fn failure(self, count: u64, lost: Option<String>, put_here: bool) -> Result<()> {
        if let Some((key, error)) = self.first {
            let message = error["message"].as_str().unwrap_or("unknown").to_owned();
            let what = format!("the store failed, {} of {count} times, first", self.failed);
            let kind = kind_of(error["kind"].as_str().unwrap_or_default());
            return Err(Error::new(kind, what).key(key.as_bytes()).detail(message));
        }
        let Some(key) = lost else { return Ok(()) };
        let found = format!("{} of {count} found none", self.missing);
        Err(if put_here {
            Error::new(Kind::Corrupted, "there is no object where this run put one").detail(found)
        } else {
            Error::new(Kind::Invalid, "there is no object")
                .detail(found)
                .remedy("begin with the phase `put`, with the same --seed, --count and --key-size")
        }
        .key(key.as_bytes()))
    }
}

/// The kind of an error by its word in results.
fn kind_of(word: &str) -> Kind {
    let found = Kind::ALL.into_iter().find(|kind| kind.word() == word);
    found.unwrap_or(Kind::Io)
}

/// Standard output for `-`. A file that is there is replaced, unless it is a store.
pub(super) fn writer(path: &Path) -> Result<ArrayWriter<Box<dyn Write + Send>>> {
    let to: Box<dyn Write + Send> = if path == Path::new("-") {
        Box::new(BufWriter::new(std::io::stdout()))
    } else {
        refuse_store(path, "cannot write")?;
        let file = File::create(path).map_err(|error| Error::io("cannot write", error).at(path))?;
        Box::new(BufWriter::new(file))
    };
    Ok(ArrayWriter::new(to))
}

#[cfg(test)]
mod tests;
