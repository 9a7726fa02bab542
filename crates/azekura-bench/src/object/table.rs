//! The tables that a suite prints: a row for each size and store, in markdown.
//!
//! Rates, latencies and counts are medians over the rounds; a ratio is taken within a round, and its median
//! over the rounds. Where there is nothing to divide by, since the store that is ours was not measured in that
//! class, there is none. It measures nothing.

use azekura::error::{Error, Kind, Result, size};

use super::lines::duration;
use super::plan::Op;
use super::published;
use super::run::{Candidate, Run, SuitePlan};
use super::summary::Latency;
use crate::comparison::more;
use crate::forget::Forgot;
use crate::measure::median;
use crate::phase::{Class, Phase};

/// How many times the rate of `theirs` that of `ours` is. `Invalid` for another class of durability, another phase, or
/// another size: such figures are not compared.
pub(super) fn ratio(ours: &Phase, theirs: &Phase) -> Result<f64> {
    let same = |found: &Phase| {
        (
            found.op.clone(),
            found.durability,
            found.value_size,
            found.threads,
            is_cold(found),
        )
    };
    if same(ours) != same(theirs) {
        let class = |found: &Phase| found.durability.map_or("unknown", Class::word);
        return Err(Error::new(
            Kind::Invalid,
            "results of different classes are not compared",
        )
        .detail(format!(
            "{} {} of durability {}, {} {} of {}",
            ours.engine,
            ours.op,
            class(ours),
            theirs.engine,
            theirs.op,
            class(theirs)
        ))
        .remedy("measure both with the same flags"));
    }
    let opens = |found: &Phase| Some(1.0 / found.object()?.open_seconds);
    let rate = |found: &Phase| rate(found).or_else(|| opens(found));
    Ok(more(rate(ours), rate(theirs)).unwrap_or(f64::NAN))
}

fn is_cold(found: &Phase) -> bool {
    found.object().is_some_and(|object| object.cold.is_some())
}

/// Operations a second: of the sum of latencies, as published, where one was outstanding at a time, otherwise
/// of the time that passed.
fn rate(found: &Phase) -> Option<f64> {
    let summary = found.summary()?;
    let count = summary.done() as f64;
    Some(if found.threads == 1 {
        summary.ops
    } else {
        count / summary.wall.max(1e-9)
    })
}

/// What several rounds of a store did in one phase at one size.
struct Rounds<'r>(Vec<&'r Phase>);

impl<'r> Rounds<'r> {
    fn of(runs: &'r [Run], value_size: u64, store: &str, class: Class, op: Op, cold: bool) -> Self {
        let asked = runs.iter().filter(|run| {
            let candidate = (run.candidate.store.as_str(), run.candidate.class);
            run.value_size == value_size && candidate == (store, class)
        });
        // Of the other phases, all are cold, or none.
        let is =
            |phase: &&Phase| phase.op == op.word() && (op != Op::Load || is_cold(phase) == cold);
        Self(asked.flat_map(|run| &run.phases).filter(is).collect())
    }

    fn middle(&self, of: impl Fn(&Phase) -> Option<f64>) -> Option<f64> {
        median(self.0.iter().filter_map(|phase| of(phase)))
    }

    fn shown(&self, digits: usize, of: impl Fn(&Phase) -> Option<f64>) -> String {
        let middle = self.middle(of);
        middle.map_or_else(|| "-".into(), |middle| format!("{middle:.digits$}"))
    }

    fn seconds(&self, of: impl Fn(&Phase) -> Option<f64>) -> String {
        self.middle(of).map_or_else(|| "-".into(), duration)
    }

    fn latency(&self, of: impl Fn(&Latency) -> f64) -> String {
        self.seconds(|phase| Some(of(&phase.summary()?.latency)))
    }

    /// For each operation.
    fn each(&self, of: impl Fn(&Phase) -> Option<u64>) -> String {
        self.shown(2, |phase| {
            Some(of(phase)? as f64 / phase.count.max(1) as f64)
        })
    }

    fn class(&self) -> &'static str {
        let first = self.0.first().and_then(|phase| phase.durability);
        first.map_or("-", Class::word)
    }

    fn cache(&self) -> &'static str {
        match self.0.first().and_then(|phase| phase.object()?.cold) {
            None => "warm",
            Some(Forgot::Caches) => "cold",
            Some(Forgot::Pages) => "pages cold",
        }
    }

    fn ratio(&self, ours: &Self) -> String {
        let pairs = ours.0.iter().zip(&self.0);
        let ratios = pairs.filter_map(|(ours, theirs)| ratio(ours, theirs).ok());
        median(ratios).map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
    }
}

/// The columns that identify a row, of all tables.
const WHO: &str = "| size | store | durability |";
/// What stands at the right of every table of a phase.
const LAST: &str = "ours by it | published |";

