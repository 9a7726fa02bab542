//! Suites: workloads as data, named lines of flags with the ratios asked for.
//!
//! ```text
//!   name | flags of `record` | phase ratio, phase ratio    (or `-`: nothing is asked)
//! ```
//!
//! Instead of a phase, `private` asks how many times less private memory there is to be after the first phase.
//! A name that begins with `huge:` is run only when asked for. Lines that begin with `#` are for
//! people. It does not know who is compared with whom.

use azekura::error::{Error, Kind, Result};
use clap::ValueEnum;

use crate::plan::{Op, Plan, read_flags};

/// The suites this crate carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// The published benchmark, with the ratios asked of the hash file
    Asked,
    /// The same, with the ratios asked of `tiny`
    Tiny,
    /// The same, with the ratios asked of `tiny` beside the concurrent maps of Rust
    Maps,
    /// The same, with the ratios asked of `baby`
    Baby,
    /// The same, with the ratios asked of `cache`
    Cache,
    /// The same, with the ratios asked of the standard library's maps
    Std,
    /// What the published benchmark leaves out
    Shapes,
}

impl Suite {
    /// The lines of the suite, in order.
    pub fn rows(self) -> Result<Vec<Row>> {
        parse(match self {
            Self::Asked => include_str!("../workloads/asked.txt"),
            Self::Tiny => include_str!("../workloads/tiny.txt"),
            Self::Maps => include_str!("../workloads/maps.txt"),
            Self::Baby => include_str!("../workloads/baby.txt"),
            Self::Cache => include_str!("../workloads/cache.txt"),
            Self::Std => include_str!("../workloads/std.txt"),
            Self::Shapes => include_str!("../workloads/shapes.txt"),
        })
    }
}

/// One workload of a suite.
#[derive(Clone, Debug)]
pub struct Row {
    /// What people call it.
    pub name: String,
    /// Whether it takes so long that it is run only when asked for.
    pub huge: bool,
    /// Its flags; the path is not among them.
    pub plan: Plan,
    /// How many times as fast as the rival it should be, by phase.
    pub asked: Vec<(Op, f64)>,
    /// How many times less private memory it should take after the first phase.
    pub asked_private: Option<f64>,
}

impl Row {
    /// The ratio asked for `op`.
    pub fn asked_for(&self, op: &str) -> Option<f64> {
        self.asked
            .iter()
            .find(|(asked, _)| asked.word() == op)
            .map(|(_, ratio)| *ratio)
    }
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'));
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(i, line)| row(i + 1, line))
        .collect()
}

fn row(number: usize, line: &str) -> Result<Row> {
    let wrong = |what: &str| {
        Error::new(Kind::Invalid, format!("line {number} of a suite: {what}")).key(line.as_bytes())
    };
    let parts: Vec<&str> = line.split('|').map(str::trim).collect();
    let &[name, flags, asked] = parts.as_slice() else {
        return Err(wrong("three parts are expected"));
    };
    let plan =
        read_flags::<Plan>(flags).map_err(|error| wrong("flags").detail(error.to_string()))?;
    let mut asked_private = None;
    let asked = match asked {
        "-" => Vec::new(),
        asked => asked
            .split(',')
            .filter_map(|one| {
                let (what, ratio) = one.trim().split_once(' ').unwrap_or_default();
                let ratio: Option<f64> = ratio.parse().ok();
                if what == "private" && ratio.is_some() {
                    asked_private = ratio;
                    return None;
                }
                Some(Op::from_str(what, false).ok().zip(ratio))
            })
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
        asked_private,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Engine;
    use crate::report::Phase;

    fn tiny(engine: Engine, plan: &Plan) -> Vec<Phase> {
        let folder = tempfile::tempdir().unwrap();
        let count = 300 / plan.threads;
        let path = Some(folder.path().join("tiny"));
        let plan = Plan {
            path,
            count,
            json: true,
            ..plan.clone()
        };
        let mut phases = Vec::new();
        engine
            .record(&plan, &mut |phase| {
                phases.push(phase);
                Ok(())
            })
            .unwrap();
        phases
    }

    #[test]
    fn every_workload_runs_tiny_and_engines_agree_on_what_they_read() {
        for suite in Suite::value_variants() {
            for row in suite.rows().unwrap() {
                let expected = tiny(Engine::StdHash, &row.plan);
                let engines = Engine::value_variants().iter();
                for &engine in engines.filter(|engine| **engine != Engine::None) {
                    let found = tiny(engine, &row.plan);
                    assert_eq!(found.len(), row.plan.ops.len(), "{}", row.name);
                    for (found, expected) in found.iter().zip(&expected) {
                        let what = format!("{} {}: {}", engine.word(), row.name, found.op);
                        assert_eq!(
                            (found.hits, &found.digest, found.live),
                            (expected.hits, &expected.digest, expected.live),
                            "{what}"
                        );
                        assert_eq!(found.file_bytes.is_some(), engine == Engine::Hash, "{what}");
                        assert!(found.private_bytes.is_some(), "{what}");
                    }
                }
                for (op, ratio) in &row.asked {
                    assert!(row.plan.ops.contains(op) && *ratio >= 1.0, "{}", row.name);
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
            let error = parse(&format!("# comment\n{line}\n")).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(
                error.to_string().contains("line 2") && error.to_string().contains(what),
                "{error}"
            );
        }
    }

    #[test]
    fn memory_is_asked_for_where_the_engines_are_in_memory() {
        let asked = |suite: Suite| suite.rows().unwrap()[1].asked_private;
        assert_eq!(asked(Suite::Tiny), Some(1.67));
        assert_eq!(asked(Suite::Asked), None);
        assert_eq!(
            parse("a | --count 1 | private x").unwrap_err().kind(),
            Kind::Invalid
        );
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
        assert_eq!(rows[1].asked_for("get-shuffled"), Some(3.0));
        assert_eq!(rows[0].asked_for("iterate"), None);
    }
}
