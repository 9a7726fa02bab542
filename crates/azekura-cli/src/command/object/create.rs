//! `object create`: makes a new, empty store, in new files or on block devices.
//! A file that is there is refused, never emptied, and appears when it can be opened; a device is taken whole, and only if
//! it is blank, or `--force` is given.
//! It does not know what will be stored.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;

use azekura::io::file::{File, remove, sync_directory};
use azekura::io::{Access, Storage};
use azekura::object::{Options, Store};
use azekura::{Error, Kind, Result};

use super::place::Place;
use crate::exit::Outcome;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{parse_size, refuse_existing};

/// What is looked at of a device, at each end of it: file systems, partitions and stores leave their marks there.
const MARKS: u64 = 1 << 20;
/// A journal has this part of the capacity, and so much at least, unless it is told otherwise.
const JOURNAL_PART: u64 = 64;
const JOURNAL_MIN: u64 = 4 << 20;

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
    /// Room for the journal: 80 bytes for each object, 100 and more below 4MiB
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
        let (store, data) = (self.place.path(), self.place.data());
        if data == Some(store) {
            return Err(
                Error::new(Kind::Invalid, "journal and values need two places")
                    .at(store)
                    .remedy("leave --data out"),
            );
        }
        refuse_others(store)?;
        data.map_or(Ok(()), refuse_others)?;
        self.refuse_capacity(self.place.device())?;
        let Some(data) = data else {
            let one = self.prepare(store, self.capacity)?;
            return self.make(&one, None).map(|()| Outcome::Yes);
        };
        // What need not be made is refused before anything is.
        if !is_device(store) {
            refuse_existing(store)?;
        }
        let data = self.prepare(data, self.capacity)?;
        let part = (data.storage.size()? / JOURNAL_PART).max(JOURNAL_MIN);
        let journal = self.prepare(store, self.journal_size.or(Some(part)))?;
        self.make(&journal, Some(&data))?;
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

    /// A new file of `size` without a name, or the blank device.
    fn prepare(&self, path: &Path, size: Option<u64>) -> Result<New> {
        if is_device(path) {
            let device = File::open(path, Access::Write)?;
            if !self.force {
                refuse_marks(&device, path)?;
            }
            return Ok(New {
                storage: Arc::new(device),
                is_file: false,
            });
        }
        refuse_existing(path)?;
        let file = File::create_nameless(path)?;
        if let Some(size) = size {
            file.resize(size)?;
        }
        Ok(New {
            storage: Arc::new(file),
            is_file: true,
        })
    }

    fn make(&self, journal: &New, data: Option<&New>) -> Result<()> {
        let options = Options {
            // Two places are taken whole.
            journal_size: self.journal_size.filter(|_| data.is_none()),
            group_size: self.group_size,
            fill: self.fill,
            background: false,
            ..Options::default()
        };
        let progress = Progress::bytes("filling", 0);
        let store = Store::create_on(
            Arc::clone(&journal.storage),
            data.map(|data| Arc::clone(&data.storage)),
            &options,
            &mut progress.report(),
        )
        .map_err(|error| error.at(self.place.device()))?;
        drop(progress);
        store.close()?;
        // The journal last: what has its name is whole.
        if let Some(data) = data {
            data.appear()?;
        }
        journal.appear().inspect_err(|_| {
            if let Some(data) = data.filter(|data| data.is_file) {
                // Without its journal it is nothing.
                let _ = remove(data.storage.path());
            }
        })
    }
}

/// A storage that is to become one of a store.
struct New {
    storage: Arc<dyn Storage>,
    is_file: bool,
}

impl New {
    /// Gives a file its name.
    fn appear(&self) -> Result<()> {
        if self.is_file {
            self.storage.take_name()?;
            sync_directory(self.storage.path())?;
        }
        Ok(())
    }
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
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

/// Refuses a device on which something was written, as far as its ends show.
fn refuse_marks(device: &File, path: &Path) -> Result<()> {
    let size = device.size()?;
    let mut bytes = vec![0; MARKS.min(size) as usize];
    for offset in [0, size - bytes.len() as u64] {
        device.read_at(offset, &mut bytes)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Err(Error::new(Kind::Invalid, "the device is not blank")
                .at(path)
                .offset(offset + at as u64)
                .remedy("choose another one, or lose what is on it: --force"));
        }
    }
    Ok(())
}
