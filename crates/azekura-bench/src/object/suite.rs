//! The tables of the published benchmark, at a given scale, for several stores beside each other.
//!
//! Each store holds so many values of each size; a hundredth of them is updated, read and removed, and
//! the store is opened, cold and warm. Every step is a process of its own, so that neither memory nor caches
//! of one store are another's. Where there are rounds, the order of the stores turns from one to the next, and a
//! figure is the median of the rounds'. A ratio is the rate of one store over another's in the same round,
//! and only of the same class of durability: others are refused.
//!
//! It does not know which stores there are: whoever runs it says how a process is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use azekura::error::{Error, Kind, Result};
use clap::{Args, ValueEnum};

use super::measured::Measured;
use super::phases::Op;
use super::plan::{ObjectPlan, parse_size};
use super::store::Class;
use super::table::{costs, render};
use crate::report::line;

/// Bytes of the values of each store of the published benchmark, which had ten million objects of 100 KiB.
const WHOLE: f64 = 1e7 * 102_400.0;

/// A store in a class: `name:class`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The store's word.
    pub store: String,
    /// What an acknowledged change survives.
    pub class: Class,
}

impl Candidate {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let (store, class) = text.split_once(':').ok_or("a store is NAME:DURABILITY")?;
        let class = Class::from_str(class, false)?;
        Ok(Self {
            store: store.to_owned(),
            class,
        })
    }
}

/// The flags of `suite`.
#[derive(Args, Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag, and none excludes another"
)]
pub struct SuitePlan {
    /// Which part of the published 1 TB each store holds, for each size
    #[arg(long, value_name = "PART", default_value_t = 0.002)]
    pub scale: f64,
    /// Which stores, as NAME:DURABILITY; all there are, if not said
    #[arg(long, value_name = "STORES", value_delimiter = ',', value_parser = Candidate::parse)]
    pub stores: Vec<Candidate>,
    /// Whose rate is divided by the others'; the first store, if not said
    #[arg(long, value_name = "NAME")]
    pub against: Option<String>,
    /// Which tables
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "put,update,get,delete,load"
    )]
    pub tables: Vec<Op>,
    /// Bytes of a value
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size,
          default_value = "100KiB,1MiB,10MiB")]
    pub sizes: Vec<u64>,
    /// Least number of objects that are updated, read and removed
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub sample_min: u64,
    /// Operations outstanding at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: usize,
    /// Rounds of all stores
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rounds: u64,
    /// Write all of a store's file when it is made, where the store can
    #[arg(long)]
    pub fill: bool,
    /// Leave in memory what the system keeps of a store, before each step
    #[arg(long)]
    pub warm: bool,
    /// Do not compare the values that are read with those that were put
    #[arg(long)]
    pub no_verify: bool,
    /// Make each value in memory of the store, where it has a call for that, so that it is put without a copy
    #[arg(long)]
    pub drafts: bool,
    /// Where stores are made and removed; the system's folder for temporary files, if not said
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// JSON objects of the steps instead of tables
    #[arg(long)]
    pub json: bool,
}

impl SuitePlan {
    /// Objects of a size: of 1 MiB and 10 MiB, too, the published benchmark had a power of ten.
    #[expect(clippy::cast_sign_loss, reason = "the scale was checked")]
    pub(super) fn count(&self, value_size: u64) -> u64 {
        let whole = match value_size {
            0x10_0000 => 1e6,
            0xa0_0000 => 1e5,
            _ => WHOLE / value_size as f64,
        };
        ((whole * self.scale).round() as u64).max(1)
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(Kind::Invalid, what));
        if !(self.scale > 0.0 && self.scale <= 100.0) {
            return wrong("the scale is more than 0 and at most 100");
        }
        if self.rounds == 0 || self.sizes.contains(&0) || self.stores.is_empty() {
            return wrong("a suite has stores, rounds, and values of more than nothing");
        }
        Ok(())
    }

    fn step(&self, path: &Path, class: Class, value_size: u64) -> ObjectPlan {
        let count = self.count(value_size);
        ObjectPlan {
            path: Some(path.to_path_buf()),
            count,
            sample: Some((count / 100).max(self.sample_min).min(count)),
            ops: Vec::new(),
            key_size: 16,
            value_size,
            seed: "foo".into(),
            depth: self.depth,
            rate: None,
            durability: class,
            capacity: None,
            fill: self.fill,
            no_verify: self.no_verify,
            drafts: self.drafts,
            cold: !self.warm,
            workload: None,
            generation: 0,
            results: None,
            json: true,
        }
    }
}

