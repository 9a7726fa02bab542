//! Handing out segments, and the reserve that a full store lives on.
//!
//! Who takes a segment says what for, its [`Claim`], and some free ones must be left for what is more urgent:
//!
//! ```text
//!   free segments   | checkpoint's need |  2  |  2  |  2  | ...
//!   checkpoints     <-'                 |     |     |     |
//!   cleaning        <-------------------'     |     |     |
//!   removals        <-------------------------'     |     |
//!   exchanges       <-------------------------------'     |
//!   growth          <-------------------------------------'
//! ```
//! The storage is grown ahead for what must be left. If it cannot be, the claim is refused, and if that was growth, the
//! store is *full* until so much is free again: a full store takes removals, which take room
//! of the log, too; cleaning and a checkpoint give that back.
//!
//! It does not know how much a checkpoint needs: the engine says so.

use std::ops::Range;

use super::{FULL, Segment, Space, Use};
use crate::error::{Error, Kind, Result};

/// Segments between one claim and the next.
const STEP: u32 = 2;
/// Where the need is kept whole, a storage of fewer segments has steps of one.
const SMALL: u32 = 64;
/// A small store's reserve takes at most this part of its capacity, where it is not kept whole.
const PART_OF_CAPACITY: u32 = 4;

/// What helps where there are records; an engine that keeps other things says so itself.
pub const REMEDY: &str = "remove records, or give the store more room";

/// What a segment is taken for; the later, the deeper it reaches into the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// More than there was.
    Growth,
    /// What replaces as much or more.
    Exchange,
    /// Removals, which make room in the end.
    Removal,
    /// Copies of live records, so that what they leave can be used again.
    Cleaning,
    /// What a checkpoint writes: nothing is free again before it is durable.
    Checkpoint,
}

impl Claim {
    /// Segments it leaves, if a checkpoint may need so many, and between one claim and the next there are `step`.
    fn leaves(self, checkpoint: u32, step: u32) -> u32 {
        match self {
            Self::Growth => checkpoint + checkpoint / 4 + 3 * step,
            Self::Exchange => checkpoint + checkpoint / 8 + 2 * step,
            Self::Removal => checkpoint + step,
            Self::Cleaning => checkpoint,
            Self::Checkpoint => 0,
        }
    }
}

/// Segments that growth leaves, if a checkpoint may need so many and all of it is kept, of a storage of at most `limit`.
pub fn left_by_growth(checkpoint: u32, limit: u32) -> u32 {
    Claim::Growth.leaves(checkpoint, whole_step(limit))
}

/// Segments between one claim and the next, where the need is kept whole.
fn whole_step(limit: u32) -> u32 {
    if limit < SMALL { 1 } else { STEP }
}

