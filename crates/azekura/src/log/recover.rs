//! After a crash: where the log ends, and what in it is damage.
//!
//! The chain is walked from the last checkpoint. At a place that is no frame, four facts decide, by the
//! table `RULES`:
//!
//! - *known*: the place lies before the durable mark: it was synced, so a frame stood there;
//! - *trusted*: same boot and no failed sync: the cache is whole, only threads died;
//! - *blank*: the first word is zero: nothing was published there;
//! - *resumes*: a frame follows in the segment, or the segment has a link; never while a writer is at
//!   work, whose appends under way are no holes.
//!
//! Holes are filled and the end is made final before anything new is appended, so that a second crash finds
//! the same history: (1) the link behind the end is cleared, durably where the cache is not trusted;
//! (2) pads and an end frame are written; (3) new frames go to a new segment with a new epoch. Dying
//! between any two of them leaves the same end. Only (1) before (2) need be kept by the device: an end frame
//! without it would lead on to what was lost. Without the pads or the end frame the place is no frame
//! still, and so the end.
//!
//! It does not know what frames mean: it shows them, in order.

use super::layout::{LINK_OFFSET, Link, LogPosition};
use super::scan::Stop;
use super::{Address, Log, Segment, Use};
use crate::error::{Error, Kind, Result};
use crate::format::frame::{Frame, FrameKind, Header};

/// What is known about the storage before the log is read.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    /// The cache holds everything that was ever stored: no power was lost, no sync failed.
    pub trusted: bool,
    /// Everything before it was synced.
    pub durable: LogPosition,
    /// A writer is at work: what is blank will be published soon, and ends the log for now.
    pub live: bool,
}

/// The end that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The last segment: index and sequence.
    pub last: (u32, u64),
    /// Offset in it behind the last frame.
    pub end: u32,
    /// Frames shown.
    pub frames: u64,
    /// Holes of threads that died.
    pub holes: u64,
}

/// What a place that is no frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A frame stood here and does not any more.
    Damaged,
    /// A thread died here: go on behind it.
    Hole,
    /// The log ends here.
    End,
}

/// known, trusted, blank, resumes (`None`: either), verdict.
type Rule = (
    Option<bool>,
    Option<bool>,
    Option<bool>,
    Option<bool>,
    Verdict,
);

/// Every combination is decided by exactly one rule (tested).
const RULES: [Rule; 5] = [
    (Some(true), None, None, None, Verdict::Damaged),
    (Some(false), Some(false), None, None, Verdict::End),
    (Some(false), Some(true), Some(false), None, Verdict::Damaged),
    (
        Some(false),
        Some(true),
        Some(true),
        Some(true),
        Verdict::Hole,
    ),
    (
        Some(false),
        Some(true),
        Some(true),
        Some(false),
        Verdict::End,
    ),
];

#[expect(
    clippy::fn_params_excessive_bools,
    reason = "the columns of the table, in their order"
)]
fn decide(known: bool, trusted: bool, blank: bool, resumes: bool) -> Verdict {
    let fits = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
    RULES
        .iter()
        .find(|(k, t, b, r, _)| {
            fits(*k, known) && fits(*t, trusted) && fits(*b, blank) && fits(*r, resumes)
        })
        .map_or(Verdict::Damaged, |rule| rule.4)
}

