//! After a crash: where the log ends, and what in it is damage.
//!
//! The chain is walked from the last checkpoint. At a place that is no frame, four facts decide, by the
//! table `RULES`:
//!
//! 1. *known*: the place lies before the durable mark: it was synced, so a frame stood there; or the cache is not coherent,
//!    and it verifies but for one bit, as what was written in part does not;
//! 2. *coherent*: same boot and no failed sync: the cache is whole, only threads died; not of a log that was closed, after which
//!    nothing was published;
//! 3. *blank*: the first word is zero: nothing was published there; not where a page that cannot be read may hide what was
//!    published after it; not where what stood right before it is lost, a frame or the segment's header (it may have been
//!    blanked with it, or another page written over both; while a writer is at work this is checked only where the walk
//!    begins), or where the storage ends before;
//! 4. *resumes*: a frame follows in the segment, or the segment has a link; never while a writer is at
//!    work, whose appends under way are no holes.
//!
//! Holes are filled and the end is made final before anything new is appended, so that a second crash finds
//! the same history: (1) the link past the end is cleared, durably where the cache is not coherent;
//! (2) pads and an end frame are written, and the room after it is zeroed, so that what was dropped there cannot come back
//! when the end frame is damaged; (3) new frames go to a new segment with a new epoch. Dying
//! between any two of them leaves the same end. The device must keep (1) before (2): an end frame without it would lead on to
//! what was lost; and the end frame before the zeros: what is not in order after a damaged frame is a reason for the end to be
//! there. Without the pads the place is no frame still, and so the end.
//!
//! Damage ends the walk with an error, or is shown like a frame and passed by: `damaged` states what can be known of it.
//!
//! It does not know what frames mean: it shows them, in order.

use std::ops::Range;

use super::damaged::{Look, Lost, Onward, Stood};
use super::layout::{End, LINK_OFFSET, Link, LogPosition};
use super::scan::Stop;
use super::{Address, Log, Segment, Use};
use crate::error::Result;
use crate::format::frame::{Frame, FrameKind, Header};

/// What is known of a log before it is read.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts of which each may hold without the others"
)]
#[derive(Clone, Copy, Debug)]
pub struct Prior {
    /// The cache holds everything that was ever stored: no power was lost, no sync failed.
    pub coherent: bool,
    /// Everything before it was synced.
    pub durable: LogPosition,
    /// The log was closed: it ends at `durable`, and what stands after it was never published.
    pub closed: bool,
    /// A writer is at work: what is blank will be published soon, and ends the log for now.
    pub live: bool,
    /// Another process may write it while it is read: a frame is copied, and verified in the copy.
    pub shared: bool,
    /// The epoch of the newest recovery. That recovery may have ended the log within any segment of an older epoch: what
    /// follows such a segment is known by its link alone.
    pub epoch: u32,
}

/// The end that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// After the last frame.
    pub end: End,
    /// Frames shown.
    pub frames: u64,
    /// Holes of threads that died.
    pub holes: u64,
    /// Damaged places that were passed by: index, and from where to where.
    pub(super) passed: Vec<(u32, u32, u32)>,
    /// Words as they should be: offset in the file, and the word.
    link_repairs: Vec<(u64, u64)>,
}

/// What a place that is no frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A frame stood here and does not any more.
    Damaged,
    /// A thread died here: continue after it.
    Hole,
    /// The log ends here.
    End,
}

/// What a rule asks of a fact.
const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);
const ANY: Option<bool> = None;

/// known, coherent, blank, resumes; verdict.
type Rule = ([Option<bool>; 4], Verdict);

/// Every combination is decided by exactly one rule (tested).
const RULES: [Rule; 5] = [
    ([YES, ANY, ANY, ANY], Verdict::Damaged),
    ([NO, NO, ANY, ANY], Verdict::End),
    ([NO, YES, NO, ANY], Verdict::Damaged),
    ([NO, YES, YES, YES], Verdict::Hole),
    ([NO, YES, YES, NO], Verdict::End),
];

/// The rules that fit these facts, in the order of the table's columns.
fn fitting(facts: [bool; 4]) -> impl Iterator<Item = &'static Rule> {
    let fits = |(wanted, is): (&Option<bool>, bool)| wanted.is_none_or(|wanted| wanted == is);
    RULES
        .iter()
        .filter(move |(wanted, _)| wanted.iter().zip(facts).all(fits))
}

fn decide(facts: [bool; 4]) -> Verdict {
    fitting(facts)
        .next()
        .map_or(Verdict::Damaged, |(_, verdict)| *verdict)
}

