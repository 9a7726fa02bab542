//! A copy of a store while it is being used: segments as they are, and a superblock of its own.
//!
//! | step | |
//! |---|---|
//! | 1 | the engine makes a checkpoint, and sees to it that nothing the copy needs is written over |
//! | 2 | segments are copied one by one, by the system, which shares blocks where it can; of the log's last one what is before its end |
//! | 3 | the copy gets a mark and a superblock, "closed", whose log ends there; sync |
//!
//! It does not know what stands in the segments: what is damaged is so in the copy.

use super::superblock::{Payload, SuperblockPair};
use crate::error::Result;
use crate::io::Storage;
use crate::log::layout::{CONTROL_OFFSET, LINK_OFFSET, Mark};
use crate::log::{End, Log, Segment};

/// Copies these segments, and the superblock, onto an empty storage, as a store whose log ends at `end`, in one of them.
pub fn copy_onto<P: Payload>(
    log: &Log,
    superblock: &SuperblockPair<P>,
    (end, segments): (End, &[Segment]),
    target: &dyn Storage,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let geometry = log.geometry();
    let after_last = segments.iter().map(|s| s.index + s.units).max();
    target.resize(geometry.offset_of(after_last.unwrap_or(0)))?;
    let total = segments.len() as u64;
    for (done, segment) in segments.iter().enumerate() {
        progress(done as u64, total);
        let offset = geometry.offset_of(segment.index);
        let mut len = u64::from(segment.units) << geometry.shift;
        if segment.index == end.segment()
            && let Some(offset) = end.offset()
        {
            len = len.min(u64::from(offset));
        }
        log.storage().copy_range_to(offset, len, target)?;
    }
    // The log of the copy ends here: its last segment leads nowhere.
    target.write_at(geometry.offset_of(end.segment()) + LINK_OFFSET, &[0; 8])?;
    let mark = Mark {
        durable: end.position(),
        sync_failed: false,
    };
    target.write_at(CONTROL_OFFSET, &mark.encode())?;
    let mut payload = superblock.payload.clone();
    payload.open = false;
    payload.durable = end.position();
    SuperblockPair::create(target, superblock.sequence, payload)?;
    target.sync()?;
    progress(total, total);
    Ok(())
}
