//! Cleaning: the live records of the emptiest segment are copied to the log's end, and the segment retires.
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 walk the segment; for each record that the index points to, under its bucket's lock: append a copy, point the entry to it | both copies, of equal content |
//! | 2 retire the segment: nothing new is put there, its bytes stay | as above |
//! | 3 the next checkpoint, which points to copies only, is durable | the segment is free |
//!
//! In a full store no other thread updates meanwhile, and none of a segment is copied unless the free ones have room for all of it,
//! but for what a checkpoint takes meanwhile and for neighbours: the last ones are for copies.
//!
//! Only segments before the last checkpoint are cleaned: replay never needs them, so removals in them need not be copied. A
//! segment that a follower still needs is left. If a record that the index points to is damaged, the segment is left as it
//! is, for ever: it is evidence, and reading the record reports the damage.
//!
//! Bound: the log is kept to `space_ratio` times its live bytes, four segments, and what is appended
//! between two checkpoints. Where writers are faster than that, they do a step of it themselves from a quarter more on. From
//! twice on, what waits for a checkpoint or for readers included, each that has filled a segment cleans and checkpoints, without
//! the pace below, until the log is smaller: that is the bound for any number of writers.
//!
//! A log that is larger because records were removed shrinks at a pace: for each byte appended, 1 / (`space_ratio` - 1) bytes may
//! be copied, which is what keeping the bound under the worst of overwriting takes, but none for what removals append as long as
//! less and less is live; segments without a live record go at once, and all the rest when for a moment no thread appends. The bound
//! from which writers wait shrinks at the same rate. So cleaning is rate-limited while live bytes shrink, and a store that is
//! being emptied takes no more space than before.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Core, layout};
use crate::epoch::Pin;
use crate::error::{Kind, Result};
use crate::format::frame::{COMPRESSED, Frame, MOVED};
use crate::index::hash::Hash;
use crate::log::layout::FIRST_FRAME;
use crate::log::{Address, AllocationClass, Entry, Segment, Stop, Use};
use crate::record::group::GROUP;

/// Segments the log may take beyond the bound.
const SLACK: u64 = 4;
/// Segments' worth of copying that may be saved up.
const SAVED: u64 = 8;

/// What may be copied.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes that may still be copied.
    credit: u64,
    /// Bytes that users had appended when it was last added to.
    appended: u64,
    /// Live bytes when it was last added to.
    live: u64,
    /// Bytes copied since the file was opened.
    copied: u64,
}

impl Core {
    /// Bytes the log may take for `live` live ones.
    pub(super) fn bound(&self, live: u64) -> u64 {
        let slack = SLACK * self.log.geometry().segment_size();
        #[expect(clippy::cast_sign_loss, reason = "the ratio is above one")]
        let wanted = (live as f64 * self.options.space_ratio) as u64;
        wanted + slack
    }

    /// Whether the background worker does not keep up.
    pub(super) fn is_far_behind(&self) -> bool {
        let (used, live) = self.log_load();
        used > self.bound(live) + self.bound(live) / 4 + self.interval()
    }

    /// Whether cleaning cannot keep up, with one writer's help either: what it cleaned and a checkpoint has not
    /// freed yet counts, too.
    pub(super) fn is_out_of_hand(&self) -> bool {
        let (_, live) = self.log_load();
        // A thread that removes does not wait for cleaning of what removals leave dead.
        let live = live.max(self.recent_live.load(Ordering::Relaxed));
        let sizes = self.log.segments().sizes();
        // The other half of the interval is for what cleaning copies before anything is freed.
        sizes.log + sizes.leaving > 2 * self.bound(live) + self.interval() / 2
    }

    /// Bytes of segments that wait for a checkpoint.
    fn retired(&self) -> u64 {
        let retired = self.log.segments().retired();
        let units: u32 = retired.iter().map(|(_, units)| units).sum();
        u64::from(units) << self.log.geometry().shift
    }

    /// Whether the log is larger than the bound.
    pub(super) fn is_over_bound(&self) -> bool {
        let (used, live) = self.log_load();
        used > self.bound(live)
    }

