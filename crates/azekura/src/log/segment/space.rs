//! Handing out segments, and the reserve that a full store lives on.
//!
//! Who takes a segment states what for, its [`AllocationClass`], and some free ones must be left for what is more urgent:
//!
//! ```text
//!   free segments   | checkpoint's need | step | step | step | slack
//!   checkpoints     <-'                 |      |      |      |
//!   cleaning        <-------------------'      |      |      |
//!   removals        <--------------------------'      |      |
//!   exchanges       <---------------------------------'      |
//!   growth          <-----------------------------------------'
//! ```
//! The storage is grown ahead for what must be left. If it cannot be, the append is refused, and if that was growth, the
//! store is *full* until so much is free again: a full store takes removals, which take room
//! of the log, too; cleaning and a checkpoint give that back.
//!
//! All of it is kept, whatever part of the storage it is: a storage that is too small for it is refused when the store is
//! created. Why a full store never stops, C being the checkpoint's need and n the storage's segments:
//!
//! 1. A checkpoint finds C free segments: whatever else takes a segment leaves them. C grows with the records, so that growth
//!    limits C when it is reported again; nothing else adds records.
//! 2. Cleaning finds a step of segments beyond C, since removals leave it; so it copies the live bytes of at least one
//!    segment before a checkpoint is due, which frees the one that was copied from and all that was empty. None of a
//!    segment is copied unless there are segments for all of it, and no writer appends to the copies' room meanwhile; one whose live records need more, as a batch's of
//!    several segments may, waits until there is more.
//! 3. Growth leaves a *slack*: n / 16, less what is dead and can be reclaimed. Exchanges and removals mark as much dead as they
//!    append, so that when they have used up what growth left them, n / 16 or more is dead. Then the emptiest segment has a
//!    sixteenth of dead bytes or more, and cleaning it gives back more than it takes.
//! 4. What lies after the last frame of a segment is dead and cannot be reclaimed, since a copy of the same frames may
//!    waste it again. It is counted apart ([`Segment::waste`]).
//! 5. A store may be opened under a smaller capacity than it was filled under, where all this does not hold. It is full then:
//!    growth is judged by the capacity. For what is more urgent the storage may have more: what lives in it when it is opened,
//!    and the whole reserve. One that was filled under this capacity is known by this: what lives leaves it a half of the slack,
//!    by 3, and what cleaning and checkpoints need is free or was emptied by cleaning, by 1 and 2.
//!
//! Single segments are those that were prepared, then, in a full store, of the shortest run of free ones, so that long runs last for
//! large records.
//!
//! It does not know how much a checkpoint needs: the engine states it.

use std::ops::Range;

use super::{FULL, Free, Reserve, Segment, Space, Use};
use crate::error::{Error, Kind, Result};

/// Segments between one class and the next.
const STEP: u32 = 2;
/// A storage of fewer segments has steps of one.
const SMALL: u32 = 64;

/// What helps where there are records; an engine that keeps other things states it itself.
pub const REMEDY: &str = "remove records, or give the store more room";

/// What a segment is taken for; the later, the deeper it reaches into the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllocationClass {
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

impl AllocationClass {
    /// Segments it leaves of a reserve.
    pub fn leaves(self, reserve: Reserve) -> u32 {
        let Reserve {
            checkpoint,
            coming,
            step,
            slack,
            reclaimable,
        } = reserve;
        match self {
            Self::Growth => {
                let need = checkpoint + coming;
                need + need / 4 + 3 * step + slack.saturating_sub(reclaimable)
            }
            Self::Exchange => checkpoint + checkpoint / 8 + 2 * step,
            Self::Removal => checkpoint + step,
            Self::Cleaning => checkpoint,
            Self::Checkpoint => 0,
        }
    }
}

/// Segments that growth leaves, if a checkpoint may need so many, of a storage of at most `limit`.
pub fn left_by_growth(checkpoint: u32, limit: u32) -> u32 {
    AllocationClass::Growth.leaves(Reserve {
        checkpoint,
        step: whole_step(limit),
        ..Reserve::default()
    })
}

