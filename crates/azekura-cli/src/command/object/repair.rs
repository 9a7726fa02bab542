//! `object repair`: makes a damaged store one that opens again, in place, and reports what was lost.
//! Values stay where they are; their index is made anew. The exit code is 8 if something was lost, is in doubt,
//! or does not verify: a damaged value is reported, and stays.
//! It does not guess: an object comes back only if its bytes verify.

use azekura::Result;
use azekura::object::{Repaired, Store};
use serde_json::json;

use super::place::{Place, made_first};
use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::progress::Progress;

const HELP: &str = "\
Example:
  cp photos.azo before.azo && azekura object repair photos.azo

Objects in doubt are in the store, and may be older than what was stored last, or had been removed: each is named with place
and reason. Compare them with a backup.

Exit codes: 6 the store is in use; 8 something is lost, in doubt or damaged.
`azekura --help` lists all.";

/// Make a damaged store whole again, in its place
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Repair {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        self.place.refuse_one()?;
        let (path, data) = (self.place.path(), self.place.data());
        let progress = Progress::work("repairing");
        let report = Store::repair_with_data(path, data, &mut progress.report())
            .map_err(|error| made_first(error).at(path))?;
        drop(progress);
        if self.json {
            let doubted = report.doubted.iter().map(|doubted| {
                json!({
                    "id": doubted.id.to_string(),
                    "device": doubted.device.display().to_string(),
                    "offset": doubted.offset,
                    "why": doubted.reason.to_string(),
                })
            });
            out.json(&json!({
                "objects": report.objects,
                "scanned": report.scanned,
                "doubtful": report.doubtful,
                "doubted": doubted.collect::<Vec<_>>(),
                "losses": report.losses,
                "lost": report.lost,
                "corrected": report.corrected,
                "damaged": report.damaged,
                "damage": report.damage,
            }))?;
        } else {
            print(&report, out)?;
        }
        let whole = report.losses == 0 && report.doubtful == 0 && report.damaged == 0;
        Ok(Outcome::of_whole(whole))
    }
}

fn print(report: &Repaired, out: &mut Output<'_>) -> Result<()> {
    for line in &report.corrected {
        out.line(format_args!("corrected: {line}"))?;
    }
    for lost in &report.lost {
        out.line(format_args!("lost: {lost}"))?;
    }
    out.more("lost", report.losses, report.lost.len())?;
    for doubted in &report.doubted {
        out.line(format_args!("in doubt: {doubted}"))?;
    }
    out.more("in doubt", report.doubtful, report.doubted.len())?;
    for damage in &report.damage {
        out.line(format_args!("damaged: {damage}"))?;
    }
    let damaged = match report.damaged {
        0 => String::new(),
        damaged => format!(", {damaged} damaged and beyond repair"),
    };
    out.line(format_args!(
        "{}, {} of them in doubt, {}{damaged}",
        counted(report.objects, "object", "objects"),
        report.doubtful,
        counted(report.losses, "loss", "losses")
    ))?;
    if report.doubtful > 0 {
        out.line(
            "objects in doubt may have been removed or replaced before: what knew that is lost; \
             look at them, and remove those that should not be there",
        )?;
    }
    Ok(())
}