    /// Cleans one segment, or makes the checkpoint that frees those already cleaned, if the bound asks for
    /// it; `paced`: and if so much may be copied. Another thread that cleans is waited for so long. Returns whether there may
    /// be more to do.
    pub(super) fn clean_one(&self, paced: bool, wait: Duration) -> Result<bool> {
        let (used, live) = self.log_load();
        self.log.segments().reap_patiently(self.bound(live) / 4);
        // What was cleaned is given back once it is a good part of the whole; sooner where the copies made meanwhile, which
        // take room in addition, would be too much.
        let kept = if self.is_out_of_hand() {
            self.interval() / 2
        } else {
            self.bound(live) / 4 + self.interval()
        };
        if self.retired() > kept {
            self.checkpoint()?;
            return Ok(true);
        }
        if used <= self.bound(live) {
            return Ok(false);
        }
        let Some(mut pace) = self.cleaning.try_lock_for(wait) else {
            return Ok(false);
        };
        if let Some(segment) =
            self.emptiest(|segment| segment.reclaimable() * 16 >= self.size_of(segment))
        {
            self.earn(&mut pace, live);
            let live = self.size_of(&segment).saturating_sub(segment.dead);
            if paced && live > pace.credit {
                return Ok(false);
            }
            let cleaned = self.clean(segment);
            // What was refused copied nothing worth counting: else it would be counted as appended by users.
            if !matches!(&cleaned, Err(error) if error.kind() == Kind::Full) {
                pace.credit = pace.credit.saturating_sub(live);
                pace.copied += live;
            }
            drop(pace);
            return match cleaned {
                // What was cleaned before gives room, if a checkpoint lets go of it; else an update that needs it seeks it.
                Err(error) if error.kind() == Kind::Full => {
                    let gives_room = self.retired() > 0;
                    if gives_room {
                        self.checkpoint()?;
                    }
                    Ok(gives_room)
                }
                other => other.map(|()| true),
            };
        }
        // All that is dead lies after the checkpoint. Threads that wait for cleaning do not wait for one.
        drop(pace);
        let last = self.checkpoint.lock().committed.appended;
        let after = self.log.appended() - last;
        if after < 4 * self.log.geometry().segment_size() {
            return Ok(false);
        }
        self.checkpoint()?;
        Ok(true)
    }

    /// Adds what users appended since the last time, `live` bytes being live now.
    fn earn(&self, pace: &mut Pace, live: u64) {
        let appended = self.log.appended().saturating_sub(pace.copied);
        let new = appended.saturating_sub(pace.appended);
        pace.appended = pace.appended.max(appended);
        let removed = pace.live.saturating_sub(live).min(new);
        pace.live = live;
        #[expect(clippy::cast_sign_loss, reason = "the ratio is above one")]
        let earned = ((new - removed) as f64 / (self.options.space_ratio - 1.0)) as u64;
        let most = SAVED * self.log.geometry().segment_size();
        pace.credit = (pace.credit + earned).min(most);
        let recent = self.recent_live.load(Ordering::Relaxed);
        let recent = recent.saturating_sub(earned).max(live);
        self.recent_live.store(recent, Ordering::Relaxed);
    }

    pub(super) fn size_of(&self, segment: &Segment) -> u64 {
        u64::from(segment.units) << self.log.geometry().shift
    }

    /// Segments of the log before this sequence may be cleaned: no replay and no follower needs them.
    pub(super) fn cleanable_before(&self) -> u64 {
        let replayed = self.replay_from.lock().sequence();
        replayed.min(self.log.retained_from())
    }

    /// The segment with the largest share of reclaimable bytes among those that may be cleaned and are `wanted`.
    pub(super) fn emptiest(&self, wanted: impl Fn(&Segment) -> bool) -> Option<Segment> {
        let before = self.cleanable_before();
        let suspect = self.suspect.lock();
        let share = |segment: &Segment| (segment.reclaimable() << 10) / self.size_of(segment);
        self.log
            .segments()
            .in_use(Use::Log)
            .into_iter()
            .filter(|s| s.sequence < before && wanted(s) && !suspect.contains(&s.index))
            .max_by_key(share)
    }

