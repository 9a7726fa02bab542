//! Free space by allocation groups, and where the next object goes.
//!
//! ```text
//!   group 0      group 1      group 2        the emptiest group gives an *allocation extent*: some of its free runs;
//!   ....xx..xx   xxxxxxxxxx   ..........     objects fill it front to back, whatever their ids
//!                             ^-------->
//!   freed by an update or a removal --> limbo --a sync--> its group
//!   freed by a move of small objects -> limbo --a checkpoint--> its group
//! ```
//! 1. Writes go forward: an allocation extent is 64 MiB where a group has so much free, and the next one is in the same group while
//!    that has contiguous space; so new objects and updates alike are written sequentially.
//! 2. Space that an object leaves is *in limbo* until the commit that makes this durable has ended (`limbo`). Only a store that is
//!    being opened frees space otherwise: what no object occupies ([`Unclaimed`]).
//! 3. An allocation extent is recorded in the journal before anything is written in it, with the smallest sequence of its objects:
//!    recovery scans allocation extents, never the whole device.
//! 4. Group lists are loaded when they are needed: opening does not read them.
//!
//! Next-fit over the emptiest group segregates by age without a copy: what was written together dies together. It does no I/O except
//! by its source, and does not know objects.

use std::collections::VecDeque;

use crate::error::{Error, Kind, Result};
use crate::log::manifest::Extent;
use crate::object::place::limbo::{FreedBy, Limbo, Moment, SyncBegun};
use crate::object::place::list::list_size;
use crate::object::place::runs::{Run, Runs};
use crate::object::place::span::{AllocationExtent, Span};

mod unclaimed;

pub(crate) use unclaimed::Unclaimed;

/// Units of an allocation extent, where a group has that many free: 64 MiB.
const ALLOCATION_EXTENT_UNITS: u32 = 16 << 10;
/// Most runs of an allocation extent.
const ALLOCATION_EXTENT_RUNS: usize = 64;

/// Loads the lists of groups.
pub(crate) trait Source: Send + Sync {
    /// The runs of an image, verified, of a group of `limit` units.
    fn runs(&self, group: u32, image: Extent, limit: u32) -> Result<Runs>;
}

/// A group in a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Free units.
    pub free: u32,
    /// Their list; `None` if all are free, or none is.
    pub image: Option<Extent>,
}

/// Counts of the space, from which the size of a checkpoint follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceCounts {
    /// Groups.
    pub groups: u64,
    /// Bytes of all groups' lists.
    pub lists: u64,
    /// Spans in limbo that a sync frees.
    pub limbo: u64,
    /// Whether a pin keeps some of them there.
    pub is_pinned: bool,
    /// Spans of allocation extents, what the device has grown by, and those in limbo that a checkpoint frees.
    pub spans: u64,
}

/// A group's list, to be written.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// Which group.
    pub group: usize,
    /// Its units.
    pub limit: u32,
    /// Those that are free.
    pub runs: Runs,
}

#[derive(Debug)]
struct Group {
    /// `None`: not loaded, and in the image.
    runs: Option<Runs>,
    free: u32,
    /// Upper bound of the longest run.
    longest_at_most: u32,
    image: Option<Extent>,
    dirty: bool,
}

/// See the module's text.
pub(crate) struct Space {
    source: Box<dyn Source>,
    groups: Vec<Group>,
    /// Units of a group; the last may have fewer.
    group_units: u32,
    units: u64,
    /// The unused rest of the open allocation extent, in order.
    left: VecDeque<Span>,
    /// The group of the last allocation extent.
    last: Option<usize>,
    /// Allocation extents that may hold objects the journal does not record, oldest first; the last is open.
    allocation_extents: VecDeque<AllocationExtent>,
    limbo: Limbo,
    /// The device has grown by these; they are free once a checkpoint states so.
    grown: Vec<Span>,
    free: u64,
    /// Bytes of all groups' lists.
    lists: u64,
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("free", &self.free)
            .finish_non_exhaustive()
    }
}

/// Space that was taken.
#[derive(Debug)]
pub(crate) struct Found {
    span: Span,
    opened: bool,
}

