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
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use azekura::error::{Error, Kind, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::calls::Calls;
use super::draw::Keys;
use super::execute::{Load, execute};
use super::forget::forget;
use super::measured::Measured;
use super::operation::{ArrayWriter, Operation, Outcome, ValueOf};
use super::plan::ObjectPlan;
use super::store::{Counters, Open, Setup};
use super::summary::Tally;
use super::workload::Workload;
use crate::measure::{self, Device, Memory};
use crate::report::progress;
use crate::unfinished::Unfinished;

/// One phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Store the population, in order
    Put,
    /// Store other values for a sample of it
    Update,
    /// Read a sample
    Get,
    /// Remove a sample
    Delete,
    /// Open, get one object, and close
    Load,
}

impl Op {
    /// The word in flags and results.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Update => "update",
            Self::Get => "get",
            Self::Delete => "delete",
            Self::Load => "load",
        }
    }

    /// By what text the phase shuffles the population, as the published benchmark did.
    const fn shuffle(self) -> Option<&'static str> {
        match self {
            Self::Put => None,
            Self::Update => Some("qux"),
            Self::Get | Self::Load => Some("bar"),
            Self::Delete => Some("baz"),
        }
    }

    const fn writes(self) -> bool {
        matches!(self, Self::Put | Self::Update | Self::Delete)
    }
}

/// Operations, one by one.
pub type Operations = Box<dyn Iterator<Item = Result<Operation>> + Send>;
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
    emit: &mut dyn FnMut(Measured) -> Result<()>,
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
    // What was done is told whole, however it ended.
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

