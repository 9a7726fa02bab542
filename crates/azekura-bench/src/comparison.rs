//! Sides of a comparison: their order, their ratios, and the table of them.
//!
//! A side is an engine, a store or a server. The sides run in turn, and the order is reversed from one round to the next,
//! so that drift of the machine affects all alike; a ratio is taken within a round, and the median over the rounds.
//! **Above one is better for ours in every figure**: a rate is ours over theirs, a cost is theirs over ours.
//!
//! ```text
//!   round 1: rival, ours     round 2: ours, rival     round 3: rival, ours     ...
//!             `-ratio-'                `-ratio-'                `-ratio-'    -> median
//! ```
//!
//! It starts nothing and measures nothing.

use std::fmt::Write as _;
use std::path::Path;

use azekura::error::{Error, Result};

use crate::measure::{Percentiles, median};
use crate::phase::Phase;
use crate::report::{figures, header, line};

/// Runs each of so many sides once, in the order of the round, and returns the results in the order of the sides.
pub fn in_turn<R>(
    round: u64,
    sides: usize,
    mut run: impl FnMut(usize) -> Result<R>,
) -> Result<Vec<R>> {
    if round.is_multiple_of(2) {
        return (0..sides).map(run).collect();
    }
    let mut results: Vec<R> = (0..sides).rev().map(&mut run).collect::<Result<_>>()?;
    results.reverse();
    Ok(results)
}

/// Ours over theirs of what should be much; `None` where there is nothing to divide.
pub fn more(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    let (ours, theirs) = (ours?, theirs?);
    (ours > 0.0 && theirs > 0.0).then_some(ours / theirs)
}

/// Theirs over ours of what should be little.
pub fn less(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    more(theirs, ours)
}

/// How many figures are compared.
const FIGURES: usize = 8;

/// The ratios of one phase: of a pair, or medians of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios([Option<f64>; FIGURES]);

impl Ratios {
    /// The names of the figures, in order.
    pub const NAMES: [&'static str; FIGURES] = [
        "rate", "cpu", "private", "memory", "file", "written", "p999", "p9999",
    ];

    /// The ratios of one pair.
    pub fn of(ours: &Phase, theirs: &Phase) -> Self {
        let bytes = |of: fn(&Phase) -> Option<u64>| {
            let of = |phase| of(phase).map(|bytes| bytes as f64);
            less(of(ours), of(theirs))
        };
        let rate = |phase: &Phase| Some(phase.rate());
        let latency = |of: fn(&Percentiles) -> f64| {
            let of = |phase: &Phase| phase.latency_us.as_ref().map(of);
            less(of(ours), of(theirs))
        };
        Self([
            more(rate(ours), rate(theirs)),
            less(ours.cpu(), theirs.cpu()),
            bytes(|phase| phase.cost.private_bytes),
            bytes(|phase| phase.cost.memory_bytes),
            bytes(|phase| phase.cost.file_bytes),
            less(ours.bytes_written_each(), theirs.bytes_written_each()),
            latency(|us| us.p999),
            latency(|us| us.p9999),
        ])
    }

    /// The median of each figure.
    fn median(all: &[Self]) -> Self {
        let of = |index: usize| median(all.iter().filter_map(|ratios| ratios.0[index]));
        Self(std::array::from_fn(of))
    }

    fn rate(&self) -> f64 {
        self.0[0].unwrap_or_default()
    }
}

/// Two sides of one workload, phase by phase.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Those of azekura.
    pub ours: Vec<Phase>,
    /// Those of the rival.
    pub theirs: Vec<Phase>,
}

/// The pairs of one workload, as they come.
#[derive(Clone, Debug)]
pub struct Comparison {
    name: String,
    /// Ratios that are required: of a phase's rate by its word, or of a figure of the first phase by its name.
    asked: Vec<(String, f64)>,
    pairs: Vec<Pair>,
}

/// One phase of a workload over all its pairs.
struct Line {
    op: String,
    asked: Option<f64>,
    ratios: Vec<Ratios>,
    median: Ratios,
}

impl Comparison {
    /// A workload without pairs, and the ratios required: of a phase's rate by its word, or of a figure of the first phase by
    /// its name.
    pub fn new(name: &str, asked: Vec<(String, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            asked,
            pairs: Vec::new(),
        }
    }

    /// Adds a pair.
    pub fn add(&mut self, pair: Pair) {
        self.pairs.push(pair);
    }

    fn asked(&self, what: &str) -> Option<f64> {
        let found = self.asked.iter().find(|(asked, _)| asked == what);
        found.map(|(_, ratio)| *ratio)
    }

