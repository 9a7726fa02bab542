//! `object scrub`: reads and verifies every object within a budget of bytes a second.
//! Prints each damage on a line when it is found; the exit code is 8 where there was one, where an object is in doubt, and where
//! the store is damaged otherwise.
//! It looks at values alone: `check` verifies the rest, too.

use azekura::Result;
use azekura::error::size;
use azekura::object::{Finding, Scrubbed, Step, StoreReader};
use serde_json::json;

use super::finding;
use super::place::{self, Bounds, Ids, Place};
use crate::exit::Outcome;
use crate::output::{Output, counted};
use crate::progress::Progress;
use azekura::size::parse_size;

/// A size of something: with nothing a second it would never end.
fn parse_rate(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a rate is more than nothing".into()),
        rate => Ok(rate),
    }
}

const HELP: &str = "\
Example:
  azekura object scrub photos.azo --rate 20MiB

Objects in doubt are counted: their bytes verify, but a newer value or a removal may be lost.

Exit codes: 6 the store is in use; 8 damage was found. `azekura --help` lists all.";

/// Read and verify all objects, slowly
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Scrub {
    #[command(flatten)]
    place: Place,
    /// Read no more than this each second, as 20MiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    rate: Option<u64>,
    #[command(flatten)]
    ids: Ids,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Scrub {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let ids = self.ids.read()?;
        let mut findings = Vec::new();
        let (done, outcome) = self.place.look(|store| {
            let done = self.scrub(store, ids, &mut |finding| {
                if self.json {
                    findings.push(finding::described(&finding));
                    return Ok(());
                }
                out.line_now(format_args!("damage: {}", finding.what))
            })?;
            Ok((done, place::outcome_of(store)))
        })?;
        if self.json {
            out.json(&json!({
                "objects": done.objects,
                "bytes": done.bytes,
                "damaged": done.damaged,
                "doubtful": done.doubtful,
                "damage": findings,
            }))?;
        } else {
            self.print(done, out)?;
        }
        Ok(if done.damaged == 0 && done.doubtful == 0 {
            outcome
        } else {
            Outcome::Damaged
        })
    }

    fn print(&self, done: Scrubbed, out: &mut Output<'_>) -> Result<()> {
        let objects = counted(done.objects, "object", "objects");
        let (bytes, damaged) = (size(done.bytes), done.damaged);
        let doubtful = match done.doubtful {
            0 => String::new(),
            doubtful => format!(", {doubtful} in doubt"),
        };
        out.line(format_args!(
            "{objects} read, {bytes} verified, {damaged} damaged{doubtful}"
        ))?;
        if damaged > 0 {
            out.line(finding::remedy(&self.place, true))?;
        }
        Ok(())
    }

    fn scrub(
        &self,
        store: &StoreReader,
        ids: Bounds,
        report: &mut dyn FnMut(Finding) -> Result<()>,
    ) -> Result<Scrubbed> {
        let total = if self.ids.is_given() {
            // It is for the progress alone: the scrub reports damage itself.
            store.usage(ids).map_or(store.count(), |usage| usage.count)
        } else {
            store.count()
        };
        let progress = Progress::new("scrubbing", total);
        let mut reported = Ok(());
        let mut count = 0;
        let done = store.scrub(ids, self.rate, &mut |step| {
            count += 1;
            progress.set(count);
            if let Step::Damaged(finding) = step {
                reported = report(finding);
            }
            reported.is_ok()
        })?;
        reported.map(|()| done)
    }
}
