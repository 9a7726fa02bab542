//! The tables of the published benchmark, at a given scale, for several stores beside each other.
//!
//! Each store holds so many values of each size; a hundredth of them is updated, read and removed, and
//! the store is opened, cold and warm. Every step is a process of its own, so that neither memory nor caches
//! of one store are another's. Where there are rounds, the order of the stores turns from one to the next, and a
//! figure is the median of the rounds'. A ratio is the rate of one store over another's in the same round,
//! and only of the same class of durability: others are refused.
//!
//! Each step is told on standard error when it begins: by a bar if that is a terminal, otherwise by a line. The folder of
//! a store goes with its last step, and when the suite fails or is interrupted. After a step that failed the tables tell
//! what there is, and the suite ends with that step's exit code.
//!
//! It does not know which stores there are: whoever runs it says how a process is started.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use azekura::error::{Error, Kind, Result, size};
use azekura_wire::{exit::kind_of, parse_size};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use super::measured::Measured;
use super::phases::Op;
use super::plan::ObjectPlan;
use super::store::Class;
use super::table::{costs, render};

use crate::report::{line, progress};
use crate::unfinished::{self, Unfinished};

/// Bytes of the values of each store of the published benchmark, which had ten million objects of 100 KiB.
const WHOLE: f64 = 1e7 * 102_400.0;

/// A store in a class: `name:class`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The store's word.
    pub store: String,
    /// What an acknowledged change survives.
    pub class: Class,
}

impl Candidate {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let (store, class) = text.split_once(':').ok_or("a store is NAME:DURABILITY")?;
        let class = Class::from_str(class, false)?;
        Ok(Self {
            store: store.to_owned(),
            class,
        })
    }
}

/// The flags of `suite`.
#[derive(Args, Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag, and none excludes another"
)]
pub struct SuitePlan {
    /// Which part of the published 1 TB each store holds, for each size
    #[arg(long, value_name = "PART", default_value_t = 0.002)]
    pub scale: f64,
    /// Which stores, as NAME:DURABILITY; all there are, if not said
    #[arg(long, value_name = "STORES", value_delimiter = ',', value_parser = Candidate::parse)]
    pub stores: Vec<Candidate>,
    /// Whose rate is divided by the others'; the first store, if not said
    #[arg(long, value_name = "NAME")]
    pub against: Option<String>,
    /// Which tables
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "put,update,get,delete,load"
    )]
    pub tables: Vec<Op>,
    /// Bytes of a value
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
          default_value = "100KiB,1MiB,10MiB")]
    pub sizes: Vec<u64>,
    /// Least number of objects that are updated, read and removed
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub sample_min: u64,
    /// Operations outstanding at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: usize,
    /// Rounds of all stores
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rounds: u64,
    /// Write all of a store's file when it is made, where the store can
    #[arg(long)]
    pub fill: bool,
    /// Leave in memory what the system keeps of a store, before each step
    #[arg(long)]
    pub warm: bool,
    /// Do not compare the values that are read with those that were put
    #[arg(long)]
    pub no_verify: bool,
    /// Make each value in memory of the store, where it has a call for that, so that it is put without a copy
    #[arg(long)]
    pub drafts: bool,
    /// Where stores are made and removed; the system's folder for temporary files, if not said
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// JSON objects of the steps instead of tables
    #[arg(long)]
    pub json: bool,
    /// Do not tell which step runs
    #[arg(long)]
    pub quiet: bool,
}

