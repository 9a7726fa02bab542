//! Salvage: the segments and frames of a damaged file that verify by themselves.
//!
//! Segments are found by the checkpoint's list, by their own headers, and by the links that lead to them; frames by
//! trying every eight bytes after damage. What is lost between is reported line by line. It does not know which of
//! the records found is the newest, nor whether it was removed.

use std::collections::BTreeMap;
use std::ops::Range;

use super::layout::{self, Root, Super};
use super::report::RepairReport;
use crate::format::flipped::flip;
use crate::format::frame::{Frame, FrameKind, INNER};
use crate::io::Storage;
use crate::kernel::salvage::{SegmentScan, headed};
use crate::log::damaged::{KnownFrame, Standing};
use crate::log::layout::{
    FIRST_FRAME, LINK_OFFSET, Link, SegmentHeader, decode_link, encode_link, link_index,
    segment_seed,
};
use crate::log::{Address, Geometry, Log, LogPosition, Segment};

/// All segments of this file whose header can be read or whose place the root knows, in log order.
///
/// Where a link leads to a segment without a header, that one is tried with the sequence it must have.
pub(super) fn find_segments(
    log: &Log,
    last: &Super,
    root: &Root,
    size: u64,
    report: &mut RepairReport,
) -> Vec<Segment> {
    let (storage, geometry) = (log.storage().as_ref(), last.geometry);
    let count = size.saturating_sub(geometry.offset_of(0)) >> geometry.shift;
    let mut segments = root.needed.log.clone();
    segments.retain(|segment| {
        let end = geometry.offset_of(segment.index.saturating_add(segment.units));
        if end > size {
            let what = format!(
                "the segment at offset {:#x} lies beyond the end of the file",
                geometry.offset_of(segment.index)
            );
            let offset = geometry.offset_of(segment.index);
            report.lose_log(last, all_of(segment.sequence), offset, what);
        }
        end <= size
    });
    // Free segments still carry their old header: only those after P are news.
    let is_news =
        |segment: &Segment| root.needed.log.is_empty() || segment.sequence > last.start.sequence();
    for segment in headed(count, |index| header_at(storage, geometry, index)) {
        if is_news(&segment) && !segments.iter().any(|s| s.covers(segment.index)) {
            segments.push(segment);
        }
    }
    // The links of dropped segments lead to places that others have now.
    let listed = |of: &Segment| root.needed.log.iter().any(|s| s.sequence == of.sequence);
    segments.sort_by_key(|segment| segment.sequence);
    leave_out_dropped(storage, last, &mut segments, &listed);
    let guessed = headless(log, last, &segments, report);
    // Another segment that is found in their places is a copy, but those that the root lists.
    let in_place = |s: &Segment| guessed.iter().any(|guess| s.covers(guess.index));
    segments.retain(|s| s.sequence <= last.start.sequence() || !in_place(s));
    let is_within = |segment: &&Segment| u64::from(segment.index) < count;
    segments.extend(guessed.iter().filter(is_within));
    let (first, from) = (last.start.segment(), last.start.sequence());
    let begins = |s: &Segment| (s.index, s.sequence) == (first, from);
    let header = header_at(storage, geometry, first);
    let is_headless = header.is_none_or(|header| header.sequence != from);
    if is_headless || !segments.iter().any(begins) {
        let at = geometry.offset_of(first);
        // Another segment is found in its place: its frames are not read.
        let is_hidden = !segments.iter().any(begins) && segments.iter().any(|s| s.covers(first));
        if is_hidden || is_blank(storage, at + u64::from(FIRST_FRAME)) {
            let what = format!(
                "the segment at offset {at:#x}, where the log after the checkpoint begins, is not there"
            );
            report.lose_log(last, all_of(from), at, what);
        } else {
            report.lose(format!(
                "the header of the segment at offset {at:#x}, where the log after the checkpoint begins, is damaged: its frames are read all the same"
            ));
        }
        if u64::from(first) < count && !segments.iter().any(|s| s.covers(first)) {
            segments.extend(log.candidate(first, from));
        }
    }
    segments.sort_by_key(|segment| segment.sequence);
    leave_out_dropped(storage, last, &mut segments, &listed);
    report_gaps(storage, last, &segments, report);
    segments
}

