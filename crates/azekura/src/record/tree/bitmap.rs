//! The bitmaps of a checkpoint: which units of its groups are in use.
//!
//! A part of them is a row of groups, which stand in it one after the other (`layout`). A check compares them with what is met in the
//! tree: a unit that is in use and holds nothing is lost to the file, and one that holds something and is free may be written
//! over. It does not know what a unit holds.

use std::collections::BTreeMap;

use super::layout::UNIT;
use crate::format::bytes::{Give, Take};
use crate::log::Geometry;

/// What a part is that is none.
pub(super) const IMPOSSIBLE: &str = "a bitmap of the checkpoint holds impossible values";

/// The bit of a unit.
pub(super) fn bit(bits: &[u64], at: u32) -> bool {
    bits.get(at as usize / 64)
        .is_some_and(|word| word >> (at % 64) & 1 == 1)
}

/// Sets the bit of a unit.
pub(super) fn set(bits: &mut [u64], at: u32, to: bool) {
    if let Some(word) = bits.get_mut(at as usize / 64) {
        *word = *word & !(1 << (at % 64)) | u64::from(to) << (at % 64);
    }
}

/// Units of so many segments.
pub(super) fn units_of(segments: u32, geometry: Geometry) -> u64 {
    u64::from(segments) << (geometry.shift - UNIT.trailing_zeros())
}

/// A group as a part states it.
#[derive(Debug)]
pub(super) struct GroupBits {
    /// Its first segment.
    pub(super) index: u32,
    /// Its segments.
    pub(super) segments: u32,
    /// The number of the last checkpoint that names a unit in it which the one before did not.
    pub(super) changed: u64,
    /// A bit for each unit.
    pub(super) used: Vec<u64>,
}

impl GroupBits {
    /// Adds it to a part.
    pub(super) fn encode(&self, part: &mut Give) {
        part.u32(self.index).u32(self.segments).u64(self.changed);
        for word in &self.used {
            part.u64(*word);
        }
    }

    /// The groups of a part; `None` if it is none.
    pub(super) fn decode_all(part: &[u8], geometry: Geometry) -> Option<Vec<Self>> {
        let mut take = Take(part);
        let mut groups = Vec::new();
        while !take.0.is_empty() {
            groups.push(Self::decode(&mut take, geometry)?);
        }
        Some(groups)
    }

    fn decode(take: &mut Take<'_>, geometry: Geometry) -> Option<Self> {
        let (index, segments, changed) = (take.u32()?, take.u32()?, take.u64()?);
        let units = units_of(segments, geometry);
        let used: Option<Vec<u64>> = (0..units.div_ceil(64)).map(|_| take.u64()).collect();
        let used = used?;
        let beyond = units % 64;
        if beyond > 0 && used.last().is_some_and(|last| last >> beyond != 0) {
            return None;
        }
        Some(Self {
            index,
            segments,
            changed,
            used,
        })
    }
}

/// How a unit was met in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    /// In use, and not met before.
    First,
    /// It was met before.
    Again,
    /// The bitmaps have it free.
    Free,
}

/// What a check compares. Two bits for each unit of the file.
#[derive(Debug)]
pub(super) struct Compared {
    geometry: Geometry,
    /// By the first segment: in use, and met.
    groups: BTreeMap<u32, (Vec<u64>, Vec<u64>)>,
}

impl Compared {
    /// Of no group.
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            groups: BTreeMap::new(),
        }
    }

    /// Adds a group.
    pub(super) fn add(&mut self, stated: GroupBits) {
        let met = vec![0; stated.used.len()];
        self.groups.insert(stated.index, (stated.used, met));
    }

    /// A unit is met in the tree.
    pub(super) fn meet(&mut self, unit: u64) -> Sighting {
        let located = self.geometry.locate(unit * UNIT);
        let group = located.and_then(|(segment, _)| self.groups.range_mut(..=segment).next_back());
        let Some((index, (used, met))) = group else {
            return Sighting::Free;
        };
        let at = unit - self.geometry.offset_of(*index) / UNIT;
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        if !bit(used, at) {
            return Sighting::Free;
        }
        if bit(met, at) {
            return Sighting::Again;
        }
        set(met, at, true);
        Sighting::First
    }

    /// The units in use that were not met: how many, and the offset of the first.
    pub(super) fn unmet(&self) -> Option<(u64, u64)> {
        let mut count = 0;
        let mut first = None;
        for (index, (used, met)) in &self.groups {
            for (at, (used, met)) in used.iter().zip(met).enumerate() {
                let unmet = used & !met;
                count += u64::from(unmet.count_ones());
                if unmet != 0 && first.is_none() {
                    let unit = at as u64 * 64 + u64::from(unmet.trailing_zeros());
                    first = Some(self.geometry.offset_of(*index) + unit * UNIT);
                }
            }
        }
        first.map(|first| (count, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_met_once_and_what_is_not_met_is_counted() {
        let geometry = Geometry { shift: 16, salt: 1 };
        let mut part = Give::default();
        for (index, used) in [(2, vec![0b1011]), (5, vec![1 << 15])] {
            let stated = GroupBits {
                index,
                segments: 1,
                changed: 7,
                used,
            };
            stated.encode(&mut part);
        }
        assert_eq!(units_of(1, geometry), 16);
        let mut compared = Compared::new(geometry);
        for group in GroupBits::decode_all(&part.0, geometry).expect("groups") {
            compared.add(group);
        }
        let first = geometry.offset_of(2) / UNIT;
        assert_eq!(compared.meet(first), Sighting::First);
        assert_eq!(compared.meet(first), Sighting::Again);
        assert_eq!(compared.meet(first + 2), Sighting::Free);
        assert_eq!(compared.meet(0), Sighting::Free);
        assert_eq!(compared.meet(first + 16), Sighting::Free, "after the group");
        assert_eq!(
            compared.meet(geometry.offset_of(5) / UNIT + 15),
            Sighting::First
        );
        assert_eq!(compared.unmet(), Some((2, geometry.offset_of(2) + UNIT)));
        let last = part.0.len() - 1;
        let cut = GroupBits::decode_all(&part.0[..last], geometry);
        assert!(cut.is_none(), "it is cut off");
        part.0[last] = 1;
        let beyond = GroupBits::decode_all(&part.0, geometry);
        assert!(beyond.is_none(), "a unit after the group");
    }
}