    /// Cleans `segment`. The caller holds `cleaning`. In a full store: `Full`, and nothing is done, where free
    /// segments are too few for its copies.
    pub(super) fn clean(&self, segment: Segment) -> Result<()> {
        let alone = self.log.segments().is_full().then(|| self.gate.alone());
        if alone.is_some() {
            self.check_copies_fit(&segment)?;
        }
        let is_alone = alone.is_some();
        let mut group = Vec::with_capacity(GROUP);
        let stop = self.log.walk(segment.index, FIRST_FRAME, &mut |at, frame| {
            self.log
                .each_record(segment.index, at, frame, &mut |address, frame| {
                    if layout::is_record(frame.header.kind) {
                        group.push((address, self.hash(frame.key)));
                    }
                    if group.len() == GROUP {
                        self.move_live(&mut group, is_alone)?;
                    }
                    Ok(())
                })
        });
        let moved = stop.and_then(|stop| {
            self.move_live(&mut group, is_alone)?;
            Ok(stop == Stop::Ended)
        });
        let is_whole = match moved {
            Err(error) if error.kind() == Kind::Corrupted => false,
            other => other?,
        };
        if !is_whole {
            tracing::error!(
                segment = segment.index,
                "a segment is damaged; it is not cleaned"
            );
            self.suspect.lock().push(segment.index);
            return Ok(());
        }
        // If not, it is cleaned again, of nothing, when the follower is past it.
        self.log
            .retire_unless_retained(segment.index, segment.sequence);
        Ok(())
    }

    /// `Full` unless there is room for the copies of all live records of a segment, while no other thread updates.
    fn check_copies_fit(&self, segment: &Segment) -> Result<()> {
        let (needed, longest) = self.log.units_for(self.live_frames(segment)?);
        let mut space = self.log.segments().space();
        let fits = space.left_for(AllocationClass::Cleaning) >= needed;
        if needed == 0 || fits && space.is_left(longest, AllocationClass::Cleaning) {
            return Ok(());
        }
        space.secure(needed, AllocationClass::Cleaning)
    }

    /// The lengths of a segment's live frames, in their order. Where it is damaged, those before that.
    fn live_frames(&self, segment: &Segment) -> Result<Vec<usize>> {
        let pin = self.index.pin();
        let mut lens = Vec::new();
        let walked = self.log.walk(segment.index, FIRST_FRAME, &mut |at, frame| {
            let each = &mut |address, frame: Frame<'_>| {
                let here = |place| Ok((Address(place) == address).then_some(()));
                let is_record = layout::is_record(frame.header.kind);
                if is_record && self.index.find(&pin, self.hash(frame.key), here)?.is_some() {
                    lens.push(frame.len());
                }
                Ok(())
            };
            self.log.each_record(segment.index, at, frame, each)
        });
        match walked {
            Err(error) if error.kind() != Kind::Corrupted => Err(error),
            _ => Ok(lens),
        }
    }

    /// Moves those of a group of records that are live. Most of an emptying segment's are not, and to find that out
    /// costs a miss each: they are asked for together.
    fn move_live(&self, group: &mut Vec<(Address, Hash)>, is_alone: bool) -> Result<()> {
        let pin = self.index.pin();
        for (_, hash) in group.iter() {
            self.index.prefetch(&pin, *hash);
        }
        for (address, hash) in group.drain(..) {
            let here = |place| Ok((Address(place) == address).then_some(()));
            if self.index.find(&pin, hash, here)?.is_some() {
                self.move_one(&pin, address, hash, is_alone)?;
            }
        }
        Ok(())
    }

    /// Copies a record that is still where it was found; `is_alone`: no other thread updates.
    fn move_one(&self, pin: &Pin, address: Address, hash: Hash, is_alone: bool) -> Result<()> {
        let frame = self.log.frame(pin, address)?;
        let _inside = (!is_alone).then(|| self.gate.enter());
        let locked = self.index.lock(pin, hash)?;
        let here = |place| Ok((Address(place) == address).then_some(()));
        if let Some((slot, ())) = locked.find(here)? {
            let mark = pin.critical_section();
            let flags = frame.header.flags & COMPRESSED | MOVED;
            let entry = Entry {
                kind: layout::PUT,
                flags,
                key: frame.key,
                value: frame.value,
            };
            let appended = self.log.append(&mark, &entry, AllocationClass::Cleaning)?;
            locked.replace(slot, appended.address.0);
            self.log.mark_dead(address, frame.len());
        }
        Ok(())
    }
}
