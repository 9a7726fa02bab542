//! A group: neighbouring segments whose units are pages and runs, and which of the units are in use.
//!
//! A unit is young if it was taken since the cut of the last checkpoint, for what that does not name: it is free as soon as it is
//! superseded. The era, a number that rises with each cut, makes all that was young old, without a look at it. It does not know what is
//! in a unit, nor when one may be given back.

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
    /// A bit for each that is in use.
    pub(super) used: Vec<u64>,
    /// Those taken since the last cut, for what that does not name; of another era, none.
    young: Vec<u64>,
    era: u64,
}

impl UnitGroup {
    /// One of which all units are free.
    pub(super) fn new(segments: u32, geometry: Geometry) -> Self {
        let units = units_of(segments, geometry) as u32;
        let words = units.div_ceil(64) as usize;
        Self {
            segments,
            units,
            free: units,
            used: vec![0; words],
            young: vec![0; words],
            era: 0,
        }
    }

    fn is_used(&self, at: u32) -> bool {
        bit(&self.used, at)
    }

    /// Takes units into use; `young_in`: for what no checkpoint names, in this era.
    pub(super) fn take(&mut self, at: u32, count: u32, young_in: Option<u64>) {
        if let Some(era) = young_in
            && self.era != era
        {
            self.young.fill(0);
            self.era = era;
        }
        for at in at..at + count {
            debug_assert!(!self.is_used(at));
            set(&mut self.used, at, true);
            set(&mut self.young, at, young_in.is_some());
        }
        self.free -= count;
    }

    /// How many of these were in use, and are not any more.
    pub(super) fn give(&mut self, at: u32, count: u32) -> u32 {
        let given = (at..at + count).filter(|at| self.is_used(*at)).count() as u32;
        for at in at..at + count {
            set(&mut self.used, at, false);
            set(&mut self.young, at, false);
        }
        self.free += given;
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