impl Log {
    /// Walks the log from `start` to its end, taking the segments it
    /// finds into use, and shows every record with its address, in order.
    ///
    /// Reads only. `Corrupted` where a frame must stand and does not.
    pub fn recover(
        &self,
        start: End,
        prior: Prior,
        visit: &mut dyn FnMut(Address, Frame<'_>) -> Result<()>,
    ) -> Result<Recovered> {
        self.recover_past(start, prior, visit, &mut |lost| Err(self.lost_error(lost)))
    }

    /// As `recover`, but shows `pass` each place that is damaged, in order with the frames: with `Ok` the walk continues
    /// after it.
    pub fn recover_past(
        &self,
        start: End,
        prior: Prior,
        visit: &mut dyn FnMut(Address, Frame<'_>) -> Result<()>,
        pass: &mut dyn FnMut(&Lost) -> Result<()>,
    ) -> Result<Recovered> {
        let (mut index, mut sequence) = (start.segment(), start.sequence());
        // `None`: everything of the segment was seen.
        let mut from = start.offset();
        // Whether what ends where the walk continues is whole, or wrong by one bit.
        let mut is_sure = false;
        let mut found = Recovered {
            end: start,
            frames: 0,
            holes: 0,
            passed: Vec::new(),
            link_repairs: Vec::new(),
        };
        if !self.enter_first(index, sequence, pass)? {
            found.end = start.closed();
            return Ok(found);
        }
        loop {
            // Where what was walked ends, as offset in the segment.
            let mut walked = u64::from(from.unwrap_or(u32::MAX));
            let stop = from.map_or(Ok(Stop::Ended), |from| {
                let visit = &mut |at: u32, frame: Frame<'_>| {
                    found.frames += 1;
                    walked = u64::from(at) + frame.len() as u64;
                    if frame.header.kind == FrameKind::PAD {
                        self.segments.mark_dead(index, frame.len() as u64);
                    }
                    if frame.header.kind == FrameKind::BATCH {
                        self.segments
                            .mark_dead(index, frame.header.header_len() as u64);
                    }
                    self.each_record(index, at, frame, visit)
                };
                if prior.shared {
                    self.walk_copied(index, from, visit)
                } else {
                    self.walk(index, from, visit)
                }
            })?;
            let size = self.geometry.segment_size() as u32;
            let room = self.segments.seed(index);
            let room = room.map_or(size, |(_, room)| room as u32);
            let (at, blank) = match stop {
                Stop::Ended => {
                    // An end frame stands where the frames end.
                    self.count_rest_dead(index, walked);
                    let next =
                        self.next_of(index, sequence, prior, pass, &mut found.link_repairs)?;
                    if let Some((next, next_sequence)) = next {
                        (index, sequence) = (next, next_sequence);
                        from = Some(super::FIRST_FRAME);
                        is_sure = false;
                        continue;
                    }
                    found.end = End::of(index, sequence, None);
                    return Ok(found);
                }
                Stop::NoFrame { at, blank, .. } => {
                    let is_there = self.is_within(index, at)? && !self.is_unreadable(index, at);
                    (at, blank && is_there)
                }
            };
            let known = LogPosition::new(sequence, at) < prior.durable;
            let coherent = prior.coherent && !prior.closed;
            let known = known
                || !(coherent || blank || prior.closed || prior.live)
                    && self.is_but_for_a_bit(index, at);
            let may_be_hole = blank && coherent && !prior.live;
            let after = may_be_hole.then(|| self.end_of_hole(index, at)).flatten();
            let linked =
                may_be_hole && after.is_none() && self.is_linked(index, sequence, prior.epoch);
            let until = after.unwrap_or(room);
            let resumes = after.is_some() || linked;
            let blank = blank && !(may_be_hole && self.hides_a_frame(index, at..until, resumes));
            // What a walk came past verifies; and of what is decided without it, nothing is read again.
            let is_reached = is_sure || from.is_some_and(|from| from < at);
            // With a live writer it is checked where the walk begins only: what is before that was published.
            let is_settled = !prior.live || start.offset() == Some(at) && start.segment() == index;
            let is_asked = blank && coherent && !known && is_settled && !is_reached;
            let blank = blank && !(is_asked && self.is_blanked(index, sequence, at));
            match decide([known, coherent, blank, resumes]) {
                Verdict::Damaged => {
                    let passed =
                        self.pass_by((index, at), sequence, (room, prior.epoch, known), pass)?;
                    let Some((after, is_known)) = passed else {
                        let stray = self.geometry.offset_of(index) + u64::from(at);
                        found.link_repairs.push((stray, 0));
                        found.end = End::of(index, sequence, Some(at));
                        return Ok(found);
                    };
                    found.passed.push((index, at, after));
                    from = Some(after);
                    is_sure = is_known;
                    continue;
                }
                Verdict::End => {
                    found.end = End::of(index, sequence, Some(at));
                    return Ok(found);
                }
                Verdict::Hole => {
                    found.holes += 1;
                    match after {
                        Some(after) => self.segments.mark_dead(index, u64::from(after - at)),
                        None => self.count_rest_dead(index, u64::from(at)),
                    }
                    from = after;
                }
            }
            is_sure = false;
        }
    }

    /// Whether the storage has this place: one that was cut off is not blank, whatever the rest of its page reads as.
    fn is_within(&self, index: u32, at: u32) -> Result<bool> {
        Ok(self.address(index, at).offset() < self.storage.size()?)
    }

    /// Counts what lies in a segment from this offset on as dead: nothing was published there. Of a large one, which is left
    /// of a value that was never published, cleaning gives all of it back.
    fn count_rest_dead(&self, index: u32, at: u64) {
        let room = self.segments.seed(index).map_or(0, |(_, room)| room);
        let rest = room.saturating_sub(at);
        if room > self.geometry.segment_size() {
            self.segments.mark_dead(index, rest);
        } else {
            self.segments.waste(index, rest);
        }
    }

    /// Whether a segment was opened after this one; a stray bit in the link's word states nothing.
    fn is_linked(&self, index: u32, sequence: u64, epoch: u32) -> bool {
        match self.settled_link(index, sequence) {
            Link::None => false,
            Link::To(_) => true,
            Link::Damaged => !matches!(self.onward(index, sequence, epoch), Onward::End),
        }
    }

    /// Whether in this room, where nothing was published at first, a page cannot be read in which frames may stand: there are
    /// frames after the room, or something before that page was being written when its thread died, with others after it.
    fn hides_a_frame(&self, index: u32, room: Range<u32>, resumes: bool) -> bool {
        if !self.map.has_unreadable() {
            return false;
        }
        let mut words = room.step_by(8);
        let is_set = |at: u32| self.map.load_u64(self.address(index, at).offset()) != 0;
        let mut is_written = resumes;
        words.any(|at| {
            is_written = is_written || is_set(at);
            is_written && self.is_unreadable(index, at)
        })
    }

    /// Whether more stands after this end: a frame in its segment, or a segment that is linked. A loss of power may leave that of what was
    /// not synced; and so may damage.
    pub fn is_followed(&self, end: End) -> bool {
        let index = end.segment();
        let has_frame = |at| self.resume_after(index, at).is_some();
        end.offset().is_some_and(has_frame)
            || !matches!(self.settled_link(index, end.sequence()), Link::None)
    }

    /// Whether the segment is open at this end, and nothing stands in its link and in the room after.
    pub fn is_blank_past(&self, end: End) -> bool {
        let (index, size) = (end.segment(), self.geometry.segment_size() as u32);
        let is_blank = |at| {
            self.map.load_u64(self.address(index, at).offset()) == 0
                && !self.is_unreadable(index, at)
        };
        is_blank(LINK_OFFSET as u32)
            && end
                .offset()
                .is_some_and(|offset| (offset..size).step_by(8).all(is_blank))
    }

    /// Whether a blank place may be one that was blanked, or that another page was written over: what stood right before it, a
    /// frame or the segment's header, is lost.
    pub(super) fn is_blanked(&self, index: u32, sequence: u64, at: u32) -> bool {
        if at == super::FIRST_FRAME {
            return self.is_headless(index, sequence);
        }
        !self.ends_a_frame(index, at)
    }

    /// Shows a place that is damaged, of a segment with so much room, after the recovery of that epoch, which was synced or not;
    /// where to resume in the segment, and whether a frame ends there of which one bit is wrong, or `None` if the log ends there.
    fn pass_by(
        &self,
        (index, at): (u32, u32),
        sequence: u64,
        (room, epoch, is_synced): (u32, u32, bool),
        pass: &mut dyn FnMut(&Lost) -> Result<()>,
    ) -> Result<Option<(u32, bool)>> {
        let position = |offset| LogPosition::new(sequence, offset);
        let lost = |until: u32, stood| Lost {
            what: "no frame where one must stand",
            offset: self.geometry.offset_of(index) + u64::from(at),
            len: u64::from(until - at),
            place: (index, at),
            from: position(at),
            stood,
        };
        match self.look_into(index, at, epoch, is_synced) {
            Look::Known(frame) => {
                let until = at + frame.len;
                let stood = match frame.kind {
                    FrameKind::PAD | FrameKind::END => Stood::Nothing,
                    _ => Stood::Records(frame.records),
                };
                pass(&lost(until, stood))?;
                let is_end = frame.kind == FrameKind::END;
                let is_sure = frame.is_corrected && !frame.is_cut;
                Ok(Some((if is_end { room } else { until }, is_sure)))
            }
            Look::End => {
                pass(&lost(at + 8, Stood::Nothing))?;
                Ok(None)
            }
            Look::Unknown(after) => {
                let until = after.map(position);
                let next = match until {
                    Some(_) => until,
                    // What is lost ends with the segment, if the log continues after it.
                    None if self.is_linked(index, sequence, epoch) => {
                        Some(LogPosition::past(sequence))
                    }
                    None => None,
                };
                pass(&lost(after.unwrap_or(room), Stood::Unknown(next)))?;
                Ok(Some((after.unwrap_or(room), false)))
            }
        }
    }

    /// Takes the segment into use in which the walk begins; whether it is there.
    fn enter_first(
        &self,
        index: u32,
        sequence: u64,
        pass: &mut dyn FnMut(&Lost) -> Result<()>,
    ) -> Result<bool> {
        if let Some(entered) = self.enter_segment(index, sequence) {
            return entered.map(|()| true);
        }
        // A caller that states that the log begins there states its sequence, too.
        let candidate = self.candidate(index, sequence);
        let entered = candidate.is_some_and(|segment| self.enter_candidate(segment));
        let lost = self.lost_header(
            "the segment where the log begins is not there",
            index,
            sequence,
            0,
            if entered {
                Stood::Nothing
            } else {
                Stood::Unknown(None)
            },
        );
        pass(&lost)?;
        Ok(entered)
    }

    fn lost_header(
        &self,
        what: &'static str,
        index: u32,
        sequence: u64,
        at: u32,
        stood: Stood,
    ) -> Lost {
        Lost {
            what,
            offset: self.geometry.offset_of(index) + u64::from(at),
            len: 8,
            place: (index, at),
            from: LogPosition::new(sequence, self.geometry.segment_size() as u32),
            stood,
        }
    }

    /// Writes the words again, of links and blank room, that were found damaged and are known.
    pub fn rewrite_words(&self, found: &Recovered) {
        for (offset, word) in &found.link_repairs {
            self.map.store_u64(*offset, *word);
        }
    }

    /// Takes segment `index` into use if its header has `sequence`. `None`: it has not.
    fn enter_segment(&self, index: u32, sequence: u64) -> Option<Result<()>> {
        let size = self.storage.size().ok()?;
        if self.geometry.offset_of(index).checked_add(64)? > size {
            return None;
        }
        let header = self
            .header(index)
            .filter(|header| header.sequence == sequence)?;
        if self.segments.seed(index).is_some() {
            return Some(Ok(()));
        }
        let units = header.units;
        let end = self.geometry.offset_of(index.checked_add(units)?);
        if end > size {
            // A closed file may end within its last segment; `walk` must not look beyond.
            return None;
        }
        let segment = Segment::new(index, units, sequence);
        Some(self.segments.adopt(segment, Use::Log))
    }

    /// The segment after the one that ended, taken into use; `None`: the log ends with it.
    fn next_of(
        &self,
        index: u32,
        sequence: u64,
        prior: Prior,
        pass: &mut dyn FnMut(&Lost) -> Result<()>,
        link_repairs: &mut Vec<(u64, u64)>,
    ) -> Result<Option<(u32, u64)>> {
        // What is synced beyond the segment was reached by its link.
        let known = LogPosition::past(sequence) < prior.durable;
        let link = if prior.live {
            self.link(index, sequence)
        } else {
            self.settled_link(index, sequence)
        };
        match link {
            Link::To(next) => {
                if let Some(entered) = self.enter_segment(next.index, next.sequence) {
                    entered?;
                    return Ok(Some((next.index, next.sequence)));
                }
            }
            Link::None if !known => return Ok(None),
            _ => {}
        }
        if !known && !prior.coherent {
            return Ok(None);
        }
        let what = "the link to the next segment leads nowhere";
        let at = LINK_OFFSET as u32;
        let lost = |stood| self.lost_header(what, index, sequence, at, stood);
        match self.onward(index, sequence, prior.epoch) {
            Onward::To(next, word) if self.enter_candidate(next) => {
                pass(&lost(Stood::Nothing))?;
                link_repairs.push((self.geometry.offset_of(index) + LINK_OFFSET, word));
                Ok(Some((next.index, next.sequence)))
            }
            Onward::End if !known => {
                pass(&lost(Stood::Nothing))?;
                link_repairs.push((self.geometry.offset_of(index) + LINK_OFFSET, 0));
                Ok(None)
            }
            _ => {
                pass(&lost(Stood::Unknown(None)))?;
                Ok(None)
            }
        }
    }

    /// Makes the end that was found final: nothing after it can come back, and holes are filled. To be
    /// called once, before anything is appended; `start` and `prior` as for `recover`.
    pub fn seal(&self, start: End, prior: Prior, found: &Recovered) -> Result<()> {
        let last = found.end.segment();
        let link = self.geometry.offset_of(last) + LINK_OFFSET;
        if prior.coherent {
            self.map.store_u64(link, 0);
        } else {
            self.write_durably(link, &[0; 8])?;
        }
        if found.holes > 0 {
            self.fill_holes(start, found)?;
        }
        let (seed, room) = self.segments.seed(last).unwrap_or_default();
        if let Some(at) = found.end.offset() {
            self.segments
                .mark_dead(last, room.saturating_sub(u64::from(at)));
            let end = Header::new(FrameKind::END, 0, 0, 0).word(seed, at / 8, &[]);
            let place = self.address(last, at).offset();
            if prior.coherent {
                self.map.store_u64(place, end);
            } else {
                self.write_durably(place, &end.to_le_bytes())?;
            }
            // In a segment that is larger nothing is looked for after its one frame.
            if room <= self.geometry.segment_size() {
                for word in (place + 8..place - u64::from(at) + room).step_by(8) {
                    // What is blank is not made dirty.
                    if self.map.load_u64(word) != 0 {
                        self.map.store_u64(word, 0);
                    }
                }
            }
        }
        Ok(())
    }

    fn fill_holes(&self, start: End, found: &Recovered) -> Result<()> {
        let (mut index, mut sequence) = (start.segment(), start.sequence());
        let mut from = start.offset();
        loop {
            let stop = from.map_or(Ok(Stop::Ended), |from| {
                self.walk(index, from, &mut |_, _| Ok(()))
            })?;
            if let Stop::NoFrame { at, .. } = stop {
                if index == found.end.segment() && Some(at) == found.end.offset() {
                    return Ok(());
                }
                // Damage is no hole: what stands there stays, as evidence.
                let mut passed = found.passed.iter();
                if let Some((.., until)) = passed.find(|p| (p.0, p.1) == (index, at)) {
                    from = Some(*until);
                    continue;
                }
                let (seed, room) = self.segments.seed(index).unwrap_or_default();
                if let Some(after) = self.end_of_hole(index, at) {
                    self.pad(index, at, after, seed);
                } else {
                    let end = Header::new(FrameKind::END, 0, 0, 0).word(seed, at / 8, &[]);
                    self.map.store_u64(self.address(index, at).offset(), end);
                }
                debug_assert!(u64::from(at) < room);
                from = Some(at);
                continue;
            }
            match self.link(index, sequence) {
                Link::To(next) if index != found.end.segment() => {
                    (index, sequence) = (next.index, next.sequence);
                    from = Some(super::FIRST_FRAME);
                }
                _ => return Ok(()),
            }
        }
    }

    /// A frame that states nothing, from `at` to `after`.
    #[expect(
        unsafe_code,
        reason = "the checksum is taken from the bytes as they stand in the log"
    )]
    fn pad(&self, index: u32, at: u32, after: u32, seed: u32) {
        let len = (after - at) as usize;
        let header = Header::pad(len);
        let offset = self.address(index, at).offset();
        if let Some(word) = header.long_word() {
            self.map.store_u64(offset + 8, word);
        }
        // SAFETY: within a segment in use, and recovery runs alone.
        let rest = unsafe { self.map.bytes(offset + 8, len - 8) };
        self.map.store_u64(offset, header.word(seed, at / 8, rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_decided_by_exactly_one_rule() {
        for bits in 0..16u8 {
            let facts = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            assert_eq!(fitting(facts).count(), 1, "{facts:?}");
        }
    }

    #[test]
    fn what_was_synced_is_never_skipped_and_what_was_not_never_blocks() {
        assert_eq!(decide([true, true, true, true]), Verdict::Damaged);
        assert_eq!(decide([false, false, false, true]), Verdict::End);
        assert_eq!(decide([false, true, true, true]), Verdict::Hole);
        assert_eq!(decide([false, true, false, false]), Verdict::Damaged);
    }
}
