//! `check`: verifies every byte of a file against its checksums and invariants, without changing it.
//! Prints each damage on a line, and a verdict; the exit code is 8 where there is damage.
//! It does not repair: `azekura repair` does, into another file.

use std::path::PathBuf;

use azekura::error::size;
use azekura::shard::files_of;
use azekura::{Error, Kind, Result};
use serde_json::json;

use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::progress::Progress;

/// Verify a file, all of it
#[derive(clap::Args)]
pub(crate) struct Check {
    /// The file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let store = azekura::open::open_read_only(&self.file)?;
        let persistent = store.as_persistent().ok_or_else(|| {
            Error::new(Kind::Invalid, "this engine has no file to check").at(&self.file)
        })?;
        let progress = Progress::work("checking");
        let report = persistent.check(&mut progress.report())?;
        drop(progress);
        if self.json {
            out.json(&json!({
                "sound": report.is_sound(),
                "records": report.records,
                "bytes": report.bytes,
                "damage": report.damage,
            }))?;
        } else {
            for damage in &report.damage {
                out.line(format_args!("damage: {damage}"))?;
            }
            let verdict = if report.is_sound() {
                "sound"
            } else {
                "damaged"
            };
            let records = counted(report.records, "record", "records");
            let bytes = size(report.bytes);
            out.line(format_args!("{verdict}: {records} and {bytes} verified"))?;
            let shards = files_of(&self.file).unwrap_or_default();
            if report.needs_repair() && !shards.is_empty() {
                out.line(format_args!(
                    "run `azekura repair FILE NEW-FILE` of each damaged file, put the new one in its place, and run `azekura rebuild {}`",
                    self.file.display()
                ))?;
            } else if report.needs_repair() {
                out.line(format_args!(
                    "run `azekura repair {} NEW-FILE` to save what is left into a new file",
                    self.file.display()
                ))?;
            } else if !report.is_sound() {
                out.line(format_args!(
                    "no repair is needed: the next command that writes to {} writes the superblock again",
                    self.file.display()
                ))?;
            }
        }
        Ok(Outcome::of_whole(report.is_sound()))
    }
}