/// Reports where segments of the log after P are missing: the sequences have a gap over which no link leads, the link of
/// the last one leads to none that was found, or more was synced than is found.
fn report_gaps(
    storage: &dyn Storage,
    last: &Super,
    segments: &[Segment],
    report: &mut RepairReport,
) {
    let geometry = last.geometry;
    let mut from: Option<&Segment> = None;
    for segment in segments
        .iter()
        .filter(|s| s.sequence >= last.start.sequence())
    {
        let gap = from.filter(|from| {
            segment.sequence > from.sequence + 1 && !leads(storage, geometry, from, segment)
        });
        if let Some(from) = gap {
            let at = geometry.offset_of(from.index);
            let what = format!(
                "what follows the segment at offset {at:#x} in the log is lost, up to the segment at offset {:#x}",
                geometry.offset_of(segment.index)
            );
            let lost = LogPosition::past(from.sequence)..all_of(segment.sequence).start;
            report.lose_log(last, lost, at, what);
        }
        from = Some(segment);
    }
    if let Some(end) = from
        && link_word(storage, geometry, end).count_ones() > 1
    {
        let at = geometry.offset_of(end.index);
        let what = format!(
            "what follows the segment at offset {at:#x} in the log is lost: its link leads to no segment"
        );
        report.lose_log(last, all_of(end.sequence + 1), at, what);
    }
    let end = from.map_or_else(
        || last.start.position(),
        |end| LogPosition::past(end.sequence),
    );
    if end < last.durable {
        let what = format!("the log up to {}, which was synced, is lost", last.durable);
        let at = from.map_or(0, |end| geometry.offset_of(end.index));
        report.lose_log(last, end..last.durable, at, what);
    }
}

/// The link of a segment as it stands there; all ones where it cannot be read.
fn link_word(storage: &dyn Storage, geometry: Geometry, segment: &Segment) -> u64 {
    let mut word = [0; 8];
    let offset = geometry.offset_of(segment.index) + LINK_OFFSET;
    let read = storage.read_at(offset, &mut word);
    read.map_or(u64::MAX, |()| u64::from_le_bytes(word))
}

/// Whether the link of one segment leads to the other, or does but for one wrong bit.
fn leads(storage: &dyn Storage, geometry: Geometry, from: &Segment, to: &Segment) -> bool {
    let seed = segment_seed(geometry.salt, from.sequence);
    let wanted = encode_link(to.index, seed, to.sequence);
    (wanted ^ link_word(storage, geometry, from)).count_ones() <= 1
}

/// Leaves out segments that a recovery dropped: of an older epoch than the newest one, after the segment with which that epoch
/// ended, and not `listed` in the root. Free segments keep their headers.
pub(super) fn leave_out_dropped(
    storage: &dyn Storage,
    last: &Super,
    segments: &mut Vec<Segment>,
    listed: &dyn Fn(&Segment) -> bool,
) {
    let geometry = last.geometry;
    let epoch = |sequence: u64| sequence >> 32;
    let is_later = |next: u64, of: &Segment| epoch(next) > epoch(of.sequence);
    let ends_its_epoch = |of: &Segment| {
        if !has_header(storage, geometry, of) {
            return false;
        }
        let word = link_word(storage, geometry, of);
        let seed = segment_seed(geometry.salt, of.sequence);
        let header_of = |index| header_at(storage, geometry, index);
        match decode_link(word, seed, of.sequence, header_of) {
            Link::None => true,
            Link::To(next) => is_later(next.sequence, of),
            // One wrong bit of either.
            Link::Damaged => {
                let leads_to = |next: &Segment| leads(storage, geometry, of, next);
                let mut later = segments.iter().filter(|next| is_later(next.sequence, of));
                word.is_power_of_two() || later.any(leads_to)
            }
        }
    };
    // In the order of sequences: the first one that ends its epoch is the one.
    let mut ended = BTreeMap::new();
    let start = last.start.sequence();
    for segment in &*segments {
        let of = epoch(segment.sequence);
        // None that stands before the start of the same epoch ended that.
        let is_before_start = of == epoch(start) && segment.sequence < start;
        if !is_before_start
            && of < u64::from(last.epoch)
            && !ended.contains_key(&of)
            && ends_its_epoch(segment)
        {
            ended.insert(of, segment.sequence);
        }
    }
    segments.retain(|segment| {
        let end = ended.get(&epoch(segment.sequence));
        listed(segment) || end.is_none_or(|end| segment.sequence <= *end)
    });
}

/// Whether a segment has its header.
fn has_header(storage: &dyn Storage, geometry: Geometry, segment: &Segment) -> bool {
    let header = header_at(storage, geometry, segment.index);
    header.is_some_and(|header| header.sequence == segment.sequence)
}

