//! Parts of a checkpoint that an engine keeps in segments of a log's storage, next to the log.
//!
//! [`Parts`] writes one after the other into a run of segments, and takes a new run when the last one is full. A run is free when the
//! last durable checkpoint needs nothing in it; where runs hold much less than they take, the engine writes what is in
//! [`sparse`] ones again.
//!
//! It does not know what a part means, nor when a checkpoint is durable.

use std::collections::BTreeMap;

use super::manifest::Extent;
use super::segment::{AllocationClass, Patience, Use};
use super::{Geometry, Log};
use crate::error::Result;
use crate::format::checksum::crc;

/// Runs may take so many segments beyond five fourths of what they hold, and so many of a full storage.
const SPARED: u64 = 4;
const SPARED_OF_FULL: u64 = 1;

/// Where the next part goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// Offset, and the end of its run.
    at: Option<(u64, u64)>,
    together: u32,
}

/// A run of segments: how many, and how many bytes of it are needed.
type Runs = BTreeMap<u32, (u32, u64)>;

impl Parts {
    /// Those that stand in the one segment at `offset`, which is taken.
    pub fn within(geometry: Geometry, offset: u64) -> Self {
        Self {
            at: Some((offset, offset + geometry.segment_size())),
            together: 0,
        }
    }

    /// Whether `len` bytes more stand in the run that is being filled.
    pub fn has_room(&self, len: u64) -> bool {
        self.at.is_some_and(|(at, end)| end - at >= len)
    }

    /// Runs that are begun from now on have so many segments, where as many neighbours are free and the storage is not full.
    pub fn keep_together(&mut self, units: u32) {
        self.together = units;
    }

    /// The next part goes to the free segment nearest to the storage's front.
    pub fn start_new_run(&mut self) {
        self.at = None;
    }

    /// Makes sure that the next `len` bytes stand in one run, taken for `class`. `Full` if there is no room.
    pub fn make_room(&mut self, log: &Log, len: u64, class: AllocationClass) -> Result<()> {
        if self.has_room(len) {
            return Ok(());
        }
        let geometry = log.geometry();
        let least = len.div_ceil(geometry.segment_size()).max(1) as u32;
        let together = least.max(self.together);
        let (index, units) = log.segments().patiently(&mut Patience::default(), || {
            let mut space = log.segments().space();
            let spacious = !log.segments().is_full() && space.has(together);
            let units = if spacious { together } else { least };
            let index = space.take(units, 0, Use::Other, class)?;
            Ok((index, units))
        })?;
        let offset = geometry.offset_of(index);
        self.at = Some((offset, offset + (u64::from(units) << geometry.shift)));
        Ok(())
    }

    /// Writes a part; where it is, with its checksum. A failed write poisons the log.
    pub fn write(&mut self, log: &Log, bytes: &[u8], seed: u32) -> Result<Extent> {
        let len = bytes.len() as u64;
        self.make_room(log, len, AllocationClass::Checkpoint)?;
        let Some((offset, end)) = self.at else {
            unreachable!("room was made")
        };
        if let Err(error) = log.storage().write_at(offset, bytes) {
            log.poison();
            return Err(error);
        }
        self.at = Some(((offset + len).next_multiple_of(8).min(end), end));
        Ok(Extent {
            offset,
            len,
            crc: crc(seed, bytes),
        })
    }

    /// A byte of the run that is being filled.
    fn here(self) -> Option<u64> {
        self.at.map(|(at, end)| at.min(end - 1))
    }
}

/// The runs, and what of each is needed by `parts`.
fn runs(log: &Log, parts: impl IntoIterator<Item = Extent>) -> Runs {
    let other = log.segments().in_use(Use::Other);
    let mut runs: Runs = other
        .iter()
        .map(|segment| (segment.index, (segment.units, 0)))
        .collect();
    for part in parts {
        add(&mut runs, log.geometry(), part.offset, part.len);
    }
    runs
}

fn add(runs: &mut Runs, geometry: Geometry, offset: u64, len: u64) {
    if let Some((index, _)) = geometry.locate(offset)
        && let Some((_, (_, live))) = runs.range_mut(..=index).next_back()
    {
        *live += len;
    }
}

/// The segments of runs that a checkpoint with these parts, and a root still to be written to `writing`, needs: index,
/// units.
pub fn needed(
    log: &Log,
    parts: impl IntoIterator<Item = Extent>,
    writing: Parts,
) -> Vec<(u32, u32)> {
    by_need(log, parts, writing, true)
}

/// Frees the runs of which `parts`, all that the last durable checkpoint needs, holds nothing, but the one that is being
/// filled.
pub fn release_idle(log: &Log, parts: impl IntoIterator<Item = Extent>, writing: Parts) {
    let idle = by_need(log, parts, writing, false);
    log.segments().release_at_once(&idle);
}

/// Runs that hold something of `parts` or are being filled, if `needed`; else the others.
fn by_need(
    log: &Log,
    parts: impl IntoIterator<Item = Extent>,
    writing: Parts,
    needed: bool,
) -> Vec<(u32, u32)> {
    let mut runs = runs(log, parts);
    if let Some(offset) = writing.here() {
        add(&mut runs, log.geometry(), offset, 1);
    }
    runs.retain(|_, (_, live)| (*live > 0) == needed);
    let runs = runs.into_iter();
    runs.map(|(index, (units, _))| (index, units)).collect()
}

/// Runs that hold little of what is needed.
#[derive(Debug)]
pub struct Sparse {
    geometry: Geometry,
    runs: Runs,
}

impl Sparse {
    /// Whether a part at `offset` stands in such a run.
    pub fn holds(&self, offset: u64) -> bool {
        let run = self
            .geometry
            .locate(offset)
            .and_then(|(index, _)| self.runs.range(..=index).next_back());
        run.is_some_and(|(first, (units, _))| {
            self.geometry
                .locate(offset)
                .is_some_and(|(index, _)| index < first + units)
        })
    }
}

/// The runs to be emptied, so that all that hold something of `parts`, which are to stay, take at most five fourths of what they
/// hold, and a few segments: those less than three fourths full, if they take more than that now; else none.
pub fn sparse(log: &Log, parts: impl IntoIterator<Item = Extent>) -> Sparse {
    let geometry = log.geometry();
    let mut runs = runs(log, parts);
    let size = |units: u32| u64::from(units) << geometry.shift;
    runs.retain(|_, (_, live)| *live > 0);
    let taken: u64 = runs.values().map(|(units, _)| size(*units)).sum();
    let live: u64 = runs.values().map(|(_, live)| live).sum();
    let is_full = log.segments().is_full();
    let spared = if is_full { SPARED_OF_FULL } else { SPARED };
    if taken <= live + live / 4 + spared * geometry.segment_size() {
        runs.clear();
    }
    runs.retain(|_, (units, live)| *live < size(*units) / 4 * 3);
    Sparse { geometry, runs }
}