impl Found {
    /// The units.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Whether an allocation extent was opened for it, which must be recorded before anything is written there.
    pub(crate) fn is_in_new_allocation_extent(&self) -> bool {
        self.opened
    }
}

impl Space {
    /// Space of `units` units in groups of `group_units`; `states` has the groups as of the checkpoint, `None` in a new store. The
    /// second value lets a recovery correct it.
    pub(crate) fn new(
        units: u64,
        group_units: u32,
        states: Option<&[GroupState]>,
        source: Box<dyn Source>,
    ) -> (Self, Unclaimed) {
        let count = units.div_ceil(u64::from(group_units)) as usize;
        let mut space = Self {
            source,
            groups: Vec::with_capacity(count),
            group_units,
            units,
            left: VecDeque::new(),
            last: None,
            allocation_extents: VecDeque::new(),
            limbo: Limbo::default(),
            grown: Vec::new(),
            free: 0,
            lists: 0,
        };
        for at in 0..count {
            let limit = space.limit(at);
            let states = match states {
                None => GroupState {
                    free: limit,
                    image: None,
                },
                Some(states) => states.get(at).copied().unwrap_or_default(),
            };
            let group = Group::new(states, limit);
            space.lists += group.list_size(limit);
            space.groups.push(group);
            space.free += u64::from(states.free);
        }
        (space, Unclaimed::new())
    }

    /// Units of group `at`.
    fn limit(&self, at: usize) -> u32 {
        let before = at as u64 * u64::from(self.group_units);
        (self.units - before).min(u64::from(self.group_units)) as u32
    }

    /// Units in all.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Free units, those of the open allocation extent among them.
    pub(crate) fn free(&self) -> u64 {
        self.free
            + self
                .left
                .iter()
                .map(|span| u64::from(span.units))
                .sum::<u64>()
    }

    /// The spans in limbo.
    pub(crate) fn limbo(&self) -> &Limbo {
        &self.limbo
    }

    /// What a checkpoint has to write of it.
    pub(crate) fn counts(&self) -> SpaceCounts {
        let allocation_extents = self
            .allocation_extents
            .iter()
            .map(|allocation_extent| allocation_extent.spans.len());
        SpaceCounts {
            groups: self.groups.len() as u64,
            lists: self.lists,
            limbo: self.limbo.count(FreedBy::Sync) as u64,
            is_pinned: self.limbo.is_pinned(),
            spans: (self.left.len()
                + self.grown.len()
                + self.limbo.count(FreedBy::Checkpoint)
                + allocation_extents.sum::<usize>()) as u64,
        }
    }

    /// Takes `units` contiguous units, at most a group's; `None` if no run is that long. They belong to objects of `sequence` or
    /// later.
    pub(crate) fn take(&mut self, units: u32, sequence: u64) -> Result<Option<Found>> {
        let opened = !self.left.iter().any(|span| span.units >= units);
        if opened && !self.open_allocation_extent(units, sequence)? {
            return Ok(None);
        }
        let at = self.left.iter().position(|span| span.units >= units);
        let Some(at) = at else {
            unreachable!("the allocation extent was opened for it")
        };
        let span = &mut self.left[at];
        let found = Span {
            unit: span.unit,
            units,
        };
        span.unit += u64::from(units);
        span.units -= units;
        if span.units == 0 {
            self.left.remove(at);
        }
        Ok(Some(Found {
            span: found,
            opened,
        }))
    }

