//! `repair`: saves what is left of a damaged file into a new one, and reports what was lost, and which records are in doubt and why.
//! The damaged file is only read. The exit code is 8 if something was lost or is in doubt. A list names a thousand at most; what
//! it leaves out is counted.
//! It does not guess: a record comes out only if its checksum holds.

use std::path::PathBuf;

use azekura::Result;
use azekura::record::{hash, skip, tree};
use serde::Serialize;
use serde_json::json;

use crate::exit::Outcome;
use crate::format::JsonRecord;
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::store::{of_target, refuse_existing};

const HELP: &str = "\
Records in doubt are in the new file, and may be older than what was stored last, or had been removed: each is named with the
reason. Compare them with a backup.

Exit codes: 6 the damaged file is in use; 8 something is lost or in doubt.
`azekura --help` lists all.";

/// A record in doubt, as JSON has it.
#[derive(Serialize)]
struct InDoubt<'a> {
    #[serde(flatten)]
    key: JsonRecord<'a>,
    offset: u64,
    why: String,
}

/// Save what is left of a damaged file into a new one
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Repair {
    /// The damaged file; it is not changed
    damaged: PathBuf,
    /// The file to make
    target: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        refuse_existing(&self.target)?;
        if azekura::open::is_sorted(&self.damaged)? {
            return self.repair_sorted(out);
        }
        if azekura::open::is_tree(&self.damaged)? {
            return self.repair_tree(out);
        }
        let progress = Progress::work("repairing");
        let repaired = hash::repair(&self.damaged, &self.target, &mut progress.report());
        let report = repaired.map_err(|error| of_target(error, &self.target, None))?;
        drop(progress);
        if self.json {
            let named = report.doubted.iter().map(|doubted| InDoubt {
                key: JsonRecord::new(&doubted.key, None),
                offset: doubted.offset,
                why: doubted.reason.to_string(),
            });
            let doubted: Vec<_> = named.collect();
            out.json(&json!({
                "recovered": report.recovered,
                "doubtful": report.doubtful,
                "doubted": doubted,
                "losses": report.losses,
                "lost": report.lost,
            }))?;
        } else {
            print(&report, out)?;
        }
        let whole = report.losses == 0 && report.doubtful == 0;
        Ok(Outcome::of_whole(whole))
    }
}

impl Repair {
    fn repair_sorted(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let progress = Progress::work("repairing");
        let repaired = skip::repair(&self.damaged, &self.target, &mut progress.report());
        let report = repaired.map_err(|error| of_target(error, &self.target, None))?;
        drop(progress);
        let recovered = counted(report.recovered, "record", "records");
        let summary = format!("{recovered} recovered, {} missing", report.missing);
        let object = json!({
            "recovered": report.recovered,
            "missing": report.missing,
            "losses": report.losses,
            "lost": report.lost,
        });
        self.show((&report.lost, report.losses), &summary, &object, out)
    }

    fn repair_tree(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let progress = Progress::work("repairing");
        let repaired = tree::repair(&self.damaged, &self.target, &mut progress.report());
        let report = repaired.map_err(|error| of_target(error, &self.target, None))?;
        drop(progress);
        let recovered = counted(report.recovered, "record", "records");
        let losses = counted(report.losses, "loss", "losses");
        let found = match report.found_leaves {
            0 => String::new(),
            leaves => format!(
                " ({} without a page above them)",
                counted(leaves, "leaf", "leaves")
            ),
        };
        let summary = format!("{recovered} recovered{found}, {losses}");
        let object = json!({
            "recovered": report.recovered,
            "found_leaves": report.found_leaves,
            "losses": report.losses,
            "lost": report.lost,
        });
        self.show((&report.lost, report.losses), &summary, &object, out)
    }

    /// What is lost, of so many losses, and the line that sums it up; or all of it as an object.
    fn show(
        &self,
        (lost, losses): (&[String], u64),
        summary: &str,
        object: &serde_json::Value,
        out: &mut Output<'_>,
    ) -> Result<Outcome> {
        if self.json {
            out.json(object)?;
        } else {
            print_lost(lost, losses, out)?;
            out.line(format_args!("{summary}"))?;
        }
        Ok(Outcome::of_whole(losses == 0))
    }
}

fn print_lost(lost: &[String], losses: u64, out: &mut Output<'_>) -> Result<()> {
    for lost in lost {
        out.line(format_args!("lost: {lost}"))?;
    }
    out.more("lost", losses, lost.len())
}

fn print(report: &hash::RepairReport, out: &mut Output<'_>) -> Result<()> {
    print_lost(&report.lost, report.losses, out)?;
    for doubted in &report.doubted {
        out.line(format_args!("in doubt: {doubted}"))?;
    }
    out.more("in doubt", report.doubtful, report.doubted.len())?;
    out.line(format_args!(
        "{} recovered, {} of them in doubt, {}",
        counted(report.recovered, "record", "records"),
        report.doubtful,
        counted(report.losses, "loss", "losses")
    ))
}
