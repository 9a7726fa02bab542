//! Which parts of the journal can be read, before anything is read through a map.
//!
//! A sector that cannot be read ends the process where it is read through a map, so an opener reads what recovery will read
//! once by `read_at`. A repair and an opener of a damaged store ask whether an unreadable place may hold anything since the last
//! checkpoint.

use std::ops::Range;

use crate::error::{Error, Kind, Result};
use crate::format::frame::{Frame, FrameKind};
use crate::format::superblock;
use crate::io::Storage;
use crate::log::layout::{
    FIRST_FRAME, LINK_OFFSET, Link, SegmentHeader, decode_link, segment_seed,
};
use crate::object::checkpoint::root::Root;
use crate::object::checkpoint::superblock::Super;

/// Damage of a place that a superblock names as lost.
pub(crate) const LOST_BEFORE: &str =
    "it could not be read when a repair was begun that did not end";

/// Bytes that a probe reads at once.
const PROBE: usize = 256 << 10;

/// Reads what recovery will read through the map, where an unreadable sector would end the process: the control page, and the
/// segments of the journal in use. `Io` with the place that cannot be read, `Corrupted` with one that is known to be lost.
pub(crate) fn probe(journal: &dyn Storage, last: &Super, root: &Root) -> Result<()> {
    let geometry = last.geometry;
    let mut buf = crate::room::vec(PROBE)?;
    let mut read = |range: Range<u64>| -> Result<()> {
        if let Some(lost) = last.first_lost_in(&range) {
            let error = Error::new(Kind::Corrupted, LOST_BEFORE);
            return Err(error.at(journal.path()).offset(lost.start));
        }
        let end = range.end.min(last.journal_size);
        let mut at = range.start;
        while at < end {
            buf.resize(PROBE.min((end - at) as usize), 0);
            journal
                .read_at(at, &mut buf)
                .map_err(|error| error.at(journal.path()).offset(at))?;
            at += buf.len() as u64;
        }
        Ok(())
    };
    read(superblock::SIZE..geometry.offset_of(0))?;
    for segment in &root.needed.log {
        let from = geometry.offset_of(segment.index);
        read(from..from + (u64::from(segment.units) << geometry.shift))?;
    }
    let known = |index: u32| root.needed.log.iter().any(|segment| segment.index == index);
    each_segment(journal, last, &mut |index, header| {
        let from = geometry.offset_of(index);
        let units = header.map_or(1, |header| header.units);
        if known(index) {
            return Ok(());
        }
        read(from..from + (u64::from(units) << geometry.shift))
    })
}

/// Visits the segments of the journal from the last checkpoint on, as far as the links lead; one without a header is damaged.
pub(crate) fn each_segment(
    journal: &dyn Storage,
    last: &Super,
    visit: &mut dyn FnMut(u32, Option<SegmentHeader>) -> Result<()>,
) -> Result<()> {
    let geometry = last.geometry;
    let header_of = |index: u32| {
        let mut head = [0; FIRST_FRAME as usize];
        let offset = geometry.offset_of(index);
        let is_inside = offset + u64::from(FIRST_FRAME) <= last.journal_size;
        let read = is_inside && journal.read_at(offset, &mut head).is_ok();
        let header = SegmentHeader::decode(&head, geometry.salt).filter(|_| read);
        let link = head[LINK_OFFSET as usize..].first_chunk::<8>();
        header.zip(link.map(|word| u64::from_le_bytes(*word)))
    };
    let (mut index, mut sequence) = (last.start.segment(), last.start.sequence());
    loop {
        let Some((header, word)) = header_of(index).filter(|(of, _)| of.sequence == sequence)
        else {
            return visit(index, None);
        };
        visit(index, Some(header))?;
        let seed = segment_seed(geometry.salt, sequence);
        let of_next = |next| header_of(next).map(|(header, _)| header);
        match decode_link(word, seed, sequence, of_next) {
            Link::To(next) => (index, sequence) = (next.index, next.sequence),
            Link::None | Link::Damaged => return Ok(()),
        }
    }
}

/// Whether an unreadable place, zeros in `journal`, may have held a record since the checkpoint.
pub(crate) fn is_live(journal: &dyn Storage, last: &Super, unreadable: &[Range<u64>]) -> bool {
    let mut live = vec![];
    let reached = each_segment(journal, last, &mut |index, header| {
        live.push(reach_of(journal, last, index, header)?);
        Ok(())
    });
    let meets = |range: &Range<u64>| {
        let meets = |live: &Range<u64>| range.start < live.end && live.start < range.end;
        live.iter().any(meets)
    };
    reached.is_err() || unreadable.iter().any(meets)
}

/// The bytes of a segment that hold a record, or may.
fn reach_of(
    journal: &dyn Storage,
    last: &Super,
    index: u32,
    header: Option<SegmentHeader>,
) -> Result<Range<u64>> {
    let geometry = last.geometry;
    let begin = geometry.offset_of(index);
    let units = header.map_or(1, |header| header.units);
    let end = (begin + (u64::from(units) << geometry.shift)).min(last.journal_size);
    let Some(header) = header else {
        return Ok(begin..end);
    };
    let mut bytes = crate::room::vec((end - begin) as usize)?;
    bytes.resize((end - begin) as usize, 0);
    journal.read_at(begin, &mut bytes)?;
    let seed = segment_seed(geometry.salt, header.sequence);
    let frame_at = |at: usize| {
        let rest = bytes.get(at..)?;
        Frame::decode(rest, seed, (at / 8) as u32).ok()
    };
    let begins_here = (last.start.segment(), last.start.sequence()) == (index, header.sequence);
    let mut at = match last.start.offset() {
        Some(offset) if begins_here => offset as usize,
        None if begins_here => bytes.len(),
        _ => FIRST_FRAME as usize,
    };
    while let Some(frame) = frame_at(at) {
        at += frame.len();
        if frame.header.kind == FrameKind::END {
            return Ok(begin..begin + at as u64);
        }
    }
    let is_blank = bytes
        .get(at..at + 8)
        .is_none_or(|word| word.iter().all(|byte| *byte == 0));
    let goes_on = (at + 8..bytes.len())
        .step_by(8)
        .any(|at| frame_at(at).is_some());
    if goes_on || !is_blank {
        return Ok(begin..end);
    }
    Ok(begin..(begin + at as u64 + 8).min(end))
}
