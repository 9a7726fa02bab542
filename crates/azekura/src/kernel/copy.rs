//! A copy of a store while it is being used: segments as they are, and a superblock of its own.
//!
//! | step | |
//! |---|---|
//! | 1 | the engine makes a checkpoint, and sees to it that nothing the copy needs is written over |
//! | 2 | segments are copied one by one, by the system, which shares blocks where it can; of the log's last one what is before its end |
//! | 3 | the copy gets a mark and a superblock, "closed", whose log ends there; sync |
//!
//! What changed since an earlier copy is written in the same way to a file of changes (`changes`); the engine states which bytes these are.
//!
//! It does not know what stands in the segments: what is damaged is so in the copy.

use super::changes::{ChangedPiece, Head, List, PIECE_MAX, Step};
use super::superblock::{Payload, SuperblockPair};
use crate::error::Result;
use crate::format::superblock::SIZE;
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

/// What of a store changed since a copy.
#[derive(Debug)]
pub struct Changed<'c> {
    /// From where to where.
    pub step: Step,
    /// Where the log of the copy ends.
    pub end: End,
    /// Offsets and lengths of what a copy needs besides the log's last segment.
    pub ranges: &'c [(u64, u64)],
    /// The segments that the checkpoint needs: what lies between them is zeros.
    pub needed: &'c [Segment],
}

/// Writes a file of changes to an empty storage.
pub fn write_changes<P: Payload>(
    log: &Log,
    superblock: &SuperblockPair<P>,
    changed: &Changed<'_>,
    target: &dyn Storage,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let geometry = log.geometry();
    let (end, salt) = (changed.end, geometry.salt);
    let journal = geometry.offset_of(end.segment());
    let after_journal = journal + geometry.segment_size();
    let journal_len = end.offset().map_or(geometry.segment_size(), u64::from);
    let ranges = changed.ranges.iter().copied();
    let ranges = ranges.chain([(journal, journal_len)]);
    let total: u64 = ranges.clone().map(|(_, len)| len).sum();
    target.resize(SIZE + total)?;
    let mut list = List::default();
    let mut bytes = Vec::new();
    let mut done = 0;
    for (offset, len) in ranges {
        for at in (offset..offset + len).step_by(PIECE_MAX as usize) {
            progress(done, total);
            bytes.resize((offset + len - at).min(PIECE_MAX) as usize, 0);
            log.storage().read_at(at, &mut bytes)?;
            if at == journal {
                // The log of the copy ends here: its last segment leads nowhere.
                let link = LINK_OFFSET as usize;
                if let Some(link) = bytes.get_mut(link..link + 8) {
                    link.fill(0);
                }
            }
            target.write_at(SIZE + done, &bytes)?;
            list.pieces.push(ChangedPiece::of(salt, at, &bytes));
            done += bytes.len() as u64;
        }
    }
    list.blank
        .push((journal + journal_len, after_journal - journal - journal_len));
    let mut needed = changed.needed.to_vec();
    needed.sort_unstable_by_key(|segment| segment.index);
    let mut next = 0;
    for segment in needed {
        let (from, to) = (geometry.offset_of(next), geometry.offset_of(segment.index));
        list.blank.push((from, to.saturating_sub(from)));
        next = segment.index + segment.units;
    }
    list.blank.retain(|(_, len)| *len > 0);
    let (bytes, sum) = list.encode(salt);
    target.resize(SIZE + total + bytes.len() as u64)?;
    target.write_at(SIZE + total, &bytes)?;
    let mut payload = superblock.payload.clone();
    payload.open = false;
    payload.durable = end.position();
    let head = Head {
        step: changed.step,
        shift: geometry.shift,
        segments: next,
        end,
        list: (SIZE + total, bytes.len() as u64, sum),
        payload: payload.encode(),
    };
    target.write_at(0, &head.encode())?;
    target.sync()?;
    progress(total, total);
    Ok(())
}
