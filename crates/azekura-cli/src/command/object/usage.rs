//! `object usage`: what the objects of a range of ids take, together.
//!
//! It promises sums as of some moment while it walks, without an access to the device. Of a damaged store they are sums of what
//! is known: the doubt is reported on standard error, and the exit code is 8.
//! It reads no values, and does not know what the rest of the store takes: `stats` does.

use azekura::Result;

use super::place::{self, Ids, Place};
use crate::exit::Outcome;
use crate::figures;
use crate::output::Output;

const HELP: &str = "\
Example:
  azekura object usage photos.azo --first 2a --end 30

Of a damaged store the sums are of what is known.

Exit codes: 3 an invalid id, or --end before --first; 6 the store is in use; 8 the store is damaged.
`azekura --help` lists all.";

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
        let ids = self.ids.read()?;
        let (mut count, mut bytes, mut device_bytes) = (0, 0, 0);
        let outcome = self.place.look(|store| {
            // What `StoreReader::usage` refuses of a damaged store is shown here.
            place::each_listed(store, ids, |listed| {
                count += 1;
                bytes += listed.len;
                device_bytes += listed.device_bytes;
                Ok(true)
            })
        })?;
        let rows = [
            ("count", count),
            ("bytes", bytes),
            ("device_bytes", device_bytes),
        ];
        figures::print(out, &rows, self.json)?;
        Ok(outcome)
    }
}
