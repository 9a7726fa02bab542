//! Growing a store while it is being used.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 extend the file (a device has grown) | the old size, and unused space after it |
//! | 2 a checkpoint with the new size, the new units unlisted | the old size or the new one |
//! | 3 free the new units | the new size |
//!
//! Nothing is put into the new space before the checkpoint is durable: an open at the old size could not find it. Stores do not
//! shrink.

use crate::error::{Error, Kind, Result, size};
use crate::object::checkpoint::least_journal;
use crate::object::checkpoint::superblock::PLACES_END;
use crate::object::place::extent::UNIT;
use crate::object::{Core, Store};

impl Store {
    /// Grows the store to `capacity` bytes on the device that holds its data; `None`: to the present size of its device. A file
    /// is extended first. Returns the bytes for data.
    ///
    /// `Invalid` if the store, or a device, would have to shrink; `Full` if the file system has no space.
    pub fn grow(&self, capacity: Option<u64>) -> Result<u64> {
        self.core.grow(capacity)
    }
}

impl Core {
    fn grow(&self, capacity: Option<u64>) -> Result<u64> {
        self.log.healthy()?;
        self.refuse_changes()?;
        let state = self.checkpoint.lock();
        let before = self.allocator.lock().space.units();
        let needed = self.data_offset + before * UNIT;
        let there = self.data.size()?;
        let wanted = capacity.unwrap_or(there);
        if wanted < needed || there < needed {
            return Err(Error::new(Kind::Invalid, "a store does not shrink")
                .at(self.data.path())
                .found(
                    size(wanted.min(there)),
                    format!("at least {}", size(needed)),
                )
                .remedy("make a smaller one, and put the objects there"));
        }
        // Whole units, multiples of any sector.
        let wanted = wanted - wanted % UNIT;
        let units = (wanted.min(PLACES_END) - self.data_offset) / UNIT;
        let journal_size = state.last().journal_size;
        let groups = units.div_ceil(u64::from(self.group_units));
        let least = least_journal(self.log.geometry(), groups);
        if units > before && journal_size < least {
            let what = "the journal is too small for so many groups";
            return Err(Error::new(Kind::Invalid, what)
                .at(self.log.storage().path())
                .found(
                    format!("{}, and {groups} groups", size(journal_size)),
                    format!("{} or more", size(least)),
                )
                .remedy("make a store with a larger journal, and put the objects there"));
        }
        if wanted > there {
            self.data.resize(wanted)?;
        }
        if units > before {
            self.allocator.lock().space.grow(units)?;
            drop(state);
            self.make_checkpoint()
                .map_err(|error| self.of_journal(error))?;
        }
        Ok(units.max(before) * UNIT)
    }
}
