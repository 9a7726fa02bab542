//! `object stats`: figures about a store: objects, free room, journal, memory.
//! The names are the library's. Numbers are exact; the table adds what they are in larger units. What is not the store's but this
//! command's own, as its reads of the device, is left out.
//! It does not verify: `check` does.

use azekura::Result;

use super::place::{self, Place};
use crate::exit::Outcome;
use crate::figures;
use crate::output::Output;

/// The figures that are the store's.
const SHOWN: [&str; 13] = [
    "objects",
    "bytes",
    "extent_bytes",
    "pack_bytes",
    "objects_in_journal",
    "data_bytes",
    "free_bytes",
    "limbo_bytes",
    "longest_free_bytes",
    "free_runs",
    "groups",
    "journal_bytes",
    "index_memory",
];

const HELP: &str = "\
Example:
  azekura object stats photos.azo

  objects, bytes                  objects, and bytes of their values
  extent_bytes                    room of objects that have a place of their own
  pack_bytes, objects_in_journal  room of small ones that share places; those that have none yet
  data_bytes, free_bytes          room for values in all; what of it is free
  limbo_bytes                     free after the next sync
  longest_free_bytes, free_runs   the longest free piece; how many pieces there are
  groups                          allocation groups
  journal_bytes                   room of the journal
  index_memory                    memory that the index of all objects takes
  value_len_max                   the longest value that may be put

`Store::stats` reports the accesses of a program to its devices, and their time.

Exit codes: 6 the store is in use; 8 damage was found. `azekura --help` lists all.";

/// Print figures about a store
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Stats {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let (rows, outcome) = self.place.look(|store| {
            let mut rows = store.stats()?.rows();
            rows.retain(|(name, _)| SHOWN.contains(name));
            rows.push(("value_len_max", store.len_max()));
            Ok((rows, place::outcome_of(store)))
        })?;
        figures::print(out, &rows, self.json)?;
        Ok(outcome)
    }
}