    fn lines(&self) -> Vec<Line> {
        let Some(first) = self.pairs.first() else {
            return Vec::new();
        };
        let one = |(index, phase): (usize, &Phase)| {
            let ratio = |pair: &Pair| Ratios::of(&pair.ours[index], &pair.theirs[index]);
            let ratios: Vec<Ratios> = self.pairs.iter().map(ratio).collect();
            let first = (index == 0).then(|| self.asked(Ratios::NAMES[0])).flatten();
            Line {
                op: phase.op.clone(),
                asked: self.asked(&phase.op).or(first),
                median: Ratios::median(&ratios),
                ratios,
            }
        };
        first.ours.iter().enumerate().map(one).collect()
    }

    /// The ratios of the workload: medians, and every pair's ratio of rates.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut add = |row: String| writeln!(text, "{row}").expect("a string takes any text");
        add(format!("{} ({} pairs)", self.name, self.pairs.len()));
        add(format!(
            "  {:<13} {:>8} {:>8}  {:>6} {:>8} {:>7} {:>6} {:>8} {:>6} {:>6}   {}",
            "phase",
            "measured",
            "asked",
            "cpu",
            "private",
            "memory",
            "file",
            "written",
            "p999",
            "p9999",
            "rate of each pair"
        ));
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |r| format!("{r:.2}x"));
        let lines = self.lines();
        for line in &lines {
            let each: Vec<String> = line
                .ratios
                .iter()
                .map(|ratios| format!("{:.2}", ratios.rate()))
                .collect();
            let [rate, cpu, private, memory, file, written, p999, p9999] = line.median.0.map(times);
            let (op, asked, each) = (&line.op, times(line.asked), each.join(" "));
            add(format!(
                "  {op:<13} {rate:>8} {asked:>8}  {cpu:>6} {private:>8} {memory:>7} {file:>6} {written:>8} {p999:>6} {p9999:>6}   {each}"
            ));
        }
        let figures = lines.first().into_iter().flat_map(|line| {
            let figures = Ratios::NAMES.iter().zip(line.median.0);
            figures.skip(1)
        });
        for (name, measured) in figures {
            if let Some(asked) = self.asked(name) {
                let measured = times(measured);
                add(format!(
                    "  {name} of the first phase: {measured}, asked {asked:.2}x"
                ));
            }
        }
        text
    }

    /// The figures of the last pair.
    fn last(&self) -> String {
        let pairs = self.pairs.last().into_iter();
        let phases = pairs.flat_map(|pair| pair.ours.iter().zip(&pair.theirs));
        let rows = phases.flat_map(|(ours, theirs)| [figures(ours), figures(theirs)]);
        let lines: Vec<String> = [header()].into_iter().chain(rows).collect();
        lines.join("\n")
    }

    /// A JSON object per phase: the medians, every pair's rate and what is required.
    fn json(&self) -> Vec<String> {
        let one = |(index, line): (usize, Line)| {
            let figures = Ratios::NAMES.iter().zip(line.median.0);
            let median: serde_json::Map<_, _> = figures
                .filter_map(|(name, figure)| Some(((*name).to_owned(), figure?.into())))
                .collect();
            let mut object = serde_json::json!({
                "workload": self.name,
                "op": line.op,
                "pairs": line.ratios.len(),
                "median": median,
                "rates": line.ratios.iter().map(Ratios::rate).collect::<Vec<_>>(),
            });
            if let Some(asked) = line.asked {
                object["asked"] = asked.into();
            }
            for name in Ratios::NAMES.iter().skip(1).filter(|_| index == 0) {
                if let Some(asked) = self.asked(name) {
                    object[format!("asked_{name}")] = asked.into();
                }
            }
            object.to_string()
        };
        self.lines().into_iter().enumerate().map(one).collect()
    }

    fn raw(&self) -> impl Iterator<Item = String> {
        let pairs = self.pairs.iter();
        pairs
            .flat_map(|pair| pair.theirs.iter().chain(&pair.ours))
            .map(Phase::to_json)
    }

    /// Prints the workload: the ratios, and the figures of the last pair or, as JSON, of all.
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            self.raw()
                .chain(self.json())
                .try_for_each(|text| line(&text))
        } else {
            line(&self.table())?;
            line(&self.last())
        }
    }
}

