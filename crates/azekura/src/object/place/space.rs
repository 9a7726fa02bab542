//! Where the next object goes: free room by allocation groups, used front to back.
//!
//! ```text
//!   group 0      group 1      group 2        the emptiest group gives a *stride*: some of its free runs;
//!   ....xx..xx   xxxxxxxxxx   ..........     objects fill the stride front to back, whatever their ids
//!                             ^stride-->
//!   freed by an update or a removal --> limbo --a sync--> its group
//!   freed by a move of small objects -> limbo --a checkpoint--> its group
//! ```
//! 1. Writes go forward: a stride is 64 MiB where so much is free in one group, and the next one is in the same group while that
//!    has room in a row; so new objects and updates alike stream.
//! 2. Room that an object leaves is *in limbo* until the commit that makes that durable has ended (`limbo`). Only a store that is
//!    being opened frees room otherwise: what nobody has ([`Unclaimed`]).
//! 3. A stride is told to the journal before anything is written in it, with the sequence from which on its objects count: a
//!    recovery scans strides, never the disk.
//! 4. Group lists come in when they are needed: opening does not read them.
//!
//! Next-fit over the emptiest group is segregation by age without a copy: what was written together dies together. It
//! does no I/O but by its source, and does not know objects.

use std::collections::VecDeque;

use crate::error::{Error, Kind, Result};
use crate::log::anchor::Extent;
use crate::object::place::limbo::{FreedBy, Limbo, Moment, SyncBegun};
use crate::object::place::list::list_size;
use crate::object::place::runs::{Run, Runs};
use crate::object::place::span::{Span, Stride};

mod unclaimed;

pub(crate) use unclaimed::Unclaimed;

/// Units of a stride where a group has so many: 64 MiB.
const STRIDE_UNITS: u32 = 16 << 10;
/// Runs of a stride at most.
const STRIDE_RUNS: usize = 64;

/// Brings a group's list in.
pub(crate) trait Source: Send + Sync {
    /// The runs of an image, verified, of a group of `limit` units.
    fn runs(&self, group: u32, image: Extent, limit: u32) -> Result<Runs>;
}

/// What the checkpoint says of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Free units.
    pub free: u32,
    /// Their list; `None` if all are free, or none is.
    pub image: Option<Extent>,
}

/// How much a checkpoint has to tell of the room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Breadth {
    /// Groups.
    pub groups: u64,
    /// Bytes of all groups' lists.
    pub lists: u64,
    /// Spans in limbo that a sync frees.
    pub limbo: u64,
    /// Whether some of them stay there whoever syncs.
    pub is_pinned: bool,
    /// Spans of strides, what the device has grown by, and those in limbo that a checkpoint frees.
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
    /// `None`: cold, and in the image.
    runs: Option<Runs>,
    free: u32,
    /// No run is longer.
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
    /// What is left of the open stride, in order.
    left: VecDeque<Span>,
    /// The group of the last stride.
    last: Option<usize>,
    /// Strides in which there may be objects that the journal does not tell, oldest first; the last is open.
    strides: VecDeque<Stride>,
    limbo: Limbo,
    /// The device has grown by these; they are free when a checkpoint has told so.
    coming: Vec<Span>,
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

/// Room that was found.
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

    /// Whether a stride was opened for it: to be told to the journal before anything is written.
    pub(crate) fn is_in_new_stride(&self) -> bool {
        self.opened
    }
}

