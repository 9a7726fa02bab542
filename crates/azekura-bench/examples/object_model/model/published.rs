//! The tables of the published `CannyLS` benchmark (2018), and a replay's phases beside them.
//!
//! A terabyte of objects of one size, one client, one operation at a time; MiB a second of values (operations a second
//! for DELETE), seconds of latency. The sizes are 100 KiB, 1 MiB and 10 MiB. What the model reproduces:
//!
//! | of `CannyLS` | the model | why not nearer |
//! |---|---|---|
//! | GET medians | within 5 % | the line through 1 and 10 MiB is 2.4 % above 100 KiB itself |
//! | PUT new, MiB/s | within 15 % | the published sizes differ by that, and one rate of the disk does not |
//! | PUT update of 100 KiB, all 100,000 | within 15 % | the size of the cache is a guess |
//! | PUT update of 1 and 10 MiB | not | 362 MiB/s is more than the disk takes: pauses that the tool does not count |
//! | PUT new and update of the synced journal | the median of a new 100 KiB only | what a controller does on a flush is not known |
//! | p99, max | not | other load, remapped sectors, the machine |
//!
//! Files are a class, with the processor's part fitted: medians of PUT new, and GET of 100 KiB within 15 %. Writes of the
//! fitted disk are faster than its reads; one disk at its reading rate explains PUT new within 10 % too, if the tool paused
//! 1.95 ms for each MiB before a PUT, untimed, to make its random values. It did make them there.

use std::fmt::Write as _;

use azekura_bench::phase::{Class, Phase};

const MIB: u64 = 1 << 20;

/// The sizes of the published run.
pub(crate) const SIZES: [u64; 3] = [100 << 10, MIB, 10 * MIB];

/// How many objects of a size, one of [`SIZES`], the published run had; of others a terabyte's worth.
pub(crate) const fn population(size: u64) -> u64 {
    match size {
        0 => 0,
        0x19000 => 10_000_000,
        0x10_0000 => 1_000_000,
        0xa0_0000 => 100_000,
        _ => 1_000_000_000_000 / size,
    }
}

/// A row of the published tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// The store, as [`super::Pattern::name`] names it.
    pub(crate) engine: &'static str,
    /// The phase, as [`super::run`] names it.
    pub(crate) op: &'static str,
    /// Bytes of an object.
    pub(crate) size: u64,
    /// MiB a second; for "delete" operations a second.
    pub(crate) rate: f64,
    /// Median latency in seconds.
    pub(crate) median: f64,
    /// The 99th percentile, in seconds.
    pub p99: f64,
}

const fn row(engine: &'static str, op: &'static str, size: usize, of: [f64; 3]) -> Row {
    let [rate, median, p99] = of;
    Row {
        engine,
        op,
        size: SIZES[size],
        rate,
        median,
        p99,
    }
}

