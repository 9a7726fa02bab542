//! Following the log: every change from a position on, in order, as it is published.
//!
//! A follower shows what was put and removed since a position, for replication and for backups to a point in
//! time. It never passes a frame that is reserved but not published, so what it shows is always a
//! prefix of the history. What cleaning copied is not shown again. While it lives, segments from its
//! position on are not reused: a follower that stands still holds space. A [`Retention`] keeps the log for followers that are
//! still to come, also after a reopening, within a bound.
//!
//! It does not wait: at the end it reports so, and the caller asks again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::layout::{End, FIRST_FRAME, Link, LogPosition, Next};
use super::{Log, Segment, Use};
use crate::error::{Error, Kind, Result};
use crate::format::frame::{Frame, FrameKind, MOVED};

/// Keeps the log for followers that are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// From here on it is kept: a position as a follower or the log's end has it.
    pub from: LogPosition,
    /// Bytes of log that are kept at most, counted in whole segments; beyond it the oldest ones are given up.
    pub bytes_max: u64,
}

/// What is kept of the log in addition to what the engine needs.
#[derive(Debug, Default)]
pub(super) struct Retained {
    /// Sequences that followers still need, with how many need each.
    followers: BTreeMap<u64, usize>,
    retention: Option<Retention>,
}

impl Retained {
    /// Segments from this sequence on are kept. `None`: nothing is.
    fn from(&self, log: &Log) -> Option<u64> {
        let followed = self.followers.keys().next().copied();
        let kept = self.retention.map(|retention| retention.from(log));
        followed.into_iter().chain(kept).min()
    }

    /// A follower does not need this sequence any more.
    fn leave(&mut self, sequence: u64) {
        if let Some(count) = self.followers.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                self.followers.remove(&sequence);
            }
        }
    }
}

impl Retention {
    fn from(self, log: &Log) -> u64 {
        // Offset 0 is past everything of the segment before, whose link leads on.
        let wanted = self.from.sequence - u64::from(self.from.offset == 0).min(self.from.sequence);
        let mut segments = log.segments.in_use(Use::Log);
        segments.retain(|of| of.sequence >= wanted);
        segments.sort_unstable_by_key(|of| std::cmp::Reverse(of.sequence));
        let mut bytes = 0;
        let fits = segments.iter().take_while(|of| {
            bytes += u64::from(of.units) << log.geometry.shift;
            bytes <= self.bytes_max
        });
        fits.last().map_or(u64::MAX, |oldest| oldest.sequence)
    }
}

/// A place in the log, moving forward.
#[derive(Debug)]
pub struct Follower<'l> {
    log: &'l Log,
    at: End,
}