/// Starts a process that runs the phases of a plan on the store of that name, and tells what it printed.
pub type Start<'s> = &'s dyn Fn(&str, &ObjectPlan) -> Result<Vec<Measured>>;

/// A process of this program: `words` are its command, before the store's name.
pub fn process(words: &[&str], store: &str, plan: &ObjectPlan) -> Result<Vec<Measured>> {
    let program =
        std::env::current_exe().map_err(|error| Error::io("cannot find this program", error))?;
    let flags: Vec<OsString> = plan.flags();
    let output = Command::new(program)
        .args(words)
        .arg(store)
        .args(flags)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Error::io("cannot start a step", error))?;
    if !output.status.success() {
        let error = Error::new(Kind::Io, format!("the step of {store} failed"));
        return Err(error.detail(output.status.to_string()));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(Measured::from_json)
        .collect()
}

/// A folder that goes away with its content.
struct Place(PathBuf);

impl Place {
    fn new(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("azekura-objects-{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|error| Error::io("cannot make a folder for the stores", error).at(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed stays; the results are there.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What one store did in a round, at one size; rounds follow one another.
pub(super) struct Run {
    pub(super) value_size: u64,
    pub(super) candidate: Candidate,
    pub(super) phases: Vec<Measured>,
}

/// Runs the suite and prints its tables.
///
/// Errors: `Invalid` (a scale, a store or a class that is none), and whatever a step reports.
pub fn run(plan: &SuitePlan, start: Start<'_>) -> Result<()> {
    plan.check()?;
    let folder = plan.folder.clone().unwrap_or_else(std::env::temp_dir);
    let mut runs = Vec::new();
    for round in 0..plan.rounds {
        for &value_size in &plan.sizes {
            let mut stores: Vec<&Candidate> = plan.stores.iter().collect();
            if round % 2 == 1 {
                stores.reverse();
            }
            for candidate in stores {
                let place = Place::new(&folder)?;
                let phases = steps(plan, start, &place.0.join("store"), candidate, value_size)?;
                if plan.json {
                    phases.iter().try_for_each(|phase| phase.print(true))?;
                }
                let candidate = candidate.clone();
                runs.push(Run {
                    value_size,
                    candidate,
                    phases,
                });
            }
        }
    }
    if plan.json {
        return Ok(());
    }
    let ours = plan.against.as_ref().unwrap_or(&plan.stores[0].store);
    for &table in &plan.tables {
        line(&render(plan, table, &runs, ours))?;
    }
    line(&costs(plan, &runs))
}

/// The steps of one store, in the order of the published benchmark.
fn steps(
    plan: &SuitePlan,
    start: Start<'_>,
    path: &Path,
    candidate: &Candidate,
    value_size: u64,
) -> Result<Vec<Measured>> {
    let step = plan.step(path, candidate.class, value_size);
    let run = |op: Op| {
        if op != Op::Put && !plan.tables.contains(&op) {
            return Ok(Vec::new());
        }
        let step = ObjectPlan {
            ops: vec![op],
            ..step.clone()
        };
        start(&candidate.store, &step)
    };
    let mut found = Vec::new();
    for op in [Op::Put, Op::Update, Op::Get] {
        found.extend(run(op)?);
    }
    if plan.tables.contains(&Op::Load) {
        let ways: &[bool] = if plan.warm { &[false] } else { &[true, false] };
        for &cold in ways {
            let load = ObjectPlan {
                ops: vec![Op::Load],
                cold,
                ..step.clone()
            };
            let begin = Instant::now();
            let mut phases = start(&candidate.store, &load)?;
            let took = begin.elapsed().as_secs_f64();
            for phase in &mut phases {
                // Making the system forget is no part of a start.
                phase.process_seconds = Some((took - phase.forget_seconds.unwrap_or(0.0)).max(0.0));
            }
            found.extend(phases);
        }
    }
    found.extend(run(Op::Delete)?);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::phases;
    use crate::object::stores::Engine;
    use crate::object::table::ratio;
    use crate::plan::read_flags;

    fn plan(flags: &str) -> SuitePlan {
        read_flags(flags).unwrap()
    }

    /// The steps in this process.
    fn start(store: &str, plan: &ObjectPlan) -> Result<Vec<Measured>> {
        let mut found = Vec::new();
        let engine = Engine::from_str(store, false).unwrap();
        phases::run(store, engine.open(), plan, &mut |phase| {
            found.push(phase);
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn every_table_has_a_row_for_each_store_and_size_and_ratios_within_a_class() {
        let folder = tempfile::tempdir().unwrap();
        let suite = plan("--stores files:process,files:power --sizes 100KiB,40KiB --scale 1e-6");
        let mut runs = Vec::new();
        for candidate in &suite.stores {
            for &value_size in &suite.sizes {
                let path = folder.path().join(format!("{}{value_size}", runs.len()));
                let phases = steps(&suite, &start, &path, candidate, value_size).unwrap();
                let ops: Vec<&str> = phases.iter().map(|phase| phase.op.as_str()).collect();
                assert_eq!(ops, ["put", "update", "get", "load", "load", "delete"]);
                assert!(phases[3].cold.is_some() && phases[4].cold.is_none());
                assert!(phases[3].process_seconds > phases[3].first_get_seconds);
                runs.push(Run {
                    value_size,
                    candidate: candidate.clone(),
                    phases,
                });
            }
        }
        assert_eq!(runs[0].phases[0].count, 10);
        let ratio_of = |line: &str| line.rsplit(" | ").nth(1).unwrap_or_default().to_owned();
        for (table, rows) in [(Op::Put, 4), (Op::Delete, 4), (Op::Load, 8)] {
            let text = render(&suite, table, &runs, "files");
            let found: Vec<&str> = text.lines().filter(|line| line.contains("KiB |")).collect();
            assert_eq!(found.len(), rows, "{text}");
            let columns = |line: &str| line.matches('|').count();
            let table = text.lines().filter(|line| line.starts_with('|'));
            assert!(
                table.clone().all(|line| columns(line) == columns(found[0])),
                "{text}"
            );
            assert!(found.iter().all(|line| ratio_of(line) == "1.00"), "{text}");
        }
        let text = costs(&suite, &runs);
        let found = text.lines().filter(|line| line.contains("KiB |"));
        assert!(
            found.clone().count() == 4 && found.clone().all(|line| line.matches('|').count() == 9),
            "{text}"
        );
        let text = render(&suite, Op::Get, &runs, "device");
        let mut found = text.lines().filter(|line| line.contains("KiB |"));
        assert!(found.all(|line| ratio_of(line) == "-"), "{text}");
    }

    #[test]
    fn results_of_different_classes_are_not_compared() {
        let of = |class| Measured {
            durability: Some(class),
            open_seconds: 1.0,
            ..Measured::default()
        };
        let error = ratio(&of(Class::Process), &of(Class::Power)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(
            error.to_string().contains("of durability process"),
            "{error}"
        );
        let slower = Measured {
            open_seconds: 3.0,
            ..of(Class::Power)
        };
        assert!((ratio(&of(Class::Power), &slower).unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_counts_are_those_published_times_the_scale() {
        let suite = plan("--stores files:process --scale 0.01");
        let counts: Vec<u64> = suite.sizes.iter().map(|&size| suite.count(size)).collect();
        assert_eq!(counts, [100_000, 10_000, 1000]);
    }

    #[test]
    fn a_suite_of_nothing_is_refused() {
        for flags in [
            "",
            "--stores files:process --scale 0",
            "--stores files:process --rounds 0",
        ] {
            let error = run(&plan(flags), &start).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{flags}");
        }
        assert!(Candidate::parse("files").is_err() && Candidate::parse("files:fast").is_err());
    }
}