/// Writes a recorded result: heading, raw pairs, summary.
pub fn record(
    file: &Path,
    heading: &[(&'static str, String)],
    comparisons: &[Comparison],
) -> Result<()> {
    let mut text = String::new();
    let mut add = |row: &str| writeln!(text, "{row}").expect("a string takes any text");
    for (name, value) in heading {
        add(&format!("{name}: {value}"));
    }
    add("\n== raw pairs");
    for comparison in comparisons {
        add(&format!("\n-- {}", comparison.name));
        comparison.raw().for_each(|phase| add(&phase));
    }
    add("\n== summary (above 1: the first named is faster, or takes so many times less)\n");
    for comparison in comparisons {
        add(&comparison.table());
        add(&comparison.last());
    }
    std::fs::write(file, text).map_err(|e| Error::io("cannot write the results", e).at(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::{Cost, Details, Memcache};

    fn phase(engine: &str, rate: f64, cpu: f64, private: u64) -> Phase {
        Phase {
            engine: engine.into(),
            op: "set".into(),
            count: 1,
            ops_per_second: rate,
            cpu_seconds: cpu,
            cost: Cost {
                private_bytes: Some(private),
                file_bytes: Some(4096),
                ..Cost::default()
            },
            ..Phase::default()
        }
    }

    fn comparison() -> Comparison {
        let asked = vec![("set".to_owned(), 2.0), ("cpu".to_owned(), 1.25)];
        let mut comparison = Comparison::new("some sets", asked);
        for rate in [200.0, 300.0, 900.0] {
            comparison.add(Pair {
                ours: vec![phase("ours", rate, 1.0, 0)],
                theirs: vec![phase("theirs", 100.0, 3.0, 0)],
            });
        }
        comparison
    }

    #[test]
    fn above_one_is_better_for_us_in_every_figure() {
        let ours = phase("ours", 200.0, 1.0, 50);
        let theirs = phase("theirs", 100.0, 3.0, 100);
        let ratios = Ratios::of(&ours, &theirs);
        let expected = [Some(2.0), Some(3.0), Some(2.0), None, Some(1.0)];
        assert_eq!(ratios.0[..5], expected);
        assert_eq!(ratios.0[5..], [None; 3]);
        assert_eq!(Ratios::of(&phase("", 1.0, 1.0, 0), &theirs).0[2], None);
        let mut faster = ratios;
        faster.0[0] = Some(9.0);
        assert_eq!(Ratios::median(&[ratios, ratios, faster]), ratios);
    }

    #[test]
    fn bytes_written_are_compared_for_each_operation_and_the_tails_of_latency() {
        let side = |count, written, p999| {
            let mut phase = phase("", 1.0, 1.0, 1);
            phase.count = count;
            phase.cost.device.process_bytes_written = Some(written);
            phase.latency_us = Some(Percentiles {
                p50: 1.0,
                p90: 1.0,
                p99: 1.0,
                p999,
                p9999: 2.0 * p999,
                max: 1e6,
            });
            phase
        };
        let ratios = Ratios::of(&side(10, 1000, 3.0), &side(20, 6000, 12.0));
        assert_eq!(ratios.0[5..], [Some(3.0), Some(4.0), Some(4.0)]);
        let none = Ratios::of(&side(0, 1000, 3.0), &side(20, 6000, 12.0));
        assert_eq!(none.0[5], None);
    }

    #[test]
    fn processor_time_is_that_of_the_server_where_there_is_one() {
        let server = |seconds| Phase {
            details: Details::Memcache(Memcache {
                server_cpu_seconds: Some(seconds),
                ..Memcache::default()
            }),
            ..phase("", 1.0, 7.0, 1)
        };
        assert_eq!(Ratios::of(&server(1.0), &server(4.0)).0[1], Some(4.0));
    }

    #[test]
    fn sides_run_in_turn_and_their_results_stay_in_order() {
        for (round, expected) in [(0, [0, 1, 2]), (1, [2, 1, 0])] {
            let mut order = Vec::new();
            let results = in_turn(round, 3, |side| {
                order.push(side);
                Ok(side)
            });
            assert_eq!(order, expected);
            assert_eq!(results.unwrap(), [0, 1, 2]);
        }
    }

    #[test]
    fn the_table_shows_measured_beside_asked_and_every_pair() {
        let table = comparison().table();
        let row = table.lines().nth(2).unwrap();
        assert!(row.contains("3.00x") && row.contains("2.00x"), "{row}");
        assert!(row.ends_with("2.00 3.00 9.00"), "{row}");
        let cpu = "  cpu of the first phase: 3.00x, asked 1.25x";
        assert!(table.lines().any(|line| line == cpu), "{table}");
    }

    #[test]
    fn json_has_the_median_and_what_is_asked() {
        let lines = comparison().json();
        assert_eq!(lines.len(), 1);
        let object: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(object["median"]["rate"], 3.0);
        assert_eq!(object["median"]["file"], 1.0);
        assert_eq!(object["asked"], 2.0);
        assert_eq!(object["asked_cpu"], 1.25);
        assert!(object["median"]["private"].is_null());
    }

    #[test]
    fn a_recorded_result_holds_heading_raw_and_summary() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("result.txt");
        record(&file, &[("date", "today".into())], &[comparison()]).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("date: today\n"));
        assert_eq!(text.lines().filter(|line| line.starts_with('{')).count(), 6);
        assert!(text.contains("== summary") && text.contains("some sets (3 pairs)"));
    }
}
