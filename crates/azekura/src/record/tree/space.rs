//! The room of pages and values: groups of units, which of them are in use, and when one is free again.
//!
//! ```text
//!   free --taken--> young --cut of a checkpoint--> old --superseded--> limbo --a later checkpoint is durable--> aging --> free
//!                     `--superseded: no checkpoint names it-----------------------------v------------------------^
//!                                                                         held, while a snapshot needs it
//! ```
//! 1. A unit that the durable checkpoint names, or one that is being made, is not handed out.
//! 2. What is superseded by a change at position q is in limbo until a checkpoint whose cut is after q is durable.
//! 3. A reader may still look at the run of a value that it found: such units age for a grace period.
//! 4. A page number is used again by rule 2.
//! 5. What was in use after position s until it was superseded at q is held while a snapshot lives whose cut is after s and not
//!    after q. No checkpoint names what is held.
//! 6. A unit that is given back and is free already poisons the store: bitmaps and pages contradict each other.
//! 7. What is kept for a checkpoint is counted in blocks (`group`): each page finds one, however others are scattered.
//!
//! While a checkpoint is being made, it also keeps the places that pages had at its cut, where they have others since:
//! `overrides`. One lock guards all of it, held for moments only. What keeps rules 2 to 5 stands in `limbo`; what is read and written is
//! not its business.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::bitmap::{GroupBits, IMPOSSIBLE, set};
use super::group::UnitGroup;
use super::layout::{CHUNK, PAGE_MAX, Place, UNIT};
use crate::epoch::Batch;
use crate::error::{Error, Kind, Result};
use crate::explore::{Mutex, MutexGuard};
use crate::format::bytes::Give;
use crate::log::manifest::cut_short;
use crate::log::segment::REMEDY;
use crate::log::{AllocationClass, Geometry, Log, Segment, Use};

/// Groups of a bitmap part, at most.
const PART: usize = 256;
/// A group of which so much is free is filled again before the file grows: a part of four.
const EMPTY_ENOUGH: u32 = 4;
/// Emptiest groups that are searched for a run before the file grows.
const SEARCHED: usize = 8;
/// Units of an image, at most.
const UNITS_MAX: usize = PAGE_MAX / UNIT as usize;
/// What is out of use, and free when a checkpoint after it is durable and no snapshot needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    /// It was in use by cuts after this position ..
    pub(super) since: u64,
    /// .. and not after this one.
    pub(super) until: u64,
    pub(super) what: OutOfUse,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum OutOfUse {
    Units(u64, u32),
    Page(u32),
}

