//! The tables of the published benchmark, at a given scale, for several stores beside each other.
//!
//! Each store holds so many values of each size; a hundredth of them is updated, read and removed, and
//! the store is opened, cold and warm. Every step is a process of its own, so that neither memory nor caches
//! of one store are another's. Where there are rounds, the order of the stores turns from one to the next, and a
//! figure is the median of the rounds'. A ratio is the rate of one store over another's in the same round,
//! and only of the same class of durability: others are refused.
//!
//! Standard error shows each step when it begins: a bar if that is a terminal, otherwise a line. The folder of a store is
//! removed after its last step, and when the suite fails or is interrupted. After a step that failed the tables show the
//! results so far, and the suite ends with that step's exit code.
//!
//! It does not know which stores there are: the caller passes a function that starts a process.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

use azekura::error::{Result, size};
use indicatif::ProgressBar;

use super::plan::{ObjectPlan, Op};
use super::run::{Candidate, Run, SuitePlan};
use super::table::{costs, render};
use crate::child;
use crate::comparison::in_turn;
use crate::phase::{Details, Phase};
use crate::report::{line, progress};
use crate::unfinished::{Unfinished, fresh_name};

/// Starts a process that runs the phases of a plan on the store of that name, and returns what it printed.
pub type Start<'s> = &'s dyn Fn(&str, &ObjectPlan) -> Result<Vec<Phase>>;

/// A process of this program: `words` are its command, before the store's name.
pub fn process(words: &[&str], store: &str, plan: &ObjectPlan) -> Result<Vec<Phase>> {
    let ops: Vec<&str> = plan.ops.iter().map(|op| op.word()).collect();
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
        let what = format!("{store} {class} {} {}", size(value_size), op.word());
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
    let shown = Steps::of(plan);
    for round in 0..plan.rounds {
        for &value_size in &plan.sizes {
            in_turn(round, plan.stores.len(), |side| {
                let candidate = &plan.stores[side];
                let place = Unfinished::folder(&folder.join(fresh_name("objects")))?;
                let path = place.path().join("store");
                let begin = |op| shown.begin(candidate, value_size, op);
                let phases = steps(plan, start, &begin, &path, candidate, value_size)?;
                if plan.json {
                    let print = || phases.iter().try_for_each(|phase| line(&phase.to_json()));
                    shown.bar.suspend(print)?;
                }
                runs.push(Run {
                    value_size,
                    candidate: candidate.clone(),
                    phases,
                });
                Ok(())
            })?;
        }
    }
    shown.bar.finish_and_clear();
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
) -> Result<Vec<Phase>> {
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
                // Dropping the caches is no part of a start.
                if let Details::Object(object) = &mut phase.details {
                    let forget = object.forget_seconds.unwrap_or(0.0);
                    object.process_seconds = Some((took - forget).max(0.0));
                }
            }
            found.extend(phases);
        }
    }
    found.extend(run(Op::Delete)?);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use azekura::Kind;
    use azekura::error::Error;
    use clap::ValueEnum as _;

    use super::*;
    use crate::object::phases;
    use crate::object::stores::Engine;
    use crate::object::table::ratio;
    use crate::phase::{Class, Object, collect};
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
                let [cold, warm] = [3, 4].map(|index: usize| phases[index].object().unwrap());
                assert!(cold.cold.is_some() && warm.cold.is_none());
                assert!(cold.process_seconds > cold.first_get_seconds);
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
        let of = |class, open_seconds| Phase {
            durability: Some(class),
            details: Details::Object(Box::new(Object {
                open_seconds,
                ..Object::default()
            })),
            ..Phase::default()
        };
        let error = ratio(&of(Class::Process, 1.0), &of(Class::Power, 1.0)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(
            error.to_string().contains("of durability process"),
            "{error}"
        );
        let (ours, slower) = (of(Class::Power, 1.0), of(Class::Power, 3.0));
        assert!((ratio(&ours, &slower).unwrap() - 3.0).abs() < 1e-9);
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
        // The results before it are kept.
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
