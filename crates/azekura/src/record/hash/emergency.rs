//! Emergency cleaning of a full store: frees the space of dead records at once, regardless of the rate limit of cleaning.
//!
//! A store is full when its storage could not be grown for a new record. It stays usable: removals and records that
//! replace longer ones are still accepted, from the log's reserve (`log::segment`), and their dead bytes are cleaned:
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 try to grow: others may have freed space | the same |
//! | 2 copy the live frames of the emptiest segments before the checkpoint whose copies all fit into the reserve | as `clean` |
//! | 3 checkpoint: the emptied segments are free | as `checkpoint` |
//! | 4 repeat, until some segments of new records fit, or no segment is worth a copy | |
//!
//! A segment is worth a copy if a sixteenth of it is dead and the copy need not waste it again; where an exchange or a
//! removal would be refused otherwise, any segment that frees something is. So each byte that is overwritten in a full
//! store costs up to 15 copied ones. `log::segment`'s space explains why there is always such a segment.
//!
//! Not every update starts it: only one after which an exchange or removal would not fit, or when so much has died since
//! the last attempt that a step of the reserve can be freed. So a full store makes a bounded number of checkpoints for
//! each segment it appends, however short its records are.
//!
//! It does not refuse updates: they ask the log.

use std::sync::atomic::Ordering;

use super::Core;
use crate::epoch;
use crate::error::{Kind, Result};
use crate::log::{Address, AllocationClass, Patience, Segment, Use};

/// Rounds of cleaning and checkpointing that one update waits for at most, and one that is refused if nothing is won.
const ROUNDS: u32 = 8;
const ROUNDS_OF_REFUSED: u32 = 64;
/// Segments that a round wins at most, beyond what the reserve lacks.
const WON_MAX: u32 = 4;
/// Segments that removals want to find free.
const LOW: u32 = 1;
/// Segments whose copies do not fit that a round tries, the emptiest first.
const UNFIT_MAX: usize = 64;
/// Updates that pass before the dead bytes of so many segments are added up again.
const SEGMENTS_EACH: usize = 256;

/// What an update of a full store may need.
#[derive(Clone, Copy)]
struct Wanted {
    class: AllocationClass,
    units: u32,
    /// Whether the update is refused if nothing is won, though there may be room for `class`: it may be growth.
    surely: bool,
}

/// What a full store may free: the state after the last emergency cleaning, when nothing more could be freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Reclaimable bytes of the log.
    dead: u64,
    /// Bytes of free segments, and of those that wait for a checkpoint or for readers.
    free: u64,
    leaving: u64,
    /// Segments that were wanted side by side. For more, more is worth a copy.
    units: u32,
}

impl Core {
    /// Frees room, if an update would find none; `grows`: it stores more than it replaces. Whether growth can continue; if not,
    /// there may be room for less. `present`: where the record stands that is replaced; `len`: bytes of the new frame, if
    /// known; `surely`: by an update that is refused if nothing is won; `patience`: how long it waits for readers.
    #[cold]
    pub(super) fn relieve(
        &self,
        grows: bool,
        present: Option<Address>,
        len: Option<usize>,
        surely: bool,
        patience: &mut Patience,
    ) -> Result<bool> {
        let new = len.map_or(1, |len| self.log.units_of(len));
        let (class, units) = if grows {
            (AllocationClass::Exchange, self.units_at(present).max(new))
        } else {
            (AllocationClass::Removal, new)
        };
        let wanted = Wanted {
            class,
            units,
            surely,
        };
        // Who relieves may wait for the closure of another store that this update is called from; and of what a thread that is
        // pinned cleans nothing is free before it has ended.
        if epoch::is_within_update() || epoch::is_pinned() {
            // But what readers have let go of is free.
            if !self.has_room(wanted) {
                self.log.segments().reap();
            }
            return Ok(self.can_grow(wanted.units));
        }
        if !self.is_relief_due(wanted, false) {
            if wanted.surely && !self.has_room(wanted) {
                self.wait_for_others(wanted, patience);
            }
            return Ok(self.can_grow(wanted.units));
        }
        // An update that finds room, and was not refused, does not wait for a copy or a check, which hold up cleaning.
        let cleaning = if len.is_none() && self.has_room(wanted) {
            self.cleaning.try_lock()
        } else {
            Some(self.cleaning.lock())
        };
        let Some(_cleaning) = cleaning else {
            return Ok(self.can_grow(wanted.units));
        };
        // Another thread may have done it meanwhile.
        if !self.is_relief_due(wanted, true) {
            return Ok(self.can_grow(wanted.units));
        }
        *self.last_emergency.lock() = Left::default();
        let won = match self.win_room(wanted, patience) {
            // The update itself is refused, if it finds no room.
            Err(error) if error.kind() == Kind::Full => Ok(false),
            other => other,
        };
        // What was won another thread may have taken since.
        won.map(|won| won || self.can_grow(wanted.units))
    }

    /// What another thread cleans or writes a checkpoint of is free when it is done, and readers are gone.
    fn wait_for_others(&self, wanted: Wanted, patience: &mut Patience) {
        drop(self.cleaning.lock());
        drop(self.checkpoint.lock());
        let segments = self.log.segments();
        let take = || segments.space().secure(wanted.units, wanted.class);
        // Where there is still no room, the update is refused.
        let _ = segments.patiently(patience, take);
    }

    fn can_grow(&self, units: u32) -> bool {
        let space = self.log.segments().space();
        space.is_left(units, AllocationClass::Growth)
    }

    /// Segments that a frame takes which is as long as the one there.
    fn units_at(&self, present: Option<Address>) -> u32 {
        let pin = self.index.pin();
        let frame = present.and_then(|address| self.log.frame(&pin, address).ok());
        frame.map_or(1, |frame| self.log.units_of(frame.len()))
    }

