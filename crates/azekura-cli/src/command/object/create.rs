//! `object create`: makes a new, empty store, in new files or on block devices.
//! A file that is there is refused, never emptied, and appears when it can be opened; a device is taken whole, and only if
//! it is blank, or `--force` is given.
//! It does not know what will be stored.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use azekura::io::file::is_device;
use azekura::object::{CreateOptions, Store};
use azekura::{Error, Kind, Result};

use super::place::Place;
use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::refuse_existing;
use azekura::size::parse_size;

const HELP: &str = "\
Examples:
  azekura object create photos.azo --capacity 10GiB
  azekura object create /dev/nvme0n1p3 --data /dev/sdb

Sizes are numbers with B, KiB, MiB, GiB or TiB. Journal and groups do not change later.

Exit codes: 3 sizes that do not fit, something there already, or neither file nor block device;
5 no room on the file system; 6 the device is in use. `azekura --help` lists all.";

/// Make a new, empty store
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Create {
    /// The store to make: a new file, by convention NAME.azo, or a block device
    #[command(flatten)]
    place: Place,
    /// Room for journal and values; with --data, for the values. A block device is taken whole
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    capacity: Option<u64>,
    /// Room for the journal: 80 bytes for each object, 90 below 4MiB, 250 near the least of 144KiB
    /// [default: a 64th of the capacity, at least 4MiB; with --data, of a device all of it]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    journal_size: Option<u64>,
    /// Unit of the room, a power of two: no object is larger
    /// [default: a 16th of the capacity or less, at least 64MiB and at most 1GiB]
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
        for path in [Some(self.place.path()), self.place.data()] {
            path.map_or(Ok(()), refuse_others)?;
        }
        self.place.refuse_one()?;
        self.refuse_capacity(self.place.device())?;
        for path in [Some(self.place.path()), self.place.data()] {
            if let Some(path) = path.filter(|path| !is_device(path)) {
                refuse_existing(path)?;
            }
        }
        let mut options = CreateOptions::new()
            .journal_size(self.journal_size)
            .group_size(self.group_size)
            .fill(self.fill)
            .overwrite(self.force)
            .background(false);
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
            (Some(_), true) => Err(Error::new(
                Kind::Invalid,
                "the capacity of a device cannot be chosen",
            )
            .at(path)
            .remedy("leave --capacity out, or make a partition")),
            _ => Ok(()),
        }
    }
}

/// Refuses what can be neither made nor taken whole.
fn refuse_others(path: &Path) -> Result<()> {
    let Ok(found) = fs::metadata(path).map(|found| found.file_type()) else {
        return Ok(());
    };
    let what = if found.is_char_device() {
        "a character device"
    } else if found.is_dir() {
        "a folder"
    } else if found.is_fifo() {
        "a named pipe"
    } else if found.is_socket() {
        "a socket"
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::Invalid, "no store can be made there")
        .at(path)
        .found(what, "a new name or a block device")
        .remedy("choose another name"))
}