/// Segments between one class and the next.
pub fn whole_step(limit: u32) -> u32 {
    if limit < SMALL { 1 } else { STEP }
}

impl Space<'_> {
    /// Hands out `units` neighbouring segments, zeroed for the log, lowest first, prepared ones to the log only
    /// as long as there are others; grows the storage if there are none, or fewer than are to be left. `Full` if
    /// it cannot.
    pub fn take(
        &mut self,
        units: u32,
        sequence: u64,
        usage: Use,
        class: AllocationClass,
    ) -> Result<u32> {
        self.secure(units, class)?;
        let prepared = self.free.prepared.first().copied();
        let index = if let Some(index) = prepared.filter(|_| usage == Use::Log && units == 1) {
            index
        } else {
            self.find(units).ok_or_else(|| {
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
        let segment = Segment::new(index, units, sequence);
        self.segments.enter(&mut self.free, segment, usage);
        if usage != Use::Log {
            self.segments.forget(index, units);
        }
        Ok(index)
    }

    /// Sees to it that `units` neighbouring segments can be taken for `class`. `Full` if not.
    ///
    /// The storage is grown so far that growth could continue for a segment more; if that fails the store is full, though
    /// there may be room for this class.
    pub fn secure(&mut self, units: u32, class: AllocationClass) -> Result<()> {
        if self.left_for(AllocationClass::Growth) > units
            && self.is_left(units, AllocationClass::Growth)
        {
            return Ok(());
        }
        match self.grow_for(units + 1, AllocationClass::Growth) {
            Err(error) if error.kind() == Kind::Full => {}
            other => return other,
        }
        self.segments.raise(FULL);
        self.free.was_full = true;
        if self.is_left(units, class) {
            return Ok(());
        }
        self.grow_for(units, class).map_err(|error| {
            if error.kind() == Kind::Full {
                error.remedy(REMEDY)
            } else {
                error
            }
        })
    }

    fn grow_for(&mut self, units: u32, class: AllocationClass) -> Result<()> {
        let missing = (units + self.left_by(class)).saturating_sub(self.count());
        let mut apart = 0;
        if self.find(units).is_none() {
            apart = units;
        }
        self.grow(missing.max(apart).max(1), class)
    }

    /// Whether `units` neighbouring segments are free, and what `class` must leave besides.
    pub fn is_left(&self, units: u32, class: AllocationClass) -> bool {
        self.left_for(class) >= units && self.find(units).is_some()
    }

    /// How many segments may be taken for `class` before the storage must grow.
    pub fn left_for(&self, class: AllocationClass) -> u32 {
        self.count_for(class).saturating_sub(self.left_by(class))
    }

    /// Whether growth finds room once the storage is as large as its capacity, as far as is known.
    pub(super) fn can_be_grown(&self) -> bool {
        let in_use = self.free.total - self.count();
        let most = self
            .total_max(AllocationClass::Growth)
            .saturating_sub(in_use);
        !self.free.was_full && most > self.left_by(AllocationClass::Growth)
    }

    /// How many free segments growth lacks of what it must leave.
    pub fn missing_for_growth(&self) -> u32 {
        self.left_by(AllocationClass::Growth)
            .saturating_sub(self.count_for(AllocationClass::Growth))
    }

    /// The store is not full any more once growth can continue for some segments.
    pub(super) fn ease(&self) {
        if self.left_for(AllocationClass::Growth) >= self.step() {
            self.segments.clear_alarm(FULL);
        }
    }

    /// Segments that `class` leaves.
    pub(super) fn left_by(&self, class: AllocationClass) -> u32 {
        class.leaves(self.free.reserve)
    }

    fn step(&self) -> u32 {
        self.free.reserve.step.max(1)
    }

    /// Free segments, those that are being prepared among them.
    pub(super) fn count(&self) -> u32 {
        (self.free.available.len() + self.free.preparing.len()) as u32
    }

    /// Of these, as many as `class` may fill.
    fn count_for(&self, class: AllocationClass) -> u32 {
        let count = self.count();
        let in_use = self.free.total - count;
        count.min(self.total_max(class).saturating_sub(in_use))
    }

    /// How many segments the storage may have for `class`.
    fn total_max(&self, class: AllocationClass) -> u32 {
        let fitting = self.segments.geometry.fitting(self.free.capacity);
        match class {
            AllocationClass::Growth => fitting,
            _ => fitting.max(self.free.total_max).max(self.free.total),
        }
    }

    /// When all segments in use are known, of which so many are `empty`: how large the storage may become for what is more
    /// urgent than growth.
    pub(super) fn allow_what_is_urgent(&mut self, empty: u32) {
        let whole = self.whole_reserve();
        let in_use = self.free.total - self.count();
        let live = in_use.saturating_sub(self.free.reserve.reclaimable);
        self.free.total_max = if self.fits_what_is_urgent(empty) {
            0
        } else {
            let wanted = live + AllocationClass::Growth.leaves(whole);
            let wanted = wanted.max(in_use + AllocationClass::Exchange.leaves(whole));
            wanted.min(self.segments.limit)
        };
    }

    fn whole_reserve(&self) -> Reserve {
        Reserve {
            reclaimable: 0,
            ..self.free.reserve
        }
    }

    /// Whether what is more urgent than growth fits in the capacity, where so many segments in use are `empty`.
    pub fn fits_what_is_urgent(&self, empty: u32) -> bool {
        let whole = self.whole_reserve();
        let in_use = self.free.total - self.count();
        let live = in_use.saturating_sub(self.free.reserve.reclaimable);
        let stays = live + AllocationClass::Exchange.leaves(whole) + whole.slack / 2 + 1;
        let at_once = in_use.saturating_sub(empty) + AllocationClass::Removal.leaves(whole);
        stays.max(at_once) <= self.total_max(AllocationClass::Growth)
    }

    /// Whether there are `units` neighbouring free segments for a checkpoint.
    pub fn has(&self, units: u32) -> bool {
        self.find(units).is_some()
    }

    /// Free segments that are not prepared.
    pub fn others(&self) -> impl Iterator<Item = u32> {
        let prepared = &self.free.prepared;
        let available = self.free.available.iter().copied();
        available.filter(|index| !prepared.contains(index))
    }

    fn find(&self, units: u32) -> Option<u32> {
        let all = self.free.available.iter().copied();
        self.fitting_run(self.others(), units)
            .or_else(|| self.fitting_run(all, units))
    }

    /// The first of the shortest runs that have `units` neighbours, while the store is full; else of the lowest run.
    fn fitting_run(&self, free: impl Iterator<Item = u32>, units: u32) -> Option<u32> {
        let is_full = self.segments.is_full();
        let mut best: Option<(u32, u32)> = None;
        let mut run: Option<(u32, u32)> = None;
        let better = |best: Option<(u32, u32)>, (first, len): (u32, u32)| {
            let fits = len >= units && best.is_none_or(|(_, least)| len < least);
            if fits { Some((first, len)) } else { best }
        };
        for index in free {
            run = match run {
                Some((first, len)) if first + len == index => Some((first, len + 1)),
                Some(ended) => {
                    best = better(best, ended);
                    Some((index, 1))
                }
                None => Some((index, 1)),
            };
            let found = if is_full { best } else { run };
            // None is shorter than one that fits exactly and has ended.
            if let Some((first, len)) = found
                && len == units
            {
                return Some(first);
            }
        }
        run.map_or(best, |ended| better(best, ended))
            .map(|(first, _)| first)
    }

    /// What stands in the way of `units` neighbouring free segments: the run of segments that has them once the segments of the
    /// log in it, which are listed, were moved elsewhere. Of all such runs the one of which the least is in use; only where
    /// the free segments outside of it have room for what is moved, and all of it `is_movable`.
    pub fn in_the_way(
        &self,
        units: u32,
        is_movable: impl Fn(u32, u64) -> bool,
    ) -> Option<(Range<u32>, Vec<u32>)> {
        let free = &self.free.available;
        let starts = self.free.used.keys().chain(free).copied();
        let mut best = None;
        let mut least = u32::MAX;
        for start in starts {
            let (mut at, mut moved) = (start, Vec::new());
            let mut cost = 0;
            while at < start.saturating_add(units) && cost < least {
                match self.free.used.get(&at) {
                    _ if free.contains(&at) => at += 1,
                    Some((units, sequence, Use::Log)) if is_movable(at, *sequence) => {
                        moved.push((*units, at));
                        cost += units;
                        at += units;
                    }
                    _ => cost = u32::MAX,
                }
            }
            if cost < least && self.have_room_outside(&(start..at), &moved) {
                least = cost;
                best = Some((start..at, moved.iter().map(|(_, index)| *index).collect()));
            }
        }
        best
    }

    /// Whether the free segments outside of `run` have room for segments of so many units, each as a whole.
    fn have_room_outside(&self, run: &Range<u32>, moved: &[(u32, u32)]) -> bool {
        let mut runs: Vec<u32> = Vec::new();
        let mut next = None;
        for &index in self.free.available.iter().filter(|i| !run.contains(i)) {
            match runs.last_mut() {
                Some(len) if next == Some(index) => *len += 1,
                _ => runs.push(1),
            }
            next = Some(index + 1);
        }
        let mut units: Vec<u32> = moved.iter().map(|(units, _)| *units).collect();
        units.sort_unstable_by_key(|units| std::cmp::Reverse(*units));
        units.into_iter().all(|units| {
            let fitting = runs.iter_mut().filter(|len| **len >= units);
            fitting.min().map(|len| *len -= units).is_some()
        })
    }

    /// Takes the free segments of `run` aside, so that what is moved out of it does not come to stand there. They are to be
    /// [`put_back`](Self::put_back).
    pub fn set_aside(&mut self, run: &Range<u32>) -> Vec<u32> {
        let aside: Vec<u32> = self.free.available.range(run.clone()).copied().collect();
        for index in &aside {
            self.free.available.remove(index);
            self.free.prepared.remove(index);
            self.free.preparing.insert(*index);
        }
        aside
    }

    /// What was set aside is free again.
    pub fn put_back(&mut self, aside: Vec<u32>) {
        for index in aside {
            self.free.preparing.remove(&index);
            self.free.available.insert(index);
        }
    }

    /// Room for at least `units` more in a row; a 16th of the file at a time, at most 64 segments.
    pub(super) fn grow(&mut self, units: u32, class: AllocationClass) -> Result<()> {
        let Free {
            total, capacity, ..
        } = *self.free;
        let step = (total / 16).clamp(1, 64).max(units);
        let wanted = total.saturating_add(step).min(self.total_max(class));
        let least = total.saturating_add(units);
        if wanted < least {
            return Err(Error::new(Kind::Full, "the store has reached its capacity")
                .at(self.segments.storage.path())
                .detail(crate::error::size(capacity)));
        }
        let geometry = self.segments.geometry;
        let size = |end: u32| geometry.size_of(end, capacity);
        // Where readers kept the end from being cut, its room was given back and is to be taken again.
        let offset = geometry.offset_of(total);
        let storage = &self.segments.storage;
        let make = |len: u64| {
            storage
                .resize(len)
                .and_then(|()| storage.allocate(offset, len - offset))
        };
        // A device without room for that much, or for a whole huge page, may have room for what is needed.
        let mut end = wanted;
        let mut made = make(size(wanted));
        for len in [size(least), geometry.offset_of(least)] {
            if made.as_ref().is_err_and(|error| error.kind() == Kind::Full) {
                end = least;
                made = make(len);
            }
        }
        made?;
        self.free.available.extend(total..end);
        self.free.zeroed.extend(total..end);
        self.free.total = end;
        self.free.was_full = false;
        self.ease();
        Ok(())
    }
}
