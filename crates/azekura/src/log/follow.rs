//! Following the log: every change from a position on, in order, as it is published.
//!
//! A follower shows what was put and removed since a position, for replication and for backups to a point in
//! time. It never passes a frame that is reserved but not published, so what it shows is always a
//! prefix of the history. What cleaning copied is not shown again. While it lives, segments from its
//! position on are not reused: a follower that stands still holds space.
//!
//! It does not wait: at the end it says so, and the caller asks again.

use std::ops::ControlFlow;

use super::layout::{FIRST_FRAME, Link, LogPosition};
use super::{Log, Use};
use crate::epoch;
use crate::error::{Error, Kind, Result};
use crate::format::frame::{Frame, FrameKind, MOVED};

/// A place in the log, moving forward.
#[derive(Debug)]
pub struct Follower<'l> {
    log: &'l Log,
    index: u32,
    position: LogPosition,
}

impl Log {
    /// Follows from `from`, or from the present end. `Invalid` if that position is no longer in the log:
    /// then start from a copy of the store; or if it never was one that a follower or the log's end could have.
    pub fn follow(&self, from: Option<LogPosition>) -> Result<Follower<'_>> {
        let mut retained = self.retained.lock();
        let (index, position) = match from {
            None => self.end(),
            Some(position) => {
                let is_place = position.offset >= FIRST_FRAME && position.offset.is_multiple_of(8);
                if !is_place && position.offset != u32::MAX {
                    return Err(self.no_place(position));
                }
                let segments = self.segments.in_use(Use::Log);
                let found = segments.iter().find(|s| s.sequence == position.sequence);
                let index = found.map(|segment| segment.index).or_else(|| {
                    // A store that nothing was appended to yet has no segment there.
                    let (index, end) = self.end();
                    (end == position).then_some(index)
                });
                (index.ok_or_else(|| self.gone(position))?, position)
            }
        };
        *retained.entry(position.sequence).or_default() += 1;
        Ok(Follower {
            log: self,
            index,
            position,
        })
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

    /// The inner frames of a batch that a follower showed, given the position behind it.
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
        batch.inner(seed, at / 8).map(|(_, frame)| frame)
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
        self.position
    }

    /// Shows published frames (of a batch: the batch, whole, see [`Log::inner`]) until `visit` breaks or the end is reached.
    /// Returns how many were shown. The position behind each is what to resume from.
    pub fn advance(
        &mut self,
        visit: &mut dyn FnMut(LogPosition, Frame<'_>) -> ControlFlow<()>,
    ) -> Result<u64> {
        let mut shown = 0;
        loop {
            let pin = epoch::pin();
            let Some((_, room)) = self.log.segments.seed(self.index) else {
                // Nothing was appended since the log was created.
                return Ok(shown);
            };
            if u64::from(self.position.offset) < room {
                let address = self.log.address(self.index, self.position.offset);
                if self.log.map.load_u64(address.offset()) == 0 {
                    return Ok(shown);
                }
                let frame = self.log.frame(&pin, address)?;
                if frame.header.kind != FrameKind::End {
                    self.position.offset += frame.len() as u32;
                    if !frame.has(MOVED) && frame.header.kind != FrameKind::Pad {
                        shown += 1;
                        if visit(self.position, frame).is_break() {
                            return Ok(shown);
                        }
                    }
                    continue;
                }
            }
            match self.log.link(self.index, self.position.sequence) {
                Link::To(next) => {
                    self.log.exchange(self.position.sequence, next.sequence);
                    self.index = next.index;
                    self.position = LogPosition {
                        sequence: next.sequence,
                        offset: FIRST_FRAME,
                    };
                }
                Link::None => return Ok(shown),
                Link::Damaged => return Err(self.log.gone(self.position)),
            }
        }
    }
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        let mut retained = self.log.retained.lock();
        if let Some(count) = retained.get_mut(&self.position.sequence) {
            *count -= 1;
            if *count == 0 {
                retained.remove(&self.position.sequence);
            }
        }
    }
}
