//! Stores on the same part of a disk, side by side: phases as ratios, for one class of durability at a time.
//!
//! Latencies are of the model: a disk that has no faults, and no other load; each store has a disk of its own, in the state in
//! which its phases left it. It runs nothing but what it is given, and knows of stores only what they do to a disk.

use std::fmt::Write as _;

use azekura::error::{Result, size};
use azekura::io::sim::drive::Parameters;

use super::published::{SIZES, rate, sort};
use super::{Azekura, CAPACITY, Cannyls, Files, Pattern, Plan, run};
use azekura_bench::phase::Phase;

/// Runs the published phases at its three sizes on a drive and in stores of one `part` of the published ones, with one
/// operation of `scale`: azekura, `CannyLS` and files, in the durable class if `power`.
pub(crate) fn run_all(disk: &Parameters, part: u64, scale: u64, power: bool) -> Result<Vec<Phase>> {
    let part = part.max(1);
    let disk = disk.clone().with_capacity(disk.capacity / part);
    let capacity = CAPACITY / part;
    let mut phases = Vec::new();
    for size in SIZES {
        let cannyls = Cannyls::new(disk.clone(), if power { 0 } else { 4096 });
        let patterns: [Box<dyn Pattern>; 3] = [
            Box::new(Azekura::new(disk.clone(), capacity, power)?),
            Box::new(cannyls.direct(capacity)),
            Box::new(Files::new(disk.clone(), power)),
        ];
        for mut pattern in patterns {
            let plan = Plan::of_part(size, part, scale);
            run(&plan, pattern.as_mut(), &mut |phase| {
                phases.push(phase);
                Ok(())
            })?;
        }
    }
    sort(&mut phases);
    Ok(phases)
}

/// Phases as a table in Markdown; behind each rate of another store, how many times that azekura's is.
pub(crate) fn table(phases: &[Phase]) -> String {
    let mut text = String::from(
        "| op | size | store | MiB/s (delete: ops/s) | azekura's is | median ms | p99 ms | p99.99 ms | p99.99 / p50 | reads, writes, flushes an op |\n|---|---:|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for phase in phases {
        let ours = phases.iter().find(|other| {
            other.engine.starts_with("azekura")
                && (&other.op, other.value_size) == (&phase.op, phase.value_size)
        });
        let times = ours
            .filter(|ours| ours.engine != phase.engine)
            .map_or_else(String::new, |ours| {
                format!("{:.2}x", rate(ours) / rate(phase))
            });
        let each = |count: Option<u64>| count.unwrap_or(0) as f64 / phase.count.max(1) as f64;
        let Some(us) = &phase.latency_us else {
            continue;
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {times} | {:.3} | {:.3} | {:.3} | {:.1} | {:.2}, {:.2}, {:.2} |",
            phase.op,
            size(phase.value_size.unwrap_or_default()),
            phase.engine,
            rate(phase),
            us.p50 / 1000.0,
            us.p99 / 1000.0,
            us.p9999 / 1000.0,
            us.p9999 / us.p50,
            each(phase.cost.device.reads),
            each(phase.cost.device.writes),
            each(phase.cost.device.syncs),
        );
    }
    text
}
