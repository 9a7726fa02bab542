//! Relief of a full store: room for new records is won from dead ones, now and whatever the pace of cleaning says.
//!
//! A store is full when its storage could not be grown for a new record. It stays usable: removals and records that
//! replace longer ones go on, out of the log's reserve (`log::segment`), and what they leave dead is cleaned:
//!
//! | step | a crash here leaves |
//! |---|---|
//! | 1 try to grow: others may have given room back | the same |
//! | 2 copy what is live of the emptiest segments before the checkpoint, as far as the reserve has room for copies | as `clean` |
//! | 3 checkpoint: what was emptied is free | as `checkpoint` |
//! | 4 again, until there is room for some segments of new records, or nothing is worth a copy | |
//!
//! A segment is worth it from a sixteenth of dead bytes on. So of a full store that is written over and over, each byte
//! costs up to 15 copied ones; it is the price of a store without room.
//!
//! Segments of less than 64 KiB are for tests: a checkpoint's root takes many neighbours of them, and a full store may not
//! find these.
//!
//! It does not know who is refused: updates ask the log.

use super::Core;
use crate::error::{Kind, Result};
use crate::log::{Claim, Segment, Use};

/// Rounds of cleaning and checkpointing that one update waits for at most.
const ROUNDS: usize = 8;
/// Segments that a round wins at most, beyond what the reserve lacks.
const WON_MAX: u32 = 4;
/// Segments that removals want to find free.
const LOW: u32 = 1;

impl Core {
    /// Wins room, if an update that `grows` or does not would find none. Returns with nothing won, too.
    #[cold]
    pub(super) fn relieve(&self, grows: bool) -> Result<()> {
        if !grows && self.log.segments().space().left_for(Claim::Removal) > LOW {
            return Ok(());
        }
        let _cleaning = self.cleaning.lock();
        match self.win_room() {
            // The update itself is told, if it finds no room.
            Err(error) if error.kind() == Kind::Full => Ok(()),
            other => other,
        }
    }

    fn win_room(&self) -> Result<()> {
        let segments = self.log.segments();
        // What a checkpoint under way holds twice is free when it is done.
        drop(self.checkpoint.lock());
        for _ in 0..ROUNDS {
            segments.reap();
            if !segments.is_full() {
                return Ok(());
            }
            let secured = segments.space().secure(WON_MAX, Claim::Growth);
            match secured {
                Err(error) if error.kind() == Kind::Full => {}
                other => return other,
            }
            let won = self.clean_emptiest()?;
            if !won && !self.is_worth_a_checkpoint() {
                return Ok(());
            }
            self.look_ahead();
            self.checkpoint()?;
            segments.reap_patiently(self.log.geometry().segment_size());
        }
        Ok(())
    }

    /// Cleans what lies before the checkpoint; whether there was something.
    fn clean_emptiest(&self) -> Result<bool> {
        let size = self.log.geometry().segment_size();
        let wanted = {
            let space = self.log.segments().space();
            u64::from(space.missing_for(Claim::Growth) + WON_MAX) * size
        };
        let mut won = 0;
        while won < wanted
            && let Some(segment) = self.emptiest(|segment| self.is_worth_cleaning(segment))
        {
            match self.clean(segment) {
                Ok(()) => won += segment.dead.max(1),
                // What is retired by now is free after the checkpoint.
                Err(error) if error.kind() == Kind::Full => break,
                Err(error) => return Err(error),
            }
        }
        Ok(won > 0)
    }

    fn is_worth_cleaning(&self, segment: &Segment) -> bool {
        let (size, unit) = (self.size_of(segment), self.log.geometry().segment_size());
        // Of a large record's segment the end is always dead.
        segment.dead * 16 >= size && (segment.units == 1 || segment.dead >= unit)
    }

    /// Whether a checkpoint makes a segment one that can be cleaned.
    fn is_worth_a_checkpoint(&self) -> bool {
        let from = self.replay_from.lock().sequence;
        let (open, _) = self.log.end();
        let mut behind = self.log.segments().in_use(Use::Log).into_iter();
        behind.any(|s| s.sequence >= from && s.index != open && self.is_worth_cleaning(&s))
    }
}