impl Leaving {
    pub(super) fn units(&self) -> Option<(u64, u32)> {
        match self.what {
            OutOfUse::Units(unit, count) => Some((unit, count)),
            OutOfUse::Page(_) => None,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Space {
    log: Arc<Log>,
    state: Mutex<State>,
}

/// The space, held.
#[derive(Debug)]
pub(super) struct SpaceGuard<'s> {
    pub(super) log: &'s Log,
    pub(super) state: MutexGuard<'s, State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// By the first segment.
    pub(super) groups: BTreeMap<u32, UnitGroup>,
    /// Where the next image of so many units and one goes: the group, and the unit in it.
    next: [(u32, u32); UNITS_MAX],
    /// Units of a page that is not compressed: those of a block.
    block: u32,
    /// The same of runs.
    next_run: (u32, u32),
    /// While the file is compacted, groups from this segment on are not filled, and those before it from the first on.
    ceiling: Option<u32>,
    /// Waits for a checkpoint.
    pub(super) limbo: Vec<Leaving>,
    /// Waits for the end of a snapshot, by the position of what superseded it: no checkpoint names it.
    pub(super) held: BTreeMap<u64, Vec<Leaving>>,
    /// Cuts of the snapshots that live, and how many each has.
    pub(super) snapshots: BTreeMap<u64, u32>,
    /// Positions of records that name runs, since the first snapshot that lives.
    pub(super) born: HashMap<u64, u64>,
    /// Out of use, and readers may still look at them: those that no later reader can find, sealed together.
    pub(super) unread: Vec<(u64, u32)>,
    pub(super) aging: Vec<Batch<(u64, u32)>>,
    /// Runs of which no frame was appended at the last cut, with the position of it when there is one.
    pub(super) pending: HashMap<u64, (u32, u64)>,
    /// Page numbers: those below were given out, and of these are free.
    pages: u32,
    pub(super) free_pages: Vec<u32>,
    /// First numbers of chunks of which all are free.
    empty_chunks: Vec<u32>,
    /// The cut of the checkpoint that is being made, and how many there were.
    pub(super) cut: Option<u64>,
    pub(super) era: u64,
    /// Where pages were at the cut that are elsewhere now.
    pub(super) overrides: HashMap<u32, Place>,
    /// What the checkpoint that is being made names, by the first segment of a group.
    pub(super) naming: BTreeMap<u32, GroupBits>,
    /// Units in limbo.
    pub(super) waiting: u64,
    /// Units that are held.
    pub(super) held_units: u64,
    /// Units of all groups, and those in use.
    units: u64,
    used: u64,
    /// Blocks of all groups that are free.
    blocks: u64,
    /// Units that are kept for a checkpoint.
    kept: u64,
}

impl Space {
    /// Room in the segments of a log, for pages of so many units; page numbers below `pages` were given out.
    pub(super) fn new(log: Arc<Log>, units: u32, pages: u32) -> Self {
        let state = Mutex::new(State {
            pages,
            block: units,
            ..State::default()
        });
        Self { log, state }
    }

    /// Takes hold of it.
    pub(super) fn room(&self) -> SpaceGuard<'_> {
        SpaceGuard {
            log: &self.log,
            state: self.state.lock(),
        }
    }
}

impl SpaceSizes {
    /// Units that the store needs as it is.
    pub(super) fn live(&self) -> u64 {
        self.used - self.waiting - self.held
    }
}

/// Figures about the room.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpaceSizes {
    /// Units of all groups.
    pub(super) units: u64,
    /// Of these free, and of use to any page: those of free blocks.
    pub(super) free: u64,
    /// Of these in use, those that wait to be free among them.
    pub(super) used: u64,
    /// Of these those that wait for a checkpoint.
    pub(super) waiting: u64,
    /// Of these those that only snapshots need.
    pub(super) held: u64,
    /// Page numbers in use.
    pub(super) pages: u64,
}

