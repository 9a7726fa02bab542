//! Suites: workloads as data, named lines of flags with the ratios required.
//!
//! ```text
//!   name | flags of a benchmark | phase ratio, phase ratio    (or `-`: no ratio is required)
//! ```
//!
//! Instead of a phase, the name of a figure (`private`, `file`, `p999`, ...) requires so many times less of it after the first
//! phase, and for a server `rate` and `cpu` are those of its one phase. A name that begins with `huge:` only runs on request. Lines that begin with `#`
//! are comments. It does not know which sides are compared.

use azekura::error::{Error, Kind, Result};
use clap::{Args, ValueEnum};

use crate::comparison::Ratios;
use crate::plan::{Op, Plan};
use crate::words::read_flags;

/// The suites this crate carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// The published benchmark, with the ratios asked of the hash file
    Asked,
    /// The same, with the ratios asked of `tiny`
    Tiny,
    /// The same, with the ratios required of `tiny` against the concurrent maps of Rust
    Maps,
    /// The same, with the ratios asked of `baby`
    Baby,
    /// The same, with the ratios asked of `cache`
    Cache,
    /// The same, with the ratios asked of the standard library's maps
    Std,
    /// The same and more, with the ratios asked of the tree file against Tkrzw's `TreeDBM`
    Tree,
    /// The same, with the ratios asked of the sorted file against Tkrzw's `SkipDBM`
    Skip,
    /// The ratios required of the tree file against LMDB
    TreeLmdb,
    /// The ratios required of the tree file against redb
    TreeRedb,
    /// The tree file measured against `RocksDB`
    TreeRocksdb,
    /// What the published benchmark leaves out
    Shapes,
}

impl Suite {
    /// The lines of the suite, in order.
    pub fn rows(self) -> Result<Vec<Row<Plan>>> {
        let text = match self {
            Self::Asked => include_str!("../workloads/asked.txt"),
            Self::Tiny => include_str!("../workloads/tiny.txt"),
            Self::Maps => include_str!("../workloads/maps.txt"),
            Self::Baby => include_str!("../workloads/baby.txt"),
            Self::Cache => include_str!("../workloads/cache.txt"),
            Self::Std => include_str!("../workloads/std.txt"),
            Self::Tree => include_str!("../workloads/tree.txt"),
            Self::Skip => include_str!("../workloads/skip.txt"),
            Self::TreeLmdb => include_str!("../workloads/tree-lmdb.txt"),
            Self::TreeRedb => include_str!("../workloads/tree-redb.txt"),
            Self::TreeRocksdb => include_str!("../workloads/tree-rocksdb.txt"),
            Self::Shapes => include_str!("../workloads/shapes.txt"),
        };
        rows(text, &|what| {
            Ratios::NAMES.contains(&what) || Op::from_str(what, false).is_ok()
        })
    }
}

/// One workload of a suite.
#[derive(Clone, Debug)]
pub struct Row<P> {
    /// Its name in results.
    pub name: String,
    /// Whether it takes so long that it only runs on request.
    pub huge: bool,
    /// Its flags; no place is among them.
    pub plan: P,
    /// The ratios required: of a phase's rate by its word, or of a figure by its name. Above one is better.
    pub asked: Vec<(String, f64)>,
}

/// The rows of a suite; ratios are asked of what `is_asked` knows.
///
/// Errors: `Invalid` for a line that is not a row, with its number.
pub fn rows<P: Args>(text: &str, is_asked: &dyn Fn(&str) -> bool) -> Result<Vec<Row<P>>> {
    let lines = (1..).zip(text.lines());
    lines
        .filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty())
        .map(|(number, line)| row(number, line, is_asked))
        .collect()
}