impl SuitePlan {
    /// Objects of a size: of 1 MiB and 10 MiB, too, the published benchmark had a power of ten.
    #[expect(clippy::cast_sign_loss, reason = "the scale was checked")]
    pub(super) fn count(&self, value_size: u64) -> u64 {
        let whole = match value_size {
            0x10_0000 => 1e6,
            0xa0_0000 => 1e5,
            _ => WHOLE / value_size as f64,
        };
        ((whole * self.scale).round() as u64).max(1)
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(Kind::Invalid, what));
        if !(self.scale > 0.0 && self.scale <= 100.0) {
            return wrong("the scale is more than 0 and at most 100");
        }
        if self.rounds == 0 || self.sizes.contains(&0) || self.stores.is_empty() {
            return wrong("a suite has stores, rounds, and values of more than nothing");
        }
        Ok(())
    }

    /// Steps of a store at a size: the puts always, a load cold and warm.
    fn steps(&self) -> u64 {
        let loads = if self.warm { 1 } else { 2 };
        let asked = |op: Op| match op {
            Op::Put => 1,
            _ if !self.tables.contains(&op) => 0,
            Op::Load => loads,
            _ => 1,
        };
        [Op::Put, Op::Update, Op::Get, Op::Delete, Op::Load]
            .into_iter()
            .map(asked)
            .sum()
    }

    fn step(&self, path: &Path, class: Class, value_size: u64) -> ObjectPlan {
        let count = self.count(value_size);
        ObjectPlan {
            path: Some(path.to_path_buf()),
            count,
            sample: Some((count / 100).max(self.sample_min).min(count)),
            ops: Vec::new(),
            key_size: 16,
            value_size,
            seed: "foo".into(),
            depth: self.depth,
            rate: None,
            durability: class,
            capacity: None,
            fill: self.fill,
            no_verify: self.no_verify,
            drafts: self.drafts,
            cold: !self.warm,
            workload: None,
            generation: 0,
            results: None,
            json: true,
        }
    }
}

/// Starts a process that runs the phases of a plan on the store of that name, and tells what it printed.
pub type Start<'s> = &'s dyn Fn(&str, &ObjectPlan) -> Result<Vec<Measured>>;

/// A process of this program: `words` are its command, before the store's name.
pub fn process(words: &[&str], store: &str, plan: &ObjectPlan) -> Result<Vec<Measured>> {
    let program =
        std::env::current_exe().map_err(|error| Error::io("cannot find this program", error))?;
    let flags: Vec<OsString> = plan.flags();
    let mut command = Command::new(program);
    command.args(words).arg(store).args(flags);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let output = unfinished::output(&mut command)?;
    if !output.status.success() {
        let ops: Vec<&str> = plan.ops.iter().map(|op| op.word()).collect();
        let what = format!(
            "the step {} of {store}, durability {}, values of {}, failed",
            ops.join(","),
            plan.durability,
            size(plan.value_size)
        );
        let error = Error::new(kind_of(output.status.code()), what);
        return Err(error.detail(output.status.to_string()));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(Measured::from_json)
        .collect()
}

/// A folder that goes away with its content.
fn place(folder: &Path) -> Result<Unfinished> {
    let path = folder.join(format!("azekura-objects-{}", std::process::id()));
    let failed = |error| Error::io("cannot make a folder for the stores", error).at(&path);
    std::fs::create_dir(&path).map_err(failed)?;
    Unfinished::at(&path)
}

/// Tells which step runs.
struct Steps {
    bar: ProgressBar,
    /// A line for each, where there is no terminal.
    lines: bool,
    begun: Cell<u64>,
    all: u64,
}

impl Steps {
    fn of(plan: &SuitePlan) -> Self {
        let all = plan.rounds * (plan.sizes.len() * plan.stores.len()) as u64 * plan.steps();
        Self {
            bar: progress("suite", all, plan.quiet),
            lines: !plan.quiet && !std::io::stderr().is_terminal(),
            begun: Cell::new(0),
            all,
        }
    }

    fn begin(&self, candidate: &Candidate, value_size: u64, op: Op) {
        let begun = self.begun.get();
        self.begun.set(begun + 1);
        let Candidate { store, class } = candidate;
        let what = format!("{store} {class} {} {}", size(value_size), op.word());
        self.bar.set_position(begun);
        self.bar.set_message(what.clone());
        self.bar.tick();
        if self.lines {
            // Whoever closed standard error does not want to know.
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "step {} of {}: {what}", begun + 1, self.all);
        }
    }
}

/// What one store did in a round, at one size; rounds follow one another.
pub(super) struct Run {
    pub(super) value_size: u64,
    pub(super) candidate: Candidate,
    pub(super) phases: Vec<Measured>,
}