/// The table of a phase, as markdown.
pub(super) fn render(plan: &SuitePlan, table: Op, runs: &[Run], ours: &str) -> String {
    let title = match table {
        Op::Put => "PUT (new)",
        Op::Update => "PUT (update)",
        Op::Get => "GET",
        Op::Delete => "DELETE",
        Op::Load => "LOAD",
    };
    let unit = if table == Op::Delete { "op/s" } else { "MiB/s" };
    let columns = match table {
        Op::Load => "objects | cache | open | first get | process |".to_owned(),
        _ => format!("{unit} | median | p99 | p99.9 | p99.99 | max | reads | writes | flushes |"),
    };
    let title = format!(
        "{title}, {} of 1 TB, depth {}; ours: {ours}",
        plan.scale, plan.how.depth
    );
    let mut lines = head(&title, &format!("{WHO} {columns} {LAST}"));
    let ways: &[bool] = if table == Op::Load {
        &[true, false]
    } else {
        &[false]
    };
    for (value_size, candidate) in rows(plan) {
        for &cold in ways {
            let of =
                |store: &str| Rounds::of(runs, value_size, store, candidate.class, table, cold);
            let found = of(&candidate.store);
            if found.0.is_empty() {
                continue;
            }
            let figures = match table {
                Op::Load => load(&found, plan.count(value_size)),
                _ => phase(&found, table),
            };
            let published = published::of(table, value_size, candidate).unwrap_or("-");
            lines.push(format!(
                "| {} | {} | {} | {figures} | {} | {published} |",
                size(value_size),
                candidate.store,
                found.class(),
                found.ratio(&of(ours)),
            ));
        }
    }
    lines.join("\n")
}

/// What the puts cost beside their time.
pub(super) fn costs(plan: &SuitePlan, runs: &[Run]) -> String {
    let columns = "written | files | memory | private | processor |";
    let mut lines = head("What PUT (new) costs", &format!("{WHO} {columns}"));
    for (value_size, candidate) in rows(plan) {
        let class = candidate.class;
        let found = Rounds::of(runs, value_size, &candidate.store, class, Op::Put, false);
        if found.0.is_empty() {
            continue;
        }
        // Bytes by bytes of values, and seconds by GiB of them.
        let values = |phase: &Phase| Some(phase.count as f64 * phase.value_size? as f64);
        let by = |of: fn(&Phase) -> Option<u64>| {
            found.shown(2, |phase| Some(of(phase)? as f64 / values(phase)?))
        };
        let bytes = |of: fn(&Phase) -> Option<u64>| {
            let middle = found.middle(|phase| of(phase).map(|bytes| bytes as f64));
            #[expect(clippy::cast_sign_loss, reason = "no memory is negative")]
            middle.map_or_else(|| "-".into(), |bytes| size(bytes as u64))
        };
        let gib = f64::from(1 << 30);
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            size(value_size),
            candidate.store,
            found.class(),
            by(|phase| phase.cost.device.bytes_written),
            by(|phase| phase.cost.allocated_bytes),
            bytes(|phase| phase.cost.memory_bytes),
            bytes(|phase| phase.cost.private_bytes),
            found.seconds(|phase| Some(phase.cpu_seconds / (values(phase)? / gib))),
        ));
    }
    lines.push(
        "\nwritten: bytes the device wrote by bytes of values; files: what the store takes by the same;\n\
         processor: of all threads, for each GiB of values, making them included"
            .to_owned(),
    );
    lines.join("\n")
}

fn head(title: &str, columns: &str) -> Vec<String> {
    let rule = "|---".repeat(columns.matches('|').count() - 1) + "|";
    vec![format!("\n{title}\n"), columns.to_owned(), rule]
}

fn rows(plan: &SuitePlan) -> impl Iterator<Item = (u64, &Candidate)> {
    let sizes = plan.sizes.iter();
    sizes.flat_map(|&size| plan.stores.iter().map(move |candidate| (size, candidate)))
}

fn load(found: &Rounds<'_>, count: u64) -> String {
    format!(
        "{count} | {} | {} | {} | {}",
        found.cache(),
        found.seconds(|phase| Some(phase.object()?.open_seconds)),
        found.seconds(|phase| phase.object()?.first_get_seconds),
        found.seconds(|phase| phase.object()?.process_seconds),
    )
}

fn phase(found: &Rounds<'_>, table: Op) -> String {
    let mib = f64::from(1 << 20);
    let rate = found.shown(1, |phase| {
        let ops = rate(phase)?;
        Some(if table == Op::Delete {
            ops
        } else {
            ops * phase.value_size? as f64 / mib
        })
    });
    format!(
        "{rate} | {} | {} | {} | {} | {} | {} | {} | {}",
        found.latency(|latency| latency.median),
        found.latency(|latency| latency.p99),
        found.latency(|latency| latency.p999),
        found.latency(|latency| latency.p9999),
        found.latency(|latency| latency.max),
        found.each(|phase| phase.cost.device.reads),
        found.each(|phase| phase.cost.device.writes),
        found.each(|phase| phase.cost.device.syncs),
    )
}
