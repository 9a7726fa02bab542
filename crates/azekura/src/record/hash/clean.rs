//! Cleaning: the live records of the emptiest segment are copied to the log's end, and the segment retires.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 walk the segment; for each record that the index points to, under its bucket's lock: append a copy, point the entry to it | both copies, of equal content |
//! | 2 retire the segment: nothing new is put there, its bytes stay | as above |
//! | 3 the next checkpoint, which points to copies only, is durable | the segment is free |
//!
//! Only segments before the last checkpoint are cleaned: replay never needs them, so removals in them need
//! not be copied. A segment that a follower still needs is left. If a record that the index points to is
//! damaged, the segment is left as it is, for ever: it is evidence, and the damage is reported by
//! whoever reads the record.
//!
//! Bound: the log takes at most `space_ratio` times its live bytes, eight segments, and what is appended
//! between two checkpoints.

use super::Core;
use crate::epoch;
use crate::error::Result;
use crate::format::frame::{COMPRESSED, Frame, FrameKind, MOVED};
use crate::log::{Address, Entry, Segment, Stop, Use};

/// Segments the log may take beyond the bound.
const SLACK: u64 = 8;

impl Core {
    /// Bytes the log may take for `live` live ones.
    fn bound(&self, live: u64) -> u64 {
        let slack = SLACK * self.log.geometry().segment_size();
        #[expect(clippy::cast_sign_loss, reason = "the ratio is above one")]
        let wanted = (live as f64 * self.options.space_ratio) as u64;
        wanted + slack
    }

    /// Whether the keeper does not keep up.
    pub(super) fn is_far_behind(&self) -> bool {
        let (used, live) = self.log_bytes();
        used > self.bound(live) + self.bound(live) / 4 + self.interval()
    }

    /// Cleans one segment, or makes the checkpoint that frees those already cleaned, if the bound asks for
    /// it. Returns whether there may be more to do.
    pub(super) fn clean_one(&self) -> Result<bool> {
        let (used, live) = self.log_bytes();
        self.log.segments().reap_patiently(self.bound(live) / 4);
        let (_, leaving, _) = self.log.segments().sizes();
        if used <= self.bound(live) {
            // What was cleaned is given back once it is a good part of the whole.
            if leaving > self.bound(live) / 4 + self.interval() {
                self.checkpoint()?;
                return Ok(true);
            }
            return Ok(false);
        }
        let Some(_cleaning) = self.cleaning.try_lock() else {
            return Ok(false);
        };
        if let Some(segment) = self.emptiest(|segment| segment.dead * 16 >= self.size_of(segment)) {
            self.clean(segment)?;
            return Ok(true);
        }
        // All that is dead lies behind the checkpoint.
        let last = self.checkpoint.lock().appended;
        let behind = self.log.appended() - last;
        if behind < 4 * self.log.geometry().segment_size() {
            return Ok(false);
        }
        self.checkpoint()?;
        Ok(true)
    }

    pub(super) fn size_of(&self, segment: &Segment) -> u64 {
        u64::from(segment.units) << self.log.geometry().shift
    }

    /// The segment with the largest share of dead bytes among those that may be cleaned and are `wanted`.
    pub(super) fn emptiest(&self, wanted: impl Fn(&Segment) -> bool) -> Option<Segment> {
        let before = self
            .replay_from
            .lock()
            .sequence
            .min(self.log.retained_from());
        let suspect = self.suspect.lock();
        let share = |segment: &Segment| (segment.dead << 10) / self.size_of(segment);
        self.log
            .segments()
            .in_use(Use::Log)
            .into_iter()
            .filter(|s| s.sequence < before && wanted(s) && !suspect.contains(&s.index))
            .max_by_key(share)
    }

    /// Cleans `segment`. The caller holds `cleaning`.
    pub(super) fn clean(&self, segment: Segment) -> Result<()> {
        let mut lost = false;
        let stop = self.log.walk(
            segment.index,
            crate::log::layout::FIRST_FRAME,
            &mut |at, frame| {
                self.log
                    .each_record(segment.index, at, frame, &mut |address, frame| match self
                        .move_if_live(address, &frame)
                    {
                        Err(error) if error.kind() == crate::error::Kind::Corrupted => {
                            lost = true;
                            Ok(())
                        }
                        other => other,
                    })
            },
        )?;
        if lost || stop != Stop::Ended {
            tracing::error!(
                segment = segment.index,
                "a segment is damaged; it is not cleaned"
            );
            self.suspect.lock().push(segment.index);
            return Ok(());
        }
        self.log.segments().retire(segment.index);
        Ok(())
    }

    fn move_if_live(&self, address: Address, frame: &Frame<'_>) -> Result<()> {
        if !frame.header.kind.is_record() {
            return Ok(());
        }
        let hash = self.hash(frame.key);
        let pin = epoch::pin();
        let here = |place| Ok((Address(place) == address).then_some(()));
        if self.index.find(&pin, hash, here)?.is_none() {
            return Ok(());
        }
        let _inside = self.gate.enter();
        let locked = self.index.lock(&pin, hash)?;
        if let Some((slot, ())) = locked.find(here)? {
            let mark = epoch::appending();
            let flags = frame.header.flags & COMPRESSED | MOVED;
            let entry = Entry {
                kind: FrameKind::Put,
                flags,
                key: frame.key,
                value: frame.value,
            };
            let appended = self.log.append(&mark, &entry)?;
            locked.replace(slot, appended.address.0);
            self.log.bury(address, frame.len());
        }
        Ok(())
    }
}