/// Runs the suite and prints its tables.
///
/// Errors: `Invalid` (a scale, a store or a class that is none), and whatever a step reports.
pub fn run(plan: &SuitePlan, start: Start<'_>) -> Result<()> {
    plan.check()?;
    let mut runs = Vec::new();
    let ran = rounds(plan, start, &mut runs);
    if plan.json || runs.is_empty() {
        return ran;
    }
    let ours = plan.against.as_ref().unwrap_or(&plan.stores[0].store);
    for &table in &plan.tables {
        line(&render(plan, table, &runs, ours))?;
    }
    line(&costs(plan, &runs))?;
    ran
}

/// Adds to `runs` what was done, to the end or to the first error.
fn rounds(plan: &SuitePlan, start: Start<'_>, runs: &mut Vec<Run>) -> Result<()> {
    let folder = plan.folder.clone().unwrap_or_else(std::env::temp_dir);
    let told = Steps::of(plan);
    for round in 0..plan.rounds {
        for &value_size in &plan.sizes {
            let mut stores: Vec<&Candidate> = plan.stores.iter().collect();
            if round % 2 == 1 {
                stores.reverse();
            }
            for candidate in stores {
                let place = place(&folder)?;
                let path = place.path().join("store");
                let begin = |op| told.begin(candidate, value_size, op);
                let phases = steps(plan, start, &begin, &path, candidate, value_size)?;
                if plan.json {
                    told.bar
                        .suspend(|| phases.iter().try_for_each(|phase| phase.print(true)))?;
                }
                let candidate = candidate.clone();
                runs.push(Run {
                    value_size,
                    candidate,
                    phases,
                });
            }
        }
    }
    told.bar.finish_and_clear();
    Ok(())
}