/// The rows of `CannyLS`, with and without its journal in memory, and of files on XFS.
pub(crate) const ROWS: [Row; 36] = [
    row("cannyls", "put new", 0, [249.235, 0.000358, 0.001475]),
    row("cannyls(sync)", "put new", 0, [137.087, 0.000519, 0.005121]),
    row("files", "put new", 0, [9.367, 0.000125, 0.210620]),
    row("cannyls", "put new", 1, [217.070, 0.004342, 0.012747]),
    row("cannyls(sync)", "put new", 1, [142.533, 0.006241, 0.022470]),
    row("files", "put new", 1, [54.699, 0.000699, 0.473626]),
    row("cannyls", "put new", 2, [224.392, 0.043889, 0.075065]),
    row("cannyls(sync)", "put new", 2, [224.540, 0.043010, 0.084834]),
    row("files", "put new", 2, [134.809, 0.006345, 1.256966]),
    row("cannyls", "put update", 0, [57.696, 0.001473, 0.010359]),
    row(
        "cannyls(sync)",
        "put update",
        0,
        [34.065, 0.001955, 0.016928],
    ),
    row("files", "put update", 0, [2.692, 0.031768, 0.075660]),
    row("cannyls", "put update", 1, [222.293, 0.004191, 0.014692]),
    row(
        "cannyls(sync)",
        "put update",
        1,
        [163.345, 0.006310, 0.019325],
    ),
    row("files", "put update", 1, [21.004, 0.043746, 0.097234]),
    row("cannyls", "put update", 2, [362.061, 0.010537, 0.072840]),
    row(
        "cannyls(sync)",
        "put update",
        2,
        [334.785, 0.022547, 0.077606],
    ),
    row("files", "put update", 2, [87.121, 0.114569, 0.327141]),
    row("cannyls", "get", 0, [9.916, 0.009848, 0.015516]),
    row("cannyls(sync)", "get", 0, [10.170, 0.009563, 0.015115]),
    row("files", "get", 0, [3.125, 0.025806, 0.060545]),
    row("cannyls", "get", 1, [63.331, 0.015778, 0.021745]),
    row("cannyls(sync)", "get", 1, [63.949, 0.015586, 0.021668]),
    row("files", "get", 1, [19.033, 0.048192, 0.082145]),
    row("cannyls", "get", 2, [137.349, 0.072592, 0.083659]),
    row("cannyls(sync)", "get", 2, [142.484, 0.069988, 0.081944]),
    row("files", "get", 2, [57.596, 0.167162, 0.269709]),
    row("cannyls", "delete", 0, [5838.170, 0.000169, 0.000181]),
    row("cannyls(sync)", "delete", 0, [4810.811, 0.000169, 0.000355]),
    row("files", "delete", 0, [38.753, 0.018704, 0.061354]),
    row("cannyls", "delete", 1, [5854.403, 0.000169, 0.000181]),
    row("cannyls(sync)", "delete", 1, [4847.301, 0.000167, 0.000340]),
    row("files", "delete", 1, [34.177, 0.026111, 0.061702]),
    row("cannyls", "delete", 2, [5824.257, 0.000168, 0.000186]),
    row("cannyls(sync)", "delete", 2, [4971.541, 0.000168, 0.000487]),
    row("files", "delete", 2, [44.313, 0.020823, 0.063784]),
];

/// The published row of a phase, if there is one.
pub(crate) fn row_of(phase: &Phase) -> Option<&'static Row> {
    let same = |row: &&Row| {
        row.engine == phase.engine && row.op == phase.op && Some(row.size) == phase.value_size
    };
    ROWS.iter().find(same)
}

/// The rate of a phase in the unit of [`Row::rate`].
pub(crate) fn rate(phase: &Phase) -> f64 {
    phase
        .bytes_per_second
        .map_or(phase.ops_per_second, |bytes| bytes / MIB as f64)
}

/// Sorts phases by their operation; those of one stay as they are.
pub(crate) fn sort(phases: &mut [Phase]) {
    let order = ["put new", "put update", "get", "delete"];
    phases.sort_by_key(|phase| order.iter().position(|op| *op == phase.op));
}

/// Phases as a table in Markdown: each figure of the model, and what it is of the published one.
pub(crate) fn table(phases: &[Phase]) -> String {
    let mut text = String::from(
        "| op | size | store | survives | MiB/s (delete: ops/s) | median ms | p99 ms |\n|---|---:|---|---|---:|---:|---:|\n",
    );
    for phase in phases {
        let row = row_of(phase);
        let beside = |found: f64, published: Option<f64>| match published {
            Some(published) => format!("{found:.3} ({:.2}x)", found / published),
            None => format!("{found:.3}"),
        };
        let ms = |us: f64, published: Option<f64>| {
            beside(us / 1000.0, published.map(|seconds| seconds * 1000.0))
        };
        let us = phase.latency_us.as_ref();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            phase.op,
            azekura::error::size(phase.value_size.unwrap_or_default()),
            phase.engine,
            if phase.durability == Some(Class::Power) {
                "power"
            } else {
                "less"
            },
            beside(rate(phase), row.map(|row| row.rate)),
            us.map_or_else(String::new, |us| ms(us.p50, row.map(|row| row.median))),
            us.map_or_else(String::new, |us| ms(us.p99, row.map(|row| row.p99))),
        );
    }
    text
}