fn row<P: Args>(number: usize, line: &str, is_asked: &dyn Fn(&str) -> bool) -> Result<Row<P>> {
    let wrong = |what: &str| {
        Error::new(Kind::Invalid, format!("line {number} of a suite: {what}")).key(line.as_bytes())
    };
    let parts: Vec<&str> = line.split('|').map(str::trim).collect();
    let &[name, flags, asked] = parts.as_slice() else {
        return Err(wrong("three parts are expected"));
    };
    let plan = read_flags::<P>(flags).map_err(|error| wrong("flags").detail(error.to_string()))?;
    let ratio = |one: &str| {
        let (what, ratio) = one.trim().split_once(' ')?;
        let ratio: f64 = ratio.parse().ok()?;
        is_asked(what).then(|| (what.to_owned(), ratio))
    };
    let asked = match asked {
        "-" => Vec::new(),
        asked => asked
            .split(',')
            .map(ratio)
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("`phase ratio, phase ratio` is expected"))?,
    };
    let (huge, name) = match name.strip_prefix("huge: ") {
        Some(name) => (true, name),
        None => (false, name),
    };
    Ok(Row {
        name: name.to_owned(),
        huge,
        plan,
        asked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::Engine;
    use crate::phase::{Phase, collect};
    use crate::words::word;

    fn asked_for(row: &Row<Plan>, what: &str) -> Option<f64> {
        let found = row.asked.iter().find(|(asked, _)| asked == what);
        found.map(|(_, ratio)| *ratio)
    }

    fn tiny(engine: Engine, plan: &Plan) -> Vec<Phase> {
        let folder = tempfile::tempdir().unwrap();
        let count = 300 / plan.threads;
        let path = Some(folder.path().join("tiny"));
        let plan = Plan {
            path,
            count,
            later: plan.later.map(|later| later.min(count)),
            memory: None,
            json: true,
            ..plan.clone()
        };
        collect(|emit| engine.record(&plan, emit)).unwrap()
    }

    #[test]
    fn every_workload_runs_tiny_and_engines_agree_on_what_they_read() {
        for suite in Suite::value_variants() {
            for row in suite.rows().unwrap() {
                let expected = tiny(Engine::StdTree, &row.plan);
                let engines = Engine::value_variants().iter();
                let scans = row.plan.ops.contains(&Op::Scan);
                let runs =
                    |engine: &&Engine| **engine != Engine::None && (!scans || engine.is_ordered());
                for &engine in engines.filter(runs) {
                    let found = tiny(engine, &row.plan);
                    assert_eq!(found.len(), row.plan.ops.len(), "{}", row.name);
                    for (found, expected) in found.iter().zip(&expected) {
                        let what = format!("{} {}: {}", word(&engine), row.name, found.op);
                        if found.op != "remove" || engine.counts_removals() {
                            assert_eq!(found.hits, expected.hits, "{what}");
                        }
                        assert_eq!(
                            (&found.digest, found.live),
                            (&expected.digest, expected.live),
                            "{what}"
                        );
                        assert_eq!(
                            found.cost.file_bytes.is_some(),
                            matches!(engine, Engine::Hash | Engine::Tree | Engine::Skip),
                            "{what}"
                        );
                        assert!(found.cost.private_bytes.is_some(), "{what}");
                    }
                }
                for (what, ratio) in &row.asked {
                    let is_run = row.plan.ops.iter().any(|op| word(op) == *what);
                    assert!(
                        (is_run || Ratios::NAMES.contains(&what.as_str())) && *ratio >= 1.0,
                        "{}",
                        row.name
                    );
                }
            }
        }
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number() {
        for (line, what) in [
            ("name | --count 1", "three parts"),
            ("name | --count x | -", "flags"),
            ("name | --count 1 | set fast", "phase ratio"),
        ] {
            let text = format!("# comment\n{line}\n");
            let error = rows::<Plan>(&text, &|what| what == "set").unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(
                error.to_string().contains("line 2") && error.to_string().contains(what),
                "{error}"
            );
        }
    }

    /// What a row requires of latency it has to measure, and a limit of memory leaves the phase that makes the store out.
    #[test]
    fn rows_measure_what_they_require() {
        for suite in Suite::value_variants() {
            for row in suite.rows().unwrap() {
                let tails = row.asked.iter().any(|(what, _)| what.starts_with("p99"));
                assert!(!tails || row.plan.latency, "{}", row.name);
                let limited = row.plan.memory.is_some();
                assert!(!limited || row.plan.ops.len() > 1, "{}", row.name);
                assert_eq!(limited, row.name.contains("x the memory"), "{}", row.name);
            }
        }
    }

    #[test]
    fn only_the_longest_workload_is_huge() {
        let rows = Suite::Asked.rows().unwrap();
        let huge: Vec<_> = rows
            .iter()
            .filter(|row| row.huge)
            .map(|row| row.name.as_str())
            .collect();
        assert_eq!(huge, ["100M random, 1 thread"]);
        assert_eq!(asked_for(&rows[1], "get-shuffled"), Some(3.0));
        assert_eq!(asked_for(&rows[0], "iterate"), None);
    }
}