/// The steps of one store, in the order of the published benchmark.
fn steps(
    plan: &SuitePlan,
    start: Start<'_>,
    begin: &dyn Fn(Op),
    path: &Path,
    candidate: &Candidate,
    value_size: u64,
) -> Result<Vec<Measured>> {
    let step = plan.step(path, candidate.class, value_size);
    let run = |op: Op| {
        if op != Op::Put && !plan.tables.contains(&op) {
            return Ok(Vec::new());
        }
        let step = ObjectPlan {
            ops: vec![op],
            ..step.clone()
        };
        begin(op);
        start(&candidate.store, &step)
    };
    let mut found = Vec::new();
    for op in [Op::Put, Op::Update, Op::Get] {
        found.extend(run(op)?);
    }
    if plan.tables.contains(&Op::Load) {
        let ways: &[bool] = if plan.warm { &[false] } else { &[true, false] };
        for &cold in ways {
            let load = ObjectPlan {
                ops: vec![Op::Load],
                cold,
                ..step.clone()
            };
            begin(Op::Load);
            let started = Instant::now();
            let mut phases = start(&candidate.store, &load)?;
            let took = started.elapsed().as_secs_f64();
            for phase in &mut phases {
                // Making the system forget is no part of a start.
                phase.process_seconds = Some((took - phase.forget_seconds.unwrap_or(0.0)).max(0.0));
            }
            found.extend(phases);
        }
    }
    found.extend(run(Op::Delete)?);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::phases;
    use crate::object::stores::Engine;
    use crate::object::table::ratio;
    use crate::plan::read_flags;

    fn plan(flags: &str) -> SuitePlan {
        read_flags(flags).unwrap()
    }

    /// The steps in this process.
    fn start(store: &str, plan: &ObjectPlan) -> Result<Vec<Measured>> {
        let mut found = Vec::new();
        let engine = Engine::from_str(store, false).unwrap();
        phases::run(store, engine.open(), plan, &mut |phase| {
            found.push(phase);
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn every_table_has_a_row_for_each_store_and_size_and_ratios_within_a_class() {
        let folder = tempfile::tempdir().unwrap();
        let suite = plan("--stores files:process,files:power --sizes 100KiB,40KiB --scale 1e-6");
        let mut runs = Vec::new();
        for candidate in &suite.stores {
            for &value_size in &suite.sizes {
                let path = folder.path().join(format!("{}{value_size}", runs.len()));
                let begun = Cell::new(0);
                let begin = |_| begun.set(begun.get() + 1);
                let phases = steps(&suite, &start, &begin, &path, candidate, value_size).unwrap();
                assert_eq!(begun.get(), suite.steps());
                let ops: Vec<&str> = phases.iter().map(|phase| phase.op.as_str()).collect();
                assert_eq!(ops, ["put", "update", "get", "load", "load", "delete"]);
                assert!(phases[3].cold.is_some() && phases[4].cold.is_none());
                assert!(phases[3].process_seconds > phases[3].first_get_seconds);
                runs.push(Run {
                    value_size,
                    candidate: candidate.clone(),
                    phases,
                });
            }
        }
        assert_eq!(runs[0].phases[0].count, 10);
        let ratio_of = |line: &str| line.rsplit(" | ").nth(1).unwrap_or_default().to_owned();
        for (table, rows) in [(Op::Put, 4), (Op::Delete, 4), (Op::Load, 8)] {
            let text = render(&suite, table, &runs, "files");
            let found: Vec<&str> = text.lines().filter(|line| line.contains("KiB |")).collect();
            assert_eq!(found.len(), rows, "{text}");
            let columns = |line: &str| line.matches('|').count();
            let table = text.lines().filter(|line| line.starts_with('|'));
            assert!(
                table.clone().all(|line| columns(line) == columns(found[0])),
                "{text}"
            );
            assert!(found.iter().all(|line| ratio_of(line) == "1.00"), "{text}");
        }
        let text = costs(&suite, &runs);
        let found = text.lines().filter(|line| line.contains("KiB |"));
        assert!(
            found.clone().count() == 4 && found.clone().all(|line| line.matches('|').count() == 9),
            "{text}"
        );
        let text = render(&suite, Op::Get, &runs, "device");
        let mut found = text.lines().filter(|line| line.contains("KiB |"));
        assert!(found.all(|line| ratio_of(line) == "-"), "{text}");
    }

    #[test]
    fn results_of_different_classes_are_not_compared() {
        let of = |class| Measured {
            durability: Some(class),
            open_seconds: 1.0,
            ..Measured::default()
        };
        let error = ratio(&of(Class::Process), &of(Class::Power)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(
            error.to_string().contains("of durability process"),
            "{error}"
        );
        let slower = Measured {
            open_seconds: 3.0,
            ..of(Class::Power)
        };
        assert!((ratio(&of(Class::Power), &slower).unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_counts_are_those_published_times_the_scale() {
        let suite = plan("--stores files:process --scale 0.01");
        let counts: Vec<u64> = suite.sizes.iter().map(|&size| suite.count(size)).collect();
        assert_eq!(counts, [100_000, 10_000, 1000]);
    }

    #[test]
    fn a_step_that_fails_ends_the_suite_with_its_error_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let flags = "--quiet --warm --stores files:process,files:power --sizes 40KiB --scale 1e-6";
        let suite = SuitePlan {
            folder: Some(folder.path().to_path_buf()),
            ..plan(flags)
        };
        let failing = |store: &str, plan: &ObjectPlan| {
            if plan.durability == Class::Power && plan.ops == [Op::Get] {
                return Err(Error::new(Kind::Full, "by design"));
            }
            start(store, plan)
        };
        let mut runs = Vec::new();
        let error = rounds(&suite, &failing, &mut runs).unwrap_err();
        assert_eq!(error.kind(), Kind::Full);
        // What was done before is there to be told.
        assert_eq!((runs.len(), runs[0].phases.len()), (1, 5));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_suite_of_nothing_is_refused() {
        for flags in [
            "",
            "--stores files:process --scale 0",
            "--stores files:process --rounds 0",
        ] {
            let error = run(&plan(flags), &start).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{flags}");
        }
        assert!(Candidate::parse("files").is_err() && Candidate::parse("files:fast").is_err());
    }
}
