//! Limbo: spans that nothing in memory points to any more, and that storage may still need.
//!
//! ```text
//!   retire(span, FreedBy::Sync)        --> | s s s s | --a sync that began later has ended-----> free
//!   retire(span, FreedBy::Checkpoint)  --> | c c     | --a checkpoint of a later moment--------> free
//! ```
//! 1. The caller that retires a span names the commit that makes it durable that nothing needs the span. In a running store, used
//!    space becomes free in no other way: `Space` frees no other span that its callers name, and what a recovery or a repair finds
//!    unoccupied takes an `Unclaimed`, which a running store does not have.
//! 2. A commit that begins is a value, [`SyncBegun`] or [`Moment`], which only this module makes. What was retired before it was
//!    made is free when it is given back, and nothing else.
//! 3. What is retired after a pin stays until the pin is removed and another commit has ended.
//!
//! It does not know which space is free, nor what a span held.

use std::collections::VecDeque;

use crate::object::place::span::Span;

/// The commit that makes it durable that nothing needs a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FreedBy {
    /// A sync that begins later: a record of the journal, or an extent that certifies itself, states it. Also for a span that
    /// nothing durable ever pointed to.
    Sync,
    /// A checkpoint of a later moment: objects were moved, which only the index in memory states.
    Checkpoint,
}

/// A sync that has begun.
#[derive(Debug)]
#[must_use = "what a sync frees is free when this is given back"]
pub(crate) struct SyncBegun(u64);

/// The moment of a checkpoint.
#[derive(Debug)]
#[must_use = "what a checkpoint frees is free when this is given back"]
pub(crate) struct Moment(u64);

/// Spans of one kind, oldest first, each with the number of spans retired before it.
#[derive(Debug, Default)]
struct Queue {
    spans: VecDeque<(u64, Span)>,
    /// Spans with a smaller number are free.
    committed: u64,
}

impl Queue {
    fn units(&self) -> u64 {
        self.spans
            .iter()
            .map(|(_, span)| u64::from(span.units))
            .sum()
    }

    fn first_free(&self, pin: u64) -> Option<Span> {
        let first = self.spans.front();
        first
            .filter(|(order, _)| *order < self.committed.min(pin))
            .map(|(_, span)| *span)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    by_sync: Queue,
    by_checkpoint: Queue,
    /// How many spans were ever retired.
    retired: u64,
    /// Spans with these numbers or greater ones stay, while a snapshot reads what was there when it began.
    pins: Vec<u64>,
}

impl Limbo {
    /// Adds a span that nothing in memory points to any more.
    pub(crate) fn retire(&mut self, span: Span, freed_by: FreedBy) {
        let order = self.retired;
        self.retired += 1;
        match freed_by {
            FreedBy::Sync => self.by_sync.spans.push_back((order, span)),
            FreedBy::Checkpoint => self.by_checkpoint.spans.push_back((order, span)),
        }
    }

    /// A sync begins now.
    pub(crate) fn begin_sync(&self) -> SyncBegun {
        SyncBegun(self.retired)
    }

    /// This sync has ended, and everything that was written before it began is durable.
    #[expect(clippy::needless_pass_by_value, reason = "a sync ends once")]
    pub(crate) fn end_sync(&mut self, sync: SyncBegun) {
        self.by_sync.committed = self.by_sync.committed.max(sync.0);
    }

    /// The moment of a checkpoint is now: it states all that is in limbo as free.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.retired)
    }

    /// The checkpoint of this moment is durable.
    #[expect(clippy::needless_pass_by_value, reason = "a checkpoint ends once")]
    pub(crate) fn end_checkpoint(&mut self, moment: Moment) {
        for queue in [&mut self.by_sync, &mut self.by_checkpoint] {
            queue.committed = queue.committed.max(moment.0);
        }
    }

    /// A span that is free; it stays here until [`take_out`](Self::take_out).
    pub(crate) fn first_free(&self) -> Option<(Span, FreedBy)> {
        let pin = self.first_pin();
        let by_sync = self.by_sync.first_free(pin);
        let by_checkpoint = self.by_checkpoint.first_free(pin);
        by_sync
            .map(|span| (span, FreedBy::Sync))
            .or(by_checkpoint.map(|span| (span, FreedBy::Checkpoint)))
    }

