//! The tables that a suite prints: a row for each size and store, in markdown.
//!
//! Rates, latencies and counts are medians over the rounds; a ratio is taken within a round, and its median
//! over the rounds. Where there is nothing to divide by, since the store that is ours was not measured in that
//! class, there is none. It measures nothing.

use azekura::error::{Error, Kind, Result, size};

use super::measured::{Measured, duration};
use super::phases::Op;
use super::published;
use super::store::Class;
use super::suite::{Candidate, Run, SuitePlan};
use super::summary::Latency;
use crate::measure::median;

/// How many times the rate of `theirs` that of `ours` is. `Invalid` for another class of durability, another phase, or
/// another size: such figures are not compared.
pub(super) fn ratio(ours: &Measured, theirs: &Measured) -> Result<f64> {
    let same = |found: &Measured| {
        (
            found.op.clone(),
            found.durability,
            found.value_size,
            found.depth,
            found.cold.is_some(),
        )
    };
    if same(ours) != same(theirs) {
        let class = |found: &Measured| found.durability.map_or("unknown", Class::word);
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
    let rate = |found: &Measured| match &found.summary {
        Some(summary) => summary.ops,
        None => 1.0 / found.open_seconds,
    };
    Ok(rate(ours) / rate(theirs))
}

/// One table, as markdown.
pub(super) fn render(plan: &SuitePlan, table: Op, runs: &[Run], ours: &str) -> String {
    let title = match table {
        Op::Put => "PUT (new)",
        Op::Update => "PUT (update)",
        Op::Get => "GET",
        Op::Delete => "DELETE",
        Op::Load => "LOAD",
    };
    let head = match table {
        Op::Load => {
            "| size | store | durability | objects | cache | open | first get | process | ours by it | published |"
        }
        Op::Delete => {
            "| size | store | durability | op/s | median | p99 | p99.9 | p99.99 | max | reads | writes | flushes | ours by it | published |"
        }
        _ => {
            "| size | store | durability | MiB/s | median | p99 | p99.9 | p99.99 | max | reads | writes | flushes | ours by it | published |"
        }
    };
    let rule = "|---".repeat(head.matches('|').count() - 1) + "|";
    let mut lines = vec![
        format!(
            "\n{title}, {} of 1 TB, depth {}; ours: {ours}\n",
            plan.scale, plan.depth
        ),
        head.to_owned(),
        rule,
    ];
    for &value_size in &plan.sizes {
        for candidate in &plan.stores {
            let of = |store: &str, cold: bool| -> Vec<&Measured> {
                let runs = runs.iter().filter(|run| {
                    run.value_size == value_size
                        && run.candidate.store == store
                        && run.candidate.class == candidate.class
                });
                let phases = runs.flat_map(|run| &run.phases);
                phases
                    .filter(|phase| {
                        phase.op == table.word()
                            && (table != Op::Load || phase.cold.is_some() == cold)
                    })
                    .collect()
            };
            let ways: &[bool] = if table == Op::Load {
                &[true, false]
            } else {
                &[false]
            };
            for &cold in ways {
                let (found, reference) = (of(&candidate.store, cold), of(ours, cold));
                if found.is_empty() {
                    continue;
                }
                let pairs = reference.iter().zip(&found);
                let shown = median(pairs.filter_map(|(ours, theirs)| ratio(ours, theirs).ok()))
                    .map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
                lines.push(row(plan, table, candidate, value_size, &found, &shown));
            }
        }
    }
    lines.join("\n")
}

fn row(
    plan: &SuitePlan,
    table: Op,
    candidate: &Candidate,
    value_size: u64,
    found: &[&Measured],
    ratio: &str,
) -> String {
    let middle =
        |of: &dyn Fn(&Measured) -> Option<f64>| median(found.iter().filter_map(|phase| of(phase)));
    let seconds =
        |of: &dyn Fn(&Measured) -> Option<f64>| middle(of).map_or_else(|| "-".into(), duration);
    let per = |of: fn(&Measured) -> Option<u64>| {
        let each = middle(&|phase| of(phase).map(|count| count as f64 / phase.count.max(1) as f64));
        each.map_or_else(|| "-".into(), |each| format!("{each:.2}"))
    };
    let size = size(value_size);
    let published =
        published::of(table, value_size, candidate).map_or_else(|| "-".into(), str::to_owned);
    let class = found[0].durability.map_or("-", Class::word);
    let begin = format!("| {size} | {} | {class} |", candidate.store);
    if table == Op::Load {
        let cold = if found[0].cold.is_some() {
            "cold"
        } else {
            "warm"
        };
        let count = plan.count(value_size);
        return format!(
            "{begin} {count} | {cold} | {} | {} | {} | {ratio} | {published} |",
            seconds(&|phase| Some(phase.open_seconds)),
            seconds(&|phase| phase.first_get_seconds),
            seconds(&|phase| phase.process_seconds),
        );
    }
    let rate = middle(&|phase| {
        let summary = phase.summary.as_ref()?;
        if table == Op::Delete {
            Some(summary.ops)
        } else {
            summary.mib_per_second
        }
    });
    let latency = |of: fn(&Latency) -> f64| {
        seconds(&|phase| phase.summary.as_ref().map(|summary| of(&summary.latency)))
    };
    format!(
        "{begin} {:.1} | {} | {} | {} | {} | {} | {} | {} | {} | {ratio} | {published} |",
        rate.unwrap_or_default(),
        latency(|latency| latency.median),
        latency(|latency| latency.p99),
        latency(|latency| latency.p999),
        latency(|latency| latency.p9999),
        latency(|latency| latency.max),
        per(|phase| phase.device_reads),
        per(|phase| phase.device_writes),
        per(|phase| phase.syncs),
    )
}
