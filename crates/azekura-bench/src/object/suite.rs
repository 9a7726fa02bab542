//! The phases of the published benchmark, at a given scale, for several stores in turn.
//!
//! Each store holds so many values of each size; a hundredth of them is updated, read and removed, and
//! the store is opened, cold and warm. Every step is a process of its own, so that neither memory nor caches
//! of one store are another's. Each result is printed as it is there, with the published one if there is one. The ratios
//! of a size (`comparison`) follow its last round: those of one store over each other of the same class of durability.
//!
//! Standard error shows each step when it begins: a bar if that is a terminal, otherwise a line. The folder of a store is
//! removed after its last step, and when the suite fails or is interrupted. A step that failed ends the suite with its exit
//! code.
//!
//! It does not know which stores there are: the caller passes a function that starts a process.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use azekura::error::{Result, size};
use indicatif::ProgressBar;

use super::plan::{ObjectPlan, Op};
use super::published;
use super::run::{Candidate, SuitePlan};
use crate::child;
use crate::comparison::{Comparison, Pair, in_turn};
use crate::phase::{Details, Phase};
use crate::report::{Output, line, progress};
use crate::unfinished::{Unfinished, fresh_name};
use crate::words::word;

/// Starts a process that runs the phases of a plan on the store of that name, and returns what it printed.
pub type Start<'s> = &'s dyn Fn(&str, &ObjectPlan) -> Result<Vec<Phase>>;

/// A process of this program: `words` are its command, before the store's name.
pub fn process(words: &[&str], store: &str, plan: &ObjectPlan) -> Result<Vec<Phase>> {
    let ops: Vec<String> = plan.ops.iter().map(word).collect();
    let what = format!(
        "the step {} of {store}, durability {}, values of {},",
        ops.join(","),
        plan.durability,
        size(plan.value_size)
    );
    child::phases(&[words, &[store]].concat(), plan.flags(), &what)
}

/// Shows which step runs.
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
        let what = format!("{store} {class} {} {}", size(value_size), word(&op));
        self.bar.set_position(begun);
        self.bar.set_message(what.clone());
        self.bar.tick();
        if self.lines {
            // A closed standard error is no error of the suite.
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "step {} of {}: {what}", begun + 1, self.all);
        }
    }
}

/// Runs the suite and prints its results.
///
/// Errors: `Invalid` (a scale, a store or a class that is none), and whatever a step reports.
pub fn run(plan: &SuitePlan, start: Start<'_>) -> Result<()> {
    plan.check()?;
    let (shown, mut output) = (Steps::of(plan), Output::new(plan.json));
    for &value_size in &plan.sizes {
        let mut comparisons: Vec<_> = plan.stores.iter().map(|_| None).collect();
        for round in 0..plan.rounds {
            let done = in_turn(round, plan.stores.len(), |side| {
                let candidate = &plan.stores[side];
                let phases = one(plan, start, &shown, candidate, value_size)?;
                shown.bar.suspend(|| {
                    phases.iter().try_for_each(|phase| output.phase(phase))?;
                    if plan.json {
                        return Ok(());
                    }
                    published::print(&phases, candidate)
                })?;
                Ok(phases)
            })?;
            compare(plan, value_size, &done, &mut comparisons);
        }
        for comparison in comparisons.into_iter().flatten().filter(|_| !plan.json) {
            line(&format!("\n{}", comparison.table().trim_end()))?;
        }
    }
    shown.bar.finish_and_clear();
    output.finish()
}

/// Adds what the stores did in a round to the comparison of each with ours, where there is ours in its class.
fn compare(
    plan: &SuitePlan,
    value_size: u64,
    done: &[Vec<Phase>],
    comparisons: &mut [Option<Comparison>],
) {
    let ours = plan.against.as_ref().unwrap_or(&plan.stores[0].store);
    let durability = |phases: &[Phase]| phases.first().map(|phase| phase.durability);
    for ((candidate, theirs), comparison) in plan.stores.iter().zip(done).zip(comparisons) {
        let is_ours = |other: &Candidate| other.store == *ours && other.class == candidate.class;
        let Some(place) = plan.stores.iter().position(is_ours) else {
            continue;
        };
        // A store without a file has another durability than the requested one.
        if candidate.store != *ours && durability(&done[place]) == durability(theirs) {
            let Candidate { store, class } = candidate;
            let name = format!("{ours} over {store}, {class}, {}", size(value_size));
            let comparison = comparison.get_or_insert_with(|| Comparison::new(&name, Vec::new()));
            comparison.add(Pair {
                ours: done[place].clone(),
                theirs: theirs.clone(),
            });
        }
    }
}

