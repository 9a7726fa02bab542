//! What a comparison says: a table while it runs, JSON lines, and a file to keep.
//!
//! The form of the file is told in the results folder of azekura-bench. Raw figures stand in it
//! beside the ratios, so that anybody can take other medians. It measures nothing.

use std::fmt::Write;
use std::path::Path;

use azekura::error::{Error, Result, size};
use azekura_bench::report::{Phase, line};

use crate::pairs::{Pair, Ratios};

/// The pairs of one workload, as they come.
pub(crate) struct Workload {
    name: String,
    asked: Vec<(String, f64)>,
    asked_private: Option<f64>,
    pairs: Vec<Pair>,
}

/// One phase of a workload over all its pairs.
struct Line {
    op: String,
    asked: Option<f64>,
    ratios: Vec<Ratios>,
    median: Ratios,
}

impl Workload {
    /// A workload without pairs, and the ratios asked for by phase.
    pub(crate) fn new(name: &str, asked: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            asked: asked.into_iter().collect(),
            asked_private: None,
            pairs: Vec::new(),
        }
    }

    /// And the ratio of private memory asked for after the first phase.
    pub(crate) fn asks_private(self, asked_private: Option<f64>) -> Self {
        Self {
            asked_private,
            ..self
        }
    }

    pub(crate) fn add(&mut self, pair: Pair) {
        self.pairs.push(pair);
    }

    fn lines(&self) -> Vec<Line> {
        let Some(first) = self.pairs.first() else {
            return Vec::new();
        };
        let one = |(i, phase): (usize, &Phase)| {
            let ratio = |pair: &Pair| Ratios::of(&pair.ours[i], &pair.theirs[i]);
            let ratios: Vec<Ratios> = self.pairs.iter().map(ratio).collect();
            let asked = self
                .asked
                .iter()
                .find(|(op, _)| *op == phase.op)
                .map(|(_, asked)| *asked);
            Line {
                op: phase.op.clone(),
                asked,
                median: Ratios::median(&ratios),
                ratios,
            }
        };
        first.ours.iter().enumerate().map(one).collect()
    }

    /// The workload's rows of the table: medians, every pair's ratio of rates, the last pair's figures.
    fn table(&self) -> String {
        let mut text = String::new();
        let mut say = |row: String| writeln!(text, "{row}").expect("a string takes any text");
        say(format!("{} ({} pairs)", self.name, self.pairs.len()));
        say(format!(
            "  {:<13} {:>8} {:>8}  {:>6} {:>8} {:>7} {:>6}   {}",
            "phase", "measured", "asked", "cpu", "private", "memory", "file", "rate of each pair"
        ));
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |r| format!("{r:.2}x"));
        for line in self.lines() {
            let each: Vec<String> = line
                .ratios
                .iter()
                .map(|r| format!("{:.2}", r.rate))
                .collect();
            let [rate, cpu, private, memory, file] = line.median.figures().map(times);
            let (op, asked, each) = (&line.op, times(line.asked), each.join(" "));
            say(format!(
                "  {op:<13} {rate:>8} {asked:>8}  {cpu:>6} {private:>8} {memory:>7} {file:>6}   {each}"
            ));
        }
        if let Some((asked, line)) = self.asked_private.zip(self.lines().first()) {
            let measured = times(line.median.private);
            say(format!(
                "  private memory after the first phase: {measured}, asked {asked:.2}x"
            ));
        }
        if let Some(pair) = self.pairs.last() {
            for phase in pair
                .ours
                .iter()
                .zip(&pair.theirs)
                .flat_map(<[&Phase; 2]>::from)
            {
                say(format!(
                    "  {:<13} {:<12} {}",
                    phase.op,
                    phase.engine,
                    absolute(phase)
                ));
            }
        }
        text
    }

    /// A JSON object per phase: the medians, every pair's rate and what is asked.
    fn json(&self) -> Vec<String> {
        let one = |(index, line): (usize, Line)| {
            let figures = Ratios::NAMES.iter().zip(line.median.figures());
            let median: serde_json::Map<_, _> = figures
                .filter_map(|(name, figure)| Some(((*name).to_owned(), figure?.into())))
                .collect();
            let mut object = serde_json::json!({
                "workload": self.name,
                "op": line.op,
                "pairs": line.ratios.len(),
                "median": median,
                "rates": line.ratios.iter().map(|ratios| ratios.rate).collect::<Vec<_>>(),
            });
            if let Some(asked) = line.asked {
                object["asked"] = asked.into();
            }
            if let (0, Some(asked)) = (index, self.asked_private) {
                object["asked_private"] = asked.into();
            }
            object.to_string()
        };
        self.lines().into_iter().enumerate().map(one).collect()
    }

    fn raw(&self) -> impl Iterator<Item = String> {
        let phases = self
            .pairs
            .iter()
            .flat_map(|pair| pair.theirs.iter().chain(&pair.ours));
        phases.map(Phase::to_json)
    }
}