    /// Closes the allocation extent that was just opened, since the journal could not record it: nothing is put there.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what was found goes back once"
    )]
    pub(crate) fn close_unrecorded(&mut self, found: Found) -> Result<()> {
        self.allocation_extents.pop_back();
        for span in std::mem::take(&mut self.left) {
            self.add(span)?;
        }
        self.add(found.span)
    }

    /// Opens an allocation extent in the next group that has a run of `units`; the rest of the last one is free again.
    fn open_allocation_extent(&mut self, units: u32, sequence: u64) -> Result<bool> {
        for span in std::mem::take(&mut self.left) {
            self.add(span)?;
        }
        while let Some(at) = self.next_group(units) {
            let limit = self.limit(at);
            let group = &mut self.groups[at];
            let before = group.list_size(limit);
            let runs = group.load(self.source.as_ref(), at, limit)?;
            let taken = runs.take_from(units, ALLOCATION_EXTENT_UNITS, ALLOCATION_EXTENT_RUNS);
            self.lists = self.lists - before + group.list_size(limit);
            let longest = group.runs.as_ref().map_or(0, Runs::longest);
            group.longest_at_most = group.longest_at_most.min(longest);
            if taken.is_empty() {
                continue;
            }
            let all: u32 = taken.iter().map(|run| run.len).sum();
            group.free -= all;
            group.dirty = true;
            self.free -= u64::from(all);
            let first = at as u64 * u64::from(self.group_units);
            let spans: Vec<Span> = taken.iter().map(|run| run.span(first)).collect();
            self.left.extend(&spans);
            self.last = Some(at);
            self.allocation_extents
                .push_back(AllocationExtent { sequence, spans });
            return Ok(true);
        }
        Ok(false)
    }

    /// Resumes after a reopen, where this was the last allocation extent: the next one is in its group, while that has contiguous space.
    pub(crate) fn resume_in(&mut self, allocation_extent: &AllocationExtent) {
        let last = allocation_extent.spans.last();
        self.last = last.map(|span| (span.unit / u64::from(self.group_units)) as usize);
    }

    /// The group of the last allocation extent as long as it has a quarter of one contiguous, so that a disk's arm stays near; then the
    /// emptiest group. Otherwise equally empty groups would alternate.
    fn next_group(&self, units: u32) -> Option<usize> {
        let worth = units.max(ALLOCATION_EXTENT_UNITS.min(self.group_units) / 4);
        let has_room = |at: &usize| {
            let group = self.groups.get(*at);
            group.is_some_and(|group| group.longest_at_most.min(group.free) >= worth)
        };
        self.last.filter(has_room).or_else(|| self.emptiest(units))
    }

    fn emptiest(&self, units: u32) -> Option<usize> {
        let fitting = self.groups.iter().enumerate();
        let fitting = fitting.filter(|(_, group)| group.longest_at_most.min(group.free) >= units);
        // The first of equally empty ones: a new store is filled from the front.
        fitting
            .max_by_key(|(at, group)| (group.free, std::cmp::Reverse(*at)))
            .map(|(at, _)| at)
    }

    /// Moves units into limbo: their object is gone.
    pub(crate) fn retire(&mut self, span: Span, freed_by: FreedBy) {
        self.limbo.retire(span, freed_by);
    }

    /// Units that are free, or would be after a sync, where no pin keeps them.
    pub(crate) fn available(&self) -> u64 {
        self.free() + self.limbo.units_available(FreedBy::Sync)
    }

    /// Sets a pin: what enters limbo from now on stays there until the pin is removed.
    pub(crate) fn pin(&mut self) -> u64 {
        self.limbo.pin()
    }

    /// Removes a pin.
    pub(crate) fn unpin(&mut self, pin: u64) {
        self.limbo.unpin(pin);
    }

    /// A sync begins.
    pub(crate) fn begin_sync(&self) -> SyncBegun {
        self.limbo.begin_sync()
    }

    /// A sync has ended: what it frees, and was in limbo when it began, is free, unless pinned.
    pub(crate) fn end_sync(&mut self, sync: SyncBegun) -> Result<()> {
        self.limbo.end_sync(sync);
        self.free_limbo()
    }

    fn free_limbo(&mut self) -> Result<()> {
        while let Some((span, freed_by)) = self.limbo.first_free() {
            self.add(span)?;
            self.limbo.take_out(freed_by);
        }
        Ok(())
    }

    /// Frees units; units that are free stay so. In a running store: units that left limbo, or were never handed out.
    fn add(&mut self, span: Span) -> Result<()> {
        self.each_group(span, |space, at, run| {
            let added = space.change_list(at, |list| list.add(run))?;
            let limit = space.limit(at);
            let group = &mut space.groups[at];
            group.free += added;
            group.longest_at_most = limit;
            space.free += u64::from(added);
            Ok(())
        })
    }

    /// Removes units from the free ones, whether or not they are free.
    fn claim(&mut self, span: Span) -> Result<()> {
        self.each_group(span, |space, at, run| {
            let removed = space.change_list(at, |list| list.remove(run))?;
            space.groups[at].free -= removed;
            space.free -= u64::from(removed);
            Ok(())
        })
    }

    /// Changes the list of a group by as many units as `change` returns.
    fn change_list(
        &mut self,
        at: usize,
        change: impl FnOnce(&mut Runs) -> Result<u32>,
    ) -> Result<u32> {
        let limit = self.limit(at);
        let group = &mut self.groups[at];
        let before = group.list_size(limit);
        let changed = change(group.load(self.source.as_ref(), at, limit)?)?;
        self.lists = self.lists - before + group.list_size(limit);
        group.dirty |= changed > 0;
        Ok(changed)
    }

    fn each_group(
        &mut self,
        span: Span,
        mut act: impl FnMut(&mut Self, usize, Run) -> Result<()>,
    ) -> Result<()> {
        let size = u64::from(self.group_units);
        let mut unit = span.unit;
        while unit < span.end() {
            let at = (unit / size) as usize;
            let end = span.end().min((at as u64 + 1) * size);
            let run = Run {
                start: (unit % size) as u32,
                len: (end - unit) as u32,
            };
            act(self, at, run)?;
            unit = end;
        }
        Ok(())
    }

    /// Raises the low-water mark: every put below `sequence` has ended and is recorded, so allocation extents with no other put are
    /// not scanned any more.
    pub(crate) fn advance_low_water(&mut self, sequence: u64) {
        while self
            .allocation_extents
            .get(1)
            .is_some_and(|next| next.sequence <= sequence)
        {
            self.allocation_extents.pop_front();
        }
    }

    /// The allocation extents that a recovery has to scan.
    pub(crate) fn allocation_extents(&self) -> impl Iterator<Item = &AllocationExtent> {
        self.allocation_extents.iter()
    }

    /// The open allocation extent, if there is one.
    pub(crate) fn open(&self) -> Option<&AllocationExtent> {
        self.allocation_extents.back()
    }

    /// The groups for a checkpoint, and the lists to be written: those that changed since the last one. Limbo and the rest of the
    /// allocation extent are not free in it. This is the checkpoint's moment.
    pub(crate) fn checkpoint_state(&mut self) -> (Vec<GroupState>, Vec<List>, Moment) {
        let mut states = Vec::with_capacity(self.groups.len());
        let mut lists = Vec::new();
        for at in 0..self.groups.len() {
            let limit = self.limit(at);
            let group = &mut self.groups[at];
            let mut of = GroupState {
                free: group.free,
                image: group.image,
            };
            if group.dirty {
                of.image = None;
                if group.free > 0
                    && group.free < limit
                    && let Some(runs) = &group.runs
                {
                    lists.push(List {
                        group: at,
                        limit,
                        runs: runs.clone(),
                    });
                }
                group.dirty = false;
            }
            states.push(of);
        }
        (states, lists, self.limbo.moment())
    }

    /// The checkpoint of this moment is durable; `states` has the places of the lists. What the device had grown by, and what was
    /// in limbo, is free.
    pub(crate) fn end_checkpoint(&mut self, states: &[GroupState], moment: Moment) -> Result<()> {
        for (group, states) in self.groups.iter_mut().zip(states) {
            group.image = states.image;
        }
        while let Some(span) = self.grown.last().copied() {
            self.add(span)?;
            self.grown.pop();
        }
        self.limbo.end_checkpoint(moment);
        self.free_limbo()
    }

    /// After a checkpoint that failed: the lists it took as written are dirty.
    pub(crate) fn mark_dirty(&mut self, states: &[GroupState]) {
        for (group, states) in self.groups.iter_mut().zip(states) {
            group.dirty |= states.image != group.image || states.image.is_none();
        }
    }

    /// Spans that belong to no object and to no free list: limbo, the rest of the allocation extent, and what the device has grown by.
    pub(crate) fn unlisted(&self) -> impl Iterator<Item = Span> + '_ {
        let kept = self.left.iter().chain(&self.grown).copied();
        self.limbo.spans().chain(kept)
    }

    /// The device has grown. The new units are free once a checkpoint that includes them is durable
    /// ([`end_checkpoint`](Self::end_checkpoint)): recovery could not find an object there before. Loads the last group's list.
    pub(crate) fn grow(&mut self, units: u64) -> Result<()> {
        let before = self.units;
        // The image of the last group means a group of its old size.
        if let Some(last) = self.groups.len().checked_sub(1) {
            let limit = self.limit(last);
            let group = &mut self.groups[last];
            group.load(self.source.as_ref(), last, limit)?;
            group.dirty = true;
            self.lists -= group.list_size(limit);
        }
        self.units = units.max(before);
        if let Some(last) = self.groups.len().checked_sub(1) {
            self.lists += self.groups[last].list_size(self.limit(last));
        }
        let count = self.units.div_ceil(u64::from(self.group_units)) as usize;
        while self.groups.len() < count {
            self.groups.push(Group::new(GroupState::default(), 0));
        }
        let mut unit = before;
        while unit < self.units {
            let units = (self.units - unit).min(u64::from(self.group_units)) as u32;
            self.grown.push(Span { unit, units });
            unit += u64::from(units);
        }
        Ok(())
    }

    /// Fragmentation of the free space: the longest free run in units, and the number of runs. Loads all lists.
    pub(crate) fn fragments(&mut self) -> Result<(u32, u64)> {
        let (mut longest, mut count) = (0, 0);
        for at in 0..self.groups.len() {
            let limit = self.limit(at);
            let runs = self.groups[at].load(self.source.as_ref(), at, limit)?;
            longest = longest.max(runs.longest());
            count += runs.as_slice().len() as u64;
        }
        Ok((longest, count))
    }

    /// All free spans, for checks; without limbo and the open allocation extent. Loads all lists.
    pub(crate) fn all_free(&mut self) -> Result<Vec<Span>> {
        let mut all = Vec::new();
        for at in 0..self.groups.len() {
            let limit = self.limit(at);
            let first = at as u64 * u64::from(self.group_units);
            let runs = self.groups[at].load(self.source.as_ref(), at, limit)?;
            all.extend(runs.as_slice().iter().map(|run| run.span(first)));
        }
        Ok(all)
    }
}

