//! Pairs of runs beside each other, and what their ratios say.
//!
//! Every run is a process of its own, so that no run inherits the memory, the allocator or the page
//! faults of another; a pair runs in alternating order, so that drift of the machine hits both sides.
//! A ratio is taken within a pair and the median over the pairs: that survives a noisy machine.
//! Above 1 means that ours is faster, or takes so many times less.
//!
//! ```text
//!   pair 1: rival, ours     pair 2: ours, rival     pair 3: rival, ours     ...
//!            `-ratio-'               `-ratio-'               `-ratio-'    -> median
//! ```
//!
//! Two sides that read different things end the comparison with `Corrupted`.

use std::path::Path;
use std::process::{Command, Stdio};

use azekura::error::{Error, Kind, Result};
use azekura_bench::measure::median;
use azekura_bench::plan::Plan;
use azekura_bench::report::Phase;

use crate::rivals::Rival;

/// Two sides of one workload, run after each other.
pub(crate) struct Pair {
    pub(crate) ours: Vec<Phase>,
    pub(crate) theirs: Vec<Phase>,
}

/// Runs one pair; `index` decides who begins. Stores are made in `folder` and removed.
pub(crate) fn run(
    rival: Rival,
    against: Rival,
    plan: &Plan,
    folder: &Path,
    index: u64,
) -> Result<Pair> {
    let pair = if index.is_multiple_of(2) {
        let theirs = child(rival, plan, folder)?;
        Pair {
            ours: child(against, plan, folder)?,
            theirs,
        }
    } else {
        let ours = child(against, plan, folder)?;
        Pair {
            theirs: child(rival, plan, folder)?,
            ours,
        }
    };
    for (ours, theirs) in pair.ours.iter().zip(&pair.theirs) {
        let counted =
            ours.op != "remove" || (rival.row().counts_removals && against.row().counts_removals);
        if ours.digest != theirs.digest || (counted && ours.hits != theirs.hits) {
            let show = |phase: &Phase| format!("{:?} {:?}", phase.hits, phase.digest);
            let what = format!(
                "{} and {} read different things",
                ours.engine, theirs.engine
            );
            return Err(Error::new(Kind::Corrupted, what).detail(format!(
                "{}: {} against {}",
                ours.op,
                show(ours),
                show(theirs)
            )));
        }
    }
    Ok(pair)
}

/// Runs `plan` on `rival` in a process of its own and reads its results.
fn child(rival: Rival, plan: &Plan, folder: &Path) -> Result<Vec<Phase>> {
    let place = tempfile::tempdir_in(folder)
        .map_err(|e| Error::io("cannot make a folder for the store", e).at(folder))?;
    let batch = if rival.row().batches { plan.batch } else { 1 };
    let path = Some(place.path().join("store"));
    let plan = Plan {
        path,
        batch,
        json: true,
        ..plan.clone()
    };
    let program = std::env::current_exe().map_err(|e| Error::io("cannot find this program", e))?;
    let output = Command::new(program)
        .args(["record", "--rival", &rival.word()])
        .args(plan.flags())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| Error::io("cannot start a run", e))?;
    if !output.status.success() {
        return Err(
            Error::new(Kind::Io, format!("the run of {} failed", rival.word()))
                .detail(output.status.to_string()),
        );
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(Phase::from_json)
        .collect()
}

/// The ratios of one phase: of a pair, or medians of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ratios {
    /// Operations per second of ours over theirs.
    pub(crate) rate: f64,
    /// Processor time, theirs over ours, as all that follow; `None` where there is nothing to divide.
    pub(crate) cpu: Option<f64>,
    pub(crate) private: Option<f64>,
    pub(crate) memory: Option<f64>,
    pub(crate) file: Option<f64>,
}

impl Ratios {
    /// The names of the figures, in the order of [`figures`](Self::figures).
    pub(crate) const NAMES: [&'static str; 5] = ["rate", "cpu", "private", "memory", "file"];

    pub(crate) fn of(ours: &Phase, theirs: &Phase) -> Self {
        let less = |of: fn(&Phase) -> Option<u64>| match (of(ours), of(theirs)) {
            (Some(ours), Some(theirs)) if ours > 0 && theirs > 0 => {
                Some(theirs as f64 / ours as f64)
            }
            _ => None,
        };
        Self {
            rate: ours.ops_per_second / theirs.ops_per_second,
            cpu: (ours.cpu_seconds > 0.0).then(|| theirs.cpu_seconds / ours.cpu_seconds),
            private: less(|phase| phase.private_bytes),
            memory: less(|phase| phase.memory_bytes),
            file: less(|phase| phase.file_bytes),
        }
    }

    /// The median of each figure.
    pub(crate) fn median(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> Option<f64>| median(all.iter().filter_map(figure));
        Self {
            rate: of(|ratios| Some(ratios.rate)).unwrap_or_default(),
            cpu: of(|ratios| ratios.cpu),
            private: of(|ratios| ratios.private),
            memory: of(|ratios| ratios.memory),
            file: of(|ratios| ratios.file),
        }
    }

    pub(crate) fn figures(&self) -> [Option<f64>; 5] {
        [
            Some(self.rate),
            self.cpu,
            self.private,
            self.memory,
            self.file,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(rate: f64, cpu: f64, private: u64) -> Phase {
        let json = format!(
            "{{\"engine\":\"x\",\"op\":\"set\",\"threads\":1,\"count\":1,\"key_size\":8,\
             \"value_size\":8,\"seconds\":1.0,\"ops_per_second\":{rate},\"cpu_seconds\":{cpu},\
             \"private_bytes\":{private}}}"
        );
        Phase::from_json(&json).unwrap()
    }

    #[test]
    fn above_one_is_better_for_us_in_every_figure() {
        let ratios = Ratios::of(&phase(200.0, 1.0, 50), &phase(100.0, 3.0, 100));
        let expected = Ratios {
            rate: 2.0,
            cpu: Some(3.0),
            private: Some(2.0),
            ..Ratios::default()
        };
        assert_eq!(ratios, expected);
        assert_eq!(
            Ratios::of(&phase(1.0, 1.0, 0), &phase(1.0, 1.0, 9)).private,
            None
        );
        let median = Ratios::median(&[
            ratios,
            ratios,
            Ratios {
                rate: 9.0,
                ..ratios
            },
        ]);
        assert_eq!(median, ratios);
    }
}
