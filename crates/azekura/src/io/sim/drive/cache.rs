//! What a drive has taken and not yet put on its platters: extents in order of place.
//!
//! Extents do not overlap and are at most [`EXTENT_MAX`] long, neighbours are joined up to that: each is one movement
//! of the arm. It knows places only, neither when they were written nor which is next: that is the drive's decision.

use std::collections::BTreeMap;

/// Most bytes that go to the platters without looking for something better.
const EXTENT_MAX: u64 = 1 << 20;

/// Dirty extents: the length by the place.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    extents: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Dirty {
    /// Bytes in all extents.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes of a range are in extents.
    pub(super) fn overlap(&self, offset: u64, len: u64) -> u64 {
        let end = offset + len;
        let common = |(at, extent): (u64, u64)| (at + extent).min(end) - at.max(offset);
        self.touching(offset, end).map(common).sum()
    }

    fn touching(&self, offset: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.extents.range(..offset).next_back();
        let from = before
            .into_iter()
            .chain(self.extents.range(offset..end.max(offset)));
        from.map(|(at, len)| (*at, *len))
            .filter(move |(at, len)| at + len > offset)
    }

    fn put(&mut self, offset: u64, len: u64) {
        self.extents.insert(offset, len);
        self.bytes += len;
    }

    /// Takes an extent out, and returns how long it was; 0 if there is none.
    pub(super) fn take(&mut self, offset: u64) -> u64 {
        let len = self.extents.remove(&offset).unwrap_or(0);
        self.bytes -= len;
        len
    }

    /// Cuts a range out of all extents.
    pub(super) fn cut(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let hit: Vec<_> = self.touching(offset, end).collect();
        for (at, extent) in hit {
            self.take(at);
            if at < offset {
                self.put(at, offset - at);
            }
            if at + extent > end {
                self.put(end, at + extent - end);
            }
        }
    }

    /// Puts a range in.
    pub(super) fn insert(&mut self, offset: u64, len: u64) {
        self.cut(offset, len);
        let (mut at, end) = (offset, offset + len);
        let before = self
            .extents
            .range(..offset)
            .next_back()
            .map(|(at, len)| (*at, *len));
        if let Some((start, before)) = before
            && start + before == offset
        {
            let joined = (before + len).min(EXTENT_MAX.max(before));
            at += joined - before;
            self.take(start);
            self.put(start, joined);
        }
        while at < end {
            let part = (end - at).min(EXTENT_MAX);
            self.put(at, part);
            at += part;
        }
    }

    /// Up to `count` places of extents from `head` inward, then from the outer edge.
    pub(super) fn ahead(&self, head: u64, count: usize) -> impl Iterator<Item = u64> + '_ {
        let inward = self.extents.range(head..);
        let again = self.extents.range(..head);
        inward.chain(again).map(|(at, _)| *at).take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(dirty: &Dirty) -> Vec<(u64, u64)> {
        let all: Vec<_> = dirty.extents.iter().map(|(at, len)| (*at, *len)).collect();
        assert_eq!(all.iter().map(|(_, len)| len).sum::<u64>(), dirty.bytes);
        all
    }

    #[test]
    fn neighbours_are_joined_up_to_the_longest_extent() {
        let mut dirty = Dirty::default();
        dirty.insert(0, 1000);
        dirty.insert(1000, EXTENT_MAX);
        assert_eq!(content(&dirty), [(0, EXTENT_MAX), (EXTENT_MAX, 1000)]);
        assert_eq!(dirty.overlap(500, EXTENT_MAX), EXTENT_MAX);
        assert_eq!(dirty.overlap(EXTENT_MAX + 900, 200), 100);
        assert_eq!(dirty.overlap(EXTENT_MAX + 1000, 200), 0);
    }

    #[test]
    fn what_is_written_over_takes_no_more_room() {
        let mut dirty = Dirty::default();
        dirty.insert(512, 512);
        dirty.insert(4096, 512);
        dirty.insert(512, 512);
        assert_eq!(content(&dirty), [(512, 512), (4096, 512)]);
        assert_eq!((dirty.take(512), dirty.take(512)), (512, 0));
        assert_eq!(content(&dirty), [(4096, 512)]);
    }

    #[test]
    fn a_cut_leaves_what_is_on_both_sides() {
        let mut dirty = Dirty::default();
        dirty.insert(0, 3000);
        dirty.cut(1000, 1000);
        assert_eq!(content(&dirty), [(0, 1000), (2000, 1000)]);
        dirty.cut(1000, 1000);
        dirty.cut(2500, 10_000);
        assert_eq!(content(&dirty), [(0, 1000), (2000, 500)]);
    }

    #[test]
    fn the_sweep_goes_inward_and_begins_again_outside() {
        let mut dirty = Dirty::default();
        for at in [10_000, 30_000, 20_000] {
            dirty.insert(at, 512);
        }
        assert_eq!(dirty.ahead(15_000, 2).collect::<Vec<_>>(), [20_000, 30_000]);
        assert_eq!(
            dirty.ahead(25_000, 9).collect::<Vec<_>>(),
            [30_000, 10_000, 20_000]
        );
    }
}
