//! Parts of a checkpoint that an engine keeps in segments of a log's storage, beside the log.
//!
//! [`Parts`] writes one behind the other into a run of segments that is taken when the last one is full. A run is free when the
//! last durable checkpoint needs nothing in it; where runs hold much less than they take, the engine writes what is in
//! [`sparse`] ones again.
//!
//! It does not know what a part says, nor when a checkpoint is durable.

use std::collections::BTreeMap;

use super::anchor::Extent;
use super::segment::{Claim, Use};
use super::{Geometry, Log};
use crate::error::Result;
use crate::format::checksum::crc;

/// Runs may take so many segments beyond five fourths of what they hold.
const SPARED: u64 = 4;

/// Where the next part goes: offset, and the end of its run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts(Option<(u64, u64)>);

/// A run of segments: how many, and how many bytes of it are needed.
type Runs = BTreeMap<u32, (u32, u64)>;

impl Parts {
    /// Makes sure that the next `len` bytes stand in one run. `Full` if there is no room.
    pub fn make_room(&mut self, log: &Log, len: u64) -> Result<()> {
        if self.0.is_some_and(|(at, end)| end - at >= len) {
            return Ok(());
        }
        let geometry = log.geometry();
        let units = len.div_ceil(geometry.segment_size()).max(1) as u32;
        let index = log
            .segments()
            .space()
            .take(units, 0, Use::Other, Claim::Checkpoint)?;
        let offset = geometry.offset_of(index);
        self.0 = Some((offset, offset + (u64::from(units) << geometry.shift)));
        Ok(())
    }

    /// Writes a part; where it is, with its checksum. A failed write poisons the log.
    pub fn write(&mut self, log: &Log, bytes: &[u8], seed: u32) -> Result<Extent> {
        let len = bytes.len() as u64;
        self.make_room(log, len)?;
        let Some((offset, end)) = self.0 else {
            unreachable!("room was made")
        };
        if let Err(error) = log.storage().write_at(offset, bytes) {
            log.poison();
            return Err(error);
        }
        self.0 = Some(((offset + len).next_multiple_of(8).min(end), end));
        Ok(Extent {
            offset,
            len,
            crc: crc(seed, bytes),
        })
    }

    /// A byte of the run that is being filled.
    fn here(self) -> Option<u64> {
        self.0.map(|(at, end)| at.min(end - 1))
    }
}

/// The runs, and what of each is needed by `parts`.
fn runs<'e>(log: &Log, parts: impl IntoIterator<Item = &'e Extent>) -> Runs {
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
pub fn needed(log: &Log, parts: &[Extent], writing: Parts) -> Vec<(u32, u32)> {
    let mut runs = runs(log, parts);
    if let Some(offset) = writing.here() {
        add(&mut runs, log.geometry(), offset, 1);
    }
    let live = runs.into_iter().filter(|(_, (_, live))| *live > 0);
    live.map(|(index, (units, _))| (index, units)).collect()
}

/// Frees the runs of which `parts`, all that the last durable checkpoint needs, holds nothing, but the one that is being
/// filled.
pub fn release_idle<'e>(log: &Log, parts: impl IntoIterator<Item = &'e Extent>, writing: Parts) {
    let mut runs = runs(log, parts);
    if let Some(offset) = writing.here() {
        add(&mut runs, log.geometry(), offset, 1);
    }
    let idle: Vec<(u32, u32)> = runs
        .into_iter()
        .filter(|(_, (_, live))| *live == 0)
        .map(|(index, (units, _))| (index, units))
        .collect();
    for (index, _) in &idle {
        log.segments().retire(*index);
    }
    log.segments().release(&idle);
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

/// The runs to be emptied, so that all take at most five fourths of what they hold, and a few segments: those less than
/// three fourths full, if they take more than that now; else none.
pub fn sparse<'e>(log: &Log, parts: impl IntoIterator<Item = &'e Extent>) -> Sparse {
    let geometry = log.geometry();
    let mut runs = runs(log, parts);
    let size = |units: u32| u64::from(units) << geometry.shift;
    let taken: u64 = runs.values().map(|(units, _)| size(*units)).sum();
    let live: u64 = runs.values().map(|(_, live)| live).sum();
    if taken <= live + live / 4 + SPARED * geometry.segment_size() {
        runs.clear();
    }
    runs.retain(|_, (units, live)| *live < size(*units) / 4 * 3);
    Sparse { geometry, runs }
}