impl Space<'_> {
    /// Hands out `units` neighbouring segments, zeroed for the log, lowest first, prepared ones to the log only
    /// as long as there are others; grows the storage if there are none, or fewer than are to be left. `Full` if
    /// it cannot.
    pub fn take(&mut self, units: u32, sequence: u64, usage: Use, claim: Claim) -> Result<u32> {
        self.secure(units, claim)?;
        let prepared = self.free.prepared.first().copied();
        let index = if let Some(index) = prepared.filter(|_| usage == Use::Log && units == 1) {
            index
        } else {
            self.find(units, claim).ok_or_else(|| {
                Error::new(Kind::Full, "no room for a segment after growing")
                    .at(self.segments.storage.path())
                    .remedy(REMEDY)
            })?
        };
        for unit in index..index + units {
            self.free.available.remove(&unit);
            self.free.prepared.remove(&unit);
            if !self.free.zeroed.remove(&unit) && usage == Use::Log {
                let geometry = self.segments.geometry;
                self.segments
                    .map
                    .zero(geometry.offset_of(unit), geometry.segment_size());
            }
        }
        let segment = Segment {
            index,
            units,
            sequence,
            dead: 0,
        };
        self.segments.enter(&mut self.free, segment, usage);
        if usage == Use::Other {
            self.segments.forget(index, units);
        }
        Ok(index)
    }

    /// Sees to it that `units` neighbouring segments can be taken for `claim`. `Full` if not.
    ///
    /// The storage is grown so far that growth could go on for a segment more; if that fails the store is full, though
    /// there may be room for this claim.
    pub fn secure(&mut self, units: u32, claim: Claim) -> Result<()> {
        if self.left_for(Claim::Growth) > units && self.is_left(units, Claim::Growth) {
            return Ok(());
        }
        match self.grow_for(units + 1, Claim::Growth) {
            Err(error) if error.kind() == Kind::Full => {}
            other => return other,
        }
        self.segments.raise(FULL);
        self.free.was_full = true;
        if self.is_left(units, claim) {
            return Ok(());
        }
        self.grow_for(units, claim).map_err(|error| {
            if error.kind() == Kind::Full {
                error.remedy(REMEDY)
            } else {
                error
            }
        })
    }

    fn grow_for(&mut self, units: u32, claim: Claim) -> Result<()> {
        let missing = (units + self.left_by(claim)).saturating_sub(self.count());
        let mut apart = 0;
        if self.find(units, claim).is_none() {
            apart = units;
        }
        if claim == Claim::Growth && !self.has_root_room() {
            apart += self.free.root_units;
        }
        self.grow(missing.max(apart).max(1))
    }

    /// Whether `units` neighbouring segments are free, and what `claim` must leave besides.
    pub fn is_left(&self, units: u32, claim: Claim) -> bool {
        self.left_for(claim) >= units
            && self.find(units, claim).is_some()
            && (claim != Claim::Growth || self.has_root_room())
    }

    fn has_root_room(&self) -> bool {
        self.free.root_units < 2 || !self.held_for_root().is_empty()
    }

    /// How many segments may be taken for `claim` before the storage must grow.
    pub fn left_for(&self, claim: Claim) -> u32 {
        self.count().saturating_sub(self.left_by(claim))
    }

    /// How many free segments `claim` lacks of what it must leave.
    pub fn missing_for(&self, claim: Claim) -> u32 {
        self.left_by(claim).saturating_sub(self.count())
    }

    /// The store is not full any more once growth can go on for some segments.
    pub(super) fn ease(&self) {
        if self.left_for(Claim::Growth) >= self.step() {
            self.segments.settle(FULL);
        }
    }

    /// Segments that `claim` leaves.
    pub(super) fn left_by(&self, claim: Claim) -> u32 {
        let wanted = claim.leaves(self.free.checkpoint_need, self.step());
        if self.free.keeps_whole {
            return wanted;
        }
        wanted.min(self.segments.limit / PART_OF_CAPACITY)
    }

    /// Segments between one claim and the next.
    fn step(&self) -> u32 {
        if self.free.keeps_whole {
            whole_step(self.segments.limit)
        } else {
            STEP
        }
    }

    fn count(&self) -> u32 {
        self.free.available.len() as u32
    }

    /// Whether there are `units` neighbouring free segments for a checkpoint.
    pub fn has(&self, units: u32) -> bool {
        self.find(units, Claim::Checkpoint).is_some()
    }

    /// Free segments that are not prepared.
    pub(super) fn others(&self) -> impl Iterator<Item = u32> {
        let prepared = &self.free.prepared;
        let available = self.free.available.iter().copied();
        available.filter(|index| !prepared.contains(index))
    }

    fn find(&self, units: u32, claim: Claim) -> Option<u32> {
        let held = self.held_for_root();
        let is_root = claim == Claim::Checkpoint && units >= held.end - held.start;
        let usable = |index: &u32| is_root || !held.contains(index);
        let all = self.free.available.iter().copied();
        Self::first_run(self.others().filter(usable), units)
            .or_else(|| Self::first_run(all.filter(usable), units))
    }

    /// Where a checkpoint's root takes several segments: the last so many neighbours, lest what is free be in pieces when
    /// there is nothing else.
    fn held_for_root(&self) -> Range<u32> {
        let units = self.free.root_units;
        if units < 2 {
            return 0..0;
        }
        let mut end = None;
        for &index in self.free.available.iter().rev() {
            let last = match end {
                Some((first, last)) if first == index + 1 => last,
                _ => index + 1,
            };
            if last - index == units {
                return index..last;
            }
            end = Some((index, last));
        }
        0..0
    }

    fn first_run(free: impl Iterator<Item = u32>, units: u32) -> Option<u32> {
        let mut first = None;
        let mut len = 0;
        let mut last = u32::MAX;
        for index in free {
            if first.is_none() || index != last.wrapping_add(1) {
                first = Some(index);
                len = 0;
            }
            len += 1;
            last = index;
            if len == units {
                return first;
            }
        }
        None
    }

    /// Room for at least `units` more in a row; a 16th of the file at a time, at most 64 segments.
    pub(super) fn grow(&mut self, units: u32) -> Result<()> {
        let total = self.free.total;
        let step = (total / 16).clamp(1, 64).max(units);
        let wanted = total.saturating_add(step).min(self.segments.limit);
        let least = total.saturating_add(units);
        if wanted < least {
            let capacity = crate::error::size(self.segments.map.capacity());
            return Err(Error::new(Kind::Full, "the store has reached its capacity")
                .at(self.segments.storage.path())
                .detail(capacity));
        }
        let resize = |end: u32| {
            self.segments
                .storage
                .resize(self.segments.geometry.size_of(end))
        };
        let end = match resize(wanted) {
            Ok(()) => wanted,
            Err(error) if error.kind() == Kind::Full && wanted > least => {
                resize(least)?;
                least
            }
            Err(error) => return Err(error),
        };
        // Where readers kept the end from being cut, its room was given back and is to be taken again.
        let offset = self.segments.geometry.offset_of(total);
        self.segments
            .storage
            .allocate(offset, self.segments.geometry.size_of(end) - offset)?;
        self.free.available.extend(total..end);
        self.free.zeroed.extend(total..end);
        self.free.total = end;
        self.free.was_full = false;
        self.ease();
        Ok(())
    }
}