impl SpaceGuard<'_> {
    fn geometry(&self) -> Geometry {
        self.log.geometry()
    }

    pub(super) fn unit_of(&self, index: u32) -> u64 {
        self.geometry().offset_of(index) / UNIT
    }

    /// The group that a unit is in, and which of its units it is.
    pub(super) fn locate(&self, unit: u64) -> Option<(u32, u32)> {
        let (segment, _) = self.geometry().locate(unit * UNIT)?;
        let (index, group) = self.state.groups.range(..=segment).next_back()?;
        let at = u32::try_from(unit.checked_sub(self.unit_of(*index))?).ok()?;
        (at < group.units).then_some((*index, at))
    }

    /// Figures.
    pub(super) fn sizes(&self) -> SpaceSizes {
        SpaceSizes {
            units: self.state.units,
            free: self.free_for_pages(),
            used: self.state.used,
            waiting: self.state.waiting,
            held: self.state.held_units,
            pages: u64::from(self.state.pages)
                - (self.state.free_pages.len() + self.state.empty_chunks.len() * CHUNK) as u64,
        }
    }

    /// A page number. `Full` if there are no more.
    pub(super) fn take_page(&mut self) -> Result<u32> {
        if self.state.free_pages.is_empty()
            && let Some(first) = self.state.empty_chunks.pop()
        {
            self.state.free_pages.extend(first..first + CHUNK as u32);
        }
        if let Some(page) = self.state.free_pages.pop() {
            return Ok(page);
        }
        let page = self.state.pages;
        self.state.pages = page
            .checked_add(1)
            .filter(|end| *end < u32::MAX - CHUNK as u32)
            .ok_or_else(|| {
                Error::new(Kind::Full, "the file has used up its page numbers")
                    .at(self.log.storage().path())
                    .remedy("compact it, or divide the records among files")
            })?;
        Ok(page)
    }

    /// All page numbers of the chunk that begins with this one are free.
    pub(super) fn give_chunk(&mut self, first: u32) {
        self.state.empty_chunks.push(first);
    }

    /// Page numbers given out.
    pub(super) fn pages(&self) -> u32 {
        self.state.pages
    }

    /// A page number is free that no checkpoint names.
    pub(super) fn give_page(&mut self, page: u32) {
        self.state.free_pages.push(page);
    }

    /// `Full` if so many units may not be taken for this class.
    pub(super) fn admit(&mut self, count: u64, class: AllocationClass) -> Result<()> {
        if !self.may_take(count, class) {
            self.reap();
            if !self.may_take(count, class) {
                let what = "the room that is left is kept for a checkpoint";
                return Err(Error::new(Kind::Full, what)
                    .at(self.log.storage().path())
                    .remedy(REMEDY));
            }
        }
        Ok(())
    }

    /// Units for images of so many units each, side by side, rising where there is room; `is_young`: no checkpoint names them. `Full` if
    /// there is none for this class.
    pub(super) fn take_units(
        &mut self,
        images: &[u32],
        class: AllocationClass,
        is_young: bool,
    ) -> Result<Vec<u64>> {
        if images.is_empty() {
            return Ok(Vec::new());
        }
        let count = images.iter().copied().map(u64::from).sum();
        self.admit(count, class)?;
        let mut taken = Vec::with_capacity(images.len());
        for units in images {
            match self.take_image(*units, class, is_young) {
                Ok(unit) => taken.push(unit),
                Err(error) => {
                    for (unit, units) in taken.into_iter().zip(images) {
                        self.give_units(unit, *units);
                    }
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn take_image(&mut self, count: u32, class: AllocationClass, is_young: bool) -> Result<u64> {
        let era = self.state.era;
        let size = count as usize - 1;
        loop {
            let (index, from) = self.state.next[size];
            let start = self.unit_of(index);
            let group = self.state.groups.get_mut(&index);
            match group.and_then(|group| Some((group.run(from, count)?, group))) {
                Some((at, group)) => {
                    let blocks = group.blocks;
                    group.take(at, count, is_young.then_some(era));
                    self.state.blocks -= u64::from(blocks - group.blocks);
                    self.state.next[size] = (index, at + count);
                    self.state.used += u64::from(count);
                    return Ok(start + u64::from(at));
                }
                None => self.state.next[size] = (self.next_group(count, class)?, 0),
            }
        }
    }

    /// The group to be filled next with images of so many units: the emptiest, if it is empty enough; else a new one, where there is room
    /// enough; else the emptiest that has room all the same.
    fn next_group(&mut self, count: u32, class: AllocationClass) -> Result<u32> {
        self.reap();
        if let Some(ceiling) = self.state.ceiling {
            if let Some((index, _)) = self.lowest(count, ceiling) {
                return Ok(index);
            }
        } else if let Some((index, _)) = self.emptiest(count, SEARCHED)
            && let Some(group) = self.state.groups.get(&index)
            && group.free >= (group.units / EMPTY_ENOUGH).max(1)
        {
            return Ok(index);
        }
        // The last segments are the journal's, which no free unit between pages helps.
        match self.make_group(1, class.min(AllocationClass::Exchange)) {
            Err(error) if error.kind() == Kind::Full => {
                let all = self.state.groups.len();
                match self.emptiest(count, all) {
                    Some((index, _)) => Ok(index),
                    None => self.make_group(1, class),
                }
            }
            made => made,
        }
    }

    /// Free units side by side, in the first group before a segment that has them: the group, and the first.
    fn lowest(&self, count: u32, ceiling: u32) -> Option<(u32, u32)> {
        let mut groups = self.state.groups.range(..ceiling);
        groups.find_map(|(index, group)| {
            let at = (group.free >= count).then(|| group.run(0, count))??;
            Some((*index, at))
        })
    }

    /// The first segment that need not be in use, nor any after it, if all that is in use stood side by side, and `spare` segments were free.
    pub(super) fn lowest_ceiling(&self, spare: u32) -> u32 {
        let segments = self.log.segments();
        let others = [Use::Log, Use::Other].map(|usage| segments.in_use(usage));
        let others: u32 = others.iter().flatten().map(|segment| segment.units).sum();
        let per_segment = self.geometry().segment_size() / UNIT;
        self.state.used.div_ceil(per_segment) as u32 + others + spare
    }

    /// Whether units are in use of a group that begins at a segment or after it.
    pub(super) fn is_used_from(&self, segment: u32) -> bool {
        let mut groups = self.state.groups.range(segment..);
        groups.any(|(_, group)| group.free < group.units)
    }

    /// From now on, groups from this segment on are not filled while there is room before it; `None`: any are.
    pub(super) fn set_ceiling(&mut self, ceiling: Option<u32>) {
        self.state.ceiling = ceiling;
        self.state.next = Default::default();
        self.state.next_run = Default::default();
    }

    /// Free units side by side, in the emptiest group that has them, of so many that are looked through: the group, and the first.
    fn emptiest(&self, count: u32, searched: usize) -> Option<(u32, u32)> {
        let groups = self.state.groups.iter();
        let roomy = groups.filter(|(_, group)| group.free >= count);
        let by_free = roomy.map(|(index, group)| (group.free, *index));
        let room = |(_, index): (u32, u32)| {
            let group = self.state.groups.get(&index)?;
            Some((index, group.run(0, count)?))
        };
        if count == 1 {
            return by_free.max().and_then(room);
        }
        let mut emptiest: Vec<(u32, u32)> = by_free.collect();
        if emptiest.len() > searched {
            emptiest.select_nth_unstable_by(searched, |a, b| b.cmp(a));
            emptiest.truncate(searched);
        }
        emptiest.sort_unstable_by(|a, b| b.cmp(a));
        emptiest.into_iter().find_map(room)
    }

    fn make_group(&mut self, segments: u32, class: AllocationClass) -> Result<u32> {
        let mut space = self.log.segments().space();
        let index = space.take(segments, 0, Use::Pages, class)?;
        drop(space);
        let group = UnitGroup::new(segments, self.geometry(), self.state.block);
        self.state.units += u64::from(group.units);
        self.state.blocks += u64::from(group.blocks);
        self.state.groups.insert(index, group);
        Ok(index)
    }

    /// Units side by side for a value, of which no frame was appended yet. `Full` if there is no room for this class.
    pub(super) fn take_run(&mut self, count: u32, class: AllocationClass) -> Result<u64> {
        let per_segment = (self.geometry().segment_size() / UNIT) as u32;
        let found = if count <= per_segment && self.may_take(u64::from(count), class) {
            self.room_for_run(count)
        } else {
            None
        };
        let (index, at) = match found {
            Some(found) => found,
            None => (self.make_group(count.div_ceil(per_segment), class)?, 0),
        };
        self.state.next_run = (index, at + count);
        let era = self.state.era;
        if let Some(group) = self.state.groups.get_mut(&index) {
            let blocks = group.blocks;
            group.take(at, count, Some(era));
            self.state.blocks -= u64::from(blocks - group.blocks);
        }
        self.state.used += u64::from(count);
        let unit = self.unit_of(index) + u64::from(at);
        self.state.pending.insert(unit, (count, u64::MAX));
        Ok(unit)
    }

    /// Free units side by side, and their group: after those that were taken last, or in one of the emptiest.
    fn room_for_run(&mut self, count: u32) -> Option<(u32, u32)> {
        let (index, from) = self.state.next_run;
        let last = self.state.groups.get(&index);
        if let Some(at) = last.and_then(|group| group.run(from, count)) {
            return Some((index, at));
        }
        self.reap();
        match self.state.ceiling {
            Some(ceiling) => self.lowest(count, ceiling),
            None => self.emptiest(count, SEARCHED),
        }
    }

    /// Whether so many units may be taken for this class: what is free then, between others and in segments, those by which the file
    /// may grow among them, suffices for a checkpoint.
    fn may_take(&self, count: u64, class: AllocationClass) -> bool {
        let wanted = self.state.kept + count;
        let free = self.free_for_pages();
        if class == AllocationClass::Checkpoint || free >= wanted {
            return true;
        }
        let segments = self.log.segments();
        let growth = segments.limit().saturating_sub(segments.total());
        let left = segments.space().left_for(AllocationClass::Checkpoint);
        let per_segment = self.geometry().segment_size() / UNIT;
        free + u64::from(growth + left) * per_segment >= wanted
    }

    /// Units that are free for any page.
    fn free_for_pages(&self) -> u64 {
        self.state.blocks * u64::from(self.state.block)
    }

    /// Whether what is kept for a checkpoint is there.
    pub(super) fn has_reserve(&self) -> bool {
        self.may_take(0, AllocationClass::Growth)
    }

    /// Units that a checkpoint may need.
    pub(super) fn keep(&mut self, units: u64) {
        self.state.kept = units;
    }

    /// The frame of a run's record was appended at this position.
    pub(super) fn note_run(&mut self, unit: u64, position: u64) {
        if let Some((_, at)) = self.state.pending.get_mut(&unit) {
            *at = position;
        }
        if !self.state.snapshots.is_empty() {
            self.state.born.insert(unit, position);
        }
    }

    /// Units are free that no checkpoint and no reader knows.
    pub(super) fn give_units(&mut self, unit: u64, count: u32) {
        self.state.pending.remove(&unit);
        if let Some((index, at)) = self.locate(unit)
            && let Some(group) = self.state.groups.get_mut(&index)
        {
            let blocks = group.blocks;
            let given = group.give(at, count);
            self.state.blocks += u64::from(group.blocks - blocks);
            self.state.used -= u64::from(given);
            if given < count {
                // The bitmaps contradict what is named: another page may stand there by now.
                tracing::error!(unit, count, "units are given back that are free");
                self.log.poison();
            }
        }
    }

    /// Groups without a unit in use, which are handed out no more: those of the durable checkpoint are in use.
    pub(super) fn take_empty(&mut self) -> Vec<(u32, u32)> {
        let filling = self.state.next[self.state.block as usize - 1].0;
        let groups = self.state.groups.iter();
        let empty: Vec<(u32, u32)> = groups
            .filter(|(index, group)| group.free == group.units && **index != filling)
            .map(|(index, group)| (*index, group.segments))
            .collect();
        for (index, _) in &empty {
            if let Some(group) = self.state.groups.remove(index) {
                self.state.units -= u64::from(group.units);
                self.state.blocks -= u64::from(group.blocks);
            }
        }
        empty
    }

    /// What is in use by the checkpoint of the cut, in parts, and whether that is not what the durable one of this number names: then the
    /// new one has the next number. All changes before the cut have noted their runs.
    pub(super) fn parts_at_cut(&mut self, durable: u64) -> (Vec<Vec<u8>>, bool) {
        let cut = self.state.cut.unwrap_or(0);
        self.state.pending.retain(|_, (_, at)| *at >= cut);
        let mut bits: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (index, group) in &self.state.groups {
            bits.insert(*index, group.old(self.state.era));
        }
        let limbo = self.state.limbo.iter().filter(|of| of.until < cut);
        let held = self.state.held.values().flatten();
        let left = limbo.chain(held).filter_map(Leaving::units);
        let aging = self.state.aging.iter().flat_map(|batch| &batch.items);
        let aging = aging.chain(&self.state.unread);
        let pending = self.state.pending.iter();
        let pending = pending.filter(|(_, (_, at))| *at >= cut);
        let not_named = left
            .chain(aging.copied())
            .chain(pending.map(|(unit, (count, _))| (*unit, *count)));
        for (unit, count) in not_named {
            for unit in unit..unit + u64::from(count) {
                if let Some((index, at)) = self.locate(unit)
                    && let Some(bits) = bits.get_mut(&index)
                {
                    set(bits, at, false);
                }
            }
        }
        let mut is_changed = false;
        self.state.naming.clear();
        for (index, named) in bits {
            let Some(group) = self.state.groups.get(&index) else {
                continue;
            };
            is_changed |= named != group.named;
            // One of which nothing is named is not, so that its segments are the log's when nothing else is in it.
            if named.iter().any(|word| *word != 0) {
                // What was written since the durable checkpoint stands in units that it does not name.
                let mut pairs = named.iter().zip(&group.named);
                let is_written = pairs.any(|(named, before)| named & !before != 0);
                let changed = if is_written {
                    durable + 1
                } else {
                    group.changed
                };
                let of = GroupBits {
                    index,
                    segments: group.segments,
                    changed,
                    used: named,
                };
                self.state.naming.insert(index, of);
            }
        }
        let groups: Vec<&GroupBits> = self.state.naming.values().collect();
        let parts = groups.chunks(PART).map(|groups| {
            let mut give = Give::default();
            for group in groups {
                group.encode(&mut give);
            }
            give.0
        });
        (parts.collect(), is_changed)
    }

    /// The groups of which the durable checkpoint names units: these units, and when they changed.
    pub(super) fn named(&self) -> Vec<GroupBits> {
        let groups = self.state.groups.iter();
        let named = groups.filter(|(_, group)| group.named.iter().any(|word| *word != 0));
        named
            .map(|(index, group)| GroupBits {
                index: *index,
                segments: group.segments,
                changed: group.changed,
                used: group.named.clone(),
            })
            .collect()
    }

    /// Takes all segments that nothing else has, of a file with so many, as groups of which every unit is in use.
    pub(super) fn adopt_all_others(&mut self, segments: u32) {
        for index in 0..segments {
            let segment = Segment::new(index, 1, 0);
            if self.log.segments().adopt(segment, Use::Pages).is_err() {
                continue;
            }
            let mut group = UnitGroup::new(1, self.geometry(), self.state.block);
            group.take(0, group.units, None);
            self.state.units += u64::from(group.units);
            self.state.used += u64::from(group.units);
            self.state.groups.insert(index, group);
        }
    }

    /// Takes the groups of a part into use, of a file that has so many segments. `Corrupted` for impossible ones, and for one that
    /// is cut off.
    pub(super) fn adopt(&mut self, part: &[u8], there: u64) -> Result<()> {
        let impossible = || Error::new(Kind::Corrupted, IMPOSSIBLE).at(self.log.storage().path());
        let groups = GroupBits::decode_all(part, self.geometry()).ok_or_else(impossible)?;
        for stated in groups {
            let GroupBits {
                index,
                segments,
                changed,
                used,
            } = stated;
            let segment = Segment::new(index, segments, 0);
            if !segment.is_within(there) {
                let storage = self.log.storage();
                return Err(cut_short(&**storage).offset(self.geometry().offset_of(index)));
            }
            self.log.segments().adopt(segment, Use::Pages)?;
            let mut group = UnitGroup::of_used(used, segments, self.geometry(), self.state.block)
                .ok_or_else(impossible)?;
            group.changed = changed;
            self.state.used += u64::from(group.units - group.free);
            self.state.units += u64::from(group.units);
            self.state.blocks += u64::from(group.blocks);
            self.state.groups.insert(index, group);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::random::Random;

    /// Images of drawn sizes come and go: none lies over another, and each free block is counted.
    #[test]
    fn images_lie_side_by_side_and_blocks_are_counted() {
        let geometry = Geometry { shift: 16, salt: 1 };
        for block in [1, 2, 4] {
            let mut random = Random::new(block.into());
            let mut group = UnitGroup::new(3, geometry, block);
            let mut there: Vec<(u32, u32)> = Vec::new();
            for _ in 0..3000 {
                let count = 1 + random.below(block.into()) as u32;
                match group.run(random.below(40) as u32, count) {
                    Some(at) if random.one_in(2) => {
                        let is_over = |(of, len): &(u32, u32)| at < of + len && *of < at + count;
                        assert!(!there.iter().any(is_over));
                        group.take(at, count, None);
                        there.push((at, count));
                    }
                    _ if !there.is_empty() => {
                        let (at, count) = there.swap_remove(random.index(there.len()));
                        assert_eq!(group.give(at, count), count);
                    }
                    _ => {}
                }
                let used: u32 = there.iter().map(|(_, count)| count).sum();
                assert_eq!(group.free, group.units - used);
                let is_free = |first: u32| {
                    let end = first + block;
                    !there
                        .iter()
                        .any(|(at, count)| *at < end && first < at + count)
                };
                let firsts = (0..group.units).step_by(block as usize);
                let free = firsts.filter(|first| is_free(*first)).count() as u32;
                assert_eq!(group.blocks, free, "blocks of {block}");
                let again = UnitGroup::of_used(group.used.clone(), 3, geometry, block);
                let again = again.map(|again| (again.free, again.blocks));
                assert_eq!(again, Some((group.free, group.blocks)));
            }
        }
    }

    /// One unit of each block is in use: most are free, and no page of four finds room.
    #[test]
    fn what_is_kept_is_counted_in_blocks() {
        use crate::record::tree::{Compression, CreateOptions, TreeDb};
        let folder = tempfile::tempdir().unwrap();
        let options = CreateOptions::new()
            .segment_size(64u64 << 10)
            .compression(Compression::Lz4)
            .background(false)
            .capacity(4u64 << 20);
        let db = TreeDb::create(folder.path().join("a.azt"), &options).unwrap();
        let space = &db.core.tree.nodes.space;
        let class = AllocationClass::Cleaning;
        let mut blocks = Vec::new();
        let error = loop {
            match space.room().take_units(&[4], class, true) {
                Ok(units) => blocks.extend(units),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), Kind::Full, "what is kept is not given");
        assert!(blocks.len() > 50, "{}", blocks.len());
        for unit in &blocks {
            space.room().give_units(unit + 1, 3);
        }
        let error = space.room().take_units(&[4], class, true).unwrap_err();
        assert_eq!(error.kind(), Kind::Full);
        assert!(space.room().admit(8, class).is_err());
        for unit in &blocks {
            space.room().give_units(*unit, 1);
        }
        let again = space.room().take_units(&[4; 8], class, true).unwrap();
        assert!(again.iter().all(|unit| unit % 4 == blocks[0] % 4));
        for unit in again {
            space.room().give_units(unit, 4);
        }
        db.put(b"one", b"1").unwrap();
        db.close().unwrap();
    }
}