/// The steps of one store in one round, in a folder of its own and in the order of the published benchmark.
fn one(
    plan: &SuitePlan,
    start: Start<'_>,
    shown: &Steps,
    candidate: &Candidate,
    value_size: u64,
) -> Result<Vec<Phase>> {
    let folder = plan.folder.clone().unwrap_or_else(std::env::temp_dir);
    let place = Unfinished::folder(&folder.join(fresh_name("objects")))?;
    let path = place.path().join("store");
    let step = plan.step(&path, candidate.class, value_size);
    let run = |op: Op, cold: bool| {
        if op != Op::Put && !plan.tables.contains(&op) {
            return Ok(Vec::new());
        }
        let ops = vec![op];
        let step = ObjectPlan {
            ops,
            cold,
            ..step.clone()
        };
        shown.begin(candidate, value_size, op);
        start(&candidate.store, &step)
    };
    let mut found = Vec::new();
    for op in [Op::Put, Op::Update, Op::Get] {
        found.extend(run(op, !plan.warm)?);
    }
    let ways: &[bool] = if plan.warm { &[false] } else { &[true, false] };
    for &cold in ways {
        let started = Instant::now();
        let mut phases = run(Op::Load, cold)?;
        let took = started.elapsed().as_secs_f64();
        for phase in &mut phases {
            // Dropping the caches is no part of a start.
            if let Details::Object(object) = &mut phase.details {
                let forget = object.forget_seconds.unwrap_or(0.0);
                object.process_seconds = Some((took - forget).max(0.0));
            }
        }
        found.extend(phases);
    }
    found.extend(run(Op::Delete, !plan.warm)?);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use azekura::Kind;
    use clap::ValueEnum as _;

    use super::*;
    use crate::object::phases;
    use crate::object::stores::Engine;
    use crate::phase::collect;
    use crate::words::read_flags;

    fn plan(flags: &str) -> SuitePlan {
        read_flags(flags).unwrap()
    }

    /// The steps in this process.
    fn start(store: &str, plan: &ObjectPlan) -> Result<Vec<Phase>> {
        let engine = Engine::from_str(store, false).unwrap();
        collect(|emit| phases::run(store, engine.open(), plan, emit))
    }

    #[test]
    fn every_store_runs_every_step_and_is_compared_with_ours_of_its_class() {
        let folder = tempfile::tempdir().unwrap();
        let flags = "--quiet --stores files:process,files:power,azekura:power \
                     --sizes 40KiB --scale 1e-6";
        let suite = SuitePlan {
            folder: Some(folder.path().to_path_buf()),
            ..plan(flags)
        };
        let shown = Steps::of(&suite);
        let stores = suite.stores.iter();
        let done: Vec<_> = stores
            .map(|candidate| one(&suite, &start, &shown, candidate, 40 << 10).unwrap())
            .collect();
        assert_eq!(shown.begun.get(), shown.all);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        for phases in &done {
            let ops: Vec<&str> = phases.iter().map(|phase| phase.op.as_str()).collect();
            assert_eq!(ops, ["put", "update", "get", "load", "load", "delete"]);
        }
        let [cold, warm] = [3, 4].map(|index: usize| done[0][index].object().unwrap());
        assert!(cold.cold.is_some() && warm.cold.is_none());
        assert!(cold.process_seconds > cold.first_get_seconds);
        let mut comparisons = vec![None, None, None];
        compare(&suite, 40 << 10, &done, &mut comparisons);
        assert!(comparisons[..2].iter().all(Option::is_none));
        let table = comparisons[2].as_ref().unwrap().table();
        assert!(table.starts_with("files over azekura, power, 40 KiB (1 pairs)\n"));
        assert_eq!(table.lines().filter(|line| line.contains("x ")).count(), 6);
    }

    #[test]
    fn the_counts_are_those_published_times_the_scale() {
        let suite = plan("--stores files:process --scale 0.01");
        let counts: Vec<u64> = suite.sizes.iter().map(|&size| suite.count(size)).collect();
        assert_eq!(counts, [100_000, 10_000, 1000]);
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
