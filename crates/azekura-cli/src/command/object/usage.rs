//! `object usage`: what the objects of a range of ids take, together.
//!
//! It promises sums as of some moment while it walks, without an access to the device.
//! It reads no values, and does not know what the rest of the store takes: `stats` does.

use azekura::Result;

use super::place::{Ids, Place};
use crate::exit::Outcome;
use crate::figures;
use crate::output::Output;

const HELP: &str = "\
Example:
  azekura object usage photos.azo --first 2a --end 30

Exit codes: 3 an id that is none; 6 the store is in use. `azekura --help` lists all.";

/// Print what objects take: how many, bytes of their values, bytes on the device
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Usage {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    ids: Ids,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Usage {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let (first, end) = self.ids.read()?;
        let usage = self.place.look(|store| store.usage(first, end))?;
        let rows = [
            ("count", usage.count),
            ("bytes", usage.bytes),
            ("device_bytes", usage.device_bytes),
        ];
        figures::print(out, &rows, self.json)?;
        Ok(Outcome::Yes)
    }
}
