//! A group: neighbouring segments whose units are pages and runs, and which of the units are in use.
//!
//! A unit is young if it was taken since the cut of the last checkpoint, for what that does not name: it is free as soon as it is
//! superseded. The era, a number that rises with each cut, makes all that was young old, without a look at it.
//!
//! A *block* is as many units, side by side from a multiple of that number, as a page has. A page finds room wherever a block is free,
//! however short it is when it is compressed: so free blocks, not units, are what a checkpoint may rely on. It does not know what is in a
//! unit, nor when one may be given back.

use super::bitmap::{bit, set, units_of};
use crate::log::Geometry;

/// Neighbouring segments whose units are pages and runs.
#[derive(Clone, Debug)]
pub(super) struct UnitGroup {
    /// Its segments.
    pub(super) segments: u32,
    /// Its units.
    pub(super) units: u32,
    /// Units that are free.
    pub(super) free: u32,
    /// Blocks of which all units are.
    pub(super) blocks: u32,
    /// Units of a block.
    block: u32,
    /// A bit for each that is in use.
    pub(super) used: Vec<u64>,
    /// Those taken since the last cut, for what that does not name; of another era, none.
    young: Vec<u64>,
    era: u64,
    /// Those that the durable checkpoint names.
    pub(super) named: Vec<u64>,
    /// The number of the last checkpoint that names one which the one before did not.
    pub(super) changed: u64,
}

impl UnitGroup {
    /// One of which all units are free, with blocks of so many.
    pub(super) fn new(segments: u32, geometry: Geometry, block: u32) -> Self {
        let units = units_of(segments, geometry) as u32;
        let words = units.div_ceil(64) as usize;
        Self {
            segments,
            units,
            free: units,
            blocks: units / block,
            block,
            used: vec![0; words],
            young: vec![0; words],
            era: 0,
            named: vec![0; words],
            changed: 0,
        }
    }

    fn is_used(&self, at: u32) -> bool {
        bit(&self.used, at)
    }

    /// One with these units in use, all of them named by the durable checkpoint. `None`: they are too many.
    pub(super) fn of_used(
        used: Vec<u64>,
        segments: u32,
        geometry: Geometry,
        block: u32,
    ) -> Option<Self> {
        let mut group = Self::new(segments, geometry, block);
        let in_use: u32 = used.iter().map(|word| word.count_ones()).sum();
        group.free = group.units.checked_sub(in_use)?;
        group.named.clone_from(&used);
        group.used = used;
        group.blocks = group.free_blocks(0, group.units);
        Some(group)
    }

    /// How many blocks are free of those that these units are in.
    fn free_blocks(&self, at: u32, count: u32) -> u32 {
        if self.block == 1 {
            return (at..at + count).filter(|at| !self.is_used(*at)).count() as u32;
        }
        let blocks = at / self.block..(at + count).div_ceil(self.block);
        let is_free = |block: &u32| {
            let first = block * self.block;
            (first..first + self.block).all(|at| !self.is_used(at))
        };
        blocks.filter(is_free).count() as u32
    }

    /// Takes units into use; `young_in`: for what no checkpoint names, in this era.
    pub(super) fn take(&mut self, at: u32, count: u32, young_in: Option<u64>) {
        if let Some(era) = young_in
            && self.era != era
        {
            self.young.fill(0);
            self.era = era;
        }
        self.blocks -= self.free_blocks(at, count);
        for at in at..at + count {
            debug_assert!(!self.is_used(at));
            set(&mut self.used, at, true);
            set(&mut self.young, at, young_in.is_some());
        }
        self.free -= count;
        debug_assert!(self.block == 1 || self.free_blocks(at, count) == 0);
    }

    /// How many of these were in use, and are not any more.
    pub(super) fn give(&mut self, at: u32, count: u32) -> u32 {
        let given = (at..at + count).filter(|at| self.is_used(*at)).count() as u32;
        self.blocks -= self.free_blocks(at, count);
        for at in at..at + count {
            set(&mut self.used, at, false);
            set(&mut self.young, at, false);
        }
        self.free += given;
        self.blocks += self.free_blocks(at, count);
        given
    }

    /// The first of `count` free units in a row from `from` on.
    pub(super) fn run(&self, from: u32, count: u32) -> Option<u32> {
        let mut len = 0;
        let mut at = from;
        while at < self.units {
            if at.is_multiple_of(64) && self.used[at as usize / 64] == u64::MAX {
                (len, at) = (0, at + 64);
                continue;
            }
            len = if self.is_used(at) { 0 } else { len + 1 };
            at += 1;
            if len == count {
                return Some(at - count);
            }
        }
        None
    }

    /// Whether a unit was taken in this era, for what no checkpoint names.
    pub(super) fn is_young(&self, at: u32, era: u64) -> bool {
        self.era == era && bit(&self.young, at)
    }

    /// The units in use that a checkpoint may name which is the last of this era.
    pub(super) fn old(&self, era: u64) -> Vec<u64> {
        let young = |young: &u64| if self.era == era { *young } else { 0 };
        let words = self.used.iter().zip(&self.young);
        words.map(|(used, of)| used & !young(of)).collect()
    }
}