/// The header of the segment at a place, if one verifies there, or does but for one wrong bit.
fn header_at(storage: &dyn Storage, geometry: Geometry, index: u32) -> Option<SegmentHeader> {
    let mut bytes = [0; 24];
    storage
        .read_at(geometry.offset_of(index), &mut bytes)
        .ok()?;
    SegmentHeader::decode(&bytes, geometry.salt).or_else(|| {
        (0..8 * bytes.len()).find_map(|bit| {
            let mut other = bytes;
            flip(&mut other, bit);
            SegmentHeader::decode(&other, geometry.salt)
        })
    })
}

/// Segments after P to which only a link leads, or whose frames alone state what they are.
fn headless(
    log: &Log,
    last: &Super,
    segments: &[Segment],
    report: &mut RepairReport,
) -> Vec<Segment> {
    let (storage, geometry) = (log.storage().as_ref(), last.geometry);
    let mut guessed: Vec<Segment> = Vec::new();
    let is_after = |segment: &&Segment| segment.sequence >= last.start.sequence();
    let mut looked_at: Vec<Segment> = segments.iter().filter(is_after).copied().collect();
    while let Some(segment) = looked_at.pop() {
        let link = link_word(storage, geometry, &segment);
        let seed = segment_seed(geometry.salt, segment.sequence);
        // Its header is lost, and with it what would verify the link, but for the likeliest sequence.
        let sequence = segment.sequence + 1;
        let all = || segments.iter().chain(&guessed);
        let next = match link_index(link) {
            // What stands at that place may be a copy of another segment.
            Some(next) => {
                let leads_to = |s: &Segment| encode_link(next, seed, s.sequence) == link;
                let is_known = all().any(|s| s.index == next && leads_to(s));
                let is_next = !is_known && encode_link(next, seed, sequence) == link;
                is_next.then_some(next)
            }
            // The link is lost with the header.
            None if link == 0
                && !has_header(storage, geometry, &segment)
                && all().all(|s| s.sequence <= segment.sequence) =>
            {
                // Which segments a recovery put in the place of those that it dropped is not known.
                if sequence >> 32 < u64::from(last.epoch) {
                    let at = geometry.offset_of(segment.index);
                    let what = format!(
                        "the header and the link of the segment at offset {at:#x} are damaged: what follows it in the log may be lost"
                    );
                    report.lose_log(last, all_of(sequence), at, what);
                    continue;
                }
                log.by_frames(sequence).map(|segment| segment.index)
            }
            None => None,
        };
        let Some(next) = next else {
            continue;
        };
        let at = geometry.offset_of(next);
        if is_blank(storage, at + u64::from(FIRST_FRAME)) {
            let what =
                format!("the segment at offset {at:#x}, in which the log continues, is lost");
            report.lose_log(last, all_of(sequence), at, what);
        } else {
            report.lose(format!(
                "the header of the segment at offset {at:#x}, in which the log continues, is damaged: its frames are read all the same"
            ));
        }
        if let Some(segment) = log.candidate(next, sequence) {
            guessed.push(segment);
            looked_at.push(segment);
        }
    }
    guessed
}

/// Whether no frame begins there: frames may then be lost with the header, since salvage takes blank room for the end.
fn is_blank(storage: &dyn Storage, at: u64) -> bool {
    let mut word = [0; 8];
    storage.read_at(at, &mut word).is_err() || word == [0; 8]
}

/// The positions in the segment of that number.
pub(super) fn all_of(sequence: u64) -> Range<LogPosition> {
    let first = LogPosition::new(sequence, 0);
    first..LogPosition::past(sequence)
}

