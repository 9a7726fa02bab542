//! When what was superseded is free again: limbo, what snapshots hold, and the cuts of checkpoints.
//!
//! Rules 2 to 5 of `space`, whose room this is. What a change supersedes is in limbo, or, if no checkpoint names it, ages at once; the end of a
//! checkpoint passes limbo on to where a snapshot still needs it, or to age; the end of a snapshot what only that needed. What ages is
//! free when no reader can still look at it. It does not know who takes what is free.

use std::ops::Bound;

use super::bitmap::{bit, set};
use super::layout::Place;
use super::space::{Leaving, OutOfUse, SpaceGuard};
use crate::epoch::Batch;

/// Runs out of use that are sealed together: a seal costs a barrier.
const SEALED: usize = 64;
/// Or so many units of them.
const SEALED_UNITS: u32 = 1024;

impl SpaceGuard<'_> {
    /// A page's image, with changes up to the position `since`, is superseded by one that has a change at `until`, and no reader of
    /// the store looks at it.
    pub(super) fn supersede_image(&mut self, place: Place, (since, until): (u64, u64)) {
        if place.is_none() {
            return;
        }
        let (unit, count) = (place.unit(), place.units());
        if !self.is_young(unit) {
            self.wait(since, until, OutOfUse::Units(unit, count));
        } else if self.is_needed_by_snapshot(since, until) {
            self.hold(since, until, (unit, count));
        } else {
            self.give_units(unit, count);
        }
    }

    /// A page that is on storage as it is has the same image elsewhere, since a position that no cut is after yet: the one before, here, waits
    /// for the next checkpoint.
    pub(super) fn move_image(&mut self, page: u32, before: Place, position: u64) {
        self.note_place_at_cut(page, before);
        let what = OutOfUse::Units(before.unit(), before.units());
        self.wait(position, position, what);
    }

    /// A run is superseded by a change at `position`. Readers may still look at it.
    pub(super) fn supersede_run(&mut self, unit: u64, count: u32, position: u64) {
        let since = self.state.born.remove(&unit).unwrap_or(0);
        if !self.is_young(unit) {
            self.wait(since, position, OutOfUse::Units(unit, count));
            return;
        }
        self.state.pending.remove(&unit);
        if self.is_needed_by_snapshot(since, position) {
            self.hold(since, position, (unit, count));
        } else {
            self.state.unread.push((unit, count));
            let units = self.state.unread.iter().map(|(_, count)| *count);
            if self.state.unread.len() >= SEALED || units.sum::<u32>() >= SEALED_UNITS {
                self.seal();
            }
        }
    }

    /// A page number is out of use by a change at `position`. No snapshot needs it: a version of the page is found first.
    pub(super) fn retire_page(&mut self, page: u32, position: u64) {
        self.wait(position, position, OutOfUse::Page(page));
    }

    fn wait(&mut self, since: u64, until: u64, what: OutOfUse) {
        if let OutOfUse::Units(_, count) = what {
            self.state.waiting += u64::from(count);
        }
        self.state.limbo.push(Leaving { since, until, what });
    }

    fn hold(&mut self, since: u64, until: u64, (unit, count): (u64, u32)) {
        self.state.held_units += u64::from(count);
        let what = OutOfUse::Units(unit, count);
        let held = self.state.held.entry(until).or_default();
        held.push(Leaving { since, until, what });
    }

    /// Whether a snapshot's cut is after one position and not after the other.
    pub(super) fn is_needed_by_snapshot(&self, since: u64, until: u64) -> bool {
        let cuts = (Bound::Excluded(since), Bound::Included(until.max(since)));
        until > since && self.state.snapshots.range(cuts).next().is_some()
    }

    /// A snapshot has this cut.
    pub(super) fn begin_snapshot(&mut self, cut: u64) {
        *self.state.snapshots.entry(cut).or_default() += 1;
    }

    /// One snapshot less has this cut: what none needs any more is free.
    pub(super) fn end_snapshot(&mut self, cut: u64) {
        if let Some(count) = self.state.snapshots.get_mut(&cut) {
            *count -= 1;
            if *count > 0 {
                return;
            }
        }
        self.state.snapshots.remove(&cut);
        // What is not known to be later counts as before all that live.
        let least = self.state.snapshots.keys().next().copied();
        match least {
            None => self.state.born.clear(),
            Some(least) if least > cut => self.state.born.retain(|_, at| *at >= least),
            Some(_) => {}
        }
        // What the cut needs and was superseded after the next one, that needs, too.
        let next = self.snapshot_after(cut);
        let ended: Vec<u64> = self.state.held.range(cut..next).map(|of| *of.0).collect();
        for until in ended {
            let held = self.state.held.remove(&until).unwrap_or_default();
            for leaving in held {
                if self.is_needed_by_snapshot(leaving.since, leaving.until) {
                    let held = self.state.held.entry(until).or_default();
                    held.push(leaving);
                } else if let Some((unit, count)) = leaving.units() {
                    self.state.held_units -= u64::from(count);
                    self.state.unread.push((unit, count));
                }
            }
        }
        self.seal();
        self.reap();
    }

    /// The next greater cut of a snapshot.
    pub(super) fn snapshot_after(&self, cut: u64) -> u64 {
        let after = (Bound::Excluded(cut), Bound::Unbounded);
        let next = self.state.snapshots.range(after).next();
        next.map_or(u64::MAX, |(next, _)| *next)
    }

    /// The greatest cut that lives, of the checkpoint that is being made or of a snapshot; 0: there is none.
    pub(super) fn greatest_cut(&self) -> u64 {
        let snapshot = self.state.snapshots.keys().next_back();
        snapshot.copied().max(self.state.cut).unwrap_or(0)
    }

    fn is_young(&self, unit: u64) -> bool {
        let group = self.locate(unit);
        group.is_some_and(|(index, at)| {
            let group = self.state.groups.get(&index);
            group.is_some_and(|group| group.is_young(at, self.state.era))
        })
    }

    /// What is out of use ages from now on.
    fn seal(&mut self) {
        let units = std::mem::take(&mut self.state.unread);
        if !units.is_empty() {
            let batch = Batch::seal(self.log.domain(), units, 0);
            self.state.aging.push(batch);
        }
    }

    /// As `reap`, of all that is out of use: whether nothing is looked at any more.
    pub(super) fn reap_all(&mut self) -> bool {
        self.seal();
        self.reap();
        self.state.aging.is_empty()
    }

    /// Frees what no reader can look at any more.
    pub(super) fn reap(&mut self) {
        let domain = self.log.domain();
        let elapsed = |batch: &mut Batch<_>| batch.has_elapsed(domain);
        let elapsed: Vec<_> = self.state.aging.extract_if(.., elapsed).collect();
        for (unit, count) in elapsed.into_iter().flat_map(|batch| batch.items) {
            self.give_units(unit, count);
        }
    }

    /// The cut of a checkpoint, while the caller lets no thread be between an image and its place.
    pub(super) fn begin_cut(&mut self, cut: u64) {
        self.state.cut = Some(cut);
        // Writers wait meanwhile: nothing is looked through here.
        self.state.era += 1;
    }

    /// The cut of the checkpoint that is being made.
    pub(super) fn cut(&self) -> Option<u64> {
        self.state.cut
    }

    /// Where a page was at the cut, if that is not where it is.
    pub(super) fn place_at_cut(&self, page: u32) -> Option<Place> {
        self.state.overrides.get(&page).copied()
    }

    /// A page is about to be elsewhere than at the cut.
    pub(super) fn note_place_at_cut(&mut self, page: u32, place: Place) {
        if self.state.cut.is_some() {
            self.state.overrides.entry(page).or_insert(place);
        }
    }

    /// The image of a page that was taken out of use since the cut stands here: it has the changes up to the position `since`, and
    /// not that at `until`, which is after the cut. With the next checkpoint it is free.
    pub(super) fn note_image_at_cut(
        &mut self,
        page: u32,
        place: Place,
        (since, until): (u64, u64),
    ) {
        self.state.overrides.insert(page, place);
        self.wait(since, until, OutOfUse::Units(place.unit(), place.units()));
    }

    /// The checkpoint is durable, or was given up.
    pub(super) fn end_cut(&mut self, is_durable: bool) {
        let Some(cut) = self.state.cut.take() else {
            return;
        };
        self.state.overrides.clear();
        let mut naming = std::mem::take(&mut self.state.naming);
        if !is_durable {
            return;
        }
        for (index, group) in &mut self.state.groups {
            match naming.remove(index) {
                Some(of) => (group.named, group.changed) = (of.used, of.changed),
                None => group.named.fill(0),
            }
        }
        let limbo = std::mem::take(&mut self.state.limbo);
        let (left, waiting): (Vec<_>, Vec<_>) = limbo.into_iter().partition(|of| of.until < cut);
        self.state.limbo = waiting;
        let mut units = Vec::new();
        for Leaving { since, until, what } in left {
            match what {
                OutOfUse::Units(unit, count) => {
                    self.state.waiting -= u64::from(count);
                    if self.is_needed_by_snapshot(since, until) {
                        self.hold(since, until, (unit, count));
                    } else {
                        units.push((unit, count));
                    }
                }
                OutOfUse::Page(page) => self.state.free_pages.push(page),
            }
        }
        self.state.unread.extend(units);
        self.seal();
        self.reap();
    }

    /// Everything in use is superseded by a change at `position`, and so are all pages but the first.
    pub(super) fn supersede_all(&mut self, position: u64) {
        let mut leaving: Vec<(u64, Vec<u64>)> = Vec::new();
        for (index, group) in &self.state.groups {
            leaving.push((self.unit_of(*index), group.used.clone()));
        }
        let clear = |leaving: &mut Vec<(u64, Vec<u64>)>, unit: u64, count: u32| {
            for unit in unit..unit + u64::from(count) {
                let after = leaving.partition_point(|(first, _)| *first <= unit);
                if let Some((first, bits)) = leaving.get_mut(after.wrapping_sub(1)) {
                    set(bits, (unit - *first) as u32, false);
                }
            }
        };
        let held = self.state.held.values().flatten();
        let already = self.state.limbo.iter().chain(held);
        for (unit, count) in already.filter_map(Leaving::units) {
            clear(&mut leaving, unit, count);
        }
        let aging = self.state.aging.iter().flat_map(|batch| &batch.items);
        for (unit, count) in aging.chain(&self.state.unread) {
            clear(&mut leaving, *unit, *count);
        }
        for (first, bits) in leaving {
            let (mut at, end) = (0, bits.len() as u32 * 64);
            while at < end {
                let after = (at..end).take_while(|at| bit(&bits, *at)).count() as u32;
                if after > 0 {
                    let units = OutOfUse::Units(first + u64::from(at), after);
                    // Which of them are of pages, and since when, is not looked for.
                    self.wait(0, position, units);
                }
                at += after + 1;
            }
        }
        self.state.pending.clear();
        self.state.born.clear();
    }
}
