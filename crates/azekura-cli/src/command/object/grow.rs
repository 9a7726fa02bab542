//! `object grow`: gives a store more room: a longer file, or what its device has got meanwhile.
//! States how much room there is for values then. A store does not shrink.
//! The journal keeps its size.

use azekura::error::size;
use azekura::{Durability, Result};

use super::place::Place;
use crate::exit::Outcome;
use crate::output::Output;
use azekura::size::parse_size;

const HELP: &str = "\
Example:
  azekura object grow photos.azo --capacity 20GiB

Exit codes: 3 less than there is, or too much for the journal; 5 no room on the file system;
6 the store is in use. `azekura --help` lists all.";

/// Give a store more room
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Grow {
    #[command(flatten)]
    place: Place,
    /// Room for journal and values; with --data, for the values [default: what the file or device has]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    capacity: Option<u64>,
}

impl Grow {
    pub(crate) fn run(&self, out: &mut Output<'_>) -> Result<Outcome> {
        let room = self
            .place
            .with(Durability::Power, |store| store.grow(self.capacity))?;
        out.line(format_args!("{room} B for values ({})", size(room)))?;
        Ok(Outcome::Yes)
    }
}
