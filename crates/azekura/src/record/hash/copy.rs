//! A copy of the store, while it is being used.
//!
//! | step | |
//! |---|---|
//! | 1 | a checkpoint, then the log's end E: images and log up to E stand in the file for good |
//! | 2 | nothing is cleaned meanwhile, and the checkpoint's lock keeps its images |
//! | 3 | segments are copied range by range, by the system, which shares blocks where it can |
//! | 4 | the copy gets a superblock of its own, "closed", whose log ends at E; sync, and the name |
//!
//! Readers and writers notice nothing but the device's load, but for writers that find no room in a full store, which wait. The copy
//! gets its name when it is whole, so a
//! crash leaves none or all of it, and no file is replaced. Records are not looked at: what is damaged is so in
//! the copy.

use std::path::Path;

use super::Core;
use crate::error::Result;
use crate::io::file::Files;
use crate::io::{Storage, create_whole};
use crate::kernel::SuperblockPair;
use crate::log::layout::{LINK_OFFSET, Mark};
use crate::log::{Segment, Use, layout};

impl Core {
    pub(super) fn copy_to(&self, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let (files, name) = Files::of(target);
        create_whole(&files, name, |storage| {
            self.copy_onto(storage.as_ref(), progress)
        })
    }

    /// Copies the store onto an empty storage.
    pub(super) fn copy_onto(
        &self,
        storage: &dyn Storage,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        // Nothing is cleaned meanwhile, so nothing is retired either.
        let _cleaning = self.cleaning.lock();
        self.checkpoint()?;
        let state = self.checkpoint.lock();
        let SuperblockPair { sequence, payload } = state.committed.superblock.clone();
        let geometry = self.log.geometry();
        // The images of the checkpoint may point to frames after the place where its replay begins: the
        // copy holds the log up to an end after them all, with everything before it published.
        let end = self.log.end();
        self.log.domain().wait_for_critical_sections();
        let mut ranges: Vec<Segment> = self.log.segments().in_use(Use::Log);
        ranges.retain(|segment| segment.sequence <= end.sequence());
        ranges.extend(self.log.segments().in_use(Use::Other));
        let segments = ranges.iter().map(|s| s.index + s.units).max().unwrap_or(0);
        storage.resize(geometry.offset_of(segments))?;
        let total = ranges.len() as u64;
        for (done, segment) in ranges.iter().enumerate() {
            progress(done as u64, total);
            let offset = geometry.offset_of(segment.index);
            let mut len = u64::from(segment.units) << geometry.shift;
            if segment.index == end.segment()
                && let Some(offset) = end.offset()
            {
                len = len.min(u64::from(offset));
            }
            self.log.storage().copy_range_to(offset, len, storage)?;
        }
        // The log of the copy ends here: its last segment leads nowhere.
        storage.write_at(geometry.offset_of(end.segment()) + LINK_OFFSET, &[0; 8])?;
        let mark = Mark {
            durable: end.position(),
            sync_failed: false,
        };
        storage.write_at(layout::CONTROL_OFFSET, &mark.encode())?;
        let mut payload = payload;
        payload.open = false;
        payload.durable = end.position();
        SuperblockPair::create(storage, sequence, payload)?;
        storage.sync()?;
        progress(total, total);
        Ok(())
    }
}
