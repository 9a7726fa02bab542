//! `object check`: verifies what a store relies on, and every byte of every object.
//! Prints each damage on a line, with device, offset and object, and a verdict; the exit code is 8 where there is damage.
//! It does not repair: `azekura object repair` does.

use azekura::Result;
use azekura::error::size;
use azekura::object::CheckReport;
use serde_json::json;

use super::finding;
use super::place::Place;
use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::progress::Progress;

const HELP: &str = "\
Example:
  azekura object check photos.azo

Exit codes: 6 the store is in use; 8 damage was found. `azekura --help` lists all.";

/// Verify a store, all of it
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Check {
    #[command(flatten)]
    place: Place,
    /// Leave the values out: superblocks, index, journal and room alone
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let progress = Progress::work("checking");
        let report = self
            .place
            .look(|store| store.check(!self.quick, &mut progress.report()))?;
        drop(progress);
        if self.json {
            out.json(&json!({
                "sound": report.is_sound(),
                "superblocks": report.superblocks,
                "images": report.images,
                "records": report.records,
                "objects": report.objects,
                "verified": report.verified,
                "bytes": report.bytes,
                "found": report.found,
                "damage": report.findings.iter().map(finding::described).collect::<Vec<_>>(),
            }))?;
        } else {
            self.print(&report, out)?;
        }
        Ok(Outcome::of_whole(report.is_sound()))
    }

    fn print(&self, report: &CheckReport, out: &mut Output<'_>) -> Result<()> {
        for finding in &report.findings {
            out.line(format_args!("damage: {}", finding.what))?;
        }
        let hidden = report.found - report.findings.len() as u64;
        if hidden > 0 {
            let findings = counted(hidden, "finding", "findings");
            out.line(format_args!("and {findings} more"))?;
        }
        let superblocks = if self.place.data().is_some() { 4 } else { 2 };
        if report.is_sound() && report.superblocks < superblocks {
            let whole = report.superblocks;
            out.line(format_args!(
                "note: {whole} of {superblocks} superblocks are whole; the next change writes the other one again"
            ))?;
        }
        let verdict = if report.is_sound() {
            "sound"
        } else {
            "damaged"
        };
        let objects = counted(report.objects, "object", "objects");
        if self.quick {
            out.line(format_args!(
                "{verdict}: {objects}, their values not looked at"
            ))?;
        } else {
            let (verified, bytes) = (report.verified, size(report.bytes));
            out.line(format_args!(
                "{verdict}: {objects}, {verified} of them and {bytes} verified"
            ))?;
        }
        if report.is_sound() {
            return Ok(());
        }
        if !report.needs_repair() {
            return out.line(format_args!(
                "no repair is needed: the next command that writes to {} writes the superblock again",
                self.place.path().display()
            ));
        }
        let is_of_objects = report.findings.iter().all(|found| found.object.is_some());
        out.line(finding::remedy(&self.place, is_of_objects))
    }
}
