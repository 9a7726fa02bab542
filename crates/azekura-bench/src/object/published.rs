//! The rates of the published benchmark, to be printed next to what is measured.
//!
//! The figures stand in `workloads/cannyls.txt`, one line a row. A store has one next to it if it is the same
//! program in the same class as one of the published four. They were reached on another machine: they are
//! no ratios.

use azekura::error::{Result, size};

use super::run::Candidate;
use crate::phase::{Class, Phase};
use crate::report::line;

const ROWS: &str = include_str!("../../workloads/cannyls.txt");

/// What the published benchmark calls a store.
fn called(candidate: &Candidate) -> Option<&'static str> {
    match (candidate.store.as_str(), candidate.class) {
        ("cannyls-device", Class::Buffered) => Some("cannyls"),
        ("cannyls-device", Class::Power) => Some("cannyls(sync)"),
        ("files", Class::Process) => Some("xfs"),
        ("rocksdb", Class::Process) => Some("rocksdb"),
        _ => None,
    }
}

/// Prints what was published next to phases of a store, if anything was.
pub(super) fn print(phases: &[Phase], candidate: &Candidate) -> Result<()> {
    let found = phases.iter().filter_map(|phase| {
        let rate = of(&phase.op, phase.value_size?, candidate)?;
        let unit = match phase.op.as_str() {
            "delete" => "op/s",
            "load" => "s",
            _ => "MiB/s",
        };
        Some(format!("{} {rate} {unit}", phase.op))
    });
    let found: Vec<String> = found.collect();
    if found.is_empty() {
        return Ok(());
    }
    line(&format!("  published for this store: {}", found.join(", ")))
}

/// The published MiB/s (of `delete` op/s, of `load` seconds) of the same store at the same size.
fn of(table: &str, value_size: u64, candidate: &Candidate) -> Option<&'static str> {
    let (store, size) = (called(candidate)?, size(value_size).replace(' ', ""));
    let rows = ROWS.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .find(|row| row[..3] == [table, &size, store])
        .map(|row| row[3])
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::object::plan::Op;

    #[test]
    fn every_row_is_found_and_its_latencies_ascend() {
        let mut rows = 0;
        for line in ROWS.lines().filter(|line| !line.starts_with('#')) {
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let op = Op::from_str(parts[0], false).unwrap();
            let rate: f64 = parts[3].parse().unwrap();
            assert!(rate > 0.0, "{line}");
            if op != Op::Load {
                let seconds: Vec<f64> = parts[4]
                    .split(' ')
                    .map(|number| number.parse().unwrap())
                    .collect();
                assert!(seconds.len() == 3 && seconds.is_sorted(), "{line}");
            }
            rows += 1;
        }
        assert_eq!(rows, 4 * 12 + 12);
        for (name, class, table, size, found) in [
            ("files", Class::Process, "put", 102_400, Some("9.367")),
            (
                "cannyls-device",
                Class::Power,
                "get",
                1 << 20,
                Some("63.949"),
            ),
            ("rocksdb", Class::Process, "load", 10 << 20, Some("112.335")),
            ("files", Class::Power, "put", 102_400, None),
            ("files", Class::Process, "put", 4096, None),
        ] {
            let candidate = Candidate {
                store: name.into(),
                class,
            };
            assert_eq!(of(table, size, &candidate), found, "{name}");
        }
    }
}
