//! Lost places of the journal: places whose contents are unknown.
//!
//! The device refuses to read them; or a repair found them so, wrote zeros over them, and did not end. Zeros look like space that
//! was never used, so the superblock names such places until the repair ends: an open or another repair treats them as unreadable. It
//! names only as many as fit in its slot. With more, the nearest ones are merged with the bytes between them, which are read all the
//! same where they verify.

use std::ops::Range;

use crate::format::superblock;
use crate::object::checkpoint::superblock::Super;

/// Most places that fit into a slot.
pub(crate) const NOTED_MAX: usize = 200;

impl Super {
    /// All lost places, if the device refuses these: with those that were lost before, in order.
    pub(crate) fn lost_with(&self, refused: &[Range<u64>]) -> Vec<Range<u64>> {
        union(self.lost.iter().chain(refused).cloned().collect())
    }

    /// Sets the lost places, without superblocks, which a repair rewrites.
    pub(crate) fn note_lost(&mut self, lost: &[Range<u64>]) {
        let without_superblocks = |range: &Range<u64>| range.start.max(superblock::SIZE)..range.end;
        let noted = lost
            .iter()
            .map(without_superblocks)
            .filter(|of| !of.is_empty());
        self.lost = nearest_joined(noted.collect(), NOTED_MAX);
    }

    /// The first lost place that overlaps a range.
    pub(crate) fn first_lost_in(&self, range: &Range<u64>) -> Option<&Range<u64>> {
        let mut lost = self.lost.iter();
        lost.find(|lost| lost.start < range.end && range.start < lost.end)
    }
}

/// Sorts ranges, and merges those that touch.
fn union(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// Merges sorted ranges to at most `max`, those with the least between them.
fn nearest_joined(ranges: Vec<Range<u64>>, count: usize) -> Vec<Range<u64>> {
    let starts = ranges.iter().skip(1).map(|range| range.start);
    let mut gaps: Vec<Range<u64>> = ranges
        .iter()
        .zip(starts)
        .map(|(range, next)| range.end..next)
        .collect();
    gaps.sort_unstable_by_key(|gap| gap.end - gap.start);
    gaps.truncate((gaps.len() + 1).saturating_sub(count));
    union(ranges.into_iter().chain(gaps).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_one_place_and_of_too_many_the_nearest_are_joined() {
        let places = union(vec![30..40, 0..10, 10..12, 35..37, 50..60]);
        assert_eq!(places, [0..12, 30..40, 50..60]);
        assert_eq!(nearest_joined(places.clone(), 3), places);
        assert_eq!(nearest_joined(places.clone(), 2), [0..12, 30..60]);
        assert_eq!(nearest_joined(places, 1).first(), Some(&(0..60)));
        assert_eq!(nearest_joined(Vec::new(), 1), []);
    }
}