    /// Removes what [`first_free`](Self::first_free) gave.
    pub(crate) fn take_out(&mut self, freed_by: FreedBy) {
        match freed_by {
            FreedBy::Sync => self.by_sync.spans.pop_front(),
            FreedBy::Checkpoint => self.by_checkpoint.spans.pop_front(),
        };
    }

    /// Sets a pin: what is retired from now on stays until the pin is removed.
    pub(crate) fn pin(&mut self) -> u64 {
        self.pins.push(self.retired);
        self.retired
    }

    /// Removes a pin.
    pub(crate) fn unpin(&mut self, pin: u64) {
        if let Some(at) = self.pins.iter().position(|of| *of == pin) {
            self.pins.swap_remove(at);
        }
    }

    /// Whether there is a pin.
    pub(crate) fn is_pinned(&self) -> bool {
        !self.pins.is_empty()
    }

    fn first_pin(&self) -> u64 {
        self.pins.iter().min().copied().unwrap_or(u64::MAX)
    }

    /// All spans.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let all = self.by_sync.spans.iter().chain(&self.by_checkpoint.spans);
        all.map(|(_, span)| *span)
    }

    /// How many spans wait for such a commit.
    pub(crate) fn count(&self, freed_by: FreedBy) -> usize {
        self.queue(freed_by).spans.len()
    }

    /// Units in all.
    pub(crate) fn units(&self) -> u64 {
        self.by_sync.units() + self.by_checkpoint.units()
    }

    /// Units that such a commit frees: no pin keeps them.
    pub(crate) fn units_available(&self, freed_by: FreedBy) -> u64 {
        let pin = self.first_pin();
        let spans = self.queue(freed_by).spans.iter();
        spans
            .take_while(|(order, _)| *order < pin)
            .map(|(_, span)| u64::from(span.units))
            .sum()
    }

    fn queue(&self, freed_by: FreedBy) -> &Queue {
        match freed_by {
            FreedBy::Sync => &self.by_sync,
            FreedBy::Checkpoint => &self.by_checkpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(unit: u64) -> Span {
        Span { unit, units: 1 }
    }

    fn freed(limbo: &mut Limbo) -> Vec<u64> {
        let mut freed = Vec::new();
        while let Some((span, freed_by)) = limbo.first_free() {
            limbo.take_out(freed_by);
            freed.push(span.unit);
        }
        freed
    }

    #[test]
    fn a_commit_frees_what_waits_for_it_and_was_retired_before_it_began() {
        let mut limbo = Limbo::default();
        limbo.retire(span(1), FreedBy::Sync);
        limbo.retire(span(2), FreedBy::Checkpoint);
        let sync = limbo.begin_sync();
        limbo.retire(span(3), FreedBy::Sync);
        limbo.end_sync(sync);
        assert_eq!(freed(&mut limbo), [1]);
        let sync = limbo.begin_sync();
        limbo.end_sync(sync);
        assert_eq!(freed(&mut limbo), [3], "no sync states a move");
        let moment = limbo.moment();
        limbo.retire(span(4), FreedBy::Checkpoint);
        limbo.retire(span(5), FreedBy::Sync);
        limbo.end_checkpoint(moment);
        assert_eq!(freed(&mut limbo), [2]);
        let moment = limbo.moment();
        limbo.end_checkpoint(moment);
        assert_eq!(freed(&mut limbo), [5, 4], "a checkpoint syncs, too");
        assert_eq!((limbo.units(), limbo.spans().count()), (0, 0));
    }

    #[test]
    fn a_pin_keeps_what_is_retired_later_and_a_commit_after_it_frees_that() {
        let mut limbo = Limbo::default();
        limbo.retire(span(1), FreedBy::Checkpoint);
        let pin = limbo.pin();
        limbo.retire(span(2), FreedBy::Sync);
        limbo.retire(span(3), FreedBy::Checkpoint);
        let reach = [FreedBy::Sync, FreedBy::Checkpoint].map(|by| limbo.units_available(by));
        assert_eq!(reach, [0, 1]);
        let moment = limbo.moment();
        limbo.end_checkpoint(moment);
        assert_eq!(freed(&mut limbo), [1]);
        limbo.unpin(pin);
        assert!(!limbo.is_pinned());
        assert_eq!(freed(&mut limbo), [2, 3]);
    }
}
