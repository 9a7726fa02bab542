//! `object list`: ids and lengths in the order of ids, from the first or from a place.
//! A list that stops before the end prints on standard error where to continue.
//! It reads no values.

use azekura::Result;
use azekura::object::Listed;
use serde_json::json;

use super::place::{self, Ids, Place};
use crate::exit::Outcome;
use crate::output::Output;
use crate::output::note;

const HELP: &str = "\
Example:
  azekura object list photos.azo --first 2a --limit 10

A damaged part of the index is passed by: the rest is listed, and objects in doubt as they are known.

Exit codes: 3 an invalid id, or --end before --first; 6 the store is in use; 8 the store is damaged.
`azekura --help` lists all.";

/// Print ids and lengths of objects: a line each
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct List {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    ids: Ids,
    /// Print at most so many, and then where to continue [default: all]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print a JSON object for each
    #[arg(long)]
    json: bool,
}

impl List {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let ids = self.ids.read()?;
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut next = None;
        let outcome = self.place.look(|store| {
            place::each_listed(store, ids, |listed| {
                if left == 0 {
                    next = Some(listed.id);
                    return Ok(false);
                }
                left -= 1;
                self.print(out, listed).map(|()| true)
            })
        })?;
        if let Some(next) = next {
            note!("azekura: more with --first {next}");
        }
        Ok(outcome)
    }

    fn print(&self, out: &mut Output<'_>, Listed { id, len, .. }: Listed) -> Result<()> {
        if self.json {
            out.json(&json!({"id": id.to_string(), "len": len}))
        } else {
            out.line(format_args!("{id}\t{len}"))
        }
    }
}