impl Log {
    /// Walks the log from `start` (index of the segment, position) to its end, taking the segments it
    /// finds into use, and shows every record with its address, in order.
    ///
    /// Reads only. `Corrupted` where a frame must stand and does not.
    pub fn recover<'l>(
        &'l self,
        start: (u32, LogPosition),
        trust: Trust,
        visit: &mut dyn FnMut(Address, Frame<'l>) -> Result<()>,
    ) -> Result<Recovered> {
        let (mut index, position) = start;
        let mut sequence = position.sequence;
        let mut from = position.offset;
        let (mut frames, mut holes) = (0, 0);
        self.enter_segment(index, sequence).ok_or_else(|| {
            self.damage("the segment where the log begins is not there", index, 0)
        })??;
        loop {
            let stop = self.walk(index, from, &mut |at, frame| {
                frames += 1;
                self.each_record(index, at, frame, visit)
            })?;
            let size = self.geometry.segment_size() as u32;
            let (at, blank) = match stop {
                Stop::Ended => {
                    if let Some((next, next_sequence)) = self.next_of(index, sequence, trust)? {
                        (index, sequence, from) = (next, next_sequence, super::FIRST_FRAME);
                        continue;
                    }
                    let end = self
                        .segments
                        .seed(index)
                        .map_or(size, |(_, room)| room as u32);
                    return Ok(Recovered {
                        last: (index, sequence),
                        end,
                        frames,
                        holes,
                    });
                }
                Stop::NoFrame { at, blank, .. } => (at, blank),
            };
            let known = LogPosition {
                sequence,
                offset: at,
            } < trust.durable;
            let behind = if blank && trust.trusted && !trust.live {
                self.resume_after(index, at)
            } else {
                None
            };
            let linked = !trust.live && self.link(index, sequence) != Link::None;
            match decide(known, trust.trusted, blank, behind.is_some() || linked) {
                Verdict::Damaged => {
                    return Err(self.damage("no frame where one must stand", index, at));
                }
                Verdict::End => {
                    return Ok(Recovered {
                        last: (index, sequence),
                        end: at,
                        frames,
                        holes,
                    });
                }
                Verdict::Hole => {
                    holes += 1;
                    from = behind.unwrap_or(u32::MAX);
                }
            }
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
        Some(self.segments.adopt(
            Segment {
                index,
                units,
                sequence,
                dead: 0,
            },
            Use::Log,
        ))
    }

    /// The segment behind the one that ended, taken into use; `None`: the log ends with it.
    fn next_of(&self, index: u32, sequence: u64, trust: Trust) -> Result<Option<(u32, u64)>> {
        let known = sequence < trust.durable.sequence;
        match self.link(index, sequence) {
            Link::To(next) => {
                if let Some(entered) = self.enter_segment(next.index, next.sequence) {
                    entered?;
                    return Ok(Some((next.index, next.sequence)));
                }
            }
            Link::None if !known => return Ok(None),
            _ => {}
        }
        if known || trust.trusted {
            return Err(self.damage("the link to the next segment leads nowhere", index, 24));
        }
        Ok(None)
    }

    /// Makes the end that was found final: nothing behind it can come back, and holes are filled. To be
    /// called once, before anything is appended; `start` and `trust` as for `recover`.
    pub fn seal(&self, start: (u32, LogPosition), trust: Trust, found: Recovered) -> Result<()> {
        let (last, _) = found.last;
        let link = self.geometry.offset_of(last) + LINK_OFFSET;
        if trust.trusted {
            self.map.store_u64(link, 0);
        } else {
            self.write_durably(link, &[0; 8])?;
        }
        if found.holes > 0 {
            self.fill_holes(start, found)?;
        }
        let (seed, room) = self.segments.seed(last).unwrap_or_default();
        if u64::from(found.end) < room {
            self.segments.bury(last, room - u64::from(found.end));
            let end = Header::new(FrameKind::End, 0, 0, 0).word(seed, found.end / 8, &[]);
            self.map
                .store_u64(self.address(last, found.end).offset(), end);
        }
        Ok(())
    }

    fn fill_holes(&self, start: (u32, LogPosition), found: Recovered) -> Result<()> {
        let (mut index, position) = start;
        let (mut sequence, mut from) = (position.sequence, position.offset);
        loop {
            let stop = self.walk(index, from, &mut |_, _| Ok(()))?;
            if let Stop::NoFrame { at, .. } = stop {
                if (index, at) == (found.last.0, found.end) {
                    return Ok(());
                }
                let (seed, room) = self.segments.seed(index).unwrap_or_default();
                if let Some(behind) = self.resume_after(index, at) {
                    self.pad(index, at, behind, seed);
                } else {
                    let end = Header::new(FrameKind::End, 0, 0, 0).word(seed, at / 8, &[]);
                    self.map.store_u64(self.address(index, at).offset(), end);
                }
                debug_assert!(u64::from(at) < room);
                from = at;
                continue;
            }
            match self.link(index, sequence) {
                Link::To(next) if index != found.last.0 => {
                    (index, sequence, from) = (next.index, next.sequence, super::FIRST_FRAME);
                }
                _ => return Ok(()),
            }
        }
    }

    /// A frame that says nothing, from `at` to `behind`.
    #[expect(
        unsafe_code,
        reason = "the checksum is taken from the bytes as they stand in the log"
    )]
    fn pad(&self, index: u32, at: u32, behind: u32, seed: u32) {
        let len = (behind - at) as usize;
        let short = Header::new(FrameKind::Pad, 0, 0, len - 8);
        let header = if short.frame_len() == len {
            short
        } else {
            Header::new(FrameKind::Pad, 0, 0, len - 16)
        };
        let offset = self.address(index, at).offset();
        if let Some(word) = header.long_word() {
            self.map.store_u64(offset + 8, word);
        }
        // SAFETY: within a segment in use, and recovery runs alone.
        let rest = unsafe { self.map.bytes(offset + 8, len - 8) };
        self.map.store_u64(offset, header.word(seed, at / 8, rest));
    }

    #[cold]
    fn damage(&self, what: &str, index: u32, at: u32) -> Error {
        Error::new(Kind::Corrupted, what)
            .at(self.storage.path())
            .offset(self.geometry.offset_of(index) + u64::from(at))
            .remedy(format!(
                "run `azekura repair {} NEW-FILE`, or restore a backup",
                self.storage.path().display()
            ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_decided_by_exactly_one_rule() {
        let fits = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
        for bits in 0..16u8 {
            let [k, t, b, r] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let deciding = RULES.iter().filter(|rule| {
                fits(rule.0, k) && fits(rule.1, t) && fits(rule.2, b) && fits(rule.3, r)
            });
            assert_eq!(
                deciding.count(),
                1,
                "known {k} trusted {t} blank {b} resumes {r}"
            );
        }
    }

    #[test]
    fn what_was_synced_is_never_skipped_and_what_was_not_never_blocks() {
        assert_eq!(decide(true, true, true, true), Verdict::Damaged);
        assert_eq!(decide(false, false, false, true), Verdict::End);
        assert_eq!(decide(false, true, true, true), Verdict::Hole);
        assert_eq!(decide(false, true, false, false), Verdict::Damaged);
    }
}
