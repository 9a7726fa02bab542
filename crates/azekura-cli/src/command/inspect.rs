//! `inspect`: prints what a file is and holds, without changing it.
//! The names are the library's. Numbers are exact; the table adds what they are in larger units.
//! It does not verify: `check` does.

use std::path::PathBuf;

use azekura::{Durability, Result};

use crate::exit::Outcome;
use crate::figures;
use crate::output::Output;

/// Print figures about a file
#[derive(clap::Args)]
pub(crate) struct Inspect {
    /// The file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let (mut rows, store) = azekura::open::inspect(&self.file)?;
        let promise = store.promise();
        let durability = promise
            .durability
            .map_or("none", |durability| match durability {
                Durability::Process => "process",
                Durability::Power => "power",
            });
        rows.push(("durability", durability.to_string()));
        rows.push(("key_len_max", promise.key_len_max.to_string()));
        rows.push(("value_len_max", promise.value_len_max.to_string()));
        figures::print(out, &rows, self.json)?;
        Ok(Outcome::Yes)
    }
}
