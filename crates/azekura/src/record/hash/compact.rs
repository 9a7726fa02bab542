//! Compacting: space given back on request.
//!
//! Segments with dead bytes are cleaned, and those at the file's end are moved to free ones at its
//! front, until the file is as long as its live bytes need (and the index's images); then it is cut. It
//! is cleaning with another choice of segments: readers and writers go on, a crash loses nothing, and what
//! was won so far stays won. A full store is compacted in its reserve. Where a reader in another process has the end mapped, its room is given back
//! but the file's length stays.

use super::Core;
use crate::error::{Kind, Result};
use crate::log::{Segment, Use};

/// Rounds of cleaning and checkpointing; each packs what the one before let go of.
const ROUNDS: usize = 16;
/// After so many it goes on only while the file becomes shorter; in the first ones readers may still hold what was won.
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
            // What is cleaned must lie before a checkpoint; so that the open segment may be among it, the
            // log goes on in another one, nearer to the front.
            self.log.segments().reap_patiently(1);
            self.log.segments().patiently(|| self.log.roll_over())?;
            self.checkpoint()?;
            let victims = self.compactable();
            if victims.is_empty() && round > 0 {
                break;
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
                self.clean_in_little_room(segment)?;
            }
            self.rewrite_images_behind_free_room();
            self.checkpoint()?;
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

    /// Cleans a segment; where there is no room for the copies, those cleaned before make some.
    fn clean_in_little_room(&self, segment: Segment) -> Result<()> {
        let segments = self.log.segments();
        match segments.patiently(|| self.clean(segment)) {
            Err(error) if error.kind() == Kind::Full => {}
            other => return other,
        }
        self.checkpoint()?;
        match segments.patiently(|| self.clean(segment)) {
            // Of a store that is full of live records there is nothing to be won.
            Err(error) if error.kind() == Kind::Full => Ok(()),
            other => other,
        }
    }

    /// Segments worth cleaning: those with more than a twentieth dead, and those beyond where the
    /// live bytes would end.
    fn compactable(&self) -> Vec<Segment> {
        let before = self
            .replay_from
            .lock()
            .sequence()
            .min(self.log.retained_from());
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

    /// Images that lie behind free segments are written again, into these.
    fn rewrite_images_behind_free_room(&self) {
        let free = self.log.segments().sizes().free;
        let first_free = self.log.segments().first_free().unwrap_or(u32::MAX);
        let mut state = self.checkpoint.lock();
        // Beside what any checkpoint may take.
        let kept = u64::from(self.log.segments().reserve().checkpoint.max(2));
        if free < kept * self.log.geometry().segment_size() + state.images_len() {
            return;
        }
        state.parts.start_new_run();
        for (stripe, image) in state.images.iter().enumerate() {
            let index = self
                .log
                .geometry()
                .locate(image.extent.offset)
                .map_or(0, |(index, _)| index);
            if !image.is_empty() && index > first_free {
                self.index.mark_dirty(stripe);
            }
        }
    }
}