    /// `again`: whether it was just found to be due.
    fn is_relief_due(&self, wanted: Wanted, again: bool) -> bool {
        let segments = self.log.segments();
        // A store that is not full any more may still lack neighbours for a long record.
        let is_needless = if wanted.surely {
            self.has_won(wanted)
        } else {
            !segments.is_full()
        };
        if is_needless {
            return false;
        }
        let has_room = self.has_room(wanted);
        if !has_room {
            // Without a background worker an update would be refused for segments that readers released since.
            segments.reap();
        }
        let asked = self.emergency_attempts.fetch_add(1, Ordering::Relaxed);
        let total = segments.total() as usize;
        if has_room && !wanted.surely && !again && !asked.is_multiple_of(1 + total / SEGMENTS_EACH)
        {
            return false;
        }
        let now = self.left();
        let last = {
            let mut last = self.last_emergency.lock();
            // What is cleaned by others is not news when it dies again.
            last.dead = last.dead.min(now.dead);
            *last
        };
        let wants_more = wanted.units > last.units;
        let now = Left {
            units: last.units,
            ..now
        };
        let size = self.log.geometry().segment_size();
        let step = u64::from(segments.reserve().step.max(1)) * size;
        let has_segments_more = (now.free, now.leaving) != (last.free, last.leaving);
        now.dead >= last.dead + step
            || !has_room && (now != last || wants_more)
            || wanted.surely && has_segments_more
    }

    fn has_room(&self, wanted: Wanted) -> bool {
        let space = self.log.segments().space();
        space.left_for(wanted.class) > LOW && space.is_left(wanted.units, wanted.class)
    }

    fn left(&self) -> Left {
        let log = self.log.segments().in_use(Use::Log);
        let sizes = self.log.segments().sizes();
        Left {
            dead: log.iter().map(Segment::reclaimable).sum(),
            free: sizes.free,
            leaving: sizes.leaving,
            units: 0,
        }
    }

    /// Whether there is room for some more than was there.
    fn win_room(&self, wanted: Wanted, patience: &mut Patience) -> Result<bool> {
        let segments = self.log.segments();
        // What a checkpoint under way holds twice is free when it is done.
        drop(self.checkpoint.lock());
        let rounds = if wanted.surely {
            ROUNDS_OF_REFUSED
        } else {
            ROUNDS
        };
        for round in 1..=rounds {
            segments.reap();
            self.look_ahead();
            if self.has_won(wanted) {
                return Ok(true);
            }
            let some = WON_MAX.max(wanted.units);
            let grow = || segments.space().secure(some, AllocationClass::Growth);
            // What readers hold is worth a wait only where the update is refused otherwise.
            let secured = if wanted.surely || !self.has_room(wanted) {
                segments.patiently(patience, grow)
            } else {
                grow()
            };
            match secured {
                Err(error) if error.kind() == Kind::Full => {}
                other => return other.map(|()| true),
            }
            if !self.clean_emptiest(wanted, round, patience)? {
                // There is nothing more to be won before something else has died.
                *self.last_emergency.lock() = Left {
                    units: wanted.units,
                    ..self.left()
                };
                return Ok(false);
            }
            self.look_ahead();
            self.checkpoint()?;
            segments.reap_patiently(self.log.geometry().segment_size());
        }
        Ok(false)
    }

    fn has_won(&self, wanted: Wanted) -> bool {
        let space = self.log.segments().space();
        space.left_for(AllocationClass::Growth) >= WON_MAX.max(wanted.units)
            && space.is_left(wanted.units, AllocationClass::Growth)
    }

    /// Cleans what lies before the checkpoint, more in a later round; whether a checkpoint is worth it then.
    fn clean_emptiest(&self, wanted: Wanted, round: u32, patience: &mut Patience) -> Result<bool> {
        let size = self.log.geometry().segment_size();
        let has_room = self.has_room(wanted);
        let lacking = self.log.segments().space().missing_for_growth() + WON_MAX;
        let lacking = lacking.max(wanted.units) * round;
        // What an exchange needs is won from whatever gives something back.
        let is_worth = |segment: &Segment| {
            let least = if has_room {
                self.size_of(segment) / 16
            } else {
                size / 256
            };
            segment.reclaimable() >= least.max(1)
        };
        let (mut won, mut unfit) = (0, Vec::new());
        while won < u64::from(lacking) * size
            && let Some(segment) = self.emptiest(|s| is_worth(s) && !unfit.contains(&s.index))
        {
            // Readers are waited for once.
            let cleaned = if unfit.is_empty() {
                self.log
                    .segments()
                    .patiently(patience, || self.clean(segment))
            } else {
                self.clean(segment)
            };
            match cleaned {
                Ok(()) => won += segment.reclaimable().max(1),
                // What is retired by now is free after the checkpoint. Where nothing is, another one's copies may fit.
                Err(error)
                    if error.kind() == Kind::Full && (won > 0 || unfit.len() + 1 == UNFIT_MAX) =>
                {
                    break;
                }
                Err(error) if error.kind() == Kind::Full => unfit.push(segment.index),
                Err(error) => return Err(error),
            }
        }
        if won > 0 || !self.log.segments().retired().is_empty() {
            return Ok(true);
        }
        // Whether a checkpoint makes a segment one that can be cleaned.
        let from = self.replay_from.lock().sequence();
        let open = self.log.end().segment();
        let mut after = self.log.segments().in_use(Use::Log).into_iter();
        Ok(after.any(|s| s.sequence >= from && s.index != open && is_worth(&s)))
    }
}
