//! A copy of the store, while it is being used.
//!
//! | step | |
//! |---|---|
//! | 1 | a checkpoint, then the log's end E: images and log up to E stand in the file for good |
//! | 2 | nothing is cleaned meanwhile, and the checkpoint's lock keeps its images |
//! | 3 | segments and superblock are copied (`kernel::copy`), as a store whose log ends at E; then the name |
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
        // Nothing is cleaned meanwhile, so nothing is retired either.
        let _cleaning = self.cleaning.lock();
        self.checkpoint()?;
        let state = self.checkpoint.lock();
        // The images of the checkpoint may point to frames after the place where its replay begins: the
        // copy holds the log up to an end after them all, with everything before it published.
        let end = self.log.end();
        self.log.domain().wait_for_critical_sections();
        let mut segments: Vec<Segment> = self.log.segments().in_use(Use::Log);
        segments.retain(|segment| segment.sequence <= end.sequence());
        segments.extend(self.log.segments().in_use(Use::Other));
        let superblock = &state.committed.superblock;
        kernel::copy::copy_onto(&self.log, superblock, (end, &segments), storage, progress)
    }
}
