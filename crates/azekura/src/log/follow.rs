//! Following the log: every change from a position on, in order, as it is published.
//!
//! A follower shows what was put and removed since a position, for replication and for backups to a point in
//! time. It never passes a frame that is reserved but not published, so what it shows is always a
//! prefix of the history. What cleaning copied is not shown again. While it lives, segments from its
//! position on are not reused: a follower that stands still holds space.
//!
//! It does not wait: at the end it says so, and the caller asks again.

use std::ops::ControlFlow;

use super::layout::{End, FIRST_FRAME, Link, LogPosition, Next};
use super::{Log, Segment, Use};
use crate::error::{Error, Kind, Result};
use crate::format::frame::{Frame, FrameKind, MOVED};

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
        *retained.entry(at.sequence()).or_default() += 1;
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

    /// The oldest sequence a follower still needs: segments from it on are not to be retired.
    pub fn retained_from(&self) -> u64 {
        self.retained
            .lock()
            .keys()
            .next()
            .copied()
            .unwrap_or(u64::MAX)
    }

    /// Retires segment `index`, of `sequence`, unless a follower needs it: one may have come since it was chosen.
    pub fn retire_unless_followed(&self, index: u32, sequence: u64) {
        // Held, so that none begins there in between.
        let retained = self.retained.lock();
        let is_needed = retained.keys().next().is_some_and(|from| *from <= sequence);
        if !is_needed {
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

    /// The records of a batch that a follower showed, given the position behind it; not its mark.
    pub fn inner<'f>(
        &self,
        behind: LogPosition,
        batch: Frame<'f>,
    ) -> impl Iterator<Item = Frame<'f>> + use<'f> {
        let segments = self.segments.in_use(Use::Log);
        let found = segments
            .iter()
            .find(|segment| segment.sequence == behind.sequence);
        let (seed, _) = found
            .and_then(|segment| self.segments.seed(segment.index))
            .unwrap_or_default();
        let at = behind.offset.saturating_sub(batch.len() as u32);
        let inner = batch.inner(seed, at / 8).map(|(_, frame)| frame);
        inner.filter(|frame| frame.header.kind != FrameKind::MARK)
    }

    fn exchange(&self, from: u64, to: u64) {
        let mut retained = self.retained.lock();
        *retained.entry(to).or_default() += 1;
        if let Some(count) = retained.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                retained.remove(&from);
            }
        }
    }
}

impl Follower<'_> {
    /// Where it stands: what was shown lies before, what will be shown behind.
    pub fn position(&self) -> LogPosition {
        self.at.position()
    }

    /// Shows published frames but marks (of a batch: the batch, whole, see [`Log::inner`]) until `visit` breaks or the end is reached.
    /// Returns how many were shown. The position behind each is what to resume from.
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
        let mut retained = self.log.retained.lock();
        if let Some(count) = retained.get_mut(&self.at.sequence()) {
            *count -= 1;
            if *count == 0 {
                retained.remove(&self.at.sequence());
            }
        }
    }
}
