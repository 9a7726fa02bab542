//! `object create`: makes a new, empty store, in new files or on block devices.
//! A file that is there is refused, never emptied, and appears when it can be opened; a device is taken whole, and only if
//! it is blank, or `--force` is given.
//! It does not know what will be stored.

use std::path::Path;

use azekura::io::file::is_device;
use azekura::object::{Options, Store};
use azekura::{Error, Kind, Result};

use super::place::Place;
use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{parse_size, refuse_existing};

/// Make a new, empty store
#[derive(clap::Args)]
pub(crate) struct Create {
    /// The store to make: a new file, by convention NAME.azo, or a block device
    #[command(flatten)]
    place: Place,
    /// Room for journal and values; with --data, for the values. A block device is taken whole
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    capacity: Option<u64>,
    /// Room for the journal: 80 bytes for each object [default: a 64th of the capacity, but 4MiB]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    journal_size: Option<u64>,
    /// Unit of the room, a power of two: no object is larger [default: 64MiB to 1GiB]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    group_size: Option<u64>,
    /// Write all of the room once: takes its time, and makes the first writes as fast as later ones
    #[arg(long)]
    fill: bool,
    /// Take a block device that is not blank: what is on it is lost
    #[arg(long)]
    force: bool,
}

impl Create {
    pub(crate) fn run(&self, _: &mut Output<'_>) -> Result<Outcome> {
        self.refuse_capacity(self.place.device())?;
        for path in [Some(self.place.path()), self.place.data()] {
            if let Some(path) = path.filter(|path| !is_device(path)) {
                refuse_existing(path)?;
            }
        }
        let mut options = Options {
            journal_size: self.journal_size,
            group_size: self.group_size,
            fill: self.fill,
            overwrite: self.force,
            background: false,
            ..Options::default()
        };
        // A device has the one it has.
        if let Some(capacity) = self.capacity {
            options.capacity = capacity;
        }
        let progress = Progress::bytes("filling", 0);
        let store = Store::create_with_data(
            self.place.path(),
            self.place.data(),
            &options,
            &mut progress.report(),
        )
        .map_err(|error| error.at(self.place.device()))?;
        drop(progress);
        store.close()?;
        Ok(Outcome::Yes)
    }

    /// A file needs a capacity, and a device has one.
    fn refuse_capacity(&self, path: &Path) -> Result<()> {
        match (self.capacity, is_device(path)) {
            (None, false) => Err(Error::new(Kind::Invalid, "a new file needs a capacity")
                .at(path)
                .remedy("give --capacity SIZE")),
            (Some(_), true) => Err(
                Error::new(Kind::Invalid, "a device has the capacity it has")
                    .at(path)
                    .remedy("leave --capacity out, or make a partition"),
            ),
            _ => Ok(()),
        }
    }
}
