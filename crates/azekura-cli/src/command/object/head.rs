//! `object head`: whether objects are there, and how long they are, without reading them.
//! Absent ones are named on standard error and make the answer no.
//! It reads no values, except for the sequences of `--sequence`.

use azekura::Result;
use azekura::object::{ObjectId, StoreReader};
use serde_json::json;

use super::place::{self, Place};
use crate::exit::Outcome;
use crate::output::Output;

const HELP: &str = "\
Example:
  azekura object head photos.azo 2a --sequence

Exit codes: 1 one of the objects is not there; 6 the store is in use. `azekura --help` lists all.";

/// Print the lengths of objects
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Head {
    #[command(flatten)]
    place: Place,
    /// The objects
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Print the sequence, too, that put --expect wants: one read of the device for each
    #[arg(long)]
    sequence: bool,
    /// Print a JSON object for each
    #[arg(long)]
    json: bool,
}

impl Head {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let ids = place::ids(&self.ids)?;
        let mut absent = Vec::new();
        self.place.look(|store| {
            for id in &ids {
                if !self.show(store, *id, out)? {
                    absent.push(*id);
                }
            }
            Ok(())
        })?;
        place::absent(&absent);
        Ok(Outcome::of(absent.is_empty()))
    }

    /// Whether there is such an object.
    fn show(&self, store: &StoreReader, id: ObjectId, out: &mut Output<'_>) -> Result<bool> {
        let Some(len) = store.head(id)? else {
            return Ok(false);
        };
        let sequence = if self.sequence {
            store.sequence(id)?
        } else {
            None
        };
        match (self.json, sequence) {
            (false, None) => out.line(format_args!("{id}\t{len}"))?,
            (false, Some(sequence)) => out.line(format_args!("{id}\t{len}\t{sequence}"))?,
            (true, None) => out.json(&json!({"id": id.to_string(), "len": len}))?,
            (true, Some(sequence)) => {
                out.json(&json!({"id": id.to_string(), "len": len, "sequence": sequence}))?;
            }
        }
        Ok(true)
    }
}
