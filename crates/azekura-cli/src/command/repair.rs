//! `repair`: saves what is left of a damaged file into a new one, and says what was lost.
//! The damaged file is only read. The exit code is 8 if something was lost or is in doubt.
//! It does not guess: a record comes out only if its checksum holds.

use std::path::PathBuf;

use azekura::Result;
use azekura::record::hash;
use serde_json::json;

use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::progress::Progress;
use crate::store::refuse_existing;

/// Save what is left of a damaged file into a new one
#[derive(clap::Args)]
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
        let progress = Progress::work("repairing");
        let report = hash::repair(&self.damaged, &self.target, &mut progress.report())?;
        drop(progress);
        if self.json {
            out.json(&json!({
                "recovered": report.recovered,
                "doubtful": report.doubtful,
                "lost": report.lost,
            }))?;
        } else {
            for lost in &report.lost {
                out.line(format_args!("lost: {lost}"))?;
            }
            out.line(format_args!(
                "{} recovered, {} of them in doubt, {}",
                counted(report.recovered, "record", "records"),
                report.doubtful,
                counted(report.lost.len() as u64, "loss", "losses")
            ))?;
        }
        let whole = report.lost.is_empty() && report.doubtful == 0;
        Ok(if whole {
            Outcome::Yes
        } else {
            Outcome::Damaged
        })
    }
}
