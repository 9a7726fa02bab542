//! `object stats`: figures about a store: objects, free room, journal, memory, what the command asked of the devices.
//! The names are the library's. Numbers are exact; the table adds what they are in larger units.
//! It does not verify: `check` does.

use azekura::Result;

use super::place::Place;
use crate::exit::Outcome;
use crate::figures;
use crate::output::Output;

/// Print figures about a store
#[derive(clap::Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    place: Place,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let rows = self.place.look(|store| {
            let mut rows = store.stats()?;
            rows.push(("value_len_max", store.len_max()));
            Ok(rows)
        })?;
        figures::print(out, &rows, self.json)?;
        Ok(Outcome::Yes)
    }
}
