//! A copy of the store, while it is being used.
//!
//! | step | |
//! |---|---|
//! | 1 | a checkpoint, and its lock: no later one is made, so nothing that it names is written over |
//! | 2 | its segments, those of pages and the superblock are copied (`kernel::copy`), as a store whose journal is empty; then the name |
//!
//! Readers and writers continue; writers that come to the journal's bound wait. The copy gets its name when it is whole. Pages are not
//! looked at: what is damaged is so in the copy.

use std::path::Path;

use super::Core;
use crate::error::{Error, Kind, Result};
use crate::io::file::Files;
use crate::io::{Storage, create_whole};
use crate::kernel;
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
        let superblock = &state.committed.superblock;
        let start = superblock.payload.start;
        if superblock.payload.root.is_none() {
            return Err(
                Error::new(Kind::Full, "no checkpoint could be made to copy")
                    .at(self.log.storage().path()),
            );
        }
        let all = self.log.segments();
        let mut segments: Vec<Segment> = all.in_use(Use::Log);
        segments.retain(|segment| segment.sequence == start.sequence());
        segments.extend(all.in_use(Use::Other));
        segments.extend(all.in_use(Use::Pages));
        kernel::copy::copy_onto(&self.log, superblock, (start, &segments), storage, progress)
    }
}