fn absolute(phase: &Phase) -> String {
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), size);
    format!(
        "{:.3} M/s, cpu {:.0} ns, private {}{}, memory {}, file {}",
        phase.ops_per_second / 1e6,
        phase.cpu_seconds * 1e9 / phase.count as f64,
        bytes(phase.private_bytes),
        phase
            .bytes_per_record()
            .map_or_else(String::new, |each| format!(" ({each:.1} B a record)")),
        bytes(phase.memory_bytes),
        bytes(phase.file_bytes)
    )
}

/// Writes a recorded result: heading, raw pairs, summary.
pub(crate) fn record(
    file: &Path,
    heading: &[(&'static str, String)],
    workloads: &[Workload],
) -> Result<()> {
    let mut text = String::new();
    let mut say = |row: &str| writeln!(text, "{row}").expect("a string takes any text");
    for (name, value) in heading {
        say(&format!("{name}: {value}"));
    }
    say("\n== raw pairs");
    for workload in workloads {
        say(&format!("\n-- {}", workload.name));
        workload.raw().for_each(|phase| say(&phase));
    }
    say("\n== summary (above 1: the first named is faster, or takes so many times less)\n");
    for workload in workloads {
        say(&workload.table());
    }
    std::fs::write(file, text).map_err(|e| Error::io("cannot write the results", e).at(file))
}

/// Prints a workload.
pub(crate) fn print(workload: &Workload, json: bool) -> Result<()> {
    if json {
        workload
            .raw()
            .chain(workload.json())
            .try_for_each(|text| line(&text))
    } else {
        line(&workload.table())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(engine: &str, rate: f64) -> Phase {
        let json = format!(
            "{{\"engine\":\"{engine}\",\"op\":\"set\",\"threads\":1,\"count\":1,\"key_size\":8,\
             \"value_size\":8,\"seconds\":1.0,\"ops_per_second\":{rate},\"cpu_seconds\":1.0,\
             \"file_bytes\":4096}}"
        );
        Phase::from_json(&json).unwrap()
    }

    fn workload() -> Workload {
        let mut workload = Workload::new("some sets", [("set".to_owned(), 2.0)]);
        for rate in [200.0, 300.0, 900.0] {
            let (ours, theirs) = (vec![phase("ours", rate)], vec![phase("theirs", 100.0)]);
            workload.add(Pair { ours, theirs });
        }
        workload
    }

    #[test]
    fn the_table_shows_measured_beside_asked_and_every_pair() {
        let table = workload().table();
        let row = table.lines().nth(2).unwrap();
        assert!(row.contains("3.00x") && row.contains("2.00x"), "{row}");
        assert!(row.ends_with("2.00 3.00 9.00"), "{row}");
    }

    #[test]
    fn json_has_the_median_and_what_is_asked() {
        let lines = workload().json();
        assert_eq!(lines.len(), 1);
        let object: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(object["median"]["rate"], 3.0);
        assert_eq!(object["median"]["file"], 1.0);
        assert_eq!(object["asked"], 2.0);
        assert!(object["median"]["private"].is_null());
    }

    #[test]
    fn a_recorded_result_holds_heading_raw_and_summary() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("result.txt");
        record(&file, &[("date", "today".into())], &[workload()]).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("date: today\n"));
        assert_eq!(text.lines().filter(|line| line.starts_with('{')).count(), 6);
        assert!(text.contains("== summary") && text.contains("some sets (3 pairs)"));
    }
}
