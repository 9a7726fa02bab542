//! Values outside of their leaves: a run of units each, written before the record that names it is appended.
//!
//! The journal has the value, too, so a run that no checkpoint names may be lost. A reader that found the word of a run in a
//! leaf is pinned from before: the units are not used again meanwhile (`space`). It does not know keys.

use super::Core;
use super::cache::PageCache;
use super::layout::{RunPlace, UNIT};
use crate::error::{Error, Kind, Result};
use crate::log::AllocationClass;
use crate::log::manifest::remedy;
use crate::node::{self, Found, Value};
use crate::room;

/// A run that was written, and that no record names yet. Dropped, it is given back.
pub(super) struct NewRun<'c> {
    core: &'c Core,
    place: Option<RunPlace>,
}

impl NewRun<'_> {
    /// Whether it is the one of this word.
    pub(super) fn is(&self, word: u64) -> bool {
        self.place == Some(RunPlace(word))
    }

    /// Its record was appended at this position, and names it.
    pub(super) fn name(mut self, position: u64) {
        if let Some(place) = self.place.take() {
            let mut room = self.core.tree.nodes.space.room();
            room.note_run(place.unit(), position);
        }
    }
}

impl Drop for NewRun<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut room = self.core.tree.nodes.space.room();
            room.give_units(place.unit(), place.units() as u32);
        }
    }
}

impl Core {
    /// The form in which a value is stored, with the run that was made for it.
    #[inline(always)]
    pub(super) fn value<'v>(
        &self,
        value: &'v [u8],
        class: AllocationClass,
    ) -> Result<(Value<'v>, Option<NewRun<'_>>)> {
        if value.len() <= node::VALUE_LEN_MAX {
            return Ok((Value::Inside(value), None));
        }
        let (place, run) = self.write_run(false, &[value], class)?;
        Ok((Value::Outside(place.0), Some(run)))
    }

    /// Writes a value, or a list, in parts, to a run of its own.
    #[cold]
    pub(super) fn write_run(
        &self,
        is_list: bool,
        parts: &[&[u8]],
        class: AllocationClass,
    ) -> Result<(RunPlace, NewRun<'_>)> {
        let units = RunPlace::units_of(parts.iter().map(|part| part.len()).sum());
        let mut bytes = room::vec((units * UNIT) as usize)?;
        let pages = &self.tree.nodes;
        let unit = pages.space.room().take_run(units as u32, class)?;
        let salt = self.log.geometry().salt;
        let place = RunPlace::encode(salt, unit, is_list, parts, &mut bytes);
        let run = NewRun {
            core: self,
            place: Some(place),
        };
        if let Err(error) = self.log.storage().write_at(unit * UNIT, &bytes) {
            self.log.poison();
            return Err(error);
        }
        Ok((place, run))
    }

    /// The value that a word of a leaf names. `Corrupted` with the offset, `Io`, `Full`.
    pub(super) fn read_run(&self, word: u64) -> Result<Vec<u8>> {
        let value = self.read_run_if(word, true)?;
        Ok(value.unwrap_or_default())
    }

    /// As `read_run`; `None`: it may not wait for the device, and the run's read has begun.
    pub(super) fn read_run_if(&self, word: u64, may_wait: bool) -> Result<Option<Vec<u8>>> {
        let place = RunPlace(word);
        let offset = place.unit() * UNIT;
        let storage = self.log.storage();
        let damaged = || {
            Error::new(Kind::Corrupted, "a value is damaged")
                .at(storage.path())
                .offset(offset)
                .remedy(remedy(&**storage))
        };
        let size = storage.size()?;
        // The last unit of the file may be written in part only.
        let len = (place.units() * UNIT).min(size.saturating_sub(offset));
        let mut bytes = room::vec(len as usize)?;
        bytes.resize(len as usize, 0);
        let read = storage.read_if(offset, &mut bytes, may_wait);
        if !read.map_err(|error| error.at(storage.path()).offset(offset))? {
            return Ok(None);
        }
        let salt = self.log.geometry().salt;
        let value = place.decode(salt, &bytes).ok_or_else(damaged)?.len();
        bytes.drain(..super::layout::RUN_HEAD);
        bytes.truncate(value);
        Ok(Some(bytes))
    }

    /// What stood outside for a value is superseded by a change at `position`.
    #[inline(always)]
    pub(super) fn supersede(&self, found: Option<Found>, position: u64) {
        if let Some(found) = found {
            self.tree.nodes.supersede(found, position);
        }
    }
}

impl PageCache {
    /// What stood outside for a value is superseded by a change at `position`.
    #[inline(always)]
    pub(super) fn supersede(&self, found: Found, position: u64) {
        if let Found::Outside(word) = found {
            let place = RunPlace(word);
            if place == RunPlace::UNREADABLE_LIST {
                // It stands nowhere.
                return;
            }
            let mut room = self.space.room();
            room.supersede_run(place.unit(), place.units() as u32, position);
        }
    }
}