impl Log {
    /// Follows from `from`, or from the present end. `Invalid` if that position, or a segment after it, is no longer in the
    /// log: then start from a copy of the store; or if it never was one that a follower or the log's end could have.
    pub fn follow(&self, from: Option<LogPosition>) -> Result<Follower<'_>> {
        // Held, so that nothing is retired until what this one needs is noted.
        let mut retained = self.retained.lock();
        let at = match from {
            None => self.end(),
            Some(position) => {
                let is_place = position.offset >= FIRST_FRAME && position.offset.is_multiple_of(8);
                if !is_place && position.offset != 0 {
                    return Err(self.no_place(position));
                }
                let at = self.end_at(position).ok_or_else(|| self.gone(position))?;
                if !self.is_whole_from(at) {
                    return Err(self.gone(position));
                }
                at
            }
        };
        *retained.followers.entry(at.sequence()).or_default() += 1;
        Ok(Follower { log: self, at })
    }

    /// Where in the log this position is. `None`: in a segment that is not there.
    fn end_at(&self, position: LogPosition) -> Option<End> {
        let segments = self.segments.in_use(Use::Log);
        let find = |sequence| segments.iter().find(move |s| s.sequence == sequence);
        let LogPosition { sequence, offset } = position;
        if offset != 0 {
            return find(sequence).map(|s| End::of(s.index, sequence, Some(offset)));
        }
        // After everything of the segment before, which may be cleaned by now.
        let before = sequence.saturating_sub(1);
        find(before)
            .map(|s| End::of(s.index, before, None))
            .or_else(|| find(sequence).map(|s| End::of(s.index, sequence, Some(FIRST_FRAME))))
    }

    /// Whether all segments from `at` to the log's end are in use. Nothing is retired while the caller holds `retained`.
    fn is_whole_from(&self, at: End) -> bool {
        let last = self.end().sequence();
        let mut segments = self.segments.in_use(Use::Log);
        segments.retain(|s| (at.sequence()..=last).contains(&s.sequence));
        segments.sort_unstable_by_key(|s| s.sequence);
        // Sequences are counted but for the leap of a new epoch, over which the link leads.
        let is_next = |a: &Segment, b: &Segment| {
            let next = Next {
                index: b.index,
                sequence: b.sequence,
            };
            b.sequence == a.sequence + 1 || self.link(a.index, a.sequence) == Link::To(next)
        };
        segments.last().is_some_and(|s| s.sequence == last) && segments.is_sorted_by(is_next)
    }

    /// Keeps the log for followers to come, from now on as this states.
    pub fn retain(&self, retention: Option<Retention>) {
        self.retained.lock().retention = retention;
    }

    /// The oldest sequence that a follower needs, or a retention keeps: segments from it on are not to be retired.
    pub fn retained_from(&self) -> u64 {
        self.retained.lock().from(self).unwrap_or(u64::MAX)
    }

    /// Retires segment `index`, of `sequence`, unless it is retained: a follower may have come since it was chosen.
    pub fn retire_unless_retained(&self, index: u32, sequence: u64) {
        // Held, so that none begins there in between.
        let retained = self.retained.lock();
        if retained.from(self).is_none_or(|from| from > sequence) {
            self.segments.retire(index);
        }
    }

    #[cold]
    fn gone(&self, position: LogPosition) -> Error {
        Error::new(
            Kind::Invalid,
            format!("position {position} is not in the log any more"),
        )
        .at(self.storage.path())
        .remedy("start from a copy of the store, and follow from the copy's position")
    }

    #[cold]
    fn no_place(&self, position: LogPosition) -> Error {
        Error::new(
            Kind::Invalid,
            format!("no frame of the log ends at {position}"),
        )
        .at(self.storage.path())
        .remedy("follow from where a follower stood, or from the store's position")
    }

    /// The records of a batch that a follower showed, given the position after it; not its mark.
    pub fn inner<'f>(
        &self,
        after: LogPosition,
        batch: Frame<'f>,
    ) -> impl Iterator<Item = Frame<'f>> + use<'f> {
        let segments = self.segments.in_use(Use::Log);
        let found = segments
            .iter()
            .find(|segment| segment.sequence == after.sequence);
        let (seed, _) = found
            .and_then(|segment| self.segments.seed(segment.index))
            .unwrap_or_default();
        let at = after.offset.saturating_sub(batch.len() as u32);
        let inner = batch.inner(seed, at / 8).map(|(_, frame)| frame);
        inner.filter(|frame| frame.header.kind != FrameKind::MARK)
    }

    fn exchange(&self, from: u64, to: u64) {
        let mut retained = self.retained.lock();
        *retained.followers.entry(to).or_default() += 1;
        retained.leave(from);
    }
}

impl Follower<'_> {
    /// Where it stands: what was shown lies before, what will be shown after.
    pub fn position(&self) -> LogPosition {
        self.at.position()
    }

    /// Shows published frames but marks (of a batch: the batch, whole, see [`Log::inner`]) until `visit` breaks or the end is reached.
    /// Returns how many were shown. The position after each is what to resume from.
    pub fn advance(
        &mut self,
        visit: &mut dyn FnMut(LogPosition, Frame<'_>) -> ControlFlow<()>,
    ) -> Result<u64> {
        let mut shown = 0;
        loop {
            let pin = self.log.pin();
            let (segment, sequence) = (self.at.segment(), self.at.sequence());
            // A segment that is followed stays in use: one that is not is never the log's end.
            let Some((_, room)) = self.log.segments.seed(segment) else {
                return Err(self.log.gone(self.position()));
            };
            if let Some(offset) = self.at.offset()
                && u64::from(offset) < room
            {
                let address = self.log.address(segment, offset);
                if self.log.map.load_u64(address.offset()) == 0 {
                    return Ok(shown);
                }
                let frame = self.log.frame(&pin, address)?;
                if frame.header.kind != FrameKind::END {
                    self.at = End::of(segment, sequence, Some(offset + frame.len() as u32));
                    if !frame.has(MOVED)
                        && ![FrameKind::PAD, FrameKind::MARK].contains(&frame.header.kind)
                    {
                        shown += 1;
                        if visit(self.position(), frame).is_break() {
                            return Ok(shown);
                        }
                    }
                    continue;
                }
            }
            match self.log.link(segment, sequence) {
                Link::To(next) => {
                    self.log.exchange(sequence, next.sequence);
                    self.at = End::of(next.index, next.sequence, Some(FIRST_FRAME));
                }
                Link::None => {
                    // No other frame fits in: it stands where the log does.
                    self.at = self.at.closed();
                    return Ok(shown);
                }
                Link::Damaged => return Err(self.log.gone(self.position())),
            }
        }
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.log.retained.lock().leave(self.at.sequence());
    }
}
