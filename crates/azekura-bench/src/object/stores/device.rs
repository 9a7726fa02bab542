//! No store: what the device does by itself with values of one size, to be compared with those of stores.
//!
//! A file of as many places as there are objects, after one slot of a superblock, is written once when it is made, past
//! the page cache (`O_DIRECT`), so that no block is met for the first time while the clock runs. Any other file, and a
//! block device, is refused before anything is written: its superblock is missing or names another engine. A put writes the next
//! place, so puts are one sequential stream; a get reads the place that a hash of its key names; a
//! removal does nothing. That is what `fio` does with the same block size and depth. With class `power` each
//! write is followed by a sync of its own; with `buffered` and `process`, which mean the same here, the
//! device's cache is trusted. What is read is not handed over, since that would be a copy, and is not
//! verified.

use std::cell::RefCell;

use azekura::error::{Error, Kind, Result};
use azekura::format::superblock::{SLOT_SIZE, Superblock};
use azekura::io::aligned::AlignedBuf;
use azekura::io::direct::DirectFile;
use azekura::io::{Access, Storage};

use crate::generate::mix;
use crate::measure::{Counters, Counting};
use crate::object::draw;
use crate::object::store::{Found, Objects, Setup};
use crate::phase::Class;

/// The engine's word in the superblock.
const ENGINE: [u8; 8] = *b"device\0\0";

struct Device {
    file: DirectFile,
    class: Class,
    /// Where the first place begins.
    start: u64,
    /// Bytes of a place, and how many there are.
    place: u64,
    places: u64,
    counting: Counting,
}

thread_local! {
    /// The thread's buffer for reads, and for values that do not fill blocks.
    static BUFFER: RefCell<Option<AlignedBuf>> = const { RefCell::new(None) };
}

/// Opens the file, or makes and writes it. Errors: `Invalid` (no path, a class it does not have, a file system
/// without direct access), `Mismatch` (a file that was not made here), `Full`, `Io`.
pub fn open(setup: &Setup) -> Result<Box<dyn Objects>> {
    let path = setup.require_path()?;
    let offered = [Class::Buffered, Class::Process, Class::Power];
    let class = setup.require_class("device", &offered)?;
    let file = if setup.create {
        DirectFile::create(path)?
    } else {
        DirectFile::open(path, Access::Write)?
    };
    let place = setup.value_size.max(1).next_multiple_of(file.alignment());
    let start = SLOT_SIZE.next_multiple_of(file.alignment());
    if setup.create {
        let size = place.checked_mul(setup.objects);
        let size = size
            .and_then(|size| size.checked_add(start))
            .ok_or_else(|| {
                Error::new(Kind::Invalid, "so many objects have no place in a file").at(path)
            })?;
        file.resize(size)?;
        let mut block = AlignedBuf::zeroed(place as usize, file.alignment())?;
        for number in 0..setup.objects {
            draw::fill(u128::from(number), 0, &mut block);
            file.write_at(start + number * place, &block)?;
        }
        let superblock = Superblock {
            engine: ENGINE,
            sequence: 0,
            payload: Vec::new(),
        };
        file.write_at(0, &superblock.encode())?;
        file.sync()?;
    } else {
        refuse_others(&file).map_err(|error| error.at(path))?;
    }
    let places = file.size()?.saturating_sub(start) / place;
    if places == 0 {
        return Err(Error::new(Kind::Invalid, "there is no room for one value").at(path));
    }
    Ok(Box::new(Device {
        file,
        class,
        start,
        place,
        places,
        counting: Counting::default(),
    }))
}

/// `Mismatch` or `Corrupted` unless the file begins with a superblock of this engine.
fn refuse_others(file: &DirectFile) -> Result<()> {
    let mut head = [0; SLOT_SIZE as usize];
    let len = file.size()?.min(SLOT_SIZE) as usize;
    file.read_at(0, &mut head[..len])?;
    Superblock::current(&head[..len], &ENGINE).map(drop)
}

impl Device {
    /// The offset of the place that a number falls on.
    fn offset(&self, number: u64) -> u64 {
        self.start + number % self.places * self.place
    }

    fn buffered(&self, with: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        BUFFER.with_borrow_mut(|buffer| match buffer {
            Some(buffer) if buffer.len() as u64 == self.place => with(buffer),
            _ => {
                let place = AlignedBuf::zeroed(self.place as usize, self.file.alignment())?;
                with(buffer.insert(place))
            }
        })
    }
}

impl Objects for Device {
    fn put(&self, _: u128, value: &[u8]) -> Result<Option<bool>> {
        if value.len() as u64 > self.place {
            return Err(Error::new(
                Kind::TooLarge,
                "the value is larger than a place",
            ));
        }
        let offset = self.offset(self.counting.write());
        if value.len() as u64 == self.place {
            self.file.write_at(offset, value)?;
        } else {
            self.buffered(|buffer| {
                buffer[..value.len()].copy_from_slice(value);
                self.file.write_at(offset, buffer)
            })?;
        }
        if self.class == Class::Power {
            self.sync()?;
        }
        Ok(None)
    }

    fn get(&self, id: u128) -> Result<Option<Found<'_>>> {
        let offset = self.offset(mix(mix(id as u64) ^ (id >> 64) as u64));
        self.buffered(|buffer| self.file.read_at(offset, buffer))?;
        self.counting.read();
        Ok(Some(Box::new([])))
    }

    fn remove(&self, _: u128) -> Result<Option<bool>> {
        Ok(None)
    }

    fn sync(&self) -> Result<()> {
        self.counting.sync();
        self.file.sync()
    }

    fn verifiable(&self) -> bool {
        false
    }

    fn counters(&self) -> Option<Counters> {
        Some(self.counting.counters())
    }
}
