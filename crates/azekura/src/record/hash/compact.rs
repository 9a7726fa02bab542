//! Compacting: space given back on request.
//!
//! Segments with dead bytes are cleaned, and those at the file's end are moved to free ones at its
//! front, until the file is as long as its live bytes need (and the index's images); then it is cut. It
//! is cleaning with another choice of segments: readers and writers continue, a crash loses nothing, and what
//! was won so far stays won. A full store is compacted in its reserve. Where a reader in another process has
//! the end mapped, its room is given back but the file's length stays.
//!
//! For an update of a full store that needs several free segments side by side, what stands between some is
//! moved the same way, and the file is not cut.

use super::Core;
use crate::epoch;
use crate::error::{Kind, Result};
use crate::log::{AllocationClass, Patience, Segment, Use};

/// Rounds of cleaning and checkpointing; each packs what the one before let go of.
const ROUNDS: usize = 16;
/// After so many it continues only while the file becomes shorter; in the first ones readers may still hold what was won.
const ROUNDS_LEAST: usize = 4;

impl Core {
    pub(super) fn compact(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.log.healthy()?;
        let _cleaning = self.cleaning.lock();
        let size = self.log.geometry().segment_size();
        if self.log.storage().size()? <= (u64::from(self.segments_needed()) + 1) * size {
            progress(1, 1);
            return self.log.sync();
        }
        match self.compact_in_rounds(progress) {
            // A full store is as short as it can be made.
            Err(error) if error.kind() == Kind::Full && self.log.healthy().is_ok() => {}
            other => other?,
        }
        // The last round may have grown the file for what it moved, and readers may have held what it won.
        self.log.segments().reap_to_the_last();
        self.log.segments().trim()?;
        self.log.sync()?;
        progress(1, 1);
        Ok(())
    }

    fn compact_in_rounds(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let mut shortest = u64::MAX;
        for round in 0..ROUNDS {
            if !self.clean_all(round, &mut Patience::default(), progress)? && round > 0 {
                break;
            }
            // What readers hold at the end cannot be cut.
            self.log.segments().reap_patiently(1);
            self.log.segments().trim()?;
            let len = self.log.storage().size()?;
            if round + 1 >= ROUNDS_LEAST && len >= shortest {
                break;
            }
            shortest = len.min(shortest);
        }
        Ok(())
    }

    /// Moves what stands between the free segments of a full store until `units` of them are neighbours, for a record as long
    /// as the one that it replaces; the file stays as long as it is. Nothing is done where too few are free in all. Where it
    /// does not help the update is refused.
    pub(super) fn bring_together(&self, units: u32, patience: &mut Patience) -> Result<()> {
        // Who cleans may wait for the closure of another store that this update is called from; and of what a thread that is
        // pinned moves nothing is free before it has ended.
        if !self.lacks_neighbours(units) || epoch::is_within_update() || epoch::is_pinned() {
            return Ok(());
        }
        let _cleaning = self.cleaning.lock();
        for round in 0..ROUNDS {
            if !self.lacks_neighbours(units) {
                break;
            }
            let is_moved = match self.move_out_of_the_way(units) {
                Ok(false) => self.clean_all(round, patience, &mut |_, _| ()),
                other => other,
            };
            match is_moved {
                Ok(false) if round > 0 => break,
                Err(error) if error.kind() == Kind::Full => break,
                other => _ = other?,
            }
            self.log.segments().reap_patiently(1);
        }
        Ok(())
    }

    fn lacks_neighbours(&self, units: u32) -> bool {
        let space = self.log.segments().space();
        space.left_for(AllocationClass::Removal) >= units
            && !space.is_left(units, AllocationClass::Removal)
    }

    /// Whether there was a run of segments that has `units` free neighbours now, unless others took them.
    fn move_out_of_the_way(&self, units: u32) -> Result<bool> {
        let segments = self.log.segments();
        let found = {
            let before = self.cleanable_before();
            let suspect = self.suspect.lock();
            let is_movable =
                |index: u32, sequence: u64| sequence < before && !suspect.contains(&index);
            let mut space = segments.space();
            let found = space.in_the_way(units, is_movable);
            found.map(|(run, moved)| (space.set_aside(&run), moved))
        };
        let Some((aside, moved)) = found else {
            return Ok(false);
        };
        let clean = || {
            let all = segments.in_use(Use::Log).into_iter();
            for segment in all.filter(|segment| moved.contains(&segment.index)) {
                self.clean(segment)?;
            }
            self.checkpoint()
        };
        let cleaned = clean();
        segments.space().put_back(aside);
        cleaned.map(|()| true)
    }