impl Group {
    fn new(states: GroupState, limit: u32) -> Self {
        let runs = match states {
            GroupState { image: Some(_), .. } => None,
            GroupState { free: 0, .. } => Some(Runs::default()),
            _ => Some(Runs::whole(limit)),
        };
        Self {
            runs,
            free: states.free,
            longest_at_most: states.free,
            image: states.image,
            dirty: false,
        }
    }

    /// Bytes of its list; a group that is free as a whole has none.
    fn list_size(&self, limit: u32) -> u64 {
        match (&self.runs, self.image) {
            (Some(runs), _) if runs.is_whole(limit) => 0,
            (Some(runs), _) => list_size(runs.as_slice().len(), limit) as u64,
            (None, image) => image.map_or(0, |image| image.len),
        }
    }

    fn load(&mut self, source: &dyn Source, at: usize, limit: u32) -> Result<&mut Runs> {
        if let (None, Some(image)) = (&self.runs, self.image) {
            let runs = source.runs(at as u32, image, limit)?;
            if runs.free() != self.free {
                let what = "the list of a group does not have the free units that the root states";
                return Err(Error::new(Kind::Corrupted, what)
                    .offset(image.offset)
                    .found(runs.free(), self.free)
                    .remedy("run `azekura object repair`"));
            }
            self.runs = Some(runs);
        }
        Ok(self.runs.get_or_insert_default())
    }
}

#[cfg(test)]
mod tests;
