//! A copy of the store, while it is being used.
//!
//! | step | |
//! |---|---|
//! | 1 | a checkpoint, and its lock: no later one is made, so nothing that it names is written over |
//! | 2 | the segments of pages and of the checkpoint are copied, by the system, which shares blocks where it can |
//! | 3 | the copy gets an empty journal and a superblock of its own, "closed"; sync, and the name |
//!
//! Readers and writers continue; writers that come to the journal's bound wait. The copy gets its name when it is whole. Pages are not
//! looked at: what is damaged is so in the copy.

use std::path::Path;

use super::Core;
use crate::error::{Error, Kind, Result};
use crate::io::file::Files;
use crate::io::{Storage, create_whole};
use crate::kernel::SuperblockPair;
use crate::log::layout::{self, LINK_OFFSET, Mark};
use crate::log::{Segment, Use};

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
        self.checkpoint()?;
        let state = self.checkpoint.lock();
        let SuperblockPair { sequence, payload } = state.committed.superblock.clone();
        let geometry = self.log.geometry();
        let start = payload.start;
        if payload.root.is_none() {
            return Err(
                Error::new(Kind::Full, "no checkpoint could be made to copy")
                    .at(self.log.storage().path()),
            );
        }
        let mut ranges: Vec<Segment> = self.log.segments().in_use(Use::Log);
        ranges.retain(|segment| segment.sequence == start.sequence());
        ranges.extend(self.log.segments().in_use(Use::Other));
        ranges.extend(self.log.segments().in_use(Use::Pages));
        let segments = ranges.iter().map(|s| s.index + s.units).max().unwrap_or(0);
        storage.resize(geometry.offset_of(segments))?;
        let total = ranges.len() as u64;
        for (done, segment) in ranges.iter().enumerate() {
            progress(done as u64, total);
            let offset = geometry.offset_of(segment.index);
            let mut len = u64::from(segment.units) << geometry.shift;
            if segment.index == start.segment()
                && let Some(offset) = start.offset()
            {
                len = len.min(u64::from(offset));
            }
            self.log.storage().copy_range_to(offset, len, storage)?;
        }
        // The journal of the copy ends where replay begins: its segment leads nowhere.
        storage.write_at(geometry.offset_of(start.segment()) + LINK_OFFSET, &[0; 8])?;
        let mark = Mark {
            durable: start.position(),
            sync_failed: false,
        };
        storage.write_at(layout::CONTROL_OFFSET, &mark.encode())?;
        let mut payload = payload;
        payload.open = false;
        payload.durable = start.position();
        SuperblockPair::create(storage, sequence, payload)?;
        storage.sync()?;
        progress(total, total);
        Ok(())
    }
}