/// Removes the store that a run made before it failed, unless it shows what is wrong, or somebody else was there
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
    /// The operations of a phase.
    pub fn operations(&self, op: Op) -> Result<Operations> {
        let count = if op == Op::Put {
            self.count
        } else {
            self.sample()
        };
        let keys = Keys::new(&self.seed, op.shuffle(), self.count, count, self.key_size)?;
        let value = ValueOf {
            size: self.value_size,
        };
        Ok(Box::new(keys.map(move |key| {
            Ok(match op {
                Op::Put | Op::Update => Operation::Put { key, value },
                Op::Get | Op::Load => Operation::Get { key },
                Op::Delete => Operation::Delete { key },
            })
        })))
    }

    fn setup(&self, create: bool) -> Setup {
        Setup {
            path: self.path.clone(),
            create,
            class: self.durability,
            capacity: self.capacity(),
            fill: self.fill,
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
    fn all(&mut self, emit: &mut dyn FnMut(Measured) -> Result<()>) -> Result<()> {
        let plan = self.plan;
        if let Some(workload) = self.workload {
            let create = plan.path.as_ref().is_none_or(|path| !path.exists());
            let load = (workload.count(), plan.generation);
            let operations = workload.operations()?;
            let (phase, faults) = self.phase("workload", operations, load, create, true)?;
            // Where several are outstanding, a get may overtake its put.
            let lost = match plan.depth {
                1 if !faults.missed.is_empty() => workload.first_lost(&faults.missed)?,
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
                let count = if op == Op::Put {
                    plan.count
                } else {
                    plan.sample()
                };
                let before = plan.ops[..index].iter();
                let generation = before.filter(|&&before| before.writes()).count();
                let load = (count, generation as u64);
                let operations = plan.operations(op)?;
                let create = index == 0 && op == Op::Put;
                self.phase(op.word(), operations, load, create, op.writes())?
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
                if let Some(&key) = asked.get(operation?.key()) {
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

    /// Makes the system forget the store, if that is asked for, and begins a result.
    fn begin(&self, op: &str, create: bool) -> Result<Measured> {
        let start = Instant::now();
        let cold = match &self.plan.path {
            Some(path) if self.plan.cold && !create => Some(forget(path)?),
            _ => None,
        };
        Ok(Measured {
            engine: self.engine.to_owned(),
            op: op.to_owned(),
            depth: self.plan.depth as u64,
            rate: self.plan.rate,
            cold,
            forget_seconds: cold.map(|_| start.elapsed().as_secs_f64()),
            ..Measured::default()
        })
    }

    /// Runs operations: so many, whose puts store that generation of values.
    fn phase(
        &mut self,
        op: &str,
        mut operations: Operations,
        (count, generation): (u64, u64),
        create: bool,
        writes: bool,
    ) -> Result<(Measured, Faults)> {
        let plan = self.plan;
        let mut phase = self.begin(op, create)?;
        let start = Instant::now();
        let store = (self.open)(&plan.setup(create))?;
        phase.open_seconds = start.elapsed().as_secs_f64();
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
            depth: plan.depth,
            rate: plan.rate,
            verify: !plan.no_verify,
            generation,
            drafts: plan.drafts,
        };
        let (before, own, calls) = (device(plan), store.counters(), Calls::now());
        let (cpu, start) = (measure::cpu_seconds(), Instant::now());
        execute(&*store, &mut *operations, &how, &mut keep)?;
        phase.seconds = start.elapsed().as_secs_f64();
        bar.finish_and_clear();
        let start = Instant::now();
        if writes {
            store.sync()?;
            phase.sync_seconds = Some(start.elapsed().as_secs_f64());
        }
        phase.cpu_seconds = measure::cpu_seconds() - cpu;
        let calls = calls.zip(Calls::now());
        phase.calls = calls.map(|(before, now)| now.since(before));
        phase.did(&device(plan).since(before), own, store.counters());
        phase.durability = Some(store.durability());
        self.memory(&mut phase);
        store.close()?;
        self.files(&mut phase)?;
        phase.sum_up(tally, plan.value_size_of(op), plan.key_size_of(op));
        Ok((phase, faults))
    }

    /// The first object of the sample that is still there, as far as the phases before `index` tell.
    fn to_load(&self, index: usize) -> Result<String> {
        const LOOKED_AT: usize = 1000;
        let keys = self.plan.operations(Op::Load)?.take(LOOKED_AT);
        let keys: Vec<(u64, String)> = (0..)
            .zip(keys)
            .map(|(number, operation)| Ok((number, operation?.into_key())))
            .collect::<Result<_>>()?;
        let removed = self.removed(index, &keys)?;
        let there = keys.iter().find(|(_, key)| !removed.contains(key.as_str()));
        let key = there.or(keys.first()).map(|(_, key)| key.clone());
        Ok(key.unwrap_or_default())
    }

    /// Opens the store, gets an object of the sample, and closes.
    fn load(&mut self, index: usize) -> Result<(Measured, Faults)> {
        let mut phase = self.begin(Op::Load.word(), false)?;
        let key = self.to_load(index)?;
        let (before, calls) = (device(self.plan), Calls::now());
        let (cpu, start) = (measure::cpu_seconds(), Instant::now());
        let store = (self.open)(&self.plan.setup(false))?;
        phase.open_seconds = start.elapsed().as_secs_f64();
        // It counts from its opening, which belongs to it.
        let own = store.counters().map(|_| Counters::default());
        let there = store.get(super::draw::id_of(&key)?)?.is_some();
        phase.first_get_seconds = Some(start.elapsed().as_secs_f64());
        phase.durability = Some(store.durability());
        self.memory(&mut phase);
        let calls = calls.zip(Calls::now());
        phase.calls = calls.map(|(before, now)| now.since(before));
        phase.did(&device(self.plan).since(before), own, store.counters());
        store.close()?;
        phase.seconds = start.elapsed().as_secs_f64();
        phase.cpu_seconds = measure::cpu_seconds() - cpu;
        phase.count = 1;
        phase.key_size = self.plan.key_size_of(Op::Load.word());
        phase.value_size = Some(self.plan.value_size);
        phase.hits = Some(u64::from(there));
        phase.missing = Some(u64::from(!there));
        self.files(&mut phase)?;
        let mut faults = Faults::default();
        if !there {
            (faults.missing, faults.missed) = (1, vec![(0, key)]);
        }
        Ok((phase, faults))
    }

    fn memory(&self, phase: &mut Measured) {
        if let (Some(before), Some(now)) = (self.before, Memory::now()) {
            phase.memory_bytes = Some(now.resident.saturating_sub(before.resident));
            phase.private_bytes = Some(now.private.saturating_sub(before.private));
            phase.peak_bytes = Some(now.peak.saturating_sub(before.peak));
        }
    }

    fn files(&self, phase: &mut Measured) -> Result<()> {
        if let Some(path) = self.plan.path.as_deref().filter(|path| path.exists()) {
            let (size, allocated) = measure::file_bytes(path)?;
            (phase.file_bytes, phase.allocated_bytes) = (Some(size), Some(allocated));
        }
        Ok(())
    }
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

/// The kind of an error that results tell by its word.
fn kind_of(word: &str) -> Kind {
    let found = Kind::ALL.into_iter().find(|kind| kind.word() == word);
    found.unwrap_or(Kind::Io)
}

/// Standard input for `-`.
pub(super) fn reader(path: &Path) -> Result<BufReader<Box<dyn Read + Send>>> {
    let from: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(|error| Error::io("cannot open", error).at(path))?)
    };
    Ok(BufReader::with_capacity(1 << 16, from))
}

/// Standard output for `-`.
pub(super) fn writer(path: &Path) -> Result<ArrayWriter<Box<dyn Write + Send>>> {
    let to: Box<dyn Write + Send> = if path == Path::new("-") {
        Box::new(BufWriter::new(std::io::stdout()))
    } else {
        let file = File::create(path).map_err(|error| Error::io("cannot write", error).at(path))?;
        Box::new(BufWriter::new(file))
    };
    Ok(ArrayWriter::new(to))
}

/// Whether results go to standard output, or come from standard input.
pub(super) fn is_stream(path: Option<&PathBuf>) -> bool {
    path.is_some_and(|path| path == Path::new("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::operation::{ArrayReader, Method};
    use crate::object::store::Class;
    use crate::object::stores::Engine;
    use crate::plan::read_flags;

    fn phases(engine: Engine, path: &Path, flags: &str) -> Result<Vec<Measured>> {
        let flags = format!("--json --count 50 --value-size 4KiB {flags}");
        let plan = read_flags::<ObjectPlan>(&flags).unwrap();
        let (path, sample) = (Some(path.to_path_buf()), Some(plan.sample.unwrap_or(20)));
        let plan = ObjectPlan {
            path,
            sample,
            ..plan
        };
        let mut phases = Vec::new();
        run("x", engine.open(), &plan, &mut |phase| {
            phases.push(phase);
            Ok(())
        })?;
        Ok(phases)
    }

    #[test]
    fn stores_find_what_was_put_in_every_class_and_at_every_depth() {
        let ways = [
            (Engine::Azekura, "", Class::Process),
            (
                Engine::Azekura,
                "--durability buffered --depth 4 --cold",
                Class::Buffered,
            ),
            (Engine::Azekura, "--durability power --fill", Class::Power),
            (Engine::Files, "--depth 4 --cold", Class::Process),
            (Engine::Files, "--durability power", Class::Power),
            (Engine::Files, "--rate 100000 --depth 2", Class::Process),
        ];
        for (engine, flags, class) in ways {
            let folder = tempfile::tempdir().unwrap();
            let found = phases(engine, &folder.path().join("s"), flags).unwrap();
            let hits: Vec<_> = found.iter().map(|phase| phase.hits.unwrap()).collect();
            // A put into files does not tell; the delete may have removed what the load looks for.
            let updated = if engine == Engine::Files { 0 } else { 20 };
            assert_eq!(hits[..4], [0, updated, 20, 20], "{flags}");
            let counts: Vec<_> = found.iter().map(|phase| phase.count).collect();
            assert_eq!(counts, [50, 20, 20, 20, 1]);
            assert!(found.iter().all(|phase| phase.durability == Some(class)));
            assert!(
                found[..4]
                    .iter()
                    .all(|phase| phase.summary.as_ref().unwrap().errors == 0)
            );
            if engine == Engine::Files {
                assert_eq!(found[0].file_bytes, Some(50 * 4096));
                assert_eq!(found[4].file_bytes, Some(30 * 4096));
            }
            let cold = flags.contains("--cold");
            assert!(found[0].cold.is_none() && found[1..].iter().all(|p| p.cold.is_some() == cold));
        }
    }

    #[test]
    fn the_device_and_nothing_run_every_phase() {
        let folder = tempfile::tempdir().unwrap();
        let found = phases(Engine::None, &folder.path().join("n"), "--ops put,get").unwrap();
        assert_eq!(found[1].hits, Some(20));
        assert_eq!(found[1].durability, Some(Class::None));
        // A file system in memory has no direct access.
        let path = folder.path().join("d");
        if azekura::io::direct::DirectFile::create(folder.path().join("try")).is_ok() {
            let found = phases(Engine::Device, &path, "--durability power --depth 2").unwrap();
            let counted =
                |phase: &Measured| phase.store.map(|own| (own.reads, own.writes, own.syncs));
            // A write and a sync each, and one sync at the end.
            assert_eq!(counted(&found[0]), Some((0, 50, 51)));
            assert_eq!(counted(&found[1]), Some((0, 20, 21)));
            assert_eq!(counted(&found[2]), Some((20, 0, 0)));
            assert_eq!(found[0].file_bytes, Some(50 * 4096));
        }
    }

    #[test]
    fn accesses_are_told_of_every_store_and_are_one_for_each_operation_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        for (engine, flags) in [
            (Engine::Azekura, "--fill --value-size 40KiB"),
            (
                Engine::Azekura,
                "--fill --durability power --value-size 40KiB",
            ),
            (Engine::Files, ""),
            (Engine::Files, "--durability power"),
        ] {
            let path = folder.path().join(format!("{engine:?}{}", flags.len()));
            let flags = format!("--json --count 50 --sample 20 {flags}");
            let plan = ObjectPlan {
                path: Some(path),
                ..read_flags(&flags).unwrap()
            };
            let mut found = Vec::new();
            let mut emit = |phase: Measured| {
                found.push((phase.store.unwrap(), phase.calls, phase.table()));
                Ok(())
            };
            run("x", engine.open(), &plan, &mut emit).unwrap();
            let [put, update, get, delete, load] = &found[..] else {
                panic!("{} phases", found.len());
            };
            assert!(
                put.0.writes >= 50 && update.0.writes >= 20,
                "{flags}: {put:?} {update:?}"
            );
            // Leaves of the index come in with the first of their objects.
            let leaves = u64::from(engine == Engine::Azekura);
            assert!(
                (20..=20 + 3 * leaves).contains(&get.0.reads),
                "{flags}: {get:?}"
            );
            assert_eq!((get.0.writes, get.0.syncs), (0, 0), "{flags}");
            assert!(delete.0.reads <= 3 * leaves, "{flags}: {delete:?}");
            assert!(load.0.reads >= 1, "{flags}");
            let synced = flags.contains("power");
            assert_eq!(put.0.syncs > 50, synced, "{flags}: {put:?}");
            if engine == Engine::Azekura {
                // The journal's segments are little beside the values.
                assert!(
                    put.0.writes < 60 && update.0.writes < 30,
                    "{flags}: {put:?}"
                );
                assert!(put.0.syncs < 60, "{flags}: {put:?}");
            }
            for (_, calls, table) in &found {
                assert!(
                    calls.is_some() && table.contains("  the store   for each "),
                    "{table}"
                );
                assert!(table.contains("  the process for each "), "{table}");
            }
        }
    }

    #[test]
    fn a_workload_from_a_file_makes_the_store_and_its_results_can_be_summed_up() {
        let folder = tempfile::tempdir().unwrap();
        let (workload, results) = (folder.path().join("w"), folder.path().join("r"));
        let mut array = writer(&workload).unwrap();
        for key in ["a", "b"] {
            let key = key.to_owned();
            array
                .add(&Operation::Put {
                    key: key.clone(),
                    value: ValueOf { size: 9 },
                })
                .unwrap();
            array.add(&Operation::Get { key }).unwrap();
        }
        array.add(&Operation::Get { key: "c".into() }).unwrap();
        array.finish().unwrap();
        let plan = read_flags::<ObjectPlan>("--json").unwrap();
        let plan = ObjectPlan {
            path: Some(folder.path().join("s")),
            workload: Some(workload),
            results: Some(results.clone()),
            ..plan
        };
        let mut phases = Vec::new();
        for _ in 0..2 {
            let emit = &mut |phase| {
                phases.push(phase);
                Ok(())
            };
            run("x", Engine::Files.open(), &plan, emit).unwrap();
        }
        let existence = phases[1].summary.as_ref().unwrap().existence;
        assert_eq!(
            (existence.exists, existence.absents, existence.unknowns),
            (2, 1, 2)
        );
        let found: Vec<Outcome> = ArrayReader::new(reader(&results).unwrap(), &results)
            .map(Result::unwrap)
            .collect();
        assert_eq!(found.len(), 5);
        assert_eq!(
            (found[1].method, found[1].exists),
            (Method::Get, Some(true))
        );
        assert_eq!((found[4].key.as_str(), found[4].exists), ("c", Some(false)));
    }

    #[test]
    fn a_class_that_a_store_does_not_have_ends_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let error = phases(
            Engine::Files,
            &folder.path().join("s"),
            "--durability buffered",
        );
        assert_eq!(error.unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn an_object_that_was_put_and_is_gone_is_told_and_ends_the_run() {
        /// Files, of which every third goes when the store is opened again.
        fn forgetful(setup: &Setup) -> Result<Box<dyn crate::object::store::Objects>> {
            fn thin(folder: &Path, seen: &mut u32) {
                for entry in std::fs::read_dir(folder).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        thin(&path, seen);
                    } else {
                        *seen += 1;
                        if seen.is_multiple_of(3) {
                            std::fs::remove_file(path).unwrap();
                        }
                    }
                }
            }
            if !setup.create {
                thin(setup.path.as_ref().unwrap(), &mut 0);
            }
            crate::object::stores::files::open(setup)
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let plan = |ops: &str| ObjectPlan {
            path: Some(path.clone()),
            ..read_flags(&format!(
                "--json --count 60 --sample 60 --value-size 9 --ops {ops}"
            ))
            .unwrap()
        };
        let mut found = Vec::new();
        let mut emit = |phase| {
            found.push(phase);
            Ok(())
        };
        let error = run("x", forgetful, &plan("put,get"), &mut emit).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted);
        let text = error.to_string();
        assert!(text.contains("no object where this run put one"), "{text}");
        assert!(
            text.contains("20 of 60 found none") && text.contains("kept"),
            "{text}"
        );
        assert!(path.exists());
        // Of a store from before it is not known who removed it.
        let error = run("x", Engine::Files.open(), &plan("get"), &mut emit).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("--seed"), "{error}");
        let counts = |phase: &Measured| (phase.count, phase.missing, phase.failed, phase.hits);
        assert_eq!(counts(&found[1]), (60, Some(20), Some(0), Some(40)));
        assert_eq!(counts(&found[2]), counts(&found[1]));
        let summary = found[1].summary.as_ref().unwrap();
        let rate = summary.done() as f64 / found[1].seconds;
        assert!((found[1].ops_per_second - rate).abs() < 1e-6 * rate);
        assert_eq!(summary.done(), 40);
    }

    #[test]
    fn what_a_phase_removed_may_be_missed_in_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let flags = "--sample 50 --ops put,delete,get,load,update,get";
        let found = phases(Engine::Files, &folder.path().join("s"), flags).unwrap();
        let missing: Vec<_> = found.iter().map(|phase| phase.missing.unwrap()).collect();
        assert_eq!(missing, [0, 0, 50, 1, 0, 0]);
        // A load looks for one that is there, if any is.
        let flags = "--sample 49 --ops put,delete,load";
        let found = phases(Engine::Files, &folder.path().join("t"), flags).unwrap();
        assert_eq!(found[2].hits, Some(1));
    }

    #[test]
    fn a_run_that_fails_removes_the_store_it_made_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        // Room for a few of them.
        let flags = "--json --count 2000 --value-size 64KiB --capacity 16MiB --ops put";
        let plan = ObjectPlan {
            path: Some(path.clone()),
            ..read_flags(flags).unwrap()
        };
        let error = run("x", Engine::Azekura.open(), &plan, &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), Kind::Full, "{error}");
        assert!(
            error.to_string().contains(" of 2000 times, first"),
            "{error}"
        );
        assert!(!path.exists());
        phases(Engine::Azekura, &path, "--ops put").unwrap();
        let error = phases(Engine::Azekura, &path, "--ops get --seed other").unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(path.exists());
    }

    #[test]
    fn a_workload_that_is_none_leaves_no_store_and_no_results() {
        let folder = tempfile::tempdir().unwrap();
        let (path, results) = (folder.path().join("s"), folder.path().join("r"));
        let workload = folder.path().join("w.json");
        let put = "{\"PUT\":{\"key\":\"a\",\"value\":{\"size\":9}}}";
        let get = "{\"GET\":{\"key\":\"a\"}}";
        let go = |text: &str| {
            std::fs::write(&workload, text).unwrap();
            let plan = ObjectPlan {
                path: Some(path.clone()),
                workload: Some(workload.clone()),
                results: Some(results.clone()),
                ..read_flags("--json").unwrap()
            };
            run("x", Engine::Azekura.open(), &plan, &mut |_| Ok(()))
        };
        for (text, part) in [
            (format!("[{put},\n{put},\n"), "line 3 column 1"),
            (format!("[{get},{put}]"), "begins with no put"),
            ("[]".to_owned(), "begins with no put"),
        ] {
            let error = go(&text).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            assert!(error.to_string().contains(part), "{error}");
            assert!(!path.exists() && !results.exists(), "{text}");
        }
        go(&format!("[{put},{get}]")).unwrap();
        // The store is there now: what it holds is its own matter.
        go(&format!("[{get}]")).unwrap();
    }

    #[test]
    fn changed_bytes_of_a_file_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        phases(Engine::Files, &path, "--ops put").unwrap();
        let mut place = path.clone();
        while place.is_dir() {
            place = std::fs::read_dir(&place)
                .unwrap()
                .next()
                .unwrap()
                .unwrap()
                .path();
        }
        std::fs::write(&place, [7; 4096]).unwrap();
        let error = phases(Engine::Files, &path, "--ops get --sample 50").unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupted);
        phases(Engine::Files, &path, "--ops get --sample 50 --no-verify").unwrap();
    }
}
