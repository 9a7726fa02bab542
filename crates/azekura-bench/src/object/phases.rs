//! The phases of the published benchmark over one store: put, update, get, delete, load.
//!
//! One seed gives every phase its keys: `put` stores the population in order, `update`, `get` and
//! `delete` visit samples of it, each in an order of its own (the shuffles `qux`, `bar`, `baz`). The store is
//! closed and opened again between phases. A phase that writes ends with a sync, which is timed apart and
//! in which the device finishes what the page cache only held: so what the device did is counted whole.
//! `load` opens, gets one object, and closes. Instead of phases there may be a workload from a file.
//!
//! It does not know which stores there are.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use azekura::error::{Error, Kind, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::draw::Keys;
use super::execute::{Load, execute};
use super::forget::forget;
use super::measured::Measured;
use super::operation::{ArrayReader, ArrayWriter, Operation, Outcome, ValueOf};
use super::plan::ObjectPlan;
use super::store::{Open, Setup};
use super::summary::Tally;
use crate::measure::{self, Device, Memory};
use crate::report::progress;

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

type Operations = Box<dyn Iterator<Item = Result<Operation>> + Send>;
type Results = ArrayWriter<Box<dyn Write + Send>>;

/// Runs the phases of `plan` on the store that `open` opens and results call `engine`; `emit` is shown each
/// phase as it is there.
///
/// Errors: `Invalid` (flags that contradict each other, a store that is there or is not, a workload that is
/// none), `Corrupted` (a value that is not what was put), and the first error of the store, after the phase in
/// which it came was shown.
pub fn run(
    engine: &str,
    open: Open,
    plan: &ObjectPlan,
    emit: &mut dyn FnMut(Measured) -> Result<()>,
) -> Result<()> {
    plan.check()?;
    let mut results: Option<Results> = plan.results.as_deref().map(writer).transpose()?;
    let mut runner = Runner {
        engine,
        open,
        plan,
        before: Memory::now(),
    };
    if let Some(workload) = &plan.workload {
        let operations: Operations = Box::new(ArrayReader::new(reader(workload)?));
        let create = plan.path.as_ref().is_none_or(|path| !path.exists());
        let mut phase = runner.phase("workload", operations, None, create, true, &mut results)?;
        let failure = phase.failure.take();
        emit(phase)?;
        failure.map_or(Ok(()), Err)?;
    } else {
        for (index, &op) in plan.ops.iter().enumerate() {
            if op == Op::Load {
                emit(runner.load()?)?;
                continue;
            }
            let create = index == 0 && op == Op::Put;
            let count = if op == Op::Put {
                plan.count
            } else {
                plan.sample()
            };
            let generation = plan.ops[..index]
                .iter()
                .filter(|&&before| before.writes())
                .count();
            let load = (count, generation as u64);
            let operations = plan.operations(op)?;
            let mut phase = runner.phase(
                op.word(),
                operations,
                Some(load),
                create,
                op.writes(),
                &mut results,
            )?;
            let failure = phase.failure.take();
            emit(phase)?;
            failure.map_or(Ok(()), Err)?;
        }
    }
    results.map_or(Ok(()), ArrayWriter::finish)
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
    /// Memory before the first phase.
    before: Option<Memory>,
}

impl Runner<'_> {
    fn device(&self) -> Device {
        self.plan
            .path
            .as_deref()
            .map_or_else(Device::default, Device::now)
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

    /// Runs operations; `load` is how many they are and which generation of values they put, if that is
    /// known.
    fn phase(
        &mut self,
        op: &str,
        mut operations: Operations,
        load: Option<(u64, u64)>,
        create: bool,
        writes: bool,
        results: &mut Option<Results>,
    ) -> Result<Measured> {
        let plan = self.plan;
        let mut phase = self.begin(op, create)?;
        let start = Instant::now();
        let store = (self.open)(&plan.setup(create))?;
        phase.open_seconds = start.elapsed().as_secs_f64();
        let (count, generation) = load.unwrap_or((0, plan.generation));
        let bar = progress(op, count, plan.quiet());
        let (mut tally, mut failure) = (Tally::default(), None);
        let mut keep = |outcome: Outcome| {
            if let (Some(error), None) = (&outcome.error, &failure) {
                failure = Some(refused(&outcome.key, error));
            }
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
        let (device, own) = (self.device(), store.counters());
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
        phase.did(&self.device().since(device), own, store.counters());
        phase.durability = Some(store.durability());
        self.memory(&mut phase);
        store.close()?;
        self.files(&mut phase)?;
        phase.sum_up(tally, plan.value_size_of(op), plan.key_size_of(op));
        phase.failure = failure;
        Ok(phase)
    }

    /// Opens the store, gets the first object of the sample, and closes.
    fn load(&mut self) -> Result<Measured> {
        let mut phase = self.begin(Op::Load.word(), false)?;
        let first = self.plan.operations(Op::Load)?.next().transpose()?;
        let key = first.map(Operation::into_key).unwrap_or_default();
        let (cpu, device, start) = (measure::cpu_seconds(), self.device(), Instant::now());
        let store = (self.open)(&self.plan.setup(false))?;
        phase.open_seconds = start.elapsed().as_secs_f64();
        let own = store.counters();
        let there = store.get(super::draw::id_of(&key)?)?.is_some();
        phase.first_get_seconds = Some(start.elapsed().as_secs_f64());
        phase.durability = Some(store.durability());
        self.memory(&mut phase);
        phase.did(&self.device().since(device), own, store.counters());
        store.close()?;
        phase.seconds = start.elapsed().as_secs_f64();
        phase.cpu_seconds = measure::cpu_seconds() - cpu;
        phase.count = 1;
        phase.key_size = self.plan.key_size_of(Op::Load.word());
        phase.value_size = Some(self.plan.value_size);
        phase.hits = Some(u64::from(there));
        self.files(&mut phase)?;
        Ok(phase)
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

/// The error of the store, from its result.
fn refused(key: &str, error: &serde_json::Value) -> Error {
    let message = error["message"].as_str().unwrap_or("unknown").to_owned();
    Error::new(Kind::Io, "the store failed")
        .key(key.as_bytes())
        .detail(message)
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
    use crate::object::operation::Method;
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
        let found: Vec<Outcome> = ArrayReader::new(reader(&results).unwrap())
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