impl Space {
    /// Of `units` units in groups of `group_units`; `told` says what is free in each, or nothing of a new store. With it comes what
    /// a recovery needs to correct that.
    pub(crate) fn new(
        units: u64,
        group_units: u32,
        told: Option<&[Told]>,
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
            strides: VecDeque::new(),
            limbo: Limbo::default(),
            coming: Vec::new(),
            free: 0,
            lists: 0,
        };
        for at in 0..count {
            let limit = space.limit(at);
            let told = match told {
                None => Told {
                    free: limit,
                    image: None,
                },
                Some(told) => told.get(at).copied().unwrap_or_default(),
            };
            let group = Group::new(told, limit);
            space.lists += group.list_size(limit);
            space.groups.push(group);
            space.free += u64::from(told.free);
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

    /// Free units, those of the open stride among them.
    pub(crate) fn free(&self) -> u64 {
        self.free
            + self
                .left
                .iter()
                .map(|span| u64::from(span.units))
                .sum::<u64>()
    }

    /// What is in limbo.
    pub(crate) fn limbo(&self) -> &Limbo {
        &self.limbo
    }

    /// How much there is to be told of it.
    pub(crate) fn breadth(&self) -> Breadth {
        let strides = self.strides.iter().map(|stride| stride.spans.len());
        Breadth {
            groups: self.groups.len() as u64,
            lists: self.lists,
            limbo: self.limbo.count(FreedBy::Sync) as u64,
            is_pinned: self.limbo.is_pinned(),
            spans: (self.left.len()
                + self.coming.len()
                + self.limbo.count(FreedBy::Checkpoint)
                + strides.sum::<usize>()) as u64,
        }
    }

    /// Room for `units`, at most a group's; `None` if no run is that long. What is found belongs to objects of
    /// `sequence` or later.
    pub(crate) fn take(&mut self, units: u32, sequence: u64) -> Result<Option<Found>> {
        let opened = !self.left.iter().any(|span| span.units >= units);
        if opened && !self.open_stride(units, sequence)? {
            return Ok(None);
        }
        let at = self.left.iter().position(|span| span.units >= units);
        let Some(at) = at else {
            unreachable!("the stride was opened for it")
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

    /// The stride that was just opened for this could not be told: nothing is put there.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what was found goes back once"
    )]
    pub(crate) fn close_untold(&mut self, found: Found) -> Result<()> {
        self.strides.pop_back();
        for span in std::mem::take(&mut self.left) {
            self.add(span)?;
        }
        self.add(found.span)
    }

    /// Opens a stride in the next group that has a run of `units`; what the last one left goes back.
    fn open_stride(&mut self, units: u32, sequence: u64) -> Result<bool> {
        for span in std::mem::take(&mut self.left) {
            self.add(span)?;
        }
        while let Some(at) = self.next_group(units) {
            let limit = self.limit(at);
            let group = &mut self.groups[at];
            let before = group.list_size(limit);
            let runs = group.warm(self.source.as_ref(), at, limit)?;
            let taken = runs.take_from(units, STRIDE_UNITS, STRIDE_RUNS);
            self.lists = self.lists - before + group.list_size(limit);
            group.longest_at_most = group.longest_at_most.min(runs_longest(group));
            if taken.is_empty() {
                continue;
            }
            let all: u32 = taken.iter().map(|run| run.len).sum();
            group.free -= all;
            group.dirty = true;
            self.free -= u64::from(all);
            let first = at as u64 * u64::from(self.group_units);
            let spans: Vec<Span> = taken
                .iter()
                .map(|run| Span {
                    unit: first + u64::from(run.start),
                    units: run.len,
                })
                .collect();
            self.left.extend(&spans);
            self.last = Some(at);
            self.strides.push_back(Stride { sequence, spans });
            return Ok(true);
        }
        Ok(false)
    }

    /// The last stride of an earlier time was this one: the next is in the same group, while that has room in a row.
    pub(crate) fn go_on(&mut self, stride: &Stride) {
        let last = stride.spans.last();
        self.last = last.map(|span| (span.unit / u64::from(self.group_units)) as usize);
    }

    /// The group of the last stride as long as it has a quarter of one in a row, so that an arm stays where it is; then the
    /// emptiest. Of equally empty ones each would else give one stride in turn.
    fn next_group(&self, units: u32) -> Option<usize> {
        let worth = units.max(STRIDE_UNITS.min(self.group_units) / 4);
        let has_room = |at: &usize| {
            let group = self.groups.get(*at);
            group.is_some_and(|group| group.longest_at_most.min(group.free) >= worth)
        };
        self.last.filter(has_room).or_else(|| self.emptiest(units))
    }

    fn emptiest(&self, units: u32) -> Option<usize> {
        let fitting = self.groups.iter().enumerate();
        let fitting = fitting.filter(|(_, group)| group.longest_at_most.min(group.free) >= units);
        // The first of equals: a new store is filled from the front.
        fitting
            .max_by_key(|(at, group)| (group.free, std::cmp::Reverse(*at)))
            .map(|(at, _)| at)
    }

    /// Puts units into limbo: an object that was there is gone.
    pub(crate) fn retire(&mut self, span: Span, freed_by: FreedBy) {
        self.limbo.retire(span, freed_by);
    }

    /// Units that are free, or would be after a sync: no pin keeps them.
    pub(crate) fn within_reach(&self) -> u64 {
        self.free() + self.limbo.units_within_reach(FreedBy::Sync)
    }

    /// What goes into limbo from now on stays there until the pin, which this is, is taken out.
    pub(crate) fn pin(&mut self) -> u64 {
        self.limbo.pin()
    }

    /// Takes a pin out.
    pub(crate) fn unpin(&mut self, pin: u64) {
        self.limbo.unpin(pin);
    }

    /// A sync begins.
    pub(crate) fn begin_sync(&self) -> SyncBegun {
        self.limbo.begin_sync()
    }

    /// A sync has ended: what was in limbo for it when it began is free, but for what is pinned.
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

    /// Gives back units that hold nothing. Units that are free stay so. Of a store that runs: what left limbo, or was never given
    /// away.
    fn add(&mut self, span: Span) -> Result<()> {
        self.each_group(span, |space, at, run| {
            let limit = space.limit(at);
            let group = &mut space.groups[at];
            let before = group.list_size(limit);
            let added = group.warm(space.source.as_ref(), at, limit)?.add(run)?;
            space.lists = space.lists - before + group.list_size(limit);
            group.free += added;
            group.longest_at_most = limit;
            group.dirty |= added > 0;
            space.free += u64::from(added);
            Ok(())
        })
    }

    /// Takes units out, free or not.
    fn claim(&mut self, span: Span) -> Result<()> {
        self.each_group(span, |space, at, run| {
            let limit = space.limit(at);
            let group = &mut space.groups[at];
            let before = group.list_size(limit);
            let removed = group.warm(space.source.as_ref(), at, limit)?.remove(run)?;
            space.lists = space.lists - before + group.list_size(limit);
            group.free -= removed;
            group.dirty |= removed > 0;
            space.free -= u64::from(removed);
            Ok(())
        })
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

    /// Every put before `sequence` has ended and is in the journal: strides that hold no other are scanned no more.
    pub(crate) fn settle(&mut self, sequence: u64) {
        while self
            .strides
            .get(1)
            .is_some_and(|next| next.sequence <= sequence)
        {
            self.strides.pop_front();
        }
    }

    /// The strides that a recovery has to scan.
    pub(crate) fn strides(&self) -> impl Iterator<Item = &Stride> {
        self.strides.iter()
    }

    /// The open stride, if there is one.
    pub(crate) fn open(&self) -> Option<&Stride> {
        self.strides.back()
    }

    /// What a checkpoint says of each group, and of which the list is to be written: all that changed since the last one.
    /// Limbo and what is left of the stride are not free in it. This is the checkpoint's moment.
    pub(crate) fn tell(&mut self) -> (Vec<Told>, Vec<List>, Moment) {
        let mut told = Vec::with_capacity(self.groups.len());
        let mut lists = Vec::new();
        for at in 0..self.groups.len() {
            let limit = self.limit(at);
            let group = &mut self.groups[at];
            let mut of = Told {
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
            told.push(of);
        }
        (told, lists, self.limbo.moment())
    }

    /// The checkpoint of this moment is durable: `told` says where the lists are. What the device had grown by, and what was in
    /// limbo, is free.
    pub(crate) fn end_checkpoint(&mut self, told: &[Told], moment: Moment) -> Result<()> {
        for (group, told) in self.groups.iter_mut().zip(told) {
            group.image = told.image;
        }
        while let Some(span) = self.coming.last().copied() {
            self.add(span)?;
            self.coming.pop();
        }
        self.limbo.end_checkpoint(moment);
        self.free_limbo()
    }

    /// After a checkpoint that failed: what it took for stored is not.
    pub(crate) fn soil(&mut self, told: &[Told]) {
        for (group, told) in self.groups.iter_mut().zip(told) {
            group.dirty |= told.image != group.image || told.image.is_none();
        }
    }

    /// Not free for objects, and yet not an object's: limbo, what is left of the stride, and what the device has grown by.
    pub(crate) fn between(&self) -> impl Iterator<Item = Span> + '_ {
        let kept = self.left.iter().chain(&self.coming).copied();
        self.limbo.spans().chain(kept)
    }

    /// More units at the end: the device has grown. They are free when a checkpoint is durable that was told of them
    /// ([`end_checkpoint`](Self::end_checkpoint)): what stands there before could not be found again. Brings the last
    /// group's list in.
    pub(crate) fn grow(&mut self, units: u64) -> Result<()> {
        let before = self.units;
        // What is told of the last group means one of so many units.
        if let Some(last) = self.groups.len().checked_sub(1) {
            let limit = self.limit(last);
            let group = &mut self.groups[last];
            group.warm(self.source.as_ref(), last, limit)?;
            group.dirty = true;
            self.lists -= group.list_size(limit);
        }
        self.units = units.max(before);
        if let Some(last) = self.groups.len().checked_sub(1) {
            self.lists += self.groups[last].list_size(self.limit(last));
        }
        let count = self.units.div_ceil(u64::from(self.group_units)) as usize;
        while self.groups.len() < count {
            self.groups.push(Group::new(Told::default(), 0));
        }
        let mut unit = before;
        while unit < self.units {
            let units = (self.units - unit).min(u64::from(self.group_units)) as u32;
            self.coming.push(Span { unit, units });
            unit += u64::from(units);
        }
        Ok(())
    }

    /// The longest free run, in units, and how many runs there are: how broken up the free room is. Brings all lists in.
    pub(crate) fn fragments(&mut self) -> Result<(u32, u64)> {
        let (mut longest, mut count) = (0, 0);
        for at in 0..self.groups.len() {
            let limit = self.limit(at);
            let runs = self.groups[at].warm(self.source.as_ref(), at, limit)?;
            longest = longest.max(runs.longest());
            count += runs.as_slice().len() as u64;
        }
        Ok((longest, count))
    }

    /// All free spans, limbo and the stride left out: for checks. Brings all lists in.
    pub(crate) fn all_free(&mut self) -> Result<Vec<Span>> {
        let mut all = Vec::new();
        for at in 0..self.groups.len() {
            let limit = self.limit(at);
            let first = at as u64 * u64::from(self.group_units);
            let runs = self.groups[at].warm(self.source.as_ref(), at, limit)?;
            all.extend(runs.as_slice().iter().map(|run| Span {
                unit: first + u64::from(run.start),
                units: run.len,
            }));
        }
        Ok(all)
    }
}

fn runs_longest(group: &Group) -> u32 {
    group.runs.as_ref().map_or(0, Runs::longest)
}

impl Group {
    fn new(told: Told, limit: u32) -> Self {
        let runs = match told {
            Told { image: Some(_), .. } => None,
            Told { free: 0, .. } => Some(Runs::default()),
            _ => Some(Runs::whole(limit)),
        };
        Self {
            runs,
            free: told.free,
            longest_at_most: told.free,
            image: told.image,
            dirty: false,
        }
    }

    /// Bytes of its list; of a group that is free as a whole none is written.
    fn list_size(&self, limit: u32) -> u64 {
        match (&self.runs, self.image) {
            (Some(runs), _) if runs.is_whole(limit) => 0,
            (Some(runs), _) => list_size(runs.as_slice().len(), limit) as u64,
            (None, image) => image.map_or(0, |image| image.len),
        }
    }

    fn warm(&mut self, source: &dyn Source, at: usize, limit: u32) -> Result<&mut Runs> {
        if let (None, Some(image)) = (&self.runs, self.image) {
            let runs = source.runs(at as u32, image, limit)?;
            if runs.free() != self.free {
                let what = "the list of a group does not have the units that are told of it";
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