/// What is shown a record: where it stands, what is known of it, and whether it is of a batch that may not have been written whole.
pub(super) type VisitSalvaged<'v> =
    dyn FnMut(LogPosition, Address, &Frame<'_>, (Standing, bool)) + 'v;

/// Every record of a segment that verifies or is known all the same (`log::damaged`), over holes and damage; `visit` is shown
/// with each which of both. Of one whose value is lost it is shown the key.
pub(super) fn salvage(
    log: &Log,
    segment: &Segment,
    last: &Super,
    report: &mut RepairReport,
    visit: &mut VisitSalvaged<'_>,
) {
    let position_of = |at: u64| LogPosition::new(segment.sequence, at as u32);
    let mut show = |at: u64, frame: &Frame<'_>, standing, report: &mut RepairReport| {
        let (position, address) = (position_of(at), log.address(segment.index, at as u32));
        if layout::is_known(frame.header.kind) {
            visit(position, address, frame, standing);
        } else {
            let lost = position..position_of(at + frame.len() as u64);
            let offset = address.offset();
            let what = format!("a record of unknown type at offset {offset:#x} was left out");
            report.lose_log(last, lost, offset, what);
        }
    };
    let (mut gap_from, mut damaged_from) = (None, None);
    let mut scan = SegmentScan::new(log, *segment);
    while let Some((position, address, whole)) = scan.step() {
        let at = u64::from(position.offset);
        // No frame begins with a blank word, whichever bit of it is wrong.
        let is_blank = log.map().load_u64(address.offset()) == 0;
        let may_be_known = whole.is_none() && !is_blank && damaged_from.is_none();
        let known = may_be_known
            .then(|| log.known_in_order(segment.index, at as u32))
            .flatten();
        if whole.is_none() && known.is_none() {
            // What was closed ends there, whatever stands after.
            if last.is_after_close(position) {
                break;
            }
            // Blank room is the end, unless a frame follows or was synced there.
            if !is_blank || log.is_unreadable(segment.index, at as u32) || position < last.durable {
                damaged_from.get_or_insert(gap_from.unwrap_or(position));
            }
            gap_from.get_or_insert(position);
            // A large frame is alone in its segment. What looks like frames is its value.
            if segment.units > 1 {
                break;
            }
            continue;
        }
        damaged_from = None;
        if let Some(from) = gap_from.take() {
            let offset = log.address(segment.index, from.offset).offset();
            let what = format!(
                "bytes {offset:#x} to {:#x} of the log cannot be read{}",
                address.offset(),
                or_never_written(last, from)
            );
            report.lose_log(last, from..position, offset, what);
        }
        let Some(frame) = whole else {
            let Some(known) = known else { break };
            note_known(&known, address.offset(), report);
            // Of one that was being written, what is there may be half of what was meant.
            let is_part = known.kind == FrameKind::BATCH
                && !known.is_corrected
                && !or_never_written(last, position).is_empty();
            for record in &known.records {
                let at = u64::from(record.at);
                let standing = (record.standing, is_part);
                show(at, &record.frame(), standing, report);
            }
            if known.kind == FrameKind::END {
                return;
            }
            scan.skip_to(at + u64::from(known.len));
            continue;
        };
        let seed = log.segments().seed(segment.index).unwrap_or_default().0;
        match frame.header.kind {
            FrameKind::END => return,
            FrameKind::PAD => {}
            FrameKind::BATCH => {
                for (place, inner) in frame.inner(seed, (at / 8) as u32) {
                    let at = u64::from(place) * 8;
                    show(at, &inner, (Standing::Verifies, false), report);
                }
            }
            // An inner frame whose batch is damaged may have been half of something: left out.
            _ if frame.has(INNER) => {
                let what = format!(
                    "a record of a damaged batch at offset {:#x} was left out",
                    address.offset()
                );
                let lost = position..position_of(at + frame.len() as u64);
                report.lose_log(last, lost, address.offset(), what);
            }
            _ => show(at, &frame, (Standing::Verifies, false), report),
        }
    }
    // One wrong bit of room that nothing was appended to, at the end of the log: see `log::damaged`.
    let is_stray = |from: LogPosition| {
        from >= last.durable && log.ends_in_a_stray_bit(segment.index, from.offset)
    };
    if let Some(from) = damaged_from.filter(|from| !is_stray(*from)) {
        let offset = log.address(segment.index, from.offset).offset();
        let what = format!(
            "bytes from {offset:#x} to the end of their segment cannot be read{}",
            or_never_written(last, from)
        );
        let room = u64::from(segment.units) << log.geometry().shift;
        report.lose_log(last, from..position_of(room), offset, what);
    }
}

/// Reports a frame that is known though it does not verify. Of a record whose value is lost, the caller knows whether it counts.
fn note_known(frame: &KnownFrame, offset: u64, report: &mut RepairReport) {
    let has = |standing| frame.records.iter().any(|of| of.standing == standing);
    if has(Standing::Corrected) {
        report.lose(format!(
            "one bit of the frame at offset {offset:#x} is wrong: the record is brought over as its checksum asks for, and in doubt"
        ));
    } else if !has(Standing::ValueLost) {
        report.lose(format!(
            "the frame at offset {offset:#x} is damaged, but no record of it"
        ));
    }
}

/// What else unreadable bytes from `position` on may be than damage.
pub(super) fn or_never_written(last: &Super, position: LogPosition) -> &'static str {
    if last.open && position >= last.durable.max(last.start.position()) {
        ", or were being written when the writer ended, and nothing of them was acknowledged"
    } else {
        ""
    }
}