    /// One round: whether there was something to clean.
    fn clean_all(
        &self,
        round: usize,
        patience: &mut Patience,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<bool> {
        // What is cleaned must lie before a checkpoint; so that the open segment may be among it, the
        // log continues in another one, nearer to the front.
        self.log.segments().reap_patiently(1);
        if self.may_roll_over() {
            self.log
                .segments()
                .patiently(patience, || self.log.roll_over())?;
        }
        self.checkpoint()?;
        let victims = self.compactable();
        if victims.is_empty() && round > 0 {
            return Ok(false);
        }
        let total = victims.len() as u64;
        let end = self.segments_needed();
        for (done, segment) in victims.into_iter().enumerate() {
            let is_moved = segment.reclaimable() * 20 <= self.size_of(&segment);
            if is_moved && !self.can_move_forward(&segment, end) {
                continue;
            }
            progress(
                round as u64 * total + done as u64,
                total * (round as u64 + 1),
            );
            self.clean_in_little_room(segment, patience)?;
        }
        self.rewrite_images_after_free_room();
        self.checkpoint()?;
        Ok(true)
    }

    /// A full store keeps the last segment that cleaning may take for copies.
    fn may_roll_over(&self) -> bool {
        let segments = self.log.segments();
        !segments.is_full() || segments.space().left_for(AllocationClass::Cleaning) > 1
    }

    /// Cleans a segment; where there is no room for the copies, those cleaned before make some.
    fn clean_in_little_room(&self, segment: Segment, patience: &mut Patience) -> Result<()> {
        let segments = self.log.segments();
        match segments.patiently(patience, || self.clean(segment)) {
            // Readers hold what was cleaned before.
            Err(error) if error.kind() == Kind::Full && patience.is_over() => return Ok(()),
            Err(error) if error.kind() == Kind::Full => {}
            other => return other,
        }
        self.checkpoint()?;
        match segments.patiently(patience, || self.clean(segment)) {
            // Of a store that is full of live records there is nothing to be won.
            Err(error) if error.kind() == Kind::Full => Ok(()),
            other => other,
        }
    }

    /// Segments worth cleaning: those with more than a twentieth dead, and those beyond where the
    /// live bytes would end.
    fn compactable(&self) -> Vec<Segment> {
        let before = self.cleanable_before();
        let end = self.segments_needed();
        let suspect = self.suspect.lock();
        let mut victims: Vec<Segment> = self
            .log
            .segments()
            .in_use(Use::Log)
            .into_iter()
            .filter(|segment| segment.sequence < before && !suspect.contains(&segment.index))
            .filter(|s| s.reclaimable() * 20 > self.size_of(s) || self.can_move_forward(s, end))
            .collect();
        // From the end of the file, so that copies find the room in front.
        victims.sort_by_key(|segment| std::cmp::Reverse(segment.index));
        victims
    }

    /// Whether a segment reaches beyond `end`, and there is room for it before it. That room may be gone when its turn
    /// comes; then it is in a later round, whose room is that of the segments moved before.
    fn can_move_forward(&self, segment: &Segment, end: u32) -> bool {
        segment.index + segment.units > end
            && self
                .log
                .segments()
                .first_free_run(segment.units)
                .is_some_and(|first| first < segment.index)
    }

    /// Segments that the log and the images need, and some to spare.
    fn segments_needed(&self) -> u32 {
        let (_, live) = self.log_load();
        let needed = live + self.log.segments().sizes().other;
        let segments = needed.div_ceil(self.log.geometry().segment_size()) as u32;
        segments + segments / 20 + 2
    }

    /// Images that lie after free segments are written again, into these.
    fn rewrite_images_after_free_room(&self) {
        let free = self.log.segments().sizes().free;
        let first_free = self.log.segments().first_free().unwrap_or(u32::MAX);
        let mut state = self.checkpoint.lock();
        // In addition to what any checkpoint may take.
        let kept = u64::from(self.log.segments().reserve().checkpoint.max(2));
        if free < kept * self.log.geometry().segment_size() + state.images_len() {
            return;
        }
        state.committed.parts.start_new_run();
        for (partition, image) in state.images.iter().enumerate() {
            let index = self
                .log
                .geometry()
                .locate(image.extent.offset)
                .map_or(0, |(index, _)| index);
            if !image.is_empty() && index > first_free {
                self.index.mark_dirty(partition);
            }
        }
    }
}
